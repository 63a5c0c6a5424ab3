//! Trials of Kauri's ledger.
//!
//! - [`LedgerTrial`]: actions on a simulated disk, crashed at every operation (`kauri-sim` drives it);
//! - [`kill`]: a real process with a real database, killed at each of the seven steps and in between;
//! - [`race`]: many processes that want the same lock.
//!
//! `kauri-trial crash`, `kauri-trial kill` and `kauri-trial race` do so for as long as one likes.

#![forbid(unsafe_code)]
#![cfg(unix)]

pub mod kill;
pub mod race;

mod crash;
mod rows;

pub use crash::LedgerTrial;
pub use rows::LogRows;
