//! One lock: a file that is never removed, an OS lock on it, and beside it who has it.
//!
//! ```text
//! acquire   open, flock, is this still the file of that name?, write `.meta.new`, rename it to `.meta`
//! release   rename `.meta` to `.meta.new`, unlock, close
//! ```
//!
//! Renaming a file is much cheaper than making and removing one, so the file stays. Both happen while the lock is held, so the metadata never describes anyone but the holder or, after a crash, the last one.

#![expect(clippy::disallowed_methods, reason = "locks and what lies beside them are files of the system")]

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::holder::Holder;
use super::{LockState, filesystem};
use crate::clock::Timestamp;
use crate::error::{Error, Result};

/// How often an open is tried again because the name led elsewhere when the lock was taken.
const OPEN_TRIES_MAX: u32 = 16;
/// How often one looks again for a holder that has not written its name yet, or for a mere probe to end.
const HOLDER_TRIES_MAX: u32 = 64;

/// A lock that is held.
#[derive(Debug)]
pub(super) struct LockFile {
    path: PathBuf,
    file: fs::File,
    pub(super) holder: Holder,
}

impl LockFile {
    /// Takes the lock, or says who has it.
    pub(super) fn acquire(path: &Path, position: u32, now: Timestamp, is_forced: bool) -> Result<Self> {
        let directory = path.parent().unwrap_or(Path::new("."));
        make_directory(directory)?;
        if !is_forced {
            filesystem::check(directory)?;
        }
        let mut holder = None;
        for _ in 0..HOLDER_TRIES_MAX {
            holder = Holder::read(&meta_of(path), now)?;
            if let Some(file) = try_lock(path)? {
                return Self::held(path, file, position, now);
            }
            if holder.as_ref().is_some_and(|holder| holder.is_alive != Some(false)) {
                break;
            }
            // Somebody is between taking the lock and writing its name, or only looks whether the lock is free.
            std::thread::yield_now();
        }
        Err(Error::Locked { lock: path.to_owned(), holder: holder.map(Box::new) })
    }

    fn held(path: &Path, file: fs::File, position: u32, now: Timestamp) -> Result<Self> {
        // Under the lock: now nobody else writes it.
        Holder::read(&meta_of(path), now)?;
        let held = Self { path: path.to_owned(), file, holder: Holder::this_process(now, position) };
        held.write_meta().map_err(Error::path("write the metadata of", path))?;
        Ok(held)
    }

    fn write_meta(&self) -> io::Result<()> {
        use std::io::Write;

        let aside = aside_of(&self.path);
        // Not truncated: some file systems write a file to the disk when it is closed after that.
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&aside)?;
        let meta = serde_json::to_vec(&self.holder)?;
        file.write_all(&meta)?;
        if file.metadata()?.len() != meta.len() as u64 {
            file.set_len(meta.len() as u64)?;
        }
        drop(file);
        fs::rename(&aside, meta_of(&self.path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the name still leads to the file that is locked.
    pub(super) fn check(&self) -> Result<()> {
        match is_named(&self.file, &self.path).map_err(Error::path("look at", &self.path))? {
            true => Ok(()),
            false => Err(Error::LockLost { lock: self.path.clone() }),
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // Whoever removed or replaced the lock's file made it somebody else's: then the metadata is not ours to take away.
        if self.check().is_ok() {
            // Metadata that stays is taken for that of a holder that crashed, which is harmless.
            let _stale = fs::rename(meta_of(&self.path), aside_of(&self.path));
        }
        // Closing is not enough: a child that was forked has the same lock.
        let _closing = self.file.unlock();
    }
}

/// What is with the lock, found out by trying it.
pub(super) fn probe(path: &Path, now: Timestamp) -> Result<LockState> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LockState::Free),
        Err(error) => return Err(Error::path("open", path)(error)),
    };
    let is_free = match file.try_lock_shared() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(Error::path("try the lock", path)(error)),
    };
    // While we share the lock nobody can take it, so what lies there was left behind.
    let holder = Holder::read(&meta_of(path), now)?;
    Ok(match (is_free, holder) {
        (true, None) => LockState::Free,
        (true, Some(holder)) => LockState::Stale(holder),
        (false, holder) => LockState::Held(holder),
    })
}

/// The file, locked, if nobody has it.
fn try_lock(path: &Path) -> Result<Option<fs::File>> {
    for _ in 0..OPEN_TRIES_MAX {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(Error::path("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(Error::path("lock", path)(error)),
        }
        // Between open and lock another process may have put a new file in its place; a lock on the old one would keep
        // nobody out.
        if is_named(&file, path).map_err(Error::path("look at", path))? {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn is_named(file: &fs::File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn meta_of(path: &Path) -> PathBuf {
    path.with_added_extension("meta")
}

/// Where the metadata is written before it counts, and lies while nobody has the lock.
fn aside_of(path: &Path) -> PathBuf {
    path.with_added_extension("meta.new")
}

/// Makes a directory for its owner alone, and what is above it; its name is durable afterwards.
pub(crate) fn make_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let failed = || Error::path("make the directory", path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed())?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// A child that has the same open file as we do, as a forked one has that runs no program of its own.
    fn forked(lock: &LockFile) -> std::process::Child {
        let same = Stdio::from(lock.file.try_clone().unwrap());
        Command::new("sleep").arg("60").stdin(same).spawn().unwrap()
    }

    #[test]
    fn a_forked_child_does_not_keep_a_lock_that_was_given_back() {
        let directory = std::env::temp_dir().join(format!("kauri-ledger-forked-{}", std::process::id()));
        let path = directory.join("lock");
        let acquire = || LockFile::acquire(&path, 0, Timestamp(0), true);
        let lock = acquire().unwrap();
        let mut child = forked(&lock);
        let while_held = acquire().map(drop);
        drop(lock);
        // The child lives and has the file open.
        let (after, probed) = (acquire().map(drop), probe(&path, Timestamp(0)));
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert!(matches!(while_held, Err(Error::Locked { holder: Some(_), .. })), "{while_held:?}");
        assert!(after.is_ok(), "{after:?}");
        assert_eq!(probed.unwrap(), LockState::Free);
    }
}
