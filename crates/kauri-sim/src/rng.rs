//! The simulator's one source of chance: a seed in, the same numbers out, on every machine.
//!
//! The generator is xoshiro256++ 1.0, its state filled by SplitMix64, as published by David Blackman and Sebastiano Vigna
//! in the public domain (<https://prng.di.unimi.it/>).

/// A deterministic generator of numbers. Not for secrets.
///
/// ```
/// use kauri_sim::Rng;
///
/// let mut dice = Rng::new(7);
/// let first: Vec<u64> = (0..3).map(|_| dice.below(6)).collect();
/// let mut again = Rng::new(7);
/// assert!(first.iter().all(|number| again.below(6) == *number));
/// ```
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator that this seed names.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        Self { state: std::array::from_fn(|_| split_mix(&mut counter)) }
    }

    /// The generator that this seed and these numbers name: one for each crash point, each operation, each thing.
    #[must_use]
    pub fn of(seed: u64, numbers: &[u64]) -> Self {
        let mix = |mixed: u64, number: &u64| split_mix(&mut (mixed ^ number.wrapping_mul(0xff51_afd7_ed55_8ccd)));
        Self::new(numbers.iter().fold(seed, mix))
    }

    /// The next number, all 64 bits of it.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number below `bound`, which must not be zero. (By widening multiplication; the bias is below 2^-32 for bounds
    /// below 2^32, and nobody gambles here.)
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the high half has 64 bits")
    }

    /// An index below `bound`, which must not be zero.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// True `times` out of `of`.
    pub fn chance(&mut self, times: u64, of: u64) -> bool {
        self.below(of) < times
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes()[..part.len()]);
        }
    }
}

/// Mixes bytes into a hash that is the same on every machine and with every compiler, as the standard library's need not be.
pub(crate) fn mix(hash: u64, bytes: &[u8]) -> u64 {
    let mixed = bytes.chunks(8).fold(hash ^ bytes.len() as u64, |mixed, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        (mixed ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    });
    split_mix(&mut { mixed })
}

fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*counter ^ (*counter >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_algorithms() {
        // SplitMix64 from 0, as its reference code prints it.
        let mut counter = 0;
        assert_eq!(split_mix(&mut counter), 0xe220_a839_7b1d_cdaf);
        assert_eq!(split_mix(&mut counter), 0x6e78_9e6a_a1b9_65f4);
        // xoshiro256++ from the state 1, 2, 3, 4, as its reference code prints it.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let first: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 7];
        for _ in 0..7_000 {
            seen[rng.index(7)] += 1;
        }
        assert!(seen.iter().all(|count| (800..1_200).contains(count)), "{seen:?}");
    }

    #[test]
    fn other_bytes_have_another_hash() {
        let texts: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"a", b"aaaaaaaa", b"aaaaaaaaa"];
        let hashes: std::collections::BTreeSet<u64> = texts.iter().map(|text| mix(1, text)).collect();
        assert_eq!(hashes.len(), texts.len());
        assert_ne!(mix(mix(0, b"a"), b"b"), mix(mix(0, b"b"), b"a"));
    }

    #[test]
    fn generators_of_different_numbers_differ() {
        let first = |numbers: &[u64]| Rng::of(1, numbers).next_u64();
        assert_ne!(first(&[1, 2]), first(&[2, 1]));
        assert_ne!(first(&[0]), first(&[0, 0]));
        assert_eq!(first(&[3, 4]), first(&[3, 4]));
    }
}
