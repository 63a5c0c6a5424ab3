//! Steps of a run: what it did, recorded with the commit of what it did, so that it is not done again.
//!
//! ```text
//! key                          value
//! | run 16 | number u32be |    | STP0 | kind u8 | when i64 | length u32, name | length u32, result |      little-endian
//! ```
//!
//! A step's commit writes its own row and nothing else of the run, whose row says how many there were when it was last written.
//!
//! Steps are numbered from 0 in the order in which the run asks for them. A run that goes on after a crash or a wait begins its code from
//! the start; each step that is recorded answers what it recorded, and the first that is not is done. If the code asks for another step
//! than the one recorded in that place, it is not the code that made the record: see [`Divergence`].
//!
//! A step that fails has a place too, if the code goes on after it: it is recorded, with the reason, when the code asks for the next one, and
//! fails again with that reason when the run begins anew. So the code takes the way it took.

use std::fmt;
use std::ops::{Deref, DerefMut};

use kauri_wire::pack::Map;
use kauri_wire::run::{Event, EventType};
use kauri_wire::{RunId, Timestamp};

use super::codec::{Reader, Writer};
use super::fan_out::{self, Enqueued};
use super::fault::RunFault;
use super::make::{self, Input};
use super::outcome::State;
use super::row::Run;
use super::runs::Runs;
use super::seal;
use super::sink::EventDraft;
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::read::Read;
use crate::runtime::Shared;
use crate::schema::STEPS;
use crate::substrate::{KeyRange, prefix_end};

const MAGIC: [u8; 4] = *b"STP0";

/// What a step is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// Work, and what it answered.
    Work,
    /// A wait for a moment.
    Sleep,
    /// A wait for a signal, and what it said.
    Signal,
    /// A wait for a job, and how it ended.
    Job,
    /// An action, and its result.
    Action,
    /// What the run had asked for and was not done, and why. If it is the last that is recorded, the run failed by it, and its end says why.
    Failed,
}

impl StepKind {
    const ALL: [Self; 6] = [Self::Work, Self::Sleep, Self::Signal, Self::Job, Self::Action, Self::Failed];
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Work => "work",
            Self::Sleep => "a wait for a moment",
            Self::Signal => "a wait for a signal",
            Self::Job => "a wait for a job",
            Self::Action => "an action",
            Self::Failed => "a step that failed",
        })
    }
}

/// A step as it is recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// What it is.
    pub kind: StepKind,
    /// When it was recorded.
    pub at: Timestamp,
    /// Its name.
    pub name: Box<str>,
    /// What it answered.
    pub result: Vec<u8>,
}

impl Recorded {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut row = Writer::new(MAGIC);
        row.byte(self.kind as u8).moment(self.at).bytes(self.name.as_bytes()).bytes(&self.result).finish()
    }

    fn decode(row: &[u8]) -> Result<Self> {
        let read = |row| {
            let mut row = Reader::new(row, MAGIC)?;
            let kind = *StepKind::ALL.get(usize::from(row.byte()?))?;
            let step = Self { kind, at: row.moment()?, name: row.text()?.into(), result: row.bytes()?.to_vec() };
            row.end().map(|()| step)
        };
        read(row).ok_or(Error::damaged("steps", "a step's row, which begins with STP0"))
    }
}

pub(super) fn step_key(run: RunId, number: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(run.as_bytes());
    key[16..].copy_from_slice(&number.to_be_bytes());
    key
}

/// The recorded steps of a run, in order.
pub(super) fn read(rows: &impl Read, run: RunId) -> Result<Vec<Recorded>> {
    let until = prefix_end(run.as_bytes());
    let mut scan = rows.rows(&STEPS, KeyRange { from: run.as_bytes(), until: until.as_deref() })?;
    let mut steps = Vec::new();
    while let Some((_, row)) = scan.next()? {
        steps.push(Recorded::decode(&row)?);
    }
    Ok(steps)
}

/// Tells a run of its steps: its row may be older than the last of them.
pub(super) fn catch_up(run: &mut Run, recorded: &[Recorded]) {
    let known = usize::try_from(run.steps).unwrap_or(usize::MAX);
    for step in recorded.iter().skip(known) {
        run.steps += 1;
        run.bytes = run.bytes.saturating_add(step.encode().len() as u64);
    }
}

