//! Runs that go on where they were, and the attempts that follow them, claim by claim.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::script::{Context, Rust, Script, ScriptError};
use kauri_runtime::run::{
    Class, Ending, Enqueued, EventSink, FanOut, Halt, Keep, LiveRun, Outcome, Retry, RunFault, Runs, Scripted,
    SinkError, State, StepKind, Submission, Submitted,
};
use kauri_runtime::substrate::{Change, Limits, Rows, Signal, Substrate, TreeSubstrate, Verdict};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Error, Failure, Policy, Read, Runtime, Worker, Write};
use kauri_tree::Store;
use kauri_wire::pack::MapBuf;
use kauri_wire::{JobId, RunId};

use crate::run_scripts::Told;
use crate::run_steps::{COUNTS, DONE, count, resuming};
use crate::runs::{CREW, crew, log, setup, setup_with, submit, well};
use crate::script_waits::Book;
use crate::setup::Setup;

/// A class whose runs go on after a crash, and are not followed by others.
fn steady() -> Class {
    Class { retry: Retry::never(), ..resuming() }
}

fn counted(setup: &Setup, name: &str) -> u64 {
    setup.runtime.read(|view| view.get(&COUNTS, name)).unwrap().unwrap_or(0)
}

/// All that a run said.
fn said(runs: &Runs, run: RunId) -> String {
    let mut out = Vec::new();
    runs.export(run, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn check_outcome(runs: &Runs, run: RunId, expected: Outcome) {
    assert_eq!(runs.run(run).unwrap().outcome(), Some(expected), "it said: {}", said(runs, run));
}

fn kinds(runs: &Runs, run: RunId) -> Vec<(StepKind, Box<str>)> {
    runs.steps(run).unwrap().into_iter().map(|step| (step.kind, step.name)).collect()
}

#[test]
fn step_that_failed_and_was_taken_care_of_fails_again_with_its_reason_and_is_not_tried_when_the_run_goes_on() {
    let (setup, runs) = setup_with(&steady());
    let run = submit(&runs).run;
    let tries = Arc::new(Mutex::new(0));
    let own = Arc::clone(&tries);
    let mut worker = crew(&setup, move |live| {
        for _ in 0..3 {
            let tried = live.step("ship", |_| {
                *own.lock().unwrap() += 1;
                Err(Failure::fatal("no van"))
            });
            assert!(matches!(tried, Err(Halt::Failed(why)) if &*why == "no van"));
        }
        count(live, "refund")?;
        live.wait_for_signal("go").and_then(|_| well(live))
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    runs.signal(run, "go", b"").unwrap();
    worker.drain().unwrap();
    check_outcome(&runs, run, DONE);
    assert_eq!((*tries.lock().unwrap(), counted(&setup, "refund")), (3, 1));
}

#[test]
fn script_that_makes_good_for_a_failure_goes_on_after_a_wait_with_an_error_of_the_same_class() {
    struct Saga;
    impl Script for Saga {
        fn run(&self, cx: &Context) -> Result<(), ScriptError> {
            cx.step("charge", || Ok(Vec::new()))?;
            cx.step("ship", || Err(ScriptError::new("no van").of_type("shop")))?;
            Ok(())
        }
        fn on_error(&self, error: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
            assert_eq!(error.to_string(), "shop: no van");
            cx.step("refund", || Ok(Vec::new()))?;
            cx.wait_for_signal("told")?;
            Ok(cx.emit().run_complete(None)?)
        }
    }
    let (setup, runs) = setup_with(&steady());
    let run = submit(&runs).run;
    let mut worker = setup.runtime.run_worker(CREW, Policy::default(), Scripted::new(|_| Box::new(Rust::inline(Saga))));
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    runs.signal(run, "told", b"").unwrap();
    worker.drain().unwrap();
    check_outcome(&runs, run, DONE);
}

#[test]
fn retry_from_a_step_asks_again_for_what_failed_just_before_it_and_keeps_what_failed_further_back() {
    let (setup, runs) = setup_with(&steady());
    let run = submit(&runs).run;
    let code = |live: &mut LiveRun| {
        let is_first = live.run().attempt() == 1;
        let fail = |live: &mut LiveRun, name| match live.step(name, |_| Err(Failure::fatal("no"))) {
            Err(Halt::Failed(_)) => Ok(()),
            other => other.map(drop),
        };
        fail(live, "far")?;
        count(live, "kept")?;
        if is_first {
            fail(live, "near")?;
            count(live, "last")?;
            return Err(Halt::Failed("no".into()));
        }
        count(live, "near")?;
        well(live)
    };
    let mut worker = crew(&setup, code);
    worker.drain().unwrap();
    let next = runs.retry_from(run, "last", None).unwrap();
    assert_eq!(kinds(&runs, next.id), [(StepKind::Failed, "far".into()), (StepKind::Work, "kept".into())]);
    worker.drain().unwrap();
    check_outcome(&runs, next.id, DONE);
    assert_eq!(counted(&setup, "near"), 1);
}

/// A store that does something in the middle of a commit.
struct Between {
    inner: TreeSubstrate,
    is_armed: AtomicBool,
    does: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Substrate for Between {
    fn snapshot(&self) -> kauri_runtime::Result<Box<dyn Rows + '_>> {
        self.inner.snapshot()
    }

    fn commit(&self, change: &Arc<Change>) -> kauri_runtime::Result<Verdict> {
        if self.is_armed.swap(false, Ordering::SeqCst) {
            let does = self.does.lock().unwrap().take();
            does.into_iter().for_each(|does| does());
        }
        self.inner.commit(change)
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.inner.watch(table, prefix, signal);
    }
}

#[test]
fn run_whose_time_is_over_at_the_moment_in_which_it_is_parked_is_ended() {
    let clock = VirtualClock::default();
    let inner = TreeSubstrate::new(Store::in_memory().unwrap());
    let between = Arc::new(Between { inner, is_armed: AtomicBool::new(false), does: Mutex::default() });
    let runtime = Runtime::builder(between.clone(), Arc::new(clock.clone())).start().unwrap();
    let runs = runtime.runs();
    runs.define("work", &Class { time_max: Some(Duration::from_secs(10)), ..steady() }).unwrap();
    let run = submit(&runs).run;
    let policy = Policy { lease: Duration::from_secs(600), ..Policy::default() };
    let (other, own, others) = (runtime.clone(), clock.clone(), policy.clone());
    *between.does.lock().unwrap() = Some(Box::new(move || {
        // Another instance of the worker is told that the time is over, after this one has looked at the clock.
        own.advance(Duration::from_secs(10));
        other.run_worker(CREW, others, well).drain().unwrap();
    }));
    let arm = Arc::clone(&between);
    let mut worker = runtime.run_worker(CREW, policy, move |live: &mut LiveRun| {
        let waits = live.wait_for_signal("never");
        arm.is_armed.store(true, Ordering::SeqCst);
        waits.and_then(|_| well(live))
    });
    worker.drain().unwrap();
    clock.advance(Duration::from_secs(3600));
    worker.drain().unwrap();
    check_outcome(&runs, run, Outcome::TimedOut);
    assert_eq!(runtime.gauges().unwrap().timers, 0, "nothing is left that looks again");
}

#[test]
fn steps_that_a_retry_was_told_to_keep_are_kept_by_the_attempt_that_follows_it() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        count(live, "charge")?;
        count(live, "ship")?;
        match live.run().attempt() {
            1 => Err(Halt::Failed("no van".into())),
            2 => panic!("the executor died"),
            _ => well(live),
        }
    });
    worker.drain().unwrap();
    runs.define("work", &Class::new(CREW)).unwrap();
    let second = runs.retry_from(run, "ship", None).unwrap();
    worker.drain().unwrap();
    setup.advance(10_000);
    worker.drain().unwrap();
    let third = runs.attempts(&second.job).unwrap().pop().unwrap();
    assert_eq!((third.attempt(), third.outcome(), third.kept, third.steps), (3, Some(DONE), 1, 2));
    assert_eq!((&third.to_json()["kept"], &third.to_json()["steps"]), (&1.into(), &2.into()));
    assert_eq!((counted(&setup, "charge"), counted(&setup, "ship")), (1, 3));
}

#[test]
fn signals_that_an_attempt_did_not_take_go_on_to_the_one_that_follows_it_and_not_to_a_retry_by_hand() {
    let (setup, runs) = setup_with(&Class::new(CREW));
    let Submitted { run, job, .. } = submit(&runs);
    let mut worker = crew(&setup, |live| match live.run().attempt() {
        1 => {
            live.wait_for_signal("taken")?;
            panic!("the executor died")
        }
        2 => {
            assert_eq!(
                (live.wait_for_signal("approved")?, live.wait_for_signal("approved")?),
                (b"1".into(), b"2".into())
            );
            Err(Halt::Failed("no".into()))
        }
        _ => live.wait_for_signal("left").and_then(|_| well(live)),
    });
    for (name, payload) in [("taken", b"0"), ("approved", b"1"), ("left", b"3"), ("approved", b"2")] {
        runs.signal(run, name, payload).unwrap();
    }
    worker.drain().unwrap();
    runs.define("work", &steady()).unwrap();
    setup.advance(10_000);
    worker.drain().unwrap();
    let attempts = runs.attempts(&job).unwrap();
    let [.., second] = &attempts[..] else { panic!("expected attempts, found none") };
    assert_eq!((second.attempt(), second.outcome()), (2, Some(Outcome::ScriptError)), "{}", said(&runs, second.id));
    let third = runs.retry(second.id).unwrap().id;
    worker.drain().unwrap();
    assert_eq!(runs.run(third).unwrap().state, State::Parked, "it begins without");
    let tables = setup.runtime.substrate().snapshot().unwrap().tables().unwrap();
    assert!(!tables.iter().any(|table| table == "signals"), "nothing is left");
}

/// What a run does, and tells of.
type Acts = fn(&mut LiveRun, &mut dyn FnMut(&str)) -> Result<Ending, Halt>;

/// A runtime with a ledger, a worker that does this, and what it told of.
fn acting(class: &Class, code: Acts) -> (Setup, Runs, Worker, Told) {
    let setup = Setup::with(|builder| builder.ledger(Arc::new(Book::default())));
    let runs = setup.runtime.runs();
    runs.define("work", class).unwrap();
    let told = Told::default();
    let own = Arc::clone(&told);
    let worker = crew(&setup, move |live| code(live, &mut |what| own.lock().unwrap().push(what.to_owned())));
    (setup, runs, worker, told)
}

/// Charges for what the run was given.
fn charge(live: &mut LiveRun, tell: &mut dyn FnMut(&str)) -> Result<Vec<u8>, Halt> {
    let input = String::from_utf8_lossy(live.input()).into_owned();
    live.action("charge", &format!("charge {input}"), |id| {
        tell(id.split_once('#').unwrap().1);
        tell(&input);
        Ok(input.clone().into_bytes())
    })
}

#[test]
fn action_is_done_once_for_its_job_also_if_another_step_comes_before_it_in_a_later_attempt() {
    let (_setup, runs, mut worker, told) = acting(&steady(), |live, tell| {
        if live.run().attempt() > 1 {
            count(live, "validate")?;
        }
        charge(live, tell)?;
        if live.run().attempt() == 1 {
            return Err(Halt::Failed("a bug".into()));
        }
        charge(live, tell)?;
        well(live)
    });
    let run = runs.submit(&Submission::new("work", "7")).unwrap().run;
    worker.drain().unwrap();
    let next = runs.retry(run).unwrap().id;
    worker.drain().unwrap();
    check_outcome(&runs, next, DONE);
    assert_eq!(*told.lock().unwrap(), ["0:charge", "7", "1:charge", "7"], "the second is another");
}

#[test]
fn action_of_a_job_is_done_also_if_a_job_that_is_gone_had_its_id() {
    let keep = Keep { time: Some(Duration::ZERO), ..Keep::default() };
    let (setup, runs, mut worker, told) = acting(&Class { keep, ..steady() }, |live, tell| {
        charge(live, tell)?;
        well(live)
    });
    for input in ["november", "december"] {
        let job = Submission::new("work", input).job_id(JobId::new("invoice").unwrap());
        assert!(runs.submit(&job).unwrap().is_new);
        worker.drain().unwrap();
        setup.advance(1000);
        assert_eq!(runs.sweep(1000).unwrap().jobs, 1);
    }
    assert_eq!(*told.lock().unwrap(), ["0:charge", "november", "0:charge", "december"]);
}

#[test]
fn action_that_was_done_as_another_task_is_reported_with_both_and_is_not_answered() {
    let (_setup, runs, mut worker, told) = acting(&steady(), |live, tell| {
        charge(live, tell)?;
        Err(Halt::Failed("it should have been 50".into()))
    });
    let run = runs.submit(&Submission::new("work", "100")).unwrap().run;
    worker.drain().unwrap();
    let next = runs.retry_from(run, "charge", Some(b"50")).unwrap().id;
    worker.drain().unwrap();
    check_outcome(&runs, next, Outcome::VersionMismatch);
    let words =
        "step 0 is recorded as an action \"charge: charge 100\", and the code asks for an action \"charge: charge 50\"";
    let said = said(&runs, next).replace('\\', "");
    assert!(said.contains(words), "expected {words}, found {said}");
    assert_eq!(*told.lock().unwrap(), ["0:charge", "100"]);
}

/// Asks for derived work, and waits for it.
fn ask_and_wait(live: &mut LiveRun, name: &str) -> Result<Outcome, Halt> {
    let child = live.step(name, |step| match step.enqueue("part", MapBuf::new().view())? {
        Enqueued::Made(run) | Enqueued::Same(run) => Ok(run.as_bytes().to_vec()),
        Enqueued::Skipped(skip) => Err(Failure::fatal(skip.as_str())),
    })?;
    live.wait_for(RunId::from_bytes(child.try_into().expect("sixteen bytes")).expect("a run"))
}

/// A runtime whose runs ask for derived work of the class `part`.
fn deriving(part: &Class) -> (Setup, Runs) {
    let fan_out = FanOut { depth_max: 1, ..FanOut::default() };
    let (setup, runs) = setup_with(&Class { fan_out, ..steady() });
    runs.define("part", part).unwrap();
    (setup, runs)
}

#[test]
fn tree_that_is_retried_after_it_was_cancelled_does_its_derived_work() {
    let (setup, runs) = deriving(&steady());
    let run = submit(&runs).run;
    let may = Arc::new(AtomicBool::new(false));
    let can = Arc::clone(&may);
    let mut worker = crew(&setup, move |live| {
        if live.run().depth > 0 {
            if !can.load(Ordering::SeqCst) {
                live.wait_for_signal("go")?;
            }
            count(live, "part")?;
            return well(live);
        }
        let outcome = ask_and_wait(live, "ask")?;
        if outcome.is_success() { well(live) } else { Err(Halt::Failed(format!("its part: {outcome}").into())) }
    });
    worker.drain().unwrap();
    runs.cancel(run).unwrap();
    may.store(true, Ordering::SeqCst);
    let next = runs.retry(run).unwrap().id;
    worker.drain().unwrap();
    check_outcome(&runs, next, DONE);
    assert_eq!(counted(&setup, "part"), 1);
}

#[test]
fn derived_work_that_fails_is_done_once_for_each_attempt_that_asks_for_it() {
    let (setup, runs) = deriving(&steady());
    let Submitted { mut run, job, .. } = submit(&runs);
    let tries = Arc::new(Mutex::new(0));
    let own = Arc::clone(&tries);
    let mut worker = crew(&setup, move |live| {
        if live.run().depth > 0 {
            *own.lock().unwrap() += 1;
            return Err(Halt::Failed("no".into()));
        }
        let outcomes = (ask_and_wait(live, "ask")?, ask_and_wait(live, "ask again")?);
        assert_eq!(outcomes, (Outcome::ScriptError, Outcome::ScriptError));
        Err(Halt::Failed("no".into()))
    });
    for attempt in 1..=3 {
        worker.drain().unwrap();
        assert_eq!((*tries.lock().unwrap(), runs.attempts(&job).unwrap().len()), (attempt, attempt));
        run = runs.retry(run).unwrap().id;
    }
}

/// Lets whoever drives a run die again and again, each after what the code does: how often it was begun, and how it ended.
fn die_again_and_again(code: fn(&mut LiveRun, u32) -> Result<(), Halt>) -> (u32, Option<Outcome>) {
    let (mut setup, runs) = setup_with(&steady());
    let run = submit(&runs).run;
    let policy = Policy { delivery_budget: 2, ..Policy::default() };
    for life in 1..=9 {
        let stopper = setup.runtime.clone();
        let mut worker = setup.runtime.run_worker(CREW, policy.clone(), move |live: &mut LiveRun| {
            code(live, life)?;
            if life == 9 {
                return well(live);
            }
            stopper.stop();
            live.renew().and_then(|()| well(live))
        });
        // That it dies is what is wanted.
        let _ = worker.drain();
        drop(worker);
        setup = setup.restarted();
    }
    let run = setup.runtime.runs().run(run).unwrap();
    (run.claims, run.outcome())
}

#[test]
fn run_whose_drivers_die_goes_on_as_long_as_each_does_a_step_and_is_ended_when_none_is_done() {
    let gets_on =
        |live: &mut LiveRun, life| (1..=life).try_for_each(|number| count(live, &number.to_string()).map(drop));
    assert_eq!(die_again_and_again(gets_on), (9, Some(DONE)));
    let stands = |live: &mut LiveRun, life: u32| {
        (1..=life.min(4)).try_for_each(|number| count(live, &number.to_string()).map(drop))
    };
    assert_eq!(die_again_and_again(stands), (5, Some(Outcome::ExecutorCrash)), "the fifth did none");
    let never = |live: &mut LiveRun, _| live.append(&[log("here")]).map(drop).map_err(Halt::from);
    assert_eq!(die_again_and_again(never), (2, Some(Outcome::ExecutorCrash)));
}

#[test]
fn retry_from_a_name_that_many_steps_have_begins_with_the_one_that_failed_else_with_the_first() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        let attempt = live.run().attempt();
        for page in 1..=3 {
            live.step("page", |step| match page == 3 && attempt == 1 {
                true => Err(Failure::fatal("no page")),
                false => {
                    let count = step.get(&COUNTS, "page")?.unwrap_or(0) + 1;
                    step.put(&COUNTS, "page", count)?;
                    Ok(Vec::new())
                }
            })?;
        }
        Err(Halt::Failed("no more".into()))
    });
    worker.drain().unwrap();
    let second = runs.retry_from(run, "page", None).unwrap();
    worker.drain().unwrap();
    assert_eq!((second.kept, counted(&setup, "page")), (2, 3));
    let third = runs.retry_from(second.id, "page", None).unwrap();
    assert_eq!(third.kept, 0);
}

