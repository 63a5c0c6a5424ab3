//! Makes the inputs that the fuzz targets of the store start from: `cargo run -p kauri-sim --example seeds -- fuzz/seeds`.
#![expect(clippy::disallowed_methods, reason = "a tool at the edge: it reads an argument and writes files")]

use std::path::Path;
use std::{env, fs, io};

use kauri_sim::{Image, Rng, STORE_NAME, SimDisk};
use kauri_tree::{Options, Store, Table, Write};

const ONE: Table<[u8], [u8]> = Table::new("one");
const TWO: Table<[u8], [u8]> = Table::new("two");

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).ok_or_else(|| io::Error::other("expected the folder of the seeds"))?;
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = Path::new(&folder).join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name), bytes)
    };
    // The first byte says which checksums are made right.
    for (name, work) in [("empty", empty as fn(&Store)), ("log", log), ("tree", tree), ("long", long)] {
        let bytes = file(work);
        for (choice, suffix) in [(1, "log"), (2, "pages")] {
            write("store_open", &format!("{name}_{suffix}"), &[&[choice], &bytes[..]].concat())?;
        }
    }
    for seed in 0..4 {
        let mut choices = vec![0; 1 << (8 + seed)];
        Rng::new(seed).fill(&mut choices);
        for target in ["store_operations", "store_tables"] {
            write(target, &format!("random_{}", choices.len()), &choices)?;
        }
    }
    Ok(())
}

/// The file of a store that was not closed after some work.
fn file(work: fn(&Store)) -> Vec<u8> {
    let disk = SimDisk::from_image(Image::new());
    let store = Options::new().page_bytes(256).log_bytes(1).open(&disk, STORE_NAME).expect("no fault");
    work(&store);
    disk.image().bytes(STORE_NAME).expect("the store's file")
}

fn put(store: &Store, table: &Table<[u8], [u8]>, rows: std::ops::Range<u8>, value: &[u8]) {
    let mut txn = store.begin();
    for row in rows {
        txn.put(table, &[b"key ", &[row][..]].concat(), value).expect("no fault");
    }
    txn.commit().expect("no fault");
}

fn empty(_: &Store) {}

/// A checkpoint with a row, and then records.
fn log(store: &Store) {
    put(store, &ONE, 0..1, b"first");
    put(store, &ONE, 1..4, b"second");
    let mut txn = store.begin();
    txn.remove(&ONE, b"key \x02").expect("no fault");
    txn.put(&TWO, b"", b"").expect("no fault");
    txn.commit().expect("no fault");
}

/// Branches, leaves, free pages.
fn tree(store: &Store) {
    put(store, &ONE, 0..60, b"a value of some bytes");
    put(store, &TWO, 0..5, b"x");
    store.checkpoint().expect("no fault");
    put(store, &ONE, 20..30, b"another");
}

/// Values with pages of their own, one of them replaced.
fn long(store: &Store) {
    put(store, &ONE, 0..2, &[b'l'; 700]);
    put(store, &ONE, 1..3, &[b'm'; 400]);
    store.checkpoint().expect("no fault");
}