/// A run as it stands, with all its steps counted.
pub(super) fn counted(rows: &impl Read, mut run: Run) -> Result<Run> {
    if run.state == State::Running {
        let until = prefix_end(run.id.as_bytes());
        let steps = rows.count(&STEPS, KeyRange { from: run.id.as_bytes(), until: until.as_deref() })?;
        run.steps = u32::try_from(steps).unwrap_or(u32::MAX);
    }
    Ok(run)
}

/// Stages that a run has one more step.
pub(super) fn record(block: &mut Atomic<'_>, run: &mut Run, step: &Recorded) -> Result<()> {
    let row = step.encode();
    block.stage(&STEPS, &step_key(run.id, run.steps), Some(&row))?;
    run.bytes = run.bytes.saturating_add(row.len() as u64);
    run.steps += 1;
    Ok(())
}

/// Stages that a new run has these steps of the run that it retries.
fn keep(block: &mut Atomic<'_>, run: &mut Run, steps: &[Recorded]) -> Result<()> {
    steps.iter().try_for_each(|step| record(block, run, step))?;
    run.kept = run.steps;
    make::stage_run(block, run)
}

/// Stages that the run which follows one by itself keeps the steps which that one was told to keep: whoever said so said that they are done.
pub(super) fn keep_on(block: &mut Atomic<'_>, before: &Run, run: &mut Run) -> Result<()> {
    if before.kept == 0 {
        return Ok(());
    }
    let mut steps = read(block, before.id)?;
    steps.truncate(usize::try_from(before.kept).unwrap_or(usize::MAX));
    keep(block, run, &steps)
}

/// The code asks for another step than the one that is recorded. Nothing is done then: which of the two is right, people must say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The place of the step, from 0.
    pub number: u32,
    /// What is recorded there; of an action that the ledger knows as another task, its name and that task.
    pub recorded: (StepKind, Box<str>),
    /// What the code asked for; nothing if it ended there.
    pub asked: Option<(StepKind, Box<str>)>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = &self.recorded;
        write!(f, "the code has changed under the run: step {} is recorded as {kind} {name:?}, ", self.number)?;
        match &self.asked {
            Some((kind, name)) => write!(f, "and the code asks for {kind} {name:?}"),
            None => f.write_str("and the code ends before it"),
        }
    }
}

/// What the code of a step works with: a block, whose commit records the step.
///
/// It reads and writes as any [`Atomic`] block, and may be run again after a conflict; so it does nothing else.
pub struct Step<'a, 'b> {
    pub(super) block: &'a mut Atomic<'b>,
    pub(super) shared: &'a Shared,
    pub(super) run: &'a mut Run,
}

impl Step<'_, '_> {
    /// Asks for derived work: a job of the class `target`, with these params as its input, under this run. It is made when the step
    /// commits, once for each target and params in a tree of runs. If an attempt of the same job before this one asked for it, and it had failed
    /// or been cancelled when this attempt was made, it is run again in the same commit; what fails for this attempt is not.
    ///
    /// # Errors
    /// `Params` if they have no canonical form, or if the substrate fails.
    pub fn enqueue(&mut self, target: &str, params: Map<'_>) -> Result<Enqueued> {
        fan_out::say_and_enqueue(self.block, self.shared, self.run, target, params)
    }

    /// Says something in the commit of the step: so it stands in the run's stream once, whatever conflicts, crashes and waits there are, where
    /// what is said outside of steps is said again each time the run begins anew. If the step fails, it was not said.
    ///
    /// # Errors
    /// `Event` if it cannot be said here: the end of a run is its driver's to say, and derived work is [`enqueue`](Self::enqueue)'s; also if its
    /// payload has too many bytes or levels.
    pub fn say(&mut self, event: &Event<'_>) -> Result<()> {
        let draft = EventDraft::new(event, self.block.now().wall.0)?;
        if draft.kind.is_terminal() || draft.kind == EventType::Enqueue {
            let words = format!("expected an event that a step can say, found {}", draft.kind);
            return Err(RunFault::Event(words.into()).into());
        }
        fan_out::say(self.block, self.run, &draft)
    }
}

impl<'b> Deref for Step<'_, 'b> {
    type Target = Atomic<'b>;

    fn deref(&self) -> &Atomic<'b> {
        self.block
    }
}

