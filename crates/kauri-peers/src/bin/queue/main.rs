//! Kauri's runtime against durable queues that run here: the suite `queue` of the benchmarks.
//!
//! ```text
//! cargo xtask bench queue [--quick] [--json FILE]       servers elsewhere than on the path: queue --servers DIR
//! ```
//!
//! Everybody promises the same: a job that was accepted, and that one is done, survives a power cut. Everybody has the same number of
//! clients, each with one job at a time on its way, and handlers that look at their payload and do nothing. Servers are
//! started here, in folders of their own, and spoken to over Unix sockets; we and SQLite are in this process. All times are on
//! the wall: compare on a machine that is otherwise idle.
#![expect(clippy::disallowed_methods, reason = "a binary at the edge: it needs files, threads, servers and the time")]

mod beanstalk;
mod ours;
mod peer;
mod postgres;
mod redis;
mod server;
mod sqlite;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Parser;
use serde::Serialize;

use crate::beanstalk::Beanstalkd;
use crate::ours::Ours;
use crate::peer::{Peer, Result};
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::sqlite::Sqlite;

/// Kauri's runtime against durable queues.
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
    /// Look for servers in DIR too.
    #[arg(long, value_name = "DIR")]
    servers: Option<PathBuf>,
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

/// How many clients at once.
const CLIENTS: [usize; 2] = [1, 32];
/// How many messages one of our instances takes at a time, where it may take several.
const BATCH: usize = 64;

