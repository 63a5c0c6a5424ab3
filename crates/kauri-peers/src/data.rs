//! Rows: random keys, and values cut from random bytes, the same in every run.

/// The sizes of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    key_bytes: usize,
    value_bytes: usize,
}

impl Shape {
    pub(crate) const A: Self = Self { name: "A", key_bytes: 24, value_bytes: 150 };
    pub(crate) const B: Self = Self { name: "B", key_bytes: 8, value_bytes: 32 };
    /// Values longer than a page.
    pub(crate) const C: Self = Self { name: "C", key_bytes: 16, value_bytes: 5000 };

    pub(crate) const fn row_bytes(self) -> usize {
        self.key_bytes + self.value_bytes
    }
}

/// Splitmix64: small, and good enough to choose rows.
pub(crate) struct Random(u64);

impl Random {
    /// A sequence that has nothing to do with that of the next seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut first = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        Self(first.next())
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    #[inline]
    pub(crate) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

/// Ranges of keys, with their first key and the one behind the last. The keys are copies that lie together, because finding them among those of
/// all rows takes as long as it takes to count.
pub(crate) struct Ranges {
    /// How many rows each has.
    pub(crate) rows: usize,
    key_bytes: usize,
    keys: Vec<u8>,
}

impl Ranges {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.keys.chunks_exact(2 * self.key_bytes).map(|ends| ends.split_at(self.key_bytes))
    }
}

/// Rows by their number; their keys are in no order.
pub(crate) struct Data {
    pub(crate) shape: Shape,
    pub(crate) rows: usize,
    keys: Vec<u8>,
    pool: Vec<u8>,
    sorted: Vec<usize>,
}

impl Data {
    pub(crate) fn new(shape: Shape, rows: usize) -> Self {
        let mut random = Random::new(42);
        let mut bytes = |count: usize| (0..count.div_ceil(8)).flat_map(|_| random.next().to_be_bytes()).collect();
        let (keys, pool): (Vec<u8>, Vec<u8>) = (bytes(rows * shape.key_bytes), bytes(1 << 20));
        let key = |row: usize| &keys[row * shape.key_bytes..][..shape.key_bytes];
        let mut sorted: Vec<usize> = (0..rows).collect();
        sorted.sort_unstable_by_key(|row| key(*row));
        assert!(sorted.windows(2).all(|pair| key(pair[0]) < key(pair[1])), "keys are different");
        Self { shape, rows, keys, pool, sorted }
    }

    #[inline]
    pub(crate) fn key(&self, row: usize) -> &[u8] {
        &self.keys[row * self.shape.key_bytes..][..self.shape.key_bytes]
    }

    /// A row's value; each generation has another.
    #[inline]
    pub(crate) fn value(&self, row: usize, generation: usize) -> &[u8] {
        let at = (row * 7919 + generation * 104_729) % (self.pool.len() - self.shape.value_bytes);
        &self.pool[at..][..self.shape.value_bytes]
    }

    /// Those of the first so many rows in the order of their keys.
    pub(crate) fn sorted(&self, rows: usize) -> impl Iterator<Item = usize> {
        self.sorted.iter().copied().filter(move |row| *row < rows)
    }

    /// So many ranges of as many rows each, anywhere.
    pub(crate) fn ranges(&self, count: usize, rows: usize, seed: u64) -> Ranges {
        let mut random = Random::new(seed);
        let ends = (0..count).map(|_| random.below(self.rows - rows)).flat_map(|place| [place, place + rows]);
        let keys = ends.flat_map(|place| self.key(self.sorted[place])).copied().collect();
        Ranges { rows, key_bytes: self.shape.key_bytes, keys }
    }

    /// The numbers of all rows, shuffled.
    pub(crate) fn shuffled(&self) -> Vec<usize> {
        let (mut rows, mut random): (Vec<usize>, _) = ((0..self.rows).collect(), Random::new(3));
        for end in (1..rows.len()).rev() {
            rows.swap(end, random.below(end + 1));
        }
        rows
    }

    pub(crate) fn bytes(&self, rows: usize) -> f64 {
        (rows * self.shape.row_bytes()) as f64
    }
}
