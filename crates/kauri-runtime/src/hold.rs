//! The lease under a step, and how it is kept while a handler takes longer than it.
//!
//! A worker takes a hold up when it begins to handle what it has claimed, and lets go of it before it commits. In between the lease is
//! renewed: by the handler, or by whoever keeps the leases of all steps under way ([`Runtime::renew_leases`]). A renewal is a commit
//! that demands the lease's row to the byte, with the message in it: whoever lost the message renews nothing.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use kauri_tree::Durability;
use kauri_wire::{InboxKey, Key, Seq, WorkerId};

use crate::claim::{Claimed, Held};
use crate::error::{Error, Result};
use crate::lease::{Lease, decode_row, encode_row, row_key};
use crate::metrics::Counter;
use crate::policy::{Policy, Renewing};
use crate::runtime::{Runtime, Shared};
use crate::schema::{INBOX, LEASES};
use crate::substrate::{Bytes, Change, Early, Rows, Seen, Signal};
use crate::time::{Mono, Now};

/// What became of a wish to keep a message longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "whoever lost the message can stop: nothing of the step will be committed"]
pub enum Renewed {
    /// Nobody else gets the message for another term of the lease.
    Yes,
    /// Somebody else has the message by now, or it was cancelled. Nothing of this step will be committed.
    Lost,
    /// No message began this block, so there is no lease.
    Unneeded,
}

impl Runtime {
    /// Renews the leases of steps under way whose term is half over, where the worker's [policy](crate::Policy::renewing) says so, and wakes
    /// somebody to take over where one has run out. Answers in what time there is more to do; `None` if there is nothing.
    ///
    /// A [`Pool`](crate::Pool) has a thread that does it. Whoever [ticks](crate::Worker::tick) workers without one calls it from a
    /// thread that no handler keeps busy.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn renew_leases(&self) -> Result<Option<Duration>> {
        let (shared, mut next) = (&*self.shared, None);
        for hold in shared.holds.all() {
            let due = hold.renew_if_due(shared, shared.clock.now())?;
            let over = hold.wake_if_over(shared, shared.clock.now());
            next = [next, due, over].into_iter().flatten().min();
        }
        shared.holds.forget_the_gone();
        Ok(next.map(|next: Mono| next.since(shared.mono())))
    }
}

/// The lease on what one instance of a worker handles at the moment.
pub(crate) struct Hold {
    worker: WorkerId,
    owner: u64,
    /// The message that is handled, when its handler began, and its deadline (`i64::MAX` is none).
    at: AtomicU64,
    began_ms: AtomicU64,
    deadline: AtomicI64,
    /// When the lease runs out if nobody renews it; 0 if there is none.
    ends_ms: AtomicU64,
    /// While something is handled. Who renews has it until that is committed, so that the row a step demands is the one that is there.
    grip: Mutex<Option<Grip>>,
}

struct Grip {
    held: Held,
    term: Duration,
    renewing: Renewing,
    /// The commit that made the lease, if it was early.
    early: Early,
    /// Nothing is left to renew: the message is somebody else's, cancelled, or has been kept long enough.
    is_over: bool,
}

impl Hold {
    pub(crate) fn new(worker: WorkerId, owner: u64) -> Arc<Self> {
        let (at, began_ms, deadline) = (AtomicU64::new(0), AtomicU64::new(0), AtomicI64::new(i64::MAX));
        Arc::new(Self { worker, owner, at, began_ms, deadline, ends_ms: AtomicU64::new(0), grip: Mutex::default() })
    }

    /// The lease is this one now.
    pub(crate) fn note(&self, held: Option<&Held>) {
        // Before `tell`, and seen by whoever falls asleep.
        self.ends_ms.store(held.map_or(0, |held| held.lease.deadline.millis().max(1)), Ordering::SeqCst);
    }

    /// Wakes another instance if the lease has run out: whatever became of its owner, its messages are to be taken over. Answers
    /// when that will be.
    fn wake_if_over(&self, shared: &Shared, now: Now) -> Option<Mono> {
        let ends = self.ends_ms.load(Ordering::Relaxed);
        if ends == 0 || now.mono.millis() < ends {
            return (ends > 0).then_some(Mono::from_millis(ends));
        }
        if self.ends_ms.compare_exchange(ends, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            shared.raise_relay(self.worker);
        }
        None
    }

    /// From now on the lease is renewed as the policy says.
    pub(crate) fn take_up(&self, shared: &Shared, held: Held, policy: &Policy, early: Early) {
        let grip = Grip { held, term: policy.lease, renewing: policy.renewing, early, is_over: false };
        *self.lock() = Some(grip);
        shared.holds.tell();
    }

    /// From now on nobody renews the lease. Answers how it stands.
    pub(crate) fn let_go(&self) -> Option<Held> {
        self.lock().take().map(|grip| grip.held)
    }

    /// This message is handled now.
    pub(crate) fn begin(&self, claimed: &Claimed, now: Mono) {
        // One that is a moment late does no harm: a renewal looks at what is in the store.
        self.at.store(claimed.key.seq.0, Ordering::Relaxed);
        self.began_ms.store(now.millis(), Ordering::Relaxed);
        self.deadline.store(claimed.deadline.map_or(i64::MAX, |deadline| deadline.0), Ordering::Relaxed);
    }

    /// Lets the lease end a term from now. It is a commit of its own, and changes nothing else.
    pub(crate) fn renew(&self, shared: &Shared) -> Result<Renewed> {
        match &mut *self.lock() {
            Some(grip) => self.renew_grip(shared, grip),
            None => Ok(Renewed::Unneeded),
        }
    }

