//! Many threads on one store: commits in groups, and readers that see whole commits only.
#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Change, Durability, Options, Read, Store, Table, Write};

use crate::watched::watched;

const ACCOUNTS: Table<u32, i64> = Table::new("accounts");
const DONE: Table<(u32, u32), ()> = Table::new("done");

const WORKERS: u32 = 6;
const TRANSFERS: u32 = 150;
const PEOPLE: u32 = 10;

/// Moves money between two accounts, and notes that it did, in one commit.
fn transfer(store: &Store, worker: u32, number: u32) {
    let (from, to) = ((worker * 7 + number) % PEOPLE, (worker + number * 3 + 1) % PEOPLE);
    let mut txn = store.begin();
    for (account, amount) in [(from, -5), (to, 5)] {
        let balance = txn.get(&ACCOUNTS, account).unwrap().unwrap_or(0);
        txn.put(&ACCOUNTS, account, balance + amount).unwrap();
    }
    txn.put(&DONE, (worker, number), ()).unwrap();
    let durability = if number.is_multiple_of(4) { Durability::None } else { Durability::Sync };
    txn.commit_with(durability).unwrap();
    assert!(store.snapshot().contains(&DONE, (worker, number)).unwrap(), "what was committed is seen");
}

/// Looks at versions until it is told to stop: each is whole, and none is older than one seen before.
fn watch(store: &Store, stop: &AtomicBool) -> u64 {
    let (mut looks, mut last) = (0, (0, 0));
    while !stop.load(Ordering::Relaxed) || looks == 0 {
        let snapshot = store.snapshot();
        let sum: i64 = snapshot.scan(&ACCOUNTS).unwrap().map(|_, balance| balance).map(Result::unwrap).sum();
        assert_eq!(sum, 0, "money is neither made nor lost");
        let seen = (snapshot.version(), snapshot.len(&DONE).unwrap());
        assert!(seen.0 >= last.0 && seen.1 >= last.1, "{seen:?} after {last:?}");
        last = seen;
        looks += 1;
    }
    looks
}

fn check(store: &Store) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = [(); 2].map(|()| scope.spawn(|| watch(store, &stop)));
        let writers: Vec<_> = (0..WORKERS)
            .map(|worker| scope.spawn(move || (0..TRANSFERS).for_each(|number| transfer(store, worker, number))))
            .collect();
        let wrote: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(wrote.iter().all(Result::is_ok), "a writer panicked");
        assert!(readers.into_iter().all(|reader| reader.join().is_ok_and(|looks| looks > 0)), "a reader panicked");
    });
    check_whole(store);
}

fn check_whole(store: &Store) {
    assert_eq!(store.snapshot().len(&DONE).unwrap(), u64::from(WORKERS * TRANSFERS));
    store.verify().unwrap();
}

#[test]
fn threads_share_a_store_in_memory() {
    check(&Store::in_memory().unwrap());
}

#[test]
fn threads_share_a_store_in_a_file() {
    let disk = MemoryDisk::new();
    // A small log, so that checkpoints come between.
    let options = Options::new().page_bytes(512).log_bytes(1 << 16);
    check(&options.open(&disk, "store").unwrap());
    check_whole(&options.open(&disk, "store").unwrap());
}

/// Threads read what a transaction has and nobody else sees; then it goes on.
fn check_views(store: &Store) {
    const ROWS: u32 = 2_000;
    let expected = |from: u32| (from..ROWS).step_by(4).map(i64::from).sum::<i64>();
    let mut txn = store.begin();
    for account in 0..ROWS {
        txn.put(&ACCOUNTS, account, i64::from(account)).unwrap();
    }
    let mut nest = txn.nest();
    nest.put(&DONE, (1, 1), ()).unwrap();
    let view = nest.view();
    thread::scope(|scope| {
        for from in 0..4 {
            scope.spawn(move || {
                let accounts = (from..ROWS).step_by(4);
                let found: i64 = accounts.map(|account| view.get(&ACCOUNTS, account).unwrap().unwrap()).sum();
                assert_eq!(found, expected(from));
                assert_eq!((view.len(&ACCOUNTS).unwrap(), view.contains(&DONE, (1, 1)).unwrap()), (2_000, true));
                assert_eq!(store.snapshot().len(&ACCOUNTS).unwrap(), 0, "it is not committed");
            });
        }
    });
    drop(nest);
    txn.put(&ACCOUNTS, 0, 5).unwrap();
    let view = txn.view();
    assert_eq!((view.get(&ACCOUNTS, 0).unwrap(), view.len(&DONE).unwrap()), (Some(5), 0));
    let rows = view.scan(&ACCOUNTS).unwrap().map(|_, _| ()).count();
    assert_eq!(rows, ROWS as usize);
    txn.commit().unwrap();
    assert_eq!(store.snapshot().get(&ACCOUNTS, 0).unwrap(), Some(5));
}

