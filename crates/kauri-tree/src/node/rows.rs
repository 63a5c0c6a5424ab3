//! The rows of a leaf one after the other, from either end.

use super::{Node, SLOT_BYTES, Value, unpack};

/// Rows of one leaf, in order; a scan looks at nothing else until they are used up.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rows<'a> {
    page: &'a [u8],
    slots: &'a [[u8; SLOT_BYTES]],
}

/// A row where it lies: its key after the prefix, and its value.
#[derive(Clone, Copy)]
pub(crate) struct RowAt<'a> {
    page: &'a [u8],
    key_at: usize,
    key_bytes: usize,
    pub(crate) value: Value<'a>,
}

impl<'a> Rows<'a> {
    /// The rows of a leaf from one index up to another.
    pub(crate) fn of(node: Node<'a>, from: usize, until: usize) -> Self {
        debug_assert!(node.is_leaf());
        Self { page: node.page, slots: &node.slots()[from..until] }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Leaves only the first so many.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.slots = &self.slots[..rows];
    }

    /// Leaves all but the first so many.
    pub(crate) fn skip(&mut self, rows: usize) {
        self.slots = &self.slots[rows..];
    }

    /// Takes the first.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<RowAt<'a>> {
        let (slot, rest) = self.slots.split_first()?;
        self.slots = rest;
        Some(RowAt::of(self.page, slot))
    }

    /// Takes the last.
    #[inline]
    pub(crate) fn next_back(&mut self) -> Option<RowAt<'a>> {
        let (slot, rest) = self.slots.split_last()?;
        self.slots = rest;
        Some(RowAt::of(self.page, slot))
    }
}

impl<'a> RowAt<'a> {
    #[inline]
    fn of(page: &'a [u8], slot: &[u8; SLOT_BYTES]) -> Self {
        let (at, key_bytes, kind) = unpack(slot);
        let key_at = at + 2;
        let value_bytes = u16::from_le_bytes([page[at], page[at + 1]]) as usize;
        let value = &page[key_at + key_bytes..][..value_bytes];
        let value = if kind == 0 { Value::Inline(value) } else { Value::Overflow(value) };
        Self { page, key_at, key_bytes, value }
    }

    /// The key after the prefix.
    #[inline]
    pub(crate) fn suffix(&self) -> &'a [u8] {
        &self.page[self.key_at..][..self.key_bytes]
    }
}

/// Bytes that are copied at once, because copying as many as are needed takes longer.
const STRIDE: usize = 32;
const WORD: usize = 8;

/// Keys of a page with a prefix, put together one after the other.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    /// The prefix, and behind it what is left of the key before.
    bytes: Vec<u8>,
    prefix_bytes: usize,
    /// The prefix from its last whole word on, and which bits of that word are the prefix's.
    word: u64,
    mask: u64,
}

impl Joiner {
    /// What follows are keys of this leaf.
    pub(crate) fn start(&mut self, node: Node<'_>) {
        let prefix = node.prefix();
        self.prefix_bytes = prefix.len();
        if prefix.is_empty() {
            return;
        }
        // Room for keys that are a stride beyond it. Longer ones make more: few scans are of keys so long, and many are of one row.
        if self.bytes.len() < prefix.len() + STRIDE {
            self.bytes.resize(prefix.len() + STRIDE, 0);
        }
        self.bytes[..prefix.len()].copy_from_slice(prefix);
        let (_, rest) = prefix.as_chunks::<WORD>();
        let mut word = [0; WORD];
        word[..rest.len()].copy_from_slice(rest);
        self.word = u64::from_le_bytes(word);
        self.mask = !(u64::MAX << (8 * rest.len()));
    }

    /// The key of a row of that leaf.
    #[inline]
    pub(crate) fn key<'b>(&'b mut self, row: &RowAt<'b>) -> &'b [u8] {
        if self.prefix_bytes == 0 { row.suffix() } else { self.join(row) }
    }

    /// Copies whole words: from the one in which the prefix ends, of which it keeps its part, a stride.
    #[inline]
    fn join<'b>(&'b mut self, row: &RowAt<'b>) -> &'b [u8] {
        let over = self.prefix_bytes % WORD;
        let (from, to) = (row.key_at - over, self.prefix_bytes - over);
        let end = self.prefix_bytes + row.key_bytes;
        match (row.page.get(from..from + STRIDE), self.bytes.get_mut(to..to + STRIDE)) {
            (Some(source), Some(target)) if end <= to + STRIDE => {
                let (word, rest) = source.split_first_chunk::<WORD>().expect("a stride has words");
                let word = u64::from_le_bytes(*word) & !self.mask | self.word;
                target[..WORD].copy_from_slice(&word.to_le_bytes());
                target[WORD..].copy_from_slice(rest);
            }
            _ => {
                if self.bytes.len() < end {
                    self.bytes.resize(end, 0);
                }
                self.bytes[self.prefix_bytes..end].copy_from_slice(row.suffix());
            }
        }
        &self.bytes[..end]
    }
}
