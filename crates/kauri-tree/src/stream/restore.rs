//! A store made of a stream, or brought up to date by one.

use std::io;

use super::read::Input;
use super::{CHANGED, Checkpoint, DROP, Kind, PUT, REMOVE, TABLE, Totals};
use crate::catalog::check_name;
use crate::content::{ContentHash, Summing};
use crate::disk::{Disk, Open};
use crate::error::{Error, Result};
use crate::open;
use crate::store::{Options, Store};
use crate::table;
use crate::write::{RawLoader, WriteTxn};

/// A store that is made aside is written out whenever so many bytes of rows came: memory need not hold all of it.
const STEP_BYTES: usize = 8 << 20;
/// The memory for pages of a store that is made aside.
const CACHE_BYTES: usize = 64 << 20;

impl Options {
    /// Makes a store of this name on a disk from a [stream](crate::Snapshot::checkpoint_to), and opens it. There must be none of
    /// this name. It is made aside, as `name.aside`, and gets its name when all of it is there and durable; if anything is
    /// wrong with the stream, nothing is left. Bytes behind the end of the stream are not read.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Error, Options, Store};
    ///
    /// let mut stream = Vec::new();
    /// Store::in_memory()?.snapshot().checkpoint_to(&mut stream)?;
    /// let disk = MemoryDisk::new();
    /// let cut = Options::new().restore(&disk, "store", &mut &stream[..50]);
    /// assert!(matches!(cut, Err(Error::Stream { .. })));
    /// Options::new().restore(&disk, "store", &mut &stream[..])?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Exists`] if there is a store of this name, [`Error::Stream`] if the stream is damaged or cut; also if a row is too long for the pages, the
    /// stream has only what changed since another, or reading or the disk fails.
    pub fn restore(&self, disk: &dyn Disk, name: &str, read: &mut impl io::Read) -> Result<Store> {
        self.build_aside(disk, name, |store| restore(store, read, Some(STEP_BYTES)).map(drop))
    }

    /// Makes a store under another name, fills it, and gives it its own when all of it is durable; then opens it.
    pub(crate) fn build_aside(
        &self,
        disk: &dyn Disk,
        name: &str,
        fill: impl FnOnce(&Store) -> Result<()>,
    ) -> Result<Store> {
        check_new(disk, name)?;
        let aside = format!("{name}.aside");
        let store = self.make_aside(disk, &aside)?;
        let filled = fill(&store).and_then(|()| {
            store.checkpoint()?;
            check_new(disk, name)?;
            disk.rename(&aside, name)?;
            if !planted!(ForgetNameOfCopy) {
                disk.sync_dir()?;
            }
            Ok(())
        });
        // It has its name before it is let go, so that nobody else makes something of what is aside.
        drop(store);
        match filled {
            Ok(()) => self.open(disk, name),
            Err(error) => {
                // What cannot be removed is overwritten by the next attempt.
                let _ = disk.remove(&aside);
                Err(error)
            }
        }
    }

    /// An empty store under a name that counts for nobody.
    fn make_aside(&self, disk: &dyn Disk, aside: &str) -> Result<Store> {
        self.check()?;
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let options = self.clone().keeper(false).cache_bytes(CACHE_BYTES);
        options.open_with(|page_bytes, log_bytes, cache_bytes| {
            open::make_aside(disk, aside, page_bytes, log_bytes, cache_bytes)
        })
    }
}

impl Store {
    /// Brings this store up to date by a stream, in one transaction: one with everything, if the store has no tables yet; one with
    /// [what changed](crate::Snapshot::checkpoint_since), if the store holds exactly what the stream's base held. All rows of the store are read to see that. Bytes behind the end of the stream are not read.
    ///
    /// What is written is held in memory until it is committed; [`Options::restore`] needs less.
    ///
    /// ```
    /// use kauri_tree::{Error, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.put(&STOCK, "apples", 12)?;
    /// # txn.commit()?;
    /// let mut stream = Vec::new();
    /// store.snapshot().checkpoint_to(&mut stream)?;
    /// let copy = Store::in_memory()?;
    /// assert!(matches!(copy.restore_from(&mut &stream[..stream.len() - 1]), Err(Error::Stream { .. }))); // cut
    /// assert_eq!(copy.restore_from(&mut &stream[..])?.rows, 1);
    /// assert_eq!(copy.snapshot().get(&STOCK, "apples")?, Some(12));
    /// assert!(matches!(copy.restore_from(&mut &stream[..]), Err(Error::NotEmpty)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotEmpty`] or [`Error::OtherBase`] if the stream is not for this store, [`Error::Stream`] if it is damaged or cut; also
    /// if a row is too long for the pages, or reading or the disk fails. Nothing has changed then.
    pub fn restore_from(&self, read: &mut impl io::Read) -> Result<Checkpoint> {
        restore(self, read, None)
    }
}

