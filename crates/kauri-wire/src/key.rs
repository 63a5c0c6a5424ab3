//! Keys: types whose bytes sort like their values.
//!
//! | type | bytes |
//! |---|---|
//! | unsigned integers | big-endian |
//! | signed integers | big-endian with the sign bit flipped |
//! | `str`, `[u8]` as a whole key | as they are |
//! | `str`, `[u8]` inside a tuple | each byte 0 as `00 FF`, then `00 01` to end it |
//! | tuples | their parts, one after the other |
//! | [`InboxKey`] | `[worker u64be][seq u64be]` |
//! | [`Seq`] (outbox) | `[seq u64be]` |
//! | [`TimerKey`] | `[due i64be][seq u64be]`, ordered by due time, so not bytewise below zero |
//! | [`RetryKey`] | `retry:` and the message id |
//! | [`RunId`] | its sixteen bytes: oldest first |
//!
//! The end mark `00 01` is less than any continued string (`00 FF` is its least next byte), so a string sorts before its
//! extensions whatever part comes after it.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;

use crate::error::{self, Found, WireError, WireErrorKind};
use crate::id::{JobId, RunId, Seq, Timestamp, WorkerId};
use crate::reader::Reader;

/// A type whose values are keys.
///
/// For all keys `a` and `b`: `compare(encode(a), encode(b))` is the order of `a` and `b`. Where `BYTEWISE` is true that order
/// is the order of the bytes, which is the fast case.
///
/// ```
/// use kauri_wire::Key;
///
/// type Stock = (String, u32);
/// let apples = Stock::encode(("apple", 7));
/// assert!(apples < Stock::encode(("pear", 1)));
/// let (fruit, shelf) = Stock::decode(&apples)?;
/// assert_eq!((&*fruit, shelf), ("apple", 7));
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub trait Key {
    /// What is passed in: `&str` for text, the value itself for a number.
    type Ref<'a>: Copy;
    /// What comes out.
    type View<'a>;
    /// Whether keys are in the order of their bytes.
    const BYTEWISE: bool = true;

    /// The name under which a table remembers this type.
    ///
    /// ```
    /// use kauri_wire::Key;
    ///
    /// assert_eq!(<(u32, String)>::name(), "(u32, text)");
    /// ```
    fn name() -> Cow<'static, str>;

    /// Writes the key to the end of `out`.
    ///
    /// ```
    /// use kauri_wire::Key;
    ///
    /// let mut row = vec![1];
    /// u16::encode_into(0x0203, &mut row);
    /// <str>::encode_into("ann", &mut row);
    /// assert_eq!(row, b"\x01\x02\x03ann");
    /// ```
    fn encode_into(key: Self::Ref<'_>, out: &mut Vec<u8>);

    /// Gives the key's bytes to `use_bytes`. Keys that are bytes already, or few, are not copied to the heap for it.
    ///
    /// ```
    /// use kauri_wire::Key;
    ///
    /// assert_eq!(<str>::with_bytes("apple", |bytes| bytes.len()), 5);
    /// assert_eq!(i8::with_bytes(-128, |bytes| bytes[0]), 0); // the least number has the least byte
    /// ```
    fn with_bytes<T>(key: Self::Ref<'_>, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(&Self::encode(key))
    }

    /// Reads a key that fills `bytes` exactly.
    ///
    /// ```
    /// use kauri_wire::Key;
    ///
    /// assert_eq!(u16::decode(&[2, 3])?, 0x0203);
    /// assert_eq!(<str>::decode(b"ann")?, "ann"); // borrowed
    /// assert_eq!(u16::decode(&[2, 3, 4]).unwrap_err().to_string(), "at byte 2: expected the end of a big-endian integer, found 1 byte");
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// If they are not the bytes of a key of this type.
    fn decode(bytes: &[u8]) -> Result<Self::View<'_>, WireError>;

    /// The order of two encoded keys.
    ///
    /// ```
    /// use std::cmp::Ordering;
    ///
    /// use kauri_wire::{Key, Seq, TimerKey, Timestamp};
    ///
    /// let key = |due| TimerKey::encode(TimerKey { due: Timestamp(due), seq: Seq(1) });
    /// assert_eq!(TimerKey::compare(&key(-1), &key(1)), Ordering::Less);
    /// assert!(key(-1) > key(1), "its bytes say otherwise, so it says BYTEWISE = false");
    /// ```
    #[must_use]
    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        left.cmp(right)
    }

    /// The key's bytes.
    ///
    /// ```
    /// use kauri_wire::Key;
    ///
    /// assert_eq!(<(String, u8)>::encode(("a", 7)), [b'a', 0, 1, 7]); // text in a tuple has an end mark
    /// assert_eq!(<str>::encode("a"), b"a"); // and alone has none
    /// ```
    #[must_use]
    fn encode(key: Self::Ref<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        Self::encode_into(key, &mut out);
        out
    }
}

