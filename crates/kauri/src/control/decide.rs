//! Decisions about actions without an end, asked for on the socket of whoever has the home.

use kauri_ledger::{ActionRow, Decision, Error, Ledger};
use serde_json::{Value, json};

use super::answer::{bad, text};
use super::{Code, Fault};

/// A request for a decision: `{"action_id": ..., "decision": "completed", "result": ...}`.
///
/// ```
/// use kauri::control::decision_json;
/// use kauri::ledger::Decision;
///
/// let asked = decision_json("mail-17", &Decision::Failed("no such account".into()));
/// assert_eq!(asked["decision"], "failed");
/// ```
#[must_use]
pub fn decision_json(action: &str, decision: &Decision) -> Value {
    match decision {
        Decision::Completed(result) => json!({ "action_id": action, "decision": "completed", "result": result }),
        Decision::Failed(why) => json!({ "action_id": action, "decision": "failed", "why": why }),
        Decision::Retry => json!({ "action_id": action, "decision": "retry" }),
        Decision::NeedsHuman => json!({ "action_id": action, "decision": "needs_human" }),
    }
}

/// The action and the decision in such a request.
pub(crate) fn decision(args: &Value) -> Result<(&str, Decision), Fault> {
    let action = text(args, "action_id")?.ok_or_else(|| bad("action_id", "the id of an action"))?;
    let why = || text(args, "why")?.map(str::to_owned).ok_or_else(|| bad("why", "a reason"));
    let decision = match text(args, "decision")? {
        Some("completed") => Decision::Completed(text(args, "result")?.map(str::to_owned)),
        Some("failed") => Decision::Failed(why()?),
        Some("retry") => Decision::Retry,
        Some("needs_human") => Decision::NeedsHuman,
        _ => return Err(bad("decision", "`completed`, `failed`, `retry` or `needs_human`")),
    };
    Ok((action, decision))
}

/// Decides, and answers the action as it stands then.
pub(crate) fn resolve(ledger: &Ledger, action: &str, decision: &Decision) -> Result<Value, Fault> {
    ledger.resolve(action, decision).map_err(fault)?;
    let row = ledger.action(action).map_err(fault)?;
    row.map(|row| action_json(&row)).ok_or_else(|| fault(Error::NoSuchAction { id: action.to_owned() }))
}

#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn fault(error: Error) -> Fault {
    let code = match &error {
        Error::NoSuchAction { .. } => Code::NotFound,
        Error::WrongStatus { .. } => Code::Refused,
        _ => Code::Failed,
    };
    Fault::new(code, error.to_string())
}

/// An action as the commands print it.
#[must_use]
pub fn action_json(row: &ActionRow) -> Value {
    json!({
        "action_id": row.action_id,
        "trace_id": row.trace_id,
        "task": row.task,
        "status": row.status.as_str(),
        "started_at": row.started_at.to_string(),
        "result_ref": row.result_ref,
        "error": row.error,
    })
}
