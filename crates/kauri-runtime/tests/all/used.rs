//! Ids and keys that were used, when what used them is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kauri_runtime::run::{Class, Keep, Retry, RunFault, Runs, Submission, Submitted};
use kauri_runtime::substrate::KeyRange;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Error, Result};
use kauri_tree::Store;
use kauri_wire::{JobId, RunId, Timestamp};

use crate::runs::{CREW, crew, setup_with, well};
use crate::setup::Setup;

/// A class of which nothing is kept.
fn fleeting() -> Class {
    Class { keep: Keep { runs: Some(0), ..Keep::default() }, retry: Retry::never(), ..Class::new(CREW) }
}

fn work() -> Submission {
    Submission::new("work", "")
}

/// Drives everything to its end, and removes it.
fn forget(setup: &Setup) {
    crew(setup, well).drain().unwrap();
    while setup.runtime.runs().sweep(1000).unwrap().rows > 0 {}
    assert_eq!(setup.runtime.runs().list(None, 10).unwrap(), []);
}

fn is_used(submitted: Result<Submitted>, run: RunId) -> bool {
    match submitted {
        Ok(_) => false,
        Err(Error::Run(RunFault::RunExists(found))) => found == run,
        Err(other) => panic!("expected no other error, found {other}"),
    }
}

#[test]
fn id_that_was_chosen_is_never_used_again() {
    let (setup, runs) = setup_with(&fleeting());
    for chosen in [RunId::from_parts(Timestamp(5), [7; 10]), RunId::from_parts(Timestamp(1 << 47), [7; 10])] {
        assert_eq!(runs.submit(&work().run_id(chosen)).unwrap().run, chosen);
        assert!(is_used(runs.submit(&work().run_id(chosen)), chosen), "it is there");
        let twice = [chosen, RunId::from_parts(Timestamp(6), [7; 10])].map(|id| work().run_id(id));
        assert!(runs.submit_all(&[twice[1].clone(), twice[1].clone()]).is_err() && runs.submit_all(&twice).is_err());
        forget(&setup);
        assert!(is_used(runs.submit(&work().run_id(chosen)), chosen), "it is gone");
    }
    // One that lies in the far future is in nobody's way.
    let made = runs.submit(&work()).unwrap().run;
    assert_eq!(made.created(), setup.runtime.now().wall);
    let setup = setup.restarted();
    let chosen = RunId::from_parts(Timestamp(5), [7; 10]);
    assert!(is_used(setup.runtime.runs().submit(&work().run_id(chosen)), chosen));
}

#[test]
fn id_that_was_made_cannot_be_chosen_when_its_run_is_gone_and_others_can() {
    let (setup, runs) = setup_with(&fleeting());
    let made: Vec<RunId> = (0..20).map(|_| runs.submit(&work()).unwrap().run).collect();
    for id in &made {
        assert!(is_used(runs.submit(&work().run_id(*id)), *id), "it is there");
    }
    forget(&setup);
    setup.advance(1000);
    for id in &made {
        assert!(is_used(runs.submit(&work().run_id(*id)), *id), "it is gone");
    }
    // Earlier than those that are gone, but nobody ever had it.
    let chosen = RunId::from_parts(Timestamp(made[0].created().0 - 1), [7; 10]);
    assert!(!is_used(runs.submit(&work().run_id(chosen)), chosen));
}

#[test]
fn ids_are_made_anew_whatever_the_clock_and_the_chance_of_another_start() {
    let (store, clock) = (Store::in_memory().unwrap(), VirtualClock::default());
    let mut made = BTreeSet::new();
    for start in 1..=6_u64 {
        // Each start is counted, and changes the chance with that: so this one is always the same.
        let setup = Setup::on(store.clone(), clock.clone(), |builder| builder.seed(start));
        let runs = setup.runtime.runs();
        runs.define("work", &fleeting()).unwrap();
        for _ in 0..50 {
            assert!(made.insert(runs.submit(&work()).unwrap().run), "start {start}");
        }
        forget(&setup);
        setup.runtime.stop();
        clock.jump(if start % 2 == 0 { 0 } else { -1000 });
    }
    let moments: BTreeSet<_> = made.iter().map(RunId::created).collect();
    assert!(moments.len() <= 2, "the clock went back only once: {moments:?}");
}

