//! What a crash may leave, in small.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use kauri_sim::{
    Call, CrashPoint, Failure, Fault, Flight, Hits, Image, Plan, Rng, Round, SimDisk, Stops, Trace, Variant,
};
use kauri_tree::disk::{Disk, File, Open};

/// The images at the end of a trace, by many samples and all subsets.
fn images(trace: &Trace) -> Vec<Image> {
    let plan = Plan { seed: 1, tear_bytes: vec![512, 1], exhaustive_max: 10 };
    let mut images = Vec::new();
    let mut rounds = vec![Round::Plain, Round::Subsets];
    rounds.extend((0..80).map(Round::Samples));
    let end = trace.ops();
    let stops = Stops { range: end..end + 1, every: 1, marks: &[] };
    for round in rounds {
        let ended: ControlFlow<()> = trace.visit(&plan, round, &stops, &mut Hits::default(), |point, image| {
            let again = trace.image_at(&point.to_string().parse().expect("read as written")).expect("there");
            assert!(again == image, "{point} is replayed");
            images.push(image);
            ControlFlow::Continue(())
        });
        assert!(ended.is_continue());
    }
    images
}

/// What the file "a" may hold at the end.
fn contents(disk: &SimDisk) -> BTreeSet<Option<Vec<u8>>> {
    images(&disk.trace()).iter().map(|image| image.bytes("a")).collect()
}

/// A disk with a durable file "a" of these bytes.
fn disk(bytes: &[u8]) -> (SimDisk, Box<dyn File>) {
    let disk = SimDisk::from_image(Image::new().with_file("a", bytes));
    let file = disk.open("a", Open::ReadWrite).expect("there");
    (disk, file)
}

fn some(all: &[&[u8]]) -> BTreeSet<Option<Vec<u8>>> {
    all.iter().map(|bytes| Some(bytes.to_vec())).collect()
}

#[test]
fn unsynced_bytes_survive_in_any_combination() {
    let (disk, file) = disk(b"--");
    file.write_at(0, b"a").expect("written");
    file.write_at(1, b"b").expect("written");
    assert_eq!(contents(&disk), some(&[b"--", b"a-", b"-b", b"ab"]));
}

#[test]
fn a_write_is_torn_in_any_pattern() {
    let (disk, file) = disk(b"---");
    file.write_at(0, b"abc").expect("written");
    let all: [&[u8]; 8] = [b"---", b"a--", b"-b-", b"ab-", b"--c", b"a-c", b"-bc", b"abc"];
    assert_eq!(contents(&disk), some(&all));
}

#[test]
fn an_earlier_write_may_show_through_a_later_one() {
    let (disk, file) = disk(b"--");
    file.write_at(0, b"ab").expect("written");
    file.write_at(0, b"AB").expect("written");
    let found = contents(&disk);
    for image in some(&[b"--", b"ab", b"AB", b"aB", b"Ab", b"-B", b"a-"]) {
        assert!(found.contains(&image), "{image:?}");
    }
}

#[test]
fn synced_bytes_survive() {
    let (disk, file) = disk(b"--");
    file.write_at(0, b"a").expect("written");
    file.sync().expect("synced");
    file.write_at(1, b"b").expect("written");
    assert_eq!(contents(&disk), some(&[b"a-", b"ab"]));
}

#[test]
fn a_durable_write_survives_and_takes_nothing_with_it() {
    let (disk, file) = disk(b"----");
    file.write_at(0, b"ab").expect("written");
    file.write_durable_at(1, b"XY").expect("written");
    assert_eq!(contents(&disk), some(&[b"-XY-", b"aXY-"]), "the write beneath it does not come back");
}

#[test]
fn a_durable_write_takes_the_length_that_it_needs() {
    let (disk, file) = disk(b"--");
    file.set_len(6).expect("set");
    file.write_durable_at(1, b"X").expect("written");
    assert_eq!(contents(&disk), some(&[b"-X", b"-X\0\0\0\0"]), "two bytes are enough to reach it");
    file.write_durable_at(3, b"Y").expect("written");
    assert_eq!(contents(&disk), some(&[b"-X\0Y\0\0"]));
}

#[test]
fn a_durable_write_after_a_cut_keeps_what_was_cut_away() {
    let (disk, file) = disk(b"----");
    file.write_at(2, b"ab").expect("written");
    file.set_len(0).expect("set");
    file.write_durable_at(0, b"X").expect("written");
    file.set_len(4).expect("set");
    assert_eq!(contents(&disk), some(&[b"X", b"X\0\0\0"]));
}

#[test]
fn a_durable_write_in_flight_is_torn() {
    let (disk, file) = disk(b"--");
    file.write_durable_at(0, b"ab").expect("written");
    let plan = Plan { tear_bytes: vec![1], ..Plan::default() };
    let mut found = BTreeSet::new();
    for round in (0..20).map(Round::Samples) {
        let stops = Stops { range: 0..1, every: 1, marks: &[] };
        let ended: ControlFlow<()> = disk.trace().visit(&plan, round, &stops, &mut Hits::default(), |_, image| {
            found.insert(image.bytes("a"));
            ControlFlow::Continue(())
        });
        assert!(ended.is_continue());
    }
    assert_eq!(found, some(&[b"--", b"a-", b"-b", b"ab"]));
}

