//! A run that somebody drives: what it says and records while it goes on.
//!
//! Every commit for the run demands its row and its driver's lease as they were. So whoever lost the run, or is to hear that it was
//! cancelled, commits nothing, and finds out why by looking.

use std::fmt;
use std::sync::Arc;

use kauri_wire::pack::Map;
use kauri_wire::run::{Event, EventType};
use kauri_wire::{Flags, InboxKey, JobId, Key, RunId, Timestamp, WorkerId};

use super::action::{DECIDED, Ledger};
use super::drive::Ahead;
use super::event;
use super::fan_out;
use super::index::{self, Gate};
use super::job::Job;
use super::make::{self, mark, stage_run, unmark};
use super::outcome::{Outcome, State};
use super::row::Run;
use super::runs::{self, Runs, atomically, check_name};
use super::seal::{self, Ending};
use super::signal;
use super::sink::{Appended, EventDraft, EventSink, SinkError};
use super::step::{self, Divergence, Recorded, Step, StepKind};
use crate::atomic::Atomic;
use crate::claim::Held;
use crate::error::{Error, Result};
use crate::handler::Failure;
use crate::lease::{self, Lease};
use crate::policy::Policy;
use crate::runtime::Shared;
use crate::schema::{DEADLINES, EVENTS, INBOX, LEASES, RUN_INDEX, RUNS, URGENT};
use crate::substrate::{Bytes, Change, Rows, Seen, Verdict};
use crate::time::Now;

/// How often a commit of a run is tried that meets conflicts.
const PASSES_MAX: u32 = 100;

/// When so many bytes of events wait for a commit, they get one.
const BUFFERED_BYTES_MAX: usize = 1 << 20;

/// Why a run does not go on here. Whoever gets it hands it on: to go on would count for nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Halt {
    /// It waits, and goes on when it is woken: from the start, with what it recorded.
    Parked,
    /// It is to be cancelled, or its time is over.
    Cancelled,
    /// Somebody else drives it now, or has ended it.
    Lost,
    /// The code is not the code that made the record.
    Diverged(Box<Divergence>),
    /// The script failed, and this says why.
    Failed(Box<str>),
    /// The runtime failed.
    Runtime(Error),
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parked => f.write_str("the run waits"),
            Self::Cancelled => f.write_str("the run is to be cancelled, or its time is over"),
            Self::Lost => f.write_str("somebody else drives the run, or has ended it"),
            Self::Diverged(divergence) => write!(f, "{divergence}"),
            Self::Failed(why) => f.write_str(why),
            Self::Runtime(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Halt {}

impl From<Error> for Halt {
    /// What the code did wrong is its failure; the rest is the runtime's.
    fn from(error: Error) -> Self {
        match Failure::from(error) {
            Failure::Retry(why) | Failure::Fatal(why) => Self::Failed(why),
            Failure::Runtime(error) => Self::Runtime(error),
        }
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Retry(why) | Failure::Fatal(why) => Self::Failed(why),
            Failure::Runtime(error) => Self::Runtime(error),
        }
    }
}

impl From<SinkError> for Halt {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Sealed | SinkError::Lost => Self::Lost,
            SinkError::Cancelled => Self::Cancelled,
            SinkError::Failed(why) => Self::Failed(why.into()),
        }
    }
}

/// What ended the driver's work before the run's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Sealed,
    Lost,
    Cancelled,
    TimedOut,
}

/// What a run waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Park {
    Until { name: Box<str>, due: Timestamp, is_recorded: bool },
    Signal(Box<str>),
    Job(JobId),
}

/// Who drives a run, as its commits say it.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) worker: WorkerId,
    pub(super) key: InboxKey,
    /// Whether the message has rows besides the one in the inbox.
    pub(super) is_urgent: bool,
    pub(super) has_deadline: bool,
    pub(super) policy: Policy,
    pub(super) held: Held,
}

