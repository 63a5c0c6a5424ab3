//! Retention with an audit: what is removed stands in the ledger's audit before it is gone.

use kauri_ledger::{AuditNote, Ledger};
use kauri_runtime::Error;
use kauri_runtime::run::{Collected, Files, Removal, Runs, SweptRuns};

/// Removes what the classes of jobs keep no longer, up to about so many rows, as [`Runs::sweep`] does; and artifacts that nothing names any
/// more, if there are `files`. Each job and dead letter is noted in the audit before it is removed, and what was collected after.
///
/// # Errors
/// What the store, the disk or the audit says. What cannot be noted is not removed.
pub fn sweep(
    runs: &Runs,
    ledger: &Ledger,
    files: Option<&Files>,
    rows_max: usize,
) -> Result<(SweptRuns, Collected), Box<dyn std::error::Error>> {
    let swept = runs.sweep_telling(rows_max, |removal| {
        ledger.audit().append(&note(removal)).map(drop).map_err(|error| Error::Substrate(error.to_string().into()))
    })?;
    let collected = files.map(|files| runs.collect(files)).transpose()?.unwrap_or_default();
    if collected != Collected::default() {
        let note = AuditNote::new("ARTIFACTS_COLLECTED").with("files", collected.files.to_string());
        ledger.audit().append(&note.with("artifacts", collected.artifacts.to_string()))?;
    }
    Ok((swept, collected))
}

fn note(removal: &Removal<'_>) -> AuditNote {
    match removal {
        Removal::Job { class, job, runs, why } => {
            let sum = |of: fn(&kauri_runtime::run::Run) -> u64| runs.iter().map(of).sum::<u64>().to_string();
            AuditNote::new("JOB_SWEPT")
                .trace(job.first.to_string())
                .with("class", *class)
                .with("job_id", job.id.as_str())
                .with("outcome", job.outcome.map_or("none", |outcome| outcome.as_str()))
                .with("runs", runs.len().to_string())
                .with("events", sum(|run| run.events))
                .with("bytes", sum(|run| run.bytes))
                .with("why", why.to_string())
        }
        Removal::DeadLetter { class, key, letter, why } => AuditNote::new("DEAD_LETTER_SWEPT")
            .with("class", *class)
            .with("worker", key.worker.to_string())
            .with("seq", key.seq.to_string())
            .with("reason", letter.reason.as_str())
            .with("why", why.to_string()),
        other => AuditNote::new("SWEPT").with("what", format!("{other:?}")),
    }
}
