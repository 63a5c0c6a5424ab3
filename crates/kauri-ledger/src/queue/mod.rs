//! The writer queue: many callers, one transaction, one sync.
//!
//! ```text
//! submit ─┐                      ┌─ BEGIN
//! submit ─┼─> waiting (1000) ─── │    SAVEPOINT, the ops of one submission, RELEASE   (one bad op fails alone)
//! submit ─┘      at most 100 ops │    ...
//!                                └─ mark this batch, COMMIT ──> every caller hears how its own submission went
//! ```
//!
//! The writer is a part that callers play in turn: whoever finds it free writes for all that wait. A lone caller so pays for its
//! own commit and nothing else, and a thread of the queue's own, with two hand-overs for each commit, is not needed. A batch is
//! written as soon as the one before is done, so nobody waits for a timer.
//!
//! Each transaction writes its number into `writer_epochs`. After a commit whose answer was lost (the disk failed, the writer
//! panicked) that row says whether it happened, and a caller is told *unknown* only if even that cannot be read.

mod op;
pub(crate) mod session;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use rusqlite::Connection;

pub use self::op::{Op, Value};
use self::session::{Session, Sqlite, is_fatal};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// How many submissions may wait.
pub const CAPACITY: usize = 1_000;
/// How many operations go into one transaction.
pub const BATCH_OPS_MAX: usize = 100;
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
    /// Whoever waits for a place in the queue.
    places: Condvar,
}

struct State {
    waiting: VecDeque<Submission>,
    /// Absent while somebody writes, and after trouble until the next connection.
    session: Option<Box<dyn Session>>,
    writing: bool,
    closed: Option<Closed>,
    batch: i64,
    /// Panics since something was last committed.
    panics: u32,
    stats: QueueStats,
}

#[derive(Clone)]
enum Closed {
    ByCaller,
    GivenUp(String),
}

struct Submission {
    ops: Vec<Op>,
    ticket: Arc<Ticket>,
}

/// Where a caller finds its answer.
struct Ticket {
    answer: Mutex<Option<Result<Applied>>>,
    caller: Thread,
}

