//! The state database, `runtime/runtime.db`: written through the queue, read by anybody.

mod look;
mod query;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kauri_disk::{Disk, Open, OsDisk};
use rusqlite::{Connection, OptionalExtension, Row};

pub use self::look::DatabaseLook;
use crate::action::{ActionRow, Mark, Rows, Settled, Standing, Status};
use crate::audit::Anchor;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::queue::{BatchKey, CAPACITY, Op, Queue, session};
use crate::schema;

/// The database's name in the runtime directory.
pub const DATABASE_NAME: &str = "runtime.db";

/// How many connections for reading are kept.
const READERS_MAX: usize = 8;

/// One execution of something, as SQL users see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunRow {
    /// Its id.
    pub id: String,
    /// How far it is.
    pub status: String,
    /// How many tasks it has.
    pub task_count: i64,
    /// When it began.
    pub started_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
}

/// The state database, open for reading and writing.
pub struct Database {
    path: PathBuf,
    queue: Queue,
    clock: Arc<dyn Clock>,
    readers: Mutex<Vec<Connection>>,
}

impl Database {
    /// Opens or makes the database in this directory. `alarm` is called if the writer has to be given up.
    ///
    /// # Errors
    /// `NewerSchema` if a later program made it; otherwise what the database or the disk says.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>, alarm: impl Fn(&str) + Send + Sync + 'static) -> Result<Self> {
        Self::with_capacity(directory, clock, alarm, CAPACITY)
    }

    /// The same, with another number of submissions that may wait.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_capacity(
        directory: &Path,
        clock: Arc<dyn Clock>,
        alarm: impl Fn(&str) + Send + Sync + 'static,
        capacity: usize,
    ) -> Result<Self> {
        let path = directory.join(DATABASE_NAME);
        let failed = || Error::path("open", &path);
        let disk = OsDisk::new(directory).map_err(failed())?;
        // Made here, for its owner alone: SQLite gives its other files the same mode.
        drop(disk.open(DATABASE_NAME, Open::Create).map_err(failed())?);
        let mut connection = session::connect(&path).map_err(Error::sql("open the database"))?;
        schema::migrate(&mut connection, &path)?;
        drop(connection);
        disk.sync_dir().map_err(failed())?;
        let queue = Queue::open(&path, Arc::clone(&clock), Box::new(alarm), capacity)?;
        Ok(Self { path, queue, clock, readers: Mutex::new(Vec::new()) })
    }

    /// The queue through which everything is written.
    #[must_use]
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether a submission was applied whose answer was `Unknown`.
    ///
    /// # Errors
    /// What the database says.
    pub fn was_applied(&self, key: BatchKey) -> Result<bool> {
        let sql = "SELECT batch = ?2 FROM writer_epochs WHERE epoch = ?1";
        let found = self.read(|connection| {
            connection.prepare_cached(sql)?.query_row((key.epoch, key.batch), |row| row.get(0)).optional()
        })?;
        Ok(found.unwrap_or(false))
    }

    /// Puts a value under a key.
    ///
    /// # Errors
    /// As [`Queue::submit_batch`].
    pub fn set_state(&self, key: &str, value: &str) -> Result<()> {
        let sql = "INSERT INTO state (key, value, updated_at) VALUES (?1, ?2, ?3)
                   ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at";
        self.queue.submit(sql, [key.into(), value.into(), self.now().into()]).map(drop)
    }

    /// Takes a key away. Answers whether it was there.
    ///
    /// # Errors
    /// As [`Queue::submit_batch`].
    pub fn remove_state(&self, key: &str) -> Result<bool> {
        Ok(self.queue.submit("DELETE FROM state WHERE key = ?1", [key.into()])?.rows > 0)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// What the database says.
    pub fn state(&self, key: &str) -> Result<Option<String>> {
        self.read(|connection| query::state(connection, key))
    }

    /// Adds a run.
    ///
    /// # Errors
    /// As [`Queue::submit_batch`]; a run of this id must not be there.
    pub fn insert_run(&self, id: &str, status: &str, task_count: i64) -> Result<()> {
        let sql = "INSERT INTO runs (id, status, task_count, started_at) VALUES (?1, ?2, ?3, ?4)";
        self.queue.submit(sql, [id.into(), status.into(), task_count.into(), self.now().into()]).map(drop)
    }

    /// Says how far a run is, and that it ended if it did.
    ///
    /// # Errors
    /// `RowCount` if there is no such run; otherwise as [`Queue::submit_batch`].
    pub fn update_run_status(&self, id: &str, status: &str, has_ended: bool) -> Result<()> {
        let sql = "UPDATE runs SET status = ?2, ended_at = coalesce(?3, ended_at) WHERE id = ?1";
        let ended_at = has_ended.then(|| self.now());
        let op = Op::new(sql, [id.into(), status.into(), ended_at.into()]).changing(1);
        self.queue.submit_batch([op]).map(drop)
    }

    /// The runs, newest first, so many at most.
    ///
    /// # Errors
    /// What the database says.
    pub fn list_runs(&self, most: u32) -> Result<Vec<RunRow>> {
        let sql = "SELECT id, status, task_count, started_at, ended_at FROM runs ORDER BY started_at DESC, id LIMIT ?1";
        self.read(|connection| {
            let run = |row: &Row<'_>| {
                let (id, status, task_count) = (row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(RunRow { id, status, task_count, started_at: row.get(3)?, ended_at: row.get(4)? })
            };
            connection.prepare_cached(sql)?.query_map([most], run)?.collect()
        })
    }

    /// What the database says of itself: nothing, if it is whole.
    ///
    /// # Errors
    /// What the database says.
    pub fn check(&self) -> Result<Vec<String>> {
        self.read(|connection| query::faults(connection, "PRAGMA integrity_check"))
    }

    /// Reads with a connection of its own: a writer is never waited for.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => session::connect(&self.path).map_err(Error::sql("open the database for reading"))?,
        };
        let found = read(&connection).map_err(Error::sql("read the database"));
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_MAX {
            readers.push(connection);
        }
        found
    }

    fn now(&self) -> String {
        self.clock.now().to_string()
    }
}

