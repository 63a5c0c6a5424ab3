//! What executors say, held against the contract: real and synthetic captures, and everything that can be wrong with them.

use kauri_runtime::run::Outcome;
use kauri_runtime::run::script::Terminal;
use kauri_runtime::run::{
    ARTIFACT_ID_BYTES_MAX, Contract, Heard, OPEN_ARTIFACTS_MAX, Pipe, ProcessExit, Refusal, Session, SessionEnd,
    SessionOf,
};
use kauri_wire::pack::{Map, MapBuf};
use kauri_wire::run::{
    ArtifactChunk, Envelope, Event, EventType, FileWrite, FileWriteAck, Frames, RunFrame, RunResult, RunStatus,
    StepAnswer, StepRequest, StepStatus, StepWish,
};

const ITEM: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/item_event.bin");
const LOG: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/log_event.bin");
const COMPLETE: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/run_complete.bin");
const ARTIFACT: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/artifact_event.bin");
const CHUNK: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/artifact_chunk.bin");
const ERROR: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/run_error.bin");
const LINEAGE: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/event_with_lineage.bin");
const SEQUENCE: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/event_sequence.bin");
const REAL: &[u8] = include_bytes!("../../../kauri-wire/tests/data/run_ipc/e2e_fixture.bin");

const SUCCESS: Outcome = Outcome::Success { skipped: false };

fn of(run_id: &str, last_seq: u64) -> SessionOf {
    let (contract, run_id) = (Contract::OURS, run_id.to_owned());
    SessionOf { contract, run_id, attempt: 1, job_id: None, parent_run_id: None, last_seq }
}

/// What was taken, the first refusal, and the end.
struct Listened {
    taken: Vec<String>,
    refusal: Option<Refusal>,
    end: SessionEnd,
}

/// A session that hears these bytes in pieces of this size, from an executor that says how it ended.
fn listen(of: SessionOf, bytes: &[u8], piece: usize, exit: ProcessExit) -> Listened {
    let (mut session, mut pipe) = (Session::new(of), Pipe::default());
    let (mut taken, mut refusal) = (Vec::new(), None);
    for piece in bytes.chunks(piece) {
        pipe.push(piece);
        while let Some(frame) = pipe.next_frame() {
            match session.hear(frame) {
                Ok(heard) => taken.push(name(&heard)),
                Err(error) => {
                    let is_fatal = error.is_fatal();
                    refusal = refusal.or(Some(error));
                    if is_fatal {
                        break;
                    }
                }
            }
        }
    }
    Listened { taken, refusal, end: session.end(pipe.rest(), exit) }
}

fn name(heard: &Heard<'_>) -> String {
    match heard {
        Heard::Event(envelope, event) => {
            assert_eq!(envelope.event_type, event.event_type());
            format!("{} {}", envelope.seq, envelope.event_type)
        }
        Heard::Chunk(chunk) => format!("chunk {}", chunk.seq),
        Heard::File(file) => format!("file {}", file.filename),
        Heard::Result(result) => format!("result {}", result.status),
        Heard::Step(request) => format!("step {} {}", request.request_id, request.wish),
    }
}

fn accepts(of: &SessionOf, bytes: &[u8], taken: &[&str], exit: ProcessExit, outcome: Outcome) {
    for piece in [1, 7, 100, bytes.len()] {
        let heard = listen(of.clone(), bytes, piece, exit);
        assert_eq!(heard.refusal, None);
        assert_eq!(heard.taken, taken);
        assert_eq!(heard.end.outcome, outcome);
    }
}

fn refuses(of: &SessionOf, bytes: &[u8], taken: usize, refusal: &Refusal, outcome: Outcome) {
    for piece in [1, 7, 100, bytes.len()] {
        let heard = listen(of.clone(), bytes, piece, ProcessExit::Code(0));
        assert_eq!(heard.refusal.as_ref(), Some(refusal));
        assert_eq!((heard.taken.len(), heard.end.outcome), (taken, outcome));
    }
}

