//! `kauri-bench`: Kauri against its peers, in one run on one machine.
//!
//! ```text
//! kauri-bench wire [--quick] [--json FILE]
//! kauri-bench ledger [--quick] [--json FILE]
//! kauri-bench runtime [--quick] [--json FILE] [--folder DIR] [--depth N]
//! kauri-bench runs [--quick] [--json FILE] [--folder DIR]
//! kauri-bench doctor --kauri PROGRAM [--gib N] [--deep] [--quick] [--json FILE] [--folder DIR]
//! ```
//!
//! Progress goes to standard error, the table and the goals to standard output, and the same numbers as rows to FILE.
//! Goals are printed, never asserted: a run that misses one still exits with 0. Bad arguments exit with 2 and one line,
//! trouble with 1.

#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a binary at the edge: files, threads and clocks are its business")]
#![expect(clippy::print_stderr, reason = "a binary at the edge: progress and errors go to standard error")]

mod depth;
mod doctor;
mod ledger;
mod measure;
mod memory;
mod peer;
mod report;
mod runs;
mod runtime;
mod wire;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::measure::{Outcome, Plan, Workload};
use crate::report::Goal;

/// Benchmarks of Kauri against its peers.
#[derive(Parser)]
#[command(name = "kauri-bench", version, arg_required_else_help = false)]
struct Command {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Suite {
    /// Frames and keys: encode and decode, against prost, rmp-serde, bincode and memcpy.
    Wire(Options),
    /// The writer queue, the journal, locks and reconciliation, against bare SQLite and bare files.
    Ledger(Options),
    /// One reconciliation, in a process of its own.
    #[command(hide = true)]
    Reconcile { directory: PathBuf, lines: u64 },
    /// Steps, blocks and durable commits, against what the machine can do.
    Runtime(RuntimeOptions),
    /// Runs, events and durable steps, against what the machine can do.
    Runs(RuntimeOptions),
    /// What `kauri doctor` takes on a large home, which is made and removed.
    Doctor(DoctorOptions),
}

#[derive(Args)]
struct Options {
    /// Fewer and shorter rounds: a look, not a result.
    #[arg(long)]
    quick: bool,
    /// Write the rows to FILE, as a JSON array.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Another number of rounds, for tests.
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: Option<u32>,
    /// One part of the suite `ledger`, `runs` or `runtime` alone.
    #[arg(long, value_name = "PART", hide = true)]
    only: Option<String>,
}

#[derive(Args)]
struct RuntimeOptions {
    #[command(flatten)]
    common: Options,
    /// Where stores are made, and removed: a folder on the disk that is to be measured.
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Instead: what a step costs with N messages waiting, and what memory N messages leave behind.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    depth: Option<u32>,
}

#[derive(Args)]
struct DoctorOptions {
    #[command(flatten)]
    common: Options,
    /// The program, built as it ships.
    #[arg(long, value_name = "PROGRAM")]
    kauri: PathBuf,
    /// Where the home is made, and removed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// How large the home is, in gibibytes; with --quick a quarter of one.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    gib: u16,
    /// Also with --deep, once.
    #[arg(long)]
    deep: bool,
}

impl Options {
    /// The file for the rows. It is opened first, so that a bad path is not found out after a minute.
    fn file(&self) -> io::Result<Option<File>> {
        self.json.as_deref().map(|path| File::create(path).map_err(|error| named(path, &error))).transpose()
    }

