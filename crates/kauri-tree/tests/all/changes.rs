//! Changes against maps: what a commit answers is what comparing everything that was observed would answer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::atomic::Ordering;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Beside, Change, Durability, Error, Numbered, Options, Outcome, Read, SEQUENCES, Store, Table, Write};

use crate::cursors::Where;
use crate::model::{Bytes, Model, Models, Odd, World};
use crate::random::Random;
use crate::watched::{WatchedDisk, watched};

/// Where a range begins and ends.
type Ends = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A change that is being made, and what it should do.
struct Pending<'a> {
    change: Change<'a>,
    base: Models,
    keys: BTreeSet<(usize, Vec<u8>)>,
    ranges: Vec<(usize, Ends)>,
    staged: BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>,
}

fn is_in<K: Bytes + ?Sized>((from, until): &Ends, key: &[u8]) -> bool {
    let after = match from {
        Bound::Unbounded => true,
        Bound::Included(from) => K::compare(from, key).is_le(),
        Bound::Excluded(from) => K::compare(from, key).is_lt(),
    };
    after
        && match until {
            Bound::Unbounded => true,
            Bound::Included(until) => K::compare(key, until).is_le(),
            Bound::Excluded(until) => K::compare(key, until).is_lt(),
        }
}

/// What a move looked at; from a gap, also at the key where that is.
fn looked(before: &Where, is_gap: bool, after: &Where, forward: bool) -> Option<Ends> {
    let far = match after {
        Where::At(key) => Bound::Included(key.clone()),
        Where::Start | Where::End => Bound::Unbounded,
    };
    let near = match (before, forward) {
        (Where::Start, false) | (Where::End, true) => return None,
        (Where::Start, true) | (Where::End, false) => Bound::Unbounded,
        (Where::At(key), true) if is_gap => Bound::Included(key.clone()),
        (Where::At(key), _) => Bound::Excluded(key.clone()),
    };
    Some(if forward { (near, far) } else { (far, near) })
}

impl<'a> Pending<'a> {
    fn new(store: &'a Store, base: Models) -> Self {
        let change = Change::new(store.snapshot());
        Self { change, base, keys: BTreeSet::new(), ranges: Vec::new(), staged: BTreeMap::new() }
    }

    fn step<K: Bytes + ?Sized>(&mut self, world: &mut World<K>) {
        let which = world.random.below(3);
        let key = world.key();
        match world.random.below(13) {
            0..3 => self.read(world, which, key),
            3 => self.wander(world, which),
            4 => self.observe_range(world, which, key),
            12 => self.wander_back(world, which),
            5 => self.scan(world, which, key),
            6..10 => {
                let value = world.value();
                self.change.put(&world.tables[which], &key, &value).unwrap();
                self.staged.insert((which, key), Some(value));
            }
            10 => {
                self.change.erase(&world.tables[which], &key).unwrap();
                self.staged.insert((which, key), None);
            }
            _ => self.read_and_write(world, which, key),
        }
    }

    fn read<K: Bytes + ?Sized>(&mut self, world: &mut World<K>, which: usize, key: Vec<u8>) {
        let table = &world.tables[which];
        let staged = self.staged.get(&(which, key.clone()));
        let expected = staged.map_or_else(|| self.base[which].get(&key), Option::as_ref);
        if world.random.below(3) == 0 {
            assert_eq!(self.change.contains(table, &key).unwrap(), expected.is_some());
        } else {
            assert_eq!(self.change.get(table, &key).unwrap().as_deref(), expected.map(Vec::as_slice));
        }
        if staged.is_none() {
            self.keys.insert((which, key));
        }
    }

    /// Inserts or removes a row, which tells what was there.
    fn read_and_write<K: Bytes + ?Sized>(&mut self, world: &mut World<K>, which: usize, key: Vec<u8>) {
        let staged = self.staged.get(&(which, key.clone()));
        let found = staged.map_or_else(|| self.base[which].contains_key(&key), Option::is_some);
        if staged.is_none() {
            self.keys.insert((which, key.clone()));
        }
        let value = world.value();
        let table = &world.tables[which];
        if world.random.below(2) == 0 {
            assert_eq!(self.change.insert(table, &key, &value).unwrap(), !found);
            if !found {
                self.staged.insert((which, key), Some(value));
            }
        } else {
            assert_eq!(self.change.remove(table, &key).unwrap(), found);
            if found {
                self.staged.insert((which, key), None);
            }
        }
    }

