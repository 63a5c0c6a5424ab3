//! The store through its public face.
#![expect(clippy::cast_possible_truncation, reason = "random numbers are cut to size")]
#![expect(clippy::unwrap_used, reason = "in a test that is the check")]

mod bounded;
mod changes;
mod checker;
mod compacts;
mod cursors;
mod diffs;
mod files;
mod hermitage;
mod histories;
mod keeper;
mod mistakes;
mod model;
mod multi;
mod places;
#[cfg(unix)]
mod processes;
mod random;
mod streams;
mod tables;
mod threads;
mod ttl;
mod updates;
mod watched;
mod watches;
