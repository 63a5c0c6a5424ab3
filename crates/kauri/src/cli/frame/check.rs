//! `kauri frame check`: a file of cases, each compared with what we do.
//!
//! A case is a JSON object on a line. A frame case has `class`, `frame` and `hex`; a record case has `record` and `hex`.
//! Cases that cannot be run from their text (encoder verdicts described in words, records of another era or kind) are
//! counted as skipped, never as passed.

use std::io::Write;
use std::path::Path;

use kauri::wire::{InboxKey, IntentRef, Key, MessageRef, RetryKey, SchemaVersion, Seq, TimerKey, Timestamp, WorkerId};
use serde_json::{Value, json};

use super::{Trouble, json};

#[derive(Default)]
struct Report {
    agreed: u64,
    quirks_refused: u64,
    skipped: u64,
    mismatches: Vec<String>,
}

enum Verdict {
    Agreed,
    /// The case is one that the C implementation accepts and we refuse, as the contract asks.
    QuirkRefused,
    Skipped,
}

pub(crate) fn run(file: &Path, as_json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    let path = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| Trouble::Wrong(format!("{path}: {error}")))?;
    let mut report = Report::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let case = serde_json::from_str(line)
            .map_err(|error| Trouble::Wrong(format!("{path}:{number}: not JSON: {error}")))?;
        match check(&case) {
            Ok(Verdict::Agreed) => report.agreed += 1,
            Ok(Verdict::QuirkRefused) => report.quirks_refused += 1,
            Ok(Verdict::Skipped) => report.skipped += 1,
            Err(what) => report.mismatches.push(format!("{path}:{number}: {}: {what}", name(&case))),
        }
    }
    report.print(as_json, out)
}

impl Report {
    fn print(&self, as_json: bool, out: &mut impl Write) -> Result<(), Trouble> {
        let Self { agreed, quirks_refused, skipped, mismatches } = self;
        let wrong = mismatches.len();
        if as_json {
            let report = json!({
                "agreed": agreed, "quirks_refused": quirks_refused, "skipped": skipped, "mismatches": mismatches,
            });
            writeln!(out, "{report}")?;
        } else {
            for mismatch in mismatches {
                writeln!(out, "{mismatch}")?;
            }
            writeln!(out, "{agreed} agreed, {quirks_refused} quirks refused, {skipped} skipped, {wrong} mismatched")?;
        }
        match (wrong, agreed + quirks_refused) {
            (0, 1..) => Ok(()),
            (0, 0) => Err(Trouble::Wrong("no case was checked: expected lines with `class` or `record`".into())),
            _ => Err(Trouble::No),
        }
    }
}

fn name(case: &Value) -> &str {
    case["case"].as_str().or(case["record"].as_str()).unwrap_or("unnamed case")
}

fn check(case: &Value) -> Result<Verdict, String> {
    if let Some(record) = case["record"].as_str() {
        return check_record(record, case);
    }
    match case["class"].as_str() {
        Some("valid") => check_valid(case),
        Some("invalid") => check_invalid(case),
        Some("accepted_quirk") => check_quirk(case),
        Some("meta" | "encoder") => Ok(Verdict::Skipped),
        other => Err(format!("expected class valid, invalid, accepted_quirk, encoder or meta, found {other:?}")),
    }
}

/// A frame, decoded by the decoder that the case names.
fn decode(case: &Value) -> Result<Result<Value, &'static str>, String> {
    let bytes = hex_field(case, "hex")?;
    let decoded = match case["frame"].as_str() {
        Some("LMSG") => MessageRef::decode(&bytes).map(|message| json::message(&message)),
        Some("LINT") => IntentRef::decode(&bytes).map(|intent| json::intent(&intent)),
        other => return Err(format!("expected frame LMSG or LINT, found {other:?}")),
    };
    Ok(decoded.map_err(|error| error.kind.name()))
}

fn check_valid(case: &Value) -> Result<Verdict, String> {
    let decoded = decode(case)?.map_err(|kind| format!("expected a frame, refused as {kind}"))?;
    compare(case, &decoded)?;
    for (source, value) in [("what was decoded", &decoded), ("the stated fields", case)] {
        let encoded = hex::encode(json::encode(value)?);
        if Some(encoded.as_str()) != case["hex"].as_str() {
            return Err(format!("encoding {source} gives other bytes: {encoded}"));
        }
    }
    Ok(Verdict::Agreed)
}

