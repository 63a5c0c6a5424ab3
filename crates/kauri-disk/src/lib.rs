//! Where bytes are read, written and synced: the one seam between Kauri and what survives.
//!
//! Three things persist separately, and each has its own call that makes it durable:
//!
//! ```text
//! bytes   write_at, set_len  ──  File::sync            all earlier writes of this file, and its length
//!         write_durable_at   ──  (by itself)           its own bytes, and the length needed to reach them
//! names   open, rename, remove ─ Disk::sync_dir        all earlier changes of names
//! ```
//!
//! Until then a crash may keep any part of them, in any combination: half a write, the second of two writes without the
//! first, a length without its bytes, a file without its name. Code above this seam may rely on nothing else, and the
//! simulator checks that it does not.
//!
//! An error from a write or a sync leaves the file in a state nobody knows: what was pending may be lost for good although
//! the next sync succeeds. Whoever meets one stops writing and opens the file anew.

#![forbid(unsafe_code)]

mod memory;
#[cfg(all(unix, feature = "os"))]
mod os;
#[cfg(feature = "testing")]
pub mod testing;

use std::ops::Range;
use std::{fmt, io};

pub use memory::MemoryDisk;
#[cfg(all(unix, feature = "os"))]
pub use os::OsDisk;

/// One flat directory of files.
///
/// A name is a plain file name: one to [`NAME_BYTES_MAX`] bytes, no separator, no NUL, not `.` or `..`; anything else is
/// refused with [`InvalidInput`](io::ErrorKind::InvalidInput). All calls may be made from several threads at once.
///
/// ```
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// /// Puts a file in the place of another, so that a crash leaves one of the two, whole.
/// fn replace(disk: &dyn Disk, name: &str, bytes: &[u8]) -> std::io::Result<()> {
///     let aside = format!("{name}.new");
///     let file = disk.open(&aside, Open::Create)?;
///     file.set_len(0)?;
///     file.write_at(0, bytes)?;
///     file.sync()?;
///     disk.rename(&aside, name)?;
///     disk.sync_dir()
/// }
///
/// let disk = MemoryDisk::new();
/// replace(&disk, "notes", b"old")?;
/// replace(&disk, "notes", b"newer")?;
/// assert_eq!(disk.open("notes", Open::ReadOnly)?.len()?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Disk: Send + Sync + 'static {
    /// Opens a file. A file opened for writing is locked until it is dropped.
    ///
    /// # Errors
    /// - `NotFound` if it must exist and does not, `AlreadyExists` if it must not exist and does;
    /// - `WouldBlock` if it is open for writing already, in this process or in another.
    ///
    /// ```
    /// use std::io::ErrorKind;
    ///
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// assert_eq!(disk.open("notes", Open::ReadWrite).unwrap_err().kind(), ErrorKind::NotFound);
    /// let file = disk.open("notes", Open::Create)?;
    /// assert_eq!(disk.open("notes", Open::ReadWrite).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// drop(file);
    /// assert!(disk.open("notes", Open::ReadWrite).is_ok());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>>;

    /// Gives the file `from` the name `to`; a file that had that name loses it, in the same instant. Files that are open
    /// stay what they were. Durable after [`sync_dir`](Self::sync_dir).
    ///
    /// # Errors
    /// `NotFound` if there is no `from`.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// disk.open("new", Open::CreateNew)?.write_at(0, b"better")?;
    /// disk.open("old", Open::CreateNew)?;
    /// disk.rename("new", "old")?;
    /// assert_eq!(disk.open("old", Open::ReadOnly)?.len()?, 6);
    /// assert!(disk.open("new", Open::ReadOnly).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes the name away. Whoever has the file open keeps it. Durable after [`sync_dir`](Self::sync_dir).
    ///
    /// # Errors
    /// `NotFound` if there is no such name.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// disk.remove("notes")?;
    /// file.write_at(0, b"still mine")?;
    /// assert!(disk.open("notes", Open::ReadOnly).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files, in the order of their bytes. What is no file, or has no plain name, is left out.
    ///
    /// # Errors
    /// Whatever the disk reports.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// disk.open("notes", Open::CreateNew)?;
    /// assert_eq!(disk.names()?, ["notes"]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn names(&self) -> io::Result<Vec<String>>;

    /// Returns when every earlier creation, renaming and removal is durable. It says nothing about the files' bytes.
    ///
    /// # Errors
    /// Whatever the disk reports. Some of the names may then be lost for good.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// disk.open("notes", Open::CreateNew)?;
    /// disk.sync_dir()?; // from here on a crash leaves the name; the bytes need a sync of their own
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file: all positions are given, none is kept, so threads can share it.
///
/// A write through a file opened as [`Open::ReadOnly`] is refused with `PermissionDenied`.
///
/// ```
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// let disk = MemoryDisk::new();
/// let file = disk.open("notes", Open::CreateNew)?;
/// file.write_at(0, b"twelve apples")?;
/// let mut fruit = [0; 6];
/// file.read_at(7, &mut fruit)?;
/// assert_eq!(&fruit, b"apples");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait File: fmt::Debug + Send + Sync + 'static {
    /// Fills `bytes` from position `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before `at + bytes.len()`; the bytes then hold nothing of use.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// file.write_at(0, b"apples")?;
    /// let mut bytes = [0; 4];
    /// file.read_at(2, &mut bytes)?;
    /// assert_eq!(&bytes, b"ples");
    /// assert_eq!(file.read_at(3, &mut bytes).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at position `at`, and makes the file longer if they reach beyond its end; a gap reads as
    /// zeros. Durable after [`sync`](Self::sync).
    ///
    /// # Errors
    /// Whatever the disk reports. A part of the bytes may have been written.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// file.write_at(2, b"x")?;
    /// let mut bytes = [7; 3];
    /// file.read_at(0, &mut bytes)?;
    /// assert_eq!(&bytes, b"\0\0x");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Like [`write_at`](Self::write_at), and returns when these bytes, and the length needed to reach them, are on stable
    /// storage. It promises nothing about earlier writes, nor that a crash before it returns leaves all or none of them.
    ///
    /// # Errors
    /// Whatever the disk reports. A part of the bytes may have been written, or be lost for good.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// file.write_at(0, b"maybe")?;
    /// file.write_durable_at(100, b"for sure")?; // a crash may still take the first away
    /// assert_eq!(file.len()?, 108);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// How many bytes the file has.
    ///
    /// # Errors
    /// Whatever the disk reports.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// file.write_at(10, b"end")?;
    /// assert_eq!(file.len()?, 13);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// Whatever the disk reports.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// assert!(file.is_empty()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the file this long: what is cut off is gone, what is added reads as zeros. Durable after [`sync`](Self::sync).
    ///
    /// # Errors
    /// Whatever the disk reports.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// file.write_at(0, b"apples")?;
    /// file.set_len(2)?;
    /// file.set_len(4)?;
    /// let mut bytes = [7; 4];
    /// file.read_at(0, &mut bytes)?;
    /// assert_eq!(&bytes, b"ap\0\0");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Returns when every earlier write of this file and its length are durable. It says nothing about its name.
    ///
    /// # Errors
    /// Whatever the disk reports. What was pending may then be lost for good, even if a later sync succeeds.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// file.write_at(0, b"apples")?;
    /// file.write_at(6, b" and pears")?;
    /// file.sync()?; // both are durable now
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn sync(&self) -> io::Result<()>;

    /// Returns when the name under which the file was opened is durable, and whatever else [`Disk::sync_dir`] makes so: for whoever
    /// has the file and no longer its disk.
    ///
    /// # Errors
    /// Whatever the disk reports.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let file = MemoryDisk::new().open("notes", Open::CreateNew)?;
    /// file.write_durable_at(0, b"apples")?;
    /// file.sync_name()?; // from here on a crash leaves the apples, and where to find them
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn sync_name(&self) -> io::Result<()>;

    /// Makes this file hold exactly what another does, at one moment, if the disk can let the two share their bytes until one of
    /// them is written: however long it is, that is one small step. `false` if it cannot, and then nothing has changed. Durable after
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// Whatever the disk reports. What this file holds is not known then.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let (notes, copy) = (disk.open("notes", Open::CreateNew)?, disk.open("copy", Open::CreateNew)?);
    /// notes.write_at(0, b"apples")?;
    /// if copy.share(&*notes)? {
    ///     notes.write_at(0, b"A")?;
    ///     let mut bytes = [0; 6];
    ///     copy.read_at(0, &mut bytes)?;
    ///     assert_eq!(&bytes, b"apples");
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn share(&self, other: &dyn File) -> io::Result<bool> {
        let _ = other;
        Ok(false)
    }

    /// Says that nobody needs these bytes any more: the disk may use their room for other files. The file stays as long as it is. From
    /// then on each of the bytes reads as it was or as zero, until it is written again.
    ///
    /// # Errors
    /// Whatever the disk reports. Some of the bytes may be zeros then.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// let file = disk.open("notes", Open::CreateNew)?;
    /// file.write_at(0, &[7; 20_000])?;
    /// file.discard(0..16_384)?;
    /// let mut bytes = [0; 2];
    /// file.read_at(16_384, &mut bytes)?;
    /// assert_eq!((bytes, file.len()?), ([7; 2], 20_000));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fn discard(&self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// The file as the operating system knows it, if it does.
    ///
    /// ```
    /// use kauri_disk::{Disk, MemoryDisk, Open};
    ///
    /// let file = MemoryDisk::new().open("notes", Open::CreateNew)?;
    /// assert!(file.descriptor().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// How a file is opened.
