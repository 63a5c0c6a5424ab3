//! The ledger of a home: its database, actions, audit and kill switch under one lock.

use std::path::Path;
use std::sync::Arc;

use kauri_disk::{Disk, OsDisk};

use crate::action::{self, Action, Actions, Begin, Decision, Ground, Reconciliation, Rows as _, Salvage};
use crate::audit::{Audit, AuditNote};
use crate::database::Database;
use crate::error::{Error, Result};
use crate::invariant::{self, Finding};
use crate::lock::{Home, RUNTIME, make_directory};
use crate::queue::QueueStats;
use crate::switch::{KillSwitch, Registration, SwitchWatch};

/// What the reason is kept under in the table `state`.
const SWITCH_KEY: &str = "kill_switch";
/// A longer journal is written anew when the ledger is opened.
const COMPACT_BYTES: u64 = 64 << 20;

/// The ledger of a home.
///
/// ```
/// use kauri_ledger::{Artifact, Home, Ledger, Status};
///
/// # let directory = std::env::temp_dir().join(format!("kauri-doc-ledger-{}", std::process::id()));
/// let (ledger, found) = Ledger::open(Home::lock(&directory)?)?;
/// assert!(found.orphans.is_empty());
///
/// let mut action = ledger.begin("mail-17", "order-4", "send the confirmation")?;
/// action.record_started()?;
/// // Here the mail is sent, with the action's id as its own.
/// let receipt = action.complete_with(Artifact::bytes(b"250 accepted"))?;
///
/// assert_eq!(ledger.action("mail-17")?.map(|row| row.status), Some(Status::Completed));
/// assert!(receipt.starts_with("artifacts/"));
/// assert!(ledger.check()?.is_empty());
/// # drop((ledger, action));
/// # std::fs::remove_dir_all(&directory).ok();
/// # Ok::<(), kauri_ledger::Error>(())
/// ```
#[derive(Debug)]
pub struct Ledger {
    // In this order they are dropped: the lock goes last.
    actions: Actions,
    database: Arc<Database>,
    switch: KillSwitch,
    audit: Arc<Audit>,
    home: Home,
}

impl Ledger {
    /// Opens the ledger of a home, and reconciles what a crash may have left.
    ///
    /// # Errors
    /// `Damaged` if a journal was changed other than by a crash, `NewerSchema` if a later program was here; otherwise what the
    /// database or the disk says.
    pub fn open(home: Home) -> Result<(Self, Reconciliation)> {
        let (clock, runtime) = (home.clock(), home.directory().join(RUNTIME));
        let audit = home.audit()?;
        let switch = KillSwitch::of(home.directory(), Arc::clone(&clock));
        let database = {
            let (switch, audit) = (switch.clone(), Arc::clone(&audit));
            Arc::new(Database::open(&runtime, Arc::clone(&clock), move |why| alarm(&switch, &audit, why))?)
        };
        let ground = Ground {
            journal: disk(&runtime)?,
            artifacts: disk(&home.directory().join("artifacts"))?,
            rows: Arc::clone(&database) as _,
            audit: Some(Arc::clone(&audit)),
            clock,
            redactor: home.redactor(),
        };
        let (actions, found) = Actions::open(ground)?;
        if actions.journal_bytes() > COMPACT_BYTES {
            actions.compact()?;
        }
        let ledger = Self { actions, database, switch, audit, home };
        ledger.notice_switch(None)?;
        Ok((ledger, found))
    }

