//! What is kept no longer goes in ranges: in few commits, each of them small, counted exactly and told once, whatever crashes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use kauri_disk::testing::{Call, TwistedDisk};
use kauri_disk::{Disk as _, MemoryDisk, Open};
use kauri_runtime::run::{
    Artifacts, Class, Collected, EventDraft, EventSink, FanOut, Files, Halt, Keep, Limits as KeepLimits, LiveRun,
    Outcome, Passed, Removal, Retry, RunFault, Runs, State, Submission, SweptRuns,
};
use kauri_runtime::substrate::{Change, KeyRange, Limits, Rows, Signal, Substrate, TableName, TreeSubstrate, Verdict};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Error, Policy, Result, Runtime};
use kauri_tree::{Store, Table, Write as _};
use kauri_wire::pack::MapBuf;
use kauri_wire::run::{Event, EventType};

use crate::runs::{CREW, crew, log, setup_with, submit, well};

/// A store at whose commits somebody looks, and one of which may fail.
struct Watched {
    inner: TreeSubstrate,
    /// Of each commit, how many rows it wrote or removed one by one, and how many ranges it cut.
    seen: Mutex<Vec<(usize, usize)>>,
    /// How many commits are still to succeed, and whether the one after them happens although it is said to have failed.
    left: AtomicUsize,
    happens: bool,
}

impl Watched {
    fn new(store: &Store) -> Self {
        let inner = TreeSubstrate::new(store.clone());
        Self { inner, seen: Mutex::default(), left: AtomicUsize::new(usize::MAX), happens: false }
    }