///
/// ```
/// use std::io::ErrorKind;
///
/// use kauri_disk::{Disk, MemoryDisk, Open};
///
/// let disk = MemoryDisk::new();
/// let file = disk.open("notes", Open::CreateNew)?;
/// // Readers take no lock, and may not write.
/// let reader = disk.open("notes", Open::ReadOnly)?;
/// assert_eq!(reader.write_at(0, b"x").unwrap_err().kind(), ErrorKind::PermissionDenied);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// It must exist; it is only read. Takes no lock: a writer may be at work, and the reader must cope with what it sees.
    ReadOnly,
    /// It must exist; it is read and written.
    ReadWrite,
    /// It is made if it is missing; it is read and written.
    Create,
    /// It must not exist; it is made, read and written.
    CreateNew,
}

impl Open {
    /// Whether the file can be written, and is therefore locked.
    ///
    /// ```
    /// use kauri_disk::Open;
    ///
    /// assert!(Open::Create.writes() && !Open::ReadOnly.writes());
    /// ```
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }
}

/// The longest name of a file, in bytes: what common file systems allow.
///
/// ```
/// use kauri_disk::{NAME_BYTES_MAX, check_name};
///
/// assert!(check_name(&"x".repeat(NAME_BYTES_MAX)).is_ok());
/// assert!(check_name(&"x".repeat(NAME_BYTES_MAX + 1)).is_err());
/// ```
pub const NAME_BYTES_MAX: usize = 255;

