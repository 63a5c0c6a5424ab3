//! Errands: who does them, when and together with what, and what is left of one that was not to stay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use kauri_tree::disk::testing::{Call, TwistedDisk};
use kauri_tree::disk::{Disk, MemoryDisk};
use kauri_tree::{Change, Durability, Errand, Error, Options, Outcome, Posted, Read, Result, Store, Table, Write};

const ROWS: Table<u64, u64> = Table::new("rows");
const LOG: Table<(u64, u64), u64> = Table::new("log");
/// As long as a machine that does other things needs.
const LONG: Duration = Duration::from_secs(60);

/// A store in a file whose first commit, which is a checkpoint, is behind it.
fn store(disk: &dyn Disk, keeper: bool) -> Store {
    let store = Options::new().keeper(keeper).log_bytes(1 << 20).open(disk, "store").unwrap();
    let mut txn = store.begin();
    txn.put(&ROWS, 0, 0).unwrap();
    txn.commit().unwrap();
    store
}

fn done() -> Result<Outcome> {
    Ok(Outcome::Committed { sequences: Vec::new() })
}

fn refused(key: u64) -> Result<Outcome> {
    Ok(Outcome::Conflict { table: "rows".into(), key: key.to_be_bytes()[..].into() })
}

/// Adds one to a row.
fn count(key: u64) -> Errand {
    Errand::new(move |txn| {
        txn.add(&ROWS, key, 1)?;
        done()
    })
}

/// Writes something, and finds that it must not.
fn regret(key: u64) -> Errand {
    Errand::new(move |txn| {
        txn.put(&ROWS, key, 7)?;
        txn.put(&LOG, (key, 1), 7)?;
        refused(key)
    })
}

fn value(store: &Store, key: u64) -> Option<u64> {
    store.snapshot().get(&ROWS, key).unwrap()
}

/// How far versions go on.
fn versions(store: &Store, work: impl FnOnce()) -> u64 {
    let before = store.snapshot().version();
    work();
    store.snapshot().version() - before
}

#[test]
fn errands_are_done_together_by_whoever_settles_first() {
    let store = store(&MemoryDisk::new(), false);
    let alone = versions(&store, || drop(store.post(count(1)).settle().unwrap()));
    let posted: Vec<Posted> = (0..8).map(|_| store.post(count(1))).collect();
    assert_eq!(value(&store, 1), Some(1), "nobody has done them");
    let together = versions(&store, || {
        // In any order.
        for posted in posted.into_iter().rev() {
            assert!(posted.settle().unwrap().is_committed());
            assert_eq!(value(&store, 1), Some(9));
        }
    });
    assert_eq!(together, alone, "one transaction");
    store.verify().unwrap();
}

#[test]
fn errands_are_done_with_the_next_change_that_is_committed() {
    let store = store(&MemoryDisk::new(), false);
    let posted = store.post(count(1));
    drop(store.post(count(1)));
    let mut change = Change::new(store.snapshot());
    change.put(&ROWS, 2, 2).unwrap();
    assert!(store.commit(change).unwrap().is_committed());
    assert_eq!((value(&store, 1), value(&store, 2)), (Some(2), Some(2)));
    assert!(posted.settle().unwrap().is_committed());
    assert!(store.perform(count(1)).unwrap().is_committed());
    assert_eq!(value(&store, 1), Some(3));
}

#[test]
fn errand_that_is_not_to_stay_leaves_nothing_and_the_others_whole() {
    for in_memory in [false, true] {
        let store = if in_memory { Store::in_memory().unwrap() } else { store(&MemoryDisk::new(), false) };
        let posted = [count(1), regret(2), count(1), regret(3)].map(|errand| store.post(errand));
        let outcomes = posted.map(|posted| posted.settle().unwrap());
        assert_eq!(outcomes.each_ref().map(Outcome::is_committed), [true, false, true, false]);
        assert_eq!(outcomes[3], refused(3).unwrap());
        assert_eq!([1, 2, 3].map(|key| value(&store, key)), [Some(2), None, None]);
        assert_eq!(store.snapshot().len(&LOG).unwrap(), 0);
        // Alone, too.
        assert!(!store.perform(regret(4)).unwrap().is_committed());
        assert_eq!(value(&store, 4), None);
        store.verify().unwrap();
    }
}

