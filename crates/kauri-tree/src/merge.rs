//! The rows that a change sees: those of its snapshot, under those that it staged.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ops::Bound;

use kauri_wire::Key;

use crate::btree::{self, Of, Root, Row};
use crate::change::{Change, Range};
use crate::copies::{Copied, Copies, Side};
use crate::error::{Error, Result};
use crate::read::{Access, resolve};
use crate::snapshot::VersionPages;
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
    rows: Option<BaseRows<'c>>,
    /// The next row of the snapshot.
    peeked: Option<BaseRow<'c>>,
    /// The key of the row that was given out last.
    given: Option<Box<[u8]>>,
    /// Where it is noted what was looked at from here.
    noted: Option<usize>,
}

/// The rows of the snapshot, from one end.
enum BaseRows<'c> {
    Lent(btree::Scan<'c>),
    Copied(Copies<'c>),
}

/// A row of the snapshot.
enum BaseRow<'c> {
    Lent(Row<'c>),
    Copied(Copied),
}

impl<'c> BaseRows<'c> {
    fn next<O: btree::Order>(&mut self, side: Side) -> Result<Option<BaseRow<'c>>> {
        Ok(match (self, side) {
            (Self::Lent(rows), Side::Front) => rows.next()?.map(BaseRow::Lent),
            (Self::Lent(rows), Side::Back) => rows.previous()?.map(BaseRow::Lent),
            (Self::Copied(rows), _) => rows.next::<O>()?.map(BaseRow::Copied),
        })
    }
}

impl BaseRow<'_> {
    fn key_into(&self, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Lent(row) => row.node.key_into(row.index, key),
            Self::Copied(row) => key.extend_from_slice(&row.key),
        }
    }
}

/// A row, by where it lies.
enum Found<'c> {
    Base(BaseRow<'c>),
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

    pub(crate) fn set_from(&mut self, key: &[u8]) {
        self.from = Bound::Included(key.into());
    }

    pub(crate) fn set_until(&mut self, key: &[u8]) {
        self.until = Bound::Excluded(key.into());
    }

    /// How many rows are left. All of the range is looked at for that.
    pub(crate) fn count(&mut self) -> Result<u64> {
        self.begin(Side::Front)?;
        self.counted = true;
        if self.met {
            return Ok(0);
        }
        // Of pages that come and go, for as long as this takes.
        let operation = self.pages.bounded().map(VersionPages::operation);
        let pages = operation.as_ref().map_or(self.pages, Access::Guarded);
        let has = |key: &[u8]| Ok::<_, Error>(btree::get::<Of<K>>(&pages, self.root, key)?.is_some());
        let rank = |key: &[u8]| btree::rank::<Of<K>>(&pages, self.root, key);
        let low = match (&self.front.given, &self.from) {
            (Some(given), _) => rank(given)? + u64::from(has(given)?),
            (None, Bound::Included(from)) => rank(from)?,
            (None, _) => 0,
        };
        let high = match (&self.back.given, &self.until) {
            (Some(given), _) => rank(given)?,
            (None, Bound::Excluded(until)) => rank(until)?,
            (None, _) => self.root.rows,
        };
        let mut rows = high.saturating_sub(low);
        for (key, value) in self.staged.iter().flatten() {
            match (has(key)?, value) {
                (true, None) => rows -= 1,
                (false, Some(_)) => rows += 1,
                (true, Some(_)) | (false, None) => {}
            }
        }
        Ok(rows)
    }

    /// The next row from an end; `None` when the ends have met.
    pub(crate) fn step(&mut self, side: Side) -> Result<Option<(K::View<'_>, V::View<'_>)>> {
        self.begin(side)?;
        let found = if self.met { None } else { self.find(side)? };
        let Some(found) = found else {
            self.met = true;
            return Ok(None);
        };
        let value = match found {
            Found::Base(BaseRow::Lent(row)) => resolve(self.pages, row.node.value(row.index))?,
            Found::Base(BaseRow::Copied(row)) => match self.pages.bounded() {
                Some(pages) => Cow::Owned(row.value(pages)?),
                None => unreachable!("rows are copied where pages come and go"),
            },
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
        let rows = self.base_rows(side)?;
        let end = self.end_mut(side);
        (end.rows, end.noted) = (Some(rows), noted);
        self.peek(side)?;
        if self.staged.is_none() {
            self.staged = Some(self.sorted());
        }
        Ok(())
    }

    /// The rows of the snapshot from one end of the range.
    fn base_rows(&self, side: Side) -> Result<BaseRows<'c>> {
        let start = match (side, &self.from, &self.until) {
            (Side::Front, Bound::Included(key), _) | (Side::Back, _, Bound::Excluded(key)) => Some(key),
            _ => None,
        };
        if let Some(pages) = self.pages.bounded() {
            let at = match (side, start) {
                (_, None) => Bound::Unbounded,
                (Side::Front, Some(key)) => Bound::Included(key.to_vec()),
                (Side::Back, Some(key)) => Bound::Excluded(key.to_vec()),
            };
            return Ok(BaseRows::Copied(Copies::new(pages, self.root, side, at)));
        }
        let mut rows = btree::Scan::new(self.pages);
        match (side, start) {
            (_, Some(key)) => rows.go_to::<Of<K>>(self.root, key)?,
            (Side::Front, None) => rows.go_first(self.root)?,
            (Side::Back, None) => rows.go_last(self.root)?,
        }
        Ok(BaseRows::Lent(rows))
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
        end.peeked = rows.next::<Of<K>>(side)?;
        Ok(())
    }

    /// The next row, if the ends have not met. The key of a row of the snapshot is left in `self.key`.
    fn find(&mut self, side: Side) -> Result<Option<Found<'c>>> {
        loop {
            let mut key = std::mem::take(&mut self.key);
            let has_base = self.end(side).peeked.as_ref().is_some_and(|row| {
                row.key_into(&mut key);
                self.is_inside(&key)
            });
            self.key = key;
            let staged = self.staged.as_mut().expect("the scan has begun");
            let next = match side {
                Side::Front => staged.front().copied(),
                Side::Back => staged.back().copied(),
            };
            let order = match (has_base, next) {
                (false, None) => return Ok(None),
                (true, None) => std::cmp::Ordering::Less,
                (false, Some(_)) => std::cmp::Ordering::Greater,
                (true, Some((key, _))) if side == Side::Front => K::compare(&self.key, key),
                (true, Some((key, _))) => K::compare(key, &self.key),
            };
            if order.is_ge() {
                match side {
                    Side::Front => staged.pop_front(),
                    Side::Back => staged.pop_back(),
                };
            }
            let base = if order.is_le() { self.end_mut(side).peeked.take() } else { None };
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
            self.change.adjust_range(&self.table, noted, |range| range.until = Bound::Included(last));
        }
        if let (Some(noted), Some(first)) = (self.back.noted, self.back.given.take()) {
            self.change.adjust_range(&self.table, noted, |range| range.from = Bound::Included(first));
        }
    }
}
