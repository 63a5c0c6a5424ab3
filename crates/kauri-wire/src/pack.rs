//! Values in MessagePack form, as run frames carry them: checked once, then read in place.
//!
//! Decoding allocates nothing. A [`Map`] or [`Array`] is a slice of checked bytes and a count; its entries are found by
//! walking them. So a length field can ask for nothing, and unknown keys cost nothing to keep: the bytes that came are
//! the bytes that are stored and sent on.
//!
//! The format is the one of the MessagePack specification (msgpack.org): one marker byte, then big-endian lengths and
//! numbers. Integers are written in their shortest form and read in any.

mod buf;

use alloc::vec::Vec;
use core::fmt;

use crate::error::{self, Found, WireError};
use crate::reader::Reader;

pub use buf::{ArrayBuf, MapBuf};

/// How deep arrays and maps may be nested.
///
/// ```
/// use kauri_wire::pack::{ArrayBuf, DEPTH_MAX, Map, Value};
///
/// let mut nested = ArrayBuf::new();
/// for _ in 1..DEPTH_MAX {
///     let inner = nested.clone();
///     nested = ArrayBuf::new();
///     nested.push(inner.view());
/// }
/// assert_eq!(Value::Array(nested.view()).depth(), DEPTH_MAX); // as deep as it gets
/// let deeper = [&[0x81, 0xa1, b'a'][..], &[0x91; DEPTH_MAX]].concat();
/// assert_eq!(Map::decode(&deeper).unwrap_err().expected, "64 levels of nesting at most");
/// ```
pub const DEPTH_MAX: usize = 64;

