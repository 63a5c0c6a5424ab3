//! Values made of those before: compared and replaced, merged, filled in place, counted.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kauri_tree::{Change, Compared, Error, Options, Read, Store, Table, Write, WriteTxn};

use crate::places::{Subject, try_everywhere};
use crate::random::Random;

const ROWS: Table<[u8], [u8]> = Table::new("rows");
const COUNTS: Table<u32, i16> = Table::new("counts");

struct Updates;

type Model = (BTreeMap<Vec<u8>, Vec<u8>>, BTreeMap<u32, i16>);

/// One random update, of whatever can be written to.
fn update(to: &mut impl Write, (rows, counts): &mut Model, random: &mut Random, page_bytes: usize) {
    let (key, value) = (random.key(page_bytes / 4 - 8, 60), random.value(page_bytes));
    let old = rows.get(&key).cloned();
    match random.below(8) {
        0 => {
            let expected = if random.below(3) == 0 { value.clone() } else { old.clone().unwrap_or_default() };
            let compared = to.replace_if(&ROWS, &key, &expected, &value).unwrap();
            let wanted = match &old {
                None => Compared::Missing,
                Some(old) if *old == expected => Compared::Matches,
                Some(_) => Compared::Differs,
            };
            assert_eq!(compared, wanted);
            if compared.is_match() {
                rows.insert(key, value);
            }
        }
        1..4 => {
            let make = |old: Option<std::borrow::Cow<'_, [u8]>>| {
                let grown = old.map_or(Vec::new(), |old| [&*old, &value[..]].concat());
                (random.below(5) > 0).then_some(grown)
            };
            match to.update(&ROWS, &key, make).unwrap() {
                Some(made) => {
                    assert_eq!(made, old.map_or(Vec::new(), |old| [old, value].concat()));
                    rows.insert(key, made);
                }
                None => {
                    rows.remove(&key);
                }
            }
        }
        4..6 => {
            let fill = |bytes: &mut [u8]| {
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.copy_from_slice(&value);
            };
            to.reserve(&ROWS, &key, value.len(), fill).unwrap();
            rows.insert(key, value);
        }
        _ => {
            let (who, by) = (random.below(5) as u32, random.next() as i16 / 4);
            let old = counts.get(&who).copied().unwrap_or(0);
            let (found, wanted) = match random.below(2) {
                0 => (to.add(&COUNTS, who, by), old.checked_add(by)),
                _ => (to.subtract(&COUNTS, who, by), old.checked_sub(by)),
            };
            match (found, wanted) {
                (Ok(found), Some(wanted)) => {
                    assert_eq!(found, wanted);
                    counts.insert(who, found);
                }
                (found, wanted) => assert!(matches!(found, Err(Error::Overflow { .. })) && wanted.is_none()),
            }
        }
    }
}

fn compare(from: &impl Read, (rows, counts): &Model) {
    let found = from.scan(&ROWS).unwrap().map(|key, value| (key.to_vec(), value.into_owned()));
    assert_eq!(&found.collect::<Result<BTreeMap<_, _>, _>>().unwrap(), rows);
    let found = from.scan(&COUNTS).unwrap().map(|who, count| (who, count));
    assert_eq!(&found.collect::<Result<BTreeMap<_, _>, _>>().unwrap(), counts);
}

impl Subject for Updates {
    type Model = Model;

    fn change(&self, txn: &mut WriteTxn<'_>, model: &mut Model, random: &mut Random, page_bytes: usize) {
        update(txn, model, random, page_bytes);
    }

    fn compare(&self, from: &impl Read, model: &Model) {
        compare(from, model);
    }
}

#[test]
fn updates_agree_with_maps_everywhere() {
    try_everywhere(&Updates, 40, 1);
}

#[test]
fn updates_of_changes_agree_with_maps() {
    for page_bytes in [256, 4096] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let (mut model, mut random) = (Model::default(), Random(9));
        for _ in 0..60 {
            let mut change = Change::new(store.snapshot());
            for _ in 0..random.below(20) {
                update(&mut change, &mut model, &mut random, page_bytes);
            }
            compare(&change, &model);
            assert!(store.commit(change).unwrap().is_committed());
            compare(&store.snapshot(), &model);
        }
    }
}

#[test]
fn what_an_update_of_a_change_read_is_observed() {
    let store = Store::in_memory().unwrap();
    let count = || {
        let mut change = Change::new(store.snapshot());
        assert_eq!(change.add(&COUNTS, 1, 1).unwrap(), 1);
        change
    };
    let (first, second) = (count(), count());
    assert!(store.commit(first).unwrap().is_committed());
    assert!(!store.commit(second).unwrap().is_committed());
}

#[test]
fn panic_while_a_value_is_filled_writes_nothing() {
    for bytes in [10, 100_000] {
        let store = Store::in_memory().unwrap();
        let mut txn = store.begin();
        txn.put(&ROWS, b"old", b"value").unwrap();
        for key in [&b"old"[..], b"new"] {
            let filled = catch_unwind(AssertUnwindSafe(|| txn.reserve(&ROWS, key, bytes, |_| panic!("half-way"))));
            assert!(filled.is_err());
        }
        assert_eq!(txn.get(&ROWS, b"old").unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(txn.len(&ROWS).unwrap(), 1);
        txn.commit().unwrap();
        store.verify().unwrap();
    }
}

#[test]
fn reserved_rows_are_checked_like_others() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    let never = |_: &mut [u8]| panic!("there is nothing to fill");
    assert!(matches!(txn.reserve(&ROWS, &[7; 5_000], 1, never), Err(Error::KeyTooLong { .. })));
    assert!(matches!(txn.reserve(&ROWS, b"key", 1 << 33, never), Err(Error::ValueTooLong { .. })));
    txn.put(&Table::<[u8], u64>::new("rows"), b"key", 1).unwrap();
    assert!(matches!(txn.reserve(&ROWS, b"key", 100_000, never), Err(Error::OtherTypes { .. })));
    txn.commit().unwrap();
    store.verify().unwrap();
}

#[test]
fn updates_check_keys_like_puts() {
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let mut txn = store.begin();
    let long = [7; 60];
    for _ in 0..2 {
        let updated = txn.update(&ROWS, &long, |old| old.is_none().then(|| vec![1]));
        assert!(matches!(updated, Err(Error::KeyTooLong { most: 56, found: 60 })), "{updated:?}");
        assert_eq!(txn.replace_if(&ROWS, &long, b"", b"1").unwrap(), Compared::Missing);
        txn.put(&ROWS, b"a", b"1").unwrap(); // also beside another row
    }
    assert_eq!(txn.len(&ROWS).unwrap(), 1);
}
