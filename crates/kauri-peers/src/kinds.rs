//! What only a store like ours does, or does otherwise: several values per key against LMDB's, compared and merged values against reading
//! and writing them, versions compared, a version as a stream against the bare disk, commits that nobody watches among many that
//! somebody does, ranges removed, and a store opened that nobody closed.
//!
//! What one thread does is measured in its processor time; what waits for the disk by the clock on the wall.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use kauri_tree::disk::OsDisk;
use kauri_tree::{Durability, Options, Read, Store, Table, Watch, Write, WriteTxn};

use crate::data::Random;
use crate::engine::{KauriPairs, Key, LmdbPairs, Pair, Pairs};
use crate::outcome::{OURS, Sheet, Unit};
use crate::suite::{BATCH, spend, spend_ready};

const ROWS: Table<u64, u64> = Table::new("rows");
const OTHER: Table<u64, u64> = Table::new("other");
const LONG: Table<u64, [u8]> = Table::new("long");
/// How many values a key has.
const VALUES: usize = 50;
/// How many rows differ between two versions that are compared.
const CHANGES: usize = 100;
/// How many watch another table.
const WATCHERS: usize = 100;
const VALUE_BYTES: usize = 1000;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    rounds: u64,
    pairs: usize,
    /// Rows whose values are compared and merged, and which are committed one by one.
    rows: u64,
    /// Rows of the versions that are compared.
    diff_rows: u64,
    stream_rows: u64,
    range_rows: u64,
}

impl Plan {
    pub(crate) fn new(quick: bool) -> Self {
        match quick {
            true => Self {
                rounds: 3,
                pairs: 100_000,
                rows: 100_000,
                diff_rows: 500_000,
                stream_rows: 20_000,
                range_rows: 200_000,
            },
            false => Self {
                rounds: 7,
                pairs: 1_000_000,
                rows: 1_000_000,
                diff_rows: 10_000_000,
                stream_rows: 200_000,
                range_rows: 1_000_000,
            },
        }
    }
}

pub(crate) fn measure(plan: Plan, folder: &Path, sheet: &mut Sheet) {
    let mut kinds = Kinds { plan, folder: folder.join("kinds"), sheet };
    kinds.multi();
    kinds.updates();
    kinds.diff();
    kinds.stream();
    kinds.watched();
    kinds.range();
    kinds.crashed();
}

struct Kinds<'a> {
    plan: Plan,
    folder: PathBuf,
    sheet: &'a mut Sheet,
}

