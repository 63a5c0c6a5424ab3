//! Pins against copies of maps: taken, read, dropped, through other commits, compactions and reopenings, with every page accounted for.

use std::collections::BTreeMap;

use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{Error, Options, Read, Snapshot, Store, Table, Write};

use crate::diffs::check_pair;
use crate::model::{Bytes, Models, Odd, World};
use crate::random::Random;

const ROWS: Table<u32, [u8]> = Table::new("rows");

fn options(page_bytes: usize) -> Options {
    Options::new().page_bytes(page_bytes).log_bytes(1).keeper(false)
}

/// A store, what is in it, and what was in it when each pin was made.
struct Pinned<K: ?Sized> {
    world: World<K>,
    random: Random,
    pins: BTreeMap<String, (u64, Models)>,
    made: u64,
}

impl<K: Bytes + ?Sized> Pinned<K> {
    fn new(page_bytes: usize, seed: u64) -> Self {
        let world = World::new(page_bytes, 200, seed);
        Self { world, random: Random(!seed), pins: BTreeMap::new(), made: 0 }
    }

    fn pin(&mut self, store: &Store) {
        let name = format!("pin {}", self.random.below(8));
        self.made += 1;
        match store.pin(&name, self.made) {
            Ok(pin) => {
                let rows: usize = self.world.models.iter().map(BTreeMap::len).sum();
                assert_eq!((pin.name.as_str(), pin.when, pin.rows), (name.as_str(), self.made, rows as u64));
                assert!(self.pins.insert(name, (self.made, self.world.models.clone())).is_none());
            }
            Err(Error::PinExists { name: taken }) => assert!(self.pins.contains_key(&name) && *taken == *name),
            Err(error) => panic!("{error}"),
        }
    }

    fn unpin(&mut self, store: &Store) {
        let name = format!("pin {}", self.random.below(8));
        // Somebody may be reading it.
        let reads = self.random.below(2) == 0;
        let held = store.as_of(&name).unwrap().filter(|_| reads);
        let gone = self.pins.remove(&name);
        assert_eq!(store.unpin(&name).unwrap(), gone.is_some());
        if let (Some(snapshot), Some((_, models))) = (held, gone) {
            self.world.transaction(store);
            self.world.compare(&snapshot, &models);
        }
    }

    fn check(&self, store: &Store) {
        let pins: Vec<_> = store.pins().into_iter().map(|pin| (pin.name, pin.when)).collect();
        let expected: Vec<_> = self.pins.iter().map(|(name, (when, _))| (name.clone(), *when)).collect();
        assert_eq!(pins, expected);
        for (name, (_, models)) in &self.pins {
            self.world.compare(&store.as_of(name).unwrap().unwrap(), models);
        }
        self.world.compare(&store.snapshot(), &self.world.models);
        assert_eq!(store.verify().unwrap().pins, self.pins.len());
    }

    fn step(&mut self, store: &Store) {
        match self.random.below(16) {
            0..8 => self.world.transaction(store),
            8..11 => self.pin(store),
            11..13 => self.unpin(store),
            13 => store.checkpoint().unwrap(),
            14 => {
                let done = store.compact().unwrap();
                assert!(done.bytes_after <= done.bytes_before, "{done:?}");
            }
            _ => self.compare_two(store),
        }
        self.check(store);
    }

    /// What differs between a pin and now, in both directions, and as a stream.
    fn compare_two(&self, store: &Store) {
        let Some((name, (_, models))) = self.pins.iter().next() else { return };
        let then = (store.as_of(name).unwrap().unwrap(), models.clone());
        let now = (store.snapshot(), self.world.models.clone());
        check_pair(&self.world, &then, &now);
        check_pair(&self.world, &now, &then);
        let (mut whole, mut changes) = (Vec::new(), Vec::new());
        then.0.checkpoint_to(&mut whole).unwrap();
        store.checkpoint_since(name, &mut changes).unwrap().unwrap();
        let copy = options(256).restore(&MemoryDisk::new(), "copy", &mut &whole[..]).unwrap();
        self.world.compare(&copy.snapshot(), models);
        copy.restore_from(&mut &changes[..]).unwrap();
        self.world.compare(&copy.snapshot(), &self.world.models);
    }

