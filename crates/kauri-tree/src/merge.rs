//! The rows that a change sees: those of its snapshot, under those that it staged.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Bound;

use kauri_wire::Key;

use crate::btree::{self, Of, Root, Row};
use crate::change::{Change, Range};
use crate::error::Result;
use crate::read::{Access, resolve};
use crate::value::Value;

/// Rows as a [`Change`] sees them, from either end until they meet.
///
/// What was looked at is observed: from the bound where it began to the last row that was given out, or the whole range if its end was
/// met.
pub(crate) struct Merge<'c, K: ?Sized, V: ?Sized> {
    change: &'c Change<'c>,
    table: Cow<'static, str>,
    pages: Access<'c>,
    root: Root,
    from: Bound<Box<[u8]>>,
    until: Bound<Box<[u8]>>,
    front: End<'c>,
    back: End<'c>,
    /// What is staged in the range, as far as it was not given out.
    staged: Option<VecDeque<StagedRow<'c>>>,
    /// The ends have met: all of the range was looked at.
    met: bool,
    /// All of the range was counted.
    counted: bool,
    key: Vec<u8>,
    types: PhantomData<fn(&K, &V)>,
}

/// A key, and its value unless it is to be removed.
type StagedRow<'c> = (&'c [u8], Option<&'c [u8]>);

/// One end of a scan.
#[derive(Default)]
struct End<'c> {
    rows: Option<btree::Scan<'c>>,
    /// The next row of the snapshot.
    peeked: Option<Row<'c>>,
    /// The key of the row that was given out last.
    given: Option<Box<[u8]>>,
    /// Where it is noted what was looked at from here.
    noted: Option<usize>,
}

/// Which end goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Front,
    Back,
}

/// A row, by where it lies.
enum Found<'c> {
    Base(Row<'c>),
    Staged(&'c [u8], &'c [u8]),
}

impl<'c, K: Key + ?Sized, V: Value + ?Sized> Merge<'c, K, V> {
    pub(crate) fn new(change: &'c Change<'c>, table: Cow<'static, str>, pages: Access<'c>, root: Root) -> Self {
        Self {
            change,
            table,
            pages,
            root,
            from: Bound::Unbounded,
            until: Bound::Unbounded,
            front: End::default(),
            back: End::default(),
            staged: None,
            met: false,
            counted: false,
            key: Vec::new(),
            types: PhantomData,
        }
    }

    pub(crate) fn set_from(&mut self, key: K::Ref<'_>) {
        self.from = Bound::Included(K::encode(key).into());
    }

    pub(crate) fn set_until(&mut self, key: K::Ref<'_>) {
        self.until = Bound::Excluded(K::encode(key).into());
    }

    pub(crate) fn next(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.step(Side::Front)
    }