    fn observe_range<K: Bytes + ?Sized>(&mut self, world: &mut World<K>, which: usize, key: Vec<u8>) {
        let other = world.key();
        let mut bound = |key: Vec<u8>| match world.random.below(8) {
            0 => Bound::Unbounded,
            1..4 => Bound::Excluded(key),
            _ => Bound::Included(key),
        };
        let (from, until) = (bound(key), bound(other));
        let range = (from.as_ref().map(Vec::as_slice), until.as_ref().map(Vec::as_slice));
        self.change.observe_range(&world.tables[which], range).unwrap();
        self.ranges.push((which, (from, until)));
    }

    /// Some rows from either end of a range, which is observed as far as that went.
    fn scan<K: Bytes + ?Sized>(&mut self, world: &mut World<K>, which: usize, key: Vec<u8>) {
        let (from, until) = (world.random.below(4) > 0, world.random.below(4) > 0);
        let (from, until) = (from.then_some(key), until.then(|| world.key()));
        let ends = (
            from.as_ref().map_or(Bound::Unbounded, |from| Bound::Included(from.clone())),
            until.as_ref().map_or(Bound::Unbounded, |until| Bound::Excluded(until.clone())),
        );
        let mut expected: VecDeque<_> =
            self.seen(which).into_iter().filter(|(key, _)| is_in::<K>(&ends, key)).collect();
        expected.make_contiguous().sort_by(|left, right| K::compare(&left.0, &right.0));

        let mut rows = self.change.scan(&world.tables[which]).unwrap();
        rows = if let Some(from) = &from { rows.from(from) } else { rows };
        rows = if let Some(until) = &until { rows.until(until) } else { rows };
        let (steps, fronts) = (world.random.below(12), world.random.below(4));
        let (mut front, mut back, mut all) = (None, None, false);
        for _ in 0..steps {
            if world.random.below(20) == 0 {
                assert_eq!(rows.count().unwrap(), expected.len() as u64);
                all = true;
            }
            let from_front = world.random.below(3) < fronts;
            let (found, row) = match from_front {
                true => (rows.next().unwrap(), expected.pop_front()),
                false => (rows.previous().unwrap(), expected.pop_back()),
            };
            let found = found.map(|(key, value)| (key.to_vec(), value.into_owned()));
            assert_eq!(found, row);
            match row {
                None => all = true,
                Some((key, _)) if from_front => front = Some(key),
                Some((key, _)) => back = Some(key),
            }
        }
        drop(rows);
        if all {
            self.ranges.push((which, ends));
            return;
        }
        self.ranges.extend(front.map(|key| (which, (ends.0.clone(), Bound::Included(key)))));
        self.ranges.extend(back.map(|key| (which, (Bound::Included(key), ends.1))));
    }

    /// The rows of a table as the change sees them.
    fn seen(&self, which: usize) -> Model {
        let mut model = self.base[which].clone();
        for ((_, key), value) in self.staged.iter().filter(|((table, _), _)| *table == which) {
            match value {
                Some(value) => model.insert(key.clone(), value.clone()),
                None => model.remove(key),
            };
        }
        model
    }

