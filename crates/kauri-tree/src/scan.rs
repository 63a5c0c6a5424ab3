//! The rows of a table in order.

mod bound;

use std::borrow::Cow;
use std::marker::PhantomData;

use kauri_wire::Key;

use crate::btree::{self, Of, Root};
use crate::copies::{CopiedEnds, Side};
use crate::error::Result;
use crate::merge::Merge;
use crate::node::{Joiner, RowAt, Rows};
use crate::read::{Access, resolve};
use crate::snapshot::VersionPages;
use crate::value::Value;
use bound::Bound;

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
    from: Bound,
    /// Keys less than this.
    until: Bound,
    /// What is left of the leaf at the front; once the ends have met, for both of them.
    low: Rows<'a>,
    low_keys: Joiner,
    /// The ends are in the same leaf, or one has come to the end of the table: there are no rows but those of `low`.
    met: bool,
    /// How many rows were given out, or are in `low` and `high`.
    opened: u64,
    ends: Option<Ends<'a>>,
    /// Both ends, where pages come and go; then there is nothing in `low` and `ends`.
    copies: Option<Box<CopiedEnds<'a>>>,
    /// The rows of a change; then there is nothing in the others.
    merged: Option<Box<Merge<'a, K, V>>>,
    types: PhantomData<fn(&K, &V)>,
}

/// Where the ends of a scan are, once it has begun.
struct Ends<'a> {
    front: Option<btree::Scan<'a>>,
    back: Option<btree::Scan<'a>>,
    /// What is left of the leaf at the back, unless the ends have met.
    high: Rows<'a>,
    high_keys: Joiner,
}

impl<'a, K: Key + ?Sized, V: Value + ?Sized> Scan<'a, K, V> {
    pub(crate) fn new(access: Access<'a>, root: Root) -> Self {
        Self {
            access,
            root,
            from: Bound::None,
            until: Bound::None,
            low: Rows::default(),
            low_keys: Joiner::default(),
            met: false,
            opened: 0,
            ends: None,
            copies: None,
            merged: None,
            types: PhantomData,
        }
    }

