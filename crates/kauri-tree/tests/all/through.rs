//! Loads and long values, which go through to the file while their transaction is open.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{Durability, Options, Read, Store, Table, Write, WriteTxn};

use crate::places::copy;
use crate::random::Random;
use crate::watched::watched;

const ROWS: Table<u64, [u8]> = Table::new("rows");
const OTHERS: Table<u64, [u8]> = Table::new("others");

type Model = BTreeMap<u64, Vec<u8>>;

const PAGE_BYTES: usize = 256;

fn options(seed: u64) -> Options {
    let options = Options::new().page_bytes(PAGE_BYTES).log_bytes(if seed.is_multiple_of(3) { 1 << 20 } else { 1 });
    // Few pages, or all.
    if seed.is_multiple_of(2) { options.cache_bytes(0) } else { options }
}

/// Mostly as many rows as go through, some of them long.
fn many(random: &mut Random) -> Model {
    let rows = 50 + random.below(400) as u64;
    let value = |random: &mut Random| {
        let bytes = if random.below(20) == 0 { random.below(PAGE_BYTES * 5) } else { random.below(80) };
        vec![random.next() as u8; bytes]
    };
    (0..rows).map(|row| (row * 3, value(random))).collect()
}

fn load(txn: &mut WriteTxn<'_>, table: &Table<u64, [u8]>, rows: &Model) {
    txn.drop_table(table.name()).unwrap();
    let loaded = txn.load_sorted(table, rows.iter().map(|(key, value)| (*key, &value[..]))).unwrap();
    assert_eq!(loaded, rows.len() as u64);
}

fn edit(txn: &mut WriteTxn<'_>, model: &mut Model, random: &mut Random) {
    for _ in 0..random.below(30) {
        let key = random.below(1200) as u64;
        match random.below(4) {
            0 => assert_eq!(txn.remove(&ROWS, key).unwrap(), model.remove(&key).is_some()),
            1 => assert_eq!(txn.get(&ROWS, key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice)),
            long => {
                let value = vec![random.next() as u8; random.below(if long == 2 { PAGE_BYTES * 4 } else { 60 })];
                txn.put(&ROWS, key, &value).unwrap();
                model.insert(key, value);
            }
        }
    }
}

fn content(rows: &impl Read) -> Model {
    rows.scan(&ROWS).unwrap().map(|key, value| (key, value.into_owned())).collect::<Result<_, _>>().unwrap()
}

/// One transaction; whether it was committed.
fn work(store: &Store, model: &mut Model, random: &mut Random) -> bool {
    let mut txn = store.begin();
    let mut next = model.clone();
    if random.below(3) == 0 {
        next = many(random);
        load(&mut txn, &ROWS, &next);
    }
    edit(&mut txn, &mut next, random);
    if random.below(3) == 0 {
        let mut vanishing = txn.nest();
        load(&mut vanishing, &OTHERS, &many(random));
        edit(&mut vanishing, &mut next.clone(), random);
    }
    edit(&mut txn, &mut next, random);
    assert_eq!(content(&txn.view()), next);
    if random.below(4) == 0 {
        return false;
    }
    let durability = if random.below(2) == 0 { Durability::None } else { Durability::Sync };
    txn.commit_with(durability).unwrap();
    *model = next;
    true
}

#[test]
fn what_went_through_is_what_a_map_says_however_transactions_end() {
    for seed in 0..12 {
        let (disk, mut random, mut model) = (MemoryDisk::new(), Random(seed), Model::new());
        let (mut committed, mut vanished) = (0, 0);
        for _ in 0..6 {
            let store = options(seed).open(&disk, "store").unwrap();
            for _ in 0..10 {
                let (before, held) = (model.clone(), store.snapshot());
                if work(&store, &mut model, &mut random) {
                    committed += 1;
                } else {
                    vanished += 1;
                }
                assert_eq!(content(&held), before, "seed {seed}");
                drop(held);
                assert_eq!(content(&store.snapshot()), model, "seed {seed}");
                store.verify().unwrap();
                if random.below(8) == 0 {
                    store.checkpoint().unwrap();
                }
            }
        }
        assert!(committed > 20 && vanished > 5, "{committed} and {vanished}");
    }
}

