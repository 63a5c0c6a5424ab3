//! Sequences: the numbers under which a commit appends rows.
//!
//! ```text
//! appended row:           | prefix | sequence u64be |  ->  the value
//! row of the sequences:   (table, prefix)              ->  the sequence used last
//! ```
//!
//! The sequence used last stands in a row of its own, written in the commit that uses it. So a sequence is not used again when the
//! appended rows are gone, the table was dropped, or the store was opened anew.

use kauri_wire::Key;

use crate::btree::{self, Of, Root};
use crate::catalog::Types;
use crate::error::{Error, Result};
use crate::read::{Access, Read, Source, Write};
use crate::table::Table;
use crate::write::WriteTxn;

/// The table in which commits keep the sequence used last, by table and prefix.
///
/// It is a table like any other and can be read. Who writes to it, or drops it, lets sequences be used again.
///
/// ```
/// use kauri_tree::{Change, Read, SEQUENCES, Store, Table};
///
/// const EVENTS: Table<(u64, u64), str> = Table::new("events");
/// let store = Store::in_memory()?;
/// let mut change = Change::new(store.snapshot());
/// change.append(&EVENTS, &7_u64.to_be_bytes(), "begun")?;
/// store.commit(change)?;
/// assert_eq!(store.snapshot().get(&SEQUENCES, ("events", &7_u64.to_be_bytes()))?, Some(1));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub const SEQUENCES: Table<(String, Vec<u8>), u64> = Table::new("kauri.sequences");

/// Writes a row under the next sequence of a prefix, and tells which that was.
///
/// The first is 1, or the one after the last row that lies under the prefix already. No row is ever replaced: where somebody put one
/// by hand, the sequence goes on behind it.
pub(crate) fn append<K: Key + ?Sized>(
    txn: &mut WriteTxn<'_>,
    table: &str,
    types: Types,
    prefix: &[u8],
    value: &[u8],
) -> Result<u64> {
    let used = txn.get(&SEQUENCES, (table, prefix))?;
    let root = txn.root(table, types)?.unwrap_or_default();
    let after = |sequence: u64| sequence.checked_add(1).ok_or_else(|| Error::LastSequence { table: table.into() });
    let pages = txn.access();
    let mut next = after(used.unwrap_or(0))?;
    if used.is_none() || contains::<K>(pages, root, prefix, next)? {
        let last = last_under::<K>(pages, root, prefix)?;
        next = next.max(after(last.unwrap_or(0))?);
        // Only where the order of keys is not that of their sequences.
        while contains::<K>(pages, root, prefix, next)? {
            next = after(next)?;
        }
    }
    txn.put(&SEQUENCES, (table, prefix), next)?;
    txn.put_bytes::<K>(table, types, &key(prefix, next), value)?;
    Ok(next)
}

/// The key of an appended row.
pub(crate) fn key(prefix: &[u8], sequence: u64) -> Vec<u8> {
    [prefix, &sequence.to_be_bytes()].concat()
}

fn contains<K: Key + ?Sized>(pages: Access<'_>, root: Root, prefix: &[u8], sequence: u64) -> Result<bool> {
    Ok(btree::get::<Of<K>>(&pages, root, &key(prefix, sequence))?.is_some())
}

/// The sequence of the last row under a prefix.
fn last_under<K: Key + ?Sized>(pages: Access<'_>, root: Root, prefix: &[u8]) -> Result<Option<u64>> {
    let end = key(prefix, u64::MAX);
    if btree::get::<Of<K>>(&pages, root, &end)?.is_some() {
        return Ok(Some(u64::MAX));
    }
    let mut rows = btree::Scan::new(pages);
    rows.go_to::<Of<K>>(root, &end)?;
    let Some(row) = rows.previous()? else { return Ok(None) };
    let mut found = Vec::new();
    row.node.key_into(row.index, &mut found);
    let sequence = found.strip_prefix(prefix).and_then(|sequence| sequence.try_into().ok());
    Ok(sequence.map(u64::from_be_bytes))
}
