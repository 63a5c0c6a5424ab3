//! One version of a store, to be read.

use std::sync::Arc;

use kauri_arena::{Operation, Reader};
use kauri_wire::Key;

use crate::btree::{Pages, Root};
use crate::catalog::Catalog;
use crate::cursor::{Cursor, Stand};
use crate::error::{Error, Fault, Result};
use crate::overflow::Runs;
use crate::pager::Run;
use crate::pins::Pinned;
use crate::read::{Access, Read, Source, with_pages};
use crate::store::Store;
use crate::table::Table;
use crate::value::Value;

/// One version of a store, as it was when the snapshot was taken; later commits do not change it.
///
/// Taking one takes no lock and waits for nobody, and any number can be held. What it reads is borrowed from it. While it is
/// held, the pages that only it can see are kept.
///
/// ```
/// use kauri_tree::{Read, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let before = store.snapshot();
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?;
/// txn.commit()?;
/// assert_eq!(before.get(&STOCK, "apples")?, None);
/// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot<'a> {
    pages: VersionPages<'a>,
    /// The pin whose version it shows. The version that it holds is the one in which the pin was found, and has all pages of it.
    pinned: Option<Arc<Pinned>>,
}

/// The pages of a version.
#[derive(Debug)]
pub(crate) struct VersionPages<'a> {
    reader: Reader<'a, Catalog>,
    store: &'a Store,
}

impl<'a> Snapshot<'a> {
    #[inline]
    pub(crate) fn new(store: &'a Store) -> Self {
        Self::of(store, store.arena().read())
    }

    /// The version that a reader holds.
    #[inline]
    pub(crate) fn of(store: &'a Store, reader: Reader<'a, Catalog>) -> Self {
        Self { pages: VersionPages { reader, store }, pinned: None }
    }

    /// The number of this version; a later one has a greater number.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let before = store.snapshot().version();
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(store.snapshot().version() > before);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn version(&self) -> u64 {
        self.pinned.as_ref().map_or(self.pages.reader.version(), |pinned| pinned.version).number()
    }

    /// The version of a pin that this one has.
    pub(crate) fn at(mut self, pinned: Arc<Pinned>) -> Result<Self> {
        with_pages(self.access(), |access| pinned.catalog(access).map(drop))?;
        self.pinned = Some(pinned);
        Ok(self)
    }

    pub(crate) fn pinned(&self) -> Option<&Pinned> {
        self.pinned.as_deref()
    }

    /// Whether it is a version of this store.
    pub(crate) fn is_of(&self, store: &Store) -> bool {
        std::ptr::eq(self.pages.store.arena(), store.arena())
    }

    /// Whether both are versions of one store.
    pub(crate) fn is_beside(&self, other: &Snapshot<'_>) -> bool {
        self.is_of(other.pages.store)
    }

    pub(crate) fn version_pages(&self) -> &VersionPages<'_> {
        &self.pages
    }

    #[inline]
    pub(crate) fn catalog(&self) -> &Catalog {
        match &self.pinned {
            None => self.newest_catalog(),
            Some(pinned) => pinned.known_catalog().expect("it was read when the snapshot was made"),
        }
    }

    /// The catalog of the version that is held, whatever is shown.
    pub(crate) fn newest_catalog(&self) -> &Catalog {
        self.pages.reader.root()
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.pages.page_bytes()
    }

    /// A place among the rows of a table, before the first of them.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.load_sorted(&STOCK, [("apples", 12), ("pears", 5)])?;
    /// # txn.commit()?;
    /// let snapshot = store.snapshot();
    /// let mut cursor = snapshot.cursor(&STOCK)?;
    /// let mut txn = store.begin();
    /// txn.remove_range(&STOCK, ..)?;
    /// txn.commit()?;
    /// assert_eq!(cursor.seek("b")?, Some(("pears", 5))); // in this version it stays
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    pub fn cursor<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Cursor<&Self, K, V>> {
        Cursor::new(self, table)
    }

    /// The names of the tables, in order.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(store.snapshot().tables().eq(["stock"]));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.catalog().iter().map(|(name, ..)| name)
    }
}

