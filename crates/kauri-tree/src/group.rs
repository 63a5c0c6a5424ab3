//! Group commit: many make records, whoever comes first writes them for all.
//!
//! ```text
//! made ────────────────> written ────────────> synced          three counts of records; each follows the one before
//!      push, by turns             lead, one at a time
//! ```
//!
//! Whoever waits for a record and finds nobody writing becomes the leader: it takes all records that wait, writes them with
//! one call, moves the counts on, and wakes the others. Meanwhile new records gather for the next leader. A lone committer
//! leads at once and waits for nobody.

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};

/// What a leader writes at once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Where in the file, and what.
    pub(crate) writes: Vec<(u64, Vec<u8>)>,
    /// It is to be durable when the write returns.
    pub(crate) sync: bool,
    /// Records before these were written and not synced, or pages that these name.
    pub(crate) unsynced: bool,
}

/// Where records go.
pub(crate) trait Sink {
    /// What is published when its record is written.
    type Version;
    /// Writes a batch. After an error nobody knows what of it was written.
    fn write(&self, batch: &Batch) -> Result<()>;
    /// Shows the newest version whose record is written.
    fn publish(&self, version: Self::Version);
}

/// How far a record must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// It is with the operating system.
    Written,
    /// It is on stable storage.
    Synced,
}

/// A record that was made and is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    number: u64,
    until: Until,
}

/// Records on their way to the file.
#[derive(Debug)]
pub(crate) struct Group<V> {
    queue: Mutex<Queue<V>>,
    moved: Condvar,
}

#[derive(Debug)]
struct Queue<V> {
    writes: Vec<(u64, Vec<u8>)>,
    newest: Option<V>,
    wants_sync: bool,
    /// Pages were written that a record among them names.
    refers: bool,
    made: u64,
    written: u64,
    synced: u64,
    /// Somebody is writing.
    busy: bool,
    /// How many writes have ended.
    rounds: u64,
    /// A write failed: no record after it is ever written.
    broken: bool,
}

impl<V> Queue<V> {
    fn has(&self, ticket: Ticket) -> bool {
        match ticket.until {
            Until::Written => ticket.number <= self.written,
            Until::Synced => ticket.number <= self.synced,
        }
    }
}

impl<V> Group<V> {
    pub(crate) fn new() -> Self {
        let queue = Queue {
            writes: Vec::new(),
            newest: None,
            wants_sync: false,
            refers: false,
            made: 0,
            written: 0,
            synced: 0,
            busy: false,
            rounds: 0,
            broken: false,
        };
        Self { queue: Mutex::new(queue), moved: Condvar::new() }
    }

    /// The record that comes next names pages that were written: who syncs it syncs them. Called by whoever has the turn.
    pub(crate) fn refer(&self) {
        lock(&self.queue).refers = !planted!(SyncWithoutReferred);
    }

    /// Adds a record that belongs at this place of the file. Called in the order of the records, by whoever has the turn.
    pub(crate) fn push(&self, at: u64, record: Vec<u8>, version: V, until: Until) -> Ticket {
        let mut queue = lock(&self.queue);
        match queue.writes.last_mut() {
            Some((start, bytes)) if *start + bytes.len() as u64 == at => bytes.extend_from_slice(&record),
            _ => queue.writes.push((at, record)),
        }
        queue.newest = Some(version);
        queue.wants_sync |= until == Until::Synced;
        queue.made += 1;
        Ticket { number: queue.made, until }
    }

    /// Returns when the write that is under way has ended, if one is: not when another is that began meanwhile.
    pub(crate) fn wait_for_round(&self) {
        let round = lock(&self.queue).rounds;
        self.wait_past(round);
    }

    fn wait_past(&self, round: u64) {
        let mut queue = lock(&self.queue);
        while queue.busy && queue.rounds == round {
            queue = wait(&self.moved, queue);
        }
    }

