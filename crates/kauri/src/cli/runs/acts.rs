//! What is done with runs: followed, cancelled, retried, told something.

use std::io::Write;

use kauri::control::{AskError, Code, Fault, run_json};
use kauri::ledger::{Clock as _, SystemClock};
use kauri::runtime::Look;
use kauri::runtime::run::RunFault;
use kauri::wire::RunId;
use serde_json::{Value, json};

use super::wait::{PATIENCE, gone, idle};
use super::{found, log_words, some};
use crate::cli::Trouble;
use crate::cli::ask::{Reach, connect, said};
use crate::cli::home::{HomeArgs, look, span, there};
use crate::cli::submit::{given, input};
use crate::cli::table::{Zone, plain, short};

/// How many events are read in one go.
const PAGE: usize = 512;

#[derive(clap::Args)]
pub(super) struct TailArgs {
    /// The run
    run: RunId,
    /// From this number on
    #[arg(long, default_value_t = 1, value_name = "SEQ")]
    from: u64,
    #[command(flatten)]
    zone: Zone,
}

#[derive(clap::Args)]
pub(super) struct RetryArgs {
    /// The run that failed; or say with --class and what follows which are meant
    #[arg(required_unless_present = "class", conflicts_with_all = ["class", "outcome", "tag", "since", "limit"])]
    run: Option<RunId>,
    /// All of this class that failed and that no other run has followed
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Only those that ended so: script_error, executor_crash and timed_out without it
    #[arg(long, value_name = "OUTCOME", value_delimiter = ',', requires = "class")]
    outcome: Vec<String>,
    /// Only those of jobs with this tag
    #[arg(long, value_name = "KEY=VALUE", requires = "class")]
    tag: Option<String>,
    /// Only those that ended so long ago or later, as 2h
    #[arg(long, value_name = "SPAN", value_parser = span, requires = "class")]
    since: Option<i64>,
    /// At most so many
    #[arg(long, value_name = "RUNS", requires = "class")]
    limit: Option<u64>,
    /// With what its steps before this one recorded
    #[arg(long, value_name = "NAME")]
    from_step: Option<String>,
    /// With what all its steps recorded: it begins with what it was in when it ended
    #[arg(long, conflicts_with_all = ["from_step", "class"])]
    keep_steps: bool,
    /// With another input: JSON (null is one, too), @FILE, or - for standard input; with the same without it
    #[arg(long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
}

/// Where to ask of a run; if there is no store, there is no run.
fn reach(home: &HomeArgs, run: RunId, json: bool, out: &mut impl Write) -> Result<Reach, Trouble> {
    let missing = || Fault::new(Code::NotFound, format!("there is no run {run}"));
    Reach::existing(home)?.ok_or_else(|| said(AskError::Fault(missing()), json, out))
}

pub(super) fn cancel(home: &HomeArgs, run: RunId, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let mut reach = reach(home, run, json, out)?;
    let done = reach.ask_or_say("cancel", &json!({ "run_id": run.to_string() }), json, out)?;
    if json {
        return Ok(writeln!(out, "{done}")?);
    }
    let count = |name: &str| done[name].as_u64().unwrap_or(0);
    match (count("sealed"), count("asked")) {
        (0, 0) => writeln!(out, "it had ended already: nothing to cancel")?,
        (1, 0) => writeln!(out, "cancelled: it had not begun")?,
        (0, 1) => writeln!(out, "cancelled: it is under way, and is told to stop")?,
        (sealed, asked) => {
            writeln!(out, "cancelled: {sealed} that had not begun, {asked} that are under way and are told to stop")?;
        }
    }
    Ok(())
}

pub(super) fn retry(home: &HomeArgs, args: &RetryArgs, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let input = input(args.input.as_deref())?;
    let (reach, made) = match (args.run, &args.class) {
        (Some(run), _) => {
            let mut reach = reach(home, run, json, out)?;
            let (from_step, keep_steps) = (&args.from_step, args.keep_steps);
            let wish = json!({ "run_id": run.to_string(), "from_step": from_step, "keep_steps": keep_steps });
            let made = reach.ask_or_say("retry", &with_input(wish, input), json, out)?;
            (reach, vec![made])
        }
        (None, class) => {
            let class = class.as_deref().unwrap_or_default();
            let missing =
                || Fault::new(Code::NotFound, format!("there is no class {class:?}: nobody ever worked here"));
            let mut reach = Reach::existing(home)?.ok_or_else(|| said(AskError::Fault(missing()), json, out))?;
            let since = args.since.map(|span| SystemClock.now().0.saturating_sub(span));
            let wish = json!({
                "class": class, "outcomes": args.outcome, "tag": args.tag, "since_ms": since, "limit": args.limit,
                "from_step": args.from_step,
            });
            let made = reach.ask_or_say("retry_all", &with_input(wish, input), json, out)?;
            (reach, made.as_array().cloned().unwrap_or_default())
        }
    };
    for run in &made {
        match json {
            true => writeln!(out, "{run}")?,
            false => writeln!(out, "run {} attempt {}", run["run_id"].as_str().unwrap_or_default(), run["attempt"])?,
        }
    }
    if json {
        return Ok(());
    }
    if made.is_empty() {
        return Ok(writeln!(out, "no run to be retried")?);
    }
    if !reach.is_running() {
        writeln!(out, "nothing runs in this home: it begins with `kauri up{}`", home.shown())?;
    }
    Ok(())
}

