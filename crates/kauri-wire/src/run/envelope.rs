//! The envelope around every event of a run.

use crate::error::{self, Found, WireError};
use crate::pack::{Map, MapBuf};
use crate::run::event::{Event, EventType};
use crate::run::fields::{Spec, pick};
use crate::run::frame::check_texts;

/// One event of a run and where it belongs.
///
/// The payload stays as it came, unknown keys and all; [`event`](Self::event) reads it as its type says. Ids are text here,
/// because other writers choose their own; ours are [`RunId`](crate::RunId)s.
///
/// ```
/// use kauri_wire::pack::MapBuf;
/// use kauri_wire::run::{Envelope, EventType, Frames, RunFrame};
///
/// let mut payload = MapBuf::new();
/// payload.put("checkpoint_id", "half-way").put("ours", 7_u64); // a key that nobody else knows
/// let envelope = Envelope {
///     contract_version: "0.1.0",
///     event_id: "event-1",
///     run_id: "run-1",
///     seq: 1,
///     event_type: EventType::Checkpoint,
///     ts: "2026-11-15T10:00:00.000Z",
///     payload: payload.view(),
///     attempt: 1,
///     job_id: Some("import"),
///     parent_run_id: None,
/// };
/// let mut pipe = Vec::new();
/// RunFrame::Event(envelope).append_to(&mut pipe)?;
/// let Some(Ok(RunFrame::Event(read))) = Frames::new(&pipe).next() else { panic!("an event was written") };
/// assert_eq!(read, envelope); // the unknown key too
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Envelope<'a> {
    /// The version of the contract that the writer follows.
    pub contract_version: &'a str,
    /// The event's id, unique within its run.
    pub event_id: &'a str,
    /// The run.
    pub run_id: &'a str,
    /// The event's place in the run, from 1 without a gap.
    pub seq: u64,
    /// What kind of event it is.
    pub event_type: EventType,
    /// When it was said, in ISO 8601.
    pub ts: &'a str,
    /// What it says.
    pub payload: Map<'a>,
    /// The ordinal of the run within its job, from 1.
    pub attempt: u32,
    /// The job, where it is known.
    pub job_id: Option<&'a str>,
    /// The run that this one is a retry or a child of.
    pub parent_run_id: Option<&'a str>,
}

const SPECS: [Spec; 10] = [
    ("contract_version", "contract_version: a non-empty string"),
    ("event_id", "event_id: a non-empty string"),
    ("run_id", "run_id: a non-empty string"),
    ("seq", "seq: an integer of 1 or more"),
    ("type", "type: one of the eight event types"),
    ("ts", "ts: a non-empty string"),
    ("payload", "payload: a map"),
    ("attempt", "attempt: an integer from 1 to 4294967295"),
    ("job_id", "job_id: a non-empty string or nil"),
    ("parent_run_id", "parent_run_id: a non-empty string or nil"),
];

impl<'a> Envelope<'a> {
    /// The payload, typed.
    ///
    /// ```
    /// use kauri_wire::pack::MapBuf;
    /// use kauri_wire::run::{Envelope, Event, EventType};
    ///
    /// let mut payload = MapBuf::new();
    /// payload.put("checkpoint_id", "half-way");
    /// # let (contract_version, event_id, run_id, ts) = ("0.1.0", "event-1", "run-1", "2026-11-15T10:00:00.000Z");
    /// # let envelope = |event_type| Envelope {
    /// #     contract_version, event_id, run_id, seq: 1, event_type, ts, payload: payload.view(), attempt: 1, job_id: None, parent_run_id: None,
    /// # };
    /// let good = envelope(EventType::Checkpoint);
    /// assert_eq!(good.event()?, Event::Checkpoint { checkpoint_id: "half-way", note: None });
    /// assert!(envelope(EventType::Log).event().is_err()); // it has no level and no message
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `Format` if the payload is not one of its type.
    pub fn event(&self) -> Result<Event<'a>, WireError> {
        Event::decode(self.event_type, self.payload)
    }

    pub(crate) fn from_map(map: Map<'a>) -> Result<Self, WireError> {
        let [contract_version, event_id, run_id, seq, event_type, ts, payload, attempt, job_id, parent_run_id] =
            pick(map, SPECS)?;
        Ok(Self {
            contract_version: contract_version.name()?,
            event_id: event_id.name()?,
            run_id: run_id.name()?,
            seq: seq.at_least(1)?,
            event_type: event_type.word(EventType::from_word)?,
            ts: ts.name()?,
            payload: payload.map()?,
            attempt: attempt.small_at_least(1)?,
            job_id: job_id.optional_name()?,
            parent_run_id: parent_run_id.optional_name()?,
        })
    }

    /// The envelope as a map, refused if a reader would refuse it.
    pub(crate) fn to_map(self) -> Result<MapBuf, WireError> {
        self.check()?;
        let mut map = MapBuf::new();
        map.put("contract_version", self.contract_version)
            .put("event_id", self.event_id)
            .put("run_id", self.run_id)
            .put("seq", self.seq)
            .put("type", self.event_type.as_str())
            .put("ts", self.ts)
            .put("payload", self.payload)
            .put("attempt", self.attempt)
            .put_some("job_id", self.job_id)
            .put_some("parent_run_id", self.parent_run_id);
        Ok(map)
    }

    fn check(&self) -> Result<(), WireError> {
        let names = [self.contract_version, self.event_id, self.run_id, self.ts];
        let optional = [self.job_id, self.parent_run_id].map(|name| name.unwrap_or("none"));
        if names.iter().chain(&optional).any(|name| name.is_empty()) {
            return Err(error::invalid("ids, version and ts that are not empty", Found::Type("an empty string")));
        }
        check_texts(&names.map(Some))?;
        check_texts(&[self.job_id, self.parent_run_id])?;
        if self.seq == 0 || self.attempt == 0 {
            return Err(error::invalid("seq and attempt of 1 or more", error::number(0)));
        }
        if self.payload_is_too_deep() {
            return Err(error::invalid("a payload of 63 levels at most", Found::Type("a deeper one")));
        }
        Ok(())
    }

    fn payload_is_too_deep(&self) -> bool {
        crate::pack::Value::Map(self.payload).depth() >= crate::pack::DEPTH_MAX
    }
}
