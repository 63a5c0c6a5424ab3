//! How runs began, where they stand, and how they ended.

use std::fmt;

use kauri_wire::RunId;

/// How a run began. The attempt and the parent follow from it, so they cannot disagree.
///
/// ```
/// use kauri_runtime::run::Origin;
///
/// assert_eq!((Origin::First.attempt(), Origin::First.parent()), (1, None));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Somebody asked for it.
    First,
    /// A run of the same job failed.
    Retry {
        /// Which.
        of: RunId,
        /// The ordinal of this run within its job: one more than the other's.
        attempt: u32,
    },
    /// Another run asked for it.
    Child {
        /// Which.
        of: RunId,
        /// How many runs are above it: one more than above the other.
        depth: u32,
    },
}

impl Origin {
    /// The ordinal of the run within its job, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        match self {
            Self::First | Self::Child { .. } => 1,
            Self::Retry { attempt, .. } => *attempt,
        }
    }

    /// The run that this one is a retry or a child of.
    #[must_use]
    pub const fn parent(&self) -> Option<RunId> {
        match self {
            Self::First => None,
            Self::Retry { of, .. } | Self::Child { of, .. } => Some(*of),
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Outcome {
    /// As it should.
    Success {
        /// There was nothing to do, and the script was not run.
        skipped: bool,
    },
    /// The script failed.
    ScriptError,
    /// What ran the script failed, or died.
    ExecutorCrash,
    /// What it said could not be kept, or what it waited for failed.
    PolicyFailure,
    /// It was made for another version of what it ran on.
    VersionMismatch,
    /// Somebody did not want it any more.
    Cancelled,
    /// Its time was over.
    TimedOut,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Success { skipped: false },
        Self::Success { skipped: true },
        Self::ScriptError,
        Self::ExecutorCrash,
        Self::PolicyFailure,
        Self::VersionMismatch,
        Self::Cancelled,
        Self::TimedOut,
    ];

    /// In one word, as logs and reports have it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Success { skipped: false } => "success",
            Self::Success { skipped: true } => "skipped",
            Self::ScriptError => "script_error",
            Self::ExecutorCrash => "executor_crash",
            Self::PolicyFailure => "policy_failure",
            Self::VersionMismatch => "version_mismatch",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
        }
    }

    /// Whether it ended as it should, skipped or not.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Success { .. })
    }

    /// Its number in rows, from 1.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Success { skipped: false } => 1,
            Self::Success { skipped: true } => 2,
            Self::ScriptError => 3,
            Self::ExecutorCrash => 4,
            Self::PolicyFailure => 5,
            Self::VersionMismatch => 6,
            Self::Cancelled => 7,
            Self::TimedOut => 8,
        }
    }

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.code() == code)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Some outcomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcomes(u16);

impl Outcomes {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// Those that may be others next time: script errors, crashes and time that was over.
    pub const PASSING: Self =
        Self::NONE.with(Outcome::ScriptError).with(Outcome::ExecutorCrash).with(Outcome::TimedOut);

    /// These and one more.
    #[must_use]
    pub const fn with(self, outcome: Outcome) -> Self {
        Self(self.0 | 1 << outcome.code())
    }

    /// Whether this is one of them.
    #[must_use]
    pub const fn contains(self, outcome: Outcome) -> bool {
        self.0 & 1 << outcome.code() != 0
    }

    pub(super) const fn bits(self) -> u16 {
        self.0
    }

    pub(super) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }
}

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody has begun it.
    Pending,
    /// Somebody drives it, or died doing so.
    Running,
    /// It waits for a moment, a signal or another job, and holds nothing meanwhile.
    Parked,
    /// It has ended, and nothing changes it any more.
    Sealed(Outcome),
}

impl State {
    /// How it ended, if it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Sealed(outcome) => Some(*outcome),
            Self::Pending | Self::Running | Self::Parked => None,
        }
    }

    /// The state's and the outcome's number in rows.
    pub(super) const fn codes(self) -> [u8; 2] {
        match self {
            Self::Pending => [0, 0],
            Self::Running => [1, 0],
            Self::Parked => [2, 0],
            Self::Sealed(outcome) => [3, outcome.code()],
        }
    }

    pub(super) fn from_codes(codes: [u8; 2]) -> Option<Self> {
        match codes {
            [0, 0] => Some(Self::Pending),
            [1, 0] => Some(Self::Running),
            [2, 0] => Some(Self::Parked),
            [3, code] => Outcome::from_code(code).map(Self::Sealed),
            _ => None,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("pending"),
            Self::Running => f.write_str("running"),
            Self::Parked => f.write_str("parked"),
            Self::Sealed(outcome) => write!(f, "{outcome}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_outcome_survives_the_trip() {
        let sealed = Outcome::ALL.map(State::Sealed);
        for state in [State::Pending, State::Running, State::Parked].into_iter().chain(sealed) {
            assert_eq!(State::from_codes(state.codes()), Some(state));
        }
        for codes in [[0, 1], [1, 1], [2, 8], [3, 0], [3, 9], [4, 0]] {
            assert_eq!(State::from_codes(codes), None);
        }
    }

    #[test]
    fn outcomes_that_pass_are_three() {
        let passing = Outcome::ALL.map(|outcome| Outcomes::PASSING.contains(outcome));
        assert_eq!(passing, [false, false, true, true, false, false, false, true]);
    }
}
