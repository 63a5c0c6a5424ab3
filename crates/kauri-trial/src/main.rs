//! The trials as a command: crashes, kills and races for as long as it is told, or one crash again.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool at the edge: it reads the clock, makes directories and prints for a person"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use kauri_sim::{CrashPath, Explorer};
use kauri_trial::{LedgerTrial, kill, race};

#[derive(Parser)]
#[command(name = "kauri-trial", about = "Tries Kauri's ledger")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Crash ledgers on a simulated disk, of one seed after the other
    Crash {
        /// For how long
        #[arg(long, default_value_t = 1)]
        minutes: u64,
        /// The first seed
        #[arg(long, default_value_t = 1_000_000)]
        seed: u64,
        /// Points per seed
        #[arg(long, default_value_t = 20_000)]
        points: u64,
    },
    /// Repeat one crash that was found
    Replay {
        /// The seed that was printed
        seed: u64,
        /// The path that was printed
        path: CrashPath,
    },
    /// Kill processes that work on a ledger
    Kill {
        /// How many
        #[arg(long, default_value_t = 1_000)]
        count: u64,
        /// What they do, and when they are killed
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Have processes race for a lock
    Race {
        /// How many processes
        #[arg(long, default_value_t = 8)]
        processes: u32,
        /// How often each takes the lock
        #[arg(long, default_value_t = 1_250)]
        times: u64,
    },
    /// A process to be killed
    #[command(hide = true)]
    KillChild { directory: PathBuf, step: u64, before: u64, micros: u64, salt: u64 },
    /// A process that races
    #[command(hide = true)]
    RaceChild { directory: PathBuf, times: u64 },
}

fn trial(seed: u64) -> LedgerTrial {
    LedgerTrial::new(seed, 3 + seed % 8)
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Crash { minutes, seed, points } => crash(Duration::from_secs(60 * minutes), seed, points),
        Command::Replay { seed, path } => {
            Explorer::new(seed).replay(&trial(seed), &path).map(|()| "survived".to_owned())
        }
        Command::Kill { count, seed } => in_directory(|directory| {
            let kills = kill::kills(&this(), directory, seed, count)?;
            let kill::Kills { kills, actions, orphans, repairs, steps } = kills;
            eprintln!("{kills} kills, {actions} actions, {orphans} orphans, {repairs} repairs, by step {steps:?}");
            Ok(format!("{kills} kills"))
        }),
        Command::Race { processes, times } => in_directory(|directory| {
            let race::Races { taken, refused, told } = race::races(&this(), directory, processes, times)?;
            eprintln!("taken {taken} times, refused {refused} times, told who has it {told} times");
            Ok(format!("{taken} races"))
        }),
        Command::KillChild { directory, step, before, micros, salt } => {
            kill::child(&directory, step, before, micros, salt).map(|()| String::new())
        }
        Command::RaceChild { directory, times } => {
            race::child(&directory, times).map(|race| format!("{} {} {}", race.taken, race.refused, race.told))
        }
    };
    match done {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

fn this() -> PathBuf {
    std::env::current_exe().expect("this program")
}

/// Does something in a directory of its own, which is kept if it goes wrong.
fn in_directory(act: impl FnOnce(&Path) -> Result<String, String>) -> Result<String, String> {
    let path = std::env::temp_dir().join(format!("kauri-trial-{}", std::process::id()));
    std::fs::create_dir(&path).map_err(|error| error.to_string())?;
    let said = act(&path).map_err(|what| format!("{what}\nsee {}", path.display()))?;
    std::fs::remove_dir_all(&path).map_err(|error| error.to_string())?;
    Ok(said)
}

fn crash(limit: Duration, first: u64, points: u64) -> Result<String, String> {
    let began = Instant::now();
    let (mut tried, mut seed) = (0, first);
    while began.elapsed() < limit {
        let report = Explorer::new(seed).points(points).lives(3).explore(&trial(seed));
        tried += report.points;
        if let Some(violation) = report.violation {
            let again = format!("cargo run --release -p kauri-trial -- replay {seed} '{}'", violation.path);
            return Err(format!("{violation}\nagain: {again}"));
        }
        seed += 1;
        eprintln!("seed {seed}: {tried} points, no violation");
    }
    Ok(format!("{tried} points"))
}
