//! `kauri runs`: executions of jobs, what they said, and how they hang together. What only looks takes no lock and starts nothing.

mod acts;
mod report;
mod wait;

use std::collections::BTreeMap;
use std::io::Write;

use kauri::control::run_json as to_json;
use kauri::ledger::{Clock as _, SystemClock};
use kauri::runtime::run::{Lineage, Outcome, Run, RunFault};
use kauri::runtime::{self, Error, Look};
use kauri::wire::RunId;
use serde_json::{Value, json};

use super::Trouble;
use super::home::{HomeArgs, look, span};
use super::table::{Table, Zone, list, more, plain, short};
use super::watch::Watch;

pub(crate) use self::wait::{Told, wait_for};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri runs list --state running
  kauri runs list --class crawl --since 2h
  kauri runs show 019d2c5e-7a10-7c3e-8f00-0123456789ab
  kauri runs events 019d2c5e-7a10-7c3e-8f00-0123456789ab --json
  kauri runs tail 019d2c5e-7a10-7c3e-8f00-0123456789ab
  kauri runs retry 019d2c5e-7a10-7c3e-8f00-0123456789ab --input @other.json
  kauri runs report 019d2c5e-7a10-7c3e-8f00-0123456789ab")]
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
    /// List runs, newest first
    List {
        /// Only those that stand so: pending, running, parked, success, skipped, script_error, executor_crash, policy_failure,
        /// version_mismatch, cancelled, timed_out
        #[arg(long, value_parser = state)]
        state: Option<String>,
        /// Only those of this class
        #[arg(long)]
        class: Option<String>,
        /// Only those made so long ago or later, as 2h
        #[arg(long, value_name = "SPAN", value_parser = span)]
        since: Option<i64>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "ROWS")]
        limit: usize,
        /// Only those whose job has this tag
        #[arg(long)]
        tag: Option<String>,
        /// Only what comes after this run in the list: older ones
        #[arg(long, value_name = "RUN")]
        after: Option<RunId>,
        #[command(flatten)]
        zone: Zone,
        #[command(flatten)]
        watch: Watch,
    },
    /// Print one run; exit code 1 if there is none
    Show {
        /// The run
        run: RunId,
        #[command(flatten)]
        zone: Zone,
    },
    /// Print what a run said, in order; exit code 1 if there is no such run
    Events {
        /// The run
        run: RunId,
        /// From this number on
        #[arg(long, default_value_t = 1, value_name = "SEQ")]
        from: u64,
        /// At most so many; 1000 without it, and with --json all
        #[arg(long, value_name = "ROWS")]
        limit: Option<u64>,
        #[command(flatten)]
        zone: Zone,
    },
    /// Print the runs above and under a run as a tree; exit code 1 if there is no such run
    Lineage {
        /// The run
        run: RunId,
    },
    /// Print what a run says as it says it, until it has ended; exit code 1 if nothing runs that could end it
    Tail(acts::TailArgs),
    /// Wait until the job of a run has ended, with all its attempts, and with all that was derived from it if its class says so (exit = "all" in
    /// fan_out); exit code 0 if it ended well
    Wait(wait::WaitArgs),
    /// Cancel a run with everything under it, and all that follows it
    Cancel {
        /// The run
        run: RunId,
    },
    /// Run a job again whose last run failed, or many of them
    Retry(acts::RetryArgs),
    /// Tell a run something that it waits for, or will; exit code 1 if there is no such run, or it has ended
    Signal(acts::SignalArgs),
    /// Print what there is to know of a run: attempts, derived work, what it said, why it failed; exit code 1 if there is no such run
    Report {
        /// The run
        run: RunId,
        #[command(flatten)]
        zone: Zone,
    },
}

/// How many runs are looked at in one go.
const PAGE_ROWS: usize = 256;