    pub(crate) fn previous(&mut self) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.step(Side::Back)
    }

    /// How many rows are left. All of the range is looked at for that.
    pub(crate) fn count(&mut self) -> Result<u64> {
        self.begin(Side::Front)?;
        self.counted = true;
        if self.met {
            return Ok(0);
        }
        let rank = |key: &[u8]| btree::rank::<Of<K>>(&self.pages, self.root, key);
        let low = match (&self.front.given, &self.from) {
            (Some(given), _) => rank(given).map(|(before, found)| before + u64::from(found))?,
            (None, Bound::Included(from)) => rank(from)?.0,
            (None, _) => 0,
        };
        let high = match (&self.back.given, &self.until) {
            (Some(given), _) => rank(given)?.0,
            (None, Bound::Excluded(until)) => rank(until)?.0,
            (None, _) => self.root.rows,
        };
        let mut rows = high.saturating_sub(low);
        for (key, value) in self.staged.iter().flatten() {
            match (btree::get::<Of<K>>(&self.pages, self.root, key)?.is_some(), value) {
                (true, None) => rows -= 1,
                (false, Some(_)) => rows += 1,
                (true, Some(_)) | (false, None) => {}
            }
        }
        Ok(rows)
    }

    fn step(&mut self, side: Side) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.begin(side)?;
        let found = if self.met { None } else { self.find(side)? };
        let Some(found) = found else {
            self.met = true;
            return Ok(None);
        };
        let value = match found {
            Found::Base(row) => resolve(self.pages, row.node.value(row.index))?,
            Found::Staged(key, value) => {
                self.key.clear();
                self.key.extend_from_slice(key);
                Cow::Borrowed(value)
            }
        };
        self.end_mut(side).given = Some(self.key.as_slice().into());
        Ok(Some((K::decode(&self.key)?, V::decode(value)?)))
    }

    /// Before the first step of an end: it is noted that everything will be looked at, so that whatever happens to the scan, no
    /// look goes unnoticed. What was not looked at is taken back at the end.
    fn begin(&mut self, side: Side) -> Result<()> {
        if self.end(side).rows.is_some() {
            return Ok(());
        }
        let range = Range { from: self.from.clone(), until: self.until.clone() };
        let noted = self.change.note_range(&self.table, range);
        let rows = match (side, &self.from, &self.until) {
            (Side::Front, Bound::Included(key), _) | (Side::Back, _, Bound::Excluded(key)) => {
                btree::Scan::seek::<Of<K>>(self.pages, self.root, key)?
            }
            (Side::Front, ..) => btree::Scan::first(self.pages, self.root)?,
            (Side::Back, ..) => btree::Scan::last(self.pages, self.root)?,
        };
        let end = self.end_mut(side);
        (end.rows, end.noted) = (Some(rows), noted);
        self.peek(side)?;
        if self.staged.is_none() {
            self.staged = Some(self.sorted());
        }
        Ok(())
    }

    /// What is staged in the range, in order.
    fn sorted(&self) -> VecDeque<StagedRow<'c>> {
        let rows = self.change.staged_rows(&self.table).into_iter().flatten();
        let rows = rows.map(|(key, value)| (&**key, value.as_deref()));
        let mut rows: Vec<_> = rows.filter(|(key, _)| self.is_inside(key)).collect();
        rows.sort_by(|left, right| K::compare(left.0, right.0));
        rows.into()
    }

    /// Whether a key is in the range, and between what was given out from the two ends.
    fn is_inside(&self, key: &[u8]) -> bool {
        let is_after = |bound: &[u8]| K::compare(bound, key).is_lt();
        let is_before = |bound: &[u8]| K::compare(key, bound).is_lt();
        let from = match &self.from {
            Bound::Included(from) => K::compare(from, key).is_le(),
            Bound::Excluded(_) | Bound::Unbounded => true,
        };
        let until = match &self.until {
            Bound::Excluded(until) => is_before(until),
            Bound::Included(_) | Bound::Unbounded => true,
        };
        from && until
            && self.front.given.as_deref().is_none_or(is_after)
            && self.back.given.as_deref().is_none_or(is_before)
    }

    fn end(&self, side: Side) -> &End<'c> {
        match side {
            Side::Front => &self.front,
            Side::Back => &self.back,
        }
    }

    fn end_mut(&mut self, side: Side) -> &mut End<'c> {
        match side {
            Side::Front => &mut self.front,
            Side::Back => &mut self.back,
        }
    }

    /// Moves to the next row of the snapshot.
    fn peek(&mut self, side: Side) -> Result<()> {
        let end = self.end_mut(side);
        let rows = end.rows.as_mut().expect("the end has begun");
        end.peeked = match side {
            Side::Front => rows.next()?,
            Side::Back => rows.previous()?,
        };
        Ok(())
    }

    /// The next row, if the ends have not met. The key of a row of the snapshot is left in `self.key`.
    fn find(&mut self, side: Side) -> Result<Option<Found<'c>>> {
        loop {
            let base = self.end(side).peeked.filter(|row| {
                let mut key = std::mem::take(&mut self.key);
                key.clear();
                row.node.key_into(row.index, &mut key);
                self.key = key;
                self.is_inside(&self.key)
            });
            let staged = self.staged.as_mut().expect("the scan has begun");
            let next = match side {
                Side::Front => staged.front().copied(),
                Side::Back => staged.back().copied(),
            };
            let order = match (&base, next) {
                (None, None) => return Ok(None),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(_), Some((key, _))) if side == Side::Front => K::compare(&self.key, key),
                (Some(_), Some((key, _))) => K::compare(key, &self.key),
            };
            if order.is_ge() {
                match side {
                    Side::Front => staged.pop_front(),
                    Side::Back => staged.pop_back(),
                };
            }
            if order.is_le() {
                self.peek(side)?;
            }
            match (order.is_lt(), base, next) {
                (true, Some(row), _) => return Ok(Some(Found::Base(row))),
                (false, _, Some((key, Some(value)))) => return Ok(Some(Found::Staged(key, value))),
                // To be removed, whether the snapshot has it or not.
                _ => {}
            }
        }
    }
}

impl<K: ?Sized, V: ?Sized> Drop for Merge<'_, K, V> {
    fn drop(&mut self) {
        if self.met || self.counted {
            return;
        }
        if let (Some(noted), Some(last)) = (self.front.noted, self.front.given.take()) {
            self.change.shorten_range(&self.table, noted, |range| range.until = Bound::Included(last));
        }
        if let (Some(noted), Some(first)) = (self.back.noted, self.back.given.take()) {
            self.change.shorten_range(&self.table, noted, |range| range.from = Bound::Included(first));
        }
    }
}
