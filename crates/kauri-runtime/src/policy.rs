//! What can be tuned, and what it is set to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kauri_tree::Durability;
use kauri_wire::{Flags, MessageRef};

/// When a commit of the runtime returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Syncing {
    /// After its sync, always: what was acknowledged survives a crash of the machine.
    #[default]
    Always,
    /// After its sync if a message in it has the flag `durable`; else when the operating system has it, which survives a crash of
    /// the program and may not survive one of the machine.
    Flagged,
}

/// Who renews the lease on a message whose handler takes longer than it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Renewing {
    /// The worker's [pool](crate::Pool), as long as the handler runs; not after the message's deadline, nor once it was cancelled.
    #[default]
    Always,
    /// As `Always`, and no longer than so long for one message: then others may take it over, because the handler hangs.
    For(Duration),
    /// The handler itself ([`Atomic::renew`](crate::Atomic::renew)), or nobody.
    ByHandler,
}

/// At most so many messages with the same key are worked on at a time.
#[derive(Clone)]
pub struct Concurrency {
    /// The key of a message; messages without one are not limited.
    pub key: Arc<KeyOf>,
    /// How many worker instances may work on messages of one key.
    pub limit: usize,
}

/// What a message's concurrency key is.
pub type KeyOf = dyn Fn(MessageRef<'_>) -> Option<Vec<u8>> + Send + Sync;

impl fmt::Debug for Concurrency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concurrency").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// At most so many messages are begun in a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How many.
    pub messages: u32,
    /// In which time. After a pause as many may be begun at once.
    pub per: Duration,
}

/// The knobs of a worker. Every one has a default; set the ones you care about.
///
/// ```
/// use kauri_runtime::Policy;
///
/// let policy = Policy { retry_budget: 10, ..Policy::default() };
/// assert_eq!(policy.batch_messages_max, 64);
/// ```
#[derive(Clone, Debug)]
pub struct Policy {
    /// How long a claim keeps others away (the contract's `lease_ttl_ms`): 1 s. It is [renewed](Self::renewing) for a handler that
    /// takes longer.
    pub lease: Duration,
    /// Who renews leases of handlers that take longer: the pool, always.
    pub renewing: Renewing,
    /// How many retryable failures bury a message (`retry_budget_max`): 4, so the fourth does.
    pub retry_budget: u32,
    /// How many failures that are not retryable bury a message: 2.
    pub failure_budget: u32,
    /// How many claims that came to no end bury a message, such as one that takes the process down: 8.
    pub delivery_budget: u32,
    /// How often a commit that meets a conflict is tried with another pass (`requeue_max_attempts`): 4. A step that met one
    /// in all of them has failed, retryably.
    pub passes_max: u32,
    /// The pause after the first conflict: 250 us. It doubles with each further one, and a part of it is chance.
    pub pass_pause: Duration,
    /// The longest pause after a conflict: 10 ms.
    pub pass_pause_max: Duration,
    /// How long a message waits after a failure before it is in the inbox again: not at all. It doubles with each failure,
    /// and a part of it is chance.
    pub retry_pause: Duration,
    /// The longest wait after a failure: 5 min.
    pub retry_pause_max: Duration,
    /// How many messages a tick handles (`max_batch`), and how many steps share a commit: 64.
    pub batch_messages_max: usize,
    /// How many bytes of frames are claimed at once: 4 MiB. One message is always claimed.
    pub batch_bytes_max: usize,
    /// When a batch has run for so long, it is committed without the rest: 10 ms.
    pub batch_time_max: Duration,
    /// How many messages must be waiting for a worker to begin with them while the batch before is on its way to the disk: 16. Handlers then
    /// see what that batch wrote before it is durable, as each sees what others of its own batch wrote; nobody else does, and nothing is
    /// told of it before. With `usize::MAX`, a batch begins when the one before is durable.
    pub early_messages_min: usize,
    /// The longest sleep of an idle worker (`max_idle_sleep_ms`): none, because a watch or a timer wakes it.
    pub idle_max: Option<Duration>,
    /// How long a handled message id is remembered: a day.
    pub dedupe_for: Duration,
    /// When commits return: after their sync, always.
    pub sync: Syncing,
    /// A limit on messages of the same key that are worked on at a time: none.
    pub concurrency: Option<Concurrency>,
    /// A limit on messages begun in a time: none.
    pub rate: Option<Rate>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(1),
            renewing: Renewing::Always,
            retry_budget: 4,
            failure_budget: 2,
            delivery_budget: 8,
            passes_max: 4,
            pass_pause: Duration::from_micros(250),
            pass_pause_max: Duration::from_millis(10),
            retry_pause: Duration::ZERO,
            retry_pause_max: Duration::from_secs(300),
            batch_messages_max: 64,
            batch_bytes_max: 4 << 20,
            batch_time_max: Duration::from_millis(10),
            early_messages_min: 16,
            idle_max: None,
            dedupe_for: Duration::from_hours(24),
            sync: Syncing::Always,
            concurrency: None,
            rate: None,
        }
    }
}

