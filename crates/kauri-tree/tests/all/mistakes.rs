//! Mistakes that stores are known to make, each as a claim that this one does not.
//!
//! Others of the kind stand with their subject: `cursors::removing_at_the_cursor_goes_on_across_emptied_leaves`,
//! `watches::no_watch_is_lost_on_a_split`, `multi::duplicate_pairs_in_a_sorted_load_are_stored_once`,
//! `streams::damaged_and_cut_streams_are_refused_and_leave_nothing`, `ttl::sweeps_cannot_skip_what_was_put_behind_them`.

use std::collections::BTreeMap;

use kauri_tree::{Options, Read, Store, Table, Write, WriteTxn};

use crate::places::Place;
use crate::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const ROWS: Table<[u8], [u8]> = Table::new("rows");
const NUMBERS: Table<u32, u32> = Table::new("numbers");

fn put(txn: &mut WriteTxn<'_>, map: &mut Map, key: Vec<u8>, value: Vec<u8>) {
    txn.put(&ROWS, &key, &value).unwrap();
    map.insert(key, value);
}

fn compare(from: &impl Read, map: &Map) {
    let found = from.scan(&ROWS).unwrap().map(|key, value| (key.to_vec(), value.into_owned()));
    assert!(found.map(Result::unwrap).eq(map.clone()));
    for (key, value) in map {
        assert_eq!(from.get(&ROWS, key).unwrap().as_deref(), Some(&value[..]));
    }
}

/// Runs `fill` in one transaction everywhere, and compares what it put before and after the commit.
fn check_filled(fill: impl Fn(&mut WriteTxn<'_>, &mut Map, usize)) {
    for mut place in Place::all() {
        let mut map = Map::new();
        let mut txn = place.store().begin();
        fill(&mut txn, &mut map, place.page_bytes);
        compare(&txn, &map);
        txn.commit().unwrap();
        assert_eq!(place.store().verify().unwrap().rows, map.len() as u64);
        place.crash();
        compare(&place.store().snapshot(), &map);
    }
}

#[test]
fn splits_of_rows_of_mixed_sizes_lose_nothing() {
    // Many short rows and one that nearly fills a page, wherever it comes among them.
    for place in [0, 7, 13, 20] {
        check_filled(|txn, map, page_bytes| {
            for row in 0..20 {
                put(txn, map, vec![row * 2], vec![row; page_bytes / 40]);
            }
            put(txn, map, vec![place * 2 + 1], vec![7; page_bytes - 200]);
        });
    }
    // A tenth of the values about as long as a page, in random order.
    check_filled(|txn, map, page_bytes| {
        let mut random = Random(page_bytes as u64);
        for _ in 0..2_000 {
            let key = random.next().to_be_bytes().to_vec();
            let bytes = match random.below(10) {
                0 => page_bytes * 3 / 4 + random.below(page_bytes / 4),
                _ => random.below(page_bytes / 20),
            };
            put(txn, map, key, vec![7; bytes]);
        }
    });
    // The longest keys that there can be, which fill branches as they fill leaves.
    check_filled(|txn, map, page_bytes| {
        for row in (0..=255).rev() {
            put(txn, map, vec![row; page_bytes / 4 - 8], vec![row; usize::from(row) % 50]);
            put(txn, map, vec![row], vec![]);
        }
    });
}

#[test]
fn a_range_is_removed_to_its_end_across_emptied_leaves() {
    for place in Place::all() {
        let store = place.store();
        for (from, until, rest) in [(0, 1_000, 0), (0, 999, 1), (1, 1_000, 1), (400, 600, 800), (7, 8, 999)] {
            let mut txn = store.begin();
            txn.load_sorted(&NUMBERS, (0..1_000).map(|number| (number, number))).unwrap();
            let removed = txn.remove_range(&NUMBERS, from..until).unwrap();
            assert_eq!((removed, txn.len(&NUMBERS).unwrap()), (u64::from(until - from), rest));
            assert_eq!(txn.scan(&NUMBERS).unwrap().from(from).until(until).next().unwrap(), None);
            assert_eq!(txn.scan(&NUMBERS).unwrap().map(|_, _| ()).count() as u64, rest);
            // Its ends in the wrong order hold nothing.
            assert_eq!(txn.remove_range(&NUMBERS, until..from).unwrap(), 0);
            assert_eq!(txn.remove_range(&NUMBERS, ..).unwrap(), rest);
            txn.commit().unwrap();
            assert_eq!(store.verify().unwrap().rows, 0);
        }
    }
}

#[test]
fn few_rows_left_of_many_lie_in_few_pages() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    for number in 0..20_000 {
        txn.put(&NUMBERS, number, number).unwrap();
    }
    txn.commit().unwrap();
    let full = store.verify().unwrap().pages;
    let mut txn = store.begin();
    for number in (0..20_000).filter(|number| number % 50 > 0) {
        assert!(txn.remove(&NUMBERS, number).unwrap());
    }
    txn.commit().unwrap();
    let report = store.verify().unwrap();
    assert_eq!(report.rows, 400);
    // A fiftieth of the rows, in pages that are a quarter full at least.
    assert!(report.pages <= full * 4 / 50 + 1, "{full} pages became {}", report.pages);
}

#[test]
fn a_cursor_gives_the_longest_key_a_long_value_and_stays_on_it() {
    for page_bytes in [256, 4096, 65536] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let mut txn = store.begin();
        let (key, value) = (vec![1; page_bytes / 4 - 8], vec![2; page_bytes * 5]);
        txn.put(&ROWS, &key, b"short").unwrap();
        txn.put(&ROWS, &[1], b"before").unwrap();
        txn.put(&ROWS, &[2], b"behind").unwrap();
        let mut cursor = txn.cursor_mut(&ROWS).unwrap();
        cursor.seek_exact(&key).unwrap().unwrap();
        assert!(cursor.put(&value).unwrap());
        let (found, at) = cursor.current().unwrap().unwrap();
        assert!(found == key && *at == *value);
        assert_eq!(cursor.next().unwrap().unwrap().0, [2]);
        assert_eq!(cursor.previous().unwrap().unwrap().1, &value[..]);
        assert_eq!(cursor.previous().unwrap().unwrap().0, [1]);
    }
}
