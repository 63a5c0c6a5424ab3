//! Files of the operating system, in one directory.
//!
//! | promise | how |
//! |---|---|
//! | `sync` | `fdatasync`: the bytes, and what is needed to read them back. On Linux the length is part of that, also after `ftruncate` (fdatasync(2) says so); on Apple's systems std asks for a full flush of the drive |
//! | `write_durable_at` | on Linux one `pwritev2` with `RWF_DSYNC`; elsewhere, or where the file system refuses the flag, a write and `fdatasync` |
//! | `share` | on Linux `FICLONE`, where the file system knows it (btrfs, xfs, bcachefs and others; not ext4) |
//! | `discard` | on Linux `fallocate` with `FALLOC_FL_PUNCH_HOLE`, where the file system knows it; elsewhere nothing |
//! | `sync_dir` | `fsync` of the directory |
//! | the lock | `flock`, which belongs to the open file and not to the process: a second open in the same process is refused too, and closing some other descriptor of the file does not give the lock away, as it would with `fcntl` locks. It ends with the process however that ends |
//!
//! New files are readable by their owner alone.

#![expect(clippy::disallowed_methods, reason = "this is the seam: here Kauri meets the operating system's files")]

use std::fmt;
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Disk, File, Open, check_name, end_of, locked, read_only};

/// A directory of the operating system.
///
/// ```
/// use kauri_disk::{Disk, Open, OsDisk};
///
/// let folder = std::env::temp_dir().join(format!("kauri-disk-example-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let disk = OsDisk::new(&folder)?;
/// disk.open("notes", Open::Create)?.write_durable_at(0, b"apples")?;
/// disk.sync_dir()?;
/// assert_eq!(std::fs::read(folder.join("notes"))?, b"apples");
/// std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct OsDisk {
    /// Absolute, so that a later change of the working directory does not move the disk.
    path: PathBuf,
    /// The directory itself, open for its syncs.
    directory: Arc<fs::File>,
}

struct OsFile {
    name: String,
    file: fs::File,
    directory: Arc<fs::File>,
    how: Open,
}

/// How often an open is tried again because the name led elsewhere when the lock was taken.
const OPEN_TRIES_MAX: u32 = 16;

/// Owner may read and write, nobody else may anything.
const FILE_MODE: u32 = 0o600;

impl OsDisk {
    /// The disk whose files are in this directory, which must exist.
    ///
    /// # Errors
    /// Whatever the operating system reports, `NotADirectory` among it.
    ///
    /// ```
    /// use kauri_disk::{Disk, Open, OsDisk};
    ///
    /// let folder = std::env::temp_dir().join(format!("kauri-disk-new-{}", std::process::id()));
    /// std::fs::create_dir_all(&folder)?;
    /// let disk = OsDisk::new(&folder)?;
    /// assert!(disk.open("notes", Open::ReadOnly).is_err());
    /// assert!(OsDisk::new(folder.join("no such folder")).is_err());
    /// std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(directory: impl AsRef<Path>) -> io::Result<Self> {
        let path = fs::canonicalize(directory)?;
        let directory = fs::File::open(&path)?;
        if !directory.metadata()?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { path, directory: Arc::new(directory) })
    }

    fn path_of(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        Ok(self.path.join(name))
    }
}

