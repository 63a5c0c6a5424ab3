//! A little JSON, written by hand: objects of numbers, words and bytes. Bytes that are no text are hexadecimal digits under another name.

use std::fmt::Write;

use kauri_wire::{MessageKind, MessageRef};

/// An object being written.
#[derive(Debug)]
pub(crate) struct Object {
    text: String,
}

impl Object {
    pub(crate) fn new() -> Self {
        Self { text: "{".to_owned() }
    }

    pub(crate) fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.key(name);
        write!(self.text, "{value}").expect("text has room");
    }

    pub(crate) fn words(&mut self, name: &str, value: &str) {
        self.key(name);
        string(&mut self.text, value);
    }

    /// Text as it is, other bytes in hexadecimal under the name with `_hex`.
    pub(crate) fn bytes(&mut self, name: &str, value: &[u8]) {
        match std::str::from_utf8(value) {
            Ok(text) => self.words(name, text),
            Err(_) => self.hex(&format!("{name}_hex"), value),
        }
    }

    pub(crate) fn hex(&mut self, name: &str, value: &[u8]) {
        self.words(name, &to_hex(value));
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }

    fn key(&mut self, name: &str) {
        if self.text.len() > 1 {
            self.text.push(',');
        }
        string(&mut self.text, name);
        self.text.push(':');
    }
}

fn string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => write!(out, "\\u{:04x}", u32::from(control)).expect("text has room"),
            other => out.push(other),
        }
    }
    out.push('"');
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text has room");
        text
    })
}

/// The fields of a message; of bytes that are none, the bytes.
pub(crate) fn message(object: &mut Object, frame: &[u8]) {
    let Ok(message) = MessageRef::decode(frame) else {
        object.hex("frame_hex", frame);
        return;
    };
    object.words(
        "kind",
        match message.kind() {
            MessageKind::Command => "command",
            MessageKind::Event => "event",
            MessageKind::Timer => "timer",
        },
    );
    object.number("to_worker", message.to());
    if let Some(from) = message.from() {
        object.number("from_worker", from);
    }
    object.bytes("message_id", message.id());
    if let Some(trace) = message.trace() {
        object.bytes("trace_id", trace);
    }
    object.bytes("payload", message.payload());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_other_bytes_are_hexadecimal() {
        let mut object = Object::new();
        object.number("n", 7);
        object.words("w", "a\"b\\c\n\u{1}é");
        object.bytes("b", &[0xff, 0]);
        assert_eq!(object.finish(), r#"{"n":7,"w":"a\"b\\c\n\u0001é","b_hex":"ff00"}"#);
    }
}
