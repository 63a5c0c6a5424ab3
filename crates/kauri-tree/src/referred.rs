//! Runs that the log names: until a checkpoint holds what the log says, nothing else is written there.
//!
//! ```text
//! named ──its value is replaced──> spent ──a checkpoint that began later is durable──> free
//! ```
//!
//! Whoever opens the store does again what the log says since the last checkpoint, one record after the other, and a record whose runs
//! are not there is the end of it. So a run stays as it is although later records have replaced its value.

use std::collections::BTreeSet;

use crate::pager::Run;

/// The runs that the log names.
#[derive(Debug, Default)]
pub(crate) struct ReferredRuns {
    /// First pages of those named since the last checkpoint began.
    now: BTreeSet<u32>,
    /// Those named before, until a checkpoint is durable.
    before: BTreeSet<u32>,
    /// Those of both that nobody can see any more.
    spent: Vec<Run>,
}

impl ReferredRuns {
    /// The log names a run, if the transaction is committed.
    pub(crate) fn add(&mut self, first: u32) {
        self.now.insert(first);
    }

    /// It was not committed.
    pub(crate) fn forget(&mut self, first: u32) {
        self.now.remove(&first);
    }

    /// Keeps a run that nobody can see any more, if the log names it, and tells whether it does.
    pub(crate) fn keep(&mut self, run: Run) -> bool {
        let is_named = self.now.contains(&run.first) || self.before.contains(&run.first);
        if is_named {
            self.spent.push(run);
        }
        is_named && !planted!(ReuseReferredRun)
    }

    /// A checkpoint begins, and will hold everything that the log says so far.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.before.append(&mut self.now);
    }

    /// It is durable: the runs that are free now.
    pub(crate) fn end_checkpoint(&mut self) -> Vec<Run> {
        let before = std::mem::take(&mut self.before);
        self.spent.extract_if(.., |run| before.contains(&run.first)).collect()
    }

    /// The runs that are kept for the log alone.
    pub(crate) fn spent(&self) -> impl Iterator<Item = Run> + '_ {
        self.spent.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_free_when_a_checkpoint_is_durable_that_began_after_it_was_named() {
        let [first, second, third] = [10, 20, 30].map(|first| Run { first, pages: 2 });
        let mut runs = ReferredRuns::default();
        runs.add(10);
        runs.begin_checkpoint();
        runs.add(20);
        assert!(runs.keep(second) && runs.keep(first) && !runs.keep(third));
        assert_eq!(runs.end_checkpoint(), [first]);
        assert_eq!(runs.spent().collect::<Vec<_>>(), [second]);
        // A commit by pages begins as a checkpoint does, and ends with the next one.
        runs.begin_checkpoint();
        runs.begin_checkpoint();
        assert_eq!(runs.end_checkpoint(), [second]);
        assert!(!runs.keep(second), "nothing names it any more");
    }

    #[test]
    fn run_of_a_transaction_that_vanished_is_not_kept() {
        let mut runs = ReferredRuns::default();
        runs.add(10);
        runs.forget(10);
        assert!(!runs.keep(Run { first: 10, pages: 1 }));
    }
}
