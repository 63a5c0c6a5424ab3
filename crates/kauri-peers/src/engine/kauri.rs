//! Kauri's own store.

use std::path::Path;

use kauri_tree::disk::OsDisk;
use kauri_tree::{
    Durability, MultiTable, Options, Read, ReadMulti, Snapshot, Store, Table, Write, WriteMulti, WriteTxn,
};

use super::{Engine, Key, Pair, Pairs, Reader, Seen, Sync, Writer, add, touch};

const ROWS: Table<[u8], [u8]> = Table::new("rows");

pub(crate) struct Kauri {
    store: Store,
    durability: Durability,
}

impl Engine for Kauri {
    const NAME: &'static str = "kauri";
    type Reader<'a> = Snapshot<'a>;
    type Writer<'a> = WriteTxn<'a>;

    fn open(folder: &Path, sync: Sync) -> Self {
        let disk = OsDisk::new(folder).expect("the folder opens");
        let store = Options::new().open(&disk, "store").expect("the store opens");
        let durability = match sync {
            Sync::Each => Durability::Sync,
            Sync::Never => Durability::None,
        };
        Self { store, durability }
    }

    #[inline]
    fn read<T>(&self, work: impl FnOnce(&Snapshot<'_>) -> T) -> T {
        work(&self.store.snapshot())
    }

    #[inline]
    fn write<T>(&self, work: impl FnOnce(&mut WriteTxn<'_>) -> T) -> T {
        let mut txn = self.store.begin();
        let made = work(&mut txn);
        txn.commit_with(self.durability).expect("the transaction commits");
        made
    }

    fn bulk<'a>(&self, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        self.write(|txn| txn.load_sorted(&ROWS, rows).expect("the rows are in order"));
    }

    fn fixed_bytes(&self) -> u64 {
        self.store.stat().log_bytes
    }

    fn settle(&self) {
        self.store.checkpoint().expect("the pages are written");
    }
}

impl Reader for Snapshot<'_> {
    #[inline]
    fn get(&self, key: &[u8]) -> Option<u64> {
        Read::get(self, &ROWS, key).expect("the store is whole").map(|value| touch(&value))
    }

    fn scan(&self, from: &[u8], rows: usize) -> Seen {
        let mut scan = Read::scan(self, &ROWS).expect("the store is whole");
        if !from.is_empty() {
            scan = scan.from(from);
        }
        let mut seen = (0, 0);
        if rows == usize::MAX {
            scan.for_each(|key, value| seen = add(seen, key, &value)).expect("the store is whole");
            return seen;
        }
        while seen.0 < rows
            && let Some((key, value)) = scan.next().expect("the store is whole")
        {
            seen = add(seen, key, &value);
        }
        seen
    }

    fn scan_back(&self) -> Seen {
        let mut scan = Read::scan(self, &ROWS).expect("the store is whole");
        let mut seen = (0, 0);
        while let Some((key, value)) = scan.previous().expect("the store is whole") {
            seen = add(seen, key, &value);
        }
        seen
    }

    fn count(&self, from: &[u8], until: &[u8]) -> usize {
        let mut scan = Read::scan(self, &ROWS).expect("the store is whole").from(from).until(until);
        scan.count().expect("the store is whole") as usize
    }
}

impl Writer for WriteTxn<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        Write::put(self, &ROWS, key, value).expect("the row is written");
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) {
        Write::remove(self, &ROWS, key).expect("the row is removed");
    }
}

const PAIRS: MultiTable<[u8], [u8]> = MultiTable::new("pairs");

/// Our table of several sorted values per key.
pub(crate) struct KauriPairs(Kauri);

impl Pairs for KauriPairs {
    const NAME: &'static str = "kauri";

    fn open(folder: &Path) -> Self {
        Self(Kauri::open(folder, Sync::Never))
    }

    fn insert(&self, pairs: &[Pair]) {
        self.0.write(|txn| {
            for (key, value) in pairs {
                txn.put_value(&PAIRS, key, value).expect("the pair is written");
            }
        });
    }

    fn remove(&self, pairs: &[Pair]) {
        self.0.write(|txn| {
            for (key, value) in pairs {
                assert!(txn.remove_value(&PAIRS, key, value).expect("the pair is removed"));
            }
        });
    }

    fn scan(&self) -> Seen {
        let mut seen = (0, 0);
        let see = |(key, value): (std::borrow::Cow<'_, [u8]>, &[u8]), ()| seen = add(seen, &key, value);
        self.0.read(|snapshot| Read::scan(snapshot, &PAIRS)?.for_each(see)).expect("the store is whole");
        seen
    }

    fn count(&self, keys: &[Key]) -> usize {
        let count = |snapshot: &Snapshot<'_>| {
            keys.iter().map(|key| snapshot.count_values(&PAIRS, key).expect("the store is whole")).sum::<u64>()
        };
        self.0.read(count) as usize
    }
}
