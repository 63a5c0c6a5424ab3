//! What snapshots and transactions have in common: reading, and writing.

use std::borrow::Cow;

use kauri_wire::Key;

use crate::btree::{self, Of, Pages, PagesMut, Root};
use crate::catalog::Catalog;
use crate::error::{Error, Result};
use crate::node;
use crate::overflow::{self, Reference};
use crate::pager::Pager;
use crate::scan::Scan;
use crate::snapshot::{Guarded, VersionPages};
use crate::table::Table;
use crate::update::{AsValue, Compared, Counter};
use crate::value::Value;

/// Whatever rows can be read from: a snapshot; a transaction with what it has changed so far; a change with what it staged, which
/// observes what is read.
///
/// A function over `impl Read` works on all of them.
///
/// ```
/// use kauri_tree::{Read, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
///
/// fn total(from: &impl Read) -> kauri_tree::Result<u64> {
///     let mut total = 0;
///     let mut rows = from.scan(&STOCK)?;
///     while let Some((_, count)) = rows.next()? {
///         total += count;
///     }
///     Ok(total)
/// }
///
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?;
/// txn.put(&STOCK, "pears", 5)?;
/// assert_eq!(total(&txn)?, 17);
/// assert_eq!(total(&store.snapshot())?, 0);
/// txn.commit()?;
/// assert_eq!(total(&store.snapshot())?, 17);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub trait Read: Source {
    /// The value of a key; `None` if there is no such row, or no such table.
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// assert_eq!(txn.get(&STOCK, "apples")?, Some(12));
    /// assert_eq!(txn.get(&STOCK, "pears")?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[inline]
    fn get<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
    ) -> Result<Option<V::View<'_>>> {
        self.value_bytes(table, key)?.map(V::decode).transpose()
    }

    /// Whether there is a row with this key.
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const SEEN: Table<str, ()> = Table::new("seen");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&SEEN, "order-1", ())?;
    /// assert!(txn.contains(&SEEN, "order-1")? && !txn.contains(&SEEN, "order-2")?);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn contains<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<bool> {
        let Some(root) = self.table_root(table)? else { return Ok(false) };
        K::with_bytes(key, |key| match self.access().bounded() {
            Some(pages) => Ok(btree::get::<Of<K>>(&pages.operation(), root, key)?.is_some()),
            None => Ok(btree::get::<Of<K>>(&self.access(), root, key)?.is_some()),
        })
    }

    /// How many rows a table has. Counted already: it costs the same for any number.
    ///
    /// # Errors
    /// If the table was made for other types.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.put(&STOCK, "apples", 11)?;
    /// assert_eq!(txn.len(&STOCK)?, 1);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn len<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<u64> {
        Ok(self.table_root(table)?.unwrap_or_default().rows)
    }

    /// How many rows of a table have a lesser key. It costs little more than [`get`](Self::get), for any number.
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for (fruit, count) in [("pears", 5), ("apples", 12)] {
    ///     txn.put(&STOCK, fruit, count)?;
    /// }
    /// assert_eq!((txn.rank(&STOCK, "apples")?, txn.rank(&STOCK, "pears")?, txn.rank(&STOCK, "x")?), (0, 1, 2));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn rank<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<u64> {
        self.scan(table)?.until(key).count()
    }

    /// The rows of a table, in order of their keys, from either end.
    ///
    /// # Errors
    /// If the table was made for other types.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for (fruit, count) in [("pears", 5), ("apples", 12)] {
    ///     txn.put(&STOCK, fruit, count)?;
    /// }
    /// assert_eq!(txn.scan(&STOCK)?.next()?, Some(("apples", 12)));
    /// assert_eq!(txn.scan(&STOCK)?.previous()?, Some(("pears", 5)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn scan<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Scan<'_, K, V>> {
        let root = self.table_root(table)?.unwrap_or_default();
        Ok(Scan::new(self.access(), root))
    }
}