impl Rows for Database {
    fn insert(&self, row: &ActionRow) -> Result<()> {
        let insert = "INSERT INTO actions (action_id, trace_id, task, status, result_ref, started_at, error)
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let link = "INSERT INTO action_links (action_id, kind, other) VALUES (?1, ?2, ?3)";
        let id = || row.action_id.as_str().into();
        let mut ops = vec![Op::new(
            insert,
            [
                id(),
                row.trace_id.as_str().into(),
                row.task.as_str().into(),
                row.status.as_str().into(),
                row.result_ref.as_deref().into(),
                row.started_at.to_string().into(),
                row.error.as_deref().into(),
            ],
        )];
        let needs = row.needs.iter().map(|other| ("needs", other));
        let links = row.retry_of.iter().map(|other| ("retry_of", other)).chain(needs);
        ops.extend(links.map(|(kind, other)| Op::new(link, [id(), kind.into(), other.as_str().into()])));
        self.queue.submit_batch(ops).map(drop)
    }

    fn settle(&self, id: &str, from: &[Status], settled: &Settled<'_>, anchor: Option<&Anchor>) -> Result<()> {
        let update =
            "UPDATE actions SET status = ?2, result_ref = coalesce(?3, result_ref), error = ?4, completed_at = ?5
                      WHERE action_id = ?1 AND status IN (?6, ?7, ?8)";
        let from = |at: usize| from.get(at).map(|status| status.as_str()).into();
        let (status, at) = (settled.status.as_str(), settled.at.to_string());
        let args = [id.into(), status.into(), settled.result_ref.into(), settled.error.into(), at.into()];
        let args = args.into_iter().chain([from(0), from(1), from(2)]);
        let mut ops = vec![Op::new(update, args).changing(1)];
        ops.extend(anchor.map(anchor_op));
        self.queue.submit_batch(ops).map(drop)
    }

    fn find(&self, id: &str) -> Result<Option<ActionRow>> {
        self.read(|connection| query::find(connection, id))
    }

    fn statuses(&self, ids: &[&str]) -> Result<Vec<Option<Standing>>> {
        self.read(|connection| query::statuses(connection, ids))
    }

    fn each_with(&self, statuses: &[Status], after: &str, most: u32) -> Result<Vec<ActionRow>> {
        self.read(|connection| query::each_with(connection, statuses, after, most))
    }

    fn dependents(&self, id: &str) -> Result<Vec<String>> {
        self.read(|connection| query::dependents(connection, id))
    }

    fn retry_of(&self, id: &str) -> Result<Option<String>> {
        self.read(|connection| query::retry_of(connection, id))
    }

    fn mark(&self) -> Result<Option<Mark>> {
        self.read(query::mark)
    }

    fn set_mark(&self, mark: &Mark) -> Result<()> {
        let sql = "INSERT INTO journal_marks (name, seq, end_at, checksum) VALUES ('actions', ?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET seq = excluded.seq, end_at = excluded.end_at, checksum = excluded.checksum";
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).into();
        self.queue.submit(sql, [number(mark.seq), number(mark.end_at), mark.checksum.as_str().into()]).map(drop)
    }

    fn set_anchor(&self, anchor: &Anchor) -> Result<()> {
        self.queue.submit_batch([anchor_op(anchor)]).map(drop)
    }

    fn anchors(&self) -> Result<Vec<Anchor>> {
        self.read(query::anchors)
    }
}

/// An anchor never goes back: of two, the later line is kept.
fn anchor_op(anchor: &Anchor) -> Op {
    let sql =
        "INSERT INTO audit_anchors (date, chain_hash, record_count, last_seq, created_at) VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT (date) DO UPDATE SET chain_hash = excluded.chain_hash, record_count = excluded.record_count,
                   last_seq = excluded.last_seq, created_at = excluded.created_at
               WHERE excluded.last_seq > audit_anchors.last_seq";
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX).into();
    let Anchor { date, chain_hash, record_count, last_seq, created_at } = anchor;
    let (date, hash) = (date.as_str().into(), chain_hash.as_str().into());
    Op::new(sql, [date, hash, number(*record_count), number(*last_seq), created_at.to_string().into()])
}

impl Drop for Database {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.path).field("queue", &self.queue).finish_non_exhaustive()
    }
}
