//! The one writer of an arena: makes pages, gives pages up, seals versions.

use std::sync::Arc;

use crate::Arena;
use crate::cache::{CLEAN, USED};
use crate::frames::{Birth, Frame, is_run};
use crate::sealed::Sealed;
use crate::stamp::Stamp;

/// Why a page cannot be taken or reclaimed.
///
/// ```
/// use kauri_arena::{Arena, InUse, Stamp};
///
/// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
/// writer.tick();
/// writer.take(7).expect("nobody uses page 7");
/// arena.publish(writer.seal(), ());
/// assert_eq!(writer.reclaim(7), Err(InUse::Taken)); // it lives
///
/// let reader = arena.read();
/// writer.tick();
/// writer.retire(7);
/// arena.publish(writer.seal(), ());
/// writer.scan();
/// assert_eq!(writer.reclaim(7), Err(InUse::Held(reader.version())));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InUse {
    /// It is a page that lives, or that died and was not reclaimed.
    Taken,
    /// It died, but this version of its life is held, or is the newest.
    Held(Stamp),
}

/// Makes new versions of an arena. There is one.
///
/// ```
/// use kauri_arena::{Arena, Stamp, Writer};
///
/// /// Copy on write: readers of earlier versions keep what they see.
/// fn change(writer: &mut Writer<u32>, old: u32, new: u32) {
///     writer.tick();
///     writer.take(new).expect("it is free");
///     let (from, to) = writer.from_to(old, new).expect("both are in memory");
///     to.copy_from_slice(from);
///     to[0] += 1;
///     writer.retire(old);
///     let version = writer.seal();
///     writer.arena().publish(version, new);
/// }
///
/// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, 0);
/// writer.tick();
/// writer.take(7).expect("it is free").fill(1);
/// arena.publish(writer.seal(), 7);
/// let before = arena.read();
/// change(&mut writer, 7, 8);
/// let after = arena.read();
/// assert_eq!([&before, &after].map(|reader| reader.page(*reader.root()).map(|page| page[0])), [Some(1), Some(2)]);
/// ```
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
    /// Where pages leave: whether we have announced that what we lend is to stay.
    attached: bool,
}

impl<R: Send + Sync> Writer<R> {
    pub(crate) fn new(arena: Arc<Arena<R>>, version: Stamp) -> Self {
        Self {
            arena,
            now: version,
            base: version,
            newest: version,
            held: Vec::new(),
            pinned: Vec::new(),
            attached: true,
        }
    }

    /// The arena.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, writer) = Arena::new(256, Stamp::FIRST, ());
    /// assert!(Arc::ptr_eq(writer.arena(), &arena));
    /// ```
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena<R>> {
        &self.arena
    }

    /// Moves time on: pages taken from now on are born at the stamp returned.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let outer = writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// let inner = writer.tick(); // pages of a nested transaction can be told from those around
    /// writer.take(8).expect("nobody uses page 8");
    /// assert_eq!((writer.birth(7), writer.birth(8)), (Some(outer), Some(inner)));
    /// assert!(outer < inner);
    /// ```
    pub fn tick(&mut self) -> Stamp {
        self.attach();
        self.now = self.now.next();
        self.now
    }

    /// Moves time on to a stamp at least, at which pages of an earlier life were born: those taken from the next tick on are younger.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let found = Stamp::new(40).expect("not zero"); // in a page that was written before a crash
    /// writer.pass(found);
    /// assert!(writer.tick() > found);
    /// writer.pass(found); // time does not go back
    /// assert!(writer.now() > found);
    /// ```
    pub fn pass(&mut self, stamp: Stamp) {
        self.attach();
        self.now = self.now.max(stamp);
    }

    /// The newest stamp given out.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// assert_eq!(writer.now(), Stamp::FIRST);
    /// let ticked = writer.tick();
    /// assert_eq!(writer.now(), ticked);
    /// ```
    #[must_use]
    pub fn now(&self) -> Stamp {
        self.now
    }

