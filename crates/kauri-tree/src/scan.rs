//! The rows of a table in order.

use std::marker::PhantomData;

use kauri_wire::Key;

use crate::btree::{self, Of, Root, Row};
use crate::error::Result;
use crate::read::{Access, resolve};
use crate::value::Value;

/// Rows in the order of their keys, from the front with [`next`](Self::next), from the back with [`previous`](Self::previous),
/// or from both until they meet.
///
/// A row's key and value are borrowed from the scan until the next is asked for; so it is no `Iterator`.
/// [`map`](Self::map) makes one, of whatever is made of each row.
///
/// ```
/// use kauri_tree::{Read, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for (fruit, count) in [("apple", 12), ("banana", 3), ("cherry", 40), ("date", 7)] {
///     txn.put(&STOCK, fruit, count)?;
/// }
/// let mut rows = txn.scan(&STOCK)?.from("b").until("d");
/// assert_eq!(rows.next()?, Some(("banana", 3)));
/// assert_eq!(rows.previous()?, Some(("cherry", 40)));
/// assert_eq!(rows.next()?, None);
///
/// let fruit: Result<Vec<String>, _> = txn.scan(&STOCK)?.map(|fruit, _| fruit.to_owned()).collect();
/// assert_eq!(fruit?, ["apple", "banana", "cherry", "date"]);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct Scan<'a, K: ?Sized, V: ?Sized> {
    access: Access<'a>,
    root: Root,
    /// Keys not less than this.
    from: Option<Vec<u8>>,
    /// Keys less than this.
    until: Option<Vec<u8>>,
    front: Option<btree::Scan<'a>>,
    back: Option<btree::Scan<'a>>,
    /// The ends have met: no row is left.
    met: bool,
    /// How many rows were given out.
    given: u64,
    /// A key that does not lie in one piece: the prefix of this page, and what follows it.
    prefix_of: u32,
    key: Vec<u8>,
    types: PhantomData<fn(&K, &V)>,
}

impl<'a, K: Key + ?Sized, V: Value + ?Sized> Scan<'a, K, V> {
    pub(crate) fn new(access: Access<'a>, root: Root) -> Self {
        Self {
            access,
            root,
            from: None,
            until: None,
            front: None,
            back: None,
            met: false,
            given: 0,
            prefix_of: 0,
            key: Vec::new(),
            types: PhantomData,
        }
    }

