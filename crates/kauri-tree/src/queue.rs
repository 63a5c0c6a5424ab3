//! The queue in which changes wait to be committed together.
//!
//! ```text
//! change ──> queue ──> the first in it leads: waits for the disk and for the writer's turn, takes all that have come by then,
//!                      ──> validates and applies one after the other, in one transaction ──> one commit ──> answers
//! ```
//!
//! While a leader waits for its commit to be durable, the next one gathers: what comes meanwhile could not be written sooner, and in one
//! transaction each page is copied once for all of it. If that is much, it is applied meanwhile. When the disk is idle again, those who
//! were just answered are about to come back: the leader lets them run first, a few times, as long as more come. A lone change, and one
//! after another, waits for nobody.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::change::{Outcome, Work};
use crate::durable::Durability;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::validate;
use crate::write::WriteTxn;

/// A group ends with the change that brings it to so many staged bytes: a record of the log holds it.
const GROUP_BYTES_MAX: usize = 256 << 10;

/// When so many staged bytes wait, they are applied while the disk is still busy with what came before.
const GATHER_BYTES_MAX: usize = 64 << 10;

/// How often a leader lets others run before it takes its group.
const YIELDS_MAX: usize = 32;

/// Of a group so small nobody is waited for.
const SMALL_GROUP: usize = 4;

/// Changes that wait, and whether somebody is about to take them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// At most one for each thread.
    entries: VecDeque<Entry>,
    /// The staged bytes of all of them.
    bytes: usize,
    /// How many were taken last.
    taken: usize,
    /// Somebody waits for the writer's turn, to take them.
    led: bool,
}

/// A change, and where its answer is waited for.
#[derive(Debug)]
struct Entry {
    work: Work,
    /// Until it is answered.
    desk: Option<Arc<Desk>>,
}

/// Where whoever committed a change waits.
#[derive(Debug, Default)]
struct Desk {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct News {
    told: Told,
    /// Somebody sleeps until there is some. A leader finds its own answer without sleeping, and waking nobody is a call to the system.
    awaited: bool,
}

/// What the one who waits has been told.
#[derive(Debug, Default)]
enum Told {
    #[default]
    Nothing,
    /// To lead the next group, in which the own change will be.
    Lead,
    /// How it ended. The work goes back to the thread that made it: memory is given back soonest where it was taken.
    Answer(Answer, Work),
}

/// How a change ended; a panic in the code of its types is a panic of the thread that wanted it.
#[derive(Debug)]
enum Answer {
    Outcome(Result<Outcome>),
    Panic(Box<dyn Any + Send>),
}

impl Answer {
    fn into_outcome(self) -> Result<Outcome> {
        match self {
            Self::Outcome(outcome) => outcome,
            Self::Panic(panic) => resume_unwind(panic),
        }
    }
}

impl Queue {
    /// Commits a change, together with others that wait. Whoever calls holds the snapshot that it was made against until this
    /// returns: validation relies on the pages of that version.
    pub(crate) fn commit(&self, store: &Store, work: Work) -> Result<Outcome> {
        let desk = Arc::new(Desk::default());
        if self.push(Entry { work, desk: Some(Arc::clone(&desk)) }) {
            self.lead(store);
        }
        loop {
            match desk.wait() {
                Told::Nothing => {}
                Told::Lead => self.lead(store),
                Told::Answer(answer, work) => {
                    drop(work);
                    return answer.into_outcome();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a change into the queue, and tells whether its owner is to lead.
    fn push(&self, entry: Entry) -> bool {
        let mut waiting = self.lock();
        waiting.bytes += entry.work.staged_bytes;
        waiting.entries.push_back(entry);
        !std::mem::replace(&mut waiting.led, true)
    }

    /// Takes the writer's turn, and commits what waits by then.
    fn lead(&self, store: &Store) {
        let lead = Lead(self);
        if self.is_shared() {
            store.wait_for_round();
            self.gather();
        }
        let txn = store.begin();
        let group = self.take();
        std::mem::forget(lead);
        commit_group(store, txn, group);
    }

    /// Whether several commit at a time, and not much: then it is worth gathering.
    fn is_shared(&self) -> bool {
        let waiting = self.lock();
        waiting.bytes < GATHER_BYTES_MAX && (waiting.entries.len() > 1 || waiting.taken > 1)
    }

    /// How many wait, and how many were taken last.
    fn sizes(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.entries.len(), waiting.taken)
    }

    /// Lets others run until most of those have come that were answered last, or no more come.
    fn gather(&self) {
        let mut before = 0;
        for _ in 0..YIELDS_MAX {
            let (here, taken) = self.sizes();
            if taken < SMALL_GROUP || here == before || here * 4 >= taken * 3 {
                return;
            }
            before = here;
            std::thread::yield_now();
        }
    }

    /// Takes a group. What is left is led by the first of it; the next one to come leads if nothing is.
    fn take(&self) -> Vec<Entry> {
        let mut waiting = self.lock();
        let (mut group, mut bytes) = (Vec::new(), 0);
        while bytes < GROUP_BYTES_MAX
            && let Some(entry) = waiting.entries.pop_front()
        {
            bytes += entry.work.staged_bytes;
            group.push(entry);
        }
        waiting.bytes -= bytes;
        waiting.taken = group.len();
        match waiting.entries.front() {
            Some(next) => next.tell(Told::Lead),
            None => waiting.led = false,
        }
        group
    }
}

/// Held by a leader that has not taken its group.
struct Lead<'a>(&'a Queue);

impl Drop for Lead<'_> {
    /// Only in a panic: those who wait for the leader are told, so that they do not wait for ever.
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.led = false;
        waiting.bytes = 0;
        waiting.entries.clear();
    }
}

impl Entry {
    fn tell(&self, news: Told) {
        if let Some(desk) = &self.desk {
            desk.tell(news);
        }
    }

