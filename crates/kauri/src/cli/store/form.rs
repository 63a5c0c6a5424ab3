//! Keys and values as people write them.
//!
//! Numbers are numbers; everything else is text in which `\xNN` is a byte, `\t`, `\n`, `\r` what they always are, and `\\` a backslash. With
//! `--hex` everything is hexadecimal.

use kauri::wire::Key;

/// How the bytes of a key or of a value are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Hex,
    Text,
    Number(Number, Side),
}

/// Whether bytes are a key's or a value's: numbers are stored differently there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Key,
    Value,
}

macro_rules! numbers {
    ($($name:ident $type:ident)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Number {
            $($name),*
        }

        impl Number {
            fn of(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($type) => Some(Self::$name),)*
                    _ => None,
                }
            }

            fn print(self, side: Side, bytes: &[u8]) -> Option<String> {
                match (self, side) {
                    $((Self::$name, Side::Key) => <$type as Key>::decode(bytes).ok().map(|number| number.to_string()),
                    (Self::$name, Side::Value) => {
                        bytes.try_into().ok().map(|bytes| $type::from_le_bytes(bytes).to_string())
                    })*
                }
            }

            fn parse(self, side: Side, text: &str) -> Result<Vec<u8>, String> {
                let expected = |name: &str| format!("expected a number ({name}), found {text:?}");
                match (self, side) {
                    $((Self::$name, Side::Key) => {
                        text.parse().map(<$type as Key>::encode).map_err(|_| expected(stringify!($type)))
                    }
                    (Self::$name, Side::Value) => {
                        let number = text.parse::<$type>().map_err(|_| expected(stringify!($type)))?;
                        Ok(number.to_le_bytes().to_vec())
                    })*
                }
            }
        }
    };
}

numbers! { U8 u8 U16 u16 U32 u32 U64 u64 U128 u128 I8 i8 I16 i16 I32 i32 I64 i64 I128 i128 }

/// The forms of a table's keys and values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forms {
    pub(super) key: Form,
    pub(super) value: Form,
}

impl Forms {
    /// By the names of a table's types, `text to u64`.
    pub(super) fn of(types: &str, hex: bool) -> Self {
        let (key, rest) = types.split_once(" to ").unwrap_or((types, ""));
        let value = rest.split(',').next().unwrap_or(rest);
        let form = |name, side| match Number::of(name) {
            _ if hex => Form::Hex,
            Some(number) => Form::Number(number, side),
            None => Form::Text,
        };
        Self { key: form(key, Side::Key), value: form(value, Side::Value) }
    }
}

impl Form {
    pub(super) fn print(self, bytes: &[u8]) -> String {
        match self {
            Self::Hex => hex::encode(bytes),
            Self::Text => escape(bytes),
            // What is not of its type is shown as it is.
            Self::Number(number, side) => number.print(side, bytes).unwrap_or_else(|| escape(bytes)),
        }
    }

    pub(super) fn parse(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Hex => hex::decode(text).map_err(|error| format!("not hexadecimal: {error}")),
            Self::Text => unescape(text),
            Self::Number(number, side) => number.parse(side, text),
        }
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                letter if letter.is_control() => {
                    let mut bytes = [0; 4];
                    letter.encode_utf8(&mut bytes).bytes().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
                }
                letter => text.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let mut after = rest[at + 1..].chars();
        match after.next() {
            Some('\\') => bytes.push(b'\\'),
            Some('t') => bytes.push(b'\t'),
            Some('n') => bytes.push(b'\n'),
            Some('r') => bytes.push(b'\r'),
            Some('x') => {
                let digits = after.as_str().get(..2).and_then(|digits| hex::decode(digits).ok());
                bytes.extend(digits.ok_or_else(|| format!("expected two hexadecimal digits after \\x in {text:?}"))?);
                after = after.as_str()[2..].chars();
            }
            _ => return Err(format!("expected \\\\, \\t, \\n, \\r or \\xNN after a backslash in {text:?}")),
        }
        rest = after.as_str();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&b""[..], b"apples", b"a\\b\tc\n\r\0", "Äpfel \u{85}".as_bytes(), &[0xff, 0xc3], &all] {
            for form in [Form::Text, Form::Hex] {
                assert_eq!(form.parse(&form.print(bytes)).as_deref(), Ok(bytes));
            }
        }
        let forms = Forms::of("i64 to u16", false);
        assert_eq!(forms.key.print(&<i64 as Key>::encode(-5)), "-5");
        assert_eq!(forms.key.parse("-5"), Ok(<i64 as Key>::encode(-5)));
        assert_eq!(forms.value.print(&[1, 2]), "513");
        assert_eq!(forms.value.print(&[1]), "\\x01");
        assert_eq!(forms.value.parse("513"), Ok(vec![1, 2]));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for text in ["\\", "\\q", "\\x", "\\x1", "\\xzz", "\\xé1"] {
            assert!(Form::Text.parse(text).is_err(), "{text}");
        }
        assert!(Form::Hex.parse("1").is_err());
        assert!(Forms::of("u8 to bytes", false).key.parse("256").is_err());
    }
}
