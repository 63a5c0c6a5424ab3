//! Scripts: user code of a job, the hooks around it, and what executes them.
//!
//! A [`Script`] is written in Rust; others stand behind an [`Executor`]. [`execute`] takes a run through its phases in the order of the
//! [`Automaton`], gives every call a deadline, and ends with a [`Verdict`] to be sealed: an outcome and the run's terminal event.
//!
//! ```
//! # use std::sync::Arc;
//! use kauri_runtime::run::{MemorySink, Outcome};
//! use kauri_runtime::run::script::{Context, Plan, Rust, Script, ScriptError, execute};
//! # use kauri_runtime::testing::VirtualClock;
//! use kauri_wire::pack::MapBuf;
//! # use kauri_wire::{RunId, Timestamp};
//!
//! struct Count;
//!
//! impl Script for Count {
//!     fn run(&self, cx: &Context) -> Result<(), ScriptError> {
//!         let mut data = MapBuf::new();
//!         data.put("letters", cx.job().as_str().unwrap_or("").len() as u64);
//!         Ok(cx.emit().item("count", data.view())?)
//!     }
//!
//!     fn on_error(&self, error: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
//!         Ok(cx.emit().log_warn(&error.message)?)
//!     }
//! }
//!
//! # let (run_id, clock) = (RunId::from_parts(Timestamp(7), [7; 10]), Arc::new(VirtualClock::default()));
//! let sink = MemorySink::default();
//! let plan = Plan::new(run_id, "twelve apples".into(), clock);
//! let report = execute(plan, &mut Rust::inline(Count), Box::new(sink.clone()), |verdict| {
//!     assert_eq!(verdict.outcome, Outcome::Success { skipped: false });
//!     Ok(()) // here the store appends the terminal event and seals the run
//! });
//! assert!(report.sealed.is_ok() && report.swallowed.is_empty());
//! assert_eq!(sink.events().len(), 1);
//! ```

#[cfg(unix)]
mod answers;
mod asked;
mod automaton;
mod bridge;
mod calls;
mod context;
mod drive;
mod emit;
mod error;
mod executor;
#[cfg(unix)]
mod framed;
mod hook;
#[cfg(unix)]
mod leash;
#[cfg(unix)]
mod lines;
mod plan;
#[cfg(unix)]
mod process;
mod report;
mod resource;
mod rust;
mod steps;
mod stop;

pub use automaton::{Automaton, Decision, Ended, Facts, Health, Phase, Terminal};
pub use bridge::{Bridge, BridgeError};
pub use calls::Crew;
pub use context::{ArtifactEmitter, Context};
pub use drive::execute;
pub(crate) use emit::Watch;
pub use emit::{EmitError, Emitter};
pub use error::ScriptError;
pub use executor::{Call, Called, Executor, Prepared, TerminalSignal};
pub use hook::{Hook, Hooks, LoadError};
pub use plan::{Deadlines, Plan, RunInfo};
#[cfg(unix)]
pub use process::{Groups, NoGroups, Process, Protocol};
pub use report::{Report, Swallowed, Verdict};
pub use resource::{Held, Resource};
pub use rust::{Rust, Script};
pub use steps::{ActionEnd, ActionError, BeganAction, Steps, StepsError};
pub use stop::{Cancel, Cause, Stop};
