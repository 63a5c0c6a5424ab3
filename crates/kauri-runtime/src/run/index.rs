//! The table `run_index`: how runs and jobs are found. The first byte of a key says what it is.
//!
//! ```text
//! key                                       value
//! | C | class                             | the class's row
//! | c | parent 16 | run 16                | nothing: the run is a retry or a child of the parent
//! | j | job id, 0 | attempt u32be         | run 16: a retry of the job; its first run is named in its row
//! | r | run 16                            | nothing: somebody drives the run, or died doing so
//! | e | class, 0 | ended i64be | run 16   | u64: the bytes of a run that has ended, oldest first; u64: those of artifacts, if any
//! | g | run 16                            | u8: what is gone of a run that is kept: 1 its events, 2 its artifacts, 3 both
//! | k | class, 0 | u8, as above           | the rest of a key `e`, before which nothing more of the kind is to be removed
//! | h | class, 0 | u8, as above | run 16   | nothing: of the kind some is gone of the run, and the rest follows
//! | i | hash 16 of class, 0, key          | which job has the key, and until when: see unique.rs
//! | f | until i64be | hash 16, as above   | nothing: the job that has the key is gone, and the key is not free before
//! | n | run 16                            | nothing: the id was chosen by whoever submitted the run, which may be gone
//! | m                                     | run 16: the latest of the ids that were made here and whose runs are gone
//! | l | class, 0 | job id                 | nothing: the job is leaving, and a part of it is gone
//! | d | root 16 | hash 32                 | run 16: derived work by its target and params
//! | w | job id, 0 | run 16                | nothing: the run waits until the job has ended
//! | b | job id, 0 | run 16                | nothing: the run was told that the job has ended, and has not recorded it
//! | a | gate 16 | run 16                  | nothing: the first run of a job that has passed the gate
//! | q | gate 16 | run 16                  | nothing: the first run of a job that waits before it, oldest first
//! | p | class, 0 | run 16                 | nothing: the run waits until its class is resumed
//! | x | run 16                            | u64: events that came after the run was sealed
//! | o | run 16                            | how the run's script went: see report.rs
//! | s | digest 32 | run 16                | nothing: an event of the run names the artifact
//! | t | run 16 | digest 32                | nothing: the same, by the run
//! | u | run 16                            | nothing: the run waits until somebody has decided about an action of it
//! | v | run 16                            | the name of the signal that the parked run waits for; empty if it is something else
//! | y | run 16                            | u32: how many steps the run had when it was taken over last
//! | z | run 16                            | nothing: the run and all under it are being cancelled
//! ```
//!
//! Values are little-endian. A gate is the first half of the SHA-256 of its name: `run:` and the root's sixteen bytes for derived work,
//! `key:` and the text for a concurrency key. Names of classes and job ids have no byte 0.

use kauri_wire::{JobId, RunId, Timestamp};
use sha2::{Digest as _, Sha256};

use super::artifact::Digest;
use super::row::Run;
use crate::error::{Error, Result};
use crate::substrate::Bytes;

fn key(tag: u8, parts: &[&[u8]]) -> Bytes {
    // Most keys are short, and lie in the value itself: then nothing is allocated here.
    let mut short = [tag; 64];
    let mut length = 1;
    for part in parts {
        let Some(room) = short.get_mut(length..length + part.len()) else {
            return [&[tag][..], &parts.concat()].concat().into();
        };
        room.copy_from_slice(part);
        length += part.len();
    }
    short[..length].into()
}

pub(super) fn class(name: &str) -> Bytes {
    key(b'C', &[name.as_bytes()])
}

/// All classes.
pub(super) const CLASSES: &[u8] = b"C";

pub(super) fn child(parent: RunId, run: RunId) -> Bytes {
    key(b'c', &[parent.as_bytes(), run.as_bytes()])
}

pub(super) fn children(parent: RunId) -> Bytes {
    key(b'c', &[parent.as_bytes()])
}

pub(super) fn attempt(job: &JobId, attempt: u32) -> Bytes {
    key(b'j', &[job.as_str().as_bytes(), &[0], &attempt.to_be_bytes()])
}

pub(super) fn attempts(job: &JobId) -> Bytes {
    key(b'j', &[job.as_str().as_bytes(), &[0]])
}

pub(super) fn running(run: RunId) -> Bytes {
    key(b'r', &[run.as_bytes()])
}

/// All runs that somebody drives or drove.
pub(super) const RUNNING: &[u8] = b"r";

