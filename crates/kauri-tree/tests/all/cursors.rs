//! Cursors against a sorted vector and a place in it.

use std::collections::BTreeMap;

use kauri_tree::{Options, Position, Read, Store, Table, Write, WriteTxn};

use crate::model::{Bytes, Odd};
use crate::places::{Place, Subject, try_everywhere};
use crate::random::Random;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Where a cursor should be: before all rows, behind all, or at a key, on whose row it is if there is one.
#[derive(Clone, Debug)]
pub(crate) enum Where {
    Start,
    At(Vec<u8>),
    End,
}

/// The rows in order.
fn sorted<K: Bytes + ?Sized>(map: &Map) -> Vec<(&[u8], &[u8])> {
    let mut rows: Vec<_> = map.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    rows.sort_by(|left, right| K::compare(left.0, right.0));
    rows
}

impl Where {
    /// The row that it is on after a move.
    pub(crate) fn step<K: Bytes + ?Sized>(&mut self, map: &Map, forward: bool) {
        let rows = sorted::<K>(map);
        let found = match (&*self, forward) {
            (Self::Start, true) => rows.first(),
            (Self::End, false) => rows.last(),
            (Self::Start, false) | (Self::End, true) => None,
            (Self::At(at), true) => rows.iter().find(|(key, _)| K::compare(key, at).is_gt()),
            (Self::At(at), false) => rows.iter().rev().find(|(key, _)| K::compare(key, at).is_lt()),
        };
        *self = match (found, forward) {
            (Some((key, _)), _) => Self::At(key.to_vec()),
            (None, true) => Self::End,
            (None, false) => Self::Start,
        };
    }

    pub(crate) fn seek<K: Bytes + ?Sized>(&mut self, map: &Map, key: &[u8]) {
        let found = sorted::<K>(map).into_iter().find(|(other, _)| K::compare(other, key).is_ge());
        *self = found.map_or(Self::End, |(key, _)| Self::At(key.to_vec()));
    }

    pub(crate) fn row<'m>(&self, map: &'m Map) -> Option<(&'m [u8], &'m [u8])> {
        match self {
            Self::At(at) => map.get_key_value(at).map(|(key, value)| (&key[..], &value[..])),
            Self::Start | Self::End => None,
        }
    }
}

/// Random moves and changes with one cursor after the other; they keep their position.
fn wander<K: Bytes + ?Sized>(
    txn: &mut WriteTxn<'_>,
    table: &Table<K, [u8]>,
    map: &mut Map,
    random: &mut Random,
    page_bytes: usize,
) {
    let mut cursor = txn.cursor_mut(table).unwrap();
    let mut at = Where::Start;
    for _ in 0..random.below(60) {
        let key = random.key(page_bytes / 4 - 8, 150);
        match random.below(16) {
            0 => {
                at = Where::Start;
                at.step::<K>(map, true);
                cursor.first().unwrap();
            }
            1 => {
                at = Where::End;
                at.step::<K>(map, false);
                cursor.last().unwrap();
            }
            2..5 => {
                at.step::<K>(map, true);
                let key = cursor.next_key().unwrap();
                assert_eq!(key, at.row(map).map(|(key, _)| key));
            }
            5..8 => {
                at.step::<K>(map, false);
                let row = cursor.previous().unwrap();
                assert_eq!(row.as_ref().map(|(key, value)| (*key, &**value)), at.row(map));
            }
            8 | 9 => {
                at.seek::<K>(map, &key);
                cursor.seek(&key).unwrap();
            }
            10 => {
                let found = cursor.seek_exact(&key).unwrap().is_some();
                assert_eq!(found, map.contains_key(&key));
                at = Where::At(key);
            }
            11 => {
                let value = random.value(page_bytes);
                let put = cursor.put(&value).unwrap();
                let row = at.row(map).map(|(key, _)| key.to_vec());
                assert_eq!(put, row.is_some());
                map.extend(row.map(|key| (key, value)));
            }
            12 => {
                let value = random.value(page_bytes);
                cursor.put_at(&key, &value).unwrap();
                map.insert(key.clone(), value);
                at = Where::At(key);
            }
            13 | 14 => {
                let row = at.row(map).map(|(key, _)| key.to_vec());
                assert_eq!(cursor.remove().unwrap(), row.is_some());
                if let Some(key) = row {
                    map.remove(&key);
                    at.step::<K>(map, true);
                }
            }
            _ => {
                let position = cursor.position();
                cursor.last().unwrap();
                assert_eq!(cursor.resume(&position).unwrap(), at.row(map).is_some());
            }
        }
        let row = cursor.current().unwrap();
        assert_eq!(row.as_ref().map(|(key, value)| (*key, &**value)), at.row(map), "{cursor:?} and {at:?}");
    }
}

/// Reads everything there and back, and seeks.
fn compare<K: Bytes + ?Sized>(from: &impl Read, table: &Table<K, [u8]>, map: &Map) {
    let found = from.scan(table).unwrap().map(|key, value| (key.to_vec(), value.into_owned()));
    assert_eq!(&found.collect::<Result<Map, _>>().unwrap(), map);
}

struct Cursors<K: 'static + ?Sized>(Table<K, [u8]>);

impl<K: Bytes + ?Sized> Subject for Cursors<K> {
    type Model = Map;

