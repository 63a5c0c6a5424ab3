//! What the claim of a message means for its run: it begins, goes on, is taken over, or comes to its end. All of it is staged in the block
//! whose commit is the claim.

use kauri_wire::{InboxKey, Key, MessageRef, Timestamp};

use super::class::{ClassRow, Takeover};
use super::job::Job;
use super::live::Loaded;
use super::make::{self, mark, stage_run, unmark};
use super::outcome::{Outcome, State};
use super::row::Run;
use super::seal::{self, Admission, Ending};
use super::{index, recur, runs, step};
use crate::atomic::Atomic;
use crate::claim::Claimed;
use crate::dead_letter::{DeadLetter, Reason};
use crate::error::{Error, Result};
use crate::read::Read;
use crate::runtime::Shared;
use crate::schema::{INBOX, RUN_INDEX};

/// When a run is looked at again that was driven when its time was over, in milliseconds.
const LOOK_AGAIN_MS: i64 = 1000;

/// What becomes of a claimed message.
pub(super) enum Next {
    /// It is done with; and buried, if it was none of a run.
    Drop(Option<DeadLetter>),
    Drive(Box<Loaded>),
}

/// Stages what the claim of a message means for its run.
pub(super) fn begin(block: &mut Atomic<'_>, shared: &Shared, claimed: &Claimed) -> Result<Next> {
    let message = MessageRef::decode(&claimed.frame);
    let Ok(Some(id)) = message.map(|message| make::driven_run(message.payload())) else {
        let is_slot = match message {
            Ok(message) => recur::submit_slot(block, shared, message)?,
            Err(_) => false,
        };
        let detail = "expected the id of a run, or a job that recurs and can be submitted";
        return Ok(Next::Drop((!is_slot).then(|| letter(claimed, block.now().wall, Reason::Undecodable, detail))));
    };
    // A run that was swept away needs nobody.
    let Some(mut run) = make::find_run(block, id)? else { return Ok(Next::Drop(None)) };
    let seq = claimed.key.seq.0;
    if run.outcome().is_some() {
        // It may be here for those who wait for its job and were not told with its end.
        let job = make::find_job(block, &run.job)?.filter(|job| job.latest == id);
        job.map_or(Ok(()), |job| seal::tell_waiters(block, &job, &run))?;
        return Ok(Next::Drop(None));
    }
    if run.state == State::Running && claimed.doom.is_some() {
        step::catch_up(&mut run, &step::read(block, id)?);
    }
    let (job, class) = (make::job(block, &run.job)?, make::class(block, &run.class)?);
    let goes_on = match run.state {
        State::Sealed(_) => false,
        // Another message drives it: this one comes too late, or again.
        State::Running if run.message != 0 && run.message != seq => {
            look_again(block, &run, &job, &class, claimed)?;
            false
        }
        State::Running if claimed.doom.is_some() && !has_progressed(block, &run)? => {
            let now = block.now().wall;
            let words = format!("it was begun {} times and came to no end", claimed.deliveries - 1);
            seal::seal(block, shared, &mut run, &Ending::failure(now, Outcome::ExecutorCrash, &words))?;
            false
        }
        State::Running => take_over(block, shared, run.clone())?,
        State::Parked if end_if_over(block, shared, &run, &job)? => false,
        State::Parked => seal::pass_gate(block, &job, run.id)?,
        State::Pending => admit(block, shared, &run, &job, &class)?,
    };
    if !goes_on {
        return Ok(Next::Drop(None));
    }
    let time_max = class.class.time_max;
    if run.started.is_none() {
        run.started = Some(block.now().wall);
        if let Some(until) = run.until(None, time_max) {
            // Whoever drives it then sees by itself that its time is over; if it waits, this ends it.
            block.arm(until, &make::drive_message(run.id, claimed.key.worker, job.is_urgent)?)?;
        }
    }
    let until = run.until(job.deadline, time_max);
    if run.state == State::Parked {
        // If it waits for something again, it says so again.
        unmark(block, &index::undecided(run.id))?;
        unmark(block, &index::awaited(run.id))?;
    }
    // One that nobody has begun has those that it was made with.
    let recorded = if run.steps > 0 || run.claims > 0 { step::read(block, run.id)? } else { Vec::new() };
    step::catch_up(&mut run, &recorded);
    run.state = State::Running;
    run.claims = run.claims.saturating_add(1);
    run.message = seq;
    if claimed.deliveries > 1 {
        block.stage(&RUN_INDEX, &index::taken_over(run.id), Some(&run.steps.to_le_bytes()))?;
    }
    stage_run(block, &run)?;
    mark(block, &index::running(run.id))?;
    let input = runs::input_of(block, &run)?;
    Ok(Next::Drive(Box::new(Loaded { run, job, until, input, recorded })))
}