impl Policy {
    /// The same policy with nothing in it that would stop all work: budgets, passes and batches of zero become one, and a lease
    /// of nothing the default.
    #[must_use]
    pub fn sane(mut self) -> Self {
        self.retry_budget = self.retry_budget.max(1);
        self.failure_budget = self.failure_budget.max(1);
        self.delivery_budget = self.delivery_budget.max(1);
        self.passes_max = self.passes_max.max(1);
        self.batch_messages_max = self.batch_messages_max.max(1);
        if self.lease.is_zero() {
            self.lease = Self::default().lease;
        }
        self
    }

    /// How durable a commit is whose messages have these flags.
    pub(crate) fn durability(&self, flags: Flags) -> Durability {
        match self.sync {
            Syncing::Always => Durability::Sync,
            Syncing::Flagged if flags.contains(Flags::DURABLE) => Durability::Sync,
            Syncing::Flagged => Durability::None,
        }
    }

    /// The pause before another pass, of which a part is chance.
    pub(crate) fn pause_after(&self, pass: u32) -> Duration {
        doubled(self.pass_pause, pass.saturating_sub(1), self.pass_pause_max)
    }

    /// The same for one who fails after so many conflicts: after each four it grows beyond the longest pause, so that those who are in each
    /// other's way come past each other, however many they are. It leaves time to renew the lease.
    pub(crate) fn patience_after(&self, pass: u32) -> Duration {
        let grown = self.pass_pause_max.saturating_mul(1 << (pass / 4).min(16));
        self.pause_after(pass).max(doubled(self.pass_pause, pass.saturating_sub(1), grown.min(self.lease / 4)))
    }

    /// The wait after so many failures.
    pub(crate) fn wait_after(&self, failures: u32) -> Duration {
        doubled(self.retry_pause, failures.saturating_sub(1), self.retry_pause_max)
    }
}

fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let policy = Policy::default();
        let micros: Vec<u128> = (1..=8).map(|pass| policy.pause_after(pass).as_micros()).collect();
        assert_eq!(micros, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(policy.pause_after(u32::MAX), policy.pass_pause_max);
        let millis: Vec<u128> = [1, 15, 16, 40, 64, 99].map(|pass| policy.patience_after(pass).as_millis()).to_vec();
        assert_eq!(millis, [0, 80, 160, 250, 250, 250], "a quarter of the lease at most");
        assert_eq!(policy.wait_after(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn policy_of_zeros_becomes_one_that_works() {
        let zero = Policy {
            retry_budget: 0,
            passes_max: 0,
            batch_messages_max: 0,
            lease: Duration::ZERO,
            ..Policy::default()
        };
        let sane = zero.sane();
        assert_eq!((sane.retry_budget, sane.passes_max, sane.batch_messages_max, sane.lease.as_secs()), (1, 1, 1, 1));
    }
}
