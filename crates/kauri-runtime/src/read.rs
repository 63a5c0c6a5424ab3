//! What atomic blocks and bare snapshots have in common: reading, and writing.

use std::borrow::Cow;
use std::marker::PhantomData;

use kauri_tree::{Table, Value};
use kauri_wire::Key;

use crate::error::Result;
use crate::merge::Merge;
use crate::substrate::{KeyRange, Rows, TableName};

/// Whatever rows can be read from: an [`Atomic`](crate::Atomic) block with what it has written so far, or a [`View`].
///
/// A function over `impl Read` works on both. Tables are those of the store; their keys must be in the order of their bytes, which is
/// checked when the program is compiled.
pub trait Read {
    /// The value of a key, as bytes.
    ///
    /// # Errors
    /// If the substrate fails.
    fn row(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>>;

    /// The rows of a range, as bytes.
    ///
    /// # Errors
    /// If the substrate fails.
    fn rows(&self, table: &TableName, range: KeyRange<'_>) -> Result<Merge<'_>>;

    /// How many rows a range has.
    ///
    /// # Errors
    /// If the substrate fails.
    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64>;

    /// The value of a key; `None` if there is no such row.
    ///
    /// # Errors
    /// If the substrate fails, or the row is not of the table's type.
    fn get<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
    ) -> Result<Option<V::View<'_>>> {
        let found = K::with_bytes(key, |key| self.row(&name(table), key))?;
        Ok(found.map(V::decode).transpose()?)
    }

    /// Whether there is a row with this key.
    ///
    /// # Errors
    /// If the substrate fails.
    fn contains<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<bool> {
        K::with_bytes(key, |key| Ok(self.row(&name(table), key)?.is_some()))
    }

    /// How many rows a table has.
    ///
    /// # Errors
    /// If the substrate fails.
    fn len<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<u64> {
        self.count(&name(table), KeyRange::ALL)
    }

    /// The rows of a table, in order of their keys, from either end.
    ///
    /// # Errors
    /// If the substrate fails.
    fn scan<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Scan<'_, Self, K, V>> {
        Ok(Scan { source: self, table: name(table), from: Vec::new(), until: None, merge: None, types: PhantomData })
    }
}

/// Whatever rows can be written to: an [`Atomic`](crate::Atomic) block.
pub trait Write: Read {
    /// Puts a row, as bytes.
    ///
    /// # Errors
    /// If the table is the runtime's own, a limit of the block is passed, or key, value or the table's name are longer than the substrate
    /// [takes](crate::substrate::Substrate::limits).
    fn put_row(&mut self, table: &TableName, key: &[u8], value: &[u8]) -> Result<()>;

    /// Removes a row, as bytes, whether there is one or not.
    ///
    /// # Errors
    /// As for `put_row`.
    fn remove_row(&mut self, table: &TableName, key: &[u8]) -> Result<()>;

    /// Writes a row; what was there before is replaced.
    ///
    /// # Errors
    /// As for [`put_row`](Self::put_row).
    fn put<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<()> {
        K::with_bytes(key, |key| V::with_bytes(value, |value| self.put_row(&name(table), key, value)))
    }

    /// Writes a row unless there is one with this key, and tells whether it did.
    ///
    /// # Errors
    /// As for [`put`](Self::put).
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
    /// As for [`put`](Self::put).
    fn remove<K: Key + ?Sized, V: Value + ?Sized>(&mut self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<bool> {
        K::with_bytes(key, |key| {
            let was_there = self.row(&name(table), key)?.is_some();
            self.remove_row(&name(table), key)?;
            Ok(was_there)
        })
    }
}

/// The name of a table whose keys are in the order of their bytes.
fn name<K: Key + ?Sized, V: ?Sized>(table: &Table<K, V>) -> TableName {
    const { assert!(K::BYTEWISE, "the runtime's tables are in the order of their keys' bytes") };
    Cow::Owned(table.name().to_owned())
}

/// Rows in the order of their keys, from the front with [`next`](Self::next), from the back with [`previous`](Self::previous),
/// or from both until they meet.
pub struct Scan<'a, R: ?Sized, K: ?Sized, V: ?Sized> {
    source: &'a R,
    table: TableName,
    from: Vec<u8>,
    until: Option<Vec<u8>>,
    merge: Option<Merge<'a>>,
    types: PhantomData<fn(&K, &V)>,
}

