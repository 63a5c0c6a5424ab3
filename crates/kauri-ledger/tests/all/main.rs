//! The ledger as its users meet it.
#![expect(clippy::disallowed_methods, reason = "homes are directories, and holders are processes")]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod actions;
mod audit;
mod database;
mod invariants;
mod locks;
mod runs;
mod salvage;
mod scratch;
mod switch;