#[test]
fn captured_frames_are_accepted_in_the_sessions_they_belong_to() {
    let ours = |last_seq| of("run-fixture-001", last_seq);
    let (ok, killed, crash) = (ProcessExit::Code(0), ProcessExit::Killed, Outcome::ExecutorCrash);
    accepts(&ours(0), ITEM, &["1 item"], killed, crash);
    accepts(&ours(1), LOG, &["2 log"], killed, crash);
    accepts(&ours(2), COMPLETE, &["3 run_complete"], ok, SUCCESS);
    accepts(&ours(0), &[ITEM, LOG, COMPLETE].concat(), &["1 item", "2 log", "3 run_complete"], ok, SUCCESS);
    accepts(&of("run-fixture-002", 0), ERROR, &["1 run_error"], ProcessExit::Code(1), Outcome::ScriptError);
    accepts(&of("run-seq-001", 0), SEQUENCE, &["1 item", "2 log", "3 run_complete"], ok, SUCCESS);
    let real = ["1 item", "2 log", "chunk 1", "3 artifact", "4 item", "5 run_complete"];
    accepts(&of("run-e2e-fixture-001", 0), REAL, &real, ok, SUCCESS);

    let mut lineage = SessionOf { attempt: 2, ..of("run-fixture-003", 0) };
    lineage.parent_run_id = Some("run-fixture-002".to_owned());
    accepts(&lineage, LINEAGE, &["1 item"], killed, crash);
    lineage.job_id = Some("job-fixture-001".to_owned());
    accepts(&lineage, LINEAGE, &["1 item"], killed, crash);

    // An artifact's event commits chunks: this one says 1024 bytes.
    let chunk = bytes(&[chunk("art-fixture-001", 1, true, &[7; 1024])]);
    accepts(&ours(3), &[&chunk, ARTIFACT].concat(), &["chunk 1", "4 artifact"], killed, crash);
    // Chunks without an event are an orphan.
    accepts(&ours(0), CHUNK, &["chunk 1"], killed, crash);
    assert_eq!(listen(ours(0), CHUNK, 9, killed).end.orphans, 1);
}

#[test]
fn chunks_of_another_size_than_their_event_says_are_refused() {
    let refusal = Refusal::Size { artifact_id: "art-fixture-001".to_owned(), said: 1024, found: 25 };
    refuses(&of("run-fixture-001", 3), &[CHUNK, ARTIFACT].concat(), 1, &refusal, Outcome::ExecutorCrash);
    assert_eq!(refusal.to_string(), "expected 1024 bytes of artifact \"art-fixture-001\", found 25");
    let refusal = Refusal::NotEnded { artifact_id: "art-fixture-001".to_owned() };
    refuses(&of("run-fixture-001", 3), ARTIFACT, 0, &refusal, Outcome::ExecutorCrash);
}

#[test]
fn event_after_a_terminal_event_is_refused_and_counted_and_changes_nothing() {
    let bytes = [ITEM, LOG, COMPLETE, ARTIFACT, ITEM, CHUNK].concat();
    refuses(&of("run-fixture-001", 0), &bytes, 3, &Refusal::AfterTerminal, SUCCESS);
    let heard = listen(of("run-fixture-001", 0), &bytes, 50, ProcessExit::Code(0));
    assert_eq!((heard.end.refused, heard.end.last_seq, heard.end.fault), (3, 3, None));
}

#[test]
fn another_attempt_run_job_or_parent_is_refused() {
    let other = |what, expected: &str, found: &str| Refusal::Other {
        what,
        expected: expected.to_owned(),
        found: found.to_owned(),
    };
    let lineage = || SessionOf { parent_run_id: Some("run-fixture-002".to_owned()), ..of("run-fixture-003", 0) };
    let crash = Outcome::ExecutorCrash;
    refuses(&lineage(), LINEAGE, 0, &other("attempt", "1", "2"), crash);
    let ours = SessionOf { attempt: 2, ..lineage() };
    refuses(
        &SessionOf { run_id: "r".to_owned(), ..ours.clone() },
        LINEAGE,
        0,
        &other("run", "r", "run-fixture-003"),
        crash,
    );
    let job = SessionOf { job_id: Some("j".to_owned()), ..ours.clone() };
    refuses(&job, LINEAGE, 0, &other("job", "j", "job-fixture-001"), crash);
    let stranger = SessionOf { parent_run_id: Some("p".to_owned()), ..ours.clone() };
    refuses(&stranger, LINEAGE, 0, &other("parent", "p", "run-fixture-002"), crash);
    let orphan = SessionOf { parent_run_id: None, ..ours };
    refuses(&orphan, LINEAGE, 0, &other("parent", "none", "run-fixture-002"), crash);
}

