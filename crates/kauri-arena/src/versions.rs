//! The published version, those before it, and readers of them.
//!
//! Publishing writes the new version into the cell that the newest one is not in, then moves the counter on. So a reader that
//! finds the counter unmoved has read the cell of the newest version whole.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::Arena;
use crate::frames::{Birth, Frame};
use crate::slots::Slot;
use crate::stamp::Stamp;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, fence};

/// What a version is found by.
#[derive(Debug)]
pub(crate) struct Published<R> {
    pub(crate) version: Stamp,
    pub(crate) root: R,
}

#[derive(Debug)]
struct Cell<R> {
    version: AtomicU64,
    published: AtomicPtr<Published<R>>,
}

/// The newest version and, in the other cell, the one before or the one to come.
#[derive(Debug)]
pub(crate) struct Ring<R> {
    count: AtomicU64,
    cells: [Cell<R>; 2],
    /// Versions that are not the newest any more and may be held. Its lock is also what orders publishers.
    old: Mutex<Vec<Old<R>>>,
}

/// A version that may be held, owned.
#[derive(Debug)]
struct Old<R>(NonNull<Published<R>>);

// SAFETY: an owned box of `Published<R>`: sending it sends an `R`, and a shared one is not looked into.
unsafe impl<R: Send + Sync> Send for Old<R> {}

impl<R> Ring<R> {
    pub(crate) fn new(version: Stamp, root: R) -> Self {
        let first = Box::into_raw(Box::new(Published { version, root }));
        let cell = |published| Cell { version: AtomicU64::new(version.number()), published: AtomicPtr::new(published) };
        let cells = [cell(first), cell(std::ptr::null_mut())];
        Self { count: AtomicU64::new(0), cells, old: Mutex::new(Vec::new()) }
    }

    /// Makes a version the newest.
    pub(crate) fn publish(&self, version: Stamp, root: R) {
        let mut old = self.old.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.newest();
        assert!(version > newest, "version {version} is published after version {newest}");
        let count = self.count.load(Ordering::Relaxed);
        let (last, next) = (&self.cells[(count % 2) as usize], &self.cells[((count + 1) % 2) as usize]);
        next.version.store(version.number(), Ordering::Relaxed);
        next.published.store(Box::into_raw(Box::new(Published { version, root })), Ordering::Relaxed);
        // Release: whoever sees the count sees the cell, and the pages of the version.
        self.count.store(count + 1, Ordering::Release);
        old.push(Old(NonNull::new(last.published.load(Ordering::Relaxed)).expect("the newest cell is full")));
    }

    /// Frees the versions that are not the newest and not among those that a scan, made after this lock was taken, found held.
    pub(crate) fn free(&self, scan: impl FnOnce() -> Vec<Stamp>) -> Vec<Stamp> {
        let mut old = self.old.lock().unwrap_or_else(PoisonError::into_inner);
        let held = scan();
        old.retain(|Old(version)| {
            // SAFETY: a box of ours, not freed yet: what is freed below leaves the list.
            let stamp = unsafe { version.as_ref() }.version;
            let keep = held.binary_search(&stamp).is_ok();
            if !keep {
                // SAFETY: the version was not the newest any more when the scan fenced, and the scan found no slot that holds
                // it; a reader that announces it later looks again and finds that it is not the newest.
                drop(unsafe { Box::from_raw(version.as_ptr()) });
            }
            keep
        });
        held
    }

    /// The newest version.
    pub(crate) fn newest(&self) -> Stamp {
        loop {
            let (count, version, _) = self.look();
            if self.count.load(Ordering::Acquire) == count {
                return version;
            }
        }
    }

    #[inline]
    fn look(&self) -> (u64, Stamp, *mut Published<R>) {
        let count = self.count.load(Ordering::Acquire);
        let cell = &self.cells[(count % 2) as usize];
        let version = cell.version.load(Ordering::Relaxed);
        let version = Stamp::new(version).expect("cells hold stamps");
        (count, version, cell.published.load(Ordering::Relaxed))
    }
}

