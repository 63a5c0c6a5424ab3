//! Removing a range of rows: the two ways to its ends are changed, and what lies between is unlinked whole.

use super::edit::{merge, retire_below, shorten};
use super::search::{child_index, row_index};
use super::{Order, PagesMut, Root};
use crate::error::Result;
use crate::node::{Node, NodeMut};
use crate::overflow::{self, Reference, RunsMut};

/// A place between two rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edge<'k> {
    /// Before the row with this key, or where it would be.
    Before(&'k [u8]),
    /// Behind it.
    Behind(&'k [u8]),
}

impl<'k> Edge<'k> {
    fn key(self) -> &'k [u8] {
        match self {
            Self::Before(key) | Self::Behind(key) => key,
        }
    }

    /// The child of a branch in which the place is.
    fn child<O: Order>(self, node: Node<'_>) -> usize {
        child_index::<O>(node, self.key())
    }

    /// How many rows of a leaf are before the place.
    fn row<O: Order>(self, node: Node<'_>) -> usize {
        let (index, found) = row_index::<O>(node, self.key());
        index + usize::from(found && matches!(self, Self::Behind(_)))
    }
}

/// A range of rows; without an edge it goes on to the end of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut<'k> {
    pub(crate) from: Option<Edge<'k>>,
    pub(crate) until: Option<Edge<'k>>,
}

/// Removes the rows of a range, whose edges are in order, and tells how many there were.
pub(crate) fn remove_range<O: Order>(
    pages: &mut (impl PagesMut + RunsMut),
    root: &mut Root,
    cut: Cut<'_>,
) -> Result<u64> {
    if root.page == 0 {
        return Ok(0);
    }
    root.page = pages.fresh(root.page)?;
    let removed = cut_page::<O>(pages, root.page, cut)?;
    root.rows -= removed;
    shorten(pages, root)?;
    Ok(removed)
}

/// Removes the rows of a range from a page of the transaction's own, and from those below.
fn cut_page<O: Order>(pages: &mut (impl PagesMut + RunsMut), page: u32, cut: Cut<'_>) -> Result<u64> {
    let node = Node::new(pages.page(page)?);
    if node.is_leaf() {
        let first = cut.from.map_or(0, |edge| edge.row::<O>(node));
        let end = cut.until.map_or(node.count(), |edge| edge.row::<O>(node));
        return cut_rows(pages, page, first, end.max(first));
    }
    let first = cut.from.map_or(0, |edge| edge.child::<O>(node));
    let last = cut.until.map_or(node.count() - 1, |edge| edge.child::<O>(node));
    if first == last && (cut.from.is_some() || cut.until.is_some()) {
        let removed = cut_child::<O>(pages, page, first, cut)?;
        tidy::<O>(pages, page, first)?;
        return Ok(removed);
    }
    // The children between those with the edges go, also those at the ends where there is no edge.
    let unlinked = first + usize::from(cut.from.is_some());
    let mut removed = unlink(pages, page, unlinked, last + usize::from(cut.until.is_none()))?;
    // Both are cut before one of them may be merged with the other.
    if cut.until.is_some() {
        removed += cut_child::<O>(pages, page, unlinked, Cut { from: None, ..cut })?;
    }
    if cut.from.is_some() {
        removed += cut_child::<O>(pages, page, first, Cut { until: None, ..cut })?;
    }
    // From the right to the left: what is taken away does not move what is to come.
    if cut.until.is_some() {
        tidy::<O>(pages, page, unlinked)?;
    }
    if cut.from.is_some() {
        tidy::<O>(pages, page, first)?;
    }
    Ok(removed)
}

fn cut_rows(pages: &mut (impl PagesMut + RunsMut), leaf: u32, first: usize, end: usize) -> Result<u64> {
    let node = Node::new(pages.page(leaf)?);
    let mut references = Vec::new();
    for index in (first..end).filter(|index| node.is_overflow(*index)) {
        references.push(Reference::decode(node.value(index).bytes())?);
    }
    let page_bytes = pages.page_bytes();
    for reference in references.into_iter().filter(|_| !planted!(KeepValuesOfCutRows)) {
        overflow::retire(pages, page_bytes, reference)?;
    }
    NodeMut::new(pages.page_mut(leaf)).remove_items(first, end);
    Ok((end - first) as u64)
}

/// Removes the rows of a range from below a child of a branch.
fn cut_child<O: Order>(pages: &mut (impl PagesMut + RunsMut), page: u32, child: usize, cut: Cut<'_>) -> Result<u64> {
    let below = Node::new(pages.page(page)?).child(child);
    let below = pages.fresh(below)?;
    NodeMut::new(pages.page_mut(page)).set_child(child, below);
    let removed = cut_page::<O>(pages, below, cut)?;
    let less = -i64::try_from(removed).expect("fewer rows than 2^48");
    if !planted!(KeepRowsOfCutPage) {
        NodeMut::new(pages.page_mut(page)).add_rows(child, less);
    }
    Ok(removed)
}

/// Takes a child away in which nothing is left, or merges it with a neighbour if it is little and that is not nothing.
fn tidy<O: Order>(pages: &mut impl PagesMut, page: u32, child: usize) -> Result<()> {
    let below = Node::new(pages.page(page)?).child(child);
    let node = Node::new(pages.page(below)?);
    if node.count() == 0 {
        pages.retire(below);
        NodeMut::new(pages.page_mut(page)).remove_items(child, child + 1);
        return Ok(());
    }
    let is_thin = node.used_bytes() < pages.page_bytes() / 4;
    let branch = Node::new(pages.page(page)?);
    let before = child.checked_sub(1).map(|before| branch.rows_below(before));
    if is_thin && before != Some(0) { merge::<O>(pages, page, child) } else { Ok(()) }
}

/// Takes children from a branch with everything below them.
fn unlink(pages: &mut (impl PagesMut + RunsMut), page: u32, first: usize, end: usize) -> Result<u64> {
    let node = Node::new(pages.page(page)?);
    let rows = node.rows_in(first..end);
    let gone: Vec<u32> = (first..end).map(|child| node.child(child)).collect();
    for below in gone {
        retire_below(pages, below)?;
    }
    NodeMut::new(pages.page_mut(page)).remove_items(first, end);
    Ok(rows)
}
