//! Actions: begun, ended, orphaned, reconciled, decided about.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kauri_disk::{Disk, OsDisk};
use kauri_ledger::{
    Actions, Artifact, Audit, Begin, Database, Decision, Error, Ground, Ledger, ManualClock, Reconciliation, Redactor,
    Repair, Status, Timestamp, WalLine,
};

use crate::scratch::Scratch;

const WAL: &str = "runtime/actions_wal.jsonl";

/// One action that completes with an artifact.
fn complete(ledger: &Ledger, id: &str) -> String {
    let mut action = ledger.begin(id, "t-1", "make something").unwrap();
    action.record_started().unwrap();
    action.complete_with(Artifact::bytes(id.as_bytes())).unwrap()
}

fn status(ledger: &Ledger, id: &str) -> Option<Status> {
    ledger.action(id).unwrap().map(|row| row.status)
}

/// Takes so many lines off the journal's end.
fn cut_lines(scratch: &Scratch, count: usize) {
    let wal = scratch.read(WAL);
    let lines: Vec<&str> = wal.split_inclusive('\n').collect();
    scratch.write(WAL, &lines[..lines.len() - count].concat());
}

/// Changes the database behind the ledger's back, as somebody who puts an older copy in its place.
fn sql(scratch: &Scratch, sql: &str) {
    scratch.sql().execute_batch(&format!("PRAGMA foreign_keys = OFF; DELETE FROM journal_marks; {sql}")).unwrap();
}

/// TestOutboxBeginComplete.
#[test]
fn beginning_and_end_are_lines_with_the_agreed_fields() {
    let scratch = Scratch::new("lines");
    let (ledger, _) = scratch.ledger();
    let mut action = ledger.begin("a-1", "t-1", "send a mail").unwrap();
    assert_eq!(scratch.read(WAL).lines().count(), 1, "the line is there before the effect may happen");
    action.record_started().unwrap();
    let result = action.complete_with(Artifact::bytes(b"250 accepted")).unwrap();
    let wal = scratch.read(WAL);
    let lines: Vec<serde_json::Value> = wal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names = |line: &serde_json::Value| line.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&lines[0]), ["action_id", "trace_id", "task", "status", "timestamp", "seq", "batch", "checksum"]);
    assert_eq!(
        names(&lines[1]),
        ["action_id", "trace_id", "task", "status", "timestamp", "result_ref", "seq", "batch", "checksum"]
    );
    for (line, status, seq) in [(&lines[0], "STARTED", 1), (&lines[1], "COMPLETED", 2)] {
        assert_eq!((&line["action_id"], &line["trace_id"]), (&"a-1".into(), &"t-1".into()));
        assert_eq!((&line["status"], &line["seq"]), (&status.into(), &seq.into()));
        assert_eq!(line["timestamp"], "2026-02-21T09:30:00.000Z");
    }
    assert_eq!((&lines[0]["task"], &lines[1]["result_ref"]), (&"send a mail".into(), &result.clone().into()));
    let mut bytes = Vec::new();
    ledger.actions().artifact(&result).unwrap().unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"250 accepted");
}

/// TestOutboxReconcile.
#[test]
fn what_was_begun_and_not_ended_is_found_at_the_next_start() {
    let scratch = Scratch::new("orphans");
    let (ledger, _) = scratch.ledger();
    complete(&ledger, "done");
    ledger.begin("failed", "t-1", "x").unwrap().fail("no").unwrap();
    drop(ledger.begin("begun", "t-1", "half a thing").unwrap());
    let mut recorded = ledger.begin("recorded", "t-2", "x").unwrap();
    recorded.record_started().unwrap();
    drop(recorded);
    // What somebody is at is no orphan, also for a second look.
    let live = ledger.begin("live", "t-1", "x").unwrap();
    let ids = |found: &Reconciliation| found.orphans.iter().map(|row| row.action_id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&ledger.reconcile().unwrap()), ["begun", "recorded"]);
    drop((live, ledger));

    let (ledger, found) = scratch.ledger();
    assert_eq!(ids(&found), ["begun", "live", "recorded"]);
    assert_eq!((found.orphans[0].task.as_str(), found.orphans[2].trace_id.as_str()), ("half a thing", "t-2"));
    assert_eq!(ledger.actions().orphans(), found.orphans);
    assert_eq!(found.lines, 7);
}