    fn answer(mut self, answer: Answer) {
        let work = std::mem::take(&mut self.work);
        self.tell(Told::Answer(answer, work));
        self.desk = None;
    }
}

impl Drop for Entry {
    /// Whoever waits gets an answer, whatever happened to the leader.
    fn drop(&mut self) {
        let panic = Answer::Panic(Box::new("the thread that committed for others panicked"));
        self.tell(Told::Answer(panic, Work::default()));
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, told: Told) {
        let mut news = self.lock();
        news.told = told;
        let is_awaited = news.awaited;
        // Whoever is woken takes the lock at once.
        drop(news);
        if is_awaited {
            self.changed.notify_one();
        }
    }

    /// What there is to be told, as soon as there is something.
    fn wait(&self) -> Told {
        let mut news = self.lock();
        while matches!(news.told, Told::Nothing) {
            news.awaited = true;
            news = self.changed.wait(news).unwrap_or_else(PoisonError::into_inner);
        }
        news.awaited = false;
        std::mem::take(&mut news.told)
    }
}

/// Commits a group in one transaction, and answers everybody in it.
fn commit_group<'a>(store: &'a Store, mut txn: WriteTxn<'a>, group: Vec<Entry>) {
    let answers = match apply_plain(&mut txn, &group) {
        Some(answers) => answers,
        None => {
            // One of them failed half-way. From the start then, each in a nest of its own, so that the others stay whole.
            drop(txn);
            txn = store.begin();
            group.iter().map(|entry| apply_nested(&mut txn, &entry.work)).collect()
        }
    };
    let mut ended = end_transaction(store, txn, &group, &answers).err();
    let has_failed = ended.is_some();
    for (entry, answer) in group.into_iter().zip(answers) {
        entry.answer(match (has_failed, answer) {
            // The disk's own words can be told once.
            (true, Answer::Outcome(Ok(_))) => Answer::Outcome(Err(ended.take().unwrap_or(Error::Broken))),
            (_, answer) => answer,
        });
    }
}

/// Commits what was written, and waits until conflicts can be seen.
fn end_transaction(store: &Store, txn: WriteTxn<'_>, group: &[Entry], answers: &[Answer]) -> Result<()> {
    let is = |answer: &Answer, wanted: fn(&Outcome) -> bool| match answer {
        Answer::Outcome(Ok(outcome)) => wanted(outcome),
        Answer::Outcome(Err(_)) | Answer::Panic(_) => false,
    };
    let committed = group.iter().zip(answers).filter(|(_, answer)| is(answer, Outcome::is_committed));
    let wrote = committed.map(|(entry, _)| &entry.work).filter(|work| work.writes());
    match wrote.map(|work| work.durability).reduce(stronger) {
        Some(durability) => txn.commit_with(durability)?,
        None => drop(txn),
    }
    match answers.iter().any(|answer| is(answer, |outcome| !outcome.is_committed())) {
        // Whoever is told of a conflict looks again at once, and would find the old version and the same conflict until what
        // conflicts is published.
        true => store.wait_for_published(),
        false => Ok(()),
    }
}

fn stronger(left: Durability, right: Durability) -> Durability {
    match (left, right) {
        (Durability::Sync, _) | (_, Durability::Sync) => Durability::Sync,
        (Durability::Flush(left), Durability::Flush(right)) => Durability::Flush(left.min(right)),
        (Durability::None, other) | (other, Durability::None) => other,
    }
}

