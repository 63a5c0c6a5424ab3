//! Waking up who waits for rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::Change;

/// A bell: raised after commits, waited for by one thread or several.
///
/// ```
/// use kauri_runtime::substrate::Signal;
///
/// let signal = Signal::default();
/// let seen = signal.count();
/// signal.raise();
/// // What was raised since `count` is not waited for again.
/// signal.wait(seen, None);
/// assert_eq!(signal.count(), seen + 1);
/// ```
#[derive(Debug, Default)]
pub struct Signal {
    count: Mutex<u64>,
    raised: Condvar,
}

impl Signal {
    /// How often it was raised. Ask before looking at the rows, and wait with the answer: so nothing is missed.
    #[must_use]
    pub fn count(&self) -> u64 {
        *self.lock()
    }

    /// Wakes all who wait.
    pub fn raise(&self) {
        let mut count = self.lock();
        *count = count.wrapping_add(1);
        self.raised.notify_all();
    }

    /// Returns when it was raised after `seen` was asked for, or when the time is over.
    pub fn wait(&self, seen: u64, most: Option<Duration>) {
        let guard = self.lock();
        match most {
            None => drop(self.raised.wait_while(guard, |count| *count == seen)),
            Some(most) => drop(self.raised.wait_timeout_while(guard, most, |count| *count == seen)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who is to be woken by which rows.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    any: AtomicBool,
    tables: Mutex<BTreeMap<&'static str, Prefixes>>,
}

/// The watches of one table.
#[derive(Debug, Default)]
struct Prefixes {
    signals: BTreeMap<Box<[u8]>, Vec<Weak<Signal>>>,
    /// The lengths that prefixes have: a key is looked up once for each, however many watches there are.
    lengths: BTreeSet<usize>,
}

impl Watches {
    pub(crate) fn add(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let prefixes = tables.entry(table).or_default();
        prefixes.lengths.insert(prefix.len());
        prefixes.signals.entry(prefix.into()).or_default().push(Arc::downgrade(signal));
        self.any.store(true, Ordering::Release);
    }

    /// Wakes those whose rows this change has put or appended. Nobody waits for a row to vanish.
    pub(crate) fn notify(&self, change: &Change) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        for (table, prefixes) in tables.iter_mut() {
            let appended =
                change.appends.iter().filter(|append| append.table == *table).map(|append| &append.prefix[..]);
            let put = change.writes.get(*table).into_iter().flatten().filter(|(_, value)| value.is_some());
            // Rows of one prefix come together, and one call is enough for all of them.
            let woken: BTreeSet<&[u8]> =
                appended.chain(put.map(|(key, _)| &key[..])).flat_map(|key| prefixes.of(key)).collect();
            let woken: Vec<Box<[u8]>> = woken.into_iter().map(Into::into).collect();
            woken.iter().for_each(|prefix| prefixes.raise(prefix));
        }
    }
}

impl Prefixes {
    /// The watched prefixes of a key.
    fn of<'a>(&self, key: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.lengths
            .iter()
            .filter_map(move |length| key.get(..*length))
            .filter(|prefix| self.signals.contains_key(*prefix))
    }

    fn raise(&mut self, prefix: &[u8]) {
        let Some(waiting) = self.signals.get_mut(prefix) else { return };
        waiting.retain(|signal| match signal.upgrade() {
            Some(signal) => {
                signal.raise();
                true
            }
            None => false,
        });
        if waiting.is_empty() {
            self.signals.remove(prefix);
        }
    }
}
