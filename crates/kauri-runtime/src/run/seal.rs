//! Ends of runs: the terminal event, the outcome, and what follows from it, all in one commit.

use std::time::Duration;

use kauri_wire::run::{Event, EventType};
use kauri_wire::{JobId, RunId, Timestamp};

use super::class::ClassRow;
use super::event;
use super::fault::RunFault;
use super::index::Gate;
use super::job::{Job, OnFailed};
use super::make::{self, Input, NewRun, count_marked, mark, marked, stage_job, stage_run, unmark};
use super::outcome::{Origin, Outcome, State};
use super::row::Run;
use super::sink::EventDraft;
use super::{ids, index, signal, step};
use crate::atomic::Atomic;
use crate::error::Result;
use crate::read::Read;
use crate::runtime::Shared;
use crate::schema::RUN_INDEX;

/// How a run ends, and the last thing it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// How.
    pub outcome: Outcome,
    /// The terminal event: `run_complete` after a success, `run_error` after anything else.
    pub terminal: EventDraft,
}

impl Ending {
    /// A success, with a summary if `summary` has keys.
    #[must_use]
    pub fn success(now: Timestamp, summary: kauri_wire::pack::Map<'_>) -> Self {
        let summary = (!summary.is_empty()).then_some(summary);
        let payload = Event::RunComplete { summary }.payload().view().encode();
        let terminal = EventDraft { kind: EventType::RunComplete, ts: now.0, payload };
        Self { outcome: Outcome::Success { skipped: false }, terminal }
    }

    /// A success for which nothing was run.
    #[must_use]
    pub fn skipped(now: Timestamp, reason: &str) -> Self {
        let mut summary = kauri_wire::pack::MapBuf::new();
        summary.put("skipped", true).put("reason", reason);
        Self { outcome: Outcome::Success { skipped: true }, ..Self::success(now, summary.view()) }
    }

    /// An end that is no success, in words.
    #[must_use]
    pub fn failure(now: Timestamp, outcome: Outcome, message: &str) -> Self {
        let error_type = outcome.as_str();
        let payload = Event::RunError { error_type, message, stack: None }.payload().view().encode();
        Self { outcome, terminal: EventDraft { kind: EventType::RunError, ts: now.0, payload } }
    }

    /// Whether the terminal event says what the outcome says.
    fn check(&self) -> Result<()> {
        let expected = if self.outcome.is_success() { EventType::RunComplete } else { EventType::RunError };
        if self.terminal.kind == expected {
            return Ok(());
        }
        let (found, outcome) = (self.terminal.kind, self.outcome);
        Err(RunFault::Event(format!("expected {expected} to end a run with {outcome}, found {found}").into()).into())
    }
}

/// Stages the end of a run: its terminal event and its seal, another run if the class wants one, else the end of its job.
pub(super) fn seal(block: &mut Atomic<'_>, shared: &Shared, run: &mut Run, ending: &Ending) -> Result<()> {
    let job = make::job(block, &run.job)?;
    seal_of(block, shared, job, run, ending)
}

/// The same, of a job that is known: while one of its runs is driven, nobody else changes its row.
pub(super) fn seal_of(block: &mut Atomic<'_>, shared: &Shared, job: Job, run: &mut Run, ending: &Ending) -> Result<()> {
    assert!(run.outcome().is_none(), "a sealed run is sealed");
    ending.check()?;
    let now = block.now().wall;
    if run.state == State::Parked || shared.ledger.is_some() {
        // Nobody waits for a decision any more, nor is about to.
        unmark(block, &index::undecided(run.id))?;
    }
    if run.state == State::Parked {
        unmark(block, &index::awaited(run.id))?;
    }
    if run.claims > 1 {
        unmark(block, &index::taken_over(run.id))?;
    }
    let event = event::encode(&ending.terminal)?;
    event::stage_bytes(block, run, event)?;
    run.state = State::Sealed(ending.outcome);
    run.ended = Some(now);
    run.message = 0;
    stage_run(block, run)?;
    unmark(block, &index::running(run.id))?;
    block.stage(&RUN_INDEX, &index::ended(&run.class, now, run.id), Some(&index::Weight::of(run).encode()))?;
    match pause_before_another(block, job.deadline, run, ending.outcome)? {
        Some(pause) => {
            let wait = i64::try_from(shared.jitter(pause).as_millis()).unwrap_or(i64::MAX);
            let due = Timestamp(now.0.saturating_add(wait));
            // Where it stands in the queue of a gate nobody is to call it; and if it was just called, somebody else is.
            if let Some((gate, limit)) = job.gate {
                unmark(block, &gate.queued(run.id))?;
                yield_gate(block, &job, run)?;
                call_next(block, gate, limit)?;
            }
            let mut next = follow(block, shared, run, job, Input::Of(run.input_of), Some(due))?;
            signal::hand_on(block, run.id, next.id)?;
            step::keep_on(block, run, &mut next)
        }
        None => {
            signal::clear(block, run.id)?;
            finish(block, job, run, ending.outcome)
        }
    }
}

