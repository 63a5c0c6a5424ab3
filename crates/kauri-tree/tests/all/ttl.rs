//! Tables whose rows expire, against a map of values and moments.

use std::collections::BTreeMap;

use kauri_tree::{Change, Error, Options, Read, ReadTtl, Store, Swept, Table, TtlTable, Write, WriteTtl, WriteTxn};

use crate::model::{Bytes, Odd};
use crate::places::{Subject, try_everywhere};
use crate::random::Random;

/// Values and when they expire, by key.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

struct Expiring<K: 'static + ?Sized>(TtlTable<K, [u8]>);

/// Mostly near each other, so that many expire at the same moment; some at the ends of time.
fn moment(random: &mut Random) -> u64 {
    match random.below(20) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - 1,
        _ => 1_000 + random.below(40) as u64,
    }
}

fn change<K: Bytes + ?Sized>(
    to: &mut impl WriteTtl,
    table: &TtlTable<K, [u8]>,
    rows: &mut Rows,
    random: &mut Random,
    page_bytes: usize,
) {
    let key = random.key(page_bytes / 4 - 17, 80);
    let now = moment(random);
    match random.below(20) {
        0..11 => {
            let value = random.value(page_bytes);
            to.put_until(table, &key, &value, now).unwrap();
            rows.insert(key, (value, now));
        }
        11..14 => assert_eq!(to.remove_expiring(table, &key).unwrap(), rows.remove(&key).is_some()),
        14..18 => {
            let live = rows.get(&key).filter(|(_, expires)| *expires > now).map(|(value, _)| &value[..]);
            assert_eq!(to.get_or_expire(table, &key, now).unwrap().as_deref(), live);
            rows.retain(|other, (_, expires)| *other != key || *expires > now);
        }
        _ => sweep(to, table, rows, now, random.below(12)),
    }
}

fn sweep<K: Bytes + ?Sized>(
    to: &mut impl WriteTtl,
    table: &TtlTable<K, [u8]>,
    rows: &mut Rows,
    now: u64,
    rows_max: usize,
) {
    let swept = to.sweep(table, now, rows_max).unwrap();
    let mut expired: Vec<_> = rows
        .iter()
        .filter(|(_, (_, expires))| *expires <= now)
        .map(|(key, (_, expires))| (*expires, key.clone()))
        .collect();
    expired.sort();
    let is_done = expired.len() <= rows_max;
    expired.truncate(rows_max);
    assert_eq!(swept, Swept { rows: expired.len() as u64, is_done });
    for (_, key) in expired {
        rows.remove(&key);
    }
}

fn compare<K: Bytes + ?Sized>(from: &impl Read, table: &TtlTable<K, [u8]>, rows: &Rows) {
    assert_eq!(from.first_expiry(table).unwrap(), rows.values().map(|(_, expires)| *expires).min());
    for now in [0, 1, 1_000, 1_020, 1_039, 1_040, u64::MAX - 1, u64::MAX] {
        let live: BTreeMap<_, _> = rows.iter().filter(|(_, (_, expires))| *expires > now).collect();
        assert_eq!(from.count_live(table, now).unwrap(), live.len() as u64);
        let found = from.scan_live(table, now).unwrap().map(|key, value| (key.to_vec(), value.into_owned()));
        let found: Vec<_> = found.collect::<Result<_, _>>().unwrap();
        let mut expected: Vec<_> = live.iter().map(|(key, (value, _))| ((*key).clone(), value.clone())).collect();
        expected.sort_by(|left, right| K::compare(&left.0, &right.0));
        assert!(found == expected);
        for (key, (value, expires)) in rows {
            let is_live = *expires > now;
            assert_eq!(from.get_live(table, key, now).unwrap().as_deref(), is_live.then_some(&value[..]));
            assert_eq!(from.expiry(table, key).unwrap(), Some(*expires));
        }
    }
}

impl<K: Bytes + ?Sized> Subject for Expiring<K> {
    type Model = Rows;

    fn change(&self, txn: &mut WriteTxn<'_>, rows: &mut Rows, random: &mut Random, page_bytes: usize) {
        change(txn, &self.0, rows, random, page_bytes);
    }

    fn compare(&self, from: &impl Read, rows: &Rows) {
        compare(from, &self.0, rows);
    }
}

#[test]
fn rows_that_expire_agree_with_maps_everywhere() {
    try_everywhere(&Expiring::<[u8]>(TtlTable::new("rows")), 20, 6);
    try_everywhere(&Expiring::<Odd>(TtlTable::new("rows")), 6, 7);
}

#[test]
fn rows_of_changes_that_expire_agree_with_maps() {
    let table = TtlTable::<[u8], [u8]>::new("rows");
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let (mut rows, mut random) = (Rows::new(), Random(8));
    for _ in 0..40 {
        let mut staged = Change::new(store.snapshot());
        for _ in 0..random.below(20) {
            change(&mut staged, &table, &mut rows, &mut random, 256);
        }
        compare(&staged, &table, &rows);
        assert!(store.commit(staged).unwrap().is_committed());
        compare(&store.snapshot(), &table, &rows);
    }
}

const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");

