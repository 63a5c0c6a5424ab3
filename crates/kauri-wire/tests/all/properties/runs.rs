//! Run frames: random envelopes and frame kinds, in any order of keys.

use kauri_wire::pack::{Map, MapBuf, Value};
use kauri_wire::run::{
    ArtifactChunk, Envelope, EventType, FileWrite, FileWriteAck, Frames, RunFrame, RunResult, RunStatus,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// The parts of an envelope, owned.
#[derive(Clone, Debug)]
struct Parts {
    names: [String; 4],
    seq: u64,
    event_type: EventType,
    attempt: u32,
    lineage: [Option<String>; 2],
    payload: MapBuf,
}

impl Parts {
    fn envelope(&self) -> Envelope<'_> {
        let [contract_version, event_id, run_id, ts] = self.names.each_ref().map(String::as_str);
        let [job_id, parent_run_id] = self.lineage.each_ref().map(Option::as_deref);
        let (seq, event_type, attempt, payload) = (self.seq, self.event_type, self.attempt, self.payload.view());
        Envelope { contract_version, event_id, run_id, seq, event_type, ts, payload, attempt, job_id, parent_run_id }
    }
}

prop_compose! {
    fn parts()(
        names in [name(), name(), name(), name()],
        seq in 1..=u64::MAX,
        event_type in select(EventType::ALL),
        attempt in 1..=u32::MAX,
        lineage in [option::of(name()), option::of(name())],
        payload in vec(("[a-z_]{1,12}", any::<u64>()), 0..6),
    ) -> Parts {
        let mut map = MapBuf::new();
        for (key, value) in &payload {
            map.put(key, *value);
        }
        Parts { names, seq, event_type, attempt, lineage, payload: map }
    }
}

fn name() -> impl Strategy<Value = String> + Clone {
    "\\PC{1,40}"
}

/// The fields of an envelope as they stand in a map; absent ones as nil, which means the same.
fn fields<'a>(envelope: &Envelope<'a>) -> Vec<(&'a str, Value<'a>)> {
    let optional = |name: Option<&'a str>| name.map_or(Value::Nil, Value::from);
    vec![
        ("contract_version", envelope.contract_version.into()),
        ("event_id", envelope.event_id.into()),
        ("run_id", envelope.run_id.into()),
        ("seq", envelope.seq.into()),
        ("type", envelope.event_type.as_str().into()),
        ("ts", envelope.ts.into()),
        ("payload", envelope.payload.into()),
        ("attempt", envelope.attempt.into()),
        ("job_id", optional(envelope.job_id)),
        ("parent_run_id", optional(envelope.parent_run_id)),
    ]
}

fn body(fields: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut map = MapBuf::new();
    for (key, value) in fields {
        map.put(key, *value);
    }
    map.view().encode()
}

/// A frame is read as it was before it was written, alone and among others.
fn check(frame: RunFrame<'_>) -> Result<(), TestCaseError> {
    let bytes = crate::samples::encode(frame);
    let pipe = bytes.repeat(3);
    prop_assert_eq!(Frames::new(&pipe).collect::<Vec<_>>(), [Ok(frame); 3]);
    prop_assert_eq!(RunFrame::decode(&bytes[4..]), Ok(frame));
    Ok(())
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn events_survive_the_trip(parts in parts()) {
        check(RunFrame::Event(parts.envelope()))?;
    }

    #[test]
    fn keys_in_any_order_and_among_unknown_ones_are_read(
        parts in parts(),
        unknown in vec("[A-Z]{1,8}", 0..4),
        places in vec(any::<usize>(), 16),
    ) {
        let envelope = parts.envelope();
        let mut rest = fields(&envelope);
        rest.extend(unknown.iter().map(|key| (key.as_str(), Value::Map(Map::EMPTY))));
        let mut shuffled = Vec::new();
        for place in places.iter().take(rest.len()) {
            shuffled.push(rest.swap_remove(place % rest.len()));
        }
        let body = body(&shuffled);
        prop_assert_eq!(RunFrame::decode(&body), Ok(RunFrame::Event(envelope)));
    }

    #[test]
    fn a_missing_or_doubled_key_is_refused(parts in parts(), index in 0..10_usize) {
        let envelope = parts.envelope();
        let all = fields(&envelope);
        let doubled = [&all[..], &all[index..=index]].concat();
        let error = RunFrame::decode(&body(&doubled)).unwrap_err();
        prop_assert!(error.expected.starts_with(all[index].0), "{}", error);
        let mut without = all.clone();
        let (missing, _) = without.remove(index);
        match RunFrame::decode(&body(&without)) {
            Ok(_) => prop_assert!(index >= 8, "{} is not optional", missing),
            Err(error) => prop_assert!(index < 8 && error.expected.starts_with(missing), "{}", error),
        }
    }

    #[test]
    fn other_frames_survive_the_trip(
        names in [name(), name()],
        number in 1..=u64::MAX,
        bit: bool,
        data in vec(any::<u8>(), 0..300),
        texts in [option::of("\\PC{0,40}"), option::of("\\PC{0,40}"), option::of("\\PC{0,40}")],
        status in select(RunStatus::ALL),
        proxy in option::of("\\PC{0,40}"),
    ) {
        let [name, other] = names.each_ref().map(String::as_str);
        let [first, second, third] = texts.each_ref().map(Option::as_deref);
        let mut map = MapBuf::new();
        map.put_some("host", proxy.as_deref());
        check(RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: name, seq: number, is_last: bit, data: &data }))?;
        check(RunFrame::FileWrite(FileWrite { write_id: number, filename: name, content_type: other, data: &data }))?;
        check(RunFrame::FileWriteAck(FileWriteAck { write_id: number, ok: bit, error: first }))?;
        check(RunFrame::RunResult(RunResult {
            status,
            message: first,
            error_type: second,
            stack: third,
            proxy_used: proxy.is_some().then(|| map.view()),
        }))?;
    }
}
