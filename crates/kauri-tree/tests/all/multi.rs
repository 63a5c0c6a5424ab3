//! Multi-tables against maps of sets.

use std::collections::{BTreeMap, BTreeSet};

use kauri_tree::{
    Change, Cursor, Error, MultiTable, Options, Pair, Read, ReadMulti, Store, Table, Write, WriteMulti, WriteTxn,
};

use crate::places::{Place, Subject, try_everywhere};
use crate::random::Random;

type Sets = BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>;
type Bytes = MultiTable<[u8], [u8]>;

const PAIRS: Bytes = MultiTable::new("pairs");

/// Keys with zeros, and with nothing but the greatest byte; few of them, so that some get many values.
fn key(random: &mut Random, page_bytes: usize) -> Vec<u8> {
    match random.below(12) {
        0 => vec![0xff; random.below(4)],
        1 => vec![0; random.below(4)],
        2 => random.key(page_bytes / 8 - 12, 40),
        _ => vec![random.below(4) as u8],
    }
}

fn value(random: &mut Random, page_bytes: usize) -> Vec<u8> {
    random.key(page_bytes / 8, 400)
}

/// One random change, of whatever can be written to.
fn change(to: &mut impl WriteMulti, sets: &mut Sets, random: &mut Random, page_bytes: usize) {
    let (key, value) = (key(random, page_bytes), value(random, page_bytes));
    match random.below(40) {
        0..26 => {
            assert_eq!(to.put_value(&PAIRS, &key, &value).unwrap(), sets.entry(key).or_default().insert(value));
        }
        26..38 => {
            let had = sets.get_mut(&key).is_some_and(|values| values.remove(&value));
            assert_eq!(to.remove_value(&PAIRS, &key, &value).unwrap(), had);
        }
        _ => {
            let had = sets.remove(&key).map_or(0, |values| values.len());
            assert_eq!(to.remove_values(&PAIRS, &key).unwrap(), had as u64);
        }
    }
    sets.retain(|_, values| !values.is_empty());
}

fn load(txn: &mut WriteTxn<'_>, sets: &mut Sets, random: &mut Random, page_bytes: usize) {
    if random.below(2) == 0 {
        txn.drop_table(PAIRS.name()).unwrap();
        sets.clear();
    }
    let count = random.below(150);
    let mut pairs: Vec<_> = (0..count).map(|_| (key(random, page_bytes), value(random, page_bytes))).collect();
    pairs.sort();
    // Some come again, and again.
    for _ in 0..random.below(20) {
        if !pairs.is_empty() {
            let row = random.below(pairs.len());
            pairs.insert(row, pairs[row].clone());
        }
    }
    let spoilt = (random.below(3) == 0).then(|| (1..pairs.len()).find(|row| pairs[*row] > pairs[0])).flatten();
    if let Some(row) = spoilt {
        // A pair less than the one before it.
        let least = pairs[0].clone();
        pairs.insert(row + 1, least);
    }
    let loaded = txn.load_sorted_values(&PAIRS, pairs.iter().map(|(key, value)| (&key[..], &value[..])));
    match (loaded, spoilt) {
        (Err(Error::Row { row, error }), Some(spoilt)) => {
            assert!(row == spoilt as u64 + 1 && matches!(*error, Error::Unsorted), "row {row}, not {spoilt}: {error}");
        }
        (loaded, None) => {
            pairs.dedup();
            assert_eq!(loaded.unwrap(), pairs.len() as u64);
            for (key, value) in pairs {
                sets.entry(key).or_default().insert(value);
            }
        }
        (loaded, spoilt) => panic!("{loaded:?} although pair {spoilt:?} is out of order"),
    }
}

/// All pairs by a cursor: key by key, value by value, there and back.
fn walk(mut cursor: Cursor<&WriteTxn<'_>, Pair<[u8], [u8]>, ()>, sets: &Sets) {
    for (key, values) in sets {
        let (first, last) = (values.first().unwrap(), values.last().unwrap());
        assert_eq!(cursor.skip_key().unwrap().unwrap(), (key.into(), &first[..]));
        assert_eq!(cursor.count_of_key().unwrap(), values.len() as u64);
        assert_eq!(cursor.previous_of_key().unwrap(), None);
        for value in values.iter().skip(1) {
            assert_eq!(cursor.next_of_key().unwrap(), Some(&value[..]));
        }
        assert_eq!(cursor.next_of_key().unwrap(), None);
        assert_eq!(cursor.value().unwrap(), Some(&last[..]));
        assert_eq!(cursor.first_of_key().unwrap(), Some(&first[..]));
        assert_eq!(cursor.last_of_key().unwrap(), Some(&last[..]));
        assert_eq!(cursor.seek_key(key).unwrap(), Some(&first[..]));
    }
    assert_eq!(cursor.skip_key().unwrap(), None);
    assert_eq!(cursor.count_of_key().unwrap(), 0);
    for (key, values) in sets.iter().rev() {
        assert_eq!(cursor.skip_key_back().unwrap().unwrap(), (key.into(), &values.last().unwrap()[..]));
    }
    assert_eq!(cursor.skip_key_back().unwrap(), None);
}

