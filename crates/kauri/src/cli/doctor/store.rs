//! The runtime's store, and what is in it: messages, timers, leases, dead letters, runs.

use std::cell::Cell;

use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{self, Look, SCHEMA};
use kauri::tree;
use kauri::wire::MessageRef;

use super::Patient;
use super::check::{Check, lasting, many};
use crate::cli::home::open_store;

const STORE: &str = "store";
/// The checks that need a store, after the one of the store itself.
const INSIDE: [&str; 6] = ["schema", "leases", "timers", "outbox", "dead-letters", "runs"];
/// How often a store is opened again that somebody writes: its pages may be used for a newer version while they are read.
const TRIES_MAX: u32 = 3;
/// How many rows of a table are looked at from either end, unless everything is.
const ROWS_MAX: u64 = 512;
/// How many rows of one kind are counted one by one, unless everything is.
const LISTED_MAX: usize = 10_000;
/// A timer may be late by so much before anybody worries.
const LATE_MS: i64 = 60_000;
const DAY_MS: i64 = 86_400_000;

/// What to do about bytes that are not those that were written.
const DAMAGED: &str = "restore the last checkpoint (kauri store restore); keep the damaged file for whoever helps";

pub(super) fn checks(patient: &Patient) -> Vec<Check> {
    let mut tries = 1;
    loop {
        let is_damaged = Cell::new(false);
        let found = look(patient, &is_damaged);
        if !is_damaged.get() || !patient.is_worked_in() || tries >= TRIES_MAX {
            return found;
        }
        tries += 1;
    }
}

fn look(patient: &Patient, is_damaged: &Cell<bool>) -> Vec<Check> {
    let skipped = |why: &'static str| INSIDE.map(|name| Check::skip(name, why));
    let substrate = match open_store(&patient.layout) {
        Ok(Some(substrate)) => substrate,
        Ok(None) => {
            let mut checks = vec![Check::skip(STORE, "there is no store yet")];
            checks.extend(skipped("there is no store yet"));
            return checks;
        }
        Err(error) => {
            is_damaged.set(error.is_corruption());
            let mut checks = vec![unreadable(STORE, &error)];
            checks.extend(skipped("the store cannot be opened"));
            return checks;
        }
    };
    let inside = Inside { patient, is_damaged, substrate: &substrate };
    let mut checks = vec![inside.store()];
    match Look::at(&substrate) {
        Ok(look) => checks.extend(inside.checks(&look)),
        Err(error) => checks.push(inside.trouble("schema", &error)),
    }
    checks
}

fn unreadable(name: &'static str, error: &tree::Error) -> Check {
    let todo = match error {
        tree::Error::NewerFormat { .. } => "upgrade this program",
        tree::Error::Io(_) => "ask as the user to whom the home belongs, and look at the disk",
        _ => DAMAGED,
    };
    Check::fail(name, error.to_string(), todo)
}

struct Inside<'a> {
    patient: &'a Patient,
    is_damaged: &'a Cell<bool>,
    substrate: &'a TreeSubstrate,
}

