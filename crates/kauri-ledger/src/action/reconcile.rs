//! What a crash left is made to agree again: journal, rows and artifacts, action by action.
//!
//! The table of all cases is in `docs/ledger.md`. The journal is read once, in constant memory: an action that ended is
//! compared and forgotten, only those without an end are kept.

use std::collections::BTreeMap;
use std::fmt;

use super::wal::{self, Wal, WalLine};
use super::{ActionRow, Begun, Ground, Settled, Status, end_of, line_of};
use crate::artifact::Artifacts;
use crate::audit::AuditNote;
use crate::error::Result;
use crate::journal::Torn;

/// How many ended actions are looked up at once.
const LOOKUPS_MAX: usize = 256;
/// How many open rows are read at once.
const ROWS_MAX: u32 = 1_000;

/// What was found, and what was done about it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Reconciliation {
    /// How many lines the journal has.
    pub lines: u64,
    /// The tail of the journal that a crash left; it was cut off.
    pub torn: Option<Torn>,
    /// What had one right answer, and was repaired.
    pub repairs: Vec<Repair>,
    /// What has no right answer: nothing was changed, somebody must look.
    pub findings: Vec<String>,
    /// Actions that were begun and not ended. Nobody knows whether their effect happened: see `resolve`.
    pub orphans: Vec<ActionRow>,
}

/// Something that was made to agree.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Repair {
    /// The database lacked the row.
    RowInserted(String, Status),
    /// The row was behind the journal.
    RowSettled(String, Status),
    /// The journal was behind the row.
    LineAppended(String, Status),
    /// The artifact of a completed action is not there, or not whole.
    MarkedMissing(String),
    /// The action needs the result of one whose artifact is missing.
    Invalidated(String),
}

impl Repair {
    /// The action that it is about.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::RowInserted(id, _) | Self::RowSettled(id, _) | Self::LineAppended(id, _) => id,
            Self::MarkedMissing(id) | Self::Invalidated(id) => id,
        }
    }
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RowInserted(id, status) => write!(f, "{id}: the database lacked the row, which is {status}"),
            Self::RowSettled(id, status) => write!(f, "{id}: the database was behind the journal, which says {status}"),
            Self::LineAppended(id, status) => {
                write!(f, "{id}: the journal was behind the database, which says {status}")
            }
            Self::MarkedMissing(id) => write!(f, "{id}: completed, but its artifact is missing"),
            Self::Invalidated(id) => write!(f, "{id}: needs a result that is missing"),
        }
    }
}

/// A comparison under way: it is fed the journal line by line.
pub(super) struct Comparison<'a> {
    ground: &'a Ground,
    artifacts: &'a Artifacts,
    /// Lines up to this one are known to agree.
    mark: u64,
    open: BTreeMap<String, Begun>,
    ended: Vec<Ended>,
    found: Reconciliation,
}

/// An action that has an end in the journal and is yet to be compared.
struct Ended {
    id: String,
    begun: Begun,
    result_ref: Option<String>,
    error: Option<String>,
    at: crate::Timestamp,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(ground: &'a Ground, artifacts: &'a Artifacts) -> Result<Self> {
        let mark = match ground.rows.mark()? {
            Some(mark) if wal::holds(&*ground.journal, &mark)? => mark.seq,
            // Nothing was compared yet, or the journal is another: it was written anew, or the rows are an older copy.
            _ => 0,
        };
        let (open, ended) = (BTreeMap::new(), Vec::with_capacity(LOOKUPS_MAX));
        Ok(Self { ground, artifacts, mark, open, ended, found: Reconciliation::default() })
    }

    /// Takes the next line of the journal.
    pub(super) fn line(&mut self, line: &WalLine<'_>) -> Result<()> {
        self.found.lines += 1;
        let id = &*line.action_id;
        match line.status {
            Status::Started => {
                let begun = Begun::of(line);
                if self.open.insert(id.to_owned(), begun).is_some() {
                    self.finding(format!("{id}: begun twice, again in line {}", line.seq))?;
                }
            }
            Status::NeedsHuman => match self.open.get_mut(id) {
                Some(begun) => begun.status = Status::NeedsHuman,
                None => self.finding(format!("{id}: decided in line {} and never begun", line.seq))?,
            },
            status => match self.open.remove(id) {
                Some(begun) if line.seq > self.mark => {
                    let (result_ref, error) = (line.result_ref.as_deref(), line.error.as_deref());
                    let (result_ref, error) = (result_ref.map(str::to_owned), error.map(str::to_owned));
                    let begun = Begun { status, ..begun };
                    self.ended.push(Ended { id: id.to_owned(), begun, result_ref, error, at: line.timestamp });
                }
                Some(_) => {}
                None => self.finding(format!("{id}: {status} in line {} and never begun", line.seq))?,
            },
        }
        if self.ended.len() >= LOOKUPS_MAX { self.compare_ended() } else { Ok(()) }
    }