    /// Random moves and changes with a cursor; what it looked at is observed.
    fn wander<K: Bytes + ?Sized>(&mut self, world: &mut World<K>, which: usize) {
        let (table, mut model) = (world.tables[which].clone(), self.seen(which));
        let Self { change, keys, ranges, staged, .. } = self;
        let mut cursor = change.cursor_mut(&table).unwrap();
        let mut at = Where::Start;
        for _ in 0..world.random.below(25) {
            let (key, before) = (world.key(), at.clone());
            let is_gap = at.row(&model).is_none();
            match world.random.below(14) {
                forward @ (0 | 1) => {
                    let (forward, end) = (forward == 0, if forward == 0 { Where::Start } else { Where::End });
                    at = end.clone();
                    at.step::<K>(&model, forward);
                    let row = if forward { cursor.first() } else { cursor.last() }.unwrap();
                    assert_eq!(row.as_ref().map(|(key, value)| (*key, &**value)), at.row(&model));
                    ranges.extend(looked(&end, false, &at, forward).map(|ends| (which, ends)));
                }
                2..5 => {
                    at.step::<K>(&model, true);
                    assert_eq!(cursor.next_key().unwrap(), at.row(&model).map(|(key, _)| key));
                    ranges.extend(looked(&before, is_gap, &at, true).map(|ends| (which, ends)));
                }
                5..7 => {
                    at.step::<K>(&model, false);
                    let row = cursor.previous().unwrap();
                    assert_eq!(row.as_ref().map(|(key, value)| (*key, &**value)), at.row(&model));
                    ranges.extend(looked(&before, is_gap, &at, false).map(|ends| (which, ends)));
                }
                7 | 8 => {
                    at.seek::<K>(&model, &key);
                    cursor.seek(&key).unwrap();
                    ranges.extend(looked(&Where::At(key), true, &at, true).map(|ends| (which, ends)));
                }
                9 => {
                    let found = cursor.seek_exact(&key).unwrap().is_some();
                    assert_eq!(found, model.contains_key(&key));
                    if !staged.contains_key(&(which, key.clone())) {
                        keys.insert((which, key.clone()));
                    }
                    at = Where::At(key);
                }
                10 => {
                    let value = world.value();
                    let row = at.row(&model).map(|(key, _)| key.to_vec());
                    assert_eq!(cursor.put(&value).unwrap(), row.is_some());
                    staged.extend(row.iter().map(|key| ((which, key.clone()), Some(value.clone()))));
                    model.extend(row.map(|key| (key, value)));
                }
                11 => {
                    let value = world.value();
                    cursor.put_at(&key, &value).unwrap();
                    staged.insert((which, key.clone()), Some(value.clone()));
                    model.insert(key.clone(), value);
                    at = Where::At(key);
                }
                _ => {
                    let row = at.row(&model).map(|(key, _)| key.to_vec());
                    assert_eq!(cursor.remove().unwrap(), row.is_some());
                    if let Some(key) = row {
                        model.remove(&key);
                        staged.insert((which, key), None);
                        at.step::<K>(&model, true);
                        ranges.extend(looked(&before, true, &at, true).map(|ends| (which, ends)));
                    }
                }
            }
            let row = cursor.current().unwrap();
            assert_eq!(row.as_ref().map(|(key, value)| (*key, &**value)), at.row(&model), "{cursor:?} and {at:?}");
        }
    }

    /// From one place to another and back, by positions, with a cursor that only reads.
    fn wander_back<K: Bytes + ?Sized>(&mut self, world: &mut World<K>, which: usize) {
        let (table, model) = (world.tables[which].clone(), self.seen(which));
        let (mut at, key) = (Where::Start, world.key());
        let mut cursor = self.change.cursor(&table).unwrap();
        at.seek::<K>(&model, &key);
        cursor.seek(&key).unwrap();
        self.ranges.extend(looked(&Where::At(key), true, &at, true).map(|ends| (which, ends)));
        let (position, place) = (cursor.position(), at.clone());
        at.step::<K>(&model, false);
        cursor.previous_key().unwrap();
        self.ranges.extend(looked(&place, false, &at, false).map(|ends| (which, ends)));
        let snapshot = self.change.base();
        let elsewhere = cursor.renew(snapshot).unwrap();
        let mut cursor = elsewhere.renew(&self.change).unwrap();
        if let Where::At(key) = &at {
            // The place is looked for again.
            self.keys.extend((!self.staged.contains_key(&(which, key.clone()))).then(|| (which, key.clone())));
        }
        assert_eq!(cursor.key().unwrap(), at.row(&model).map(|(key, _)| key));
        assert_eq!(cursor.resume(&position).unwrap(), place.row(&model).is_some());
        if let Where::At(key) = place {
            self.keys.extend((!self.staged.contains_key(&(which, key.clone()))).then_some((which, key)));
        }
    }

