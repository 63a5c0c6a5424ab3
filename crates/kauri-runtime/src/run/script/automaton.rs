//! The order of a run, as a machine without data: which phase comes next, and how the run ends.
//!
//! ```text
//! load ─ prepare ─ acquire ─ before_run ─ run ─ after_run ─ before_terminal ─ seal ─ cleanup ─ release ─ done
//!   │      │          │          ╰──────────┴───────┴─ on_error ─╯              │
//!   ╰──────┴──────────┴── failed, cut, skipped: nothing was acquired ───────────╯
//! ```
//!
//! - A phase that fails between `before_run` and `after_run` leads to `on_error`. One that is cut (its time is over, or the run was cancelled) leads to
//!   the end, and to `cleanup`.
//! - Who says a terminal event decides how the run ends. After one, `after_run` is called if the script has said `run_complete` and succeeded;
//!   otherwise nothing but `cleanup`.
//! - What goes wrong in `on_error`, `before_terminal`, `cleanup` and `release`, and after a terminal event, changes nothing: it is swallowed, and recorded.
//! - A run that is to wait for something goes to `seal` at once, and nothing is sealed: it begins anew when it is woken.
//! - `cleanup` and `release` follow if, and only if, something was acquired; `cleanup` not if the executor is gone.
//! - From `seal` on nothing changes the outcome.

use std::fmt;

use super::stop::Cause;

/// A phase of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Phase {
    /// The executor loads the script.
    Load,
    /// The hook `prepare`.
    Prepare,
    /// The resource is acquired.
    Acquire,
    /// The hook `before_run`.
    BeforeRun,
    /// The script.
    Run,
    /// The hook `after_run`.
    AfterRun,
    /// The hook `on_error`.
    OnError,
    /// The hook `before_terminal`.
    BeforeTerminal,
    /// The outcome is decided and written down.
    Seal,
    /// The hook `cleanup`.
    Cleanup,
    /// The resource is released.
    Release,
    /// Nothing more.
    Done,
}

impl Phase {
    /// All of them, in the order in which they are declared: their codes.
    pub(crate) const ALL: [Self; 12] = [
        Self::Load,
        Self::Prepare,
        Self::Acquire,
        Self::BeforeRun,
        Self::Run,
        Self::AfterRun,
        Self::OnError,
        Self::BeforeTerminal,
        Self::Seal,
        Self::Cleanup,
        Self::Release,
        Self::Done,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Prepare => "prepare",
            Self::Acquire => "acquire",
            Self::BeforeRun => "before_run",
            Self::Run => "run",
            Self::AfterRun => "after_run",
            Self::OnError => "on_error",
            Self::BeforeTerminal => "before_terminal",
            Self::Seal => "seal",
            Self::Cleanup => "cleanup",
            Self::Release => "release",
            Self::Done => "done",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a phase ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ended {
    /// Well, or there is no such hook.
    Well,
    /// `prepare` says that there is nothing to do.
    Skipped,
    /// With an error.
    Failed,
    /// It was stopped, or never begun.
    Cut(Cause),
    /// The script follows another contract.
    Mismatch,
    /// The executor is gone.
    Crashed,
}

/// Which terminal event was said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Terminal {
    /// `run_complete`.
    Complete,
    /// `run_error`.
    Error,
}

/// How the sink is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Health {
    /// It takes events.
    Well,
    /// It failed, and takes none.
    Failed,
    /// It takes none because the run was cancelled.
    Cancelled,
    /// It takes none because the run is not ours any more.
    Gone,
    /// It takes none because the run waits for something.
    Parked,
}

/// What is known beside how a phase ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Facts {
    /// The terminal event that the script or a hook has said.
    pub said: Option<Terminal>,
    /// How the sink is.
    pub sink: Health,
}

impl Facts {
    /// Nothing was said, and the sink is well.
    pub const NONE: Self = Self { said: None, sink: Health::Well };
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Decision {
    /// The script did what it was for.
    Completed,
    /// `prepare` found nothing to do.
    Skipped,
    /// The script, or a hook that counts, failed, or said so.
    ScriptError,
    /// The executor failed, or `prepare`, or what was to be acquired.
    ExecutorCrash,
    /// Events could not be kept.
    PolicyFailure,
    /// The script follows another contract.
    VersionMismatch,
    /// It was cancelled.
    Cancelled,
    /// It took too long.
    TimedOut,
    /// It is not ours to end.
    Lost,
    /// It does not end: it waits, and begins anew when it is woken.
    Parked,
}

/// Where a run is.
///
/// ```
/// use kauri_runtime::run::script::{Automaton, Decision, Ended, Facts, Phase};
///
/// let mut run = Automaton::START;
/// let mut order = vec![run.phase()];
/// while run.phase() != Phase::Done {
///     let how = if run.phase() == Phase::Run { Ended::Failed } else { Ended::Well };
///     run = run.ended(how, Facts::NONE);
///     order.push(run.phase());
/// }
/// use Phase::*;
/// assert_eq!(order, [Load, Prepare, Acquire, BeforeRun, Run, OnError, BeforeTerminal, Seal, Cleanup, Release, Done]);
/// assert_eq!(run.decision(Facts::NONE), Decision::ScriptError);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Automaton {
    phase: Phase,
    /// How the run ends if nobody says anything.
    fate: Decision,
    is_acquired: bool,
    /// The executor cannot be called any more.
    is_gone: bool,
}

