//! The suite `runtime`: what a step costs, and how near durable steps come to what the disk can do.
//!
//! Costs of one thread are processor time. What many threads do, and how long somebody waits, is time on the wall: run it on a machine
//! that is otherwise quiet. The limits are measured here, in the same run on the same disk: `raw group commit` is as many threads that
//! share durable writes of one file, and nothing else.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use kauri_disk::{Disk, File, Open, OsDisk};
use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Atomic, Clock, Failure, Mono, Now, Policy, Pool, Read, Runtime, Write};
use kauri_tree::{Store, Table};
use kauri_wire::{Flags, Message, MessageId, MessageRef, Timestamp, WorkerId};

use crate::measure::{Estimate, Outcome, Unit, thread_time};
use crate::report::{Bound, Goal};

/// What the C runner's own benchmark handles, and in which batches.
const MESSAGES: usize = 5000;
const BATCH: usize = 64;
pub(crate) const WORKER: WorkerId = WorkerId(1);
const ROWS: Table<u64, u64> = Table::new("rows");

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    rounds: usize,
    deep: usize,
    waits: usize,
    durable_steps: usize,
}

impl Size {
    pub(crate) const FULL: Self = Self { rounds: 41, deep: 1_000_000, waits: 5000, durable_steps: 40_000 };
    pub(crate) const QUICK: Self = Self { rounds: 9, deep: 100_000, waits: 500, durable_steps: 4_000 };
}

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The clocks of the system.
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |wall| wall.as_millis());
        Now { mono: Mono(self.0.elapsed()), wall: Timestamp(i64::try_from(wall).unwrap_or(i64::MAX)) }
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// A part of the suite, by its name.
type Part = (&'static str, fn(Size, &Path) -> Result<Vec<Outcome>>);

const PARTS: [Part; 8] = [
    ("steps in memory", |size, _| in_memory(size)),
    ("blocks of many keys", |size, _| Ok(vec![blocks(size)?])),
    ("waking an idle worker", |size, _| Ok(vec![waking(size)?])),
    ("durable steps, 1 worker", |size, folder| Ok(vec![durable(size, folder, 1)?])),
    ("durable steps, 8 workers", |size, folder| Ok(vec![durable(size, folder, 8)?])),
    ("durable steps, 32 workers", |size, folder| Ok(vec![durable(size, folder, 32)?])),
    ("durable batches of a lone worker", |size, folder| Ok(vec![batches(size, folder)?])),
    ("a durable message, from sending to handling", |size, folder| Ok(vec![durable_wait(size, folder)?])),
];

/// Everything, one workload after the other, or the parts with `only` in their names. `tell` hears what comes next.
pub(crate) fn run(size: Size, folder: &Path, only: Option<&str>, mut tell: impl FnMut(&str)) -> Result<Vec<Outcome>> {
    let folder = folder.join(format!("kauri-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let measured = (|| {
        let mut all = Vec::new();
        for (name, part) in PARTS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))) {
            tell(name);
            all.extend(part(size, &folder)?);
        }
        Ok(all)
    })();
    fs::remove_dir_all(&folder)?;
    measured
}

pub(crate) fn start(store: Store) -> Result<Runtime> {
    let clock = Arc::new(SystemClock(Instant::now()));
    Ok(Runtime::builder(Arc::new(TreeSubstrate::new(store)), clock).start()?)
}

fn message(to: WorkerId, number: usize) -> Result<Message> {
    Ok(Message::command(to, MessageId::new(format!("message-{number}"))?, "a payload of some bytes")
        .with(Flags::DURABLE))
}

pub(crate) fn send(runtime: &Runtime, to: WorkerId, count: usize) -> Result<()> {
    let numbers: Vec<usize> = (0..count).collect();
    for part in numbers.chunks(1000) {
        let messages: Vec<Message> = part.iter().map(|number| message(to, *number)).collect::<Result<_>>()?;
        runtime.send_all(&messages)?;
    }
    Ok(())
}

pub(crate) fn nothing(_: &mut Atomic<'_>, _: MessageRef<'_>) -> std::result::Result<(), Failure> {
    Ok(())
}

