//! Jobs and runs: what somebody asked for, and each execution of it.
//!
//! A job is [submitted](Runs::submit) and has a first [`Run`]. A message drives the run: a worker [claims](crate::Runtime::run_worker) it,
//! marks the run as running in that commit, and lets a [`Drive`] go on with it. What the run says goes into its stream of events, in the
//! commit in which it says it; what it did is recorded step by step. Its end is one commit: the terminal event, the outcome, the hash
//! over all events, and what follows (another run, or the end of the job). After that nothing changes the run.
//!
//! ```
//! # use std::sync::Arc;
//! # use kauri_runtime::testing::VirtualClock;
//! use kauri_runtime::run::{Class, Ending, Halt, LiveRun, Outcome, Submission};
//! use kauri_runtime::substrate::TreeSubstrate;
//! use kauri_runtime::{Policy, Runtime};
//! use kauri_tree::Store;
//! use kauri_wire::WorkerId;
//! use kauri_wire::pack::Map;
//!
//! fn greet(run: &mut LiveRun) -> Result<Ending, Halt> {
//!     // Done once, whatever crashes: after that the record answers.
//!     let name = run.step("name", |_| Ok(b"Ann".to_vec()))?;
//!     assert_eq!(name, b"Ann");
//!     Ok(Ending::success(run.now().wall, Map::EMPTY))
//! }
//!
//! # let clock = Arc::new(VirtualClock::default());
//! let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
//! let runtime = Runtime::builder(substrate, clock).start()?;
//! let runs = runtime.runs();
//! runs.define("greeting", &Class::new(WorkerId(1)))?;
//! let submitted = runs.submit(&Submission::new("greeting", "hello"))?;
//!
//! runtime.run_worker(WorkerId(1), Policy::default(), greet).drain()?;
//! let run = runs.run(submitted.run)?;
//! assert_eq!(run.outcome(), Some(Outcome::Success { skipped: false }));
//! assert_eq!((run.events, run.steps), (1, 1));
//! assert!(runs.verify(run.id)?);
//! # Ok::<(), kauri_runtime::Error>(())
//! ```
//!
//! What a run does is a function like that, or a [`script`] with hooks, which [`Scripted`] takes through its phases. A script says events; [`Ingest`] brings them to an [`EventSink`] when
//! its [`Ingestion`] says; bytes are kept by [`Artifacts`] and [`Files`]. What a script in another process says comes through a [`Pipe`] and
//! is held against the contract by a [`Session`].

mod action;
mod artifact;
mod begin;
mod class;
mod codec;
mod collect;
mod commit;
mod contract;
mod draft;
mod drive;
mod event;
mod fan_out;
mod fault;
mod files;
mod filter;
mod ids;
mod index;
mod ingest;
mod job;
mod keep;
mod live;
mod look;
mod make;
mod memory;
mod outcome;
mod pipe;
mod recur;
mod report;
mod row;
mod runs;
pub mod script;
mod scripted;
mod seal;
mod session;
mod share;
mod signal;
mod sink;
mod step;
mod submit;
mod tail;
mod tree;
mod unique;

pub(crate) use action::Ledger;
pub use action::{ActionLedger, ActionStanding, ActionTrouble, AskedAction, BegunAction};
pub use artifact::{
    ARTIFACT_BYTES_MAX, ArtifactReader, ArtifactWriter, Artifacts, DIGEST_KEY, Digest, KeepError, KeptArtifact,
};
pub use class::{Class, Exit, FanOut, Keep, Limits, Retry, Takeover};
pub use collect::{Collected, Collector};
pub use contract::{Contract, NoVersion};
pub use draft::PAYLOAD_BYTES_MAX;
pub use drive::Drive;
pub(crate) use drive::Underway;
pub use event::{CONTRACT_VERSION, Stored};
pub use fan_out::{Enqueued, Skip, work_hash};
pub use fault::RunFault;
pub use files::{Files, KeptFile};
pub use filter::Filter;
pub(crate) use ids::RunIds;
pub use ingest::{Ingest, Ingestion, Offered, Tally};
pub use job::{Job, OnFailed, Submission};
pub use keep::{Passed, Removal, SweptRuns};
pub use live::{Halt, LiveRun};
pub use memory::MemorySink;
pub use outcome::{Origin, Outcome, Outcomes, State};
pub use pipe::{Pipe, Unread};
pub use report::{RUN_ROWS, RunReport, RunRows};
pub(crate) use row::resting;
pub use row::{Run, chain};
pub use runs::{Cancelled, Lineage, Recovered, Runs};
pub use scripted::{Scripted, Setup};
pub use seal::Ending;
pub use session::{
    ARTIFACT_ID_BYTES_MAX, Heard, OPEN_ARTIFACTS_MAX, ProcessExit, Refusal, Session, SessionEnd, SessionOf,
};
pub use share::Removed;
pub use sink::{Appended, EventDraft, EventSink, SinkError};
pub use step::{Divergence, Recorded, Step, StepKind};
pub use submit::Submitted;
pub(crate) use tail::Followed;
pub use tail::{Events, Tail};
pub use tree::Tree;
