//! A disk in memory that counts what is read from it, and is slow, or fails, when it is told to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kauri_tree::disk::{Disk, File, MemoryDisk, Open};

#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    pub(crate) reads: Arc<AtomicUsize>,
    pub(crate) syncs: Arc<AtomicUsize>,
    pub(crate) fails: Arc<AtomicBool>,
    /// How often others may run before a write is done, or a read.
    pub(crate) yields: Arc<AtomicUsize>,
    /// Writes wait.
    pub(crate) waits: Arc<AtomicBool>,
}

pub(crate) struct WatchedDisk {
    pub(crate) disk: MemoryDisk,
    pub(crate) watch: Watch,
}

#[derive(Debug)]
struct WatchedFile {
    file: Box<dyn File>,
    watch: Watch,
}

impl Watch {
    fn give_way(&self) {
        for _ in 0..self.yields.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

impl WatchedDisk {
    pub(crate) fn new() -> Self {
        Self { disk: MemoryDisk::new(), watch: Watch::default() }
    }
}

impl Disk for WatchedDisk {
    fn open(&self, name: &str, how: Open) -> io::Result<Box<dyn File>> {
        Ok(Box::new(WatchedFile { file: self.disk.open(name, how)?, watch: self.watch.clone() }))
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

impl WatchedFile {
    fn check(&self) -> io::Result<()> {
        while self.watch.waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        self.watch.give_way();
        match self.watch.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the disk was told to fail")),
            false => Ok(()),
        }
    }
}

impl File for WatchedFile {
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.watch.reads.fetch_add(1, Ordering::Relaxed);
        self.watch.give_way();
        self.file.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write_at(at, bytes)
    }

    fn write_durable_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write_durable_at(at, bytes)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.watch.syncs.fetch_add(1, Ordering::Relaxed);
        self.check()?;
        self.file.sync()
    }

    fn sync_name(&self) -> io::Result<()> {
        self.file.sync_name()
    }
}
