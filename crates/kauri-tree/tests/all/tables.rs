//! Tables: made and dropped with their transaction, and only for one pair of types.

use kauri_tree::disk::MemoryDisk;
use kauri_tree::{Change, Error, Options, Read, Store, Table, Write, WriteTxn};

const STOCK: Table<str, u64> = Table::new("stock");

#[test]
fn missing_tables_are_empty_and_reading_does_not_make_them() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    assert_eq!(txn.get(&STOCK, "apples").unwrap(), None);
    assert!(!txn.remove(&STOCK, "apples").unwrap());
    assert_eq!(txn.len(&STOCK).unwrap(), 0);
    assert!(txn.scan(&STOCK).unwrap().next().unwrap().is_none());
    txn.commit().unwrap();
    assert_eq!(store.snapshot().tables().count(), 0);
}

#[test]
fn tables_appear_and_disappear_with_their_transaction() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put(&STOCK, "apples", 1).unwrap();
    drop(txn);
    assert_eq!(store.snapshot().tables().count(), 0);
    // While others read, and while a transaction is open around the one that makes it.
    let before = store.snapshot();
    let mut txn = store.begin();
    let mut child = txn.nest();
    child.put(&STOCK, "apples", 1).unwrap();
    child.commit().unwrap();
    let mut child = txn.nest();
    assert!(child.drop_table("stock").unwrap());
    drop(child);
    txn.commit().unwrap();
    assert_eq!(before.tables().count(), 0);
    let snapshot = store.snapshot();
    assert!(snapshot.tables().eq(["stock"]));
    let mut txn = store.begin();
    assert!(txn.drop_table("stock").unwrap() && !txn.drop_table("stock").unwrap());
    txn.commit().unwrap();
    assert_eq!(snapshot.get(&STOCK, "apples").unwrap(), Some(1));
    assert_eq!(store.snapshot().get(&STOCK, "apples").unwrap(), None);
}

#[test]
fn a_table_used_with_other_types_is_refused_in_words() {
    let store = Store::in_memory().unwrap();
    let mut txn = store.begin();
    txn.put(&STOCK, "apples", 1).unwrap();
    let wrong = Table::<str, str>::new("stock");
    for error in [
        txn.get(&wrong, "apples").err(),
        txn.put(&wrong, "apples", "many").err(),
        txn.remove(&wrong, "apples").err(),
        txn.scan(&wrong).err(),
        txn.len(&wrong).err(),
    ] {
        let error = error.expect("a refusal");
        assert_eq!(error.to_string(), "table `stock` is used with text to text and was made for text to u64");
    }
    assert!(txn.drop_table("stock").unwrap());
    txn.put(&wrong, "apples", "many").unwrap();
}

#[test]
fn thousands_of_tables_are_kept_apart() {
    let store = Store::in_memory().unwrap();
    let tables: Vec<_> = (0..3_000).map(|number| Table::<u32, u32>::named(format!("table-{number}"))).collect();
    for (chunk, tables) in tables.chunks(100).enumerate() {
        let mut txn = store.begin();
        for (number, table) in tables.iter().enumerate() {
            txn.put(table, 7, (chunk * 100 + number) as u32).unwrap();
        }
        txn.commit().unwrap();
    }
    let mut txn = store.begin();
    for table in tables.iter().step_by(2) {
        assert!(txn.drop_table(table.name()).unwrap());
    }
    txn.commit().unwrap();
    let snapshot = store.snapshot();
    for (number, table) in tables.iter().enumerate() {
        assert_eq!(snapshot.get(table, 7).unwrap(), (number % 2 == 1).then_some(number as u32));
    }
    assert_eq!(store.verify().unwrap().tables, 1_500);
}

#[test]
fn keys_up_to_a_quarter_page_pass_and_longer_ones_are_refused() {
    let table = Table::<[u8], [u8]>::new("rows");
    for page_bytes in [256, 4096, 65536] {
        let store = Options::new().page_bytes(page_bytes).in_memory().unwrap();
        let mut txn = store.begin();
        let key = vec![1; page_bytes / 4 - 8];
        txn.put(&table, &key, b"value").unwrap();
        assert_eq!(txn.get(&table, &key).unwrap().as_deref(), Some(&b"value"[..]));
        let longer = vec![1; page_bytes / 4 - 7];
        let error = txn.put(&table, &longer, b"value").unwrap_err();
        assert!(matches!(error, Error::KeyTooLong { .. }), "{error}");
        assert_eq!(txn.get(&table, &longer).unwrap(), None);
    }
}

