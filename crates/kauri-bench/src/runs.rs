//! The suite `runs`: what a run, an event and a durable step cost.
//!
//! What one thread does is processor time; what waits for the disk, or for others, is time on the wall. The limits of the disk are measured
//! here, in the same run on the same disk, as in the suite `runtime`.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kauri_runtime::run::{Class, Ending, EventDraft, EventSink, Halt, LiveRun, Runs, Submission};
use kauri_runtime::{Policy, Pool, Runtime};
use kauri_tree::Store;
use kauri_wire::WorkerId;
use kauri_wire::pack::Map;
use kauri_wire::run::{Event, EventType, Level};

use crate::measure::{Estimate, Outcome, Unit, staying, thread_time};
use crate::memory;
use crate::report::{Bound, Goal};
use crate::runtime::{raw_group, start};

const CREW: WorkerId = WorkerId(1);
/// Events of a buffered stream are committed so many at a time.
const BATCH: usize = 1000;
const STEPS: u32 = 10;
const SHARED: &str = "the same, 32 submitted in a commit, all workers on one thread";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    runs: usize,
    events: usize,
    durable_runs: usize,
    rounds: usize,
}

impl Size {
    pub(crate) const FULL: Self = Self { runs: 100_000, events: 1_000_000, durable_runs: 12_800, rounds: 5 };
    pub(crate) const QUICK: Self = Self { runs: 10_000, events: 100_000, durable_runs: 1_280, rounds: 3 };
    pub(crate) const LEAST: Self = Self { runs: 100, events: 1_000, durable_runs: 64, rounds: 1 };
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Everything, or the part that is asked for, one workload after the other. `tell` hears what comes next.
pub(crate) fn run(size: Size, folder: &Path, only: Option<&str>, mut tell: impl FnMut(&str)) -> Result<Vec<Outcome>> {
    let folder = folder.join(format!("kauri-bench-runs-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let measured = (|| {
        let mut all = Vec::new();
        for (name, what, measure) in PARTS {
            if only.is_none_or(|only| only == *name) {
                tell(what);
                all.extend(measure(size, &folder)?);
            }
        }
        Ok(all)
    })();
    fs::remove_dir_all(&folder)?;
    measured
}

type Part = fn(Size, &Path) -> Result<Vec<Outcome>>;

const PARTS: &[(&str, &str, Part)] = &[
    ("trivial", "trivial runs in memory", |size, _| Ok(vec![trivial(size)?])),
    ("stream", "a long stream of events", |size, _| stream(size)),
    ("followed", "a stream with followers", |size, _| followed(size)),
    ("durable", "durable runs, 32 in flight", |size, folder| Ok(vec![durable(size, folder, Submit::Ahead, EACH)?])),
    ("bulk", "durable runs, submitted in bulk", |size, folder| Ok(vec![durable(size, folder, Submit::InBulk, EACH)?])),
    ("shared", "durable runs on one thread", |size, folder| Ok(vec![durable(size, folder, Submit::InBulk, Some(1))?])),
    ("pair", "durable runs on two threads", |size, folder| Ok(vec![durable(size, folder, Submit::InBulk, Some(2))?])),
    ("asked", "durable runs, one after the other", |size, folder| {
        Ok(vec![durable(size, folder, Submit::AfterTheLast, EACH)?])
    }),
    ("lone", "a run of ten durable steps, alone", |size, folder| Ok(vec![lone_steps(size, folder)?])),
    ("steps", "durable steps, 64 runs in flight", |size, folder| Ok(vec![many_steps(size, folder)?])),
];

fn define(runtime: &Runtime, worker: WorkerId) -> Result<Runs> {
    let runs = runtime.runs();
    runs.define(&format!("class-{}", worker.0), &Class::new(worker))?;
    Ok(runs)
}

fn job(worker: WorkerId) -> Submission {
    Submission::new(format!("class-{}", worker.0), "an input of some bytes")
}

fn line() -> EventDraft {
    let message = "a line of the log, as long as lines are";
    let payload = Event::Log { level: Level::Info, message, fields: None }.payload().view().encode();
    EventDraft { kind: EventType::Log, ts: 1_700_000_000_000, payload }
}

fn done(live: &LiveRun) -> Ending {
    Ending::success(live.now().wall, Map::EMPTY)
}

/// Two lines that are committed with the end: three events.
fn say_little(live: &mut LiveRun) -> std::result::Result<Ending, Halt> {
    static LINES: std::sync::LazyLock<[EventDraft; 2]> = std::sync::LazyLock::new(|| [line(), line()]);
    live.buffer(&*LINES)?;
    Ok(done(live))
}

/// Submitting, driving and sealing a run with three events: processor time of one thread. Submitted are a hundred in a commit; or, for
/// comparison, each in its own.
fn trivial(size: Size) -> Result<Outcome> {
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        together.push(trivial_cost(size.runs, 100)?);
        alone.push(trivial_cost(size.runs, 1)?);
    }
    let workload = format!("a run of three events in memory, submit to seal, {} of them", size.runs);
    let peers = vec![("submitted one by one", Estimate::of(alone))];
    Ok(Outcome { workload, unit: Unit::Nanoseconds, ours: Estimate::of(together), peers })
}

