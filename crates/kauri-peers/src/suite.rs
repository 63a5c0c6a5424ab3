//! The workloads, for one shape of rows.
//!
//! Four parts, each with stores of its own: reading, writing without sync, durable commits, and space under an open reader.
//! Within a part there are rounds, and in a round the contenders take turns at each workload, so that what else happens on the
//! machine falls on all alike. The estimate is the median over the rounds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::contender::{self, Contender, Gets, repeat};
use crate::data::{Data, Shape};
use crate::engine::Sync;
use crate::memory;
use crate::outcome::{Sheet, Unit};

/// Rows in a commit that has many.
pub(crate) const BATCH: usize = 1000;
/// Ranges that are counted in a turn: enough that what the others left in the processor's caches does not matter much.
const RANGES: usize = 1000;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) rows: usize,
    pub(crate) read_rounds: u64,
    pub(crate) write_rounds: u64,
    pub(crate) sync_rounds: u64,
    /// How many durable commits of one row a thread makes in a round, where there are eight of them.
    pub(crate) commits: usize,
    /// How long a workload takes that ends by the clock.
    pub(crate) span: Duration,
}

impl Plan {
    pub(crate) fn full(shape: Shape) -> Self {
        // About 40 to 90 MB: more than the caches of the processor hold.
        let rows = rows_of(shape);
        Self { rows, read_rounds: 9, write_rounds: 3, sync_rounds: 9, commits: 24, span: Duration::from_millis(400) }
    }

    pub(crate) fn quick(shape: Shape) -> Self {
        let rows = rows_of(shape) / 10;
        Self { rows, read_rounds: 3, write_rounds: 1, sync_rounds: 2, commits: 8, span: Duration::from_millis(100) }
    }
}

fn rows_of(shape: Shape) -> usize {
    match shape.row_bytes() {
        ..100 => 1_000_000,
        100..1000 => 500_000,
        1000.. => 20_000,
    }
}

/// A part of the suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Part {
    Read,
    Write,
    Sync,
    Space,
    /// What has no shape: `kinds.rs`.
    Kinds,
}

impl Part {
    /// Those that are measured for each shape.
    pub(crate) const SHAPED: [Self; 4] = [Self::Read, Self::Write, Self::Sync, Self::Space];

    /// Whether it is measured for a shape: long values differ in how they are written.
    pub(crate) fn is_of(self, shape: Shape) -> bool {
        shape != Shape::C || self == Self::Write
    }
}

/// One shape's contenders at work.
pub(crate) struct Suite<'a> {
    data: Data,
    plan: Plan,
    contenders: Vec<Box<dyn Contender>>,
    sheet: &'a mut Sheet,
}

/// What work took.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    /// Of this thread's processor time.
    pub(crate) thread: Duration,
    pub(crate) wall: Duration,
}

pub(crate) fn spend(work: impl FnOnce()) -> Spent {
    let (thread, wall) = (thread_time(), Instant::now());
    work();
    Spent { thread: thread_time().saturating_sub(thread), wall: wall.elapsed() }
}

/// As `spend`, for work that takes memory.
pub(crate) fn spend_ready(work: impl FnOnce()) -> Spent {
    memory::ready();
    spend(work)
}

fn per_second(times: usize, took: Duration) -> f64 {
    times as f64 / took.as_secs_f64()
}

impl<'a> Suite<'a> {
    pub(crate) fn new(shape: Shape, plan: Plan, folder: &Path, sheet: &'a mut Sheet) -> Self {
        Self { data: Data::new(shape, plan.rows), plan, contenders: contender::all(folder), sheet }
    }

    pub(crate) fn measure(&mut self, part: Part) {
        match part {
            Part::Read => self.read(),
            Part::Write => (0..self.plan.write_rounds).for_each(|round| self.write(round)),
            Part::Sync => self.sync(),
            Part::Space => self.space(),
            Part::Kinds => unreachable!("it has no shape"),
        }
    }

