//! Jobs of apalis in a file of SQLite: enqueued, handled, and counted when they are done.
//!
//! It is set up for speed as its documentation has it, with the promise of the others:
//!
//! - `synchronous = FULL` on every connection; its own set-up switches syncs off on the one that it happens to get.
//! - SQLite's update hook wakes the worker. The events are taken as many as there are (`ready_chunks`), for the worker is woken again only by
//!   a stream that was read to its end. No polling interval: one that runs out while a fetch is under way is not armed again, and besides the
//!   hook it begins fetches that take the event of a job and do not see the job.
//! - A heartbeat every half second wakes it for a job whose event is lost nevertheless. More often costs more: it looks through all claimed jobs. A
//!   worker is dead after thirty seconds; as it comes, that is a minute.
//! - A worker claims and ends 1024 jobs at a time (`batch_size`; more gains nothing), and marks none in between (`lock_tasks`): they are claimed.
//! - It is set up a second time when there are jobs, as at every start: SQLite then counts rows, and finds the jobs that have ended by their ids.
//!   Without, it goes through all claimed jobs for each.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_sqlite::{Config, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteStorage};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use sqlx::sqlite::{SqliteOperation, SqliteSynchronous};
use tokio::task::JoinHandle;

use crate::Result;

const PAYLOAD: &str = "a payload of some bytes, as jobs have";
/// With so many rows SQLite's statistics say what matters.
const ROWS_FOR_STATISTICS: usize = 1000;
const BATCH_JOBS_MAX: usize = 1024;
const HEARTBEAT: Duration = Duration::from_millis(500);
const HEARTBEATS_MISSED_MAX: usize = 60;
/// More than are ever enqueued at once.
const EVENTS_MAX: usize = 1 << 20;
/// Whoever waits longer for a connection, or for SQLite's writer, has met a bug.
const PATIENCE: Duration = Duration::from_secs(60);

/// How many connections senders and worker share.
#[derive(Clone, Copy)]
pub(crate) struct Connections(pub(crate) u32);

/// Makes the tables, twice: with jobs the second time.
pub(crate) async fn set_up(file: &Path) -> Result<()> {
    for jobs in [ROWS_FOR_STATISTICS, 0] {
        let pool = SqlitePool::connect_with(options(file)).await?;
        SqliteStorage::setup(&pool).await?;
        fill(&pool, jobs).await?;
        pool.close().await;
    }
    Ok(())
}

/// Enqueues jobs in one commit, where nothing is measured.
async fn fill(pool: &SqlitePool, jobs: usize) -> Result<()> {
    Ok(storage(pool).push_stream(&mut futures::stream::repeat(PAYLOAD.to_owned()).take(jobs)).await?)
}

fn options(file: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new().filename(file).create_if_missing(true)
}

/// What its set-up asks for on one connection, on every one; but with syncs.
fn durable(file: &Path) -> SqliteConnectOptions {
    let options = options(file).synchronous(SqliteSynchronous::Full).busy_timeout(PATIENCE);
    options.pragma("temp_store", "MEMORY").pragma("cache_size", "64000").pragma("journal_size_limit", "67108864")
}

fn storage(pool: &SqlitePool) -> SqliteStorage<String> {
    let config = Config::default().queue("jobs").batch_size(BATCH_JOBS_MAX).lock_tasks(false);
    let config = config.heartbeat_interval(HEARTBEAT).missed_heartbeats(HEARTBEATS_MISSED_MAX);
    SqliteStorage::new(pool).with_config(config)
}

/// The queue, for one measure.
pub(crate) struct Jobs {
    pool: SqlitePool,
    /// Told of each job before its commit; a worker takes it.
    inserted: Option<UnboundedReceiver<()>>,
    /// Looks without taking a connection from those that are measured.
    aside: SqlitePool,
}

impl Jobs {
    /// Opens it with so many jobs that wait: those of the measure before, unless it was cut off.
    pub(crate) async fn open(file: &Path, Connections(connections): Connections, waiting: usize) -> Result<Self> {
        let (told, inserted) = unbounded();
        let pool = hooked(told).max_connections(connections).min_connections(connections);
        let pool = pool.acquire_timeout(PATIENCE).test_before_acquire(false).connect_with(durable(file)).await?;
        let aside = SqlitePoolOptions::new().max_connections(1).connect_with(durable(file)).await?;
        let queue = Self { pool, inserted: Some(inserted), aside };
        queue.expect_syncs().await?;
        queue.hold(waiting).await?;
        Ok(queue)
    }

