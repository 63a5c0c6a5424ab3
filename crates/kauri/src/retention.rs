//! Retention with an audit: what is removed stands in the ledger's audit before it is gone.

use kauri_ledger::{AuditNote, Ledger};
use kauri_runtime::Error;
use kauri_runtime::run::{Collected, Collector, Files, KeepError, Removal, Run, Runs, SweptRuns};

/// Removes what the classes of jobs keep no longer, up to about so many rows, as [`Runs::sweep`] does; and artifacts that nothing names any
/// more, if there are `files`. Each thing is noted in the audit before it is removed.
///
/// # Errors
/// What the store, the disk or the audit says. What cannot be noted is not removed.
pub fn sweep(
    runs: &Runs,
    ledger: &Ledger,
    files: Option<&Files>,
    rows_max: usize,
) -> Result<(SweptRuns, Collected), Box<dyn std::error::Error + Send + Sync>> {
    let Some(files) = files else {
        return Ok((runs.sweep_telling(rows_max, |it| noted(ledger, it))?, Collected::default()));
    };
    let swept = sweep_rows(runs, ledger, files, rows_max)?;
    Ok((swept, collect(&mut runs.collector(files)?, ledger, usize::MAX)?))
}

/// Removes so many rows of what is kept no longer.
pub(crate) fn sweep_rows(
    runs: &Runs,
    ledger: &Ledger,
    files: &Files,
    rows_max: usize,
) -> kauri_runtime::Result<SweptRuns> {
    runs.sweep_beside(files, rows_max, |removal| noted(ledger, removal))
}

/// Goes on with a collection, by so many names.
pub(crate) fn collect(collector: &mut Collector, ledger: &Ledger, names_max: usize) -> Result<Collected, KeepError> {
    collector.step(names_max, |removal| noted(ledger, removal))
}

fn noted(ledger: &Ledger, removal: &Removal<'_>) -> kauri_runtime::Result<()> {
    ledger.audit().append(&note(removal)).map(drop).map_err(|error| Error::Substrate(error.to_string().into()))
}

fn note(removal: &Removal<'_>) -> AuditNote {
    match removal {
        Removal::Job { class, job, runs, why } => {
            let sum = |of: fn(&Run) -> u64| runs.iter().map(of).sum::<u64>().to_string();
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
        Removal::Events { class, run, why } => {
            of_run("EVENTS_SWEPT", class, run).with("events", run.events.to_string()).with("why", why.to_string())
        }
        Removal::Artifacts { class, run, why } => of_run("ARTIFACTS_SWEPT", class, run)
            .with("bytes", run.artifact_bytes.to_string())
            .with("why", why.to_string()),
        Removal::File { run, name, file } => {
            let note = AuditNote::new("FILE_COLLECTED").with("run_id", run.to_string()).with("name", *name);
            match file {
                Some(file) => note
                    .with("filename", file.filename.as_str())
                    .with("sha256", file.digest.to_string())
                    .with("bytes", file.size_bytes.to_string()),
                None => note.with("filename", "damaged"),
            }
        }
        Removal::Artifact { digest, size_bytes } => AuditNote::new("ARTIFACT_COLLECTED")
            .with("sha256", digest.to_string())
            .with("bytes", size_bytes.to_string()),
        other => AuditNote::new("SWEPT").with("what", format!("{other:?}")),
    }
}

fn of_run(what: &str, class: &str, run: &Run) -> AuditNote {
    AuditNote::new(what)
        .trace(run.trace())
        .with("class", class)
        .with("job_id", run.job.as_str())
        .with("run_id", run.id.to_string())
}
