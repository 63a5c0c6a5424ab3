//! A sink in memory, for tests and for runs that nobody keeps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::sink::{Appended, EventDraft, EventSink, SinkError};

/// Events in memory. Clones are the same events.
///
/// ```
/// use kauri_runtime::run::{EventDraft, EventSink, MemorySink};
/// use kauri_wire::run::Event;
///
/// let mut sink = MemorySink::default();
/// let event = EventDraft::new(&Event::Checkpoint { checkpoint_id: "half", note: None }, 0)?;
/// assert_eq!(sink.append(&[event.clone(), event]).unwrap().last_seq, 2);
/// assert_eq!(sink.events().len(), 2);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemorySink(Arc<Mutex<Vec<EventDraft>>>);

impl MemorySink {
    /// All events so far, in their order.
    #[must_use]
    pub fn events(&self) -> Vec<EventDraft> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<EventDraft>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for MemorySink {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        let mut kept = self.lock();
        let first_seq = kept.len() as u64 + 1;
        kept.extend_from_slice(events);
        Ok(Appended { first_seq, last_seq: kept.len() as u64 })
    }
}
