//! `kauri store diff`: two files, row by row; or one, since a pin.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;

use kauri::tree::{Difference, RawTable, Snapshot, TableChange, TableDiff};
use serde_json::json;

use super::form::Forms;
use super::{AsOf, Manner, open_to_read, wrong};
use crate::cli::Trouble;
use crate::cli::progress::Progress;

/// A row and in which of the stores it is.
#[derive(Clone, Copy)]
enum Sign {
    First,
    Second,
}

/// Prints what differs.
struct Printer<'o, W> {
    out: &'o mut W,
    manner: Manner,
    progress: Progress,
    differing: u64,
}

pub(super) fn diff(
    first: &Path,
    as_of: &AsOf,
    second: &Path,
    manner: Manner,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let stores = (open_to_read(first)?, open_to_read(second)?);
    let snapshots = (as_of.of(&stores.0, first)?, stores.1.snapshot());
    let rows = snapshots.0.tables().filter_map(|name| snapshots.0.raw(name)).map(|table| table.len()).sum();
    let progress = Progress::of_rows("comparing", manner.shows_progress(), Some(rows));
    let mut printer = Printer { out, manner, progress, differing: 0 };
    let names: BTreeSet<&str> = snapshots.0.tables().chain(snapshots.1.tables()).collect();
    for name in names {
        printer.table(name, (first, &snapshots.0), (second, &snapshots.1))?;
    }
    if printer.differing == 0 { Ok(()) } else { Err(Trouble::No) }
}

/// What changed in a store since a pin was made. Pages that both versions have are not looked at.
pub(super) fn changes(path: &Path, as_of: &AsOf, manner: Manner, out: &mut impl Write) -> Result<(), Trouble> {
    let store = open_to_read(path)?;
    let (then, now) = (as_of.of(&store, path)?, store.snapshot());
    // Only what differs is looked at, and how much that is nobody knows before.
    let progress = Progress::of_rows("comparing", manner.shows_progress(), None);
    let mut printer = Printer { out, manner, progress, differing: 0 };
    for table in now.diff_tables(&then).map_err(|error| wrong(path, &error))? {
        printer.changes(path, &table)?;
    }
    if printer.differing == 0 { Ok(()) } else { Err(Trouble::No) }
}