    /// The first key that was observed and is not as it was.
    fn conflict<K: Bytes + ?Sized>(&self, world: &World<K>) -> Option<Outcome> {
        let mut places = [0, 1, 2];
        places.sort_by_key(|which| world.tables[*which].name().to_owned());
        places.into_iter().find_map(|which| {
            let (old, new) = (&self.base[which], &world.models[which]);
            let changed = old.keys().chain(new.keys()).filter(|key| old.get(*key) != new.get(*key));
            let observed = changed.filter(|key| self.observes::<K>(which, key));
            let key = observed.min_by(|left, right| K::compare(left, right))?;
            Some(Outcome::Conflict { table: world.tables[which].name().into(), key: key[..].into() })
        })
    }

    fn observes<K: Bytes + ?Sized>(&self, which: usize, key: &[u8]) -> bool {
        self.keys.contains(&(which, key.to_vec()))
            || self.ranges.iter().any(|(table, ends)| *table == which && is_in::<K>(ends, key))
    }

    fn commit<K: Bytes + ?Sized>(self, store: &Store, world: &mut World<K>) -> bool {
        let expected = self.conflict(world).unwrap_or(Outcome::Committed { sequences: Vec::new() });
        let durability = if world.random.below(2) == 0 { Durability::None } else { Durability::Sync };
        assert_eq!(store.commit_with(self.change, durability).unwrap(), expected);
        if expected.is_committed() {
            for ((which, key), value) in self.staged {
                match value {
                    Some(value) => world.models[which].insert(key, value),
                    None => world.models[which].remove(&key),
                };
            }
        }
        expected.is_committed()
    }
}

/// Rewrites pages without changing a row: values as they were, rows that come and go.
fn stir<K: Bytes + ?Sized>(store: &Store, world: &mut World<K>) {
    for _ in 0..1 + world.random.below(3) {
        let which = world.random.below(3);
        let (table, count) = (&world.tables[which], 1 + world.random.below(40));
        let rows: Vec<_> = world.models[which].iter().take(count).collect();
        let mut txn = store.begin();
        for (key, value) in &rows {
            txn.remove(table, key).unwrap();
            txn.put(table, key, value).unwrap();
        }
        txn.commit().unwrap();
        let key = world.key();
        if !world.models[which].contains_key(&key) {
            let table = &world.tables[which];
            let mut txn = store.begin();
            txn.put(table, &key, b"gone soon").unwrap();
            txn.commit().unwrap();
            let mut txn = store.begin();
            txn.remove(table, &key).unwrap();
            txn.commit().unwrap();
        }
    }
}

/// Writes another value of the same length, to the row of a long one if there is any.
fn spoil<K: Bytes + ?Sized>(store: &Store, world: &mut World<K>) {
    let which = world.random.below(3);
    let table = &world.tables[which];
    let Some((key, value)) = world.models[which].iter_mut().max_by_key(|(_, value)| value.len()) else { return };
    let Some(last) = value.last_mut() else { return };
    *last ^= 1;
    let mut txn = store.begin();
    txn.put(table, key, value).unwrap();
    txn.commit().unwrap();
}

/// Drops a table and makes it anew as it was.
fn remake<K: Bytes + ?Sized>(store: &Store, world: &mut World<K>) {
    let which = world.random.below(3);
    let mut txn = store.begin();
    txn.drop_table(world.tables[which].name()).unwrap();
    for (key, value) in &world.models[which] {
        txn.put(&world.tables[which], key, value).unwrap();
    }
    txn.commit().unwrap();
}

