//! Tables of several sorted values per key.
//!
//! ```text
//! row:   | key, as a part of a tuple | value |  ->  nothing
//! ```
//!
//! A pair of a key and a value is a row of one tree, in the order of keys and then of values. What all pairs of a page begin with
//! stands once in it, so a key that has many values costs next to nothing in each; and branches know how many rows lie below them,
//! so the values of a key are counted, numbered, divided and removed as ranges: without looking at them.
//!
//! The other way, a tree of values for each key, would find the number of a key's values beside the key. But the key has to be found
//! for that, and the way down is what it costs: counting goes down it for both ends of the range at once. In return a pair is put, found
//! and removed with one way down instead of two, the log and its recovery, diffs, cursors and observed ranges know nothing of
//! pairs, and two changes that add values to one key are no conflict.

mod cursor;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use kauri_wire::{Key, KeyPart, Reader, WireError};

use crate::error::{Error, Result};
use crate::read::{Read, Write};
use crate::scan::Scan;
use crate::table::{Table, behind};
use crate::write::WriteTxn;

/// A table in which a key has any number of values, each once, in the order of their encoding.
///
/// It is a [`Table`] of [`Pair`]s, and can be used as one: `len` counts pairs, `contains`, `insert` and `remove` take one,
/// `scan` and `cursor` go through all of them, `remove_range` removes those between two. [`ReadMulti`] and [`WriteMulti`] add what
/// concerns the values of one key. A key and a value together can be as long as a key of a table.
///
/// ```
/// use kauri_tree::{MultiTable, Read, ReadMulti, Store, WriteMulti};
///
/// const TAGS: MultiTable<str, str> = MultiTable::new("tags");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// assert!(txn.put_value(&TAGS, "apple", "red")?);
/// assert!(txn.put_value(&TAGS, "apple", "green")?);
/// assert!(!txn.put_value(&TAGS, "apple", "red")?); // it is there
/// txn.put_value(&TAGS, "banana", "yellow")?;
///
/// let mut values = txn.values(&TAGS, "apple")?;
/// assert_eq!(values.count()?, 2);
/// assert_eq!(values.next()?, Some("green"));
/// assert_eq!(values.next()?, Some("red"));
/// drop(values);
/// assert_eq!(txn.len(&TAGS)?, 3);
/// assert_eq!(txn.remove_values(&TAGS, "apple")?, 2);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct MultiTable<K: ?Sized, V: ?Sized> {
    pairs: Table<Pair<K, V>, ()>,
}

impl<K: KeyPart + ?Sized, V: Key + ?Sized> MultiTable<K, V> {
    /// The table of this name. Keys and values must be in the order of their bytes; for others it does not compile.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Read, Store};
    ///
    /// const BY_COLOUR: MultiTable<str, u64> = MultiTable::new("by colour"); // from a colour to the numbers of fruit
    /// assert_eq!(BY_COLOUR.name(), "by colour");
    /// assert_eq!(Store::in_memory()?.snapshot().len(&BY_COLOUR)?, 0); // as a table, it is one of pairs
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        const { assert!(K::BYTEWISE && V::BYTEWISE, "pairs are in the order of their bytes") };
        Self { pairs: Table::new(name) }
    }

    /// The table of a name that is known only when the program runs.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store, WriteMulti};
    ///
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// for shop in ["north", "south"] {
    ///     let index = MultiTable::<str, u64>::named(format!("{shop}/by colour"));
    ///     txn.put_value(&index, "red", 7)?;
    /// }
    /// txn.commit()?;
    /// assert!(store.snapshot().tables().eq(["north/by colour", "south/by colour"]));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn named(name: String) -> Self {
        const { assert!(K::BYTEWISE && V::BYTEWISE, "pairs are in the order of their bytes") };
        Self { pairs: Table::named(name) }
    }
}

impl<K: ?Sized, V: ?Sized> Deref for MultiTable<K, V> {
    type Target = Table<Pair<K, V>, ()>;

    fn deref(&self) -> &Self::Target {
        &self.pairs
    }
}

