//! What the runtime tells whoever wants to know.

use std::time::Duration;

use kauri_wire::{InboxKey, Seq, TimerKey, Timestamp, WorkerId};

use crate::dead_letter::Reason;
use crate::error::{Conflict, Error};
use crate::metrics::Counts;
use crate::run::script::Report;
use crate::run::{Run, SweptRuns};
use crate::substrate::Writes;
use crate::time::Now;

/// How a step ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepEnd {
    /// It committed.
    Done,
    /// Its message had been handled before: it was acknowledged and not run.
    Duplicate,
    /// It failed and is in the inbox again, or in the timers.
    Requeued {
        /// Why.
        reason: Box<str>,
        /// Whether it may succeed without anything being changed.
        retryable: bool,
        /// How many failures of this sort it has had.
        failures: u32,
    },
    /// It was buried.
    Buried {
        /// What sort of end it was.
        reason: Reason,
        /// Why.
        detail: Box<str>,
        /// How many failures it has had.
        failures: u32,
    },
    /// Somebody else has its message now, or cancelled it: nothing was committed.
    Superseded,
}

/// Something that happened. What it borrows is there during the call; copy what you keep.
#[derive(Debug)]
#[non_exhaustive]
pub enum Observation<'a> {
    /// A message is about to be handled.
    StepBegan {
        /// Which.
        key: InboxKey,
        /// How often it was claimed, this time included.
        delivery: u32,
        /// The message.
        frame: &'a [u8],
    },
    /// A step ended, and what it did is committed (or nobody will).
    StepEnded {
        /// Which.
        key: InboxKey,
        /// How.
        end: &'a StepEnd,
        /// The message.
        frame: &'a [u8],
        /// The present, as the handler was told it.
        now: Now,
        /// How long its last pass took.
        took: Duration,
        /// What the handler wrote, if an observer [wants](Observer::wants_writes) to know.
        writes: Option<&'a Writes>,
    },
    /// A timer came due and is in the inbox of its worker.
    TimerFired {
        /// Which.
        key: TimerKey,
        /// The message.
        frame: &'a [u8],
    },
    /// A schedule's slot came, and its message is in the inbox of its worker.
    ScheduleFired {
        /// The schedule's name.
        name: &'a str,
        /// The slot.
        slot: Timestamp,
    },
    /// A block met a conflict.
    Conflict {
        /// The worker, if a message was handled.
        worker: Option<WorkerId>,
        /// What had changed.
        conflict: &'a Conflict,
        /// In which pass.
        pass: u32,
    },
    /// A worker could not go on with what it did.
    WorkerError {
        /// The worker.
        worker: WorkerId,
        /// Why.
        error: &'a Error,
    },
    /// A row of the outbox was accepted by a sink.
    Delivered {
        /// Which.
        seq: Seq,
    },
    /// A run was sealed, by whoever drove it or by somebody else, or waits.
    RunEnded {
        /// The run as it stands.
        run: &'a Run,
    },
    /// A run's script was executed, and everything of it is over, `cleanup` and release too: the run has ended, or waits.
    RunReported {
        /// The run as it stands.
        run: &'a Run,
        /// How it went.
        report: &'a Report,
    },
    /// What had ended, and is kept no longer, was removed.
    RunsSwept {
        /// How much.
        swept: &'a SweptRuns,
    },
    /// Ids that need not be remembered any more were forgotten.
    Swept {
        /// How many.
        rows: usize,
    },
}

/// Whoever is told of everything, on the thread that did it: it must be quick, and call nothing of the runtime.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn observe(&self, observation: &Observation<'_>) {
        let _ = observation;
    }

    /// The counts, after a tick has changed them.
    fn metrics(&self, counts: &Counts) {
        let _ = counts;
    }

    /// Whether [`Observation::StepEnded`] should say what was written, which costs a copy of it.
    fn wants_writes(&self) -> bool {
        false
    }
}
