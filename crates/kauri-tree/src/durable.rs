//! Commits that survive: a record in the log, written in groups, or the pages themselves.
//!
//! A commit is a record in the log. Whoever has the writer's turn makes the record and gives the turn up; then whoever comes
//! first writes all records that are waiting, with one durable write, and publishes their versions ([`Group`]). Meanwhile the
//! next ones are made. When the ring is half full, a checkpoint writes the pages beside the writer; a transaction that is no
//! record is committed by a checkpoint in its own turn, or, if it need not be synced, by a record of the pages it wrote.

use std::sync::Arc;

use kauri_arena::{Arena, Sealed, Stamp};

use crate::btree::Root;
use crate::catalog::Catalog;
use crate::checkpoint::Stage;
use crate::error::{Error, Result};
use crate::file::StoreFile;
use crate::group::{Batch, Group, Sink, Ticket, Until};
use crate::log::{Body, Ring};
use crate::meta::{LOG_PAGE, Meta};
use crate::pager::Run;
use crate::store::State;
use crate::sync::{Condvar, Mutex, lock};

/// When a commit returns.
///
/// ```
/// use kauri_tree::disk::MemoryDisk;
/// use kauri_tree::{Durability, Options, Table, Write};
///
/// const SEEN: Table<u64, ()> = Table::new("seen");
/// let store = Options::new().open(&MemoryDisk::new(), "store")?;
/// for number in 0..100 {
///     let mut txn = store.begin();
///     txn.put(&SEEN, number, ())?;
///     // A power cut may take some of these away, the last ones first.
///     txn.commit_with(Durability::None)?;
/// }
/// // This one is on stable storage 50 ms later at the latest, with all before it.
/// let mut txn = store.begin();
/// txn.put(&SEEN, 100, ())?;
/// txn.commit_with(Durability::Flush(50))?;
/// store.sync()?; // or now
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When its changes are on stable storage: no crash takes them away.
    #[default]
    Sync,
    /// When its changes are with the operating system; they are on stable storage at most so many milliseconds later. A crash of
    /// the machine before that may take them. It needs the store's keeper ([`Options::keeper`](crate::Options::keeper)); without
    /// one it is `None`.
    Flush(u32),
    /// When its changes are with the operating system: a crash of the program leaves them, a crash of the machine may take
    /// them, together with later ones, up to the next commit that is synced.
    None,
}

impl Durability {
    fn until(self) -> Until {
        match self {
            Self::Sync => Until::Synced,
            Self::Flush(_) | Self::None => Until::Written,
        }
    }
}

/// What belongs to a store in a file and to no one's turn.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) file: Arc<StoreFile>,
    pub(crate) arena: Arc<Arena<Catalog>>,
    pub(crate) group: Group<(Sealed, Catalog)>,
    /// How far the checkpoint is that is made beside the writer, and the news that it ended.
    pub(crate) stage: Mutex<Stage>,
    pub(crate) ended: Condvar,
    /// Held by whoever writes records, until it is known whether that failed.
    writing: Mutex<()>,
    failure: Mutex<Failure>,
}

/// Whether the file cannot be written. If a write failed, nobody knows what it holds, so nothing is
/// written to it any more.
#[derive(Debug, Default)]
enum Failure {
    #[default]
    None,
    /// The file was opened to be read only.
    ReadOnly,
    /// Nobody was told yet why.
    Untold(Error),
    Told,
}

/// What belongs to a store in a file and to whoever has the writer's turn.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) ring: Ring,
    pub(crate) body: Body,
    pub(crate) meta: Meta,
    /// The tree in which the catalog was written last.
    pub(crate) catalog: Root,
    /// The trees of the pins, and of the pages that are kept for them.
    pub(crate) pins: Root,
    pub(crate) kept: Root,
    pub(crate) bitmap: Option<Run>,
    /// The version that a record of pages holds, and no checkpoint yet.
    pub(crate) loose: Option<Stamp>,
    /// Nothing was committed since the store was opened.
    pub(crate) opened: bool,
    /// The file's name was made durable since the store was opened.
    pub(crate) is_named: bool,
    /// Whether checkpoints cut the file behind its last page in any case.
    pub(crate) cut_all: bool,
}

/// What is left to do for a commit when the turn is given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) ticket: Option<Ticket>,
    /// A sync is wanted in so many milliseconds.
    pub(crate) flush_ms: Option<u32>,
    /// The log is half full.
    pub(crate) wants_checkpoint: bool,
}

impl Durable {
    pub(crate) fn new(file: Arc<StoreFile>, arena: Arc<Arena<Catalog>>, writes: bool) -> Self {
        Self {
            file,
            arena,
            group: Group::new(),
            stage: Mutex::new(Stage::Idle),
            ended: Condvar::new(),
            writing: Mutex::default(),
            failure: Mutex::new(if writes { Failure::None } else { Failure::ReadOnly }),
        }
    }

