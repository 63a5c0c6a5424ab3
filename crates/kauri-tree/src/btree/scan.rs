//! Rows in order, from either end of a range towards the other.

use super::search::{child_index, row_index};
use super::{DEPTH_MAX, Order, Root, stray};
use crate::error::Result;
use crate::node::Node;
use crate::read::Access;

/// A place between two rows of a tree, from which one can go either way.
pub(crate) struct Scan<'a> {
    pages: Access<'a>,
    /// The branches on the way, and which child was taken in each.
    steps: [(u32, u16); DEPTH_MAX],
    len: usize,
    leaf: Option<Node<'a>>,
    /// The leaf's page; 0 if there is none.
    page: u32,
    /// The row behind the place.
    index: usize,
}

/// A row that was found: the leaf, its page, and which of its rows.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) node: Node<'a>,
    pub(crate) page: u32,
    pub(crate) index: usize,
}

impl<'a> Scan<'a> {
    fn new(pages: Access<'a>) -> Self {
        Self { pages, steps: [(0, 0); DEPTH_MAX], len: 0, leaf: None, page: 0, index: 0 }
    }

    /// Before the first row.
    pub(crate) fn first(pages: Access<'a>, root: Root) -> Result<Self> {
        let mut scan = Self::new(pages);
        if root.page != 0 {
            scan.down(root.page, |_| 0)?;
        }
        Ok(scan)
    }

    /// Behind the last row.
    pub(crate) fn last(pages: Access<'a>, root: Root) -> Result<Self> {
        let mut scan = Self::new(pages);
        if root.page != 0 {
            scan.down(root.page, |node| node.count() - 1)?;
            scan.index = scan.leaf.map_or(0, Node::count);
        }
        Ok(scan)
    }

    /// Before the first row whose key is not less.
    pub(crate) fn seek<O: Order>(pages: Access<'a>, root: Root, key: &[u8]) -> Result<Self> {
        let mut scan = Self::new(pages);
        if root.page != 0 {
            scan.down(root.page, |node| child_index::<O>(node, key))?;
            scan.index = scan.leaf.map_or(0, |leaf| row_index::<O>(leaf, key).0);
        }
        Ok(scan)
    }

    fn node(&self, page: u32) -> Result<Node<'a>> {
        let node = Node::new(self.pages.page(page)?);
        // From here down there is room for as many steps as there are levels.
        let fits = self.len + usize::from(node.level()) < DEPTH_MAX;
        if node.is_node() && fits { Ok(node) } else { Err(stray(page)) }
    }

    /// Goes down to a leaf, and to its first row.
    fn down(&mut self, page: u32, choose: impl Fn(Node<'a>) -> usize) -> Result<()> {
        let mut page = page;
        let mut node = self.node(page)?;
        while !node.is_leaf() {
            let child = choose(node);
            self.steps[self.len] = (page, short(child));
            self.len += 1;
            page = node.child(child);
            let child = self.node(page)?;
            node = if child.is_below(node) { child } else { return Err(stray(page)) };
        }
        self.leaf = Some(node);
        self.page = page;
        self.index = 0;
        Ok(())
    }

    /// The leaf, and the row in it before which the place is. The end of a leaf is another place than the start of the next.
    #[inline]
    pub(crate) fn place(&self) -> (u32, usize) {
        (self.page, self.index)
    }

    /// The row behind the place, which moves behind it.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Row<'a>>> {
        loop {
            let Some(leaf) = self.leaf else { return Ok(None) };
            if self.index < leaf.count() {
                self.index += 1;
                return Ok(Some(Row { node: leaf, page: self.page, index: self.index - 1 }));
            }
            if !self.step_right()? {
                return Ok(None);
            }
        }
    }

    /// The row before the place, which moves before it.
    #[inline]
    pub(crate) fn previous(&mut self) -> Result<Option<Row<'a>>> {
        loop {
            let Some(leaf) = self.leaf else { return Ok(None) };
            if self.index > 0 {
                self.index -= 1;
                return Ok(Some(Row { node: leaf, page: self.page, index: self.index }));
            }
            if !self.step_left()? {
                return Ok(None);
            }
        }
    }

    /// Moves to the start of the next leaf, if there is one.
    fn step_right(&mut self) -> Result<bool> {
        for depth in (0..self.len).rev() {
            let (page, child) = self.steps[depth];
            let (node, child) = (Node::new(self.pages.page(page)?), usize::from(child));
            if child + 1 < node.count() {
                self.steps[depth].1 = short(child + 1);
                self.len = depth + 1;
                self.down(node.child(child + 1), |_| 0)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves to the end of the leaf before, if there is one.
    fn step_left(&mut self) -> Result<bool> {
        for depth in (0..self.len).rev() {
            let (page, child) = self.steps[depth];
            let (node, child) = (Node::new(self.pages.page(page)?), usize::from(child));
            if child > 0 {
                self.steps[depth].1 = short(child - 1);
                self.len = depth + 1;
                self.down(node.child(child - 1), |node| node.count() - 1)?;
                self.index = self.leaf.map_or(0, Node::count) - usize::from(planted!(SkipRowBackwards));
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn short(child: usize) -> u16 {
    u16::try_from(child).expect("a page of 64 KiB has fewer than 2^16 slots")
}
