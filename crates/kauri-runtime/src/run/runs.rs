//! What people and programs ask of jobs and runs.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use kauri_wire::{Flags, JobId, RunId};

use super::class::{Class, ClassRow};
use super::fault::RunFault;
use super::index;
use super::job::Job;
use super::make::{self, Input, marked, unmark};
use super::outcome::{Origin, Outcome, State};
use super::row::Run;
use super::seal::{self, Ending};
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::keys;
use crate::read::{Read, View};
use crate::runtime::{Runtime, Shared};
use crate::schema::{INPUTS, RUN_INDEX};
use crate::substrate::{KeyRange, Signal, Verdict, prefix_end};

/// The longest name of a class, a step or a signal, and the longest key, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 200;

/// How often a change is tried that meets conflicts.
const PASSES_MAX: u32 = 1000;

/// How many rows are looked at, or changed, in one commit of work that has no end.
const BATCH_ROWS: usize = 256;

/// The jobs and runs of a runtime. A handle, as the [`Runtime`] is.
#[derive(Clone, Debug)]
pub struct Runs {
    runtime: Runtime,
}

impl Runtime {
    /// Its jobs and runs.
    #[must_use]
    pub fn runs(&self) -> Runs {
        Runs { runtime: self.clone() }
    }
}

/// What became of the runs that were to be cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cancelled {
    /// So many had not begun, or were parked, and are sealed.
    pub sealed: u64,
    /// So many are driven by somebody, who will hear of it.
    pub asked: u64,
    /// So many had ended.
    pub ended: u64,
}

/// What a start did about runs whose driver had died with an earlier one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// These go on, with what their steps recorded.
    pub resumed: Vec<RunId>,
    /// These were ended: with a crash, or because they had been cancelled or their deadline had come.
    pub ended: Vec<(RunId, Outcome)>,
}

/// A run with those before and after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lineage {
    /// The run.
    pub run: Run,
    /// Its parent, the parent's parent and so on.
    pub ancestors: Vec<Run>,
    /// Its retries and children, theirs, and so on: each after its parent.
    pub descendants: Vec<Run>,
}

