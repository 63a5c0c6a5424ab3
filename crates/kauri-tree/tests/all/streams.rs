//! Checkpoint streams: what comes out of one is what went in, on any size of pages, or nothing.

use std::io;

use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{ContentHash, Error, Options, Read, Snapshot, Store, Table, Write};

use crate::model::{Bytes, Models, Odd, World};
use crate::random::Random;

fn stream(snapshot: &Snapshot<'_>) -> (Vec<u8>, ContentHash) {
    let mut bytes = Vec::new();
    let checkpoint = snapshot.checkpoint_to(&mut bytes).unwrap();
    assert_eq!(checkpoint.bytes, bytes.len() as u64);
    (bytes, checkpoint.content)
}

fn options(page_bytes: usize) -> Options {
    Options::new().page_bytes(page_bytes).log_bytes(1).keeper(false)
}

/// A store of some transactions, and what should be in it.
fn filled<K: Bytes + ?Sized>(store: &Store, page_bytes: usize, seed: u64) -> World<K> {
    let mut world = World::<K>::new(page_bytes, 300, seed);
    (0..12).for_each(|_| world.transaction(store));
    world
}

fn check_round<K: Bytes + ?Sized>(store: &Store, world: &World<K>) {
    let (bytes, content) = stream(&store.snapshot());
    assert_eq!(store.snapshot().content_hash().unwrap(), content);
    for page_bytes in [256, 4096, 65536] {
        for options in [options(page_bytes), options(page_bytes).cache_bytes(0)] {
            let disk = MemoryDisk::new();
            let copy = options.restore(&disk, "copy", &mut &bytes[..]).unwrap();
            world.compare(&copy.snapshot(), &world.models);
            copy.verify().unwrap();
            assert_eq!(copy.snapshot().content_hash().unwrap(), content);
            assert_eq!(stream(&copy.snapshot()), (bytes.clone(), content), "the same stream from other pages");
            drop(copy);
            let copy = options.open(&disk, "copy").unwrap();
            world.compare(&copy.snapshot(), &world.models);
            assert!(disk.open("copy.aside", Open::ReadOnly).is_err());
        }
    }
}

#[test]
fn a_restored_store_has_the_same_content_on_any_page_size() {
    for seed in 0..2 {
        let store = options(256).in_memory().unwrap();
        let world = filled::<[u8]>(&store, 256, seed);
        check_round(&store, &world);
        let store = options(256).cache_bytes(0).open(&MemoryDisk::new(), "store").unwrap();
        let world = filled::<Odd>(&store, 256, seed);
        check_round(&store, &world);
    }
}

/// Nothing of the name that was to be restored is there.
fn is_clean(disk: &MemoryDisk) -> bool {
    ["copy", "copy.aside", "copy.new"].iter().all(|name| disk.open(name, Open::ReadOnly).is_err())
}

#[test]
fn damaged_and_cut_streams_are_refused_and_leave_nothing() {
    let store = options(256).in_memory().unwrap();
    let mut txn = store.begin();
    for number in 0..8_u8 {
        txn.put_raw("rows", &[number], &vec![number; usize::from(number) * 40]).unwrap();
    }
    txn.commit().unwrap();
    let (bytes, _) = stream(&store.snapshot());
    let disk = MemoryDisk::new();
    let refused = |bytes: &[u8], what: &str| {
        let error = options(256).restore(&disk, "copy", &mut &bytes[..]).expect_err(what);
        assert!(matches!(error, Error::Stream { .. } | Error::NewerFormat { .. }), "{what}: {error}");
        assert!(is_clean(&disk), "{what}");
        let target = options(256).in_memory().unwrap();
        target.restore_from(&mut &bytes[..]).expect_err(what);
        assert_eq!(target.snapshot().tables().count(), 0, "{what}");
    };
    for length in 0..bytes.len() {
        refused(&bytes[..length], &format!("cut to {length} bytes"));
    }
    let mut damaged = bytes.clone();
    for at in 0..bytes.len() {
        damaged[at] ^= 1 << (at % 8);
        refused(&damaged, &format!("byte {at}"));
        damaged[at] = bytes[at];
    }
    // Whatever else comes behind is not the stream's.
    damaged.extend_from_slice(b"and more");
    let mut rest = &damaged[..];
    options(256).restore(&disk, "copy", &mut rest).unwrap();
    assert_eq!(rest, b"and more");
}

#[test]
fn a_store_that_is_there_is_not_replaced() {
    let (bytes, _) = stream(&Store::in_memory().unwrap().snapshot());
    let disk = MemoryDisk::new();
    drop(options(256).open(&disk, "copy").unwrap());
    assert!(matches!(options(256).restore(&disk, "copy", &mut &bytes[..]), Err(Error::Exists { .. })));
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put_raw("rows", b"a", b"b").unwrap();
    txn.commit().unwrap();
    assert!(matches!(store.restore_from(&mut &bytes[..]), Err(Error::NotEmpty)));
}

#[test]
fn a_row_too_long_for_the_pages_is_refused_and_leaves_nothing() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put_raw("rows", &[7; 200], b"").unwrap();
    txn.commit().unwrap();
    let (bytes, _) = stream(&store.snapshot());
    let disk = MemoryDisk::new();
    let error = options(256).restore(&disk, "copy", &mut &bytes[..]).unwrap_err();
    assert_eq!(error.to_string(), "row 0: expected a key of at most 56 bytes, found 200");
    assert!(is_clean(&disk));
}

