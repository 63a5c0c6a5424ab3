//! Journals that are torn, damaged and failed.
#![expect(clippy::disallowed_methods, reason = "callers are threads")]

use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::*;
use crate::seal::{check, seal};
use kauri_disk::MemoryDisk;
use kauri_disk::testing::{Call, TwistedDisk};

const NAME: &str = "j";

/// Counts durable writes, holds them up and fails them.
#[derive(Default)]
struct Gate {
    writes: AtomicU32,
    is_shut: Mutex<bool>,
    opened: Condvar,
    fails: AtomicBool,
}

/// A disk, and the same behind a gate.
#[derive(Clone)]
struct Gated {
    disk: MemoryDisk,
    gated: TwistedDisk<MemoryDisk>,
    gate: Arc<Gate>,
}

impl Default for Gated {
    fn default() -> Self {
        let (disk, gate) = (MemoryDisk::new(), Arc::<Gate>::default());
        let stands = Arc::clone(&gate);
        let gated = TwistedDisk::new(disk.clone(), move |call, go| match call {
            Call::WriteDurableAt(on, at, bytes) => match stands.is_passed() {
                true => go(),
                false => {
                    on.file.write_at(at, &bytes[..bytes.len() / 2])?;
                    Err(io::ErrorKind::StorageFull.into())
                }
            },
            _ => go(),
        });
        Self { disk, gated, gate }
    }
}

impl Gate {
    /// Stands there while it is shut, and tells whether the write may go on.
    fn is_passed(&self) -> bool {
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut is_shut = self.is_shut.lock().unwrap();
        while *is_shut {
            is_shut = self.opened.wait(is_shut).unwrap();
        }
        !self.fails.load(Ordering::SeqCst)
    }

    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }
}

fn open(disk: impl Disk) -> Result<(Journal<()>, Option<Torn>, Vec<String>)> {
    let mut lines = Vec::new();
    let (journal, torn) = Journal::open(Arc::new(disk), NAME, (1, ()), check, |(), _, line| {
        let value: serde_json::Value = serde_json::from_slice(line).expect("it was checked");
        lines.push(value["text"].as_str().unwrap_or_default().to_owned());
        Ok(())
    })?;
    journal.cut()?;
    Ok((journal, torn, lines))
}

fn append(journal: &Journal<()>, text: &str) -> Result<u64> {
    journal.append(|Head { seq, batch }, (), out| {
        let start = out.len();
        let line = serde_json::json!({ "text": text, "seq": seq, "batch": batch });
        serde_json::to_writer(&mut *out, &line).expect("memory");
        seal(out, start);
    })
}

fn bytes(disk: &MemoryDisk) -> Vec<u8> {
    let file = disk.open(NAME, Open::ReadOnly).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn disk_of(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.open(NAME, Open::CreateNew).unwrap().write_at(0, bytes).unwrap();
    disk
}

/// A journal of two batches: one line, and then `count` lines that were synced together.
fn two_batches(count: u64) -> (Gated, Vec<u8>) {
    let disk = Gated::default();
    let (journal, ..) = open(disk.gated.clone()).unwrap();
    disk.gate.shut(true);
    std::thread::scope(|scope| {
        let submit = |at: u64| {
            drop(scope.spawn({
                let journal = &journal;
                move || append(journal, &format!("line {at}")).unwrap()
            }));
        };
        submit(0);
        // The first writes and stands at the gate; the others wait for it.
        while disk.gate.writes.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        (1..=count).for_each(submit);
        while journal.state().newest.seq < count + 1 {
            std::thread::yield_now();
        }
        disk.gate.shut(false);
    });
    let bytes = bytes(&disk.disk);
    (disk, bytes)
}

#[test]
fn appends_that_wait_share_a_sync() {
    let (disk, _) = two_batches(20);
    assert_eq!(disk.gate.writes.load(Ordering::SeqCst), 2);
    let (journal, torn, lines) = open(disk.gated).unwrap();
    assert_eq!((journal.tip().0, torn, lines.len()), (21, None, 21));
    assert_eq!(append(&journal, "more").unwrap(), 22);
}

#[test]
fn many_callers_find_their_lines_in_the_order_of_their_numbers() {
    let disk = MemoryDisk::new();
    let (journal, ..) = open(disk.clone()).unwrap();
    let mut told: Vec<(u64, String)> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..16)
            .map(|caller| {
                let journal = &journal;
                let line = move |at| format!("{caller} {at}");
                scope.spawn(move || {
                    (0..100).map(|at| (append(journal, &line(at)).unwrap(), line(at))).collect::<Vec<_>>()
                })
            })
            .collect();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    });
    told.sort_unstable();
    assert!(told.iter().map(|(seq, _)| *seq).eq(1..=1_600), "every number once");
    drop(journal);
    assert_eq!(open(disk).unwrap().2, told.into_iter().map(|(_, line)| line).collect::<Vec<_>>());
}

