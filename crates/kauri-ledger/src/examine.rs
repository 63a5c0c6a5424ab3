//! A look at a home from outside: who works there, and what is left undone. It takes no lock and changes nothing.

use std::fmt;
use std::path::Path;

use kauri_disk::OsDisk;

use crate::action::{Status, wal};
use crate::audit::{AuditReport, verify};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::journal::Torn;
use crate::lock::{Home, LockState, RUNTIME};
use crate::switch::KillSwitch;

/// What a look at a home found. Each line of its text is one part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Examination {
    /// Who works there. If somebody does, so does the writer queue; otherwise it stands still.
    pub lock: LockState,
    /// Actions in the journal without an end: id and what it is to do. While somebody works there, some are under way.
    pub open: Vec<(String, String)>,
    /// The tail of the journal that is not whole. While somebody works there, it may be about to be.
    pub torn: Option<Torn>,
    /// What is wrong with the journal.
    pub damage: Option<String>,
    /// Why the kill switch is thrown, if it is.
    pub stopped: Option<String>,
    /// What the audit says of itself.
    pub audit: AuditReport,
}

/// Looks at the home in this directory.
///
/// # Errors
/// Whatever the system reports.
pub fn examine(directory: &Path, clock: &std::sync::Arc<dyn Clock>) -> Result<Examination> {
    let lock = Home::probe(directory)?;
    let stopped = KillSwitch::of(directory, std::sync::Arc::clone(clock)).reason()?;
    let (mut open, mut torn, mut damage) = (std::collections::BTreeMap::new(), None, None);
    if let Some(disk) = disk(&directory.join(RUNTIME))? {
        let read = wal::read(&disk, |line| {
            match line.status {
                Status::Started => {
                    drop(open.insert(line.action_id.clone().into_owned(), line.task.clone().into_owned()));
                }
                Status::NeedsHuman => {}
                _ => drop(open.remove(&*line.action_id)),
            }
            Ok(())
        });
        match read {
            Ok(scan) => torn = scan.and_then(|scan| scan.torn),
            Err(error @ Error::Damaged { .. }) => damage = Some(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let audit = disk(&directory.join("audit"))?.map(|disk| verify(&disk, &[])).transpose()?.unwrap_or_default();
    Ok(Examination { lock, open: open.into_iter().collect(), torn, damage, stopped, audit })
}

/// The disk in this directory, if it is there.
fn disk(path: &Path) -> Result<Option<OsDisk>> {
    match OsDisk::new(path) {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::path("open", path)(error)),
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "lock: {}", self.lock)?;
        let works = !self.lock.is_free();
        writeln!(f, "writer queue: {}", if works { "running, in the process that has the lock" } else { "stopped" })?;
        match (&self.damage, self.open.len()) {
            (Some(damage), _) => writeln!(f, "actions: {damage}")?,
            (None, 0) => writeln!(f, "actions: none without an end")?,
            (None, count) if works => writeln!(f, "actions: {count} under way or without an end")?,
            (None, count) => writeln!(f, "actions: {count} without an end; resolve them")?,
        }
        self.open.iter().try_for_each(|(id, task)| writeln!(f, "  {id}: {task}"))?;
        let audit = if self.audit.is_whole() { "whole" } else { "NOT whole" };
        writeln!(f, "audit: {audit}, {} lines", self.audit.lines)?;
        let wrong = self.audit.broken.iter().chain(&self.audit.unanchored);
        wrong.into_iter().try_for_each(|what| writeln!(f, "  {what}"))?;
        match &self.stopped {
            Some(reason) => write!(f, "kill switch: thrown, {reason}"),
            None => write!(f, "kill switch: not thrown"),
        }
    }
}
