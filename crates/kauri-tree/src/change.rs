//! A change: what was read from a version, and what is to be written if that still holds.
//!
//! Nothing is locked while a change is made. When it is committed, what it observed is compared with the newest state, and only if
//! all of it is as it was are the writes applied. So changes that commit are serializable: each is as if it had been made and
//! committed in one moment, that of its commit.

mod cursor;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeBounds};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kauri_wire::Key;

use crate::btree::Root;
use crate::durable::Durability;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::merge::Merge;
use crate::numbered::Counted;
use crate::overflow::VALUE_BYTES_MAX;
use crate::read::{Access, Read, Source, Write};
use crate::scan::Scan;
use crate::sequence;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::value::Value;
use crate::write::check_key;

/// What was observed in a snapshot, and what is to be written if it still holds when the change is
/// [committed](crate::Store::commit).
///
/// Observed are keys, whether they had a value or not, and ranges, with the rows that they had and those that they had not. Staged
/// are rows to put and to remove, and rows to append: those get their keys from the commit itself, so that two changes that append
/// under the same prefix are no conflict.
///
/// Dropped without a commit, it is as if it had never been. The snapshot is held as long as the change.
///
/// ```
/// use kauri_tree::{Change, Outcome, Read, Store, Table, Write};
///
/// const ACCOUNTS: Table<str, i64> = Table::new("accounts");
/// const ENTRIES: Table<(String, u64), i64> = Table::new("entries");
///
/// fn pay(store: &Store, from: &str, amount: i64) -> kauri_tree::Result<Outcome> {
///     let mut change = Change::new(store.snapshot());
///     let balance = change.get(&ACCOUNTS, from)?.unwrap_or(0);
///     change.put(&ACCOUNTS, from, balance - amount)?;
///     change.append(&ENTRIES, b"ann\x00\x01", -amount)?;
///     store.commit(change)
/// }
///
/// let store = Store::in_memory()?;
/// assert_eq!(pay(&store, "ann", 5)?, Outcome::Committed { sequences: vec![1] });
/// assert_eq!(pay(&store, "ann", 7)?, Outcome::Committed { sequences: vec![2] });
/// assert_eq!(store.snapshot().get(&ENTRIES, ("ann", 2))?, Some(-7));
///
/// // Two who saw the same balance: one of them has to look again.
/// let [mut first, mut second] = [(); 2].map(|()| Change::new(store.snapshot()));
/// for change in [&mut first, &mut second] {
///     let balance = change.get(&ACCOUNTS, "ann")?.unwrap_or(0);
///     change.put(&ACCOUNTS, "ann", balance - 1)?;
/// }
/// assert!(store.commit(first)?.is_committed());
/// assert_eq!(store.commit(second)?, Outcome::Conflict { table: "accounts".into(), key: b"ann"[..].into() });
/// assert_eq!(store.snapshot().get(&ACCOUNTS, "ann")?, Some(-13));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "a change does nothing until it is committed"]
#[derive(Debug)]
pub struct Change<'a> {
    base: Snapshot<'a>,
    /// Reading is observing, and reading needs no more than a shared borrow, which threads can share.
    observed: Mutex<ByTable<Observed>>,
    staged: ByTable<Staged>,
    appended: Vec<Appended>,
    staged_bytes: usize,
}

/// Something for each table, by name.
pub(crate) type ByTable<T> = BTreeMap<Cow<'static, str>, T>;

/// What was seen of a table.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) kind: Kind,
    /// Where the table began in the version that was read.
    pub(crate) base: Root,
    pub(crate) keys: BTreeSet<Box<[u8]>>,
    pub(crate) ranges: Vec<Range>,
}

/// A range that was seen.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) from: Bound<Box<[u8]>>,
    pub(crate) until: Bound<Box<[u8]>>,
}

/// Values by their keys; nothing for a row that is to be removed.
pub(crate) type Rows = BTreeMap<Box<[u8]>, Option<Box<[u8]>>>;

/// What is to be written to a table.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) kind: Kind,
    pub(crate) rows: Rows,
}

/// A row that is to be written under the next sequence of a prefix.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) table: Cow<'static, str>,
    pub(crate) kind: Kind,
    pub(crate) prefix: Box<[u8]>,
    pub(crate) value: Box<[u8]>,
    pub(crate) numbering: Numbering,
}

