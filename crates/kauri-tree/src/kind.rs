//! A table whose types the compiler knows no more: what can be done to it by bytes.
//!
//! Changes of many types wait in one queue, and whoever commits them has never heard of their tables.

use std::cmp::Ordering;

use kauri_wire::Key;

use crate::btree::{self, Between, Of, Root, See};
use crate::catalog::Types;
use crate::error::{Error, Result};
use crate::read::Access;
use crate::sequence;
use crate::table::Table;
use crate::value::Value;
use crate::write::WriteTxn;

/// What the types of a table's keys and values make of bytes.
#[derive(Clone, Copy)]
#[expect(clippy::type_complexity, reason = "a table of functions, each called in one place")]
pub(crate) struct Kind {
    types: Types,
    compare: fn(&[u8], &[u8]) -> Ordering,
    is_same: fn(Access<'_>, Root, Root, &[u8]) -> Result<bool>,
    first_difference: fn(Access<'_>, Root, Root, Between<'_>) -> Result<Option<Vec<u8>>>,
    differences: fn(Access<'_>, Root, Root, Between<'_>, &mut See<'_>) -> Result<()>,
    put: fn(&mut WriteTxn<'_>, &str, Types, &[u8], &[u8]) -> Result<()>,
    remove: fn(&mut WriteTxn<'_>, &str, Types, &[u8]) -> Result<bool>,
    append: fn(&mut WriteTxn<'_>, &str, Types, &[u8], &[u8]) -> Result<u64>,
}

impl Kind {
    pub(crate) fn of<K: Key + ?Sized, V: Value + ?Sized>() -> Self {
        Self {
            types: Table::<K, V>::types,
            compare: K::compare,
            is_same: btree::is_same::<Of<K>>,
            first_difference: btree::first_difference::<Of<K>>,
            differences: btree::differences::<Of<K>>,
            put: |txn, table, types, key, value| txn.put_bytes::<K>(table, types, key, value),
            remove: |txn, table, types, key| txn.remove_bytes::<K>(table, types, key),
            append: sequence::append::<K>,
        }
    }

    pub(crate) fn types(self) -> Types {
        self.types
    }

    /// Whether a table that is used as this can be used as the other.
    pub(crate) fn check(self, table: &str, other: Self) -> Result<()> {
        // The same function makes the same names; others may.
        if self.types as usize == other.types as usize {
            return Ok(());
        }
        let (found, expected) = ((self.types)(), (other.types)());
        match found == expected {
            true => Ok(()),
            false => Err(Error::OtherTypes { table: table.into(), expected: expected.into(), found: found.into() }),
        }
    }

    pub(crate) fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        (self.compare)(left, right)
    }

    /// Whether a key has the same value in both trees, or is missing from both.
    pub(crate) fn is_same(self, pages: Access<'_>, old: Root, new: Root, key: &[u8]) -> Result<bool> {
        (self.is_same)(pages, old, new, key)
    }

    /// The least key of a range that has not the same value in both trees.
    pub(crate) fn first_difference(
        self,
        pages: Access<'_>,
        old: Root,
        new: Root,
        range: Between<'_>,
    ) -> Result<Option<Vec<u8>>> {
        (self.first_difference)(pages, old, new, range)
    }

    /// Shows what a range of keys has in the new tree where that is not what it has in the old.
    pub(crate) fn differences(
        self,
        pages: Access<'_>,
        old: Root,
        new: Root,
        range: Between<'_>,
        see: &mut See<'_>,
    ) -> Result<()> {
        (self.differences)(pages, old, new, range, see)
    }

    pub(crate) fn put(self, txn: &mut WriteTxn<'_>, table: &str, key: &[u8], value: &[u8]) -> Result<()> {
        (self.put)(txn, table, self.types, key, value)
    }

    pub(crate) fn remove(self, txn: &mut WriteTxn<'_>, table: &str, key: &[u8]) -> Result<bool> {
        (self.remove)(txn, table, self.types, key)
    }

    /// Writes a row under the next sequence of a prefix, and tells which that was.
    pub(crate) fn append(self, txn: &mut WriteTxn<'_>, table: &str, prefix: &[u8], value: &[u8]) -> Result<u64> {
        (self.append)(txn, table, self.types, prefix, value)
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kind({})", (self.types)())
    }
}