fn compare(from: &impl Read, sets: &Sets) {
    let pairs: Vec<_> = sets.iter().flat_map(|(key, values)| values.iter().map(move |value| (key, value))).collect();
    assert_eq!(from.len(&PAIRS).unwrap(), pairs.len() as u64);
    let found = from.scan(&PAIRS).unwrap().map(|(key, value), ()| (key.into_owned(), value.to_vec()));
    let found: Vec<_> = found.collect::<Result<_, _>>().unwrap();
    assert!(found.iter().map(|(key, value)| (key, value)).eq(pairs.iter().copied()));
    let mut scan = from.scan(&PAIRS).unwrap();
    for (key, value) in pairs.iter().rev() {
        assert_eq!(scan.previous().unwrap(), Some(((key[..].into(), &value[..]), ())));
    }
    for (key, values) in sets {
        assert_eq!(from.count_values(&PAIRS, key).unwrap(), values.len() as u64);
        let found = from.values(&PAIRS, key).unwrap().map(<[u8]>::to_vec);
        assert!(found.map(Result::unwrap).eq(values.iter().cloned()));
        let mut found = from.values(&PAIRS, key).unwrap();
        for value in values.iter().rev() {
            assert_eq!(found.previous().unwrap(), Some(&value[..]));
        }
        assert_eq!(found.previous().unwrap(), None);
        let middle = values.len() / 2;
        let mut found = from.values(&PAIRS, key).unwrap();
        assert_eq!(found.nth(middle as u64).unwrap(), values.iter().nth(middle).map(Vec::as_slice));
        assert!(from.has_value(&PAIRS, key, values.first().unwrap()).unwrap());
    }
    assert_eq!(from.count_values(&PAIRS, b"nobody").unwrap(), 0);
    assert!(!from.has_value(&PAIRS, b"nobody", b"nothing").unwrap());
}

struct Multi;

impl Subject for Multi {
    type Model = Sets;

    fn change(&self, txn: &mut WriteTxn<'_>, sets: &mut Sets, random: &mut Random, page_bytes: usize) {
        match random.below(60) {
            0 => load(txn, sets, random, page_bytes),
            1 => walk(txn.cursor(&PAIRS).unwrap(), sets),
            _ => change(txn, sets, random, page_bytes),
        }
    }

    fn compare(&self, from: &impl Read, sets: &Sets) {
        compare(from, sets);
    }
}

#[test]
fn multi_tables_agree_with_sets_everywhere() {
    try_everywhere(&Multi, 50, 4);
}

#[test]
fn multi_tables_of_changes_agree_with_sets() {
    for page_bytes in [256, 4096] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let (mut sets, mut random) = (Sets::new(), Random(5));
        for _ in 0..40 {
            let mut staged = Change::new(store.snapshot());
            for _ in 0..random.below(30) {
                change(&mut staged, &mut sets, &mut random, page_bytes);
            }
            compare(&staged, &sets);
            assert!(store.commit(staged).unwrap().is_committed());
            compare(&store.snapshot(), &sets);
        }
    }
}

#[test]
fn duplicate_pairs_in_a_sorted_load_are_stored_once() {
    const NUMBERS: MultiTable<u64, u32> = MultiTable::new("numbers");
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    for _ in 0..2 {
        // Into an empty table, and into one that has them all.
        let pairs = (0..30_000_u32).map(|row| (u64::MAX - 3 + u64::from(row / 10_000), row / 2));
        assert_eq!(txn.load_sorted_values(&NUMBERS, pairs).unwrap(), 15_000);
        assert_eq!(txn.len(&NUMBERS).unwrap(), 15_000);
        assert_eq!(txn.count_values(&NUMBERS, u64::MAX - 1).unwrap(), 5_000);
    }
    assert_eq!(txn.remove_values(&NUMBERS, u64::MAX - 1).unwrap(), 5_000);
    txn.put_value(&NUMBERS, u64::MAX, 1).unwrap();
    assert_eq!(txn.count_values(&NUMBERS, u64::MAX).unwrap(), 1);
    assert_eq!(txn.remove_values(&NUMBERS, u64::MAX).unwrap(), 1);
    txn.commit().unwrap();
    assert_eq!(store.verify().unwrap().rows, 10_000);
}

