//! Frames: memory for pages, in chunks that are mapped when they are first needed, and the stamps of each page.
//!
//! ```text
//! chunk:  | frame 0 | ... | frame 16383 | stamps 0 | ... | stamps 16383 | counts of regions | mark 0 | ... | mark 16383 |
//! stamps: | birth u64 | death u64 |
//! count:  | u32 |
//! mark:   | u8 |
//! ```
//!
//! A region is as long as a huge page of the system. When some of its frames were used, the system is asked to make one page of it: then
//! finding it is cheap for the processor. Not before, unless new pages are made from its beginning on: it would be filled with zeros as a
//! whole, for a page of it.
//!
//! Stamps are atomics; frames are plain memory that is shared only while it does not change. The birth says what a frame is:
//!
//! ```text
//! 0                   empty: the page is not in memory
//! 1                   being filled by whoever wrote the 1
//! 2..                 a page born at that stamp, or the first page of a run
//! top bit and i       page i of a run; the first page has the run's stamps
//! ```
//!
//! A mark says whether the frame was ever used, and what only a bounded arena needs to know ([`Cache`](crate::cache)).
//!
//! The death of a page that lives is the greatest number. It is zero, which means the same, until the page is first made.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::stamp::Stamp;
use crate::sync::{AtomicU64, Ordering};

/// How many pages lie in one piece of memory; a run of pages does not cross its end.
///
/// ```
/// use kauri_arena::{Arena, CHUNK_PAGES, Stamp};
///
/// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
/// writer.tick();
/// assert!(writer.take_run(CHUNK_PAGES - 3, 3).is_ok()); // up to the end
/// assert!(writer.take_run(CHUNK_PAGES, 3).is_ok()); // and from there on
/// ```
#[cfg(not(loom))]
pub const CHUNK_PAGES: u32 = 1 << 14;
/// As few as the model needs.
#[cfg(loom)]
pub const CHUNK_PAGES: u32 = 4;

const CHUNKS: usize = 1 << (32 - 14);
const EMPTY: u64 = 0;
const FILLING: u64 = 1;
const INSIDE: u64 = 1 << 63;
// A page's birth must never read as the mark of a run: what is between a mark and its first page is lent with it.
const _: () = assert!(Stamp::LAST.number() < INSIDE);
const HUGE_BYTES: usize = 2 << 20;
/// The mark of a frame that was used: the system has memory for it.
const TOUCHED: u8 = 8;
/// How often a page was read that was not brought: two bits of its mark.
const READ: u8 = 16;
/// More is not counted.
const READS_MAX: u8 = 3;
/// A region becomes a huge page when this part of it, one of so many, was used.
const DENSE_SHARE: usize = 4;

/// How an attempt to load a page ended.
///
/// ```
/// use kauri_arena::{Arena, Load, Stamp};
///
/// let (arena, _writer) = Arena::new(256, Stamp::new(9).expect("a stamp"), ());
/// let load = || arena.load(7, 1, |_| Stamp::new(5).ok_or(()));
/// assert_eq!(load(), Ok(Load::Done));
/// assert_eq!(load(), Ok(Load::Elsewhere)); // nothing is read again
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// It is in memory now.
    Done,
    /// It was already, or somebody else is bringing it.
    Elsewhere,
}

/// All frames of an arena.
#[derive(Debug)]
pub(crate) struct Frames {
    page_bytes: usize,
    /// How many pages are in memory; counted only where it matters.
    resident: Option<AtomicUsize>,
    chunks: Directory,
    /// No chunk from this one on was ever mapped.
    chunks_end: AtomicUsize,
}

/// Where each chunk is, or null: two megabytes of which a small store touches one page.
///
/// Mapped and not allocated, because an allocator that has such a piece at hand fills it with zeros, which takes longer than
/// all the rest of opening a store.
#[derive(Debug)]
struct Directory(NonNull<[AtomicPtr<u8>; CHUNKS]>);

// SAFETY: it owns its memory like a box, and its atomics may be used from any thread.
unsafe impl Send for Directory {}
// SAFETY: as above.
unsafe impl Sync for Directory {}

impl Directory {
    const BYTES: usize = size_of::<[AtomicPtr<u8>; CHUNKS]>();

