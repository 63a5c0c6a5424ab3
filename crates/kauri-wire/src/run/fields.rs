//! Known keys of a map, picked out in one pass.

use crate::error::{self, Found, WireError};
use crate::pack::{Map, Value};

/// A known key: its name, and what its value has to be, as an error says it.
pub(crate) type Spec = (&'static str, &'static str);

/// The value of a known key, if it was there.
#[derive(Clone, Copy)]
pub(crate) struct Field<'a> {
    expected: &'static str,
    at: usize,
    value: Option<Value<'a>>,
}

/// The values of these keys, in the order of the specs. Other keys are skipped.
pub(crate) fn pick<'a, const N: usize>(map: Map<'a>, specs: [Spec; N]) -> Result<[Field<'a>; N], WireError> {
    let mut fields = specs.map(|(_, expected)| Field { expected, at: map.at(), value: None });
    for (at, key, value) in map.positions() {
        let Value::Str(key) = key else { continue };
        let Some(index) = specs.iter().position(|(name, _)| *name == key) else { continue };
        let field = &mut fields[index];
        if field.value.replace(value).is_some() {
            return Err(error::format(at, field.expected, Found::Type("the same key a second time")));
        }
        field.at = at;
    }
    Ok(fields)
}

impl<'a> Field<'a> {
    /// The value, which must be there.
    fn value(&self) -> Result<Value<'a>, WireError> {
        self.value.ok_or_else(|| error::format(self.at, self.expected, Found::Nothing))
    }

    /// The value, unless it is absent or nil.
    fn some(&self) -> Option<Self> {
        match self.value {
            None | Some(Value::Nil) => None,
            Some(_) => Some(*self),
        }
    }

    fn wrong(&self, found: Found) -> WireError {
        error::format(self.at, self.expected, found)
    }

    fn wrong_type(&self, value: &Value<'_>) -> WireError {
        self.wrong(Found::Type(value.type_name()))
    }

    /// Text.
    pub(crate) fn text(&self) -> Result<&'a str, WireError> {
        match self.value()? {
            Value::Str(text) => Ok(text),
            other => Err(self.wrong_type(&other)),
        }
    }

    /// Text of at least one character.
    pub(crate) fn name(&self) -> Result<&'a str, WireError> {
        match self.text()? {
            "" => Err(self.wrong(Found::Type("an empty string"))),
            name => Ok(name),
        }
    }

    /// Text, or nothing.
    pub(crate) fn optional_text(&self) -> Result<Option<&'a str>, WireError> {
        self.some().map(|field| field.text()).transpose()
    }

    /// Text of at least one character, or nothing.
    pub(crate) fn optional_name(&self) -> Result<Option<&'a str>, WireError> {
        self.some().map(|field| field.name()).transpose()
    }

    /// An integer of at least `least`.
    pub(crate) fn at_least(&self, least: u64) -> Result<u64, WireError> {
        let value = self.value()?;
        let number = value.as_uint().ok_or_else(|| match value {
            Value::Int(number) => self.wrong(Found::Number(number.into())),
            other => self.wrong_type(&other),
        })?;
        if number < least {
            return Err(self.wrong(error::number(number)));
        }
        Ok(number)
    }

    /// An integer of at least `least` that fits 32 bits.
    pub(crate) fn small_at_least(&self, least: u64) -> Result<u32, WireError> {
        let number = self.at_least(least)?;
        u32::try_from(number).map_err(|_| self.wrong(error::number(number)))
    }

    /// True or false.
    pub(crate) fn flag(&self) -> Result<bool, WireError> {
        match self.value()? {
            Value::Bool(flag) => Ok(flag),
            other => Err(self.wrong_type(&other)),
        }
    }

    /// At most `most` bytes.
    pub(crate) fn bytes(&self, most: usize) -> Result<&'a [u8], WireError> {
        match self.value()? {
            Value::Bin(bytes) if bytes.len() <= most => Ok(bytes),
            Value::Bin(bytes) => Err(error::too_big(self.at, self.expected, bytes.len())),
            other => Err(self.wrong_type(&other)),
        }
    }

    /// At most `most` bytes, or nothing.
    pub(crate) fn optional_bytes(&self, most: usize) -> Result<Option<&'a [u8]>, WireError> {
        self.some().map(|field| field.bytes(most)).transpose()
    }

    /// A map.
    pub(crate) fn map(&self) -> Result<Map<'a>, WireError> {
        match self.value()? {
            Value::Map(map) => Ok(map),
            other => Err(self.wrong_type(&other)),
        }
    }

    /// A map, or nothing.
    pub(crate) fn optional_map(&self) -> Result<Option<Map<'a>>, WireError> {
        self.some().map(|field| field.map()).transpose()
    }

    /// One of the words that `parse` knows.
    pub(crate) fn word<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, WireError> {
        parse(self.text()?).ok_or_else(|| self.wrong(Found::Type("another word")))
    }
}
