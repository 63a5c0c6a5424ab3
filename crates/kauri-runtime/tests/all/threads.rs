//! Workers on threads.
#![expect(clippy::disallowed_methods, reason = "real threads and the clock of the system")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Clock, Error, Failure, Mono, Now, Policy, Pool, Read, Runtime, Write};
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
fn instances_that_all_change_one_row_bury_no_message_for_their_conflicts() {
    let runtime = runtime();
    for number in 0..640 {
        runtime.send(&command(ANN, &number.to_string())).unwrap();
    }
    // One message at a time, and long enough for all to be in each other's way.
    let policy = Policy { batch_messages_max: 1, ..Policy::default() };
    let workers = (0..64).map(|_| {
        runtime.worker_with(ANN, policy.clone(), |block: &mut Atomic<'_>, message: MessageRef<'_>| {
            let count = block.get(&STATE, "count")?.unwrap_or(0);
            std::thread::sleep(Duration::from_micros(200));
            let _ = message;
            Ok(block.put(&STATE, "count", count + 1)?)
        })
    });
    let pool = Pool::start(workers.collect());
    let (_none, never) = mpsc::channel();
    wait_for(&runtime, ANN, &never);
    drop(pool);
    assert_eq!(runtime.gauges().unwrap().dead_letters, 0);
    assert_eq!(runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(640));
    assert!(runtime.metrics().conflicts > 0, "they were in each other's way");
}

