//! Classes of jobs: what runs them, and what becomes of runs that fail.
//!
//! ```text
//!  0      4            12          13           14            16                 20
//!  | CLS0 | worker u64 | paused u8 | takeover u8 | retry on u16 | attempts_max u32 |
//! 20             28                 36              40             44              48
//!  | pause_ms u64 | pause_max_ms u64 | depth_max u32 | runs_max u32 | parallel u32 |
//! 48        49            57              65                73                81
//!  | exit u8 | keep_ms u64 | keep_runs u64 | keep_bytes u64 | time_max_ms u64 |           little-endian
//! 81                          105                            129                 130
//!  | of events: ms, count, bytes | of artifacts: ms, count, bytes | letters u8 | of dead letters: ms, count, bytes |
//! ```
//!
//! What is kept for ever, or without a limit, is `u64::MAX`. The second part is there only if it says something; letters is 0 if those
//! are kept as runs are.

use std::time::Duration;

use kauri_wire::WorkerId;

use super::codec::{Reader, Writer};
use super::outcome::{Outcome, Outcomes};
use crate::error::{Error, Result};

const MAGIC: [u8; 4] = *b"CLS0";

/// A class of jobs, as [`Runs::define`](super::Runs::define) takes it.
///
/// ```
/// use kauri_runtime::run::{Class, Retry};
/// use kauri_wire::WorkerId;
///
/// let class = Class { retry: Retry { attempts_max: 5, ..Retry::default() }, ..Class::new(WorkerId(7)) };
/// assert_eq!(class.fan_out.depth_max, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Class {
    /// The worker that drives its runs.
    pub worker: WorkerId,
    /// What becomes of a run that failed.
    pub retry: Retry,
    /// What becomes of a run whose driver died.
    pub takeover: Takeover,
    /// How much derived work its jobs may ask for.
    pub fan_out: FanOut,
    /// How long what has ended is kept.
    pub keep: Keep,
    /// How long a run may take from its first begin to its end, waits included: as long as it likes. One that takes longer has timed
    /// out.
    pub time_max: Option<Duration>,
}

impl Class {
    /// A class whose runs this worker drives, with the defaults of everything else.
    #[must_use]
    pub fn new(worker: WorkerId) -> Self {
        let (retry, takeover, fan_out, keep) = Default::default();
        Self { worker, retry, takeover, fan_out, keep, time_max: None }
    }
}

/// Which failed runs are followed by another, when, and how many.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Retry {
    /// How many runs a job may have, the first included: 3.
    pub attempts_max: u32,
    /// Which outcomes are worth another run: script errors, crashes and time that was over.
    pub on: Outcomes,
    /// How long the second run waits: 1 s. Each further one waits twice as long, and a part of it is chance.
    pub pause: Duration,
    /// The longest wait: 5 min.
    pub pause_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        let (pause, pause_max) = (Duration::from_secs(1), Duration::from_secs(300));
        Self { attempts_max: 3, on: Outcomes::PASSING, pause, pause_max }
    }
}

impl Retry {
    /// One run and no more.
    #[must_use]
    pub fn never() -> Self {
        Self { attempts_max: 1, ..Self::default() }
    }

    /// Whether another run follows one of this attempt that ended so. None follows a success, whatever `on` says.
    pub(super) fn follows(&self, outcome: Outcome, attempt: u32) -> bool {
        !outcome.is_success() && attempt < self.attempts_max && self.on.contains(outcome)
    }

    /// The longest wait after this attempt.
    pub(super) fn pause_after(&self, attempt: u32) -> Duration {
        let doubled = 1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        self.pause.saturating_mul(doubled).min(self.pause_max)
    }
}

/// What becomes of a run whose driver died.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Takeover {
    /// It ended with a crash; whether another follows, [`Retry`] says.
    #[default]
    Crash,
    /// The same run goes on, and gets back what its steps recorded. For scripts that do everything in steps.
    Resume,
}

/// How much derived work a job may ask for, and all that was derived from it: the class of a tree's first job says it for the whole tree. For a
/// job that is retried when the first is kept no longer, its own class does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FanOut {
    /// How many generations there may be below the first run: none.
    pub depth_max: u32,
    /// How many derived jobs there may be in all: 1000. Where the first job is gone, as many of each job's own.
    pub runs_max: u32,
    /// How many of them may be under way at a time: 1. One that waits, for a moment, a signal, a job or its next attempt, is not.
    pub parallel: u32,
    /// What the outcome of the whole depends on: the first job.
    pub exit: Exit,
}

