//! The writer queue: many callers, one transaction, one sync.
//!
//! ```text
//! submit ─┐                      ┌─ BEGIN
//! submit ─┼─> waiting (1000) ─── │    the ops of each submission
//! submit ─┘      at most 100 ops └─ mark this batch, COMMIT ──> every caller hears how its own submission went
//!                                   or, if an op failed: ROLLBACK, and all of it again with a savepoint for each submission
//! ```
//!
//! The writer is a part that callers play in turn: whoever finds it free writes for all that wait. A lone caller so pays for its
//! own commit and nothing else, and a thread of the queue's own, with two hand-overs for each commit, is not needed. A batch is
//! written as soon as the one before is done, so nobody waits for a timer; what comes while its operations are carried out still
//! goes with it. Who is woken by whom in between, and why, is in [`crate::group`]. Tasks of asynchronous code cannot play it, because they
//! must not wait: a thread writes for them ([`Submitter`]).
//!
//! Each transaction writes its number into `writer_epochs`. After a commit whose answer was lost (the disk failed, the writer
//! panicked) that row says whether it happened, and a caller is told *unknown* only if even that cannot be read.

mod op;
pub(crate) mod session;
mod submitter;
#[cfg(test)]
mod tests;
mod transaction;

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

pub use self::op::{Op, Value};
use self::session::{Session, Sqlite, is_fatal};
pub use self::submitter::{Submitter, Submitting};
use self::transaction::{Ended, Progress, Submissions};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::group::{Group, Pace, Wake, gather};
use crate::patience::Patience;

/// How many submissions may wait.
pub const CAPACITY: usize = 1_000;
/// How many operations go into one transaction.
pub const BATCH_OPS_MAX: usize = 100;
/// How many submissions wait together, most of the time: room for so many is made at once.
const BATCH_MOSTLY: usize = 32;
/// How many batches one caller writes before it goes on with its own work: so many commits it may wait longer than others.
const BATCHES_IN_A_ROW_MAX: usize = 8;
/// How often a writer that panicked is started again.
pub const RESTARTS_MAX: u32 = 3;
/// How long it pauses before that.
pub const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// What a submission did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// How many rows its operations changed, together.
    pub rows: usize,
}

/// Names a transaction, also after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BatchKey {
    /// Counts the times that the queue was opened.
    pub epoch: i64,
    /// Counts transactions of that time.
    pub batch: i64,
}

impl fmt::Display for BatchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.batch)
    }
}

/// What the queue has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueueStats {
    /// Submissions that wait now.
    pub depth: usize,
    /// The most that ever waited.
    pub depth_max: usize,
    /// Transactions committed.
    pub batches: u64,
    /// Submissions in them.
    pub submissions: u64,
    /// The most submissions in one.
    pub batch_max: usize,
    /// How often a caller had to wait for a place.
    pub waits: u64,
    /// How often the writer was started again after a panic.
    pub restarts: u32,
    /// Whether the queue takes submissions.
    pub is_running: bool,
}

type Connect = dyn Fn() -> session::Answer<Box<dyn Session>> + Send + Sync;
type Alarm = dyn Fn(&str) + Send + Sync;

/// A queue of writes to one SQLite database. Clones are handles to the same queue.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    connect: Box<Connect>,
    clock: Arc<dyn Clock>,
    /// Told when the writer is given up.
    alarm: Box<Alarm>,
    capacity: usize,
    epoch: i64,
    state: Mutex<State>,
    /// How long transactions take.
    pace: Pace,
    /// How those wait whose submissions others write.
    patience: Patience,
    /// Whoever waits for a place in the queue.
    places: Condvar,
}

struct State {
    /// Who waits, in the order in which they are written.
    waiting: VecDeque<Batch>,
    /// How many submissions that is.
    depth: usize,
    /// How many submissions were answered together, the last time.
    told: usize,
    /// How many callers wait for a place, or for the end.
    outside: usize,
    /// Absent while somebody writes, and after trouble until the next connection.
    session: Option<Box<dyn Session>>,
    writing: bool,
    closed: Option<Closed>,
    batch: i64,
    /// Panics since something was last committed.
    panics: u32,
    stats: QueueStats,
}

/// Submissions that go into one transaction.
struct Batch {
    submissions: Vec<Vec<Op>>,
    /// How many operations they have, together.
    ops: usize,
    callers: Arc<Group<Answers>>,
}