    fn new() -> Self {
        let start = map(Self::BYTES);
        // SAFETY: advice on the mapping just made; it changes no bytes. A huge page would be filled with zeros too.
        let _ = unsafe { rustix::mm::madvise(start.cast(), Self::BYTES, Advice::LinuxNoHugepage) };
        Self(NonNull::new(start).expect("mapped").cast())
    }
}

impl std::ops::Deref for Directory {
    type Target = [AtomicPtr<u8>; CHUNKS];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: mapped with this size, aligned to a page, zeroed by the system, which is a valid value (null pointers);
        // ours until it is dropped, and never lent to be changed otherwise than as these atomics.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nobody borrows from it any more.
        unsafe { unmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

/// The stamps of a page.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Stamps {
    birth: AtomicU64,
    death: AtomicU64,
}

/// What the birth word of a page says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Birth {
    Empty,
    Filling,
    At(Stamp),
    /// Page `index` of a run.
    Inside(u32),
}

/// One frame and the stamps of the page in it.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    start: NonNull<u8>,
    pub(crate) stamps: &'a Stamps,
    frames: &'a Frames,
    index: usize,
}

/// As much memory as a huge page of the system has.
struct Region<'a> {
    start: NonNull<u8>,
    /// How many of its frames were used, by pages that are no run.
    used: &'a AtomicU32,
}

/// The mark of a page: bits that are set and unset.
#[derive(Debug)]
pub(crate) struct Mark(AtomicU8);

impl Mark {
    pub(crate) fn load(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets a bit, and tells the mark before.
    #[inline]
    pub(crate) fn set(&self, bit: u8) -> u8 {
        let before = self.load();
        // Mostly it is set: then nobody else needs to be disturbed.
        if before & bit == 0 { self.0.fetch_or(bit, Ordering::Relaxed) } else { before }
    }

    /// Counts that the page was read without being brought, and tells how often it was before.
    pub(crate) fn count_read(&self) -> u8 {
        let before = self.load();
        let reads = before / READ % (READS_MAX + 1);
        if reads < READS_MAX {
            // Whoever changes the mark at the same time is not disturbed: it is no harm if one is not counted.
            let _ = self.0.compare_exchange(before, before + READ, Ordering::Relaxed, Ordering::Relaxed);
        }
        reads
    }

    pub(crate) fn unset(&self, bit: u8) {
        self.0.fetch_and(!bit, Ordering::Relaxed);
    }
}

impl Frames {
    pub(crate) fn new(page_bytes: usize, counts: bool) -> Self {
        assert!(
            page_bytes.is_power_of_two() && (256..=65536).contains(&page_bytes),
            "a page of {page_bytes} bytes; expected a power of two from 256 to 65536"
        );
        let resident = counts.then(Default::default);
        Self { page_bytes, resident, chunks: Directory::new(), chunks_end: AtomicUsize::new(0) }
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// How many pages are in memory, if they are counted.
    pub(crate) fn resident(&self) -> usize {
        self.resident.as_ref().map_or(0, |resident| resident.load(Ordering::Relaxed))
    }

    fn count_in(&self, pages: u32) {
        if let Some(resident) = &self.resident {
            resident.fetch_add(pages as usize, Ordering::Relaxed);
        }
    }

    fn count_out(&self, pages: u32) {
        if let Some(resident) = &self.resident {
            resident.fetch_sub(pages as usize, Ordering::Relaxed);
        }
    }

    /// The frame of a page, if its chunk is mapped.
    #[inline]
    pub(crate) fn frame(&self, page: u32) -> Option<Frame<'_>> {
        let chunk = NonNull::new(self.chunks[(page / CHUNK_PAGES) as usize].load(Ordering::Acquire))?;
        let index = (page % CHUNK_PAGES) as usize;
        // SAFETY: a chunk has CHUNK_PAGES frames of `page_bytes`, and `index < CHUNK_PAGES`.
        let start = unsafe { chunk.add(index * self.page_bytes) };
        // SAFETY: behind the frames lie as many stamps.
        let stamps = unsafe { chunk.add(self.frames_bytes() + index * size_of::<Stamps>()) };
        // SAFETY: mapped and zeroed by the system, which is a valid value; aligned, because the frames before them fill a
        // multiple of 256 bytes; only ever accessed as these atomics; lives as long as `self`.
        let stamps = unsafe { stamps.cast::<Stamps>().as_ref() };
        Some(Frame { start, stamps, frames: self, index })
    }

