//! Rows of bytes: written every way there is, and wandered through by a cursor.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use kauri_tree::{
    Change, Compared, Difference, Error, Notice, Read, Snapshot, Store, Table, WatchQueue, Write, WriteTxn,
};

use super::PAGE_BYTES;
use crate::twin::{Chance, Outcome, same, words};

const ROWS: Table<[u8], [u8]> = Table::new("rows");

/// What the table should hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows(BTreeMap<Vec<u8>, Vec<u8>>);

/// Where a cursor should be: before all rows, behind all, or at a key, on whose row it is if there is one.
#[derive(Debug)]
enum Where {
    Start,
    At(Vec<u8>),
    End,
}

/// Keys that share beginnings, with empty ones and the longest among them.
pub(super) fn key(chance: &mut impl Chance) -> Vec<u8> {
    let number = chance.below(40);
    match chance.below(4) {
        0 => vec![0; number % 4],
        1 => vec![number.to_le_bytes()[0]; PAGE_BYTES / 4 - 8],
        2 => format!("common/{number:03}").into_bytes(),
        _ => vec![number.to_le_bytes()[0]],
    }
}

/// Mostly short, some longer than a page.
pub(super) fn value(chance: &mut impl Chance) -> Vec<u8> {
    let bytes = match chance.below(16) {
        0 => chance.below(4 * PAGE_BYTES),
        1..3 => chance.below(PAGE_BYTES),
        _ => chance.below(20),
    };
    let first = chance.below(256);
    (first..first + bytes).map(|byte| (byte % 251).to_le_bytes()[0]).collect()
}

pub(super) fn put(to: &mut impl Write, key: &[u8], value: &[u8]) -> kauri_tree::Result<()> {
    to.put(&ROWS, key, value)
}

/// A cursor's moves and changes. Cursors of transactions and of changes do the same, and share no trait for what they write.
macro_rules! wander {
    ($model:ident, $cursor:ident, $chance:ident) => {{
        let mut at = Where::Start;
        for _ in 0..$chance.below(32) {
            match $chance.below(12) {
                0 => at = $model.step(&Where::Start, $cursor.first().map_err(words)?.is_some(), true)?,
                1 => at = $model.step(&Where::End, $cursor.last().map_err(words)?.is_some(), false)?,
                2..4 => at = $model.step(&at, $cursor.next_key().map_err(words)?.is_some(), true)?,
                4..6 => at = $model.step(&at, $cursor.previous().map_err(words)?.is_some(), false)?,
                6 => {
                    let key = key($chance);
                    $cursor.seek(&key).map_err(words)?;
                    at = $model.0.range(key..).next().map_or(Where::End, |(key, _)| Where::At(key.clone()));
                }
                7 => {
                    let key = key($chance);
                    $cursor.seek_exact(&key).map_err(words)?;
                    at = Where::At(key);
                }
                8 => {
                    let value = value($chance);
                    let row = $model.row(&at).map(|(key, _)| key.to_vec());
                    same("whether it put", $cursor.put(&value).map_err(words)?, row.is_some())?;
                    $model.0.extend(row.map(|key| (key, value)));
                }
                9 => {
                    let (key, value) = (key($chance), value($chance));
                    $cursor.put_at(&key, &value).map_err(words)?;
                    $model.0.insert(key.clone(), value);
                    at = Where::At(key);
                }
                _ => {
                    let row = $model.row(&at).map(|(key, _)| key.to_vec());
                    same("whether it removed", $cursor.remove().map_err(words)?, row.is_some())?;
                    if let Some(key) = row {
                        $model.0.remove(&key);
                        at = $model.step(&at, $cursor.key().map_err(words)?.is_some(), true)?;
                    }
                }
            }
            let found = $cursor.current().map_err(words)?;
            same("the row of a cursor", found.as_ref().map(|(key, value)| (*key, &**value)), $model.row(&at))?;
        }
        Ok(())
    }};
}

impl Rows {
    pub(super) fn compare(&self, from: &impl Read) -> Outcome {
        same("rows", from.len(&ROWS).map_err(words)?, self.0.len() as u64)?;
        let mut found = from.scan(&ROWS).map_err(words)?;
        for (key, value) in &self.0 {
            same("a row", found.next().map_err(words)?, Some((&key[..], (&value[..]).into())))?;
        }
        same("a row behind the last", found.next().map_err(words)?, None)
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.0.insert(key, value);
    }

    pub(super) fn get(&self, from: &impl Read, key: &[u8]) -> Outcome {
        let found = from.get(&ROWS, key).map_err(words)?;
        same("a value", found.as_deref(), self.0.get(key).map(Vec::as_slice))
    }

    /// A value that the row with this key does not have.
    pub(super) fn longer(&self, key: &[u8]) -> Vec<u8> {
        [self.0.get(key).map_or(&[][..], Vec::as_slice), b"!"].concat()
    }

