//! Checkpoint streams: the first byte says whether the rest is a stream as it is, or the records of one whose checksums are right.
#![no_main]

use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{Options, Store};
use libfuzzer_sys::fuzz_target;
use twox_hash::XxHash3_64;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let sealed;
    let stream = match choice % 3 {
        0 => bytes,
        kind => {
            sealed = seal(u32::from(kind - 1), bytes);
            &sealed[..]
        }
    };
    restore_whole(stream);
    restore_into(stream);
});

/// A new store is there whole, or not at all.
fn restore_whole(stream: &[u8]) {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(256).log_bytes(1).keeper(false);
    match options.restore(&disk, "store", &mut &stream[..]) {
        Ok(store) => {
            store.verify().expect("what was restored is sound");
            again(&store);
        }
        Err(_) => {
            for name in ["store", "store.aside"] {
                assert!(disk.open(name, Open::ReadOnly).is_err(), "{name} was left behind");
            }
        }
    }
}

/// A store that has a row already has what the stream says, or what it had.
fn restore_into(stream: &[u8]) {
    let store = Store::in_memory().expect("memory");
    let mut txn = store.begin();
    txn.put_raw("t", b"k", b"v").expect("memory");
    txn.commit().expect("memory");
    let before = store.snapshot().content_hash().expect("sound");
    let restored = store.restore_from(&mut &stream[..]);
    let after = store.snapshot().content_hash().expect("sound");
    assert_eq!(restored.map_or(before, |checkpoint| checkpoint.content), after);
    store.verify().expect("sound");
}

/// What was restored makes a stream that makes the same again.
fn again(store: &Store) {
    let mut stream = Vec::new();
    let checkpoint = store.snapshot().checkpoint_to(&mut stream).expect("sound");
    let copy = Store::in_memory().expect("memory");
    assert_eq!(copy.restore_from(&mut &stream[..]).expect("our own stream"), checkpoint);
}

/// A stream of these records, which begin with what the end says: tables, rows, removed (a byte each) and 16 bytes of content.
fn seal(kind: u32, bytes: &[u8]) -> Vec<u8> {
    let Some((totals, body)) = bytes.split_first_chunk::<19>() else { return Vec::new() };
    let mut base = [0; 16];
    if kind == 1 {
        let store = Store::in_memory().expect("memory");
        let mut txn = store.begin();
        txn.put_raw("t", b"k", b"v").expect("memory");
        txn.commit().expect("memory");
        base = store.snapshot().content_hash().expect("sound").to_bytes();
    }
    let mut stream = [&b"KauriCP\0"[..], &1_u32.to_le_bytes(), &kind.to_le_bytes(), &base].concat();
    stream.extend_from_slice(&XxHash3_64::oneshot(&stream).to_le_bytes());
    // Short chunks, so that records go on from one to the next.
    let mut chunks = 0;
    for chunk in body.chunks(13) {
        stream.extend_from_slice(&(chunk.len() as u64).to_le_bytes());
        stream.extend_from_slice(&XxHash3_64::oneshot_with_seed(chunks, chunk).to_le_bytes());
        stream.extend_from_slice(chunk);
        chunks += 1;
    }
    let mut end = Vec::new();
    for total in &totals[..3] {
        end.extend_from_slice(&u64::from(*total).to_le_bytes());
    }
    end.extend_from_slice(&(stream.len() as u64).to_le_bytes());
    end.extend_from_slice(&totals[3..]);
    end.extend_from_slice(&XxHash3_64::oneshot(&stream).to_le_bytes());
    stream.extend_from_slice(&0_u64.to_le_bytes());
    stream.extend_from_slice(&XxHash3_64::oneshot_with_seed(chunks, &end).to_le_bytes());
    stream.extend_from_slice(&end);
    stream
}
