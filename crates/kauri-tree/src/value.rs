//! Values: types that are stored under keys.

use std::borrow::Cow;

use kauri_wire::WireError;

use crate::error::Result;

/// A type whose values are stored.
///
/// Integers are stored little-endian, text and bytes as they are.
///
/// ```
/// use std::borrow::Cow;
///
/// use kauri_tree::{Read, Result, Store, Table, Value, Write};
///
/// /// Cents, in as few bytes as they need.
/// struct Price;
///
/// impl Value for Price {
///     type Ref<'a> = u64;
///     type View<'a> = u64;
///
///     fn name() -> Cow<'static, str> {
///         "price".into()
///     }
///
///     fn with_bytes<T>(price: u64, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
///         let bytes = price.to_le_bytes();
///         let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
///         use_bytes(&bytes[..len])
///     }
///
///     fn decode(bytes: Cow<'_, [u8]>) -> Result<u64> {
///         Ok(bytes.iter().rev().fold(0, |price, byte| price << 8 | u64::from(*byte)))
///     }
/// }
///
/// const PRICES: Table<str, Price> = Table::new("prices");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&PRICES, "apple", 1999)?;
/// assert_eq!(txn.get(&PRICES, "apple")?, Some(1999));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub trait Value {
    /// What is passed in: `&str` for text, the value itself for a number.
    type Ref<'a>: Copy;
    /// What comes out. Bytes and text are borrowed from the store where they lie in one piece.
    type View<'a>;

    /// The name under which a table remembers this type.
    ///
    /// ```
    /// use kauri_tree::Value;
    ///
    /// assert_eq!((<str as Value>::name(), <u64 as Value>::name()), ("text".into(), "u64".into()));
    /// ```
    fn name() -> Cow<'static, str>;

    /// Gives the value's bytes to `use_bytes`.
    ///
    /// ```
    /// use kauri_tree::Value;
    ///
    /// assert_eq!(<u16 as Value>::with_bytes(0x0102, |bytes| bytes.to_vec()), [2, 1]);
    /// ```
    fn with_bytes<T>(value: Self::Ref<'_>, use_bytes: impl FnOnce(&[u8]) -> T) -> T;

    /// Reads a value from exactly these bytes.
    ///
    /// # Errors
    /// If they are not the bytes of a value of this type.
    ///
    /// ```
    /// use kauri_tree::Value;
    ///
    /// assert_eq!(<u16 as Value>::decode([2, 1][..].into())?, 0x0102);
    /// assert!(<u16 as Value>::decode([2][..].into()).is_err());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn decode(bytes: Cow<'_, [u8]>) -> Result<Self::View<'_>>;
}

impl Value for [u8] {
    type Ref<'a> = &'a [u8];
    type View<'a> = Cow<'a, [u8]>;

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("bytes")
    }

    fn with_bytes<T>(value: &[u8], use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(value)
    }

    #[inline]
    fn decode(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, [u8]>> {
        Ok(bytes)
    }
}

impl Value for str {
    type Ref<'a> = &'a str;
    type View<'a> = Cow<'a, str>;

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("text")
    }

    fn with_bytes<T>(value: &str, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(value.as_bytes())
    }

    fn decode(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>> {
        Ok(match bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(<str as kauri_wire::Key>::decode(bytes)?),
            Cow::Owned(bytes) => Cow::Owned(<str as kauri_wire::Key>::decode(&bytes)?.to_owned()),
        })
    }
}

/// Nothing: a table of keys is a set.
impl Value for () {
    type Ref<'a> = ();
    type View<'a> = ();

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("nothing")
    }

    fn with_bytes<T>((): (), use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(&[])
    }

    fn decode(bytes: Cow<'_, [u8]>) -> Result<()> {
        fixed::<0>(&bytes).map(|_| ())
    }
}

macro_rules! integer_value {
    ($($type:ident)*) => {$(
        impl Value for $type {
            type Ref<'a> = $type;
            type View<'a> = $type;

            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($type))
            }

            fn with_bytes<T>(value: $type, use_bytes: impl FnOnce(&[u8]) -> T) -> T {
                use_bytes(&value.to_le_bytes())
            }

            fn decode(bytes: Cow<'_, [u8]>) -> Result<$type> {
                fixed(&bytes).map($type::from_le_bytes)
            }
        }
    )*};
}

integer_value!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

/// Exactly `N` bytes.
fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    let found = kauri_wire::Found::Length(bytes.len() as u64);
    let expected = "a value of as many bytes as its type has";
    bytes.try_into().map_err(|_| WireError { at: 0, expected, found, kind: kauri_wire::WireErrorKind::Format }.into())
}
