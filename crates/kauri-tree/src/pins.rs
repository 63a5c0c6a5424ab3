//! Pins: versions that have a name, and are there until somebody takes it away.
//!
//! A pin is made by a checkpoint that keeps the turn: the catalog's tree of that checkpoint is the pin's, and a row with where it
//! begins is what the pin is. The log has nothing of it. A pin costs the pages that no later version has (`kept.rs`), and nothing
//! when rows are read or written.
//!
//! Every version says which pins there are: whoever reads as of a pin holds, like any other reader, the version in which the pin was
//! found, and the pages of the pin are in that version. So a pin that goes meanwhile takes nothing from him.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use kauri_arena::Stamp;

use crate::btree::{self, Of, Old, Root};
use crate::catalog::Catalog;
use crate::checkpoint::read_catalog;
use crate::content::{self, ContentHash};
use crate::durable::Durable;
use crate::error::{Error, Fault, Result};
use crate::kept;
use crate::node::Value;
use crate::pager::Pager;
use crate::read::Access;
use crate::snapshot::Snapshot;
use crate::store::{State, Store};
use crate::write::check_key;

/// A version with a name.
///
/// ```
/// use kauri_tree::{Store, Table, Write};
///
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&Table::<str, u64>::new("stock"), "apples", 12)?;
/// txn.commit()?;
/// let pin = store.pin("monday", 1_767_571_200_000)?;
/// assert_eq!((pin.name.as_str(), pin.when, pin.tables, pin.rows), ("monday", 1_767_571_200_000, 1, 1));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Pin {
    /// Its name.
    pub name: String,
    /// The number of the version; a later one has a greater number.
    pub version: u64,
    /// The number that whoever made it gave: a time, mostly.
    pub when: u64,
    /// How many tables the version has.
    pub tables: u64,
    /// How many rows they have.
    pub rows: u64,
}

/// The pins of a version, by name.
pub(crate) type Pins = BTreeMap<Box<str>, Arc<Pinned>>;

/// What is known of a pin.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) version: Stamp,
    when: u64,
    rows: u64,
    tables: u64,
    /// The topmost page of the catalog's tree; 0 in memory, and if there is no table.
    page: u32,
    /// The tables, read when they are first asked for.
    catalog: OnceLock<Catalog>,
    pub(crate) content: OnceLock<ContentHash>,
}

/// What is to be done with the pins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PinChange<'a> {
    Make { name: &'a str, when: u64 },
    Drop { name: &'a str },
}

const ROW_BYTES: usize = 36;
const _: () = assert!(btree::fits(256, btree::key_bytes_max(256), ROW_BYTES), "a pin lies in a leaf whole");

impl Pinned {
    /// Where the tree of the catalog begins.
    pub(crate) const fn root(&self) -> Root {
        Root { page: self.page, rows: if self.page == 0 { 0 } else { self.tables } }
    }

    /// The tables; if nobody has asked for them yet, they are read.
    pub(crate) fn catalog(&self, access: Access<'_>) -> Result<&Catalog> {
        if self.catalog.get().is_none() {
            let catalog = read_catalog(access, self.root())?;
            // Somebody else may have been faster, with the same.
            let _ = self.catalog.set(catalog);
        }
        Ok(self.catalog.get().expect("it was just read"))
    }

    /// The tables, if they were read.
    pub(crate) fn known_catalog(&self) -> Option<&Catalog> {
        self.catalog.get()
    }

    fn told(&self, name: &str) -> Pin {
        let Self { version, when, rows, tables, .. } = *self;
        Pin { name: name.to_owned(), version: version.number(), when, tables, rows }
    }

    fn encode(&self) -> [u8; ROW_BYTES] {
        let mut row = [0; ROW_BYTES];
        row[..8].copy_from_slice(&self.version.number().to_le_bytes());
        row[8..16].copy_from_slice(&self.when.to_le_bytes());
        row[16..24].copy_from_slice(&self.rows.to_le_bytes());
        row[24..28].copy_from_slice(&self.page.to_le_bytes());
        row[28..].copy_from_slice(&self.tables.to_le_bytes());
        row
    }

    fn decode(row: &[u8]) -> Option<Self> {
        let row: &[u8; ROW_BYTES] = row.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().expect("eight bytes"));
        Some(Self {
            version: Stamp::new(word(0))?,
            when: word(8),
            rows: word(16),
            page: u32::from_le_bytes(row[24..28].try_into().expect("four bytes")),
            tables: word(28),
            catalog: OnceLock::new(),
            content: OnceLock::new(),
        })
    }
}

