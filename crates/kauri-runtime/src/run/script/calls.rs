//! Calls that end in time: on the caller's thread, or on threads that can be left alone.
//!
//! Safe code cannot end a thread from outside. A call that has to stop is told so ([`Stop`]), everything it says is refused, and after some grace it is
//! left alone: its thread goes on for as long as it likes, whatever it answers is dropped, and the run goes on without it.
//!
//! Inline calls cost nothing and cannot be left alone: they are for scripts that are trusted to stop, and for virtual time.
#![expect(clippy::disallowed_methods, reason = "threads that can be left alone are this file's business")]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::error::ScriptError;
use super::executor::Called;
use super::stop::{Cancel, Cause, Stop};
use crate::time::Mono;

/// How calls are made.
#[derive(Clone, Debug)]
pub(crate) enum Calls {
    /// On the caller's thread.
    Inline,
    /// On another.
    Crew(Crew),
}

/// What is looked after while a call goes on.
pub(crate) trait Pulse {
    /// When `tick` has something to do.
    fn due(&self) -> Option<Mono>;
    /// Does it.
    fn tick(&self);
    /// The call is left alone.
    fn leave(&self);
}

/// Nothing is.
pub(crate) struct NoPulse;

impl Pulse for NoPulse {
    fn due(&self) -> Option<Mono> {
        None
    }

    fn tick(&self) {}

    fn leave(&self) {}
}

impl Calls {
    /// Makes a call. If it is left alone and answers after all, `late` gets the answer.
    pub(crate) fn make<R: Send + 'static>(
        &self,
        stop: &Stop,
        pulse: &dyn Pulse,
        work: impl FnOnce() -> Result<R, ScriptError> + Send + 'static,
        late: impl FnOnce(R) + Send + 'static,
    ) -> Called<R> {
        match self {
            Self::Inline => judge(guarded(work), stop),
            Self::Crew(crew) => {
                let handoff = Arc::new(Handoff { slot: Mutex::new(Slot::Empty), waker: stop.waker() });
                let theirs = Arc::clone(&handoff);
                let begun = crew.begin(Box::new(move |free| theirs.fill(guarded(work), late, free)));
                match begun {
                    Ok(()) => handoff.wait(stop, pulse),
                    Err(error) => Called::Crashed(format!("a thread for the call could not be started: {error}")),
                }
            }
        }
    }
}

fn guarded<R>(work: impl FnOnce() -> Result<R, ScriptError>) -> Result<R, ScriptError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(ScriptError::from_panic(&*panic)))
}

/// A call that fails when it has to stop was cut; one that returns has done what it was for.
fn judge<R>(result: Result<R, ScriptError>, stop: &Stop) -> Called<R> {
    match (result, stop.cause()) {
        (Ok(value), _) => Called::Returned(value),
        (Err(_), Some(cause)) => Called::Cut(cause),
        (Err(error), None) => Called::Failed(error),
    }
}

/// Where a thread leaves its answer.
struct Handoff<R> {
    slot: Mutex<Slot<R>>,
    waker: Cancel,
}

enum Slot<R> {
    Empty,
    Full(Result<R, ScriptError>),
    LeftAlone,
}

impl<R> Handoff<R> {
    fn fill(&self, result: Result<R, ScriptError>, late: impl FnOnce(R), free: Free) {
        let mut slot = self.lock();
        if matches!(*slot, Slot::LeftAlone) {
            drop(slot);
            if let Ok(value) = result {
                // Nobody hears of a panic here: the thread ends, and with it what it was for.
                late(value);
            }
            free.give_back();
            return;
        }
        // First free, then full: who has the answer finds this thread for the next call.
        free.give_back();
        *slot = Slot::Full(result);
        drop(slot);
        self.waker.wake();
    }

