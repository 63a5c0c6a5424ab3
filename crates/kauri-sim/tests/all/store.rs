//! Kauri's own store, crashed at every operation: after each crash it holds exactly the commits up to some number, all that were
//! acknowledged among them, and no page is lost.

use std::collections::BTreeSet;

use kauri_sim::{
    Acks, Call, Engine, Explorer, Failure, Fault, FaultKind, Image, Interruption, STORE_NAME, SimDisk, StoreTrial,
};
use kauri_tree::{Durability, Options, Read, Store, Table, Write};

/// What the stores that are crashed do, each of it in every test of ten seeds.
const MET: [&str; 21] = [
    "change",
    "checkpoint",
    "compact",
    "drop a table",
    "load many rows",
    "load rows",
    "load values",
    "nest",
    "pin",
    "put",
    "put a value",
    "put until",
    "remove",
    "remove a range",
    "remove at a cursor",
    "remove values",
    "sweep",
    "sync",
    "unpin",
    "update",
    "vanish",
];

/// Answers how many of the crashes were inside recoveries. What was done is added to what was met.
fn check(seed: u64, page_bytes: usize, commits: u64, points: u64, met: &mut BTreeSet<&'static str>) -> u64 {
    let trial = StoreTrial::new(seed, page_bytes, commits);
    let report = Explorer::new(seed).points(points).lives(3).explore(&trial);
    if let Some(violation) = report.violation {
        panic!("seed {seed}, pages of {page_bytes}: {violation:?}");
    }
    assert!(report.points >= points, "only {} points", report.points);
    met.extend(trial.met().into_keys());
    report.recovery_points
}

/// Crashes stores of ten seeds, twelve thousand times each, a thousand of that inside recoveries. Two of the stores are bounded.
fn check_seeds(first: u64, page_bytes: usize) {
    let mut met = BTreeSet::new();
    let in_recoveries: u64 = (first..first + 10).map(|seed| check(seed, page_bytes, 12, 12_000, &mut met)).sum();
    assert_eq!(met, MET.into(), "everything is done by some of the stores");
    assert!(in_recoveries >= 10_000, "only {in_recoveries} crashes inside recoveries");
}

/// Tests of their own, so that they run side by side: a million crashes in all.
macro_rules! crashes {
    ($($name:ident: $first:expr, $page_bytes:expr;)*) => {$(
        #[test]
        fn $name() {
            check_seeds($first, $page_bytes);
        }
    )*};
}

crashes! {
    store_survives_crashes_0: 0, 256;
    store_survives_crashes_1: 100, 256;
    store_survives_crashes_2: 200, 256;
    store_survives_crashes_3: 300, 256;
    store_survives_crashes_4: 400, 256;
    store_survives_crashes_5: 500, 256;
    store_survives_crashes_6: 600, 512;
    store_survives_crashes_7: 700, 512;
    store_survives_crashes_8: 800, 1024;
    store_survives_crashes_9: 900, 4096;
}

#[test]
fn every_failing_call_is_survived() {
    assert_eq!(fail_every_call(&mut 0), Ok(()));
}

/// Fails one call after the other, in every way, and crashes what comes of it; counts the points.
pub(crate) fn fail_every_call(points: &mut u64) -> Result<(), String> {
    let kinds = [Failure::Io, Failure::NoSpace, Failure::Short];
    for (failure, lasts) in kinds.iter().flat_map(|failure| [(*failure, false), (*failure, true)]) {
        for nth in 1.. {
            let fault = Fault::nth_of_any(nth, failure);
            let fault = if lasts { fault.lasting() } else { fault };
            let report = Explorer::new(nth).points(60).fault(fault).explore(&StoreTrial::new(nth % 7, 256, 10));
            *points += report.points;
            if let Some(violation) = report.violation {
                return Err(format!("call {nth} failed with {failure:?}, {lasts}: {violation}"));
            }
            let struck = |kind: &FaultKind| *kind >= FaultKind::SyncFailed && report.hits.of(*kind) > 0;
            if !FaultKind::ALL.iter().any(struck) {
                assert!(nth > 20, "a life makes more calls than {nth}");
                break;
            }
        }
    }
    Ok(())
}

/// Fails one sync after the other, of many stores: those of commits in the middle of a checkpoint among them.
pub(crate) fn fail_every_sync(points: &mut u64) -> Result<(), String> {
    for seed in 0..20 {
        for nth in 1.. {
            let fault = Fault::nth(Call::Sync, nth, Failure::Io);
            let report = Explorer::new(seed).points(30).fault(fault).explore(&StoreTrial::new(seed, 256, 12));
            *points += report.points;
            if let Some(violation) = report.violation {
                return Err(format!("seed {seed}, sync {nth} failed: {violation}"));
            }
            if report.hits.of(FaultKind::SyncFailed) == 0 {
                assert!(nth > 3, "a life syncs more often than {nth} times");
                break;
            }
        }
    }
    Ok(())
}

#[test]
fn no_sync_that_fails_is_taken_for_one_that_went_well() {
    let mut points = 0;
    fail_every_sync(&mut points).unwrap();
    assert!(points > 3_000, "only {points} points");
}

const LONG: Table<u64, [u8]> = Table::new("long");

