//! Any bytes as the file of a store: it is refused in words, or it can be read, verified and written like any other.
//!
//! The first byte says which checksums in the rest are made right first, so that what stands behind them is tried too: none; those
//! of metas and log; or those of metas and pages, and then the log is empty.
#![no_main]

use std::collections::BTreeMap;

use kauri_fuzz::{allocation, reseal};
use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{Options, Read, Result, Store, Table, Write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let mut bytes = bytes.to_vec();
    match choice % 3 {
        0 => {}
        1 => reseal::metas_and_log(&mut bytes),
        _ => reseal::metas_and_pages(&mut bytes),
    }
    // No length in the file is believed beyond what the file has. Pages are kept, copied and counted, all of them a few times.
    let most = (8 << 20) + 64 * bytes.len();
    let disk = disk_of(&bytes);
    let Ok(store) = allocation::within(most, || open(&disk)) else { return };
    let whole = allocation::within(most, || store.verify());
    if let (Ok(rows), Ok(_)) = (read(&store), whole) {
        go_on(&disk, store, rows);
    }
});

const NAME: &str = "store";

fn disk_of(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.open(NAME, Open::CreateNew).and_then(|file| file.write_at(0, bytes)).expect("a disk in memory");
    disk
}

fn open(disk: &MemoryDisk) -> Result<Store> {
    Options::new().open(disk, NAME)
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// All rows of all tables of bytes.
fn read(store: &Store) -> Result<BTreeMap<String, Rows>> {
    let snapshot = store.snapshot();
    let mut tables = BTreeMap::new();
    for name in snapshot.tables() {
        let table = Table::<[u8], [u8]>::named(name.to_owned());
        // A table of other types is not ours to read.
        let Ok(len) = snapshot.len(&table) else { continue };
        let rows: Rows =
            snapshot.scan(&table)?.map(|key, value| (key.to_vec(), value.into_owned())).collect::<Result<_>>()?;
        assert!(rows.len() as u64 <= len, "no more rows than are counted");
        for (key, value) in &rows {
            let _found_or_damaged = snapshot.get(&table, key).map(|found| found.as_deref() == Some(value));
        }
        tables.insert(name.to_owned(), rows);
    }
    Ok(tables)
}

/// A store that is whole can be written, closed and opened again.
fn go_on(disk: &MemoryDisk, store: Store, mut rows: BTreeMap<String, Rows>) {
    const KEY: &[u8] = b"new";
    for (name, rows) in &mut rows {
        let mut txn = store.begin();
        txn.put(&Table::<[u8], [u8]>::named(name.clone()), KEY, &[7; 300]).expect("written");
        txn.commit().expect("committed");
        rows.insert(KEY.to_vec(), vec![7; 300]);
    }
    drop(store);
    let store = open(disk).expect("opened again");
    store.verify().expect("whole again");
    assert!(read(&store).expect("read again") == rows, "the same rows");
}
