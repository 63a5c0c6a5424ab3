//! Jobs: what somebody asked for.
//!
//! ```text
//!  0      4          5            6          7             8              16              24            28
//!  | JOB0 | done u8  | outcome u8 | flags u8 | on_failed u8 | created i64  | deadline i64 | waiting u32 |
//! 28         44           60              64         80               84          100
//!  | first 16 | latest 16  | attempts u32  | gate 16  | gate limit u32 | unique 16 |
//! 100
//!  | length u32, class | tags u32 | length u32, tag ... | jobs u32 | length u32, job id ... | at i64 |     little-endian
//! ```
//!
//! Flag 1 is urgent, 2 that a job it waits for failed, 4 that it stands before a gate or has passed it, 8 that it was submitted
//! with a key, whose place in the index is `unique`, 16 that it is not to begin before the moment `at`, which is there only then. The jobs
//! are those it waits for; waiting counts those that have not ended.

use std::time::Duration;

use kauri_wire::{JobId, RunId, Timestamp};

use super::codec::{Reader, Writer};
use super::index::Gate;
use super::outcome::Outcome;
use crate::error::{Error, Result};

const MAGIC: [u8; 4] = *b"JOB0";
const URGENT: u8 = 1;
const HURT: u8 = 2;
const GATED: u8 = 4;
const UNIQUE: u8 = 8;
const TIMED: u8 = 16;
/// What every row has: all but its texts.
const FIXED_BYTES: usize = 112;

/// What becomes of a job when one that it waits for fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnFailed {
    /// It fails too, with [`Outcome::PolicyFailure`], and is not run.
    #[default]
    Fail,
    /// It is skipped: a success that was not run.
    Skip,
    /// It is run as if the other had not failed.
    Continue,
}

/// A job as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// The job.
    pub id: JobId,
    /// What its runs run.
    pub class: Box<str>,
    /// How it ended, if it has: with the outcome of its last run.
    pub outcome: Option<Outcome>,
    /// When it was submitted.
    pub created: Timestamp,
    /// When it is no longer wanted.
    pub deadline: Option<Timestamp>,
    /// Its first run.
    pub first: RunId,
    /// Its latest run.
    pub latest: RunId,
    /// How many runs it has had.
    pub attempts: u32,
    /// Words to find it by.
    pub tags: Vec<Box<str>>,
    /// The jobs that it waits, or waited, for.
    pub after: Vec<JobId>,
    /// When its first run may begin, also if they have ended before.
    pub at: Option<Timestamp>,
    /// How many of them have not ended.
    pub waiting: u32,
    /// What becomes of it when one of them fails.
    pub on_failed: OnFailed,
    /// Whether its messages go before others.
    pub is_urgent: bool,
    /// Whether one of the jobs that it waits for failed.
    pub(super) is_hurt: bool,
    pub(super) gate: Option<(Gate, u32)>,
    /// Where its key is.
    pub(super) unique: Option<[u8; 16]>,
}

impl Job {
    pub(super) fn encode(&self) -> Vec<u8> {
        let flags = [(self.is_urgent, URGENT), (self.is_hurt, HURT), (self.gate.is_some(), GATED)]
            .into_iter()
            .chain([(self.unique.is_some(), UNIQUE), (self.at.is_some(), TIMED)]);
        let flags = flags.filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
        let (gate, limit) = self.gate.unwrap_or((Gate([0; 16]), 0));
        let listed = self.tags.iter().map(|tag| tag.len()).chain(self.after.iter().map(|job| job.as_str().len()));
        let bytes = FIXED_BYTES + self.class.len() + listed.map(|bytes| 4 + bytes).sum::<usize>();
        let bytes = bytes + self.at.map_or(0, |_| size_of::<i64>());
        let mut row = Writer::sized(MAGIC, bytes);
        row.byte(self.outcome.is_some().into()).byte(self.outcome.map_or(0, Outcome::code)).byte(flags);
        row.byte(self.on_failed as u8).moment(self.created).moment_some(self.deadline).short(self.waiting);
        row.run(self.first).run(self.latest).short(self.attempts).raw(&gate.0).short(limit);
        row.raw(&self.unique.unwrap_or_default());
        row.bytes(self.class.as_bytes()).short(count(self.tags.len()));
        for tag in &self.tags {
            row.bytes(tag.as_bytes());
        }
        row.short(count(self.after.len()));
        for job in &self.after {
            row.bytes(job.as_str().as_bytes());
        }
        if let Some(at) = self.at {
            row.moment(at);
        }
        row.finish()
    }

