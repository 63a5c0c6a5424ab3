//! Pages that come and go: a bound on memory for stores that are longer than it.
//!
//! A page that is also in the file, unchanged, may leave its frame. Nobody counts who looks at a page, so leaving takes two
//! steps with a wait between them:
//!
//! ```text
//! in memory ──sweep: nobody gets it any more──> leaving ──everybody who could have it has finished──> empty
//!     ^                                            │
//!     └──────────── somebody wants it again ───────┘
//! ```
//!
//! Who reads announces each *operation* with the *epoch* it began in; slices are lent for an operation and no longer. The writer
//! announces an epoch too, and moves it on when it is borrowed mutably, since it has lent no slices then. An epoch begins
//! whenever a page begins to leave. When every announced epoch is later than that, the page's memory is given back.
//!
//! Which page leaves is found as by the hand of a clock: pages stand in line; one that was used since it was last at the head
//! goes to the back once more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

use crate::frames::{Birth, Frame};
use crate::slots::Slots;
use crate::stamp::Stamp;
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, fence};
use crate::versions::Reader;
use crate::writer::Writer;
use crate::{Arena, slots};

/// The page is in the file as it is here.
pub(crate) const CLEAN: u8 = 1;
/// It was used since it was last at the head of the line.
pub(crate) const USED: u8 = 2;
/// It stands in line.
const QUEUED: u8 = 4;

/// The writer has lent nothing.
const NO_EPOCH: u64 = u64::MAX;

/// What an arena knows of pages that may leave it.
#[derive(Debug)]
pub(crate) struct Cache {
    pages_max: usize,
    epoch: AtomicU64,
    operations: Slots,
    /// The epoch that the writer has announced.
    writer: AtomicU64,
    sweep: Mutex<Sweep>,
}

/// Pages in line, and pages on their way out.
#[derive(Debug, Default)]
struct Sweep {
    line: VecDeque<u32>,
    leaving: BTreeMap<u32, Leaving>,
    leaving_pages: usize,
}

#[derive(Debug)]
struct Leaving {
    birth: Stamp,
    pages: u32,
    /// Operations that began in this epoch or earlier may have a slice of it.
    epoch: Stamp,
}

