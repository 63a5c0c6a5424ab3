//! Errands: work that is handed in, and done in the writer's turn together with what others hand in or commit meanwhile.
//!
//! ```text
//! posted ──> the store's queue ──> done in one transaction with others ──> durable, seen by everybody ──> told ──> settled
//!                                   ^
//!                                   └ the scribe, whoever commits meanwhile, or whoever settles first
//! ```
//!
//! Whoever commits early knows at once what became of it and goes on from it, and pays for that with a version of its own. Whoever posts
//! does something else meanwhile: pages are copied once for all who post, and the work is done on another thread.

use std::fmt;
use std::sync::Arc;

use crate::change::Outcome;
use crate::durable::Durability;
use crate::error::Result;
use crate::queue::Desk;
use crate::store::{Store, WeakStore};
use crate::write::WriteTxn;

/// Work to be done in the writer's turn: see [`Store::post`].
///
/// It is given a transaction, and answers whether what it did there is to stay. It may be called again, on a transaction that has nothing of
/// what it did before: because it was not to stay, or because something else in the same transaction went wrong. It must not commit
/// anything else, nor drop the last handle of the store: the writer's turn is taken.
///
/// ```
/// use kauri_tree::disk::MemoryDisk;
/// use kauri_tree::{Durability, Errand, Options, Outcome, Posted, Read, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Options::new().open(&MemoryDisk::new(), "store")?;
/// let take = |count: u64| {
///     Errand::new(move |txn| {
///         let there = txn.get(&STOCK, "apples")?.unwrap_or(0);
///         let Some(left) = there.checked_sub(count) else {
///             return Ok(Outcome::Conflict { table: "stock".into(), key: b"apples"[..].into() });
///         };
///         txn.put(&STOCK, "apples", left)?;
///         Ok(Outcome::Committed { sequences: Vec::new() })
///     })
///     .durability(Durability::Sync)
///     .bytes(14) // about what it writes
///     .then(|| println!("somebody took apples"))
/// };
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?;
/// txn.commit()?;
/// let posted = [9, 5].map(|count| store.post(take(count)));
/// // ... something else ...
/// let outcomes = posted.map(Posted::settle);
/// assert!(outcomes.into_iter().filter(|outcome| matches!(outcome, Ok(done) if done.is_committed())).count() == 1);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "it does nothing until it is posted"]
pub struct Errand {
    work: Box<Work>,
    pub(crate) durability: Durability,
    pub(crate) bytes: usize,
    then: Option<Box<dyn FnOnce() + Send>>,
}

type Work = dyn FnMut(&mut WriteTxn<'_>) -> Result<Outcome> + Send;

impl Errand {
    /// Work that is durable when it is settled.
    ///
    /// ```
    /// use kauri_tree::{Errand, Outcome, Store, Table, Write};
    ///
    /// const SEEN: Table<u64, ()> = Table::new("seen");
    /// let store = Store::in_memory()?;
    /// let posted = store.post(Errand::new(|txn| {
    ///     txn.put(&SEEN, 1, ())?;
    ///     Ok(Outcome::Committed { sequences: Vec::new() })
    /// }));
    /// assert!(posted.settle()?.is_committed());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn new(work: impl FnMut(&mut WriteTxn<'_>) -> Result<Outcome> + Send + 'static) -> Self {
        Self { work: Box::new(work), durability: Durability::Sync, bytes: 0, then: None }
    }

    /// As durable as that when it is settled, or more, if others in the same transaction want more.
    ///
    /// ```
    /// use kauri_tree::{Durability, Errand, Outcome, Store, Table, Write};
    ///
    /// const SEEN: Table<u64, ()> = Table::new("seen");
    /// let store = Store::in_memory()?;
    /// let see = Errand::new(|txn| {
    ///     txn.put(&SEEN, 1, ())?;
    ///     Ok(Outcome::Committed { sequences: Vec::new() })
    /// });
    /// store.perform(see.durability(Durability::Flush(100)))?; // on the disk a tenth of a second later
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn durability(self, durability: Durability) -> Self {
        Self { durability, ..self }
    }

    /// Writes about so many bytes of keys and values. What is more than 256 KiB together is done in several transactions.
    ///
    /// ```
    /// use kauri_tree::{Errand, Outcome, Store, Table, Write};
    ///
    /// const PAGES: Table<u64, [u8]> = Table::new("pages");
    /// let store = Store::in_memory()?;
    /// let keep = |number: u64| {
    ///     Errand::new(move |txn| {
    ///         txn.put(&PAGES, number, &[7; 100_000])?;
    ///         Ok(Outcome::Committed { sequences: Vec::new() })
    ///     })
    ///     .bytes(100_008)
    /// };
    /// let posted: Vec<_> = (0..5).map(|number| store.post(keep(number))).collect(); // two transactions, or more
    /// posted.into_iter().try_for_each(|posted| posted.settle().map(drop))?;
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Calls this once when what was done is durable and everybody sees it, on whatever thread; never, if it was not to stay or failed. All who
    /// share the transaction are answered after it. It may commit something itself.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use kauri_tree::{Errand, Outcome, Store, Table, Write};
    ///
    /// const SEEN: Table<u64, ()> = Table::new("seen");
    /// let store = Store::in_memory()?;
    /// let (told, hears) = mpsc::channel();
    /// let see = Errand::new(|txn| {
    ///     txn.put(&SEEN, 1, ())?;
    ///     Ok(Outcome::Committed { sequences: Vec::new() })
    /// });
    /// store.perform(see.then(move || drop(told.send("seen"))))?;
    /// assert_eq!(hears.try_recv(), Ok("seen"));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn then(self, then: impl FnOnce() + Send + 'static) -> Self {
        Self { then: Some(Box::new(then)), ..self }
    }

    pub(crate) fn work(&mut self, txn: &mut WriteTxn<'_>) -> Result<Outcome> {
        (self.work)(txn)
    }

    pub(crate) fn take_then(&mut self) -> Option<Box<dyn FnOnce() + Send>> {
        self.then.take()
    }
}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { durability, bytes, .. } = self;
        f.debug_struct("Errand").field("durability", durability).field("bytes", bytes).finish_non_exhaustive()
    }
}