    pub(super) fn decode(id: JobId, bytes: &[u8]) -> Result<Self> {
        Self::read(id, bytes).ok_or(Error::damaged("jobs", "a job's row, which begins with JOB0"))
    }

    fn read(id: JobId, bytes: &[u8]) -> Option<Self> {
        let mut row = Reader::new(bytes, MAGIC)?;
        let outcome = match (row.byte()?, row.byte()?) {
            (0, 0) => None,
            (1, code) => Some(Outcome::from_code(code)?),
            _ => return None,
        };
        let flags = row.byte()?;
        let on_failed = match row.byte()? {
            0 => OnFailed::Fail,
            1 => OnFailed::Skip,
            2 => OnFailed::Continue,
            _ => return None,
        };
        let (created, deadline, waiting) = (row.moment()?, row.moment_some()?, row.short()?);
        let (first, latest, attempts) = (row.run()?, row.run()?, row.short()?);
        let (gate, limit) = (Gate(row.array()?), row.short()?);
        let unique = row.array()?;
        let class = row.text()?.into();
        let mut tags = Vec::new();
        for _ in 0..row.short()? {
            tags.push(row.text()?.into());
        }
        let mut after = Vec::new();
        for _ in 0..row.short()? {
            after.push(JobId::new(row.text()?).ok()?);
        }
        let at = if flags & TIMED != 0 { Some(row.moment()?) } else { None };
        row.end()?;
        Some(Self {
            id,
            class,
            outcome,
            created,
            deadline,
            first,
            latest,
            attempts,
            tags,
            after,
            at,
            waiting,
            on_failed,
            is_urgent: flags & URGENT != 0,
            is_hurt: flags & HURT != 0,
            gate: (flags & GATED != 0).then_some((gate, limit)),
            unique: (flags & UNIQUE != 0).then_some(unique),
        })
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).expect("checked against LIST_MAX when it was submitted")
}

/// The most tags, and the most jobs to wait for.
pub(super) const LIST_MAX: usize = 1000;

/// Work to be submitted: a class, an input, and wishes.
///
/// ```
/// use std::time::Duration;
/// use kauri_runtime::run::Submission;
///
/// let crawl = Submission::new("crawl", "https://example.org").once("page-1").tag("nightly").one_at_a_time("example.org");
/// # let _ = crawl;
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is nothing before it is submitted"]
pub struct Submission {
    pub(super) class: Box<str>,
    pub(super) input: Vec<u8>,
    pub(super) job: Option<JobId>,
    pub(super) run: Option<RunId>,
    /// A key, and for how long it is taken; for ever if nothing is said.
    pub(super) unique: Option<(Box<str>, Option<Duration>)>,
    pub(super) at: Option<Timestamp>,
    pub(super) is_urgent: bool,
    pub(super) gate: Option<(Gate, u32)>,
    pub(super) tags: Vec<Box<str>>,
    pub(super) deadline: Option<Timestamp>,
    pub(super) after: Vec<JobId>,
    pub(super) on_failed: OnFailed,
}

