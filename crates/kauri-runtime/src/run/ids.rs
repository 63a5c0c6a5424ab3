//! Ids of new runs: UUIDv7, and in the order in which they are made.
//!
//! ```text
//! | milliseconds 48 | 7 | random 12 | 10 | random 62, from there on upwards in steps by chance |
//! ```
//!
//! Those of one millisecond follow each other, as RFC 9562 has it: so runs that are submitted together stand together in every table, and
//! what is done with one after the other touches the same pages.

use kauri_wire::{RunId, Timestamp};

/// How far the last number may be from its end when a millisecond begins: room for more runs than any begins with.
const START_MAX: u64 = (1 << 62) - (1 << 52);
/// The longest step from one number to the next, less one.
const STEP_MASK: u64 = (1 << 32) - 1;

/// The last id that was made.
#[derive(Debug)]
pub(crate) struct RunIds {
    at: Timestamp,
    first: u16,
    rest: u64,
}

impl RunIds {
    pub(crate) const NONE: Self = Self { at: Timestamp(i64::MIN), first: 0, rest: 0 };

    /// Another id. What `chance` answers makes it one that nobody else has.
    pub(crate) fn next(&mut self, now: Timestamp, mut chance: impl FnMut() -> u64) -> RunId {
        if now == self.at && self.rest < START_MAX + (1 << 51) {
            self.rest += 1 + (chance() & STEP_MASK);
        } else {
            let first = chance().to_le_bytes();
            *self = Self { at: now, first: u16::from_le_bytes([first[0], first[1]]), rest: chance() % START_MAX };
        }
        let mut random = [0; 10];
        random[..2].copy_from_slice(&self.first.to_be_bytes());
        random[2..].copy_from_slice(&self.rest.to_be_bytes());
        RunId::from_parts(now, random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Chance;

    #[test]
    fn ids_of_one_millisecond_follow_each_other_and_none_comes_twice() {
        let mut chance = Chance::new(7);
        let (mut ids, mut last) = (RunIds::NONE, None);
        for at in 0..20 {
            for _ in 0..1_000 {
                let id = ids.next(Timestamp(at), || chance.next_u64());
                assert!(last < Some(id), "{id} does not follow {last:?}");
                last = Some(id);
            }
        }
    }

    #[test]
    fn clock_that_goes_back_makes_older_ids_and_none_twice() {
        let mut chance = Chance::new(7);
        let mut ids = RunIds::NONE;
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..10_000 {
            assert!(seen.insert(ids.next(Timestamp(number % 3), || chance.next_u64())));
        }
    }

    #[test]
    fn numbers_that_near_their_end_begin_anew() {
        let mut ids = RunIds { at: Timestamp(5), first: 9, rest: START_MAX + (1 << 51) };
        let id = ids.next(Timestamp(5), || 3);
        assert_eq!((id, ids.rest), (RunId::from_parts(Timestamp(5), [0, 3, 0, 0, 0, 0, 0, 0, 0, 3]), 3));
    }
}
