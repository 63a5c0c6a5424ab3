//! Tables: named, typed maps in a store.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::marker::PhantomData;

use kauri_wire::{Key, WireError};

use crate::value::Value;

/// A table by its name, its keys and its values. It is a description: a store need not be open, nor have such a table. A store makes it with the first
/// row, if the name is not longer than a key can be ([`Error::NameTooLong`](crate::Error::NameTooLong)).
///
/// ```
/// use kauri_tree::Table;
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// assert_eq!(STOCK.name(), "stock");
/// ```
pub struct Table<K: ?Sized, V: ?Sized> {
    name: Cow<'static, str>,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> Table<K, V> {
    /// The table of this name.
    ///
    /// ```
    /// use kauri_tree::Table;
    ///
    /// const BY_DAY: Table<(u32, String), u64> = Table::new("sales by day");
    /// assert_eq!(BY_DAY.name(), "sales by day");
    /// ```
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), types: PhantomData }
    }

    /// The table of a name that is known only when the program runs.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for shop in 1..=3 {
    ///     txn.put(&Table::<str, u64>::named(format!("stock of shop {shop}")), "apples", 12)?;
    /// }
    /// txn.commit()?;
    /// assert_eq!(store.snapshot().tables().count(), 3);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn named(name: String) -> Self {
        Self { name: Cow::Owned(name), types: PhantomData }
    }

    /// Its name.
    ///
    /// ```
    /// use kauri_tree::Table;
    ///
    /// assert_eq!(Table::<str, u64>::new("stock").name(), "stock");
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name, without a copy if it is a constant's.
    pub(crate) fn shared_name(&self) -> Cow<'static, str> {
        self.name.clone()
    }
}

/// What the types of a table end with whose keys are not in the order of their bytes.
const OWN_ORDER: &str = ", in an order of its own";

/// Whether the keys of a table of these types are in the order of their bytes.
pub(crate) fn is_bytewise(types: &str) -> bool {
    !types.ends_with(OWN_ORDER)
}

impl<K: Key + ?Sized, V: Value + ?Sized> Table<K, V> {
    /// What the catalog remembers of the types.
    pub(crate) fn types() -> String {
        let order = if K::BYTEWISE { "" } else { OWN_ORDER };
        format!("{} to {}{order}", K::name(), V::name())
    }

    /// The same table, whose keys are bytes here.
    pub(crate) fn raw(&self) -> Table<Raw<K>, V> {
        Table { name: self.name.clone(), types: PhantomData }
    }
}

/// The least bytes that are greater than everything that begins with these; `None` if nothing is.
pub(crate) fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// The bytes of keys of another type, in their order and under their name.
pub(crate) struct Raw<K: ?Sized>(PhantomData<K>);

impl<K: Key + ?Sized> Key for Raw<K> {
    type Ref<'a> = &'a [u8];
    type View<'a> = &'a [u8];
    const BYTEWISE: bool = K::BYTEWISE;

    fn name() -> Cow<'static, str> {
        K::name()
    }

    fn encode_into(key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn with_bytes<T>(key: &[u8], use_bytes: impl FnOnce(&[u8]) -> T) -> T {
        use_bytes(key)
    }

    fn decode(bytes: &[u8]) -> Result<&[u8], WireError> {
        Ok(bytes)
    }

    fn compare(left: &[u8], right: &[u8]) -> Ordering {
        K::compare(left, right)
    }
}

impl<K: ?Sized, V: ?Sized> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), types: PhantomData }
    }
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({:?})", self.name)
    }
}
