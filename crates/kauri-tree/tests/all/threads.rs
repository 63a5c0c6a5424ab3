//! Many threads on one store: commits in groups, and readers that see whole commits only.
#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Durability, Options, Read, Store, Table, Write};

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
