//! What the database holds, and how an older one becomes a newer one.

use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::Connection;

use crate::error::{Error, Result};

/// The steps from one schema to the next; the number of steps is the version, kept in `user_version`. A step is never changed
/// once it was released: a new one follows.
const STEPS: &[&str] = &[
    // The tables that other programs know.
    "CREATE TABLE IF NOT EXISTS actions (
    action_id TEXT PRIMARY KEY,
    trace_id TEXT NOT NULL,
    task TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'STARTED',
    result_ref TEXT,
    started_at TEXT NOT NULL,
    completed_at TEXT,
    error TEXT,
    created_at TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE INDEX idx_actions_trace ON actions(trace_id);
CREATE INDEX idx_actions_status ON actions(status);
CREATE TABLE state (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    task_count INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    ended_at TEXT
);",
    // What the ledger keeps for itself.
    "CREATE TABLE action_links (
    action_id TEXT NOT NULL REFERENCES actions(action_id),
    kind TEXT NOT NULL CHECK (kind IN ('retry_of', 'needs')),
    other TEXT NOT NULL,
    PRIMARY KEY (action_id, kind, other)
) WITHOUT ROWID;
CREATE INDEX idx_links_other ON action_links(other, kind);
CREATE UNIQUE INDEX idx_links_one_retry ON action_links(other) WHERE kind = 'retry_of';
CREATE TABLE audit_anchors (
    date TEXT PRIMARY KEY,
    chain_hash TEXT NOT NULL,
    record_count INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    created_at TEXT NOT NULL
);
CREATE TABLE writer_epochs (
    epoch INTEGER PRIMARY KEY,
    batch INTEGER NOT NULL
);
CREATE TABLE journal_marks (
    name TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    end_at INTEGER NOT NULL,
    checksum TEXT NOT NULL
);",
    // What else is told of runs. Whoever keeps the table has lost its place with that, and makes the rows of older runs anew.
    "ALTER TABLE runs ADD COLUMN run_id TEXT GENERATED ALWAYS AS (id) VIRTUAL;
ALTER TABLE runs ADD COLUMN job_id TEXT;
ALTER TABLE runs ADD COLUMN parent_run_id TEXT;
ALTER TABLE runs ADD COLUMN root_run_id TEXT;
ALTER TABLE runs ADD COLUMN depth INTEGER;
ALTER TABLE runs ADD COLUMN attempt INTEGER;
ALTER TABLE runs ADD COLUMN class TEXT;
ALTER TABLE runs ADD COLUMN outcome TEXT;
ALTER TABLE runs ADD COLUMN event_count INTEGER;
ALTER TABLE runs ADD COLUMN created_at TEXT;
ALTER TABLE runs ADD COLUMN queued_ms INTEGER;
ALTER TABLE runs ADD COLUMN ran_ms INTEGER;
CREATE INDEX idx_runs_job ON runs(job_id);
CREATE INDEX idx_runs_root ON runs(root_run_id);
DELETE FROM state WHERE key = 'runs_position';",
    // How long each phase of their scripts took. The rows of older runs are made anew, as above.
    "ALTER TABLE runs ADD COLUMN phases_ms TEXT;
DELETE FROM state WHERE key = 'runs_position';",
];

/// The latest schema.
pub(crate) fn latest() -> u32 {
    u32::try_from(STEPS.len()).expect("a handful")
}

/// Brings a database to the latest schema. Before each step of one that holds something, a copy is put beside it.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let failed = || Error::sql("bring the database to the latest schema");
    let found = version(connection).map_err(failed())?;
    if found > latest() {
        return Err(Error::NewerSchema { most: latest(), found });
    }
    for at in found..latest() {
        if found > 0 {
            back_up(connection, path, at)?;
        }
        let txn = connection.transaction().map_err(failed())?;
        txn.execute_batch(STEPS[at as usize]).map_err(failed())?;
        txn.pragma_update(None, "user_version", at + 1).map_err(failed())?;
        txn.commit().map_err(failed())?;
    }
    Ok(())
}

pub(crate) fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// A copy of the database as it was with this schema: `runtime.db.schema-1`.
#[expect(clippy::disallowed_methods, reason = "SQLite makes the copy, and will not write over an older one")]
fn back_up(connection: &Connection, path: &Path, version: u32) -> Result<()> {
    let copy = path.with_added_extension(format!("schema-{version}"));
    match std::fs::remove_file(&copy) {
        // A copy of the same version is older than this, or was not finished.
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::path("replace", &copy)(error)),
    }
    // SQLite takes an empty file, and leaves its mode: the copy is for its owner alone, as the database is.
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy);
    drop(made.map_err(Error::path("make", &copy))?);
    let name = copy.to_string_lossy().into_owned();
    connection.execute("VACUUM INTO ?1", [name]).map_err(Error::sql("copy the database before changing its schema"))?;
    let file = std::fs::File::open(&copy).and_then(|file| file.sync_all());
    file.map_err(Error::path("sync", &copy))
}
