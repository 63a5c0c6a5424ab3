//! Bugs planted on purpose, one at a time, to see whether the tests find them. Only with the feature `planted`, which nothing but tests
//! turns on.

use std::borrow::Cow;

use crate::error::Result;
use crate::run::{ActionTrouble, BegunAction};
use crate::schema::{self, DEDUPE, EVENTS, INBOX, LEASES, RUN_INDEX, RUNS, SIGNALS, STEPS, TIMERS};
use crate::substrate::{Bytes, Change, Substrate, Verdict};

/// A bug that somebody could have written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// State is committed first, and the message acknowledged in a second commit.
    TwoCommits,
    /// A step's commit does not look whether its lease is still its own.
    NoFence,
    /// Requeueing does not look whether the lease is still its own.
    RequeueWithoutToken,
    /// Ranges that were read are not validated.
    NoRangeValidation,
    /// Rows that were read are not validated.
    NoReadValidation,
    /// Timers fire 40 ms early.
    EarlyTimer,
    /// A timer that has fired stays.
    TimerKept,
    /// What a step emits is dropped.
    LostEmits,
    /// Handled ids are not remembered.
    NothingRemembered,
    /// Failures are not counted.
    NothingCounted,
    /// Leases of an earlier incarnation count as live.
    OldLeaseHonoured,
    /// A requeued message is not removed from where it was.
    RequeueCopies,
    /// A lease is renewed without looking whether it is still there.
    RenewWithoutToken,
    /// What was committed early is told, and its messages emitted are handled, before it is durable.
    ToldTooEarly,
    /// What is committed for a run does not look whether the run is still its driver's.
    RunUnfenced,
    /// What a step did is committed, and not that it was done.
    StepUnrecorded,
    /// Derived work is made, and nobody is told to do it.
    ChildUnsent,
    /// Derived work is made without looking whether it was made meanwhile.
    ChildDoubled,
    /// Events are committed before the row that counts them.
    EventsApart,
    /// A run parks without looking whether it was told something meanwhile.
    SignalUnseen,
    /// Whoever has passed a gate never leaves it.
    GateKept,
    /// A run is sealed, and the one that follows it is not made.
    FollowerLost,
    /// An action that was begun and has no end is done again.
    DoubtIgnored,
}

impl Bug {
    /// Those of jobs and runs.
    pub const OF_RUNS: [Self; 9] = [
        Self::RunUnfenced,
        Self::StepUnrecorded,
        Self::ChildUnsent,
        Self::ChildDoubled,
        Self::EventsApart,
        Self::SignalUnseen,
        Self::GateKept,
        Self::FollowerLost,
        Self::DoubtIgnored,
    ];

    /// Those of messages.
    pub const ALL: [Self; 14] = [
        Self::TwoCommits,
        Self::NoFence,
        Self::RequeueWithoutToken,
        Self::NoRangeValidation,
        Self::NoReadValidation,
        Self::EarlyTimer,
        Self::TimerKept,
        Self::LostEmits,
        Self::NothingRemembered,
        Self::NothingCounted,
        Self::OldLeaseHonoured,
        Self::RequeueCopies,
        Self::RenewWithoutToken,
        Self::ToldTooEarly,
    ];
}

/// An action that is done without being written down.
pub(crate) struct Unwritten(pub(crate) String);

impl BegunAction for Unwritten {
    fn id(&self) -> &str {
        &self.0
    }

    fn complete(self: Box<Self>, _: &[u8]) -> Result<(), ActionTrouble> {
        Ok(())
    }

    fn fail(self: Box<Self>, _: &str) -> Result<(), ActionTrouble> {
        Ok(())
    }
}