fn state(text: &str) -> Result<String, String> {
    let known = ["pending", "running", "parked"].into_iter().chain(Outcome::ALL.iter().map(Outcome::as_str));
    let known: Vec<&str> = known.collect();
    let is_known = known.contains(&text);
    is_known.then(|| text.to_owned()).ok_or_else(|| format!("expected one of {}, found {text:?}", known.join(", ")))
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    match &args.command {
        Command::List { state, class, since, limit, tag, after, zone, watch } => watch.show(args.json, out, |out| {
            let since = since.map(|span| SystemClock.now().0.saturating_sub(span));
            let (state, class, tag) = (state.as_deref(), class.as_deref(), tag.as_deref());
            let wanted = Wanted { state, class, since, tag, after: *after };
            let runs = look(&args.home, |look| wanted.find(look, *limit))?.unwrap_or_default();
            let rows = runs.iter().map(|run| (to_json(run), cells(run, *zone)));
            list(rows, args.json, &["RUN", "STATE", "CLASS", "JOB", "ATTEMPT", "MADE", "EVENTS"], "no runs", out)?;
            more(runs.len(), *limit, runs.last().map(|run| run.id.to_string()), args.json, out)
        }),
        Command::Show { run, zone } => {
            let found = found(*run, args.json, look(&args.home, |look| some(look.run(*run)))?.flatten(), out)?;
            show(&found, *zone, args.json, out)
        }
        Command::Events { run, from, limit, zone } => {
            let said = Said { run: *run, from: *from, limit: *limit };
            print_events(&args.home, &said, *zone, args.json, out)
        }
        Command::Lineage { run } => print_lineage(&args.home, *run, args.json, out),
        Command::Tail(tail) => acts::tail(&args.home, tail, args.json, out),
        Command::Wait(wait) => wait::wait(&args.home, wait, args.json, out),
        Command::Cancel { run } => acts::cancel(&args.home, *run, args.json, out),
        Command::Retry(retry) => acts::retry(&args.home, retry, args.json, out),
        Command::Signal(signal) => acts::signal(&args.home, signal, args.json, out),
        Command::Report { run, zone } => {
            let read = |look: &Look<'_>| some(report::read(look, *run));
            let found = found(*run, args.json, look(&args.home, read)?.flatten(), out)?;
            report::print(&found, *zone, args.json, out)
        }
    }
}

