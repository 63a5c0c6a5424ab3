//! The vectors in `tests/data`, case by case.

mod frames;
mod records;
mod runs;

use serde_json::Value as Json;

/// The JSON value of each line.
fn lines(text: &str) -> impl Iterator<Item = Json> {
    text.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// The text of a field that must be there.
fn text<'a>(case: &'a Json, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("{field}: a string in {case}"))
}

/// The bytes of a field of hexadecimal digits that must be there.
fn bytes(case: &Json, field: &str) -> Vec<u8> {
    crate::samples::hex(text(case, field))
}

/// The signed number of a field that must be there.
fn signed(case: &Json, field: &str) -> i64 {
    case[field].as_i64().unwrap_or_else(|| panic!("{field}: a signed number in {case}"))
}

/// The unsigned number of a field that must be there.
fn unsigned(case: &Json, field: &str) -> u64 {
    case[field].as_u64().unwrap_or_else(|| panic!("{field}: an unsigned number in {case}"))
}