impl Inside<'_> {
    fn store(&self) -> Check {
        let store = self.substrate.store();
        let found = if self.patient.is_deep { verify(store) } else { sample(store) };
        found.map_or_else(
            |error| {
                self.is_damaged.set(error.is_corruption());
                unreadable(STORE, &error)
            },
            |what| Check::ok(STORE, what),
        )
    }

    /// Those of `INSIDE`, in their order.
    fn checks(&self, look: &Look<'_>) -> [Check; 6] {
        INSIDE.map(|name| {
            let found = match name {
                "schema" => Self::schema(name, look),
                "leases" => self.leases(name, look),
                "timers" => self.timers(name, look),
                "outbox" => self.outbox(name, look),
                "dead-letters" => self.dead_letters(name, look),
                _ => self.runs(name, look),
            };
            found.unwrap_or_else(|error| self.trouble(name, &error))
        })
    }

    fn trouble(&self, name: &'static str, error: &runtime::Error) -> Check {
        self.is_damaged.set(error.is_corruption());
        Check::fail(name, error.to_string(), DAMAGED)
    }

    fn listed_max(&self) -> usize {
        if self.patient.is_deep { usize::MAX } else { LISTED_MAX }
    }

    fn schema(name: &'static str, look: &Look<'_>) -> runtime::Result<Check> {
        let shown = |version: kauri::wire::SchemaVersion| format!("{}.{}", version.major, version.minor);
        Ok(match look.schema() {
            Ok(Some(SCHEMA)) => {
                let starts = many(look.incarnation()?, "start");
                Check::ok(name, format!("{}, after {starts} of a runtime", shown(SCHEMA)))
            }
            Ok(Some(found)) => Check::fail(
                name,
                format!("expected {}, found {}", shown(SCHEMA), shown(found)),
                "use the program that made it, or upgrade this one",
            ),
            Ok(None) => Check::skip(name, "no runtime was ever started on this store"),
            Err(error @ runtime::Error::BadMarker(_)) => {
                Check::fail(name, error.to_string(), "use the program that made it")
            }
            Err(error) => return Err(error),
        })
    }

    fn leases(&self, name: &'static str, look: &Look<'_>) -> runtime::Result<Check> {
        let (leases, incarnation) = (look.leases(self.listed_max())?, look.incarnation()?);
        let messages: usize = leases.iter().map(|row| row.messages.len()).sum();
        let what = format!("{} on {}", many(leases.len() as u64, "lease"), many(messages as u64, "message"));
        if !self.patient.is_worked_in() {
            let left = if leases.is_empty() { "" } else { "; nobody works here, so the next start takes them over" };
            return Ok(Check::ok(name, what + left));
        }
        let stuck = leases.iter().filter(|row| row.lease.incarnation != incarnation && !row.messages.is_empty());
        let stuck: Vec<String> = stuck
            .map(|row| {
                let of = row.lease.incarnation;
                format!("worker {}: {}, of start {of}", row.key.worker, many(row.messages.len() as u64, "message"))
            })
            .collect();
        if stuck.is_empty() {
            return Ok(Check::ok(name, what));
        }
        let what = format!("{} of an earlier start, which nobody has taken over", many(stuck.len() as u64, "lease"));
        Ok(Check::warn(name, what, "start a worker for them").with(stuck))
    }

    fn timers(&self, name: &'static str, look: &Look<'_>) -> runtime::Result<Check> {
        let (all, now) = (look.count("timers")?, self.patient.now.0);
        let first = look.timers(self.listed_max())?;
        let late = first.iter().filter(|(key, _)| key.due.0 < now.saturating_sub(LATE_MS)).count() as u64;
        let what = many(all, "timer");
        let Some((oldest, _)) = first.first().filter(|_| late > 0) else { return Ok(Check::ok(name, what)) };
        let what = format!("{what}, {late} overdue, the oldest by {}", lasting(now.saturating_sub(oldest.due.0)));
        Ok(match self.patient.is_worked_in() {
            true => Check::warn(name, what, "see whether the process that works here is stuck"),
            false => Check::ok(name, what + "; nobody works here, so they fire at the next start"),
        })
    }

    fn outbox(&self, name: &'static str, look: &Look<'_>) -> runtime::Result<Check> {
        let all = look.count("outbox")?;
        // A frame that does not decode is never accepted, and everything behind it waits.
        let bad = look.outbox(self.listed_max())?.into_iter().filter(|(_, frame)| MessageRef::decode(frame).is_err());
        let bad: Vec<String> = bad.map(|(seq, _)| format!("row {seq} is no message")).collect();
        if bad.is_empty() {
            return Ok(Check::ok(name, format!("{} waiting to be delivered", many(all, "message"))));
        }
        let what = format!("{} of {all} cannot be delivered", bad.len());
        Ok(Check::fail(name, what, DAMAGED).with(bad))
    }

    fn dead_letters(&self, name: &'static str, look: &Look<'_>) -> runtime::Result<Check> {
        let all = look.count("dead_letter")?;
        let letters = look.dead_letters(None, self.listed_max())?;
        let since = self.patient.now.0.saturating_sub(DAY_MS);
        let new = letters.iter().filter(|(_, letter)| letter.failed_at.0 >= since).count();
        let what = format!("{}, {new} buried in the last 24 h", many(all, "dead letter"));
        if new == 0 {
            return Ok(Check::ok(name, what));
        }
        let mut reasons = std::collections::BTreeMap::<&str, u64>::new();
        letters.iter().for_each(|(_, letter)| *reasons.entry(letter.reason.as_str()).or_default() += 1);
        let reasons = reasons.into_iter().map(|(reason, count)| format!("{count}: {reason}"));
        Ok(Check::warn(name, what, "kauri dead-letters list; then replay or purge them").with(reasons))
    }

    fn runs(&self, name: &'static str, look: &Look<'_>) -> runtime::Result<Check> {
        let all = look.count("runs")?;
        let running = look.running(self.listed_max())?;
        let is_worked_in = self.patient.is_worked_in();
        let alone = running.iter().filter(|(_, is_driven)| !(is_worked_in && *is_driven));
        let alone: Vec<String> =
            alone.map(|(run, _)| format!("{} of job {} ({})", run.id, run.job, run.class)).collect();
        if alone.is_empty() {
            return Ok(Check::ok(name, format!("{}, {} running", many(all, "run"), running.len())));
        }
        let what = format!("{} running, and nobody drives {}", many(running.len() as u64, "run"), alone.len());
        Ok(Check::warn(name, what, "the next start takes them over, or ends them as crashed").with(alone))
    }
}

/// Every page.
fn verify(store: &tree::Store) -> tree::Result<String> {
    let report = store.verify()?;
    let (pages, tables) = (many(report.pages as u64, "page"), many(report.tables as u64, "table"));
    Ok(format!("sound: {}, {tables}, {pages}, each looked at", many(report.rows, "row")))
}

/// Rows at both ends of every table: pages are checked when they are read.
fn sample(store: &tree::Store) -> tree::Result<String> {
    let snapshot = store.snapshot();
    let (mut seen, mut all, mut tables) = (0, 0, 0);
    for table in snapshot.tables().filter_map(|name| snapshot.raw(name)) {
        (tables, all) = (tables + 1, all + table.len());
        // Rows in an order of their own are found only by who knows their type.
        if !table.is_bytewise() {
            continue;
        }
        let mut scan = table.scan()?;
        for _ in 0..ROWS_MAX {
            seen += u64::from(scan.next()?.is_some());
            seen += u64::from(scan.previous()?.is_some());
        }
    }
    Ok(format!("{seen} of {} in {} looked at, all sound", many(all, "row"), many(tables, "table")))
}
