//! `kauri schema`: with which schema a home was made, and its tables. Takes no lock and starts nothing.

use std::io::Write;

use kauri::ledger;
use kauri::runtime::substrate::{KeyRange, Substrate as _, TableName};
use kauri::runtime::{self, Look, SCHEMA, TABLES};
use kauri::wire::SchemaVersion;
use serde_json::json;

use super::Trouble;
use super::home::{HomeArgs, open_store, there};
use super::table::Table;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri schema --home /srv/shop
  kauri schema --json | jq '.tables[] | select(.owner == \"application\")'

Exit code 1 if the home was made with another schema than this program knows.")]
pub(crate) struct Args {
    #[command(flatten)]
    home: HomeArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What the store says.
#[derive(Default)]
struct Found {
    marker: Option<SchemaVersion>,
    starts: u64,
    /// Each table with its number, if the runtime gave it one, and its rows.
    tables: Vec<(String, Option<u16>, u64)>,
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = there(&args.home)?;
    let failed = |error: runtime::Error| Trouble::Wrong(format!("{}: {error}", layout.store().display()));
    let substrate = open_store(&layout).map_err(|error| failed(error.into()))?;
    let found = substrate.map(|substrate| read(&substrate)).transpose().map_err(failed)?.unwrap_or_default();
    let ledger = ledger::Look::at(layout.home()).database().map_err(|error| Trouble::Wrong(error.to_string()))?;
    let ledger = ledger.map(|database| database.schema());
    let shown = |version: SchemaVersion| format!("{}.{}", version.major, version.minor);
    let fits = found.marker.is_none_or(|marker| marker == SCHEMA);
    let owner = |id: Option<u16>| if id.is_some() { "runtime" } else { "application" };
    if args.json {
        let tables = found.tables.iter();
        let tables: Vec<_> = tables
            .map(|(name, id, rows)| json!({ "table": name, "id": id, "owner": owner(*id), "rows": rows }))
            .collect();
        let value = json!({
            "home": layout.home().to_string_lossy(),
            "expected": shown(SCHEMA),
            "found": found.marker.map(shown),
            "fits": fits,
            "starts": found.starts,
            "ledger": ledger,
            "tables": tables,
        });
        writeln!(out, "{value}")?;
    } else {
        let marker = found.marker.map_or_else(|| "none: no runtime was ever started here".to_owned(), shown);
        writeln!(out, "marker   {marker} (this program: {})", shown(SCHEMA))?;
        writeln!(out, "starts   {}", found.starts)?;
        writeln!(out, "ledger   {}", ledger.map_or_else(|| "none".to_owned(), |version| version.to_string()))?;
        let mut table = Table::new(&["TABLE", "ID", "OWNER", "ROWS"]);
        for (name, id, rows) in &found.tables {
            let number = id.map_or_else(String::new, |id| id.to_string());
            table.add([name.clone(), number, owner(*id).to_owned(), rows.to_string()]);
        }
        table.print("no tables", out)?;
    }
    if fits { Ok(()) } else { Err(Trouble::No) }
}

fn read(substrate: &runtime::substrate::TreeSubstrate) -> runtime::Result<Found> {
    let (look, rows) = (Look::at(substrate)?, substrate.snapshot()?);
    let own = TABLES.iter().map(|spec| (spec.name.to_owned(), Some(spec.id)));
    let names = rows.tables()?.into_iter().filter(|name| !TABLES.iter().any(|spec| spec.name == name));
    let mut found = Found { marker: look.schema()?, starts: look.incarnation()?, tables: Vec::new() };
    for (name, id) in own.chain(names.map(|name| (name, None))) {
        let count = rows.count(&TableName::Owned(name.clone()), KeyRange::ALL)?;
        found.tables.push((name, id, count));
    }
    Ok(found)
}
