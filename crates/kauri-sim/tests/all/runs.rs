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
            Err(what) => {
                let shrunk = RunTrial::new(seed).shrunk();
                panic!("{what}\nagain: cargo run --release -p kauri-sim -- runs --seed {seed}\nin short: {shrunk:?}");
            }
        }
    }
    assert_eq!(faults.len(), 11, "each kind of fault happened: {faults:?}");
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
fn world_of_runs_that_fails_is_made_as_small_as_one_that_still_does() {
    let bug = Bug::OF_RUNS[0];
    let failing = (0..400).map(|seed| RunTrial::new(seed).with(bug)).find(|trial| trial.run().is_err());
    let failing = failing.expect("a world in which it is found");
    let small = failing.clone().shrunk();
    assert!(small.run().is_err(), "{small:?}");
    assert!(small.jobs <= failing.jobs && small.seed == failing.seed);
    let kinds = |trial: &RunTrial| {
        let faults = trial.faults;
        let chances = [faults.crash_before, faults.crash_after, faults.crash_between, faults.preemption, faults.pause];
        let others = [faults.conflict, faults.jump_forward, faults.jump_back, faults.full];
        chances.iter().chain(&others).filter(|chance| **chance > 0).count() + usize::from(trial.disk_fails)
    };
    assert!(kinds(&small) < kinds(&failing), "{small:?}");
}

#[test]
fn every_bug_planted_in_runs_is_found_in_four_hundred_worlds() {
    for bug in Bug::OF_RUNS {
        let found = (0..400).find(|seed| RunTrial::new(*seed).with(bug).run().is_err());
        assert!(found.is_some(), "{bug:?} was not found");
    }
}