impl Automaton {
    /// Before the first phase.
    pub const START: Self = Self { phase: Phase::Load, fate: Decision::Completed, is_acquired: false, is_gone: false };

    /// The phase to be taken.
    #[must_use]
    pub const fn phase(self) -> Phase {
        self.phase
    }

    /// The run after its phase ended like this.
    #[must_use]
    pub fn ended(mut self, how: Ended, facts: Facts) -> Self {
        self.is_gone |= how == Ended::Crashed;
        self.is_acquired |= self.phase == Phase::Acquire && how == Ended::Well;
        if let Some(fate) = self.fate_after(how, facts) {
            self.fate = fate;
        }
        self.phase = self.phase_after(how, facts);
        self
    }

    /// Whether a phase that ends like this has failed without changing how the run ends.
    #[must_use]
    pub fn swallows(self, how: Ended, facts: Facts) -> bool {
        let is_trouble = !matches!(how, Ended::Well | Ended::Skipped);
        is_trouble && self.fate_after(how, facts).is_none()
    }

    /// How the run ends, as things are.
    #[must_use]
    pub fn decision(self, facts: Facts) -> Decision {
        match (facts.sink, facts.said) {
            (Health::Gone, _) => Decision::Lost,
            (Health::Parked, _) => Decision::Parked,
            (Health::Failed, _) => Decision::PolicyFailure,
            (_, Some(Terminal::Complete)) => Decision::Completed,
            (_, Some(Terminal::Error)) => Decision::ScriptError,
            (Health::Cancelled, None) => Decision::Cancelled,
            (Health::Well, None) => self.fate,
        }
    }

    /// What a phase that ended like this makes of the run's end, if anything.
    fn fate_after(self, how: Ended, facts: Facts) -> Option<Decision> {
        let cut = |cause| match cause {
            Cause::Deadline => Decision::TimedOut,
            Cause::Cancelled => Decision::Cancelled,
        };
        match (self.phase, how) {
            (_, Ended::Well) => None,
            // The end was said, or is decided: nothing changes it.
            (Phase::Seal | Phase::Cleanup | Phase::Release | Phase::Done, _) => None,
            _ if facts.said.is_some() => None,
            (_, Ended::Skipped) => Some(Decision::Skipped),
            (_, Ended::Mismatch) => Some(Decision::VersionMismatch),
            (_, Ended::Cut(Cause::Cancelled)) => Some(Decision::Cancelled),
            (Phase::OnError | Phase::BeforeTerminal, _) => None,
            (_, Ended::Cut(cause)) => Some(cut(cause)),
            (Phase::Load | Phase::Prepare | Phase::Acquire, Ended::Failed) | (_, Ended::Crashed) => {
                Some(Decision::ExecutorCrash)
            }
            (_, Ended::Failed) => Some(Decision::ScriptError),
        }
    }

    fn phase_after(self, how: Ended, facts: Facts) -> Phase {
        match self.phase {
            Phase::Load if how == Ended::Well => Phase::Prepare,
            Phase::Prepare if how == Ended::Well => Phase::Acquire,
            Phase::Acquire if how == Ended::Well => Phase::BeforeRun,
            Phase::Load | Phase::Prepare | Phase::Acquire => Phase::Seal,
            Phase::BeforeRun | Phase::Run | Phase::AfterRun => self.phase_after_work(how, facts),
            Phase::OnError => self.phase_to_terminal(how, facts),
            Phase::BeforeTerminal => Phase::Seal,
            Phase::Seal if self.is_acquired && !self.is_gone => Phase::Cleanup,
            Phase::Seal | Phase::Cleanup if self.is_acquired => Phase::Release,
            Phase::Seal | Phase::Cleanup | Phase::Release | Phase::Done => Phase::Done,
        }
    }

    fn phase_after_work(self, how: Ended, facts: Facts) -> Phase {
        let is_over = matches!(facts.sink, Health::Cancelled | Health::Gone | Health::Parked);
        match (how, facts.said) {
            (Ended::Well, Some(Terminal::Complete)) if self.phase == Phase::Run && !is_over => Phase::AfterRun,
            (_, Some(_)) => Phase::Seal,
            _ if is_over => Phase::Seal,
            (Ended::Failed, None) => Phase::OnError,
            (Ended::Well, None) if self.phase == Phase::BeforeRun => Phase::Run,
            (Ended::Well, None) if self.phase == Phase::Run => Phase::AfterRun,
            (_, None) => self.phase_to_terminal(how, facts),
        }
    }

    /// `before_terminal` if the end is ours to say and somebody can be asked.
    fn phase_to_terminal(self, how: Ended, facts: Facts) -> Phase {
        let is_asked = match how {
            Ended::Well | Ended::Failed => true,
            // A hook whose time is over is swallowed; the script's is not.
            Ended::Cut(Cause::Deadline) => self.phase == Phase::OnError,
            Ended::Cut(Cause::Cancelled) | Ended::Skipped | Ended::Mismatch | Ended::Crashed => false,
        };
        if is_asked && facts == Facts::NONE { Phase::BeforeTerminal } else { Phase::Seal }
    }
}