/// Where the sequence of an appended row comes from.
#[derive(Debug)]
pub(crate) enum Numbering {
    /// The sequences of its table, by prefix.
    Prefix,
    /// A row that the caller named.
    Counter(Counted),
}

/// A change that is on its way, without the snapshot it was made against: whoever waits for it holds that.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) observed: ByTable<Observed>,
    pub(crate) staged: ByTable<Staged>,
    pub(crate) appended: Vec<Appended>,
    pub(crate) staged_bytes: usize,
    pub(crate) durability: Durability,
}

/// How a commit of a [`Change`] ended.
///
/// ```
/// use kauri_tree::{Change, Outcome, Read, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// # let store = Store::in_memory()?;
/// let mut change = Change::new(store.snapshot());
/// let apples = change.get(&STOCK, "apples")?; // observed: there are none
/// change.put(&STOCK, "pears", if apples.is_none() { 5 } else { 0 })?;
///
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?; // somebody else is faster
/// txn.commit()?;
///
/// match store.commit(change)? {
///     Outcome::Committed { .. } => unreachable!("what it read has changed"),
///     Outcome::Conflict { table, key } => assert_eq!((&*table, &*key), ("stock", &b"apples"[..])),
/// }
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[must_use = "a conflict is an outcome: the change was not made"]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything observed was as it was, and everything staged is written.
    Committed {
        /// The sequences of the appended rows, in the order in which they were appended to the change.
        sequences: Vec<u64>,
    },
    /// Something observed has changed, and nothing was written. A snapshot that is taken now sees what has changed.
    Conflict {
        /// The first table, by name, that is not as it was observed.
        table: Box<str>,
        /// The first of its keys, in the table's order, that was observed and has another value now, or none, or has one now and
        /// had none: as the bytes of the key.
        key: Box<[u8]>,
    },
}

impl Outcome {
    /// Whether the change was made.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table, Write};
    ///
    /// const VISITS: Table<str, u64> = Table::new("visits");
    /// # let store = Store::in_memory()?;
    /// loop {
    ///     let mut change = Change::new(store.snapshot());
    ///     change.add(&VISITS, "ann", 1)?;
    ///     if store.commit(change)?.is_committed() {
    ///         break; // else somebody counted in between: once more, on what is there now
    ///     }
    /// }
    /// assert_eq!(store.snapshot().get(&VISITS, "ann")?, Some(1));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn is_committed(&self) -> bool {
        matches!(self, Self::Committed { .. })
    }
}

impl<'a> Change<'a> {
    /// A change against a snapshot: so far nothing is observed and nothing is staged.
    ///
    /// ```
    /// use kauri_tree::{Change, Outcome, Store};
    ///
    /// let store = Store::in_memory()?;
    /// let change = Change::new(store.snapshot());
    /// assert_eq!(store.commit(change)?, Outcome::Committed { sequences: vec![] }); // nothing to compare or to write
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    pub fn new(base: Snapshot<'a>) -> Self {
        Self { base, observed: Mutex::default(), staged: ByTable::new(), appended: Vec::new(), staged_bytes: 0 }
    }