#[test]
fn length_and_bytes_survive_apart() {
    let (disk, file) = disk(b"-");
    file.write_at(1, b"a").expect("written");
    let found = contents(&disk);
    for image in some(&[b"-", b"-\0", b"-a"]) {
        assert!(found.contains(&image), "{image:?}");
    }
    assert!(found.len() > 3, "garbage: {found:?}");
    assert!(found.iter().flatten().all(|bytes| bytes[0] == b'-' && bytes.len() <= 2));
}

#[test]
fn bytes_that_were_cut_away_do_not_come_back_with_a_durable_growth() {
    let (disk, file) = disk(b"--");
    file.write_at(2, b"a").expect("written");
    file.set_len(1).expect("set");
    file.set_len(3).expect("set");
    file.sync().expect("synced");
    assert_eq!(contents(&disk), some(&[b"-\0\0"]));
}

#[test]
fn a_file_without_a_synced_name_may_be_gone() {
    let disk = SimDisk::new();
    let file = disk.open("a", Open::CreateNew).expect("made");
    file.write_at(0, b"x").expect("written");
    file.sync().expect("synced");
    assert_eq!(contents(&disk), BTreeSet::from([None, Some(b"x".to_vec())]));
    disk.sync_dir().expect("synced");
    assert_eq!(contents(&disk), some(&[b"x"]));
}

#[test]
fn a_synced_name_says_nothing_about_the_bytes() {
    let disk = SimDisk::new();
    disk.open("a", Open::CreateNew).expect("made").write_at(0, b"x").expect("written");
    disk.sync_dir().expect("synced");
    let found = contents(&disk);
    assert!(found.contains(&Some(Vec::new())) && found.contains(&Some(b"x".to_vec())) && !found.contains(&None));
}

#[test]
fn a_rename_happens_or_does_not() {
    let disk = SimDisk::from_image(Image::new().with_file("a", b"old").with_file("b", b"new"));
    disk.rename("b", "a").expect("renamed");
    let found: BTreeSet<_> =
        images(&disk.trace()).iter().map(|image| (image.bytes("a"), image.bytes("b").is_some())).collect();
    assert_eq!(found, BTreeSet::from([(Some(b"old".to_vec()), true), (Some(b"new".to_vec()), false)]));
}

#[test]
fn a_failed_sync_loses_some_writes_for_good_although_the_next_says_ok() {
    let mut found = BTreeSet::new();
    for seed in 0..50 {
        let (disk, file) = disk(b"--");
        disk.reseed(seed);
        disk.inject(Fault::nth(Call::Sync, 1, Failure::Io));
        file.write_at(0, b"a").expect("written");
        file.write_at(1, b"b").expect("written");
        assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
        file.sync().expect("says so");
        assert_eq!(disk.image().bytes("a").expect("there"), b"ab", "the program still sees its writes");
        let left = contents(&disk);
        assert_eq!(left.len(), 1, "nothing is pending: {left:?}");
        found.extend(left);
    }
    assert_eq!(found, some(&[b"--", b"a-", b"-b", b"ab"]));
}

#[test]
fn a_short_write_leaves_its_first_half() {
    let (disk, file) = disk(b"----");
    disk.inject(Fault::nth(Call::Write, 1, Failure::Short));
    let error = file.write_at(0, b"abcd").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(disk.image().bytes("a").expect("there"), b"ab--");
    assert_eq!(contents(&disk), some(&[b"----", b"a---", b"-b--", b"ab--"]));
}