    fn wait(&self, stop: &Stop, pulse: &dyn Pulse) -> Called<R> {
        let mut told: Option<Mono> = None;
        loop {
            let seen = stop.signal().count();
            if let Some(result) = self.take() {
                return judge(result, stop);
            }
            pulse.tick();
            let now = stop.clock().now().mono;
            let cause = stop.cause();
            let until = match cause {
                None => stop.deadline(),
                Some(_) => *told.get_or_insert(now) + stop.grace(),
            };
            match cause {
                Some(cause) if until <= now => return self.leave(cause, stop, pulse),
                _ => {}
            }
            let until = pulse.due().map_or(until, |due| due.min(until));
            // A due time that has passed was looked after just now, unless the sink is broken: no reason to turn round and round.
            let pause = until.since(now).max(Duration::from_millis(1));
            stop.signal().wait(seen, Some(pause));
        }
    }

    fn take(&self) -> Option<Result<R, ScriptError>> {
        let mut slot = self.lock();
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Full(result) => Some(result),
            other => {
                *slot = other;
                None
            }
        }
    }

    fn leave(&self, cause: Cause, stop: &Stop, pulse: &dyn Pulse) -> Called<R> {
        let mut slot = self.lock();
        if let Slot::Full(result) = std::mem::replace(&mut *slot, Slot::LeftAlone) {
            return judge(result, stop);
        }
        pulse.leave();
        Called::Cut(cause)
    }

    fn lock(&self) -> MutexGuard<'_, Slot<R>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Threads for calls, used again and again. Clones are the same crew; threads end when they are idle and the crew is gone.
///
/// ```
/// use kauri_runtime::run::script::{Context, Crew, Rust, Script, ScriptError};
///
/// struct Nothing;
/// impl Script for Nothing {
///     fn run(&self, _: &Context) -> Result<(), ScriptError> {
///         Ok(())
///     }
/// }
///
/// let crew = Crew::default();
/// let executor = Rust::on(&crew, Nothing); // a script that hangs does not hang its caller
/// # drop(executor);
/// ```
#[derive(Clone, Default)]
pub struct Crew(Arc<Idle>);

#[derive(Default)]
struct Idle {
    threads: Mutex<Vec<Sender<Order>>>,
    /// As a system that has no room for more.
    #[cfg(test)]
    has_none: std::sync::atomic::AtomicBool,
}

/// More threads than these do not wait for work.
const IDLE_MAX: usize = 64;

struct Order {
    work: Box<dyn FnOnce(Free) + Send>,
    free: Free,
}

/// A thread that can be had again.
struct Free {
    idle: Weak<Idle>,
    thread: Sender<Order>,
}

impl Free {
    fn give_back(self) {
        if let Some(idle) = self.idle.upgrade() {
            let mut threads = idle.lock();
            if threads.len() < IDLE_MAX {
                threads.push(self.thread);
            }
        }
    }
}

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Vec<Sender<Order>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crew {
    fn begin(&self, mut work: Box<dyn FnOnce(Free) + Send>) -> std::io::Result<()> {
        #[cfg(test)]
        if self.0.has_none.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
        // The list is not locked while work is handed over.
        let mut idle = self.0.lock().pop();
        while let Some(thread) = idle {
            let free = Free { idle: Arc::downgrade(&self.0), thread: thread.clone() };
            match thread.send(Order { work, free }) {
                Ok(()) => return Ok(()),
                // It died of a panic in what came late.
                Err(unsent) => work = unsent.0.work,
            }
            idle = self.0.lock().pop();
        }
        self.spawn(work)
    }

    #[cfg(test)]
    pub(super) fn give_no_threads(&self) {
        self.0.has_none.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    fn spawn(&self, work: Box<dyn FnOnce(Free) + Send>) -> std::io::Result<()> {
        let (thread, orders) = channel::<Order>();
        let free = Free { idle: Arc::downgrade(&self.0), thread };
        let run = move || {
            work(free);
            while let Ok(Order { work, free }) = orders.recv() {
                work(free);
            }
        };
        thread::Builder::new().name("kauri-script".to_owned()).spawn(run).map(drop)
    }

    /// How many threads wait for work.
    #[must_use]
    pub fn idle(&self) -> usize {
        self.0.lock().len()
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("idle", &self.idle()).finish()
    }
}
