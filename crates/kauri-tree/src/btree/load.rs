//! Trees made of rows that come in order, from the leaves up: each page is written once, and full.

use std::marker::PhantomData;

use super::{Order, PagesMut, Root};
use crate::error::{Error, Result};
use crate::node::{Draft, Item, Value, common_bytes};

/// The most pages whose rows are written to the log too, and that stay in memory. If there are more, they are committed by themselves: the
/// log would only be a second copy of them.
pub(crate) const LOGGED_PAGES_MAX: u32 = 64;

/// A tree that grows at its right edge.
pub(crate) struct Loader<O> {
    page_bytes: usize,
    /// The node that is being filled on each level, from the leaves up.
    levels: Vec<Level>,
    rows: u64,
    /// How many pages were made.
    pages: u32,
    order: PhantomData<O>,
}

struct Level {
    draft: Draft,
    /// The key by which the parent will know it.
    key: Vec<u8>,
}

impl<O: Order> Loader<O> {
    pub(crate) fn new(page_bytes: usize) -> Self {
        let leaf = Level { draft: Draft::new(0), key: Vec::new() };
        Self { page_bytes, levels: vec![leaf], rows: 0, pages: 0, order: PhantomData }
    }

    /// How many pages were made so far.
    pub(crate) const fn pages(&self) -> u32 {
        self.pages
    }

    /// Adds a row behind all so far. That it comes behind them is looked at when its leaf is full: rows are read from wherever they
    /// lie in memory, and the next ones are on their way while nothing depends on this one's bytes.
    #[inline]
    pub(crate) fn push(&mut self, pages: &mut impl PagesMut, key: &[u8], value: Value<'_>) -> Result<()> {
        if !self.levels[0].draft.has_room(key, value.bytes().len(), self.page_bytes, O::BYTEWISE) {
            self.check()?;
            let separator = self.separator(key)?;
            self.end_page(pages, 0, separator)?;
        }
        self.levels[0].draft.push(&Item::row(key, value));
        self.rows += 1;
        Ok(())
    }

    /// Whether all rows so far came in order.
    ///
    /// # Errors
    /// The first that did not.
    pub(crate) fn check(&self) -> Result<()> {
        let draft = &self.levels[0].draft;
        let mut pairs = draft.keys().zip(draft.keys().skip(1));
        match pairs.position(|(left, right)| !is_before::<O>(left, right)) {
            None => Ok(()),
            Some(index) => Err(Error::Unsorted.of_row(self.rows - draft.rows() + index as u64 + 1)),
        }
    }

    /// The shortest key that tells this row from the one before.
    fn separator(&self, key: &[u8]) -> Result<Vec<u8>> {
        let last = self.levels[0].draft.last_key().expect("a leaf without rows has room");
        if !is_before::<O>(last, key) {
            return Err(Error::Unsorted.of_row(self.rows));
        }
        let bytes = if O::BYTEWISE { common_bytes(last, key) + 1 } else { key.len() };
        Ok(key[..bytes].to_vec())
    }

    /// Makes a page of what was drafted on a level; the next one there gets this key.
    fn end_page(&mut self, pages: &mut impl PagesMut, level: usize, next: Vec<u8>) -> Result<()> {
        let Level { draft, key } = &mut self.levels[level];
        let page = match self.pages < LOGGED_PAGES_MAX {
            true => {
                let page = pages.make()?;
                draft.write(O::BYTEWISE, pages.page_mut(page));
                page
            }
            // There will be many, and it is all the same to them whether they are in memory.
            false => pages.write_once(|page| draft.write(O::BYTEWISE, page))?,
        };
        self.pages += 1;
        let (rows, key) = (draft.rows(), std::mem::replace(key, next));
        draft.clear();
        self.push_child(pages, level + 1, key, page, rows)
    }

    fn push_child(
        &mut self,
        pages: &mut impl PagesMut,
        level: usize,
        key: Vec<u8>,
        page: u32,
        rows: u64,
    ) -> Result<()> {
        if level == self.levels.len() {
            let level = u8::try_from(level).expect("no tree is as deep");
            self.levels.push(Level { draft: Draft::new(level), key: Vec::new() });
        }
        if !self.levels[level].draft.has_room(&key, 0, self.page_bytes, O::BYTEWISE) {
            self.end_page(pages, level, key)?;
            self.levels[level].draft.push(&Item::child(&[], page, rows));
            return Ok(());
        }
        let Level { draft, key: own } = &mut self.levels[level];
        if draft.is_empty() {
            draft.push(&Item::child(&[], page, rows));
            *own = key;
        } else {
            draft.push(&Item::child(&key, page, rows));
        }
        Ok(())
    }

    /// The tree. There may be nothing in it.
    pub(crate) fn end(mut self, pages: &mut impl PagesMut) -> Result<Root> {
        self.check()?;
        if self.rows == 0 {
            return Ok(Root::default());
        }
        for level in 0.. {
            if level + 1 < self.levels.len() {
                self.end_page(pages, level, Vec::new())?;
                continue;
            }
            // A level without one above is one page, and a branch there has two children: one from a page that was full, and
            // the page that was being filled.
            let page = pages.make()?;
            self.levels[level].draft.write(O::BYTEWISE, pages.page_mut(page));
            return Ok(Root { page, rows: self.rows });
        }
        unreachable!("there is a topmost level")
    }
}

/// Whether a key comes before another. Most differ in their first bytes, which are compared at once.
#[inline]
fn is_before<O: Order>(left: &[u8], right: &[u8]) -> bool {
    if O::BYTEWISE
        && let (Some(left), Some(right)) = (left.first_chunk(), right.first_chunk())
        && left != right
    {
        return u64::from_be_bytes(*left) < u64::from_be_bytes(*right);
    }
    O::compare(left, right).is_lt()
}
