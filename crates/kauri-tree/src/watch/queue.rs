//! Notices that wait to be taken.

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kauri_wire::Key;

use super::{Note, Notice, Watch};
use crate::error::Result;
use crate::store::Store;
use crate::sync::{Condvar, Mutex, lock, wait};
use crate::table::Table;
use crate::value::Value;

/// What a watch has to tell, for whoever takes it. At most so many notices wait; where some did not fit, [`Notice::Missed`] stands in
/// their place.
///
/// ```
/// use kauri_tree::{Notice, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let mut queue = store.watch_queue(&STOCK, b"", 2)?;
/// for count in 1..5 {
///     let mut txn = store.begin();
///     txn.put(&STOCK, "apples", count)?;
///     txn.commit()?;
/// }
/// let mut seen = Vec::new();
/// while let Some(notice) = queue.try_next() {
///     seen.push(match notice {
///         Notice::Put { value, .. } => Some(value),
///         Notice::Removed { .. } => Some(0),
///         Notice::Missed => None,
///     });
/// }
/// assert_eq!(seen, [Some(1), Some(2), None]);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct WatchQueue<K: ?Sized, V: ?Sized> {
    waiting: Arc<Waiting>,
    /// What was taken last.
    taken: (u64, Note),
    watch: Watch,
    types: PhantomData<fn(&K, &V)>,
}

/// What waits in a queue.
struct Waiting {
    notes: Mutex<Notes>,
    changed: Condvar,
}

#[derive(Default)]
struct Notes {
    notes: VecDeque<(u64, Note)>,
    /// There will be no more.
    ended: bool,
}

/// What the store has of a queue.
struct Filler {
    waiting: Arc<Waiting>,
    notices_max: usize,
}

impl Filler {
    fn push(&self, version: u64, note: Note) {
        let mut notes = lock(&self.waiting.notes);
        if notes.notes.len() < self.notices_max {
            notes.notes.push_back((version, note));
        } else if !matches!(notes.notes.back(), Some((_, Note::Missed))) && !planted!(HideMissed) {
            notes.notes.push_back((version, Note::Missed));
        }
        self.waiting.changed.notify_all();
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        lock(&self.waiting.notes).ended = true;
        self.waiting.changed.notify_all();
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> WatchQueue<K, V> {
    /// The next notice, if one waits.
    ///
    /// ```
    /// use kauri_tree::{Notice, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// let mut queue = store.watch_queue(&STOCK, b"", 100)?;
    /// assert!(queue.try_next().is_none()); // it does not wait
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(matches!(queue.try_next(), Some(Notice::Put { key: "apples", value: 12, .. })));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn try_next(&mut self) -> Option<Notice<'_, K, V>> {
        let taken = lock(&self.waiting.notes).notes.pop_front()?;
        Some(self.read(taken))
    }

    /// The next notice, as soon as there is one; `None` when the store is closed.
    ///
    /// ```
    /// use std::thread;
    ///
    /// use kauri_tree::{Notice, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut queue = store.watch_queue(&STOCK, b"", 100)?;
    /// let waiter = thread::spawn(move || matches!(queue.wait_next(), Some(Notice::Put { value: 12, .. })));
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(waiter.join().unwrap());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn wait_next(&mut self) -> Option<Notice<'_, K, V>> {
        let mut notes = lock(&self.waiting.notes);
        let taken = loop {
            match notes.notes.pop_front() {
                Some(taken) => break taken,
                None if notes.ended => return None,
                None => notes = wait(&self.waiting.changed, notes),
            }
        };
        drop(notes);
        Some(self.read(taken))
    }

    fn read(&mut self, taken: (u64, Note)) -> Notice<'_, K, V> {
        self.taken = taken;
        self.taken.1.read(self.taken.0)
    }
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for WatchQueue<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchQueue").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl Store {
    /// As [`watch`](Self::watch), with a queue in which at most so many notices wait to be taken.
    ///
    /// ```
    /// use kauri_tree::{Notice, Store, Table, Write};
    ///
    /// const SALES: Table<(u32, String), u64> = Table::new("sales"); // by day, then by fruit
    /// # let store = Store::in_memory()?;
    /// let mut today = store.watch_queue(&SALES, &20_260_221_u32.to_be_bytes(), 100)?; // what keys of that day begin with
    /// let mut txn = store.begin();
    /// txn.put(&SALES, (20_260_220, "pears"), 5)?;
    /// txn.put(&SALES, (20_260_221, "apples"), 3)?;
    /// txn.commit()?;
    /// assert!(matches!(today.try_next(), Some(Notice::Put { value: 3, .. })));
    /// assert!(today.try_next().is_none());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for `watch`.
    pub fn watch_queue<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        prefix: &[u8],
        notices_max: usize,
    ) -> Result<WatchQueue<K, V>> {
        let waiting = Arc::new(Waiting { notes: Mutex::new(Notes::default()), changed: Condvar::new() });
        let filler = Filler { waiting: Arc::clone(&waiting), notices_max };
        let watch = self.watch_bytes(table, prefix, Box::new(move |version, note| filler.push(version, note)))?;
        Ok(WatchQueue { waiting, taken: (0, Note::Missed), watch, types: PhantomData })
    }
}
