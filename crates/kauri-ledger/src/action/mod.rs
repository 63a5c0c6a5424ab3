//! Actions: effects on the outside world, written down before they happen.
//!
//! ```text
//! 1  journal: STARTED, synced             begin
//! 2  database: STARTED                    record_started
//! 3  the effect                           the caller's work
//! 4  the artifact, durable                complete_with     (the other order could promise a file that a crash took away)
//! 5  database: COMPLETED and its result   complete_with, complete
//! 6  journal: COMPLETED, synced
//! 7  audit
//! ```
//!
//! The start is in the journal before it is in the database, the end is in the database before it is in the journal. So after
//! a crash anywhere there is one right answer for everything but step 3, and for that a person or the caller decides.

mod handle;
mod reconcile;
mod rows;
mod salvage;
mod status;
pub(crate) mod wal;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use kauri_disk::Disk;

pub use self::handle::Action;
pub use self::reconcile::{Reconciliation, Repair};
pub use self::rows::{ActionRow, Mark, Rows, Settled, Standing};
pub use self::salvage::Salvage;
pub(crate) use self::salvage::salvage;
pub use self::status::{BadStatus, Status};
use self::wal::Wal;
pub use self::wal::{WAL_NAME, WalLine};
use crate::artifact::{ArtifactReader, Artifacts};
use crate::audit::{Audit, AuditNote};
use crate::clock::{Clock, Timestamp};
use crate::error::{Error, Result};
use crate::redact::Redactor;

/// The longest id of an action or a trace, in bytes.
pub const ID_BYTES_MAX: usize = 256;

/// What actions stand on.
pub struct Ground {
    /// Where the journal is.
    pub journal: Arc<dyn Disk>,
    /// Where artifacts are.
    pub artifacts: Arc<dyn Disk>,
    /// Where rows are.
    pub rows: Arc<dyn Rows>,
    /// Where it is told what was done. Without it, nothing is told.
    pub audit: Option<Arc<Audit>>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What secrets look like.
    pub redactor: Redactor,
}

/// An action to be begun.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Begin {
    id: String,
    trace: String,
    task: String,
    retry_of: Option<String>,
    needs: Vec<String>,
}

impl Begin {
    /// An action with this id, in this trace, that does this.
    pub fn new(id: impl Into<String>, trace: impl Into<String>, task: impl Into<String>) -> Self {
        Self { id: id.into(), trace: trace.into(), task: task.into(), retry_of: None, needs: Vec::new() }
    }

    /// Tries again what this action, which failed or was decided to be retriable, was to do.
    pub fn retry_of(self, id: impl Into<String>) -> Self {
        Self { retry_of: Some(id.into()), ..self }
    }

    /// Needs the result of this action: if that is lost, this one is invalidated.
    pub fn needs(mut self, id: impl Into<String>) -> Self {
        self.needs.push(id.into());
        self
    }
}

/// What is decided about an orphan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The effect was done; where its result is, if it has one.
    Completed(Option<String>),
    /// The effect was not done, or not wholly, for this reason.
    Failed(String),
    /// The effect was not done: a new action may try again.
    Retry,
    /// Somebody must look.
    NeedsHuman,
}

impl Decision {
    const fn status(&self) -> Status {
        match self {
            Self::Completed(_) => Status::Completed,
            Self::Failed(_) => Status::Failed,
            Self::Retry => Status::Retriable,
            Self::NeedsHuman => Status::NeedsHuman,
        }
    }
}

/// The actions of one home. Clones are handles to the same actions.
#[derive(Clone)]
pub struct Actions {
    inner: Arc<Inner>,
}

struct Inner {
    ground: Ground,
    wal: Wal,
    artifacts: Artifacts,
    /// What was begun and waits for its end or for a decision.
    open: Mutex<BTreeMap<String, Begun>>,
    /// Read by every step, written by whoever looks at all of it.
    gate: RwLock<()>,
}

/// An action that waits for its end.
#[derive(Clone, Debug)]
struct Begun {
    trace: String,
    task: String,
    at: Timestamp,
    status: Status,
    retry_of: Option<String>,
    needs: Vec<String>,
    /// Whether somebody in this process is at it.
    is_live: bool,
}

