//! Free pages: a set of numbers as bits, with a bit above every 64 that says whether any is set.
//!
//! ```text
//! level 2:                 |.......................1|          one bit per word of level 1
//! level 1:      |..1.....................1|  ...               one bit per word of level 0
//! level 0: | 64 pages | 64 pages | ...                         one bit per page
//! ```
//!
//! The lowest free page is found by looking at one word per level, whatever the number of pages. For runs of several pages the set
//! remembers, by their length, below which page there are none.

use std::ops::Range;

/// A set of page numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeSet {
    /// From the bits of pages up; the topmost level is one word.
    levels: Vec<Vec<u64>>,
    len: usize,
    barren: Barren,
}

/// Where it is no use to look for runs.
#[derive(Clone, Debug)]
struct Barren {
    /// By the class of a length: no run that is so long begins before this page.
    before: [u32; Self::CLASSES],
    /// The lowest page that was freed since those were right.
    freed: u32,
}

impl Default for Barren {
    fn default() -> Self {
        Self { before: [0; Self::CLASSES], freed: u32::MAX }
    }
}

impl Barren {
    /// Short runs have a class for each length, longer ones for each power of two.
    const SHORT: u32 = 64;
    const CLASSES: usize = 64 + 32;

    fn class(pages: u32) -> usize {
        match pages <= Self::SHORT {
            true => pages as usize,
            false => (Self::SHORT + pages.ilog2()) as usize,
        }
    }

    /// The length of the shortest run in a class.
    fn shortest(class: usize) -> u32 {
        let class = u32::try_from(class).expect("there are few");
        if class <= Self::SHORT { class } else { 1 << (class - Self::SHORT) }
    }

    /// No run of this length begins before the page that this returns.
    fn bound(&self, pages: u32) -> u32 {
        let class = Self::class(pages);
        self.before[class].min(self.freed.saturating_sub(Self::shortest(class)))
    }

    /// No run in the class of this length begins before the page that this returns.
    fn before(&mut self, pages: u32) -> &mut u32 {
        if self.freed < u32::MAX {
            for (class, before) in self.before.iter_mut().enumerate() {
                *before = (*before).min(self.freed.saturating_sub(Self::shortest(class)));
            }
            self.freed = u32::MAX;
        }
        &mut self.before[Self::class(pages)]
    }
}

impl FreeSet {
    /// The set of the pages whose bits are not set in `used`, a bit for each page from 0 on, of those before `end`. Whole words are
    /// looked at, so that a long store opens as fast as a short one.
    pub(crate) fn unused(used: &[u8], end: u32) -> Self {
        let mut words: Vec<u64> = used.chunks(8).take((end as usize).div_ceil(64)).map(|bytes| !word(bytes)).collect();
        if let Some(last) = words.last_mut().filter(|_| !end.is_multiple_of(64)) {
            *last &= (1 << (end % 64)) - 1;
        }
        let len = words.iter().map(|bits| bits.count_ones() as usize).sum();
        let mut set = Self { levels: Vec::new(), len, barren: Barren::default() };
        // As long as growing would have made it, and each level above the one below.
        words.resize(words.len().next_power_of_two().max(8), 0);
        set.levels.push(words);
        while set.levels.last().is_some_and(|level| level.len() > 1) {
            let below = set.levels.last().expect("just looked at");
            let above = below.chunks(64).map(|words| {
                words.iter().enumerate().fold(0, |bits, (index, &word)| bits | u64::from(word != 0) << index)
            });
            let above = above.collect();
            set.levels.push(above);
        }
        set
    }