    /// Renews the lease if half of its term is over, and answers when that will be the next time.
    fn renew_if_due(&self, shared: &Shared, now: Now) -> Result<Option<Mono>> {
        let mut guard = match self.grip.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Its handler renews it, or the step is at its end.
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let Some(grip) = &mut *guard else { return Ok(None) };
        grip.is_over |= !self.is_wanted(grip.renewing, now);
        if grip.is_over {
            return Ok(None);
        }
        if now.mono < grip.due() {
            return Ok(Some(grip.due()));
        }
        match self.renew_grip(shared, grip) {
            Ok(Renewed::Yes) => Ok(Some(grip.due())),
            Ok(Renewed::Lost | Renewed::Unneeded) => Ok(None),
            // Others change leases faster than this can look. Soon again.
            Err(Error::Conflict(_)) => Ok(Some(now.mono + grip.term / 8)),
            Err(error) => Err(error),
        }
    }

    /// Whether the message is to be kept any longer.
    fn is_wanted(&self, renewing: Renewing, now: Now) -> bool {
        let began = Mono::from_millis(self.began_ms.load(Ordering::Relaxed));
        let is_young = match renewing {
            Renewing::ByHandler => false,
            Renewing::Always => true,
            Renewing::For(most) => now.mono.since(began) < most,
        };
        is_young && now.wall.0 < self.deadline.load(Ordering::Relaxed)
    }

    fn renew_grip(&self, shared: &Shared, grip: &mut Grip) -> Result<Renewed> {
        // Not before: the lease is in rows that everybody sees only then.
        shared.substrate.wait(&grip.early)?;
        let renewed = shared.commit_until(|rows| self.stage(shared, rows, grip))?;
        match renewed {
            Some((_, held)) => {
                self.note(Some(&held));
                grip.held = held;
                shared.metrics.add(Counter::Renewals, 1);
                Ok(Renewed::Yes)
            }
            None => {
                grip.is_over = true;
                Ok(Renewed::Lost)
            }
        }
    }

    /// The change that renews the lease, if the message is still under it.
    fn stage(&self, shared: &Shared, rows: &dyn Rows, grip: &Grip) -> Result<Option<(Change, Held)>> {
        let key = row_key(self.worker, self.owner);
        let message = InboxKey { worker: self.worker, seq: Seq(self.at.load(Ordering::Relaxed)) };
        // As with a claim: one that a crash of the machine takes away is one that nobody has.
        let mut change = Change { durability: Durability::None, ..Change::default() };
        let deadline = shared.mono() + grip.term;
        #[cfg(feature = "planted")]
        if shared.is_planted(crate::planted::Bug::RenewWithoutToken) {
            let (lease, seqs) = decode_row(&grip.held.row)?;
            let lease = Lease { deadline, ..lease };
            let row = Bytes::from(encode_row(&lease, seqs));
            change.put(LEASES, key, row.clone());
            return Ok(Some((change, Held { lease, row })));
        }
        // What others have taken out of it meanwhile is theirs.
        let Some(present) = rows.get(&LEASES, &key)? else { return Ok(None) };
        let Ok((lease, seqs)) = decode_row(&present) else { return Ok(None) };
        if !seqs.contains(&message.seq) || rows.get(&INBOX, &InboxKey::encode(message))?.is_none() {
            return Ok(None);
        }
        let lease = Lease { deadline, ..lease };
        let row = Bytes::from(encode_row(&lease, seqs));
        change.expect(LEASES, key, Seen::of(Some(&present)));
        change.put(LEASES, key, row.clone());
        Ok(Some((change, Held { lease, row })))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Grip>> {
        self.grip.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grip {
    /// When the lease is renewed: so early that one late renewal does not lose it.
    fn due(&self) -> Mono {
        Mono(self.held.lease.deadline.0.saturating_sub(self.term / 2))
    }
}

/// The holds of all workers, and who renews them.
#[derive(Default)]
pub(crate) struct Holds {
    all: Mutex<Vec<Arc<Hold>>>,
    /// Whoever renews leases sleeps until a step begins.
    is_asleep: AtomicBool,
    keepers: Mutex<Vec<Weak<Signal>>>,
}

impl Holds {
    pub(crate) fn add(&self, hold: &Arc<Hold>) {
        self.forget_the_gone();
        self.lock().push(Arc::clone(hold));
    }

    /// Forgets workers that are gone and have no lease any more.
    fn forget_the_gone(&self) {
        self.lock().retain(|hold| Arc::strong_count(hold) > 1 || hold.ends_ms.load(Ordering::Relaxed) > 0);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Hold>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody renews leases and sleeps on this signal.
    pub(crate) fn keep(&self, signal: &Arc<Signal>) {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.retain(|keeper| keeper.strong_count() > 0);
        keepers.push(Arc::downgrade(signal));
    }

    /// Whoever renews leases wants to sleep until a step begins. Answers whether it may: not if one has begun.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        // Who notes a lease looks at the flag after that: either it sees the flag, or this sees the lease.
        let is_any = self.all().iter().any(|hold| hold.ends_ms.load(Ordering::SeqCst) > 0);
        if is_any {
            self.is_asleep.store(false, Ordering::SeqCst);
        }
        !is_any
    }

    /// A step has begun.
    fn tell(&self) {
        if self.is_asleep.load(Ordering::SeqCst) && self.is_asleep.swap(false, Ordering::SeqCst) {
            let keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
            keepers.iter().filter_map(Weak::upgrade).for_each(|keeper| keeper.raise());
        }
    }

    fn all(&self) -> Vec<Arc<Hold>> {
        self.lock().clone()
    }
}

impl fmt::Debug for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holds").finish_non_exhaustive()
    }
}
