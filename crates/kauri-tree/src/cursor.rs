//! A place among the rows of a table, from which one can go either way, and where rows can be changed.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use kauri_wire::Key;

use crate::btree::{self, Of, Root, Spot};
use crate::change::Change;
use crate::copies::Side;
use crate::error::Result;
use crate::read::{Access, Source, resolve, with_pages};
use crate::table::Table;
use crate::value::Value;
use crate::write::WriteTxn;

/// Whatever a cursor can stand on: a snapshot, a transaction, a view of one, a change.
#[doc(hidden)]
pub trait Stand: Source {
    /// The change, if rows are staged over those that lie in pages.
    #[doc(hidden)]
    #[inline]
    fn staging(&self) -> Option<&Change<'_>> {
        None
    }
}

/// A place among the rows of a table: on one of them, between two, or at either end.
///
/// It begins before the first row. A move that finds no row leaves it at the end that it came to, and the move back works from
/// there. [`WriteTxn::cursor_mut`] makes one that changes rows too, [`Snapshot::cursor`](crate::Snapshot::cursor),
/// [`View::cursor`](crate::View::cursor) and [`WriteTxn::cursor`] one that reads; [`Change::cursor_mut`] and [`Change::cursor`] do so among
/// the rows that a change sees. To see many rows one after the other,
/// a [`Scan`](crate::Scan) is faster.
///
/// ```
/// use kauri_tree::{Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for (fruit, count) in [("apple", 12), ("banana", 0), ("cherry", 0), ("date", 7)] {
///     txn.put(&STOCK, fruit, count)?;
/// }
/// let mut cursor = txn.cursor_mut(&STOCK)?;
/// cursor.next()?;
/// while let Some((_, count)) = cursor.current()? {
///     if count == 0 {
///         cursor.remove()?; // it is on the next row now
///     } else {
///         cursor.put(count + 1)?;
///         cursor.next()?;
///     }
/// }
/// assert_eq!(cursor.next()?, None);
/// assert_eq!(cursor.previous()?, Some(("date", 8)));
/// assert_eq!(cursor.previous()?, Some(("apple", 13)));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct Cursor<S, K: ?Sized, V: ?Sized> {
    source: S,
    table: Table<K, V>,
    root: Root,
    at: At,
    /// Of the row that it is on, or where such a row would be.
    key: Vec<u8>,
    /// Before the row that it is on, or between rows; not known after rows were changed.
    spot: Option<Spot>,
    /// Where a change noted the moves so far that went one way, and which way.
    noted: Option<(usize, Side)>,
}

/// Where a cursor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// Before all rows.
    Start,
    /// On the row with its key.
    Row,
    /// Where a row with its key would be.
    Gap,
    /// Behind all rows.
    End,
}

/// Where a cursor was, without the rows: it can be [kept](Cursor::position) while others commit, and
/// [returned to](Cursor::resume) in a later snapshot or transaction.
///
/// ```
/// use kauri_tree::{Position, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// # let store = Store::in_memory()?;
/// # let mut txn = store.begin();
/// # txn.load_sorted(&STOCK, [("apple", 12), ("banana", 3), ("cherry", 40)])?;
/// # txn.commit()?;
/// let snapshot = store.snapshot();
/// let mut cursor = snapshot.cursor(&STOCK)?;
/// cursor.seek("banana")?;
/// let place: Position<str> = cursor.position();
///
/// let mut txn = store.begin();
/// txn.remove(&STOCK, "banana")?;
/// let mut cursor = txn.cursor(&STOCK)?;
/// assert!(!cursor.resume(&place)?); // the row is gone, the place is not
/// assert_eq!(cursor.next()?, Some(("cherry", 40)));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct Position<K: ?Sized> {
    at: At,
    key: Box<[u8]>,
    keys: PhantomData<fn(&K)>,
}

