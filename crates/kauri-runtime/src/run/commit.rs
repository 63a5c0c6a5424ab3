//! Commits of a run that somebody drives.
//!
//! Every commit for the run demands its row and its driver's lease as they were. So whoever lost the run, or is to hear that it was
//! cancelled, commits nothing, and finds out why by looking.

use std::sync::Arc;

use kauri_wire::pack::Map;
use kauri_wire::run::{Event, EventType};
use kauri_wire::{Flags, InboxKey, JobId, Key, Timestamp};

use super::action::DECIDED;
use super::drive::Ahead;
use super::event;
use super::fan_out;
use super::index;
use super::job::Job;
use super::live::{Halt, LiveRun, Park, Stop};
use super::make::{self, mark, stage_run, unmark};
use super::outcome::{Outcome, State};
use super::row::Run;
use super::seal::{self, Ending};
use super::signal;
use super::sink::{EventDraft, SinkError};
use super::step::{self, Recorded, StepKind};
use crate::atomic::Atomic;
use crate::claim::Held;
use crate::error::{Error, Result};
use crate::lease::{self, Lease};
use crate::runtime::Shared;
use crate::schema::{DEADLINES, EVENTS, INBOX, LEASES, RUN_INDEX, RUNS, URGENT};
use crate::substrate::{Bytes, Change, Rows, Seen, Verdict};

/// How often a commit of a run is tried that meets conflicts.
const PASSES_MAX: u32 = 100;

