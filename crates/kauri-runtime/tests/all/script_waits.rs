//! Scripts that wait, ask for derived work and act outside: durable, and holding nothing meanwhile.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kauri_runtime::run::script::{ActionError, Context, Crew, Rust, Script, ScriptError};
use kauri_runtime::run::{
    ActionLedger, ActionStanding, ActionTrouble, AskedAction, BegunAction, Class, FanOut, Ingestion, Outcome, Retry,
    Run, Runs, Scripted, State, StepKind, Submission, Takeover,
};
use kauri_runtime::{Policy, Worker};
use kauri_wire::pack::MapBuf;
use kauri_wire::{RunId, Timestamp};

use crate::run_scripts::{Room, Told};
use crate::runs::CREW;
use crate::setup::Setup;

const DONE: Outcome = Outcome::Success { skipped: false };

/// How an action stands.
#[derive(Clone)]
enum Entry {
    Begun,
    Done(Vec<u8>),
    Again,
}

/// A ledger in memory.
#[derive(Clone, Default)]
pub(crate) struct Book {
    entries: Arc<Mutex<BTreeMap<String, Entry>>>,
    tasks: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Book {
    fn set(&self, id: &str, entry: Entry) {
        self.entries.lock().unwrap().insert(id.to_owned(), entry);
    }
}

impl ActionLedger for Book {
    fn begin(&self, asked: &AskedAction<'_>) -> Result<ActionStanding, ActionTrouble> {
        let found = self.entries.lock().unwrap().get(asked.id).cloned();
        let task = self.tasks.lock().unwrap().get(asked.id).cloned();
        Ok(match found {
            Some(Entry::Done(_)) if task.as_ref().is_some_and(|task| task != asked.task) => {
                ActionStanding::Other(task.unwrap().into())
            }
            Some(Entry::Done(result)) => ActionStanding::Done(result),
            Some(Entry::Begun) => ActionStanding::InDoubt,
            Some(Entry::Again) | None => {
                self.set(asked.id, Entry::Begun);
                self.tasks.lock().unwrap().insert(asked.id.to_owned(), asked.task.to_owned());
                ActionStanding::Begun(Box::new(Line { book: self.clone(), id: asked.id.to_owned() }))
            }
        })
    }
}

struct Line {
    book: Book,
    id: String,
}

impl BegunAction for Line {
    fn id(&self) -> &str {
        &self.id
    }

    fn complete(self: Box<Self>, result: &[u8]) -> Result<(), ActionTrouble> {
        self.book.set(&self.id, Entry::Done(result.to_vec()));
        Ok(())
    }

    fn fail(self: Box<Self>, _: &str) -> Result<(), ActionTrouble> {
        self.book.set(&self.id, Entry::Again);
        Ok(())
    }
}

/// A script that does this, and tells what is called.
#[derive(Clone)]
struct Waiter {
    told: Told,
    does: fn(&Self, &Context) -> Result<(), ScriptError>,
}

impl Waiter {
    fn tell(&self, what: impl Into<String>) {
        self.told.lock().unwrap().push(what.into());
    }
}

impl Script for Waiter {
    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.tell("run");
        (self.does)(self, cx)
    }

    fn after_run(&self, _: &Context) -> Result<(), ScriptError> {
        self.tell("after_run");
        Ok(())
    }

    fn on_error(&self, error: &ScriptError, _: &Context) -> Result<(), ScriptError> {
        self.tell(format!("on_error {}", error.error_type));
        Ok(())
    }

    fn cleanup(&self, _: &Context) -> Result<(), ScriptError> {
        self.tell("cleanup");
        Ok(())
    }
}

/// A runtime, a ledger, and a script that a worker executes.
struct Stage {
    setup: Setup,
    book: Book,
    runs: Runs,
    told: Told,
    does: fn(&Waiter, &Context) -> Result<(), ScriptError>,
    ingestion: Ingestion,
    /// Whether scripts are called on threads of their own.
    crew: Option<Crew>,
}

impl Stage {
    fn new(does: fn(&Waiter, &Context) -> Result<(), ScriptError>) -> Self {
        let book = Book::default();
        let setup = Setup::with(|builder| builder.ledger(Arc::new(book.clone())));
        let runs = setup.runtime.runs();
        let fan_out = FanOut { depth_max: 1, ..FanOut::default() };
        let class = Class { takeover: Takeover::Resume, retry: Retry::never(), fan_out, ..Class::new(CREW) };
        runs.define("work", &class).unwrap();
        Self { setup, book, runs, told: Told::default(), does, ingestion: Ingestion::Strict, crew: None }
    }

