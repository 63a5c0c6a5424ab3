//! The suite `ledger`: the writer queue, the journal, the locks and the reconciliation, on the disk of this machine.
//!
//! These wait for the disk, so the wall clock counts. Contenders take turns, another one first in each round, and the median of the
//! rounds is compared; what else the machine does, and what one of them leaves for the disk to do, falls on all of them alike.
//!
//! What many callers gain has two bounds: the disk, which one write for all keeps away, and the processors, because each caller is
//! put to sleep and woken whatever the disk does. So beside each rate stands the processor time of one call, and how many calls
//! a second the processors of this machine could do at that price. Where a sync takes next to nothing, that is the bound.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use kauri_disk::{Disk, MemoryDisk, Open, OsDisk};
use kauri_ledger::{
    ActionRow, Actions, Anchor, Begin, Database, Ground, Home, Mark, Redactor, Result, Rows, Settled, Standing, Status,
    Submitting, SystemClock, WAL_NAME,
};
use rusqlite::Connection;

use crate::measure::{Estimate, Outcome, Unit, process_time, thread_time};
use crate::report::{Bound, Goal};

const RAW: &str = "sqlite, 1 caller";
const ONE: &str = "1 caller";
const SYNCED: &str = "write and sync";
const FLOCK: &str = "bare flock";
const READ: &str = "read the file";
const PROCESSORS: &str = "the processors' bound";

const QUEUE_ONE: &str = "writer queue, 1 caller";
const QUEUE_MANY: &str = "writer queue, 64 callers";
const QUEUE_THREADS: &str = "writer queue, 64 threads";
const JOURNAL_MANY: &str = "journal append, 32 callers";
const LOCK: &str = "lock and release a home";
const RECONCILE: &str = "reconcile 1 M lines";
const RECONCILE_PROCESSOR: &str = "processor time of it";
const RECONCILE_MEMORY: &str = "memory of it";

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    rounds: usize,
    turn: Duration,
    lines: u64,
}

impl Plan {
    pub(crate) const FULL: Self = Self { rounds: 41, turn: Duration::from_millis(125), lines: 1_000_000 };
    pub(crate) const QUICK: Self = Self { rounds: 5, turn: Duration::from_millis(100), lines: 1_000_000 };

    /// For tests: as little as there can be.
    pub(crate) const LEAST: Self = Self { rounds: 1, turn: Duration::from_millis(2), lines: 1_000 };
}

/// A directory of this run's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        // Beside the build, not in a directory for temporary files: that may be in memory.
        let base = std::env::current_exe()?.parent().map_or_else(std::env::temp_dir, Path::to_owned);
        let path = base.join(format!("kauri-bench-ledger-{}", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).expect("our own directory");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Runs the suite.
pub(crate) fn run(plan: Plan, only: Option<&str>, progress: impl Fn(&str)) -> std::io::Result<Vec<Outcome>> {
    type Part = fn(Plan, &Scratch) -> Vec<Outcome>;
    let parts: [(&str, Part); 4] = [("queue", queue), ("journal", journal), ("lock", lock), ("reconcile", reconcile)];
    let scratch = Scratch::new()?;
    let mut outcomes = Vec::new();
    for (name, part) in parts.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        progress(name);
        outcomes.extend(part(plan, &scratch));
    }
    Ok(outcomes)
}

/// What we want of these numbers.
pub(crate) fn goals(outcomes: &[Outcome]) -> Vec<Goal> {
    let find = |name: &str| outcomes.iter().find(|outcome| outcome.workload == name);
    let times = |name: &str, peer: &str, bound| {
        let outcome = find(name)?;
        let found = outcome.unit.ratio(outcome.ours.median, outcome.peer(peer)?.median);
        Some(Goal { of: format!("{name} against {peer}"), found, bound: Bound::AtLeast(bound), unit: "x" })
    };
    let below = |name: &str, limit, unit| {
        let found = find(name)?.ours.median;
        Some(Goal { of: name.to_owned(), found, bound: Bound::Below(limit), unit })
    };
    let goals = [
        times(QUEUE_ONE, RAW, 0.9),
        times(QUEUE_MANY, RAW, 20.0),
        times(JOURNAL_MANY, ONE, 10.0),
        below(LOCK, 100.0, " us"),
        below(RECONCILE, 3.0, " s"),
        below(RECONCILE_MEMORY, 64.0, " MB"),
    ];
    goals.into_iter().flatten().collect()
}

