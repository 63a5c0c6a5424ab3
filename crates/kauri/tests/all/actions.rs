//! Actions of runs, with a crash between any two of their steps: what is done outside is done once for each decision.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use kauri::ledger::{Decision, Ledger, Status};
use kauri::runtime::run::{
    ActionLedger, ActionStanding, ActionTrouble, AskedAction, BegunAction, Class, Ending, Halt, LiveRun, Outcome,
    Retry, Run, Runs, State, Submission, Takeover,
};
use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{Failure, Policy, Runtime};
use kauri::tree::Store;
use kauri::wire::pack::Map;
use kauri::wire::{JobId, RunId, WorkerId};
use kauri::{RunLedger, SystemClock};

use crate::homes::Scratch;

const CREW: WorkerId = WorkerId(3);

/// Where the program dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Crash {
    BeforeBegin,
    /// It is written down, and nothing was done.
    AfterBegin,
    /// It was done, and nobody wrote that down.
    AfterEffect,
    /// That it was done is in the ledger, and not in the run.
    AfterComplete,
    Never,
}

/// A ledger in front of which the program dies.
struct Dying {
    ledger: RunLedger,
    crash: Crash,
}

fn dead() -> ActionTrouble {
    ActionTrouble("the program died".into())
}

impl ActionLedger for Dying {
    fn begin(&self, asked: &AskedAction<'_>) -> Result<ActionStanding, ActionTrouble> {
        if self.crash == Crash::BeforeBegin {
            return Err(dead());
        }
        let standing = self.ledger.begin(asked)?;
        match (self.crash, standing) {
            (Crash::AfterBegin, _) => Err(dead()),
            (Crash::AfterComplete, ActionStanding::Begun(action)) => {
                Ok(ActionStanding::Begun(Box::new(DyingAction(action))))
            }
            (_, standing) => Ok(standing),
        }
    }
}

struct DyingAction(Box<dyn BegunAction>);

impl BegunAction for DyingAction {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn complete(self: Box<Self>, result: &[u8]) -> Result<(), ActionTrouble> {
        self.0.complete(result)?;
        Err(dead())
    }

    fn fail(self: Box<Self>, why: &str) -> Result<(), ActionTrouble> {
        self.0.fail(why)
    }
}

/// One life of a program that sells things.
struct Life {
    ledger: Arc<Ledger>,
    actions: RunLedger,
    runtime: Runtime,
}

impl Life {
    fn new(scratch: &Scratch, crash: Crash) -> Self {
        let ledger = Arc::new(scratch.ledger());
        let actions = RunLedger::new(Arc::clone(&ledger));
        let store = Store::open(scratch.file("sales.kauri")).expect("a store");
        let dying = Dying { ledger: actions.clone(), crash };
        let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(SystemClock::new()))
            .ledger(Arc::new(dying))
            .start()
            .expect("started");
        let retry = Retry { attempts_max: 2, pause: std::time::Duration::ZERO, ..Retry::default() };
        let class = Class { takeover: Takeover::Resume, retry, ..Class::new(CREW) };
        runtime.runs().define("sale", &class).expect("defined");
        Self { ledger, actions, runtime }
    }

    fn runs(&self) -> Runs {
        self.runtime.runs()
    }

    /// Drives what there is; whether the program lived through it.
    fn work(&self, done: &Arc<AtomicU32>, crash: Crash) -> bool {
        let done = Arc::clone(done);
        let sell = move |live: &mut LiveRun| {
            live.step("price", |_| Ok(b"12".to_vec()))?;
            let receipt = live.action("charge", "charge the card", |id| {
                assert!(id.contains("#0:charge"), "{id}");
                done.fetch_add(1, Ordering::Relaxed);
                match crash {
                    Crash::AfterEffect => Err(Failure::Runtime(kauri::runtime::Error::Stopped)),
                    _ => Ok(b"receipt 7".to_vec()),
                }
            })?;
            live.step("thank", |_| Ok(receipt.clone()))?;
            Ok::<_, Halt>(Ending::success(live.now().wall, Map::EMPTY))
        };
        self.runtime.run_worker(CREW, Policy::default(), sell).drain().is_ok()
    }

    fn run(&self, id: RunId) -> Run {
        self.runs().run(id).expect("it is there")
    }
}

fn id(job: &JobId) -> String {
    format!("{job}#0:charge")
}

/// Crashes there, opens everything again, and goes on until nothing is left to do: how often it was done, and the last life.
fn crash_and_go_on(name: &str, crash: Crash) -> (Scratch, Life, Arc<AtomicU32>, JobId, RunId) {
    let scratch = Scratch::new(name);
    let done = Arc::new(AtomicU32::new(0));
    let life = Life::new(&scratch, crash);
    let submitted = life.runs().submit(&Submission::new("sale", "12 apples")).expect("submitted");
    assert_eq!(life.work(&done, crash), crash == Crash::Never, "{crash:?}");
    drop(life);
    let life = Life::new(&scratch, Crash::Never);
    assert!(life.work(&done, Crash::Never));
    (scratch, life, done, submitted.job, submitted.run)
}

