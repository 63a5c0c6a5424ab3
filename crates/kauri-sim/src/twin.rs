//! A store and its twin: the same random work is done to a store and to plain maps, and they must agree at every step.
//!
//! Puts, insertions, removals, gets, scans from either end and from both, counts, tables made and dropped, transactions and nested
//! ones that are committed or vanish, snapshots that are held, versions that are pinned, checkpoints, and, in a file, closing and opening again. Where
//! pages are small, everything is compared and verified after every transaction; where they are large, after some.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Durability, Error, Options, Read, Snapshot, Store, Table, Write, WriteTxn};

use crate::rng::Rng;

/// Where a twin's choices come from: a seed, or the bytes of a fuzzer.
pub trait Chance {
    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: usize) -> usize;

    /// Whether there is nothing left to choose from: then the work ends.
    fn is_spent(&self) -> bool {
        false
    }
}

impl Chance for Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.index(bound)
    }
}

/// What kind of store, and what is put into it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TwinShape {
    /// The size of a page.
    pub page_bytes: usize,
    /// About how many keys there are to choose from.
    pub keys: usize,
    /// The longest value.
    pub value_bytes_max: usize,
    /// Whether it is in a file, which is closed and opened again, or in memory.
    pub in_file: bool,
    /// Whether versions are pinned now and then. Every page of each is looked at whenever the store verifies itself.
    pub pins: bool,
}

impl TwinShape {
    /// The shape that goes with a seed: mostly the smallest pages, where one meets every rare case soon.
    ///
    /// ```
    /// use kauri_sim::TwinShape;
    ///
    /// assert!((0..100).any(|seed| TwinShape::of(seed).page_bytes == 256));
    /// assert!((0..100).any(|seed| TwinShape::of(seed).page_bytes == 65536));
    /// ```
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::of(seed, &[0x7714]);
        let page_bytes = *rng.pick(&[256, 256, 256, 256, 512, 512, 1024, 4096, 4096, 65536]);
        let small = page_bytes <= COMPARE_EACH_BYTES_MAX;
        let keys = *rng.pick(if small { &[4, 20, 60, 120] } else { &[50, 500, 3_000, 20_000] });
        Self { page_bytes, keys, value_bytes_max: 64 << 10, in_file: rng.chance(2, 3), pins: rng.chance(1, 3) }
    }

    /// A small store in a file with the smallest pages and no very long values, for a fuzzer: much happens in few steps.
    #[must_use]
    pub fn tiny() -> Self {
        Self { page_bytes: 256, keys: 24, value_bytes_max: 1 << 10, in_file: true, pins: true }
    }

    fn key_bytes_max(&self) -> usize {
        self.page_bytes / 4 - 8
    }
}

/// Up to this size of pages, everything is compared after every transaction.
const COMPARE_EACH_BYTES_MAX: usize = 512;
/// With larger ones, after one in so many.
const COMPARE_SOME: u64 = 32;
/// How deep transactions nest.
const DEPTH_MAX: u32 = 3;

const PINS: [&str; 3] = ["morning", "noon", "night"];
const TABLES: [&str; 4] = ["one", "two", "three", "four"];
const NAME: &str = "store";

type Rows = BTreeMap<Arc<[u8]>, Arc<[u8]>>;
/// What each table should hold; `None` if there should be no such table.
type Model = [Option<Rows>; 4];
pub(crate) type Outcome = Result<(), String>;

/// A store, and the maps that say what it should hold.
///
/// ```
/// use kauri_sim::{Rng, Twin, TwinShape};
///
/// let mut twin = Twin::new(TwinShape::of(7), Rng::new(7));
/// assert_eq!(twin.work(2_000), Ok(()));
/// assert!(twin.operations() >= 2_000);
/// ```
#[derive(Debug)]
pub struct Twin<C> {
    shape: TwinShape,
    chance: C,
    disk: MemoryDisk,
    model: Model,
    /// What should be seen as of each pin; `None` if there should be no such pin.
    pins: [Option<Model>; 3],
    operations: u64,
    transactions: u64,
}

impl<C: Chance> Twin<C> {
    /// An empty store of this shape.
    #[must_use]
    pub fn new(shape: TwinShape, chance: C) -> Self {
        let (disk, model, pins) = (MemoryDisk::new(), Model::default(), Default::default());
        Self { shape, chance, disk, model, pins, operations: 0, transactions: 0 }
    }

