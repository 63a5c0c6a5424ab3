//! The ten cases by which isolation levels differ (Kleppmann, "Hermitage", 2014), over changes and over transactions.
//!
//! Each has rows 1 → 10 and 2 → 20 at first. Changes `one` and `two` overlap as the case says. Transactions cannot: the second, begun by
//! another thread while the first is open, waits for it.
#![expect(clippy::disallowed_methods, reason = "a second transaction needs a thread")]

use std::thread;

use kauri_tree::{Change, Outcome, Read, Store, Table, Write, WriteTxn};

const TEST: Table<u64, i64> = Table::new("test");

fn store() -> Store {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put(&TEST, 1, 10).unwrap();
    txn.put(&TEST, 2, 20).unwrap();
    txn.commit().unwrap();
    store
}

fn change(store: &Store) -> Change<'_> {
    Change::new(store.snapshot())
}

fn rows(from: &impl Read) -> Vec<(u64, i64)> {
    from.scan(&TEST).unwrap().map(|key, value| (key, value)).map(Result::unwrap).collect()
}

/// Rows whose value is as wanted: all of the table has to be looked at.
fn find(from: &impl Read, wanted: impl Fn(i64) -> bool) -> Vec<u64> {
    rows(from).into_iter().filter(|(_, value)| wanted(*value)).map(|(key, _)| key).collect()
}

fn commits(store: &Store, change: Change<'_>) {
    assert_eq!(store.commit(change).unwrap(), Outcome::Committed { sequences: Vec::new() });
}

/// The change conflicts, and over this key.
fn conflicts(store: &Store, change: Change<'_>, key: u64) {
    let expected = Outcome::Conflict { table: "test".into(), key: key.to_be_bytes()[..].into() };
    assert_eq!(store.commit(change).unwrap(), expected);
}

/// Runs a transaction while another one is open, to its commit.
fn overlap(store: &Store, first: impl FnOnce(WriteTxn<'_>), second: impl FnOnce(&mut WriteTxn<'_>) + Send) {
    let one = store.begin();
    thread::scope(|scope| {
        let two = scope.spawn(|| {
            let mut txn = store.begin();
            second(&mut txn);
            txn.commit().unwrap();
        });
        first(one);
        two.join().unwrap();
    });
}

#[test]
fn g0_writes_of_changes_do_not_mix() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    one.put(&TEST, 1, 11).unwrap();
    two.put(&TEST, 1, 12).unwrap();
    one.put(&TEST, 2, 21).unwrap();
    commits(&store, one);
    assert_eq!(rows(&store.snapshot()), [(1, 11), (2, 21)]);
    two.put(&TEST, 2, 22).unwrap();
    commits(&store, two);
    assert_eq!(rows(&store.snapshot()), [(1, 12), (2, 22)]);
}

#[test]
fn g0_writes_of_transactions_do_not_mix() {
    let store = store();
    let first = |mut one: WriteTxn<'_>| {
        one.put(&TEST, 1, 11).unwrap();
        one.put(&TEST, 2, 21).unwrap();
        one.commit().unwrap();
    };
    overlap(&store, first, |two| {
        two.put(&TEST, 1, 12).unwrap();
        assert_eq!(rows(two), [(1, 12), (2, 21)]);
        two.put(&TEST, 2, 22).unwrap();
    });
    assert_eq!(rows(&store.snapshot()), [(1, 12), (2, 22)]);
}

#[test]
fn g1a_what_a_change_gave_up_is_not_read() {
    let store = store();
    let (mut one, two) = (change(&store), change(&store));
    one.put(&TEST, 1, 101).unwrap();
    assert_eq!(two.get(&TEST, 1).unwrap(), Some(10));
    drop(one);
    assert_eq!(two.get(&TEST, 1).unwrap(), Some(10));
    commits(&store, two);
}

#[test]
fn g1a_what_a_transaction_gave_up_is_not_read() {
    let store = store();
    let first = |mut one: WriteTxn<'_>| {
        one.put(&TEST, 1, 101).unwrap();
        assert_eq!(store.snapshot().get(&TEST, 1).unwrap(), Some(10));
        drop(one);
    };
    overlap(&store, first, |two| assert_eq!(rows(two), [(1, 10), (2, 20)]));
}

