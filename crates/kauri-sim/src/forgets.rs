//! A disk that forgets to sync: what a program would be without one of its syncs. The search must find each.

use kauri_disk::testing::{Call, TwistedDisk};

use crate::disk::SimDisk;

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

impl Forgets {
    /// This disk, with what is forgotten.
    #[must_use]
    pub fn of(self, disk: &SimDisk) -> TwistedDisk<SimDisk> {
        TwistedDisk::new(disk.clone(), move |call, go| match (self, call) {
            (Self::File(prefix), Call::WriteDurableAt(on, at, bytes)) if on.name.starts_with(prefix) => {
                on.file.write_at(at, bytes)
            }
            (Self::File(prefix), Call::Sync(on)) if on.name.starts_with(prefix) => Ok(()),
            (Self::Names, Call::SyncDir) => Ok(()),
            _ => go(),
        })
    }
}