#[test]
fn sweeps_cannot_skip_what_was_put_behind_them() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    for (who, expires) in [("ann", 10), ("bob", 20), ("cat", 30)] {
        txn.put_until(&SESSIONS, who, 1, expires).unwrap();
    }
    assert_eq!(txn.sweep(&SESSIONS, 25, 1).unwrap(), Swept { rows: 1, is_done: false });
    assert_eq!(txn.sweep(&SESSIONS, 25, 5).unwrap(), Swept { rows: 1, is_done: true });
    // Earlier than everything that was swept.
    txn.put_until(&SESSIONS, "dan", 1, 5).unwrap();
    assert_eq!(txn.sweep(&SESSIONS, 25, 5).unwrap(), Swept { rows: 1, is_done: true });
    // A row whose life was made longer is not swept at its first moment.
    txn.put_until(&SESSIONS, "cat", 2, 90).unwrap();
    assert_eq!(txn.sweep(&SESSIONS, 80, 5).unwrap(), Swept { rows: 0, is_done: true });
    assert_eq!(txn.sweep(&SESSIONS, 90, 0).unwrap(), Swept { rows: 0, is_done: false });
    assert_eq!(txn.sweep(&SESSIONS, 90, 1).unwrap(), Swept { rows: 1, is_done: true });
}

#[test]
fn nobody_else_writes_to_a_table_of_rows_that_expire() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put_until(&SESSIONS, "ann", 1, 10).unwrap();
    let refused = |result: Result<(), Error>| assert!(matches!(result, Err(Error::OtherTypes { .. })), "{result:?}");
    refused(txn.put(&Table::<str, u64>::new("sessions"), "ann", 1));
    refused(txn.put(&Table::<[u8], [u8]>::new("sessions"), b"\0ann", b"raw"));
    refused(txn.remove(&Table::<[u8], [u8]>::new("sessions"), b"\0ann").map(drop));
    refused(txn.remove_range(&Table::<[u8], [u8]>::new("sessions"), ..).map(drop));
    refused(txn.put_until(&TtlTable::<str, u32>::new("sessions"), "ann", 1, 10));
    refused(txn.cursor_mut(&Table::<[u8], [u8]>::new("sessions")).map(drop));
    assert_eq!(txn.get_live(&SESSIONS, "ann", 9).unwrap(), Some(1));
    // Dropped, it is gone with everything that belongs to it.
    assert!(txn.drop_table("sessions").unwrap());
    assert_eq!(txn.first_expiry(&SESSIONS).unwrap(), None);
    txn.put(&Table::<str, u64>::new("sessions"), "ann", 1).unwrap();
}

#[test]
fn keys_too_long_to_expire_are_refused_before_anything_is_written() {
    let table = TtlTable::<[u8], [u8]>::new("rows");
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let mut txn = store.begin();
    let longest = 256 / 4 - 8 - 9;
    txn.put_until(&table, &vec![7; longest], b"", 1).unwrap();
    assert!(matches!(txn.put_until(&table, &vec![8; longest + 1], b"", 1), Err(Error::KeyTooLong { .. })));
    assert_eq!(txn.count_live(&table, 0).unwrap(), 1);
    assert_eq!(txn.sweep(&table, 1, 10).unwrap(), Swept { rows: 1, is_done: true });
}

#[cfg(feature = "watch")]
#[test]
fn watches_of_rows_that_expire_tell_of_rows_and_of_nothing_beside_them() {
    use kauri_tree::Notice;

    let store = Store::in_memory().unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    let watch = store.watch_expiring(&SESSIONS, b"a", move |notice| {
        let told = match notice {
            Notice::Put { key, value, .. } => (key.to_owned(), Some(value)),
            Notice::Removed { key, .. } => (key.to_owned(), None),
            Notice::Missed => panic!("nothing is missed"),
        };
        sender.send(told).unwrap();
    });
    let commit = |work: &dyn Fn(&mut WriteTxn<'_>)| {
        let mut txn = store.begin();
        work(&mut txn);
        txn.commit().unwrap();
        told.try_iter().collect::<Vec<_>>()
    };
    let row = |key: &str, value| vec![(key.to_owned(), value)];
    assert_eq!(commit(&|txn| txn.put_until(&SESSIONS, "ann", 1, 10).unwrap()), row("ann", Some(1)));
    assert_eq!(commit(&|txn| txn.put_until(&SESSIONS, "bob", 1, 10).unwrap()), []);
    assert_eq!(commit(&|txn| txn.put_until(&SESSIONS, "ann", 1, 10).unwrap()), [], "nothing changed");
    assert_eq!(commit(&|txn| txn.put_until(&SESSIONS, "ann", 1, 20).unwrap()), row("ann", Some(1)), "it lives longer");
    assert_eq!(commit(&|txn| assert!(txn.sweep(&SESSIONS, 19, 9).unwrap().is_done)), [], "another one expired");
    assert_eq!(commit(&|txn| assert!(txn.sweep(&SESSIONS, 20, 9).unwrap().is_done)), row("ann", None));
    assert_eq!(commit(&|txn| txn.put_until(&SESSIONS, "abe", 2, 30).unwrap()), row("abe", Some(2)));
    assert_eq!(commit(&|txn| assert_eq!(txn.get_or_expire(&SESSIONS, "abe", 30).unwrap(), None)), row("abe", None));
    drop(watch);
    assert_eq!(commit(&|txn| txn.put_until(&SESSIONS, "ann", 1, 10).unwrap()), []);
}