#[test]
fn g1b_what_a_change_stages_between_is_not_read() {
    let store = store();
    let (mut one, two) = (change(&store), change(&store));
    one.put(&TEST, 1, 101).unwrap();
    assert_eq!(two.get(&TEST, 1).unwrap(), Some(10));
    one.put(&TEST, 1, 11).unwrap();
    commits(&store, one);
    assert_eq!(two.get(&TEST, 1).unwrap(), Some(10), "one version");
    conflicts(&store, two, 1);
    assert_eq!(change(&store).get(&TEST, 1).unwrap(), Some(11));
}

#[test]
fn g1b_what_a_transaction_writes_between_is_not_read() {
    let store = store();
    let first = |mut one: WriteTxn<'_>| {
        one.put(&TEST, 1, 101).unwrap();
        let snapshot = store.snapshot();
        one.put(&TEST, 1, 11).unwrap();
        one.commit().unwrap();
        assert_eq!(snapshot.get(&TEST, 1).unwrap(), Some(10));
    };
    overlap(&store, first, |two| assert_eq!(two.get(&TEST, 1).unwrap(), Some(11)));
}

#[test]
fn g1c_changes_do_not_read_each_other() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    one.put(&TEST, 1, 11).unwrap();
    two.put(&TEST, 2, 22).unwrap();
    assert_eq!(one.get(&TEST, 2).unwrap(), Some(20));
    assert_eq!(two.get(&TEST, 1).unwrap(), Some(10));
    commits(&store, one);
    conflicts(&store, two, 1);
}

#[test]
fn g1c_transactions_do_not_read_each_other() {
    let store = store();
    let first = |mut one: WriteTxn<'_>| {
        one.put(&TEST, 1, 11).unwrap();
        assert_eq!(one.get(&TEST, 2).unwrap(), Some(20));
        one.commit().unwrap();
    };
    overlap(&store, first, |two| {
        two.put(&TEST, 2, 22).unwrap();
        assert_eq!(two.get(&TEST, 1).unwrap(), Some(11));
    });
}

#[test]
fn otv_a_change_that_was_observed_does_not_vanish() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    one.put(&TEST, 1, 11).unwrap();
    one.put(&TEST, 2, 19).unwrap();
    two.put(&TEST, 1, 12).unwrap();
    commits(&store, one);
    let three = change(&store);
    assert_eq!(three.get(&TEST, 1).unwrap(), Some(11));
    two.put(&TEST, 2, 18).unwrap();
    commits(&store, two);
    assert_eq!((three.get(&TEST, 2).unwrap(), three.get(&TEST, 1).unwrap()), (Some(19), Some(11)));
    conflicts(&store, three, 1);
    assert_eq!(rows(&store.snapshot()), [(1, 12), (2, 18)]);
}

#[test]
fn otv_a_transaction_that_was_observed_does_not_vanish() {
    let store = store();
    let mut one = store.begin();
    one.put(&TEST, 1, 11).unwrap();
    one.put(&TEST, 2, 19).unwrap();
    one.commit().unwrap();
    let three = store.snapshot();
    assert_eq!(three.get(&TEST, 1).unwrap(), Some(11));
    let mut two = store.begin();
    two.put(&TEST, 1, 12).unwrap();
    two.put(&TEST, 2, 18).unwrap();
    assert_eq!(three.get(&TEST, 2).unwrap(), Some(19));
    two.commit().unwrap();
    assert_eq!(rows(&three), [(1, 11), (2, 19)]);
}

#[test]
fn pmp_rows_that_match_later_are_seen_by_the_commit_of_a_change() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    assert_eq!(find(&one, |value| value == 30), [0; 0]);
    two.put(&TEST, 3, 30).unwrap();
    commits(&store, two);
    assert_eq!(find(&one, |value| value % 3 == 0), [0; 0], "one version");
    one.put(&TEST, 1, 0).unwrap();
    conflicts(&store, one, 3);
}

#[test]
fn pmp_rows_that_matched_before_are_seen_by_the_commit_of_a_change() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    for (key, value) in rows(&one) {
        one.put(&TEST, key, value + 10).unwrap();
    }
    for key in find(&two, |value| value == 20) {
        two.remove(&TEST, key).unwrap();
    }
    commits(&store, one);
    conflicts(&store, two, 1);
    assert_eq!(rows(&store.snapshot()), [(1, 20), (2, 30)]);
}

