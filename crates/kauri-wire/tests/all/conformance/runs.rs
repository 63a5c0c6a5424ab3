//! `run_ipc/*.bin`: run frames of another implementation, with every field written out.

use kauri_wire::WireErrorKind;
use kauri_wire::pack::{ArrayBuf, Map, MapBuf};
use kauri_wire::run::{ArtifactChunk, Envelope, Event, EventType, Frames, Level, PREFIX_BYTES, RunFrame};

/// What a frame of a file must be.
enum Expected<'a> {
    /// An event; the envelope's own type and payload are ignored and taken from it.
    Event(Envelope<'a>, Event<'a>),
    /// Part of an artifact.
    Chunk(ArtifactChunk<'a>),
}

/// Decodes a file frame by frame, encodes each frame again, and cuts the file at every byte.
fn check(file: &[u8], body_bytes: &[usize], expected: &[Expected<'_>]) {
    let frames: Vec<_> = Frames::new(file).map(|frame| frame.unwrap_or_else(|error| panic!("{error}"))).collect();
    assert_eq!((frames.len(), body_bytes.len()), (expected.len(), expected.len()));
    assert_eq!(file.len(), body_bytes.iter().map(|bytes| bytes + PREFIX_BYTES).sum::<usize>());
    for (frame, expected) in frames.iter().zip(expected) {
        check_frame(frame, expected);
    }
    let mut again = Vec::new();
    for frame in &frames {
        frame.append_to(&mut again).unwrap();
    }
    assert_eq!(Frames::new(&again).collect::<Result<Vec<_>, _>>().as_ref(), Ok(&frames));
    assert_eq!(again.len(), file.len(), "the writer used the shortest forms, and so do we");
    check_cuts(file, body_bytes, &frames);
}

fn check_frame(frame: &RunFrame<'_>, expected: &Expected<'_>) {
    match expected {
        Expected::Chunk(chunk) => assert_eq!(frame, &RunFrame::ArtifactChunk(*chunk)),
        Expected::Event(envelope, event) => {
            let payload = event.payload();
            let envelope = Envelope { event_type: event.event_type(), payload: payload.view(), ..*envelope };
            assert_eq!(frame, &RunFrame::Event(envelope));
            let RunFrame::Event(read) = frame else { panic!("an event") };
            assert_eq!(read.event(), Ok(*event));
        }
    }
}

/// At a frame's end a cut file is whole; anywhere else its last frame is cut short, and the frames before it are read.
fn check_cuts(file: &[u8], body_bytes: &[usize], frames: &[RunFrame<'_>]) {
    let mut start = 0;
    for (index, bytes) in body_bytes.iter().enumerate() {
        let end = start + PREFIX_BYTES + bytes;
        for cut in start + 1..end {
            let read: Vec<_> = Frames::new(&file[..cut]).collect();
            let (last, whole) = read.split_last().unwrap();
            assert!(whole.iter().map(|frame| frame.as_ref().unwrap()).eq(&frames[..index]));
            let error = last.unwrap_err();
            assert_eq!((error.kind, error.at), (WireErrorKind::Truncated, cut));
        }
        let body = &file[start + PREFIX_BYTES..end];
        assert_eq!(RunFrame::decode(body).as_ref(), Ok(&frames[index]));
        for cut in 0..body.len() {
            assert_eq!(RunFrame::decode(&body[..cut]).unwrap_err().kind, WireErrorKind::Truncated, "cut at {cut}");
        }
        start = end;
    }
}

/// An envelope of the first attempt, without lineage.
fn said<'a>(run_id: &'a str, seq: u64, event_id: &'a str, ts: &'a str) -> Envelope<'a> {
    Envelope {
        contract_version: "0.1.0",
        event_id,
        run_id,
        seq,
        event_type: EventType::RunComplete,
        ts,
        payload: Map::EMPTY,
        attempt: 1,
        job_id: None,
        parent_run_id: None,
    }
}

fn map(fill: impl FnOnce(&mut MapBuf) -> &mut MapBuf) -> MapBuf {
    let mut map = MapBuf::new();
    fill(&mut map);
    map
}

fn tags() -> ArrayBuf {
    let mut tags = ArrayBuf::new();
    tags.push("electronics").push("sale");
    tags
}

#[test]
fn an_item_is_read() {
    let tags = tags();
    let data = map(|data| data.put("name", "Test Product").put("price", 99.99).put("tags", tags.view()));
    let envelope = said("run-fixture-001", 1, "evt-fixture-001", "2024-01-15T10:00:00.000Z");
    let event = Event::Item { item_type: "product", data: data.view() };
    check(include_bytes!("../../data/run_ipc/item_event.bin"), &[213], &[Expected::Event(envelope, event)]);
}

#[test]
fn a_log_line_is_read() {
    let fields = map(|fields| fields.put("url", "https://example.com").put("duration_ms", 150_u64));
    let envelope = said("run-fixture-001", 2, "evt-fixture-002", "2024-01-15T10:00:01.000Z");
    let event = Event::Log { level: Level::Info, message: "Processing started", fields: Some(fields.view()) };
    check(include_bytes!("../../data/run_ipc/log_event.bin"), &[216], &[Expected::Event(envelope, event)]);
}

#[test]
fn a_completion_is_read() {
    let summary = map(|summary| summary.put("items_scraped", 42_u64).put("duration_ms", 5000_u64));
    let envelope = said("run-fixture-001", 3, "evt-fixture-003", "2024-01-15T10:00:02.000Z");
    let event = Event::RunComplete { summary: Some(summary.view()) };
    check(include_bytes!("../../data/run_ipc/run_complete.bin"), &[180], &[Expected::Event(envelope, event)]);
}