/// One value. Text, bytes and what is nested are borrowed.
///
/// ```
/// use kauri_wire::pack::{MapBuf, Value};
///
/// let mut fruit = MapBuf::new();
/// fruit.put("count", 12_u64).put("price", -3_i64).put("name", "apple").put("rotten", Value::Nil);
/// let values: Vec<Value> = fruit.view().iter().map(|(_, value)| value).collect();
/// assert_eq!(values, [Value::Uint(12), Value::Int(-3), Value::Str("apple"), Value::Nil]);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    /// Nothing.
    Nil,
    /// True or false.
    Bool(bool),
    /// An integer of zero or more.
    Uint(u64),
    /// An integer below zero.
    Int(i64),
    /// A number of single precision.
    F32(f32),
    /// A number of double precision.
    F64(f64),
    /// Text.
    Str(&'a str),
    /// Bytes.
    Bin(&'a [u8]),
    /// A list.
    Array(Array<'a>),
    /// Keys and their values.
    Map(Map<'a>),
    /// Bytes with a type of their own; type -1 is a timestamp.
    Ext(i8, &'a [u8]),
}

impl<'a> Value<'a> {
    /// The name of the value's type, for messages.
    ///
    /// ```
    /// use kauri_wire::pack::{Map, Value};
    ///
    /// assert_eq!(Value::Str("apple").type_name(), "a string");
    /// let error = Map::decode(&[0xc0]).unwrap_err();
    /// assert_eq!(error.to_string(), "at byte 0: expected a MessagePack map, found nil");
    /// ```
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "nil",
            Self::Bool(_) => "a boolean",
            Self::Uint(_) | Self::Int(_) => "an integer",
            Self::F32(_) | Self::F64(_) => "a float",
            Self::Str(_) => "a string",
            Self::Bin(_) => "bytes",
            Self::Array(_) => "an array",
            Self::Map(_) => "a map",
            Self::Ext(..) => "an extension",
        }
    }

    /// How many levels of arrays and maps there are: 0 for a plain value, 1 for a map of plain values.
    ///
    /// ```
    /// use kauri_wire::pack::{ArrayBuf, Map, Value};
    ///
    /// let mut list = ArrayBuf::new();
    /// list.push(Map::EMPTY);
    /// assert_eq!((Value::Uint(7).depth(), Value::Map(Map::EMPTY).depth(), Value::Array(list.view()).depth()), (0, 1, 2));
    /// ```
    #[must_use]
    pub const fn depth(&self) -> usize {
        match self {
            Self::Array(array) => array.depth,
            Self::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// The number as an integer of zero or more; also if it came as a float, as some writers of JavaScript send them.
    ///
    /// ```
    /// use kauri_wire::pack::Value;
    ///
    /// assert_eq!((Value::Uint(12).as_uint(), Value::F64(12.0).as_uint()), (Some(12), Some(12)));
    /// assert_eq!((Value::F64(12.5).as_uint(), Value::Int(-1).as_uint()), (None, None));
    /// ```
    #[must_use]
    pub fn as_uint(&self) -> Option<u64> {
        match *self {
            Self::Uint(number) => Some(number),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
            Self::F64(number) if (0.0..9_007_199_254_740_992.0).contains(&number) && number as u64 as f64 == number => {
                Some(number as u64)
            }
            Self::F32(number) => Self::F64(number.into()).as_uint(),
            _ => None,
        }
    }

    /// Seconds since the Unix epoch and nanoseconds, if this is a timestamp.
    ///
    /// ```
    /// use kauri_wire::pack::Value;
    ///
    /// assert_eq!(Value::Ext(-1, &[0, 0, 0, 9]).as_timestamp(), Some((9, 0)));
    /// assert_eq!(Value::Ext(5, &[0, 0, 0, 9]).as_timestamp(), None); // another extension
    /// assert_eq!(Value::Ext(-1, &[0xff; 8]).as_timestamp(), None); // more nanoseconds than a second has
    /// ```
    #[must_use]
    pub fn as_timestamp(&self) -> Option<(i64, u32)> {
        let Self::Ext(-1, bytes) = *self else { return None };
        let (seconds, nanos) = match *bytes {
            [a, b, c, d] => (u32::from_be_bytes([a, b, c, d]).into(), 0),
            [a, b, c, d, e, f, g, h] => {
                let both = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
                let nanos = (both >> 34) as u32;
                ((both & ((1 << 34) - 1)).cast_signed(), nanos)
            }
            [a, b, c, d, ref seconds @ ..] => {
                (i64::from_be_bytes(seconds.try_into().ok()?), u32::from_be_bytes([a, b, c, d]))
            }
            _ => return None,
        };
        (nanos < 1_000_000_000).then_some((seconds, nanos))
    }

    /// Reads one value, and all that is nested in it, from the front of `input`.
    fn decode(input: &mut Reader<'a>, depth: usize) -> Result<Self, WireError> {
        let at = input.at();
        let [marker] = input.array("a MessagePack value")?;
        if depth == DEPTH_MAX && matches!(marker, 0x80..=0x9f | 0xdc..=0xdf) {
            return Err(error::format(at, "64 levels of nesting at most", Found::Type("another level")));
        }
        Ok(match marker {
            0x00..=0x7f => Self::Uint(marker.into()),
            0x80..=0x8f => Self::Map(Map::walk(input, (marker & 0x0f).into(), depth)?),
            0x90..=0x9f => Self::Array(Array::walk(input, (marker & 0x0f).into(), depth)?),
            0xa0..=0xbf => text(input, (marker & 0x1f).into())?,
            0xc0 => Self::Nil,
            0xc1 => return Err(error::format(at, "a MessagePack value", Found::Type("the unused marker 0xc1"))),
            0xc2 => Self::Bool(false),
            0xc3 => Self::Bool(true),
            0xc4..=0xc6 => {
                let length = size(input, marker - 0xc4)?;
                Self::Bin(input.take(length as usize, "bytes of the stated length")?)
            }
            0xc7..=0xc9 => {
                let length = size(input, marker - 0xc7)?;
                extension(input, length)?
            }
            0xca => Self::F32(f32::from_be_bytes(input.array(NUMBER)?)),
            0xcb => Self::F64(f64::from_be_bytes(input.array(NUMBER)?)),
            0xcc => Self::Uint(u8::from_be_bytes(input.array(NUMBER)?).into()),
            0xcd => Self::Uint(u16::from_be_bytes(input.array(NUMBER)?).into()),
            0xce => Self::Uint(u32::from_be_bytes(input.array(NUMBER)?).into()),
            0xcf => Self::Uint(u64::from_be_bytes(input.array(NUMBER)?)),
            0xd0 => Self::from(i64::from(i8::from_be_bytes(input.array(NUMBER)?))),
            0xd1 => Self::from(i64::from(i16::from_be_bytes(input.array(NUMBER)?))),
            0xd2 => Self::from(i64::from(i32::from_be_bytes(input.array(NUMBER)?))),
            0xd3 => Self::from(i64::from_be_bytes(input.array(NUMBER)?)),
            0xd4..=0xd8 => extension(input, 1 << (marker - 0xd4))?,
            0xd9..=0xdb => {
                let length = size(input, marker - 0xd9)?;
                text(input, length)?
            }
            0xdc | 0xdd => {
                let count = size(input, marker - 0xdb)?;
                Self::Array(Array::walk(input, count, depth)?)
            }
            0xde | 0xdf => {
                let count = size(input, marker - 0xdd)?;
                Self::Map(Map::walk(input, count, depth)?)
            }
            0xe0..=0xff => Self::Int(marker.cast_signed().into()),
        })
    }

    /// Writes the value to the end of `out`.
    fn append_to(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Nil => out.push(0xc0),
            Self::Bool(value) => out.push(0xc2 | u8::from(value)),
            Self::Uint(number) => append_uint(number, out),
            Self::Int(number) => append_int(number, out),
            Self::F32(number) => append(0xca, number.to_be_bytes(), out),
            Self::F64(number) => append(0xcb, number.to_be_bytes(), out),
            Self::Str(text) => {
                append_size([(0xa0, 31), (0xd9, 0xff), (0xda, 0xffff), (0xdb, u32::MAX)], text.len(), out);
                out.extend_from_slice(text.as_bytes());
            }
            Self::Bin(bytes) => {
                append_size([(0xc4, 0), (0xc4, 0xff), (0xc5, 0xffff), (0xc6, u32::MAX)], bytes.len(), out);
                out.extend_from_slice(bytes);
            }
            Self::Array(array) => array.append_to(out),
            Self::Map(map) => map.append_to(out),
            Self::Ext(kind, bytes) => append_extension(kind, bytes, out),
        }
    }
}

const NUMBER: &str = "a number after its marker";

/// A length of one, two or four bytes: `width` 0, 1 or 2.
fn size(input: &mut Reader<'_>, width: u8) -> Result<u32, WireError> {
    const EXPECTED: &str = "a length after its marker";
    Ok(match width {
        0 => u8::from_be_bytes(input.array(EXPECTED)?).into(),
        1 => u16::from_be_bytes(input.array(EXPECTED)?).into(),
        _ => u32::from_be_bytes(input.array(EXPECTED)?),
    })
}

fn text<'a>(input: &mut Reader<'a>, length: u32) -> Result<Value<'a>, WireError> {
    let at = input.at();
    let bytes = input.take(length as usize, "a string of the stated length")?;
    match core::str::from_utf8(bytes) {
        Ok(text) => Ok(Value::Str(text)),
        Err(error) => Err(error::format(at + error.valid_up_to(), "UTF-8", Found::Type("other bytes"))),
    }
}

fn extension<'a>(input: &mut Reader<'a>, length: u32) -> Result<Value<'a>, WireError> {
    let [kind] = input.array("the type of an extension")?;
    let bytes = input.take(length as usize, "an extension of the stated length")?;
    Ok(Value::Ext(kind.cast_signed(), bytes))
}

