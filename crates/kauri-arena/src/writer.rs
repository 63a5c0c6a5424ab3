//! The one writer of an arena: makes pages, gives pages up, seals versions.

use std::sync::Arc;

use crate::Arena;
use crate::frames::{Birth, Frame, is_run};
use crate::stamp::Stamp;

/// Why a page cannot be taken or reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InUse {
    /// It is a page that lives, or that died and was not reclaimed.
    Taken,
    /// It died, but this version of its life is held, or is the newest.
    Held(Stamp),
}

/// A version whose pages do not change any more: it can be published, once.
#[must_use = "a sealed version that is never published is never seen"]
#[derive(PartialEq, Eq, Debug)]
pub struct Sealed(pub(crate) Stamp);

impl Sealed {
    /// The version.
    #[must_use]
    pub fn version(&self) -> Stamp {
        self.0
    }
}

/// Makes new versions of an arena. There is one.
#[derive(Debug)]
pub struct Writer<R> {
    arena: Arc<Arena<R>>,
    /// The newest stamp given out; pages are born at it.
    now: Stamp,
    /// The version sealed last. Pages born after it are ours to change.
    base: Stamp,
    /// What the last scan found: the newest version at that time, and the versions held, oldest first.
    newest: Stamp,
    held: Vec<Stamp>,
    /// Versions that are kept although no reader holds them.
    pinned: Vec<Stamp>,
}

impl<R: Send + Sync> Writer<R> {
    pub(crate) fn new(arena: Arc<Arena<R>>, version: Stamp) -> Self {
        Self { arena, now: version, base: version, newest: version, held: Vec::new(), pinned: Vec::new() }
    }