pub(super) fn ended(class: &str, at: Timestamp, run: RunId) -> Bytes {
    key(b'e', &[class.as_bytes(), &[0], &at.0.max(0).to_be_bytes(), run.as_bytes()])
}

pub(super) fn ended_of(class: &str) -> Bytes {
    key(b'e', &[class.as_bytes(), &[0]])
}

/// What a run that has ended weighs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Weight {
    /// All bytes of it.
    pub(super) bytes: u64,
    /// Those of its artifacts.
    pub(super) artifacts: u64,
}

impl Weight {
    pub(super) const fn of(run: &Run) -> Self {
        Self { bytes: run.bytes, artifacts: run.artifact_bytes }
    }

    pub(super) fn encode(self) -> Bytes {
        let both = [self.bytes.to_le_bytes(), self.artifacts.to_le_bytes()];
        if self.artifacts == 0 { both[0].into() } else { both.concat().into() }
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("run_index", "the bytes of a run that has ended");
        let long = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| damaged());
        let (bytes, artifacts) = value.split_at_checked(8).ok_or_else(damaged)?;
        Ok(Self { bytes: long(bytes)?, artifacts: if artifacts.is_empty() { 0 } else { long(artifacts)? } })
    }
}

pub(super) fn removed(run: RunId) -> Bytes {
    key(b'g', &[run.as_bytes()])
}

/// Up to where shares of this kind were removed.
pub(super) fn share_place(class: &str, kind: u8) -> Bytes {
    key(b'k', &[class.as_bytes(), &[0, kind]])
}

/// Runs of which a share of this kind is being removed.
pub(super) fn shares_underway(class: &str, kind: u8) -> Bytes {
    key(b'h', &[class.as_bytes(), &[0, kind]])
}

pub(super) fn share_underway(class: &str, kind: u8, run: RunId) -> Bytes {
    key(b'h', &[class.as_bytes(), &[0, kind], run.as_bytes()])
}

pub(super) fn leaving(class: &str, job: &JobId) -> Bytes {
    key(b'l', &[class.as_bytes(), &[0], job.as_str().as_bytes()])
}

pub(super) fn leaving_of(class: &str) -> Bytes {
    key(b'l', &[class.as_bytes(), &[0]])
}

/// The job in such a key, after the prefix of its class.
pub(super) fn leaving_job(key: &[u8], prefix: &[u8]) -> Result<JobId> {
    let damaged = || Error::damaged("run_index", "a key that ends with a job id");
    let id = key.strip_prefix(prefix).and_then(|id| std::str::from_utf8(id).ok()).ok_or_else(damaged)?;
    JobId::new(id).map_err(|_| damaged())
}

pub(super) fn unique_hash(class: &str, name: &str) -> [u8; 16] {
    half_hash(&[class.as_bytes(), &[0], name.as_bytes()])
}

pub(super) fn unique_key(hash: &[u8; 16]) -> Bytes {
    key(b'i', &[hash])
}

/// Keys whose jobs are gone, by when they are free.
pub(super) const KEYS_OVER: &[u8] = b"f";

pub(super) fn key_over(until: Timestamp, hash: &[u8; 16]) -> Bytes {
    key(b'f', &[&until.0.max(0).to_be_bytes(), hash])
}

/// Where those end that are free now.
pub(super) fn keys_over_by(now: Timestamp) -> Bytes {
    key(b'f', &[&now.0.max(-1).saturating_add(1).to_be_bytes()])
}

/// The hash in such a key, and the moment.
pub(super) fn key_over_parts(key: &[u8]) -> Result<(Timestamp, [u8; 16])> {
    let damaged = || Error::damaged("run_index", "a moment and a hash");
    let (until, hash) = key.get(1..).and_then(|rest| rest.split_first_chunk::<8>()).ok_or_else(damaged)?;
    Ok((Timestamp(i64::from_be_bytes(*until)), hash.try_into().map_err(|_| damaged())?))
}

/// The latest id that was made and whose run is gone.
pub(super) const LATEST_GONE: &[u8] = b"m";

pub(super) fn chosen(run: RunId) -> Bytes {
    key(b'n', &[run.as_bytes()])
}

pub(super) fn derived(root: RunId, hash: &[u8; 32]) -> Bytes {
    key(b'd', &[root.as_bytes(), hash])
}

pub(super) fn derived_of(root: RunId) -> Bytes {
    key(b'd', &[root.as_bytes()])
}

pub(super) fn waiter(job: &JobId, run: RunId) -> Bytes {
    key(b'w', &[job.as_str().as_bytes(), &[0], run.as_bytes()])
}

