//! The queue in which changes and errands wait to be committed together.
//!
//! ```text
//! change ──> queue ──> the first in it leads: waits for the disk and for the writer's turn, takes all that have come by then,
//! errand ──>           ──> validates and applies one after the other, in one transaction ──> one commit ──> answers
//! ```
//!
//! Whoever commits a change waits for its answer, and leads if nobody does. Whoever posts an errand does not: the store's scribe leads.
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
use crate::errand::{Errand, Posted};
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

/// Changes and errands that wait, and whether somebody is about to take them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Changes, at most one for each thread; and errands.
    entries: VecDeque<Entry>,
    /// The staged bytes of all of them.
    bytes: usize,
    /// How many were taken last.
    taken: usize,
    leader: Leader,
}

/// Who is about to take what waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Leader {
    #[default]
    Nobody,
    /// The scribe was asked to. It may be held up by whoever hears of a commit on its thread, and whoever that is may commit something: so
    /// whoever waits for an answer leads instead.
    Scribe,
    /// A thread that waits for the writer's turn.
    Thread,
}

/// A change or an errand, and where its answer is waited for.
#[derive(Debug)]
struct Entry {
    task: Task,
    /// Until it is answered.
    desk: Option<Arc<Desk>>,
    /// Somebody waits for the answer, or is about to, and can be told to lead.
    is_attended: bool,
}

/// What is to be done in the writer's turn.
#[derive(Debug)]
enum Task {
    Change(Work),
    Errand(Errand),
    /// It was done, or will never be.
    None,
}

impl Task {
    fn bytes(&self) -> usize {
        match self {
            Self::Change(work) => work.staged_bytes,
            Self::Errand(errand) => errand.bytes,
            Self::None => 0,
        }
    }

    /// How durable it wants to be, if it writes something.
    fn durability(&self) -> Option<Durability> {
        match self {
            Self::Change(work) => work.writes().then_some(work.durability),
            Self::Errand(errand) => Some(errand.durability),
            Self::None => None,
        }
    }
}

/// Where whoever committed a change, or posted an errand, waits.
#[derive(Debug, Default)]
pub(crate) struct Desk {
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
    /// To lead the next group. The own change will be in it, or in one after it if much was posted before.
    Lead,
    /// How it ended. The task goes back to the thread that made it: memory is given back soonest where it was taken.
    Answer(Answer, Task),
}

/// How a task ended; a panic in its code, or in that of its types, is a panic of the thread that wanted it.
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

    fn is_committed(&self) -> bool {
        matches!(self, Self::Outcome(Ok(outcome)) if outcome.is_committed())
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Outcome(Ok(outcome)) if !outcome.is_committed())
    }
}

impl Queue {
    /// Commits a change, together with others that wait. Whoever calls holds the snapshot that it was made against until this
    /// returns: validation relies on the pages of that version.
    pub(crate) fn commit(&self, store: &Store, work: Work) -> Result<Outcome> {
        self.commit_task(store, Task::Change(work))
    }

    /// Does an errand, together with others that wait.
    pub(crate) fn perform(&self, store: &Store, errand: Errand) -> Result<Outcome> {
        self.commit_task(store, Task::Errand(errand))
    }

    fn commit_task(&self, store: &Store, task: Task) -> Result<Outcome> {
        let desk = Arc::new(Desk::default());
        let entry = Entry { task, desk: Some(Arc::clone(&desk)), is_attended: true };
        let mut waiting = self.lock();
        waiting.push(entry);
        let leads = waiting.is_to_be_led();
        drop(waiting);
        self.wait(store, &desk, leads)
    }

    /// Hands in an errand. The scribe leads it, if nobody else does; if there is none, whoever comes first.
    pub(crate) fn post(&self, store: &Store, errand: Errand) -> Posted {
        let desk = Arc::new(Desk::default());
        let entry = Entry { task: Task::Errand(errand), desk: Some(Arc::clone(&desk)), is_attended: false };
        let mut waiting = self.lock();
        waiting.push(entry);
        if waiting.leader == Leader::Nobody {
            waiting.ask_scribe(store);
        }
        drop(waiting);
        Posted { desk, store: store.downgrade() }
    }

    /// Waits until an errand is done; does it, if nobody is about to.
    pub(crate) fn settle(&self, store: &Store, desk: &Arc<Desk>) -> Result<Outcome> {
        let leads = !desk.has_news() && self.attend(desk);
        self.wait(store, desk, leads)
    }

    /// Notes that somebody waits for an errand. Tells whether that one is to lead: it was not taken, and nobody else is about to.
    fn attend(&self, desk: &Arc<Desk>) -> bool {
        let mut waiting = self.lock();
        let is_own = |entry: &&mut Entry| entry.desk.as_ref().is_some_and(|of| Arc::ptr_eq(of, desk));
        let Some(own) = waiting.entries.iter_mut().find(is_own) else { return false };
        own.is_attended = true;
        waiting.is_to_be_led()
    }

