//! The simulator as a command: crashes the store or whole worlds, or compares the store with maps, for as long as it is told; or again in
//! one way.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool at the edge: it reads the clock and prints for a person"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use kauri_sim::{CrashPath, Explorer, Rng, RunTrial, StoreTrial, Twin, TwinShape, WorldTrial};

#[derive(Parser)]
#[command(name = "kauri-sim", about = "Crashes Kauri in every way there is")]
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
    /// Run worlds of workers under every fault, one seed after the other
    World {
        /// For how long
        #[arg(long, default_value_t = 1, conflicts_with = "seed")]
        minutes: u64,
        /// Only this one, and a shorter story of it if it fails
        #[arg(long)]
        seed: Option<u64>,
        /// The first of many
        #[arg(long, default_value_t = 1_000_000)]
        first: u64,
    },
    /// Run worlds of jobs under every fault, one seed after the other
    Runs {
        /// For how long
        #[arg(long, default_value_t = 1, conflicts_with = "seed")]
        minutes: u64,
        /// Only this one
        #[arg(long)]
        seed: Option<u64>,
        /// The first of many
        #[arg(long, default_value_t = 1_000_000)]
        first: u64,
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
        Command::World { seed: Some(seed), .. } => world(seed),
        Command::World { minutes, first, .. } => worlds(Duration::from_secs(60 * minutes), first),
        Command::Runs { seed: Some(seed), .. } => runs(Duration::ZERO, seed),
        Command::Runs { minutes, first, .. } => runs(Duration::from_secs(60 * minutes), first),
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

/// One world. If it fails, what is left of it when whatever is not needed for that is left out.
fn world(seed: u64) -> ExitCode {
    match WorldTrial::new(seed).run() {
        Ok(story) => {
            println!("{story:?}");
            ExitCode::SUCCESS
        }
        Err(what) => {
            println!("{what}\nagain: cargo run --release -p kauri-sim -- world --seed {seed}");
            println!("in short: {:?}", WorldTrial::new(seed).shrunk());
            ExitCode::FAILURE
        }
    }
}

fn worlds(limit: Duration, first: u64) -> ExitCode {
    let began = Instant::now();
    let mut seed = first;
    let mut lives = 0;
    while began.elapsed() < limit {
        match WorldTrial::new(seed).run() {
            Ok(story) => lives += story.lives,
            Err(_) => return world(seed),
        }
        seed += 1;
        if seed.is_multiple_of(1000) {
            eprintln!("{} worlds, {lives} lives, no violation", seed - first);
        }
    }
    println!("{} worlds, {lives} lives", seed - first);
    ExitCode::SUCCESS
}

/// Worlds of jobs; at least one.
fn runs(limit: Duration, first: u64) -> ExitCode {
    let began = Instant::now();
    let (mut seed, mut lives) = (first, 0);
    loop {
        match RunTrial::new(seed).run() {
            Ok(story) => lives += story.lives,
            Err(what) => {
                println!("{what}\nagain: cargo run --release -p kauri-sim -- runs --seed {seed}");
                println!("in short: {:?}", RunTrial::new(seed).shrunk());
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
        if began.elapsed() >= limit {
            println!("{} worlds, {lives} lives", seed - first);
            return ExitCode::SUCCESS;
        }
    }
}

fn crash(limit: Duration, first: u64, points: u64) -> ExitCode {
    let began = Instant::now();
    let (mut tried, mut in_recoveries, mut seed) = (0, 0, first);
    while began.elapsed() < limit {
        let report = Explorer::new(seed).points(points).lives(3).explore(&trial(seed));
        tried += report.points;
        in_recoveries += report.recovery_points;
        if let Some(violation) = report.violation {
            println!("{violation}");
            println!("again: cargo run --release -p kauri-sim -- replay {seed} '{}'", violation.path);
            return ExitCode::FAILURE;
        }
        seed += 1;
        eprintln!("seed {seed}: {tried} points, no violation");
    }
    println!("{tried} points, {in_recoveries} of them inside recoveries");
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
