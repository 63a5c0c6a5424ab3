//! Kauri's runtime against durable queues that run here: the suite `queue` of the benchmarks.
//!
//! ```text
//! cargo xtask bench queue [--quick] [--json FILE] [--servers DIR]
//! ```
//!
//! Everybody promises the same: a job that was accepted, and that one is done, survives a power cut. Everybody has the same number of
//! clients, each with one job at a time on its way, and handlers that look at their payload and do nothing. Servers are
//! started here, in folders of their own, and spoken to over Unix sockets, NATS over loopback; we and SQLite are in this process, BullMQ and
//! apalis each in one of its own. `crates/kauri-peers/fetch-servers DIR` gets those that are not installed, for `--servers DIR`. All times
//! are on the wall: compare on a machine that is otherwise idle.
#![expect(clippy::disallowed_methods, reason = "a binary at the edge: it needs files, threads, servers and the time")]

mod beanstalk;
mod clients;
mod foreign;
mod nats;
mod ours;
mod peer;
mod postgres;
mod redis;
mod server;
mod sqlite;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use serde::Serialize;

use crate::beanstalk::Beanstalkd;
use crate::clients::Clients;
use crate::foreign::Foreign;
use crate::nats::Nats;
use crate::ours::{Ours, default_batch};
use crate::peer::{BULK, Queue, Result, Task};
use crate::postgres::Postgres;
use crate::redis::Redis;
use crate::server::find;
use crate::sqlite::Sqlite;

/// Kauri's runtime against durable queues.
#[derive(Parser)]
#[command(name = "queue", version)]
struct Options {
    /// Fewer jobs and rounds: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Write the rows to FILE, as a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the stores in DIR while measuring, instead of beside this program. It must be on a disk.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Look for servers in DIR too, where `fetch-servers` has put them.
    #[arg(long, value_name = "DIR")]
    servers: Option<PathBuf>,
    /// Compare with the queues alone whose name contains WORD; with none: ours by itself.
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Measure this alone, to be looked at by a profiler: put, bulk, work, through or wait.
    #[arg(long, value_name = "TASK", value_parser = ["put", "bulk", "work", "through", "wait"])]
    task: Option<String>,
    /// So many rounds.
    #[arg(long, value_name = "COUNT")]
    rounds: Option<usize>,
    /// So many clients and workers at once, where there are many.
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u16).range(2..=400))]
    clients: u16,
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

/// What one queue came to.
#[derive(Clone, Copy, Default)]
struct Rates {
    /// Jobs a second, by number of clients.
    put: [f64; 2],
    bulk: [f64; 2],
    work: [f64; 2],
    through: [f64; 2],
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
    let (jobs, waits, rounds) = if options.quick { (3200, 100, 2) } else { (12_800, 500, 3) };
    let clients = [1, usize::from(options.clients)];
    let extent = Extent { clients, jobs, waits, task: options.task.as_deref() };
    let rounds = options.rounds.unwrap_or(rounds);
    let single = Ours::start(&folder.join("kauri-single"), 1)?;
    let ours = Ours::start(&folder.join("kauri"), default_batch())?;
    let mut here = Vec::new();
    for (name, peer) in peers(folder, options) {
        match peer {
            Ok(peer) => here.push((peer, Rates::default())),
            Err(why) => writeln!(out, "{name}: not here: {why}")?,
        }
    }
    // Taking turns, some times; the best round of each counts, for the disk is shared with others.
    let (mut best, mut best_single) = (Rates::default(), Rates::default());
    for _ in 0..rounds {
        best = best.better(Rates::of(&ours, extent)?);
        best_single = best_single.better(Rates::of(&single, extent)?);
        for (peer, best) in &mut here {
            *best = best.better(Rates::of(&**peer, extent)?);
        }
    }
    best.put = most(best.put, best_single.put);
    best.bulk = most(best.bulk, best_single.bulk);
    let mut rows = rows("itself, a commit for each", clients, best, Some(best_single), best_single);
    for (peer, theirs) in &here {
        let single = (!peer.works_in_batches()).then_some(best_single);
        rows.extend(crate::rows(peer.name(), clients, best, single, *theirs));
    }
    Ok(rows)
}

type Start = fn(&Path, Option<&Path>) -> Result<Box<dyn Queue>>;

