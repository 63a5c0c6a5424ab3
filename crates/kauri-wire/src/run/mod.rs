//! Run frames: what an executor and the runtime say to each other while a run goes on.
//!
//! ```text
//! | length u32 big-endian | one MessagePack map of that many bytes |
//! ```
//!
//! At most 16 MiB with the prefix. The map's `type` says what it is: one of the eight event types, in which case
//! the map is an [`Envelope`], or one of the six other frame kinds, which are not events and have no place in a run's
//! sequence. The order of keys means nothing. Unknown keys are skipped, and inside payloads they are kept. A key that
//! is known and stands there twice is refused, because two readers could read two things.
//!
//! Envelope keys, event types and the first four of those kinds are those of the Quarry run contract; the other two, a [wish](StepRequest)
//! and its [answer](StepAnswer), extend it.

mod envelope;
mod event;
mod fields;
mod frame;
mod step;

pub use envelope::Envelope;
pub use event::{Event, EventType, Level};
pub use frame::{
    ArtifactChunk, DATA_BYTES_MAX, FRAME_BYTES_MAX, FileWrite, FileWriteAck, Frames, PREFIX_BYTES, RunFrame, RunResult,
    RunStatus, frame_length,
};
pub use step::{STEPS_VERSION, StepAnswer, StepRequest, StepStatus, StepWish};
