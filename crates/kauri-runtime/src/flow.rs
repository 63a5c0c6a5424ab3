//! Limits on what is worked on at a time, and on what is begun in a time.
//!
//! They are kept in memory: a store is open in one process, and after a restart nothing is worked on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kauri_wire::{InboxKey, Seq, WorkerId};

use crate::policy::Rate;
use crate::substrate::Signal;
use crate::time::Mono;

#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// How many instances of each worker there are.
    instances: BTreeMap<WorkerId, usize>,
    /// Which messages of shared inboxes an instance has, or is about to claim. It spares them work that only one of them can
    /// commit; that only one does is the commit's business.
    reserved: BTreeMap<InboxKey, u64>,
    /// Which instances of a worker work on messages of a key.
    keys: BTreeMap<(WorkerId, Vec<u8>), BTreeSet<u64>>,
    buckets: BTreeMap<WorkerId, Bucket>,
    /// Who wants to know when a key is free.
    waiting: Vec<Weak<Signal>>,
}

/// How much time was saved up, to be spent on messages.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    saved: Duration,
    at: Mono,
}

impl Flow {
    /// Whether this instance may work on messages of this key; if so, it does from now on.
    pub(crate) fn admit(&mut self, worker: WorkerId, owner: u64, key: &[u8], limit: usize) -> bool {
        let owners = self.keys.entry((worker, key.to_vec())).or_default();
        let admitted = owners.contains(&owner) || owners.len() < limit;
        if admitted {
            owners.insert(owner);
        }
        admitted
    }

    /// There is one more instance of a worker.
    pub(crate) fn join(&mut self, worker: WorkerId) {
        *self.instances.entry(worker).or_default() += 1;
    }

    /// This instance of a worker is gone.
    pub(crate) fn part(&mut self, worker: WorkerId, owner: u64) {
        if let Some(count) = self.instances.get_mut(&worker) {
            *count = count.saturating_sub(1);
        }
        self.reserved.retain(|_, by| *by != owner);
        self.keys.retain(|_, owners| {
            owners.remove(&owner);
            !owners.is_empty()
        });
        self.wake();
    }

    /// How many instances of a worker there are.
    pub(crate) fn instances(&self, worker: WorkerId) -> usize {
        self.instances.get(&worker).copied().unwrap_or(0)
    }

    /// Reserves a message for this instance, so that no other claims it. One whose lease has run out is taken from whoever had it.
    ///
    /// # Errors
    /// If another instance has it: the last of those that follow it without a gap and that others have as well.
    pub(crate) fn reserve(&mut self, key: InboxKey, owner: u64, is_takeover: bool) -> Result<(), Seq> {
        let by = self.reserved.entry(key).or_insert(owner);
        if is_takeover {
            *by = owner;
        }
        if *by == owner { Ok(()) } else { Err(self.last_of_others(key, owner)) }
    }

    fn last_of_others(&self, key: InboxKey, owner: u64) -> Seq {
        let mut last = key.seq;
        for (other, by) in self.reserved.range((Bound::Excluded(key), Bound::Unbounded)) {
            if other.worker != key.worker || *by == owner || last.0.checked_add(1) != Some(other.seq.0) {
                break;
            }
            last = other.seq;
        }
        last
    }

    /// This instance works on a message no longer, and, if one is given, on messages of this concurrency key.
    pub(crate) fn leave(&mut self, message: InboxKey, owner: u64, key: Option<&[u8]>) {
        self.give_back([message], owner);
        let Some(key) = key else { return };
        let place = (message.worker, key.to_vec());
        if let Some(owners) = self.keys.get_mut(&place) {
            owners.remove(&owner);
            if owners.is_empty() {
                self.keys.remove(&place);
            }
        }
        self.wake();
    }

    /// This instance works on these messages no longer.
    pub(crate) fn give_back(&mut self, messages: impl IntoIterator<Item = InboxKey>, owner: u64) {
        for message in messages {
            if self.reserved.get(&message) == Some(&owner) {
                self.reserved.remove(&message);
            }
        }
    }

    fn wake(&mut self) {
        for signal in self.waiting.drain(..).filter_map(|signal| signal.upgrade()) {
            signal.raise();
        }
    }

    /// Raises the signal when a key becomes free.
    pub(crate) fn wait(&mut self, signal: &Arc<Signal>) {
        self.waiting.push(Arc::downgrade(signal));
    }