/// Reads `values` values at this depth and returns the bytes they took and how many levels they have.
fn walk<'a>(input: &mut Reader<'a>, values: u64, depth: usize) -> Result<(Reader<'a>, usize), WireError> {
    let (start, at) = (input.rest(), input.at());
    if values > start.len() as u64 {
        // A value has a byte at least: say so before looping over a length that somebody made up.
        return Err(error::truncated(at, "as many values as stated", start.len()));
    }
    let mut levels = 0;
    for _ in 0..values {
        levels = levels.max(Value::decode(input, depth + 1)?.depth());
    }
    let taken = &start[..start.len() - input.rest().len()];
    Ok((Reader::starting_at(taken, at), levels))
}

/// A list of values, as checked bytes.
///
/// ```
/// use kauri_wire::pack::{Map, Value};
///
/// let bytes = b"\x81\xa1a\x93\x01\x02\x03"; // {"a": [1, 2, 3]}
/// let Some(Value::Array(numbers)) = Map::decode(bytes)?.get("a") else { panic!("it is there") };
/// assert_eq!(numbers.iter().filter_map(|number| number.as_uint()).sum::<u64>(), 6);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Array<'a> {
    items: Reader<'a>,
    count: u32,
    depth: usize,
}

impl<'a> Array<'a> {
    fn walk(input: &mut Reader<'a>, count: u32, depth: usize) -> Result<Self, WireError> {
        let (items, levels) = walk(input, count.into(), depth)?;
        Ok(Self { items, count, depth: levels + 1 })
    }

