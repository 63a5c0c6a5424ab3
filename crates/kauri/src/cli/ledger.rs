//! `kauri ledger`: actions begun and ended, and deciding about those without an end.

use std::io::Write;
use std::time::Duration;

use kauri::Layout;
use kauri::control::{action_json, decision_json};
use kauri::ledger::{
    ActionRow, Clock as _, Decision, Error, Home, Ledger, Look, Reconciliation, Salvage, Status, SystemClock,
};
use serde_json::{Value, json};

use super::Trouble;
use super::ask::connect;
use super::home::{HomeArgs, span, there};
use super::progress::Progress;
use super::table::{Zone, list, more, short};
use super::watch::Watch;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri ledger actions --status FAILED --limit 20
  kauri ledger orphans
  kauri ledger resolve mail-17 --completed
  kauri ledger resolve mail-17 --failed 'the server refused it'
  kauri ledger salvage")]
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
    /// List actions, newest first
    Actions {
        /// Only those of this status: STARTED, COMPLETED, FAILED, NEEDS_HUMAN, RETRIABLE, MISSING, INVALIDATED
        #[arg(long)]
        status: Option<String>,
        /// Only those of this trace
        #[arg(long, value_name = "ID")]
        trace: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "ROWS")]
        limit: u32,
        /// Only those begun so long ago or later, as 2h
        #[arg(long, value_name = "SPAN", value_parser = span)]
        since: Option<i64>,
        /// Only what comes after this action in the list: older ones
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        #[command(flatten)]
        zone: Zone,
        #[command(flatten)]
        watch: Watch,
    },
    /// List actions that were begun and not ended: nobody knows whether their effect happened
    ///
    /// While somebody works in the home, some of them are under way.
    Orphans {
        #[command(flatten)]
        zone: Zone,
    },
    /// Decide about an action without an end, and tell the run that waits for that
    ///
    /// The instance that runs in the home does it, if one does; else it is done here, under the lock of the home.
    #[command(after_help = "\
Examples:
  kauri ledger resolve mail-17 --completed                    the effect happened
  kauri ledger resolve mail-17 --completed --result 'id 4711'
  kauri ledger resolve mail-17 --failed 'no such account'     it did not, and shall not
  kauri ledger resolve mail-17 --retry                        it did not; a new action may try again
  kauri ledger resolve mail-17 --needs-human                  somebody must look")]
    #[command(group = clap::ArgGroup::new("decision").required(true))]
    Resolve {
        /// The action
        id: String,
        /// The effect happened
        #[arg(long, group = "decision")]
        completed: bool,
        /// Where its result is
        #[arg(long, value_name = "REF", requires = "completed")]
        result: Option<String>,
        /// The effect did not happen, or not wholly, for this reason
        #[arg(long, value_name = "WHY", group = "decision")]
        failed: Option<String>,
        /// The effect did not happen, and a new action may try again
        #[arg(long, group = "decision")]
        retry: bool,
        /// Somebody must look
        #[arg(long, group = "decision")]
        needs_human: bool,
    },
    /// Make a damaged journal readable again. Takes the lock of the home
    ///
    /// Lines that can be read are kept and compared with the database, the others are counted and told, and the damaged journal is
    /// kept beside the new one. Exits with 1 if something could not be read.
    Salvage,
}

const COLUMNS: &[&str] = &["ACTION", "STATUS", "STARTED", "TRACE", "TASK", "RESULT"];

pub(crate) fn run(args: Args, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = there(&args.home)?;
    match args.command {
        Command::Actions { status, trace, limit, since, after, zone, watch } => {
            let status = status.map(|status| status.to_uppercase().parse::<Status>());
            let status = status.transpose().map_err(|error| Trouble::Wrong(error.to_string()))?;
            watch.show(args.json, out, |out| {
                let since = since.map(|span| SystemClock.now().0.saturating_sub(span));
                let wanted = Wanted { status, trace: trace.as_deref(), since, after: after.as_deref() };
                let rows = wanted.find(&layout, limit)?;
                print(&rows, args.json, zone, "no actions", out)?;
                more(rows.len(), limit as usize, rows.last().map(|row| row.action_id.clone()), args.json, out)
            })
        }
        Command::Orphans { zone } => {
            let journal = Look::at(layout.home()).journal().map_err(|error| wrong(&error))?;
            print(&journal.unwrap_or_default().orphans, args.json, zone, "no action without an end", out)
        }
        Command::Resolve { id, completed, result, failed, retry, .. } => {
            let decision = match failed {
                _ if completed => Decision::Completed(result),
                Some(why) => Decision::Failed(why),
                None if retry => Decision::Retry,
                None => Decision::NeedsHuman,
            };
            resolve(&layout, &id, &decision, args.json, out)
        }
        Command::Salvage => salvage(&layout, args.json, out),
    }
}

