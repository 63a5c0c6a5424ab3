//! Pages of a transaction: made, copied, given up, and free again when nobody can see them.
//!
//! A page belongs to the transaction, or to the nested transaction, whose stamp it was born at or after; it may be changed in
//! place. Any other is copied once. So a nested transaction begins and commits without touching pages, and gives up what it
//! made when it ends badly.
//!
//! ```text
//! free ──make──> own ──commit──> alive ──retire, commit──> waiting ──nobody sees it──> free
//!                 │                └─────retire, commit──> kept ──no pin sees it──> waiting
//!                 └──retire, abort──> free
//! ```
//!
//! What is written once can go to the file at once, and is not in memory then ([`Through`]).
//!
//! A page that was born by the version of the newest pin and is given up later was alive in that version: the pin sees it, and it is
//! kept. For the arena it goes on living, so that whoever reads as of the pin finds it. Only pages that belong to no version (those of
//! the bitmap, of the pins and of the list of kept pages) are given up as such.
//!
//! This layer knows nothing of what is in pages.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kauri_arena::{CHUNK_PAGES, InUse, Sealed, Stamp, Writer};

use crate::btree::{Pages, PagesMut};
use crate::error::{Error, Fault, Result};
use crate::file::StoreFile;
use crate::free::FreeSet;
use crate::node::Node;
use crate::overflow::{Runs, RunsMut};
use crate::referred::ReferredRuns;
use crate::sync::{Mutex, lock};
use crate::through::{self, Through};

/// A checkpoint is made when pages that are not in the file take more than this part, one of so many, of a bounded cache.
const BORN_SHARE: usize = 4;
/// Of a smaller cache no writer waits for a checkpoint before so much was made: each commit would.
const BORN_PAGES_MIN: usize = 1024;
/// Long values are written into single holes when more than this part, one of so many, of the pages is free.
const HOLES_SHARE: usize = 8;
/// How often a page that leaves as soon as it was brought is brought again.
const TRIES_MAX: usize = 10_000;

/// Pages that lie side by side and are one: mostly one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) pages: u32,
}

impl Run {
    const fn of(page: u32) -> Self {
        Self { first: page, pages: 1 }
    }

    pub(crate) fn iter(self) -> Range<u32> {
        // A damaged file may point beyond the last page there can be.
        self.first..self.first.saturating_add(self.pages)
    }
}

/// A run that was given up, and when it was born.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dead {
    pub(crate) run: Run,
    /// [`Stamp::FIRST`], at which no page is born, if that could not be found out.
    pub(crate) birth: Stamp,
}

/// A run that went through to the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) run: Run,
    birth: Stamp,
    /// Its checksum.
    pub(crate) sum: u64,
}

/// The pages of a store, seen by its writer.
#[derive(Debug)]
pub(crate) struct Pager<R> {
    writer: Writer<R>,
    free: FreeSet,
    /// The first page that a tree can have; in a file, the one behind the log.
    first: u32,
    /// The first page that was never used.
    end: u32,
    /// Pages that died with a version that is not published yet.
    dying: Vec<(Stamp, Vec<Run>)>,
    /// Pages that died, by a version that somebody holds and that still has them.
    waiting: BTreeMap<Stamp, Vec<Run>>,
    /// The version of the newest pin.
    newest_pin: Option<Stamp>,
    /// Pages that died and that pins see, by the newest pin that does. In a file: those that its own list does not have yet.
    kept: BTreeMap<Stamp, Vec<Dead>>,
    /// What is given up now belongs to no version.
    is_unseen: bool,
    /// The transaction and those nested in it; empty between transactions.
    levels: Vec<Level>,
    scratch: Vec<u8>,
    /// Where pages are that are not in memory.
    file: Option<Arc<StoreFile>>,
    /// First pages of what was made since the last checkpoint, by transactions that committed.
    born: Vec<u32>,
    /// What went through to the file since then, by transactions that committed.
    written: Vec<Written>,
    /// What the log names, and nothing else may be written over.
    referred: ReferredRuns,
    /// Whether anything may go through: the file can be written, and nobody gives room of it back.
    is_quiet: bool,
    /// When pages are born that go through: before everything else that the transaction makes.
    through_birth: Stamp,
    /// Pages that the transaction will use for long values that go through: side by side in the file, they are written at once, and those in
    /// memory lie side by side too.
    reserve: Run,
    through: Mutex<Through>,
}

