//! Messages as JSON. Bytes that are no text are hexadecimal digits under another name.

use std::fmt::Write;

use kauri_wire::{MessageKind, MessageRef};
use serde_json::{Map, Value};

pub(crate) type Object = Map<String, Value>;

/// Text as it is, other bytes in hexadecimal under the name with `_hex`.
fn put_bytes(object: &mut Object, name: &str, value: &[u8]) {
    match std::str::from_utf8(value) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_hex"), to_hex(value).into()),
    };
}

/// The fields of a message; of bytes that are none, the bytes.
pub(crate) fn put_message(object: &mut Object, frame: &[u8]) {
    let Ok(message) = MessageRef::decode(frame) else {
        object.insert("frame_hex".to_owned(), to_hex(frame).into());
        return;
    };
    let kind = match message.kind() {
        MessageKind::Command => "command",
        MessageKind::Event => "event",
        MessageKind::Timer => "timer",
    };
    object.insert("kind".to_owned(), kind.into());
    object.insert("to_worker".to_owned(), message.to().0.into());
    if let Some(from) = message.from() {
        object.insert("from_worker".to_owned(), from.0.into());
    }
    put_bytes(object, "message_id", message.id());
    if let Some(trace) = message.trace() {
        put_bytes(object, "trace_id", trace);
    }
    put_bytes(object, "payload", message.payload());
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text has room");
        text
    })
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes.filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_hexadecimal() {
        let mut object = Object::new();
        put_bytes(&mut object, "b", &[0xff, 0]);
        put_bytes(&mut object, "t", b"a\"b");
        assert_eq!(Value::from(object).to_string(), r#"{"b_hex":"ff00","t":"a\"b"}"#);
        assert_eq!(from_hex("ff00"), Some(vec![0xff, 0]));
        assert_eq!((from_hex("f"), from_hex("xx")), (None, None));
    }
}
