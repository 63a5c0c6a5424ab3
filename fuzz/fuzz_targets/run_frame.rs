//! Run frames: a pipe of them, one without its prefix, and events by their type.
#![no_main]

use kauri_fuzz::allocation;
use kauri_wire::pack::Map;
use kauri_wire::run::{Event, EventType, Frames, RunFrame};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut frames = Frames::new(bytes);
    while let Some(frame) = allocation::without(|| frames.next()) {
        match frame {
            Ok(frame) => check(&frame),
            Err(error) => assert!(error.at <= bytes.len(), "{error}"),
        }
    }
    match allocation::without(|| RunFrame::decode(bytes)) {
        Ok(frame) => check(&frame),
        Err(error) => assert!(error.at <= bytes.len(), "{error}"),
    }
    if let Ok(payload) = Map::decode(bytes) {
        EventType::ALL.iter().for_each(|&event_type| check_event(event_type, payload));
    }
});

/// What was read survives being written.
fn check(frame: &RunFrame<'_>) {
    let mut again = Vec::new();
    frame.append_to(&mut again).expect("a frame that was read can be written");
    assert_eq!(Frames::new(&again).collect::<Vec<_>>(), [Ok(*frame)]);
    if let RunFrame::Event(envelope) = frame {
        check_event(envelope.event_type, envelope.payload);
    }
}

fn check_event(event_type: EventType, payload: Map<'_>) {
    if let Ok(event) = allocation::without(|| Event::decode(event_type, payload)) {
        assert_eq!(event.event_type(), event_type);
        assert_eq!(Event::decode(event_type, event.payload().view()), Ok(event));
    }
}
