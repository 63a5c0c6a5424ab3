//! What can go wrong in a store.

use std::{fmt, io};

/// Why a store could not do what was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The disk failed.
    Io(io::Error),
    /// A page is not what it should be.
    Corrupt {
        /// The page.
        page: u32,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A key is longer than a quarter of a page.
    KeyTooLong {
        /// How long a key may be.
        most: usize,
        /// How long it is.
        found: usize,
    },
    /// The store has as many pages as it can have.
    Full,
}

impl Error {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }

    /// Whether the store's file is damaged.
    #[must_use]
    pub const fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }
}

/// What a store answers.
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with the bytes of a page: what was expected of them, and the number that stood there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    expected: &'static str,
    found: u64,
}

impl Fault {
    pub(crate) const fn new(expected: &'static str, found: u64) -> Self {
        Self { expected, found }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the disk failed: {error}"),
            Self::Corrupt { page, fault } => write!(f, "page {page} is damaged: {fault}"),
            Self::KeyTooLong { most, found } => write!(f, "expected a key of at most {most} bytes, found {found}"),
            Self::Full => f.write_str("the store is full: it has as many pages as it can have"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