fn check<K: Bytes + ?Sized>(store: &Store, page_bytes: usize, spread: usize, rounds: usize, seed: u64) {
    let mut world = World::<K>::new(page_bytes, spread, seed);
    let mut open: Vec<Pending<'_>> = Vec::new();
    let mut outcomes = [0, 0];
    for _ in 0..rounds {
        match world.random.below(60) {
            0 => world.transaction(store),
            1 => stir(store, &mut world),
            2 if world.random.below(8) == 0 => remake(store, &mut world),
            3 => spoil(store, &mut world),
            4..8 if !open.is_empty() => {
                let pending = open.swap_remove(world.random.below(open.len()));
                outcomes[usize::from(pending.commit(store, &mut world))] += 1;
                world.compare(&store.snapshot(), &world.models);
            }
            8..14 if open.len() < 6 => open.push(Pending::new(store, world.models.clone())),
            _ if !open.is_empty() => {
                let which = world.random.below(open.len());
                open[which].step(&mut world);
            }
            _ => {}
        }
    }
    drop(open);
    store.verify().unwrap();
    assert!(outcomes.iter().all(|count| *count > rounds / 200), "both outcomes, often: {outcomes:?}, seed {seed}");
}

#[test]
fn commits_answer_what_comparing_everything_answers_on_tiny_pages() {
    for seed in 0..10 {
        let store = Options::new().page_bytes(256).in_memory().unwrap();
        check::<[u8]>(&store, 256, 20 + 300 * (seed as usize % 3), 2_000, seed);
    }
}

#[test]
fn commits_answer_what_comparing_everything_answers_on_larger_pages() {
    for (page_bytes, seed) in [(512, 20), (1024, 21), (4096, 22), (65536, 23)] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        check::<[u8]>(&store, page_bytes, 1_000, 2_000, seed);
    }
}

#[test]
fn commits_answer_what_comparing_everything_answers_in_another_order() {
    for seed in 30..34 {
        let store = Options::new().page_bytes(256).in_memory().unwrap();
        check::<Odd>(&store, 256, 300, 2_000, seed);
    }
}

#[test]
fn commits_answer_what_comparing_everything_answers_in_a_file() {
    for seed in 40..43 {
        let disk = MemoryDisk::new();
        let options = Options::new().page_bytes(512).log_bytes(1 << 15);
        let store = options.open(&disk, "store").unwrap();
        check::<[u8]>(&store, 512, 400, 2_000, seed);
    }
}

const LOG: Table<(u64, u64), u64> = Table::new("log");

/// Appends, with rows put and removed by hand between, and says which sequences should come.
fn check_sequences(open: impl Fn() -> Store, seed: u64) {
    let mut random = Random(seed);
    let (mut rows, mut used) = (BTreeMap::<(u64, u64), u64>::new(), BTreeMap::<u64, u64>::new());
    let mut store = open();
    for round in 0..400 {
        match random.below(10) {
            0 => {
                let row = (random.next() % 3, random.next() % 40);
                let mut txn = store.begin();
                txn.put(&LOG, row, round).unwrap();
                txn.commit().unwrap();
                rows.insert(row, round);
            }
            1 => {
                let mut txn = store.begin();
                for row in rows.keys().rev().take(random.below(8)) {
                    txn.remove(&LOG, *row).unwrap();
                }
                txn.commit().unwrap();
                rows =
                    store.snapshot().scan(&LOG).unwrap().map(|key, value| (key, value)).map(Result::unwrap).collect();
            }
            2 if random.below(10) == 0 => {
                let mut txn = store.begin();
                txn.drop_table(LOG.name()).unwrap();
                txn.commit().unwrap();
                rows.clear();
            }
            3 if random.below(10) == 0 => {
                drop(store);
                store = open();
            }
            _ => {
                let mut change = Change::new(store.snapshot());
                let prefixes: Vec<u64> = (0..1 + random.below(3)).map(|_| random.next() % 3).collect();
                let mut expected = Vec::new();
                for prefix in prefixes {
                    change.append(&LOG, &prefix.to_be_bytes(), round).unwrap();
                    let mut next = used.get(&prefix).map_or(1, |used| used + 1);
                    let last = rows.range((prefix, 0)..=(prefix, u64::MAX)).next_back().map_or(0, |(key, _)| key.1);
                    if !used.contains_key(&prefix) || rows.contains_key(&(prefix, next)) {
                        next = next.max(last + 1);
                    }
                    used.insert(prefix, next);
                    assert_eq!(rows.insert((prefix, next), round), None, "a row is not replaced");
                    expected.push(next);
                }
                assert_eq!(store.commit(change).unwrap(), Outcome::Committed { sequences: expected });
            }
        }
    }
    let found: BTreeMap<_, _> =
        store.snapshot().scan(&LOG).unwrap().map(|key, value| (key, value)).map(Result::unwrap).collect();
    assert_eq!(found, rows);
    for (prefix, used) in used {
        assert_eq!(store.snapshot().get(&SEQUENCES, ("log", &prefix.to_be_bytes())).unwrap(), Some(used));
    }
}