/// TestOutboxDBIntegration.
#[test]
fn rows_follow_the_steps_through_the_queue() {
    type Row = (String, Option<String>, Option<String>, Option<String>);
    let scratch = Scratch::new("rows");
    let (ledger, _) = scratch.ledger();
    let row = |id: &str| -> Option<Row> {
        let sql = "SELECT status, result_ref, error, completed_at FROM actions WHERE action_id = ?1";
        let row = scratch.sql().query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)));
        rusqlite::OptionalExtension::optional(row).unwrap()
    };
    let before = ledger.queue().submissions;
    let mut action = ledger.begin("a", "t", "x").unwrap();
    assert_eq!(row("a"), None);
    action.record_started().unwrap();
    assert_eq!(row("a"), Some(("STARTED".to_owned(), None, None, None)));
    action.complete(Some("elsewhere")).unwrap();
    let time = || Some("2026-02-21T09:30:00.000Z".to_owned());
    assert_eq!(row("a"), Some(("COMPLETED".to_owned(), Some("elsewhere".to_owned()), None, time())));
    let mut action = ledger.begin("b", "t", "x").unwrap();
    action.fail("password=secret").unwrap();
    assert_eq!(row("b"), Some(("FAILED".to_owned(), None, Some("password=[redacted]".to_owned()), time())));
    assert_eq!(ledger.queue().submissions - before, 4, "each through the queue");
}