impl Runs {
    /// The runtime.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Those of a runtime that somebody has a part of.
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        Self { runtime: Runtime { shared: Arc::clone(shared) } }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.runtime.shared
    }

    /// Reads one version of the store.
    pub(super) fn read<T>(&self, block: impl FnOnce(&View<'_>) -> Result<T>) -> Result<T> {
        self.runtime.read(block)
    }

    /// Commits what `make` stages, made anew after each conflict.
    pub(super) fn atomically<T>(&self, make: impl FnMut(&mut Atomic<'_>) -> Result<T>) -> Result<T> {
        atomically(self.shared(), make)
    }

    /// Defines a class of jobs, or changes it. Runs that are there go by it from their next begin, wait or end on. What is on its way to them stays
    /// as it was: messages and timers go to the worker that was named before, and a run that waits hears of another time limit when it goes on.
    ///
    /// # Errors
    /// `Name` if it is none, or if the substrate fails.
    pub fn define(&self, name: &str, class: &Class) -> Result<()> {
        check_name("a class's name", name)?;
        keys::check_class(&self.shared().takes, name)?;
        self.atomically(|block| {
            let is_paused = make::find_class(block, name)?.is_some_and(|before| before.is_paused);
            let row = ClassRow { class: class.clone(), is_paused };
            block.stage(&RUN_INDEX, &index::class(name), Some(&row.encode()))
        })
    }

    /// A class, and whether it is paused.
    ///
    /// # Errors
    /// If the substrate fails or the row is damaged.
    pub fn class(&self, name: &str) -> Result<Option<(Class, bool)>> {
        let found = self.read(|view| make::find_class(view, name))?;
        Ok(found.map(|row| (row.class, row.is_paused)))
    }

    /// The names of all classes.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn classes(&self) -> Result<Vec<String>> {
        let keys = self.read(|view| marked(view, index::CLASSES, usize::MAX))?;
        Ok(keys.iter().map(|key| String::from_utf8_lossy(&key[1..]).into_owned()).collect())
    }

    /// A run as it stands.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or the row is damaged.
    pub fn run(&self, id: RunId) -> Result<Run> {
        self.read(|view| super::step::counted(view, make::run(view, id)?))
    }

    /// A job as it stands.
    ///
    /// # Errors
    /// `NoJob`, or if the substrate fails or the row is damaged.
    pub fn job(&self, id: &JobId) -> Result<Job> {
        self.read(|view| make::job(view, id))
    }

    /// The runs of a job, in the order of their attempts.
    ///
    /// # Errors
    /// As for `job`.
    pub fn attempts(&self, id: &JobId) -> Result<Vec<Run>> {
        self.read(|view| make::attempts(view, &make::job(view, id)?))
    }

    /// Up to `most` runs from this one on, oldest first.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn list(&self, from: Option<RunId>, most: usize) -> Result<Vec<Run>> {
        self.read(|view| {
            let from = from.map_or([0; 16], |run| *run.as_bytes());
            let mut scan = view.rows(&crate::schema::RUNS, KeyRange::starting(&from))?;
            let mut runs = Vec::new();
            while runs.len() < most {
                let Some((key, row)) = scan.next()? else { break };
                runs.push(Run::decode(index::last_run(key)?, &row)?);
            }
            Ok(runs)
        })
    }

    /// What a run was given.
    ///
    /// # Errors
    /// As for `run`.
    pub fn input(&self, id: RunId) -> Result<Vec<u8>> {
        self.read(|view| input(view, &make::run(view, id)?))
    }

    /// A run with all that came before and after it, in one version of the store. What it costs goes by what it answers.
    ///
    /// # Errors
    /// As for `run`.
    pub fn lineage(&self, id: RunId) -> Result<Lineage> {
        self.read(|view| lineage(view, id))
    }

    /// How many events came for a run after it had said its last, or was sealed, its end included. They were refused.
    ///
    /// # Errors
    /// If the substrate fails or the row is damaged.
    pub fn refused(&self, id: RunId) -> Result<u64> {
        self.read(|view| refused(view, id))
    }

    /// Cancels a run with everything under it and under the attempts of its job before it, and all that follows it. What has not begun is
    /// sealed at once; whoever drives a run hears of it when it next says or records something. After a crash half-way the next start does
    /// the rest.
    ///
    /// # Errors
    /// As for `run`.
    pub fn cancel(&self, id: RunId) -> Result<Cancelled> {
        let mut done = Cancelled::default();
        self.atomically(|block| {
            make::run(block, id)?;
            make::mark(block, &index::cancelling(id))
        })?;
        let mut open = self.read(|view| derived_before(view, id))?;
        open.push(id);
        // A run that is cancelled makes no more children: so each is asked for its children after it was cancelled.
        while let Some(id) = open.pop() {
            self.cancel_one(id, &mut done)?;
            open.extend(self.read(|view| children(view, id))?);
        }
        self.atomically(|block| unmark(block, &index::cancelling(id)))?;
        Ok(done)
    }

    fn cancel_one(&self, id: RunId, done: &mut Cancelled) -> Result<()> {
        let before = self.atomically(|block| {
            // One that was swept away has ended.
            let Some(mut run) = make::find_run(block, id)? else {
                return Ok(State::Sealed(Outcome::Cancelled));
            };
            let before = run.state;
            run.is_cancelled = true;
            match before {
                State::Sealed(_) => {}
                State::Running => make::stage_run(block, &run)?,
                State::Pending | State::Parked => {
                    let ending = Ending::failure(block.now().wall, Outcome::Cancelled, "it was cancelled");
                    seal::seal(block, self.shared(), &mut run, &ending)?;
                }
            }
            Ok(before)
        })?;
        match before {
            State::Sealed(_) => done.ended += 1,
            State::Running => done.asked += 1,
            State::Pending | State::Parked => done.sealed += 1,
        }
        Ok(())
    }

    /// Runs a job again whose last run failed, now and whatever its budget. If its deadline has come, it has none any more.
    ///
    /// # Errors
    /// `NoRun`, `NotEnded`, `Succeeded`, `Followed`, `Leaving` if it is being swept, or if the substrate fails.
    pub fn retry(&self, id: RunId) -> Result<Run> {
        self.retry_with(id, None)
    }

    /// As [`retry`](Self::retry), with another input if one is given.
    ///
    /// # Errors
    /// As for `retry`.
    pub fn retry_with(&self, id: RunId, input: Option<&[u8]>) -> Result<Run> {
        self.atomically(|block| {
            let failed = make::run(block, id)?;
            let job = make::job(block, &failed.job)?;
            let input = input.map_or(Input::Of(failed.input_of), Input::Own);
            seal::follow(block, self.shared(), &failed, job, input, None)
        })
    }

    /// Lets no run of a class begin until it is resumed. Those that have begun go on.
    ///
    /// # Errors
    /// `NoClass`, or if the substrate fails.
    pub fn pause(&self, class: &str) -> Result<()> {
        self.set_paused(class, true)
    }

    /// Lets runs of a class begin again, those that came meanwhile included.
    ///
    /// # Errors
    /// `NoClass`, or if the substrate fails.
    pub fn resume(&self, class: &str) -> Result<()> {
        self.set_paused(class, false)?;
        self.send_paused(class)
    }

    /// Sends the runs again that came while their class was paused.
    fn send_paused(&self, class: &str) -> Result<()> {
        let prefix = index::paused_of(class);
        loop {
            let sent = self.atomically(|block| {
                let keys = marked(block, &prefix, BATCH_ROWS)?;
                for key in &keys {
                    unmark(block, key)?;
                    if let Some(run) = make::find_run(block, index::last_run(key)?)? {
                        make::wake(block, &run)?;
                    }
                }
                Ok(keys.len())
            })?;
            if sent < BATCH_ROWS {
                return Ok(());
            }
        }
    }

    fn set_paused(&self, name: &str, is_paused: bool) -> Result<()> {
        self.atomically(|block| {
            let row = ClassRow { is_paused, ..make::class(block, name)? };
            block.stage(&RUN_INDEX, &index::class(name), Some(&row.encode()))
        })
    }

    /// Returns when a job has ended, or when the time is over: the job as it stands then.
    ///
    /// # Errors
    /// As for `job`.
    pub fn wait(&self, id: &JobId, most: Option<Duration>) -> Result<Job> {
        let job = self.job(id)?;
        if job.outcome.is_some() {
            return Ok(job);
        }
        let signal = Arc::new(Signal::default());
        self.runtime.substrate().watch("jobs", id.as_str().as_bytes(), &signal);
        let until = most.map(|most| self.runtime.now().mono + most);
        loop {
            let seen = signal.count();
            let job = self.job(id)?;
            let left = until.map(|until| until.since(self.runtime.now().mono));
            if job.outcome.is_some() || left.is_some_and(|left| left.is_zero()) {
                return Ok(job);
            }
            signal.wait(seen, left);
        }
    }

    /// Ends every run whose driver died with an earlier incarnation: with a crash, and another run if its class wants one. Those that
    /// are to be resumed are sent again if nothing else will. Answers what became of each. What died half-way through cancelling runs or
    /// resuming a class is done with. A runtime does this when it starts.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub(crate) fn recover(&self) -> Result<Recovered> {
        for key in self.read(|view| marked(view, index::CANCELLING, usize::MAX))? {
            let run = index::last_run(&key)?;
            match self.cancel(run) {
                Ok(_) => {}
                Err(Error::Run(RunFault::NoRun(_))) => self.atomically(|block| unmark(block, &key))?,
                Err(error) => return Err(error),
            }
        }
        for class in self.classes()? {
            if self.class(&class)?.is_some_and(|(_, is_paused)| !is_paused) {
                self.send_paused(&class)?;
            }
        }
        let mut done = Recovered::default();
        let mut from = index::RUNNING.to_vec();
        loop {
            let keys = self.read(|view| {
                let until = prefix_end(index::RUNNING);
                let mut scan = view.rows(&RUN_INDEX, KeyRange { from: &from, until: until.as_deref() })?;
                let mut keys = Vec::new();
                while keys.len() < BATCH_ROWS {
                    let Some((key, _)) = scan.next()? else { break };
                    keys.push(key.to_vec());
                }
                Ok(keys)
            })?;
            let Some(last) = keys.last() else { return Ok(done) };
            from = [&last[..], &[0]].concat();
            for key in &keys {
                let id = index::last_run(key)?;
                match self.recover_one(id)? {
                    Some(outcome) => done.ended.push((id, outcome)),
                    None => done.resumed.push(id),
                }
            }
        }
    }

    /// How it ended, if it does not go on.
    fn recover_one(&self, id: RunId) -> Result<Option<Outcome>> {
        self.atomically(|block| {
            let run = make::run(block, id)?;
            super::begin::take_over(block, self.shared(), run)?;
            Ok(make::run(block, id)?.outcome())
        })
    }
}

