//! Rows of a snapshot with a block's own writes among them, taking down what was seen.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::substrate::{Direction, KeyRange, RowScan, RowsHash, SeenRange, TableName};

type OwnedRow = (Vec<u8>, Vec<u8>);
/// A key, and its value unless the block removed it.
type OwnRow = (Vec<u8>, Option<Vec<u8>>);

/// A key and its value, as a scan gives them out.
pub type MergedRow<'a> = (&'a [u8], Cow<'a, [u8]>);

/// Where a scan takes down what it saw.
pub(crate) type SeenRanges = RefCell<Vec<SeenRange>>;

/// A scan through a snapshot and through what a block has written.
///
/// When it is dropped, the part of the range that was looked at becomes an observation of the block: a row that appears, changes or
/// vanishes in it before the commit is a conflict.
pub struct Merge<'a> {
    base: Box<dyn RowScan + 'a>,
    /// What the block wrote in this range: a value, or none where it removed.
    own: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    front: End,
    back: End,
    is_over: bool,
    seen: Option<Seeing<'a>>,
}

/// One end of a scan.
#[derive(Default)]
struct End {
    /// A row of the snapshot that was fetched and not given out.
    fetched: Option<OwnedRow>,
    /// The key up to which the range was looked at.
    reached: Option<Vec<u8>>,
    hash: RowsHash,
    /// The row given out last.
    given: OwnedRow,
}

struct Seeing<'a> {
    ranges: &'a SeenRanges,
    table: TableName,
    from: Vec<u8>,
    until: Option<Vec<u8>>,
}

impl<'a> Merge<'a> {
    /// Rows as they are, with nothing taken down.
    pub(crate) fn plain(base: Box<dyn RowScan + 'a>) -> Self {
        Self::new(base, BTreeMap::new(), None)
    }

    fn new(base: Box<dyn RowScan + 'a>, own: BTreeMap<Vec<u8>, Option<Vec<u8>>>, seen: Option<Seeing<'a>>) -> Self {
        Self { base, own, front: End::default(), back: End::default(), is_over: false, seen }
    }

    pub(crate) fn seeing(
        base: Box<dyn RowScan + 'a>,
        own: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        ranges: &'a SeenRanges,
        table: TableName,
        range: KeyRange<'_>,
    ) -> Self {
        let seen = Seeing { ranges, table, from: range.from.to_vec(), until: range.until.map(<[u8]>::to_vec) };
        Self::new(base, own, Some(seen))
    }

    /// The next row from the front, until the ends have met.
    ///
    /// # Errors
    /// If the substrate fails.
    #[expect(clippy::should_implement_trait, reason = "a row is borrowed from the scan, which no Iterator allows")]
    pub fn next(&mut self) -> Result<Option<MergedRow<'_>>> {
        if self.seen.is_none() {
            // Nothing is merged and nothing taken down.
            return Ok(self.base.next()?.map(|(key, value)| (given(key, &mut self.front.given.0), value)));
        }
        while let Some(row) = self.step(Direction::Forward)? {
            if let (key, Some(value)) = row {
                self.front.given = (key, value);
                return Ok(Some((&self.front.given.0, Cow::Borrowed(&self.front.given.1))));
            }
        }
        Ok(None)
    }

    /// The next row from the back, until the ends have met.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn previous(&mut self) -> Result<Option<MergedRow<'_>>> {
        if self.seen.is_none() {
            return Ok(self.base.previous()?.map(|(key, value)| (given(key, &mut self.back.given.0), value)));
        }
        while let Some(row) = self.step(Direction::Backward)? {
            if let (key, Some(value)) = row {
                self.back.given = (key, value);
                return Ok(Some((&self.back.given.0, Cow::Borrowed(&self.back.given.1))));
            }
        }
        Ok(None)
    }

    /// The next key of snapshot or block, with its value unless the block removed it.
    fn step(&mut self, direction: Direction) -> Result<Option<OwnRow>> {
        self.fetch(direction)?;
        let (end, own) = match direction {
            Direction::Forward => (&mut self.front, self.own.first_key_value()),
            Direction::Backward => (&mut self.back, self.own.last_key_value()),
        };
        let order = match (&end.fetched, own) {
            (None, None) => {
                self.is_over = true;
                return Ok(None);
            }
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((base, _)), Some((own, _))) => match direction {
                Direction::Forward => base.cmp(own),
                Direction::Backward => own.cmp(base),
            },
        };
        let base = if order.is_le() { end.fetched.take() } else { None };
        let own = if order.is_ge() { pop(&mut self.own, direction) } else { None };
        if let Some((key, value)) = &base {
            end.hash.add(key, value);
        }
        let row = match (own, base) {
            (Some(own), _) => own,
            (None, Some((key, value))) => (key, Some(value)),
            (None, None) => return Ok(None),
        };
        end.reached = Some(row.0.clone());
        Ok(Some(row))
    }

    /// Fetches the next row of the snapshot for this end. When the snapshot has no more, the other end may still hold one.
    fn fetch(&mut self, direction: Direction) -> Result<()> {
        let (end, other, row) = match direction {
            Direction::Forward if self.front.fetched.is_none() => (&mut self.front, &mut self.back, self.base.next()?),
            Direction::Backward if self.back.fetched.is_none() => {
                (&mut self.back, &mut self.front, self.base.previous()?)
            }
            _ => return Ok(()),
        };
        end.fetched = match row {
            Some((key, value)) => Some((key.into_owned(), value.into_owned())),
            None => other.fetched.take(),
        };
        Ok(())
    }
}

/// The key of a row as it is given out: itself if it lies in the snapshot, else where it is kept meanwhile.
fn given<'a>(key: Cow<'a, [u8]>, kept: &'a mut Vec<u8>) -> &'a [u8] {
    match key {
        Cow::Borrowed(key) => key,
        Cow::Owned(key) => {
            *kept = key;
            kept
        }
    }
}

fn pop(own: &mut BTreeMap<Vec<u8>, Option<Vec<u8>>>, direction: Direction) -> Option<OwnRow> {
    match direction {
        Direction::Forward => own.pop_first(),
        Direction::Backward => own.pop_last(),
    }
}

impl Drop for Merge<'_> {
    fn drop(&mut self) {
        let Some(seen) = self.seen.take() else { return };
        let range = |from: &[u8], until: Option<&[u8]>, direction, hash: &RowsHash| SeenRange {
            table: seen.table.clone(),
            from: from.into(),
            until: until.map(Into::into),
            rows: hash.rows(),
            hash: Some((direction, hash.finish())),
        };
        let mut ranges = seen.ranges.borrow_mut();
        let back = self.back.reached.as_deref();
        if self.is_over {
            // All of it was looked at: by the front up to where the back had come, and by the back.
            ranges.push(range(&seen.from, back.or(seen.until.as_deref()), Direction::Forward, &self.front.hash));
        } else if let Some(reached) = &self.front.reached {
            // The least key after the last one.
            let beyond = [reached, &[0][..]].concat();
            ranges.push(range(&seen.from, Some(&beyond), Direction::Forward, &self.front.hash));
        }
        if let Some(reached) = back {
            ranges.push(range(reached, seen.until.as_deref(), Direction::Backward, &self.back.hash));
        }
    }
}

impl std::fmt::Debug for Merge<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merge").field("own", &self.own.len()).finish_non_exhaustive()
    }
}
