//! The ledger: its journal, database and audit, and whether they agree.

use std::path::PathBuf;

use kauri::ledger::{
    AuditReport, DATABASE_NAME, DatabaseLook, Error, Finding, Invariant, JournalLook, LockState, Look, Result,
    Timestamp, WAL_NAME,
};

use super::Patient;
use super::check::{Check, lasting, many};

/// What the doctor says of a file that is not what was written.
const DAMAGED: &str = "restore the home from a copy; keep the damaged file for whoever helps";
/// What a process that works here would have to be asked.
const WORKED_IN: &str = "somebody works here, and what is under way would be found wanting";
/// A moment may be so far ahead before the clock is blamed.
const AHEAD_MS: i64 = 2_000;

pub(super) fn checks(patient: &Patient) -> Vec<Check> {
    let look = Look::at(patient.layout.home());
    let (journal, database, audit) = (look.journal(), look.database(), look.audit());
    // SQLite looks at all its pages for this: once is enough.
    let faults = database.as_ref().ok().and_then(Option::as_ref).map(|database| database.faults(patient.is_deep));
    let mut checks = vec![
        clock_jump(patient, &look, &journal),
        actions(patient, &journal),
        orphans(patient, &journal),
        writer_queue(patient, &database),
        state_database(&database, faults.as_ref()),
        audit_chain(&audit),
        anchors(&audit),
    ];
    checks.extend(invariants(patient, &look, &database, faults.as_ref(), &audit));
    checks
}

/// Whether anything was recorded at a moment that is yet to come.
fn clock_jump(patient: &Patient, look: &Look, journal: &Result<Option<JournalLook>>) -> Check {
    const NAME: &str = "clock";
    let of_journal = journal.as_ref().ok().and_then(|journal| journal.as_ref()?.newest);
    let of_audit = look.audit_lines(1).ok().and_then(|lines| lines.last().map(|line| line.timestamp));
    let of_lock = match &patient.lock {
        Ok(LockState::Held(Some(holder)) | LockState::Stale(holder)) => Some(holder.timestamp),
        _ => None,
    };
    let Some(newest) = [of_journal, of_audit, of_lock].into_iter().flatten().max() else {
        return Check::skip(NAME, "nothing is recorded that could tell");
    };
    let Timestamp(now) = patient.now;
    let ahead = newest.0.saturating_sub(now);
    match ahead > AHEAD_MS {
        true => Check::warn(
            NAME,
            format!("set back by {} at least: {newest} is recorded, and it is {}", lasting(ahead), patient.now),
            "set the clock; timers and leases on names wait for its moments",
        ),
        false => Check::ok(NAME, format!("not before the last moment recorded, {newest}")),
    }
}

fn actions(patient: &Patient, journal: &Result<Option<JournalLook>>) -> Check {
    const NAME: &str = "journal";
    match journal {
        Ok(None) => Check::skip(NAME, "no action was ever begun"),
        Ok(Some(JournalLook { torn: Some(torn), .. })) if !patient.is_worked_in() => Check::warn(
            NAME,
            format!("a torn tail of {} at byte {}, which was never acknowledged", many(torn.bytes, "byte"), torn.at),
            "kauri doctor --fix cuts it off, and so does the next start",
        ),
        Ok(Some(journal)) => Check::ok(NAME, format!("{}, each whole", many(journal.lines, "line"))),
        Err(error) => Check::fail(NAME, error.to_string(), todo_for(error)),
    }
}

fn orphans(patient: &Patient, journal: &Result<Option<JournalLook>>) -> Check {
    const NAME: &str = "orphans";
    let orphans = match journal {
        Ok(Some(journal)) => &journal.orphans,
        Ok(None) => return Check::skip(NAME, "no action was ever begun"),
        Err(_) => return Check::skip(NAME, "the journal cannot be read"),
    };
    let shown =
        orphans.iter().map(|row| format!("{}: {} ({}, since {})", row.action_id, row.task, row.status, row.started_at));
    match orphans.len() as u64 {
        0 => Check::ok(NAME, "no action without an end"),
        count if patient.is_worked_in() => Check::ok(NAME, format!("{} under way or waiting", many(count, "action"))),
        count => Check::warn(
            NAME,
            format!("{} without an end: nobody knows whether it was done", many(count, "action")),
            "find out whether the effect happened, then: kauri ledger resolve ID",
        )
        .with(shown),
    }
}

