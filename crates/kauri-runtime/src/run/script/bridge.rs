//! What an executor in another process says, brought into the run that it executes.
//!
//! ```text
//! bytes of its output ──> Pipe: frames ──> Session: is it the contract? ──> Context: events, artifacts, files
//! bytes of its input  <── answers to file writes and steps <────────────────┘
//! ```
//!
//! The process numbers its events from 1 in each session; the store gives them their places in the run.

use std::collections::BTreeMap;
use std::fmt;

use kauri_wire::run::{Event, FileWriteAck, RunFrame};

use super::asked::Wanted;
use super::context::Context;
use super::emit::EmitError;
use super::error::ScriptError;
use super::executor::Called;
use crate::run::artifact::ArtifactWriter;
use crate::run::outcome::Outcome;
use crate::run::pipe::Pipe;
use crate::run::session::{Heard, ProcessExit, Refusal, Session, SessionEnd, SessionOf};
use crate::run::{Contract, KeepError};

/// Brings what an executor in another process says during one call into its run: see [`Executor::call`](super::Executor::call).
///
/// Whoever has the process gives what it writes to [`push`](Self::push), writes what that answers to it, and says with
/// [`end`](Self::end) how the process ended.
#[derive(Debug)]
pub struct Bridge<'a> {
    cx: &'a Context,
    session: Session,
    pipe: Pipe,
    /// Artifacts whose event has not come.
    writers: BTreeMap<String, ArtifactWriter>,
    /// What the process said of the end that it came to; or why it has to end.
    said: Option<ScriptError>,
    /// It has to end: its run waits, or does not go on here.
    is_over: bool,
}

/// Why nothing more can be taken from the process: whoever has it ends it.
#[derive(Debug)]
#[non_exhaustive]
pub enum BridgeError {
    /// It broke the contract.
    Refused(Refusal),
    /// The run takes nothing more.
    Emit(EmitError),
}

impl fmt::Display for BridgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Emit(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for BridgeError {}

impl From<EmitError> for BridgeError {
    fn from(error: EmitError) -> Self {
        Self::Emit(error)
    }
}

impl From<KeepError> for BridgeError {
    fn from(error: KeepError) -> Self {
        Self::Emit(error.into())
    }
}

impl<'a> Bridge<'a> {
    /// A bridge into the run of this call.
    #[must_use]
    pub fn new(cx: &'a Context) -> Self {
        let run = cx.run();
        let session = Session::new(SessionOf {
            contract: Contract::OURS,
            run_id: run.run_id.to_string(),
            attempt: run.attempt,
            job_id: run.job_id.as_ref().map(|job| job.as_str().to_owned()),
            parent_run_id: run.parent_run_id.map(|parent| parent.to_string()),
            last_seq: 0,
        });
        Self { cx, session, pipe: Pipe::default(), writers: BTreeMap::new(), said: None, is_over: false }
    }

    /// Takes bytes that the process wrote, however they are cut, and answers the bytes that are to be written to it. What came after the
    /// end of the run is refused and counted; what comes after a step that [ends the process](Self::is_over) is not heard.
    ///
    /// # Errors
    /// Why nothing more can be taken.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, BridgeError> {
        self.pipe.push(bytes);
        let mut answers = Vec::new();
        while !self.is_over
            && let Some(frame) = self.pipe.next_frame()
        {
            let wanted = Wanted::of(&frame);
            match self.session.hear(frame) {
                Ok(Heard::Step(request)) => {
                    let asked = super::asked::answer(&request, self.cx, &mut answers);
                    self.is_over = asked.is_err();
                    self.said = asked.err().or(self.said.take());
                }
                Ok(heard) => take(self.cx, &mut self.writers, &mut self.said, &heard, &mut answers)?,
                Err(refusal) if refusal.is_fatal() => return Err(BridgeError::Refused(refusal)),
                Err(refusal) => wanted.refuse(&refusal, &mut answers),
            }
        }
        Ok(answers)
    }

    /// Whether the process was told to end, because its run waits or does not go on here: whoever has it ends it if it does not.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The process has ended so: what the session came to, and how the call ended. If it said how the run ends, that counts.
    #[must_use]
    pub fn end(self, exit: ProcessExit) -> (SessionEnd, Called<()>) {
        let end = self.session.end(self.pipe.rest(), exit);
        self.cx.emit().gate().note_session(&end);
        let words = || match &end.fault {
            Some(fault) => fault.to_string(),
            None => format!("the process ended ({exit:?}) and had not said how the run ends"),
        };
        let called = match end.outcome {
            _ if self.is_over => Called::Failed(self.said.unwrap_or_else(|| ScriptError::new("the process was ended"))),
            Outcome::Success { .. } => Called::Returned(()),
            Outcome::ScriptError => {
                Called::Failed(self.said.unwrap_or_else(|| ScriptError::new("the process said that it failed")))
            }
            Outcome::VersionMismatch => Called::Mismatch(words()),
            _ => Called::Crashed(words()),
        };
        (end, called)
    }
}

/// Does what a frame asks for.
fn take(
    cx: &Context,
    writers: &mut BTreeMap<String, ArtifactWriter>,
    said: &mut Option<ScriptError>,
    heard: &Heard<'_>,
    answers: &mut Vec<u8>,
) -> Result<(), BridgeError> {
    match heard {
        Heard::Event(envelope, Event::Artifact { artifact_id, size_bytes, .. }) => {
            let writer = match writers.remove(*artifact_id) {
                Some(writer) => writer,
                None => cx.files()?.artifacts().begin()?,
            };
            cx.emit().artifact_as_it_came(envelope, writer.commit(*size_bytes)?)?;
        }
        Heard::Event(envelope, event) => {
            if let Event::RunError { error_type, message, .. } = event {
                *said = Some(ScriptError::new(*message).of_type(*error_type));
            }
            cx.emit().say_as_it_came(envelope)?;
        }
        Heard::Chunk(chunk) => {
            if !writers.contains_key(chunk.artifact_id) {
                writers.insert(chunk.artifact_id.to_owned(), cx.files()?.artifacts().begin()?);
            }
            let writer = writers.get_mut(chunk.artifact_id).expect("it was just put there");
            writer.chunk(chunk.seq, chunk.is_last, chunk.data)?;
        }
        Heard::File(file) => {
            let kept = cx.put(file.filename, file.content_type, file.data).map_err(|error| error.to_string());
            if file.write_id != 0 {
                let (ok, error) = (kept.is_ok(), kept.as_ref().err().map(String::as_str));
                let ack = RunFrame::FileWriteAck(FileWriteAck { write_id: file.write_id, ok, error });
                ack.append_to(answers).map_err(|error| BridgeError::Refused(Refusal::Frame(error)))?;
            }
        }
        Heard::Step(_) => unreachable!("answered where it is heard"),
        Heard::Result(result) => {
            let words = result.message.unwrap_or("the process said that it failed");
            said.get_or_insert_with(|| ScriptError::new(words).of_type(result.error_type.unwrap_or_default()));
        }
    }
    Ok(())
}
