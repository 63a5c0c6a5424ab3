//! The control socket of a home: what a running instance is asked and answers.
//!
//! ```text
//! home/runtime/control.sock    0600, there while an instance runs
//!
//! > {"v":1,"do":"submit","class":"mail","input":{"to":"ann@example.org"}}
//! < {"v":1,"ok":{"job_id":"job-...","run_id":"...","new":true}}
//! > {"v":1,"do":"dance"}
//! < {"v":1,"error":{"code":"unknown","message":"expected one of ..., found \"dance\""}}
//! ```
//!
//! A line is a request, and gets one line as its answer, in order; a connection may ask as often as it likes. A request that waits for something
//! names how long (`wait_ms`), and is answered after that at the latest. The words are in `docs/cli-json.md`.
//!
//! [`answer`] needs nothing but a runtime: so whoever has the lock of a home in which nobody works asks it the same, without a socket. What
//! needs the ledger, too, is beside it: decisions about actions, and [`purge`], which writes into the audit.

mod answer;
mod client;
mod decide;
mod ended;
mod purge;
mod serve;

use std::fmt;

use kauri_runtime::run::Run;
use serde_json::{Value, json};

pub(crate) use self::answer::unknown;
pub use self::answer::{WORDS, answer, classes_json};
pub use self::client::{AskError, Client};
pub use self::decide::{action_json, decision_json};
pub(crate) use self::decide::{decision, resolve};
pub(crate) use self::ended::last_words;
pub use self::ended::{ended_json, tree_json};
pub use self::purge::purge;
pub use self::serve::{Answering, Server};

/// The version of the requests.
pub const VERSION: u64 = 1;
/// The longest request.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;
/// The longest that a request waits for something.
pub const WAIT_MS_MAX: u64 = 30_000;

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What sort of trouble, in a word.
    pub code: Code,
    /// What was expected, and what was found.
    pub message: String,
}

/// What sort of trouble.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The request is of another version.
    Version,
    /// Nobody knows such a request.
    Unknown,
    /// The request is not as it must be.
    Bad,
    /// The request is too long.
    TooLong,
    /// Too many are asking.
    Busy,
    /// There is no such run, job, class or step.
    NotFound,
    /// It cannot be done as things are.
    Refused,
    /// The store or something else failed.
    Failed,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Version,
        Self::Unknown,
        Self::Bad,
        Self::TooLong,
        Self::Busy,
        Self::NotFound,
        Self::Refused,
        Self::Failed,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Unknown => "unknown",
            Self::Bad => "bad_request",
            Self::TooLong => "too_long",
            Self::Busy => "busy",
            Self::NotFound => "not_found",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

impl Fault {
    /// Trouble of this sort.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn to_json(&self) -> Value {
        json!({ "v": VERSION, "error": { "code": self.code.as_str(), "message": self.message } })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

/// A run as the commands print it.
#[must_use]
pub fn run_json(run: &Run) -> Value {
    let mut value = run.to_json();
    let at = |at: Option<kauri_wire::Timestamp>| at.map(|at| moment(at.0));
    value["created"] = moment(run.created.0).into();
    value["started"] = at(run.started).into();
    value["ended"] = at(run.ended).into();
    value
}

/// A moment, as people and scripts read it.
pub(crate) fn moment(millis: i64) -> String {
    kauri_ledger::Timestamp(millis).to_string()
}