impl VersionPages<'_> {
    pub(crate) fn page_bytes(&self) -> usize {
        self.store.arena().page_bytes()
    }

    /// A copy of a run that is not in memory, the first times that it is wanted: what is wanted again is brought, and stays.
    pub(crate) fn read_aside(&self, run: Run) -> Result<Option<Vec<u8>>> {
        let Some(durable) = self.store.durable() else { return Ok(None) };
        if run.pages as usize * self.page_bytes() > ASIDE_BYTES_MAX {
            return Ok(None);
        }
        if self.reader.run(run.first, run.pages).is_some() || self.reader.note_read(run.first) >= ASIDE_READS {
            return Ok(None);
        }
        let mut bytes = vec![0; run.pages as usize * self.page_bytes()];
        let birth = durable.file.read(run, &mut bytes)?;
        let fault = Fault::new("a page of this version", run.first.into());
        if birth > self.reader.version() {
            return Err(Error::Corrupt { page: run.first, fault });
        }
        Ok(Some(bytes))
    }

    /// A run that was not in memory.
    #[cold]
    fn load(&self, run: Run) -> Result<&[u8]> {
        if let Some(durable) = self.store.durable() {
            durable.file.load(self.store.arena(), run)?;
        }
        let fault = Fault::new("a page of this version", run.first.into());
        self.reader.run(run.first, run.pages).ok_or(Error::Corrupt { page: run.first, fault })
    }
}

/// How often a run is copied before it is brought. Memory that is touched first makes bringing one as dear as copying it two or three times,
/// so whoever wants it never again has lost nothing, and whoever wants it always has paid twice at most.
const ASIDE_READS: u8 = 3;

/// Longer runs are brought in any case: copying them costs more than room for them.
const ASIDE_BYTES_MAX: usize = 64 << 10;

/// How often a page that leaves as soon as it was brought is brought again.
const TRIES_MAX: usize = 10_000;

/// The pages of a version, for one operation: where pages come and go, none of those it has seen goes before it ends.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    operation: Operation<'a, Catalog>,
    pages: &'a VersionPages<'a>,
}

impl VersionPages<'_> {
    /// Whether pages come and go, so that each is lent for an operation only.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.reader.is_bounded()
    }

    pub(crate) fn operation(&self) -> Guarded<'_> {
        Guarded { operation: self.reader.operation(), pages: self }
    }
}

impl Guarded<'_> {
    pub(crate) fn page_bytes(&self) -> usize {
        self.pages.page_bytes()
    }
}

impl Pages for Guarded<'_> {
    fn page(&self, page: u32) -> Result<&[u8]> {
        self.run(Run { first: page, pages: 1 })
    }
}

impl Runs for Guarded<'_> {
    fn run(&self, run: Run) -> Result<&[u8]> {
        let arena = self.pages.store.arena();
        for _ in 0..TRIES_MAX {
            if let Some(bytes) = self.operation.run(run.first, run.pages) {
                return Ok(bytes);
            }
            let Some(durable) = self.pages.store.durable() else { break };
            match arena.birth(run.first) {
                None => durable.file.load(arena, run)?,
                // It is in memory, and of a later version.
                Some(birth) if birth > self.pages.reader.version() => break,
                // Somebody has brought it since we looked; or it is no such run, or dead, and that does not change.
                Some(_) => {}
            }
        }
        let fault = Fault::new("a page of this version", run.first.into());
        Err(Error::Corrupt { page: run.first, fault })
    }
}

impl Pages for VersionPages<'_> {
    #[inline]
    fn page(&self, page: u32) -> Result<&[u8]> {
        match self.reader.page(page) {
            Some(bytes) => Ok(bytes),
            None => self.load(Run { first: page, pages: 1 }),
        }
    }
}

impl Runs for VersionPages<'_> {
    fn run(&self, run: Run) -> Result<&[u8]> {
        match self.reader.run(run.first, run.pages) {
            Some(bytes) => Ok(bytes),
            None => self.load(run),
        }
    }
}

impl Source for Snapshot<'_> {
    #[inline]
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn access(&self) -> Access<'_> {
        Access::Version(&self.pages)
    }

    #[inline]
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn root(&self, name: &str, types: fn() -> String) -> Result<Option<Root>> {
        let catalog = self.catalog();
        Ok(catalog.find(name, types)?.map(|place| catalog.root(place)))
    }
}

impl Read for Snapshot<'_> {}

impl Stand for Snapshot<'_> {}