fn salvage(layout: &Layout, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let salvaged = || {
        let home = Home::lock(layout.home())?;
        let Some(salvage) = Ledger::salvage(&home)? else { return Ok(None) };
        // What was kept is compared with the database, which knows most of what was lost.
        let (_, found) = Ledger::open(home)?;
        Ok(Some((salvage, found)))
    };
    let progress = Progress::of("looking at every line", !json);
    let salvaged = salvaged();
    drop(progress);
    let salvaged = salvaged.map_err(|error: Error| wrong(&error))?;
    match &salvaged {
        Some((salvage, found)) if json => writeln!(out, "{}", salvage_to_json(salvage, found))?,
        Some((salvage, found)) => print_salvage(salvage, found, out)?,
        None if json => writeln!(out, "{}", json!({ "damaged": false }))?,
        None => writeln!(out, "the journal is not damaged")?,
    }
    match salvaged {
        Some((salvage, _)) if salvage.lost > 0 => Err(Trouble::No),
        _ => Ok(()),
    }
}

fn print_salvage(salvage: &Salvage, found: &Reconciliation, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "damaged: {}", salvage.damage)?;
    writeln!(out, "kept: {} lines; the damaged journal is {}", salvage.kept, salvage.aside)?;
    writeln!(out, "lost: {} lines; each may be an action of which nothing else is known", salvage.lost)?;
    salvage.places.iter().try_for_each(|place| writeln!(out, "  {} bytes at {}", place.bytes, place.at))?;
    found.repairs.iter().try_for_each(|repair| writeln!(out, "repaired: {repair}"))?;
    found.findings.iter().try_for_each(|finding| writeln!(out, "found: {finding}"))?;
    writeln!(out, "actions without an end: {}", found.orphans.len())
}

fn salvage_to_json(salvage: &Salvage, found: &Reconciliation) -> Value {
    let places: Vec<Value> =
        salvage.places.iter().map(|place| json!({ "at": place.at, "bytes": place.bytes })).collect();
    let repairs: Vec<String> = found.repairs.iter().map(ToString::to_string).collect();
    json!({
        "damaged": true,
        "damage": salvage.damage,
        "kept": salvage.kept,
        "lost": salvage.lost,
        "places": places,
        "aside": salvage.aside,
        "repairs": repairs,
        "findings": found.findings,
        "orphans": found.orphans.len(),
    })
}

struct Wanted<'a> {
    status: Option<Status>,
    trace: Option<&'a str>,
    since: Option<i64>,
    after: Option<&'a str>,
}

impl Wanted<'_> {
    fn find(&self, layout: &Layout, limit: u32) -> Result<Vec<ActionRow>, Trouble> {
        let Some(database) = Look::at(layout.home()).database().map_err(|error| wrong(&error))? else {
            return Ok(Vec::new());
        };
        // What was asked for last comes first, and what is passed over is not counted.
        let most = if self.after.is_some() { u32::MAX } else { limit };
        let mut rows = database.actions(self.status, self.trace, most).map_err(|error| wrong(&error))?;
        if let Some(after) = self.after {
            let at = rows.iter().position(|row| row.action_id == after);
            let missing = || wrong(&Error::NoSuchAction { id: after.to_owned() });
            rows.drain(..=at.ok_or_else(missing)?);
        }
        rows.retain(|row| self.since.is_none_or(|since| row.started_at.0 >= since));
        rows.truncate(limit as usize);
        Ok(rows)
    }
}

/// Whoever runs in the home decides, and tells the runs that wait; if nobody does, it is decided here, and they are told at the next start.
fn resolve(layout: &Layout, id: &str, decision: &Decision, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let row = match connect(layout)? {
        Some(mut client) => {
            let asked = client.ask("resolve", &decision_json(id, decision), Duration::ZERO);
            asked.map_err(|error| Trouble::Wrong(error.to_string()))?
        }
        None => {
            let decided = || {
                let (ledger, _) = Ledger::open(Home::lock(layout.home())?)?;
                ledger.resolve(id, decision)?;
                ledger.action(id)?.ok_or_else(|| Error::NoSuchAction { id: id.to_owned() })
            };
            action_json(&decided().map_err(|error| wrong(&error))?)
        }
    };
    match json {
        true => writeln!(out, "{row}")?,
        false => {
            let word = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
            writeln!(out, "{}: {}", word("action_id"), word("status"))?;
        }
    }
    Ok(())
}

pub(super) fn wrong(error: &Error) -> Trouble {
    Trouble::Wrong(error.to_string())
}

fn print(rows: &[ActionRow], json: bool, zone: Zone, nothing: &str, out: &mut impl Write) -> Result<(), Trouble> {
    let cells = |row: &ActionRow| {
        let said = row.result_ref.as_deref().or(row.error.as_deref()).unwrap_or("");
        vec![
            row.action_id.clone(),
            row.status.to_string(),
            zone.moment(row.started_at.0),
            row.trace_id.clone(),
            short(&row.task, 48),
            short(said, 32),
        ]
    };
    list(rows.iter().map(|row| (action_json(row), cells(row))), json, COLUMNS, nothing, out)
}