    /// The rows of a change.
    pub(crate) fn merged(access: Access<'a>, root: Root, merge: Merge<'a, K, V>) -> Self {
        Self { merged: Some(Box::new(merge)), ..Self::new(access, root) }
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
    pub fn from(self, key: K::Ref<'_>) -> Self {
        K::with_bytes(key, |key| self.at_least(key))
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
    pub fn until(self, key: K::Ref<'_>) -> Self {
        K::with_bytes(key, |key| self.below(key))
    }

    #[inline]
    pub(crate) fn at_least(mut self, key: &[u8]) -> Self {
        if let Some(merged) = &mut self.merged {
            merged.set_from(key);
        }
        self.from = Bound::new(key);
        self
    }

    #[inline]
    pub(crate) fn below(mut self, key: &[u8]) -> Self {
        if let Some(merged) = &mut self.merged {
            merged.set_until(key);
        }
        self.until = Bound::new(key);
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
    #[inline]
    pub fn next(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        let row = loop {
            match self.low.next() {
                Some(row) => break row,
                None if self.is_aside() => return self.aside(Side::Front),
                None if !self.advance()? => return Ok(None),
                None => {}
            }
        };
        decode::<K, V>(self.access, &mut self.low_keys, &row).map(Some)
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
    #[inline]
    pub fn previous(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        if self.ends.is_none() && self.is_aside() {
            return self.aside(Side::Back);
        }
        let row = loop {
            // Nothing is in either before the scan has begun.
            let rows = match &mut self.ends {
                Some(ends) if !self.met => &mut ends.high,
                _ => &mut self.low,
            };
            match rows.next_back() {
                Some(row) => break row,
                None if !self.retreat()? => return Ok(None),
                None => {}
            }
        };
        let keys = match &mut self.ends {
            Some(ends) if !self.met => &mut ends.high_keys,
            _ => &mut self.low_keys,
        };
        decode::<K, V>(self.access, keys, &row).map(Some)
    }

    /// Whether the rows do not come straight from pages: they are a change's, or copied from pages that come and go.
    fn is_aside(&self) -> bool {
        self.merged.is_some() || self.access.bounded().is_some()
    }

    /// The next row from an end, if it does not come straight from a page.
    #[inline(never)]
    fn aside(&mut self, side: Side) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        if let Some(ref mut merged) = self.merged {
            return merged.step(side);
        }
        let Some(pages) = self.access.bounded() else { return Ok(None) };
        let (from, until) = (self.from.key(), self.until.key());
        if self.met || self.is_crossed() {
            return Ok(None);
        }
        let copies = self.copies.get_or_insert_with(|| Box::new(CopiedEnds::new(pages, self.root, from, until)));
        match copies.next::<Of<K>>(side, from, until)? {
            Some((key, value)) => Ok(Some((K::decode(key)?, V::decode(Cow::Borrowed(value))?))),
            None => {
                self.met = true;
                Ok(None)
            }
        }
    }

    /// How many rows are left, of pages that come and go.
    fn count_copied(&self, pages: &VersionPages<'_>) -> Result<u64> {
        let operation = pages.operation();
        let rank = |key: &[u8]| btree::rank::<Of<K>>(&operation, self.root, key);
        let (low, high) = self.copies.as_ref().map_or((None, None), |copies| copies.given());
        let first = match (low, self.from.key()) {
            (Some(given), _) => rank(given)? + 1,
            (None, from) => from.map_or(Ok(0), rank)?,
        };
        let end = high.or(self.until.key()).map_or(Ok(self.root.rows), rank)?;
        Ok(end.saturating_sub(first))
    }

    fn ends(&mut self) -> &mut Ends<'a> {
        self.ends.get_or_insert_with(|| Ends {
            front: None,
            back: None,
            high: Rows::default(),
            high_keys: Joiner::default(),
        })
    }

    /// Moves the front to the next leaf, once its own is used up. Says whether there was one.
    #[inline(never)]
    fn advance(&mut self) -> Result<bool> {
        if self.met {
            return Ok(false);
        }
        match &mut self.ends().front {
            None => self.place_front()?,
            Some(front) => {
                front.step_right()?;
                self.open_low();
            }
        }
        Ok(true)
    }

    /// Moves the back to the leaf before, once its own is used up. Says whether there was one.
    #[inline(never)]
    fn retreat(&mut self) -> Result<bool> {
        if self.met {
            return Ok(false);
        }
        match &mut self.ends().back {
            None => self.place_back()?,
            Some(back) => {
                back.step_left()?;
                self.open_high();
            }
        }
        Ok(true)
    }

    /// Places the front, and the back too if something else than the end of the table is to stop the front.
    fn place_front(&mut self) -> Result<()> {
        if self.is_crossed() {
            self.met = true;
            return Ok(());
        }
        let (access, root) = (self.access, self.root);
        let ends = self.ends.as_mut().expect("the scan has begun");
        let front = ends.front.insert(btree::Scan::new(access));
        match self.from.key() {
            Some(key) => front.go_to::<Of<K>>(root, key)?,
            None => front.go_first(root)?,
        }
        let is_back_placed = ends.back.is_some();
        self.open_low();
        if !is_back_placed && self.until.key().is_some() {
            self.place_back()?;
        }
        Ok(())
    }

    /// The same from the other side.
    fn place_back(&mut self) -> Result<()> {
        if self.is_crossed() {
            self.met = true;
            return Ok(());
        }
        let (access, root) = (self.access, self.root);
        let ends = self.ends.as_mut().expect("the scan has begun");
        let back = ends.back.insert(btree::Scan::new(access));
        match self.until.key() {
            Some(key) => back.go_to::<Of<K>>(root, key)?,
            None => back.go_last(root)?,
        }
        let is_front_placed = ends.front.is_some();
        self.open_high();
        if !is_front_placed && self.from.key().is_some() {
            self.place_front()?;
        }
        Ok(())
    }

    /// Whether there is no key that is not less than `from` and less than `until`.
    fn is_crossed(&self) -> bool {
        match (self.from.key(), self.until.key()) {
            (Some(from), Some(until)) => K::compare(from, until).is_ge(),
            _ => false,
        }
    }

    /// Opens the leaf that the front has come to. The ends start in order and stay so: a front that comes to the back's leaf
    /// is not behind it there.
    fn open_low(&mut self) {
        let ends = self.ends.as_mut().expect("the scan has begun");
        let Some((leaf, index)) = ends.front.as_ref().and_then(btree::Scan::leaf) else {
            self.met = true;
            return;
        };
        let mut end = leaf.count();
        if ends.are_in_one_leaf() {
            // What the back has left of it is what is left of it.
            self.met = true;
            end = ends.high.len();
            self.opened -= end as u64;
        }
        self.low_keys.start(leaf);
        // In a damaged leaf, whose keys are in no order, the ends may have passed each other.
        self.low = Rows::of(leaf, index.min(end), end);
        self.opened += self.low.len() as u64;
    }

    /// Opens the leaf that the back has come to.
    fn open_high(&mut self) {
        let ends = self.ends.as_mut().expect("the scan has begun");
        let Some((leaf, end)) = ends.back.as_ref().and_then(btree::Scan::leaf) else {
            self.met = true;
            return;
        };
        if ends.are_in_one_leaf() {
            // What the front has left of it, up to the back.
            self.met = true;
            let left = self.low.len().saturating_sub(leaf.count() - end);
            self.opened -= (self.low.len() - left) as u64;
            self.low.truncate(left);
            return;
        }
        ends.high_keys.start(leaf);
        ends.high = Rows::of(leaf, 0, end);
        self.opened += end as u64;
    }

    /// The next row from the front behind so many others; `None` if there are not more. Skipping costs little more than
    /// [`Read::get`](crate::Read::get), for any number; only in a [`Change`](crate::Change) each row is looked at.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table};
    ///
    /// const SQUARES: Table<u64, u64> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.load_sorted(&SQUARES, (0..1000).map(|number| (number, number * number)))?;
    /// let mut rows = txn.scan(&SQUARES)?.from(10);
    /// assert_eq!(rows.nth(500)?, Some((510, 510 * 510)));
    /// assert_eq!(rows.next()?, Some((511, 511 * 511)));
    /// assert_eq!(txn.rank(&SQUARES, 510)?, 510);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    pub fn nth(&mut self, rows: u64) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        if self.is_aside() {
            return self.nth_aside(rows);
        }
        if !self.skip_in_leaf(rows) {
            self.skip_leaves(rows)?;
        }
        self.next()
    }