/// A key that can be a part of a tuple: its end can be seen from its bytes, and it is bytewise.
///
/// ```
/// use kauri_wire::{Key, KeyPart, Reader};
///
/// let bytes = <(String, String)>::encode(("ann", "bob"));
/// let mut input = Reader::new(&bytes);
/// assert_eq!(String::decode_part(&mut input)?, "ann"); // it ends where its mark is
/// assert_eq!(String::decode_part(&mut input)?, "bob");
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
pub trait KeyPart: Key {
    /// What comes out of a tuple; text with a byte 0 in it cannot be borrowed there.
    type Part<'a>;

    /// Writes the part to the end of `out`.
    ///
    /// ```
    /// use kauri_wire::KeyPart;
    ///
    /// let mut part = Vec::new();
    /// <[u8]>::encode_part(&[7, 0, 8], &mut part);
    /// assert_eq!(part, [7, 0, 0xff, 8, 0, 1]); // a zero within is not the end
    /// ```
    fn encode_part(part: Self::Ref<'_>, out: &mut Vec<u8>);

    /// Reads the part from the front of `input`.
    ///
    /// ```
    /// use kauri_wire::{KeyPart, Reader};
    ///
    /// let mut input = Reader::new(&[0, 7, 9, 9]);
    /// assert_eq!(u16::decode_part(&mut input)?, 7);
    /// assert_eq!(input.rest(), [9, 9]); // what comes after it
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// If the bytes there are not such a part.
    fn decode_part<'a>(input: &mut Reader<'a>) -> Result<Self::Part<'a>, WireError>;
}

/// A key of a fixed number of bytes is the same inside a tuple and alone.
macro_rules! fixed_key {
    ($type:ty, $name:expr, $expected:literal, |$key:ident| $encode:expr, |$bytes:ident| $decode:expr) => {
        impl Key for $type {
            type Ref<'a> = $type;
            type View<'a> = $type;

            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn encode_into($key: $type, out: &mut Vec<u8>) {
                out.extend_from_slice(&$encode);
            }

            fn with_bytes<T>($key: $type, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
                use_bytes(&$encode)
            }

            fn decode(bytes: &[u8]) -> Result<$type, WireError> {
                let mut input = Reader::new(bytes);
                let key = Self::decode_part(&mut input)?;
                input.end(concat!("the end of ", $expected))?;
                Ok(key)
            }
        }

        impl KeyPart for $type {
            type Part<'a> = $type;

            fn encode_part(part: $type, out: &mut Vec<u8>) {
                Self::encode_into(part, out);
            }

            fn decode_part<'a>(input: &mut Reader<'a>) -> Result<$type, WireError> {
                let at = input.at();
                let $bytes = input.array($expected)?;
                let decoded: Result<$type, WireError> = $decode;
                decoded.map_err(|error| error.shifted(at))
            }
        }
    };
}

macro_rules! unsigned_key {
    ($($type:ident)*) => {$(
        fixed_key!($type, stringify!($type), "a big-endian integer", |key| key.to_be_bytes(), |bytes| Ok($type::from_be_bytes(bytes)));
    )*};
}

macro_rules! signed_key {
    ($($type:ident)*) => {$(
        fixed_key!(
            $type,
            stringify!($type),
            "a big-endian integer",
            |key| (key ^ $type::MIN).to_be_bytes(),
            |bytes| Ok($type::from_be_bytes(bytes) ^ $type::MIN)
        );
    )*};
}

