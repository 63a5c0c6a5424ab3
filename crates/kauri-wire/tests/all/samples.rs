//! Values and frames that several modules look at.

use kauri_wire::pack::{ArrayBuf, MapBuf};
use kauri_wire::run::{
    ArtifactChunk, Envelope, Event, EventType, FileWrite, FileWriteAck, Level, RunFrame, RunResult, RunStatus,
    StepAnswer, StepRequest, StepStatus, StepWish,
};
use kauri_wire::{Flags, Intent, Message, MessageId, Timestamp, TraceId, WorkerId};

/// The bytes that these hexadecimal digits stand for.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "half a byte in {digits}");
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// Small messages: the least one, one with all that a message can have, one with an empty trace.
pub(crate) fn messages() -> Vec<Message> {
    let least = Message::command(WorkerId(0), MessageId::new("m").unwrap(), "");
    let full = Message::timer(WorkerId(-5), MessageId::new("abcd").unwrap(), "hello")
        .sent_by(WorkerId(8))
        .traced(TraceId::new("xyz"))
        .routed(WorkerId(6), Timestamp(7))
        .with(Flags::DURABLE | Flags::HIGH_PRIORITY | Flags::DEDUPE_REQUIRED | Flags::REQUIRES_ACK);
    let empty_trace = Message::event(WorkerId(i64::MIN), MessageId::new([0, 0xff]).unwrap(), [0; 3])
        .sent_by(WorkerId(0))
        .traced(TraceId::new(""));
    vec![least, full, empty_trace]
}

/// Small intents: an emit, and timers around the epoch.
pub(crate) fn intents() -> Vec<Intent> {
    let [least, full, empty_trace] = messages().try_into().unwrap();
    vec![
        Intent::Emit { message: full },
        Intent::Arm { due: Timestamp(0), message: least },
        Intent::Arm { due: Timestamp(-9), message: empty_trace },
    ]
}

/// An event of each type and a frame of each other kind, encoded.
pub(crate) fn run_frames() -> Vec<Vec<u8>> {
    let mut tags = ArrayBuf::new();
    tags.push("a").push(-1_i64).push(0.5).push(u64::MAX);
    let mut data = MapBuf::new();
    data.put("tags", tags.view()).put("ok", true).put("raw", &b"\0\xff"[..]);
    let data = data.view();
    let some = Some("word");
    let events = [
        Event::Item { item_type: "product", data },
        Event::Artifact { artifact_id: "a", name: "b.png", content_type: "image/png", size_bytes: 300 },
        Event::Checkpoint { checkpoint_id: "half", note: some },
        Event::Enqueue { target: "detail", params: data, source: some, category: None },
        Event::RotateProxy { reason: some },
        Event::Log { level: Level::Warn, message: "", fields: Some(data) },
        Event::RunError { error_type: "script_error", message: "no page", stack: some },
        Event::RunComplete { summary: Some(data) },
    ];
    let mut frames: Vec<_> = events.iter().map(|event| encode(event_frame(event, event.payload().view()))).collect();
    let outcome =
        RunResult { status: RunStatus::Crash, message: some, error_type: None, stack: some, proxy_used: Some(data) };
    let enqueue = StepRequest::new(8, StepWish::Enqueue, "pages");
    frames.extend([
        encode(RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "a", seq: 1, is_last: true, data: b"png" })),
        encode(RunFrame::FileWrite(FileWrite { write_id: 7, filename: "f", content_type: "t", data: b"" })),
        encode(RunFrame::FileWriteAck(FileWriteAck { write_id: 7, ok: false, error: some })),
        encode(RunFrame::RunResult(outcome)),
        encode(RunFrame::StepRequest(StepRequest { text: some, params: Some(data), ..enqueue })),
        encode(RunFrame::StepAnswer(StepAnswer {
            request_id: 8,
            status: StepStatus::Done,
            data: Some(b"\0"),
            text: some,
        })),
    ]);
    frames
}

fn event_frame<'a>(event: &Event<'_>, payload: kauri_wire::pack::Map<'a>) -> RunFrame<'a> {
    RunFrame::Event(Envelope { event_type: event.event_type(), payload, ..envelope() })
}

/// An envelope around nothing.
pub(crate) fn envelope() -> Envelope<'static> {
    Envelope {
        contract_version: "0.1.0",
        event_id: "e",
        run_id: "r",
        seq: 1,
        event_type: EventType::RunComplete,
        ts: "2024-01-15T10:00:00.000Z",
        payload: kauri_wire::pack::Map::EMPTY,
        attempt: 1,
        job_id: Some("j"),
        parent_run_id: None,
    }
}

/// The frame's bytes, prefix and all.
pub(crate) fn encode(frame: RunFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    frame.append_to(&mut out).unwrap();
    out
}
