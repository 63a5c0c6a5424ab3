//! A tree of runs as a whole: what became of a job and all the work derived from it.

use std::collections::BTreeMap;

use kauri_wire::{JobId, RunId};
use serde_json::{Value as Json, json};

use super::class::Exit;
use super::make;
use super::outcome::Outcome;
use super::row::Run;
use super::runs::{Runs, descendants};
use crate::error::Result;
use crate::read::View;

/// A first run with everything under it, as it is in one version of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    /// All runs, each after its parent; the first is the one that was asked for.
    pub runs: Vec<Run>,
    /// What the outcome of the whole depends on.
    pub exit: Exit,
}

impl Tree {
    /// The jobs, each with its last run.
    #[must_use]
    pub fn jobs(&self) -> BTreeMap<&JobId, &Run> {
        let mut last: BTreeMap<&JobId, &Run> = BTreeMap::new();
        for run in &self.runs {
            let before = last.entry(&run.job).or_insert(run);
            if before.attempt() < run.attempt() {
                *before = run;
            }
        }
        last
    }

    /// How many runs stand where, by the words of their states and outcomes.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for run in &self.runs {
            *counts.entry(run.state.to_string()).or_default() += 1;
        }
        counts
    }

    /// The outcome of the whole, once it is decided: of the first job alone, or of all of them. Where all count, the first job's failure
    /// goes before the others', and among these the one that ended first.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        let jobs = self.jobs();
        let own = jobs.get(&self.runs.first()?.job)?.outcome()?;
        if self.exit == Exit::Root || !own.is_success() {
            return Some(own);
        }
        let mut all: Vec<&Run> = jobs.into_values().collect();
        // Not by their ids: a job that was tried again has a younger run than one that failed later.
        all.sort_by_key(|run| (run.ended, run.id));
        let all = all.iter().map(|run| run.outcome()).collect::<Option<Vec<Outcome>>>()?;
        Some(all.into_iter().find(|outcome| !outcome.is_success()).unwrap_or(own))
    }

    /// The report: the outcome of the whole, counts, and every run with what people ask of it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({
            "outcome": self.outcome().map(|outcome| outcome.as_str()),
            "counts": self.counts(),
            "runs": self.runs.iter().map(run_json).collect::<Json>(),
        })
    }
}

/// A run as reports have it.
fn run_json(run: &Run) -> Json {
    let (queued_ms, ran_ms) = run.durations();
    json!({
        "run_id": run.id.to_string(),
        "job_id": run.job.as_str(),
        "parent_run_id": run.parent().map(|parent| parent.to_string()),
        "attempt": run.attempt(),
        "depth": run.depth,
        "class": &*run.class,
        "outcome": run.outcome().map(|outcome| outcome.as_str()),
        "state": run.state.to_string(),
        "queued_ms": queued_ms,
        "ran_ms": ran_ms,
        "events": run.events,
        "steps": run.steps,
        "kept": run.kept,
    })
}

impl Run {
    /// What people ask of a run, as one JSON object: identity, lineage, outcome, how long each phase took, and counts.
    #[must_use]
    pub fn to_json(&self) -> Json {
        run_json(self)
    }
}

impl Runs {
    /// A run with everything under it.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or a row is damaged.
    pub fn tree(&self, root: RunId) -> Result<Tree> {
        self.read(|view| tree(view, root))
    }
}

pub(super) fn tree(view: &View<'_>, root: RunId) -> Result<Tree> {
    let run = make::run(view, root)?;
    let exit = make::class(view, &run.class)?.class.fan_out.exit;
    let mut runs = vec![run];
    runs.extend(descendants(view, root)?);
    Ok(Tree { runs, exit })
}