    /// How many values it has.
    ///
    /// ```
    /// use kauri_wire::pack::ArrayBuf;
    ///
    /// let mut list = ArrayBuf::new();
    /// list.push("apple").push("pear");
    /// assert_eq!(list.view().len(), 2);
    /// ```
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Whether it has none.
    ///
    /// ```
    /// use kauri_wire::pack::ArrayBuf;
    ///
    /// assert!(ArrayBuf::new().view().is_empty());
    /// assert!(!ArrayBuf::new().push(false).view().is_empty());
    /// ```
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its values in order.
    ///
    /// ```
    /// use kauri_wire::pack::{ArrayBuf, Value};
    ///
    /// let mut list = ArrayBuf::new();
    /// list.push(1_u64).push("two");
    /// assert!(list.view().iter().eq([Value::Uint(1), Value::Str("two")]));
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let mut items = self.items;
        (0..self.count).map(move |_| next(&mut items))
    }

    fn append_to(&self, out: &mut Vec<u8>) {
        append_size([(0x90, 15), (0xdc, 0), (0xdc, 0xffff), (0xdd, u32::MAX)], self.count as usize, out);
        out.extend_from_slice(self.items.rest());
    }
}

/// Keys and values, as checked bytes.
///
/// ```
/// use kauri_wire::pack::{Map, MapBuf, Value};
///
/// let mut fruit = MapBuf::new();
/// fruit.put("name", "apple").put("count", 12_u64);
/// let bytes = fruit.view().encode();
///
/// let map = Map::decode(&bytes)?;
/// assert_eq!(map.get("count"), Some(Value::Uint(12)));
/// assert_eq!(map.get("price"), None);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Map<'a> {
    entries: Reader<'a>,
    count: u32,
    depth: usize,
}

impl<'a> Map<'a> {
    /// A map without keys.
    ///
    /// ```
    /// use kauri_wire::pack::{Map, MapBuf};
    ///
    /// assert_eq!(Map::EMPTY, MapBuf::new().view());
    /// assert_eq!(Map::EMPTY.encode(), [0x80]);
    /// ```
    pub const EMPTY: Map<'static> = Map { entries: Reader::new(&[]), count: 0, depth: 1 };

