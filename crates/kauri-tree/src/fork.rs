//! A copy of one version as a store of its own: of its file, where the disk lets two files share their bytes; else of its rows.
//!
//! There is no fork in memory beside these. A store has one writer and one count of versions, and a page says by its stamps who may
//! change it: a second writer over the same pages would need stamps of its own for each of them. What such a fork is for, a
//! [`Change`](crate::Change) does: it stages rows over a snapshot, reads through them, costs nothing until then, and is dropped or
//! committed; and nested transactions do it inside of one.

use crate::content;
use crate::disk::{Disk, Open};
use crate::error::Result;
use crate::group::Until;
use crate::read::Source;
use crate::snapshot::Snapshot;
use crate::store::{Options, Store};
use crate::stream::check_new;
use crate::write::{RawLoader, WriteTxn};

/// What is copied is written out whenever it is so many bytes: memory need not hold all of it.
const STEP_BYTES: usize = 8 << 20;

impl Snapshot<'_> {
    /// Copies this version into a store of its own, with these options, and opens it. Others read and write this one meanwhile.
    /// There must be no store of that name. It is made aside, as `name.aside`, and gets its name when all of it is there and
    /// durable. All rows are copied, each page full.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    ///
    /// let fork = store.snapshot().fork(&Options::new(), &MemoryDisk::new(), "fork")?;
    /// let mut txn = fork.begin();
    /// txn.put(&STOCK, "apples", 0)?;
    /// txn.commit()?;
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`](crate::Error::Exists) if there is a store of that name; also if a key is too long for the new
    /// pages, this store is damaged, or the disk fails. Nothing is left then.
    pub fn fork(&self, options: &Options, disk: &dyn Disk, name: &str) -> Result<Store> {
        options.build_aside(disk, name, |store| copy(self, store))
    }
}

impl Store {
    /// Copies the newest version into a store of its own, and opens it. Where the disk can let two files share their bytes
    /// ([`File::share`](crate::disk::File::share)) and the pages are to have the size they have, that takes one small step, however
    /// much there is, and what is not written later is stored once; the pins come along then. Else it is
    /// [`Snapshot::fork`] of the newest snapshot: all rows are copied, and there are no pins.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let disk = MemoryDisk::new();
    /// let store = Options::new().open(&disk, "store")?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    ///
    /// let fork = store.fork(&Options::new(), &disk, "fork")?;
    /// let mut txn = fork.begin();
    /// txn.put(&STOCK, "apples", 0)?;
    /// txn.commit()?;
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Snapshot::fork`].
    pub fn fork(&self, options: &Options, disk: &dyn Disk, name: &str) -> Result<Store> {
        match self.share_file(options, disk, name)? {
            true => options.open(disk, name),
            false => self.snapshot().fork(options, disk, name),
        }
    }

    /// Makes a file that shares its bytes with this store's, if that can be.
    fn share_file(&self, options: &Options, disk: &dyn Disk, name: &str) -> Result<bool> {
        let Some(durable) = self.durable().filter(|durable| durable.check().is_ok()) else { return Ok(false) };
        if options.is_read_only() || !options.pages_are_of(self.page_bytes()) {
            return Ok(false);
        }
        check_new(disk, name)?;
        let aside = format!("{name}.aside");
        let file = disk.open(&aside, Open::Create)?;
        let shared = {
            let mut state = self.turn();
            // Nobody writes now: what was committed is all there, in pages or in the log, and no checkpoint is half done.
            let quiet = durable.settle(&mut state).and_then(|()| durable.drain(Until::Written));
            quiet.and_then(|()| Ok(file.share(durable.file.disk())?))
        };
        let named = shared.and_then(|is_shared| {
            if is_shared {
                file.sync()?;
                check_new(disk, name)?;
                disk.rename(&aside, name)?;
                disk.sync_dir()?;
            }
            Ok(is_shared)
        });
        if !matches!(named, Ok(true)) {
            // What cannot be removed is overwritten by the next attempt.
            let _ = disk.remove(&aside);
        }
        named
    }
}

/// Copies all tables of a version into a store that nobody else sees.
fn copy(from: &Snapshot<'_>, to: &Store) -> Result<()> {
    let mut unwritten = 0;
    let mut txn = Some(to.begin());
    for (name, types, root) in from.catalog().iter() {
        let place = open(&mut txn).make_raw(name, types)?;
        let mut loader = RawLoader::new(types, to.page_bytes());
        content::for_each(from.access(), root, |key, value| {
            open(&mut txn).load_raw(&mut loader, key, value)?;
            unwritten += key.len() + value.len();
            if unwritten > STEP_BYTES {
                unwritten = 0;
                // The next begins when this one has ended.
                txn.take().map_or(Ok(()), WriteTxn::commit)?;
                txn = Some(to.begin());
            }
            Ok(())
        })?;
        open(&mut txn).end_load(place, loader)?;
    }
    txn.take().map_or(Ok(()), WriteTxn::commit)
}

fn open<'t, 's>(txn: &'t mut Option<WriteTxn<'s>>) -> &'t mut WriteTxn<'s> {
    txn.as_mut().expect("there is one, but for the moment between two")
}
