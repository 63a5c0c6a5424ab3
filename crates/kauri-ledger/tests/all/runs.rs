//! The whole of it, from outside: a run from lock to lock, and a look at a home.

use std::sync::Arc;

use kauri_ledger::{Clock, Home, LockState, Status, SystemClock, WalLine, examine};

use crate::scratch::Scratch;

/// TestE2EOutboxInRun.
#[test]
fn a_whole_run_leaves_lines_and_rows_for_every_node() {
    let scratch = Scratch::new("run");
    let workspace = scratch.directory("workspace");
    let (ledger, _) = scratch.ledger();
    let held = ledger.home().workspace(&workspace).unwrap();
    ledger.database().insert_run("run-1", "running", 3).unwrap();
    for (node, works) in [("plan", true), ("build", true), ("ship", false)] {
        let mut action = ledger.begin(format!("run-1/{node}"), "run-1", format!("node {node}")).unwrap();
        action.record_started().unwrap();
        std::fs::write(held.directory().join(node), node).unwrap();
        match works {
            true => action.complete(Some(&format!("workspace/{node}"))).unwrap(),
            false => action.fail("no ship").unwrap(),
        }
    }
    ledger.database().update_run_status("run-1", "partial_failure", true).unwrap();
    drop(held);
    assert_eq!(ledger.check().unwrap(), []);
    drop(ledger);

    let wal = scratch.read("runtime/actions_wal.jsonl");
    let lines: Vec<WalLine<'_>> = wal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<(&str, Status)> = lines.iter().map(|line| (&*line.action_id, line.status)).collect();
    let expected = [
        ("run-1/plan", Status::Started),
        ("run-1/plan", Status::Completed),
        ("run-1/build", Status::Started),
        ("run-1/build", Status::Completed),
        ("run-1/ship", Status::Started),
        ("run-1/ship", Status::Failed),
    ];
    assert_eq!(said, expected);
    let count = |status: &str| -> u32 {
        let sql = "SELECT count(*) FROM actions WHERE trace_id = 'run-1' AND status = ?1";
        scratch.sql().query_row(sql, [status], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("COMPLETED"), count("FAILED"), count("STARTED")), (2, 1, 0));
    let audit = scratch.read("audit/2026-02-21.jsonl");
    let lines = audit.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let told: Vec<[String; 2]> = lines
        .filter(|line| line["trace_id"] == "run-1")
        .map(|line| [&line["kind"], &line["action_id"]].map(|value| value.as_str().unwrap().to_owned()))
        .collect();
    let expected =
        [["ACTION_COMPLETED", "run-1/plan"], ["ACTION_COMPLETED", "run-1/build"], ["ACTION_FAILED", "run-1/ship"]];
    assert_eq!(told, expected);
    assert_eq!(Home::probe(scratch.home()).unwrap(), LockState::Free);
}

/// TestE2EDoctorLocks.
#[test]
fn a_look_from_outside_tells_who_works_and_what_is_left_undone() {
    let scratch = Scratch::new("look");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let look = || examine(&scratch.home(), &clock).unwrap();
    let nothing = look();
    assert!(
        nothing.to_string().starts_with("lock: free\nwriter queue: stopped\nactions: none without an end\n"),
        "{nothing}"
    );
    assert!(!scratch.home().exists(), "a look makes nothing");

    let (ledger, _) = scratch.ledger();
    let action = ledger.begin("mail-1", "t", "send a mail").unwrap();
    let held = look();
    assert!(matches!(&held.lock, LockState::Held(Some(holder)) if holder.is_this_process()));
    let text = held.to_string();
    let expected = [
        &format!("lock: held by process {} ", std::process::id()),
        " since 2026-02-21T09:30:00.000Z, for ",
        "writer queue: running",
        "actions: 1 under way or without an end\n  mail-1: send a mail\n",
        "audit: whole",
        "kill switch: not thrown",
    ];
    expected.iter().for_each(|part| assert!(text.contains(*part), "{part}: {text}"));
    drop((action, ledger));

    // The same after a crash: nobody has the lock, and its metadata is there still.
    scratch.write(
        "runtime/home.lock.meta",
        r#"{"pid":77,"timestamp":"2026-02-20T00:00:00Z","lock_order_position":0,"lock_version":1}"#,
    );
    scratch.write("runtime/KILL_SWITCH", "enough");
    let stale = look().to_string();
    for part in [
        "lock: free; left behind by process 77 at 2026-02-20",
        "actions: 1 without an end",
        "kill switch: thrown, enough",
    ] {
        assert!(stale.contains(part), "{part}: {stale}");
    }
}