    /// The frame of a page; its chunk is mapped if it was not.
    pub(crate) fn frame_or_map(&self, page: u32) -> Frame<'_> {
        if self.frame(page).is_none() {
            self.map(page);
        }
        self.frame(page).expect("its chunk was just mapped")
    }

    /// Maps the chunk of a page, which is its first to be used.
    #[cold]
    fn map(&self, page: u32) {
        let chunk = page / CHUNK_PAGES;
        let mapped = map_chunk(self.chunk_bytes());
        #[cfg(loom)]
        self.model_stamps(mapped);
        let cell = &self.chunks[chunk as usize];
        self.chunks_end.fetch_max(chunk as usize + 1, Ordering::Relaxed);
        if cell.compare_exchange(std::ptr::null_mut(), mapped, Ordering::AcqRel, Ordering::Acquire).is_err() {
            // SAFETY: we mapped it just now and nobody else knows of it.
            unsafe { unmap(mapped, self.chunk_bytes()) };
        }
    }

    /// The atomics of the model are not made of zeroes.
    #[cfg(loom)]
    fn model_stamps(&self, chunk: *mut u8) {
        // SAFETY: behind the frames lie as many stamps.
        let first = unsafe { chunk.add(self.frames_bytes()) }.cast::<Stamps>();
        for index in 0..CHUNK_PAGES as usize {
            // SAFETY: one of those stamps.
            let stamps = unsafe { first.add(index) };
            // SAFETY: nobody else knows of the chunk yet.
            unsafe { stamps.write(Stamps { birth: AtomicU64::new(EMPTY), death: AtomicU64::new(0) }) };
        }
    }

    fn frames_bytes(&self) -> usize {
        CHUNK_PAGES as usize * self.page_bytes
    }

    fn chunk_bytes(&self) -> usize {
        // A multiple of the system's page size, whatever that is up to 64 KiB.
        (self.marks_at() + CHUNK_PAGES as usize * size_of::<Mark>()).next_multiple_of(64 << 10)
    }

    /// Where in a chunk the counts of its regions begin.
    fn counts_at(&self) -> usize {
        self.frames_bytes() + CHUNK_PAGES as usize * size_of::<Stamps>()
    }

    /// Where in a chunk the marks begin.
    fn marks_at(&self) -> usize {
        self.counts_at() + self.frames_bytes().div_ceil(HUGE_BYTES) * size_of::<AtomicU32>()
    }

    /// Notes that a frame is used, and by a page alone or by one of a run.
    fn touch(&self, page: u32, is_alone: bool) {
        let frame = self.frame_or_map(page);
        // Runs count for nothing: a long value is read from its beginning to its end, so a page of the system more costs it little; and where
        // there are many, making room for a huge page costs the system more than it saves.
        if frame.mark().set(TOUCHED) & TOUCHED == 0 && is_alone && self.resident.is_none() {
            frame.count_in_region();
        }
    }

    /// Fills an empty run of `pages` pages; one page is a run too.
    pub(crate) fn load<E>(
        &self,
        first: u32,
        pages: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<Stamp, E>,
    ) -> Result<Load, E> {
        assert!(is_run(first, pages), "pages {first} to {first}+{pages} are no run");
        let Some(claim) = self.claim(first, pages) else { return Ok(Load::Elsewhere) };
        let frame = self.frame_or_map(first);
        // SAFETY: the frames were empty and the claim makes them ours: readers, the writer and other loaders ask for the
        // birth first. The run lies in one chunk.
        let birth = fill(unsafe { frame.bytes_mut(pages as usize * self.page_bytes) })?;
        // What is loaded is in the file. Before the birth, as always.
        frame.mark().set(crate::cache::CLEAN);
        claim.mark(birth);
        Ok(Load::Done)
    }

