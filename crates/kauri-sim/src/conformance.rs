//! What every disk does, whatever it is made of: one suite for files of the system, files in memory and the simulator.
#![expect(clippy::disallowed_methods, reason = "the suite uses a file from several threads at once")]

use std::io::ErrorKind;

use kauri_tree::disk::{Disk, File, Open};

use crate::rng::Rng;

/// Checks that this empty disk keeps the contract of [`Disk`] and [`File`], and panics where it does not. What it leaves on
/// the disk is of no use.
pub fn conformance(disk: &dyn Disk) {
    names_are_listed_in_order(disk);
    names_are_plain(disk);
    opening_asks_for_what_is_there(disk);
    writes_are_read_back_and_grow_the_file(disk);
    lengths_cut_and_add_zeros(disk);
    ranges_end_below_2_to_63(disk);
    a_writer_is_alone(disk);
    readers_do_not_write(disk);
    names_move_and_files_stay(disk);
    bytes_that_are_shared_part_ways(disk);
    threads_share_a_file(disk);
    random_changes_agree_with_a_vector(disk);
}

fn make(disk: &dyn Disk, name: &str, bytes: &[u8]) -> Box<dyn File> {
    let file = disk.open(name, Open::CreateNew).expect("made");
    file.write_at(0, bytes).expect("written");
    file
}

fn bytes(file: &dyn File) -> Vec<u8> {
    let len = file.len().expect("a length");
    let mut bytes = vec![0; usize::try_from(len).expect("short")];
    file.read_at(0, &mut bytes).expect("all of the file");
    bytes
}

fn refusal(disk: &dyn Disk, name: &str, how: Open) -> ErrorKind {
    disk.open(name, how).expect_err("refused").kind()
}

fn names_are_listed_in_order(disk: &dyn Disk) {
    assert_eq!(disk.names().expect("a list"), Vec::<String>::new(), "an empty disk");
    for name in ["b", "a", "é", "a.new"] {
        make(disk, name, b"");
    }
    assert_eq!(disk.names().expect("a list"), ["a", "a.new", "b", "é"]);
    disk.rename("a", "c").expect("renamed");
    disk.remove("é").expect("removed");
    assert_eq!(disk.names().expect("a list"), ["a.new", "b", "c"]);
    for name in ["b", "c", "a.new"] {
        disk.remove(name).expect("removed");
    }
}

fn bytes_that_are_shared_part_ways(disk: &dyn Disk) {
    let (from, to) = (make(disk, "shared", b"twelve apples"), make(disk, "sharing", b"a longer text than that"));
    if to.share(&*from).expect("shared, or not") {
        from.write_at(0, b"ELEVEN").expect("written");
        assert_eq!(bytes(&*to), b"twelve apples");
        to.write_at(7, b"pears!").expect("written");
        assert_eq!((bytes(&*from), bytes(&*to)), (b"ELEVEN apples".to_vec(), b"twelve pears!".to_vec()));
    } else {
        assert_eq!(bytes(&*to), b"a longer text than that");
    }
    let reader = disk.open("sharing", Open::ReadOnly).expect("opened");
    assert_eq!(reader.share(&*from).expect_err("refused").kind(), ErrorKind::PermissionDenied);
    drop((from, to));
    for name in ["shared", "sharing"] {
        disk.remove(name).expect("removed");
    }
}

