//! A run's row: who it is, where it stands, and what it has said so far.
//!
//! ```text
//!   0        4           5             6          7           8             12          16
//!   | RUN0   | state u8  | outcome u8  | flags u8 | origin u8 | attempt u32 | depth u32 |
//!  16                32              48             56             64           72
//!   | parent 16       | root 16       | created i64  | started i64  | ended i64  |
//!  72             80          112          116         120        124            132          148          156
//!   | events u64   | hash 32   | claims u32 | steps u32 | kept u32 | message u64 | input of 16 | bytes u64 |
//!  156
//!   | length u32, job id | length u32, class | artifact bytes u64, if there are any |         little-endian
//! ```
//!
//! Origin is 0 for a first run, 1 for a retry, 2 for a child. Flag 1 says that the run is to be cancelled. A parent or input of sixteen
//! zeros is none; a moment of `i64::MIN` has not come. Events counts the events, so it is also the last sequence number; hash is that of
//! the last event (see [`chain`]). Claims counts how often somebody began or took over the run: with the number of the message that
//! drives it, it is the token that tells one driver from another, because every commit for the run demands the row as it was.

use kauri_wire::{JobId, RunId, Timestamp};
use sha2::{Digest, Sha256};

use super::codec::{Reader, Writer};
use super::outcome::{Origin, Outcome, State};
use crate::error::{Error, Result};

const MAGIC: [u8; 4] = *b"RUN0";
const CANCEL: u8 = 1;
/// What every row has, before the job's id.
const FIXED_BYTES: usize = 156;

/// Everything about a run but what it said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// The run.
    pub id: RunId,
    /// Its job.
    pub job: JobId,
    /// What it runs.
    pub class: Box<str>,
    /// How it began.
    pub origin: Origin,
    /// How many runs are above it in its tree; a retry stands where the run before it stood.
    pub depth: u32,
    /// The run at the top of its tree: of the first attempt, itself or another.
    pub root: RunId,
    /// Where it stands.
    pub state: State,
    /// Whether somebody does not want it any more.
    pub is_cancelled: bool,
    /// When it was made.
    pub created: Timestamp,
    /// When somebody first began it.
    pub started: Option<Timestamp>,
    /// When it was sealed.
    pub ended: Option<Timestamp>,
    /// How many events it has: the last one's sequence number.
    pub events: u64,
    /// The hash over all of them: see [`chain`].
    pub hash: [u8; 32],
    /// How often somebody began it or took it over.
    pub claims: u32,
    /// How many steps are recorded; while somebody drives it, perhaps more.
    pub steps: u32,
    /// How many of them are those of the run it retries.
    pub kept: u32,
    /// How many bytes its input, events and steps have in the store, and its artifacts beside it.
    pub bytes: u64,
    /// How many of these are those of its artifacts.
    pub artifact_bytes: u64,
    /// The number of the message that drives it; 0 if none does.
    pub(super) message: u64,
    /// The run whose input it has, if there is any.
    pub(super) input_of: Option<RunId>,
}

impl Run {
    /// The ordinal of the run within its job, from 1.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.origin.attempt()
    }

    /// The run that this one is a retry or a child of.
    #[must_use]
    pub const fn parent(&self) -> Option<RunId> {
        self.origin.parent()
    }

    /// The trace of what it does: the root of its tree, in words.
    #[must_use]
    pub fn trace(&self) -> String {
        self.root.to_string()
    }

    /// How it ended, if it has.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        self.state.outcome()
    }

    /// When its time is over: of its job, or its own, counted from its first begin.
    pub(super) fn until(
        &self,
        deadline: Option<Timestamp>,
        time_max: Option<std::time::Duration>,
    ) -> Option<Timestamp> {
        let own = self.started.zip(time_max).map(|(started, most)| {
            let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX);
            Timestamp(started.0.saturating_add(most))
        });
        [deadline, own].into_iter().flatten().min()
    }

    /// How long it waited to be begun, and how long it took from there, in milliseconds; each once it is over.
    #[must_use]
    pub fn durations(&self) -> (Option<i64>, Option<i64>) {
        let since = |from: Timestamp, to: Timestamp| to.0.saturating_sub(from.0).max(0);
        let queued = self.started.or(self.ended).map(|until| since(self.created, until));
        let ran = self.started.zip(self.ended).map(|(from, until)| since(from, until));
        (queued, ran)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let origin = match self.origin {
            Origin::First => 0,
            Origin::Retry { .. } => 1,
            Origin::Child { .. } => 2,
        };
        let flags = if self.is_cancelled { CANCEL } else { 0 };
        let mut row = Writer::sized(MAGIC, FIXED_BYTES + 8 + self.job.as_str().len() + self.class.len());
        row.raw(&self.state.codes()).byte(flags).byte(origin).short(self.attempt()).short(self.depth);
        row.run_some(self.parent()).run(self.root);
        row.moment(self.created).moment_some(self.started).moment_some(self.ended);
        row.long(self.events).raw(&self.hash).short(self.claims).short(self.steps).short(self.kept);
        row.long(self.message).run_some(self.input_of).long(self.bytes);
        row.bytes(self.job.as_str().as_bytes()).bytes(self.class.as_bytes());
        if self.artifact_bytes > 0 {
            row.long(self.artifact_bytes);
        }
        row.finish()
    }

    pub(super) fn decode(id: RunId, bytes: &[u8]) -> Result<Self> {
        Self::read(id, bytes).ok_or(Error::damaged("runs", "a run's row, which begins with RUN0"))
    }

    fn read(id: RunId, bytes: &[u8]) -> Option<Self> {
        let mut row = Reader::new(bytes, MAGIC)?;
        let state = State::from_codes(row.array()?)?;
        let flags = row.byte()?;
        let (kind, attempt, depth, parent) = (row.byte()?, row.short()?, row.short()?, row.run_some()?);
        let origin = match (kind, parent, attempt) {
            (0, None, 1) => Origin::First,
            (1, Some(of), 2..) => Origin::Retry { of, attempt },
            (2, Some(of), 1) => Origin::Child { of, depth },
            _ => return None,
        };
        let mut run = Self {
            id,
            origin,
            depth,
            state,
            is_cancelled: flags == CANCEL,
            root: row.run()?,
            created: row.moment()?,
            started: row.moment_some()?,
            ended: row.moment_some()?,
            events: row.long()?,
            hash: row.array()?,
            claims: row.short()?,
            steps: row.short()?,
            kept: row.short()?,
            message: row.long()?,
            input_of: row.run_some()?,
            bytes: row.long()?,
            job: JobId::new(std::str::from_utf8(row.bytes()?).ok()?).ok()?,
            class: row.text()?.into(),
            artifact_bytes: 0,
        };
        if !row.is_over() {
            run.artifact_bytes = row.long()?;
        }
        row.end()?;
        (flags <= CANCEL).then_some(run)
    }
}

