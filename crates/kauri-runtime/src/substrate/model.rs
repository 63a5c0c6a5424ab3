//! The obvious substrate: maps behind a lock. What others are compared with; nothing in it survives.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::change::SEQUENCES;
use super::watch::Watches;
use super::{Append, Change, Committed, KeyRange, Limits, Row, RowScan, Rows, Signal, Substrate, TableName, Verdict};
use crate::error::{Error, Result};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Tables = BTreeMap<String, Map>;

/// Rows in maps, a snapshot being a copy of them. Correct because nothing could be simpler; slow for the same reason.
///
/// A clone is the same substrate.
///
/// ```
/// use kauri_runtime::substrate::{Change, ModelSubstrate, Rows, Substrate};
///
/// let model = ModelSubstrate::new();
/// let mut change = Change::default();
/// change.put("fruit", *b"apple", *b"12");
/// let _ = model.commit(&change.into())?;
/// assert_eq!(model.snapshot()?.get(&"fruit".into(), b"apple")?.as_deref(), Some(&b"12"[..]));
/// # Ok::<(), kauri_runtime::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ModelSubstrate {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    tables: Mutex<Arc<Tables>>,
    watches: Watches,
    limits: Limits,
}

impl ModelSubstrate {
    /// No rows.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No rows, and none ever whose keys, values or tables' names are longer than this.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self { shared: Arc::new(Shared { limits, ..Shared::default() }) }
    }

    /// A copy of all rows of a snapshot: a fork of it.
    ///
    /// # Errors
    /// If its rows cannot be read.
    pub fn copy_of(rows: &dyn Rows) -> Result<Self> {
        let mut tables = Tables::new();
        for name in rows.tables()? {
            let mut map = Map::new();
            let mut scan = rows.scan(&Cow::Owned(name.clone()), KeyRange::ALL)?;
            while let Some((key, value)) = scan.next()? {
                map.insert(key.into_owned(), value.into_owned());
            }
            drop(scan);
            tables.insert(name, map);
        }
        let model = Self::new();
        *model.lock() = Arc::new(tables);
        Ok(model)
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Tables>> {
        self.shared.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Substrate for ModelSubstrate {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(ModelRows(Arc::clone(&self.lock()))))
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        let mut shared = self.lock();
        if let Some(conflict) = change.find_conflict(&ModelRows(Arc::clone(&shared)))? {
            return Ok(Verdict::Conflict(conflict));
        }
        self.shared.limits.check_change(change)?;
        let mut tables = Tables::clone(&shared);
        let mut removed = 0;
        for cut in &change.cuts {
            let rows = tables.entry(cut.table.to_string()).or_default();
            let before = rows.len();
            let range = KeyRange { from: &cut.from, until: cut.until.as_deref() };
            rows.retain(|key, _| !range.contains(key));
            removed += (before - rows.len()) as u64;
        }
        for (table, writes) in &change.writes {
            let rows = tables.entry(table.to_string()).or_default();
            for (key, value) in writes {
                match value {
                    Some(value) => rows.insert(key.to_vec(), value.to_vec()),
                    None => rows.remove(&key[..]),
                };
            }
        }
        let appended = change.appends.iter().map(|append| add(&mut tables, append)).collect::<Result<_>>()?;
        *shared = Arc::new(tables);
        drop(shared);
        self.shared.watches.notify(change);
        Ok(Verdict::Committed(Committed { appended, removed }))
    }

    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.shared.watches.add(table, prefix, signal);
    }
}

fn add(tables: &mut Tables, append: &Append) -> Result<u64> {
    let last = tables.entry(SEQUENCES.to_owned()).or_default().entry(append.sequence.to_vec()).or_default();
    let used = <[u8; 8]>::try_from(&last[..]).map_or(0, u64::from_le_bytes);
    let most = u64::MAX - 1;
    let seq = used.checked_add(1).ok_or(Error::Limit { of: "numbers of a sequence", most, found: used })?;
    *last = seq.to_le_bytes().to_vec();
    let key = [&append.prefix[..], &seq.to_be_bytes()].concat();
    for (table, value) in &append.also {
        tables.entry(table.to_string()).or_default().insert(key.clone(), value.to_vec());
    }
    tables.entry(append.table.to_string()).or_default().insert(key, append.value.to_vec());
    Ok(seq)
}

/// All rows, copied by whoever changes them next.
struct ModelRows(Arc<Tables>);

impl Rows for ModelRows {
    fn version(&self) -> Option<u64> {
        None
    }

    fn get(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.0.get(&**table).and_then(|rows| rows.get(key)).map(|value| Cow::Borrowed(&value[..])))
    }

    fn scan(&self, table: &TableName, range: KeyRange<'_>) -> Result<Box<dyn RowScan + '_>> {
        Ok(Box::new(ModelScan(rows_of(&self.0, table, range).collect::<Vec<_>>().into_iter())))
    }

    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64> {
        Ok(rows_of(&self.0, table, range).count() as u64)
    }

    fn tables(&self) -> Result<Vec<String>> {
        Ok(self.0.iter().filter(|(_, rows)| !rows.is_empty()).map(|(name, _)| name.clone()).collect())
    }
}

fn rows_of<'a>(tables: &'a Tables, table: &str, range: KeyRange<'_>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    let until = range.until.map_or(Bound::Unbounded, Bound::Excluded);
    // A range whose end comes before its start is empty; a map would call it a mistake.
    let rows = tables.get(table).filter(|_| range.until.is_none_or(|until| range.from < until));
    let rows = rows.map(|rows| rows.range::<[u8], _>((Bound::Included(range.from), until)));
    rows.into_iter().flatten().map(|(key, value)| (&key[..], &value[..]))
}

struct ModelScan<'a>(std::vec::IntoIter<(&'a [u8], &'a [u8])>);

impl RowScan for ModelScan<'_> {
    fn next(&mut self) -> Result<Option<Row<'_>>> {
        Ok(self.0.next().map(|(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value))))
    }

    fn previous(&mut self) -> Result<Option<Row<'_>>> {
        Ok(self.0.next_back().map(|(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value))))
    }
}
