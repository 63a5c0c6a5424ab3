//! Why and when a call has to end: its deadline, and the cancelling of its run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::substrate::Signal;
use crate::time::{Clock, Mono};

/// Why a call is cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Its time is over.
    Deadline,
    /// Somebody cancelled the run.
    Cancelled,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "its time was over",
            Self::Cancelled => "the run was cancelled",
        })
    }
}

impl std::error::Error for Cause {}

/// Cancels a run, from anywhere. Clones cancel the same run.
///
/// ```
/// use kauri_runtime::run::script::Cancel;
///
/// let cancel = Cancel::default();
/// cancel.clone().cancel();
/// assert!(cancel.is_cancelled());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_cancelled: AtomicBool,
    signal: Signal,
}

impl Cancel {
    /// Cancels the run: the call that is going on is told to stop, and none but `cleanup` follows. A run whose end is decided stays as it is.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::Acquire)
    }

    /// Makes whoever waits for the run's calls look at the clock again: after a clock was moved by hand.
    pub fn wake(&self) {
        self.0.signal.raise();
    }

    pub(crate) fn signal(&self) -> &Signal {
        &self.0.signal
    }
}

/// What a call asks whether it has to stop. Clones ask for the same call.
///
/// ```
/// use kauri_runtime::run::script::{Context, ScriptError};
///
/// fn script(cx: &Context) -> Result<(), ScriptError> {
///     for page in 0..1000 {
///         cx.stop().check()?; // the deadline has passed, or somebody cancelled
///         cx.emit().log_info(&format!("page {page}"))?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Stop {
    clock: Arc<dyn Clock>,
    deadline: Mono,
    grace: Duration,
    cancel: Cancel,
    /// Calls that follow the end of a run cannot be cancelled.
    can_cancel: bool,
}

impl Stop {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        deadline: Mono,
        grace: Duration,
        cancel: Cancel,
        can_cancel: bool,
    ) -> Self {
        Self { clock, deadline, grace, cancel, can_cancel }
    }

    /// Why the call has to stop, if it has to.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        if self.can_cancel && self.cancel.is_cancelled() {
            return Some(Cause::Cancelled);
        }
        (self.deadline <= self.clock.now().mono).then_some(Cause::Deadline)
    }

    /// Goes on unless the call has to stop: `stop.check()?` in a loop is all that a script needs.
    ///
    /// # Errors
    /// Why it has to.
    pub fn check(&self) -> Result<(), Cause> {
        self.cause().map_or(Ok(()), Err)
    }

    /// The moment at which the call's time is over.
    #[must_use]
    pub const fn deadline(&self) -> Mono {
        self.deadline
    }

    /// Lets time pass, no longer than until the deadline, or until the run is cancelled.
    ///
    /// # Errors
    /// Why the call has to stop, now or at the end of the pause.
    pub fn sleep(&self, pause: Duration) -> Result<(), Cause> {
        let until = self.clock.now().mono + pause;
        loop {
            // Asked before the cause is, so that no cancelling is slept through.
            let seen = self.signal().count();
            self.check()?;
            let now = self.clock.now().mono;
            if until <= now {
                return Ok(());
            }
            self.clock.wait(self.signal(), seen, until.min(self.deadline).since(now));
        }
    }

    /// How long a call that has to stop is waited for before it is left alone, or ended by force.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Raised when it is time to ask again.
    pub(crate) fn signal(&self) -> &Signal {
        self.cancel.signal()
    }

    pub(crate) fn waker(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").field("deadline", &self.deadline).field("cause", &self.cause()).finish_non_exhaustive()
    }
}
