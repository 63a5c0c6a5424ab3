//! The store: one set of tables, many readers, one writer at a time.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
#[cfg(unix)]
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kauri_arena::{Arena, Stamp};

use crate::btree::{self, Of, Order, Root, Seen};
use crate::catalog::Catalog;
use crate::disk::Disk;
#[cfg(unix)]
use crate::disk::OsDisk;
use crate::durable::{Durable, Turn};
use crate::error::{Error, Fault, Result};
use crate::meta::LOG_PAGE;
use crate::open::{self, Opened};
use crate::overflow::{self, Reference};
use crate::pager::Pager;
use crate::snapshot::Snapshot;
use crate::table::OWN_ORDER;
use crate::write::WriteTxn;

/// How a store is made.
///
/// ```
/// use kauri_tree::Options;
/// use kauri_tree::disk::MemoryDisk;
///
/// let options = Options::new().page_bytes(16 << 10).log_bytes(64 << 20);
/// let store = options.open(&MemoryDisk::new(), "store")?;
/// assert_eq!(store.stat().page_bytes, 16 << 10);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    page_bytes: usize,
    log_bytes: usize,
}

impl Options {
    /// Pages of 4096 bytes, and a log of 16 MiB.
    ///
    /// ```
    /// use kauri_tree::Options;
    ///
    /// assert_eq!(Options::new().in_memory()?.stat().page_bytes, 4096);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { page_bytes: 4096, log_bytes: 16 << 20 }
    }

    /// Pages of this size: a power of two from 256 to 65536. Larger pages suit longer values, and cost more to change.
    ///
    /// ```
    /// use kauri_tree::Options;
    ///
    /// assert_eq!(Options::new().page_bytes(65536).in_memory()?.stat().page_bytes, 65536);
    /// assert!(Options::new().page_bytes(100).in_memory().is_err());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn page_bytes(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// A log of this size, rounded up to whole pages, sixteen at least. A checkpoint is made when it is half full. It counts when a
    /// store is made; an existing one keeps its own.
    ///
    /// ```
    /// use kauri_tree::Options;
    /// use kauri_tree::disk::{Disk, MemoryDisk, Open};
    ///
    /// let disk = MemoryDisk::new();
    /// drop(Options::new().log_bytes(1 << 20).open(&disk, "store")?);
    /// // Two meta pages and the log.
    /// assert_eq!(disk.open("store", Open::ReadOnly)?.len()?, 2 * 4096 + (1 << 20));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn log_bytes(mut self, bytes: usize) -> Self {
        self.log_bytes = bytes;
        self
    }

    fn check(&self) -> Result<()> {
        let page_bytes = self.page_bytes;
        match page_bytes.is_power_of_two() && (256..=65536).contains(&page_bytes) {
            true => Ok(()),
            false => Err(Error::PageSize { found: page_bytes }),
        }
    }

    /// Opens the store of this name on a disk; makes it, with these options, if there is none.
    ///
    /// # Errors
    /// If the disk fails, the store is open already, damaged, or of a newer format.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let disk = MemoryDisk::new();
    /// let store = Options::new().open(&disk, "store")?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// drop(store);
    /// assert_eq!(Options::new().open(&disk, "store")?.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn open(&self, disk: &dyn Disk, name: &str) -> Result<Store> {
        self.check()?;
        let log_bytes = self.log_bytes.max(16 * self.page_bytes);
        let Opened { arena, state, durable } = open::open(disk, name, self.page_bytes, log_bytes)?;
        Ok(Store { shared: Arc::new(Shared { arena, state: Mutex::new(state), durable: Some(durable) }) })
    }

    /// A store that lives in memory and is gone with the last handle to it.
    ///
    /// # Errors
    /// [`Error::PageSize`] if pages cannot have that size.
    ///
    /// ```
    /// use kauri_tree::Options;
    ///
    /// let store = Options::new().page_bytes(256).in_memory()?;
    /// assert_eq!(store.verify()?.rows, 0);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn in_memory(&self) -> Result<Store> {
        self.check()?;
        let page_bytes = self.page_bytes;
        let (arena, writer) = Arena::new(page_bytes, Stamp::FIRST, Catalog::default());
        let pager = Pager::new(writer, 1);
        let state = Mutex::new(State { pager, catalog: Catalog::default(), page_bytes, turn: None });
        Ok(Store { shared: Arc::new(Shared { arena, state, durable: None }) })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// A store. A handle: its clones are the same store.
///
/// ```
/// use kauri_tree::{Read, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let same = store.clone();
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?;
/// txn.commit()?;
/// assert_eq!(same.snapshot().get(&STOCK, "apples")?, Some(12));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    arena: Arc<Arena<Catalog>>,
    state: Mutex<State>,
    durable: Option<Durable>,
}

impl Drop for Shared {
    /// Leaves the log empty, so that opening the store again has nothing to do.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(durable) = &self.durable {
            // What was committed is in the log. Failing to copy it to the pages loses nothing.
            let _ = close(&self.arena, state, durable);
        }
    }
}

fn close(arena: &Arena<Catalog>, state: &mut State, durable: &Durable) -> Result<()> {
    if state.turn.as_ref().is_some_and(|turn| turn.ring.is_empty()) {
        return Ok(());
    }
    durable.checkpoint(arena, state)
}