    /// The same store after everything else is gone.
    fn restarted(self) -> Self {
        self.setup.runtime.stop();
        let book = self.book.clone();
        let setup = Setup::on(self.setup.store, self.setup.clock, |builder| builder.ledger(Arc::new(book)));
        let runs = setup.runtime.runs();
        Self { setup, runs, ..self }
    }

    fn worker(&self) -> Worker {
        let waiter = Waiter { told: Arc::clone(&self.told), does: self.does };
        let (room, crew) = (Arc::clone(&self.told), self.crew.clone());
        let mut with = kauri_runtime::run::Setup::default();
        with.ingestion = self.ingestion;
        let drive = Scripted::new(move |_| match &crew {
            Some(crew) => Box::new(Rust::on(crew, waiter.clone())),
            None => Box::new(Rust::inline(waiter.clone())),
        });
        let drive = drive.setup(with).resource(move |_| Box::new(Room(Arc::clone(&room))));
        self.setup.runtime.run_worker(CREW, Policy::default(), drive)
    }

    fn submit(&self, input: &str) -> RunId {
        self.runs.submit(&Submission::new("work", input)).unwrap().run
    }

    fn drain(&self) {
        self.worker().drain().unwrap();
    }

    fn run(&self, id: RunId) -> Run {
        self.runs.run(id).unwrap()
    }

