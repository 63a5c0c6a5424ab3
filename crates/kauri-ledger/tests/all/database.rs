//! The state database, as others see it.

use kauri_ledger::{BatchKey, Error, Op, Value};

use crate::scratch::Scratch;

/// The table and its indexes, as they were agreed.
const ACTIONS: &str = "CREATE TABLE actions (
    action_id TEXT PRIMARY KEY,
    trace_id TEXT NOT NULL,
    task TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'STARTED',
    result_ref TEXT,
    started_at TEXT NOT NULL,
    completed_at TEXT,
    error TEXT,
    created_at TEXT NOT NULL DEFAULT (datetime('now'))
)";

fn schema_of(scratch: &Scratch, name: &str) -> String {
    scratch.sql().query_row("SELECT sql FROM sqlite_schema WHERE name = ?1", [name], |row| row.get(0)).unwrap()
}

#[test]
fn the_table_of_actions_is_the_agreed_one() {
    let scratch = Scratch::new("schema");
    let (ledger, _) = scratch.ledger();
    assert_eq!(schema_of(&scratch, "actions"), ACTIONS);
    assert_eq!(schema_of(&scratch, "idx_actions_trace"), "CREATE INDEX idx_actions_trace ON actions(trace_id)");
    assert_eq!(schema_of(&scratch, "idx_actions_status"), "CREATE INDEX idx_actions_status ON actions(status)");
    let pragma =
        |name: &str| scratch.sql().query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(pragma("journal_mode"), "wal");
    drop(ledger);
}

#[test]
fn state_and_runs_are_kept() {
    let scratch = Scratch::new("state");
    let (ledger, _) = scratch.ledger();
    let database = ledger.database();
    let before = ledger.queue().submissions;
    assert_eq!(database.state("a").unwrap(), None);
    database.set_state("a", "1").unwrap();
    database.set_state("a", "2").unwrap();
    assert_eq!(database.state("a").unwrap().as_deref(), Some("2"));
    assert!(database.remove_state("a").unwrap() && !database.remove_state("a").unwrap());

    database.insert_run("r-1", "running", 3).unwrap();
    assert!(matches!(database.insert_run("r-1", "running", 3), Err(Error::Sql { .. })), "an id is used once");
    database.update_run_status("r-1", "success", true).unwrap();
    let missing = database.update_run_status("r-2", "success", true);
    assert!(matches!(missing, Err(Error::RowCount { expected: 1, found: 0 })), "{missing:?}");
    let runs = database.list_runs(10).unwrap();
    assert_eq!((runs.len(), runs[0].status.as_str(), runs[0].task_count), (1, "success", 3));
    assert!(runs[0].ended_at.is_some());
    let written = ledger.queue().submissions - before;
    assert_eq!(written, 2 + 2 + 1 + 1, "each write that is one goes through the queue, and no look does");
    scratch.clock.advance(std::time::Duration::from_secs(1));
    database.insert_run("r-0", "running", 1).unwrap();
    let newest = |most| database.list_runs(most).unwrap().into_iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!((newest(1), newest(10)), (vec!["r-0".to_owned()], vec!["r-0".to_owned(), "r-1".to_owned()]));
    // Somebody else reads it while it is in use.
    let status: String = scratch.sql().query_row("SELECT status FROM runs", [], |row| row.get(0)).unwrap();
    assert_eq!(status, "success");
}

#[test]
fn looks_wait_for_no_writer() {
    let scratch = Scratch::new("no-wait");
    let (ledger, _) = scratch.ledger();
    let database = ledger.database();
    database.set_state("a", "1").unwrap();
    database.insert_run("r-1", "running", 3).unwrap();
    // As long as this is open nobody else writes; whoever would, waits for it and is refused at last.
    let writer = scratch.sql();
    writer.execute_batch("BEGIN IMMEDIATE; UPDATE state SET value = '2'; DELETE FROM runs").unwrap();
    assert_eq!(database.state("a").unwrap().as_deref(), Some("1"), "what is committed");
    assert_eq!(database.list_runs(10).unwrap().len(), 1);
    writer.execute_batch("COMMIT").unwrap();
    assert_eq!((database.state("a").unwrap().as_deref(), database.list_runs(10).unwrap().len()), (Some("2"), 0));
}