    fn take(&self) -> Vec<(usize, usize)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl Substrate for Watched {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>> {
        self.inner.snapshot()
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        let dead = || Error::Substrate("the program died".into());
        let left = self.left.load(Ordering::Relaxed);
        match left {
            0 if !self.happens => return Err(dead()),
            usize::MAX | 0 => {}
            _ => self.left.store(left - 1, Ordering::Relaxed),
        }
        let writes = change.writes.values().map(std::collections::BTreeMap::len).sum();
        self.seen.lock().unwrap().push((writes, change.cuts.len()));
        let verdict = self.inner.commit(change)?;
        if left == 0 { Err(dead()) } else { Ok(verdict) }
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.inner.watch(table, prefix, signal);
    }
}

const TABLES: [&str; 6] = ["jobs", "runs", "events", "steps", "inputs", "run_index"];

/// How many rows there are of runs and jobs, but for the one that says which ids were used, and of events.
fn rows(store: &Store) -> (u64, u64) {
    let substrate = TreeSubstrate::new(store.clone());
    let rows = substrate.snapshot().unwrap();
    let count = |table: &'static str| rows.count(&TableName::Borrowed(table), KeyRange::ALL).unwrap();
    let used = rows.get(&"run_index".into(), b"m").unwrap().map_or(0, |_| 1);
    (TABLES.into_iter().map(count).sum::<u64>() - used, count("events"))
}

fn start(store: &Store) -> (Arc<Watched>, Runtime, VirtualClock) {
    let (watched, clock) = (Arc::new(Watched::new(store)), VirtualClock::default());
    let substrate = Arc::clone(&watched) as Arc<dyn Substrate>;
    (watched, Runtime::builder(substrate, Arc::new(clock.clone())).start().unwrap(), clock)
}

/// A store in which jobs have ended that are not kept any more: each has one run with so many events, and some steps.
fn filled(jobs: usize, events: usize) -> Store {
    filled_keeping(jobs, events, Keep { time: Some(Duration::ZERO), ..Keep::default() })
}

fn filled_keeping(jobs: usize, events: usize, keep: Keep) -> Store {
    let store = Store::in_memory().unwrap();
    let (_, runtime, clock) = start(&store);
    let runs = runtime.runs();
    runs.define("work", &Class { keep, retry: Retry::never(), ..Class::new(CREW) }).unwrap();
    for number in 0..jobs {
        runs.submit(&Submission::new("work", "an input").once(number.to_string())).unwrap();
    }
    let mut worker = runtime.run_worker(CREW, Policy::default(), move |live: &mut LiveRun| {
        for number in 0..10 {
            live.append(&vec![log("a line of the log"); events / 10])?;
            live.step(&format!("step {number}"), |_| Ok(b"a result".to_vec()))?;
        }
        well(live)
    });
    worker.drain().unwrap();
    clock.advance(Duration::from_secs(1));
    store
}

/// Sweeps in turns until there is nothing left: how many turns, what was removed, and which jobs were told of, how often.
fn sweep(runs: &Runs, rows_max: usize) -> (u64, SweptRuns, Vec<String>) {
    let (mut turns, mut all, mut told) = (0, SweptRuns::default(), Vec::new());
    loop {
        let swept = runs.sweep_telling(rows_max, |removal| {
            if let Removal::Job { job, .. } = removal {
                told.push(job.id.to_string());
            }
            Ok(())
        });
        let swept = swept.unwrap();
        if swept.rows == 0 {
            return (turns, all, told);
        }
        assert!(swept.rows <= rows_max as u64 + 16, "a turn removes what it may: {swept:?}");
        turns += 1;
        all.jobs += swept.jobs;
        all.runs += swept.runs;
        all.events += swept.events;
        all.rows += swept.rows;
    }
}

#[test]
fn long_job_goes_in_few_commits_and_its_rows_are_not_touched_one_by_one() {
    let store = filled(1, 50_000);
    let ((before, events), (watched, runtime, _)) = (rows(&store), start(&store));
    assert_eq!(events, 50_001);
    watched.take();
    let swept = runtime.runs().sweep(usize::MAX).unwrap();
    let commits = watched.take();
    let single: usize = commits.iter().map(|(writes, _)| writes).sum();
    let ranges: usize = commits.iter().map(|(_, cuts)| cuts).sum();
    assert!(commits.len() <= 6 && single <= 12 && ranges <= 8, "{commits:?}");
    // The class is left, and where its numbers are.
    let (after, _) = rows(&store);
    assert_eq!((swept.jobs, swept.runs, swept.events, swept.rows), (1, 1, 50_001, before - after));
    assert_eq!(after, 1);
    store.verify().unwrap();
}

#[test]
fn sweeps_of_any_size_remove_and_count_the_same_and_tell_of_each_job_once() {
    for rows_max in [7, 100, 1_000, 100_000] {
        let store = filled(3, 500);
        let (before, events) = rows(&store);
        let (_, runtime, _) = start(&store);
        let (turns, swept, mut told) = sweep(&runtime.runs(), rows_max);
        let (after, _) = rows(&store);
        assert_eq!((swept.jobs, swept.runs, swept.events, swept.rows), (3, 3, events, before - after));
        assert_eq!((after, turns > 1), (1, rows_max < 1_500), "{turns} turns of {rows_max} rows");
        assert_eq!(told.len(), 3, "{told:?}");
        told.dedup();
        assert_eq!(told.len(), 3, "each once");
    }
}

#[test]
fn sweep_ends_and_comes_past_a_job_that_is_leaving_and_does_not_go() {
    let store = filled(1, 500);
    let (_, runtime, _) = start(&store);
    let runs = runtime.runs();
    assert_eq!(runs.sweep(10).unwrap().jobs, 0, "a part of it is gone");
    // What is kept now is no matter.
    runs.define("work", &Class { retry: Retry::never(), ..Class::new(CREW) }).unwrap();
    // One that stands before it in the index, and has no row: whoever removes it has just done so.
    let mut txn = store.begin();
    txn.put(&Table::<[u8], [u8]>::new("run_index"), b"lwork\0another", b"").unwrap();
    txn.commit().unwrap();
    let (_, swept, _) = sweep(&runs, 50);
    assert_eq!((swept.jobs, rows(&store).0), (1, 2), "the class is left, and what does not go");
}

#[test]
fn whoever_follows_a_run_that_is_swept_is_told_so_whatever_is_left_of_it() {
    let store = filled(1, 100);
    let (_, runtime, _) = start(&store);
    let runs = runtime.runs();
    let run = runs.list(None, 1).unwrap()[0].id;
    let mut tails = [1, 31, 101].map(|from| runs.tail(run, from).unwrap());
    assert_eq!(tails[0].next(10).unwrap().len(), 10);
    let mut is_gone = [false; 3];
    while runs.sweep(10).unwrap().rows > 0 {
        for (tail, is_gone) in tails.iter_mut().zip(&mut is_gone) {
            match tail.next(5) {
                Ok(some) => assert!(!*is_gone && some.len() <= 5),
                Err(Error::Run(RunFault::NoRun(id))) => {
                    assert_eq!(id, run);
                    *is_gone = true;
                }
                other => panic!("expected events or no run, found {other:?}"),
            }
        }
    }
    assert_eq!(is_gone, [true; 3]);
}

#[test]
fn crash_at_any_commit_of_a_sweep_loses_no_job_and_leaves_no_row() {
    for happens in [false, true] {
        for left in 0.. {
            let store = filled(2, 200);
            let watched = Arc::new(Watched { left: AtomicUsize::new(usize::MAX), happens, ..Watched::new(&store) });
            let substrate = Arc::clone(&watched) as Arc<dyn Substrate>;
            let runtime = Runtime::builder(substrate, Arc::new(VirtualClock::default())).start().unwrap();
            watched.left.store(left, Ordering::Relaxed);
            let mut told = Vec::new();
            let swept = runtime.runs().sweep_telling(1_000_000, |removal| {
                if let Removal::Job { job, .. } = removal {
                    told.push(job.id.to_string());
                }
                Ok(())
            });
            if swept.is_ok() {
                assert!(left > 1, "a sweep of two jobs is more than one commit");
                break;
            }
            drop(runtime);
            let (_, runtime, _) = start(&store);
            let (_, _, again) = sweep(&runtime.runs(), 50);
            told.extend(again);
            told.sort();
            told.dedup();
            assert_eq!((rows(&store).0, told.len()), (1, 2), "after {left} commits");
        }
    }
}

#[test]
fn file_that_is_put_while_files_are_listed_keeps_its_bytes() {
    let store = filled(1, 10);
    let (_, runtime, _) = start(&store);
    let runs = runtime.runs();
    let run = runs.list(None, 1).unwrap()[0].id;
    // Somebody puts a file as soon as the names of all were listed, each time: so it is in no list that was made before.
    for nth in 0..8 {
        let (listed, late) = (Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::<Files>::new()));
        let (count, own) = (Arc::clone(&listed), Arc::clone(&late));
        let disk = TwistedDisk::new(MemoryDisk::new(), move |call, go| {
            let done = go();
            if let (Call::Names, Some(files)) = (call, own.get())
                && count.fetch_add(1, Ordering::Relaxed) == nth
            {
                files.put(run, "report.csv", "text/csv", b"apples,12").unwrap();
            }
            done
        });
        let files = Files::new(Artifacts::open(Arc::new(disk)).unwrap());
        late.set(files.clone()).unwrap();
        runs.collect(&files).unwrap();
        let Some(kept) = files.find(run, "report.csv").unwrap() else {
            assert!(nth > 0, "a collection lists names");
            return;
        };
        assert!(files.artifacts().is_whole(kept.digest).unwrap(), "put after list {nth}");
        runs.collect(&files).unwrap();
        assert!(files.artifacts().is_whole(kept.digest).unwrap(), "and found by the next collection");
    }
    panic!("a collection lists names a few times at most");
}