#[test]
fn whatever_a_crash_leaves_of_the_last_batch_is_cut_off() {
    let (_, bytes) = two_batches(6);
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut cut = 0;
    for round in 0..4_000 {
        let mut torn = bytes.clone();
        for piece in torn[second..].chunks_mut(16) {
            if random() % 3 == 0 {
                piece.fill_with(|| if round % 2 == 0 { 0 } else { (random() & 0xff) as u8 });
            }
        }
        torn.truncate(second + usize::try_from(random()).unwrap() % (bytes.len() - second + 1));
        let disk = disk_of(&torn);
        let (journal, found, lines) = open(disk.clone()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(lines[0], "line 0", "what was acknowledged stays");
        cut += u32::from(found.is_some());
        append(&journal, "after").unwrap();
        drop(journal);
        let (_, found, after) = open(disk).unwrap();
        assert!(found.is_none() && after.len() == lines.len() + 1 && after.starts_with(&lines), "round {round}");
    }
    assert!(cut > 3_000, "{cut}");
}

#[test]
fn a_damaged_middle_is_an_alarm() {
    let (_, bytes) = two_batches(3);
    let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for at in 0..second {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let error = open(disk_of(&damaged)).map(drop).unwrap_err();
            assert!(error.is_corruption(), "bit {bit} of byte {at}: {error}");
        }
    }
    // Of the last batch, a changed bit is told, or cut off with all that follows; it is never taken for true.
    for at in second..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        match open(disk_of(&damaged)) {
            Ok((_, torn, lines)) => assert!(torn.is_some() && lines.len() < 4, "byte {at}"),
            Err(error) => assert!(error.is_corruption(), "byte {at}: {error}"),
        }
    }
}

#[test]
fn lines_that_are_taken_out_doubled_or_exchanged_are_an_alarm() {
    let disk = MemoryDisk::new();
    let (journal, ..) = open(disk.clone()).unwrap();
    (0..4).for_each(|at| drop(append(&journal, &format!("line {at}"))));
    let bytes = bytes(&disk);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let orders: [&[usize]; 6] = [&[1, 2, 3], &[0, 2, 3], &[0, 1, 3], &[0, 0, 1, 2, 3], &[1, 0, 2, 3], &[0, 1, 3, 2]];
    for order in orders {
        let changed: Vec<u8> = order.iter().flat_map(|at| lines[*at].to_vec()).collect();
        assert!(open(disk_of(&changed)).map(drop).unwrap_err().is_corruption(), "{order:?}");
    }
    // The end alone cannot be told from one that was never written; the database can.
    assert_eq!(open(disk_of(&lines[..3].concat())).unwrap().2.len(), 3);
}

#[test]
fn a_line_that_was_edited_is_not_taken_for_a_torn_one() {
    let disk = MemoryDisk::new();
    let (journal, ..) = open(disk.clone()).unwrap();
    append(&journal, "pay 10").unwrap();
    let edited = String::from_utf8(bytes(&disk)).unwrap().replace("10", "90");
    assert!(open(disk_of(edited.as_bytes())).map(drop).unwrap_err().is_corruption());
}

#[test]
fn a_failed_write_fails_whoever_waited_and_the_next_one_goes_on() {
    let disk = Gated::default();
    let (journal, ..) = open(disk.gated.clone()).unwrap();
    append(&journal, "before").unwrap();
    disk.gate.shut(true);
    disk.gate.fails.store(true, Ordering::SeqCst);
    let told: Vec<bool> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..5).map(|_| scope.spawn(|| append(&journal, "lost").is_err())).collect();
        while journal.state().newest.seq < 6 {
            std::thread::yield_now();
        }
        disk.gate.shut(false);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(told, [true; 5]);
    disk.gate.fails.store(false, Ordering::SeqCst);
    assert_eq!(append(&journal, "after").unwrap(), 2);
    drop(journal);
    assert_eq!(open(disk.disk).unwrap().2, ["before", "after"]);
}

#[test]
fn lines_of_any_length_are_read_back() {
    let disk = MemoryDisk::new();
    let (journal, ..) = open(disk.clone()).unwrap();
    let long = "x".repeat(1 << 20);
    for text in ["", &long, "é\n\"\\\u{0}", &long] {
        append(&journal, text).unwrap();
    }
    drop(journal);
    assert_eq!(open(disk).unwrap().2, ["", &long, "é\n\"\\\u{0}", &long]);
}

#[test]
fn a_rewritten_journal_goes_on_where_it_was_told() {
    let disk = MemoryDisk::new();
    let (journal, ..) = open(disk.clone()).unwrap();
    (0..4).for_each(|at| drop(append(&journal, &format!("line {at}"))));
    let first = bytes(&disk).split_inclusive(|byte| *byte == b'\n').next().unwrap().to_vec();
    journal.rewrite(&first, 1).unwrap();
    assert_eq!(append(&journal, "new").unwrap(), 2);
    drop(journal);
    assert_eq!(open(disk).unwrap().2, ["line 0", "new"]);
}