/// How one transaction ended.
enum Ended {
    /// Committed, or ended by its only submission; the answers stand.
    Answered,
    /// Nothing was applied. The submission that was at fault, if it was one.
    Aborted(Option<usize>, rusqlite::Error),
    /// The commit was begun and no answer came.
    Doubtful(String),
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
            session: Some(first),
            writing: false,
            closed: None,
            batch: 0,
            panics: 0,
            stats: QueueStats::default(),
        };
        let (state, places) = (Mutex::new(state), Condvar::new());
        Self { shared: Arc::new(Shared { connect, clock, alarm, capacity, epoch, state, places }) }
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
            state = self.shared.places.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        match &state.closed {
            Some(Closed::ByCaller) => return Err(Error::QueueClosed),
            Some(Closed::GivenUp(why)) => return Err(Error::NotApplied { why: why.clone() }),
            None => {}
        }
        let ticket = Arc::new(Ticket { answer: Mutex::new(None), caller: std::thread::current() });
        state.waiting.push_back(Submission { ops, ticket: Arc::clone(&ticket) });
        state.stats.depth_max = state.stats.depth_max.max(state.waiting.len());
        loop {
            if !state.writing {
                state = self.write_waiting(state);
            }
            if let Some(answer) = ticket.take() {
                return answer;
            }
            if state.writing {
                drop(state);
                std::thread::park();
                state = self.state();
            }
        }
    }

    /// Writes one batch for all that wait, and wakes them.
    fn write_waiting<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let batch = state.take_batch();
        if batch.is_empty() {
            return state;
        }
        state.writing = true;
        let session = state.session.take();
        drop(state);
        let session = self.write(session, &batch);
        let mut state = self.state();
        state.writing = false;
        state.session = session;
        // Whoever waits longest writes next, unless another caller comes first.
        let next = state.waiting.front().map(|next| next.ticket.caller.clone());
        drop(state);
        next.into_iter().for_each(|next| next.unpark());
        let this = std::thread::current().id();
        let others = batch.iter().map(|submission| &submission.ticket.caller).filter(|caller| caller.id() != this);
        others.for_each(Thread::unpark);
        self.shared.places.notify_all();
        self.state()
    }

    /// Writes a batch and answers each of its callers. Returns the session, if it can be used again.
    fn write(&self, session: Option<Box<dyn Session>>, batch: &[Submission]) -> Option<Box<dyn Session>> {
        let mut session = match session.map_or_else(|| (self.shared.connect)(), Ok) {
            Ok(session) => session,
            Err(error) => {
                let why = format!("the database cannot be opened: {error}");
                batch.iter().for_each(|submission| submission.ticket.put(Err(Error::NotApplied { why: why.clone() })));
                return None;
            }
        };
        let number = self.next_batch();
        let mut progress = Progress { answers: Vec::with_capacity(batch.len()), is_committing: false };
        let key = (self.shared.epoch, number);
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut *session, batch, key, &mut progress)));
        let Progress { answers, is_committing } = progress;
        match ran {
            Ok(Ended::Answered) => {
                self.committed(batch.len());
                batch.iter().zip(answers).for_each(|(submission, answer)| submission.ticket.put(answer));
                Some(session)
            }
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
                let settled = if is_committing {
                    self.settle(batch, answers, number, &why)
                } else {
                    let not_applied = || Err(Error::NotApplied { why: why.clone() });
                    batch.iter().for_each(|submission| submission.ticket.put(not_applied()));
                    None
                };
                self.restart(settled, &why)
            }
        }
    }

    /// The transaction is gone as a whole: the one at fault hears of it, the others are tried again, each by itself.
    fn aborted(
        &self,
        mut session: Option<Box<dyn Session>>,
        batch: &[Submission],
        at: Option<usize>,
        error: rusqlite::Error,
    ) -> Option<Box<dyn Session>> {
        let mut error = Some(error);
        let is_alone = batch.len() == 1;
        for (number, submission) in batch.iter().enumerate() {
            let own = (is_alone || at == Some(number)).then(|| error.take()).flatten();
            match own {
                Some(cause) => submission.ticket.put(Err(Error::Sql { doing: "write to the database", cause })),
                None => session = self.write(session, std::slice::from_ref(submission)),
            }
        }
        session
    }

    /// Finds out whether a batch was committed, and makes sure that the answer stays true.
    fn settle(
        &self,
        batch: &[Submission],
        answers: Vec<Result<Applied>>,
        number: i64,
        why: &str,
    ) -> Option<Box<dyn Session>> {
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
        for submission in batch {
            submission.ticket.put(match (answers.next(), is_applied) {
                // Its own fault: undone before the commit was tried.
                (Some(Err(error)), _) => Err(error),
                (Some(answer), Some(true)) => answer,
                (_, None) => Err(Error::Unknown { key: BatchKey { epoch, batch: number }, why: why.to_owned() }),
                (_, Some(_)) => Err(Error::NotApplied { why: why.to_owned() }),
            });
        }
        match asked {
            Ok((session, _)) => Some(session),
            Err(error) => {
                // Further batches of this epoch would hide whether this one was committed.
                self.give_up(&format!("{why}; the database could not be asked: {error}"));
                None
            }
        }
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

    fn give_up(&self, why: &str) {
        let waiting = {
            let mut state = self.state();
            if state.closed.is_some() {
                return;
            }
            state.closed = Some(Closed::GivenUp(why.to_owned()));
            std::mem::take(&mut state.waiting)
        };
        for submission in waiting {
            submission.ticket.put(Err(Error::NotApplied { why: why.to_owned() }));
            submission.ticket.caller.unpark();
        }
        self.shared.places.notify_all();
        (self.shared.alarm)(&format!("writer queue: {why}"));
    }

    fn next_batch(&self) -> i64 {
        let mut state = self.state();
        state.batch += 1;
        state.batch
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
            state = if state.writing {
                self.shared.places.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.write_waiting(state)
            };
        }
        state.session = None;
    }

    /// What the queue has done so far.
    #[must_use]
    pub fn stats(&self) -> QueueStats {
        let state = self.state();
        QueueStats { depth: state.waiting.len(), is_running: state.closed.is_none(), ..state.stats }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Panics of the writer happen outside of this lock.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_full(&self, capacity: usize) -> bool {
        self.waiting.len() >= capacity && self.closed.is_none()
    }

    /// The next submissions, whole, up to the most operations of one transaction.
    fn take_batch(&mut self) -> Vec<Submission> {
        let mut ops = 0;
        let fits = |submission: &&Submission| {
            ops += submission.ops.len();
            ops <= BATCH_OPS_MAX
        };
        let count = self.waiting.iter().take_while(fits).count().max(1).min(self.waiting.len());
        self.waiting.drain(..count).collect()
    }
}

