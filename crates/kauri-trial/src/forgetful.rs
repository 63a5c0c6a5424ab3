//! A disk that forgets to sync: what the ledger would be without one of its syncs. The search must find each.

use std::io;

use kauri_disk::{Disk, File, Open};
use kauri_sim::SimDisk;

/// What is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgets {
    /// Nothing: a plain simulated disk.
    Nothing,
    /// Syncs of files whose name begins so; durable writes to them are plain ones.
    File(&'static str),
    /// Syncs of the directory.
    Names,
}

/// A simulated disk that forgets.
#[derive(Clone, Debug)]
pub struct Forgetful {
    /// What is under it.
    pub disk: SimDisk,
    /// What it forgets.
    pub forgets: Forgets,
}

impl Disk for Forgetful {
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>> {
        let file = self.disk.open(name, how)?;
        match self.forgets {
            Forgets::File(prefix) if name.starts_with(prefix) => Ok(Box::new(Unsynced(file))),
            _ => Ok(file),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn sync_dir(&self) -> io::Result<()> {
        if self.forgets == Forgets::Names { Ok(()) } else { self.disk.sync_dir() }
    }
}

#[derive(Debug)]
struct Unsynced(Box<dyn File>);

impl File for Unsynced {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(at, bytes)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(at, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_name(&self) -> io::Result<()> {
        self.0.sync_name()
    }
}
