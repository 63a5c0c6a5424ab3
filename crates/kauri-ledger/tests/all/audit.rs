//! The audit: a chain that shows what was changed.

use std::sync::Arc;
use std::time::Duration;

use kauri_disk::{Disk, MemoryDisk, Open};
use kauri_ledger::{Anchor, Audit, AuditNote, AuditReport, ManualClock, Redactor, verify_audit};

use crate::scratch::MORNING;

const DAY: Duration = Duration::from_secs(86_400);
const FIRST: &str = "2026-02-21.jsonl";
const SECOND: &str = "2026-02-22.jsonl";
const THIRD: &str = "2026-02-23.jsonl";

fn open(disk: &MemoryDisk, clock: &Arc<ManualClock>) -> Audit {
    Audit::open(Arc::new(disk.clone()), clock.clone(), Redactor::new()).unwrap()
}

fn note(number: u32) -> AuditNote {
    AuditNote::new("THING_DONE").action(format!("a-{number}")).trace("t").with("what", format!("thing {number}"))
}

/// Three days of three notes each. Answers the disk and what the head was at the end.
fn three_days() -> (MemoryDisk, Anchor) {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::new(MORNING)));
    let audit = open(&disk, &clock);
    for day in 0..3 {
        (0..3).for_each(|at| assert_eq!(audit.append(&note(day * 3 + at)).unwrap(), u64::from(day * 3 + at) + 1));
        clock.advance(DAY);
    }
    let head = audit.head();
    (disk, head)
}

fn bytes(disk: &MemoryDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, Open::ReadOnly).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn replace(disk: &MemoryDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(name, Open::Create).unwrap();
    file.set_len(0).unwrap();
    file.write_at(0, bytes).unwrap();
}

fn lines(disk: &MemoryDisk, name: &str) -> Vec<String> {
    String::from_utf8(bytes(disk, name)).unwrap().lines().map(|line| format!("{line}\n")).collect()
}

fn check(disk: &MemoryDisk, known: &[Anchor]) -> AuditReport {
    verify_audit(disk, known).unwrap()
}

#[test]
fn a_chain_goes_on_from_day_to_day_and_from_start_to_start() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::new(MORNING)));
    for round in 0..6 {
        let audit = open(&disk, &clock);
        assert_eq!(audit.append(&note(round)).unwrap(), u64::from(round) + 1);
        if round % 3 == 1 {
            audit.anchor().unwrap();
        }
        drop(audit);
        clock.advance(DAY / 2);
    }
    let report = check(&disk, &[]);
    assert!(report.is_whole() && report.lines == 6, "{report:?}");
    assert!(report.anchors >= 3, "{report:?}");
    let names: Vec<String> = disk.names().unwrap();
    assert_eq!(names, [FIRST, SECOND, THIRD, "anchors.jsonl"]);
}

#[test]
fn a_clock_that_is_set_back_brings_no_day_back() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::new(MORNING)));
    let audit = open(&disk, &clock);
    clock.advance(DAY);
    audit.append(&note(1)).unwrap();
    drop(audit);
    let earlier = Arc::new(ManualClock::new(MORNING));
    open(&disk, &earlier).append(&note(2)).unwrap();
    assert_eq!(lines(&disk, SECOND).len(), 2);
    assert!(check(&disk, &[]).is_whole());
}

#[test]
fn every_changed_byte_is_seen() {
    let (disk, head) = three_days();
    assert!(check(&disk, std::slice::from_ref(&head)).is_whole());
    for name in [FIRST, SECOND, THIRD, "anchors.jsonl"] {
        let whole = bytes(&disk, name);
        for at in (0..whole.len()).step_by(3) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            replace(&disk, name, &changed);
            let report = check(&disk, std::slice::from_ref(&head));
            // What is cut off the end of the anchors themselves, others keep.
            let is_seen = !report.is_whole() || report.torn.is_some() || name == "anchors.jsonl";
            assert!(is_seen, "{name}, byte {at}");
        }
        replace(&disk, name, &whole);
    }
}

#[test]
fn what_is_taken_out_or_cut_off_is_seen() {
    let (disk, head) = three_days();
    let known = std::slice::from_ref(&head);
    for name in [FIRST, SECOND, THIRD] {
        let whole = lines(&disk, name);
        for at in 0..whole.len() {
            let mut fewer = whole.clone();
            fewer.remove(at);
            replace(&disk, name, fewer.concat().as_bytes());
            assert!(!check(&disk, known).is_whole(), "{name} without line {at}");
        }
        replace(&disk, name, whole.concat().as_bytes());
    }
    // The end of the last day: only an anchor knows that there was more.
    let whole = lines(&disk, THIRD);
    replace(&disk, THIRD, whole[..2].concat().as_bytes());
    let report = check(&disk, known);
    assert!(report.broken.is_empty() && report.unanchored.len() == 1, "{report:?}");
    // A whole day.
    replace(&disk, THIRD, whole.concat().as_bytes());
    disk.remove(SECOND).unwrap();
    assert!(!check(&disk, known).is_whole());
}

