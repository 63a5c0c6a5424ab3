//! Waiting without sleeping, as long as that costs nobody anything.
//!
//! ```text
//!                       a turn was somebody else's time slice
//!           yields ───────────────────────────────────────────────────────────> sleeps at once
//! waiter:     ^                                                                      │ a second, or longer if that happens often
//!             └──── some waits in a row went well ──── one waiter at a time tries <──┘
//! ```
//!
//! To be put to sleep and woken costs a thread several microseconds of the processor, and whoever wakes it as much again. Where many wait for one
//! short write, that is dearer than the write. A thread that lets others run instead, and looks again when it is its turn, is woken by nobody.
//!
//! But a turn that is given away goes to whoever wants it. If that is a busy program, it comes back a time slice later, which is ten writes; and each
//! caller that gives its turn away owes that program a time slice. So each turn that is given away is timed: after one that took long nobody
//! does so for a second, and then one caller at a time, until it is proved that nobody else wants the cores. If that does not last, it is tried less and
//! less often. Turns that come back at once found nobody who wants the core: then sleeping is better, because the core can sleep too.
//!
//! Nothing but speed depends on this: whoever is told that it is not over yet sleeps until it is.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A turn that was away for longer was somebody else's time slice. A hundred callers that take their turns come to less.
const LONG: Duration = Duration::from_millis(1);
/// How long one wait may go on like this: longer than a short write, and shorter than a time slice.
const WAIT_MAX: Duration = Duration::from_millis(1);
/// A turn that was back sooner was given to nobody.
const VAIN: Duration = Duration::from_nanos(700);
/// So many of them in a row are enough.
const VAIN_MAX: u32 = 4;
/// More often nobody looks, whatever the clock says.
const YIELDS_MAX: u32 = 2_000;
/// After somebody else's time slice everybody sleeps at once for so long; twice as long each time that it did not help, up to the most.
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(32);
/// What was proved and lasted for so many rests did help.
const RESTS: u64 = 10;
/// So many waits of one caller at a time prove that nobody else wants the cores.
const PROOFS: u32 = 16;
/// After a wait that came to nothing everybody sleeps at once for so long: the disk was slow once, or always is.
const PAUSE: Duration = Duration::from_millis(10);

/// What gives turns away, and tells the time.
pub(crate) trait Scheduler {
    /// Since some moment, in nanoseconds.
    fn now_ns(&self) -> u64;
    /// Lets others run.
    fn yield_now(&self);
}

/// Whether those who wait for something let others run meanwhile, or sleep. One for each thing that is waited for.
#[derive(Debug)]
pub(crate) struct Patience<S = System> {
    scheduler: S,
    /// When one may try again whether to let others run; 0 while everybody may.
    rest_until_ns: AtomicU64,
    /// How long the last rest was, and since when everybody may.
    rest_ns: AtomicU64,
    since_ns: AtomicU64,
    /// Waits that went well, one caller at a time, since the last rest.
    proofs: AtomicU32,
}

/// Who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// One of many.
    Any,
    /// The one who tries it; until it has tried, this is when the next may.
    Probe(u64),
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self::with(System)
    }
}

impl<S: Scheduler> Patience<S> {
    fn with(scheduler: S) -> Self {
        // From the first moment on one tries it: nothing is proved yet.
        let (rest_until_ns, rest_ns, since_ns) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
        Self { scheduler, rest_until_ns, rest_ns, since_ns, proofs: AtomicU32::new(0) }
    }

    /// Lets others run until it is over, as long as that is worth it. Tells whether it is over; if not, it is time to sleep.
    pub(crate) fn until(&self, mut is_over: impl FnMut() -> bool) -> bool {
        if is_over() {
            return true;
        }
        let began = self.scheduler.now_ns();
        let Some(turn) = self.turn(began) else { return false };
        let (mut before, mut vain) = (began, 0);
        for _ in 0..YIELDS_MAX {
            self.scheduler.yield_now();
            let now = self.scheduler.now_ns();
            let took = now.saturating_sub(before);
            if took > nanos(LONG) {
                self.rest(turn, now);
                return is_over();
            }
            vain = if took < nanos(VAIN) { vain + 1 } else { 0 };
            let is_over = is_over();
            if is_over || vain == VAIN_MAX {
                self.went_well(turn, now);
                return is_over;
            }
            if now.saturating_sub(began) > nanos(WAIT_MAX) {
                self.pause(turn, now);
                return false;
            }
            before = now;
        }
        false
    }

    /// Whether the caller may let others run: everybody may, or it is the one to try it.
    fn turn(&self, now: u64) -> Option<Turn> {
        let until = self.rest_until_ns.load(Ordering::Relaxed);
        if until == 0 {
            return Some(Turn::Any);
        }
        // Nobody else tries meanwhile; and not for ever, whatever becomes of this one.
        let next = now.saturating_add(2 * nanos(WAIT_MAX));
        let is_first =
            || self.rest_until_ns.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        (now >= until && is_first()).then_some(Turn::Probe(next))
    }

