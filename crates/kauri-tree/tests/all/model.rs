//! Stores against `BTreeMap`s: random changes, nested and not, with every page accounted for.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use kauri_tree::{Error, Options, Read, Snapshot, Store, Table, Write, WriteTxn};
use kauri_wire::{Key, WireError};

use crate::random::Random;

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;
pub(crate) type Models = [Model; 3];

/// Three tables, and what should be in them.
pub(crate) struct World<K: ?Sized> {
    pub(crate) tables: [Table<K, [u8]>; 3],
    pub(crate) models: Models,
    pub(crate) random: Random,
    spread: usize,
    page_bytes: usize,
}

/// Keys that are any bytes, in some order.
pub(crate) trait Bytes: for<'a> Key<Ref<'a> = &'a [u8], View<'a> = &'a [u8]> {}
impl<K: for<'a> Key<Ref<'a> = &'a [u8], View<'a> = &'a [u8]> + ?Sized> Bytes for K {}

impl<K: Bytes + ?Sized> World<K> {
    pub(crate) fn new(page_bytes: usize, spread: usize, seed: u64) -> Self {
        let tables = ["one", "two", "three"].map(Table::new);
        Self { tables, models: Models::default(), random: Random(seed), spread, page_bytes }
    }

    /// A key that may be in a table.
    pub(crate) fn key(&mut self) -> Vec<u8> {
        self.random.key(self.page_bytes / 4 - 8, self.spread)
    }

    /// A value, mostly short.
    pub(crate) fn value(&mut self) -> Vec<u8> {
        self.random.value(self.page_bytes)
    }