    /// How many pages are in the set.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, page: u32) -> bool {
        let (word, bit) = place(page as usize);
        self.levels.first().and_then(|level| level.get(word)).is_some_and(|bits| bits & bit != 0)
    }

    /// Adds a page that is not in the set.
    pub(crate) fn insert(&mut self, page: u32) {
        assert!(!self.contains(page), "page {page} is freed twice");
        self.len += 1;
        self.barren.freed = self.barren.freed.min(page);
        self.grow(page as usize / 64 + 1);
        let mut index = page as usize;
        for level in &mut self.levels {
            let (word, bit) = place(index);
            let was_empty = level[word] == 0;
            level[word] |= bit;
            if !was_empty {
                break;
            }
            index = word;
        }
    }

    /// Makes room for so many words of pages.
    fn grow(&mut self, words: usize) {
        if self.levels.first().is_some_and(|level| level.len() >= words) {
            return;
        }
        // At least doubled, so that growing page by page costs little.
        let mut words = words.next_power_of_two().max(8);
        let mut depth = 0;
        loop {
            if depth == self.levels.len() {
                let below_has_any = depth > 0 && self.levels[depth - 1].iter().any(|&bits| bits != 0);
                self.levels.push(vec![u64::from(below_has_any)]);
            }
            self.levels[depth].resize(words, 0);
            if words == 1 {
                return;
            }
            words = words.div_ceil(64);
            depth += 1;
        }
    }

    /// Takes the lowest page out of the set.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut index = 0;
        for level in self.levels.iter().rev() {
            index = index * 64 + level[index].trailing_zeros() as usize;
        }
        let page = u32::try_from(index).expect("page numbers have 32 bits");
        self.remove(page);
        Some(page)
    }

    /// Takes the lowest run of so many pages out of the set that lies between two multiples of `chunk`, which is the same each time.
    pub(crate) fn pop_run(&mut self, pages: u32, chunk: u32) -> Option<u32> {
        let shortest = Barren::shortest(Barren::class(pages));
        let from = *self.barren.before(pages);
        let mut long = self.runs_from(from, pages, chunk).filter(|(_, length)| *length >= shortest);
        let lowest = long.next();
        let found = lowest.into_iter().chain(long).find(|(_, length)| *length == pages);
        *self.barren.before(pages) = lowest.map_or(u32::MAX, |(first, _)| first);
        let (first, _) = found?;
        for page in first..first + pages {
            self.remove(page);
        }
        Some(first)
    }

    /// The lowest run of so many pages of the set that lies between two multiples of `chunk`.
    pub(crate) fn find_run(&self, pages: u32, chunk: u32) -> Option<u32> {
        let from = self.barren.bound(pages);
        self.runs_from(from, pages, chunk).find(|(_, length)| *length == pages).map(|(first, _)| first)
    }

    /// The runs from a page on, cut at multiples of `chunk` and where they have `pages_max` pages: where each begins, and its length.
    fn runs_from(&self, from: u32, pages_max: u32, chunk: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let first = self.next(at)?;
            let most = pages_max.min(chunk - first % chunk);
            let length = self.length(first, most);
            at = first.saturating_add(length);
            Some((first, length))
        })
    }

    /// The lowest page of the set that is not before this one.
    fn next(&self, from: u32) -> Option<u32> {
        let mut index = from as usize;
        for (depth, level) in self.levels.iter().enumerate() {
            let word = index / 64;
            let bits = level.get(word)? & (u64::MAX << (index % 64));
            if bits != 0 {
                index = word * 64 + bits.trailing_zeros() as usize;
                for level in self.levels[..depth].iter().rev() {
                    index = index * 64 + level[index].trailing_zeros() as usize;
                }
                return Some(u32::try_from(index).expect("page numbers have 32 bits"));
            }
            index = word + 1;
        }
        None
    }

    /// How many pages from this one on are in the set, if there are not more than `most`.
    fn length(&self, first: u32, most: u32) -> u32 {
        let Some(level) = self.levels.first() else { return 0 };
        let mut length = 0;
        while length < most {
            let at = (first + length) as usize;
            let Some(bits) = level.get(at / 64) else { break };
            // The bits that are shifted in are not set, and end the run of this word.
            let ones = (bits >> (at % 64)).trailing_ones();
            length += ones;
            if at % 64 + (ones as usize) < 64 {
                break;
            }
        }
        length.min(most)
    }

    /// The runs of so many pages or more, lowest first.
    pub(crate) fn runs(&self, pages_min: u32) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        let mut run = 0..0;
        for page in self.iter().chain([u32::MAX]) {
            if page == run.end {
                run.end += 1;
                continue;
            }
            if run.end - run.start >= pages_min {
                runs.push(run);
            }
            run = page..page.saturating_add(1);
        }
        runs
    }

    /// Takes a page out of the set, which is in it.
    pub(crate) fn remove(&mut self, page: u32) {
        assert!(self.contains(page), "page {page} is taken twice");
        self.len -= 1;
        let mut index = page as usize;
        for level in &mut self.levels {
            let (word, bit) = place(index);
            level[word] &= !bit;
            if level[word] != 0 || planted!(SayFreeWhereNone) {
                break;
            }
            index = word;
        }
    }

    /// The pages of the set, lowest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.next(0), |page| self.next(page.checked_add(1)?))
    }
}

