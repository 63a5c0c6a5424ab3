//! The store: one set of tables, many readers, one writer at a time.

use std::fmt;
use std::sync::{Arc, Weak};

use kauri_arena::{Arena, Stamp};

use crate::catalog::Catalog;
use crate::change::{Change, Outcome};
use crate::disk::Disk;
use crate::durable::{Durability, Durable, Pending, Turn};
use crate::early::Letter;
use crate::error::{Error, Result};
use crate::group::Until;
use crate::keeper::{Keeper, Order};
use crate::log::Ring;
use crate::meta::LOG_PAGE;
use crate::open::{self, Opened};
use crate::pager::Pager;
use crate::queue::Queue;
use crate::snapshot::Snapshot;
use crate::watch::Watches;
use crate::write::WriteTxn;

/// A store is made shorter by whoever asks for a checkpoint when more than this part of its pages, one of so many, is free.
const SPARSE_SHARE: u64 = 4;

/// Whoever holds it has the writer's turn. Waiting is in line: a turn that was waited for too long goes to the one who waits, not
/// to whoever comes by (the lock hands itself on, about every half millisecond).
pub(crate) type TurnGuard<'a> = parking_lot::MutexGuard<'a, State>;

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
    keeper: bool,
    read_only: bool,
    cache_bytes: Option<usize>,
}

impl Options {
    /// Pages of 4096 bytes, a log that grows to 64 MiB, a keeper, reading and writing, all pages that were read in memory.
    ///
    /// ```
    /// use kauri_tree::Options;
    ///
    /// assert_eq!(Options::new().in_memory()?.stat().page_bytes, 4096);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { page_bytes: 4096, log_bytes: 64 << 20, keeper: true, read_only: false, cache_bytes: None }
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

    /// A log that grows to this size, rounded up to whole pages, sixteen at least. It begins with a sixteenth of them, and is made longer
    /// when the store holds twice as much as the log does; a checkpoint is made when it is half full. The file is as long as if all of it
    /// were there, but takes no room for what is not. It counts when a store is made; an existing one keeps its own.
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

    /// Whether the store has a keeper: a thread of its own, started when it is first needed, that makes checkpoints beside the writer
    /// and syncs in time what was committed with [`Durability::Flush`](crate::Durability::Flush). Without one, whoever commits makes
    /// the checkpoints, and time is kept by nobody: whoever drives the store calls [`Store::sync`].
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Durability, Options, Table, Write};
    ///
    /// // A program that is the same each time has no threads of others.
    /// let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store")?;
    /// let mut txn = store.begin();
    /// txn.put(&Table::<u64, ()>::new("seen"), 1, ())?;
    /// txn.commit_with(Durability::Flush(50))?;
    /// store.sync()?;
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn keeper(mut self, keeper: bool) -> Self {
        self.keeper = keeper;
        self
    }

    /// Whether the store is only read. It must exist then, and nothing of its file is changed. It need not be closed elsewhere: what is
    /// seen is a version that was committed; when its pages are used for other versions, reading them says that the page is
    /// damaged, and the store can be opened again.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Error, Options, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let disk = MemoryDisk::new();
    /// let store = Options::new().open(&disk, "store")?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    ///
    /// let reader = Options::new().read_only(true).open(&disk, "store")?;
    /// assert_eq!(reader.snapshot().get(&STOCK, "apples")?, Some(12));
    /// let mut txn = reader.begin();
    /// txn.put(&STOCK, "pears", 5)?;
    /// assert!(matches!(txn.commit(), Err(Error::ReadOnly)));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// At most about so many bytes of pages in memory, for a store in a file that is longer than memory. Pages that were not used
    /// for some time leave, and are read from the file again when they are needed. Reading costs more then, since values and rows are
    /// copied out of their pages. What a transaction writes stays in memory until a checkpoint; beside the pages, 17 bytes are kept for each
    /// page of the file that was ever used.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Options, Read, Table, Write};
    ///
    /// const STOCK: Table<u32, [u8]> = Table::new("stock");
    /// let store = Options::new().cache_bytes(1 << 20).open(&MemoryDisk::new(), "store")?;
    /// for number in 0..100 {
    ///     let mut txn = store.begin();
    ///     txn.put(&STOCK, number, &[7; 100_000])?;
    ///     txn.commit()?;
    /// }
    /// store.checkpoint()?;
    /// assert_eq!(store.snapshot().scan(&STOCK)?.map(|_, value| value.len()).sum::<Result<usize, _>>()?, 10_000_000);
    /// assert!(store.stat().resident_pages < 600);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
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
        self.open_with(|page_bytes, log_bytes, cache_bytes| match self.read_only {
            true => open::open_to_read(disk, name, cache_bytes),
            false => open::open(disk, name, page_bytes, log_bytes, cache_bytes),
        })
    }

    /// Opens a store by a function of the size of pages, of the log and of the cache.
    pub(crate) fn open_with(&self, open: impl FnOnce(usize, usize, Option<usize>) -> Result<Opened>) -> Result<Store> {
        let log_bytes = self.log_bytes.max(16 * self.page_bytes);
        let Opened { state, durable } = open(self.page_bytes, log_bytes, self.cache_bytes)?;
        Ok(Store::new(state, Arc::clone(&durable.arena), Some(durable), self.keeper))
    }

    pub(crate) const fn pages_are_of(&self, bytes: usize) -> bool {
        self.page_bytes == bytes
    }

    pub(crate) const fn is_read_only(&self) -> bool {
        self.read_only
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
        let state = State { pager, catalog: Catalog::default(), page_bytes, turn: None };
        Ok(Store::new(state, arena, None, false))
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
    /// What closes the store with the last of its handles; the scribe's does not count.
    _open: Option<Arc<Open>>,
}

