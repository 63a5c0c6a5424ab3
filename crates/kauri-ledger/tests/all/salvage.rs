//! Damaged journals: nothing is opened, until somebody has them salvaged.

use kauri_ledger::{Ledger, Salvage, Status};

use crate::scratch::{Scratch, audit_of};

const WAL: &str = "runtime/actions_wal.jsonl";
const ASIDE: &str = "runtime/actions_wal.jsonl.damaged-1";

/// A home with an action that is done, one that came to step 2, and one that came to step 1; then another that is done. The lines are:
/// done STARTED, done COMPLETED, recorded, begun, last STARTED, last COMPLETED.
fn filled(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let (ledger, _) = scratch.ledger();
    ledger.begin("done", "t", "x").unwrap().complete(Some("elsewhere")).unwrap();
    ledger.begin("recorded", "t", "x").unwrap().record_started().unwrap();
    drop(ledger.begin("begun", "t", "x").unwrap());
    ledger.begin("last", "t", "x").unwrap().complete(None).unwrap();
    drop(ledger);
    scratch
}

fn salvage(scratch: &Scratch) -> Option<Salvage> {
    Ledger::salvage(&scratch.lock().unwrap()).unwrap()
}

#[test]
fn whatever_line_is_damaged_the_others_are_kept_and_it_is_told() {
    // Which orphans there are afterwards: of an action that came only to step 1, its line was all that was known.
    let both = &["begun", "recorded"][..];
    let cases = [(0, both), (1, both), (2, both), (3, &["recorded"]), (4, both)];
    for (damaged, orphans) in cases {
        let scratch = filled(&format!("salvage-{damaged}"));
        let text = scratch.read(WAL);
        let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        let at: usize = lines[..damaged].iter().map(String::len).sum();
        lines[damaged].replace_range(20..24, "????");
        let (bytes, broken) = (lines[damaged].len(), lines.concat());
        scratch.write(WAL, &broken);
        assert!(Ledger::open(scratch.lock().unwrap()).unwrap_err().is_corruption(), "{damaged}");
        assert_eq!(scratch.read(WAL), broken, "nothing is changed unasked");

        let found = salvage(&scratch).expect("it is damaged");
        assert_eq!((found.kept, found.lost), (5, 1), "{damaged}");
        assert_eq!((found.places[0].at, found.places[0].bytes), (at as u64, bytes as u64), "{damaged}");
        assert_eq!((format!("runtime/{}", found.aside), scratch.read(ASIDE)), (ASIDE.to_owned(), broken), "{damaged}");
        let audit = scratch.read(audit_of("2026-02-21").to_str().unwrap());
        assert_eq!(audit.matches(r#""kind":"JOURNAL_SALVAGED""#).count(), 1, "{audit}");

        let (ledger, reconciled) = scratch.ledger();
        let ids: Vec<&str> = reconciled.orphans.iter().map(|row| row.action_id.as_str()).collect();
        assert_eq!(ids, orphans, "{damaged}: {reconciled:?}");
        for id in ["done", "last"] {
            assert_eq!(ledger.action(id).unwrap().map(|row| row.status), Some(Status::Completed), "{damaged}: {id}");
        }
        // A beginning that is lost, of an action that is known, is told by its name.
        assert_eq!(reconciled.findings.len(), usize::from([0, 2, 4].contains(&damaged)), "{damaged}: {reconciled:?}");
        drop(ledger);
        assert_eq!(salvage(&scratch), None, "it is whole now");
    }
}

#[test]
fn a_journal_that_is_whole_torn_or_not_there_is_left_as_it_is() {
    let scratch = filled("salvage-whole");
    let whole = scratch.read(WAL);
    for text in [whole.clone(), whole[..whole.len() - 7].to_owned(), String::new()] {
        scratch.write(WAL, &text);
        assert_eq!(salvage(&scratch), None);
        assert_eq!(scratch.read(WAL), text);
    }
    std::fs::remove_file(scratch.home().join(WAL)).unwrap();
    assert_eq!(salvage(&scratch), None);
    assert!(!scratch.home().join(ASIDE).exists());
}

#[test]
fn a_second_salvage_keeps_what_the_first_put_aside() {
    let scratch = filled("salvage-twice");
    for number in 1..3 {
        let text = scratch.read(WAL).replacen("\"t\"", "\"u\"", 1);
        scratch.write(WAL, &text);
        assert_eq!(salvage(&scratch).map(|found| found.aside), Some(format!("actions_wal.jsonl.damaged-{number}")));
    }
}
