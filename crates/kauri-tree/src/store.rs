//! The store: one set of tables, many readers, one writer at a time.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kauri_arena::{Arena, Stamp};

use crate::btree::{self, Of, Order, Root, Seen};
use crate::catalog::Catalog;
use crate::error::{Error, Fault, Result};
use crate::overflow::{self, Reference};
use crate::pager::Pager;
use crate::snapshot::Snapshot;
use crate::table::OWN_ORDER;
use crate::write::WriteTxn;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct Options {
    page_bytes: usize,
}

impl Options {
    /// Pages of 4096 bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self { page_bytes: 4096 }
    }

    /// Pages of this size: a power of two from 256 to 65536. Larger pages suit longer values, and cost more to change.
    #[must_use]
    pub const fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// A store that lives in memory and is gone with the last handle to it.
    ///
    /// # Errors
    /// [`Error::PageSize`] if pages cannot have that size.
    pub fn in_memory(&self) -> Result<Store> {
        let page_bytes = self.page_bytes;
        if !page_bytes.is_power_of_two() || !(256..=65536).contains(&page_bytes) {
            return Err(Error::PageSize { found: page_bytes });
        }
        let (arena, writer) = Arena::new(page_bytes, Stamp::FIRST, Catalog::default());
        let pager = Pager::new(writer, 1);
        let state = Mutex::new(State { pager, catalog: Catalog::default(), page_bytes });
        Ok(Store { shared: Arc::new(Shared { arena, state }) })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// A store. A handle: its clones are the same store.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    arena: Arc<Arena<Catalog>>,
    state: Mutex<State>,
}

/// What belongs to whoever has the writer's turn.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pager: Pager<Catalog>,
    pub(crate) catalog: Catalog,
    pub(crate) page_bytes: usize,
}

impl Store {
    /// A store in memory, with the default [`Options`].
    ///
    /// # Errors
    /// None.
    pub fn in_memory() -> Result<Self> {
        Options::new().in_memory()
    }

    /// The newest version. No lock, no wait.
    #[must_use]
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self)
    }

    /// Begins a transaction, as soon as every other has ended.
    pub fn begin(&self) -> WriteTxn<'_> {
        // A panic under the lock rolled its transaction back on its way out, so the state is whole.
        WriteTxn::new(self, self.shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn arena(&self) -> &Arena<Catalog> {
        &self.shared.arena
    }

    /// How the store stands.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, waiting) = (state.pager.free().len(), state.pager.waiting().count());
        let pages = state.pager.end() as usize - 1;
        Stat { page_bytes: state.page_bytes, pages, free_pages: free, waiting_pages: waiting }
    }

    /// Looks at every page: whether each tree is one, and whether every page is used once, free, or waiting for a reader.
    ///
    /// # Errors
    /// The first fault found.
    pub fn verify(&self) -> Result<Report> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = BTreeSet::new();
        let mut report = Report::default();
        for (_, types, root) in state.catalog.iter() {
            report.tables += 1;
            report.rows += root.rows;
            verify_table(&state, types, root, &mut seen)?;
        }
        report.pages = seen.len();
        for page in state.pager.free().iter().chain(state.pager.waiting()) {
            claim(&mut seen, page)?;
        }
        match (1..state.pager.end()).find(|page| !seen.contains(page)) {
            Some(page) => {
                Err(Error::Corrupt { page, fault: Fault::new("a page that is used, free or waiting", page.into()) })
            }
            None => Ok(report),
        }
    }
}

/// Checks one tree and notes its pages.
fn verify_table(state: &State, types: &str, root: Root, seen: &mut BTreeSet<u32>) -> Result<()> {
    let mut pages = Vec::new();
    let mut references = Vec::new();
    let mut see = |what: Seen<'_>| match what {
        Seen::Page(page) => pages.push(page),
        Seen::Overflow(reference) => references.push(Reference::decode(reference)),
    };
    // An order other than that of bytes is known only to the key's type, which is not here.
    if types.ends_with(OWN_ORDER) {
        btree::verify::<Unknown>(&state.pager, root, &mut see)?;
    } else {
        btree::verify::<Of<[u8]>>(&state.pager, root, &mut see)?;
    }
    for page in pages {
        claim(seen, page)?;
    }
    for reference in references {
        let mut runs = Vec::new();
        overflow::each(&state.pager, state.page_bytes, reference?, |run| runs.push(run))?;
        for page in runs.into_iter().flat_map(crate::pager::Run::iter) {
            claim(seen, page)?;
        }
    }
    Ok(())
}

/// An order in which any keys may follow each other.
struct Unknown;

impl Order for Unknown {
    const BYTEWISE: bool = false;

    fn compare(_: &[u8], _: &[u8]) -> Ordering {
        Ordering::Less
    }
}

fn claim(seen: &mut BTreeSet<u32>, page: u32) -> Result<()> {
    match seen.insert(page) {
        true => Ok(()),
        false => Err(Error::Corrupt { page, fault: Fault::new("a page used once", page.into()) }),
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("version", &self.snapshot().version()).finish_non_exhaustive()
    }
}

/// How a store stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stat {
    /// The size of a page.
    pub page_bytes: usize,
    /// How many pages there are, used or not.
    pub pages: usize,
    /// How many of them are free.
    pub free_pages: usize,
    /// How many of them are kept for snapshots that still see them.
    pub waiting_pages: usize,
}

/// What [`Store::verify`] found in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// How many tables there are.
    pub tables: usize,
    /// How many rows they have.
    pub rows: u64,
    /// How many pages hold them.
    pub pages: usize,
}