/// What a transaction, or one nested in it, did to pages.
#[derive(Debug)]
struct Level {
    /// Pages born at this stamp or later belong to it.
    base: Stamp,
    made: Vec<Run>,
    /// What it made that went through to the file.
    written: Vec<Written>,
    /// Pages of the levels below, and of the version before, that it gave up.
    retired: Vec<Dead>,
    /// Such pages that no pin sees.
    unseen: Vec<Run>,
}

impl<R: Send + Sync> Pager<R> {
    /// A pager of no pages yet; the first will be this one.
    pub(crate) fn new(writer: Writer<R>, first: u32) -> Self {
        Self {
            writer,
            free: FreeSet::default(),
            first,
            end: first,
            dying: Vec::new(),
            waiting: BTreeMap::new(),
            newest_pin: None,
            kept: BTreeMap::new(),
            is_unseen: false,
            levels: Vec::new(),
            scratch: Vec::new(),
            file: None,
            born: Vec::new(),
            written: Vec::new(),
            referred: ReferredRuns::default(),
            is_quiet: false,
            through_birth: Stamp::FIRST,
            reserve: Run { first: 0, pages: 0 },
            through: Mutex::default(),
        }
    }

    /// A pager of pages that are in a file: these, less the free ones.
    pub(crate) fn in_file(writer: Writer<R>, pages: Range<u32>, free: FreeSet, file: Arc<StoreFile>) -> Self {
        Self { end: pages.end, free, file: Some(file), ..Self::new(writer, pages.start) }
    }

    /// Keeps the pages of these versions, which checkpoints hold, and no others that were kept so before.
    pub(crate) fn keep(&mut self, versions: Vec<Stamp>) {
        if !planted!(ReuseCheckpointedPage) {
            self.writer.pin(versions);
        }
    }

