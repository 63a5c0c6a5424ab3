//! Trees made of rows that come in order, from the leaves up: each page is written once, and full.

use std::marker::PhantomData;

use super::{Order, PagesMut, Root};
use crate::error::Result;
use crate::node::{Draft, Item, Value, common_bytes};

/// A tree that grows at its right edge.
pub(crate) struct Loader<O> {
    page_bytes: usize,
    /// The node that is being filled on each level, from the leaves up.
    levels: Vec<Level>,
    rows: u64,
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
        Self { page_bytes, levels: vec![leaf], rows: 0, order: PhantomData }
    }

    /// Whether a key comes behind all so far.
    #[inline]
    pub(crate) fn is_next(&self, key: &[u8]) -> bool {
        // After a row was pushed the leaf has one.
        self.levels[0].draft.last_key().is_none_or(|last| O::compare(last, key).is_lt())
    }

    /// Adds a row behind all so far.
    #[inline]
    pub(crate) fn push(&mut self, pages: &mut impl PagesMut, key: &[u8], value: Value<'_>) -> Result<()> {
        debug_assert!(self.is_next(key));
        if !self.levels[0].draft.has_room(key, value.bytes().len(), self.page_bytes, O::BYTEWISE) {
            let separator = self.separator(key);
            self.end_page(pages, 0, separator)?;
        }
        self.levels[0].draft.push(&Item::row(key, value));
        self.rows += 1;
        Ok(())
    }

    /// The shortest key that tells this row from the one before.
    fn separator(&self, key: &[u8]) -> Vec<u8> {
        let last = self.levels[0].draft.last_key().expect("a leaf without rows has room");
        let bytes = if O::BYTEWISE { common_bytes(last, key) + 1 } else { key.len() };
        key[..bytes].to_vec()
    }

    /// Makes a page of what was drafted on a level; the next one there gets this key.
    fn end_page(&mut self, pages: &mut impl PagesMut, level: usize, next: Vec<u8>) -> Result<()> {
        let page = pages.make()?;
        let Level { draft, key } = &mut self.levels[level];
        draft.write(O::BYTEWISE, pages.page_mut(page));
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
