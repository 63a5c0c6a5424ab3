//! Finding a row by its key, and its place among the others.

use super::{Order, Pages, Root, below, topmost};
use crate::error::Result;
use crate::node::{Node, Value};

/// The value of a key.
#[inline]
pub(crate) fn get<'a, O: Order>(pages: &'a impl Pages, root: Root, key: &[u8]) -> Result<Option<Value<'a>>> {
    if root.page == 0 {
        return Ok(None);
    }
    let mut node = topmost(pages, root.page)?;
    while !node.is_leaf() {
        node = below(pages, node, node.child(child_index::<O>(node, key)))?;
    }
    let (index, found) = row_index::<O>(node, key);
    Ok(found.then(|| node.value(index)))
}

/// How many rows have a lesser key, and whether there is a row with this one.
pub(crate) fn rank<O: Order>(pages: &impl Pages, root: Root, key: &[u8]) -> Result<(u64, bool)> {
    if root.page == 0 {
        return Ok((0, false));
    }
    let (mut before, mut rows) = (0, root.rows);
    let mut node = topmost(pages, root.page)?;
    while !node.is_leaf() {
        let index = child_index::<O>(node, key);
        let rows_below = node.rows_below(index);
        // All are known, so it is enough to add up the children on the side where there are fewer.
        before += match index <= node.count() / 2 {
            true => node.rows_in(0..index),
            false => rows.saturating_sub(rows_below + node.rows_in(index + 1..node.count())),
        };
        rows = rows_below;
        node = below(pages, node, node.child(index))?;
    }
    let (index, found) = row_index::<O>(node, key);
    Ok((before + index as u64, found))
}

/// The child of a branch that a key belongs to.
#[inline]
pub(super) fn child_index<O: Order>(node: Node<'_>, key: &[u8]) -> usize {
    if O::BYTEWISE { node.find_child(key) } else { node.find_child_by(|other| O::compare(other, key)) }
}

/// The first row of a leaf whose key is not less, and whether it is this key.
#[inline]
pub(super) fn row_index<O: Order>(node: Node<'_>, key: &[u8]) -> (usize, bool) {
    if O::BYTEWISE { node.find(key) } else { node.find_by(|other| O::compare(other, key)) }
}
