//! A directory of a test's own, removed at the end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kauri_ledger::{Home, HomeOptions, Ledger, ManualClock, Reconciliation, Timestamp};

/// Half past nine in the morning of some day.
pub(crate) const MORNING: Timestamp = Timestamp(1_771_666_200_000);

pub(crate) struct Scratch {
    path: PathBuf,
    pub(crate) clock: Arc<ManualClock>,
}

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kauri-ledger-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        Self { path, clock: Arc::new(ManualClock::new(MORNING)) }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    /// A directory beside the home.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).expect("our own directory");
        path
    }

    pub(crate) fn lock(&self) -> kauri_ledger::Result<Home> {
        HomeOptions::new().clock(self.clock.clone()).lock(self.home())
    }

    pub(crate) fn ledger(&self) -> (Ledger, Reconciliation) {
        Ledger::open(self.lock().expect("nobody has it")).expect("a ledger")
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.home().join(name)).expect("a file of the home")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.home().join(name), text).expect("a file of the home");
    }

    /// The database, as any SQLite tool would open it.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.home().join("runtime/runtime.db")).expect("a database")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.path).expect("our own directory");
    }
}

/// The day's file of the audit.
pub(crate) fn audit_of(day: &str) -> PathBuf {
    Path::new("audit").join(format!("{day}.jsonl"))
}