/// Every field that the case states and we know must be the same.
fn compare(stated: &Value, decoded: &Value) -> Result<(), String> {
    let Some(stated) = stated.as_object() else { return Err("expected an object".into()) };
    for (key, expected) in stated {
        match decoded.get(key) {
            Some(found) if found.is_object() => compare(expected, found).map_err(|what| format!("in {key}: {what}"))?,
            Some(found) if found != expected => return Err(format!("{key}: expected {expected}, decoded {found}")),
            _ => {}
        }
    }
    Ok(())
}

fn check_invalid(case: &Value) -> Result<Verdict, String> {
    let verdict = case["verdict"].as_str().ok_or("expected a verdict")?;
    match decode(case)? {
        Ok(_) => Err(format!("expected {verdict}, decoded without a fault")),
        Err(kind) if kind != verdict => Err(format!("expected {verdict}, refused as {kind}")),
        Err(_) => Ok(Verdict::Agreed),
    }
}

fn check_quirk(case: &Value) -> Result<Verdict, String> {
    match decode(case)? {
        Ok(_) => Err("expected a refusal, decoded without a fault".into()),
        Err(_) => Ok(Verdict::QuirkRefused),
    }
}

fn check_record(record: &str, case: &Value) -> Result<Verdict, String> {
    if !matches!(case["era"].as_str(), Some("seed" | "both")) {
        return Ok(Verdict::Skipped);
    }
    let worker = || integer(case, "worker").map(|bits| WorkerId::from_key_bits(bits.cast_unsigned()));
    let seq = || integer(case, "seq").map(|bits| Seq(bits.cast_unsigned()));
    match record {
        "inbox_key" => check_key::<InboxKey>(case, InboxKey { worker: worker()?, seq: seq()? }),
        "outbox_key" => check_key::<Seq>(case, seq()?),
        "timer_key" => check_key::<TimerKey>(case, TimerKey { due: Timestamp(integer(case, "due_ts")?), seq: seq()? }),
        "schema_marker" => check_marker(case),
        "retry_counter" => check_retry_key(case),
        _ => Ok(Verdict::Skipped),
    }
}

fn check_key<K>(case: &Value, key: K) -> Result<Verdict, String>
where
    K: for<'a> Key<Ref<'a> = K, View<'a> = K> + PartialEq + Copy,
{
    let bytes = hex_field(case, "hex")?;
    same("encoding", &hex::encode(&bytes), &hex::encode(K::encode(key)))?;
    match K::decode(&bytes) {
        Ok(decoded) if decoded == key => Ok(Verdict::Agreed),
        Ok(_) => Err("decoded as another key".into()),
        Err(error) => Err(format!("refused: {error}")),
    }
}

fn check_marker(case: &Value) -> Result<Verdict, String> {
    let part = |name| u16::try_from(integer(case, name)?).map_err(|error| format!("{name}: {error}"));
    let version = SchemaVersion { major: part("major")?, minor: part("minor")? };
    let bytes = hex_field(case, "hex")?;
    same("key", case["key"].as_str().unwrap_or_default(), &String::from_utf8_lossy(SchemaVersion::KEY))?;
    same("encoding", &hex::encode(&bytes), &hex::encode(version.encode()))?;
    match SchemaVersion::decode(&bytes) {
        Ok(decoded) if decoded == version => Ok(Verdict::Agreed),
        Ok(_) => Err("decoded as another version".into()),
        Err(error) => Err(format!("refused: {error}")),
    }
}

fn check_retry_key(case: &Value) -> Result<Verdict, String> {
    let id = case["message_id"].as_str().ok_or("expected a message_id")?;
    let bytes = hex_field(case, "key_hex")?;
    same("key", &hex::encode(&bytes), &hex::encode(RetryKey::encode(id.as_bytes())))?;
    match RetryKey::decode(&bytes) {
        Ok(decoded) if decoded == id.as_bytes() => Ok(Verdict::Agreed),
        Ok(_) => Err("decoded as another id".into()),
        Err(error) => Err(format!("refused: {error}")),
    }
}

fn same(what: &str, expected: &str, found: &str) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected}, found {found}")) }
}

fn hex_field(case: &Value, name: &str) -> Result<Vec<u8>, String> {
    let text = case[name].as_str().ok_or_else(|| format!("expected a field `{name}` in hexadecimal"))?;
    hex::decode(text).map_err(|error| format!("{name}: not hexadecimal: {error}"))
}

/// A 64-bit integer, signed or unsigned, as its bits.
fn integer(case: &Value, name: &str) -> Result<i64, String> {
    let value = &case[name];
    let bits = value.as_i64().or_else(|| value.as_u64().map(u64::cast_signed));
    bits.ok_or_else(|| format!("{name}: expected a 64-bit integer, found {value}"))
}