/// Keeps what has ended for a day, and nothing longer.
const DAY: Duration = Duration::from_hours(24);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn day() -> Keep {
    Keep { time: Some(DAY), ..Keep::default() }
}

#[test]
fn job_is_as_old_as_its_latest_run() {
    let (setup, runs) = setup_with(&Class { keep: day(), retry: Retry::never(), ..Class::new(CREW) });
    let job = submit(&runs);
    crew(&setup, |_| Err(Halt::Failed("on Monday".into()))).drain().unwrap();
    setup.advance(4 * DAY_MS);
    // It failed long ago and nobody swept; somebody retries it, and it succeeds.
    let again = runs.retry(job.run).unwrap();
    crew(&setup, well).drain().unwrap();
    setup.advance(DAY_MS - 1);
    assert_eq!(runs.sweep(1000).unwrap(), SweptRuns::default());
    assert_eq!(runs.attempts(&job.job).unwrap().len(), 2);
    assert!(runs.verify(job.run).unwrap() && runs.verify(again.id).unwrap());
    setup.advance(1);
    assert_eq!(runs.sweep(1000).unwrap().runs, 2);
}

#[test]
fn of_runs_that_are_too_many_the_job_goes_that_ended_first_not_the_one_that_began_first() {
    let keep = Keep { runs: Some(2), ..Keep::default() };
    let (setup, runs) = setup_with(&Class { keep, retry: Retry::never(), ..Class::new(CREW) });
    let retried = submit(&runs);
    crew(&setup, |_| Err(Halt::Failed("once".into()))).drain().unwrap();
    setup.advance(1);
    let other = submit(&runs);
    crew(&setup, well).drain().unwrap();
    setup.advance(1);
    runs.retry(retried.run).unwrap();
    crew(&setup, well).drain().unwrap();
    assert_eq!(runs.sweep(1000).unwrap().jobs, 1);
    assert!(runs.job(&other.job).is_err());
    assert_eq!(runs.attempts(&retried.job).unwrap().len(), 2);
}

/// Asks for derived work of the same class.
fn enqueue(live: &mut LiveRun, what: &str) -> std::result::Result<(), Halt> {
    let mut params = MapBuf::new();
    params.put("what", what);
    let payload = Event::Enqueue { target: "work", params: params.view(), source: None, category: None };
    let payload = payload.payload().view().encode();
    live.append(&[EventDraft { kind: EventType::Enqueue, ts: 1, payload }])?;
    Ok(())
}

