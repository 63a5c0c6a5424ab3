//! Each invariant is seen to be broken when it is.

use kauri_ledger::{Artifact, Begin, Decision, Finding, Invariant, Ledger};

use crate::scratch::Scratch;

/// A ledger with an action of every kind, and whose invariants hold.
fn ledger(name: &str) -> (Scratch, Ledger) {
    let scratch = Scratch::new(name);
    let (ledger, _) = scratch.ledger();
    ledger.begin("done", "t", "x").unwrap().complete_with(Artifact::bytes(b"result")).unwrap();
    ledger.begin_with(Begin::new("needy", "t", "x").needs("done")).unwrap().complete(None).unwrap();
    ledger.begin("failed", "t", "x").unwrap().fail("no").unwrap();
    ledger.begin_with(Begin::new("again", "t", "x").retry_of("failed")).unwrap().complete(None).unwrap();
    drop(ledger.begin("orphan", "t", "x").unwrap());
    drop(ledger.reconcile().unwrap());
    ledger.resolve("orphan", &Decision::NeedsHuman).unwrap();
    let live = ledger.begin("live", "t", "x").unwrap();
    assert_eq!(ledger.check().unwrap(), [], "all is well, with one under way");
    drop(live);
    ledger.resolve("live", &Decision::Retry).unwrap();
    assert_eq!(ledger.check().unwrap(), []);
    (scratch, ledger)
}

/// Breaks something, and sees that the invariant is told to be broken by something that says so.
fn check(invariant: Invariant, says: &str, name: &str, breaks: impl FnOnce(&Scratch, &Ledger)) {
    let (scratch, ledger) = ledger(name);
    breaks(&scratch, &ledger);
    let found = ledger.check().unwrap();
    let is_it = |finding: &Finding| finding.invariant == invariant && finding.what.contains(says);
    assert!(found.iter().any(is_it), "{invariant:?} {says}: {found:?}");
}

fn sql(scratch: &Scratch, sql: &str) {
    scratch.sql().execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")).unwrap();
}

#[test]
fn i1_a_completed_line_without_its_row() {
    check(Invariant::I1, "done: the journal says COMPLETED, the database STARTED", "i1a", |scratch, _| {
        sql(scratch, "UPDATE actions SET status = 'STARTED' WHERE action_id = 'done'");
    });
    check(Invariant::I1, "done: the journal says COMPLETED, the database nothing", "i1b", |scratch, _| {
        sql(scratch, "DELETE FROM actions WHERE action_id = 'done'");
    });
}

#[test]
fn i2_a_completed_row_without_its_artifact() {
    check(Invariant::I2, "done: completed, and artifacts/", "i2a", |scratch, ledger| {
        let result = ledger.action("done").unwrap().unwrap().result_ref.unwrap();
        std::fs::remove_file(scratch.home().join(result)).unwrap();
    });
    check(Invariant::I2, "done: completed, and artifacts/", "i2b", |scratch, ledger| {
        let result = ledger.action("done").unwrap().unwrap().result_ref.unwrap();
        scratch.write(&result, "another");
    });
    check(Invariant::I2, "needy: completed, and done, which it needs, is MISSING", "i2c", |scratch, _| {
        sql(scratch, "UPDATE actions SET status = 'MISSING' WHERE action_id = 'done'");
    });
}

#[test]
fn i3_an_action_without_an_end() {
    check(Invariant::I3, "left: begun at 2026-02-21", "i3", |_, ledger| {
        let mut action = ledger.begin("left", "t", "x").unwrap();
        action.record_started().unwrap();
    });
}

