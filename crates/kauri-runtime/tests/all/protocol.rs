//! The protocol of lease, fence and acknowledgement, as a model small enough to look at every state it can be in.
//!
//! Four workers share one message. Each may claim it when it has no lease or one that has run out (which may happen at any moment, for the
//! clock is nobody's friend), run its handler, and commit; it may die at any moment and come back with nothing. A step of the model is a
//! commit of the code: see `claim.rs` and `step.rs`.

use std::collections::BTreeSet;

const WORKERS: usize = 4;
/// Claims are counted up to here, to have an end of states.
const DELIVERIES_MAX: u8 = 5;
const BUDGET: u8 = 2;

/// Which guard a commit has: the real one, or one of the mistakes that must be found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// Lease unchanged and message there, in the commit that applies and acknowledges.
    Whole,
    /// Nothing is looked at.
    None,
    /// Applied in one commit and acknowledged in another.
    TwoCommits,
    /// Requeueing looks at nothing.
    NoneWhenRequeued,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Doing {
    Nothing,
    /// Has run its handler under a lease of this delivery; what is left is the commit. It failed or not.
    Ran {
        delivery: u8,
        failed: bool,
    },
    /// Has applied and not yet acknowledged (only with two commits).
    Applied {
        delivery: u8,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct State {
    /// Copies of the message that are in the inbox: more than one is a fault.
    waiting: u8,
    /// Who has it, by which delivery.
    lease: Option<(u8, u8)>,
    deliveries: u8,
    failures: u8,
    applied: u8,
    dead: u8,
    workers: [Doing; WORKERS],
}

impl State {
    const START: Self = Self {
        waiting: 1,
        lease: None,
        deliveries: 0,
        failures: 0,
        applied: 0,
        dead: 0,
        workers: [Doing::Nothing; WORKERS],
    };

    /// What must hold always.
    fn fault(&self) -> Option<&'static str> {
        match self {
            Self { applied: 2.., .. } => Some("applied twice"),
            Self { dead: 2.., .. } => Some("buried twice"),
            Self { waiting: 2.., .. } => Some("waiting twice"),
            Self { applied: 1, dead: 1, .. } => Some("applied and buried"),
            Self { waiting: 0, applied: 0, dead: 0, .. } => Some("lost"),
            _ => None,
        }
    }

    /// All states that one step leads to.
    fn next(&self, guard: Guard) -> Vec<Self> {
        let mut all = Vec::new();
        for worker in 0..WORKERS {
            self.claims(worker, &mut all);
            match self.workers[worker] {
                Doing::Nothing => continue,
                Doing::Ran { delivery, failed: false } => all.extend(self.succeeds(worker, delivery, guard)),
                Doing::Ran { delivery, failed: true } => all.extend(self.fails(worker, delivery, guard)),
                Doing::Applied { delivery } => all.extend(self.acknowledges(worker, delivery)),
            }
            // It dies, and what it knew with it; its lease stays until it runs out.
            all.push(self.with(worker, Doing::Nothing));
        }
        all
    }

    fn with(&self, worker: usize, doing: Doing) -> Self {
        let mut next = *self;
        next.workers[worker] = doing;
        next
    }

    /// Without a lease, or with one that has run out just now: whether it has, the model does not ask.
    fn claims(&self, worker: usize, all: &mut Vec<Self>) {
        if self.waiting == 0 || self.workers[worker] != Doing::Nothing || self.deliveries >= DELIVERIES_MAX {
            return;
        }
        let delivery = self.deliveries + 1;
        for failed in [false, true] {
            let mut next = self.with(worker, Doing::Ran { delivery, failed });
            next.deliveries = delivery;
            next.lease = Some((u8::try_from(worker).unwrap(), delivery));
            all.push(next);
        }
    }

    fn holds(&self, worker: usize, delivery: u8) -> bool {
        self.waiting > 0 && self.lease == Some((u8::try_from(worker).unwrap(), delivery))
    }

    fn succeeds(&self, worker: usize, delivery: u8, guard: Guard) -> Option<Self> {
        let mut next = self.with(worker, Doing::Nothing);
        if guard != Guard::None && !self.holds(worker, delivery) {
            // Refused: somebody else has it.
            return Some(next);
        }
        next.applied += 1;
        if guard == Guard::TwoCommits {
            next.workers[worker] = Doing::Applied { delivery };
            return Some(next);
        }
        next.waiting = next.waiting.saturating_sub(1);
        next.lease = None;
        Some(next)
    }

    fn acknowledges(&self, worker: usize, delivery: u8) -> Option<Self> {
        let mut next = self.with(worker, Doing::Nothing);
        if self.holds(worker, delivery) {
            next.waiting -= 1;
            next.lease = None;
        }
        Some(next)
    }

    /// Back to the tail of the inbox, counted; or buried, when its budget is spent.
    fn fails(&self, worker: usize, delivery: u8, guard: Guard) -> Option<Self> {
        let mut next = self.with(worker, Doing::Nothing);
        let is_guarded = !matches!(guard, Guard::None | Guard::NoneWhenRequeued);
        if is_guarded && !self.holds(worker, delivery) {
            return Some(next);
        }
        next.failures += 1;
        next.waiting = next.waiting.saturating_sub(u8::from(self.holds(worker, delivery)));
        next.lease = None;
        if next.failures >= BUDGET {
            next.dead += 1;
        } else {
            next.waiting += 1;
        }
        Some(next)
    }
}

/// Looks at every state that can be reached. Answers how many there are, or the first fault.
fn explore(guard: Guard) -> Result<usize, &'static str> {
    let mut seen = BTreeSet::from([State::START]);
    let mut queue = vec![State::START];
    while let Some(state) = queue.pop() {
        if let Some(fault) = state.fault() {
            return Err(fault);
        }
        queue.extend(state.next(guard).into_iter().filter(|next| seen.insert(*next)));
    }
    // From each state there is a way to an end: somebody can always claim, run and commit.
    let is_stuck =
        |state: &&State| state.waiting > 0 && state.deliveries < DELIVERIES_MAX && state.next(guard).is_empty();
    match seen.iter().find(is_stuck) {
        Some(_) => Err("stuck"),
        None => Ok(seen.len()),
    }
}

#[test]
fn no_state_of_four_workers_loses_or_doubles_a_message() {
    let states = explore(Guard::Whole).unwrap();
    assert!(states > 10_000, "{states} states");
}

#[test]
fn without_its_guard_the_protocol_is_broken_and_the_search_finds_it() {
    for guard in [Guard::None, Guard::TwoCommits, Guard::NoneWhenRequeued] {
        assert!(explore(guard).is_err());
    }
}
