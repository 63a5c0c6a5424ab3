//! Idempotency keys: which job was submitted with a key, and until when nobody else can be.
//!
//! ```text
//! | until i64 | job id | 0 | run 16 |        little-endian; `i64::MAX`: as long as the job is kept
//! ```
//!
//! A key with a window is taken until then, whatever becomes of the job. When the job is removed before, the row stays, with another one
//! in the order of moments, by which it is found when the window is over.

use kauri_wire::{JobId, RunId, Timestamp};

use super::index;
use super::job::{Job, Submission};
use super::make;
use super::runs::Runs;
use super::submit::Submitted;
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::read::Read;
use crate::schema::RUN_INDEX;
use crate::substrate::{Bytes, Change, KeyRange, Rows, Seen};

/// The most keys that one commit frees.
const FREED_MAX: u64 = 512;

/// Who has a key.
struct Taken {
    until: Timestamp,
    job: JobId,
    /// The job's first run.
    run: RunId,
}

impl Taken {
    fn encode(&self) -> Vec<u8> {
        let until = self.until.0.to_le_bytes();
        [&until[..], self.job.as_str().as_bytes(), &[0], self.run.as_bytes()].concat()
    }

    fn decode(row: &[u8]) -> Result<Self> {
        Self::read(row).ok_or(Error::damaged("run_index", "until when a key is taken, and by which job and run"))
    }

    fn read(row: &[u8]) -> Option<Self> {
        let (until, rest) = row.split_first_chunk::<8>()?;
        let (job, run) = rest.split_last_chunk::<{ RunId::BYTES }>()?;
        let job = std::str::from_utf8(job.strip_suffix(&[0])?).ok()?;
        let (job, run) = (JobId::new(job).ok()?, RunId::from_bytes(*run).ok()?);
        Some(Self { until: Timestamp(i64::from_le_bytes(*until)), job, run })
    }

    /// Whether the key is taken for a time, and not for as long as the job is kept.
    fn has_window(&self) -> bool {
        self.until.0 != i64::MAX
    }
}

/// The job that was submitted with the same key, if the key is still taken.
pub(super) fn find(block: &Atomic<'_>, wanted: &Submission, now: Timestamp) -> Result<Option<Submitted>> {
    let Some((key, _)) = &wanted.unique else { return Ok(None) };
    let Some(row) = block.row(&RUN_INDEX, &index::unique_key(&index::unique_hash(&wanted.class, key)))? else {
        return Ok(None);
    };
    let taken = Taken::decode(&row)?;
    if now >= taken.until {
        return Ok(None);
    }
    if !taken.has_window() && !is_kept(block, &wanted.class, &taken.job)? {
        return Ok(None);
    }
    Ok(Some(Submitted { job: taken.job, run: taken.run, is_new: false }))
}

/// Whether a job is there, and is not being removed.
fn is_kept(block: &Atomic<'_>, class: &str, job: &JobId) -> Result<bool> {
    let is_leaving = block.row(&RUN_INDEX, &index::leaving(class, job))?.is_some();
    Ok(!is_leaving && make::find_job(block, job)?.is_some())
}

/// Stages that a new job has taken its key, if it has one.
pub(super) fn take(block: &mut Atomic<'_>, wanted: &Submission, new: &Submitted, now: Timestamp) -> Result<()> {
    let Some((key, window)) = &wanted.unique else { return Ok(()) };
    let window = window.map(|window| i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
    let until = Timestamp(window.map_or(i64::MAX, |window| now.0.saturating_add(window)));
    let taken = Taken { until, job: new.job.clone(), run: new.run };
    let key = index::unique_key(&index::unique_hash(&wanted.class, key));
    block.stage(&RUN_INDEX, &key, Some(&taken.encode()))
}

/// Stages what becomes of a job's key when the job is removed, and answers how many rows are gone for it.
pub(super) fn leave(change: &mut Change, rows: &dyn Rows, job: &Job, now: Timestamp) -> Result<u64> {
    let Some(hash) = job.unique else { return Ok(0) };
    let key = index::unique_key(&hash);
    let Some(row) = rows.get(&RUN_INDEX, &key)? else { return Ok(0) };
    let taken = Taken::decode(&row)?;
    if taken.job != job.id {
        // A newer job has taken it since.
        return Ok(0);
    }
    change.expect(RUN_INDEX, key.clone(), Seen::of(Some(&row)));
    if taken.has_window() && now < taken.until {
        change.put(RUN_INDEX, index::key_over(taken.until, &hash), Bytes::default());
        return Ok(0);
    }
    change.remove(RUN_INDEX, key);
    Ok(1)
}

impl Runs {
    /// Frees keys of jobs that were removed, up to about so many rows, if their windows are over. Answers how many rows are gone.
    pub(super) fn free_keys(&self, now: Timestamp, rows_max: u64) -> Result<u64> {
        let mut gone = 0;
        while gone < rows_max {
            match self.free_some_keys(now, rows_max - gone)? {
                0 => break,
                some => gone += some,
            }
        }
        Ok(gone)
    }

    /// The same in one commit.
    fn free_some_keys(&self, now: Timestamp, rows_max: u64) -> Result<u64> {
        let until = index::keys_over_by(now);
        let done = self.shared().commit_until(|rows| {
            let mut change = Change::default();
            let mut gone = 0;
            let mut scan = rows.scan(&RUN_INDEX, KeyRange { from: index::KEYS_OVER, until: Some(&until) })?;
            while gone < rows_max.min(FREED_MAX) {
                let Some((mark, _)) = scan.next()? else { break };
                let (over, hash) = index::key_over_parts(&mark)?;
                change.remove(RUN_INDEX, &mark[..]);
                gone += 1;
                let key = index::unique_key(&hash);
                let Some(row) = rows.get(&RUN_INDEX, &key)? else { continue };
                // Somebody may have taken it since, for longer.
                if Taken::decode(&row)?.until == over {
                    change.expect(RUN_INDEX, key.clone(), Seen::of(Some(&row)));
                    change.remove(RUN_INDEX, key);
                    gone += 1;
                }
            }
            Ok((gone > 0).then_some((change, gone)))
        })?;
        Ok(done.map_or(0, |(_, gone)| gone))
    }
}
