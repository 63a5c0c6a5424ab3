//! apalis with SQLite as a durable queue, for the suite `queue`: it reads what to measure, a line each, and answers with a number.
//!
//! ```text
//! kauri-peers-apalis FOLDER
//! put CLIENTS JOBS  |  bulk CLIENTS JOBS  |  work CLIENTS JOBS  |  through CLIENTS JOBS      seconds
//! wait COUNT                                                                                microseconds, at the median
//! ```
//!
//! What has no end after twenty seconds is cut off: the answer goes by what was done until then, and standard error says how much that was.
#![expect(clippy::disallowed_methods, reason = "a binary at the edge: it needs files, threads and the time")]

mod queue;

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::queue::{Connections, Jobs};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Measures are cut off after this.
const LONGEST: Duration = Duration::from_secs(20);
/// How many jobs are enqueued in one call by whoever has many.
const BULK: usize = 100;
/// Two connections are the fastest for many: more of them wait for SQLite's one writer by sleeping.
const MANY: Connections = Connections(2);
/// With one, the worker that a job has woken waits for the commit of that job in the pool, and not by sleeping.
const LONE: Connections = Connections(1);

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).ok_or("expected a folder")?;
    std::fs::create_dir_all(&folder)?;
    let file = Path::new(&folder).join("jobs");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(queue::set_up(&file))?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = runtime.block_on(measure(&file, &line?))?;
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

async fn measure(file: &Path, line: &str) -> Result<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| -> Result<usize> { Ok(words.get(at).ok_or("expected a number")?.parse()?) };
    let (done, wanted, answer) = match words.first() {
        Some(&"wait") => wait(file, number(1)?).await?,
        Some(&"put") => put(file, number(1)?, number(2)?, 1).await?,
        Some(&"bulk") => put(file, number(1)?, number(2)?, BULK).await?,
        Some(&"work") => work(file, number(1)?, 0, number(2)?).await?,
        Some(&"through") => work(file, number(1)?, number(1)?, number(2)?).await?,
        other => return Err(format!("expected put, bulk, work, through or wait, found {other:?}").into()),
    };
    if done < wanted {
        eprintln!("apalis: {line}: cut off after {} s with {done} of {wanted} jobs", LONGEST.as_secs());
    }
    match done {
        0 => Err(format!("{line}: nothing was done").into()),
        _ => Ok(answer),
    }
}

/// How many jobs of how many were done, and the answer.
type Measured = (usize, usize, f64);

/// The seconds that all would have taken, at the pace of those that were done.
fn paced(done: usize, wanted: usize, took: Duration) -> Measured {
    (done, wanted, took.as_secs_f64() * wanted as f64 / done.max(1) as f64)
}

/// Enqueues so many jobs in a call.
async fn put(file: &Path, clients: usize, jobs: usize, bulk: usize) -> Result<Measured> {
    let queue = Jobs::open(file, MANY, 0).await?;
    let began = Instant::now();
    let sent = queue.send(clients, jobs, bulk, began + LONGEST).await?;
    Ok(paced(sent, jobs, began.elapsed()))
}

/// Works jobs off while so many senders enqueue them, or afterwards.
async fn work(file: &Path, clients: usize, senders: usize, jobs: usize) -> Result<Measured> {
    let waiting = if senders == 0 { jobs } else { 0 };
    let mut queue = Jobs::open(file, MANY, waiting).await?;
    let began = Instant::now();
    let until = began + LONGEST;
    let mut worker = queue.work(clients)?;
    let (sent, ()) = futures::join!(queue.send(senders, jobs, 1, until), async {
        for _ in 0..jobs {
            if worker.handled(until).await.is_none() {
                return;
            }
        }
    });
    sent?;
    // Handlers have run; it is done when it is durable that they have.
    let done = queue.await_done(jobs, until).await?;
    let took = began.elapsed();
    worker.end().await;
    Ok(paced(done, jobs, took))
}

async fn wait(file: &Path, count: usize) -> Result<Measured> {
    let mut queue = Jobs::open(file, LONE, 0).await?;
    let until = Instant::now() + LONGEST;
    let mut worker = queue.work(1)?;
    let mut times = Vec::with_capacity(count);
    for sent in 1..=count {
        // It is idle when the job before is done, durably, and it has found no other.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let began = Instant::now();
        queue.send(1, 1, 1, until).await?;
        let Some(at) = worker.handled(until).await else { break };
        times.push(at.duration_since(began).as_secs_f64() * 1e6);
        queue.await_done(sent, until).await?;
    }
    worker.end().await;
    times.sort_by(f64::total_cmp);
    Ok((times.len(), count, times.get(times.len() / 2).copied().unwrap_or(f64::NAN)))
}
