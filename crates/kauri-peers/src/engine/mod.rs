//! What a benchmark asks of a storage engine, and the engines that are asked.

mod fjall;
mod kauri;
mod lmdb;
mod redb;

use std::path::Path;

pub(crate) use self::fjall::Fjall;
pub(crate) use self::kauri::{Kauri, KauriPairs};
pub(crate) use self::lmdb::{Lmdb, LmdbPairs};
pub(crate) use self::redb::Redb;

/// When a commit returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sync {
    /// When no crash takes it away.
    Each,
    /// When it is done; a crash of the machine may take it away.
    Never,
}

/// What a scan saw: how many rows, and a sum of their bytes that keeps the work from being left out.
pub(crate) type Seen = (usize, u64);

/// One version of an engine's rows. Every call looks at the bytes that it finds: an engine that only points at them pays for
/// fetching them too.
pub(crate) trait Reader {
    fn get(&self, key: &[u8]) -> Option<u64>;
    /// At most so many rows from this key on; from the first row if the key is empty.
    fn scan(&self, from: &[u8], rows: usize) -> Seen;
    /// All rows, from the last to the first.
    fn scan_back(&self) -> Seen;
    /// How many rows there are from one key up to another.
    fn count(&self, from: &[u8], until: &[u8]) -> usize;
}

/// A transaction's changes.
pub(crate) trait Writer {
    fn put(&mut self, key: &[u8], value: &[u8]);
    fn remove(&mut self, key: &[u8]);
}

/// A storage engine, open. Trouble is a panic: there is nothing to measure then.
pub(crate) trait Engine: std::marker::Sync + Sized {
    const NAME: &'static str;
    type Reader<'a>: Reader
    where
        Self: 'a;
    type Writer<'a>: Writer
    where
        Self: 'a;

    fn open(folder: &Path, sync: Sync) -> Self;
    fn read<T>(&self, work: impl FnOnce(&Self::Reader<'_>) -> T) -> T;
    /// Does the work in one transaction and commits it.
    fn write<T>(&self, work: impl FnOnce(&mut Self::Writer<'_>) -> T) -> T;
    /// Fills an empty store with rows in order, in the engine's fastest way.
    fn bulk<'a>(&self, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        self.write(|writer| rows.for_each(|(key, value)| writer.put(key, value)));
    }
    /// What its files hold whatever is stored, such as a log. It is not counted as size.
    fn fixed_bytes(&self) -> u64 {
        0
    }
    /// Returns when work in the background is done and the files are as they stay.
    fn settle(&self) {}
    fn close(self) {}
}

/// A key of several values.
pub(crate) type Key = [u8; 8];
/// A key and one of its values.
pub(crate) type Pair = (Key, [u8; 16]);

/// A table in which a key has several sorted values, without sync.
pub(crate) trait Pairs: Sized {
    const NAME: &'static str;

    fn open(folder: &Path) -> Self;
    /// Inserts pairs in one transaction.
    fn insert(&self, pairs: &[Pair]);
    /// Removes pairs, which are there, in one transaction.
    fn remove(&self, pairs: &[Pair]);
    fn scan(&self) -> Seen;
    /// How many values these keys have, asked for one after the other.
    fn count(&self, keys: &[Key]) -> usize;
    fn close(self) {}
}

/// Looks at a row's bytes.
#[inline]
fn touch(bytes: &[u8]) -> u64 {
    let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last()) else { return bytes.len() as u64 };
    u64::from_le_bytes(*first).wrapping_add(u64::from(*last))
}

#[inline]
fn add((rows, sum): Seen, key: &[u8], value: &[u8]) -> Seen {
    (rows + 1, sum.wrapping_add(touch(key) ^ touch(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every engine must do the same work, or its numbers mean nothing.
    fn check<E: Engine>() {
        let folder = std::env::temp_dir().join(format!("kauri-peers-{}-{}", E::NAME, std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let keys: Vec<[u8; 8]> = (0..100_u64).map(|key| (key * 3).to_be_bytes()).collect();
        let engine = E::open(&folder, Sync::Never);
        engine.bulk(keys.iter().map(|key| (&key[..], &key[..])));
        engine.write(|writer| {
            writer.put(&keys[7], &[9; 32]);
            writer.remove(&keys[8]);
        });
        engine.settle();
        engine.close();
        let engine = E::open(&folder, Sync::Each);
        engine.read(|reader| {
            assert_eq!(reader.get(&keys[7]), Some(touch(&[9; 32])));
            assert_eq!(reader.get(&keys[8]), None);
            let (rows, sum) = reader.scan(&[], usize::MAX);
            assert_eq!((rows, sum), reader.scan_back());
            assert_eq!(rows, 99);
            assert_eq!(reader.scan(&keys[90], 5).0, 5);
            assert_eq!(reader.scan(&keys[98], 5).0, 2);
            assert_eq!(reader.count(&keys[5], &keys[10]), 4);
        });
        engine.close();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn every_engine_keeps_the_same_rows() {
        check::<Kauri>();
        check::<Lmdb>();
        check::<Redb>();
        check::<Fjall>();
    }
}
