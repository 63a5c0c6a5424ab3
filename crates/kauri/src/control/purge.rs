//! Dead letters removed because somebody says so: each stands in the audit before it is gone, as with those that are kept no longer.

use kauri_ledger::{Audit, AuditNote};
use kauri_runtime::{DeadLetter, Drain, Runtime};
use kauri_wire::InboxKey;
use serde_json::{Value, json};

use super::answer::{keys, name, number};
use super::{Code, Fault};

/// Removes dead letters as the request `purge_dead_letters` says: all of them without keys, or those that were buried before a moment. What
/// cannot be noted in the audit is not removed.
///
/// # Errors
/// Why it was not done, or not to the end.
pub fn purge(runtime: &Runtime, audit: &Audit, args: &Value) -> Result<Value, Fault> {
    let (keys, before) = (keys(args)?, number(args, "before_ms")?);
    let is_meant = |key: InboxKey, letter: &DeadLetter| match before {
        Some(before) => letter.failed_at.0 < before,
        None => keys.is_empty() || keys.contains(&key),
    };
    let (mut done, mut fault) = (Vec::new(), None);
    runtime.drain_dead_letters(None, |key, letter| {
        if !is_meant(key, letter) {
            return Drain::Leave;
        }
        match audit.append(&note(key, letter)) {
            Ok(_) => {
                done.push(json!({ "key": name(key), "to": null }));
                Drain::Take
            }
            Err(error) => {
                fault = Some(Fault::new(Code::Failed, format!("the audit: {error}")));
                Drain::Stop
            }
        }
    })?;
    fault.map_or(Ok(done.into()), Err)
}

fn note(key: InboxKey, letter: &DeadLetter) -> AuditNote {
    AuditNote::new("DEAD_LETTER_PURGED")
        .with("worker", key.worker.to_string())
        .with("seq", key.seq.to_string())
        .with("reason", letter.reason.as_str())
        .with("why", "somebody asked for it")
}
