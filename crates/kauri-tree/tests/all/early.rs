//! Early commits: who sees them, when, and what becomes of them if the disk fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Change, Durability, Early, Error, Options, Outcome, Read, Store, Table, Write};

const ROWS: Table<u64, u64> = Table::new("rows");
const LOG: Table<(u64, u64), u64> = Table::new("log");

/// A store in a file whose first commit, which is a checkpoint, is behind it.
fn store(keeper: bool) -> (MemoryDisk, Store) {
    let disk = MemoryDisk::new();
    let store = Options::new().keeper(keeper).log_bytes(1 << 20).open(&disk, "store").unwrap();
    put(&store, 0, 0);
    (disk, store)
}

fn put(store: &Store, key: u64, value: u64) {
    let mut txn = store.begin();
    txn.put(&ROWS, key, value).unwrap();
    txn.commit().unwrap();
}

fn value(rows: &impl Read, key: u64) -> Option<u64> {
    rows.get(&ROWS, key).unwrap()
}

/// Adds one to a row, on top of an early commit.
fn count(store: &Store, key: u64, on: &Early) -> (Outcome, Early) {
    let mut change = Change::new(store.snapshot_with(on).unwrap());
    let next = change.get(&ROWS, key).unwrap().unwrap_or(0) + 1;
    change.put(&ROWS, key, next).unwrap();
    store.commit_early(change, Durability::Sync, || ()).unwrap()
}

#[test]
fn early_commit_is_seen_by_its_maker_alone_until_it_is_durable() {
    let (_disk, store) = store(false);
    let (outcome, first) = count(&store, 1, &Early::default());
    assert!(outcome.is_committed());
    let (outcome, second) = count(&store, 1, &first);
    assert!(outcome.is_committed());
    let of_first = store.snapshot_with(&first).unwrap();
    assert_eq!((value(&of_first, 1), value(&store.snapshot(), 1)), (Some(1), None));
    assert_eq!(value(&store.snapshot_with(&second).unwrap(), 1), Some(2));
    store.wait_early(&first).unwrap();
    // Whoever waits writes everything that is there to be written.
    assert_eq!((value(&of_first, 1), value(&store.snapshot(), 1)), (Some(1), Some(2)));
    assert_eq!(value(&store.snapshot_with(&first).unwrap(), 1), Some(2), "it, or what everybody sees");
    store.wait_early(&second).unwrap();
    drop(of_first);
    store.verify().unwrap();
}

#[test]
fn others_commit_on_top_of_an_early_commit_and_conflict_with_it() {
    let (_disk, store) = store(false);
    let mut reads = Change::new(store.snapshot());
    assert_eq!(reads.get(&ROWS, 1).unwrap(), None);
    reads.put(&ROWS, 9, 9).unwrap();
    let (_, early) = count(&store, 1, &Early::default());
    assert!(!store.commit(reads).unwrap().is_committed(), "it had read what is there now");
    assert_eq!(value(&store.snapshot(), 1), Some(1), "whoever is told of a conflict sees why");
    put(&store, 1, 10);
    // Its maker goes on from what everybody sees, if that is later.
    assert_eq!(value(&store.snapshot_with(&early).unwrap(), 1), Some(10));
    let mut change = Change::new(store.snapshot());
    assert_eq!(change.get(&ROWS, 1).unwrap(), Some(10));
    change.append(&LOG, &7_u64.to_be_bytes(), 1).unwrap();
    put(&store, 1, 11);
    let (outcome, _early) = store.commit_early(change, Durability::Sync, || ()).unwrap();
    assert!(!outcome.is_committed());
    assert_eq!(store.snapshot().len(&LOG).unwrap(), 0);
}

#[test]
fn what_comes_then_is_done_once_when_it_is_durable() {
    let (_disk, store) = store(false);
    let told = Arc::new(AtomicU64::new(0));
    let mut change = Change::new(store.snapshot());
    change.put(&ROWS, 1, 1).unwrap();
    let (tells, other) = (Arc::clone(&told), store.clone());
    let then = move || {
        assert_eq!(value(&other.snapshot(), 1), Some(1), "whoever is told sees it");
        tells.fetch_add(1, Ordering::Relaxed);
    };
    let (_, early) = store.commit_early(change, Durability::Sync, then).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 0);
    store.wait_early(&early).unwrap();
    store.wait_early(&early.clone()).unwrap();
    assert_eq!(told.load(Ordering::Relaxed), 1);
}