impl<S: Deref<Target: Stand>, K: Key + ?Sized, V: Value + ?Sized> Cursor<S, K, V> {
    pub(crate) fn new(source: S, table: &Table<K, V>) -> Result<Self> {
        if let Some(change) = source.staging() {
            change.begin_cursor(table)?;
        }
        let root = source.root(table.name(), Table::<K, V>::types)?.unwrap_or_default();
        Ok(Self { source, table: table.clone(), root, at: At::Start, key: Vec::new(), spot: None, noted: None })
    }

    /// Goes to the first row.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// assert_eq!(txn.cursor(&STOCK)?.first()?, None); // an empty table has none
    /// txn.load_sorted(&STOCK, [("apple", 12), ("banana", 3)])?;
    /// let mut cursor = txn.cursor(&STOCK)?;
    /// cursor.last()?;
    /// assert_eq!(cursor.first()?, Some(("apple", 12)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or the row is not of the table's types.
    pub fn first(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.leave(At::Start);
        self.next()
    }

    /// Goes to the last row.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// // A log whose newest line is wanted, however many there are.
    /// const LOG: Table<u64, str> = Table::new("log");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&LOG, [(1, "began"), (2, "went on"), (3, "ended")])?;
    /// let mut cursor = txn.cursor(&LOG)?;
    /// let (number, line) = cursor.last()?.expect("there are three");
    /// assert_eq!((number, &*line), (3, "ended"));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn last(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.leave(At::End);
        self.previous()
    }

    /// Goes to the next row; behind all of them if there is none.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&STOCK, [("apple", 12), ("banana", 3)])?;
    /// let mut cursor = txn.cursor(&STOCK)?; // before the first row
    /// let mut total = 0;
    /// while let Some((_, count)) = cursor.next()? {
    ///     total += count;
    /// }
    /// assert_eq!(total, 15);
    /// assert_eq!(cursor.next()?, None); // it stays behind all rows
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    #[expect(clippy::should_implement_trait, reason = "a row is borrowed from the cursor, which no Iterator allows")]
    pub fn next(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.step(Side::Front)?;
        self.current()
    }

    /// Goes to the row before; before all of them if there is none.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// // What was the price on a day? That of the last change until then.
    /// const PRICES: Table<u32, u64> = Table::new("prices");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&PRICES, [(20_260_101, 90), (20_260_301, 95)])?;
    /// let mut cursor = txn.cursor(&PRICES)?;
    /// cursor.seek(20_260_215 + 1)?; // the first one after that day
    /// assert_eq!(cursor.previous()?, Some((20_260_101, 90)));
    /// assert_eq!(cursor.previous()?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn previous(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.step(Side::Back)?;
        self.current()
    }

    /// As [`next`](Self::next), without looking at the value.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, [u8]> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apple", &[7; 1 << 20])?;
    /// let mut cursor = txn.cursor(&STOCK)?;
    /// assert_eq!(cursor.next_key()?, Some("apple"));
    /// assert_eq!(cursor.next_key()?, None);
    /// assert_eq!(cursor.previous_key()?, Some("apple"));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn next_key(&mut self) -> Result<Option<K::View<'_>>> {
        self.step(Side::Front)?;
        self.key()
    }

    /// As [`previous`](Self::previous), without looking at the value.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const FILES: Table<str, [u8]> = Table::new("files");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// for name in ["a.txt", "b.txt", "c.txt"] {
    ///     txn.put(&FILES, name, &[7; 100_000])?;
    /// }
    /// let mut cursor = txn.cursor(&FILES)?;
    /// cursor.seek("c")?;
    /// assert_eq!(cursor.previous_key()?, Some("b.txt")); // its pages are not read
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn previous_key(&mut self) -> Result<Option<K::View<'_>>> {
        self.step(Side::Back)?;
        self.key()
    }

    /// Goes to the first row whose key is not less; behind all of them if there is none.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apple", 12)?;
    /// txn.put(&STOCK, "cherry", 40)?;
    /// let mut cursor = txn.cursor(&STOCK)?;
    /// assert_eq!(cursor.seek("b")?, Some(("cherry", 40)));
    /// assert_eq!(cursor.seek_exact("b")?, None); // between the two
    /// assert_eq!(cursor.previous()?, Some(("apple", 12)));
    /// assert_eq!(cursor.seek_prefix(b"che")?, Some(("cherry", 40)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn seek(&mut self, key: K::Ref<'_>) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        K::with_bytes(key, |key| self.seek_bytes(key))?;
        self.current()
    }

    /// Goes to the row with this key; to where it would be if there is none.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&STOCK, [("apple", 12), ("cherry", 40)])?;
    /// let mut cursor = txn.cursor(&STOCK)?;
    /// assert_eq!(cursor.seek_exact("cherry")?, Some(("cherry", 40)));
    /// assert_eq!(cursor.seek_exact("banana")?, None);
    /// assert_eq!(cursor.next()?, Some(("cherry", 40))); // it was between the two
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn seek_exact(&mut self, key: K::Ref<'_>) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        K::with_bytes(key, |key| self.go_to(key))?;
        self.current()
    }

    /// Goes to the first row whose key begins with these bytes; to where it would be if there is none. Only keys in the order of
    /// their bytes have such rows beside each other; for others it does not compile.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const PATHS: Table<str, u64> = Table::new("paths");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&PATHS, [("bin/ls", 1), ("etc/fstab", 2), ("etc/hosts", 3), ("var/log", 4)])?;
    /// let mut cursor = txn.cursor(&PATHS)?;
    /// assert_eq!(cursor.seek_prefix(b"etc/")?, Some(("etc/fstab", 2)));
    /// assert_eq!(cursor.seek_prefix(b"usr/")?, None); // `seek` would be on var/log
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn seek_prefix(&mut self, prefix: &[u8]) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        const { assert!(K::BYTEWISE, "rows with a prefix lie together only where keys are in the order of their bytes") };
        self.seek_bytes(prefix)?;
        if !self.is_under(prefix) {
            self.set_gap(prefix);
        }
        self.current()
    }

    /// Whether it is on a row whose key begins with these bytes.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const PATHS: Table<str, u64> = Table::new("paths");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&PATHS, [("bin/ls", 1), ("etc/fstab", 2), ("etc/hosts", 3), ("var/log", 4)])?;
    /// let mut cursor = txn.cursor(&PATHS)?;
    /// cursor.seek_prefix(b"etc/")?;
    /// let mut found = 0;
    /// while cursor.is_under(b"etc/") {
    ///     found += 1;
    ///     cursor.next_key()?;
    /// }
    /// assert_eq!((found, cursor.key()?), (2, Some("var/log")));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn is_under(&self, prefix: &[u8]) -> bool {
        self.key_bytes().is_some_and(|key| key.starts_with(prefix))
    }

    /// The row that it is on, if it is on one.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&STOCK, "apple", 12)?;
    /// let mut cursor = txn.cursor(&STOCK)?;
    /// assert_eq!(cursor.current()?, None); // it begins before the first row
    /// cursor.next_key()?;
    /// assert_eq!(cursor.current()?, Some(("apple", 12)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn current(&self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        let Some(key) = self.key()? else { return Ok(None) };
        Ok(Some((key, V::decode(self.value_bytes()?)?)))
    }

    /// The key of the row that it is on, if it is on one.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const SALES: Table<(u32, String), u64> = Table::new("sales"); // by day, then by fruit
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&SALES, (20_260_221, "apples"), 3)?;
    /// let mut cursor = txn.cursor(&SALES)?;
    /// assert_eq!(cursor.key()?, None);
    /// cursor.first()?;
    /// assert_eq!(cursor.key()?.map(|(day, _)| day), Some(20_260_221));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the key is not of the table's type.
    pub fn key(&self) -> Result<Option<K::View<'_>>> {
        Ok(self.key_bytes().map(K::decode).transpose()?)
    }

    /// Where it is, to be kept.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&STOCK, [("apple", 12), ("banana", 3), ("cherry", 40)])?;
    /// let mut cursor = txn.cursor(&STOCK)?;
    /// cursor.first()?;
    /// let mark = cursor.position();
    /// cursor.last()?; // to look at something else
    /// cursor.resume(&mark)?;
    /// assert_eq!(cursor.next()?, Some(("banana", 3)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn position(&self) -> Position<K> {
        Position { at: self.at, key: self.key[..].into(), keys: PhantomData }
    }

    /// Goes to where this or another cursor was. If that was on a row which is not here, it goes to where the row would be. Tells whether it
    /// is on a row.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<u32, str> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// for number in 0..5 {
    ///     let mut txn = store.begin();
    ///     txn.put(&STOCK, number, "apple")?;
    ///     txn.commit()?;
    /// }
    /// // A batch at a time, each on a snapshot of its own.
    /// let (mut position, mut seen) = (None, 0);
    /// loop {
    ///     let snapshot = store.snapshot();
    ///     let mut cursor = snapshot.cursor(&STOCK)?;
    ///     if let Some(position) = &position {
    ///         cursor.resume(position)?;
    ///     }
    ///     for _ in 0..2 {
    ///         seen += cursor.next_key()?.iter().count();
    ///     }
    ///     if cursor.key()?.is_none() {
    ///         break;
    ///     }
    ///     position = Some(cursor.position());
    /// }
    /// assert_eq!(seen, 5);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first).
    pub fn resume(&mut self, position: &Position<K>) -> Result<bool> {
        match position.at {
            At::Start | At::End => self.leave(position.at),
            At::Row | At::Gap => self.go_to(&position.key)?,
        }
        Ok(self.at == At::Row)
    }

    /// The same place among the rows of another snapshot or transaction.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.load_sorted(&STOCK, [("apple", 12), ("banana", 3), ("cherry", 40)])?;
    /// # txn.commit()?;
    /// let before = store.snapshot();
    /// let mut cursor = before.cursor(&STOCK)?;
    /// cursor.seek("banana")?;
    ///
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "blueberry", 500)?;
    /// txn.commit()?;
    /// let after = store.snapshot();
    /// let mut cursor = cursor.renew(&after)?; // still on the banana
    /// assert_eq!(cursor.next()?, Some(("blueberry", 500)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`first`](Self::first), and if the table has other types there.
    pub fn renew<T: Deref<Target: Stand>>(self, source: T) -> Result<Cursor<T, K, V>> {
        let mut cursor = Cursor::new(source, &self.table)?;
        cursor.resume(&self.position())?;
        Ok(cursor)
    }

    /// Goes to the row with this key, or to where it would be.
    fn go_to(&mut self, key: &[u8]) -> Result<()> {
        let is_there = match self.source.staging() {
            Some(change) => change.has_bytes(&self.table, self.root, key)?,
            None => {
                self.seek_bytes(key)?;
                if self.at == At::Row && (self.key == key || planted!(SeekExactGoesOn)) {
                    return Ok(());
                }
                false
            }
        };
        self.set_gap(key);
        if is_there {
            self.at = At::Row;
        }
        Ok(())
    }

    /// Goes to an end.
    pub(crate) fn leave(&mut self, end: At) {
        (self.at, self.spot, self.noted) = (end, None, None);
        self.key.clear();
    }

    /// Goes to where a row with this key would be.
    pub(crate) fn set_gap(&mut self, key: &[u8]) {
        (self.at, self.spot, self.noted) = (At::Gap, None, None);
        self.key.clear();
        self.key.extend_from_slice(key);
    }

    /// Goes to the first row whose key is not less.
    pub(crate) fn seek_bytes(&mut self, key: &[u8]) -> Result<()> {
        self.set_gap(key);
        self.step(Side::Front)
    }

    /// Goes to a row with this key, which is there.
    pub(crate) fn set_row(&mut self, key: &[u8]) {
        self.set_gap(key);
        self.at = At::Row;
    }

    /// From a row that was just removed, goes to the next.
    pub(crate) fn go_on_from_removed(&mut self) -> Result<()> {
        if !planted!(SkipRowAfterRemoved) {
            self.at = At::Gap;
        }
        self.step(Side::Front)
    }

    pub(crate) fn table(&self) -> &Table<K, V> {
        &self.table
    }

    pub(crate) fn source(&self) -> &S::Target {
        &self.source
    }

    /// The bytes of the key that it is on.
    pub(crate) fn key_bytes(&self) -> Option<&[u8]> {
        (self.at == At::Row).then_some(&*self.key)
    }

    /// Goes one row on, or back.
    #[inline]
    pub(crate) fn step(&mut self, side: Side) -> Result<()> {
        let Some(change) = self.source.staging() else { return self.step_in_pages(side) };
        let (place, table) = ((self.at, &*self.key), self.table.name());
        let found = change.beside::<K>(table, self.root, place, side)?;
        let noted = self.noted.filter(|noted| noted.1 == side).map(|noted| noted.0);
        let noted = change.note_move(table, place, side, found.as_deref(), noted);
        self.noted = noted.map(|index| (index, side));
        self.at = match (&found, side) {
            (Some(_), _) => At::Row,
            (None, Side::Front) => At::End,
            (None, Side::Back) => At::Start,
        };
        self.key = found.unwrap_or_default();
        Ok(())
    }

    fn step_in_pages(&mut self, side: Side) -> Result<()> {
        let Self { source, root, at, key, spot, .. } = self;
        with_pages(source.access(), |pages| {
            let mut scan = match spot.take() {
                Some(spot) => btree::Scan::resume(pages, spot)?,
                None => find::<K>(pages, *root, *at, key)?,
            };
            let row = match side {
                Side::Front => {
                    if *at == At::Row {
                        scan.next()?;
                    }
                    scan.next()?
                }
                Side::Back => scan.previous()?,
            };
            key.clear();
            let Some(row) = row else {
                *at = if side == Side::Front { At::End } else { At::Start };
                return Ok(());
            };
            row.node.key_into(row.index, key);
            *at = At::Row;
            if side == Side::Front {
                scan.unstep();
            }
            *spot = Some(scan.rest());
            Ok(())
        })
    }

    /// The value of the row that it is on.
    fn value_bytes(&self) -> Result<Cow<'_, [u8]>> {
        if let Some(change) = self.source.staging() {
            return change.bytes_at::<K>(self.table.name(), self.root, &self.key);
        }
        let access = self.source.access();
        match access.bounded() {
            Some(pages) => {
                let operation = pages.operation();
                Ok(Cow::Owned(self.value_in(Access::Guarded(&operation))?.into_owned()))
            }
            None => self.value_in(access),
        }
    }

    fn value_in<'p>(&self, pages: Access<'p>) -> Result<Cow<'p, [u8]>> {
        let row = match &self.spot {
            Some(spot) => spot.row(pages)?,
            None => find::<K>(pages, self.root, self.at, &self.key)?.rest().row(pages)?,
        };
        let row = row.expect("it is on a row, and nobody else changes the tree");
        resolve(pages, row.node.value(row.index))
    }
}