impl LiveRun {
    /// Commits what `make` stages for the run, made anew after each conflict.
    pub(super) fn commit<T>(
        &mut self,
        mut make: impl FnMut(&mut Atomic<'_>, &Shared, &mut Run) -> Result<T, Halt>,
    ) -> Result<T, Halt> {
        for pass in 1..=PASSES_MAX {
            self.check_open()?;
            match self.try_commit(&mut make, Lasting::On, None)? {
                Some(value) => return Ok(value),
                None => self.meet(pass)?,
            }
        }
        Err(Halt::Failed("a conflict in every pass".into()))
    }

    /// One pass; nothing if it met a conflict.
    fn try_commit<T>(
        &mut self,
        make: &mut impl FnMut(&mut Atomic<'_>, &Shared, &mut Run) -> Result<T, Halt>,
        lasting: Lasting,
        mut ahead: Option<&mut Ahead<'_>>,
    ) -> Result<Option<T>, Halt> {
        let shared = Arc::clone(&self.shared);
        let rows = shared.substrate.snapshot()?;
        if rows.get(&RUNS, self.run.id.as_bytes())?.as_deref() != Some(&self.row[..]) {
            return Ok(None);
        }
        let mut block = Atomic::new(&*rows, shared.setting(Some(self.driver.worker)));
        let mut run = self.run.clone();
        for row in &self.buffered {
            event::stage(&mut block, &mut run, row)?;
        }
        let value = make(&mut block, &shared, &mut run)?;
        if run.outcome().is_none() && !self.differs_in_steps_alone(&mut run) {
            stage_run(&mut block, &run)?;
        }
        if let Some(ahead) = ahead.as_mut() {
            ahead.stage(&*rows, &mut block);
        }
        let (mut change, wishes) = block.into_change();
        let _ = shared.stage_wishes(&mut change, wishes);
        drop(rows);
        Ok(self.land(change, run, lasting, ahead)?.then_some(value))
    }

    /// Whether a run is as it was, but for its steps. Those are rows of their own: whoever takes the run over counts them, and its row is
    /// written with what else changes.
    fn differs_in_steps_alone(&self, run: &mut Run) -> bool {
        let own = (run.steps, run.bytes);
        (run.steps, run.bytes) = (self.run.steps, self.run.bytes);
        let is_same = *run == self.run;
        (run.steps, run.bytes) = own;
        is_same
    }

    /// Commits a change if the run is still ours. Tells whether it was; or is, as far as is known, if the change was handed in.
    fn land(
        &mut self,
        mut change: Change,
        run: Run,
        lasting: Lasting,
        mut ahead: Option<&mut Ahead<'_>>,
    ) -> Result<bool> {
        self.shared.check_running()?;
        change.expect(RUNS, *self.run.id.as_bytes(), Seen::of(Some(&self.row)));
        let lease_key = lease::row_key(self.driver.worker, self.driver.held.lease.owner);
        change.expect(LEASES, lease_key, Seen::of(Some(&self.driver.held.row)));
        let renewed = match lasting {
            Lasting::On => self.renewed(),
            Lasting::Over => {
                if !ahead.as_mut().is_some_and(|ahead| ahead.stage_lease(&mut change)) {
                    change.remove(LEASES, lease_key);
                }
                let key = InboxKey::encode(self.driver.key);
                change.expect(INBOX, &key[..], Seen::Present);
                change.remove(INBOX, &key[..]);
                if self.driver.is_urgent {
                    change.remove(URGENT, &key[..]);
                }
                if self.driver.has_deadline {
                    change.remove(DEADLINES, &key[..]);
                }
                None
            }
        };
        if let Some(held) = &renewed {
            change.put(LEASES, lease_key, held.row.clone());
        }
        if change.is_empty() {
            // There was nothing to say; whether the run is still ours, the next commit finds out.
            return Ok(true);
        }
        change.durability = self.driver.policy.durability(Flags::DURABLE);
        let change = match ahead {
            Some(ahead) => match ahead.post(&self.shared, change)? {
                Some(change) => change,
                // What becomes of it is seen later, and this may be said again then: so it stays as it is.
                None => return Ok(true),
            },
            None => change,
        };
        let row = change.writes.get(&RUNS).and_then(|rows| rows.get(&self.run.id.as_bytes()[..])).cloned().flatten();
        match self.shared.commit(&change.into())? {
            Verdict::Committed(_) => {
                if let Some(row) = row.filter(|_| lasting == Lasting::On) {
                    self.row = row;
                }
                self.run = run;
                self.buffered.clear();
                self.buffered_bytes = 0;
                self.driver.held = renewed.unwrap_or_else(|| self.driver.held.clone());
                Ok(true)
            }
            Verdict::Conflict(conflict) => {
                self.shared.meet(&conflict, 1, Some(self.driver.worker));
                Ok(false)
            }
        }
    }

    /// The lease with another term, if half of this one is over.
    fn renewed(&self) -> Option<Held> {
        let (now, term) = (self.shared.mono(), self.driver.policy.lease);
        let Held { lease, .. } = &self.driver.held;
        if lease.deadline.since(now) > term / 2 {
            return None;
        }
        let lease = Lease { deadline: now + term, ..*lease };
        Some(Held { lease, row: lease::encode_row(&lease, [self.driver.key.seq]).into() })
    }

    /// Before it is driven: another term of its lease, if half of this one is over because others had their turn.
    pub(super) fn keep(&mut self) -> Result<(), Halt> {
        if self.renewed().is_some() { self.renew() } else { Ok(()) }
    }

    /// After a conflict: finds out whether the run is still ours, sees to it that it stays so, and pauses.
    fn meet(&mut self, pass: u32) -> Result<(), Halt> {
        self.refresh()?;
        if self.renewed().is_some() {
            // If this meets one too, the next pass finds that out.
            self.try_commit(&mut |_, _, _| Ok(()), Lasting::On, None)?;
        }
        let pause = self.shared.jitter(self.driver.policy.patience_after(pass));
        self.shared.clock.sleep(pause);
        Ok(())
    }

    /// Looks at the run as it stands, and whose it is.
    pub(super) fn refresh(&mut self) -> Result<(), Halt> {
        if matches!(self.stop, Some(Stop::Sealed | Stop::Lost)) {
            return Err(Halt::Lost);
        }
        let shared = Arc::clone(&self.shared);
        let rows = shared.substrate.snapshot()?;
        let found = rows.get(&RUNS, self.run.id.as_bytes())?;
        let run = found.as_deref().map(|row| Run::decode(self.run.id, row)).transpose()?;
        let token = |run: &Run| (run.claims, run.message);
        let stop = match &run {
            Some(run) if run.outcome().is_some() => Some(Stop::Sealed),
            Some(run) if token(run) == token(&self.run) && self.is_leased(&*rows)? => None,
            Some(_) | None => Some(Stop::Lost),
        };
        if stop.is_some() {
            self.stop = stop;
            return Err(Halt::Lost);
        }
        if let (Some(run), Some(row)) = (run, found) {
            if run.is_cancelled {
                self.stop.get_or_insert(Stop::Cancelled);
            }
            self.row = row[..].into();
            // Its steps are ours, and its row may not know of the last of them.
            self.run = Run { steps: self.run.steps, bytes: self.run.bytes, ..run };
        }
        Ok(())
    }

    fn is_leased(&self, rows: &dyn Rows) -> Result<bool> {
        let key = lease::row_key(self.driver.worker, self.driver.held.lease.owner);
        Ok(rows.get(&LEASES, &key)?.as_deref() == Some(&self.driver.held.row[..]))
    }

    /// Ends the run while its driver has still something to do. What the driver answers then about the end counts for nothing.
    ///
    /// # Errors
    /// Why it was not ended here.
    pub(super) fn end_early(&mut self, ending: &Ending) -> Result<(), SinkError> {
        if self.concluded.is_some() {
            return Err(SinkError::Sealed);
        }
        let mut concluded = self.conclude(&LastWord::End(ending.clone()), None);
        if let Err(Halt::Failed(why)) = &concluded {
            // What it says of its end can never be written: so it ends without.
            concluded = self.conclude(&self.failure(why), None);
        }
        let concluded = concluded.map_err(Halt::into_error);
        let answer = match &concluded {
            Ok(true) => Ok(()),
            Ok(false) => Err(SinkError::Lost),
            Err(error) => Err(SinkError::Failed(error.to_string())),
        };
        self.stop.get_or_insert(Stop::Sealed);
        self.concluded = Some(concluded);
        answer
    }

    /// What is left to say when the driver has come back; nothing, if the run is somebody else's.
    pub(super) fn last_word(&mut self, result: Result<Ending, Halt>) -> Result<Option<LastWord>> {
        let now = self.now().wall;
        let end = |outcome, words: &str| Some(LastWord::End(Ending::failure(now, outcome, words)));
        Ok(match result {
            Ok(ending) => Some(LastWord::End(ending)),
            Err(Halt::Parked) => self.park.take().map(LastWord::Park),
            Err(Halt::Lost) => {
                self.count_late(0)?;
                None
            }
            Err(Halt::Cancelled) => end(Outcome::Cancelled, "it was cancelled"),
            Err(Halt::Failed(why)) => Some(self.failure(&why)),
            Err(Halt::Diverged(divergence)) => end(Outcome::VersionMismatch, &divergence.to_string()),
            Err(Halt::Runtime(error)) if error.is_refusal() => Some(self.failure(&error.to_string())),
            Err(Halt::Runtime(error)) => return Err(error),
        })
    }

    /// The end of a run whose script has failed.
    pub(super) fn failure(&self, why: &str) -> LastWord {
        LastWord::End(Ending::failure(self.now().wall, Outcome::ScriptError, why))
    }

    /// Commits the driver's last word on the run, with the end of its message and lease: unless the run is not ours any more, or what it is
    /// to wait for has come. Tells whether it was ours.
    pub(super) fn conclude(&mut self, word: &LastWord, ahead: Option<&mut Ahead<'_>>) -> Result<bool, Halt> {
        self.try_conclude(1, word, ahead)
    }

    /// The same, after it was handed in and met a conflict.
    pub(super) fn conclude_again(&mut self, word: &LastWord) -> Result<bool, Halt> {
        match self.meet(1) {
            Ok(()) => self.try_conclude(2, word, None),
            Err(Halt::Lost) => self.lose(word),
            Err(halt) => Err(halt),
        }
    }

    /// The run is not ours any more, and its last word is not said.
    fn lose(&mut self, word: &LastWord) -> Result<bool, Halt> {
        self.count_late(usize::from(matches!(word, LastWord::End(_))))?;
        Ok(false)
    }

    /// Counts what comes too late, if that is because the run was sealed.
    fn count_late(&mut self, events: usize) -> Result<()> {
        if self.stop == Some(Stop::Sealed) { self.count_refused(events) } else { Ok(()) }
    }

    fn try_conclude(&mut self, first: u32, word: &LastWord, mut ahead: Option<&mut Ahead<'_>>) -> Result<bool, Halt> {
        for pass in first..=PASSES_MAX {
            let stop = match word {
                LastWord::End(_) => self.stop,
                // Whatever told of it came while it ran, and does not come again.
                LastWord::Park(_) => self.stop.or_else(|| self.is_over().then_some(Stop::TimedOut)),
            };
            if matches!(stop, Some(Stop::Sealed | Stop::Lost)) {
                return self.lose(word);
            }
            let (job, asked) = (Arc::clone(&self.job), self.asked.clone());
            let mut make = |block: &mut Atomic<'_>, shared: &Shared, run: &mut Run| match word {
                LastWord::End(ending) => {
                    if let Some(asked) = asked.as_ref().filter(|_| !ending.outcome.is_success()) {
                        record(block, run, StepKind::Failed, &asked.name, &[])?;
                    }
                    stage_end(block, shared, run, (ending, &job), stop)
                }
                LastWord::Park(park) => stage_wait(block, shared, run, park, stop),
            };
            let result = match self.try_commit(&mut make, Lasting::Over, ahead.as_deref_mut()) {
                Ok(Some(())) => return Ok(true),
                Ok(None) => {
                    ahead.iter_mut().for_each(|ahead| ahead.give_up());
                    self.meet(pass)
                }
                Err(halt) => {
                    ahead.iter_mut().for_each(|ahead| ahead.give_up());
                    Err(halt)
                }
            };
            match result {
                Ok(()) => {}
                Err(Halt::Lost) => return self.lose(word),
                Err(halt) => return Err(halt),
            }
        }
        // The lease runs out, and somebody else finds the run as a crash would leave it.
        Ok(false)
    }

    /// Appends rows that ask for nothing else, without looking at the store.
    pub(super) fn append_rows(&mut self, rows: &[Bytes]) -> Result<(), Halt> {
        for pass in 1..=PASSES_MAX {
            self.check_open()?;
            let (mut change, mut run) = (Change::default(), self.run.clone());
            for row in self.buffered.iter().chain(rows) {
                let (key, named) = event::add(&mut run, row);
                change.put(EVENTS, key, row.clone());
                for named in named.into_iter().flatten() {
                    change.put(RUN_INDEX, named, Bytes::default());
                }
            }
            change.put(RUNS, *run.id.as_bytes(), run.encode());
            if self.land(change, run, Lasting::On, None)? {
                return Ok(());
            }
            self.meet(pass)?;
        }
        Err(Halt::Failed("a conflict in every pass".into()))
    }

    /// Appends events some of which ask for derived work, which is made in the same commit.
    pub(super) fn append_enqueuing(&mut self, events: &[EventDraft]) -> Result<(), Halt> {
        self.commit(|block, shared, run| {
            for draft in events {
                fan_out::say(block, run, draft)?;
                if draft.kind == EventType::Enqueue {
                    let payload = Map::decode(&draft.payload).map_err(Error::from)?;
                    if let Event::Enqueue { target, params, .. } =
                        Event::decode(draft.kind, payload).map_err(Error::from)?
                    {
                        fan_out::enqueue(block, shared, run, target, params)?;
                    }
                }
            }
            Ok(())
        })
    }
}

/// Whether the driver's work goes on after a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lasting {
    On,
    Over,
}

