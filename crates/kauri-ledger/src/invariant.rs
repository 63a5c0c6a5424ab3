//! What must hold of a ledger at any time, as ordinary code: tests ask it, and so does the doctor.

use std::collections::BTreeMap;
use std::fmt;

use kauri_disk::{Disk, OsDisk};

use crate::action::{Rows, Status, wal};
use crate::error::{Error, Result};
use crate::lock::{HeldLocks, meta_of, out_of_order};
use crate::{Actions, Ledger, artifact, audit};

/// What must hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Invariant {
    /// What the journal says is completed, the database says is completed.
    I1,
    /// What the database says is completed has its artifact, or is marked missing and its dependents are invalidated.
    I2,
    /// What was begun has ended, was decided about, or is under way.
    I3,
    /// An action is begun once, ends once, and is retried once.
    I4,
    /// Every action has a trace, and belongs to that of the action it retries.
    I5,
    /// The audit's chain is whole.
    I6,
    /// The audit's anchors stand on it.
    I7,
    /// Database and journal agree with each other and with themselves.
    I8,
    /// No lock is held that comes before one taken earlier.
    I9,
}

/// Something that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What should have held.
    pub invariant: Invariant,
    /// What is wrong.
    pub what: String,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 9] =
        [Self::I1, Self::I2, Self::I3, Self::I4, Self::I5, Self::I6, Self::I7, Self::I8, Self::I9];

    /// What must hold, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::I1 => "what the journal says is completed, the database says is completed",
            Self::I2 => "what is completed has its artifact, or is marked missing",
            Self::I3 => "what was begun has ended, was decided about, or is under way",
            Self::I4 => "an action is begun once, ends once, and is retried once",
            Self::I5 => "every action has a trace, that of the action it retries",
            Self::I6 => "the audit's chain is whole",
            Self::I7 => "the audit's anchors stand on it",
            Self::I8 => "database and journal agree with each other and with themselves",
            Self::I9 => "locks are taken in their order",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.what)
    }
}

/// How many rows are read at once.
const ROWS_MAX: u32 = 1_000;

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, invariant: Invariant, what: impl Into<String>) {
        self.0.push(Finding { invariant, what: what.into() });
    }
}

/// All of them.
pub(crate) fn check(ledger: &Ledger) -> Result<Vec<Finding>> {
    let mut found = Findings(check_actions(ledger.actions())?);
    check_audit(ledger, &mut found)?;
    ledger.database().check()?.into_iter().for_each(|what| found.add(Invariant::I8, what));
    let (file, row) = (ledger.switch().reason()?, ledger.database().state("kill_switch")?);
    if file.is_some() != row.is_some() {
        found.add(Invariant::I8, "the kill switch is thrown in the file or in the database, not in both");
    }
    check_locks(&mut found)?;
    if let Err(error) = ledger.home().check() {
        found.add(Invariant::I9, error.to_string());
    }
    Ok(found.0)
}

/// I1 to I5 and what I8 says of the journal: everything that actions alone can be asked.
///
/// # Errors
/// What the rows or the disk say.
pub fn check_actions(actions: &Actions) -> Result<Vec<Finding>> {
    let ground = actions.ground();
    check_records(&Records {
        journal: &*ground.journal,
        rows: &*ground.rows,
        holds: &|result_ref| artifact::holds(&*ground.artifacts, result_ref).unwrap_or(false),
        is_live: &|id| actions.is_live(id),
        rows_max: usize::MAX,
    })
}

/// What is known of actions, and how to ask for the rest.
pub(crate) struct Records<'a> {
    pub(crate) journal: &'a dyn Disk,
    pub(crate) rows: &'a dyn Rows,
    /// Whether the artifact of a `result_ref` is as it should be.
    pub(crate) holds: &'a dyn Fn(&str) -> bool,
    /// Whether somebody is at this action.
    pub(crate) is_live: &'a dyn Fn(&str) -> bool,
    /// How many rows of each status are looked at, at most.
    pub(crate) rows_max: usize,
}

pub(crate) fn check_records(records: &Records<'_>) -> Result<Vec<Finding>> {
    let mut found = Findings::default();
    let open = check_journal(records.journal, records.rows, &mut found)?;
    for status in Status::ALL {
        let (mut after, mut seen) = (String::new(), 0);
        while seen < records.rows_max {
            let rows = records.rows.each_with(&[status], &after, ROWS_MAX)?;
            let Some(last) = rows.last() else { break };
            seen += rows.len();
            after.clone_from(&last.action_id);
            for row in &rows {
                check_row(records, &row.action_id, &open, &mut found)?;
            }
        }
    }
    Ok(found.0)
}