unsigned_key!(u8 u16 u32 u64 u128);
signed_key!(i8 i16 i32 i64 i128);

fixed_key!(bool, "bool", "a byte 0 or 1", |key| [u8::from(key)], |bytes| match bytes {
    [0] => Ok(false),
    [1] => Ok(true),
    [other] => Err(error::format(0, "a byte 0 or 1", error::number(other.into()))),
});
fixed_key!(WorkerId, "worker", "a worker id of 8 bytes", |key| key.key_bits().to_be_bytes(), |bytes| Ok(
    WorkerId::from_key_bits(u64::from_be_bytes(bytes))
));
fixed_key!(Seq, "seq", "a sequence number of 8 bytes", |key| key.0.to_be_bytes(), |bytes| Ok(Seq(u64::from_be_bytes(
    bytes
))));
fixed_key!(Timestamp, "timestamp", "a timestamp of 8 bytes", |key| (key.0 ^ i64::MIN).to_be_bytes(), |bytes| Ok(
    Timestamp(i64::from_be_bytes(bytes) ^ i64::MIN)
));
fixed_key!(RunId, "run", "a run id of 16 bytes", |key| *key.as_bytes(), |bytes| RunId::from_bytes(bytes));
fixed_key!(InboxKey, "inbox", "an inbox key of 16 bytes", |key| pair(key.worker.key_bits(), key.seq), |bytes| {
    let (worker, seq) = unpair(bytes);
    Ok(InboxKey { worker: WorkerId::from_key_bits(worker), seq })
});

/// The key of a row in the inbox: oldest message of a worker first.
///
/// ```
/// use kauri_wire::{InboxKey, Key, Seq, WorkerId};
///
/// let key = |worker, seq| InboxKey::encode(InboxKey { worker: WorkerId(worker), seq: Seq(seq) });
/// assert!(key(7, 9) < key(7, 10) && key(7, u64::MAX) < key(8, 0)); // worker by worker, oldest first
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InboxKey {
    /// Whose inbox.
    pub worker: WorkerId,
    /// The row's place in it.
    pub seq: Seq,
}

/// The key of a row in the timers: earliest due first.
///
/// The contract fixes the bytes as `[due i64be][seq u64be]`, and bytewise those put times before the epoch last. `compare`
/// orders them by their values.
///
/// ```
/// use kauri_wire::{Key, Seq, TimerKey, Timestamp};
///
/// let key = TimerKey { due: Timestamp(1_000), seq: Seq(2) };
/// assert_eq!(TimerKey::decode(&TimerKey::encode(key))?, key);
/// assert!(TimerKey { due: Timestamp(999), seq: Seq(3) } < key);
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TimerKey {
    /// When the timer is due.
    pub due: Timestamp,
    /// Its place among those due at that moment.
    pub seq: Seq,
}

impl Key for TimerKey {
    type Ref<'a> = Self;
    type View<'a> = Self;
    const BYTEWISE: bool = false;

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("timer")
    }

    fn encode_into(key: Self, out: &mut Vec<u8>) {
        out.extend_from_slice(&pair(key.due.0.cast_unsigned(), key.seq));
    }

    fn with_bytes<T>(key: Self, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(&pair(key.due.0.cast_unsigned(), key.seq))
    }

    fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut input = Reader::new(bytes);
        let (due, seq) = unpair(input.array("a timer key of 16 bytes")?);
        input.end("the end of a timer key of 16 bytes")?;
        Ok(Self { due: Timestamp(due.cast_signed()), seq })
    }

    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        // Only the first byte holds a sign; with it flipped the bytes are in order.
        let flipped = |key: &[u8]| key.first().map(|byte| byte ^ 0x80);
        flipped(left).cmp(&flipped(right)).then_with(|| left.cmp(right))
    }
}

/// The key of a message's retry counter, which stands beside the ids already handled: `retry:` and the message id.
///
/// ```
/// use kauri_wire::{Key, RetryKey};
///
/// let key = RetryKey::encode(b"order-1");
/// assert_eq!(key, b"retry:order-1");
/// assert_eq!(RetryKey::decode(&key)?, b"order-1");
/// # Ok::<(), kauri_wire::WireError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryKey;

