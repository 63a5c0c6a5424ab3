//! What a run is given before it starts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kauri_wire::{JobId, RunId};
use serde_json::Value;

use super::automaton::Phase;
use super::calls::Calls;
use super::calls::Crew;
use super::emit::Watch;
use super::resource::Resource;
use super::steps::Steps;
use super::stop::Cancel;
use crate::run::files::Files;
use crate::run::ingest::Ingestion;
use crate::time::Clock;

/// Who a run is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunInfo {
    /// The run.
    pub run_id: RunId,
    /// Its job, where it is known.
    pub job_id: Option<JobId>,
    /// The run that it is a retry or a child of.
    pub parent_run_id: Option<RunId>,
    /// Its ordinal within the job, from 1.
    pub attempt: u32,
}

/// How long each phase of a run may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// Everything from loading the script to `after_run`, together.
    pub run: Duration,
    /// Loading the script.
    pub load: Duration,
    /// `prepare`.
    pub prepare: Duration,
    /// Acquiring the resource.
    pub acquire: Duration,
    /// `before_run`.
    pub before_run: Duration,
    /// The script.
    pub script: Duration,
    /// `after_run`.
    pub after_run: Duration,
    /// `on_error`.
    pub on_error: Duration,
    /// `before_terminal`.
    pub before_terminal: Duration,
    /// `cleanup`.
    pub cleanup: Duration,
    /// Releasing the resource.
    pub release: Duration,
    /// How long a call that has to stop is waited for before it is left alone.
    pub grace: Duration,
}

impl Default for Deadlines {
    /// An hour for the script, half a minute for each hook, five seconds of grace.
    fn default() -> Self {
        let (hour, hook) = (Duration::from_hours(1), Duration::from_secs(30));
        Self {
            run: Duration::from_hours(2),
            load: hook,
            prepare: hook,
            acquire: hook,
            before_run: hook,
            script: hour,
            after_run: hook,
            on_error: hook,
            before_terminal: hook,
            cleanup: hook,
            release: hook,
            grace: Duration::from_secs(5),
        }
    }
}

impl Deadlines {
    pub(crate) const fn of(&self, phase: Phase) -> Duration {
        match phase {
            Phase::Load => self.load,
            Phase::Prepare => self.prepare,
            Phase::Acquire => self.acquire,
            Phase::BeforeRun => self.before_run,
            Phase::Run => self.script,
            Phase::AfterRun => self.after_run,
            Phase::OnError => self.on_error,
            Phase::BeforeTerminal => self.before_terminal,
            Phase::Cleanup => self.cleanup,
            Phase::Release | Phase::Seal | Phase::Done => self.release,
        }
    }
}

/// A run that is about to be executed.
///
/// ```
/// # use std::sync::Arc;
/// # use kauri_runtime::testing::VirtualClock;
/// # use kauri_wire::{RunId, Timestamp};
/// # let (run_id, clock) = (RunId::from_parts(Timestamp(7), [7; 10]), Arc::new(VirtualClock::default()));
/// use std::time::Duration;
///
/// use kauri_runtime::run::Ingestion;
/// use kauri_runtime::run::script::{Cancel, Deadlines, Plan};
///
/// let cancel = Cancel::default();
/// let plan = Plan::new(run_id, "twelve apples".into(), clock)
///     .deadlines(Deadlines { script: Duration::from_mins(5), ..Deadlines::default() })
///     .ingestion(Ingestion::Streaming { events_max: 1000, bytes_max: 1 << 20, interval: Some(Duration::from_millis(50)) })
///     .cancel(cancel.clone());
/// # drop(plan);
/// ```
#[must_use = "a plan does nothing until it is executed"]
pub struct Plan {
    pub(crate) run: RunInfo,
    pub(crate) job: Value,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) deadlines: Deadlines,
    pub(crate) ingestion: Ingestion,
    pub(crate) cancel: Cancel,
    pub(crate) files: Option<Files>,
    pub(crate) steps: Option<Arc<dyn Steps>>,
    pub(crate) resource: Option<Arc<dyn Resource>>,
    pub(crate) calls: Calls,
    /// Who looks after what waits for a commit while the script is silent.
    pub(crate) watch: Option<Arc<Watch>>,
}

impl Plan {
    /// A first attempt of no known job, with the deadlines of [`Deadlines::default`] and strict ingestion.
    pub fn new(run_id: RunId, job: Value, clock: Arc<dyn Clock>) -> Self {
        let run = RunInfo { run_id, job_id: None, parent_run_id: None, attempt: 1 };
        Self {
            run,
            job,
            clock,
            deadlines: Deadlines::default(),
            ingestion: Ingestion::default(),
            cancel: Cancel::default(),
            files: None,
            steps: None,
            resource: None,
            calls: Calls::Inline,
            watch: None,
        }
    }

    /// Another run than a first attempt.
    pub fn run(self, run: RunInfo) -> Self {
        Self { run, ..self }
    }

    /// Other deadlines.
    pub fn deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self }
    }

    /// When events are committed.
    pub fn ingestion(self, ingestion: Ingestion) -> Self {
        Self { ingestion, ..self }
    }

    /// What cancels the run.
    pub fn cancel(self, cancel: Cancel) -> Self {
        Self { cancel, ..self }
    }

    /// Where artifacts and files go. Without it a script has none.
    pub fn files(self, files: Files) -> Self {
        Self { files: Some(files), ..self }
    }

    /// Where its steps are recorded. Without it a script has none.
    pub fn steps(self, steps: Arc<dyn Steps>) -> Self {
        Self { steps: Some(steps), ..self }
    }

    /// What is acquired for the run.
    pub fn resource(self, resource: impl Resource) -> Self {
        Self { resource: Some(Arc::new(resource)), ..self }
    }

    /// Acquires and releases on these threads, so that neither can hang the caller's.
    pub fn crew(self, crew: &Crew) -> Self {
        Self { calls: Calls::Crew(crew.clone()), ..self }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("run", &self.run).field("job", &self.job).finish_non_exhaustive()
    }
}
