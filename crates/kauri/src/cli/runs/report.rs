//! `kauri runs report`: what there is to know of a run, on one page.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use kauri::control::tree_json;
use kauri::runtime::run::{Origin, Removed, Run, RunFault, RunReport, Tree};
use kauri::runtime::{self, Look};
use kauri::wire::RunId;
use serde_json::{Value, json};

use super::{branch, branches, log_words, mark, to_json, tree_words};
use crate::cli::Trouble;
use crate::cli::table::{Zone, plain, short};

/// How many events are read in one go.
const PAGE: usize = 512;
/// How many of the last log lines are shown.
const LOG_LINES: usize = 10;
/// How many artifacts are named.
const ARTIFACTS_MAX: usize = 100;
/// How many runs of a tree are named, to programs and to people.
const TREE_RUNS_MAX: usize = 1_000;
const TREE_LINES_MAX: usize = 100;

/// A run and all that is told of it.
pub(super) struct Report {
    run: Run,
    /// The runs of the same job, in the order of their attempts.
    attempts: Vec<Run>,
    counts: BTreeMap<String, u64>,
    /// What the last log events say.
    log: VecDeque<Value>,
    artifacts: Vec<Value>,
    error: Option<Value>,
    /// The whole tree, if the run's job has derived work.
    tree: Option<Tree>,
    /// How its script went, if one was executed.
    script: Option<RunReport>,
    removed: Removed,
}

pub(super) fn read(look: &Look<'_>, id: RunId) -> runtime::Result<Report> {
    let lineage = look.lineage(id)?;
    let run = lineage.run;
    let others = lineage.ancestors.into_iter().chain(lineage.descendants);
    let mut attempts: Vec<Run> = others.filter(|other| other.job == run.job).chain([run.clone()]).collect();
    attempts.sort_by_key(Run::attempt);
    let (tree, script, removed) = (tree(look, &run)?, look.report_of(id)?, look.removed(id)?);
    let (counts, log, artifacts) = Default::default();
    let mut report = Report { run, attempts, counts, log, artifacts, error: None, tree, script, removed };
    let mut from = 1;
    loop {
        let events = look.events(id, from, PAGE)?;
        for event in &events {
            report.take(&event.to_json(&report.run)?);
        }
        from += events.len() as u64;
        if events.len() < PAGE {
            return Ok(report);
        }
    }
}

/// The tree of a run whose job has derived work: from its first run on, whose class says what the outcome of the whole depends on.
fn tree(look: &Look<'_>, run: &Run) -> runtime::Result<Option<Tree>> {
    let tree = match look.tree(run.root) {
        Err(runtime::Error::Run(RunFault::NoRun(_))) => return Ok(None),
        found => found?,
    };
    let own: Vec<RunId> = tree.runs.iter().filter(|other| other.job == run.job).map(|other| other.id).collect();
    let is_derived = |other: &Run| matches!(other.origin, Origin::Child { of, .. } if own.contains(&of));
    Ok(tree.runs.iter().any(is_derived).then_some(tree))
}

impl Report {
    /// The tree for programs: its numbers and its runs.
    fn tree_json(&self) -> Option<Value> {
        let tree = self.tree.as_ref()?;
        let mut value = tree_json(tree);
        value["runs"] = tree.runs.iter().take(TREE_RUNS_MAX).map(to_json).collect();
        value["runs_left_out"] = tree.runs.len().saturating_sub(TREE_RUNS_MAX).into();
        Some(value)
    }

    fn take(&mut self, event: &Value) {
        let (kind, payload) = (event["type"].as_str().unwrap_or_default(), &event["payload"]);
        *self.counts.entry(kind.to_owned()).or_default() += 1;
        match kind {
            "log" => {
                self.log.push_back(payload.clone());
                if self.log.len() > LOG_LINES {
                    self.log.pop_front();
                }
            }
            "artifact" if self.artifacts.len() < ARTIFACTS_MAX => self.artifacts.push(payload.clone()),
            "run_error" => self.error = Some(payload.clone()),
            _ => {}
        }
    }
}