/// Up to eight bytes as a word, the first lowest.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().enumerate().fold(0, |word, (index, &byte)| word | u64::from(byte) << (8 * index))
}

const fn place(index: usize) -> (usize, u64) {
    (index / 64, 1 << (index % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set_under_random_changes() {
        let mut state = 7_u64;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % below
        };
        for most in [10, 100, 5_000, 300_000, 20_000_000] {
            let (mut set, mut model) = (FreeSet::default(), BTreeSet::new());
            for _ in 0..3_000 {
                let page = random(most);
                match (random(5), model.contains(&page)) {
                    (0, _) => assert_eq!(set.pop(), model.pop_first()),
                    (_, true) => {
                        set.remove(page);
                        model.remove(&page);
                    }
                    (_, false) => {
                        set.insert(page);
                        model.insert(page);
                    }
                }
                assert_eq!(set.len(), model.len());
                assert_eq!(set.contains(page), model.contains(&page));
            }
            assert!(set.iter().eq(model.iter().copied()));
        }
    }

    #[test]
    fn the_unused_pages_of_a_bitmap_are_those_whose_bit_is_not_set() {
        for end in [0, 1, 63, 64, 65, 1000, 70_000] {
            let used: Vec<u8> = (0..(end as usize).div_ceil(8) + 5)
                .map(|at| u8::try_from(at * 37 % 251).expect("less than 251"))
                .collect();
            let is_free = |page: &u32| used[*page as usize / 8] >> (page % 8) & 1 == 0;
            let mut set = FreeSet::unused(&used, end);
            assert!(set.iter().eq((0..end).filter(is_free)), "{end}");
            assert_eq!(set.len(), (0..end).filter(is_free).count());
            assert_eq!(set.pop(), (0..end).find(is_free));
            set.insert(end + 100_000);
            assert_eq!(set.iter().last(), Some(end + 100_000));
        }
    }

    /// The lowest run in a model, by looking at every page.
    fn lowest_run(model: &BTreeSet<u32>, pages: u32, chunk: u32) -> Option<u32> {
        let is_run = |first: u32| (first..first + pages).all(|page| model.contains(&page));
        model.iter().copied().find(|first| first / chunk == (first + pages - 1) / chunk && is_run(*first))
    }

    #[test]
    fn runs_are_those_of_a_set_under_random_changes() {
        let mut state = 11_u64;
        let mut random = move |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % below
        };
        for (most, chunk) in [(60, 16), (400, 128), (3_000, 1024)] {
            let (mut set, mut model) = (FreeSet::default(), BTreeSet::new());
            let mut found = [0; 2];
            for _ in 0..4_000 {
                let pages_max = if random(8) == 0 { chunk } else { 6 };
                let (first, pages) = (random(most), 1 + random(pages_max));
                match random(3) {
                    0 => assert_eq!(set.pop(), model.pop_first()),
                    1 => {
                        let run = lowest_run(&model, pages, chunk);
                        assert_eq!(set.find_run(pages, chunk), run);
                        assert_eq!(set.pop_run(pages, chunk), run, "{pages} pages of {model:?}");
                        model.retain(|page| run.is_none_or(|first| !(first..first + pages).contains(page)));
                        found[usize::from(run.is_some())] += 1;
                    }
                    _ => (first..first + pages).filter(|page| model.insert(*page)).for_each(|page| set.insert(page)),
                }
            }
            assert!(set.iter().eq(model.iter().copied()));
            assert!(found.iter().all(|times| *times > 50), "{found:?}");
        }
    }

    #[test]
    fn runs_are_the_lowest_that_do_not_cross_a_chunk() {
        let mut set = FreeSet::default();
        for page in [1, 2, 6, 7, 8, 9, 10, 20] {
            set.insert(page);
        }
        assert_eq!(set.pop_run(3, 8), Some(8));
        assert_eq!(set.pop_run(3, 8), None);
        assert_eq!(set.pop_run(2, 8), Some(1));
        assert_eq!(set.pop_run(1, 8), Some(6));
        assert!(set.iter().eq([7, 20]));
    }
}
