//! Runs that have ended, by what they were and how they ended; and retrying all of them.

use kauri_wire::{RunId, Timestamp};

use super::index;
use super::make;
use super::outcome::Outcomes;
use super::row::Run;
use super::runs::Runs;
use crate::error::{Error, Result};
use crate::read::{Read, View};
use crate::schema::RUN_INDEX;
use crate::substrate::{KeyRange, prefix_end};

/// Which of the runs that have ended are meant.
///
/// ```
/// use kauri_runtime::run::{Filter, Outcome, Outcomes};
///
/// let crashed = Filter { outcomes: Outcomes::NONE.with(Outcome::ExecutorCrash), ..Filter::of("crawl") };
/// assert_eq!(crashed.tag, None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Runs of this class.
    pub class: Box<str>,
    /// That ended with one of these: script errors, crashes and time that was over.
    pub outcomes: Outcomes,
    /// Whose job has this tag: whatever its tags.
    pub tag: Option<Box<str>>,
    /// That ended at this moment or later: whenever.
    pub since: Option<Timestamp>,
    /// That ended before this moment: whenever.
    pub before: Option<Timestamp>,
}

impl Filter {
    /// All failed runs of a class that may pass next time.
    pub fn of(class: impl Into<Box<str>>) -> Self {
        Self { class: class.into(), outcomes: Outcomes::PASSING, tag: None, since: None, before: None }
    }
}

impl Runs {
    /// Up to `most` runs that have ended as the filter says, in the order in which they ended.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn find(&self, filter: &Filter, most: usize) -> Result<Vec<Run>> {
        self.read(|view| find(view, filter, most))
    }

    /// Retries up to `most` of the runs that the filter means: from this step on, if one is named, and with another input, if one is given.
    /// Those that cannot be retried, because another run has followed or there is no such step, are left out. Answers the new runs.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged. Those retried before are retried.
    pub fn retry_all(
        &self,
        filter: &Filter,
        step: Option<&str>,
        input: Option<&[u8]>,
        most: usize,
    ) -> Result<Vec<Run>> {
        let found: Vec<RunId> = self.find(filter, usize::MAX)?.iter().map(|run| run.id).collect();
        let mut made = Vec::new();
        for run in found {
            if made.len() >= most {
                break;
            }
            let retried = match step {
                Some(step) => self.retry_from(run, step, input),
                None => self.retry_with(run, input),
            };
            match retried {
                Ok(run) => made.push(run),
                Err(Error::Run(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(made)
    }
}

fn find(view: &View<'_>, filter: &Filter, most: usize) -> Result<Vec<Run>> {
    let prefix = index::ended_of(&filter.class);
    let at = |moment: Timestamp| [&prefix[..], &moment.0.max(0).to_be_bytes()].concat();
    let from = filter.since.map_or(prefix.to_vec(), at);
    let until = filter.before.map(at).or_else(|| prefix_end(&prefix));
    let mut found = Vec::new();
    if until.as_ref().is_some_and(|until| *until <= from) {
        return Ok(found);
    }
    let mut scan = view.rows(&RUN_INDEX, KeyRange { from: &from, until: until.as_deref() })?;
    while found.len() < most {
        let Some((key, _)) = scan.next()? else { break };
        let run = make::run(view, index::last_run(key)?)?;
        let is_meant = run.outcome().is_some_and(|outcome| filter.outcomes.contains(outcome));
        if is_meant && has_tag(view, &run, filter.tag.as_deref())? {
            found.push(run);
        }
    }
    Ok(found)
}

fn has_tag(view: &View<'_>, run: &Run, tag: Option<&str>) -> Result<bool> {
    let Some(tag) = tag else { return Ok(true) };
    Ok(make::job(view, &run.job)?.tags.iter().any(|found| **found == *tag))
}