    /// Whether the file can be written.
    ///
    /// # Errors
    /// After a failed write: the first time what failed, if nobody was there to hear it; then `Broken`.
    pub(crate) fn check(&self) -> Result<()> {
        let mut failure = lock(&self.failure);
        match std::mem::replace(&mut *failure, Failure::Told) {
            Failure::None => {
                *failure = Failure::None;
                Ok(())
            }
            Failure::ReadOnly => {
                *failure = Failure::ReadOnly;
                Err(Error::ReadOnly)
            }
            Failure::Untold(error) => Err(error),
            Failure::Told => Err(Error::Broken),
        }
    }

    /// Whether the file can be written, for who need not be told why not.
    pub(crate) fn can_write(&self) -> bool {
        matches!(*lock(&self.failure), Failure::None)
    }

    /// Whether nobody's write failed so far, of those that have come back.
    ///
    /// The system tells of a page that it could not write once, to whoever syncs next, and counts it as written then. So a sync that
    /// went well says nothing about pages that were written before a failure of somebody else.
    ///
    /// # Errors
    /// `Broken` if one did.
    pub(crate) fn check_writes(&self) -> Result<()> {
        drop(lock(&self.writing));
        if self.can_write() || planted!(TrustSyncAfterFailure) { Ok(()) } else { Err(Error::Broken) }
    }

    /// Runs a write of which nobody knows what it did if it fails.
    pub(crate) fn or_break<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() && !planted!(WriteOnAfterFailure) {
            self.break_off();
        }
        result
    }

    /// Nothing is written any more.
    pub(crate) fn break_off(&self) {
        *lock(&self.failure) = Failure::Told;
        self.group.give_up();
    }

    /// Keeps what failed for whoever commits next: nobody was there to be told.
    pub(crate) fn keep_for_the_next(&self, error: Error) {
        let mut failure = lock(&self.failure);
        if matches!(*failure, Failure::Told) {
            *failure = Failure::Untold(error);
        }
    }

    /// Makes a record of what the transaction did; or writes its pages, if it cannot be one.
    pub(crate) fn commit(&self, state: &mut State, version: Sealed, durability: Durability) -> Result<Pending> {
        self.check()?;
        let turn = state.turn.as_mut().expect("a store in a file has a log");
        if turn.body.is_empty() {
            // It wrote nothing, but may have read what is on its way: who hears of that finds it in the next snapshot.
            let ticket = Some(self.group.all(Until::Written));
            return Ok(Pending { ticket, ..Pending::default() });
        }
        if std::mem::take(&mut turn.opened) && !planted!(FollowStaleRecords) {
            // A crash may have kept a record and lost the one before it. If the lost one were made again to the byte, the
            // other would follow it: a commit that nobody made in this life. So the first commit of a life is a checkpoint, and
            // its records have numbers that nothing in the ring has.
            turn.ring.skip_ahead();
            self.checkpoint_in_turn(state, None)?;
            return Ok(Pending::default());
        }
        let flush_ms = match durability {
            Durability::Flush(ms) => Some(ms),
            Durability::Sync | Durability::None => None,
        };
        let is_overfull = state.pager.is_overfull_of_born();
        if turn.body.is_unfit() || !turn.ring.has_room(&turn.body) || is_overfull {
            // The log does not have it, or memory has no room for what is not in the file.
            let ticket = self.commit_loosely(state, durability.until())?;
            return Ok(Pending { ticket, flush_ms: flush_ms.filter(|_| ticket.is_some()), wants_checkpoint: false });
        }
        if turn.body.refers() {
            self.group.refer();
        }
        let (offset, record) = turn.ring.append(&turn.body);
        turn.body.clear();
        let at = self.file.offset(LOG_PAGE) + offset;
        let is_time = turn.ring.is_half_full() || state.pager.is_full_of_born();
        let wants_checkpoint = is_time && matches!(*lock(&self.stage), Stage::Idle);
        let ticket = self.group.push(at, record, (version, state.catalog.clone()), durability.until());
        Ok(Pending { ticket: Some(ticket), flush_ms, wants_checkpoint })
    }

    /// Returns when a record is where it should be.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<()> {
        self.group.wait(ticket, self)
    }

    /// Returns when everything made so far is written, or synced.
    pub(crate) fn drain(&self, until: Until) -> Result<()> {
        self.wait(self.group.all(until))
    }
}

impl Sink for Durable {
    type Version = (Sealed, Catalog);

    fn write(&self, batch: &Batch) -> Result<()> {
        let file = self.file.disk();
        let write = || {
            match (
                batch.sync && !planted!(WriteWithoutSync),
                batch.unsynced && !planted!(SyncLastRecordOnly),
                &*batch.writes,
            ) {
                // One durable write is all that most commits need.
                (true, false, [(at, bytes)]) => file.write_durable_at(*at, bytes)?,
                (sync, ..) => {
                    for (at, bytes) in &batch.writes {
                        file.write_at(*at, bytes)?;
                    }
                    if sync {
                        file.sync()?;
                    }
                }
            }
            Ok(())
        };
        let _writing = lock(&self.writing);
        self.or_break(write())
    }

    fn publish(&self, (version, catalog): (Sealed, Catalog)) {
        self.arena.publish(version, catalog);
    }
}
