//! When jobs begin: after others, before gates, at their moment, of a class that is paused; and what becomes of them when they are retried,
//! cancelled or out of time there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::{
    Cancelled, Class, Enqueued, FanOut, Halt, LiveRun, OnFailed, Outcome, Retry, Run, Runs, State, Submission,
};
use kauri_runtime::substrate::{Change, Limits, Rows, Signal, Substrate, TreeSubstrate, Verdict};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Error, Failure, Policy, Result, Runtime, Worker};
use kauri_tree::Store;
use kauri_wire::pack::MapBuf;
use kauri_wire::{RunId, Timestamp};

use crate::runs::{CREW, crew, setup, setup_with, well};
use crate::setup::Setup;

const DONE: Outcome = Outcome::Success { skipped: false };

fn work(input: &str) -> Submission {
    Submission::new("work", input)
}

/// What was run, by input, in order.
type Ran = Arc<Mutex<Vec<String>>>;

/// A crew that writes down the inputs of its runs. `bad` fails, and `waits` waits for a signal.
fn scribes(setup: &Setup) -> (Worker, Ran) {
    let ran = Ran::default();
    let own = Arc::clone(&ran);
    let worker = crew(setup, move |live: &mut LiveRun| {
        let input = String::from_utf8_lossy(live.input()).into_owned();
        own.lock().unwrap().push(input.clone());
        match &*input {
            "bad" => Err(Halt::Failed("bad".into())),
            "waits" => live.wait_for_signal("go").and_then(|_| well(live)),
            _ => well(live),
        }
    });
    (worker, ran)
}

fn take(ran: &Ran) -> Vec<String> {
    std::mem::take(&mut ran.lock().unwrap())
}

fn outcome(runs: &Runs, run: RunId) -> Option<Outcome> {
    runs.run(run).unwrap().outcome()
}

#[test]
fn job_with_a_moment_and_others_before_it_waits_for_both() {
    for is_moment_first in [true, false] {
        let (setup, runs) = setup();
        let now = setup.runtime.now().wall;
        let before = runs.submit(&work("waits")).unwrap();
        let after = work("after").after(before.job.clone()).at(Timestamp(now.0 + 1000));
        let after = runs.submit(&after).unwrap();
        let (mut worker, ran) = scribes(&setup);
        worker.drain().unwrap();
        if is_moment_first {
            setup.advance(2000);
            worker.drain().unwrap();
        }
        assert_eq!(take(&ran), ["waits"]);
        runs.signal(before.run, "go", b"").unwrap();
        worker.drain().unwrap();
        if !is_moment_first {
            assert_eq!(take(&ran), ["waits"], "its moment has not come");
            setup.advance(999);
            worker.drain().unwrap();
            assert_eq!(take(&ran), [""; 0]);
            setup.advance(1);
            worker.drain().unwrap();
        }
        assert_eq!((take(&ran).last().map(String::as_str), outcome(&runs, after.run)), (Some("after"), Some(DONE)));
    }
}

#[test]
fn retried_job_waits_for_those_before_it_again() {
    let (setup, runs) = setup();
    let before = runs.submit(&work("waits")).unwrap();
    let after = runs.submit(&work("after").after(before.job.clone())).unwrap();
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    runs.cancel(after.run).unwrap();
    let again = runs.retry(after.run).unwrap();
    worker.drain().unwrap();
    assert_eq!((take(&ran), runs.run(again.id).unwrap().state), (vec!["waits".to_owned()], State::Pending));
    runs.signal(before.run, "go", b"").unwrap();
    worker.drain().unwrap();
    assert_eq!((take(&ran), outcome(&runs, again.id)), (vec!["waits".into(), "after".into()], Some(DONE)));
    // Also if they end between the two.
    let before = runs.submit(&work("fine")).unwrap();
    let after = runs.submit(&work("after").after(before.job.clone())).unwrap();
    runs.cancel(after.run).unwrap();
    worker.drain().unwrap();
    let again = runs.retry(after.run).unwrap();
    worker.drain().unwrap();
    assert_eq!(outcome(&runs, again.id), Some(DONE));
}