#[test]
fn pmp_rows_that_match_later_are_seen_by_the_later_transaction() {
    let store = store();
    let first = |mut one: WriteTxn<'_>| {
        for (key, value) in rows(&one) {
            one.put(&TEST, key, value + 10).unwrap();
        }
        one.commit().unwrap();
    };
    overlap(&store, first, |two| {
        for key in find(two, |value| value == 20) {
            two.remove(&TEST, key).unwrap();
        }
    });
    assert_eq!(rows(&store.snapshot()), [(2, 30)]);
}

#[test]
fn p4_no_update_of_a_change_is_lost() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    for change in [&mut one, &mut two] {
        let value = change.get(&TEST, 1).unwrap().unwrap();
        change.put(&TEST, 1, value + 1).unwrap();
    }
    commits(&store, one);
    conflicts(&store, two, 1);
    assert_eq!(store.snapshot().get(&TEST, 1).unwrap(), Some(11));
}

#[test]
fn p4_no_update_of_a_transaction_is_lost() {
    let store = store();
    let add = |txn: &mut WriteTxn<'_>| {
        let value = txn.get(&TEST, 1).unwrap().unwrap();
        txn.put(&TEST, 1, value + 1).unwrap();
    };
    let first = |mut one: WriteTxn<'_>| {
        add(&mut one);
        one.commit().unwrap();
    };
    overlap(&store, first, add);
    assert_eq!(store.snapshot().get(&TEST, 1).unwrap(), Some(12));
}

#[test]
fn g_single_a_change_reads_one_version() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    assert_eq!(one.get(&TEST, 1).unwrap(), Some(10));
    two.put(&TEST, 1, 12).unwrap();
    two.put(&TEST, 2, 18).unwrap();
    commits(&store, two);
    assert_eq!(one.get(&TEST, 2).unwrap(), Some(20));
    for key in find(&one, |value| value == 20) {
        one.remove(&TEST, key).unwrap();
    }
    conflicts(&store, one, 1);
    assert_eq!(rows(&store.snapshot()), [(1, 12), (2, 18)]);
}

#[test]
fn g_single_a_snapshot_reads_one_version_of_transactions() {
    let store = store();
    let one = store.snapshot();
    assert_eq!(one.get(&TEST, 1).unwrap(), Some(10));
    let mut two = store.begin();
    two.put(&TEST, 1, 12).unwrap();
    two.put(&TEST, 2, 18).unwrap();
    two.commit().unwrap();
    assert_eq!(one.get(&TEST, 2).unwrap(), Some(20));
}

#[test]
fn g2_item_changes_that_read_what_the_other_writes_do_not_both_commit() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    for change in [&one, &two] {
        assert_eq!([1, 2].map(|key| change.get(&TEST, key).unwrap()), [Some(10), Some(20)]);
    }
    one.put(&TEST, 1, 11).unwrap();
    two.put(&TEST, 2, 21).unwrap();
    commits(&store, one);
    conflicts(&store, two, 1);
    assert_eq!(rows(&store.snapshot()), [(1, 11), (2, 20)]);
}

#[test]
fn g2_item_the_later_transaction_reads_what_the_other_wrote() {
    let store = store();
    let first = |mut one: WriteTxn<'_>| {
        assert_eq!(rows(&one), [(1, 10), (2, 20)]);
        one.put(&TEST, 1, 11).unwrap();
        one.commit().unwrap();
    };
    overlap(&store, first, |two| {
        assert_eq!(rows(two), [(1, 11), (2, 20)]);
        two.put(&TEST, 2, 21).unwrap();
    });
}

#[test]
fn g2_changes_that_look_where_the_other_inserts_do_not_both_commit() {
    let store = store();
    let (mut one, mut two) = (change(&store), change(&store));
    for change in [&one, &two] {
        assert_eq!(find(change, |value| value % 3 == 0), [0; 0]);
    }
    one.put(&TEST, 3, 30).unwrap();
    two.put(&TEST, 4, 42).unwrap();
    commits(&store, one);
    conflicts(&store, two, 3);
    assert_eq!(rows(&store.snapshot()), [(1, 10), (2, 20), (3, 30)]);
}

#[test]
fn g2_the_later_transaction_finds_what_the_other_inserted() {
    let store = store();
    let first = |mut one: WriteTxn<'_>| {
        assert_eq!(find(&one, |value| value % 3 == 0), [0; 0]);
        one.put(&TEST, 3, 30).unwrap();
        one.commit().unwrap();
    };
    overlap(&store, first, |two| {
        assert_eq!(find(two, |value| value % 3 == 0), [3]);
        two.put(&TEST, 4, 42).unwrap();
    });
}