#[test]
fn sequences_are_never_used_twice_and_replace_no_row() {
    for seed in 0..20 {
        let disk = MemoryDisk::new();
        check_sequences(|| Options::new().page_bytes(256).log_bytes(1 << 14).open(&disk, "store").unwrap(), seed);
    }
}

#[test]
fn last_sequence_is_an_error_of_its_change_alone() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put(&LOG, (7, u64::MAX), 0).unwrap();
    txn.commit().unwrap();
    let mut change = Change::new(store.snapshot());
    change.put(&LOG, (1, 1), 1).unwrap();
    change.append(&LOG, &7_u64.to_be_bytes(), 1).unwrap();
    assert!(matches!(store.commit(change), Err(Error::LastSequence { .. })));
    assert_eq!(store.snapshot().len(&LOG).unwrap(), 1, "nothing of it was written");
    store.verify().unwrap();
}

const NUMBERS: Table<u64, u64> = Table::new("numbers");

/// A store of many rows of which only what is used is in memory.
fn many_rows(disk: &WatchedDisk) -> Store {
    let options = Options::new().page_bytes(512);
    let store = options.open(disk, "store").unwrap();
    let mut txn = store.begin();
    for number in 0..50_000 {
        txn.put(&NUMBERS, number, number).unwrap();
    }
    txn.commit().unwrap();
    drop(store);
    options.open(disk, "store").unwrap()
}

#[test]
fn rows_in_pages_that_are_shared_are_not_looked_at() {
    let (disk, watch) = watched();
    let store = many_rows(&disk);
    let reads = || watch.reads.load(Ordering::Relaxed);
    let touch = |number: u64| {
        let mut txn = store.begin();
        txn.put(&NUMBERS, number, number).unwrap();
        txn.commit().unwrap();
    };
    // Pages come into memory when they are looked at, and a tree of 50,000 rows in pages of 512 bytes has some thousands.
    touch(0);
    let change = Change::new(store.snapshot());
    change.observe_range(&NUMBERS, ..).unwrap();
    let before = reads();
    assert!(store.commit(change).unwrap().is_committed());
    assert_eq!(reads(), before, "nothing was written: nothing is looked at");

    let change = Change::new(store.snapshot());
    change.observe_range(&NUMBERS, ..).unwrap();
    for number in [7_u64, 20_000, 20_001, 49_999] {
        touch(number);
    }
    let before = reads();
    assert!(store.commit(change).unwrap().is_committed(), "values are as they were");
    assert_eq!(reads(), before, "the pages on the way to what was written are in memory, and no others are looked at");
}

#[test]
fn pages_of_the_snapshot_that_left_the_tree_are_compared_by_their_rows() {
    let (disk, _) = watched();
    let store = many_rows(&disk);
    let change = Change::new(store.snapshot());
    change.observe_range(&NUMBERS, 100..=200).unwrap();
    change.observe(&NUMBERS, 10_000).unwrap();
    // The table is dropped, made anew, and has the same rows in other pages, but for one that was not observed.
    let mut txn = store.begin();
    txn.drop_table(NUMBERS.name()).unwrap();
    for number in 0..50_000 {
        txn.put(&NUMBERS, number, if number == 201 { 0 } else { number }).unwrap();
    }
    txn.commit().unwrap();
    assert!(store.commit(change).unwrap().is_committed());
}

