//! A node of a B+ tree in one page: rows in a leaf, children in a branch.
//!
//! ```text
//!  0          8       16     17      18      20     22     24       26         32
//!  | checksum | birth | kind | level | count | heap | dead | prefix | reserved | prefix bytes, padded to 8 |
//!  | slots: 8 bytes each, growing >     |     free     |     < cells, `heap` bytes of which `dead` are unused |
//!
//!  slot:         | head u32 | cell offset u16 | key length, 14 bits; value kind, 2 bits |
//!  leaf cell:    | value length u16 | key | value |
//!  branch cell:  | child u32 | rows below: u16 at level 1, u48 above | key |
//! ```
//!
//! All integers are little-endian. Slots are sorted by key; cells are in no order. What all keys of a page begin with can stand
//! once, as its prefix; *key* in slots and cells is what follows it. A *head* is the first four bytes of that, as a
//! big-endian number, padded with zeros: most comparisons need nothing else, and heads lie together.
//!
//! The first key of a branch stands for everything below the second: it is empty, and shares no prefix. A branch key is the shortest text that tells
//! its child from the one before.
//!
//! The first sixteen bytes belong to whoever writes pages to disk; a node does not look at them.

mod build;
mod draft;
mod edit;
mod rows;

use std::cmp::Ordering;
use std::ops::Range;

pub(crate) use build::{Item, Source, build, common_bytes, split_point};
pub(crate) use draft::Draft;
pub(crate) use edit::NodeMut;
pub(crate) use rows::{Joiner, RowAt, Rows};

use crate::error::Fault;

/// The bytes before the prefix.
pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const SLOT_BYTES: usize = 8;

const KIND_AT: usize = 16;
const LEVEL_AT: usize = 17;
const COUNT_AT: usize = 18;
const HEAP_AT: usize = 20;
const DEAD_AT: usize = 22;
const PREFIX_AT: usize = 24;

pub(crate) const KIND_NODE: u8 = 1;

/// More than the deepest tree has: at 256-byte pages a branch has two children at least, and there are 2^32 pages.
pub(crate) const LEVELS_MAX: u8 = 33;

const KEY_BITS: u32 = 14;
const KEY_MASK: u16 = (1 << KEY_BITS) - 1;

/// Rows of a leaf may have their value elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value<'a> {
    /// Here.
    Inline(&'a [u8]),
    /// In a run of pages: the bytes of the reference to it.
    Overflow(&'a [u8]),
}

impl<'a> Value<'a> {
    pub(crate) const fn bytes(self) -> &'a [u8] {
        match self {
            Self::Inline(bytes) | Self::Overflow(bytes) => bytes,
        }
    }

    const fn kind(self) -> u16 {
        match self {
            Self::Inline(_) => 0,
            Self::Overflow(_) => 1,
        }
    }
}

/// A node, to be read. The page was checked when it came from the disk, or was made by us.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    page: &'a [u8],
}

impl<'a> Node<'a> {
    #[inline]
    pub(crate) const fn new(page: &'a [u8]) -> Self {
        Self { page }
    }

    /// Whether the page is one of a tree. Then it was checked when it came from the disk, or was made by us.
    #[inline]
    pub(crate) fn is_node(self) -> bool {
        self.page[KIND_AT] == KIND_NODE
    }

    /// Whether the page is one of a tree, one level below another.
    #[inline]
    pub(crate) fn is_below(self, parent: Node<'_>) -> bool {
        self.is_node() && self.level().checked_add(1) == Some(parent.level())
    }

    /// 0 for a leaf; above a leaf 1, and so on.
    #[inline]
    pub(crate) fn level(self) -> u8 {
        self.page[LEVEL_AT]
    }

    #[inline]
    pub(crate) fn is_leaf(self) -> bool {
        self.level() == 0
    }

    /// How many slots there are.
    #[inline]
    pub(crate) fn count(self) -> usize {
        self.field(COUNT_AT) as usize
    }

