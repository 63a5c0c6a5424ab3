//! Rows of a version whose pages come and go, from one end: copied some at a time, so that no page is held in between.

use std::collections::VecDeque;
use std::ops::Bound;

use crate::btree::{self, Order, Root};
use crate::error::Result;
use crate::node::Value;
use crate::overflow::{REFERENCE_BYTES, Reference};
use crate::read::{Access, resolve};
use crate::snapshot::VersionPages;

/// How many rows are copied at once, and how many bytes of them, about.
const ROWS_MAX: usize = 64;
const BYTES_MAX: usize = 32 << 10;

/// From which end of a range rows are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Front,
    Back,
}

/// A row that was copied.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) key: Vec<u8>,
    value: CopiedValue,
}

#[derive(Debug)]
enum CopiedValue {
    Inline(Vec<u8>),
    /// A long value is read when it is asked for.
    Overflow([u8; REFERENCE_BYTES]),
}

impl Copied {
    /// The value, wherever it lies.
    pub(crate) fn value(self, pages: &VersionPages<'_>) -> Result<Vec<u8>> {
        match self.value {
            CopiedValue::Inline(bytes) => Ok(bytes),
            CopiedValue::Overflow(reference) => {
                let operation = pages.operation();
                Ok(resolve(Access::Guarded(&operation), Value::Overflow(&reference))?.into_owned())
            }
        }
    }

    /// The key, and the value, wherever it lies.
    pub(crate) fn into_parts(mut self, pages: &VersionPages<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
        let key = std::mem::take(&mut self.key);
        Ok((key, self.value(pages)?))
    }

    fn bytes(&self) -> usize {
        self.key.len()
            + match &self.value {
                CopiedValue::Inline(bytes) => bytes.len(),
                CopiedValue::Overflow(reference) => reference.len(),
            }
    }
}

/// Some rows of a tree, from the one with so many before it on.
pub(crate) fn from_nth(pages: &VersionPages<'_>, root: Root, before: u64) -> Result<Vec<Copied>> {
    let operation = pages.operation();
    let mut scan = btree::Scan::new(Access::Guarded(&operation));
    scan.go_nth(root, before)?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    while rows.len() < ROWS_MAX && bytes < BYTES_MAX {
        let Some(row) = scan.next()? else { break };
        let copied = copy(row)?;
        bytes += copied.bytes();
        rows.push(copied);
    }
    Ok(rows)
}

/// Rows in order from one end.
#[derive(Debug)]
pub(crate) struct Copies<'a> {
    pages: &'a VersionPages<'a>,
    root: Root,
    side: Side,
    /// What comes next is beyond this.
    at: Bound<Vec<u8>>,
    rows: VecDeque<Copied>,
    ended: bool,
}

impl<'a> Copies<'a> {
    /// Rows from a bound on: from the front with keys not less or greater, from the back with keys less.
    pub(crate) fn new(pages: &'a VersionPages<'a>, root: Root, side: Side, at: Bound<Vec<u8>>) -> Self {
        Self { pages, root, side, at, rows: VecDeque::new(), ended: false }
    }

    pub(crate) fn pages(&self) -> &'a VersionPages<'a> {
        self.pages
    }

    /// The next row.
    pub(crate) fn next<O: Order>(&mut self) -> Result<Option<Copied>> {
        if self.rows.is_empty() && !self.ended {
            self.fill::<O>()?;
        }
        Ok(self.rows.pop_front())
    }

