//! The ledger on a simulated disk, crashed at every operation: after each crash it holds exactly what was begun and ended up to
//! some moment, all that was acknowledged among it, and I1 to I7 hold.

use std::collections::BTreeSet;

use kauri_sim::{Explorer, Failure, Fault, FaultKind, Forgets};
use kauri_trial::LedgerTrial;

/// Crashes a ledger so many times. Answers what those crashes did to the disk.
fn check(seed: u64, points: u64) -> impl Iterator<Item = FaultKind> {
    let report = Explorer::new(seed).points(points).lives(3).explore(&LedgerTrial::new(seed, 4 + seed % 4));
    if let Some(violation) = report.violation {
        panic!("seed {seed}: {violation:?}");
    }
    assert!(report.points >= points, "only {} points", report.points);
    FaultKind::ALL.iter().copied().filter(move |kind| report.hits.of(*kind) > 0)
}

/// Whatever a crash or a failing call may do to a disk.
fn kinds(are: impl Fn(FaultKind) -> bool) -> BTreeSet<FaultKind> {
    FaultKind::ALL.iter().copied().filter(|kind| are(*kind)).collect()
}

/// Tests of their own, so that they run side by side: a hundred thousand crashes in all.
macro_rules! crashes {
    ($($name:ident: $first:expr;)*) => {$(
        #[test]
        fn $name() {
            let struck: BTreeSet<FaultKind> = ($first..$first + 5).flat_map(|seed| check(seed, 5_000)).collect();
            let missed = &kinds(|kind| kind < FaultKind::SyncFailed) - &struck;
            assert!(missed.is_empty(), "no crash did this: {missed:?}");
        }
    )*};
}

crashes! {
    ledger_survives_crashes_0: 0;
    ledger_survives_crashes_1: 100;
    ledger_survives_crashes_2: 200;
    ledger_survives_crashes_3: 300;
}

#[test]
fn every_failing_call_is_survived() {
    let mut struck = BTreeSet::new();
    for (failure, lasts) in
        [(Failure::Io, false), (Failure::NoSpace, false), (Failure::Short, false), (Failure::NoSpace, true)]
    {
        for nth in 1.. {
            let fault = Fault::nth_of_any(nth, failure);
            let fault = if lasts { fault.lasting() } else { fault };
            let report = Explorer::new(nth).points(20).fault(fault).explore(&LedgerTrial::new(nth % 7, 4));
            if let Some(violation) = report.violation {
                panic!("call {nth} failed with {failure:?}, {lasts}: {violation:?}");
            }
            let failed = kinds(|kind| kind >= FaultKind::SyncFailed && report.hits.of(kind) > 0);
            if failed.is_empty() {
                assert!(nth > 50, "a life makes more calls than {nth}");
                break;
            }
            struck.extend(failed);
        }
    }
    let missed = &kinds(|kind| (FaultKind::SyncFailed..=FaultKind::CallFailed).contains(&kind)) - &struck;
    assert!(missed.is_empty(), "no call failed so: {missed:?}");
}

/// A ledger without one of its syncs does not survive: the search would see it.
#[test]
fn every_forgotten_sync_is_found() {
    let forgotten = [
        Forgets::File("actions_wal"),
        Forgets::File(".tmp"),
        Forgets::File("rows"),
        Forgets::File("2026"),
        Forgets::Names,
    ];
    for forgets in forgotten {
        let found = (0..20).find_map(|seed| {
            let trial = LedgerTrial::new(seed, 6).forgetting(forgets);
            Explorer::new(seed).points(2_000).explore(&trial).violation
        });
        assert!(found.is_some(), "{forgets:?} is not found");
    }
}
