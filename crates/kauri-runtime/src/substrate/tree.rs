//! Kauri's store as a substrate. Every table in it is one of bytes.
//!
//! ```text
//! what was observed, by value ──> compared with the newest snapshot, in nobody's way ──> a change of the store against that snapshot
//!                                       ^                                                 ──> the store's queue: one transaction and
//!                                       └────────── something observed has changed since ──────   one sync for all who wait there
//! ```
//!
//! In the writer's turn the store compares by the pages that versions share, so a range of many rows is looked at whole only
//! outside of it. What observed little is compared in that turn alone, by value: an errand of the store's, see [`Substrate::post`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use kauri_tree::{
    Beside, Change as Staged, Errand, Numbered, Outcome, Read, Scan, Snapshot, Store, Table, Value, Write, WriteTxn,
};

use super::change::SEQUENCES;
use super::watch::Watches;
use super::{
    Append, Change, Committed, Early, KeyRange, Limits, Posted, Row, RowScan, Rows, Seen, SeenRange, Signal, Substrate,
    TableName, Verdict,
};
use crate::error::{Conflict, Error, Result};

type Bytes = Table<[u8], [u8]>;
type BytesScan<'a> = Scan<'a, [u8], [u8]>;

/// A store, used by a runtime.
///
/// Others may write to it too; those who watch are told of what is committed here.
pub struct TreeSubstrate {
    store: Store,
    /// The store has watches of its own. They find out what changed by comparing versions, in the writer's turn and once for each
    /// watch. Here a change says itself what it puts.
    watches: Arc<Watches>,
    /// The store is in memory: no commit waits for a disk.
    is_in_memory: bool,
    limits: Limits,
}

impl TreeSubstrate {
    /// The runtime's view of this store.
    #[must_use]
    pub fn new(store: Store) -> Self {
        // Only a store in memory has no log.
        let is_in_memory = store.stat().log_bytes == 0;
        let key_bytes_max = store.key_bytes_max();
        // The names of our tables' types are short enough that theirs are as long as keys in pages of any size.
        let limits = Limits { key_bytes_max, name_bytes_max: key_bytes_max, value_bytes_max: Store::VALUE_BYTES_MAX };
        Self { store, watches: Arc::default(), is_in_memory, limits }
    }

    /// The store itself.
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
        Ok(Box::new(TreeRows(self.store.snapshot())))
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        if !change.cuts.is_empty() {
            return self.cut(change);
        }
        if let Some(verdict) = self.commit_at_once(change)? {
            return Ok(verdict);
        }
        if compares_little(change) {
            let verdict = verdict(self.store.perform(errand(change))?);
            if let Verdict::Committed(_) = &verdict {
                self.watches.notify(change);
            }
            return Ok(verdict);
        }
        loop {
            let rows = TreeRows(self.store.snapshot());
            if change.base != rows.version()
                && let Some(conflict) = change.find_conflict(&rows)?
            {
                return Ok(Verdict::Conflict(conflict));
            }
            let staged = stage(rows.0, change)?;
            match self.store.commit_with(staged, change.durability)? {
                Outcome::Committed { sequences } => {
                    self.watches.notify(change);
                    return Ok(Verdict::Committed(Committed { appended: sequences, removed: 0 }));
                }
                // Another was quicker. Whether what it changed is what was observed is to be seen: a row may be there still, with
                // another value.
                Outcome::Conflict { .. } => {}
            }
        }
    }

    fn commit_early(&self, change: &Arc<Change>, after: &Early) -> Result<(Verdict, Early)> {
        if self.is_in_memory || !change.cuts.is_empty() {
            self.wait(after)?;
            return Ok((self.commit(change)?, Early::default()));
        }
        if let Some((appended, early)) = self.commit_early_at_once(change)? {
            return Ok((Verdict::Committed(Committed { appended, removed: 0 }), early));
        }
        loop {
            let rows = TreeRows(self.newest_with(after)?);
            if change.base != rows.version()
                && let Some(conflict) = change.find_conflict(&rows)?
            {
                return Ok((Verdict::Conflict(conflict), Early::default()));
            }
            let staged = stage(rows.0, change)?;
            let (watches, put) = (Arc::clone(&self.watches), Arc::clone(change));
            let (outcome, early) = self.store.commit_early(staged, change.durability, move || watches.notify(&put))?;
            // As in `commit`: another was quicker, and can be seen by now.
            if let Outcome::Committed { sequences } = outcome {
                return Ok((Verdict::Committed(Committed { appended: sequences, removed: 0 }), Early::new(early)));
            }
        }
    }

    fn snapshot_with(&self, early: &Early) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(TreeRows(self.newest_with(early)?)))
    }

    fn wait(&self, early: &Early) -> Result<()> {
        Ok(early.of().map_or(Ok(()), |early| self.store.wait_early(early))?)
    }

    fn post(&self, change: &Arc<Change>) -> Result<Posted> {
        if self.is_in_memory || !change.cuts.is_empty() || !compares_little(change) {
            return self.commit(change).map(Posted::done);
        }
        let (watches, put) = (Arc::clone(&self.watches), Arc::clone(change));
        Ok(Posted::new(self.store.post(errand(change).then(move || watches.notify(&put)))))
    }

    fn settle(&self, posted: Posted) -> Result<Verdict> {
        match posted.into_of::<kauri_tree::Posted>() {
            Ok(posted) => Ok(verdict(posted.settle()?)),
            Err(verdict) => Ok(verdict),
        }
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.watches.add(table, prefix, signal);
    }
}

