//! What was heard of an instance, folded into series: a pure function of samples and when they came.

use std::collections::VecDeque;
use std::time::Duration;

use super::sample::{Sample, Timed};

/// How many intervals are remembered: more than the widest screen shows.
const POINTS_MAX: usize = 600;

/// Which time of a run is plotted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Measure {
    /// From its begin to its end.
    #[default]
    Took,
    /// Before it began.
    Waited,
}

impl Measure {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Took => Self::Waited,
            Self::Waited => Self::Took,
        }
    }
}

/// Half of something took no longer, and 99 of 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Quantiles {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

/// What happened between two samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Interval {
    /// Runs that ended, and those of them that failed.
    pub(super) ended: u64,
    pub(super) failed: u64,
    /// How long they took, and had waited; nothing where none ended.
    pub(super) took: Option<Quantiles>,
    pub(super) waited: Option<Quantiles>,
}

/// One place of a plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Point {
    pub(super) span: Duration,
    /// Nothing where nobody answered.
    pub(super) interval: Option<Interval>,
}

/// Whether an instance answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// Nobody was asked yet.
    Fresh,
    Up,
    /// None does, since when and why.
    Gone {
        since: Duration,
        why: String,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Model {
    link: Link,
    /// The newest, also of an instance that is gone.
    sample: Option<Sample>,
    /// When something was heard last: an answer, or that there is none.
    heard: Option<Duration>,
    points: VecDeque<Point>,
}

impl Model {
    pub(super) const fn new() -> Self {
        Self { link: Link::Fresh, sample: None, heard: None, points: VecDeque::new() }
    }

    pub(super) const fn link(&self) -> &Link {
        &self.link
    }

    pub(super) const fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// An instance answered at this moment, which is counted from whenever the caller likes.
    pub(super) fn take(&mut self, at: Duration, sample: Sample) {
        let before = self.sample.as_ref().filter(|_| self.link == Link::Up);
        match before {
            Some(before) if before.instance.incarnation == sample.instance.incarnation => {
                let interval = between(before, &sample);
                self.push(at, Some(interval));
            }
            // Another one, whose counters have begun anew: what it did before it was asked belongs to no interval of ours.
            Some(_) => self.push(at, None),
            None => {}
        }
        (self.link, self.sample, self.heard) = (Link::Up, Some(sample), Some(at));
    }

    /// Nobody answered.
    pub(super) fn lose(&mut self, at: Duration, why: &str) {
        if self.sample.is_some() {
            self.push(at, None);
        }
        self.heard = Some(at);
        match &mut self.link {
            Link::Gone { why: before, .. } => why.clone_into(before),
            link => *link = Link::Gone { since: at, why: why.to_owned() },
        }
    }

    fn push(&mut self, at: Duration, interval: Option<Interval>) {
        let span = at.saturating_sub(self.heard.unwrap_or(at));
        self.points.push_back(Point { span, interval });
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
        assert!(self.points.len() <= POINTS_MAX, "as many points as are remembered");
    }

    /// Up to so many of the newest points, oldest first.
    pub(super) fn newest(&self, most: usize) -> impl DoubleEndedIterator<Item = Point> + '_ {
        self.points.iter().skip(self.points.len().saturating_sub(most)).copied()
    }

    /// The newest interval, if somebody answers now.
    pub(super) fn latest(&self) -> Option<Point> {
        self.points.back().copied().filter(|point| self.link == Link::Up && point.interval.is_some())
    }
}

impl Point {
    /// How many runs ended in a second, and how many of them failed; nothing where nobody answered or no time passed.
    pub(super) fn rate(&self) -> Option<(f64, f64)> {
        let (interval, seconds) = (self.interval?, self.span.as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "a rate")]
        let per_second = |count: u64| count as f64 / seconds;
        (seconds > 0.0).then(|| (per_second(interval.ended), per_second(interval.failed.min(interval.ended))))
    }

    pub(super) fn time(&self, measure: Measure) -> Option<Quantiles> {
        let interval = self.interval?;
        match measure {
            Measure::Took => interval.took,
            Measure::Waited => interval.waited,
        }
    }
}

fn between(before: &Sample, after: &Sample) -> Interval {
    let ((ended, failed), (ended_before, failed_before)) = (after.ended(), before.ended());
    Interval {
        ended: ended.saturating_sub(ended_before),
        failed: failed.saturating_sub(failed_before),
        took: quantiles(&before.runs, &after.runs),
        waited: quantiles(&before.queued, &after.queued),
    }
}