    /// A ticket for everything made so far.
    pub(crate) fn all(&self, until: Until) -> Ticket {
        Ticket { number: lock(&self.queue).made, until }
    }

    /// Returns when a record is as far as its ticket says. The first to wait writes for all.
    pub(crate) fn wait<S: Sink<Version = V>>(&self, ticket: Ticket, sink: &S) -> Result<()> {
        let mut queue = lock(&self.queue);
        while !queue.has(ticket) {
            if queue.broken {
                return Err(Error::Broken);
            }
            queue = match queue.busy {
                true => wait(&self.moved, queue),
                false => {
                    // Its record may have been written already, without a sync.
                    queue.wants_sync |= ticket.until == Until::Synced;
                    self.lead(queue, sink)?
                }
            };
        }
        Ok(())
    }

    /// Writes all records that wait, and shows the newest of their versions.
    fn lead<'a, S: Sink<Version = V>>(
        &'a self,
        mut queue: MutexGuard<'a, Queue<V>>,
        sink: &S,
    ) -> Result<MutexGuard<'a, Queue<V>>> {
        let batch = Batch {
            writes: std::mem::take(&mut queue.writes),
            sync: std::mem::take(&mut queue.wants_sync),
            unsynced: std::mem::take(&mut queue.refers) || queue.synced < queue.written,
        };
        let (mut newest, made) = (queue.newest.take(), queue.made);
        queue.busy = true;
        drop(queue);
        if planted!(PublishBeforeWritten)
            && let Some(version) = newest.take()
        {
            sink.publish(version);
        }
        let written = sink.write(&batch);
        if let (Ok(()), Some(version)) = (&written, newest) {
            // Before anybody is told that it is written: who asks then sees it.
            sink.publish(version);
        }
        let mut queue = lock(&self.queue);
        queue.busy = false;
        queue.rounds += 1;
        match written {
            Ok(()) => {
                let made = if planted!(AnswerTooMany) { queue.made } else { made };
                queue.written = made;
                if batch.sync {
                    queue.synced = made;
                }
            }
            Err(_) => queue.broken = !planted!(WriteOnAfterFailure),
        }
        self.moved.notify_all();
        written.map(|()| queue)
    }

    /// A checkpoint that holds everything up to this ticket is durable.
    pub(crate) fn cover(&self, ticket: Ticket) {
        let mut queue = lock(&self.queue);
        assert!(ticket.number <= queue.written, "a checkpoint begins when everything before it is written");
        let number = if planted!(CoverTooMuch) { queue.written } else { ticket.number };
        queue.synced = queue.synced.max(number);
    }

    /// Nothing is written any more: something else failed.
    pub(crate) fn give_up(&self) {
        lock(&self.queue).broken = true;
        self.moved.notify_all();
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// A file of records, written by one at a time.
    struct Log {
        /// The records in it, how many of them are synced, and the newest version shown.
        file: Mutex<(Vec<u8>, usize, u64)>,
        /// The write that fails, counted from 1.
        fails: usize,
        writes: Mutex<usize>,
    }

    impl Sink for Log {
        type Version = u64;

        fn write(&self, batch: &Batch) -> Result<()> {
            let mut writes = self.writes.try_lock().expect("one writes at a time");
            *writes += 1;
            if *writes == self.fails {
                return Err(Error::Full);
            }
            let mut file = lock(&self.file);
            for (at, bytes) in &batch.writes {
                assert_eq!(usize::try_from(*at).unwrap(), file.0.len(), "records are written once, in order");
                file.0.extend_from_slice(bytes);
            }
            assert_eq!(
                batch.unsynced,
                file.1 < file.0.len() - batch.writes.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
            );
            if batch.sync {
                file.1 = file.0.len();
            }
            Ok(())
        }

        fn publish(&self, version: u64) {
            let mut file = lock(&self.file);
            assert!(
                file.2 < version && version <= file.0.len() as u64,
                "versions are shown in order, when they are written"
            );
            file.2 = version;
        }
    }

    /// Threads that commit a record of one byte each, as far as they say.
    fn check(fails: usize, committers: &'static [Until]) {
        let mut model = loom::model::Builder::new();
        // Two threads are tried in every order; of three, those in which one is seldom stopped half-way.
        model.preemption_bound = (committers.len() > 2).then_some(2);
        model.check(move || {
            let log = Arc::new(Log { file: Mutex::new((Vec::new(), 0, 0)), fails, writes: Mutex::new(0) });
            let group = Arc::new(Group::new());
            let turn = Arc::new(Mutex::new(0));
            let commit = move |until| {
                let (log, group, turn) = (Arc::clone(&log), Arc::clone(&group), Arc::clone(&turn));
                move || {
                    let mut made = lock(&turn);
                    let at = *made;
                    *made += 1;
                    let ticket = group.push(at, vec![7], at + 1, until);
                    drop(made);
                    let done = group.wait(ticket, &*log);
                    let file = lock(&log.file);
                    assert_eq!(done.is_ok(), done.is_ok() && file.2 > at, "what is acknowledged is seen");
                    if done.is_ok() {
                        let far = if until == Until::Synced { file.1 } else { file.0.len() };
                        assert!(far as u64 > at, "what is acknowledged is as far as was asked");
                    } else {
                        assert!(fails > 0, "nothing fails by itself");
                    }
                }
            };
            let (last, first) = committers.split_last().unwrap();
            let threads: Vec<_> = first.iter().map(|until| thread::spawn(commit(*until))).collect();
            commit(*last)();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }

    #[test]
    fn what_is_acknowledged_is_written_once_in_order_and_seen() {
        check(0, &[Until::Synced, Until::Synced, Until::Synced]);
        check(0, &[Until::Written, Until::Synced]);
        check(0, &[Until::Written, Until::Written]);
    }

    #[test]
    fn a_failed_write_is_acknowledged_to_nobody_and_leaves_nobody_waiting() {
        check(1, &[Until::Synced, Until::Synced]);
        check(2, &[Until::Synced, Until::Written]);
    }
}

#[cfg(all(test, not(loom)))]
#[expect(clippy::disallowed_methods, reason = "threads that wait for each other are what is tested")]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// A file whose writes end when they are told to.
    struct Slow {
        began: SyncSender<()>,
        ends: Mutex<Receiver<()>>,
    }

    impl Sink for Slow {
        type Version = u64;

        fn write(&self, _: &Batch) -> Result<()> {
            self.began.send(()).expect("somebody looks");
            lock(&self.ends).recv().expect("somebody ends it");
            Ok(())
        }

        fn publish(&self, _: u64) {}
    }

    #[test]
    fn round_is_waited_for_until_the_write_under_way_has_ended_and_no_longer() {
        let ((began, begins), (end, ends)) = (sync_channel(8), sync_channel(8));
        let (group, file) = (Group::new(), Slow { began, ends: Mutex::new(ends) });
        // Nothing is written: nobody waits.
        group.wait_for_round();
        std::thread::scope(|scope| {
            let [first, second] = [1, 2].map(|number| group.push(number, vec![1], number, Until::Synced));
            let (group, file) = (&group, &file);
            scope.spawn(move || group.wait(first, file).unwrap());
            begins.recv().unwrap();
            let third = group.push(3, vec![1], 3, Until::Synced);
            let (round, waits) = (lock(&group.queue).rounds, scope.spawn(|| group.wait_for_round()));
            scope.spawn(move || group.wait(third, file).unwrap());
            end.send(()).unwrap();
            begins.recv().unwrap();
            // Another write is under way and does not end before this is over.
            group.wait_past(round);
            assert!(lock(&group.queue).has(second) && !lock(&group.queue).has(third));
            end.send(()).unwrap();
            waits.join().unwrap();
        });
    }
}
