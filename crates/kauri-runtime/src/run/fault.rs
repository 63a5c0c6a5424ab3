//! What is wrong with what was asked of runs and jobs.

use std::fmt;

use kauri_wire::{JobId, RunId};

/// Why something could not be done with a run or a job.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunFault {
    /// There is no such run.
    NoRun(RunId),
    /// There is no such job.
    NoJob(JobId),
    /// There is no such class.
    NoClass(Box<str>),
    /// A run with this id exists already.
    RunExists(RunId),
    /// A job with this id exists already.
    JobExists(JobId),
    /// The run has not ended, and only one that has can be retried.
    NotEnded(RunId),
    /// The run has ended, and cannot be told anything any more.
    Ended(RunId),
    /// The run succeeded: there is nothing to retry.
    Succeeded(RunId),
    /// Another run has followed this one already.
    Followed(RunId),
    /// The job is kept no longer, and a part of it is gone already: it cannot be retried.
    Leaving(JobId),
    /// The events of the run are kept no longer.
    EventsRemoved(RunId),
    /// The lineage of a run does not fit that of its parent.
    Lineage {
        /// The run.
        run: RunId,
        /// What was expected of it.
        expected: &'static str,
    },
    /// The run has no step of this name.
    NoStep {
        /// The name.
        name: Box<str>,
        /// The first of the steps that are recorded.
        recorded: Vec<Box<str>>,
        /// How many there are besides.
        more: usize,
    },
    /// A name or a key is longer than it may be, empty, or has a byte 0.
    Name {
        /// Of what.
        of: &'static str,
        /// The most bytes.
        most: usize,
        /// How many were found.
        found: usize,
    },
    /// An event cannot be kept: what is wrong with it.
    Event(Box<str>),
    /// Params of derived work that have no canonical form.
    Params(Box<str>),
}

impl fmt::Display for RunFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRun(run) => write!(f, "expected a run {run}, found none"),
            Self::NoJob(job) => write!(f, "expected a job {job}, found none"),
            Self::NoClass(class) => write!(f, "expected a class {class:?} that was defined, found none"),
            Self::RunExists(run) => write!(f, "expected a run id that was never used, found {run}, which was"),
            Self::JobExists(job) => write!(f, "expected a job id that was never used, found {job}, which was"),
            Self::NotEnded(run) => write!(f, "expected run {run} to have ended, found that it goes on"),
            Self::Ended(run) => write!(f, "expected run {run} to go on, found that it has ended"),
            Self::Succeeded(run) => write!(f, "expected run {run} to have failed, found that it succeeded"),
            Self::Followed(run) => write!(f, "expected run {run} to be the last of its job, found another after it"),
            Self::Leaving(job) => {
                write!(
                    f,
                    "expected job {job} to be kept, found that it is being removed because its class keeps it no longer"
                )
            }
            Self::EventsRemoved(run) => {
                write!(
                    f,
                    "expected the events of run {run}, found that they were removed because its class keeps them no longer"
                )
            }
            Self::Lineage { run, expected } => write!(f, "the lineage of run {run} is wrong: expected {expected}"),
            Self::NoStep { name, recorded, .. } if recorded.is_empty() => {
                write!(f, "expected a recorded step {name:?}, found that the run recorded none")
            }
            Self::NoStep { name, recorded, more } => {
                write!(f, "expected a recorded step {name:?}, found {recorded:?}")?;
                if *more > 0 { write!(f, " and {more} more") } else { Ok(()) }
            }
            Self::Name { of, most, found } => {
                write!(f, "expected {of} of 1 to {most} bytes without a byte 0, found {found}")
            }
            Self::Event(why) => write!(f, "the event cannot be kept: {why}"),
            Self::Params(why) => write!(f, "the params have no canonical form: {why}"),
        }
    }
}

impl std::error::Error for RunFault {}