#[test]
fn a_load_that_the_disk_refuses_vanishes_and_the_store_goes_on() {
    let (disk, watch) = watched();
    let store = Options::new().page_bytes(PAGE_BYTES).keeper(false).open(&disk, "store").unwrap();
    let rows: Model = (0..5000).map(|row| (row, vec![7; 60])).collect();
    let mut txn = store.begin();
    txn.put(&ROWS, 1, b"before").unwrap();
    txn.commit().unwrap();
    let pages = store.stat().pages - store.stat().free_pages;
    watch.fails.store(true, Ordering::Relaxed);
    let mut txn = store.begin();
    let error = txn.load_sorted(&OTHERS, rows.iter().map(|(key, value)| (*key, &value[..]))).unwrap_err();
    assert!(error.to_string().contains("the disk was told to fail"), "{error}");
    drop(txn);
    watch.fails.store(false, Ordering::Relaxed);
    assert_eq!(store.stat().pages - store.stat().free_pages, pages);
    let mut txn = store.begin();
    load(&mut txn, &OTHERS, &rows);
    txn.commit().unwrap();
    store.verify().unwrap();
    assert_eq!(store.snapshot().len(&OTHERS).unwrap(), 5000);
    assert_eq!(store.snapshot().get(&ROWS, 1).unwrap().as_deref(), Some(&b"before"[..]));
}

#[test]
fn a_long_value_is_copied_three_times_before_it_is_brought_into_memory() {
    let (disk, watch) = watched();
    let store = Options::new().page_bytes(PAGE_BYTES).keeper(false).open(&disk, "store").unwrap();
    let mut txn = store.begin();
    txn.put(&ROWS, 1, &[7; 1000]).unwrap();
    txn.commit().unwrap();
    let reads = || {
        let before = watch.reads.load(Ordering::Relaxed);
        assert_eq!(store.snapshot().get(&ROWS, 1).unwrap().as_deref(), Some(&[7; 1000][..]));
        watch.reads.load(Ordering::Relaxed) - before
    };
    assert_eq!([reads(), reads(), reads(), reads(), reads(), reads()], [1, 1, 1, 1, 0, 0]);
}

#[test]
fn a_long_value_is_not_read_to_be_removed_or_replaced() {
    let (disk, watch) = watched();
    let store = Options::new().page_bytes(PAGE_BYTES).keeper(false).open(&disk, "store").unwrap();
    let mut txn = store.begin();
    for row in 0..20 {
        txn.put(&ROWS, row, &[7; 1000]).unwrap();
    }
    txn.commit().unwrap();
    let before = watch.reads.load(Ordering::Relaxed);
    let mut txn = store.begin();
    for row in 0..20 {
        match row % 2 {
            0 => txn.remove(&ROWS, row).map(drop).unwrap(),
            _ => txn.put(&ROWS, row, &[8; 100]).unwrap(),
        }
    }
    txn.commit().unwrap();
    assert_eq!(watch.reads.load(Ordering::Relaxed), before);
    store.verify().unwrap(); // no page is lost
}

/// What somebody finds who opens the file now, as after a crash of the program.
fn found(disk: &MemoryDisk) -> Model {
    content(&Options::new().read_only(true).open(disk, "store").unwrap().snapshot())
}