/// Whether a run has done more steps than it had when it was taken over last. One that gets on comes to an end, however often whoever
/// drives it dies.
fn has_progressed(block: &Atomic<'_>, run: &Run) -> Result<bool> {
    let damaged = || Error::damaged("run_index", "how many steps a run had");
    let Some(row) = block.row(&RUN_INDEX, &index::taken_over(run.id))? else { return Ok(run.steps > run.kept) };
    Ok(run.steps > u32::from_le_bytes(row[..].try_into().map_err(|_| damaged())?))
}

/// Stages that a run is looked at again that somebody drives although its time is over. Whoever drives it may have looked at the clock before,
/// and be about to let it wait: nothing else would tell it then, and it would wait for ever.
fn look_again(block: &mut Atomic<'_>, run: &Run, job: &Job, class: &ClassRow, claimed: &Claimed) -> Result<()> {
    let now = block.now().wall;
    if run.until(job.deadline, class.class.time_max).is_none_or(|until| now < until) {
        return Ok(());
    }
    let again = Timestamp(now.0.saturating_add(LOOK_AGAIN_MS));
    block.arm(again, &make::drive_message(run.id, claimed.key.worker, job.is_urgent)?)
}

/// Whether a pending run begins now. If it ends instead, that is staged.
fn admit(block: &mut Atomic<'_>, shared: &Shared, run: &Run, job: &Job, class: &ClassRow) -> Result<bool> {
    match seal::admit(block, run, job, class)? {
        Admission::Go => Ok(true),
        Admission::Later => Ok(false),
        Admission::Over(ending) => {
            seal::seal(block, shared, &mut run.clone(), &ending)?;
            Ok(false)
        }
    }
}

/// Ends a run that was cancelled or whose deadline has come. Tells whether it did.
fn end_if_over(block: &mut Atomic<'_>, shared: &Shared, run: &Run, job: &Job) -> Result<bool> {
    let now = block.now().wall;
    let deadline = run.until(job.deadline, make::class(block, &run.class)?.class.time_max);
    let ending = if run.is_cancelled {
        Ending::failure(now, Outcome::Cancelled, "it was cancelled")
    } else if deadline.is_some_and(|deadline| now >= deadline) {
        Ending::failure(now, Outcome::TimedOut, "its time was over")
    } else {
        return Ok(false);
    };
    seal::seal(block, shared, &mut run.clone(), &ending)?;
    Ok(true)
}

/// Stages what becomes of a run whose driver died. Tells whether it goes on.
pub(super) fn take_over(block: &mut Atomic<'_>, shared: &Shared, mut run: Run) -> Result<bool> {
    let job = make::job(block, &run.job)?;
    if run.state != State::Running {
        return Ok(false);
    }
    let recorded = step::read(block, run.id)?;
    step::catch_up(&mut run, &recorded);
    if end_if_over(block, shared, &run, &job)? {
        return Ok(false);
    }
    let class = make::class(block, &run.class)?.class;
    if class.takeover == Takeover::Crash {
        let words = "whoever drove it died, or was silent for too long";
        let ending = Ending::failure(block.now().wall, Outcome::ExecutorCrash, words);
        seal::seal(block, shared, &mut run, &ending)?;
        return Ok(false);
    }
    let key = InboxKey { worker: class.worker, seq: kauri_wire::Seq(run.message) };
    if run.message != 0 && block.row(&INBOX, &InboxKey::encode(key))?.is_none() {
        // Nothing will bring it back: it is sent again.
        run.message = 0;
        stage_run(block, &run)?;
        make::wake(block, &run)?;
    }
    Ok(true)
}

/// Stages what becomes of a message whose meaning for its run can never be written: the run ends. If that cannot be either, or it is the
/// message of no run, it is buried.
pub(super) fn end_refused(block: &mut Atomic<'_>, shared: &Shared, claimed: &Claimed, why: &str) -> Result<Next> {
    let now = block.now().wall;
    let ended = block.nest(|block| {
        let message = MessageRef::decode(&claimed.frame)?;
        let Some(id) = make::driven_run(message.payload()) else { return Ok(false) };
        let Some(mut run) = make::find_run(block, id)?.filter(|run| run.outcome().is_none()) else { return Ok(false) };
        step::catch_up(&mut run, &step::read(block, id)?);
        seal::seal(block, shared, &mut run, &Ending::failure(now, Outcome::ScriptError, why))?;
        Ok::<bool, Error>(true)
    });
    let is_ended = match ended {
        Err(Error::Wire(_)) => false,
        Err(error) if error.is_refusal() => false,
        ended => ended?,
    };
    Ok(Next::Drop((!is_ended).then(|| letter(claimed, now, Reason::FailuresSpent, why))))
}

fn letter(claimed: &Claimed, failed_at: Timestamp, reason: Reason, detail: &str) -> DeadLetter {
    let (detail, deliveries, frame) = (detail.to_owned(), claimed.deliveries, claimed.frame.clone());
    DeadLetter { reason, detail, failed_at, deliveries, failures: 0, frame }
}
