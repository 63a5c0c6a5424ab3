//! Runs whose work is a script: the store's side of a run, joined with the phases of its script.
//!
//! ```text
//! driver's thread:  claim ── answers: append, append, seal ─────────── renew ── ... ── the report
//! script's thread:           load, prepare, run, ... ── end ── cleanup, release ──┘
//! ```
//!
//! Whoever drives a run has the only right to commit for it, and a script may say something from any thread. So the script has a
//! thread of its own, and asks the driver's, which commits and answers; while nobody asks, it keeps the lease.

#![expect(clippy::disallowed_methods, reason = "a driver: the script has a thread of its own, and the lease a time")]

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use kauri_wire::pack::Map;
use kauri_wire::{JobId, RunId, Timestamp};
use serde_json::Value;

use super::action::{AtHand, BegunAction};
use super::drive::Drive;
use super::event;
use super::files::Files;
use super::ingest::Ingestion;
use super::live::{Halt, LiveRun};
use super::outcome::Outcome;
use super::report;
use super::row::Run;
use super::script::{
    ActionEnd, BeganAction, Cancel, Crew, Deadlines, Executor, Plan, Report, Resource, RunInfo, Steps, StepsError,
    Verdict, Watch, execute,
};
use super::seal::Ending;
use super::sink::{Appended, EventDraft, EventSink, SinkError};
use super::step::StepKind;
use crate::error::Error;
use crate::handler::Failure;
use crate::observe::Observation;

/// What a run is executed with, beside its script.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Setup {
    /// How long each phase may take.
    pub deadlines: Deadlines,
    /// When events are committed.
    pub ingestion: Ingestion,
    /// Where artifacts and files go; without it a script has none.
    pub files: Option<Files>,
    /// The threads on which the resource is acquired and released; the script's own thread without them.
    pub crew: Option<Crew>,
}

/// Drives runs by executing their scripts: hooks in their order, each with its deadline, and the end sealed before `cleanup`.
///
/// The input of a run is the job of its script, as JSON; no input is null, and the params of derived work are an object.
///
/// ```
/// # use std::sync::Arc;
/// # use kauri_runtime::testing::VirtualClock;
/// use kauri_runtime::run::script::{Context, Rust, Script, ScriptError};
/// use kauri_runtime::run::{Class, Outcome, Scripted, Submission};
/// use kauri_runtime::substrate::TreeSubstrate;
/// use kauri_runtime::{Policy, Runtime};
/// use kauri_tree::Store;
/// use kauri_wire::WorkerId;
/// use kauri_wire::pack::MapBuf;
///
/// struct Greet;
///
/// impl Script for Greet {
///     fn run(&self, cx: &Context) -> Result<(), ScriptError> {
///         let mut greeting = MapBuf::new();
///         greeting.put("hello", cx.job().as_str().unwrap_or("nobody"));
///         Ok(cx.emit().item("greeting", greeting.view())?)
///     }
///
///     fn cleanup(&self, _: &Context) -> Result<(), ScriptError> {
///         Ok(()) // the run is sealed by now: nothing that happens here changes how it ended
///     }
/// }
///
/// # let clock = Arc::new(VirtualClock::default());
/// let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(Store::in_memory()?)), clock).start()?;
/// let runs = runtime.runs();
/// runs.define("greeting", &Class::new(WorkerId(1)))?;
/// let submitted = runs.submit(&Submission::new("greeting", r#""Ann""#))?;
///
/// let drive = Scripted::new(|_| Box::new(Rust::inline(Greet)));
/// runtime.run_worker(WorkerId(1), Policy::default(), drive).drain()?;
/// let run = runs.run(submitted.run)?;
/// assert_eq!((run.outcome(), run.events), (Some(Outcome::Success { skipped: false }), 2));
/// # Ok::<(), kauri_runtime::Error>(())
/// ```
pub struct Scripted {
    executor: For<Box<dyn Executor>>,
    setup: Setup,
    resource: Option<For<Box<dyn Resource>>>,
    hear: Option<Box<Hear>>,
}

/// Gives each run something.
type For<T> = Box<dyn FnMut(&Run) -> T + Send>;
type Hear = dyn FnMut(&Run, &Report) + Send;

