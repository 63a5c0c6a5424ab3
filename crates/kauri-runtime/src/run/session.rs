//! What an executor in another process says, held against the contract frame by frame.
//!
//! ```text
//! open ── run_complete, run_error ──> ended ── run_result ──> over
//!   ╰──────────────── run_result ───────────────────────────────╯
//! ```
//!
//! Events have places from 1 without a gap, and are those of one attempt of one run. An artifact's chunks come before its event, in order, and are as
//! many bytes as it says. After a terminal event, or after the result, nothing is taken: it is refused and counted. Any other fault ends the session, because
//! nobody knows what the frames after it mean: every later frame is refused with it.

use std::collections::BTreeMap;
use std::fmt;

use kauri_wire::WireError;
use kauri_wire::pack::Value;
use kauri_wire::run::{ArtifactChunk, Envelope, Event, FileWrite, RunFrame, RunResult, RunStatus, StepRequest};

use super::artifact::ARTIFACT_BYTES_MAX;
use super::contract::Contract;
use super::outcome::Outcome;
use super::pipe::Unread;
use super::script::Terminal;

/// How many artifacts may be on their way at once.
pub const OPEN_ARTIFACTS_MAX: usize = 256;
/// The longest id of an artifact, in bytes.
pub const ARTIFACT_ID_BYTES_MAX: usize = 1 << 10;

/// Whose session it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionOf {
    /// The contract that we follow.
    pub contract: Contract,
    /// The run.
    pub run_id: String,
    /// Its attempt.
    pub attempt: u32,
    /// Its job, if we know it. An event that names none is fine.
    pub job_id: Option<String>,
    /// Its parent. An event that names none is fine.
    pub parent_run_id: Option<String>,
    /// The place of the last event that the run said before, 0 if there is none.
    pub last_seq: u64,
}

/// A frame that is part of the session.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Heard<'a> {
    /// An event, typed.
    Event(Envelope<'a>, Event<'a>),
    /// The next chunk of an artifact.
    Chunk(ArtifactChunk<'a>),
    /// A file to be kept.
    File(FileWrite<'a>),
    /// How the executor ended.
    Result(RunResult<'a>),
    /// A durable step that is asked for.
    Step(StepRequest<'a>),
}

/// Why a frame is not part of the session.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// It is no frame, or its payload is none of its type.
    Frame(WireError),
    /// It follows a contract that we do not understand.
    Version {
        /// Ours.
        expected: Contract,
        /// What it says.
        found: String,
    },
    /// It is of another run, attempt, job or parent.
    Other {
        /// Which of them.
        what: &'static str,
        /// The session's.
        expected: String,
        /// What it says.
        found: String,
    },
    /// It is not the next event.
    Sequence {
        /// The place that had to come.
        expected: u64,
        /// The place that came.
        found: u64,
    },
    /// The run has said its last. Not fatal.
    AfterTerminal,
    /// The executor has said its last. Not fatal.
    AfterResult,
    /// It is not the next chunk of its artifact.
    ChunkOrder {
        /// Which artifact.
        artifact_id: String,
        /// The place that had to come; nothing after the last.
        expected: Option<u64>,
        /// The place that came.
        found: u64,
    },
    /// The artifact is too long, its name is, or there are too many on their way.
    TooMuch {
        /// What is limited.
        of: &'static str,
        /// The limit.
        most: u64,
    },
    /// The event says another size than its chunks have.
    Size {
        /// Which artifact.
        artifact_id: String,
        /// What the event says.
        said: u64,
        /// What came.
        found: u64,
    },
    /// The event commits an artifact whose last chunk has not come.
    NotEnded {
        /// Which artifact.
        artifact_id: String,
    },
    /// It is a frame that only we send.
    Direction,
    /// A file's number was used before.
    WriteOrder {
        /// The least that had to come.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// A step's number was used before.
    StepOrder {
        /// The least that had to come.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// The bytes ended inside a frame before the run had ended.
    CutOff {
        /// How many bytes of the frame there were.
        bytes: usize,
    },
}

impl Refusal {
    /// Whether nothing can be taken after it.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        !matches!(self, Self::AfterTerminal | Self::AfterResult)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => write!(f, "{error}"),
            Self::Version { expected, found } => write!(f, "expected contract {expected} or older, found {found:?}"),
            Self::Other { what, expected, found } => write!(f, "expected {what} {expected:?}, found {found:?}"),
            Self::Sequence { expected, found } => write!(f, "expected event {expected}, found event {found}"),
            Self::AfterTerminal => f.write_str("expected nothing after the end of the run, found another frame"),
            Self::AfterResult => f.write_str("expected nothing after the executor's result, found another frame"),
            Self::ChunkOrder { artifact_id, expected: Some(expected), found } => {
                write!(f, "expected chunk {expected} of artifact {artifact_id:?}, found chunk {found}")
            }
            Self::ChunkOrder { artifact_id, expected: None, found } => {
                write!(f, "expected no chunk after the last of artifact {artifact_id:?}, found chunk {found}")
            }
            Self::TooMuch { of, most } => write!(f, "expected {most} {of} at most, found more"),
            Self::Size { artifact_id, said, found } => {
                write!(f, "expected {said} bytes of artifact {artifact_id:?}, found {found}")
            }
            Self::NotEnded { artifact_id } => {
                write!(f, "expected the last chunk of artifact {artifact_id:?} before its event, found none")
            }
            Self::Direction => f.write_str("expected a frame of an executor, found one that only the runtime sends"),
            Self::WriteOrder { expected, found } => {
                write!(f, "expected file write {expected} or later, found write {found}")
            }
            Self::StepOrder { expected, found } => {
                write!(f, "expected step request {expected} or later, found request {found}")
            }
            Self::CutOff { bytes } => write!(f, "expected a whole frame, found {bytes} bytes of one"),
        }
    }
}

impl std::error::Error for Refusal {}

/// How the executor's process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessExit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal, or nobody knows.
    Killed,
}

/// What a session came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionEnd {
    /// How the run ended.
    pub outcome: Outcome,
    /// Where the last event of it stands.
    pub last_seq: u64,
    /// How many frames came after the end.
    pub refused: u64,
    /// How many artifacts had chunks and no event.
    pub orphans: usize,
    /// The fault that ended it.
    pub fault: Option<Refusal>,
    /// The terminal event and how the process ended do not agree, or a fault came after it. The event counts: it was said first.
    pub is_disputed: bool,
}