#[test]
fn job_is_run_when_the_one_that_failed_before_it_has_been_retried_with_success() {
    let (setup, runs) = setup_with(&Class { retry: Retry::never(), ..Class::new(CREW) });
    let before = runs.submit(&work("bad")).unwrap();
    let after = runs.submit(&work("after").after(before.job.clone())).unwrap();
    let (mut worker, _) = scribes(&setup);
    worker.drain().unwrap();
    assert_eq!(outcome(&runs, after.run), Some(Outcome::PolicyFailure));
    // Too early: what it waits for has still failed.
    let again = runs.retry(after.run).unwrap();
    worker.drain().unwrap();
    assert_eq!(outcome(&runs, again.id), Some(Outcome::PolicyFailure));
    runs.retry_with(before.run, Some(b"good")).unwrap();
    let again = runs.retry(again.id).unwrap();
    worker.drain().unwrap();
    assert_eq!(outcome(&runs, again.id), Some(DONE));
}

#[test]
fn job_is_not_kept_waiting_for_others_when_one_has_failed_that_it_needs() {
    let (setup, runs) = setup_with(&Class { retry: Retry::never(), ..Class::new(CREW) });
    let (bad, waits) = (runs.submit(&work("bad")).unwrap(), runs.submit(&work("waits")).unwrap());
    let (mut worker, _) = scribes(&setup);
    worker.drain().unwrap();
    let after = |policy| work("after").after(bad.job.clone()).after(waits.job.clone()).on_failed(policy);
    let fails = runs.submit(&after(OnFailed::Fail)).unwrap().run;
    let goes_on = runs.submit(&after(OnFailed::Continue)).unwrap().run;
    worker.drain().unwrap();
    assert_eq!((outcome(&runs, fails), outcome(&runs, goes_on)), (Some(Outcome::PolicyFailure), None));
}

#[test]
fn thousands_that_wait_for_one_job_are_told_in_several_commits() {
    let (setup, runs) = setup();
    let before = runs.submit(&work("first")).unwrap();
    for _ in 0..5 {
        runs.submit_all(&vec![work("after").after(before.job.clone()); 500]).unwrap();
    }
    let (mut worker, ran) = scribes(&setup);
    worker.set_policy(Policy { batch_messages_max: 1, ..Policy::default() });
    worker.tick().unwrap();
    assert_eq!(runs.job(&before.job).unwrap().outcome, Some(DONE));
    let waiting =
        || runs.list(None, 3000).unwrap().iter().filter(|run| runs.job(&run.job).unwrap().waiting > 0).count();
    assert_eq!(waiting(), 1500, "the first thousand were told with its end");
    worker.drain().unwrap();
    assert_eq!((waiting(), ran.lock().unwrap().len()), (0, 2501));
}

#[test]
fn urgent_job_is_urgent_whenever_it_is_woken() {
    let (setup, runs) = setup();
    let ran = Ran::default();
    let own = Arc::clone(&ran);
    // It waits in every way that there is, beside others that come before it each time.
    let mut worker = crew(&setup, move |live: &mut LiveRun| {
        own.lock().unwrap().push(String::from_utf8_lossy(live.input()).into_owned());
        if live.input() == b"urgent" {
            live.wait_for_signal("go")?;
            live.sleep_until("nap", Timestamp(live.now().wall.0 + 1000))?;
        }
        well(live)
    });
    let first = runs.submit(&work("first").one_at_a_time("k")).unwrap();
    runs.pause("work").unwrap();
    let urgent = work("urgent").urgent().one_at_a_time("k").after(first.job);
    let urgent = runs.submit(&urgent).unwrap().run;
    worker.drain().unwrap();
    let mut check = |what: &str, wake: &dyn Fn()| {
        take(&ran);
        (0..3).for_each(|_| drop(runs.submit(&work("other")).unwrap()));
        wake();
        worker.set_policy(Policy { batch_messages_max: 1, ..Policy::default() });
        worker.drain().unwrap();
        let order = take(&ran);
        assert_eq!(order[0], "urgent", "{what}");
    };
    // The first and the urgent one are called: the first ends, and the urgent one is next, however it came to be.
    runs.resume("work").unwrap();
    worker_until_urgent(&setup, &runs, urgent);
    check("a signal", &|| runs.signal(urgent, "go", b"").unwrap());
    check("a moment", &|| {
        setup.advance(1000);
        setup.runtime.fire_due(10).unwrap();
    });
    assert_eq!(outcome(&runs, urgent), Some(DONE));
}