#[test]
fn where_it_is_known_what_was_done_the_run_goes_on_and_does_it_once() {
    for (name, crash) in
        [("act-never", Crash::Never), ("act-before", Crash::BeforeBegin), ("act-complete", Crash::AfterComplete)]
    {
        let (_scratch, life, done, job, run) = crash_and_go_on(name, crash);
        assert_eq!(done.load(Ordering::Relaxed), 1, "{crash:?}");
        let ended = life.run(run);
        assert_eq!(ended.outcome(), Some(Outcome::Success { skipped: false }), "{crash:?}");
        let steps = life.runs().steps(run).expect("steps");
        assert_eq!((&*steps[1].name, &steps[1].result[..]), ("charge", &b"receipt 7"[..]));
        assert_eq!(steps[2].result, b"receipt 7");
        let action = life.ledger.action(&id(&job)).expect("read").expect("written down");
        assert_eq!((action.status, action.trace_id), (Status::Completed, ended.trace()));
        assert!(life.ledger.check().expect("checked").is_empty());
    }
}

#[test]
fn where_nobody_knows_the_run_waits_until_somebody_decides() {
    for (name, crash, before) in [("act-begun", Crash::AfterBegin, 0), ("act-effect", Crash::AfterEffect, 1)] {
        for (decision, more) in
            [(Decision::Completed(None), 0), (Decision::Retry, 1), (Decision::Failed("the card was refused".into()), 1)]
        {
            let name = format!("{name}-{more}-{}", matches!(decision, Decision::Retry));
            let (_scratch, life, done, job, run) = crash_and_go_on(&name, crash);
            assert_eq!(done.load(Ordering::Relaxed), before, "{crash:?}");
            assert_eq!(life.run(run).state, State::Parked, "{crash:?}");
            assert_eq!(life.runs().undecided(10).expect("read"), [run]);
            // To be told of nothing changes nothing.
            assert_eq!(life.runs().tell_all_decided().expect("told"), 1);
            assert!(life.work(&done, Crash::Never));
            assert_eq!((life.run(run).state, done.load(Ordering::Relaxed)), (State::Parked, before));
            life.actions.decide(&life.runs(), run, &id(&job), &decision).expect("decided");
            assert!(life.work(&done, Crash::Never));
            assert_eq!(done.load(Ordering::Relaxed), before + more, "{crash:?} {decision:?}");
            assert_eq!(life.run(run).outcome(), Some(Outcome::Success { skipped: false }));
            assert!(life.runs().undecided(10).expect("read").is_empty());
        }
    }
}

#[test]
fn decision_that_was_made_while_nothing_ran_is_told_when_the_next_runtime_starts() {
    let (scratch, life, done, job, run) = crash_and_go_on("act-offline", Crash::AfterEffect);
    drop(life);
    scratch.ledger().resolve(&id(&job), &Decision::Completed(Some("receipt 8".into()))).expect("decided");
    let life = Life::new(&scratch, Crash::Never);
    assert_eq!(life.runs().tell_all_decided().expect("told"), 1);
    assert!(life.work(&done, Crash::Never));
    assert_eq!(done.load(Ordering::Relaxed), 1);
    assert_eq!(life.runs().steps(run).expect("steps")[1].result, b"receipt 8");
}

#[test]
fn action_that_failed_is_tried_anew_by_the_next_attempt_and_one_that_was_done_is_not() {
    let scratch = Scratch::new("act-retry");
    let life = Life::new(&scratch, Crash::Never);
    let told = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&told);
    let sell = move |live: &mut LiveRun| {
        let attempt = live.run().attempt();
        let tell = |what: &str| own.lock().unwrap().push(format!("{what} {attempt}"));
        live.action("mail", "send the mail", |_| {
            tell("mail");
            Ok(b"sent".to_vec())
        })?;
        live.action("charge", "charge the card", |_| {
            tell("charge");
            if attempt == 1 { Err(Failure::retry("no line")) } else { Ok(Vec::new()) }
        })?;
        Ok::<_, Halt>(Ending::success(live.now().wall, Map::EMPTY))
    };
    let job = life.runs().submit(&Submission::new("sale", "")).expect("submitted").job;
    life.runtime.run_worker(CREW, Policy::default(), sell).drain().expect("driven");
    assert_eq!(life.runs().job(&job).expect("there").outcome, Some(Outcome::Success { skipped: false }));
    assert_eq!(*told.lock().unwrap(), ["mail 1", "charge 1", "charge 2"]);
    let status = |id: String| life.ledger.action(&id).expect("read").map(|row| row.status);
    assert_eq!(status(format!("{job}#0:charge")), Some(Status::Failed));
    assert_eq!(status(format!("{job}#0:charge~2")), Some(Status::Completed));
    assert!(life.ledger.check().expect("checked").is_empty());
}

#[test]
fn action_that_was_done_as_another_task_is_not_answered_with_its_result() {
    let scratch = Scratch::new("act-other");
    let life = Life::new(&scratch, Crash::Never);
    let sell = |live: &mut LiveRun| {
        // What is secret is not in the ledger, and makes no difference.
        let task = format!("charge {} with password=secret", live.run().attempt().max(2));
        live.action("charge", &task, |_| Ok(Vec::new()))?;
        let task = format!("mail {}", live.run().attempt());
        live.action("mail", &task, |_| Ok(Vec::new()))?;
        Err::<Ending, Halt>(Halt::Failed("no".into()))
    };
    let job = life.runs().submit(&Submission::new("sale", "")).expect("submitted").job;
    life.runtime.run_worker(CREW, Policy::default(), sell).drain().expect("driven");
    let outcomes: Vec<_> = life.runs().attempts(&job).expect("there").iter().map(Run::outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::ScriptError), Some(Outcome::VersionMismatch)]);
}