    fn change(&mut self, txn: &mut WriteTxn<'_>) {
        let which = self.random.below(3);
        let (table, model) = (&self.tables[which], &mut self.models[which]);
        let key = self.random.key(self.page_bytes / 4 - 8, self.spread);
        match self.random.below(20) {
            0..10 => {
                let value = self.random.value(self.page_bytes);
                txn.put(table, &key, &value).unwrap();
                model.insert(key, value);
            }
            10..12 => {
                let value = self.random.value(self.page_bytes);
                let inserted = txn.insert(table, &key, &value).unwrap();
                assert_eq!(inserted, !model.contains_key(&key));
                model.entry(key).or_insert(value);
            }
            12..19 => assert_eq!(txn.remove(table, &key).unwrap(), model.remove(&key).is_some()),
            _ => {
                let found = txn.get(table, &key).unwrap();
                assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice));
            }
        }
    }

    /// Loads rows in order, into a table that is empty or not; sometimes they are not in order.
    fn load(&mut self, txn: &mut WriteTxn<'_>) {
        let which = self.random.below(3);
        let (table, model) = (&self.tables[which], &mut self.models[which]);
        if self.random.below(2) == 0 {
            txn.drop_table(table.name()).unwrap();
            model.clear();
        }
        let count = self.random.below(200);
        let mut rows: Vec<_> = (0..count)
            .map(|_| (self.random.key(self.page_bytes / 4 - 8, self.spread), self.random.value(self.page_bytes)))
            .collect();
        rows.sort_by(|left, right| K::compare(&left.0, &right.0));
        rows.dedup_by(|left, right| left.0 == right.0);
        let spoilt = (rows.len() > 1 && self.random.below(4) == 0).then(|| 1 + self.random.below(rows.len() - 1));
        if let Some(row) = spoilt {
            let other = if self.random.below(2) == 0 { rows[row - 1].0.clone() } else { rows[0].0.clone() };
            rows[row].0 = other;
        }
        let loaded = txn.load_sorted(table, rows.iter().map(|(key, value)| (&key[..], &value[..])));
        match (loaded, spoilt) {
            (Err(Error::Row { row, error }), Some(spoilt)) => {
                assert!(row == spoilt as u64 && matches!(*error, Error::Unsorted), "row {row}: {error}");
            }
            (loaded, None) => {
                assert_eq!(loaded.unwrap(), rows.len() as u64);
                model.extend(rows);
            }
            (loaded, spoilt) => panic!("{loaded:?} although row {spoilt:?} is out of order"),
        }
    }

    /// Removes a range of rows, sometimes of all of them.
    fn remove_range(&mut self, txn: &mut WriteTxn<'_>) {
        let which = self.random.below(3);
        let (table, model) = (&self.tables[which], &mut self.models[which]);
        let mut bound = || {
            let key = self.random.key(self.page_bytes / 4 - 8, self.spread);
            [Bound::Included(key.clone()), Bound::Excluded(key), Bound::Unbounded][self.random.below(5).min(2)].clone()
        };
        let (from, until) = (bound(), bound());
        let inside = |key: &[u8]| {
            let is_from = match &from {
                Bound::Included(from) => K::compare(from, key).is_le(),
                Bound::Excluded(from) => K::compare(from, key).is_lt(),
                Bound::Unbounded => true,
            };
            let is_until = match &until {
                Bound::Included(until) => K::compare(key, until).is_le(),
                Bound::Excluded(until) => K::compare(key, until).is_lt(),
                Bound::Unbounded => true,
            };
            is_from && is_until
        };
        let before = model.len();
        model.retain(|key, _| !inside(key));
        let range = (from.as_ref().map(Vec::as_slice), until.as_ref().map(Vec::as_slice));
        assert_eq!(txn.remove_range(table, range).unwrap(), (before - model.len()) as u64, "{range:?}");
    }

    /// Random changes in nested transactions, some of which end badly.
    fn changes(&mut self, txn: &mut WriteTxn<'_>, depth: usize) {
        for _ in 0..self.random.below(30) {
            self.change(txn);
        }
        if self.random.below(12) == 0 {
            self.load(txn);
        }
        if self.random.below(30) == 0 {
            self.remove_range(txn);
        }
        if self.random.below(200) == 0 {
            let which = self.random.below(3);
            let dropped = txn.drop_table(self.tables[which].name()).unwrap();
            assert!(dropped || self.models[which].is_empty());
            self.models[which].clear();
        }
        if depth > 0 && self.random.below(2) == 0 {
            let before = self.models.clone();
            let mut child = txn.nest();
            self.changes(&mut child, depth - 1);
            if self.random.below(3) == 0 {
                drop(child);
                self.models = before;
            } else {
                child.commit().unwrap();
            }
            self.changes(txn, depth - 1);
        }
    }

    pub(crate) fn transaction(&mut self, store: &Store) {
        let before = self.models.clone();
        let mut txn = store.begin();
        self.changes(&mut txn, 3);
        self.compare(&txn, &self.models);
        if self.random.below(10) == 0 {
            drop(txn);
            self.models = before;
        } else {
            txn.commit().unwrap();
        }
        let rows: usize = self.models.iter().map(Model::len).sum();
        assert_eq!(store.verify().unwrap().rows, rows as u64);
    }

    pub(crate) fn compare(&self, from: &impl Read, models: &Models) {
        for (table, model) in self.tables.iter().zip(models) {
            compare(from, table, model);
        }
    }
}

fn compare<K: Bytes + ?Sized>(from: &impl Read, table: &Table<K, [u8]>, model: &Model) {
    let mut expected: Vec<(&[u8], &[u8])> = model.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    expected.sort_by(|left, right| K::compare(left.0, right.0));
    assert_eq!(from.len(table).unwrap(), expected.len() as u64);
    let mut rows = from.scan(table).unwrap();
    for &row in &expected {
        let found = rows.next().unwrap();
        assert_eq!(found.as_ref().map(|(key, value)| (*key, &**value)), Some(row));
    }
    assert!(rows.next().unwrap().is_none());
    let mut rows = from.scan(table).unwrap();
    for &row in expected.iter().rev() {
        let found = rows.previous().unwrap();
        assert_eq!(found.as_ref().map(|(key, value)| (*key, &**value)), Some(row));
    }
    let mut seen = expected.iter();
    let see = |key: &[u8], value: Cow<'_, [u8]>| assert_eq!(Some(&(key, &*value)), seen.next());
    from.scan(table).unwrap().for_each(see).unwrap();
    assert_eq!(seen.next(), None);
    for &(key, value) in &expected {
        assert_eq!(from.get(table, key).unwrap().as_deref(), Some(value));
    }
}