    /// Makes empty frames ours, all of them or none.
    pub(crate) fn claim(&self, first: u32, pages: u32) -> Option<Claim<'_>> {
        let mut claim = Claim { frames: self, first, pages: 0 };
        for page in run(first, pages) {
            if !self.frame_or_map(page).stamps.exchange(EMPTY, FILLING) {
                return None;
            }
            claim.pages += 1;
        }
        Some(claim)
    }

    /// Empties a page or a run that nobody has a slice of.
    ///
    /// All its frames become ours before any is empty. If the first were empty early, a loader could make a page of it while the
    /// marks behind it still stand, and who then asks for the run would get frames that change hands.
    pub(crate) fn empty(&self, first: u32) -> u32 {
        let mut claim = Claim { frames: self, first, pages: 0 };
        for index in 0..CHUNK_PAGES - first % CHUNK_PAGES {
            let stamps = self.frame_or_map(first + index).stamps;
            if index > 0 && stamps.birth() != Birth::Inside(index) {
                break;
            }
            stamps.end();
            claim.pages += 1;
        }
        self.count_out(claim.pages);
        if self.resident.is_some() {
            self.give_back(first, claim.pages);
        }
        claim.pages
    }

    /// Empties a page or run that is leaving and that nobody has a slice of, and gives its memory back to the system. Its death
    /// stays: it may be brought back by readers of the versions it belongs to.
    pub(crate) fn vacate(&self, first: u32, pages: u32) {
        for page in run(first, pages) {
            self.frame_or_map(page).stamps.birth.store(FILLING, Ordering::Relaxed);
        }
        // Empty again when it is dropped, all at once.
        let _claim = Claim { frames: self, first, pages };
        self.give_back(first, pages);
        self.count_out(pages);
    }

    /// Gives the memory of frames back that are claimed.
    fn give_back(&self, first: u32, pages: u32) {
        self.frame_or_map(first).give_back(pages as usize * self.page_bytes);
        for page in run(first, pages) {
            self.frame_or_map(page).mark().unset(TOUCHED);
        }
    }

    /// Whether all frames of a run were used before, so that there is memory for them.
    pub(crate) fn are_touched(&self, first: u32, pages: u32) -> bool {
        run(first, pages).all(|page| self.frame(page).is_some_and(|frame| frame.mark().load() & TOUCHED != 0))
    }

    /// How many pages the page or run that begins here has.
    pub(crate) fn run_pages(&self, first: u32) -> u32 {
        let rest = 1..CHUNK_PAGES - first % CHUNK_PAGES;
        let inside = |index: &u32| self.frame_or_map(first + index).stamps.birth() == Birth::Inside(*index);
        rest.take_while(inside).last().map_or(1, |index| index + 1)
    }

    /// Forgets the death of a page that is not in memory; `false` if it is, or somebody is bringing it.
    pub(crate) fn forget_death(&self, page: u32) -> bool {
        // Only what is ours may be changed: a loader can come at any time.
        let claim = self.claim(page, 1);
        if claim.is_some() {
            self.frame_or_map(page).stamps.end();
        }
        claim.is_some()
    }

    /// Whether the pages behind a first page belong to its run. A run is taken whole, so its last page speaks for all.
    #[inline]
    pub(crate) fn is_taken_as_one(&self, first: u32, pages: u32) -> bool {
        pages == 1 || self.is_taken_as_run(first, pages)
    }

    fn is_taken_as_run(&self, first: u32, pages: u32) -> bool {
        is_run(first, pages)
            && self.frame(first + (pages - 1)).is_some_and(|last| last.stamps.birth() == Birth::Inside(pages - 1))
    }
}

/// Whether these pages lie in one chunk.
pub(crate) fn is_run(first: u32, pages: u32) -> bool {
    pages > 0 && pages <= CHUNK_PAGES && first % CHUNK_PAGES <= CHUNK_PAGES - pages
}

/// The pages of a run, or of the beginning of one. The last page of all has no number behind it, so no range ends there.
fn run(first: u32, pages: u32) -> impl Iterator<Item = u32> {
    (0..pages).map(move |index| first + index)
}

/// Frames that were empty and are ours; empty again if we drop them.
pub(crate) struct Claim<'a> {
    frames: &'a Frames,
    first: u32,
    pages: u32,
}