impl<K: ?Sized, V: ?Sized> Clone for MultiTable<K, V> {
    fn clone(&self) -> Self {
        Self { pairs: self.pairs.clone() }
    }
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for MultiTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiTable({:?})", self.pairs.name())
    }
}

/// A key and one of its values: the key of a row of a [`MultiTable`].
///
/// ```
/// use kauri_tree::{MultiTable, Read, Store, Write};
///
/// const SCORES: MultiTable<str, i32> = MultiTable::new("scores");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for pair in [("ann", -3), ("ann", 12), ("bob", 7)] {
///     txn.put(&SCORES, pair, ())?;
/// }
/// assert!(txn.contains(&SCORES, ("ann", 12))?);
/// let mut rows = txn.scan(&SCORES)?.from(("ann", 0));
/// assert_eq!(rows.next()?, Some((("ann".into(), 12), ())));
/// assert_eq!(rows.previous()?, Some((("bob".into(), 7), ())));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct Pair<K: ?Sized, V: ?Sized>(PhantomData<fn(&K, &V)>);

impl<K: KeyPart + ?Sized, V: Key + ?Sized> Key for Pair<K, V> {
    type Ref<'a> = (K::Ref<'a>, V::Ref<'a>);
    type View<'a> = (K::Part<'a>, V::View<'a>);

    fn name() -> Cow<'static, str> {
        Cow::Owned(format!("pairs of {} and {}", K::name(), V::name()))
    }

    fn encode_into((key, value): Self::Ref<'_>, out: &mut Vec<u8>) {
        K::encode_part(key, out);
        V::encode_into(value, out);
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Self::View<'_>, WireError> {
        let mut input = Reader::new(bytes);
        let key = K::decode_part(&mut input)?;
        Ok((key, V::decode(input.rest())?))
    }
}

impl<K: KeyPart + ?Sized, V: Key + ?Sized> Pair<K, V> {
    /// What all pairs of a key begin with, and no others.
    fn part(key: K::Ref<'_>) -> Vec<u8> {
        let mut part = Vec::new();
        K::encode_part(key, &mut part);
        part
    }

    /// How much of a pair is its key.
    fn part_bytes(pair: &[u8]) -> Result<usize> {
        let mut input = Reader::new(pair);
        K::decode_part(&mut input)?;
        Ok(input.at())
    }
}

