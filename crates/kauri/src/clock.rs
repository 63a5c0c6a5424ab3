//! The clocks of the system, for a runtime.
#![expect(clippy::disallowed_methods, reason = "where the time comes in")]

use std::time::{Duration, Instant, SystemTime};

use kauri_runtime::{Clock, Mono, Now};
use kauri_wire::Timestamp;

/// The clocks of the system.
///
/// ```
/// use std::sync::Arc;
///
/// use kauri::SystemClock;
/// use kauri::runtime::substrate::TreeSubstrate;
/// use kauri::runtime::{Atomic, Pool, Runtime};
/// use kauri::tree::Store;
/// use kauri::wire::{Message, MessageId, MessageRef, WorkerId};
///
/// let store = Store::in_memory()?;
/// let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(SystemClock::new())).start()?;
/// let pool = Pool::start(vec![runtime.worker(WorkerId(7), |_: &mut Atomic<'_>, _: MessageRef<'_>| Ok(()))])?;
/// runtime.send(&Message::command(WorkerId(7), MessageId::new("order-1")?, "12 apples"))?;
/// pool.stop()?;
/// # Ok::<(), kauri::runtime::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    began: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { began: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let now = SystemTime::now();
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        // A clock that was never set may stand before the epoch.
        let wall = now.duration_since(SystemTime::UNIX_EPOCH).map_or_else(|before| -millis(before.duration()), millis);
        Now { mono: Mono(self.began.elapsed()), wall: Timestamp(wall) }
    }

    fn sleep(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}