impl Claim<'_> {
    /// Whether one of the pages died while it was not in memory.
    pub(crate) fn holds_dead(&self) -> bool {
        run(self.first, self.pages).any(|page| self.frames.frame_or_map(page).stamps.death() != Stamp::NEVER)
    }

    /// Turns the frames into a page or run born then; the first page last, because it is asked for first.
    pub(crate) fn mark(self, birth: Stamp) {
        self.frames.count_in(self.pages);
        assert!(birth.number() > FILLING, "a page born at stamp {birth}; pages are born at 2 or later");
        for index in (1..self.pages).rev() {
            self.frames.touch(self.first + index, false);
            let inside = &self.frames.frame_or_map(self.first + index).stamps.birth;
            inside.store(INSIDE | u64::from(index), Ordering::Release);
        }
        self.frames.touch(self.first, self.pages == 1);
        self.frames.frame_or_map(self.first).stamps.birth.store(birth.number(), Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        for page in run(self.first, self.pages) {
            self.frames.frame_or_map(page).stamps.birth.store(EMPTY, Ordering::Release);
        }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let bytes = self.chunk_bytes();
        // The rest was never touched: looking at it would make the system fill it with zeros.
        let chunks = &self.chunks[..*self.chunks_end.get_mut()];
        for chunk in chunks.iter().map(|chunk| chunk.load(Ordering::Acquire)).filter(|chunk| !chunk.is_null()) {
            // SAFETY: mapped by `map` with this length, unmapped once, and nobody borrows from the arena any more.
            unsafe { unmap(chunk, bytes) };
        }
    }
}

impl Stamps {
    #[inline]
    pub(crate) fn birth(&self) -> Birth {
        match self.birth.load(Ordering::Acquire) {
            EMPTY => Birth::Empty,
            FILLING => Birth::Filling,
            #[expect(clippy::cast_possible_truncation, reason = "an index within a chunk")]
            inside if inside & INSIDE != 0 => Birth::Inside(inside as u32),
            birth => Birth::At(Stamp::new(birth).expect("zero is EMPTY, and no stamp has the top bit")),
        }
    }

    #[inline]
    pub(crate) fn death(&self) -> Stamp {
        Stamp::new(self.death.load(Ordering::Acquire)).unwrap_or(Stamp::NEVER)
    }

    /// Sets the death. It comes after the birth of the same life, so that whoever sees it sees that birth or a later one.
    pub(crate) fn set_death(&self, death: Stamp) {
        self.death.store(death.number(), Ordering::Release);
    }

    /// Takes the page out of its frame, which is ours then. The death is forgotten after the birth, so that whoever does not see
    /// the death any more does not see the birth either: a reader that came after the death would take the page for alive.
    fn end(&self) {
        self.birth.store(FILLING, Ordering::Relaxed);
        self.death.store(0, Ordering::Release);
    }

    /// Hides a page from everybody, if it is still the one born then.
    pub(crate) fn leave(&self, birth: Stamp) -> bool {
        self.exchange(birth.number(), FILLING)
    }

    /// Shows a page again that was leaving.
    pub(crate) fn stay(&self, birth: Stamp) {
        self.birth.store(birth.number(), Ordering::Release);
    }

