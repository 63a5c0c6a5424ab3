//! Random numbers, keys and values, the same for the same seed.

/// `SplitMix64` (Steele, Lea and Flood, 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Keys that share beginnings, with zeros and short and long ones among them.
    pub(crate) fn key(&mut self, most: usize, spread: usize) -> Vec<u8> {
        let number = self.below(spread);
        let mut key = match self.below(4) {
            0 => format!("{number}").into_bytes(),
            1 => [b"a common beginning/".as_slice(), &number.to_be_bytes()[4..]].concat(),
            2 => vec![0; number % 9],
            _ => number.to_be_bytes()[5..].repeat(1 + number % 5),
        };
        key.truncate(most);
        key
    }

    /// Mostly short values, some empty, some as long as a page, a few much longer.
    pub(crate) fn value(&mut self, page_bytes: usize) -> Vec<u8> {
        let bytes = match self.below(40) {
            0 => self.below(64 << 10),
            1 | 2 => self.below(page_bytes * 3),
            3..8 => self.below(page_bytes / 2),
            8..12 => 0,
            _ => self.below(40),
        };
        vec![self.next() as u8; bytes]
    }
}