    /// Makes a damaged journal readable again, so that the ledger can be opened: what can be read is kept, what cannot is told and
    /// audited as `JOURNAL_SALVAGED`, and the damaged journal stays beside the new one. Nothing, if it is not damaged.
    ///
    /// ```
    /// use kauri_ledger::{Home, Ledger, WAL_NAME};
    ///
    /// # let directory = std::env::temp_dir().join(format!("kauri-doc-salvage-{}", std::process::id()));
    /// let (ledger, _) = Ledger::open(Home::lock(&directory)?)?;
    /// drop(ledger.begin("mail-1", "order-1", "send the mail")?);
    /// drop(ledger.begin("mail-2", "order-2", "send the mail")?);
    /// drop(ledger);
    /// let journal = directory.join("runtime").join(WAL_NAME);
    /// let text = std::fs::read_to_string(&journal).unwrap();
    /// std::fs::write(&journal, text.replacen("mail-1", "mail-9", 1)).unwrap();
    ///
    /// let home = Home::lock(&directory)?;
    /// assert!(Ledger::open(home).unwrap_err().is_corruption());
    /// let home = Home::lock(&directory)?;
    /// let salvage = Ledger::salvage(&home)?.expect("it is damaged");
    /// assert_eq!((salvage.kept, salvage.lost), (1, 1));
    /// let (_, found) = Ledger::open(home)?;
    /// assert_eq!(found.orphans[0].action_id, "mail-2");
    /// # std::fs::remove_dir_all(&directory).ok();
    /// # Ok::<(), kauri_ledger::Error>(())
    /// ```
    ///
    /// # Errors
    /// Whatever the disk or the audit says. The journal is then the damaged one, or the new one.
    pub fn salvage(home: &Home) -> Result<Option<Salvage>> {
        let audit = home.audit()?;
        action::salvage(&*disk(&home.directory().join(RUNTIME))?, |salvage| {
            let note = AuditNote::new("JOURNAL_SALVAGED").with("damage", &salvage.damage).with("aside", &salvage.aside);
            let counts = [("kept", salvage.kept), ("lost", salvage.lost)];
            let note = counts.into_iter().fold(note, |note, (name, count)| note.with(name, count.to_string()));
            audit.append(&note).map(drop)
        })
    }

    /// Writes down that an action is about to be done. Its effect may happen only after this returned.
    ///
    /// # Errors
    /// `Stopped` if the kill switch is thrown; otherwise as [`Actions::begin`].
    pub fn begin(&self, id: impl Into<String>, trace: impl Into<String>, task: impl Into<String>) -> Result<Action> {
        self.begin_with(Begin::new(id, trace, task))
    }