/// Long values go through to the file behind the end of a checkpoint, which is about to cut the file there.
pub(crate) fn write_behind_a_checkpoint() -> Result<(), String> {
    let words = |error: kauri_tree::Error| error.to_string();
    let (page_bytes, log_pages) = (256, 64);
    let (disk, interruption) = Interruption::of(&SimDisk::new(), 2 * page_bytes..(2 + log_pages) * page_bytes);
    // Where pages leave memory, there is none at hand for others.
    let options = Options::new().page_bytes(256).log_bytes(64 * 256).keeper(false).cache_bytes(0);
    let store = options.open(&disk, STORE_NAME).map_err(words)?;
    let mut txn = store.begin();
    txn.load_sorted(&LONG, (0..1000).map(|row| (row, &[b'l'; 50][..]))).map_err(words)?;
    txn.commit().map_err(words)?;
    let mut txn = store.begin();
    txn.drop_table(LONG.name()).map_err(words)?;
    txn.commit().map_err(words)?;
    let value = |row: u64| [u8::try_from(row).expect("a few"); 300];
    let put = move |store: &Store| {
        let mut txn = store.begin();
        (0..4).try_for_each(|row| txn.put(&LONG, row, &value(row)))?;
        txn.commit_with(Durability::None)
    };
    // The first sets the pages free, the second has its own before them, and the next ends there.
    store.checkpoint().map_err(words)?;
    put(&store).map_err(words)?;
    store.checkpoint().map_err(words)?;
    let other = store.clone();
    interruption.set_work(move || drop(put(&other)));
    store.checkpoint().map_err(words)?;
    interruption.clear_work();
    let snapshot = store.snapshot();
    for row in 0..4 {
        let found = snapshot.get(&LONG, row).map_err(words)?;
        if found.as_deref() != Some(&value(row)[..]) {
            return Err(format!("row {row} is {found:?}"));
        }
    }
    drop(snapshot);
    store.verify().map_err(words)?;
    Ok(())
}

#[test]
fn what_goes_through_while_a_checkpoint_cuts_the_file_stays() {
    write_behind_a_checkpoint().unwrap();
}

/// The file of a store after some commits, some of them only in its log.
pub(crate) fn file(trial: &StoreTrial) -> Vec<u8> {
    let disk = SimDisk::new();
    trial.live(&disk, &Acks::of(&disk)).expect("no fault");
    // Life goes on without a clean end: the log is in use.
    let store = trial.open(&disk).expect("no fault");
    let held = StoreTrial::last_commit(&store.snapshot()).expect("no fault");
    for commit in held + 1..held + 4 {
        trial.commit(&store, commit, Durability::Sync).expect("no fault");
    }
    disk.image().bytes(STORE_NAME).expect("the store's file")
}

/// Opens a damaged file: either the damage is told, or what is read is what some commit left.
pub(crate) fn check_damaged(trial: &StoreTrial, bytes: &[u8]) -> Result<(), String> {
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let disk = SimDisk::from_image(Image::new().with_file(STORE_NAME, bytes));
        let Ok(store) = trial.open(&disk) else { return Ok(()) };
        let snapshot = store.snapshot();
        trial.check_readable(&snapshot)?;
        trial.check_readable_pins(&store)
    }));
    read.unwrap_or_else(|_| Err("a panic".into()))
}

/// Flips every bit of one byte in four of a file of 64 KiB or a little more.
fn flip_every_bit(first: usize) {
    let trials = (100..).step_by(50).map(|commits| StoreTrial::new(5, 512, commits));
    let files = trials.map(|trial| (file(&trial), trial));
    let (mut bytes, trial) = files.into_iter().find(|(bytes, _)| bytes.len() >= 64 << 10).expect("files grow");
    for at in (first..bytes.len()).step_by(4) {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            if let Err(what) = check_damaged(&trial, &bytes) {
                panic!("bit {bit} of byte {at} of {}: {what}", bytes.len());
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

/// Tests of their own, so that they run side by side: half a million bits in all.
macro_rules! flips {
    ($($name:ident: $first:expr;)*) => {$(
        #[test]
        fn $name() {
            flip_every_bit($first);
        }
    )*};
}

flips! {
    every_flipped_bit_is_told_or_does_not_matter_0: 0;
    every_flipped_bit_is_told_or_does_not_matter_1: 1;
    every_flipped_bit_is_told_or_does_not_matter_2: 2;
    every_flipped_bit_is_told_or_does_not_matter_3: 3;
}

#[test]
fn every_cut_swapped_and_zeroed_page_is_told_or_does_not_matter() {
    let trial = StoreTrial::new(6, 256, 30);
    let bytes = file(&trial);
    let pages = bytes.len() / 256;
    for page in 0..pages {
        check_damaged(&trial, &bytes[..page * 256]).unwrap();
        let mut zeroed = bytes.clone();
        zeroed[page * 256..][..256].fill(0);
        check_damaged(&trial, &zeroed).unwrap();
        for other in 0..pages {
            let mut misplaced = bytes.clone();
            misplaced.copy_within(other * 256..(other + 1) * 256, page * 256);
            check_damaged(&trial, &misplaced).unwrap();
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_and_can_be_used_again() {
    let trial = StoreTrial::new(8, 256, 20);
    let disk = SimDisk::new();
    drop(trial.open(&disk).unwrap());
    for nth in 1..60 {
        let acks = Acks::of(&disk);
        disk.inject(Fault::nth(Call::Write, nth, Failure::NoSpace).lasting());
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let store = trial.open(&disk)?;
            let held = StoreTrial::last_commit(&store.snapshot())?;
            trial.commit(&store, held + 1, Durability::Sync)?;
            store.checkpoint().map_err(|error| error.to_string())
        }));
        assert!(lived.is_ok(), "no panic");
        disk.heal();
        trial.check(&disk, acks.progress()).unwrap();
    }
}
