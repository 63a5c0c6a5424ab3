//! The least that a program does with a store, and once each of what the features add: `cargo xtask size` compares how long it gets.

use kauri_tree::{Read, Result, Store, Table, Write};

const STOCK: Table<str, u64> = Table::new("stock");

fn main() -> Result<()> {
    let store = Store::in_memory()?;
    let mut txn = store.begin();
    txn.put(&STOCK, "apples", 12)?;
    txn.commit()?;
    assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    #[cfg(feature = "multi")]
    multi(&store)?;
    #[cfg(feature = "ttl")]
    ttl(&store)?;
    #[cfg(feature = "watch")]
    watch(&store)?;
    #[cfg(feature = "checkpoint")]
    checkpoint(&store)?;
    #[cfg(all(unix, feature = "file"))]
    file()?;
    Ok(())
}

#[cfg(feature = "multi")]
fn multi(store: &Store) -> Result<()> {
    use kauri_tree::{MultiTable, ReadMulti, WriteMulti};

    const TAGS: MultiTable<str, str> = MultiTable::new("tags");
    let mut txn = store.begin();
    txn.put_value(&TAGS, "apple", "red")?;
    assert_eq!(txn.values(&TAGS, "apple")?.next()?, Some("red"));
    assert!(txn.remove_value(&TAGS, "apple", "red")?);
    txn.commit()
}

#[cfg(feature = "ttl")]
fn ttl(store: &Store) -> Result<()> {
    use kauri_tree::{ReadTtl, TtlTable, WriteTtl};

    const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    let mut txn = store.begin();
    txn.put_until(&SESSIONS, "ann", 7, 10)?;
    assert_eq!(txn.get_live(&SESSIONS, "ann", 9)?, Some(7));
    assert_eq!(txn.sweep(&SESSIONS, 10, 100)?.rows, 1);
    txn.commit()
}

#[cfg(feature = "watch")]
fn watch(store: &Store) -> Result<()> {
    let mut queue = store.watch_queue(&STOCK, b"", 10)?;
    let mut txn = store.begin();
    txn.put(&STOCK, "pears", 5)?;
    txn.commit()?;
    assert!(queue.try_next().is_some());
    Ok(())
}

#[cfg(feature = "checkpoint")]
fn checkpoint(store: &Store) -> Result<()> {
    let mut stream = Vec::new();
    store.snapshot().checkpoint_to(&mut stream)?;
    let copy = Store::in_memory()?;
    copy.restore_from(&mut &stream[..])?;
    assert_eq!(copy.snapshot().content_hash()?, store.snapshot().content_hash()?);
    Ok(())
}

#[cfg(all(unix, feature = "file"))]
#[expect(clippy::disallowed_methods, reason = "a file of its own in the folder for temporary files")]
fn file() -> Result<()> {
    let path = std::env::temp_dir().join(format!("kauri-minimal-{}", std::process::id()));
    let store = Store::open(&path)?;
    let mut txn = store.begin();
    txn.put(&STOCK, "apples", 12)?;
    txn.commit()?;
    drop(store);
    std::fs::remove_file(&path)?;
    Ok(())
}
