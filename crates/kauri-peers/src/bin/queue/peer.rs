//! What a queue must do to be compared with us.

use std::error::Error;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What jobs carry.
pub(crate) const PAYLOAD: &[u8] = b"a payload of some bytes, as jobs have";

/// How many jobs are enqueued in one call by whoever has many.
pub(crate) const BULK: usize = 100;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Enqueueing, one by one.
    Put,
    /// Enqueueing, [`BULK`] in a call.
    Bulk,
    /// Claiming and ending what was enqueued before.
    Work,
    /// Both at the same time: as many senders as workers.
    Through,
}

impl Task {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Bulk => "bulk",
            Self::Work => "work",
            Self::Through => "through",
        }
    }
}

/// A durable queue: what it has accepted, and what it has been told is done, survives a power cut.
pub(crate) trait Queue: Sync {
    fn name(&self) -> &'static str;

    /// How many seconds a task takes with so many clients and jobs.
    fn run(&self, task: Task, clients: usize, jobs: usize) -> Result<f64>;

    /// Microseconds from enqueueing to the handler of an idle worker, at the median of so many.
    fn wait(&self, count: usize) -> Result<f64>;

    /// Whether a worker claims and ends several jobs in one commit.
    fn works_in_batches(&self) -> bool {
        false
    }
}

/// A queue that is spoken to from threads.
pub(crate) trait Peer: Sync {
    fn name(&self) -> &'static str;

    /// A connection of its own, for one thread.
    fn connect(&self) -> Result<Box<dyn Client>>;

    /// Whether a worker claims and ends several jobs in one commit.
    fn works_in_batches(&self) -> bool {
        false
    }
}

/// One connection to a queue.
pub(crate) trait Client: Send {
    /// Enqueues a job, and returns when it is durable.
    fn put(&mut self) -> Result<()>;

    /// Enqueues so many jobs by the call that it has for that, or without waiting for one before the next, and returns when all are durable.
    fn put_many(&mut self, count: usize) -> Result<()>;

    /// From now on whoever waits is told of each job.
    fn notify(&mut self) {}

    /// Claims a job, handles it by looking at its payload, and returns when it is durable that it is done. Tells whether there was one.
    fn work(&mut self) -> Result<bool>;

    /// As `work`, for as many as it claims and ends in one commit. Tells how many that was.
    fn work_many(&mut self) -> Result<usize> {
        self.work().map(usize::from)
    }

    /// Waits for a job without asking again and again, claims it and returns: its handler would begin now.
    fn wait(&mut self) -> Result<()>;

    /// The job that was waited for is done.
    fn finish(&mut self) -> Result<()>;
}

pub(crate) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A queue that cannot be had says why.
pub(crate) fn expect(found: &[u8], wanted: &[u8]) -> Result<()> {
    match found.starts_with(wanted) {
        true => Ok(()),
        false => {
            let (found, wanted) = (String::from_utf8_lossy(found), String::from_utf8_lossy(wanted));
            Err(format!("expected {wanted:?}, found {found:?}").into())
        }
    }
}
