//! Choices of a store's random work, by a fuzzer's bytes.

use kauri_sim::Chance;

/// Choices, a byte each, or two where a byte is not enough.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// As many as there are bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl Chance for Choices<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let (now, later) = self.0.split_at(self.0.len().min(if bound > 256 { 2 } else { 1 }));
        self.0 = later;
        now.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)) % bound
    }

    fn is_spent(&self) -> bool {
        self.0.is_empty()
    }
}
