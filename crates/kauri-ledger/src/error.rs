//! What can go wrong in a ledger.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::action::Status;
use crate::lock::Holder;

/// Why the ledger could not do what was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The disk or the system failed.
    Io {
        /// What was being done, as in "cannot *open the journal*".
        doing: String,
        /// What the system said.
        cause: io::Error,
    },
    /// Somebody has the lock.
    Locked {
        /// The lock's file.
        lock: PathBuf,
        /// Who has it, if that could be found out.
        holder: Option<Box<Holder>>,
    },
    /// Locks are taken in their order only: the home first, then workspaces by name.
    LockOrder {
        /// The lock that is held.
        held: PathBuf,
        /// The lock that was asked for.
        wanted: PathBuf,
    },
    /// The lock's file was removed or replaced while it was held.
    LockLost {
        /// The lock's file.
        lock: PathBuf,
    },
    /// The lock was taken by a later program.
    NewerLock {
        /// The lock's file.
        lock: PathBuf,
        /// The latest version of the metadata that is understood.
        most: u32,
        /// The version found.
        found: u32,
    },
    /// The directory is where locks or syncs cannot be trusted.
    ForeignFileSystem {
        /// The directory.
        directory: PathBuf,
        /// What it is on.
        kind: String,
    },
    /// The database was made by a later program.
    NewerSchema {
        /// The latest schema that is understood.
        most: u32,
        /// The schema found.
        found: u32,
    },
    /// The database refused or failed.
    Sql {
        /// What was being done.
        doing: &'static str,
        /// What the database said.
        cause: rusqlite::Error,
    },
    /// An operation changed another number of rows than it had to; nothing of its submission was applied.
    RowCount {
        /// The number it had to change.
        expected: usize,
        /// The number it would have changed.
        found: usize,
    },
    /// As many submissions wait as may.
    QueueFull,
    /// The queue was closed.
    QueueClosed,
    /// The submission was not applied, for a reason that is not its own.
    NotApplied {
        /// Why.
        why: String,
    },
    /// Nobody knows whether the submission was applied. `Database::was_applied` tells after the database has been opened again.
    Unknown {
        /// What to ask with.
        key: crate::queue::BatchKey,
        /// Why it is not known.
        why: String,
    },
    /// A file does not hold what was written.
    Damaged {
        /// The file.
        file: String,
        /// The byte at which the damage begins.
        at: u64,
        /// What was expected there, and what was found.
        what: String,
    },
    /// There is an action of this id already.
    ActionExists {
        /// The id.
        id: String,
        /// How far it has come.
        status: Status,
    },
    /// There is no action of this id.
    NoSuchAction {
        /// The id.
        id: String,
    },
    /// The action is not in a state in which this can be done.
    WrongStatus {
        /// The id.
        id: String,
        /// How far it has come.
        status: Status,
        /// What it would have to be.
        expected: &'static str,
    },
    /// Something given by the caller is not as it must be.
    Input {
        /// What it is.
        what: &'static str,
        /// What was expected.
        expected: &'static str,
        /// What was found, shortened.
        found: String,
    },
    /// The database was made by an earlier program, and whoever only looks does not change it.
    OlderSchema {
        /// The schema that this program knows.
        expected: u32,
        /// The database's.
        found: u32,
    },
    /// The ledger is only looked at.
    ReadOnly,
    /// The kill switch is thrown.
    Stopped {
        /// Why.
        reason: String,
    },
}

/// What the ledger answers.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Whether the same call may succeed later, without anything being mended.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::QueueFull | Self::NotApplied { .. } | Self::Stopped { .. })
    }

    /// Whether a file is damaged.
    #[must_use]
    pub const fn is_corruption(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |cause| Self::Io { doing, cause }
    }

    pub(crate) fn path(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(format!("{doing} {}", path.display()))
    }

    pub(crate) fn sql(doing: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |cause| Self::Sql { doing, cause }
    }

    pub(crate) fn input(what: &'static str, expected: &'static str, found: &str) -> Self {
        Self::Input { what, expected, found: found.chars().take(64).collect() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, cause } => write!(f, "cannot {doing}: {cause}"),
            Self::Locked { lock, holder: Some(holder) } => write!(f, "{} is locked by {holder}", lock.display()),
            Self::Locked { lock, holder: None } => {
                write!(f, "{} is locked by a process that has not said who it is", lock.display())
            }
            Self::LockOrder { held, wanted } => write!(
                f,
                "locks are taken in their order, the home first and then workspaces by name: \
                 expected a lock after {}, found {}",
                held.display(),
                wanted.display()
            ),
            Self::LockLost { lock } => {
                write!(
                    f,
                    "{} was removed or replaced while it was locked: stop, somebody else may hold it",
                    lock.display()
                )
            }
            Self::NewerLock { lock, most, found } => write!(
                f,
                "{} was locked by a later program: expected lock_version {most} at most, found {found}; upgrade this one",
                lock.display()
            ),
            Self::ForeignFileSystem { directory, kind } => write!(
                f,
                "{} is on {kind}, where locks and syncs cannot be trusted: expected a disk of this machine \
                 (or be told to use it all the same)",
                directory.display()
            ),
            Self::NewerSchema { most, found } => write!(
                f,
                "the database was made by a later program: expected schema {most} at most, found {found}; upgrade this one"
            ),
            Self::Sql { doing, cause } => write!(f, "cannot {doing}: {cause}"),
            Self::RowCount { expected, found } => {
                write!(f, "expected the statement to change {expected} rows, found {found}; nothing was applied")
            }
            Self::QueueFull => write!(f, "the writer queue is full; nothing was applied"),
            Self::QueueClosed => write!(f, "the writer queue is closed; nothing was applied"),
            Self::NotApplied { why } => write!(f, "not applied: {why}"),
            Self::Unknown { key, why } => {
                write!(
                    f,
                    "nobody knows whether this was applied (ask with key {key} after opening the database again): {why}"
                )
            }
            Self::Damaged { file, at, what } => write!(f, "{file} is damaged at byte {at}: {what}"),
            Self::ActionExists { id, status } => {
                write!(f, "expected a new action, found {id:?} with status {status}; a retry is a new action")
            }
            Self::NoSuchAction { id } => write!(f, "there is no action {id:?}"),
            Self::WrongStatus { id, status, expected } => {
                write!(f, "expected {expected}, found the action {id:?} with status {status}")
            }
            Self::Input { what, expected, found } => write!(f, "{what}: expected {expected}, found {found:?}"),
            Self::OlderSchema { expected, found } => write!(
                f,
                "the database was made by an earlier program: expected schema {expected}, found {found}; \
                 it is brought up to date when it is next worked with"
            ),
            Self::ReadOnly => write!(f, "expected to read, found a change of a ledger that is only looked at"),
            Self::Stopped { reason } => write!(f, "the kill switch is thrown: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { cause, .. } => Some(cause),
            Self::Sql { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