    /// All pins go, in any order, and nothing is left of them.
    fn end(&mut self, store: &Store) {
        while !self.pins.is_empty() {
            self.unpin(store);
            self.check(store);
        }
        self.world.transaction(store);
        assert_eq!(store.verify().unwrap().kept_pages, 0);
    }
}

fn check_in_memory<K: Bytes + ?Sized>(seed: u64) {
    let store = options(256).in_memory().unwrap();
    let mut pinned = Pinned::<K>::new(256, seed);
    (0..40).for_each(|_| pinned.step(&store));
    pinned.end(&store);
}

fn check_in_file<K: Bytes + ?Sized>(options: &Options, page_bytes: usize, seed: u64) {
    let disk = MemoryDisk::new();
    let mut pinned = Pinned::<K>::new(page_bytes, seed);
    for _ in 0..6 {
        let store = options.open(&disk, "store").unwrap();
        pinned.check(&store);
        for _ in 0..pinned.random.below(12) {
            pinned.step(&store);
        }
        if pinned.random.below(2) == 0 {
            // As after a crash: what is in the log is done again.
            let bytes = bytes_of(&disk);
            drop(store);
            put_bytes(&disk, &bytes);
        }
    }
    let store = options.open(&disk, "store").unwrap();
    pinned.end(&store);
    drop(store);
    options.open(&disk, "store").unwrap().verify().unwrap();
}