    pub(super) fn write(&mut self, to: &mut impl Write, chance: &mut impl Chance) -> Outcome {
        let (key, made) = (key(chance), value(chance));
        let old = self.0.get(&key).cloned();
        match chance.below(12) {
            0..4 => to.put(&ROWS, &key, &made).map_err(words)?,
            4 => {
                same("whether a row was inserted", to.insert(&ROWS, &key, &made).map_err(words)?, old.is_none())?;
                self.0.entry(key).or_insert(made);
                return Ok(());
            }
            5..7 => {
                same("whether a row was removed", to.remove(&ROWS, &key).map_err(words)?, old.is_some())?;
                self.0.remove(&key);
                return Ok(());
            }
            7 => to.reserve(&ROWS, &key, made.len(), |bytes| bytes.copy_from_slice(&made)).map_err(words)?,
            8 | 9 => return self.replace_if(to, key, made, chance),
            10 => return self.update(to, key, &made, chance),
            _ => return self.read(to, &key, chance),
        }
        self.0.insert(key, made);
        Ok(())
    }

    fn replace_if(&mut self, to: &mut impl Write, key: Vec<u8>, made: Vec<u8>, chance: &mut impl Chance) -> Outcome {
        let old = self.0.get(&key).cloned();
        let expected = if chance.below(2) == 0 { made.clone() } else { old.clone().unwrap_or_default() };
        let wanted = match &old {
            None => Compared::Missing,
            Some(old) if *old == expected => Compared::Matches,
            Some(_) => Compared::Differs,
        };
        same("what was compared", to.replace_if(&ROWS, &key, &expected, &made).map_err(words)?, wanted)?;
        if wanted.is_match() {
            self.0.insert(key, made);
        }
        Ok(())
    }

    /// Makes a value longer, or removes it.
    fn update(&mut self, to: &mut impl Write, key: Vec<u8>, more: &[u8], chance: &mut impl Chance) -> Outcome {
        let stays = chance.below(4) > 0;
        let make = |old: Option<&[u8]>| stays.then(|| [old.unwrap_or_default(), more].concat());
        let made = to.update(&ROWS, &key, |old| make(old.as_deref())).map_err(words)?;
        same("what was made", &made, &make(self.0.get(&key).map(Vec::as_slice)))?;
        match made {
            Some(made) => self.0.insert(key, made),
            None => self.0.remove(&key),
        };
        Ok(())
    }

