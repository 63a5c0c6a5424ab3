//! A run that somebody drives: what it says and records while it goes on.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kauri_wire::pack::Map;
use kauri_wire::run::EventType;
use kauri_wire::{InboxKey, JobId, RunId, Timestamp, WorkerId};

use super::action::{DECIDED, Ledger};
use super::commit::{record, record_end};
use super::event;
use super::fan_out::Enqueued;
use super::index;
use super::job::Job;
use super::make;
use super::outcome::Outcome;
use super::row::Run;
use super::runs::{self, Runs, atomically, check_name};
use super::signal;
use super::sink::{Appended, EventDraft, EventSink, SinkError};
use super::step::{Divergence, Recorded, Step, StepKind};
use crate::claim::Held;
use crate::error::{Error, Result};
use crate::handler::Failure;
use crate::policy::Policy;
use crate::runtime::Shared;
use crate::schema::RUN_INDEX;
use crate::substrate::Bytes;
use crate::time::Now;

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

impl Halt {
    /// Why a worker cannot go on with a run, where that is nothing it expects.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Runtime(error) => error,
            halt => Error::Substrate(halt.to_string().into()),
        }
    }
}

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
            SinkError::Parked => Self::Parked,
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
pub(super) enum Park {
    Until { name: Box<str>, due: Timestamp, is_recorded: bool },
    Signal(Box<str>),
    Job(JobId),
}

