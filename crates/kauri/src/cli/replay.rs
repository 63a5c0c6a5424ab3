//! `kauri replay`: recordings of steps, shown and verified.
//!
//! To run the steps again needs the handlers, which are the application's: `Replay::run` of the library does it. What can be told
//! without them is told here.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use kauri::Layout;
use kauri::runtime::substrate::Substrate as _;
use kauri::runtime::{self, Replay};
use kauri::wire::MessageRef;
use serde_json::json;

use super::Trouble;
use super::home::open_store;
use super::messages::{frame_cells, frame_json};
use super::progress::Progress;
use super::table::{Zone, list, plain, text_of};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri demo --home try --record steps.jsonl
  kauri replay show steps.jsonl --limit 5
  kauri replay verify steps.jsonl --home try

A recording is written by a Recorder that a runtime has as its observer. Only the program with the handlers can run the steps again:
kauri::runtime::Replay::run does, on a fork of the store, and names the first row that comes out another way.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the steps of a recording, in order
    #[command(after_help = "Example:\n  kauri replay show steps.jsonl --json | jq .message.payload")]
    Show {
        /// The recording
        file: PathBuf,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "STEPS")]
        limit: usize,
        #[command(flatten)]
        zone: Zone,
    },
    /// Look at every step, and whether a store still has what was written last; exit code 1 if something is wrong
    ///
    /// With --home, each row that the recording says was written must be in the store as it was written last. That holds if
    /// everything since then was recorded.
    #[command(after_help = "Example:\n  kauri replay verify steps.jsonl --home /srv/shop")]
    Verify {
        /// The recording
        file: PathBuf,
        /// Compare with the store of this home
        #[arg(long, value_name = "DIR")]
        home: Option<PathBuf>,
    },
}

/// How many faults are told.
const FAULTS_MAX: usize = 20;

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    match &args.command {
        Command::Show { file, limit, zone } => show(file, *limit, zone, args.json, out),
        Command::Verify { file, home } => verify(file, home.as_deref(), args.json, out),
    }
}

fn read(path: &Path) -> Result<Replay, Trouble> {
    let wrong = |error: &dyn std::fmt::Display| Trouble::Wrong(format!("{}: {error}", path.display()));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    Replay::read(BufReader::new(file)).map_err(|error| wrong(&error))
}

fn show(path: &Path, limit: usize, zone: &Zone, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let replay = read(path)?;
    let rows = replay.steps().take(limit).map(|step| {
        let [_, id, payload] = frame_cells(step.frame);
        let (worker, seq) = (step.key.worker, step.key.seq);
        let value = json!({
            "worker": worker.0,
            "seq": seq.0,
            "at": super::table::moment(step.wall.0),
            "rows": step.rows,
            "message": frame_json(step.frame),
        });
        let cells =
            vec![worker.to_string(), seq.to_string(), zone.moment(step.wall.0), step.rows.to_string(), id, payload];
        (value, cells)
    });
    list(rows, json, &["WORKER", "SEQ", "AT", "ROWS", "MESSAGE", "PAYLOAD"], "no steps", out)
}

fn verify(path: &Path, home: Option<&Path>, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let progress = Progress::of("looking at every step", !json);
    let replay = read(path)?;
    let mut faults = check_steps(&replay);
    let compared = home.map(|home| compare(&replay, home, &mut faults)).transpose()?;
    drop(progress);
    let (steps, is_whole) = (replay.len(), faults.is_empty());
    if json {
        let value = json!({ "whole": is_whole, "steps": steps, "rows_compared": compared, "faults": faults });
        writeln!(out, "{value}")?;
    } else {
        let rows = compared.map(|rows| format!(", {rows} rows compared with the store")).unwrap_or_default();
        writeln!(out, "{}: {steps} steps{rows}", if is_whole { "whole" } else { "NOT whole" })?;
        faults.iter().try_for_each(|fault| writeln!(out, "- {}", plain(fault)))?;
        writeln!(out, "To run them again through your handlers: kauri::runtime::Replay::run.")?;
    }
    if is_whole { Ok(()) } else { Err(Trouble::No) }
}

/// What a step must be, whatever its handler: a message to its worker, handled once.
fn check_steps(replay: &Replay) -> Vec<String> {
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    for step in replay.steps() {
        let name = format!("step {}/{}", step.key.worker, step.key.seq);
        if !seen.insert(step.key) {
            faults.push(format!("{name} is recorded twice"));
        }
        match MessageRef::decode(step.frame) {
            Err(error) => faults.push(format!("{name} has no message: {error}")),
            Ok(message) if message.to() != step.key.worker => {
                faults.push(format!("{name} has a message to worker {}", message.to()));
            }
            Ok(_) => {}
        }
        if faults.len() >= FAULTS_MAX {
            break;
        }
    }
    faults
}

/// Compares what was written last with what is there, and tells how many rows that are.
fn compare(replay: &Replay, home: &Path, faults: &mut Vec<String>) -> Result<usize, Trouble> {
    let layout = Layout::of(home);
    let failed = |error: runtime::Error| Trouble::Wrong(format!("{}: {error}", layout.store().display()));
    let substrate = open_store(&layout).map_err(|error| failed(error.into()))?;
    let missing = || Trouble::Wrong(format!("{}: there is no store", layout.store().display()));
    let substrate = substrate.ok_or_else(missing)?;
    let rows = substrate.snapshot().map_err(failed)?;
    let (compared, different) = replay.compare(&*rows, FAULTS_MAX).map_err(failed)?;
    faults.extend(different.into_iter().map(|divergence| {
        let row = divergence.row.map_or_else(String::new, |(table, key)| format!("{table} {}", text_of(&key)));
        format!("{row}, written last by step {}/{}: {}", divergence.key.worker, divergence.key.seq, divergence.what)
    }));
    Ok(compared)
}
