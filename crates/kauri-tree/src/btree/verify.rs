//! Whether a tree is one: every page sound, keys in order across pages, counts right, all leaves at one depth.

use super::{DEPTH_MAX, Order, Pages, Root};
use crate::error::{Error, Fault, Result};
use crate::node::{Node, Value};

/// Checks a tree and tells of each of its pages and of each value that lies elsewhere.
pub(crate) fn verify<O: Order>(pages: &impl Pages, root: Root, seen: &mut impl FnMut(Seen<'_>)) -> Result<()> {
    if root.page == 0 {
        return match root.rows {
            0 => Ok(()),
            rows => Err(corrupt(0, "no rows without a page", rows)),
        };
    }
    let mut last = None;
    let mut walk = Walk { pages, seen, last: &mut last, order: std::marker::PhantomData::<O> };
    let rows = walk.page(root.page, None, &[], 0)?;
    match rows == root.rows {
        true => Ok(()),
        false => Err(corrupt(root.page, "as many rows as the root says", rows)),
    }
}

/// What a tree is made of.
pub(crate) enum Seen<'a> {
    /// A page.
    Page(u32),
    /// A value that lies elsewhere, by its reference.
    Overflow(&'a [u8]),
}

fn corrupt(page: u32, expected: &'static str, found: u64) -> Error {
    Error::Corrupt { page, fault: Fault::new(expected, found) }
}

struct Walk<'a, P, S, O> {
    pages: &'a P,
    seen: &'a mut S,
    /// The key of the row before.
    last: &'a mut Option<Vec<u8>>,
    order: std::marker::PhantomData<O>,
}

impl<P: Pages, S: FnMut(Seen<'_>), O: Order> Walk<'_, P, S, O> {
    /// Checks a page and everything below; its rows are not less than `least`. Returns how many there are.
    fn page(&mut self, page: u32, level: Option<u8>, least: &[u8], depth: usize) -> Result<u64> {
        let bytes = self.pages.page(page)?;
        let node = Node::check(bytes, O::BYTEWISE).map_err(|fault| Error::Corrupt { page, fault })?;
        if level.is_some_and(|level| level != node.level()) || depth >= DEPTH_MAX {
            return Err(corrupt(page, "the level below its parent's", node.level().into()));
        }
        if node.count() == 0 {
            return Err(corrupt(page, "at least one item in a page", 0));
        }
        (self.seen)(Seen::Page(page));
        match node.is_leaf() {
            true => self.leaf(page, node, least),
            false => self.branch(page, node, least, depth),
        }
    }

    fn leaf(&mut self, page: u32, node: Node<'_>, least: &[u8]) -> Result<u64> {
        for index in 0..node.count() {
            let mut key = Vec::new();
            node.key_into(index, &mut key);
            if O::BYTEWISE && key.as_slice() < least {
                return Err(corrupt(page, "keys not less than the page's own in its parent", index as u64));
            }
            if self.last.as_ref().is_some_and(|last| O::compare(last, &key).is_ge()) {
                return Err(corrupt(page, "keys greater than those of the page before", index as u64));
            }
            *self.last = Some(key);
            if let Value::Overflow(reference) = node.value(index) {
                (self.seen)(Seen::Overflow(reference));
            }
        }
        Ok(node.count() as u64)
    }

    fn branch(&mut self, page: u32, node: Node<'_>, least: &[u8], depth: usize) -> Result<u64> {
        let mut all = 0;
        for index in 0..node.count() {
            let mut key = least.to_vec();
            if index > 0 {
                key.clear();
                node.key_into(index, &mut key);
                if self.last.as_ref().is_some_and(|last| O::compare(last, &key).is_ge()) {
                    return Err(corrupt(page, "a key greater than all rows before it", index as u64));
                }
            }
            let rows = self.page(node.child(index), Some(node.level() - 1), &key, depth + 1)?;
            if rows != node.rows_below(index) {
                return Err(corrupt(page, "as many rows as lie below a child", rows));
            }
            all += rows;
        }
        Ok(all)
    }
}
