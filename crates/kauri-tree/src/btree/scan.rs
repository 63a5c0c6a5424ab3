//! Places in a tree, and the way from one leaf to the next.

use super::search::{child_index, row_index};
use super::{DEPTH_MAX, Order, Root, Way, stray};
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

/// A place without the pages that it is in: those may be borrowed again meanwhile, if they are not changed.
pub(crate) struct Spot {
    way: Way,
    page: u32,
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

    /// At a place where another was.
    pub(crate) fn resume(pages: Access<'a>, spot: Spot) -> Result<Self> {
        let Spot { way, page, index } = spot;
        let leaf = if page == 0 { None } else { Some(Node::new(pages.page(page)?)) };
        Ok(Self { pages, way, leaf, page, index })
    }

    /// The place, for later.
    pub(crate) fn rest(self) -> Spot {
        Spot { way: self.way, page: self.page, index: self.index }
    }

    /// Goes back before the row that [`next`](Self::next) gave.
    pub(crate) fn unstep(&mut self) {
        self.index -= 1;
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
        if let Some(leaf) = self.leaf {
            self.index = row_index::<O>(leaf, key).0;
            leaf.fetch_rows(self.index);
        }
        Ok(())
    }

    /// Goes before the row with so many before it; nowhere if there are not more.
    pub(crate) fn go_nth(&mut self, root: Root, rows: u64) -> Result<()> {
        self.leave();
        if rows >= root.rows {
            return Ok(());
        }
        let node = self.topmost(root.page)?;
        self.down_nth(root.page, node, rows)
    }

    /// A page that may be the topmost of a tree.
    fn topmost(&self, page: u32) -> Result<Node<'a>> {
        let node = Node::new(self.pages.page(page)?);
        // From here down there are as many steps as there are levels.
        if node.is_node() && usize::from(node.level()) < DEPTH_MAX { Ok(node) } else { Err(stray(page)) }
    }

    /// A child of a branch.
    fn child(&self, parent: Node<'a>, child: usize) -> Result<(u32, Node<'a>)> {
        let page = parent.child(child);
        let node = Node::new(self.pages.page(page)?);
        if node.is_below(parent) { Ok((page, node)) } else { Err(stray(page)) }
    }

    fn leave(&mut self) {
        while self.way.pop().is_some() {}
        (self.leaf, self.page) = (None, 0);
    }

    #[inline]
    fn go(&mut self, root: Root, choose: impl Fn(Node<'a>) -> usize) -> Result<()> {
        self.leave();
        if root.page == 0 {
            return Ok(());
        }
        let node = self.topmost(root.page)?;
        self.down(root.page, node, choose)
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

    /// Goes down to a leaf, before the row with so many before it below this page.
    fn down_nth(&mut self, page: u32, node: Node<'a>, rows: u64) -> Result<()> {
        let (mut page, mut node, mut left) = (page, node, rows);
        while !node.is_leaf() {
            let child = child_with(node, 0, &mut left).unwrap_or(node.count() - 1);
            self.way.push(page, child);
            (page, node) = self.child(node, child)?;
        }
        (self.leaf, self.page) = (Some(node), page);
        self.index = usize::try_from(left).map_or(node.count(), |index| index.min(node.count()));
        Ok(())
    }

    /// Skips so many rows behind those of this leaf. If there are not more, the place is nowhere.
    pub(crate) fn skip_right(&mut self, rows: u64) -> Result<()> {
        let mut left = rows;
        while let Some((page, child)) = self.way.pop() {
            let node = Node::new(self.pages.page(page)?);
            if let Some(child) = child_with(node, child + 1, &mut left) {
                self.way.push(page, child);
                let (page, node) = self.child(node, child)?;
                return self.down_nth(page, node, left);
            }
        }
        self.leave();
        Ok(())
    }

    /// Goes from one leaf to a neighbour, all of whose rows are likely to be read.
    fn step(&mut self, parent: Node<'a>, child: usize, choose: impl Fn(Node<'a>) -> usize) -> Result<()> {
        let before = self.page;
        let (page, slots) = parent.child_slots(child);
        let node = Node::new(self.pages.page(page)?);
        // Leaves that were made one after the other lie so, and the processor sees by itself what comes next, but for the start of a page.
        node.fetch_slots(slots);
        if !node.is_below(parent) {
            return Err(stray(page));
        }
        self.down(page, node, choose)?;
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

impl Spot {
    /// The row behind the place, if it is in the same leaf.
    pub(crate) fn row<'a>(&self, pages: Access<'a>) -> Result<Option<Row<'a>>> {
        if self.page == 0 {
            return Ok(None);
        }
        let node = Node::new(pages.page(self.page)?);
        Ok((self.index < node.count()).then_some(Row { node, index: self.index }))
    }
}

/// The first child from `first` on that has more than `left` rows with those before it; how many are left in it.
fn child_with(node: Node<'_>, first: usize, left: &mut u64) -> Option<usize> {
    (first..node.count()).find(|&child| {
        let below = node.rows_below(child);
        let is_here = *left < below;
        *left -= if is_here { 0 } else { below };
        is_here
    })
}