/// A step that does nothing, at three depths of the queue: processor time, claim and commit included.
fn in_memory(size: Size) -> Result<Vec<Outcome>> {
    let policy = Policy { batch_messages_max: BATCH, ..Policy::default() };
    let cost = |depth: usize, rounds: usize| -> Result<Estimate> {
        let runtime = start(Store::in_memory()?)?;
        send(&runtime, WORKER, depth.saturating_sub(MESSAGES))?;
        let mut costs = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            send(&runtime, WORKER, depth.min(MESSAGES))?;
            let mut worker = runtime.worker_with(WORKER, policy.clone(), nothing);
            let (began, mut handled) = (thread_time(), 0);
            while handled < depth.min(MESSAGES) {
                handled += worker.tick()?.handled;
            }
            costs.push((thread_time() - began).as_nanos() as f64 / handled as f64);
            worker.release()?;
            if depth > MESSAGES {
                // What was handled beyond the round is made good.
                send(&runtime, WORKER, handled - MESSAGES)?;
            }
        }
        Ok(Estimate::of(costs))
    };
    let outcome = |workload: String, ours, peer_name, peer| Outcome {
        workload,
        unit: Unit::Nanoseconds,
        ours,
        peers: vec![(peer_name, peer)],
    };
    let (plain, shallow, deep) =
        (cost(MESSAGES, size.rounds)?, cost(64, size.rounds * 4)?, cost(size.deep, size.rounds)?);
    Ok(vec![
        outcome(
            format!("no-op step, in memory, {MESSAGES} messages in batches of {BATCH}"),
            plain,
            "itself, 64 messages",
            shallow,
        ),
        outcome(format!("no-op step, in memory, {} messages waiting", size.deep), deep, "itself, 5000 messages", plain),
    ])
}

/// A key read and written in a block of 10,000 against one in a block of 100.
fn blocks(size: Size) -> Result<Outcome> {
    let runtime = start(Store::in_memory()?)?;
    let cost = |keys: u64, rounds: usize| -> Result<Estimate> {
        let mut costs = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let began = thread_time();
            runtime.atomic(|block| {
                (0..keys).try_for_each(|key| {
                    let value = block.get(&ROWS, key)?.unwrap_or(0);
                    block.put(&ROWS, key, value + 1)
                })
            })?;
            costs.push((thread_time() - began).as_nanos() as f64 / keys as f64);
        }
        Ok(Estimate::of(costs))
    };
    let peers = vec![("itself, 100 keys", cost(100, size.rounds * 20)?)];
    let workload = "read and write a key, in a block of 10,000".to_owned();
    Ok(Outcome { workload, unit: Unit::Nanoseconds, ours: cost(10_000, size.rounds)?, peers })
}

/// From sending to the start of the handler, in microseconds on the wall.
fn wait(runtime: &Runtime, waits: usize) -> Result<Estimate> {
    let (told, hears) = mpsc::channel();
    let worker = runtime
        .worker(WORKER, move |_: &mut Atomic<'_>, _: MessageRef<'_>| told.send(Instant::now()).map_err(Failure::fatal));
    let pool = Pool::start(vec![worker])?;
    let mut times = Vec::with_capacity(waits);
    for number in 0..waits {
        let message = message(WORKER, number)?;
        let began = Instant::now();
        runtime.send(&message)?;
        times.push(hears.recv()?.duration_since(began).as_nanos() as f64 / 1000.0);
        // It goes back to sleep.
        std::thread::sleep(Duration::from_micros(300));
    }
    pool.stop()?;
    Ok(Estimate::of(times))
}

/// How long a thread waits that another one wakes.
fn raw_wake(waits: usize) -> Result<Estimate> {
    let (ask, asked) = mpsc::channel::<()>();
    let (told, hears) = mpsc::channel();
    let thread = std::thread::spawn(move || while asked.recv().is_ok() && told.send(Instant::now()).is_ok() {});
    let mut times = Vec::with_capacity(waits);
    for _ in 0..waits {
        let began = Instant::now();
        ask.send(())?;
        times.push(hears.recv()?.duration_since(began).as_nanos() as f64 / 1000.0);
        std::thread::sleep(Duration::from_micros(300));
    }
    drop(ask);
    thread.join().map_err(|_| "the other thread panicked")?;
    Ok(Estimate::of(times))
}

fn waking(size: Size) -> Result<Outcome> {
    let ours = wait(&start(Store::in_memory()?)?, size.waits)?;
    let peers = vec![("waking a thread", raw_wake(size.waits)?)];
    Ok(Outcome {
        workload: "in memory, from sending to an idle worker's handler".to_owned(),
        unit: Unit::Microseconds,
        ours,
        peers,
    })
}

