//! The keeper: a thread of the store's own for what no caller should wait for; and the scribe, another.
//!
//! The keeper makes checkpoints beside the writer when the log is half full, and syncs what was committed with
//! [`Durability::Flush`](crate::Durability::Flush) in time. The scribe writes early commits and does [errands](crate::Errand), one group after the
//! other, while those who made them go on. Each is started when there is first something to do, so a store that is only read, or little
//! written, has none.

#![expect(clippy::disallowed_methods, reason = "the keeper is a driver: it has a thread and looks at the clock")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::early::Letter;
use crate::store::{Inner, Store};

/// The keeper of one store.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
    tray: Arc<Tray>,
    scribe: Mutex<Option<JoinHandle<()>>>,
}

/// Where the scribe finds what to do.
#[derive(Debug, Default)]
struct Tray {
    pile: Mutex<Pile>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Pile {
    /// At most two for each who commits early, and one to lead.
    orders: VecDeque<Order>,
    /// The scribe sleeps.
    is_asleep: bool,
    stop: bool,
}

/// What the scribe is asked for.
#[derive(Debug)]
pub(crate) enum Order {
    /// To make an early commit durable.
    Write(Arc<Letter>),
    /// To lead what waits in the store's queue.
    Lead,
}

/// Where the keeper is told what to do.
#[derive(Debug, Default)]
struct Desk {
    orders: Mutex<Orders>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    checkpoint: bool,
    /// A sync is due so many milliseconds after this was asked.
    flush_ms: Option<u32>,
    stop: bool,
}

/// What the keeper does next.
enum Task {
    Checkpoint,
    Sync,
    Stop,
}

impl Keeper {
    /// Asks for a checkpoint, and tells whether there is somebody to make it.
    pub(crate) fn ask_checkpoint(&self, store: &Arc<Inner>) -> bool {
        self.ask(store, |orders| orders.checkpoint = true)
    }

    /// Asks for a sync in so many milliseconds.
    pub(crate) fn ask_flush(&self, store: &Arc<Inner>, ms: u32) {
        if planted!(ForgetFlush) {
            return;
        }
        self.ask(store, |orders| orders.flush_ms = Some(orders.flush_ms.map_or(ms, |before| before.min(ms))));
    }

    fn ask(&self, store: &Arc<Inner>, order: impl FnOnce(&mut Orders)) -> bool {
        let mut thread = lock(&self.thread);
        // One that has ended was waited for, and another would not be.
        if thread.is_none() && !lock(&self.desk.orders).stop {
            let (desk, store) = (Arc::clone(&self.desk), Arc::clone(store));
            let builder = std::thread::Builder::new().name("kauri-keeper".to_owned());
            *thread = builder.spawn(move || desk.serve(&store)).ok();
        }
        order(&mut lock(&self.desk.orders));
        self.desk.rung.notify_one();
        thread.is_some()
    }

    /// Asks the scribe for something, and tells whether there is one. It is given a handle that does not keep the store open.
    pub(crate) fn ask_scribe(&self, store: impl FnOnce() -> Store, order: Order) -> bool {
        let mut scribe = lock(&self.scribe);
        if scribe.is_none() && !lock(&self.tray.pile).stop {
            let (tray, store) = (Arc::clone(&self.tray), store());
            let builder = std::thread::Builder::new().name("kauri-scribe".to_owned());
            // Without one, whoever waits for it does it.
            *scribe = builder.spawn(move || tray.serve(&store)).ok();
        }
        scribe.is_some() && self.tray.put(order)
    }

    /// Ends the keeper and the scribe, when it has done what it was asked for, and waits for them.
    pub(crate) fn stop(&self) {
        lock(&self.desk.orders).stop = true;
        self.desk.rung.notify_one();
        lock(&self.tray.pile).stop = true;
        self.tray.rung.notify_one();
        for thread in [&self.thread, &self.scribe] {
            // Not with the lock, which whoever ends may want.
            let thread = lock(thread).take();
            // It may be this one: it has dropped the last handle, of somebody who heard from it.
            if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
                // A panic of theirs was reported where it happened; what was committed does not depend on them.
                let _ = thread.join();
            }
        }
    }
}

impl Tray {
    /// Tells whether the scribe will find it.
    fn put(&self, order: Order) -> bool {
        let mut pile = lock(&self.pile);
        if pile.stop {
            return false;
        }
        // To be asked twice to lead is to be asked once.
        let is_asked = matches!(order, Order::Lead) && pile.orders.iter().any(|order| matches!(order, Order::Lead));
        if !is_asked {
            pile.orders.push_back(order);
        }
        // Waking nobody is a call to the system, and whoever writes looks again.
        if std::mem::take(&mut pile.is_asleep) {
            self.rung.notify_one();
        }
        true
    }

    fn serve(&self, store: &Store) {
        while let Some(order) = self.next() {
            // Whoever waits for what a panic of somebody's has ended was told, and others may come.
            let _ = catch_unwind(AssertUnwindSafe(|| match order {
                Order::Write(letter) => store.inner().write_unheard(&letter),
                Order::Lead => store.queue().lead_if_asked(store),
            }));
        }
    }

    /// Waits until there is something to do; `None` is the end.
    fn next(&self) -> Option<Order> {
        let mut pile = lock(&self.pile);
        loop {
            if let Some(order) = pile.orders.pop_front() {
                return Some(order);
            }
            if pile.stop {
                return None;
            }
            pile.is_asleep = true;
            pile = self.rung.wait(pile).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Desk {
    fn serve(&self, store: &Inner) {
        // When a sync is due, if one is.
        let mut due = None;
        loop {
            match self.next(&mut due) {
                Task::Checkpoint => store.checkpoint_if_time(&mut || self.sync_in_time(store, &mut due)),
                Task::Sync => store.sync_unheard(),
                Task::Stop => return,
            }
        }
    }

    /// Syncs if it is time. A checkpoint may take long, and what was promised meanwhile is promised.
    fn sync_in_time(&self, store: &Inner, due: &mut Option<Instant>) {
        if Self::is_due(&mut lock(&self.orders), due) {
            store.sync_unheard();
        }
    }

    /// Whether a sync is due now; then none is due any more.
    fn is_due(orders: &mut Orders, due: &mut Option<Instant>) -> bool {
        let now = Instant::now();
        if let Some(ms) = orders.flush_ms.take() {
            let asked = now + Duration::from_millis(ms.into());
            *due = Some(due.map_or(asked, |due| due.min(asked)));
        }
        due.take_if(|due| *due <= now).is_some()
    }

    /// Waits until there is something to do.
    fn next(&self, due: &mut Option<Instant>) -> Task {
        let mut orders = lock(&self.orders);
        loop {
            if orders.stop {
                return Task::Stop;
            }
            if Self::is_due(&mut orders, due) {
                return Task::Sync;
            }
            if std::mem::take(&mut orders.checkpoint) {
                return Task::Checkpoint;
            }
            orders = match *due {
                Some(due) => {
                    let left = due.saturating_duration_since(Instant::now());
                    self.rung.wait_timeout(orders, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.rung.wait(orders).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