impl Default for FanOut {
    fn default() -> Self {
        Self { depth_max: 0, runs_max: 1000, parallel: 1, exit: Exit::Root }
    }
}

/// What the outcome of a [tree](super::Tree) of runs depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Exit {
    /// The first job alone.
    #[default]
    Root,
    /// Every job of the tree. Those that failed, and those above them, are kept as long as the first, whatever their classes say.
    All,
}

/// How long what has ended is kept: see [`Runs::sweep`](super::Runs::sweep). Whatever passes one limit goes, the oldest first. A job goes as
/// a whole, and is as old as its latest run. It stays while somebody needs it: until all that wait for it know how it ended, until work
/// derived from it has ended, and as long as the first job of its tree if that failed through it, where [every job counts](Exit::All).
///
/// ```
/// use std::time::Duration;
/// use kauri_runtime::run::{Keep, Limits};
///
/// // What happened is known for a year, every word of it for a week, and a hundred runs have their artifacts.
/// let day = Duration::from_hours(24);
/// let keep = Keep {
///     time: Some(365 * day),
///     events: Limits { time: Some(7 * day), ..Limits::default() },
///     artifacts: Limits { count: Some(100), ..Limits::default() },
///     ..Keep::default()
/// };
/// # let _ = keep;
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// For how long after its end: for ever.
    pub time: Option<Duration>,
    /// How many runs of the class: all. A job goes if so many are left without its runs: so there may be more, and a job of many attempts
    /// does not go for these.
    pub runs: Option<u64>,
    /// How many bytes they have together, with their events, steps, inputs, artifacts and files: any number.
    pub bytes: Option<u64>,
    /// How long the events of runs, if less long than these: the count is of runs that have theirs, the bytes are those of these runs
    /// without artifacts.
    pub events: Limits,
    /// How long the artifacts and files of runs, if less long than these: the count is of runs that have theirs.
    pub artifacts: Limits,
    /// How long the dead letters of the worker that drives the class: as long as its runs.
    pub dead_letters: Option<Limits>,
}

/// Limits of what is kept; without any, everything is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// For how long after the end of a job, or the burial of a letter.
    pub time: Option<Duration>,
    /// How many.
    pub count: Option<u64>,
    /// How many bytes together.
    pub bytes: Option<u64>,
}

impl Keep {
    /// What is kept of runs themselves.
    pub(super) const fn of_runs(&self) -> Limits {
        Limits { time: self.time, count: self.runs, bytes: self.bytes }
    }

    /// What is kept of dead letters.
    pub(super) fn of_letters(&self) -> Limits {
        self.dead_letters.clone().unwrap_or_else(|| self.of_runs())
    }

    /// Whether something is kept otherwise than runs are.
    fn is_split(&self) -> bool {
        let none = Limits::default();
        self.events != none || self.artifacts != none || self.dead_letters.is_some()
    }
}

impl Limits {
    fn encode(&self, row: &mut Writer) {
        row.long(self.time.map_or(u64::MAX, millis)).long(self.count.unwrap_or(u64::MAX));
        row.long(self.bytes.unwrap_or(u64::MAX));
    }

    fn read(row: &mut Reader<'_>) -> Option<Self> {
        let mut limit = || row.long().map(|number| (number != u64::MAX).then_some(number));
        Some(Self { time: limit()?.map(Duration::from_millis), count: limit()?, bytes: limit()? })
    }
}

/// A class as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ClassRow {
    pub(super) class: Class,
    pub(super) is_paused: bool,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX - 1)
}