/// How often a second something was done, and how many nanoseconds of processor time each cost.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_second: f64,
    nanoseconds: f64,
}

/// The median of each.
struct Rates {
    per_second: Estimate,
    nanoseconds: Estimate,
}

impl Rates {
    /// How many a second all processors could do at that price.
    fn bound(&self) -> Estimate {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let bound = |nanoseconds: f64| processors * 1e9 / nanoseconds;
        Estimate { median: bound(self.nanoseconds.median), min: bound(self.nanoseconds.min) }
    }

    /// Two rows: how often a second, and what each cost the processors.
    fn outcomes(&self, workload: &str, peers: &[(&'static str, &Self)]) -> [Outcome; 2] {
        let others = peers.iter().map(|(name, peer)| (*name, peer.per_second));
        let costs = peers.iter().map(|(name, peer)| (*name, peer.nanoseconds));
        [
            Outcome {
                workload: workload.to_owned(),
                unit: Unit::PerSecond,
                ours: self.per_second,
                peers: others.chain([(PROCESSORS, self.bound())]).collect(),
            },
            Outcome {
                workload: format!("processor time, {workload}"),
                unit: Unit::Nanoseconds,
                ours: self.nanoseconds,
                peers: costs.collect(),
            },
        ]
    }
}

/// Contenders take turns, as in [`race`]; each says how often and at what price.
fn race_rates<const COUNT: usize>(rounds: usize, turns: [&mut dyn FnMut() -> Rate; COUNT]) -> [Rates; COUNT] {
    take_turns(rounds, turns).map(|found| Rates {
        per_second: Estimate::of(found.iter().map(|rate| rate.per_second).collect()),
        nanoseconds: Estimate::of(found.iter().map(|rate| rate.nanoseconds).collect()),
    })
}

/// Contenders take turns; each says how it did.
fn race<const COUNT: usize>(rounds: usize, turns: [&mut dyn FnMut() -> f64; COUNT]) -> [Estimate; COUNT] {
    take_turns(rounds, turns).map(Estimate::of)
}

/// Another one is first in each round: nobody always comes after the same other, who leaves something for the disk to do.
fn take_turns<R, const COUNT: usize>(rounds: usize, mut turns: [&mut dyn FnMut() -> R; COUNT]) -> [Vec<R>; COUNT] {
    let mut found: [Vec<R>; COUNT] = std::array::from_fn(|_| Vec::with_capacity(rounds));
    for round in 0..rounds {
        let mut order: Vec<_> = turns.iter_mut().zip(&mut found).collect();
        order.rotate_left(round % COUNT);
        order.into_iter().for_each(|(turn, found)| found.push(turn()));
    }
    found
}

/// How often a second so many callers come through. Their threads are there before and after: only calls are measured.
fn rate(callers: usize, turn: Duration, act: &(dyn Fn() + Sync)) -> Rate {
    let (done, ready, over) = (AtomicU64::new(0), Barrier::new(callers + 1), Barrier::new(callers + 1));
    std::thread::scope(|scope| {
        for _ in 0..callers {
            let (done, ready, over) = (&done, &ready, &over);
            scope.spawn(move || {
                ready.wait();
                let (began, mut count) = (Instant::now(), 0);
                while began.elapsed() < turn {
                    act();
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
                over.wait();
            });
        }
        let (began, worked) = (Instant::now(), process_time());
        ready.wait();
        over.wait();
        rate_of(done.load(Ordering::Relaxed), began.elapsed(), process_time() - worked)
    })
}

/// The same in this thread, without the start of another.
fn rate_alone(turn: Duration, mut act: impl FnMut()) -> Rate {
    let (began, worked, mut done) = (Instant::now(), process_time(), 0_u64);
    while began.elapsed() < turn {
        act();
        done += 1;
    }
    rate_of(done, began.elapsed(), process_time() - worked)
}

/// The same with so many tasks of this thread, as asynchronous code has them: each submits, waits until that is durable, and submits again.
fn rate_of_tasks(tasks: usize, turn: Duration, submit: impl Fn() -> Submitting) -> Rate {
    let waker = Waker::from(Arc::new(Sleeper(std::thread::current())));
    let mut cx = Context::from_waker(&waker);
    let (began, worked, mut done) = (Instant::now(), process_time(), 0_u64);
    let mut underway: Vec<Submitting> = (0..tasks).map(|_| submit()).collect();
    while began.elapsed() < turn {
        let before = done;
        for submitting in &mut underway {
            if let Poll::Ready(applied) = Pin::new(&mut *submitting).poll(&mut cx) {
                assert_eq!(applied.expect("no trouble").rows, 1);
                *submitting = submit();
                done += 1;
            }
        }
        if done == before {
            std::thread::park();
        }
    }
    done += underway.into_iter().map(|last| last.wait().expect("no trouble").rows as u64).sum::<u64>();
    rate_of(done, began.elapsed(), process_time() - worked)
}

/// A thread that sleeps until one of its tasks goes on.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn rate_of(done: u64, took: Duration, worked: Duration) -> Rate {
    Rate { per_second: done as f64 / took.as_secs_f64(), nanoseconds: worked.as_nanos() as f64 / done as f64 }
}

const INSERT: &str = "INSERT INTO rows (text) VALUES (?1)";
const TABLE: &str = "CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT NOT NULL)";
const TEXT: &str = "a row of about sixty bytes, as an action's or a run's may be";

fn queue(plan: Plan, scratch: &Scratch) -> Vec<Outcome> {
    let database = |name: &str| {
        let database = Database::open(&scratch.directory(name), Arc::new(SystemClock), |_| {}).expect("a database");
        database.queue().submit(TABLE, []).expect("a table");
        database
    };
    // Each has its own: what one leaves to be written back is not the next one's burden.
    let (alone, shared, threads) = (database("queue"), database("queue of many"), database("queue of threads"));
    let submit =
        |database: &Database| assert_eq!(database.queue().submit(INSERT, [TEXT.into()]).expect("no trouble").rows, 1);
    let connection = raw(&scratch.directory("raw"));
    let mut insert = connection.prepare(INSERT).expect("a statement");
    let submitter = shared.queue().submitter().expect("a thread");
    let [one, raw, many, threads] = race_rates(
        plan.rounds,
        [
            &mut || rate_alone(plan.turn, || submit(&alone)),
            &mut || rate_alone(plan.turn, || assert_eq!(insert.execute([TEXT]).expect("no trouble"), 1)),
            &mut || rate_of_tasks(64, plan.turn, || submitter.submit(INSERT, [TEXT.into()]).expect("a place")),
            &mut || rate(64, plan.turn, &|| submit(&threads)),
        ],
    );
    let rows = [(QUEUE_ONE, one), (QUEUE_MANY, many), (QUEUE_THREADS, threads)];
    rows.iter().flat_map(|(name, rates)| rates.outcomes(name, &[(RAW, &raw)])).collect()
}

/// SQLite with the same settings, and nothing in between.
fn raw(path: &Path) -> Connection {
    let connection = Connection::open(path.join("raw.db")).expect("a database");
    connection.pragma_update(None, "journal_mode", "WAL").expect("a setting");
    connection.pragma_update(None, "synchronous", "FULL").expect("a setting");
    connection.execute_batch(TABLE).expect("a table");
    connection
}

fn journal(plan: Plan, scratch: &Scratch) -> Vec<Outcome> {
    let path = scratch.directory("journal");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::new(&path).expect("a disk"));
    let actions = actions(Arc::clone(&disk), Arc::new(MapRows::default()));
    let count = AtomicU64::new(0);
    let begin = || {
        let id = count.fetch_add(1, Ordering::Relaxed).to_string();
        drop(actions.begin(Begin::new(id, "trace", TEXT)).expect("no trouble"));
    };
    // What the disk itself does with a line of that length.
    let file = disk.open("plain", Open::CreateNew).expect("a file");
    let (line, mut at) = ([b'x'; 200], 0);
    let mut write = || {
        file.write_durable_at(at, &line).expect("no trouble");
        at += line.len() as u64;
    };
    let [many, one, synced] = race_rates(
        plan.rounds,
        [&mut || rate(32, plan.turn, &begin), &mut || rate_alone(plan.turn, begin), &mut || {
            rate_alone(plan.turn, &mut write)
        }],
    );
    many.outcomes(JOURNAL_MANY, &[(ONE, &one), (SYNCED, &synced)]).into()
}

fn lock(plan: Plan, scratch: &Scratch) -> Vec<Outcome> {
    let path = scratch.directory("home");
    let file = fs::File::create(path.join("bare")).expect("a file");
    let micros = |rate: Rate| 1e6 / rate.per_second;
    let [ours, bare] = race(
        plan.rounds,
        [&mut || micros(rate_alone(plan.turn, || drop(Home::lock(&path).expect("nobody has it")))), &mut || {
            micros(rate_alone(plan.turn, || {
                file.lock().expect("nobody has it");
                file.unlock().expect("we have it");
            }))
        }],
    );
    vec![Outcome { workload: LOCK.to_owned(), unit: Unit::Microseconds, ours, peers: vec![(FLOCK, bare)] }]
}

fn reconcile(plan: Plan, scratch: &Scratch) -> Vec<Outcome> {
    let path = scratch.directory("reconcile");
    let database = Database::open(&path, Arc::new(SystemClock), |_| {}).expect("a database");
    fill(plan.lines, &path);
    let file = path.join(WAL_NAME);
    let size = fs::metadata(&file).expect("a file").len() as f64 / 1e6;
    drop(database);
    let (mut processor, mut memory) = (Vec::new(), Vec::new());
    let mut reconcile = || {
        let [took, seconds, megabytes] = in_its_own_process(&path, plan.lines);
        processor.push(seconds);
        memory.push(megabytes);
        took
    };
    let mut read = || {
        let began = Instant::now();
        let mut file = fs::File::open(&file).expect("a file");
        let mut chunk = vec![0; 256 << 10];
        while file.read(&mut chunk).expect("no trouble") > 0 {}
        began.elapsed().as_secs_f64()
    };
    let rounds = plan.rounds.div_ceil(10);
    let [ours, plain] = race(rounds, [&mut reconcile, &mut read]);
    let size = Estimate { median: size, min: size };
    vec![
        Outcome { workload: RECONCILE.to_owned(), unit: Unit::Seconds, ours, peers: vec![(READ, plain)] },
        Outcome {
            workload: RECONCILE_PROCESSOR.to_owned(),
            unit: Unit::Seconds,
            ours: Estimate::of(processor),
            peers: vec![(READ, plain)],
        },
        Outcome {
            workload: RECONCILE_MEMORY.to_owned(),
            unit: Unit::Megabytes,
            ours: Estimate::of(memory),
            peers: vec![("the journal's size", size)],
        },
    ]
}

/// A start is a process of its own, and so is its memory.
fn in_its_own_process(path: &Path, lines: u64) -> [f64; 3] {
    let this = std::env::current_exe().expect("this program");
    let child = std::process::Command::new(this).arg("reconcile").arg(path).arg(lines.to_string()).output();
    let said = child.expect("it can be started").stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut numbers = said.split_whitespace().filter_map(|word| word.parse().ok());
    std::array::from_fn(|_| numbers.next().expect("seconds, seconds and megabytes"))
}

/// Reconciles once, and says how many seconds on the wall and of the processor, and how many megabytes, that took.
pub(crate) fn reconcile_once(path: &Path, lines: u64) -> String {
    let database = Arc::new(Database::open(path, Arc::new(SystemClock), |_| {}).expect("a database"));
    // Nothing is known to agree: everything is compared.
    database.set_mark(&Mark { seq: 0, end_at: 0, checksum: String::new() }).expect("no trouble");
    let disk = Arc::new(OsDisk::new(path).expect("a disk"));
    let (began, worked, before) = (Instant::now(), thread_time(), megabytes("VmRSS:"));
    let (_, found) = Actions::open(ground(disk, database)).expect("no trouble");
    let (took, worked) = (began.elapsed().as_secs_f64(), (thread_time() - worked).as_secs_f64());
    assert_eq!((found.lines, found.repairs.len(), found.findings.len()), (lines, 0, 0));
    format!("{took} {worked} {}", megabytes("VmHWM:") - before)
}

fn megabytes(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1e3
}

/// A journal of so many lines, and a database that agrees with it.
pub(crate) fn fill(lines: u64, path: &Path) {
    let memory = MemoryDisk::new();
    let filled = actions(Arc::new(memory.clone()), Arc::new(MapRows::default()));
    let mut connection = Connection::open(path.join("runtime.db")).expect("the database");
    let txn = connection.transaction().expect("a transaction");
    for number in 0..lines / 2 {
        let id = format!("action-{number:08}");
        let mut action = filled.begin(Begin::new(&id, "trace", TEXT)).expect("no trouble");
        action.complete(Some("elsewhere")).expect("no trouble");
        let insert = "INSERT INTO actions (action_id, trace_id, task, status, result_ref, started_at)
                      VALUES (?1, 'trace', ?2, 'COMPLETED', 'elsewhere', '2026-02-21T09:30:00.000Z')";
        txn.prepare_cached(insert).and_then(|mut insert| insert.execute((&id, TEXT))).expect("a row");
    }
    txn.commit().expect("committed");
    let file = memory.open(WAL_NAME, Open::ReadOnly).expect("the journal");
    let mut bytes = vec![0; usize::try_from(file.len().expect("a length")).expect("it fits")];
    file.read_at(0, &mut bytes).expect("all of it");
    fs::write(path.join(WAL_NAME), bytes).expect("written");
}

fn ground(disk: Arc<dyn Disk>, rows: Arc<dyn Rows>) -> Ground {
    let artifacts = Arc::new(MemoryDisk::new());
    Ground { journal: disk, artifacts, rows, audit: None, clock: Arc::new(SystemClock), redactor: Redactor::new() }
}

fn actions(disk: Arc<dyn Disk>, rows: Arc<dyn Rows>) -> Actions {
    Actions::open(ground(disk, rows)).expect("no trouble").0
}

/// Rows in memory: what a journal costs without a database.
#[derive(Default)]
struct MapRows(Mutex<BTreeMap<String, Standing>>);

impl MapRows {
    fn put(&self, id: &str, standing: Standing) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), standing);
    }
}