/// Checks that a name is a plain file name; every disk does so first.
///
/// # Errors
/// `InvalidInput` if it is not.
///
/// ```
/// use kauri_disk::check_name;
///
/// assert!(check_name("store.kauri").is_ok());
/// assert!(check_name("../elsewhere").is_err());
/// ```
pub fn check_name(name: &str) -> io::Result<()> {
    let plain = !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0']);
    if plain && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let text = format!("expected a plain file name of 1 to {NAME_BYTES_MAX} bytes, found {name:?}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// The position after `len` bytes at `at`, if files reach that far.
///
/// # Errors
/// `InvalidInput` if the end is beyond the 63 bits that operating systems give to positions.
///
/// ```
/// use kauri_disk::end_of;
///
/// assert_eq!(end_of(4096, 100)?, 4196);
/// assert!(end_of(u64::MAX, 1).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn end_of(at: u64, len: usize) -> io::Result<u64> {
    let end =
        u64::try_from(len).ok().and_then(|len| at.checked_add(len)).filter(|end| *end <= i64::MAX.cast_unsigned());
    end.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("expected a range below 2^63, found {len} bytes at {at}"))
    })
}

/// What a second writer is told.
///
/// ```
/// use kauri_disk::locked;
///
/// let error = locked("store");
/// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
/// assert!(error.to_string().contains("open for writing elsewhere"));
/// ```
#[must_use]
pub fn locked(name: &str) -> io::Error {
    let text = format!("the file {name:?} is open for writing elsewhere, in this process or in another");
    io::Error::new(io::ErrorKind::WouldBlock, text)
}

/// What a write through a file opened for reading is told.
///
/// ```
/// use kauri_disk::read_only;
///
/// assert_eq!(read_only("store").kind(), std::io::ErrorKind::PermissionDenied);
/// ```
#[must_use]
pub fn read_only(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("the file {name:?} was opened for reading only"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_pass() {
        let longest = "x".repeat(NAME_BYTES_MAX);
        for good in ["a", "store.kauri", "..a", "a..", "é", &longest] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "/", "a/b", "../a", "a\\b", "a\0b", &*["x"; NAME_BYTES_MAX + 1].concat()] {
            assert_eq!(check_name(bad).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{bad:?}");
        }
    }

    #[test]
    fn positions_end_where_signed_offsets_do() {
        let last = i64::MAX.cast_unsigned();
        assert_eq!(end_of(last - 8, 8).expect("the last position"), last);
        for (at, len) in [(last - 8, 9), (u64::MAX, 0), (u64::MAX, 1), (u64::MAX - 3, 4)] {
            assert_eq!(end_of(at, len).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{len} at {at}");
        }
    }
}