/// Closes the store when it is dropped.
struct Open(Arc<Shared>);

/// What finds a store as long as somebody has a handle.
pub(crate) struct WeakStore(Weak<Shared>);

impl WeakStore {
    /// A handle that does not keep the store open.
    pub(crate) fn upgrade(&self) -> Option<Store> {
        self.0.upgrade().map(|shared| Store { shared, _open: None })
    }
}

impl fmt::Debug for WeakStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakStore").finish_non_exhaustive()
    }
}

/// What the handles of a store share.
struct Shared {
    arena: Arc<Arena<Catalog>>,
    inner: Arc<Inner>,
    keeper: Option<Keeper>,
    /// Changes that wait to be committed.
    queue: Queue,
    watches: Arc<Watches>,
}

/// What handles and the keeper share.
#[derive(Debug)]
pub(crate) struct Inner {
    state: parking_lot::Mutex<State>,
    durable: Option<Durable>,
}

impl Drop for Open {
    /// Leaves the log empty, so that opening the store again has nothing to do.
    fn drop(&mut self) {
        let Self(shared) = self;
        if let Some(keeper) = &shared.keeper {
            keeper.stop();
        }
        shared.queue.finish(&Store { shared: Arc::clone(shared), _open: None });
        if let Some(durable) = &shared.inner.durable {
            // What was committed is in the log. Failing to copy it to the pages loses nothing.
            let _ = durable.close(&mut shared.inner.state.lock());
        }
    }
}

impl Inner {
    #[inline]
    pub(crate) fn durable(&self) -> Option<&Durable> {
        self.durable.as_ref()
    }

    /// Makes an early commit durable.
    pub(crate) fn write_unheard(&self, letter: &Letter) {
        self.unheard(letter.wait(self));
    }

