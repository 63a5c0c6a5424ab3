//! What differs between two versions of a store.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::{Bound, Range};

use kauri_wire::Key;

use crate::btree::{self, Between, Differ, Differing, Of, Root, Row};
use crate::error::{Error, Result};
use crate::node::{self, Node};
use crate::overflow::{REFERENCE_BYTES, Reference};
use crate::read::{Access, Source, resolve};
use crate::snapshot::{Guarded, Snapshot, VersionPages};
use crate::table::{self, Table};
use crate::value::Value;

/// How many differences are found at once, and how many bytes of them, about.
const ROWS_MAX: usize = 64;
const BYTES_MAX: usize = 32 << 10;

/// A row that is not the same in two versions.
///
/// ```
/// use kauri_tree::Difference;
///
/// fn in_words(difference: Difference<&str, u64>) -> String {
///     match difference {
///         Difference::Inserted { key, value } => format!("+ {key} {value}"),
///         Difference::Removed { key, value } => format!("- {key} {value}"),
///         Difference::Changed { key, old, new } => format!("~ {key} {old} > {new}"),
///     }
/// }
/// assert_eq!(in_words(Difference::Changed { key: "apples", old: 12, new: 11 }), "~ apples 12 > 11");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Difference<K, V> {
    /// Only the later version has it.
    Inserted {
        /// Its key.
        key: K,
        /// Its value.
        value: V,
    },
    /// Only the earlier version has it.
    Removed {
        /// Its key.
        key: K,
        /// Its value.
        value: V,
    },
    /// Both have it, with different values.
    Changed {
        /// Its key.
        key: K,
        /// Its value in the earlier version.
        old: V,
        /// Its value in the later version.
        new: V,
    },
}

impl Snapshot<'_> {
    /// The rows of a table that differ between another version and this one, in the order of their keys.
    ///
    /// What the two versions share is not looked at, so it costs what was changed between them, however many rows there are.
    /// Mostly the other version is the earlier one; if it is not, what was inserted since is told as removed.
    ///
    /// ```
    /// use kauri_tree::{Difference, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.put(&STOCK, "pears", 5)?;
    /// txn.commit()?;
    /// let before = store.snapshot();
    ///
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 11)?;
    /// txn.remove(&STOCK, "pears")?;
    /// txn.commit()?;
    /// let after = store.snapshot();
    ///
    /// let mut differences = after.diff(&before, &STOCK)?;
    /// assert_eq!(differences.next()?, Some(Difference::Changed { key: "apples", old: 12, new: 11 }));
    /// assert_eq!(differences.next()?, Some(Difference::Removed { key: "pears", value: 5 }));
    /// assert_eq!(differences.next()?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OtherStore`] if the other is no version of this store; also if either has the table for other types.
    pub fn diff<'d, K: Key + ?Sized, V: Value + ?Sized>(
        &'d self,
        since: &'d Snapshot<'_>,
        table: &Table<K, V>,
    ) -> Result<Diff<'d, K, V>> {
        self.check_same_store(since)?;
        let root = |of: &Snapshot<'_>| of.root(table.name(), Table::<K, V>::types).map(Option::unwrap_or_default);
        let roots = (root(since)?, root(self)?);
        Ok(Diff::new(Side::new(since, roots.0), Side::new(self, roots.1), Keys::Ordered))
    }

    /// The tables that differ between another version and this one, in the order of their names: those that were created or
    /// dropped, and those of which pages were written. It costs nothing for tables that were left alone.
    ///
    /// ```
    /// use kauri_tree::{Difference, Store, Table, TableChange, Write};
    ///
    /// const STOCK: Table<str, [u8]> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let before = store.snapshot();
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", b"12")?;
    /// txn.commit()?;
    ///
    /// let after = store.snapshot();
    /// let tables = after.diff_tables(&before)?;
    /// assert_eq!((tables[0].name(), tables[0].types()), ("stock", "text to bytes"));
    /// assert_eq!(tables[0].change(), TableChange::Created);
    /// tables[0].rows().for_each(|difference| {
    ///     assert_eq!(difference, Difference::Inserted { key: &b"apples"[..], value: b"12".into() });
    /// })?;
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OtherStore`] if the other is no version of this store.
    pub fn diff_tables<'d>(&'d self, since: &'d Snapshot<'_>) -> Result<Vec<TableDiff<'d>>> {
        self.check_same_store(since)?;
        let mut tables: BTreeMap<(&str, &str), [Option<Root>; 2]> = BTreeMap::new();
        for (which, snapshot) in [since, self].into_iter().enumerate() {
            for (name, types, root) in snapshot.catalog().iter() {
                tables.entry((name, types)).or_default()[which] = Some(root);
            }
        }
        let differing = tables.into_iter().filter(|(_, [old, new])| old != new);
        let mut diffs: Vec<_> = differing
            .map(|((name, types), roots)| {
                let [old, new] = roots.map(Option::unwrap_or_default);
                let change = match roots {
                    [None, _] => TableChange::Created,
                    [_, None] => TableChange::Dropped,
                    [Some(_), Some(_)] => TableChange::Written,
                };
                TableDiff { name, types, change, old: Side::new(since, old), new: Side::new(self, new) }
            })
            .collect();
        // A table that was dropped and created for other types is told in that order.
        diffs.sort_by_key(|diff| (diff.name, diff.change == TableChange::Created));
        Ok(diffs)
    }

    fn check_same_store(&self, other: &Snapshot<'_>) -> Result<()> {
        if self.is_beside(other) { Ok(()) } else { Err(Error::OtherStore) }
    }
}

/// What became of a table between two versions.
///
/// ```
/// use kauri_tree::{Store, Table, TableChange, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// # let store = Store::in_memory()?;
/// # let mut txn = store.begin();
/// # txn.put(&STOCK, "apples", 12)?;
/// # txn.commit()?;
/// let before = store.snapshot();
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?; // what it was
/// txn.commit()?;
/// let after = store.snapshot();
/// let table = after.diff_tables(&before)?[0];
/// assert_eq!(table.change(), TableChange::Written);
/// assert_eq!(table.rows().next()?, None); // a page was written, and no row differs
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableChange {
    /// Only the later version has it. All its rows were inserted.
    Created,
    /// Only the earlier version has it. All its rows were removed.
    Dropped,
    /// Both have it, and pages of it were written. Maybe no row differs.
    Written,
}