#[test]
fn the_journal_says_an_end_only_after_the_database_does() {
    let scratch = Scratch::new("order-of-ends");
    let (ledger, _) = scratch.ledger();
    let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON actions BEGIN SELECT RAISE(ABORT, 'not now'); END";
    for (id, does_work) in [("done", true), ("failed", false)] {
        let mut action = ledger.begin(id, "t", "x").unwrap();
        action.record_started().unwrap();
        let lines = scratch.read(WAL).lines().count();
        scratch.sql().execute_batch(refuse).unwrap();
        let mut end = || if does_work { action.complete(None) } else { action.fail("no") };
        assert!(matches!(end(), Err(Error::Sql { .. })));
        assert_eq!((scratch.read(WAL).lines().count(), status(&ledger, id)), (lines, Some(Status::Started)));
        scratch.sql().execute_batch("DROP TRIGGER refuse").unwrap();
        end().unwrap();
        assert_eq!(scratch.read(WAL).lines().count(), lines + 1);
    }
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn an_id_is_used_once() {
    let scratch = Scratch::new("once");
    let (ledger, _) = scratch.ledger();
    let exists = |answer: kauri_ledger::Result<kauri_ledger::Action>| match answer {
        Err(Error::ActionExists { status, .. }) => status,
        other => panic!("{other:?}"),
    };
    let live = ledger.begin("a", "t", "x").unwrap();
    assert_eq!(exists(ledger.begin("a", "t", "x")), Status::Started);
    drop(live);
    assert_eq!(exists(ledger.begin("a", "t", "x")), Status::Started, "an orphan is one still");
    complete(&ledger, "b");
    assert_eq!(exists(ledger.begin("b", "t", "x")), Status::Completed);
    ledger.actions().compact().unwrap();
    assert_eq!(exists(ledger.begin("b", "t", "x")), Status::Completed, "also when the journal has forgotten it");
    drop(ledger);
    let (ledger, _) = scratch.ledger();
    assert_eq!(exists(ledger.begin("a", "t", "x")), Status::Started);
    assert_eq!(exists(ledger.begin("b", "t", "x")), Status::Completed);
    for (id, trace) in [("", "t"), ("c", ""), (&"x".repeat(257), "t")] {
        assert!(matches!(ledger.begin(id, trace, "x"), Err(Error::Input { .. })));
    }
}

#[test]
fn an_action_ends_once() {
    let scratch = Scratch::new("ends");
    let (ledger, _) = scratch.ledger();
    let mut action = ledger.begin("a", "t", "x").unwrap();
    action.fail("no").unwrap();
    for answer in [action.complete(None), action.fail("still no"), action.complete_with(Artifact::bytes(b"")).map(drop)]
    {
        assert!(matches!(answer, Err(Error::WrongStatus { status: Status::Failed, .. })), "{answer:?}");
    }
    assert_eq!(scratch.read(WAL).lines().count(), 2);
    assert_eq!(ledger.check().unwrap(), []);
}

/// A repair is audited before it is made: with an audit that cannot be written, journal and rows stay as they are.
fn nothing_is_repaired_without_an_audit(scratch: &Scratch, name: &str) {
    let state = || {
        let sql = scratch.sql();
        let mut rows = sql.prepare("SELECT action_id, status, result_ref FROM actions ORDER BY 1").unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows: Vec<(String, String, Option<String>)> =
            rows.query_map([], row).unwrap().map(Result::unwrap).collect();
        (scratch.read(WAL), rows)
    };
    let (before, _lock) = (state(), scratch.lock());
    // The day ends, and the place of the next is gone.
    let place = scratch.directory("no-audit");
    let clock = Arc::new(ManualClock::new(Timestamp(0)));
    let disk = |path: &Path| -> Arc<dyn Disk> { Arc::new(OsDisk::new(path).unwrap()) };
    let audit = Audit::open(disk(&place), clock.clone(), Redactor::new()).unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    clock.advance(Duration::from_secs(86_400));
    let (runtime, artifacts) = (scratch.home().join("runtime"), scratch.home().join("artifacts"));
    std::fs::create_dir_all(&artifacts).unwrap();
    let database = Database::open(&runtime, clock.clone(), |_| {}).unwrap();
    let ground = Ground {
        journal: disk(&runtime),
        artifacts: disk(&artifacts),
        rows: Arc::new(database),
        audit: Some(Arc::new(audit)),
        clock,
        redactor: Redactor::new(),
    };
    assert!(Actions::open(ground).is_err(), "{name}: told without an audit");
    assert_eq!(state(), before, "{name}");
}

/// Each case of the table in the docs: how it came about, what is repaired, what the row says then.
#[test]
fn what_has_one_right_answer_is_repaired() {
    let id = || "a".to_owned();
    type Case = (&'static str, fn(&Scratch), Vec<Repair>, Status);
    let cases: [Case; 8] = [
        (
            "journal STARTED, no row",
            |scratch| drop(scratch.ledger().0.begin("a", "t", "x").unwrap()),
            vec![Repair::RowInserted(id(), Status::Started)],
            Status::Started,
        ),
        (
            "journal STARTED, row COMPLETED",
            |scratch| cut_lines(scratch, 1),
            vec![Repair::LineAppended(id(), Status::Completed)],
            Status::Completed,
        ),
        (
            "journal COMPLETED, row STARTED",
            |scratch| sql(scratch, "UPDATE actions SET status = 'STARTED', result_ref = NULL"),
            vec![Repair::RowSettled(id(), Status::Completed)],
            Status::Completed,
        ),
        (
            "journal COMPLETED, row NEEDS_HUMAN",
            |scratch| sql(scratch, "UPDATE actions SET status = 'NEEDS_HUMAN'"),
            vec![Repair::RowSettled(id(), Status::Completed)],
            Status::Completed,
        ),
        (
            "journal COMPLETED, no row",
            |scratch| sql(scratch, "DELETE FROM actions"),
            vec![Repair::RowInserted(id(), Status::Completed)],
            Status::Completed,
        ),
        (
            "journal STARTED, row FAILED",
            |scratch| {
                cut_lines(scratch, 1);
                sql(scratch, "UPDATE actions SET status = 'FAILED'");
            },
            vec![Repair::LineAppended(id(), Status::Failed)],
            Status::Failed,
        ),
        (
            "journal STARTED, row NEEDS_HUMAN",
            |scratch| {
                cut_lines(scratch, 1);
                sql(scratch, "UPDATE actions SET status = 'NEEDS_HUMAN'");
            },
            vec![Repair::LineAppended(id(), Status::NeedsHuman)],
            Status::NeedsHuman,
        ),
        (
            "row COMPLETED, no artifact",
            |scratch| {
                std::fs::remove_dir_all(scratch.home().join("artifacts")).unwrap();
                sql(scratch, "");
            },
            vec![Repair::MarkedMissing(id())],
            Status::Missing,
        ),
    ];
    for (name, change, repairs, expected) in cases {
        let scratch = Scratch::new("repair");
        if !name.ends_with("STARTED, no row") {
            complete(&scratch.ledger().0, "a");
        }
        change(&scratch);
        nothing_is_repaired_without_an_audit(&scratch, name);
        let (ledger, found) = scratch.ledger();
        assert_eq!((found.repairs, found.findings), (repairs, vec![]), "{name}");
        assert_eq!(status(&ledger, "a"), Some(expected), "{name}");
        assert!(scratch.read("audit/2026-02-21.jsonl").contains("ACTION_REPAIRED"), "{name}");
        let findings = ledger.check().unwrap();
        assert!(
            findings.iter().all(|finding| expected == Status::Started && finding.to_string().starts_with("I3")),
            "{name}: {findings:?}"
        );
        assert_eq!(ledger.reconcile().unwrap().repairs, [], "{name}: once");
        let is_kept = ledger.action("a").unwrap().unwrap().result_ref.is_some();
        assert!(is_kept || !expected.is_done(), "{name}: the result is kept");
    }
}

#[test]
fn what_has_no_right_answer_is_left_and_told() {
    let scratch = Scratch::new("told");
    complete(&scratch.ledger().0, "a");
    sql(&scratch, "UPDATE actions SET status = 'FAILED'");
    let (ledger, found) = scratch.ledger();
    assert_eq!(
        (found.repairs.len(), &found.findings[..]),
        (0, &["a: the journal says COMPLETED, the database FAILED".to_owned()][..])
    );
    assert_eq!(status(&ledger, "a"), Some(Status::Failed));
    assert!(ledger.check().unwrap().iter().any(|finding| finding.to_string().starts_with("I1: a:")));
}

#[test]
fn a_journal_that_was_lost_is_told_and_its_open_actions_are_known() {
    let scratch = Scratch::new("lost");
    let (ledger, _) = scratch.ledger();
    complete(&ledger, "done");
    let mut action = ledger.begin("open", "t", "half a thing").unwrap();
    action.record_started().unwrap();
    drop((action, ledger));
    std::fs::remove_file(scratch.home().join(WAL)).unwrap();
    let (ledger, found) = scratch.ledger();
    assert_eq!(found.findings, ["open: STARTED in the database, and the journal knows nothing of it"]);
    assert_eq!(found.orphans.len(), 1);
    ledger.resolve("open", &Decision::Failed("it was lost".to_owned())).unwrap();
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn orphans_are_decided_about_once_and_with_an_audit() {
    let scratch = Scratch::new("decide");
    let (ledger, _) = scratch.ledger();
    let ids = ["completed", "failed", "retry", "human"];
    ids.iter().for_each(|id| ledger.begin(*id, "t", "x").unwrap().record_started().unwrap());
    let live = ledger.begin("live", "t", "x").unwrap();
    assert!(matches!(ledger.resolve("live", &Decision::Retry), Err(Error::WrongStatus { .. })), "somebody is at it");
    assert!(matches!(ledger.resolve("nobody", &Decision::Retry), Err(Error::NoSuchAction { .. })));
    let missing = Decision::Completed(Some(format!("artifacts/{}", "0".repeat(64))));
    assert!(matches!(ledger.resolve("completed", &missing), Err(Error::Input { .. })), "a result must be there");

    ledger.resolve("completed", &Decision::Completed(Some("receipt 7".to_owned()))).unwrap();
    ledger.resolve("failed", &Decision::Failed("token=abc".to_owned())).unwrap();
    ledger.resolve("retry", &Decision::Retry).unwrap();
    ledger.resolve("human", &Decision::NeedsHuman).unwrap();
    let expected = [Status::Completed, Status::Failed, Status::Retriable, Status::NeedsHuman];
    for (id, expected) in ids.iter().zip(expected) {
        assert_eq!(status(&ledger, id), Some(expected));
        let again = ledger.resolve(id, &Decision::NeedsHuman);
        assert!(matches!(again, Err(Error::WrongStatus { .. })) || expected == Status::NeedsHuman, "{id}: {again:?}");
    }
    drop((live, ledger));
    let (ledger, found) = scratch.ledger();
    let open: Vec<&str> = found.orphans.iter().map(|row| row.action_id.as_str()).collect();
    assert_eq!(open, ["human", "live"], "who needs a person still does");
    ledger.resolve("human", &Decision::Completed(None)).unwrap();
    ledger.resolve("live", &Decision::Retry).unwrap();
    assert_eq!(ledger.check().unwrap(), []);
    let audit = scratch.read("audit/2026-02-21.jsonl");
    let lines = audit.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let decided: Vec<[String; 2]> = lines
        .filter(|line| line["kind"] == "ACTION_RESOLVED")
        .map(|line| [&line["action_id"], &line["detail"]["decision"]].map(|value| value.as_str().unwrap().to_owned()))
        .collect();
    // That somebody should look can be said again.
    let expected = [
        ["completed", "COMPLETED"],
        ["failed", "FAILED"],
        ["retry", "RETRIABLE"],
        ["human", "NEEDS_HUMAN"],
        ["human", "NEEDS_HUMAN"],
        ["human", "COMPLETED"],
        ["live", "RETRIABLE"],
    ];
    assert_eq!(decided, expected);
}

#[test]
fn a_retry_is_a_new_action_linked_to_the_old_and_there_is_one() {
    let scratch = Scratch::new("retry");
    let (ledger, _) = scratch.ledger();
    ledger.begin("first", "t", "x").unwrap().fail("no").unwrap();
    complete(&ledger, "done");
    let retry = |id: &str, of: &str| ledger.begin_with(Begin::new(id, "t", "x").retry_of(of));
    assert!(matches!(retry("again", "done"), Err(Error::WrongStatus { .. })), "what is done is not done again");
    assert!(matches!(retry("again", "nobody"), Err(Error::NoSuchAction { .. })));
    let second = retry("second", "first").unwrap();
    assert!(
        matches!(retry("third", "first"), Err(Error::ActionExists { id, .. }) if id == "second"),
        "while it is under way"
    );
    drop(second);
    drop(ledger);
    let (ledger, found) = scratch.ledger();
    assert_eq!(found.orphans[0].retry_of.as_deref(), Some("first"), "the journal knew it");
    ledger.resolve("second", &Decision::Retry).unwrap();
    let retry = |id: &str, of: &str| ledger.begin_with(Begin::new(id, "t", "x").retry_of(of));
    assert!(matches!(retry("third", "first"), Err(Error::ActionExists { id, .. }) if id == "second"), "and afterwards");
    retry("third", "second").unwrap().complete(None).unwrap();
    assert_eq!(ledger.action("third").unwrap().unwrap().retry_of.as_deref(), Some("second"));
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn a_lost_artifact_invalidates_what_needs_it() {
    let scratch = Scratch::new("needs");
    let (ledger, _) = scratch.ledger();
    let lost = complete(&ledger, "a");
    for (id, needs) in [("b", "a"), ("c", "b"), ("d", "c")] {
        let mut action = ledger.begin_with(Begin::new(id, "t", "x").needs(needs)).unwrap();
        if id == "d" { action.fail("no").unwrap() } else { action.complete(None).unwrap() }
    }
    complete(&ledger, "other");
    let unready = ledger.begin_with(Begin::new("e", "t", "x").needs("d"));
    assert!(matches!(unready, Err(Error::WrongStatus { status: Status::Failed, .. })));
    drop(ledger);
    std::fs::remove_file(scratch.home().join(&lost)).unwrap();
    sql(&scratch, "");
    let (ledger, found) = scratch.ledger();
    let gone = |id: &str| Repair::Invalidated(id.to_owned());
    assert_eq!(found.repairs, [Repair::MarkedMissing("a".to_owned()), gone("b"), gone("c")]);
    let statuses = ["a", "b", "c", "d", "other"].map(|id| status(&ledger, id).unwrap());
    let expected = [Status::Missing, Status::Invalidated, Status::Invalidated, Status::Failed, Status::Completed];
    assert_eq!(statuses, expected);
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn a_compacted_journal_keeps_every_open_action() {
    let scratch = Scratch::new("compact");
    let (ledger, _) = scratch.ledger();
    (0..50).for_each(|at| drop(complete(&ledger, &format!("done-{at}"))));
    let mut live = ledger.begin_with(Begin::new("live", "t", "x").needs("done-3")).unwrap();
    ["orphan", "human"].iter().for_each(|id| drop(ledger.begin(*id, "t", "x").unwrap()));
    drop(ledger.reconcile().unwrap());
    ledger.resolve("human", &Decision::NeedsHuman).unwrap();
    let before = ledger.actions().journal_bytes();
    ledger.actions().compact().unwrap();
    assert!(ledger.actions().journal_bytes() < before / 10);
    let wal = scratch.read(WAL);
    let lines: Vec<WalLine<'_>> = wal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<(&str, Status)> = lines.iter().map(|line| (&*line.action_id, line.status)).collect();
    let started = |id| (id, Status::Started);
    assert_eq!(said, [started("human"), ("human", Status::NeedsHuman), started("live"), started("orphan")]);
    live.complete(None).unwrap();
    assert_eq!(ledger.reconcile().unwrap().repairs, []);
    drop((live, ledger));

    let (ledger, found) = scratch.ledger();
    assert_eq!((found.repairs, found.findings, found.orphans.len()), (vec![], vec![], 2));
    assert_eq!(ledger.action("live").unwrap().unwrap().needs, ["done-3"]);
    ledger.resolve("human", &Decision::Retry).unwrap();
    ledger.resolve("orphan", &Decision::Retry).unwrap();
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn a_long_journal_is_written_anew_at_the_next_start() {
    let scratch = Scratch::new("long");
    let (ledger, _) = scratch.ledger();
    complete(&ledger, "done");
    drop(ledger.begin("open", "t", "half a thing").unwrap());
    drop(ledger);
    // What this program does not know of a line is left alone; here it makes the lines long.
    let wal = scratch.read(WAL);
    let pad = "x".repeat(23 << 20);
    let longer = |line: &str| {
        let (line, place) = line.split_once(r#","seq""#).unwrap();
        let line = format!(r#"{line},"pad":"{pad}","seq"{}"#, place.split_once(r#","checksum""#).unwrap().0);
        format!("{line},\"checksum\":\"{:016x}\"}}\n", twox_hash::XxHash3_64::oneshot(line.as_bytes()))
    };
    scratch.write(WAL, &wal.lines().map(longer).collect::<String>());
    let (ledger, found) = scratch.ledger();
    assert_eq!((found.lines, found.orphans.len(), found.findings.len()), (3, 1, 0));
    let wal = scratch.read(WAL);
    assert!(
        wal.len() < 1_000 && wal.contains(r#""action_id":"open""#) && wal.lines().count() == 1,
        "{} bytes",
        wal.len()
    );
    ledger.resolve("open", &Decision::Retry).unwrap();
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn a_decision_that_cannot_be_audited_is_not_made() {
    let scratch = Scratch::new("unaudited");
    let clock = scratch.clock.clone();
    let (ledger, _) = scratch.ledger();
    drop(ledger.begin("a", "t", "x").unwrap());
    // A new day, whose file cannot be made: its name is a directory's.
    clock.advance(Duration::from_secs(86_400));
    std::fs::create_dir(scratch.home().join("audit/2026-02-22.jsonl")).unwrap();
    assert!(ledger.resolve("a", &Decision::Retry).is_err());
    assert_eq!(ledger.actions().orphans().len(), 1, "nothing is decided");
    assert_ne!(status(&ledger, "a"), Some(Status::Retriable));
    std::fs::remove_dir(scratch.home().join("audit/2026-02-22.jsonl")).unwrap();
    ledger.resolve("a", &Decision::Retry).unwrap();
    assert_eq!(scratch.read("audit/2026-02-22.jsonl").matches("ACTION_RESOLVED").count(), 1);
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn an_older_copy_of_the_database_is_compared_with_a_journal_that_was_compacted_since() {
    let scratch = Scratch::new("older-copy");
    let (ledger, _) = scratch.ledger();
    (0..8).for_each(|at| drop(complete(&ledger, &format!("early-{at}"))));
    drop(ledger.reconcile().unwrap());
    drop(ledger);
    let (database, copy) = (scratch.home().join("runtime/runtime.db"), scratch.home().join("copy.db"));
    std::fs::copy(&database, &copy).unwrap();
    let (ledger, _) = scratch.ledger();
    ledger.actions().compact().unwrap();
    (0..3).for_each(|at| drop(complete(&ledger, &format!("late-{at}"))));
    drop(ledger);
    // The copy knows that sixteen lines agreed once: those of another journal.
    std::fs::copy(&copy, &database).unwrap();
    let (ledger, found) = scratch.ledger();
    assert_eq!(found.repairs.len(), 3, "{found:?}");
    assert_eq!(status(&ledger, "late-2"), Some(Status::Completed));
}

#[test]
fn a_torn_tail_is_cut_off_reported_and_audited() {
    let scratch = Scratch::new("torn");
    complete(&scratch.ledger().0, "a");
    let whole = scratch.read(WAL);
    scratch.write(WAL, &format!("{whole}{}", r#"{"action_id":"b","trace"#));
    nothing_is_repaired_without_an_audit(&scratch, "torn");
    let (ledger, found) = scratch.ledger();
    let torn = found.torn.expect("a torn tail");
    assert_eq!((torn.at, torn.bytes), (whole.len() as u64, 23));
    assert_eq!(scratch.read(WAL), whole);
    assert!(scratch.read("audit/2026-02-21.jsonl").contains("JOURNAL_TAIL_CUT"));
    complete(&ledger, "b");
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn a_damaged_journal_is_an_alarm_and_stays_as_it_is() {
    let scratch = Scratch::new("damaged");
    complete(&scratch.ledger().0, "a");
    let damaged = scratch.read(WAL).replacen("t-1", "t-2", 1);
    scratch.write(WAL, &damaged);
    let error = Ledger::open(scratch.lock().unwrap()).expect_err("an alarm");
    assert!(error.is_corruption() && error.to_string().contains(WAL.rsplit('/').next().unwrap()), "{error}");
    assert_eq!(scratch.read(WAL), damaged);
}

#[test]
fn no_secret_is_written_anywhere() {
    let scratch = Scratch::new("secrets");
    let (ledger, _) = scratch.ledger();
    let canary = "ghp_0123456789abcdefghijklmnop";
    let task = format!("push with {canary}");
    ledger.begin("a", "t", &task).unwrap().fail(&format!("401 for {canary}")).unwrap();
    drop(ledger.begin("b", "t", &task).unwrap());
    ledger.resolve("b", &Decision::Failed(canary.to_owned())).unwrap();
    ledger.audit().append(&kauri_ledger::AuditNote::new("X").with("y", canary)).unwrap();
    let address = format!("https://ann:{canary}@kauri.example/x");
    ledger.begin("c", "t", "x").unwrap().complete(Some(&address)).unwrap();
    drop(ledger.begin("d", "t", "x").unwrap());
    ledger.resolve("d", &Decision::Completed(Some(address))).unwrap();
    ledger.stop(canary).unwrap();
    ledger.resume().unwrap();
    ledger.stop(&format!("{canary} again")).unwrap();
    drop(ledger);
    let mut looked = 0;
    let mut left = vec![scratch.home()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(path).unwrap().map(|found| found.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(canary.len()).any(|part| part == canary.as_bytes()), "{}", path.display());
        looked += 1;
    }
    assert!(looked >= 5, "{looked} files");
}

#[test]
fn threads_share_a_ledger() {
    let scratch = Scratch::new("threads");
    let (ledger, _) = scratch.ledger();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let ledger = &ledger;
            scope.spawn(move || {
                for at in 0..12 {
                    let mut action = ledger.begin(format!("{thread}-{at}"), "t", "x").unwrap();
                    action.record_started().unwrap();
                    match at % 4 {
                        0 => drop(action.complete_with(Artifact::bytes(&[thread, at / 4])).unwrap()),
                        1 => action.complete(None).unwrap(),
                        2 => action.fail("no").unwrap(),
                        _ => {}
                    }
                }
                ledger.actions().compact().unwrap();
            });
        }
    });
    let found = ledger.reconcile().unwrap();
    assert_eq!((found.orphans.len(), found.repairs.len(), found.findings.len()), (24, 0, 0));
    for orphan in found.orphans {
        ledger.resolve(&orphan.action_id, &Decision::Retry).unwrap();
    }
    assert_eq!(ledger.check().unwrap(), []);
    let count: u32 = scratch.sql().query_row("SELECT count(*) FROM actions", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 96);
}
