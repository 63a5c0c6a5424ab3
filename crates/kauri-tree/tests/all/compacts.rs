//! Files made shorter, and copied, while they are used.

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Error, Options, Read, Store, Table, Write};

use crate::model::{Bytes, Odd, World};
use crate::random::Random;

const ROWS: Table<u32, [u8]> = Table::new("rows");

fn options(page_bytes: usize) -> Options {
    Options::new().page_bytes(page_bytes).log_bytes(1).keeper(false)
}

/// Random histories, compacted now and then, some of their versions held meanwhile.
fn check<K: Bytes + ?Sized>(options: &Options, page_bytes: usize, seed: u64) {
    let disk = MemoryDisk::new();
    let mut world = World::<K>::new(page_bytes, 300, seed);
    let mut random = Random(seed);
    for _ in 0..2 {
        let store = options.open(&disk, "store").unwrap();
        for _ in 0..4 {
            world.transaction(&store);
            let held = (random.below(2) == 0).then(|| (store.snapshot(), world.models.clone()));
            world.transaction(&store);
            let content = store.snapshot().content_hash().unwrap();
            let done = store.compact().unwrap();
            assert!(done.bytes_after <= done.bytes_before, "{done:?}");
            assert_eq!(store.snapshot().content_hash().unwrap(), content);
            store.verify().unwrap();
            if let Some((snapshot, models)) = held {
                world.compare(&snapshot, &models);
            }
        }
        drop(store);
        let store = options.open(&disk, "store").unwrap();
        world.compare(&store.snapshot(), &world.models);
        store.verify().unwrap();
    }
}

#[test]
fn compacting_changes_no_row_and_loses_no_page() {
    for seed in 0..2 {
        check::<[u8]>(&options(256), 256, seed);
        check::<Odd>(&options(256), 256, seed);
        check::<[u8]>(&options(512).cache_bytes(0), 512, seed);
    }
}