fn check<K: Bytes + ?Sized>(page_bytes: usize, spread: usize, transactions: usize, seed: u64) {
    let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
    let mut world = World::<K>::new(page_bytes, spread, seed);
    for _ in 0..transactions {
        world.transaction(&store);
        world.compare(&store.snapshot(), &world.models);
    }
}

#[test]
fn stores_agree_with_maps_on_tiny_pages() {
    for seed in 0..12 {
        check::<[u8]>(256, 20 + 300 * (seed as usize % 3), 40, seed);
    }
}

#[test]
fn stores_agree_with_maps_on_larger_pages() {
    check::<[u8]>(512, 500, 50, 100);
    check::<[u8]>(1024, 2_000, 50, 101);
    check::<[u8]>(4096, 5_000, 60, 102);
    check::<[u8]>(65536, 5_000, 30, 103);
}

/// Longer keys first, then by their bytes backwards: nothing like the order of bytes.
pub(crate) struct Odd;

impl Key for Odd {
    type Ref<'a> = &'a [u8];
    type View<'a> = &'a [u8];
    const BYTEWISE: bool = false;

    fn name() -> Cow<'static, str> {
        "odd".into()
    }

    fn encode_into(key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn decode(bytes: &[u8]) -> Result<&[u8], WireError> {
        Ok(bytes)
    }

    fn compare(left: &[u8], right: &[u8]) -> std::cmp::Ordering {
        right.len().cmp(&left.len()).then_with(|| right.iter().rev().cmp(left.iter().rev()))
    }
}

#[test]
fn stores_in_another_order_agree_with_maps() {
    for seed in 0..4 {
        check::<Odd>(256, 400, 40, seed);
    }
    check::<Odd>(4096, 3_000, 40, 7);
}