/// Commits a change as somebody with this bug would.
pub(crate) fn commit(bug: Bug, substrate: &dyn Substrate, change: &Change) -> Result<Verdict> {
    let mut change = change.clone();
    // A step removes messages from the inbox; a requeue puts them back.
    let is_step = change.writes.get(&INBOX).is_some_and(|rows| rows.values().any(Option::is_none));
    let is_requeue =
        is_step && change.writes.get(&DEDUPE).is_some_and(|rows| rows.keys().any(|key| key.starts_with(b"retry:")));
    match bug {
        Bug::TwoCommits if is_step => return commit_twice(substrate, &change),
        Bug::NoFence if is_step => unfence(&mut change),
        Bug::RequeueWithoutToken if is_requeue => unfence(&mut change),
        Bug::NoRangeValidation => change.ranges.clear(),
        Bug::NoReadValidation => {
            change.reads.retain(|table, _| *table == Cow::Borrowed("app_state") || schema::is_reserved(table));
        }
        Bug::TimerKept => drop(change.writes.remove(&TIMERS)),
        Bug::LostEmits if is_step => change.appends.clear(),
        Bug::NothingRemembered => keep(&mut change, |key| !key.starts_with(b"seen:")),
        Bug::NothingCounted => keep(&mut change, |key| !key.starts_with(b"retry:")),
        Bug::RequeueCopies if is_requeue => drop(change.writes.remove(&INBOX)),
        Bug::EventsApart if change.writes.contains_key(&EVENTS) => return commit_events_first(substrate, &change),
        _ => plant_in_runs(bug, &mut change),
    }
    substrate.commit(&change.into())
}

/// What bugs of jobs and runs do to a change.
fn plant_in_runs(bug: Bug, change: &mut Change) {
    let makes_child = index_writes(change).any(|(key, value)| key.starts_with(b"d") && value.is_some());
    match bug {
        Bug::RunUnfenced if change.writes.contains_key(&RUNS) => {
            unfence(change);
            change.reads.remove(&RUNS);
        }
        Bug::StepUnrecorded => drop(change.writes.remove(&STEPS)),
        Bug::ChildUnsent if makes_child => change.appends.clear(),
        Bug::ChildDoubled if makes_child => {
            change.reads.remove(&RUN_INDEX);
            change.ranges.retain(|range| range.table != RUN_INDEX);
        }
        Bug::SignalUnseen => change.ranges.retain(|range| range.table != SIGNALS),
        Bug::GateKept => {
            let rows = change.writes.get_mut(&RUN_INDEX);
            rows.into_iter().for_each(|rows| rows.retain(|key, value| !key.starts_with(b"a") || value.is_some()));
        }
        Bug::FollowerLost if index_writes(change).any(|(key, value)| key.starts_with(b"e") && value.is_some()) => {
            change.appends.clear();
        }
        _ => {}
    }
}

fn index_writes(change: &Change) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
    change.writes.get(&RUN_INDEX).into_iter().flatten()
}

/// First the events, then the rest.
fn commit_events_first(substrate: &dyn Substrate, change: &Change) -> Result<Verdict> {
    let (mut first, mut second) = (change.clone(), change.clone());
    first.writes.retain(|table, _| *table == EVENTS);
    first.appends.clear();
    second.writes.remove(&EVENTS);
    second.base = None;
    match substrate.commit(&first.into())? {
        Verdict::Committed(_) => substrate.commit(&second.into()),
        conflict @ Verdict::Conflict(_) => Ok(conflict),
    }
}

/// Forgets that the messages and their lease must still be there.
fn unfence(change: &mut Change) {
    change.reads.remove(&LEASES);
    change.reads.remove(&INBOX);
    change.ranges.retain(|range| range.table != INBOX);
}

fn keep(change: &mut Change, keeps: impl Fn(&[u8]) -> bool) {
    if let Some(rows) = change.writes.get_mut(&DEDUPE) {
        rows.retain(|key, _| keeps(key));
    }
}

/// First what the handler wrote and emitted, then the acknowledgement.
fn commit_twice(substrate: &dyn Substrate, change: &Change) -> Result<Verdict> {
    let mut second = change.clone();
    let mut first = change.clone();
    first.writes.retain(|table, _| !schema::is_reserved(table));
    second.writes.retain(|table, _| schema::is_reserved(table));
    second.appends.clear();
    second.ranges.retain(|range| range.table == INBOX);
    second.reads.retain(|table, _| *table == LEASES || *table == INBOX);
    match substrate.commit(&first.into())? {
        Verdict::Committed(committed) => match substrate.commit(&second.into())? {
            Verdict::Committed(_) => Ok(Verdict::Committed(committed)),
            conflict @ Verdict::Conflict(_) => Ok(conflict),
        },
        conflict @ Verdict::Conflict(_) => Ok(conflict),
    }
}
