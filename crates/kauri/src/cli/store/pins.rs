//! Pins: listed, made, taken away, looked at.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kauri::tree::{Pin, Snapshot, Store};
use serde_json::json;

use super::{Manner, counted, open_to_read, open_to_write, there_are, wrong};
use crate::cli::Trouble;
use crate::cli::table::Zone;

/// The version that a pin names.
pub(super) fn version<'s>(store: &'s Store, path: &Path, pin: &str) -> Result<Snapshot<'s>, Trouble> {
    store.as_of(pin).map_err(|error| wrong(path, &error))?.ok_or_else(|| missing(store, path, pin))
}

pub(super) fn missing(store: &Store, path: &Path, pin: &str) -> Trouble {
    Trouble::Wrong(no_pin(store, path, pin))
}

fn no_pin(store: &Store, path: &Path, pin: &str) -> String {
    let pins = store.pins();
    format!("{}: there is no pin `{pin}`; {}", path.display(), there_are(pins.iter().map(|pin| &*pin.name)))
}

pub(super) fn list(path: &Path, zone: Zone, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    open_to_read(path)?.pins().iter().try_for_each(|pin| tell(pin, zone, manner, out))
}

pub(super) fn pin(
    path: &Path,
    name: &str,
    when: Option<u64>,
    zone: Zone,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let store = open_to_write(path)?;
    let when = when.unwrap_or_else(now_ms);
    let pin = store.pin(name, when).map_err(|error| wrong(path, &error))?;
    tell(&pin, zone, manner, out)
}

pub(super) fn unpin(path: &Path, name: &str) -> Result<(), Trouble> {
    let store = open_to_write(path)?;
    match store.unpin(name).map_err(|error| wrong(path, &error))? {
        true => Ok(()),
        false => Err(Trouble::Absent(no_pin(&store, path, name))),
    }
}

fn tell(pin: &Pin, zone: Zone, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let Pin { name, version, when, tables, rows, .. } = pin;
    match manner.json {
        true => {
            let pin = json!({ "pin": name, "version": version, "when": when, "tables": tables, "rows": rows });
            writeln!(out, "{pin}")?;
        }
        false => {
            let (tables, rows) = (counted(*tables, "table"), counted(*rows, "row"));
            writeln!(out, "{name}\t{}\t{tables}, {rows}", at(*when, zone))?;
        }
    }
    Ok(())
}

/// A moment; a number that is none is printed as it is.
fn at(when: u64, zone: Zone) -> String {
    i64::try_from(when).map_or_else(|_| when.to_string(), |when| zone.moment(when))
}

/// Milliseconds since 1970. A clock before that says 0.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}
