//! Arguments in, output and an exit code out.
//!
//! Exit codes: 0 as asked, 1 the answer is no (a check found mismatches, a row is missing), 2 the question was wrong (arguments, input).
//! The doctor: 0 all fine, 1 warnings, 2 failures.

mod ask;
mod audit;
mod bench;
mod classes;
mod config;
mod dead_letters;
mod demo;
mod doctor;
mod examples;
mod frame;
mod home;
mod ledger;
mod log;
mod manual;
mod messages;
mod progress;
mod replay;
mod runs;
mod schema;
mod store;
mod submit;
mod switch;
mod table;
mod top;
mod up;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "kauri", version, about = "A durable runtime in one binary and one directory")]
#[command(
    after_help = "Exit codes: 0 as asked, 1 a check found something or a row is missing, 2 wrong arguments or input."
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run what kauri.toml says: take jobs, begin them on time, retry them, survive
    Up(up::Args),
    /// Watch a running instance: throughput, latency, queues, workers, runs, failures
    Top(top::Args),
    /// Ask for a job of a class of kauri.toml
    Submit(submit::Args),
    /// List classes of jobs, and let none of their runs begin for a while
    Classes(classes::Args),
    /// Print what a run said, in order
    Events(runs::EventsArgs),
    /// Print the runs above and under a run as a tree
    Lineage(runs::LineageArgs),
    /// Print the configuration in effect, and where each value comes from
    Config(config::Args),
    /// Show what Kauri does: an order pipeline in a home of its own, killed if you like, that proves its totals
    Demo(demo::Args),
    /// Examine a home: what is wrong there, and what to do about it
    Doctor(doctor::Args),
    /// Read, write and check message, intent and run frames
    Frame(frame::Args),
    /// List actions begun and ended, and decide about those without an end
    Ledger(ledger::Args),
    /// Print what was done and decided, and verify that nobody changed it
    Audit(audit::Args),
    /// Throw the kill switch of a home: nothing begins any more
    Stop(switch::StopArgs),
    /// Take the kill switch back
    Resume(switch::ResumeArgs),
    /// List the messages that wait for workers
    Inbox(messages::InboxArgs),
    /// List the messages that wait for a moment, earliest first
    Timers(messages::TimersArgs),
    /// List who has which messages
    Leases(messages::LeasesArgs),
    /// List the messages that wait to be delivered outside, oldest first
    Outbox(messages::OutboxArgs),
    /// List, show, replay and purge messages that will not be handled again by themselves
    DeadLetters(dead_letters::Args),
    /// List, show and follow runs, cancel and retry them
    Runs(runs::Args),
    /// Look into a store's file, change it, copy it, make it shorter
    Store(store::Args),
    /// Print with which schema a home was made, and its tables
    Schema(schema::Args),
    /// Show and verify recordings of steps
    Replay(replay::Args),
    /// Measure this machine and its disk for a few seconds
    Bench(bench::Args),
    /// Print what a shell needs to complete commands
    Completions(manual::CompletionsArgs),
    /// Print the manual, as man reads it
    Man(manual::ManArgs),
}

