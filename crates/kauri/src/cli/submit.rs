//! `kauri submit`: a job, asked for.

use std::io::{Read, Write};

use kauri::control::{AskError, Code};
use kauri::ledger::{Clock as _, SystemClock, Timestamp};
use kauri::{Layout, parse_span};
use serde_json::{Value, json};

use super::Trouble;
use super::ask::{Reach, said};
use super::config::{ConfigArgs, Flags, load};
use super::home::HomeArgs;
use super::runs::{Told, wait_for};
use super::table::Zone;

/// A longer input is refused before it is read whole.
const INPUT_BYTES_MAX: u64 = 4 << 20;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri submit mail --input '{\"to\": \"ann@example.org\"}'
  kauri submit mail --input @letter.json --key order-17 --wait
  kauri submit digest --at 2026-12-24T18:00:00Z --tag season=winter
  kauri submit digest --at 2h --deadline 3h
  kauri submit crawl --concurrency-key example.org --concurrency 2
  kauri submit digest --key today --within 24h --after job-019d2c5e-7a10-7c3e-8f00-0123456789ab --on-failed skip

It is in the store when this returns, and survives. If no instance runs, it begins with the next `kauri up`.
Exit codes: 0 submitted (with --wait: and it ended well), 1 there is no such class (with --wait: or it ended badly, or nothing runs,
or it ended and is kept no longer), 2 wrong arguments or input.")]
pub(crate) struct Args {
    /// The class of the job, as in kauri.toml
    job: String,
    /// What the job is given: JSON, @FILE, or - for standard input; nothing without it
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// Only if no job of this class was submitted with the same key, as long as it is kept; else that job is answered
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The key counts for so long, as 24h, whether the job is still kept or not
    #[arg(long, value_name = "SPAN", value_parser = parse_span, requires = "key")]
    within: Option<std::time::Duration>,
    /// Only when this job has ended; may be said several times
    #[arg(long, value_name = "JOB")]
    after: Vec<String>,
    /// What becomes of it if one of those fails: it fails too, is skipped, or runs all the same
    #[arg(long, value_name = "POLICY", value_parser = ["fail", "skip", "continue"], requires = "after")]
    on_failed: Option<String>,
    /// At most --concurrency jobs with this key are under way at a time, of whatever class; the others wait in the order in which they came.
    /// A job that failed and is tried again keeps its place until its last attempt has ended, through all pauses
    #[arg(long, value_name = "KEY", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    concurrency_key: Option<String>,
    /// How many jobs with the key may be under way for this one to begin; 1 without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "concurrency_key")]
    concurrency: Option<u32>,
    /// Not before this moment, as 2026-12-24T18:00:00Z, or so long from now, as 2h
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<i64>,
    /// Not wanted any more at this moment, or so long from now: whatever has not ended then is timed out
    #[arg(long, value_name = "TIME", value_parser = moment)]
    deadline: Option<i64>,
    /// 0, or a number above it to go before all that have 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    priority: u8,
    /// Words to find it by
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<String>,
    /// Wait until the job has ended, with all its attempts; with all that it asks for, too, if its class says so (exit = "all" in fan_out)
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    zone: Zone,
    #[command(flatten)]
    home: HomeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print one JSON object; with --wait another when the job has ended
    #[arg(long)]
    json: bool,
}

/// A moment, or a span from now.
pub(super) fn moment(text: &str) -> Result<i64, String> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.0);
    }
    let span = parse_span(text.strip_prefix('+').unwrap_or(text)).map_err(|_| {
        format!("expected a moment such as 2026-12-24T18:00:00Z, or a span from now such as 90s or 2h, found {text:?}")
    })?;
    Ok(SystemClock.now().0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
}

fn tag(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("expected a key and a value such as season=winter, found {text:?}")),
    }
}

/// What a job is given: JSON, a file of it, or standard input.
pub(super) fn input(text: Option<&str>) -> Result<Option<Value>, Trouble> {
    let Some(text) = text else { return Ok(None) };
    let (from, text) = given(text, "--input")?;
    let parsed = serde_json::from_str(&text);
    parsed.map(Some).map_err(|error| {
        Trouble::Wrong(format!("{from}: expected JSON such as {{\"name\": \"Ann\"}} or \"text\" in its own quotes, found something else: {error}"))
    })
}

