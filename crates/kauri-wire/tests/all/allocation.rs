//! Decoders allocate nothing, whatever the bytes say.

use std::hint::black_box;

use kauri_wire::pack::{Map, Value};
use kauri_wire::run::{Event, EventType, FRAME_BYTES_MAX, FileWriteAck, Frames, PREFIX_BYTES, RunFrame, frame_length};
use kauri_wire::{
    InboxKey, IntentRef, JobId, Key, MessageRef, RetryKey, RunId, SchemaVersion, Seq, TimerKey, Timestamp, WorkerId,
};

use crate::samples::{intents, messages, run_frames};

/// What `work` returns, and that it allocated nothing on the way.
fn check<T>(work: impl FnOnce() -> T) -> T {
    let mut result = None;
    let info = allocation_counter::measure(|| result = Some(black_box(work())));
    assert_eq!(info.count_total, 0, "{info:?}");
    result.unwrap()
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocation_counter::measure(|| drop(black_box(vec![1_u8]))).count_total, 1);
}

#[test]
fn messages_and_intents_are_read_in_place() {
    for message in messages() {
        let frame = message.encode().unwrap();
        assert_eq!(check(|| MessageRef::decode(&frame)).unwrap().to_message(), message);
        let mut buffer = vec![0; frame.len()];
        assert_eq!(check(|| message.encode_into(&mut buffer)), Ok(frame.len()));
        for cut in 0..frame.len() {
            check(|| MessageRef::decode(&frame[..cut])).unwrap_err();
        }
    }
    for intent in intents() {
        let frame = intent.encode().unwrap();
        assert_eq!(check(|| IntentRef::decode(&frame)).unwrap().to_intent(), intent);
        for cut in 0..frame.len() {
            check(|| IntentRef::decode(&frame[..cut])).unwrap_err();
        }
    }
}

#[test]
fn run_frames_are_read_in_place() {
    let pipe = run_frames().concat();
    assert_eq!(check(|| Frames::new(&pipe).filter(Result::is_ok).count()), 14);
    for frame in run_frames() {
        let body = &frame[PREFIX_BYTES..];
        let map = check(|| Map::decode(body)).unwrap();
        check(|| map.iter().count() + map.get("nowhere").iter().count());
        if let RunFrame::Event(envelope) = check(|| RunFrame::decode(body)).unwrap() {
            check(|| envelope.event()).unwrap();
            for &event_type in EventType::ALL {
                let _read_or_refused = check(|| Event::decode(event_type, envelope.payload));
            }
        }
        for cut in 0..body.len() {
            check(|| RunFrame::decode(&body[..cut])).unwrap_err();
        }
    }
}

#[test]
fn lengths_that_somebody_made_up_take_no_room() {
    let mut message = messages()[1].encode().unwrap();
    let mut intent = intents()[0].encode().unwrap();
    for at in [8, 48, 52, 56] {
        let kept: Vec<u8> = message.splice(at..at + 4, [0xff; 4]).collect();
        check(|| MessageRef::decode(&message)).unwrap_err();
        message.splice(at..at + 4, kept);
    }
    for at in [8, 24, 28 + 8, 28 + 48, 28 + 52, 28 + 56] {
        let kept: Vec<u8> = intent.splice(at..at + 4, [0xff; 4]).collect();
        check(|| IntentRef::decode(&intent)).unwrap_err();
        intent.splice(at..at + 4, kept);
    }
    // Each marker of a long string, bytes, extension, array or map, as a map and as a value in one.
    for marker in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
        let value = [0x81, 0xa1, b'k', marker, 0xff, 0xff, 0xff, 0xff, 0];
        check(|| Map::decode(&value)).unwrap_err();
        check(|| RunFrame::decode(&value[3..])).unwrap_err();
    }
    for prefix in [[0xff; 4], [0; 4], [0, 0xff, 0xff, 0xfc]] {
        check(|| Frames::new(&prefix).next()).unwrap().unwrap_err();
        let _read_or_refused = check(|| frame_length(prefix));
    }
    let deep = [0x91; 5000];
    check(|| Map::decode(&deep)).unwrap_err();
}

#[test]
fn text_that_no_frame_can_hold_is_refused_before_it_is_copied() {
    let long = "x".repeat(FRAME_BYTES_MAX);
    let ack = RunFrame::FileWriteAck(FileWriteAck { write_id: 1, ok: false, error: Some(&long) });
    let mut out = Vec::new();
    check(|| ack.append_to(&mut out)).unwrap_err();
}

#[test]
fn keys_and_markers_are_read_in_place() {
    /// A good key, and each cut of it.
    fn check_key<K: Key>(key: K::Ref<'_>) {
        let bytes = K::encode(key);
        assert!(check(|| K::decode(&bytes).is_ok()));
        for cut in 0..bytes.len() {
            check(|| drop(black_box(K::decode(&bytes[..cut]))));
        }
        assert!(check(|| K::compare(&bytes, &bytes).is_eq()));
    }
    let run = RunId::from_parts(Timestamp(1), [7; 10]);
    check_key::<u8>(1);
    check_key::<i128>(-1);
    check_key::<bool>(true);
    check_key::<WorkerId>(WorkerId(-1));
    check_key::<Timestamp>(Timestamp(-1));
    check_key::<InboxKey>(InboxKey { worker: WorkerId(1), seq: Seq(2) });
    check_key::<TimerKey>(TimerKey { due: Timestamp(-1), seq: Seq(2) });
    check_key::<RunId>(run);
    let job = JobId::new("job").unwrap();
    check_key::<JobId>(&job);
    check_key::<RetryKey>(b"message");
    check_key::<(String, Vec<u8>)>(("plain", b"bytes"));
    check_key::<(JobId, RunId, u32, i8, String, Vec<u8>)>((&job, run, 1, -1, "", b""));
    let text = run.to_string();
    assert_eq!(check(|| text.parse()), Ok(run));
    check(|| text[1..].parse::<RunId>()).unwrap_err();
    check(|| SchemaVersion::decode(&text.as_bytes()[..8])).unwrap_err();
    check(|| Value::Ext(-1, &text.as_bytes()[..8]).as_timestamp());
}
