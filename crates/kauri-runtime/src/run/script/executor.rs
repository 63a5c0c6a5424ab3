//! What runs a script: a Rust function, a guest, a process.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::context::Context;
use super::error::ScriptError;
use super::hook::{Hook, Hooks, LoadError};
use super::plan::RunInfo;
use super::stop::{Cause, Stop};

/// What runs a script.
///
/// Calls come one after the other, in the order of a run, and only for hooks that the script has. Each returns not long after its [`Stop`] says that it
/// has to: an executor cuts what does not stop by itself, in whatever way it can (a guest by its epoch, a process by a signal, a thread by leaving it
/// alone), and says [`Called::Cut`].
///
/// ```
/// # use std::sync::Arc;
/// use kauri_runtime::run::script::{Call, Called, Context, Executor, Hook, Hooks, LoadError, Prepared, RunInfo, Stop};
/// use serde_json::Value;
///
/// /// Says what it is called with.
/// struct Echo;
///
/// impl Executor for Echo {
///     fn load(&mut self, _: &Stop) -> Result<Hooks, LoadError> {
///         Ok(Hooks::NONE.with(Hook::Cleanup))
///     }
///
///     fn prepare(&mut self, _: &Arc<Value>, _: &Arc<RunInfo>, _: &Stop) -> Called<Prepared> {
///         Called::Returned(Prepared::CONTINUE)
///     }
///
///     fn call(&mut self, call: Call, cx: &Context) -> Called<()> {
///         match call {
///             Call::Run => match cx.emit().log_info(&cx.job().to_string()) {
///                 Ok(()) => Called::Returned(()),
///                 Err(error) => Called::Failed(error.into()),
///             },
///             _ => Called::Returned(()),
///         }
///     }
/// }
/// ```
pub trait Executor: Send {
    /// Loads the script and tells which hooks it has.
    ///
    /// # Errors
    /// Why it is none, or not one for us.
    fn load(&mut self, stop: &Stop) -> Result<Hooks, LoadError>;

    /// Asks the hook `prepare`.
    fn prepare(&mut self, job: &Arc<Value>, run: &Arc<RunInfo>, stop: &Stop) -> Called<Prepared>;

    /// Makes another call.
    fn call(&mut self, call: Call, cx: &Context) -> Called<()>;
}

/// A call of a script or of a hook.
#[derive(Clone, Debug)]
pub enum Call {
    /// The hook `before_run`.
    BeforeRun,
    /// The script.
    Run,
    /// The hook `after_run`.
    AfterRun,
    /// The hook `on_error`, and the error.
    OnError(Arc<ScriptError>),
    /// The hook `before_terminal`, and what is about to be said.
    BeforeTerminal(Arc<TerminalSignal>),
    /// The hook `cleanup`.
    Cleanup,
}

impl Call {
    /// The hook that is called, unless it is the script.
    #[must_use]
    pub const fn hook(&self) -> Option<Hook> {
        match self {
            Self::BeforeRun => Some(Hook::BeforeRun),
            Self::Run => None,
            Self::AfterRun => Some(Hook::AfterRun),
            Self::OnError(_) => Some(Hook::OnError),
            Self::BeforeTerminal(_) => Some(Hook::BeforeTerminal),
            Self::Cleanup => Some(Hook::Cleanup),
        }
    }
}

/// How a call ended.
#[derive(Clone, PartialEq, Debug)]
pub enum Called<T> {
    /// It returned.
    Returned(T),
    /// It failed.
    Failed(ScriptError),
    /// It had to be stopped.
    Cut(Cause),
    /// What was called follows another contract, and this says which: nothing more is asked of it, and another attempt would find the same.
    Mismatch(String),
    /// The executor itself is gone, and cannot be called again.
    Crashed(String),
}

/// What `prepare` says.
#[derive(Clone, PartialEq, Debug)]
pub enum Prepared {
    /// Go on.
    Continue {
        /// With this job instead, if there is one. `Some(Value::Null)` replaces the job by null; `None` keeps it.
        job: Option<Value>,
    },
    /// There is nothing to do.
    Skip {
        /// Why.
        reason: Option<String>,
    },
}

impl Prepared {
    /// Go on with the job as it is.
    pub const CONTINUE: Self = Self::Continue { job: None };

    /// What a script in another language answers: `{"action": "continue", "job": ...}` or `{"action": "skip", "reason": ...}`. A job that is there
    /// and null replaces the job by null.
    ///
    /// # Errors
    /// If it is anything else; that counts as a failure of `prepare`.
    ///
    /// ```
    /// use kauri_runtime::run::script::Prepared;
    /// use serde_json::{Value, json};
    ///
    /// assert_eq!(Prepared::from_json(json!({"action": "continue"})), Ok(Prepared::Continue { job: None }));
    /// let null = Prepared::from_json(json!({"action": "continue", "job": null}));
    /// assert_eq!(null, Ok(Prepared::Continue { job: Some(Value::Null) }));
    /// assert!(Prepared::from_json(json!({"action": "dance"})).is_err());
    /// assert!(Prepared::from_json(Value::Null).is_err());
    /// ```
    pub fn from_json(answer: Value) -> Result<Self, ScriptError> {
        let Value::Object(mut answer) = answer else {
            return Err(bad_answer(&format!("{answer:.80}")));
        };
        match answer.get("action").and_then(Value::as_str) {
            Some("continue") => Ok(Self::Continue { job: answer.shift_remove("job") }),
            Some("skip") => match answer.get("reason") {
                None | Some(Value::Null) => Ok(Self::Skip { reason: None }),
                Some(Value::String(reason)) => Ok(Self::Skip { reason: Some(reason.clone()) }),
                Some(_) => Err(bad_answer("a reason that is no text")),
            },
            Some(action) => Err(bad_answer(&format!("the action {action:?}"))),
            None => Err(bad_answer("no action")),
        }
    }
}

fn bad_answer(found: &str) -> ScriptError {
    let message = format!("expected prepare to answer with the action \"continue\" or \"skip\", found {found}");
    ScriptError::new(message).of_type("invalid_prepare")
}

/// What `before_terminal` is told: how the run is about to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TerminalSignal {
    /// With `run_complete`.
    Completed,
    /// With `run_error`, because of this.
    Error(ScriptError),
}

impl fmt::Display for TerminalSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::Error(error) => write!(f, "error: {error}"),
        }
    }
}