/// The place of a cursor.
fn find<'p, K: Key + ?Sized>(pages: Access<'p>, root: Root, at: At, key: &[u8]) -> Result<btree::Scan<'p>> {
    let mut scan = btree::Scan::new(pages);
    match at {
        At::Start => scan.go_first(root)?,
        At::Row | At::Gap => scan.go_to::<Of<K>>(root, key)?,
        At::End => scan.go_last(root)?,
    }
    Ok(scan)
}

/// The key of the row of a tree that is beside a place.
pub(crate) fn beside<K: Key + ?Sized>(
    access: Access<'_>,
    root: Root,
    (at, key): (At, &[u8]),
    side: Side,
) -> Result<Option<Vec<u8>>> {
    with_pages(access, |pages| {
        let mut scan = find::<K>(pages, root, at, key)?;
        let mut found = Vec::new();
        loop {
            let row = if side == Side::Front { scan.next()? } else { scan.previous()? };
            let Some(row) = row else { return Ok(None) };
            found.clear();
            row.node.key_into(row.index, &mut found);
            // Before the row that it is on, if the tree has that one.
            if (at, side) != (At::Row, Side::Front) || K::compare(&found, key).is_ne() {
                return Ok(Some(found));
            }
        }
    })
}

impl<S: DerefMut<Target: Stand>, K: Key + ?Sized, V: Value + ?Sized> Cursor<S, K, V> {
    pub(crate) fn source_mut(&mut self) -> &mut S::Target {
        &mut self.source
    }
}

