//! Jobs and runs: what ran, what it said, how it ended.
//!
//! A [`script`] says events; [`Ingest`] brings them to an [`EventSink`] when its [`Ingestion`] says; bytes are kept by [`Artifacts`] and [`Files`].
//! What a script in another process says comes through a [`Pipe`] and is held against the contract by a [`Session`].

mod artifact;
mod contract;
mod draft;
mod files;
mod ingest;
mod memory;
mod pipe;
pub mod script;
mod session;
mod sink;

pub use artifact::{
    ARTIFACT_BYTES_MAX, ArtifactReader, ArtifactWriter, Artifacts, DIGEST_KEY, Digest, KeepError, KeptArtifact,
};
pub use contract::{Contract, NoVersion};
pub use draft::PAYLOAD_BYTES_MAX;
pub use files::{Files, KeptFile};
pub use ingest::{Ingest, Ingestion, Offered, Tally};
pub use memory::MemorySink;
pub use pipe::Pipe;
pub use session::{ARTIFACT_ID_BYTES_MAX, Exit, Heard, OPEN_ARTIFACTS_MAX, Refusal, Session, SessionEnd, SessionOf};
pub use sink::{Appended, EventDraft, EventSink, SinkError};