pub(crate) fn check_new(disk: &dyn Disk, name: &str) -> Result<()> {
    match disk.open(name, Open::ReadOnly) {
        Ok(_) => Err(Error::Exists { name: name.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Brings a store up to date by a stream, in one transaction or in steps of so many bytes.
fn restore<R: io::Read>(store: &Store, read: &mut R, step_bytes: Option<usize>) -> Result<Checkpoint> {
    let (mut input, kind) = Input::begin(read)?;
    let txn = store.begin();
    let base = check_base(store, &txn, kind)?;
    let mut restoring = Restoring {
        store,
        txn: Some(txn),
        kind,
        step_bytes: step_bytes.unwrap_or(if planted!(RestoreHalf) { 0 } else { usize::MAX }),
        unwritten: 0,
        table: None,
        summing: Summing::from(base),
        totals: Totals::default(),
        buffers: Default::default(),
    };
    while let Some(record) = input.record()? {
        restoring.record(&mut input, record)?;
    }
    restoring.end_table()?;
    restoring.finish(&input)
}

/// Whether a stream of this kind is for a store as it is now, whose turn is ours; the content that it starts from.
fn check_base(store: &Store, txn: &WriteTxn<'_>, kind: Kind) -> Result<ContentHash> {
    match kind {
        Kind::Whole if txn.catalog().iter().next().is_some() => Err(Error::NotEmpty),
        Kind::Whole => Ok(ContentHash::default()),
        Kind::Since(expected) => {
            // What was committed before the turn was taken; nobody commits now.
            store.wait_for_published()?;
            let found = store.snapshot().content_hash()?;
            if found == expected || planted!(RestoreOnAnyBase) {
                Ok(found)
            } else {
                Err(Error::OtherBase { expected, found })
            }
        }
    }
}

/// A stream on its way into a store.
struct Restoring<'s> {
    store: &'s Store,
    /// There is always one, but for the moment between two.
    txn: Option<WriteTxn<'s>>,
    kind: Kind,
    step_bytes: usize,
    /// Bytes of rows that no transaction has committed.
    unwritten: usize,
    table: Option<Current>,
    summing: Summing,
    totals: Totals,
    /// For the key and the value of one row at a time.
    buffers: (Vec<u8>, Vec<u8>),
}

/// The table whose rows come.
struct Current {
    name: String,
    into: Into,
}

enum Into {
    /// A tree of its own.
    New { place: usize, loader: RawLoader },
    /// The rows that it had.
    Same,
}

impl<'s> Restoring<'s> {
    fn txn(&mut self) -> &mut WriteTxn<'s> {
        self.txn.as_mut().expect("there is one between records")
    }

    fn record<R: io::Read>(&mut self, input: &mut Input<'_, R>, record: u8) -> Result<()> {
        match (record, self.kind) {
            (TABLE, _) | (CHANGED, Kind::Since(_)) => {
                let (types, name) = (input.number(2)?, input.number(2)?);
                let (types, name) = (input.text(types)?, input.text(name)?);
                self.end_table()?;
                self.totals.tables += 1;
                self.begin_table(input, name, &types, record == TABLE)
            }
            (PUT, _) => {
                let (key_bytes, value_bytes) = (input.number(4)?, input.number(4)?);
                let (mut key, mut value) = std::mem::take(&mut self.buffers);
                key.clear();
                value.clear();
                input.append(key_bytes, &mut key)?;
                input.append(value_bytes, &mut value)?;
                self.put(input, &key, &value).map_err(|error| self.of_row(error))?;
                self.buffers = (key, value);
                self.totals.rows += 1;
                self.step()
            }
            (REMOVE, Kind::Since(_)) => {
                let (key_bytes, mut key) = (input.number(4)?, Vec::new());
                input.append(key_bytes, &mut key)?;
                self.totals.removed += 1;
                self.remove(input, &key)
            }
            (DROP, Kind::Since(_)) => {
                let name = input.number(2)?;
                let name = input.text(name)?;
                self.end_table()?;
                match self.drop_table(&name)? {
                    true => Ok(()),
                    false => Err(input.fault("a table to drop", 0)),
                }
            }
            (other, _) => Err(input.fault("a record of this kind of stream", other.into())),
        }
    }

    /// An error that is not of the stream, but of a row in it.
    fn of_row(&self, error: Error) -> Error {
        match error {
            Error::KeyTooLong { .. } | Error::ValueTooLong { .. } => error.of_row(self.totals.rows),
            _ => error,
        }
    }

    fn begin_table<R: io::Read>(
        &mut self,
        input: &Input<'_, R>,
        name: String,
        types: &str,
        is_new: bool,
    ) -> Result<()> {
        if check_name(&name, types, self.store.page_bytes()).is_err() {
            return Err(input.fault("a name of a table that fits a page", name.len() as u64));
        }
        let into = if is_new {
            let existed = self.drop_table(&name)?;
            if existed && self.kind == Kind::Whole {
                return Err(input.fault("each table once", self.totals.tables));
            }
            let place = self.txn().make_raw(&name, types)?;
            self.summing.table(&name, types);
            Into::New { place, loader: RawLoader::new(types, self.store.page_bytes()) }
        } else {
            let found = self.txn().catalog().entry(&name).map(|(_, found, _)| found == types);
            if found != Some(true) || !table::is_bytewise(types) {
                return Err(input.fault("a table of the base", self.totals.tables));
            }
            self.summing.same_table(&name, types);
            Into::Same
        };
        self.table = Some(Current { name, into });
        Ok(())
    }

    /// Drops a table, if there is one of this name, and tells whether there was.
    fn drop_table(&mut self, name: &str) -> Result<bool> {
        let Self { txn, summing, .. } = self;
        let txn = txn.as_mut().expect("there is one between records");
        let Some((_, types, _)) = txn.catalog().entry(name) else { return Ok(false) };
        summing.no_table(name, types);
        txn.for_each_raw(name, |key, value| {
            summing.no_row(key, value);
            Ok(())
        })?;
        txn.drop_table(name)
    }

    fn put<R: io::Read>(&mut self, input: &Input<'_, R>, key: &[u8], value: &[u8]) -> Result<()> {
        let Self { txn, table, summing, .. } = self;
        let txn = txn.as_mut().expect("there is one between records");
        match table {
            None => return Err(input.fault("a table before its rows", 0)),
            Some(Current { into: Into::New { loader, .. }, .. }) => txn.load_raw(loader, key, value)?,
            Some(Current { into: Into::Same, name }) => {
                if let Some(old) = txn.get_raw(name, key)? {
                    summing.no_row(key, &old);
                }
                txn.put_raw(name, key, value)?;
            }
        }
        summing.row(key, value);
        self.unwritten += key.len() + value.len() + 16;
        Ok(())
    }

    fn remove<R: io::Read>(&mut self, input: &Input<'_, R>, key: &[u8]) -> Result<()> {
        let Some(Current { into: Into::Same, name }) = &self.table else {
            return Err(input.fault("a table that had rows before one is removed", 0));
        };
        let txn = self.txn.as_mut().expect("there is one between records");
        let Some(old) = txn.get_raw(name, key)? else {
            return Err(input.fault("a row that is there to be removed", 0));
        };
        self.summing.no_row(key, &old);
        txn.remove_raw(name, key)?;
        Ok(())
    }

    /// Commits what there is so far, if it is much and nobody can see it.
    fn step(&mut self) -> Result<()> {
        if self.unwritten > self.step_bytes {
            self.unwritten = 0;
            self.txn.take().expect("there is one between records").commit()?;
            self.txn = Some(self.store.begin());
        }
        Ok(())
    }

    fn end_table(&mut self) -> Result<()> {
        match self.table.take() {
            Some(Current { into: Into::New { place, loader }, .. }) => self.txn().end_load(place, loader),
            _ => Ok(()),
        }
    }

    /// Commits, if everything is as the end of the stream says.
    fn finish<R: io::Read>(mut self, input: &Input<'_, R>) -> Result<Checkpoint> {
        let end = input.end()?;
        if end.totals != self.totals {
            return Err(input.fault("as many tables and rows as the end says", end.totals.rows));
        }
        let content = self.summing.hash();
        if content != end.content {
            return Err(input.fault("the content that the end says", self.totals.rows));
        }
        self.txn.take().expect("there is one between records").commit()?;
        let Totals { tables, rows, removed } = self.totals;
        Ok(Checkpoint { tables, rows, removed, bytes: input.bytes(), content })
    }
}