    #[inline]
    fn field(self, at: usize) -> u16 {
        u16::from_le_bytes([self.page[at], self.page[at + 1]])
    }

    /// What all keys begin with; the first key of a branch does not count.
    #[inline]
    pub(crate) fn prefix(self) -> &'a [u8] {
        &self.page[HEADER_BYTES..HEADER_BYTES + self.field(PREFIX_AT) as usize]
    }

    #[inline]
    fn slots(self) -> &'a [[u8; SLOT_BYTES]] {
        let start = slots_at(self.field(PREFIX_AT) as usize);
        self.page[start..start + self.count() * SLOT_BYTES].as_chunks().0
    }

    /// The bytes before the key in a cell.
    #[inline]
    fn fixed_bytes(self) -> usize {
        fixed_bytes(self.level())
    }

    #[inline]
    fn cell(self, index: usize) -> (usize, usize, u16) {
        unpack(&self.slots()[index])
    }

    /// What follows the prefix in a key.
    #[inline]
    pub(crate) fn suffix(self, index: usize) -> &'a [u8] {
        let (at, length, _) = self.cell(index);
        let start = at + self.fixed_bytes();
        &self.page[start..start + length]
    }

    /// Writes a whole key to the end of `out`.
    pub(crate) fn key_into(self, index: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        out.extend_from_slice(self.suffix(index));
    }

    /// The value of a row.
    #[inline]
    pub(crate) fn value(self, index: usize) -> Value<'a> {
        debug_assert!(self.is_leaf());
        let (at, key_bytes, kind) = self.cell(index);
        let bytes = self.field(at) as usize;
        let start = at + 2 + key_bytes;
        let value = &self.page[start..start + bytes];
        if kind == 0 { Value::Inline(value) } else { Value::Overflow(value) }
    }

    /// Whether the value of a row lies elsewhere.
    #[inline]
    pub(crate) fn is_overflow(self, index: usize) -> bool {
        self.cell(index).2 != 0
    }

    /// The page of a child.
    #[inline]
    pub(crate) fn child(self, index: usize) -> u32 {
        debug_assert!(!self.is_leaf());
        let (at, _, _) = self.cell(index);
        u32::from_le_bytes(self.page[at..at + 4].try_into().expect("four bytes"))
    }

    /// The page of a child and, if it is a leaf, how many slots it has; else 0.
    #[inline(always)]
    pub(crate) fn child_slots(self, index: usize) -> (u32, usize) {
        debug_assert!(!self.is_leaf());
        let (at, _, _) = self.cell(index);
        let [a, b, c, d, e, f] = *self.page[at..].first_chunk().expect("a child and how many rows lie below it");
        (u32::from_le_bytes([a, b, c, d]), if self.level() == 1 { u16::from_le_bytes([e, f]).into() } else { 0 })
    }

    /// Asks for the slots of a leaf that will be searched, if so many are expected. They come from memory while the header does,
    /// which says where they are.
    #[inline]
    pub(crate) fn fetch_slots(self, slots: usize) {
        self.fetch_bytes(HEADER_BYTES + slots * SLOT_BYTES);
    }

    /// Asks for all of a page that will be read: in whatever order its cells lie, it comes from memory as one stream.
    #[inline]
    pub(crate) fn fetch(self) {
        self.fetch_bytes(self.page.len());
    }

    /// Asks for the cells of the rows from this one on that are likely to be read: they come from memory together.
    #[inline]
    pub(crate) fn fetch_rows(self, index: usize) {
        const ROWS: usize = 8;
        let slots = self.slots().get(index..).unwrap_or_default().iter().take(ROWS);
        let starts = slots.map(|slot| u16::from_le_bytes([slot[4], slot[5]]) as usize);
        std::hint::black_box(starts.fold(0, |seen, at| seen | self.page.get(at).copied().unwrap_or(0)));
    }

    #[inline]
    fn fetch_bytes(self, bytes: usize) {
        const LINE_BYTES: usize = 64;
        let lines = self.page[..bytes.min(self.page.len())].iter().step_by(LINE_BYTES);
        std::hint::black_box(lines.fold(0, |seen, byte| seen | byte));
    }

    /// How many rows lie below a child.
    #[inline]
    pub(crate) fn rows_below(self, index: usize) -> u64 {
        self.rows_in(index..index + 1)
    }

    /// How many rows lie below these children together.
    pub(crate) fn rows_in(self, children: Range<usize>) -> u64 {
        debug_assert!(!self.is_leaf());
        let cells = self.slots()[children].iter().map(|slot| u16::from_le_bytes([slot[4], slot[5]]) as usize);
        if self.level() == 1 {
            return cells.map(|at| u64::from(self.field(at + 4))).sum();
        }
        let wide = |at: usize| self.page[at + 4..at + 10].first_chunk().expect("six bytes");
        cells.map(wide).map(|[a, b, c, d, e, f]| u64::from_le_bytes([*a, *b, *c, *d, *e, *f, 0, 0])).sum()
    }

    /// How many rows of this leaf, from one on, are those of another leaf from one on, byte for byte. There may be more that are
    /// the same and lie otherwise.
    pub(crate) fn same_rows(self, first: usize, other: Node<'_>, other_first: usize) -> usize {
        if self.prefix() != other.prefix() {
            return 0;
        }
        let is_same = |slot: &[u8; SLOT_BYTES], other_slot: &[u8; SLOT_BYTES]| {
            // All but where the cell is: the head, and the key's length with the value's kind.
            slot[..4] == other_slot[..4] && slot[6..] == other_slot[6..] && self.row(slot) == other.row(other_slot)
        };
        let slots = self.slots()[first..].iter().zip(&other.slots()[other_first..]);
        slots.take_while(|(slot, other_slot)| is_same(slot, other_slot)).count()
    }

    /// The bytes of a row: how long its value is, what follows the prefix in its key, and its value.
    #[inline]
    fn row(self, slot: &[u8; SLOT_BYTES]) -> &'a [u8] {
        let (at, key_bytes, _) = unpack(slot);
        &self.page[at..at + 2 + key_bytes + self.field(at) as usize]
    }

    /// How many children of this branch, from one on, are those of another branch from one on.
    pub(crate) fn same_children(self, first: usize, other: Node<'_>, other_first: usize) -> usize {
        let ours = (first..self.count()).map(|index| self.child(index));
        let others = (other_first..other.count()).map(|index| other.child(index));
        ours.zip(others).take_while(|(ours, other)| ours == other).count()
    }

    /// How many rows the node holds, or lie below it.
    pub(crate) fn rows(self) -> u64 {
        match self.is_leaf() {
            true => self.count() as u64,
            false => self.rows_in(0..self.count()),
        }
    }

    /// The first row whose key is not less, in the order of bytes, and whether it is this key.
    #[inline(always)]
    pub(crate) fn find(self, key: &[u8]) -> (usize, bool) {
        match self.after_prefix(key) {
            Some(suffix) => self.find_suffix(suffix, 0),
            None if key < self.prefix() => (0, false),
            None => (self.count(), false),
        }
    }

    /// The child that a key belongs to, in the order of bytes.
    #[inline(always)]
    pub(crate) fn find_child(self, key: &[u8]) -> usize {
        match self.after_prefix(key) {
            Some(suffix) => {
                let (index, found) = self.find_suffix(suffix, 1);
                if found { index } else { index - 1 }
            }
            None if key < self.prefix() => 0,
            None => self.count() - 1,
        }
    }

    /// What follows the prefix in a key that begins with it.
    #[inline(always)]
    pub(crate) fn after_prefix(self, key: &[u8]) -> Option<&[u8]> {
        const WORD: usize = 8;
        let bytes = self.field(PREFIX_AT) as usize;
        // Mostly short: one comparison, and no call. Behind a prefix is padding, or slots; both are cut off.
        if let (Some(start), 1..=WORD) = (key.first_chunk(), bytes) {
            let prefix = self.page[HEADER_BYTES..].first_chunk().expect("the smallest page is longer");
            let differ = u64::from_le_bytes(*start) ^ u64::from_le_bytes(*prefix);
            return if differ << (8 * (WORD - bytes)) == 0 { Some(&key[bytes..]) } else { None };
        }
        if bytes == 0 { Some(key) } else { key.strip_prefix(self.prefix()) }
    }

    /// Whether so many keys have so much in common, and no prefix, that their heads do not tell them apart. Pages that grow have no prefix until
    /// they are made anew, and those at the end of a tree that only grows there would not be before they are full: so it is asked now and then.
    pub(crate) fn wants_prefix(self) -> bool {
        const COUNT_MIN: usize = 8;
        let (count, first) = (self.count(), usize::from(!self.is_leaf()));
        self.field(PREFIX_AT) == 0
            && count >= COUNT_MIN
            && count.is_power_of_two()
            && common_bytes(self.suffix(first), self.suffix(count - 1)) >= size_of::<u32>()
    }

    /// The first slot from `first` on whose key is not less, and whether it is this key.
    #[inline]
    fn find_suffix(self, suffix: &[u8], first: usize) -> (usize, bool) {
        let slots = self.slots();
        let head = head(suffix);
        let mut index = lower_bound(slots, first, head);
        // Where keys have much in common and no prefix yet, many have the same head.
        if slots.get(index + 4).is_some_and(|slot| slot_head(slot) == head) {
            let end = head.checked_add(1).map_or(slots.len(), |next| lower_bound(slots, index, next));
            return self.find_between(index, end, |other| other.cmp(suffix));
        }
        // Else they are few; those of four bytes or less differ in length alone.
        while let Some(slot) = slots.get(index)
            && slot_head(slot) == head
        {
            match self.suffix(index).cmp(suffix) {
                Ordering::Less => index += 1,
                Ordering::Equal => return (index, true),
                Ordering::Greater => break,
            }
        }
        (index, false)
    }

    /// The first row whose key is not less in some order, and whether it is this key. Such nodes have no prefix.
    pub(crate) fn find_by(self, order: impl Fn(&[u8]) -> Ordering) -> (usize, bool) {
        self.find_by_from(0, order)
    }

    /// The child that a key belongs to in some order.
    pub(crate) fn find_child_by(self, order: impl Fn(&[u8]) -> Ordering) -> usize {
        let (index, found) = self.find_by_from(1, order);
        if found { index } else { index - 1 }
    }

    fn find_by_from(self, first: usize, order: impl Fn(&[u8]) -> Ordering) -> (usize, bool) {
        self.find_between(first, self.count(), order)
    }

    /// The first slot of a range whose key is not less in some order, and whether it is this key.
    fn find_between(self, first: usize, end: usize, order: impl Fn(&[u8]) -> Ordering) -> (usize, bool) {
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low.midpoint(high);
            match order(self.suffix(middle)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// The bytes that a page of only these cells would need.
    pub(crate) fn used_bytes(self) -> usize {
        let live = self.field(HEAP_AT) as usize - self.field(DEAD_AT) as usize;
        slots_at(self.field(PREFIX_AT) as usize) + self.count() * SLOT_BYTES + live
    }

    /// Copies the node to another page. What lies between slots and cells means nothing, and stays there.
    pub(crate) fn copy_to(self, page: &mut [u8]) {
        let slots_end = slots_at(self.field(PREFIX_AT) as usize) + self.count() * SLOT_BYTES;
        let cells_at = self.page.len() - self.field(HEAP_AT) as usize;
        page[..slots_end].copy_from_slice(&self.page[..slots_end]);
        page[cells_at..].copy_from_slice(&self.page[cells_at..]);
    }

    /// The bytes between slots and cells.
    fn gap_bytes(self) -> usize {
        let slots_end = slots_at(self.field(PREFIX_AT) as usize) + self.count() * SLOT_BYTES;
        self.page.len() - self.field(HEAP_AT) as usize - slots_end
    }

    fn cell_bytes(self, index: usize) -> usize {
        self.slot_bytes(&self.slots()[index])
    }

    /// The bytes of the cell of a slot.
    #[inline]
    fn slot_bytes(self, slot: &[u8; SLOT_BYTES]) -> usize {
        let (at, key_bytes, _) = unpack(slot);
        let value_bytes = if self.is_leaf() { self.field(at) as usize } else { 0 };
        self.fixed_bytes() + key_bytes + value_bytes
    }

    /// The bytes that a cell would have with its whole key.
    #[inline]
    fn whole_cell_bytes(self, index: usize) -> usize {
        let has_key = self.is_leaf() || index > 0;
        self.cell_bytes(index) + if has_key { self.field(PREFIX_AT) as usize } else { 0 }
    }

    /// The bytes that all cells would have with whole keys.
    fn whole_bytes(self) -> usize {
        let keys = self.count() - usize::from(!self.is_leaf());
        let live = self.field(HEAP_AT) as usize - self.field(DEAD_AT) as usize;
        live + keys * self.field(PREFIX_AT) as usize
    }

    /// Checks everything about a page by itself.
    pub(crate) fn check(page: &'a [u8], bytewise: bool) -> Result<Self, Fault> {
        let node = Self::check_structure(page)?;
        if bytewise {
            node.check_order()?;
        } else {
            node.check_plain()?;
        }
        Ok(node)
    }

    /// Checks everything that reading relies on: after this no read of the page can go wrong.
    pub(crate) fn check_structure(page: &'a [u8]) -> Result<Self, Fault> {
        let node = Self { page };
        if page[KIND_AT] != KIND_NODE {
            return Err(Fault::new("a node", page[KIND_AT].into()));
        }
        let (heap, prefix) = (node.field(HEAP_AT) as usize, node.field(PREFIX_AT) as usize);
        let slots_end = slots_at(prefix) + node.count() * SLOT_BYTES;
        if slots_end + heap > page.len() {
            return Err(Fault::new("slots and cells that do not overlap", (slots_end + heap) as u64));
        }
        if node.level() >= LEVELS_MAX {
            return Err(Fault::new("a level that a tree can have", node.level().into()));
        }
        if prefix >= page.len() / 4 {
            return Err(Fault::new("a prefix of less than a quarter of the page", prefix as u64));
        }
        let mut live = 0;
        for index in 0..node.count() {
            live += node.check_cell(index, page.len() - heap)?;
        }
        if live + node.field(DEAD_AT) as usize != heap {
            return Err(Fault::new("live and dead cells that fill the heap", live as u64));
        }
        if !node.is_leaf() && (node.count() == 0 || !node.suffix(0).is_empty()) {
            return Err(Fault::new("a first child without a key", node.count() as u64));
        }
        Ok(node)
    }

    fn check_cell(self, index: usize, heap_at: usize) -> Result<usize, Fault> {
        let (at, key_bytes, kind) = self.cell(index);
        let fixed = self.fixed_bytes();
        if at < heap_at || at + fixed + key_bytes > self.page.len() {
            return Err(Fault::new("a cell inside the heap", at as u64));
        }
        let bytes = self.cell_bytes(index);
        if at + bytes > self.page.len() {
            return Err(Fault::new("a value inside the page", bytes as u64));
        }
        let prefix = self.field(PREFIX_AT) as usize;
        if prefix + key_bytes >= self.page.len() / 4 {
            return Err(Fault::new("a key of less than a quarter of the page", (prefix + key_bytes) as u64));
        }
        if self.whole_cell_bytes(index) + 2 * SLOT_BYTES > (self.page.len() - HEADER_BYTES) / 2 {
            return Err(Fault::new("two rows in a page at least", self.whole_cell_bytes(index) as u64));
        }
        if kind > u16::from(self.is_leaf()) {
            return Err(Fault::new("a known kind of value", kind.into()));
        }
        Ok(bytes)
    }

    fn check_order(self) -> Result<(), Fault> {
        let first = usize::from(!self.is_leaf());
        for index in first..self.count() {
            if slot_head(&self.slots()[index]) != head(self.suffix(index)) {
                return Err(Fault::new("the head of the key", index as u64));
            }
            if index > first && self.suffix(index - 1) >= self.suffix(index) {
                return Err(Fault::new("keys in order", index as u64));
            }
        }
        Ok(())
    }

    /// In another order than that of bytes, nodes have neither prefix nor heads.
    fn check_plain(self) -> Result<(), Fault> {
        match self.prefix().is_empty() {
            true => Ok(()),
            false => Err(Fault::new("no prefix", self.prefix().len() as u64)),
        }
    }
}

/// Where a slot's cell is, the bytes of its key, and the kind of its value.
#[inline]
fn unpack(slot: &[u8; SLOT_BYTES]) -> (usize, usize, u16) {
    let [_, _, _, _, low, high, length, kind] = *slot;
    let packed = u16::from_le_bytes([length, kind]);
    (u16::from_le_bytes([low, high]) as usize, (packed & KEY_MASK) as usize, packed >> KEY_BITS)
}

/// Where the slots begin.
#[inline]
const fn slots_at(prefix_bytes: usize) -> usize {
    HEADER_BYTES + prefix_bytes.next_multiple_of(SLOT_BYTES)
}

/// The bytes before the key in a cell of this level.
#[inline]
const fn fixed_bytes(level: u8) -> usize {
    match level {
        0 => 2,
        1 => 6,
        _ => 10,
    }
}

/// The first four bytes of a key as a number that sorts like them.
#[inline]
pub(crate) fn head(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 4];
            bytes[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(bytes)
        }
    }
}

