//! Retention: what has ended is kept for as long as its class says, and removed in small commits.
//!
//! A job goes as a whole, once it has ended: its runs with their events, steps and inputs, then what they are found by, then the job. Each
//! commit removes at most so many rows; what a crash leaves of a job is swept next time, because its row goes last.

use kauri_wire::{JobId, RunId, Timestamp};

use super::class::Keep;
use super::index;
use super::job::Job;
use super::make;
use super::row::Run;
use super::runs::Runs;
use crate::error::Result;
use crate::observe::Observation;
use crate::read::{Read, View};
use crate::schema::{EVENTS, INPUTS, JOBS, RUN_INDEX, RUNS, STEPS};
use crate::substrate::{Bytes, Change, KeyRange, Seen, TableName, prefix_end};

/// The most rows that one commit removes.
const COMMIT_ROWS_MAX: usize = 512;

/// What a sweep removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SweptRuns {
    /// Jobs that are gone.
    pub jobs: u64,
    /// Rows that are gone, of all tables.
    pub rows: u64,
}

/// Rows to be removed.
type Doomed = Vec<(TableName, Bytes)>;

impl Runs {
    /// Removes what its class does not keep any more, up to about so many rows. Whoever calls it again until it removes nothing has removed
    /// everything.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn sweep(&self, rows_max: usize) -> Result<SweptRuns> {
        let now = self.runtime().now().wall;
        let mut swept = SweptRuns::default();
        for class in self.classes()? {
            let Some((found, _)) = self.class(&class)? else { continue };
            if found.keep != Keep::default() {
                self.sweep_class(&class, &found.keep, now, rows_max, &mut swept)?;
            }
        }
        if swept.rows > 0 {
            let rows = usize::try_from(swept.rows).unwrap_or(usize::MAX);
            self.shared().observe(&Observation::Swept { rows });
        }
        Ok(swept)
    }

    fn sweep_class(
        &self,
        class: &str,
        keep: &Keep,
        now: Timestamp,
        rows_max: usize,
        swept: &mut SweptRuns,
    ) -> Result<()> {
        let mut from = index::ended_of(class);
        while swept.rows < rows_max as u64 {
            let Some((key, job)) = self.read(|view| find_doomed(view, class, keep, now, &from))? else { return Ok(()) };
            from = [&key[..], &[0]].concat().into();
            if let Some(job) = job {
                self.sweep_job(&job, swept)?;
            }
        }
        Ok(())
    }

    /// Removes a job, some rows at a time.
    fn sweep_job(&self, job: &Job, swept: &mut SweptRuns) -> Result<()> {
        loop {
            let doomed = self.read(|view| doomed_rows(view, job))?;
            let is_last = doomed.len() <= COMMIT_ROWS_MAX;
            let rows = doomed.len().min(COMMIT_ROWS_MAX);
            let key = job.id.as_str().as_bytes();
            let done = self.shared().commit_until(|rows| {
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
            swept.rows += rows as u64;
            if is_last {
                swept.jobs += 1;
                return Ok(());
            }
        }
    }
}

/// The first run from this key on that is not kept, and its job if that has ended.
fn find_doomed(
    view: &View<'_>,
    class: &str,
    keep: &Keep,
    now: Timestamp,
    from: &[u8],
) -> Result<Option<(Bytes, Option<Job>)>> {
    let prefix = index::ended_of(class);
    let until = prefix_end(&prefix);
    let range = KeyRange { from, until: until.as_deref() };
    let left = view.count(&RUN_INDEX, range)?;
    let mut scan = view.rows(&RUN_INDEX, range)?;
    let Some((key, _)) = scan.next()? else { return Ok(None) };
    let id = index::last_run(key)?;
    let Some(run) = make::find_run(view, id)? else { return Ok(Some((key.into(), None))) };
    let age = now.0.saturating_sub(run.ended.unwrap_or(now).0);
    let is_old = keep.time.is_some_and(|time| u128::try_from(age).unwrap_or(0) >= time.as_millis());
    let is_many = keep.runs.is_some_and(|most| left > most);
    if !is_old && !is_many {
        return Ok(None);
    }
    let job = make::find_job(view, &run.job)?.filter(|job| job.outcome.is_some());
    Ok(Some((key.into(), job)))
}

/// The rows of a job, those first that others are found by last; a few more than a commit removes.
fn doomed_rows(view: &View<'_>, job: &Job) -> Result<Doomed> {
    let mut doomed = Doomed::new();
    let runs = attempts(view, &job.id)?;
    for run in &runs {
        for table in [EVENTS, STEPS] {
            add_prefix(view, &table, run.id.as_bytes(), &mut doomed)?;
        }
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
