//! Stores longer than the memory they may use: the same rows, in less of it.
#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Change, Durability, Options, Read, Snapshot, Store, Table, Write};

use crate::random::Random;

const ROWS: Table<[u8], [u8]> = Table::new("rows");
const ACCOUNTS: Table<u32, [u8]> = Table::new("accounts");
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A cache of 32 pages, the least there is.
fn options(page_bytes: usize) -> Options {
    Options::new().page_bytes(page_bytes).log_bytes(1).cache_bytes(0).keeper(false)
}

/// Everything that can be read, compared with what it should be.
fn check(snapshot: &Snapshot<'_>, model: &Model, random: &mut Random) {
    let rows = snapshot.scan(&ROWS).unwrap().map(|key, value| (key.to_vec(), value.into_owned()));
    assert_eq!(&rows.collect::<Result<Model, _>>().unwrap(), model);
    let mut back = snapshot.scan(&ROWS).unwrap();
    for (key, value) in model.iter().rev() {
        assert_eq!(back.previous().unwrap().unwrap(), (&**key, value.into()));
    }
    assert!(back.previous().unwrap().is_none() && back.next().unwrap().is_none());
    for _ in 0..20 {
        let (from, until) = (random.key(20, 500), random.key(20, 500));
        let inside: Vec<_> =
            model.iter().filter(|(key, _)| **key >= from && **key < until).map(|(key, _)| key.clone()).collect();
        let mut scan = snapshot.scan(&ROWS).unwrap().from(&from).until(&until);
        assert_eq!(scan.count().unwrap(), inside.len() as u64);
        let (mut front, mut back) = (0, inside.len());
        while front < back {
            if random.below(2) == 0 {
                assert_eq!(scan.next().unwrap().unwrap().0, inside[front]);
                front += 1;
            } else {
                back -= 1;
                assert_eq!(scan.previous().unwrap().unwrap().0, inside[back]);
            }
            assert_eq!(scan.count().unwrap(), (back - front) as u64);
        }
        assert!(scan.next().unwrap().is_none() && scan.previous().unwrap().is_none());
        let mut scan = snapshot.scan(&ROWS).unwrap().from(&from).until(&until);
        let mut at = 0;
        while at < inside.len() {
            let skipped = random.below(20);
            let row = scan.nth(skipped as u64).unwrap();
            assert_eq!(row.map(|(key, _)| key), inside.get(at + skipped).map(|key| &**key));
            at += skipped + 1;
        }
        let parts = snapshot.scan(&ROWS).unwrap().from(&from).until(&until).split(3).unwrap();
        let rows = parts.into_iter().flat_map(|part| part.map(|key, _| key.to_vec()));
        assert_eq!(rows.collect::<Result<Vec<_>, _>>().unwrap(), inside);
        assert_eq!(snapshot.rank(&ROWS, &from).unwrap(), model.range(..from.clone()).count() as u64);
        assert_eq!(snapshot.get(&ROWS, &from).unwrap().as_deref(), model.get(&from).map(|value| &**value));
        assert_eq!(snapshot.contains(&ROWS, &until).unwrap(), model.contains_key(&until));
    }
}

