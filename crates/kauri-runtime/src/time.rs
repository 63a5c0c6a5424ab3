//! Time and chance, as they are given to the runtime: it asks nobody else.

use std::ops::Add;
use std::time::Duration;

use kauri_wire::Timestamp;

use crate::substrate::Signal;

/// A moment of the clock that never jumps: how long it has run. Leases and deadlines of running work are measured with it.
///
/// It has a meaning only within one incarnation of a runtime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Mono(pub Duration);

impl Mono {
    /// The moment this many milliseconds after the clock's start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Whole milliseconds since the clock's start.
    #[must_use]
    pub fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// How long it is from `earlier` to this moment; nothing if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Mono {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

/// The present, on both clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Never jumps.
    pub mono: Mono,
    /// What people and timers go by; it may jump.
    pub wall: Timestamp,
}

/// Where the time comes from, and how to let some of it pass.
pub trait Clock: Send + Sync {
    /// The present.
    fn now(&self) -> Now;

    /// Returns when this much time has passed.
    fn sleep(&self, pause: Duration);

    /// Returns when this much time has passed, or earlier if the signal was raised after `seen` was [asked for](Signal::count). A clock that does not go
    /// by itself moves instead of waiting.
    fn wait(&self, signal: &Signal, seen: u64, most: Duration) {
        signal.wait(seen, Some(most));
    }
}

/// Numbers that look random and follow from a seed (SplitMix64). For jitter, not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A pause between half of `most` and all of it.
    pub(crate) fn jitter(&mut self, most: Duration) -> Duration {
        let half = most / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        if nanos == 0 { most } else { half + Duration::from_nanos(self.next_u64() % (nanos + 1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_between_half_and_all() {
        let mut chance = Chance::new(7);
        let most = Duration::from_micros(250);
        let pauses: Vec<Duration> = (0..1000).map(|_| chance.jitter(most)).collect();
        assert!(pauses.iter().all(|pause| (most / 2..=most).contains(pause)));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        assert_eq!(chance.jitter(Duration::ZERO), Duration::ZERO);
    }
}
