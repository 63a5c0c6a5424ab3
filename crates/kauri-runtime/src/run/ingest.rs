//! When events are committed: at once, at the end, or in groups.
//!
//! ```text
//! strict      every event in a commit of its own, before `offer` returns
//! buffered    all in one commit at the end; what does not fit is dropped if it may be, else everything is committed early
//! streaming   a commit after so many events, so many bytes, or so much time; nothing is dropped
//! ```
//!
//! Bytes are those that the waiting events hold in memory. Events are committed in the order in which they were offered. Once a sink has
//! refused something, nothing more is offered to it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use kauri_wire::run::EventType;

use super::sink::{Appended, EventDraft, EventSink, SinkError};
use crate::time::Mono;

/// When events are committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ingestion {
    /// Each at once: what was said is kept when the script hears so.
    #[default]
    Strict,
    /// All at the end. Fastest, and a crash takes everything.
    Buffered {
        /// What may wait in memory.
        bytes_max: usize,
    },
    /// In groups: a crash takes the last group.
    Streaming {
        /// So many events are a group.
        events_max: usize,
        /// So many bytes are a group.
        bytes_max: usize,
        /// No event waits longer, if a limit is given.
        interval: Option<Duration>,
    },
}

/// What became of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It is committed.
    Committed,
    /// It waits for a commit.
    Waits,
    /// There was no room for it, and it is of a kind that may be dropped.
    Dropped,
}

/// What became of all events so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// How many were committed.
    pub committed: u64,
    /// How many commits that took.
    pub commits: u64,
    /// How many were dropped, by their type's word.
    pub dropped: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// How many were dropped, whatever their type.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    fn drop_one(&mut self, kind: EventType) {
        assert!(kind.is_droppable(), "{kind} may not be dropped");
        *self.dropped.entry(kind.as_str()).or_default() += 1;
    }
}

/// Whether an event is dropped where there is no room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    MayGo,
    Stays,
}

/// Events on their way to a sink.
///
/// ```
/// # use kauri_runtime::run::{Appended, EventSink, SinkError};
/// use kauri_runtime::Mono;
/// use kauri_runtime::run::{EventDraft, Ingest, Ingestion, Offered};
/// use kauri_wire::run::Event;
/// # struct Kept(u64);
/// # impl EventSink for Kept {
/// #     fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
/// #         self.0 += events.len() as u64;
/// #         Ok(Appended { first_seq: self.0 - events.len() as u64 + 1, last_seq: self.0 })
/// #     }
/// # }
/// # let sink = Box::new(Kept(0));
///
/// let pairs = Ingestion::Streaming { events_max: 2, bytes_max: 1 << 20, interval: None };
/// let mut ingest = Ingest::new(pairs, sink);
/// let event = EventDraft::new(&Event::Checkpoint { checkpoint_id: "half", note: None }, 0)?;
/// assert_eq!(ingest.offer(event.clone(), Mono::default()), Ok(Offered::Waits));
/// assert_eq!(ingest.offer(event, Mono::default()), Ok(Offered::Committed));
/// assert_eq!(ingest.tally().commits, 1);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub struct Ingest {
    policy: Ingestion,
    sink: Box<dyn EventSink>,
    /// What waits, oldest first. Dropping one leaves an empty place, so that places keep their numbers.
    waiting: VecDeque<Option<EventDraft>>,
    /// The places of those that may be dropped, oldest first.
    droppable: VecDeque<usize>,
    bytes: usize,
    events: usize,
    /// When the oldest was offered.
    since: Mono,
    last_seq: Option<u64>,
    tally: Tally,
    refusal: Option<SinkError>,
}

impl Ingest {
    /// Events go to this sink, when the policy says.
    #[must_use]
    pub fn new(policy: Ingestion, sink: Box<dyn EventSink>) -> Self {
        Self {
            policy,
            sink,
            waiting: VecDeque::new(),
            droppable: VecDeque::new(),
            bytes: 0,
            events: 0,
            since: Mono::default(),
            last_seq: None,
            tally: Tally::default(),
            refusal: None,
        }
    }

    /// Takes an event.
    ///
    /// # Errors
    /// What the sink said, now or earlier.
    pub fn offer(&mut self, draft: EventDraft, now: Mono) -> Result<Offered, SinkError> {
        let worth = if draft.kind.is_droppable() { Worth::MayGo } else { Worth::Stays };
        self.take(draft, worth, now)
    }

    /// Takes an event that is not dropped, whatever its kind.
    ///
    /// # Errors
    /// What the sink said, now or earlier.
    pub fn insist(&mut self, draft: EventDraft, now: Mono) -> Result<Offered, SinkError> {
        self.take(draft, Worth::Stays, now)
    }

    fn take(&mut self, draft: EventDraft, worth: Worth, now: Mono) -> Result<Offered, SinkError> {
        self.check()?;
        match self.policy {
            Ingestion::Strict => self.append(&[draft]).map(|()| Offered::Committed),
            Ingestion::Buffered { bytes_max } => self.buffer(draft, worth, bytes_max, now),
            Ingestion::Streaming { events_max, bytes_max, .. } => {
                self.push(draft, Worth::Stays, now);
                let full = self.events >= events_max || self.bytes >= bytes_max || self.is_due(now);
                if full { self.flush().map(|()| Offered::Committed) } else { Ok(Offered::Waits) }
            }
        }
    }