    fn nth_aside(&mut self, rows: u64) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        let Some(pages) = self.access.bounded().filter(|_| self.merged.is_none()) else {
            for _ in 0..rows {
                if self.aside(Side::Front)?.is_none() {
                    return Ok(None);
                }
            }
            return self.aside(Side::Front);
        };
        let left = self.count()?;
        if self.met || rows >= left {
            self.met = true;
            return Ok(None);
        }
        let low = self.copies.as_ref().and_then(|copies| copies.given().0);
        let before = match (low, self.from.key()) {
            (Some(given), _) => btree::rank::<Of<K>>(&pages.operation(), self.root, given)? + 1,
            (None, Some(from)) => btree::rank::<Of<K>>(&pages.operation(), self.root, from)?,
            (None, None) => 0,
        };
        let key = self.key_at(before + rows)?;
        let (from, until) = (self.from.key(), self.until.key());
        let copies = self.copies.get_or_insert_with(|| Box::new(CopiedEnds::new(pages, self.root, from, until)));
        copies.skip_to(key);
        self.aside(Side::Front)
    }

    /// Skips rows of the leaf at the front, if there are more in it.
    fn skip_in_leaf(&mut self, rows: u64) -> bool {
        let skipped = usize::try_from(rows).ok().filter(|rows| *rows < self.low.len());
        skipped.is_some_and(|rows| {
            self.low.skip(rows);
            true
        })
    }

    fn skip_leaves(&mut self, rows: u64) -> Result<()> {
        if rows >= self.count()? {
            (self.met, self.low) = (true, Rows::default());
            return Ok(());
        }
        if self.ends().front.is_none() {
            self.place_front()?;
            if self.skip_in_leaf(rows) {
                return Ok(());
            }
        }
        // There are more rows than that before the back, so the front does not pass it.
        let behind = rows - self.low.len() as u64;
        self.opened += behind;
        let front = self.ends().front.as_mut().expect("it is placed");
        front.skip_right(behind)?;
        self.open_low();
        Ok(())
    }

    /// Scans of about equal numbers of rows that make up this one together, in order: so many, or as many as there are rows. Threads
    /// can share a range so. It is the whole range that is divided, whatever was taken from it. What a [`Change`](crate::Change) sees is
    /// not divided.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table};
    ///
    /// const SQUARES: Table<u64, u64> = Table::new("squares");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.load_sorted(&SQUARES, (0..1000).map(|number| (number, number * number)))?;
    /// let mut parts = txn.scan(&SQUARES)?.from(100).split(3)?;
    /// let counts: Result<Vec<u64>, _> = parts.iter_mut().map(|part| part.count()).collect();
    /// assert_eq!(counts?, [300, 300, 300]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged.
    pub fn split(self, parts: usize) -> Result<Vec<Self>> {
        if self.merged.is_some() {
            return Ok(vec![self]);
        }
        let mut whole = Self { from: self.from, until: self.until, ..Self::new(self.access, self.root) };
        let rows = whole.count()?;
        let operation = whole.access.bounded().map(VersionPages::operation);
        let pages = operation.as_ref().map_or(whole.access, Access::Guarded);
        let before = whole.from.key().map_or(Ok(0), |key| btree::rank::<Of<K>>(&pages, whole.root, key))?;
        drop(operation);
        let parts = (parts as u64).clamp(1, rows.max(1));
        let mut scans = Vec::new();
        for part in 1..parts {
            let rows = u128::from(rows) * u128::from(part) / u128::from(parts);
            let start = Bound::new(&whole.key_at(before + u64::try_from(rows).expect("not more than all"))?);
            let from = std::mem::replace(&mut whole.from, start.clone());
            scans.push(Self { from, until: start, ..Self::new(whole.access, whole.root) });
        }
        scans.push(whole);
        Ok(scans)
    }

    /// The key of the row of the table with so many before it.
    fn key_at(&self, rows: u64) -> Result<Vec<u8>> {
        let operation = self.access.bounded().map(VersionPages::operation);
        let mut scan = btree::Scan::new(operation.as_ref().map_or(self.access, Access::Guarded));
        scan.go_nth(self.root, rows)?;
        let mut key = Vec::new();
        if let Some((leaf, index)) = scan.leaf() {
            leaf.key_into(index, &mut key);
        }
        Ok(key)
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
        if let Some(merged) = &mut self.merged {
            return merged.count();
        }
        if self.met {
            return Ok(self.low.len() as u64);
        }
        if self.is_crossed() {
            return Ok(0);
        }
        if let Some(pages) = self.access.bounded() {
            return self.count_copied(pages);
        }
        let (pages, root) = (&self.access, self.root);
        let rows = match (self.from.key(), self.until.key()) {
            (None, None) => root.rows,
            (None, Some(until)) => btree::rank::<Of<K>>(pages, root, until)?,
            (Some(from), None) => root.rows.saturating_sub(btree::rank::<Of<K>>(pages, root, from)?),
            (Some(from), Some(until)) => btree::count_between::<Of<K>>(pages, root, from, until)?,
        };
        let high = self.ends.as_ref().map_or(0, |ends| ends.high.len());
        Ok(rows.saturating_sub(self.opened) + (self.low.len() + high) as u64)
    }

    /// Shows all rows that are left to `see`, from the front.
    ///
    /// ```
    /// use kauri_tree::{Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.put(&STOCK, "pears", 5)?;
    /// let mut total = 0;
    /// txn.scan(&STOCK)?.for_each(|_, count| total += count)?;
    /// assert_eq!(total, 17);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    #[inline]
    pub fn for_each(mut self, mut see: impl FnMut(K::View<'_>, V::View<'_>)) -> Result<()> {
        loop {
            // Of its own, so that it can stay in registers.
            let mut rows = std::mem::take(&mut self.low);
            while let Some(row) = rows.next() {
                let (key, value) = decode::<K, V>(self.access, &mut self.low_keys, &row)?;
                see(key, value);
            }
            if self.is_aside() {
                while let Some((key, value)) = self.aside(Side::Front)? {
                    see(key, value);
                }
                return Ok(());
            }
            if !self.advance()? {
                return Ok(());
            }
        }
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

impl Ends<'_> {
    fn are_in_one_leaf(&self) -> bool {
        match (&self.front, &self.back) {
            (Some(front), Some(back)) => front.page() == back.page(),
            _ => false,
        }
    }
}

#[inline(always)]
fn decode<'a, K: Key + ?Sized, V: Value + ?Sized>(
    access: Access<'a>,
    keys: &'a mut Joiner,
    row: &RowAt<'a>,
) -> Result<(K::View<'a>, V::View<'a>)> {
    let value = V::decode(resolve(access, row.value)?)?;
    Ok((K::decode(keys.key(row))?, value))
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Scan<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("from", &self.from.key()).field("until", &self.until.key()).finish_non_exhaustive()
    }
}
