//! Events as they are made: checked, and encoded once.

use kauri_wire::pack::{DEPTH_MAX, Map, Value};
use kauri_wire::run::{Event, EventType, FRAME_BYTES_MAX, PREFIX_BYTES};
use kauri_wire::{Found, WireError, WireErrorKind};

use super::sink::EventDraft;

/// What the longest envelope needs beside its payload, and more.
const ENVELOPE_BYTES: usize = 4 << 10;

/// The longest payload of an event: with its envelope it still is a run frame.
pub const PAYLOAD_BYTES_MAX: usize = FRAME_BYTES_MAX - PREFIX_BYTES - ENVELOPE_BYTES;

/// How deep the maps inside a payload may be: a payload is in an envelope, and they are in a payload.
const INNER_DEPTH_MAX: usize = DEPTH_MAX - 2;

impl EventDraft {
    /// An event that says this.
    ///
    /// # Errors
    /// If a reader of events would refuse it: a name is empty, something is nested too deep or too long.
    ///
    /// ```
    /// use kauri_runtime::run::EventDraft;
    /// use kauri_wire::run::Event;
    ///
    /// let draft = EventDraft::new(&Event::Checkpoint { checkpoint_id: "half", note: None }, 1_780_000_000_000)?;
    /// assert_eq!(draft.payload, b"\x81\xadcheckpoint_id\xa4half");
    /// assert!(EventDraft::new(&Event::Checkpoint { checkpoint_id: "", note: None }, 0).is_err());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    pub fn new(event: &Event<'_>, ts: i64) -> Result<Self, WireError> {
        check_texts(event)?;
        check_depth(event)?;
        Self::from_payload(event.event_type(), event.payload().view(), ts)
    }

    /// An event with this payload, unknown keys and all.
    ///
    /// # Errors
    /// As for `new`, and if it is no payload of this kind.
    pub fn from_payload(kind: EventType, payload: Map<'_>, ts: i64) -> Result<Self, WireError> {
        if Value::Map(payload).depth() >= DEPTH_MAX {
            return Err(too_deep());
        }
        Event::decode(kind, payload)?;
        let mut payload = payload.encode();
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(too_long(payload.len()));
        }
        payload.shrink_to_fit();
        Ok(Self { kind, ts, payload })
    }

    /// What it holds in memory.
    pub(crate) const fn bytes(&self) -> usize {
        self.payload.capacity() + size_of::<Self>()
    }

    /// What it says.
    pub(crate) fn map(&self) -> Map<'_> {
        Map::decode(&self.payload).expect("the payload of a draft was checked when it was made")
    }
}

/// Text that no frame can hold is refused before it is copied.
fn check_texts(event: &Event<'_>) -> Result<(), WireError> {
    let bytes = texts(event).iter().flatten().fold(0_usize, |sum, text| sum.saturating_add(text.len()));
    if bytes > PAYLOAD_BYTES_MAX { Err(too_long(bytes)) } else { Ok(()) }
}

fn texts<'a>(event: &Event<'a>) -> [Option<&'a str>; 3] {
    match *event {
        Event::Item { item_type, .. } => [Some(item_type), None, None],
        Event::Artifact { artifact_id, name, content_type, .. } => [Some(artifact_id), Some(name), Some(content_type)],
        Event::Checkpoint { checkpoint_id, note } => [Some(checkpoint_id), note, None],
        Event::Enqueue { target, source, category, .. } => [Some(target), source, category],
        Event::RotateProxy { reason } => [reason, None, None],
        Event::Log { message, .. } => [Some(message), None, None],
        Event::RunError { error_type, message, stack } => [Some(error_type), Some(message), stack],
        Event::RunComplete { .. } => [None; 3],
    }
}

fn check_depth(event: &Event<'_>) -> Result<(), WireError> {
    let inner = match *event {
        Event::Item { data: map, .. } | Event::Enqueue { params: map, .. } => Some(map),
        Event::Log { fields: map, .. } | Event::RunComplete { summary: map } => map,
        _ => None,
    };
    match inner {
        Some(map) if Value::Map(map).depth() > INNER_DEPTH_MAX => Err(too_deep()),
        _ => Ok(()),
    }
}

fn too_long(bytes: usize) -> WireError {
    let found = Found::Length(bytes as u64);
    WireError { at: 0, expected: "a payload of 16773116 bytes at most", found, kind: WireErrorKind::TooBig }
}

fn too_deep() -> WireError {
    let found = Found::Type("a deeper one");
    WireError { at: 0, expected: "a payload of 63 levels at most", found, kind: WireErrorKind::Invalid }
}

const _: () = assert!(PAYLOAD_BYTES_MAX == 16_773_116, "an error names the number");

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_wire::pack::MapBuf;
    use kauri_wire::run::{Envelope, Frames, Level, RunFrame};

    fn nested(levels: usize) -> MapBuf {
        let mut map = MapBuf::new();
        for _ in 1..levels {
            let mut outer = MapBuf::new();
            outer.put("in", map.view());
            map = outer;
        }
        map
    }

    #[test]
    fn whatever_becomes_a_draft_fits_into_a_frame_and_what_does_not_is_refused() {
        let deepest = nested(INNER_DEPTH_MAX);
        let longest = "x".repeat(PAYLOAD_BYTES_MAX - 64);
        let events = [
            Event::Item { item_type: "page", data: deepest.view() },
            Event::RunComplete { summary: Some(deepest.view()) },
            Event::Log { level: Level::Info, message: &longest, fields: None },
        ];
        for event in events {
            let draft = EventDraft::new(&event, 7).unwrap();
            let envelope = Envelope {
                contract_version: "0.1.0",
                event_id: "018bcfe5-6800-7707-8707-070707070707",
                run_id: "018bcfe5-6800-7707-8707-070707070707",
                seq: u64::MAX,
                event_type: draft.kind,
                ts: "2026-11-15T10:00:00.000Z",
                payload: draft.map(),
                attempt: u32::MAX,
                job_id: Some(&"j".repeat(128)),
                parent_run_id: Some("018bcfe5-6800-7707-8707-070707070707"),
            };
            let mut pipe = Vec::new();
            RunFrame::Event(envelope).append_to(&mut pipe).unwrap();
            assert_eq!(Frames::new(&pipe).collect::<Vec<_>>(), [Ok(RunFrame::Event(envelope))]);
        }

        for levels in INNER_DEPTH_MAX + 1..=DEPTH_MAX {
            let deeper = nested(levels);
            let error = EventDraft::new(&Event::Item { item_type: "page", data: deeper.view() }, 7).unwrap_err();
            assert_eq!(error.kind, WireErrorKind::Invalid);
        }
        let longer = "x".repeat(PAYLOAD_BYTES_MAX);
        let log = Event::Log { level: Level::Info, message: &longer, fields: None };
        assert_eq!(EventDraft::new(&log, 7).unwrap_err().kind, WireErrorKind::TooBig);
    }

    #[test]
    fn empty_names_are_refused_in_every_kind_of_event() {
        let none = Map::EMPTY;
        let events = [
            Event::Item { item_type: "", data: none },
            Event::Artifact { artifact_id: "a", name: "", content_type: "t", size_bytes: 0 },
            Event::Checkpoint { checkpoint_id: "", note: None },
            Event::Enqueue { target: "", params: none, source: None, category: None },
            Event::RunError { error_type: "", message: "", stack: None },
        ];
        for event in events {
            assert_eq!(EventDraft::new(&event, 7).unwrap_err().kind, WireErrorKind::Format, "{event:?}");
        }
    }
}