impl Disk for OsDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>> {
        let path = self.path_of(name)?;
        for _ in 0..OPEN_TRIES_MAX {
            let file = options(how).open(&path)?;
            if !how.writes() || is_locked_and_named(&file, name, &path)? {
                let directory = Arc::clone(&self.directory);
                return Ok(Box::new(OsFile { name: name.to_owned(), file, directory, how }));
            }
        }
        Err(locked(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path_of(from)?, self.path_of(to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path_of(name)?)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for found in fs::read_dir(&self.path)? {
            let found = found?;
            let name = found.file_name().into_string().ok().filter(|name| check_name(name).is_ok());
            // A name may go away between the listing and the question what it is.
            if let Some(name) = name
                && found.file_type().is_ok_and(|kind| kind.is_file())
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

fn options(how: Open) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(how.writes()).mode(FILE_MODE);
    match how {
        Open::ReadOnly | Open::ReadWrite => &mut options,
        Open::Create => options.create(true),
        Open::CreateNew => options.create_new(true),
    };
    options
}

/// Takes the lock, and then asks whether the name still leads to the file that was locked. Between open and lock another
/// process may have put a new file in its place; a lock on the old one would keep nobody out.
fn is_locked_and_named(file: &fs::File, name: &str, path: &Path) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(name)),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl OsFile {
    fn check_writes(&self) -> io::Result<()> {
        if self.how.writes() { Ok(()) } else { Err(read_only(&self.name)) }
    }
}

impl Drop for OsFile {
    fn drop(&mut self) {
        // Closing is not enough: a process that is just being started has the same open file until it runs its own program, and whoever
        // opens the file again meanwhile would be told that it is locked.
        if self.how.writes() {
            let _closing = self.file.unlock();
        }
    }
}

impl File for OsFile {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        end_of(at, bytes.len())?;
        self.file.read_exact_at(bytes, at)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        end_of(at, bytes.len())?;
        self.check_writes()?;
        self.file.write_all_at(bytes, at)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        end_of(at, bytes.len())?;
        self.check_writes()?;
        write_durable(&self.file, at, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        end_of(len, 0)?;
        self.check_writes()?;
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.check_writes()?;
        self.file.sync_data()
    }

    fn sync_name(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn discard(&self, bytes: Range<u64>) -> io::Result<()> {
        self.check_writes()?;
        if bytes.is_empty() { Ok(()) } else { discard(&self.file, bytes) }
    }

    fn share(&self, other: &dyn File) -> io::Result<bool> {
        self.check_writes()?;
        other.descriptor().map_or(Ok(false), |other| share(&self.file, other))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

impl fmt::Debug for OsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OsFile({:?})", self.name)
    }
}

#[cfg(target_os = "linux")]
fn discard(file: &fs::File, bytes: Range<u64>) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::{Errno, retry_on_intr};

    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match retry_on_intr(|| fallocate(file, how, bytes.start, bytes.end - bytes.start)) {
        // What cannot be given back is kept.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn discard(_: &fs::File, _: Range<u64>) -> io::Result<()> {
    Ok(())
}

/// Most file systems share no bytes, none does with another, and some only of files of some kinds.
#[cfg(target_os = "linux")]
fn share(file: &fs::File, other: BorrowedFd<'_>) -> io::Result<bool> {
    use rustix::io::{Errno, retry_on_intr};

    match retry_on_intr(|| rustix::fs::ioctl_ficlone(file, other)) {
        Ok(()) => Ok(true),
        Err(
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL | Errno::XDEV | Errno::PERM | Errno::ACCESS,
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn share(_: &fs::File, _: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(false)
}

/// Some file systems know no `RWF_DSYNC`; for them, and for kernels before 4.7, there is the longer way.
#[cfg(target_os = "linux")]
fn write_durable(file: &fs::File, at: u64, bytes: &[u8]) -> io::Result<()> {
    use rustix::io::{Errno, ReadWriteFlags, pwritev2, retry_on_intr};

    let mut done = 0;
    while done < bytes.len() {
        let rest = [io::IoSlice::new(&bytes[done..])];
        match retry_on_intr(|| pwritev2(file, &rest, at + done as u64, ReadWriteFlags::DSYNC)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            // Each part is durable when its call returns, so the whole is when the last one does.
            Ok(written) => done += written,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return write_and_sync(file, at, bytes),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn write_durable(file: &fs::File, at: u64, bytes: &[u8]) -> io::Result<()> {
    write_and_sync(file, at, bytes)
}

fn write_and_sync(file: &fs::File, at: u64, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, at)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory of this test's own, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("kauri-tree-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a new directory");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("our own directory");
        }
    }

    #[test]
    fn files_are_their_owners_alone() {
        let scratch = Scratch::new("mode");
        let disk = OsDisk::new(&scratch.0).expect("a disk");
        disk.open("a", Open::CreateNew).expect("made");
        let mode = fs::metadata(scratch.0.join("a")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, FILE_MODE);
    }

    #[test]
    fn a_lock_on_a_file_that_lost_its_name_keeps_nobody_out() {
        let scratch = Scratch::new("replaced");
        let disk = OsDisk::new(&scratch.0).expect("a disk");
        let old = disk.open("a", Open::CreateNew).expect("made");
        disk.remove("a").expect("removed");
        let new = disk.open("a", Open::Create).expect("another file of that name");
        new.write_at(0, b"new").expect("written");
        assert!(old.is_empty().expect("a length"));
    }

    #[test]
    fn a_lock_ends_with_its_file_also_while_a_child_that_is_being_started_has_it() {
        let scratch = Scratch::new("forked");
        let disk = OsDisk::new(&scratch.0).expect("a disk");
        let directory = Arc::clone(&disk.directory);
        let file = options(Open::Create).open(scratch.0.join("a")).expect("made");
        assert!(is_locked_and_named(&file, "a", &scratch.0.join("a")).expect("free"));
        // What a fork leaves in the child: another descriptor of the same open file.
        let of_child = file.try_clone().expect("a descriptor");
        let held = OsFile { name: "a".to_owned(), file, directory, how: Open::Create };
        assert!(disk.open("a", Open::ReadWrite).is_err(), "it is locked");
        drop(held);
        disk.open("a", Open::ReadWrite).expect("given back");
        drop(of_child);
    }

    #[test]
    fn a_file_that_was_replaced_before_it_was_locked_is_seen() {
        let scratch = Scratch::new("raced");
        let path = scratch.0.join("a");
        let opened = options(Open::CreateNew).open(&path).expect("made");
        fs::remove_file(&path).expect("removed");
        assert!(!is_locked_and_named(&opened, "a", &path).expect("no name"));
        let other = options(Open::CreateNew).open(&path).expect("made again");
        assert!(!is_locked_and_named(&opened, "a", &path).expect("another file"));
        assert!(is_locked_and_named(&other, "a", &path).expect("this file"));
    }

    #[test]
    fn a_disk_is_a_directory_that_exists() {
        let scratch = Scratch::new("missing");
        assert_eq!(OsDisk::new(scratch.0.join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(scratch.0.join("file"), b"").expect("written");
        assert_eq!(OsDisk::new(scratch.0.join("file")).unwrap_err().kind(), io::ErrorKind::NotADirectory);
    }
}