    /// Copies the rows that come next.
    fn fill<O: Order>(&mut self) -> Result<()> {
        let operation = self.pages.operation();
        let mut scan = btree::Scan::new(Access::Guarded(&operation));
        match (self.side, &self.at) {
            (_, Bound::Included(key) | Bound::Excluded(key)) => scan.go_to::<O>(self.root, key)?,
            (Side::Front, Bound::Unbounded) => scan.go_first(self.root)?,
            (Side::Back, Bound::Unbounded) => scan.go_last(self.root)?,
        }
        let mut bytes = 0;
        while self.rows.len() < ROWS_MAX && bytes < BYTES_MAX {
            let row = match self.side {
                Side::Front => scan.next()?,
                Side::Back => scan.previous()?,
            };
            let Some(row) = row else {
                self.ended = true;
                break;
            };
            let copied = copy(row)?;
            // The place is before the bound itself, which was copied already.
            let again = self.side == Side::Front
                && matches!(&self.at, Bound::Excluded(last) if O::compare(last, &copied.key).is_eq());
            if !again {
                bytes += copied.bytes();
                self.rows.push_back(copied);
            }
        }
        if let Some(last) = self.rows.back() {
            self.at = Bound::Excluded(last.key.clone());
        }
        Ok(())
    }
}

/// Rows from both ends of a range, until they meet.
#[derive(Debug)]
pub(crate) struct CopiedEnds<'a> {
    front: Copies<'a>,
    back: Copies<'a>,
    /// The keys of the rows that were given out last.
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    /// The row that is given out.
    row: (Vec<u8>, Vec<u8>),
}

impl<'a> CopiedEnds<'a> {
    pub(crate) fn new(pages: &'a VersionPages<'a>, root: Root, from: Option<&[u8]>, until: Option<&[u8]>) -> Self {
        let from = from.map_or(Bound::Unbounded, |key| Bound::Included(key.to_vec()));
        let until = until.map_or(Bound::Unbounded, |key| Bound::Excluded(key.to_vec()));
        Self {
            front: Copies::new(pages, root, Side::Front, from),
            back: Copies::new(pages, root, Side::Back, until),
            low: None,
            high: None,
            row: Default::default(),
        }
    }

    /// The next row from one end of the range between two keys, or `None` when the ends have met.
    pub(crate) fn next<O: Order>(
        &mut self,
        side: Side,
        from: Option<&[u8]>,
        until: Option<&[u8]>,
    ) -> Result<Option<(&[u8], &[u8])>> {
        let rows = if side == Side::Front { &mut self.front } else { &mut self.back };
        let Some(row) = rows.next::<O>()? else { return Ok(None) };
        let past = match side {
            Side::Front => is_not_less::<O>(&row.key, until) || is_not_less::<O>(&row.key, self.high.as_deref()),
            Side::Back => {
                from.is_some_and(|from| O::compare(&row.key, from).is_lt())
                    || self.low.as_deref().is_some_and(|low| O::compare(&row.key, low).is_le())
            }
        };
        if past {
            return Ok(None);
        }
        let pages = rows.pages();
        let given = if side == Side::Front { &mut self.low } else { &mut self.high };
        *given = Some(row.key.clone());
        self.row = (row.key.clone(), row.value(pages)?);
        Ok(Some((&self.row.0, &self.row.1)))
    }

    /// The next row from the front is the one with this key.
    pub(crate) fn skip_to(&mut self, key: Vec<u8>) {
        self.front = Copies::new(self.front.pages, self.front.root, Side::Front, Bound::Included(key));
    }

    /// The keys of the rows that were given out last: everything between them is left.
    pub(crate) fn given(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        (self.low.as_deref(), self.high.as_deref())
    }
}

fn is_not_less<O: Order>(key: &[u8], bound: Option<&[u8]>) -> bool {
    bound.is_some_and(|bound| O::compare(key, bound).is_ge())
}

fn copy(row: btree::Row<'_>) -> Result<Copied> {
    let mut key = Vec::new();
    row.node.key_into(row.index, &mut key);
    let value = match row.node.value(row.index) {
        Value::Inline(bytes) => CopiedValue::Inline(bytes.to_vec()),
        Value::Overflow(reference) => CopiedValue::Overflow(Reference::decode(reference)?.encode()),
    };
    Ok(Copied { key, value })
}