    /// Says when one may try again. Tells whether this was the first to say so.
    fn go_on_at(&self, turn: Turn, at: u64) -> bool {
        let until = match turn {
            Turn::Any => 0,
            Turn::Probe(next) => next,
        };
        self.rest_until_ns.compare_exchange(until, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// After somebody else's time slice.
    fn rest(&self, turn: Turn, now: u64) {
        let (before, since) = (self.rest_ns.load(Ordering::Relaxed), self.since_ns.load(Ordering::Relaxed));
        let has_lasted = turn == Turn::Any && now.saturating_sub(since) >= before.saturating_mul(RESTS);
        let rest = if has_lasted { nanos(REST) } else { (2 * before).clamp(nanos(REST), nanos(REST_MAX)) };
        if self.go_on_at(turn, now.saturating_add(rest)) {
            self.rest_ns.store(rest, Ordering::Relaxed);
            self.proofs.store(0, Ordering::Relaxed);
        }
    }

    /// After a wait that came to nothing. That says nothing about others: one that goes well is proof enough.
    fn pause(&self, turn: Turn, now: u64) {
        if self.go_on_at(turn, now.saturating_add(nanos(PAUSE))) && turn == Turn::Any {
            self.proofs.store(PROOFS - 1, Ordering::Relaxed);
        }
    }

    /// After a wait in which nobody had another's time slice. A turn that nobody wanted shows that best: a busy program always does.
    fn went_well(&self, turn: Turn, now: u64) {
        if turn == Turn::Any {
            return;
        }
        let proofs = self.proofs.fetch_add(1, Ordering::Relaxed) + 1;
        if proofs < PROOFS {
            self.go_on_at(turn, now);
        } else if self.go_on_at(turn, 0) {
            self.since_ns.store(now, Ordering::Relaxed);
            self.proofs.store(0, Ordering::Relaxed);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The system's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct System;

#[expect(
    clippy::disallowed_methods,
    reason = "what is timed is the system's scheduler, and nothing but speed depends on it"
)]
impl Scheduler for System {
    fn now_ns(&self) -> u64 {
        static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
        // Counted from 1: 0 is no time.
        nanos(START.elapsed()).saturating_add(1)
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A scheduler whose turns take as long as they are said to, the last of them again and again.
    #[derive(Default)]
    struct Script {
        now_ns: Cell<u64>,
        turns_ns: RefCell<Vec<u64>>,
        yields: Cell<u32>,
    }

    impl Scheduler for Script {
        fn now_ns(&self) -> u64 {
            self.now_ns.get()
        }

        fn yield_now(&self) {
            let mut turns = self.turns_ns.borrow_mut();
            let turn = if turns.len() > 1 { turns.remove(0) } else { turns[0] };
            self.yields.set(self.yields.get() + 1);
            self.now_ns.set(self.now_ns.get() + turn);
        }
    }

    fn unproved() -> Patience<Script> {
        Patience::with(Script { now_ns: Cell::new(1), ..Script::default() })
    }

    /// One by which everybody may let others run.
    fn patience() -> Patience<Script> {
        let patience = unproved();
        prove(&patience);
        patience
    }

    /// A wait that is over when the turn has been given away so often. Tells whether it was over, and how often that was.
    fn wait(patience: &Patience<Script>, turns_ns: &[u64], over_after: u32) -> (bool, u32) {
        let script = &patience.scheduler;
        script.turns_ns.replace(turns_ns.to_vec());
        let before = script.yields.get();
        let over = patience.until(|| script.yields.get() - before >= over_after);
        (over, script.yields.get() - before)
    }

    const NEVER: u32 = u32::MAX;

    #[test]
    fn turns_are_given_away_until_it_is_over() {
        let patience = patience();
        assert_eq!(wait(&patience, &[5_000], 0), (true, 0), "it was over before");
        assert_eq!(wait(&patience, &[5_000], 20), (true, 20));
        assert_eq!(wait(&patience, &[300, 300, 300, 5_000], 20), (true, 20));
    }

    #[test]
    fn whoever_gives_turns_away_to_nobody_sleeps_soon() {
        let patience = patience();
        assert_eq!(wait(&patience, &[300], NEVER), (false, VAIN_MAX));
        assert_eq!(wait(&patience, &[5_000, 300], NEVER), (false, VAIN_MAX + 1));
        assert_eq!(wait(&patience, &[5_000], 3), (true, 3), "and the next one tries again");
    }

    #[test]
    fn wait_that_takes_too_long_ends_and_the_next_ones_sleep_at_once() {
        let patience = patience();
        let yields = u32::try_from(nanos(WAIT_MAX) / 50_000).unwrap() + 1;
        assert_eq!(wait(&patience, &[50_000], NEVER), (false, yields));
        assert_eq!(wait(&patience, &[50_000], 3), (false, 0));
        pass(&patience, PAUSE);
        assert_eq!(wait(&patience, &[50_000], NEVER), (false, yields), "one tries it");
        pass(&patience, PAUSE);
        assert_eq!(wait(&patience, &[50_000], 3), (true, 3));
        assert_eq!(patience.turn(1), Some(Turn::Any), "one that went well is enough");
        // A clock that stands still ends it too.
        assert_eq!(wait(&self::patience(), &[0], NEVER), (false, VAIN_MAX));
    }

    const SLICE_NS: u64 = 3_000_000;

    fn pass(patience: &Patience<Script>, time: Duration) {
        let now = &patience.scheduler.now_ns;
        now.set(now.get() + nanos(time));
    }

    /// Waits that go well, as many as it takes until everybody may let others run.
    fn prove(patience: &Patience<Script>) {
        for _ in 0..PROOFS {
            assert!(patience.rest_until_ns.load(Ordering::Relaxed) > 0, "not proved yet");
            assert_eq!(wait(patience, &[5_000], 1), (true, 1));
        }
        assert_eq!(patience.rest_until_ns.load(Ordering::Relaxed), 0);
    }

    /// How long everybody sleeps after somebody else's time slice.
    fn rest_after_slice(patience: &Patience<Script>) -> Duration {
        assert_eq!(wait(patience, &[5_000, SLICE_NS], NEVER), (false, 2));
        let rest = patience.rest_until_ns.load(Ordering::Relaxed) - patience.scheduler.now_ns.get();
        for nanos_before in [rest, 1] {
            patience.scheduler.now_ns.set(patience.rest_until_ns.load(Ordering::Relaxed) - nanos_before);
            assert_eq!(wait(patience, &[5_000], 1), (false, 0), "it sleeps at once");
        }
        pass(patience, Duration::from_nanos(1));
        Duration::from_nanos(rest)
    }

    #[test]
    fn after_somebody_elses_time_slice_everybody_sleeps_for_a_second() {
        let patience = patience();
        assert_eq!(rest_after_slice(&patience), REST);
        prove(&patience);
        // What came with somebody else's time slice is heard all the same.
        assert_eq!(wait(&patience, &[SLICE_NS], 1), (true, 1));
        assert_eq!(wait(&patience, &[5_000], 1), (false, 0));
    }

    #[test]
    fn at_first_one_at_a_time_tries() {
        let patience = unproved();
        assert!(matches!(patience.turn(1), Some(Turn::Probe(_))));
        assert_eq!(patience.turn(1), None);
        assert_eq!(rest_after_slice(&unproved()), REST);
        prove(&unproved());
    }

    #[test]
    fn rests_grow_while_they_do_not_help_and_are_short_again_after_one_that_did() {
        let patience = patience();
        let mut rests = Vec::new();
        for _ in 0..7 {
            rests.push(rest_after_slice(&patience).as_secs());
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 32], "nothing was proved");
        prove(&patience);
        assert_eq!(rest_after_slice(&patience), REST_MAX, "it did not last");
        prove(&patience);
        pass(&patience, REST_MAX * u32::try_from(RESTS).unwrap());
        assert_eq!(rest_after_slice(&patience), REST);
    }

    #[test]
    fn many_who_lost_their_turn_at_once_rest_once() {
        let patience = patience();
        let turns = [0; 5].map(|_| patience.turn(1).unwrap());
        turns.into_iter().for_each(|turn| patience.rest(turn, SLICE_NS));
        assert_eq!(patience.rest_ns.load(Ordering::Relaxed), nanos(REST));
    }

    #[test]
    fn one_alone_tries_again_after_a_rest() {
        let patience = patience();
        rest_after_slice(&patience);
        // While one tries it, others come and sleep.
        let script = &patience.scheduler;
        script.turns_ns.replace(vec![5_000]);
        let (mut looks, mut others) = (0, Vec::new());
        let over = patience.until(|| {
            looks += 1;
            // The first look comes before the first turn.
            others.extend((looks > 1).then(|| patience.turn(script.now_ns.get())));
            looks > 3
        });
        assert_eq!((over, others), (true, vec![None; 3]));
        assert!(matches!(patience.turn(script.now_ns.get()), Some(Turn::Probe(_))), "then the next one may");
    }

    #[test]
    fn turns_that_nobody_wanted_prove_that_the_cores_are_free() {
        let patience = unproved();
        for _ in 0..PROOFS {
            assert_eq!(wait(&patience, &[5_000, 300], NEVER), (false, VAIN_MAX + 1));
        }
        assert_eq!(patience.turn(1), Some(Turn::Any));
    }
}
