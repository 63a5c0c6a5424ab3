//! What a run says: a table for people, rows for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::outcome::{OURS, Outcome, Sheet};

/// One workload and one peer, or none. `ratio` says how many times better we are, whatever the unit.
#[derive(Serialize)]
pub(crate) struct Row<'a> {
    pub(crate) workload: &'a str,
    pub(crate) ours: f64,
    pub(crate) peer: Option<f64>,
    pub(crate) peer_name: Option<&'a str>,
    pub(crate) ratio: Option<f64>,
    pub(crate) unit: &'static str,
}

/// Writes every outcome as rows: a JSON array.
pub(crate) fn write_json(sheet: &Sheet, out: impl Write) -> io::Result<()> {
    write_rows(&sheet.outcomes().iter().flat_map(rows).collect::<Vec<_>>(), out)
}

pub(crate) fn write_rows(rows: &[Row<'_>], mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, rows)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn rows(outcome: &Outcome) -> Vec<Row<'_>> {
    let ours = outcome.median(OURS).unwrap_or(f64::NAN);
    let row = |peer: Option<(&'static str, f64)>| Row {
        workload: &outcome.workload,
        ours,
        peer: peer.map(|(_, peer)| peer),
        peer_name: peer.map(|(name, _)| name),
        ratio: peer.map(|(_, peer)| outcome.unit.ratio(ours, peer)),
        unit: outcome.unit.symbol(),
    };
    let peers: Vec<_> = outcome.medians().filter(|(who, _)| *who != OURS).collect();
    match peers.is_empty() {
        true => vec![row(None)],
        false => peers.into_iter().map(|peer| row(Some(peer))).collect(),
    }
}

/// Writes the table: a line for each workload, and at its end how many times better we are than LMDB, and than the best of
/// the others.
pub(crate) fn write_table(sheet: &Sheet, out: &mut impl Write) -> io::Result<()> {
    // Who takes part is not the same in all of them.
    let same = |left: &Outcome, right: &Outcome| left.names().eq(right.names());
    for outcomes in sheet.outcomes().chunk_by(same) {
        let head = ["workload", "unit"].into_iter().chain(outcomes[0].names()).chain(["to lmdb", "to best other"]);
        let mut lines = vec![head.map(String::from).collect::<Vec<_>>()];
        lines.extend(outcomes.iter().map(line));
        write_columns(&lines, 2, out)?;
        writeln!(out)?;
    }
    writeln!(out, "Ratios say how many times better we are; below 1x the peer is better.")
}

/// Writes lines of cells; the first so many columns begin at the left, the others end at the right.
pub(crate) fn write_columns(lines: &[Vec<String>], left: usize, out: &mut impl Write) -> io::Result<()> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            column if column < left => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn line(outcome: &Outcome) -> Vec<String> {
    let ratio = |ratio: f64| format!("{}x", short(ratio));
    // The best of the others is the one against which we look worst.
    let best = outcome.ratios().filter(|(who, _)| *who != "lmdb").min_by(|(_, left), (_, right)| left.total_cmp(right));
    let mut cells = vec![outcome.workload.clone(), outcome.unit.symbol().to_owned()];
    cells.extend(outcome.medians().map(|(_, median)| short(median)));
    cells.push(outcome.ratio("lmdb").map_or_else(String::new, ratio));
    cells.push(best.map_or_else(String::new, |(who, found)| format!("{} {who}", ratio(found))));
    cells
}

/// Three digits that matter.
pub(crate) fn short(number: f64) -> String {
    let (number, suffix) = match number {
        1e6.. => (number / 1e6, "M"),
        1e4.. => (number / 1e3, "k"),
        _ => (number, ""),
    };
    let places = match number {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{number:.places$}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Unit;

    fn sheet() -> Sheet {
        let mut sheet = Sheet::default();
        for (who, value) in [("kauri", 2e6), ("lmdb", 1e6), ("redb", 4e6), ("fjall", 1e5)] {
            sheet.note("A get".into(), Unit::PerSecond, who, value);
        }
        sheet
    }

    #[test]
    fn table_ends_with_the_ratios() {
        let mut table = Vec::new();
        write_table(&sheet(), &mut table).unwrap();
        let expected = [
            "workload  unit  kauri   lmdb   redb  fjall  to lmdb  to best other",
            "A get     /s    2.00M  1.00M  4.00M   100k    2.00x     0.50x redb",
        ];
        assert_eq!(String::from_utf8(table).unwrap().lines().take(2).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn json_is_an_array_of_rows_one_for_each_peer() {
        let mut json = Vec::new();
        write_json(&sheet(), &mut json).unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
        let names: Vec<_> = rows.iter().map(|row| row["peer_name"].as_str().unwrap()).collect();
        assert_eq!(names, ["lmdb", "redb", "fjall"]);
        assert_eq!((rows[1]["ratio"].as_f64(), rows[1]["unit"].as_str()), (Some(0.5), Some("/s")));
    }
}