impl TreeSubstrate {
    /// A version that has what was committed early.
    fn newest_with(&self, early: &Early) -> Result<Snapshot<'_>> {
        Ok(early.of().map_or_else(|| Ok(self.store.snapshot()), |early| self.store.snapshot_with(early))?)
    }

    /// Commits a change that cuts ranges: in a transaction of its own, because the store's changes have none. It is short, as every
    /// commit is: whole parts of trees are dropped without being looked at.
    fn cut(&self, change: &Change) -> Result<Verdict> {
        assert!(change.ranges.is_empty() && change.appends.is_empty(), "who cuts neither appends nor demands ranges");
        let mut txn = self.store.begin();
        for (name, reads) in &change.reads {
            for (key, seen) in reads {
                if !seen.holds(txn.get(&table(name), key)?.as_deref()) {
                    return Ok(Verdict::Conflict(Conflict { table: name[..].into(), key: key[..].into() }));
                }
            }
        }
        let mut removed = 0;
        for cut in &change.cuts {
            let until = cut.until.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            removed += txn.remove_range(&table(&cut.table), (Bound::Included(&cut.from[..]), until))?;
        }
        write(&mut txn, change)?;
        txn.commit_with(change.durability)?;
        self.watches.notify(change);
        Ok(Verdict::Committed(Committed { appended: Vec::new(), removed }))
    }

    /// Commits a change against the newest version, if nobody else writes and no disk is to be waited for: there is nobody to share a sync
    /// with, so it is not staged anew for the store's queue.
    fn commit_at_once(&self, change: &Change) -> Result<Option<Verdict>> {
        if !self.is_in_memory || change.base.is_none() {
            return Ok(None);
        }
        let Some(mut txn) = self.store.try_begin() else { return Ok(None) };
        // Nobody else commits in our turn: so this is the version that the transaction began with.
        if change.base != Some(self.store.snapshot().version()) {
            return Ok(None);
        }
        write(&mut txn, change)?;
        let appended = write_appends(&mut txn, &change.appends)?;
        txn.commit_with(change.durability)?;
        self.watches.notify(change);
        Ok(Some(Verdict::Committed(Committed { appended, removed: 0 })))
    }

    /// Takes the writer's turn, if it is free or will be in a moment: most turns are shorter than it takes to be put to sleep and woken, and
    /// whoever is woken may find that another was quicker, again and again.
    fn begin_soon(&self) -> Option<WriteTxn<'_>> {
        /// Ten or twenty microseconds, as long as a turn or two.
        const TRIES: usize = 50;
        (0..TRIES).find_map(|_| {
            self.store.try_begin().or_else(|| {
                (0..8).for_each(|_| std::hint::spin_loop());
                None
            })
        })
    }

    /// Commits a change early that observed little, if its turn comes soon and nothing is in its way: it is compared in the writer's turn
    /// instead, row by row, which costs less than to compare it before, to stage it anew, and to compare it again.
    fn commit_early_at_once(&self, change: &Arc<Change>) -> Result<Option<(Vec<u64>, Early)>> {
        if !compares_little(change) {
            return Ok(None);
        }
        let Some(mut txn) = self.begin_soon() else { return Ok(None) };
        let Outcome::Committed { sequences } = write_if_so(&mut txn, change)? else {
            // Whoever is told of a conflict is to see it: that is the other way's.
            return Ok(None);
        };
        let (watches, put) = (Arc::clone(&self.watches), Arc::clone(change));
        let early = txn.commit_early(change.durability, move || watches.notify(&put))?;
        Ok(Some((sequences, Early::new(early))))
    }
}