#[test]
fn change_that_the_disk_fails_is_not_acknowledged() {
    let (disk, watch) = watched();
    let store = many_rows(&disk);
    let put = |number: u64| {
        let mut change = Change::new(store.snapshot());
        change.get(&NUMBERS, 1).unwrap();
        change.put(&NUMBERS, number, 0).unwrap();
        store.commit(change)
    };
    assert!(put(1).unwrap().is_committed());
    watch.fails.store(true, Ordering::Relaxed);
    assert!(matches!(put(2), Err(Error::Io(_))));
    watch.fails.store(false, Ordering::Relaxed);
    assert!(matches!(put(3), Err(Error::Broken)));
    let snapshot = store.snapshot();
    let values = [1, 2, 3].map(|number| snapshot.get(&NUMBERS, number).unwrap());
    assert_eq!(values, [Some(0), Some(2), Some(3)]);
}

#[test]
fn broken_store_tells_nobody_of_conflicts() {
    let (disk, watch) = watched();
    let store = many_rows(&disk);
    let mut txn = store.begin();
    txn.put(&NUMBERS, 1, 1).unwrap();
    txn.commit().unwrap();
    watch.fails.store(true, Ordering::Relaxed);
    assert!(store.checkpoint().is_err());
    watch.fails.store(false, Ordering::Relaxed);
    // What the first of them wrote is never seen. Whoever is told that it conflicts would look again for ever.
    for _ in 0..3 {
        let mut change = Change::new(store.snapshot());
        let number = change.get(&NUMBERS, 1).unwrap().unwrap();
        change.put(&NUMBERS, 1, number + 1).unwrap();
        let told = store.commit(change);
        assert!(matches!(told, Err(Error::Io(_) | Error::Broken)), "{told:?}");
    }
}

#[test]
fn changes_are_refused_for_what_is_wrong_with_them() {
    let (store, other) = (Options::new().page_bytes(256).in_memory().unwrap(), Store::in_memory().unwrap());
    assert!(matches!(store.commit(Change::new(other.snapshot())), Err(Error::OtherStore)));

    let bytes = Table::<[u8], [u8]>::new("bytes");
    let mut change = Change::new(store.snapshot());
    assert!(matches!(change.put(&bytes, &[0; 57], b""), Err(Error::KeyTooLong { most: 56, found: 57 })));
    assert!(matches!(change.append(&bytes, &[1; 50], b""), Err(Error::KeyTooLong { most: 56, found: 58 })));
    assert!(matches!(change.append(&bytes, &[0; 30], b""), Err(Error::KeyTooLong { .. })), "a key of the sequences");
    assert!(matches!(change.append(&LOG, b"seven", 7), Err(Error::Undecodable(_))), "no key of the table");

    change.put(&bytes, b"key", b"value").unwrap();
    let as_numbers = Table::<u64, u64>::new("bytes");
    assert!(matches!(change.get(&as_numbers, 1), Err(Error::OtherTypes { .. })));
    assert!(matches!(change.put(&as_numbers, 1, 1), Err(Error::OtherTypes { .. })));
    change.get(&NUMBERS, 1).unwrap();
    assert!(matches!(change.observe(&Table::<str, u64>::new("numbers"), "one"), Err(Error::OtherTypes { .. })));

    // What is wrong only by the time of the commit.
    let mut txn = store.begin();
    txn.put(&as_numbers, 1, 1).unwrap();
    txn.commit().unwrap();
    assert!(matches!(store.commit(change), Err(Error::OtherTypes { .. })));
    assert_eq!(store.snapshot().len(&as_numbers).unwrap(), 1);
}

#[test]
fn appends_go_on_in_another_order_than_that_of_bytes() {
    let table = Table::<Odd, [u8]>::new("odd");
    let store = Store::in_memory().unwrap();
    for round in 1..=600 {
        let mut change = Change::new(store.snapshot());
        change.append(&table, b"prefix", b"").unwrap();
        assert_eq!(store.commit(change).unwrap(), Outcome::Committed { sequences: vec![round] });
    }
    // Without what is remembered, no row is replaced all the same.
    let mut txn = store.begin();
    txn.drop_table(SEQUENCES.name()).unwrap();
    txn.commit().unwrap();
    let mut change = Change::new(store.snapshot());
    change.append(&table, b"prefix", b"").unwrap();
    assert!(store.commit(change).unwrap().is_committed());
    assert_eq!(store.snapshot().len(&table).unwrap(), 601);
}

