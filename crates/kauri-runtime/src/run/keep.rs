//! Retention: what has ended is kept for as long as its class says, and removed in small commits.
//!
//! A job goes as a whole, once it has ended: its runs with their events, steps and inputs, then what they are found by, then the job. Each
//! commit removes at most so many rows; what a crash leaves of a job is swept next time, because its row goes last. Bytes of artifacts go
//! when no event names them any more: see [`Runs::collect`].
//!
//! Whoever is to know what is removed is told before it is: see [`Runs::sweep_telling`]. So an audit may name something that a crash kept, and
//! that is named again; it never misses something that is gone.

use std::fmt;

use kauri_wire::{InboxKey, JobId, Key, RunId, Timestamp, WorkerId};

use super::artifact::KeepError;
use super::class::{Class, Keep};
use super::event;
use super::files::Files;
use super::index;
use super::job::Job;
use super::make;
use super::row::Run;
use super::runs::Runs;
use crate::dead_letter::DeadLetter;
use crate::error::{Error, Result};
use crate::metrics::Counter;
use crate::observe::Observation;
use crate::read::{Read, View};
use crate::runtime::{inbox_key, inbox_range};
use crate::schema::{DEAD_LETTER, EVENTS, INPUTS, JOBS, RUN_INDEX, RUNS, STEPS};
use crate::substrate::{Bytes, Change, KeyRange, Seen, TableName, prefix_end};

/// The most rows that one commit removes.
const COMMIT_ROWS_MAX: usize = 512;

/// What a sweep removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SweptRuns {
    /// Jobs that are gone.
    pub jobs: u64,
    /// Runs that are gone with them.
    pub runs: u64,
    /// Events that those had.
    pub events: u64,
    /// Bytes that those had, artifacts included.
    pub bytes: u64,
    /// Dead letters that are gone.
    pub dead_letters: u64,
    /// Rows that are gone, of all tables.
    pub rows: u64,
}

/// Which limit of [`Keep`] something has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passed {
    /// It ended too long ago.
    Time,
    /// There are too many that ended later.
    Number,
    /// Those that ended later have too many bytes.
    Bytes,
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "too old",
            Self::Number => "too many",
            Self::Bytes => "too many bytes",
        })
    }
}

/// Something that is about to be removed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Removal<'a> {
    /// A job with its runs.
    Job {
        /// Its class.
        class: &'a str,
        /// The job.
        job: &'a Job,
        /// Its runs, in the order of their attempts.
        runs: &'a [Run],
        /// Why it goes.
        why: Passed,
    },
    /// A dead letter of the worker that drives a class.
    DeadLetter {
        /// The class.
        class: &'a str,
        /// Where it was.
        key: InboxKey,
        /// The letter.
        letter: &'a DeadLetter,
        /// Why it goes.
        why: Passed,
    },
}

/// What was removed beside the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Files beside runs that are gone.
    pub files: u64,
    /// Artifacts that nothing names.
    pub artifacts: u64,
}

/// Rows to be removed.
type Doomed = Vec<(TableName, Bytes)>;
type Tell<'a> = dyn FnMut(&Removal<'_>) -> Result<()> + 'a;

/// One class being swept.
struct Sweep<'a> {
    runs: &'a Runs,
    name: &'a str,
    class: &'a Class,
    now: Timestamp,
    rows_max: u64,
    /// How many bytes there are too many.
    over: u64,
}

