//! `kauri stop` and `kauri resume`: the kill switch of a home.
//!
//! The switch is a file, so that it works whoever has the lock and whatever is damaged. If nobody works in the home, the ledger is
//! opened afterwards, and its audit hears of it at once; otherwise it does at the next start.

use std::io::Write;
use std::sync::Arc;

use kauri::Layout;
use kauri::ledger::{Error, Home, KillSwitch, Ledger, SystemClock};
use serde_json::json;

use super::Trouble;
use super::home::{HomeArgs, there};
use super::ledger::wrong;
use super::table::plain;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri stop --reason 'the mail server repeats everything'
  kauri resume

The first reason stays until kauri resume. What was stopped stays stopped; what begins after kauri resume, begins.")]
pub(crate) struct StopArgs {
    /// Why, for whoever finds everything stopped
    #[arg(long, default_value = "stopped by hand")]
    reason: String,
    #[command(flatten)]
    home: HomeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  kauri resume --home /srv/shop")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn stop(args: &StopArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = worked_in(&args.home)?;
    let switch = KillSwitch::of(layout.home(), Arc::new(SystemClock));
    let is_new = switch.throw(&args.reason).map_err(|error| wrong(&error))?;
    let reason = switch.reason().map_err(|error| wrong(&error))?.unwrap_or_default();
    // The switch is thrown; what follows is only written down, and a ledger that is damaged does not keep anybody from stopping.
    let is_noted = open_if_free(&layout).is_ok_and(|ledger| ledger.is_some());
    match args.json {
        true => writeln!(out, "{}", json!({ "thrown": true, "new": is_new, "reason": reason, "noted": is_noted }))?,
        false if is_new => writeln!(out, "stopped: {}", plain(&reason))?,
        false => writeln!(out, "stopped before: {}", plain(&reason))?,
    }
    Ok(())
}

pub(crate) fn resume(args: &ResumeArgs, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = worked_in(&args.home)?;
    let switch = KillSwitch::of(layout.home(), Arc::new(SystemClock));
    let was_thrown = switch.clear().map_err(|error| wrong(&error))?;
    let is_noted = open_if_free(&layout).is_ok_and(|ledger| ledger.is_some());
    match args.json {
        true => writeln!(out, "{}", json!({ "thrown": false, "was_thrown": was_thrown, "noted": is_noted }))?,
        false if was_thrown => writeln!(out, "resumed")?,
        false => writeln!(out, "the kill switch was not thrown")?,
    }
    Ok(())
}

/// A home in which somebody has worked: elsewhere there is nothing to stop.
fn worked_in(home: &HomeArgs) -> Result<Layout, Trouble> {
    let layout = there(home)?;
    match layout.runtime().is_dir() {
        true => Ok(layout),
        false => Err(Trouble::Wrong(format!("{}: nobody ever worked here", layout.home().display()))),
    }
}

/// The ledger, which notices the switch when it is opened; nothing if somebody else has it.
fn open_if_free(layout: &Layout) -> Result<Option<Ledger>, Error> {
    match Home::lock(layout.home()) {
        Ok(home) => Ledger::open(home).map(|(ledger, _)| Some(ledger)),
        Err(Error::Locked { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
