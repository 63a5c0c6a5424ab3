//! Waking up who waits for rows.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Change, prefix_end};

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
    signals: Mutex<Signals>,
}

/// By table and prefix.
type Signals = BTreeMap<(&'static str, Box<[u8]>), Vec<Weak<Signal>>>;

impl Watches {
    pub(crate) fn add(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        signals.entry((table, prefix.into())).or_default().push(Arc::downgrade(signal));
        self.any.store(true, Ordering::Release);
    }

    /// Wakes those whose rows this change has changed.
    pub(crate) fn notify(&self, change: &Change) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        signals.retain(|(table, prefix), waiting| {
            if concerns(change, table, prefix) {
                waiting.retain(|signal| {
                    signal.upgrade().is_some_and(|signal| {
                        signal.raise();
                        true
                    })
                });
            }
            !waiting.is_empty()
        });
    }
}

/// Whether a change puts or appends a row under the prefix. Nobody waits for a row to vanish.
fn concerns(change: &Change, table: &str, prefix: &[u8]) -> bool {
    let appends = change.appends.iter().any(|append| {
        append.table == table && (append.prefix.starts_with(prefix) || prefix.starts_with(&append.prefix))
    });
    appends
        || change.writes.get(table).is_some_and(|writes| {
            let end = prefix_end(prefix);
            let mut rows = writes.range::<[u8], _>((
                std::ops::Bound::Included(prefix),
                end.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded),
            ));
            rows.any(|(_, value)| value.is_some())
        })
}
