//! What one life did to its disk, operation by operation.

use std::fmt;
use std::sync::Arc;

use crate::image::{FileId, Image};
use crate::rng;

/// The disk at the start of a life, and every operation that changed it since. Reads are not in it.
#[derive(Clone, Debug)]
pub struct Trace {
    pub(crate) start: Image,
    pub(crate) ops: Vec<Op>,
}

/// One operation that returned. A write that was cut short stands here with the bytes that were written.
#[derive(Clone)]
pub(crate) enum Op {
    Write {
        file: FileId,
        at: u64,
        bytes: Bytes,
        grows_to: Option<u64>,
    },
    WriteDurable {
        file: FileId,
        at: u64,
        bytes: Bytes,
        grows_to: Option<u64>,
    },
    /// A durable write that failed after its bytes were accepted: `seed` draws which of them are lost for good.
    WriteDurableFailed {
        file: FileId,
        at: u64,
        bytes: Bytes,
        grows_to: Option<u64>,
        seed: u64,
    },
    SetLen {
        file: FileId,
        len: u64,
        cuts: bool,
    },
    Sync {
        file: FileId,
    },
    /// A sync that failed: `seed` draws which of the pending writes are lost for good.
    SyncFailed {
        file: FileId,
        seed: u64,
    },
    Name(NameChange),
    SyncDir,
    /// A sync of the directory that failed: `seed` draws which of the pending changes are lost for good.
    SyncDirFailed {
        seed: u64,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum NameChange {
    Create { name: Arc<str>, file: FileId },
    Rename { from: Arc<str>, to: Arc<str>, file: FileId },
    Remove { name: Arc<str> },
}

/// A part of some shared bytes.
#[derive(Clone)]
pub(crate) struct Bytes {
    whole: Arc<[u8]>,
    start: usize,
    end: usize,
}

impl Trace {
    /// How many operations there are.
    #[must_use]
    pub fn ops(&self) -> usize {
        self.ops.len()
    }

    /// The operation with this number, in words.
    #[must_use]
    pub fn describe(&self, op: usize) -> String {
        self.ops.get(op).map_or_else(|| "the end".to_owned(), ToString::to_string)
    }

    /// A number that is the same for two traces of the same operations with the same bytes, and otherwise hardly ever.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.ops.iter().fold(0, |hash, op| {
            let hash = rng::mix(hash, op.to_string().as_bytes());
            match op {
                Op::Write { bytes, .. } | Op::WriteDurable { bytes, .. } | Op::WriteDurableFailed { bytes, .. } => {
                    rng::mix(hash, bytes)
                }
                _ => hash,
            }
        })
    }

    /// The disk before the first operation.
    #[must_use]
    pub fn start(&self) -> &Image {
        &self.start
    }
}

impl NameChange {
    pub(crate) fn apply(&self, image: &mut Image) {
        match self {
            Self::Create { name, file } => {
                image.names.insert(Arc::clone(name), *file);
            }
            Self::Rename { from, to, file } => {
                // Only if the old name still leads there: it may have been given to another file since.
                if image.names.get(from) == Some(file) {
                    image.names.remove(from);
                }
                image.names.insert(Arc::clone(to), *file);
            }
            Self::Remove { name } => {
                image.names.remove(name);
            }
        }
    }
}

impl Bytes {
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// The bytes `start..end` of these.
    pub(crate) fn part(&self, start: usize, end: usize) -> Self {
        assert!(start <= end && end <= self.len(), "a part lies inside");
        Self { whole: Arc::clone(&self.whole), start: self.start + start, end: self.start + end }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self { whole: bytes.into(), start: 0, end: bytes.len() }
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.whole[self.start..self.end]
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { file, at, bytes, .. } => write!(f, "write file {} at {at}, {} bytes", file.0, bytes.len()),
            Self::WriteDurable { file, at, bytes, .. } => {
                write!(f, "durable write file {} at {at}, {} bytes", file.0, bytes.len())
            }
            Self::WriteDurableFailed { file, at, bytes, .. } => {
                write!(f, "failed durable write file {} at {at}, {} bytes", file.0, bytes.len())
            }
            Self::SetLen { file, len, .. } => write!(f, "set length of file {} to {len}", file.0),
            Self::Sync { file } => write!(f, "sync file {}", file.0),
            Self::SyncFailed { file, .. } => write!(f, "failed sync file {}", file.0),
            Self::Name(NameChange::Create { name, file }) => write!(f, "create {name:?} as file {}", file.0),
            Self::Name(NameChange::Rename { from, to, .. }) => write!(f, "rename {from:?} to {to:?}"),
            Self::Name(NameChange::Remove { name }) => write!(f, "remove {name:?}"),
            Self::SyncDir => f.write_str("sync directory"),
            Self::SyncDirFailed { .. } => f.write_str("failed sync directory"),
        }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
