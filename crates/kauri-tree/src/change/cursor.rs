//! Cursors of a change: among the rows of its snapshot, under those that it staged.
//!
//! What a cursor looked at is observed: from the place where a move began to the row where it ended, or to the end of the table. Moves
//! that follow each other in one direction are one range.

use std::borrow::Cow;
use std::ops::Bound;

use kauri_wire::Key;

use super::{Change, Range, check_value};
use crate::btree::{self, Of, Root};
use crate::copies::Side;
use crate::cursor::{self, At, Cursor, Stand};
use crate::error::Result;
use crate::kind::Kind;
use crate::read::{Access, Source, get_copy, resolve};
use crate::table::Table;
use crate::value::Value;
use crate::write::check_key;

impl Change<'_> {
    /// A place among the rows that the change sees, before the first of them. What it looks at is observed.
    ///
    /// ```
    /// use kauri_tree::{Change, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apple", 12)?;
    /// txn.put(&STOCK, "cherry", 40)?;
    /// txn.commit()?;
    ///
    /// let mut change = Change::new(store.snapshot());
    /// change.put(&STOCK, "banana", 3)?;
    /// change.erase(&STOCK, "cherry")?;
    /// let mut cursor = change.cursor(&STOCK)?;
    /// assert_eq!(cursor.seek("b")?, Some(("banana", 3)));
    /// assert_eq!(cursor.next()?, None);
    /// assert_eq!(cursor.previous()?, Some(("banana", 3)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the change uses it with others.
    pub fn cursor<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Cursor<&Self, K, V>> {
        Cursor::new(self, table)
    }

    /// A place among the rows that the change sees, where rows can be staged.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for (fruit, count) in [("apple", 12), ("banana", 0), ("cherry", 40)] {
    ///     txn.put(&STOCK, fruit, count)?;
    /// }
    /// txn.commit()?;
    ///
    /// let mut change = Change::new(store.snapshot());
    /// let mut cursor = change.cursor_mut(&STOCK)?;
    /// cursor.next()?;
    /// while let Some((_, count)) = cursor.current()? {
    ///     if count == 0 {
    ///         cursor.remove()?; // it is on the next row now
    ///     } else {
    ///         cursor.put(count - 1)?;
    ///         cursor.next()?;
    ///     }
    /// }
    /// assert!(store.commit(change)?.is_committed());
    /// assert_eq!(store.snapshot().get(&STOCK, "cherry")?, Some(39));
    /// assert_eq!(store.snapshot().len(&STOCK)?, 2);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`cursor`](Self::cursor).
    pub fn cursor_mut<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
    ) -> Result<Cursor<&mut Self, K, V>> {
        Cursor::new(self, table)
    }

    /// Before anything of a table is noted: it is of these types.
    pub(crate) fn begin_cursor<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<()> {
        if let Some(staged) = self.staged.get(table.name()) {
            staged.kind.check(table.name(), Kind::of::<K, V>())?;
        }
        self.note(table, |_| ())
    }

    /// The key of the row beside a place. `root` is where the table begins in the snapshot.
    pub(crate) fn beside<K: Key + ?Sized>(
        &self,
        table: &str,
        root: Root,
        (mut at, key): (At, &[u8]),
        side: Side,
    ) -> Result<Option<Vec<u8>>> {
        let mut place = Cow::Borrowed(key);
        loop {
            let base = cursor::beside::<K>(self.access(), root, (at, &place), side)?;
            let staged = self.staged_beside::<K>(table, (at, &place), side);
            let is_first = |key: &[u8]| match (&base, side) {
                (None, _) => true,
                (Some(base), Side::Front) => K::compare(key, base).is_le(),
                (Some(base), Side::Back) => K::compare(key, base).is_ge(),
            };
            match staged.filter(|(key, _)| is_first(key)) {
                None => return Ok(base),
                Some((key, Some(_))) => return Ok(Some(key.to_vec())),
                // To be removed, whether the snapshot has it or not.
                Some((key, None)) => (at, place) = (At::Row, Cow::Owned(key.to_vec())),
            }
        }
    }

    /// What is staged next to a place.
    fn staged_beside<K: Key + ?Sized>(
        &self,
        table: &str,
        (at, place): (At, &[u8]),
        side: Side,
    ) -> Option<(&[u8], Option<&[u8]>)> {
        let rows = self.staged_rows(table)?;
        let range = match (at, side) {
            (At::Start, Side::Back) | (At::End, Side::Front) => return None,
            (At::Start, Side::Front) | (At::End, Side::Back) => (Bound::Unbounded, Bound::Unbounded),
            (At::Row, Side::Front) => (Bound::Excluded(place), Bound::Unbounded),
            (At::Gap, Side::Front) => (Bound::Included(place), Bound::Unbounded),
            (At::Row | At::Gap, Side::Back) => (Bound::Unbounded, Bound::Excluded(place)),
        };
        let found = if K::BYTEWISE {
            let mut rows = rows.range::<[u8], _>(range);
            if side == Side::Front { rows.next() } else { rows.next_back() }
        } else {
            let is_after = |key: &[u8]| match range.0 {
                Bound::Excluded(from) => K::compare(from, key).is_lt(),
                Bound::Included(from) => K::compare(from, key).is_le(),
                Bound::Unbounded => true,
            };
            let is_before = |key: &[u8]| match range.1 {
                Bound::Excluded(until) => K::compare(key, until).is_lt(),
                Bound::Included(_) | Bound::Unbounded => true,
            };
            let rows = rows.iter().filter(|(key, _)| is_after(key) && is_before(key));
            match side {
                Side::Front => rows.min_by(|left, right| K::compare(left.0, right.0)),
                Side::Back => rows.max_by(|left, right| K::compare(left.0, right.0)),
            }
        };
        found.map(|(key, value)| (&**key, value.as_deref()))
    }

    /// Notes what a move looked at: from a place to the row where it ended, if there was one. `noted` is where the move before was
    /// noted, if that went the same way and ended at the place.
    pub(crate) fn note_move(
        &self,
        table: &str,
        (at, place): (At, &[u8]),
        side: Side,
        found: Option<&[u8]>,
        noted: Option<usize>,
    ) -> Option<usize> {
        if planted!(ForgetMovesOfCursor) {
            return None;
        }
        let far = found.map_or(Bound::Unbounded, |key| Bound::Included(key.into()));
        if let Some(index) = noted {
            self.adjust_range(table, index, |range| match side {
                Side::Front => range.until = far,
                Side::Back => range.from = far,
            });
            return noted;
        }
        let near = match (at, side) {
            // There is nothing to look at.
            (At::Start, Side::Back) | (At::End, Side::Front) => return None,
            (At::Start, Side::Front) | (At::End, Side::Back) => Bound::Unbounded,
            (At::Gap, Side::Front) => Bound::Included(place.into()),
            (At::Row, _) | (At::Gap, Side::Back) => Bound::Excluded(place.into()),
        };
        let range = match side {
            Side::Front => Range { from: near, until: far },
            Side::Back => Range { from: far, until: near },
        };
        self.note_range(table, range)
    }

    /// Whether there is a row with this key. Unless it is staged, the key is observed.
    pub(crate) fn has_bytes<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        root: Root,
        key: &[u8],
    ) -> Result<bool> {
        if let Some(value) = self.staged_rows(table.name()).and_then(|rows| rows.get(key)) {
            return Ok(value.is_some());
        }
        self.note(table, |observed| {
            if !observed.keys.contains(key) {
                observed.keys.insert(key.into());
            }
        })?;
        Ok(self.base_bytes::<K>(root, key)?.is_some())
    }

    /// The value of a row that a cursor is on, which was observed when it went there.
    pub(crate) fn bytes_at<K: Key + ?Sized>(&self, table: &str, root: Root, key: &[u8]) -> Result<Cow<'_, [u8]>> {
        let staged = self.staged_rows(table).and_then(|rows| rows.get(key));
        let value = match staged {
            Some(value) => value.as_deref().map(Cow::Borrowed),
            None => self.base_bytes::<K>(root, key)?,
        };
        Ok(value.expect("it is on a row, and nobody else stages any"))
    }

    fn base_bytes<K: Key + ?Sized>(&self, root: Root, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        if let Some(pages) = self.access().bounded() {
            return Ok(get_copy::<Of<K>>(pages, root, key)?.map(Cow::Owned));
        }
        let found = match self.access() {
            Access::Version(pages) => btree::get::<Of<K>>(pages, root, key)?,
            Access::Guarded(pages) => btree::get::<Of<K>>(pages, root, key)?,
            Access::Turn(pages) => btree::get::<Of<K>>(pages, root, key)?,
        };
        found.map(|value| resolve(self.access(), value)).transpose()
    }
}

