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
///
/// Raising it wakes one of those who wait, who wakes the next: so it costs whoever commits the same for one follower and for ten, and
/// nothing while all of them are busy with what they found before.
#[derive(Debug, Default)]
pub struct Signal {
    bell: Mutex<Bell>,
    /// Who is told instead, one at a time.
    relay: Option<Mutex<Relay>>,
}

/// Those of whom one is enough: the instances that share an inbox.
#[derive(Debug, Default)]
struct Relay {
    signals: Vec<Weak<Signal>>,
    /// Somebody was woken who has not looked yet, and will see what came meanwhile.
    is_pending: bool,
}

#[derive(Debug, Default)]
struct Bell {
    count: u64,
    /// Those who wait, and for whom it was not raised yet.
    waiting: Vec<Arc<Waiter>>,
    /// Those for whom it was raised, and who are still to be woken.
    due: Vec<Arc<Waiter>>,
    /// Somebody was woken who has not yet woken the next.
    is_passing: bool,
}

impl Bell {
    /// The next to be woken, who then wakes the one after.
    fn next(&mut self) -> Option<Arc<Waiter>> {
        let next = self.due.pop();
        self.is_passing = next.is_some();
        next
    }

    /// Takes somebody out of the lists; tells whether it was in one.
    fn forget(&mut self, waiter: &Arc<Waiter>) -> bool {
        let before = self.waiting.len() + self.due.len();
        self.waiting.retain(|other| !Arc::ptr_eq(other, waiter));
        self.due.retain(|other| !Arc::ptr_eq(other, waiter));
        self.waiting.len() + self.due.len() < before
    }
}

impl Signal {
    /// How often it was raised. Ask before looking at the rows, and wait with the answer: so nothing is missed.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    /// A signal that wakes one of those who [join](Self::join) it.
    pub(crate) fn relaying() -> Self {
        Self { relay: Some(Mutex::default()), ..Self::default() }
    }

    /// Whoever waits for this signal may be the one whom a relaying signal wakes.
    pub(crate) fn join(&self, signal: &Arc<Self>) {
        if let Some(mut relay) = self.relay() {
            relay.signals.retain(|signal| signal.strong_count() > 0);
            relay.signals.push(Arc::downgrade(signal));
        }
    }

    /// Somebody looks now: what comes from now on is news again.
    pub(crate) fn look(&self) {
        if let Some(mut relay) = self.relay() {
            relay.is_pending = false;
        }
    }

    fn relay(&self) -> Option<MutexGuard<'_, Relay>> {
        self.relay.as_ref().map(|relay| relay.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Wakes one who waits, and tells whether there was one. Whoever is about to wait does not.
    fn raise_for_one(&self) -> bool {
        let mut bell = self.lock();
        bell.count = bell.count.wrapping_add(1);
        let one = bell.waiting.pop();
        drop(bell);
        one.iter().for_each(|one| one.wake());
        one.is_some()
    }

    /// Wakes all who wait: one from here, and each the next.
    pub fn raise(&self) {
        if let Some(mut relay) = self.relay() {
            if !relay.is_pending {
                relay.is_pending = relay.signals.iter().filter_map(Weak::upgrade).any(|signal| signal.raise_for_one());
            }
            return;
        }
        let mut bell = self.lock();
        bell.count = bell.count.wrapping_add(1);
        let Bell { waiting, due, .. } = &mut *bell;
        due.append(waiting);
        let first = if bell.is_passing { None } else { bell.next() };
        drop(bell);
        first.iter().for_each(|first| first.wake());
    }

    /// Returns when it was raised after `seen` was asked for, or when the time is over.
    pub fn wait(&self, seen: u64, most: Option<Duration>) {
        let waiter = Arc::new(Waiter::default());
        {
            let mut bell = self.lock();
            if bell.count != seen {
                return;
            }
            bell.waiting.push(Arc::clone(&waiter));
        }
        waiter.sleep(most);
        let next = {
            let mut bell = self.lock();
            // Whoever is still listed was not woken: its time is over, and others go on waking.
            if bell.forget(&waiter) { None } else { bell.next() }
        };
        next.iter().for_each(|next| next.wake());
    }

    /// Returns when this time is over: whoever raises a signal meanwhile wakes nobody.
    pub(crate) fn nap(time: Duration) {
        Waiter::default().sleep(Some(time));
    }

    fn lock(&self) -> MutexGuard<'_, Bell> {
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who waits, and sleeps until it is woken.
#[derive(Debug, Default)]
struct Waiter {
    is_woken: Mutex<bool>,
    woken: Condvar,
}

impl Waiter {
    fn wake(&self) {
        *self.is_woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_one();
    }

    fn sleep(&self, most: Option<Duration>) {
        let guard = self.is_woken.lock().unwrap_or_else(PoisonError::into_inner);
        match most {
            None => drop(self.woken.wait_while(guard, |is_woken| !*is_woken)),
            Some(most) => drop(self.woken.wait_timeout_while(guard, most, |is_woken| !*is_woken)),
        }
    }
}

/// Fewer watched prefixes of a table are not looked through.
const PREFIXES_MIN: usize = 64;

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
    /// With so many prefixes, those of which nobody is left are forgotten.
    full: usize,
}

impl Watches {
    pub(crate) fn add(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let prefixes = tables.entry(table).or_default();
        prefixes.forget_unwatched();
        prefixes.lengths.insert(prefix.len());
        prefixes.signals.entry(prefix.into()).or_default().push(Arc::downgrade(signal));
        self.any.store(true, Ordering::Release);
    }

