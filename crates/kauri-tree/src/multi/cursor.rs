//! Cursors among pairs: moves that stay with a key, and those that leave it.

use std::ops::Deref;

use kauri_wire::{Key, KeyPart};

use super::Pair;
use crate::btree::{self, Of};
use crate::copies::Side;
use crate::cursor::{At, Cursor, Stand};
use crate::error::Result;
use crate::read::{Read, Source, with_pages};
use crate::table::{Table, behind};

/// Moves among the pairs of a [`MultiTable`](crate::MultiTable).
///
/// ```
/// use kauri_tree::{MultiTable, Store, WriteMulti};
///
/// const TAGS: MultiTable<u32, str> = MultiTable::new("tags");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for (fruit, tag) in [(1, "green"), (1, "red"), (1, "sweet"), (2, "yellow")] {
///     txn.put_value(&TAGS, fruit, tag)?;
/// }
/// let mut cursor = txn.cursor_mut(&TAGS)?;
/// assert_eq!(cursor.seek_key(1)?, Some("green"));
/// assert_eq!(cursor.count_of_key()?, 3);
/// assert_eq!(cursor.last_of_key()?, Some("sweet"));
/// assert_eq!(cursor.next_of_key()?, None); // it stays there
/// assert_eq!(cursor.previous_of_key()?, Some("red"));
/// assert!(cursor.remove()?); // now on the next pair
/// assert_eq!(cursor.next_of_key()?, None);
/// assert_eq!(cursor.skip_key()?, Some((2, "yellow")));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
impl<S: Deref<Target: Stand>, K: KeyPart + ?Sized, V: Key + ?Sized> Cursor<S, Pair<K, V>, ()> {
    /// Goes to the first value of a key; to where it would be if there is none.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const TAGS: MultiTable<str, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [("apple", "green"), ("apple", "red"), ("pear", "sweet")])?;
    /// let mut cursor = txn.cursor(&TAGS)?;
    /// assert_eq!(cursor.seek_key("apple")?, Some("green"));
    /// assert_eq!(cursor.seek_key("banana")?, None);
    /// assert_eq!(cursor.next_key()?, Some(("pear".into(), "sweet"))); // it was before those of the pear
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    pub fn seek_key(&mut self, key: K::Ref<'_>) -> Result<Option<V::View<'_>>> {
        let part = Pair::<K, V>::part(key);
        self.seek_bytes(&part)?;
        if !self.is_under(&part) {
            self.set_gap(&part);
        }
        self.value()
    }

    /// The value of the pair that it is on.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store, WriteMulti};
    ///
    /// const TAGS: MultiTable<u32, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put_value(&TAGS, 1, "red")?;
    /// let mut cursor = txn.cursor(&TAGS)?;
    /// assert_eq!(cursor.value()?, None); // before the first pair
    /// cursor.first()?;
    /// assert_eq!((cursor.key()?, cursor.value()?), (Some((1, "red")), Some("red")));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn value(&self) -> Result<Option<V::View<'_>>> {
        Ok(self.key()?.map(|(_, value)| value))
    }

