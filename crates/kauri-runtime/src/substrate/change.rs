//! A change: what was observed, and what is to be written if that still holds.

use std::collections::BTreeMap;
use std::hash::Hasher;

use kauri_tree::Durability;
use twox_hash::XxHash3_64;

use super::{Bytes, KeyRange, Row, RowScan, Rows, TableName};
use crate::error::{Conflict, Result};

/// The staged rows of one table: a value to put, or none to remove.
pub type TableWrites = BTreeMap<Bytes, Option<Bytes>>;

/// The staged rows of all tables.
pub type Writes = BTreeMap<TableName, TableWrites>;

/// Rows that were seen, by table and key.
pub type Reads = BTreeMap<TableName, BTreeMap<Bytes, Seen>>;

/// What a commit validates and applies.
#[derive(Clone, Debug, Default)]
pub struct Change {
    /// The version that everything below was observed in, if the snapshot had one. A substrate that has not changed since does not
    /// look at the rest: what was observed elsewhere, or is only believed, must not be said with it.
    pub base: Option<u64>,
    /// Rows that must still be as they were seen.
    pub reads: Reads,
    /// Ranges that must still be as they were seen.
    pub ranges: Vec<SeenRange>,
    /// Rows to put and to remove.
    pub writes: Writes,
    /// Rows whose place the commit itself decides.
    pub appends: Vec<Append>,
    /// Ranges of which every row is removed, before anything is written.
    pub cuts: Vec<Cut>,
    /// How durable the change is when the commit returns.
    pub durability: Durability,
}

/// A range of which every row is removed: a store that keeps rows in a tree drops whole parts of it, and touches few pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The table.
    pub table: TableName,
    /// The least key.
    pub from: Bytes,
    /// The least key that is beyond, if there is such a bound.
    pub until: Option<Bytes>,
}

/// What a row was seen to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// There was none.
    Absent,
    /// There was one, whatever its value.
    Present,
    /// There was one with exactly this value.
    Value(Bytes),
    /// There was one with a value of this length and hash.
    Hashed {
        /// Its length.
        bytes: usize,
        /// Its XXH3.
        hash: u64,
    },
}

/// Up to this length a value is remembered itself, above it by its hash.
const VALUE_BYTES_MAX: usize = 64;

impl Seen {
    /// What there is to remember of a row that was read.
    #[must_use]
    pub fn of(value: Option<&[u8]>) -> Self {
        match value {
            None => Self::Absent,
            Some(value) if value.len() <= VALUE_BYTES_MAX => Self::Value(value.into()),
            Some(value) => Self::Hashed { bytes: value.len(), hash: XxHash3_64::oneshot(value) },
        }
    }

    /// Whether the row is still so.
    #[must_use]
    pub fn holds(&self, value: Option<&[u8]>) -> bool {
        match (self, value) {
            (Self::Absent, found) => found.is_none(),
            (Self::Present, found) => found.is_some(),
            (Self::Value(seen), found) => found == Some(&seen[..]),
            (Self::Hashed { bytes, hash }, Some(found)) => found.len() == *bytes && XxHash3_64::oneshot(found) == *hash,
            (Self::Hashed { .. }, None) => false,
        }
    }
}

/// From which end a range was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the least key on.
    Forward,
    /// From the greatest key on.
    Backward,
}

/// A range as it was seen: so that a row which appears, changes or vanishes in it is a conflict.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeenRange {
    /// The table.
    pub table: TableName,
    /// The least key.
    pub from: Bytes,
    /// The least key that is beyond, if there is such a bound.
    pub until: Option<Bytes>,
    /// How many rows there were.
    pub rows: u64,
    /// Their keys and values as a hash, in the order in which they were read; none if they were only counted.
    pub hash: Option<(Direction, u64)>,
}

/// The hash of rows, one after the other.
#[derive(Clone, Default)]
pub(crate) struct RowsHash {
    hasher: XxHash3_64,
    rows: u64,
}

impl RowsHash {
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.hasher.write_u64(key.len() as u64);
        self.hasher.write(key);
        self.hasher.write_u64(value.len() as u64);
        self.hasher.write(value);
        self.rows += 1;
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn finish(&self) -> u64 {
        self.hasher.finish()
    }
}