/// Reading the values of a key.
///
/// ```
/// use kauri_tree::{Change, MultiTable, ReadMulti, Store, WriteMulti};
///
/// const FRIENDS: MultiTable<str, str> = MultiTable::new("friends");
///
/// /// Whatever it is read from: snapshots, transactions, changes.
/// fn are_friends(from: &impl ReadMulti, one: &str, other: &str) -> kauri_tree::Result<bool> {
///     Ok(from.has_value(&FRIENDS, one, other)? && from.has_value(&FRIENDS, other, one)?)
/// }
///
/// let store = Store::in_memory()?;
/// let mut change = Change::new(store.snapshot());
/// change.put_value(&FRIENDS, "ann", "bob")?;
/// assert!(!are_friends(&change, "ann", "bob")?);
/// change.put_value(&FRIENDS, "bob", "ann")?;
/// assert!(are_friends(&change, "ann", "bob")?);
/// assert!(!are_friends(&store.snapshot(), "ann", "bob")?);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub trait ReadMulti: Read {
    /// The values of a key, in order, from either end.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store, WriteMulti};
    ///
    /// const TAGS: MultiTable<u64, str> = MultiTable::new("tags");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put_value(&TAGS, 7, "sweet")?;
    /// txn.put_value(&TAGS, 7, "red")?;
    /// assert_eq!(txn.values(&TAGS, 7)?.next()?, Some("red")); // the first
    /// assert_eq!(txn.values(&TAGS, 7)?.previous()?, Some("sweet")); // the last
    /// assert_eq!(txn.values(&TAGS, 8)?.next()?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    fn values<K: KeyPart + ?Sized, V: Key + ?Sized>(
        &self,
        table: &MultiTable<K, V>,
        key: K::Ref<'_>,
    ) -> Result<Values<'_, K, V>> {
        let part = Pair::<K, V>::part(key);
        let scan = self.scan(&table.pairs)?.at_least(&part);
        let scan = if let Some(behind) = behind(&part) { scan.below(&behind) } else { scan };
        Ok(Values { scan })
    }

    /// How many values a key has. It costs little more than [`get`](Read::get), for any number.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store};
    ///
    /// const VISITS: MultiTable<str, u64> = MultiTable::new("visits"); // of whom, and when
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&VISITS, (0..10_000).map(|moment| ("ann", moment)))?;
    /// assert_eq!(txn.count_values(&VISITS, "ann")?, 10_000);
    /// assert_eq!(txn.count_values(&VISITS, "bob")?, 0);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    fn count_values<K: KeyPart + ?Sized, V: Key + ?Sized>(
        &self,
        table: &MultiTable<K, V>,
        key: K::Ref<'_>,
    ) -> Result<u64> {
        self.values(table, key)?.count()
    }

    /// Whether a key has a value.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store, WriteMulti};
    ///
    /// const ROLES: MultiTable<str, str> = MultiTable::new("roles");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_value(&ROLES, "ann", "admin")?;
    /// assert!(txn.has_value(&ROLES, "ann", "admin")?);
    /// assert!(!txn.has_value(&ROLES, "ann", "guest")? && !txn.has_value(&ROLES, "bob", "admin")?);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is damaged.
    fn has_value<'r, K: KeyPart + ?Sized, V: Key + ?Sized>(
        &self,
        table: &MultiTable<K, V>,
        key: K::Ref<'r>,
        value: V::Ref<'r>,
    ) -> Result<bool> {
        self.contains(&table.pairs, (key, value))
    }
}

impl<R: Read> ReadMulti for R {}

/// Changing the values of a key.
///
/// ```
/// use kauri_tree::{MultiTable, ReadMulti, Store, Table, WriteMulti};
///
/// const FRUIT: Table<u64, str> = Table::new("fruit"); // from a number to a colour
/// const BY_COLOUR: MultiTable<str, u64> = MultiTable::new("by colour");
///
/// /// A row and its place in the index: both or, if the transaction is dropped, neither.
/// fn paint(txn: &mut impl WriteMulti, number: u64, colour: &str) -> kauri_tree::Result<()> {
///     if let Some(before) = txn.get(&FRUIT, number)?.map(|colour| colour.into_owned()) {
///         txn.remove_value(&BY_COLOUR, &before, number)?;
///     }
///     txn.put(&FRUIT, number, colour)?;
///     txn.put_value(&BY_COLOUR, colour, number).map(drop)
/// }
///
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// paint(&mut txn, 7, "green")?;
/// paint(&mut txn, 7, "red")?;
/// assert_eq!((txn.count_values(&BY_COLOUR, "green")?, txn.count_values(&BY_COLOUR, "red")?), (0, 1));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub trait WriteMulti: Write + ReadMulti {
    /// Gives a key a value, and tells whether it is new to it.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store, WriteMulti};
    ///
    /// const TAGS: MultiTable<str, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// assert!(txn.put_value(&TAGS, "apple", "red")?);
    /// assert!(txn.put_value(&TAGS, "apple", "sweet")?); // beside the other
    /// assert!(!txn.put_value(&TAGS, "apple", "red")?); // each value once
    /// assert_eq!(txn.count_values(&TAGS, "apple")?, 2);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If key and value together are too long, the table was made for other types, or the store is full or damaged.
    fn put_value<'r, K: KeyPart + ?Sized, V: Key + ?Sized>(
        &mut self,
        table: &MultiTable<K, V>,
        key: K::Ref<'r>,
        value: V::Ref<'r>,
    ) -> Result<bool> {
        self.insert(&table.pairs, (key, value), ())
    }

    /// Takes a value from a key, and tells whether it had it.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store, WriteMulti};
    ///
    /// const TAGS: MultiTable<str, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [("apple", "red"), ("apple", "sweet")])?;
    /// assert!(txn.remove_value(&TAGS, "apple", "red")?);
    /// assert!(!txn.remove_value(&TAGS, "apple", "red")?); // it is gone
    /// assert_eq!(txn.values(&TAGS, "apple")?.next()?, Some("sweet"));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types, or the store is full or damaged.
    fn remove_value<'r, K: KeyPart + ?Sized, V: Key + ?Sized>(
        &mut self,
        table: &MultiTable<K, V>,
        key: K::Ref<'r>,
        value: V::Ref<'r>,
    ) -> Result<bool> {
        self.remove(&table.pairs, (key, value))
    }

    /// Takes all values from a key, and tells how many it had.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Read, Store, WriteMulti};
    ///
    /// const TAGS: MultiTable<str, u64> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, (0..1_000).map(|tag| ("apple", tag)).chain([("apples", 1)]))?;
    /// assert_eq!(txn.remove_values(&TAGS, "apple")?, 1_000);
    /// assert_eq!(txn.len(&TAGS)?, 1); // that of the other key
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`remove_value`](Self::remove_value).
    fn remove_values<K: KeyPart + ?Sized, V: Key + ?Sized>(
        &mut self,
        table: &MultiTable<K, V>,
        key: K::Ref<'_>,
    ) -> Result<u64> {
        let part = Pair::<K, V>::part(key);
        let until = behind(&part).filter(|_| !planted!(TakeValuesOfOthers));
        self.remove_between(&table.pairs, &part, until.as_deref())
    }
}

