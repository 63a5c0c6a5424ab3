//! Changes of a node in its page, where there is room for them.

use super::build::{Body, put, slot, write_body, write_rows};
use super::{COUNT_AT, DEAD_AT, HEAP_AT, Item, Node, SLOT_BYTES, Value, fixed_bytes, head, slots_at};

/// A node of a page that belongs to the transaction, to be changed.
pub(crate) struct NodeMut<'a> {
    page: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    pub(crate) fn new(page: &'a mut [u8]) -> Self {
        Self { page }
    }

    #[inline]
    pub(crate) fn node(&self) -> Node<'_> {
        Node::new(self.page)
    }

    /// Makes the page an empty leaf.
    pub(crate) fn clear(&mut self) {
        self.page[super::KIND_AT..super::HEADER_BYTES].fill(0);
        self.page[super::KIND_AT] = super::KIND_NODE;
    }

    /// Puts a row before the one at `index`, if it begins with the prefix and there is room where things lie.
    #[must_use]
    pub(crate) fn insert_row(&mut self, index: usize, key: &[u8], value: Value<'_>, bytewise: bool) -> bool {
        match self.node().after_prefix(key) {
            Some(suffix) => self.insert(index, suffix, &Item::row(key, value), bytewise),
            None => false,
        }
    }

    /// Puts an item before the one at `index`, if there is room where things lie; `suffix` is its key after the prefix.
    #[must_use]
    pub(crate) fn insert(&mut self, index: usize, suffix: &[u8], item: &Item<'_>, bytewise: bool) -> bool {
        let level = self.node().level();
        let value_bytes = match item.body {
            Body::Row(value) => value.bytes().len(),
            Body::Child { .. } => 0,
        };
        let bytes = fixed_bytes(level) + suffix.len() + value_bytes;
        if self.node().gap_bytes() < bytes + SLOT_BYTES {
            return false;
        }
        let heap = self.node().field(HEAP_AT) as usize + bytes;
        let at = self.page.len() - heap;
        let cell = &mut self.page[at..at + bytes];
        cell[fixed_bytes(level)..][..suffix.len()].copy_from_slice(suffix);
        let kind = write_body(&item.body, level, cell, suffix.len());
        put(self.page, HEAP_AT, heap);
        self.open_slot(index);
        let head = if bytewise && !planted!(ForgetHead) { head(suffix) } else { 0 };
        self.set_slot(index, slot(head, at, suffix.len(), kind));
        true
    }

    /// Makes room for a slot.
    fn open_slot(&mut self, index: usize) {
        let count = self.node().count();
        let start = slots_at(self.node().prefix().len());
        let from = start + index * SLOT_BYTES;
        self.page.copy_within(from..start + count * SLOT_BYTES, from + SLOT_BYTES);
        put(self.page, COUNT_AT, count + 1);
    }

    fn set_slot(&mut self, index: usize, slot: [u8; SLOT_BYTES]) {
        let at = slots_at(self.node().prefix().len()) + index * SLOT_BYTES;
        self.page[at..at + SLOT_BYTES].copy_from_slice(&slot);
    }

    /// Takes an item away.
    pub(crate) fn remove(&mut self, index: usize) {
        self.remove_slots(index, index + 1);
    }

    /// Takes items away. If the first child was among them, the next one stands for everything below: its key goes too.
    pub(crate) fn remove_items(&mut self, first: usize, end: usize) {
        self.remove_slots(first, end);
        let node = self.node();
        if first == 0 && end > 0 && !node.is_leaf() && node.count() > 0 && !planted!(KeepKeyOfFirstChild) {
            self.drop_first_key();
        }
    }

    fn remove_slots(&mut self, first: usize, end: usize) {
        let count = self.node().count();
        assert!(first <= end && end <= count, "items {first} to {end} of {count}");
        for index in first..end {
            self.bury(index);
        }
        let start = slots_at(self.node().prefix().len());
        let slots = start + end * SLOT_BYTES..start + count * SLOT_BYTES;
        self.page.copy_within(slots, start + first * SLOT_BYTES);
        let left = count - (end - first);
        put(self.page, COUNT_AT, left);
        if left == 0 {
            put(self.page, HEAP_AT, 0);
            put(self.page, DEAD_AT, 0);
        }
    }

    /// Counts a cell as dead.
    fn bury(&mut self, index: usize) {
        if planted!(ForgetDeadCell) {
            return;
        }
        let dead = self.node().field(DEAD_AT) as usize + self.node().cell_bytes(index);
        put(self.page, DEAD_AT, dead);
    }

    /// Replaces the value of a row, if there is room where things lie.
    #[must_use]
    pub(crate) fn replace(&mut self, index: usize, value: Value<'_>, bytewise: bool) -> bool {
        let (at, key_bytes, kind) = self.node().cell(index);
        let old = self.node().field(at) as usize;
        let bytes = value.bytes();
        if old == bytes.len() && kind == value.kind() {
            let start = at + 2 + key_bytes;
            self.page[start..start + old].copy_from_slice(bytes);
            return true;
        }
        let needed = 2 + key_bytes + bytes.len();
        if self.node().gap_bytes() < needed {
            return false;
        }
        self.bury(index);
        let heap = self.node().field(HEAP_AT) as usize + needed;
        let new = self.page.len() - heap;
        self.page.copy_within(at + 2..at + 2 + key_bytes, new + 2);
        put(self.page, HEAP_AT, heap);
        put(self.page, new, bytes.len());
        self.page[new + 2 + key_bytes..new + needed].copy_from_slice(bytes);
        let head = if bytewise { head(&self.page[new + 2..new + 2 + key_bytes]) } else { 0 };
        self.set_slot(index, slot(head, new, key_bytes, value.kind()));
        true
    }

    /// Says how far above the leaves the node is.
    pub(crate) fn set_level(&mut self, level: u8) {
        assert!(self.node().count() == 0, "only an empty node changes its level");
        self.page[super::LEVEL_AT] = level;
    }

    fn drop_first_key(&mut self) {
        let (at, key_bytes, kind) = self.node().cell(0);
        let dead = self.node().field(DEAD_AT) as usize + key_bytes;
        put(self.page, DEAD_AT, dead);
        self.set_slot(0, slot(0, at, 0, kind));
    }

    /// Points a child elsewhere.
    pub(crate) fn set_child(&mut self, index: usize, page: u32) {
        let (at, _, _) = self.node().cell(index);
        self.page[at..at + 4].copy_from_slice(&page.to_le_bytes());
    }

    /// Adds to the rows below a child.
    pub(crate) fn add_rows(&mut self, index: usize, more: i64) {
        let rows = self.node().rows_below(index);
        self.set_rows(index, rows.wrapping_add_signed(more));
    }

    /// Says how many rows lie below a child.
    pub(crate) fn set_rows(&mut self, index: usize, rows: u64) {
        let level = self.node().level();
        let (at, _, _) = self.node().cell(index);
        write_rows(&mut self.page[at..], level, rows);
    }
}
