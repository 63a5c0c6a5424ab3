//! Kauri's store: everything that must survive is a row in one tree, in one file.
//!
//! Today its lowest layer stands: the [`disk`], through which the store does all its reading, writing and syncing. A
//! [`Disk`](disk::Disk) is a directory of the operating system ([`OsDisk`](disk::OsDisk)), memory
//! ([`MemoryDisk`](disk::MemoryDisk)), or the simulator's, which crashes.
//!
//! ```
//! use kauri_tree::disk::{Disk, MemoryDisk, Open};
//!
//! let disk = MemoryDisk::new();
//! let file = disk.open("store", Open::CreateNew)?;
//! file.write_at(4, b"tree")?;
//! file.sync()?;
//! disk.sync_dir()?;
//!
//! let mut bytes = [0; 8];
//! file.read_at(0, &mut bytes)?;
//! assert_eq!(&bytes, b"\0\0\0\0tree");
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

mod btree;
mod catalog;
pub mod disk;
mod error;
mod free;
mod node;
mod overflow;
mod pager;
mod read;
mod scan;
mod snapshot;
mod store;
mod table;
mod value;
mod write;

pub use error::{Error, Fault, Result};
pub use read::{Read, Write};
pub use scan::Scan;
pub use snapshot::Snapshot;
pub use store::{Options, Report, Stat, Store};
pub use table::Table;
pub use value::Value;
pub use write::WriteTxn;
