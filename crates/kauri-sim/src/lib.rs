//! Kauri's simulator: a disk that records, fails and crashes, the search for a crash that is not survived, and worlds of workers on it.
//!
//! A [`SimDisk`] does what the store's [`Disk`](kauri_tree::disk::Disk) promises and no more: whatever was not made durable
//! may be lost, torn, or kept in part when the power goes. An [`Engine`] lives on it; an [`Explorer`] builds the images that
//! crashes may leave, has the engine look at each, and names the first that it does not survive, so that it can be replayed.
//! Damage that no crash leaves, such as a turned bit, is a [`Corruption`].
//!
//! A [`WorldTrial`] is the whole system: workers, timers and messages over a store on such a disk, under preemption, pauses and jumping
//! clocks besides. `kauri-sim world --minutes N` tries one seed after the other.
//!
//! A [`StoreTrial`] is Kauri's own store under random work. `kauri-sim crash --minutes N` crashes it for as long as one likes. A
//! [`Twin`] is the store beside plain maps, without crashes; `kauri-sim model --minutes N` compares them for as long. A [`Medley`] has
//! tables of every kind.
//!
//! What a crash may leave is drawn in `effect.rs` (what survives), `tear.rs` (which part of a write) and `walk.rs` (what is
//! durable when).

#![forbid(unsafe_code)]

mod acks;
mod book;
mod conformance;
mod content;
mod corruption;
mod crash;
mod disk;
mod effect;
mod explore;
mod fault;
mod forgets;
mod ground;
mod image;
mod interruption;
mod medley;
mod point;
mod rng;
mod run_world;
mod shrink;
mod tear;
mod trace;
mod trial;
mod twin;
mod walk;
mod world;

pub use acks::{Acks, Progress};
pub use conformance::conformance;
pub use corruption::Corruption;
pub use crash::{Plan, Round, Stops};
pub use disk::SimDisk;
pub use explore::{Engine, Explorer, Report, Violation};
pub use fault::{Call, Failure, Fault, FaultKind, Hits};
pub use forgets::Forgets;
pub use ground::DiskGround;
pub use image::Image;
pub use interruption::Interruption;
pub use medley::Medley;
pub use point::{BadPoint, CrashPath, CrashPoint, Flight, Variant};
pub use rng::Rng;
pub use run_world::RunTrial;
pub use trace::Trace;
pub use trial::{STORE_NAME, StoreTrial};
pub use twin::{Chance, Twin, TwinShape};
pub use world::{Story, WorldTrial};
