//! The crash search, pointed at an engine that is not ours: redb, a copy-on-write B+ tree that others trust.
//!
//! Its release 4.2 mended two crash bugs, which its changelog describes: a crash while the file grows could leave it
//! unopenable, and a second crash, during the repair after a first, could lose a commit that was acknowledged. A search that
//! is worth its name finds such things in 4.1.0 and nothing in 4.4.0. This file is compiled twice, against each of them: the
//! tests of this package take the later, those of `before/` the earlier.

#![forbid(unsafe_code)]

use std::io;

use kauri_sim::{Acks, Engine, Explorer, Image, Progress, Rng, SimDisk};
use kauri_tree::disk::{Disk, File, Open};
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};

/// redb, with a table of its commits.
///
/// Commit `n` puts a row `n`, takes one away that is a few commits old, and writes `n` into row 0.
#[derive(Clone, Copy, Debug)]
pub struct Redb {
    commits: u64,
    /// How long the row of commit `n` is: `row_bytes[n % len]`.
    row_bytes: &'static [usize],
}

const NAME: &str = "redb";
const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("commits");
const COUNT: u64 = 0;

/// How many commits a row stays.
const ROWS_KEPT: u64 = 6;

/// How much the engine may keep in memory: little, so that pages are written early.
const CACHE_BYTES: usize = 64 * 1024;

type Answer<T> = Result<T, String>;

impl Redb {
    /// Eight commits under which the file grows.
    #[must_use]
    pub const fn growing() -> Self {
        Self { commits: 8, row_bytes: &[100, 5_000, 300_000, 60_000] }
    }

    /// Four commits for which the file is long enough.
    #[must_use]
    pub const fn steady() -> Self {
        Self { commits: 4, row_bytes: &[10_000] }
    }

    /// The search that this engine gets: its header keeps both of its commit slots in one sector, so writes are torn finer.
    pub fn explorer(seed: u64, points_max: u64) -> Explorer {
        Explorer::new(seed).start(Self::empty()).tear_bytes(&[16]).points(points_max)
    }

    /// A disk with an empty database that was closed in peace. (What a crash leaves of its making is no promise.)
    fn empty() -> Image {
        let disk = SimDisk::new();
        drop(open(&disk).expect("a new database"));
        disk.image()
    }

    fn row(&self, commit: u64) -> Vec<u8> {
        let turn = usize::try_from(commit).unwrap_or(usize::MAX) % self.row_bytes.len();
        let mut bytes = vec![0; self.row_bytes[turn]];
        Rng::new(commit).fill(&mut bytes);
        bytes
    }

    fn commit(&self, database: &Database, commit: u64) -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        {
            let mut table = transaction.open_table(TABLE)?;
            table.insert(commit, self.row(commit).as_slice())?;
            table.insert(COUNT, commit.to_le_bytes().as_slice())?;
            if commit > ROWS_KEPT {
                table.remove(commit - ROWS_KEPT)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// How many commits there are, if all rows are those after that many.
    fn examine(&self, database: &Database) -> Answer<u64> {
        let transaction = database.begin_read().map_err(words)?;
        let table = match transaction.open_table(TABLE) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(0),
            Err(error) => return Err(words(error)),
        };
        let held = held(&table)?;
        let mut expected: Vec<u64> = (held.saturating_sub(ROWS_KEPT) + 1..=held).collect();
        expected.insert(0, COUNT);
        let mut found = Vec::new();
        for row in table.iter().map_err(words)? {
            let (key, value) = row.map_err(words)?;
            let key = key.value();
            if key != COUNT && value.value() != self.row(key) {
                return Err(format!("row {key} has other bytes"));
            }
            found.push(key);
        }
        if found == expected { Ok(held) } else { Err(format!("expected rows {expected:?}, found {found:?}")) }
    }
}

fn held(table: &impl ReadableTable<u64, &'static [u8]>) -> Answer<u64> {
    let count = table.get(COUNT).map_err(words)?.ok_or("the count is missing")?;
    count.value().try_into().map(u64::from_le_bytes).map_err(words)
}

impl Engine for Redb {
    fn live(&self, disk: &SimDisk, acks: &Acks) -> Answer<()> {
        let database = open(disk)?;
        let held = self.examine(&database)?;
        for commit in held + 1..=held + self.commits {
            acks.started(commit);
            self.commit(&database, commit).map_err(words)?;
            acks.acked(commit);
        }
        Ok(())
    }

    fn check(&self, disk: &SimDisk, _seen: Progress) -> Answer<u64> {
        self.examine(&open(disk)?)
    }
}

fn open(disk: &SimDisk) -> Answer<Database> {
    let file = disk.open(NAME, Open::Create).map_err(words)?;
    disk.sync_dir().map_err(words)?;
    Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(Backend { file }).map_err(words)
}

/// redb's own seam, laid over ours.
#[derive(Debug)]
struct Backend {
    file: Box<dyn File>,
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}
