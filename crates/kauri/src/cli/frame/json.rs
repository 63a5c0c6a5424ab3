//! Messages and intents as JSON, both ways.
//!
//! The fields are those of the conformance cases, so that a case, what `decode` prints and what `encode` takes are one
//! form. Beside numbers and hexadecimal stand names and text where there are any; in input either will do.

use kauri::wire::{
    Flags, INTENT_HEADER_BYTES, Intent, IntentRef, Message, MessageId, MessageKind, MessageRef, Timestamp, TraceId,
    WireError, WorkerId,
};
use serde_json::{Map, Value, json};

const KINDS: [(MessageKind, &str); 3] =
    [(MessageKind::Command, "command"), (MessageKind::Event, "event"), (MessageKind::Timer, "timer")];

const FLAGS: [(u8, &str); 6] = [
    (Flags::DURABLE.bits(), "durable"),
    (Flags::HIGH_PRIORITY.bits(), "high-priority"),
    (Flags::DEDUPE_REQUIRED.bits(), "dedupe-required"),
    (Flags::REQUIRES_ACK.bits(), "requires-ack"),
    (HAS_FROM_WORKER, "has-from-worker"),
    (HAS_TRACE_ID, "has-trace-id"),
];
const HAS_FROM_WORKER: u8 = 0x10;
const HAS_TRACE_ID: u8 = 0x20;

/// A message as JSON.
pub(crate) fn message(message: &MessageRef<'_>) -> Value {
    let flags = flag_byte(message.flags(), message.from().is_some(), message.trace().is_some());
    let names: Vec<_> = FLAGS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    let kind = KINDS.iter().find(|(kind, _)| *kind == message.kind()).map(|(_, name)| *name);
    let mut object = json!({
        "frame": "LMSG",
        "kind": message.kind() as u8,
        "kind_name": kind,
        "flags": flags,
        "flag_names": names,
        "to_worker": message.to().0,
        "route_worker": message.route().worker.0,
        "route_timestamp": message.route().timestamp.0,
        "from_worker": message.from().map(|worker| worker.0),
        "message_id_hex": hex::encode(message.id()),
        "trace_id_hex": message.trace().map(hex::encode),
        "payload_len": message.payload().len(),
        "payload_hex": hex::encode(message.payload()),
        "frame_len": message.frame().len(),
    });
    for (key, bytes) in
        [("message_id", Some(message.id())), ("trace_id", message.trace()), ("payload", Some(message.payload()))]
    {
        if let Some(text) = bytes.and_then(printable) {
            object[key] = text.into();
        }
    }
    object
}

/// An intent as JSON.
pub(crate) fn intent(intent: &IntentRef<'_>) -> Value {
    let (kind, kind_name, due) = match intent {
        IntentRef::Emit { .. } => (0, "outbox-emit", None),
        IntentRef::Arm { due, .. } => (1, "timer-arm", Some(due.0)),
    };
    json!({
        "frame": "LINT",
        "kind": kind,
        "kind_name": kind_name,
        "flags": u8::from(due.is_some()),
        "due_ts": due,
        "message_len": intent.message().frame().len(),
        "message": message(intent.message()),
        "frame_len": INTENT_HEADER_BYTES + intent.message().frame().len(),
    })
}

/// The frame of a message or an intent in JSON.
pub(crate) fn encode(value: &Value) -> Result<Vec<u8>, String> {
    let object = Fields(value.as_object().ok_or("expected a JSON object")?);
    let encoded = match object.0.get("frame").map(Value::as_str) {
        None if object.0.contains_key("message") => to_intent(object)?.encode(),
        None | Some(Some("LMSG")) => to_message(object)?.encode(),
        Some(Some("LINT")) => to_intent(object)?.encode(),
        Some(_) => return Err("field `frame`: expected \"LMSG\" or \"LINT\"".into()),
    };
    encoded.map_err(|error: WireError| error.to_string())
}

fn to_message(fields: Fields<'_>) -> Result<Message, String> {
    // A word that is misspelt says more than a field that is missing.
    let kind = fields.message_kind()?;
    let id =
        fields.bytes("message_id", "message_id_hex")?.ok_or("field `message_id` or `message_id_hex` is missing")?;
    let to = fields.integer("to_worker")?.ok_or("field `to_worker` is missing")?;
    let payload = fields.bytes("payload", "payload_hex")?;
    let payload = payload.or(fields.generated("payload_gen", "payload_len")?).unwrap_or_default();
    let id = MessageId::new(id).map_err(|error| format!("field `message_id`: {error}"))?;
    let message = Message {
        from: fields.integer("from_worker")?.map(WorkerId),
        trace: fields.bytes("trace_id", "trace_id_hex")?.map(TraceId::new),
        ..Message::new(kind, WorkerId(to), id, payload)
    };
    let route = (fields.integer("route_worker")?, fields.integer("route_timestamp")?);
    let message = message.routed(WorkerId(route.0.unwrap_or(0)), Timestamp(route.1.unwrap_or(0)));
    let flags = fields.flags()?;
    let wishes = Flags::from_bits(flags & 0x0f).map_err(|error| format!("field `flags`: {error}"))?;
    let message = message.with(wishes);
    // A number states all bits; names need not repeat what the fields say.
    let present = flag_byte(message.flags, message.from.is_some(), message.trace.is_some());
    let stated = if fields.0.get("flags").is_some_and(Value::is_number) { flags } else { flags | present };
    if stated != present {
        return Err(format!(
            "field `flags`: expected {present:#04x} for the sender and trace given, found {stated:#04x}"
        ));
    }
    fields.length("payload_len", message.payload.len())?;
    fields.length("frame_len", message.encoded_len())?;
    Ok(message)
}

