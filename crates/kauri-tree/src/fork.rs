//! A copy of one version as a store of its own, or of a store with its pins: of its file, where the disk lets two files share their
//! bytes; else of its rows.
//!
//! What a fork holds does not depend on the way it was made. That of a store has its newest version and all its pins, under their names
//! and with what each saw: where rows are copied, the oldest pin is copied whole, and then what changed from each to the next, so that
//! the fork too stores once what they share (but for tables in an order of their own: those are copied again if anything in them changed). That of a snapshot has that version, and no pins.
//!
//! What it costs does. Where bytes are shared it is a constant number of calls to the disk, however much there is: a fork is O(1) there, on
//! file systems with reflinks (XFS, Btrfs, bcachefs, ZFS), and pages are copied when either store writes them. Elsewhere it is O(rows),
//! and it is O(rows) from a store in memory, which has no file to share.
//!
//! A fork in memory that shares pages with its store could be had: a second arena, whose pages are looked up in the first until they
//! are written, with the forked version held so that none of them goes. It is not there because each lookup of a page, in every read of every
//! store, would have to ask which of the two arenas has it, and that is what reading consists of; and because a fork would keep its
//! parent's whole arena alive. What such a fork is for, a [`Change`](crate::Change) does in O(1): it stages rows over a snapshot,
//! reads through them, and is dropped or committed; and nested transactions do it inside of one.

use crate::btree::Root;
use crate::content;
use crate::diff::{Difference, TableChange, TableDiff};
use crate::disk::{Disk, Open};
use crate::error::Result;
use crate::group::Until;
use crate::read::Source;
use crate::snapshot::Snapshot;
use crate::store::{Options, Store};
use crate::stream::check_new;
use crate::table;
use crate::write::{RawLoader, WriteTxn};

/// What is copied is written out whenever it is so many bytes: memory need not hold all of it.
const STEP_BYTES: usize = 8 << 20;

impl Snapshot<'_> {
    /// Copies this version into a store of its own, with these options, and opens it. Others read and write this one meanwhile.
    /// There must be no store of that name. It is made aside, as `name.aside`, and gets its name when all of it is there and
    /// durable. All rows are copied, each page full. It has this version only: no pins.
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
        options.build_aside(disk, name, |store| Copying::new(store).version(self))
    }
}

impl Store {
    /// Copies this store, as it is at one moment, into a store of its own, and opens it: the newest version, and every
    /// [pin](Self::pin) with what it saw. Others read and write this one meanwhile. There must be no store of that name; it gets
    /// its name when all of it is there and durable. It waits for the writer's turn, for a moment.
    ///
    /// Where the disk can let two files share their bytes ([`File::share`](crate::disk::File::share)) and the pages are to have the
    /// size they have, that takes one small step, however much there is, and what is not written later is stored once. Else all rows are
    /// copied, and for each pin what changed since the one before. Only the numbers of the versions differ then.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let disk = MemoryDisk::new();
    /// let store = Options::new().open(&disk, "store")?;
    /// store.pin("empty", 0)?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    ///
    /// let fork = store.fork(&Options::new(), &disk, "fork")?;
    /// let mut txn = fork.begin();
    /// txn.put(&STOCK, "apples", 0)?;
    /// txn.commit()?;
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    /// assert_eq!(fork.as_of("empty")?.expect("pins come along").tables().count(), 0);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Snapshot::fork`].
    pub fn fork(&self, options: &Options, disk: &dyn Disk, name: &str) -> Result<Store> {
        match self.share_file(options, disk, name)? {
            true => options.open(disk, name),
            false => options.build_aside(disk, name, |store| copy(&self.moment()?, store)),
        }
    }

    /// Everything that can be read of this store now.
    fn moment(&self) -> Result<Moment<'_>> {
        // Nobody makes or drops a pin now.
        let _turn = self.turn();
        let mut pins = Vec::new();
        for pin in self.pins() {
            let version = self.as_of(&pin.name)?.expect("nobody has dropped it");
            pins.push(Pinned { name: pin.name, when: pin.when, version });
        }
        pins.sort_by_key(|pin| pin.version.version());
        Ok(Moment { pins, newest: self.snapshot() })
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
                if !planted!(NameUnsyncedFork) {
                    file.sync()?;
                }
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

/// The versions of a store at one moment.
struct Moment<'s> {
    /// The oldest first.
    pins: Vec<Pinned<'s>>,
    newest: Snapshot<'s>,
}

