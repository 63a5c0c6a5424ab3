//! Retention: what has ended is kept for as long as its class says, and removed in small commits.
//!
//! A job goes as a whole, once it has ended: first the events and steps of its runs, in ranges, of which the store drops whole parts at once;
//! then its runs with what they are found by, then the job. Each commit removes at most so many rows, and each sweep too: what it, or a
//! crash, leaves of a job is swept next time: the first commit marks the job as leaving, and the last removes the mark with its row. A job
//! that is leaving cannot be retried. Bytes of artifacts go when no event names them any more: see [`Runs::collector`].
//!
//! How old a job is, its latest run says. One that others wait for stays until they know how it ended. One that others were derived from
//! stays until all of them have ended: they look at the first job of their tree when they ask for more, and are cancelled through those above
//! them. One through which a tree has failed stays as long as the first job of that tree, if every job of it counts: what became of a tree is
//! the same as long as somebody can ask.
//!
//! Whoever is to know what is removed is told before any of it is: see [`Runs::sweep_telling`]. So an audit may name something that a crash
//! kept whole, and that is named again; it never misses something that is gone.

use std::collections::BTreeMap;
use std::fmt;

use kauri_wire::{InboxKey, Key, RunId, Timestamp, WorkerId};

use super::artifact::Digest;
use super::class::{Class, Exit, Keep, Limits};
use super::event;
use super::files::{Files, KeptFile};
use super::ids;
use super::index::{self, Weight};
use super::job::Job;
use super::make;
use super::row::Run;
use super::runs::Runs;
use super::share::Share;
use super::step;
use super::unique;
use crate::dead_letter::DeadLetter;
use crate::error::Result;
use crate::metrics::Counter;
use crate::observe::Observation;
use crate::read::{Read, View};
use crate::runtime::{inbox_key, inbox_range};
use crate::schema::{DEAD_LETTER, EVENTS, INPUTS, JOBS, RUN_INDEX, RUNS, STEPS};
use crate::substrate::{Bytes, Change, KeyRange, Seen, TableName, prefix_end};

/// The most rows that one commit cuts out in ranges: few pages are touched for them, and some hundreds are given back.
pub(super) const CUT_ROWS_MAX: u64 = 16_384;
/// The most runs whose rows one commit removes one by one, and the most dead letters.
const COMMIT_RUNS_MAX: usize = 64;
pub(super) const COMMIT_LETTERS_MAX: usize = 512;

/// What a sweep removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SweptRuns {
    /// Jobs that are gone.
    pub jobs: u64,
    /// Runs that are gone with them.
    pub runs: u64,
    /// Events that are gone, with their runs or before them.
    pub events: u64,
    /// Artifacts that runs named, and that are gone with these or before them.
    pub artifacts: u64,
    /// Bytes that all those had, artifacts included.
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
    /// The events of a run, which is kept itself.
    Events {
        /// Its class.
        class: &'a str,
        /// The run.
        run: &'a Run,
        /// Why they go.
        why: Passed,
    },
    /// The artifacts of a run, which is kept itself, and the files beside it.
    Artifacts {
        /// Its class.
        class: &'a str,
        /// The run.
        run: &'a Run,
        /// Why they go.
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
    /// A file beside a run that is gone, or whose artifacts are.
    File {
        /// The run.
        run: RunId,
        /// Its name on the disk.
        name: &'a str,
        /// The file; nothing if what is said of it there is damaged.
        file: Option<&'a KeptFile>,
    },
    /// The bytes of an artifact that nothing names any more.
    Artifact {
        /// What they are called.
        digest: Digest,
        /// How many they are.
        size_bytes: u64,
    },
}

pub(super) type Tell<'a> = dyn FnMut(&Removal<'_>) -> Result<()> + 'a;

/// One class being swept.
pub(super) struct Sweep<'a> {
    pub(super) runs: &'a Runs,
    pub(super) files: Option<&'a Files>,
    /// How many bytes runs have in files.
    pub(super) beside: &'a BTreeMap<RunId, u64>,
    pub(super) name: &'a str,
    pub(super) class: &'a Class,
    pub(super) now: Timestamp,
    pub(super) rows_max: u64,
    /// How many bytes there are too many.
    over: u64,
    /// How many runs cannot go yet, of those that were looked at.
    held: u64,
}