    /// Takes the writer's turn.
    fn turn(&self) -> TurnGuard<'_> {
        self.note_checkpoint(self.state.lock())
    }

    /// Takes the writer's turn, if nobody has it.
    fn try_turn(&self) -> Option<TurnGuard<'_>> {
        Some(self.note_checkpoint(self.state.try_lock()?))
    }

    fn note_checkpoint<'a>(&self, mut state: TurnGuard<'a>) -> TurnGuard<'a> {
        if let Some(durable) = &self.durable {
            durable.absorb(&mut state);
        }
        state
    }

    /// Makes a checkpoint beside the writer, if the log is half full, or memory full of what is not in the file. `between` is called between its writes.
    pub(crate) fn checkpoint_if_time(&self, between: &mut dyn FnMut()) {
        let is_time = |state: &State| {
            state.pager.is_full_of_born() || state.turn.as_ref().is_some_and(|turn| turn.ring.is_half_full())
        };
        self.unheard(self.checkpoint(is_time, between));
    }

    /// Makes everything durable.
    pub(crate) fn sync_unheard(&self) {
        self.unheard(self.sync());
    }

    /// What fails where nobody asked for it is told to whoever commits next.
    fn unheard(&self, result: Result<()>) {
        if let (Err(error), Some(durable)) = (result, &self.durable) {
            durable.keep_for_the_next(error);
        }
    }

    /// Makes a checkpoint, if it is still wanted when the turn is ours; only its beginning is in the turn.
    fn checkpoint(&self, wanted: impl FnOnce(&State) -> bool, between: &mut dyn FnMut()) -> Result<()> {
        let Some(durable) = &self.durable else { return Ok(()) };
        let mut state = self.turn();
        if !wanted(&state) {
            return Ok(());
        }
        let (job, held) = durable.begin_checkpoint(&mut state)?;
        drop(state);
        durable.run_checkpoint(job, held, between)?;
        durable.absorb(&mut self.state.lock());
        Ok(())
    }

    /// Whether so much is free that the store is worth being made shorter.
    fn is_sparse(&self) -> bool {
        let mut state = self.turn();
        state.pager.reclaim();
        // What somebody reads stays where it is: moved, it would take room twice.
        self.durable.is_some()
            && !state.pager.is_read()
            && state.pager.free().len() as u64 * SPARSE_SHARE > state.pages()
    }

    /// Gives the room of free pages back to the disk, if there is much of it; only the beginning is in the turn.
    fn give_back(&self) {
        if let Some(durable) = &self.durable {
            let rooms = durable.begin_give_back(&mut self.turn());
            durable.give_back(rooms);
        }
    }

    fn sync(&self) -> Result<()> {
        match &self.durable {
            Some(durable) if planted!(SyncNothing) => durable.drain(Until::Written),
            Some(durable) => durable.drain(Until::Synced),
            None => Ok(()),
        }
    }
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
    fn new(state: State, arena: Arc<Arena<Catalog>>, durable: Option<Durable>, keeper: bool) -> Self {
        let inner = Arc::new(Inner { state: parking_lot::Mutex::new(state), durable });
        let keeper = keeper.then(Keeper::default);
        let shared = Arc::new(Shared { arena, inner, keeper, queue: Queue::default(), watches: Arc::default() });
        Self { _open: Some(Arc::new(Open(Arc::clone(&shared)))), shared }
    }

    /// Writes everything that was committed to its pages, empties the log, and gives the room of free pages back to the disk where many lie
    /// side by side. If more than a quarter of the pages is free, and nobody holds a snapshot, the store is made shorter too, as by
    /// [`compact`](Self::compact). Others can write meanwhile. By itself a checkpoint is made when the log is half full, and when the store is closed; then free pages stay
    /// where they are, for whoever writes next.
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
        self.write_out()?;
        if self.shared.inner.is_sparse() {
            self.compact()?;
        } else {
            self.give_back();
        }
        Ok(())
    }

    /// Gives the room of free pages back to the disk, if there is much of it.
    pub(crate) fn give_back(&self) {
        self.shared.inner.give_back();
    }

    /// Makes a checkpoint, and leaves free pages where they are.
    pub(crate) fn write_out(&self) -> Result<()> {
        self.shared.inner.checkpoint(|_| true, &mut || ())
    }

    /// Returns when everything that was committed before, however, is on stable storage.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Durability, Options, Table, Write};
    ///
    /// const SEEN: Table<u64, ()> = Table::new("seen");
    /// let store = Options::new().open(&MemoryDisk::new(), "store")?;
    /// for number in 0..1000 {
    ///     let mut txn = store.begin();
    ///     txn.put(&SEEN, number, ())?;
    ///     txn.commit_with(Durability::None)?;
    /// }
    /// store.sync()?; // one wait for all of them
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&self) -> Result<()> {
        self.shared.inner.sync()
    }

    /// Does what is left of a commit when its turn is over.
    pub(crate) fn finish(&self, pending: Pending) -> Result<()> {
        let Some(durable) = self.durable() else { return Ok(()) };
        if let Some(ticket) = pending.ticket {
            durable.wait(ticket)?;
        }
        if let (Some(ms), Some(keeper)) = (pending.flush_ms, &self.shared.keeper) {
            keeper.ask_flush(&self.shared.inner, ms);
        }
        if pending.wants_checkpoint {
            let asked = self.shared.keeper.as_ref().is_some_and(|keeper| keeper.ask_checkpoint(&self.shared.inner));
            if !asked {
                self.shared.inner.checkpoint_if_time(&mut || ());
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn durable(&self) -> Option<&Durable> {
        self.shared.inner.durable()
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.shared.inner
    }

    /// Lets the scribe make an early commit durable, if there is one.
    pub(crate) fn ask_scribe(&self, letter: &Arc<Letter>) {
        self.order(|| Order::Write(Arc::clone(letter)));
    }

    /// Lets the scribe lead what waits in the queue. Tells whether there is one.
    pub(crate) fn let_scribe_lead(&self) -> bool {
        self.order(|| Order::Lead)
    }

    fn order(&self, order: impl FnOnce() -> Order) -> bool {
        self.shared.keeper.as_ref().is_some_and(|keeper| keeper.ask_scribe(|| self.unopened(), order()))
    }

    /// A handle that does not keep the store open.
    fn unopened(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), _open: None }
    }

    /// What finds the store as long as somebody has a handle.
    pub(crate) fn downgrade(&self) -> WeakStore {
        WeakStore(Arc::downgrade(&self.shared))
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

    /// Begins a transaction, as soon as every other has ended. A thread that has one open must not: it would wait for itself, for ever.
    /// It [nests](WriteTxn::nest) one instead.
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
        // A panic in the turn rolled its transaction back on its way out, so the state is whole.
        WriteTxn::new(self, self.shared.inner.turn())
    }

    /// Begins a transaction, unless another goes on.
    ///
    /// ```
    /// use kauri_tree::Store;
    ///
    /// let store = Store::in_memory()?;
    /// let txn = store.begin();
    /// assert!(store.try_begin().is_none());
    /// drop(txn);
    /// assert!(store.try_begin().is_some());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn try_begin(&self) -> Option<WriteTxn<'_>> {
        Some(WriteTxn::new(self, self.shared.inner.try_turn()?))
    }

    /// Commits a change: if everything that it observed is as it was, everything that it staged is written, in one moment; else it is
    /// an [`Outcome::Conflict`] and nothing is. In a file, it returns when the outcome is durable.
    ///
    /// Changes of several threads that come at the same time share one transaction and one sync; each has its own outcome. The
    /// thread must not have a transaction open: it would wait for itself.
    ///
    /// What was observed and is where it was costs next to nothing to check, however much it is: where the version that was read and
    /// the newest share pages, no row is looked at.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table, Write};
    ///
    /// const ACCOUNTS: Table<str, u64> = Table::new("accounts");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.load_sorted(&ACCOUNTS, [("ann", 10), ("bob", 0)])?;
    /// # txn.commit()?;
    /// let mut change = Change::new(store.snapshot());
    /// let ann = change.get(&ACCOUNTS, "ann")?.unwrap_or(0);
    /// change.put(&ACCOUNTS, "ann", ann - 4)?;
    /// change.add(&ACCOUNTS, "bob", 4)?;
    /// assert_eq!(store.snapshot().get(&ACCOUNTS, "bob")?, Some(0)); // nothing is written yet
    /// assert!(store.commit(change)?.is_committed());
    /// assert_eq!(store.snapshot().get(&ACCOUNTS, "bob")?, Some(4));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the change was made against another store, a table has other types by now or too long a name, or the store is full, damaged or
    /// [broken](Error::Broken). Nothing is written, except if the disk fails: then it is found when the store is opened again.
    ///
    /// # Panics
    /// If the code of a key's or a value's type does. Then nothing was written, and others are not affected.
    pub fn commit(&self, change: Change<'_>) -> Result<Outcome> {
        self.commit_with(change, Durability::Sync)
    }

    /// As [`commit`](Self::commit), returning when it is as durable as that. If another change in the same commit wants more, it
    /// returns when that is so.
    ///
    /// ```
    /// use kauri_tree::{Change, Durability, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut change = Change::new(store.snapshot());
    /// change.put(&STOCK, "apples", 12)?;
    /// assert!(store.commit_with(change, Durability::None)?.is_committed());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for `commit`.
    ///
    /// # Panics
    /// As for `commit`.
    pub fn commit_with(&self, change: Change<'_>, durability: Durability) -> Result<Outcome> {
        let (base, work) = change.into_parts(durability);
        if !base.is_of(self) {
            return Err(Error::OtherStore);
        }
        if work.is_empty() {
            return Ok(Outcome::Committed { sequences: Vec::new() });
        }
        let outcome = self.queue().commit(self, work);
        // Held until here: what it shares with the newest version is the same only as long as it is.
        drop(base);
        outcome
    }

    /// Takes the writer's turn, without a transaction.
    pub(crate) fn turn(&self) -> TurnGuard<'_> {
        self.shared.inner.turn()
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.shared.queue
    }

    pub(crate) fn watches(&self) -> &Arc<Watches> {
        &self.shared.watches
    }

    /// Returns when everything that was committed so far can be seen.
    ///
    /// # Errors
    /// If the store is broken: what a refused commit left in the turn's state is never seen, and has no record to wait for.
    pub(crate) fn wait_for_published(&self) -> Result<()> {
        self.durable().map_or(Ok(()), |durable| durable.drain(Until::Written).and_then(|()| durable.check()))
    }

    /// Returns when the disk is idle, or writes what was made after this was called.
    pub(crate) fn wait_for_round(&self) {
        self.durable().iter().for_each(|durable| durable.group.wait_for_round());
    }

    /// How many pages there are, and how many there would be without the free ones.
    pub(crate) fn end_and_target(&self) -> (u32, u32) {
        let state = self.shared.inner.turn();
        let (end, free) = (state.pager.end(), state.pager.free().len());
        (end, end - u32::try_from(free).expect("page numbers have 32 bits"))
    }

    /// Says whether checkpoints cut the file behind its last page in any case.
    pub(crate) fn set_cut_all(&self, all: bool) {
        if let Some(turn) = &mut self.shared.inner.turn().turn {
            turn.cut_all = all;
        }
    }

    /// The longest value, in bytes.
    ///
    /// ```
    /// use kauri_tree::{Error, Store, Table, Write};
    ///
    /// const FILES: Table<str, [u8]> = Table::new("files");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// let refused = txn.reserve(&FILES, "all of it", Store::VALUE_BYTES_MAX + 1, |_| {});
    /// assert!(matches!(refused, Err(Error::ValueTooLong { most: Store::VALUE_BYTES_MAX, .. })));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub const VALUE_BYTES_MAX: usize = crate::overflow::VALUE_BYTES_MAX;

    /// The longest key in bytes: a quarter of a page less eight. The name of a table is no longer either, and somewhat shorter where pages
    /// are small and the names of its types long.
    ///
    /// ```
    /// use kauri_tree::{Error, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let most = store.key_bytes_max();
    /// assert_eq!(most, 1016); // in pages of 4 KiB
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, &"k".repeat(most), 12)?;
    /// assert!(matches!(txn.put(&STOCK, &"k".repeat(most + 1), 12), Err(Error::KeyTooLong { .. })));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn key_bytes_max(&self) -> usize {
        crate::btree::key_bytes_max(self.page_bytes())
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.arena().page_bytes()
    }

    pub(crate) fn arena(&self) -> &Arena<Catalog> {
        &self.shared.arena
    }

    /// How the store stands. It waits for the writer's turn, and has it for a moment.
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
        let state = self.shared.inner.turn();
        let (free, waiting) = (state.pager.free().len(), state.pager.waiting().count());
        let pages = usize::try_from(state.pages()).expect("page numbers have 32 bits");
        let ring = state.turn.as_ref().map(|turn| &turn.ring);
        Stat {
            page_bytes: state.page_bytes,
            pages,
            free_pages: free,
            waiting_pages: waiting,
            resident_pages: self.arena().resident_pages(),
            log_bytes: ring.map_or(0, Ring::bytes),
            log_used_bytes: ring.map_or(0, |ring| ring.used().bytes()),
        }
    }
}

impl State {
    /// How many pages there are for trees, used and free.
    pub(crate) fn pages(&self) -> u64 {
        u64::from(self.pager.end() - self.first_page())
    }

    /// The first page that a tree can have.
    pub(crate) fn first_page(&self) -> u32 {
        self.turn.as_ref().map_or(1, |turn| LOG_PAGE + turn.meta.log_pages)
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
    /// How many pages are in memory, where that is [bounded](Options::cache_bytes); else 0.
    pub resident_pages: usize,
    /// The size of the log so far; 0 in memory.
    pub log_bytes: u64,
    /// How much of the log no checkpoint has taken over yet.
    pub log_used_bytes: u64,
}
