//! `kauri classes`: what jobs of one kind have in common, and whether their runs may begin.

use std::io::Write;

use kauri::control::classes_json;
use serde_json::{Value, json};

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

fn print(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let classes = look(&args.home, classes_json)?.unwrap_or_default();
    let rows = classes.into_iter().map(|class| {
        let paused = if class["paused"] == true { "paused" } else { "" };
        let number = |name: &str| class[name].to_string();
        let name = class["class"].as_str().unwrap_or_default().to_owned();
        let cells = vec![
            name,
            number("waiting"),
            number("running"),
            number("attempts"),
            fan_out(&class["fan_out"]),
            number("worker"),
            paused.to_owned(),
        ];
        (class, cells)
    });
    let names = &["CLASS", "WAITING", "RUNNING", "ATTEMPTS", "FAN-OUT", "WORKER", "PAUSED"];
    list(rows, args.json, names, "no classes", out)
}

/// How much derived work there may be, in a few words.
fn fan_out(limits: &Value) -> String {
    if limits["depth"] == 0 {
        return "none".to_owned();
    }
    let [depth, runs, parallel] = ["depth", "runs", "parallel"].map(|name| limits[name].to_string());
    format!("{depth} deep, {runs} jobs, {parallel} at a time, exit {}", limits["exit"].as_str().unwrap_or_default())
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