impl Ticket {
    fn put(&self, answer: Result<Applied>) {
        let mut place = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(place.is_none(), "a caller is answered once");
        *place = Some(answer);
    }

    fn take(&self) -> Option<Result<Applied>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How far a transaction has come: known also after a panic.
struct Progress {
    answers: Vec<Result<Applied>>,
    is_committing: bool,
}

/// One transaction.
fn run(session: &mut dyn Session, batch: &[Submission], key: (i64, i64), progress: &mut Progress) -> Ended {
    if let Err(error) = session.begin() {
        return abort(session, None, error);
    }
    for (at, submission) in batch.iter().enumerate() {
        // A submission by itself is undone with the whole transaction.
        let answer =
            if batch.len() == 1 { execute(session, &submission.ops) } else { nested(session, &submission.ops) };
        match answer {
            Ok(answer) => progress.answers.push(answer),
            Err(error) => return abort(session, Some(at), error),
        }
    }
    if let [Err(_)] = progress.answers[..] {
        return match session.rollback() {
            Ok(()) => Ended::Answered,
            Err(error) => Ended::Doubtful(format!("cannot roll back: {error}")),
        };
    }
    if let Err(error) = session.mark(key.0, key.1) {
        return abort(session, None, error);
    }
    progress.is_committing = true;
    match session.commit() {
        Ok(()) => Ended::Answered,
        // Busy, or a constraint that is checked at the end: the transaction is still there, so it was not committed.
        Err(error) if session.in_transaction() && !is_fatal(&error) => abort(session, None, error),
        Err(error) => Ended::Doubtful(format!("the commit failed: {error}")),
    }
}

/// The operations of one submission. The outer error is one that ended the transaction.
fn execute(session: &mut dyn Session, ops: &[Op]) -> session::Answer<Result<Applied>> {
    let mut rows = 0;
    for op in ops {
        match session.execute(op) {
            Ok(found) => match op.rows {
                Some(expected) if expected != found => return Ok(Err(Error::RowCount { expected, found })),
                _ => rows += found,
            },
            Err(error) if session.in_transaction() && !is_fatal(&error) => {
                return Ok(Err(Error::Sql { doing: "write to the database", cause: error }));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(Applied { rows }))
}

/// The same, and undone if one of them fails.
fn nested(session: &mut dyn Session, ops: &[Op]) -> session::Answer<Result<Applied>> {
    session.nest()?;
    let answer = execute(session, ops)?;
    if answer.is_ok() {
        session.keep()?;
    } else {
        session.undo()?;
    }
    Ok(answer)
}

fn abort(session: &mut dyn Session, at: Option<usize>, error: rusqlite::Error) -> Ended {
    if session.in_transaction()
        && let Err(worse) = session.rollback()
    {
        return Ended::Doubtful(format!("{error}, and then {worse}"));
    }
    Ended::Aborted(at, error)
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