#[test]
fn a_store_in_little_memory_agrees_with_a_map() {
    for page_bytes in [256, 4096] {
        let disk = MemoryDisk::new();
        let (mut model, mut random) = (Model::new(), Random(page_bytes as u64));
        for _ in 0..3 {
            let store = options(page_bytes).open(&disk, "store").unwrap();
            for _ in 0..8 {
                let held = (store.snapshot(), model.clone());
                let mut txn = store.begin();
                for _ in 0..random.below(60) {
                    let key = random.key(20, 500);
                    if random.below(4) == 0 {
                        assert_eq!(txn.remove(&ROWS, &key).unwrap(), model.remove(&key).is_some());
                    } else {
                        let value = random.value(page_bytes);
                        txn.put(&ROWS, &key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                txn.commit().unwrap();
                check(&store.snapshot(), &model, &mut random);
                check(&held.0, &held.1, &mut random);
            }
            store.verify().unwrap();
        }
    }
}

#[test]
fn changes_see_and_compare_rows_that_left_memory() {
    let disk = MemoryDisk::new();
    let (mut model, mut random) = (Model::new(), Random(9));
    let store = options(256).open(&disk, "store").unwrap();
    for round in 0..150 {
        let mut change = Change::new(store.snapshot());
        for _ in 0..10 {
            let key = random.key(20, 500);
            assert_eq!(change.get(&ROWS, &key).unwrap().as_deref(), model.get(&key).map(|value| &**value));
            let value = random.value(256);
            change.put(&ROWS, &key, &value).unwrap();
            model.insert(key, value);
        }
        let seen = change.scan(&ROWS).unwrap().map(|key, value| (key.to_vec(), value.into_owned()));
        assert_eq!(seen.collect::<Result<Model, _>>().unwrap(), model, "round {round}");
        assert!(store.commit(change).unwrap().is_committed());
    }
    store.verify().unwrap();
}

fn number(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

#[test]
fn memory_stays_bounded_whatever_is_read_and_written() {
    const CACHE_PAGES: usize = 200;
    let disk = MemoryDisk::new();
    let options = Options::new().log_bytes(1 << 20).cache_bytes(CACHE_PAGES * 4096).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    // A checkpoint comes when a quarter of it is new; until its pages are written they stay.
    let check = |store: &Store| {
        let stat = store.stat();
        assert!(stat.resident_pages < 2 * CACHE_PAGES, "{stat:?}");
    };
    for batch in 0..100 {
        let mut txn = store.begin();
        for key in 0..100 {
            txn.put(&ROWS, &number(batch * 100 + key), &[7; 400]).unwrap();
        }
        txn.commit_with(Durability::None).unwrap();
        check(&store);
    }
    assert!(store.stat().pages > 5 * CACHE_PAGES, "{:?}", store.stat());
    // One snapshot, all of it, twice; and one key after the other.
    let snapshot = store.snapshot();
    for _ in 0..2 {
        assert_eq!(snapshot.scan(&ROWS).unwrap().map(|_, value| value.len()).count(), 10_000);
        check(&store);
    }
    for key in 0..10_000 {
        assert_eq!(snapshot.get(&ROWS, &number(key * 7919 % 10_000)).unwrap().unwrap().len(), 400);
    }
    check(&store);
    let mut txn = store.begin();
    for key in 0..300 {
        txn.remove(&ROWS, &number(key * 7919 % 10_000)).unwrap();
    }
    txn.commit().unwrap();
    store.checkpoint().unwrap();
    check(&store);
    store.verify().unwrap();
}

/// Money moves between accounts in many pages; whoever looks finds all of it.
#[test]
fn threads_read_and_write_more_than_fits_memory() {
    const PEOPLE: u32 = 600;
    const PER_PERSON: i64 = 100;
    let balance = |bytes: &[u8]| i64::from_le_bytes(bytes[..8].try_into().unwrap());
    let account = |balance: i64| [&balance.to_le_bytes()[..], &[7; 200]].concat();
    let disk = MemoryDisk::new();
    let store = Options::new().page_bytes(512).log_bytes(1 << 16).cache_bytes(0).open(&disk, "store").unwrap();
    let mut txn = store.begin();
    for person in 0..PEOPLE {
        txn.put(&ACCOUNTS, person, &account(PER_PERSON)).unwrap();
    }
    txn.commit().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (store, stop) = (&store, &stop);
        let readers = [1_u64, 2].map(|seed| {
            scope.spawn(move || {
                let mut random = Random(seed);
                while !stop.load(Ordering::Relaxed) {
                    let snapshot = store.snapshot();
                    let all = snapshot.scan(&ACCOUNTS).unwrap().map(|_, bytes| balance(&bytes));
                    assert_eq!(all.sum::<Result<i64, _>>().unwrap(), PER_PERSON * i64::from(PEOPLE));
                    for _ in 0..50 {
                        let person = random.below(PEOPLE as usize) as u32;
                        assert_eq!(snapshot.get(&ACCOUNTS, person).unwrap().unwrap().len(), 208);
                    }
                }
            })
        });
        let writers = [3_u64, 4].map(|seed| {
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..400 {
                    let mut txn = store.begin();
                    for amount in [-5, 5] {
                        let person = random.below(PEOPLE as usize) as u32;
                        let old = balance(&txn.get(&ACCOUNTS, person).unwrap().unwrap());
                        txn.put(&ACCOUNTS, person, &account(old + amount)).unwrap();
                    }
                    txn.commit_with(Durability::None).unwrap();
                }
            })
        });
        let wrote: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(wrote.iter().all(Result::is_ok), "a writer panicked");
        assert!(readers.into_iter().all(|reader| reader.join().is_ok()), "a reader panicked");
    });
    store.verify().unwrap();
}