/// Why a command did not do what was asked.
enum Trouble {
    /// The answer is no; it was already given.
    No,
    /// The answer is no, because something is not there: in one line.
    Absent(String),
    /// The answer is worse than no; it was already given.
    Failed,
    /// The question was wrong, in one line.
    Wrong(String),
    /// The answer could not be written.
    Output(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// All commands, with examples.
fn command() -> clap::Command {
    examples::with_examples(Args::command())
}

pub(crate) fn main() -> ExitCode {
    let matches = command().try_get_matches();
    let args = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => return refuse(&error),
    };
    let mut out = io::stdout().lock();
    let done = match args.command {
        Command::Up(args) => up::run(&args, &mut out),
        Command::Top(args) => top::run(&args, &mut out),
        Command::Submit(args) => submit::run(&args, &mut out),
        Command::Classes(args) => classes::run(&args, &mut out),
        Command::Events(args) => runs::events(&args, &mut out),
        Command::Lineage(args) => runs::lineage(&args, &mut out),
        Command::Config(args) => config::run(&args, &mut out),
        Command::Demo(args) => demo::run(&args, &mut out),
        Command::Doctor(args) => doctor::run(&args, &mut out),
        Command::Frame(args) => frame::run(args, &mut out),
        Command::Ledger(args) => ledger::run(args, &mut out),
        Command::Audit(args) => audit::run(&args, &mut out),
        Command::Stop(args) => switch::stop(&args, &mut out),
        Command::Resume(args) => switch::resume(&args, &mut out),
        Command::Inbox(args) => messages::inbox(&args, &mut out),
        Command::Timers(args) => messages::timers(&args, &mut out),
        Command::Leases(args) => messages::leases(&args, &mut out),
        Command::Outbox(args) => messages::outbox(&args, &mut out),
        Command::DeadLetters(args) => dead_letters::run(&args, &mut out),
        Command::Runs(args) => runs::run(&args, &mut out),
        Command::Store(args) => store::run(args, &mut out),
        Command::Schema(args) => schema::run(&args, &mut out),
        Command::Replay(args) => replay::run(&args, &mut out),
        Command::Bench(args) => bench::run(&args, &mut out),
        Command::Completions(args) => manual::completions(&args, &mut out),
        Command::Man(args) => manual::man(&args, &mut out),
    };
    match done.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::No) => ExitCode::FAILURE,
        Err(Trouble::Absent(what)) => {
            complain(&what);
            ExitCode::FAILURE
        }
        Err(Trouble::Failed) => ExitCode::from(2),
        Err(Trouble::Wrong(what)) => complain(&with_fix(&what)),
        // Whoever read our output has seen enough (`kauri ... | head`).
        Err(Trouble::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Trouble::Output(error)) => complain(&with_fix(&format!("cannot write the output: {error}"))),
    }
}

/// What the system refuses comes here in words, out of every crate and over the socket; the number of its error is the one thing in them that
/// says what can be done about it.
const FIXES: &[(&[&str], &str)] = &[
    (
        &["(os error 28)", "(os error 27)", "(os error 122)", "database or disk is full"],
        "there is no room: make some, then call again; what was accepted is kept",
    ),
    (
        &["(os error 13)", "(os error 1)", "unable to open database file", "readonly database"],
        "call as the user to whom it belongs, or give that user the rights",
    ),
    (&["(os error 30)"], "the file system is mounted to be read only"),
    (
        // A thread that comes after the one that failed hears only that one did.
        &["(os error 5)", "disk I/O error", "a write to the store's file failed"],
        "is there room on the disk, and is it sound? `df` and the system's log tell; what was accepted is kept",
    ),
    (&["(os error 24)"], "too many files are open: raise `ulimit -n`"),
];

/// The same, and what to do about it if the system refused something.
fn with_fix(what: &str) -> String {
    let fix = FIXES.iter().find(|(words, _)| words.iter().any(|word| what.contains(word)));
    fix.map_or_else(|| what.to_owned(), |(_, fix)| format!("{what}; {fix}"))
}

/// Help and version as clap prints them; anything else in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&format!("cannot write the output: {error}")),
        };
    }
    let text = error.render().to_string();
    let paragraphs = text.split("\n\n").map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    let told = paragraphs.filter(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let what = told.collect::<Vec<_>>().join("; ");
    let all = command();
    let (meant, path) = meant(&all, std::env::args().skip(1));
    match what.strip_prefix("error: ") {
        Some(what) => complain(&format!("{what} (see `{path} --help`)")),
        None => {
            let under = meant.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help");
            let under = under.collect::<Vec<_>>().join(", ");
            complain(&format!("no command given: expected one of {under} (see `{path} --help`)"))
        }
    }
}

/// The command that words name, as far as they do, with its path: `store get --hex x` names `kauri store get`.
fn meant(all: &clap::Command, words: impl Iterator<Item = String>) -> (&clap::Command, String) {
    let (mut command, mut path) = (all, "kauri".to_owned());
    for word in words {
        if let Some(found) = command.find_subcommand(&word) {
            command = found;
            path = format!("{path} {word}");
        }
    }
    (command, path)
}

fn complain(what: &str) -> ExitCode {
    // There is nobody left to tell if this fails.
    let _ = writeln!(io::stderr(), "kauri: {what}");
    ExitCode::from(2)
}
