//! The writer's connection: the few things that the queue asks of a database.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, ToSql};

use super::{Op, Value};

/// What the queue asks of a database. There is one such session at a time.
pub(super) trait Session: Send {
    fn begin(&mut self) -> Answer<()>;
    /// Begins a part that can be undone by itself.
    fn nest(&mut self) -> Answer<()>;
    fn keep(&mut self) -> Answer<()>;
    fn undo(&mut self) -> Answer<()>;
    fn execute(&mut self, op: &Op) -> Answer<usize>;
    /// Writes down, in the same transaction, which batch this is.
    fn mark(&mut self, epoch: i64, batch: i64) -> Answer<()>;
    /// The last batch of this epoch that was committed.
    fn marked(&mut self, epoch: i64) -> Answer<Option<i64>>;
    fn commit(&mut self) -> Answer<()>;
    fn rollback(&mut self) -> Answer<()>;
    /// Whether a transaction is open: some errors end it by themselves.
    fn in_transaction(&self) -> bool;
}

pub(super) type Answer<T> = Result<T, rusqlite::Error>;

/// How long to wait for somebody else's transaction.
pub(crate) const BUSY_MS: u64 = 5_000;

/// A commit writes each page that it changed, whole, and it changes a row or two in each of some tables and indexes, and the mark:
/// half of SQLite's usual page is enough for that, and is half as much to write.
const PAGE_BYTES: u32 = 2_048;

/// After so many pages SQLite's log is written back and begun anew: 4 MiB, which is usual. More would be written back less often, but
/// a log that still grows is slower than one whose place on the disk is used again.
const CHECKPOINT_PAGES: u32 = 2_000;

/// A connection with the settings that every connection has.
pub(crate) fn connect(path: &Path) -> Answer<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
    // Heard only by a database that is not made yet.
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode != "wal" {
        // Where there is no shared memory SQLite goes on in another mode, in which readers and the writer wait for each other.
        let text = format!("expected the journal mode wal, found {mode}: is this a disk of this machine?");
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
            Some(text),
        ));
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    // In kibibytes: a start compares many rows with the journal.
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Whether the connection should not be used again after this.
pub(super) fn is_fatal(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(code, Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

pub(super) struct Sqlite {
    pub(super) connection: Connection,
}

impl Sqlite {
    fn run(&self, sql: &'static str) -> Answer<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }
}

impl Session for Sqlite {
    fn begin(&mut self) -> Answer<()> {
        self.run("BEGIN IMMEDIATE")
    }

    fn nest(&mut self) -> Answer<()> {
        self.run("SAVEPOINT submission")
    }

    fn keep(&mut self) -> Answer<()> {
        self.run("RELEASE submission")
    }

    fn undo(&mut self) -> Answer<()> {
        self.run("ROLLBACK TO submission")?;
        self.run("RELEASE submission")
    }

    fn execute(&mut self, op: &Op) -> Answer<usize> {
        let mut statement = self.connection.prepare_cached(op.sql)?;
        statement.execute(rusqlite::params_from_iter(op.args.iter()))
    }

    fn mark(&mut self, epoch: i64, batch: i64) -> Answer<()> {
        let mut statement = self.connection.prepare_cached("UPDATE writer_epochs SET batch = ?2 WHERE epoch = ?1")?;
        statement.execute((epoch, batch)).map(drop)
    }

    fn marked(&mut self, epoch: i64) -> Answer<Option<i64>> {
        use rusqlite::OptionalExtension;

        let sql = "SELECT batch FROM writer_epochs WHERE epoch = ?1";
        self.connection.prepare_cached(sql)?.query_row([epoch], |row| row.get(0)).optional()
    }

    fn commit(&mut self) -> Answer<()> {
        self.run("COMMIT")
    }

    fn rollback(&mut self) -> Answer<()> {
        self.run("ROLLBACK")
    }

    fn in_transaction(&self) -> bool {
        !self.connection.is_autocommit()
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        use rusqlite::types::{ToSqlOutput, ValueRef};

        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a database is a file")]
    fn every_connection_has_the_agreed_settings() {
        let directory = std::env::temp_dir().join(format!("kauri-session-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let number = |connection: &Connection, name: &str| -> i64 {
            connection.pragma_query_value(None, name, |row| row.get(0)).unwrap()
        };
        for _ in 0..2 {
            let connection = connect(&directory.join("db")).unwrap();
            let number = |name: &str| number(&connection, name);
            let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
            // FULL is 2.
            let found = (mode.as_str(), number("synchronous"), number("foreign_keys"), number("busy_timeout"));
            assert_eq!(found, ("wal", 2, 1, 5_000));
            assert_eq!((number("page_size"), number("wal_autocheckpoint")), (2_048, 2_000));
        }
        // One that others made, or an earlier program, keeps the pages that it has.
        let other = Connection::open(directory.join("other")).unwrap();
        other.execute_batch("PRAGMA page_size = 4096; CREATE TABLE t (id INTEGER); INSERT INTO t VALUES (7)").unwrap();
        drop(other);
        let connection = connect(&directory.join("other")).unwrap();
        let row = connection.query_row("SELECT id FROM t", [], |row| row.get::<_, i64>(0));
        assert_eq!((number(&connection, "page_size"), row.unwrap()), (4_096, 7));
        std::fs::remove_dir_all(&directory).unwrap();
        let error = connect(Path::new(":memory:")).map(drop).unwrap_err();
        assert!(error.to_string().contains("expected the journal mode wal, found memory"), "{error}");
    }
}