    fn note(&mut self, workload: &str, unit: Unit, who: usize, value: f64) {
        let workload = format!("{} {workload}", self.data.shape.name);
        self.sheet.note(workload, unit, self.contenders[who].name(), value);
    }

    /// Notes a rate by the thread's processor time: waiting for a core is not counted.
    fn note_rate(&mut self, workload: &str, who: usize, times: usize, spent: Spent) {
        self.note(workload, Unit::PerSecond, who, per_second(times, spent.thread));
    }

    /// Notes a rate by both clocks: what waits for the disk shows in one of them only.
    fn note_write(&mut self, workload: &str, who: usize, times: usize, spent: Spent) {
        self.note_rate(workload, who, times, spent);
        self.note(&format!("{workload} (wall)"), Unit::PerSecond, who, per_second(times, spent.wall));
    }

    /// Lets everybody take a turn at a workload of so many operations.
    fn turns(&mut self, workload: &str, times: usize, work: impl Fn(&dyn Contender, &Data)) {
        for who in 0..self.contenders.len() {
            let spent = spend(|| work(&*self.contenders[who], &self.data));
            self.note_rate(workload, who, times, spent);
        }
    }

    fn each(&mut self, work: impl Fn(&mut dyn Contender, &Data)) {
        for contender in &mut self.contenders {
            work(&mut **contender, &self.data);
        }
    }

    fn read(&mut self) {
        let rows = self.data.rows;
        self.each(|contender, data| {
            contender.open_empty(Sync::Never);
            contender.bulk(data, data.rows);
            contender.settle();
            contender.get(data, data.rows, Gets { times: data.rows / 2, per_txn: BATCH, seed: 1 });
            assert_eq!(contender.scan_all(), data.rows, "{} has all rows", contender.name());
        });
        for round in 0..self.plan.read_rounds {
            let gets = Gets { times: rows / 4, per_txn: usize::MAX, seed: 10 + round };
            self.turns("get_1t", gets.times, |who, data| who.get(data, rows, gets));
            self.get_in_two_threads(gets);
            let single = Gets { per_txn: 1, ..gets };
            self.turns("get_txn_per_op", gets.times, |who, data| who.get(data, rows, single));
            self.turns("scan_full", rows, |who, _| assert_eq!(who.scan_all(), rows));
            self.turns("scan_full_rev", rows, |who, _| assert_eq!(who.scan_all_back(), rows));
            self.turns("scan_100", rows / 100, |who, data| who.scan(data, 100, rows / 100, round));
            self.turns("scan_10", rows / 20, |who, data| who.scan(data, 10, rows / 20, round));
            let ranges = self.data.ranges(RANGES, rows / 100, round);
            self.turns("count_range_1pct", RANGES, |who, _| who.count(&ranges));
        }
        self.mixed();
        self.each(|contender, _| contender.close());
    }

    fn get_in_two_threads(&mut self, gets: Gets) {
        for who in 0..self.contenders.len() {
            let (contender, data) = (&*self.contenders[who], &self.data);
            let spent = spend(|| {
                thread::scope(|scope| {
                    for seed in [gets.seed, gets.seed + 1000] {
                        scope.spawn(move || contender.get(data, data.rows, Gets { seed, ..gets }));
                    }
                });
            });
            self.note("get_2t", Unit::PerSecond, who, per_second(2 * gets.times, spent.wall));
        }
    }

