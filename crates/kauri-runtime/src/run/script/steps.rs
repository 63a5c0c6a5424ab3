//! Durable steps of a script: what it did, waited for and had done outside is asked for where its run is driven, and recorded there.
//!
//! A script whose wait is not over gets an error of the class `parked`, and hands it on: the call ends, `cleanup` is called, what was
//! acquired is released, and nothing is held. When what it waits for has come, the run begins anew, `prepare` included, and gets back
//! what it recorded. A script that goes on instead says and records nothing, and is parked all the same.
//!
//! A run that begins anew says again what its script said outside of steps: those events are in the run once for each beginning. What the work of a
//! step says is said once, because a recorded step is not done again; only a crash between the two lets it be said twice. The event of derived
//! work is committed with its step.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use kauri_wire::pack::Map;
use kauri_wire::{JobId, RunId, Timestamp};

use super::context::Context;
use super::error::ScriptError;
use crate::run::outcome::Outcome;

/// Where a script's steps are recorded, in the order in which it asks for them.
pub trait Steps: Send + Sync {
    /// What is recorded in the next place, if anything is.
    ///
    /// # Errors
    /// If another step is recorded there, or the run does not go on here.
    fn recall(&self, name: &str) -> Result<Option<Vec<u8>>, StepsError>;

    /// Records a step in the next place, and returns when it is committed.
    ///
    /// # Errors
    /// If the run does not go on here.
    fn record(&self, name: &str, result: &[u8]) -> Result<(), StepsError>;

    /// Says why the step failed that was asked for last. If the script asks for another, that is recorded, and whoever recalls the step is
    /// told so again.
    fn failed(&self, _why: &str) {}

    /// Waits until a moment.
    ///
    /// # Errors
    /// `Parked` if it has not come, and as for `recall`.
    fn sleep_until(&self, name: &str, due: Timestamp) -> Result<(), StepsError>;

    /// Waits for a signal of this name: what it says.
    ///
    /// # Errors
    /// As for `sleep_until`.
    fn wait_for_signal(&self, name: &str) -> Result<Vec<u8>, StepsError>;

    /// Waits for the end of a job: how it ended.
    ///
    /// # Errors
    /// As for `sleep_until`.
    fn wait_for_job(&self, job: &JobId) -> Result<Outcome, StepsError>;

    /// Waits for the end of the job that a run belongs to: how it ended.
    ///
    /// # Errors
    /// As for `sleep_until`.
    fn wait_for(&self, run: RunId) -> Result<Outcome, StepsError>;

    /// Asks for derived work in a step of this name: its first run.
    ///
    /// # Errors
    /// `Failed` if none is made, and as for `recall`.
    fn enqueue(&self, name: &str, target: &str, params: Map<'_>) -> Result<RunId, StepsError>;

    /// Writes down that an action is about to be done, if it was not done before.
    ///
    /// # Errors
    /// `Parked` if nobody knows whether it was done, `Failed` if there is no ledger, and as for `recall`.
    fn begin_action(&self, name: &str, task: &str) -> Result<BeganAction, StepsError>;

    /// Writes down how the action that was begun last came out, and records it.
    ///
    /// # Errors
    /// `Parked` if nobody knows, and as for `recall`.
    fn end_action(&self, name: &str, end: ActionEnd) -> Result<(), StepsError>;
}

/// An action that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BeganAction {
    /// It was done before, and this is its result.
    Done(Vec<u8>),
    /// It may be done now, and this is its id.
    Begun(String),
}

/// How an action came out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ActionEnd {
    /// It was done, and this is its result.
    Done(Vec<u8>),
    /// It was not done, and this says why.
    NotDone(String),
    /// Nobody knows.
    InDoubt,
}

/// Why a step was not answered or not recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StepsError {
    /// Another step is recorded in this place, and this says which.
    Diverged(String),
    /// What is waited for has not come: the run waits, and begins anew when it has.
    Parked,
    /// What was asked for cannot be, and this says why.
    Failed(String),
    /// The run does not go on here, and this says why.
    Stopped(String),
}

impl fmt::Display for StepsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Diverged(what) | Self::Stopped(what) | Self::Failed(what) => f.write_str(what),
            Self::Parked => f.write_str("the run waits, and begins anew when what it waits for has come"),
        }
    }
}

impl From<StepsError> for ScriptError {
    fn from(error: StepsError) -> Self {
        let error_type = match error {
            StepsError::Diverged(_) => "divergence",
            StepsError::Parked => "parked",
            StepsError::Failed(words) => return failed_before(&words),
            StepsError::Stopped(_) => "stopped",
        };
        Self::new(error.to_string()).of_type(error_type)
    }
}

/// That a script is in the middle of a step, as long as it is there.
struct InStep<'a>(&'a AtomicBool);

