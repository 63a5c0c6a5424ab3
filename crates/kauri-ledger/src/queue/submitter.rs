//! Submitting without waiting for each submission: for asynchronous code, and for a thread with many submissions on their way.
#![expect(clippy::disallowed_methods, reason = "a driver: it has a thread")]

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread::{self, JoinHandle, Thread};

use super::{Answers, Applied, Op, Queue, Value, take};
use crate::error::{Error, Result};
use crate::group::Group;

/// Submits for those who do not wait for each submission: made by [`Queue::submitter`]. It has a thread, which writes what nobody else does.
/// Dropped, it first has what it was given written.
///
/// Each submission is as durable as with [`Queue::submit`] when its caller is told, and succeeds or fails by itself.
///
/// ```
/// # use kauri_ledger::{Database, SystemClock};
/// # let directory = std::env::temp_dir().join(format!("kauri-submitter-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let database = Database::open(&directory, std::sync::Arc::new(SystemClock), |_| {})?;
/// let queue = database.queue();
/// queue.submit("CREATE TABLE fruit (name TEXT UNIQUE)", [])?;
/// let submitter = queue.submitter()?;
/// let submit = |name: &str| submitter.submit("INSERT INTO fruit VALUES (?1)", [name.into()]);
/// let many = ["apple", "pear", "apple"].map(submit);
/// let mut told = Vec::new();
/// for submitting in many {
///     told.push(submitting?.wait()); // in asynchronous code: submitting?.await
/// }
/// assert!(told[0].is_ok() && told[1].is_ok() && told[2].is_err());
/// # drop(submitter);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Submitter {
    queue: Queue,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A submission on its way. It is written whether or not this is waited for; a future that is ready when it is durable.
#[must_use = "nobody knows that it is durable until it is waited for"]
pub struct Submitting {
    queue: Queue,
    callers: Arc<Group<Answers>>,
    at: usize,
}

impl Queue {
    /// Whoever submits without waiting for each: one transaction for all that come while the one before is on its way to the disk.
    ///
    /// # Errors
    /// If its thread cannot be started.
    pub fn submitter(&self) -> Result<Submitter> {
        let (queue, ends) = (self.clone(), Arc::new(AtomicBool::new(false)));
        let ending = Arc::clone(&ends);
        let thread = thread::Builder::new().name("kauri-submitter".to_owned()).spawn(move || queue.serve(&ending));
        let thread = thread.map_err(Error::io("start the submitter's thread"))?;
        Ok(Submitter { queue: self.clone(), ends, thread: Some(thread) })
    }

    /// Writes what waits while nobody else does, until that ends and nothing waits for this thread any more.
    fn serve(&self, ends: &AtomicBool) {
        let own = thread::current();
        loop {
            let state = self.state();
            if !state.writing && !state.waiting.is_empty() {
                self.write_first(state);
                continue;
            }
            if ends.load(Ordering::Acquire) && !state.waiting.iter().any(|batch| batch.callers.calls(&own)) {
                return;
            }
            drop(state);
            thread::park();
        }
    }
}

impl Submitter {
    /// Begins to execute one statement.
    ///
    /// # Errors
    /// As [`submit_batch`](Self::submit_batch).
    pub fn submit(&self, sql: &'static str, args: impl IntoIterator<Item = Value>) -> Result<Submitting> {
        self.submit_batch([Op::new(sql, args)])
    }

    /// Begins to execute these operations, all or none. When what this returns is ready, they are durable.
    ///
    /// # Errors
    /// `QueueFull` if too many submissions wait: wait for some of them first. `QueueClosed`, and `NotApplied` if the writer was given up. Why
    /// operations fail is told to whoever waits for them, as by [`Queue::submit_batch`].
    pub fn submit_batch(&self, ops: impl IntoIterator<Item = Op>) -> Result<Submitting> {
        let ops = ops.into_iter().collect();
        let mut state = self.queue.state();
        state.check_open()?;
        if state.is_full(self.queue.shared.capacity) {
            return Err(Error::QueueFull);
        }
        let thread = self.thread();
        let (callers, at, _) = state.add(ops, || Group::of_tasks(thread.clone()));
        let writing = state.writing;
        drop(state);
        // Whoever writes now goes on with this, or calls the next.
        if !writing {
            thread.unpark();
        }
        Ok(Submitting { queue: self.queue.clone(), callers, at })
    }

    fn thread(&self) -> &Thread {
        self.thread.as_ref().expect("it is there until this is dropped").thread()
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        self.thread().unpark();
        if let Some(thread) = self.thread.take() {
            // A panic was reported where it happened.
            let _panicked = thread.join();
        }
    }
}

impl Submitting {
    /// Sleeps until it is durable.
    ///
    /// # Errors
    /// As [`Queue::submit_batch`].
    pub fn wait(self) -> Result<Applied> {
        take(self.callers.wait(&self.queue.shared.patience), self.at)
    }
}

impl Future for Submitting {
    type Output = Result<Applied>;

    /// # Panics
    /// If it was ready before, as futures may.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.callers.poll(self.at, cx).map(|answers| take(answers, self.at))
    }
}

impl fmt::Debug for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitter").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl fmt::Debug for Submitting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submitting").field("at", &self.at).finish_non_exhaustive()
    }
}