    /// Eight readers of a hundred rows a snapshot, and a writer of a hundred rows a commit.
    fn mixed(&mut self) {
        for _ in 0..self.plan.write_rounds {
            for who in 0..self.contenders.len() {
                let (contender, data, span) = (&*self.contenders[who], &self.data, self.plan.span);
                memory::ready();
                let stop = &AtomicBool::new(false);
                let start = Instant::now();
                let (reads, writes) = thread::scope(|scope| {
                    let read = |seed| move || repeat(stop, |at| contender.get(data, data.rows, hundred(seed + at)));
                    let readers: Vec<_> = (0..8).map(|seed| scope.spawn(read(seed * 1_000_000))).collect();
                    let writer = scope.spawn(|| repeat(stop, |at| contender.overwrite(data, data.rows, 100, 100, at)));
                    thread::sleep(span);
                    stop.store(true, Ordering::Relaxed);
                    let reads: u64 = readers.into_iter().map(|reader| reader.join().expect("a reader reads")).sum();
                    (reads, writer.join().expect("a writer writes"))
                });
                let took = start.elapsed();
                self.note("mixed_reads", Unit::PerSecond, who, per_second(reads as usize * 100, took));
                self.note("mixed_writes", Unit::PerSecond, who, per_second(writes as usize * 100, took));
            }
        }
    }

    /// Each round begins with another contender: who comes second finds the memory that the first has given back, and need not wait for
    /// the system to find some.
    fn write(&mut self, round: u64) {
        let (order, contenders) = (self.data.shuffled(), self.contenders.len());
        for who in (0..contenders).map(|turn| (turn + round as usize) % contenders) {
            self.write_sorted(who, &order);
            self.write_random(who);
        }
    }

    fn write_sorted(&mut self, who: usize, order: &[usize]) {
        let (rows, logical) = (self.data.rows, self.data.bytes(self.data.rows));
        self.contenders[who].open_empty(Sync::Never);
        let spent = spend_ready(|| self.contenders[who].bulk(&self.data, rows));
        self.note_write("bulk_sorted", who, rows, spent);
        let bytes = self.contenders[who].settle();
        self.note("size_sorted", Unit::Times, who, bytes / logical);

        self.contenders[who].close();
        let first = Gets { times: 1, per_txn: 1, seed: 1 };
        let spent = spend(|| self.contenders[who].open(Sync::Never));
        self.note("open", Unit::Microseconds, who, spent.wall.as_nanos() as f64 / 1e3);
        let then = spend(|| self.contenders[who].get(&self.data, rows, first));
        let both = spent.wall + then.wall;
        self.note("open_first_get", Unit::Microseconds, who, both.as_nanos() as f64 / 1e3);

        // Every page is in memory before: what it costs to load one is not what it costs to remove a row.
        self.contenders[who].scan_all();
        let gone = &order[..rows / 2];
        let spent = spend_ready(|| self.contenders[who].remove(&self.data, gone, BATCH));
        self.note_write("delete_half", who, gone.len(), spent);
        assert_eq!(self.contenders[who].scan_all(), rows - gone.len(), "the others are left");
        self.contenders[who].close();
    }

    fn write_random(&mut self, who: usize) {
        let (rows, logical) = (self.data.rows, self.data.bytes(self.data.rows));
        self.contenders[who].open_empty(Sync::Never);
        let spent = spend_ready(|| self.contenders[who].insert(&self.data, 0..rows, BATCH));
        self.note_write("rand_batch_nosync", who, rows, spent);
        let bytes = self.contenders[who].settle();
        self.note("size_random", Unit::Times, who, bytes / logical);

        let gets = Gets { times: rows / 2, per_txn: usize::MAX, seed: 17 };
        let spent = spend(|| self.contenders[who].get(&self.data, rows, gets));
        self.note_rate("get_1t_randtree", who, gets.times, spent);

        let spent = spend_ready(|| self.contenders[who].overwrite(&self.data, rows, rows / 2, BATCH, 4));
        self.note_write("churn_nosync", who, rows / 2, spent);
        let bytes = self.contenders[who].settle();
        self.note("size_churn", Unit::Times, who, bytes / logical);
        self.contenders[who].close();
    }