impl<K: Key + ?Sized, V: Value + ?Sized> Cursor<&mut WriteTxn<'_>, K, V> {
    /// Replaces the value of the row that it is on, and tells whether it is on one. It stays there.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&STOCK, [("apple", 12), ("banana", 3)])?;
    /// let mut cursor = txn.cursor_mut(&STOCK)?;
    /// while let Some((_, count)) = cursor.next()? {
    ///     cursor.put(count * 2)?; // no second way down to the row
    /// }
    /// assert!(!cursor.put(7)?); // behind all rows there is nothing to replace
    /// assert_eq!(txn.get(&STOCK, "banana")?, Some(6));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the value is too long, or the store is full or damaged.
    pub fn put(&mut self, value: V::Ref<'_>) -> Result<bool> {
        if self.at != At::Row {
            return Ok(false);
        }
        let (table, types) = (self.table.name(), Table::<K, V>::types as fn() -> String);
        let put = V::with_bytes(value, |value| self.source.put_bytes::<K>(table, types, &self.key, value));
        self.look_again()?;
        put.map(|()| true)
    }

    /// Writes a row, new or not, and goes there.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// let mut cursor = txn.cursor_mut(&STOCK)?;
    /// cursor.put_at("banana", 3)?;
    /// cursor.put_at("apple", 12)?;
    /// assert_eq!(cursor.next()?, Some(("banana", 3)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the key or the value is too long, or the store is full or damaged.
    pub fn put_at(&mut self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        let put = K::with_bytes(key, |key| {
            let (table, types) = (self.table.name(), Table::<K, V>::types as fn() -> String);
            V::with_bytes(value, |value| self.source.put_bytes::<K>(table, types, key, value))?;
            self.set_row(key);
            Ok(())
        });
        self.look_again()?;
        put
    }

    /// Removes the row that it is on, and tells whether it was on one. It is on the next row then, whatever leaf that is in, or behind
    /// all rows if there is none.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table};
    ///
    /// const TASKS: Table<u64, str> = Table::new("tasks");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&TASKS, [(1, "done"), (2, "done"), (3, "waits"), (4, "done")])?;
    /// let mut cursor = txn.cursor_mut(&TASKS)?;
    /// cursor.first()?;
    /// while let Some((_, state)) = cursor.current()? {
    ///     if state == "done" {
    ///         cursor.remove()?; // it is on the next row now
    ///     } else {
    ///         cursor.next_key()?;
    ///     }
    /// }
    /// assert_eq!(txn.len(&TASKS)?, 1);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is full or damaged.
    pub fn remove(&mut self) -> Result<bool> {
        if self.at != At::Row {
            return Ok(false);
        }
        let (table, types) = (self.table.name(), Table::<K, V>::types as fn() -> String);
        let removed = self.source.remove_bytes::<K>(table, types, &self.key);
        self.look_again()?;
        removed?;
        self.go_on_from_removed()?;
        Ok(true)
    }

    /// Notes that the tree has changed.
    fn look_again(&mut self) -> Result<()> {
        self.root = self.source.root(self.table.name(), Table::<K, V>::types)?.unwrap_or_default();
        self.spot = None;
        Ok(())
    }
}

impl<K: ?Sized> Clone for Position<K> {
    fn clone(&self) -> Self {
        Self { at: self.at, key: self.key.clone(), keys: PhantomData }
    }
}

impl<K: ?Sized> fmt::Debug for Position<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Position").field("at", &self.at).field("key", &self.key).finish()
    }
}

impl<S, K: ?Sized, V: ?Sized> fmt::Debug for Cursor<S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, at, key, .. } = self;
        f.debug_struct("Cursor").field("table", table).field("at", at).field("key", key).finish_non_exhaustive()
    }
}