impl RetryKey {
    const PREFIX: &'static [u8] = b"retry:";
}

impl Key for RetryKey {
    type Ref<'a> = &'a [u8];
    type View<'a> = &'a [u8];

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("retry")
    }

    fn encode_into(message_id: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(Self::PREFIX);
        out.extend_from_slice(message_id);
    }

    fn decode(bytes: &[u8]) -> Result<&[u8], WireError> {
        let expected = "retry: and a message id";
        bytes.strip_prefix(Self::PREFIX).ok_or_else(|| error::format(0, expected, error::length(bytes.len())))
    }
}

fn pair(first: u64, seq: Seq) -> [u8; 16] {
    (u128::from(first) << 64 | u128::from(seq.0)).to_be_bytes()
}

fn unpair(bytes: [u8; 16]) -> (u64, Seq) {
    let both = u128::from_be_bytes(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "the upper and the lower half, on purpose")]
    let halves = ((both >> 64) as u64, Seq(both as u64));
    halves
}

/// A key of bytes, or of text, is itself when alone and escaped inside a tuple.
macro_rules! bytes_key {
    ($type:ty, $ref:ty, $view:ty, $name:literal, $part:ident, |$key:ident| $encode:expr, |$bytes:ident| $decode:expr) => {
        impl Key for $type {
            type Ref<'a> = &'a $ref;
            type View<'a> = &'a $view;

            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn encode_into($key: &$ref, out: &mut Vec<u8>) {
                out.extend_from_slice($encode);
            }

            fn with_bytes<T>($key: &$ref, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
                use_bytes($encode)
            }

            fn decode($bytes: &[u8]) -> Result<&$view, WireError> {
                $decode
            }
        }

        impl KeyPart for $type {
            type Part<'a> = Cow<'a, $view>;

            fn encode_part($key: &$ref, out: &mut Vec<u8>) {
                escape($encode, out);
            }

            #[inline]
            fn decode_part<'a>(input: &mut Reader<'a>) -> Result<Cow<'a, $view>, WireError> {
                let at = input.at();
                $part(unescape(input)?).map_err(|error: WireError| error.shifted(at))
            }
        }
    };
}

bytes_key!([u8], [u8], [u8], "bytes", Ok, |key| key, |bytes| Ok(bytes));
bytes_key!(Vec<u8>, [u8], [u8], "bytes", Ok, |key| key, |bytes| Ok(bytes));
bytes_key!(str, str, str, "text", text, |key| key.as_bytes(), |bytes| utf8(bytes));
bytes_key!(String, str, str, "text", text, |key| key.as_bytes(), |bytes| utf8(bytes));
bytes_key!(JobId, JobId, str, "job", job, |key| key.as_str().as_bytes(), |bytes| {
    let text = utf8(bytes)?;
    check_job(text)?;
    Ok(text)
});

fn utf8(bytes: &[u8]) -> Result<&str, WireError> {
    core::str::from_utf8(bytes).map_err(|error| error::format(error.valid_up_to(), "UTF-8", Found::Type("other bytes")))
}

fn text(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, WireError> {
    Ok(match bytes {
        Cow::Borrowed(bytes) => Cow::Borrowed(utf8(bytes)?),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).map_err(|error| {
            // Each byte 0 before the fault took two bytes in the key.
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let at = good.len() + good.iter().filter(|&&byte| byte == ZERO).count();
            error::format(at, "UTF-8", Found::Type("other bytes"))
        })?),
    })
}

fn job(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, WireError> {
    let text = text(bytes)?;
    check_job(&text)?;
    Ok(text)
}

/// In bytes that were read, what cannot be a job id is a broken format, not an invalid argument.
fn check_job(text: &str) -> Result<(), WireError> {
    JobId::check(text).map_err(|error| WireError { kind: WireErrorKind::Format, ..error })
}

const ZERO: u8 = 0x00;
const ESCAPED_ZERO: u8 = 0xff;
const END: u8 = 0x01;

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for (index, run) in bytes.split(|&byte| byte == ZERO).enumerate() {
        if index > 0 {
            out.extend_from_slice(&[ZERO, ESCAPED_ZERO]);
        }
        out.extend_from_slice(run);
    }
    out.extend_from_slice(&[ZERO, END]);
}