/// Lets an urgent run come as far as its first wait, with another worker.
fn worker_until_urgent(setup: &Setup, runs: &Runs, urgent: RunId) {
    let mut worker = crew(setup, |live: &mut LiveRun| {
        if live.input() == b"urgent" {
            live.wait_for_signal("go")?;
        }
        well(live)
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(urgent).unwrap().state, State::Parked);
}

#[test]
fn gate_is_open_to_others_while_the_class_of_the_one_that_was_called_is_paused() {
    let (setup, runs) = setup();
    runs.define("other", &Class::new(CREW)).unwrap();
    let first = runs.submit(&work("waits").one_at_a_time("k")).unwrap();
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    for (class, input) in [("work", "paused"), ("other", "free")] {
        setup.advance(1);
        runs.submit(&Submission::new(class, input).one_at_a_time("k")).unwrap();
    }
    worker.drain().unwrap();
    runs.pause("work").unwrap();
    runs.cancel(first.run).unwrap();
    worker.drain().unwrap();
    assert_eq!(take(&ran), ["waits", "free"]);
    runs.resume("work").unwrap();
    worker.drain().unwrap();
    assert_eq!(take(&ran), ["paused"]);
}

#[test]
fn retry_of_a_paused_class_keeps_nobody_from_its_gate() {
    let retry = Retry { pause: Duration::from_secs(1), ..Retry::default() };
    let (setup, runs) = setup_with(&Class { retry, ..Class::new(CREW) });
    runs.define("other", &Class::new(CREW)).unwrap();
    runs.submit(&work("bad").one_at_a_time("k")).unwrap();
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    runs.pause("work").unwrap();
    runs.submit(&Submission::new("other", "free").one_at_a_time("k")).unwrap();
    worker.drain().unwrap();
    assert_eq!(take(&ran), ["bad"], "the other will be tried again, and is first");
    setup.advance(1000);
    worker.drain().unwrap();
    assert_eq!(take(&ran), ["free"]);
    runs.resume("work").unwrap();
    worker.drain().unwrap();
    assert_eq!(take(&ran), ["bad"]);
}

#[test]
fn job_that_is_retried_after_its_deadline_has_none_any_more() {
    type Again = fn(&Runs, RunId) -> Result<Run>;
    let ways: [Again; 2] = [|runs, run| runs.retry(run), |runs, run| runs.retry_from(run, "begin", None)];
    for (is_over, again) in [(true, ways[0]), (true, ways[1]), (false, ways[0]), (false, ways[1])] {
        let (setup, runs) = setup();
        let deadline = Timestamp(setup.runtime.now().wall.0 + 1000);
        let job = runs.submit(&work("").deadline(deadline)).unwrap();
        let mut worker = crew(&setup, |live: &mut LiveRun| {
            live.step("begin", |_| Ok(Vec::new()))?;
            live.wait_for_signal("go").and_then(|_| well(live))
        });
        worker.drain().unwrap();
        if is_over {
            setup.advance(1000);
            worker.drain().unwrap();
        }
        runs.cancel(job.run).unwrap();
        assert_eq!(outcome(&runs, job.run), Some(if is_over { Outcome::TimedOut } else { Outcome::Cancelled }));
        let next = again(&runs, job.run).unwrap().id;
        worker.drain().unwrap();
        assert_eq!(runs.run(next).unwrap().state, State::Parked);
        setup.advance(1000);
        worker.drain().unwrap();
        assert_eq!(outcome(&runs, next), if is_over { None } else { Some(Outcome::TimedOut) }, "{is_over}");
    }
}

/// Of derived work only one may be under way at a time. What waits is not, whatever it waits for.
#[test]
fn derived_work_that_waits_lets_others_of_its_tree_pass_and_passes_again_after_them() {
    let fan_out = FanOut { depth_max: 1, parallel: 1, ..FanOut::default() };
    let retry = Retry { attempts_max: 2, pause: Duration::from_secs(60), ..Retry::default() };
    let (setup, runs) = setup_with(&Class { fan_out, retry, ..Class::new(CREW) });
    let kinds = ["naps", "is told", "fails", "is fine"];
    kinds.iter().for_each(|kind| runs.define(kind, &runs.class("work").unwrap().unwrap().0).unwrap());
    let ran = Ran::default();
    let own = Arc::clone(&ran);
    let mut worker = crew(&setup, move |live: &mut LiveRun| {
        let class = live.run().class.to_string();
        own.lock().unwrap().push(class.clone());
        match &*class {
            "naps" => live.sleep_until("nap", Timestamp(live.now().wall.0 + 60_000))?,
            "is told" => drop(live.wait_for_signal("go")?),
            "fails" if live.run().attempt() == 1 => return Err(Halt::Failed("once".into())),
            "work" => kinds.iter().zip(1..).try_for_each(|(kind, number)| ask(live, kind, number).map(drop))?,
            _ => {}
        }
        well(live)
    });
    let root = runs.submit(&work("root")).unwrap();
    worker.drain().unwrap();
    assert_eq!(take(&ran), ["work", "naps", "is told", "fails", "is fine"]);
    let told = runs.tree(root.run).unwrap().runs.iter().find(|run| &*run.class == "is told").unwrap().id;
    runs.signal(told, "go", b"").unwrap();
    setup.advance(60_000);
    worker.drain().unwrap();
    let mut again = take(&ran);
    again.sort_unstable();
    assert_eq!(again, ["fails", "is told", "naps"]);
    assert!(runs.tree(root.run).unwrap().jobs().values().all(|run| run.outcome() == Some(DONE)));
}

/// Derived work that gave up its place to wait, came back to the gate, and was out of time there, leaves no trace before it.
#[test]
fn gate_is_open_to_others_after_a_run_that_stood_before_it_was_out_of_time() {
    let fan_out = FanOut { depth_max: 2, parallel: 1, ..FanOut::default() };
    let retry = Retry { attempts_max: 2, pause: Duration::from_secs(60), ..Retry::default() };
    let retry = Retry { on: retry.on.with(Outcome::TimedOut), ..retry };
    let (setup, runs) = setup_with(&Class { fan_out, retry: Retry::never(), ..Class::new(CREW) });
    let timed = Class { time_max: Some(Duration::from_secs(10)), retry, ..Class::new(CREW) };
    runs.define("timed", &timed).unwrap();
    let ran = Ran::default();
    let own = Arc::clone(&ran);
    let mut worker = crew(&setup, move |live: &mut LiveRun| {
        let class = live.run().class.to_string();
        own.lock().unwrap().push(class.clone());
        match (&*class, live.run().depth) {
            ("work", 0) => {
                ask(live, "timed", 1)?;
                ask(live, "work", 2)?;
                ask(live, "work", 3)?;
            }
            // It waits for its own, and lets it pass.
            ("timed", _) => {
                let child = ask(live, "work", 4)?;
                live.wait_for(child)?;
            }
            // These wait behind the gate.
            _ => drop(live.wait_for_signal("go")?),
        }
        well(live)
    });
    runs.submit(&work("root")).unwrap();
    worker.drain().unwrap();
    let open = |state: State| -> Vec<Run> {
        runs.list(None, 100).unwrap().into_iter().filter(|run| run.state == state).collect()
    };
    // One after the other passes the gate and waits behind it; whoever waits there is told to go on, until nothing is left.
    for _ in 0..20 {
        setup.advance(3_000);
        worker.drain().unwrap();
        for run in open(State::Parked).iter().filter(|run| &*run.class == "work") {
            runs.signal(run.id, "go", b"").unwrap();
        }
        worker.drain().unwrap();
    }
    setup.advance(120_000);
    worker.drain().unwrap();
    assert_eq!((open(State::Parked), open(State::Pending)), (Vec::new(), Vec::new()));
}

fn ask(live: &mut LiveRun, target: &str, number: u64) -> std::result::Result<RunId, Halt> {
    let mut params = MapBuf::new();
    params.put("n", number);
    let made = live.step(&format!("ask {number}"), |step| match step.enqueue(target, params.view())? {
        Enqueued::Made(run) | Enqueued::Same(run) => Ok(run.as_bytes().to_vec()),
        Enqueued::Skipped(skip) => Err(Failure::fatal(skip.as_str())),
    })?;
    Ok(RunId::from_bytes(made.try_into().unwrap()).unwrap())
}

#[test]
fn cancelling_a_later_attempt_cancels_what_earlier_ones_derived() {
    let fan_out = FanOut { depth_max: 1, parallel: 10, ..FanOut::default() };
    let retry = Retry { attempts_max: 2, pause: Duration::ZERO, ..Retry::default() };
    let (setup, runs) = setup_with(&Class { fan_out, retry, ..Class::new(CREW) });
    let root = runs.submit(&work("root")).unwrap();
    let mut worker = crew(&setup, |live: &mut LiveRun| {
        if live.run().depth > 0 {
            live.wait_for_signal("never")?;
        }
        ask(live, "work", 1)?;
        if live.run().attempt() == 1 {
            return Err(Halt::Failed("once".into()));
        }
        ask(live, "work", 2)?;
        live.wait_for_signal("never").and_then(|_| well(live))
    });
    worker.drain().unwrap();
    let attempts = runs.attempts(&root.job).unwrap();
    assert_eq!(
        attempts.iter().map(|run| run.state).collect::<Vec<_>>(),
        [State::Sealed(Outcome::ScriptError), State::Parked]
    );
    // The attempt itself and both children, and nothing that has ended.
    assert_eq!(runs.cancel(attempts[1].id).unwrap(), Cancelled { sealed: 3, asked: 0, ended: 0 });
    assert!(runs.list(None, 100).unwrap().iter().all(|run| run.outcome().is_some()));
}

/// A store of which only so many commits succeed.
struct Dying {
    inner: TreeSubstrate,
    left: AtomicUsize,
}

impl Substrate for Dying {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>> {
        self.inner.snapshot()
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => self.inner.commit(change),
            Err(_) => Err(Error::Substrate("the program died".into())),
        }
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.inner.watch(table, prefix, signal);
    }
}

