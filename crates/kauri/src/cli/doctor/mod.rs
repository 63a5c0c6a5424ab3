//! `kauri doctor`: what is wrong with a home, and what to do about it.
//!
//! It takes no lock and changes nothing, except with `--fix`. The checks come in a fixed order; one that cannot be made says so
//! and hides no other.

mod check;
mod fix;
mod ledger;
mod place;
mod store;

use std::io::Write;
use std::sync::Arc;

use kauri::Layout;
use kauri::ledger::{Clock, Home, LockState, SystemClock, Timestamp};
use serde_json::json;

use self::check::{Check, Status};
use super::Trouble;
use super::home::HomeArgs;
use super::progress::Progress;
use super::table::Zone;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri doctor                       examine .kauri, or the home that $KAURI_HOME names
  kauri doctor --home /srv/shop      examine another home
  kauri doctor --deep                look at every page, every artifact and every row
  kauri doctor --json | jq .verdict  for scripts
  kauri doctor --fix                 repair what is safe to repair, then examine

Every check is OK, WARN, FAIL or SKIP. A check is skipped where there is nothing to look at, or where only the
process that works in the home could tell; a skip is never a pass.

Exit codes: 0 all fine, 1 warnings, 2 failures (or wrong arguments).")]
pub(crate) struct Args {
    #[command(flatten)]
    home: HomeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Look at everything: every page of the store, every byte of the artifacts
    #[arg(long)]
    deep: bool,
    /// Repair what is safe to repair: modes, torn tails, what a crash left. Takes the lock of the home
    #[arg(long)]
    fix: bool,
    #[command(flatten)]
    zone: Zone,
}

/// What every check may ask.
struct Patient {
    layout: Layout,
    is_deep: bool,
    now: Timestamp,
    /// What is with the lock, or why that cannot be told.
    lock: Result<LockState, kauri::ledger::Error>,
}

impl Patient {
    fn new(layout: Layout, is_deep: bool) -> Self {
        let lock = Home::probe(layout.home());
        Self { layout, is_deep, now: SystemClock.now(), lock }
    }

    /// Whether somebody works in the home, as far as anybody can tell.
    fn is_worked_in(&self) -> bool {
        self.lock.as_ref().is_ok_and(|lock| !lock.is_free())
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = args.home.layout();
    let fixed = if args.fix { fix::fix(&layout)? } else { Vec::new() };
    let patient = Patient::new(layout, args.deep);
    let progress = Progress::of("examining", !args.json);
    let checks = examine(&patient);
    drop(progress);
    let worst = checks.iter().map(|check| check.status).filter(|status| *status != Status::Skip).max();
    let worst = worst.unwrap_or(Status::Ok);
    match args.json {
        true => print_json(&patient, &checks, worst, &fixed, out)?,
        false => print_text(&patient, &checks, worst, &fixed, args.zone, out)?,
    }
    match worst {
        Status::Ok | Status::Skip => Ok(()),
        Status::Warn => Err(Trouble::No),
        Status::Fail => Err(Trouble::Failed),
    }
}

/// All checks, in their order. Without a home that can be read there is one.
fn examine(patient: &Patient) -> Vec<Check> {
    let home = place::home(patient);
    if home.status == Status::Fail {
        return vec![home];
    }
    let mut checks = vec![
        home,
        place::modes(patient),
        place::file_system(patient),
        place::free_space(patient),
        place::lock(patient),
        place::kill_switch(patient),
    ];
    checks.extend(store::checks(patient));
    checks.extend(ledger::checks(patient));
    checks
}

fn count(checks: &[Check], status: Status) -> usize {
    checks.iter().filter(|check| check.status == status).count()
}

fn print_text(
    patient: &Patient,
    checks: &[Check],
    worst: Status,
    fixed: &[String],
    zone: Zone,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let depth = if patient.is_deep { "everything" } else { "a short look; --deep looks at everything" };
    writeln!(out, "{} ({depth})", patient.layout.home().display())?;
    fixed.iter().try_for_each(|done| writeln!(out, "fixed  {done}"))?;
    for check in checks {
        writeln!(out, "{:<5}  {:<13} {}", check.status, check.name, zone.within(&check.what))?;
        check.details.iter().try_for_each(|detail| writeln!(out, "{:22}- {}", "", zone.within(detail)))?;
        if let Some(todo) = &check.todo {
            writeln!(out, "{:22}> {todo}", "")?;
        }
    }
    let counts = Status::ALL.map(|status| format!("{} {}", count(checks, status), status.as_str()));
    let verdict = match worst {
        Status::Ok | Status::Skip => "all fine",
        Status::Warn => "somebody should look",
        Status::Fail => "something is broken",
    };
    Ok(writeln!(out, "{verdict}: {}", counts.join(", "))?)
}

fn print_json(
    patient: &Patient,
    checks: &[Check],
    worst: Status,
    fixed: &[String],
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let counts: serde_json::Map<_, _> =
        Status::ALL.iter().map(|status| (status.as_str().to_owned(), count(checks, *status).into())).collect();
    let report = json!({
        "home": patient.layout.home().to_string_lossy(),
        "at": patient.now.to_string(),
        "deep": patient.is_deep,
        "verdict": worst.as_str(),
        "counts": counts,
        "fixed": fixed,
        "checks": checks.iter().map(Check::to_json).collect::<Vec<_>>(),
    });
    Ok(writeln!(out, "{report}")?)
}