    /// First pages of what was made since this was asked last; some of it may have died.
    pub(crate) fn take_born(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.born)
    }

    /// What went through to the file since this was asked last, and lives.
    pub(crate) fn take_written(&mut self) -> Vec<Written> {
        let mut written = std::mem::take(&mut self.written);
        // Of two lives of a page the later is that of now, if any is.
        written.sort_by_key(|written| written.run.first);
        written.dedup_by(|later, earlier| {
            let is_same = later.run.first == earlier.run.first;
            if is_same {
                *earlier = *later;
            }
            is_same
        });
        let lives = |Written { run, birth, .. }: &Written| {
            !self.free.contains(run.first) && self.writer.lives(run.first, *birth)
        };
        written.retain(lives);
        written
    }

    /// Says whether pages may go through to the file.
    pub(crate) fn set_quiet(&mut self, is_quiet: bool) {
        self.is_quiet = is_quiet && self.file.is_some();
    }

    /// Writes what is on its way through to the file.
    ///
    /// # Errors
    /// If the disk fails; then it is still on its way.
    pub(crate) fn flush(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| lock(&self.through).flush(file))
    }

    /// Holds pages in memory outside of a transaction, until [`let_go`](Self::let_go).
    pub(crate) fn hold(&mut self) {
        self.writer.hold();
    }

    pub(crate) fn let_go(&mut self) {
        self.writer.rest();
    }

    /// The page or run that begins here is in the file.
    pub(crate) fn mark_written(&self, first: u32) {
        self.writer.mark_written(first);
    }

    /// The page or run that begins here and lives, whole, and when it was born.
    pub(crate) fn whole(&self, first: u32) -> Option<(Stamp, &[u8])> {
        self.writer.whole(first)
    }

    /// How many pages at the end are free, and could be cut off.
    pub(crate) fn free_tail(&self) -> u32 {
        let free = (0..self.end).rev().take_while(|page| self.free.contains(*page)).count();
        u32::try_from(free).expect("page numbers have 32 bits")
    }

    /// Forgets the free pages at the end, as if they had never been used.
    pub(crate) fn cut_tail(&mut self) {
        let end = self.end - self.free_tail();
        for page in end..self.end {
            self.free.remove(page);
        }
        self.end = end;
    }

    /// Brings a run into memory, if there is a file to bring it from.
    #[cold]
    fn load(&self, run: Run) -> Result<()> {
        match &self.file {
            Some(file) if run.iter().end <= self.end => {
                self.flush()?;
                file.load(self.writer.arena(), run)
            }
            _ => Ok(()),
        }
    }

    /// A run that was not in memory.
    #[cold]
    fn bring(&self, run: Run) -> Result<&[u8]> {
        for _ in 0..TRIES_MAX {
            self.load(run)?;
            if let Some(bytes) = self.writer.run(run.first, run.pages) {
                return Ok(bytes);
            }
            if self.writer.arena().cache_pages_max().is_none() {
                break;
            }
        }
        let fault = Fault::new("a page of this store", run.first.into());
        Err(Error::Corrupt { page: run.first, fault })
    }

    /// Begins a transaction, or one nested in it.
    pub(crate) fn begin(&mut self) {
        if self.levels.is_empty() {
            self.reclaim();
            self.make_room();
            self.through_birth = self.writer.tick();
        }
        let base = self.writer.tick();
        self.levels.push(Level {
            base,
            made: Vec::new(),
            written: Vec::new(),
            retired: Vec::new(),
            unseen: Vec::new(),
        });
    }

    /// Lets pages leave memory, if there are too many.
    fn make_room(&self) {
        if self.writer.arena().is_crowded() {
            self.writer.arena().sweep();
        }
    }

    /// Whether so much was made since the last checkpoint that it crowds out what is read.
    pub(crate) fn is_full_of_born(&self) -> bool {
        self.writer.arena().cache_pages_max().is_some_and(|most| self.born.len() > most / BORN_SHARE)
    }

    /// Whether so much was made that there is room for nothing else: who makes more waits for a checkpoint.
    pub(crate) fn is_overfull_of_born(&self) -> bool {
        let most = self.writer.arena().cache_pages_max();
        most.is_some_and(|most| self.born.len() > most.max(BORN_PAGES_MIN) / BORN_SHARE * 3)
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a transaction is open")
    }

    /// Ends a nested transaction: what it did, its parent did.
    pub(crate) fn merge(&mut self) {
        assert!(self.levels.len() > 1, "the outermost transaction is committed, not merged");
        let child = self.levels.pop().expect("two levels are there");
        if !planted!(ForgetPagesOfNested) {
            self.level().made.extend(child.made);
            self.level().written.extend(child.written);
        }
        assert!(child.unseen.is_empty(), "pages of no version are not changed in nested transactions");
        for dead in child.retired {
            self.retire_run(dead.run);
        }
    }

    /// Ends a transaction or a nested one as if it had never begun.
    pub(crate) fn abort(&mut self) {
        let level = self.levels.pop().expect("a transaction is open");
        if self.levels.is_empty() {
            lock(&self.through).clear();
            self.writer.rest();
            self.give_reserve_back();
        }
        for Written { run, .. } in level.written {
            self.referred.forget(run.first);
            self.writer.forget(run.first);
            self.set_free(run);
        }
        for run in level.made {
            // Some were given back already, and their pages taken again for something shorter.
            let pages = self.writer.untake(run.first);
            if !planted!(LosePagesOfVanished) {
                self.set_free(Run { pages, ..run });
            }
        }
    }

    /// Ends the transaction: its pages are a version, to be published.
    pub(crate) fn commit(&mut self) -> Sealed {
        self.give_reserve_back();
        self.keep_seen();
        let level = self.levels.pop().expect("a transaction is open");
        assert!(self.levels.is_empty(), "nested transactions end before the one around them");
        // The version's own stamp: later than every page of it.
        let version = self.writer.tick();
        for run in &level.unseen {
            self.writer.retire(run.first);
        }
        if self.file.is_some() {
            self.born.extend(level.made.iter().map(|run| run.first));
            self.written.extend(level.written);
        }
        self.dying.push((version, level.unseen));
        self.writer.seal()
    }

    /// The version that the transaction will be, if nothing is nested in it before its end.
    pub(crate) fn version_to_be(&self) -> Stamp {
        assert_eq!(self.levels.len(), 1, "versions are made by transactions that are not nested");
        self.writer.now().next()
    }

    pub(crate) fn set_newest_pin(&mut self, pin: Option<Stamp>) {
        self.newest_pin = pin;
    }

    /// Whether a pin sees a page of the newest version, or may see it, as far as is known: then nothing is gained by moving it.
    pub(crate) fn is_pinned(&self, page: u32) -> bool {
        let pin = self.newest_pin.filter(|_| !self.is_unseen);
        pin.is_some_and(|pin| self.writer.birth(page).is_none_or(|birth| birth <= pin))
    }

    /// Runs work that gives up pages which belong to no version: no pin sees them, whenever they were born.
    pub(crate) fn unseen<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.is_unseen = !planted!(KeepOwnPages);
        let done = work(self);
        self.is_unseen = false;
        done
    }

    /// Divides what the transaction has given up so far into what the newest pin sees, and what nobody will see.
    pub(crate) fn keep_seen(&mut self) {
        let newest = self.newest_pin.filter(|_| !planted!(FreePinnedPage));
        let level = self.levels.last_mut().expect("a transaction is open");
        let retired = level.retired.drain(..);
        let Some(pin) = newest else { return level.unseen.extend(retired.map(|dead| dead.run)) };
        for dead in retired {
            match dead.birth <= pin {
                true => self.kept.entry(pin).or_default().push(dead),
                false => level.unseen.push(dead.run),
            }
        }
    }

    /// The pages that are kept for pins, and for which; in a file those that its own list does not have.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (Stamp, Dead)> + '_ {
        self.kept.iter().flat_map(|(pin, dead)| dead.iter().map(|dead| (*pin, *dead)))
    }

    /// Takes the pages that are kept for pins, for the file's own list.
    pub(crate) fn take_kept(&mut self) -> BTreeMap<Stamp, Vec<Dead>> {
        std::mem::take(&mut self.kept)
    }

    /// Takes the pages that are kept for one pin.
    pub(crate) fn take_kept_for(&mut self, pin: Stamp) -> Vec<Dead> {
        self.kept.remove(&pin).unwrap_or_default()
    }

    /// Keeps a page for a pin that sees it.
    pub(crate) fn keep_for(&mut self, pin: Stamp, dead: Dead) {
        self.kept.entry(pin).or_default().push(dead);
    }

    /// Gives up a page that was kept for a pin, and that no other sees.
    pub(crate) fn retire_kept(&mut self, run: Run) {
        self.level().unseen.push(run);
    }

    /// When the page in memory under this number was born.
    pub(crate) fn birth(&self, page: u32) -> Option<Stamp> {
        self.writer.birth(page)
    }

    /// When a run was born; brings it from the file if need be.
    fn birth_of(&self, run: Run) -> Stamp {
        let birth = || self.writer.birth(run.first);
        // What cannot be read is seen by every pin, as far as is known: it is kept longest.
        let brought = || self.load(run).ok().and_then(|()| birth());
        birth().or_else(brought).unwrap_or(Stamp::FIRST)
    }

    /// Frees the pages that nobody can see any more.
    pub(crate) fn reclaim(&mut self) {
        let held = self.writer.scan().to_vec();
        let newest = self.writer.newest();
        let released = self.waiting.extract_if(.., |version, _| held.binary_search(version).is_err());
        let mut ready: Vec<Run> = released.flat_map(|(_, pages)| pages).collect();
        ready.extend(self.dying.extract_if(.., |(version, _)| *version <= newest).flat_map(|(_, pages)| pages));
        for run in ready {
            match self.writer.reclaim(run.first) {
                Ok(()) if self.referred.keep(run) => {}
                Ok(()) => self.set_free(run),
                Err(InUse::Held(_)) if planted!(LoseHeldPage) => {}
                Err(InUse::Held(by)) => self.waiting.entry(by).or_default().push(run),
                Err(InUse::Taken) => unreachable!("{run:?} waits although it lives"),
            }
        }
    }

    /// Whether somebody holds a version besides that of the last checkpoint.
    pub(crate) fn is_read(&mut self) -> bool {
        self.writer.scan().len() > 1
    }

    fn set_free(&mut self, run: Run) {
        for page in run.iter() {
            self.free.insert(page);
        }
    }

    /// Gives a run up.
    fn retire_run(&mut self, run: Run) {
        if self.is_own(run.first) {
            assert_eq!(self.writer.untake(run.first), run.pages, "{run:?} is the transaction's own");
            self.set_free(run);
        } else if self.is_unseen {
            self.level().unseen.push(run);
        } else {
            let birth = self.newest_pin.map_or(Stamp::FIRST, |_| self.birth_of(run));
            self.level().retired.push(Dead { run, birth });
        }
    }

    /// A run of pages that were never used, all in one chunk.
    fn extend(&mut self, pages: u32) -> Result<u32> {
        let into = self.end % CHUNK_PAGES;
        if into + pages > CHUNK_PAGES {
            // The rest of this chunk is too short for the run; others can use it.
            let next = (self.end - into).checked_add(CHUNK_PAGES).ok_or(Error::Full)?;
            for page in self.end..next {
                self.free.insert(page);
            }
            self.end = next;
        }
        let first = self.end;
        self.end = first.checked_add(pages).ok_or(Error::Full)?;
        Ok(first)
    }

    /// Makes a run in the file.
    fn write_through(&mut self, run: Run, fill: impl FnOnce(&mut [u8])) -> Result<u64> {
        let file = self.file.as_ref().expect("what goes through has a file to go to");
        self.writer.check_empty(run.first, run.pages).map_err(|_| taken(run.first))?;
        let birth = self.through_birth;
        file.raise_newest(birth);
        let added = lock(&self.through).add(file, run, birth, fill);
        match added {
            Ok(sum) => self.level().written.push(Written { run, birth, sum }),
            Err(_) => self.set_free(run),
        }
        added
    }

    /// Whether a run of so many pages can go through to the file.
    pub(crate) fn can_go_through(&self, pages: u32) -> bool {
        self.is_quiet && pages as usize * self.writer.arena().page_bytes() <= through::BUFFER_BYTES
    }

    /// Takes a run that the log names, of a store that is being opened: it is in the file, and was born at that stamp. Tells whether it
    /// was free.
    pub(crate) fn adopt(&mut self, run: Run, birth: Stamp) -> bool {
        let end = run.iter().end;
        let is_whole = run.first / CHUNK_PAGES == (end - 1) / CHUNK_PAGES;
        if !is_whole || run.iter().any(|page| page < self.end && !self.free.contains(page)) {
            return false;
        }
        for page in self.end..end {
            self.free.insert(page);
        }
        self.end = self.end.max(end);
        for page in run.iter() {
            self.free.remove(page);
        }
        self.referred.add(run.first);
        self.writer.pass(birth);
        true
    }

    /// A checkpoint begins that will hold everything the log says so far.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.referred.begin_checkpoint();
    }

    /// It is durable.
    pub(crate) fn end_checkpoint(&mut self) {
        for run in self.referred.end_checkpoint() {
            self.set_free(run);
        }
    }

    /// A page that is not used.
    fn next_page(&mut self) -> Result<u32> {
        self.free.pop().map_or_else(|| self.extend(1), Ok)
    }

    /// A run of pages that are not used.
    fn next_run(&mut self, pages: u32) -> Result<Run> {
        let first = self.free.pop_run(pages, CHUNK_PAGES).map_or_else(|| self.extend(pages), Ok)?;
        Ok(Run { first, pages })
    }

    /// A run of pages that are not used, beside those that the transaction got here before, if it can be had.
    fn next_in_reserve(&mut self, pages: u32) -> Result<Run> {
        if self.reserve.pages < pages {
            self.give_reserve_back();
            self.reserve = self.next_reserve(pages)?;
        }
        let first = self.reserve.first;
        self.reserve = Run { first: first + pages, pages: self.reserve.pages - pages };
        Ok(Run { first, pages })
    }

    /// Pages for a run and more, if there are any side by side. Others are used where many are free: the file would grow for nothing.
    fn next_reserve(&mut self, pages: u32) -> Result<Run> {
        let at_once = u32::try_from(through::BUFFER_BYTES / self.writer.arena().page_bytes()).expect("few pages");
        let wanted = pages.max(at_once);
        if let Some(first) = self.free.pop_run(wanted, CHUNK_PAGES) {
            return Ok(Run { first, pages: wanted });
        }
        let are_many_free = self.free.len() * HOLES_SHARE > self.end as usize;
        match are_many_free.then(|| self.free.pop_run(pages, CHUNK_PAGES)).flatten() {
            Some(first) => Ok(Run { first, pages }),
            None => Ok(Run { first: self.extend(wanted)?, pages: wanted }),
        }
    }

    fn give_reserve_back(&mut self) {
        let reserve = std::mem::replace(&mut self.reserve, Run { first: 0, pages: 0 });
        match reserve.iter().end == self.end {
            true => self.end = reserve.first,
            false => self.set_free(reserve),
        }
    }

    /// Makes a run in memory, of pages that were not used.
    fn take_run(&mut self, run: Run) -> Result<&mut [u8]> {
        self.level().made.push(run);
        self.writer.take_run(run.first, run.pages).map_err(|_| taken(run.first))
    }

    /// How many pages there are, used and free.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// How many pages before this one are free.
    pub(crate) fn free_below(&self, page: u32) -> u32 {
        let free = self.free.iter().take_while(|free| *free < page).count();
        u32::try_from(free).expect("page numbers have 32 bits")
    }

    /// Where a run of so many pages would be made, if free ones lie side by side.
    pub(crate) fn find_free_run(&self, pages: u32) -> Option<u32> {
        self.free.find_run(pages, CHUNK_PAGES)
    }

    /// The free pages.
    pub(crate) fn free(&self) -> &FreeSet {
        &self.free
    }

    /// The pages that wait until nobody sees them, and the log does not name them.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        let unseen = self.waiting.values().chain(self.dying.iter().map(|(_, pages)| pages)).flatten().copied();
        unseen.chain(self.referred.spent()).flat_map(Run::iter)
    }

    /// Whether a page belongs to the innermost transaction.
    fn is_own(&self, page: u32) -> bool {
        let base = self.levels.last().expect("a transaction is open").base;
        self.writer.birth(page).is_some_and(|birth| birth >= base)
    }
}

