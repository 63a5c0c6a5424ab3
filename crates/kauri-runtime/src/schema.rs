//! The runtime's tables, by number and name, and the marker that says which version of them a store has.
//!
//! | # | table | key | value |
//! |---|---|---|---|
//! | 0 | `app_state` | the application's; `runner.schema.version` | the application's; the marker |
//! | 1 | `inbox` | worker u64be, seq u64be | message frame |
//! | 2 | `outbox` | seq u64be | message frame |
//! | 3 | `leases` | worker u64be, instance u64be | lease and the sequence numbers of the messages it covers |
//! | 4 | `timers` | due i64be (not below 0), seq u64be | message frame |
//! | 5 | `dedupe` | `retry:` message id; `seen:` worker u64be, message id; `retry#`, `seen#` the hash of an id too long for that | counters; when and what was handled |
//! | 6 | `dead_letter` | an inbox key | reason and frame |
//! | 7 | `jobs` | job id | what somebody asked for: [`run`](crate::run) draws this row and those of the next tables |
//! | 8 | `runs` | run id, 16 bytes | one execution of a job |
//! | 9 | `events` | run id, seq u64be | something the run said |
//! | 10 | `sequences` | name of a sequence | last number used, u64le |
//! | 11 | `urgent` | an inbox key | nothing: the message is claimed first |
//! | 12 | `deadlines` | an inbox key | i64le: when the message is no longer wanted |
//! | 13 | `timer_deadlines` | a timer key | the same, until the timer is due |
//! | 14 | `dedupe_expiry` | expiry i64be, a `seen:` key | nothing |
//! | 15 | `schedules` | name | what recurs |
//! | 16 | `schedule_due` | next slot i64be, name | nothing |
//! | 17 | `named_leases` | any bytes | a lease that a block acquired |
//! | 18 | `run_index` | a tag and what to find | how runs and jobs are found |
//! | 19 | `steps` | run id, number u32be | what a step of the run recorded |
//! | 20 | `inputs` | run id | what the run was given |
//! | 21 | `signals` | run id, seq u64be | what the run was told and has not taken |

use kauri_wire::SchemaVersion;

use crate::error::{Error, LayoutFault, Result};
use crate::substrate::{Change, Seen, Substrate, TableName, Verdict};

pub(crate) const APP_STATE: TableName = TableName::Borrowed("app_state");
pub(crate) const INBOX: TableName = TableName::Borrowed("inbox");
pub(crate) const OUTBOX: TableName = TableName::Borrowed("outbox");
pub(crate) const LEASES: TableName = TableName::Borrowed("leases");
pub(crate) const TIMERS: TableName = TableName::Borrowed("timers");
pub(crate) const DEDUPE: TableName = TableName::Borrowed("dedupe");
pub(crate) const DEAD_LETTER: TableName = TableName::Borrowed("dead_letter");
pub(crate) const JOBS: TableName = TableName::Borrowed("jobs");
pub(crate) const RUNS: TableName = TableName::Borrowed("runs");
pub(crate) const EVENTS: TableName = TableName::Borrowed("events");
pub(crate) const SEQUENCES: TableName = TableName::Borrowed("sequences");
pub(crate) const URGENT: TableName = TableName::Borrowed("urgent");
pub(crate) const DEADLINES: TableName = TableName::Borrowed("deadlines");
pub(crate) const TIMER_DEADLINES: TableName = TableName::Borrowed("timer_deadlines");
pub(crate) const DEDUPE_EXPIRY: TableName = TableName::Borrowed("dedupe_expiry");
pub(crate) const SCHEDULES: TableName = TableName::Borrowed("schedules");
pub(crate) const SCHEDULE_DUE: TableName = TableName::Borrowed("schedule_due");
pub(crate) const NAMED_LEASES: TableName = TableName::Borrowed("named_leases");
pub(crate) const RUN_INDEX: TableName = TableName::Borrowed("run_index");
pub(crate) const STEPS: TableName = TableName::Borrowed("steps");
pub(crate) const INPUTS: TableName = TableName::Borrowed("inputs");
pub(crate) const SIGNALS: TableName = TableName::Borrowed("signals");

/// A table of a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableSpec {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: &'static str,
}

/// The version of the tables above.
pub const SCHEMA: SchemaVersion = SchemaVersion { major: 0, minor: 0 };

/// The runtime's tables.
pub const TABLES: [TableSpec; 22] = [
    TableSpec { id: 0, name: "app_state" },
    TableSpec { id: 1, name: "inbox" },
    TableSpec { id: 2, name: "outbox" },
    TableSpec { id: 3, name: "leases" },
    TableSpec { id: 4, name: "timers" },
    TableSpec { id: 5, name: "dedupe" },
    TableSpec { id: 6, name: "dead_letter" },
    TableSpec { id: 7, name: "jobs" },
    TableSpec { id: 8, name: "runs" },
    TableSpec { id: 9, name: "events" },
    TableSpec { id: 10, name: "sequences" },
    TableSpec { id: 11, name: "urgent" },
    TableSpec { id: 12, name: "deadlines" },
    TableSpec { id: 13, name: "timer_deadlines" },
    TableSpec { id: 14, name: "dedupe_expiry" },
    TableSpec { id: 15, name: "schedules" },
    TableSpec { id: 16, name: "schedule_due" },
    TableSpec { id: 17, name: "named_leases" },
    TableSpec { id: 18, name: "run_index" },
    TableSpec { id: 19, name: "steps" },
    TableSpec { id: 20, name: "inputs" },
    TableSpec { id: 21, name: "signals" },
];