/// A wish with another input, if one is given: null is one, and nothing keeps what there is.
fn with_input(mut wish: Value, input: Option<Value>) -> Value {
    if let Some(input) = input {
        wish["input"] = input;
    }
    wish
}

#[derive(clap::Args)]
pub(super) struct SignalArgs {
    /// The run
    run: RunId,
    /// The signal's name, which the run waits for
    name: String,
    /// What it says: text, @FILE, or - for standard input; nothing without it
    #[arg(long, value_name = "TEXT|@FILE|-")]
    payload: Option<String>,
}

pub(super) fn signal(home: &HomeArgs, args: &SignalArgs, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let payload = args.payload.as_deref().map(|text| given(text, "--payload")).transpose()?.map(|(_, text)| text);
    let mut reach = reach(home, args.run, json, out)?;
    let wish = json!({ "run_id": args.run.to_string(), "name": args.name, "payload": payload });
    let done = reach.ask_or_say("signal", &wish, json, out)?;
    match json {
        true => writeln!(out, "{done}")?,
        false => writeln!(out, "told {} {:?}", args.run, args.name)?,
    }
    Ok(())
}

pub(super) fn tail(home: &HomeArgs, args: &TailArgs, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let Some(mut client) = connect(&there(home)?)? else { return tail_here(home, args, json, out) };
    let mut from = args.from;
    loop {
        let wish = json!({ "run_id": args.run.to_string(), "from": from });
        let found = match client.ask("events", &wish, PATIENCE) {
            Ok(found) => found,
            Err(AskError::Gone(_)) => return Err(gone()),
            Err(error) => return Err(said(error, json, out)),
        };
        let events = found["events"].as_array().map_or(&[][..], Vec::as_slice);
        events.iter().try_for_each(|event| print(event, args.zone, json, out))?;
        out.flush()?;
        from = found["next"].as_u64().unwrap_or(from);
        if found["over"] == true {
            return Ok(());
        }
    }
}

/// What was said so far, where nobody says more.
fn tail_here(home: &HomeArgs, args: &TailArgs, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let mut from = args.from;
    loop {
        let read = |look: &Look<'_>| {
            some(look.run(args.run).and_then(|run| {
                let is_removed = look.removed(run.id)?.events;
                Ok((look.events(run.id, from, PAGE)?, is_removed, run))
            }))
        };
        let (events, is_removed, run) = found(args.run, json, look(home, read)?.flatten(), out)?;
        if is_removed {
            return Err(events_removed(run.id, json, out));
        }
        for event in &events {
            let event = event.to_json(&run).map_err(|error| Trouble::Wrong(error.to_string()))?;
            print(&event, args.zone, json, out)?;
        }
        from += events.len() as u64;
        if events.len() < PAGE {
            out.flush()?;
            return if run.outcome().is_some() { Ok(()) } else { Err(idle(&json!({ "run": run_json(&run) }))) };
        }
    }
}

/// Says that the events of a run are kept no longer.
pub(super) fn events_removed(run: RunId, json: bool, out: &mut impl Write) -> Trouble {
    let words = RunFault::EventsRemoved(run).to_string();
    said(AskError::Fault(Fault::new(Code::Refused, words)), json, out)
}

/// An event as a line for people.
fn print(event: &Value, zone: Zone, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    if json {
        return Ok(writeln!(out, "{event}")?);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, payload) = (text(&event["type"]), &event["payload"]);
    let what = match kind.as_str() {
        "log" => format!("{} {}", text(&payload["level"]), log_words(payload)),
        "item" => format!("{} {}", text(&payload["item_type"]), payload["data"]),
        "run_error" => format!("{}: {}", text(&payload["error_type"]), text(&payload["message"])),
        "run_complete" if payload.as_object().is_none_or(serde_json::Map::is_empty) => String::new(),
        _ => payload.to_string(),
    };
    let line = format!("{} {kind:<12} {}", zone.text(&text(&event["ts"])), short(&what, 500));
    Ok(writeln!(out, "{}", plain(line.trim_end()))?)
}
