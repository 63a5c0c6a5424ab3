//! A node that gets its items in order, before it has a page.

use super::build::{Body, Fit, common_bytes, put, slot, write_rows};
use super::{
    COUNT_AT, HEADER_BYTES, HEAP_AT, Item, KIND_AT, KIND_NODE, LEVEL_AT, PREFIX_AT, SLOT_BYTES, Value, fixed_bytes,
    head, slots_at,
};

/// Items of a node to come, with whole keys.
#[derive(Debug)]
pub(crate) struct Draft {
    level: u8,
    /// One cell behind the other.
    cells: Vec<u8>,
    marks: Vec<Mark>,
    /// How many rows there are, or lie below.
    rows: u64,
}

/// Where a cell is among the others, the bytes of its key, and the kind of its value.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: u32,
    key_bytes: u16,
    kind: u16,
}

impl Mark {
    const fn at(self) -> usize {
        self.at as usize
    }

    const fn key_bytes(self) -> usize {
        self.key_bytes as usize
    }
}

impl Draft {
    pub(crate) const fn new(level: u8) -> Self {
        Self { level, cells: Vec::new(), marks: Vec::new(), rows: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Forgets everything but the level.
    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.marks.clear();
        self.rows = 0;
    }

    fn key(&self, mark: Mark) -> &[u8] {
        &self.cells[mark.at() + fixed_bytes(self.level)..][..mark.key_bytes()]
    }

    /// The keys, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.marks.iter().map(|&mark| self.key(mark))
    }

    /// The key of the last item.
    #[inline]
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.marks.last().map(|&mark| self.key(mark))
    }

    /// The first key that counts: not that of the first child, which stands for everything below.
    fn first_key(&self) -> Option<&[u8]> {
        self.marks.get(usize::from(self.level > 0)).map(|&mark| self.key(mark))
    }

    /// Whether one more item fits into a page.
    #[inline]
    pub(crate) fn has_room(&self, key: &[u8], value_bytes: usize, page_bytes: usize, bytewise: bool) -> bool {
        let whole_bytes = self.cells.len() + fixed_bytes(self.level) + key.len() + value_bytes;
        let fit = Fit { level: self.level, slots: self.marks.len() + 1, common: 0, whole_bytes };
        fit.bytes(0) <= page_bytes || (bytewise && self.has_room_with_prefix(key, fit, page_bytes))
    }

    fn has_room_with_prefix(&self, key: &[u8], fit: Fit, page_bytes: usize) -> bool {
        let Some(first) = self.first_key() else { return false };
        let fit = Fit { common: common_bytes(first, key), ..fit };
        fit.bytes(fit.good_prefix()) <= page_bytes
    }

    /// Adds an item that fits, behind all others. The first child of a branch has no key.
    #[inline]
    pub(crate) fn push(&mut self, item: &Item<'_>) {
        let (key, at) = (item.rest(), self.cells.len());
        debug_assert!(self.level == 0 || !self.is_empty() || key.is_empty(), "the first child has no key");
        let kind = match item.body {
            Body::Row(value) => self.push_row(key, value),
            Body::Child { page, rows } => self.push_child(key, page, rows),
        };
        const FITS: &str = "a key and a page are shorter";
        let (at, key_bytes) = (u32::try_from(at).expect(FITS), u16::try_from(key.len()).expect(FITS));
        self.marks.push(Mark { at, key_bytes, kind });
    }

    fn push_row(&mut self, key: &[u8], value: Value<'_>) -> u16 {
        let bytes = value.bytes();
        let length = u16::try_from(bytes.len()).expect("a value in a leaf is shorter than it");
        self.cells.reserve(2 + key.len() + bytes.len());
        self.cells.extend_from_slice(&length.to_le_bytes());
        self.cells.extend_from_slice(key);
        self.cells.extend_from_slice(bytes);
        self.rows += 1;
        value.kind()
    }

    fn push_child(&mut self, key: &[u8], page: u32, rows: u64) -> u16 {
        let at = self.cells.len();
        self.cells.resize(at + fixed_bytes(self.level), 0);
        self.cells[at..at + 4].copy_from_slice(&page.to_le_bytes());
        write_rows(&mut self.cells[at..], self.level, rows);
        self.cells.extend_from_slice(key);
        self.rows += rows;
        0
    }

    /// Makes the page. Its first sixteen bytes are left as they are.
    pub(crate) fn write(&self, bytewise: bool, page: &mut [u8]) {
        let common = match (self.first_key(), self.last_key()) {
            (Some(first), Some(last)) if bytewise => common_bytes(first, last),
            _ => 0,
        };
        let fit = Fit { level: self.level, slots: self.marks.len(), common, whole_bytes: self.cells.len() };
        let prefix = fit.prefix(page.len());
        assert!(fit.bytes(prefix) <= page.len(), "more was drafted than fits into the page");
        page[KIND_AT..HEADER_BYTES].fill(0);
        page[KIND_AT] = KIND_NODE;
        page[LEVEL_AT] = self.level;
        put(page, PREFIX_AT, prefix);
        put(page, COUNT_AT, self.marks.len());
        if let Some(first) = self.first_key() {
            page[HEADER_BYTES..HEADER_BYTES + prefix].copy_from_slice(&first[..prefix]);
        }
        let heap_bytes = fit.bytes(prefix) - slots_at(prefix) - self.marks.len() * SLOT_BYTES;
        put(page, HEAP_AT, heap_bytes);
        let heap = page.len() - heap_bytes;
        if prefix == 0 {
            page[heap..].copy_from_slice(&self.cells);
        }
        self.write_items(prefix, heap, bytewise, page);
    }

    /// Writes slots, and the cells if their keys are cut.
    fn write_items(&self, prefix: usize, heap: usize, bytewise: bool, page: &mut [u8]) {
        let (fixed, mut at) = (fixed_bytes(self.level), heap);
        for (index, &mark) in self.marks.iter().enumerate() {
            let end = self.marks.get(index + 1).map_or(self.cells.len(), |next| next.at());
            let cut = if mark.key_bytes == 0 { 0 } else { prefix };
            let bytes = end - mark.at() - cut;
            if prefix > 0 {
                let (first, rest) = page[at..at + bytes].split_at_mut(fixed);
                first.copy_from_slice(&self.cells[mark.at()..mark.at() + fixed]);
                rest.copy_from_slice(&self.cells[mark.at() + fixed + cut..end]);
            }
            let head = if bytewise { head(&self.key(mark)[cut..]) } else { 0 };
            let slot_at = slots_at(prefix) + index * SLOT_BYTES;
            page[slot_at..slot_at + SLOT_BYTES].copy_from_slice(&slot(head, at, mark.key_bytes() - cut, mark.kind));
            at += bytes;
        }
    }
}
