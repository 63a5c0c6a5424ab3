//! What a program promised, and when: the clock is the number of operations on its disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::SimDisk;

/// How far a program had come. Commits are numbered from 1, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// The last commit that was acknowledged: it and all before it must survive.
    pub acked: u64,
    /// The last commit that was begun: none after it can be there.
    pub started: u64,
}

/// Takes down when a program begins its commits and when it acknowledges them. A handle: its clones are the same notes.
#[derive(Clone, Debug)]
pub struct Acks {
    disk: SimDisk,
    life: u32,
    timeline: Arc<Mutex<Timeline>>,
}

/// Progress by number of operations, in order.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    entries: Vec<(usize, Progress)>,
}

impl Acks {
    /// Takes notes of a first life on this disk, outside of any search.
    #[must_use]
    pub fn of(disk: &SimDisk) -> Self {
        Self::new(disk, 0, Timeline::new(Progress::default()))
    }

    pub(crate) fn new(disk: &SimDisk, life: u32, timeline: Timeline) -> Self {
        Self { disk: disk.clone(), life, timeline: Arc::new(Mutex::new(timeline)) }
    }

    /// Says that this commit is begun: from now on a crash may leave it. A commit that failed may be begun again.
    pub fn started(&self, commit: u64) {
        self.note(|progress| {
            assert!(commit == progress.started || commit == progress.started + 1, "commits are begun in order");
            progress.started = commit;
        });
    }

    /// Says that this commit is acknowledged: from now on a crash must leave it.
    pub fn acked(&self, commit: u64) {
        self.note(|progress| {
            assert!(progress.acked < commit && commit <= progress.started, "a commit is begun, then acknowledged");
            progress.acked = commit;
        });
    }

    /// Which life this is: 0 before the first crash.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.life
    }

    /// How far the program has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.timeline().at(usize::MAX)
    }

    pub(crate) fn into_timeline(self) -> Timeline {
        self.timeline().clone()
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        let op = self.disk.ops();
        let mut timeline = self.timeline();
        let mut progress = timeline.at(usize::MAX);
        change(&mut progress);
        timeline.add(op, progress);
    }

    fn timeline(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Timeline {
    pub(crate) fn new(progress: Progress) -> Self {
        Self { entries: vec![(0, progress)] }
    }

    pub(crate) fn add(&mut self, op: usize, progress: Progress) {
        assert!(self.entries.last().is_none_or(|last| last.0 <= op), "operations are counted upwards");
        self.entries.push((op, progress));
    }

    /// How far the program had come when so many operations had returned.
    pub(crate) fn at(&self, op: usize) -> Progress {
        let after = self.entries.partition_point(|entry| entry.0 <= op);
        self.entries[after - 1].1
    }

    /// The boundaries at which something was acknowledged.
    pub(crate) fn marks(&self) -> Vec<usize> {
        let acked = self.entries.windows(2).filter(|pair| pair[0].1.acked != pair[1].1.acked);
        let mut marks: Vec<usize> = acked.map(|pair| pair[1].0).collect();
        marks.dedup();
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_tree::disk::Disk;

    #[test]
    fn progress_is_known_at_every_operation() {
        let disk = SimDisk::new();
        let acks = Acks::new(&disk, 0, Timeline::new(Progress::default()));
        let operate = |count| (0..count).for_each(|_| disk.sync_dir().expect("no fault"));
        operate(2);
        acks.started(1);
        operate(3);
        acks.acked(1);
        acks.started(2);
        let timeline = acks.into_timeline();
        let seen: Vec<_> = (0..7).map(|op| (timeline.at(op).acked, timeline.at(op).started)).collect();
        assert_eq!(seen, [(0, 0), (0, 0), (0, 1), (0, 1), (0, 1), (1, 2), (1, 2)]);
        assert_eq!(timeline.marks(), [5]);
    }
}
