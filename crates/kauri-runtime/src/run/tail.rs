//! Following a run: its events as they come.

use std::sync::Arc;
use std::time::Duration;

use kauri_wire::RunId;

use super::event::{Stored, damaged, read};
use super::make;
use super::runs::Runs;
use crate::error::{Error, Result};
use crate::substrate::Signal;

impl Runs {
    /// Follows the events of a run from this number on.
    ///
    /// # Errors
    /// `NoRun`, or if the substrate fails.
    pub fn tail(&self, run: RunId, from: u64) -> Result<Tail> {
        self.run(run)?;
        let signal = self.shared().followed(run);
        let (next, looked) = (from.max(1), Looked::Nothing);
        Ok(Tail { runs: self.clone(), run, next, signal, seen: 0, looked, is_over: false })
    }
}

/// After events more come soon: a follower looks again after so long, and only if nothing came asks to be woken. So a stream that flows wakes
/// nobody, and costs whoever writes it nothing, however many follow; and an event after a pause is seen at once.
const SOON: Duration = Duration::from_millis(1);

/// A run's events as they come: each once, in order, none left out.
///
/// It reads the store, and is only woken by watches: so a hint too few or too many changes nothing.
#[derive(Debug)]
pub struct Tail {
    runs: Runs,
    run: RunId,
    next: u64,
    signal: Arc<Signal>,
    /// How often the signal had been raised when the store was last looked at.
    seen: u64,
    looked: Looked,
    is_over: bool,
}

/// What the last look came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Looked {
    Nothing,
    /// There were events, and they were all.
    All,
    /// It ended before the events did.
    Some,
}

impl Tail {
    /// Up to `most` events that are there and were not answered before; none if there are none yet, or no more.
    ///
    /// # Errors
    /// If the substrate fails or a row is damaged.
    pub fn next(&mut self, most: usize) -> Result<Vec<Stored>> {
        // Asked for before the rows are: whatever is committed after this look is waited for.
        self.seen = self.signal.count();
        let (run, next) = (self.run, self.next);
        let (last, found) = self.runs.read(|view| {
            let row = make::run(view, run)?;
            let last = row.outcome().is_some().then_some(row.events);
            Ok::<_, Error>((last, read(view, run, next, most)?))
        })?;
        for event in &found {
            if event.seq != self.next {
                return Err(damaged());
            }
            self.next += 1;
        }
        self.looked = match found.len() {
            0 => Looked::Nothing,
            count if count == most => Looked::Some,
            _ => Looked::All,
        };
        self.is_over = last.is_some_and(|last| self.next > last);
        Ok(found)
    }

    /// Whether the run has ended and every event of it was answered.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns when there may be more, or when the time is over; at once if the last look did not see all, or all of the end.
    pub fn wait(&self, most: Option<Duration>) {
        if self.is_over || self.looked == Looked::Some {
            return;
        }
        let mut most = most;
        if self.looked == Looked::All {
            let soon = most.map_or(SOON, |most| most.min(SOON));
            self.signal.nap(self.seen, soon);
            most = most.map(|most| most - soon);
        }
        self.signal.wait(self.seen, most);
    }

    /// What is raised when there may be more, for whoever waits for several things.
    #[must_use]
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}