static ROWS: Table<[u8], [u8]> = Table::new("rows");
static BESIDE: Table<[u8], [u8]> = Table::new("beside");
static COUNTERS: Table<[u8], [u8]> = Table::new("counters");

fn numbered<'r>(prefix: &'r [u8], counter: &'r [u8], also: &'r [Beside<'r>]) -> Numbered<'r> {
    Numbered { table: &ROWS, prefix, value: counter, counter: (&COUNTERS, counter), also }
}

#[test]
fn counters_number_rows_of_many_prefixes_and_go_on_after_a_restart() {
    let disk = MemoryDisk::new();
    let mut random = Random(7);
    let (mut used, mut rows, mut beside) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for _ in 0..20 {
        let store = Options::new().page_bytes(512).open(&disk, "store").unwrap();
        for _ in 0..20 {
            let mut change = Change::new(store.snapshot());
            let mut expected = Vec::new();
            for _ in 0..random.below(6) {
                let (prefix, counter) = (vec![b'a'; random.below(3)], vec![b'c'; 1 + random.below(2)]);
                let also = [(BESIDE.clone(), &b"too"[..])];
                let also = &also[..random.below(2)];
                change.append_numbered(numbered(&prefix, &counter, also)).unwrap();
                let number = used.entry(counter.clone()).or_insert(0_u64);
                *number += 1;
                expected.push(*number);
                let key = [&prefix[..], &number.to_be_bytes()].concat();
                beside.extend(also.iter().map(|_| (key.clone(), b"too".to_vec())));
                rows.insert(key, counter);
            }
            assert_eq!(store.commit(change).unwrap(), Outcome::Committed { sequences: expected });
        }
        let snapshot = store.snapshot();
        for (table, model) in [(&ROWS, &rows), (&BESIDE, &beside)] {
            let found: Result<BTreeMap<_, _>, _> =
                snapshot.scan(table).unwrap().map(|key, value| (key.to_vec(), value.to_vec())).collect();
            assert_eq!(&found.unwrap(), model);
        }
        for (counter, number) in &used {
            assert_eq!(snapshot.get(&COUNTERS, counter).unwrap().unwrap()[..], number.to_le_bytes());
        }
    }
}

#[test]
fn counter_that_is_none_or_at_its_end_is_an_error_of_its_change_alone() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put(&COUNTERS, b"last", &u64::MAX.to_le_bytes()).unwrap();
    txn.put(&COUNTERS, b"damaged", b"seven").unwrap();
    txn.put(&Table::<str, u64>::new("typed"), "a", 1).unwrap();
    txn.commit().unwrap();
    let commit = |row: Numbered<'_>| {
        let mut change = Change::new(store.snapshot());
        change.put(&BESIDE, b"never", b"").unwrap();
        change.append_numbered(row).unwrap();
        store.commit(change)
    };
    let typed = Table::<[u8], [u8]>::new("typed");
    assert!(matches!(commit(numbered(b"", b"last", &[])), Err(Error::LastSequence { .. })));
    assert!(matches!(commit(numbered(b"", b"damaged", &[])), Err(Error::Undecodable(_))));
    assert!(matches!(commit(numbered(b"", b"fine", &[(typed.clone(), b"")])), Err(Error::OtherTypes { .. })));
    let row = Numbered { counter: (&typed, b"fine"), ..numbered(b"", b"fine", &[]) };
    assert!(matches!(commit(row), Err(Error::OtherTypes { .. })));
    let mut change = Change::new(store.snapshot());
    assert!(matches!(change.append_numbered(numbered(&[0; 5000], b"fine", &[])), Err(Error::KeyTooLong { .. })));
    assert!(matches!(change.append_numbered(numbered(b"", &[0; 5000], &[])), Err(Error::KeyTooLong { .. })));
    drop(change);
    assert_eq!((store.snapshot().len(&ROWS).unwrap(), store.snapshot().len(&BESIDE).unwrap()), (0, 0));
}
