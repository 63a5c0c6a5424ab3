//! How a script fails.

use std::fmt;

use super::emit::EmitError;
use super::stop::Cause;
use crate::run::artifact::KeepError;

/// The error of a script or a hook: what its `run_error` event says.
///
/// ```
/// use kauri_runtime::run::script::ScriptError;
///
/// let error = ScriptError::new("the shop is closed").of_type("http_503");
/// assert_eq!(error.to_string(), "http_503: the shop is closed");
/// // Common errors become one with `?`.
/// let error: ScriptError = "12x".parse::<u32>().unwrap_err().into();
/// assert_eq!(error.error_type, "script_error");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptError {
    /// The class of the error. Never empty.
    pub error_type: String,
    /// What it says.
    pub message: String,
    /// Where it came from.
    pub stack: Option<String>,
}

/// The class of errors that have no other.
const SCRIPT_ERROR: &str = "script_error";

impl ScriptError {
    /// An error that says this.
    pub fn new(message: impl Into<String>) -> Self {
        Self { error_type: SCRIPT_ERROR.to_owned(), message: message.into(), stack: None }
    }

    /// The same error, of this class; an empty name is none.
    #[must_use]
    pub fn of_type(mut self, error_type: impl Into<String>) -> Self {
        let error_type = error_type.into();
        if !error_type.is_empty() {
            self.error_type = error_type;
        }
        self
    }

    /// The same error, from here.
    #[must_use]
    pub fn with_stack(mut self, stack: impl Into<String>) -> Self {
        self.stack = Some(stack.into());
        self
    }

    /// What a panic says.
    pub(crate) fn from_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::new(text.unwrap_or("a panic without words")).of_type("panic")
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error_type, self.message)
    }
}

impl From<Cause> for ScriptError {
    fn from(cause: Cause) -> Self {
        Self::new(cause.to_string()).of_type("stopped")
    }
}

impl From<EmitError> for ScriptError {
    fn from(error: EmitError) -> Self {
        Self::new(error.to_string()).of_type("emit_error")
    }
}

impl From<KeepError> for ScriptError {
    fn from(error: KeepError) -> Self {
        Self::new(error.to_string()).of_type("keep_error")
    }
}

macro_rules! from_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for ScriptError {
            fn from(error: $error) -> Self {
                Self::new(error.to_string())
            }
        }
    )*};
}

// Not for every error: then `ScriptError` could not be one that `?` turns into itself.
from_errors!(
    String,
    &str,
    std::io::Error,
    std::num::ParseIntError,
    std::num::ParseFloatError,
    fmt::Error,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
    serde_json::Error,
    kauri_wire::WireError,
    crate::Error
);