/// A free page is empty, unless the bitmap that came with a file is not that file's.
#[cold]
fn taken(page: u32) -> Error {
    Error::Corrupt { page, fault: Fault::new("a free page that is not in use", page.into()) }
}

impl<R: Send + Sync> Pages for Pager<R> {
    #[inline]
    fn page(&self, page: u32) -> Result<&[u8]> {
        if let Some(bytes) = self.writer.page(page) {
            return Ok(bytes);
        }
        self.bring(Run::of(page))
    }
}

impl<R: Send + Sync> PagesMut for Pager<R> {
    fn page_bytes(&self) -> usize {
        self.writer.arena().page_bytes()
    }

    fn make(&mut self) -> Result<u32> {
        let page = self.next_page()?;
        self.writer.take(page).map_err(|_| taken(page))?;
        self.level().made.push(Run::of(page));
        Ok(page)
    }

    fn write_once(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u32> {
        if !self.is_quiet {
            let page = self.make()?;
            fill(self.page_mut(page));
            return Ok(page);
        }
        let page = self.next_page()?;
        self.write_through(Run::of(page), fill)?;
        Ok(page)
    }

    fn fresh(&mut self, page: u32) -> Result<u32> {
        if self.is_own(page) {
            return Ok(page);
        }
        self.page(page)?;
        let copy = self.make()?;
        for _ in 0..TRIES_MAX {
            if let Some((from, to)) = self.writer.from_to(page, copy) {
                Node::new(from).copy_to(to);
                self.retire(page);
                return Ok(copy);
            }
            // It left while the copy was made.
            self.page(page)?;
        }
        Err(Error::Corrupt { page, fault: Fault::new("a page of this store", page.into()) })
    }

    fn page_mut(&mut self, page: u32) -> &mut [u8] {
        assert!(self.is_own(page), "page {page} is changed without being fresh");
        self.writer.page_mut(page).expect("a page of the transaction's own can be changed")
    }

    fn retire(&mut self, page: u32) {
        self.retire_run(Run::of(page));
    }

    fn scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    fn return_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        self.scratch = scratch;
    }
}

