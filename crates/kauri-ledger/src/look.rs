//! The ledger of a home, looked at from outside: takes no lock, brings nothing up to date, changes nothing.
//!
//! Each part is asked for by itself, so that one that is damaged or cannot be read does not hide the others.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kauri_disk::{Disk, MemoryDisk, OsDisk};

use crate::action::{ActionRow, Rows as _, Status, wal};
use crate::artifact;
use crate::audit::{self, AuditLine, AuditReport, verify};
use crate::clock::Timestamp;
use crate::database::DatabaseLook;
use crate::error::{Error, Result};
use crate::invariant::{self, Finding, Records};
use crate::journal::Torn;
use crate::lock::RUNTIME;

/// How many actions of each status are looked at, unless all are.
pub const ROWS_LOOKED_AT: usize = 10_000;

/// A home, looked at from outside.
///
/// ```
/// use kauri_ledger::{Home, Ledger, Look};
///
/// # let directory = std::env::temp_dir().join(format!("kauri-doc-look-{}", std::process::id()));
/// let (ledger, _) = Ledger::open(Home::lock(&directory)?)?;
/// drop(ledger.begin("mail-17", "order-4", "send the confirmation")?);
/// drop(ledger);
///
/// let look = Look::at(&directory);
/// let journal = look.journal()?.expect("something was begun");
/// assert_eq!(journal.orphans[0].action_id, "mail-17");
/// assert!(look.audit()?.is_some_and(|report| report.is_whole()));
/// # std::fs::remove_dir_all(&directory).ok();
/// # Ok::<(), kauri_ledger::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Look {
    home: PathBuf,
}

/// What the journal of actions says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalLook {
    /// How many lines it has.
    pub lines: u64,
    /// What was begun and has no end. While somebody works there, some of it is under way.
    pub orphans: Vec<ActionRow>,
    /// The tail that is not whole. While somebody works there, it may be about to be.
    pub torn: Option<Torn>,
    /// When its last line was written.
    pub newest: Option<Timestamp>,
}

impl Look {
    /// A look at the home in this directory.
    #[must_use]
    pub fn at(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into() }
    }

    /// The state database, if there is one.
    ///
    /// # Errors
    /// `NewerSchema` or `OlderSchema` if its tables are not those that this program knows; otherwise what the database says.
    pub fn database(&self) -> Result<Option<DatabaseLook>> {
        DatabaseLook::open(&self.home.join(RUNTIME))
    }

    /// The journal of actions, if there is one.
    ///
    /// # Errors
    /// `Damaged` if it was changed other than by a crash; otherwise whatever the system reports.
    pub fn journal(&self) -> Result<Option<JournalLook>> {
        let Some(disk) = disk(&self.home.join(RUNTIME))? else { return Ok(None) };
        let (mut look, mut open) = (JournalLook::default(), BTreeMap::new());
        let read = wal::read(&disk, |line| {
            look.lines += 1;
            look.newest = look.newest.max(Some(line.timestamp));
            match line.status {
                Status::Started => drop(open.insert(line.action_id.clone().into_owned(), row_of(line))),
                Status::NeedsHuman => {
                    open.entry(line.action_id.clone().into_owned()).and_modify(|row| row.status = line.status);
                }
                _ => drop(open.remove(&*line.action_id)),
            }
            Ok(())
        })?;
        look.orphans = open.into_values().collect();
        Ok(read.map(|scan| JournalLook { torn: scan.torn, ..look }))
    }

    /// What the audit says of itself, with the anchors that it keeps and those in the database; nothing if there is no audit.
    ///
    /// # Errors
    /// Whatever the system reports. That the database cannot be read is none: then the audit's own anchors count.
    pub fn audit(&self) -> Result<Option<AuditReport>> {
        let Some(disk) = disk(&self.home.join("audit"))? else { return Ok(None) };
        let kept = self.database().ok().flatten().and_then(|database| database.anchors().ok());
        verify(&disk, &kept.unwrap_or_default()).map(Some)
    }

    /// The newest lines of the audit, so many at most, oldest first.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn audit_lines(&self, most: usize) -> Result<Vec<AuditLine>> {
        disk(&self.home.join("audit"))?.map_or(Ok(Vec::new()), |disk| audit::newest(&disk, most))
    }

    /// The lines of the audit after this number, so many at most, oldest first.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn audit_lines_after(&self, after: u64, most: usize) -> Result<Vec<AuditLine>> {
        disk(&self.home.join("audit"))?.map_or(Ok(Vec::new()), |disk| audit::after(&disk, after, most))
    }

    /// Whether the invariants I1 to I5 hold, and what I8 says of journal and rows. Nobody may work there meanwhile: what is under way
    /// would be found wanting. A deep look reads artifacts whole and looks at every row; another only looks whether artifacts are there, and at
    /// [`ROWS_LOOKED_AT`] rows of each status at most.
    ///
    /// # Errors
    /// Whatever the database or the system says.
    pub fn check_actions(&self, database: &DatabaseLook, is_deep: bool) -> Result<Vec<Finding>> {
        let nothing = || Box::new(MemoryDisk::new()) as Box<dyn Disk>;
        let or_nothing = |found: Option<OsDisk>| found.map_or_else(nothing, |disk| Box::new(disk));
        let journal = or_nothing(disk(&self.home.join(RUNTIME))?);
        let artifacts = or_nothing(disk(&self.home.join("artifacts"))?);
        let holds = |result_ref: &str| match is_deep {
            true => artifact::holds(&*artifacts, result_ref).unwrap_or(false),
            false => artifact::is_there(&*artifacts, result_ref),
        };
        let rows_max = if is_deep { usize::MAX } else { ROWS_LOOKED_AT };
        let (journal, is_live) = (&*journal, &|_: &str| false);
        invariant::check_records(&Records { journal, rows: database, holds: &holds, is_live, rows_max })
    }
}

fn row_of(line: &wal::WalLine<'_>) -> ActionRow {
    ActionRow {
        action_id: line.action_id.clone().into_owned(),
        trace_id: line.trace_id.clone().into_owned(),
        task: line.task.clone().into_owned(),
        status: line.status,
        result_ref: None,
        started_at: line.timestamp,
        error: None,
        retry_of: line.retry_of.clone().map(std::borrow::Cow::into_owned),
        needs: line.needs.clone(),
    }
}

/// The disk in this directory, if it is there.
fn disk(path: &Path) -> Result<Option<OsDisk>> {
    match OsDisk::new(path) {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::path("open", path)(error)),
    }
}