    /// Reads one map that fills `bytes` exactly, and checks all that is nested in it.
    ///
    /// ```
    /// use kauri_wire::WireErrorKind;
    /// use kauri_wire::pack::{Map, Value};
    ///
    /// assert_eq!(Map::decode(b"\x81\xa1a\x07")?.get("a"), Some(Value::Uint(7)));
    /// assert_eq!(Map::decode(b"\x81\xa1a").unwrap_err().kind, WireErrorKind::Truncated);
    /// assert!(Map::decode(b"\xdf\xff\xff\xff\xff").is_err()); // 4 294 967 295 keys, it says: nothing is allocated for them
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `Truncated` if the bytes end before the map does; `Format` if they are not MessagePack, not a map, nested deeper
    /// than 64 levels, have text that is not UTF-8, or go on after the map.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::decode_at(bytes, 0)
    }

    /// As `decode`, for bytes that stand at offset `at` of a larger input.
    pub(crate) fn decode_at(bytes: &'a [u8], at: usize) -> Result<Self, WireError> {
        let mut input = Reader::starting_at(bytes, at);
        let value = Value::decode(&mut input, 0)?;
        let Value::Map(map) = value else {
            return Err(error::format(at, "a MessagePack map", Found::Type(value.type_name())));
        };
        input.end("the end of a MessagePack map")?;
        Ok(map)
    }

    fn walk(input: &mut Reader<'a>, count: u32, depth: usize) -> Result<Self, WireError> {
        let (entries, levels) = walk(input, 2 * u64::from(count), depth)?;
        Ok(Self { entries, count, depth: levels + 1 })
    }

    /// How many keys it has.
    ///
    /// ```
    /// use kauri_wire::pack::MapBuf;
    ///
    /// let mut twice = MapBuf::new();
    /// twice.put("a", 1_u64).put("a", 2_u64);
    /// assert_eq!(twice.view().len(), 2); // it is counted, not looked at
    /// ```
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Whether it has none.
    ///
    /// ```
    /// use kauri_wire::pack::Map;
    ///
    /// assert!(Map::EMPTY.is_empty());
    /// assert!(!Map::decode(b"\x81\xa1a\x07")?.is_empty());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its keys and values in the order they came.
    ///
    /// ```
    /// use kauri_wire::pack::{MapBuf, Value};
    ///
    /// let mut fruit = MapBuf::new();
    /// fruit.put("pears", 5_u64).put("apples", 12_u64);
    /// let keys: Vec<Value> = fruit.view().iter().map(|(key, _)| key).collect();
    /// assert_eq!(keys, [Value::Str("pears"), Value::Str("apples")]); // as they were put
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (Value<'a>, Value<'a>)> + use<'a> {
        self.positions().map(|(_, key, value)| (key, value))
    }

    /// The value of the first key that is this text.
    ///
    /// ```
    /// use kauri_wire::pack::{MapBuf, Value};
    ///
    /// let mut fruit = MapBuf::new();
    /// fruit.put("apples", 12_u64).put("apples", 13_u64);
    /// assert_eq!(fruit.view().get("apples"), Some(Value::Uint(12))); // the first
    /// assert_eq!(fruit.view().get("pears"), None);
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.iter().find_map(|(key, value)| (key == Value::Str(name)).then_some(value))
    }

    /// The map's bytes.
    ///
    /// ```
    /// use kauri_wire::pack::{Map, MapBuf};
    ///
    /// let mut fruit = MapBuf::new();
    /// fruit.put("a", 7_u64);
    /// assert_eq!(fruit.view().encode(), b"\x81\xa1a\x07");
    /// let long = b"\x81\xa1a\xcc\x07"; // the same number, with more bytes than it needs
    /// assert_eq!(Map::decode(long)?.encode(), long); // what came is what goes
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append_to(&mut out);
        out
    }

    /// Keys and values, each with the offset of the value.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (usize, Value<'a>, Value<'a>)> + use<'a> {
        let mut entries = self.entries;
        (0..self.count).map(move |_| {
            let key = next(&mut entries);
            (entries.at(), key, next(&mut entries))
        })
    }

    /// The offset of the first key.
    pub(crate) const fn at(&self) -> usize {
        self.entries.at()
    }

    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        append_size([(0x80, 15), (0xde, 0), (0xde, 0xffff), (0xdf, u32::MAX)], self.count as usize, out);
        out.extend_from_slice(self.entries.rest());
    }
}

fn next<'a>(input: &mut Reader<'a>) -> Value<'a> {
    Value::decode(input, 0).expect("the bytes of a map or an array were checked when it was made")
}

/// Two maps are equal if their entries are the same bytes; where they were read from does not count.
impl PartialEq for Map<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.entries.rest() == other.entries.rest()
    }
}

/// Two arrays are equal if their items are the same bytes; where they were read from does not count.
impl PartialEq for Array<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.items.rest() == other.items.rest()
    }
}

impl fmt::Debug for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Debug for Array<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

macro_rules! value_from {
    ($($type:ty, |$value:ident| $make:expr;)*) => {$(
        impl<'a> From<$type> for Value<'a> {
            fn from($value: $type) -> Self {
                $make
            }
        }
    )*};
}