impl Actions {
    /// Opens the actions on this ground, whose lock the caller has, and reconciles journal, rows and artifacts.
    ///
    /// # Errors
    /// `Damaged` if the journal was changed other than by a crash; otherwise what the disk or the rows say.
    pub fn open(ground: Ground) -> Result<(Self, Reconciliation)> {
        let artifacts = Artifacts::open(Arc::clone(&ground.artifacts))?;
        let mut comparison = reconcile::Comparison::new(&ground, &artifacts)?;
        let (wal, torn) = Wal::open(Arc::clone(&ground.journal), |line| comparison.line(line))?;
        let (open, found) = comparison.end(&wal, torn, BTreeMap::new())?;
        let inner = Inner { ground, wal, artifacts, open: Mutex::new(open), gate: RwLock::new(()) };
        Ok((Self { inner: Arc::new(inner) }, found))
    }

    /// Writes down that an action is about to be done: step 1. Its effect may happen only after this returned.
    ///
    /// # Errors
    /// - `ActionExists` if there was an action of this id, in whatever state: an id is used once;
    /// - `Input` for an id or a trace that is empty or too long;
    /// - `NoSuchAction` or `WrongStatus` if it is to retry or needs what cannot be;
    /// - whatever the disk reports. Then it counts as not begun.
    pub fn begin(&self, begin: Begin) -> Result<Action> {
        check_id("the id of an action", &begin.id)?;
        check_id("the trace of an action", &begin.trace)?;
        let _step = self.step();
        self.check_links(&begin)?;
        let (now, task) = (self.inner.ground.clock.now(), self.inner.ground.redactor.redact(&begin.task));
        let Begin { id, trace, retry_of, needs, .. } = begin;
        let begun = Begun { trace, task, at: now, status: Status::Started, retry_of, needs, is_live: true };
        self.reserve(&id, &begun)?;
        match self.inner.wal.append(&line_of(&id, &begun)) {
            Ok(_) => Ok(Action::new(self.clone(), id, begun)),
            Err(error) => {
                self.opened().remove(&id);
                Err(error)
            }
        }
    }

    /// A task as it is written down: without secrets.
    #[must_use]
    pub fn redacted(&self, task: &str) -> String {
        self.inner.ground.redactor.redact(task)
    }

    /// Takes an id that is neither open nor among the rows.
    fn reserve(&self, id: &str, begun: &Begun) -> Result<()> {
        let exists = |status| Error::ActionExists { id: id.to_owned(), status };
        let mut open = self.opened();
        if let Some(begun) = open.get(id) {
            return Err(exists(begun.status));
        }
        if let Some(other) = &begun.retry_of
            && let Some((by, _)) = open.iter().find(|(_, begun)| begun.retry_of.as_ref() == Some(other))
        {
            return Err(Error::ActionExists { id: by.clone(), status: Status::Started });
        }
        open.insert(id.to_owned(), begun.clone());
        drop(open);
        // Whoever ends an action takes it out of the open ones last: so it is seen in one place or the other.
        let found = self.inner.ground.rows.statuses(&[id]).map(|mut found| found.pop().flatten());
        match found {
            Ok(None) => Ok(()),
            Ok(Some((status, _))) => {
                self.opened().remove(id);
                Err(exists(status))
            }
            Err(error) => {
                self.opened().remove(id);
                Err(error)
            }
        }
    }

    fn check_links(&self, begin: &Begin) -> Result<()> {
        let rows = &self.inner.ground.rows;
        let find = |id: &String| rows.find(id)?.ok_or_else(|| Error::NoSuchAction { id: id.clone() });
        for id in &begin.needs {
            let status = find(id)?.status;
            if status != Status::Completed {
                return Err(Error::WrongStatus { id: id.clone(), status, expected: "a completed action to need" });
            }
        }
        let Some(id) = &begin.retry_of else { return Ok(()) };
        let status = find(id)?.status;
        if !matches!(status, Status::Failed | Status::Retriable) {
            return Err(Error::WrongStatus {
                id: id.clone(),
                status,
                expected: "a failed or retriable action to retry",
            });
        }
        match rows.retry_of(id)? {
            Some(by) => Err(Error::ActionExists { id: by, status: Status::Started }),
            None => Ok(()),
        }
    }