/// Validates and applies changes one after the other. `None` if one failed when a part of it may have been written.
fn apply_plain(txn: &mut WriteTxn<'_>, group: &[Entry]) -> Option<Vec<Answer>> {
    let mut answers = Vec::with_capacity(group.len());
    for Entry { work, .. } in group {
        answers.push(match guarded(|| validate::conflict(txn, work)) {
            Ok(Ok(Some(conflict))) => Answer::Outcome(Ok(conflict)),
            Ok(Ok(None)) => match guarded(|| validate::apply(txn, work)) {
                Ok(Ok(outcome)) => Answer::Outcome(Ok(outcome)),
                Ok(Err(_)) | Err(_) => return None,
            },
            Ok(Err(error)) => Answer::Outcome(Err(error)),
            Err(panic) => Answer::Panic(panic),
        });
    }
    Some(answers)
}

/// Validates and applies a change in a nested transaction, which vanishes if it fails.
fn apply_nested(txn: &mut WriteTxn<'_>, work: &Work) -> Answer {
    let applied = guarded(|| {
        let mut nest = txn.nest();
        if let Some(conflict) = validate::conflict(&nest, work)? {
            return Ok(conflict);
        }
        let outcome = validate::apply(&mut nest, work)?;
        nest.commit().map(|()| outcome)
    });
    applied.map_or_else(Answer::Panic, Answer::Outcome)
}

/// Runs code of a change's types. A transaction that it leaves half-way is dropped by whoever called, and so rolled back.
fn guarded<T>(run: impl FnOnce() -> T) -> std::thread::Result<T> {
    catch_unwind(AssertUnwindSafe(run))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "threads are what is tested")]
mod tests {
    use std::borrow::Cow;
    use std::cmp::Ordering;
    use std::thread;

    use kauri_wire::{Key, WireError};

    use super::*;
    use crate::change::Change;
    use crate::disk::MemoryDisk;
    use crate::read::{Read, Write};
    use crate::store::Options;
    use crate::table::Table;

    const ROWS: Table<u64, [u8]> = Table::new("rows");
    const LOG: Table<(u64, u64), u64> = Table::new("log");
    const BOMBS: Table<Bomb, u64> = Table::new("bombs");

    /// A key that cannot be compared with the key 13.
    struct Bomb;

    impl Key for Bomb {
        type Ref<'a> = u64;
        type View<'a> = u64;
        const BYTEWISE: bool = false;

        fn name() -> Cow<'static, str> {
            "bomb".into()
        }

        fn encode_into(key: u64, out: &mut Vec<u8>) {
            u64::encode_into(key, out);
        }

        fn decode(bytes: &[u8]) -> std::result::Result<u64, WireError> {
            u64::decode(bytes)
        }