/// Nanoseconds for each of so many runs, so many of which are submitted in a commit.
fn trivial_cost(count: usize, together: usize) -> Result<f64> {
    memory::ready();
    let runtime = start(Store::in_memory()?)?;
    let runs = define(&runtime, CREW)?;
    let mut worker = runtime.run_worker(CREW, Policy::default(), say_little);
    let jobs = vec![job(CREW); together];
    let (began, mut left) = (thread_time(), count);
    while left > 0 {
        let now = left.min(1000);
        for at in (0..now).step_by(together) {
            runs.submit_all(&jobs[..together.min(now - at)])?;
        }
        worker.drain()?;
        left -= now;
    }
    Ok((thread_time() - began).as_nanos() as f64 / count as f64)
}

/// Appending to one stream, many events at a time, and reading it back: processor time per event.
fn stream(size: Size) -> Result<Vec<Outcome>> {
    let (mut appends, mut reads, mut singles) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..size.rounds {
        let runtime = start(Store::in_memory()?)?;
        let runs = define(&runtime, CREW)?;
        let run = runs.submit(&job(CREW))?.run;
        let (told, hears) = mpsc::channel();
        let events = size.events;
        let mut worker = runtime.run_worker(CREW, Policy::default(), move |live: &mut LiveRun| {
            let batch = vec![line(); BATCH];
            let began = thread_time();
            for _ in 0..events / BATCH {
                live.append(&batch)?;
            }
            let many = (thread_time() - began).as_nanos() as f64 / events as f64;
            let began = thread_time();
            for _ in 0..BATCH {
                live.append(&batch[..1])?;
            }
            let one = (thread_time() - began).as_nanos() as f64 / BATCH as f64;
            told.send((many, one)).map_err(|_| Halt::Failed("nobody hears".into()))?;
            Ok(done(live))
        });
        worker.drain()?;
        let (many, one) = hears.recv()?;
        appends.push(many);
        singles.push(one);
        let (began, mut seen, mut from) = (thread_time(), 0, 1);
        loop {
            let some = runs.events(run, from, 10_000)?;
            let Some(last) = some.last() else { break };
            (from, seen) = (last.seq + 1, seen + some.len());
        }
        reads.push((thread_time() - began).as_nanos() as f64 / seen as f64);
    }
    let (appends, singles) = (Estimate::of(appends), Estimate::of(singles));
    Ok(vec![
        Outcome {
            workload: format!("an event appended, {BATCH} in a commit"),
            unit: Unit::Nanoseconds,
            ours: appends,
            peers: vec![("one in a commit", singles)],
        },
        Outcome {
            workload: "an event read back".to_owned(),
            unit: Unit::Nanoseconds,
            ours: Estimate::of(reads),
            peers: vec![("appending it", appends)],
        },
    ])
}

/// Events of one stream, alone and with ten followers that read every event: processor time of the writer. Followers are wherever the
/// system puts them; the writer stays on its processor, or, for comparison, is moved about too.
fn followed(size: Size) -> Result<Vec<Outcome>> {
    let [mut alone, mut watched, mut moved] = [(); 3].map(|()| Vec::new());
    // A tenth of a second each, in which the system may well have other things to do.
    for _ in 0..3 * size.rounds {
        alone.push(append_cost(size.events / 10, 0, true)?);
        watched.push(append_cost(size.events / 10, 10, true)?);
        moved.push(append_cost(size.events / 10, 10, false)?);
    }
    let alone = Estimate::of(alone);
    let outcome = |workload: &str, ours| {
        let (workload, peers) = (workload.to_owned(), vec![("nobody follows", alone)]);
        Outcome { workload, unit: Unit::Nanoseconds, ours: Estimate::of(ours), peers }
    };
    Ok(vec![
        outcome("an event appended, 100 in a commit, ten followers", watched),
        outcome("the same, by a writer that may be moved", moved),
    ])
}