/// How long the run waits at most that follows one which ended so, if one does. After a success the class need not be asked.
fn pause_before_another(
    block: &Atomic<'_>,
    deadline: Option<Timestamp>,
    run: &Run,
    outcome: Outcome,
) -> Result<Option<Duration>> {
    if outcome.is_success() || run.is_cancelled || deadline.is_some_and(|deadline| block.now().wall >= deadline) {
        return Ok(None);
    }
    let retry = make::class(block, &run.class)?.class.retry;
    Ok(retry.follows(outcome, run.attempt()).then(|| retry.pause_after(run.attempt())))
}

/// Stages the run that follows one which has failed.
pub(super) fn follow(
    block: &mut Atomic<'_>,
    shared: &Shared,
    failed: &Run,
    mut job: Job,
    input: Input<'_>,
    due: Option<Timestamp>,
) -> Result<Run> {
    if block.row(&RUN_INDEX, &index::leaving(&job.class, &job.id))?.is_some() {
        return Err(RunFault::Leaving(job.id).into());
    }
    let now = block.now().wall;
    let id = ids::fresh(block, shared)?;
    let origin = Origin::Retry { of: failed.id, attempt: failed.attempt().saturating_add(1) };
    let (depth, root) = (failed.depth, failed.root);
    let run = make::make(block, &NewRun { id, job: &job, origin, depth, root, input, now })?;
    job.latest = id;
    job.attempts = job.attempts.saturating_add(1);
    job.outcome = None;
    // Whoever runs it again says when. None follows by itself once the deadline has come: so it was asked for in spite of it.
    job.at = None;
    job.deadline = job.deadline.filter(|deadline| now < *deadline);
    await_others(block, &mut job, id)?;
    stage_job(block, &job)?;
    make::dispatch(block, &run, &job, due)?;
    Ok(run)
}

/// Stages that a run waits for the jobs before its own that have not ended, and notes whether one of the others failed. One that was swept
/// away has ended, and nobody knows how: it is in nobody's way.
pub(super) fn await_others(block: &mut Atomic<'_>, job: &mut Job, run: RunId) -> Result<()> {
    (job.waiting, job.is_hurt) = (0, false);
    for before in &job.after {
        let Some(found) = make::find_job(block, before)? else { continue };
        match found.outcome {
            Some(outcome) => job.is_hurt |= !outcome.is_success(),
            // A job named twice is waited for once.
            None if block.row(&RUN_INDEX, &index::waiter(before, run))?.is_some() => {}
            None => {
                job.waiting += 1;
                mark(block, &index::waiter(before, run))?;
            }
        }
    }
    Ok(())
}

/// Stages the end of a job: the gate is free for another, and whoever waits for the job is told.
fn finish(block: &mut Atomic<'_>, mut job: Job, run: &Run, outcome: Outcome) -> Result<()> {
    job.outcome = Some(outcome);
    stage_job(block, &job)?;
    leave_gate(block, &job, run.id)?;
    if run.started.is_none() {
        unmark(block, &index::paused(&run.class, run.id))?;
    }
    tell_waiters(block, &job, run)
}

/// Stages that those who wait for a job hear of its end, if it has ended: some of them, and a message of the job's last run brings the rest.
pub(super) fn tell_waiters(block: &mut Atomic<'_>, job: &Job, run: &Run) -> Result<()> {
    /// One commit wakes no more, however many wait.
    const TOLD_MAX: usize = 1000;
    let waiters = index::waiters(&job.id);
    let Some(outcome) = job.outcome else { return Ok(()) };
    // Few jobs are waited for, and to count is cheaper than to look.
    if count_marked(block, &waiters)? == 0 {
        return Ok(());
    }
    let waiting = marked(block, &waiters, TOLD_MAX)?;
    for key in &waiting {
        unmark(block, key)?;
        if let Some(waiter) = make::find_run(block, index::last_run(key)?)? {
            tell(block, &waiter, &job.id, outcome)?;
        }
    }
    if waiting.len() == TOLD_MAX { make::wake(block, run) } else { Ok(()) }
}

/// Stages that a run hears of the end of a job that it waits for. Until it has recorded that, the job stays: see [`hear`].
fn tell(block: &mut Atomic<'_>, waiter: &Run, ended: &JobId, outcome: Outcome) -> Result<()> {
    match waiter.state {
        State::Pending => tell_pending(block, waiter, outcome),
        State::Parked => {
            mark(block, &index::told(ended, waiter.id))?;
            make::wake(block, waiter)
        }
        // Something else has woken it, and it may be about to wait for the job again.
        State::Running => mark(block, &index::told(ended, waiter.id)),
        State::Sealed(_) => Ok(()),
    }
}

/// The same of a run that has not begun: it is sent if it waits for nothing else.
fn tell_pending(block: &mut Atomic<'_>, waiter: &Run, outcome: Outcome) -> Result<()> {
    let mut job = make::job(block, &waiter.job)?;
    job.waiting = job.waiting.saturating_sub(1);
    job.is_hurt |= !outcome.is_success();
    stage_job(block, &job)?;
    let is_doomed = is_doomed(&job);
    match job.at {
        _ if job.waiting > 0 && !is_doomed => Ok(()),
        Some(at) if at > block.now().wall && !is_doomed => {
            let message = make::wake_message(block, waiter)?;
            block.arm(at, &message)
        }
        _ => make::wake(block, waiter),
    }
}

