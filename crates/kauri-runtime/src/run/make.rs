//! Making runs: identity, lineage, and the messages that drive them. Everything here is staged in a block, and happens with its commit.

use kauri_wire::{Flags, JobId, Key, Message, MessageId, RunId, Timestamp, WorkerId};

use super::class::ClassRow;
use super::fault::RunFault;
use super::index;
use super::job::Job;
use super::outcome::{Origin, State};
use super::row::Run;
use super::seal;
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::read::Read;
use crate::schema::{INPUTS, JOBS, RUN_INDEX, RUNS};
use crate::substrate::{Bytes, KeyRange, prefix_end};

pub(super) fn find_run(rows: &impl Read, id: RunId) -> Result<Option<Run>> {
    rows.row(&RUNS, id.as_bytes())?.map(|row| Run::decode(id, &row)).transpose()
}

pub(super) fn run(rows: &impl Read, id: RunId) -> Result<Run> {
    find_run(rows, id)?.ok_or(Error::Run(RunFault::NoRun(id)))
}

pub(super) fn find_job(rows: &impl Read, id: &JobId) -> Result<Option<Job>> {
    rows.row(&JOBS, id.as_str().as_bytes())?.map(|row| Job::decode(id.clone(), &row)).transpose()
}

pub(super) fn job(rows: &impl Read, id: &JobId) -> Result<Job> {
    find_job(rows, id)?.ok_or_else(|| Error::Run(RunFault::NoJob(id.clone())))
}

pub(super) fn find_class(rows: &impl Read, name: &str) -> Result<Option<ClassRow>> {
    rows.row(&RUN_INDEX, &index::class(name))?.map(|row| ClassRow::decode(&row)).transpose()
}

pub(super) fn class(rows: &impl Read, name: &str) -> Result<ClassRow> {
    find_class(rows, name)?.ok_or_else(|| Error::Run(RunFault::NoClass(name.into())))
}

pub(super) fn stage_run(block: &mut Atomic<'_>, run: &Run) -> Result<()> {
    block.stage_bytes(&RUNS, run.id.as_bytes().into(), Some(run.encode().into()))
}

pub(super) fn stage_job(block: &mut Atomic<'_>, job: &Job) -> Result<()> {
    block.stage_bytes(&JOBS, job.id.as_str().into(), Some(job.encode().into()))
}

pub(super) fn mark(block: &mut Atomic<'_>, key: &[u8]) -> Result<()> {
    block.stage_bytes(&RUN_INDEX, key.into(), Some(Bytes::default()))
}

pub(super) fn unmark(block: &mut Atomic<'_>, key: &[u8]) -> Result<()> {
    block.stage(&RUN_INDEX, key, None)
}

/// Up to `most` keys of the index with this prefix, in order.
pub(super) fn marked(rows: &impl Read, prefix: &[u8], most: usize) -> Result<Vec<Vec<u8>>> {
    let until = prefix_end(prefix);
    let mut scan = rows.rows(&RUN_INDEX, KeyRange { from: prefix, until: until.as_deref() })?;
    let mut keys = Vec::new();
    while keys.len() < most {
        let Some((key, _)) = scan.next()? else { break };
        keys.push(key.to_vec());
    }
    Ok(keys)
}

/// The runs of a job that are there, in the order of their attempts.
pub(super) fn attempts(rows: &impl Read, job: &Job) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = find_run(rows, job.first)?.into_iter().collect();
    let until = prefix_end(&index::attempts(&job.id));
    let from = index::attempt(&job.id, 2);
    let mut scan = rows.rows(&RUN_INDEX, KeyRange { from: &from, until: until.as_deref() })?;
    while let Some((_, value)) = scan.next()? {
        runs.extend(find_run(rows, index::run_value(&value)?)?);
    }
    Ok(runs)
}

/// How many keys of the index have this prefix.
pub(super) fn count_marked(rows: &impl Read, prefix: &[u8]) -> Result<u64> {
    let until = prefix_end(prefix);
    rows.count(&RUN_INDEX, KeyRange { from: prefix, until: until.as_deref() })
}

/// A run that is about to be made.
#[derive(Clone, Debug)]
pub(super) struct NewRun<'a> {
    pub(super) id: RunId,
    pub(super) job: &'a Job,
    pub(super) origin: Origin,
    pub(super) depth: u32,
    pub(super) root: RunId,
    pub(super) input: Input<'a>,
    pub(super) now: Timestamp,
}

/// What a new run is given.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input<'a> {
    /// These bytes.
    Own(&'a [u8]),
    /// What this run was given, if anything was.
    Of(Option<RunId>),
}

