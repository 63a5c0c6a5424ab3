//! Runs, looked at without a runtime.

use std::collections::BTreeSet;

use kauri_wire::RunId;

use super::class::{Class, ClassRow};
use super::event::{self, Stored};
use super::index;
use super::job::Job;
use super::make;
use super::row::Run;
use super::runs::{Lineage, lineage};
use super::share::{self, Removed};
use super::tree::{Tree, tree};
use crate::error::Result;
use crate::look::Look;
use crate::runtime::inbox_range;
use crate::schema::{INBOX, RUN_INDEX, RUNS};
use crate::substrate::{KeyRange, prefix_end};

impl Look<'_> {
    /// Up to `most` runs, oldest first, from this one on.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn runs(&self, from: Option<RunId>, most: usize) -> Result<Vec<Run>> {
        let from = from.map_or(Vec::new(), |from| from.as_bytes().to_vec());
        self.each(&RUNS, KeyRange::starting(&from), most, |key, row| Run::decode(index::last_run(key)?, row))
    }

    /// Up to `most` runs that come before this one, or of all, newest first.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn newest_runs(&self, before: Option<RunId>, most: usize) -> Result<Vec<Run>> {
        let until = before.map(|before| before.as_bytes().to_vec());
        let mut scan = self.view.as_rows().scan(&RUNS, KeyRange { from: &[], until: until.as_deref() })?;
        let mut found = Vec::new();
        while found.len() < most {
            let Some((key, row)) = scan.previous()? else { break };
            found.push(Run::decode(index::last_run(&key)?, &row)?);
        }
        Ok(found)
    }

    /// The classes by name, each with how many messages are in the inbox of its worker, those of runs that are under way included, together with
    /// how many runs are held back because it is paused, and whether it is.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn classes(&self) -> Result<Vec<(String, Class, u64, bool)>> {
        let until = prefix_end(index::CLASSES);
        let range = KeyRange { from: index::CLASSES, until: until.as_deref() };
        self.each(&RUN_INDEX, range, usize::MAX, |key, row| {
            let ClassRow { class, is_paused } = ClassRow::decode(row)?;
            let (from, until) = inbox_range(class.worker);
            let messages = self.view.as_rows().count(&INBOX, KeyRange { from: &from, until: until.as_deref() })?;
            let name = String::from_utf8_lossy(&key[index::CLASSES.len()..]).into_owned();
            // The message of a run that is held back is gone: another is sent when the class is resumed.
            let held_back = make::count_marked(&self.view, &index::paused_of(&name))?;
            Ok((name, class, messages + held_back, is_paused))
        })
    }

    /// A run as it stands.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or the row is damaged.
    pub fn run(&self, id: RunId) -> Result<Run> {
        super::step::counted(&self.view, make::run(&self.view, id)?)
    }

    /// The job that a run belongs to.
    ///
    /// # Errors
    /// `NoJob`, or if the substrate fails or the row is damaged.
    pub fn job_of(&self, run: &Run) -> Result<Job> {
        make::job(&self.view, &run.job)
    }

    /// A run with those before and after it.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or a row is damaged.
    pub fn lineage(&self, id: RunId) -> Result<Lineage> {
        lineage(&self.view, id)
    }

    /// A run with everything under it, and what the outcome of the whole depends on.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails or a row is damaged.
    pub fn tree(&self, root: RunId) -> Result<Tree> {
        tree(&self.view, root)
    }

    /// Up to `most` events of a run, from this number on; none if they are kept no longer, as [`removed`](Self::removed) tells.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn events(&self, run: RunId, from: u64, most: usize) -> Result<Vec<Stored>> {
        if share::removed(&self.view, run)?.events {
            return Ok(Vec::new());
        }
        event::read(&self.view, run, from, most)
    }

    /// What of a run is kept no longer.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn removed(&self, run: RunId) -> Result<Removed> {
        share::removed(&self.view, run)
    }

    /// Up to `most` runs that somebody drives, or died driving, and for each whether a lease of this incarnation is on the message that
    /// drives it. Without one nobody goes on with the run until a runtime is started.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn running(&self, most: usize) -> Result<Vec<(Run, bool)>> {
        let incarnation = self.incarnation()?;
        let mut held = BTreeSet::new();
        for row in self.leases(usize::MAX)?.into_iter().filter(|row| row.lease.incarnation == incarnation) {
            held.extend(row.messages.iter().map(|seq| (row.key.worker, seq.0)));
        }
        let until = prefix_end(index::RUNNING);
        let range = KeyRange { from: index::RUNNING, until: until.as_deref() };
        let ids = self.each(&RUN_INDEX, range, most, |key, _| index::last_run(key))?;
        let driven = |id: RunId| {
            let run = make::run(&self.view, id)?;
            let worker = make::class(&self.view, &run.class)?.class.worker;
            let is_held = held.contains(&(worker, run.message));
            Ok((run, is_held))
        };
        ids.into_iter().map(driven).collect()
    }
}