    /// Only rows whose key is not less than this.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const SQUARES: Table<u32, u32> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..10 {
    ///     txn.put(&SQUARES, number, number * number)?;
    /// }
    /// assert_eq!(txn.scan(&SQUARES)?.from(7).next()?, Some((7, 49)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn from(mut self, key: K::Ref<'_>) -> Self {
        self.from = Some(K::encode(key));
        self
    }

    /// Only rows whose key is less than this.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const SQUARES: Table<u32, u32> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..10 {
    ///     txn.put(&SQUARES, number, number * number)?;
    /// }
    /// assert_eq!(txn.scan(&SQUARES)?.until(7).previous()?, Some((6, 36)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn until(mut self, key: K::Ref<'_>) -> Self {
        self.until = Some(K::encode(key));
        self
    }

    /// The next row from the front; `None` when the ends have met.
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const SQUARES: Table<u32, u32> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..10 {
    ///     txn.put(&SQUARES, number, number * number)?;
    /// }
    /// let mut rows = txn.scan(&SQUARES)?.from(8);
    /// let mut sum = 0;
    /// while let Some((_, square)) = rows.next()? {
    ///     sum += square;
    /// }
    /// assert_eq!(sum, 64 + 81);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[expect(clippy::should_implement_trait, reason = "a row is borrowed from the scan, which no Iterator allows")]
    pub fn next(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        if self.front.is_none() {
            self.place_front()?;
        }
        if self.have_met() {
            return Ok(None);
        }
        let row = self.front.as_mut().expect("just placed").next()?;
        self.row(row)
    }

    /// The next row from the back; `None` when the ends have met.
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const SQUARES: Table<u32, u32> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..10 {
    ///     txn.put(&SQUARES, number, number * number)?;
    /// }
    /// // The greatest, whatever lies below it.
    /// assert_eq!(txn.scan(&SQUARES)?.previous()?, Some((9, 81)));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn previous(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        if self.back.is_none() {
            self.place_back()?;
        }
        if self.have_met() {
            return Ok(None);
        }
        let row = self.back.as_mut().expect("just placed").previous()?;
        self.row(row)
    }

    /// Places the front, and the back too if something else than the end of the table is to stop the front.
    fn place_front(&mut self) -> Result<()> {
        self.met |= self.is_crossed();
        self.front = Some(match &self.from {
            Some(key) => btree::Scan::seek::<Of<K>>(self.access, self.root, key)?,
            None => btree::Scan::first(self.access, self.root)?,
        });
        if self.back.is_none() && self.until.is_some() {
            self.place_back()?;
        }
        Ok(())
    }

    /// The same from the other side.
    fn place_back(&mut self) -> Result<()> {
        self.met |= self.is_crossed();
        self.back = Some(match &self.until {
            Some(key) => btree::Scan::seek::<Of<K>>(self.access, self.root, key)?,
            None => btree::Scan::last(self.access, self.root)?,
        });
        if self.front.is_none() && self.from.is_some() {
            self.place_front()?;
        }
        Ok(())
    }

    /// Whether there is no key that is not less than `from` and less than `until`.
    fn is_crossed(&self) -> bool {
        match (&self.from, &self.until) {
            (Some(from), Some(until)) => K::compare(from, until).is_ge(),
            _ => false,
        }
    }

    /// Whether the ends are at the same place, before one of them takes a step.
    ///
    /// They start in order, and stay so: a step that passes the other end stays in its leaf, or comes into it.
    #[inline]
    fn have_met(&mut self) -> bool {
        if let (Some(front), Some(back)) = (&self.front, &self.back) {
            self.met |= front.place() == back.place();
        }
        self.met
    }

    /// Whether the step that was just made passed the other end.
    #[inline]
    fn have_passed(&self) -> bool {
        let (Some(front), Some(back)) = (&self.front, &self.back) else { return false };
        let ((front, front_index), (back, back_index)) = (front.place(), back.place());
        front == back && front_index > back_index
    }

    /// How many rows are left.
    ///
    /// # Errors
    /// If the store is damaged.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const SQUARES: Table<u32, u32> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..10 {
    ///     txn.put(&SQUARES, number, number * number)?;
    /// }
    /// let mut rows = txn.scan(&SQUARES)?.from(3).until(8);
    /// assert_eq!(rows.count()?, 5);
    /// rows.next()?;
    /// assert_eq!(rows.count()?, 4);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn count(&mut self) -> Result<u64> {
        if self.met || self.is_crossed() {
            return Ok(0);
        }
        let rank = |key: &Option<Vec<u8>>, absent| match key {
            Some(key) => btree::rank::<Of<K>>(&self.access, self.root, key).map(|(rank, _)| rank),
            None => Ok(absent),
        };
        let rows = rank(&self.until, self.root.rows)?.saturating_sub(rank(&self.from, 0)?);
        Ok(rows.saturating_sub(self.given))
    }

    #[inline]
    fn row(&mut self, row: Option<Row<'a>>) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        let Some(row) = row.filter(|_| !self.have_passed()) else {
            self.met = true;
            return Ok(None);
        };
        self.given += 1;
        let (suffix, value) = row.node.row(row.index);
        let value = V::decode(resolve(self.access, value)?)?;
        let prefix = row.node.prefix();
        // A key that shares nothing with its page lies there whole.
        if prefix.is_empty() {
            return Ok(Some((K::decode(suffix)?, value)));
        }
        // Most rows lie in the page of the row before.
        if self.prefix_of != row.page {
            self.prefix_of = row.page;
            self.key.clear();
            self.key.extend_from_slice(prefix);
        }
        self.key.truncate(prefix.len());
        self.key.extend_from_slice(suffix);
        Ok(Some((K::decode(&self.key)?, value)))
    }

    /// An iterator over what `make` makes of each row; it ends after an error.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const SQUARES: Table<u32, u32> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for number in 0..10 {
    ///     txn.put(&SQUARES, number, number * number)?;
    /// }
    /// let squares = txn.scan(&SQUARES)?.until(4).map(|_, square| square);
    /// assert_eq!(squares.collect::<Result<Vec<_>, _>>()?, [0, 1, 4, 9]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
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
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Scan<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("from", &self.from).field("until", &self.until).finish_non_exhaustive()
    }
}