#[test]
fn job_stays_until_all_that_was_derived_from_it_has_ended() {
    let fan_out = FanOut { depth_max: 5, parallel: 10, ..FanOut::default() };
    let class = Class { keep: day(), retry: Retry::never(), fan_out, ..Class::new(CREW) };
    let (setup, runs) = setup_with(&class);
    let root = submit(&runs).run;
    // A chain: each asks for the next and ends, and the third waits to be told to go on.
    let mut worker = crew(&setup, |live| {
        match live.run().depth {
            depth @ (0 | 1) => enqueue(live, &depth.to_string())?,
            2 => {
                live.wait_for_signal("go")?;
                enqueue(live, "late")?;
                // The same as another asked for long ago.
                enqueue(live, "1")?;
            }
            _ => {}
        }
        well(live)
    });
    worker.drain().unwrap();
    setup.advance(10 * DAY_MS);
    assert_eq!(runs.sweep(1000).unwrap(), SweptRuns::default(), "one of the tree goes on");
    let waits = runs.list(None, 10).unwrap().into_iter().find(|run| run.state == State::Parked).unwrap();
    assert_eq!((waits.depth, runs.lineage(waits.id).unwrap().ancestors.len()), (2, 2));
    runs.signal(waits.id, "go", b"").unwrap();
    worker.drain().unwrap();
    let tree = runs.tree(root).unwrap();
    assert_eq!((tree.runs.len(), tree.counts().len()), (4, 1), "one more was made, and none twice: {tree:?}");
    // Those that ended long ago go, from below; the first of all stays as long as the last goes on.
    let late = tree.runs.last().unwrap().id;
    assert_eq!(runs.run(late).unwrap().depth, 3);
    while runs.sweep(1000).unwrap().rows > 0 {}
    assert_eq!(runs.list(None, 10).unwrap().iter().map(|run| run.depth).collect::<Vec<_>>(), [2, 3]);
    setup.advance(DAY_MS);
    while runs.sweep(1000).unwrap().rows > 0 {}
    assert!(runs.list(None, 10).unwrap().is_empty());
    let rows = setup.runtime.substrate().snapshot().unwrap();
    assert_eq!(rows.count(&"run_index".into(), KeyRange::ALL).unwrap(), 2, "the class, and which ids were used");
}

#[test]
fn tree_whose_first_job_ended_long_ago_can_be_cancelled_by_it() {
    let fan_out = FanOut { depth_max: 5, parallel: 10, ..FanOut::default() };
    let class = Class { keep: day(), retry: Retry::never(), fan_out, ..Class::new(CREW) };
    let (setup, runs) = setup_with(&class);
    let root = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        match live.run().depth {
            depth @ (0 | 1) => enqueue(live, &depth.to_string())?,
            _ => drop(live.wait_for_signal("never")?),
        }
        well(live)
    });
    worker.drain().unwrap();
    setup.advance(10 * DAY_MS);
    while runs.sweep(1000).unwrap().rows > 0 {}
    let cancelled = runs.cancel(root).unwrap();
    assert_eq!((cancelled.sealed, cancelled.ended), (1, 2));
}

#[test]
fn key_that_a_newer_job_has_taken_stays_when_the_older_one_goes() {
    let (setup, runs) = setup_with(&Class { keep: day(), retry: Retry::never(), ..Class::new(CREW) });
    let job = || Submission::new("work", "").once_within("k", DAY / 2);
    let old = runs.submit(&job()).unwrap();
    crew(&setup, well).drain().unwrap();
    setup.advance(DAY_MS - 1);
    let new = runs.submit(&job()).unwrap();
    assert!(new.is_new && new.job != old.job);
    setup.advance(1);
    assert_eq!(runs.sweep(1000).unwrap().jobs, 1);
    let again = runs.submit(&job()).unwrap();
    assert_eq!((again.is_new, again.job), (false, new.job));
}

#[test]
fn job_of_which_a_part_is_gone_cannot_be_retried_and_goes_whatever_is_kept_then() {
    let (setup, runs) = setup_with(&Class { keep: day(), retry: Retry::never(), ..Class::new(CREW) });
    let job = runs.submit(&Submission::new("work", "").once("k")).unwrap();
    let mut worker = crew(&setup, |live| {
        live.append(&vec![log("a line"); 100])?;
        live.step("charge", |_| Ok(Vec::new()))?;
        Err(Halt::Failed("after all that".into()))
    });
    worker.drain().unwrap();
    setup.advance(DAY_MS);
    let part = runs.sweep(10).unwrap();
    assert!(part.rows > 0 && part.jobs == 0, "{part:?}");
    for refused in [runs.retry(job.run), runs.retry_from(job.run, "charge", None)] {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, Error::Run(RunFault::Leaving(id)) if *id == job.job), "{refused}");
        assert!(refused.to_string().contains("is being removed"), "{refused}");
    }
    // Its key is free, and who takes it keeps it.
    let new = runs.submit(&Submission::new("work", "").once("k")).unwrap();
    assert!(new.is_new);
    // What is kept now is no matter: half a job is of no use.
    runs.define("work", &Class { retry: Retry::never(), ..Class::new(CREW) }).unwrap();
    let mut jobs = 0;
    for _ in 0..100 {
        jobs += runs.sweep(10).unwrap().jobs;
    }
    assert_eq!((jobs, runs.job(&job.job).is_err()), (1, true));
    assert_eq!(runs.submit(&Submission::new("work", "").once("k")).unwrap().job, new.job);
    runs.cancel(new.run).unwrap();
    assert_eq!(runs.run(new.run).unwrap().outcome(), Some(Outcome::Cancelled));
}

/// Keeps runs for ten days, and of each a share for one.
fn less(share: fn(&mut Keep) -> &mut KeepLimits) -> Keep {
    let mut keep = Keep { time: Some(10 * DAY), ..Keep::default() };
    *share(&mut keep) = KeepLimits { time: Some(DAY), ..KeepLimits::default() };
    keep
}

