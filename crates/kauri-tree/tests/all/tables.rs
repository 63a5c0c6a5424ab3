//! Tables: made and dropped with their transaction, and only for one pair of types.

use kauri_tree::{Error, Options, Read, Store, Table, Write};

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
