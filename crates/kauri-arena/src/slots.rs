//! Reader slots: the versions that somebody holds.
//!
//! A slot is an atomic on a cache line of its own: zero, or the version its reader holds. Slots come in blocks that are linked
//! and never freed before the arena is, so that any number of readers finds one without a lock.

#[cfg(not(loom))]
use std::cell::Cell;
use std::ptr;

use crate::stamp::Stamp;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
const BLOCK_SLOTS: usize = 32;
#[cfg(loom)]
const BLOCK_SLOTS: usize = 2;

/// Alone on its cache line (two, because processors fetch pairs), so that readers do not disturb each other.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Slot(AtomicU64);

const FREE: u64 = 0;

#[derive(Debug)]
struct Block {
    slots: [Slot; BLOCK_SLOTS],
    next: AtomicPtr<Block>,
}

/// All slots of an arena.
#[derive(Debug)]
pub(crate) struct Slots {
    first: Box<Block>,
}

#[cfg(not(loom))]
thread_local! {
    /// Where this thread found a free slot last. A hint: any value is right.
    static HINT: Cell<usize> = const { Cell::new(0) };
}

#[cfg(not(loom))]
#[inline]
fn hint() -> usize {
    HINT.get() % BLOCK_SLOTS
}

#[cfg(not(loom))]
fn set_hint(index: usize) {
    HINT.set(index);
}

// The model must do the same in every run, so no thread remembers anything.
#[cfg(loom)]
fn hint() -> usize {
    0
}

#[cfg(loom)]
fn set_hint(_: usize) {}

impl Block {
    fn new() -> Box<Self> {
        Box::new(Self {
            slots: std::array::from_fn(|_| Slot(AtomicU64::new(FREE))),
            next: AtomicPtr::new(ptr::null_mut()),
        })
    }

    /// The next block, made if there is none.
    fn next_or_new(&self) -> &Self {
        let mut next = self.next.load(Ordering::Acquire);
        if next.is_null() {
            let new = Box::into_raw(Self::new());
            match self.next.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => next = new,
                Err(other) => {
                    next = other;
                    // SAFETY: `new` came from `Box::into_raw` above and was not published: the exchange failed.
                    drop(unsafe { Box::from_raw(new) });
                }
            }
        }
        // SAFETY: `next` is not null, was made by `Box::into_raw`, and is freed only by `Slots::drop`, which has the
        // arena to itself; `self` borrows from the arena.
        unsafe { &*next }
    }

    fn next(&self) -> Option<&Self> {
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: as in `next_or_new`, and null becomes `None`.
        unsafe { next.as_ref() }
    }
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { first: Block::new() }
    }

    /// Takes a free slot and announces `version` in it. The caller fences and looks again.
    #[inline]
    pub(crate) fn take(&self, version: Stamp) -> &Slot {
        let hint = hint();
        match self.first.slots[hint].try_take(version) {
            true => &self.first.slots[hint],
            false => self.search(version),
        }
    }

    #[cold]
    fn search(&self, version: Stamp) -> &Slot {
        let mut block = &*self.first;
        loop {
            if let Some(index) = block.slots.iter().position(|slot| slot.try_take(version)) {
                set_hint(index);
                return &block.slots[index];
            }
            block = block.next_or_new();
        }
    }

    /// The versions that are held, oldest first, each once. Everything announced before a fence of its reader that comes before
    /// ours is among them.
    pub(crate) fn held(&self) -> Vec<Stamp> {
        let mut versions = Vec::new();
        fence(Ordering::SeqCst);
        let mut block = Some(&*self.first);
        while let Some(current) = block {
            versions.extend(current.slots.iter().filter_map(Slot::version));
            block = current.next();
        }
        versions.sort_unstable();
        versions.dedup();
        versions
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut next = self.first.next.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: made by `Box::into_raw` in `next_or_new`, freed once: each block is reached once along the chain,
            // and nobody borrows from the arena any more.
            let block = unsafe { Box::from_raw(next) };
            next = block.next.load(Ordering::Acquire);
        }
    }
}

impl Slot {
    // Acquired, so that what the readers before this one read happened before whoever sees the slot free after this one: its
    // release is the only one that is seen then.
    #[inline]
    fn try_take(&self, version: Stamp) -> bool {
        self.0.load(Ordering::Relaxed) == FREE
            && self.0.compare_exchange(FREE, version.number(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Announces another version in a slot that is already ours. Released for the same reason as it was acquired.
    #[inline]
    pub(crate) fn announce(&self, version: Stamp) {
        self.0.store(version.number(), Ordering::Release);
    }

    /// Gives the slot up. What its reader read happened before whoever sees it free.
    #[inline]
    pub(crate) fn release(&self) {
        self.0.store(FREE, Ordering::Release);
    }

    fn version(&self) -> Option<Stamp> {
        Stamp::new(self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(number: u64) -> Stamp {
        Stamp::new(number).unwrap()
    }

    #[test]
    fn every_reader_finds_a_slot_and_every_slot_is_scanned() {
        let slots = Slots::new();
        let numbers = 1..=2 * BLOCK_SLOTS as u64 + 1;
        let taken: Vec<&Slot> = numbers.clone().map(|number| slots.take(stamp(number))).collect();
        assert_eq!(slots.held(), numbers.map(stamp).collect::<Vec<_>>());
        let (first, rest) = taken.split_first().unwrap();
        rest.iter().for_each(|slot| slot.release());
        assert_eq!(slots.held(), [stamp(1)]);
        first.release();
        assert_eq!(slots.held(), []);
    }

    #[test]
    fn released_slot_is_taken_again_before_a_block_is_added() {
        let slots = Slots::new();
        for number in 1..=10 * BLOCK_SLOTS as u64 {
            let slot = slots.take(stamp(number));
            let other = slots.take(stamp(number));
            assert!(!ptr::eq(slot, other));
            slot.release();
            other.release();
        }
        assert!(slots.first.next().is_none());
    }

    #[test]
    fn version_that_two_hold_is_found_once_and_as_long_as_one_does() {
        let slots = Slots::new();
        let (one, other) = (slots.take(stamp(7)), slots.take(stamp(7)));
        assert_eq!(slots.held(), [stamp(7)]);
        one.release();
        assert_eq!(slots.held(), [stamp(7)]);
        other.announce(stamp(8));
        assert_eq!(slots.held(), [stamp(8)]);
    }
}
