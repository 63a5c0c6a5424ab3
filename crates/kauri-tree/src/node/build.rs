//! Nodes made from items in order: after a split, a merge, or because the cells lie badly.

use super::{
    COUNT_AT, DEAD_AT, HEAP_AT, KEY_BITS, KIND_AT, KIND_NODE, LEVEL_AT, Node, PREFIX_AT, SLOT_BYTES, Value,
    fixed_bytes, head, slots_at,
};

/// A row or a child, with its whole key in two parts.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    /// What the key begins with, as it stands in a prefix.
    start: &'a [u8],
    /// The rest of the key.
    rest: &'a [u8],
    pub(crate) body: Body<'a>,
}

/// What belongs to a key.
#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    Row(Value<'a>),
    Child { page: u32, rows: u64 },
}

impl<'a> Item<'a> {
    pub(crate) const fn row(key: &'a [u8], value: Value<'a>) -> Self {
        Self { start: &[], rest: key, body: Body::Row(value) }
    }

    pub(crate) const fn child(key: &'a [u8], page: u32, rows: u64) -> Self {
        Self { start: &[], rest: key, body: Body::Child { page, rows } }
    }

    fn of(node: Node<'a>, index: usize) -> Self {
        let body = match node.is_leaf() {
            true => Body::Row(node.value(index)),
            false => Body::Child { page: node.child(index), rows: node.rows_below(index) },
        };
        Self { start: node.prefix(), rest: node.suffix(index), body }
    }

    fn key_bytes(&self) -> usize {
        self.start.len() + self.rest.len()
    }

    /// The key from its byte `from` on, in two parts.
    fn key_from(&self, from: usize) -> (&'a [u8], &'a [u8]) {
        match from.checked_sub(self.start.len()) {
            None => (&self.start[from..], self.rest),
            Some(more) => (&[], &self.rest[more..]),
        }
    }

    fn key_byte(&self, index: usize) -> Option<u8> {
        self.start.get(index).or_else(|| self.rest.get(index - self.start.len())).copied()
    }

    /// Writes the whole key to the end of `out`.
    pub(crate) fn key_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.start);
        out.extend_from_slice(self.rest);
    }

    /// How many bytes two keys have in common at their start.
    pub(crate) fn common_bytes(&self, other: &Item<'_>) -> usize {
        let most = self.key_bytes().min(other.key_bytes());
        (0..most).find(|&index| self.key_byte(index) != other.key_byte(index)).unwrap_or(most)
    }

    fn value_bytes(&self) -> usize {
        match self.body {
            Body::Row(value) => value.bytes().len(),
            Body::Child { .. } => 0,
        }
    }
}

/// Items in the order of their keys, not yet in one page.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A node's items with another before the one at this index.
    Inserted(Node<'a>, usize, Item<'a>),
    /// A node's items with another instead of the one at this index.
    Replaced(Node<'a>, usize, Item<'a>),
    /// The items of two neighbours; the first key of the second is this one, if they are branches.
    Two(Node<'a>, Node<'a>, &'a [u8]),
}

impl<'a> Source<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inserted(node, ..) => node.count() + 1,
            Self::Replaced(node, ..) => node.count(),
            Self::Two(left, right, _) => left.count() + right.count(),
        }
    }

    pub(crate) fn item(&self, index: usize) -> Item<'a> {
        match *self {
            Self::Inserted(node, at, item) => match index.cmp(&at) {
                std::cmp::Ordering::Less => Item::of(node, index),
                std::cmp::Ordering::Equal => item,
                std::cmp::Ordering::Greater => Item::of(node, index - 1),
            },
            Self::Replaced(_, at, item) if index == at => item,
            Self::Replaced(node, ..) => Item::of(node, index),
            Self::Two(left, right, separator) => match index.checked_sub(left.count()) {
                None => Item::of(left, index),
                Some(0) if !right.is_leaf() => Item { start: &[], rest: separator, ..Item::of(right, 0) },
                Some(index) => Item::of(right, index),
            },
        }
    }

    pub(crate) fn level(&self) -> u8 {
        match self {
            Self::Inserted(node, ..) | Self::Replaced(node, ..) | Self::Two(node, ..) => node.level(),
        }
    }

    /// The first index in this range whose key counts: not the first of a branch, which stands for everything below.
    fn first_key(&self, start: usize) -> usize {
        start + usize::from(self.level() > 0)
    }

    /// How much of what the keys in this range have in common is their page's prefix: all of it, or, where the padding would cost
    /// more than that saves, as many whole multiples of eight bytes. One of the two takes no more room than any shorter
    /// prefix, so a page that is made anew without growing fits where it was.
    fn prefix_bytes(&self, start: usize, end: usize, bytewise: bool) -> usize {
        let first = self.first_key(start);
        if !bytewise || end <= first {
            return 0;
        }
        let keys = end - first;
        // What the first and the last have in common, all have.
        let whole = self.item(first).common_bytes(&self.item(end - 1));
        let even = whole / SLOT_BYTES * SLOT_BYTES;
        if keys * (whole - even) > whole.next_multiple_of(SLOT_BYTES) - even { whole } else { even }
    }

    /// The bytes of a page with the items of this range.
    pub(crate) fn page_bytes(&self, start: usize, end: usize, bytewise: bool) -> usize {
        let prefix = self.prefix_bytes(start, end, bytewise);
        let first = self.first_key(start);
        let cells: usize = (start..end)
            .map(|index| {
                let item = self.item(index);
                let key = if index < first { 0 } else { item.key_bytes() - prefix };
                fixed_bytes(self.level()) + key + item.value_bytes() + SLOT_BYTES
            })
            .sum();
        slots_at(prefix) + cells
    }
}

