//! A torn write: which of its pieces reached the disk.

use std::ops::Range;

use crate::fault::FaultKind;
use crate::rng::Rng;

/// How one write is torn: the size of the pieces, and which of them survive.
#[derive(Clone, Debug)]
pub(crate) struct Tear {
    unit: u64,
    pattern: Pattern,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Pattern {
    Coin,
    Prefix,
    Suffix,
    OneLost,
    OneKept,
}

/// The pieces that disks promise to write whole.
const SECTOR_BYTES: u64 = 512;

impl Tear {
    pub(crate) fn draw(unit: u32, rng: &mut Rng) -> Self {
        assert!(unit > 0, "pieces have a size");
        let patterns = [Pattern::Coin, Pattern::Prefix, Pattern::Suffix, Pattern::OneLost, Pattern::OneKept];
        Self { unit: u64::from(unit), pattern: *rng.pick(&patterns), seed: rng.next_u64() }
    }

    pub(crate) fn kind(&self) -> FaultKind {
        if self.unit < SECTOR_BYTES { FaultKind::TornBytes } else { FaultKind::TornSectors }
    }

    /// Calls `keep` with each stretch of surviving bytes, as a range in the write. Pieces are cut where the file's positions are
    /// multiples of the unit, as a disk's sectors are.
    pub(crate) fn pieces(&self, at: u64, len: usize, mut keep: impl FnMut(Range<usize>)) {
        let first = at / self.unit;
        let units = (at + len as u64).div_ceil(self.unit) - first;
        let edge = |unit: u64| {
            let position = ((first + unit) * self.unit).clamp(at, at + len as u64);
            usize::try_from(position - at).expect("no longer than the write")
        };
        let mut kept_from: Option<usize> = None;
        let mut survives = self.survivors(units);
        for unit in 0..units {
            match (survives(unit), kept_from) {
                (true, None) => kept_from = Some(edge(unit)),
                (false, Some(start)) => {
                    keep(start..edge(unit));
                    kept_from = None;
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        if let Some(start) = kept_from {
            keep(start..len);
        }
    }

    /// Whether a piece survives, asked in order.
    fn survivors(&self, units: u64) -> impl FnMut(u64) -> bool + use<> {
        let mut rng = Rng::new(self.seed);
        let (pattern, middle) = (self.pattern, rng.below(units.max(1)));
        let mut bits = 0;
        move |unit| {
            if unit % 64 == 0 {
                bits = rng.next_u64();
            }
            match pattern {
                Pattern::Coin => bits >> (unit % 64) & 1 == 1,
                Pattern::Prefix => unit < middle,
                Pattern::Suffix => unit > middle,
                Pattern::OneLost => unit != middle,
                Pattern::OneKept => unit == middle,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(tear: &Tear, at: u64, len: usize) -> Vec<Range<usize>> {
        let mut kept = Vec::new();
        tear.pieces(at, len, |piece| kept.push(piece));
        kept
    }

    #[test]
    fn pieces_end_at_sectors_of_the_file_and_do_not_touch() {
        let mut rng = Rng::new(5);
        for _ in 0..10_000 {
            let unit = *rng.pick(&[512_u32, 64, 16, 1]);
            let (at, len) = (rng.below(5_000), rng.index(3_000) + 1);
            let tear = Tear::draw(unit, &mut rng);
            let kept = pieces(&tear, at, len);
            assert_eq!(kept, pieces(&tear, at, len), "the same tear tears the same");
            for piece in &kept {
                assert!(piece.start < piece.end && piece.end <= len);
                assert!(piece.start == 0 || (at + piece.start as u64).is_multiple_of(u64::from(unit)));
                assert!(piece.end == len || (at + piece.end as u64).is_multiple_of(u64::from(unit)));
            }
            assert!(kept.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn every_pattern_of_a_few_pieces_occurs() {
        let mut rng = Rng::new(6);
        let mut seen = [false; 16];
        for _ in 0..1_000 {
            let mut mask = 0;
            for piece in pieces(&Tear::draw(512, &mut rng), 0, 2_048) {
                (piece.start / 512..piece.end / 512).for_each(|sector| mask |= 1 << sector);
            }
            seen[mask] = true;
        }
        assert_eq!(seen, [true; 16]);
    }
}