/// The bytes up to the end mark; borrowed unless one of them was escaped.
#[inline]
fn unescape<'a>(input: &mut Reader<'a>) -> Result<Cow<'a, [u8]>, WireError> {
    // Mostly nothing is escaped: the first zero is that of the end mark.
    let run = first_zero(input.rest());
    match input.rest().get(run + 1) {
        Some(&END) => {
            let bytes = input.take(run, MARKED)?;
            input.take(2, MARKED)?;
            Ok(Cow::Borrowed(bytes))
        }
        _ => unescape_all(input),
    }
}

const MARKED: &str = "a string with its end mark 00 01";

/// Where the first byte 0 is, or the end of the bytes. Eight are looked at at once.
#[inline]
fn first_zero(bytes: &[u8]) -> usize {
    const LOW: u64 = u64::MAX / 255;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest bit that is set belongs to the first byte that borrows, which is the first zero.
        let zeros = word.wrapping_sub(LOW) & !word & (LOW << 7);
        if zeros != 0 {
            return index * 8 + zeros.trailing_zeros() as usize / 8;
        }
    }
    bytes.len() - rest.len() + rest.iter().position(|&byte| byte == ZERO).unwrap_or(rest.len())
}

/// As [`unescape`], where something was escaped or is wrong.
fn unescape_all<'a>(input: &mut Reader<'a>) -> Result<Cow<'a, [u8]>, WireError> {
    let start = input.rest();
    let mut zeros = 0;
    loop {
        let run = first_zero(input.rest());
        input.take(run, MARKED)?;
        let at = input.at();
        match input.array(MARKED)? {
            [ZERO, ESCAPED_ZERO] => zeros += 1,
            [ZERO, END] => break,
            [_, other] => {
                return Err(error::format(at + 1, "01 or FF after a byte 0 in a string", error::number(other.into())));
            }
        }
    }
    let escaped = &start[..start.len() - input.rest().len() - 2];
    if zeros == 0 {
        return Ok(Cow::Borrowed(escaped));
    }
    // Exactly as long as needed, so that no key makes us allocate more than its own length.
    let mut bytes = Vec::with_capacity(escaped.len() - zeros);
    let mut runs = escaped.split(|&byte| byte == ZERO);
    bytes.extend_from_slice(runs.next().unwrap_or_default());
    for run in runs {
        // Each later run stands behind a zero and begins with its escape.
        bytes.push(ZERO);
        bytes.extend_from_slice(&run[1..]);
    }
    Ok(Cow::Owned(bytes))
}

macro_rules! tuple_key {
    ($($part:ident $lower:ident),+) => {
        impl<$($part: KeyPart),+> Key for ($($part,)+) {
            type Ref<'a> = ($($part::Ref<'a>,)+);
            type View<'a> = ($($part::Part<'a>,)+);

            fn name() -> Cow<'static, str> {
                let names = [$($part::name()),+];
                Cow::Owned(["(", &names.join(", "), ")"].concat())
            }

            fn encode_into(($($lower,)+): Self::Ref<'_>, out: &mut Vec<u8>) {
                $($part::encode_part($lower, out);)+
            }

            fn decode(bytes: &[u8]) -> Result<Self::View<'_>, WireError> {
                let mut input = Reader::new(bytes);
                let key = ($($part::decode_part(&mut input)?,)+);
                input.end("the end of a key")?;
                Ok(key)
            }
        }
    };
}