fn fault<T: std::fmt::Debug>(result: Result<T>) -> RunFault {
    match result {
        Err(Error::Run(fault)) => fault,
        other => panic!("expected a fault, found {other:?}"),
    }
}

#[test]
fn events_that_are_kept_less_long_than_their_run_go_and_the_run_says_so() {
    let keep = less(|keep| &mut keep.events);
    let (setup, runs) = setup_with(&Class { keep, retry: Retry::never(), ..Class::new(CREW) });
    let job = submit(&runs);
    let mut worker = crew(&setup, |live| {
        live.append(&vec![log("a line"); 100])?;
        live.step("charge", |_| Ok(b"twelve".to_vec()))?;
        Err(Halt::Failed("after all that".into()))
    });
    worker.drain().unwrap();
    let (before, all) = (runs.run(job.run).unwrap(), runs.events(job.run, 1, 1000).unwrap());
    let bytes: u64 = all.iter().map(|event| event.payload.len() as u64 + 9).sum();
    let mut tail = runs.tail(job.run, 1).unwrap();
    setup.advance(DAY_MS - 1);
    assert_eq!(runs.sweep(1000).unwrap(), SweptRuns::default());
    setup.advance(1);
    let (mut swept, mut told, mut turns) = (SweptRuns::default(), Vec::new(), 0);
    loop {
        let some = runs.sweep_telling(7, |removal| {
            match removal {
                Removal::Events { class, run, why } => told.push(((*class).to_owned(), run.id, *why)),
                other => panic!("{other:?}"),
            }
            Ok(())
        });
        let some = some.unwrap();
        if some.rows == 0 {
            break;
        }
        turns += 1;
        assert!(some.rows <= 7 && some.runs == 0, "{some:?}");
        (swept.events, swept.bytes) = (swept.events + some.events, swept.bytes + some.bytes);
        // From the first part on nobody takes what is left for all, or what is missing for damage.
        assert!(runs.removed(job.run).unwrap().events && runs.events(job.run, 1, 10).unwrap().is_empty());
        let gone = RunFault::EventsRemoved(job.run);
        assert_eq!((fault(runs.verify(job.run)), fault(tail.next(10))), (gone.clone(), gone.clone()));
        let mut out = Vec::new();
        assert_eq!((fault(runs.export(job.run, &mut out)), out.len()), (gone.clone(), 0));
        assert!(gone.to_string().contains("were removed because its class keeps them no longer"), "{gone}");
    }
    assert_eq!((turns > 10, swept.events, swept.bytes), (true, 101, bytes));
    assert_eq!(told, [("work".to_owned(), job.run, Passed::Time)]);
    assert_eq!(setup.runtime.metrics().events_swept, 101);
    // The run is what it was: how much it said, the hash over that, and its steps.
    assert_eq!((runs.run(job.run).unwrap(), runs.steps(job.run).unwrap().len()), (before, 1));
    // So it can be retried, and the new run has events.
    let again = runs.retry_from(job.run, "charge", None).unwrap();
    worker.drain().unwrap();
    assert!(runs.verify(again.id).unwrap());
    setup.advance(DAY_MS);
    assert_eq!(runs.sweep(1000).unwrap().events, 101);
    setup.advance(9 * DAY_MS);
    let last = runs.sweep(1000).unwrap();
    assert_eq!((last.jobs, last.runs, last.events), (1, 2, 0));
    let rows = setup.runtime.substrate().snapshot().unwrap();
    assert_eq!(
        rows.count(&"run_index".into(), KeyRange::ALL).unwrap(),
        3,
        "the class, up to where events went, which ids were used"
    );
}

#[test]
fn of_many_runs_only_so_many_have_their_events_or_so_many_bytes_of_them() {
    let [count, bytes] = [(Some(2), None), (None, Some(7_000))];
    for (count, bytes) in [count, bytes] {
        let events = KeepLimits { count, bytes, ..KeepLimits::default() };
        let (setup, runs) = setup_with(&Class { keep: Keep { events, ..Keep::default() }, ..Class::new(CREW) });
        let mut worker = crew(&setup, |live| {
            live.append(&[log(&"x".repeat(3000))])?;
            well(live)
        });
        let mut all = Vec::new();
        for round in 0..7 {
            all.push(submit(&runs).run);
            worker.drain().unwrap();
            setup.advance(1);
            let swept = runs.sweep(1000).unwrap();
            assert_eq!((swept.events, swept.runs), (if round < 2 { 0 } else { 2 }, 0), "round {round}");
        }
        let has_events = |run: &kauri_wire::RunId| runs.events(*run, 1, 10).unwrap().len();
        assert_eq!(all.iter().map(has_events).collect::<Vec<_>>(), [0, 0, 0, 0, 0, 2, 2]);
        assert_eq!(runs.sweep(1000).unwrap(), SweptRuns::default());
    }
}

