//! Jobs and runs: what ran, what it said, how it ended.
//!
//! A [`script`] says events; [`Ingest`] brings them to an [`EventSink`] when its [`Ingestion`] says; bytes are kept by [`Artifacts`] and [`Files`].

mod artifact;
mod draft;
mod files;
mod ingest;
pub mod script;
mod sink;

pub use artifact::{
    ARTIFACT_BYTES_MAX, ArtifactReader, ArtifactWriter, Artifacts, DIGEST_KEY, Digest, KeepError, Pinned,
};
pub use draft::PAYLOAD_BYTES_MAX;
pub use files::{Files, KeptFile};
pub use ingest::{Ingest, Ingestion, Offered, Tally};
pub use sink::{Appended, EventDraft, EventSink, SinkError};
