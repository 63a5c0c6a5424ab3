//! Threads for workers.
//!
//! A thread whose workers have nothing to do sleeps until a commit puts something into their inboxes; one more thread sleeps until the next
//! timer is due. Nothing is asked for again and again.
#![expect(clippy::disallowed_methods, reason = "the threaded driver: threads are its business")]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::substrate::Signal;
use crate::worker::{Pace, Rest, Worker};

/// How often leases are looked after in vain before nobody does until a step begins: waking somebody costs more than looking.
const LOOKS: u32 = 3;
/// How many timers are moved at once.
const TIMERS_MAX: usize = 256;

/// Workers at work on threads. Dropped, it stops them and waits.
///
/// ```
/// use kauri_runtime::substrate::TreeSubstrate;
/// # use kauri_runtime::testing::VirtualClock;
/// use kauri_runtime::{Atomic, Failure, Pool, Runtime};
/// use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
/// # use std::sync::{Arc, mpsc};
///
/// let store = kauri_tree::Store::in_memory()?;
/// # let clock = Arc::new(VirtualClock::default());
/// let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(store)), clock).start()?;
/// let (told, hears) = mpsc::channel();
/// let worker = runtime.worker(WorkerId(7), move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
///     told.send(message.payload().to_vec()).map_err(Failure::fatal)
/// });
/// let pool = Pool::start(vec![worker])?;
/// runtime.send(&Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples"))?;
/// assert_eq!(hears.recv().unwrap(), b"12 apples");
/// pool.stop()?;
/// # Ok::<(), kauri_runtime::Error>(())
/// ```
#[must_use = "a pool that is dropped stops"]
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    stop: AtomicBool,
    /// Raised to wake every thread.
    signals: Vec<Arc<Signal>>,
    /// The first error that ended a thread.
    error: Mutex<Option<Error>>,
}

impl Shared {
    fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.signals.iter().for_each(|signal| signal.raise());
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// One worker that cannot go on ends the pool: whatever broke is broken for all.
    fn fail(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop();
    }
}

impl Pool {
    /// Starts a thread for each worker, and one for timers.
    ///
    /// # Errors
    /// If a thread cannot be started; those that were are stopped again.
    pub fn start(workers: Vec<Worker>) -> Result<Self> {
        let groups = workers.into_iter().map(|worker| vec![worker]).collect();
        Self::start_groups(groups)
    }

    /// Starts this many threads for all workers together, and one for timers. Each thread has its own workers, which have their turn one after
    /// the other: a handler or script that takes long holds up the others of its thread, and what they have begun.
    ///
    /// # Errors
    /// As for `start`.
    pub fn start_on(threads: usize, workers: Vec<Worker>) -> Result<Self> {
        let mut groups: Vec<Vec<Worker>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
        let count = groups.len();
        for (at, worker) in workers.into_iter().enumerate() {
            groups[at % count].push(worker);
        }
        Self::start_groups(groups)
    }

