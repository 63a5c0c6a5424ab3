//! Watches of rows that expire.

use kauri_wire::Key;

use super::{Entry, ROW, Timed, TtlTable, without_expiry};
use crate::error::Result;
use crate::store::Store;
use crate::value::Value;
use crate::watch::{Notice, Watch};

impl Store {
    /// As [`watch`](Self::watch), for a table whose rows expire: a row is told of when its value changes or the moment at which it
    /// expires, and when it is removed, by hand, by a sweep, or because it was met. That the moment has come changes no row,
    /// and is not told.
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// use kauri_tree::{Notice, Store, TtlTable, WriteTtl};
    ///
    /// const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    /// let store = Store::in_memory()?;
    /// let (sender, seen) = mpsc::channel();
    /// let watch = store.watch_expiring(&SESSIONS, b"", move |notice| {
    ///     if let Notice::Removed { key, .. } = notice {
    ///         sender.send(key.to_owned()).unwrap();
    ///     }
    /// })?;
    /// let mut txn = store.begin();
    /// txn.put_until(&SESSIONS, "ann", 7, 1_000)?;
    /// txn.commit()?;
    /// let mut txn = store.begin();
    /// txn.sweep(&SESSIONS, 2_000, 100)?;
    /// txn.commit()?;
    /// assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["ann"]);
    /// drop(watch);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for `watch`.
    pub fn watch_expiring<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &TtlTable<K, V>,
        prefix: &[u8],
        mut see: impl FnMut(Notice<'_, K, V>) + Send + 'static,
    ) -> Result<Watch> {
        // Rows alone: what says when they are due is not what was asked for.
        let prefix = [&[ROW], prefix].concat();
        self.watch(&table.rows, &prefix, move |notice| see(unwrap(notice).unwrap_or(Notice::Missed)))
    }
}

/// What a notice says of the row as its owner knows it; `None` if it is not of the table's types.
fn unwrap<'a, K: Key + ?Sized, V: Value + ?Sized>(notice: Notice<'a, Entry<K>, Timed<V>>) -> Option<Notice<'a, K, V>> {
    let key_of = |entry: &'a [u8]| K::decode(entry.get(1..)?).ok();
    match notice {
        Notice::Put { version, key, value } => {
            let value = V::decode(without_expiry(value)).ok()?;
            Some(Notice::Put { version, key: key_of(key)?, value })
        }
        Notice::Removed { version, key } => Some(Notice::Removed { version, key: key_of(key)? }),
        Notice::Missed => Some(Notice::Missed),
    }
}
