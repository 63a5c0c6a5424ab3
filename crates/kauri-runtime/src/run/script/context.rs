//! What a script and its hooks are given.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;

use super::calls::Pulse as _;
use super::emit::{EmitError, Emitter};
use super::plan::RunInfo;
use super::resource::Held;
use super::steps::Steps;
use super::stop::{Cause, Stop};
use crate::run::artifact::ArtifactWriter;
use crate::run::files::{Files, KeptFile};
use crate::time::Now;

/// What a script and its hooks are given. Clones are the same, for other threads of the script.
#[derive(Clone)]
pub struct Context {
    pub(crate) run: Arc<RunInfo>,
    pub(crate) job: Arc<Value>,
    pub(crate) emitter: Emitter,
    pub(crate) call: u64,
    pub(crate) stop: Stop,
    pub(crate) held: Option<Arc<dyn Held>>,
    pub(crate) files: Option<Files>,
    pub(crate) steps: Option<Arc<dyn Steps>>,
    /// Whether the call is in the middle of a step.
    pub(crate) is_in_step: Arc<AtomicBool>,
}

impl Context {
    /// Who the run is.
    #[must_use]
    pub fn run(&self) -> &RunInfo {
        &self.run
    }

    /// What is to be done: the job's payload, as `prepare` left it.
    #[must_use]
    pub fn job(&self) -> &Value {
        &self.job
    }

    /// Where to say something.
    #[must_use]
    pub const fn emit(&self) -> &Emitter {
        &self.emitter
    }

    /// Whether the call has to stop.
    #[must_use]
    pub const fn stop(&self) -> &Stop {
        &self.stop
    }

    /// What was acquired for the run, if it is of this type.
    #[must_use]
    pub fn held<T: Held>(&self) -> Option<&T> {
        let held: &dyn Any = self.held.as_deref()?;
        held.downcast_ref()
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Now {
        self.stop.clock().now()
    }

    /// Lets time pass, and meanwhile commits what was said when its time comes.
    ///
    /// # Errors
    /// Why the call has to stop, now or at the end of the pause.
    pub fn sleep(&self, pause: Duration) -> Result<(), Cause> {
        let pulse = self.pulse();
        let until = self.now().mono + pause;
        loop {
            self.stop.check()?;
            pulse.tick();
            let now = self.now().mono;
            if until <= now {
                return Ok(());
            }
            let next = pulse.due().filter(|due| now < *due).map_or(until, |due| due.min(until));
            self.stop.sleep(next.since(now))?;
        }
    }

    /// Begins an artifact: bytes that are part of the run once [`ArtifactEmitter::finish`] has said so.
    ///
    /// # Errors
    /// If nothing can be said any more, or the disk fails.
    pub fn artifact(&self, name: &str, content_type: &str) -> Result<ArtifactEmitter, EmitError> {
        self.emitter.check()?;
        let writer = self.files()?.artifacts().begin()?;
        let artifact_id = format!("artifact-{}", self.emitter.gate().next_artifact());
        let (name, content_type) = (name.to_owned(), content_type.to_owned());
        Ok(ArtifactEmitter { emitter: self.emitter.clone(), writer, artifact_id, name, content_type })
    }

    /// Keeps a file beside the run, and returns when it is durable. A failure is this file's alone: the run may go on.
    ///
    /// # Errors
    /// If nothing can be said any more, or why the file is not kept.
    pub fn put(&self, filename: &str, content_type: &str, data: &[u8]) -> Result<KeptFile, EmitError> {
        self.emitter.check()?;
        Ok(self.files()?.put(self.run.run_id, filename, content_type, data)?)
    }

    pub(crate) fn pulse(&self) -> (Arc<super::emit::Gate>, u64) {
        (Arc::clone(self.emitter.gate()), self.call)
    }

    pub(crate) fn files(&self) -> Result<&Files, EmitError> {
        self.files.as_ref().ok_or(EmitError::NoFiles)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("run", &self.run).field("job", &self.job).finish_non_exhaustive()
    }
}

/// An artifact that a script is writing. Dropped, it leaves nothing.
#[derive(Debug)]
#[must_use = "an artifact that is not finished is not part of the run"]
pub struct ArtifactEmitter {
    emitter: Emitter,
    writer: ArtifactWriter,
    artifact_id: String,
    name: String,
    content_type: String,
}

impl ArtifactEmitter {
    /// Adds bytes at the end.
    ///
    /// # Errors
    /// If nothing can be said any more, if there are too many, or the disk fails.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        self.emitter.check()?;
        Ok(self.writer.write(bytes)?)
    }

    /// Makes the bytes durable, and says so with an artifact event.
    ///
    /// # Errors
    /// If the disk fails, or why the event was not said. The bytes are then nobody's, and collected.
    pub fn finish(self) -> Result<(), EmitError> {
        self.emitter.check()?;
        let bytes = self.writer.finish()?;
        self.emitter.artifact(&self.artifact_id, &self.name, &self.content_type, bytes)
    }
}
