//! Ids of new runs: UUIDv7, in the order in which they are made, and none twice.
//!
//! ```text
//! | milliseconds 48 | 7 | number: 12 of 58 bits | 10 | 46 of 58 bits | check 16 |
//! ```
//!
//! The number is random when a millisecond begins, and goes upwards from there in steps by chance, as RFC 9562 has it: so runs that are
//! submitted together stand together in every table, and what is done with one after the other touches the same pages. The check is a hash of
//! what stands before it: it tells ids that a runtime made from those that somebody chose.
//!
//! No id is used again when its run is gone, whatever the clock and the source of chance do. Of the ids that were made the latest that is
//! gone is kept: another is later, and nobody can choose one that was made and is not. Ids that were chosen are kept for ever, each of them.

use kauri_wire::{RunId, Timestamp};
use twox_hash::XxHash3_64;

use super::fault::RunFault;
use super::index;
use super::make::{self, mark};
use crate::atomic::Atomic;
use crate::error::Result;
use crate::read::Read;
use crate::runtime::Shared;
use crate::schema::RUN_INDEX;
use crate::substrate::{Change, Rows, Seen};

/// How many numbers a millisecond has.
const NUMBERS: u64 = 1 << 58;
/// How far the first of them is from the last at least: room for more runs than any millisecond has.
const ROOM: u64 = 1 << 52;
/// The longest step from one number to the next, less one.
const STEP_MASK: u64 = (1 << 28) - 1;

/// The last id that was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RunIds {
    at: Timestamp,
    number: u64,
}

impl RunIds {
    pub(crate) const NONE: Self = Self { at: Timestamp(i64::MIN), number: 0 };

    /// Another id, later than this one. What `chance` answers makes it one that nobody else has.
    pub(crate) fn next(&mut self, now: Timestamp, after: Option<RunId>, mut chance: impl FnMut() -> u64) -> RunId {
        let after = after.map_or(Self::NONE, Self::of);
        let mut now = now;
        if now <= after.at {
            // The clock was ahead once: it goes on from there.
            *self = after.max(*self);
            now = self.at;
        }
        if now == self.at && self.number < NUMBERS - ROOM / 2 {
            self.number += 1 + (chance() & STEP_MASK);
        } else {
            let at = if now == self.at { Timestamp(now.0.saturating_add(1)) } else { now };
            *self = Self { at, number: chance() % (NUMBERS - ROOM) };
        }
        self.id()
    }

    fn id(self) -> RunId {
        let (first, rest) = (self.number >> 46, self.number << 16);
        let [.., a, b] = first.to_be_bytes();
        let [c, d, e, f, g, h, ..] = rest.to_be_bytes();
        let bare = RunId::from_parts(self.at, [a, b, c, d, e, f, g, h, 0, 0]);
        let [i, j] = check(bare);
        RunId::from_parts(self.at, [a, b, c, d, e, f, g, h, i, j])
    }

    /// Where an id stands among all.
    fn of(id: RunId) -> Self {
        let [.., a, b, c, d, e, f, g, h, _, _] = *id.as_bytes();
        let (first, rest) =
            (u64::from(a & 0x0f) << 8 | u64::from(b), u64::from_be_bytes([0, 0, c & 0x3f, d, e, f, g, h]));
        Self { at: id.created(), number: first << 46 | rest }
    }
}

/// A hash of what stands before the check in an id.
fn check(id: RunId) -> [u8; 2] {
    let [all @ .., _, _] = *id.as_bytes();
    let [.., i, j] = XxHash3_64::oneshot(&all).to_be_bytes();
    [i, j]
}

/// Whether a runtime made an id; of those that somebody chose, one in 65,536 looks so.
fn is_made(id: RunId) -> bool {
    id.as_bytes().ends_with(&check(id))
}

/// The latest id that was made and whose run is gone.
fn latest_gone(row: Option<&[u8]>) -> Result<Option<RunId>> {
    row.map(index::run_value).transpose()
}