        fn compare(left: &[u8], right: &[u8]) -> Ordering {
            assert!(left[7] != 13 && right[7] != 13, "unlucky");
            left.cmp(right)
        }
    }

    type Stage = dyn Fn(&mut Change<'_>) + Sync;

    /// Commits all these at once: they wait for a turn that is taken. Tells how each ended, and how far versions went on.
    fn commit_together(store: &Store, stages: &[&Stage]) -> (Vec<thread::Result<Result<Outcome>>>, u64) {
        let before = store.snapshot().version();
        let turn = store.begin();
        let answers = thread::scope(|scope| {
            let commit = |stage: &&Stage| {
                let mut change = Change::new(store.snapshot());
                stage(&mut change);
                store.commit(change)
            };
            let threads: Vec<_> = stages.iter().map(|stage| scope.spawn(move || commit(stage))).collect();
            while store.queue().lock().entries.len() < stages.len() {
                thread::yield_now();
            }
            drop(turn);
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        (answers, store.snapshot().version() - before)
    }

    fn stores() -> [Store; 2] {
        let disk = MemoryDisk::new();
        [Store::in_memory(), Options::new().log_bytes(1 << 22).open(&disk, "store")].map(|store| {
            let store = store.unwrap();
            let mut txn = store.begin();
            txn.put(&ROWS, 1, b"one").unwrap();
            txn.put(&LOG, (7, u64::MAX), 0).unwrap();
            txn.put(&BOMBS, 1, 1).unwrap();
            txn.commit().unwrap();
            store
        })
    }

    fn committed(sequences: &[u64]) -> Outcome {
        Outcome::Committed { sequences: sequences.to_vec() }
    }

    #[test]
    fn changes_that_wait_share_one_commit_and_all_append() {
        for store in stores() {
            let append = |change: &mut Change<'_>| change.append(&LOG, &5_u64.to_be_bytes(), 0).unwrap();
            let (answers, versions) = commit_together(&store, &[&append as &Stage; 8]);
            let mut sequences: Vec<u64> = answers
                .into_iter()
                .map(|answer| match answer.unwrap().unwrap() {
                    Outcome::Committed { sequences } => sequences[0],
                    conflict @ Outcome::Conflict { .. } => panic!("{conflict:?}"),
                })
                .collect();
            sequences.sort_unstable();
            assert_eq!(sequences, [1, 2, 3, 4, 5, 6, 7, 8]);
            // The turn that was given up and the group's transaction, two stamps each, and its version.
            assert_eq!(versions, 5);
            store.verify().unwrap();
        }
    }

    #[test]
    fn one_of_many_that_observed_the_same_commits() {
        for store in stores() {
            let count = |change: &mut Change<'_>| {
                let next = change.get(&ROWS, 1).unwrap().map_or(0, |value| value.len());
                change.put(&ROWS, 1, &vec![1; next + 1]).unwrap();
            };
            let (answers, _) = commit_together(&store, &[&count as &Stage; 6]);
            let outcomes: Vec<Outcome> = answers.into_iter().map(|answer| answer.unwrap().unwrap()).collect();
            let conflict = Outcome::Conflict { table: "rows".into(), key: 1_u64.to_be_bytes()[..].into() };
            assert_eq!(outcomes.iter().filter(|outcome| **outcome == conflict).count(), 5);
            assert_eq!(outcomes.iter().filter(|outcome| outcome.is_committed()).count(), 1);
            assert_eq!(store.snapshot().get(&ROWS, 1).unwrap().unwrap().len(), 4);
        }
    }

    #[test]
    fn change_that_fails_half_way_leaves_the_others_whole() {
        let fine = |key: u64| move |change: &mut Change<'_>| change.put(&ROWS, key, b"fine").unwrap();
        let at_the_end = |change: &mut Change<'_>| {
            change.put(&ROWS, 100, b"never").unwrap();
            change.append(&LOG, &7_u64.to_be_bytes(), 1).unwrap();
        };
        let unlucky = |change: &mut Change<'_>| {
            change.put(&ROWS, 101, b"never").unwrap();
            change.put(&BOMBS, 13, 1).unwrap();
        };
        let other_types = |change: &mut Change<'_>| change.put(&Table::<u64, u64>::new("rows"), 102, 1).unwrap();
        let appends = |change: &mut Change<'_>| change.append(&LOG, &5_u64.to_be_bytes(), 1).unwrap();
        for store in stores() {
            let (answers, _) =
                commit_together(&store, &[&fine(2), &at_the_end, &fine(3), &unlucky, &other_types, &appends]);
            assert_eq!(answers[0].as_ref().unwrap().as_ref().unwrap(), &committed(&[]));
            assert!(matches!(answers[1].as_ref().unwrap(), Err(Error::LastSequence { .. })));
            assert_eq!(answers[2].as_ref().unwrap().as_ref().unwrap(), &committed(&[]));
            assert_eq!(*answers[3].as_ref().unwrap_err().downcast_ref::<&str>().unwrap(), "unlucky");
            assert!(matches!(answers[4].as_ref().unwrap(), Err(Error::OtherTypes { .. })));
            assert_eq!(answers[5].as_ref().unwrap().as_ref().unwrap(), &committed(&[1]));
            let snapshot = store.snapshot();
            let keys: Result<Vec<u64>> = snapshot.scan(&ROWS).unwrap().map(|key, _| key).collect();
            assert_eq!((keys.unwrap(), snapshot.len(&LOG).unwrap()), (vec![1, 2, 3], 2));
            store.verify().unwrap();
        }
    }

    #[test]
    fn long_changes_go_in_several_groups() {
        for store in stores() {
            let long = |key: u64| move |change: &mut Change<'_>| change.put(&ROWS, key, &vec![1; 300 << 10]).unwrap();
            let short = |change: &mut Change<'_>| change.put(&ROWS, 9, b"short").unwrap();
            let (answers, versions) = commit_together(&store, &[&long(2), &short, &long(3), &long(4), &short]);
            assert!(answers.into_iter().all(|answer| answer.unwrap().unwrap().is_committed()));
            assert!(versions >= 7, "three groups at least, not {versions} stamps");
            assert_eq!(store.snapshot().len(&ROWS).unwrap(), 5);
            store.verify().unwrap();
        }
    }
}