/// Whether what a change observed can be compared in the writer's turn: nobody waits long for whoever does.
fn compares_little(change: &Change) -> bool {
    const ROWS_MAX: usize = 256;
    const RANGE_ROWS_MAX: u64 = 16;
    change.reads.values().map(BTreeMap::len).sum::<usize>() <= ROWS_MAX
        && change.ranges.iter().fold(0_u64, |rows, range| rows.saturating_add(range.rows)) <= RANGE_ROWS_MAX
}

/// A change as work to be done in the writer's turn.
fn errand(change: &Arc<Change>) -> Errand {
    let work = Arc::clone(change);
    Errand::new(move |txn| write_if_so(txn, &work).map_err(into_store_error))
        .durability(change.durability)
        .bytes(change.written_bytes())
}

fn verdict(outcome: Outcome) -> Verdict {
    match outcome {
        Outcome::Committed { sequences } => Verdict::Committed(Committed { appended: sequences, removed: 0 }),
        Outcome::Conflict { table, key } => Verdict::Conflict(Conflict { table, key }),
    }
}

/// What went wrong in the store, as the store says it.
fn into_store_error(error: Error) -> kauri_tree::Error {
    match error {
        Error::Store(error) => error,
        Error::Wire(error) => error.into(),
        other => kauri_tree::Error::Io(std::io::Error::other(other)),
    }
}

/// Writes and removes what a change says.
fn write(txn: &mut WriteTxn<'_>, change: &Change) -> Result<()> {
    for (name, writes) in &change.writes {
        let table = table(name);
        for (key, value) in writes {
            match value {
                Some(value) => txn.put(&table, key, value)?,
                None => drop(txn.remove(&table, key)?),
            }
        }
    }
    Ok(())
}

/// Writes what a change says, if everything that it observed is so. If not, some of it may be written: the transaction is to be given
/// up. The way to a row that was observed and is written is looked for once.
fn write_if_so(txn: &mut WriteTxn<'_>, change: &Change) -> Result<Outcome> {
    let conflict = |table: &TableName, key: &[u8]| Ok(Outcome::Conflict { table: table[..].into(), key: key.into() });
    // Before anything is written: a change may put a row into a range that was empty.
    for range in &change.ranges {
        if !range.holds(&TurnRows(txn))? {
            return conflict(&range.table, &range.from);
        }
    }
    for (name, reads) in &change.reads {
        let (table, written) = (table(name), change.writes.get(name));
        for (key, seen) in reads.iter().filter(|(key, _)| written.is_none_or(|rows| !rows.contains_key(*key))) {
            if !seen.holds(txn.get(&table, key)?.as_deref()) {
                return conflict(name, key);
            }
        }
    }
    for (name, writes) in &change.writes {
        let (table, reads) = (table(name), change.reads.get(name));
        for (key, value) in writes {
            let seen = reads.and_then(|reads| reads.get(key));
            let is_so = match (value, seen) {
                (Some(value), None) => txn.put(&table, key, value).map(|()| true)?,
                (Some(value), Some(seen)) => {
                    let mut is_so = false;
                    txn.update(&table, key, |old| {
                        is_so = seen.holds(old.as_deref());
                        Some(&value[..])
                    })?;
                    is_so
                }
                (None, None) => txn.remove(&table, key).map(|_| true)?,
                (None, Some(Seen::Present)) => txn.remove(&table, key)?,
                (None, Some(seen)) => {
                    let is_so = seen.holds(txn.get(&table, key)?.as_deref());
                    txn.remove(&table, key)?;
                    is_so
                }
            };
            if !is_so {
                return conflict(name, key);
            }
        }
    }
    Ok(Outcome::Committed { sequences: write_appends(txn, &change.appends)? })
}

/// The table of the numbers that were used last.
const NUMBERS: Bytes = Table::new(SEQUENCES);

/// Writes rows under the next numbers of their sequences, and tells which those are. Each sequence is read and written once.
fn write_appends(txn: &mut WriteTxn<'_>, appends: &[Append]) -> Result<Vec<u64>> {
    let mut used: Vec<(&[u8], u64)> = Vec::new();
    let mut numbers = Vec::with_capacity(appends.len());
    let mut row_key = Vec::new();
    for append in appends {
        let at = match used.iter().position(|(sequence, _)| *sequence == &append.sequence[..]) {
            Some(at) => at,
            None => {
                let last = txn.get(&NUMBERS, &append.sequence)?.map_or(Ok(0), u64::decode)?;
                used.push((&append.sequence, last));
                used.len() - 1
            }
        };
        let is_last = || kauri_tree::Error::LastSequence { table: append.table[..].into() };
        used[at].1 = used[at].1.checked_add(1).ok_or_else(is_last)?;
        let number = used[at].1;
        row_key.clear();
        row_key.extend_from_slice(&append.prefix);
        row_key.extend_from_slice(&number.to_be_bytes());
        txn.put(&table(&append.table), &row_key[..], &append.value)?;
        for (name, value) in &append.also {
            txn.put(&table(name), &row_key[..], value)?;
        }
        numbers.push(number);
    }
    for (sequence, last) in used {
        txn.put(&NUMBERS, sequence, &last.to_le_bytes())?;
    }
    Ok(numbers)
}