impl Submission {
    /// A job of this class with this input.
    pub fn new(class: impl Into<Box<str>>, input: impl Into<Vec<u8>>) -> Self {
        Self {
            class: class.into(),
            input: input.into(),
            job: None,
            run: None,
            unique: None,
            at: None,
            is_urgent: false,
            gate: None,
            tags: Vec::new(),
            deadline: None,
            after: Vec::new(),
            on_failed: OnFailed::Fail,
        }
    }

    /// Under this id, which no other job may have. Without it, one is made.
    pub fn job_id(mut self, job: JobId) -> Self {
        self.job = Some(job);
        self
    }

    /// With this id for its first run, which no run has or had. It is kept for ever, in about thirty bytes. Without it, one is made.
    pub fn run_id(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Only if no job of this class was submitted with the same key, as long as that job is kept: else it is answered. An idempotency key.
    pub fn once(mut self, key: impl Into<Box<str>>) -> Self {
        self.unique = Some((key.into(), None));
        self
    }

    /// Only if no job of this class was submitted with the same key for so long: else that job is answered, whether it is still kept or not.
    pub fn once_within(mut self, key: impl Into<Box<str>>, window: Duration) -> Self {
        self.unique = Some((key.into(), Some(window)));
        self
    }

    /// Not before this moment.
    pub fn at(mut self, moment: Timestamp) -> Self {
        self.at = Some(moment);
        self
    }

    /// Before others that are not urgent.
    pub fn urgent(mut self) -> Self {
        self.is_urgent = true;
        self
    }

    /// Only one job with this concurrency key is under way at a time; the others wait in the order in which they came. It is so from when it
    /// begins until it has ended, also while it waits for something or for its next attempt: so those after it see what it did. Only
    /// if its class is paused before such an attempt, others go first.
    pub fn one_at_a_time(self, key: &str) -> Self {
        self.some_at_a_time(key, 1)
    }

    /// Only so many jobs with this concurrency key are under way at a time, each until it has ended, as with
    /// [`one_at_a_time`](Self::one_at_a_time). The limit of whoever asks to pass counts.
    pub fn some_at_a_time(mut self, key: &str, limit: u32) -> Self {
        self.gate = Some((Gate::of_key(key), limit.max(1)));
        self
    }

    /// With a word to find it by.
    pub fn tag(mut self, tag: impl Into<Box<str>>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Not wanted any more once this moment has come: whatever has not ended then is timed out. Whoever retries it afterwards wants it all
    /// the same, however long it takes.
    pub fn deadline(mut self, moment: Timestamp) -> Self {
        self.deadline = Some(moment);
        self
    }

    /// Not before this job has ended, whatever its runs. If it fails, `on_failed` says what becomes of this one.
    pub fn after(mut self, job: JobId) -> Self {
        self.after.push(job);
        self
    }

    /// What becomes of it when a job fails that it waits for.
    pub fn on_failed(mut self, policy: OnFailed) -> Self {
        self.on_failed = policy;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_the_trip_and_other_bytes_are_refused() {
        let run = RunId::from_parts(Timestamp(1), [1; 10]);
        let id = JobId::new("nightly").unwrap();
        let job = Job {
            id: id.clone(),
            class: "crawl".into(),
            outcome: Some(Outcome::Cancelled),
            created: Timestamp(4),
            deadline: Some(Timestamp(9)),
            first: run,
            latest: run,
            attempts: 3,
            tags: vec!["a".into(), "b".into()],
            after: vec![JobId::new("before").unwrap()],
            at: Some(Timestamp(7)),
            waiting: 1,
            on_failed: OnFailed::Continue,
            is_urgent: true,
            is_hurt: true,
            gate: Some((Gate::of_key("k"), 2)),
            unique: Some([7; 16]),
        };
        let row = job.encode();
        assert_eq!((Job::decode(id.clone(), &row).unwrap(), row.capacity()), (job, row.len()));
        for length in 0..row.len() {
            assert!(Job::decode(id.clone(), &row[..length]).unwrap_err().is_corruption(), "{length} bytes");
        }
    }
}
