//! Kauri's runtime as a queue: one inbox, any number of senders and of worker instances.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Atomic, Clock, Failure, Mono, Now, Policy, Pool, Runtime};
use kauri_tree::Store;
use kauri_wire::{Message, MessageId, MessageRef, Timestamp, WorkerId};

use crate::peer::{PAYLOAD, Result};

const WORKER: WorkerId = WorkerId(1);
/// Whatever takes longer has gone wrong.
const LONGEST: Duration = Duration::from_secs(60);

/// The clocks of the system.
struct SystemClock(Instant);

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let wall =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |wall| wall.as_millis());
        Now { mono: Mono(self.0.elapsed()), wall: Timestamp(i64::try_from(wall).unwrap_or(i64::MAX)) }
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

pub(crate) struct Ours(Runtime);

impl Ours {
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let substrate = Arc::new(TreeSubstrate::new(Store::open(folder.join("store"))?));
        Ok(Self(Runtime::builder(substrate, Arc::new(SystemClock(Instant::now()))).start()?))
    }

    /// Sends one message, durably.
    pub(crate) fn put(&self, number: usize) -> Result<()> {
        self.0.send(&Message::command(WORKER, MessageId::new(number.to_string())?, PAYLOAD))?;
        Ok(())
    }

    /// Handles so many messages with so many instances, each of which takes up to `batch` at a time. Tells how long it took.
    pub(crate) fn drain(&self, jobs: usize, instances: usize, batch: usize) -> Result<Duration> {
        let (told, hears) = mpsc::channel();
        let done = Arc::new(AtomicUsize::new(0));
        let policy = Policy { batch_messages_max: batch, ..Policy::default() };
        let workers = (0..instances).map(|_| {
            let (told, done) = (told.clone(), Arc::clone(&done));
            self.0.worker_with(WORKER, policy.clone(), move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
                if message.payload() != PAYLOAD {
                    return Err(Failure::fatal("another payload"));
                }
                if done.fetch_add(1, Ordering::Relaxed) + 1 == jobs {
                    told.send(()).map_err(Failure::fatal)?;
                }
                Ok(())
            })
        });
        let workers = workers.collect();
        let began = Instant::now();
        let pool = Pool::start(workers)?;
        hears.recv()?;
        // So many handlers have run, some of them perhaps in vain. It is done when nothing is left.
        while self.0.depth(WORKER)? > 0 && began.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_micros(100));
        }
        let took = began.elapsed();
        pool.stop()?;
        match self.0.depth(WORKER)? {
            0 => Ok(took),
            left => Err(format!("{left} messages are left").into()),
        }
    }

    /// How long it takes from sending to an idle worker's handler, in microseconds, each time.
    pub(crate) fn waits(&self, count: usize) -> Result<Vec<f64>> {
        let (told, hears) = mpsc::channel();
        let handler = move |_: &mut Atomic<'_>, _: MessageRef<'_>| told.send(Instant::now()).map_err(Failure::fatal);
        let pool = Pool::start(vec![self.0.worker(WORKER, handler)])?;
        let mut times = Vec::with_capacity(count);
        for number in 0..count {
            let began = Instant::now();
            self.put(number)?;
            times.push(hears.recv()?.duration_since(began).as_secs_f64() * 1e6);
            std::thread::sleep(Duration::from_millis(1));
        }
        pool.stop()?;
        Ok(times)
    }
}