    /// The actions that have an end in the journal: the rows must say the same.
    fn compare_ended(&mut self) -> Result<()> {
        let ended = std::mem::take(&mut self.ended);
        let ids: Vec<&str> = ended.iter().map(|ended| ended.id.as_str()).collect();
        let rows = self.ground.rows.statuses(&ids)?;
        for (ended, row) in ended.iter().zip(rows) {
            self.compare(ended, row)?;
        }
        self.ended = ended;
        self.ended.clear();
        Ok(())
    }

    fn compare(&mut self, ended: &Ended, row: Option<(Status, Option<String>)>) -> Result<()> {
        let (id, status) = (&ended.id, ended.begun.status);
        match row {
            None => {
                let row = ActionRow {
                    result_ref: ended.result_ref.clone(),
                    error: ended.error.clone(),
                    ..ended.begun.row(id)
                };
                self.repair(Repair::RowInserted(id.clone(), status))?;
                self.ground.rows.insert(&row)?;
                self.check_artifact(id, status, ended.result_ref.as_deref())
            }
            Some((found, _)) if found.is_open() => {
                let (result_ref, error) = (ended.result_ref.as_deref(), ended.error.as_deref());
                let settled = Settled { status, result_ref, error, at: ended.at };
                self.repair(Repair::RowSettled(id.clone(), status))?;
                self.ground.rows.settle(id, &[Status::Started, Status::NeedsHuman], &settled, None)?;
                self.check_artifact(id, status, result_ref)
            }
            Some((found, result_ref)) if found.in_journal() == status => {
                self.check_artifact(id, found, result_ref.as_deref())
            }
            Some((found, _)) => self.finding(format!("{id}: the journal says {status}, the database {found}")),
        }
    }

    /// A completed action without its artifact is marked, and so is every one that needs it.
    fn check_artifact(&mut self, id: &str, status: Status, result_ref: Option<&str>) -> Result<()> {
        let Some(result_ref) = result_ref.filter(|_| status == Status::Completed) else { return Ok(()) };
        if self.artifacts.holds(result_ref)? {
            return Ok(());
        }
        let at = self.ground.clock.now();
        let settled = |status| Settled { status, result_ref: None, error: None, at };
        self.repair(Repair::MarkedMissing(id.to_owned()))?;
        self.ground.rows.settle(id, &[Status::Completed], &settled(Status::Missing), None)?;
        let mut left = self.ground.rows.dependents(id)?;
        while let Some(id) = left.pop() {
            let status = self.ground.rows.find(&id)?.map(|row| row.status);
            if status == Some(Status::Completed) {
                self.repair(Repair::Invalidated(id.clone()))?;
                self.ground.rows.settle(&id, &[Status::Completed], &settled(Status::Invalidated), None)?;
                left.extend(self.ground.rows.dependents(&id)?);
            }
        }
        Ok(())
    }

    /// Something is to be repaired. It is audited before it is done: after a crash in between it is audited and done again, and
    /// nothing is ever changed that nobody can read about.
    fn repair(&mut self, repair: Repair) -> Result<()> {
        let note = AuditNote::new("ACTION_REPAIRED").action(repair.id()).with("repair", repair.to_string());
        self.ground.note(&note)?;
        self.found.repairs.push(repair);
        Ok(())
    }

    fn finding(&mut self, what: String) -> Result<()> {
        self.ground.note(&AuditNote::new("LEDGER_FINDING").with("what", &what))?;
        self.found.findings.push(what);
        Ok(())
    }

    /// The journal is at its end. `live` are the actions that somebody is at: they are as they should be.
    pub(super) fn end(
        mut self,
        wal: &Wal,
        torn: Option<Torn>,
        live: BTreeMap<String, Begun>,
    ) -> Result<(BTreeMap<String, Begun>, Reconciliation)> {
        self.cut(wal, torn)?;
        self.compare_ended()?;
        let mut open = std::mem::take(&mut self.open);
        open.retain(|id, _| !live.contains_key(id));
        let mut kept = self.compare_open(wal, open)?;
        self.compare_rows(wal, &mut kept, &live)?;
        self.found.orphans = kept.iter().map(|(id, begun)| begun.row(id)).collect();
        if live.is_empty()
            && let Some(mark) = wal.mark(&*self.ground.journal)?.filter(|mark| mark.seq != self.mark)
        {
            self.ground.rows.set_mark(&mark)?;
        }
        kept.extend(live);
        Ok((kept, self.found))
    }