fn durable_wait(size: Size, folder: &Path) -> Result<Outcome> {
    let ours = wait(&start(Store::open(folder.join("wait"))?)?, size.waits)?;
    let peers = vec![("one durable write", raw_write(folder, size.waits, 512)?)];
    Ok(Outcome {
        workload: "durable, from sending to an idle worker's handler".to_owned(),
        unit: Unit::Microseconds,
        ours,
        peers,
    })
}

/// How long one durable write of so many bytes takes, in microseconds.
fn raw_write(folder: &Path, writes: usize, bytes: usize) -> Result<Estimate> {
    let file = raw_file(folder, "raw-one")?;
    let bytes = vec![7; bytes];
    let mut times = Vec::with_capacity(writes);
    for number in 0..writes as u64 {
        let began = Instant::now();
        file.write_durable_at(number * bytes.len() as u64 % (RAW_BYTES / 2), &bytes)?;
        times.push(began.elapsed().as_nanos() as f64 / 1000.0);
    }
    Ok(Estimate::of(times))
}

/// How many durable writes of so many bytes a second has, one after the other.
fn raw_rate(folder: &Path, writes: usize, bytes: usize) -> Result<f64> {
    let file = raw_file(folder, "raw-many")?;
    let bytes = vec![7; bytes];
    let began = Instant::now();
    for number in 0..writes as u64 {
        file.write_durable_at(number * bytes.len() as u64 % (RAW_BYTES / 2), &bytes)?;
    }
    Ok(writes as f64 / began.elapsed().as_secs_f64())
}

/// Raw files are written from end to end beforehand, and then over again, as a log is.
const RAW_BYTES: u64 = 8 << 20;

fn raw_file(folder: &Path, name: &str) -> Result<Box<dyn File>> {
    let file = OsDisk::new(folder)?.open(name, Open::CreateNew)?;
    file.write_at(0, &vec![1; usize::try_from(RAW_BYTES)?])?;
    file.sync()?;
    Ok(file)
}

/// Steps each of which is acknowledged after its sync, so many workers at a time, against as many threads that only share syncs.
fn durable(size: Size, folder: &Path, threads: usize) -> Result<Outcome> {
    let steps = (size.durable_steps * threads / 32).max(size.durable_steps / 8);
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for round in 0..3 {
        raw.push(raw_group(&folder.join(format!("raw-{threads}-{round}")), threads, steps)?);
        ours.push(durable_rate(&folder.join(format!("steps-{threads}-{round}")), threads, steps)?);
    }
    let workload = format!("durable steps, {threads} workers, a commit each");
    let (ours, raw) = (Estimate::of(ours), Estimate::of(raw));
    Ok(Outcome { workload, unit: Unit::PerSecond, ours, peers: vec![("raw group commit", raw)] })
}

fn durable_rate(path: &Path, threads: usize, steps: usize) -> Result<f64> {
    let runtime = start(Store::open(path)?)?;
    let each = steps / threads;
    let (told, hears) = mpsc::channel();
    let workers = (0..threads).map(|thread| {
        let id = WorkerId(i64::try_from(thread).unwrap_or(0));
        send(&runtime, id, each)?;
        let (mut left, told) = (each, told.clone());
        let handle = move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
            left = left.saturating_sub(1);
            if left == 0 { told.send(()).map_err(Failure::fatal) } else { Ok(()) }
        };
        Ok(runtime.worker_with(id, Policy { batch_messages_max: 1, ..Policy::default() }, handle))
    });
    let workers = workers.collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    let pool = Pool::start(workers)?;
    for _ in 0..threads {
        hears.recv()?;
    }
    let took = began.elapsed();
    pool.stop()?;
    Ok((each * threads) as f64 / took.as_secs_f64())
}

/// A log in which threads share durable writes, and nothing else.
struct RawLog {
    file: Box<dyn File>,
    state: Mutex<RawState>,
    written: Condvar,
}

#[derive(Default)]
struct RawState {
    waiting: Vec<u8>,
    made: u64,
    done: u64,
    at: u64,
    is_busy: bool,
}

/// About what a step writes: a record of the log begins at a sector.
const RECORD_BYTES: usize = 512;

