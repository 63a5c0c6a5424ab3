//! What a run needs while it runs: a browser, a workspace, a connection.

use std::any::Any;
use std::sync::Arc;

use super::error::ScriptError;
use super::plan::RunInfo;
use super::stop::Stop;

/// Something that is acquired for a run.
///
/// It is asked only if `prepare` says continue, before `before_run`. What was acquired is released once, after `cleanup`, however the run ends.
pub trait Resource: Send + Sync + 'static {
    /// Acquires it. What was acquired in part when it fails, it gives back itself.
    ///
    /// # Errors
    /// Why not; the run is then an executor's crash.
    fn acquire(&self, run: &RunInfo, stop: &Stop) -> Result<Arc<dyn Held>, ScriptError>;
}

/// What was acquired. A script finds it with [`Context::held`](super::Context::held).
pub trait Held: Any + Send + Sync {
    /// Gives it back. A script that was left alone because it did not stop may still be using it.
    ///
    /// # Errors
    /// What went wrong; it is recorded, and changes nothing.
    fn release(&self, stop: &Stop) -> Result<(), ScriptError>;
}
