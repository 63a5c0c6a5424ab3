//! The bytes that travel through Kauri and stay in it: frames, run frames, keys and ids.
//!
//! A piece of work starts as a [`Message`], is stored and sent as its frame, and is read in place as a [`MessageRef`]. What
//! a block wants done once it commits is an [`Intent`]. Rows are found by [`Key`]s, whose bytes sort like their values.
//! What a run says comes as [`run`] frames.
//!
//! ```
//! use kauri_wire::{InboxKey, Key, Message, MessageId, MessageRef, Seq, WorkerId};
//!
//! let message = Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples");
//! let row = (InboxKey::encode(InboxKey { worker: message.to, seq: Seq(1) }), message.encode()?);
//!
//! assert_eq!(InboxKey::decode(&row.0)?.worker, WorkerId(7));
//! assert_eq!(MessageRef::decode(&row.1)?.payload(), b"12 apples");
//! # Ok::<(), kauri_wire::WireError>(())
//! ```
//!
//! The crate does no I/O, has no clock and no randomness, and builds without the standard library, so that a guest can
//! use it. Decoders check everything once, borrow from their input and allocate nothing; the exception is text with a
//! byte 0 inside a composite key. They are strict: a frame, a key or a marker has one byte form, a flag and its field must agree, and
//! an error says where the first fault is, what was expected and what was found ([`WireError`]).
//!
//! # Where we refuse what the C implementation accepts
//!
//! The frames are those of *Runner Wire Format v0*. Two things that its text forbids and its C decoder lets pass are
//! refused here:
//!
//! - a message with `from_worker` set and the flag `has-from-worker` clear, which would be two byte forms of one message;
//! - an intent whose body is not a valid message frame, which would fail only after the commit.

// An example imports what it needs, and nothing else.
#![doc(test(attr(deny(unused_imports, unused_mut, unused_variables))))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod error;
mod header;
mod id;
mod intent;
mod key;
mod message;
pub mod pack;
mod reader;
pub mod run;
mod schema;

pub use error::{Found, WireError, WireErrorKind};
pub use header::WIRE_VERSION;
pub use id::{JobId, MessageId, RunId, Seq, Timestamp, TraceId, WorkerId};
pub use intent::{INTENT_HEADER_BYTES, INTENT_MAGIC, Intent, IntentRef};
pub use key::{InboxKey, Key, KeyPart, RetryKey, TimerKey};
pub use message::{Flags, MESSAGE_HEADER_BYTES, MESSAGE_MAGIC, Message, MessageKind, MessageParts, MessageRef, Route};
pub use reader::Reader;
pub use schema::SchemaVersion;