impl Kinds<'_> {
    fn note(&mut self, workload: &str, unit: Unit, who: &'static str, value: f64) {
        self.sheet.note(workload.to_owned(), unit, who, value);
    }

    /// Measures work of so many operations in processor time.
    fn rate(&mut self, workload: &str, who: &'static str, times: usize, work: impl FnOnce()) {
        let spent = spend_ready(work);
        self.note(workload, Unit::PerSecond, who, times as f64 / spent.thread.as_secs_f64());
    }

    /// An empty folder.
    fn fresh(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder can be made");
        folder
    }

    fn multi(&mut self) {
        let pairs = pairs(self.plan.pairs);
        for _ in 0..self.plan.rounds.div_ceil(2) {
            self.multi_of::<KauriPairs>(&pairs);
            self.multi_of::<LmdbPairs>(&pairs);
        }
    }

    fn multi_of<P: Pairs>(&mut self, pairs: &[Pair]) {
        let store = P::open(&self.fresh(P::NAME));
        self.rate("multi_insert", P::NAME, pairs.len(), || pairs.chunks(BATCH).for_each(|pairs| store.insert(pairs)));
        let mut seen = (0, 0);
        store.scan();
        self.rate("multi_scan", P::NAME, pairs.len(), || seen = store.scan());
        assert_eq!(seen.0, pairs.len(), "{} has all pairs", P::NAME);
        let keys: Vec<Key> = pairs.iter().take(20_000).map(|(key, _)| *key).collect();
        let mut counted = 0;
        self.rate("multi_count", P::NAME, keys.len(), || counted = store.count(&keys));
        assert_eq!(counted, keys.len() * VALUES, "{} counts all values", P::NAME);
        let gone = &pairs[pairs.len() / 2..];
        self.rate("multi_delete_pair", P::NAME, gone.len(), || {
            gone.chunks(BATCH).for_each(|pairs| store.remove(pairs))
        });
        assert_eq!(store.scan().0, pairs.len() - gone.len(), "{} has the others", P::NAME);
        store.close();
    }

    /// Values that are compared and replaced, and merged, against reading and writing them.
    fn updates(&mut self) {
        let rows = self.plan.rows;
        let store = filled(rows);
        for round in 0..self.plan.rounds {
            let by_hand = |txn: &mut WriteTxn<'_>, row: u64| {
                let value = txn.get(&ROWS, row).expect("the store is whole").expect("the row is there");
                txn.put(&ROWS, row, value + 1).expect("the row is written");
            };
            let swapped = |txn: &mut WriteTxn<'_>, row: u64, expected: u64| {
                let compared = txn.replace_if(&ROWS, row, expected, expected + 1).expect("the row is written");
                assert!(compared.is_match());
            };
            let merged = |txn: &mut WriteTxn<'_>, row: u64| {
                let made = txn.update(&ROWS, row, |value| Some(value.unwrap_or(0) + 1)).expect("the row is written");
                assert!(made.is_some());
            };
            // Every row once in each turn, so that all have the same value; in no order.
            let times = rows as usize;
            let work = |change: &dyn Fn(&mut WriteTxn<'_>, u64)| {
                for first in (0..rows).step_by(BATCH) {
                    let mut txn = store.begin();
                    (first..(first + BATCH as u64).min(rows)).for_each(|row| change(&mut txn, scattered(row, rows)));
                    txn.commit_with(Durability::None).expect("the transaction commits");
                }
            };
            self.rate("cas", OURS, times, || work(&|txn, row| swapped(txn, row, 4 * round)));
            self.rate("cas", "get + put", times, || work(&by_hand));
            self.rate("merge", OURS, times, || work(&merged));
            self.rate("merge", "get + put", times, || work(&by_hand));
        }
    }

    /// Two versions that differ in a hundred rows.
    fn diff(&mut self) {
        let store = filled(self.plan.diff_rows);
        let mut random = Random::new(5);
        for round in 0..self.plan.rounds {
            let before = store.snapshot();
            let mut txn = store.begin();
            for _ in 0..CHANGES {
                let row = random.below(self.plan.diff_rows as usize) as u64;
                txn.put(&ROWS, row, u64::MAX - round).expect("the row is written");
            }
            txn.commit().expect("the transaction commits");
            let (after, mut found) = (store.snapshot(), 0);
            let see = |_: kauri_tree::Difference<u64, u64>| found += 1;
            let spent =
                spend(|| after.diff(&before, &ROWS).and_then(|diff| diff.for_each(see)).expect("the store is whole"));
            assert!((CHANGES / 2..=CHANGES).contains(&found), "{found} rows differ");
            self.note("diff_100", Unit::Microseconds, OURS, spent.thread.as_nanos() as f64 / 1e3);
        }
    }

    /// A version as a stream into a file, and the same bytes written to a file as they are. Both end with a sync.
    fn stream(&mut self) {
        let folder = self.fresh("stream");
        let store = Options::new().open(&OsDisk::new(&folder).expect("the folder opens"), "store").expect("it opens");
        let mut random = Random::new(9);
        let value: Vec<u8> = (0..VALUE_BYTES.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
        let mut txn = store.begin();
        let rows = (0..self.plan.stream_rows).map(|row| (row, &value[..]));
        txn.load_sorted(&LONG, rows).expect("the rows are in order");
        txn.commit().expect("the transaction commits");
        let (path, chunk) = (folder.join("out"), vec![7; 1 << 20]);
        for _ in 0..self.plan.rounds {
            let mut bytes = 0;
            let spent = spend(|| {
                let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).expect("the file is made"));
                bytes = store.snapshot().checkpoint_to(&mut file).expect("the stream is written").bytes;
                file.into_inner().expect("the rest is written").sync_all().expect("the disk syncs");
            });
            self.note("checkpoint_stream", Unit::BytesPerSecond, OURS, bytes as f64 / spent.wall.as_secs_f64());
            fs::remove_file(&path).expect("the file is ours");
            let spent = spend(|| {
                let mut file = File::create(&path).expect("the file is made");
                let mut left = bytes as usize;
                while left > 0 {
                    let length = left.min(chunk.len());
                    file.write_all(&chunk[..length]).expect("the disk writes");
                    left -= length;
                }
                file.sync_all().expect("the disk syncs");
            });
            self.note("checkpoint_stream", Unit::BytesPerSecond, "disk", bytes as f64 / spent.wall.as_secs_f64());
            fs::remove_file(&path).expect("the file is ours");
        }
    }

    /// Commits of one row each to a table that nobody watches, with many who watch another, and with none.
    fn watched(&mut self) {
        let store = filled(self.plan.rows);
        let times = self.plan.rows / 5;
        let commit = || {
            for row in 0..times {
                let mut txn = store.begin();
                txn.put(&ROWS, scattered(row, times), row).expect("the row is written");
                txn.commit().expect("the transaction commits");
            }
        };
        commit();
        for round in 0..self.plan.rounds {
            // Each is the first as often as the other.
            for is_watched in [round % 2 == 0, round % 2 != 0] {
                let (who, watchers) = if is_watched { (OURS, WATCHERS) } else { ("no watch", 0) };
                let watch = |_| store.watch(&OTHER, b"", |_| ()).expect("the store is whole");
                let watches: Vec<Watch> = (0..watchers).map(watch).collect();
                self.rate("unwatched_commit", who, times as usize, commit);
                drop(watches);
            }
        }
    }

    /// A range of rows removed: what it takes for each thousand of its leaves.
    fn range(&mut self) {
        let rows = self.plan.range_rows;
        for _ in 0..self.plan.rounds {
            let store = filled(rows + 2_000);
            let before = store.verify().expect("the store is whole").pages;
            let mut removed = 0;
            let spent = spend(|| {
                let mut txn = store.begin();
                removed = txn.remove_range(&ROWS, 1_000..rows + 1_000).expect("the range is removed");
                txn.commit().expect("the transaction commits");
            });
            assert_eq!(removed, rows);
            let leaves = before - store.verify().expect("the store is whole").pages;
            let took = spent.thread.as_nanos() as f64 / 1e3;
            self.note("range_delete_1000_leaves", Unit::Microseconds, OURS, took * 1e3 / leaves as f64);
        }
    }

    /// Opening a store that was never closed and has as much in its log as there ever is, in rows as small as they come: the file as it is
    /// when the program is killed.
    fn crashed(&mut self) {
        let (folder, left) = (self.fresh("crashed"), self.fresh("left"));
        let open = |folder: &Path| {
            let disk = OsDisk::new(folder).expect("the folder opens");
            Options::new().keeper(false).open(&disk, "store").expect("it opens")
        };
        let store = open(&folder);
        let rows = self.plan.rows;
        let mut txn = store.begin();
        txn.load_sorted(&ROWS, (0..rows).map(|row| (row, 0))).expect("the rows are in order");
        txn.commit().expect("the transaction commits");
        store.checkpoint().expect("the pages are written");
        let (mut next, mut most) = (0, 0);
        let mut write = || {
            let mut txn = store.begin();
            for row in next..next + BATCH as u64 {
                txn.put(&ROWS, scattered(row, rows), row).expect("the row is written");
            }
            txn.commit_with(Durability::None).expect("the transaction commits");
            next += BATCH as u64;
            store.stat().log_used_bytes
        };
        // Until it was emptied once; and then as far as it came before.
        loop {
            match write() {
                used if used < most => break,
                used => most = used,
            }
        }
        while write() < most / 10 * 9 {}
        for _ in 0..self.plan.rounds {
            fs::copy(folder.join("store"), left.join("store")).expect("the file is copied");
            let mut opened = None;
            let spent = spend_ready(|| opened = Some(open(&left)));
            let found = opened.map(|store| store.snapshot().len(&ROWS).expect("the store is whole"));
            assert_eq!(found, Some(rows));
            self.note("open_crashed", Unit::Microseconds, OURS, spent.wall.as_nanos() as f64 / 1e3);
        }
    }
}

/// A store in memory with so many rows.
fn filled(rows: u64) -> Store {
    let store = Store::in_memory().expect("there is memory");
    let mut txn = store.begin();
    txn.load_sorted(&ROWS, (0..rows).map(|row| (row, 0))).expect("the rows are in order");
    txn.commit().expect("the transaction commits");
    store
}

/// Another number below the end for each, in no order.
fn scattered(number: u64, end: u64) -> u64 {
    // A prime that divides no end here.
    (u128::from(number) * 2_654_435_761 % u128::from(end)) as u64
}

/// Pairs in no order: so many values for each key.
fn pairs(count: usize) -> Vec<Pair> {
    let mut random = Random::new(11);
    let keys: Vec<Key> = (0..count / VALUES).map(|_| random.next().to_be_bytes()).collect();
    let value = |random: &mut Random| {
        let mut value = [0; 16];
        value.chunks_exact_mut(8).for_each(|half| half.copy_from_slice(&random.next().to_be_bytes()));
        value
    };
    let mut pairs: Vec<Pair> =
        (0..keys.len() * VALUES).map(|number| (keys[number % keys.len()], value(&mut random))).collect();
    for end in (1..pairs.len()).rev() {
        pairs.swap(end, random.below(end + 1));
    }
    pairs
}
