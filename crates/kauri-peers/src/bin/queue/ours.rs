//! Kauri's runtime as a queue: one inbox, any number of senders and of worker instances.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Atomic, Clock, Failure, Mono, Now, Policy, Pool, Runtime, Sending};
use kauri_tree::Store;
use kauri_wire::{Message, MessageId, MessageRef, Timestamp, WorkerId};

use crate::clients::together;
use crate::peer::{BULK, PAYLOAD, Queue, Result, Task, median};

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

/// The runtime, and how many messages an instance takes at a time.
pub(crate) struct Ours {
    runtime: Runtime,
    batch: usize,
}

/// As many messages as a worker takes at a time if nobody says otherwise.
pub(crate) fn default_batch() -> usize {
    Policy::default().batch_messages_max
}

impl Ours {
    pub(crate) fn start(folder: &Path, batch: usize) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let substrate = Arc::new(TreeSubstrate::new(Store::open(folder.join("store"))?));
        let runtime = Runtime::builder(substrate, Arc::new(SystemClock(Instant::now()))).start()?;
        Ok(Self { runtime, batch })
    }

    /// Sends messages, durably, one by one from each client. Many clients are as in an asynchronous program: so many messages are on their way
    /// from one thread, and each is followed by another when it is durable.
    fn send(&self, clients: usize, jobs: usize) -> Result<()> {
        if clients == 1 {
            for number in 0..jobs {
                self.runtime.send(&job(number)?)?;
            }
            return Ok(());
        }
        let sender = self.runtime.sender()?;
        let mut underway = VecDeque::with_capacity(clients);
        for number in 0..jobs {
            if underway.len() == clients
                && let Some(sending) = underway.pop_front()
            {
                Sending::wait(sending)?;
            }
            underway.push_back(sender.send(job(number)?)?);
        }
        underway.into_iter().try_for_each(|sending| Ok(sending.wait().map(drop)?))
    }

    /// Sends messages, durably, many in a call.
    fn send_many(&self, clients: usize, jobs: usize) -> Result<()> {
        let send = |first: usize| -> Result<()> {
            let messages: Result<Vec<Message>> = (first..first + BULK).map(job).collect();
            self.runtime.send_all(&messages?)?;
            Ok(())
        };
        let calls = jobs / clients / BULK;
        together(clients, |client| (0..calls).try_for_each(|call| send(client * jobs + call * BULK)))
    }

    /// Handles so many messages with so many instances.
    fn drain(&self, instances: usize, jobs: usize, meanwhile: impl FnOnce() -> Result<()>) -> Result<Duration> {
        let (told, hears) = mpsc::channel();
        let done = Arc::new(AtomicUsize::new(0));
        let policy = Policy { batch_messages_max: self.batch, ..Policy::default() };
        let workers = (0..instances).map(|_| {
            let (told, done) = (told.clone(), Arc::clone(&done));
            self.runtime.worker_with(WORKER, policy.clone(), move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
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
        meanwhile()?;
        hears.recv()?;
        // So many handlers have run, some of them perhaps in vain. It is done when nothing is left.
        while self.runtime.depth(WORKER)? > 0 && began.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_micros(100));
        }
        let took = began.elapsed();
        pool.stop()?;
        match self.runtime.depth(WORKER)? {
            0 => Ok(took),
            left => Err(format!("{left} messages are left").into()),
        }
    }
}

fn job(number: usize) -> Result<Message> {
    Ok(Message::command(WORKER, MessageId::new(number.to_string())?, PAYLOAD))
}

fn timed(run: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    run()?;
    Ok(began.elapsed())
}

impl Queue for Ours {
    fn name(&self) -> &'static str {
        "kauri"
    }

    fn run(&self, task: Task, clients: usize, jobs: usize) -> Result<f64> {
        let took = match task {
            Task::Put => timed(|| self.send(clients, jobs))?,
            Task::Bulk => timed(|| self.send_many(clients, jobs))?,
            Task::Work => self.drain(clients, jobs, || Ok(()))?,
            Task::Through => self.drain(clients, jobs, || self.send(clients, jobs))?,
        };
        Ok(took.as_secs_f64())
    }

    fn wait(&self, count: usize) -> Result<f64> {
        let (told, hears) = mpsc::channel();
        let handler = move |_: &mut Atomic<'_>, _: MessageRef<'_>| told.send(Instant::now()).map_err(Failure::fatal);
        let pool = Pool::start(vec![self.runtime.worker(WORKER, handler)])?;
        let mut times = Vec::with_capacity(count);
        for number in 0..count {
            let began = Instant::now();
            self.runtime.send(&job(number)?)?;
            times.push(hears.recv()?.duration_since(began).as_secs_f64() * 1e6);
            std::thread::sleep(Duration::from_millis(1));
        }
        pool.stop()?;
        Ok(median(times))
    }
}
