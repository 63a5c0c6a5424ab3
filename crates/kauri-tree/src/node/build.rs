//! Nodes made from items in order: after a split, a merge, or because the cells lie badly.

use std::ops::Range;

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
        if node.is_leaf() {
            return Self { start: node.prefix(), rest: node.suffix(index), body: Body::Row(node.value(index)) };
        }
        let body = Body::Child { page: node.child(index), rows: node.rows_below(index) };
        // The first child has no key, so it has no prefix either.
        let start = if index == 0 { &[] } else { node.prefix() };
        Self { start, rest: node.suffix(index), body }
    }

    /// The key after what stands in a prefix.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
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
        // Keys of one page have the same start.
        if self.start.len() == other.start.len() && self.start == other.start {
            return self.start.len() + common_bytes(self.rest, other.rest);
        }
        let most = self.key_bytes().min(other.key_bytes());
        (0..most).find(|&index| self.key_byte(index) != other.key_byte(index)).unwrap_or(most)
    }

    /// The bytes of a cell with the whole key.
    fn whole_bytes(&self, level: u8) -> usize {
        fixed_bytes(level) + self.key_bytes() + self.value_bytes()
    }

    fn value_bytes(&self) -> usize {
        match self.body {
            Body::Row(value) => value.bytes().len(),
            Body::Child { .. } => 0,
        }
    }
}

/// How many bytes two texts have in common at their start.
pub(crate) fn common_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// Items in the order of their keys, not yet in one page.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// A node's items.
    Whole(Node<'a>),
    /// A node's items with another before the one at this index.
    Inserted(Node<'a>, usize, Item<'a>),
    /// A node's items with another instead of the one at this index.
    Replaced(Node<'a>, usize, Item<'a>),
    /// The items of two neighbours; the first key of the second is this one, if they are branches.
    Two(Node<'a>, Node<'a>, &'a [u8]),
}

/// Items of a source that lie together.
#[derive(Clone)]
enum Piece<'a> {
    Node(Node<'a>, Range<usize>),
    One(Option<Item<'a>>),
}

impl Piece<'_> {
    /// The bytes of its cells with whole keys.
    fn whole_bytes(&self, level: u8) -> usize {
        match self {
            Self::Node(node, range) if *range == (0..node.count()) => node.whole_bytes(),
            Self::Node(node, range) => range.clone().map(|index| node.whole_cell_bytes(index)).sum(),
            Self::One(item) => item.as_ref().map_or(0, |item| item.whole_bytes(level)),
        }
    }
}

impl<'a> Source<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Inserted(node, ..) => node.count() + 1,
            Self::Whole(node) | Self::Replaced(node, ..) => node.count(),
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
            Self::Whole(node) | Self::Replaced(node, ..) => Item::of(node, index),
            Self::Two(left, right, separator) => match index.checked_sub(left.count()) {
                None => Item::of(left, index),
                Some(0) if !right.is_leaf() => Item { start: &[], rest: separator, ..Item::of(right, 0) },
                Some(index) => Item::of(right, index),
            },
        }
    }

    /// The items of a range, in up to three pieces.
    fn pieces(&self, start: usize, end: usize) -> [Piece<'a>; 3] {
        // Where the piece of one item is; how many items of the first node are before it, and of the second behind it.
        let (left, right, one, skipped) = match *self {
            Self::Whole(node) => return [Piece::Node(node, start..end), Piece::One(None), Piece::One(None)],
            Self::Inserted(node, at, _) => (node, node, at, at),
            Self::Replaced(node, at, _) => (node, node, at, at + 1),
            Self::Two(left, right, _) if right.is_leaf() => {
                let count = left.count();
                let behind = start.max(count) - count..end.max(count) - count;
                let before = Piece::Node(left, start.min(count)..end.min(count));
                return [before, Piece::One(None), Piece::Node(right, behind)];
            }
            Self::Two(left, right, _) => (left, right, left.count(), 1),
        };
        let item = (start..end).contains(&one).then(|| self.item(one));
        let behind = |index: usize| index.max(one + 1) - (one + 1) + skipped;
        [
            Piece::Node(left, start.min(one)..end.min(one)),
            Piece::One(item),
            Piece::Node(right, behind(start)..behind(end)),
        ]
    }

    pub(crate) fn level(&self) -> u8 {
        match self {
            Self::Whole(node) | Self::Inserted(node, ..) | Self::Replaced(node, ..) | Self::Two(node, ..) => {
                node.level()
            }
        }
    }

    /// The first index in this range whose key counts: not the first of a branch, which stands for everything below.
    fn first_key(&self, start: usize) -> usize {
        start + usize::from(self.level() > 0)
    }

    /// What a page with the items of this range would be like; `whole_bytes` are those of their cells with whole keys.
    fn fit(&self, start: usize, end: usize, whole_bytes: usize, bytewise: bool) -> Fit {
        let first = self.first_key(start);
        let dropped: usize = (start..first.min(end)).map(|index| self.item(index).key_bytes()).sum();
        // What the first and the last have in common, all have.
        let common = match bytewise && first < end {
            true => self.item(first).common_bytes(&self.item(end - 1)),
            false => 0,
        };
        Fit { level: self.level(), slots: end - start, common, whole_bytes: whole_bytes - dropped }
    }

    fn fit_of(&self, start: usize, end: usize, bytewise: bool) -> Fit {
        self.fit(start, end, self.whole_bytes(start, end), bytewise)
    }

    fn whole_bytes(&self, start: usize, end: usize) -> usize {
        self.pieces(start, end).iter().map(|piece| piece.whole_bytes(self.level())).sum()
    }

    /// The least bytes of a page with the items of this range.
    pub(crate) fn page_bytes(&self, start: usize, end: usize, bytewise: bool) -> usize {
        self.fit_of(start, end, bytewise).least_bytes()
    }

    /// Whether all items fit into one page. One more row in a leaf is not worth a prefix that is not worth having otherwise: the
    /// leaf would be made anew for it, and then again.
    pub(crate) fn fits(&self, page_bytes: usize, bytewise: bool) -> bool {
        let fit = self.fit_of(0, self.len(), bytewise);
        match self {
            Self::Inserted(..) => fit.bytes(fit.good_prefix()) <= page_bytes,
            Self::Whole(_) | Self::Replaced(..) | Self::Two(..) => fit.least_bytes() <= page_bytes,
        }
    }
}