#[test]
fn i4_an_action_that_is_retried_although_it_was_done() {
    check(Invariant::I4, "again: retries failed, which is COMPLETED", "i4a", |scratch, _| {
        sql(scratch, "UPDATE actions SET status = 'COMPLETED' WHERE action_id = 'failed'");
    });
    check(Invariant::I4, "done: COMPLETED in line 2, begun never or ended before", "i4b", |scratch, _| {
        // A journal whose first action was begun under another name.
        let wal = scratch.read("runtime/actions_wal.jsonl");
        let mut lines: Vec<String> = wal.lines().map(str::to_owned).collect();
        let (line, _) = lines[0].split_once(r#","checksum""#).unwrap();
        let line = line.replacen(r#""done""#, r#""gone""#, 1);
        let sum = twox_hash::XxHash3_64::oneshot(line.as_bytes());
        lines[0] = format!(r#"{line},"checksum":"{sum:016x}"}}"#);
        scratch.write("runtime/actions_wal.jsonl", &format!("{}\n", lines.join("\n")));
    });
}

#[test]
fn i5_an_action_without_a_root() {
    check(Invariant::I5, "done: no trace", "i5a", |scratch, _| {
        sql(scratch, "UPDATE actions SET trace_id = '' WHERE action_id = 'done'");
    });
    check(Invariant::I5, "again: retries failed, which belongs to another trace", "i5b", |scratch, _| {
        sql(scratch, "UPDATE actions SET trace_id = 'u' WHERE action_id = 'failed'");
    });
    check(Invariant::I5, "needy: needs nobody, which is not there", "i5c", |scratch, _| {
        sql(scratch, "INSERT INTO action_links VALUES ('needy', 'needs', 'nobody')");
    });
}

#[test]
fn i6_an_audit_that_was_edited() {
    check(Invariant::I6, "2026-02-21.jsonl is damaged", "i6", |scratch, _| {
        let edited = scratch.read("audit/2026-02-21.jsonl").replacen("done", "gone", 1);
        scratch.write("audit/2026-02-21.jsonl", &edited);
    });
}

#[test]
fn i7_an_audit_whose_end_was_cut_off() {
    check(Invariant::I7, "was anchored, and the audit ends with line", "i7", |scratch, ledger| {
        // The database keeps the audit's head as of the last end of an action.
        ledger.begin("more", "t", "x").unwrap().complete(None).unwrap();
        let audit = scratch.read("audit/2026-02-21.jsonl");
        let lines: Vec<&str> = audit.split_inclusive('\n').collect();
        scratch.write("audit/2026-02-21.jsonl", &lines[..lines.len() - 2].concat());
    });
}

#[test]
fn i8_a_database_that_disagrees_with_the_rest_or_with_itself() {
    check(Invariant::I8, "the kill switch is thrown", "i8a", |scratch, _| {
        sql(scratch, "INSERT INTO state VALUES ('kill_switch', 'x', '')");
    });
    check(Invariant::I8, "a row of action_links refers", "i8b", |scratch, _| {
        sql(scratch, "INSERT INTO action_links VALUES ('nobody', 'needs', 'done')");
    });
    check(Invariant::I8, "failed: the journal says FAILED, the database RETRIABLE", "i8c", |scratch, _| {
        sql(scratch, "UPDATE actions SET status = 'RETRIABLE' WHERE action_id = 'failed'");
    });
    check(Invariant::I8, "extra: STARTED in the database, and the journal knows nothing", "i8d", |scratch, _| {
        sql(
            scratch,
            "INSERT INTO actions (action_id, trace_id, task, started_at) VALUES ('extra', 't', 'x', '2026-02-21T00:00:00Z')",
        );
    });
    check(Invariant::I8, "actions_wal.jsonl is damaged", "i8e", |scratch, _| {
        let edited = scratch.read("runtime/actions_wal.jsonl").replacen("done", "gone", 1);
        scratch.write("runtime/actions_wal.jsonl", &edited);
    });
}

#[test]
fn i9_a_lock_that_is_somebody_elses_or_out_of_its_place() {
    let meta = |pid: u32, position: u32, scratch: &Scratch| {
        let text = scratch.read("runtime/home.lock.meta");
        let mut meta: serde_json::Value = serde_json::from_str(&text).unwrap();
        meta["pid"] = pid.into();
        meta["lock_order_position"] = position.into();
        scratch.write("runtime/home.lock.meta", &meta.to_string());
    };
    check(Invariant::I9, "its metadata names process 1", "i9a", |scratch, _| meta(1, 0, scratch));
    check(Invariant::I9, "taken as lock 0, and its metadata says 3", "i9b", |scratch, _| {
        meta(std::process::id(), 3, scratch);
    });
    check(Invariant::I9, "was removed or replaced while it was locked", "i9c", |scratch, _| {
        std::fs::remove_file(scratch.home().join("runtime/home.lock")).unwrap();
    });
}
