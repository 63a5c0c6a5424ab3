//! Files in memory: for tests, for stores that need not survive, and as the plainest statement of what a disk does.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::{Disk, File, Open, check_name, end_of, locked, read_only};

/// A disk in memory. Clones are handles to the same files; when the last one is dropped, they are gone.
///
/// ```
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// let disk = MemoryDisk::new();
/// let same = disk.clone();
/// disk.open("notes", Open::CreateNew)?.write_at(0, b"apples")?;
/// assert_eq!(same.open("notes", Open::ReadOnly)?.len()?, 6);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryDisk {
    names: Arc<Mutex<BTreeMap<String, Arc<Node>>>>,
}

/// What a name leads to: its bytes, and whether a writer has it.
#[derive(Default)]
struct Node {
    bytes: RwLock<Vec<u8>>,
    locked: AtomicBool,
}

struct MemoryFile {
    name: String,
    node: Arc<Node>,
    how: Open,
}

impl MemoryDisk {
    /// An empty disk.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// assert!(MemoryDisk::new().open("notes", Open::ReadOnly).is_err());
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock_names(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Node>>> {
        // No code that can panic runs under this lock half-way through a change, so a poisoned map is still whole.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>> {
        check_name(name)?;
        let mut names = self.lock_names();
        let node = match (names.get(name), how) {
            (Some(_), Open::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(node), _) => Arc::clone(node),
            (None, Open::ReadOnly | Open::ReadWrite) => return Err(io::ErrorKind::NotFound.into()),
            (None, Open::Create | Open::CreateNew) => Arc::clone(names.entry(name.to_owned()).or_default()),
        };
        if how.writes() && node.locked.swap(true, Ordering::Acquire) {
            return Err(locked(name));
        }
        Ok(Box::new(MemoryFile { name: name.to_owned(), node, how }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        let mut names = self.lock_names();
        let node = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.insert(to.to_owned(), node);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.lock_names().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock_names().keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
}

impl MemoryFile {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> io::Result<T>) -> io::Result<T> {
        if !self.how.writes() {
            return Err(read_only(&self.name));
        }
        change(&mut self.node.bytes.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl File for MemoryFile {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range = range(at, bytes.len())?;
        let held = self.node.bytes.read().unwrap_or_else(PoisonError::into_inner);
        bytes.copy_from_slice(held.get(range).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let range = range(at, bytes.len())?;
        self.change(|held| {
            if bytes.is_empty() {
                return Ok(());
            }
            if range.end > held.len() {
                resize(held, range.end)?;
            }
            held[range].copy_from_slice(bytes);
            Ok(())
        })
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_at(at, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.node.bytes.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let range = range(len, 0)?;
        self.change(|held| resize(held, range.end))
    }

    fn sync(&self) -> io::Result<()> {
        if self.how.writes() { Ok(()) } else { Err(read_only(&self.name)) }
    }

    fn sync_name(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, bytes: std::ops::Range<u64>) -> io::Result<()> {
        let (start, end) = (range(bytes.start, 0)?.end, range(bytes.end, 0)?.end);
        self.change(|held| {
            let end = end.min(held.len());
            held[start.min(end)..end].fill(0);
            Ok(())
        })
    }

    fn share(&self, other: &dyn File) -> io::Result<bool> {
        let mut bytes = Vec::new();
        resize(&mut bytes, range(other.len()?, 0)?.end)?;
        other.read_at(0, &mut bytes)?;
        self.change(|held| {
            *held = bytes;
            Ok(true)
        })
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if self.how.writes() {
            let held = self.node.locked.swap(false, Ordering::Release);
            assert!(held, "a file open for writing holds its lock");
        }
    }
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({:?})", self.name)
    }
}

impl fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryDisk").field(&self.lock_names().keys()).finish()
    }
}

fn range(at: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
    let end = end_of(at, len)?;
    match (usize::try_from(at), usize::try_from(end)) {
        (Ok(start), Ok(end)) => Ok(start..end),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    }
}

/// Grows or shrinks; memory that is not there is an error, as a full disk is.
fn resize(held: &mut Vec<u8>, len: usize) -> io::Result<()> {
    let more = len.saturating_sub(held.len());
    held.try_reserve(more).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    held.resize(len, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_their_files() {
        let disk = MemoryDisk::new();
        disk.clone().open("a", Open::CreateNew).expect("made").write_at(0, b"x").expect("written");
        assert_eq!(disk.open("a", Open::ReadOnly).expect("there").len().expect("a length"), 1);
        assert_eq!(format!("{disk:?}"), r#"MemoryDisk(["a"])"#);
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let file = MemoryDisk::new().open("a", Open::CreateNew).expect("made");
        let error = file.set_len(1 << 62).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert!(file.is_empty().expect("a length"));
    }
}