#[test]
fn events_of_all_attempts_of_a_job_stay_or_go_together() {
    let events = KeepLimits { count: Some(3), ..KeepLimits::default() };
    let retry = Retry { attempts_max: 2, pause: Duration::ZERO, ..Retry::default() };
    let (setup, runs) = setup_with(&Class { keep: Keep { events, ..Keep::default() }, retry, ..Class::new(CREW) });
    let jobs: Vec<_> = (0..2).map(|_| submit(&runs).job).collect();
    crew(&setup, |_| Err(Halt::Failed("twice".into()))).drain().unwrap();
    assert_eq!(runs.sweep(1000).unwrap().events, 2, "four runs of two jobs have events, and three may");
    let left = |job| runs.attempts(job).unwrap().iter().filter(|run| runs.verify(run.id).is_ok()).count();
    let mut left: Vec<usize> = jobs.iter().map(left).collect();
    left.sort_unstable();
    assert_eq!(left, [0, 2]);
}

#[test]
fn events_of_which_some_are_gone_go_whatever_is_kept_by_then() {
    let keep = |count| {
        let events = KeepLimits { count, ..KeepLimits::default() };
        Class { keep: Keep { events, ..Keep::default() }, retry: Retry::never(), ..Class::new(CREW) }
    };
    let (setup, runs) = setup_with(&keep(Some(0)));
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        live.append(&vec![log("a line"); 30])?;
        well(live)
    });
    worker.drain().unwrap();
    assert_eq!(runs.sweep(10).unwrap().events, 10);
    runs.define("work", &keep(None)).unwrap();
    let mut told = 0;
    let swept = runs.sweep_telling(1000, |_| {
        told += 1;
        Ok(())
    });
    assert_eq!((swept.unwrap().events, told, runs.events(run, 1, 100).unwrap().len()), (21, 0, 0));
    assert_eq!(runs.sweep(1000).unwrap(), SweptRuns::default());
    assert_eq!(rows(&setup.store).1, 0);
}

/// Says that a run has an artifact, and puts a file beside it.
fn leave_bytes(live: &mut LiveRun, files: &Files, content: &[u8]) -> std::result::Result<(), Halt> {
    let mut writer = files.artifacts().begin().unwrap();
    writer.write(content).unwrap();
    let kept = writer.finish().unwrap();
    let mut payload = MapBuf::new();
    payload.put("artifact_id", "a").put("name", "a.txt").put("content_type", "text/plain");
    payload.put("size_bytes", kept.size_bytes()).put("sha256", &*kept.digest().to_string());
    let payload = payload.view().encode();
    live.append(&[EventDraft { kind: EventType::Artifact, ts: 0, payload }])?;
    let beside = format!("of {}", live.id());
    files.put(live.id(), "log.txt", "text/plain", beside.as_bytes()).unwrap();
    Ok(())
}

fn in_memory() -> (MemoryDisk, Files) {
    let disk = MemoryDisk::new();
    (disk.clone(), Files::new(Artifacts::open(Arc::new(disk)).unwrap()))
}