/// Commits what `make` stages, made anew after each conflict.
pub(super) fn atomically<T>(shared: &Shared, mut make: impl FnMut(&mut Atomic<'_>) -> Result<T>) -> Result<T> {
    let mut pass = 1;
    loop {
        shared.check_running()?;
        let rows = shared.substrate.snapshot()?;
        let mut block = Atomic::new(&*rows, shared.setting(None));
        let value = make(&mut block)?;
        let (mut change, wishes) = block.into_change();
        drop(rows);
        if change.is_empty() && wishes.is_empty() {
            return Ok(value);
        }
        change.durability = shared.policy.durability(Flags::DURABLE);
        let _ = shared.stage_wishes(&mut change, wishes);
        match shared.commit(&change.into())? {
            Verdict::Committed(_) => return Ok(value),
            Verdict::Conflict(conflict) => {
                shared.meet(&conflict, pass, None);
                if pass >= PASSES_MAX {
                    return Err(Error::Conflict(conflict));
                }
            }
        }
        shared.pause(&shared.policy, pass);
        pass += 1;
    }
}

/// What a run was given.
pub(super) fn input(rows: &impl Read, run: &Run) -> Result<Vec<u8>> {
    input_from(run, |key| rows.row(&INPUTS, key))
}

/// The same, for who has observed the run: an input stays as long as a run that has it.
pub(super) fn input_of(block: &Atomic<'_>, run: &Run) -> Result<Vec<u8>> {
    input_from(run, |key| block.peek(&INPUTS, key))
}

fn input_from<'a>(run: &Run, row: impl FnOnce(&[u8]) -> Result<Option<Cow<'a, [u8]>>>) -> Result<Vec<u8>> {
    let Some(of) = run.input_of else { return Ok(Vec::new()) };
    let found = row(of.as_bytes())?;
    found.map(Cow::into_owned).ok_or(Error::damaged("inputs", "the input that a run's row names"))
}