#[inline]
fn slot_head(slot: &[u8; SLOT_BYTES]) -> u32 {
    u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]])
}

/// How many slots are searched by looking at the last of every eight: those of most pages.
const LINEAR_MAX: usize = 512;

/// The first slot from `first` on whose head is not less.
///
/// Heads that lie in different cache lines are loaded without one load waiting for another, and no branch depends on them: in a
/// page that is not in the processor's caches this takes little longer than fetching one line, where halving the slots would
/// wait for line after line.
#[inline]
fn lower_bound(slots: &[[u8; SLOT_BYTES]], first: usize, head: u32) -> usize {
    let less = |slot: &[u8; SLOT_BYTES]| slot_head(slot) < head;
    let (mut rest, mut index) = (&slots[first.min(slots.len())..], first);
    while rest.len() > LINEAR_MAX {
        let (low, high) = rest.split_at(rest.len() / 2);
        let is_high = low.last().is_some_and(less);
        index += if is_high { low.len() } else { 0 };
        rest = if is_high { high } else { low };
    }
    let (groups, tail) = rest.as_chunks::<8>();
    let before = groups.iter().filter(|group| less(&group[7])).count();
    let group = groups.get(before).map_or(tail, |group| &group[..]);
    index + before * 8 + group.iter().filter(|slot| less(slot)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_bound_is_the_partition_point() {
        for count in (0..40).chain([LINEAR_MAX - 1, LINEAR_MAX, LINEAR_MAX + 1, 2 * LINEAR_MAX + 9, 8_000]) {
            // Three slots share each head.
            let heads = (0..count).map(|slot| u32::try_from(slot / 3 * 2 + 1).unwrap());
            let slots: Vec<[u8; SLOT_BYTES]> =
                heads.map(|head| (u64::from(head) | 0xdead << 48).to_le_bytes()).collect();
            for first in [0, 1] {
                for head in (0..u32::try_from(count).unwrap() + 3).step_by(1 + count / 100) {
                    let from = &slots[first.min(count)..];
                    let expected = first + from.partition_point(|slot| slot_head(slot) < head);
                    assert_eq!(lower_bound(&slots, first, head), expected, "{head} among {count} from {first}");
                }
            }
        }
    }
}