/// Makes a table of this name in every way there is; each is told, and none leaves anything behind if it is refused.
fn make_named(store: &Store, name: &str) -> Vec<Result<(), Error>> {
    type Way = fn(&mut WriteTxn<'_>, &Table<[u8], [u8]>) -> Result<(), Error>;
    let ways: &[Way] = &[
        |txn, table| txn.put(table, b"k", b"v"),
        |txn, table| txn.insert(table, b"k", b"v").map(drop),
        |txn, table| txn.reserve(table, b"k", 1, |bytes| bytes.fill(7)),
        |txn, table| txn.reserve(table, b"k", 3_000, |bytes| bytes.fill(7)),
        |txn, table| txn.load_sorted(table, [(&b"k"[..], &b"v"[..])]).map(drop),
        |txn, table| txn.cursor_mut(table)?.put_at(b"k", b"v"),
        |txn, table| txn.put_raw(table.name(), b"k", b"v"),
    ];
    let table = Table::named(name.to_owned());
    let made = ways.iter().map(|way| {
        let mut txn = store.begin();
        let made = way(&mut txn, &table);
        assert_eq!(txn.len(&table).unwrap(), u64::from(made.is_ok()));
        made
    });
    let mut made: Vec<_> = made.collect();
    let mut change = Change::new(store.snapshot());
    change.put(&table, b"k", b"v").unwrap();
    made.push(store.commit(change).map(|outcome| assert!(outcome.is_committed())));
    made
}

#[test]
fn names_of_tables_are_as_long_as_keys_and_longer_ones_are_refused() {
    for page_bytes in [256, 4096, 65536] {
        let disk = MemoryDisk::new();
        let store = Options::new().page_bytes(page_bytes).open(&disk, "store").unwrap();
        let most = page_bytes / 4 - 8;
        for found in [most + 1, page_bytes / 2, page_bytes, 3 * page_bytes] {
            for refused in make_named(&store, &"n".repeat(found)) {
                let Err(Error::NameTooLong { most: told, found: told_found }) = refused else { panic!("{refused:?}") };
                assert_eq!((told, told_found), (most, found));
            }
        }
        assert_eq!(store.snapshot().tables().count(), 0);
        let longest = "n".repeat(most);
        assert!(make_named(&store, &longest).iter().all(Result::is_ok));
        store.checkpoint().unwrap();
        drop(store);

        let store = Options::new().open(&disk, "store").unwrap();
        assert!(store.snapshot().tables().eq([longest.as_str()]));
        assert_eq!(store.verify().unwrap().rows, 1);
    }
}

#[test]
fn the_name_of_a_table_leaves_room_for_the_names_of_its_types() {
    type Wide = (String, String, String, String);
    let disk = MemoryDisk::new();
    let store = Options::new().page_bytes(256).open(&disk, "store").unwrap();
    let named = |bytes: usize| Table::<Wide, u64>::named("n".repeat(bytes));
    let key = ("a", "b", "c", "d");
    let mut txn = store.begin();
    let Err(Error::NameTooLong { most, found: 56 }) = txn.put(&named(56), key, 7) else { panic!("it fits") };
    assert!((1..56).contains(&most));
    assert!(matches!(txn.put(&named(most + 1), key, 7), Err(Error::NameTooLong { .. })));
    txn.put(&named(most), key, 7).unwrap();
    txn.commit().unwrap();
    drop(store);
    let store = Options::new().open(&disk, "store").unwrap();
    assert_eq!(store.snapshot().get(&named(most), key).unwrap(), Some(7));
    store.verify().unwrap();
}

#[test]
fn values_of_several_runs_come_back_whole() {
    let store = Options::new().page_bytes(256).in_memory().unwrap();
    let table = Table::<u8, [u8]>::new("rows");
    // A run of 256-byte pages holds 4 MiB at most.
    let value: Vec<u8> = (0..10_000_000_u32).map(|index| (index / 3) as u8).collect();
    let mut txn = store.begin();
    txn.put(&table, 1, &value).unwrap();
    txn.put(&table, 2, &value[..5_000]).unwrap();
    txn.commit().unwrap();
    assert_eq!(store.snapshot().get(&table, 1).unwrap().as_deref(), Some(&value[..]));
    assert!(matches!(store.snapshot().get(&table, 2).unwrap(), Some(std::borrow::Cow::Borrowed(_))));
    store.verify().unwrap();
    let mut txn = store.begin();
    txn.put(&table, 1, b"short").unwrap();
    txn.remove(&table, 2).unwrap();
    txn.commit().unwrap();
    drop(store.begin());
    store.verify().unwrap();
    let stat = store.stat();
    assert_eq!(stat.pages - stat.free_pages, 1, "{stat:?}");
}

#[test]
fn a_panic_rolls_its_transaction_back_and_no_other() {
    let store = Store::in_memory().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut txn = store.begin();
        txn.put(&STOCK, "apples", 1).unwrap();
        panic!("in user code");
    }));
    assert!(panicked.is_err());
    let mut txn = store.begin();
    assert_eq!(txn.get(&STOCK, "apples").unwrap(), None);
    txn.put(&STOCK, "apples", 2).unwrap();
    txn.commit().unwrap();
    assert_eq!(store.snapshot().get(&STOCK, "apples").unwrap(), Some(2));
    store.verify().unwrap();
}

#[test]
fn pages_of_a_size_that_cannot_be_are_refused() {
    for bytes in [0, 128, 300, 131_072] {
        assert!(
            matches!(Options::new().page_bytes(bytes).in_memory(), Err(Error::PageSize { found }) if found == bytes)
        );
    }
}