/// Rows of which nine in ten are removed, all over the table.
fn thinned(store: &Store, value_bytes: usize) {
    for first in (0..3000).step_by(500) {
        let mut txn = store.begin();
        for number in first..first + 500 {
            txn.put(&ROWS, number, &vec![7; value_bytes]).unwrap();
        }
        txn.commit().unwrap();
    }
    let mut txn = store.begin();
    for number in (0..3000).filter(|number| number % 10 != 3) {
        txn.remove(&ROWS, number).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn a_compacted_file_has_next_to_nothing_free() {
    let store = options(256).open(&MemoryDisk::new(), "store").unwrap();
    thinned(&store, 100);
    let done = store.compact().unwrap();
    let stat = store.stat();
    assert!(stat.free_pages <= 16, "{stat:?}");
    assert!(done.moved_pages > 0 && done.bytes_after < done.bytes_before / 3, "{done:?}");
    let again = store.compact().unwrap();
    assert!(again.bytes_after <= done.bytes_after, "{again:?}");
    assert_eq!(store.verify().unwrap().rows, 300);
}

#[test]
fn long_values_are_moved_too() {
    let store = options(256).open(&MemoryDisk::new(), "store").unwrap();
    thinned(&store, 700);
    let done = store.compact().unwrap();
    assert!(done.bytes_after < done.bytes_before / 4, "{done:?}");
    assert_eq!(store.snapshot().get(&ROWS, 2993).unwrap().as_deref(), Some(&[7; 700][..]));
    store.verify().unwrap();
}

#[test]
fn a_long_value_that_finds_no_place_at_first_finds_it_where_others_were() {
    for seed in 0..10 {
        let store = options(256).open(&MemoryDisk::new(), "store").unwrap();
        let mut random = Random(seed);
        for first in (0..1000).step_by(200) {
            let mut txn = store.begin();
            for number in first..first + 200 {
                txn.put(&ROWS, number, &vec![7; 100 + random.below(1500)]).unwrap();
            }
            txn.commit().unwrap();
        }
        let mut txn = store.begin();
        for number in (0..1000).filter(|number| number % 10 != 3) {
            txn.remove(&ROWS, number).unwrap();
        }
        txn.commit().unwrap();
        store.compact().unwrap();
        let stat = store.stat();
        assert!(stat.free_pages * 5 < stat.pages, "seed {seed}: {stat:?}");
        assert_eq!(store.verify().unwrap().rows, 100);
    }
}

#[test]
fn what_a_snapshot_sees_is_not_cut_off() {
    let store = options(256).open(&MemoryDisk::new(), "store").unwrap();
    let mut txn = store.begin();
    txn.load_sorted(&ROWS, (0..2000).map(|number| (number, &[7; 50][..]))).unwrap();
    txn.commit().unwrap();
    let snapshot = store.snapshot();
    let content = snapshot.content_hash().unwrap();
    let mut txn = store.begin();
    txn.drop_table("rows").unwrap();
    txn.commit().unwrap();
    let kept = store.compact().unwrap();
    assert_eq!(snapshot.content_hash().unwrap(), content);
    drop(snapshot);
    let cut = store.compact().unwrap();
    assert!(cut.bytes_after < kept.bytes_after / 4, "{kept:?}, {cut:?}");
}

#[test]
fn a_store_in_memory_or_to_be_read_is_left_alone() {
    let done = Store::in_memory().unwrap().compact().unwrap();
    assert_eq!((done.bytes_before, done.bytes_after), (0, 0));
    let disk = MemoryDisk::new();
    drop(options(256).open(&disk, "store").unwrap());
    let store = options(256).read_only(true).open(&disk, "store").unwrap();
    assert!(matches!(store.compact(), Err(Error::ReadOnly)));
}

#[cfg(feature = "checkpoint")]
#[test]
fn a_fork_is_the_version_it_was_made_of_and_goes_its_own_way() {
    for (options, seed) in [(options(256), 0), (options(256).cache_bytes(0), 1)] {
        let store = options.open(&MemoryDisk::new(), "store").unwrap();
        let mut world = World::<Odd>::new(256, 300, seed);
        (0..10).for_each(|_| world.transaction(&store));
        let (snapshot, models) = (store.snapshot(), world.models.clone());
        world.transaction(&store);
        let disk = MemoryDisk::new();
        let fork = snapshot.fork(&self::options(1024), &disk, "fork").unwrap();
        world.compare(&fork.snapshot(), &models);
        assert_eq!(fork.snapshot().content_hash().unwrap(), snapshot.content_hash().unwrap());
        fork.verify().unwrap();
        let refused = snapshot.fork(&self::options(1024), &disk, "fork");
        assert!(matches!(refused, Err(Error::Exists { .. })));
        world.compare(&store.snapshot(), &world.models);
    }
}

#[cfg(feature = "checkpoint")]
#[test]
fn a_fork_that_shares_its_file_has_everything_and_goes_its_own_way() {
    use kauri_tree::disk::Disk;

    for seed in 0..3 {
        let disk = MemoryDisk::new();
        let store = options(256).open(&disk, "store").unwrap();
        let mut world = World::<[u8]>::new(256, 300, seed);
        world.transaction(&store);
        store.pin("first", 1).unwrap();
        let first = store.snapshot().content_hash().unwrap();
        // Some of it is in the log alone.
        (0..3).for_each(|_| world.transaction(&store));
        let fork = store.fork(&options(256), &disk, "fork").unwrap();
        let forked = world.models.clone();
        world.compare(&fork.snapshot(), &forked);
        assert_eq!(fork.pins(), store.pins());
        (0..3).for_each(|_| world.transaction(&store));
        fork.verify().unwrap();
        world.compare(&fork.snapshot(), &forked);
        assert_eq!(fork.as_of("first").unwrap().unwrap().content_hash().unwrap(), first);
        fork.unpin("first").unwrap();
        fork.compact().unwrap();
        drop(fork);
        let fork = options(256).open(&disk, "fork").unwrap();
        world.compare(&fork.snapshot(), &forked);
        fork.verify().unwrap();
        world.compare(&store.snapshot(), &world.models);
        assert_eq!(store.as_of("first").unwrap().unwrap().content_hash().unwrap(), first);
        assert!(matches!(store.fork(&options(256), &disk, "fork"), Err(Error::Exists { .. })));
        // Other pages: the rows are copied, as of each pin.
        let other = store.fork(&options(512), &disk, "other").unwrap();
        world.compare(&other.snapshot(), &world.models);
        assert_eq!((other.pins().len(), other.stat().page_bytes), (1, 512));
        assert_eq!(other.as_of("first").unwrap().unwrap().content_hash().unwrap(), first);
        assert_eq!(disk.names().unwrap(), ["fork", "other", "store"]);
    }
}

#[test]
fn new_file_comes_out_no_longer_than_it_was_said_to_be() {
    for page_bytes in [256, 4096] {
        let store = Options::new().page_bytes(page_bytes).open(&MemoryDisk::new(), "store").expect("it is made");
        let mut txn = store.begin();
        txn.put(&Table::<u32, u32>::new("squares"), 7, 49).expect("written");
        txn.commit().expect("committed");
        let done = store.compact().expect("compacted");
        assert!(done.bytes_after <= done.bytes_before, "{done:?}");
    }
}