fn writer_queue(patient: &Patient, database: &Result<Option<DatabaseLook>>) -> Check {
    const NAME: &str = "writer-queue";
    if patient.is_worked_in() {
        return Check::skip(NAME, "runs in the process that has the lock, which alone knows how much waits");
    }
    if matches!(database, Ok(None)) {
        return Check::skip(NAME, "there is no database yet");
    }
    let log: PathBuf = patient.layout.runtime().join(format!("{DATABASE_NAME}-wal"));
    match log.metadata().map_or(0, |metadata| metadata.len()) {
        0 => Check::ok(NAME, "stopped, and all it wrote is in the database"),
        bytes => Check::warn(
            NAME,
            format!("stopped without closing: {} wait in the database's log", many(bytes, "byte")),
            "nothing is lost: the next start, or kauri doctor --fix, takes them in",
        ),
    }
}

/// What the database says of itself, if there is one.
type Faults<'a> = Option<&'a Result<Vec<String>>>;

fn state_database(database: &Result<Option<DatabaseLook>>, faults: Faults<'_>) -> Check {
    const NAME: &str = "database";
    let database = match database {
        Ok(Some(database)) => database,
        Ok(None) => return Check::skip(NAME, "there is no database yet"),
        Err(error @ Error::OlderSchema { .. }) => {
            return Check::warn(NAME, error.to_string(), "kauri doctor --fix, or the next start");
        }
        Err(error) => return Check::fail(NAME, error.to_string(), todo_for(error)),
    };
    match faults {
        Some(Ok(faults)) if !faults.is_empty() => {
            Check::fail(NAME, format!("{} found by SQLite", many(faults.len() as u64, "fault")), DAMAGED).with(faults)
        }
        Some(Err(error)) => Check::fail(NAME, error.to_string(), DAMAGED),
        Some(Ok(_)) | None => Check::ok(NAME, format!("whole; schema {}", database.schema())),
    }
}

fn todo_for(error: &Error) -> &'static str {
    match error {
        Error::NewerSchema { .. } | Error::NewerLock { .. } => "upgrade this program",
        Error::Io { .. } => "ask as the user to whom the home belongs, and look at the disk",
        Error::Damaged { file, .. } if file == WAL_NAME => {
            "keep what can be read of it with kauri ledger salvage, or restore the home from a copy"
        }
        _ => DAMAGED,
    }
}

fn audit_chain(audit: &Result<Option<AuditReport>>) -> Check {
    const NAME: &str = "audit";
    match audit {
        Ok(None) => Check::skip(NAME, "there is no audit yet"),
        Ok(Some(report)) if !report.broken.is_empty() => {
            let what = format!("the chain is broken in {}", many(report.broken.len() as u64, "place"));
            Check::fail(NAME, what, "somebody changed it, or the disk did: compare it with a copy").with(&report.broken)
        }
        Ok(Some(report)) => match report.torn {
            Some(torn) => Check::warn(
                NAME,
                format!("{} in one chain, and a torn tail of {}", many(report.lines, "line"), many(torn.bytes, "byte")),
                "kauri doctor --fix cuts it off, and so does the next start",
            ),
            None => Check::ok(NAME, format!("{} in one chain", many(report.lines, "line"))),
        },
        Err(error) => Check::fail(NAME, error.to_string(), todo_for(error)),
    }
}

fn anchors(audit: &Result<Option<AuditReport>>) -> Check {
    const NAME: &str = "anchors";
    match audit {
        Ok(None) => Check::skip(NAME, "there is no audit yet"),
        Ok(Some(report)) if !report.unanchored.is_empty() => {
            let what = format!("{} not where the chain has them", many(report.unanchored.len() as u64, "anchor"));
            Check::fail(NAME, what, "lines were cut off or changed: compare the audit with a copy")
                .with(&report.unanchored)
        }
        Ok(Some(report)) if report.anchors == 0 => Check::skip(NAME, "nothing was anchored yet"),
        Ok(Some(report)) => Check::ok(NAME, format!("{} on the chain", many(report.anchors, "anchor"))),
        Err(_) => Check::skip(NAME, "the audit cannot be read"),
    }
}