impl<'a, R: Read + ?Sized, K: Key + ?Sized, V: Value + ?Sized> Scan<'a, R, K, V> {
    /// Only rows whose key is not less than this. Say it before the first row is asked for.
    #[must_use]
    pub fn from(mut self, key: K::Ref<'_>) -> Self {
        self.from = K::encode(key);
        self
    }

    /// Only rows whose key is less than this. Say it before the first row is asked for.
    #[must_use]
    pub fn until(mut self, key: K::Ref<'_>) -> Self {
        self.until = Some(K::encode(key));
        self
    }

    /// The next row from the front; `None` when the ends have met.
    ///
    /// # Errors
    /// If the substrate fails, or a row is not of the table's types.
    #[expect(clippy::should_implement_trait, reason = "a row is borrowed from the scan, which no Iterator allows")]
    pub fn next(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.merge()?.next()?.map(decode::<K, V>).transpose()
    }

    /// The next row from the back; `None` when the ends have met.
    ///
    /// # Errors
    /// As for `next`.
    pub fn previous(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.merge()?.previous()?.map(decode::<K, V>).transpose()
    }

    /// How many rows the range has.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn count(&self) -> Result<u64> {
        self.source.count(&self.table, KeyRange { from: &self.from, until: self.until.as_deref() })
    }

    /// An iterator over what `make` makes of each row; it ends after an error.
    pub fn map<T>(mut self, mut make: impl FnMut(K::View<'_>, V::View<'_>) -> T) -> impl Iterator<Item = Result<T>> {
        let mut broken = false;
        std::iter::from_fn(move || {
            if broken {
                return None;
            }
            let made = self.next().map(|row| row.map(|(key, value)| make(key, value))).transpose();
            broken = made.as_ref().is_some_and(Result::is_err);
            made
        })
    }

    fn merge(&mut self) -> Result<&mut Merge<'a>> {
        if self.merge.is_none() {
            let range = KeyRange { from: &self.from, until: self.until.as_deref() };
            self.merge = Some(self.source.rows(&self.table, range)?);
        }
        Ok(self.merge.as_mut().expect("just made"))
    }
}

fn decode<'a, K: Key + ?Sized, V: Value + ?Sized>(
    row: (&'a [u8], Cow<'a, [u8]>),
) -> Result<(K::View<'a>, V::View<'a>)> {
    Ok((K::decode(row.0)?, V::decode(row.1)?))
}

impl<R: ?Sized, K: ?Sized, V: ?Sized> std::fmt::Debug for Scan<'_, R, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("table", &self.table).finish_non_exhaustive()
    }
}

/// A bare snapshot, for blocks that only read: nothing is tracked, and there is nothing to commit.
pub struct View<'a> {
    rows: Box<dyn Rows + 'a>,
}

impl<'a> View<'a> {
    pub(crate) fn new(rows: Box<dyn Rows + 'a>) -> Self {
        Self { rows }
    }

    /// The rows underneath.
    #[must_use]
    pub fn as_rows(&self) -> &dyn Rows {
        &*self.rows
    }
}

impl Read for View<'_> {
    fn row(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.rows.get(table, key)
    }

    fn rows(&self, table: &TableName, range: KeyRange<'_>) -> Result<Merge<'_>> {
        Ok(Merge::plain(self.rows.scan(table, range)?))
    }

    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64> {
        self.rows.count(table, range)
    }
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("version", &self.rows.version()).finish_non_exhaustive()
    }
}
