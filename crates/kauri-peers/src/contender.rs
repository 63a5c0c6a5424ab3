//! An engine with a folder of its own, and the work that is measured: each method is a whole loop, so that what it costs to
//! choose the engine is paid once and not for every row.

use std::fs;
use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::data::{Data, Random, Ranges};
use crate::engine::{Engine, Fjall, Kauri, Lmdb, Reader, Redb, Sync, Writer};

pub(crate) trait Contender: std::marker::Sync {
    fn name(&self) -> &'static str;
    /// Opens the store in its folder.
    fn open(&mut self, sync: Sync);
    /// Opens an empty store.
    fn open_empty(&mut self, sync: Sync);
    fn close(&mut self);
    /// Waits for work in the background, and tells how many bytes the files have on the disk.
    fn settle(&self) -> f64;
    /// Loads the first so many rows, in order.
    fn bulk(&self, data: &Data, rows: usize);
    /// Gets so many of the first so many rows, and begins a new snapshot after every `per_txn`.
    fn get(&self, data: &Data, rows: usize, gets: Gets);
    /// Gets single rows, each in a snapshot of its own, until the time has come: how long each took, in nanoseconds.
    fn get_timed(&self, data: &Data, rows: usize, span: Duration) -> Vec<f64>;
    fn scan_all(&self) -> usize;
    fn scan_all_back(&self) -> usize;
    /// Scans so many rows, so many times.
    fn scan(&self, data: &Data, length: usize, times: usize, seed: u64);
    /// Counts the rows of ranges.
    fn count(&self, ranges: &Ranges);
    /// Writes rows by their numbers.
    fn insert(&self, data: &Data, rows: Range<usize>, per_txn: usize);
    /// Writes so many of the first so many rows again.
    fn overwrite(&self, data: &Data, rows: usize, times: usize, per_txn: usize, seed: u64);
    fn remove(&self, data: &Data, rows: &[usize], per_txn: usize);
    /// Keeps one snapshot while the work is done.
    fn hold(&self, data: &Data, work: &mut (dyn FnMut() + Send));
}

/// How rows are got.
#[derive(Clone, Copy)]
pub(crate) struct Gets {
    pub(crate) times: usize,
    pub(crate) per_txn: usize,
    pub(crate) seed: u64,
}

/// Everybody, ours first.
pub(crate) fn all(folder: &Path) -> Vec<Box<dyn Contender>> {
    vec![
        Box::new(Place::<Kauri>::new(folder)),
        Box::new(Place::<Lmdb>::new(folder)),
        Box::new(Place::<Redb>::new(folder)),
        Box::new(Place::<Fjall>::new(folder)),
    ]
}

struct Place<E> {
    folder: PathBuf,
    engine: Option<E>,
}

impl<E: Engine> Place<E> {
    fn new(folder: &Path) -> Self {
        Self { folder: folder.join(E::NAME), engine: None }
    }

    fn engine(&self) -> &E {
        self.engine.as_ref().expect("the store was opened")
    }
}

impl<E: Engine> Contender for Place<E> {
    fn name(&self) -> &'static str {
        E::NAME
    }

    fn open(&mut self, sync: Sync) {
        self.engine = Some(E::open(&self.folder, sync));
    }

    fn open_empty(&mut self, sync: Sync) {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder).expect("the folder is ours");
        }
        fs::create_dir_all(&self.folder).expect("the folder can be made");
        self.open(sync);
    }

    fn close(&mut self) {
        self.engine.take().expect("the store was opened").close();
    }

    fn settle(&self) -> f64 {
        self.engine().settle();
        disk_bytes(&self.folder).saturating_sub(self.engine().fixed_bytes()) as f64
    }

    fn bulk(&self, data: &Data, rows: usize) {
        self.engine().bulk(data.sorted(rows).map(|row| (data.key(row), data.value(row, 0))));
    }

    fn get(&self, data: &Data, rows: usize, gets: Gets) {
        let (mut random, mut left) = (Random::new(gets.seed), gets.times);
        while left > 0 {
            let times = left.min(gets.per_txn);
            self.engine().read(|reader| {
                for _ in 0..times {
                    black_box(reader.get(data.key(random.below(rows))).expect("the row is there"));
                }
            });
            left -= times;
        }
    }

    fn get_timed(&self, data: &Data, rows: usize, span: Duration) -> Vec<f64> {
        let (mut random, mut took) = (Random::new(78), Vec::with_capacity(1 << 20));
        let start = Instant::now();
        loop {
            let key = data.key(random.below(rows));
            let before = Instant::now();
            black_box(self.engine().read(|reader| reader.get(key)).expect("the row is there"));
            let after = Instant::now();
            took.push((after - before).as_nanos() as f64);
            if after - start > span {
                return took;
            }
        }
    }

    fn scan_all(&self) -> usize {
        black_box(self.engine().read(|reader| reader.scan(&[], usize::MAX))).0
    }

    fn scan_all_back(&self) -> usize {
        black_box(self.engine().read(|reader| reader.scan_back())).0
    }

    fn scan(&self, data: &Data, length: usize, times: usize, seed: u64) {
        let mut random = Random::new(seed);
        self.engine().read(|reader| {
            for _ in 0..times {
                black_box(reader.scan(data.key(random.below(data.rows)), length));
            }
        });
    }

    fn count(&self, ranges: &Ranges) {
        self.engine().read(|reader| {
            for (from, until) in ranges.iter() {
                assert_eq!(reader.count(from, until), ranges.rows, "{} counts all rows", E::NAME);
            }
        });
    }

    fn insert(&self, data: &Data, rows: Range<usize>, per_txn: usize) {
        for start in rows.clone().step_by(per_txn) {
            self.engine().write(|writer| {
                for row in start..rows.end.min(start + per_txn) {
                    writer.put(data.key(row), data.value(row, 0));
                }
            });
        }
    }

    fn overwrite(&self, data: &Data, rows: usize, times: usize, per_txn: usize, seed: u64) {
        let mut random = Random::new(seed);
        for commit in 0..times / per_txn {
            self.engine().write(|writer| {
                for _ in 0..per_txn {
                    let row = random.below(rows);
                    writer.put(data.key(row), data.value(row, commit + 1));
                }
            });
        }
    }

    fn remove(&self, data: &Data, rows: &[usize], per_txn: usize) {
        for rows in rows.chunks(per_txn) {
            self.engine().write(|writer| rows.iter().for_each(|row| writer.remove(data.key(*row))));
        }
    }

    fn hold(&self, data: &Data, work: &mut (dyn FnMut() + Send)) {
        self.engine().read(|reader| {
            let before = reader.get(data.key(0));
            work();
            assert_eq!(reader.get(data.key(0)), before, "{} keeps the snapshot", E::NAME);
        });
    }
}

/// Does the work again and again until told to stop, and tells how often.
pub(crate) fn repeat(stop: &AtomicBool, mut work: impl FnMut(u64)) -> u64 {
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        work(times);
        times += 1;
    }
    times
}

/// What the files below a folder take up. A file with holes counts as what it holds.
fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("the folder is ours").map(|entry| entry.expect("the folder is ours"));
    let bytes = entries.map(|entry| {
        // A file may be gone by now: engines remove what they do not need.
        let Ok(found) = entry.metadata() else { return 0 };
        if found.is_dir() { disk_bytes(&entry.path()) } else { allocated(&found) }
    });
    bytes.sum()
}

#[cfg(unix)]
fn allocated(file: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(file) * 512
}

#[cfg(not(unix))]
fn allocated(file: &fs::Metadata) -> u64 {
    file.len()
}