/// What the script's thread asks the driver's.
enum Asked {
    Append(Vec<EventDraft>, SyncSender<Result<Appended, SinkError>>),
    Seal(Box<Ending>, SyncSender<Result<(), SinkError>>),
    /// Something about its steps.
    Step(Box<dyn FnOnce(&mut Desk<'_>) + Send>),
    /// Something waits for a commit.
    Nudge,
    /// Nothing more: the script is through.
    Over,
}

/// The sink of a script whose driver is on another thread. Once the run is over, nobody hears it.
struct Asking(SyncSender<Asked>);

impl Scripted {
    /// Executes each run with what the function gives for it.
    pub fn new(executor: impl FnMut(&Run) -> Box<dyn Executor> + Send + 'static) -> Self {
        Self { executor: Box::new(executor), setup: Setup::default(), resource: None, hear: None }
    }

    /// With other deadlines, another ingestion, files.
    #[must_use]
    pub fn setup(self, setup: Setup) -> Self {
        Self { setup, ..self }
    }

    /// With a resource for each run, acquired when `prepare` says that it goes on, and always released.
    #[must_use]
    pub fn resource(self, resource: impl FnMut(&Run) -> Box<dyn Resource> + Send + 'static) -> Self {
        Self { resource: Some(Box::new(resource)), ..self }
    }

    /// Tells this function what there is to know of each run when everything is over, `cleanup` too.
    #[must_use]
    pub fn hear(self, hear: impl FnMut(&Run, &Report) + Send + 'static) -> Self {
        Self { hear: Some(Box::new(hear)), ..self }
    }

    fn plan(&mut self, live: &LiveRun, job: Value, cancel: &Cancel) -> Plan {
        let run = live.run();
        let (job_id, parent_run_id) = (Some(run.job.clone()), run.parent());
        let info = RunInfo { run_id: run.id, job_id, parent_run_id, attempt: run.attempt() };
        let Setup { deadlines, ingestion, files, crew } = self.setup.clone();
        let plan = Plan::new(run.id, job, live.clock()).run(info).deadlines(deadlines).ingestion(ingestion);
        let plan = plan.cancel(cancel.clone());
        let plan = files.into_iter().fold(plan, Plan::files);
        let plan = crew.iter().fold(plan, Plan::crew);
        let resource = self.resource.as_mut().map(|resource| Arc::from(resource(run)));
        Plan { resource, ..plan }
    }
}

impl Drive for Scripted {
    fn drive(&mut self, live: &mut LiveRun) -> Result<Ending, Halt> {
        let job = match job_in(live.input()) {
            Ok(job) => job,
            Err(words) => return Ok(Ending::failure(live.now().wall, Outcome::ScriptError, &words)),
        };
        let cancel = Cancel::default();
        let (plan, mut executor) = (self.plan(live, job, &cancel), (self.executor)(live.run()));
        let (ask, asked) = sync_channel(1);
        let nudge = ask.clone();
        // If something else is asked, the driver looks after that.
        let watch = Arc::new(Watch::new(move || drop(nudge.try_send(Asked::Nudge))));
        let plan = Plan { watch: Some(Arc::clone(&watch)), ..plan.steps(Arc::new(Asking(ask.clone()))) };
        let (report, answered) = thread::scope(|scope| {
            let script = scope.spawn(move || {
                let (sink, seal) = (Box::new(Asking(ask.clone())), Asking(ask.clone()));
                let report = execute(plan, &mut *executor, sink, |verdict| seal.seal(verdict));
                // The driver waits for this, or is gone.
                let _ = ask.send(Asked::Over);
                report
            });
            let answered = answer(live, &asked, &cancel, &watch);
            (script.join(), answered)
        });
        let report = report.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        tell(live, &report);
        if let Some(hear) = &mut self.hear {
            hear(live.run(), &report);
        }
        answered?;
        // Whoever sealed the run has said how it ended; else it waits, or is not ours any more.
        report.sealed.map_or_else(|error| Err(error.into()), |()| Err(Halt::Lost))
    }
}

/// Tells how a script went: counts it, keeps it beside its run unless that is somebody else's now, and says it to whoever wants to know.
fn tell(live: &LiveRun, report: &Report) {
    live.shared.metrics.run_reported(report);
    let is_ours = !matches!(report.sealed, Err(SinkError::Lost | SinkError::Sealed));
    let kept = if is_ours { report::keep(live, report) } else { Ok(()) };
    match kept {
        // Who stops everything knows that what is left is not kept.
        Ok(()) | Err(Error::Stopped) => {}
        // How the run ended does not depend on it.
        Err(error) => live.shared.observe(&Observation::WorkerError { worker: live.driver.worker, error: &error }),
    }
    live.shared.observe(&Observation::RunReported { run: live.run(), report });
}

/// The job of a script: its run's input as JSON. Derived work has params, a MessagePack map, which no JSON begins like.
fn job_in(input: &[u8]) -> Result<Value, String> {
    if input.is_empty() {
        return Ok(Value::Null);
    }
    if let Ok(params) = Map::decode(input) {
        return Ok(event::map(&params));
    }
    let words = |error| format!("expected JSON as the input of a script, found something else: {error}");
    serde_json::from_slice(input).map_err(words)
}

/// A run that is to be cancelled is noticed within this time, however long its lease is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where the driver's thread answers.
struct Desk<'a> {
    live: &'a mut LiveRun,
    /// The script asked for another step than the one that is recorded.
    diverged: Option<String>,
    /// The action that is under way. Left here, it is in doubt.
    action: Option<Box<dyn BegunAction>>,
    /// The runtime failed: the run is left as a crash would leave it.
    trouble: Option<Error>,
}

impl Desk<'_> {
    /// What was asked of the run, in words for its script.
    fn ask<T>(&mut self, ask: impl FnOnce(&mut LiveRun) -> Result<T, Halt>) -> Result<T, StepsError> {
        if self.action.is_some() {
            // Its end would find another step in its place.
            let words = "expected one step after the other, found an action that is still under way";
            return Err(StepsError::Failed(words.to_owned()));
        }
        ask(self.live).map_err(|halt| match halt {
            Halt::Diverged(divergence) => {
                self.diverged = Some(divergence.to_string());
                StepsError::Diverged(divergence.to_string())
            }
            Halt::Parked => StepsError::Parked,
            Halt::Failed(why) => StepsError::Failed(why.into()),
            Halt::Runtime(error) => {
                let words = error.to_string();
                self.trouble.get_or_insert(error);
                StepsError::Stopped(words)
            }
            halt @ (Halt::Cancelled | Halt::Lost) => StepsError::Stopped(halt.to_string()),
        })
    }