    /// Lets go of whatever was lent before, and holds what is lent from now on. Time that moves on does the same.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::bounded(256, 0, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// writer.mark_written(7);
    /// arena.sweep(); // it begins to leave; what the writer may have lent of it is still there
    /// assert_eq!((writer.page(7), arena.resident_pages()), (None, 1));
    /// writer.hold(); // nothing is lent any more
    /// arena.sweep();
    /// assert_eq!(arena.resident_pages(), 0);
    /// ```
    pub fn hold(&mut self) {
        self.attach();
    }

    fn attach(&mut self) {
        if let Some(cache) = &self.arena.cache {
            cache.attach_writer();
            self.attached = true;
        }
    }

    /// Where pages leave: none is held in memory for this writer, and it sees none, until time moves on.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::bounded(256, 100, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7").fill(1);
    /// writer.rest();
    /// assert_eq!(writer.page(7), None);
    /// writer.tick();
    /// assert_eq!(writer.page(7), Some(&[1; 256][..]));
    /// ```
    pub fn rest(&mut self) {
        if let Some(cache) = &self.arena.cache {
            cache.detach_writer();
            self.attached = false;
        }
    }

    /// A page in memory, of whatever version; `None` if it is not there.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7").fill(1);
    /// assert_eq!(writer.page(7), Some(&[1; 256][..])); // its own, before anybody sees it
    /// assert_eq!((arena.read().page(7), writer.page(8)), (None, None));
    /// ```
    #[must_use]
    #[inline]
    pub fn page(&self, page: u32) -> Option<&[u8]> {
        self.run(page, 1)
    }

    /// A run of pages in memory, of whatever version; `None` if there is no such run.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them");
    /// assert_eq!([2, 3, 4].map(|pages| writer.run(10, pages).map(<[u8]>::len)), [Some(512), Some(768), None]);
    /// ```
    #[must_use]
    #[inline]
    pub fn run(&self, first: u32, pages: u32) -> Option<&[u8]> {
        let frames = &self.arena.frames;
        let frame = frames.frame(first)?;
        let Birth::At(_) = frame.stamps.birth() else { return None };
        if !self.attached || !frames.is_taken_as_one(first, pages) {
            return None;
        }
        if self.arena.cache.is_some() {
            frame.mark().set(USED);
        }
        // SAFETY: pages in memory are changed or taken only through `&mut Writer`, and there is one writer, borrowed here.
        // A sweep empties a frame only if our announced epoch is later than the hiding of its birth, which we just saw; we
        // move it on only when we are borrowed mutably. The run lies in one chunk, because it was taken or loaded as one.
        Some(unsafe { frame.bytes(pages as usize * frames.page_bytes()) })
    }

    /// The page or run that begins here, whole, and when it was born; `None` if it is not in memory, or died.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let born = writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them").fill(1);
    /// assert_eq!(writer.whole(10), Some((born, &[1; 768][..])));
    /// writer.retire(10);
    /// assert_eq!(writer.whole(10), None); // it died
    /// assert!(writer.run(10, 3).is_some()); // and is still there
    /// ```
    #[must_use]
    pub fn whole(&self, first: u32) -> Option<(Stamp, &[u8])> {
        let birth = self.birth(first)?;
        let lives = self.arena.frames.frame(first)?.stamps.death() == Stamp::NEVER;
        Some((birth, self.run(first, self.arena.frames.run_pages(first))?)).filter(|_| lives)
    }

    /// When a page in memory was born.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let born = writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them");
    /// assert_eq!(writer.birth(10), Some(born));
    /// assert_eq!(writer.birth(11), None); // inside a run
    /// ```
    #[must_use]
    #[inline]
    pub fn birth(&self, page: u32) -> Option<Stamp> {
        match self.arena.frames.frame(page)?.stamps.birth() {
            Birth::At(birth) => Some(birth),
            _ => None,
        }
    }

