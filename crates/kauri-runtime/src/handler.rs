//! Handlers: what a worker does with a message, and how that may fail.

use std::fmt;

use kauri_wire::{MessageRef, WireError};

use crate::atomic::Atomic;
use crate::error::Error;

/// What a worker does with its messages: code that runs in an [`Atomic`] block.
///
/// It may be run again for the same message, after a conflict, a failure or a crash; what it wrote before is gone then. So it touches
/// nothing but its block, and asks nobody else for the time: [`Atomic::now`] says it.
///
/// Any `FnMut(&mut Atomic<'_>, MessageRef<'_>) -> Result<(), Failure> + Send` is one.
pub trait Handler: Send {
    /// Handles a message.
    ///
    /// # Errors
    /// Says how it failed: see [`Failure`]. Then nothing of what it wrote is kept.
    fn handle(&mut self, block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure>;
}

impl<F: FnMut(&mut Atomic<'_>, MessageRef<'_>) -> Result<(), Failure> + Send> Handler for F {
    fn handle(&mut self, block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
        self(block, message)
    }
}

/// How a handler failed.
#[derive(Debug)]
pub enum Failure {
    /// It may succeed later with nothing changed: something is busy or not there yet.
    Retry(Box<str>),
    /// It will fail again unless something is changed: the message or the code is wrong.
    Fatal(Box<str>),
    /// The runtime itself failed. The step is neither counted nor disposed of.
    Runtime(Error),
}

impl Failure {
    /// A failure that may pass.
    pub fn retry(why: impl fmt::Display) -> Self {
        Self::Retry(why.to_string().into())
    }

    /// A failure that will not pass by itself.
    pub fn fatal(why: impl fmt::Display) -> Self {
        Self::Fatal(why.to_string().into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(why) | Self::Fatal(why) => f.write_str(why),
            Self::Runtime(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    /// What the code did wrong is fatal, a conflict is not, and trouble of the store is the runtime's.
    fn from(error: Error) -> Self {
        match error {
            Error::Conflict(conflict) => Self::retry(conflict),
            Error::Wire(_) | Error::Reserved { .. } | Error::ReadOnly | Error::Schedule(_) | Error::Run(_) => {
                Self::fatal(error)
            }
            // A row of the application's that is not of its table's type.
            Error::Store(kauri_tree::Error::Undecodable(_)) => Self::fatal(error),
            refused if refused.is_refusal() => Self::fatal(refused),
            other => Self::Runtime(other),
        }
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::fatal(error)
    }
}

impl From<kauri_tree::Error> for Failure {
    fn from(error: kauri_tree::Error) -> Self {
        Error::from(error).into()
    }
}