    /// The snapshot. What is read from it directly is not observed, and so may have changed when the change is committed.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// let mut change = Change::new(store.snapshot());
    /// change.put(&STOCK, "pears", 5)?;
    /// assert_eq!(change.get(&STOCK, "pears")?, Some(5));
    /// assert_eq!(change.base().get(&STOCK, "pears")?, None); // as it was
    /// assert_eq!(change.base().get(&STOCK, "apples")?, None); // not observed
    ///
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(store.commit(change)?.is_committed());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn base(&self) -> &Snapshot<'a> {
        &self.base
    }

    fn lock(&self) -> MutexGuard<'_, ByTable<Observed>> {
        // A panic in the code of a key's type leaves what was noted whole.
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a range of a table of which something was noted before, and tells where.
    pub(crate) fn note_range(&self, table: &str, range: Range) -> Option<usize> {
        let mut observed = self.lock();
        let ranges = &mut observed.get_mut(table)?.ranges;
        ranges.push(range);
        Some(ranges.len() - 1)
    }

    /// Makes a range that was noted shorter, because a part of it was not looked at; or longer, because more was.
    pub(crate) fn adjust_range(&self, table: &str, index: usize, adjust: impl FnOnce(&mut Range)) {
        let mut observed = self.lock();
        adjust(&mut observed.get_mut(table).expect("noted before").ranges[index]);
    }

    /// What is staged for a table.
    pub(crate) fn staged_rows(&self, table: &str) -> Option<&Rows> {
        self.staged.get(table).map(|staged| &staged.rows)
    }

    /// What is staged for a key, if anything is.
    #[expect(clippy::option_option, reason = "not staged; staged to be removed; staged to be put")]
    fn staged<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
    ) -> Result<Option<Option<&[u8]>>> {
        let Some(staged) = self.staged.get(table.name()) else { return Ok(None) };
        staged.kind.check(table.name(), Kind::of::<K, V>())?;
        Ok(K::with_bytes(key, |key| staged.rows.get(key).map(Option::as_deref)))
    }

    /// Notes that a key was read from the snapshot: that it had the value it has there, or none. If it has another at the commit,
    /// that is a conflict. A value that was written again and is the same, byte for byte, is no conflict.
    ///
    /// ```
    /// use kauri_tree::{Change, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let change = Change::new(store.snapshot());
    /// change.observe(&STOCK, "apples")?; // there are none
    ///
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(!store.commit(change)?.is_committed());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    pub fn observe<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<()> {
        self.note(table, |observed| {
            K::with_bytes(key, |key| {
                if !observed.keys.contains(key) {
                    observed.keys.insert(key.into());
                }
            });
        })
    }

    /// Notes that a range of keys was read from the snapshot: that it had the rows it has there, and no others. Say the bounds that
    /// were looked at, not those that were asked for: a scan that stopped at a row has seen nothing behind it.
    ///
    /// ```
    /// use kauri_tree::{Change, Outcome, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let change = Change::new(store.snapshot());
    /// change.observe_range(&STOCK, "a".."c")?; // nothing is there
    ///
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "bananas", 3)?;
    /// txn.put(&STOCK, "cherries", 40)?;
    /// txn.commit()?;
    /// assert_eq!(store.commit(change)?, Outcome::Conflict { table: "stock".into(), key: b"bananas"[..].into() });
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the table was made for other types.
    pub fn observe_range<'k, K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        range: impl RangeBounds<K::Ref<'k>>,
    ) -> Result<()> {
        let bytes = |bound: Bound<&K::Ref<'k>>| bound.map(|key| K::encode(*key).into_boxed_slice());
        let range = Range { from: bytes(range.start_bound()), until: bytes(range.end_bound()) };
        self.note(table, |observed| observed.ranges.push(range))
    }

    fn note<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        note: impl FnOnce(&mut Observed),
    ) -> Result<()> {
        let kind = Kind::of::<K, V>();
        let mut all = self.lock();
        if let Some(observed) = all.get_mut(table.name()) {
            observed.kind.check(table.name(), kind)?;
            note(observed);
            return Ok(());
        }
        // A table that is missing has no rows.
        let base = self.base.root(table.name(), kind.types())?.unwrap_or_default();
        let mut observed = Observed { kind, base, keys: BTreeSet::new(), ranges: Vec::new() };
        note(&mut observed);
        all.insert(table.shared_name(), observed);
        Ok(())
    }

    /// Stages a row to be removed, if there is one by then. Unlike [`remove`](Write::remove), which tells whether there was one, this
    /// observes nothing.
    ///
    /// ```
    /// use kauri_tree::{Change, Read, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut change = Change::new(store.snapshot());
    /// change.erase(&STOCK, "apples")?;
    ///
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert!(store.commit(change)?.is_committed());
    /// assert_eq!(store.snapshot().get(&STOCK, "apples")?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the change uses the table with other types.
    pub fn erase<K: Key + ?Sized, V: Value + ?Sized>(&mut self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<()> {
        K::with_bytes(key, |key| self.stage(table, key, None))
    }

    fn stage<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: &[u8],
        value: Option<Box<[u8]>>,
    ) -> Result<()> {
        let kind = Kind::of::<K, V>();
        self.staged_bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        if let Some(staged) = self.staged.get_mut(table.name()) {
            staged.kind.check(table.name(), kind)?;
            staged.rows.insert(key.into(), value);
            return Ok(());
        }
        let rows = BTreeMap::from([(key.into(), value)]);
        self.staged.insert(table.shared_name(), Staged { kind, rows });
        Ok(())
    }

    /// Stages a row to be written under the next sequence of a prefix. Its key is the bytes of the prefix and then the sequence, eight
    /// bytes, big-endian; the commit chooses the sequence and tells it in [`Outcome::Committed`].
    ///
    /// The first sequence under a prefix is 1, or the one after the last row that is there already; none is used twice, not even
    /// when the rows are gone ([`SEQUENCES`](crate::SEQUENCES) remembers them), and none replaces a row. Under one prefix, later commits have
    /// greater sequences. A change that observes nothing and appends never conflicts.
    ///
    /// ```
    /// use kauri_tree::{Change, Outcome, Read, Store, Table};
    ///
    /// const EVENTS: Table<(u64, u64), str> = Table::new("events");
    /// let store = Store::in_memory()?;
    /// let changes = ["begun", "ended"].map(|event| {
    ///     let mut change = Change::new(store.snapshot());
    ///     change.append(&EVENTS, &7_u64.to_be_bytes(), event).map(|()| change)
    /// });
    /// for (change, sequence) in changes.into_iter().zip(1..) {
    ///     assert_eq!(store.commit(change?)?, Outcome::Committed { sequences: vec![sequence] });
    /// }
    /// assert_eq!(store.snapshot().get(&EVENTS, (7, 2))?.as_deref(), Some("ended"));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If prefix and sequence are not the bytes of a key of the table, or too long, or with the table's name too long for a key of
    /// [`SEQUENCES`](crate::SEQUENCES); or the value is too long.
    pub fn append<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        prefix: &[u8],
        value: V::Ref<'_>,
    ) -> Result<()> {
        let key = sequence::key(prefix, 1);
        K::decode(&key)?;
        check_key(&key, self.base.page_bytes())?;
        check_key(&<(String, Vec<u8>)>::encode((table.name(), prefix)), self.base.page_bytes())?;
        V::with_bytes(value, |value| {
            check_value(value)?;
            let (kind, prefix, value) = (Kind::of::<K, V>(), prefix.into(), value.into());
            let numbering = Numbering::Prefix;
            self.push_appended(Appended { table: table.shared_name(), kind, prefix, value, numbering });
            Ok(())
        })
    }

    pub(crate) fn push_appended(&mut self, appended: Appended) {
        self.staged_bytes += appended.prefix.len() + size_of::<u64>() + appended.value.len();
        self.appended.push(appended);
    }

    pub(crate) fn page_bytes(&self) -> usize {
        self.base.page_bytes()
    }

    /// Whether a row can be written.
    pub(crate) fn check_row(&self, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key, self.base.page_bytes())?;
        check_value(value)
    }

    /// Takes the change apart: the snapshot, and the rest.
    pub(crate) fn into_parts(self, durability: Durability) -> (Snapshot<'a>, Work) {
        let Self { base, observed, staged, appended, staged_bytes } = self;
        let observed = observed.into_inner().unwrap_or_else(PoisonError::into_inner);
        (base, Work { observed, staged, appended, staged_bytes, durability })
    }
}

