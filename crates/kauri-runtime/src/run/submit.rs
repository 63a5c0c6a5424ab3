//! Submitting jobs.

use kauri_wire::{JobId, RunId, WorkerId};

use super::fault::RunFault;
use super::job::{Job, LIST_MAX, Submission};
use super::make::{self, Input, NewRun, stage_job};
use super::outcome::Origin;
use super::runs::{Runs, check_name};
use super::{ids, index, seal, unique};
use crate::atomic::Atomic;
use crate::error::Result;
use crate::keys;
use crate::runtime::Shared;
use crate::substrate::at_most;

/// What became of a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submitted {
    /// The job.
    pub job: JobId,
    /// Its first run.
    pub run: RunId,
    /// Whether it was made now; else it was there, under the same key. If its key has a window, it may be gone.
    pub is_new: bool,
}

impl Runs {
    /// Submits a job. When this returns it is in the store, with its first run, and survives.
    ///
    /// # Errors
    /// `NoClass`, `NoJob` if it waits for one that is not there, `JobExists`, `RunExists`, `Name`, `Limit`, or if the substrate fails.
    pub fn submit(&self, submission: &Submission) -> Result<Submitted> {
        check_submission(submission)?;
        self.atomically(|block| stage_submission(block, self.shared(), submission))
    }

    /// Submits jobs together: all of them or none, in one commit. Answers what became of each, in their order.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), of the first that cannot be submitted; `Limit` if they are too many for one commit.
    pub fn submit_all(&self, submissions: &[Submission]) -> Result<Vec<Submitted>> {
        submissions.iter().try_for_each(check_submission)?;
        self.atomically(|block| {
            submissions.iter().map(|wanted| stage_submission(block, self.shared(), wanted)).collect()
        })
    }
}

pub(super) fn stage_submission(block: &mut Atomic<'_>, shared: &Shared, wanted: &Submission) -> Result<Submitted> {
    let worker = make::class(block, &wanted.class)?.class.worker;
    let now = block.now().wall;
    if let Some(found) = unique::find(block, wanted, now)? {
        return Ok(found);
    }
    let id = match wanted.run {
        Some(run) => ids::choose(block, run).map(|()| run)?,
        None => ids::fresh(block, shared)?,
    };
    let job = match &wanted.job {
        Some(job) => {
            keys::check_job(&shared.takes, job.as_str())?;
            job.clone()
        }
        None => make::own_job(id)?,
    };
    let submitted = Submitted { job: job.clone(), run: id, is_new: true };
    stage_new_job(block, wanted, worker, id, job)?;
    unique::take(block, wanted, &submitted, now)?;
    Ok(submitted)
}

fn stage_new_job(block: &mut Atomic<'_>, wanted: &Submission, worker: WorkerId, run: RunId, id: JobId) -> Result<()> {
    if make::find_job(block, &id)?.is_some() {
        return Err(RunFault::JobExists(id).into());
    }
    let now = block.now().wall;
    let mut job = Job {
        id,
        class: wanted.class.clone(),
        outcome: None,
        created: now,
        deadline: wanted.deadline,
        first: run,
        latest: run,
        attempts: 1,
        tags: wanted.tags.clone(),
        after: wanted.after.clone(),
        at: wanted.at,
        waiting: 0,
        on_failed: wanted.on_failed,
        is_urgent: wanted.is_urgent,
        is_hurt: false,
        gate: wanted.gate,
        unique: wanted.unique.as_ref().map(|(key, _)| index::unique_hash(&wanted.class, key)),
    };
    for before in &wanted.after {
        make::job(block, before)?;
    }
    seal::await_others(block, &mut job, run)?;
    let (origin, input) = (Origin::First, Input::Own(&wanted.input));
    let made = make::make(block, &NewRun { id: run, job: &job, origin, depth: 0, root: run, input, now })?;
    stage_job(block, &job)?;
    make::dispatch_to(block, worker, &made, &job, wanted.at)
}

pub(super) fn check_submission(wanted: &Submission) -> Result<()> {
    if let Some((key, _)) = &wanted.unique {
        check_name("an idempotency key", key)?;
    }
    wanted.tags.iter().try_for_each(|tag| check_name("a tag", tag))?;
    for (of, found) in [("tags", wanted.tags.len()), ("jobs to wait for", wanted.after.len())] {
        at_most(of, LIST_MAX, found)?;
    }
    Ok(())
}
