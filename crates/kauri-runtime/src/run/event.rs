//! Events in the store: what a run said, in the order in which it said it.
//!
//! ```text
//! key                        value
//! | run 16 | seq u64be |     | kind u8 | ts i64, little-endian | payload: a MessagePack map |
//! ```
//!
//! The kind is the place of the event's type in the contract's list, from 0. What the envelope has besides follows from the run's row: so
//! it is not kept with every event, and cannot disagree. An event's id is its run's with `#` and its sequence number.

use std::io::Write as _;

use kauri_wire::RunId;
use kauri_wire::pack::{Map, Value};
use kauri_wire::run::{Envelope, Event, EventType, RunFrame};
use serde_json::{Value as Json, json};

use super::artifact::Digest;
use super::draft::PAYLOAD_BYTES_MAX;
use super::fault::RunFault;
use super::index;
use super::make;
use super::row::{Run, chain};
use super::runs::Runs;
use super::share;
use super::sink::EventDraft;
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::json::to_hex;
use crate::read::{Read, View};
use crate::schema::EVENTS;
use crate::substrate::{Bytes, KeyRange, at_most};

/// The version of the contract that events follow.
pub const CONTRACT_VERSION: &str = "0.1.0";

pub(super) fn event_key(run: RunId, seq: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(run.as_bytes());
    key[16..].copy_from_slice(&seq.to_be_bytes());
    key
}

fn code(kind: EventType) -> u8 {
    let at = EventType::ALL.iter().position(|other| *other == kind).expect("all types are listed");
    u8::try_from(at).expect("there are eight")
}

/// The row of a draft, if it is an event that can be kept.
///
/// # Errors
/// `Event` if the payload is not one of its type, `Limit` if it is too long.
pub(super) fn encode(draft: &EventDraft) -> Result<Bytes> {
    let refuse = |error: &dyn ToString| Error::Run(RunFault::Event(error.to_string().into()));
    let payload = Map::decode(&draft.payload).map_err(|error| refuse(&error))?;
    if Value::Map(payload).depth() >= kauri_wire::pack::DEPTH_MAX {
        return Err(refuse(&"expected a payload of 63 levels at most, found more"));
    }
    Event::decode(draft.kind, payload).map_err(|error| refuse(&error))?;
    at_most("bytes of an event's payload", PAYLOAD_BYTES_MAX, draft.payload.len())?;
    let mut row = Vec::with_capacity(9 + draft.payload.len());
    row.push(code(draft.kind));
    row.extend_from_slice(&draft.ts.to_le_bytes());
    row.extend_from_slice(&draft.payload);
    Ok(row.into())
}

/// An event as it is in the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// Its place in the run, from 1.
    pub seq: u64,
    /// What kind of event it is.
    pub kind: EventType,
    /// When it was said, in milliseconds since the Unix epoch.
    pub ts: i64,
    /// What it says: a MessagePack map.
    pub payload: Vec<u8>,
}

pub(super) fn damaged() -> Error {
    Error::damaged("events", "a kind, a moment and a MessagePack map under a run and a number")
}

impl Stored {
    fn decode(key: &[u8], row: &[u8]) -> Result<Self> {
        let seq = key.last_chunk().map(|seq| u64::from_be_bytes(*seq)).ok_or_else(damaged)?;
        let ([kind, ts @ ..], payload) = row.split_first_chunk::<9>().ok_or_else(damaged)?;
        let kind = *EventType::ALL.get(usize::from(*kind)).ok_or_else(damaged)?;
        Ok(Self { seq, kind, ts: i64::from_le_bytes(*ts), payload: payload.to_vec() })
    }

