//! Kauri's runtime against a queue in SQLite, both durable, in one process: the suite `queue` of the benchmarks.
//!
//! ```text
//! cargo xtask bench queue [--quick] [--json FILE]
//! ```
//!
//! The queue in SQLite is what people write: a table of jobs, write-ahead log, `synchronous = FULL`, so that a job that was accepted survives
//! a power cut, as with us. One worker claims a job (or a batch) in one transaction and deletes it in another. Handlers do nothing. All
//! times are on the wall: compare on a machine that is otherwise idle.
#![expect(clippy::disallowed_methods, reason = "a binary at the edge: it needs files and the time")]

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Atomic, Clock, Mono, Now, Policy, Runtime};
use kauri_tree::Store;
use kauri_wire::{Message, MessageId, MessageRef, Timestamp, WorkerId};
use rusqlite::{Connection, params};
use serde::Serialize;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Kauri's runtime against a queue in SQLite.
#[derive(Parser)]
#[command(name = "queue", version)]
struct Options {
    /// Fewer jobs: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Write the rows to FILE, as a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the stores in DIR while measuring, instead of beside this program. It must be on a disk.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    workload: String,
    ours: f64,
    peer: f64,
    peer_name: &'static str,
    ratio: f64,
    unit: &'static str,
}

const PAYLOAD: &[u8] = b"a payload of some bytes, as jobs have";
const WORKER: WorkerId = WorkerId(1);

fn main() -> Result<()> {
    let options = Options::parse();
    let mut json = options.json.as_deref().map(File::create).transpose()?;
    let folder = match &options.dir {
        Some(folder) => folder.clone(),
        None => std::env::current_exe()?.with_file_name("kauri-queue-stores"),
    }
    .join(std::process::id().to_string());
    fs::create_dir_all(&folder)?;
    let rows = measure(&folder, if options.quick { 300 } else { 3000 });
    fs::remove_dir_all(&folder)?;
    let rows = rows?;
    let mut out = std::io::stdout().lock();
    for row in &rows {
        writeln!(
            out,
            "{:<44} kauri {:>9.0} /s   {} {:>9.0} /s   ours is {:.1}x",
            row.workload, row.ours, row.peer_name, row.peer, row.ratio
        )?;
    }
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &rows)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn measure(folder: &Path, jobs: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for batch in [1, 64] {
        // Both take turns, three times; the best round of each counts, for the disk is shared with others.
        let (mut ours, mut theirs) = ([0.0_f64; 2], [0.0_f64; 2]);
        for round in 0..3 {
            let path = folder.join(format!("{batch}-{round}"));
            fs::create_dir_all(&path)?;
            for (best, rates) in [
                (&mut theirs, sqlite(&path.join("sqlite"), jobs * batch, batch)?),
                (&mut ours, kauri(&path.join("kauri"), jobs * batch, batch)?),
            ] {
                *best = [best[0].max(rates[0]), best[1].max(rates[1])];
            }
        }
        for (at, what) in ["enqueue", "drain a backlog"].into_iter().enumerate() {
            let workload = format!("{what}, durable, {batch} in a transaction");
            let (ours, peer) = (ours[at], theirs[at]);
            rows.push(Row { workload, ours, peer, peer_name: "queue in sqlite", ratio: ours / peer, unit: "/s" });
        }
    }
    Ok(rows)
}

fn rate(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64()
}

/// The clocks of the system.
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |wall| wall.as_millis());
        Now { mono: Mono(self.0.elapsed()), wall: Timestamp(i64::try_from(wall).unwrap_or(i64::MAX)) }
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// Jobs enqueued and drained in a second.
fn kauri(path: &Path, jobs: usize, batch: usize) -> Result<[f64; 2]> {
    let substrate = Arc::new(TreeSubstrate::new(Store::open(path)?));
    let runtime = Runtime::builder(substrate, Arc::new(SystemClock(Instant::now()))).start()?;
    let message = |number: usize| Ok(Message::command(WORKER, MessageId::new(number.to_string())?, PAYLOAD));
    let messages = (0..jobs).map(message).collect::<Result<Vec<_>>>()?;
    let began = Instant::now();
    for part in messages.chunks(batch) {
        runtime.send_all(part)?;
    }
    let enqueued = began.elapsed();
    let policy = Policy { batch_messages_max: batch, ..Policy::default() };
    let mut worker = runtime.worker_with(WORKER, policy, |_: &mut Atomic<'_>, _: MessageRef<'_>| Ok(()));
    let began = Instant::now();
    let handled = worker.drain()?;
    assert_eq!(handled, jobs, "every job was handled");
    Ok([rate(jobs, enqueued), rate(jobs, began.elapsed())])
}

fn sqlite(path: &Path, jobs: usize, batch: usize) -> Result<[f64; 2]> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE jobs (id INTEGER PRIMARY KEY, payload BLOB NOT NULL, claimed INTEGER NOT NULL DEFAULT 0);
         CREATE INDEX waiting ON jobs (id) WHERE claimed = 0;",
    )?;
    let numbers: Vec<usize> = (0..jobs).collect();
    let began = Instant::now();
    for part in numbers.chunks(batch) {
        let transaction = connection.transaction()?;
        for _ in part {
            transaction.prepare_cached("INSERT INTO jobs (payload) VALUES (?)")?.execute(params![PAYLOAD])?;
        }
        transaction.commit()?;
    }
    let enqueued = began.elapsed();
    let began = Instant::now();
    let mut handled = 0;
    loop {
        let transaction = connection.transaction()?;
        let claimed: Vec<(i64, Vec<u8>)> = transaction
            .prepare_cached(
                "UPDATE jobs SET claimed = 1 WHERE id IN (SELECT id FROM jobs WHERE claimed = 0 ORDER BY id LIMIT ?)
                 RETURNING id, payload",
            )?
            .query_map(params![batch as i64], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<std::result::Result<_, _>>()?;
        transaction.commit()?;
        if claimed.is_empty() {
            break;
        }
        handled += claimed.len();
        let transaction = connection.transaction()?;
        for (id, payload) in &claimed {
            assert_eq!(payload, PAYLOAD, "the handler reads its job");
            transaction.prepare_cached("DELETE FROM jobs WHERE id = ?")?.execute(params![id])?;
        }
        transaction.commit()?;
    }
    assert_eq!(handled, jobs, "every job was handled");
    Ok([rate(jobs, enqueued), rate(jobs, began.elapsed())])
}
