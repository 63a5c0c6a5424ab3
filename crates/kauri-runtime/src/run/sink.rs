//! Where a run's events go: the seam between what a script says and what the store keeps.

use std::fmt;

use kauri_wire::run::EventType;

/// Where a run's events go.
///
/// ```
/// use kauri_runtime::run::{Appended, EventDraft, EventSink, SinkError};
///
/// /// Keeps events in memory.
/// #[derive(Default)]
/// struct Kept(Vec<EventDraft>);
///
/// impl EventSink for Kept {
///     fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
///         let first_seq = self.0.len() as u64 + 1;
///         self.0.extend_from_slice(events);
///         Ok(Appended { first_seq, last_seq: self.0.len() as u64 })
///     }
/// }
/// ```
pub trait EventSink: Send {
    /// Appends events, all or none, and returns when they are committed. Sequence numbers are given here, contiguous from 1.
    ///
    /// # Errors
    /// If none of them was appended.
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError>;
}

/// An event that has no place in its run yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventDraft {
    /// What kind of event it is.
    pub kind: EventType,
    /// When it was said, in milliseconds since the Unix epoch.
    pub ts: i64,
    /// What it says: a MessagePack map, known to be one of its kind.
    pub payload: Vec<u8>,
}

/// Where appended events stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The place of the first.
    pub first_seq: u64,
    /// The place of the last.
    pub last_seq: u64,
}

/// Why events were not appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkError {
    /// The run has ended.
    Sealed,
    /// The run was cancelled.
    Cancelled,
    /// Somebody else has the run now.
    Lost,
    /// They could not be kept.
    Failed(String),
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed => f.write_str("expected a run that goes on, found one that has ended"),
            Self::Cancelled => f.write_str("the run was cancelled"),
            Self::Lost => f.write_str("somebody else has the run now"),
            Self::Failed(why) => write!(f, "events could not be kept: {why}"),
        }
    }
}

impl std::error::Error for SinkError {}