impl Cache {
    pub(crate) fn new(pages_max: usize) -> Self {
        Self {
            pages_max,
            epoch: AtomicU64::new(Stamp::FIRST.number()),
            operations: Slots::new(),
            writer: AtomicU64::new(Stamp::FIRST.number()),
            sweep: Mutex::new(Sweep::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sweep> {
        self.sweep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces an operation: what it finds in memory stays until it ends.
    #[inline]
    pub(crate) fn begin(&self) -> &slots::Slot {
        let epoch = Stamp::new(self.epoch.load(Ordering::Acquire)).expect("epochs begin with the first stamp");
        let slot = self.operations.take(epoch);
        // The announcement before the births that we read, here; the births before the scan, in the sweep. Whichever fence is
        // first: either we see that a page is leaving, or the sweep sees us.
        fence(Ordering::SeqCst);
        slot
    }

    /// The writer has lent nothing, and announces that what it lends from now on is to stay.
    pub(crate) fn attach_writer(&self) {
        self.writer.store(self.epoch.load(Ordering::Acquire), Ordering::Release);
        // As in `begin`.
        fence(Ordering::SeqCst);
    }

    /// The writer has lent nothing, and lends nothing until it is attached again.
    pub(crate) fn detach_writer(&self) {
        self.writer.store(NO_EPOCH, Ordering::Release);
    }

    /// Before this epoch nobody is at work. Everything announced before a fence that comes before ours is seen.
    fn oldest_epoch(&self) -> u64 {
        let operations = self.operations.held();
        let oldest = operations.first().map_or(NO_EPOCH, |epoch| epoch.number());
        oldest.min(self.writer.load(Ordering::Acquire))
    }
}

impl<R> Arena<R> {
    /// Whether there are more pages in memory than there should be, of a cache that is bounded.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 1, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// assert!(!arena.is_crowded());
    /// writer.take(8).expect("nobody uses page 8");
    /// assert!(arena.is_crowded());
    /// ```
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| self.frames.resident() > cache.pages_max)
    }

    /// How many pages may be in memory before some leave it; `None` if none ever does.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// assert_eq!(Arena::bounded(256, 100, Stamp::FIRST, ()).0.cache_pages_max(), Some(100));
    /// assert_eq!(Arena::new(256, Stamp::FIRST, ()).0.cache_pages_max(), None);
    /// ```
    #[must_use]
    pub fn cache_pages_max(&self) -> Option<usize> {
        self.cache.as_ref().map(|cache| cache.pages_max)
    }

    /// How many pages are in memory, if that is bounded; else 0.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 100, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them");
    /// assert_eq!(arena.resident_pages(), 3);
    /// writer.untake(10);
    /// assert_eq!(arena.resident_pages(), 0);
    /// ```
    #[must_use]
    pub fn resident_pages(&self) -> usize {
        self.frames.resident()
    }

    /// Lets pages leave until there are not too many, as far as there are any that may. Does nothing if somebody else is at it.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 2, Stamp::FIRST, ());
    /// writer.tick();
    /// for page in 0..5 {
    ///     writer.take(page).expect("nobody uses it");
    ///     writer.mark_written(page);
    /// }
    /// arena.publish(writer.seal(), ());
    /// assert_eq!(arena.resident_pages(), 5);
    /// arena.sweep();
    /// assert_eq!(arena.resident_pages(), 2, "the others are in the file");
    /// ```
    pub fn sweep(&self) {
        let Some(cache) = &self.cache else { return };
        let Ok(mut sweep) = cache.sweep.try_lock() else { return };
        self.release(cache, &mut sweep);
        // Everybody may have to pass the head twice before somebody leaves.
        for _ in 0..2 * sweep.line.len() {
            if self.frames.resident() - sweep.leaving_pages <= cache.pages_max {
                break;
            }
            let Some(page) = sweep.line.pop_front() else { break };
            self.consider(cache, &mut sweep, page);
        }
        self.release(cache, &mut sweep);
    }

    /// Looks at the page at the head of the line: it goes to the back, out of the line, or out of memory.
    fn consider(&self, cache: &Cache, sweep: &mut Sweep, page: u32) {
        let frame = self.frames.frame_or_map(page);
        // The birth before the mark: whoever takes a page wipes the mark before the birth, so a mark seen here is of this
        // life or a later one, and then the exchange below fails.
        let Birth::At(birth) = frame.stamps.birth() else {
            frame.mark().unset(QUEUED);
            return;
        };
        let mark = frame.mark().load();
        if mark & CLEAN == 0 {
            frame.mark().unset(QUEUED);
        } else if mark & USED != 0 {
            frame.mark().unset(USED);
            sweep.line.push_back(page);
        } else {
            let pages = self.frames.run_pages(page);
            frame.mark().unset(QUEUED);
            if frame.stamps.leave(birth) {
                let epoch =
                    Stamp::new(cache.epoch.fetch_add(1, Ordering::AcqRel)).expect("as many as there are stamps");
                sweep.leaving_pages += pages as usize;
                sweep.leaving.insert(page, Leaving { birth, pages, epoch });
            }
        }
    }

    /// Empties the frames of pages that nobody can have a slice of any more.
    fn release(&self, cache: &Cache, sweep: &mut Sweep) {
        if sweep.leaving.is_empty() {
            return;
        }
        let oldest = cache.oldest_epoch();
        let past = sweep.leaving.extract_if(.., |_, leaving| leaving.epoch.number() < oldest);
        let past: Vec<(u32, u32)> = past.map(|(first, leaving)| (first, leaving.pages)).collect();
        for (first, pages) in past {
            self.frames.vacate(first, pages);
            sweep.leaving_pages -= pages as usize;
        }
    }

    /// Brings a page back that is leaving, and tells whether it was.
    pub(crate) fn revive(&self, first: u32) -> bool {
        self.cache.as_ref().is_some_and(|cache| self.revive_in(&mut cache.lock(), first))
    }

    fn revive_in(&self, sweep: &mut Sweep, first: u32) -> bool {
        let Some(leaving) = sweep.leaving.remove(&first) else { return false };
        sweep.leaving_pages -= leaving.pages as usize;
        let frame = self.frames.frame_or_map(first);
        frame.stamps.stay(leaving.birth);
        queue(sweep, frame, first);
        true
    }

    /// Does something to a page or run while it neither leaves nor is leaving.
    pub(crate) fn while_staying<T>(&self, first: u32, work: impl FnOnce() -> T) -> T {
        let Some(cache) = &self.cache else { return work() };
        let mut sweep = cache.lock();
        self.revive_in(&mut sweep, first);
        work()
    }

    /// A page or run that was just loaded may leave.
    pub(crate) fn queue_loaded(&self, first: u32) {
        if let Some(cache) = &self.cache {
            queue(&mut cache.lock(), self.frames.frame_or_map(first), first);
        }
    }
}

/// Puts a page in line, unless it stands there.
fn queue(sweep: &mut Sweep, frame: Frame<'_>, page: u32) {
    if frame.mark().set(QUEUED) & QUEUED == 0 {
        sweep.line.push_back(page);
    }
}

impl<R> Arena<R> {
    fn mark_written(&self, first: u32) {
        if let Some(cache) = &self.cache {
            let frame = self.frames.frame_or_map(first);
            let mut sweep = cache.lock();
            frame.mark().set(CLEAN);
            queue(&mut sweep, frame, first);
        }
    }
}

impl<R: Send + Sync> Writer<R> {
    /// A page or run in memory is in the file as it is here, from now on.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 0, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// writer.take(8).expect("nobody uses page 8");
    /// writer.mark_written(7);
    /// arena.publish(writer.seal(), ());
    /// arena.sweep();
    /// assert_eq!((arena.birth(7).is_some(), arena.birth(8).is_some()), (false, true)); // only one can be read again
    /// ```
    pub fn mark_written(&self, first: u32) {
        // The writer is borrowed, so the page is not used again meanwhile.
        if self.birth(first).is_some() {
            self.arena().mark_written(first);
        }
    }
}

impl<R> Reader<'_, R> {
    /// A page or run of this version is in the file as it is here, from now on.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 0, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// arena.publish(writer.seal(), ());
    /// let reader = arena.read();
    /// reader.mark_written(7); // who writes a checkpoint is no writer, and others go on meanwhile
    /// arena.sweep();
    /// assert_eq!(arena.resident_pages(), 0);
    /// ```
    pub fn mark_written(&self, first: u32) {
        // A page of a version that is held is not used again, so the mark falls on the life that was written.
        if self.birth(first).is_some() {
            self.arena().mark_written(first);
        }
    }

    /// Begins an operation: in an arena whose pages come and go, pages are lent for one.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 0, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7").fill(1);
    /// writer.mark_written(7);
    /// arena.publish(writer.seal(), ());
    ///
    /// let reader = arena.read();
    /// let operation = reader.operation();
    /// let page = operation.page(7).expect("page 7 is in memory");
    /// arena.sweep();
    /// assert_eq!(page, [1; 256], "it stays as long as the operation goes on");
    /// drop(operation);
    /// arena.sweep();
    /// assert!(reader.operation().page(7).is_none());
    /// ```
    #[must_use]
    #[inline]
    pub fn operation(&self) -> Operation<'_, R> {
        Operation { reader: self, slot: self.arena().cache.as_ref().map(Cache::begin) }
    }
}

