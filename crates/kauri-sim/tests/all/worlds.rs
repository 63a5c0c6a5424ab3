//! The whole system under every fault: two thousand worlds, and bugs planted to see that they would be found.

use std::collections::BTreeMap;
use std::sync::Arc;

use kauri_runtime::planted::Bug;
use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::{FaultKind as WorldFault, VirtualClock};
use kauri_runtime::{Policy, Runtime, Syncing};
use kauri_sim::{CrashPoint, FaultKind, Flight, Hits, SimDisk, Variant, WorldTrial};
use kauri_tree::Options;
use kauri_wire::{Flags, Message, MessageId, WorkerId};

/// Runs worlds; each kind of fault must have happened.
fn check(seeds: std::ops::Range<u64>) {
    let mut faults: BTreeMap<WorldFault, u64> = BTreeMap::new();
    let mut disk = Hits::default();
    let (mut lives, mut handled, mut starved, mut overfull) = (0, 0, 0, 0);
    for seed in seeds {
        match WorldTrial::new(seed).run() {
            Ok(story) => {
                story.faults.into_iter().for_each(|(kind, count)| *faults.entry(kind).or_default() += count);
                disk.merge(&story.disk);
                lives += story.lives;
                handled += story.handled;
                starved += story.starved;
                overfull += story.overfull;
            }
            Err(what) => {
                let shrunk = WorldTrial::new(seed).shrunk();
                panic!("{what}\nagain: cargo run --release -p kauri-sim -- world --seed {seed}\nin short: {shrunk:?}");
            }
        }
    }
    assert_eq!(faults.len(), 13, "each kind of fault happened: {faults:?}");
    assert!(starved > 0 && overfull > 0, "{starved} handlers got no memory, {overfull} blocks were too full");
    let kinds = [FaultKind::SyncFailed, FaultKind::WriteFailed, FaultKind::NoSpace, FaultKind::ShortWrite];
    assert_eq!(disk.require(&kinds), Ok(()));
    assert!(lives > 1000 && handled > 0, "{lives} lives");
}

/// Tests of their own, so that they run side by side.
macro_rules! worlds {
    ($($name:ident: $seeds:expr;)*) => {$(
        #[test]
        fn $name() {
            check($seeds);
        }
    )*};
}

worlds! {
    every_order_is_carried_out_once_whatever_happens_0: 0..500;
    every_order_is_carried_out_once_whatever_happens_1: 500..1000;
    every_order_is_carried_out_once_whatever_happens_2: 1000..1500;
    every_order_is_carried_out_once_whatever_happens_3: 1500..2000;
}

#[test]
fn same_seed_is_the_same_world() {
    for seed in 0..10 {
        let told = |story: kauri_sim::Story| (story.faults, story.lives, story.handled, format!("{:?}", story.disk));
        let (first, second) = (WorldTrial::new(seed).run(), WorldTrial::new(seed).run());
        assert_eq!(first.map(told), second.map(told));
    }
}

#[test]
fn every_planted_bug_is_found_in_four_hundred_worlds() {
    for bug in Bug::ALL {
        let found = (0..400).find(|seed| WorldTrial::new(*seed).with(bug).run().is_err());
        assert!(found.is_some(), "{bug:?} was not found");
        println!("{bug:?}: found in world {}", found.unwrap_or_default());
    }
}

/// How many of the messages sent with these flags, and synced only if those say so, a power cut leaves.
fn left_after_a_power_cut(flags: Flags) -> u64 {
    let start = |disk: &SimDisk| {
        let store = Options::new().keeper(false).open(disk, "store").expect("it opens");
        let policy = Policy { sync: Syncing::Flagged, ..Policy::default() };
        let clock = Arc::new(VirtualClock::default());
        let builder = Runtime::builder(Arc::new(TreeSubstrate::new(store)), clock).policy(policy);
        builder.start().expect("it starts")
    };
    let disk = SimDisk::new();
    let runtime = start(&disk);
    let message = Message::command(WorkerId(1), MessageId::new("m").expect("an id"), "").with(flags);
    runtime.send(&message).expect("sent");
    let point = CrashPoint { seed: 1, op: disk.ops(), flight: Flight::Between, variant: Variant::None };
    let image = disk.trace().image_at(&point).expect("the operations were made");
    start(&SimDisk::from_image(image)).depth(WorkerId(1)).expect("it can be read")
}

#[test]
fn durable_messages_survive_a_power_cut_where_only_they_are_synced() {
    assert_eq!(left_after_a_power_cut(Flags::DURABLE), 1);
    assert_eq!(left_after_a_power_cut(Flags::NONE), 0, "nobody asked for more");
}