impl<W: Write> WriteMulti for W {}

/// The values of a key in order, from the front with [`next`](Self::next), from the back with [`previous`](Self::previous), or from
/// both until they meet.
///
/// ```
/// use kauri_tree::{MultiTable, ReadMulti, Store};
///
/// const SQUARES: MultiTable<str, u64> = MultiTable::new("squares");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.load_sorted_values(&SQUARES, (0..1000).map(|number| ("even", 4 * number * number)))?;
/// let mut values = txn.values(&SQUARES, "even")?;
/// assert_eq!(values.nth(10)?, Some(400));
/// assert_eq!(values.previous()?, Some(4 * 999 * 999));
/// assert_eq!(values.count()?, 988);
/// assert_eq!(values.map(|square| square).next().transpose()?, Some(484));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct Values<'a, K: ?Sized, V: ?Sized> {
    scan: Scan<'a, Pair<K, V>, ()>,
}

impl<K: KeyPart + ?Sized, V: Key + ?Sized> Values<'_, K, V> {
    /// The next value from the front; `None` when the ends have met.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store};
    ///
    /// const SCORES: MultiTable<str, i32> = MultiTable::new("scores");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&SCORES, [("ann", -3), ("ann", 12), ("bob", 7)])?;
    /// let (mut scores, mut sum) = (txn.values(&SCORES, "ann")?, 0);
    /// while let Some(score) = scores.next()? {
    ///     sum += score;
    /// }
    /// assert_eq!(sum, 9);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    #[expect(clippy::should_implement_trait, reason = "a value is borrowed, which no Iterator allows")]
    pub fn next(&mut self) -> Result<Option<V::View<'_>>> {
        Ok(self.scan.next()?.map(|((_, value), ())| value))
    }

    /// The next value from the back; `None` when the ends have met.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store};
    ///
    /// const SCORES: MultiTable<str, i32> = MultiTable::new("scores");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&SCORES, [("ann", -3), ("ann", 0), ("ann", 12)])?;
    /// let mut scores = txn.values(&SCORES, "ann")?;
    /// assert_eq!((scores.previous()?, scores.next()?), (Some(12), Some(-3))); // the best, the worst
    /// assert_eq!((scores.previous()?, scores.next()?), (Some(0), None)); // they have met
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub fn previous(&mut self) -> Result<Option<V::View<'_>>> {
        Ok(self.scan.previous()?.map(|((_, value), ())| value))
    }

    /// The next value from the front behind so many others; `None` if there are not more.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store};
    ///
    /// const VISITS: MultiTable<str, u64> = MultiTable::new("visits");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&VISITS, (0..10_000).map(|moment| ("ann", moment * 60)))?;
    /// let mut visits = txn.values(&VISITS, "ann")?;
    /// let middle = visits.count()? / 2;
    /// assert_eq!(visits.nth(middle)?, Some(300_000)); // the median; what is before it was not read
    /// assert_eq!(visits.next()?, Some(300_060));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`next`](Self::next).
    pub fn nth(&mut self, values: u64) -> Result<Option<V::View<'_>>> {
        Ok(self.scan.nth(values)?.map(|((_, value), ())| value))
    }

    /// How many values are left.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store};
    ///
    /// const SCORES: MultiTable<str, i32> = MultiTable::new("scores");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&SCORES, [("ann", -3), ("ann", 0), ("ann", 12)])?;
    /// let mut scores = txn.values(&SCORES, "ann")?;
    /// scores.next()?;
    /// assert_eq!(scores.count()?, 2); // those that are left
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged.
    pub fn count(&mut self) -> Result<u64> {
        self.scan.count()
    }

    /// An iterator over what `make` makes of each value; it ends after an error.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, ReadMulti, Store};
    ///
    /// const TAGS: MultiTable<str, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [("apple", "green"), ("apple", "red"), ("pear", "sweet")])?;
    /// let tags: Result<Vec<String>, _> = txn.values(&TAGS, "apple")?.map(|tag| tag.to_uppercase()).collect();
    /// assert_eq!(tags?, ["GREEN", "RED"]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn map<T>(self, mut make: impl FnMut(V::View<'_>) -> T) -> impl Iterator<Item = Result<T>> {
        self.scan.map(move |(_, value), ()| make(value))
    }
}

