//! fjall, a log-structured merge tree. It works in threads of its own: their processor time is not counted.

use std::path::Path;
use std::thread;
use std::time::Duration;

use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot};

use super::{Engine, Reader, Seen, Sync, Writer, add, touch};

/// More than any benchmark's rows take.
const CACHE_BYTES: u64 = 1 << 30;

pub(crate) struct Fjall {
    store: Database,
    rows: Keyspace,
    persist: Option<PersistMode>,
}

pub(crate) struct FjallReader<'a>(Snapshot, &'a Keyspace);
pub(crate) struct FjallWriter<'a>(OwnedWriteBatch, &'a Keyspace);

impl Engine for Fjall {
    const NAME: &'static str = "fjall";
    type Reader<'a> = FjallReader<'a>;
    type Writer<'a> = FjallWriter<'a>;

    fn open(folder: &Path, sync: Sync) -> Self {
        let store = Database::builder(folder).cache_size(CACHE_BYTES).open().expect("the store opens");
        let rows = store.keyspace("rows", KeyspaceCreateOptions::default).expect("the table is made");
        Self { store, rows, persist: (sync == Sync::Each).then_some(PersistMode::SyncData) }
    }

    #[inline]
    fn read<T>(&self, work: impl FnOnce(&FjallReader<'_>) -> T) -> T {
        work(&FjallReader(self.store.snapshot(), &self.rows))
    }

    #[inline]
    fn write<T>(&self, work: impl FnOnce(&mut FjallWriter<'_>) -> T) -> T {
        let mut writer = FjallWriter(self.store.batch().durability(self.persist), &self.rows);
        let made = work(&mut writer);
        writer.0.commit().expect("the batch commits");
        made
    }

    fn bulk<'a>(&self, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        let mut ingestion = self.rows.start_ingestion().expect("loading begins");
        for (key, value) in rows {
            ingestion.write(key, value).expect("the row is written");
        }
        ingestion.finish().expect("loading ends");
    }

    fn settle(&self) {
        self.rows.rotate_memtable_and_wait().expect("the table in memory is written");
        while self.store.outstanding_flushes() > 0 || self.store.active_compactions() > 0 {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Reader for FjallReader<'_> {
    #[inline]
    fn get(&self, key: &[u8]) -> Option<u64> {
        self.0.get(self.1, key).expect("the store is whole").map(|value| touch(&value))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Seen {
        sum(self.0.range(self.1, from..).take(rows))
    }

    fn scan_back(&self) -> Seen {
        sum(self.0.iter(self.1).rev())
    }

    fn count(&self, from: &[u8], until: &[u8]) -> usize {
        self.0.range(self.1, from..until).count()
    }
}

fn sum(rows: impl Iterator<Item = Guard>) -> Seen {
    rows.fold((0, 0), |seen, row| {
        let (key, value) = row.into_inner().expect("the store is whole");
        add(seen, &key, &value)
    })
}

impl Writer for FjallWriter<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(self.1, key, value);
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) {
        self.0.remove(self.1, key);
    }
}
