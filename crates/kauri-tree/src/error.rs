//! What can go wrong in a store.

use std::{fmt, io};

use crate::content::ContentHash;

/// Why a store could not do what was asked.
///
/// ```
/// use kauri_tree::{Error, Options};
///
/// let error = Options::new().page_bytes(1000).in_memory().unwrap_err();
/// assert!(matches!(error, Error::PageSize { found: 1000 }));
/// assert_eq!(error.to_string(), "expected pages of a power of two from 256 to 65536 bytes, found 1000");
/// ```
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
    /// Another program, or another part of this one, has the store open.
    Locked,
    /// The file was written by a later program.
    NewerFormat {
        /// The latest format that can be read.
        most: u32,
        /// The file's.
        found: u32,
    },
    /// A write failed before: nobody knows what the file holds, and nothing is written to it until it is opened again.
    Broken,
    /// The store was opened to be read only.
    ReadOnly,
    /// Pages cannot have this size.
    PageSize {
        /// The size asked for.
        found: usize,
    },
    /// A key is longer than a quarter of a page less eight bytes.
    KeyTooLong {
        /// How long a key may be.
        most: usize,
        /// How long it is.
        found: usize,
    },
    /// A value is longer than a value can be.
    ValueTooLong {
        /// How long a value may be.
        most: usize,
        /// How long it is.
        found: usize,
    },
    /// The name of a table is longer than a key can be, or too long to stand in a page beside the names of its types.
    NameTooLong {
        /// How long the name of a table of these types may be.
        most: usize,
        /// How long it is.
        found: usize,
    },
    /// A table was made for other types than it is used with.
    OtherTypes {
        /// The table.
        table: Box<str>,
        /// What it is used with.
        expected: Box<str>,
        /// What it was made for.
        found: Box<str>,
    },
    /// The bytes of a key or a value are not those of its type.
    Undecodable(kauri_wire::WireError),
    /// The store has as many pages as it can have.
    Full,
    /// The last sequence under a prefix of a table is used: there is none to append a row with.
    LastSequence {
        /// The table.
        table: Box<str>,
    },
    /// A counter would be more, or less, than its type can say.
    Overflow {
        /// The table.
        table: Box<str>,
    },
    /// A change was made against a snapshot of another store than it is committed to, or snapshots of two stores were compared.
    OtherStore,
    /// A checkpoint stream is damaged, cut, or not one.
    Stream {
        /// At which byte of it.
        at: u64,
        /// What is wrong there.
        fault: Fault,
    },
    /// A stream with what changed since a base was to be restored where something else is.
    OtherBase {
        /// The content of the base.
        expected: ContentHash,
        /// The content of the store.
        found: ContentHash,
    },
    /// A stream with everything was to be restored into a store that has tables.
    NotEmpty,
    /// A store was to be made under a name that is taken.
    Exists {
        /// The name.
        name: Box<str>,
    },
    /// A pin was to be made under a name that another has.
    PinExists {
        /// The name.
        name: Box<str>,
    },
    /// The keys of a table are not in the order of their bytes, and without their type no key can be found.
    OwnOrder {
        /// The table.
        table: Box<str>,
    },
    /// Rows were to come in ascending order, and this key is not greater than the one before.
    Unsorted,
    /// One of several rows could not be written.
    Row {
        /// Which, counted from 0.
        row: u64,
        /// Why.
        error: Box<Error>,
    },
}

impl Error {
    /// Whether the same call may succeed later.
    ///
    /// ```
    /// use kauri_tree::Options;
    /// use kauri_tree::disk::MemoryDisk;
    ///
    /// let disk = MemoryDisk::new();
    /// let first = Options::new().open(&disk, "store")?;
    /// assert!(Options::new().open(&disk, "store").unwrap_err().is_retryable());
    /// drop(first);
    /// assert!(Options::new().open(&disk, "store").is_ok());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Locked)
    }

    /// Whether the store's file is damaged.
    ///
    /// ```
    /// use kauri_tree::Options;
    /// use kauri_tree::disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// disk.open("store", Open::Create)?.write_at(0, b"a letter, not a store")?;
    /// assert!(Options::new().open(&disk, "store").unwrap_err().is_corruption());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Corrupt { .. } => true,
            Self::Row { error, .. } => error.is_corruption(),
            _ => false,
        }
    }

    /// This error, met at one of several rows, unless it says so already.
    pub(crate) fn of_row(self, row: u64) -> Self {
        match self {
            Self::Row { .. } => self,
            _ => Self::Row { row, error: Box::new(self) },
        }
    }
}

