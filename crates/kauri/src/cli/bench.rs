//! `kauri bench`: what this machine and this disk can do, in a few seconds.
//!
//! Each line is measured for the same time, in a new folder that is gone afterwards. It compares with nobody: `cargo xtask bench` does.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kauri::SystemClock;
use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{Atomic, Policy, Runtime, Write as _};
use kauri::tree::disk::OsDisk;
use kauri::tree::{Options, Store, Table, Write as _};
use kauri::wire::{Message, MessageId, MessageRef, WorkerId};
use serde_json::{Value, json};

use super::Trouble;
use super::progress::Progress;
use super::table::Table as Printed;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri bench                        in the folder where you are
  kauri bench --dir /srv/shop        on another disk
  kauri bench --seconds 5 --json

Nothing else should run meanwhile. A disk that answers a sync in microseconds has a battery, or lies.")]
pub(crate) struct Args {
    /// On the disk of this folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// How long each line is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let expected = || format!("expected seconds between 0.01 and 60, found {text:?}");
    let seconds: f64 = text.parse().map_err(|_| expected())?;
    (0.01..=60.0).contains(&seconds).then_some(seconds).ok_or_else(expected)
}

const ROWS: Table<u64, [u8]> = Table::new("rows");
/// What a row and a raw write hold.
const VALUE: [u8; 128] = [7; 128];
/// How many threads commit at once, where several do.
const THREADS: u64 = 8;
/// How many messages are sent at once, to be handled.
const BUNDLE: u64 = 1_000;
const WORKER: WorkerId = WorkerId(1);

/// A folder that is gone when this is.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is named as what it is.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// What was measured: how long each call took.
struct Measured {
    name: &'static str,
    what: &'static str,
    took: Vec<Duration>,
    per_call: u64,
    elapsed: Duration,
}

impl Measured {
    fn per_second(&self) -> f64 {
        (self.took.len() as u64 * self.per_call) as f64 / self.elapsed.as_secs_f64()
    }

    fn micros(&self, quantile: f64) -> f64 {
        let mut took = self.took.clone();
        took.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
        let at = ((took.len().saturating_sub(1)) as f64 * quantile) as usize;
        took.get(at).map_or(0.0, |took| took.as_secs_f64() * 1e6)
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "what": self.what,
            "per_second": self.per_second().round(),
            "calls": self.took.len(),
            "p50_us": (self.micros(0.5) * 10.0).round() / 10.0,
            "p99_us": (self.micros(0.99) * 10.0).round() / 10.0,
        })
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let wrong = |error: &dyn std::fmt::Display| Trouble::Wrong(format!("{}: {error}", args.dir.display()));
    let folder = Folder(args.dir.join(format!("kauri-bench-{}", std::process::id())));
    std::fs::DirBuilder::new().mode(0o700).create(&folder.0).map_err(|error| wrong(&error))?;
    let time = Duration::from_secs_f64(args.seconds);
    let mut table = Printed::new(&["", "PER SECOND", "P50 us", "P99 us", "WHAT"]);
    let lines: [(&str, &Line); 5] = [
        ("syncs", &syncs),
        ("commits", &commits),
        ("shared commits", &shared_commits),
        ("durable steps", &durable_steps),
        ("steps in memory", &memory_steps),
    ];
    for (name, measure) in lines {
        let progress = Progress::of(format!("measuring {name}"), !args.json);
        let measured = measure(&folder.0, time).map_err(|error| wrong(&error))?;
        drop(progress);
        match args.json {
            true => writeln!(out, "{}", measured.to_json())?,
            false => table.add([
                measured.name.to_owned(),
                format!("{:.0}", measured.per_second()),
                format!("{:.1}", measured.micros(0.5)),
                format!("{:.1}", measured.micros(0.99)),
                measured.what.to_owned(),
            ]),
        }
    }
    if args.json { Ok(()) } else { table.print("nothing", out) }
}

type Line = dyn Fn(&Path, Duration) -> kauri::runtime::Result<Measured>;