#[test]
fn four_instances_of_one_worker_handle_every_message_once_under_conflicts() {
    let runtime = runtime();
    let (told, hears) = mpsc::channel();
    let workers = (0..4).map(|_| {
        let told = told.clone();
        let policy = Policy { retry_budget: 1_000_000, batch_messages_max: 8, ..Default::default() };
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

/// A clock that a test moves, and that counts how often somebody looks at it.
#[derive(Clone, Default)]
struct WatchedClock {
    clock: VirtualClock,
    looks: Arc<AtomicU64>,
}

impl Clock for WatchedClock {
    fn now(&self) -> Now {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.clock.now()
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

impl WatchedClock {
    fn start(&self, lease: Duration) -> Runtime {
        let substrate = Arc::new(TreeSubstrate::new(Store::in_memory().unwrap()));
        let policy = Policy { lease, ..Policy::default() };
        Runtime::builder(substrate, Arc::new(self.clone())).policy(policy).start().unwrap()
    }
}

/// Waits until something is so. The limit is for a machine that is very busy.
fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it never came to be");
}

/// Waits until a count stands still for a second. The limit is for a machine that is very busy.
fn until_quiet(count: impl Fn() -> u64) {
    for _ in 0..60 {
        let before = count();
        std::thread::sleep(Duration::from_secs(1));
        if count() == before {
            return;
        }
    }
    panic!("somebody wakes up again and again, and nothing was sent");
}

#[test]
fn pool_renews_the_lease_of_a_long_handler_while_others_wait_for_it() {
    let clock = WatchedClock::default();
    let runtime = clock.start(Duration::from_millis(20));
    let (own, moved) = (runtime.clone(), clock.clock.clone());
    let handler = move |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        for renewals in 1..=5 {
            // Not all of the lease passes before it was renewed again, however slow the machine is.
            moved.advance(Duration::from_millis(12));
            until(|| own.metrics().renewals >= renewals);
        }
        count(block, message)
    };
    let workers = [runtime.worker(ANN, handler), runtime.worker(ANN, count)];
    let [long, rival] = workers;
    let pool = Pool::start(vec![long]).unwrap();
    runtime.send(&command(ANN, "long")).unwrap();
    until(|| runtime.metrics().renewals > 0);
    let rivals = Pool::start(vec![rival]).unwrap();
    until(|| runtime.depth(ANN).unwrap() == 0);
    pool.stop().unwrap();
    rivals.stop().unwrap();
    let counts = runtime.metrics();
    assert_eq!((counts.successes, counts.superseded, counts.takeovers), (1, 0, 0));
    assert_eq!(runtime.gauges().unwrap().leases, 0);
}

#[test]
fn idle_pool_does_not_wake_up_by_itself() {
    let clock = WatchedClock::default();
    let runtime = clock.start(Duration::from_millis(2));
    let workers = [ANN, BOB, ANN].map(|id| runtime.worker(id, count));
    let pool = Pool::start(workers.into()).unwrap();
    for (number, worker) in [ANN, BOB].into_iter().enumerate() {
        runtime.send(&command(worker, &number.to_string())).unwrap();
        until(|| runtime.depth(worker).unwrap() == 0);
        // Every tick looks at the clock, and so does whoever keeps time: with a fixed tick it would never be quiet.
        until_quiet(|| clock.looks.load(Ordering::Relaxed));
    }
    pool.stop().unwrap();
}

/// How often the threads of pools have slept and been woken, as the system counts it.
#[cfg(target_os = "linux")]
fn sleeps_of_pool_threads() -> u64 {
    let mut sleeps = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        // A thread may end meanwhile.
        let Ok(status) = std::fs::read_to_string(task.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
        if field("Name:").starts_with("kauri-") {
            sleeps += field("voluntary_ctxt_switches:").parse::<u64>().unwrap();
        }
    }
    sleeps
}

#[test]
#[cfg(target_os = "linux")]
fn threads_of_an_idle_pool_stay_asleep() {
    let runtime = WatchedClock::default().start(Duration::from_millis(2));
    let far = Timestamp(runtime.now().wall.0 + 3_600_000);
    runtime.arm(far, &Message::timer(ANN, MessageId::new("far").unwrap(), "")).unwrap();
    let pool = Pool::start((0..8).map(|_| runtime.worker(ANN, count)).collect()).unwrap();
    until(|| sleeps_of_pool_threads() > 0);
    until_quiet(sleeps_of_pool_threads);
    pool.stop().unwrap();
}

#[test]
fn message_wakes_one_of_many_idle_instances_and_many_messages_wake_more() {
    let clock = WatchedClock::default();
    let runtime = clock.start(Duration::from_millis(2));
    let busy = Arc::new(AtomicU64::new(0));
    let policy = Policy { batch_messages_max: 1, retry_budget: 1_000_000, ..runtime.policy().clone() };
    let workers = (0..6).map(|_| {
        let busy = Arc::clone(&busy);
        let handler = move |block: &mut Atomic<'_>, message: MessageRef<'_>| {
            busy.fetch_add(1, Ordering::Relaxed);
            if message.id().starts_with(b"together") {
                // All of them are at work at once, or this never ends.
                until(|| busy.load(Ordering::Relaxed) >= 6);
            }
            count(block, message)
        };
        runtime.worker_with(ANN, policy.clone(), handler)
    });
    let pool = Pool::start(workers.collect()).unwrap();
    let together: Vec<Message> = (0..6).map(|number| command(ANN, &format!("together-{number}"))).collect();
    runtime.send_all(&together).unwrap();
    until(|| runtime.depth(ANN).unwrap() == 0);
    // Those that met a conflict ran again.
    assert!(busy.load(Ordering::Relaxed) >= 6);
    for number in 0..100 {
        runtime.send(&command(ANN, &number.to_string())).unwrap();
    }
    until(|| runtime.depth(ANN).unwrap() == 0);
    pool.stop().unwrap();
    assert_eq!(runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(106));
}

#[test]
fn message_of_a_worker_that_died_is_taken_over_by_one_that_was_asleep() {
    let clock = WatchedClock::default();
    let runtime = clock.start(Duration::from_millis(20));
    let pool = Pool::start(vec![runtime.worker(ANN, count)]).unwrap();
    runtime.send(&command(BOB, "claimed")).unwrap();
    let mut dead = runtime
        .worker(BOB, |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::Runtime(Error::Substrate("it dies".into()))));
    dead.tick().unwrap_err();
    drop(dead);
    let heirs = Pool::start((0..3).map(|_| runtime.worker(BOB, count)).collect()).unwrap();
    assert_eq!(runtime.depth(BOB).unwrap(), 1, "its lease lasts");
    clock.clock.advance(Duration::from_millis(20));
    until(|| runtime.depth(BOB).unwrap() == 0);
    heirs.stop().unwrap();
    pool.stop().unwrap();
}
