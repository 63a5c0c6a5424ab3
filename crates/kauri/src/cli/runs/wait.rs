//! `kauri runs wait`: until a job has ended, and what it left.

use std::io::Write;
use std::time::{Duration, Instant};

use kauri::control::{AskError, Code, Fault, ended_json};
use kauri::runtime::Look;
use kauri::wire::RunId;
use serde_json::{Value, json};

use super::{found, some, tree_words};
use crate::cli::Trouble;
use crate::cli::ask::{Reach, connect, note, said};
use crate::cli::home::{HomeArgs, look, there};
use crate::cli::table::{Zone, plain, short};

/// How long one request waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How much of a result is shown to people.
const RESULT_CHARS: usize = 500;

#[derive(clap::Args)]
pub(super) struct WaitArgs {
    /// A run of the job
    run: RunId,
    /// So long at most, as 30s; for ever without it
    #[arg(long, value_name = "SPAN", value_parser = kauri::parse_span)]
    timeout: Option<Duration>,
    #[command(flatten)]
    zone: Zone,
}

pub(super) fn wait(home: &HomeArgs, args: &WaitArgs, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    if let Some(client) = connect(&there(home)?)? {
        let told = Told { most: args.timeout, zone: args.zone, json, missing: None };
        return wait_for(&mut Reach::Instance(client), &args.run.to_string(), &told, out);
    }
    let read = |look: &Look<'_>| some(ended_json(look, args.run));
    let found = found(args.run, json, look(home, read)?.flatten(), out)?;
    if found["over"] == true { ended(&found, args.zone, json, out) } else { Err(idle(&found)) }
}

/// Prints how a job ended, which is the answer.
fn ended(found: &Value, zone: Zone, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    if json {
        let mut run = found["run"].clone();
        ["result", "failure", "tree"].into_iter().for_each(|name| run[name] = found[name].clone());
        writeln!(out, "{run}")?;
    } else {
        print_end(found, zone, out)?;
    }
    // An instance of an older program tells how the run ended, and nothing of a tree.
    let outcome = found["outcome"].as_str().or_else(|| found["run"]["outcome"].as_str());
    let is_well = matches!(outcome, Some("success" | "skipped"));
    if is_well { Ok(()) } else { Err(Trouble::No) }
}

/// How long is waited for a job, and how its end is told.
pub(crate) struct Told {
    pub(crate) most: Option<Duration>,
    pub(crate) zone: Zone,
    pub(crate) json: bool,
    /// What it means if there is no such run, where more is known than that.
    pub(crate) missing: Option<String>,
}

/// Waits for the job of a run, and tells how it ended.
pub(crate) fn wait_for(reach: &mut Reach, run: &str, told: &Told, out: &mut impl Write) -> Result<(), Trouble> {
    let &Told { most, zone, json, ref missing } = told;
    let began = Instant::now();
    loop {
        let left = most.map_or(PATIENCE, |most| most.saturating_sub(began.elapsed()).min(PATIENCE));
        let found = match reach.ask("wait", &json!({ "run_id": run }), left) {
            Ok(found) => found,
            Err(AskError::Gone(_)) => return Err(gone()),
            Err(error) => return Err(said(explained(error, missing.as_deref()), json, out)),
        };
        if found["over"] == true {
            return ended(&found, zone, json, out);
        }
        if !reach.is_running() {
            return Err(idle(&found));
        }
        if most.is_some_and(|most| began.elapsed() >= most) {
            note(&format!("it has not ended yet: {}", standing(&found)));
            return Err(Trouble::No);
        }
    }
}

/// That there is no such run, in words that say more.
fn explained(error: AskError, missing: Option<&str>) -> AskError {
    match (error, missing) {
        (AskError::Fault(fault), Some(words)) if fault.code == Code::NotFound => {
            AskError::Fault(Fault::new(fault.code, words))
        }
        (error, _) => error,
    }
}

fn print_end(found: &Value, zone: Zone, out: &mut impl Write) -> Result<(), Trouble> {
    let run = &found["run"];
    let text = |name: &str| run[name].as_str().unwrap_or_default();
    let took = run["ran_ms"].as_u64().map_or_else(String::new, |took| format!(" after {took} ms"));
    let ended = zone.text(text("ended"));
    writeln!(out, "{} in attempt {}{took}, at {ended}", text("outcome"), run["attempt"])?;
    for line in found["message"].as_str().unwrap_or_default().lines() {
        writeln!(out, "  {}", plain(line))?;
    }
    if !found["result"].is_null() {
        writeln!(out, "result {}", plain(&short(&found["result"].to_string(), RESULT_CHARS)))?;
    }
    if !found["tree"].is_null() {
        writeln!(out, "{}", tree_words(&found["tree"]))?;
    }
    Ok(())
}

/// Nobody will do anything.
pub(super) fn idle(found: &Value) -> Trouble {
    note(&format!("nothing runs in this home, so nothing changes (`kauri up` starts it); {}", standing(found)));
    Trouble::No
}

/// How far a job is that has not ended, with what was derived from it if that counts.
fn standing(found: &Value) -> String {
    let run = format!("the run is {}", found["run"]["state"].as_str().unwrap_or("unknown"));
    match found["tree"]["jobs_open"].as_u64() {
        Some(open) if open > 0 => {
            format!("{run}, and {open} of {} jobs in its tree have not ended", found["tree"]["jobs"])
        }
        _ => run,
    }
}

pub(super) fn gone() -> Trouble {
    note("the instance stopped before the end; ask again when it runs");
    Trouble::No
}