/// Whatever rows can be written to: a transaction, or a change.
///
/// ```
/// use kauri_tree::{Result, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
///
/// fn sell(stock: &mut impl Write, fruit: &str, count: u64) -> Result<bool> {
///     let left = stock.get(&STOCK, fruit)?.and_then(|there| there.checked_sub(count));
///     if let Some(left) = left {
///         stock.put(&STOCK, fruit, left)?;
///     }
///     Ok(left.is_some())
/// }
///
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?;
/// assert!(sell(&mut txn, "apples", 10)?);
/// assert!(!sell(&mut txn.nest(), "apples", 3)?);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub trait Write: Read {
    /// Writes a row; what was there before is replaced. A table that is missing is made.
    ///
    /// # Errors
    /// If the key, the value or the name of a table that is missing is too long, the table was made for other types, or the store is full or
    /// damaged.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.put(&STOCK, "apples", 11)?;
    /// assert_eq!(txn.get(&STOCK, "apples")?, Some(11));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn put<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<()>;

    /// Writes a row unless there is one with this key, and tells whether it did.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// assert!(txn.insert(&STOCK, "apples", 12)?);
    /// assert!(!txn.insert(&STOCK, "apples", 99)?);
    /// assert_eq!(txn.get(&STOCK, "apples")?, Some(12));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn insert<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<bool> {
        let vacant = !self.contains(table, key)?;
        if vacant {
            self.put(table, key, value)?;
        }
        Ok(vacant)
    }

    /// Removes a row, and tells whether there was one.
    ///
    /// # Errors
    /// If the table was made for other types, or the store is full or damaged.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// assert!(txn.remove(&STOCK, "apples")?);
    /// assert!(!txn.remove(&STOCK, "apples")?);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    fn remove<K: Key + ?Sized, V: Value + ?Sized>(&mut self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<bool>;

    /// Removes all rows from one key up to another, in bytes, and tells how many there were.
    #[doc(hidden)]
    fn remove_between<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> Result<u64>;

    /// Writes a row of so many bytes, all zeros, which `fill` then changes where they lie. What was there before is replaced.
    ///
    /// Long values are made in their own pages and copied nowhere. A value that lies in a leaf with others is made beside it: copying so
    /// little takes less time than finding its place twice.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const IMAGES: Table<str, [u8]> = Table::new("images");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.reserve(&IMAGES, "grey", 1 << 20, |image| image.fill(127))?;
    /// assert_eq!(txn.get(&IMAGES, "grey")?.unwrap()[1 << 19], 127);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    ///
    /// # Panics
    /// If `fill` does. Then nothing was written.
    fn reserve<K: Key + ?Sized>(
        &mut self,
        table: &Table<K, [u8]>,
        key: K::Ref<'_>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()>;

    /// Replaces the value of a row if it is the one that is expected, byte for byte, and tells what it was compared with.
    ///
    /// ```
    /// use kauri_tree::{Compared, Read, Store, Table, Write};
    ///
    /// const STATE: Table<str, str> = Table::new("state");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// assert_eq!(txn.replace_if(&STATE, "door", "closed", "open")?, Compared::Missing);
    /// txn.put(&STATE, "door", "closed")?;
    /// assert_eq!(txn.replace_if(&STATE, "door", "closed", "open")?, Compared::Matches);
    /// assert_eq!(txn.replace_if(&STATE, "door", "closed", "open")?, Compared::Differs);
    /// assert_eq!(txn.get(&STATE, "door")?.as_deref(), Some("open"));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put).
    fn replace_if<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<Compared> {
        let compared = match self.value_bytes(table, key)? {
            None => Compared::Missing,
            Some(found) if V::with_bytes(expected, |expected| *found == *expected) => Compared::Matches,
            Some(_) => Compared::Differs,
        };
        if compared == Compared::Matches {
            self.put(table, key, value)?;
        }
        Ok(compared)
    }

    /// Makes the value of a row from the one that it has, if it has one: `None` removes the row. Returns what was made. Values can
    /// get as long as values can be.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const NOTES: Table<str, str> = Table::new("notes");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for word in ["plant", " a", " tree"] {
    ///     txn.update(&NOTES, "today", |note| Some(note.map_or(String::new(), |note| note.into_owned()) + word))?;
    /// }
    /// assert_eq!(txn.get(&NOTES, "today")?.as_deref(), Some("plant a tree"));
    /// txn.update(&NOTES, "today", |_| None::<String>)?;
    /// assert_eq!(txn.get(&NOTES, "today")?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`put`](Self::put), and if the value is not of the table's type.
    fn update<K: Key + ?Sized, V: Value + ?Sized, N: AsValue<V>>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        make: impl FnOnce(Option<V::View<'_>>) -> Option<N>,
    ) -> Result<Option<N>> {
        let old = self.get(table, key)?;
        let was_there = old.is_some();
        let made = make(old);
        match &made {
            Some(value) => self.put(table, key, value.as_value())?,
            None if was_there => {
                self.remove(table, key)?;
            }
            None => {}
        }
        Ok(made)
    }

    /// Adds to a number, which is 0 if there is none, and tells what it is now.
    ///
    /// ```
    /// use kauri_tree::{Error, Store, Table, Write};
    ///
    /// const VISITS: Table<str, u64> = Table::new("visits");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// assert_eq!(txn.add(&VISITS, "ann", 3)?, 3);
    /// assert_eq!(txn.add(&VISITS, "ann", 4)?, 7);
    /// assert_eq!(txn.subtract(&VISITS, "ann", 2)?, 5);
    /// assert!(matches!(txn.subtract(&VISITS, "ann", 6), Err(Error::Overflow { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Overflow`] if the type has no such number: then nothing is written. Else as for [`put`](Self::put).
    fn add<K: Key + ?Sized, N: Counter>(&mut self, table: &Table<K, N>, key: K::Ref<'_>, more: N) -> Result<N> {
        let old = self.get(table, key)?.unwrap_or_default();
        let sum = old.checked_add(more).ok_or_else(|| Error::Overflow { table: table.name().into() })?;
        self.put(table, key, sum)?;
        Ok(sum)
    }

    /// Subtracts from a number, which is 0 if there is none, and tells what it is now.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const BALANCES: Table<str, i64> = Table::new("balances");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// assert_eq!(txn.subtract(&BALANCES, "ann", 5)?, -5); // from nothing
    /// assert_eq!(txn.subtract(&BALANCES, "ann", 2)?, -7);
    /// assert_eq!(txn.get(&BALANCES, "ann")?, Some(-7));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    fn subtract<K: Key + ?Sized, N: Counter>(&mut self, table: &Table<K, N>, key: K::Ref<'_>, less: N) -> Result<N> {
        let old = self.get(table, key)?.unwrap_or_default();
        let rest = old.checked_sub(less).ok_or_else(|| Error::Overflow { table: table.name().into() })?;
        self.put(table, key, rest)?;
        Ok(rest)
    }
}

