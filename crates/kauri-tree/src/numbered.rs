//! Rows that are appended under numbers of a counter: a row that the one who appends names.
//!
//! ```text
//! appended row:   | prefix | number u64be |  ->  the value          and, if wanted, rows of other tables under the same key
//! counter:        a key of a table of bytes  ->  the number used last, u64le
//! ```
//!
//! Unlike a [sequence](crate::sequence), a counter can serve many prefixes, so that what comes and goes with a prefix leaves no row
//! behind.

use std::collections::BTreeMap;

use crate::change::{Appended, Change, Numbering};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::read::Read;
use crate::sequence;
use crate::table::Table;
use crate::value::Value;
use crate::write::WriteTxn;

type Bytes = Table<[u8], [u8]>;

/// A row of another table: its table and its value.
///
/// ```
/// use kauri_tree::{Beside, Change, Numbered, Read, Store, Table};
///
/// const INBOX: Table<[u8], [u8]> = Table::new("inbox");
/// const ARRIVED: Table<[u8], [u8]> = Table::new("arrived");
/// const COUNTERS: Table<[u8], [u8]> = Table::new("counters");
/// # let store = Store::in_memory()?;
/// let mut change = Change::new(store.snapshot());
/// let arrived: Beside<'_> = (ARRIVED, b"noon");
/// let counter = (&COUNTERS, &b"inbox"[..]);
/// change.append_numbered(Numbered { table: &INBOX, prefix: b"ann", value: b"hello", counter, also: &[arrived] })?;
/// assert!(store.commit(change)?.is_committed());
/// let key = [&b"ann"[..], &1_u64.to_be_bytes()].concat(); // one key in both tables
/// assert_eq!(store.snapshot().get(&INBOX, &key)?.as_deref(), Some(&b"hello"[..]));
/// assert_eq!(store.snapshot().get(&ARRIVED, &key)?.as_deref(), Some(&b"noon"[..]));
/// # Ok::<(), kauri_tree::Error>(())
/// ```
pub type Beside<'r> = (Table<[u8], [u8]>, &'r [u8]);

/// A row to be [appended](Change::append_numbered) under the next number of a counter.
///
/// ```
/// use kauri_tree::{Change, Numbered, Outcome, Store, Table, Write};
///
/// const LOG: Table<[u8], [u8]> = Table::new("log");
/// const COUNTERS: Table<[u8], [u8]> = Table::new("counters");
/// # let store = Store::in_memory()?;
/// let mut txn = store.begin();
/// txn.put(&COUNTERS, b"log", &41_u64.to_le_bytes())?; // so many were used
/// txn.commit()?;
/// let mut change = Change::new(store.snapshot());
/// let counter = (&COUNTERS, &b"log"[..]);
/// change.append_numbered(Numbered { table: &LOG, prefix: b"", value: b"began", counter, also: &[] })?;
/// assert_eq!(store.commit(change)?, Outcome::Committed { sequences: vec![42] });
/// # Ok::<(), kauri_tree::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'r> {
    /// The table.
    pub table: &'r Table<[u8], [u8]>,
    /// What the key begins with; the number follows, eight bytes, big-endian.
    pub prefix: &'r [u8],
    /// The value.
    pub value: &'r [u8],
    /// The table and the key of the counter. Its value is the number used last, eight bytes, little-endian; none is 0.
    pub counter: (&'r Table<[u8], [u8]>, &'r [u8]),
    /// Rows of other tables under the same key.
    pub also: &'r [Beside<'r>],
}

/// Where the number of an appended row is counted, and what else is written under its key.
#[derive(Debug)]
pub(crate) struct Counted {
    table: Bytes,
    key: Box<[u8]>,
    also: Vec<(Bytes, Box<[u8]>)>,
}

impl Change<'_> {
    /// Stages a row to be written under the next number of a counter; the commit chooses the number and tells it among the sequences
    /// of [`Outcome::Committed`](crate::Outcome::Committed). A row that has this key already is replaced: whoever appends under a
    /// prefix in this way does so in no other.
    ///
    /// ```
    /// use kauri_tree::{Change, Numbered, Outcome, Read, Store, Table};
    ///
    /// const TIMERS: Table<[u8], [u8]> = Table::new("timers");
    /// const COUNTERS: Table<[u8], [u8]> = Table::new("counters");
    /// let store = Store::in_memory()?;
    /// let mut change = Change::new(store.snapshot());
    /// for due in [b"noon", b"dusk"] {
    ///     let counter = (&COUNTERS, &b"timers"[..]);
    ///     change.append_numbered(Numbered { table: &TIMERS, prefix: due, value: b"tea", counter, also: &[] })?;
    /// }
    /// assert_eq!(store.commit(change)?, Outcome::Committed { sequences: vec![1, 2] });
    /// assert_eq!(store.snapshot().get(&COUNTERS, b"timers")?.as_deref(), Some(&2_u64.to_le_bytes()[..]));
    /// # Ok::<(), kauri_tree::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a key or a value is too long.
    pub fn append_numbered(&mut self, row: Numbered<'_>) -> Result<()> {
        self.check_row(&sequence::key(row.prefix, 1), row.value)?;
        self.check_row(row.counter.1, &[])?;
        let mut also = Vec::with_capacity(row.also.len());
        for (table, value) in row.also {
            self.check_row(&[], value)?;
            also.push((table.clone(), Box::from(*value)));
        }
        let counted = Counted { table: row.counter.0.clone(), key: row.counter.1.into(), also };
        self.push_appended(Appended {
            table: row.table.shared_name(),
            kind: Kind::of::<[u8], [u8]>(),
            prefix: row.prefix.into(),
            value: row.value.into(),
            numbering: Numbering::Counter(counted),
        });
        Ok(())
    }
}

impl Counted {
    /// The tables that are written besides that of the row itself.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &str> {
        [self.table.name()].into_iter().chain(self.also.iter().map(|(table, _)| table.name()))
    }
}

/// The counters of a change, each read once and written once.
#[derive(Default)]
pub(crate) struct Counters<'w> {
    used: BTreeMap<(&'w str, &'w [u8]), u64>,
}

impl<'w> Counters<'w> {
    /// Writes a row under the next number, and tells which that was.
    pub(crate) fn append(
        &mut self,
        txn: &mut WriteTxn<'_>,
        appended: &'w Appended,
        counted: &'w Counted,
    ) -> Result<u64> {
        let counter = (counted.table.name(), &*counted.key);
        let used = match self.used.get(&counter) {
            Some(used) => *used,
            None => last_used(txn, counted)?,
        };
        let number = used.checked_add(1).ok_or_else(|| Error::LastSequence { table: appended.table[..].into() })?;
        self.used.insert(counter, number);
        let key = sequence::key(&appended.prefix, number);
        let types = Bytes::types;
        txn.put_bytes::<[u8]>(&appended.table, types, &key, &appended.value)?;
        for (table, value) in &counted.also {
            txn.put_bytes::<[u8]>(table.name(), types, &key, value)?;
        }
        Ok(number)
    }

    /// Writes down what was used.
    pub(crate) fn write(self, txn: &mut WriteTxn<'_>) -> Result<()> {
        for ((table, key), used) in self.used {
            txn.put_bytes::<[u8]>(table, Bytes::types, key, &used.to_le_bytes())?;
        }
        Ok(())
    }
}

fn last_used(txn: &WriteTxn<'_>, counted: &Counted) -> Result<u64> {
    txn.get(&counted.table, &counted.key)?.map_or(Ok(0), u64::decode)
}