impl RawLog {
    fn append(&self) -> Result<()> {
        let mut state = self.state.lock().map_err(|_| "a thread panicked")?;
        state.waiting.extend_from_slice(&[7; RECORD_BYTES]);
        state.made += 1;
        let own = state.made;
        while state.done < own {
            if state.is_busy {
                state = self.written.wait(state).map_err(|_| "a thread panicked")?;
                continue;
            }
            state.is_busy = true;
            let (bytes, last, at) = (std::mem::take(&mut state.waiting), state.made, state.at);
            state.at = (at + bytes.len() as u64) % (RAW_BYTES / 2);
            drop(state);
            self.file.write_durable_at(at, &bytes)?;
            state = self.state.lock().map_err(|_| "a thread panicked")?;
            state.is_busy = false;
            state.done = last;
            self.written.notify_all();
        }
        Ok(())
    }
}

pub(crate) fn raw_group(folder: &Path, threads: usize, steps: usize) -> Result<f64> {
    fs::create_dir_all(folder)?;
    let log = RawLog { file: raw_file(folder, "raw")?, state: Mutex::default(), written: Condvar::new() };
    let (each, failed) = (steps / threads, AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let all = (0..each).try_for_each(|_| log.append());
                failed.fetch_add(u64::from(all.is_err()), Ordering::Relaxed);
            });
        }
    });
    match failed.into_inner() {
        0 => Ok((each * threads) as f64 / began.elapsed().as_secs_f64()),
        _ => Err("a raw write failed".into()),
    }
}

/// Commits of a lone worker's batches, against durable writes of as many bytes, and against a worker that begins a batch only when the one
/// before is durable.
fn batches(size: Size, folder: &Path) -> Result<Outcome> {
    let (mut ours, mut raw, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    let commits = (size.durable_steps / BATCH).max(250);
    for round in 0..5 {
        ours.push(batch_rate(&folder.join(format!("batches-{round}")), commits, Policy::default())?);
        let raw_folder = folder.join(format!("raw-batches-{round}"));
        fs::create_dir_all(&raw_folder)?;
        // Sixty-four removals and a lease, as the log has them.
        raw.push(raw_rate(&raw_folder, commits, 2560)?);
        let one_by_one = Policy { early_messages_min: usize::MAX, ..Policy::default() };
        settled.push(batch_rate(&folder.join(format!("settled-{round}")), commits, one_by_one)?);
    }
    let workload = format!("durable commits of a lone worker, {BATCH} steps each");
    let peers = vec![("raw durable write", Estimate::of(raw)), ("itself, no batch begun early", Estimate::of(settled))];
    Ok(Outcome { workload, unit: Unit::PerSecond, ours: Estimate::of(ours), peers })
}

fn batch_rate(path: &Path, commits: usize, policy: Policy) -> Result<f64> {
    let runtime = start(Store::open(path)?)?;
    send(&runtime, WORKER, commits * BATCH)?;
    let mut worker = runtime.worker_with(WORKER, Policy { batch_messages_max: BATCH, ..policy }, nothing);
    let began = Instant::now();
    worker.drain()?;
    Ok(commits as f64 / began.elapsed().as_secs_f64())
}

/// What we want of these numbers.
pub(crate) fn goals(outcomes: &[Outcome]) -> Vec<Goal> {
    let find = |start: &str| outcomes.iter().find(|outcome| outcome.workload.starts_with(start));
    let mut goals = Vec::new();
    let mut add = |of: &str, found: Option<f64>, bound, unit| {
        goals.extend(found.map(|found| Goal { of: of.to_owned(), found, bound, unit }));
    };
    let share = |start| find(start).map(|outcome| 100.0 * outcome.ours.median / outcome.peers[0].1.median);
    let times = |start| find(start).map(|outcome| outcome.ours.median / outcome.peers[0].1.median);
    let step = find("no-op step, in memory, 5000").map(|outcome| 1000.0 / outcome.ours.median);
    add("no-op steps in memory, one core", step, Bound::AtLeast(1.0), " M/s");
    add(
        "a step with a deep queue costs",
        times("no-op step, in memory, 1"),
        Bound::Below(1.5),
        "x one with a short queue",
    );
    add("a key in a block of 10,000 costs", times("read and write"), Bound::Below(2.0), "x one in a block of 100");
    add("waking an idle worker", find("in memory, from").map(|outcome| outcome.ours.median), Bound::Below(50.0), " us");
    add("durable steps, 32 workers", share("durable steps, 32"), Bound::AtLeast(50.0), " % of the raw limit");
    add("durable batches, a lone worker", share("durable commits"), Bound::AtLeast(80.0), " % of the raw limit");
    goals
}