fn name_of(invariant: Invariant) -> &'static str {
    match invariant {
        Invariant::I1 => "I1",
        Invariant::I2 => "I2",
        Invariant::I3 => "I3",
        Invariant::I4 => "I4",
        Invariant::I5 => "I5",
        Invariant::I6 => "I6",
        Invariant::I7 => "I7",
        Invariant::I8 => "I8",
        Invariant::I9 => "I9",
    }
}

/// What was found out about some of the invariants, or why nothing could be.
type Found = std::result::Result<Vec<Finding>, String>;

fn invariants(
    patient: &Patient,
    look: &Look,
    database: &Result<Option<DatabaseLook>>,
    faults: Faults<'_>,
    audit: &Result<Option<AuditReport>>,
) -> Vec<Check> {
    let of_actions = of_actions(patient, look, database, faults);
    let of_audit = of_audit(audit);
    let of_locks = of_locks(patient);
    let judge = |invariant: Invariant| {
        let found = match invariant {
            Invariant::I6 | Invariant::I7 => &of_audit,
            Invariant::I9 => &of_locks,
            _ => &of_actions,
        };
        judge(invariant, found)
    };
    Invariant::ALL.into_iter().map(judge).collect()
}

fn judge(invariant: Invariant, found: &Found) -> Check {
    let name = name_of(invariant);
    let broken = match found {
        Ok(found) => found.iter().filter(|finding| finding.invariant == invariant),
        Err(why) => return Check::skip(name, why.clone()),
    };
    let broken: Vec<&str> = broken.map(|finding| finding.what.as_str()).collect();
    if broken.is_empty() {
        return Check::ok(name, invariant.as_str());
    }
    let what = format!("does not hold: {}", invariant.as_str());
    match invariant {
        // It is the very thing that a crash leaves, and that a person decides about.
        Invariant::I3 => Check::warn(name, what, "kauri ledger orphans; then kauri ledger resolve ID").with(broken),
        _ => {
            Check::fail(name, what, "kauri doctor --fix repairs what has one right answer; then ask again").with(broken)
        }
    }
}

fn of_actions(patient: &Patient, look: &Look, database: &Result<Option<DatabaseLook>>, faults: Faults<'_>) -> Found {
    if patient.is_worked_in() {
        return Err(WORKED_IN.to_owned());
    }
    let database = match database {
        Ok(Some(database)) => database,
        Ok(None) => return Err("there is no database yet".to_owned()),
        Err(_) => return Err("the database cannot be read".to_owned()),
    };
    let failed = |error: Error| error.to_string();
    let mut found = look.check_actions(database, patient.is_deep).map_err(failed)?;
    let faults = faults.map_or(Ok(&[][..]), |faults| faults.as_deref()).map_err(ToString::to_string)?;
    found.extend(faults.iter().map(|what| Finding { invariant: Invariant::I8, what: what.clone() }));
    // That the switch was thrown or taken back without the database is no fault: the next start notices.
    Ok(found)
}

fn of_audit(audit: &Result<Option<AuditReport>>) -> Found {
    let report = match audit {
        Ok(Some(report)) => report,
        Ok(None) => return Err("there is no audit yet".to_owned()),
        Err(_) => return Err("the audit cannot be read".to_owned()),
    };
    let finding = |invariant, what: &String| Finding { invariant, what: what.clone() };
    let broken = report.broken.iter().map(|what| finding(Invariant::I6, what));
    let unanchored = report.unanchored.iter().map(|what| finding(Invariant::I7, what));
    Ok(broken.chain(unanchored).collect())
}

/// From outside, a lock's metadata tells as which one it was taken. The home's is the first of all.
fn of_locks(patient: &Patient) -> Found {
    let holder = match &patient.lock {
        Ok(LockState::Held(Some(holder)) | LockState::Stale(holder)) => holder,
        Ok(LockState::Free) => return Err("nobody has a lock".to_owned()),
        Ok(LockState::Held(None)) => return Err("the holder has not said who it is".to_owned()),
        Err(_) => return Err("the lock cannot be tried".to_owned()),
    };
    let position = holder.lock_order_position;
    let wrong = (position != 0).then(|| format!("the lock of the home was taken as lock {position}, expected 0"));
    Ok(wrong.map(|what| Finding { invariant: Invariant::I9, what }).into_iter().collect())
}