/// A run, and the right to go on with it. It is where the run's events go: see [`EventSink`].
pub struct LiveRun {
    shared: Arc<Shared>,
    driver: Driver,
    run: Run,
    /// The run's row as it was last committed.
    row: Bytes,
    job: Job,
    /// When its time is over.
    until: Option<Timestamp>,
    input: Vec<u8>,
    recorded: Vec<Recorded>,
    /// The place of the next step that is asked for.
    next: u32,
    /// Rows of events that go with the next commit, whatever it is for.
    buffered: Vec<Bytes>,
    buffered_bytes: usize,
    stop: Option<Stop>,
    park: Option<Park>,
    /// How its end was committed, if that was done before its driver returned.
    concluded: Option<Result<Option<Run>>>,
}

impl LiveRun {
    pub(super) fn new(shared: Arc<Shared>, driver: Driver, loaded: Loaded) -> Self {
        let Loaded { run, job, until, input, recorded } = loaded;
        let row = run.encode().into();
        Self {
            shared,
            driver,
            run,
            row,
            job,
            until,
            input,
            recorded,
            next: 0,
            buffered: Vec::new(),
            buffered_bytes: 0,
            stop: None,
            park: None,
            concluded: None,
        }
    }

    /// The run as it stands.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.run.id
    }

    /// Its job.
    #[must_use]
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// What it was given.
    #[must_use]
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// Does a piece of work, once: what it answers is recorded with the commit of what it wrote. If it is recorded already, that is
    /// answered and nothing is done.
    ///
    /// # Errors
    /// What the work answers, and then nothing is kept of it; `Diverged` if another step is recorded in this place; or why the run
    /// does not go on here.
    pub fn step(
        &mut self,
        name: &str,
        mut work: impl FnMut(&mut Step<'_, '_>) -> Result<Vec<u8>, Failure>,
    ) -> Result<Vec<u8>, Halt> {
        if let Some(result) = self.recall(StepKind::Work, name)? {
            return Ok(result);
        }
        self.commit(|block, shared, run| {
            let result = work(&mut Step { block, shared, run })?;
            record(block, run, StepKind::Work, name, &result)?;
            Ok(result)
        })
        .inspect(|_| self.next += 1)
    }

    /// Waits until a moment, holding nothing meanwhile. The moment that was said first counts.
    ///
    /// # Errors
    /// `Parked` if it has not come, and as for `step`.
    pub fn sleep_until(&mut self, name: &str, due: Timestamp) -> Result<(), Halt> {
        let recorded = self.recall(StepKind::Sleep, name)?;
        let damaged = || Error::damaged("steps", "a moment that a run waits for");
        let due = match &recorded {
            Some(moment) => Timestamp(i64::from_le_bytes(moment[..].try_into().map_err(|_| damaged())?)),
            None => due,
        };
        if self.now().wall < due {
            self.park = Some(Park::Until { name: name.into(), due, is_recorded: recorded.is_some() });
            return Err(Halt::Parked);
        }
        if recorded.is_none() {
            self.commit(|block, _, run| record(block, run, StepKind::Sleep, name, &due.0.to_le_bytes()))?;
            self.next += 1;
        }
        Ok(())
    }

    /// Waits for a signal of this name, holding nothing meanwhile, and takes it: what it says.
    ///
    /// # Errors
    /// `Parked` if there is none, and as for `step`.
    pub fn wait_for_signal(&mut self, name: &str) -> Result<Vec<u8>, Halt> {
        if let Some(payload) = self.recall(StepKind::Signal, name)? {
            return Ok(payload);
        }
        let taken = self.commit(|block, _, run| {
            let Some((key, payload)) = signal::find(block, run.id, name)? else { return Ok(None) };
            signal::take(block, &key)?;
            record(block, run, StepKind::Signal, name, &payload)?;
            Ok(Some(payload))
        })?;
        match taken {
            Some(payload) => {
                self.next += 1;
                Ok(payload)
            }
            None => Err(self.park_for_signal(name)),
        }
    }

    /// Waits for the end of a job, whatever its runs, holding nothing meanwhile: how it ended.
    ///
    /// # Errors
    /// `Parked` if it has not ended, and as for `step`.
    pub fn wait_for_job(&mut self, job: &JobId) -> Result<Outcome, Halt> {
        let name = job.as_str();
        let recorded = match self.recall(StepKind::Job, name)? {
            Some(result) => Some(result),
            None => {
                let ended = self.commit(|block, _, run| {
                    let Some(outcome) = make::job(block, job)?.outcome else { return Ok(None) };
                    record(block, run, StepKind::Job, name, &[outcome.code()])?;
                    Ok(Some(vec![outcome.code()]))
                })?;
                self.next += u32::from(ended.is_some());
                ended
            }
        };
        let Some(result) = recorded else {
            self.park = Some(Park::Job(job.clone()));
            return Err(Halt::Parked);
        };
        let damaged = || Error::damaged("steps", "how a job ended that a run waited for");
        Ok(result.first().and_then(|code| Outcome::from_code(*code)).ok_or_else(damaged)?)
    }

    /// Waits for the end of the job that a run belongs to, such as one that a step [enqueued](Step::enqueue).
    ///
    /// # Errors
    /// As for `wait_for_job`.
    pub fn wait_for(&mut self, child: RunId) -> Result<Outcome, Halt> {
        let rows = self.shared.substrate.snapshot()?;
        let job = make::run(&crate::read::View::new(rows), child)?.job;
        self.wait_for_job(&job)
    }

    /// Whether the run is to stop: it was cancelled, its time is over, or somebody else drives it. Looks into the store.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn is_stopping(&mut self) -> Result<bool> {
        match self.refresh() {
            Ok(()) => Ok(self.check_open().is_err()),
            Err(Halt::Runtime(error)) => Err(error),
            Err(_) => Ok(true),
        }
    }

    /// Keeps the run for another term of its lease, for work that says nothing for long.
    ///
    /// # Errors
    /// Why the run does not go on here.
    pub fn renew(&mut self) -> Result<(), Halt> {
        self.commit(|_, _, _| Ok(()))
    }

    /// Says something with the next commit of the run, whatever that is for: a step, other events, a wait or the end. Costs no commit; if
    /// the run is lost before, so is this. Many bytes are not kept waiting.
    ///
    /// # Errors
    /// As for [`append`](EventSink::append). Events that ask for derived work are appended, not buffered.
    pub fn buffer(&mut self, events: &[EventDraft]) -> Result<(), SinkError> {
        if events.iter().any(|event| event.kind == EventType::Enqueue) {
            return self.append(events).map(drop);
        }
        let rows = self.check_events(events);
        let rows = rows.map_err(|halt| self.sink_error(halt, events.len()))?;
        self.buffered_bytes += rows.iter().map(|row| row.len()).sum::<usize>();
        self.buffered.extend(rows);
        if self.buffered_bytes > BUFFERED_BYTES_MAX {
            let flushed = self.append_rows(&[]);
            flushed.map_err(|halt| self.sink_error(halt, events.len()))?;
        }
        Ok(())
    }

    /// What is recorded in the next place, if anything is. Moves to the place after it.
    pub(super) fn recall(&mut self, kind: StepKind, name: &str) -> Result<Option<Vec<u8>>, Halt> {
        self.check_open()?;
        check_name("a step's name", name)?;
        let Some(step) = self.recorded.get(self.next as usize) else { return Ok(None) };
        if step.kind != kind || *step.name != *name {
            let recorded = (step.kind, step.name.clone());
            let asked = Some((kind, name.into()));
            return Err(Halt::Diverged(Box::new(Divergence { number: self.next, recorded, asked })));
        }
        self.next += 1;
        Ok(Some(step.result.clone()))
    }

    /// Whether the code has asked for every step that is recorded.
    pub(super) fn check_recalled(&self) -> Result<(), Halt> {
        match self.recorded.get(self.next as usize) {
            None => Ok(()),
            Some(step) => {
                let recorded = (step.kind, step.name.clone());
                Err(Halt::Diverged(Box::new(Divergence { number: self.next, recorded, asked: None })))
            }
        }
    }

    /// The place of the next step that is asked for.
    pub(super) fn next_step(&self) -> u32 {
        self.next
    }

    /// Records what was done in the next place.
    pub(super) fn record_step(&mut self, kind: StepKind, name: &str, result: &[u8]) -> Result<(), Halt> {
        self.commit(|block, _, run| record(block, run, kind, name, result))?;
        self.next += 1;
        Ok(())
    }

    /// Lets the run wait for a signal once its code has returned.
    pub(super) fn park_for_signal(&mut self, name: &str) -> Halt {
        self.park = Some(Park::Signal(name.into()));
        Halt::Parked
    }

    /// Where its actions are written down.
    pub(super) fn ledger(&self) -> Ledger {
        self.shared.ledger.clone()
    }

    /// The runs of its runtime.
    pub(super) fn runs(&self) -> Runs {
        Runs::of(&self.shared)
    }

    /// Whether the run may go on here, as far as is known.
    fn check_open(&mut self) -> Result<(), Halt> {
        if self.stop.is_none() && self.until.is_some_and(|until| self.now().wall >= until) {
            self.stop = Some(Stop::TimedOut);
        }
        match self.stop {
            Some(Stop::Sealed | Stop::Lost) => Err(Halt::Lost),
            Some(Stop::Cancelled | Stop::TimedOut) => Err(Halt::Cancelled),
            None if self.park.is_some() => Err(Halt::Parked),
            None => Ok(()),
        }
    }

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
        if run != self.run && run.outcome().is_none() {
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

    /// Commits a change if the run is still ours. Tells whether it was.
    fn land(&mut self, mut change: Change, run: Run, lasting: Lasting, ahead: Option<&mut Ahead<'_>>) -> Result<bool> {
        self.shared.check_running()?;
        change.expect(RUNS, *self.run.id.as_bytes(), Seen::of(Some(&self.row)));
        let lease_key = lease::row_key(self.driver.worker, self.driver.held.lease.owner);
        change.expect(LEASES, lease_key, Seen::of(Some(&self.driver.held.row)));
        let renewed = match lasting {
            Lasting::On => self.renewed(),
            Lasting::Over => {
                if !ahead.is_some_and(|ahead| ahead.stage_lease(&mut change)) {
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
        match self.shared.commit(&change)? {
            Verdict::Committed(_) => {
                if lasting == Lasting::On {
                    self.row = run.encode().into();
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

    /// After a conflict: finds out whether the run is still ours, and pauses.
    fn meet(&mut self, pass: u32) -> Result<(), Halt> {
        self.refresh()?;
        self.shared.pause(&self.driver.policy, pass);
        Ok(())
    }

    /// Looks at the run as it stands, and whose it is.
    fn refresh(&mut self) -> Result<(), Halt> {
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
        if let Some(run) = run {
            if run.is_cancelled {
                self.stop.get_or_insert(Stop::Cancelled);
            }
            self.row = run.encode().into();
            self.run = run;
        }
        Ok(())
    }

    fn is_leased(&self, rows: &dyn Rows) -> Result<bool> {
        let key = lease::row_key(self.driver.worker, self.driver.held.lease.owner);
        Ok(rows.get(&LEASES, &key)?.as_deref() == Some(&self.driver.held.row[..]))
    }

    /// Ends the run, unless it is not ours any more.
    pub(super) fn end(&mut self, ending: &Ending, ahead: &mut Ahead<'_>) -> Result<Option<Run>> {
        self.conclude(Some(ahead), ending_with(ending))
    }

    /// Ends the run while its driver has still something to do. What the driver answers then about the end counts for nothing.
    ///
    /// # Errors
    /// Why it was not ended here.
    pub(super) fn end_early(&mut self, ending: &Ending) -> Result<(), SinkError> {
        if self.concluded.is_some() {
            return Err(SinkError::Sealed);
        }
        let concluded = self.conclude(None, ending_with(ending));
        let answer = match &concluded {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(SinkError::Lost),
            Err(error) => Err(SinkError::Failed(error.to_string())),
        };
        self.stop.get_or_insert(Stop::Sealed);
        self.concluded = Some(concluded);
        answer
    }

    /// How the run was ended early, if it was.
    pub(super) fn take_concluded(&mut self) -> Option<Result<Option<Run>>> {
        self.concluded.take()
    }

    /// How often a silent run renews its lease: often enough that one late renewal does not lose it.
    pub(super) fn renewal(&self) -> std::time::Duration {
        self.driver.policy.lease / 3
    }

    /// The clock of the runtime.
    pub(super) fn clock(&self) -> Arc<dyn crate::time::Clock> {
        Arc::clone(&self.shared.clock)
    }

    /// Lets the run wait, unless it is not ours any more or what it waits for has come.
    pub(super) fn park(&mut self, ahead: &mut Ahead<'_>) -> Result<Option<Run>> {
        let Some(park) = self.park.take() else { return Ok(None) };
        self.conclude(Some(ahead), |block, shared, run, stop| {
            if let Some(ending) = cancelled(block.now().wall, run, stop) {
                *run = seal::seal(block, shared, run.clone(), &ending)?;
                return Ok(());
            }
            run.state = State::Parked;
            run.message = 0;
            unmark(block, &index::running(run.id))?;
            stage_park(block, run, &park)
        })
    }

    /// Commits the driver's last word on the run, with the end of its message and lease. Nothing if the run is not ours any more.
    fn conclude(
        &mut self,
        mut ahead: Option<&mut Ahead<'_>>,
        mut make: impl FnMut(&mut Atomic<'_>, &Shared, &mut Run, Option<Stop>) -> Result<(), Halt>,
    ) -> Result<Option<Run>> {
        for pass in 1..=PASSES_MAX {
            let stop = self.stop;
            if matches!(stop, Some(Stop::Sealed | Stop::Lost)) {
                return Ok(None);
            }
            let mut make = |block: &mut Atomic<'_>, shared: &Shared, run: &mut Run| make(block, shared, run, stop);
            let result = match self.try_commit(&mut make, Lasting::Over, ahead.as_deref_mut()) {
                Ok(Some(())) => return Ok(Some(self.run.clone())),
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
                Err(Halt::Lost) => return Ok(None),
                Err(Halt::Runtime(error)) => return Err(error),
                Err(halt) => return Err(Error::Substrate(halt.to_string().into())),
            }
        }
        // The lease runs out, and somebody else finds the run as a crash would leave it.
        Ok(None)
    }

    /// Counts events that came too late.
    fn count_refused(&self, events: usize) -> Result<()> {
        let id = self.run.id;
        atomically(&self.shared, |block| {
            let count = runs::refused(block, id)?.saturating_add(events as u64);
            block.stage(&RUN_INDEX, &index::refused(id), Some(&count.to_le_bytes()))
        })
    }

    /// Appends rows that ask for nothing else, without looking at the store.
    fn append_rows(&mut self, rows: &[Bytes]) -> Result<(), Halt> {
        for pass in 1..=PASSES_MAX {
            self.check_open()?;
            let (mut change, mut run) = (Change::default(), self.run.clone());
            for row in self.buffered.iter().chain(rows) {
                let (key, named) = event::add(&mut run, row);
                change.put(EVENTS, key, row.clone());
                if let Some(named) = named {
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
    fn append_enqueuing(&mut self, events: &[EventDraft]) -> Result<(), Halt> {
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

/// A run as somebody begins to drive it.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) run: Run,
    pub(super) job: Job,
    pub(super) until: Option<Timestamp>,
    pub(super) input: Vec<u8>,
    pub(super) recorded: Vec<Recorded>,
}

fn record(block: &mut Atomic<'_>, run: &mut Run, kind: StepKind, name: &str, result: &[u8]) -> Result<(), Halt> {
    let step = Recorded { kind, at: block.now().wall, name: name.into(), result: result.to_vec() };
    Ok(step::record(block, run, &step)?)
}

/// Stages the end of a run.
fn ending_with(ending: &Ending) -> impl FnMut(&mut Atomic<'_>, &Shared, &mut Run, Option<Stop>) -> Result<(), Halt> {
    move |block, shared, run, stop| {
        let cancelled = cancelled(block.now().wall, run, stop);
        let ending = match &cancelled {
            // Whatever it says of its end: it was stopped. What it finished all the same is finished.
            Some(cancelled) if !ending.outcome.is_success() => cancelled,
            _ => ending,
        };
        *run = seal::seal(block, shared, run.clone(), ending)?;
        Ok(())
    }
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

/// Stages what wakes a run that waits. If what it waits for has come meanwhile, it is woken at once.
fn stage_park(block: &mut Atomic<'_>, run: &mut Run, park: &Park) -> Result<(), Halt> {
    match park {
        Park::Until { name, due, is_recorded } => {
            if !is_recorded {
                record(block, run, StepKind::Sleep, name, &due.0.to_le_bytes())?;
            }
            let class = make::class(block, &run.class)?.class;
            block.arm(*due, &make::drive_message(run.id, class.worker, false)?)?;
        }
        Park::Signal(name) => {
            if **name == *DECIDED {
                mark(block, &index::undecided(run.id))?;
            }
            if signal::find(block, run.id, name)?.is_some() {
                make::wake(block, run)?;
            }
        }
        Park::Job(job) => match make::job(block, job)?.outcome {
            Some(_) => make::wake(block, run)?,
            None => {
                mark(block, &index::waiter(job, run.id))?;
                yield_gate(block, run)?;
            }
        },
    }
    Ok(())
}

/// Stages that derived work which waits for a job is not under way meanwhile: what it waits for may stand before the same gate.
fn yield_gate(block: &mut Atomic<'_>, run: &Run) -> Result<()> {
    let job = make::job(block, &run.job)?;
    match job.gate {
        Some((gate, _)) if gate == Gate::of_tree(run.root) => seal::leave_gate(block, &job, run.id),
        _ => Ok(()),
    }
}

impl EventSink for LiveRun {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        let before = self.run.events + self.buffered.len() as u64;
        match self.try_append(events) {
            // Derived work that was not made is said, too; it stands after what it is about.
            Ok(()) if !events.is_empty() => Ok(Appended { first_seq: before + 1, last_seq: self.run.events }),
            Ok(()) => Ok(Appended { first_seq: before + 1, last_seq: before }),
            Err(halt) => Err(self.sink_error(halt, events.len())),
        }
    }
}

impl LiveRun {
    fn try_append(&mut self, events: &[EventDraft]) -> Result<(), Halt> {
        let rows = self.check_events(events)?;
        match events.iter().any(|event| event.kind == EventType::Enqueue) {
            true => self.append_enqueuing(events),
            false if rows.is_empty() => Ok(()),
            false => self.append_rows(&rows),
        }
    }

    /// The rows of events, if all of them can be kept.
    fn check_events(&mut self, events: &[EventDraft]) -> Result<Vec<Bytes>, Halt> {
        self.check_open()?;
        if let Some(terminal) = events.iter().find(|event| event.kind.is_terminal()) {
            return Err(Halt::Failed(format!("{} ends a run: it is appended by sealing", terminal.kind).into()));
        }
        Ok(events.iter().map(event::encode).collect::<Result<Vec<_>>>()?)
    }

    /// Why so many events were not appended. Those that came after the run was sealed are counted.
    fn sink_error(&self, halt: Halt, events: usize) -> SinkError {
        match halt {
            Halt::Lost if self.stop == Some(Stop::Sealed) => match self.count_refused(events) {
                Ok(()) => SinkError::Sealed,
                Err(error) => SinkError::Failed(error.to_string()),
            },
            Halt::Lost => SinkError::Lost,
            Halt::Cancelled => SinkError::Cancelled,
            halt => SinkError::Failed(halt.to_string()),
        }
    }
}

impl fmt::Debug for LiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRun").field("run", &self.run).field("stop", &self.stop).finish_non_exhaustive()
    }
}