#[test]
fn key_with_a_window_is_taken_until_it_is_over_though_its_job_is_gone() {
    let (setup, runs) = setup_with(&fleeting());
    let window = Duration::from_secs(60);
    let keyed = || work().once_within("k", window);
    let first = runs.submit(&keyed()).unwrap();
    forget(&setup);
    assert!(matches!(runs.job(&first.job), Err(Error::Run(RunFault::NoJob(_)))));
    let setup = setup.restarted();
    let runs = setup.runtime.runs();
    setup.advance(59_999);
    let again = runs.submit(&keyed()).unwrap();
    assert_eq!((&again.job, again.run, again.is_new), (&first.job, first.run, false));
    setup.advance(1);
    let second = runs.submit(&keyed()).unwrap();
    assert!(second.is_new && second.job != first.job);
    // That the first window is over frees nothing that the second job has.
    forget(&setup);
    assert_eq!(runs.submit(&keyed()).unwrap().run, second.run);
    setup.advance(60_000);
    forget(&setup);
    let rows = setup.runtime.substrate().snapshot().unwrap();
    let left = rows.count(&"run_index".into(), KeyRange::ALL).unwrap();
    assert_eq!(left, 2, "the class, and which ids were used");
}

/// What was submitted with a key: when it is over, if it has a window, and the job.
type Taken = (Option<Timestamp>, JobId);

/// Keys as they should be: whoever has one, and whether its job is kept.
#[derive(Default)]
struct Model {
    taken: BTreeMap<u64, Taken>,
    kept: BTreeSet<JobId>,
}

impl Model {
    fn holder(&self, key: u64, now: Timestamp) -> Option<&JobId> {
        let (until, job) = self.taken.get(&key)?;
        let is_taken = until.map_or_else(|| self.kept.contains(job), |until| now < until);
        is_taken.then_some(job)
    }

    fn submit(&mut self, runs: &Runs, key: u64, window: Option<Duration>, now: Timestamp) {
        let wanted = match window {
            None => work().once(key.to_string()),
            Some(window) => work().once_within(key.to_string(), window),
        };
        let found = runs.submit(&wanted).unwrap();
        match self.holder(key, now) {
            Some(job) => assert_eq!((&found.job, found.is_new), (job, false), "key {key} is taken"),
            None => {
                assert!(found.is_new, "key {key} is free");
                let until = window.map(|window| Timestamp(now.0 + i64::try_from(window.as_millis()).unwrap()));
                self.taken.insert(key, (until, found.job.clone()));
                self.kept.insert(found.job);
            }
        }
    }
}

#[test]
fn keys_are_taken_as_an_obvious_model_says_whatever_is_removed() {
    for seed in 1..40_u64 {
        let class = Class { keep: Keep { time: Some(Duration::from_millis(50)), ..Keep::default() }, ..fleeting() };
        let (mut setup, mut runs) = setup_with(&class);
        let mut model = Model::default();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..300 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (what, some) = (random >> 33 & 7, random >> 40);
            match what {
                0..=2 => {
                    let window = (some & 1 == 0).then(|| Duration::from_millis(10 + (some >> 4) % 200));
                    let now = setup.runtime.now().wall;
                    model.submit(&runs, (some >> 12) % 5, window, now);
                }
                3 => drop(crew(&setup, well).drain().unwrap()),
                4 => setup.advance(some % 40),
                5 | 6 => {
                    while runs.sweep(1 + usize::try_from(some % 30).unwrap()).unwrap().rows > 0 {}
                    model.kept.retain(|job| runs.job(job).is_ok());
                }
                _ => {
                    setup = setup.restarted();
                    runs = setup.runtime.runs();
                }
            }
        }
        crew(&setup, well).drain().unwrap();
        setup.advance(1000);
        forget(&setup);
        let rows = setup.runtime.substrate().snapshot().unwrap();
        assert!(rows.count(&"run_index".into(), KeyRange::ALL).unwrap() <= 2, "seed {seed}: nothing is left of keys");
    }
}
