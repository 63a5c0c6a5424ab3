//! Queues that are spoken to from threads of this process, each with a connection of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::peer::{BULK, Client, Peer, Queue, Result, Task, median};

/// A peer, measured from threads.
pub(crate) struct Clients<P>(pub(crate) P);

/// How long a worker sleeps that found nothing, before it asks again.
const ASK_AGAIN: Duration = Duration::from_micros(200);
/// Whatever takes longer has gone wrong.
const LONGEST: Duration = Duration::from_secs(120);

impl<P: Peer> Queue for Clients<P> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn works_in_batches(&self) -> bool {
        self.0.works_in_batches()
    }

    fn run(&self, task: Task, clients: usize, jobs: usize) -> Result<f64> {
        let (senders, workers) = match task {
            Task::Put | Task::Bulk => (clients, 0),
            Task::Work => (0, clients),
            Task::Through => (clients, clients),
        };
        let (left, began) = (AtomicUsize::new(jobs), Instant::now());
        together(senders + workers, |at| {
            let mut client = self.0.connect()?;
            match (at < senders, task) {
                (true, Task::Bulk) => (0..jobs / clients / BULK).try_for_each(|_| client.put_many(BULK)),
                (true, _) => (0..jobs / clients).try_for_each(|_| client.put()),
                (false, _) => work_off(&mut *client, &left),
            }
        })?;
        let took = began.elapsed().as_secs_f64();
        if workers > 0 && self.0.connect()?.work()? {
            return Err(format!("{} has more jobs than were put", self.name()).into());
        }
        Ok(took)
    }

    fn wait(&self, count: usize) -> Result<f64> {
        let (told, hears) = mpsc::channel();
        let mut worker = self.0.connect()?;
        let mut sender = self.0.connect()?;
        sender.notify();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                (0..count).try_for_each(|_| {
                    worker.wait()?;
                    told.send(Instant::now())?;
                    worker.finish()
                })
            });
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                let began = Instant::now();
                sender.put()?;
                let at = hears.recv().map_err(|_| format!("the worker of {} ended", self.name()))?;
                times.push(at.duration_since(began).as_secs_f64() * 1e6);
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(median(times))
        })
    }
}

/// Claims and ends jobs until none of all is left.
fn work_off(client: &mut dyn Client, left: &AtomicUsize) -> Result<()> {
    let began = Instant::now();
    while left.load(Ordering::Relaxed) > 0 {
        let done = client.work_many()?;
        left.fetch_sub(done, Ordering::Relaxed);
        if done == 0 && left.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(ASK_AGAIN);
        }
        if began.elapsed() > LONGEST {
            return Err("jobs were lost".into());
        }
    }
    Ok(())
}

/// Runs something for each client on a thread of its own.
pub(crate) fn together(clients: usize, run: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| {
                scope.spawn({
                    let run = &run;
                    move || run(client)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a client panicked")?)
    })
}
