//! The runtime's tests.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod blocks;
mod boot;
mod coverage;
mod examples;
mod failures;
mod kill;
mod messages;
mod observing;
mod outboxes;
mod protocol;
mod run_jobs;
mod run_steps;
mod runs;
mod setup;
mod substrates;
mod threads;
mod timers;
mod worlds;