fn append_cost(events: usize, followers: usize, stays: bool) -> Result<f64> {
    memory::ready();
    let runtime = start(Store::in_memory()?)?;
    let runs = define(&runtime, CREW)?;
    let run = runs.submit(&job(CREW))?.run;
    let (is_over, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let follow = |_| {
        let (mut tail, is_over, seen) = (runs.tail(run, 1)?, Arc::clone(&is_over), Arc::clone(&seen));
        Ok(std::thread::spawn(move || {
            while !tail.is_over() && !is_over.load(Ordering::Relaxed) {
                tail.wait(Some(Duration::from_millis(50)));
                let found = tail.next(10_000).map_or(0, |found| found.len());
                seen.fetch_add(found as u64, Ordering::Relaxed);
            }
        }))
    };
    let threads = (0..followers).map(follow).collect::<Result<Vec<_>>>()?;
    let (told, hears) = mpsc::channel();
    let mut worker = runtime.run_worker(CREW, Policy::default(), move |live: &mut LiveRun| {
        let batch = vec![line(); 100];
        let began = thread_time();
        for _ in 0..(events / 100).max(1) {
            live.append(&batch)?;
        }
        let took = (thread_time() - began).as_nanos() as f64 / (events / 100 * 100).max(100) as f64;
        told.send(took).map_err(|_| Halt::Failed("nobody hears".into()))?;
        Ok(done(live))
    });
    // Threads that begin after this would stay too.
    if stays {
        staying(|| worker.drain())?
    } else {
        worker.drain()?
    };
    for thread in threads {
        thread.join().map_err(|_| "a follower panicked")?;
    }
    is_over.store(true, Ordering::Relaxed);
    let all = runs.run(run)?.events * followers as u64;
    match seen.load(Ordering::Relaxed) == all {
        true => Ok(hears.recv()?),
        false => Err("a follower missed an event, or saw one twice".into()),
    }
}

/// Whole durable runs of 32 workers, on threads of their own or on so many. Submissions run ahead of the workers, as they do where there
/// is more to do than workers; or, for comparison, each run is submitted by a thread that waited for the one before.
fn durable(size: Size, folder: &Path, submit: Submit, threads: Option<usize>) -> Result<Outcome> {
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    let (name, workload) = match (submit, threads) {
        (Submit::Ahead, _) => ("ahead", "durable runs of three events, 32 driven at a time, submit to seal"),
        (Submit::InBulk, EACH) => ("bulk", "the same, 32 submitted in a commit"),
        (Submit::InBulk, Some(1)) => ("shared", SHARED),
        (Submit::InBulk, Some(_)) => ("pair", "the same, workers on two threads"),
        (Submit::AfterTheLast, _) => ("asked", "the same, each submitted when the one before has ended"),
    };
    // Less than half a second each, in which a disk may well have other things to do.
    for round in 0..3 * size.rounds {
        raw.push(raw_group(&folder.join(format!("raw-{name}-{round}")), 32, size.durable_runs)?);
        let crew = Crew { workers: 32, threads };
        ours.push(drive_all(&folder.join(format!("{name}-{round}")), crew, size.durable_runs, submit, say_little)?);
    }
    let peers = vec![("raw group commit", Estimate::of(raw))];
    Ok(Outcome { workload: workload.to_owned(), unit: Unit::PerSecond, ours: Estimate::of(ours), peers })
}

/// When a thread submits its next run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submit {
    /// At once; it waits for all of them at the end.
    Ahead,
    /// At once, and many in a commit.
    InBulk,
    /// When the one before has ended.
    AfterTheLast,
}

/// Workers, each of a class of its own.
#[derive(Clone, Copy)]
struct Crew {
    workers: usize,
    /// On so many threads; else each on its own.
    threads: Option<usize>,
}

/// A thread for each.
const EACH: Option<usize> = None;

type Code = fn(&mut LiveRun) -> std::result::Result<Ending, Halt>;

/// Runs a second of a crew, submitted by as many threads as there are workers.
fn drive_all(path: &Path, crew: Crew, count: usize, submit: Submit, code: Code) -> Result<f64> {
    memory::ready();
    let each = count / crew.workers;
    let runtime = start(Store::open(path)?)?;
    let ids: Vec<WorkerId> = (0..crew.workers).map(|worker| WorkerId(i64::try_from(worker).unwrap_or(0))).collect();
    let runs = runtime.runs();
    for id in &ids {
        define(&runtime, *id)?;
    }
    let workers = ids.iter().map(|id| runtime.run_worker(*id, Policy::default(), code)).collect();
    let pool = match crew.threads {
        Some(threads) => Pool::start_on(threads, workers)?,
        None => Pool::start(workers)?,
    };
    let failed = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| {
                let all = submit_all(&runs, *id, each, submit);
                failed.fetch_add(u64::from(all.is_err()), Ordering::Relaxed);
            });
        }
    });
    let took = began.elapsed();
    pool.stop()?;
    match failed.into_inner() {
        0 => Ok((each * crew.workers) as f64 / took.as_secs_f64()),
        _ => Err("a run could not be submitted".into()),
    }
}

