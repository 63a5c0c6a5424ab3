//! Rows: found, listed, counted, written.

use std::io::{BufRead, Write};
use std::path::Path;

use kauri::tree::{RawTable, Scan, Snapshot};
use serde_json::{Value, json};

use super::form::{Form, Forms};
use super::{AsOf, Manner, Range, counted, open_or_make, open_to_read, open_to_write, there_are, wrong};
use crate::cli::Trouble;
use crate::cli::progress::Progress;

/// Which of the rows of a range are shown, and what of them.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) limit: Option<u64>,
    pub(super) reverse: bool,
    pub(super) keys: bool,
}

fn table<'s>(snapshot: &'s Snapshot<'_>, path: &Path, name: &str) -> Result<RawTable<'s>, Trouble> {
    let missing = || {
        let tables = there_are(snapshot.tables());
        Trouble::Wrong(format!("{}: there is no table `{name}`; {tables}", path.display()))
    };
    snapshot.raw(name).ok_or_else(missing)
}

/// The answer to who asked for a row that is not there.
fn no_row(path: &Path, name: &str, key: &str) -> Trouble {
    Trouble::Absent(format!("{}: there is no row `{key}` in table `{name}`", path.display()))
}

fn parse(form: Form, what: &str, text: &str) -> Result<Vec<u8>, Trouble> {
    form.parse(text).map_err(|error| Trouble::Wrong(format!("{what}: {error}")))
}

pub(super) fn get(
    path: &Path,
    as_of: &AsOf,
    name: &str,
    key: &str,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let snapshot = as_of.of(&store, path)?;
    let table = table(&snapshot, path, name)?;
    let forms = Forms::of(table.types(), manner.hex);
    let found = table.get(&parse(forms.key, "the key", key)?).map_err(|error| wrong(path, &error))?;
    let Some(value) = found else { return Err(no_row(path, name, key)) };
    let value = forms.value.print(&value);
    match manner.json {
        true => writeln!(out, "{}", json!({ "key": key, "value": value }))?,
        false => writeln!(out, "{value}")?,
    }
    Ok(())
}

/// The rows of a range.
fn scan_range<'s>(
    table: &RawTable<'s>,
    range: &Range,
    key: Form,
    path: &Path,
) -> Result<Scan<'s, [u8], [u8]>, Trouble> {
    let mut scan = table.scan().map_err(|error| wrong(path, &error))?;
    if let Some(from) = &range.from {
        scan = scan.from(&parse(key, "--from", from)?);
    }
    if let Some(until) = &range.until {
        scan = scan.until(&parse(key, "--until", until)?);
    }
    if let Some(prefix) = &range.prefix {
        let form = if key == Form::Hex { Form::Hex } else { Form::Text };
        let prefix = parse(form, "--prefix", prefix)?;
        scan = scan.from(&prefix);
        if let Some(end) = behind(prefix) {
            scan = scan.until(&end);
        }
    }
    Ok(scan)
}