    /// Decides about an action that was begun and not ended, and at which nobody is in this process.
    ///
    /// # Errors
    /// - `NoSuchAction` if there is none, `WrongStatus` if it was ended or decided, or if somebody is at it;
    /// - `Input` if it is to have a result that is not there;
    /// - whatever the rows or the disk say.
    pub fn resolve(&self, id: &str, decision: &Decision) -> Result<()> {
        let _step = self.step();
        let begun = self.orphan(id)?;
        let redact = |text: &String| self.inner.ground.redactor.redact(text);
        let (result_ref, error) = match decision {
            Decision::Completed(result_ref) => (result_ref.as_ref().map(redact), None),
            Decision::Failed(error) => (None, Some(redact(error))),
            Decision::Retry | Decision::NeedsHuman => (None, None),
        };
        if let Some(result_ref) = result_ref.as_deref().filter(|result_ref| result_ref.starts_with("artifacts/"))
            && !self.inner.artifacts.holds(result_ref)?
        {
            return Err(Error::input("the result of an action", "an artifact that is there", result_ref));
        }
        let (status, at) = (decision.status(), self.inner.ground.clock.now());
        let settled = Settled { status, result_ref: result_ref.as_deref(), error: error.as_deref(), at };
        // Before it counts: a decision that nobody can read about is never made. One that is audited and then lost in a crash is
        // made and audited again.
        let note = AuditNote::new("ACTION_RESOLVED").action(id).trace(&begun.trace).with("decision", status.as_str());
        self.note(&note.with_some("result_ref", settled.result_ref).with_some("error", settled.error))?;
        let from: &[Status] =
            if status == Status::NeedsHuman { &[Status::Started] } else { &[Status::Started, Status::NeedsHuman] };
        // It may have been left before its row was made.
        if self.inner.ground.rows.find(id)?.is_none() {
            self.inner.ground.rows.insert(&begun.row(id))?;
        }
        self.settle(id, from, &settled)?;
        self.inner.wal.append(&end_of(id, &begun.trace, &settled))?;
        let mut open = self.opened();
        match open.get_mut(id) {
            Some(begun) if status.is_open() => begun.status = status,
            _ => drop(open.remove(id)),
        }
        Ok(())
    }

    fn orphan(&self, id: &str) -> Result<Begun> {
        if let Some(begun) = self.opened().get(id).cloned() {
            let (id, expected) = (id.to_owned(), "an action at which nobody is");
            return if begun.is_live {
                Err(Error::WrongStatus { id, status: begun.status, expected })
            } else {
                Ok(begun)
            };
        }
        let found = self.inner.ground.rows.find(id)?.ok_or_else(|| Error::NoSuchAction { id: id.to_owned() })?;
        Err(Error::WrongStatus { id: id.to_owned(), status: found.status, expected: "an action without an end" })
    }

    /// Changes a row; that it was changed so before is no trouble. The end of the audit so far is kept with it.
    fn settle(&self, id: &str, from: &[Status], settled: &Settled<'_>) -> Result<()> {
        let ground = &self.inner.ground;
        let anchor = ground.audit.as_ref().map(|audit| audit.head()).filter(|anchor| anchor.record_count > 0);
        match ground.rows.settle(id, from, settled, anchor.as_ref()) {
            Err(Error::RowCount { .. }) => {}
            other => return other,
        }
        let found = ground.rows.find(id)?.ok_or_else(|| Error::NoSuchAction { id: id.to_owned() })?;
        if found.status == settled.status && found.result_ref.as_deref() == settled.result_ref {
            return Ok(());
        }
        Err(Error::WrongStatus { id: id.to_owned(), status: found.status, expected: "an action without an end" })
    }