    fn start_groups(groups: Vec<Vec<Worker>>) -> Result<Self> {
        let groups: Vec<Group> = groups.into_iter().filter(|workers| !workers.is_empty()).map(Group::new).collect();
        let timers = Arc::new(Signal::default());
        let runtime = groups.first().map(|group| group.workers[0].runtime().clone());
        let signals = groups.iter().map(|group| Arc::clone(&group.signal)).chain([Arc::clone(&timers)]).collect();
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), signals, error: Mutex::new(None) });
        let mut pool = Self { shared, threads: Vec::new() };
        for mut group in groups {
            let name = format!("kauri-worker-{}", group.workers[0].id());
            pool.spawn(name, move |shared| group.work(shared))?;
        }
        if let Some(runtime) = runtime {
            runtime.shared.holds.keep(&timers);
            for table in ["timers", "schedule_due"] {
                runtime.substrate().watch(table, &[], &timers);
            }
            pool.spawn("kauri-timers".to_owned(), move |shared| keep_time(&runtime, &timers, shared))?;
        }
        Ok(pool)
    }

    fn spawn(&mut self, name: String, work: impl FnOnce(&Shared) -> Result<()> + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let run = move || {
            if let Err(error) = work(&shared) {
                shared.fail(error);
            }
        };
        let thread = thread::Builder::new().name(name).spawn(run)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Tells all workers to stop before their next step.
    pub fn request_stop(&self) {
        self.shared.stop();
    }

    /// Whether the workers were told to stop, by somebody or by an error.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Whether every thread has ended: then [`join`](Self::join) does not wait.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Stops the workers, waits for their threads, and gives back what was claimed and not begun.
    ///
    /// # Errors
    /// What ended a thread before.
    pub fn stop(self) -> Result<()> {
        self.request_stop();
        self.join()
    }

    /// Waits until the threads have ended by themselves or been told to.
    ///
    /// # Errors
    /// What ended a thread.
    pub fn join(mut self) -> Result<()> {
        self.wait();
        match self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            // Handlers' panics are caught where they happen. One of our own ends its thread, and the pool with it.
            if thread.join().is_err() {
                self.shared.fail(Error::Io(std::io::Error::other("a thread of the pool panicked")));
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.request_stop();
        self.wait();
    }
}

/// The workers of one thread.
struct Group {
    workers: Vec<Worker>,
    signal: Arc<Signal>,
}

impl Group {
    fn new(mut workers: Vec<Worker>) -> Self {
        let signal = Arc::new(Signal::default());
        // A thread that has other workers too may be long in coming: nobody is to rely on it alone.
        let is_alone = workers.len() == 1;
        for worker in &mut workers {
            worker.set_signal(Arc::clone(&signal));
            match is_alone {
                true => worker.share_inbox(),
                false => worker.runtime().watch_inbox(worker.id(), &signal),
            }
        }
        Self { workers, signal }
    }

    fn work(&mut self, shared: &Shared) -> Result<()> {
        let result =
            self.work_until_stopped(shared).and_then(|()| self.workers.iter_mut().try_for_each(Worker::end_turn));
        // Others need not wait for leases of a worker that went in order, nor miss what it was woken for.
        let released = self.workers.iter_mut().try_for_each(Worker::release);
        self.workers.iter().for_each(Worker::pass_on);
        result.and(released)
    }

    fn work_until_stopped(&mut self, shared: &Shared) -> Result<()> {
        loop {
            let seen = self.signal.count();
            // A thread that has other workers too may be long in coming back to tell.
            let pace = if self.workers.len() == 1 { Pace::Early } else { Pace::InTurns };
            let mut rest = Rest::Idle;
            for worker in &mut self.workers {
                if shared.is_stopping() {
                    return Ok(());
                }
                let tick = worker.tick_inbox(pace)?;
                rest = match (rest, tick.rest) {
                    (_, Rest::Stopped) => return Ok(()),
                    (Rest::More, _) | (_, Rest::More) => Rest::More,
                    (Rest::Busy, _) | (_, Rest::Busy) => Rest::Busy,
                    (Rest::Idle | Rest::Stopped, Rest::Idle) => Rest::Idle,
                };
            }
            match rest {
                Rest::Idle => self.signal.wait(seen, self.workers.iter().filter_map(Worker::idle_without_timers).min()),
                Rest::Busy => self.workers[0].pause(),
                Rest::More | Rest::Stopped => {}
            }
        }
    }
}

/// Moves timers and renews leases when they are due, and sleeps until then.
fn keep_time(runtime: &Runtime, signal: &Signal, shared: &Shared) -> Result<()> {
    let mut looks_left = LOOKS;
    while !shared.is_stopping() {
        let seen = signal.count();
        let renewal = runtime.renew_leases()?;
        match runtime.fire_due(TIMERS_MAX) {
            Ok(0) => {
                let renewal = match renewal {
                    None if looks_left > 0 => {
                        looks_left -= 1;
                        Some(runtime.policy().lease / 2)
                    }
                    None => {
                        looks_left = LOOKS;
                        match runtime.shared.holds.fall_asleep() {
                            true => None,
                            false => continue,
                        }
                    }
                    Some(renewal) => {
                        looks_left = LOOKS;
                        Some(renewal)
                    }
                };
                let now = runtime.now().wall;
                let due = runtime.next_due()?.map(|due| crate::timer::until(now, due));
                let pause = [due, renewal].into_iter().flatten().min();
                // Due and not done: somebody else is at it.
                signal.wait(seen, pause.map(|pause| pause.max(Duration::from_millis(1))));
            }
            Ok(_) | Err(Error::Conflict(_)) => {}
            Err(Error::Stopped) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}