#[test]
fn another_major_version_or_a_newer_minor_one_is_a_mismatch() {
    for contract in [Contract { major: 1, minor: 1 }, Contract { major: 0, minor: 0 }, Contract { major: 13, minor: 4 }]
    {
        let ours = SessionOf { contract, ..of("run-fixture-001", 0) };
        let refusal = Refusal::Version { expected: contract, found: "0.1.0".to_owned() };
        refuses(&ours, &[ITEM, LOG].concat(), 0, &refusal, Outcome::VersionMismatch);
    }
    let newer = SessionOf { contract: Contract { major: 0, minor: 13 }, ..of("run-fixture-001", 0) };
    accepts(&newer, ITEM, &["1 item"], ProcessExit::Killed, Outcome::ExecutorCrash);
    let strange = bytes(&[event(1, "latest", &Event::RotateProxy { reason: None })]);
    let refusal = Refusal::Version { expected: Contract::OURS, found: "latest".to_owned() };
    refuses(&of("r", 0), &strange, 0, &refusal, Outcome::VersionMismatch);
}

/// A frame of this map.
fn framed(map: &MapBuf) -> Vec<u8> {
    let body = map.view().encode();
    [&u32::try_from(body.len()).unwrap().to_be_bytes()[..], &body].concat()
}

#[test]
fn frame_of_another_contract_is_a_mismatch_also_if_it_looks_different() {
    let unknown = |version: &str| {
        let mut envelope = MapBuf::new();
        envelope.put("contract_version", version).put("event_id", "e").put("run_id", "r").put("seq", 1_u64);
        envelope.put("type", "progress").put("ts", "now").put("payload", Map::EMPTY).put("attempt", 1_u64);
        framed(&envelope)
    };
    let bare = |version: &str| {
        let mut envelope = MapBuf::new();
        envelope.put("contract_version", version).put("type", "item");
        framed(&envelope)
    };
    let ours = |major, minor| SessionOf { contract: Contract { major, minor }, ..of("r", 0) };
    for (ours, version) in [(ours(0, 1), "1.0.0"), (ours(0, 1), "0.2.0"), (ours(1, 0), "0.1.0"), (ours(0, 1), "latest")]
    {
        let refusal = Refusal::Version { expected: ours.contract, found: version.to_owned() };
        for bytes in [unknown(version), bare(version)] {
            refuses(&ours, &bytes, 0, &refusal, Outcome::VersionMismatch);
        }
    }
    // In our own contract, it is a fault of whoever says so.
    for bytes in [unknown("0.1.0"), bare("0.1.0")] {
        let heard = listen(of("r", 0), &bytes, 7, ProcessExit::Code(0));
        assert!(matches!(heard.refusal, Some(Refusal::Frame(_))), "{:?}", heard.refusal);
        assert_eq!(heard.end.outcome, Outcome::ExecutorCrash);
    }
}

#[test]
fn missing_doubled_and_swapped_frames_of_a_real_session_are_all_noticed() {
    let frames: Vec<&[u8]> = split(REAL);
    assert_eq!(frames.len(), 6);
    let check = |frames: &[&[u8]], what: &str, is_fine: bool| {
        let heard = listen(of("run-e2e-fixture-001", 0), &frames.concat(), 64, ProcessExit::Code(0));
        assert_eq!(heard.end.outcome == SUCCESS && heard.refusal.is_none(), is_fine, "{what}: {:?}", heard.refusal);
    };
    check(&frames, "as it is", true);
    for at in 0..frames.len() {
        let mut without = frames.clone();
        without.remove(at);
        check(&without, &format!("without {at}"), false);
        let mut doubled = frames.clone();
        doubled.insert(at, frames[at]);
        check(&doubled, &format!("{at} twice"), false);
        for other in at + 1..frames.len() {
            let mut swapped = frames.clone();
            swapped.swap(at, other);
            // A chunk has its own place: it may come before or after the log line that stands beside it.
            check(&swapped, &format!("{at} and {other} swapped"), (at, other) == (1, 2));
        }
    }
}