#[test]
fn changes_that_add_values_to_one_key_are_no_conflict() {
    let store = Store::in_memory().unwrap();
    let add = |value: &[u8]| {
        let mut change = Change::new(store.snapshot());
        assert!(change.put_value(&PAIRS, b"key", value).unwrap());
        change
    };
    let (first, second, third) = (add(b"one"), add(b"two"), add(b"one"));
    assert!(store.commit(first).unwrap().is_committed());
    assert!(store.commit(second).unwrap().is_committed());
    assert!(!store.commit(third).unwrap().is_committed());
    // Who saw how many there were saw that there were no others.
    let mut counted = Change::new(store.snapshot());
    assert_eq!(counted.count_values(&PAIRS, b"key").unwrap(), 2);
    counted.put(&Table::<str, u64>::new("counts"), "key", 2).unwrap();
    assert!(store.commit(add(b"three")).unwrap().is_committed());
    assert!(!store.commit(counted).unwrap().is_committed());
}

#[test]
fn a_multi_table_is_no_table_of_tuples() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put_value(&PAIRS, b"key", b"value").unwrap();
    let tuples = Table::<(Vec<u8>, Vec<u8>), ()>::new("pairs");
    assert!(matches!(txn.put(&tuples, (b"key", b"value"), ()), Err(Error::OtherTypes { .. })));
    let long = vec![7; 2_000];
    assert!(matches!(txn.put_value(&PAIRS, b"key", &long), Err(Error::KeyTooLong { .. })));
}

#[test]
fn a_pair_as_long_as_a_key_can_be_passes_and_a_longer_one_is_refused() {
    const NAMES: MultiTable<u64, [u8]> = MultiTable::new("names");
    for page_bytes in [256, 4096, 65536] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let mut txn = store.begin();
        // A key has a quarter of a page less eight bytes, and the pair's own key takes eight of them.
        let longest = page_bytes / 4 - 16;
        for fill in 1..=20 {
            assert!(txn.put_value(&NAMES, 7, &vec![fill; longest]).unwrap());
            let refused = txn.put_value(&NAMES, 7, &vec![fill; longest + 1]);
            assert!(matches!(refused, Err(Error::KeyTooLong { .. })), "{refused:?} in pages of {page_bytes}");
        }
        assert_eq!(txn.count_values(&NAMES, 7).unwrap(), 20);
        assert!(txn.has_value(&NAMES, 7, &vec![20; longest]).unwrap());
        txn.commit().unwrap();
        assert_eq!(store.verify().unwrap().rows, 20);
    }
}

#[test]
fn pairs_of_a_multi_table_are_removed_with_their_range() {
    const NUMBERS: MultiTable<u32, u32> = MultiTable::new("numbers");
    for place in Place::all() {
        let mut txn = place.store().begin();
        txn.load_sorted_values(&NUMBERS, (0..3_000).map(|row| (row / 1_000, row))).unwrap();
        assert_eq!(txn.remove_range(&NUMBERS, (0, 500)..(2, 2_500)).unwrap(), 2_000);
        assert_eq!([0, 1, 2].map(|key| txn.count_values(&NUMBERS, key).unwrap()), [500, 0, 500]);
        assert!(!txn.remove_value(&NUMBERS, 1, 1_500).unwrap() && txn.remove_value(&NUMBERS, 2, 2_500).unwrap());
        txn.commit().unwrap();
        assert_eq!(place.store().verify().unwrap().rows, 999);
    }
}

#[test]
fn values_of_a_key_are_in_the_order_of_their_type() {
    const SCORES: MultiTable<str, i64> = MultiTable::new("scores");
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    let scores = [3, -1, i64::MIN, 0, i64::MAX, -2];
    for score in scores {
        assert!(txn.put_value(&SCORES, "ann", score).unwrap());
    }
    let mut sorted = scores;
    sorted.sort_unstable();
    let found = txn.values(&SCORES, "ann").unwrap().map(|score| score);
    assert!(found.map(Result::unwrap).eq(sorted));
    // Loads are refused that are not in this order.
    let loaded = txn.load_sorted_values(&SCORES, [("bob", -1), ("bob", 1), ("bob", 0)]);
    assert_eq!(loaded.unwrap_err().to_string(), "row 2: expected a key greater than that of the row before");
    assert_eq!(txn.count_values(&SCORES, "bob").unwrap(), 0);
}