impl<R: Send + Sync> Runs for Pager<R> {
    fn run(&self, run: Run) -> Result<&[u8]> {
        if let Some(bytes) = self.writer.run(run.first, run.pages) {
            return Ok(bytes);
        }
        self.bring(run)
    }
}

impl<R: Send + Sync> RunsMut for Pager<R> {
    fn make_run(&mut self, pages: u32) -> Result<(u32, &mut [u8])> {
        let run = self.next_run(pages)?;
        Ok((run.first, self.take_run(run)?))
    }

    fn write_run(&mut self, pages: u32, fill: impl FnOnce(&mut [u8])) -> Result<u32> {
        let run = self.next_run(pages)?;
        // Where there is memory, what is written into it may be gone before the next checkpoint, or be read soon.
        if self.can_go_through(pages) && !self.writer.is_at_hand(run.first, run.pages) {
            self.write_through(run, fill)?;
        } else {
            fill(self.take_run(run)?);
        }
        Ok(run.first)
    }

    fn write_run_through(&mut self, pages: u32, fill: impl FnOnce(&mut [u8])) -> Result<(u32, u64)> {
        let run = self.next_in_reserve(pages)?;
        let sum = self.write_through(run, fill)?;
        self.referred.add(run.first);
        Ok((run.first, sum))
    }

