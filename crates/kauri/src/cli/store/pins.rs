//! Pins: listed, made, taken away, looked at.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kauri::tree::{Pin, Snapshot, Store};
use serde_json::json;

use super::{Manner, open_to_read, open_to_write, wrong};
use crate::cli::Trouble;

/// The version that a pin names.
pub(super) fn version<'s>(store: &'s Store, path: &Path, pin: &str) -> Result<Snapshot<'s>, Trouble> {
    store.as_of(pin).map_err(|error| wrong(path, &error))?.ok_or_else(|| missing(path, pin))
}

pub(super) fn missing(path: &Path, pin: &str) -> Trouble {
    Trouble::Wrong(format!("{}: there is no pin `{pin}`", path.display()))
}

pub(super) fn list(path: &Path, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    open_to_read(path)?.pins().iter().try_for_each(|pin| tell(pin, manner, out))
}

pub(super) fn pin(
    path: &Path,
    name: &str,
    when: Option<u64>,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let store = open_to_write(path)?;
    let when = when.unwrap_or_else(now_ms);
    let pin = store.pin(name, when).map_err(|error| wrong(path, &error))?;
    tell(&pin, manner, out)
}

pub(super) fn unpin(path: &Path, name: &str) -> Result<(), Trouble> {
    let store = open_to_write(path)?;
    match store.unpin(name).map_err(|error| wrong(path, &error))? {
        true => Ok(()),
        false => Err(Trouble::No),
    }
}

fn tell(pin: &Pin, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let Pin { name, version, when, tables, rows, .. } = pin;
    match manner.json {
        true => {
            let pin = json!({ "pin": name, "version": version, "when": when, "tables": tables, "rows": rows });
            writeln!(out, "{pin}")?;
        }
        false => writeln!(out, "{name}\t{when}\t{tables} tables, {rows} rows")?,
    }
    Ok(())
}

/// Milliseconds since 1970. A clock before that says 0.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