#[test]
fn an_artifact_is_read() {
    let envelope = said("run-fixture-001", 4, "evt-fixture-005", "2024-01-15T10:00:03.000Z");
    let event = Event::Artifact {
        artifact_id: "art-fixture-001",
        name: "screenshot.png",
        content_type: "image/png",
        size_bytes: 1024,
    };
    check(include_bytes!("../../data/run_ipc/artifact_event.bin"), &[222], &[Expected::Event(envelope, event)]);
}

#[test]
fn a_chunk_is_read() {
    let chunk =
        ArtifactChunk { artifact_id: "art-fixture-001", seq: 1, is_last: true, data: b"fake png data for testing" };
    check(include_bytes!("../../data/run_ipc/artifact_chunk.bin"), &[95], &[Expected::Chunk(chunk)]);
}

#[test]
fn a_failure_is_read() {
    let envelope = said("run-fixture-002", 1, "evt-fixture-004", "2024-01-15T10:00:00.000Z");
    let event = Event::RunError {
        error_type: "script_error",
        message: "Failed to load page",
        stack: Some("Error: Failed to load page\n    at scrape (script.ts:42:5)"),
    };
    check(include_bytes!("../../data/run_ipc/run_error.bin"), &[255], &[Expected::Event(envelope, event)]);
}

#[test]
fn lineage_is_read() {
    let data = map(|data| data.put("retry", true));
    let envelope = Envelope {
        attempt: 2,
        job_id: Some("job-fixture-001"),
        parent_run_id: Some("run-fixture-002"),
        ..said("run-fixture-003", 1, "evt-fixture-006", "2024-01-15T10:00:00.000Z")
    };
    let event = Event::Item { item_type: "retry_item", data: data.view() };
    check(include_bytes!("../../data/run_ipc/event_with_lineage.bin"), &[220], &[Expected::Event(envelope, event)]);
}

#[test]
fn a_sequence_is_read_in_order() {
    let data = map(|data| data.put("id", 1_u64));
    let expected = [
        Expected::Event(
            said("run-seq-001", 1, "evt-seq-001", "2024-01-15T10:00:00.000Z"),
            Event::Item { item_type: "product", data: data.view() },
        ),
        Expected::Event(
            said("run-seq-001", 2, "evt-seq-002", "2024-01-15T10:00:01.000Z"),
            Event::Log { level: Level::Info, message: "Done", fields: None },
        ),
        Expected::Event(
            said("run-seq-001", 3, "evt-seq-003", "2024-01-15T10:00:02.000Z"),
            Event::RunComplete { summary: None },
        ),
    ];
    check(include_bytes!("../../data/run_ipc/event_sequence.bin"), &[153, 148, 133], &expected);
}

#[test]
fn what_a_real_executor_said_is_read() {
    const RUN: &str = "run-e2e-fixture-001";
    const ARTIFACT: &str = "4ddeb16f-0b71-483a-8e70-1caae75a5e02";
    let tags = tags();
    let product = map(|data| {
        data.put("id", "prod-001")
            .put("name", "Test Product")
            .put("price", 99.99)
            .put("tags", tags.view())
            .put("in_stock", true)
    });
    let fields = map(|fields| fields.put("step", "items").put("count", 1_u64));
    let every_byte: Vec<u8> = (0..=255).collect();
    let processed = map(|data| {
        data.put("artifact_id", ARTIFACT).put("artifact_size", 256_u64).put("processed_at", "2024-01-15T10:00:00.000Z")
    });
    let summary = map(|summary| {
        summary.put("items_emitted", 2_u64).put("artifacts_emitted", 1_u64).put("fixture_version", "1.0.0")
    });
    let expected = [
        Expected::Event(
            said(RUN, 1, "9eee794d-9a84-43a5-99e6-826534930f94", "2026-02-01T04:02:40.758Z"),
            Event::Item { item_type: "fixture_product", data: product.view() },
        ),
        Expected::Event(
            said(RUN, 2, "ff01bbcb-5f2a-4fb2-9058-0004dcd2b2aa", "2026-02-01T04:02:40.759Z"),
            Event::Log { level: Level::Info, message: "Fixture script processing", fields: Some(fields.view()) },
        ),
        Expected::Chunk(ArtifactChunk { artifact_id: ARTIFACT, seq: 1, is_last: true, data: &every_byte }),
        Expected::Event(
            said(RUN, 3, "3bc726ad-6a58-45d3-bcb2-63ac0c1e5c4e", "2026-02-01T04:02:40.760Z"),
            Event::Artifact {
                artifact_id: ARTIFACT,
                name: "fixture-screenshot.bin",
                content_type: "application/octet-stream",
                size_bytes: 256,
            },
        ),
        Expected::Event(
            said(RUN, 4, "8a73eb59-9708-48fe-a445-2fbd0ac6516e", "2026-02-01T04:02:40.760Z"),
            Event::Item { item_type: "fixture_summary", data: processed.view() },
        ),
        Expected::Event(
            said(RUN, 5, "f6c4738c-03c9-4f65-ac0a-5049a3890d20", "2026-02-01T04:02:40.760Z"),
            Event::RunComplete { summary: Some(summary.view()) },
        ),
    ];
    let file = include_bytes!("../../data/run_ipc/e2e_fixture.bin");
    check(file, &[269, 229, 349, 293, 296, 232], &expected);
}
