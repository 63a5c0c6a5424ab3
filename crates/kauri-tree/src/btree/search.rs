//! Finding a row by its key, and its place among the others.

use super::{Order, Pages, Root, stray, topmost};
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
        node = below(pages, node, child_index::<O>(node, key))?;
    }
    let (index, found) = row_index::<O>(node, key);
    Ok(found.then(|| node.value(index)))
}

/// How many rows have a lesser key.
pub(crate) fn rank<O: Order>(pages: &impl Pages, root: Root, key: &[u8]) -> Result<u64> {
    if root.page == 0 {
        return Ok(0);
    }
    let (mut before, mut rows) = (0, root.rows);
    let mut node = topmost(pages, root.page)?;
    while !node.is_leaf() {
        let index = child_index::<O>(node, key);
        before = rows_before(node, rows, index).saturating_add(before);
        rows = node.rows_below(index);
        node = below(pages, node, index)?;
    }
    Ok(before.saturating_add(row_index::<O>(node, key).0 as u64))
}

/// How many rows have a key that is not less than `from`, and less than `until`, which is not less than `from` itself.
pub(crate) fn count_between<O: Order>(pages: &impl Pages, root: Root, from: &[u8], until: &[u8]) -> Result<u64> {
    if root.page == 0 {
        return Ok(0);
    }
    let mut node = topmost(pages, root.page)?;
    while !node.is_leaf() {
        let (low, high) = (child_index::<O>(node, from), child_index::<O>(node, until));
        if low < high {
            let ends = [(low, from), (high, until)].map(|(index, key)| End { parent: node, index, key });
            return Ok(node.rows_in(low + 1..high) + count_apart::<O>(pages, ends)?);
        }
        node = below(pages, node, low)?;
    }
    let (low, high) = (row_index::<O>(node, from).0, row_index::<O>(node, until).0);
    Ok(high.saturating_sub(low) as u64)
}

/// One end of a range, below the branch where the ways to both ends part.
struct End<'a, 'k> {
    parent: Node<'a>,
    index: usize,
    key: &'k [u8],
}

/// How many rows are not less than the first end, below its child, and less than the second, below its own. The ways are gone
/// together, so that memory is asked for both at once.
fn count_apart<O: Order>(pages: &impl Pages, ends: [End<'_, '_>; 2]) -> Result<u64> {
    let [mut low, mut high] = ends;
    let mut count = 0_u64;
    loop {
        let (low_rows, high_rows) = (low.parent.rows_below(low.index), high.parent.rows_below(high.index));
        (low.parent, high.parent) = (below(pages, low.parent, low.index)?, below(pages, high.parent, high.index)?);
        if low.parent.is_leaf() {
            let (first, end) = (row_index::<O>(low.parent, low.key).0, row_index::<O>(high.parent, high.key).0);
            return Ok(count.saturating_add(low_rows.saturating_sub(first as u64) + end as u64));
        }
        low.index = child_index::<O>(low.parent, low.key);
        high.index = child_index::<O>(high.parent, high.key);
        let not_after = rows_before(low.parent, low_rows, low.index) + low.parent.rows_below(low.index);
        let more = low_rows.saturating_sub(not_after) + rows_before(high.parent, high_rows, high.index);
        count = more.saturating_add(count);
    }
}

/// The node of a child that will be searched.
#[inline]
fn below<'a>(pages: &'a impl Pages, parent: Node<'a>, index: usize) -> Result<Node<'a>> {
    let (page, slots) = parent.child_slots(index);
    let node = Node::new(pages.page(page)?);
    node.fetch_slots(slots);
    // Looked at last: by now the header is on its way together with the slots.
    if node.is_below(parent) { Ok(node) } else { Err(stray(page)) }
}

/// How many of the rows below a branch lie before a child.
fn rows_before(node: Node<'_>, rows: u64, index: usize) -> u64 {
    // All are known, so it is enough to add up the children on the side where there are fewer.
    match index <= node.count() / 2 {
        true => node.rows_in(0..index),
        false => rows.saturating_sub(node.rows_in(index..node.count())),
    }
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
