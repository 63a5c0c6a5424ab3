//! The store through its public face.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to size")]
#![expect(clippy::unwrap_used, reason = "in a test that is the check")]

mod bounded;
mod changes;
mod checker;
mod compacts;
mod cursors;
mod diffs;
mod early;
mod errands;
mod files;
#[cfg(feature = "checkpoint")]
mod forks;
mod hermitage;
mod histories;
mod keeper;
mod mistakes;
mod model;
#[cfg(feature = "multi")]
mod multi;
#[cfg(feature = "checkpoint")]
mod pins;
mod places;
#[cfg(all(unix, feature = "file"))]
mod processes;
mod random;
#[cfg(feature = "checkpoint")]
mod streams;
mod tables;
mod threads;
mod through;
#[cfg(feature = "ttl")]
mod ttl;
mod updates;
mod watched;
#[cfg(all(feature = "multi", feature = "watch"))]
mod watches;