/// Whether the runtime writes to this table, and blocks do not.
pub(crate) fn is_reserved(table: &str) -> bool {
    TABLES[1..].iter().any(|spec| spec.name == table)
}

/// Whether a description of tables can be a runtime's: numbers without a gap from 0, `app_state` first, each name once, and
/// the runtime's own tables in their places. The application may describe more after them.
///
/// # Errors
/// The first fault.
pub fn check_layout(tables: &[TableSpec]) -> Result<()> {
    if tables.first().is_none_or(|first| first.name != APP_STATE) {
        return Err(Error::Layout(LayoutFault::NoAppState));
    }
    for (expected, spec) in (0..).zip(tables) {
        if spec.id != expected {
            return Err(Error::Layout(LayoutFault::Gap { expected, found: spec.id }));
        }
        if tables[..usize::from(expected)].iter().any(|before| before.name == spec.name) {
            return Err(Error::Layout(LayoutFault::Twice(spec.name)));
        }
    }
    match TABLES.iter().find(|own| tables.get(usize::from(own.id)) != Some(own)) {
        Some(missing) => Err(Error::Layout(LayoutFault::Missing(missing.name))),
        None => Ok(()),
    }
}

/// Looks at the store's marker; writes it if it is missing and `make` allows it.
///
/// # Errors
/// `NoSchema`, `OtherSchema` or `BadMarker`, or what the substrate says.
pub(crate) fn ensure_version(substrate: &dyn Substrate, expected: SchemaVersion, make: bool) -> Result<()> {
    loop {
        let rows = substrate.snapshot()?;
        if let Some(marker) = rows.get(&APP_STATE, SchemaVersion::KEY)? {
            let found = SchemaVersion::decode(&marker).map_err(Error::BadMarker)?;
            return if found == expected { Ok(()) } else { Err(Error::OtherSchema { expected, found }) };
        }
        if !make {
            return Err(Error::NoSchema);
        }
        let mut change = Change { base: rows.version(), ..Change::default() };
        drop(rows);
        change.expect(APP_STATE, SchemaVersion::KEY, Seen::Absent);
        change.put(APP_STATE, SchemaVersion::KEY, expected.encode());
        // If somebody else was first, we look at what they wrote.
        if let Verdict::Committed(_) = substrate.commit(&change.into())? {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::substrate::ModelSubstrate;

    fn check(change: impl FnOnce(&mut Vec<TableSpec>), expected: Option<&LayoutFault>) {
        let mut tables = TABLES.to_vec();
        change(&mut tables);
        match (check_layout(&tables), expected) {
            (Ok(()), None) => {}
            (Err(Error::Layout(fault)), Some(expected)) => assert_eq!(fault, *expected),
            (found, expected) => panic!("expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn tables_are_contiguous_and_begin_with_app_state() {
        check(|_| {}, None);
        check(|tables| tables.push(TableSpec { id: 22, name: "mine" }), None);
        check(Vec::clear, Some(&LayoutFault::NoAppState));
        check(|tables| tables[0].name = "state", Some(&LayoutFault::NoAppState));
        check(|tables| tables.retain(|table| table.id != 3), Some(&LayoutFault::Gap { expected: 3, found: 4 }));
        check(
            |tables| tables.push(TableSpec { id: 24, name: "mine" }),
            Some(&LayoutFault::Gap { expected: 22, found: 24 }),
        );
        check(|tables| tables.push(TableSpec { id: 22, name: "inbox" }), Some(&LayoutFault::Twice("inbox")));
        check(|tables| tables[2].name = "outbound", Some(&LayoutFault::Missing("outbox")));
    }

    #[test]
    fn marker_has_the_four_outcomes_of_the_contract() {
        let version = |major| SchemaVersion { major, minor: 0 };
        let model = ModelSubstrate::new();
        assert!(matches!(ensure_version(&model, version(0), false), Err(Error::NoSchema)));
        assert!(ensure_version(&model, version(0), true).is_ok());
        assert_eq!(
            model.snapshot().unwrap().get(&APP_STATE, b"runner.schema.version").unwrap().unwrap(),
            &b"RSV0\0\0\0\0"[..]
        );
        let other = ModelSubstrate::new();
        assert!(ensure_version(&other, SchemaVersion { major: 0x0102, minor: 0x0304 }, true).is_ok());
        assert_eq!(
            other.snapshot().unwrap().get(&APP_STATE, b"runner.schema.version").unwrap().unwrap(),
            &b"RSV0\x02\x01\x04\x03"[..]
        );
        assert!(ensure_version(&model, version(0), false).is_ok());
        assert!(matches!(ensure_version(&model, version(1), true), Err(Error::OtherSchema { .. })));
        let mut change = Change::default();
        change.put(APP_STATE, SchemaVersion::KEY, *b"RSV1\0\0\0\0");
        let _ = model.commit(&change.into()).unwrap();
        assert!(matches!(ensure_version(&model, version(0), true), Err(Error::BadMarker(_))));
    }
}
