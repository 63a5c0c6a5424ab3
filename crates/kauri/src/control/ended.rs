//! How a job ended: alone, or with all the work that was derived from it, if its class says that this counts too.

use std::time::Duration;

use kauri_runtime::run::{Exit, Job, Run, RunFault, Runs, Tree};
use kauri_runtime::{Error, Look, Result};
use kauri_wire::{JobId, RunId};
use serde_json::{Value, json};

use super::{moment, run_json};
use crate::config::exit_word;

/// Waits until the job of a run has ended, and with a first job whose class says so everything under it; or until the time is over.
pub(super) fn wait(runs: &Runs, id: RunId, most: Duration) -> Result<()> {
    let now = || runs.runtime().now().mono;
    let until = now() + most;
    let run = runs.run(id)?;
    runs.wait(&run.job, Some(most))?;
    if !is_first(&run) || runs.class(&run.class)?.is_none_or(|(class, _)| class.fan_out.exit == Exit::Root) {
        return Ok(());
    }
    loop {
        let open = open_jobs(&runs.tree(run.root)?);
        if open.is_empty() || until.since(now()).is_zero() {
            return Ok(());
        }
        // The tree is read again only when all of these have ended: each may have asked for more.
        for job in open {
            match runs.wait(&job, Some(until.since(now()))) {
                // Whatever was removed had ended.
                Ok(_) | Err(Error::Run(RunFault::NoJob(_))) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a run belongs to the first job of its tree.
fn is_first(run: &Run) -> bool {
    run.depth == 0
}

fn open_jobs(tree: &Tree) -> Vec<JobId> {
    let jobs = tree.jobs().into_values().filter(|run| run.outcome().is_none());
    jobs.map(|run| run.job.clone()).collect()
}

/// How the job of a run stands, as `wait` answers it: the job, its latest run, and once it is over what it came to.
///
/// # Errors
/// `NoRun`, or if the store fails or a row is damaged.
pub fn ended_json(look: &Look<'_>, id: RunId) -> Result<Value> {
    let job = look.job_of(&look.run(id)?)?;
    let latest = look.run(job.latest)?;
    let tree = if is_first(&latest) { Some(look.tree(latest.root)?) } else { None };
    let tree = tree.filter(|tree| tree.exit == Exit::All);
    let over = job.outcome.is_some() && tree.as_ref().is_none_or(|tree| open_jobs(tree).is_empty());
    let outcome = tree.as_ref().map_or(job.outcome, Tree::outcome).filter(|_| over);
    let (result, failure) = result(look, &latest)?;
    Ok(json!({
        "over": over,
        "outcome": outcome.map(|outcome| outcome.as_str()),
        "job": job_json(&job),
        "run": run_json(&latest),
        "message": failure["message"].as_str(),
        "result": result,
        "failure": failure,
        "tree": tree.as_ref().map(tree_json),
    }))
}

/// What a run that has ended left: the summary of its `run_complete`, or what its `run_error` says. Nothing if it was removed since.
fn result(look: &Look<'_>, run: &Run) -> Result<(Value, Value)> {
    let Some(outcome) = run.outcome() else { return Ok((Value::Null, Value::Null)) };
    let Some(last) = look.events(run.id, run.events, 1)?.pop() else { return Ok((Value::Null, Value::Null)) };
    let mut payload = last.to_json(run)?["payload"].take();
    Ok(if outcome.is_success() { (payload["summary"].take(), Value::Null) } else { (Value::Null, payload) })
}

/// What a run that failed said at its end; nothing if it did not fail, or was removed since.
pub(crate) fn last_words(look: &Look<'_>, run: &Run) -> Result<Option<String>> {
    Ok(result(look, run)?.1["message"].as_str().map(str::to_owned))
}

/// A tree of runs in numbers: what its outcome depends on, what that is once it is decided, and how many runs stand where.
#[must_use]
pub fn tree_json(tree: &Tree) -> Value {
    let jobs = tree.jobs();
    json!({
        "root_run_id": tree.runs.first().map(|run| run.id.to_string()),
        "exit": exit_word(tree.exit),
        "outcome": tree.outcome().map(|outcome| outcome.as_str()),
        "over": jobs.values().all(|run| run.outcome().is_some()),
        "jobs": jobs.len(),
        "jobs_open": open_jobs(tree).len(),
        "counts": tree.counts(),
        "events": tree.runs.iter().map(|run| run.events).sum::<u64>(),
    })
}

fn job_json(job: &Job) -> Value {
    let tags: Vec<&str> = job.tags.iter().map(|tag| &**tag).collect();
    json!({
        "job_id": job.id.as_str(),
        "class": job.class,
        "outcome": job.outcome.map(|outcome| outcome.as_str()),
        "attempts": job.attempts,
        "created": moment(job.created.0),
        "deadline": job.deadline.map(|at| moment(at.0)),
        "first_run_id": job.first.to_string(),
        "latest_run_id": job.latest.to_string(),
        "urgent": job.is_urgent,
        "tags": tags,
        "after": job.after.iter().map(JobId::as_str).collect::<Vec<_>>(),
    })
}