/// A session: what may come next.
///
/// ```
/// use kauri_runtime::run::{Outcome, Contract, ProcessExit, Heard, Pipe, Refusal, Session, SessionOf};
/// # use kauri_wire::pack::Map;
/// # use kauri_wire::run::{Envelope, EventType, RunFrame};
/// # let done = RunFrame::Event(Envelope {
/// #     contract_version: "0.1.0", event_id: "e", run_id: "run-7", seq: 1, event_type: EventType::RunComplete,
/// #     ts: "2026-11-15T10:00:00.000Z", payload: Map::EMPTY, attempt: 1, job_id: None, parent_run_id: None,
/// # });
/// # let mut bytes = Vec::new();
/// # done.append_to(&mut bytes)?;
///
/// let (contract, run_id) = (Contract::OURS, "run-7".to_owned());
/// let of = SessionOf { contract, run_id, attempt: 1, job_id: None, parent_run_id: None, last_seq: 0 };
/// let (mut session, mut pipe) = (Session::new(of), Pipe::default());
/// pipe.push(&bytes); // a run_complete event
/// while let Some(frame) = pipe.next_frame() {
///     assert!(matches!(session.hear(frame), Ok(Heard::Event(..))));
/// }
/// assert_eq!(session.hear(Ok(done)), Err(Refusal::AfterTerminal));
/// let end = session.end(pipe.rest(), ProcessExit::Code(0));
/// assert_eq!((end.outcome, end.last_seq, end.refused), (Outcome::Success { skipped: false }, 1, 1));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    of: SessionOf,
    last_seq: u64,
    ended: Option<(Terminal, bool)>,
    result: Option<RunStatus>,
    open: BTreeMap<String, Chunks>,
    last_write: u64,
    last_step: u64,
    refused: u64,
    fault: Option<Refusal>,
}

/// What has come of an artifact.
#[derive(Clone, Copy, Debug)]
struct Chunks {
    count: u64,
    bytes: u64,
    has_ended: bool,
}

impl Session {
    /// A session of this run.
    #[must_use]
    pub const fn new(of: SessionOf) -> Self {
        let last_seq = of.last_seq;
        let open = BTreeMap::new();
        Self { of, last_seq, ended: None, result: None, open, last_write: 0, last_step: 0, refused: 0, fault: None }
    }