    fn take_told(&self) -> Vec<String> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

/// What is told of a call that ended in a wait, and of one that came to its end.
const WAITED: [&str; 4] = ["acquired", "run", "cleanup", "released"];
const ENDED: [&str; 5] = ["acquired", "run", "after_run", "cleanup", "released"];

fn sleep(_: &Waiter, cx: &Context) -> Result<(), ScriptError> {
    cx.emit().log_info("before")?;
    let due = cx.job().as_i64().ok_or("a moment")?;
    cx.sleep_until("nap", Timestamp(due))?;
    Ok(cx.emit().log_info("after")?)
}

#[test]
fn script_that_sleeps_holds_nothing_is_cleaned_up_and_goes_on_when_its_time_has_come() {
    for (crew, ingestion) in [
        (None, Ingestion::Strict),
        (Some(Crew::default()), Ingestion::Strict),
        (None, Ingestion::Buffered { bytes_max: 1 << 20 }),
    ] {
        let stage = Stage { crew, ingestion, ..Stage::new(sleep) };
        let due = stage.setup.runtime.now().wall.0 + 1_000;
        let id = stage.submit(&due.to_string());
        stage.drain();
        assert_eq!((stage.run(id).state, stage.run(id).events), (State::Parked, 1), "what it said is kept");
        assert_eq!(stage.take_told(), WAITED);
        let gauges = stage.setup.runtime.gauges().unwrap();
        assert_eq!((gauges.inbox, gauges.leases, gauges.timers), (0, 0, 1), "no message, no lease: a timer");
        // A crash while it sleeps changes nothing.
        let stage = stage.restarted();
        stage.setup.advance(999);
        stage.drain();
        assert_eq!(stage.run(id).state, State::Parked);
        stage.setup.advance(1);
        stage.drain();
        assert_eq!((stage.run(id).outcome(), stage.run(id).events), (Some(DONE), 4));
        assert_eq!(stage.take_told(), ENDED);
        assert!(stage.runs.verify(id).unwrap());
    }
}

#[test]
fn script_that_goes_on_although_it_is_to_wait_says_nothing_and_waits_all_the_same() {
    let stage = Stage::new(|waiter, cx| {
        if let Err(error) = cx.wait_for_signal("go") {
            assert_eq!(error.error_type, "parked");
            assert!(cx.emit().log_info("and yet").is_err() && cx.emit().run_complete(None).is_err());
            assert!(cx.step("more", || Ok(Vec::new())).is_err() && cx.wait_for_signal("other").is_err());
            waiter.tell("went on");
        }
        Ok(())
    });
    let id = stage.submit("1");
    stage.drain();
    assert_eq!((stage.run(id).state, stage.run(id).events, stage.run(id).steps), (State::Parked, 0, 0));
    assert_eq!(stage.take_told(), ["acquired", "run", "went on", "cleanup", "released"]);
    stage.runs.signal(id, "go", b"now").unwrap();
    stage.drain();
    assert_eq!((stage.run(id).outcome(), stage.run(id).events), (Some(DONE), 1));
    assert_eq!(stage.runs.steps(id).unwrap()[0].result, b"now");
}

#[test]
fn wait_in_a_hook_is_a_wait_of_the_run_and_one_that_is_cancelled_meanwhile_ends() {
    struct Hooked;
    impl Script for Hooked {
        fn run(&self, _: &Context) -> Result<(), ScriptError> {
            Err("it fails".into())
        }
        fn on_error(&self, _: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
            cx.wait_for_signal("recover")?;
            Ok(cx.emit().run_complete(None)?)
        }
    }
    let stage = Stage::new(|_, _| Ok(()));
    let mut worker =
        stage.setup.runtime.run_worker(CREW, Policy::default(), Scripted::new(|_| Box::new(Rust::inline(Hooked))));
    let (told, cancelled) = (stage.submit("1"), stage.submit("2"));
    worker.drain().unwrap();
    assert_eq!((stage.run(told).state, stage.run(cancelled).state), (State::Parked, State::Parked));
    stage.runs.cancel(cancelled).unwrap();
    stage.runs.signal(told, "recover", b"").unwrap();
    worker.drain().unwrap();
    assert_eq!(stage.run(told).outcome(), Some(DONE));
    assert_eq!(stage.run(cancelled).outcome(), Some(Outcome::Cancelled));
}

fn ask_and_wait(waiter: &Waiter, cx: &Context) -> Result<(), ScriptError> {
    if cx.run().parent_run_id.is_some() {
        // Derived work is given its params.
        waiter.tell(cx.job()["pages"].to_string());
        return Ok(());
    }
    let mut params = MapBuf::new();
    params.put("pages", 12_u64);
    let child = cx.enqueue("ask", "work", params.view())?;
    let outcome = cx.wait_for(child)?;
    waiter.tell(format!("{outcome:?}"));
    Ok(())
}

#[test]
fn script_waits_for_the_derived_work_that_it_asked_for() {
    let stage = Stage::new(ask_and_wait);
    let id = stage.submit("1");
    let mut worker = stage.worker();
    worker.tick().unwrap();
    assert_eq!(stage.run(id).state, State::Parked);
    let stage = stage.restarted();
    stage.drain();
    assert_eq!(stage.run(id).outcome(), Some(DONE));
    let children = stage.runs.lineage(id).unwrap().descendants;
    assert_eq!(children.iter().map(Run::outcome).collect::<Vec<_>>(), [Some(DONE)], "asked for once");
    let told = stage.take_told();
    assert!(told.contains(&"12".to_owned()) && told.contains(&format!("{DONE:?}")), "{told:?}");
    let kinds: Vec<StepKind> = stage.runs.steps(id).unwrap().iter().map(|step| step.kind).collect();
    assert_eq!(kinds, [StepKind::Work, StepKind::Job]);
}

/// Says something before and after each way to ask for derived work, some of which is not made.
fn talk_and_ask(_: &Waiter, cx: &Context) -> Result<(), ScriptError> {
    if cx.run().parent_run_id.is_some() {
        // It stands too deep, and that is said in the log.
        cx.emit().log_info("before")?;
        cx.emit().enqueue("work", MapBuf::new().view())?;
        return Ok(cx.emit().log_info("after")?);
    }
    cx.emit().log_info("before")?;
    let mut params = MapBuf::new();
    params.put("pages", 12_u64);
    cx.enqueue("ask", "work", params.view())?;
    cx.emit().log_info("between")?;
    cx.emit().enqueue("nobody", params.view())?;
    Ok(cx.emit().log_info("after")?)
}

#[test]
fn script_says_things_before_and_after_it_asks_for_derived_work() {
    for ingestion in [
        Ingestion::Strict,
        Ingestion::Buffered { bytes_max: 1 << 20 },
        Ingestion::Streaming { events_max: 2, bytes_max: 1 << 20, interval: None },
    ] {
        let stage = Stage { ingestion, ..Stage::new(talk_and_ask) };
        let id = stage.submit("1");
        stage.drain();
        let run = stage.run(id);
        // Three lines, two wishes, one of which is not granted and said to be so, and the end.
        assert_eq!((run.outcome(), run.events), (Some(DONE), 7), "{ingestion:?}");
        let children = stage.runs.lineage(id).unwrap().descendants;
        assert_eq!(children.iter().map(|run| (run.outcome(), run.events)).collect::<Vec<_>>(), [(Some(DONE), 5)]);
        assert!(stage.runs.verify(id).unwrap());
    }
}

fn act(waiter: &Waiter, cx: &Context) -> Result<(), ScriptError> {
    let receipt = cx.action("charge", "charge the card", |id| {
        waiter.tell(format!("charged {}", &id[id.len() - 9..]));
        match cx.job().as_str() {
            Some("in doubt") => Err(ActionError::InDoubt),
            Some("fails") => Err("the card was refused".into()),
            _ => Ok(b"receipt 7".to_vec()),
        }
    })?;
    waiter.tell(String::from_utf8_lossy(&receipt));
    cx.wait_for_signal("go").map(drop)
}

#[test]
fn action_of_a_script_is_done_once_whatever_it_waits_for_after_it() {
    let stage = Stage::new(act);
    let id = stage.submit("1");
    stage.drain();
    let stage = stage.restarted();
    stage.runs.signal(id, "go", b"").unwrap();
    stage.drain();
    assert_eq!(stage.run(id).outcome(), Some(DONE));
    let told: Vec<String> = stage.take_told().into_iter().filter(|what| what.contains(' ')).collect();
    assert_eq!(told, ["charged #0:charge", "receipt 7", "receipt 7"], "done once, answered twice");
}

#[test]
fn action_of_a_script_of_which_nobody_knows_waits_until_somebody_decides() {
    let stage = Stage::new(act);
    let id = stage.submit(r#""in doubt""#);
    stage.drain();
    assert_eq!(stage.run(id).state, State::Parked);
    assert_eq!(stage.runs.undecided(10).unwrap(), [id]);
    let stage = stage.restarted();
    // To be told of nothing changes nothing.
    assert_eq!(stage.runs.tell_all_decided().unwrap(), 1);
    stage.drain();
    assert_eq!(stage.run(id).state, State::Parked);
    stage.book.set(&format!("{}#0:charge", stage.run(id).job), Entry::Done(b"receipt 8".to_vec()));
    stage.runs.tell_decided(id).unwrap();
    stage.runs.signal(id, "go", b"").unwrap();
    stage.drain();
    assert_eq!(stage.run(id).outcome(), Some(DONE));
    let told = stage.take_told();
    assert_eq!(told.iter().filter(|what| what.starts_with("charged")).count(), 1);
    assert!(told.contains(&"receipt 8".to_owned()), "{told:?}");
}

#[test]
fn action_of_a_script_that_failed_fails_the_script_and_the_next_attempt_does_it() {
    let stage = Stage::new(act);
    let id = stage.submit(r#""fails""#);
    stage.drain();
    assert_eq!(stage.run(id).outcome(), Some(Outcome::ScriptError));
    let again = stage.runs.retry_with(id, Some(b"1")).unwrap().id;
    stage.drain();
    stage.runs.signal(again, "go", b"").unwrap();
    stage.drain();
    assert_eq!(stage.run(again).outcome(), Some(DONE));
    let told = stage.take_told();
    assert_eq!(told.iter().filter(|what| what.starts_with("charged")).count(), 2);
    assert!(told.contains(&"on_error script_error".to_owned()), "{told:?}");
}

#[test]
fn script_that_dies_in_the_middle_of_an_action_leaves_it_in_doubt() {
    let stage = Stage::new(|waiter, cx| {
        // A panic is no answer: nobody knows what it had done.
        cx.action("charge", "charge the card", |_| {
            waiter.tell("charged");
            std::panic::resume_unwind(Box::new("dead"))
        })?;
        Ok(())
    });
    let id = stage.submit("1");
    stage.drain();
    assert_eq!(stage.run(id).outcome(), Some(Outcome::ScriptError));
    let again = stage.runs.retry(id).unwrap().id;
    stage.drain();
    assert_eq!(stage.run(again).state, State::Parked);
    assert_eq!(stage.take_told().iter().filter(|what| *what == "charged").count(), 1);
}
