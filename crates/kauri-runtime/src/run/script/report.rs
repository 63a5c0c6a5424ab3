//! How a run ended, and what is to be known about it.

use std::time::Duration;

use super::automaton::{Decision, Phase};
use super::error::ScriptError;
use crate::run::ingest::Tally;
use crate::run::outcome::Outcome;
use crate::run::sink::{EventDraft, SinkError};

/// The outcome of a decision, unless the run does not end, or is not ours to end.
pub(crate) const fn outcome_of(decision: Decision) -> Option<Outcome> {
    Some(match decision {
        Decision::Completed => Outcome::Success { skipped: false },
        Decision::Skipped => Outcome::Success { skipped: true },
        Decision::ScriptError => Outcome::ScriptError,
        Decision::ExecutorCrash => Outcome::ExecutorCrash,
        Decision::PolicyFailure => Outcome::PolicyFailure,
        Decision::VersionMismatch => Outcome::VersionMismatch,
        Decision::Cancelled => Outcome::Cancelled,
        Decision::TimedOut => Outcome::TimedOut,
        Decision::Lost | Decision::Parked => return None,
    })
}

/// How a script's run is to end, and who decided that. The outcome and the terminal event are committed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// How the run ended.
    pub outcome: Outcome,
    /// The last event of its stream: a `run_complete` for a success, a `run_error` for everything else.
    pub terminal: EventDraft,
    /// Who said it: a script or a hook, or the runtime itself.
    pub said_by: Option<Phase>,
    /// What went wrong, if something did.
    pub error: Option<ScriptError>,
}

/// Trouble that did not change how a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Swallowed {
    /// Where.
    pub phase: Phase,
    /// What.
    pub error: ScriptError,
}

/// What is to be known about a run, after everything.
///
/// ```
/// # use std::sync::Arc;
/// # use kauri_runtime::testing::VirtualClock;
/// # use kauri_wire::{RunId, Timestamp};
/// # let (run_id, clock) = (RunId::from_parts(Timestamp(7), [7; 10]), Arc::new(VirtualClock::default()));
/// use kauri_runtime::run::{MemorySink, Outcome};
/// use kauri_runtime::run::script::{Context, Phase, Plan, Rust, Script, ScriptError, execute};
///
/// struct Careless;
/// impl Script for Careless {
///     fn run(&self, _: &Context) -> Result<(), ScriptError> {
///         Ok(())
///     }
///     fn cleanup(&self, _: &Context) -> Result<(), ScriptError> {
///         Err("the door does not close".into())
///     }
/// }
///
/// let plan = Plan::new(run_id, 7.into(), clock);
/// let report = execute(plan, &mut Rust::inline(Careless), Box::<MemorySink>::default(), |_| Ok(()));
/// assert_eq!(report.verdict.unwrap().outcome, Outcome::Success { skipped: false });
/// assert_eq!(report.swallowed[0].phase, Phase::Cleanup);
/// ```
#[derive(Clone, PartialEq, Debug)]
#[must_use]
pub struct Report {
    /// How it ended; nothing if it waits for something, or somebody else has the run now.
    pub verdict: Option<Verdict>,
    /// What sealing it said, or why it was not tried.
    pub sealed: Result<(), SinkError>,
    /// Trouble that changed nothing. Each before the end is also a log event of the run.
    pub swallowed: Vec<Swallowed>,
    /// The phases that were taken, and how long each took.
    pub phases: Vec<(Phase, Duration)>,
    /// How many events the script and its hooks have said.
    pub emitted: u64,
    /// How many they tried to say when nothing could be said any more.
    pub refused: u64,
    /// Those of them that came after the run had said its last, or from a call that was left alone.
    pub late: u64,
    /// How many calls did not stop and were left alone.
    pub left_alone: u64,
    /// How many artifacts of a process had bytes and no event.
    pub orphans: u64,
    /// The end that a process said and how it ended did not agree, or it broke the contract after that. What was said counts.
    pub is_disputed: bool,
    /// What became of the events.
    pub tally: Tally,
}

impl Report {
    /// Whether a hook made a success of a failure.
    #[must_use]
    pub fn is_recovered(&self) -> bool {
        self.verdict.as_ref().is_some_and(|verdict| {
            matches!(verdict.outcome, Outcome::Success { .. })
                && matches!(verdict.said_by, Some(Phase::OnError | Phase::BeforeTerminal))
                && self.phases.iter().any(|(phase, _)| *phase == Phase::OnError)
        })
    }
}