/// What is needed to know how many bytes a page has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) level: u8,
    pub(super) slots: usize,
    /// What all keys have in common; the first of a branch does not count.
    pub(super) common: usize,
    /// The bytes of the cells with whole keys, the first of a branch without one.
    pub(super) whole_bytes: usize,
}

impl Fit {
    /// Rows whose keys have no more than this in common keep it: it saves little, and a scan has to put each key together.
    const SHORT: usize = 2;

    fn keys(&self) -> usize {
        self.slots - usize::from(self.level > 0)
    }

    /// The bytes of a page with a prefix of so many.
    pub(super) fn bytes(&self, prefix: usize) -> usize {
        slots_at(prefix) + self.slots * SLOT_BYTES + self.whole_bytes - prefix * self.keys()
    }

    /// The prefix with which the page is smallest: all that keys have in common or, where the padding would cost more than that
    /// saves, as many whole multiples of eight bytes. One of the two takes no more room than any shorter prefix, so a page that
    /// is made anew without growing fits where it was.
    fn least_prefix(&self) -> usize {
        // One key shares nothing with others: the next row would most likely not begin with it.
        if self.keys() < 2 {
            return 0;
        }
        let even = self.common / SLOT_BYTES * SLOT_BYTES;
        if self.bytes(self.common) < self.bytes(even) { self.common } else { even }
    }

    pub(super) fn least_bytes(&self) -> usize {
        self.bytes(self.least_prefix())
    }

    /// The prefix that the page should have if there is room.
    pub(super) fn good_prefix(&self) -> usize {
        if self.level == 0 && self.common <= Self::SHORT { 0 } else { self.least_prefix() }
    }

    /// The prefix that it gets.
    pub(super) fn prefix(&self, page_bytes: usize) -> usize {
        let good = self.good_prefix();
        if self.bytes(good) <= page_bytes { good } else { self.least_prefix() }
    }
}

/// Where to cut items that do not fit into one page, so that both parts do: the left part ends before the index returned. The
/// parts are about equal in bytes, unless the item was added behind all others: rows that come in order fill pages.
pub(crate) fn split_point(source: &Source<'_>, page_bytes: usize, bytewise: bool, appended: bool) -> usize {
    let count = source.len();
    debug_assert!(count >= 2);
    if appended {
        return count - 1;
    }
    let all = source.whole_bytes(0, count);
    let (middle, left) = middle(source, all + count * SLOT_BYTES);
    let left_fit = source.fit(0, middle, left, bytewise);
    let right_fit = source.fit(middle, count, all - left, bytewise);
    if left_fit.least_bytes() <= page_bytes && right_fit.least_bytes() <= page_bytes {
        return middle;
    }
    let fits = |cut: &usize| {
        source.page_bytes(0, *cut, bytewise) <= page_bytes && source.page_bytes(*cut, count, bytewise) <= page_bytes
    };
    // Near the middle if that will do; else wherever both parts fit. There is such a place: a key that shares nothing with
    // the others stands before or behind all of them, and cells are at most half a page.
    let nearest = (1..count).flat_map(|away| [middle.saturating_sub(away), middle + away]);
    let cut = nearest.filter(|cut| (1..count).contains(cut)).find(fits);
    cut.expect("items of at most half a page can be split between two")
}