/// `kauri events`, `kauri lineage`: the same as under `runs`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  kauri events 019d2c5e-7a10-7c3e-8f00-0123456789ab --from 100 --json")]
pub(crate) struct EventsArgs {
    /// The run
    run: RunId,
    /// From this number on
    #[arg(long, default_value_t = 1, value_name = "SEQ")]
    from: u64,
    /// At most so many; 1000 without it, and with --json all
    #[arg(long, value_name = "ROWS")]
    limit: Option<u64>,
    #[command(flatten)]
    zone: Zone,
    #[command(flatten)]
    home: HomeArgs,
    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  kauri lineage 019d2c5e-7a10-7c3e-8f00-0123456789ab")]
pub(crate) struct LineageArgs {
    /// The run
    run: RunId,
    #[command(flatten)]
    home: HomeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn events(args: &EventsArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let said = Said { run: args.run, from: args.from, limit: args.limit };
    print_events(&args.home, &said, args.zone, args.json, out)
}

pub(crate) fn lineage(args: &LineageArgs, out: &mut impl Write) -> Result<(), Trouble> {
    print_lineage(&args.home, args.run, args.json, out)
}

/// Which events of which run.
struct Said {
    run: RunId,
    from: u64,
    limit: Option<u64>,
}

/// How many events people see if they do not say: as many as they may want to go through.
const EVENTS_SHOWN: u64 = 1_000;

/// Up to the last event that there is when it is asked for, or as many as the limit says: a run that goes on would have no end.
fn print_events(home: &HomeArgs, said: &Said, zone: Zone, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let limit = said.limit.unwrap_or(if json { u64::MAX } else { EVENTS_SHOWN });
    let (first, mut table) = (said.from.max(1), Table::new(&["SEQ", "TIME", "TYPE", "PAYLOAD"]));
    let (mut from, mut last) = (first, None);
    loop {
        let until = last.map_or(u64::MAX, |last: u64| last.saturating_add(1)).min(first.saturating_add(limit));
        let (run, events) = read_events(home, said.run, from, until.saturating_sub(from), json, out)?;
        let last = *last.get_or_insert(run.events);
        if events.is_empty() && json {
            return Ok(());
        }
        if events.is_empty() {
            table.print(&none_shown(first, last), out)?;
            return if from <= last { Ok(writeln!(out, "there are more: --from {from}")?) } else { Ok(()) };
        }
        from += events.len() as u64;
        for event in &events {
            match json {
                true => writeln!(out, "{event}")?,
                false => table.add(event_cells(event, zone)),
            }
        }
    }
}

/// A run, and a page of what it said, which has as many events at most.
fn read_events(
    home: &HomeArgs,
    run: RunId,
    from: u64,
    most: u64,
    json: bool,
    out: &mut impl Write,
) -> Result<(Run, Vec<Value>), Trouble> {
    let most = usize::try_from(most).unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
    let read = |look: &Look<'_>| {
        some(look.run(run).and_then(|run| {
            let events = look.events(run.id, from, most)?;
            let events = events.iter().map(|event| event.to_json(&run)).collect::<runtime::Result<_>>()?;
            let is_removed = look.removed(run.id)?.events;
            Ok((run, events, is_removed))
        }))
    };
    match found(run, json, look(home, read)?.flatten(), out)? {
        (run, _, true) => Err(acts::events_removed(run.id, json, out)),
        (run, events, false) => Ok((run, events)),
    }
}

/// Why people see no event from this number on, of so many.
fn none_shown(from: u64, last: u64) -> String {
    match last {
        0 => "it has said nothing".to_owned(),
        _ if from > last => format!("it has said nothing from {from} on: its events are 1 to {last}"),
        _ => "none are shown".to_owned(),
    }
}

fn event_cells(event: &Value, zone: Zone) -> Vec<String> {
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    vec![event["seq"].to_string(), zone.text(&text("ts")), text("type"), short(&event["payload"].to_string(), 100)]
}

fn print_lineage(home: &HomeArgs, run: RunId, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let found = found(run, json, look(home, |look| some(look.lineage(run)))?.flatten(), out)?;
    print_tree(&found, json, out)
}

/// That there is no such run is an answer.
fn some<T>(found: runtime::Result<T>) -> runtime::Result<Option<T>> {
    match found {
        Err(Error::Run(RunFault::NoRun(_))) => Ok(None),
        found => found.map(Some),
    }
}

fn found<T>(run: RunId, json: bool, found: Option<T>, out: &mut impl Write) -> Result<T, Trouble> {
    if found.is_none() && !json {
        writeln!(out, "there is no run {run}")?;
    }
    found.ok_or(Trouble::No)
}

struct Wanted<'a> {
    state: Option<&'a str>,
    class: Option<&'a str>,
    since: Option<i64>,
    tag: Option<&'a str>,
    after: Option<RunId>,
}

impl Wanted<'_> {
    fn find(&self, look: &Look<'_>, most: usize) -> runtime::Result<Vec<Run>> {
        let (mut runs, mut before) = (Vec::new(), self.after);
        loop {
            let page = look.newest_runs(before, PAGE_ROWS)?;
            let Some(last) = page.last() else { return Ok(runs) };
            before = Some(last.id);
            for run in page {
                // A run's id begins with the moment at which it was made, so what follows is older.
                if runs.len() >= most || self.since.is_some_and(|since| run.created.0 < since) {
                    return Ok(runs);
                }
                let is_meant = self.state.is_none_or(|state| run.state.to_string() == state)
                    && self.class.is_none_or(|class| *run.class == *class)
                    && self.has_tag(look, &run)?;
                runs.extend(is_meant.then_some(run));
            }
        }
    }
}

