//! Run frames as JSON, to look at.

use kauri::wire::pack::{Map, Value};
use kauri::wire::run::{Envelope, RunFrame};
use serde_json::{Value as Json, json};

/// A run frame as JSON.
pub(crate) fn frame(frame: &RunFrame<'_>) -> Json {
    match frame {
        RunFrame::Event(envelope) => event(envelope),
        RunFrame::ArtifactChunk(chunk) => json!({
            "type": "artifact_chunk",
            "artifact_id": chunk.artifact_id,
            "seq": chunk.seq,
            "is_last": chunk.is_last,
            "data_hex": hex::encode(chunk.data),
        }),
        RunFrame::FileWrite(file) => json!({
            "type": "file_write",
            "write_id": file.write_id,
            "filename": file.filename,
            "content_type": file.content_type,
            "data_hex": hex::encode(file.data),
        }),
        RunFrame::FileWriteAck(ack) => json!({
            "type": "file_write_ack",
            "write_id": ack.write_id,
            "ok": ack.ok,
            "error": ack.error,
        }),
        RunFrame::RunResult(result) => json!({
            "type": "run_result",
            "outcome": {
                "status": result.status.as_str(),
                "message": result.message,
                "error_type": result.error_type,
                "stack": result.stack,
            },
            "proxy_used": result.proxy_used.map(|proxy| map(&proxy)),
        }),
        RunFrame::StepRequest(request) => json!({
            "type": "step_request",
            "request_id": request.request_id,
            "wish": request.wish.as_str(),
            "name": request.name,
            "data_hex": request.data.map(hex::encode),
            "due_ms": request.due_ms,
            "text": request.text,
            "params": request.params.map(|params| map(&params)),
        }),
        RunFrame::StepAnswer(answer) => json!({
            "type": "step_answer",
            "request_id": answer.request_id,
            "status": answer.status.as_str(),
            "data_hex": answer.data.map(hex::encode),
            "text": answer.text,
        }),
    }
}

fn event(envelope: &Envelope<'_>) -> Json {
    let mut object = json!({
        "type": envelope.event_type.as_str(),
        "contract_version": envelope.contract_version,
        "event_id": envelope.event_id,
        "run_id": envelope.run_id,
        "seq": envelope.seq,
        "ts": envelope.ts,
        "attempt": envelope.attempt,
        "job_id": envelope.job_id,
        "parent_run_id": envelope.parent_run_id,
        "payload": map(&envelope.payload),
    });
    if let Err(error) = envelope.event() {
        object["payload_fault"] = error.to_string().into();
    }
    object
}

fn map(map: &Map<'_>) -> Json {
    let entries = map.iter().map(|(key, entry)| (name(&key), value(&entry)));
    Json::Object(entries.collect())
}

/// JSON keys are text; another key is shown as its value would be.
fn name(key: &Value<'_>) -> String {
    match key {
        Value::Str(text) => (*text).to_owned(),
        other => value(other).to_string(),
    }
}

fn value(pack: &Value<'_>) -> Json {
    match *pack {
        Value::Nil => Json::Null,
        Value::Bool(flag) => flag.into(),
        Value::Uint(number) => number.into(),
        Value::Int(number) => number.into(),
        Value::F32(number) => float(number.into()),
        Value::F64(number) => float(number),
        Value::Str(text) => text.into(),
        Value::Bin(bytes) => json!({ "hex": hex::encode(bytes) }),
        Value::Array(array) => array.iter().map(|item| value(&item)).collect(),
        Value::Map(inner) => map(&inner),
        Value::Ext(kind, bytes) => match pack.as_timestamp() {
            Some((seconds, nanos)) => json!({ "seconds": seconds, "nanos": nanos }),
            None => json!({ "ext": kind, "hex": hex::encode(bytes) }),
        },
    }
}

/// JSON has no NaN and no infinity; they are shown as text.
fn float(number: f64) -> Json {
    serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Json::from)
}