tuple_key!(A a, B b);
tuple_key!(A a, B b, C c);
tuple_key!(A a, B b, C c, D d);
tuple_key!(A a, B b, C c, D d, E e);
tuple_key!(A a, B b, C c, D d, E e, F f);

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn first_zero_is_found_wherever_it_is() {
        for length in 0..40 {
            for zero in 0..=length {
                // Bytes that make a borrow go on, before and behind it.
                for other in [0x01, 0x80, 0xff] {
                    let mut bytes = vec![other; length];
                    bytes.iter_mut().skip(zero).step_by(3).for_each(|byte| *byte = 0);
                    assert_eq!(first_zero(&bytes), zero, "{bytes:?}");
                }
            }
        }
    }

    #[test]
    fn inbox_and_timer_keys_are_the_bytes_of_the_contract() {
        let inbox = InboxKey { worker: WorkerId(7), seq: Seq(258) };
        assert_eq!(InboxKey::encode(inbox), [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 2]);
        let timer = TimerKey { due: Timestamp(-1), seq: Seq(1) };
        assert_eq!(TimerKey::encode(timer), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn timers_before_the_epoch_come_first() {
        let moments = [i64::MIN, -1_700_000_000_000, -1, 0, 1, 1_700_000_000_000, i64::MAX];
        let keys: Vec<_> =
            moments.iter().map(|&due| TimerKey::encode(TimerKey { due: Timestamp(due), seq: Seq(9) })).collect();
        assert!(keys.is_sorted_by(|left, right| TimerKey::compare(left, right).is_lt()));
    }

    #[test]
    fn text_sorts_before_its_extensions_inside_a_tuple() {
        let texts = ["", "\0", "\0\0", "\0\u{1}", "\0a", "\u{1}", "a", "a\0", "a\0b", "ab", "b"];
        let keys: Vec<_> = texts.iter().map(|text| <(String, u8)>::encode((text, 0xff))).collect();
        assert!(keys.is_sorted_by(|left, right| left < right));
        for (text, key) in texts.iter().zip(&keys) {
            assert_eq!(<(String, u8)>::decode(key).unwrap(), (Cow::Borrowed(*text), 0xff));
        }
    }

    #[test]
    fn plain_text_in_a_tuple_is_borrowed() {
        let key = <(String, u64)>::encode(("plain", 1));
        assert!(matches!(<(String, u64)>::decode(&key), Ok((Cow::Borrowed("plain"), 1))));
    }

    #[test]
    fn broken_keys_say_where() {
        let cases: [(&[u8], usize); 6] = [
            (b"abc", 3),               // no end mark
            (b"abc\0", 3),             // half an end mark
            (b"a\0\x02", 2),           // neither end mark nor escaped zero
            (b"a\0\x01\0\0", 3),       // integer cut short
            (b"a\xff\0\x01", 1),       // not UTF-8
            (b"a\0\xff\xff\0\x01", 3), // not UTF-8 after an escaped zero
        ];
        for (bytes, at) in cases {
            assert_eq!(<(String, u32)>::decode(bytes).unwrap_err().at, at, "{bytes:?}");
        }
        assert_eq!(<(u8, u8)>::decode(&[1, 2, 3]).unwrap_err().at, 2);
        assert_eq!(<(u8, bool)>::decode(&[1, 2]).unwrap_err().at, 1);
    }

    #[test]
    fn both_ways_to_the_bytes_of_a_key_agree() {
        assert_eq!(u32::with_bytes(7, <[u8]>::to_vec), u32::encode(7));
        assert_eq!(str::with_bytes("a", <[u8]>::to_vec), str::encode("a"));
        assert_eq!(<(String, i8)>::with_bytes(("a", -1), <[u8]>::to_vec), <(String, i8)>::encode(("a", -1)));
        let timer = TimerKey { due: Timestamp(-1), seq: Seq(1) };
        assert_eq!(TimerKey::with_bytes(timer, <[u8]>::to_vec), TimerKey::encode(timer));
    }

    #[test]
    fn names_tell_types_and_tuples_apart() {
        assert_eq!(<(JobId, Seq, Vec<u8>)>::name(), "(job, seq, bytes)");
        assert_ne!(u64::name(), i64::name());
    }

    #[test]
    fn job_ids_are_checked_when_a_key_is_read() {
        assert_eq!(JobId::decode(b"import"), Ok("import"));
        let alone = JobId::decode(b"im port").unwrap_err();
        assert_eq!((alone.kind, alone.at), (WireErrorKind::Format, 2));
        let inside = <(u8, JobId)>::decode(b"\x05a/b\0\x01").unwrap_err();
        assert_eq!((inside.kind, inside.at), (WireErrorKind::Format, 2));
        assert!(<(JobId, u8)>::decode(b"\0\x01\x05").is_err());
        assert_eq!(<(JobId, u8)>::encode((&JobId::new("j").unwrap(), 5)), vec![b'j', 0, 1, 5]);
    }
}
