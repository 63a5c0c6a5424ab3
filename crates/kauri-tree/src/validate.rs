//! Whether what a change observed still holds, and the writing of what it staged.

use std::cmp::Ordering;
use std::ops::Bound;

use crate::btree::{Between, Root};
use crate::change::{ByTable, Numbering, Observed, Outcome, Range, Work};
use crate::error::Result;
use crate::kind::Kind;
use crate::numbered::Counters;
use crate::read::{Access, Source};
use crate::table::Table;
use crate::write::WriteTxn;

/// What a transaction has that is not as a change observed it; `None` if everything is.
///
/// An error says that the change cannot be made. Nothing was written by then.
pub(crate) fn conflict(txn: &WriteTxn<'_>, work: &Work) -> Result<Option<Outcome>> {
    for (table, staged) in &work.staged {
        txn.root(table, staged.kind.types())?;
    }
    for appended in &work.appended {
        txn.root(&appended.table, appended.kind.types())?;
        if let Numbering::Counter(counted) = &appended.numbering {
            for table in counted.tables() {
                txn.root(table, Table::<[u8], [u8]>::types)?;
            }
        }
    }
    first_conflict(txn, &work.observed)
}

fn first_conflict(txn: &WriteTxn<'_>, observed: &ByTable<Observed>) -> Result<Option<Outcome>> {
    for (table, observed) in observed {
        let now = txn.root(table, observed.kind.types())?.unwrap_or_default();
        if let Some(key) = observed.first_changed(txn.access(), now)? {
            return Ok(Some(Outcome::Conflict { table: (**table).into(), key: key.into() }));
        }
    }
    Ok(None)
}

/// Writes what a change staged, and tells the sequences of what it appended.
pub(crate) fn apply(txn: &mut WriteTxn<'_>, work: &Work) -> Result<Outcome> {
    for (table, staged) in &work.staged {
        for (key, value) in &staged.rows {
            match value {
                Some(value) => staged.kind.put(txn, table, key, value)?,
                None => {
                    staged.kind.remove(txn, table, key)?;
                }
            }
        }
    }
    // After the rows: an appended row replaces none of them.
    let mut counters = Counters::default();
    let mut sequences = Vec::with_capacity(work.appended.len());
    for appended in &work.appended {
        sequences.push(match &appended.numbering {
            Numbering::Prefix => appended.kind.append(txn, &appended.table, &appended.prefix, &appended.value)?,
            Numbering::Counter(counted) => counters.append(txn, appended, counted)?,
        });
    }
    counters.write(txn)?;
    Ok(Outcome::Committed { sequences })
}

impl Observed {
    /// The first key that was observed and is not as it was.
    fn first_changed(&self, pages: Access<'_>, now: Root) -> Result<Option<Vec<u8>>> {
        if self.base.page == now.page {
            return Ok(None);
        }
        let key = self.first_changed_key(pages, now)?;
        let in_range = self.first_changed_in_ranges(pages, now)?;
        let both = key.map(<[u8]>::to_vec).into_iter().chain(in_range);
        Ok(both.min_by(|left, right| self.kind.compare(left, right)))
    }

    fn first_changed_key(&self, pages: Access<'_>, now: Root) -> Result<Option<&[u8]>> {
        let mut keys: Vec<&[u8]> = self.keys.iter().map(|key| &**key).collect();
        keys.sort_by(|left, right| self.kind.compare(left, right));
        for key in keys {
            if !self.kind.is_same(pages, self.base, now, key)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn first_changed_in_ranges(&self, pages: Access<'_>, now: Root) -> Result<Option<Vec<u8>>> {
        for range in merged(self.kind, &self.ranges) {
            let changed = self.kind.first_difference(pages, self.base, now, range)?;
            if changed.is_some() {
                return Ok(changed);
            }
        }
        Ok(None)
    }
}

/// The ranges in order, those that overlap as one: so what is in many of them is looked at once.
fn merged(kind: Kind, ranges: &[Range]) -> Vec<Between<'_>> {
    let mut ranges: Vec<Between<'_>> =
        ranges.iter().map(|range| Between { from: borrowed(&range.from), until: borrowed(&range.until) }).collect();
    ranges.sort_by(|left, right| starts(kind, left.from, right.from));
    let mut merged: Vec<Between<'_>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if overlap(kind, last.until, range.from) => {
                if ends(kind, last.until, range.until).is_lt() {
                    last.until = range.until;
                }
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn borrowed(bound: &Bound<Box<[u8]>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

/// Which of two ranges begins first.
fn starts(kind: Kind, left: Bound<&[u8]>, right: Bound<&[u8]>) -> Ordering {
    // Behind a key, after at it.
    let place = |bound| match bound {
        Bound::Unbounded => None,
        Bound::Included(key) => Some((key, false)),
        Bound::Excluded(key) => Some((key, true)),
    };
    match (place(left), place(right)) {
        (Some((left, left_behind)), Some((right, right_behind))) => {
            kind.compare(left, right).then(left_behind.cmp(&right_behind))
        }
        (left, right) => left.is_some().cmp(&right.is_some()),
    }
}

/// Which of two ranges ends first.
fn ends(kind: Kind, left: Bound<&[u8]>, right: Bound<&[u8]>) -> Ordering {
    // Before a key, before at it.
    let place = |bound| match bound {
        Bound::Unbounded => None,
        Bound::Excluded(key) => Some((key, false)),
        Bound::Included(key) => Some((key, true)),
    };
    match (place(left), place(right)) {
        (Some((left, left_at)), Some((right, right_at))) => kind.compare(left, right).then(left_at.cmp(&right_at)),
        (left, right) => right.is_some().cmp(&left.is_some()),
    }
}

/// Whether a range that begins here has keys of one that ends there and began before.
fn overlap(kind: Kind, until: Bound<&[u8]>, from: Bound<&[u8]>) -> bool {
    match (until, from) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
        (Bound::Included(until), Bound::Included(from)) => kind.compare(from, until).is_le(),
        (Bound::Included(until) | Bound::Excluded(until), Bound::Included(from) | Bound::Excluded(from)) => {
            kind.compare(from, until).is_lt()
        }
    }
}
