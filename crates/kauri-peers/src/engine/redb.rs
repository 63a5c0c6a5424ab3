//! redb.

use std::path::Path;

use redb::{
    AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Result, Table, TableDefinition,
};

use super::{Engine, Reader, Seen, Sync, Writer, add, touch};

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");
/// More than any benchmark's rows take.
const CACHE_BYTES: usize = 1 << 30;

pub(crate) struct Redb {
    store: Database,
    durability: Durability,
}

pub(crate) struct RedbReader(ReadOnlyTable<&'static [u8], &'static [u8]>);
pub(crate) struct RedbWriter<'a>(Table<'a, &'static [u8], &'static [u8]>);

impl Engine for Redb {
    const NAME: &'static str = "redb";
    type Reader<'a> = RedbReader;
    type Writer<'a> = RedbWriter<'a>;

    fn open(folder: &Path, sync: Sync) -> Self {
        let store = Database::builder().set_cache_size(CACHE_BYTES).create(folder.join("store")).expect("it opens");
        let durability = match sync {
            Sync::Each => Durability::Immediate,
            Sync::Never => Durability::None,
        };
        if store.begin_read().expect("a snapshot is taken").open_table(ROWS).is_err() {
            let txn = store.begin_write().expect("a transaction begins");
            txn.open_table(ROWS).expect("the table is made");
            txn.commit().expect("the transaction commits");
        }
        Self { store, durability }
    }

    #[inline]
    fn read<T>(&self, work: impl FnOnce(&RedbReader) -> T) -> T {
        let txn = self.store.begin_read().expect("a snapshot is taken");
        work(&RedbReader(txn.open_table(ROWS).expect("the table is there")))
    }

    #[inline]
    fn write<T>(&self, work: impl FnOnce(&mut RedbWriter<'_>) -> T) -> T {
        let mut txn = self.store.begin_write().expect("a transaction begins");
        txn.set_durability(self.durability).expect("no savepoint is kept");
        let made = work(&mut RedbWriter(txn.open_table(ROWS).expect("the table is there")));
        txn.commit().expect("the transaction commits");
        made
    }

    /// Commits without sync stay in memory until one with sync.
    fn settle(&self) {
        self.store.begin_write().expect("a transaction begins").commit().expect("the transaction commits");
    }
}

impl Reader for RedbReader {
    #[inline]
    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.get(key).expect("the store is whole").map(|value| touch(value.value()))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Seen {
        sum(self.0.range(from..).expect("the store is whole").take(rows))
    }

    fn scan_back(&self) -> Seen {
        sum(self.0.iter().expect("the store is whole").rev())
    }

    fn count(&self, from: &[u8], until: &[u8]) -> usize {
        self.0.range(from..until).expect("the store is whole").count()
    }
}

type Guard<'a> = AccessGuard<'a, &'static [u8]>;

fn sum<'a, E: std::fmt::Debug>(rows: impl Iterator<Item = Result<(Guard<'a>, Guard<'a>), E>>) -> Seen {
    rows.fold((0, 0), |seen, row| {
        let (key, value) = row.expect("the store is whole");
        add(seen, key.value(), value.value())
    })
}

impl Writer for RedbWriter<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key, value).expect("the row is written");
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) {
        self.0.remove(key).expect("the row is removed");
    }
}