impl Wanted<'_> {
    fn has_tag(&self, look: &Look<'_>, run: &Run) -> runtime::Result<bool> {
        let Some(tag) = self.tag else { return Ok(true) };
        Ok(look.job_of(run)?.tags.iter().any(|known| **known == *tag))
    }
}

fn cells(run: &Run, zone: Zone) -> Vec<String> {
    vec![
        run.id.to_string(),
        run.state.to_string(),
        run.class.to_string(),
        short(run.job.as_str(), 40),
        run.attempt().to_string(),
        zone.moment(run.created.0),
        run.events.to_string(),
    ]
}

fn show(run: &Run, zone: Zone, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let value = to_json(run);
    if json {
        return Ok(writeln!(out, "{value}")?);
    }
    for (name, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::Null => continue,
            Value::String(text) if matches!(&**name, "created" | "started" | "ended") => zone.text(text),
            Value::String(text) => plain(text),
            other => other.to_string(),
        };
        writeln!(out, "{name:<14} {text}")?;
    }
    Ok(())
}

fn print_tree(found: &Lineage, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let of = |runs: &[Run]| runs.iter().map(to_json).collect::<Vec<_>>();
    if json {
        let value = json!({
            "run": to_json(&found.run),
            "ancestors": of(&found.ancestors),
            "descendants": of(&found.descendants),
        });
        return Ok(writeln!(out, "{value}")?);
    }
    // Those above come one after the other; each of those under stands beneath its parent.
    let above = found.ancestors.iter().rev().enumerate();
    above.into_iter().try_for_each(|(depth, run)| branch(run, depth, "", out))?;
    let branches = branches(&found.run, found.ancestors.len(), &found.descendants);
    branches.iter().try_for_each(|(run, depth)| branch(run, *depth, mark(run, found.run.id), out))
}

/// A run and those under it, each beneath its parent and with how far it is set in.
fn branches<'a>(top: &'a Run, depth: usize, under: &'a [Run]) -> Vec<(&'a Run, usize)> {
    let mut children: BTreeMap<RunId, Vec<&Run>> = BTreeMap::new();
    for run in under {
        children.entry(run.parent().unwrap_or(run.id)).or_default().push(run);
    }
    let (mut found, mut open) = (Vec::new(), vec![(top, depth)]);
    while let Some((run, depth)) = open.pop() {
        found.push((run, depth));
        let children = children.remove(&run.id).unwrap_or_default();
        open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
    found
}

/// What stands before the run that was asked for.
fn mark(run: &Run, asked: RunId) -> &'static str {
    if run.id == asked { "* " } else { "" }
}

/// What a log event says, with its fields if it has some: `derived work was not made (target=mail, reason=too deep)`.
fn log_words(payload: &Value) -> String {
    let message = payload["message"].as_str().unwrap_or_default();
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let fields = payload["fields"].as_object().into_iter().flatten();
    let fields: Vec<String> = fields.map(|(name, value)| format!("{name}={}", word(value))).collect();
    if fields.is_empty() { message.to_owned() } else { format!("{message} ({})", fields.join(", ")) }
}

/// What a tree comes to by its policy, and how many of its runs stand where.
fn tree_words(tree: &Value) -> String {
    let outcome = tree["outcome"].as_str().unwrap_or("not decided yet");
    let by = if tree["exit"] == "all" { "all" } else { "the first" };
    let counts: Vec<String> =
        tree["counts"].as_object().into_iter().flatten().map(|(state, count)| format!("{count} {state}")).collect();
    format!("{outcome}, by {by} of {} jobs in its tree: {}", tree["jobs"], counts.join(", "))
}

fn branch(run: &Run, depth: usize, mark: &str, out: &mut impl Write) -> Result<(), Trouble> {
    let what = format!("{} {} attempt {} of {} ({})", run.id, run.state, run.attempt(), run.job, run.class);
    Ok(writeln!(out, "{:indent$}{mark}{}", "", plain(&what), indent = 2 * depth)?)
}
