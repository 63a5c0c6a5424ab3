//! LMDB, through heed.

#![expect(unsafe_code, reason = "heed's open is unsafe: the map must not be changed from outside")]

use std::ops::Bound;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, DatabaseFlags, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, RwTxn, WithTls};

use super::{Engine, Key, Pair, Pairs, Reader, Seen, Sync, Writer, add, touch};

/// The most a store can grow to; only address space.
const MAP_BYTES: usize = 16 << 30;

type Rows = Database<'static, Bytes, Bytes>;

pub(crate) struct Lmdb {
    /// On the heap until [`close`], because `rows` borrows it.
    env: &'static Env<WithTls>,
    rows: Rows,
}

pub(crate) struct LmdbReader<'a>(RoTxn<'a, WithTls>, Rows);
pub(crate) struct LmdbWriter<'a>(RwTxn<'a>, Rows);

impl Engine for Lmdb {
    const NAME: &'static str = "lmdb";
    type Reader<'a> = LmdbReader<'a>;
    type Writer<'a> = LmdbWriter<'a>;

    fn open(folder: &Path, sync: Sync) -> Self {
        let env = open(folder, sync);
        let txn = env.write_txn().expect("a transaction begins");
        let made = env.create_databases_and_commit(txn, |opener, txn| -> heed::Result<_> {
            Ok(CommitOrAbort::<_, ()>::Commit(opener.create_database::<Bytes, Bytes>(txn, None)?))
        });
        Self { env, rows: made.expect("the table is made").unwrap_commit() }
    }

    #[inline]
    fn read<T>(&self, work: impl FnOnce(&LmdbReader<'_>) -> T) -> T {
        work(&LmdbReader(self.env.read_txn().expect("a snapshot is taken"), self.rows))
    }

    #[inline]
    fn write<T>(&self, work: impl FnOnce(&mut LmdbWriter<'_>) -> T) -> T {
        let mut writer = LmdbWriter(self.env.write_txn().expect("a transaction begins"), self.rows);
        let made = work(&mut writer);
        writer.0.commit().expect("the transaction commits");
        made
    }

    fn bulk<'a>(&self, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        self.write(|LmdbWriter(txn, table)| {
            for (key, value) in rows {
                table.put_with_flags(txn, PutFlags::APPEND, key, value).expect("the row is written");
            }
        });
    }

    fn close(self) {
        close(self.env);
    }
}

fn open(folder: &Path, sync: Sync) -> &'static Env<WithTls> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(126).max_dbs(1);
    if sync == Sync::Never {
        // SAFETY: a crash of the machine may damage this store; it is a benchmark's and nobody opens it after one.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
    }
    // SAFETY: the folder is this process's own; nobody else opens or changes the files in it.
    let env = unsafe { options.open(folder) }.expect("the store opens");
    Box::leak(Box::new(env))
}

/// Called once for what [`open`] returned, by whoever owns it alone.
fn close(env: &'static Env<WithTls>) {
    let env = std::ptr::from_ref(env).cast_mut();
    // SAFETY: the pointer is that of the box leaked in `open`. Readers and writers borrow the one that closes, so none is left, and
    // the table, which borrows the environment, is a plain number that is not used again.
    let env = unsafe { Box::from_raw(env) };
    env.prepare_for_closing().wait();
}

/// LMDB's table of several sorted values per key.
pub(crate) struct LmdbPairs {
    env: &'static Env<WithTls>,
    pairs: Rows,
}

impl Pairs for LmdbPairs {
    const NAME: &'static str = "lmdb";

    fn open(folder: &Path) -> Self {
        let env = open(folder, Sync::Never);
        let txn = env.write_txn().expect("a transaction begins");
        let made = env.create_databases_and_commit(txn, |opener, txn| -> heed::Result<_> {
            let mut options = opener.database_options().types::<Bytes, Bytes>();
            options.flags(DatabaseFlags::DUP_SORT).name("pairs");
            Ok(CommitOrAbort::<_, ()>::Commit(options.create(txn)?))
        });
        Self { env, pairs: made.expect("the table is made").unwrap_commit() }
    }

    fn insert(&self, pairs: &[Pair]) {
        let mut txn = self.env.write_txn().expect("a transaction begins");
        for (key, value) in pairs {
            self.pairs.put(&mut txn, key, value).expect("the pair is written");
        }
        txn.commit().expect("the transaction commits");
    }

    fn remove(&self, pairs: &[Pair]) {
        let mut txn = self.env.write_txn().expect("a transaction begins");
        for (key, value) in pairs {
            assert!(self.pairs.delete_one_duplicate(&mut txn, key, value).expect("the pair is removed"));
        }
        txn.commit().expect("the transaction commits");
    }

    fn scan(&self) -> Seen {
        let txn = self.env.read_txn().expect("a snapshot is taken");
        sum(self.pairs.iter(&txn).expect("the store is whole"))
    }

    /// By going through them: heed does not offer LMDB's own count.
    fn count(&self, keys: &[Key]) -> usize {
        let txn = self.env.read_txn().expect("a snapshot is taken");
        let count =
            |key: &Key| self.pairs.get_duplicates(&txn, key).expect("the store is whole").map_or(0, Iterator::count);
        keys.iter().map(count).sum()
    }

    fn close(self) {
        close(self.env);
    }
}

impl Reader for LmdbReader<'_> {
    #[inline]
    fn get(&self, key: &[u8]) -> Option<u64> {
        self.1.get(&self.0, key).expect("the store is whole").map(touch)
    }

    fn scan(&self, from: &[u8], rows: usize) -> Seen {
        let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let scan = self.1.range(&self.0, &(from, Bound::Unbounded)).expect("the store is whole");
        sum(scan.take(rows))
    }

    fn scan_back(&self) -> Seen {
        sum(self.1.rev_iter(&self.0).expect("the store is whole"))
    }

    fn count(&self, from: &[u8], until: &[u8]) -> usize {
        let range = (Bound::Included(from), Bound::Excluded(until));
        self.1.range(&self.0, &range).expect("the store is whole").count()
    }
}

fn sum<'a>(rows: impl Iterator<Item = heed::Result<(&'a [u8], &'a [u8])>>) -> Seen {
    rows.fold((0, 0), |seen, row| {
        let (key, value) = row.expect("the store is whole");
        add(seen, key, value)
    })
}

impl Writer for LmdbWriter<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.1.put(&mut self.0, key, value).expect("the row is written");
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) {
        self.1.delete(&mut self.0, key).expect("the row is removed");
    }
}