fn submit_all(runs: &Runs, class: WorkerId, count: usize, submit: Submit) -> kauri_runtime::Result<()> {
    const BULK: usize = 32;
    let mut jobs = Vec::new();
    match submit {
        Submit::Ahead => {
            for _ in 0..count {
                jobs.push(runs.submit(&job(class))?);
            }
        }
        Submit::InBulk => {
            for first in (0..count).step_by(BULK) {
                let bulk: Vec<Submission> = (first..count).take(BULK).map(|_| job(class)).collect();
                jobs.extend(runs.submit_all(&bulk)?);
            }
        }
        Submit::AfterTheLast => {
            for _ in 0..count {
                runs.wait(&runs.submit(&job(class))?.job, None)?;
            }
        }
    }
    // The last first: then the others have ended, and whoever waits is woken once.
    jobs.iter().rev().try_for_each(|submitted| runs.wait(&submitted.job, None).map(drop))
}

fn take_steps(live: &mut LiveRun) -> std::result::Result<Ending, Halt> {
    for number in 0..STEPS {
        live.step(&format!("step {number}"), |_| Ok(b"a result".to_vec()))?;
    }
    Ok(done(live))
}

/// From submitting a run of ten durable steps to its end, in microseconds on the wall, beside as many durable writes.
fn lone_steps(size: Size, folder: &Path) -> Result<Outcome> {
    let runtime = start(Store::open(folder.join("lone"))?)?;
    let runs = define(&runtime, CREW)?;
    let pool = Pool::start(vec![runtime.run_worker(CREW, Policy::default(), take_steps)])?;
    let mut times = Vec::new();
    for _ in 0..size.durable_runs / 16 {
        let began = Instant::now();
        runs.wait(&runs.submit(&job(CREW))?.job, None)?;
        times.push(began.elapsed().as_nanos() as f64 / 1000.0);
    }
    pool.stop()?;
    let writes = f64::from(STEPS) + 3.0;
    let rate = raw_group(&folder.join("raw-lone"), 1, 500)?;
    let peers = vec![("as many durable writes", Estimate::of(vec![writes * 1_000_000.0 / rate]))];
    let workload = "a run of ten durable steps, submit to seal".to_owned();
    Ok(Outcome { workload, unit: Unit::Microseconds, ours: Estimate::of(times), peers })
}

fn many_steps(size: Size, folder: &Path) -> Result<Outcome> {
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for round in 0..size.rounds {
        raw.push(raw_group(&folder.join(format!("raw-64-{round}")), 64, size.durable_runs)?);
        let count = size.durable_runs / 4;
        let (crew, count) = (Crew { workers: 64, threads: EACH }, count.max(64));
        let rate = drive_all(&folder.join(format!("steps-{round}")), crew, count, Submit::AfterTheLast, take_steps)?;
        ours.push(rate * f64::from(STEPS));
    }
    let workload = "durable steps, 64 runs in flight".to_owned();
    let peers = vec![("raw group commit", Estimate::of(raw))];
    Ok(Outcome { workload, unit: Unit::PerSecond, ours: Estimate::of(ours), peers })
}

/// What we want of these numbers.
pub(crate) fn goals(outcomes: &[Outcome]) -> Vec<Goal> {
    let find = |start: &str| outcomes.iter().find(|outcome| outcome.workload.starts_with(start));
    let mut goals = Vec::new();
    let mut add = |of: &str, found: Option<f64>, bound, unit| {
        goals.extend(found.map(|found| Goal { of: of.to_owned(), found, bound, unit }));
    };
    let rate = |start| find(start).map(|outcome| 1_000_000.0 / outcome.ours.median);
    let share = |start| find(start).map(|outcome| 100.0 * outcome.ours.median / outcome.peers[0].1.median);
    add("trivial runs in memory, one core", rate("a run of three"), Bound::AtLeast(50.0), " k/s");
    add("events appended, buffered", rate("an event appended, 1000"), Bound::AtLeast(500.0), " k/s");
    add("events read back", rate("an event read"), Bound::AtLeast(5000.0), " k/s");
    let cost = share("an event appended, 100 in").map(|share| share - 100.0);
    add("ten followers cost the writer", cost, Bound::Below(10.0), " %");
    // The best that can be had: scripts that do not wait need no thread each.
    let in_flight = share(SHARED).or_else(|| share("durable runs"));
    add("durable runs, 32 in flight", in_flight, Bound::AtLeast(50.0), " % of the raw limit");
    let lone = find("a run of ten").map(|outcome| outcome.ours.median / 1000.0);
    add("a run of ten durable steps, alone", lone, Bound::Below(5.0), " ms");
    let steps = find("durable steps, 64").map(|outcome| outcome.ours.median / 1000.0);
    add("durable steps, 64 runs in flight", steps, Bound::AtLeast(20.0), " k/s");
    goals
}