    /// Commits what has waited long enough.
    ///
    /// # Errors
    /// What the sink said, now or earlier.
    pub fn tick(&mut self, now: Mono) -> Result<(), SinkError> {
        self.check()?;
        if self.is_due(now) { self.flush() } else { Ok(()) }
    }

    /// Commits what has waited long enough, through another way to the same run: for whoever answers the sink, and cannot ask it.
    ///
    /// # Errors
    /// What was said there, or earlier.
    pub(crate) fn tick_through(&mut self, now: Mono, way: &mut dyn EventSink) -> Result<(), SinkError> {
        self.check()?;
        if !self.is_due(now) {
            return Ok(());
        }
        let drafts = self.take_waiting();
        let appended = way.append(&drafts);
        self.settle(appended, &drafts)
    }

    /// When `tick` has something to do.
    #[must_use]
    pub fn due(&self) -> Option<Mono> {
        match self.policy {
            Ingestion::Streaming { interval: Some(interval), .. } if self.events > 0 && self.refusal.is_none() => {
                Some(self.since + interval)
            }
            _ => None,
        }
    }

    /// Commits everything that waits, in one commit.
    ///
    /// # Errors
    /// What the sink said, now or earlier. What waited is then gone for good.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.check()?;
        if self.events == 0 {
            return Ok(());
        }
        let drafts = self.take_waiting();
        self.append(&drafts)
    }

    /// What became of the events so far.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What waits, in bytes.
    #[must_use]
    pub const fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// What the sink said when it refused, if it did.
    #[must_use]
    pub const fn refusal(&self) -> Option<&SinkError> {
        self.refusal.as_ref()
    }

    fn check(&self) -> Result<(), SinkError> {
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn is_due(&self, now: Mono) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Makes room by dropping what may be dropped: the event that comes, else the oldest ones that wait. If that is not enough, what waits is
    /// committed: nothing else is ever lost.
    fn buffer(&mut self, draft: EventDraft, worth: Worth, bytes_max: usize, now: Mono) -> Result<Offered, SinkError> {
        let fits = |ingest: &Self| ingest.bytes + draft.bytes() <= bytes_max;
        if !fits(self) && worth == Worth::MayGo {
            self.tally.drop_one(draft.kind);
            return Ok(Offered::Dropped);
        }
        // For one that no room is enough for, everything is committed: then nothing has to go.
        while draft.bytes() <= bytes_max && !fits(self) && self.drop_oldest() {}
        if !fits(self) {
            self.flush()?;
        }
        if !fits(self) {
            return self.append(&[draft]).map(|()| Offered::Committed);
        }
        self.push(draft, worth, now);
        Ok(Offered::Waits)
    }

    fn push(&mut self, draft: EventDraft, worth: Worth, now: Mono) {
        if self.events == 0 {
            self.since = now;
        }
        self.bytes += draft.bytes();
        self.events += 1;
        if worth == Worth::MayGo {
            self.droppable.push_back(self.waiting.len());
        }
        self.waiting.push_back(Some(draft));
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(place) = self.droppable.pop_front() else { return false };
        let draft = self.waiting[place].take().expect("it is dropped once");
        self.bytes -= draft.bytes();
        self.events -= 1;
        self.tally.drop_one(draft.kind);
        true
    }

    fn take_waiting(&mut self) -> Vec<EventDraft> {
        let drafts: Vec<EventDraft> = self.waiting.drain(..).flatten().collect();
        assert_eq!(drafts.len(), self.events, "an event that waits is counted");
        self.droppable.clear();
        (self.bytes, self.events) = (0, 0);
        drafts
    }

    fn append(&mut self, drafts: &[EventDraft]) -> Result<(), SinkError> {
        let appended = self.sink.append(drafts);
        self.settle(appended, drafts)
    }

    /// Takes to heart what became of these events.
    fn settle(&mut self, appended: Result<Appended, SinkError>, drafts: &[EventDraft]) -> Result<(), SinkError> {
        match appended.and_then(|at| self.follows(at, drafts).map(|()| at)) {
            Ok(at) => {
                self.last_seq = Some(at.last_seq);
                self.tally.committed += drafts.len() as u64;
                self.tally.commits += 1;
                Ok(())
            }
            Err(error) => {
                self.refusal = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Whether the places that a sink gave come after those before. They need not be the next: a step of the run says what it asks for by
    /// itself, and derived work that is not made is said after the wish for it. A run that goes on after a crash begins anywhere.
    fn follows(&self, at: Appended, drafts: &[EventDraft]) -> Result<(), SinkError> {
        let first = self.last_seq.map_or(1, |last| last.saturating_add(1));
        let least = at.first_seq.saturating_add(drafts.len() as u64 - 1);
        let wishes = drafts.iter().filter(|draft| draft.kind == EventType::Enqueue).count();
        if at.first_seq >= first && (least..=least.saturating_add(wishes as u64)).contains(&at.last_seq) {
            return Ok(());
        }
        let expected = format!("{} places from {first} on", drafts.len());
        Err(SinkError::Failed(format!("expected {expected}, found {} to {}", at.first_seq, at.last_seq)))
    }
}

impl fmt::Debug for Ingest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ingest").field("policy", &self.policy).field("tally", &self.tally).finish_non_exhaustive()
    }
}
