//! Where things are in a home.
//!
//! ```text
//! home/                              0700: everything that must survive, for its owner alone
//! home/runtime/store.kauri           the store of the runtime: messages, timers, jobs, runs, what the application keeps
//! home/runtime/home.lock, .meta      who works here
//! home/runtime/control.sock          where a running instance is asked
//! home/runtime/runtime.db            actions, runs and state, for any SQLite tool
//! home/runtime/actions_wal.jsonl     what was begun and what ended, a line each
//! home/runtime/KILL_SWITCH           its being there stops everything
//! home/kauri.toml                    which classes of jobs there are, and how an instance runs them
//! home/outbox.jsonl                  messages that left, a line each
//! home/files/                        what scripts that speak run frames keep
//! home/artifacts/<SHA-256>           results of actions
//! home/audit/2026-02-21.jsonl        what was done and decided, in a chain of hashes
//! ```

use std::path::{Path, PathBuf};

/// The directory in which a store and all that belongs to it are.
///
/// ```
/// use std::path::Path;
///
/// let layout = kauri::Layout::of("/srv/shop");
/// assert_eq!(layout.store(), Path::new("/srv/shop/runtime/store.kauri"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    home: PathBuf,
}

impl Layout {
    /// Where things are in this home.
    #[must_use]
    pub fn of(home: impl Into<PathBuf>) -> Self {
        Self { home: home.into() }
    }

    /// The home itself.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The directory of everything that is not a result and not the audit.
    #[must_use]
    pub fn runtime(&self) -> PathBuf {
        self.home.join("runtime")
    }

    /// The store of the runtime.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.runtime().join("store.kauri")
    }

    /// Where a running instance is asked.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.runtime().join("control.sock")
    }

    /// Which classes of jobs there are, and how an instance runs them.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.home.join("kauri.toml")
    }

    /// What scripts that speak run frames keep: artifacts and files.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.home.join("files")
    }
}
