//! Callers whose wishes are carried out by one write, and how they hear of it.
//!
//! ```text
//! first ── sleeps by itself ──────┐ woken when it is the group's turn: it may have to write
//! second ─┐                       │
//! third ──┼─ sleep together ──────┴ woken once, when all is done, with one call to the system
//! ...    ─┘
//! ```
//!
//! Waking is what a shared write costs most, once many callers share it. So nobody is woken to find that there is nothing to
//! do, nobody wakes the others one by one, and nobody has to take the lock of those who come next to hear an answer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Callers who wait for the same write. `E` is how it ended, for all of them.
pub(crate) struct Group<E> {
    first: Thread,
    told: Mutex<Told<E>>,
    changed: Condvar,
}

struct Told<E> {
    end: Option<E>,
    /// How many sleep until there is an end.
    asleep: usize,
}

impl<E> Group<E> {
    /// A group whose first member is the calling thread.
    pub(crate) fn new() -> Self {
        let told = Told { end: None, asleep: 0 };
        Self { first: std::thread::current(), told: Mutex::new(told), changed: Condvar::new() }
    }

    /// Says how it ended, and wakes everybody who waits for that.
    pub(crate) fn tell(&self, end: E) {
        let mut told = self.told();
        assert!(told.end.is_none(), "a group is told once");
        told.end = Some(end);
        let asleep = told.asleep;
        drop(told);
        if asleep > 0 {
            self.changed.notify_all();
        }
        self.call();
    }

    /// Wakes the first of the group: it is its turn.
    pub(crate) fn call(&self) {
        // Whoever writes for its own group is awake.
        if self.first.id() != std::thread::current().id() {
            self.first.unpark();
        }
    }

    /// What `take` finds in the end, if it was told.
    pub(crate) fn take<T>(&self, take: impl FnOnce(&mut E) -> T) -> Option<T> {
        self.told().end.as_mut().map(take)
    }

    /// Sleeps until the end is told. Not for the first of the group, who may have to write.
    pub(crate) fn wait<T>(&self, take: impl FnOnce(&mut E) -> T) -> T {
        let mut told = self.told();
        told.asleep += 1;
        loop {
            if let Some(end) = told.end.as_mut() {
                return take(end);
            }
            told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sleeps until the first of the group, who is the caller, is called or told. May return early.
    pub(crate) fn wait_for_call(&self) {
        debug_assert_eq!(self.first.id(), std::thread::current().id(), "the first waits for its call");
        std::thread::park();
    }

    fn told(&self) -> MutexGuard<'_, Told<E>> {
        // An end is put in place as a whole.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