    /// The arena.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena<R>> {
        &self.arena
    }

    /// Moves time on: pages taken from now on are born at the stamp returned.
    pub fn tick(&mut self) -> Stamp {
        self.now = self.now.next();
        self.now
    }

    /// A page in memory, of whatever version; `None` if it is not there.
    #[must_use]
    #[inline]
    pub fn page(&self, page: u32) -> Option<&[u8]> {
        self.run(page, 1)
    }

    /// A run of pages in memory, of whatever version; `None` if there is no such run.
    #[must_use]
    #[inline]
    pub fn run(&self, first: u32, pages: u32) -> Option<&[u8]> {
        let frames = &self.arena.frames;
        let frame = frames.frame(first)?;
        let Birth::At(_) = frame.stamps.birth() else { return None };
        if !frames.is_taken_as_one(first, pages) {
            return None;
        }
        // SAFETY: pages in memory are changed or taken only through `&mut Writer`, and there is one writer, borrowed here.
        // The run lies in one chunk, because it was taken or loaded as one.
        Some(unsafe { frame.bytes(pages as usize * frames.page_bytes()) })
    }

    /// When a page in memory was born.
    #[must_use]
    #[inline]
    pub fn birth(&self, page: u32) -> Option<Stamp> {
        match self.arena.frames.frame(page)?.stamps.birth() {
            Birth::At(birth) => Some(birth),
            _ => None,
        }
    }

    /// A page that was born in the version being made, to change it; `None` for any other.
    #[must_use]
    #[inline]
    pub fn page_mut(&mut self, page: u32) -> Option<&mut [u8]> {
        let frame = self.own(page)?;
        // SAFETY: the page was born after every version that is published or sealed (`own`), so no reader gets it, and
        // we are borrowed mutably, so no other slice of it came from this writer.
        Some(unsafe { frame.bytes_mut(self.arena.frames.page_bytes()) })
    }

    /// Two different pages that were born in the version being made, to change them together.
    #[must_use]
    pub fn pair_mut(&mut self, first: u32, second: u32) -> Option<(&mut [u8], &mut [u8])> {
        if first == second {
            return None;
        }
        let bytes = self.arena.frames.page_bytes();
        let (first, second) = (self.own(first)?, self.own(second)?);
        // SAFETY: as for `page_mut`.
        let first = unsafe { first.bytes_mut(bytes) };
        // SAFETY: as for `page_mut`; the frames are different, so the slices do not overlap.
        Some((first, unsafe { second.bytes_mut(bytes) }))
    }

    /// A page to read and another, born in the version being made, to change.
    #[must_use]
    pub fn from_to(&mut self, from: u32, to: u32) -> Option<(&[u8], &mut [u8])> {
        if from == to {
            return None;
        }
        let bytes = self.arena.frames.page_bytes();
        let source = self.arena.frames.frame(from)?;
        let Birth::At(_) = source.stamps.birth() else { return None };
        let target = self.own(to)?;
        // SAFETY: `source` is in memory and changes only through this writer, which is borrowed.
        let source = unsafe { source.bytes(bytes) };
        // SAFETY: as for `page_mut`; the frames are different, so the slices do not overlap.
        Some((source, unsafe { target.bytes_mut(bytes) }))
    }

    /// The frame of a page born in the version being made.
    #[inline]
    fn own(&self, page: u32) -> Option<Frame<'_>> {
        let frame = self.arena.frames.frame(page)?;
        match frame.stamps.birth() {
            Birth::At(birth) if birth > self.base => Some(frame),
            _ => None,
        }
    }

    /// Takes an empty page for new content, born now. Its bytes are whatever was there before.
    ///
    /// # Errors
    /// If the page is not empty.
    #[inline]
    pub fn take(&mut self, page: u32) -> Result<&mut [u8], InUse> {
        self.take_run(page, 1)
    }

    /// Takes a run of empty pages for one content, born now. Its bytes are whatever was there before.
    ///
    /// # Errors
    /// If one of the pages is not empty; none is taken then.
    ///
    /// # Panics
    /// If the run crosses the end of a chunk.
    pub fn take_run(&mut self, first: u32, pages: u32) -> Result<&mut [u8], InUse> {
        assert!(is_run(first, pages), "pages {first} to {first}+{pages} are no run");
        assert!(self.now > self.base, "no time has passed since the last version");
        let frames = &self.arena.frames;
        let claim = frames.claim(first, pages).ok_or(InUse::Taken)?;
        claim.mark(self.now);
        let frame = frames.frame_or_map(first);
        // The birth before the death: `Reader::birth_in` says why.
        frame.stamps.set_death(Stamp::NEVER);
        // SAFETY: each frame was empty, so nobody had a slice of it, and we claimed it, so nobody else will make one: its
        // birth is now later than every published version. The run lies in one chunk, and we are borrowed mutably.
        Ok(unsafe { frame.bytes_mut(pages as usize * frames.page_bytes()) })
    }

    /// Empties the frames of a page or run that died, when nobody can see it any more.
    ///
    /// # Errors
    /// If it lives, or a version of its life is held as far as the last [`scan`](Self::scan) knows.
    pub fn reclaim(&mut self, first: u32) -> Result<(), InUse> {
        let Some(frame) = self.arena.frames.frame(first) else { return Ok(()) };
        match frame.stamps.birth() {
            Birth::At(birth) => self.check_past(birth, frame.stamps.death())?,
            // It died without ever being in memory, so nobody knows when it was born: as early as can be.
            Birth::Empty => self.check_past(Stamp::FIRST, frame.stamps.death())?,
            Birth::Filling | Birth::Inside(_) => return Err(InUse::Taken),
        }
        self.arena.frames.empty(first);
        Ok(())
    }

    /// Whether a page of this life can be seen by nobody: it died by the newest version there was at the last scan, so that
    /// no later reader sees it, and no reader that the scan found holds a version in between.
    fn check_past(&self, birth: Stamp, death: Stamp) -> Result<(), InUse> {
        if death == Stamp::NEVER {
            return Err(InUse::Taken);
        }
        if death > self.newest {
            return Err(InUse::Held(self.newest));
        }
        let later = self.held.partition_point(|held| *held < birth);
        match self.held.get(later) {
            Some(held) if *held < death => Err(InUse::Held(*held)),
            _ => Ok(()),
        }
    }

    /// Gives back a page or run that was born in the version being made, as if it had never been, and tells how many pages that
    /// was; none if it was any other.
    pub fn untake(&mut self, first: u32) -> u32 {
        match self.own(first) {
            Some(_) => self.arena.frames.empty(first),
            None => 0,
        }
    }

    /// Ends the life of a page or run with the version being made: readers of that version and later do not get it.
    pub fn retire(&mut self, first: u32) {
        self.arena.frames.frame_or_map(first).stamps.set_death(self.now);
    }

    /// Keeps the pages of these versions, as if readers held them, from the next [`scan`](Self::scan) on; and of no others that
    /// were kept so before.
    pub fn pin(&mut self, versions: Vec<Stamp>) {
        self.pinned = versions;
    }

    /// How many pages the page or run that begins here has, if it is in memory and lives.
    #[must_use]
    pub fn living(&self, first: u32) -> Option<u32> {
        let stamps = self.arena.frames.frame(first)?.stamps;
        match stamps.birth() {
            Birth::At(_) if stamps.death() == Stamp::NEVER => Some(self.arena.frames.run_pages(first)),
            _ => None,
        }
    }

    /// Closes the version being made: its pages do not change any more, and [`Arena::publish`] can show it.
    pub fn seal(&mut self) -> Sealed {
        assert!(self.now > self.base, "no time has passed since the last version");
        self.base = self.now;
        Sealed(self.now)
    }

    /// The newest published version at the last scan.
    #[must_use]
    pub fn newest(&self) -> Stamp {
        self.newest
    }

    /// Looks which versions are held, and frees the roots of those that are not.
    pub fn scan(&mut self) -> &[Stamp] {
        // The newest first: a reader that the scan misses begins with it or a later one.
        self.newest = self.arena.ring.newest();
        self.held = self.arena.ring.free(|| self.arena.slots.held());
        self.held.extend(&self.pinned);
        self.held.sort_unstable();
        self.held.dedup();
        &self.held
    }
}
