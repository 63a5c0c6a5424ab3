//! Where a run's events go: the seam between whatever runs a script and the store that keeps what it said.

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
    /// Says why none of them was appended. After `Failed` nobody knows: the run ends, or is taken over, and whoever goes on reads
    /// what there is.
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError>;
}

/// An event that has no place yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventDraft {
    /// What kind of event it is.
    pub kind: EventType,
    /// When it was said, in milliseconds since the Unix epoch.
    pub ts: i64,
    /// What it says: a MessagePack map that is a payload of its kind.
    pub payload: Vec<u8>,
}

/// The places that events got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Of the first.
    pub first_seq: u64,
    /// Of the last; one less than `first_seq` if there were none.
    pub last_seq: u64,
}

/// Why events were not appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkError {
    /// The run has ended. The events are refused, and counted.
    Sealed,
    /// The run is to be cancelled, or its time is over: whoever runs it stops.
    Cancelled,
    /// The lease is somebody else's: whatever is still done for the run here counts for nothing.
    Lost,
    /// The run waits for something: what is said now is said again when it goes on.
    Parked,
    /// Something else failed, and this says what.
    Failed(String),
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sealed => f.write_str("expected a run that goes on, found one that has ended"),
            Self::Cancelled => f.write_str("the run is to be cancelled, or its time is over"),
            Self::Lost => f.write_str("the run is driven by somebody else now"),
            Self::Parked => f.write_str("the run waits, and says nothing until it goes on"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for SinkError {}
