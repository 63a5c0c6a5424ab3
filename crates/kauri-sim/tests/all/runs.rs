//! Jobs and runs under every fault: worlds of them, and bugs planted to see that they would be found.

use std::collections::BTreeMap;

use kauri_runtime::planted::Bug;
use kauri_runtime::testing::FaultKind;
use kauri_sim::RunTrial;

/// Runs worlds; each kind of fault must have happened.
fn check(seeds: std::ops::Range<u64>) {
    let mut faults: BTreeMap<FaultKind, u64> = BTreeMap::new();
    let mut lives = 0;
    for seed in seeds {
        match RunTrial::new(seed).run() {
            Ok(story) => {
                story.faults.into_iter().for_each(|(kind, count)| *faults.entry(kind).or_default() += count);
                lives += story.lives;
            }
            Err(what) => panic!("{what}\nagain: cargo run --release -p kauri-sim -- runs --seed {seed}"),
        }
    }
    assert_eq!(faults.len(), 10, "each kind of fault happened: {faults:?}");
    assert!(lives > 500, "{lives} lives");
}

#[test]
fn every_run_has_one_outcome_and_nothing_is_lost_or_doubled_whatever_happens_0() {
    check(0..1000);
}

#[test]
fn every_run_has_one_outcome_and_nothing_is_lost_or_doubled_whatever_happens_1() {
    check(1000..2000);
}

#[test]
fn same_seed_is_the_same_world_of_runs() {
    for seed in 0..5 {
        let told = |story: kauri_sim::Story| (story.faults, story.lives, story.handled, format!("{:?}", story.disk));
        let (first, second) = (RunTrial::new(seed).run(), RunTrial::new(seed).run());
        assert_eq!(first.map(told), second.map(told));
    }
}

#[test]
fn every_bug_planted_in_runs_is_found_in_four_hundred_worlds() {
    for bug in Bug::OF_RUNS {
        let found = (0..400).find(|seed| RunTrial::new(*seed).with(bug).run().is_err());
        assert!(found.is_some(), "{bug:?} was not found");
    }
}
