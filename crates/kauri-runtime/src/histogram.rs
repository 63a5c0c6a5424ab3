//! A histogram of durations: 128 buckets for each doubling, so that a quantile is right within 1 %.

use std::time::Duration;

/// Buckets for each doubling.
const PARTS: usize = 128;
/// Doublings: nanoseconds up to 2^42, more than an hour. What takes longer counts as that.
const DOUBLINGS: usize = 36;

#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    total: Duration,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: Vec::new(), count: 0, total: Duration::ZERO, max: Duration::ZERO }
    }
}

/// The bucket of a number: the first `PARTS` numbers have one each.
fn bucket(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    let shift = (bits as usize).saturating_sub(PARTS.ilog2() as usize + 1);
    let place = usize::try_from(nanos >> shift).unwrap_or(usize::MAX);
    (shift * PARTS + place).min(DOUBLINGS * PARTS - 1)
}

/// The greatest number of a bucket.
fn limit(bucket: usize) -> u64 {
    let shift = (bucket / PARTS).saturating_sub(1);
    let place = (bucket - shift * PARTS) as u64;
    ((place + 1) << shift) - 1
}

impl Histogram {
    pub(crate) fn add(&mut self, time: Duration) {
        if self.buckets.is_empty() {
            self.buckets = vec![0; DOUBLINGS * PARTS];
        }
        self.buckets[bucket(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))] += 1;
        self.count += 1;
        self.total = self.total.saturating_add(time);
        self.max = self.max.max(time);
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn total(&self) -> Duration {
        self.total
    }

    pub(crate) const fn max(&self) -> Duration {
        self.max
    }

    pub(crate) fn spread(&self) -> Spread {
        let counted = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        Spread(counted.map(|(at, count)| (Duration::from_nanos(limit(at)), *count)).collect())
    }

    /// What this part of all took at most.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        let wanted = part_of(self.count, part);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return Duration::from_nanos(limit(at)).min(self.max);
            }
        }
        self.max
    }
}

/// How many are this part of so many.
fn part_of(count: u64, part: f64) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a quantile"
    )]
    let wanted = (count as f64 * part).ceil() as u64;
    wanted
}

/// How many things took how long, shortest first: each number of them with what they took at most, within 1 %. Two of the same
/// runtime tell what happened between them.
///
/// ```
/// use std::time::Duration;
/// use kauri_runtime::Spread;
///
/// let ms = Duration::from_millis;
/// let before = Spread::new([(ms(10), 3)]);
/// let after = Spread::new([(ms(10), 4), (ms(80), 1)]);
/// let between = after.since(&before);
/// assert_eq!((between.count(), between.quantile(0.5), between.quantile(0.99)), (2, Some(ms(10)), Some(ms(80))));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Spread(Vec<(Duration, u64)>);

impl Spread {
    /// That many things took at most so long, in any order.
    pub fn new(counts: impl IntoIterator<Item = (Duration, u64)>) -> Self {
        let mut sums = std::collections::BTreeMap::<Duration, u64>::new();
        for (time, count) in counts {
            let sum = sums.entry(time).or_default();
            *sum = sum.saturating_add(count);
        }
        Self(sums.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// What so many of them took at most, shortest first.
    pub fn each(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.each().fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// What was added since an earlier one; all of it if what was counted then is not in it, because counting has begun anew.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut left: std::collections::BTreeMap<Duration, u64> = self.each().collect();
        for (time, count) in before.each() {
            match left.get_mut(&time) {
                Some(found) if *found >= count => *found -= count,
                _ => return self.clone(),
            }
        }
        Self::new(left)
    }

    /// What this part of them took at most; nothing if there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let wanted = part_of(self.count(), part);
        let mut seen = 0_u64;
        let mut reached = self.each().skip_while(|(_, count)| {
            seen = seen.saturating_add(*count);
            seen < wanted
        });
        reached.next().or(self.0.last().copied()).map(|(time, _)| time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_a_bucket_whose_limit_is_near() {
        for nanos in (0..2000).chain((11..42).map(|bits| (1 << bits) + 12_345)) {
            let most = limit(bucket(nanos));
            assert!(most >= nanos && most - nanos <= nanos / 100, "{nanos}: {most}");
        }
        assert_eq!(bucket(u64::MAX), DOUBLINGS * PARTS - 1);
    }

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|micros| histogram.add(Duration::from_micros(micros)));
        let near = |part: f64, expected: u64| {
            let found = histogram.quantile(part).as_nanos();
            let expected = u128::from(expected) * 1000;
            assert!(found >= expected && found <= expected + expected / 100, "{part}: {found}");
        };
        near(0.5, 5000);
        near(0.99, 9900);
        assert_eq!(histogram.quantile(1.0), Duration::from_micros(10_000));
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }

    /// Times that a fixed seed chooses.
    fn times(seed: u64, count: u64) -> impl Iterator<Item = Duration> {
        let next =
            |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        std::iter::successors(Some(seed), next)
            .take(usize::try_from(count).unwrap())
            .map(|chance| Duration::from_nanos(chance >> 36))
    }

    #[test]
    fn a_spread_says_what_its_histogram_says() {
        let mut histogram = Histogram::default();
        times(1, 5000).for_each(|time| histogram.add(time));
        let spread = histogram.spread();
        assert_eq!(spread.count(), 5000);
        for part in [0.0, 0.001, 0.5, 0.9, 0.99, 0.999] {
            // A histogram knows the longest exactly.
            let found = spread.quantile(part).map(|time| time.min(histogram.max()));
            assert_eq!(found, Some(histogram.quantile(part)), "{part}");
        }
        assert!(spread.quantile(1.0).unwrap() >= histogram.max());
        assert_eq!((Spread::default().quantile(0.5), Spread::default().count()), (None, 0));
    }

    #[test]
    fn between_two_spreads_is_what_was_added_between_them() {
        let (mut all, mut added) = (Histogram::default(), Histogram::default());
        times(2, 300).for_each(|time| all.add(time));
        let before = all.spread();
        times(3, 200).for_each(|time| [&mut all, &mut added].into_iter().for_each(|histogram| histogram.add(time)));
        assert_eq!(all.spread().since(&before), added.spread());
        assert_eq!(all.spread().since(&all.spread()).count(), 0);
        // One that has begun anew does not hold what was counted before.
        assert_eq!(added.spread().since(&before), added.spread());
    }
}
