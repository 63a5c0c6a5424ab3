//! `kauri-peers`: Kauri's store against other storage engines, in one process: the suite `store` of the benchmarks.
//!
//! ```text
//! cargo xtask bench store [--quick] [--json FILE] [--scaling [--rows N]]
//! ```
//!
//! Progress goes to standard error, the table and the goals to standard output, and the same numbers as rows to FILE. Goals are
//! printed, never asserted. Single-threaded work is measured in processor time of its thread, and work that waits for the
//! disk or has several threads by the clock on the wall; of writes without sync both are shown.

#![deny(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a binary at the edge: it needs files, threads and the time")]

mod contender;
mod data;
mod engine;
mod goal;
mod kinds;
mod outcome;
mod report;
mod scaling;
mod suite;

// Of the workspace's own benchmarks.
#[path = "../../kauri-bench/src/memory.rs"]
mod memory;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::data::Shape;
use crate::outcome::Sheet;
use crate::suite::{Part, Plan, Suite};

/// Kauri's store against LMDB, redb and fjall.
#[derive(Parser)]
#[command(name = "kauri-peers", version)]
struct Options {
    /// Fewer rows and rounds: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Write the rows to FILE, as a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Keep the stores in DIR while measuring, instead of beside this program. It must be on a disk.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Measure only this part.
    #[arg(long, value_name = "PART")]
    part: Option<Part>,
    /// Measure what our operations cost with ever more rows, instead.
    #[arg(long, conflicts_with = "part")]
    scaling: bool,
    /// The most rows, when scaling: 100 million, or a million if quick.
    #[arg(long, value_name = "N", requires = "scaling")]
    rows: Option<u64>,
}

impl Options {
    fn measures(&self, part: Part) -> bool {
        self.part.is_none_or(|only| only == part)
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kauri-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<()> {
    // Opened first, so that a bad path is not found out after minutes.
    let json = options.json.as_deref().map(create).transpose()?;
    let folder = match &options.dir {
        Some(folder) => folder.clone(),
        None => std::env::current_exe()?.with_file_name("kauri-peers-stores"),
    }
    .join(std::process::id().to_string());
    if options.scaling {
        return scale(options, &folder, json);
    }
    let sheet = measure(options, &folder);
    fs::remove_dir_all(&folder)?;
    let mut out = io::stdout().lock();
    report::write_table(&sheet, &mut out)?;
    writeln!(out, "\ngoals")?;
    goal::lines(&sheet).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out, "\nload average at the end: {}. Durable commits compare only on an idle machine.", load())?;
    out.flush()?;
    json.map_or(Ok(()), |file| report::write_json(&sheet, file))
}

fn scale(options: &Options, folder: &Path, json: Option<File>) -> io::Result<()> {
    let lines = scaling::measure(scaling::Plan::new(options.rows, options.quick), folder)?;
    fs::remove_dir_all(folder)?;
    let mut out = io::stdout().lock();
    scaling::write_table(&lines, &mut out)?;
    writeln!(out, "load average at the end: {}", load())?;
    json.map_or(Ok(()), |file| scaling::write_json(&lines, file))
}

fn create(path: &Path) -> io::Result<File> {
    File::create(path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
}

fn measure(options: &Options, folder: &Path) -> Sheet {
    let mut sheet = Sheet::default();
    let shapes = if options.part == Some(Part::Kinds) { &[][..] } else { &[Shape::A, Shape::B, Shape::C] };
    for &shape in shapes {
        let plan = if options.quick { Plan::quick(shape) } else { Plan::full(shape) };
        let mut suite = Suite::new(shape, plan, folder, &mut sheet);
        for part in Part::SHAPED.into_iter().filter(|part| options.measures(*part) && part.is_of(shape)) {
            eprintln!("{} {part:?} (load average {})", shape.name, load());
            suite.measure(part);
        }
    }
    if options.measures(Part::Kinds) {
        eprintln!("kinds (load average {})", load());
        kinds::measure(kinds::Plan::new(options.quick), folder, &mut sheet);
    }
    sheet
}

/// How busy the machine is, as it says itself.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|load| !load.is_empty()).map_or_else(|| "unknown".to_owned(), String::from)
}
