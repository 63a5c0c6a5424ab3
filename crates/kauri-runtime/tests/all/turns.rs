//! Workers that share a thread: each drives a run, and the others have their turn while its end is on its way to the disk.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use kauri_runtime::run::{Class, Ending, LiveRun, Outcome, State, Submission, Submitted};
use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Policy, Pool, Runtime, Worker};
use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Options, Read, Table};
use kauri_wire::pack::Map;
use kauri_wire::{RunId, WorkerId};

use crate::threads::SystemClock;

const RUNS: Table<[u8], [u8]> = Table::new("runs");
const SUCCESS: Outcome = Outcome::Success { skipped: false };

/// Runs of a class for each of so many workers, submitted, and how often each was driven.
struct Crew {
    runtime: Runtime,
    disk: MemoryDisk,
    submitted: Vec<Submitted>,
    driven: Arc<Mutex<HashMap<RunId, usize>>>,
}

impl Crew {
    fn new(workers: i64, runs_each: usize) -> Self {
        let disk = MemoryDisk::new();
        let store = Options::new().open(&disk, "store").unwrap();
        let substrate = Arc::new(TreeSubstrate::new(store));
        let runtime = Runtime::builder(substrate, Arc::new(SystemClock::new())).start().unwrap();
        let mut submitted = Vec::new();
        for id in 0..workers {
            let (runs, class) = (runtime.runs(), format!("class-{id}"));
            runs.define(&class, &Class::new(WorkerId(id))).unwrap();
            submitted.extend(runs.submit_all(&vec![Submission::new(class, "input"); runs_each]).unwrap());
        }
        Self { runtime, disk, submitted, driven: Arc::default() }
    }

    /// A worker whose scripts do this, and note that they did.
    fn worker(&self, id: i64, policy: Policy, script: impl Fn(&LiveRun) + Send + 'static) -> Worker {
        let driven = Arc::clone(&self.driven);
        self.runtime.run_worker(WorkerId(id), policy, move |live: &mut LiveRun| {
            *driven.lock().unwrap().entry(live.id()).or_default() += 1;
            script(live);
            Ok(Ending::success(live.now().wall, Map::EMPTY))
        })
    }

    fn wait(&self) {
        for submitted in &self.submitted {
            let job = self.runtime.runs().wait(&submitted.job, None).unwrap();
            assert_eq!(job.outcome, Some(SUCCESS));
        }
        let driven = self.driven.lock().unwrap();
        assert!(self.submitted.iter().all(|submitted| driven.get(&submitted.run) == Some(&1)), "{driven:?}");
    }
}

#[test]
fn runs_of_workers_that_share_a_thread_begin_when_that_is_written_and_are_driven_once() {
    let crew = Crew::new(8, 40);
    let worker = |id| {
        let disk = crew.disk.clone();
        crew.worker(id, Policy::default(), move |live| {
            // What somebody finds who opens the file now.
            let store = Options::new().read_only(true).open(&disk, "store").unwrap();
            let row = store.snapshot().get(&RUNS, live.id().as_bytes()).unwrap().map(Cow::into_owned);
            let is_running = live.run().state == State::Running && live.run().claims == 1;
            assert!(is_running && row.is_some_and(|row| row[4..6] == [1, 0]), "the file does not say that it runs");
        })
    };
    let pool = Pool::start_on(2, (0..8).map(worker).collect()).unwrap();
    crew.wait();
    pool.stop().unwrap();
    assert_eq!(crew.runtime.gauges().unwrap().leases, 0);
}

#[test]
fn pool_that_stops_leaves_no_run_begun() {
    let crew = Crew::new(4, 200);
    let (told, hears) = mpsc::channel();
    let worker = |id| {
        let told = told.clone();
        crew.worker(id, Policy::default(), move |_| {
            let _ = told.send(());
        })
    };
    let pool = Pool::start_on(1, (0..4).map(worker).collect()).unwrap();
    hears.recv().unwrap();
    pool.stop().unwrap();
    let (runs, driven) = (crew.runtime.runs(), crew.driven.lock().unwrap().len());
    let states: Vec<State> = crew.submitted.iter().map(|submitted| runs.run(submitted.run).unwrap().state).collect();
    let sealed = states.iter().filter(|state| **state == State::Sealed(SUCCESS)).count();
    assert!(states.iter().all(|state| matches!(state, State::Pending | State::Sealed(_))), "{states:?}");
    assert_eq!((sealed, crew.runtime.gauges().unwrap().leases), (driven, 0));
}

#[test]
fn run_that_waited_for_its_turn_until_somebody_took_it_over_is_not_driven() {
    let crew = Crew::new(2, 1);
    let ((begins, begun), (end, ends)) = (mpsc::channel(), mpsc::channel());
    let slow = crew.worker(0, Policy::default(), move |_| {
        begins.send(()).unwrap();
        ends.recv_timeout(Duration::from_secs(60)).unwrap();
    });
    let policy = Policy { lease: Duration::from_millis(100), ..Policy::default() };
    let pool = Pool::start_on(1, vec![slow, crew.worker(1, policy.clone(), |_| ())]).unwrap();
    // When the first is driven, both have begun. Somebody else finds that the second is silent for too long, ends it and drives its retry.
    begun.recv().unwrap();
    assert_eq!(crew.runtime.runs().run(crew.submitted[1].run).unwrap().state, State::Running);
    let other = Pool::start(vec![crew.worker(1, policy, |_| ())]).unwrap();
    let [slow, waited] = [0, 1].map(|at| &crew.submitted[at]);
    let outcome = |submitted: &Submitted| crew.runtime.runs().wait(&submitted.job, None).unwrap().outcome;
    assert_eq!(outcome(waited), Some(SUCCESS));
    end.send(()).unwrap();
    assert_eq!(outcome(slow), Some(SUCCESS));
    pool.stop().unwrap();
    other.stop().unwrap();
    let driven = crew.driven.lock().unwrap();
    assert_eq!((driven.len(), driven.get(&slow.run), driven.get(&waited.run)), (2, Some(&1), None));
    assert_eq!(crew.runtime.runs().run(waited.run).unwrap().outcome(), Some(Outcome::ExecutorCrash));
}
