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

use serde_json::Value;

use super::drive::Drive;
use super::files::Files;
use super::ingest::Ingestion;
use super::live::{Halt, LiveRun};
use super::outcome::Outcome;
use super::row::Run;
use super::script::{
    Cancel, Crew, Deadlines, Executor, Plan, Report, Resource, RunInfo, Steps, StepsError, Verdict, execute,
};
use super::seal::Ending;
use super::sink::{Appended, EventDraft, EventSink, SinkError};
use super::step::StepKind;

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
/// The input of a run is the job of its script, as JSON; no input is null.
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
    Recall(String, SyncSender<Result<Option<Vec<u8>>, StepsError>>),
    Record(String, Vec<u8>, SyncSender<Result<(), StepsError>>),
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
        let job = match live.input() {
            [] => Value::Null,
            input => match serde_json::from_slice(input) {
                Ok(job) => job,
                Err(error) => {
                    let words = format!("expected JSON as the input of a script, found something else: {error}");
                    return Ok(Ending::failure(live.now().wall, Outcome::ScriptError, &words));
                }
            },
        };
        let cancel = Cancel::default();
        let (plan, mut executor) = (self.plan(live, job, &cancel), (self.executor)(live.run()));
        let (ask, asked) = sync_channel(1);
        let plan = plan.steps(Arc::new(Asking(ask.clone())));
        let report = thread::scope(|scope| {
            let script = scope.spawn(move || {
                let (sink, seal) = (Box::new(Asking(ask.clone())), Asking(ask.clone()));
                let report = execute(plan, &mut *executor, sink, |verdict| seal.seal(verdict));
                // The driver waits for this, or is gone.
                let _ = ask.send(Asked::Over);
                report
            });
            answer(live, &asked, &cancel);
            script.join()
        });
        let report = report.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        if let Some(hear) = &mut self.hear {
            hear(live.run(), &report);
        }
        // Whoever sealed the run has said how it ended; else it is not ours any more.
        report.sealed.map_or_else(|error| Err(error.into()), |()| Err(Halt::Lost))
    }
}

/// A run that is to be cancelled is noticed within this time, however long its lease is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Does what the script's thread asks for until it is through, and keeps the lease meanwhile.
fn answer(live: &mut LiveRun, asked: &Receiver<Asked>, cancel: &Cancel) {
    // Who asked may have stopped waiting: then nobody hears the answer.
    let mut diverged = None;
    loop {
        match asked.recv_timeout(live.renewal().min(LOOK_EVERY)) {
            Ok(Asked::Append(events, answer)) => {
                let _ = answer.send(live.append(&events));
            }
            Ok(Asked::Seal(ending, answer)) => {
                let diverged = diverged.take().or_else(|| left_over(live, &ending));
                let ending = match diverged {
                    Some(words) => Ending::failure(live.now().wall, Outcome::VersionMismatch, &words),
                    None => *ending,
                };
                let _ = answer.send(live.end_early(&ending));
            }
            Ok(Asked::Recall(name, answer)) => {
                let found = live.recall(StepKind::Work, &name);
                if let Err(Halt::Diverged(divergence)) = &found {
                    diverged = Some(divergence.to_string());
                }
                let _ = answer.send(found.map_err(|halt| steps_error(&halt)));
            }
            Ok(Asked::Record(name, result, answer)) => {
                let recorded = live.record_step(StepKind::Work, &name, &result);
                let _ = answer.send(recorded.map_err(|halt| steps_error(&halt)));
            }
            Err(RecvTimeoutError::Timeout) => {
                if live.renew().is_err() {
                    cancel.cancel();
                }
            }
            Ok(Asked::Over) | Err(RecvTimeoutError::Disconnected) => return,
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

fn steps_error(halt: &Halt) -> StepsError {
    match halt {
        Halt::Diverged(divergence) => StepsError::Diverged(divergence.to_string()),
        halt => StepsError::Stopped(halt.to_string()),
    }
}

impl Steps for Asking {
    fn recall(&self, name: &str) -> Result<Option<Vec<u8>>, StepsError> {
        self.ask_step(|answer| Asked::Recall(name.to_owned(), answer))
    }

    fn record(&self, name: &str, result: &[u8]) -> Result<(), StepsError> {
        self.ask_step(|answer| Asked::Record(name.to_owned(), result.to_vec(), answer))
    }
}

impl Asking {
    fn ask_step<T>(&self, asked: impl FnOnce(SyncSender<Result<T, StepsError>>) -> Asked) -> Result<T, StepsError> {
        let over = || StepsError::Stopped(SinkError::Sealed.to_string());
        let (answer, answers) = sync_channel(1);
        self.0.send(asked(answer)).map_err(|_| over())?;
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
