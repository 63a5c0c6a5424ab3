//! Leases: who works on what, and until when.
//!
//! ```text
//!  0      4           12                  20               24                32
//!  | LSE0 | owner u64 | deadline_ms u64   | deliveries u32 | incarnation u64 | seq u64 | seq u64 | ...   little-endian
//! ```
//!
//! A row says which messages of a worker's inbox one instance of it has. Its key is `[worker u64be][owner u64be]`: an instance has one
//! lease at a time, over a whole batch, so that claiming costs a row and not a row per message. Messages that others take over, or
//! that are cancelled, are taken out of the row.
//!
//! The deadline is a moment of the monotonic clock of that incarnation of the runtime, so no jump of the wall clock ends or prolongs
//! a lease. A store is open in one process at a time: a lease of an earlier incarnation is nobody's, and its message can be
//! claimed at once. The exact bytes of a row are the token that a step's commit demands, and that its messages are still in the
//! inbox: whoever lost one commits nothing of it, whatever the clocks did.

use std::time::Duration;

use kauri_wire::{Seq, WorkerId};

use crate::error::{Error, Result};
use crate::time::Mono;

/// How many bytes a lease has.
pub(crate) const LEASE_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"LSE0";

/// Who has messages, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The instance of a worker that claimed it.
    pub owner: u64,
    /// When others may claim it.
    pub deadline: Mono,
    /// How often its messages were claimed, this time included.
    pub deliveries: u32,
    /// The incarnation of the runtime in which it was claimed.
    pub incarnation: u64,
}

impl Lease {
    /// Whether others have to leave the message alone.
    #[must_use]
    pub fn is_live(&self, now: Mono, incarnation: u64) -> bool {
        self.incarnation == incarnation && now.millis() < self.deadline.millis()
    }

    /// The lease of whoever claims the message next; none while the present one is live.
    #[must_use]
    pub fn claim(present: Option<Self>, owner: u64, now: Mono, term: Duration, incarnation: u64) -> Option<Self> {
        let deliveries = match present {
            Some(lease) if lease.is_live(now, incarnation) => return None,
            Some(lease) => lease.deliveries.saturating_add(1),
            None => 1,
        };
        Some(Self { owner, deadline: now + term, deliveries, incarnation })
    }

    /// The lease's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; LEASE_BYTES] {
        let mut bytes = [0; LEASE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..12].copy_from_slice(&self.owner.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.deadline.millis().to_le_bytes());
        bytes[20..24].copy_from_slice(&self.deliveries.to_le_bytes());
        bytes[24..].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes
    }

    /// Reads a lease.
    ///
    /// # Errors
    /// `Damaged` if the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("leases", "a lease of 32 bytes that begins with LSE0");
        let bytes: &[u8; LEASE_BYTES] = bytes.try_into().map_err(|_| damaged())?;
        if bytes[..4] != MAGIC {
            return Err(damaged());
        }
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        Ok(Self {
            owner: long(4),
            deadline: Mono::from_millis(long(12)),
            deliveries: u32::from_le_bytes(std::array::from_fn(|index| bytes[20 + index])),
            incarnation: long(24),
        })
    }
}

/// The key of an instance's lease.
pub(crate) fn row_key(worker: WorkerId, owner: u64) -> [u8; 16] {
    (u128::from(worker.key_bits()) << 64 | u128::from(owner)).to_be_bytes()
}

/// A lease's row: who has which messages.
pub(crate) fn encode_row(lease: &Lease, seqs: impl IntoIterator<Item = Seq>) -> Vec<u8> {
    let mut row = lease.encode().to_vec();
    seqs.into_iter().for_each(|seq| row.extend_from_slice(&seq.0.to_le_bytes()));
    row
}

/// How long a row is that has so many messages.
pub(crate) const fn row_bytes(messages: usize) -> usize {
    LEASE_BYTES + messages * size_of::<u64>()
}

pub(crate) fn decode_row(row: &[u8]) -> Result<(Lease, Vec<Seq>)> {
    let damaged = || Error::damaged("leases", "a lease and sequence numbers of eight bytes each");
    let (lease, seqs) = row.split_at_checked(LEASE_BYTES).ok_or_else(damaged)?;
    let (seqs, rest) = seqs.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(damaged());
    }
    Ok((Lease::decode(lease)?, seqs.iter().map(|seq| Seq(u64::from_le_bytes(*seq))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u64 = 1;
    const BOB: u64 = 2;

    fn held() -> Lease {
        Lease { owner: ANN, deadline: Mono::from_millis(10), deliveries: 3, incarnation: 5 }
    }

    fn check(present: Option<Lease>, now: u64, incarnation: u64, expected: Option<u32>) {
        let claimed = Lease::claim(present, BOB, Mono::from_millis(now), Duration::from_millis(7), incarnation);
        assert_eq!(claimed.map(|lease| lease.deliveries), expected);
        if let Some(lease) = claimed {
            assert_eq!(
                (lease.owner, lease.deadline, lease.incarnation),
                (BOB, Mono::from_millis(now + 7), incarnation)
            );
        }
    }

    #[test]
    fn message_without_a_lease_can_be_claimed() {
        check(None, 9, 5, Some(1));
    }

    #[test]
    fn live_lease_cannot_be_claimed_and_an_expired_one_can() {
        check(Some(held()), 9, 5, None);
        check(Some(held()), 10, 5, Some(4));
    }

    #[test]
    fn lease_of_an_earlier_incarnation_is_nobodys() {
        check(Some(held()), 0, 6, Some(4));
    }

    #[test]
    fn rows_of_leases_survive_the_trip_and_other_bytes_are_refused() {
        let row = encode_row(&held(), [Seq(7), Seq(u64::MAX)]);
        assert_eq!(decode_row(&row).unwrap(), (held(), vec![Seq(7), Seq(u64::MAX)]));
        assert!(decode_row(&row[..47]).is_err() && decode_row(b"").is_err());
    }

    #[test]
    fn leases_survive_the_trip_and_other_bytes_are_refused() {
        assert_eq!(Lease::decode(&held().encode()).unwrap(), held());
        for bad in [&b""[..], &[0; 32], &held().encode()[..31]] {
            assert!(Lease::decode(bad).unwrap_err().is_corruption());
        }
    }
}
