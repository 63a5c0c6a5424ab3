//! The keeper: a thread of the store's own for what no caller should wait for.
//!
//! It makes checkpoints beside the writer when the log is half full, and syncs what was committed with
//! [`Durability::Flush`](crate::Durability::Flush) in time. It is started when there is first something to do, so a store that is only
//! read, or little written, has none.

#![expect(clippy::disallowed_methods, reason = "the keeper is a driver: it has a thread and looks at the clock")]

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::store::Inner;

/// The keeper of one store.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
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
        if thread.is_none() {
            let (desk, store) = (Arc::clone(&self.desk), Arc::clone(store));
            let builder = std::thread::Builder::new().name("kauri-keeper".to_owned());
            *thread = builder.spawn(move || desk.serve(&store)).ok();
        }
        order(&mut lock(&self.desk.orders));
        self.desk.rung.notify_one();
        thread.is_some()
    }

    /// Ends the keeper, and waits for it.
    pub(crate) fn stop(&self) {
        lock(&self.desk.orders).stop = true;
        self.desk.rung.notify_one();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the keeper was reported where it happened; what was committed does not depend on it.
            let _ = thread.join();
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