/// An errand that was handed in: see [`Store::post`]. Dropped, it is done all the same, but nobody is told.
///
/// ```
/// use kauri_tree::{Errand, Outcome, Posted, Store};
///
/// let store = Store::in_memory()?;
/// let posted: Vec<Posted> =
///     (0..3).map(|_| store.post(Errand::new(|_| Ok(Outcome::Committed { sequences: Vec::new() })))).collect();
/// assert!(posted.into_iter().all(|posted| posted.settle().is_ok()));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "nobody knows what became of it until it is settled"]
#[derive(Debug)]
pub struct Posted {
    pub(crate) desk: Arc<Desk>,
    pub(crate) store: WeakStore,
}

impl Posted {
    /// Returns when an errand is done, and as durable as was asked: what it answered. The thread must not have a transaction open: it might wait
    /// for itself.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Errand, Options, Outcome, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let disk = MemoryDisk::new();
    /// let store = Options::new().open(&disk, "store")?;
    /// let posted = store.post(Errand::new(|txn| {
    ///     txn.put(&STOCK, "apples", 12)?;
    ///     Ok(Outcome::Conflict { table: "stock".into(), key: b"pears"[..].into() }) // it was not to stay
    /// }));
    /// assert!(!posted.settle()?.is_committed());
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// What its work answers, or if the store is full, damaged or [broken](crate::Error::Broken). Nothing of it is written then, except if the disk fails: then
    /// that is found out when the store is opened again.
    ///
    /// # Panics
    /// If its work does. Then nothing of it was written, and others are not affected.
    pub fn settle(self) -> Result<Outcome> {
        match self.store.upgrade() {
            Some(store) => store.queue().settle(&store, &self.desk),
            // Whoever closed the store has done what was left.
            None => self.desk.answer(),
        }
    }
}

impl Store {
    /// Hands in work to be done in the writer's turn, and returns at once: see [`Errand`]. It is done in one transaction and with one sync
    /// together with whatever else was posted or [committed](Self::commit) meanwhile; each has its own outcome.
    ///
    /// A store with a [keeper](crate::Options::keeper) has a thread that does it at once. Without one, whoever settles first does it, or
    /// whoever commits a change next, or closes the store. Then one that holds a handle of the store itself, and that nobody settles, keeps it
    /// open.
    ///
    /// ```
    /// use kauri_tree::disk::MemoryDisk;
    /// use kauri_tree::{Errand, Options, Outcome, Read, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Options::new().keeper(false).open(&MemoryDisk::new(), "store")?;
    /// let add = || {
    ///     Errand::new(|txn| {
    ///         txn.add(&STOCK, "apples", 1)?;
    ///         Ok(Outcome::Committed { sequences: Vec::new() })
    ///     })
    /// };
    /// let first = store.post(add());
    /// let second = store.post(add());
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, None); // nobody has done it
    /// first.settle()?;
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(2)); // both, in one transaction
    /// second.settle()?;
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn post(&self, errand: Errand) -> Posted {
        self.queue().post(self, errand)
    }

    /// Does an errand together with whatever else was posted or committed meanwhile, as [`post`](Self::post) does, and waits for it, as
    /// [`settle`](Posted::settle) does.
    ///
    /// ```
    /// use kauri_tree::{Errand, Outcome, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let outcome = store.perform(Errand::new(|txn| {
    ///     txn.put(&STOCK, "apples", 12)?;
    ///     Ok(Outcome::Committed { sequences: Vec::new() })
    /// }))?;
    /// assert!(outcome.is_committed());
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for `settle`.
    ///
    /// # Panics
    /// As for `settle`.
    pub fn perform(&self, errand: Errand) -> Result<Outcome> {
        self.queue().perform(self, errand)
    }
}
