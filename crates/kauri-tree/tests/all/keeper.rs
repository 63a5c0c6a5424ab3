//! What happens beside the callers: checkpoints, syncs in time, space given back; and readers of a file that another writes.
#![expect(clippy::disallowed_methods, reason = "threads are what is tested")]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use kauri_tree::disk::testing::{Call, TwistedDisk};
use kauri_tree::disk::{Disk as _, MemoryDisk, Open};
use kauri_tree::{Durability, Error, Options, Read, Store, Table, Write};

const ROWS: Table<u32, [u8]> = Table::new("rows");
/// How long to wait for what must come: as long as a machine that does other things needs.
const LONG: Duration = Duration::from_secs(60);

/// How syncs fail, if they do.
type Fails = Arc<Mutex<Option<fn() -> io::Error>>>;

/// A disk in memory that tells of every sync, and fails them when it is told to.
fn watched() -> (TwistedDisk<MemoryDisk>, Receiver<()>, Fails) {
    let (told, hears) = channel();
    let (told, fails) = (Mutex::new(told), Fails::default());
    let failing = Arc::clone(&fails);
    let disk = TwistedDisk::new(MemoryDisk::new(), move |call, go| {
        if let Call::Sync(_) = call {
            let fails = *failing.lock().unwrap();
            fails.map_or(Ok(()), |error| Err(error()))?;
            // Nobody may be listening any more.
            let _ = told.lock().unwrap().send(());
        }
        go()
    });
    (disk, hears, fails)
}

fn put(store: &Store, key: u32, bytes: usize, durability: Durability) -> Result<(), Error> {
    let mut txn = store.begin();
    txn.put(&ROWS, key, &vec![1; bytes])?;
    txn.commit_with(durability)
}

#[test]
fn a_commit_to_be_flushed_is_synced_by_the_keeper() {
    let (disk, syncs, _) = watched();
    let store = Options::new().open(&disk, "store").unwrap();
    put(&store, 1, 10, Durability::Sync).unwrap();
    syncs.try_iter().for_each(drop);
    put(&store, 2, 10, Durability::None).unwrap();
    assert!(syncs.try_recv().is_err(), "nothing was asked for");
    put(&store, 3, 10, Durability::Flush(1)).unwrap();
    syncs.recv_timeout(LONG).expect("the keeper syncs");
}

#[test]
fn what_fails_beside_is_told_to_the_next_who_commits() {
    let (disk, syncs, fails) = watched();
    let store = Options::new().open(&disk, "store").unwrap();
    put(&store, 1, 10, Durability::Sync).unwrap();
    *fails.lock().unwrap() = Some(|| io::Error::other("no light on this disk"));
    put(&store, 2, 10, Durability::Flush(0)).unwrap();
    let error = loop {
        match put(&store, 3, 10, Durability::None) {
            // Whoever comes between the failure and its being kept hears only that nothing can be written.
            Ok(()) | Err(Error::Broken) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("no light on this disk"), "{error}");
    assert!(matches!(put(&store, 4, 10, Durability::None), Err(Error::Broken)));
    drop((store, syncs));
    *fails.lock().unwrap() = None;
    let store = Options::new().open(&disk, "store").unwrap();
    assert!(store.snapshot().contains(&ROWS, 1).unwrap());
    store.verify().unwrap();
}

#[test]
fn a_checkpoint_that_panics_leaves_nobody_waiting() {
    let (disk, syncs, fails) = watched();
    let store = Options::new().open(&disk, "store").unwrap();
    put(&store, 1, 10, Durability::Sync).unwrap();
    *fails.lock().unwrap() = Some(|| panic!("no disk at all"));
    assert!(catch_unwind(AssertUnwindSafe(|| store.checkpoint())).is_err());
    assert!(matches!(put(&store, 2, 10, Durability::Sync), Err(Error::Broken)));
    assert_eq!(store.snapshot().len(&ROWS).unwrap(), 1);
    drop((store, syncs));
    *fails.lock().unwrap() = None;
    let store = Options::new().open(&disk, "store").unwrap();
    assert_eq!(store.snapshot().len(&ROWS).unwrap(), 1);
    store.verify().unwrap();
}

#[test]
fn writers_go_on_while_the_keeper_makes_checkpoints() {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(512).log_bytes(1 << 17);
    let store = options.open(&disk, "store").unwrap();
    thread::scope(|scope| {
        for worker in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..400 {
                    put(store, number * 4 + worker, 100 + (number % 90) as usize, Durability::Sync).unwrap();
                    if number % 100 == worker {
                        store.checkpoint().unwrap();
                    }
                }
            });
        }
    });
    store.verify().unwrap();
    drop(store);
    let store = options.open(&disk, "store").unwrap();
    assert_eq!(store.snapshot().len(&ROWS).unwrap(), 1600);
    store.verify().unwrap();
}