/// What there is to do about a run that has ended.
enum Found {
    /// Its job goes.
    Job(Box<Job>, Passed),
    /// It goes with a later run of its job, if that is not kept.
    Attempt,
    /// It cannot go yet, nor so many runs of its job.
    Held(u64),
    /// It stays, and so does all that ended later.
    Kept,
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
    pub fn sweep_telling(&self, rows_max: usize, tell: impl FnMut(&Removal<'_>) -> Result<()>) -> Result<SweptRuns> {
        self.sweep_all(None, rows_max, tell)
    }

    /// As [`sweep_telling`](Self::sweep_telling), where files are kept beside runs: their bytes count, as far as they were put or
    /// [collected](Self::collector) since the program began.
    ///
    /// # Errors
    /// As for `sweep_telling`.
    pub fn sweep_beside(
        &self,
        files: &Files,
        rows_max: usize,
        tell: impl FnMut(&Removal<'_>) -> Result<()>,
    ) -> Result<SweptRuns> {
        self.sweep_all(Some(files), rows_max, tell)
    }

    fn sweep_all(
        &self,
        files: Option<&Files>,
        rows_max: usize,
        mut tell: impl FnMut(&Removal<'_>) -> Result<()>,
    ) -> Result<SweptRuns> {
        let (now, rows_max) = (self.runtime().now().wall, rows_max as u64);
        let beside = files.map(Files::bytes_by_run).unwrap_or_default();
        let mut swept = SweptRuns { rows: self.free_keys(now, rows_max)?, ..SweptRuns::default() };
        let done = self.classes()?.iter().try_for_each(|name| {
            let Some((class, _)) = self.class(name)? else { return Ok(()) };
            let beside = &beside;
            let mut sweep = Sweep { runs: self, files, beside, name, class: &class, now, rows_max, over: 0, held: 0 };
            sweep.class(&mut tell, &mut swept)
        });
        let shared = self.shared();
        shared.metrics.add(Counter::JobsSwept, swept.jobs);
        shared.metrics.add(Counter::EventsSwept, swept.events);
        shared.metrics.add(Counter::ArtifactsSwept, swept.artifacts);
        shared.metrics.add(Counter::LettersSwept, swept.dead_letters);
        if swept.rows > 0 {
            shared.observe(&Observation::RunsSwept { swept: &swept });
        }
        done.map(|()| swept)
    }
}

impl Sweep<'_> {
    fn class(&mut self, tell: &mut Tell<'_>, swept: &mut SweptRuns) -> Result<()> {
        if swept.rows >= self.rows_max {
            return Ok(());
        }
        self.leaving(swept)?;
        // What is gone of runs before they go does not count for their bytes.
        self.shares(Share::Events, tell, swept)?;
        self.shares(Share::Artifacts, tell, swept)?;
        if self.class.keep == Keep::default() {
            return Ok(());
        }
        self.over = self.runs.read(|view| self.bytes_over(view))?;
        self.jobs(tell, swept)?;
        self.letters(tell, swept)
    }

    /// How many bytes a run has in files.
    pub(super) fn bytes_beside(&self, run: RunId) -> u64 {
        self.beside.get(&run).copied().unwrap_or(0)
    }

    /// How many bytes the ended runs of the class have beyond what is kept. Looks at one short row for each.
    fn bytes_over(&self, view: &View<'_>) -> Result<u64> {
        let Some(most) = self.class.keep.bytes else { return Ok(0) };
        let prefix = index::ended_of(self.name);
        let until = prefix_end(&prefix);
        let mut scan = view.rows(&RUN_INDEX, KeyRange { from: &prefix, until: until.as_deref() })?;
        let mut bytes = 0_u64;
        while let Some((key, value)) = scan.next()? {
            let beside = self.bytes_beside(index::last_run(key)?);
            bytes = bytes.saturating_add(Weight::decode(&value)?.bytes).saturating_add(beside);
        }
        Ok(bytes.saturating_sub(most))
    }

    /// Removes what an earlier sweep has left of jobs: looks at each once, whatever comes of it.
    fn leaving(&mut self, swept: &mut SweptRuns) -> Result<()> {
        let prefix = index::leaving_of(self.name);
        let until = prefix_end(&prefix);
        let mut from = prefix.clone();
        while swept.rows < self.rows_max {
            let range = KeyRange { from: &from, until: until.as_deref() };
            let next = |view: &View<'_>| Ok(view.rows(&RUN_INDEX, range)?.next()?.map(|(key, _)| Bytes::from(key)));
            let Some(key) = self.runs.read(next)? else { return Ok(()) };
            let job = self.runs.read(|view| make::find_job(view, &index::leaving_job(&key, &prefix)?))?;
            job.iter().try_for_each(|job| self.parts(job, swept))?;
            from = [&key[..], &[0]].concat().into();
        }
        Ok(())
    }

    fn jobs(&mut self, tell: &mut Tell<'_>, swept: &mut SweptRuns) -> Result<()> {
        let mut from = index::ended_of(self.name);
        while swept.rows < self.rows_max {
            let Some((key, found)) = self.runs.read(|view| self.find(view, &from))? else { return Ok(()) };
            from = [&key[..], &[0]].concat().into();
            match found {
                Found::Job(job, why) => {
                    let runs = self.runs.read(|view| make::attempts(view, &job))?;
                    tell(&Removal::Job { class: self.name, job: &job, runs: &runs, why })?;
                    self.parts(&job, swept)?;
                }
                Found::Attempt => {}
                Found::Held(runs) => self.held += runs,
                Found::Kept => return Ok(()),
            }
        }
        Ok(())
    }

    /// The first run from this key on, and what there is to do about it.
    fn find(&self, view: &View<'_>, from: &[u8]) -> Result<Option<(Bytes, Found)>> {
        let prefix = index::ended_of(self.name);
        let until = prefix_end(&prefix);
        let left = view.count(&RUN_INDEX, KeyRange { from: &prefix, until: until.as_deref() })?;
        let mut scan = view.rows(&RUN_INDEX, KeyRange { from, until: until.as_deref() })?;
        let Some((key, _)) = scan.next()? else { return Ok(None) };
        let found = match make::find_run(view, index::last_run(key)?)? {
            Some(run) => self.look_at(view, &run, left.saturating_sub(self.held))?,
            None => Found::Held(1),
        };
        Ok(Some((key.into(), found)))
    }

    /// What there is to do about a run that has ended, when there are so many that can go.
    fn look_at(&self, view: &View<'_>, run: &Run, left: u64) -> Result<Found> {
        let limits = self.class.keep.of_runs();
        let ended = run.ended.unwrap_or(self.now);
        let Some(why) = passed(&limits, self.now, ended, left, self.over) else { return Ok(Found::Kept) };
        let Some(job) = make::find_job(view, &run.job)?.filter(|job| job.outcome.is_some()) else {
            return Ok(Found::Held(1));
        };
        if job.latest != run.id {
            return Ok(Found::Attempt);
        }
        let runs = u64::from(job.attempts);
        if is_needed(view, &job, run)? {
            return Ok(Found::Held(runs));
        }
        // A job is not too many for the number of its own runs: as many as are kept must be left without it.
        let is_many = limits.count.is_some_and(|most| left.saturating_sub(runs) >= most);
        let why = match why {
            Passed::Number if is_many => Passed::Number,
            Passed::Number if self.over > 0 => Passed::Bytes,
            Passed::Number => return Ok(Found::Kept),
            Passed::Time | Passed::Bytes => why,
        };
        Ok(Found::Job(Box::new(job), why))
    }

    /// Removes a job, part by part, until it is gone or enough was removed.
    fn parts(&mut self, job: &Job, swept: &mut SweptRuns) -> Result<()> {
        while swept.rows < self.rows_max {
            let most = (self.rows_max - swept.rows).min(CUT_ROWS_MAX);
            let part = self.runs.read(|view| Part::of(view, job, most, self.beside))?;
            let Some(rows) = self.remove(job, &part)? else { return Ok(()) };
            self.over = self.over.saturating_sub(part.bytes);
            swept.rows += rows;
            swept.events += part.events;
            swept.artifacts += part.artifacts;
            swept.runs += part.gone.len() as u64;
            swept.bytes += part.bytes;
            if part.is_last {
                swept.jobs += 1;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Commits that a part of a job is gone: how many rows it had. Nothing if somebody has retried the job meanwhile.
    fn remove(&self, job: &Job, part: &Part) -> Result<Option<u64>> {
        let key = job.id.as_str().as_bytes();
        let removed = self.runs.shared().commit_until(|rows| {
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
            for (table, from, until) in &part.ranges {
                change.cut(table.clone(), KeyRange { from, until: until.as_deref() });
            }
            // From the first part to the last nobody can retry the job: what is left of it does not fit together.
            let leaving = index::leaving(&job.class, &job.id);
            match part.is_last {
                false => change.put(RUN_INDEX, leaving, Bytes::default()),
                true => change.remove(RUN_INDEX, leaving),
            }
            let mut single = 0;
            for (table, key) in &part.rows {
                if rows.get(table, key)?.is_some() {
                    change.remove(table.clone(), key.clone());
                    single += 1;
                }
            }
            ids::leave(&mut change, rows, &part.gone)?;
            if part.is_last {
                single += unique::leave(&mut change, rows, job, self.now)?;
            }
            Ok(Some((change, single)))
        })?;
        Ok(removed.map(|(committed, single)| committed.removed + single))
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
        let limits = self.class.keep.of_letters();
        let mut over = match limits.bytes {
            Some(most) => letter_bytes(view, self.class.worker)?.saturating_sub(most),
            None => 0,
        };
        let mut scan = view.rows(&DEAD_LETTER, range)?;
        let mut found = Vec::new();
        while found.len() < COMMIT_LETTERS_MAX {
            let Some((key, row)) = scan.next()? else { break };
            let letter = DeadLetter::decode(&row)?;
            let Some(why) = passed(&limits, self.now, letter.failed_at, left, over) else { break };
            (left, over) = (left - 1, over.saturating_sub(row.len() as u64));
            found.push((inbox_key(key)?, letter, why));
        }
        Ok(found)
    }
}

/// Which limit something has passed that ended then, when there are so many from it on, with so many bytes too many.
pub(super) fn passed(limits: &Limits, now: Timestamp, ended: Timestamp, left: u64, over: u64) -> Option<Passed> {
    let age = now.0.saturating_sub(ended.0);
    if limits.time.is_some_and(|time| u128::try_from(age).unwrap_or(0) >= time.as_millis()) {
        return Some(Passed::Time);
    }
    if limits.count.is_some_and(|most| left > most) {
        return Some(Passed::Number);
    }
    (over > 0).then_some(Passed::Bytes)
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

/// What one commit removes of a job.
#[derive(Default)]
struct Part {
    /// Ranges of rows.
    ranges: Vec<(TableName, Bytes, Option<Bytes>)>,
    /// Rows one by one, some of which may not be there.
    rows: Vec<(TableName, Bytes)>,
    /// How many rows are in the ranges, and how many of them are events.
    cut: u64,
    events: u64,
    /// How many artifacts are named no longer.
    artifacts: u64,
    /// The runs that are gone with it, and how many bytes they had.
    gone: Vec<RunId>,
    bytes: u64,
    /// Nothing is left after it.
    is_last: bool,
}

impl Part {
    /// The next part of a job, with ranges of at most so many rows. What others are found by goes last.
    fn of(view: &View<'_>, job: &Job, most: u64, beside: &BTreeMap<RunId, u64>) -> Result<Self> {
        let runs = make::attempts(view, job)?;
        let mut part = Self::default();
        for run in &runs {
            part.events +=
                part.add_numbered(view, EVENTS, run.id, most, |first| event::event_key(run.id, first).into())?;
            part.add_numbered(view, STEPS, run.id, most, |first| {
                step::step_key(run.id, u32::try_from(first).unwrap_or(u32::MAX)).into()
            })?;
            for key in part.add_marks(view, &index::artifacts_of(run.id), most)? {
                part.rows.push((RUN_INDEX, index::artifact_in(&key, run.id)?));
                part.artifacts += 1;
            }
        }
        for marks in [index::derived_of(job.first), index::waiters(&job.id), index::all_told(&job.id)] {
            part.add_marks(view, &marks, most)?;
        }
        if part.cut < most {
            part.add_ends(view, job, &runs, beside)?;
        }
        Ok(part)
    }

    /// Adds rows of a run that are numbered, and answers how many. `key` is that of a number.
    fn add_numbered(
        &mut self,
        view: &View<'_>,
        table: TableName,
        run: RunId,
        most: u64,
        key: impl Fn(u64) -> Bytes,
    ) -> Result<u64> {
        let end = prefix_end(run.as_bytes());
        let whole = KeyRange { from: run.as_bytes(), until: end.as_deref() };
        let (rows, room) = (view.count(&table, whole)?, most.saturating_sub(self.cut));
        if rows == 0 || room == 0 {
            return Ok(0);
        }
        let until = match rows <= room {
            true => end.map(Bytes::from),
            // Numbers follow each other without a gap: so that of the first tells which key is so far from it.
            false => {
                let mut scan = view.rows(&table, whole)?;
                let first = scan.next()?.map_or(0, |(key, _)| number_in(key));
                Some(key(first.saturating_add(room)))
            }
        };
        let rows = rows.min(room);
        self.ranges.push((table, run.as_bytes().into(), until));
        self.cut += rows;
        Ok(rows)
    }

    /// Adds marks with a prefix, and answers their keys.
    fn add_marks(&mut self, view: &View<'_>, prefix: &[u8], most: u64) -> Result<Vec<Vec<u8>>> {
        let room = usize::try_from(most.saturating_sub(self.cut)).unwrap_or(usize::MAX);
        let keys = make::marked(view, prefix, room)?;
        if let Some(last) = keys.last() {
            // If these are all, those go too that somebody puts beside them before this is committed.
            let until = if keys.len() < room { prefix_end(prefix) } else { Some([&last[..], &[0]].concat()) };
            self.ranges.push((RUN_INDEX, prefix.into(), until.map(Bytes::from)));
            self.cut += keys.len() as u64;
        }
        Ok(keys)
    }

    /// Adds what runs are found by, whole runs only; and the job with the last of them, so that what is left is found.
    fn add_ends(&mut self, view: &View<'_>, job: &Job, runs: &[Run], beside: &BTreeMap<RunId, u64>) -> Result<()> {
        self.is_last = runs.len() <= COMMIT_RUNS_MAX;
        // The last attempt goes with the job.
        for run in runs.iter().take(COMMIT_RUNS_MAX) {
            self.gone.push(run.id);
            let beside = beside.get(&run.id).copied().unwrap_or(0);
            self.bytes = self.bytes.saturating_add(weight(view, run)?.bytes).saturating_add(beside);
            add_run(run, &mut self.rows);
        }
        if self.is_last {
            self.rows.push((JOBS, job.id.as_str().into()));
        }
        Ok(())
    }
}

/// The number that the key of an event or a step ends with.
fn number_in(key: &[u8]) -> u64 {
    let number = key.get(RunId::BYTES..).unwrap_or_default();
    number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Whether a job, whose latest run this is, cannot go although it is not kept.
fn is_needed(view: &View<'_>, job: &Job, latest: &Run) -> Result<bool> {
    Ok(is_awaited(view, job)? || is_open_below(view, job, latest)? || has_failed_tree(view, job, latest)?)
}

/// Whether a run that waits for a job has yet to hear how it ended.
fn is_awaited(view: &View<'_>, job: &Job) -> Result<bool> {
    if make::count_marked(view, &index::waiters(&job.id))? > 0 {
        return Ok(true);
    }
    for key in make::marked(view, &index::all_told(&job.id), usize::MAX)? {
        // Those that have ended meanwhile wait for nothing.
        if make::find_run(view, index::last_run(&key)?)?.is_some_and(|run| run.outcome().is_none()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a tree in which every job counts has failed through this one, whose latest run this is, or through one under it: what became of
/// the tree is seen by going down through its jobs, and without these it would be a success.
fn has_failed_tree(view: &View<'_>, job: &Job, latest: &Run) -> Result<bool> {
    if latest.root == job.first {
        return Ok(false);
    }
    let Some(root) = make::find_run(view, latest.root)? else { return Ok(false) };
    let exit = make::find_class(view, &root.class)?.map(|found| found.class.fan_out.exit);
    Ok(exit == Some(Exit::All) && (has_failed(job) || is_some_under(view, job.first, |run| is_failure(view, run))?))
}

fn has_failed(job: &Job) -> bool {
    job.outcome.is_some_and(|outcome| !outcome.is_success())
}

/// Whether a run failed and none that followed it did better.
fn is_failure(view: &View<'_>, run: &Run) -> Result<bool> {
    if run.outcome().is_none_or(|outcome| outcome.is_success()) {
        return Ok(false);
    }
    Ok(make::find_job(view, &run.job)?.is_some_and(|job| has_failed(&job)))
}

/// Whether work that was derived from a job, whose latest run this is, has not ended.
fn is_open_below(view: &View<'_>, job: &Job, latest: &Run) -> Result<bool> {
    match latest.root == job.first {
        true => is_open_in_tree(view, job.first),
        false => is_some_under(view, job.first, |run| Ok(run.outcome().is_none())),
    }
}

/// The same of a tree as a whole. All derived work of it has a mark, whatever is gone of those between.
fn is_open_in_tree(view: &View<'_>, root: RunId) -> Result<bool> {
    let prefix = index::derived_of(root);
    let until = prefix_end(&prefix);
    let mut scan = view.rows(&RUN_INDEX, KeyRange { from: &prefix, until: until.as_deref() })?;
    while let Some((_, first)) = scan.next()? {
        let Some(run) = make::find_run(view, index::run_value(&first)?)? else { continue };
        let is_open = match run.outcome() {
            None => true,
            Some(outcome) if outcome.is_success() => false,
            // Perhaps another has followed it.
            Some(_) => make::find_job(view, &run.job)?.is_some_and(|job| job.outcome.is_none()),
        };
        if is_open {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether this is so of a run that is under another, retries included.
fn is_some_under(view: &View<'_>, run: RunId, is_so: impl Fn(&Run) -> Result<bool>) -> Result<bool> {
    let mut above = vec![run];
    while let Some(run) = above.pop() {
        for key in make::marked(view, &index::children(run), usize::MAX)? {
            let Some(run) = make::find_run(view, index::last_run(&key)?)? else { continue };
            if is_so(&run)? {
                return Ok(true);
            }
            above.push(run.id);
        }
    }
    Ok(false)
}

/// What a run weighs that has ended: less than its row says, if a share of it is gone.
pub(super) fn weight(view: &View<'_>, run: &Run) -> Result<Weight> {
    let key = run.ended.map(|ended| index::ended(&run.class, ended, run.id));
    let found = key.map(|key| view.row(&RUN_INDEX, &key)).transpose()?.flatten();
    found.map_or(Ok(Weight::of(run)), |value| Weight::decode(&value))
}

fn add_run(run: &Run, rows: &mut Vec<(TableName, Bytes)>) {
    let id = Bytes::from(run.id.as_bytes());
    rows.push((INPUTS, id.clone()));
    rows.push((RUNS, id));
    let mut index = |key| rows.push((RUN_INDEX, key));
    index(index::attempt(&run.job, run.attempt()));
    index(index::refused(run.id));
    index(index::report(run.id));
    index(index::removed(run.id));
    for share in [Share::Events, Share::Artifacts] {
        index(index::share_underway(&run.class, share.bit(), run.id));
    }
    run.parent().into_iter().for_each(|parent| index(index::child(parent, run.id)));
    run.ended.into_iter().for_each(|ended| index(index::ended(&run.class, ended, run.id)));
}
