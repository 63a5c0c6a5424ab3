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
//! do, nobody wakes the others one by one, and nobody takes a lock to hear an answer: it is told once, and then only read.

use std::sync::OnceLock;
use std::thread::Thread;

/// Callers who wait for the same write. `E` is how it ended, for all of them.
pub(crate) struct Group<E> {
    first: Thread,
    end: OnceLock<E>,
}

impl<E> Group<E> {
    /// A group whose first member is the calling thread.
    pub(crate) fn new() -> Self {
        Self { first: std::thread::current(), end: OnceLock::new() }
    }

    /// Says how it ended, and wakes everybody who waits for that.
    pub(crate) fn tell(&self, end: E) {
        let told = self.end.set(end);
        assert!(told.is_ok(), "a group is told once");
        self.call();
    }

    /// Wakes the first of the group: it is its turn.
    pub(crate) fn call(&self) {
        // Whoever writes for its own group is awake.
        if self.first.id() != std::thread::current().id() {
            self.first.unpark();
        }
    }

    /// How it ended, if that was told.
    pub(crate) fn end(&self) -> Option<&E> {
        self.end.get()
    }

    /// Sleeps until the end is told. Not for the first of the group, who may have to write.
    pub(crate) fn wait(&self) -> &E {
        self.end.wait()
    }

    /// Sleeps until the first of the group, who is the caller, is called or told. May return early.
    pub(crate) fn wait_for_call(&self) {
        debug_assert_eq!(self.first.id(), std::thread::current().id(), "the first waits for its call");
        std::thread::park();
    }
}