#[test]
fn held_snapshots_keep_their_rows_and_let_the_rest_go() {
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let mut world = World::<[u8]>::new(256, 300, 9);
    let mut held: Vec<(Snapshot<'_>, Models)> = Vec::new();
    for round in 0..150 {
        world.transaction(&store);
        if round % 15 == 3 {
            held.push((store.snapshot(), world.models.clone()));
        }
        if held.len() > 4 {
            held.remove(round % held.len());
        }
        for (snapshot, models) in &held {
            world.compare(snapshot, models);
        }
    }
    assert!(store.stat().waiting_pages > 0, "snapshots keep pages");
    held.clear();
    drop(store.begin());
    assert_eq!(store.stat().waiting_pages, 0, "nobody holds anything");
}

#[test]
fn ranges_agree_with_maps() {
    let store = Options::new().page_bytes(512).in_memory().unwrap();
    let table = Table::<[u8], [u8]>::new("rows");
    let (mut model, mut random) = (Model::new(), Random(77));
    let mut txn = store.begin();
    for _ in 0..3_000 {
        let (key, value) = (random.key(120, 4_000), random.value(64));
        txn.put(&table, &key, &value).unwrap();
        model.insert(key, value);
    }
    for _ in 0..2_000 {
        let (mut from, mut until) = (random.key(120, 4_000), random.key(120, 4_000));
        if from > until {
            std::mem::swap(&mut from, &mut until);
        }
        let expected: Vec<_> = model.range(from.clone()..until.clone()).map(|(key, _)| key.clone()).collect();
        let mut rows = txn.scan(&table).unwrap().from(&from).until(&until);
        assert_eq!(rows.count().unwrap(), expected.len() as u64);
        let found: Result<Vec<_>, _> = rows.map(|key, _| key.to_vec()).collect();
        assert_eq!(found.unwrap(), expected);
    }
}

#[test]
fn ranges_agree_with_maps_from_either_end() {
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let table = Table::<[u8], [u8]>::new("rows");
    let (mut model, mut random) = (Model::new(), Random(78));
    let mut txn = store.begin();
    for _ in 0..500 {
        let (key, value) = (random.key(20, 700), random.value(30));
        txn.put(&table, &key, &value).unwrap();
        model.insert(key, value);
    }
    for _ in 0..5_000 {
        let [from, until] = [(); 2].map(|()| (random.below(4) > 0).then(|| random.key(20, 700)));
        let inside = |key: &[u8]| {
            from.as_deref().is_none_or(|from| from <= key) && until.as_deref().is_none_or(|until| key < until)
        };
        let mut expected: VecDeque<_> = model.iter().filter(|(key, _)| inside(key)).collect();
        let mut rows = txn.scan(&table).unwrap();
        rows = if let Some(from) = &from { rows.from(from) } else { rows };
        rows = if let Some(until) = &until { rows.until(until) } else { rows };
        // Mostly from one end: the other must stop it though nobody went there.
        let front = random.below(5);
        loop {
            if random.below(8) == 0 {
                assert_eq!(rows.count().unwrap(), expected.len() as u64);
            }
            let from_front = random.below(4) < front;
            let (found, row) = match from_front {
                true => (rows.next().unwrap(), expected.pop_front()),
                false => (rows.previous().unwrap(), expected.pop_back()),
            };
            assert_eq!(found, row.map(|(key, value)| (&key[..], (&value[..]).into())), "{from:?} to {until:?}");
            if row.is_none() {
                break;
            }
        }
        assert!(rows.next().unwrap().is_none() && rows.previous().unwrap().is_none());
        assert_eq!(rows.count().unwrap(), 0);
    }
}

#[test]
fn the_ends_of_a_scan_meet() {
    let store = Store::in_memory().unwrap();
    let table = Table::<u32, ()>::new("numbers");
    let mut txn = store.begin();
    for number in 0..1_000 {
        txn.put(&table, number, ()).unwrap();
    }
    let mut random = Random(3);
    for _ in 0..20 {
        let mut rows = txn.scan(&table).unwrap();
        let (mut front, mut back) = (0, 1_000);
        while front < back {
            if random.below(2) == 0 {
                assert_eq!(rows.next().unwrap(), Some((front, ())));
                front += 1;
            } else {
                back -= 1;
                assert_eq!(rows.previous().unwrap(), Some((back, ())));
            }
        }
        assert!(rows.next().unwrap().is_none() && rows.previous().unwrap().is_none());
    }
}

#[test]
fn rows_are_loaded_in_order_or_not_at_all() {
    let table = Table::<[u8], [u8]>::new("rows");
    for page_bytes in [256, 512, 4096, 65536] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let mut random = Random(page_bytes as u64);
        for count in [0, 1, 2, 10, 1_000, 20_000] {
            let rows: Model =
                (0..count).map(|_| (random.key(page_bytes / 4 - 8, 1 << 20), vec![7; random.below(40)])).collect();
            let mut txn = store.begin();
            let sorted = || rows.iter().map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(txn.load_sorted(&table, sorted()).unwrap(), rows.len() as u64);
            compare(&txn, &table, &rows);
            // One that is too long, at the end: everything before it vanishes.
            let long = vec![0xff; page_bytes];
            let error = txn.load_sorted(&table, sorted().chain([(&long[..], &[][..])])).unwrap_err();
            let Error::Row { row, error } = error else { panic!("{error}") };
            assert!(row == rows.len() as u64 && matches!(*error, Error::KeyTooLong { .. }));
            compare(&txn, &table, &rows);
            txn.commit().unwrap();
            assert_eq!(store.verify().unwrap().rows, rows.len() as u64);
            let mut txn = store.begin();
            assert!(txn.drop_table(table.name()).unwrap());
            txn.commit().unwrap();
        }
    }
}