#[test]
fn a_long_stream_is_restored_in_steps() {
    let store = options(65536).in_memory().unwrap();
    let mut txn = store.begin();
    for number in 0..130_u32 {
        // Both rows in leaves and values elsewhere, more than one step of them.
        txn.put_raw("short", &number.to_be_bytes(), &vec![7; 20_000]).unwrap();
        txn.put_raw("long", &number.to_be_bytes(), &vec![8; 52_000]).unwrap();
    }
    txn.commit().unwrap();
    let (bytes, content) = stream(&store.snapshot());
    assert!(bytes.len() > 8 << 20);
    let copy = options(65536).restore(&MemoryDisk::new(), "copy", &mut &bytes[..]).unwrap();
    assert_eq!(copy.snapshot().content_hash().unwrap(), content);
    assert_eq!(copy.verify().unwrap().rows, 260);
}

/// What was committed while a stream is written is not in it.
struct Busy<'s> {
    store: &'s Store,
    bytes: Vec<u8>,
    commits: u8,
}

impl io::Write for Busy<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.commits += 1;
        let mut txn = self.store.begin();
        txn.put_raw("rows", &[self.commits], &[self.commits; 3000]).unwrap();
        txn.drop_table("gone").unwrap();
        txn.commit().unwrap();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_under_load_is_one_version() {
    for options in [options(1024), options(1024).cache_bytes(0)] {
        let store = options.open(&MemoryDisk::new(), "store").unwrap();
        let mut txn = store.begin();
        for number in 0..200_u8 {
            txn.put_raw("rows", &[number], &[number; 5000]).unwrap();
            txn.put_raw("gone", &[number], b"").unwrap();
        }
        txn.commit().unwrap();
        let snapshot = store.snapshot();
        let (expected, content) = stream(&snapshot);
        let mut busy = Busy { store: &store, bytes: Vec::new(), commits: 0 };
        assert_eq!(snapshot.checkpoint_to(&mut busy).unwrap().content, content);
        assert!(busy.commits > 5 && busy.bytes == expected);
        assert_ne!(store.snapshot().content_hash().unwrap(), content);
    }
}

/// Random histories, followed by a copy that gets what changed since random versions that it had.
fn check_chain<K: Bytes + ?Sized>(store: &Store, copy: &Store, seed: u64) {
    let mut world = World::<K>::new(256, 300, seed);
    let mut random = Random(seed);
    let mut base = store.snapshot();
    let mut content = base.content_hash().unwrap();
    let mut models = world.models.clone();
    for _ in 0..10 {
        for _ in 0..random.below(4) {
            world.transaction(store);
        }
        let next = store.snapshot();
        let mut bytes = Vec::new();
        let checkpoint = next.checkpoint_since(&base, content, &mut bytes).unwrap();
        assert_eq!(checkpoint.content, next.content_hash().unwrap());
        if random.below(3) == 0 {
            let cut = bytes.len() - 1 - random.below(bytes.len() - 1);
            copy.restore_from(&mut &bytes[..cut]).unwrap_err();
        }
        if checkpoint.content != content {
            let other = options(256).in_memory().unwrap();
            let mut txn = other.begin();
            txn.put_raw("something else", b"", b"").unwrap();
            txn.commit().unwrap();
            assert!(matches!(other.restore_from(&mut &bytes[..]), Err(Error::OtherBase { .. })));
        }
        world.compare(&copy.snapshot(), &models);
        assert_eq!(copy.restore_from(&mut &bytes[..]).unwrap(), checkpoint);
        (base, content, models) = (next, checkpoint.content, world.models.clone());
        world.compare(&copy.snapshot(), &models);
        assert_eq!(copy.snapshot().content_hash().unwrap(), content);
        copy.verify().unwrap();
    }
    let _: Models = models;
}

#[test]
fn streams_of_what_changed_keep_a_copy_up_to_date() {
    for seed in 0..4 {
        let store = options(256).in_memory().unwrap();
        check_chain::<[u8]>(&store, &options(512).open(&MemoryDisk::new(), "copy").unwrap(), seed);
        let store = options(256).cache_bytes(0).open(&MemoryDisk::new(), "store").unwrap();
        check_chain::<Odd>(&store, &options(1024).in_memory().unwrap(), seed);
    }
}

#[test]
fn a_stream_of_few_changes_is_short() {
    const NUMBERS: Table<u64, u64> = Table::new("numbers");
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.load_sorted(&NUMBERS, (0..100_000).map(|number| (number, number))).unwrap();
    txn.commit().unwrap();
    let base = store.snapshot();
    let content = base.content_hash().unwrap();
    let mut txn = store.begin();
    txn.put(&NUMBERS, 7, 0).unwrap();
    txn.remove(&NUMBERS, 99_999).unwrap();
    txn.commit().unwrap();
    let mut bytes = Vec::new();
    let checkpoint = store.snapshot().checkpoint_since(&base, content, &mut bytes).unwrap();
    assert_eq!((checkpoint.tables, checkpoint.rows, checkpoint.removed), (1, 1, 1));
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
    assert_eq!(store.snapshot().len(&NUMBERS).unwrap(), 99_999);
}
