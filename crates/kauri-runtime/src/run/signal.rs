//! Signals: what a run is told while it goes on.
//!
//! ```text
//! key                       value
//! | run 16 | seq u64be |    | SIG0 | length u32, name | length u32, what it says |      little-endian
//! ```
//!
//! A signal is kept until the run takes it or ends; if another attempt follows by itself, that one has those that were not taken. A run that
//! waits for one is woken in the commit that keeps it; one that is about to wait sees it, because its commit demands that there was none. One
//! that waits for something else is left alone.

use kauri_wire::RunId;

use super::codec::{Reader, Writer};
use super::fault::RunFault;
use super::index;
use super::make;
use super::outcome::State;
use super::runs::{Runs, check_name};
use crate::atomic::Atomic;
use crate::error::{Error, Result};
use crate::read::Read;
use crate::schema::{RUN_INDEX, SIGNALS};
use crate::substrate::{KeyRange, at_most, prefix_end};

const MAGIC: [u8; 4] = *b"SIG0";
/// How many signals a run may have that it has not taken.
const SIGNALS_MAX: usize = 10_000;
/// How many bytes of signals go on to the next attempt: they are written in the commit that ends the one before, which has to fit.
const HANDED_ON_BYTES_MAX: usize = 64 << 20;

impl Runs {
    /// Tells a run something. It is there when this returns, and is taken by whatever in the run waits for a signal of this name. If the run
    /// ends before, and its class has another attempt follow it, that one has the signal, up to 64 MiB of them; a retry by hand begins without.
    ///
    /// # Errors
    /// `NoRun`, `Ended`, `Name`, `Limit` if it has 10,000 that it has not taken, or if the substrate fails.
    pub fn signal(&self, run: RunId, name: &str, payload: &[u8]) -> Result<()> {
        check_name("a signal's name", name)?;
        self.atomically(|block| {
            let run = make::run(block, run)?;
            if run.outcome().is_some() {
                return Err(RunFault::Ended(run.id).into());
            }
            let until = prefix_end(run.id.as_bytes());
            let waiting = block.count(&SIGNALS, KeyRange { from: run.id.as_bytes(), until: until.as_deref() })?;
            let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
            at_most("signals that a run has not taken", SIGNALS_MAX, waiting.saturating_add(1))?;
            let key = key_of(run.id, last(block, run.id)? + 1);
            let row = Writer::new(MAGIC).bytes(name.as_bytes()).bytes(payload).finish();
            block.stage(&SIGNALS, &key, Some(&row))?;
            if run.state == State::Parked && is_awaited(block, run.id, name)? {
                make::wake(block, &run)?;
            }
            Ok(())
        })
    }
}

/// Whether a parked run goes on with a signal of this name.
fn is_awaited(block: &Atomic<'_>, run: RunId, name: &str) -> Result<bool> {
    let awaited = block.row(&RUN_INDEX, &index::awaited(run))?;
    // Of one that has no such row nobody knows.
    Ok(awaited.is_none_or(|awaited| *awaited == *name.as_bytes()))
}

fn damaged() -> Error {
    Error::damaged("signals", "a signal's row, which begins with SIG0, under a run and a number")
}

/// The number of the last signal that a run has and has not taken.
fn last(block: &Atomic<'_>, run: RunId) -> Result<u64> {
    let until = prefix_end(run.as_bytes());
    let mut scan = block.rows(&SIGNALS, KeyRange { from: run.as_bytes(), until: until.as_deref() })?;
    let Some((key, _)) = scan.previous()? else { return Ok(0) };
    key.last_chunk().map(|seq| u64::from_be_bytes(*seq)).ok_or_else(damaged)
}

/// The first signal of this name that a run has and has not taken: its key, and what it says.
pub(super) fn find(rows: &impl Read, run: RunId, name: &str) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let until = prefix_end(run.as_bytes());
    let mut scan = rows.rows(&SIGNALS, KeyRange { from: run.as_bytes(), until: until.as_deref() })?;
    while let Some((key, row)) = scan.next()? {
        let mut row = Reader::new(&row, MAGIC).ok_or_else(damaged)?;
        let (found, payload) = row.text().zip(row.bytes()).ok_or_else(damaged)?;
        if found == name {
            return Ok(Some((key.to_vec(), payload.to_vec())));
        }
    }
    Ok(None)
}

/// Stages that a signal is taken.
pub(super) fn take(block: &mut Atomic<'_>, key: &[u8]) -> Result<()> {
    block.stage(&SIGNALS, key, None)
}

/// Stages that a run's signals are forgotten.
pub(super) fn clear(block: &mut Atomic<'_>, run: RunId) -> Result<()> {
    waiting(block, run)?.iter().try_for_each(|(key, _)| take(block, key))
}

/// Stages that the attempt which follows a run by itself has the signals that it did not take, in their order: who sent them was told that
/// they are there.
pub(super) fn hand_on(block: &mut Atomic<'_>, before: RunId, next: RunId) -> Result<()> {
    let mut bytes = 0;
    for (seq, (key, row)) in (1_u64..).zip(waiting(block, before)?) {
        take(block, &key)?;
        bytes += row.len();
        if bytes <= HANDED_ON_BYTES_MAX {
            block.stage(&SIGNALS, &key_of(next, seq), Some(&row))?;
        }
    }
    Ok(())
}

/// The signals that a run has and has not taken: their keys and rows. Most have none, and to count is cheaper than to look.
fn waiting(block: &Atomic<'_>, run: RunId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let until = prefix_end(run.as_bytes());
    let range = KeyRange { from: run.as_bytes(), until: until.as_deref() };
    let mut rows = Vec::new();
    if block.count(&SIGNALS, range)? == 0 {
        return Ok(rows);
    }
    let mut scan = block.rows(&SIGNALS, range)?;
    while let Some((key, row)) = scan.next()? {
        rows.push((key.to_vec(), row.to_vec()));
    }
    Ok(rows)
}

fn key_of(run: RunId, seq: u64) -> Vec<u8> {
    [&run.as_bytes()[..], &seq.to_be_bytes()].concat()
}
