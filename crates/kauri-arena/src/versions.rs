//! The published version, those before it, and readers of them.
//!
//! Publishing writes the new version into the cell that the newest one is not in, then moves the counter on. So a reader that
//! finds the counter unmoved has read the cell of the newest version whole.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::PoisonError;

use crate::Arena;
use crate::frames::{Birth, Frame};
use crate::slots::Slot;
use crate::stamp::Stamp;
use crate::sync::{AtomicPtr, AtomicU64, Mutex, Ordering, fence};

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

// SAFETY: an owned box of `Published<R>` that readers on other threads may look into: sending it sends and shares an `R`.
unsafe impl<R: Send + Sync> Send for Old<R> {}

impl<R> Old<R> {
    fn stamp(&self) -> Stamp {
        // SAFETY: a box of the list's, freed only after it has left the list.
        unsafe { self.0.as_ref() }.version
    }
}

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
        let (count, newest, published) = self.look();
        assert!(version > newest, "version {version} is published after version {newest}");
        let next = &self.cells[((count + 1) % 2) as usize];
        // Release: whoever reads these in place of the version before last, and fences, sees that the count has moved.
        next.version.store(version.number(), Ordering::Release);
        next.published.store(Box::into_raw(Box::new(Published { version, root })), Ordering::Release);
        // Release: whoever sees the count sees the cell, and the pages of the version.
        self.count.store(count + 1, Ordering::Release);
        old.push(Old(NonNull::new(published).expect("the newest cell is full")));
    }

    /// Frees the versions that are not the newest and not among those that a scan, made after this lock was taken, found held.
    /// Returns the newest version before the scan, and what the scan found: a reader that it missed begins with that version or
    /// a later one.
    pub(crate) fn free(&self, scan: impl FnOnce() -> Vec<Stamp>) -> (Stamp, Vec<Stamp>) {
        let mut old = self.old.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, newest, _) = self.look();
        let held = scan();
        let is_past = |version: &mut Old<R>| held.binary_search(&version.stamp()).is_err();
        let past = old.extract_if(.., is_past).map(|Old(version)| {
            // SAFETY: made by `Box::into_raw`, and taken back once, because it leaves the list. It was not the newest any more
            // when the scan fenced, and the scan found no slot that holds it; a reader that announces it later looks again and
            // finds that it is not the newest.
            unsafe { Box::from_raw(version.as_ptr()) }
        });
        let past: Vec<Box<Published<R>>> = past.collect();
        // A root may do anything when it is dropped, even panic: it has left the list by then, and the lock is open.
        drop(old);
        drop(past);
        (newest, held)
    }

    /// The newest version: for sure under the lock; else if the count, looked at again behind a fence, has not moved.
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
        // SAFETY: the newest version was made by `Box::into_raw` and is freed only here; it is not among the old ones.
        drop(unsafe { Box::from_raw(newest) });
    }
}

/// One version of the store, held.
///
/// The pages it gives out live as long as the borrow of it.
///
/// ```
/// use kauri_arena::{Arena, Reader, Stamp};
///
/// fn first_byte(reader: &Reader<'_, u32>) -> Option<u8> {
///     Some(reader.page(*reader.root())?[0])
/// }
///
/// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, 0);
/// for page in [7, 8] {
///     writer.tick();
///     writer.take(page).expect("nobody uses it")[0] = u8::try_from(page * 10).expect("a byte");
///     arena.publish(writer.seal(), page);
/// }
/// assert_eq!(first_byte(&arena.read()), Some(80));
/// ```
#[derive(Debug)]
pub struct Reader<'a, R> {
    arena: &'a Arena<R>,
    slot: &'a Slot,
    version: Stamp,
    published: NonNull<Published<R>>,
    /// The version was not published when it was begun with: the root is the reader's own.
    is_early: bool,
    /// A reader hands out `&R`, and may have one of its own.
    root: PhantomData<(&'a R, R)>,
}

