//! Kauri's store as a substrate. Every table in it is one of bytes.
//!
//! A commit takes the writer's turn, looks whether what was observed still holds, applies the change and gives up the turn before
//! it waits for the disk: so the commits of many threads share a sync.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kauri_tree::{Read, Scan, Snapshot, Store, Table, Write, WriteTxn};

use super::change::SEQUENCES;
use super::watch::Watches;
use super::{Append, Change, Committed, KeyRange, Row, RowScan, Rows, Signal, Substrate, TableName, Verdict};
use crate::error::{Error, Result};

type Bytes = Table<[u8], [u8]>;
type BytesScan<'a> = Scan<'a, [u8], [u8]>;

/// A store, used by a runtime. While it is, nobody else writes to the store: versions are counted here.
pub struct TreeSubstrate {
    store: Store,
    watches: Watches,
    /// How many changes were applied, and how many of them every new snapshot has.
    applied: AtomicU64,
    visible: AtomicU64,
}

impl TreeSubstrate {
    /// The runtime's view of this store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, watches: Watches::default(), applied: AtomicU64::new(0), visible: AtomicU64::new(0) }
    }

    /// The store itself, to be read.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }
}

impl fmt::Debug for TreeSubstrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeSubstrate").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Substrate for TreeSubstrate {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>> {
        // The count is read first: the snapshot may have more than it says, never less.
        let version = self.visible.load(Ordering::Acquire);
        Ok(Box::new(TreeRows { version, snapshot: self.store.snapshot() }))
    }

    fn commit(&self, change: &Change) -> Result<Verdict> {
        let mut txn = self.store.begin();
        // Only whoever has the turn changes `applied`.
        let applied = self.applied.load(Ordering::Relaxed);
        if change.base != Some(applied)
            && let Some(conflict) = change.find_conflict(&TurnRows(&txn))?
        {
            return Ok(Verdict::Conflict(conflict));
        }
        let appended = apply(&mut txn, change)?;
        if !change.is_empty() {
            self.applied.store(applied + 1, Ordering::Relaxed);
        }
        txn.commit_with(change.durability)?;
        if !change.is_empty() {
            // Versions become visible in their order, so all before this one are visible too.
            self.visible.fetch_max(applied + 1, Ordering::Release);
            self.watches.notify(change);
        }
        Ok(Verdict::Committed(Committed { appended }))
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.watches.add(table, prefix, signal);
    }
}

fn apply(txn: &mut WriteTxn<'_>, change: &Change) -> Result<Vec<u64>> {
    for (name, writes) in &change.writes {
        let table = table(name);
        for (key, value) in writes {
            match value {
                Some(value) => txn.put(&table, key, value)?,
                None => drop(txn.remove(&table, key)?),
            }
        }
    }
    append_all(txn, &change.appends)
}

/// Adds the rows, each with the next number of its sequence.
fn append_all(txn: &mut WriteTxn<'_>, appends: &[Append]) -> Result<Vec<u64>> {
    const NUMBERS: Bytes = Table::new(SEQUENCES);
    let mut last: BTreeMap<&[u8], u64> = BTreeMap::new();
    let mut appended = Vec::with_capacity(appends.len());
    for append in appends {
        let used = match last.get(&append.sequence[..]) {
            Some(used) => *used,
            None => last_used(txn.get(&NUMBERS, &append.sequence)?.as_deref())?,
        };
        let most = u64::MAX - 1;
        let seq = used.checked_add(1).ok_or(Error::Limit { of: "numbers of a sequence", most, found: used })?;
        last.insert(&append.sequence, seq);
        let key = [&append.prefix[..], &seq.to_be_bytes()].concat();
        txn.put(&table(&append.table), &key, &append.value)?;
        for (name, value) in &append.also {
            txn.put(&table(name), &key, value)?;
        }
        appended.push(seq);
    }
    for (sequence, seq) in last {
        txn.put(&NUMBERS, sequence, &seq.to_le_bytes())?;
    }
    Ok(appended)
}

fn last_used(value: Option<&[u8]>) -> Result<u64> {
    match value {
        None => Ok(0),
        Some(value) => match value.try_into() {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(_) => Err(Error::damaged(SEQUENCES, "a number of eight bytes")),
        },
    }
}

fn table(name: &TableName) -> Bytes {
    match name {
        Cow::Borrowed(name) => Table::new(name),
        Cow::Owned(name) => Table::named(name.clone()),
    }
}

struct TreeRows<'a> {
    version: u64,
    snapshot: Snapshot<'a>,
}

impl Rows for TreeRows<'_> {
    fn version(&self) -> Option<u64> {
        Some(self.version)
    }

    fn get(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        get(&self.snapshot, table, key)
    }

    fn scan(&self, table: &TableName, range: KeyRange<'_>) -> Result<Box<dyn RowScan + '_>> {
        scan(&self.snapshot, table, range).map(|scan| Box::new(TreeScan(scan)) as Box<dyn RowScan + '_>)
    }

    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64> {
        Ok(scan(&self.snapshot, table, range)?.count()?)
    }

    fn tables(&self) -> Result<Vec<String>> {
        let names: Vec<String> = self.snapshot.tables().map(str::to_owned).collect();
        let mut filled = Vec::with_capacity(names.len());
        for name in names {
            if self.count(&Cow::Owned(name.clone()), KeyRange::ALL)? > 0 {
                filled.push(name);
            }
        }
        Ok(filled)
    }
}

/// What a transaction sees: for looking whether an observation still holds.
struct TurnRows<'a, 'b>(&'a WriteTxn<'b>);

impl Rows for TurnRows<'_, '_> {
    fn version(&self) -> Option<u64> {
        None
    }

    fn get(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        get(self.0, table, key)
    }

    fn scan(&self, table: &TableName, range: KeyRange<'_>) -> Result<Box<dyn RowScan + '_>> {
        scan(self.0, table, range).map(|scan| Box::new(TreeScan(scan)) as Box<dyn RowScan + '_>)
    }

    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64> {
        Ok(scan(self.0, table, range)?.count()?)
    }

    fn tables(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn get<'a>(from: &'a impl Read, name: &TableName, key: &[u8]) -> Result<Option<Cow<'a, [u8]>>> {
    Ok(from.get(&table(name), key)?)
}

fn scan<'a>(from: &'a impl Read, name: &TableName, range: KeyRange<'_>) -> Result<BytesScan<'a>> {
    let scan = from.scan(&table(name))?.from(range.from);
    Ok(match range.until {
        Some(until) => scan.until(until),
        None => scan,
    })
}

struct TreeScan<'a>(BytesScan<'a>);

impl RowScan for TreeScan<'_> {
    fn next(&mut self) -> Result<Option<Row<'_>>> {
        Ok(self.0.next()?.map(|(key, value)| (Cow::Borrowed(key), value)))
    }

    fn previous(&mut self) -> Result<Option<Row<'_>>> {
        Ok(self.0.previous()?.map(|(key, value)| (Cow::Borrowed(key), value)))
    }
}