impl<'a> InStep<'a> {
    fn new(is_in_step: &'a AtomicBool) -> Self {
        is_in_step.store(true, Ordering::SeqCst);
        Self(is_in_step)
    }
}

impl Drop for InStep<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// How it is recorded that a step of a script failed: the error's class, a byte 0, and what it says.
fn words(error: &ScriptError) -> String {
    format!("{}\0{}", error.error_type, error.message)
}

/// The error that was recorded so; words of somebody else have no class.
fn failed_before(words: &str) -> ScriptError {
    let (class, message) = words.split_once('\0').unwrap_or(("", words));
    ScriptError::new(message).of_type(class)
}

/// Why an action of a script has no result. Any error that a script may fail with says that nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ActionError {
    /// Nothing was done. The script fails, unless it takes care of that; another run may try again.
    NotDone(ScriptError),
    /// Nobody knows whether it was done. The run waits until somebody has decided.
    InDoubt,
}

impl<E: Into<ScriptError>> From<E> for ActionError {
    fn from(error: E) -> Self {
        Self::NotDone(error.into())
    }
}

impl Context {
    /// Does a piece of work, once: what it answers is recorded. If it is recorded already, because the run goes on after a crash or a wait,
    /// or keeps steps of the run that it retries, that is answered and nothing is done. Steps are asked for one after the other, in an order
    /// that follows from the job alone; one that is asked for inside of another is refused.
    ///
    /// A crash between the work and its record means that it is done again: what happens outside is an [action](Self::action). Events that
    /// the work says are committed as all others, not with its record: after such a crash they are said again, and else once.
    ///
    /// # Errors
    /// What the work answers: if the script asks for another step all the same, that is recorded, and this one fails again, with the same class
    /// and words, whenever the run goes on. If another step is recorded in this place; if the run does not go on here, or its steps are recorded
    /// nowhere.
    pub fn step(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<Vec<u8>, ScriptError>,
    ) -> Result<Vec<u8>, ScriptError> {
        let steps = self.steps()?;
        if let Some(result) = steps.recall(name)? {
            return Ok(result);
        }
        let in_step = InStep::new(&self.is_in_step);
        let result = work().inspect_err(|error| steps.failed(&words(error)))?;
        drop(in_step);
        steps.record(name, &result)?;
        Ok(result)
    }

    /// Waits until a moment, holding nothing meanwhile. The moment that was said first counts. What the script said before outside of
    /// [steps](Self::step) it says again when the run begins anew.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use std::time::Duration;
    /// # use kauri_runtime::testing::VirtualClock;
    /// # use kauri_runtime::run::script::{Context, Rust, Script, ScriptError};
    /// # use kauri_runtime::run::{Class, Scripted, State, Submission};
    /// # use kauri_runtime::substrate::TreeSubstrate;
    /// # use kauri_runtime::{Policy, Runtime};
    /// # use kauri_tree::Store;
    /// # use kauri_wire::{Timestamp, WorkerId};
    /// struct Remind;
    ///
    /// impl Script for Remind {
    ///     fn run(&self, cx: &Context) -> Result<(), ScriptError> {
    ///         let due = cx.job().as_i64().ok_or("expected a moment in milliseconds")?;
    ///         cx.sleep_until("due", Timestamp(due))?; // for a year, if it must be: no thread waits
    ///         Ok(cx.emit().log_info("it is time")?)
    ///     }
    /// }
    ///
    /// # let clock = Arc::new(VirtualClock::default());
    /// # let due = { use kauri_runtime::Clock; clock.now().wall.0 + 60_000 };
    /// # let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(Store::in_memory()?)), clock.clone()).start()?;
    /// # let runs = runtime.runs();
    /// # runs.define("reminder", &Class::new(WorkerId(1)))?;
    /// let submitted = runs.submit(&Submission::new("reminder", due.to_string()))?;
    /// let drive = Scripted::new(|_| Box::new(Rust::inline(Remind)));
    /// let mut worker = runtime.run_worker(WorkerId(1), Policy::default(), drive);
    /// worker.drain()?;
    /// assert_eq!(runs.run(submitted.run)?.state, State::Parked);
    /// clock.advance(Duration::from_secs(60));
    /// worker.drain()?;
    /// assert!(runs.run(submitted.run)?.outcome().unwrap().is_success());
    /// # Ok::<(), kauri_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// One of the class `parked` if it has not come: the script hands it on. And as for [`step`](Self::step).
    pub fn sleep_until(&self, name: &str, due: Timestamp) -> Result<(), ScriptError> {
        self.wait(|steps| steps.sleep_until(name, due))
    }

    /// Waits for a signal of this name, holding nothing meanwhile, and takes it: what it says.
    ///
    /// # Errors
    /// As for [`sleep_until`](Self::sleep_until).
    pub fn wait_for_signal(&self, name: &str) -> Result<Vec<u8>, ScriptError> {
        self.wait(|steps| steps.wait_for_signal(name))
    }