// SAFETY: a reader is a shared borrow of the arena and of a root, or the owner of one: moving it to another thread needs no more than
// `R: Send + Sync`, and its slot can be released from any thread.
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
                return Self { arena, slot, version, published, is_early: false, root: PhantomData };
            }
            (count, version, published) = arena.ring.look();
            slot.announce(version);
        }
    }

    /// Begins with a version that was sealed and may not be published; `None` if a later one is.
    pub(crate) fn begin_early(arena: &'a Arena<R>, version: Stamp, root: R) -> Option<Self> {
        let slot = arena.slots.take(version);
        // As in `begin`: a scan that missed our slot fenced before us, and whatever version was the newest for it, or a later one, is
        // what we find below. If that is not later than ours, then no page of ours had died by the newest version of such a scan.
        fence(Ordering::SeqCst);
        let (_, newest, _) = arena.ring.look();
        if newest > version {
            slot.release();
            return None;
        }
        let published = NonNull::from(Box::leak(Box::new(Published { version, root })));
        Some(Self { arena, slot, version, published, is_early: true, root: PhantomData })
    }

    /// Notes that a page or run which is not in memory is read without being brought there, and tells how often it was before, up to
    /// three times.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, _writer) = Arena::new(256, Stamp::FIRST, ());
    /// let reader = arena.read();
    /// assert_eq!(reader.note_read(7), 0); // the first time: not worth the memory
    /// assert_eq!(reader.note_read(7), 1);
    /// assert_eq!(reader.note_read(7), 2);
    /// assert_eq!(reader.note_read(7), 3); // it is wanted, and may be loaded
    /// assert_eq!(reader.note_read(7), 3);
    /// ```
    #[must_use]
    pub fn note_read(&self, first: u32) -> u8 {
        self.arena.frames.frame_or_map(first).mark().count_read()
    }

    /// The version.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let reader = arena.read();
    /// writer.tick();
    /// arena.publish(writer.seal(), ());
    /// assert_eq!(reader.version(), Stamp::FIRST, "whatever is published meanwhile");
    /// ```
    #[must_use]
    pub fn version(&self) -> Stamp {
        self.version
    }

    /// What it is found by.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, vec![7_u32]);
    /// let reader = arena.read();
    /// writer.tick();
    /// arena.publish(writer.seal(), vec![7, 8]);
    /// writer.scan(); // frees what nobody holds
    /// assert_eq!(*reader.root(), [7]);
    /// ```
    #[must_use]
    #[inline]
    pub fn root(&self) -> &R {
        // SAFETY: the writer frees a version only when it is not the newest and a scan after that, behind a fence, found no
        // slot that holds it. Ours held it when it was the newest (the second look in `begin`), and holds it still. One of our own
        // (`begin_early`) is freed when we are dropped.
        &unsafe { self.published.as_ref() }.root
    }

    /// A page of this version; `None` if it is not in memory, or does not belong to it, or the arena is bounded: then
    /// [`operation`](Self::operation) lends it.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7").fill(1);
    /// arena.publish(writer.seal(), ());
    /// let reader = arena.read();
    /// let page = reader.page(7).expect("page 7 is in memory"); // as long as the reader is there
    /// writer.tick();
    /// writer.retire(7);
    /// arena.publish(writer.seal(), ());
    /// assert_eq!(page, [1; 256]);
    /// assert!(arena.read().page(7).is_none());
    /// ```
    #[must_use]
    #[inline]
    pub fn page(&self, page: u32) -> Option<&[u8]> {
        self.run(page, 1)
    }

    /// A run of pages of this version; `None` if it is not in memory, does not belong to it, or is no such run.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them").fill(1);
    /// arena.publish(writer.seal(), ());
    /// let reader = arena.read();
    /// assert_eq!(reader.run(10, 3), Some(&[1; 768][..])); // one slice
    /// assert_eq!((reader.run(11, 2), reader.run(10, 4)), (None, None));
    /// ```
    #[must_use]
    #[inline]
    pub fn run(&self, first: u32, pages: u32) -> Option<&[u8]> {
        // Where pages leave, they are lent for an operation only.
        if self.arena.cache.is_some() { None } else { self.lend(first, pages) }
    }

    /// A run of pages of this version. Where pages leave, the caller has announced an operation and lets go of the slice before it
    /// ends.
    #[inline]
    pub(crate) fn lend(&self, first: u32, pages: u32) -> Option<&[u8]> {
        let frames = &self.arena.frames;
        let frame = frames.frame(first)?;
        self.birth_in(frame)?;
        if !frames.is_taken_as_one(first, pages) {
            return None;
        }
        // SAFETY: the run was born by our version and is not dead in it, and our slot announces the version, since before any scan
        // whose newest version is later than ours. The writer
        // changes only pages born after the last sealed version, and ours was sealed; what it retires now dies later than
        // that. It empties a frame only if the page died by the newest version of a scan that found no slot with a version of
        // its life, and loaders fill only empty frames. A sweep empties a frame only if, after the birth was hidden, no operation
        // was announced that could have seen it, and ours was announced before we saw it. So the bytes do not change while `self` is borrowed. They lie in one
        // chunk, because the run was taken or loaded as one.
        Some(unsafe { frame.bytes(pages as usize * frames.page_bytes()) })
    }

    pub(crate) fn arena(&self) -> &'a Arena<R> {
        self.arena
    }

    /// Whether pages leave memory, and are lent for an [`operation`](Self::operation) only.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// assert!(Arena::bounded(256, 100, Stamp::FIRST, ()).0.read().is_bounded());
    /// assert!(!Arena::new(256, Stamp::FIRST, ()).0.read().is_bounded());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_bounded(&self) -> bool {
        self.arena.cache.is_some()
    }

    /// When a page of this version was born; `None` as for [`page`](Self::page).
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let before = arena.read();
    /// let born = writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// arena.publish(writer.seal(), ());
    /// assert_eq!((before.birth(7), arena.read().birth(7)), (None, Some(born)));
    /// ```
    #[must_use]
    #[inline]
    pub fn birth(&self, page: u32) -> Option<Stamp> {
        self.birth_in(self.arena.frames.frame(page)?)
    }

    /// The birth of what is in a frame, if it belongs to this version.
    #[inline]
    fn birth_in(&self, frame: Frame<'_>) -> Option<Stamp> {
        // Death first: the writer that empties a frame or takes a page again writes the birth before the death, so a reader
        // that sees the new death sees the new birth too, and never an old birth with a new death. A new birth with an old
        // death does no harm: every death by our version was written before our version was sealed, and we know it from
        // who sealed or published it, so a death that we miss is a later one.
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
        if self.is_early {
            // SAFETY: made by `Box::leak` in `begin_early` for this reader alone, and freed once: here. Whoever borrowed the root
            // borrowed us.
            drop(unsafe { Box::from_raw(self.published.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::Writer;

    /// A root that counts how often one like it is dropped, and may make it a misfortune.
    struct Root {
        dropped: Arc<AtomicUsize>,
        panics: bool,
    }

    impl Drop for Root {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            assert!(!self.panics, "this root does not go quietly");
        }
    }

    fn publish<R: Send + Sync>(arena: &Arena<R>, writer: &mut Writer<R>, root: R) {
        writer.tick();
        arena.publish(writer.seal(), root);
    }

    #[test]
    fn root_that_panics_when_dropped_is_dropped_once() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let root = |panics| Root { dropped: Arc::clone(&dropped), panics };
        let (arena, mut writer) = Arena::new(256, Stamp::FIRST, root(true));
        publish(&arena, &mut writer, root(false));
        publish(&arena, &mut writer, root(false));
        assert!(catch_unwind(AssertUnwindSafe(|| writer.scan().len())).is_err());
        writer.scan();
        drop((writer, arena));
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn scan_that_ends_in_a_panic_teaches_the_writer_nothing() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let root = |panics| Root { dropped: Arc::clone(&dropped), panics };
        let (arena, mut writer) = Arena::new(256, Stamp::FIRST, root(true));
        writer.tick();
        writer.take(7).unwrap();
        publish(&arena, &mut writer, root(false));
        let reader = arena.read();
        writer.tick();
        writer.retire(7);
        publish(&arena, &mut writer, root(false));
        assert!(catch_unwind(AssertUnwindSafe(|| writer.scan().len())).is_err());
        assert_eq!(writer.newest(), Stamp::FIRST);
        assert!(writer.reclaim(7).is_err() && reader.page(7).is_some());
    }

    #[test]
    #[should_panic(expected = "version 2 is published after version 3")]
    fn earlier_version_is_not_published_after_a_later_one() {
        let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
        writer.tick();
        let earlier = writer.seal();
        publish(&arena, &mut writer, ());
        arena.publish(earlier, ());
    }

    #[test]
    fn version_that_is_sealed_is_read_until_a_later_one_is_published() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let root = || Root { dropped: Arc::clone(&dropped), panics: false };
        let (arena, mut writer) = Arena::new(256, Stamp::FIRST, root());
        writer.tick();
        writer.take(7).unwrap().fill(7);
        let sealed = writer.seal();
        let early = sealed.early();
        let reader = arena.read_early(early, root()).unwrap();
        assert_eq!((reader.version(), reader.page(7)), (sealed.version(), Some(&[7; 256][..])));
        assert_eq!(arena.read().page(7), None, "nobody else sees it");
        // The page dies with a later version. As long as the reader is there it is not used again, whoever was published meanwhile.
        writer.tick();
        writer.retire(7);
        let later = writer.seal();
        assert_eq!((writer.scan().len(), writer.reclaim(7).is_err()), (1, true));
        arena.publish(sealed, root());
        arena.publish(later, root());
        assert_eq!(writer.scan(), [reader.version()]);
        assert_eq!(
            (writer.reclaim(7), reader.page(7)),
            (Err(crate::InUse::Held(reader.version())), Some(&[7; 256][..]))
        );
        assert!(arena.read_early(early, root()).is_none(), "it has been passed");
        let before = dropped.load(Ordering::Relaxed);
        drop(reader);
        assert_eq!(dropped.load(Ordering::Relaxed), before + 1, "its own root");
        writer.scan();
        assert_eq!(writer.reclaim(7), Ok(()));
    }

    #[test]
    #[should_panic(expected = "version 2 was sealed in another arena")]
    fn version_of_another_arena_is_not_read_early() {
        let (arena, _writer) = Arena::new(256, Stamp::FIRST, ());
        let (_other, mut writer) = Arena::new(256, Stamp::FIRST, ());
        writer.tick();
        drop(arena.read_early(writer.seal().early(), ()));
    }

    #[test]
    fn every_root_is_dropped_once_and_none_that_is_held() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let root = || Root { dropped: Arc::clone(&dropped), panics: false };
        let (arena, mut writer) = Arena::new(256, Stamp::FIRST, root());
        publish(&arena, &mut writer, root());
        let reader = arena.read();
        publish(&arena, &mut writer, root());
        publish(&arena, &mut writer, root());
        assert_eq!(writer.scan(), [reader.version()]);
        assert_eq!(dropped.load(Ordering::Relaxed), 2, "the first and the third");
        drop(reader);
        drop(writer);
        assert_eq!(dropped.load(Ordering::Relaxed), 2, "the arena is there");
        drop(arena);
        assert_eq!(dropped.load(Ordering::Relaxed), 4);
    }
}
