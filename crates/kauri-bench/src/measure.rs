//! The clock: contenders that take turns, measured in processor time of their thread.
//!
//! ```text
//! round 1: | ours | peer 1 | peer 2 |   round 2: | ours | peer 1 | peer 2 |   ...
//! ```
//!
//! Machines are noisy, and this is made for noisy ones. Time spent waiting for a core is not counted. What else a
//! neighbour does to us (caches, clock rate) falls on all contenders alike, because they take turns within
//! milliseconds. Where the stack happens to start is worth a fifth of some results and differs from process to process,
//! so each turn is shared among four places of the stack, 16 bytes apart. The estimate is the median over the rounds; the
//! fastest round stands beside it and says how far the noise reached.

use std::hint;
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How many rounds there are.
    pub(crate) rounds: u32,
    /// How much processor time each contender takes in one round, at least.
    pub(crate) turn: Duration,
}

impl Plan {
    /// For results.
    pub(crate) const FULL: Self = Self { rounds: 201, turn: Duration::from_millis(2) };
    /// For a look.
    pub(crate) const QUICK: Self = Self { rounds: 41, turn: Duration::from_millis(1) };
}

/// One of those that do the same work.
pub(crate) struct Contender<'a> {
    name: &'static str,
    /// Does the work so many times over.
    run: Box<dyn FnMut(u64) + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender whose work is `work`. What it returns is kept from the optimiser; its input the work itself must keep
    /// with [`hint::black_box`].
    pub(crate) fn new<T>(name: &'static str, mut work: impl FnMut() -> T + 'a) -> Self {
        let run = move |times| {
            for _ in 0..times {
                // By reference: a large result is not copied once more only to be looked at.
                hint::black_box(&work());
            }
        };
        Self { name, run: Box::new(run) }
    }

    /// How long the work takes, so many times at each place.
    fn time(&mut self, times: u64) -> Duration {
        let start = thread_time();
        for place in PLACES {
            place(&mut || (self.run)(times));
        }
        thread_time().saturating_sub(start)
    }

    /// How many times at each place the work fills a turn.
    fn calibrate(&mut self, turn: Duration) -> u64 {
        let mut times: u64 = 1;
        while self.time(times) < turn {
            times = times.checked_mul(2).expect("work that is done 2^63 times takes longer than a turn");
        }
        times
    }
}

/// Places of the stack, one for each of the ways in which 16-byte aligned data can lie in a cache line.
const PLACES: [fn(&mut dyn FnMut()); 4] = [lower::<16>, lower::<32>, lower::<48>, lower::<64>];

/// Does the work with the stack so many bytes further down.
#[inline(never)]
fn lower<const BYTES: usize>(work: &mut dyn FnMut()) {
    let room = hint::black_box([0; BYTES]);
    work();
    hint::black_box::<&[u8; BYTES]>(&room);
}

/// The same work for us and for our peers.
pub(crate) struct Workload<'a> {
    name: String,
    ours: Contender<'a>,
    peers: Vec<Contender<'a>>,
}

impl<'a> Workload<'a> {
    /// A workload without peers yet, and how we do it.
    pub(crate) fn new<T>(name: impl Into<String>, ours: impl FnMut() -> T + 'a) -> Self {
        Self { name: name.into(), ours: Contender::new("kauri", ours), peers: Vec::new() }
    }

    /// The same workload with one more peer.
    pub(crate) fn against<T>(mut self, peer: &'static str, work: impl FnMut() -> T + 'a) -> Self {
        self.peers.push(Contender::new(peer, work));
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Lets the contenders take turns, round after round.
    pub(crate) fn race(self, plan: Plan) -> Outcome {
        assert!(plan.rounds > 0, "an estimate needs a round");
        let mut contenders: Vec<_> = std::iter::once(self.ours).chain(self.peers).collect();
        let times: Vec<u64> = contenders.iter_mut().map(|contender| contender.calibrate(plan.turn)).collect();
        let mut rounds = vec![Vec::new(); contenders.len()];
        for _ in 0..plan.rounds {
            for ((contender, times), rounds) in contenders.iter_mut().zip(&times).zip(&mut rounds) {
                rounds.push(nanoseconds(contender.time(*times), *times * PLACES.len() as u64));
            }
        }
        let mut results = contenders.iter().zip(rounds).map(|(who, rounds)| (who.name, Estimate::of(rounds)));
        let (_, ours) = results.next().expect("we are the first contender");
        Outcome { workload: self.name, unit: Unit::Nanoseconds, ours, peers: results.collect() }
    }
}

/// What came out of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) workload: String,
    pub(crate) unit: Unit,
    pub(crate) ours: Estimate,
    /// Each peer by its name.
    pub(crate) peers: Vec<(&'static str, Estimate)>,
}

impl Outcome {
    /// What this peer took, if it took part.
    pub(crate) fn peer(&self, name: &str) -> Option<Estimate> {
        self.peers.iter().find(|(peer, _)| *peer == name).map(|(_, estimate)| *estimate)
    }
}

/// What the work costs once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Estimate {
    /// In the middle round.
    pub(crate) median: f64,
    /// In the round with the smallest number.
    pub(crate) min: f64,
}