    fn begin_action(&mut self, name: &str, task: &str) -> Result<BeganAction, StepsError> {
        Ok(match self.ask(|live| live.begin_action(name, task))? {
            AtHand::Done(result) => BeganAction::Done(result),
            AtHand::Begun(action) => {
                let id = action.id().to_owned();
                self.action = Some(action);
                BeganAction::Begun(id)
            }
        })
    }

    fn end_action(&mut self, name: &str, end: ActionEnd) -> Result<(), StepsError> {
        let asked = self.live.check_asked(name).map_err(|halt| StepsError::Failed(halt.to_string()));
        let Some(action) = self.action.take_if(|_| asked.is_ok()) else {
            return asked.and(Err(StepsError::Failed("expected an action under way, found none".to_owned())));
        };
        let is_failed = matches!(end, ActionEnd::NotDone(_));
        let ended = self.ask(|live| match end {
            ActionEnd::Done(result) => live.end_action(name, action, Ok(result)),
            ActionEnd::NotDone(why) => live.end_action(name, action, Err(Failure::fatal(&*why))),
            ActionEnd::InDoubt => {
                // As long as it is under way nobody decides.
                live.await_decision()?;
                drop(action);
                Err(live.park_for_decision())
            }
        });
        match ended {
            // That it failed is what the script said itself.
            Err(StepsError::Failed(_)) if is_failed => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Keeps the lease, and stops the script if its run is to be cancelled or is somebody else's.
    ///
    /// A store that fails has cancelled nothing: it is asked again for as long as the lease lasts. Then the run may be somebody else's, and is
    /// left to them as a crash would leave it.
    fn keep_lease(&mut self, cancel: &Cancel) {
        let error = match self.live.renew() {
            Ok(()) => return,
            Err(Halt::Cancelled | Halt::Lost) => return cancel.cancel(),
            Err(halt) => halt.into_error(),
        };
        let is_over = self.live.now().mono >= self.live.driver.held.lease.deadline;
        if is_over || matches!(error, Error::Stopped) {
            self.trouble.get_or_insert(error);
            cancel.cancel();
        }
    }

    fn seal(&mut self, ending: Ending) -> Result<(), SinkError> {
        if self.trouble.is_some() {
            return Err(SinkError::Lost);
        }
        let diverged = self.diverged.take().or_else(|| left_over(self.live, &ending));
        let ending = match diverged {
            Some(words) => Ending::failure(self.live.now().wall, Outcome::VersionMismatch, &words),
            None => ending,
        };
        self.live.end_early(&ending)
    }
}

/// Does what the script's thread asks for until it is through; keeps the lease meanwhile, and commits what has waited long enough.
///
/// # Errors
/// Why the runtime could not do what the script asked for.
fn answer(live: &mut LiveRun, asked: &Receiver<Asked>, cancel: &Cancel, watch: &Watch) -> Result<(), Error> {
    let mut desk = Desk { live, diverged: None, action: None, trouble: None };
    // Who asked may have stopped waiting: then nobody hears the answer.
    loop {
        let now = desk.live.now().mono;
        watch.tick(now, desk.live);
        match asked.recv_timeout(watch.pause(now, desk.live.renewal().min(LOOK_EVERY))) {
            Ok(Asked::Append(events, answer)) => {
                let _ = answer.send(desk.live.append(&events));
            }
            Ok(Asked::Seal(ending, answer)) => {
                let _ = answer.send(desk.seal(*ending));
            }
            Ok(Asked::Step(ask)) => ask(&mut desk),
            Ok(Asked::Nudge) => {}
            Err(RecvTimeoutError::Timeout) => desk.keep_lease(cancel),
            Ok(Asked::Over) | Err(RecvTimeoutError::Disconnected) => return desk.trouble.map_or(Ok(()), Err),
        }
    }
}

/// Which steps are recorded that a script which ended well did not ask for.
fn left_over(live: &LiveRun, ending: &Ending) -> Option<String> {
    match live.check_recalled() {
        Err(halt) if ending.outcome.is_success() => Some(halt.to_string()),
        _ => None,
    }
}

impl Steps for Asking {
    fn recall(&self, name: &str) -> Result<Option<Vec<u8>>, StepsError> {
        let name = name.to_owned();
        self.ask_step(move |desk| desk.ask(|live| live.recall(StepKind::Work, &name)))
    }

    fn record(&self, name: &str, result: &[u8]) -> Result<(), StepsError> {
        let (name, result) = (name.to_owned(), result.to_vec());
        self.ask_step(move |desk| desk.ask(|live| live.record_step(StepKind::Work, &name, &result)))
    }

    fn failed(&self, why: &str) {
        let why = why.to_owned();
        // Where nobody hears it, nothing is recorded any more.
        let _ = self.ask_step(move |desk| {
            desk.live.note_failure(&why);
            Ok(())
        });
    }

    fn sleep_until(&self, name: &str, due: Timestamp) -> Result<(), StepsError> {
        let name = name.to_owned();
        self.ask_step(move |desk| desk.ask(|live| live.sleep_until(&name, due)))
    }

    fn wait_for_signal(&self, name: &str) -> Result<Vec<u8>, StepsError> {
        let name = name.to_owned();
        self.ask_step(move |desk| desk.ask(|live| live.wait_for_signal(&name)))
    }

    fn wait_for_job(&self, job: &JobId) -> Result<Outcome, StepsError> {
        let job = job.clone();
        self.ask_step(move |desk| desk.ask(|live| live.wait_for_job(&job)))
    }

    fn wait_for(&self, run: RunId) -> Result<Outcome, StepsError> {
        self.ask_step(move |desk| desk.ask(|live| live.wait_for(run)))
    }

    fn enqueue(&self, name: &str, target: &str, params: Map<'_>) -> Result<RunId, StepsError> {
        let (name, target, params) = (name.to_owned(), target.to_owned(), params.encode());
        self.ask_step(move |desk| desk.ask(|live| live.enqueue(&name, &target, &params)))
    }

    fn begin_action(&self, name: &str, task: &str) -> Result<BeganAction, StepsError> {
        let (name, task) = (name.to_owned(), task.to_owned());
        self.ask_step(move |desk| desk.begin_action(&name, &task))
    }

    fn end_action(&self, name: &str, end: ActionEnd) -> Result<(), StepsError> {
        let name = name.to_owned();
        self.ask_step(move |desk| desk.end_action(&name, end))
    }
}

impl Asking {
    fn ask_step<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&mut Desk<'_>) -> Result<T, StepsError> + Send + 'static,
    ) -> Result<T, StepsError> {
        let over = || StepsError::Stopped(SinkError::Sealed.to_string());
        let (answer, answers) = sync_channel(1);
        let ask = Asked::Step(Box::new(move |desk| {
            let _ = answer.send(ask(desk));
        }));
        self.0.send(ask).map_err(|_| over())?;
        answers.recv().map_err(|_| over())?
    }

    fn ask<T>(&self, asked: impl FnOnce(SyncSender<Result<T, SinkError>>) -> Asked) -> Result<T, SinkError> {
        let (answer, answers) = sync_channel(1);
        self.0.send(asked(answer)).map_err(|_| SinkError::Sealed)?;
        answers.recv().map_err(|_| SinkError::Sealed)?
    }

    fn seal(&self, verdict: &Verdict) -> Result<(), SinkError> {
        let ending = Ending { outcome: verdict.outcome, terminal: verdict.terminal.clone() };
        self.ask(|answer| Asked::Seal(Box::new(ending), answer))
    }
}

impl EventSink for Asking {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        self.ask(|answer| Asked::Append(events.to_vec(), answer))
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("setup", &self.setup).finish_non_exhaustive()
    }
}
