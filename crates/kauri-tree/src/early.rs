//! Early commits: whoever makes one goes on from it before it is durable, and nobody else sees it until then.
//!
//! ```text
//! made ─────> in the log's queue ─────────────> durable ──> published: everybody sees it ──> told
//!   └──> its maker reads it, and makes the next  ^
//!                                                └ the scribe, a thread of the store's, or whoever waits first
//! ```
//!
//! The log is one sequence, so what was made on top of an early commit becomes durable with it or after it, and if it fails, so does
//! everything behind it.

use std::fmt;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::change::{Change, Outcome};
use crate::durable::{Durability, Pending};
use crate::error::{Error, Result};
use crate::snapshot::Snapshot;
use crate::store::{Inner, Store};
use crate::sync::{Mutex, lock};
use crate::validate;
use crate::write::{Made, WriteTxn};

/// A commit that was made and may not be durable yet: see [`Store::commit_early`]. Dropped, it becomes durable as well, but nobody is told.
///
/// ```
/// use kauri_tree::disk::MemoryDisk;
/// use kauri_tree::{Change, Durability, Early, Options, Read, Table, Write};
///
/// const STEPS: Table<u64, str> = Table::new("steps");
/// let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store")?;
/// let mut last = Early::default(); // no commit: nothing to wait for
/// for number in 1..=3 {
///     let mut change = Change::new(store.snapshot_with(&last)?); // on top of the one before
///     assert_eq!(change.len(&STEPS)?, number - 1);
///     change.put(&STEPS, number, "done")?;
///     last = store.commit_early(change, Durability::Sync, || ())?.1;
/// }
/// store.wait_early(&last)?; // one wait for three commits
/// assert_eq!(store.snapshot().len(&STEPS)?, 3);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "nobody knows that it is durable until it is waited for"]
#[derive(Clone, Debug, Default)]
pub struct Early(Option<Arc<Letter>>);

/// What is left to do for an early commit.
pub(crate) struct Letter {
    version: kauri_arena::Early,
    catalog: Catalog,
    pending: Pending,
    /// Done once, when it is durable.
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Letter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Letter").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Letter {
    /// Returns when it is durable. The first to come does what comes then.
    pub(crate) fn wait(&self, store: &Inner) -> Result<()> {
        if let (Some(durable), Some(ticket)) = (store.durable(), self.pending.ticket) {
            durable.wait(ticket)?;
        }
        let then = lock(&self.then).take();
        if let Some(then) = then {
            then();
        }
        Ok(())
    }

    pub(crate) fn wants_sync(&self) -> bool {
        self.pending.ticket.is_some()
    }
}

impl WriteTxn<'_> {
    /// Commits as [`commit_with`](Self::commit_with) does, but returns before it is durable, as [`Store::commit_early`] does, and with the
    /// same promises. A nested transaction is part of the one around it: there is nothing to wait for, and `then` is not called.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Durability, Options, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store")?;
    /// # store.begin().commit()?;
    /// # let mut txn = store.begin();
    /// # txn.put(&STOCK, "pears", 1)?;
    /// # txn.commit()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// let early = txn.commit_early(Durability::Sync, || ())?;
    /// assert_eq!(store.snapshot_with(&early)?.get(&STOCK, "apples")?, Some(12));
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, None);
    /// store.wait_early(&early)?;
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for `commit_with`.
    pub fn commit_early(self, durability: Durability, then: impl FnOnce() + Send + 'static) -> Result<Early> {
        let Some(Made { store, version, catalog, pending }) = self.seal_early(durability)? else {
            return Ok(Early::default());
        };
        let letter = Arc::new(Letter { version, catalog, pending, then: Mutex::new(Some(Box::new(then))) });
        if letter.wants_sync() {
            store.ask_scribe(&letter);
        }
        Ok(Early(Some(letter)))
    }
}