#[test]
fn errand_sees_what_those_before_it_did_and_is_compared_with_it() {
    let store = store(&MemoryDisk::new(), false);
    let take = || {
        Errand::new(|txn| match txn.get(&ROWS, 1)? {
            None | Some(0) => refused(1),
            Some(left) => txn.put(&ROWS, 1, left - 1).and_then(|()| done()),
        })
    };
    let mut posted = vec![store.post(take()), store.post(count(1)), store.post(count(1))];
    posted.extend((0..3).map(|_| store.post(take())));
    let outcomes: Vec<bool> = posted.into_iter().map(|posted| posted.settle().unwrap().is_committed()).collect();
    assert_eq!(outcomes, [false, true, true, true, true, false]);
    assert_eq!(value(&store, 1), Some(0));
}

#[test]
fn errand_that_fails_half_way_tells_why_and_leaves_the_others_whole() {
    let store = store(&MemoryDisk::new(), false);
    let calls = Arc::new(AtomicU64::new(0));
    let called = Arc::clone(&calls);
    let fails = Errand::new(move |txn| {
        called.fetch_add(1, Ordering::Relaxed);
        txn.put(&ROWS, 2, 2)?;
        txn.put(&Table::<u64, str>::new("rows"), 3, "of another type")?;
        done()
    });
    let posted = [count(1), fails, count(1)].map(|errand| store.post(errand));
    let [first, second, third] = posted.map(Posted::settle);
    assert!(first.unwrap().is_committed() && third.unwrap().is_committed());
    assert!(matches!(second, Err(Error::OtherTypes { .. })), "{second:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 2, "once with the others, and then in a nest of its own");
    assert_eq!([1, 2, 3].map(|key| value(&store, key)), [Some(2), None, None]);
    store.verify().unwrap();
}

#[test]
fn panic_of_an_errand_is_that_of_whoever_settles_it() {
    for keeper in [false, true] {
        let store = store(&MemoryDisk::new(), keeper);
        let panics = Errand::new(|txn| {
            txn.put(&ROWS, 2, 2)?;
            panic!("unlucky")
        });
        let posted = [count(1), panics, count(1)].map(|errand| store.post(errand));
        let [first, second, third] = posted.map(|posted| catch_unwind(AssertUnwindSafe(|| posted.settle())));
        assert!(first.unwrap().unwrap().is_committed() && third.unwrap().unwrap().is_committed());
        assert_eq!(second.unwrap_err().downcast_ref(), Some(&"unlucky"));
        assert_eq!((value(&store, 1), value(&store, 2)), (Some(2), None));
        // And others are done afterwards.
        assert!(store.post(count(1)).settle().unwrap().is_committed());
    }
}

#[test]
fn what_comes_then_is_done_once_when_it_is_seen_and_not_after_a_refusal() {
    for keeper in [false, true] {
        let store = store(&MemoryDisk::new(), keeper);
        let told = Arc::new(AtomicU64::new(0));
        let then = |errand: Errand| {
            let (told, other) = (Arc::clone(&told), store.clone());
            errand.then(move || {
                assert_eq!(value(&other, 1), Some(1), "whoever is told sees it");
                told.fetch_add(1, Ordering::Relaxed);
            })
        };
        let posted = [count(1), regret(2)].map(|errand| store.post(then(errand)));
        let outcomes = posted.map(|posted| posted.settle().unwrap().is_committed());
        assert_eq!((outcomes, told.load(Ordering::Relaxed)), ([true, false], 1));
        // One that panics spoils nothing.
        let panics = count(3).then(|| panic!("nobody is to hear of it"));
        assert!(store.post(panics).settle().unwrap().is_committed());
        assert_eq!(value(&store, 3), Some(1));
    }
}

#[test]
fn scribe_does_an_errand_that_nobody_waits_for() {
    let store = store(&MemoryDisk::new(), true);
    let (told, hears) = mpsc::channel();
    drop(store.post(count(1).then(move || told.send(()).unwrap())));
    hears.recv_timeout(LONG).unwrap();
    assert_eq!(value(&store, 1), Some(1));
}

#[test]
fn errand_that_nobody_waits_for_is_there_when_the_store_is_opened_again() {
    for keeper in [false, true] {
        let disk = MemoryDisk::new();
        let store = store(&disk, keeper);
        drop((0..100).map(|_| store.post(count(1))).collect::<Vec<_>>());
        drop(store);
        let again = Options::new().keeper(keeper).open(&disk, "store").unwrap();
        assert_eq!(value(&again, 1), Some(100));
    }
}

#[test]
fn last_handle_may_be_that_of_whoever_hears_of_an_errand() {
    let disk = MemoryDisk::new();
    let store = store(&disk, true);
    let (told, hears) = mpsc::channel();
    let last = store.clone();
    drop(store.post(count(1).then(move || {
        drop(last);
        told.send(()).unwrap();
    })));
    drop(store);
    hears.recv_timeout(LONG).unwrap();
    // The scribe has closed it then, and gives the file up when it ends.
    let again = loop {
        match Options::new().keeper(false).open(&disk, "store") {
            Err(Error::Locked) => thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(value(&again, 1), Some(1));
}

#[test]
fn errand_that_outlives_its_store_is_done_and_keeps_nothing_open() {
    for keeper in [false, true] {
        let disk = MemoryDisk::new();
        let store = store(&disk, keeper);
        let posted = [count(1), regret(2)].map(|errand| store.post(errand));
        drop(store);
        let again = Options::new().keeper(false).open(&disk, "store").unwrap();
        assert_eq!(value(&again, 1), Some(1));
        assert_eq!(posted.map(|posted| posted.settle().unwrap().is_committed()), [true, false]);
    }
}

#[test]
fn long_errands_go_in_several_transactions() {
    for keeper in [false, true] {
        let store = store(&MemoryDisk::new(), keeper);
        let long = |key| count(key).bytes(200 << 10);
        let together = versions(&store, || {
            let posted: Vec<Posted> = (1..=6).map(|key| store.post(long(key))).collect();
            posted.into_iter().for_each(|posted| assert!(posted.settle().unwrap().is_committed()));
        });
        // Two stamps for each transaction and one for its version.
        assert!(together >= 9, "three transactions at least, not {together} stamps");
        assert!((1..=6).all(|key| value(&store, key) == Some(1)));
    }
}

#[test]
fn errand_is_as_durable_as_it_asks() {
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    let disk = TwistedDisk::new(MemoryDisk::new(), move |call, go| {
        counted.fetch_add(u64::from(matches!(call, Call::WriteDurableAt(..) | Call::Sync(_))), Ordering::Relaxed);
        go()
    });
    let store = store(&disk, false);
    for (durability, expected) in [(Durability::None, 0), (Durability::Sync, 1)] {
        let before = syncs.load(Ordering::Relaxed);
        assert!(store.post(count(1).durability(durability)).settle().unwrap().is_committed());
        assert_eq!(syncs.load(Ordering::Relaxed) - before, expected, "{durability:?}");
    }
    // Together, as durable as the one that asks for most.
    let before = syncs.load(Ordering::Relaxed);
    let posted = [Durability::None, Durability::Sync].map(|durability| store.post(count(1).durability(durability)));
    posted.into_iter().for_each(|posted| assert!(posted.settle().unwrap().is_committed()));
    assert_eq!(syncs.load(Ordering::Relaxed) - before, 1);
}

#[test]
fn errands_of_a_disk_that_fails_are_told_and_nothing_is_done_after_them() {
    for keeper in [false, true] {
        let fails = Arc::new(AtomicU64::new(0));
        let failing = Arc::clone(&fails);
        let disk = TwistedDisk::new(MemoryDisk::new(), move |call, go| match call {
            Call::WriteDurableAt(..) | Call::WriteAt(..) if failing.load(Ordering::Relaxed) > 0 => {
                Err(std::io::Error::other("the cable is out"))
            }
            _ => go(),
        });
        let store = store(&disk, keeper);
        fails.store(1, Ordering::Relaxed);
        let posted: Vec<Posted> = (0..4).map(|_| store.post(count(1))).collect();
        let answers: Vec<Result<Outcome>> = posted.into_iter().map(Posted::settle).collect();
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
        assert!(answers.iter().any(|answer| matches!(answer, Err(Error::Io(_)))), "{answers:?}");
        assert!(store.post(count(1)).settle().is_err());
        assert_eq!(value(&store, 1), None, "nobody sees what may be lost");
    }
}

#[test]
fn store_that_is_only_read_does_no_errands() {
    let disk = MemoryDisk::new();
    drop(store(&disk, false));
    let reader = Options::new().read_only(true).open(&disk, "store").unwrap();
    assert!(matches!(reader.post(count(1)).settle(), Err(Error::ReadOnly)));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "threads are what is tested")]
fn threads_that_post_commit_and_perform_lose_nothing() {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    for keeper in [true, false] {
        let disk = MemoryDisk::new();
        let store = store(&disk, keeper);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let store = &store;
                scope.spawn(move || {
                    let mut posted = Vec::new();
                    for number in 0..EACH {
                        let both = move |txn: &mut kauri_tree::WriteTxn<'_>| {
                            txn.add(&ROWS, 1 + thread, 1)?;
                            txn.add(&ROWS, 100, 1)?;
                            txn.put(&LOG, (thread, number), 0)?;
                            // Now and then one finds that it was not to be.
                            if number % 7 == 3 { refused(100) } else { done() }
                        };
                        match number % 5 {
                            0 => drop(store.perform(Errand::new(both)).unwrap()),
                            1 => {
                                let mut change = Change::new(store.snapshot());
                                change.append(&LOG, &(1000 + thread).to_be_bytes(), number).unwrap();
                                assert!(store.commit(change).unwrap().is_committed());
                                drop(store.perform(Errand::new(both)).unwrap());
                            }
                            // Some are never settled.
                            2 => drop(store.post(Errand::new(both))),
                            _ => posted.push(store.post(Errand::new(both))),
                        }
                        if posted.len() == 8 {
                            posted.drain(..).for_each(|posted| drop(posted.settle().unwrap()));
                        }
                    }
                    posted.into_iter().for_each(|posted| drop(posted.settle().unwrap()));
                });
            }
        });
        // Whatever was not settled is done by now, or with this.
        assert!(store.perform(count(0)).unwrap().is_committed());
        let stayed = (0..EACH).filter(|number| number % 7 != 3).count() as u64;
        let appended = (0..EACH).filter(|number| number % 5 == 1).count() as u64;
        let check = |store: &Store| {
            assert!((0..THREADS).all(|thread| value(store, 1 + thread) == Some(stayed)));
            assert_eq!(value(store, 100), Some(THREADS * stayed));
            assert_eq!(store.snapshot().len(&LOG).unwrap(), THREADS * (stayed + appended));
            store.verify().unwrap();
        };
        check(&store);
        drop(store);
        check(&Options::new().open(&disk, "store").unwrap());
    }
}