/// What one queue came to. What is not measured is 0.
#[derive(Clone, Copy, Default)]
struct Rates {
    /// Jobs a second, by number of clients.
    put: [f64; 2],
    work: [f64; 2],
    /// As `work`, where a worker takes several.
    batch: [f64; 2],
    /// Microseconds from enqueueing to the handler of an idle worker, at the median.
    wait: f64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut json = options.json.as_deref().map(File::create).transpose()?;
    let folder = match &options.dir {
        Some(folder) => folder.clone(),
        None => std::env::current_exe()?.with_file_name("kauri-queue-stores"),
    };
    let folder = folder.join(std::process::id().to_string());
    fs::create_dir_all(&folder)?;
    let mut out = std::io::stdout().lock();
    let rows = measure(&folder, &options, &mut out);
    fs::remove_dir_all(&folder)?;
    let rows = rows?;
    tell(&rows, &mut out)?;
    if let Some(file) = &mut json {
        serde_json::to_writer_pretty(&mut *file, &rows)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}

fn measure(folder: &Path, options: &Options, out: &mut impl Write) -> Result<Vec<Row>> {
    let jobs = if options.quick { 3200 } else { 12_800 };
    let waits = if options.quick { 100 } else { 500 };
    let (ours, servers) = (Ours::start(&folder.join("kauri"))?, options.servers.as_deref());
    let peers: [(&str, Result<Box<dyn Peer>>); 4] = [
        ("sqlite", Sqlite::start(&folder.join("sqlite")).map(boxed)),
        ("postgres", Postgres::start(&folder.join("postgres"), servers).map(boxed)),
        ("beanstalkd", Beanstalkd::start(&folder.join("beanstalkd"), servers).map(boxed)),
        ("redis-server", Redis::start(&folder.join("redis"), servers).map(boxed)),
    ];
    let mut here = Vec::new();
    for (name, peer) in peers {
        match peer {
            Ok(peer) => here.push((peer, Rates::default())),
            Err(why) => writeln!(out, "{name}: not here: {why}")?,
        }
    }
    // Taking turns, three times; the best round of each counts, for the disk is shared with others.
    let mut best = Rates::default();
    for _ in 0..3 {
        best = best.better(rates_of_ours(&ours, jobs, waits)?);
        for (peer, best) in &mut here {
            *best = best.better(rates_of(&**peer, jobs, waits)?);
        }
    }
    Ok(here.iter().flat_map(|(peer, theirs)| rows(peer.name(), best, *theirs)).collect())
}

fn boxed(peer: impl Peer + 'static) -> Box<dyn Peer> {
    Box::new(peer)
}

impl Rates {
    fn better(self, other: Self) -> Self {
        let most = |left: [f64; 2], right: [f64; 2]| [left[0].max(right[0]), left[1].max(right[1])];
        let wait = if self.wait > 0.0 { self.wait.min(other.wait) } else { other.wait };
        Self {
            put: most(self.put, other.put),
            work: most(self.work, other.work),
            batch: most(self.batch, other.batch),
            wait,
        }
    }
}

/// Fewer jobs for a lone client: each waits for the disk.
fn share(jobs: usize, clients: usize) -> usize {
    if clients == 1 { jobs / 16 } else { jobs / clients * clients }
}

fn rate(jobs: usize, took: Duration) -> f64 {
    jobs as f64 / took.as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn rates_of_ours(ours: &Ours, jobs: usize, waits: usize) -> Result<Rates> {
    let mut rates = Rates::default();
    for (at, clients) in CLIENTS.into_iter().enumerate() {
        let jobs = share(jobs, clients);
        let put = || together(clients, |client| (0..jobs / clients).try_for_each(|job| ours.put(client * jobs + job)));
        rates.put[at] = rate(jobs, put()?);
        rates.work[at] = rate(jobs, ours.drain(jobs, clients, 1)?);
        put()?;
        rates.batch[at] = rate(jobs, ours.drain(jobs, clients, BATCH)?);
    }
    rates.wait = median(ours.waits(waits)?);
    Ok(rates)
}

fn rates_of(peer: &dyn Peer, jobs: usize, waits: usize) -> Result<Rates> {
    let mut rates = Rates::default();
    for (at, clients) in CLIENTS.into_iter().enumerate() {
        let jobs = share(jobs, clients);
        let put = together(clients, |_| {
            let mut client = peer.connect()?;
            (0..jobs / clients).try_for_each(|_| client.put())
        })?;
        rates.put[at] = rate(jobs, put);
        let done = AtomicUsize::new(0);
        let work = together(clients, |_| {
            let mut client = peer.connect()?;
            while client.work()? {
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        if done.into_inner() != jobs {
            return Err(format!("{} lost jobs, or found too many", peer.name()).into());
        }
        rates.work[at] = rate(jobs, work);
    }
    rates.wait = median(waits_of(peer, waits)?);
    Ok(rates)
}

/// Runs something for each client on a thread of its own, and tells how long all of it took.
fn together(clients: usize, run: impl Fn(usize) -> Result<()> + Sync) -> Result<Duration> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                scope.spawn({
                    let run = &run;
                    move || run(client)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client panicked")?)
    })?;
    Ok(began.elapsed())
}

fn waits_of(peer: &dyn Peer, count: usize) -> Result<Vec<f64>> {
    let (told, hears) = mpsc::channel();
    let mut worker = peer.connect()?;
    let mut sender = peer.connect()?;
    sender.notify();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            (0..count).try_for_each(|_| {
                worker.wait()?;
                told.send(Instant::now())?;
                worker.finish()
            })
        });
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let began = Instant::now();
            sender.put()?;
            let at = hears.recv().map_err(|_| format!("the worker of {} ended", peer.name()))?;
            times.push(at.duration_since(began).as_secs_f64() * 1e6);
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(times)
    })
}

fn rows(peer_name: &'static str, ours: Rates, theirs: Rates) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, clients) in CLIENTS.into_iter().enumerate() {
        let mut add = |workload: String, ours: f64, peer: f64| {
            rows.push(Row { workload, ours, peer, peer_name, ratio: ours / peer, unit: "/s" });
        };
        add(format!("enqueue, {clients} clients"), ours.put[at], theirs.put[at]);
        add(format!("work off, {clients} workers, a commit each"), ours.work[at], theirs.work[at]);
        add(format!("work off, {clients} workers, ours take up to {BATCH}"), ours.batch[at], theirs.work[at]);
    }
    let workload = "enqueue to handler, idle worker, median".to_owned();
    rows.push(Row {
        workload,
        ours: ours.wait,
        peer: theirs.wait,
        peer_name,
        ratio: theirs.wait / ours.wait,
        unit: "us",
    });
    rows
}

fn tell(rows: &[Row], out: &mut impl Write) -> Result<()> {
    for Row { workload, ours, peer, peer_name, ratio, unit } in rows {
        writeln!(
            out,
            "{workload:<44} kauri {ours:>8.0} {unit:<3} {peer_name:<24} {peer:>8.0} {unit:<3} ours is {ratio:.1}x"
        )?;
    }
    Ok(())
}