/// An id that no run has or had.
pub(super) fn fresh(block: &Atomic<'_>, shared: &Shared) -> Result<RunId> {
    // It need not be observed: what goes meanwhile was made before, and whoever chooses this one meanwhile makes the run too.
    let gone = latest_gone(block.peek(&RUN_INDEX, index::LATEST_GONE)?.as_deref())?;
    loop {
        let id = shared.new_run_id(block.now().wall, gone);
        if make::find_run(block, id)?.is_none() && block.peek(&RUN_INDEX, &index::chosen(id))?.is_none() {
            return Ok(id);
        }
    }
}

/// Stages that somebody has chosen an id that no run has or had.
pub(super) fn choose(block: &mut Atomic<'_>, id: RunId) -> Result<()> {
    let gone = latest_gone(block.row(&RUN_INDEX, index::LATEST_GONE)?.as_deref())?;
    let chosen = index::chosen(id);
    let is_gone = is_made(id) && Some(id) <= gone || block.row(&RUN_INDEX, &chosen)?.is_some();
    if is_gone || make::find_run(block, id)?.is_some() {
        return Err(RunFault::RunExists(id).into());
    }
    mark(block, &chosen)
}

/// Stages that runs go.
pub(super) fn leave(change: &mut Change, rows: &dyn Rows, runs: &[RunId]) -> Result<()> {
    let row = rows.get(&RUN_INDEX, index::LATEST_GONE)?;
    let before = latest_gone(row.as_deref())?;
    let mut latest = before;
    for id in runs.iter().copied().filter(|id| is_made(*id)) {
        // What was chosen may be of any time, and says of itself that it is used.
        if Some(id) > latest && rows.get(&RUN_INDEX, &index::chosen(id))?.is_none() {
            latest = Some(id);
        }
    }
    if let Some(latest) = latest.filter(|_| latest != before) {
        change.expect(RUN_INDEX, index::LATEST_GONE, Seen::of(row.as_deref()));
        change.put(RUN_INDEX, index::LATEST_GONE, *latest.as_bytes());
    }
    Ok(())
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
                let id = ids.next(Timestamp(at), None, || chance.next_u64());
                assert!(last < Some(id), "{id} does not follow {last:?}");
                assert!(is_made(id) && (RunIds::of(id), id.created()) == (ids, Timestamp(at)));
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
            assert!(seen.insert(ids.next(Timestamp(number % 3), None, || chance.next_u64())));
        }
    }

    #[test]
    fn ids_are_later_than_what_is_gone_whatever_the_clock_says() {
        let mut chance = Chance::new(7);
        let mut ids = RunIds::NONE;
        let mut gone = None;
        for number in 0_i64..10_000 {
            let id = ids.next(Timestamp(number * 7919 % 100), gone, || chance.next_u64());
            assert!(gone < Some(id), "{id} does not follow {gone:?}");
            if number % 3 == 0 {
                gone = Some(id);
            }
            if number % 5 == 0 {
                // As after a start, with the same chance.
                (ids, chance) = (RunIds::NONE, Chance::new(7));
            }
        }
        assert!(gone.unwrap().created() < Timestamp(110), "and no later than they need be");
    }

    #[test]
    fn numbers_that_near_their_end_begin_anew_in_the_next_millisecond() {
        let full = RunIds { at: Timestamp(5), number: NUMBERS - ROOM / 2 };
        for gone in [None, Some(full.id())] {
            let mut ids = full;
            let id = ids.next(Timestamp(5), gone, || 3);
            assert_eq!((ids, id > full.id()), (RunIds { at: Timestamp(6), number: 3 }, true));
        }
    }

    #[test]
    fn ids_that_somebody_chose_are_told_from_those_that_were_made() {
        let mut chance = Chance::new(7);
        let mut chosen =
            || RunId::from_parts(Timestamp(5), std::array::from_fn(|_| chance.next_u64().to_le_bytes()[0]));
        assert!((0..10_000).filter(|_| is_made(chosen())).count() <= 3);
    }
}