pub(super) fn print(report: &Report, zone: Zone, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    if json {
        let value = json!({
            "run": to_json(&report.run),
            "attempts": report.attempts.iter().map(to_json).collect::<Vec<_>>(),
            "events": report.counts,
            "artifacts": report.artifacts,
            "log": report.log.iter().map(|said| said["message"].as_str().unwrap_or_default()).collect::<Vec<_>>(),
            "error": report.error,
            "tree": report.tree_json(),
            "script": report.script.as_ref().map(script_json),
            "events_removed": report.removed.events,
            "artifacts_removed": report.removed.artifacts,
        });
        return Ok(writeln!(out, "{value}")?);
    }
    let run = to_json(&report.run);
    let text = |name: &str| run[name].as_str().unwrap_or("-").to_owned();
    writeln!(out, "run      {}\njob      {} ({})", text("run_id"), plain(&text("job_id")), plain(&text("class")))?;
    writeln!(out, "state    {}, attempt {} of {} so far", text("state"), run["attempt"], report.attempts.len())?;
    let [made, started, ended] = ["created", "started", "ended"].map(|name| zone.text(&text(name)));
    writeln!(out, "made     {made}\nstarted  {started}\nended    {ended}")?;
    for (name, what) in [("queued_ms", "waited"), ("ran_ms", "took")] {
        if let Some(millis) = run[name].as_u64() {
            writeln!(out, "{what:<8} {millis} ms")?;
        }
    }
    let counts: Vec<String> = report.counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let said = match report.removed.events {
        true => format!("{} events, which are kept no longer", report.run.events),
        false if counts.is_empty() => "nothing".to_owned(),
        false => counts.join(", "),
    };
    writeln!(out, "said     {said}")?;
    if report.removed.artifacts {
        writeln!(out, "         its artifacts and files are kept no longer")?;
    }
    if let Some(script) = &report.script {
        print_script(script, out)?;
    }
    for artifact in &report.artifacts {
        let name = artifact["name"].as_str().unwrap_or_default();
        writeln!(out, "artifact {} ({} bytes)", plain(name), artifact["size_bytes"])?;
    }
    if let Some(error) = &report.error {
        let text = |name: &str| error[name].as_str().unwrap_or_default();
        writeln!(out, "\nfailed   {}", plain(text("error_type")))?;
        text("message").lines().try_for_each(|line| writeln!(out, "  {}", plain(line)))?;
    }
    if report.attempts.len() > 1 {
        writeln!(out, "\nattempts")?;
        for run in &report.attempts {
            writeln!(out, "  {} {} {}", run.attempt(), run.id, run.state)?;
        }
    }
    if let Some(tree) = &report.tree {
        print_tree(tree, report.run.id, out)?;
    }
    if !report.log.is_empty() {
        writeln!(out, "\nlast of the log")?;
        report.log.iter().try_for_each(|said| writeln!(out, "  {}", plain(&short(&log_words(said), 200))))?;
    }
    Ok(())
}

/// Every run beneath its parent, and what the whole comes to.
fn print_tree(tree: &Tree, asked: RunId, out: &mut impl Write) -> Result<(), Trouble> {
    let Some((top, under)) = tree.runs.split_first() else { return Ok(()) };
    writeln!(out, "\ntree")?;
    let branches = branches(top, 1, under);
    for (run, depth) in branches.iter().take(TREE_LINES_MAX) {
        branch(run, *depth, mark(run, asked), out)?;
    }
    if let Some(more @ 1..) = branches.len().checked_sub(TREE_LINES_MAX) {
        writeln!(out, "  and {more} more: kauri lineage {}", top.id)?;
    }
    let value = tree_json(tree);
    Ok(writeln!(out, "  {}; {} runs, {} events", tree_words(&value), tree.runs.len(), value["events"])?)
}

fn script_json(script: &RunReport) -> Value {
    let phases = script.phases.iter().map(|(phase, took)| {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        json!({ "phase": phase.as_str(), "took_us": micros })
    });
    let swallowed = script.swallowed.iter().map(|swallowed| {
        let error = &swallowed.error;
        json!({ "phase": swallowed.phase.as_str(), "error_type": error.error_type, "message": error.message })
    });
    json!({
        "drives": script.drives,
        "phases": phases.collect::<Vec<_>>(),
        "swallowed": swallowed.collect::<Vec<_>>(),
        "swallowed_total": script.swallowed_total,
        "emitted": script.emitted,
        "refused": script.refused,
        "dropped": script.dropped,
        "left_alone": script.left_alone,
        "orphans": script.orphans,
        "disputed": script.is_disputed,
    })
}

/// How long each phase took, and whatever is not as it should be.
fn print_script(script: &RunReport, out: &mut impl Write) -> Result<(), Trouble> {
    let phases: Vec<String> = script.phases.iter().map(|(phase, took)| format!("{phase} {took:.1?}")).collect();
    writeln!(out, "phases   {}", phases.join(", "))?;
    for (count, what) in [
        (script.refused, "events came too late"),
        (script.dropped, "events were dropped"),
        (script.left_alone, "calls did not stop"),
        (script.orphans, "artifacts had no event"),
        (u64::from(script.is_disputed), "end that its command did not stand by"),
    ] {
        if count > 0 {
            writeln!(out, "odd      {count} {what}")?;
        }
    }
    for swallowed in &script.swallowed {
        let words = short(&swallowed.error.to_string(), 200);
        writeln!(out, "odd      {} failed, which changed nothing: {}", swallowed.phase, plain(&words))?;
    }
    Ok(())
}