impl<'b> DerefMut for Step<'_, 'b> {
    fn deref_mut(&mut self) -> &mut Atomic<'b> {
        self.block
    }
}

impl fmt::Debug for Step<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("run", &self.run.id).finish_non_exhaustive()
    }
}

impl Runs {
    /// The recorded steps of a run, in order.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or a row is damaged.
    pub fn steps(&self, run: RunId) -> Result<Vec<Recorded>> {
        self.read(|view| {
            make::run(view, run)?;
            read(view, run)
        })
    }

    /// Runs a job again whose last run failed, as [`retry`](Runs::retry) does. The new run keeps the steps before this one as if it had
    /// done them, and has another input if one is given. The step may be the one by which the run failed, which is meant if several have this
    /// name; else the first of them is. Those that failed just before it are asked for again too. If the new run fails and its class has
    /// another follow it, that one keeps the same steps.
    ///
    /// # Errors
    /// `NoStep`, and as for [`retry`](Runs::retry).
    pub fn retry_from(&self, run: RunId, name: &str, input: Option<&[u8]>) -> Result<Run> {
        self.atomically(|block| {
            let failed = make::run(block, run)?;
            make::check_failed(&failed)?;
            let steps = read(block, run)?;
            let kept = before(&steps, name).ok_or_else(|| no_step(name, &steps))?;
            self.follow_keeping(block, &failed, kept, input)
        })
    }

    /// Runs a job again whose last run failed, as [`retry_from`](Runs::retry_from) does, and keeps all steps that it did: the new run begins
    /// with what it was in when it failed, crashed, was cancelled or timed out.
    ///
    /// # Errors
    /// As for [`retry`](Runs::retry).
    pub fn retry_keeping(&self, run: RunId, input: Option<&[u8]>) -> Result<Run> {
        self.atomically(|block| {
            let failed = make::run(block, run)?;
            make::check_failed(&failed)?;
            let steps = read(block, run)?;
            self.follow_keeping(block, &failed, until_failures(&steps), input)
        })
    }

    fn follow_keeping(
        &self,
        block: &mut Atomic<'_>,
        failed: &Run,
        kept: &[Recorded],
        input: Option<&[u8]>,
    ) -> Result<Run> {
        let job = make::job(block, &failed.job)?;
        let input = input.map_or(Input::Of(failed.input_of), Input::Own);
        let mut next = seal::follow(block, self.shared(), failed, job, input, None)?;
        keep(block, &mut next, kept)?;
        Ok(next)
    }
}

/// The steps that are kept by a retry from the step of this name, if there is one.
fn before<'a>(steps: &'a [Recorded], name: &str) -> Option<&'a [Recorded]> {
    // Of steps with one name that by which the run failed is meant, else the first. A failure that the code went on after is neither.
    let is_named =
        |step: &Recorded, is_failed: bool| *step.name == *name && (step.kind == StepKind::Failed) == is_failed;
    let at = match steps.last() {
        Some(last) if is_named(last, true) => steps.len() - 1,
        _ => steps.iter().position(|step| is_named(step, false))?,
    };
    Some(until_failures(&steps[..at]))
}

/// Steps without those that failed last: these are why the next one was asked for. One further back stays: the steps after it would not be in their
/// places.
fn until_failures(steps: &[Recorded]) -> &[Recorded] {
    let kept = steps.iter().rposition(|step| step.kind != StepKind::Failed).map_or(0, |last| last + 1);
    &steps[..kept]
}

/// How many steps are named to who asked for one that is not there.
const NAMED_MAX: usize = 20;

fn no_step(name: &str, steps: &[Recorded]) -> RunFault {
    let recorded = steps.iter().take(NAMED_MAX).map(|step| step.name.clone()).collect();
    RunFault::NoStep { name: name.into(), recorded, more: steps.len().saturating_sub(NAMED_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_survive_the_trip_and_other_bytes_are_refused() {
        for kind in StepKind::ALL {
            let step = Recorded { kind, at: Timestamp(-3), name: "charge".into(), result: b"ok".to_vec() };
            let row = step.encode();
            assert_eq!(Recorded::decode(&row).unwrap(), step);
            for length in 0..row.len() {
                assert!(Recorded::decode(&row[..length]).unwrap_err().is_corruption(), "{length} bytes");
            }
        }
    }
}