struct Pinned<'s> {
    name: String,
    when: u64,
    version: Snapshot<'s>,
}

/// Copies all versions into a store that nobody else sees: the oldest whole, then what changed from each to the next.
fn copy(from: &Moment<'_>, to: &Store) -> Result<()> {
    let mut before: Option<&Snapshot<'_>> = None;
    let mut bring = |version| {
        match before.replace(version) {
            None => Copying::new(to).version(version)?,
            Some(before) => Copying::new(to).changes(before, version)?,
        }
        Ok(())
    };
    for Pinned { name, when, version } in &from.pins {
        bring(version)?;
        if !planted!(ForkWithoutPins) {
            to.pin(name, *when)?;
        }
    }
    bring(&from.newest)
}

/// Tables on their way into a store that nobody else sees, in transactions that are not too long.
struct Copying<'s> {
    to: &'s Store,
    /// There is always one, but for the moment between two.
    txn: Option<WriteTxn<'s>>,
    /// Bytes of rows that no transaction has committed.
    unwritten: usize,
}

impl<'s> Copying<'s> {
    fn new(to: &'s Store) -> Self {
        Self { to, txn: Some(to.begin()), unwritten: 0 }
    }

    fn txn(&mut self) -> &mut WriteTxn<'s> {
        self.txn.as_mut().expect("there is one between rows")
    }

    /// All tables of a version.
    fn version(mut self, from: &Snapshot<'_>) -> Result<()> {
        for (name, types, root) in from.catalog().iter() {
            self.whole_table(from, name, types, root)?;
        }
        self.end()
    }

    /// What is not in one version as it was in the other, which the store has.
    fn changes(mut self, before: &Snapshot<'_>, from: &Snapshot<'_>) -> Result<()> {
        for diff in from.diff_tables(before)? {
            self.changed_table(from, &diff)?;
        }
        self.end()
    }

    fn changed_table(&mut self, from: &Snapshot<'_>, diff: &TableDiff<'_>) -> Result<()> {
        let (name, types, (_, root)) = (diff.name(), diff.types(), diff.roots());
        match diff.change() {
            TableChange::Created => self.whole_table(from, name, types, root),
            TableChange::Dropped => self.txn().drop_table(name).map(drop),
            TableChange::Written if table::is_bytewise(types) => self.changed_rows(diff),
            // Only its type knows where a row would be.
            TableChange::Written => {
                self.txn().drop_table(name)?;
                self.whole_table(from, name, types, root)
            }
        }
    }

    fn changed_rows(&mut self, diff: &TableDiff<'_>) -> Result<()> {
        let (name, mut rows) = (diff.name(), diff.rows());
        while let Some(difference) = rows.next()? {
            match difference {
                Difference::Inserted { key, value } | Difference::Changed { key, new: value, .. } => {
                    self.txn().put_raw(name, key, &value)?;
                    self.step(key.len() + value.len())?;
                }
                Difference::Removed { .. } if planted!(ForkRemovedRows) => {}
                Difference::Removed { key, .. } => {
                    self.txn().remove_raw(name, key)?;
                    self.step(key.len())?;
                }
            }
        }
        Ok(())
    }

    /// A table that the store does not have.
    fn whole_table(&mut self, from: &Snapshot<'_>, name: &str, types: &str, root: Root) -> Result<()> {
        let place = self.txn().make_raw(name, types)?;
        let mut loader = RawLoader::new(types, self.to.page_bytes());
        content::for_each(from.access(), root, |key, value| {
            self.txn().load_raw(&mut loader, key, value)?;
            self.step(key.len() + value.len())
        })?;
        self.txn().end_load(place, loader)
    }

    /// Commits what there is so far, if it is much.
    fn step(&mut self, bytes: usize) -> Result<()> {
        self.unwritten += bytes;
        if self.unwritten > STEP_BYTES {
            self.unwritten = 0;
            // The next begins when this one has ended.
            self.txn.take().map_or(Ok(()), WriteTxn::commit)?;
            self.txn = Some(self.to.begin());
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.txn.take().map_or(Ok(()), WriteTxn::commit)
    }
}