    /// Gives the event in its envelope to `use_it`.
    ///
    /// # Errors
    /// If the payload is damaged.
    pub fn with_envelope<T>(&self, run: &Run, use_it: impl FnOnce(Envelope<'_>) -> T) -> Result<T> {
        let payload = Map::decode(&self.payload).map_err(|_| damaged())?;
        let (run_id, parent) = (run.id.to_string(), run.parent().map(|parent| parent.to_string()));
        let event_id = format!("{run_id}#{}", self.seq);
        Ok(use_it(Envelope {
            contract_version: CONTRACT_VERSION,
            event_id: &event_id,
            run_id: &run_id,
            seq: self.seq,
            event_type: self.kind,
            ts: &iso(self.ts),
            payload,
            attempt: run.attempt(),
            job_id: Some(run.job.as_str()),
            parent_run_id: parent.as_deref(),
        }))
    }

    /// The event in its envelope, as a run frame with its prefix at the end of `out`.
    ///
    /// # Errors
    /// If the event is damaged.
    pub fn append_frame(&self, run: &Run, out: &mut Vec<u8>) -> Result<()> {
        Ok(self.with_envelope(run, |envelope| RunFrame::Event(envelope).append_to(out))??)
    }

    /// The event in its envelope, as JSON.
    ///
    /// # Errors
    /// If the event is damaged.
    pub fn to_json(&self, run: &Run) -> Result<Json> {
        self.with_envelope(run, |envelope| {
            let mut object = json!({
                "contract_version": envelope.contract_version,
                "event_id": envelope.event_id,
                "run_id": envelope.run_id,
                "seq": envelope.seq,
                "type": envelope.event_type.as_str(),
                "ts": envelope.ts,
                "payload": map(&envelope.payload),
                "attempt": envelope.attempt,
                "job_id": envelope.job_id,
            });
            if let Some(parent) = envelope.parent_run_id {
                object["parent_run_id"] = parent.into();
            }
            object
        })
    }
}

/// A moment in ISO 8601, in UTC with milliseconds. One without a date is given in milliseconds.
fn iso(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis)
        .map_or_else(|_| millis.to_string(), |stamp| stamp.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

/// The moment that a text in ISO 8601 names, with `Z` or an offset: in milliseconds since the Unix epoch.
pub(super) fn moment(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

/// A map as JSON.
pub(super) fn map(map: &Map<'_>) -> Json {
    let name = |key: &Value<'_>| match key {
        Value::Str(text) => (*text).to_owned(),
        other => value(other).to_string(),
    };
    Json::Object(map.iter().map(|(key, entry)| (name(&key), value(&entry))).collect())
}

/// A MessagePack value as JSON: bytes in hexadecimal, numbers that JSON has not as text.
fn value(pack: &Value<'_>) -> Json {
    let float = |number: f64| serde_json::Number::from_f64(number).map_or(number.to_string().into(), Json::from);
    match *pack {
        Value::Nil => Json::Null,
        Value::Bool(flag) => flag.into(),
        Value::Uint(number) => number.into(),
        Value::Int(number) => number.into(),
        Value::F32(number) => float(number.into()),
        Value::F64(number) => float(number),
        Value::Str(text) => text.into(),
        Value::Bin(bytes) => json!({ "hex": to_hex(bytes) }),
        Value::Array(array) => array.iter().map(|item| value(&item)).collect(),
        Value::Map(inner) => map(&inner),
        Value::Ext(kind, bytes) => match pack.as_timestamp() {
            Some((seconds, nanos)) => json!({ "seconds": seconds, "nanos": nanos }),
            None => json!({ "ext": kind, "hex": to_hex(bytes) }),
        },
    }
}

/// The key of a run's next event, which it has then; and the rows that say which artifact it names, if it names one.
pub(super) fn add(run: &mut Run, row: &[u8]) -> ([u8; 24], Option<[Bytes; 2]>) {
    run.events += 1;
    run.hash = chain(&run.hash, run.events, row);
    run.bytes = run.bytes.saturating_add(row.len() as u64);
    let named = artifact(row);
    if let Some((_, size_bytes)) = named {
        run.bytes = run.bytes.saturating_add(size_bytes);
        run.artifact_bytes = run.artifact_bytes.saturating_add(size_bytes);
    }
    let marks = |(digest, _)| [index::artifact(&digest, run.id), index::artifact_of(run.id, &digest)];
    (event_key(run.id, run.events), named.map(marks))
}

/// The artifact that an event's row names, and its length.
pub(super) fn artifact(row: &[u8]) -> Option<(Digest, u64)> {
    if EventType::ALL.get(usize::from(*row.first()?)) != Some(&EventType::Artifact) {
        return None;
    }
    let payload = Map::decode(row.get(9..)?).ok()?;
    let size_bytes = payload.get("size_bytes").and_then(|size| size.as_uint()).unwrap_or(0);
    Digest::named_in(payload).map(|digest| (digest, size_bytes))
}

/// Stages a run's next event.
pub(super) fn stage(block: &mut Atomic<'_>, run: &mut Run, row: &[u8]) -> Result<()> {
    stage_bytes(block, run, row.into())
}

/// The same, of a row that is the block's from now on.
pub(super) fn stage_bytes(block: &mut Atomic<'_>, run: &mut Run, row: Bytes) -> Result<()> {
    let (key, named) = add(run, &row);
    block.stage_bytes(&EVENTS, key.into(), Some(row))?;
    named.iter().flatten().try_for_each(|named| make::mark(block, named))
}

/// Up to `most` events of a run from this number on.
pub(super) fn read(rows: &impl Read, run: RunId, from: u64, most: usize) -> Result<Vec<Stored>> {
    let mut found = Vec::new();
    if most == 0 {
        return Ok(found);
    }
    each(rows, run, from, |key, row| {
        found.push(Stored::decode(key, row)?);
        Ok(found.len() < most)
    })?;
    Ok(found)
}

/// Gives the rows of events to `take`, from this number on, as long as it wants more.
fn each(rows: &impl Read, run: RunId, from: u64, mut take: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<()> {
    let (from, last) = (event_key(run, from), event_key(run, u64::MAX));
    let mut scan = rows.rows(&EVENTS, KeyRange { from: &from, until: Some(&last) })?;
    while let Some((key, row)) = scan.next()? {
        if !take(key, &row)? {
            break;
        }
    }
    Ok(())
}

/// Whether the events of a run are what its row says: numbers without a gap from 1 to the last, and the hash over them.
pub(super) fn is_whole(rows: &impl Read, run: &Run) -> Result<bool> {
    let (mut hash, mut last, mut is_contiguous) = ([0; 32], 0, true);
    each(rows, run.id, 0, |key, row| {
        last += 1;
        is_contiguous &= key == event_key(run.id, last);
        hash = chain(&hash, last, row);
        Ok(true)
    })?;
    Ok(is_contiguous && last == run.events && hash == run.hash)
}

impl Runs {
    /// Up to `most` events of a run, from this number on; none if they are kept no longer, as [`removed`](Self::removed) tells.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or a row is damaged.
    pub fn events(&self, run: RunId, from: u64, most: usize) -> Result<Vec<Stored>> {
        self.read(|view| {
            make::run(view, run)?;
            if share::removed(view, run)?.events { Ok(Vec::new()) } else { read(view, run, from, most) }
        })
    }

    /// Whether the events of a run are what its row says: numbers without a gap, and the hash over all of them.
    ///
    /// # Errors
    /// `NoRun`, `EventsRemoved` if they are kept no longer, or if the substrate fails or the run's row is damaged.
    pub fn verify(&self, run: RunId) -> Result<bool> {
        self.read(|view| {
            let row = make::run(view, run)?;
            share::check_events(view, run)?;
            is_whole(view, &row)
        })
    }

    /// Writes all events of a run in their envelopes, one JSON object a line, as they are in one version of the store. Answers how
    /// many.
    ///
    /// # Errors
    /// `NoRun`, `EventsRemoved` if they are kept no longer, `Io` if they cannot be written, or if the substrate fails or a row is damaged.
    pub fn export(&self, run: RunId, out: &mut dyn std::io::Write) -> Result<u64> {
        self.read(|view: &View<'_>| {
            let row = make::run(view, run)?;
            share::check_events(view, run)?;
            let mut out = std::io::BufWriter::new(out);
            let mut count = 0;
            each(view, run, 0, |key, value| {
                let line = Stored::decode(key, value)?.to_json(&row)?;
                serde_json::to_writer(&mut out, &line).map_err(std::io::Error::from)?;
                out.write_all(b"\n")?;
                count += 1;
                Ok(true)
            })?;
            out.flush()?;
            Ok(count)
        })
    }
}