fn names_are_plain(disk: &dyn Disk) {
    make(disk, "plain", b"");
    for bad in ["", ".", "..", "/", "a/b", "../a", "a\\b", "a\0b", &"x".repeat(256)] {
        assert_eq!(refusal(disk, bad, Open::Create), ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(disk.rename("plain", bad).expect_err("refused").kind(), ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(disk.rename(bad, "plain").expect_err("refused").kind(), ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(disk.remove(bad).expect_err("refused").kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
    disk.remove("plain").expect("untouched");
}

fn opening_asks_for_what_is_there(disk: &dyn Disk) {
    for how in [Open::ReadOnly, Open::ReadWrite] {
        assert_eq!(refusal(disk, "open", how), ErrorKind::NotFound, "{how:?}");
    }
    make(disk, "open", b"kept");
    assert_eq!(refusal(disk, "open", Open::CreateNew), ErrorKind::AlreadyExists);
    for how in [Open::ReadOnly, Open::ReadWrite, Open::Create] {
        let file = disk.open("open", how).expect("there");
        assert_eq!(bytes(&*file), b"kept", "{how:?}");
    }
}

fn writes_are_read_back_and_grow_the_file(disk: &dyn Disk) {
    let file = make(disk, "write", b"0123");
    file.write_at(2, b"ab").expect("inside");
    file.write_at(3, b"cd").expect("across the end");
    file.write_durable_at(8, b"ef").expect("beyond the end");
    file.write_durable_at(0, b"gh").expect("inside");
    file.write_at(100, b"").expect("nothing");
    assert_eq!(bytes(&*file), b"ghacd\0\0\0ef");

    let big: Vec<u8> = (0..=250).cycle().take(100_000).collect();
    file.write_at(4_090, &big).expect("many pages");
    file.write_durable_at(200_001, &big).expect("many pages");
    file.sync().expect("synced");
    let all = bytes(&*file);
    assert!(all.len() == 300_001 && all[4_090..104_090] == big && all[200_001..] == big);

    let mut byte = [0];
    assert_eq!(file.read_at(300_001, &mut byte).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
    assert_eq!(file.read_at(300_000, &mut [0; 2]).expect_err("the end").kind(), ErrorKind::UnexpectedEof);
    file.read_at(300_000, &mut byte).expect("the last byte");
}

fn lengths_cut_and_add_zeros(disk: &dyn Disk) {
    let file = make(disk, "length", &[7; 10_000]);
    for (len, sevens) in [(5_000_u64, 5_000), (9_000, 5_000), (3, 3), (0, 0), (4_097, 0)] {
        file.set_len(len).expect("set");
        let bytes = bytes(&*file);
        assert_eq!((file.len().expect("a length"), file.is_empty().expect("a length")), (len, len == 0));
        assert!(bytes[..sevens].iter().all(|byte| *byte == 7) && bytes[sevens..].iter().all(|byte| *byte == 0));
    }
    file.sync().expect("synced");
}

fn ranges_end_below_2_to_63(disk: &dyn Disk) {
    let file = make(disk, "range", b"x");
    for at in [u64::MAX, u64::MAX - 1, 1 << 63] {
        assert_eq!(file.read_at(at, &mut [0; 2]).expect_err("refused").kind(), ErrorKind::InvalidInput, "{at}");
        assert_eq!(file.write_at(at, b"ab").expect_err("refused").kind(), ErrorKind::InvalidInput, "{at}");
        assert_eq!(file.write_durable_at(at, b"ab").expect_err("refused").kind(), ErrorKind::InvalidInput, "{at}");
        assert_eq!(file.set_len(at).expect_err("refused").kind(), ErrorKind::InvalidInput, "{at}");
    }
    assert_eq!(bytes(&*file), b"x");
}

fn a_writer_is_alone(disk: &dyn Disk) {
    let writer = make(disk, "lock", b"mine");
    for how in [Open::ReadWrite, Open::Create] {
        assert_eq!(refusal(disk, "lock", how), ErrorKind::WouldBlock, "{how:?}");
    }
    let reader = disk.open("lock", Open::ReadOnly).expect("readers take no lock");
    assert_eq!(bytes(&*reader), b"mine");
    drop(reader);
    assert_eq!(refusal(disk, "lock", Open::ReadWrite), ErrorKind::WouldBlock, "a reader's end is not the writer's");
    drop(writer);
    disk.open("lock", Open::ReadWrite).expect("free again");
}

fn readers_do_not_write(disk: &dyn Disk) {
    make(disk, "reader", b"as it was");
    let file = disk.open("reader", Open::ReadOnly).expect("there");
    assert_eq!(file.write_at(0, b"x").expect_err("refused").kind(), ErrorKind::PermissionDenied);
    assert_eq!(file.write_durable_at(0, b"x").expect_err("refused").kind(), ErrorKind::PermissionDenied);
    assert_eq!(file.set_len(0).expect_err("refused").kind(), ErrorKind::PermissionDenied);
    assert_eq!(file.sync().expect_err("refused").kind(), ErrorKind::PermissionDenied);
    assert_eq!(bytes(&*file), b"as it was");
}

fn names_move_and_files_stay(disk: &dyn Disk) {
    let old = make(disk, "target", b"old");
    let new = make(disk, "source", b"new");
    disk.rename("source", "target").expect("replaced");
    disk.sync_dir().expect("synced");
    assert_eq!(refusal(disk, "source", Open::ReadOnly), ErrorKind::NotFound);
    assert_eq!(refusal(disk, "target", Open::ReadWrite), ErrorKind::WouldBlock, "the lock goes with the file");
    new.write_at(3, b"er").expect("still the same file");
    assert_eq!(bytes(&*disk.open("target", Open::ReadOnly).expect("there")), b"newer");
    assert_eq!(bytes(&*old), b"old", "whoever has it keeps it");

    disk.rename("target", "target").expect("to itself");
    disk.remove("target").expect("removed");
    assert_eq!(bytes(&*new), b"newer");
    for refused in [disk.remove("target"), disk.rename("target", "other")] {
        assert_eq!(refused.expect_err("gone").kind(), ErrorKind::NotFound);
    }
    let again = make(disk, "target", b"another");
    assert_eq!((bytes(&*again), bytes(&*new)), (b"another".to_vec(), b"newer".to_vec()));
    disk.sync_dir().expect("synced");
}

fn threads_share_a_file(disk: &dyn Disk) {
    const EACH: u64 = 64;
    let file = make(disk, "threads", b"");
    let write = |thread: u8| {
        for round in 0..EACH {
            let at = (round * 4 + u64::from(thread)) * 100;
            file.write_at(at, &[thread + 1; 100]).expect("written");
            let mut back = [0; 100];
            file.read_at(at, &mut back).expect("read");
            assert_eq!(back, [thread + 1; 100]);
        }
        file.sync().expect("synced");
    };
    std::thread::scope(|scope| (0..4).for_each(|thread| drop(scope.spawn(move || write(thread)))));
    let all = bytes(&*file);
    assert_eq!(all.len(), 4 * 100 * 64);
    assert!(all.chunks(100).zip((1..=4).cycle()).all(|(part, thread)| part == [thread; 100]));
}

fn random_changes_agree_with_a_vector(disk: &dyn Disk) {
    let file = make(disk, "random", b"");
    let (mut model, mut rng) = (Vec::new(), Rng::new(1));
    for _ in 0..500 {
        let mut part = vec![0; rng.index(5_000)];
        rng.fill(&mut part);
        let at = rng.index(20_000);
        match rng.below(8) {
            0 => {
                file.set_len(at as u64).expect("set");
                model.resize(at, 0);
                continue;
            }
            1 => file.write_durable_at(at as u64, &part).expect("written"),
            _ => file.write_at(at as u64, &part).expect("written"),
        }
        if !part.is_empty() {
            model.resize(model.len().max(at + part.len()), 0);
            model[at..at + part.len()].copy_from_slice(&part);
        }
        assert!(bytes(&*file) == model, "the file differs from the vector");
    }
}