impl Source for Change<'_> {
    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn access(&self) -> Access<'_> {
        self.base.access()
    }

    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn root(&self, name: &str, types: fn() -> String) -> Result<Option<Root>> {
        self.base.root(name, types)
    }

    #[expect(private_interfaces, reason = "a sealed trait's own business")]
    fn table_root<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Option<Root>> {
        self.observe_range(table, ..)?;
        self.root(table.name(), Table::<K, V>::types)
    }

    fn value_bytes<K: Key + ?Sized, V: Value + ?Sized>(
        &self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
    ) -> Result<Option<Cow<'_, [u8]>>> {
        match self.staged(table, key)? {
            Some(staged) => Ok(staged.map(Cow::Borrowed)),
            None => {
                self.observe(table, key)?;
                self.base.value_bytes(table, key)
            }
        }
    }
}

/// What was staged, and else what the snapshot has: that is observed. Rows that are appended have no keys before the commit, and are
/// not read. A scan observes as much as it was followed: from the bound where it began to the last row that it gave, or all of
/// its range if its end was met. So does a cursor: from each place where it began to where it went.
///
/// ```
/// use kauri_tree::{Change, Read, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// for (fruit, count) in [("apple", 12), ("banana", 3), ("cherry", 40)] {
///     txn.put(&STOCK, fruit, count)?;
/// }
/// txn.commit()?;
///
/// let mut change = Change::new(store.snapshot());
/// change.put(&STOCK, "avocado", 1)?;
/// let mut rows = change.scan(&STOCK)?.until("d");
/// assert_eq!(rows.next()?, Some(("apple", 12)));
/// assert_eq!(rows.next()?, Some(("avocado", 1)));
/// drop(rows);
///
/// // Nobody looked at cherries.
/// let mut txn = store.begin();
/// txn.remove(&STOCK, "cherry")?;
/// txn.commit()?;
/// assert!(store.commit(change)?.is_committed());
/// # Ok::<(), kauri_tree::Error>(())
/// ```
impl Read for Change<'_> {
    fn contains<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<bool> {
        match self.staged(table, key)? {
            Some(value) => Ok(value.is_some()),
            None => {
                self.observe(table, key)?;
                self.base.contains(table, key)
            }
        }
    }

    fn len<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<u64> {
        self.scan(table)?.count()
    }

    fn scan<K: Key + ?Sized, V: Value + ?Sized>(&self, table: &Table<K, V>) -> Result<Scan<'_, K, V>> {
        self.begin_cursor(table)?;
        let (pages, root) = (self.access(), self.root(table.name(), Table::<K, V>::types)?.unwrap_or_default());
        Ok(Scan::merged(pages, root, Merge::new(self, table.shared_name(), pages, root)))
    }
}

