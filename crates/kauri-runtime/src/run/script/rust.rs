//! Scripts in Rust.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::calls::{Calls, Crew, NoPulse};
use super::context::Context;
use super::error::ScriptError;
use super::executor::{Call, Called, Executor, Prepared, TerminalSignal};
use super::hook::{Hooks, LoadError};
use super::plan::RunInfo;
use super::stop::Stop;

/// User code of a job, and the hooks around it.
///
/// Hooks are called in the order in which they stand here. All take `&self`, because `cleanup` is called even if the script hangs.
pub trait Script: Send + Sync + 'static {
    /// Looks at the job before anything is acquired.
    ///
    /// # Errors
    /// The run is an executor's crash then, and nothing else is called.
    fn prepare(&self, job: &Value, run: &RunInfo, stop: &Stop) -> Result<Prepared, ScriptError> {
        let _ = (job, run, stop);
        Ok(Prepared::CONTINUE)
    }

    /// Before the script.
    ///
    /// # Errors
    /// The script is not called then, and the run fails with this error.
    fn before_run(&self, cx: &Context) -> Result<(), ScriptError> {
        let _ = cx;
        Ok(())
    }

    /// The script.
    ///
    /// # Errors
    /// The run fails with it, unless `on_error` recovers.
    fn run(&self, cx: &Context) -> Result<(), ScriptError>;

    /// After a script that succeeded.
    ///
    /// # Errors
    /// The run fails with it, although the script has succeeded.
    fn after_run(&self, cx: &Context) -> Result<(), ScriptError> {
        let _ = cx;
        Ok(())
    }

    /// After `before_run`, the script or `after_run` failed. To recover, it says `run_complete` itself.
    ///
    /// # Errors
    /// It is recorded, and changes nothing.
    fn on_error(&self, error: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
        let _ = (error, cx);
        Ok(())
    }

    /// Before the terminal event is written. To end the run otherwise, it says another itself.
    ///
    /// # Errors
    /// It is recorded, and changes nothing.
    fn before_terminal(&self, signal: &TerminalSignal, cx: &Context) -> Result<(), ScriptError> {
        let _ = (signal, cx);
        Ok(())
    }

    /// After it, if anything was acquired; also if the run was cancelled or took too long. Nothing can be said any more.
    ///
    /// # Errors
    /// It is recorded, and changes nothing.
    fn cleanup(&self, cx: &Context) -> Result<(), ScriptError> {
        let _ = cx;
        Ok(())
    }

    /// Which hooks are called. Those left out cost nothing.
    fn hooks(&self) -> Hooks {
        Hooks::ALL
    }
}

/// The executor of scripts in Rust.
pub struct Rust {
    script: Arc<dyn Script>,
    calls: Calls,
}

impl Rust {
    /// Calls the script on the caller's thread. It is trusted to stop when it has to: one that hangs, hangs its caller.
    pub fn inline(script: impl Script) -> Self {
        Self { script: Arc::new(script), calls: Calls::Inline }
    }

    /// Calls the script on a thread of the crew. One that does not stop is left alone, and the run goes on without it.
    pub fn on(crew: &Crew, script: impl Script) -> Self {
        Self { script: Arc::new(script), calls: Calls::Crew(crew.clone()) }
    }
}

impl Executor for Rust {
    fn load(&mut self, _: &Stop) -> Result<Hooks, LoadError> {
        Ok(self.script.hooks())
    }

    fn prepare(&mut self, job: &Arc<Value>, run: &Arc<RunInfo>, stop: &Stop) -> Called<Prepared> {
        let (script, job, run) = (Arc::clone(&self.script), Arc::clone(job), Arc::clone(run));
        let own = stop.clone();
        self.calls.make(stop, &NoPulse, move || script.prepare(&job, &run, &own), drop)
    }

    fn call(&mut self, call: Call, cx: &Context) -> Called<()> {
        let (script, own) = (Arc::clone(&self.script), cx.clone());
        let work = move || match call {
            Call::BeforeRun => script.before_run(&own),
            Call::Run => script.run(&own),
            Call::AfterRun => script.after_run(&own),
            Call::OnError(error) => script.on_error(&error, &own),
            Call::BeforeTerminal(signal) => script.before_terminal(&signal, &own),
            Call::Cleanup => script.cleanup(&own),
        };
        self.calls.make(cx.stop(), &cx.pulse(), work, drop)
    }
}

impl fmt::Debug for Rust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rust").field("calls", &self.calls).finish_non_exhaustive()
    }
}