#[test]
fn every_cut_and_every_turned_bit_leaves_the_frames_before_it_as_they_were() {
    let whole = listen(of("run-e2e-fixture-001", 0), REAL, REAL.len(), ProcessExit::Code(0));
    let ends: Vec<usize> = split(REAL)
        .iter()
        .scan(0, |at, frame| {
            Some({
                *at += frame.len();
                *at
            })
        })
        .collect();
    for cut in 0..REAL.len() {
        let heard = listen(of("run-e2e-fixture-001", 0), &REAL[..cut], REAL.len(), ProcessExit::Code(0));
        let count = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(heard.taken, whole.taken[..count], "cut at {cut}");
        assert_eq!(heard.end.outcome, Outcome::ExecutorCrash, "cut at {cut}");
        let is_between = cut == 0 || ends.contains(&cut);
        assert_eq!(matches!(heard.end.fault, Some(Refusal::CutOff { .. })), !is_between, "cut at {cut}");
    }
    let mut damaged = REAL.to_vec();
    for bit in 0..REAL.len() * 8 {
        damaged[bit / 8] ^= 1 << (bit % 8);
        let heard = listen(of("run-e2e-fixture-001", 0), &damaged, REAL.len(), ProcessExit::Code(0));
        let before = ends.iter().filter(|end| **end <= bit / 8).count();
        assert_eq!(heard.taken[..before], whole.taken[..before], "bit {bit}");
        // A turned bit may change what is said, but never how often, nor in which order.
        let places: Vec<&String> = heard.taken.iter().filter(|taken| !taken.starts_with("chunk")).collect();
        assert!(places.iter().zip(1..).all(|(taken, seq)| taken.starts_with(&format!("{seq} "))), "bit {bit}");
        assert_eq!(heard.end.last_seq, places.len() as u64, "bit {bit}");
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn terminal_event_decides_and_without_one_result_and_exit_code_must_agree() {
    let done = event(1, "0.1.0", &Event::RunComplete { summary: None });
    let mut summary = MapBuf::new();
    summary.put("skipped", true);
    let skipped = event(1, "0.1.0", &Event::RunComplete { summary: Some(summary.view()) });
    let failed = event(1, "0.1.0", &Event::RunError { error_type: "e", message: "", stack: None });
    let (ok, error, crash) = (result(RunStatus::Completed), result(RunStatus::Error), result(RunStatus::Crash));
    let (script, gone) = (Outcome::ScriptError, Outcome::ExecutorCrash);
    let cases: [(&[RunFrame<'_>], ProcessExit, Outcome, bool); 14] = [
        (&[done, ok], ProcessExit::Code(0), SUCCESS, false),
        (&[done], ProcessExit::Code(0), SUCCESS, false),
        (&[done, ok], ProcessExit::Killed, SUCCESS, true),
        (&[done], ProcessExit::Code(2), SUCCESS, true),
        (&[skipped, ok], ProcessExit::Code(0), Outcome::Success { skipped: true }, false),
        (&[failed, error], ProcessExit::Code(1), script, false),
        (&[failed], ProcessExit::Code(0), script, true),
        (&[ok], ProcessExit::Code(0), SUCCESS, false),
        (&[error], ProcessExit::Code(1), script, false),
        (&[ok], ProcessExit::Code(1), gone, false),
        (&[error], ProcessExit::Code(0), gone, false),
        (&[crash], ProcessExit::Code(2), gone, false),
        (&[], ProcessExit::Code(0), gone, false),
        (&[], ProcessExit::Killed, gone, false),
    ];
    for (frames, exit, outcome, is_disputed) in cases {
        let heard = listen(of("r", 0), &bytes(frames), 1 << 20, exit);
        assert_eq!((heard.end.outcome, heard.end.is_disputed), (outcome, is_disputed), "{frames:?} {exit:?}");
    }
}

#[test]
fn fault_after_the_terminal_event_is_told_and_changes_nothing() {
    let garbage = [&[0, 0, 0, 1, 0xc0][..], &[0xff; 9]].concat();
    for (terminal, outcome, code) in [(COMPLETE, SUCCESS, 0), (ERROR, Outcome::ScriptError, 1)] {
        let of = if terminal == COMPLETE { of("run-fixture-001", 2) } else { of("run-fixture-002", 0) };
        let heard = listen(of, &[terminal, &garbage].concat(), 3, ProcessExit::Code(code));
        assert!(matches!(heard.end.fault, Some(Refusal::Frame(_))), "{:?}", heard.end.fault);
        assert_eq!((heard.end.outcome, heard.end.is_disputed), (outcome, true));
    }
}

#[test]
fn frames_after_the_result_and_frames_of_the_other_side_are_refused() {
    let late = bytes(&[result(RunStatus::Completed), event(1, "0.1.0", &Event::RotateProxy { reason: None })]);
    refuses(&of("r", 0), &late, 1, &Refusal::AfterResult, SUCCESS);
    let ack = bytes(&[RunFrame::FileWriteAck(FileWriteAck { write_id: 1, ok: true, error: None })]);
    refuses(&of("r", 0), &ack, 0, &Refusal::Direction, Outcome::ExecutorCrash);
    let answer = StepAnswer { request_id: 1, status: StepStatus::Absent, data: None, text: None };
    let answer = bytes(&[RunFrame::StepAnswer(answer)]);
    refuses(&of("r", 0), &answer, 0, &Refusal::Direction, Outcome::ExecutorCrash);
}

#[test]
fn step_requests_have_growing_numbers_and_none_comes_after_the_end() {
    let step = |request_id| RunFrame::StepRequest(StepRequest::new(request_id, StepWish::Recall, "charge"));
    let mut session = Session::new(of("r", 0));
    for request_id in [1, 2, 7] {
        assert!(matches!(session.hear(Ok(step(request_id))), Ok(Heard::Step(heard)) if heard.request_id == request_id));
    }
    assert_eq!(session.hear(Ok(step(7))), Err(Refusal::StepOrder { expected: 8, found: 7 }));
    let end = event(1, "0.1.0", &Event::RunComplete { summary: None });
    refuses(&of("r", 0), &bytes(&[end, step(1)]), 1, &Refusal::AfterTerminal, SUCCESS);
}

#[test]
fn after_a_fault_nothing_is_taken_any_more() {
    let (mut session, mut pipe) = (Session::new(of("run-fixture-001", 0)), Pipe::default());
    pipe.push(&[LOG, ITEM].concat());
    let refusal = Refusal::Sequence { expected: 1, found: 2 };
    while let Some(frame) = pipe.next_frame() {
        assert_eq!(session.hear(frame), Err(refusal.clone()));
    }
    assert_eq!((session.last_seq(), session.terminal()), (0, None));
    // A prefix that no frame has: nobody knows where the next one begins.
    pipe.push(&[0xff; 4]);
    pipe.push(ITEM);
    assert!(pipe.next_frame().unwrap().is_err() && pipe.next_frame().unwrap().is_err());
}

#[test]
fn chunks_come_in_order_and_not_without_end() {
    let crash = Outcome::ExecutorCrash;
    let order = |expected, found| Refusal::ChunkOrder { artifact_id: "a".to_owned(), expected, found };
    let long = "a".repeat(ARTIFACT_ID_BYTES_MAX + 1);
    let cases: [(&[RunFrame<'_>], Refusal); 5] = [
        (&[chunk("a", 2, false, b"")], order(Some(1), 2)),
        (&[chunk("a", 1, false, b""), chunk("a", 1, false, b"")], order(Some(2), 1)),
        (&[chunk("a", 1, false, b""), chunk("a", 3, false, b"")], order(Some(2), 3)),
        (&[chunk("a", 1, true, b""), chunk("a", 2, true, b"")], order(None, 2)),
        (
            &[chunk(&long, 1, true, b"")],
            Refusal::TooMuch { of: "bytes in an artifact's id", most: ARTIFACT_ID_BYTES_MAX as u64 },
        ),
    ];
    for (frames, refusal) in cases {
        refuses(&of("r", 0), &bytes(frames), frames.len() - 1, &refusal, crash);
    }
    let ids: Vec<String> = (0..=OPEN_ARTIFACTS_MAX).map(|number| number.to_string()).collect();
    let many: Vec<RunFrame<'_>> = ids.iter().map(|id| chunk(id, 1, false, b"x")).collect();
    let refusal = Refusal::TooMuch { of: "artifacts on their way", most: OPEN_ARTIFACTS_MAX as u64 };
    refuses(&of("r", 0), &bytes(&many), OPEN_ARTIFACTS_MAX, &refusal, crash);
}

#[test]
fn numbers_of_files_grow_and_zero_wants_no_answer() {
    let file = |write_id| RunFrame::FileWrite(FileWrite { write_id, filename: "f", content_type: "t", data: b"" });
    let fine = bytes(&[file(0), file(1), file(0), file(5), file(0)]);
    accepts(&of("r", 0), &fine, &["file f"; 5], ProcessExit::Killed, Outcome::ExecutorCrash);
    let refusal = Refusal::WriteOrder { expected: 6, found: 5 };
    refuses(&of("r", 0), &bytes(&[file(5), file(5)]), 1, &refusal, Outcome::ExecutorCrash);
    let done = event(1, "0.1.0", &Event::RunComplete { summary: None });
    refuses(&of("r", 0), &bytes(&[done, file(1)]), 1, &Refusal::AfterTerminal, SUCCESS);
}

#[test]
fn payload_that_is_none_of_its_type_is_refused() {
    let mut envelope = match event(1, "0.1.0", &Event::RotateProxy { reason: None }) {
        RunFrame::Event(envelope) => envelope,
        other => panic!("expected an event, found {other:?}"),
    };
    envelope.event_type = EventType::Checkpoint;
    let heard = listen(of("r", 0), &bytes(&[RunFrame::Event(envelope)]), 10, ProcessExit::Code(0));
    assert!(matches!(heard.refusal, Some(Refusal::Frame(error)) if error.expected.starts_with("checkpoint_id")));
    let mut session = Session::new(of("r", 0));
    assert!(session.hear(Ok(event(1, "0.1.0", &Event::RunComplete { summary: None }))).is_ok());
    assert_eq!(session.terminal(), Some(Terminal::Complete));
}

fn split(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut frames, mut all, mut at) = (Frames::new(bytes), Vec::new(), 0);
    while frames.next().is_some() {
        all.push(&bytes[at..frames.at()]);
        at = frames.at();
    }
    all
}

fn bytes(frames: &[RunFrame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.append_to(&mut bytes).unwrap());
    bytes
}

fn chunk<'a>(artifact_id: &'a str, seq: u64, is_last: bool, data: &'a [u8]) -> RunFrame<'a> {
    RunFrame::ArtifactChunk(ArtifactChunk { artifact_id, seq, is_last, data })
}

fn result(status: RunStatus) -> RunFrame<'static> {
    RunFrame::RunResult(RunResult { status, message: None, error_type: None, stack: None, proxy_used: None })
}

/// An event of the run `r`. Its payload is kept for good: tests are short.
fn event(seq: u64, contract_version: &'static str, event: &Event<'_>) -> RunFrame<'static> {
    let payload: &'static [u8] = event.payload().view().encode().leak();
    RunFrame::Event(Envelope {
        contract_version,
        event_id: "e",
        run_id: "r",
        seq,
        event_type: event.event_type(),
        ts: "2026-11-15T10:00:00.000Z",
        payload: Map::decode(payload).unwrap(),
        attempt: 1,
        job_id: None,
        parent_run_id: None,
    })
}
