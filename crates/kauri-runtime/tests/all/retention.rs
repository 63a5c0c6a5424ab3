//! What is kept no longer goes in ranges: in few commits, each of them small, counted exactly and told once, whatever crashes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use kauri_disk::MemoryDisk;
use kauri_disk::testing::{Call, TwistedDisk};
use kauri_runtime::run::{
    Artifacts, Class, EventSink, Files, Keep, Removal, Retry, RunFault, Runs, Submission, SweptRuns,
};
use kauri_runtime::substrate::{Change, KeyRange, Limits, Rows, Signal, Substrate, TableName, TreeSubstrate, Verdict};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Error, Policy, Result, Runtime};
use kauri_tree::Store;

use crate::runs::{CREW, log, well};

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

/// How many rows there are of runs and jobs, and of events.
fn rows(store: &Store) -> (u64, u64) {
    let substrate = TreeSubstrate::new(store.clone());
    let rows = substrate.snapshot().unwrap();
    let count = |table: &'static str| rows.count(&TableName::Borrowed(table), KeyRange::ALL).unwrap();
    (TABLES.into_iter().map(count).sum(), count("events"))
}

fn start(store: &Store) -> (Arc<Watched>, Runtime, VirtualClock) {
    let (watched, clock) = (Arc::new(Watched::new(store)), VirtualClock::default());
    let substrate = Arc::clone(&watched) as Arc<dyn Substrate>;
    (watched, Runtime::builder(substrate, Arc::new(clock.clone())).start().unwrap(), clock)
}

/// A store in which jobs have ended that are not kept any more: each has one run with so many events, and some steps.
fn filled(jobs: usize, events: usize) -> Store {
    let store = Store::in_memory().unwrap();
    let (_, runtime, clock) = start(&store);
    let runs = runtime.runs();
    let keep = Keep { time: Some(Duration::ZERO), ..Keep::default() };
    runs.define("work", &Class { keep, retry: Retry::never(), ..Class::new(CREW) }).unwrap();
    for number in 0..jobs {
        runs.submit(&Submission::new("work", "an input").once(number.to_string())).unwrap();
    }
    let mut worker = runtime.run_worker(CREW, Policy::default(), move |live: &mut kauri_runtime::run::LiveRun| {
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
            assert!(nth > 1, "a collection lists names");
            return;
        };
        assert!(files.artifacts().is_whole(kept.digest).unwrap(), "put after list {nth}");
        runs.collect(&files).unwrap();
        assert!(files.artifacts().is_whole(kept.digest).unwrap(), "and found by the next collection");
    }
    panic!("a collection lists names a few times at most");
}
