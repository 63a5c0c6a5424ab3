//! What was measured: samples by workload and contender.

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    PerSecond,
    BytesPerSecond,
    Nanoseconds,
    Microseconds,
    /// Times the bytes of all keys and values.
    Times,
}

impl Unit {
    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::PerSecond => "/s",
            Self::BytesPerSecond => "B/s",
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Times => "x data",
        }
    }

    /// How many times better we are than a peer, whatever the unit.
    pub(crate) fn ratio(self, ours: f64, peer: f64) -> f64 {
        match self {
            Self::PerSecond | Self::BytesPerSecond => ours / peer,
            Self::Nanoseconds | Self::Microseconds | Self::Times => peer / ours,
        }
    }
}

/// One workload's samples.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) workload: String,
    pub(crate) unit: Unit,
    samples: Vec<(&'static str, Vec<f64>)>,
}

impl Outcome {
    /// Everybody's median, in the order in which they took turns.
    pub(crate) fn medians(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.samples.iter().map(|(who, samples)| (*who, median(samples)))
    }

    /// Who took part.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.samples.iter().map(|(who, _)| *who)
    }

    pub(crate) fn median(&self, who: &str) -> Option<f64> {
        self.medians().find(|(name, _)| *name == who).map(|(_, median)| median)
    }

    /// How many times better we are than each peer.
    pub(crate) fn ratios(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let ours = self.median(OURS).expect("we take part");
        self.medians().filter(|(who, _)| *who != OURS).map(move |(who, peer)| (who, self.unit.ratio(ours, peer)))
    }

    pub(crate) fn ratio(&self, peer: &str) -> Option<f64> {
        self.ratios().find(|(who, _)| *who == peer).map(|(_, ratio)| ratio)
    }
}

/// The contender that is compared with all others.
pub(crate) const OURS: &str = "kauri";

pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut samples = samples.to_vec();
    samples.sort_unstable_by(f64::total_cmp);
    let middle = samples.len() / 2;
    if samples.len() % 2 == 1 { samples[middle] } else { f64::midpoint(samples[middle - 1], samples[middle]) }
}

/// All outcomes, in the order in which they came.
#[derive(Default, Debug)]
pub(crate) struct Sheet {
    outcomes: Vec<Outcome>,
}

impl Sheet {
    pub(crate) fn note(&mut self, workload: String, unit: Unit, who: &'static str, value: f64) {
        let at = self.outcomes.iter().position(|outcome| outcome.workload == workload).unwrap_or_else(|| {
            self.outcomes.push(Outcome { workload, unit, samples: Vec::new() });
            self.outcomes.len() - 1
        });
        let samples = &mut self.outcomes[at].samples;
        match samples.iter_mut().find(|(name, _)| *name == who) {
            Some((_, samples)) => samples.push(value),
            None => samples.push((who, vec![value])),
        }
    }

    pub(crate) fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    pub(crate) fn find(&self, workload: &str) -> Option<&Outcome> {
        self.outcomes.iter().find(|outcome| outcome.workload == workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_of_medians_is_above_one_where_we_are_better() {
        let mut sheet = Sheet::default();
        for (who, values) in [("kauri", [3.0, 1.0, 2.0]), ("lmdb", [1.0, 1.0, 9.0])] {
            for value in values {
                sheet.note("get".into(), Unit::PerSecond, who, value);
                sheet.note("open".into(), Unit::Microseconds, who, value);
            }
        }
        assert_eq!(sheet.find("get").and_then(|get| get.ratio("lmdb")), Some(2.0));
        assert_eq!(sheet.find("open").and_then(|open| open.ratio("lmdb")), Some(0.5));
    }
}