value_from! {
    bool, |value| Self::Bool(value);
    u32, |value| Self::Uint(value.into());
    u64, |value| Self::Uint(value);
    i64, |value| u64::try_from(value).map_or(Self::Int(value), Self::Uint);
    f64, |value| Self::F64(value);
    &'a str, |value| Self::Str(value);
    &'a [u8], |value| Self::Bin(value);
    Map<'a>, |value| Self::Map(value);
    Array<'a>, |value| Self::Array(value);
}

fn append<const N: usize>(marker: u8, bytes: [u8; N], out: &mut Vec<u8>) {
    out.push(marker);
    out.extend_from_slice(&bytes);
}

#[expect(clippy::cast_possible_truncation, reason = "each arm holds what its range says")]
fn append_uint(number: u64, out: &mut Vec<u8>) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => append(0xcc, (number as u8).to_be_bytes(), out),
        0x100..=0xffff => append(0xcd, (number as u16).to_be_bytes(), out),
        0x1_0000..=0xffff_ffff => append(0xce, (number as u32).to_be_bytes(), out),
        _ => append(0xcf, number.to_be_bytes(), out),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "each arm holds what its range says")]
fn append_int(number: i64, out: &mut Vec<u8>) {
    match number {
        0.. => append_uint(number.cast_unsigned(), out),
        -32..0 => out.push((number as i8).cast_unsigned()),
        -0x80..-32 => append(0xd0, (number as i8).to_be_bytes(), out),
        -0x8000..-0x80 => append(0xd1, (number as i16).to_be_bytes(), out),
        -0x8000_0000..-0x8000 => append(0xd2, (number as i32).to_be_bytes(), out),
        _ => append(0xd3, number.to_be_bytes(), out),
    }
}

/// Writes a length in the shortest of four forms: inside the marker, or after it in one, two or four bytes. A form is
/// its marker and the largest length it holds; a largest length of 0 says that there is no such form.
fn append_size(forms: [(u8, u32); 4], length: usize, out: &mut Vec<u8>) {
    let length = u32::try_from(length).expect("a frame holds 16 MiB at most, so what is in it is shorter than 4 GiB");
    let [inside, one, two, four] = forms;
    #[expect(clippy::cast_possible_truncation, reason = "each branch holds what its limit says")]
    if length <= inside.1 && inside.1 > 0 {
        out.push(inside.0 | length as u8);
    } else if length <= one.1 && one.1 > 0 {
        append(one.0, (length as u8).to_be_bytes(), out);
    } else if length <= two.1 {
        append(two.0, (length as u16).to_be_bytes(), out);
    } else {
        append(four.0, length.to_be_bytes(), out);
    }
}