fn bytes_of(disk: &MemoryDisk) -> Vec<u8> {
    let file = disk.open("store", Open::ReadOnly).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn put_bytes(disk: &MemoryDisk, bytes: &[u8]) {
    let file = disk.open("store", Open::ReadWrite).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_at(0, bytes).unwrap();
}

#[test]
fn pins_show_what_was_there_when_they_were_made() {
    for seed in 0..4 {
        check_in_memory::<[u8]>(seed);
        check_in_file::<[u8]>(&options(256), 256, seed);
    }
    check_in_memory::<Odd>(4);
    check_in_file::<Odd>(&options(512), 512, 5);
    check_in_file::<[u8]>(&options(4096), 4096, 6);
}

#[test]
fn pins_of_a_store_larger_than_memory_do_too() {
    for seed in 0..3 {
        check_in_file::<[u8]>(&options(512).cache_bytes(0), 512, seed);
    }
}

/// Writes rows, in transactions of some.
fn write(store: &Store, rows: std::ops::Range<u32>, with: u8) {
    for first in rows.clone().step_by(200) {
        let mut txn = store.begin();
        for number in first..(first + 200).min(rows.end) {
            txn.put(&ROWS, number, &[with; 60]).unwrap();
        }
        txn.commit().unwrap();
    }
}

#[test]
fn a_pin_costs_what_changed_and_gives_it_back() {
    let disk = MemoryDisk::new();
    let store = options(512).open(&disk, "store").unwrap();
    write(&store, 0..4000, 1);
    store.pin("one", 1).unwrap();
    let none = store.verify().unwrap();
    assert_eq!((none.pins, none.kept_pages), (1, 0), "nothing was changed");
    write(&store, 0..400, 2);
    let some = store.verify().unwrap().kept_pages;
    assert!(some > 20 && some < none.pages / 4, "a tenth was changed: {some} of {}", none.pages);
    // What is written again and again is kept once.
    (0..10).for_each(|with| write(&store, 0..400, with));
    let again = store.verify().unwrap().kept_pages;
    assert!(again < some + some / 2, "{again} and {some}");
    store.unpin("one").unwrap();
    assert_eq!(store.verify().unwrap().kept_pages, 0);
    store.compact().unwrap();
    let stat = store.stat();
    assert!(stat.free_pages * 20 < stat.pages, "{stat:?}");
}

#[test]
fn compacting_beside_a_pin_ends_and_cuts_what_no_pin_sees() {
    let disk = MemoryDisk::new();
    let store = options(512).open(&disk, "store").unwrap();
    write(&store, 0..500, 1);
    store.pin("few", 1).unwrap();
    write(&store, 0..8000, 2);
    let mut txn = store.begin();
    txn.remove_range(&ROWS, 300..).unwrap();
    txn.commit().unwrap();
    let done = store.compact().unwrap();
    assert!(done.bytes_after < done.bytes_before / 3, "{done:?}");
    let again = store.compact().unwrap();
    assert_eq!(again.bytes_after, done.bytes_after);
    let few = store.as_of("few").unwrap().unwrap();
    assert_eq!((few.len(&ROWS).unwrap(), few.get(&ROWS, 499).unwrap().as_deref()), (500, Some(&[1; 60][..])));
    store.verify().unwrap();
}

#[test]
fn a_pin_is_seen_by_who_opens_the_file_to_read_and_made_by_nobody_there() {
    let disk = MemoryDisk::new();
    let store = options(512).open(&disk, "store").unwrap();
    write(&store, 0..10, 1);
    store.pin("ten", 7).unwrap();
    write(&store, 0..20, 2);
    let reader = options(512).read_only(true).open(&disk, "store").unwrap();
    assert_eq!(reader.pins().len(), 1);
    assert_eq!(reader.as_of("ten").unwrap().unwrap().len(&ROWS).unwrap(), 10);
    assert!(matches!(reader.pin("eleven", 8), Err(Error::ReadOnly)));
    assert!(matches!(reader.unpin("ten"), Err(Error::ReadOnly)));
    assert_eq!(reader.pins().len(), 1);
    reader.verify().unwrap();
}

#[test]
fn names_are_as_long_as_keys_and_no_longer() {
    let store = options(256).open(&MemoryDisk::new(), "store").unwrap();
    let longest = "n".repeat(256 / 4 - 8);
    store.pin(&longest, u64::MAX).unwrap();
    store.pin("", 0).unwrap();
    assert!(matches!(store.pin(&format!("{longest}n"), 1), Err(Error::KeyTooLong { most: 56, found: 57 })));
    assert_eq!(store.pins().iter().map(|pin| pin.when).collect::<Vec<_>>(), [0, u64::MAX]);
    store.verify().unwrap();
}

#[test]
fn cursors_counts_forks_and_changes_work_as_of_a_pin() {
    let store = options(512).in_memory().unwrap();
    write(&store, 0..300, 1);
    store.pin("then", 1).unwrap();
    write(&store, 100..500, 2);
    let then: Snapshot<'_> = store.as_of("then").unwrap().unwrap();
    assert!(then.version() < store.snapshot().version());
    assert_eq!(then.scan(&ROWS).unwrap().from(50).until(250).count().unwrap(), 200);
    let mut cursor = then.cursor(&ROWS).unwrap();
    assert!(cursor.seek(299).is_ok());
    let fork = then.fork(&options(512), &MemoryDisk::new(), "fork").unwrap();
    assert_eq!(fork.snapshot().content_hash().unwrap(), then.content_hash().unwrap());
    // What a change observed as of the pin is compared with what is there now.
    let mut change = kauri_tree::Change::new(then);
    assert_eq!(change.get(&ROWS, 0).unwrap().as_deref(), Some(&[1; 60][..]));
    change.put(&ROWS, 1, &[3; 60]).unwrap();
    assert!(store.commit(change).unwrap().is_committed());
    let mut change = kauri_tree::Change::new(store.as_of("then").unwrap().unwrap());
    assert_eq!(change.get(&ROWS, 150).unwrap().as_deref(), Some(&[1; 60][..]));
    change.put(&ROWS, 1, &[4; 60]).unwrap();
    assert!(!store.commit(change).unwrap().is_committed());
}