/// What a store answers.
///
/// ```
/// use kauri_tree::{Read, Result, Store, Table};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
///
/// fn is_sold_out(store: &Store, fruit: &str) -> Result<bool> {
///     Ok(store.snapshot().get(&STOCK, fruit)?.unwrap_or(0) == 0)
/// }
/// assert!(is_sold_out(&Store::in_memory()?, "apples")?);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// What is wrong with the bytes of a page: what was expected of them, and the number that stood there.
///
/// ```
/// use kauri_tree::disk::{Disk, MemoryDisk, Open};
/// use kauri_tree::{Error, Options};
///
/// let disk = MemoryDisk::new();
/// disk.open("store", Open::Create)?.write_at(0, &[0; 5000])?;
/// let Err(Error::Corrupt { page, fault }) = Options::new().open(&disk, "store") else { unreachable!() };
/// assert_eq!((page, fault.to_string().as_str()), (0, "expected a meta page, found 0"));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
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
            Self::Locked => f.write_str("the store is open elsewhere"),
            Self::NewerFormat { most, found } => {
                write!(f, "the file has format {found}, and this program reads formats up to {most}: use a newer one")
            }
            Self::Broken => f.write_str("a write to the store's file failed; open the store again"),
            Self::ReadOnly => f.write_str("the store was opened to be read only"),
            Self::PageSize { found } => {
                write!(f, "expected pages of a power of two from 256 to 65536 bytes, found {found}")
            }
            Self::KeyTooLong { most, found } => write!(f, "expected a key of at most {most} bytes, found {found}"),
            Self::ValueTooLong { most, found } => write!(f, "expected a value of at most {most} bytes, found {found}"),
            Self::NameTooLong { most, found } => {
                write!(f, "expected a table with a name of at most {most} bytes, found {found}")
            }
            Self::OtherTypes { table, expected, found } => {
                write!(f, "table `{table}` is used with {expected} and was made for {found}")
            }
            Self::Undecodable(error) => write!(f, "a key or a value is not of its table's type: {error}"),
            Self::Full => f.write_str("the store is full: it has as many pages as it can have"),
            Self::LastSequence { table } => {
                write!(
                    f,
                    "expected a sequence after the last row under a prefix of table `{table}`; that row has the greatest there is"
                )
            }
            Self::Overflow { table } => {
                write!(f, "expected a counter of table `{table}` that stays within its type's numbers")
            }
            Self::OtherStore => f.write_str("expected a snapshot of the same store, found one of another"),
            Self::Stream { at, fault } => write!(f, "byte {at} of the checkpoint stream: {fault}"),
            Self::OtherBase { expected, found } => {
                write!(f, "the stream has what changed since content {expected}, and the store holds {found}")
            }
            Self::NotEmpty => f.write_str("expected a store without tables to restore all of a stream into"),
            Self::Exists { name } => write!(f, "expected no file `{name}` yet"),
            Self::PinExists { name } => write!(f, "expected no pin `{name}` yet"),
            Self::OwnOrder { table } => {
                write!(f, "the keys of table `{table}` are in an order that only their type knows")
            }
            Self::Unsorted => f.write_str("expected a key greater than that of the row before"),
            Self::Row { row, error } => write!(f, "row {row}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Undecodable(error) => Some(error),
            Self::Row { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<kauri_wire::WireError> for Error {
    fn from(error: kauri_wire::WireError) -> Self {
        Self::Undecodable(error)
    }
}
