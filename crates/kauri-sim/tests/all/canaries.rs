//! Planted bugs are found within five thousand points, the right engine survives, and what was found can be replayed.

use crate::toy::{Bug, NAME, Toy};
use kauri_sim::{Call, Corruption, Engine, Explorer, Failure, Fault, FaultKind, Hits, Progress, Rng, SimDisk};

const POINTS_MAX: u64 = 5_000;

/// Finds the bug, and finds it again by the name of its crash.
#[expect(clippy::print_stdout, reason = "how soon a bug is found is worth knowing")]
fn found(bug: Bug, explorer: &Explorer) {
    let toy = Toy::new(bug);
    let violation = explorer.explore(&toy).violation.unwrap_or_else(|| panic!("{bug:?} was not found"));
    let path = violation.path.to_string().parse().expect("a path is read as it is written");
    assert_eq!(explorer.replay(&toy, &path), Err(violation.what.clone()), "{violation}");
    println!("{bug:?}: {violation}");
}

#[test]
fn the_right_engine_survives_every_crash() {
    for seed in 1..4 {
        let report = Explorer::new(seed).points(20_000).tear_bytes(&[512, 64, 16, 1]).explore(&Toy::new(Bug::None));
        assert!(report.violation.is_none(), "{}", report.violation.expect("there is one"));
        assert!(report.points == 20_000 && report.lives > 50, "{report:?}");
        let kinds = [
            FaultKind::LostWrite,
            FaultKind::Reordered,
            FaultKind::TornSectors,
            FaultKind::TornBytes,
            FaultKind::LostLength,
            FaultKind::LostName,
            FaultKind::Garbage,
        ];
        assert_eq!(report.hits.require(&kinds), Ok(()), "{report:?}");
    }
}

#[test]
fn the_right_engine_survives_every_failing_call() {
    let mut hits = Hits::default();
    for failure in [Failure::Io, Failure::NoSpace, Failure::Short] {
        // Call n fails, for n = 1, 2, ... until a life meets no failure.
        for nth in 1.. {
            let fault = Fault::nth_of_any(nth, failure);
            let report = Explorer::new(nth).points(300).fault(fault).explore(&Toy::new(Bug::None));
            assert!(report.violation.is_none(), "{}", report.violation.expect("there is one"));
            let struck = FaultKind::ALL.iter().filter(|kind| **kind >= FaultKind::SyncFailed);
            if struck.clone().all(|kind| report.hits.of(*kind) == 0) {
                assert!(nth > 20, "a life makes more calls than {nth}");
                break;
            }
            struck.filter(|kind| report.hits.of(**kind) > 0).for_each(|kind| hits.count(*kind));
        }
    }
    let kinds = [
        FaultKind::SyncFailed,
        FaultKind::WriteFailed,
        FaultKind::NoSpace,
        FaultKind::ShortWrite,
        FaultKind::ReadFailed,
        FaultKind::CallFailed,
    ];
    assert_eq!(hits.require(&kinds), Ok(()));
}

#[test]
fn bugs_in_the_order_of_writes_are_found() {
    let bugs = [
        Bug::MetaBeforeData,
        Bug::NoDataSync,
        Bug::AckBeforeSync,
        Bug::SameSlot,
        Bug::NoMetaChecksum,
        Bug::LengthAssumed,
        Bug::NoDirSync,
        Bug::ReuseTooEarly,
    ];
    for bug in bugs {
        for seed in 1..6 {
            found(bug, &Explorer::new(seed).points(POINTS_MAX));
        }
    }
}

#[test]
fn a_sync_that_is_retried_after_it_failed_is_found() {
    let found_with = |nth: u64| {
        let explorer = Explorer::new(nth).points(500).fault(Fault::nth(Call::Sync, nth, Failure::Io));
        explorer.explore(&Toy::new(Bug::SyncRetried)).violation
    };
    // Which sync fails matters: a loss that hits nothing is no loss.
    let violations: Vec<_> = (1..16).filter_map(found_with).collect();
    assert!(violations.len() > 2, "{violations:?}");
}

#[test]
fn a_recovery_that_cannot_be_interrupted_is_found_only_by_interrupting_it() {
    for seed in 1..6 {
        found(Bug::RepairBoth, &Explorer::new(seed).points(POINTS_MAX));
        let once = Explorer::new(seed).points(POINTS_MAX).lives(1).explore(&Toy::new(Bug::RepairBoth));
        assert!(once.violation.is_none(), "{once:?}");
    }
}

/// How many of these damages an engine shows as if nothing had happened.
fn silent_damage(bug: Bug) -> (u64, Hits) {
    let disk = SimDisk::new();
    let toy = Toy::new(bug);
    let report = Explorer::new(1).points(2_000).explore(&toy);
    assert!(report.violation.is_none(), "crashes do not show it: {report:?}");
    let held = live(&toy, &disk);
    let (trace, image, mut rng, mut hits) = (disk.trace(), disk.image(), Rng::new(1), Hits::default());
    let mut silent = 0;
    for _ in 0..2_000 {
        let Some(damage) = Corruption::draw(&trace, &image, NAME, &mut rng) else { continue };
        hits.count(damage.kind());
        let damaged = SimDisk::from_image(damage.apply(&image, NAME).expect("drawn for this image"));
        let seen = Progress { acked: held, started: held };
        // The toy compares with what it should be. A checksum must have spoken before that does.
        let answer = toy.check(&damaged, seen);
        silent += u64::from(answer.is_err_and(|what| what.contains("is not that of commit")));
    }
    (silent, hits)
}

fn live(toy: &Toy, disk: &SimDisk) -> u64 {
    let acks = kauri_sim::Acks::of(disk);
    toy.live(disk, &acks).expect("no fault");
    acks.progress().acked
}

#[test]
fn a_missing_page_checksum_is_found_by_corruption_and_not_by_crashes() {
    let (without, hits) = silent_damage(Bug::NoPageChecksum);
    let (with, _) = silent_damage(Bug::None);
    let kinds = [FaultKind::BitFlip, FaultKind::Zeroed, FaultKind::Stale, FaultKind::Misdirected, FaultKind::Truncated];
    assert_eq!(hits.require(&kinds), Ok(()));
    assert!(without > with, "{without} and {with}");
}

#[test]
fn the_same_seed_finds_the_same_point() {
    let find = |seed| Explorer::new(seed).explore(&Toy::new(Bug::NoMetaChecksum)).violation.expect("found").path;
    assert_eq!(find(9), find(9));
}
