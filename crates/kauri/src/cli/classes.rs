//! `kauri classes`: what jobs of one kind have in common, and whether their runs may begin.

use std::io::Write;

use kauri::runtime::run::Class;
use kauri::runtime::{self, Look};
use serde_json::json;

use super::Trouble;
use super::ask::Reach;
use super::home::{HomeArgs, look};
use super::table::list;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri classes list
  kauri classes pause mail
  kauri classes resume mail

Runs that have begun go on. What is paused stays so over restarts. Everything at once: kauri stop.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    home: HomeArgs,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List the classes that are in the store
    List,
    /// Let no run of a class begin; exit code 1 if there is no such class
    Pause {
        /// The class
        class: String,
    },
    /// Let runs of a class begin again, those that came meanwhile included; exit code 1 if there is no such class
    Resume {
        /// The class
        class: String,
    },
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    match &args.command {
        Command::List => print(args, out),
        Command::Pause { class } => set(args, "pause", class, out),
        Command::Resume { class } => set(args, "resume", class, out),
    }
}

fn read(look: &Look<'_>) -> runtime::Result<Vec<(String, Class, u64, bool)>> {
    look.classes()
}

fn print(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let classes = look(&args.home, read)?.unwrap_or_default();
    let rows = classes.iter().map(|(name, class, waiting, is_paused)| {
        let attempts = class.retry.attempts_max;
        let value = json!({
            "class": name,
            "worker": class.worker.0,
            "paused": is_paused,
            "waiting": waiting,
            "attempts": attempts,
        });
        let paused = if *is_paused { "paused" } else { "" };
        (
            value,
            vec![name.clone(), waiting.to_string(), attempts.to_string(), class.worker.to_string(), paused.to_owned()],
        )
    });
    list(rows, args.json, &["CLASS", "WAITING", "ATTEMPTS", "WORKER", "PAUSED"], "no classes", out)
}

fn set(args: &Args, what: &str, class: &str, out: &mut impl Write) -> Result<(), Trouble> {
    let Some(mut reach) = Reach::existing(&args.home)? else {
        let message = format!("there is no class {class:?}: nobody ever worked here");
        let fault = kauri::control::Fault::new(kauri::control::Code::NotFound, message);
        return Err(super::ask::said(kauri::control::AskError::Fault(fault), args.json, out));
    };
    let done = reach.ask_or_say(what, &json!({ "class": class }), args.json, out)?;
    match args.json {
        true => writeln!(out, "{done}")?,
        false if what == "pause" => {
            writeln!(out, "paused {class}: none of its runs begins until `kauri classes resume {class}`")?;
        }
        false => writeln!(out, "resumed {class}")?,
    }
    Ok(())
}