/// One for each submission of a batch; taken by whoever made it, and by nobody else. It gets its operations back too: memory is best
/// given back by whoever asked for it, and not by the one for whom all others wait.
type Answers = Vec<Mutex<Option<(Result<Applied>, Vec<Op>)>>>;

/// Which of the threads that wait for a batch a caller is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// The one that is called when it is the batch's turn.
    First,
    Second,
    Other,
}

#[derive(Clone)]
enum Closed {
    ByCaller,
    GivenUp(String),
}

impl Queue {
    pub(crate) fn open(path: &Path, clock: Arc<dyn Clock>, alarm: Box<Alarm>, capacity: usize) -> Result<Self> {
        let (mut first, path): (_, PathBuf) =
            (session::connect(path).map_err(Error::sql("open the database"))?, path.into());
        let epoch = new_epoch(&mut first).map_err(Error::sql("open the writer queue"))?;
        let connect = move || -> session::Answer<Box<dyn Session>> {
            Ok(Box::new(Sqlite { connection: session::connect(&path)? }))
        };
        let first = Box::new(Sqlite { connection: first });
        Ok(Self::with(first, Box::new(connect), epoch, clock, alarm, capacity))
    }

    fn with(
        first: Box<dyn Session>,
        connect: Box<Connect>,
        epoch: i64,
        clock: Arc<dyn Clock>,
        alarm: Box<Alarm>,
        capacity: usize,
    ) -> Self {
        assert!(capacity > 0, "a queue has a place");
        let state = State {
            waiting: VecDeque::new(),
            depth: 0,
            told: 0,
            outside: 0,
            session: Some(first),
            writing: false,
            closed: None,
            batch: 0,
            panics: 0,
            stats: QueueStats::default(),
        };
        let (state, pace, places) = (Mutex::new(state), Pace::new(Arc::clone(&clock)), Condvar::new());
        let patience = Patience::new();
        Self { shared: Arc::new(Shared { connect, clock, alarm, capacity, epoch, state, pace, patience, places }) }
    }

    /// Executes one statement, and returns when it is durable.
    ///
    /// # Errors
    /// As [`submit_batch`](Self::submit_batch).
    pub fn submit(&self, sql: &'static str, args: impl IntoIterator<Item = Value>) -> Result<Applied> {
        self.submit_batch([Op::new(sql, args)])
    }

    /// Executes these operations, all or none, and returns when they are durable. Waits for a place if the queue is full.
    ///
    /// # Errors
    /// - `Sql` or `RowCount` if one of the operations failed: then none was applied;
    /// - `NotApplied` if the writer failed for another reason, and `QueueClosed`: none was applied;
    /// - `Unknown` if nobody knows; see [`Database::was_applied`](crate::Database::was_applied).
    pub fn submit_batch(&self, ops: impl IntoIterator<Item = Op>) -> Result<Applied> {
        let ops = ops.into_iter().collect();
        let mut state = self.state();
        if state.is_full(self.shared.capacity) {
            state.stats.waits += 1;
        }
        while state.is_full(self.shared.capacity) {
            state = self.wait_for_change(state);
        }
        self.enqueue(state, ops)
    }

    /// Like [`submit`](Self::submit), but does not wait for a place.
    ///
    /// # Errors
    /// `QueueFull` if there is none; otherwise as [`submit_batch`](Self::submit_batch).
    pub fn try_submit(&self, sql: &'static str, args: impl IntoIterator<Item = Value>) -> Result<Applied> {
        let state = self.state();
        if state.is_full(self.shared.capacity) {
            return Err(Error::QueueFull);
        }
        self.enqueue(state, vec![Op::new(sql, args)])
    }