impl Estimate {
    pub(crate) fn of(mut rounds: Vec<f64>) -> Self {
        rounds.sort_by(f64::total_cmp);
        let middle = rounds.len() / 2;
        let median = if rounds.len() % 2 == 1 { rounds[middle] } else { (rounds[middle - 1] + rounds[middle]) / 2.0 };
        Self { median, min: rounds[0] }
    }
}

/// What an estimate counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    /// Nanoseconds of processor time: less is better.
    Nanoseconds,
    /// Microseconds on the wall: less is better.
    Microseconds,
    /// Seconds on the wall: less is better.
    Seconds,
    /// Millions of bytes: less is better.
    Megabytes,
    /// How many in a second: more is better.
    PerSecond,
}

impl Unit {
    /// How many times better we are than a peer: more than 1 if we are, less than 1 if the peer is. Where less is
    /// better, that is `peer / ours`.
    pub(crate) fn ratio(self, ours: f64, peer: f64) -> f64 {
        match self {
            Self::Nanoseconds | Self::Microseconds | Self::Seconds | Self::Megabytes => peer / ours,
            Self::PerSecond => ours / peer,
        }
    }

    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Seconds => "s",
            Self::Megabytes => "MB",
            Self::PerSecond => "/s",
        }
    }
}

fn nanoseconds(turn: Duration, times: u64) -> f64 {
    turn.as_nanos() as f64 / times as f64
}

/// The processor time that this thread has used.
#[cfg(unix)]
pub(crate) fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread has used no negative time")
}

/// Does something on the processor that this thread is on. To be moved to another costs it what it has in its caches, and that is the
/// system's doing.
#[cfg(target_os = "linux")]
pub(crate) fn staying<R>(act: impl FnOnce() -> R) -> R {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    let (before, mut here) = (sched_getaffinity(None), CpuSet::new());
    here.set(sched_getcpu());
    // Where it is not allowed it may be moved.
    let stays = sched_setaffinity(None, &here);
    let done = act();
    if let (Ok(()), Ok(before)) = (stays, before) {
        sched_setaffinity(None, &before).expect("what was allowed before");
    }
    done
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn staying<R>(act: impl FnOnce() -> R) -> R {
    act()
}

/// The processor time that all threads of this process have used.
#[cfg(unix)]
pub(crate) fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a process has used no negative time")
}

#[cfg(not(unix))]
pub(crate) fn process_time() -> Duration {
    thread_time()
}

/// The time since the first call: where there is no clock of a thread's own, noise counts.
#[cfg(not(unix))]
pub(crate) fn thread_time() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const SHORT: Plan = Plan { rounds: 3, turn: Duration::from_micros(50) };

    #[test]
    fn median_is_the_middle_or_between_the_two_middles() {
        let check = |rounds: &[f64], median, min| assert_eq!(Estimate::of(rounds.to_vec()), Estimate { median, min });
        check(&[7.0], 7.0, 7.0);
        check(&[9.0, 1.0, 2.0], 2.0, 1.0);
        check(&[4.0, 100.0, 2.0, 3.0], 3.5, 2.0);
    }

    #[test]
    fn ratio_is_above_one_where_we_are_better() {
        assert_eq!(Unit::Nanoseconds.ratio(10.0, 50.0), 5.0);
        assert_eq!(Unit::Nanoseconds.ratio(50.0, 10.0), 0.2);
        assert_eq!(Unit::PerSecond.ratio(50.0, 10.0), 5.0);
    }

    #[test]
    fn work_that_takes_longer_has_the_larger_estimate() {
        let spin = |times: u64| move || (0..hint::black_box(times)).fold(0, |sum, next| hint::black_box(sum ^ next));
        let outcome = Workload::new("spin", spin(10)).against("longer", spin(1000)).race(SHORT);
        let longer = outcome.peer("longer").unwrap();
        assert!(outcome.ours.median > 0.0 && outcome.ours.min <= outcome.ours.median);
        assert!(longer.median > outcome.ours.median, "{outcome:?}");
        assert_eq!(outcome.peer("nobody"), None);
    }

    #[test]
    fn contenders_take_turns() {
        let turns = RefCell::new(Vec::new());
        let note = |who| {
            let turns = &turns;
            move || {
                let mut turns = turns.borrow_mut();
                if turns.last() != Some(&who) {
                    turns.push(who);
                }
            }
        };
        Workload::new("turns", note('a')).against("b", note('b')).against("c", note('c')).race(SHORT);
        // Calibration is the first round.
        assert_eq!(turns.into_inner(), ['a', 'b', 'c'].repeat(4));
    }
}