/// Where pages and roots come from. Sealed: only this crate has sources.
#[doc(hidden)]
pub trait Source {
    #[doc(hidden)]
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn access(&self) -> Access<'_>;

    #[doc(hidden)]
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn root(&self, name: &str, types: fn() -> String) -> Result<Option<Root>>;

    /// The root of a table of which anything may be read: whoever has to know what is read notes all of it.
    #[doc(hidden)]
    #[inline]
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn table_root<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Option<Root>> {
        self.root(table.name(), Table::<K, V>::types)
    }

    /// The bytes of a key's value.
    #[doc(hidden)]
    #[inline]
    fn value_bytes<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
    ) -> Result<Option<Cow<'_, [u8]>>> {
        let Some(root) = self.table_root(table)? else { return Ok(None) };
        if let Some(pages) = self.access().bounded() {
            return Ok(K::with_bytes(key, |key| get_copy::<Of<K>>(pages, root, key))?.map(Cow::Owned));
        }
        let found = K::with_bytes(key, |key| match self.access() {
            Access::Version(pages) => btree::get::<Of<K>>(pages, root, key),
            Access::Guarded(pages) => btree::get::<Of<K>>(pages, root, key),
            Access::Turn(pages) => btree::get::<Of<K>>(pages, root, key),
        })?;
        found.map(|value| resolve(self.access(), value)).transpose()
    }
}

/// The pages of a version, or of the version being made.
#[derive(Clone, Copy)]
pub(crate) enum Access<'a> {
    Version(&'a VersionPages<'a>),
    /// Of a version whose pages come and go: for one operation.
    Guarded(&'a Guarded<'a>),
    Turn(&'a Pager<Catalog>),
}

impl<'a> Access<'a> {
    #[inline(always)]
    pub(crate) fn page(self, page: u32) -> Result<&'a [u8]> {
        match self {
            Self::Version(pages) => pages.page(page),
            Self::Guarded(pages) => pages.page(page),
            Self::Turn(pages) => pages.page(page),
        }
    }

    /// The version, if its pages come and go: then each operation has to say when it begins.
    #[inline]
    pub(crate) fn bounded(self) -> Option<&'a VersionPages<'a>> {
        match self {
            Self::Version(pages) if pages.is_bounded() => Some(pages),
            _ => None,
        }
    }
}

/// Lends pages for one operation: also those that come and go.
pub(crate) fn with_pages<T>(access: Access<'_>, use_pages: impl FnOnce(Access<'_>) -> T) -> T {
    match access.bounded() {
        Some(pages) => use_pages(Access::Guarded(&pages.operation())),
        None => use_pages(access),
    }
}

/// The bytes of a value, wherever they lie.
#[inline]
pub(crate) fn resolve<'a>(access: Access<'a>, value: node::Value<'a>) -> Result<Cow<'a, [u8]>> {
    match value {
        node::Value::Inline(bytes) => Ok(Cow::Borrowed(bytes)),
        node::Value::Overflow(reference) => read_overflow(access, reference),
    }
}

/// A value, copied out of pages that may go.
#[cold]
pub(crate) fn get_copy<O: btree::Order>(pages: &VersionPages<'_>, root: Root, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let operation = pages.operation();
    let found = btree::get::<O>(&operation, root, key)?;
    found.map(|value| Ok(resolve(Access::Guarded(&operation), value)?.into_owned())).transpose()
}

/// Apart from the values that lie in leaves: those are most, and the code for them is copied to where they are read.
#[cold]
fn read_overflow<'a>(access: Access<'a>, reference: &[u8]) -> Result<Cow<'a, [u8]>> {
    let reference = Reference::decode(reference)?;
    match access {
        Access::Version(pages) => match read_aside(pages, reference)? {
            Some(value) => Ok(Cow::Owned(value)),
            None => overflow::read(pages, pages.page_bytes(), reference),
        },
        Access::Guarded(pages) => overflow::read(pages, pages.page_bytes(), reference),
        Access::Turn(pages) => overflow::read(pages, pages.page_bytes(), reference),
    }
}

fn read_aside(pages: &VersionPages<'_>, reference: Reference) -> Result<Option<Vec<u8>>> {
    let Some(run) = overflow::single(pages.page_bytes(), reference) else { return Ok(None) };
    pages.read_aside(run)?.map(|bytes| overflow::value_of(bytes, run, reference)).transpose()
}

impl Pages for Access<'_> {
    #[inline]
    fn page(&self, page: u32) -> Result<&[u8]> {
        Access::page(*self, page)
    }
}