    fn run_in_use(&self, run: Run) -> Result<Option<&[u8]>> {
        if let Some(bytes) = self.writer.run(run.first, run.pages) {
            return Ok(Some(bytes));
        }
        if self.file.is_none() || self.writer.birth(run.first).is_some() {
            return self.bring(run).map(Some);
        }
        let is_in_use = |page| (self.first..self.end).contains(&page) && !self.free.contains(page);
        let is_whole = run.first / CHUNK_PAGES == (run.iter().end - 1) / CHUNK_PAGES;
        if !is_whole || !run.iter().all(is_in_use) {
            let fault = Fault::new("a run of pages in use", run.first.into());
            return Err(Error::Corrupt { page: run.first, fault });
        }
        Ok(None)
    }

    fn retire_run(&mut self, run: Run) {
        Pager::retire_run(self, run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemoryDisk;
    use crate::read::Write;
    use crate::store::Options;
    use crate::table::Table;

    const ROWS: Table<u64, [u8]> = Table::new("rows");

    #[test]
    fn only_pages_behind_the_log_that_are_not_free_are_in_use() {
        let store = Options::new().page_bytes(256).keeper(false).open(&MemoryDisk::new(), "store").unwrap();
        for row in 0..2 {
            let mut txn = store.begin();
            txn.put(&ROWS, row, &[7; 1000]).unwrap();
            txn.commit().unwrap();
        }
        let mut txn = store.begin();
        txn.remove(&ROWS, 0).unwrap();
        txn.commit().unwrap();
        store.checkpoint().unwrap();
        let turn = store.turn();
        let (pager, first) = (&turn.pager, turn.first_page());
        let in_use = |page| pager.run_in_use(Run { first: page, pages: 1 }).is_ok();
        let used: Vec<u32> = (0..pager.end() + 10).filter(|page| in_use(*page)).collect();
        let expected: Vec<u32> = (first..pager.end()).filter(|page| !pager.free().contains(*page)).collect();
        assert!(first > 2 && pager.free().len() > 0 && !used.is_empty());
        assert_eq!(used, expected);
        assert!(pager.run_in_use(Run { first: first - 1, pages: 2 }).is_err());
    }
}