#[test]
fn artifacts_that_are_kept_less_long_than_their_run_go_with_its_files_and_its_events_stay() {
    let keep = less(|keep| &mut keep.artifacts);
    let (setup, runs) = setup_with(&Class { keep, retry: Retry::never(), ..Class::new(CREW) });
    let (disk, files) = in_memory();
    let own = files.clone();
    let mut worker = crew(&setup, move |live| {
        let content = live.input().to_vec();
        leave_bytes(live, &own, &content)?;
        well(live)
    });
    let old = runs.submit(&Submission::new("work", "apples")).unwrap().run;
    let plain = runs.submit(&Submission::new("work", "shared")).unwrap().run;
    worker.drain().unwrap();
    setup.advance(DAY_MS);
    let new = runs.submit(&Submission::new("work", "shared")).unwrap().run;
    worker.drain().unwrap();
    let mut told = Vec::new();
    let swept = runs.sweep_beside(&files, 1000, |removal| {
        match removal {
            Removal::Artifacts { run, why, .. } => told.push((run.id, *why)),
            other => panic!("{other:?}"),
        }
        Ok(())
    });
    let swept = swept.unwrap();
    assert_eq!((swept.artifacts, swept.bytes, swept.runs, swept.events), (2, 12, 0, 0));
    told.sort_by_key(|(run, _)| *run);
    assert_eq!(told, [(old, Passed::Time), (plain, Passed::Time)]);
    // Told by name and digest before they are gone.
    let mut gone = Vec::new();
    let mut collector = runs.collector(&files).unwrap();
    let collected = collector.step(1000, |removal| {
        match removal {
            Removal::File { run, file: Some(file), .. } => {
                assert!(files.find(*run, &file.filename).unwrap().is_some());
                gone.push(format!("{run} {}", file.filename));
            }
            Removal::Artifact { digest, size_bytes } => {
                assert!(files.artifacts().is_whole(*digest).unwrap());
                gone.push(size_bytes.to_string());
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    });
    // The bytes of both files, and of the artifact that no other run names.
    assert_eq!((collected.unwrap(), collector.is_over()), (Collected { files: 2, artifacts: 3 }, true));
    drop(collector);
    gone.sort();
    let mut expected = vec!["39".to_owned(), "39".to_owned(), "6".to_owned()];
    expected.extend([format!("{old} log.txt"), format!("{plain} log.txt")]);
    expected.sort();
    assert_eq!(gone, expected);
    for run in [old, plain] {
        let removed = runs.removed(run).unwrap();
        assert!(removed.artifacts && !removed.events && runs.verify(run).unwrap());
        assert!(files.list(run).unwrap().is_empty());
    }
    assert_eq!((files.list(new).unwrap().len(), disk.names().unwrap().len()), (1, 3));
    let metrics = setup.runtime.metrics();
    assert_eq!((metrics.artifacts_swept, metrics.artifacts_collected, metrics.files_collected), (2, 3, 2));
    setup.advance(10 * DAY_MS);
    assert_eq!(runs.sweep(1000).unwrap().runs, 3);
    assert_eq!(runs.collect(&files).unwrap(), Collected { files: 1, artifacts: 2 });
    assert!(disk.names().unwrap().is_empty());
}

#[test]
fn files_count_for_the_bytes_of_their_class_after_a_restart_too() {
    let keep = Keep { bytes: Some(10_000), ..Keep::default() };
    let (setup, runs) = setup_with(&Class { keep, ..Class::new(CREW) });
    let (disk, files) = in_memory();
    let own = files.clone();
    let mut worker = crew(&setup, move |live| {
        own.put(live.id(), "page.html", "text/html", &[b'x'; 4000]).unwrap();
        well(live)
    });
    for _ in 0..4 {
        submit(&runs);
        worker.drain().unwrap();
        setup.advance(1);
    }
    assert_eq!(runs.sweep(1000).unwrap(), SweptRuns::default(), "the runs themselves are small");
    // Another process learns of the files when it first collects.
    let files = Files::new(Artifacts::open(Arc::new(disk)).unwrap());
    assert_eq!(runs.collect(&files).unwrap(), Collected::default());
    let swept = runs.sweep_beside(&files, 1000, |_| Ok(())).unwrap();
    assert!(swept.jobs == 2 && swept.bytes > 8000, "{swept:?}");
    assert_eq!(runs.collect(&files).unwrap().files, 2);
    assert_eq!(runs.sweep_beside(&files, 1000, |_| Ok(())).unwrap(), SweptRuns::default());
}

#[test]
fn dead_letters_are_kept_by_their_own_limits_if_there_are_any() {
    let letters = |dead_letters| Keep { runs: Some(1), dead_letters, ..Keep::default() };
    let few = KeepLimits { count: Some(2), ..KeepLimits::default() };
    for (keep, left) in [(letters(None), 1), (letters(Some(few)), 2), (letters(Some(KeepLimits::default())), 5)] {
        let (setup, runs) = setup_with(&Class { keep, ..Class::new(CREW) });
        for number in 0..5 {
            let id = kauri_wire::MessageId::new(format!("junk-{number}")).unwrap();
            setup.runtime.send(&kauri_wire::Message::command(CREW, id, "no run")).unwrap();
        }
        crew(&setup, well).drain().unwrap();
        runs.sweep(1000).unwrap();
        assert_eq!(setup.runtime.gauges().unwrap().dead_letters, left);
    }
}

#[test]
fn crash_at_any_commit_leaves_of_each_run_all_events_or_the_word_that_they_are_gone() {
    for happens in [false, true] {
        for left in 0.. {
            let events = KeepLimits { time: Some(Duration::ZERO), ..KeepLimits::default() };
            let store = filled_keeping(2, 50, Keep { events, ..Keep::default() });
            let watched = Arc::new(Watched { happens, ..Watched::new(&store) });
            let substrate = Arc::clone(&watched) as Arc<dyn Substrate>;
            let runtime = Runtime::builder(substrate, Arc::new(VirtualClock::default())).start().unwrap();
            watched.left.store(left, Ordering::Relaxed);
            let mut is_over = false;
            while let (false, Ok(swept)) = (is_over, runtime.runs().sweep(20)) {
                is_over = swept.rows == 0;
            }
            drop(runtime);
            let (_, runtime, _) = start(&store);
            let runs = runtime.runs();
            for run in runs.list(None, 10).unwrap() {
                let count = runs.events(run.id, 1, 1000).unwrap().len() as u64;
                match runs.removed(run.id).unwrap().events {
                    true => assert_eq!(count, 0),
                    false => assert!(runs.verify(run.id).unwrap() && count == run.events),
                }
            }
            while runs.sweep(20).unwrap().rows > 0 {}
            assert_eq!((rows(&store).1, runs.list(None, 10).unwrap().len()), (0, 2), "after {left} commits");
            if is_over {
                assert!(left > 4, "{left} commits");
                break;
            }
        }
    }
}

#[test]
fn collection_lists_once_goes_in_small_steps_and_reads_no_file_twice() {
    let (setup, runs) = setup_with(&Class { keep: day(), retry: Retry::never(), ..Class::new(CREW) });
    let [lists, syncs, opens] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let counts = [&lists, &syncs, &opens].map(Arc::clone);
    let memory = MemoryDisk::new();
    let disk = TwistedDisk::new(memory.clone(), move |call, go| {
        let count = match call {
            Call::Names => &counts[0],
            Call::SyncDir => &counts[1],
            Call::Open(name, _) if name.starts_with("file-") => &counts[2],
            _ => return go(),
        };
        count.fetch_add(1, Ordering::Relaxed);
        go()
    });
    let taken = || [&lists, &syncs, &opens].map(|count| count.swap(0, Ordering::Relaxed));
    let files = Files::new(Artifacts::open(Arc::new(memory.clone())).unwrap());
    let mut worker = crew(&setup, move |live| {
        for name in ["a", "b"] {
            files.put(live.id(), name, "t", format!("{name} of {}", live.id()).as_bytes()).unwrap();
        }
        well(live)
    });
    for _ in 0..30 {
        submit(&runs);
    }
    worker.drain().unwrap();
    setup.advance(DAY_MS);
    submit(&runs);
    worker.drain().unwrap();
    assert_eq!(runs.sweep(10_000).unwrap().runs, 30);
    let kept = runs.list(None, 10).unwrap()[0].id;
    // As another process finds it.
    let files = Files::new(Artifacts::open(Arc::new(disk)).unwrap());
    taken();
    let (mut collector, mut all, mut steps) = (runs.collector(&files).unwrap(), Collected::default(), 0);
    while !collector.is_over() {
        // What is put meanwhile stays.
        files.put(kept, &format!("late {steps}"), "t", format!("late {steps}").as_bytes()).unwrap();
        let some = collector.step(10, |_| Ok(())).unwrap();
        assert!(some.files + some.artifacts <= 10);
        (all.files, all.artifacts, steps) = (all.files + some.files, all.artifacts + some.artifacts, steps + 1);
    }
    drop(collector);
    assert_eq!((all, steps), (Collected { files: 60, artifacts: 60 }, 13), "124 names");
    let [listed, synced, _] = taken();
    // Each put syncs twice, for its bytes and its line; each step at most once, for all that it removed.
    assert!(listed == 1 && synced <= 2 * steps + steps, "{listed} lists, {synced} syncs");
    assert!(memory.names().unwrap().len() == 2 * (2 + steps) && files.list(kept).unwrap().len() == 2 + steps);
    taken();
    assert_eq!(runs.collect(&files).unwrap(), Collected::default());
    assert_eq!(taken(), [1, 0, 0], "lists, syncs, files that were read");
}

#[test]
fn damaged_file_of_a_run_that_is_gone_is_collected_and_that_of_one_that_is_kept_keeps_all_bytes() {
    let (setup, runs) = setup_with(&Class { keep: day(), ..Class::new(CREW) });
    let (disk, files) = in_memory();
    let own = files.clone();
    let mut worker = crew(&setup, move |live| {
        leave_bytes(live, &own, b"apples")?;
        well(live)
    });
    submit(&runs);
    worker.drain().unwrap();
    for name in disk.names().unwrap().iter().filter(|name| name.starts_with("file-")) {
        disk.open(name, Open::ReadWrite).unwrap().write_at(0, b"junk").unwrap();
    }
    drop(files);
    let files = Files::new(Artifacts::open(Arc::new(disk.clone())).unwrap());
    let words = runs.collect(&files).unwrap_err().to_string();
    assert!(words.contains("is damaged"), "{words}");
    assert_eq!(disk.names().unwrap().len(), 3);
    setup.advance(DAY_MS);
    runs.sweep(1000).unwrap();
    assert_eq!(runs.collect(&files).unwrap(), Collected { files: 1, artifacts: 2 });
}

#[test]
fn what_cannot_be_told_is_not_collected() {
    let (setup, runs) = setup_with(&Class { keep: day(), ..Class::new(CREW) });
    let (disk, files) = in_memory();
    let own = files.clone();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, move |live| {
        leave_bytes(live, &own, b"apples")?;
        well(live)
    });
    worker.drain().unwrap();
    setup.advance(DAY_MS);
    runs.sweep(1000).unwrap();
    let mut collector = runs.collector(&files).unwrap();
    assert!(runs.collector(&files).is_err(), "one at a time");
    assert!(collector.step(10, |_| Err(Error::Stopped)).is_err());
    assert!(collector.is_over(), "whoever goes on removes nothing: a file was not looked at");
    assert_eq!(collector.step(10, |_| Ok(())).unwrap(), Collected::default());
    drop(collector);
    assert_eq!((disk.names().unwrap().len(), files.list(run).unwrap().len()), (3, 1));
    assert_eq!(runs.collect(&files).unwrap(), Collected { files: 1, artifacts: 2 });
}
