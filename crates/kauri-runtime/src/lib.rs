//! Kauri's runtime: messages, workers, timers and atomic blocks, over a [`substrate`].
//!
//! A message is [sent](Runtime::send) to a [`Worker`] and becomes a row in its inbox. The worker claims it, runs its [`Handler`] in an
//! [`Atomic`] block on a snapshot, and lands everything in one commit: what the handler wrote, the messages it emitted, the timers it armed,
//! the acknowledgement. If the worker dies on the way, nothing has happened and the message is claimed again; if it was only slow and
//! somebody else has taken over, its commit is refused. So each message is applied once.
//!
//! ```
//! # use std::sync::Arc;
//! # use kauri_runtime::testing::VirtualClock;
//! use kauri_runtime::substrate::TreeSubstrate;
//! use kauri_runtime::{Atomic, Failure, Read, Runtime, Write};
//! use kauri_tree::{Store, Table};
//! use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
//!
//! const SALES: WorkerId = WorkerId(1);
//! const SHIPPING: WorkerId = WorkerId(2);
//! const SOLD: Table<str, u64> = Table::new("sold");
//!
//! fn sell(block: &mut Atomic<'_>, order: MessageRef<'_>) -> Result<(), Failure> {
//!     let sold = block.get(&SOLD, "apples")?.unwrap_or(0);
//!     block.put(&SOLD, "apples", sold + 12)?;
//!     block.emit(&Message::event(SHIPPING, MessageId::new(order.id())?, order.payload()))?;
//!     Ok(())
//! }
//!
//! # let clock = Arc::new(VirtualClock::default());
//! let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
//! let runtime = Runtime::builder(substrate, clock).start()?;
//! runtime.send(&Message::command(SALES, MessageId::new("order-1")?, "12 apples"))?;
//!
//! assert_eq!(runtime.worker(SALES, sell).drain()?, 1);
//! assert_eq!(runtime.read(|view| view.get(&SOLD, "apples"))?, Some(12));
//! assert_eq!(runtime.depth(SHIPPING)?, 1);
//! # Ok::<(), kauri_runtime::Error>(())
//! ```
//!
//! A message is sent by a thread that waits until it is durable, alone or [with others](Runtime::send_all); or by a [`Sender`], for whom
//! asynchronous code waits. Workers are ticked by whoever likes ([`Worker::tick`]) or run on threads ([`Pool`]). The clock and the seed of its chance are given to the
//! [`Builder`]; so [`testing`] can run everything in virtual time, through crashes and reorderings.
//!
//! # Limits
//!
//! What is longer than the substrate [takes](substrate::Substrate::limits), or than becomes a part of its keys, is refused where it is said,
//! with [`Error::Limit`] or [`RunFault::Name`](run::RunFault::Name). In a handler that is a [failure](Failure) like any that is not retryable.
//!
//! | bytes of | at most | in pages of 4 KiB |
//! |---|---|---|
//! | a key that a block writes, a table's name, the name of a lease | a key: a quarter of a page less 8 | 1016 |
//! | a message id | 21 less | 995 |
//! | a schedule's name; of one that submits jobs | 42 less; 150 | 974; 150 |
//! | a class's name; a job id | 26 less, and 200; 18 less, and 128 | 200; 128 |
//! | an idempotency key, a tag, the name of a step or a signal | 200 | 200 |
//! | a message's frame, and what one block writes | [`BlockLimits`] | 16 MiB, 256 MiB |

#![forbid(unsafe_code)]

mod atomic;
mod cancel;
mod claim;
mod dead_letter;
mod dedupe;
mod error;
mod flow;
mod handler;
mod histogram;
mod hold;
mod json;
mod keys;
mod lease;
mod look;
mod merge;
mod metrics;
#[cfg(test)]
mod mutation;
mod named_lease;
mod observe;
mod outbox;
#[cfg(feature = "planted")]
pub mod planted;
mod policy;
mod pool;
mod prometheus;
mod read;
mod record;
pub mod run;
mod runtime;
mod schedule;
mod schema;
mod sender;
mod step;
pub mod substrate;
mod sweep;
pub mod testing;
mod time;
mod timer;
#[cfg(feature = "tracing")]
mod tracing;
mod worker;

pub use atomic::{Atomic, BlockLimits};
pub use dead_letter::{DeadLetter, Drain, NOBODY, Reason};
pub use error::{Conflict, Error, LayoutFault, Result};
pub use handler::{Failure, Handler};
pub use histogram::Spread;
pub use hold::Renewed;
pub use lease::Lease;
pub use look::{LeaseRow, Look};
pub use merge::{Merge, MergedRow};
pub use metrics::{Counts, Gauges, Latency, PhaseTime, PhaseTimes, Spreads};
pub use named_lease::{Acquired, Released};
pub use observe::{Observation, Observer, StepEnd};
pub use outbox::{InboxSink, JsonLines, Offer, Sink};
pub use policy::{Concurrency, KeyOf, Policy, Rate, Renewing, Syncing};
pub use pool::Pool;
pub use read::{Read, Scan, View, Write};
pub use record::{Divergence, RecordedStep, Recorder, Replay};
pub use runtime::{Builder, Runtime, Sent};
pub use schedule::{CatchUp, Schedule, When};
pub use schema::{SCHEMA, TABLES, TableSpec, check_layout};
pub use sender::{Sender, Sending};
pub use time::{Clock, Mono, Now};
#[cfg(feature = "tracing")]
pub use tracing::Tracing;
pub use worker::{Rest, Tick, Worker};