fn append_extension(kind: i8, bytes: &[u8], out: &mut Vec<u8>) {
    match bytes.len() {
        1 => out.push(0xd4),
        2 => out.push(0xd5),
        4 => out.push(0xd6),
        8 => out.push(0xd7),
        16 => out.push(0xd8),
        length => append_size([(0xc7, 0), (0xc7, 0xff), (0xc8, 0xffff), (0xc9, u32::MAX)], length, out),
    }
    out.push(kind.cast_unsigned());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn trip(value: Value<'_>) -> Vec<u8> {
        let mut map = MapBuf::new();
        map.put("v", value);
        let bytes = map.view().encode();
        assert_eq!(Map::decode(&bytes).unwrap().get("v"), Some(value));
        bytes[3..].to_vec()
    }

    #[test]
    fn integers_take_their_shortest_form() {
        let forms: [(i64, usize); 15] = [
            (0, 1),
            (127, 1),
            (128, 2),
            (255, 2),
            (256, 3),
            (65_535, 3),
            (65_536, 5),
            (1 << 32, 9),
            (i64::MAX, 9),
            (-1, 1),
            (-32, 1),
            (-33, 2),
            (-129, 3),
            (-32_769, 5),
            (i64::MIN, 9),
        ];
        for (number, bytes) in forms {
            assert_eq!(trip(number.into()).len(), bytes, "{number}");
        }
        assert_eq!(trip(u64::MAX.into()).len(), 9);
    }

    #[test]
    fn every_length_form_is_written_and_read() {
        for length in [0, 1, 31, 32, 255, 256, 65_535, 65_536] {
            let text = "x".repeat(length);
            trip(text.as_str().into());
            trip(text.as_bytes().into());
            trip(Value::Ext(-7, text.as_bytes()));
            let mut list = ArrayBuf::new();
            let mut map = MapBuf::new();
            for _ in 0..length {
                list.push(true);
                map.put("", false);
            }
            trip(list.view().into());
            trip(map.view().into());
        }
    }

    #[test]
    fn timestamps_are_read_in_their_three_forms() {
        let check = |bytes: &[u8], expected| assert_eq!(Value::Ext(-1, bytes).as_timestamp(), expected, "{bytes:?}");
        check(&[0, 0, 0, 1], Some((1, 0)));
        check(&[0, 0, 0, 4, 0, 0, 0, 2], Some((2, 1)));
        check(&[0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Some((-1, 5)));
        check(&[0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0], None); // more nanoseconds than a second has
        check(&[0, 0], None);
        check(&[], None);
        assert_eq!(Value::Ext(5, &[0, 0, 0, 1]).as_timestamp(), None);
    }

    #[test]
    fn whole_floats_are_integers_where_one_is_asked_for() {
        assert_eq!(Value::F64(1024.0).as_uint(), Some(1024));
        for number in [1.5, -1.0, 1e300, f64::NAN, f64::INFINITY] {
            assert_eq!(Value::F64(number).as_uint(), None, "{number}");
        }
    }

    #[test]
    fn nesting_is_bounded_on_both_sides() {
        let mut levels = MapBuf::new();
        for _ in 1..DEPTH_MAX {
            let mut outer = MapBuf::new();
            outer.put("", levels.view());
            levels = outer;
        }
        let mut bytes = levels.view().encode();
        assert_eq!(Value::Map(Map::decode(&bytes).unwrap()).depth(), DEPTH_MAX);
        bytes.splice(0..0, [0x81, 0xa0]);
        let error = Map::decode(&bytes).unwrap_err();
        assert_eq!((error.expected, error.at), ("64 levels of nesting at most", bytes.len() - 1));
    }

    #[test]
    #[should_panic(expected = "the limit is 64")]
    fn a_value_of_too_many_levels_cannot_be_put() {
        let mut list = ArrayBuf::new();
        for _ in 0..=DEPTH_MAX {
            let mut outer = ArrayBuf::new();
            outer.push(list.view());
            list = outer;
        }
    }

    #[test]
    fn lengths_that_somebody_made_up_are_refused_at_once() {
        let cases: [&[u8]; 6] = [
            &[0xdf, 0xff, 0xff, 0xff, 0xff],
            &[0x81, 0xa0, 0xdd, 0xff, 0xff, 0xff, 0xff],
            &[0x81, 0xa0, 0xdb, 0xff, 0xff, 0xff, 0xff],
            &[0x81, 0xa0, 0xc6, 0xff, 0xff, 0xff, 0xff],
            &[0x81, 0xa0, 0xc9, 0xff, 0xff, 0xff, 0xff, 0],
            &[0xde, 0xff],
        ];
        for bytes in cases {
            assert_eq!(Map::decode(bytes).unwrap_err().kind, crate::WireErrorKind::Truncated, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_not_one_map_is_refused() {
        let cases: [(&[u8], &str); 5] = [
            (&[0xc0], "a MessagePack map"),
            (&[0x80, 0x80], "the end of a MessagePack map"),
            (&[0xc1], "a MessagePack value"),
            (&[0x81, 0xa1, 0xff, 0xc0], "UTF-8"),
            (&[], "a MessagePack value"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(Map::decode(bytes).unwrap_err().expected, expected, "{bytes:?}");
        }
    }

    #[test]
    fn equality_does_not_ask_where_a_map_stood() {
        let mut outer = vec![0x81, 0xa1, b'm', 0x81, 0xa1, b'k', 0x01];
        let Some(Value::Map(inner)) = Map::decode(&outer).unwrap().get("m") else { panic!("a map") };
        let alone = Map::decode(&outer[3..]).unwrap();
        assert!(inner == alone && inner.at() != alone.at());
        outer[6] = 2;
        assert!(Map::decode(&outer[3..]).unwrap().get("k") == Some(Value::Uint(2)));
    }
}