    /// Goes to the first value of the key that it is on.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const TAGS: MultiTable<u32, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [(1, "sour"), (2, "green"), (2, "red"), (2, "sweet")])?;
    /// let mut cursor = txn.cursor(&TAGS)?;
    /// cursor.seek_exact((2, "sweet"))?;
    /// assert_eq!(cursor.first_of_key()?, Some("green")); // not that of the key before
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn first_of_key(&mut self) -> Result<Option<V::View<'_>>> {
        let Some(part) = self.part()? else { return Ok(None) };
        self.seek_bytes(&part)?;
        self.value()
    }

    /// Goes to the last value of the key that it is on.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const SCORES: MultiTable<str, u64> = MultiTable::new("scores");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&SCORES, [("ann", 3), ("ann", 12), ("bob", 7)])?;
    /// let mut cursor = txn.cursor(&SCORES)?;
    /// let mut best = Vec::new();
    /// while cursor.skip_key()?.is_some() {
    ///     best.push(cursor.last_of_key()?.expect("it is on a key"));
    /// }
    /// assert_eq!(best, [12, 7]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn last_of_key(&mut self) -> Result<Option<V::View<'_>>> {
        let Some(part) = self.part()? else { return Ok(None) };
        self.go_behind(&part);
        self.step(Side::Back)?;
        self.value()
    }

    /// Goes to the next value of the same key; stays where it is if there is none.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const TAGS: MultiTable<u32, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [(1, "green"), (1, "red"), (2, "sweet")])?;
    /// let mut cursor = txn.cursor(&TAGS)?;
    /// cursor.seek_key(1)?;
    /// assert_eq!(cursor.next_of_key()?, Some("red"));
    /// assert_eq!(cursor.next_of_key()?, None); // key 2 is another one,
    /// assert_eq!(cursor.value()?, Some("red")); // and it stays
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn next_of_key(&mut self) -> Result<Option<V::View<'_>>> {
        self.step_in_key(Side::Front)
    }

    /// Goes to the value of the same key before; stays where it is if there is none.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const TAGS: MultiTable<u32, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [(1, "sour"), (2, "green"), (2, "red")])?;
    /// let mut cursor = txn.cursor(&TAGS)?;
    /// cursor.last()?;
    /// assert_eq!(cursor.previous_of_key()?, Some("green"));
    /// assert_eq!(cursor.previous_of_key()?, None);
    /// assert_eq!(cursor.previous()?, Some(((1, "sour"), ()))); // which goes to the key before
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn previous_of_key(&mut self) -> Result<Option<V::View<'_>>> {
        self.step_in_key(Side::Back)
    }

    /// Goes to the first value of the next key; behind all of them if there is none.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const SQUARES: MultiTable<u32, u64> = MultiTable::new("squares");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&SQUARES, (0..3).flat_map(|key| (0..1_000).map(move |number| (key, number * number))))?;
    /// let (mut cursor, mut keys) = (txn.cursor(&SQUARES)?, Vec::new());
    /// while let Some((key, _)) = cursor.skip_key()? {
    ///     keys.push(key); // each key once, whatever values it has
    /// }
    /// assert_eq!(keys, [0, 1, 2]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn skip_key(&mut self) -> Result<Option<(K::Part<'_>, V::View<'_>)>> {
        if let Some(part) = self.part()? {
            self.go_behind(&part);
        }
        self.next_key()
    }

    /// Goes to the last value of the key before; before all of them if there is none.
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const TAGS: MultiTable<u32, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [(1, "green"), (1, "red"), (2, "sour"), (2, "sweet")])?;
    /// let mut cursor = txn.cursor(&TAGS)?;
    /// cursor.last()?;
    /// assert_eq!(cursor.skip_key_back()?, Some((1, "red"))); // the last one there
    /// assert_eq!(cursor.skip_key_back()?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn skip_key_back(&mut self) -> Result<Option<(K::Part<'_>, V::View<'_>)>> {
        if let Some(part) = self.part()? {
            self.set_gap(&part);
        }
        self.previous_key()
    }

    /// How many values the key has that it is on; 0 if it is on none. It costs little more than [`Read::get`](crate::Read::get).
    ///
    /// ```
    /// use kauri_tree::{MultiTable, Store};
    ///
    /// const TAGS: MultiTable<u32, str> = MultiTable::new("tags");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted_values(&TAGS, [(1, "green"), (1, "red"), (2, "sweet")])?;
    /// let mut cursor = txn.cursor(&TAGS)?;
    /// assert_eq!(cursor.count_of_key()?, 0); // before the first pair
    /// cursor.first()?;
    /// assert_eq!(cursor.count_of_key()?, 2);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`seek_key`](Self::seek_key).
    pub fn count_of_key(&self) -> Result<u64> {
        let Some(part) = self.part()? else { return Ok(0) };
        if let Some(change) = self.source().staging() {
            let mut pairs = change.scan(self.table())?.at_least(&part);
            pairs = if let Some(behind) = behind(&part) { pairs.below(&behind) } else { pairs };
            return pairs.count();
        }
        let root = self.source().root(self.table().name(), Table::<Pair<K, V>, ()>::types)?.unwrap_or_default();
        with_pages(self.source().access(), |pages| match behind(&part) {
            Some(behind) => btree::count_between::<Of<[u8]>>(&pages, root, &part, &behind),
            None => Ok(root.rows - btree::rank::<Of<[u8]>>(&pages, root, &part)?),
        })
    }

    /// What all pairs of the key begin with that it is on.
    fn part(&self) -> Result<Option<Vec<u8>>> {
        let Some(pair) = self.key_bytes() else { return Ok(None) };
        Ok(Some(pair[..Pair::<K, V>::part_bytes(pair)?].to_vec()))
    }

    /// Goes behind all pairs of a key.
    fn go_behind(&mut self, part: &[u8]) {
        match behind(part) {
            Some(behind) => self.set_gap(&behind),
            None => self.leave(At::End),
        }
    }

    fn step_in_key(&mut self, side: Side) -> Result<Option<V::View<'_>>> {
        let Some(part) = self.part()? else { return Ok(None) };
        let position = self.position();
        self.step(side)?;
        if !self.is_under(&part) {
            self.resume(&position)?;
            return Ok(None);
        }
        self.value()
    }
}