    /// The same, for an action that tries another again or needs the result of one.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_with(&self, begin: Begin) -> Result<Action> {
        self.switch.check()?;
        self.actions.begin(begin)
    }

    /// Compares journal, database and artifacts again.
    ///
    /// # Errors
    /// As [`Actions::reconcile`].
    pub fn reconcile(&self) -> Result<Reconciliation> {
        self.home.check()?;
        self.actions.reconcile()
    }

    /// Decides about an orphan.
    ///
    /// # Errors
    /// As [`Actions::resolve`].
    pub fn resolve(&self, id: &str, decision: &Decision) -> Result<()> {
        self.actions.resolve(id, decision)
    }

    /// The row of an action.
    ///
    /// # Errors
    /// What the database says.
    pub fn action(&self, id: &str) -> Result<Option<crate::ActionRow>> {
        self.database.find(id)
    }

    /// Throws the kill switch: no action begins any more, and registered process groups are ended. Returns when they are.
    ///
    /// # Errors
    /// Whatever the system, the database or the audit says. The switch is thrown first, so it is thrown all the same.
    pub fn stop(&self, reason: &str) -> Result<()> {
        self.switch.throw(&self.home.redactor().redact(reason))?;
        let ended = self.switch.end_groups();
        self.notice_switch(Some(ended))
    }

    /// Takes the kill switch back. What was stopped stays stopped; what begins now, begins.
    ///
    /// # Errors
    /// Whatever the system, the database or the audit says.
    pub fn resume(&self) -> Result<()> {
        // Thrown by somebody who could not say so in the database: that is told too.
        self.notice_switch(None)?;
        self.switch.clear()?;
        self.notice_switch(None)
    }

    /// The row follows the file, with a line in the audit: somebody else may have thrown the switch or taken it back, and a call that
    /// failed half-way is called again. `ended` is how many process groups there were, and how many had to be killed.
    fn notice_switch(&self, ended: Option<(usize, usize)>) -> Result<()> {
        match (self.switch.reason()?, self.database.state(SWITCH_KEY)?) {
            (Some(reason), None) => {
                let note = AuditNote::new("KILL_SWITCH_THROWN").with("reason", &reason);
                self.audit.append(&ended.into_iter().fold(note, |note, (groups, killed)| {
                    note.with("groups", groups.to_string()).with("killed", killed.to_string())
                }))?;
                self.database.set_state(SWITCH_KEY, &reason)
            }
            (None, Some(_)) => {
                self.audit.append(&AuditNote::new("KILL_SWITCH_CLEARED"))?;
                self.database.remove_state(SWITCH_KEY).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// A watch for something that runs.
    #[must_use]
    pub fn watch(&self) -> SwitchWatch {
        self.switch.watch()
    }

    /// Has this process group ended when the switch is thrown.
    ///
    /// # Errors
    /// As [`KillSwitch::register`].
    pub fn register(&self, group: u32) -> Result<Registration> {
        self.switch.register(group)
    }

    /// Looks whether the invariants I1 to I9 hold, and says where they do not.
    ///
    /// # Errors
    /// What the database or the disk says.
    pub fn check(&self) -> Result<Vec<Finding>> {
        invariant::check(self)
    }

    /// The actions.
    #[must_use]
    pub const fn actions(&self) -> &Actions {
        &self.actions
    }

    /// The state database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The audit.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// The home, whose lock this ledger has.
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// The kill switch.
    #[must_use]
    pub const fn switch(&self) -> &KillSwitch {
        &self.switch
    }

    /// What the writer queue has done.
    #[must_use]
    pub fn queue(&self) -> QueueStats {
        self.database.queue().stats()
    }
}

/// The writer is given up: nothing can be recorded any more, so nothing may go on.
fn alarm(switch: &KillSwitch, audit: &Audit, why: &str) {
    // There is nobody to tell if this fails too; the queue itself is closed and says so to every caller.
    let _thrown = switch.throw(why);
    let (groups, killed) = switch.end_groups();
    let note = AuditNote::new("KILL_SWITCH_THROWN").with("reason", why);
    let _noted = audit.append(&note.with("groups", groups.to_string()).with("killed", killed.to_string()));
}

fn disk(path: &Path) -> Result<Arc<dyn Disk>> {
    make_directory(path)?;
    Ok(Arc::new(OsDisk::new(path).map_err(Error::path("open", path))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a home is a directory, and a group of processes is started")]
    fn a_writer_that_is_given_up_throws_the_switch_and_ends_what_runs() {
        let path = std::env::temp_dir().join(format!("kauri-ledger-given-up-{}", std::process::id()));
        let clock = Arc::new(crate::ManualClock::new(crate::Timestamp(0)));
        let (ledger, _) = Ledger::open(crate::HomeOptions::new().clock(clock).lock(&path).unwrap()).unwrap();
        let watch = ledger.watch();
        let mut child = std::process::Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let _registered = ledger.register(child.id()).unwrap();
        // Whoever ended must be waited for, or its group stays.
        let reaper = std::thread::spawn(move || child.wait().unwrap());
        ledger.database().queue().give_up("it panicked too often");
        assert_eq!(reaper.join().unwrap().signal(), Some(15), "asked to end");
        assert!(watch.is_stopped());
        let reason = "writer queue: it panicked too often";
        assert_eq!(ledger.switch().reason().unwrap().as_deref(), Some(reason));
        assert!(matches!(ledger.begin("a", "t", "x"), Err(Error::Stopped { reason: found }) if found == reason));
        assert!(matches!(ledger.database().set_state("a", "b"), Err(Error::NotApplied { .. })));
        drop(ledger);
        let audit = crate::Look::at(&path).audit_lines(10).unwrap();
        assert!(
            audit.iter().any(|line| line.kind == "KILL_SWITCH_THROWN" && line.detail["reason"] == reason),
            "{audit:?}"
        );
        std::fs::remove_dir_all(&path).unwrap();
    }
}
