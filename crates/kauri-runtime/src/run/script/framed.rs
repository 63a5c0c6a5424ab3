//! Run frames of a command: held against the contract, and said as events; artifacts and files are kept, steps done, and answered.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use kauri_wire::run::{ArtifactChunk, Event, FileWrite, FileWriteAck, RunFrame};

use super::answers::Answers;
use super::asked::Wanted;
use super::context::Context;
use super::emit::EmitError;
use super::error::ScriptError;
use super::executor::Called;
use super::plan::RunInfo;
use super::process::how;
use crate::run::artifact::ArtifactWriter;
use crate::run::contract::Contract;
use crate::run::outcome::Outcome;
use crate::run::pipe::Pipe;
use crate::run::session::{Heard, ProcessExit, Refusal, Session, SessionOf};

/// The class of errors for frames that end a session.
pub(super) const REFUSED: &str = "refused_frame";

/// A command that speaks run frames.
pub(super) struct Framed {
    pipe: Pipe,
    session: Session,
    /// Artifacts on their way.
    open: BTreeMap<String, ArtifactWriter>,
    answers: Answers,
    /// What the command itself said went wrong.
    error: Option<ScriptError>,
}

impl Framed {
    pub(super) fn new(run: &RunInfo, answers: Answers) -> Self {
        let of = SessionOf {
            contract: Contract::OURS,
            run_id: run.run_id.to_string(),
            attempt: run.attempt,
            job_id: run.job_id.as_ref().map(|job| job.as_str().to_owned()),
            parent_run_id: run.parent_run_id.map(|run| run.to_string()),
            last_seq: 0,
        };
        let (pipe, session) = (Pipe::default(), Session::new(of));
        Self { pipe, session, open: BTreeMap::new(), answers, error: None }
    }

    /// Whether the command has to read some answers before more of it is heard.
    pub(super) fn is_full(&self) -> bool {
        self.answers.is_full()
    }

    /// Whether the command has said how the run ends, and its last.
    pub(super) const fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// The command reads no answers any more.
    pub(super) fn give_up_answers(&self) {
        self.answers.give_up();
    }

    /// Takes bytes of standard output, and hears what is whole: until too many answers wait; then it is heard when more bytes come, or none. What is
    /// refused and not fatal changes nothing; the session counts it.
    pub(super) fn hear(&mut self, bytes: &[u8], cx: &Context) -> Result<(), ScriptError> {
        self.pipe.push(bytes);
        while !self.answers.is_full()
            && let Some(frame) = self.pipe.next_frame()
        {
            let wanted = Wanted::of(&frame);
            let heard = match self.session.hear(frame) {
                Ok(heard) => heard,
                Err(refusal) if refusal.is_fatal() => return Err(refused(&refusal)),
                Err(refusal) => {
                    let mut bytes = Vec::new();
                    wanted.refuse(&refusal, &mut bytes);
                    if !bytes.is_empty() {
                        self.answers.push(bytes);
                    }
                    continue;
                }
            };
            match heard {
                Heard::Event(envelope, Event::Artifact { artifact_id, size_bytes, .. }) => {
                    if let Some(writer) = self.open.remove(artifact_id) {
                        let kept = writer.commit(size_bytes)?;
                        said(cx.emit().artifact_as_it_came(&envelope, kept))?;
                    }
                }
                Heard::Event(envelope, _) => said(cx.emit().say_as_it_came(&envelope))?,
                Heard::Chunk(chunk) => keep(&mut self.open, chunk, cx)?,
                Heard::File(file) => answer(&self.answers, file, cx)?,
                Heard::Step(request) => {
                    let mut bytes = Vec::new();
                    let asked = super::asked::answer(&request, cx, &mut bytes);
                    if !self.answers.push(bytes) && asked.is_ok() {
                        return Err(ScriptError::new(
                            "expected it to hear the answers to its steps, found that it does not",
                        ));
                    }
                    asked?;
                }
                Heard::Result(result) => {
                    self.error = result.message.map(|message| {
                        let error = ScriptError::new(message).of_type(result.error_type.unwrap_or_default());
                        result.stack.into_iter().fold(error, ScriptError::with_stack)
                    });
                }
            }
        }
        Ok(())
    }

    /// How the call ended: the terminal event says, or else the result and the exit code together.
    ///
    /// The status is that of the command, unless nobody knows it.
    pub(super) fn end(
        self,
        status: Option<ExitStatus>,
        cx: &Context,
        error: impl FnOnce(&str) -> ScriptError,
    ) -> Called<()> {
        let exit = match status.map(|status| (status.code(), status.signal())) {
            Some((Some(code), None)) => ProcessExit::Code(code),
            _ => ProcessExit::Killed,
        };
        let how = how(status);
        let has_said = self.session.terminal().is_some();
        let end = self.session.end(self.pipe.rest(), exit);
        cx.emit().gate().note_session(&end);
        match (end.outcome, end.fault) {
            (Outcome::VersionMismatch, Some(fault)) => {
                Called::Mismatch(error(&format!("follows another contract: {fault}")).message)
            }
            (_, Some(fault @ Refusal::CutOff { .. })) => Called::Crashed(error(&format!("{how}: {fault}")).message),
            // Nobody knows what the frames after such a one mean: it is the executor that failed. If it had said its end, that stays.
            (_, Some(fault)) => Called::Crashed(error(&format!("broke the contract: {fault}")).message),
            // What was said decides, and is said already.
            (_, None) if has_said => Called::Returned(()),
            (Outcome::Success { .. }, None) => Called::Returned(()),
            (Outcome::ScriptError, None) => Called::Failed(self.error.unwrap_or_else(|| error(&how))),
            (_, None) => Called::Crashed(error(&format!("{how}: and said no end")).message),
        }
    }
}

fn refused(refusal: &Refusal) -> ScriptError {
    ScriptError::new(refusal.to_string()).of_type(REFUSED)
}

/// That the call has to stop is found out elsewhere; what comes after the end is the session's business.
fn said(said: Result<(), EmitError>) -> Result<(), ScriptError> {
    match said {
        Ok(()) | Err(EmitError::Stopped(_) | EmitError::AfterTerminal) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn keep(
    open: &mut BTreeMap<String, ArtifactWriter>,
    chunk: ArtifactChunk<'_>,
    cx: &Context,
) -> Result<(), ScriptError> {
    if !open.contains_key(chunk.artifact_id) {
        let writer = cx.files()?.artifacts().begin()?;
        open.insert(chunk.artifact_id.to_owned(), writer);
    }
    let writer = open.get_mut(chunk.artifact_id).expect("it was just put there");
    Ok(writer.chunk(chunk.seq, chunk.is_last, chunk.data)?)
}

fn answer(answers: &Answers, file: FileWrite<'_>, cx: &Context) -> Result<(), ScriptError> {
    let kept = cx.put(file.filename, file.content_type, file.data);
    match kept {
        _ if file.write_id == 0 => {}
        Ok(_) => answers.push_kept(file.write_id),
        Err(why) => {
            let (why, mut bytes) = (why.to_string(), Vec::new());
            let ack = FileWriteAck { write_id: file.write_id, ok: false, error: Some(&why) };
            RunFrame::FileWriteAck(ack).append_to(&mut bytes)?;
            // A command that has closed its input does not want to know.
            answers.push(bytes);
        }
    }
    Ok(())
}