/// The journal by itself and against the rows. Answers what has no end in it.
fn check_journal(disk: &dyn Disk, rows: &dyn Rows, found: &mut Findings) -> Result<BTreeMap<String, Status>> {
    let mut open = BTreeMap::new();
    // What ended, until it is compared: a bounded number at once.
    let mut ended: Vec<(String, Status)> = Vec::new();
    let compare = |ended: &mut Vec<(String, Status)>, found: &mut Findings| {
        let ids: Vec<&str> = ended.iter().map(|(id, _)| id.as_str()).collect();
        for ((id, status), row) in ended.iter().zip(rows.statuses(&ids)?) {
            let row = row.map(|(status, _)| status);
            if row.map(Status::in_journal) != Some(*status) {
                let invariant = if *status == Status::Completed { Invariant::I1 } else { Invariant::I8 };
                let row = row.map_or("nothing", Status::as_str);
                found.add(invariant, format!("{id}: the journal says {status}, the database {row}"));
            }
        }
        ended.clear();
        Ok::<_, Error>(())
    };
    let read = wal::read(disk, |line| {
        let id = line.action_id.clone().into_owned();
        match line.status {
            Status::Started => {
                if open.insert(id.clone(), Status::Started).is_some() {
                    found.add(Invariant::I4, format!("{id}: begun twice, again in line {}", line.seq));
                }
            }
            Status::NeedsHuman => drop(open.insert(id, Status::NeedsHuman)),
            status => {
                if open.remove(&id).is_none() {
                    found.add(
                        Invariant::I4,
                        format!("{id}: {status} in line {}, begun never or ended before", line.seq),
                    );
                }
                ended.push((id, status));
            }
        }
        if ended.len() >= 256 { compare(&mut ended, found) } else { Ok(()) }
    });
    match read {
        Err(error @ Error::Damaged { .. }) => found.add(Invariant::I8, error.to_string()),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    compare(&mut ended, found)?;
    Ok(open)
}

fn check_row(records: &Records<'_>, id: &str, open: &BTreeMap<String, Status>, found: &mut Findings) -> Result<()> {
    let Some(row) = records.rows.find(id)? else { return Ok(()) };
    let is_live = (records.is_live)(id);
    match row.status {
        Status::Completed => {
            let result_ref = row.result_ref.as_deref();
            if let Some(missing) = result_ref.filter(|found| !(records.holds)(found)) {
                found.add(Invariant::I2, format!("{id}: completed, and {missing} is missing"));
            }
        }
        Status::Missing | Status::Invalidated => {
            for dependent in records.rows.dependents(id)? {
                if records.rows.find(&dependent)?.is_some_and(|row| row.status == Status::Completed) {
                    found.add(
                        Invariant::I2,
                        format!("{dependent}: completed, and {id}, which it needs, is {}", row.status),
                    );
                }
            }
        }
        Status::Started if !is_live => {
            found.add(Invariant::I3, format!("{id}: begun at {} and not ended", row.started_at));
        }
        _ => {}
    }
    match open.get(id) {
        _ if is_live => {}
        Some(status) if row.status.in_journal() != *status => {
            found.add(Invariant::I8, format!("{id}: {status} in the journal, {} in the database", row.status));
        }
        None if row.status.is_open() => {
            found.add(
                Invariant::I8,
                format!("{id}: {} in the database, and the journal knows nothing of it", row.status),
            );
        }
        _ => {}
    }
    check_lineage(records.rows, &row, found)
}

fn check_lineage(rows: &dyn Rows, row: &crate::ActionRow, found: &mut Findings) -> Result<()> {
    let id = &row.action_id;
    if row.trace_id.is_empty() {
        found.add(Invariant::I5, format!("{id}: no trace"));
    }
    for other in &row.needs {
        if rows.find(other)?.is_none() {
            found.add(Invariant::I5, format!("{id}: needs {other}, which is not there"));
        }
    }
    let Some(other) = &row.retry_of else { return Ok(()) };
    match rows.find(other)? {
        None => found.add(Invariant::I5, format!("{id}: retries {other}, which is not there")),
        Some(before) if before.trace_id != row.trace_id => {
            found.add(Invariant::I5, format!("{id}: retries {other}, which belongs to another trace"));
        }
        Some(before) if !matches!(before.status, Status::Failed | Status::Retriable) => {
            found.add(Invariant::I4, format!("{id}: retries {other}, which is {}", before.status));
        }
        Some(_) => {}
    }
    if rows.retry_of(other)?.is_some_and(|by| by != *id) {
        found.add(Invariant::I4, format!("{other}: retried twice, also by {id}"));
    }
    Ok(())
}

fn check_audit(ledger: &Ledger, found: &mut Findings) -> Result<()> {
    let path = ledger.home().directory().join("audit");
    let disk = OsDisk::new(&path).map_err(Error::path("open", &path))?;
    let report = audit::verify(&disk, &ledger.database().anchors()?)?;
    report.broken.into_iter().for_each(|what| found.add(Invariant::I6, what));
    report.unanchored.into_iter().for_each(|what| found.add(Invariant::I7, what));
    Ok(())
}

/// No lock was taken while its thread had one that comes after; each is where its metadata says, which names this process.
fn check_locks(found: &mut Findings) -> Result<()> {
    for (had, took) in out_of_order() {
        found.add(
            Invariant::I9,
            format!("{}: taken while {} was held, which comes after it", took.display(), had.display()),
        );
    }
    for lock in HeldLocks::of_this_process().iter() {
        let name = lock.path.display();
        match meta_of(lock)? {
            Some(holder) if !holder.is_this_process() => {
                found.add(
                    Invariant::I9,
                    format!("{name}: held by this process, and its metadata names process {}", holder.pid),
                );
            }
            Some(holder) if holder.lock_order_position != lock.position => {
                let position = holder.lock_order_position;
                found.add(
                    Invariant::I9,
                    format!("{name}: taken as lock {}, and its metadata says {position}", lock.position),
                );
            }
            // Somebody may have given it back in between.
            _ => {}
        }
    }
    Ok(())
}
