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
//! Rows are seen one after the other through a [`Scan`], or from a place among them, a [`Cursor`].
#![cfg_attr(feature = "multi", doc = "In a [`MultiTable`] a key has several sorted values.")]
#![cfg_attr(feature = "ttl", doc = "The rows of a [`TtlTable`] expire.")]
#![cfg_attr(feature = "watch", doc = "A [watch](Store::watch) tells what commits change.")]
//!
//! A version can be kept under a name: [`Store::pin`], and [`Store::as_of`] to read it, also after a restart. What differs between any two
//! versions is [told](Snapshot::diff) in time of the difference.
#![cfg_attr(
    feature = "checkpoint",
    doc = "It is [carried](Snapshot::checkpoint_since) elsewhere as a stream, and the newest version [forked](Store::fork) into a store of its own."
)]
//!
//! A store lives in memory ([`Store::in_memory`]) or in a file ([`Options::open`]), through any crash.
#![cfg_attr(feature = "file", doc = "[`Store::open`] takes the path of a file of the operating system.")]
//! All its reading,
//! writing and syncing goes through a [`Disk`](disk::Disk), so that a simulated one can crash at every operation. Pages that were
//! read stay in memory, or, with [`Options::cache_bytes`], as many of them as that allows.
//!
#![cfg_attr(
    all(feature = "checkpoint", feature = "file", feature = "multi", feature = "ttl", feature = "watch"),
    doc = "Whoever is new here takes [the tour](tour): everything there is, from opening a store to restoring a backup of it, with examples."
)]
//!
//! # Inside
//!
//! Layers, bottom up: [`disk`] (bytes and syncs); `file`, `meta`, `log` (what is where in the file); `node` (a page of a tree), `pager`
//! (pages of a transaction, and when they can be used again), `btree` (search, edit, scan, verify), `overflow` (long values),
//! `catalog` and [`Table`] (names and types), `durable` and `open` (commits that survive; checkpoints; recovery), `pins` and
//! `kept` (versions with a name, and the pages that only they have), [`Snapshot`] and [`WriteTxn`]; `validate` and `queue` (changes compared and committed together), [`Change`]; `multi`,
//! `ttl` and `watch` stand on all of them.
//!
//! # Features
//!
//! Small programs leave out what they do not need; all of it is there unless one says `default-features = false`.
//! `cargo xtask size` prints what each adds to a program.
//!
//! | feature | what it adds |
//! |---|---|
//! | `multi` | `MultiTable`: several sorted values per key |
//! | `ttl` | `TtlTable`: rows that expire |
//! | `watch` | `Store::watch`, `Store::watch_queue` |
//! | `checkpoint` | `Snapshot::checkpoint_to`, `Options::restore` and `Snapshot::fork`: copies of a version |
//! | `file` | `Store::open` and `disk::OsDisk`: files of the operating system |
//!
//! Without `file` nothing of the operating system's files is left, and a program for WebAssembly can have a store in memory. It needs the
//! standard library all the same, and is not `no_std`: threads wait for the writer's turn and for each other's commits (`Mutex`, `Condvar`,
//! `OnceLock`), a panic in the code of a key's type or of whoever watches is caught, and a disk answers with `std::io::Error`. Each of these would
//! need a second form, with locks that spin and errors of its own, that nobody would test as the first one is tested. What a guest needs without it, frames
//! and keys, is in `kauri-wire`, which is `no_std`.

// An example imports what it needs, and nothing else.
#![doc(test(attr(deny(unused_imports, unused_mut, unused_variables))))]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "checkpoint", feature = "multi", feature = "ttl", feature = "watch")),
    allow(dead_code, unused_imports, reason = "what the parts that were left out share")
)]

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
mod early;
mod error;
mod file;
#[cfg(feature = "checkpoint")]
mod fork;
mod free;
mod group;
mod keeper;
mod kept;
mod kind;
mod log;
mod merge;
mod meta;
#[cfg(feature = "multi")]
mod multi;
mod node;
mod numbered;
mod open;
mod overflow;
mod pager;
mod pins;
mod queue;
mod raw;
mod read;
mod scan;
mod sequence;
mod snapshot;
mod store;
#[cfg(feature = "checkpoint")]
mod stream;
mod sync;
#[cfg(all(unix, feature = "file"))]
mod system;
mod table;
mod through;
#[cfg(all(feature = "checkpoint", feature = "file", feature = "multi", feature = "ttl", feature = "watch"))]
pub mod tour;
#[cfg(feature = "ttl")]
mod ttl;
mod update;
mod validate;
mod value;
mod verify;
mod view;
#[cfg(feature = "watch")]
mod watch;
#[cfg(not(feature = "watch"))]
#[path = "watch/none.rs"]
mod watch;
mod write;

pub use kauri_disk as disk;
pub use kauri_wire as wire;

pub use change::{Change, Outcome};
pub use compact::Compaction;
pub use content::ContentHash;
pub use cursor::{Cursor, Position};
pub use diff::{Diff, Difference, TableChange, TableDiff};
pub use durable::Durability;
pub use early::Early;
pub use error::{Error, Fault, Result};
#[cfg(feature = "multi")]
pub use multi::{MultiTable, Pair, ReadMulti, Values, WriteMulti};
pub use numbered::{Beside, Numbered};
pub use pins::Pin;
pub use raw::RawTable;
pub use read::{Read, Write};
pub use scan::Scan;
pub use sequence::SEQUENCES;
pub use snapshot::Snapshot;
pub use store::{Options, Stat, Store};
#[cfg(feature = "checkpoint")]
pub use stream::Checkpoint;
pub use table::Table;
#[cfg(feature = "ttl")]
pub use ttl::{LiveRows, ReadTtl, Swept, TtlTable, WriteTtl};
pub use update::{AsValue, Compared, Counter};
pub use value::Value;
pub use verify::Report;
pub use view::View;
#[cfg(feature = "watch")]
pub use watch::{Notice, Watch, WatchQueue};
pub use write::WriteTxn;

#[cfg(feature = "planted")]
pub use planted::{Bug, Planted, plant};
