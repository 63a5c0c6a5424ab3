//! Durable steps that a script in another process asks for, done through its run's context and answered.
//!
//! ```text
//! step_request ──> Context: recalled, recorded, waited for, begun ──> step_answer
//! ```
//!
//! These frames extend the contract: [`STEPS_VERSION`]. A process knows by `KAURI_STEPS` in its environment that it is answered. It asks for
//! one step after the other, in an order that follows from its job alone. If what it waits for has not come it is answered `parked`, and
//! ended: its run begins anew when that has come, and the process then gets back what it recorded.

use kauri_wire::run::{FileWriteAck, RunFrame, StepAnswer, StepRequest, StepStatus, StepWish};
use kauri_wire::{JobId, RunId, Timestamp};

use super::context::Context;
use super::error::ScriptError;
use super::steps::{ActionEnd, BeganAction, StepsError};
use crate::run::outcome::Outcome;
use crate::run::pipe::Unread;
use crate::run::session::Refusal;

#[cfg(doc)]
use kauri_wire::run::STEPS_VERSION;

/// What a wish came to, if it came to something.
#[derive(Debug, Default)]
struct Got {
    data: Option<Vec<u8>>,
    text: Option<String>,
}

/// Which answer a frame wants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    None,
    File(u64),
    Step(u64),
}

impl Wanted {
    pub(super) const fn of(frame: &Result<RunFrame<'_>, Unread<'_>>) -> Self {
        match frame {
            Ok(RunFrame::FileWrite(file)) if file.write_id != 0 => Self::File(file.write_id),
            Ok(RunFrame::StepRequest(request)) => Self::Step(request.request_id),
            _ => Self::None,
        }
    }

    /// Adds the answer that it is refused, if one is wanted: whoever waits for it would wait for ever.
    pub(super) fn refuse(self, why: &Refusal, answers: &mut Vec<u8>) {
        let words = why.to_string();
        let frame = match self {
            Self::None => return,
            Self::File(write_id) => RunFrame::FileWriteAck(FileWriteAck { write_id, ok: false, error: Some(&words) }),
            Self::Step(request_id) => {
                let (status, text) = (StepStatus::Stopped, Some(&*words));
                RunFrame::StepAnswer(StepAnswer { request_id, status, data: None, text })
            }
        };
        frame.append_to(answers).expect("a refusal is short");
    }
}

/// Does what is asked for, and adds the answer's frame to `answers`.
///
/// # Errors
/// Why the process is to end: its run waits, or does not go on here; or the answer is too long for a frame.
pub(super) fn answer(request: &StepRequest<'_>, cx: &Context, answers: &mut Vec<u8>) -> Result<(), ScriptError> {
    let (status, got, end) = match ask(request, cx) {
        Ok((status, got)) => (status, got, None),
        Err(error) => {
            let status = match &error {
                StepsError::Diverged(_) => StepStatus::Diverged,
                StepsError::Parked => StepStatus::Parked,
                StepsError::Failed(_) => StepStatus::Failed,
                StepsError::Stopped(_) => StepStatus::Stopped,
            };
            let got = Got { data: None, text: Some(error.to_string()) };
            // What cannot be is the script's business; after the rest there is nothing more to be said.
            (status, got, (status != StepStatus::Failed).then(|| error.into()))
        }
    };
    let (request_id, data, text) = (request.request_id, got.data.as_deref(), got.text.as_deref());
    let frame = RunFrame::StepAnswer(StepAnswer { request_id, status, data, text });
    frame.append_to(answers).map_err(|error| ScriptError::new(error.to_string()))?;
    end.map_or(Ok(()), Err)
}

fn ask(request: &StepRequest<'_>, cx: &Context) -> Result<(StepStatus, Got), StepsError> {
    let name = request.name;
    let data = || request.data.unwrap_or_default().to_vec();
    let text = request.text.unwrap_or_default();
    let nothing = |()| (StepStatus::Done, Got::default());
    let bytes = |bytes| (StepStatus::Done, Got { data: Some(bytes), text: None });
    let words = |words| (StepStatus::Done, Got { data: None, text: Some(words) });
    let outcome = |outcome: Outcome| words(outcome.as_str().to_owned());
    match request.wish {
        StepWish::Recall => {
            Ok(cx.asked_steps()?.recall(name)?.map_or_else(|| (StepStatus::Absent, Got::default()), bytes))
        }
        StepWish::Record => cx.asked_steps()?.record(name, &data()).map(nothing),
        StepWish::SleepUntil => {
            let due = i64::try_from(request.due_ms.unwrap_or_default()).unwrap_or(i64::MAX);
            cx.wait_asked(|steps| steps.sleep_until(name, Timestamp(due))).map(nothing)
        }
        StepWish::WaitForSignal => cx.wait_asked(|steps| steps.wait_for_signal(name)).map(bytes),
        StepWish::WaitForJob => {
            let job = JobId::new(name).map_err(|error| StepsError::Failed(error.to_string()))?;
            cx.wait_asked(|steps| steps.wait_for_job(&job)).map(outcome)
        }
        StepWish::WaitForRun => {
            let run: RunId = name.parse().map_err(|error| StepsError::Failed(format!("{name:?}: {error}")))?;
            cx.wait_asked(|steps| steps.wait_for(run)).map(outcome)
        }
        StepWish::Enqueue => {
            let params = request.params.unwrap_or(kauri_wire::pack::Map::EMPTY);
            cx.asked_steps()?.enqueue(name, text, params).map(|run| words(run.to_string()))
        }
        StepWish::BeginAction => {
            let began = cx.unless_parked(cx.asked_steps()?.begin_action(name, text))?;
            Ok(match began {
                BeganAction::Done(result) => bytes(result),
                BeganAction::Begun(id) => (StepStatus::Begun, Got { data: None, text: Some(id) }),
            })
        }
        StepWish::ActionDone => end_action(name, ActionEnd::Done(data()), cx).map(nothing),
        StepWish::ActionNotDone => end_action(name, ActionEnd::NotDone(text.to_owned()), cx).map(nothing),
        StepWish::ActionInDoubt => {
            end_action(name, ActionEnd::InDoubt, cx)?;
            cx.unless_parked(Err(StepsError::Parked))
        }
    }
}

fn end_action(name: &str, end: ActionEnd, cx: &Context) -> Result<(), StepsError> {
    cx.unless_parked(cx.asked_steps()?.end_action(name, end))
}