impl<W: Write> Printer<'_, W> {
    fn changes(&mut self, path: &Path, table: &TableDiff<'_>) -> Result<(), Trouble> {
        let (name, types) = (table.name(), table.types());
        match table.change() {
            TableChange::Created => self.made(name, Some(types), Sign::Second)?,
            TableChange::Dropped => self.made(name, Some(types), Sign::First)?,
            TableChange::Written => {}
        }
        let mut rows = table.rows();
        while let Some(difference) = rows.next().map_err(|error| wrong(path, &error))? {
            match difference {
                Difference::Inserted { key, value } => self.row(name, types, Sign::Second, key, &value)?,
                Difference::Removed { key, value } => self.row(name, types, Sign::First, key, &value)?,
                Difference::Changed { key, old, new } => {
                    self.row(name, types, Sign::First, key, &old)?;
                    self.row(name, types, Sign::Second, key, &new)?;
                }
            }
        }
        Ok(())
    }

    fn table(
        &mut self,
        name: &str,
        (first_path, first): (&Path, &Snapshot<'_>),
        (second_path, second): (&Path, &Snapshot<'_>),
    ) -> Result<(), Trouble> {
        let tables = (first.raw(name), second.raw(name));
        match tables {
            (Some(left), Some(right)) if left.types() == right.types() && left.is_bytewise() => {
                self.rows(name, (first_path, &left), (second_path, &right))
            }
            (left, right) => {
                let types = (left.map(|table| table.types()), right.map(|table| table.types()));
                if types.0 != types.1 {
                    self.made(name, types.0, Sign::First)?;
                    self.made(name, types.1, Sign::Second)?;
                }
                let (left, right) = (gather(first_path, left)?, gather(second_path, right)?);
                for (key, value) in
                    left.iter().filter(|(key, value)| types.0 != types.1 || right.get(*key) != Some(value))
                {
                    self.row(name, types.0.unwrap_or(""), Sign::First, key, value)?;
                }
                for (key, value) in
                    right.iter().filter(|(key, value)| types.0 != types.1 || left.get(*key) != Some(value))
                {
                    self.row(name, types.1.unwrap_or(""), Sign::Second, key, value)?;
                }
                Ok(())
            }
        }
    }

    /// Two tables in the order of their bytes, side by side.
    fn rows(
        &mut self,
        name: &str,
        (first_path, first): (&Path, &RawTable<'_>),
        (second_path, second): (&Path, &RawTable<'_>),
    ) -> Result<(), Trouble> {
        let types = first.types();
        let mut left = first.scan().map_err(|error| wrong(first_path, &error))?;
        let mut right = second.scan().map_err(|error| wrong(second_path, &error))?;
        let mut next_left = || -> Result<_, Trouble> {
            let row = left.next().map_err(|error| wrong(first_path, &error))?;
            Ok(row.map(|(key, value)| (key.to_vec(), value.into_owned())))
        };
        let mut next_right = || -> Result<_, Trouble> {
            let row = right.next().map_err(|error| wrong(second_path, &error))?;
            Ok(row.map(|(key, value)| (key.to_vec(), value.into_owned())))
        };
        let (mut one, mut other) = (next_left()?, next_right()?);
        loop {
            let order = match (&one, &other) {
                (None, None) => return Ok(()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(one), Some(other)) => one.0.cmp(&other.0),
            };
            self.progress.add(u64::from(order.is_le()));
            if order.is_eq() && one == other {
                (one, other) = (next_left()?, next_right()?);
                continue;
            }
            if let Some((key, value)) = one.take_if(|_| order.is_le()) {
                self.row(name, types, Sign::First, &key, &value)?;
                one = next_left()?;
            }
            if let Some((key, value)) = other.take_if(|_| order.is_ge()) {
                self.row(name, types, Sign::Second, &key, &value)?;
                other = next_right()?;
            }
        }
    }

    fn row(&mut self, table: &str, types: &str, sign: Sign, key: &[u8], value: &[u8]) -> Result<(), Trouble> {
        self.differing += 1;
        let forms = Forms::of(types, self.manner.hex);
        let (key, value) = (forms.key.print(key), forms.value.print(value));
        let line = match self.manner.json {
            true => json!({ "only": sign.word(), "table": table, "key": key, "value": value }).to_string(),
            false => format!("{}\t{table}\t{key}\t{value}", sign.mark()),
        };
        self.line(&line)
    }

    /// A table that is only in one of the stores, or with these types.
    fn made(&mut self, table: &str, types: Option<&str>, sign: Sign) -> Result<(), Trouble> {
        let Some(types) = types else { return Ok(()) };
        self.differing += 1;
        let line = match self.manner.json {
            true => json!({ "only": sign.word(), "table": table, "types": types }).to_string(),
            false => format!("{}\t{table}\t({types})", sign.mark()),
        };
        self.line(&line)
    }

    fn line(&mut self, line: &str) -> Result<(), Trouble> {
        let out = &mut *self.out;
        Ok(self.progress.aside(|| writeln!(out, "{line}"))?)
    }
}

impl Sign {
    const fn mark(self) -> char {
        match self {
            Self::First => '-',
            Self::Second => '+',
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
        }
    }
}

/// The rows of a table whose order is not known, or not the other's.
fn gather(path: &Path, table: Option<RawTable<'_>>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Trouble> {
    let mut rows = BTreeMap::new();
    if let Some(table) = table {
        let gathered = table.for_each(|key, value| {
            rows.insert(key.to_vec(), value.to_vec());
            Ok(())
        });
        gathered.map_err(|error| wrong(path, &error))?;
    }
    Ok(rows)
}
