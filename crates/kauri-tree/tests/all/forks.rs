//! Forks of stores: they hold the same whether files share their bytes or rows are copied.

use std::collections::BTreeMap;

use kauri_tree::disk::testing::TwistedDisk;
use kauri_tree::disk::{Disk, MemoryDisk};
use kauri_tree::{Error, Options, Read, Store, Table, Write};

use crate::model::{Bytes, Models, Odd, World};

/// A disk whose files share nothing, as on most file systems.
fn apart() -> TwistedDisk<MemoryDisk> {
    TwistedDisk::new(MemoryDisk::new(), |_, go| go())
}

fn options(page_bytes: usize) -> Options {
    Options::new().page_bytes(page_bytes).log_bytes(1).keeper(false)
}

/// The pins that there should be, with the numbers they were made with and what was there.
type Pins = BTreeMap<String, (u64, Models)>;

/// A store with a history: pins made and dropped between random transactions, some of which are in its log alone.
fn live<K: Bytes + ?Sized>(store: &Store, world: &mut World<K>) -> Pins {
    let mut pins = Pins::new();
    for round in 0..8 {
        world.transaction(store);
        let name = format!("pin {}", world.random.below(5));
        if pins.remove(&name).is_some() {
            store.unpin(&name).unwrap();
        } else {
            store.pin(&name, round).unwrap();
            pins.insert(name, (round, world.models.clone()));
        }
        if world.random.below(3) == 0 {
            // Two pins of the same rows.
            let twin = format!("twin {round}");
            store.pin(&twin, 100 + round).unwrap();
            pins.insert(twin, (100 + round, world.models.clone()));
        }
    }
    world.transaction(store);
    pins
}

fn check<K: Bytes + ?Sized>(fork: &Store, world: &World<K>, newest: &Models, pins: &Pins) {
    world.compare(&fork.snapshot(), newest);
    let found: Vec<_> = fork.pins().into_iter().map(|pin| (pin.name, pin.when)).collect();
    let expected: Vec<_> = pins.iter().map(|(name, (when, _))| (name.clone(), *when)).collect();
    assert_eq!(found, expected);
    for (name, (_, models)) in pins {
        world.compare(&fork.as_of(name).unwrap().unwrap(), models);
    }
    assert_eq!(fork.verify().unwrap().pins, pins.len());
}

/// Forks a store onto a disk, and changes both: neither sees what the other does.
fn fork_and_part<K: Bytes + ?Sized>(
    store: &Store,
    disk: &dyn Disk,
    fork_options: &Options,
    world: &mut World<K>,
    pins: &Pins,
) {
    let newest = world.models.clone();
    let fork = store.fork(fork_options, disk, "fork").unwrap();
    check(&fork, world, &newest, pins);
    world.transaction(store);
    check(&fork, world, &newest, pins);
    let mut txn = fork.begin();
    for table in &world.tables {
        txn.drop_table(table.name()).unwrap();
    }
    txn.commit().unwrap();
    check(&fork, world, &Models::default(), pins);
    world.compare(&store.snapshot(), &world.models);
    fork.compact().unwrap();
    drop(fork);
    let fork = fork_options.open(disk, "fork").unwrap();
    check(&fork, world, &Models::default(), pins);
    for name in pins.keys() {
        assert!(fork.unpin(name).unwrap());
    }
    assert_eq!(fork.verify().unwrap().kept_pages, 0);
    assert!(matches!(store.fork(fork_options, disk, "fork"), Err(Error::Exists { .. })));
    assert!(disk.names().unwrap().iter().all(|name| name == "store" || name == "fork"));
    check(store, world, &world.models, pins);
}

fn check_everywhere<K: Bytes + ?Sized>(store_options: &Options, seed: u64) {
    let (shared, apart) = (MemoryDisk::new(), apart());
    let elsewhere = MemoryDisk::new();
    let cases: [(&dyn Disk, &dyn Disk, usize); 4] =
        [(&shared, &shared, 256), (&apart, &apart, 256), (&shared, &elsewhere, 512), (&apart, &elsewhere, 1024)];
    for (from, to, page_bytes) in cases {
        for name in to.names().unwrap().into_iter().chain(from.names().unwrap()) {
            let _ = (from.remove(&name), to.remove(&name));
        }
        let store = store_options.open(from, "store").unwrap();
        let mut world = World::<K>::new(256, 200, seed);
        let pins = live(&store, &mut world);
        fork_and_part(&store, to, &options(page_bytes), &mut world, &pins);
        drop(store);
        let store = store_options.open(from, "store").unwrap();
        check(&store, &world, &world.models, &pins);
    }
}

#[test]
fn a_fork_holds_the_same_whether_bytes_are_shared_or_rows_are_copied() {
    for seed in 0..2 {
        check_everywhere::<[u8]>(&options(256), seed);
    }
    check_everywhere::<Odd>(&options(256), 2);
    check_everywhere::<[u8]>(&options(256).cache_bytes(0), 3);
}

#[test]
fn a_store_in_memory_is_forked_with_its_pins() {
    let store = options(256).in_memory().unwrap();
    let mut world = World::<[u8]>::new(256, 200, 7);
    let pins = live(&store, &mut world);
    fork_and_part(&store, &MemoryDisk::new(), &options(256), &mut world, &pins);
}

#[test]
fn a_fork_of_a_version_has_no_pins() {
    for disk in [&MemoryDisk::new() as &dyn Disk, &apart()] {
        let store = options(256).open(disk, "store").unwrap();
        let mut world = World::<[u8]>::new(256, 200, 8);
        let pins = live(&store, &mut world);
        let (name, (_, models)) = pins.first_key_value().unwrap();
        let fork = store.as_of(name).unwrap().unwrap().fork(&options(256), disk, "fork").unwrap();
        check(&fork, &world, models, &Pins::new());
    }
}

#[test]
fn a_store_that_is_only_read_is_forked_with_its_pins() {
    for disk in [&MemoryDisk::new() as &dyn Disk, &apart()] {
        let store = options(256).open(disk, "store").unwrap();
        let mut world = World::<[u8]>::new(256, 200, 9);
        let pins = live(&store, &mut world);
        let reader = options(256).read_only(true).open(disk, "store").unwrap();
        let fork = reader.fork(&options(256), disk, "fork").unwrap();
        check(&fork, &world, &world.models, &pins);
        assert!(matches!(store.fork(&options(256).read_only(true), disk, "other"), Err(Error::ReadOnly)));
    }
}

#[test]
fn pins_of_a_copied_fork_store_once_what_they_share() {
    const ROWS: Table<u32, [u8]> = Table::new("rows");
    let disk = apart();
    let store = options(512).open(&disk, "store").unwrap();
    for pin in 0..10_u32 {
        let mut txn = store.begin();
        // All of them first, and then a few.
        for number in (0..4_000).take(if pin == 0 { 4_000 } else { 20 }) {
            txn.put(&ROWS, number, &[u8::try_from(pin).unwrap(); 60]).unwrap();
        }
        txn.commit().unwrap();
        store.pin(&pin.to_string(), pin.into()).unwrap();
    }
    let fork = store.fork(&options(512), &disk, "fork").unwrap();
    let (report, len) = (fork.verify().unwrap(), fork.snapshot().len(&ROWS).unwrap());
    assert_eq!((report.pins, len), (10, 4_000));
    assert!(report.kept_pages * 2 < report.pages, "{report:?}");
}
