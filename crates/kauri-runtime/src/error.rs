//! What can go wrong in a runtime.

use std::fmt;

use kauri_wire::{SchemaVersion, WireError};

use crate::run::RunFault;

/// Why the runtime could not do what was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The store underneath failed.
    Store(kauri_tree::Error),
    /// The substrate underneath, which is no store of ours, failed.
    Substrate(Box<dyn std::error::Error + Send + Sync>),
    /// A frame, a key or an id is not what it should be.
    Wire(WireError),
    /// The tables that were described cannot be those of a runtime.
    Layout(LayoutFault),
    /// The store has no schema marker, and making one was not allowed.
    NoSchema,
    /// The store's schema marker is of another version.
    OtherSchema {
        /// The version this runtime works with.
        expected: SchemaVersion,
        /// The store's.
        found: SchemaVersion,
    },
    /// What stands in the place of the schema marker is none.
    BadMarker(WireError),
    /// A row of the runtime's own tables does not decode.
    Damaged {
        /// The table.
        table: &'static str,
        /// What was expected of the row.
        expected: &'static str,
    },
    /// Somebody changed what the block had read, in every pass it was allowed.
    Conflict(Conflict),
    /// The table is the runtime's own: a block reads it and never writes to it.
    Reserved {
        /// The table.
        table: Box<str>,
    },
    /// A block writes where it was declared to read only.
    ReadOnly,
    /// A limit is passed.
    Limit {
        /// What is limited.
        of: &'static str,
        /// The limit.
        most: u64,
        /// What was asked for.
        found: u64,
    },
    /// A schedule's expression or interval is none.
    Schedule(Box<str>),
    /// What was asked of a run or a job cannot be done.
    Run(RunFault),
    /// The runtime was stopped.
    Stopped,
    /// A thread could not be started, a file or a stream not be written.
    Io(std::io::Error),
}

/// Which row had changed since it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// The table.
    pub table: Box<str>,
    /// The first key seen to have changed; for a range, its start.
    pub key: Box<[u8]>,
}

/// What is wrong with a description of tables.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LayoutFault {
    /// Table 0 must be there and be called `app_state`.
    NoAppState,
    /// Table numbers must follow each other from 0.
    Gap {
        /// The number expected next.
        expected: u16,
        /// The number that stood there.
        found: u16,
    },
    /// A name stands twice.
    Twice(&'static str),
    /// A table the runtime needs is not described, or under another number.
    Missing(&'static str),
}

impl Error {
    /// Whether the same call may succeed when it is made again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Conflict(_) => true,
            Self::Store(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// Whether stored data is damaged.
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Store(error) => error.is_corruption(),
            _ => false,
        }
    }

    /// Whether something was asked for that can never be done, whoever tries again: a row that is too long or of another type than its
    /// table. Nothing else is the worse for it.
    pub(crate) const fn is_refusal(&self) -> bool {
        use kauri_tree::Error as Tree;
        match self {
            Self::Limit { .. } => true,
            Self::Store(error) => matches!(
                error,
                Tree::KeyTooLong { .. }
                    | Tree::ValueTooLong { .. }
                    | Tree::NameTooLong { .. }
                    | Tree::OtherTypes { .. }
            ),
            _ => false,
        }
    }

    pub(crate) const fn damaged(table: &'static str, expected: &'static str) -> Self {
        Self::Damaged { table, expected }
    }
}

/// What a runtime answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl fmt::Display for LayoutFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAppState => f.write_str("expected table 0 to be app_state, found none or another"),
            Self::Gap { expected, found } => write!(f, "expected table {expected} next, found table {found}"),
            Self::Twice(name) => write!(f, "expected each table once, found `{name}` twice"),
            Self::Missing(name) => write!(f, "expected the runtime's table `{name}` in its place, found none"),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row \"{}\" of table `{}` changed after it was read", self.key.escape_ascii(), self.table)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "{error}"),
            Self::Substrate(error) => write!(f, "the substrate failed: {error}"),
            Self::Wire(error) => write!(f, "{error}"),
            Self::Layout(fault) => write!(f, "{fault}"),
            Self::NoSchema => f.write_str("expected a schema marker, found none: this store was not made by a runtime"),
            Self::OtherSchema { expected, found } => write!(
                f,
                "expected schema {}.{}, found {}.{}: use the program that made the store, or migrate it",
                expected.major, expected.minor, found.major, found.minor
            ),
            Self::BadMarker(error) => write!(f, "the schema marker is none: {error}"),
            Self::Damaged { table, expected } => write!(f, "a row of table `{table}` is damaged: expected {expected}"),
            Self::Conflict(conflict) => write!(f, "{conflict}, in every pass the block was allowed"),
            Self::Reserved { table } => write!(f, "table `{table}` belongs to the runtime: a block cannot write to it"),
            Self::ReadOnly => f.write_str("the block was declared to read only, and writes"),
            Self::Limit { of, most, found } => write!(f, "expected at most {most} {of}, found {found}"),
            Self::Schedule(what) => write!(f, "{what}"),
            Self::Run(fault) => write!(f, "{fault}"),
            Self::Stopped => f.write_str("the runtime was stopped"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Substrate(error) => Some(&**error),
            Self::Wire(error) | Self::BadMarker(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Run(fault) => Some(fault),
            _ => None,
        }
    }
}

impl From<kauri_tree::Error> for Error {
    fn from(error: kauri_tree::Error) -> Self {
        Self::Store(error)
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<RunFault> for Error {
    fn from(fault: RunFault) -> Self {
        Self::Run(fault)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}
