//! What happens, as events of the `tracing` crate.

use tracing::{debug, error, info, warn};

use crate::observe::{Observation, Observer, StepEnd};
use crate::run::SweptRuns;

/// An observer that makes events for `tracing`: ends of steps at `debug`, what was requeued at `info`, what was buried at `warn`, errors
/// at `error`. Payloads are not among their fields.
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
            Observation::RunsSwept { swept } => {
                let SweptRuns { jobs, runs, events, artifacts, bytes, dead_letters, .. } = **swept;
                info!(jobs, runs, events, artifacts, bytes, dead_letters, "runs swept");
            }
            Observation::Swept { rows } => debug!(rows, "ids forgotten"),
        }
    }
}
