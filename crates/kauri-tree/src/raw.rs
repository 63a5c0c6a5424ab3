//! A table as bytes, for whoever does not know its types.

use std::borrow::Cow;
use std::fmt;

use crate::btree::{self, Of, Root};
use crate::content;
use crate::error::{Error, Result};
use crate::read::{Access, Source, get_copy, resolve};
use crate::scan::Scan;
use crate::snapshot::Snapshot;
use crate::table;

/// A table of a snapshot as the bytes of its keys and values, whatever their types.
///
/// ```
/// use kauri_tree::{Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&STOCK, "apples", 12)?;
/// txn.commit()?;
///
/// let snapshot = store.snapshot();
/// let raw = snapshot.raw("stock").expect("it was made");
/// assert_eq!((raw.types(), raw.len(), raw.is_bytewise()), ("text to u64", 1, true));
/// assert_eq!(raw.get(b"apples")?.as_deref(), Some(&12_u64.to_le_bytes()[..]));
/// assert_eq!(raw.scan()?.from(b"b").count()?, 0);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct RawTable<'a> {
    name: &'a str,
    types: &'a str,
    access: Access<'a>,
    root: Root,
}

impl Snapshot<'_> {
    /// A table as bytes; `None` if there is none of this name.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// # txn.commit()?;
    /// let snapshot = store.snapshot();
    /// assert!(snapshot.raw("stock").is_some() && snapshot.raw("stick").is_none());
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<RawTable<'_>> {
        let (name, types, root) = self.catalog().entry(name)?;
        Some(RawTable { name, types, access: self.access(), root })
    }
}

impl<'a> RawTable<'a> {
    /// The names of its types, as the store remembers them.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const SALES: Table<(u32, String), i64> = Table::new("sales");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&SALES, (20_260_221, "apples"), 3)?;
    /// # txn.commit()?;
    /// # let snapshot = store.snapshot();
    /// assert_eq!(snapshot.raw("sales").expect("it was made").types(), "(u32, text) to i64");
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn types(&self) -> &'a str {
        self.types
    }

    /// Whether its keys are in the order of their bytes. If not, only their type can find one.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// // Numbers are encoded so that their bytes sort as they do, also those below zero.
    /// const DEPTHS: Table<i32, str> = Table::new("depths");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&DEPTHS, [(-7, "cellar"), (3, "attic")])?;
    /// # txn.commit()?;
    /// # let snapshot = store.snapshot();
    /// let raw = snapshot.raw("depths").expect("it was made");
    /// assert!(raw.is_bytewise());
    /// assert_eq!(raw.scan()?.next()?.map(|(_, name)| name.into_owned()), Some(b"cellar".to_vec()));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub fn is_bytewise(&self) -> bool {
        table::is_bytewise(self.types)
    }

    /// How many rows it has.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const SQUARES: Table<u64, u64> = Table::new("squares");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&SQUARES, (0..1_000).map(|number| (number, number * number)))?;
    /// # txn.commit()?;
    /// # let snapshot = store.snapshot();
    /// assert_eq!(snapshot.raw("squares").map(|raw| raw.len()), Some(1_000));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.root.rows
    }

    /// Whether it has no rows.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.remove(&STOCK, "apples")?;
    /// # txn.commit()?;
    /// # let snapshot = store.snapshot();
    /// assert!(snapshot.raw("stock").is_some_and(|raw| raw.is_empty())); // the table is still there
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.root.rows == 0
    }

    /// The value of a key.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<u32, str> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.put(&STOCK, 7, "apples")?;
    /// # txn.commit()?;
    /// # let snapshot = store.snapshot();
    /// let raw = snapshot.raw("stock").expect("it was made");
    /// assert_eq!(raw.get(&[0, 0, 0, 7])?.as_deref(), Some(&b"apples"[..])); // keys are big-endian
    /// assert_eq!(raw.get(&[7, 0, 0, 0])?, None);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OwnOrder`] if the keys are not in the order of their bytes; also if the store is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>> {
        self.check_order()?;
        if let Some(pages) = self.access.bounded() {
            return Ok(get_copy::<Of<[u8]>>(pages, self.root, key)?.map(Cow::Owned));
        }
        let found = match self.access {
            Access::Version(pages) => btree::get::<Of<[u8]>>(pages, self.root, key)?,
            Access::Guarded(pages) => btree::get::<Of<[u8]>>(pages, self.root, key)?,
            Access::Turn(pages) => btree::get::<Of<[u8]>>(pages, self.root, key)?,
        };
        found.map(|value| resolve(self.access, value)).transpose()
    }

    /// Its rows, in order.
    ///
    /// ```
    /// use kauri_tree::{Store, Table};
    ///
    /// const STOCK: Table<str, str> = Table::new("stock");
    /// # let store = Store::in_memory()?;
    /// # let mut txn = store.begin();
    /// txn.load_sorted(&STOCK, [("apples", "red"), ("pears", "green"), ("plums", "blue")])?;
    /// # txn.commit()?;
    /// # let snapshot = store.snapshot();
    /// let rows = snapshot.raw("stock").expect("it was made").scan()?;
    /// let lengths: Result<Vec<usize>, _> = rows.from(b"p").map(|key, value| key.len() + value.len()).collect();
    /// assert_eq!(lengths?, [10, 9]);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OwnOrder`] if the keys are not in the order of their bytes.
    pub fn scan(&self) -> Result<Scan<'a, [u8], [u8]>> {
        self.check_order()?;
        Ok(Scan::new(self.access, self.root))
    }

    /// Shows all its rows to `see`, in their order, whichever that is, until `see` fails.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, str> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", "red")?;
    /// txn.commit()?;
    /// let mut bytes = 0;
    /// store.snapshot().raw("stock").expect("it was made").for_each(|key, value| {
    ///     bytes += key.len() + value.len();
    ///     Ok(())
    /// })?;
    /// assert_eq!(bytes, 9);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged, or what `see` says.
    pub fn for_each(&self, see: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        content::for_each(self.access, self.root, see)
    }

    fn check_order(&self) -> Result<()> {
        if self.is_bytewise() { Ok(()) } else { Err(Error::OwnOrder { table: self.name.into() }) }
    }
}

impl fmt::Debug for RawTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawTable({:?}, {})", self.name, self.types)
    }
}