    /// How many operations were done.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Does so many operations, a few more to end the last transaction.
    ///
    /// # Errors
    /// Says where store and maps first disagreed, or what the store said.
    pub fn work(&mut self, operations: u64) -> Outcome {
        let end = self.operations + operations;
        while self.goes_on(end) {
            self.life(end).map_err(|what| format!("{:?}, operation {}: {what}", self.shape, self.operations))?;
        }
        Ok(())
    }

    fn goes_on(&self, end: u64) -> bool {
        self.operations < end && !self.chance.is_spent()
    }

    /// From opening the store to closing it.
    fn life(&mut self, end: u64) -> Outcome {
        let store = self.open().map_err(words)?;
        self.check(&store)?;
        self.check_pins(&store)?;
        let mut held: Option<(Snapshot<'_>, Model)> = None;
        while self.goes_on(end) {
            self.transaction(&store)?;
            if self.compares_now() {
                self.check(&store)?;
            }
            match self.chance.below(32) {
                0..2 => held = self.hold_or_let_go(&store, held)?,
                2 => store.checkpoint().map_err(words)?,
                3 if self.shape.in_file => break,
                4..7 if self.shape.pins => self.pin_or_unpin(&store)?,
                _ => {}
            }
        }
        match held {
            Some((snapshot, model)) => compare(&snapshot, &model),
            None => Ok(()),
        }
    }

    fn open(&mut self) -> Result<Store, Error> {
        self.operations += 1;
        // The smallest log: it is half full, and a checkpoint due, after a few commits.
        let options = Options::new().page_bytes(self.shape.page_bytes).log_bytes(1).keeper(false);
        if self.shape.in_file {
            return options.open(&self.disk, NAME);
        }
        (self.model, self.pins) = (Model::default(), Default::default());
        options.in_memory()
    }

    /// Takes a snapshot to keep; or looks whether the one that was kept is what it was.
    fn hold_or_let_go<'a>(
        &mut self,
        store: &'a Store,
        held: Option<(Snapshot<'a>, Model)>,
    ) -> Result<Option<(Snapshot<'a>, Model)>, String> {
        match held {
            None => Ok(Some((store.snapshot(), self.model.clone()))),
            Some((snapshot, model)) => compare(&snapshot, &model).map(|()| None),
        }
    }

    /// Pins the newest version; or looks as of a pin, and takes it away.
    fn pin_or_unpin(&mut self, store: &Store) -> Outcome {
        let which = self.chance.below(PINS.len());
        if self.pins[which].is_none() {
            store.pin(PINS[which], self.operations).map_err(words)?;
            self.pins[which] = Some(self.model.clone());
            return Ok(());
        }
        self.check_pins(store)?;
        self.pins[which] = None;
        same("whether there was a pin", store.unpin(PINS[which]).map_err(words)?, true)?;
        self.check_pins(store)
    }

    /// Compares what is seen as of each pin.
    fn check_pins(&self, store: &Store) -> Outcome {
        for (name, model) in PINS.iter().zip(&self.pins) {
            match (store.as_of(name).map_err(words)?, model) {
                (Some(snapshot), Some(model)) => compare(&snapshot, model).map_err(|what| format!("{name}: {what}"))?,
                (found, expected) => same("whether there is a pin", found.is_some(), expected.is_some())?,
            }
        }
        Ok(())
    }

    fn compares_now(&self) -> bool {
        self.shape.page_bytes <= COMPARE_EACH_BYTES_MAX || self.transactions.is_multiple_of(COMPARE_SOME)
    }

    /// Compares everything, and lets the store look at every page.
    fn check(&self, store: &Store) -> Outcome {
        compare(&store.snapshot(), &self.model)?;
        let report = store.verify().map_err(|error| format!("verify: {error}"))?;
        let rows: usize = self.model.iter().flatten().map(BTreeMap::len).sum();
        same("the rows that verify counts", report.rows, rows as u64)?;
        same("the tables that verify counts", report.tables, self.model.iter().flatten().count())
    }

    fn transaction(&mut self, store: &Store) -> Outcome {
        self.transactions += 1;
        let before = self.model.clone();
        let mut txn = store.begin();
        self.changes(&mut txn, DEPTH_MAX)?;
        match self.chance.below(8) {
            0 => {
                drop(txn);
                self.model = before;
                Ok(())
            }
            1 => txn.commit_with(Durability::None).map_err(words),
            _ => txn.commit().map_err(words),
        }
    }

    fn changes(&mut self, txn: &mut WriteTxn<'_>, depth: u32) -> Outcome {
        let most = if self.chance.below(8) == 0 { 200 } else { 40 };
        for _ in 0..self.chance.below(most) {
            self.operation(txn, depth)?;
        }
        Ok(())
    }

    fn operation(&mut self, txn: &mut WriteTxn<'_>, depth: u32) -> Outcome {
        self.operations += 1;
        let which = self.chance.below(TABLES.len());
        match self.chance.below(64) {
            0..26 => self.put(txn, which),
            26..30 => self.insert(txn, which),
            30..47 => self.remove(txn, which),
            47..53 => self.get(txn, which),
            53..58 => self.scan(txn, which),
            58..60 => self.count(txn, which),
            60 if self.chance.below(4) == 0 => self.drop_table(txn, which),
            61..63 if depth > 0 => self.nest(txn, depth - 1),
            _ => same("the length", txn.len(&table(which)).map_err(words)?, self.rows(which).len() as u64),
        }
    }

    fn put(&mut self, txn: &mut WriteTxn<'_>, which: usize) -> Outcome {
        let (key, value) = (self.key(), self.value());
        txn.put(&table(which), &key, &value).map_err(words)?;
        self.model[which].get_or_insert_default().insert(key.into(), value.into());
        Ok(())
    }

    fn insert(&mut self, txn: &mut WriteTxn<'_>, which: usize) -> Outcome {
        let (key, value) = (self.key(), self.value());
        let vacant = !self.rows(which).contains_key(&key[..]);
        same("whether a row was inserted", txn.insert(&table(which), &key, &value).map_err(words)?, vacant)?;
        if vacant {
            self.model[which].get_or_insert_default().insert(key.into(), value.into());
        }
        Ok(())
    }

    fn remove(&mut self, txn: &mut WriteTxn<'_>, which: usize) -> Outcome {
        let key = self.key();
        let there = self.model[which].as_mut().is_some_and(|rows| rows.remove(&key[..]).is_some());
        same("whether a row was removed", txn.remove(&table(which), &key).map_err(words)?, there)
    }

    fn get(&mut self, txn: &WriteTxn<'_>, which: usize) -> Outcome {
        let key = self.key();
        let found = txn.get(&table(which), &key).map_err(words)?;
        same("a value", found.as_deref(), self.rows(which).get(&key[..]).map(|value| &**value))?;
        same("whether a key is there", txn.contains(&table(which), &key).map_err(words)?, found.is_some())
    }

    /// Some rows of a range, each from one end or the other.
    fn scan(&mut self, txn: &WriteTxn<'_>, which: usize) -> Outcome {
        let (from, until) = self.range();
        let mut found = txn.scan(&table(which)).map_err(words)?;
        found = if let Some(from) = &from { found.from(from) } else { found };
        found = if let Some(until) = &until { found.until(until) } else { found };
        let (front, steps) = (self.chance.below(3), self.chance.below(16));
        let fronts: Vec<bool> = (0..steps).map(|_| self.chance.below(2) < front).collect();
        let mut rows = between(self.rows(which), from.as_deref(), until.as_deref());
        for front in fronts {
            let (found, row) = match front {
                true => (found.next().map_err(words)?, rows.next()),
                false => (found.previous().map_err(words)?, rows.next_back()),
            };
            let row = row.map(|(key, value)| (&**key, Cow::Borrowed(&**value)));
            same("a row of a scan", &found, &row)?;
            if row.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn count(&mut self, txn: &WriteTxn<'_>, which: usize) -> Outcome {
        let (from, until) = self.range();
        let mut found = txn.scan(&table(which)).map_err(words)?;
        found = if let Some(from) = &from { found.from(from) } else { found };
        found = if let Some(until) = &until { found.until(until) } else { found };
        let count = between(self.rows(which), from.as_deref(), until.as_deref()).count();
        same("the count of a range", found.count().map_err(words)?, count as u64)
    }

    fn drop_table(&mut self, txn: &mut WriteTxn<'_>, which: usize) -> Outcome {
        let there = self.model[which].take().is_some();
        same("whether a table was dropped", txn.drop_table(TABLES[which]).map_err(words)?, there)
    }

    fn nest(&mut self, txn: &mut WriteTxn<'_>, depth: u32) -> Outcome {
        let before = self.model.clone();
        let mut child = txn.nest();
        self.changes(&mut child, depth)?;
        if self.chance.below(3) > 0 {
            return child.commit().map_err(words);
        }
        drop(child);
        self.model = before;
        Ok(())
    }

    fn rows(&self, which: usize) -> &Rows {
        static NONE: Rows = Rows::new();
        self.model[which].as_ref().unwrap_or(&NONE)
    }

    /// Keys that share beginnings, with zeros and short and long ones among them.
    fn key(&mut self) -> Vec<u8> {
        let number = self.chance.below(self.shape.keys);
        let mut key = match self.chance.below(4) {
            0 => number.to_string().into_bytes(),
            1 => [b"a common beginning/".as_slice(), &number.to_be_bytes()[4..]].concat(),
            2 => vec![0; number % 9],
            _ => number.to_be_bytes()[5..].repeat(1 + number % 5),
        };
        key.truncate(self.shape.key_bytes_max());
        key
    }

    /// Mostly short values, some empty, some as long as a page, a few much longer. Their bytes count, so that a part in the wrong
    /// place is seen.
    fn value(&mut self) -> Vec<u8> {
        let TwinShape { page_bytes, value_bytes_max, .. } = self.shape;
        let bytes = match self.chance.below(128) {
            0 => self.chance.below(value_bytes_max + 1),
            1..6 => self.chance.below(page_bytes * 3),
            6..22 => self.chance.below(page_bytes / 2),
            22..32 => 0,
            _ => self.chance.below(40),
        };
        let start = self.chance.below(256);
        (start..start + bytes.min(value_bytes_max)).map(|byte| (byte % 251).to_le_bytes()[0]).collect()
    }

    /// The ends of a range: either may be missing, and they are in order.
    fn range(&mut self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let [from, until] = [(); 2].map(|()| (self.chance.below(4) > 0).then(|| self.key()));
        match (from, until) {
            (Some(from), Some(until)) if from > until => (Some(until), Some(from)),
            ends => ends,
        }
    }
}

fn table(which: usize) -> Table<[u8], [u8]> {
    Table::new(TABLES[which])
}

pub(crate) fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[expect(clippy::needless_pass_by_value, reason = "its callers read better so")]
pub(crate) fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}

fn between<'a>(
    rows: &'a Rows,
    from: Option<&'a [u8]>,
    until: Option<&'a [u8]>,
) -> impl DoubleEndedIterator<Item = (&'a Arc<[u8]>, &'a Arc<[u8]>)> {
    // A map refuses a range that is empty at both its ends.
    let ends = (from.map_or(Bound::Unbounded, Bound::Included), until.map_or(Bound::Unbounded, Bound::Excluded));
    let is_empty = from.is_some() && from == until;
    (!is_empty).then(|| rows.range::<[u8], _>(ends)).into_iter().flatten()
}

/// Whether the tables hold what they should, all of it and nothing else.
fn compare(snapshot: &Snapshot<'_>, model: &Model) -> Outcome {
    let named = |which: &usize| model[*which].is_some();
    let mut names: Vec<&str> = (0..TABLES.len()).filter(named).map(|which| TABLES[which]).collect();
    names.sort_unstable();
    if !snapshot.tables().eq(names.iter().copied()) {
        return Err(format!("expected the tables {names:?}, found {:?}", snapshot.tables().collect::<Vec<_>>()));
    }
    model.iter().enumerate().try_for_each(|(which, rows)| match rows {
        Some(rows) => compare_table(snapshot, which, rows).map_err(|what| format!("table {}: {what}", TABLES[which])),
        None => Ok(()),
    })
}

fn compare_table(snapshot: &Snapshot<'_>, which: usize, rows: &Rows) -> Outcome {
    same("rows", snapshot.len(&table(which)).map_err(words)?, rows.len() as u64)?;
    let mut found = snapshot.scan(&table(which)).map_err(words)?;
    for (key, value) in rows {
        let row = Some((&**key, Cow::Borrowed(&**value)));
        same("a row", &found.next().map_err(words)?, &row)?;
    }
    same("a row behind the last", found.next().map_err(words)?, None)
}