/// Where to cut items that do not fit into one page, so that both parts do: the left part ends before the index returned. The
/// parts are about equal in bytes, unless `at` says that the item was added at an end: rows that come in order fill pages.
pub(crate) fn split_point(source: &Source<'_>, page_bytes: usize, bytewise: bool, appended: bool) -> usize {
    let count = source.len();
    debug_assert!(count >= 2);
    if appended {
        return count - 1;
    }
    let fixed = fixed_bytes(source.level()) + SLOT_BYTES;
    let weight = |index: usize| {
        let item = source.item(index);
        fixed + item.key_bytes() + item.value_bytes()
    };
    let half = (0..count).map(weight).sum::<usize>() / 2;
    let mut left = 0;
    let mut middle = 0;
    while middle < count - 1 && left + weight(middle) / 2 <= half {
        left += weight(middle);
        middle += 1;
    }
    let fits = |cut: &usize| {
        source.page_bytes(0, *cut, bytewise) <= page_bytes && source.page_bytes(*cut, count, bytewise) <= page_bytes
    };
    // Near the middle if that will do; else wherever both parts fit. There is such a place: a key that shares nothing with
    // the others stands before or behind all of them, and cells are at most half a page.
    let nearest = (0..count).flat_map(|away| [middle.saturating_sub(away), middle + away]);
    let cut = nearest.filter(|cut| (1..count).contains(cut)).find(fits);
    cut.expect("items of at most half a page can be split between two")
}

/// Makes a page of the items in this range. The first sixteen bytes are left as they are.
pub(crate) fn build(source: &Source<'_>, start: usize, end: usize, bytewise: bool, page: &mut [u8]) {
    let level = source.level();
    let prefix = source.prefix_bytes(start, end, bytewise);
    let first = source.first_key(start);
    page[KIND_AT..super::HEADER_BYTES].fill(0);
    page[KIND_AT] = KIND_NODE;
    page[LEVEL_AT] = level;
    put(page, PREFIX_AT, prefix);
    put(page, COUNT_AT, end - start);
    put(page, DEAD_AT, 0);
    if prefix > 0 {
        write_key(&source.item(first), 0, &mut page[super::HEADER_BYTES..super::HEADER_BYTES + prefix]);
    }
    let slots_end = slots_at(prefix) + (end - start) * SLOT_BYTES;
    let mut heap = page.len();
    // From the last to the first, so that cells lie in the order of their keys: a scan reads memory forwards.
    for index in (start..end).rev() {
        let item = source.item(index);
        let key_bytes = if index < first { 0 } else { item.key_bytes() - prefix };
        let bytes = fixed_bytes(level) + key_bytes + item.value_bytes();
        heap -= bytes;
        let slot_at = slots_at(prefix) + (index - start) * SLOT_BYTES;
        assert!(slots_end <= heap, "the items do not fit into the page");
        let key_at = heap + fixed_bytes(level);
        write_key(&item, if index < first { item.key_bytes() } else { prefix }, &mut page[key_at..key_at + key_bytes]);
        let kind = write_body(&item.body, level, &mut page[heap..heap + bytes], key_bytes);
        let head = if bytewise { head(&page[key_at..key_at + key_bytes]) } else { 0 };
        page[slot_at..slot_at + SLOT_BYTES].copy_from_slice(&slot(head, heap, key_bytes, kind));
    }
    let heap_bytes = page.len() - heap;
    put(page, HEAP_AT, heap_bytes);
}

fn write_key(item: &Item<'_>, from: usize, out: &mut [u8]) {
    let (start, rest) = item.key_from(from);
    let cut = start.len().min(out.len());
    let (first, second) = out.split_at_mut(cut);
    first.copy_from_slice(&start[..cut]);
    second.copy_from_slice(&rest[..second.len()]);
}

/// Writes what stands around the key in a cell, and returns the kind of the value.
pub(super) fn write_body(body: &Body<'_>, level: u8, cell: &mut [u8], key_bytes: usize) -> u16 {
    match body {
        Body::Row(value) => {
            let bytes = value.bytes();
            put(cell, 0, bytes.len());
            cell[2 + key_bytes..].copy_from_slice(bytes);
            value.kind()
        }
        Body::Child { page, rows } => {
            cell[..4].copy_from_slice(&page.to_le_bytes());
            write_rows(cell, level, *rows);
            0
        }
    }
}

/// Writes how many rows lie below a child into its cell.
pub(super) fn write_rows(cell: &mut [u8], level: u8, rows: u64) {
    let fixed = fixed_bytes(level);
    let bytes = rows.to_le_bytes();
    assert!(bytes[fixed - 4..].iter().all(|&byte| byte == 0), "{rows} rows below a child of level {level}");
    cell[4..fixed].copy_from_slice(&bytes[..fixed - 4]);
}

pub(super) fn slot(head: u32, cell_at: usize, key_bytes: usize, kind: u16) -> [u8; SLOT_BYTES] {
    let [h0, h1, h2, h3] = head.to_le_bytes();
    let [a0, a1] = small(cell_at).to_le_bytes();
    let [k0, k1] = (small(key_bytes) | kind << KEY_BITS).to_le_bytes();
    [h0, h1, h2, h3, a0, a1, k0, k1]
}

pub(super) fn put(page: &mut [u8], at: usize, value: usize) {
    page[at..at + 2].copy_from_slice(&small(value).to_le_bytes());
}

fn small(value: usize) -> u16 {
    u16::try_from(value).expect("places and lengths in a page fit 16 bits")
}
