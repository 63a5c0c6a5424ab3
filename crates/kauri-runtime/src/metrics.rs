//! Counters, gauges and latencies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::Result;
use crate::histogram::Histogram;
use crate::schema::{DEAD_LETTER, DEDUPE, INBOX, LEASES, OUTBOX, SCHEDULES, TIMERS, URGENT};
use crate::substrate::{KeyRange, Rows};

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $field:ident;)*) => {
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter {
            $($variant,)*
        }

        /// What was counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $field: u64,)*
            /// How long steps took.
            pub latency: Latency,
            /// How long runs took, from when somebody began them until they were sealed or parked, in one go.
            pub run_latency: Latency,
        }

        const NAMES: &[&str] = &[$(stringify!($field),)*];

        impl Counts {
            /// Each counter by its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                NAMES.iter().copied().zip([$(self.$field,)*])
            }

            fn of(counters: &[AtomicU64], latency: Latency, run_latency: Latency) -> Self {
                let mut values = counters.iter().map(|counter| counter.load(Ordering::Relaxed));
                Self { $($field: values.next().unwrap_or_default(),)* latency, run_latency }
            }
        }
    };
}

counters! {
    /// Steps begun, each pass of a message counted once per delivery (`step_attempts`).
    Steps steps;
    /// Steps that committed (`step_successes`), duplicates included.
    Successes successes;
    /// Failures that may pass by themselves (`retryable_failures`).
    RetryableFailures retryable_failures;
    /// Those of them that were conflicts in every pass (`conflict_failures`).
    ConflictFailures conflict_failures;
    /// Those of them that the handler called so (`busy_failures`).
    BusyFailures busy_failures;
    /// Failures that will not pass by themselves (`non_retryable_failures`).
    FatalFailures fatal_failures;
    /// Messages put back into the inbox (`requeues`).
    Requeues requeues;
    /// Messages buried (`dead_letter_moves`).
    DeadLetters dead_letters;
    /// Messages acknowledged without running, because their id had been handled.
    Duplicates duplicates;
    /// Steps whose message somebody else had taken over or cancelled.
    Superseded superseded;
    /// Claims of a message whose lease had run out.
    Takeovers takeovers;
    /// Commits refused because something read had changed.
    Conflicts conflicts;
    /// Ticks that found nothing to claim because others were quicker.
    Contended contended;
    /// Messages sent by steps.
    Emitted emitted;
    /// Timers that came due.
    TimersFired timers_fired;
    /// Schedule slots that came.
    SchedulesFired schedules_fired;
    /// Rows of the outbox that were accepted.
    Delivered delivered;
    /// Commits made by workers.
    Commits commits;
    /// Ids forgotten by sweeps.
    Swept swept;
    /// Runs that somebody began, or went on with.
    RunsDriven runs_driven;
    /// Runs of those that ended well.
    RunsSucceeded runs_succeeded;
    /// Runs of those that ended otherwise.
    RunsFailed runs_failed;
}

/// How long steps took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latency {
    /// How many were measured.
    pub samples: u64,
    /// All together.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
    /// Half of them took no longer, within 1 %.
    pub p50: Duration,
    /// 99 of 100 took no longer, within 1 %.
    pub p99: Duration,
}

/// Counters of one runtime.
#[derive(Debug)]
pub(crate) struct Metrics {
    counters: [AtomicU64; NAMES.len()],
    latency: Mutex<Histogram>,
    run_latency: Mutex<Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            counters: std::array::from_fn(|_| AtomicU64::new(0)),
            latency: Mutex::default(),
            run_latency: Mutex::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        if count > 0 {
            self.counters[counter as usize].fetch_add(count, Ordering::Relaxed);
        }
    }

    pub(crate) fn took(&self, times: &[Duration]) {
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        times.iter().for_each(|time| latency.add(*time));
    }

    pub(crate) fn run_took(&self, time: Duration) {
        self.run_latency.lock().unwrap_or_else(PoisonError::into_inner).add(time);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts::of(&self.counters, summary(&self.latency), summary(&self.run_latency))
    }

    pub(crate) fn reset(&self) {
        self.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        for times in [&self.latency, &self.run_latency] {
            *times.lock().unwrap_or_else(PoisonError::into_inner) = Histogram::default();
        }
    }
}

fn summary(times: &Mutex<Histogram>) -> Latency {
    let times = times.lock().unwrap_or_else(PoisonError::into_inner);
    Latency {
        samples: times.count(),
        total: times.total(),
        max: times.max(),
        p50: times.quantile(0.50),
        p99: times.quantile(0.99),
    }
}

/// How much waits where: exact, from one snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Gauges {
    /// Messages in all inboxes.
    pub inbox: u64,
    /// Those of them that are claimed first.
    pub urgent: u64,
    /// Instances of workers that have messages.
    pub leases: u64,
    /// Messages waiting to be delivered outside.
    pub outbox: u64,
    /// Timers armed.
    pub timers: u64,
    /// Schedules.
    pub schedules: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// Ids remembered and counters kept.
    pub dedupe: u64,
}

impl Gauges {
    pub(crate) fn read(rows: &dyn Rows) -> Result<Self> {
        let count = |table| rows.count(table, KeyRange::ALL);
        Ok(Self {
            inbox: count(&INBOX)?,
            urgent: count(&URGENT)?,
            leases: count(&LEASES)?,
            outbox: count(&OUTBOX)?,
            timers: count(&TIMERS)?,
            schedules: count(&SCHEDULES)?,
            dead_letters: count(&DEAD_LETTER)?,
            dedupe: count(&DEDUPE)?,
        })
    }

    /// Each gauge by its name.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let Self { inbox, urgent, leases, outbox, timers, schedules, dead_letters, dedupe } = *self;
        let names = ["inbox", "urgent", "leases", "outbox", "timers", "schedules", "dead_letters", "dedupe"];
        names.into_iter().zip([inbox, urgent, leases, outbox, timers, schedules, dead_letters, dedupe])
    }
}
