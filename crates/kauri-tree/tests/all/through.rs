//! Loads and long values, which go through to the file while their transaction is open.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Durability, Options, Read, Store, Table, Write, WriteTxn};

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
fn a_long_value_is_brought_into_memory_when_it_is_read_a_second_time() {
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
    assert_eq!([reads(), reads(), reads(), reads()], [1, 1, 0, 0]);
}
