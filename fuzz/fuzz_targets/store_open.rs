//! Any bytes as the file of a store: it is refused in words, or it can be read, verified and written like any other.
//!
//! The first byte says which checksums in the rest are made right first, so that what stands behind them is tried too: none; those
//! of metas and log; or those of metas and pages, and then the log is empty.
#![no_main]

use std::collections::BTreeMap;

use kauri_fuzz::{allocation, reseal};
use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{Options, Pin, Read, Result, Snapshot, Store, Table, Write};
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
    let rows = read(&store.snapshot(), whole.is_ok());
    if let (Ok(rows), Ok(_)) = (rows, whole) {
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

/// All rows of all tables of bytes. If the store is whole, they are as many as are counted.
fn read(snapshot: &Snapshot<'_>, is_whole: bool) -> Result<BTreeMap<String, Rows>> {
    let mut tables = BTreeMap::new();
    for name in snapshot.tables() {
        let table = Table::<[u8], [u8]>::named(name.to_owned());
        // A table of other types is not ours to read.
        let Ok(len) = snapshot.len(&table) else { continue };
        let rows: Rows =
            snapshot.scan(&table)?.map(|key, value| (key.to_vec(), value.into_owned())).collect::<Result<_>>()?;
        assert!(!is_whole || rows.len() as u64 == len, "as many rows as are counted");
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
    let pins = store.pins();
    drop(store);
    let store = open(disk).expect("opened again");
    assert!(store.verify().expect("whole again").pins == pins.len(), "the same pins");
    assert!(read(&store.snapshot(), true).expect("read again") == rows, "the same rows");
    unpin(&store, &pins);
    assert!(read(&store.snapshot(), true).expect("read without pins") == rows, "the same rows");
}

/// Every pin can be read, and taken away, until nothing is kept.
fn unpin(store: &Store, pins: &[Pin]) {
    for pin in pins {
        let pinned = store.as_of(&pin.name).expect("read").expect("listed");
        read(&pinned, true).expect("a pin of a store that is whole");
        drop(pinned);
        assert!(store.unpin(&pin.name).expect("unpinned"), "listed");
    }
    assert!(store.verify().expect("whole without pins").kept_pages == 0, "nothing is kept");
    store.pin("new", 7).expect("pinned");
    assert!(store.verify().expect("whole with a pin").pins == 1, "one pin");
}
