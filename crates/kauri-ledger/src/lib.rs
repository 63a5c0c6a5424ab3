//! Effects on the outside world, written down before they happen.
//!
//! A commit can be rolled back; a mail that was sent cannot. This crate keeps two processes from working in one directory
//! ([`Home`], [`Workspace`]), writes every effect down before and after it happens ([`Ledger`], [`Action`]), knows after a crash what
//! was begun and not ended ([`Reconciliation`]), keeps a chain of what was done and decided ([`Audit`]) and stops everything at once
//! ([`KillSwitch`]). It stands alone: a program may use only this.
//!
//! ```text
//! home/runtime/home.lock, home.lock.meta    who works here
//! home/runtime/runtime.db                   actions, runs and state, for any SQLite tool
//! home/runtime/actions_wal.jsonl            what was begun and what ended, a line each
//! home/runtime/KILL_SWITCH                  its being there stops everything
//! home/artifacts/<SHA-256>                  results
//! home/audit/2026-02-21.jsonl, anchors.jsonl
//! workspace/.kauri/ws.lock, ws.lock.meta    who works in that workspace
//! ```
//!
//! Every file but the locks, the switch and the database is written through `kauri_disk::Disk`, so that a simulator can crash
//! it; time is a [`Clock`].

#![forbid(unsafe_code)]
#![cfg(unix)]

mod action;
mod artifact;
mod audit;
mod clock;
mod database;
mod error;
mod examine;
mod group;
mod invariant;
mod journal;
mod ledger;
mod lines;
mod lock;
mod look;
mod patience;
mod queue;
mod redact;
mod schema;
mod seal;
mod switch;

pub use action::{
    Action, ActionRow, Actions, BadStatus, Begin, Decision, Ground, ID_BYTES_MAX, Mark, Reconciliation, Repair, Rows,
    Salvage, Settled, Standing, Status, WAL_NAME, WalLine,
};
pub use artifact::{Artifact, ArtifactReader};
pub use audit::{Anchor, Audit, AuditLine, AuditNote, AuditReport, verify as verify_audit};
pub use clock::{BadTimestamp, Clock, ManualClock, SystemClock, Timestamp};
pub use database::{DATABASE_NAME, Database, DatabaseLook, RunRow};
pub use error::{Error, Result};
pub use examine::{Examination, examine};
pub use invariant::{Finding, Invariant, check_actions};
pub use journal::Torn;
pub use ledger::Ledger;
pub use lock::{HeldLock, HeldLocks, Holder, Home, HomeOptions, LOCK_VERSION, LockState, Workspace};
pub use look::{JournalLook, Look, ROWS_LOOKED_AT};
pub use queue::{
    Applied, BATCH_OPS_MAX, BatchKey, CAPACITY, Op, Queue, QueueStats, RESTART_PAUSE, RESTARTS_MAX, Submitter,
    Submitting, Value,
};
pub use redact::Redactor;
pub use switch::{KillSwitch, Registration, SWITCH_NAME, SwitchWatch};