#[test]
fn transaction_that_is_committed_early_has_its_nests() {
    let (_disk, store) = store(false);
    let mut txn = store.begin();
    txn.put(&ROWS, 1, 1).unwrap();
    let mut nest = txn.nest();
    nest.put(&ROWS, 2, 2).unwrap();
    let inner = nest.commit_early(Durability::Sync, || unreachable!("it is part of the other")).unwrap();
    store.wait_early(&inner).unwrap();
    let early = txn.commit_early(Durability::Sync, || ()).unwrap();
    assert_eq!([1, 2].map(|key| value(&store.snapshot(), key)), [None; 2]);
    assert_eq!([1, 2].map(|key| value(&store.snapshot_with(&early).unwrap(), key)), [Some(1), Some(2)]);
    store.wait_early(&early).unwrap();
    assert_eq!([1, 2].map(|key| value(&store.snapshot(), key)), [Some(1), Some(2)]);
    store.verify().unwrap();
}

#[test]
fn scribe_makes_an_early_commit_durable_that_nobody_waits_for() {
    let (_disk, store) = store(true);
    let (told, hears) = std::sync::mpsc::channel();
    let mut change = Change::new(store.snapshot());
    change.put(&ROWS, 1, 1).unwrap();
    drop(store.commit_early(change, Durability::Sync, move || told.send(()).unwrap()).unwrap());
    hears.recv().unwrap();
    assert_eq!(value(&store.snapshot(), 1), Some(1));
}

#[test]
fn early_commit_that_nobody_waits_for_is_there_when_the_store_is_opened_again() {
    let (disk, store) = store(false);
    let (_, early) = count(&store, 1, &Early::default());
    drop((early, store));
    let store = Options::new().keeper(false).open(&disk, "store").unwrap();
    assert_eq!(value(&store.snapshot(), 1), Some(1));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "threads are what is tested")]
fn threads_that_commit_early_lose_nothing() {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    for keeper in [true, false] {
        let (disk, store) = store(keeper);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let store = &store;
                scope.spawn(move || {
                    let (mut before, mut last) = (Early::default(), Early::default());
                    let mut done = 0;
                    while done < EACH {
                        // A row of its own, and one that all of them count in.
                        let own = own_key(thread);
                        let mut change = Change::new(store.snapshot_with(&last).unwrap());
                        for key in [own, 100] {
                            let next = change.get(&ROWS, key).unwrap().unwrap_or(0) + 1;
                            change.put(&ROWS, key, next).unwrap();
                        }
                        change.append(&LOG, &own.to_be_bytes(), done).unwrap();
                        let (outcome, early) = store.commit_early(change, Durability::Sync, || ()).unwrap();
                        if outcome.is_committed() {
                            assert_eq!(value(&store.snapshot_with(&early).unwrap(), own), Some(done + 1));
                            store.wait_early(&before).unwrap();
                            (before, last) = (last, early);
                            done += 1;
                        }
                    }
                    store.wait_early(&last).unwrap();
                    assert_eq!(value(&store.snapshot(), own_key(thread)), Some(EACH));
                });
            }
        });
        let check = |store: &Store| {
            let rows = store.snapshot();
            assert_eq!((value(&rows, 100), rows.len(&LOG).unwrap()), (Some(THREADS * EACH), THREADS * EACH));
            store.verify().unwrap();
        };
        check(&store);
        drop(store);
        check(&Options::new().open(&disk, "store").unwrap());
    }
}

fn own_key(thread: u64) -> u64 {
    1 + thread
}

#[test]
fn early_commit_of_another_store_is_refused() {
    let ((_disk, store), (_other_disk, other)) = (store(false), store(false));
    let (_, early) = count(&other, 1, &Early::default());
    assert!(matches!(store.snapshot_with(&early), Err(Error::OtherStore)));
    assert!(matches!(store.wait_early(&early), Err(Error::OtherStore)));
    let change = Change::new(other.snapshot());
    assert!(matches!(store.commit_early(change, Durability::Sync, || ()), Err(Error::OtherStore)));
}

#[test]
fn in_memory_an_early_commit_is_seen_by_everybody_at_once() {
    let store = Store::in_memory().unwrap();
    let (_, early) = count(&store, 1, &Early::default());
    assert_eq!((value(&store.snapshot(), 1), value(&store.snapshot_with(&early).unwrap(), 1)), (Some(1), Some(1)));
    store.wait_early(&early).unwrap();
}