pub(super) fn record(
    block: &mut Atomic<'_>,
    run: &mut Run,
    kind: StepKind,
    name: &str,
    result: &[u8],
) -> Result<(), Halt> {
    let step = Recorded { kind, at: block.now().wall, name: name.into(), result: result.to_vec() };
    Ok(step::record(block, run, &step)?)
}

/// Stages that a run records how a job ended that it waits for.
pub(super) fn record_end(block: &mut Atomic<'_>, run: &mut Run, job: &JobId, outcome: Outcome) -> Result<(), Halt> {
    seal::hear(block, run.id, job)?;
    record(block, run, StepKind::Job, job.as_str(), &[outcome.code()])
}

/// The last that a driver says of a run.
#[derive(Debug)]
pub(super) enum LastWord {
    /// How it ended.
    End(Ending),
    /// What it waits for.
    Park(Park),
}

/// Stages the end of a run.
fn stage_end(
    block: &mut Atomic<'_>,
    shared: &Shared,
    run: &mut Run,
    (ending, job): (&Ending, &Job),
    stop: Option<Stop>,
) -> Result<(), Halt> {
    let cancelled = cancelled(block.now().wall, run, stop);
    let ending = match &cancelled {
        // Whatever it says of its end: it was stopped. What it finished all the same is finished.
        Some(cancelled) if !ending.outcome.is_success() => cancelled,
        _ => ending,
    };
    // An end that contradicts itself is a fault of whoever drives; one that can never be written may be any script's.
    seal::seal_of(block, shared, job.clone(), run, ending).map_err(|error| match error.is_refusal() {
        true => error.into(),
        false => Halt::Runtime(error),
    })
}

