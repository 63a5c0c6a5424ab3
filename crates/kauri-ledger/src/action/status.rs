//! How far an action has come.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How far an action has come.
///
/// ```text
///            ┌─> COMPLETED ──> MISSING       the artifact is gone
/// STARTED ───┤         └─────> INVALIDATED   something it needs is gone
///       │    ├─> FAILED
///       │    └─> RETRIABLE                   decided: nothing was done, a new action may try again
///       └──────> NEEDS_HUMAN ──> COMPLETED, FAILED or RETRIABLE
/// ```
///
/// The first three are the ones an action goes through by itself; the others are decided, or found out, afterwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Begun, and not ended.
    Started,
    /// Done; its artifact, if it has one, is there.
    Completed,
    /// Not done, or not wholly. A retry is a new action.
    Failed,
    /// Nobody knows whether it was done; a person must look.
    NeedsHuman,
    /// It was decided that a new action may do it.
    Retriable,
    /// Done, but its artifact is gone.
    Missing,
    /// Done, but something that it needs is gone.
    Invalidated,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 7] = [
        Self::Started,
        Self::Completed,
        Self::Failed,
        Self::NeedsHuman,
        Self::Retriable,
        Self::Missing,
        Self::Invalidated,
    ];

    /// As it stands in the journal and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "STARTED",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::NeedsHuman => "NEEDS_HUMAN",
            Self::Retriable => "RETRIABLE",
            Self::Missing => "MISSING",
            Self::Invalidated => "INVALIDATED",
        }
    }

    /// Whether the action still waits for its end or for a decision.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Started | Self::NeedsHuman)
    }

    /// Whether the effect was done.
    #[must_use]
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Completed | Self::Missing | Self::Invalidated)
    }

    /// What the journal says of an action with this status: what was found out afterwards is the database's alone.
    #[must_use]
    pub const fn in_journal(self) -> Self {
        match self {
            Self::Missing | Self::Invalidated => Self::Completed,
            other => other,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is no status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadStatus(String);

impl fmt::Display for BadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected the status of an action, found {:?}", self.0)
    }
}

impl std::error::Error for BadStatus {}

impl FromStr for Status {
    type Err = BadStatus;

    fn from_str(text: &str) -> Result<Self, BadStatus> {
        let found = Self::ALL.into_iter().find(|status| status.as_str() == text);
        found.ok_or_else(|| BadStatus(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_read_back_as_it_is_written() {
        for status in Status::ALL {
            assert_eq!(status.as_str().parse(), Ok(status));
            assert_eq!(serde_json::to_string(&status).unwrap(), format!("\"{status}\""));
        }
        assert!("started".parse::<Status>().is_err());
    }
}