#[test]
fn a_log_names_long_values_that_it_does_not_repeat() {
    let disk = MemoryDisk::new();
    let store = Options::new().keeper(false).open(&disk, "store").unwrap();
    let mut model = Model::new();
    for round in 0..3_u8 {
        let mut txn = store.begin();
        for row in 0..100 {
            let value = vec![round ^ row; 5000 + usize::from(row)];
            txn.put(&ROWS, row.into(), &value).unwrap();
            // Replaced in the same transaction: the log names both.
            let value = if row % 3 == 0 { vec![row; 9000] } else { value };
            txn.put(&ROWS, row.into(), &value).unwrap();
            model.insert(row.into(), value);
        }
        let mut vanishing = txn.nest();
        for row in 0..50 {
            vanishing.put(&ROWS, row, &[9; 6000]).unwrap();
        }
        drop(vanishing);
        txn.commit_with(if round % 2 == 0 { Durability::None } else { Durability::Sync }).unwrap();
        assert_eq!(found(&disk), model, "round {round}");
        store.verify().unwrap();
    }
    // Three times most of a megabyte was written; the first values of each commit are in the log themselves.
    let stat = store.stat();
    assert!(stat.log_used_bytes < 3 * (80 << 10), "{stat:?}");
    // What the log names is kept, although nobody sees it, until a checkpoint holds what the log says.
    assert!(stat.waiting_pages > 500, "{stat:?}");
    let pages = stat.pages;
    store.checkpoint().unwrap();
    let stat = store.stat();
    assert!(stat.waiting_pages < 10 && stat.pages < pages - 500, "{stat:?}, {pages} pages before");
    assert_eq!((found(&disk), content(&store.snapshot())), (model.clone(), model.clone()));
    drop(store);
    let store = Options::new().keeper(false).open(&disk, "store").unwrap();
    assert_eq!(content(&store.snapshot()), model);
    store.verify().unwrap();
}

#[test]
fn what_a_log_names_is_there_in_the_next_life_and_the_one_after() {
    for seed in 0..20 {
        let (mut disk, mut random, mut model) = (MemoryDisk::new(), Random(seed), Model::new());
        for life in 0..5 {
            let store = Options::new().page_bytes(512).log_bytes(1 << 16).keeper(false).open(&disk, "store").unwrap();
            assert_eq!(content(&store.snapshot()), model, "seed {seed}, life {life}");
            store.verify().unwrap();
            for _ in 0..random.below(6) {
                let mut txn = store.begin();
                for _ in 0..random.below(40) {
                    let (key, bytes) = (random.below(50) as u64, random.below(3000));
                    let value = vec![random.next() as u8; bytes];
                    txn.put(&ROWS, key, &value).unwrap();
                    model.insert(key, value);
                }
                txn.commit_with(Durability::None).unwrap();
            }
            // It ends as if it had been killed.
            let left = copy(&disk);
            drop(store);
            disk = left;
        }
    }
}

#[test]
fn what_is_named_behind_lost_pages_is_free_again() {
    let mut disk = MemoryDisk::new();
    let options = Options::new().page_bytes(512).log_bytes(1 << 21).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    let mut txn = store.begin();
    txn.put(&ROWS, 1, b"one").unwrap();
    txn.commit_with(Durability::None).unwrap();
    let (first, before) = (content(&store.snapshot()), bytes(&disk));
    let mut txn = store.begin();
    load(&mut txn, &OTHERS, &(0..5000).map(|row| (row, vec![7; 60])).collect());
    txn.commit_with(Durability::None).unwrap();
    let loaded = bytes(&disk);
    let mut txn = store.begin();
    for row in 0..40 {
        txn.put(&ROWS, row, &[8; 2000]).unwrap();
    }
    txn.commit_with(Durability::None).unwrap();
    assert!(store.stat().log_used_bytes < 40 * 2000, "the log names values");
    assert_eq!(found(&disk).len(), 40);

    // A page of the load never reached the disk.
    let lost =
        loaded.chunks(512).skip(2 + (1 << 21) / 512).position(|page| page[17] == 0 && page.contains(&7)).unwrap();
    let at = (2 + (1 << 21) / 512 + lost) * 512;
    assert!(before.get(at..).is_none_or(|rest| rest.iter().take(512).all(|&byte| byte == 0)));
    let left = copy(&disk);
    drop(store);
    disk = left;
    disk.open("store", Open::ReadWrite).unwrap().write_at(at as u64, &[0; 512]).unwrap();
    let store = options.open(&disk, "store").unwrap();
    assert!(content(&store.snapshot()) == first, "the load is lost, and what came after it");
    store.verify().unwrap();
}

fn bytes(disk: &MemoryDisk) -> Vec<u8> {
    let file = disk.open("store", Open::ReadOnly).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}
