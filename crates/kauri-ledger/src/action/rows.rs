//! The rows of actions, wherever they are kept: the database, or what stands for it in a simulation.

use super::status::Status;
use crate::audit::Anchor;
use crate::clock::Timestamp;
use crate::error::Result;

/// One action, as the table `actions` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionRow {
    /// Which action.
    pub action_id: String,
    /// What it belongs to.
    pub trace_id: String,
    /// What it does, redacted.
    pub task: String,
    /// How far it has come.
    pub status: Status,
    /// Where its result is.
    pub result_ref: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// Why it failed.
    pub error: Option<String>,
    /// The action that it tries again.
    pub retry_of: Option<String>,
    /// The actions whose results it needs.
    pub needs: Vec<String>,
}

/// How far an action has come, and where its result is.
pub type Standing = (Status, Option<String>);

/// A line of the journal, by its place and its checksum: a journal that was written anew does not have it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The number of the line.
    pub seq: u64,
    /// Where it ends.
    pub end_at: u64,
    /// Its checksum.
    pub checksum: String,
}

/// What became of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled<'a> {
    /// Its new status.
    pub status: Status,
    /// Where its result is.
    pub result_ref: Option<&'a str>,
    /// Why it failed.
    pub error: Option<&'a str>,
    /// When.
    pub at: Timestamp,
}

/// Where rows of actions are kept. A change that returned is durable, and is there whole or not at all.
pub trait Rows: Send + Sync + 'static {
    /// Adds the row of an action that has none.
    ///
    /// # Errors
    /// If there is one; and whatever goes wrong with writing.
    fn insert(&self, row: &ActionRow) -> Result<()>;

    /// Changes the status of an action that has one of those in `from`, at most three. `anchor` is kept with it, in the same
    /// commit, unless a later one is.
    ///
    /// # Errors
    /// `RowCount` if there is no such action; and whatever goes wrong with writing.
    fn settle(&self, id: &str, from: &[Status], settled: &Settled<'_>, anchor: Option<&Anchor>) -> Result<()>;

    /// The row of an action, with its links.
    ///
    /// # Errors
    /// Whatever goes wrong with reading; for all that only read it is the same.
    fn find(&self, id: &str) -> Result<Option<ActionRow>>;

    /// Status and result of each of these actions.
    #[expect(clippy::missing_errors_doc, reason = "as of find")]
    fn statuses(&self, ids: &[&str]) -> Result<Vec<Option<Standing>>>;

    /// The actions with one of these statuses, at most three, whose id comes after this one; in order, without their links.
    #[expect(clippy::missing_errors_doc, reason = "as of find")]
    fn each_with(&self, statuses: &[Status], after: &str, most: u32) -> Result<Vec<ActionRow>>;

    /// The actions that need the result of this one.
    #[expect(clippy::missing_errors_doc, reason = "as of find")]
    fn dependents(&self, id: &str) -> Result<Vec<String>>;

    /// The action that tries this one again.
    #[expect(clippy::missing_errors_doc, reason = "as of find")]
    fn retry_of(&self, id: &str) -> Result<Option<String>>;

    /// Up to which line the journal is known to agree with the rows.
    #[expect(clippy::missing_errors_doc, reason = "as of find")]
    fn mark(&self) -> Result<Option<Mark>>;

    /// Sets that.
    ///
    /// # Errors
    /// Whatever goes wrong with writing.
    fn set_mark(&self, mark: &Mark) -> Result<()>;

    /// Keeps an anchor of the audit, unless a later one of its day is kept.
    ///
    /// # Errors
    /// Whatever goes wrong with writing.
    fn set_anchor(&self, anchor: &Anchor) -> Result<()>;

    /// The anchors that are kept.
    #[expect(clippy::missing_errors_doc, reason = "as of find")]
    fn anchors(&self) -> Result<Vec<Anchor>>;
}
