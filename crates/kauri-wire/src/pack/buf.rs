//! Maps and arrays that are being made.

use alloc::vec::Vec;

use super::{Array, DEPTH_MAX, Map, Value};
use crate::reader::Reader;

/// A map that is being made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapBuf {
    entries: Vec<u8>,
    count: u32,
    levels: usize,
}

impl MapBuf {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new(), count: 0, levels: 0 }
    }

    /// Adds a key and its value at the end. A key is not looked for: adding it twice makes it stand there twice.
    ///
    /// # Panics
    /// If the value is [nested](Value::depth) so deep that the map would have more than [`DEPTH_MAX`] levels, or if key or value
    /// is text or bytes of 4 GiB or more.
    pub fn put<'v>(&mut self, key: &str, value: impl Into<Value<'v>>) -> &mut Self {
        let value = value.into();
        self.levels = self.levels.max(nestable(&value));
        Value::Str(key).append_to(&mut self.entries);
        value.append_to(&mut self.entries);
        self.count += 1;
        self
    }

    /// Adds a key and its value if there is one.
    pub fn put_some<'v>(&mut self, key: &str, value: Option<impl Into<Value<'v>>>) -> &mut Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// The map, borrowed.
    #[must_use]
    pub fn view(&self) -> Map<'_> {
        Map { entries: Reader::new(&self.entries), count: self.count, depth: self.levels + 1 }
    }
}

/// An array that is being made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArrayBuf {
    items: Vec<u8>,
    count: u32,
    levels: usize,
}

impl ArrayBuf {
    /// An empty array.
    #[must_use]
    pub const fn new() -> Self {
        Self { items: Vec::new(), count: 0, levels: 0 }
    }

    /// Adds a value at the end.
    ///
    /// # Panics
    /// If the value is [nested](Value::depth) so deep that the array would have more than [`DEPTH_MAX`] levels, or is text or
    /// bytes of 4 GiB or more.
    pub fn push<'v>(&mut self, value: impl Into<Value<'v>>) -> &mut Self {
        let value = value.into();
        self.levels = self.levels.max(nestable(&value));
        value.append_to(&mut self.items);
        self.count += 1;
        self
    }

    /// The array, borrowed.
    #[must_use]
    pub fn view(&self) -> Array<'_> {
        Array { items: Reader::new(&self.items), count: self.count, depth: self.levels + 1 }
    }
}

/// The levels of a value that can still be put into something.
fn nestable(value: &Value<'_>) -> usize {
    let levels = value.depth();
    assert!(levels < DEPTH_MAX, "a value of {levels} levels nested once more: the limit is {DEPTH_MAX}");
    levels
}
