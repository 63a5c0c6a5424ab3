//! Kauri's store: everything that must survive is a row in one tree.
//!
//! A [`Store`] has typed [`Table`]s. Any number of [`Snapshot`]s read it, each one version, without a lock; one [`WriteTxn`] at a
//! time makes the next version, and can nest others. Both share [`Read`]. Many threads can read what a transaction has so far: each
//! through a [`View`]. A [`Change`] is made on a snapshot, by any number of threads at once, and [committed](Store::commit) if what it
//! read still holds.
//!
//! ```
//! use kauri_tree::{Read, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let store = Store::in_memory()?;
//! let before = store.snapshot();
//!
//! let mut txn = store.begin();
//! txn.put(&STOCK, "apples", 12)?;
//! txn.put(&STOCK, "pears", 5)?;
//! txn.commit()?;
//!
//! let after = store.snapshot();
//! assert_eq!(after.get(&STOCK, "apples")?, Some(12));
//! assert_eq!(before.get(&STOCK, "apples")?, None);
//! assert_eq!(after.scan(&STOCK)?.from("b").count()?, 1);
//! # Ok::<(), kauri_tree::Error>(())
//! ```
//!
//! Rows are seen one after the other through a [`Scan`], or from a place among them, a [`Cursor`]. In a [`MultiTable`] a key has several
//! sorted values; the rows of a [`TtlTable`] expire. A [watch](Store::watch) tells what commits change.
//!
//! A store lives in memory ([`Store::in_memory`]) or in a file ([`Store::open`], [`Options::open`]), through any crash. All its reading,
//! writing and syncing goes through a [`Disk`](disk::Disk), so that a simulated one can crash at every operation. Pages that were
//! read stay in memory, or, with [`Options::cache_bytes`], as many of them as that allows.
//!
//! Layers, bottom up: [`disk`] (bytes and syncs); `file`, `meta`, `log` (what is where in the file); `node` (a page of a tree), `pager`
//! (pages of a transaction, and when they can be used again), `btree` (search, edit, scan, verify), `overflow` (long values),
//! `catalog` and [`Table`] (names and types), `durable` and `open` (commits that survive; checkpoints; recovery), [`Snapshot`]
//! and [`WriteTxn`]; `validate` and `queue` (changes compared and committed together), [`Change`]; `multi`,
//! `ttl` and `watch` stand on all of them.

#![forbid(unsafe_code)]

// First, because its macro is used by the others.
#[macro_use]
mod planted;

mod btree;
mod catalog;
mod change;
mod checkpoint;
mod compact;
mod content;
mod copies;
mod cursor;
mod diff;
mod durable;
mod error;
mod file;
mod fork;
mod free;
mod group;
mod keeper;
mod kind;
mod log;
mod merge;
mod meta;
mod multi;
mod node;
mod numbered;
mod open;
mod overflow;
mod pager;
mod queue;
mod raw;
mod read;
mod scan;
mod sequence;
mod snapshot;
mod store;
mod stream;
mod sync;
mod table;
mod ttl;
mod update;
mod validate;
mod value;
mod view;
mod watch;
mod write;

pub use kauri_disk as disk;

pub use change::{Change, Outcome};
pub use compact::Compaction;
pub use content::ContentHash;
pub use cursor::{Cursor, Position};
pub use diff::{Diff, Difference, TableChange, TableDiff};
pub use durable::Durability;
pub use error::{Error, Fault, Result};
pub use multi::{MultiTable, Pair, ReadMulti, Values, WriteMulti};
pub use numbered::{Beside, Numbered};
pub use raw::RawTable;
pub use read::{Read, Write};
pub use scan::Scan;
pub use sequence::SEQUENCES;
pub use snapshot::Snapshot;
pub use store::{Options, Report, Stat, Store};
pub use stream::Checkpoint;
pub use table::Table;
pub use ttl::{LiveRows, ReadTtl, Swept, TtlTable, WriteTtl};
pub use update::{AsValue, Compared, Counter};
pub use value::Value;
pub use view::View;
pub use watch::{Notice, Watch, WatchQueue};
pub use write::WriteTxn;

#[cfg(feature = "planted")]
pub use planted::{Bug, Planted, plant};
