//! The ledger, tried: crashes on a simulated disk, killed processes, races for a lock, and its protocol as a model.

mod crashes;
mod model;
mod processes;
