//! A simulated disk that lets somebody else work in the middle of a write.
//!
//! One thread cannot show what happens while another is writing. But code that holds no lock while it writes may just as well
//! meet the other's work inside the write: whatever order two threads could have had there, this has too, and it is the same
//! each time.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kauri_disk::{Disk, File, Open};

use crate::disk::SimDisk;

type Work = Box<dyn FnMut() + Send>;

/// A disk on which writes are interrupted by work.
#[derive(Clone)]
pub struct BusyDisk {
    disk: SimDisk,
    /// Positions at which writes are left alone.
    quiet: Range<u64>,
    work: Arc<Mutex<Option<Work>>>,
}

impl BusyDisk {
    /// Writes that begin in `quiet` are left alone.
    #[must_use]
    pub fn new(disk: &SimDisk, quiet: Range<u64>) -> Self {
        Self { disk: disk.clone(), quiet, work: Arc::default() }
    }

    /// What is done before each such write. It is not interrupted itself.
    pub fn set_work(&self, work: impl FnMut() + Send + 'static) {
        *self.lock() = Some(Box::new(work));
    }

    /// From now on nothing is done.
    pub fn clear_work(&self) {
        drop(self.take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<Work>> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Work> {
        self.lock().take()
    }

    fn interrupt(&self, at: u64) {
        if !self.quiet.contains(&at)
            && let Some(mut work) = self.take()
        {
            work();
            self.lock().get_or_insert(work);
        }
    }
}

impl fmt::Debug for BusyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyDisk").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Disk for BusyDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>> {
        Ok(Box::new(BusyFile { file: self.disk.open(name, how)?, disk: self.clone() }))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.disk.names()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
}

#[derive(Debug)]
struct BusyFile {
    file: Box<dyn File>,
    disk: BusyDisk,
}

impl File for BusyFile {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.interrupt(at);
        self.file.write_at(at, bytes)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.interrupt(at);
        self.file.write_durable_at(at, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn sync_name(&self) -> io::Result<()> {
        self.file.sync_name()
    }

    fn discard(&self, bytes: Range<u64>) -> io::Result<()> {
        self.disk.interrupt(bytes.start);
        self.file.discard(bytes)
    }
}
