//! Why a command did not succeed, and the exit code that says so.

use std::fmt;
use std::io;

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Both kinds carry one sentence for the person at the terminal.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asked for something that does not exist.
    Usage(String),
    /// The work was asked for properly and went wrong.
    Failed(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 2,
        }
    }

    /// An I/O error, with what was being done: `cannot read X: no such file`.
    pub(crate) fn io(doing: impl fmt::Display) -> impl FnOnce(io::Error) -> Failure {
        move |error| Failure::Failed(format!("cannot {doing}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(what) | Failure::Failed(what) => f.write_str(what),
        }
    }
}
