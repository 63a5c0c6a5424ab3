//! Durable steps of a script: what it did is asked for where its run is driven, and recorded there.

use std::fmt;

use super::context::Context;
use super::error::ScriptError;

/// Where a script's steps are recorded, in the order in which it asks for them.
pub trait Steps: Send + Sync {
    /// What is recorded in the next place, if anything is.
    ///
    /// # Errors
    /// If another step is recorded there, or the run does not go on here.
    fn recall(&self, name: &str) -> Result<Option<Vec<u8>>, StepsError>;

    /// Records a step in the next place, and returns when it is committed.
    ///
    /// # Errors
    /// If the run does not go on here.
    fn record(&self, name: &str, result: &[u8]) -> Result<(), StepsError>;
}

/// Why a step was not answered or not recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StepsError {
    /// Another step is recorded in this place, and this says which.
    Diverged(String),
    /// The run does not go on here, and this says why.
    Stopped(String),
}

impl fmt::Display for StepsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Diverged(what) | Self::Stopped(what) => f.write_str(what),
        }
    }
}

impl From<StepsError> for ScriptError {
    fn from(error: StepsError) -> Self {
        let error_type = match error {
            StepsError::Diverged(_) => "divergence",
            StepsError::Stopped(_) => "stopped",
        };
        Self::new(error.to_string()).of_type(error_type)
    }
}

impl Context {
    /// Does a piece of work, once: what it answers is recorded. If it is recorded already, because the run goes on after a crash or keeps
    /// steps of the run that it retries, that is answered and nothing is done. Steps are asked for one after the other, in an order that
    /// follows from the job alone.
    ///
    /// A crash between the work and its record means that it is done again: what happens outside is an
    /// [action](crate::run::LiveRun::action).
    ///
    /// # Errors
    /// What the work answers, and then nothing is recorded; if another step is recorded in this place; if the run does not go on here, or
    /// its steps are recorded nowhere.
    pub fn step(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<Vec<u8>, ScriptError>,
    ) -> Result<Vec<u8>, ScriptError> {
        self.emitter.check()?;
        let steps =
            self.steps.as_ref().ok_or_else(|| ScriptError::new("the steps of this run are recorded nowhere"))?;
        if let Some(result) = steps.recall(name)? {
            return Ok(result);
        }
        let result = work()?;
        steps.record(name, &result)?;
        Ok(result)
    }
}
