//! Pages of a transaction: made, copied, given up, and free again when nobody can see them.
//!
//! A page belongs to the transaction, or to the nested transaction, whose stamp it was born at or after; it may be changed in
//! place. Any other is copied once. So a nested transaction begins and commits without touching pages, and gives up what it
//! made when it ends badly.
//!
//! ```text
//! free ──make──> own ──commit──> alive ──retire, commit──> waiting ──nobody sees it──> free
//!                 └──retire, abort──> free
//! ```
//!
//! This layer knows nothing of what is in pages.

use std::collections::BTreeMap;

use kauri_arena::{InUse, Sealed, Stamp, Writer};

use crate::btree::{Pages, PagesMut};
use crate::error::{Error, Fault, Result};
use crate::free::FreeSet;

/// The pages of a store, seen by its writer.
#[derive(Debug)]
pub(crate) struct Pager<R> {
    writer: Writer<R>,
    free: FreeSet,
    /// The first page that was never used.
    end: u32,
    /// Pages that died with a version that is not published yet.
    dying: Vec<(Stamp, Vec<u32>)>,
    /// Pages that died, by a version that somebody holds and that still has them.
    waiting: BTreeMap<Stamp, Vec<u32>>,
    /// The transaction and those nested in it; empty between transactions.
    levels: Vec<Level>,
    scratch: Vec<u8>,
}

/// What a transaction, or one nested in it, did to pages.
#[derive(Debug)]
struct Level {
    /// Pages born at this stamp or later belong to it.
    base: Stamp,
    made: Vec<u32>,
    /// Pages of the levels below, and of the version before, that it gave up.
    retired: Vec<u32>,
}

impl<R: Send + Sync> Pager<R> {
    /// A pager whose first free page is `end`.
    pub(crate) fn new(writer: Writer<R>, end: u32) -> Self {
        Self {
            writer,
            free: FreeSet::default(),
            end,
            dying: Vec::new(),
            waiting: BTreeMap::new(),
            levels: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Begins a transaction, or one nested in it.
    pub(crate) fn begin(&mut self) {
        if self.levels.is_empty() {
            self.reclaim();
        }
        let base = self.writer.tick();
        self.levels.push(Level { base, made: Vec::new(), retired: Vec::new() });
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("a transaction is open")
    }

    /// Ends a nested transaction: what it did, its parent did.
    pub(crate) fn merge(&mut self) {
        assert!(self.levels.len() > 1, "the outermost transaction is committed, not merged");
        let child = self.levels.pop().expect("two levels are there");
        self.level().made.extend(child.made);
        for page in child.retired {
            self.retire(page);
        }
    }

    /// Ends a transaction or a nested one as if it had never begun.
    pub(crate) fn abort(&mut self) {
        let level = self.levels.pop().expect("a transaction is open");
        for page in level.made {
            // Some were given back already.
            if self.writer.untake(page) {
                self.free.insert(page);
            }
        }
    }

    /// Ends the transaction: its pages are a version, to be published.
    pub(crate) fn commit(&mut self) -> Sealed {
        let level = self.levels.pop().expect("a transaction is open");
        assert!(self.levels.is_empty(), "nested transactions end before the one around them");
        // The version's own stamp: later than every page of it.
        let version = self.writer.tick();
        for &page in &level.retired {
            self.writer.retire(page);
        }
        self.dying.push((version, level.retired));
        self.writer.seal()
    }

    /// Frees the pages that nobody can see any more.
    fn reclaim(&mut self) {
        let held = self.writer.scan().to_vec();
        let newest = self.writer.newest();
        let released = self.waiting.extract_if(.., |version, _| held.binary_search(version).is_err());
        let mut ready: Vec<u32> = released.flat_map(|(_, pages)| pages).collect();
        ready.extend(self.dying.extract_if(.., |(version, _)| *version <= newest).flat_map(|(_, pages)| pages));
        for page in ready {
            match self.writer.reclaim(page) {
                Ok(()) => self.free.insert(page),
                Err(InUse::Held(by)) => self.waiting.entry(by).or_default().push(page),
                Err(InUse::Taken) => unreachable!("page {page} waits although it lives"),
            }
        }
    }

    /// How many pages there are, used and free.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// The free pages.
    pub(crate) fn free(&self) -> &FreeSet {
        &self.free
    }

    /// The pages that wait until nobody sees them.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.waiting.values().chain(self.dying.iter().map(|(_, pages)| pages)).flatten().copied()
    }

    /// Whether a page belongs to the innermost transaction.
    fn is_own(&self, page: u32) -> bool {
        let base = self.levels.last().expect("a transaction is open").base;
        self.writer.birth(page).is_some_and(|birth| birth >= base)
    }
}

impl<R: Send + Sync> Pages for Pager<R> {
    #[inline]
    fn page(&self, page: u32) -> Result<&[u8]> {
        self.writer.page(page).ok_or(Error::Corrupt { page, fault: Fault::new("a page of this store", page.into()) })
    }
}

impl<R: Send + Sync> PagesMut for Pager<R> {
    fn page_bytes(&self) -> usize {
        self.writer.arena().page_bytes()
    }

    fn make(&mut self) -> Result<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None => {
                let page = self.end;
                self.end = self.end.checked_add(1).ok_or(Error::Full)?;
                page
            }
        };
        self.writer.take(page).expect("a free page is empty");
        self.level().made.push(page);
        Ok(page)
    }

    fn fresh(&mut self, page: u32) -> Result<u32> {
        if self.is_own(page) {
            return Ok(page);
        }
        let copy = self.make()?;
        let pages = self.writer.from_to(page, copy);
        let (from, to) =
            pages.ok_or(Error::Corrupt { page, fault: Fault::new("a page of this store", page.into()) })?;
        to.copy_from_slice(from);
        self.retire(page);
        Ok(copy)
    }

    fn page_mut(&mut self, page: u32) -> &mut [u8] {
        assert!(self.is_own(page), "page {page} is changed without being fresh");
        self.writer.page_mut(page).expect("a page of the transaction's own can be changed")
    }

    fn retire(&mut self, page: u32) {
        if self.is_own(page) {
            assert!(self.writer.untake(page), "page {page} is the transaction's own");
            self.free.insert(page);
        } else {
            self.level().retired.push(page);
        }
    }

    fn scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    fn return_scratch(&mut self, mut scratch: Vec<u8>) {
        scratch.clear();
        self.scratch = scratch;
    }
}