/// A table that differs between two versions. A name under which there was a table for other types before has two: one that was
/// dropped, and one that was created.
///
/// ```
/// use kauri_tree::{Store, Table, TableChange, Write};
///
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&Table::<str, u64>::new("stock"), "apples", 12)?;
/// txn.commit()?;
/// let before = store.snapshot();
/// let mut txn = store.begin();
/// txn.drop_table("stock")?;
/// txn.put(&Table::<u32, str>::new("stock"), 7, "apples")?; // under the same name
/// txn.commit()?;
///
/// let after = store.snapshot();
/// let changes: Vec<_> = after.diff_tables(&before)?.iter().map(|table| (table.change(), table.types())).collect();
/// assert_eq!(changes, [(TableChange::Dropped, "text to u64"), (TableChange::Created, "u32 to text")]);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TableDiff<'a> {
    name: &'a str,
    types: &'a str,
    change: TableChange,
    old: Side<'a>,
    new: Side<'a>,
}

impl<'a> TableDiff<'a> {
    /// The table's name.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// let store = Store::in_memory()?;
    /// let before = store.snapshot();
    /// let mut txn = store.begin();
    /// for name in ["pears", "apples"] {
    ///     txn.put(&Table::<u64, u64>::new(name), 1, 1)?;
    /// }
    /// txn.commit()?;
    /// let after = store.snapshot();
    /// assert!(after.diff_tables(&before)?.iter().map(|table| table.name()).eq(["apples", "pears"]));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// The names of its types.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const SALES: Table<(u32, String), i64> = Table::new("sales");
    /// # let store = Store::in_memory()?;
    /// # let before = store.snapshot();
    /// # let mut txn = store.begin();
    /// txn.put(&SALES, (20_260_221, "apples"), 3)?;
    /// # txn.commit()?;
    /// # let after = store.snapshot();
    /// assert_eq!(after.diff_tables(&before)?[0].types(), "(u32, text) to i64");
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn types(&self) -> &'a str {
        self.types
    }

    /// What became of it.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, TableChange, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// let before = store.snapshot();
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// let after = store.snapshot();
    /// assert_eq!(after.diff_tables(&before)?[0].change(), TableChange::Created);
    /// assert_eq!(before.diff_tables(&after)?[0].change(), TableChange::Dropped); // the other way round
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn change(&self) -> TableChange {
        self.change
    }

    /// Where the earlier and the later version have it.
    pub(crate) const fn roots(&self) -> (Root, Root) {
        (self.old.root, self.new.root)
    }

    /// The rows that differ, as bytes, in the order of their keys. If those have an order of their own, which only their type
    /// knows, they come in the order of their bytes, after all of them were gathered in memory.
    ///
    /// ```
    /// use kauri_tree::{Difference, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u32> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.put(&STOCK, "apples", 12)?;
    /// # txn.commit()?;
    /// # let before = store.snapshot();
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 11)?; // 12 before
    /// txn.commit()?;
    /// # let after = store.snapshot();
    /// let mut rows = after.diff_tables(&before)?[0].rows();
    /// let (old, new) = ([12, 0, 0, 0][..].into(), [11, 0, 0, 0][..].into());
    /// assert_eq!(rows.next()?, Some(Difference::Changed { key: &b"apples"[..], old, new }));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn rows(&self) -> Diff<'a, [u8], [u8]> {
        let keys = if table::is_bytewise(self.types) { Keys::Ordered } else { Keys::Unordered };
        Diff::new(self.old, self.new, keys)
    }
}

