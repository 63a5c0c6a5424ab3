//! The database, read from outside: no schema is brought up to date, nothing is written to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{DATABASE_NAME, query};
use crate::action::{ActionRow, Mark, Rows, Settled, Standing, Status};
use crate::audit::Anchor;
use crate::error::{Error, Result};
use crate::queue::session::BUSY_MS;
use crate::schema;

/// The state database of a home, open for reading only.
///
/// Where nobody works and the last who did closed it, SQLite is told that the file does not change, and makes no file of its own
/// beside it. Otherwise its log has to be read, and SQLite may make the index of that log (`runtime.db-shm`) anew.
pub struct DatabaseLook {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl DatabaseLook {
    /// Opens the database in this directory, if there is one.
    ///
    /// # Errors
    /// `NewerSchema` or `OlderSchema` if its tables are not those that this program knows; otherwise what the database says.
    pub(crate) fn open(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(DATABASE_NAME);
        if !path.try_exists().map_err(Error::path("look at", &path))? {
            return Ok(None);
        }
        let connection = connect(&path).map_err(Error::sql("open the database for reading"))?;
        let found = schema::version(&connection).map_err(Error::sql("read the database"))?;
        match found.cmp(&schema::latest()) {
            std::cmp::Ordering::Greater => Err(Error::NewerSchema { most: schema::latest(), found }),
            std::cmp::Ordering::Less => Err(Error::OlderSchema { expected: schema::latest(), found }),
            std::cmp::Ordering::Equal => Ok(Some(Self { path, connection: Mutex::new(connection) })),
        }
    }

    /// The version of its tables.
    #[must_use]
    pub fn schema(&self) -> u32 {
        schema::latest()
    }

    /// What the database says of itself after a short look (`quick_check`), or a long one (`integrity_check`): nothing, if it is
    /// whole.
    ///
    /// # Errors
    /// What the database says.
    pub fn faults(&self, is_deep: bool) -> Result<Vec<String>> {
        let pragma = if is_deep { "PRAGMA integrity_check" } else { "PRAGMA quick_check" };
        self.read(|connection| query::faults(connection, pragma))
    }

    /// The value of a key of the table `state`.
    ///
    /// # Errors
    /// What the database says.
    pub fn state(&self, key: &str) -> Result<Option<String>> {
        self.read(|connection| query::state(connection, key))
    }

    /// The newest actions, so many at most; of one status and of one trace, or of all. Without their links.
    ///
    /// # Errors
    /// What the database says.
    pub fn actions(&self, status: Option<Status>, trace: Option<&str>, most: u32) -> Result<Vec<ActionRow>> {
        self.read(|connection| query::newest(connection, status, trace, most))
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        read(&connection).map_err(Error::sql("read the database"))
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    // Whoever has it open has a log beside it; closing it takes the log away.
    let has_log = log_of(path).exists();
    let uri = format!("file:{}?{}", escaped(path), if has_log { "mode=ro" } else { "mode=ro&immutable=1" });
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(std::time::Duration::from_millis(BUSY_MS))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// The path as a URI has it.
fn escaped(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;

    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    let escape = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.as_os_str().as_bytes().iter().copied().map(escape).collect()
}

impl Rows for DatabaseLook {
    fn insert(&self, _: &ActionRow) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn settle(&self, _: &str, _: &[Status], _: &Settled<'_>, _: Option<&Anchor>) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn find(&self, id: &str) -> Result<Option<ActionRow>> {
        self.read(|connection| query::find(connection, id))
    }

    fn statuses(&self, ids: &[&str]) -> Result<Vec<Option<Standing>>> {
        self.read(|connection| query::statuses(connection, ids))
    }

    fn each_with(&self, statuses: &[Status], after: &str, most: u32) -> Result<Vec<ActionRow>> {
        self.read(|connection| query::each_with(connection, statuses, after, most))
    }

    fn dependents(&self, id: &str) -> Result<Vec<String>> {
        self.read(|connection| query::dependents(connection, id))
    }

    fn retry_of(&self, id: &str) -> Result<Option<String>> {
        self.read(|connection| query::retry_of(connection, id))
    }

    fn mark(&self) -> Result<Option<Mark>> {
        self.read(query::mark)
    }

    fn set_mark(&self, _: &Mark) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn set_anchor(&self, _: &Anchor) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn anchors(&self) -> Result<Vec<Anchor>> {
        self.read(query::anchors)
    }
}

impl fmt::Debug for DatabaseLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseLook").field("path", &self.path).finish_non_exhaustive()
    }
}
