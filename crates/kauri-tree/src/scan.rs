//! The rows of a table in order.

use std::marker::PhantomData;

use kauri_wire::Key;

use crate::btree::{self, Of, Root};
use crate::error::Result;
use crate::node::{Joiner, RowAt, Rows};
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
    ends: Option<Box<Ends<'a>>>,
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
            types: PhantomData,
        }
    }

    /// Only rows whose key is not less than this.
    #[must_use]
    pub fn from(mut self, key: K::Ref<'_>) -> Self {
        self.from = K::with_bytes(key, Bound::new);
        self
    }

    /// Only rows whose key is less than this.
    #[must_use]
    pub fn until(mut self, key: K::Ref<'_>) -> Self {
        self.until = K::with_bytes(key, Bound::new);
        self
    }

    /// The next row from the front; `None` when the ends have met.
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    #[expect(clippy::should_implement_trait, reason = "a row is borrowed from the scan, which no Iterator allows")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        let row = loop {
            match self.low.next() {
                Some(row) => break row,
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
    #[inline]
    pub fn previous(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        if self.ends.is_none() {
            self.retreat()?;
        }
        let row = loop {
            let ends = self.ends.as_mut().expect("the scan has begun");
            let rows = if self.met { &mut self.low } else { &mut ends.high };
            match rows.next_back() {
                Some(row) => break row,
                None if !self.retreat()? => return Ok(None),
                None => {}
            }
        };
        let keys = match self.met {
            true => &mut self.low_keys,
            false => &mut self.ends.as_mut().expect("the scan has begun").high_keys,
        };
        decode::<K, V>(self.access, keys, &row).map(Some)
    }

    fn ends(&mut self) -> &mut Ends<'a> {
        self.ends.get_or_insert_with(|| {
            Box::new(Ends { front: None, back: None, high: Rows::default(), high_keys: Joiner::default() })
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

    /// How many rows are left.
    ///
    /// # Errors
    /// If the store is damaged.
    pub fn count(&mut self) -> Result<u64> {
        if self.met {
            return Ok(self.low.len() as u64);
        }
        if self.is_crossed() {
            return Ok(0);
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
            if !self.advance()? {
                return Ok(());
            }
        }
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
}

impl Ends<'_> {
    fn are_in_one_leaf(&self) -> bool {
        match (&self.front, &self.back) {
            (Some(front), Some(back)) => front.page() == back.page(),
            _ => false,
        }
    }
}

/// An end of a range of keys, or none.
#[derive(Debug)]
enum Bound {
    None,
    /// A key that lies here, because most are short and need no place of their own.
    Short(u8, [u8; Self::SHORT]),
    Long(Box<[u8]>),
}

impl Bound {
    const SHORT: usize = 30;

    #[inline]
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT];
        match (bytes.get_mut(..key.len()), u8::try_from(key.len())) {
            (Some(start), Ok(length)) => {
                start.copy_from_slice(key);
                Self::Short(length, bytes)
            }
            _ => Self::Long(key.into()),
        }
    }

    #[inline]
    fn key(&self) -> Option<&[u8]> {
        match self {
            Self::None => None,
            Self::Short(length, bytes) => Some(&bytes[..usize::from(*length)]),
            Self::Long(key) => Some(key),
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