#[test]
fn a_file_gets_shorter_when_its_end_is_free() {
    for keeper in [false, true] {
        let disk = MemoryDisk::new();
        let options = Options::new().page_bytes(512).log_bytes(1 << 14).keeper(keeper);
        let length = || disk.open("store", Open::ReadOnly).unwrap().len().unwrap();
        let store = options.open(&disk, "store").unwrap();
        for key in 0..200 {
            put(&store, key, 1000, Durability::Sync).unwrap();
        }
        store.checkpoint().unwrap();
        let full = length();
        let mut txn = store.begin();
        for key in 1..200 {
            txn.remove(&ROWS, key).unwrap();
        }
        txn.commit().unwrap();
        // The row that is left was copied behind everything else; written again, it goes where there is room.
        store.checkpoint().unwrap();
        for _ in 0..2 {
            put(&store, 0, 1000, Durability::Sync).unwrap();
        }
        drop(store);
        assert!(length() < full / 3, "{} of {full}", length());
        let store = options.open(&disk, "store").unwrap();
        assert_eq!(store.snapshot().len(&ROWS).unwrap(), 1);
        store.verify().unwrap();
    }
}

#[test]
fn a_store_can_be_read_while_another_writes_it() {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(256).log_bytes(1).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    for round in 0..100_u32 {
        put(&store, round, 40, Durability::Sync).unwrap();
        let reader = options.clone().read_only(true).open(&disk, "store").unwrap();
        assert_eq!(reader.snapshot().len(&ROWS).unwrap(), u64::from(round) + 1);
        assert!(reader.snapshot().contains(&ROWS, round).unwrap());
        reader.verify().unwrap();
        assert!(matches!(reader.checkpoint(), Err(Error::ReadOnly)));
        assert!(matches!(put(&reader, 7, 1, Durability::None), Err(Error::ReadOnly)));
    }
}

#[test]
fn a_reader_of_a_file_that_moved_on_sees_old_rows_or_an_error_and_never_new_ones() {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(256).log_bytes(1).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    let fill = |store: &Store, fill: u8| {
        let mut txn = store.begin();
        for key in 0..60 {
            txn.put(&ROWS, key, &[fill; 40]).unwrap();
        }
        txn.commit().unwrap();
        store.checkpoint().unwrap();
    };
    let mut told = 0;
    for round in 1..20 {
        fill(&store, round);
        let reader = options.clone().read_only(true).open(&disk, "store").unwrap();
        for later in 0..3 {
            fill(&store, round + 100 + later);
        }
        for key in 0..60 {
            match reader.snapshot().get(&ROWS, key) {
                Ok(value) => assert_eq!(*value.unwrap(), [round; 40]),
                Err(error) => told += u32::from(error.is_corruption()),
            }
        }
    }
    assert!(told > 0, "pages were used again");
}

#[test]
fn a_missing_store_is_not_made_to_be_read() {
    let disk = MemoryDisk::new();
    let missing = Options::new().read_only(true).open(&disk, "store");
    assert!(matches!(missing, Err(Error::Io(error)) if error.kind() == io::ErrorKind::NotFound));
    assert!(disk.open("store", Open::ReadOnly).is_err());
}

#[test]
fn a_turn_that_is_taken_is_not_waited_for_by_who_only_tries() {
    let store = Store::in_memory().unwrap();
    let txn = store.begin();
    assert!(store.try_begin().is_none());
    drop(txn);
    assert!(store.try_begin().is_some());
}