#[test]
fn it_can_be_read_by_anything_while_it_is_written() {
    let scratch = Scratch::new("readable");
    let (ledger, _) = scratch.ledger();
    let path = scratch.home().join("runtime/runtime.db");
    let pairs = 40;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let queue = ledger.database().queue();
            scope.spawn(move || {
                let insert = |name: String| Op::new("INSERT INTO state VALUES (?1, '', '')", [name.into()]);
                for at in 0..pairs {
                    queue
                        .submit_batch([insert(format!("a-{thread}-{at}")), insert(format!("b-{thread}-{at}"))])
                        .unwrap();
                }
            });
        }
        // A reader that may not write, and is told of no lock: it sees every submission whole.
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let reader = rusqlite::Connection::open_with_flags(&path, flags).unwrap();
        let count = || -> (i64, i64) {
            let sql =
                "SELECT count(*) FILTER (WHERE key LIKE 'a-%'), count(*) FILTER (WHERE key LIKE 'b-%') FROM state";
            reader.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        };
        loop {
            let (a, b) = count();
            assert_eq!(a, b, "half of a submission");
            if a == 4 * pairs {
                break;
            }
        }
    });
    // What SQLite itself says of a copy that is made meanwhile.
    let copy = scratch.home().join("copy.db");
    scratch.sql().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    let sound: String = rusqlite::Connection::open(&copy)
        .and_then(|copy| copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)))
        .unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn foreign_keys_are_kept_by_whatever_is_written() {
    let scratch = Scratch::new("foreign-keys");
    let (ledger, _) = scratch.ledger();
    let sql = "INSERT INTO action_links VALUES ('nobody', 'needs', 'nobody')";
    let refused = ledger.database().queue().submit(sql, []).expect_err("there is no such action");
    assert!(refused.to_string().contains("FOREIGN KEY"), "{refused}");
}

#[test]
fn an_older_database_is_brought_forward_and_a_copy_is_kept() {
    let scratch = Scratch::new("older");
    drop(scratch.lock().unwrap());
    let old = scratch.sql();
    let tables = format!(
        "{ACTIONS}; CREATE INDEX idx_actions_trace ON actions(trace_id); CREATE INDEX idx_actions_status ON actions(status);
         CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL, updated_at TEXT NOT NULL);
         CREATE TABLE runs (id TEXT PRIMARY KEY, status TEXT NOT NULL, task_count INTEGER NOT NULL, started_at TEXT NOT NULL, ended_at TEXT);
         INSERT INTO runs VALUES ('r-1', 'success', 3, '', NULL); INSERT INTO state VALUES ('runs_position', '0 7', '');
         INSERT INTO state VALUES ('kept', 'yes', ''); PRAGMA user_version = 1;"
    );
    old.execute_batch(&tables).unwrap();
    drop(old);
    let (ledger, _) = scratch.ledger();
    assert_eq!(ledger.database().state("kept").unwrap().as_deref(), Some("yes"));
    let copy = rusqlite::Connection::open(scratch.home().join("runtime/runtime.db.schema-1")).unwrap();
    let version: u32 = copy.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let kept: String = copy.query_row("SELECT value FROM state WHERE key = 'kept'", [], |row| row.get(0)).unwrap();
    assert_eq!((version, kept.as_str()), (1, "yes"));
    assert_eq!(scratch.sql().query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0)).unwrap(), 4);
    let run = "SELECT run_id, job_id FROM runs";
    let run: (String, Option<String>) = scratch.sql().query_row(run, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!((run.0.as_str(), run.1), ("r-1", None), "it is kept, and what nobody wrote is not there");
    assert_eq!(ledger.database().state("runs_position").unwrap(), None, "whoever keeps the runs makes them anew");
}

#[test]
fn a_newer_database_is_refused_and_left_alone() {
    let scratch = Scratch::new("newer-schema");
    drop(scratch.ledger());
    scratch.sql().pragma_update(None, "user_version", 99).unwrap();
    let error = kauri_ledger::Ledger::open(scratch.lock().unwrap()).expect_err("refused");
    assert!(matches!(error, Error::NewerSchema { found: 99, .. }), "{error}");
    assert_eq!(scratch.sql().query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0)).unwrap(), 99);
}

#[test]
fn keys_of_batches_tell_what_was_applied_also_later() {
    let scratch = Scratch::new("keys");
    let (ledger, _) = scratch.ledger();
    let sql = "INSERT INTO state VALUES (?1, '', '')";
    ledger.database().queue().submit(sql, [Value::from("a")]).unwrap();
    let (epoch, batch) = scratch
        .sql()
        .query_row("SELECT epoch, batch FROM writer_epochs ORDER BY epoch DESC", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    drop(ledger);
    let (ledger, _) = scratch.ledger();
    ledger.database().set_state("b", "").unwrap();
    assert!(ledger.database().was_applied(BatchKey { epoch, batch }).unwrap());
    assert!(!ledger.database().was_applied(BatchKey { epoch, batch: batch + 1 }).unwrap());
    assert!(!ledger.database().was_applied(BatchKey { epoch: 7_000, batch }).unwrap());
}