#[test]
fn ranges_are_removed_wherever_their_ends_are() {
    let table = Table::<u32, [u8]>::new("rows");
    for (page_bytes, rows) in [(256, 3_000), (512, 3_000), (4096, 30_000)] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let mut random = Random(page_bytes as u64);
        for round in 0..60 {
            let mut model: BTreeMap<u32, Vec<u8>> =
                (0..rows).map(|row| (row * 2, vec![1; if row % 50 == 0 { 2 * page_bytes } else { 20 }])).collect();
            let mut txn = store.begin();
            txn.load_sorted(&table, model.iter().map(|(key, value)| (*key, &value[..]))).unwrap();
            let mut child = txn.nest();
            for _ in 0..1 + round % 5 {
                let from = u32::try_from(random.below(2 * rows as usize)).unwrap();
                let until = from + u32::try_from(random.below(1 + 2 * rows as usize / (1 + round % 7))).unwrap();
                let before = model.len();
                model.retain(|key, _| !(from..until).contains(key));
                assert_eq!(child.remove_range(&table, from..until).unwrap(), (before - model.len()) as u64);
            }
            child.commit().unwrap();
            txn.commit().unwrap();
            assert_eq!(store.verify().unwrap().rows, model.len() as u64);
            let snapshot = store.snapshot();
            let found: Result<Vec<u32>, _> = snapshot.scan(&table).unwrap().map(|key, _| key).collect();
            assert!(found.unwrap().into_iter().eq(model.into_keys()));
            let mut txn = store.begin();
            txn.remove_range(&table, ..).unwrap();
            assert_eq!(txn.len(&table).unwrap(), 0);
            txn.commit().unwrap();
        }
    }
}

#[test]
fn rows_are_found_by_number_and_ranges_are_divided_evenly() {
    for (page_bytes, count) in [(256, 800), (4096, 5_000)] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let table = Table::<[u8], [u8]>::new("rows");
        let (mut model, mut random) = (Model::new(), Random(79));
        let mut txn = store.begin();
        for _ in 0..count {
            let (key, value) = (random.key(20, 9_000), random.value(30));
            txn.put(&table, &key, &value).unwrap();
            model.insert(key, value);
        }
        for _ in 0..1_000 {
            let [from, until] = [(); 2].map(|()| (random.below(4) > 0).then(|| random.key(20, 9_000)));
            let inside = |key: &[u8]| {
                from.as_deref().is_none_or(|from| from <= key) && until.as_deref().is_none_or(|until| key < until)
            };
            let all: Vec<_> = model.keys().filter(|key| inside(key)).collect();
            let scan = || {
                let mut rows = txn.scan(&table).unwrap();
                rows = if let Some(from) = &from { rows.from(from) } else { rows };
                if let Some(until) = &until { rows.until(until) } else { rows }
            };
            if let Some(from) = &from {
                assert_eq!(txn.rank(&table, from).unwrap(), model.range(..from.clone()).count() as u64);
            }
            // Skipping from the front, while the back comes nearer too.
            let (mut rows, mut expected) = (scan(), VecDeque::from(all.clone()));
            loop {
                let most = if random.below(3) == 0 { 1 + expected.len() } else { 1 + expected.len() / 4 };
                let skipped = random.below(most);
                expected.drain(..skipped.min(expected.len()));
                let found = rows.nth(skipped as u64).unwrap().map(|(key, _)| key.to_vec());
                assert_eq!(found.as_ref(), expected.pop_front());
                assert_eq!(rows.count().unwrap(), expected.len() as u64);
                if random.below(2) == 0 {
                    assert_eq!(rows.previous().unwrap().map(|(key, _)| key), expected.pop_back().map(Vec::as_slice));
                }
                if found.is_none() {
                    break;
                }
            }
            let parts = 1 + random.below(9);
            let scans = scan().split(parts).unwrap();
            assert_eq!(scans.len(), parts.min(all.len()).max(1));
            let mut rest = &all[..];
            for mut part in scans {
                let rows = part.count().unwrap() as usize;
                assert!((all.len() / parts..=all.len().div_ceil(parts)).contains(&rows) || parts > all.len());
                let (here, behind) = rest.split_at(rows);
                let found: Result<Vec<Vec<u8>>, _> = part.map(|key, _| key.to_vec()).collect();
                assert!(found.unwrap().iter().eq(here.iter().copied()));
                rest = behind;
            }
            assert!(rest.is_empty());
        }
    }
}
