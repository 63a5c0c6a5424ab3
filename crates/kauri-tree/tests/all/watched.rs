//! A disk in memory that counts what is read from it, and is slow, or fails, when it is told to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kauri_tree::disk::MemoryDisk;
use kauri_tree::disk::testing::{Call, Go, TwistedDisk};

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

pub(crate) type WatchedDisk = TwistedDisk<MemoryDisk>;

/// An empty one, and what it is told by.
pub(crate) fn watched() -> (WatchedDisk, Watch) {
    watched_on(MemoryDisk::new())
}

pub(crate) fn watched_on(disk: MemoryDisk) -> (WatchedDisk, Watch) {
    let watch = Watch::default();
    let sees = watch.clone();
    let twist = move |call: Call<'_>, go: Go<'_>| {
        match call {
            Call::ReadAt(..) => {
                sees.reads.fetch_add(1, Ordering::Relaxed);
                sees.give_way();
            }
            Call::Sync(_) => {
                sees.syncs.fetch_add(1, Ordering::Relaxed);
                sees.check()?;
            }
            Call::WriteAt(..) | Call::WriteDurableAt(..) => sees.check()?,
            _ => {}
        }
        go()
    };
    (TwistedDisk::new(disk, twist), watch)
}

impl Watch {
    fn give_way(&self) {
        for _ in 0..self.yields.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }

    fn check(&self) -> io::Result<()> {
        while self.waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        self.give_way();
        match self.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the disk was told to fail")),
            false => Ok(()),
        }
    }
}