/// Those who hear of a commit are on the scribe's thread, and may commit something themselves while the scribe is asked to lead what was
/// posted meanwhile.
#[test]
fn whoever_hears_of_an_errand_may_commit_while_others_wait() {
    let store = store(&MemoryDisk::new(), true);
    let ((begins, begun), (goes_on, go_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let own = store.clone();
    let first = store.post(count(1).then(move || {
        begins.send(()).unwrap();
        go_on.recv_timeout(LONG).unwrap();
        assert!(own.perform(count(2)).unwrap().is_committed());
    }));
    begun.recv_timeout(LONG).unwrap();
    // The scribe is held up, and is asked to lead these.
    let posted: Vec<Posted> = (0..3).map(|_| store.post(count(3))).collect();
    goes_on.send(()).unwrap();
    assert!(first.settle().unwrap().is_committed());
    assert!(posted.into_iter().all(|posted| posted.settle().unwrap().is_committed()));
    assert_eq!([1, 2, 3].map(|key| value(&store, key)), [Some(1), Some(1), Some(3)]);
}

#[test]
fn panic_of_whoever_hears_of_an_early_commit_leaves_the_scribe_at_work() {
    let store = store(&MemoryDisk::new(), true);
    let mut txn = store.begin();
    txn.put(&ROWS, 1, 1).unwrap();
    let early = txn.commit_early(Durability::Sync, || panic!("unlucky")).unwrap();
    while value(&store, 1).is_none() {
        thread::yield_now();
    }
    let (told, hears) = mpsc::channel();
    drop(store.post(count(2).then(move || told.send(()).unwrap())));
    hears.recv_timeout(LONG).unwrap();
    drop(early);
    assert_eq!(value(&store, 2), Some(1));
}

#[test]
fn errand_to_be_synced_soon_leaves_no_thread_behind_when_the_store_is_closed() {
    for _ in 0..20 {
        let disk = MemoryDisk::new();
        let store = store(&disk, true);
        drop((0..4).map(|_| store.post(count(1).durability(Durability::Flush(1000)))).collect::<Vec<_>>());
        drop(store);
        // A thread that nobody waited for would have the file.
        let again = Options::new().keeper(false).open(&disk, "store").unwrap();
        assert_eq!(value(&again, 1), Some(4));
    }
}