/// Stages a new run, pending, if its lineage is right. Whoever calls has seen in this block that no run has the id.
pub(super) fn make(block: &mut Atomic<'_>, new: &NewRun<'_>) -> Result<Run> {
    check_lineage(block, new)?;
    let input_of = match new.input {
        Input::Of(run) => run,
        Input::Own([]) => None,
        Input::Own(input) => {
            block.stage(&INPUTS, new.id.as_bytes(), Some(input))?;
            Some(new.id)
        }
    };
    let run = Run {
        id: new.id,
        job: new.job.id.clone(),
        class: new.job.class.clone(),
        origin: new.origin,
        depth: new.depth,
        root: new.root,
        state: State::Pending,
        is_cancelled: false,
        created: new.now,
        started: None,
        ended: None,
        events: 0,
        hash: [0; 32],
        claims: 0,
        steps: 0,
        kept: 0,
        message: 0,
        input_of,
        bytes: if let Input::Own(input) = new.input { input.len() as u64 } else { 0 },
        artifact_bytes: 0,
    };
    stage_run(block, &run)?;
    if let Origin::Retry { attempt, .. } = run.origin {
        block.stage(&RUN_INDEX, &index::attempt(&run.job, attempt), Some(run.id.as_bytes()))?;
    }
    if let Some(parent) = run.parent() {
        mark(block, &index::child(parent, run.id))?;
    }
    Ok(run)
}

/// Whether a run has ended without success, so that another may follow it.
pub(super) fn check_failed(run: &Run) -> Result<()> {
    match run.outcome() {
        None => Err(RunFault::NotEnded(run.id).into()),
        Some(outcome) if outcome.is_success() => Err(RunFault::Succeeded(run.id).into()),
        Some(_) => Ok(()),
    }
}

fn check_lineage(block: &Atomic<'_>, new: &NewRun<'_>) -> Result<()> {
    let wrong = |expected| Err(RunFault::Lineage { run: new.id, expected }.into());
    match new.origin {
        Origin::First if new.depth != 0 || new.root != new.id => wrong("a first run at the top of its tree"),
        Origin::First => Ok(()),
        Origin::Retry { of, attempt } => {
            let parent = run(block, of)?;
            check_failed(&parent)?;
            if parent.job != new.job.id || Some(attempt) != parent.attempt().checked_add(1) {
                return wrong("the job of the run it retries, and the attempt after it");
            }
            if (parent.depth, parent.root) != (new.depth, new.root) {
                return wrong("the place in the tree of the run it retries");
            }
            match block.row(&RUN_INDEX, &index::attempt(&parent.job, attempt))? {
                Some(_) => Err(RunFault::Followed(of).into()),
                None => Ok(()),
            }
        }
        Origin::Child { of, depth } => {
            let parent = run(block, of)?;
            if parent.outcome().is_some() {
                return Err(RunFault::Ended(of).into());
            }
            if depth != new.depth || Some(depth) != parent.depth.checked_add(1) || parent.root != new.root {
                return wrong("the tree of its parent, one below it");
            }
            Ok(())
        }
    }
}

/// The message that drives a run, or wakes it: the run is what it says.
pub(super) fn drive_message(run: RunId, worker: WorkerId, is_urgent: bool) -> Result<Message> {
    let id = MessageId::new([b"run:", &run.as_bytes()[..]].concat())?;
    let message = Message::command(worker, id, *run.as_bytes()).with(Flags::DURABLE);
    Ok(if is_urgent { message.with(Flags::HIGH_PRIORITY) } else { message })
}

/// The run that a message is about.
pub(super) fn driven_run(payload: &[u8]) -> Option<RunId> {
    RunId::decode(payload).ok()
}

/// Stages the message that drives a new run, now or at its time, and the one that ends it when it is no longer wanted.
pub(super) fn dispatch(block: &mut Atomic<'_>, run: &Run, job: &Job, due: Option<Timestamp>) -> Result<()> {
    let worker = class(block, &run.class)?.class.worker;
    dispatch_to(block, worker, run, job, due)
}

/// The same, when the worker of its class is known.
pub(super) fn dispatch_to(
    block: &mut Atomic<'_>,
    worker: WorkerId,
    run: &Run,
    job: &Job,
    due: Option<Timestamp>,
) -> Result<()> {
    let message = drive_message(run.id, worker, job.is_urgent)?;
    if let Some(deadline) = job.deadline {
        block.arm(deadline, &message)?;
    }
    if job.waiting > 0 && !seal::is_doomed(job) {
        return Ok(());
    }
    match due {
        Some(due) if due > block.now().wall => block.arm(due, &message),
        _ => block.emit(&message),
    }
}

/// Stages a message that wakes a run.
pub(super) fn wake(block: &mut Atomic<'_>, run: &Run) -> Result<()> {
    let message = wake_message(block, run)?;
    block.emit(&message)
}

/// The message that wakes a run: as urgent as the first.
pub(super) fn wake_message(block: &Atomic<'_>, run: &Run) -> Result<Message> {
    let worker = class(block, &run.class)?.class.worker;
    // A job is as urgent as it was submitted, whatever else of it changes.
    let job = block.peek(&JOBS, run.job.as_str().as_bytes())?;
    let job = job.map(|row| Job::decode(run.job.clone(), &row)).transpose()?;
    drive_message(run.id, worker, job.is_some_and(|job| job.is_urgent))
}

/// The id of a job whose first run this is, if nobody chose another.
pub(super) fn own_job(first: RunId) -> Result<JobId> {
    Ok(JobId::new(format!("job-{first}"))?)
}