/// The change as the store takes it, against a snapshot in which everything observed is so.
fn stage<'a>(base: Snapshot<'a>, change: &Change) -> Result<Staged<'a>> {
    let mut staged = Staged::new(base);
    for (name, reads) in &change.reads {
        let table = table(name);
        reads.keys().try_for_each(|key| staged.observe(&table, key))?;
    }
    change.ranges.iter().try_for_each(|range| observe_range(&staged, range))?;
    for (name, writes) in &change.writes {
        let table = table(name);
        for (key, value) in writes {
            match value {
                Some(value) => staged.put(&table, key, value)?,
                None => staged.erase(&table, key)?,
            }
        }
    }
    change.appends.iter().try_for_each(|row| append(&mut staged, row))?;
    Ok(staged)
}

fn observe_range(staged: &Staged<'_>, range: &SeenRange) -> Result<()> {
    if range.until.as_deref().is_some_and(|until| until <= &range.from[..]) {
        // No key is in it.
        return Ok(());
    }
    let until = range.until.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(staged.observe_range(&table(&range.table), (Bound::Included(&range.from[..]), until))?)
}

fn append(staged: &mut Staged<'_>, row: &Append) -> Result<()> {
    let also: Vec<Beside<'_>> = row.also.iter().map(|(name, value)| (table(name), &value[..])).collect();
    Ok(staged.append_numbered(Numbered {
        table: &table(&row.table),
        prefix: &row.prefix,
        value: &row.value,
        counter: (&NUMBERS, &row.sequence),
        also: &also,
    })?)
}

fn table(name: &TableName) -> Bytes {
    match name {
        Cow::Borrowed(name) => Table::new(name),
        Cow::Owned(name) => Table::named(name.clone()),
    }
}

struct TreeRows<'a>(Snapshot<'a>);

impl Rows for TreeRows<'_> {
    fn version(&self) -> Option<u64> {
        Some(self.0.version())
    }

    fn get(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        get(&self.0, table, key)
    }

    fn scan(&self, table: &TableName, range: KeyRange<'_>) -> Result<Box<dyn RowScan + '_>> {
        scan(&self.0, table, range).map(|scan| Box::new(TreeScan(scan)) as Box<dyn RowScan + '_>)
    }

    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64> {
        count(&self.0, table, range)
    }

    fn tables(&self) -> Result<Vec<String>> {
        filled(&self.0, self.0.tables())
    }
}

/// The rows as they are in the writer's turn.
struct TurnRows<'t, 'a>(&'t WriteTxn<'a>);

impl Rows for TurnRows<'_, '_> {
    fn version(&self) -> Option<u64> {
        // It is being made.
        None
    }

    fn get(&self, table: &TableName, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        get(self.0, table, key)
    }

    fn scan(&self, table: &TableName, range: KeyRange<'_>) -> Result<Box<dyn RowScan + '_>> {
        scan(self.0, table, range).map(|scan| Box::new(TreeScan(scan)) as Box<dyn RowScan + '_>)
    }

    fn count(&self, table: &TableName, range: KeyRange<'_>) -> Result<u64> {
        count(self.0, table, range)
    }

    fn tables(&self) -> Result<Vec<String>> {
        filled(self.0, self.0.tables())
    }
}

fn count(from: &impl Read, name: &TableName, range: KeyRange<'_>) -> Result<u64> {
    // Most counts are of tables in which seldom is anything: then no place is looked for.
    if from.len(&table(name))? == 0 {
        return Ok(0);
    }
    Ok(scan(from, name, range)?.count()?)
}

/// Those of the tables in which is something.
fn filled<'n>(from: &impl Read, names: impl Iterator<Item = &'n str>) -> Result<Vec<String>> {
    let mut filled = Vec::new();
    for name in names {
        if from.len(&Bytes::named(name.to_owned()))? > 0 {
            filled.push(name.to_owned());
        }
    }
    Ok(filled)
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