    fn plan(&self) -> Plan {
        let plan = if self.quick { Plan::QUICK } else { Plan::FULL };
        Plan { rounds: self.rounds.unwrap_or(plan.rounds), ..plan }
    }
}

fn main() -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => return refuse(&error),
    };
    let done = match &command.suite {
        Suite::Wire(options) => {
            let fixtures = wire::Fixtures::new();
            run(options, fixtures.workloads(), wire::goals)
        }
        Suite::Ledger(options) => run_ledger(options),
        Suite::Reconcile { directory, lines } => {
            writeln!(io::stdout(), "{}", ledger::reconcile_once(directory, *lines))
        }
        Suite::Runtime(options) => run_runtime(options),
        Suite::Runs(options) => run_runs(options),
        Suite::Doctor(options) => run_doctor(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kauri-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Help and version are answers; anything else that is no command is one line and exit code 2.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nobody is left to tell if standard output is closed.
        let _closed = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let cause: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let cause = cause.join(" ");
    eprintln!("kauri-bench: {} (see kauri-bench --help)", cause.trim_start_matches("error: "));
    ExitCode::from(2)
}

/// Runs one suite and reports it.
fn run(options: &Options, workloads: Vec<Workload<'_>>, goals: fn(&[Outcome]) -> Vec<Goal>) -> io::Result<()> {
    let file = options.file()?;
    let (plan, count) = (options.plan(), workloads.len());
    let mut outcomes = Vec::with_capacity(count);
    for (at, workload) in workloads.into_iter().enumerate() {
        eprintln!("[{:>2}/{count}] {}", at + 1, workload.name());
        outcomes.push(workload.race(plan));
    }
    tell(&outcomes, &goals(&outcomes), file)
}

/// The same for a suite that waits for the disk.
fn run_ledger(options: &Options) -> io::Result<()> {
    let file = options.file()?;
    let plan = match (options.rounds, options.quick) {
        (Some(_), _) => ledger::Plan::LEAST,
        (None, true) => ledger::Plan::QUICK,
        (None, false) => ledger::Plan::FULL,
    };
    let outcomes = ledger::run(plan, options.only.as_deref(), |part| eprintln!("{part}"))?;
    tell(&outcomes, &ledger::goals(&outcomes), file)
}

/// The most messages of a quick look at the depth.
const DEPTH_QUICK: u32 = 300_000;

fn run_runtime(options: &RuntimeOptions) -> io::Result<()> {
    let file = options.common.file()?;
    let words = |error: Box<dyn std::error::Error>| io::Error::other(error.to_string());
    if let Some(depth) = options.depth {
        let most = if options.common.quick { depth.min(DEPTH_QUICK) } else { depth };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let outcomes = depth::run(most, |what| eprintln!("{what}")).map_err(words)?;
        return tell(&outcomes, &depth::goals(&outcomes), file);
    }
    let size = if options.common.quick { runtime::Size::QUICK } else { runtime::Size::FULL };
    let outcomes = runtime::run(size, &options.folder, options.common.only.as_deref(), |what| eprintln!("{what}"));
    let outcomes = outcomes.map_err(words)?;
    tell(&outcomes, &runtime::goals(&outcomes), file)
}

fn run_runs(options: &RuntimeOptions) -> io::Result<()> {
    let file = options.common.file()?;
    let size = match (options.common.rounds, options.common.quick) {
        (Some(_), _) => runs::Size::LEAST,
        (None, true) => runs::Size::QUICK,
        (None, false) => runs::Size::FULL,
    };
    let outcomes = runs::run(size, &options.folder, options.common.only.as_deref(), |what| eprintln!("{what}"));
    let outcomes = outcomes.map_err(|error| io::Error::other(error.to_string()))?;
    tell(&outcomes, &runs::goals(&outcomes), file)
}

fn run_doctor(options: &DoctorOptions) -> io::Result<()> {
    let file = options.common.file()?;
    let quarters = if options.common.quick { 1 } else { u64::from(options.gib) * 4 };
    let (folder, kauri) = (&*options.folder, &*options.kauri);
    let size = doctor::Size { quarters, folder, kauri, is_deep: options.deep };
    let outcomes = doctor::run(&size, |what| eprintln!("{what}"));
    let outcomes = outcomes.map_err(|error| io::Error::other(error.to_string()))?;
    tell(&outcomes, &doctor::goals(&outcomes), file)
}

fn tell(outcomes: &[Outcome], goals: &[Goal], file: Option<File>) -> io::Result<()> {
    if outcomes.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no part of this suite is called so: nothing was measured",
        ));
    }
    let mut out = io::stdout().lock();
    report::write_table(outcomes, &mut out)?;
    report::write_goals(goals, &mut out)?;
    out.flush()?;
    match file {
        Some(file) => report::write_json(outcomes, file),
        None => Ok(()),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
}