/// Stages that a run waits.
fn stage_wait(
    block: &mut Atomic<'_>,
    shared: &Shared,
    run: &mut Run,
    park: &Park,
    stop: Option<Stop>,
) -> Result<(), Halt> {
    if let Some(ending) = cancelled(block.now().wall, run, stop) {
        return Ok(seal::seal(block, shared, run, &ending)?);
    }
    run.state = State::Parked;
    run.message = 0;
    unmark(block, &index::running(run.id))?;
    stage_park(block, run, park)
}

/// How a run ends that was stopped from outside.
fn cancelled(now: Timestamp, run: &Run, stop: Option<Stop>) -> Option<Ending> {
    match stop {
        Some(Stop::TimedOut) => Some(Ending::failure(now, Outcome::TimedOut, "its time was over while it ran")),
        Some(Stop::Cancelled) => Some(Ending::failure(now, Outcome::Cancelled, "it was cancelled while it ran")),
        _ if run.is_cancelled => Some(Ending::failure(now, Outcome::Cancelled, "it was cancelled while it ran")),
        _ => None,
    }
}

/// Stages what wakes a run that waits. If what it waits for has come meanwhile, it is woken at once, and was under way all the time.
fn stage_park(block: &mut Atomic<'_>, run: &mut Run, park: &Park) -> Result<(), Halt> {
    let awaited = if let Park::Signal(name) = park { name.as_bytes() } else { &[] };
    block.stage(&RUN_INDEX, &index::awaited(run.id), Some(awaited))?;
    let has_come = match park {
        Park::Until { name, due, is_recorded } => {
            if !is_recorded {
                record(block, run, StepKind::Sleep, name, &due.0.to_le_bytes())?;
            }
            let message = make::wake_message(block, run)?;
            block.arm(*due, &message)?;
            false
        }
        Park::Signal(name) => {
            if **name == *DECIDED {
                mark(block, &index::undecided(run.id))?;
            }
            signal::find(block, run.id, name)?.is_some()
        }
        Park::Job(job) => match make::job(block, job)?.outcome {
            // It is recorded here, and not when the run goes on: until then the job may be swept away.
            Some(outcome) => record_end(block, run, job, outcome).map(|()| true)?,
            None => mark(block, &index::waiter(job, run.id)).map(|()| false)?,
        },
    };
    Ok(if has_come { make::wake(block, run) } else { seal::step_aside(block, run) }?)
}
