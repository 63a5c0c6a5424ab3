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
        let next = child(pages, node, index)?;
        before = rows_before(node, rows, index).saturating_add(before);
        rows = node.rows_below(index);
        node = next.below(node)?;
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
            return count_apart::<O>(pages, node, [low, high], [from, until]);
        }
        node = below(pages, node, low)?;
    }
    let (low, high) = (row_index::<O>(node, from).0, row_index::<O>(node, until).0);
    Ok(high.saturating_sub(low) as u64)
}

/// How many rows lie between two keys that belong to different children of a branch.
///
/// The ways are gone together, and the rows between them are added up a level behind: memory is asked for the next pages of both ways
/// before that.
fn count_apart<O: Order>(pages: &impl Pages, node: Node<'_>, at: [usize; 2], keys: [&[u8]; 2]) -> Result<u64> {
    let ([mut low, mut high], mut at) = ([node; 2], at);
    let mut rows = [0, 1].map(|side| node.rows_below(at[side]));
    let (next_low, next_high) = (child(pages, low, at[0])?, child(pages, high, at[1])?);
    let mut count = node.rows_in(at[0] + 1..at[1]);
    (low, high) = (next_low.below(low)?, next_high.below(high)?);
    while !low.is_leaf() {
        at = [child_index::<O>(low, keys[0]), child_index::<O>(high, keys[1])];
        let (next_low, next_high) = (child(pages, low, at[0])?, child(pages, high, at[1])?);
        let not_after = rows_before(low, rows[0], at[0] + 1);
        let before = rows_before(high, rows[1], at[1]);
        count = (rows[0].saturating_sub(not_after) + before).saturating_add(count);
        rows = [low.rows_below(at[0]), high.rows_below(at[1])];
        (low, high) = (next_low.below(low)?, next_high.below(high)?);
    }
    let (first, end) = (row_index::<O>(low, keys[0]).0, row_index::<O>(high, keys[1]).0);
    Ok(count.saturating_add(rows[0].saturating_sub(first as u64) + end as u64))
}

/// A page that a branch points to, and that is on its way from memory: nothing in it was looked at yet.
struct Coming<'a> {
    page: u32,
    node: Node<'a>,
}

/// Asks for a child that will be searched.
#[inline]
fn child<'a>(pages: &'a impl Pages, parent: Node<'_>, index: usize) -> Result<Coming<'a>> {
    let (page, slots) = parent.child_slots(index);
    let node = Node::new(pages.page(page)?);
    node.fetch_slots(slots);
    Ok(Coming { page, node })
}

impl<'a> Coming<'a> {
    /// The node, if it is one level below its parent.
    #[inline]
    fn below(self, parent: Node<'_>) -> Result<Node<'a>> {
        if self.node.is_below(parent) { Ok(self.node) } else { Err(stray(self.page)) }
    }
}

/// The node of a child that will be searched.
#[inline]
pub(super) fn below<'a>(pages: &'a impl Pages, parent: Node<'a>, index: usize) -> Result<Node<'a>> {
    child(pages, parent, index)?.below(parent)
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