#[test]
fn what_is_recorded_of_a_job_whose_id_was_chosen_counts_after_it_was_swept_away() {
    let (setup, runs) = setup_with(&steady());
    let keep = Keep { time: Some(Duration::ZERO), ..Keep::default() };
    runs.define("part", &Class { keep, ..Class::new(CREW) }).unwrap();
    let part = runs.submit(&Submission::new("part", "").job_id(JobId::new("nightly").unwrap())).unwrap().run;
    let run = submit(&runs).run;
    let mut worker = crew(&setup, move |live| {
        if &*live.run().class == "part" {
            return well(live);
        }
        assert_eq!(live.wait_for(part)?, DONE);
        live.wait_for_signal("go").and_then(|_| well(live))
    });
    worker.drain().unwrap();
    setup.advance(1000);
    assert_eq!(runs.sweep(1000).unwrap().jobs, 1);
    runs.signal(run, "go", b"").unwrap();
    worker.drain().unwrap();
    check_outcome(&runs, run, DONE);
}

#[test]
fn step_inside_of_a_step_or_an_action_of_a_script_is_refused() {
    struct Nested {
        is_action: bool,
    }
    impl Script for Nested {
        fn run(&self, cx: &Context) -> Result<(), ScriptError> {
            match self.is_action {
                true => cx.action("outer", "outer", |_| Ok(cx.step("inner", || Ok(Vec::new()))?))?,
                false => cx.step("outer", || cx.step("inner", || Ok(Vec::new())))?,
            };
            cx.wait_for_signal("go").map(drop)
        }
    }
    let (setup, runs, _, _) = acting(&steady(), |live, _| well(live));
    for is_action in [false, true] {
        let run = submit(&runs).run;
        let nested = Scripted::new(move |_| Box::new(Rust::inline(Nested { is_action })));
        setup.runtime.run_worker(CREW, Policy::default(), nested).drain().unwrap();
        check_outcome(&runs, run, Outcome::ScriptError);
        let words = "expected one step after the other, found one that is asked for inside of another";
        assert!(said(&runs, run).contains(words), "{}", said(&runs, run));
        assert_eq!(kinds(&runs, run), [(StepKind::Failed, "outer".into())]);
    }
}

