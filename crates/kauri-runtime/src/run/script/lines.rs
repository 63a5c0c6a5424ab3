//! Lines of a command: cut out of what it writes, and said as events.

use kauri_wire::pack::{ArrayBuf, MapBuf};
use kauri_wire::run::Level;
use serde_json::{Map, Value};

use super::context::Context;
use super::emit::EmitError;
use super::error::ScriptError;

/// A longer line is cut into several.
const LINE_BYTES_MAX: usize = 1 << 20;
/// What is nested deeper stays text.
const DEPTH_MAX: usize = 48;

/// Bytes until they are lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Gives each line that is whole to `take`, without its end.
    pub(super) fn hear(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), ScriptError>,
    ) -> Result<(), ScriptError> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.rest.len() >= LINE_BYTES_MAX {
                let line = std::mem::take(&mut self.rest);
                take(without_end(&line))?;
            }
        }
        Ok(())
    }

    /// Gives what came after the last line's end to `take`, if anything did.
    pub(super) fn close(&mut self, mut take: impl FnMut(&[u8]) -> Result<(), ScriptError>) -> Result<(), ScriptError> {
        let line = std::mem::take(&mut self.rest);
        if line.is_empty() { Ok(()) } else { take(&line) }
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Says a line of standard output: an object is an item, of the type that its field `type` names; anything else is a log event.
pub(super) fn say(line: &[u8], cx: &Context) -> Result<(), ScriptError> {
    if line.is_empty() {
        return Ok(());
    }
    if line.first() == Some(&b'{')
        && let Ok(Value::Object(object)) = serde_json::from_slice(line)
        && depth(&object) <= DEPTH_MAX
    {
        let item_type = object.get("type").and_then(Value::as_str).filter(|text| !text.is_empty()).unwrap_or("item");
        match cx.emit().item(item_type, pack(&object).view()) {
            // What is no item that a reader would take is still a line.
            Err(EmitError::Invalid(_)) => {}
            said => return heard(said),
        }
    }
    heard(cx.emit().log_info(&String::from_utf8_lossy(line)))
}

/// Says a line of standard error.
pub(super) fn warn(line: &str, cx: &Context) -> Result<(), ScriptError> {
    heard(cx.emit().log(Level::Warn, line, None))
}

/// That the call has to stop is found out elsewhere.
fn heard(said: Result<(), EmitError>) -> Result<(), ScriptError> {
    match said {
        Ok(()) | Err(EmitError::Stopped(_) | EmitError::AfterTerminal | EmitError::Invalid(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn depth(object: &Map<String, Value>) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::Object(inner) => 1 + inner.values().map(of).max().unwrap_or(0),
            Value::Array(inner) => 1 + inner.iter().map(of).max().unwrap_or(0),
            _ => 0,
        }
    }
    1 + object.values().map(of).max().unwrap_or(0)
}

/// An object as MessagePack.
fn pack(object: &Map<String, Value>) -> MapBuf {
    let mut map = MapBuf::new();
    for (key, value) in object {
        match value {
            Value::Null => map.put(key, kauri_wire::pack::Value::Nil),
            Value::Bool(flag) => map.put(key, *flag),
            Value::Number(number) => map.put(key, packed(number)),
            Value::String(text) => map.put(key, &**text),
            Value::Array(list) => map.put(key, kauri_wire::pack::Value::Array(array(list).view())),
            Value::Object(inner) => map.put(key, pack(inner).view()),
        };
    }
    map
}

fn array(list: &[Value]) -> ArrayBuf {
    let mut array_buf = ArrayBuf::new();
    for value in list {
        match value {
            Value::Null => array_buf.push(kauri_wire::pack::Value::Nil),
            Value::Bool(flag) => array_buf.push(*flag),
            Value::Number(number) => array_buf.push(packed(number)),
            Value::String(text) => array_buf.push(&**text),
            Value::Array(inner) => array_buf.push(kauri_wire::pack::Value::Array(array(inner).view())),
            Value::Object(inner) => array_buf.push(pack(inner).view()),
        };
    }
    array_buf
}

fn packed(number: &serde_json::Number) -> kauri_wire::pack::Value<'static> {
    use kauri_wire::pack::Value as Pack;
    match (number.as_u64(), number.as_i64()) {
        (Some(number), _) => Pack::Uint(number),
        (None, Some(number)) => Pack::Int(number),
        (None, None) => Pack::F64(number.as_f64().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        let mut take = |line: &[u8]| {
            found.push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        };
        for piece in pieces {
            lines.hear(piece, &mut take).unwrap();
        }
        lines.close(&mut take).unwrap();
        found
    }

    #[test]
    fn lines_are_the_same_however_they_are_cut() {
        let text = b"one\ntwo\r\n\nfour";
        for at in 0..text.len() {
            assert_eq!(lines(&[&text[..at], &text[at..]]), ["one", "two", "", "four"], "{at}");
        }
        assert_eq!(lines(&[b""]), [] as [&str; 0]);
    }

    #[test]
    fn a_line_without_end_is_cut_before_it_fills_the_memory() {
        let long = vec![b'x'; 3 * LINE_BYTES_MAX / 2];
        let found = lines(&[&long[..LINE_BYTES_MAX], &long[LINE_BYTES_MAX..]]);
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [LINE_BYTES_MAX, LINE_BYTES_MAX / 2]);
    }

    #[test]
    fn objects_become_maps_with_all_they_hold() {
        let value = serde_json::json!({"a": [1, -2, 2.5, null, true, {"b": "c"}], "d": {}});
        let map = pack(value.as_object().unwrap());
        let view = map.view();
        assert_eq!(view.iter().count(), 2);
        assert!(matches!(view.get("a"), Some(kauri_wire::pack::Value::Array(list)) if list.iter().count() == 6));
        assert_eq!(depth(value.as_object().unwrap()), 3);
    }
}
