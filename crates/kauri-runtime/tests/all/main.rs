//! The runtime's tests.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod artifacts;
mod blocks;
mod boot;
mod coverage;
mod examples;
mod failures;
mod ingests;
mod kill;
mod leases;
mod limits;
mod messages;
mod observing;
mod outboxes;
mod paths;
mod processes;
mod protocol;
mod restarts;
mod restores;
mod retention;
mod run_jobs;
mod run_order;
mod run_scripts;
mod run_steps;
mod runs;
mod script_waits;
mod scripts;
mod senders;
mod sessions;
mod setup;
mod substrates;
mod threads;
mod timers;
mod traces;
mod turns;
mod worlds;