    /// What a crash left of the journal's last lines is cut off, and audited before, as a repair is.
    fn cut(&mut self, wal: &Wal, torn: Option<Torn>) -> Result<()> {
        let Some(Torn { at, bytes }) = torn else { return Ok(()) };
        let note = AuditNote::new("JOURNAL_TAIL_CUT").with("at", at.to_string()).with("bytes", bytes.to_string());
        self.ground.note(&note)?;
        self.found.torn = torn;
        wal.cut()
    }

    /// The actions without an end in the journal: the rows may know more.
    fn compare_open(&mut self, wal: &Wal, open: BTreeMap<String, Begun>) -> Result<BTreeMap<String, Begun>> {
        let mut kept = BTreeMap::new();
        for (id, mut begun) in open {
            let row = self.ground.rows.find(&id)?;
            match row {
                None => {
                    self.repair(Repair::RowInserted(id.clone(), begun.status))?;
                    self.ground.rows.insert(&begun.row(&id))?;
                }
                Some(row) if row.status == begun.status => {}
                Some(row) if row.status == Status::Started => {
                    let settled = Settled { status: begun.status, result_ref: None, error: None, at: begun.at };
                    self.repair(Repair::RowSettled(id.clone(), begun.status))?;
                    self.ground.rows.settle(&id, &[Status::Started], &settled, None)?;
                }
                Some(row) => {
                    self.append_end(wal, &row)?;
                    begun.status = row.status;
                    self.check_artifact(&id, row.status, row.result_ref.as_deref())?;
                }
            }
            if begun.status.is_open() {
                kept.insert(id, begun);
            }
        }
        Ok(kept)
    }

    fn append_end(&mut self, wal: &Wal, row: &ActionRow) -> Result<()> {
        let (result_ref, error) = (row.result_ref.as_deref(), row.error.as_deref());
        let settled = Settled { status: row.status, result_ref, error, at: self.ground.clock.now() };
        self.repair(Repair::LineAppended(row.action_id.clone(), row.status.in_journal()))?;
        wal.append(&end_of(&row.action_id, &row.trace_id, &settled)).map(drop)
    }

    /// The rows without an end: the journal must know of each.
    fn compare_rows(
        &mut self,
        wal: &Wal,
        open: &mut BTreeMap<String, Begun>,
        live: &BTreeMap<String, Begun>,
    ) -> Result<()> {
        let mut after = String::new();
        loop {
            let rows = self.ground.rows.each_with(&[Status::Started, Status::NeedsHuman], &after, ROWS_MAX)?;
            let Some(last) = rows.last() else { return Ok(()) };
            after.clone_from(&last.action_id);
            for row in rows.into_iter().filter(|row| !live.contains_key(&row.action_id)) {
                if !open.contains_key(&row.action_id) {
                    let (id, begun) = self.restore(wal, row)?;
                    open.insert(id, begun);
                }
            }
        }
    }

    /// A row whose line in the journal is lost: something took it away, but what it says is known.
    fn restore(&mut self, wal: &Wal, row: ActionRow) -> Result<(String, Begun)> {
        let id = row.action_id.clone();
        self.finding(format!("{id}: {} in the database, and the journal knows nothing of it", row.status))?;
        let row = self.ground.rows.find(&id)?.unwrap_or(row);
        let begun = Begun::of_row(row);
        self.repair(Repair::LineAppended(id.clone(), begun.status))?;
        wal.append(&line_of(&id, &begun))?;
        if begun.status == Status::NeedsHuman {
            let settled = Settled { status: begun.status, result_ref: None, error: None, at: begun.at };
            wal.append(&end_of(&id, &begun.trace, &settled))?;
        }
        Ok((id, begun))
    }
}

impl Begun {
    fn of(line: &WalLine<'_>) -> Self {
        Self {
            trace: line.trace_id.clone().into_owned(),
            task: line.task.clone().into_owned(),
            at: line.timestamp,
            status: Status::Started,
            retry_of: line.retry_of.clone().map(std::borrow::Cow::into_owned),
            needs: line.needs.clone(),
            is_live: false,
        }
    }

    fn of_row(row: ActionRow) -> Self {
        let ActionRow { trace_id, task, status, started_at, retry_of, needs, .. } = row;
        Self { trace: trace_id, task, at: started_at, status, retry_of, needs, is_live: false }
    }
}