impl Stand for Change<'_> {
    fn staging(&self) -> Option<&Change<'_>> {
        Some(self)
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Cursor<&mut Change<'_>, K, V> {
    /// Stages another value for the row that it is on, and tells whether it is on one. It stays there.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.put(&STOCK, "apples", 12)?;
    /// # txn.commit()?;
    /// let mut change = Change::new(store.snapshot());
    /// let mut cursor = change.cursor_mut(&STOCK)?;
    /// cursor.seek_exact("apples")?;
    /// assert!(cursor.put(11)?);
    /// assert_eq!(cursor.current()?, Some(("apples", 11)));
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, Some(12)); // it is staged, not written
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the value is too long.
    pub fn put(&mut self, value: V::Ref<'_>) -> Result<bool> {
        let Some(key) = self.key_bytes().map(<[u8]>::to_vec) else { return Ok(false) };
        self.stage(&key, Some(value)).map(|()| true)
    }

    /// Stages a row, new or not, and goes there.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// let mut change = Change::new(store.snapshot());
    /// let mut cursor = change.cursor_mut(&STOCK)?;
    /// cursor.put_at("pears", 5)?;
    /// cursor.put_at("apples", 12)?;
    /// assert_eq!(cursor.next()?, Some(("pears", 5)));
    /// assert!(store.commit(change)?.is_committed());
    /// assert_eq!(store.snapshot().len(&STOCK)?, 2);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the key or the value is too long.
    pub fn put_at(&mut self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        K::with_bytes(key, |key| {
            check_key(key, self.source().page_bytes())?;
            self.stage(key, Some(value))?;
            self.set_row(key);
            Ok(())
        })
    }

    /// Stages the row that it is on to be removed, and tells whether it was on one. It is on the next row then, or behind all rows if
    /// there is none.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.load_sorted(&STOCK, [("apples", 12), ("bananas", 0), ("cherries", 0)])?;
    /// # txn.commit()?;
    /// let mut change = Change::new(store.snapshot());
    /// let mut cursor = change.cursor_mut(&STOCK)?;
    /// cursor.seek("b")?;
    /// while cursor.remove()? {} // each time it is on the next row
    /// assert_eq!(cursor.previous_key()?, Some("apples"));
    /// assert_eq!(change.len(&STOCK)?, 1);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged.
    pub fn remove(&mut self) -> Result<bool> {
        let Some(key) = self.key_bytes().map(<[u8]>::to_vec) else { return Ok(false) };
        self.stage(&key, None)?;
        self.go_on_from_removed()?;
        Ok(true)
    }

    fn stage(&mut self, key: &[u8], value: Option<V::Ref<'_>>) -> Result<()> {
        let table = self.table().clone();
        match value {
            None => self.source_mut().stage(&table, key, None),
            Some(value) => V::with_bytes(value, |value| {
                check_value(value)?;
                self.source_mut().stage(&table, key, Some(value.into()))
            }),
        }
    }
}
