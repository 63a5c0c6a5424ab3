//! What an operation of our store costs with ever more rows: ten times as many in each line of the table.
//!
//! Rows are keys of 8 bytes, spread evenly, and values of 8 bytes, written in order. No row is kept outside of the store, so memory is
//! the store's own. What one thread does is measured in its processor time; opening by the clock on the wall, median of some
//! rounds; memory by what the system says of this process, while a store with a cache of a quarter of its file is read and written.

use std::cell::Cell;
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;
use std::{fs, ops};

use kauri_tree::disk::OsDisk;
use kauri_tree::{Durability, Options, Read, Store, Table, Write as _};

use crate::data::Random;
use crate::outcome::median;
use crate::report::{self, Row};
use crate::suite::{BATCH, spend};

const ROWS: Table<u64, u64> = Table::new("rows");
const FIRST_ROWS: u64 = 10_000;
/// Rows in a commit while the store is filled.
const FILL_BATCH: u64 = 10_000;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The last line of the table has so many rows, or fewer.
    pub(crate) rows_max: u64,
    rounds: usize,
    /// Gets in a round; other operations are fewer.
    times: usize,
}

impl Plan {
    pub(crate) fn new(rows_max: Option<u64>, quick: bool) -> Self {
        match quick {
            true => Self { rows_max: rows_max.unwrap_or(1_000_000), rounds: 3, times: 20_000 },
            false => Self { rows_max: rows_max.unwrap_or(100_000_000), rounds: 7, times: 200_000 },
        }
    }

    fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let most = self.rows_max;
        std::iter::successors(Some(FIRST_ROWS), |rows| rows.checked_mul(10)).take_while(move |rows| *rows <= most)
    }
}

/// What things cost with so many rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    rows: u64,
    /// In the order of [`COLUMNS`].
    costs: [f64; COLUMNS.len()],
}

/// What is measured, and its unit.
const COLUMNS: [(&str, &str); 8] = [
    ("get", "ns"),
    ("put", "ns"),
    ("scan_100", "ns"),
    ("count_range", "ns"),
    ("open", "us"),
    ("load", "ns"),
    ("file", "B/row"),
    ("memory", "/cache"),
];

/// Measures one size after the other.
pub(crate) fn measure(plan: Plan, folder: &Path) -> io::Result<Vec<Line>> {
    plan.sizes()
        .map(|rows| {
            eprintln!("{rows} rows");
            let folder = folder.join(rows.to_string());
            fs::create_dir_all(&folder)?;
            let line = Line { rows, costs: costs(plan, rows, &folder) };
            // The next one needs the room.
            fs::remove_dir_all(&folder)?;
            Ok(line)
        })
        .collect()
}

fn open(folder: &Path) -> Store {
    let disk = OsDisk::new(folder).expect("the folder opens");
    Options::new().open(&disk, "store").expect("the store opens")
}

fn costs(plan: Plan, rows: u64, folder: &Path) -> [f64; COLUMNS.len()] {
    let store = open(folder);
    let load = spend(|| fill(&store, rows)).thread.as_nanos() as f64 / rows as f64;
    let bytes = fs::metadata(folder.join("store")).expect("the file is there").len();
    drop(store);
    let opened: Vec<f64> =
        (0..plan.rounds).map(|_| spend(|| drop(black_box(open(folder)))).wall.as_nanos() as f64).collect();
    let store = open(folder);
    // Every page is in memory before: what it costs to load one is another question.
    assert_eq!(scan(&store, 0, usize::MAX), rows, "all rows are there");
    let rates = Rates { store: &store, rows, rounds: plan.rounds };
    let get = rates.median(plan.times, |random, times| rates.get(random, times));
    let scan_100 = rates.median(plan.times / 20, |random, times| rates.scan(random, times));
    let count = rates.median(plan.times / 20, |random, times| rates.count(random, times));
    let put = rates.median(plan.times / 10 / BATCH * BATCH, |random, times| rates.put(random, times));
    drop(store);
    let memory = memory(folder, rows, bytes / 4, plan.times);
    [get, put, scan_100, count, median(&opened) / 1e3, load, bytes as f64 / rows as f64, memory]
}

/// How many times its cache a store has in memory at most, while all of it is scanned, and rows anywhere are read and written.
fn memory(folder: &Path, rows: u64, cache_bytes: u64, times: usize) -> f64 {
    let before = resident_bytes();
    let disk = OsDisk::new(folder).expect("the folder opens");
    let options = Options::new().cache_bytes(usize::try_from(cache_bytes).expect("a small file"));
    let store = options.open(&disk, "store").expect("the store opens");
    let most = Cell::new(0);
    let look = || most.set(most.get().max(resident_bytes()));
    for part in 0..100 {
        let length = usize::try_from(rows / 100).expect("a small number");
        assert_eq!(scan(&store, key(part * (rows / 100), rows), length), rows / 100, "all rows are there");
        look();
    }
    let rates = Rates { store: &store, rows, rounds: 1 };
    for round in 0..100 {
        rates.get(&mut Random::new(round), times / 100);
        rates.put(&mut Random::new(round), BATCH);
        look();
    }
    most.get().saturating_sub(before) as f64 / cache_bytes as f64
}

/// How much memory this process has that no file backs.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the system tells of its processes");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line of every process");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("kilobytes") << 10
}

/// The key of a row: they are spread evenly over all numbers.
fn key(row: u64, rows: u64) -> u64 {
    row * (u64::MAX / rows)
}

fn fill(store: &Store, rows: u64) {
    let mut row = 0;
    while row < rows {
        let mut txn = store.begin();
        let end = rows.min(row + FILL_BATCH);
        for row in row..end {
            txn.put(&ROWS, key(row, rows), row).expect("the row is written");
        }
        txn.commit_with(Durability::None).expect("the rows are committed");
        row = end;
    }
    store.checkpoint().expect("the pages are written");
}

