//! Pages moved to where free ones are, without a change to any row.

use super::WriteTxn;
use crate::btree::{Pages, PagesMut, Root};
use crate::catalog::Catalog;
use crate::compact::{Place, Step};
use crate::error::{Error, Fault, Result};
use crate::node::{Node, NodeMut, Value};
use crate::overflow::{self, Reference};
use crate::pager::{Pager, Run};

impl WriteTxn<'_> {
    /// Moves pages that lie at `target` or behind to free places before it, from a place on, looking at so many leaves at most.
    pub(crate) fn relocate(&mut self, target: u32, from: &Place, pages_max: u32) -> Result<Step> {
        let state = self.turn.state_mut();
        let free = state.pager.free_below(target);
        let mut mover = Mover { target, free, left: pages_max, moved: 0, stuck: false };
        let names = state.catalog.iter().map(|(name, ..)| name.to_owned());
        let names: Vec<String> = names.filter(|name| *name >= from.table).collect();
        let mut next = None;
        for table in names {
            let row = if table == from.table { from.row } else { 0 };
            let place = state.catalog.place(&table).expect("it was just named");
            let mut root = state.catalog.root(place);
            let done = mover.tree(&mut state.pager, &mut root, row);
            // Also after an error: the pages that were made fresh on the way belong to the tree now.
            if !planted!(ForgetMovedRoot) {
                state.catalog.set_root(place, root);
            }
            if let Some(row) = done? {
                next = Some(Place { table, row });
                break;
            }
        }
        if let Some(turn) = &mut state.turn {
            if next.is_none() {
                // The trees of checkpoints are small.
                mover.left = u32::MAX;
                let [mut catalog, mut pins, mut kept] = [turn.catalog, turn.pins, turn.kept];
                mover.tree(&mut state.pager, &mut catalog, 0)?;
                state.pager.unseen(|pager| {
                    mover.tree(pager, &mut pins, 0)?;
                    mover.tree(pager, &mut kept, 0)
                })?;
                turn.catalog = catalog;
                if !planted!(ForgetMovedPins) {
                    (turn.pins, turn.kept) = (pins, kept);
                }
            }
            if mover.moved > 0 {
                turn.body.set_unfit();
            }
        }
        Ok(Step { moved: mover.moved, next, stuck: mover.stuck })
    }
}

struct Mover {
    target: u32,
    /// How many places before the target are free.
    free: u32,
    /// How many more leaves may be looked at, or pages moved.
    left: u32,
    moved: u32,
    /// There was no free place left.
    stuck: bool,
}

/// A leaf and the way to it.
struct Found {
    /// The pages from the root to the leaf, and by which child each is left.
    way: Vec<(u32, usize)>,
    /// The first row behind those of the leaf.
    next: u64,
    /// Values of its rows that lie elsewhere and can be moved.
    values: Vec<(usize, Reference)>,
}

impl Mover {
    /// Moves pages of a tree, from a row on. Says which row comes next if it ended before the tree did.
    fn tree(&mut self, pager: &mut Pager<Catalog>, root: &mut Root, mut row: u64) -> Result<Option<u64>> {
        while row < root.rows {
            if self.left == 0 {
                return Ok(Some(row));
            }
            self.left -= 1;
            let found = self.find(pager, *root, row)?;
            let moves = |(page, _): &(u32, usize)| *page >= self.target && !pager.is_pinned(*page);
            let mut depth = found.way.iter().rposition(moves).map_or(0, |last| last + 1);
            if !found.values.is_empty() {
                depth = found.way.len();
            }
            if depth > self.free as usize {
                self.stuck = true;
                return Ok(Some(row));
            }
            let leaf = self.move_way(pager, root, &found.way[..depth])?;
            for (index, reference) in found.values {
                self.move_value(pager, leaf, index, reference)?;
            }
            row = found.next;
        }
        Ok(None)
    }

    /// The leaf that has a row, and what of it is to be moved.
    fn find(&self, pager: &Pager<Catalog>, root: Root, row: u64) -> Result<Found> {
        let (mut way, mut page, mut left) = (Vec::new(), root.page, row);
        let mut node = Node::new(pager.page(page)?);
        while !node.is_leaf() {
            let mut child = 0;
            while child + 1 < node.count() && left >= node.rows_below(child) {
                left -= node.rows_below(child);
                child += 1;
            }
            way.push((page, child));
            page = node.child(child);
            let below = Node::new(pager.page(page)?);
            if below.level() >= node.level() {
                let fault = Fault::new("the level below its parent's", below.level().into());
                return Err(Error::Corrupt { page, fault });
            }
            node = below;
        }
        way.push((page, 0));
        let mut values = Vec::new();
        for index in (0..node.count()).filter(|index| node.is_overflow(*index)) {
            let reference = Reference::decode(node.value(index).bytes())?;
            if self.can_move(pager, reference)? {
                values.push((index, reference));
            }
        }
        // A row that is not there would be damage; then the next is at least one further.
        let next = row - left.min(row) + (node.count() as u64).max(1);
        Ok(Found { way, next: next.max(row + 1), values })
    }

    /// Whether a value lies at the end, and in a run for which there is a place before it.
    fn can_move(&self, pager: &Pager<Catalog>, reference: Reference) -> Result<bool> {
        let Some(Run { first, pages }) = overflow::only_run(pager, pager.page_bytes(), reference)? else {
            return Ok(false);
        };
        let is_behind = first + pages > self.target && !pager.is_pinned(first);
        Ok(is_behind && pager.find_free_run(pages).is_some_and(|place| place < first))
    }

    /// Makes the pages of a way the transaction's own, and tells which is the last of them now.
    fn move_way(&mut self, pager: &mut Pager<Catalog>, root: &mut Root, way: &[(u32, usize)]) -> Result<u32> {
        let mut parent: Option<(u32, usize)> = None;
        for &(page, child) in way {
            let place = pager.fresh(page)?;
            if place != page {
                self.moved += 1;
                self.free -= 1;
                self.left = self.left.saturating_sub(1);
            }
            match parent {
                None => root.page = place,
                Some((parent, index)) => NodeMut::new(pager.page_mut(parent)).set_child(index, place),
            }
            parent = Some((place, child));
        }
        Ok(parent.map_or(root.page, |(page, _)| page))
    }

    /// Moves a value, unless its place was taken meanwhile.
    fn move_value(&mut self, pager: &mut Pager<Catalog>, leaf: u32, index: usize, reference: Reference) -> Result<()> {
        if !self.can_move(pager, reference)? {
            return Ok(());
        }
        let page_bytes = pager.page_bytes();
        let value = overflow::read(pager, page_bytes, reference)?.into_owned();
        let moved = overflow::write(pager, page_bytes, &value)?;
        let is_replaced = NodeMut::new(pager.page_mut(leaf)).replace(index, Value::Overflow(&moved.encode()), true);
        assert!(is_replaced, "a reference has room where another was");
        if !planted!(KeepMovedValue) {
            overflow::retire(pager, page_bytes, reference)?;
        }
        let Some(run) = overflow::only_run(pager, page_bytes, moved)? else { return Ok(()) };
        self.moved += run.pages;
        let before = self.target.saturating_sub(run.first).min(run.pages);
        self.free = self.free.saturating_sub(before);
        self.left = self.left.saturating_sub(run.pages);
        Ok(())
    }
}