/// Does something that dies after each number of commits, until it does not; then starts again and looks.
fn whatever_dies(prepare: fn(&Setup, &Runs), does: fn(&Runs) -> Result<()>, look: fn(&Setup, &Runs)) {
    for commits in 0.. {
        let (setup, runs) = setup();
        prepare(&setup, &runs);
        let Setup { runtime, clock, store } = setup;
        runtime.stop();
        let has_died = die_after(&store, &clock, commits, does);
        let setup = Setup::on(store, clock, |builder| builder);
        look(&setup, &setup.runtime.runs());
        if !has_died {
            assert!(commits > 2, "it takes several commits");
            return;
        }
    }
}

fn die_after(store: &Store, clock: &VirtualClock, commits: usize, does: fn(&Runs) -> Result<()>) -> bool {
    let dying = Arc::new(Dying { inner: TreeSubstrate::new(store.clone()), left: AtomicUsize::new(usize::MAX) });
    let substrate = Arc::clone(&dying) as Arc<dyn Substrate>;
    let runtime = Runtime::builder(substrate, Arc::new(clock.clone())).start().unwrap();
    dying.left.store(commits, Ordering::Relaxed);
    let has_died = does(&runtime.runs()).is_err();
    runtime.stop();
    has_died
}

#[test]
fn resuming_a_class_that_dies_half_way_is_done_by_the_next_start() {
    whatever_dies(
        |setup, runs| {
            runs.pause("work").unwrap();
            (0..300).for_each(|number| drop(runs.submit(&work(&number.to_string())).unwrap()));
            crew(setup, well).drain().unwrap();
        },
        |runs| runs.resume("work"),
        |setup, runs| {
            if runs.class("work").unwrap().unwrap().1 {
                runs.resume("work").unwrap();
            }
            crew(setup, well).drain().unwrap();
            assert!(runs.list(None, 1000).unwrap().iter().all(|run| run.outcome() == Some(DONE)));
        },
    );
}

#[test]
fn cancelling_a_tree_that_dies_half_way_is_done_by_the_next_start() {
    whatever_dies(
        |setup, runs| {
            let fan_out = FanOut { depth_max: 1, parallel: 10, ..FanOut::default() };
            runs.define("work", &Class { fan_out, ..Class::new(CREW) }).unwrap();
            runs.submit(&work("root")).unwrap();
            let mut worker = crew(setup, |live: &mut LiveRun| {
                for number in 0..4 * u64::from(live.run().depth == 0) {
                    ask(live, "work", number)?;
                }
                live.wait_for_signal("never").and_then(|_| well(live))
            });
            worker.drain().unwrap();
        },
        |runs| runs.cancel(runs.list(None, 1).unwrap()[0].id).map(drop),
        |setup, runs| {
            crew(setup, well).drain().unwrap();
            let all: Vec<_> = runs.list(None, 100).unwrap().iter().map(Run::outcome).collect();
            // It was not begun, or it is done with.
            let is_over = all == [Some(Outcome::Cancelled); 5];
            assert!(is_over || all == [None; 5], "{all:?}");
            if !is_over {
                runs.cancel(runs.list(None, 1).unwrap()[0].id).unwrap();
            }
        },
    );
}