    async fn hold(&self, waiting: usize) -> Result<()> {
        let old = sqlx::query("DELETE FROM Jobs WHERE status <> 'Pending' OR ? = 0").bind(waiting as i64);
        old.execute(&self.aside).await?;
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM Jobs").fetch_one(&self.aside).await?;
        let missing = waiting.checked_sub(usize::try_from(count)?).ok_or("more jobs wait than were put")?;
        fill(&self.aside, missing).await
    }

    /// That what is acknowledged is synced: 2 is FULL.
    async fn expect_syncs(&self) -> Result<()> {
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&self.pool).await?;
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&self.pool).await?;
        match (synchronous, journal.as_str()) {
            (2, "wal") => Ok(()),
            found => Err(format!("expected synchronous 2 and journal_mode wal, found {found:?}").into()),
        }
    }

    /// Enqueues jobs, one after the other or so many in a call from each client, until the moment at the latest; tells how many.
    pub(crate) async fn send(&self, clients: usize, jobs: usize, bulk: usize, until: Instant) -> Result<usize> {
        let clients = (0..clients).map(|_| {
            let mut storage = storage(&self.pool);
            tokio::spawn(async move {
                for call in 0..jobs / clients / bulk {
                    if Instant::now() >= until {
                        return Ok(call * bulk);
                    }
                    match bulk {
                        1 => storage.push(PAYLOAD.to_owned()).await?,
                        _ => storage.push_bulk(vec![PAYLOAD.to_owned(); bulk]).await?,
                    }
                }
                Result::Ok(jobs / clients / bulk * bulk)
            })
        });
        let mut sent = 0;
        for client in futures::future::join_all(clients).await {
            sent += client??;
        }
        Ok(sent)
    }

    /// Starts the one worker, which handles so many jobs at once.
    pub(crate) fn work(&mut self, concurrency: usize) -> Result<Worker> {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let inserted = self.inserted.take().ok_or("there is a worker already")?;
        let (tells, handled) = unbounded();
        let worker = WorkerBuilder::new(format!("worker-{}", STARTED.fetch_add(1, Ordering::Relaxed)))
            .backend(storage(&self.pool).poll_with_stream(inserted.ready_chunks(EVENTS_MAX)))
            .data::<Handled>(tells)
            .concurrency(concurrency)
            .build(handle);
        let task = tokio::spawn(async move {
            if let Err(why) = worker.run().await {
                eprintln!("apalis: the worker ended: {why}");
            }
        });
        Ok(Worker { handled, task })
    }

    /// How many jobs are durably done, when it are so many or the moment has come.
    pub(crate) async fn await_done(&self, wanted: usize, until: Instant) -> Result<usize> {
        loop {
            let count = sqlx::query_scalar("SELECT count(*) FROM Jobs WHERE status = 'Done'");
            let done: i64 = count.fetch_one(&self.aside).await?;
            let done = usize::try_from(done)?;
            if done >= wanted || Instant::now() >= until {
                return Ok(done);
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    }
}

/// Connections whose inserts of jobs are told.
fn hooked(told: UnboundedSender<()>) -> SqlitePoolOptions {
    SqlitePoolOptions::new().after_connect(move |connection, _| {
        let told = told.clone();
        Box::pin(async move {
            connection.lock_handle().await?.set_update_hook(move |change| {
                if change.operation == SqliteOperation::Insert && change.table == "Jobs" {
                    // Nobody listens while jobs are only enqueued.
                    let _heard = told.unbounded_send(());
                }
            });
            Ok(())
        })
    })
}

type Handled = UnboundedSender<Instant>;

async fn handle(payload: String, handled: Data<Handled>) -> std::result::Result<(), BoxDynError> {
    match payload == PAYLOAD {
        true => Ok(handled.unbounded_send(Instant::now())?),
        false => Err("another payload".into()),
    }
}

/// A worker, until it is ended.
pub(crate) struct Worker {
    handled: UnboundedReceiver<Instant>,
    task: JoinHandle<()>,
}

impl Worker {
    /// When the handler of one more job began; none if the moment comes before.
    pub(crate) async fn handled(&mut self, until: Instant) -> Option<Instant> {
        tokio::time::timeout_at(until.into(), self.handled.next()).await.ok().flatten()
    }

    pub(crate) async fn end(self) {
        self.task.abort();
        // It was aborted: there is nothing to hear.
        let _aborted = self.task.await;
    }
}