impl ClassRow {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Class { worker, retry, takeover, fan_out, keep, time_max } = &self.class;
        let mut row = Writer::new(MAGIC);
        row.long(worker.key_bits()).byte(self.is_paused.into()).byte((*takeover == Takeover::Resume).into());
        row.raw(&retry.on.bits().to_le_bytes()).short(retry.attempts_max);
        row.long(millis(retry.pause)).long(millis(retry.pause_max));
        row.short(fan_out.depth_max).short(fan_out.runs_max).short(fan_out.parallel);
        row.byte((fan_out.exit == Exit::All).into());
        row.long(keep.time.map_or(u64::MAX, millis)).long(keep.runs.unwrap_or(u64::MAX));
        row.long(keep.bytes.unwrap_or(u64::MAX)).long(time_max.map_or(u64::MAX, millis));
        if keep.is_split() {
            keep.events.encode(&mut row);
            keep.artifacts.encode(&mut row);
            row.byte(keep.dead_letters.is_some().into());
            keep.dead_letters.iter().for_each(|limits| limits.encode(&mut row));
        }
        row.finish()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or(Error::damaged("run_index", "a class's row, which begins with CLS0"))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut row = Reader::new(bytes, MAGIC)?;
        let worker = WorkerId::from_key_bits(row.long()?);
        let is_paused = row.byte()? != 0;
        let takeover = if row.byte()? == 0 { Takeover::Crash } else { Takeover::Resume };
        let on = Outcomes::from_bits(u16::from_le_bytes(row.array()?));
        let retry = Retry {
            on,
            attempts_max: row.short()?,
            pause: Duration::from_millis(row.long()?),
            pause_max: Duration::from_millis(row.long()?),
        };
        let fan_out = FanOut {
            depth_max: row.short()?,
            runs_max: row.short()?,
            parallel: row.short()?,
            exit: if row.byte()? == 0 { Exit::Root } else { Exit::All },
        };
        let limit = |number: u64| (number != u64::MAX).then_some(number);
        let time = |number| limit(number).map(Duration::from_millis);
        let mut keep =
            Keep { time: time(row.long()?), runs: limit(row.long()?), bytes: limit(row.long()?), ..Keep::default() };
        let time_max = time(row.long()?);
        if !row.is_over() {
            (keep.events, keep.artifacts) = (Limits::read(&mut row)?, Limits::read(&mut row)?);
            keep.dead_letters = if row.byte()? == 0 { None } else { Some(Limits::read(&mut row)?) };
        }
        row.end()?;
        Some(Self { class: Class { worker, retry, takeover, fan_out, keep, time_max }, is_paused })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_survive_the_trip_and_other_bytes_are_refused() {
        let keep = Keep { time: Some(Duration::from_secs(9)), bytes: Some(1 << 30), ..Keep::default() };
        let fan_out = FanOut { depth_max: 2, exit: Exit::All, ..FanOut::default() };
        let time_max = Some(Duration::from_secs(60));
        let class = Class { takeover: Takeover::Resume, fan_out, keep, time_max, ..Class::new(WorkerId(-4)) };
        for is_paused in [false, true] {
            let row = ClassRow { class: class.clone(), is_paused };
            assert_eq!(ClassRow::decode(&row.encode()).unwrap(), row);
        }
        assert_eq!(ClassRow { class: class.clone(), is_paused: false }.encode().len(), 81, "as it always was");
        let limits = |count| Limits { time: Some(Duration::from_secs(count)), count: Some(count), bytes: None };
        for dead_letters in [None, Some(Limits::default()), Some(limits(3))] {
            let keep = Keep { events: limits(1), artifacts: limits(2), dead_letters, ..class.keep.clone() };
            let row = ClassRow { class: Class { keep, ..class.clone() }, is_paused: false };
            let bytes = row.encode();
            assert_eq!(ClassRow::decode(&bytes).unwrap(), row);
            for length in 82..bytes.len() {
                assert!(ClassRow::decode(&bytes[..length]).unwrap_err().is_corruption(), "{length} bytes");
            }
        }
        assert!(ClassRow::decode(b"CLS0").unwrap_err().is_corruption());
    }

    #[test]
    fn waits_double_up_to_their_limit_and_runs_are_counted() {
        let retry = Retry { attempts_max: 3, pause_max: Duration::from_secs(3), ..Retry::default() };
        let waits: Vec<u64> = (1..=40).map(|attempt| retry.pause_after(attempt).as_secs()).collect();
        assert_eq!((waits[0], waits[1], waits[2], waits[39]), (1, 2, 3, 3));
        assert!(retry.follows(Outcome::ExecutorCrash, 2) && !retry.follows(Outcome::ExecutorCrash, 3));
        assert!(!retry.follows(Outcome::Cancelled, 1) && !Retry::never().follows(Outcome::ScriptError, 1));
        let success = Outcome::Success { skipped: false };
        assert!(!Retry { on: Outcomes::PASSING.with(success), ..retry }.follows(success, 1));
    }
}