    /// All by the clock on the wall: a durable commit waits.
    fn sync(&mut self) {
        let before = self.data.rows / 10;
        self.each(|contender, data| {
            contender.open_empty(Sync::Each);
            contender.bulk(data, before);
            contender.settle();
        });
        let (mut next, commits) = (before, self.plan.commits);
        for _ in 0..self.plan.sync_rounds {
            self.insert_in_threads("rand_batch_sync", &mut next, 1, 5 * BATCH, BATCH);
            self.insert_in_threads("single_sync", &mut next, 1, 4 * commits, 1);
            self.insert_in_threads("single_sync_8t", &mut next, 8, commits, 1);
            self.insert_in_threads("single_sync_32t", &mut next, 32, commits / 2, 1);
            self.read_during_commits(before);
        }
        self.each(|contender, _| contender.close());
    }

    /// So many threads insert so many rows each.
    fn insert_in_threads(&mut self, workload: &str, next: &mut usize, threads: usize, rows: usize, per_txn: usize) {
        for who in 0..self.contenders.len() {
            let (contender, data, first) = (&*self.contenders[who], &self.data, *next);
            // A row a commit takes little memory, and is soon over: what the processor's caches hold matters more.
            if per_txn > 1 {
                memory::ready();
            }
            let spent = spend(|| {
                thread::scope(|scope| {
                    for start in (0..threads).map(|thread| first + thread * rows) {
                        scope.spawn(move || contender.insert(data, start..start + rows, per_txn));
                    }
                });
            });
            self.note(workload, Unit::PerSecond, who, per_second(threads * rows, spent.wall));
        }
        *next += threads * rows;
        assert!(*next <= self.data.rows, "there are rows for every round");
    }

    /// One reader's gets, while a writer commits ten rows at a time.
    fn read_during_commits(&mut self, rows: usize) {
        for who in 0..self.contenders.len() {
            let (contender, data, span) = (&*self.contenders[who], &self.data, self.plan.span);
            let stop = &AtomicBool::new(false);
            let (mut took, commits) = thread::scope(|scope| {
                let writer = scope.spawn(|| repeat(stop, |at| contender.overwrite(data, rows, 10, 10, at)));
                let took = contender.get_timed(data, rows, span);
                stop.store(true, Ordering::Relaxed);
                (took, writer.join().expect("a writer writes"))
            });
            took.sort_unstable_by(f64::total_cmp);
            self.note("readlat_p50", Unit::Nanoseconds, who, took[took.len() / 2]);
            self.note("readlat_p99", Unit::Nanoseconds, who, took[took.len() * 99 / 100]);
            self.note("readlat_commits", Unit::PerSecond, who, per_second(commits as usize, span));
        }
    }

    /// Two overwrites for each row while one snapshot is kept.
    fn space(&mut self) {
        // A fifth is enough: some engines write fifty times of it.
        let rows = self.data.rows / 5;
        for who in 0..self.contenders.len() {
            self.contenders[who].open_empty(Sync::Never);
            self.contenders[who].bulk(&self.data, rows);
            self.contenders[who].settle();
            let (contender, data) = (&*self.contenders[who], &self.data);
            contender.hold(data, &mut || {
                // In a thread of its own: a thread may keep one snapshot only.
                thread::scope(|scope| {
                    scope.spawn(|| contender.overwrite(data, rows, 2 * rows, BATCH, 9));
                });
            });
            let bytes = contender.settle();
            let size = bytes / self.data.bytes(rows);
            self.note("size_longreader", Unit::Times, who, size);
            self.contenders[who].close();
            self.contenders[who].open_empty(Sync::Never);
            self.contenders[who].close();
        }
    }
}

fn hundred(seed: u64) -> Gets {
    Gets { times: 100, per_txn: 100, seed }
}

/// The processor time that this thread has used.
#[cfg(unix)]
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread has used no negative time")
}

/// The time since the first call: where there is no clock of a thread's own, noise counts.
#[cfg(not(unix))]
fn thread_time() -> Duration {
    static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    START.elapsed()
}