impl Runs {
    /// Removes what its class does not keep any more, up to about so many rows. Whoever calls it again until it removes nothing has removed
    /// everything.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn sweep(&self, rows_max: usize) -> Result<SweptRuns> {
        self.sweep_telling(rows_max, |_| Ok(()))
    }

    /// As [`sweep`](Self::sweep), and tells of each thing before it is removed. If that fails, the sweep ends and the thing stays.
    ///
    /// # Errors
    /// As for `sweep`, and what `tell` says.
    pub fn sweep_telling(
        &self,
        rows_max: usize,
        mut tell: impl FnMut(&Removal<'_>) -> Result<()>,
    ) -> Result<SweptRuns> {
        let now = self.runtime().now().wall;
        let mut swept = SweptRuns::default();
        let done = self.classes()?.iter().try_for_each(|name| {
            let Some((class, _)) = self.class(name)? else { return Ok(()) };
            if class.keep == Keep::default() {
                return Ok(());
            }
            let over = self.read(|view| bytes_over(view, name, &class.keep))?;
            let rows_max = rows_max as u64;
            let mut sweep = Sweep { runs: self, name, class: &class, now, rows_max, over };
            sweep.jobs(&mut tell, &mut swept)?;
            sweep.letters(&mut tell, &mut swept)
        });
        let shared = self.shared();
        shared.metrics.add(Counter::JobsSwept, swept.jobs);
        shared.metrics.add(Counter::LettersSwept, swept.dead_letters);
        if swept.rows > 0 {
            shared.observe(&Observation::RunsSwept { swept: &swept });
        }
        done.map(|()| swept)
    }

    /// Removes files beside runs that are gone, and artifacts that no event and no file names. Runs may go on meanwhile.
    ///
    /// # Errors
    /// If the disk or the substrate fails.
    pub fn collect(&self, files: &Files) -> std::result::Result<Collected, KeepError> {
        let words = |error: Error| KeepError::Io(std::io::Error::other(error.to_string()));
        let mut collected = Collected::default();
        for run in files.runs()? {
            if self.read(|view| make::find_run(view, run)).map_err(words)?.is_none() {
                collected.files += files.forget(run)?;
            }
        }
        let kept = files.live()?;
        collected.artifacts = files.artifacts().collect(|digest| {
            let named = self.read(|view| make::marked(view, &index::artifacts(&digest), 1)).map_err(words)?;
            Ok(kept.contains(&digest) || !named.is_empty())
        })?;
        Ok(collected)
    }
}