pub(super) fn refused(rows: &impl Read, id: RunId) -> Result<u64> {
    index::count_value(rows.row(&RUN_INDEX, &index::refused(id))?.as_deref())
}

/// A run with those before and after it.
pub(super) fn lineage(view: &View<'_>, id: RunId) -> Result<Lineage> {
    let run = make::run(view, id)?;
    let mut ancestors = Vec::new();
    let mut parent = run.parent();
    while let Some(above) = parent.map(|parent| make::find_run(view, parent)).transpose()?.flatten() {
        parent = above.parent();
        ancestors.push(above);
    }
    Ok(Lineage { run, ancestors, descendants: descendants(view, id)? })
}

/// The retries and children of a run.
fn children(view: &View<'_>, id: RunId) -> Result<Vec<RunId>> {
    marked(view, &index::children(id), usize::MAX)?.iter().map(|key| index::last_run(key)).collect()
}

/// What the attempts of a run's job before it derived.
fn derived_before(view: &View<'_>, id: RunId) -> Result<Vec<RunId>> {
    let (mut above, mut derived) = (make::run(view, id)?, Vec::new());
    while let Origin::Retry { of, .. } = above.origin {
        let retry = above.id;
        let Some(before) = make::find_run(view, of)? else { break };
        derived.extend(children(view, of)?.into_iter().filter(|child| *child != retry));
        above = before;
    }
    Ok(derived)
}

/// The retries and children of a run, theirs, and so on: each after its parent.
pub(super) fn descendants(view: &View<'_>, id: RunId) -> Result<Vec<Run>> {
    let mut found = Vec::new();
    let mut open = vec![id];
    while let Some(id) = open.pop() {
        let children = children(view, id)?;
        for child in &children {
            found.extend(make::find_run(view, *child)?);
        }
        open.extend(children.into_iter().rev());
    }
    Ok(found)
}

/// Whether a name can stand in a key.
pub(super) fn check_name(of: &'static str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(RunFault::Name { of, most: NAME_BYTES_MAX, found: name.len() }.into());
    }
    Ok(())
}
