//! What happens, as events of the `tracing` crate.

use tracing::{debug, error, info, warn};

use crate::observe::{Observation, Observer, StepEnd};
use crate::run::script::{Phase, Report};
use crate::run::{Run, SweptRuns};

/// An observer that makes events for `tracing`: ends of steps at `debug`, what was requeued at `info`, what was buried and what hooks got wrong
/// at `warn`, errors at `error`. Payloads are not among their fields.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

impl Observer for Tracing {
    fn observe(&self, observation: &Observation<'_>) {
        match observation {
            Observation::StepBegan { .. } => {}
            Observation::StepEnded { key, end, took, .. } => {
                let (worker, seq, micros) = (key.worker.0, key.seq.0, took.as_micros());
                match end {
                    StepEnd::Done | StepEnd::Duplicate | StepEnd::Superseded => {
                        debug!(worker, seq, micros, ?end, "step ended");
                    }
                    StepEnd::Requeued { reason, retryable, failures } => {
                        info!(worker, seq, micros, reason = &**reason, retryable, failures, "message requeued");
                    }
                    StepEnd::Buried { reason, detail, failures } => {
                        warn!(
                            worker,
                            seq,
                            micros,
                            reason = reason.as_str(),
                            detail = &**detail,
                            failures,
                            "message buried"
                        );
                    }
                }
            }
            Observation::TimerFired { key, .. } => debug!(seq = key.seq.0, due = key.due.0, "timer fired"),
            Observation::ScheduleFired { name, slot } => debug!(name, slot = slot.0, "schedule fired"),
            Observation::Conflict { worker, conflict, pass } => {
                debug!(worker = worker.map(|worker| worker.0), table = &*conflict.table, pass, "conflict");
            }
            Observation::WorkerError { worker, error } => error!(worker = worker.0, %error, "worker cannot go on"),
            Observation::Delivered { seq } => debug!(seq = seq.0, "outbox row delivered"),
            Observation::RunEnded { run } => {
                let (run_id, job_id, class) = (run.id, run.job.as_str(), &*run.class);
                let parent_run_id = run.parent().map(tracing::field::display);
                let (attempt, outcome, events, steps) = (run.attempt(), run.state, run.events, run.steps);
                let (queued_ms, took_ms) = run.durations();
                info!(
                    %run_id, job_id, class, parent_run_id, attempt, %outcome, queued_ms, took_ms, events, steps,
                    "run ended or waits"
                );
            }
            Observation::RunReported { run, report } => tell_report(run, report),
            Observation::RunsSwept { swept } => {
                let SweptRuns { jobs, runs, events, artifacts, bytes, dead_letters, .. } = **swept;
                info!(jobs, runs, events, artifacts, bytes, dead_letters, "runs swept");
            }
            Observation::Swept { rows } => debug!(rows, "ids forgotten"),
        }
    }
}

/// How a script went: how long each phase took, in microseconds, and each trouble that changed nothing.
fn tell_report(run: &Run, report: &Report) {
    let (run_id, job_id, class) = (run.id, run.job.as_str(), &*run.class);
    let parent_run_id = run.parent().map(tracing::field::display);
    let (attempt, outcome) = (run.attempt(), run.state);
    for swallowed in &report.swallowed {
        let (phase, error_type, error) = (swallowed.phase, &*swallowed.error.error_type, &*swallowed.error.message);
        warn!(%run_id, job_id, class, attempt, %phase, error_type, error, "trouble in a script changed nothing");
    }
    let micros = |phase| {
        let mut took = report.phases.iter().filter(|(taken, _)| *taken == phase).peekable();
        took.peek()?;
        Some(u64::try_from(took.map(|(_, took)| took.as_micros()).sum::<u128>()).unwrap_or(u64::MAX))
    };
    let Report { emitted, refused, left_alone, orphans, is_disputed, .. } = *report;
    let (dropped, swallowed) = (report.tally.dropped_total(), report.swallowed.len());
    info!(
        %run_id, job_id, class, parent_run_id, attempt, %outcome,
        load_us = micros(Phase::Load),
        prepare_us = micros(Phase::Prepare),
        acquire_us = micros(Phase::Acquire),
        before_run_us = micros(Phase::BeforeRun),
        run_us = micros(Phase::Run),
        after_run_us = micros(Phase::AfterRun),
        on_error_us = micros(Phase::OnError),
        before_terminal_us = micros(Phase::BeforeTerminal),
        seal_us = micros(Phase::Seal),
        cleanup_us = micros(Phase::Cleanup),
        release_us = micros(Phase::Release),
        emitted, refused, dropped, left_alone, orphans, disputed = is_disputed, swallowed,
        "script is over"
    );
}
