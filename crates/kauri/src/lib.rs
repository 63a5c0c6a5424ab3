//! Kauri: a durable runtime in one binary and one directory.
//!
//! This crate is the front door. Today it leads to [`wire`], the frames, keys and ids; each further part joins it here
//! when it is finished.
//!
//! ```
//! use kauri::wire::{Message, MessageId, MessageRef, WorkerId};
//!
//! let order = Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples");
//! let frame = order.encode()?;
//! assert_eq!(MessageRef::decode(&frame)?.payload(), b"12 apples");
//! # Ok::<(), kauri::wire::WireError>(())
//! ```

pub use kauri_wire as wire;

/// The program in the README, compiled and run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