/// The least bytes behind all that begin with these, if there are any.
fn behind(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < 0xff {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

pub(super) fn scan(
    path: &Path,
    as_of: &AsOf,
    name: &str,
    range: &Range,
    shown: Shown,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let snapshot = as_of.of(&store, path)?;
    let table = table(&snapshot, path, name)?;
    let forms = Forms::of(table.types(), manner.hex);
    let is_all = range.from.is_none() && range.until.is_none() && range.prefix.is_none() && !shown.reverse;
    if is_all && !table.is_bytewise() {
        return scan_own_order(path, &table, forms, &shown, manner, out);
    }
    let mut rows = scan_range(&table, range, forms.key, path)?;
    for _ in 0..shown.limit.unwrap_or(u64::MAX) {
        let row = if shown.reverse { rows.previous() } else { rows.next() };
        let Some((key, value)) = row.map_err(|error| wrong(path, &error))? else { break };
        print_row(forms, key, &value, &shown, manner, out)?;
    }
    Ok(())
}

/// All rows of a table whose order only its type knows.
fn scan_own_order(
    path: &Path,
    table: &RawTable<'_>,
    forms: Forms,
    shown: &Shown,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let (mut left, mut printed) = (shown.limit.unwrap_or(u64::MAX), Ok(()));
    let seen = table.for_each(|key, value| {
        if left > 0 && printed.is_ok() {
            left -= 1;
            printed = print_row(forms, key, value, shown, manner, out);
        }
        Ok(())
    });
    printed?;
    seen.map_err(|error| wrong(path, &error))
}

fn print_row(
    forms: Forms,
    key: &[u8],
    value: &[u8],
    shown: &Shown,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let key = forms.key.print(key);
    match (manner.json, shown.keys) {
        (true, true) => writeln!(out, "{}", json!({ "key": key }))?,
        (true, false) => writeln!(out, "{}", json!({ "key": key, "value": forms.value.print(value) }))?,
        (false, true) => writeln!(out, "{key}")?,
        (false, false) => writeln!(out, "{key}\t{}", forms.value.print(value))?,
    }
    Ok(())
}

pub(super) fn count(
    path: &Path,
    as_of: &AsOf,
    name: &str,
    range: &Range,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let snapshot = as_of.of(&store, path)?;
    let table = table(&snapshot, path, name)?;
    let is_all = range.from.is_none() && range.until.is_none() && range.prefix.is_none();
    let rows = if is_all {
        table.len()
    } else {
        let forms = Forms::of(table.types(), manner.hex);
        scan_range(&table, range, forms.key, path)?.count().map_err(|error| wrong(path, &error))?
    };
    match manner.json {
        true => writeln!(out, "{}", json!({ "rows": rows }))?,
        false => writeln!(out, "{rows}")?,
    }
    Ok(())
}

/// The forms of a table that is to be written by hand; of bytes, if there is none yet.
fn forms_to_write(snapshot: &Snapshot<'_>, path: &Path, name: &str, manner: Manner) -> Result<Forms, Trouble> {
    let types = snapshot.raw(name).map_or("bytes to bytes", |table| table.types());
    // Their keys and values have more in them than people write, and belong to others of the same table.
    let programs = if types.starts_with("expiring ") { Some("rows that expire") } else { None };
    match programs {
        Some(what) => {
            let refusal = format!("{}: table `{name}` has {what}, which only programs write", path.display());
            Err(Trouble::Wrong(refusal))
        }
        None => Ok(Forms::of(types, manner.hex)),
    }
}

pub(super) fn put(
    path: &Path,
    create: bool,
    name: &str,
    key: &str,
    value: &str,
    manner: Manner,
) -> Result<(), Trouble> {
    let store = open_or_make(path, create)?;
    let forms = forms_to_write(&store.snapshot(), path, name, manner)?;
    let (key, value) = (parse(forms.key, "the key", key)?, parse(forms.value, "the value", value)?);
    let mut txn = store.begin();
    txn.put_raw(name, &key, &value).and_then(|()| txn.commit()).map_err(|error| wrong(path, &error))
}

pub(super) fn del(path: &Path, name: &str, key: &str, manner: Manner) -> Result<(), Trouble> {
    let store = open_to_write(path)?;
    let snapshot = store.snapshot();
    table(&snapshot, path, name)?;
    let forms = forms_to_write(&snapshot, path, name, manner)?;
    let bytes = parse(forms.key, "the key", key)?;
    let mut txn = store.begin();
    let was_there = txn.remove_raw(name, &bytes).map_err(|error| wrong(path, &error))?;
    txn.commit().map_err(|error| wrong(path, &error))?;
    if was_there { Ok(()) } else { Err(no_row(path, name, key)) }
}

pub(super) fn load(path: &Path, create: bool, name: &str, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_or_make(path, create)?;
    let forms = forms_to_write(&store.snapshot(), path, name, manner)?;
    let progress = Progress::of_rows("loading", manner.shows_progress(), None);
    let mut txn = store.begin();
    let mut rows = 0_u64;
    for (index, line) in std::io::stdin().lock().lines().enumerate() {
        let of_line = |what: String| Trouble::Wrong(format!("line {}: {what}", index + 1));
        let line = line.map_err(|error| of_line(error.to_string()))?;
        let (key, value) = if manner.json { json_row(&line) } else { text_row(&line) }.map_err(of_line)?;
        let key = forms.key.parse(&key).map_err(|error| of_line(format!("the key: {error}")))?;
        let value = forms.value.parse(&value).map_err(|error| of_line(format!("the value: {error}")))?;
        txn.put_raw(name, &key, &value).map_err(|error| of_line(error.to_string()))?;
        rows += 1;
        progress.add(1);
    }
    txn.commit().map_err(|error| wrong(path, &error))?;
    drop(progress);
    match manner.json {
        true => writeln!(out, "{}", json!({ "rows": rows }))?,
        false => writeln!(out, "{}", counted(rows, "row"))?,
    }
    Ok(())
}

fn text_row(line: &str) -> Result<(String, String), String> {
    let (key, value) = line.split_once('\t').ok_or("expected a key, a tab and a value")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn json_row(line: &str) -> Result<(String, String), String> {
    let row: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let text = |field: &str| match &row[field] {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(format!("expected \"{field}\" to be text or a number")),
    };
    Ok((text("key")?, text("value")?))
}
