//! The simulator, tried on itself: what a crash may leave, and whether planted bugs are found.

mod artifacts;
mod canaries;
mod copies;
mod disks;
mod early;
mod model;
#[cfg(feature = "planted")]
mod planted;
mod runs;
mod store;
mod toy;
mod twins;
mod worlds;