/// What belongs to whoever has the writer's turn.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) pager: Pager<Catalog>,
    pub(crate) catalog: Catalog,
    pub(crate) page_bytes: usize,
    /// The log and the checkpoint, if there is a file.
    pub(crate) turn: Option<Turn>,
}

impl Store {
    /// Opens the store in this file; makes it, with the default [`Options`], if there is none.
    ///
    /// # Errors
    /// If the disk fails, the store is open already, damaged, or of a newer format.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STARTS: Table<str, u64> = Table::new("starts");
    /// let folder = std::env::temp_dir().join(format!("kauri-example-{}", std::process::id()));
    /// std::fs::create_dir_all(&folder)?;
    /// for start in 1..=3 {
    ///     let store = Store::open(folder.join("shop.kauri"))?;
    ///     let mut txn = store.begin();
    ///     let before = txn.get(&STARTS, "all")?.unwrap_or(0);
    ///     txn.put(&STARTS, "all", before + 1)?;
    ///     txn.commit()?;
    ///     assert_eq!(before + 1, start);
    /// }
    /// std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[cfg(unix)]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let wrong = || Error::Io(std::io::Error::new(std::io::ErrorKind::InvalidInput, "expected the path of a file"));
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(wrong)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Options::new().open(&OsDisk::new(folder)?, name)
    }

    /// Writes everything that was committed to its pages, and empties the log. This happens by itself when the log is half full
    /// and when the store is closed.
    ///
    /// # Errors
    /// If the disk fails. What was committed stays committed.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Options::new().open(&MemoryDisk::new(), "store")?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// // Before a copy of the file is taken, say: now it is all in its pages.
    /// store.checkpoint()?;
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn checkpoint(&self) -> Result<()> {
        let Some(durable) = self.durable() else { return Ok(()) };
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        durable.checkpoint(self.arena(), &mut state)
    }

    #[inline]
    pub(crate) fn durable(&self) -> Option<&Durable> {
        self.shared.durable.as_ref()
    }

    /// A store in memory, with the default [`Options`].
    ///
    /// # Errors
    /// None.
    ///
    /// ```
    /// use kauri_tree::Store;
    ///
    /// assert_eq!(Store::in_memory()?.snapshot().tables().count(), 0);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn in_memory() -> Result<Self> {
        Options::new().in_memory()
    }

    /// The newest version. No lock, no wait.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let snapshot = store.snapshot();
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(!snapshot.contains(&STOCK, "apples")?);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self)
    }

    /// Begins a transaction, as soon as every other has ended.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// drop(txn); // as if it had never been
    /// assert_eq!(store.snapshot().len(&STOCK)?, 0);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn begin(&self) -> WriteTxn<'_> {
        // A panic under the lock rolled its transaction back on its way out, so the state is whole.
        WriteTxn::new(self, self.shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn arena(&self) -> &Arena<Catalog> {
        &self.shared.arena
    }

    /// How the store stands.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<u64, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..10_000 {
    ///     txn.put(&STOCK, number, number)?;
    /// }
    /// txn.commit()?;
    /// let stat = store.stat();
    /// assert!(stat.pages * stat.page_bytes > 10_000 * 16);
    /// assert_eq!(stat.waiting_pages, 0);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn stat(&self) -> Stat {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (free, waiting) = (state.pager.free().len(), state.pager.waiting().count());
        let pages = (state.pager.end() - state.first_page()) as usize;
        Stat { page_bytes: state.page_bytes, pages, free_pages: free, waiting_pages: waiting }
    }

    /// Looks at every page: whether each tree is one, and whether every page is used once, free, or waiting for a reader.
    ///
    /// # Errors
    /// The first fault found.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// let report = store.verify()?;
    /// assert_eq!((report.tables, report.rows, report.pages), (1, 1, 1));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn verify(&self) -> Result<Report> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = BTreeSet::new();
        let mut report = Report::default();
        let mut own = Vec::new();
        for (_, types, root) in state.catalog.iter() {
            report.tables += 1;
            report.rows += root.rows;
            verify_table(&state, types, root, &mut seen)?;
        }
        report.pages = seen.len();
        for page in state.pager.free().iter().chain(state.pager.waiting()) {
            claim(&mut seen, page)?;
        }
        if let Some(turn) = &state.turn {
            btree::verify::<Of<[u8]>>(&state.pager, turn.catalog, &mut |what| {
                if let Seen::Page(page) = what {
                    own.push(page);
                }
            })?;
            own.extend(turn.bitmap.into_iter().flat_map(crate::pager::Run::iter));
        }
        for page in own {
            claim(&mut seen, page)?;
        }
        match (state.first_page()..state.pager.end()).find(|page| !seen.contains(page)) {
            Some(page) => {
                Err(Error::Corrupt { page, fault: Fault::new("a page that is used, free or waiting", page.into()) })
            }
            None => Ok(report),
        }
    }
}

impl State {
    /// The first page that a tree can have.
    fn first_page(&self) -> u32 {
        self.turn.as_ref().map_or(1, |turn| LOG_PAGE + turn.meta.log_pages)
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
///
/// ```
/// use kauri_tree::Store;
///
/// let stat = Store::in_memory()?.stat();
/// assert_eq!((stat.pages, stat.free_pages), (0, 0));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
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
///
/// ```
/// use kauri_tree::{Report, Store};
///
/// assert_eq!(Store::in_memory()?.verify()?, Report::default());
/// # Ok::<(), kauri_tree::Error>(())
/// ```
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
