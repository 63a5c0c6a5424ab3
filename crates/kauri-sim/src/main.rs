//! The simulator as a command: crashes the store, or compares it with maps, for as long as it is told; or again in one way.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool at the edge: it reads the clock and prints for a person"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use kauri_sim::{CrashPath, Explorer, Rng, StoreTrial, Twin, TwinShape};

#[derive(Parser)]
#[command(name = "kauri-sim", about = "Crashes Kauri's store in every way there is")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Crash stores of one seed after the other
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
    /// Compare stores of one seed after the other with plain maps
    Model {
        /// For how long; 0 for one seed
        #[arg(long, default_value_t = 0)]
        minutes: u64,
        /// The first seed
        #[arg(long, default_value_t = 1_000_000)]
        seed: u64,
        /// Operations per seed
        #[arg(long, default_value_t = 200_000)]
        operations: u64,
    },
}

/// Page sizes are taken in turn.
const PAGE_BYTES: [usize; 6] = [256, 256, 256, 512, 1024, 4096];

fn trial(seed: u64) -> StoreTrial {
    let page_bytes = PAGE_BYTES[usize::try_from(seed % 6).expect("less than six")];
    StoreTrial::new(seed, page_bytes, 8 + seed % 17)
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::Crash { minutes, seed, points } => crash(Duration::from_secs(60 * minutes), seed, points),
        Command::Replay { seed, path } => match Explorer::new(seed).replay(&trial(seed), &path) {
            Ok(()) => {
                println!("survived");
                ExitCode::SUCCESS
            }
            Err(what) => {
                println!("{what}");
                ExitCode::FAILURE
            }
        },
        Command::Model { minutes, seed, operations } => model(Duration::from_secs(60 * minutes), seed, operations),
    }
}

fn crash(limit: Duration, first: u64, points: u64) -> ExitCode {
    let began = Instant::now();
    let (mut tried, mut seed) = (0, first);
    while began.elapsed() < limit {
        let report = Explorer::new(seed).points(points).lives(3).explore(&trial(seed));
        tried += report.points;
        if let Some(violation) = report.violation {
            println!("{violation}");
            println!("again: cargo run --release -p kauri-sim -- replay {seed} '{}'", violation.path);
            return ExitCode::FAILURE;
        }
        seed += 1;
        eprintln!("seed {seed}: {tried} points, no violation");
    }
    println!("{tried} points");
    ExitCode::SUCCESS
}

fn model(limit: Duration, first: u64, operations: u64) -> ExitCode {
    let began = Instant::now();
    let mut done = 0;
    for seed in first.. {
        let mut twin = Twin::new(TwinShape::of(seed), Rng::new(seed));
        let agreed = twin.work(operations);
        done += twin.operations();
        if let Err(what) = agreed {
            println!("seed {seed}: {what}");
            println!("again: cargo run -p kauri-sim -- model --seed {seed} --operations {operations}");
            return ExitCode::FAILURE;
        }
        eprintln!("seed {seed}: {done} operations, no difference");
        if began.elapsed() >= limit {
            break;
        }
    }
    println!("{done} operations");
    ExitCode::SUCCESS
}