/// One operation of a reader. The pages that it gives out live as long as the borrow of it.
///
/// ```
/// use kauri_arena::{Arena, Stamp};
///
/// let (arena, mut writer) = Arena::bounded(4096, 100, Stamp::FIRST, ());
/// writer.tick();
/// writer.take(7).expect("nobody uses page 7")[..5].copy_from_slice(b"hello");
/// arena.publish(writer.seal(), ());
///
/// let reader = arena.read();
/// assert!(reader.page(7).is_none(), "not for as long as a version is held");
/// assert_eq!(&reader.operation().page(7).expect("page 7 is in memory")[..5], b"hello");
/// ```
#[derive(Debug)]
pub struct Operation<'a, R> {
    reader: &'a Reader<'a, R>,
    /// Where it is announced, if pages can leave.
    slot: Option<&'a slots::Slot>,
}

impl<R> Operation<'_, R> {
    /// A page of the reader's version; `None` if it is not in memory, or does not belong to it.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 100, Stamp::FIRST, ());
    /// let before = arena.read();
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7").fill(1);
    /// arena.publish(writer.seal(), ());
    /// assert_eq!(arena.read().operation().page(7), Some(&[1; 256][..]));
    /// assert_eq!(before.operation().page(7), None); // of a later version
    /// ```
    #[must_use]
    pub fn page(&self, page: u32) -> Option<&[u8]> {
        self.run(page, 1)
    }

    /// A run of pages of the reader's version; `None` if it is not in memory, does not belong to it, or is no such run.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 100, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them");
    /// arena.publish(writer.seal(), ());
    /// let reader = arena.read();
    /// let operation = reader.operation();
    /// assert_eq!(operation.run(10, 3).map(<[u8]>::len), Some(768));
    /// assert_eq!(operation.run(10, 4), None); // there are three
    /// ```
    #[must_use]
    pub fn run(&self, first: u32, pages: u32) -> Option<&[u8]> {
        let bytes = self.reader.lend(first, pages)?;
        if self.slot.is_some() {
            self.reader.arena().frames.frame_or_map(first).mark().set(USED);
        }
        Some(bytes)
    }

    /// The page or run that begins here, whole, and when it was born; `None` as for [`page`](Self::page).
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 100, Stamp::FIRST, ());
    /// let born = writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them").fill(1);
    /// arena.publish(writer.seal(), ());
    /// let reader = arena.read();
    /// let operation = reader.operation();
    /// assert_eq!(operation.whole(10), Some((born, &[1; 768][..]))); // how long it is need not be known
    /// assert_eq!(operation.whole(11), None); // nothing begins there
    /// ```
    #[must_use]
    pub fn whole(&self, first: u32) -> Option<(Stamp, &[u8])> {
        let birth = self.reader.birth(first)?;
        Some((birth, self.reader.lend(first, self.reader.arena().frames.run_pages(first))?))
    }
}

impl<R> Drop for Operation<'_, R> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            slot.release();
        }
    }
}