    /// How many messages may be begun now; if none, when one may.
    pub(crate) fn allowance(&mut self, worker: WorkerId, rate: Rate, now: Mono) -> Result<usize, Mono> {
        let each = price(rate);
        let bucket = self.buckets.entry(worker).or_insert(Bucket { saved: rate.per, at: now });
        bucket.saved = bucket.saved.saturating_add(now.since(bucket.at)).min(rate.per.max(each));
        bucket.at = now;
        match usize::try_from(bucket.saved.as_nanos() / each.as_nanos().max(1)).unwrap_or(usize::MAX) {
            0 => Err(now + (each - bucket.saved)),
            count => Ok(count),
        }
    }

    /// So many messages are begun.
    pub(crate) fn spend(&mut self, worker: WorkerId, rate: Rate, count: usize) {
        if let Some(bucket) = self.buckets.get_mut(&worker) {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            bucket.saved = bucket.saved.saturating_sub(price(rate).saturating_mul(count));
        }
    }

    /// A message that was begun has not been after all.
    pub(crate) fn unspend(&mut self, worker: WorkerId, rate: Rate) {
        if let Some(bucket) = self.buckets.get_mut(&worker) {
            bucket.saved = bucket.saved.saturating_add(price(rate));
        }
    }
}

/// The time that one message costs.
fn price(rate: Rate) -> Duration {
    (rate.per / rate.messages.max(1)).max(Duration::from_nanos(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId(7);
    const MESSAGE: InboxKey = InboxKey { worker: WORKER, seq: Seq(1) };

    #[test]
    fn key_is_shared_by_no_more_instances_than_its_limit() {
        let mut flow = Flow::default();
        assert!(flow.admit(WORKER, 1, b"ann", 2) && flow.admit(WORKER, 2, b"ann", 2));
        assert!(!flow.admit(WORKER, 3, b"ann", 2));
        assert!(flow.admit(WORKER, 1, b"ann", 2), "it works on them already");
        assert!(flow.admit(WORKER, 3, b"bob", 2), "another key");
        let signal = Arc::new(Signal::default());
        flow.wait(&signal);
        flow.leave(MESSAGE, 1, Some(b"ann"));
        assert_eq!(signal.count(), 1);
        assert!(flow.admit(WORKER, 3, b"ann", 2));
    }

    #[test]
    fn message_is_reserved_by_one_instance_until_that_leaves_it_or_is_gone() {
        let mut flow = Flow::default();
        let reserve = |flow: &mut Flow, owner, is_takeover| flow.reserve(MESSAGE, owner, is_takeover).is_ok();
        assert!(reserve(&mut flow, 1, false) && reserve(&mut flow, 1, false) && !reserve(&mut flow, 2, false));
        flow.leave(MESSAGE, 2, None);
        assert!(!reserve(&mut flow, 2, false), "it was not its own to leave");
        flow.leave(MESSAGE, 1, None);
        assert!(reserve(&mut flow, 2, false));
        flow.part(WORKER, 2);
        assert!(reserve(&mut flow, 1, false));
        assert!(reserve(&mut flow, 2, true) && !reserve(&mut flow, 1, false), "taken over");
    }

    #[test]
    fn who_finds_a_message_reserved_learns_how_far_that_goes() {
        let mut flow = Flow::default();
        let at = |seq| InboxKey { worker: WORKER, seq: Seq(seq) };
        for (seq, owner) in [(1, 1), (2, 1), (3, 2), (4, 3), (6, 1)] {
            assert_eq!(flow.reserve(at(seq), owner, false), Ok(()));
        }
        assert_eq!(flow.reserve(at(1), 9, false), Err(Seq(4)), "the next one is free");
        assert_eq!(flow.reserve(at(1), 3, false), Err(Seq(3)), "the next one is its own");
        assert_eq!(flow.reserve(at(6), 9, false), Err(Seq(6)));
        let other = InboxKey { worker: WorkerId(8), seq: Seq(7) };
        assert_eq!(flow.reserve(other, 1, false), Ok(()));
        assert_eq!(flow.reserve(at(6), 9, false), Err(Seq(6)), "another worker's");
    }

    #[test]
    fn rate_allows_a_burst_and_then_one_after_the_other() {
        let rate = Rate { messages: 10, per: Duration::from_secs(1) };
        let mut flow = Flow::default();
        assert_eq!(flow.allowance(WORKER, rate, Mono::from_millis(5)), Ok(10));
        flow.spend(WORKER, rate, 10);
        assert_eq!(flow.allowance(WORKER, rate, Mono::from_millis(5)), Err(Mono::from_millis(105)));
        assert_eq!(flow.allowance(WORKER, rate, Mono::from_millis(255)), Ok(2));
        flow.spend(WORKER, rate, 1);
        assert_eq!(flow.allowance(WORKER, rate, Mono::from_millis(255)), Ok(1));
        assert_eq!(flow.allowance(WORKER, rate, Mono::from_millis(60_000)), Ok(10));
    }
}
