//! What the runtime remembers of message ids: how often a message failed, and that it was handled.
//!
//! ```text
//! key                                   value
//! | retry: | message id |               | worker u64 | retryable u32 | other u32 |   one for each worker it was sent to
//! | seen:  | worker u64be | message id | | handled i64 | expires i64 | payload length u32 | payload hash u64 |
//! | retry# | SHA-256 of the id |         as `retry:`, for an id with which that key would be longer than a key may be
//! | seen#  | worker u64be | the same |   as `seen:`
//! ```
//!
//! Values are little-endian. One id may be used for messages to several workers, as in a pipeline; they fail and are remembered
//! apart.

use kauri_wire::{Key, MessageRef, RetryKey, Timestamp, WorkerId};
use twox_hash::XxHash3_64;

use crate::error::{Error, Result};
use crate::keys;
use crate::schema::DEDUPE;
use crate::substrate::{KeyRange, Limits, Rows, prefix_end};

const COUNTER_BYTES: usize = 16;

/// How often a message failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Failures {
    pub(crate) retryable: u32,
    pub(crate) fatal: u32,
}

/// Prefixes of the keys of retry counters: as the contract has them, and of ids that are too long for that.
const RETRY_PREFIXES: [&[u8]; 2] = [b"retry:", b"retry#"];

pub(crate) fn retry_key(takes: &Limits, id: &[u8]) -> Vec<u8> {
    match keys::folded(takes, RETRY_PREFIXES[0].len(), id) {
        (id, false) => RetryKey::encode(&id),
        (hash, true) => [RETRY_PREFIXES[1], &hash].concat(),
    }
}

/// How many retry counters there are.
pub(crate) fn count_counters(rows: &dyn Rows) -> Result<u64> {
    let count = |from: &[u8]| rows.count(&DEDUPE, KeyRange { from, until: prefix_end(from).as_deref() });
    Ok(count(RETRY_PREFIXES[0])? + count(RETRY_PREFIXES[1])?)
}

/// The failures of a worker's message, from the counters of its id.
pub(crate) fn failures(counters: Option<&[u8]>, worker: WorkerId) -> Result<Failures> {
    let counters = counters.unwrap_or_default();
    if !counters.len().is_multiple_of(COUNTER_BYTES) {
        return Err(Error::damaged("dedupe", "counters of 16 bytes each"));
    }
    Ok(counters.as_chunks::<COUNTER_BYTES>().0.iter().map(decode).find(|entry| entry.0 == worker).unwrap_or_default().1)
}

/// The counters with those of one worker changed; none if there are none left.
pub(crate) fn with_failures(counters: Option<&[u8]>, worker: WorkerId, failures: Failures) -> Option<Vec<u8>> {
    let others = counters.unwrap_or_default().as_chunks::<COUNTER_BYTES>().0.iter();
    let mut all: Vec<u8> = others.filter(|entry| decode(entry).0 != worker).flatten().copied().collect();
    if failures != Failures::default() {
        all.extend(worker.key_bits().to_le_bytes());
        all.extend(failures.retryable.to_le_bytes());
        all.extend(failures.fatal.to_le_bytes());
    }
    (!all.is_empty()).then_some(all)
}

fn decode(entry: &[u8; COUNTER_BYTES]) -> (WorkerId, Failures) {
    let worker = u64::from_le_bytes(std::array::from_fn(|at| entry[at]));
    let short = |from: usize| u32::from_le_bytes(std::array::from_fn(|at| entry[from + at]));
    (WorkerId::from_key_bits(worker), Failures { retryable: short(8), fatal: short(12) })
}

/// That a message was handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handled {
    pub(crate) at: Timestamp,
    pub(crate) expires: Timestamp,
    bytes: u32,
    hash: u64,
}

impl Handled {
    const BYTES: usize = 28;

    pub(crate) fn key(takes: &Limits, message: MessageRef<'_>) -> Vec<u8> {
        let worker = message.to().key_bits().to_be_bytes();
        // Room for the moment that stands before it in the other table.
        let (id, is_folded) = keys::folded(takes, 8 + 5 + worker.len(), message.id());
        [if is_folded { b"seen#" } else { b"seen:" }, &worker[..], &id].concat()
    }

    pub(crate) fn new(message: MessageRef<'_>, at: Timestamp, expires: Timestamp) -> Self {
        let payload = message.payload();
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        Self { at, expires, bytes, hash: XxHash3_64::oneshot(payload) }
    }

    /// Whether it was the same message, and not another with its id.
    pub(crate) fn is_same(&self, message: MessageRef<'_>) -> bool {
        let other = Self::new(message, self.at, self.expires);
        (self.bytes, self.hash) == (other.bytes, other.hash)
    }

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.expires.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[20..].copy_from_slice(&self.hash.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("dedupe", "what is remembered of a handled message, 28 bytes");
        let bytes: &[u8; Self::BYTES] = bytes.try_into().map_err(|_| damaged())?;
        let long = |from: usize| -> [u8; 8] { std::array::from_fn(|at| bytes[from + at]) };
        Ok(Self {
            at: Timestamp(i64::from_le_bytes(long(0))),
            expires: Timestamp(i64::from_le_bytes(long(8))),
            bytes: u32::from_le_bytes(std::array::from_fn(|at| bytes[16 + at])),
            hash: u64::from_le_bytes(long(20)),
        })
    }

    /// The key under which it is found when it expires.
    pub(crate) fn expiry_key(&self, key: &[u8]) -> Vec<u8> {
        [&self.expires.0.max(0).to_be_bytes()[..], key].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_count_apart_under_one_id() {
        let (ann, bob) = (WorkerId(1), WorkerId(-2));
        let once = Failures { retryable: 1, fatal: 0 };
        let counters = with_failures(None, ann, once).unwrap();
        let counters = with_failures(Some(&counters), bob, Failures { retryable: 0, fatal: 2 }).unwrap();
        assert_eq!(failures(Some(&counters), ann).unwrap(), once);
        assert_eq!(failures(Some(&counters), bob).unwrap().fatal, 2);
        let counters = with_failures(Some(&counters), ann, Failures::default()).unwrap();
        assert_eq!(failures(Some(&counters), ann).unwrap(), Failures::default());
        assert_eq!(with_failures(Some(&counters), bob, Failures::default()), None);
        assert!(failures(Some(&[1]), ann).is_err());
    }
}
