//! What a check found: how it stands, what it saw, and what to do.

use std::fmt;

use serde_json::{Value, json};

/// How a check stands, from the best to the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Status {
    Ok,
    /// It could not be made, or there was nothing to look at: never counted as a pass.
    Skip,
    Warn,
    Fail,
}

impl Status {
    pub(super) const ALL: [Self; 4] = [Self::Ok, Self::Warn, Self::Fail, Self::Skip];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skip => "skip",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.as_str().to_uppercase())
    }
}

/// One line of the report.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    /// What was found.
    pub(super) what: String,
    /// What to do about it, in one line.
    pub(super) todo: Option<String>,
    /// The things it is about, a bounded number of them.
    pub(super) details: Vec<String>,
}

/// How many details are shown.
const DETAILS_MAX: usize = 8;

impl Check {
    fn new(name: &'static str, status: Status, what: impl Into<String>) -> Self {
        Self { name, status, what: what.into(), todo: None, details: Vec::new() }
    }

    pub(super) fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, what)
    }

    pub(super) fn skip(name: &'static str, why: impl Into<String>) -> Self {
        Self::new(name, Status::Skip, why)
    }

    pub(super) fn warn(name: &'static str, what: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { todo: Some(todo.into()), ..Self::new(name, Status::Warn, what) }
    }

    pub(super) fn fail(name: &'static str, what: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { todo: Some(todo.into()), ..Self::new(name, Status::Fail, what) }
    }

    pub(super) fn with(mut self, details: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut details = details.into_iter().map(Into::into);
        self.details.extend(details.by_ref().take(DETAILS_MAX));
        let left = details.count();
        self.details.extend((left > 0).then(|| format!("and {left} more")));
        self
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "status": self.status.as_str(),
            "what": self.what,
            "todo": self.todo,
            "details": self.details,
        })
    }
}

/// A number of things in words: `1 run`, `2 runs`.
pub(super) fn many(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// How long, in words that people use.
pub(super) fn lasting(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
