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

    /// What this part of all took at most.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a quantile"
        )]
        let wanted = (self.count as f64 * part).ceil() as u64;
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
}
