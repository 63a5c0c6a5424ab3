//! One action under way.

use super::{Actions, Begun, Settled, Status, end_of};
use crate::artifact::Artifact;
use crate::audit::AuditNote;
use crate::error::{Error, Result};

/// An action that was begun. Say how it ended; if this is dropped before, it is an orphan, as after a crash.
#[derive(Debug)]
#[must_use = "an action that is dropped is an orphan"]
pub struct Action {
    actions: Actions,
    id: String,
    begun: Begun,
    stage: Stage,
}

/// How far it was written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// In the journal.
    Begun,
    /// And in the database.
    Recorded,
    /// Its end is in the database.
    Settled(Status),
    /// And in the journal.
    Ended(Status),
    /// And in the audit.
    Told(Status),
}

impl Action {
    pub(super) fn new(actions: Actions, id: String, begun: Begun) -> Self {
        Self { actions, id, begun, stage: Stage::Begun }
    }

    /// Its id: pass it along with the effect, so that whoever does it can tell that it was asked for twice.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Writes the start into the database: step 2.
    ///
    /// # Errors
    /// What the rows say. It can be tried again.
    pub fn record_started(&mut self) -> Result<()> {
        let actions = self.actions.clone();
        let _step = actions.step();
        self.record()
    }

    fn record(&mut self) -> Result<()> {
        if self.stage != Stage::Begun {
            return Ok(());
        }
        let rows = &self.actions.inner.ground.rows;
        let inserted = rows.insert(&self.begun.row(&self.id));
        // An earlier try may have come through although its answer was lost.
        if inserted.is_err() && rows.find(&self.id).is_ok_and(|found| found.is_some()) {
            self.stage = Stage::Recorded;
            return Ok(());
        }
        inserted?;
        self.stage = Stage::Recorded;
        Ok(())
    }

    /// Makes the artifact durable, and then says that the action is done: steps 4 to 7. Answers the `result_ref`.
    ///
    /// # Errors
    /// What the source, the disk or the rows say. It can be tried again.
    pub fn complete_with(&mut self, artifact: Artifact<'_>) -> Result<String> {
        self.check_open()?;
        let actions = self.actions.clone();
        let _step = actions.step();
        let result_ref = actions.inner.artifacts.put(artifact)?;
        self.end(Status::Completed, Some(&result_ref), None)?;
        Ok(result_ref)
    }

    /// Says that the action is done: steps 5 to 7. `result_ref` says where its result is, if it has one; secrets are taken out of it.
    ///
    /// # Errors
    /// What the disk or the rows say. It can be tried again.
    pub fn complete(&mut self, result_ref: Option<&str>) -> Result<()> {
        self.check_open()?;
        let actions = self.actions.clone();
        let _step = actions.step();
        let result_ref = result_ref.map(|result_ref| actions.inner.ground.redactor.redact(result_ref));
        self.end(Status::Completed, result_ref.as_deref(), None)
    }

    /// Says that the action failed. That is final: a retry is a new action.
    ///
    /// # Errors
    /// What the disk or the rows say. It can be tried again.
    pub fn fail(&mut self, error: &str) -> Result<()> {
        self.check_open()?;
        let actions = self.actions.clone();
        let _step = actions.step();
        let error = actions.inner.ground.redactor.redact(error);
        self.end(Status::Failed, None, Some(&error))
    }

    fn end(&mut self, status: Status, result_ref: Option<&str>, error: Option<&str>) -> Result<()> {
        self.record()?;
        let actions = self.actions.clone();
        let settled = Settled { status, result_ref, error, at: actions.inner.ground.clock.now() };
        match self.stage {
            // An earlier try came so far: it goes on from there.
            Stage::Settled(before) | Stage::Ended(before) if before != status => return Err(self.wrong(before)),
            Stage::Settled(_) | Stage::Ended(_) => {}
            _ => {
                actions.settle(&self.id, &[Status::Started], &settled)?;
                self.stage = Stage::Settled(status);
            }
        }
        if self.stage == Stage::Settled(status) {
            actions.inner.wal.append(&end_of(&self.id, &self.begun.trace, &settled))?;
            self.stage = Stage::Ended(status);
            actions.opened().remove(&self.id);
        }
        let note = AuditNote::new(format!("ACTION_{status}")).action(&self.id).trace(&self.begun.trace);
        actions.note(&note.with_some("result_ref", result_ref).with_some("error", error))?;
        self.stage = Stage::Told(status);
        Ok(())
    }

    fn check_open(&self) -> Result<()> {
        match self.stage {
            Stage::Told(status) => Err(self.wrong(status)),
            _ => Ok(()),
        }
    }

    fn wrong(&self, status: Status) -> Error {
        Error::WrongStatus { id: self.id.clone(), status, expected: "an action without an end" }
    }
}

impl Drop for Action {
    fn drop(&mut self) {
        if let Some(begun) = self.actions.opened().get_mut(&self.id) {
            begun.is_live = false;
        }
    }
}