/// One of the two versions of a table.
#[derive(Clone, Copy, Debug)]
struct Side<'a> {
    pages: &'a VersionPages<'a>,
    root: Root,
}

impl<'a> Side<'a> {
    fn new(snapshot: &'a Snapshot<'_>, root: Root) -> Self {
        Self { pages: snapshot.version_pages(), root }
    }

    fn operation(&self) -> Option<Guarded<'a>> {
        self.pages.is_bounded().then(|| self.pages.operation())
    }

    /// A value that was found in a page.
    fn value<'s>(&'s self, bytes: &'s [u8], value: &'s Held) -> Result<Cow<'s, [u8]>> {
        match value {
            Held::Inline(range) => Ok(Cow::Borrowed(&bytes[range.clone()])),
            Held::Overflow(reference) => match self.operation() {
                None => resolve(Access::Version(self.pages), node::Value::Overflow(reference)),
                Some(operation) => {
                    let value = resolve(Access::Guarded(&operation), node::Value::Overflow(reference))?;
                    Ok(Cow::Owned(value.into_owned()))
                }
            },
        }
    }
}

/// What is known of the order of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keys {
    Ordered,
    Unordered,
}

/// The rows of a table that differ between two versions: [`Snapshot::diff`], [`TableDiff::rows`].
///
/// A difference is borrowed until the next is asked for, so this is no `Iterator`.
///
/// ```
/// use kauri_tree::{Diff, Difference, Store, Table};
///
/// const SQUARES: Table<u64, u64> = Table::new("squares");
///
/// /// How many rows came and went.
/// fn balance(mut diff: Diff<'_, u64, u64>) -> kauri_tree::Result<i64> {
///     let mut balance = 0;
///     while let Some(difference) = diff.next()? {
///         balance += match difference {
///             Difference::Inserted { .. } => 1,
///             Difference::Removed { .. } => -1,
///             Difference::Changed { .. } => 0,
///         };
///     }
///     Ok(balance)
/// }
///
/// # let store = Store::in_memory()?;
/// let before = store.snapshot();
/// let mut txn = store.begin();
/// txn.load_sorted(&SQUARES, (0..100).map(|number| (number, number * number)))?;
/// txn.commit()?;
/// let after = store.snapshot();
/// assert_eq!((balance(after.diff(&before, &SQUARES)?)?, balance(before.diff(&after, &SQUARES)?)?), (100, -100));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub struct Diff<'a, K: ?Sized, V: ?Sized> {
    old: Side<'a>,
    new: Side<'a>,
    keys: Keys,
    /// What comes next is behind this.
    behind: Option<Vec<u8>>,
    found: Found,
    ended: bool,
    types: PhantomData<fn(&K, &V)>,
}

/// Differences that were copied from pages, and which is next.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    rows: Vec<FoundRow>,
    next: usize,
}

struct FoundRow {
    key: Range<usize>,
    old: Option<Held>,
    new: Option<Held>,
}

/// A value that was found: its bytes, or where they lie.
enum Held {
    Inline(Range<usize>),
    Overflow([u8; REFERENCE_BYTES]),
}

impl Found {
    fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.next = 0;
    }

    fn push(&mut self, differing: &Differing<'_>) -> Result<()> {
        let start = self.bytes.len();
        differing.key_into(&mut self.bytes);
        let key = start..self.bytes.len();
        let (old, new) = (self.hold(differing.old)?, self.hold(differing.new)?);
        self.rows.push(FoundRow { key, old, new });
        Ok(())
    }

    fn hold(&mut self, row: Option<Row<'_>>) -> Result<Option<Held>> {
        let Some(Row { node, index }) = row else { return Ok(None) };
        Ok(Some(match node.value(index) {
            node::Value::Inline(bytes) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Held::Inline(start..self.bytes.len())
            }
            node::Value::Overflow(reference) => Held::Overflow(Reference::decode(reference)?.encode()),
        }))
    }
}

impl<'a, K: Key + ?Sized, V: Value + ?Sized> Diff<'a, K, V> {
    fn new(old: Side<'a>, new: Side<'a>, keys: Keys) -> Self {
        let ended = old.root.page == new.root.page;
        Self { old, new, keys, behind: None, found: Found::default(), ended, types: PhantomData }
    }

