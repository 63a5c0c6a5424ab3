//! Workers on threads.
#![expect(clippy::disallowed_methods, reason = "real threads and the clock of the system")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Atomic, Clock, Error, Failure, Mono, Now, Pool, Read, Runtime, Write};
use kauri_tree::{Store, Table};
use kauri_wire::{Message, MessageId, MessageRef, Timestamp, WorkerId};

use crate::setup::{ANN, BOB, command};

const STATE: Table<str, u64> = Table::new("state");

/// The clocks of the system.
pub(crate) struct SystemClock(Instant);

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |wall| wall.as_millis());
        Now { mono: Mono(self.0.elapsed()), wall: Timestamp(i64::try_from(wall).unwrap_or(i64::MAX)) }
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

fn runtime() -> Runtime {
    let store = Store::in_memory().unwrap();
    Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(SystemClock::new())).start().unwrap()
}

fn count(block: &mut Atomic<'_>, _: MessageRef<'_>) -> Result<(), Failure> {
    let count = block.get(&STATE, "count")?.unwrap_or(0);
    Ok(block.put(&STATE, "count", count + 1)?)
}

fn wait_for(runtime: &Runtime, worker: WorkerId, watch: &mpsc::Receiver<()>) {
    while runtime.depth(worker).unwrap() > 0 {
        let _ = watch.recv_timeout(Duration::from_millis(50));
    }
}

#[test]
fn four_instances_of_one_worker_handle_every_message_once_under_conflicts() {
    let runtime = runtime();
    let (told, hears) = mpsc::channel();
    let workers = (0..4).map(|_| {
        let told = told.clone();
        let policy = kauri_runtime::Policy { retry_budget: 1_000_000, batch_messages_max: 8, ..Default::default() };
        runtime.worker_with(ANN, policy, move |block: &mut Atomic<'_>, message: MessageRef<'_>| {
            let _ = told.send(());
            count(block, message)
        })
    });
    let pool = Pool::start(workers.collect()).unwrap();
    for number in 0..2000 {
        runtime.send(&command(ANN, &number.to_string())).unwrap();
    }
    wait_for(&runtime, ANN, &hears);
    pool.stop().unwrap();
    assert_eq!(runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(2000));
    assert_eq!(runtime.gauges().unwrap().leases, 0, "what was claimed and not begun was given back");
}

#[test]
fn sleeping_worker_is_woken_by_a_message_and_by_a_timer() {
    let runtime = runtime();
    let (told, hears) = mpsc::channel();
    let worker = runtime.worker(ANN, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
        told.send(message.id().to_vec()).map_err(Failure::fatal)
    });
    let pool = Pool::start_on(1, vec![worker, runtime.worker(BOB, count)]).unwrap();
    for number in 0..50 {
        runtime.send(&command(ANN, &number.to_string())).unwrap();
        assert_eq!(hears.recv().unwrap(), number.to_string().into_bytes());
    }
    let soon = Timestamp(runtime.now().wall.0 + 20);
    runtime.arm(soon, &Message::timer(ANN, MessageId::new("timer").unwrap(), "")).unwrap();
    assert_eq!(hears.recv().unwrap(), b"timer");
    assert!(runtime.now().wall >= soon, "never early");
    pool.stop().unwrap();
}

#[test]
fn error_of_the_substrate_ends_the_pool_and_is_told() {
    let runtime = runtime();
    let broken = |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::Runtime(Error::Substrate("gone".into())));
    let pool = Pool::start(vec![runtime.worker(ANN, broken)]).unwrap();
    runtime.send(&command(ANN, "a")).unwrap();
    assert!(matches!(pool.join(), Err(Error::Substrate(_))));
}

#[test]
fn handlers_panic_does_not_end_the_pool() {
    let runtime = runtime();
    let calls = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&calls);
    let worker = runtime.worker(ANN, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
        own.fetch_add(1, Ordering::Relaxed);
        if message.id() == b"bad" { panic!("on purpose") } else { Ok(()) }
    });
    let pool = Pool::start(vec![worker]).unwrap();
    runtime.send(&command(ANN, "bad")).unwrap();
    runtime.send(&command(ANN, "good")).unwrap();
    let (_told, hears) = mpsc::channel();
    wait_for(&runtime, ANN, &hears);
    pool.stop().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert_eq!(runtime.gauges().unwrap().dead_letters, 1);
}
