//! Counters, gauges and latencies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::Result;
use crate::histogram::{Histogram, Spread};
use crate::run::script::{Phase, Report};
use crate::run::{Outcome, Run};
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
            /// How long runs that have ended had waited to be begun.
            pub run_queued: Latency,
            /// How long they then took.
            pub run_took: Latency,
            /// How long the phases of their scripts took.
            pub phases: PhaseTimes,
        }

        const NAMES: &[&str] = &[$(stringify!($field),)*];

        impl Counts {
            /// Each counter by its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                NAMES.iter().copied().zip([$(self.$field,)*])
            }

            fn of(
                counters: &[AtomicU64],
                [latency, run_queued, run_took]: [Latency; 3],
                phases: PhaseTimes,
            ) -> Self {
                let mut values = counters.iter().map(|counter| counter.load(Ordering::Relaxed));
                Self { $($field: values.next().unwrap_or_default(),)* latency, run_queued, run_took, phases }
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
    /// Leases renewed while their handler was at work.
    Renewals renewals;
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
    /// Jobs with their runs removed by sweeps.
    JobsSwept jobs_swept;
    /// Events removed by sweeps, with their runs or before them.
    EventsSwept events_swept;
    /// Names of artifacts removed by sweeps, with their runs or before them.
    ArtifactsSwept artifacts_swept;
    /// Artifacts whose bytes were removed, because nothing named them any more.
    ArtifactsCollected artifacts_collected;
    /// Files beside runs that were removed.
    FilesCollected files_collected;
    /// Dead letters removed by sweeps.
    LettersSwept letters_swept;
    /// Runs that ended with a success.
    RunsSuccess runs_success;
    /// Runs that ended without having been needed.
    RunsSkipped runs_skipped;
    /// Runs that ended with an error of their script.
    RunsScriptError runs_script_error;
    /// Runs that ended with a crash of what drove them.
    RunsExecutorCrash runs_executor_crash;
    /// Runs that a policy ended.
    RunsPolicyFailure runs_policy_failure;
    /// Runs whose code was not the code that began them.
    RunsVersionMismatch runs_version_mismatch;
    /// Runs that were cancelled.
    RunsCancelled runs_cancelled;
    /// Runs whose time was over.
    RunsTimedOut runs_timed_out;
    /// Events of runs that have ended.
    RunEvents run_events;
    /// Steps of runs that have ended.
    RunSteps run_steps;
    /// Errors of hooks, and others, that did not change how a run ended.
    SwallowedErrors swallowed_errors;
    /// Events that scripts tried to say when nothing could be said any more.
    RefusedEvents refused_events;
    /// Events that were dropped because there was no room for them.
    DroppedEvents dropped_events;
    /// Calls of scripts that did not stop and were left alone.
    LeftAlone left_alone_calls;
    /// Artifacts that had bytes and no event.
    Orphans orphan_artifacts;
    /// Ends that processes said and did not stand by.
    Disputed disputed_ends;
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

/// How long a phase of scripts took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PhaseTime {
    /// How often it was taken.
    pub count: u64,
    /// All of that together.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
}

/// How long the phases of scripts took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PhaseTimes([PhaseTime; Phase::ALL.len()]);

impl PhaseTimes {
    /// Each phase that was taken, in the order of a run.
    pub fn each(&self) -> impl Iterator<Item = (Phase, PhaseTime)> {
        Phase::ALL.into_iter().zip(self.0).filter(|(_, time)| time.count > 0)
    }

    fn add(&mut self, phase: Phase, took: Duration) {
        let PhaseTime { count, total, max } = &mut self.0[phase as usize];
        *count += 1;
        *total = total.saturating_add(took);
        *max = took.max(*max);
    }
}

/// All that was measured, by how long it took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Spreads {
    /// Steps.
    pub steps: Spread,
    /// Runs that have ended: how long they had waited to be begun.
    pub run_queued: Spread,
    /// How long they then took.
    pub run_took: Spread,
}

/// Counters of one runtime.
#[derive(Debug)]
pub(crate) struct Metrics {
    counters: [AtomicU64; NAMES.len()],
    latency: Mutex<Histogram>,
    run_queued: Mutex<Histogram>,
    run_took: Mutex<Histogram>,
    phases: Mutex<PhaseTimes>,
}

impl Default for Metrics {
    fn default() -> Self {
        let (latency, run_queued, run_took, phases) = Default::default();
        Self { counters: std::array::from_fn(|_| AtomicU64::new(0)), latency, run_queued, run_took, phases }
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

    /// Counts a run that was sealed.
    pub(crate) fn run_ended(&self, run: &Run, outcome: Outcome) {
        self.add(counter_of(outcome), 1);
        self.add(Counter::RunEvents, run.events);
        self.add(Counter::RunSteps, run.steps.into());
        let (queued, took) = run.durations();
        for (histogram, millis) in [(&self.run_queued, queued), (&self.run_took, took)] {
            if let Some(millis) = millis.and_then(|millis| u64::try_from(millis).ok()) {
                histogram.lock().unwrap_or_else(PoisonError::into_inner).add(Duration::from_millis(millis));
            }
        }
    }

    /// Counts how a script went.
    pub(crate) fn run_reported(&self, report: &Report) {
        for (counter, count) in [
            (Counter::SwallowedErrors, report.swallowed.len() as u64),
            (Counter::RefusedEvents, report.refused),
            (Counter::DroppedEvents, report.tally.dropped_total()),
            (Counter::LeftAlone, report.left_alone),
            (Counter::Orphans, report.orphans),
            (Counter::Disputed, report.is_disputed.into()),
        ] {
            self.add(counter, count);
        }
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        report.phases.iter().for_each(|(phase, took)| phases.add(*phase, *took));
    }

    pub(crate) fn counts(&self) -> Counts {
        let phases = *self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        Counts::of(&self.counters, [&self.latency, &self.run_queued, &self.run_took].map(summary), phases)
    }

    pub(crate) fn spreads(&self) -> Spreads {
        let of = |histogram: &Mutex<Histogram>| histogram.lock().unwrap_or_else(PoisonError::into_inner).spread();
        Spreads { steps: of(&self.latency), run_queued: of(&self.run_queued), run_took: of(&self.run_took) }
    }

    pub(crate) fn reset(&self) {
        self.counters.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        for histogram in [&self.latency, &self.run_queued, &self.run_took] {
            *histogram.lock().unwrap_or_else(PoisonError::into_inner) = Histogram::default();
        }
        *self.phases.lock().unwrap_or_else(PoisonError::into_inner) = PhaseTimes::default();
    }
}

fn summary(histogram: &Mutex<Histogram>) -> Latency {
    let histogram = histogram.lock().unwrap_or_else(PoisonError::into_inner);
    Latency {
        samples: histogram.count(),
        total: histogram.total(),
        max: histogram.max(),
        p50: histogram.quantile(0.50),
        p99: histogram.quantile(0.99),
    }
}

const fn counter_of(outcome: Outcome) -> Counter {
    match outcome {
        Outcome::Success { skipped: false } => Counter::RunsSuccess,
        Outcome::Success { skipped: true } => Counter::RunsSkipped,
        Outcome::ScriptError => Counter::RunsScriptError,
        Outcome::ExecutorCrash => Counter::RunsExecutorCrash,
        Outcome::PolicyFailure => Counter::RunsPolicyFailure,
        Outcome::VersionMismatch => Counter::RunsVersionMismatch,
        Outcome::Cancelled => Counter::RunsCancelled,
        Outcome::TimedOut => Counter::RunsTimedOut,
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