impl Store {
    /// Gives the newest version a name, under which it can be read until [`unpin`](Self::unpin), whatever is committed and however often
    /// the store is opened meanwhile. `when` is any number of the caller's, mostly the time, that [`pins`](Self::pins) tells again.
    ///
    /// In a file, it writes a checkpoint, and returns when everything that was committed before, and the pin, are on stable storage.
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
    /// store.pin("before the sale", 1)?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 0)?;
    /// txn.commit()?;
    /// drop(store);
    ///
    /// let store = Options::new().open(&disk, "store")?;
    /// let before = store.as_of("before the sale")?.expect("it was pinned");
    /// assert_eq!(before.get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PinExists`] if there is a pin of that name, [`Error::KeyTooLong`] if the name is longer than a key may be; also if the
    /// disk fails, or the store was opened to be read only. After a failure of the disk it is found when the store is opened
    /// again whether there is a pin.
    pub fn pin(&self, name: &str, when: u64) -> Result<Pin> {
        let mut state = self.turn();
        check_key(name.as_bytes(), state.page_bytes)?;
        if state.catalog.pins().contains_key(name) {
            return Err(Error::PinExists { name: name.into() });
        }
        self.change_pins(&mut state, PinChange::Make { name, when })?;
        Ok(state.catalog.pins()[name].told(name))
    }

    /// Takes a name away, and tells whether there was such a pin. What only it saw is free as soon as nobody reads it any more; whoever
    /// reads as of the pin goes on.
    ///
    /// ```
    /// use kauri_tree::Store;
    ///
    /// let store = Store::in_memory()?;
    /// store.pin("monday", 1)?;
    /// assert!(store.unpin("monday")?);
    /// assert!(!store.unpin("monday")?);
    /// assert!(store.as_of("monday")?.is_none());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the disk fails, or the store is damaged or was opened to be read only.
    pub fn unpin(&self, name: &str) -> Result<bool> {
        let mut state = self.turn();
        if !state.catalog.pins().contains_key(name) {
            return Ok(false);
        }
        self.change_pins(&mut state, PinChange::Drop { name })?;
        Ok(true)
    }

    /// The pins, in the order of their names.
    ///
    /// ```
    /// use kauri_tree::Store;
    ///
    /// let store = Store::in_memory()?;
    /// store.pin("tuesday", 2)?;
    /// store.pin("monday", 1)?;
    /// let names: Vec<_> = store.pins().into_iter().map(|pin| pin.name).collect();
    /// assert_eq!(names, ["monday", "tuesday"]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn pins(&self) -> Vec<Pin> {
        self.snapshot().newest_catalog().pins().iter().map(|(name, pinned)| pinned.told(name)).collect()
    }

    /// The version that a pin names, to be read like any other: rows, scans, counts, cursors, differences, streams and forks. `None` if
    /// there is no such pin. It waits for nobody.
    ///
    /// ```
    /// use kauri_tree::{Difference, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// store.pin("empty", 0)?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    ///
    /// let (then, now) = (store.as_of("empty")?.expect("it was pinned"), store.snapshot());
    /// let mut differences = now.diff(&then, &STOCK)?;
    /// assert_eq!(differences.next()?, Some(Difference::Inserted { key: "apples", value: 12 }));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged.
    pub fn as_of(&self, name: &str) -> Result<Option<Snapshot<'_>>> {
        let snapshot = self.snapshot();
        let Some(pinned) = snapshot.newest_catalog().pins().get(name).cloned() else { return Ok(None) };
        if planted!(ReadNewestAsOfPin) {
            return Ok(Some(snapshot));
        }
        snapshot.at(pinned).map(Some)
    }

    fn change_pins(&self, state: &mut State, change: PinChange<'_>) -> Result<()> {
        if let Some(durable) = self.durable() {
            return durable.change_pins(state, change);
        }
        state.pager.begin();
        let changed = apply(state, change);
        assert!(changed.is_ok(), "nothing is read from a file: {changed:?}");
        let version = state.pager.commit();
        self.arena().publish(version, state.catalog.clone());
        Ok(())
    }
}