impl Sweep<'_> {
    fn jobs(&mut self, tell: &mut Tell<'_>, swept: &mut SweptRuns) -> Result<()> {
        let mut from = index::ended_of(self.name);
        while swept.rows < self.rows_max {
            let Some((key, found)) = self.runs.read(|view| self.find(view, &from))? else { return Ok(()) };
            from = [&key[..], &[0]].concat().into();
            if let Some((job, why)) = found {
                self.job(&job, why, tell, swept)?;
            }
        }
        Ok(())
    }

    /// The first run from this key on that is not kept, and its job if that has ended.
    #[expect(clippy::type_complexity, reason = "a key, and what may be found under it")]
    fn find(&self, view: &View<'_>, from: &[u8]) -> Result<Option<(Bytes, Option<(Job, Passed)>)>> {
        let prefix = index::ended_of(self.name);
        let until = prefix_end(&prefix);
        let range = KeyRange { from, until: until.as_deref() };
        let left = view.count(&RUN_INDEX, range)?;
        let mut scan = view.rows(&RUN_INDEX, range)?;
        let Some((key, _)) = scan.next()? else { return Ok(None) };
        let id = index::last_run(key)?;
        let Some(run) = make::find_run(view, id)? else { return Ok(Some((key.into(), None))) };
        let ended = run.ended.unwrap_or(self.now);
        let Some(why) = passed(&self.class.keep, self.now, ended, left, self.over) else { return Ok(None) };
        let job = make::find_job(view, &run.job)?.filter(|job| job.outcome.is_some());
        Ok(Some((key.into(), job.map(|job| (job, why)))))
    }

    /// Removes a job, some rows at a time.
    fn job(&mut self, job: &Job, why: Passed, tell: &mut Tell<'_>, swept: &mut SweptRuns) -> Result<()> {
        let runs = self.runs.read(|view| attempts(view, &job.id))?;
        tell(&Removal::Job { class: self.name, job, runs: &runs, why })?;
        loop {
            let doomed = self.runs.read(|view| doomed_rows(view, job))?;
            let is_last = doomed.len() <= COMMIT_ROWS_MAX;
            let key = job.id.as_str().as_bytes();
            let done = self.runs.shared().commit_until(|rows| {
                // Somebody may have retried it meanwhile.
                let found = rows.get(&JOBS, key)?;
                let is_ended = match found.as_deref() {
                    Some(row) => Job::decode(job.id.clone(), row)?.outcome.is_some(),
                    None => false,
                };
                if !is_ended {
                    return Ok(None);
                }
                let mut change = Change::default();
                change.expect(JOBS, key, Seen::of(found.as_deref()));
                for (table, key) in doomed.iter().take(COMMIT_ROWS_MAX) {
                    change.remove(table.clone(), key.clone());
                }
                Ok(Some((change, ())))
            })?;
            if done.is_none() {
                return Ok(());
            }
            swept.rows += doomed.len().min(COMMIT_ROWS_MAX) as u64;
            if is_last {
                break;
            }
        }
        let bytes = runs.iter().map(|run| run.bytes).sum();
        self.over = self.over.saturating_sub(bytes);
        swept.jobs += 1;
        swept.runs += runs.len() as u64;
        swept.events += runs.iter().map(|run| run.events).sum::<u64>();
        swept.bytes += bytes;
        Ok(())
    }

    /// Removes dead letters of the worker that drives the class.
    fn letters(&self, tell: &mut Tell<'_>, swept: &mut SweptRuns) -> Result<()> {
        while swept.rows < self.rows_max {
            let doomed = self.runs.read(|view| self.find_letters(view))?;
            if doomed.is_empty() {
                return Ok(());
            }
            for (key, letter, why) in &doomed {
                tell(&Removal::DeadLetter { class: self.name, key: *key, letter, why: *why })?;
            }
            let removed = self.runs.shared().commit_until(|rows| {
                let mut change = Change::default();
                let mut removed = 0;
                for (key, ..) in &doomed {
                    let key = InboxKey::encode(*key);
                    // Somebody may have sent it again meanwhile.
                    if rows.get(&DEAD_LETTER, &key)?.is_some() {
                        change.expect(DEAD_LETTER, &key[..], Seen::Present);
                        change.remove(DEAD_LETTER, &key[..]);
                        removed += 1;
                    }
                }
                Ok((removed > 0).then_some((change, removed)))
            })?;
            let removed = removed.map_or(0, |(_, removed)| removed);
            swept.dead_letters += removed;
            swept.rows += removed;
        }
        Ok(())
    }

    /// The oldest letters that are not kept, as many as one commit removes.
    fn find_letters(&self, view: &View<'_>) -> Result<Vec<(InboxKey, DeadLetter, Passed)>> {
        let (from, until) = inbox_range(self.class.worker);
        let range = KeyRange { from: &from, until: until.as_deref() };
        let mut left = view.count(&DEAD_LETTER, range)?;
        let mut over = match self.class.keep.bytes {
            Some(most) => letter_bytes(view, self.class.worker)?.saturating_sub(most),
            None => 0,
        };
        let mut scan = view.rows(&DEAD_LETTER, range)?;
        let mut found = Vec::new();
        while found.len() < COMMIT_ROWS_MAX {
            let Some((key, row)) = scan.next()? else { break };
            let letter = DeadLetter::decode(&row)?;
            let Some(why) = passed(&self.class.keep, self.now, letter.failed_at, left, over) else { break };
            (left, over) = (left - 1, over.saturating_sub(row.len() as u64));
            found.push((inbox_key(key)?, letter, why));
        }
        Ok(found)
    }
}

/// Which limit something has passed that ended then, when there are so many from it on, with so many bytes too many.
fn passed(keep: &Keep, now: Timestamp, ended: Timestamp, left: u64, over: u64) -> Option<Passed> {
    let age = now.0.saturating_sub(ended.0);
    if keep.time.is_some_and(|time| u128::try_from(age).unwrap_or(0) >= time.as_millis()) {
        return Some(Passed::Time);
    }
    if keep.runs.is_some_and(|most| left > most) {
        return Some(Passed::Number);
    }
    (over > 0).then_some(Passed::Bytes)
}