/// The run of a row that says that it was sealed or waits; nothing if it says anything else.
pub(crate) fn resting(key: &[u8], row: &[u8]) -> Option<Run> {
    let state = State::from_codes(row.get(4..6)?.try_into().ok()?)?;
    match state {
        State::Sealed(_) | State::Parked => Run::decode(RunId::from_bytes(key.try_into().ok()?).ok()?, row).ok(),
        State::Pending | State::Running => None,
    }
}

/// The hash of a stream with one more event: SHA-256 of the hash before it (zeros at first), its sequence number as eight bytes,
/// big-endian, and its row.
///
/// So the hash of a sealed run names every event it has, and their order.
#[must_use]
pub fn chain(before: &[u8; 32], seq: u64, row: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(seq.to_be_bytes());
    hash.update(row);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(origin: Origin, state: State) -> Run {
        let id = RunId::from_parts(Timestamp(7), [1; 10]);
        Run {
            id,
            job: JobId::new("import").unwrap(),
            class: "crawl".into(),
            origin,
            depth: 2,
            root: RunId::from_parts(Timestamp(3), [2; 10]),
            state,
            is_cancelled: true,
            created: Timestamp(7),
            started: Some(Timestamp(0)),
            ended: None,
            events: 5,
            hash: [9; 32],
            claims: 1,
            steps: 3,
            kept: 2,
            message: 11,
            input_of: Some(id),
            bytes: 77,
            artifact_bytes: 0,
        }
    }

    #[test]
    fn row_of_a_run_without_artifacts_is_what_it_was_before_they_were_counted() {
        let without = run(Origin::First, State::Running);
        let without = Run { depth: 0, root: without.id, ..without };
        let with = Run { artifact_bytes: 70, ..without.clone() };
        let row = with.encode();
        assert_eq!(Run::decode(with.id, &row).unwrap(), with);
        assert_eq!((&row[..row.len() - 8], row.len()), (&without.encode()[..], without.encode().len() + 8));
        for cut in 1..8 {
            assert!(Run::decode(with.id, &row[..row.len() - cut]).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn rows_survive_the_trip_and_other_bytes_are_refused() {
        let of = RunId::from_parts(Timestamp(5), [4; 10]);
        for origin in [Origin::First, Origin::Retry { of, attempt: 2 }, Origin::Child { of, depth: 2 }] {
            let run = run(origin, State::Sealed(Outcome::TimedOut));
            let row = run.encode();
            assert_eq!((Run::decode(run.id, &row).unwrap(), row.capacity()), (run.clone(), row.len()));
            for length in 0..row.len() {
                assert!(Run::decode(run.id, &row[..length]).unwrap_err().is_corruption(), "{length} bytes");
            }
            assert!(Run::decode(run.id, &[&row[..], &[0]].concat()).is_err());
        }
    }

    #[test]
    fn rows_whose_lineage_disagrees_with_itself_are_refused() {
        let row = run(Origin::First, State::Pending).encode();
        for (at, byte) in [(7, 1), (7, 2), (7, 3), (8, 2), (16, 1), (6, 2), (4, 9)] {
            let mut bad = row.clone();
            bad[at] = byte;
            assert!(Run::decode(RunId::from_parts(Timestamp(7), [1; 10]), &bad).is_err(), "byte {at}");
        }
    }
}