/// How many items make up half of all bytes, at least one and not all, and the bytes of their cells.
fn middle(source: &Source<'_>, bytes: usize) -> (usize, usize) {
    let (level, last) = (source.level(), source.len() - 1);
    let (mut items, mut cells) = (0, 0);
    let mut goes_on = |cell: usize| {
        let before = cells + items * SLOT_BYTES;
        let goes_on = items < last && (items == 0 || before + (cell + SLOT_BYTES) / 2 <= bytes / 2);
        if goes_on {
            items += 1;
            cells += cell;
        }
        goes_on
    };
    for piece in source.pieces(0, last + 1) {
        let all = match piece {
            Piece::Node(node, range) => range.into_iter().all(|index| goes_on(node.whole_cell_bytes(index))),
            Piece::One(item) => item.is_none_or(|item| goes_on(item.whole_bytes(level))),
        };
        if !all {
            break;
        }
    }
    (items, cells)
}

/// Makes a page of the items in this range. The first sixteen bytes are left as they are.
pub(crate) fn build(source: &Source<'_>, start: usize, end: usize, bytewise: bool, page: &mut [u8]) {
    let fit = source.fit_of(start, end, bytewise);
    let prefix = fit.prefix(page.len());
    assert!(fit.bytes(prefix) <= page.len(), "the items do not fit into the page");
    let mut build = Build::new(fit.level, prefix, end - start, page);
    if prefix > 0 {
        build.set_prefix(&source.item(source.first_key(start)));
    }
    // From the last to the first, so that cells lie in the order of their keys: a scan reads memory forwards.
    for piece in source.pieces(start, end).iter().rev() {
        match piece {
            Piece::Node(node, range) => build.add_node(*node, range.clone(), bytewise),
            Piece::One(item) => item.iter().for_each(|item| build.add(item, bytewise)),
        }
    }
    build.end();
}

/// A page that gets items, from the last to the first.
struct Build<'a> {
    page: &'a mut [u8],
    level: u8,
    prefix: usize,
    /// How many are still to come.
    left: usize,
    /// Where the cells begin.
    heap: usize,
}

impl<'a> Build<'a> {
    fn new(level: u8, prefix: usize, count: usize, page: &'a mut [u8]) -> Self {
        page[KIND_AT..super::HEADER_BYTES].fill(0);
        page[KIND_AT] = KIND_NODE;
        page[LEVEL_AT] = level;
        put(page, PREFIX_AT, prefix);
        put(page, COUNT_AT, count);
        put(page, DEAD_AT, 0);
        let heap = page.len();
        Self { page, level, prefix, left: count, heap }
    }

    /// Sets the prefix to the start of this key.
    fn set_prefix(&mut self, item: &Item<'_>) {
        write_key(item, 0, &mut self.page[super::HEADER_BYTES..super::HEADER_BYTES + self.prefix]);
    }

    /// Adds items of a node.
    fn add_node(&mut self, node: Node<'_>, range: Range<usize>, bytewise: bool) {
        // With the same prefix, cells and heads stay as they are.
        let same = if node.prefix().len() == self.prefix { range.len() } else { 0 };
        // Not so the first child's: it may have had a key, or get one.
        let first = usize::from(self.level > 0 && (range.start == 0 || range.len() == self.left)).min(range.len());
        let copied = same.saturating_sub(first);
        for slot in node.slots()[range.end - copied..range.end].iter().rev() {
            self.copy(node, slot);
        }
        for index in (range.start..range.end - copied).rev() {
            self.add(&Item::of(node, index), bytewise);
        }
    }

    /// Adds a cell as it is.
    #[inline]
    fn copy(&mut self, node: Node<'_>, slot: &[u8; SLOT_BYTES]) {
        let [h0, h1, h2, h3, low, high, k0, k1] = *slot;
        let at = u16::from_le_bytes([low, high]) as usize;
        let bytes = node.slot_bytes(slot);
        self.heap -= bytes;
        self.page[self.heap..self.heap + bytes].copy_from_slice(&node.page[at..at + bytes]);
        let [low, high] = small(self.heap).to_le_bytes();
        self.add_slot([h0, h1, h2, h3, low, high, k0, k1]);
    }

    /// Adds an item.
    fn add(&mut self, item: &Item<'_>, bytewise: bool) {
        let is_first_child = self.left == 1 && self.level > 0;
        let from = if is_first_child { item.key_bytes() } else { self.prefix };
        let key_bytes = item.key_bytes() - from;
        let fixed = fixed_bytes(self.level);
        let bytes = fixed + key_bytes + item.value_bytes();
        self.heap -= bytes;
        let cell = &mut self.page[self.heap..self.heap + bytes];
        write_key(item, from, &mut cell[fixed..fixed + key_bytes]);
        let head = if bytewise { head(&cell[fixed..fixed + key_bytes]) } else { 0 };
        let kind = write_body(&item.body, self.level, cell, key_bytes);
        self.add_slot(slot(head, self.heap, key_bytes, kind));
    }

    #[inline]
    fn add_slot(&mut self, slot: [u8; SLOT_BYTES]) {
        self.left -= 1;
        let at = slots_at(self.prefix) + self.left * SLOT_BYTES;
        self.page[at..at + SLOT_BYTES].copy_from_slice(&slot);
    }

    fn end(self) {
        assert!(self.left == 0, "{} items are missing", self.left);
        let heap_bytes = self.page.len() - self.heap;
        put(self.page, HEAP_AT, heap_bytes);
    }
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