#[test]
fn stripped_hashes_are_seen_and_never_cut_away_as_a_torn_tail() {
    let strip = |line: &String| format!("{}}}\n", &line[..line.find(r#","prev_hash""#).unwrap()]);
    // All days; the newest alone, which nothing follows; of that, the last line alone, where a torn tail would be.
    for (names, from) in [(&[FIRST, SECOND, THIRD][..], 0), (&[THIRD][..], 0), (&[THIRD][..], 2)] {
        let (disk, _) = three_days();
        for name in names {
            let lines = lines(&disk, name);
            let stripped: String = lines[..from].iter().cloned().chain(lines[from..].iter().map(strip)).collect();
            replace(&disk, name, stripped.as_bytes());
        }
        assert!(!check(&disk, &[]).is_whole(), "{names:?} {from}");
        let before = bytes(&disk, THIRD);
        let opened = Audit::open(Arc::new(disk.clone()), Arc::new(ManualClock::new(MORNING)), Redactor::new());
        assert!(opened.expect_err("an alarm").is_corruption(), "{names:?} {from}");
        assert_eq!(bytes(&disk, THIRD), before, "the evidence stays");
    }
}

#[test]
fn a_chain_that_was_written_anew_does_not_fit_its_anchors() {
    let (disk, head) = three_days();
    let (forged, clock) = (MemoryDisk::new(), Arc::new(ManualClock::new(MORNING)));
    let audit = open(&forged, &clock);
    for day in 0..3 {
        for at in 0..3 {
            audit.append(&note(day * 3 + at).with("what", "another thing")).unwrap();
        }
        clock.advance(DAY);
    }
    drop(audit);
    assert!(check(&forged, &[]).is_whole(), "by itself it is whole");
    assert!(!check(&forged, std::slice::from_ref(&head)).is_whole(), "the database knows better");
    replace(&forged, "anchors.jsonl", &bytes(&disk, "anchors.jsonl"));
    assert!(!check(&forged, &[]).is_whole(), "and so do the anchors");
}

#[test]
fn days_that_were_moved_away_leave_the_rest_verifiable() {
    let (disk, head) = three_days();
    disk.remove(FIRST).unwrap();
    let report = check(&disk, std::slice::from_ref(&head));
    assert!(report.is_whole() && report.lines == 6, "{report:?}");
    disk.remove(SECOND).unwrap();
    assert!(check(&disk, std::slice::from_ref(&head)).is_whole());
    // And the chain goes on.
    let audit = open(&disk, &Arc::new(ManualClock::new(MORNING)));
    assert_eq!(audit.append(&note(9)).unwrap(), 10);
    assert!(check(&disk, &[head]).is_whole());
}

#[test]
fn a_torn_tail_is_cut_off_and_the_chain_goes_on() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::new(MORNING)));
    let audit = open(&disk, &clock);
    for at in 0..3 {
        audit.append(&note(at)).unwrap();
    }
    drop(audit);
    let whole = bytes(&disk, FIRST);
    let last = lines(&disk, FIRST)[..2].concat().len();
    for cut in last + 1..whole.len() {
        replace(&disk, FIRST, &whole[..cut]);
        assert!(check(&disk, &[]).torn.is_some());
        let audit = open(&disk, &clock);
        assert!(audit.torn().is_some(), "{cut}");
        assert_eq!(audit.append(&note(7)).unwrap(), 3);
        drop(audit);
        assert!(check(&disk, &[]).is_whole(), "{cut}");
    }
}

#[test]
fn secrets_are_taken_out_before_the_hash() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::new(MORNING)));
    open(&disk, &clock).append(&note(1).with("header", "Authorization: Bearer abcdefghijkl")).unwrap();
    let text = lines(&disk, FIRST).concat();
    assert!(text.contains("[redacted]") && !text.contains("abcdefghijkl"), "{text}");
    assert!(check(&disk, &[]).is_whole());
}

#[test]
fn threads_share_a_chain() {
    let (disk, clock) = (MemoryDisk::new(), Arc::new(ManualClock::new(MORNING)));
    let audit = open(&disk, &clock);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (audit, clock) = (&audit, &clock);
            scope.spawn(move || {
                for at in 0..20 {
                    audit.append(&note(thread * 100 + at)).unwrap();
                    // Days end in between.
                    clock.advance(DAY / 50);
                }
            });
        }
    });
    let report = check(&disk, &[audit.head()]);
    assert!(report.is_whole() && report.lines == 160, "{report:?}");
    assert!(disk.names().unwrap().len() >= 4);
}
