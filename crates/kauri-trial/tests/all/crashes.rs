//! The ledger on a simulated disk, crashed at every operation: after each crash it holds exactly what was begun and ended up to
//! some moment, all that was acknowledged among it, and I1 to I7 hold.

use kauri_sim::{Explorer, Failure, Fault, FaultKind};
use kauri_trial::{Forgets, LedgerTrial};

fn check(seed: u64, points: u64) {
    let report = Explorer::new(seed).points(points).lives(3).explore(&LedgerTrial::new(seed, 4 + seed % 4));
    if let Some(violation) = report.violation {
        panic!("seed {seed}: {violation:?}");
    }
    assert!(report.points >= points, "only {} points", report.points);
}

/// Tests of their own, so that they run side by side: a hundred thousand crashes in all.
macro_rules! crashes {
    ($($name:ident: $first:expr;)*) => {$(
        #[test]
        fn $name() {
            ($first..$first + 5).for_each(|seed| check(seed, 5_000));
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
            let struck = |kind: &FaultKind| *kind >= FaultKind::SyncFailed && report.hits.of(*kind) > 0;
            if !FaultKind::ALL.iter().any(struck) {
                assert!(nth > 50, "a life makes more calls than {nth}");
                break;
            }
        }
    }
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