impl<R> Drop for Ring<R> {
    fn drop(&mut self) {
        // Readers borrow from the arena, so there are none.
        self.free(Vec::new);
        let (_, _, newest) = self.look();
        // SAFETY: the newest version was made by `Box::into_raw` and is freed only here.
        drop(unsafe { Box::from_raw(newest) });
    }
}

/// One version of the store, held.
///
/// The pages it gives out live as long as the borrow of it.
#[derive(Debug)]
pub struct Reader<'a, R> {
    arena: &'a Arena<R>,
    slot: &'a Slot,
    version: Stamp,
    published: NonNull<Published<R>>,
    /// A reader hands out `&R`.
    root: PhantomData<&'a R>,
}

// SAFETY: a reader is a shared borrow of the arena and of a root: moving it to another thread needs no more than `R: Sync`,
// and its slot can be released from any thread.
unsafe impl<R: Send + Sync> Send for Reader<'_, R> {}
// SAFETY: all methods of `&Reader` only read, through shared borrows.
unsafe impl<R: Send + Sync> Sync for Reader<'_, R> {}

impl<'a, R> Reader<'a, R> {
    #[inline]
    pub(crate) fn begin(arena: &'a Arena<R>) -> Self {
        let (mut count, mut version, mut published) = arena.ring.look();
        let slot = arena.slots.take(version);
        loop {
            // The announcement before the second look, here; the publication before the scan, in the writer. One of the
            // two fences is first in the order of all such fences: either we see the newer version below and try again,
            // or the scan sees our slot.
            fence(Ordering::SeqCst);
            if arena.ring.count.load(Ordering::Acquire) == count {
                let published = NonNull::new(published).expect("the newest cell is full");
                return Self { arena, slot, version, published, root: PhantomData };
            }
            (count, version, published) = arena.ring.look();
            slot.announce(version);
        }
    }

    /// The version.
    #[must_use]
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// What it is found by.
    #[must_use]
    #[inline]
    pub fn root(&self) -> &R {
        // SAFETY: the writer frees a version only when it is not the newest and a scan after that, behind a fence, found no
        // slot that holds it. Ours held it when it was the newest (the second look in `begin`), and holds it still.
        &unsafe { self.published.as_ref() }.root
    }

    /// A page of this version; `None` if it is not in memory, or does not belong to it.
    #[must_use]
    #[inline]
    pub fn page(&self, page: u32) -> Option<&[u8]> {
        self.run(page, 1)
    }

    /// A run of pages of this version; `None` if it is not in memory, does not belong to it, or is no such run.
    #[must_use]
    #[inline]
    pub fn run(&self, first: u32, pages: u32) -> Option<&[u8]> {
        let frames = &self.arena.frames;
        let frame = frames.frame(first)?;
        self.birth_in(frame)?;
        if !frames.is_taken_as_one(first, pages) {
            return None;
        }
        // SAFETY: the run was born by our version and is not dead in it, and our slot announces the version: the writer
        // changes only pages born after the newest published version, and takes a page again only after a scan that found
        // no slot with a version of its life. So the bytes do not change while `self` is borrowed. They lie in one chunk,
        // because the run was taken or loaded as one.
        Some(unsafe { frame.bytes(pages as usize * frames.page_bytes()) })
    }

    /// When a page of this version was born; `None` as for [`page`](Self::page).
    #[must_use]
    #[inline]
    pub fn birth(&self, page: u32) -> Option<Stamp> {
        self.birth_in(self.arena.frames.frame(page)?)
    }

    /// The birth of what is in a frame, if it belongs to this version.
    #[inline]
    fn birth_in(&self, frame: Frame<'_>) -> Option<Stamp> {
        // Death first: the writer that takes a page again writes the new birth before the new death, so a reader that
        // sees the new death sees the new birth too, and never an old birth with a new death.
        let death = frame.stamps.death();
        match frame.stamps.birth() {
            Birth::At(birth) if birth <= self.version && self.version < death => Some(birth),
            _ => None,
        }
    }
}

impl<R> Drop for Reader<'_, R> {
    #[inline]
    fn drop(&mut self) {
        self.slot.release();
    }
}