/// Calls until the time is over, and says how long each call took.
fn calls(
    time: Duration,
    mut call: impl FnMut(u64) -> kauri::runtime::Result<()>,
) -> kauri::runtime::Result<(Vec<Duration>, Duration)> {
    let (began, mut took) = (Instant::now(), Vec::new());
    while began.elapsed() < time || took.is_empty() {
        let start = Instant::now();
        call(took.len() as u64)?;
        took.push(start.elapsed());
    }
    Ok((took, began.elapsed()))
}

/// The floor under everything durable: bytes at the end of a file, and a sync.
fn syncs(folder: &Path, time: Duration) -> kauri::runtime::Result<Measured> {
    let file = File::create(folder.join("raw"))?;
    let (took, elapsed) = calls(time, |number| {
        file.write_all_at(&VALUE, number * VALUE.len() as u64)?;
        Ok(file.sync_data()?)
    })?;
    Ok(Measured { name: "syncs", what: "128 bytes written and synced (fdatasync)", took, per_call: 1, elapsed })
}

fn open(folder: &Path, name: &str) -> kauri::runtime::Result<Store> {
    Ok(Options::new().open(&OsDisk::new(folder)?, name)?)
}

fn commits(folder: &Path, time: Duration) -> kauri::runtime::Result<Measured> {
    let store = open(folder, "alone.kauri")?;
    let (took, elapsed) = calls(time, |number| put(&store, number))?;
    Ok(Measured {
        name: "commits",
        what: "of the store, one row each, one thread, durable",
        took,
        per_call: 1,
        elapsed,
    })
}

fn put(store: &Store, number: u64) -> kauri::runtime::Result<()> {
    let mut txn = store.begin();
    txn.put(&ROWS, number, &VALUE)?;
    Ok(txn.commit()?)
}

fn shared_commits(folder: &Path, time: Duration) -> kauri::runtime::Result<Measured> {
    let store = open(folder, "shared.kauri")?;
    let store = &store;
    let work = move |thread: u64| calls(time, |number| put(store, thread << 32 | number));
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        joined.collect::<kauri::runtime::Result<Vec<_>>>()
    })?;
    let elapsed = all.iter().map(|(_, elapsed)| *elapsed).max().unwrap_or(time);
    let took = all.into_iter().flat_map(|(took, _)| took).collect();
    Ok(Measured {
        name: "shared commits",
        what: "the same from 8 threads, which share syncs",
        took,
        per_call: 1,
        elapsed,
    })
}

fn durable_steps(folder: &Path, time: Duration) -> kauri::runtime::Result<Measured> {
    let (took, elapsed) = steps(open(folder, "steps.kauri")?, time)?;
    let what = "messages sent and handled, a row each, in batches of 64, durable";
    Ok(Measured { name: "durable steps", what, took, per_call: BUNDLE, elapsed })
}

fn memory_steps(_: &Path, time: Duration) -> kauri::runtime::Result<Measured> {
    let (took, elapsed) = steps(Store::in_memory()?, time)?;
    Ok(Measured { name: "steps in memory", what: "the same without a disk", took, per_call: BUNDLE, elapsed })
}

/// Sends bundles of messages and handles them; a call is a bundle.
fn steps(store: Store, time: Duration) -> kauri::runtime::Result<(Vec<Duration>, Duration)> {
    let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(SystemClock::new())).start()?;
    let keep = |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        let number = message.payload().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Ok(block.put(&ROWS, number, &VALUE)?)
    };
    let mut worker = runtime.worker_with(WORKER, Policy::default(), keep);
    calls(time, |bundle| {
        let numbers = bundle * BUNDLE..(bundle + 1) * BUNDLE;
        let message =
            |number: u64| Ok(Message::command(WORKER, MessageId::new(number.to_le_bytes())?, number.to_le_bytes()));
        let messages = numbers.map(message).collect::<kauri::runtime::Result<Vec<_>>>()?;
        runtime.send_all(&messages)?;
        worker.drain().map(drop)
    })
}
