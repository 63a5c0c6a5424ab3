//! Stores in files: closed and opened again, locked, refused.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use kauri_tree::disk::{Disk, MemoryDisk, Open};
use kauri_tree::{Durability, Error, Options, Read, Store, Table, Write};

use crate::places::copy;
use crate::random::Random;
use crate::watched::watched_on;

const ROWS: Table<[u8], [u8]> = Table::new("rows");

fn open(disk: &MemoryDisk, page_bytes: usize) -> Store {
    Options::new().page_bytes(page_bytes).log_bytes(1).open(disk, "store").unwrap()
}

fn rows(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let rows = store.snapshot();
    rows.scan(&ROWS).unwrap().map(|key, value| (key.to_vec(), value.into_owned())).collect::<Result<_, _>>().unwrap()
}

#[test]
fn rows_are_there_after_closing_and_opening_again() {
    for page_bytes in [256, 512, 4096, 65536] {
        let disk = MemoryDisk::new();
        let (mut model, mut random) = (BTreeMap::new(), Random(page_bytes as u64));
        for round in 0..12 {
            let store = open(&disk, page_bytes);
            assert_eq!(rows(&store), model, "round {round}");
            store.verify().unwrap();
            for _ in 0..random.below(15) {
                let mut txn = store.begin();
                for _ in 0..random.below(40) {
                    let key = random.key(page_bytes / 4 - 8, 800);
                    if random.below(3) == 0 {
                        assert_eq!(txn.remove(&ROWS, &key).unwrap(), model.remove(&key).is_some());
                    } else {
                        let value = random.value(page_bytes);
                        txn.put(&ROWS, &key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                if random.below(3) == 0 {
                    let (from, until) = (random.key(page_bytes / 4 - 8, 800), random.key(page_bytes / 4 - 8, 800));
                    let before = model.len();
                    model.retain(|key, _| !(from <= *key && *key < until));
                    let removed = txn.remove_range(&ROWS, &from[..]..&until[..]).unwrap();
                    assert_eq!(removed, (before - model.len()) as u64);
                }
                if random.below(4) == 0 {
                    let more: BTreeMap<_, _> = (0..random.below(100))
                        .map(|_| (random.key(page_bytes / 4 - 8, 800), random.value(page_bytes)))
                        .collect();
                    let rows = more.iter().map(|(key, value)| (&key[..], &value[..]));
                    assert_eq!(txn.load_sorted(&ROWS, rows).unwrap(), more.len() as u64);
                    model.extend(more);
                }
                let durability = if random.below(3) == 0 { Durability::None } else { Durability::Sync };
                txn.commit_with(durability).unwrap();
                assert_eq!(store.snapshot().len(&ROWS).unwrap(), model.len() as u64);
            }
            if random.below(3) == 0 {
                store.checkpoint().unwrap();
            }
        }
    }
}

#[test]
fn types_of_tables_are_remembered() {
    let disk = MemoryDisk::new();
    let store = open(&disk, 256);
    let mut txn = store.begin();
    txn.put(&Table::<u32, u64>::new("numbers"), 1, 2).unwrap();
    txn.commit().unwrap();
    drop(store);
    let store = open(&disk, 256);
    assert_eq!(store.snapshot().get(&Table::<u32, u64>::new("numbers"), 1).unwrap(), Some(2));
    let error = store.snapshot().get(&Table::<u32, str>::new("numbers"), 1).unwrap_err();
    assert_eq!(error.to_string(), "table `numbers` is used with u32 to text and was made for u32 to u64");
}

#[test]
fn rows_in_an_order_of_their_own_survive_too() {
    use kauri_wire::{Seq, TimerKey, Timestamp};
    let timers = Table::<TimerKey, str>::new("timers");
    let disk = MemoryDisk::new();
    for round in 0..5_i64 {
        let store = open(&disk, 256);
        let mut txn = store.begin();
        for due in [-50, -1, 0, 50] {
            txn.put(&timers, TimerKey { due: Timestamp(due + round), seq: Seq(round.unsigned_abs()) }, "ring").unwrap();
        }
        txn.commit().unwrap();
    }
    let store = open(&disk, 256);
    let due: Result<Vec<_>, _> = store.snapshot().scan(&timers).unwrap().map(|key, _| (key.due.0, key.seq.0)).collect();
    let due = due.unwrap();
    assert!(due.len() == 20 && due.is_sorted(), "{due:?}");
}

#[test]
fn a_second_opener_is_refused_until_the_first_is_done() {
    let disk = MemoryDisk::new();
    let store = open(&disk, 256);
    let again = Options::new().open(&disk, "store");
    assert!(matches!(again, Err(Error::Locked)));
    drop(store);
    assert!(Options::new().open(&disk, "store").is_ok());
}

#[test]
fn other_files_are_refused_in_words() {
    let disk = MemoryDisk::new();
    let file = disk.open("store", Open::CreateNew).unwrap();
    file.write_at(0, &[7; 100_000]).unwrap();
    drop(file);
    let error = Options::new().open(&disk, "store").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("expected a meta page"), "{error}");
}

/// The bytes of a small store's file, with the newer meta changed and its checksum made right.
fn forged(at: usize, bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let store = open(&disk, 256);
    let mut txn = store.begin();
    txn.put(&ROWS, b"key", b"value").unwrap();
    txn.commit().unwrap();
    drop(store);
    let file = disk.open("store", Open::ReadWrite).unwrap();
    let mut meta = [0; 256];
    file.read_at(256, &mut meta).unwrap();
    meta[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = twox_hash::XxHash3_64::oneshot_with_seed(1, &meta[8..]);
    meta[..8].copy_from_slice(&sum.to_le_bytes());
    file.write_at(256, &meta).unwrap();
    disk
}

#[test]
fn a_meta_page_that_cannot_be_is_refused_in_words_and_without_allocating_what_it_says() {
    let cases: [(usize, &[u8], &str); 6] = [
        // A log of millions of pages; one longer than all pages together.
        (40, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0xff, 0], "a log and a bitmap inside the file"),
        (44, &[0xff, 0xff, 0, 0], "a log before the pages"),
        // A bitmap beyond the file's end.
        (84, &[0, 1, 0, 0], "a bitmap inside the file"),
        (56, &[0xff; 8], "counts that can go on"),
        // The last version but one.
        (32, &(u64::MAX / 2 - 1).to_le_bytes(), "counts that can go on"),
        // A catalog beyond the last page there can be.
        (72, &[0xff; 4], "expected"),
    ];
    for (at, bytes, words) in cases {
        let error = Options::new().open(&forged(at, bytes), "store").unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains(words), "byte {at}: {error}");
    }
    assert!(Options::new().open(&forged(0, &[]), "store").is_ok());
}

#[test]
fn a_page_of_another_kind_or_level_is_no_node() {
    let disk = forged(0, &[]);
    let file = disk.open("store", Open::ReadOnly).unwrap();
    let mut bitmap = [0; 4];
    file.read_at(256 + 84, &mut bitmap).unwrap();
    let error = Options::new().open(&forged(72, &bitmap), "store").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("a node of the tree that points to it"), "{error}");
}