/// A step that was asked for and is not recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) name: Box<str>,
    /// Why it failed, if it has and that is known.
    pub(super) why: Option<Box<str>>,
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
    pub(super) shared: Arc<Shared>,
    pub(super) driver: Driver,
    pub(super) run: Run,
    /// The run's row as it was last committed.
    pub(super) row: Bytes,
    pub(super) job: Arc<Job>,
    /// When its time is over.
    pub(super) until: Option<Timestamp>,
    pub(super) input: Vec<u8>,
    pub(super) recorded: Vec<Recorded>,
    /// The place of the next step that is asked for.
    pub(super) next: u32,
    /// Rows of events that go with the next commit, whatever it is for.
    pub(super) buffered: Vec<Bytes>,
    pub(super) buffered_bytes: usize,
    pub(super) stop: Option<Stop>,
    pub(super) park: Option<Park>,
    /// The step that was asked for last, until it is recorded. If the run fails, it is what failed.
    pub(super) asked: Option<Asked>,
    /// How many actions of each name were done.
    actions: BTreeMap<Box<str>, u32>,
    /// How its end was committed, if that was done before its driver returned.
    pub(super) concluded: Option<Result<bool>>,
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
            job: Arc::new(job),
            until,
            input,
            recorded,
            next: 0,
            buffered: Vec::new(),
            buffered_bytes: 0,
            stop: None,
            park: None,
            asked: None,
            actions: BTreeMap::new(),
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
    /// What the work answers, and then nothing is kept of it; but if the code asks for another step after that, it is recorded that this one
    /// failed and why, and it fails again whenever the run goes on. `Diverged` if another step is recorded in this place; or why the run does
    /// not go on here.
    pub fn step(
        &mut self,
        name: &str,
        mut work: impl FnMut(&mut Step<'_, '_>) -> Result<Vec<u8>, Failure>,
    ) -> Result<Vec<u8>, Halt> {
        if let Some(result) = self.recall(StepKind::Work, name)? {
            return Ok(result);
        }
        let done = self.commit(|block, shared, run| {
            let result = work(&mut Step { block, shared, run })?;
            record(block, run, StepKind::Work, name, &result)?;
            Ok(result)
        });
        self.note(done).inspect(|_| self.advance())
    }

    /// The same, noting why the step failed that was asked for last, if it did.
    pub(super) fn note<T>(&mut self, done: Result<T, Halt>) -> Result<T, Halt> {
        if let Err(Halt::Failed(why)) = &done {
            self.note_failure(why);
        }
        done
    }

    /// Notes why the step failed that was asked for last.
    pub(super) fn note_failure(&mut self, why: &str) {
        if let Some(asked) = &mut self.asked {
            asked.why = Some(why.into());
        }
    }

    /// Records that the step failed which was asked for last, if it was not done and the code goes on all the same. Else the steps after it would
    /// stand one place too early: the next time it is asked for, they would be found in its place.
    fn record_failure(&mut self) -> Result<(), Halt> {
        let Some(Asked { name, why }) = self.asked.clone() else { return Ok(()) };
        let why = why.unwrap_or_default();
        self.commit(|block, _, run| record(block, run, StepKind::Failed, &name, why.as_bytes()))?;
        self.advance();
        Ok(())
    }

    /// Moves to the place of the next step.
    fn advance(&mut self) {
        self.next += 1;
        self.asked = None;
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
            let done = self.commit(|block, _, run| record(block, run, StepKind::Sleep, name, &due.0.to_le_bytes()));
            self.note(done)?;
            self.advance();
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
        });
        match self.note(taken)? {
            Some(payload) => {
                self.advance();
                Ok(payload)
            }
            None => Err(self.park_for_signal(name)),
        }
    }

    /// Waits for the end of a job, whatever its runs, holding nothing meanwhile: how it ended.
    ///
    /// # Errors
    /// `Parked` if it has not ended, `Failed` if it is the run's own, and as for `step`.
    pub fn wait_for_job(&mut self, job: &JobId) -> Result<Outcome, Halt> {
        if *job == self.run.job {
            let words =
                format!("expected another job to wait for, found {job}, which is this run's own and ends after it");
            return Err(Halt::Failed(words.into()));
        }
        let name = job.as_str();
        let recorded = match self.recall(StepKind::Job, name)? {
            Some(result) => Some(result),
            None => {
                let ended = self.commit(|block, _, run| {
                    let Some(outcome) = make::job(block, job)?.outcome else { return Ok(None) };
                    record_end(block, run, job, outcome)?;
                    Ok(Some(vec![outcome.code()]))
                });
                let ended = self.note(ended)?;
                if ended.is_some() {
                    self.advance();
                }
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
        let job = match make::find_run(&crate::read::View::new(rows), child)? {
            Some(run) => run.job,
            // It was swept away since: what is recorded of it counts, whatever id its job had.
            None => match self.recorded.get(self.next as usize).filter(|step| step.kind == StepKind::Job) {
                Some(step) => JobId::new(&*step.name).map_err(Error::from)?,
                None => make::own_job(child)?,
            },
        };
        self.wait_for_job(&job)
    }

    /// Asks for derived work in a step of its own: its first run. The params are a MessagePack map.
    pub(super) fn enqueue(&mut self, name: &str, target: &str, params: &[u8]) -> Result<RunId, Halt> {
        let made =
            self.step(name, |step| match step.enqueue(target, Map::decode(params).map_err(Error::from)?)? {
                Enqueued::Made(run) | Enqueued::Same(run) => Ok(run.as_bytes().to_vec()),
                Enqueued::Skipped(skip) => Err(Failure::fatal(skip.as_str())),
            })?;
        Ok(index::run_value(&made)?)
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

    /// Keeps the run for another term of its lease, for work that says nothing for long; also for what is still to be done before it
    /// is parked.
    ///
    /// # Errors
    /// Why the run does not go on here.
    pub fn renew(&mut self) -> Result<(), Halt> {
        let park = self.park.take();
        let renewed = self.commit(|_, _, _| Ok(()));
        self.park = park;
        renewed
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
            // They are among those that are buffered.
            flushed.map_err(|halt| self.sink_error(halt, 0))?;
        }
        Ok(())
    }

    /// What is recorded in the next place, if anything is. Moves to the place after it.
    pub(super) fn recall(&mut self, kind: StepKind, name: &str) -> Result<Option<Vec<u8>>, Halt> {
        self.check_open()?;
        check_name("a step's name", name)?;
        self.record_failure()?;
        let Some(step) = self.recorded.get(self.next as usize) else {
            self.asked = Some(Asked { name: name.into(), why: None });
            return Ok(None);
        };
        if step.kind == StepKind::Failed && *step.name == *name {
            let why = failed_before(step);
            self.advance();
            return Err(Halt::Failed(why));
        }
        if step.kind != kind || *step.name != *name {
            let recorded = (step.kind, step.name.clone());
            let asked = Some((kind, name.into()));
            return Err(Halt::Diverged(Box::new(Divergence { number: self.next, recorded, asked })));
        }
        let result = step.result.clone();
        self.advance();
        Ok(Some(result))
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

    /// How many actions of this name were done before.
    pub(super) fn actions_before(&self, name: &str) -> u32 {
        self.actions.get(name).copied().unwrap_or(0)
    }

    /// Counts an action that is done. One that failed is not counted: whoever asks for it again means the same.
    pub(super) fn count_action(&mut self, name: &str) {
        *self.actions.entry(name.into()).or_default() += 1;
    }

    /// Whether a step of this name is what was asked for last. If another one were recorded, it would stand in a place in which it was not asked
    /// for, and the next time the code would be taken for another.
    pub(super) fn check_asked(&self, name: &str) -> Result<(), Halt> {
        let last = match &self.asked {
            Some(asked) if *asked.name == *name => return Ok(()),
            Some(asked) => format!("{:?} was", asked.name),
            None => "none is open".to_owned(),
        };
        let words = format!("expected the end of the step that was asked for last, found that of {name:?}: {last}");
        Err(Halt::Failed(words.into()))
    }

    /// Records what was done in the next place.
    pub(super) fn record_step(&mut self, kind: StepKind, name: &str, result: &[u8]) -> Result<(), Halt> {
        self.check_asked(name)?;
        let done = self.commit(|block, _, run| record(block, run, kind, name, result));
        self.note(done)?;
        self.advance();
        Ok(())
    }

    /// Lets the run wait for a signal once its code has returned.
    pub(super) fn park_for_signal(&mut self, name: &str) -> Halt {
        self.park = Some(Park::Signal(name.into()));
        Halt::Parked
    }

    /// Lets the run wait until somebody has decided about an action of it.
    pub(super) fn park_for_decision(&mut self) -> Halt {
        self.park_for_signal(DECIDED)
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
    pub(super) fn check_open(&mut self) -> Result<(), Halt> {
        if self.stop.is_none() && self.is_over() {
            self.stop = Some(Stop::TimedOut);
        }
        match self.stop {
            Some(Stop::Sealed | Stop::Lost) => Err(Halt::Lost),
            Some(Stop::Cancelled | Stop::TimedOut) => Err(Halt::Cancelled),
            None if self.park.is_some() => Err(Halt::Parked),
            None => Ok(()),
        }
    }

    /// Whether its time is over.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| self.now().wall >= until)
    }

    /// How the run was ended early, if it was.
    pub(super) fn take_concluded(&mut self) -> Option<Result<bool>> {
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

    /// Counts events that came after the run was sealed, and those that waited for a commit.
    pub(super) fn count_refused(&mut self, events: usize) -> Result<()> {
        let events = events + std::mem::take(&mut self.buffered).len();
        self.buffered_bytes = 0;
        if events == 0 {
            return Ok(());
        }
        let id = self.run.id;
        atomically(&self.shared, |block| {
            if make::find_run(block, id)?.is_none() {
                // It was swept away meanwhile, and leaves nothing.
                return Ok(());
            }
            let count = runs::refused(block, id)?.saturating_add(events as u64);
            block.stage(&RUN_INDEX, &index::refused(id), Some(&count.to_le_bytes()))
        })
    }
}

/// Why a step failed that is recorded as one that did.
fn failed_before(step: &Recorded) -> Box<str> {
    match step.result.is_empty() {
        true => format!("step {:?} failed before, and nobody said why", step.name).into(),
        false => String::from_utf8_lossy(&step.result).into(),
    }
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

impl EventSink for LiveRun {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        let before = self.run.events + self.buffered.len() as u64;
        match self.try_append(events) {
            // Derived work that was not made is said, too, after what it is about: so there may be more than these.
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
    fn sink_error(&mut self, halt: Halt, events: usize) -> SinkError {
        match halt {
            Halt::Lost if self.stop == Some(Stop::Sealed) => match self.count_refused(events) {
                Ok(()) => SinkError::Sealed,
                Err(error) => SinkError::Failed(error.to_string()),
            },
            Halt::Lost => SinkError::Lost,
            Halt::Cancelled => SinkError::Cancelled,
            Halt::Parked => SinkError::Parked,
            halt => SinkError::Failed(halt.to_string()),
        }
    }
}

impl fmt::Debug for LiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRun").field("run", &self.run).field("stop", &self.stop).finish_non_exhaustive()
    }
}