    /// Waits for an answer, and leads if it is to.
    fn wait(&self, store: &Store, desk: &Desk, leads: bool) -> Result<Outcome> {
        if leads {
            self.lead(store);
        }
        loop {
            match desk.wait() {
                Told::Nothing => {}
                Told::Lead => self.lead(store),
                Told::Answer(answer, task) => {
                    drop(task);
                    return answer.into_outcome();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the scribe does when it was asked to lead: nothing, if somebody was quicker.
    pub(crate) fn lead_if_asked(&self, store: &Store) {
        let mut waiting = self.lock();
        let is_asked = waiting.leader == Leader::Scribe;
        if is_asked {
            waiting.leader = Leader::Thread;
        }
        drop(waiting);
        if is_asked {
            self.lead(store);
        }
    }

    /// Takes the writer's turn, and commits what waits by then.
    fn lead(&self, store: &Store) {
        let lead = Lead(self);
        if self.is_shared() {
            store.wait_for_round();
            self.gather();
        }
        let txn = store.begin();
        let group = self.take(store);
        std::mem::forget(lead);
        commit_group(store, txn, group);
    }

    /// Does what nobody has done: nobody else will.
    pub(crate) fn finish(&self, store: &Store) {
        while !self.lock().entries.is_empty() {
            self.lead(store);
        }
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

    /// Takes a group. What is left is led by the first of it that somebody attends to, or by the scribe; the next one to come leads if
    /// nothing is left, or nobody is there to lead it.
    fn take(&self, store: &Store) -> Vec<Entry> {
        let mut waiting = self.lock();
        let (mut group, mut bytes) = (Vec::new(), 0);
        while bytes < GROUP_BYTES_MAX
            && let Some(entry) = waiting.entries.pop_front()
        {
            bytes += entry.task.bytes();
            group.push(entry);
        }
        waiting.bytes -= bytes;
        waiting.taken = group.len();
        waiting.leader = Leader::Nobody;
        if let Some(next) = waiting.entries.iter().find(|entry| entry.is_attended) {
            next.tell(Told::Lead);
            waiting.leader = Leader::Thread;
        } else if !waiting.entries.is_empty() {
            waiting.ask_scribe(store);
        }
        group
    }
}

impl Waiting {
    fn push(&mut self, entry: Entry) {
        self.bytes += entry.task.bytes();
        self.entries.push_back(entry);
    }

    /// Whether whoever waits for an answer is to lead, and does from now on.
    fn is_to_be_led(&mut self) -> bool {
        std::mem::replace(&mut self.leader, Leader::Thread) != Leader::Thread
    }

    /// Lets the scribe lead, if there is one.
    fn ask_scribe(&mut self, store: &Store) {
        if store.let_scribe_lead() {
            self.leader = Leader::Scribe;
        }
    }
}

/// Held by a leader that has not taken its group.
struct Lead<'a>(&'a Queue);

impl Drop for Lead<'_> {
    /// Only in a panic: those who wait for the leader are told, so that they do not wait for ever.
    fn drop(&mut self) {
        let given_up = std::mem::take(&mut *self.0.lock());
        // Not with the lock: what an errand holds may be the last handle of the store, which looks into the queue when it is closed.
        drop(given_up);
    }
}

impl Entry {
    fn tell(&self, news: Told) {
        if let Some(desk) = &self.desk {
            desk.tell(news);
        }
    }

    /// Does what comes when it is durable.
    fn say_then(&mut self, answer: &Answer) {
        if let (Task::Errand(errand), true) = (&mut self.task, answer.is_committed())
            && let Some(then) = errand.take_then()
        {
            // It is durable, whatever whoever hears of it does.
            let _ = guarded(then);
        }
    }

    fn answer(mut self, answer: Answer) {
        let task = std::mem::replace(&mut self.task, Task::None);
        self.tell(Told::Answer(answer, task));
        self.desk = None;
    }
}

impl Drop for Entry {
    /// Whoever waits gets an answer, whatever happened to the leader.
    fn drop(&mut self) {
        let panic = Answer::Panic(Box::new("the thread that committed for others panicked"));
        self.tell(Told::Answer(panic, Task::None));
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

    /// The answer that was given.
    pub(crate) fn answer(&self) -> Result<Outcome> {
        match std::mem::take(&mut self.lock().told) {
            Told::Answer(answer, _) => answer.into_outcome(),
            Told::Nothing | Told::Lead => unreachable!("nothing waits in the queue of a store that is closed"),
        }
    }

    fn has_news(&self) -> bool {
        !matches!(self.lock().told, Told::Nothing)
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
fn commit_group<'a>(store: &'a Store, txn: WriteTxn<'a>, mut group: Vec<Entry>) {
    let (txn, answers) = apply(store, txn, &mut group);
    if planted!(TellErrandTooSoon) {
        group.iter_mut().zip(&answers).for_each(|(entry, answer)| entry.say_then(answer));
    }
    let ended = end_transaction(store, txn, &group, &answers);
    answer_all(group.into_iter().zip(answers), ended);
}

/// Does what a group wants.
fn apply<'a>(store: &'a Store, mut txn: WriteTxn<'a>, group: &mut [Entry]) -> (WriteTxn<'a>, Vec<Answer>) {
    if let Some(answers) = apply_plain(&mut txn, group) {
        return (txn, answers);
    }
    // One of them failed half-way. From the start then, each in a nest of its own, so that the others stay whole.
    if !planted!(DoErrandTwice) {
        drop(txn);
        txn = store.begin();
    }
    let answers = group.iter_mut().map(|entry| apply_nested(&mut txn, &mut entry.task)).collect();
    (txn, answers)
}

/// Answers everybody in a group. What was done counts for nothing if its commit failed.
fn answer_all(group: impl IntoIterator<Item = (Entry, Answer)>, ended: Result<()>) {
    let (has_failed, mut why) = (ended.is_err(), ended.err());
    let mut answers: Vec<(Entry, Answer)> = group.into_iter().collect();
    for (entry, answer) in &mut answers {
        if has_failed && matches!(answer, Answer::Outcome(Ok(_))) {
            // The disk's own words can be told once.
            *answer = Answer::Outcome(Err(why.take().unwrap_or(Error::Broken)));
        }
        entry.say_then(answer);
    }
    // The last first: whoever settles many begins with the first, and is woken once.
    for (entry, answer) in answers.into_iter().rev() {
        entry.answer(answer);
    }
}

/// Commits what was written, and waits until conflicts can be seen.
fn end_transaction(store: &Store, txn: WriteTxn<'_>, group: &[Entry], answers: &[Answer]) -> Result<()> {
    match durability_of(group, answers) {
        Some(durability) => txn.commit_with(durability)?,
        None => drop(txn),
    }
    match answers.iter().any(Answer::is_conflict) {
        // Whoever is told of a conflict looks again at once, and would find the old version and the same conflict until what
        // conflicts is published.
        true => store.wait_for_published(),
        false => Ok(()),
    }
}

/// How durable a group is to be, if anything of it is to be written.
fn durability_of(group: &[Entry], answers: &[Answer]) -> Option<Durability> {
    let committed = group.iter().zip(answers).filter(|(_, answer)| answer.is_committed());
    committed.filter_map(|(entry, _)| entry.task.durability()).reduce(stronger)
}

fn stronger(left: Durability, right: Durability) -> Durability {
    match (left, right) {
        (Durability::Sync, _) | (_, Durability::Sync) => Durability::Sync,
        (Durability::Flush(left), Durability::Flush(right)) => Durability::Flush(left.min(right)),
        (Durability::None, other) | (other, Durability::None) => other,
    }
}

/// Does one task after the other. `None` if one failed, or was not to stay, when a part of it may have been written and others want to be.
fn apply_plain(txn: &mut WriteTxn<'_>, group: &mut [Entry]) -> Option<Vec<Answer>> {
    let is_alone = group.len() == 1;
    let mut answers = Vec::with_capacity(group.len());
    for Entry { task, .. } in group {
        let applied = match task {
            Task::Change(work) => match guarded(|| validate::conflict(txn, work)) {
                Ok(Ok(None)) => guarded(|| validate::apply(txn, work)),
                // It is found out before anything is written.
                found => {
                    answers.push(match found {
                        Ok(Ok(conflict)) => Answer::Outcome(Ok(conflict.expect("one was found"))),
                        Ok(Err(error)) => Answer::Outcome(Err(error)),
                        Err(panic) => Answer::Panic(panic),
                    });
                    continue;
                }
            },
            Task::Errand(errand) => guarded(|| errand.work(txn)),
            Task::None => unreachable!("it is done once"),
        };
        match applied {
            Ok(Ok(outcome)) if outcome.is_committed() || is_alone || planted!(KeepUnwantedErrand) => {
                answers.push(Answer::Outcome(Ok(outcome)));
            }
            Ok(_) | Err(_) => return None,
        }
    }
    Some(answers)
}

/// Does a task in a nested transaction, which vanishes if it fails or is not to stay.
fn apply_nested(txn: &mut WriteTxn<'_>, task: &mut Task) -> Answer {
    let applied = guarded(|| {
        let mut nest = txn.nest();
        let outcome = match task {
            Task::Change(work) => match validate::conflict(&nest, work)? {
                Some(conflict) => conflict,
                None => validate::apply(&mut nest, work)?,
            },
            Task::Errand(errand) => errand.work(&mut nest)?,
            Task::None => unreachable!("it is done once"),
        };
        if outcome.is_committed() {
            nest.commit()?;
        }
        Ok(outcome)
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