    /// Wakes those whose rows this change has put or appended. Nobody waits for a row to vanish.
    pub(crate) fn notify(&self, change: &Change) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        // Waking somebody is a call to the system: not while others wait to look here.
        self.watching(change).iter().for_each(|signal| signal.raise());
    }

    /// The signals of those whose rows this change has put or appended.
    fn watching(&self, change: &Change) -> Vec<Arc<Signal>> {
        let mut found = Vec::new();
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        for (table, prefixes) in tables.iter_mut() {
            let appended =
                change.appends.iter().filter(|append| append.table == *table).map(|append| &append.prefix[..]);
            let put = change.writes.get(*table).into_iter().flatten().filter(|(_, value)| value.is_some());
            // Rows of one prefix come together, and one look is enough for all of them.
            let longest = prefixes.lengths.last().copied().unwrap_or(0);
            let (mut woken, mut last) = (BTreeSet::new(), None);
            for key in appended.chain(put.map(|(key, _)| &key[..])) {
                let start = key.get(..longest);
                if start.is_none() || start != last {
                    woken.extend(prefixes.of(key));
                    last = start;
                }
            }
            woken.into_iter().for_each(|prefix| prefixes.collect(prefix, &mut found));
        }
        found
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

    /// Forgets prefixes of which nobody is left, when there are twice as many as were left last time: a row that is never put again, as that of
    /// a job that has ended, would keep its watch for ever.
    fn forget_unwatched(&mut self) {
        if self.signals.len() < self.full.max(PREFIXES_MIN) {
            return;
        }
        self.signals.retain(|_, waiting| waiting.iter().any(|signal| signal.strong_count() > 0));
        self.lengths = self.signals.keys().map(|prefix| prefix.len()).collect();
        self.full = 2 * self.signals.len();
    }

    /// Adds the signals of a prefix, and forgets those that are gone.
    fn collect(&mut self, prefix: &[u8], found: &mut Vec<Arc<Signal>>) {
        let Some(waiting) = self.signals.get_mut(prefix) else { return };
        waiting.retain(|signal| {
            let signal = signal.upgrade();
            let is_there = signal.is_some();
            found.extend(signal);
            is_there
        });
        if waiting.is_empty() {
            self.signals.remove(prefix);
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "threads that wait for each other are what is tested")]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    /// Waits until something is so. The limit is for a machine that is very busy.
    fn until(mut is_so: impl FnMut() -> bool) {
        for _ in 0..200_000_000_u64 {
            if is_so() {
                return;
            }
            thread::yield_now();
        }
        panic!("it never came to be");
    }

    #[test]
    fn one_call_wakes_all_who_wait_and_each_sees_every_later_one() {
        let (signal, heard) = (Signal::default(), AtomicU64::new(0));
        const WAITERS: u64 = 8;
        const CALLS: u64 = 200;
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < CALLS {
                        signal.wait(seen, None);
                        seen = signal.count();
                    }
                    heard.fetch_add(1, Ordering::Relaxed);
                });
            }
            for _ in 0..CALLS {
                signal.raise();
                thread::yield_now();
            }
        });
        assert_eq!(heard.into_inner(), WAITERS);
    }

    #[test]
    fn who_gives_up_waiting_does_not_keep_others_asleep() {
        let (signal, done) = (Signal::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        signal.wait(signal.count(), Some(Duration::from_micros(50)));
                    }
                });
            }
            let patience = || {
                let mut seen = 0;
                while seen < 200 {
                    signal.wait(seen, None);
                    seen = signal.count();
                }
            };
            let patient: Vec<_> = (0..4).map(|_| scope.spawn(patience)).collect();
            until(|| {
                signal.raise();
                thread::yield_now();
                patient.iter().all(thread::ScopedJoinHandle::is_finished)
            });
            done.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn relay_wakes_one_of_many_until_that_one_has_looked() {
        let relay = Signal::relaying();
        let signals: Vec<Arc<Signal>> = (0..4).map(|_| Arc::default()).collect();
        signals.iter().for_each(|signal| relay.join(signal));
        let woken = AtomicU64::new(0);
        let waiting = || signals.iter().map(|signal| signal.lock().waiting.len()).sum::<usize>();
        thread::scope(|scope| {
            for signal in &signals {
                scope.spawn(|| {
                    signal.wait(0, None);
                    woken.fetch_add(1, Ordering::Relaxed);
                });
            }
            until(|| waiting() == 4);
            for _ in 0..3 {
                relay.raise();
            }
            until(|| woken.load(Ordering::Relaxed) == 1);
            assert_eq!(waiting(), 3, "one is enough for all three");
            relay.look();
            relay.raise();
            until(|| woken.load(Ordering::Relaxed) == 2);
            for _ in 0..2 {
                relay.look();
                relay.raise();
            }
        });
        // Nobody waits, but somebody may be about to.
        let counts: Vec<u64> = signals.iter().map(|signal| signal.count()).collect();
        relay.look();
        relay.raise();
        assert!(signals.iter().zip(counts).all(|(signal, count)| signal.count() > count));
    }

    #[test]
    fn prefixes_of_which_nobody_is_left_are_forgotten() {
        let (watches, kept) = (Watches::default(), Arc::<Signal>::default());
        watches.add("rows", b"kept", &kept);
        for number in 0..10_000_u32 {
            watches.add("rows", &number.to_be_bytes(), &Arc::default());
            watches.add("rows", &[7; 9], &Arc::default());
        }
        let tables = watches.tables.lock().unwrap();
        let (found, lengths) = (tables["rows"].signals.len(), tables["rows"].lengths.len());
        assert!(found <= PREFIXES_MIN + 1 && lengths <= 2, "{found} prefixes of {lengths} lengths are left");
        drop(tables);
        let mut change = Change::default();
        change.put("rows", *b"kept by one", *b"a value");
        watches.notify(&change);
        assert_eq!(kept.count(), 1);
    }

    #[test]
    fn whoever_naps_is_woken_by_nobody_and_misses_nothing() {
        let signal = Signal::default();
        thread::scope(|scope| {
            let naps = scope.spawn(|| {
                Signal::nap(Duration::from_millis(5));
                // Raised while it napped: then it does not wait, and nobody need wake it.
                signal.wait(0, None);
            });
            until(|| {
                assert!(signal.lock().due.is_empty(), "nobody is listed while it naps");
                signal.raise();
                thread::yield_now();
                naps.is_finished()
            });
        });
    }

    #[test]
    fn nobody_is_left_in_the_lists() {
        let signal = Signal::default();
        signal.wait(0, Some(Duration::ZERO));
        let bell = signal.lock();
        assert_eq!((bell.waiting.len(), bell.due.len(), bell.is_passing), (0, 0, false));
        drop(bell);
        thread::scope(|scope| {
            let waits = scope.spawn(|| signal.wait(0, None));
            until(|| signal.lock().waiting.len() == 1);
            signal.raise();
            waits.join().unwrap();
        });
        let bell = signal.lock();
        assert_eq!((bell.waiting.len(), bell.due.len(), bell.is_passing), (0, 0, false));
    }
}