/// How many bytes the ended runs of a class have beyond what is kept. Looks at one short row for each.
fn bytes_over(view: &View<'_>, class: &str, keep: &Keep) -> Result<u64> {
    let Some(most) = keep.bytes else { return Ok(0) };
    let prefix = index::ended_of(class);
    let until = prefix_end(&prefix);
    let mut scan = view.rows(&RUN_INDEX, KeyRange { from: &prefix, until: until.as_deref() })?;
    let mut bytes = 0_u64;
    while let Some((_, value)) = scan.next()? {
        let damaged = || Error::damaged("run_index", "the bytes of a run that has ended");
        bytes = bytes.saturating_add(u64::from_le_bytes(value[..].try_into().map_err(|_| damaged())?));
    }
    Ok(bytes.saturating_sub(most))
}

fn letter_bytes(view: &View<'_>, worker: WorkerId) -> Result<u64> {
    let (from, until) = inbox_range(worker);
    let mut scan = view.rows(&DEAD_LETTER, KeyRange { from: &from, until: until.as_deref() })?;
    let mut bytes = 0;
    while let Some((_, row)) = scan.next()? {
        bytes += row.len() as u64;
    }
    Ok(bytes)
}

/// The rows of a job, those first that others are found by last; a few more than a commit removes.
fn doomed_rows(view: &View<'_>, job: &Job) -> Result<Doomed> {
    let mut doomed = Doomed::new();
    let runs = attempts(view, &job.id)?;
    for run in &runs {
        add_events(view, run.id, &mut doomed)?;
        add_prefix(view, &STEPS, run.id.as_bytes(), &mut doomed)?;
    }
    add_prefix(view, &RUN_INDEX, &index::derived_of(job.first), &mut doomed)?;
    if doomed.len() > COMMIT_ROWS_MAX {
        return Ok(doomed);
    }
    for run in &runs {
        add_run(run, &mut doomed);
    }
    doomed.extend(job.unique.map(|key| (RUN_INDEX, index::unique_key(&key))));
    doomed.push((JOBS, job.id.as_str().into()));
    Ok(doomed)
}

fn add_run(run: &Run, doomed: &mut Doomed) {
    let id = Bytes::from(run.id.as_bytes());
    doomed.push((INPUTS, id.clone()));
    doomed.push((RUNS, id));
    let mut index = |key| doomed.push((RUN_INDEX, key));
    index(index::attempt(&run.job, run.attempt()));
    index(index::refused(run.id));
    index(index::undecided(run.id));
    run.parent().into_iter().for_each(|parent| index(index::child(parent, run.id)));
    run.ended.into_iter().for_each(|ended| index(index::ended(&run.class, ended, run.id)));
}

fn attempts(view: &View<'_>, job: &JobId) -> Result<Vec<Run>> {
    let prefix = index::attempts(job);
    let until = prefix_end(&prefix);
    let mut scan = view.rows(&RUN_INDEX, KeyRange { from: &prefix, until: until.as_deref() })?;
    let mut runs = Vec::new();
    while let Some((_, value)) = scan.next()? {
        let id: RunId = index::run_value(&value)?;
        runs.extend(make::find_run(view, id)?);
    }
    Ok(runs)
}

/// Adds keys with a prefix, until there are more than a commit removes.
fn add_prefix(view: &View<'_>, table: &TableName, prefix: &[u8], doomed: &mut Doomed) -> Result<()> {
    let until = prefix_end(prefix);
    let mut scan = view.rows(table, KeyRange { from: prefix, until: until.as_deref() })?;
    while doomed.len() <= COMMIT_ROWS_MAX {
        let Some((key, _)) = scan.next()? else { break };
        doomed.push((table.clone(), key.into()));
    }
    Ok(())
}

/// Adds events, and what says which artifacts they name.
fn add_events(view: &View<'_>, run: RunId, doomed: &mut Doomed) -> Result<()> {
    let until = prefix_end(run.as_bytes());
    let mut scan = view.rows(&EVENTS, KeyRange { from: run.as_bytes(), until: until.as_deref() })?;
    while doomed.len() <= COMMIT_ROWS_MAX {
        let Some((key, row)) = scan.next()? else { break };
        if let Some((digest, _)) = event::artifact(&row) {
            doomed.push((RUN_INDEX, index::artifact(&digest, run)));
        }
        doomed.push((EVENTS, key.into()));
    }
    Ok(())
}