    fn enqueue<'a>(&'a self, mut state: MutexGuard<'a, State>, ops: Vec<Op>) -> Result<Applied> {
        state.check_open()?;
        let (callers, at, place) = state.join(ops);
        loop {
            if !state.writing && state.waits(&callers) {
                self.write_first(state);
            } else {
                drop(state);
                match place {
                    Place::First => callers.wait_for_call(&self.shared.patience),
                    Place::Second => return take(callers.wait_second(&self.shared.patience), at),
                    Place::Other => return take(callers.wait(&self.shared.patience), at),
                }
            }
            if let Some(answers) = callers.end() {
                return take(answers, at);
            }
            state = self.state();
        }
    }

    /// Writes the batch that waits longest, then the next, some in a row, and has their callers woken. Who was answered comes again
    /// while the next batch is written, and goes with that or with the one after it.
    fn write_first<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        for _ in 0..BATCHES_IN_A_ROW_MAX {
            // Nobody else begins to write meanwhile.
            state.writing = true;
            let told = state.told;
            drop(state);
            gather(&self.shared.patience, told, || self.state().depth);
            state = self.state();
            // Taken whole, however large it is.
            let Some(first) = state.take(usize::MAX) else { break };
            let session = state.session.take();
            drop(state);
            let mut taken = Taken { queue: self, ops: 0, submissions: Vec::new(), groups: Vec::new() };
            taken.add(first);
            let (session, answers) = self.shared.pace.time(|| self.write(session, &mut taken));
            let count = answers.len();
            taken.tell(answers, self.shared.pace.wake());
            state = self.state();
            state.session = session;
            state.told = count;
        }
        state.writing = false;
        // Whoever waits longest writes next, unless another caller comes first.
        let next = state.waiting.front().map(|next| Arc::clone(&next.callers));
        let outside = state.outside;
        drop(state);
        next.into_iter().for_each(|next| next.call());
        if outside > 0 {
            self.shared.places.notify_all();
        }
    }

    /// Writes a batch. Returns the session, if it can be used again, and an answer for each submission.
    fn write(&self, session: Option<Box<dyn Session>>, batch: &mut dyn Submissions) -> Written {
        let number = match self.next_batch() {
            Ok(number) => number,
            Err(why) => return (None, not_applied(batch.all(), &why)),
        };
        let mut session = match session.map_or_else(|| (self.shared.connect)(), Ok) {
            Ok(session) => session,
            Err(error) => return (None, not_applied(batch.all(), &format!("the database cannot be opened: {error}"))),
        };
        let (key, mut progress) = ((self.shared.epoch, number), Progress::default());
        let ran = catch_unwind(AssertUnwindSafe(|| transaction::run(&mut *session, batch, key, &mut progress)));
        let batch = batch.all();
        let Progress { answers, is_committing } = progress;
        match ran {
            Ok(Ended::Answered) => {
                self.committed(batch.len());
                (Some(session), answers)
            }
            Ok(Ended::Refused) => (Some(session), answers),
            Ok(Ended::Aborted(at, error)) => {
                // A connection that failed is closed before the next is opened: it may still have a lock.
                let session = Some(session).filter(|_| !is_fatal(&error));
                self.aborted(session, batch, at, error)
            }
            Ok(Ended::Doubtful(why)) => {
                drop(session);
                self.settle(batch, answers, number, &why)
            }
            Err(panic) => {
                // The connection closes, and what it had not committed is gone.
                drop(session);
                let why = format!("the writer panicked: {}", words(&*panic));
                let (settled, answers) = match is_committing {
                    true => self.settle(batch, answers, number, &why),
                    false => (None, not_applied(batch, &why)),
                };
                (self.restart(settled, &why), answers)
            }
        }
    }

    /// The transaction is gone as a whole: the one at fault hears of it, the others are tried again, each by itself.
    fn aborted(
        &self,
        mut session: Option<Box<dyn Session>>,
        batch: &[Vec<Op>],
        at: Option<usize>,
        error: rusqlite::Error,
    ) -> Written {
        let (mut error, mut answers) = (Some(error), Vec::with_capacity(batch.len()));
        let is_alone = batch.len() == 1;
        for (number, ops) in batch.iter().enumerate() {
            let own = (is_alone || at == Some(number)).then(|| error.take()).flatten();
            if let Some(cause) = own {
                answers.push(Err(Error::Sql { doing: "write to the database", cause }));
                continue;
            }
            let (kept, answer) = self.write(session, &mut std::slice::from_ref(ops));
            session = kept;
            answers.extend(answer);
        }
        (session, answers)
    }

    /// Finds out whether a batch was committed, and makes sure that the answer stays true.
    fn settle(&self, batch: &[Vec<Op>], answers: Vec<Result<Applied>>, number: i64, why: &str) -> Written {
        let epoch = self.shared.epoch;
        let ask = || -> session::Answer<(Box<dyn Session>, bool)> {
            let mut session = (self.shared.connect)()?;
            let marked = session.marked(epoch)?.unwrap_or(0);
            // What a failed commit left in the database's own log must not come back, and what is seen of it must stay: a commit
            // after it says so for good. It writes what is there already, so that the answer is the same if this one fails too.
            session.begin()?;
            session.mark(epoch, marked)?;
            session.commit()?;
            Ok((session, marked == number))
        };
        let asked = catch_unwind(AssertUnwindSafe(ask)).map_err(|panic| words(&*panic));
        let asked = asked.and_then(|asked| asked.map_err(|error| error.to_string()));
        let is_applied = asked.as_ref().ok().map(|(_, is_applied)| *is_applied);
        let mut answers = answers.into_iter();
        let answer = |_| match (answers.next(), is_applied) {
            // Its own fault: undone before the commit was tried.
            (Some(Err(error)), _) => Err(error),
            (Some(answer), Some(true)) => answer,
            (_, None) => Err(Error::Unknown { key: BatchKey { epoch, batch: number }, why: why.to_owned() }),
            (_, Some(_)) => Err(Error::NotApplied { why: why.to_owned() }),
        };
        let answers = batch.iter().map(answer).collect();
        let session = match asked {
            Ok((session, _)) => Some(session),
            Err(error) => {
                // Further batches of this epoch would hide whether this one was committed.
                self.give_up(&format!("{why}; the database could not be asked: {error}"));
                None
            }
        };
        (session, answers)
    }

    /// After a panic: a new connection, a while later, a few times.
    fn restart(&self, session: Option<Box<dyn Session>>, why: &str) -> Option<Box<dyn Session>> {
        let mut session = session;
        loop {
            let panics = {
                let mut state = self.state();
                state.panics += 1;
                state.panics
            };
            if panics > RESTARTS_MAX {
                self.give_up(&format!("{why}; started again {RESTARTS_MAX} times in vain"));
                return None;
            }
            self.shared.clock.pause(RESTART_PAUSE);
            self.state().stats.restarts += 1;
            let connected = session.take().map_or_else(|| (self.shared.connect)(), Ok);
            if let Ok(session) = connected {
                return Some(session);
            }
        }
    }

    pub(crate) fn give_up(&self, why: &str) {
        let waiting = {
            let mut state = self.state();
            if matches!(state.closed, Some(Closed::GivenUp(_))) {
                return;
            }
            state.closed = Some(Closed::GivenUp(why.to_owned()));
            state.depth = 0;
            std::mem::take(&mut state.waiting)
        };
        for Batch { submissions, callers, .. } in waiting {
            callers.tell(to_be_taken(not_applied(&submissions, why).into_iter().zip(submissions)), Wake::All);
        }
        self.shared.places.notify_all();
        let alarm = || (self.shared.alarm)(&format!("writer queue: {why}"));
        // Whatever the alarm does, whoever waits for this batch is told of it.
        let _panicked = catch_unwind(AssertUnwindSafe(alarm));
    }

    /// The number of the next batch; or why there is none any more. A batch of this epoch after one that nobody knows about would
    /// hide whether that one was committed.
    fn next_batch(&self) -> std::result::Result<i64, String> {
        let mut state = self.state();
        if let Some(Closed::GivenUp(why)) = &state.closed {
            return Err(why.clone());
        }
        state.batch += 1;
        Ok(state.batch)
    }

    fn committed(&self, submissions: usize) {
        let mut state = self.state();
        state.panics = 0;
        state.stats.batches += 1;
        state.stats.submissions += submissions as u64;
        state.stats.batch_max = state.stats.batch_max.max(submissions);
    }

    /// Takes no more submissions, and returns when those that wait are done.
    pub fn close(&self) {
        let mut state = self.state();
        state.closed.get_or_insert(Closed::ByCaller);
        self.shared.places.notify_all();
        while state.writing || !state.waiting.is_empty() {
            if state.writing {
                state = self.wait_for_change(state);
            } else {
                self.write_first(state);
                state = self.state();
            }
        }
        state.session = None;
    }

    /// Sleeps until a batch is done: there is a place then, or nothing more to write.
    fn wait_for_change<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.outside += 1;
        let mut state = self.shared.places.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.outside -= 1;
        state
    }

    /// What the queue has done so far.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        let state = self.state();
        QueueStats { depth: state.depth, is_running: state.closed.is_none(), ..state.stats }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Panics of the writer happen outside of this lock.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_full(&self, capacity: usize) -> bool {
        self.depth >= capacity && self.closed.is_none()
    }

    fn check_open(&self) -> Result<()> {
        match &self.closed {
            Some(Closed::ByCaller) => Err(Error::QueueClosed),
            Some(Closed::GivenUp(why)) => Err(Error::NotApplied { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Adds a submission of the calling thread to those that wait. Answers where it is, and which place the thread has among the threads there.
    fn join(&mut self, ops: Vec<Op>) -> (Arc<Group<Answers>>, usize, Place) {
        let (callers, at, is_new) = self.add(ops, Group::new);
        let place = match is_new {
            true => Place::First,
            false if callers.join_second() => Place::Second,
            false => Place::Other,
        };
        (callers, at, place)
    }

    /// Adds a submission to those that wait, whole, up to the most operations of one transaction. Answers where it is, and whether it is the first there.
    fn add(&mut self, ops: Vec<Op>, group: impl FnOnce() -> Group<Answers>) -> (Arc<Group<Answers>>, usize, bool) {
        self.depth += 1;
        self.stats.depth_max = self.stats.depth_max.max(self.depth);
        let is_new = self.waiting.back().is_none_or(|batch| batch.ops + ops.len() > BATCH_OPS_MAX);
        if is_new {
            let submissions = Vec::with_capacity(BATCH_MOSTLY);
            self.waiting.push_back(Batch { submissions, ops: 0, callers: Arc::new(group()) });
        }
        let batch = self.waiting.back_mut().expect("there is one now");
        batch.ops += ops.len();
        batch.submissions.push(ops);
        (Arc::clone(&batch.callers), batch.submissions.len() - 1, is_new)
    }

    /// The batch that waits longest, if it has no more operations than that.
    fn take(&mut self, ops_max: usize) -> Option<Batch> {
        let batch = self.waiting.pop_front_if(|batch| batch.ops <= ops_max)?;
        self.depth -= batch.submissions.len();
        Some(batch)
    }

    fn waits(&self, callers: &Arc<Group<Answers>>) -> bool {
        self.waiting.iter().any(|batch| Arc::ptr_eq(&batch.callers, callers))
    }
}

/// What one transaction writes: the batch that was waiting, and those that came while it was carried out.
struct Taken<'a> {
    queue: &'a Queue,
    ops: usize,
    submissions: Vec<Vec<Op>>,
    /// Whose they are, and how many of them.
    groups: Vec<(Arc<Group<Answers>>, usize)>,
}

impl Taken<'_> {
    fn add(&mut self, batch: Batch) {
        let Batch { mut submissions, ops, callers } = batch;
        self.ops += ops;
        self.groups.push((callers, submissions.len()));
        match self.submissions.is_empty() {
            true => self.submissions = submissions,
            false => self.submissions.append(&mut submissions),
        }
    }

    fn tell(self, answers: Vec<Result<Applied>>, wake: Wake) {
        assert_eq!(answers.len(), self.submissions.len(), "every submission has its answer");
        let mut answers = answers.into_iter().zip(self.submissions);
        for (callers, count) in self.groups {
            callers.tell(to_be_taken(answers.by_ref().take(count)), wake);
        }
    }
}

impl Submissions for Taken<'_> {
    fn all(&self) -> &[Vec<Op>] {
        &self.submissions
    }

    fn more(&mut self) -> bool {
        let batch = BATCH_OPS_MAX.checked_sub(self.ops).and_then(|most| self.queue.state().take(most));
        batch.map(|batch| self.add(batch)).is_some()
    }
}

