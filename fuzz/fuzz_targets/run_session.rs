//! Sessions: any bytes, in any pieces, from an executor of any kind of end.
#![no_main]

use kauri_runtime::run::Outcome;
use kauri_runtime::run::{
    Contract, Heard, OPEN_ARTIFACTS_MAX, Pipe, ProcessExit, Refusal, Session, SessionEnd, SessionOf,
};
use kauri_wire::run::{Frames, RunFrame};
use libfuzzer_sys::fuzz_target;

// The first byte says how the rest is cut into pieces and how the process ended.
fuzz_target!(|input: &[u8]| {
    let Some((how, bytes)) = input.split_first() else { return };
    let exit = match how >> 6 {
        3 => ProcessExit::Killed,
        code => ProcessExit::Code(code.into()),
    };
    let piece = usize::from(how & 63) + 1;
    let (cut, heard) = listen(bytes, piece, exit);
    let (whole, heard_whole) = listen(bytes, bytes.len().max(1), exit);
    assert_eq!((cut, heard), (whole, heard_whole), "pieces of {piece} change nothing");
});

/// Whose session it is: the first event says so, so that the fuzzer gets past it.
fn of(bytes: &[u8]) -> SessionOf {
    let envelope = Frames::new(bytes).find_map(|frame| match frame {
        Ok(RunFrame::Event(envelope)) => Some(envelope),
        _ => None,
    });
    let text = |text: Option<&str>| text.map(str::to_owned);
    SessionOf {
        contract: Contract::OURS,
        run_id: envelope.map_or("run", |envelope| envelope.run_id).to_owned(),
        attempt: envelope.map_or(1, |envelope| envelope.attempt),
        job_id: envelope.and_then(|envelope| text(envelope.job_id)),
        parent_run_id: envelope.and_then(|envelope| text(envelope.parent_run_id)),
        last_seq: envelope.map_or(0, |envelope| envelope.seq - 1),
    }
}

/// What was taken, and the end.
fn listen(bytes: &[u8], piece: usize, exit: ProcessExit) -> (SessionEnd, Vec<String>) {
    let of = of(bytes);
    let first = of.last_seq;
    let (mut session, mut pipe, mut heard) = (Session::new(of), Pipe::default(), Vec::new());
    let (mut events, mut refused, mut fault) = (0, 0, None);
    'pieces: for piece in bytes.chunks(piece) {
        pipe.push(piece);
        while let Some(frame) = pipe.next_frame() {
            match session.hear(frame) {
                Ok(frame) => {
                    assert!(fault.is_none(), "nothing is taken after a fault");
                    if let Heard::Event(envelope, event) = frame {
                        events += 1;
                        assert_eq!((envelope.seq, envelope.event_type), (first + events, event.event_type()));
                    }
                    heard.push(format!("{frame:?}"));
                }
                Err(refusal) if refusal.is_fatal() => {
                    fault = Some(refusal);
                    break 'pieces;
                }
                Err(_) => refused += 1,
            }
        }
    }
    let has_ended = session.terminal().is_some();
    // What comes after a fault is not looked at, so that it does not matter how much of it had come.
    let rest = if fault.is_some() { 0 } else { pipe.rest() };
    let end = session.end(rest, exit);
    check(&end, fault, rest > 0, has_ended);
    assert_eq!((end.last_seq, end.refused), (first + events, refused));
    (end, heard)
}

fn check(end: &SessionEnd, fault: Option<Refusal>, has_rest: bool, has_ended: bool) {
    match &end.fault {
        Some(Refusal::CutOff { .. }) => assert!(has_rest && !has_ended && fault.is_none()),
        found => assert_eq!(*found, fault),
    }
    let is_failed = matches!(end.outcome, Outcome::ExecutorCrash | Outcome::VersionMismatch);
    assert!(!(has_ended && is_failed), "what comes after the end changes nothing");
    assert!(has_ended || end.fault.is_none() || is_failed, "a fault before the end is no success");
    assert!(end.orphans <= OPEN_ARTIFACTS_MAX);
}