    /// A row by its key, its number, and by how many are before it.
    fn read(&self, from: &impl Read, key: &[u8], chance: &mut impl Chance) -> Outcome {
        self.get(from, key)?;
        let before = self.0.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).count();
        same("a rank", from.rank(&ROWS, key).map_err(words)?, before as u64)?;
        let number = chance.below(self.0.len() + 2);
        let mut rows = from.scan(&ROWS).map_err(words)?;
        let found = rows.nth(number as u64).map_err(words)?.map(|(key, _)| key.to_vec());
        same("a row by its number", found.as_ref(), self.0.keys().nth(number))
    }

    /// Rows in order, into a table that was emptied or not; at times out of order.
    pub(super) fn load(&mut self, txn: &mut WriteTxn<'_>, chance: &mut impl Chance) -> Outcome {
        if chance.below(3) == 0 {
            txn.drop_table(ROWS.name()).map_err(words)?;
            self.0.clear();
        }
        let rows: BTreeMap<_, _> = (0..chance.below(30)).map(|_| (key(chance), value(chance))).collect();
        let mut list: Vec<_> = rows.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        let spoilt = (chance.below(4) == 0 && list.len() > 1).then(|| 1 + chance.below(list.len() - 1));
        if let Some(row) = spoilt {
            list[row] = list[row - 1];
        }
        match (txn.load_sorted(&ROWS, list.iter().copied()), spoilt) {
            (Err(Error::Row { row, .. }), Some(spoilt)) => same("the row out of order", row, spoilt as u64),
            (Ok(loaded), None) => {
                same("rows loaded", loaded, rows.len() as u64)?;
                self.0.extend(rows);
                Ok(())
            }
            (loaded, spoilt) => Err(format!("loaded {loaded:?}, with row {spoilt:?} out of order")),
        }
    }

    pub(super) fn remove_range(&mut self, txn: &mut WriteTxn<'_>, chance: &mut impl Chance) -> Outcome {
        let mut bound = || match chance.below(3) {
            0 => Bound::Included(key(chance)),
            1 => Bound::Excluded(key(chance)),
            _ => Bound::Unbounded,
        };
        let range = (bound(), bound());
        let before = self.0.len();
        self.0.retain(|key, _| !std::ops::RangeBounds::contains(&range, key));
        let lent = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
        let removed = txn.remove_range(&ROWS, lent).map_err(words)?;
        same("rows of a range", removed, (before - self.0.len()) as u64)
    }

    pub(super) fn wander(&mut self, txn: &mut WriteTxn<'_>, chance: &mut impl Chance) -> Outcome {
        let mut cursor = txn.cursor_mut(&ROWS).map_err(words)?;
        wander!(self, cursor, chance)
    }

    pub(super) fn wander_staged(&mut self, change: &mut Change<'_>, chance: &mut impl Chance) -> Outcome {
        let mut cursor = change.cursor_mut(&ROWS).map_err(words)?;
        wander!(self, cursor, chance)
    }

    /// Looks for the first row from a key on, and tells whether another key is where that looked.
    pub(super) fn looks_at(&self, change: &Change<'_>, from: &[u8], other: &[u8]) -> Result<bool, String> {
        let mut cursor = change.cursor(&ROWS).map_err(words)?;
        let expected = self.0.range::<[u8], _>((Bound::Included(from), Bound::Unbounded)).next();
        let found = cursor.seek(from).map_err(words)?.map(|(key, _)| key.to_vec());
        same("the first row from a key on", found.as_ref(), expected.map(|(key, _)| key))?;
        Ok(from <= other && found.is_none_or(|found| other <= &*found))
    }

    /// What differs between two versions, of which the other has these rows.
    pub(super) fn differences(&self, now: &Snapshot<'_>, then: &Snapshot<'_>, before: &Self) -> Outcome {
        let keys: BTreeSet<_> = self.0.keys().chain(before.0.keys()).collect();
        let mut differing = keys.into_iter().filter(|key| self.0.get(*key) != before.0.get(*key));
        let mut found = now.diff(then, &ROWS).map_err(words)?;
        while let Some(difference) = found.next().map_err(words)? {
            let (key, old, new) = match difference {
                Difference::Inserted { key, value } => (key, None, Some(value)),
                Difference::Removed { key, value } => (key, Some(value), None),
                Difference::Changed { key, old, new } => (key, Some(old), Some(new)),
            };
            same("a row that differs", Some(key), differing.next().map(Vec::as_slice))?;
            same("what it was", old.as_deref(), before.0.get(key).map(Vec::as_slice))?;
            same("what it is", new.as_deref(), self.0.get(key).map(Vec::as_slice))?;
        }
        same("a row that differs and is not told", differing.next(), None)
    }

    /// Where a move leads from a place, which found a row or not.
    fn step(&self, from: &Where, is_found: bool, forward: bool) -> Result<Where, String> {
        let found = match (from, forward) {
            (Where::Start, true) => self.0.keys().next(),
            (Where::End, false) => self.0.keys().next_back(),
            (Where::Start, false) | (Where::End, true) => None,
            (Where::At(at), true) => {
                self.0.range::<[u8], _>((Bound::Excluded(&at[..]), Bound::Unbounded)).next().map(|(key, _)| key)
            }
            (Where::At(at), false) => {
                self.0.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&at[..]))).next_back().map(|(key, _)| key)
            }
        };
        same("whether a move finds a row", is_found, found.is_some())?;
        Ok(match (found, forward) {
            (Some(key), _) => Where::At(key.clone()),
            (None, true) => Where::End,
            (None, false) => Where::Start,
        })
    }

    fn row(&self, at: &Where) -> Option<(&[u8], &[u8])> {
        let Where::At(at) = at else { return None };
        self.0.get_key_value(at).map(|(key, value)| (&key[..], &value[..]))
    }
}

/// A copy of the rows that is kept by watching them.
#[derive(Debug)]
pub(super) struct Mirror {
    queue: WatchQueue<[u8], [u8]>,
    rows: Rows,
}

/// So few notices wait that some are missed, which is to be told.
const NOTICES_MAX: usize = 12;

impl Mirror {
    pub(super) fn new(store: &Store, rows: &Rows) -> Result<Self, String> {
        Ok(Self { queue: store.watch_queue(&ROWS, b"", NOTICES_MAX).map_err(words)?, rows: rows.clone() })
    }

    /// Does what was told, and looks whether that is what was done.
    pub(super) fn follow(&mut self, store: &Store, rows: &Rows) -> Outcome {
        let mut is_missed = false;
        while let Some(notice) = self.queue.try_next() {
            match notice {
                Notice::Put { key, value, .. } => drop(self.rows.0.insert(key.to_vec(), value.into_owned())),
                Notice::Removed { key, .. } => {
                    same("whether a row that was removed was there", self.rows.0.remove(key).is_some(), true)?;
                }
                Notice::Missed => is_missed = true,
            }
        }
        if is_missed {
            let found = store.snapshot();
            let found = found.scan(&ROWS).map_err(words)?.map(|key, value| (key.to_vec(), value.into_owned()));
            self.rows.0 = found.collect::<Result<_, _>>().map_err(words)?;
        }
        same("rows that are watched", &self.rows.0, &rows.0)
    }
}