/// Stages that a run which waited for the end of a job knows of it, so that the job may go.
pub(super) fn hear(block: &mut Atomic<'_>, run: RunId, ended: &JobId) -> Result<()> {
    // One of very many has not been told, and need not be any more.
    unmark(block, &index::waiter(ended, run))?;
    unmark(block, &index::told(ended, run))
}

/// Whether the job need not wait for others any more, because one of them failed.
pub(super) fn is_doomed(job: &Job) -> bool {
    job.is_hurt && job.on_failed != OnFailed::Continue
}

/// Stages that a job stands before no gate, nor behind one: the next may pass.
pub(super) fn leave_gate(block: &mut Atomic<'_>, job: &Job, run: RunId) -> Result<()> {
    let Some((gate, limit)) = job.gate else { return Ok(()) };
    unmark(block, &gate.queued(run))?;
    unmark(block, &gate.passed(job.first))?;
    // Also if it had not passed: it may be the one that was just called, and then nobody else would be.
    call_next(block, gate, limit)
}

/// Stages that derived work is not under way while it waits, for whatever: others of its tree may pass meanwhile. A job with a concurrency
/// key keeps its place, so that those of one key are done one after the other. Whoever calls calls the next.
fn yield_gate(block: &mut Atomic<'_>, job: &Job, run: &Run) -> Result<()> {
    match job.gate {
        Some((gate, _)) if gate == Gate::of_tree(run.root) => unmark(block, &gate.passed(job.first)),
        _ => Ok(()),
    }
}

/// Stages that a run which has begun waits, and keeps no others from its gate if it is derived work.
pub(super) fn step_aside(block: &mut Atomic<'_>, run: &Run) -> Result<()> {
    // The first of a tree stands before no gate of it.
    if run.depth == 0 {
        return Ok(());
    }
    let job = make::job(block, &run.job)?;
    let Some((gate, limit)) = job.gate else { return Ok(()) };
    yield_gate(block, &job, run)?;
    call_next(block, gate, limit)
}

/// Stages that the next run before a gate is called, if it may pass.
fn call_next(block: &mut Atomic<'_>, gate: Gate, limit: u32) -> Result<()> {
    if count_marked(block, &gate.all_passed())? >= u64::from(limit.max(1)) {
        return Ok(());
    }
    while let Some(next) = marked(block, &gate.all_queued(), 1)?.pop() {
        unmark(block, &next)?;
        // One that has ended or was swept away needs no gate, and must not keep others from it.
        if let Some(run) = make::find_run(block, index::last_run(&next)?)?.filter(|run| run.outcome().is_none()) {
            return make::wake(block, &run);
        }
    }
    Ok(())
}

/// Whether a pending run may begin.
#[derive(Debug)]
pub(super) enum Admission {
    /// It may.
    Go,
    /// It waits for something, and is sent again when that has come.
    Later,
    /// It ends without having begun.
    Over(Ending),
}

/// Decides whether a pending run may begin, and stages where it waits if not.
pub(super) fn admit(block: &mut Atomic<'_>, run: &Run, job: &Job, class: &ClassRow) -> Result<Admission> {
    let now = block.now().wall;
    if job.deadline.is_some_and(|deadline| now >= deadline) {
        let over = Ending::failure(now, Outcome::TimedOut, "its deadline came before it had begun");
        return Ok(Admission::Over(over));
    }
    if is_doomed(job) {
        let words = "a job that it waits for failed";
        return Ok(Admission::Over(match job.on_failed {
            OnFailed::Skip => Ending::skipped(now, words),
            OnFailed::Fail | OnFailed::Continue => Ending::failure(now, Outcome::PolicyFailure, words),
        }));
    }
    if job.waiting > 0 {
        return Ok(Admission::Later);
    }
    if class.is_paused {
        mark(block, &index::paused(&run.class, run.id))?;
        // It may have been called, or have passed with the run before it; and others before the same gate may be of another class.
        leave_gate(block, job, run.id)?;
        return Ok(Admission::Later);
    }
    Ok(if pass_gate(block, job, run.id)? { Admission::Go } else { Admission::Later })
}

/// Stages that a job passes its gate, or waits before it. Tells whether it has passed.
pub(super) fn pass_gate(block: &mut Atomic<'_>, job: &Job, run: RunId) -> Result<bool> {
    let Some((gate, limit)) = job.gate else { return Ok(true) };
    let passed = gate.passed(job.first);
    if block.row(&RUN_INDEX, &passed)?.is_some() {
        return Ok(true);
    }
    if count_marked(block, &gate.all_passed())? >= u64::from(limit.max(1)) {
        mark(block, &gate.queued(run))?;
        return Ok(false);
    }
    // It may have been sent by something else than the gate, where it waits too; to call it there would be to call nobody.
    unmark(block, &gate.queued(run))?;
    mark(block, &passed)?;
    Ok(true)
}
