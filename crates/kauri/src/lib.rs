//! Kauri: a durable runtime in one binary and one directory.
//!
//! This crate is the front door. Today it leads to [`wire`], the frames, keys and ids, to [`tree`], the store, to [`runtime`], the
//! messages and workers, and to [`ledger`], the effects on the outside world; each further part joins it here when it is finished.
//!
//! ```
//! use kauri::tree::{Read, Store, Table, Write};
//! use kauri::wire::{InboxKey, Message, MessageId, MessageRef, Seq, WorkerId};
//!
//! const INBOX: Table<InboxKey, [u8]> = Table::new("inbox");
//!
//! let store = Store::in_memory()?;
//! let order = Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples");
//! let key = InboxKey { worker: order.to, seq: Seq(1) };
//! let mut txn = store.begin();
//! txn.put(&INBOX, key, &order.encode()?)?;
//! txn.commit()?;
//!
//! let snapshot = store.snapshot();
//! let frame = snapshot.get(&INBOX, key)?.expect("it was committed");
//! assert_eq!(MessageRef::decode(&frame)?.payload(), b"12 apples");
//! # Ok::<(), kauri::tree::Error>(())
//! ```

mod actions;
mod clock;
mod config;
pub mod control;
mod home;
pub mod instance;
mod retention;
mod run_table;

pub use actions::RunLedger;
pub use clock::SystemClock;
pub use config::{
    Config, ConfigError, JobConfig, LogFormat, LogLevel, ScheduleConfig, Setting, Source, parse_span, parse_word,
    show_span,
};
pub use home::Layout;
pub use kauri_ledger as ledger;
pub use kauri_runtime as runtime;
pub use kauri_tree as tree;
pub use kauri_wire as wire;
pub use retention::sweep;
pub use run_table::{RunTable, TableError, TableUpdate};

/// The program in the README, compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