#[test]
fn a_page_born_after_the_version_it_is_in_is_refused() {
    let disk = forged(0, &[]);
    let file = disk.open("store", Open::ReadWrite).unwrap();
    let mut catalog = [0; 4];
    file.read_at(256 + 72, &mut catalog).unwrap();
    let catalog = u32::from_le_bytes(catalog);
    let mut page = [0; 256];
    file.read_at(u64::from(catalog) * 256, &mut page).unwrap();
    // Taken for a page of the present transaction, it would be changed in place, and never written.
    page[8..16].copy_from_slice(&1_000_000_u64.to_le_bytes());
    let sum = twox_hash::XxHash3_64::oneshot_with_seed(catalog.into(), &page[8..]);
    page[..8].copy_from_slice(&sum.to_le_bytes());
    file.write_at(u64::from(catalog) * 256, &page).unwrap();
    drop(file);
    let error = Options::new().open(&disk, "store").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("a birth in a version of the file"), "{error}");
}

#[test]
fn space_comes_back() {
    // Two hundred rows of forty bytes in so many versions of them: the newest, the checkpoint's, and the one being made;
    // and with a keeper the one that it writes down meanwhile, however slow it is.
    for (keeper, versions) in [(false, 3), (true, 4)] {
        let disk = MemoryDisk::new();
        let store = Options::new().page_bytes(256).log_bytes(1 << 16).keeper(keeper).open(&disk, "store").unwrap();
        for round in 0..60_u8 {
            let mut txn = store.begin();
            for key in 0..200_u32 {
                txn.put(&ROWS, &key.to_be_bytes(), &[round; 30]).unwrap();
            }
            txn.commit().unwrap();
        }
        store.verify().unwrap();
        let stat = store.stat();
        assert!(stat.pages < (versions + 1) * 200 * 50 / 256, "{stat:?}");
    }
}