    /// Takes the next frame, or what stood in its place.
    ///
    /// # Errors
    /// Why it is refused. After a [fatal](Refusal::is_fatal) refusal every frame is refused with the same.
    pub fn hear<'a>(&mut self, frame: Result<RunFrame<'a>, Unread<'a>>) -> Result<Heard<'a>, Refusal> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let heard = frame.map_err(|unread| self.misread(unread)).and_then(|frame| self.take(frame));
        if let Err(refusal) = &heard {
            match refusal.is_fatal() {
                true => self.fault = Some(refusal.clone()),
                false => self.refused += 1,
            }
        }
        heard
    }

    /// The place of the last event that was taken.
    #[must_use]
    pub const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The terminal event that was taken.
    #[must_use]
    pub fn terminal(&self) -> Option<Terminal> {
        self.ended.map(|(terminal, _)| terminal)
    }

    /// Whether the executor has said how the run ends, and its own result: nothing that it still says is taken.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.ended.is_some() && self.result.is_some()
    }

    /// The end: no more bytes come. `rest` bytes of a frame were left, which is fine after a terminal event and a fault before.
    ///
    /// The terminal event decides, whatever came after it. Without one, a result and an exit code that agree do; else the executor has crashed.
    #[must_use]
    pub fn end(mut self, rest: usize, exit: ProcessExit) -> SessionEnd {
        if rest > 0 && self.ended.is_none() && self.fault.is_none() {
            self.fault = Some(Refusal::CutOff { bytes: rest });
        }
        let claimed = match (self.result, exit) {
            (Some(RunStatus::Completed), ProcessExit::Code(0)) => Outcome::Success { skipped: false },
            (Some(RunStatus::Error), ProcessExit::Code(1)) => Outcome::ScriptError,
            _ => Outcome::ExecutorCrash,
        };
        let is_well = |code| self.fault.is_none() && exit == ProcessExit::Code(code);
        let (outcome, is_disputed) = match (self.ended, &self.fault) {
            // Whatever comes after the end changes nothing.
            (Some((Terminal::Complete, skipped)), _) => (Outcome::Success { skipped }, !is_well(0)),
            (Some((Terminal::Error, _)), _) => (Outcome::ScriptError, !is_well(1)),
            (None, Some(Refusal::Version { .. })) => (Outcome::VersionMismatch, false),
            (None, Some(_)) => (Outcome::ExecutorCrash, false),
            (None, None) => (claimed, false),
        };
        let (orphans, last_seq, refused) = (self.open.len(), self.last_seq, self.refused);
        SessionEnd { outcome, last_seq, refused, orphans, fault: self.fault, is_disputed }
    }

    fn take<'a>(&mut self, frame: RunFrame<'a>) -> Result<Heard<'a>, Refusal> {
        if self.result.is_some() {
            return Err(Refusal::AfterResult);
        }
        match frame {
            RunFrame::Event(envelope) => self.take_event(envelope),
            RunFrame::ArtifactChunk(chunk) => self.take_chunk(chunk),
            RunFrame::FileWrite(file) => self.take_file(file),
            RunFrame::StepRequest(request) => self.take_step(request),
            RunFrame::FileWriteAck(_) | RunFrame::StepAnswer(_) => Err(Refusal::Direction),
            RunFrame::RunResult(result) => {
                self.result = Some(result.status);
                Ok(Heard::Result(result))
            }
        }
    }

    fn take_event<'a>(&mut self, envelope: Envelope<'a>) -> Result<Heard<'a>, Refusal> {
        self.check_identity(&envelope)?;
        self.check_open()?;
        let expected = self.last_seq.saturating_add(1);
        if envelope.seq != expected {
            return Err(Refusal::Sequence { expected, found: envelope.seq });
        }
        let event = envelope.event().map_err(Refusal::Frame)?;
        match event {
            Event::Artifact { artifact_id, size_bytes, .. } => self.commit(artifact_id, size_bytes)?,
            Event::RunComplete { summary } => {
                let skipped = summary.and_then(|summary| summary.get("skipped")) == Some(Value::Bool(true));
                self.ended = Some((Terminal::Complete, skipped));
            }
            Event::RunError { .. } => self.ended = Some((Terminal::Error, false)),
            _ => {}
        }
        self.last_seq = expected;
        Ok(Heard::Event(envelope, event))
    }

    /// What it means that a frame could not be read.
    fn misread(&self, unread: Unread<'_>) -> Refusal {
        let foreign = unread.version.and_then(|version| self.check_version(version).err());
        foreign.unwrap_or(Refusal::Frame(unread.error))
    }

    fn check_version(&self, found: &str) -> Result<(), Refusal> {
        let expected = self.of.contract;
        match found.parse().is_ok_and(|writer| expected.understands(writer)) {
            true => Ok(()),
            false => Err(Refusal::Version { expected, found: found.chars().take(80).collect() }),
        }
    }

    /// Whether the event is of this run. The version comes first: what follows is read by its rules.
    fn check_identity(&self, envelope: &Envelope<'_>) -> Result<(), Refusal> {
        self.check_version(envelope.contract_version)?;
        let of = &self.of;
        let (run, attempt) = (Some(&*of.run_id), envelope.attempt.to_string());
        let own_attempt = of.attempt.to_string();
        check_same("run", run, Some(envelope.run_id))?;
        check_same("attempt", Some(&*own_attempt), Some(&*attempt))?;
        check_same("job", of.job_id.as_deref(), envelope.job_id)?;
        match (&of.parent_run_id, envelope.parent_run_id) {
            // A job need not be known to us; a parent that we do not know is a lie.
            (None, Some(found)) => Err(other("parent", "none", found)),
            (parent, found) => check_same("parent", parent.as_deref(), found),
        }
    }

    fn check_open(&self) -> Result<(), Refusal> {
        if self.ended.is_some() { Err(Refusal::AfterTerminal) } else { Ok(()) }
    }

    fn take_chunk<'a>(&mut self, chunk: ArtifactChunk<'a>) -> Result<Heard<'a>, Refusal> {
        self.check_open()?;
        let id = chunk.artifact_id;
        let before = self.open.get(id).copied().unwrap_or(Chunks { count: 0, bytes: 0, has_ended: false });
        if before.count == 0 {
            self.check_room(id)?;
        }
        let expected = (!before.has_ended).then_some(before.count + 1);
        if expected != Some(chunk.seq) {
            return Err(Refusal::ChunkOrder { artifact_id: id.to_owned(), expected, found: chunk.seq });
        }
        let bytes = before.bytes + chunk.data.len() as u64;
        if bytes > ARTIFACT_BYTES_MAX {
            return Err(Refusal::TooMuch { of: "bytes in an artifact", most: ARTIFACT_BYTES_MAX });
        }
        self.open.insert(id.to_owned(), Chunks { count: chunk.seq, bytes, has_ended: chunk.is_last });
        Ok(Heard::Chunk(chunk))
    }

    fn check_room(&self, artifact_id: &str) -> Result<(), Refusal> {
        if artifact_id.len() > ARTIFACT_ID_BYTES_MAX {
            return Err(Refusal::TooMuch { of: "bytes in an artifact's id", most: ARTIFACT_ID_BYTES_MAX as u64 });
        }
        if self.open.len() >= OPEN_ARTIFACTS_MAX {
            return Err(Refusal::TooMuch { of: "artifacts on their way", most: OPEN_ARTIFACTS_MAX as u64 });
        }
        Ok(())
    }

    /// An artifact's event: the commit of its chunks.
    fn commit(&mut self, artifact_id: &str, said: u64) -> Result<(), Refusal> {
        let owned = || artifact_id.chars().take(ARTIFACT_ID_BYTES_MAX).collect::<String>();
        match self.open.get(artifact_id) {
            Some(chunks) if chunks.has_ended && chunks.bytes == said => {
                self.open.remove(artifact_id);
                Ok(())
            }
            Some(chunks) if chunks.has_ended => Err(Refusal::Size { artifact_id: owned(), said, found: chunks.bytes }),
            _ => Err(Refusal::NotEnded { artifact_id: owned() }),
        }
    }

    /// Numbers of files grow; 0 means that no answer is wanted.
    fn take_file<'a>(&mut self, file: FileWrite<'a>) -> Result<Heard<'a>, Refusal> {
        self.check_open()?;
        if file.write_id != 0 {
            let expected = self.last_write.saturating_add(1);
            if file.write_id < expected {
                return Err(Refusal::WriteOrder { expected, found: file.write_id });
            }
            self.last_write = file.write_id;
        }
        Ok(Heard::File(file))
    }

    /// Numbers of steps grow.
    fn take_step<'a>(&mut self, request: StepRequest<'a>) -> Result<Heard<'a>, Refusal> {
        self.check_open()?;
        let (expected, found) = (self.last_step.saturating_add(1), request.request_id);
        if found < expected {
            return Err(Refusal::StepOrder { expected, found });
        }
        self.last_step = found;
        Ok(Heard::Step(request))
    }
}

/// What both know is the same.
fn check_same(what: &'static str, expected: Option<&str>, found: Option<&str>) -> Result<(), Refusal> {
    match (expected, found) {
        (Some(expected), Some(found)) if expected != found => Err(other(what, expected, found)),
        _ => Ok(()),
    }
}

fn other(what: &'static str, expected: &str, found: &str) -> Refusal {
    Refusal::Other { what, expected: expected.to_owned(), found: found.chars().take(80).collect() }
}
