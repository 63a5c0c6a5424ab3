//! Places in a tree, and the way from one leaf to the next.

use super::search::{child_index, row_index};
use super::{Order, Root, Way, stray};
use crate::error::Result;
use crate::node::Node;
use crate::read::Access;

/// A place in a leaf of a tree, from which one can go either way.
pub(crate) struct Scan<'a> {
    pages: Access<'a>,
    way: Way,
    leaf: Option<Node<'a>>,
    /// The leaf's page; 0 if there is none.
    page: u32,
    /// The row behind the place.
    index: usize,
}

/// A row that was found: the leaf, and which of its rows.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) node: Node<'a>,
    pub(crate) index: usize,
}

impl<'a> Scan<'a> {
    /// Nowhere yet.
    pub(crate) const fn new(pages: Access<'a>) -> Self {
        Self { pages, way: Way::new(), leaf: None, page: 0, index: 0 }
    }

    /// Before the first row.
    pub(crate) fn first(pages: Access<'a>, root: Root) -> Result<Self> {
        let mut scan = Self::new(pages);
        scan.go_first(root)?;
        Ok(scan)
    }

    /// Goes before the first row of a tree.
    pub(crate) fn go_first(&mut self, root: Root) -> Result<()> {
        self.go(root, |_| 0)
    }

    /// Goes behind the last row of a tree.
    pub(crate) fn go_last(&mut self, root: Root) -> Result<()> {
        self.go(root, |node| node.count() - 1)?;
        self.index = self.leaf.map_or(0, Node::count);
        Ok(())
    }

    /// Goes before the first row of a tree whose key is not less.
    pub(crate) fn go_to<O: Order>(&mut self, root: Root, key: &[u8]) -> Result<()> {
        self.go(root, |node| child_index::<O>(node, key))?;
        self.index = self.leaf.map_or(0, |leaf| row_index::<O>(leaf, key).0);
        Ok(())
    }

    #[inline]
    fn go(&mut self, root: Root, choose: impl Fn(Node<'a>) -> usize) -> Result<()> {
        while self.way.pop().is_some() {}
        (self.leaf, self.page) = (None, 0);
        if root.page == 0 {
            return Ok(());
        }
        let node = Node::new(self.pages.page(root.page)?);
        if node.is_node() { self.down(root.page, node, choose) } else { Err(stray(root.page)) }
    }

    /// Goes down to a leaf, and to its first row.
    #[inline]
    fn down(&mut self, page: u32, node: Node<'a>, choose: impl Fn(Node<'a>) -> usize) -> Result<()> {
        let (mut page, mut node) = (page, node);
        while !node.is_leaf() {
            let child = choose(node);
            self.way.push(page, child);
            let (below, slots) = node.child_slots(child);
            page = below;
            let child = Node::new(self.pages.page(page)?);
            child.fetch_slots(slots);
            node = if child.is_below(node) { child } else { return Err(stray(page)) };
        }
        self.leaf = Some(node);
        self.page = page;
        self.index = 0;
        Ok(())
    }

    /// Goes from one leaf to a neighbour, all of whose rows are likely to be read.
    fn step(&mut self, parent: Node<'a>, child: usize, choose: impl Fn(Node<'a>) -> usize) -> Result<()> {
        let (before, page) = (self.page, parent.child(child));
        let node = Node::new(self.pages.page(page)?);
        if !node.is_below(parent) {
            return Err(stray(page));
        }
        self.down(page, node, choose)?;
        // Leaves that were made one after the other lie so, and the processor sees by itself what comes next.
        if let Some(leaf) = self.leaf.filter(|_| before.abs_diff(self.page) != 1) {
            leaf.fetch();
        }
        Ok(())
    }

    /// The leaf's page; 0 if there is none.
    pub(crate) fn page(&self) -> u32 {
        self.page
    }

    /// The leaf, and the row in it before which the place is. The end of a leaf is another place than the start of the next.
    pub(crate) fn leaf(&self) -> Option<(Node<'a>, usize)> {
        self.leaf.map(|leaf| (leaf, self.index))
    }

    /// The row behind the place, which moves behind it.
    pub(crate) fn next(&mut self) -> Result<Option<Row<'a>>> {
        loop {
            let Some(leaf) = self.leaf else { return Ok(None) };
            if self.index < leaf.count() {
                self.index += 1;
                return Ok(Some(Row { node: leaf, index: self.index - 1 }));
            }
            if !self.step_right()? {
                return Ok(None);
            }
        }
    }

    /// The row before the place, which moves before it.
    pub(crate) fn previous(&mut self) -> Result<Option<Row<'a>>> {
        loop {
            let Some(leaf) = self.leaf else { return Ok(None) };
            if self.index > 0 {
                self.index -= 1;
                return Ok(Some(Row { node: leaf, index: self.index }));
            }
            if !self.step_left()? {
                return Ok(None);
            }
        }
    }

    /// Moves to the start of the next leaf. If there is none, the place is nowhere.
    pub(crate) fn step_right(&mut self) -> Result<bool> {
        while let Some((page, child)) = self.way.pop() {
            let node = Node::new(self.pages.page(page)?);
            if child + 1 < node.count() {
                self.way.push(page, child + 1);
                self.step(node, child + 1, |_| 0)?;
                return Ok(true);
            }
        }
        (self.leaf, self.page) = (None, 0);
        Ok(false)
    }

    /// Moves to the end of the leaf before. If there is none, the place is nowhere.
    pub(crate) fn step_left(&mut self) -> Result<bool> {
        while let Some((page, child)) = self.way.pop() {
            let node = Node::new(self.pages.page(page)?);
            if child > 0 {
                self.way.push(page, child - 1);
                self.step(node, child - 1, |node| node.count() - 1)?;
                self.index = self.leaf.map_or(0, Node::count) - usize::from(planted!(SkipRowBackwards));
                return Ok(true);
            }
        }
        (self.leaf, self.page) = (None, 0);
        Ok(false)
    }
}