pub(super) fn waiters(job: &JobId) -> Bytes {
    key(b'w', &[job.as_str().as_bytes(), &[0]])
}

pub(super) fn told(job: &JobId, run: RunId) -> Bytes {
    key(b'b', &[job.as_str().as_bytes(), &[0], run.as_bytes()])
}

pub(super) fn all_told(job: &JobId) -> Bytes {
    key(b'b', &[job.as_str().as_bytes(), &[0]])
}

pub(super) fn paused(class: &str, run: RunId) -> Bytes {
    key(b'p', &[class.as_bytes(), &[0], run.as_bytes()])
}

pub(super) fn paused_of(class: &str) -> Bytes {
    key(b'p', &[class.as_bytes(), &[0]])
}

pub(super) fn artifact(digest: &Digest, run: RunId) -> Bytes {
    key(b's', &[digest.as_bytes(), run.as_bytes()])
}

pub(super) fn artifacts(digest: &Digest) -> Bytes {
    key(b's', &[digest.as_bytes()])
}

pub(super) fn artifact_of(run: RunId, digest: &Digest) -> Bytes {
    key(b't', &[run.as_bytes(), digest.as_bytes()])
}

pub(super) fn artifacts_of(run: RunId) -> Bytes {
    key(b't', &[run.as_bytes()])
}

/// What says of the artifact in such a key that a run names it.
pub(super) fn artifact_in(key: &[u8], run: RunId) -> Result<Bytes> {
    let damaged = || Error::damaged("run_index", "a key that ends with a digest");
    let digest = key.last_chunk::<32>().ok_or_else(damaged)?;
    Ok(self::key(b's', &[digest, run.as_bytes()]))
}

pub(super) fn undecided(run: RunId) -> Bytes {
    key(b'u', &[run.as_bytes()])
}

/// All runs that wait for a decision.
pub(super) const UNDECIDED: &[u8] = b"u";

pub(super) fn awaited(run: RunId) -> Bytes {
    key(b'v', &[run.as_bytes()])
}

pub(super) fn taken_over(run: RunId) -> Bytes {
    key(b'y', &[run.as_bytes()])
}

pub(super) fn cancelling(run: RunId) -> Bytes {
    key(b'z', &[run.as_bytes()])
}

/// All runs that are being cancelled.
pub(super) const CANCELLING: &[u8] = b"z";

pub(super) fn refused(run: RunId) -> Bytes {
    key(b'x', &[run.as_bytes()])
}

/// The count that a value is; none is 0.
pub(super) fn count_value(value: Option<&[u8]>) -> Result<u64> {
    let Some(value) = value else { return Ok(0) };
    value.try_into().map(u64::from_le_bytes).map_err(|_| Error::damaged("run_index", "a count"))
}

pub(super) fn report(run: RunId) -> Bytes {
    key(b'o', &[run.as_bytes()])
}

/// All reports of how scripts went.
pub(super) const REPORTS: &[u8] = b"o";

/// Where jobs wait so that only so many of a kind are under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Gate(pub(super) [u8; 16]);

impl Gate {
    pub(super) fn of_tree(root: RunId) -> Self {
        Self(half_hash(&[b"run:", root.as_bytes()]))
    }

    pub(super) fn of_key(key: &str) -> Self {
        Self(half_hash(&[b"key:", key.as_bytes()]))
    }

    pub(super) fn passed(self, run: RunId) -> Bytes {
        key(b'a', &[&self.0, run.as_bytes()])
    }

    pub(super) fn all_passed(self) -> Bytes {
        key(b'a', &[&self.0])
    }

    pub(super) fn queued(self, run: RunId) -> Bytes {
        key(b'q', &[&self.0, run.as_bytes()])
    }

    pub(super) fn all_queued(self) -> Bytes {
        key(b'q', &[&self.0])
    }
}

fn half_hash(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    let whole: [u8; 32] = hash.finalize().into();
    std::array::from_fn(|at| whole[at])
}

/// The run that a key ends with.
pub(super) fn last_run(key: &[u8]) -> Result<RunId> {
    let damaged = || Error::damaged("run_index", "a key that ends with a run id");
    let bytes = key.last_chunk::<{ RunId::BYTES }>().ok_or_else(damaged)?;
    RunId::from_bytes(*bytes).map_err(|_| damaged())
}

/// The run that a value is.
pub(super) fn run_value(value: &[u8]) -> Result<RunId> {
    last_run(value)
}
