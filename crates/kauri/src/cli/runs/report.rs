//! `kauri runs report`: what there is to know of a run, on one page.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;

use kauri::runtime::run::{Removed, Run};
use kauri::runtime::{self, Look};
use kauri::wire::RunId;
use serde_json::{Value, json};

use super::to_json;
use crate::cli::Trouble;
use crate::cli::table::{Zone, plain, short};

/// How many events are read in one go.
const PAGE: usize = 512;
/// How many of the last log lines are shown.
const LOG_LINES: usize = 10;
/// How many artifacts are named.
const ARTIFACTS_MAX: usize = 100;

/// A run and all that is told of it.
pub(super) struct Report {
    run: Run,
    /// The runs of the same job, in the order of their attempts.
    attempts: Vec<Run>,
    counts: BTreeMap<String, u64>,
    log: VecDeque<String>,
    artifacts: Vec<Value>,
    error: Option<Value>,
    removed: Removed,
}

pub(super) fn read(look: &Look<'_>, id: RunId) -> runtime::Result<Report> {
    let lineage = look.lineage(id)?;
    let run = lineage.run;
    let others = lineage.ancestors.into_iter().chain(lineage.descendants);
    let mut attempts: Vec<Run> = others.filter(|other| other.job == run.job).chain([run.clone()]).collect();
    attempts.sort_by_key(Run::attempt);
    let (counts, log, artifacts, removed) = (BTreeMap::new(), VecDeque::new(), Vec::new(), look.removed(id)?);
    let mut report = Report { run, attempts, counts, log, artifacts, error: None, removed };
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

impl Report {
    fn take(&mut self, event: &Value) {
        let (kind, payload) = (event["type"].as_str().unwrap_or_default(), &event["payload"]);
        *self.counts.entry(kind.to_owned()).or_default() += 1;
        match kind {
            "log" => {
                self.log.push_back(payload["message"].as_str().unwrap_or_default().to_owned());
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
            "log": report.log,
            "error": report.error,
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
    if !report.log.is_empty() {
        writeln!(out, "\nlast of the log")?;
        report.log.iter().try_for_each(|line| writeln!(out, "  {}", plain(&short(line, 200))))?;
    }
    Ok(())
}