#[test]
fn threads_read_a_transaction_that_is_not_committed() {
    check_views(&Options::new().page_bytes(256).in_memory().unwrap());
    check_views(&Options::new().page_bytes(512).log_bytes(1 << 16).open(&MemoryDisk::new(), "store").unwrap());
}

#[test]
fn who_reads_a_commit_that_is_on_its_way_finds_it_in_the_next_snapshot() {
    let (disk, watch) = watched();
    let store = &Options::new().open(&disk, "store").unwrap();
    let put = |account| {
        let mut txn = store.begin();
        txn.put(&ACCOUNTS, account, 0).unwrap();
        txn.commit().unwrap();
    };
    put(0);
    watch.waits.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| put(1));
        let look = || loop {
            let txn = store.begin();
            if txn.contains(&ACCOUNTS, 1).unwrap() {
                txn.commit().unwrap();
                return store.snapshot().contains(&ACCOUNTS, 1).unwrap();
            }
        };
        let look = scope.spawn(look);
        // Time enough to return too early.
        for _ in 0..1_000 {
            thread::yield_now();
        }
        watch.waits.store(false, Ordering::Relaxed);
        assert!(look.join().unwrap());
    });
}

#[test]
fn conflict_is_told_when_it_can_be_seen() {
    let (disk, watch) = watched();
    let store = &Options::new().open(&disk, "store").unwrap();
    let add = |change: &mut Change<'_>| {
        let balance = change.get(&ACCOUNTS, 1).unwrap().unwrap_or(0);
        change.put(&ACCOUNTS, 1, balance + 1).unwrap();
    };
    let mut first = Change::new(store.snapshot());
    add(&mut first);
    assert!(store.commit(first).unwrap().is_committed());

    let [mut first, mut second] = [(); 2].map(|()| Change::new(store.snapshot()));
    add(&mut first);
    add(&mut second);
    watch.waits.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| assert!(store.commit(first).unwrap().is_committed()));
        while store.begin().get(&ACCOUNTS, 1).unwrap() != Some(2) {}
        let look = scope.spawn(|| {
            assert!(!store.commit(second).unwrap().is_committed());
            store.snapshot().get(&ACCOUNTS, 1).unwrap()
        });
        // Time enough to return too early.
        for _ in 0..1_000 {
            thread::yield_now();
        }
        watch.waits.store(false, Ordering::Relaxed);
        assert_eq!(look.join().unwrap(), Some(2));
    });
}

#[test]
fn threads_bring_the_same_pages_into_memory_at_once() {
    const ROWS: u32 = 3_000;
    let (disk, watch) = watched();
    let options = Options::new().page_bytes(512).log_bytes(1 << 16);
    let long = Table::<u32, [u8]>::new("long");
    let store = options.open(&disk, "store").unwrap();
    let mut txn = store.begin();
    for account in 0..ROWS {
        txn.put(&ACCOUNTS, account, 1).unwrap();
        txn.put(&long, account % 50, &[7; 2_000]).unwrap();
    }
    txn.commit().unwrap();
    drop(store);

    watch.yields.store(2, Ordering::Relaxed);
    let store = &options.open(&disk, "store").unwrap();
    let txn = store.begin();
    let view = txn.view();
    let look = |from: &dyn Fn(u32) -> (i64, usize)| {
        assert!((0..ROWS).map(from).all(|found| found == (1, 2_000)));
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            let snapshot = store.snapshot();
            let table = &long;
            scope.spawn(move || {
                look(&|row| {
                    let value = snapshot.get(table, row % 50).unwrap().unwrap();
                    (snapshot.get(&ACCOUNTS, row).unwrap().unwrap(), value.len())
                });
            });
            scope.spawn(move || {
                look(&|row| {
                    let value = view.get(table, row % 50).unwrap().unwrap();
                    (view.get(&ACCOUNTS, row).unwrap().unwrap(), value.len())
                });
            });
        }
    });
}

#[test]
fn threads_share_a_range_of_a_transaction_that_is_not_committed() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.load_sorted(&ACCOUNTS, (0..10_000).map(|account| (account, account.into()))).unwrap();
    let parts = txn.scan(&ACCOUNTS).unwrap().from(1_000).split(4).unwrap();
    let sums = thread::scope(|scope| {
        let add = |part: kauri_tree::Scan<'_, u32, i64>| part.map(|_, balance| balance).map(Result::unwrap).sum();
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || add(part))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<i64>>()
    });
    assert_eq!((sums.len(), sums.iter().sum::<i64>()), (4, (1_000..10_000).sum()));
}
