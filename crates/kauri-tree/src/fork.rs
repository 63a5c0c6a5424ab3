//! A copy of one version as a store of its own.

use crate::content;
use crate::disk::Disk;
use crate::error::Result;
use crate::read::Source;
use crate::snapshot::Snapshot;
use crate::store::{Options, Store};
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