impl Durable {
    /// Makes or drops a pin, and a checkpoint that says so.
    fn change_pins(&self, state: &mut State, change: PinChange<'_>) -> Result<()> {
        self.check()?;
        let turn = state.turn.as_mut().expect("a store in a file has a log");
        turn.opened = false;
        // The log does not have it: as for a commit that is no record.
        turn.ring.skip_ahead();
        self.checkpoint_in_turn(state, Some(change))
    }
}

/// Changes the pins, in a transaction that gives up nothing else from here on.
pub(crate) fn apply(state: &mut State, change: PinChange<'_>) -> Result<()> {
    match change {
        PinChange::Make { name, when } => make(state, name, when),
        PinChange::Drop { name } => drop_pin(state, name),
    }
}

fn make(state: &mut State, name: &str, when: u64) -> Result<()> {
    let (tables, rows) = state.catalog.iter().fold((0, 0), |(tables, rows), (.., root)| (tables + 1, rows + root.rows));
    let catalog = OnceLock::from(state.catalog.without_pins());
    let page = state.turn.as_ref().map_or(0, |turn| turn.catalog.page);
    let version = state.pager.version_to_be();
    let pinned = Pinned { version, when, rows, tables, page, catalog, content: OnceLock::new() };
    let State { pager, turn, .. } = state;
    if let Some(turn) = turn {
        expect(pinned.root() == turn.catalog, turn.catalog.page, "a row of the catalog for each table")?;
        let put = |pager: &mut Pager<Catalog>| {
            btree::put::<Of<[u8]>>(pager, &mut turn.pins, name.as_bytes(), Value::Inline(&pinned.encode()))
        };
        let old = pager.unseen(put)?;
        expect(old == Old::Missing, turn.pins.page, "pins that are in order")?;
    }
    state.catalog.pins_mut().insert(name.into(), Arc::new(pinned));
    state.pager.set_newest_pin(Some(version));
    Ok(())
}

/// A file may say anything of its pins, and its trees be none.
fn expect(is_so: bool, page: u32, what: &'static str) -> Result<()> {
    if is_so { Ok(()) } else { Err(Error::Corrupt { page, fault: Fault::new(what, page.into()) }) }
}

fn drop_pin(state: &mut State, name: &str) -> Result<()> {
    let pin = state.catalog.pins_mut().remove(name).expect("it was found before").version;
    let versions = || state.catalog.pins().values().map(|pinned| pinned.version);
    let before = versions().filter(|version| *version < pin).max();
    let newest = versions().max();
    kept::release(state, pin, before)?;
    if !planted!(KeepForGonePin) {
        state.pager.set_newest_pin(newest);
    }
    let State { pager, turn, .. } = state;
    if let Some(turn) = turn {
        let remove = |pager: &mut Pager<Catalog>| btree::remove::<Of<[u8]>>(pager, &mut turn.pins, name.as_bytes());
        let old = pager.unseen(remove)?;
        expect(old == Old::Inline, turn.pins.page, "pins that are in order")?;
    }
    Ok(())
}

/// The pins that a file has. `newest` is the version of its checkpoint.
pub(crate) fn read(access: Access<'_>, root: Root, newest: Stamp) -> Result<Pins> {
    let mut pins = Pins::new();
    let wrong = |found: u64| Error::Corrupt { page: root.page, fault: Fault::new("a pin of a version before", found) };
    content::for_each(access, root, |name, row| {
        let name = <str as kauri_wire::Key>::decode(name)?;
        let pinned = Pinned::decode(row).ok_or_else(|| wrong(row.len() as u64))?;
        let version = pinned.version;
        let is_new = |pins: &Pins| pins.values().all(|other| other.version != version);
        if version > newest || !is_new(&pins) {
            return Err(wrong(version.number()));
        }
        pins.insert(name.into(), Arc::new(pinned));
        Ok(())
    })?;
    Ok(pins)
}