    fn change(&self, txn: &mut WriteTxn<'_>, map: &mut Map, random: &mut Random, page_bytes: usize) {
        if random.below(3) == 0 {
            wander(txn, &self.0, map, random, page_bytes);
            return;
        }
        let (key, value) = (random.key(page_bytes / 4 - 8, 150), random.value(page_bytes));
        txn.put(&self.0, &key, &value).unwrap();
        map.insert(key, value);
    }

    fn compare(&self, from: &impl Read, map: &Map) {
        compare(from, &self.0, map);
    }
}

#[test]
fn cursors_agree_with_sorted_rows_everywhere() {
    try_everywhere(&Cursors::<[u8]>(Table::new("rows")), 20, 2);
}

#[test]
fn cursors_in_another_order_agree_with_sorted_rows() {
    try_everywhere(&Cursors::<Odd>(Table::new("odd")), 12, 3);
}

const NUMBERS: Table<u32, u32> = Table::new("numbers");

fn numbers(place: &Place, count: u32) -> &Store {
    let store = place.store();
    let mut txn = store.begin();
    txn.load_sorted(&NUMBERS, (0..count).map(|number| (number, number * 2))).unwrap();
    txn.commit().unwrap();
    store
}

#[test]
fn cursors_of_snapshots_go_there_and_back_and_turn_at_both_ends() {
    for place in Place::all() {
        let snapshot = numbers(&place, 1_000).snapshot();
        let mut cursor = snapshot.cursor(&NUMBERS).unwrap();
        assert!(cursor.current().unwrap().is_none() && cursor.previous().unwrap().is_none());
        for _ in 0..2 {
            for number in 0..1_000 {
                assert_eq!(cursor.next().unwrap(), Some((number, number * 2)));
            }
            assert!(cursor.next().unwrap().is_none() && cursor.next().unwrap().is_none());
            for number in (0..1_000).rev() {
                assert_eq!(cursor.previous_key().unwrap(), Some(number));
                assert_eq!(cursor.current().unwrap(), Some((number, number * 2)));
            }
            assert!(cursor.previous().unwrap().is_none() && cursor.previous().unwrap().is_none());
        }
        assert_eq!(cursor.seek_prefix(&[0, 0, 1]).unwrap(), Some((256, 512)));
        let mut under = 1;
        while cursor.next().unwrap().is_some() && cursor.is_under(&[0, 0, 1]) {
            under += 1;
        }
        assert_eq!(under, 256);
        assert_eq!(cursor.seek_prefix(&[0, 1]).unwrap(), None);
        assert_eq!(cursor.previous_key().unwrap(), Some(999));
    }
}

#[test]
fn removing_at_the_cursor_goes_on_across_emptied_leaves() {
    for place in Place::all() {
        let store = numbers(&place, 1_000);
        let mut txn = store.begin();
        let mut cursor = txn.cursor_mut(&NUMBERS).unwrap();
        cursor.seek(100).unwrap();
        for number in 100..900 {
            assert_eq!(cursor.key().unwrap(), Some(number));
            assert!(cursor.remove().unwrap());
        }
        assert_eq!(cursor.current().unwrap(), Some((900, 1_800)));
        while cursor.remove().unwrap() {}
        assert!(cursor.key().unwrap().is_none() && !cursor.remove().unwrap());
        assert_eq!(cursor.previous_key().unwrap(), Some(99));
        cursor.first().unwrap();
        while cursor.remove().unwrap() {}
        assert!(cursor.next().unwrap().is_none() && cursor.previous().unwrap().is_none());
        assert_eq!(txn.len(&NUMBERS).unwrap(), 0);
        txn.commit().unwrap();
        assert_eq!(store.verify().unwrap().rows, 0);
    }
}

#[test]
fn cursors_go_on_in_later_versions() {
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let put = |numbers: &[u32]| {
        let mut txn = store.begin();
        numbers.iter().for_each(|number| txn.put(&NUMBERS, *number, 0).unwrap());
        txn.commit().unwrap();
    };
    put(&[10, 20, 30]);
    let before = store.snapshot();
    let mut cursor = before.cursor(&NUMBERS).unwrap();
    cursor.seek(20).unwrap();
    let position: Position<u32> = cursor.position();
    put(&[15, 25]);
    let mut txn = store.begin();
    txn.remove(&NUMBERS, 20).unwrap();
    let mut cursor = cursor.renew(&mut txn).unwrap();
    assert_eq!(cursor.key().unwrap(), None);
    assert_eq!(cursor.next_key().unwrap(), Some(25));
    assert!(!cursor.resume(&position).unwrap());
    assert_eq!(cursor.previous_key().unwrap(), Some(15));
    cursor.put_at(20, 7).unwrap();
    txn.commit().unwrap();
    let after = store.snapshot();
    let mut cursor = after.cursor(&NUMBERS).unwrap();
    assert!(cursor.resume(&position).unwrap());
    assert_eq!(cursor.current().unwrap(), Some((20, 7)));
}

#[test]
fn cursors_of_missing_tables_find_nothing_and_make_nothing() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    let mut cursor = txn.cursor_mut(&NUMBERS).unwrap();
    assert!(cursor.next().unwrap().is_none() && cursor.previous().unwrap().is_none());
    assert!(cursor.seek(1).unwrap().is_none() && !cursor.remove().unwrap() && !cursor.put(1).unwrap());
    txn.commit().unwrap();
    assert_eq!(store.snapshot().tables().count(), 0);
    assert!(store.begin().cursor(&Table::<u32, u64>::new("numbers")).is_ok());
}