    /// Waits for the end of a job, whatever its runs, holding nothing meanwhile: how it ended.
    ///
    /// # Errors
    /// As for [`sleep_until`](Self::sleep_until), and if there is no such job.
    pub fn wait_for_job(&self, job: &JobId) -> Result<Outcome, ScriptError> {
        self.wait(|steps| steps.wait_for_job(job))
    }

    /// Waits for the end of the job that a run belongs to, such as one that was [enqueued](Self::enqueue).
    ///
    /// # Errors
    /// As for [`wait_for_job`](Self::wait_for_job).
    pub fn wait_for(&self, child: RunId) -> Result<Outcome, ScriptError> {
        self.wait(|steps| steps.wait_for(child))
    }

    /// Asks for derived work in a step of this name: a job of the class `target`, with these params as its input. It is made with the
    /// commit that records the step, once for each target and params in a tree of runs: its first run. If an attempt of the same job before this
    /// one asked for it, and it had failed or been cancelled when this attempt was made, it is run again; what fails for this attempt is not.
    ///
    /// # Errors
    /// If no job is made, and as for [`step`](Self::step).
    pub fn enqueue(&self, name: &str, target: &str, params: Map<'_>) -> Result<RunId, ScriptError> {
        Ok(self.steps()?.enqueue(name, target, params)?)
    }

    /// Does something outside, once: see [`LiveRun::action`](crate::run::LiveRun::action). The work is given the action's id; what goes wrong
    /// in it says that nothing was done, unless it is [`ActionError::InDoubt`].
    ///
    /// # Errors
    /// One of the class `parked` if nobody knows whether it was done; what the work answers; and as for [`step`](Self::step).
    pub fn action(
        &self,
        name: &str,
        task: &str,
        work: impl FnOnce(&str) -> Result<Vec<u8>, ActionError>,
    ) -> Result<Vec<u8>, ScriptError> {
        let steps = self.steps()?;
        let id = match self.unless_parked(steps.begin_action(name, task))? {
            BeganAction::Done(result) => return Ok(result),
            BeganAction::Begun(id) => id,
        };
        let in_step = InStep::new(&self.is_in_step);
        let worked = work(&id);
        drop(in_step);
        let (end, answer) = match worked {
            Ok(result) => (ActionEnd::Done(result.clone()), Ok(result)),
            Err(ActionError::NotDone(error)) => (ActionEnd::NotDone(error.to_string()), Err(error)),
            Err(ActionError::InDoubt) => (ActionEnd::InDoubt, Err(StepsError::Parked.into())),
        };
        let is_failed = matches!(end, ActionEnd::NotDone(_));
        self.unless_parked(steps.end_action(name, end))?;
        answer.inspect_err(|error| {
            if is_failed {
                steps.failed(&words(error));
            }
        })
    }

    fn wait<T>(&self, wait: impl FnOnce(&dyn Steps) -> Result<T, StepsError>) -> Result<T, ScriptError> {
        let steps = self.steps()?;
        // What was said before the wait is committed before it.
        self.emitter.gate().flush()?;
        Ok(self.unless_parked(wait(steps))?)
    }

    /// The same, for a script in another process.
    pub(super) fn wait_asked<T>(
        &self,
        wait: impl FnOnce(&dyn Steps) -> Result<T, StepsError>,
    ) -> Result<T, StepsError> {
        let steps = self.asked_steps()?;
        self.emitter.gate().flush().map_err(|error| StepsError::Stopped(error.to_string()))?;
        self.unless_parked(wait(steps))
    }

    /// Where its steps are recorded.
    pub(super) fn asked_steps(&self) -> Result<&dyn Steps, StepsError> {
        self.emitter.check().map_err(|error| StepsError::Stopped(error.to_string()))?;
        let nowhere = || StepsError::Failed("the steps of this run are recorded nowhere".to_owned());
        self.steps.as_deref().ok_or_else(nowhere)
    }

    /// The answer; if the run is to wait, nothing more is said in it.
    pub(super) fn unless_parked<T>(&self, answer: Result<T, StepsError>) -> Result<T, StepsError> {
        if matches!(answer, Err(StepsError::Parked)) {
            self.emitter.gate().park();
        }
        answer
    }

    fn steps(&self) -> Result<&dyn Steps, ScriptError> {
        self.emitter.check()?;
        if self.is_in_step.load(Ordering::SeqCst) {
            return Err(ScriptError::new(
                "expected one step after the other, found one that is asked for inside of another",
            ));
        }
        self.steps.as_deref().ok_or_else(|| ScriptError::new("the steps of this run are recorded nowhere"))
    }
}