/// The session, if it can be used again, and an answer for each submission.
type Written = (Option<Box<dyn Session>>, Vec<Result<Applied>>);

fn to_be_taken(answers: impl IntoIterator<Item = (Result<Applied>, Vec<Op>)>) -> Answers {
    answers.into_iter().map(|answer| Mutex::new(Some(answer))).collect()
}

fn take(answers: &Answers, at: usize) -> Result<Applied> {
    let answer = answers.get(at).and_then(|answer| answer.lock().unwrap_or_else(PoisonError::into_inner).take());
    answer.expect("every submission has one answer, for one caller").0
}

fn not_applied(batch: &[Vec<Op>], why: &str) -> Vec<Result<Applied>> {
    batch.iter().map(|_| Err(Error::NotApplied { why: why.to_owned() })).collect()
}

fn new_epoch(connection: &mut Connection) -> session::Answer<i64> {
    let txn = connection.transaction()?;
    let epoch = txn.query_row("SELECT coalesce(max(epoch), 0) + 1 FROM writer_epochs", [], |row| row.get(0))?;
    // The keys of long ago are asked for no more.
    txn.execute("DELETE FROM writer_epochs WHERE epoch <= ?1 - 64", [epoch])?;
    txn.execute("INSERT INTO writer_epochs (epoch, batch) VALUES (?1, 0)", [epoch])?;
    txn.commit()?;
    Ok(epoch)
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without words").to_owned()
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