#[test]
fn run_that_waits_for_its_own_job_is_told_that_it_cannot() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        let own = live.id();
        live.wait_for(own).and_then(|_| well(live))
    });
    worker.drain().unwrap();
    check_outcome(&runs, run, Outcome::ScriptError);
    let words = format!("expected another job to wait for, found job-{run}");
    assert!(said(&runs, run).contains(&words), "{}", said(&runs, run));
}

#[test]
fn events_that_were_buffered_when_the_run_was_sealed_are_counted_once() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let (clock, other) = (setup.clock.clone(), setup.runtime.clone());
    let mut worker = crew(&setup, move |live| {
        live.buffer(&[log("one"), log("two"), log("three")]).unwrap();
        clock.advance(Duration::from_secs(3600));
        other.run_worker(CREW, Policy::default(), well).drain()?;
        assert_eq!(live.append(&[log("four")]), Err(SinkError::Sealed));
        well(live)
    });
    worker.drain().unwrap();
    check_outcome(&runs, run, Outcome::ExecutorCrash);
    assert_eq!(runs.refused(run).unwrap(), 5, "and its end");
}

#[test]
fn retry_from_a_step_of_a_run_that_goes_on_says_that_it_goes_on() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    crew(&setup, |live| live.wait_for_signal("never").and_then(|_| well(live))).drain().unwrap();
    let refused = runs.retry_from(run, "never", None).unwrap_err();
    assert!(matches!(refused, Error::Run(RunFault::NotEnded(of)) if of == run), "{refused}");
}

#[test]
fn retry_that_keeps_all_steps_begins_with_the_one_that_was_cut_off() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        count(live, "charge")?;
        if live.run().attempt() == 1 {
            live.wait_for_signal("ship")?;
        }
        count(live, "ship")?;
        if live.run().attempt() == 2 { panic!("the executor died") } else { well(live) }
    });
    worker.drain().unwrap();
    runs.cancel(run).unwrap();
    let refused = runs.retry_from(run, "ship", None).unwrap_err();
    assert_eq!(refused.to_string(), "expected a recorded step \"ship\", found [\"charge\"]");
    let second = runs.retry_keeping(run, None).unwrap();
    assert_eq!((second.kept, second.attempt()), (1, 2));
    worker.drain().unwrap();
    let third = runs.retry_keeping(second.id, None).unwrap();
    worker.drain().unwrap();
    check_outcome(&runs, third.id, DONE);
    assert_eq!((third.kept, counted(&setup, "charge"), counted(&setup, "ship")), (2, 1, 1));
}