#[test]
fn a_full_disk_stays_full_until_it_is_healed() {
    let (disk, file) = disk(b"----");
    disk.inject(Fault::nth(Call::Write, 2, Failure::NoSpace).lasting());
    file.write_at(0, b"a").expect("room for one");
    for _ in 0..2 {
        assert_eq!(file.write_at(1, b"b").unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }
    disk.heal();
    file.write_at(1, b"b").expect("room again");
    assert_eq!((disk.hits().of(kauri_sim::FaultKind::NoSpace), disk.ops()), (2, 2));
}

#[test]
fn a_crash_image_records_again() {
    let (disk, file) = disk(b"--");
    file.write_at(0, b"a").expect("written");
    let survivor = images(&disk.trace()).into_iter().find(|image| image.bytes("a") == Some(b"a-".to_vec()));
    let next = SimDisk::from_image(survivor.expect("one of two"));
    next.open("a", Open::ReadWrite).expect("the lock died with the crash").write_at(1, b"b").expect("written");
    assert_eq!(next.ops(), 1);
    assert_eq!(contents(&next), some(&[b"a-", b"ab"]));
}

/// What "a" holds if the pending effects whose bits are set survive.
fn left_by(disk: &SimDisk, bits: u64) -> Vec<u8> {
    let point = CrashPoint { seed: 1, op: disk.ops(), flight: Flight::Between, variant: Variant::Subset(bits) };
    disk.trace().image_at(&point).and_then(|image| image.bytes("a")).expect("there")
}

#[test]
fn bytes_beyond_a_cut_that_survived_do_not_come_back() {
    let (disk, file) = disk(b"-");
    file.write_at(1, b"ab").expect("effects 0, the length, and 1, the bytes");
    file.set_len(2).expect("effect 2");
    file.set_len(3).expect("effect 3");
    assert_eq!(left_by(&disk, 0b1110), b"-a\0");
    assert_eq!(left_by(&disk, 0b1010), b"-ab", "here the cut was lost");
}

#[test]
fn bytes_beyond_the_length_that_survived_are_not_there_for_the_next_life() {
    let (disk, file) = disk(b"-");
    file.write_at(1, b"ab").expect("effects 0, the length, and 1, the bytes");
    let point = CrashPoint { seed: 1, op: 1, flight: Flight::Between, variant: Variant::Subset(0b10) };
    let next = SimDisk::from_image(disk.trace().image_at(&point).expect("there"));
    next.open("a", Open::ReadWrite).expect("there").set_len(3).expect("set");
    assert_eq!(next.image().bytes("a").expect("there"), b"-\0\0");
}

#[test]
fn a_failed_durable_write_leaves_nothing_pending_beneath_it() {
    let mut found = BTreeSet::new();
    for seed in 0..20 {
        let (disk, file) = disk(b"-");
        disk.reseed(seed);
        disk.inject(Fault::nth(Call::WriteDurable, 1, Failure::Io));
        file.write_at(0, b"a").expect("written");
        assert!(file.write_durable_at(0, b"X").is_err());
        assert_eq!(disk.image().bytes("a").expect("there"), b"X", "the program sees it");
        found.extend(contents(&disk));
    }
    assert_eq!(found, some(&[b"-", b"X"]));
}

#[test]
fn a_walk_that_skips_boundaries_skips_no_image_of_those_it_visits() {
    let (disk, file) = disk(b"----");
    (0..4).for_each(|at| file.write_at(at, b"a").expect("written"));
    let stops = Stops { range: 0..5, every: 2, marks: &[3] };
    let mut nothing = Vec::new();
    let plan = Plan::default();
    let ended: ControlFlow<()> = disk.trace().visit(&plan, Round::Plain, &stops, &mut Hits::default(), |point, _| {
        nothing.extend((point.variant == Variant::None).then_some(point.op));
        ControlFlow::Continue(())
    });
    // At 4 nothing is new but the last write: 3 was a mark and has been visited.
    assert_eq!((ended, nothing), (ControlFlow::Continue(()), vec![0, 2, 3]));
}

/// One random change of a disk with up to three files.
fn change(disk: &SimDisk, rng: &mut Rng) {
    let names = ["a", "b", "c"];
    let (name, other) = (*rng.pick(&names), *rng.pick(&names));
    let at = rng.below(2_000);
    let bytes = vec![u8::try_from(rng.below(255)).expect("below") + 1; rng.index(1_000)];
    match rng.below(16) {
        0 => drop(disk.rename(name, other)),
        1 => drop(disk.remove(name)),
        2 => disk.sync_dir().expect("no fault"),
        kind => {
            let file = disk.open(name, Open::Create).expect("nobody else");
            match kind {
                3 | 4 => file.set_len(at),
                5 | 6 => file.sync(),
                7..=9 => file.write_durable_at(at, &bytes),
                _ => file.write_at(at, &bytes),
            }
            .expect("no fault");
        }
    }
}

#[test]
fn when_everything_survives_the_disk_is_as_the_program_saw_it() {
    for seed in 0..100 {
        let (disk, mut rng) = (SimDisk::new(), Rng::new(seed));
        let mut seen = vec![(0, disk.image())];
        for _ in 0..60 {
            change(&disk, &mut rng);
            seen.push((disk.ops(), disk.image()));
        }
        let trace = disk.trace();
        for (op, image) in seen {
            let point = CrashPoint { seed, op, flight: Flight::Between, variant: Variant::All };
            assert!(trace.image_at(&point).expect("there") == image, "{point}: {}", trace.describe(op));
        }
    }
}

#[test]
fn what_was_synced_is_in_every_image() {
    for seed in 0..25 {
        let (disk, mut rng) = (SimDisk::new(), Rng::new(seed));
        for _ in 0..40 {
            change(&disk, &mut rng);
        }
        let image = disk.image();
        for name in image.names() {
            disk.open(name, Open::ReadWrite).expect("there").sync().expect("no fault");
        }
        disk.sync_dir().expect("no fault");
        let after = images(&disk.trace());
        assert!(!after.is_empty() && after.iter().all(|left| *left == image), "seed {seed}");
    }
}