    /// A page that was born in the version being made, to change it; `None` for any other.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// writer.page_mut(7).expect("born now")[0] = 1; // again and again
    /// let _sealed = writer.seal();
    /// assert!(writer.page_mut(7).is_none(), "what may be seen does not change");
    /// ```
    #[must_use]
    #[inline]
    pub fn page_mut(&mut self, page: u32) -> Option<&mut [u8]> {
        let frame = self.own(page)?;
        // SAFETY: the page was born after every version that is published or sealed (`own`), so no reader gets it, and
        // we are borrowed mutably, so no other slice of it came from this writer.
        Some(unsafe { frame.bytes_mut(self.arena.frames.page_bytes()) })
    }

    /// A page to read and another, born in the version being made, to change.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7").fill(1);
    /// arena.publish(writer.seal(), ());
    /// writer.tick();
    /// writer.take(8).expect("nobody uses page 8");
    /// let (from, to) = writer.from_to(7, 8).expect("both are in memory");
    /// to.copy_from_slice(from);
    /// assert_eq!(writer.page(8), Some(&[1; 256][..]));
    /// assert!(writer.from_to(8, 7).is_none(), "7 is of a version that is seen");
    /// ```
    #[must_use]
    pub fn from_to(&mut self, from: u32, to: u32) -> Option<(&[u8], &mut [u8])> {
        if from == to {
            return None;
        }
        let bytes = self.arena.frames.page_bytes();
        let source = self.arena.frames.frame(from)?;
        let Birth::At(_) = source.stamps.birth() else { return None };
        let target = self.own(to).filter(|_| self.attached)?;
        // SAFETY: `source` is in memory and changes only through this writer, which is borrowed; as for `run`, it stays.
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
    /// ```
    /// use kauri_arena::{Arena, InUse, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7")[..5].copy_from_slice(b"hello");
    /// assert_eq!(writer.take(7).err(), Some(InUse::Taken));
    /// assert_eq!(writer.page(7).map(|page| &page[..5]), Some(&b"hello"[..]));
    /// ```
    ///
    /// # Errors
    /// If the page is not empty, or died and was not reclaimed.
    #[inline]
    pub fn take(&mut self, page: u32) -> Result<&mut [u8], InUse> {
        self.take_run(page, 1)
    }

    /// Takes a run of empty pages for one content, born now. Its bytes are whatever was there before.
    ///
    /// ```
    /// use kauri_arena::{Arena, InUse, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// assert_eq!(writer.take_run(10, 3).map(|run| run.len()), Ok(768));
    /// assert_eq!(writer.take_run(8, 3).err(), Some(InUse::Taken)); // 10 is not empty,
    /// assert!(writer.take_run(8, 2).is_ok()); // and so neither 8 nor 9 was taken
    /// ```
    ///
    /// # Errors
    /// If one of the pages is not empty, or died and was not reclaimed; none is taken then.
    ///
    /// # Panics
    /// If the run crosses the end of a chunk.
    pub fn take_run(&mut self, first: u32, pages: u32) -> Result<&mut [u8], InUse> {
        assert!(is_run(first, pages), "pages {first} to {first}+{pages} are no run");
        assert!(self.now > self.base, "no time has passed since the last version");
        self.attach();
        let frames = &self.arena.frames;
        let claim = frames.claim(first, pages).ok_or(InUse::Taken)?;
        if claim.holds_dead() {
            return Err(InUse::Taken);
        }
        let frame = frames.frame_or_map(first);
        frame.begin_region();
        // Nothing of it is in the file. Before the birth: who sees that, must not see an older mark.
        frame.mark().unset(CLEAN | USED);
        claim.mark(self.now);
        // The birth before the death: `Reader::birth_in` says why.
        frame.stamps.set_death(Stamp::NEVER);
        // SAFETY: each frame was empty, so nobody had a slice of it, and we claimed it, so nobody else will make one: its
        // birth is now later than every published version. The run lies in one chunk, and we are borrowed mutably.
        Ok(unsafe { frame.bytes_mut(pages as usize * frames.page_bytes()) })
    }

    /// Empties the frames of a page or run that died, when nobody can see it any more. A page that died while it was not in
    /// memory waits too, because its readers may bring it back until then.
    ///
    /// ```
    /// use kauri_arena::{Arena, InUse, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// arena.publish(writer.seal(), ());
    /// writer.tick();
    /// writer.retire(7);
    /// arena.publish(writer.seal(), ());
    ///
    /// writer.tick();
    /// writer.scan(); // nobody reads
    /// assert_eq!(writer.take(7).err(), Some(InUse::Taken)); // it died, but its frame is full
    /// assert_eq!(writer.reclaim(7), Ok(()));
    /// assert!(writer.take(7).is_ok());
    /// ```
    ///
    /// # Errors
    /// If it lives, or a version of its life is held as far as the last [`scan`](Self::scan) knows.
    pub fn reclaim(&mut self, first: u32) -> Result<(), InUse> {
        self.arena.while_staying(first, || self.reclaim_staying(first))
    }

    fn reclaim_staying(&self, first: u32) -> Result<(), InUse> {
        let frames = &self.arena.frames;
        let Some(frame) = frames.frame(first) else { return Ok(()) };
        match (frame.stamps.birth(), frame.stamps.death()) {
            (Birth::At(birth), death) => {
                self.check_past(birth, death)?;
                frames.empty(first);
                Ok(())
            }
            (Birth::Empty, Stamp::NEVER) => Ok(()),
            (Birth::Empty, death) => {
                // When it was born is not known here.
                self.check_past(Stamp::FIRST, death)?;
                // Somebody may be about to bring it.
                if frames.forget_death(first) { Ok(()) } else { Err(InUse::Held(self.newest)) }
            }
            (Birth::Inside(_), _) | (Birth::Filling, Stamp::NEVER) => Err(InUse::Taken),
            (Birth::Filling, death) => {
                // It died, and a reader of a version before is bringing it. That version is held; or was, when it began.
                self.check_past(Stamp::FIRST, death)?;
                Err(InUse::Held(self.newest))
            }
        }
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
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take_run(10, 3).expect("nobody uses them");
    /// assert_eq!(writer.untake(10), 3); // the transaction was dropped
    /// assert_eq!(writer.untake(10), 0);
    /// assert!(writer.take(11).is_ok());
    /// ```
    pub fn untake(&mut self, first: u32) -> u32 {
        match self.own(first) {
            Some(_) => self.arena.frames.empty(first),
            None => 0,
        }
    }

    /// Looks whether a run of pages is empty, for content that goes to the file and not into memory.
    ///
    /// ```
    /// use kauri_arena::{Arena, InUse, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(12).expect("nobody uses page 12");
    /// assert_eq!((writer.check_empty(10, 2), writer.check_empty(10, 3)), (Ok(()), Err(InUse::Taken)));
    /// ```
    ///
    /// # Errors
    /// As for [`take_run`](Self::take_run).
    ///
    /// # Panics
    /// If the run crosses the end of a chunk.
    pub fn check_empty(&self, first: u32, pages: u32) -> Result<(), InUse> {
        assert!(is_run(first, pages), "pages {first} to {first}+{pages} are no run");
        let claim = self.arena.frames.claim(first, pages).ok_or(InUse::Taken)?;
        if claim.holds_dead() { Err(InUse::Taken) } else { Ok(()) }
    }

    /// Whether there is memory for a run of pages because all of them were used before. What was never used is filled with zeros by the
    /// system first, which may take longer than writing it.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// assert!(!writer.is_at_hand(7, 1));
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// writer.untake(7);
    /// assert!(writer.is_at_hand(7, 1), "its memory has been used");
    /// ```
    #[must_use]
    pub fn is_at_hand(&self, first: u32, pages: u32) -> bool {
        self.arena.frames.are_touched(first, pages)
    }

    /// Whether a page or run that was put into the file, born then, lives; it need not be in memory. That it was not reclaimed is for
    /// the caller to know.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (_arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let born = writer.tick(); // page 7 was written to the file now, and is not in memory
    /// assert!(writer.lives(7, born));
    /// writer.retire(7);
    /// assert!(!writer.lives(7, born));
    /// ```
    #[must_use]
    pub fn lives(&self, first: u32, birth: Stamp) -> bool {
        let stamps = self.arena.frames.frame_or_map(first).stamps;
        let is_other = matches!(stamps.birth(), Birth::At(other) if other != birth);
        !is_other && stamps.death() == Stamp::NEVER
    }

    /// Forgets a page or run that was put into the file for the version being made, as if it had never been: it may be in memory.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let born = writer.tick();
    /// arena.load(7, 1, |_| Ok::<_, ()>(born)).expect("it was written to the file a moment ago");
    /// writer.forget(7); // the transaction was dropped
    /// assert_eq!(writer.birth(7), None);
    /// ```
    pub fn forget(&mut self, first: u32) {
        self.arena.while_staying(first, || {
            if self.own(first).is_some() {
                self.arena.frames.empty(first);
            }
        });
    }

    /// Ends the life of a page or run with the version being made: readers of that version and later do not get it. What is
    /// dead already stays as dead as it was.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// arena.publish(writer.seal(), ());
    /// let before = arena.read();
    /// writer.tick();
    /// writer.retire(7);
    /// arena.publish(writer.seal(), ());
    /// assert!(before.page(7).is_some() && arena.read().page(7).is_none());
    /// ```
    ///
    /// # Panics
    /// If no time has passed since the last version: its readers may have the page.
    pub fn retire(&mut self, first: u32) {
        // A death in a sealed version would take the page from readers who were given it, and `reclaim` would not miss them.
        assert!(self.now > self.base, "no time has passed since the last version");
        let stamps = self.arena.frames.frame_or_map(first).stamps;
        if stamps.death() == Stamp::NEVER {
            stamps.set_death(self.now);
        }
    }

    /// Keeps the pages of these versions, as if readers held them, from the next [`scan`](Self::scan) on; and of no others that
    /// were kept so before.
    ///
    /// ```
    /// use kauri_arena::{Arena, InUse, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let kept = writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// arena.publish(writer.seal(), ());
    /// writer.pin(vec![kept]);
    /// writer.tick();
    /// writer.retire(7);
    /// arena.publish(writer.seal(), ());
    /// writer.scan();
    /// assert_eq!(writer.reclaim(7), Err(InUse::Held(kept))); // though nobody reads it
    /// writer.pin(vec![]);
    /// writer.scan();
    /// assert_eq!(writer.reclaim(7), Ok(()));
    /// ```
    pub fn pin(&mut self, versions: Vec<Stamp>) {
        self.pinned = versions;
    }

    /// Closes the version being made: its pages do not change any more, and [`Arena::publish`] can show it.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// writer.tick();
    /// writer.take(7).expect("nobody uses page 7");
    /// let version = writer.seal();
    /// assert_eq!(writer.untake(7), 0, "it belongs to the version now");
    /// arena.publish(version, ());
    /// assert!(arena.read().page(7).is_some());
    /// ```
    pub fn seal(&mut self) -> Sealed {
        assert!(self.now > self.base, "no time has passed since the last version");
        self.base = self.now;
        self.rest();
        Sealed::new(self.now, self.arena.id)
    }

    /// The newest published version at the last scan.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let next = writer.tick();
    /// arena.publish(writer.seal(), ());
    /// assert_eq!(writer.newest(), Stamp::FIRST); // it has not looked
    /// writer.scan();
    /// assert_eq!(writer.newest(), next);
    /// ```
    #[must_use]
    pub fn newest(&self) -> Stamp {
        self.newest
    }

    /// Looks which versions are held, and frees the roots of those that are not.
    ///
    /// ```
    /// use kauri_arena::{Arena, Stamp};
    ///
    /// let (arena, mut writer) = Arena::new(256, Stamp::FIRST, ());
    /// let mut readers = vec![arena.read(), arena.read()];
    /// let next = writer.tick();
    /// arena.publish(writer.seal(), ());
    /// readers.push(arena.read());
    /// assert_eq!(writer.scan(), [Stamp::FIRST, next]); // each once, however many hold it
    /// readers.pop();
    /// assert_eq!(writer.scan(), [Stamp::FIRST]);
    /// ```
    pub fn scan(&mut self) -> &[Stamp] {
        // Both or none: a root may panic when it is dropped, and what is held now says nothing about another newest version.
        (self.newest, self.held) = self.arena.ring.free(|| self.arena.slots.held());
        self.held.extend(&self.pinned);
        self.held.sort_unstable();
        self.held.dedup();
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// An arena whose newest version is 9, with nothing in memory.
    fn arena() -> (Arc<Arena<()>>, Writer<()>) {
        Arena::new(256, Stamp::new(9).unwrap(), ())
    }

    /// The next version, sealed.
    fn seal(writer: &mut Writer<()>) -> Sealed {
        writer.tick();
        writer.seal()
    }

    #[test]
    #[should_panic(expected = "version 11 was sealed in another arena")]
    fn version_of_another_arena_is_not_published() {
        let (arena, mut writer) = arena();
        let (_other, mut other_writer) = self::arena();
        writer.tick();
        let _own = writer.take(7).unwrap();
        drop(seal(&mut other_writer));
        // It would show page 7, born at 10, while it is being written.
        arena.publish(seal(&mut other_writer), ());
    }

    #[test]
    fn page_of_the_newest_version_dies_only_with_a_later_one() {
        let (arena, mut writer) = arena();
        writer.tick();
        writer.take(7).unwrap().fill(1);
        arena.publish(writer.seal(), ());
        let reader = arena.read();
        let page = reader.page(7).unwrap();
        let retired = catch_unwind(AssertUnwindSafe(|| writer.retire(7)));
        writer.scan();
        assert_eq!((retired.is_err(), writer.reclaim(7)), (true, Err(InUse::Taken)));
        assert!(page.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn dead_page_does_not_live_longer_when_it_is_retired_again() {
        let (arena, mut writer) = arena();
        writer.tick();
        writer.take(7).unwrap();
        arena.publish(writer.seal(), ());
        for _ in 0..2 {
            writer.tick();
            writer.retire(7);
            arena.publish(writer.seal(), ());
            assert_eq!(arena.read().page(7), None);
        }
    }

    #[test]
    fn page_that_is_being_loaded_is_neither_reclaimed_nor_taken() {
        let (arena, mut writer) = arena();
        writer.tick();
        let found = arena.load(7, 1, |_| {
            assert_eq!(writer.reclaim(7), Err(InUse::Taken));
            assert_eq!(writer.take(7), Err(InUse::Taken));
            Stamp::new(3).ok_or(())
        });
        assert_eq!(found, Ok(crate::Load::Done));
    }

    #[test]
    fn page_that_died_while_it_is_being_loaded_waits() {
        let (arena, mut writer) = arena();
        let reader = arena.read();
        let found = arena.load(7, 1, |_| {
            writer.tick();
            writer.retire(7);
            arena.publish(writer.seal(), ());
            writer.scan();
            assert_eq!(writer.reclaim(7), Err(InUse::Held(reader.version())));
            Stamp::new(3).ok_or(())
        });
        assert_eq!(found, Ok(crate::Load::Done));
        drop(reader);
        writer.scan();
        assert_eq!(writer.reclaim(7), Ok(()));
    }

    #[test]
    fn page_that_died_outside_memory_waits_for_its_readers() {
        let (arena, mut writer) = arena();
        let reader = arena.read();
        writer.tick();
        writer.retire(7);
        arena.publish(writer.seal(), ());
        writer.tick();
        writer.scan();
        let held = Err(InUse::Held(reader.version()));
        assert_eq!((writer.reclaim(7), writer.take(7)), (held, Err(InUse::Taken)));

        arena.load(7, 1, |_| Stamp::new(3).ok_or(())).unwrap();
        assert!(reader.page(7).is_some() && arena.read().page(7).is_none(), "loaded as dead as it is");
        writer.scan();
        assert_eq!(writer.reclaim(7), held);
        drop(reader);
        writer.scan();
        assert_eq!((writer.reclaim(7), writer.take(7).map(|_| ())), (Ok(()), Ok(())));
    }

    #[test]
    fn page_that_died_outside_memory_is_free_once_reclaimed() {
        let (arena, mut writer) = arena();
        writer.tick();
        writer.retire(7);
        arena.publish(writer.seal(), ());
        writer.tick();
        writer.scan();
        assert_eq!(writer.reclaim(7), Ok(()));
        arena.load(7, 1, |_| Stamp::new(3).ok_or(())).unwrap();
        assert!(arena.read().page(7).is_some(), "what is there now has not died");
    }

    fn check_panic(work: impl FnOnce(&mut Writer<()>), expected: &str) {
        let (_arena, mut writer) = arena();
        let panic = catch_unwind(AssertUnwindSafe(|| work(&mut writer))).expect_err(expected);
        let words =
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied()).unwrap();
        assert!(words.contains(expected), "{words}");
    }

    #[test]
    fn nothing_is_born_dies_or_is_sealed_in_a_version_that_is_sealed() {
        check_panic(|writer| drop(writer.take(7)), "no time has passed");
        check_panic(|writer| writer.retire(7), "no time has passed");
        check_panic(|writer| drop(writer.seal()), "no time has passed");
    }

    #[test]
    fn run_across_chunks_is_refused() {
        check_panic(|writer| drop(writer.take_run(crate::CHUNK_PAGES - 1, 2)), "are no run");
        check_panic(|writer| drop(writer.take_run(u32::MAX, 2)), "are no run");
        check_panic(|writer| drop(writer.take_run(0, 0)), "are no run");
        let load = |writer: &mut Writer<()>| writer.arena().load(u32::MAX, 2, |_| Err(())).unwrap_err();
        check_panic(|writer| load(writer), "are no run");
    }

    #[test]
    fn sealed_page_does_not_change_before_it_is_published() {
        let (arena, mut writer) = arena();
        writer.tick();
        writer.take(7).unwrap();
        let sealed = writer.seal();
        assert!(writer.page_mut(7).is_none() && writer.untake(7) == 0);
        arena.publish(sealed, ());
        assert!(arena.read().page(7).is_some());
    }

    #[test]
    fn page_inside_a_run_is_nobodys_page() {
        let (_arena, mut writer) = arena();
        writer.tick();
        writer.take_run(10, 3).unwrap();
        assert!(writer.page(11).is_none() && writer.page_mut(11).is_none() && writer.birth(11).is_none());
        assert_eq!((writer.untake(11), writer.reclaim(11)), (0, Err(InUse::Taken)));
        let lengths = [0, 1, 2, 3, 4].map(|pages| writer.run(10, pages).map(<[u8]>::len));
        assert_eq!(lengths, [None, Some(256), Some(512), Some(768), None]);
    }

    #[test]
    fn writer_outlives_its_arena_and_the_arena_its_writer() {
        let (arena, mut writer) = arena();
        drop(arena);
        writer.tick();
        writer.take(7).unwrap().fill(7);
        let (arena, sealed) = (Arc::clone(writer.arena()), writer.seal());
        drop(writer);
        arena.publish(sealed, ());
        assert_eq!(arena.read().page(7), Some(&[7; 256][..]));
    }
}
