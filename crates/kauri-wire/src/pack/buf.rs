//! Maps and arrays that are being made.

use alloc::vec::Vec;

use super::{Array, DEPTH_MAX, Map, Value};
use crate::reader::Reader;

/// A map that is being made.
///
/// ```
/// use kauri_wire::pack::{MapBuf, Value};
///
/// let mut address = MapBuf::new();
/// address.put("street", "Kauri Road");
/// let mut person = MapBuf::new();
/// person.put("name", "ann").put("address", address.view());
/// let Some(Value::Map(address)) = person.view().get("address") else { panic!("it was put") };
/// assert_eq!(address.get("street"), Some(Value::Str("Kauri Road")));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapBuf {
    entries: Vec<u8>,
    count: u32,
    levels: usize,
}

impl MapBuf {
    /// An empty map.
    ///
    /// ```
    /// use kauri_wire::pack::{Map, MapBuf};
    ///
    /// assert_eq!(MapBuf::new().view(), Map::EMPTY);
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new(), count: 0, levels: 0 }
    }

    /// Adds a key and its value at the end. A key is not looked for: adding it twice makes it stand there twice.
    ///
    /// ```
    /// use kauri_wire::pack::MapBuf;
    ///
    /// let mut map = MapBuf::new();
    /// map.put("ok", true).put("share", 0.5).put("bytes", &[1_u8, 2][..]);
    /// assert_eq!(format!("{:?}", map.view()), r#"{Str("ok"): Bool(true), Str("share"): F64(0.5), Str("bytes"): Bin([1, 2])}"#);
    /// ```
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
    ///
    /// ```
    /// use kauri_wire::pack::MapBuf;
    ///
    /// let mut map = MapBuf::new();
    /// map.put_some("note", None::<&str>).put_some("count", Some(12_u64));
    /// assert_eq!((map.view().len(), map.view().get("note")), (1, None)); // absent, not nil
    /// ```
    pub fn put_some<'v>(&mut self, key: &str, value: Option<impl Into<Value<'v>>>) -> &mut Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// The map, borrowed.
    ///
    /// ```
    /// use kauri_wire::pack::{Map, MapBuf, Value};
    ///
    /// fn count(map: Map<'_>) -> Option<u64> {
    ///     map.get("count")?.as_uint()
    /// }
    ///
    /// let mut fruit = MapBuf::new();
    /// fruit.put("count", Value::Uint(12));
    /// assert_eq!(count(fruit.view()), Some(12)); // as one that was read
    /// ```
    #[must_use]
    pub fn view(&self) -> Map<'_> {
        Map { entries: Reader::new(&self.entries), count: self.count, depth: self.levels + 1 }
    }
}

/// An array that is being made.
///
/// ```
/// use kauri_wire::pack::{ArrayBuf, MapBuf};
///
/// let mut tags = ArrayBuf::new();
/// tags.push("red").push("sweet");
/// let mut fruit = MapBuf::new();
/// fruit.put("tags", tags.view());
/// assert_eq!(fruit.view().encode(), b"\x81\xa4tags\x92\xa3red\xa5sweet");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ArrayBuf {
    items: Vec<u8>,
    count: u32,
    levels: usize,
}

impl ArrayBuf {
    /// An empty array.
    ///
    /// ```
    /// use kauri_wire::pack::ArrayBuf;
    ///
    /// assert_eq!(ArrayBuf::new().view().iter().count(), 0);
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { items: Vec::new(), count: 0, levels: 0 }
    }

    /// Adds a value at the end.
    ///
    /// ```
    /// use kauri_wire::pack::{ArrayBuf, Value};
    ///
    /// let mut list = ArrayBuf::new();
    /// for number in [1_u64, 4, 9] {
    ///     list.push(number);
    /// }
    /// assert_eq!(list.view().iter().last(), Some(Value::Uint(9)));
    /// ```
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
    ///
    /// ```
    /// use kauri_wire::pack::{ArrayBuf, Value};
    ///
    /// let mut inner = ArrayBuf::new();
    /// inner.push(1_u64);
    /// let mut outer = ArrayBuf::new();
    /// outer.push(inner.view()).push(inner.view());
    /// assert!(outer.view().iter().all(|value| value == Value::Array(inner.view())));
    /// ```
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
