//! Project automation: `cargo xtask <command>`.
//!
//! Everything a person or a CI job does to this repository is one of these commands, so both do the
//! same. A command builds [`invocation::Invocation`]s of other tools and runs them from the
//! repository's root; only [`tidy`] looks at the sources by itself.
//!
//! Exit codes: 0 all is well, 1 something failed, 2 the command line was wrong.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool at the edge: it reads files, the environment and the clock, and prints for a person"
)]

mod bench;
mod failure;
mod fuzz;
mod gate;
mod invocation;
mod manifest;
mod plant;
mod size;
mod soak;
mod step;
mod table;
mod tidy;
mod tool;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Result;
use crate::tree::Tree;

/// Checks, campaigns and measurements of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every check a change must pass, in order, stopping at the first failure
    Test {
        /// Run only this step (repeatable)
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// Leave this step out (repeatable)
        #[arg(long, value_name = "STEP")]
        skip: Vec<String>,
        /// How long each fuzz target runs
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
        fuzz_seconds: u64,
    },
    /// Search for trouble with all campaigns in turn, for a given time
    Soak {
        /// How long, all campaigns together
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
    },
    /// Measure with kauri-bench, in release mode
    Bench {
        /// The suite, as kauri-bench calls it
        suite: Option<String>,
        /// A short run that shows the shape, not the number
        #[arg(long)]
        quick: bool,
        /// Also write the results to this file
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Of the store: what operations cost with ever more rows
        #[arg(long)]
        scaling: bool,
        /// The most rows, when scaling
        #[arg(long, value_name = "N", requires = "scaling")]
        rows: Option<u64>,
        /// Of the runtime: what a step costs with N messages waiting, and the memory that N messages leave
        #[arg(long, value_name = "N")]
        depth: Option<u64>,
        /// Of the doctor: examine a home of N GiB, which is made and removed
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
        gib: Option<u16>,
        /// With the suite queue: look for servers in DIR too, where crates/kauri-peers/fetch-servers put them.
        #[arg(long, value_name = "DIR")]
        servers: Option<PathBuf>,
        /// With the suite queue: so many clients and workers at once, instead of 32.
        #[arg(long, value_name = "COUNT")]
        clients: Option<u16>,
    },
    /// Run one fuzz target on its kept corpus
    Fuzz {
        /// The target
        #[arg(required_unless_present = "list")]
        target: Option<String>,
        /// How long
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
        seconds: u64,
        /// Name the targets instead
        #[arg(long, conflicts_with = "target")]
        list: bool,
    },
    /// Plant known mistakes in a copy of the sources, one at a time, and see that the test of each fails
    Plant {
        /// Only those about this: a part of a test's name, or of what is wrong
        about: Option<String>,
    },
    /// Build the release binary and show its size, and what each feature of the store adds to a small program
    Size,
    /// Check the repository's own rules
    Tidy,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(command: Command) -> Result<()> {
    let tree = Tree::read(&tree::root())?;
    match command {
        Command::Test { only, skip, fuzz_seconds } => gate::run(&tree, &step::Selection { only, skip }, fuzz_seconds),
        Command::Soak { minutes } => soak::run(&tree, minutes),
        Command::Bench { suite, quick, json, scaling, rows, depth, gib, servers, clients } => {
            bench::run(&tree, suite, bench::Extent { quick, scaling, rows, depth, gib, servers, clients }, json)
        }
        Command::Fuzz { list: true, .. } => fuzz::list(&tree),
        Command::Fuzz { target, seconds, .. } => fuzz::run(&tree, &target.unwrap_or_default(), seconds),
        Command::Plant { about } => plant::run(&tree, about.as_deref()),
        Command::Size => size::run(&tree),
        Command::Tidy => tidy::run(&tree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