/// Rows are staged. Putting one observes nothing: what must hold for it to be written is to be read, or observed. Inserting and removing tell
/// what was there, and so observe the key.
impl Write for Change<'_> {
    fn put<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
    ) -> Result<()> {
        K::with_bytes(key, |key| {
            check_key(key, self.base.page_bytes())?;
            V::with_bytes(value, |value| {
                check_value(value)?;
                self.stage(table, key, Some(value.into()))
            })
        })
    }

    fn remove<K: Key + ?Sized, V: Value + ?Sized>(&mut self, table: &Table<K, V>, key: K::Ref<'_>) -> Result<bool> {
        let found = self.contains(table, key)?;
        if found {
            self.erase(table, key)?;
        }
        Ok(found)
    }

    fn remove_between<K: Key + ?Sized, V: Value + ?Sized>(
        &mut self,
        table: &Table<K, V>,
        from: &[u8],
        until: Option<&[u8]>,
    ) -> Result<u64> {
        let table = table.raw();
        let mut rows = self.scan(&table)?.at_least(from);
        rows = if let Some(until) = until { rows.below(until) } else { rows };
        let keys: Vec<Vec<u8>> = rows.map(|key, _| key.to_vec()).collect::<Result<_>>()?;
        for key in &keys {
            self.stage(&table, key, None)?;
        }
        Ok(keys.len() as u64)
    }

    fn reserve<K: Key + ?Sized>(
        &mut self,
        table: &Table<K, [u8]>,
        key: K::Ref<'_>,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        if bytes > VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong { most: VALUE_BYTES_MAX, found: bytes });
        }
        let mut value = vec![0; bytes].into_boxed_slice();
        K::with_bytes(key, |key| {
            check_key(key, self.base.page_bytes())?;
            fill(&mut value);
            self.stage(table, key, Some(value))
        })
    }
}

fn check_value(value: &[u8]) -> Result<()> {
    match value.len() {
        found if found > VALUE_BYTES_MAX => Err(Error::ValueTooLong { most: VALUE_BYTES_MAX, found }),
        _ => Ok(()),
    }
}

impl Work {
    pub(crate) fn is_empty(&self) -> bool {
        self.observed.is_empty() && !self.writes()
    }

    /// Whether it would write anything.
    pub(crate) fn writes(&self) -> bool {
        !self.staged.is_empty() || !self.appended.is_empty()
    }
}

/// Threads share changes and the scans of them, as they share snapshots.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Change<'_>>();
    is_shared::<Scan<'_, u64, u64>>();
};