impl<K: ?Sized, V: ?Sized> fmt::Debug for Values<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Values").field(&self.scan).finish()
    }
}

impl WriteTxn<'_> {
    /// Writes pairs of keys and values that come in ascending order, all of them or none. A pair that comes several times, or is there
    /// already, is stored once; tells how many there were without those that came again. A table that is missing is made.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Read, Store};
    ///
    /// const TAGS: MultiTable<str, u32> = MultiTable::new("tags");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// assert_eq!(txn.load_sorted_values(&TAGS, [("ann", 1), ("ann", 2), ("ann", 2), ("bob", 1)])?, 3);
    /// let error = txn.load_sorted_values(&TAGS, [("cat", 2), ("cat", 2), ("cat", 1)]).unwrap_err();
    /// assert_eq!(error.to_string(), "row 2: expected a key greater than that of the row before");
    /// assert_eq!(txn.len(&TAGS)?, 3);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a pair is less than the one before, or cannot be written: the error names the pair, counted from 0, and the table is as it was.
    /// Also if the table was made for other types, or the store is full or damaged.
    pub fn load_sorted_values<'r, K: KeyPart + ?Sized, V: Key + ?Sized>(
        &mut self,
        table: &MultiTable<K, V>,
        pairs: impl IntoIterator<Item = (K::Ref<'r>, V::Ref<'r>)>,
    ) -> Result<u64> {
        // How many were loaded when a pair came again.
        let mut again = Vec::new();
        let (mut last, mut next, mut loaded) = (None::<Vec<u8>>, Vec::new(), 0);
        let once = pairs.into_iter().filter(|pair| {
            next.clear();
            Pair::<K, V>::encode_into(*pair, &mut next);
            if last.as_ref() == Some(&next) && !planted!(LoadPairAgain) {
                again.push(loaded);
                return false;
            }
            std::mem::swap(last.get_or_insert_default(), &mut next);
            loaded += 1;
            true
        });
        let result = self.load_sorted(&table.pairs, once.map(|pair| (pair, ())));
        result.map_err(|error| match error {
            Error::Row { row, error } => {
                let before = again.partition_point(|loaded| *loaded <= row);
                Error::Row { row: row + before as u64, error }
            }
            error => error,
        })
    }
}