/// The text that an option gives: itself, a file, or standard input; and where it is from.
pub(super) fn given<'a>(text: &'a str, option: &'a str) -> Result<(&'a str, String), Trouble> {
    match (text, text.strip_prefix('@')) {
        ("-", _) => Ok(("standard input", read(std::io::stdin().lock(), "standard input")?)),
        (_, Some(path)) => {
            let file =
                std::fs::File::open(path).map_err(|error| Trouble::Wrong(format!("{option} {path}: {error}")))?;
            Ok((path, read(file, path)?))
        }
        (text, None) => Ok((option, text.to_owned())),
    }
}

fn read(from: impl Read, name: &str) -> Result<String, Trouble> {
    let mut text = String::new();
    let read = from.take(INPUT_BYTES_MAX + 1).read_to_string(&mut text);
    let read = read.map_err(|error| Trouble::Wrong(format!("{name}: {error}")))?;
    if read as u64 > INPUT_BYTES_MAX {
        return Err(Trouble::Wrong(format!("{name}: expected {INPUT_BYTES_MAX} bytes at most, found more")));
    }
    Ok(text)
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let wish = json!({
        "class": args.job,
        "input": input(args.input.as_deref())?,
        "key": args.key,
        "within_ms": args.within.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
        "after": args.after,
        "on_failed": args.on_failed,
        "concurrency_key": args.concurrency_key,
        "concurrency": args.concurrency,
        "at_ms": args.at,
        "deadline_ms": args.deadline,
        "urgent": args.priority > 0,
        "tags": args.tags,
    });
    let config = |layout: &Layout| Ok(load(layout, &args.config, &Flags::default())?.0);
    let mut reach = Reach::made(&args.home, config)?;
    let done = match reach.ask("submit", &wish, std::time::Duration::ZERO) {
        Ok(done) => done,
        Err(AskError::Fault(fault)) if is_about_class(&fault) => return Err(no_class(args, &mut reach, out)),
        Err(error) => return Err(said(error, args.json, out)),
    };
    let is_new = done["new"] == true;
    let text = |name: &str| done[name].as_str().unwrap_or_default();
    match args.json {
        true => {
            let running = reach.is_running();
            writeln!(
                out,
                "{}",
                json!({ "job_id": done["job_id"], "run_id": done["run_id"], "new": is_new, "running": running })
            )?;
        }
        false => {
            let known = if is_new { "" } else { " (it was there, under the same key)" };
            writeln!(out, "job {}{known}\nrun {}", text("job_id"), text("run_id"))?;
        }
    }
    out.flush()?;
    if args.wait {
        // It was there a moment ago, or is remembered by its key alone.
        let which = if args.key.is_some() { "the job under this key" } else { "the job" };
        let ids = format!("{}, run {}", text("job_id"), text("run_id"));
        let missing = format!("{which} ({ids}) has ended and is kept no longer: how it ended is not known any more");
        let told = Told { most: None, zone: args.zone, json: args.json, missing: Some(missing) };
        return wait_for(&mut reach, text("run_id"), &told, out);
    }
    if !reach.is_running() && !args.json {
        writeln!(out, "nothing runs in this home: it begins with `kauri up{}`", args.home.shown())?;
    }
    Ok(())
}

fn is_about_class(fault: &kauri::control::Fault) -> bool {
    fault.code == Code::NotFound && fault.message.starts_with("there is no class")
}

/// What there is instead.
fn no_class(args: &Args, reach: &mut Reach, out: &mut impl Write) -> Trouble {
    let known = reach.ask("classes", &Value::Null, std::time::Duration::ZERO).unwrap_or_default();
    let known: Vec<&str> = known.as_array().into_iter().flatten().filter_map(|class| class["class"].as_str()).collect();
    let known = if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
    let fix = match reach.is_running() {
        true => "write it into kauri.toml and start the instance again",
        false => "write it into kauri.toml in the home",
    };
    let message = format!("there is no class {:?}; {known}: {fix}", args.job);
    let fault = kauri::control::Fault::new(Code::NotFound, message);
    said(AskError::Fault(fault), args.json, out)
}