    fn exchange(&self, from: u64, to: u64) -> bool {
        self.birth.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

impl<'a> Frame<'a> {
    /// The mark of the page in it.
    #[inline]
    pub(crate) fn mark(self) -> &'a Mark {
        let behind = self.frames.marks_at() - self.index * self.frames.page_bytes + self.index;
        // SAFETY: behind the counts of the chunk lie as many marks as frames; `start` is the start of frame `index`.
        let mark = unsafe { self.start.add(behind) };
        // SAFETY: mapped and zeroed by the system, which is a valid value; only ever accessed as this atomic; lives as long as
        // the frames.
        unsafe { mark.cast::<Mark>().as_ref() }
    }

    /// Counts the frame in its region, and makes a huge page of that when there are enough.
    fn count_in_region(self) {
        let Some(region) = self.region() else { return };
        let dense = HUGE_BYTES / DENSE_SHARE / self.frames.page_bytes;
        if region.used.fetch_add(1, Ordering::Relaxed) as usize + 1 == dense.max(1) {
            // SAFETY: a part of a mapping of ours; its bytes stay as they are. That it may be refused does no harm.
            unsafe { libc::madvise(region.start.as_ptr().cast(), HUGE_BYTES, libc::MADV_COLLAPSE) };
        }
    }

    /// Lets the region that begins with this frame, if one does and nobody used it, be a huge page from the beginning: who comes here with a new page
    /// will fill the rest too.
    pub(crate) fn begin_region(self) {
        let at = self.index * self.frames.page_bytes;
        if !at.is_multiple_of(HUGE_BYTES) || self.frames.resident.is_some() {
            return;
        }
        if let Some(region) = self.region().filter(|region| region.used.load(Ordering::Relaxed) == 0) {
            // So that it is not made one later.
            region.used.store(u32::MAX / 2, Ordering::Relaxed);
            // SAFETY: as for `count_in_region`.
            let _ = unsafe { rustix::mm::madvise(region.start.as_ptr().cast(), HUGE_BYTES, Advice::LinuxHugepage) };
        }
    }

    /// The region of the frame, if it may be a huge page. The first of a chunk may not: a small store is small.
    fn region(self) -> Option<Region<'a>> {
        let at = self.index * self.frames.page_bytes;
        let region = at / HUGE_BYTES;
        if region == 0 || (region + 1) * HUGE_BYTES > self.frames.frames_bytes() {
            return None;
        }
        // SAFETY: the start of the region, which lies in the chunk before this frame, or at it.
        let start = unsafe { self.start.sub(at - region * HUGE_BYTES) };
        let behind = self.frames.counts_at() + region * size_of::<AtomicU32>() - at;
        // SAFETY: behind the stamps of the chunk lies a count for each of its regions; `start` is at `at` in the chunk.
        let used = unsafe { self.start.add(behind) };
        // SAFETY: mapped and zeroed by the system, which is a valid value; aligned, because what lies before them fills a multiple of
        // 16 bytes; only ever accessed as this atomic; lives as long as the frames.
        let used = unsafe { used.cast::<AtomicU32>().as_ref() };
        Some(Region { start, used })
    }

    /// Gives the memory of a page or run back; it reads as zeros until it is filled again.
    fn give_back(self, bytes: usize) {
        const SYSTEM_PAGE_BYTES: usize = 4096;
        if !bytes.is_multiple_of(SYSTEM_PAGE_BYTES) {
            // A frame that shares a page of the system with others keeps it.
            return;
        }
        // SAFETY: the caller has claimed these frames, so nobody has a slice of them. They lie in one chunk, which begins at
        // a page of the system and whose frames are multiples of one. That it may be refused does no harm: the memory
        // stays ours.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }

    /// # Safety
    /// The bytes lie in one chunk, and nobody changes them during `'a`.
    #[inline]
    pub(crate) unsafe fn bytes(self, count: usize) -> &'a [u8] {
        // SAFETY: mapped, initialised (zeroed by the system), in one chunk and unchanging, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), count) }
    }

    /// # Safety
    /// The bytes lie in one chunk, and nobody else looks at them during `'a`.
    #[inline]
    pub(crate) unsafe fn bytes_mut(self, count: usize) -> &'a mut [u8] {
        // SAFETY: as for `bytes`, and ours alone, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), count) }
    }
}

/// Zeroed memory, aligned for huge pages.
fn map_chunk(bytes: usize) -> *mut u8 {
    let start = map(bytes + HUGE_BYTES);
    let before = start.align_offset(HUGE_BYTES).min(HUGE_BYTES);
    // SAFETY: `before <= HUGE_BYTES`, so the aligned chunk of `bytes` lies inside the mapping.
    let chunk = unsafe { start.add(before) };
    // SAFETY: as above; the end of the chunk is inside the mapping or its end.
    let end = unsafe { chunk.add(bytes) };
    // SAFETY: what is before the chunk is ours, and unused.
    unsafe { unmap(start, before) };
    // SAFETY: so is what is behind it.
    unsafe { unmap(end, HUGE_BYTES - before) };
    chunk
}

/// Zeroed memory.
fn map(bytes: usize) -> *mut u8 {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping at an address of the system's choice touches nothing that exists.
    let start = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) };
    start.expect("the system gives address space for pages").cast()
}

