//! What a version holds, as one number; and the rows of a table as bytes.

use std::fmt;

use twox_hash::{XxHash3_64, XxHash3_128};

use crate::btree::{self, Root, Row};
use crate::catalog::Catalog;
use crate::copies::{self, Copied};
use crate::error::{Error, Fault, Result};
use crate::read::{Access, Source, resolve};
use crate::snapshot::{Snapshot, VersionPages};

/// A number made of all tables of a version with their names, types and rows, and of nothing else: it is the same for the same
/// content, whatever the size of pages and however it came to be there.
///
/// It is a sum of a hash (XXH3, 128 bits) of each table and of each row. It finds accidents; somebody who wants to can make two
/// contents with the same.
///
/// ```
/// use kauri_tree::{Options, Store, Table, Write};
///
/// const STOCK: Table<str, u64> = Table::new("stock");
/// let fill = |store: &Store, order: [&str; 2]| -> kauri_tree::Result<_> {
///     let mut txn = store.begin();
///     for fruit in order {
///         txn.put(&STOCK, fruit, 5)?;
///     }
///     txn.commit()?;
///     store.snapshot().content_hash()
/// };
/// let one = fill(&Store::in_memory()?, ["apples", "pears"])?;
/// let other = fill(&Options::new().page_bytes(256).in_memory()?, ["pears", "apples"])?;
/// assert_eq!(one, other);
/// assert_ne!(one, fill(&Store::in_memory()?, ["apples", "plums"])?);
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ContentHash(u128);

impl ContentHash {
    /// The hash that has these bytes.
    ///
    /// ```
    /// use kauri_tree::ContentHash;
    ///
    /// let mut bytes = [0; 16];
    /// bytes[0] = 0x2a; // the lowest comes first
    /// let hash = ContentHash::from_bytes(bytes);
    /// assert!(format!("{hash}").ends_with("2a"));
    /// assert_eq!(hash.to_bytes(), bytes);
    /// ```
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// Its bytes, by which it can be kept.
    ///
    /// ```
    /// use kauri_tree::{ContentHash, Store};
    ///
    /// let hash = Store::in_memory()?.snapshot().content_hash()?;
    /// assert_eq!(ContentHash::from_bytes(hash.to_bytes()), hash);
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The sum, while it is made.
#[derive(Debug, Default)]
pub(crate) struct Summing {
    sum: u128,
    /// What hashes of the table's rows are keyed by.
    table: u64,
    scratch: Vec<u8>,
}

impl From<ContentHash> for Summing {
    fn from(hash: ContentHash) -> Self {
        Self { sum: hash.0, ..Self::default() }
    }
}

impl Summing {
    /// What follows are rows of this table, which is counted already.
    pub(crate) fn same_table(&mut self, name: &str, types: &str) {
        self.scratch.clear();
        self.scratch.extend_from_slice(&(types.len() as u64).to_le_bytes());
        self.scratch.extend_from_slice(types.as_bytes());
        self.scratch.extend_from_slice(name.as_bytes());
        self.table = XxHash3_64::oneshot(&self.scratch);
    }

    /// There is this table, and what follows are rows of it.
    pub(crate) fn table(&mut self, name: &str, types: &str) {
        self.same_table(name, types);
        self.sum = self.sum.wrapping_add(self.hash_table());
    }

    /// There is this table no more, and what follows are rows of it.
    pub(crate) fn no_table(&mut self, name: &str, types: &str) {
        self.same_table(name, types);
        self.sum = self.sum.wrapping_sub(self.hash_table());
    }

    /// A row has eight bytes at least, so that none is hashed like its table.
    fn hash_table(&self) -> u128 {
        XxHash3_128::oneshot_with_seed(self.table, &[])
    }

    /// There is this row.
    pub(crate) fn row(&mut self, key: &[u8], value: &[u8]) {
        self.sum = self.sum.wrapping_add(self.hash_row(key, value));
    }

    /// There is this row no more.
    pub(crate) fn no_row(&mut self, key: &[u8], value: &[u8]) {
        self.sum = self.sum.wrapping_sub(self.hash_row(key, value));
    }

    fn hash_row(&mut self, key: &[u8], value: &[u8]) -> u128 {
        self.scratch.clear();
        self.scratch.extend_from_slice(&(key.len() as u64).to_le_bytes());
        self.scratch.extend_from_slice(key);
        self.scratch.extend_from_slice(value);
        XxHash3_128::oneshot_with_seed(self.table, &self.scratch)
    }

    pub(crate) const fn hash(&self) -> ContentHash {
        ContentHash(self.sum)
    }
}

impl Snapshot<'_> {
    /// The hash of everything in this version. All rows are read.
    ///
    /// ```
    /// use kauri_tree::{Store, Table, Write};
    ///
    /// const STOCK: Table<str, u64> = Table::new("stock");
    /// let store = Store::in_memory()?;
    /// let empty = store.snapshot().content_hash()?;
    /// let mut txn = store.begin();
    /// txn.put(&STOCK, "apples", 12)?;
    /// txn.commit()?;
    /// assert_ne!(store.snapshot().content_hash()?, empty);
    ///
    /// let mut txn = store.begin();
    /// txn.drop_table("stock")?;
    /// txn.commit()?;
    /// assert_eq!(store.snapshot().content_hash()?, empty); // the same content again
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the store is damaged.
    pub fn content_hash(&self) -> Result<ContentHash> {
        hash(self.access(), self.catalog())
    }
}

/// The hash of all tables of a catalog.
pub(crate) fn hash(access: Access<'_>, catalog: &Catalog) -> Result<ContentHash> {
    let mut summing = Summing::default();
    for (name, types, root) in catalog.iter() {
        summing.table(name, types);
        for_each(access, root, |key, value| {
            summing.row(key, value);
            Ok(())
        })?;
    }
    Ok(summing.hash())
}

/// Shows all rows of a tree to `see`, in their order, whichever that is. No page is held while it looks, where pages come and go.
pub(crate) fn for_each(access: Access<'_>, root: Root, mut see: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    if let Some(pages) = access.bounded() {
        return for_each_copy(pages, root, see);
    }
    let mut key = Vec::new();
    let mut scan = btree::Scan::first(access, root)?;
    while let Some(Row { node, index }) = scan.next()? {
        key.clear();
        node.key_into(index, &mut key);
        see(&key, &resolve(access, node.value(index))?)?;
    }
    Ok(())
}

/// By number, since the order may be one that is not known here.
fn for_each_copy(pages: &VersionPages<'_>, root: Root, mut see: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut seen = 0;
    while seen < root.rows {
        let rows: Vec<Copied> = copies::from_nth(pages, root, seen)?;
        if rows.is_empty() {
            let fault = Fault::new("as many rows as the root says", seen);
            return Err(Error::Corrupt { page: root.page, fault });
        }
        seen += rows.len() as u64;
        for row in rows {
            let (key, value) = row.into_parts(pages)?;
            see(&key, &value)?;
        }
    }
    Ok(())
}