/// How many rows a scan of at most so many sees.
fn scan(store: &Store, from: u64, length: usize) -> u64 {
    let snapshot = store.snapshot();
    let mut scan = snapshot.scan(&ROWS).expect("the table is there").from(from);
    let mut seen = 0;
    while seen < length as u64
        && let Some(row) = scan.next().expect("the store is whole")
    {
        black_box(row);
        seen += 1;
    }
    seen
}

struct Rates<'a> {
    store: &'a Store,
    rows: u64,
    rounds: usize,
}

impl Rates<'_> {
    /// The median over the rounds of what an operation costs, in nanoseconds of the thread's time.
    fn median(&self, times: usize, work: impl Fn(&mut Random, usize)) -> f64 {
        let round = |seed: u64| spend(|| work(&mut Random::new(seed), times)).thread.as_nanos() as f64 / times as f64;
        median(&(0..self.rounds as u64).map(round).collect::<Vec<f64>>())
    }

    fn row(&self, random: &mut Random) -> u64 {
        random.below(self.rows as usize) as u64
    }

    fn get(&self, random: &mut Random, times: usize) {
        let snapshot = self.store.snapshot();
        for _ in 0..times {
            let key = key(self.row(random), self.rows);
            black_box(snapshot.get(&ROWS, key).expect("the store is whole").expect("the row is there"));
        }
    }

    fn put(&self, random: &mut Random, times: usize) {
        for _ in 0..times / BATCH {
            let mut txn = self.store.begin();
            for _ in 0..BATCH {
                let row = self.row(random);
                txn.put(&ROWS, key(row, self.rows), row + 1).expect("the row is written");
            }
            txn.commit_with(Durability::None).expect("the rows are committed");
        }
    }

    fn scan(&self, random: &mut Random, times: usize) {
        for _ in 0..times {
            black_box(scan(self.store, key(self.row(random), self.rows), 100));
        }
    }

    /// Counts ranges of any length.
    fn count(&self, random: &mut Random, times: usize) {
        let snapshot = self.store.snapshot();
        for _ in 0..times {
            let (one, other) = (self.row(random), self.row(random));
            let ops::Range { start, end } = one.min(other)..one.max(other);
            let mut scan = snapshot.scan(&ROWS).expect("the table is there");
            scan = scan.from(key(start, self.rows)).until(key(end, self.rows));
            assert_eq!(scan.count().expect("the store is whole"), end - start, "the rows of the range");
        }
    }
}

/// Writes the table: what each operation costs, and how many times as much as with the fewest rows.
pub(crate) fn write_table(lines: &[Line], out: &mut impl Write) -> io::Result<()> {
    let titles = COLUMNS.iter().map(|(name, unit)| format!("{name} {unit}"));
    let mut cells = vec![["rows".to_owned()].into_iter().chain(titles).collect::<Vec<_>>()];
    cells.extend(lines.iter().map(|line| {
        let costs = line.costs.iter().map(|cost| report::short(*cost));
        [line.rows.to_string()].into_iter().chain(costs).collect()
    }));
    report::write_columns(&cells, 1, out)?;
    writeln!(
        out,
        "\nput: a row, in commits of {BATCH} without sync; scan_100: a scan of a hundred rows; count_range: a range of any"
    )?;
    writeln!(out, "length; open: a store that was closed; load: a row, in order; file: with its log;")?;
    writeln!(
        out,
        "memory: of the process, at most, of a store whose cache is a quarter of its file, all of which is read."
    )
}

/// The same as rows; what is compared with is the cost with the fewest rows.
pub(crate) fn write_json(lines: &[Line], out: impl Write) -> io::Result<()> {
    let Some(first) = lines.first() else { return report::write_rows(&[], out) };
    let peer_name = format!("{} rows", first.rows);
    let names: Vec<Vec<String>> =
        lines.iter().map(|line| COLUMNS.map(|(name, _)| format!("{name}, {} rows", line.rows)).to_vec()).collect();
    let rows: Vec<Row<'_>> = lines
        .iter()
        .zip(&names)
        .flat_map(|(line, names)| {
            names.iter().zip(COLUMNS).enumerate().map(|(at, (workload, (_, unit)))| {
                let (ours, peer) = (line.costs[at], first.costs[at]);
                let (peer, ratio) = (Some(peer), Some(peer / ours));
                Row { workload, ours, peer, peer_name: Some(&peer_name), ratio, unit }
            })
        })
        .collect();
    report::write_rows(&rows, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_tenfold_up_to_the_last() {
        assert!(Plan::new(Some(2_000_000), true).sizes().eq([10_000, 100_000, 1_000_000]));
        assert_eq!(Plan::new(None, false).sizes().last(), Some(100_000_000));
    }

    #[test]
    fn lines_are_compared_with_the_first() {
        let lines = [(10_000, 2.0), (100_000, 4.0)].map(|(rows, cost)| Line { rows, costs: [cost; COLUMNS.len()] });
        let (mut table, mut json) = (Vec::new(), Vec::new());
        write_table(&lines, &mut table).unwrap();
        assert!(String::from_utf8(table).unwrap().starts_with("rows    get ns  put ns"));
        write_json(&lines, &mut json).unwrap();
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&json).unwrap();
        assert_eq!(rows.len(), 2 * COLUMNS.len());
        let row = &rows[COLUMNS.len()];
        assert_eq!((row["workload"].as_str(), row["ratio"].as_f64()), (Some("get, 100000 rows"), Some(0.5)));
    }
}