/// A row to be added under a prefix, with the next number of a sequence as the rest of its key. Numbers are never used twice, also
/// when the row is gone; so two changes that append never meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Append {
    /// The table.
    pub table: TableName,
    /// What the key begins with; the sequence number follows, eight bytes, big-endian.
    pub prefix: Bytes,
    /// The sequence that numbers are taken from: the first is 1.
    pub sequence: Bytes,
    /// The value.
    pub value: Bytes,
    /// Rows of other tables under the same key.
    pub also: Vec<(TableName, Bytes)>,
}

/// Where the substrate keeps the last number used of each sequence: the sequence's name, and the number as eight bytes,
/// little-endian.
pub(super) const SEQUENCES: &str = "sequences";

impl Change {
    /// Stages a row to put.
    pub fn put(&mut self, table: impl Into<TableName>, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.writes.entry(table.into()).or_default().insert(key.into(), Some(value.into()));
    }

    /// Stages a row to remove.
    pub fn remove(&mut self, table: impl Into<TableName>, key: impl Into<Bytes>) {
        self.writes.entry(table.into()).or_default().insert(key.into(), None);
    }

    /// Stages that all rows of a range are removed. [`Committed::removed`](super::Committed::removed) tells how many there were.
    pub fn cut(&mut self, table: impl Into<TableName>, range: KeyRange<'_>) {
        let (from, until) = (range.from.into(), range.until.map(Into::into));
        self.cuts.push(Cut { table: table.into(), from, until });
    }

    /// Demands that a row still be as it was seen. What was demanded first counts.
    pub fn expect(&mut self, table: impl Into<TableName>, key: impl Into<Bytes>, seen: Seen) {
        self.reads.entry(table.into()).or_default().entry(key.into()).or_insert(seen);
    }

    /// Whether nothing would be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.appends.is_empty() && self.cuts.is_empty()
    }

    /// About how many bytes of keys and values would be written.
    #[must_use]
    pub(crate) fn written_bytes(&self) -> usize {
        let rows = self.writes.values().flatten();
        let rows = rows.map(|(key, value)| key.len() + value.as_ref().map_or(0, |value| value.len()));
        let beside = |append: &Append| append.also.iter().map(|(_, value)| value.len()).sum::<usize>();
        let appends = self.appends.iter().map(|append| append.prefix.len() + 8 + append.value.len() + beside(append));
        rows.sum::<usize>() + appends.sum::<usize>()
    }

    /// Looks whether everything observed is so in these rows; names the first thing that is not.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub fn find_conflict(&self, rows: &(impl Rows + ?Sized)) -> Result<Option<Conflict>> {
        for (table, reads) in &self.reads {
            for (key, seen) in reads {
                if !seen.holds(rows.get(table, key)?.as_deref()) {
                    return Ok(Some(Conflict { table: table[..].into(), key: key[..].into() }));
                }
            }
        }
        for range in &self.ranges {
            if !range.holds(rows)? {
                return Ok(Some(Conflict { table: range.table[..].into(), key: range.from[..].into() }));
            }
        }
        Ok(None)
    }
}

impl SeenRange {
    fn key_range(&self) -> KeyRange<'_> {
        KeyRange { from: &self.from, until: self.until.as_deref() }
    }

    /// Whether the range is still so.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub fn holds(&self, rows: &(impl Rows + ?Sized)) -> Result<bool> {
        // Another number of rows is another range, and counting is cheap.
        if rows.count(&self.table, self.key_range())? != self.rows {
            return Ok(false);
        }
        let Some((direction, seen)) = self.hash else { return Ok(true) };
        let mut scan = rows.scan(&self.table, self.key_range())?;
        let mut hash = RowsHash::default();
        while let Some((key, value)) = step(&mut *scan, direction)? {
            hash.add(&key, &value);
        }
        Ok(hash.finish() == seen)
    }
}

fn step<'a>(scan: &'a mut (dyn RowScan + '_), direction: Direction) -> Result<Option<Row<'a>>> {
    match direction {
        Direction::Forward => scan.next(),
        Direction::Backward => scan.previous(),
    }
}
