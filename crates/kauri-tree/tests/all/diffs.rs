//! What differs between two versions, against comparing everything.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Difference, Error, Options, Read, Snapshot, Store, Table, TableChange, Write};

use crate::model::{Bytes, Model, Models, Odd, World};
use crate::random::Random;

/// The values of a key before and after.
type Differences = Vec<(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)>;

/// By comparing everything.
fn expected(old: &Model, new: &Model) -> Differences {
    let mut all: BTreeMap<&Vec<u8>, [Option<&Vec<u8>>; 2]> = BTreeMap::new();
    for (which, model) in [old, new].into_iter().enumerate() {
        for (key, value) in model {
            all.entry(key).or_default()[which] = Some(value);
        }
    }
    let differing = all.into_iter().filter(|(_, [old, new])| old != new);
    differing.map(|(key, [old, new])| (key.clone(), old.cloned(), new.cloned())).collect()
}

fn owned(difference: Difference<&[u8], Cow<'_, [u8]>>) -> (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>) {
    match difference {
        Difference::Inserted { key, value } => (key.to_vec(), None, Some(value.into_owned())),
        Difference::Removed { key, value } => (key.to_vec(), Some(value.into_owned()), None),
        Difference::Changed { key, old, new } => (key.to_vec(), Some(old.into_owned()), Some(new.into_owned())),
    }
}

/// Compares two versions table by table, with and without their types.
pub(crate) fn check_pair<K: Bytes + ?Sized>(
    world: &World<K>,
    old: &(Snapshot<'_>, Models),
    new: &(Snapshot<'_>, Models),
) {
    for (table, (old_model, new_model)) in world.tables.iter().zip(old.1.iter().zip(&new.1)) {
        let mut expected = expected(old_model, new_model);
        let raw = new.0.diff_tables(&old.0).unwrap();
        let raw = raw.iter().find(|diff| diff.name() == table.name());
        let mut found = Vec::new();
        if let Some(raw) = raw {
            raw.rows().for_each(|difference| found.push(owned(difference))).unwrap();
            let has = |snapshot: &Snapshot<'_>| snapshot.tables().any(|name| name == table.name());
            let change = match (has(&old.0), has(&new.0)) {
                (false, true) => TableChange::Created,
                (true, false) => TableChange::Dropped,
                _ => TableChange::Written,
            };
            assert_eq!(raw.change(), change);
        }
        assert_eq!(found, expected, "{table:?} as bytes");
        expected.sort_by(|left, right| K::compare(&left.0, &right.0));
        let mut found = Vec::new();
        new.0.diff(&old.0, table).unwrap().for_each(|difference| found.push(owned(difference))).unwrap();
        assert_eq!(found, expected, "{table:?}");
    }
}

/// Random histories, of which some versions are held and compared with each other, in both directions.
fn check<K: Bytes + ?Sized>(store: &Store, page_bytes: usize, spread: usize, transactions: usize, seed: u64) {
    let mut world = World::<K>::new(page_bytes, spread, seed);
    let mut random = Random(seed);
    let mut held: Vec<(Snapshot<'_>, Models)> = vec![(store.snapshot(), world.models.clone())];
    for _ in 0..transactions {
        world.transaction(store);
        if random.below(3) == 0 {
            held.push((store.snapshot(), world.models.clone()));
        }
        if held.len() > 5 {
            held.remove(random.below(held.len()));
        }
        let (one, other) = (random.below(held.len()), random.below(held.len()));
        check_pair(&world, &held[one], &held[other]);
        check_pair(&world, &held[one], &(store.snapshot(), world.models.clone()));
    }
}

#[test]
fn diffs_agree_with_comparing_everything() {
    for seed in 0..6 {
        let store = Options::new().page_bytes(256).in_memory().unwrap();
        check::<[u8]>(&store, 256, 20 + 300 * (seed as usize % 3), 25, seed);
    }
    let store = Options::new().page_bytes(1024).in_memory().unwrap();
    check::<[u8]>(&store, 1024, 2_000, 25, 100);
}

#[test]
fn diffs_of_keys_in_an_order_of_their_own_agree_with_comparing_everything() {
    for seed in 0..4 {
        let store = Options::new().page_bytes(256).in_memory().unwrap();
        check::<Odd>(&store, 256, 400, 25, seed);
    }
}

#[test]
fn diffs_of_a_store_in_little_memory_agree_with_comparing_everything() {
    for seed in 0..2 {
        let options = Options::new().page_bytes(256).log_bytes(1).cache_bytes(0).keeper(false);
        let store = options.open(&MemoryDisk::new(), "store").unwrap();
        check::<[u8]>(&store, 256, 300, 15, seed);
        let store = options.open(&MemoryDisk::new(), "store").unwrap();
        check::<Odd>(&store, 256, 300, 15, seed);
    }
}

const NUMBERS: Table<u64, u64> = Table::new("numbers");

#[test]
fn a_diff_looks_only_at_what_was_written() {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(1024).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    let mut txn = store.begin();
    txn.load_sorted(&NUMBERS, (0..100_000).map(|number| (number, number))).unwrap();
    txn.commit().unwrap();
    drop(store);

    // Nothing of it is in memory now but what is looked at.
    let store = options.cache_bytes(64 << 20).open(&disk, "store").unwrap();
    let before = store.snapshot();
    let mut txn = store.begin();
    for number in (0..100_000).step_by(10_000) {
        txn.put(&NUMBERS, number, 0).unwrap();
    }
    txn.commit().unwrap();
    let (after, resident) = (store.snapshot(), store.stat().resident_pages);
    let mut differing = 0;
    after.diff(&before, &NUMBERS).unwrap().for_each(|_| differing += 1).unwrap();
    // Number 0 had the value 0.
    assert_eq!(differing, 9);
    let looked_at = store.stat().resident_pages - resident;
    assert!(looked_at <= 20, "{looked_at} pages of {}", store.stat().pages);
}

#[test]
fn a_table_made_again_for_other_types_is_dropped_and_created() {
    const TEXT: Table<str, str> = Table::new("numbers");
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put(&NUMBERS, 1, 2).unwrap();
    txn.commit().unwrap();
    let before = store.snapshot();
    let mut txn = store.begin();
    txn.drop_table("numbers").unwrap();
    txn.put(&TEXT, "a", "b").unwrap();
    txn.commit().unwrap();
    let after = store.snapshot();
    let tables = after.diff_tables(&before).unwrap();
    let told: Vec<_> = tables.iter().map(|diff| (diff.types(), diff.change())).collect();
    assert_eq!(told, [("u64 to u64", TableChange::Dropped), ("text to text", TableChange::Created)]);
    assert!(matches!(after.diff(&before, &NUMBERS), Err(Error::OtherTypes { .. })));
}

#[test]
fn snapshots_of_two_stores_are_not_compared() {
    let (one, other) = (Store::in_memory().unwrap(), Store::in_memory().unwrap());
    let (left, right) = (one.snapshot(), other.snapshot());
    assert!(matches!(left.diff(&right, &NUMBERS), Err(Error::OtherStore)));
    assert!(matches!(left.diff_tables(&right), Err(Error::OtherStore)));
    assert_eq!(left.len(&NUMBERS).unwrap(), 0);
}