impl Rows for MapRows {
    fn insert(&self, row: &ActionRow) -> Result<()> {
        self.put(&row.action_id, (row.status, None));
        Ok(())
    }

    fn settle(&self, id: &str, _: &[Status], settled: &Settled<'_>, _: Option<&Anchor>) -> Result<()> {
        self.put(id, (settled.status, None));
        Ok(())
    }

    fn find(&self, _: &str) -> Result<Option<ActionRow>> {
        Ok(None)
    }

    fn statuses(&self, ids: &[&str]) -> Result<Vec<Option<Standing>>> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ids.iter().map(|id| rows.get(*id).cloned()).collect())
    }

    fn each_with(&self, _: &[Status], _: &str, _: u32) -> Result<Vec<ActionRow>> {
        Ok(Vec::new())
    }

    fn dependents(&self, _: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn retry_of(&self, _: &str) -> Result<Option<String>> {
        Ok(None)
    }

    fn mark(&self) -> Result<Option<Mark>> {
        Ok(None)
    }

    fn set_mark(&self, _: &Mark) -> Result<()> {
        Ok(())
    }

    fn set_anchor(&self, _: &Anchor) -> Result<()> {
        Ok(())
    }

    fn anchors(&self) -> Result<Vec<Anchor>> {
        Ok(Vec::new())
    }
}