fn quantiles(before: &Timed, after: &Timed) -> Option<Quantiles> {
    let spread = after.spread.since(&before.spread);
    let part = |part: f64| spread.quantile(part).map(|time| time.min(after.max));
    Some(Quantiles { p50: part(0.5)?, p99: part(0.99)? })
}

#[cfg(test)]
mod tests {
    use kauri::runtime::Spread;

    use super::super::sample::tests::answer;
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// The example, with so many runs of a second ended, some badly.
    fn sample(incarnation: u64, well: u64, failed: u64) -> Sample {
        let mut sample = Sample::read(&answer()).unwrap();
        sample.instance.incarnation = incarnation;
        sample.counters.insert("runs_success".to_owned(), well);
        sample.counters.insert("runs_script_error".to_owned(), failed);
        sample.runs = Timed { spread: Spread::new([(secs(1), well), (secs(2), failed)]), max: secs(2) };
        sample
    }

    fn rates(model: &Model) -> Vec<Option<(f64, f64)>> {
        model.newest(100).map(|point| point.rate()).collect()
    }

    #[test]
    fn rates_are_what_was_counted_between_samples_over_the_time_between_them() {
        let mut model = Model::new();
        assert_eq!((model.link(), rates(&model)), (&Link::Fresh, vec![]));
        model.take(secs(10), sample(1, 100, 50));
        assert_eq!(rates(&model), [], "what was before is nobody's interval");
        model.take(secs(12), sample(1, 104, 52));
        model.take(secs(13), sample(1, 104, 52));
        assert_eq!(rates(&model), [Some((3.0, 1.0)), Some((0.0, 0.0))]);
        let took: Vec<_> = model.newest(100).map(|point| point.time(Measure::Took)).collect();
        assert_eq!(took, [Some(Quantiles { p50: secs(1), p99: secs(2) }), None], "only of those that ended then");
        assert_eq!(model.latest().and_then(|point| point.rate()), Some((0.0, 0.0)));
    }

    #[test]
    fn an_instance_that_goes_and_comes_back_leaves_a_gap_and_no_false_numbers() {
        let mut model = Model::new();
        model.take(secs(1), sample(1, 10, 0));
        model.lose(secs(2), "killed");
        model.lose(secs(3), "still");
        assert_eq!(model.link(), &Link::Gone { since: secs(2), why: "still".to_owned() });
        assert!(model.sample().is_some() && model.latest().is_none(), "what was known stays, and is not the present");
        model.take(secs(4), sample(2, 3, 0));
        model.take(secs(5), sample(2, 5, 0));
        assert_eq!(rates(&model), [None, None, Some((2.0, 0.0))]);
        assert_eq!(model.link(), &Link::Up);
        // One that was quicker than we asked is noticed by its number.
        model.take(secs(6), sample(3, 1, 0));
        model.take(secs(7), sample(3, 2, 0));
        assert_eq!(rates(&model)[3..], [None, Some((1.0, 0.0))]);
    }

    #[test]
    fn no_more_is_remembered_than_a_screen_could_show() {
        let mut model = Model::new();
        (0..2000).for_each(|second| model.take(secs(second), sample(1, second, 0)));
        assert_eq!((model.newest(10_000).count(), model.newest(7).count()), (POINTS_MAX, 7));
        let mut never = Model::new();
        (0..2000).for_each(|second| never.lose(secs(second), "none"));
        assert_eq!(never.newest(10_000).count(), 0);
    }

    #[test]
    fn two_answers_at_one_moment_have_no_rate() {
        let mut model = Model::new();
        model.take(secs(1), sample(1, 1, 0));
        model.take(secs(1), sample(1, 2, 0));
        assert_eq!(rates(&model), [None]);
    }

    #[test]
    fn what_is_counted_at_random_adds_up() {
        // Whatever the spans are, what all intervals count together is what the counters grew by.
        let mut model = Model::new();
        let (mut chance, mut well, mut at) = (7_u64, 0, 0);
        model.take(secs(0), sample(1, 0, 0));
        for _ in 0..300 {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (well, at) = (well + (chance >> 60), at + 1 + (chance >> 62));
            model.take(secs(at), sample(1, well, 0));
        }
        let sum: u64 = model.newest(1000).filter_map(|point| Some(point.interval?.ended)).sum();
        let spans: Duration = model.newest(1000).map(|point| point.span).sum();
        assert_eq!((sum, spans), (well, secs(at)));
    }
}