/// The queues that can be had here, and why others cannot.
fn peers(folder: &Path, options: &Options) -> Vec<(&'static str, Result<Box<dyn Queue>>)> {
    let all: [(&str, Start); 8] = [
        ("sqlite", |folder, _| Ok(Box::new(Clients(Sqlite::start(folder)?)))),
        ("apalis", |folder, _| Ok(Box::new(apalis(folder)?))),
        ("postgres", |folder, servers| Ok(Box::new(Clients(Postgres::start(folder, servers)?)))),
        ("postgres-batches", |folder, servers| Ok(Box::new(Clients(Postgres::start_in_batches(folder, servers)?)))),
        ("beanstalkd", |folder, servers| Ok(Box::new(Clients(Beanstalkd::start(folder, servers)?)))),
        ("redis", |folder, servers| Ok(Box::new(Clients(Redis::start(folder, servers)?)))),
        ("bullmq", |folder, servers| bullmq(folder, servers)),
        ("nats", |folder, servers| Ok(Box::new(Clients(Nats::start(folder, servers)?)))),
    ];
    let wanted = |name: &str| options.only.as_deref().is_none_or(|only| name.contains(only));
    let start = |(name, start): (&'static str, Start)| (name, start(&folder.join(name), options.servers.as_deref()));
    all.into_iter().filter(|(name, _)| wanted(name)).map(start).collect()
}

/// apalis, by its own program: its SQLite cannot be linked beside ours. `cargo xtask bench queue` builds it.
fn apalis(folder: &Path) -> Result<Foreign> {
    let program = std::env::current_exe()?.with_file_name("kauri-peers-apalis");
    if !program.is_file() {
        return Err("no program kauri-peers-apalis beside this one".into());
    }
    Ok(Foreign::start("apalis, sqlite", Command::new(program).arg(folder))?.in_batches())
}

/// BullMQ on a Redis of its own.
struct BullMq {
    queue: Foreign,
    _redis: Redis,
}

fn bullmq(folder: &Path, servers: Option<&Path>) -> Result<Box<dyn Queue>> {
    let node = find("node", servers).ok_or("no node")?;
    let modules = servers.map(|servers| servers.join("bullmq/node_modules")).filter(|modules| modules.is_dir());
    let modules = modules.ok_or("no folder bullmq/node_modules among the servers")?;
    let redis = Redis::start(folder, servers)?;
    let mut command = Command::new(node);
    command.arg("-e").arg(include_str!("bullmq.cjs")).arg(redis.socket()).env("NODE_PATH", modules);
    Ok(Box::new(BullMq { queue: Foreign::start("bullmq, aof always", &mut command)?, _redis: redis }))
}

impl Queue for BullMq {
    fn name(&self) -> &'static str {
        self.queue.name()
    }

    fn run(&self, task: Task, clients: usize, jobs: usize) -> Result<f64> {
        self.queue.run(task, clients, jobs)
    }

    fn wait(&self, count: usize) -> Result<f64> {
        self.queue.wait(count)
    }
}

/// What is measured of each queue.
#[derive(Clone, Copy)]
struct Extent<'a> {
    /// How many clients at once.
    clients: [usize; 2],
    jobs: usize,
    waits: usize,
    task: Option<&'a str>,
}

impl Extent<'_> {
    fn wants(&self, task: &str) -> bool {
        self.task.is_none_or(|only| only == task)
    }
}

impl Rates {
    fn of(queue: &dyn Queue, extent: Extent<'_>) -> Result<Self> {
        let mut rates = Self::default();
        for (at, clients) in extent.clients.into_iter().enumerate() {
            let jobs = share(extent.jobs, clients);
            let rate = |task| queue.run(task, clients, jobs).map(|took| jobs as f64 / took);
            // What was enqueued is worked off.
            if extent.wants(Task::Put.name()) || extent.wants(Task::Work.name()) {
                rates.put[at] = rate(Task::Put)?;
                rates.work[at] = rate(Task::Work)?;
            }
            if extent.wants(Task::Bulk.name()) {
                rates.bulk[at] = rate(Task::Bulk)?;
                rates.work[at] = rates.work[at].max(rate(Task::Work)?);
            }
            if extent.wants(Task::Through.name()) {
                rates.through[at] = rate(Task::Through)?;
            }
        }
        if extent.wants("wait") {
            rates.wait = queue.wait(extent.waits)?;
        }
        Ok(rates)
    }

    fn better(self, other: Self) -> Self {
        let wait = if self.wait > 0.0 { self.wait.min(other.wait) } else { other.wait };
        Self {
            put: most(self.put, other.put),
            bulk: most(self.bulk, other.bulk),
            work: most(self.work, other.work),
            through: most(self.through, other.through),
            wait,
        }
    }
}

fn most(left: [f64; 2], right: [f64; 2]) -> [f64; 2] {
    [left[0].max(right[0]), left[1].max(right[1])]
}

/// Fewer jobs for a lone client: each waits for the disk.
fn share(jobs: usize, clients: usize) -> usize {
    if clients == 1 { jobs / 16 } else { jobs / clients * clients }
}

/// Ours as it comes, where a worker takes several messages at a time; ours with a commit for each, beside those that do the same; and theirs.
fn rows(peer_name: &'static str, clients: [usize; 2], ours: Rates, single: Option<Rates>, theirs: Rates) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, clients) in clients.into_iter().enumerate() {
        let mut add = |workload: String, ours: f64, peer: f64| {
            rows.push(Row { workload, ours, peer, peer_name, ratio: ours / peer, unit: "/s" });
        };
        add(format!("enqueue, {clients} clients"), ours.put[at], theirs.put[at]);
        add(format!("enqueue, {BULK} in a call, {clients} clients"), ours.bulk[at], theirs.bulk[at]);
        add(format!("work off, {clients} workers"), ours.work[at], theirs.work[at]);
        if let Some(single) = single {
            add(format!("work off, {clients} workers, a commit each"), single.work[at], theirs.work[at]);
        }
        add(format!("enqueue and work off, {clients} of each"), ours.through[at], theirs.through[at]);
    }
    let workload = "enqueue to handler, idle worker, median".to_owned();
    let (ours, peer) = (ours.wait, theirs.wait);
    rows.push(Row { workload, ours, peer, peer_name, ratio: peer / ours, unit: "us" });
    rows
}

fn tell(rows: &[Row], out: &mut impl Write) -> Result<()> {
    // What was not asked for is nothing.
    for Row { workload, ours, peer, peer_name, ratio, unit } in rows.iter().filter(|row| row.ratio.is_finite()) {
        writeln!(
            out,
            "{workload:<44} kauri {ours:>8.0} {unit:<3} {peer_name:<24} {peer:>8.0} {unit:<3} ours is {ratio:.1}x"
        )?;
    }
    Ok(())
}
