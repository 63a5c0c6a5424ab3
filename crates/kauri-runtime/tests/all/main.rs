//! The runtime's tests.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod blocks;
mod boot;
mod coverage;
mod examples;
mod failures;
mod kill;
mod leases;
mod messages;
mod observing;
mod outboxes;
mod protocol;
mod restores;
mod setup;
mod substrates;
mod threads;
mod timers;
mod traces;
mod worlds;
