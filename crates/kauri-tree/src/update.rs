//! Values that are made of those before: what was compared, what is made, and numbers that are counted with.

use std::borrow::Cow;

use crate::value::Value;

/// What the value of a row was, compared with the one that was expected.
///
/// ```
/// use kauri_tree::{Change, Compared, Store, Table, Write};
///
/// const STATE: Table<str, str> = Table::new("state");
/// let store = Store::in_memory()?;
/// let mut change = Change::new(store.snapshot());
/// let compared = change.replace_if(&STATE, "door", "closed", "open")?;
/// assert!(!compared.is_match());
/// assert_eq!(compared, Compared::Missing);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "unless it matches, nothing was replaced"]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compared {
    /// There is no such row.
    Missing,
    /// It has another value.
    Differs,
    /// It had this value, and has the new one.
    Matches,
}

impl Compared {
    /// Whether the value was replaced.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const LOCKS: Table<str, str> = Table::new("locks");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&LOCKS, "door", "free")?;
    /// assert!(txn.replace_if(&LOCKS, "door", "free", "ann")?.is_match());
    /// assert!(!txn.replace_if(&LOCKS, "door", "free", "bob")?.is_match()); // too late
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn is_match(self) -> bool {
        matches!(self, Self::Matches)
    }
}

/// Whatever is a value of a table when it is lent: a `String` is text, a `Vec<u8>` is bytes, a number is itself.
///
/// ```
/// use kauri_tree::{AsValue, Value};
///
/// fn length<V: Value + ?Sized>(value: &impl AsValue<V>) -> usize {
///     V::with_bytes(value.as_value(), <[u8]>::len)
/// }
/// assert_eq!(length::<str>(&String::from("kauri")), 5);
/// assert_eq!(length::<u32>(&7), 4);
/// ```
pub trait AsValue<V: Value + ?Sized> {
    /// The value.
    ///
    /// ```
    /// use kauri_tree::AsValue;
    ///
    /// let owned = vec![1_u8, 2, 3];
    /// let lent: &[u8] = AsValue::<[u8]>::as_value(&owned);
    /// assert_eq!(lent, [1, 2, 3]);
    /// assert_eq!(AsValue::<u64>::as_value(&7), 7); // a number is lent as it is
    /// ```
    fn as_value(&self) -> V::Ref<'_>;
}

macro_rules! as_value {
    ($($value:ty: $($owner:ty)+;)+) => {$($(
        impl AsValue<$value> for $owner {
            fn as_value(&self) -> &$value {
                self
            }
        }
    )+)+};
}

as_value! {
    str: String &str Cow<'_, str> Box<str>;
    [u8]: Vec<u8> &[u8] Cow<'_, [u8]> Box<[u8]>;
}

impl<const N: usize> AsValue<[u8]> for [u8; N] {
    fn as_value(&self) -> &[u8] {
        self
    }
}

impl AsValue<()> for () {
    fn as_value(&self) {}
}

/// Numbers that are counted with: [`Write::add`](crate::Write::add) and [`Write::subtract`](crate::Write::subtract).
///
/// ```
/// use kauri_tree::Counter;
///
/// assert_eq!(250_u8.checked_add(5), Some(255));
/// assert_eq!(Counter::checked_sub(5_u8, 6), None);
/// ```
pub trait Counter: Copy + Default + for<'a> Value<Ref<'a> = Self, View<'a> = Self> {
    /// The sum, if the type has it.
    ///
    /// ```
    /// use kauri_tree::Counter;
    ///
    /// fn total<N: Counter>(parts: &[N]) -> Option<N> {
    ///     parts.iter().try_fold(N::default(), |sum, part| sum.checked_add(*part))
    /// }
    /// assert_eq!(total(&[100_u8, 100]), Some(200));
    /// assert_eq!(total(&[100_u8, 100, 100]), None); // rather than 44
    /// ```
    fn checked_add(self, more: Self) -> Option<Self>;

    /// The difference, if the type has it.
    ///
    /// ```
    /// use kauri_tree::Counter;
    ///
    /// fn take<N: Counter>(stock: N, wanted: N) -> Option<N> {
    ///     stock.checked_sub(wanted)
    /// }
    /// assert_eq!((take(5_u32, 6), take(5_i32, 6)), (None, Some(-1)));
    /// ```
    fn checked_sub(self, less: Self) -> Option<Self>;
}

macro_rules! counter {
    ($($type:ident)*) => {$(
        impl Counter for $type {
            fn checked_add(self, more: Self) -> Option<Self> {
                $type::checked_add(self, more)
            }

            fn checked_sub(self, less: Self) -> Option<Self> {
                $type::checked_sub(self, less)
            }
        }

        as_itself!($type);
    )*};
}

macro_rules! as_itself {
    ($type:ident) => {
        impl AsValue<$type> for $type {
            fn as_value(&self) -> $type {
                *self
            }
        }
    };
}

counter!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);
as_itself!(f32);
as_itself!(f64);