#[cfg(all(unix, feature = "file"))]
#[test]
#[expect(clippy::disallowed_methods, reason = "a folder of its own in the folder for temporary files")]
fn a_store_lives_in_a_file_of_the_system() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("store-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("shop.kauri");
    for count in 1..4_u64 {
        let store = Store::open(&path).unwrap();
        assert!(matches!(Store::open(&path), Err(Error::Locked)));
        let counts = Table::<str, u64>::new("counts");
        assert_eq!(store.snapshot().get(&counts, "opened").unwrap(), (count > 1).then(|| count - 1));
        let mut txn = store.begin();
        txn.put(&counts, "opened", count).unwrap();
        txn.commit().unwrap();
        store.verify().unwrap();
    }
    assert!(matches!(Store::open(folder.join("no such folder").join("x")), Err(Error::Io(_))));
    assert!(matches!(Store::open("/"), Err(Error::Io(_))));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn many_rows_loaded_and_removed_at_once_survive() {
    let disk = MemoryDisk::new();
    let table = Table::<u32, u32>::new("numbers");
    let open = || Options::new().log_bytes(1 << 20).open(&disk, "store").unwrap();
    let store = open();
    let mut txn = store.begin();
    txn.load_sorted(&table, (0..50_000).map(|number| (number, number))).unwrap();
    txn.commit().unwrap();
    // More than the log names one by one, and fewer.
    for (range, left) in [(100..40_000, 10_100), (45_000..45_200, 9_900)] {
        let mut txn = store.begin();
        assert_eq!(txn.remove_range(&table, range.clone()).unwrap(), u64::from(range.end - range.start));
        txn.commit().unwrap();
        assert_eq!(store.snapshot().len(&table).unwrap(), left);
    }
    drop(store);
    let store = open();
    store.verify().unwrap();
    let numbers: Result<Vec<u32>, _> = store.snapshot().scan(&table).unwrap().map(|number, _| number).collect();
    assert!(numbers.unwrap().into_iter().eq((0..100).chain(40_000..45_000).chain(45_200..50_000)));
}

#[test]
fn the_log_grows_with_the_store_and_loses_nothing() {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(512).log_bytes(64 << 10).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    let (mut model, mut random, mut lengths) = (BTreeMap::new(), Random(3), vec![store.stat().log_bytes]);
    for round in 0..3000 {
        let mut txn = store.begin();
        for _ in 0..1 + random.below(4) {
            let (key, value) = (random.key(60, 2000), random.value(40));
            txn.put(&ROWS, &key, &value).unwrap();
            model.insert(key, value);
        }
        txn.commit().unwrap();
        let length = store.stat().log_bytes;
        if lengths.last() != Some(&length) {
            lengths.push(length);
        }
        // At any moment a crash leaves everything, wherever the ring ended when it was written.
        if round % 50 == 0 {
            assert_eq!(rows(&options.open(&copy(&disk), "store").unwrap()), model, "round {round}");
        }
    }
    assert_eq!(lengths, [8 << 10, 32 << 10, 64 << 10]);
    drop(store);
    let store = options.open(&disk, "store").unwrap();
    assert_eq!((store.stat().log_bytes, rows(&store)), (64 << 10, model));
}

#[test]
fn rows_loaded_without_a_sync_survive_the_program_and_vanish_whole_if_their_pages_are_lost() {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(512).log_bytes(16 << 10).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    let put = |key: &[u8]| {
        let mut txn = store.begin();
        txn.put(&ROWS, key, b"one").unwrap();
        txn.commit_with(Durability::None).unwrap();
    };
    put(b"first");
    put(b"second");
    let before = rows(&store);
    let many: Vec<_> = (0..2000_u32).map(u32::to_be_bytes).collect();
    let mut txn = store.begin();
    txn.load_sorted(&ROWS, many.iter().map(|key| (&key[..], &b"loaded"[..]))).unwrap();
    txn.commit_with(Durability::None).unwrap();
    put(b"third");
    // The program dies; all is with the system. Whoever goes on may use pages of the last checkpoint: not before these are durable.
    let (left, watch) = watched_on(copy(&disk));
    let crashed = options.open(&left, "store").unwrap();
    assert_eq!(watch.syncs.load(Ordering::Relaxed), 1);
    assert_eq!(rows(&crashed), rows(&store));
    assert_eq!(crashed.verify().unwrap().rows, 2003);
    let mut txn = crashed.begin();
    txn.put(&ROWS, b"fourth", b"one").unwrap();
    txn.commit().unwrap();
    assert_eq!(crashed.verify().unwrap().rows, 2004);
    // The machine dies, and a page of the loaded rows was not written.
    let damaged = copy(&disk);
    let file = damaged.open("store", Open::ReadWrite).unwrap();
    file.write_at(file.len().unwrap() - 5 * 512, &[0; 512]).unwrap();
    drop(file);
    let store = options.open(&damaged, "store").unwrap();
    assert_eq!(rows(&store), before);
    store.verify().unwrap();
    let mut txn = store.begin();
    txn.put(&ROWS, b"other", b"one").unwrap();
    txn.commit().unwrap();
    drop(store);
    assert_eq!(rows(&options.open(&damaged, "store").unwrap()).len(), before.len() + 1);
}

#[test]
fn the_room_of_free_pages_is_given_back_and_of_no_others() {
    let disk = MemoryDisk::new();
    let options = Options::new().page_bytes(512).log_bytes(16 << 10).keeper(false);
    let store = options.open(&disk, "store").unwrap();
    let mut model = BTreeMap::new();
    for round in 0..4_u8 {
        let mut txn = store.begin();
        for number in 0..3000_u16 {
            let key = number.to_be_bytes().to_vec();
            txn.put(&ROWS, &key, &[round; 20]).unwrap();
            model.insert(key, vec![round; 20]);
        }
        txn.commit().unwrap();
    }
    let empty_pages = || {
        let file = disk.open("store", Open::ReadOnly).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes).unwrap();
        bytes.chunks(512).skip(2 + 32).filter(|page| page.iter().all(|&byte| byte == 0)).count()
    };
    let held = store.snapshot();
    let before = empty_pages();
    store.checkpoint().unwrap();
    let stat = store.stat();
    assert!(stat.free_pages > stat.pages / 8, "{stat:?}");
    assert!(empty_pages() >= before + stat.free_pages / 2, "{} of {stat:?}", empty_pages());
    assert_eq!(held.len(&ROWS).unwrap(), 3000);
    assert_eq!(rows(&store), model);
    assert_eq!(rows(&options.open(&copy(&disk), "store").unwrap()), model);
    store.verify().unwrap();
}

#[test]
fn a_damaged_meta_page_leads_to_no_version_in_which_a_commit_is_missing() {
    let table = Table::<u32, [u8]>::new("rows");
    let disk = MemoryDisk::new();
    let store = Options::new().page_bytes(256).log_bytes(1).keeper(false).open(&disk, "store").unwrap();
    // The third is too long for a record of the log, and so is in pages alone.
    for (commit, bytes) in [(0, 10), (1, 10), (2, 5_000), (3, 10), (4, 10)] {
        let mut txn = store.begin();
        txn.put(&table, commit, &vec![7; bytes]).unwrap();
        txn.commit().unwrap();
    }
    for meta in [0, 256] {
        let damaged = copy(&disk);
        damaged.open("store", Open::ReadWrite).unwrap().write_at(meta, &[0; 256]).unwrap();
        let store = Options::new().open(&damaged, "store").unwrap();
        let commits: Result<Vec<u32>, _> = store.snapshot().scan(&table).unwrap().map(|commit, _| commit).collect();
        let commits = commits.unwrap();
        assert!(commits.iter().copied().eq(0..commits.len() as u32), "{commits:?}");
    }
}