    /// The next row that differs.
    ///
    /// ```
    /// use kauri_tree::{Difference, Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let before = store.snapshot();
    /// # let mut txn = store.begin();
    /// txn.put(&STOCK, "pears", 5)?;
    /// txn.put(&STOCK, "apples", 12)?;
    /// # txn.commit()?;
    /// # let after = store.snapshot();
    /// let mut diff = after.diff(&before, &STOCK)?;
    /// assert_eq!(diff.next()?, Some(Difference::Inserted { key: "apples", value: 12 })); // in the order of keys
    /// assert_eq!(diff.next()?, Some(Difference::Inserted { key: "pears", value: 5 }));
    /// assert_eq!(diff.next()?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    #[expect(clippy::should_implement_trait, reason = "a row is borrowed, which no Iterator allows")]
    pub fn next(&mut self) -> Result<Option<Difference<K::View<'_>, V::View<'_>>>> {
        if self.found.next == self.found.rows.len() {
            if self.ended {
                return Ok(None);
            }
            self.fill()?;
        }
        let Found { bytes, rows, next } = &mut self.found;
        let Some(row) = rows.get(*next) else { return Ok(None) };
        *next += 1;
        let key = K::decode(&bytes[row.key.clone()])?;
        let old = row.old.as_ref().map(|held| V::decode(self.old.value(bytes, held)?)).transpose()?;
        let new = row.new.as_ref().map(|held| V::decode(self.new.value(bytes, held)?)).transpose()?;
        Ok(Some(match (old, new) {
            (Some(old), Some(new)) => Difference::Changed { key, old, new },
            (Some(value), None) => Difference::Removed { key, value },
            (None, Some(value)) => Difference::Inserted { key, value },
            (None, None) => unreachable!("a difference has a row on one side at least"),
        }))
    }

    /// Shows all differences that are left to `see`.
    ///
    /// ```
    /// use kauri_tree::{Difference, Store, Table};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// # txn.load_sorted(&STOCK, [("apples", 12), ("pears", 5)])?;
    /// # txn.commit()?;
    /// # let before = store.snapshot();
    /// let mut txn = store.begin();
    /// txn.remove_range(&STOCK, ..)?;
    /// txn.commit()?;
    /// # let after = store.snapshot();
    /// let mut lost = Vec::new();
    /// after.diff(&before, &STOCK)?.for_each(|difference| {
    ///     if let Difference::Removed { key, value } = difference {
    ///         lost.push(format!("{value} {key}"));
    ///     }
    /// })?;
    /// assert_eq!(lost, ["12 apples", "5 pears"]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or a row is not of the table's types.
    pub fn for_each(mut self, mut see: impl FnMut(Difference<K::View<'_>, V::View<'_>>)) -> Result<()> {
        while let Some(difference) = self.next()? {
            see(difference);
        }
        Ok(())
    }

    /// Finds the differences that come next.
    fn fill(&mut self) -> Result<()> {
        self.found.clear();
        let operations = (self.old.operation(), self.new.operation());
        let old = (operations.0.as_ref().map_or(Access::Version(self.old.pages), Access::Guarded), self.old.root);
        let new = (operations.1.as_ref().map_or(Access::Version(self.new.pages), Access::Guarded), self.new.root);
        if self.keys == Keys::Unordered {
            self.ended = true;
            return gather(old, new, &mut self.found);
        }
        let from = self.behind.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut differ = Differ::new(old, new, Between { from, until: Bound::Unbounded })?;
        let found = &mut self.found;
        while found.rows.len() < ROWS_MAX && found.bytes.len() < BYTES_MAX {
            match differ.next::<Of<K>>()? {
                Some(differing) => found.push(&differing)?,
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        drop(differ);
        if let Some(last) = self.found.rows.last() {
            self.behind = Some(self.found.bytes[last.key.clone()].to_vec());
        }
        Ok(())
    }
}

/// Finds all differences of trees whose keys are in an order that nobody here knows.
fn gather(old: (Access<'_>, Root), new: (Access<'_>, Root), found: &mut Found) -> Result<()> {
    let leaves = btree::unshared_leaves(old, new)?;
    let mut rows: BTreeMap<Vec<u8>, Differing<'_>> = BTreeMap::new();
    for (which, (pages, leaves)) in [old.0, new.0].into_iter().zip(&leaves).enumerate() {
        for &page in leaves {
            let node = Node::new(pages.page(page)?);
            for index in 0..node.count() {
                let mut key = Vec::new();
                node.key_into(index, &mut key);
                let differing = rows.entry(key).or_insert(Differing { old: None, new: None });
                let side = if which == 0 { &mut differing.old } else { &mut differing.new };
                *side = Some(Row { node, index });
            }
        }
    }
    for differing in rows.values() {
        if !differing.is_same(old.0, new.0)? {
            found.push(differing)?;
        }
    }
    Ok(())
}

impl<K: ?Sized, V: ?Sized> std::fmt::Debug for Diff<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Diff").field("old", &self.old.root).field("new", &self.new.root).finish_non_exhaustive()
    }
}