    /// Compares journal, rows and artifacts again, and repairs what has one right answer. Waits for steps that are under way.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reconcile(&self) -> Result<Reconciliation> {
        let _all = self.inner.gate.write().unwrap_or_else(PoisonError::into_inner);
        let mut comparison = reconcile::Comparison::new(&self.inner.ground, &self.inner.artifacts)?;
        let disk = &*self.inner.ground.journal;
        wal::read(disk, |line| comparison.line(line))?;
        let mut live = self.opened().clone();
        live.retain(|_, begun| begun.is_live);
        let (open, found) = comparison.end(&self.inner.wal, None, live)?;
        *self.opened() = open;
        Ok(found)
    }

    /// Writes the journal anew, with the open actions only. Waits for steps that are under way.
    ///
    /// # Errors
    /// Whatever the disk reports. The journal is then the old one or the new one; both hold every open action.
    pub fn compact(&self) -> Result<()> {
        let _all = self.inner.gate.write().unwrap_or_else(PoisonError::into_inner);
        let open = self.opened();
        let mut lines = Vec::with_capacity(open.len());
        for (id, begun) in open.iter() {
            lines.push(line_of(id, begun));
            if begun.status != Status::Started {
                let settled = Settled { status: begun.status, result_ref: None, error: None, at: begun.at };
                lines.push(end_of(id, &begun.trace, &settled));
            }
        }
        self.inner.wal.rewrite(&lines)
    }

    /// The actions that were begun and not ended, and at which nobody is in this process.
    #[must_use]
    pub fn orphans(&self) -> Vec<ActionRow> {
        let open = self.opened();
        open.iter().filter(|(_, begun)| !begun.is_live).map(|(id, begun)| begun.row(id)).collect()
    }

    /// How many bytes the journal has.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        self.inner.wal.bytes()
    }

    /// The artifact of a `result_ref`, to be read; nothing if it is not there.
    ///
    /// # Errors
    /// Whatever the disk reports.
    pub fn artifact(&self, result_ref: &str) -> Result<Option<ArtifactReader>> {
        self.inner.artifacts.reader(result_ref)
    }

    /// What these actions stand on.
    #[must_use]
    pub fn ground(&self) -> &Ground {
        &self.inner.ground
    }

    pub(crate) fn is_live(&self, id: &str) -> bool {
        self.opened().get(id).is_some_and(|begun| begun.is_live)
    }

    fn step(&self) -> RwLockReadGuard<'_, ()> {
        self.inner.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, BTreeMap<String, Begun>> {
        // Insertions and removals are whole or not at all.
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: &AuditNote) -> Result<()> {
        self.inner.ground.note(note)
    }
}

impl Ground {
    fn note(&self, note: &AuditNote) -> Result<()> {
        self.audit.as_ref().map_or(Ok(()), |audit| audit.append(note).map(drop))
    }
}

impl Begun {
    fn row(&self, id: &str) -> ActionRow {
        ActionRow {
            action_id: id.to_owned(),
            trace_id: self.trace.clone(),
            task: self.task.clone(),
            status: self.status,
            result_ref: None,
            started_at: self.at,
            error: None,
            retry_of: self.retry_of.clone(),
            needs: self.needs.clone(),
        }
    }
}

fn check_id(what: &'static str, id: &str) -> Result<()> {
    match (1..=ID_BYTES_MAX).contains(&id.len()) {
        true => Ok(()),
        false => Err(Error::input(what, "1 to 256 bytes", id)),
    }
}

fn line_of<'a>(id: &'a str, begun: &'a Begun) -> WalLine<'a> {
    WalLine {
        action_id: id.into(),
        trace_id: begun.trace.as_str().into(),
        task: begun.task.as_str().into(),
        status: Status::Started,
        timestamp: begun.at,
        result_ref: None,
        error: None,
        retry_of: begun.retry_of.as_deref().map(Into::into),
        needs: begun.needs.clone(),
        seq: 0,
        batch: 0,
    }
}

fn end_of<'a>(id: &'a str, trace: &'a str, settled: &Settled<'a>) -> WalLine<'a> {
    WalLine {
        action_id: id.into(),
        trace_id: trace.into(),
        task: "".into(),
        status: settled.status.in_journal(),
        timestamp: settled.at,
        result_ref: settled.result_ref.map(Into::into),
        error: settled.error.map(Into::into),
        retry_of: None,
        needs: Vec::new(),
        seq: 0,
        batch: 0,
    }
}

impl fmt::Debug for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actions").field("open", &self.opened().len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ground").finish_non_exhaustive()
    }
}
