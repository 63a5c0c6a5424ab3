//! Leases: who works on what, and until when.
//!
//! ```text
//!  0      4           12                  20               24                32
//!  | LSE0 | owner u64 | deadline_ms u64   | deliveries u32 | incarnation u64 |   little-endian
//! ```
//!
//! The deadline is a moment of the monotonic clock of that incarnation of the runtime, so no jump of the wall clock ends or prolongs
//! a lease. A store is open in one process at a time: a lease of an earlier incarnation is nobody's, and its message can be
//! claimed at once. The exact bytes of a lease are the token that a step's commit demands: whoever lost the lease commits
//! nothing, whatever the clocks did.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::time::Mono;

/// How many bytes a lease has.
pub(crate) const LEASE_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"LSE0";

/// Who has a message, and until when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The instance of a worker that claimed it.
    pub owner: u64,
    /// When others may claim it.
    pub deadline: Mono,
    /// How often the message was claimed, this time included.
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
    fn leases_survive_the_trip_and_other_bytes_are_refused() {
        assert_eq!(Lease::decode(&held().encode()).unwrap(), held());
        for bad in [&b""[..], &[0; 32], &held().encode()[..31]] {
            assert!(Lease::decode(bad).unwrap_err().is_corruption());
        }
    }
}