fn to_intent(fields: Fields<'_>) -> Result<Intent, String> {
    let message = fields.0.get("message").and_then(Value::as_object).ok_or("field `message`: expected an object")?;
    let message = to_message(Fields(message)).map_err(|error| format!("in `message`: {error}"))?;
    let due = fields.integer("due_ts")?.map(Timestamp);
    let flags = fields.integer("flags")?;
    if flags.is_some_and(|flags| flags != i64::from(due.is_some())) {
        return Err("field `flags`: expected 1 with `due_ts`, 0 without".into());
    }
    let kind = match fields.some("kind").map(|kind| (kind.as_str(), kind.as_i64())) {
        None => i64::from(due.is_some()),
        Some((Some("outbox-emit"), _) | (_, Some(0))) => 0,
        Some((Some("timer-arm"), _) | (_, Some(1))) => 1,
        Some(_) => return Err("field `kind`: expected 0 or 1, outbox-emit or timer-arm".into()),
    };
    let intent = match (kind, due) {
        (0, None) => Intent::Emit { message },
        (0, Some(_)) => return Err("field `due_ts`: expected none for an outbox-emit".into()),
        (_, Some(due)) => Intent::Arm { due, message },
        (_, None) => return Err("field `due_ts`: expected one for a timer-arm".into()),
    };
    fields.length("message_len", intent.message().encoded_len())?;
    fields.length("frame_len", intent.encoded_len())?;
    Ok(intent)
}

fn flag_byte(flags: Flags, has_from_worker: bool, has_trace_id: bool) -> u8 {
    let from = if has_from_worker { HAS_FROM_WORKER } else { 0 };
    let trace = if has_trace_id { HAS_TRACE_ID } else { 0 };
    flags.bits() | from | trace
}

fn printable(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

/// An object whose fields are read with errors that name them.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    /// The field, unless it is absent or null.
    fn some(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, String> {
        let Some(value) = self.some(name) else { return Ok(None) };
        value.as_i64().map(Some).ok_or_else(|| format!("field `{name}`: expected a 64-bit integer, found {value}"))
    }

    /// Bytes as text or as hexadecimal; as both only if they agree.
    fn bytes(&self, text: &str, hexadecimal: &str) -> Result<Option<Vec<u8>>, String> {
        let told = match self.some(text) {
            None => None,
            Some(Value::String(told)) => Some(told.clone().into_bytes()),
            Some(other) => return Err(format!("field `{text}`: expected a string, found {other}")),
        };
        let spelt = match self.some(hexadecimal) {
            None => None,
            Some(Value::String(digits)) => {
                Some(hex::decode(digits).map_err(|error| format!("field `{hexadecimal}`: not hexadecimal: {error}"))?)
            }
            Some(other) => return Err(format!("field `{hexadecimal}`: expected a string, found {other}")),
        };
        match (told, spelt) {
            (Some(told), Some(spelt)) if told != spelt => {
                Err(format!("fields `{text}` and `{hexadecimal}` say different things"))
            }
            (told, spelt) => Ok(told.or(spelt)),
        }
    }

    /// Bytes that are stated as a rule, as long payloads of the conformance cases are.
    fn generated(&self, rule: &str, length: &str) -> Result<Option<Vec<u8>>, String> {
        const KNOWN: &str = "byte[i]=(31*i+7)&255";
        match self.some(rule) {
            None => Ok(None),
            Some(Value::String(text)) if text == KNOWN => {
                let bytes = self.integer(length)?.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
                Ok(Some((0..bytes).map(|index| (31 * index + 7).to_le_bytes()[0]).collect()))
            }
            Some(other) => Err(format!("field `{rule}`: expected \"{KNOWN}\", found {other}")),
        }
    }

    /// A stated length must be the length.
    fn length(&self, name: &str, length: usize) -> Result<(), String> {
        match self.some(name) {
            Some(stated) if stated.as_u64() != Some(length as u64) => {
                Err(format!("field `{name}`: expected {length}, found {stated}"))
            }
            _ => Ok(()),
        }
    }

    fn message_kind(&self) -> Result<MessageKind, String> {
        let wrong = |found: &Value| format!("field `kind`: expected 0, 1 or 2, command, event or timer, found {found}");
        match self.some("kind") {
            None => Ok(MessageKind::Command),
            Some(Value::String(name)) => KINDS
                .iter()
                .find(|(_, known)| known == name)
                .map(|(kind, _)| *kind)
                .ok_or_else(|| wrong(&Value::from(name.as_str()))),
            Some(value) => value
                .as_u64()
                .and_then(|number| u8::try_from(number).ok())
                .and_then(|byte| MessageKind::try_from(byte).ok())
                .ok_or_else(|| wrong(value)),
        }
    }

    /// The flag byte, from a number or from names.
    fn flags(&self) -> Result<u8, String> {
        let wrong =
            |found: &Value| format!("field `flags`: expected a number from 0 to 63 or a list of names, found {found}");
        match self.some("flags").or(self.some("flag_names")) {
            None => Ok(0),
            Some(Value::Array(names)) => names.iter().try_fold(0, |bits, name| {
                let known = FLAGS.iter().find(|(_, known)| Some(*known) == name.as_str());
                known.map(|(bit, _)| bits | bit).ok_or_else(|| wrong(name))
            }),
            Some(value) => match value.as_u64() {
                Some(bits @ 0..=0x3f) => u8::try_from(bits).map_err(|_| wrong(value)),
                _ => Err(wrong(value)),
            },
        }
    }
}