impl Store {
    /// Commits a change as [`commit_with`](Self::commit_with) does, but returns before it is durable, so that its maker can go on from
    /// what it wrote ([`snapshot_with`](Self::snapshot_with)) meanwhile. Nobody else sees it until it is as durable as was asked. Then `then` is called
    /// once, on whatever thread; if the disk fails, never. Tell nobody outside of it before [`wait_early`](Self::wait_early) has returned.
    ///
    /// A store with a [keeper](crate::Options::keeper) has a thread that makes such commits durable at once. Without one, whoever waits
    /// first does, or whoever commits next.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Change, Durability, Options, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store")?;
    /// # store.begin().commit()?;
    /// # let mut txn = store.begin();
    /// # txn.put(&STOCK, "pears", 1)?;
    /// # txn.commit()?;
    /// let mut change = Change::new(store.snapshot());
    /// change.put(&STOCK, "apples", 12)?;
    /// let (outcome, early) = store.commit_early(change, Durability::Sync, || ())?;
    /// assert!(outcome.is_committed());
    /// assert_eq!(store.snapshot_with(&early)?.get(&STOCK, "apples")?, Some(12));
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, None);
    /// store.wait_early(&early)?;
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for `commit_with`.
    pub fn commit_early(
        &self,
        change: Change<'_>,
        durability: Durability,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<(Outcome, Early)> {
        let (base, work) = change.into_parts(durability);
        if !base.is_of(self) {
            return Err(Error::OtherStore);
        }
        let mut txn = self.begin();
        if let Some(conflict) = validate::conflict(&txn, &work)? {
            drop(txn);
            // As for all who are told of a conflict: what conflicts is to be seen.
            self.wait_for_published()?;
            return Ok((conflict, Early::default()));
        }
        let outcome = validate::apply(&mut txn, &work)?;
        let early = txn.commit_early(durability, then)?;
        // Held until here: what it shares with the newest version is the same only as long as it is.
        drop(base);
        Ok((outcome, early))
    }

    /// A version that has this commit: it, if nothing later can be seen, else what everybody sees.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Change, Durability, Error, Options, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store")?;
    /// let mut change = Change::new(store.snapshot());
    /// change.put(&STOCK, "apples", 12)?;
    /// let (_, early) = store.commit_early(change, Durability::Sync, || ())?;
    /// assert_eq!(store.snapshot_with(&early)?.get(&STOCK, "apples")?, Some(12));
    ///
    /// let mut txn = store.begin(); // it has what was committed early, and its commit makes that durable too
    /// txn.put(&STOCK, "apples", 11)?;
    /// txn.commit()?;
    /// assert_eq!(store.snapshot_with(&early)?.get(&STOCK, "apples")?, Some(11)); // a later one can be seen
    /// assert!(matches!(Store::in_memory()?.snapshot_with(&early), Err(Error::OtherStore)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is a commit of another store.
    pub fn snapshot_with(&self, early: &Early) -> Result<Snapshot<'_>> {
        let Some(letter) = &early.0 else { return Ok(self.snapshot()) };
        if !self.arena().has_sealed(letter.version) {
            return Err(Error::OtherStore);
        }
        let reader = self.arena().read_early(letter.version, letter.catalog.clone());
        Ok(reader.map_or_else(|| self.snapshot(), |reader| Snapshot::of(self, reader)))
    }

    /// Returns when a commit is as durable as was asked, and everybody sees it.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::sync::Arc;
    ///
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Change, Durability, Options, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store")?;
    /// let mut change = Change::new(store.snapshot());
    /// change.put(&STOCK, "apples", 12)?;
    /// let told = Arc::new(AtomicBool::new(false));
    /// let tell = Arc::clone(&told);
    /// let (_, early) = store.commit_early(change, Durability::Sync, move || tell.store(true, Ordering::SeqCst))?;
    /// assert!(!told.load(Ordering::SeqCst)); // nobody has made it durable
    /// store.wait_early(&early)?;
    /// assert!(told.load(Ordering::SeqCst));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the disk failed: nobody knows whether it was made until the store is opened again, and nothing that was made on top of it
    /// was without it.
    pub fn wait_early(&self, early: &Early) -> Result<()> {
        let Some(letter) = &early.0 else { return Ok(()) };
        if !self.arena().has_sealed(letter.version) {
            return Err(Error::OtherStore);
        }
        match letter.wait(self.inner()) {
            // The scribe met it first: its words are kept for whoever comes next.
            Err(Error::Broken) => self.durable().map_or(Ok(()), crate::durable::Durable::check).and(Err(Error::Broken)),
            waited => waited,
        }?;
        let rest = Pending { ticket: None, ..letter.pending };
        self.finish(rest)?;
        self.watches().deliver(self);
        Ok(())
    }
}
