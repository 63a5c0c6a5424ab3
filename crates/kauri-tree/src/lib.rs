//! Kauri's store: everything that must survive is a row in one tree.
//!
//! A store is a library and one file, or memory alone: no server, no other process. It has typed [`Table`]s, whose rows are in the order of their keys.
//! Any number of [`Snapshot`]s read it, each one version, and wait for nobody; one [`WriteTxn`] at a time makes the next version. A commit returns
//! when no crash can take it away.
//!
//! ```
//! use kauri_tree::{Read, Store, Table, Write};
//!
//! const STOCK: Table<str, u64> = Table::new("stock");
//!
//! let store = Store::in_memory()?; // or Store::open("shop.kauri")
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
//! # Where to begin
//!
#![cfg_attr(
    all(feature = "checkpoint", feature = "file", feature = "multi", feature = "ttl", feature = "watch"),
    doc = "Whoever is new here takes [the tour](tour): everything there is, in the order in which one meets it, from opening a store to restoring a backup of it and to what it cannot do, with examples that run."
)]
//! What to look up for what:
//!
//! | to | there is |
//! |---|---|
//! | open a store | [`Options::open`], [`Store::in_memory`]; what pages, log, memory and threads it has: [`Options`] |
#![cfg_attr(feature = "file", doc = "| open a file of the operating system | [`Store::open`] |")]
//! | say what is in it | [`Table`], of a [`Key`](wire::Key) and a [`Value`] |
//! | read | [`Store::snapshot`]; what can be read with it: [`Read`] |
//! | write | [`Store::begin`]; what can be written with it: [`Write`]. Transactions [nest](WriteTxn::nest), and many threads can read what one has so far ([`View`]) |
//! | write without keeping others from it | [`Change`]: made on a snapshot, by any number of threads at once, and [committed](Store::commit) if what it read still holds |
//! | go through rows | [`Scan`]: one after the other, from either end; [`Cursor`]: from a place among them, also to change them |
#![cfg_attr(
    feature = "multi",
    doc = "| have several values per key | [`MultiTable`], with [`ReadMulti`] and [`WriteMulti`] |"
)]
#![cfg_attr(feature = "ttl", doc = "| have rows expire | [`TtlTable`], with [`ReadTtl`] and [`WriteTtl`] |")]
#![cfg_attr(feature = "watch", doc = "| be told what commits change | [`Store::watch`], [`Store::watch_queue`] |")]
//! | keep a version under a name, also through a restart | [`Store::pin`], [`Store::as_of`] |
//! | know what differs between two versions | [`Snapshot::diff`], [`Snapshot::diff_tables`], in time of the difference |
#![cfg_attr(
    feature = "checkpoint",
    doc = "| copy a store, back it up, bring a copy up to date | [`Store::fork`], [`Snapshot::checkpoint_to`], [`Options::restore`], [`Store::checkpoint_since`], [`Store::restore_from`] |"
)]
//! | trade durability for speed | [`Durability`], [`Store::commit_early`], [`Store::post`] |
//! | look after it | [`Store::stat`], [`Store::verify`], [`Store::compact`] |
//! | know what went wrong | [`Error`] |
//!
//! # Coming from LMDB or redb
//!
//! | there | here |
//! |---|---|
//! | environment, `Database` | [`Store`]. There is no size to be set for it, no number of readers and none of tables |
//! | `MDB_dbi`, `TableDefinition` | [`Table`], a constant. Nothing is opened; the first row makes the table, and its types are remembered |
//! | read transaction | [`Snapshot`]. One that is held for long keeps the pages that it sees, not those of versions made and gone since |
//! | write transaction; child transaction, savepoint | [`WriteTxn`]; [`nest`](WriteTxn::nest) |
//! | `MDB_NOOVERWRITE`, `MDB_RESERVE`, `MDB_APPEND` | [`insert`](Write::insert), [`reserve`](Write::reserve), [`load_sorted`](WriteTxn::load_sorted) |
//! | `MDB_SET`, `MDB_SET_RANGE`; `range` | [`seek_exact`](Cursor::seek_exact), [`seek`](Cursor::seek); [`scan`](Read::scan) |
//! | `MDB_DUPSORT`, multimap; `MDB_NEXT_DUP`, `MDB_NEXT_NODUP` | `MultiTable`; `next_of_key`, `skip_key` |
//! | `MDB_NOSYNC`; `Durability` | [`Durability`], for each commit |
//! | persistent savepoint | [pin](Store::pin), which is read beside the newest version, and does not bring it back |
//! | `mdb_env_copy`, a copy of the file | a stream (`checkpoint_to`) or a store of its own (`fork`), while others write; do not copy a file that is in use |
//! | compacting copy, `compact` | [`Store::compact`], in place, while others read and write |
//! | `mdb_stat`, `check_integrity` | [`Store::stat`], [`Store::verify`] |
//!
//! # How it is made durable
//!
//! All reading, writing and syncing goes through a [`Disk`](disk::Disk), so that a simulated one can crash at every operation. Pages that were
//! read stay in memory, or, with [`Options::cache_bytes`], as many of them as that allows. `docs/durability.md` in the repository says call by call what is
//! promised, `docs/format.md` what stands in the file.
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
//! Without `file` nothing of the operating system's files is left. Pages are memory that the system maps all the same, in the way of Linux, so a program for WebAssembly
//! cannot have a store. It needs the standard library and is not `no_std`: threads wait for the writer's turn and for each other's commits (`Mutex`, `Condvar`,
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
mod errand;
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
mod referred;
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
pub use errand::{Errand, Posted};
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
