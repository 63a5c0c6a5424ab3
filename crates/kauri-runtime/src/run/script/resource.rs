//! What a run needs while it runs: a browser, a workspace, a connection.

use std::any::Any;
use std::sync::Arc;

use super::error::ScriptError;
use super::plan::RunInfo;
use super::stop::Stop;

/// Something that is acquired for a run.
///
/// ```
/// # use std::sync::Arc;
/// use kauri_runtime::run::script::{Context, Held, Resource, RunInfo, ScriptError, Stop};
///
/// struct Browsers;
/// struct Browser {
///     port: u16,
/// }
///
/// impl Resource for Browsers {
///     fn acquire(&self, _: &RunInfo, _: &Stop) -> Result<Arc<dyn Held>, ScriptError> {
///         Ok(Arc::new(Browser { port: 9222 }))
///     }
/// }
///
/// impl Held for Browser {
///     fn release(&self, _: &Stop) -> Result<(), ScriptError> {
///         Ok(()) // here it is closed
///     }
/// }
///
/// fn script(cx: &Context) -> Result<(), ScriptError> {
///     let browser = cx.held::<Browser>().ok_or("a browser is needed")?;
///     Ok(cx.emit().log_info(&format!("looking through port {}", browser.port))?)
/// }
/// ```
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
