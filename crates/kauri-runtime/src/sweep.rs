//! Forgetting: ids that were remembered long enough.

use crate::error::{Error, Result};
use crate::metrics::Counter;
use crate::observe::Observation;
use crate::runtime::Runtime;
use crate::schema::{DEDUPE, DEDUPE_EXPIRY};
use crate::substrate::{Change, KeyRange, Seen};

/// How many ids one sweep forgets.
pub(crate) const SWEEP_ROWS_MAX: usize = 1000;

impl Runtime {
    /// Forgets up to `most` ids that have expired, the oldest first. Answers how many.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn sweep_dedupe(&self, most: usize) -> Result<usize> {
        let now = self.shared.clock.now().wall;
        let Some(until) = now.0.checked_add(1).filter(|until| *until > 0).map(i64::to_be_bytes) else { return Ok(0) };
        let done = self.shared.commit_until(|rows| {
            let mut change = Change::default();
            let mut scan = rows.scan(&DEDUPE_EXPIRY, KeyRange { from: &[], until: Some(&until) })?;
            let mut count = 0;
            while count < most {
                let Some((key, _)) = scan.next()? else { break };
                let Some((expires, handled)) = key.split_first_chunk::<8>() else {
                    return Err(Error::damaged("dedupe_expiry", "a moment and a key"));
                };
                change.remove(DEDUPE_EXPIRY, &key[..]);
                // An id that was handled again expires later, and has another row for it.
                let found = rows.get(&DEDUPE, handled)?;
                let is_same = found
                    .as_deref()
                    .is_some_and(|found| found.get(8..16).is_some_and(|at| at.iter().rev().eq(expires)));
                if is_same {
                    change.expect(DEDUPE, handled, Seen::of(found.as_deref()));
                    change.remove(DEDUPE, handled);
                }
                count += 1;
            }
            Ok((count > 0).then_some((change, count)))
        })?;
        let count = done.map_or(0, |(_, count)| count);
        if count > 0 {
            self.shared.metrics.add(Counter::Swept, count as u64);
            self.shared.observe(&Observation::Swept { rows: count });
        }
        Ok(count)
    }
}