/// # Safety
/// The range was mapped by `map` and nobody uses it any more.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller's promise.
        let unmapped = unsafe { rustix::mm::munmap(start.cast(), bytes) };
        unmapped.expect("a mapping of ours can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_birth_reads_as_the_inside_of_a_run() {
        let frames = Frames::new(256, false);
        let load = |page, birth| frames.load(page, 1, |_| Stamp::new(birth).ok_or("no stamp"));
        assert_eq!(load(10, 2), Ok(Load::Done));
        // As such a mark, this would lend page 11 to whoever has pages 10 to 12, whoever fills it.
        assert_eq!(load(12, INSIDE | 2), Err("no stamp"));
        assert!(!frames.is_taken_as_one(10, 3));
    }

    #[test]
    fn last_page_of_all_is_claimed_like_any_other() {
        let frames = Frames::new(256, false);
        for (first, pages) in [(u32::MAX, 1), (u32::MAX - 1, 2)] {
            let claim = frames.claim(first, pages).expect("it is empty");
            assert!(frames.claim(u32::MAX, 1).is_none());
            claim.mark(Stamp::new(2).unwrap());
            assert!(frames.claim(u32::MAX, 1).is_none());
            assert!(frames.is_taken_as_one(first, pages));
            frames.empty(first);
        }
        drop(frames.claim(u32::MAX, 1).expect("it is empty again"));
        assert!(frames.claim(u32::MAX, 1).is_some(), "a claim that was dropped leaves it empty");
    }

    #[test]
    fn run_is_emptied_whole_and_its_neighbours_are_left_alone() {
        let frames = Frames::new(256, false);
        let born = Stamp::new(2).unwrap();
        for (first, pages) in [(9, 1), (10, 3), (13, 2)] {
            frames.claim(first, pages).unwrap().mark(born);
        }
        frames.empty(10);
        let births = [9, 10, 11, 12, 13, 14].map(|page| frames.frame(page).unwrap().stamps.birth());
        let empty = Birth::Empty;
        assert_eq!(births, [Birth::At(born), empty, empty, empty, Birth::At(born), Birth::Inside(1)]);
    }

    #[test]
    fn claim_that_meets_a_used_page_leaves_everything_as_it_was() {
        let frames = Frames::new(256, false);
        frames.claim(12, 1).unwrap().mark(Stamp::new(2).unwrap());
        assert!(frames.claim(10, 4).is_none());
        let births = [10, 11, 12, 13].map(|page| frames.frame(page).unwrap().stamps.birth());
        assert_eq!(births, [Birth::Empty, Birth::Empty, Birth::At(Stamp::new(2).unwrap()), Birth::Empty]);
    }

    #[test]
    fn run_lies_in_one_chunk() {
        let end = CHUNK_PAGES;
        let cases = [(0, 0), (0, 1), (0, end), (1, end), (0, end + 1), (end - 1, 1), (end - 1, 2), (end, end)];
        assert_eq!(
            cases.map(|(first, pages)| is_run(first, pages)),
            [false, true, true, false, false, true, false, true]
        );
        let last = u32::MAX;
        let cases = [(last, 1), (last, 2), (last - 1, 2), (last, last), (0, last), (last - end + 1, end)];
        assert_eq!(cases.map(|(first, pages)| is_run(first, pages)), [true, false, true, false, false, true]);
    }

    #[test]
    fn page_in_a_chunk_that_is_not_mapped_is_no_run() {
        let frames = Frames::new(256, false);
        for (first, pages) in [(0, 0), (0, 2), (u32::MAX, 2), (u32::MAX - 1, 2), (u32::MAX, u32::MAX)] {
            assert!(!frames.is_taken_as_one(first, pages), "{pages} pages from {first}");
        }
    }

    #[test]
    fn birth_that_no_page_can_have_leaves_the_page_empty() {
        let frames = Frames::new(256, false);
        let load = || frames.load(5, 1, |_| Ok::<_, ()>(Stamp::FIRST));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(load)).is_err());
        assert!(frames.claim(5, 1).is_some());
    }

    #[test]
    fn chunks_are_aligned_for_huge_pages_whatever_the_page_size() {
        for page_bytes in [256, 4096, 65536] {
            let frames = Frames::new(page_bytes, false);
            let (first, last) = (frames.frame_or_map(0), frames.frame_or_map(CHUNK_PAGES - 1));
            assert_eq!(first.start.as_ptr().align_offset(HUGE_BYTES), 0);
            let between = last.start.as_ptr().addr() - first.start.as_ptr().addr();
            assert_eq!(between, (CHUNK_PAGES as usize - 1) * page_bytes);
            assert_eq!(last.stamps.birth(), Birth::Empty);
        }
    }
}
