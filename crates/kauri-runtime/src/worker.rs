//! A worker: the owner of an inbox, one tick at a time. Threads are another file's business.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kauri_tree::Durability;
use kauri_wire::{Flags, InboxKey, MessageRef, WorkerId};

use crate::atomic::Atomic;
use crate::claim::{self, Claimed, Found, Held, Leases, Search};
use crate::dead_letter::Reason;
use crate::error::{Conflict, Error, Result};
use crate::handler::Handler;
use crate::hold::Hold;
use crate::lease::{Lease, encode_row, row_bytes, row_key};
use crate::metrics::Counter;
use crate::observe::{Observation, StepEnd};
use crate::policy::Policy;
use crate::run::{Drive, Underway};
use crate::runtime::Runtime;
use crate::schema::{INBOX, LEASES};
use crate::step::{self, Disposal, Outcome, Pass};
use crate::substrate::{Bytes, Change, Early, Rows, Seen, Signal, Verdict, Writes};
use crate::time::{Mono, Now};

/// What a tick came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tick {
    /// Messages that are done with: handled, requeued, buried or lost to somebody else.
    pub handled: usize,
    /// Timers and schedule slots that came due.
    pub fired: usize,
    /// Why there was not more.
    pub rest: Rest,
}

impl Tick {
    /// Whether nothing was done.
    #[must_use]
    pub const fn is_idle(&self) -> bool {
        self.handled == 0 && self.fired == 0
    }
}

/// Why a tick did not do more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rest {
    /// There may be more: tick again.
    #[default]
    More,
    /// The inbox has nothing that can be claimed.
    Idle,
    /// Others were quicker: tick again, after a moment.
    Busy,
    /// The worker was told to stop.
    Stopped,
}

/// The owner of an inbox. Several instances may share one inbox, each on a thread of its own.
///
/// Made by [`Runtime::worker`]; driven by [`tick`](Self::tick) or by a [`Pool`](crate::Pool).
pub struct Worker {
    pub(crate) runtime: Runtime,
    pub(crate) id: WorkerId,
    /// This instance, in leases.
    pub(crate) owner: u64,
    pub(crate) work: Work,
    pub(crate) policy: Policy,
    held: Vec<Claimed>,
    /// The lease on what is held; while it is handled, the hold has it too.
    lease: Option<Held>,
    hold: Arc<Hold>,
    /// The batch before, if it was committed and may not be durable yet: then something is held, and handled on what that batch wrote.
    early: Option<Batch>,
    /// What it has handed in of runs and not waited for.
    pub(crate) underway: Option<Underway>,
    /// A message whose run can never be written as begun, and why.
    pub(crate) refused: Option<(InboxKey, String)>,
    /// A commit of what is held was refused for something in it: each is handled alone, so that no other suffers for it.
    is_one_by_one: bool,
    /// How many conflicts it has met lately, less the commits since, whatever the messages: who is in others' way leaves them more and more
    /// time, so that a message is not buried because many want the same row.
    streak: u32,
    /// Messages that are done with, durably, and were not reported yet.
    done: usize,
    /// What wakes one of the instances that share the inbox, if this is one of them.
    relay: Option<Arc<Signal>>,
    /// Other instances have the same inbox.
    is_shared: bool,
    signal: Arc<Signal>,
    stop: Arc<AtomicBool>,
    pub(crate) wake_at: Option<Mono>,
    next_sweep: Mono,
    last_error: Option<Error>,
}

/// What is done with messages.
pub(crate) enum Work {
    /// Each is handled in a block.
    Handle(Box<dyn Handler>),
    /// Each drives a run.
    Drive(Box<dyn Drive>),
}

/// Why a step has failed that met a conflict in every pass.
const ONLY_CONFLICTS: &str = "a conflict in every pass";

/// How many conflicts a worker remembers: pauses do not grow any more after so many.
const STREAK_MAX: u32 = 32;

/// How often ids that expired are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

impl Runtime {
    /// A worker for this inbox, with the runtime's policy.
    pub fn worker(&self, id: WorkerId, handler: impl Handler + 'static) -> Worker {
        self.worker_with(id, self.shared.policy.clone(), handler)
    }

    /// A worker for this inbox, with a policy of its own.
    pub fn worker_with(&self, id: WorkerId, policy: Policy, handler: impl Handler + 'static) -> Worker {
        self.worker_doing(id, policy, Work::Handle(Box::new(handler)))
    }

    pub(crate) fn worker_doing(&self, id: WorkerId, policy: Policy, work: Work) -> Worker {
        self.shared.flow().join(id);
        let owner = self.shared.next_owner();
        let hold = Hold::new(id, owner);
        self.shared.holds.add(&hold);
        Worker {
            runtime: self.clone(),
            id,
            owner,
            work,
            policy: policy.sane(),
            held: Vec::new(),
            lease: None,
            hold,
            early: None,
            underway: None,
            refused: None,
            is_one_by_one: false,
            streak: 0,
            done: 0,
            relay: None,
            is_shared: false,
            signal: Arc::default(),
            stop: Arc::default(),
            wake_at: None,
            next_sweep: Mono::default(),
            last_error: None,
        }
    }
}

impl Worker {
    /// Whose inbox it owns.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        self.id
    }

    /// The runtime it belongs to.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Another policy from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy.sane();
    }

    /// Raised when there may be something to do.
    #[must_use]
    pub fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }

    /// Uses this signal instead of its own, so that one thread can wait for several workers.
    pub fn set_signal(&mut self, signal: Arc<Signal>) {
        self.signal = signal;
    }

    /// Tells it to stop before its next step.
    pub fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.signal.raise();
    }

    /// What stopped it, if something did.
    #[must_use]
    pub fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire) || self.runtime.shared.stopped.load(Ordering::Acquire)
    }

    /// Does what there is to do, up to [`batch_messages_max`](Policy::batch_messages_max) messages and timers: handles the
    /// inbox, then moves due timers to the inboxes of their workers, with what is left of that number.
    ///
    /// Losing a race is no error: the answer says [`Rest::Busy`].
    ///
    /// # Errors
    /// If the substrate fails or a row of the runtime's is damaged. What is in the store stays.
    pub fn tick(&mut self) -> Result<Tick> {
        self.tick_with(|worker| worker.try_tick(Pace::Settled))
    }

    /// As [`tick`](Self::tick), but the last batch may not be durable when it returns, if there is more to do: it is reported by the tick in which
    /// it is known to be.
    pub(crate) fn tick_early(&mut self) -> Result<Tick> {
        self.tick_with(|worker| worker.try_tick(Pace::Early))
    }

    /// As [`tick`](Self::tick), but the end of a run and the begin of the next may not be durable when it returns, if there is more to do: the
    /// next tick waits for them.
    pub(crate) fn tick_in_turns(&mut self) -> Result<Tick> {
        self.tick_with(|worker| worker.try_tick(Pace::InTurns))
    }

    /// A tick where somebody else looks after timers.
    pub(crate) fn tick_inbox(&mut self, pace: Pace) -> Result<Tick> {
        self.tick_with(|worker| {
            let tick = worker.handle_inbox(pace)?;
            worker.sweep()?;
            Ok(tick)
        })
    }

    /// Lets others be quicker.
    pub(crate) fn pause(&self) {
        self.runtime.shared.pause(&self.policy, 1);
    }

    fn tick_with(&mut self, tick: impl FnOnce(&mut Self) -> Result<Tick>) -> Result<Tick> {
        if self.is_stopping() {
            return Ok(Tick { rest: Rest::Stopped, ..Tick::default() });
        }
        let result = tick(self);
        self.runtime.shared.tell_counts();
        match result {
            Ok(tick) => Ok(tick),
            Err(Error::Conflict(_)) => {
                self.runtime.shared.metrics.add(Counter::Contended, 1);
                Ok(Tick { rest: Rest::Busy, ..Tick::default() })
            }
            Err(error) => {
                self.runtime.shared.observe(&Observation::WorkerError { worker: self.id, error: &error });
                Err(error)
            }
        }
    }

    fn try_tick(&mut self, pace: Pace) -> Result<Tick> {
        let most = self.policy.batch_messages_max;
        let mut tick = self.handle_inbox(pace)?;
        let left = most.saturating_sub(tick.handled);
        if left > 0 {
            tick.fired = self.runtime.fire_due(left)?;
            if tick.fired > 0 {
                tick.rest = Rest::More;
            }
        }
        self.sweep()?;
        Ok(tick)
    }

    /// Forgets ids that have expired, now and then.
    fn sweep(&mut self) -> Result<()> {
        let now = self.runtime.shared.mono();
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_EVERY;
            self.runtime.sweep_dedupe(crate::sweep::SWEEP_ROWS_MAX)?;
        }
        Ok(())
    }

    /// Ticks until there is nothing left to do now. Answers how many messages were handled.
    ///
    /// # Errors
    /// As for [`tick`](Self::tick).
    pub fn drain(&mut self) -> Result<usize> {
        let mut handled = 0;
        loop {
            let tick = self.tick_early()?;
            handled += tick.handled;
            match tick.rest {
                Rest::Stopped => {
                    self.settle()?;
                    return Ok(handled + std::mem::take(&mut self.done));
                }
                Rest::Idle if tick.is_idle() => return Ok(handled),
                Rest::Busy => self.pause(),
                Rest::Idle | Rest::More => {}
            }
        }
    }

    /// How long it may sleep if nothing wakes it: until the next timer or schedule slot is due, a lease of somebody else runs out or
    /// its rate allows more, and no longer than [`idle_max`](Policy::idle_max). `None` is until it is woken.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn idle_for(&self) -> Result<Option<Duration>> {
        let now = self.runtime.now();
        let timers = self.runtime.next_due()?.map(|due| crate::timer::until(now.wall, due));
        let claims = self.wake_at.map(|wake_at| wake_at.since(now.mono));
        Ok([timers, claims, self.policy.idle_max].into_iter().flatten().min())
    }

    /// As [`idle_for`](Self::idle_for), where somebody else looks after timers.
    pub(crate) fn idle_without_timers(&self) -> Option<Duration> {
        let now = self.runtime.shared.mono();
        let claims = self.wake_at.map(|wake_at| wake_at.since(now));
        [claims, self.policy.idle_max].into_iter().flatten().min()
    }

    /// Gives back what it has claimed and not begun, so that others need not wait.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn release(&mut self) -> Result<()> {
        self.settle()?;
        let held = std::mem::take(&mut self.held);
        held.iter().for_each(|claimed| self.leave(claimed));
        if self.lease.is_none() {
            return Ok(());
        }
        let (id, owner) = (self.id, self.owner);
        self.runtime.shared.commit_until(|rows| {
            // What others have taken out of it is theirs.
            let Some((held, _)) = Leases::read(rows, id)?.held_by(owner).map(|(held, seqs)| (held, seqs.len())) else {
                return Ok(None);
            };
            let mut change = Change { durability: Durability::None, ..Change::default() };
            change.expect(LEASES, row_key(id, owner), Seen::of(Some(&held.row)));
            change.remove(LEASES, row_key(id, owner));
            Ok(Some((change, ())))
        })?;
        // Not before: a release that failed is made good with the next tick.
        self.lease = None;
        self.hold.note(None);
        self.pass_on();
        Ok(())
    }

    /// There may be something to do, and it is somebody else's turn.
    pub(crate) fn pass_on(&self) {
        if let Some(relay) = &self.relay {
            relay.look();
        }
        self.runtime.shared.raise_relay(self.id);
    }

    /// Waits for messages on its signal from now on. Of instances that handle messages one is woken, and wakes another if there is
    /// more than it takes; of those that drive runs all are, because how long a run is driven nobody knows.
    pub(crate) fn share_inbox(&mut self) {
        match &self.work {
            Work::Handle(_) => {
                let relay = self.runtime.shared.inbox_relay(self.id);
                relay.join(&self.signal);
                self.relay = Some(relay);
            }
            Work::Drive(_) => self.runtime.watch_inbox(self.id, &self.signal),
        }
    }

    fn handle_inbox(&mut self, pace: Pace) -> Result<Tick> {
        if let Some(relay) = &self.relay {
            relay.look();
        }
        self.is_shared |= self.runtime.shared.flow().instances(self.id) > 1;
        if matches!(self.work, Work::Drive(_)) {
            return self.drive_inbox(pace);
        }
        if self.held.is_empty() {
            self.release()?;
            match self.claim()? {
                Rest::More => {}
                rest => return Ok(Tick { rest, handled: std::mem::take(&mut self.done), fired: 0 }),
            }
        }
        let handled = self.handle_held(pace)?;
        let rest =
            if self.held.is_empty() && handled < self.policy.batch_messages_max { Rest::Idle } else { Rest::More };
        Ok(Tick { handled: std::mem::take(&mut self.done), fired: 0, rest })
    }

    /// Waits until the batch before is durable, if it is not known to be, and tells of it.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Some(batch) = self.early.take() else { return Ok(()) };
        self.runtime.shared.wait(&batch.early, &batch.change)?;
        self.tell(&batch);
        Ok(())
    }

    /// Claims messages by themselves: at the start, and after a time without any.
    fn claim(&mut self) -> Result<Rest> {
        let shared = Arc::clone(&self.runtime.shared);
        let rows = shared.substrate.snapshot()?;
        let (found, lease) = self.search(&*rows)?;
        self.wake_at = found.wake_at;
        // A claim that a crash of the machine takes away is one that nobody has.
        let mut change = Change { base: rows.version(), durability: Durability::None, ..Change::default() };
        drop(rows);
        let Some(held) = found.stage(&mut change, self.id, &lease) else { return Ok(Rest::Idle) };
        match shared.commit(&change.into())? {
            Verdict::Committed(_) => {
                if found.is_cut {
                    shared.raise_relay(self.id);
                }
                self.take(found, Some(held));
                Ok(Rest::More)
            }
            Verdict::Conflict(conflict) => {
                shared.meet(&conflict, 1, Some(self.id));
                shared.metrics.add(Counter::Contended, 1);
                found.claims.iter().for_each(|claimed| self.leave(claimed));
                Ok(Rest::Busy)
            }
        }
    }

    /// What to claim next, besides what is held, and the lease on it.
    pub(crate) fn search(&self, rows: &dyn Rows) -> Result<(Found, Lease)> {
        self.search_beside(rows, &self.held)
    }

    /// What to claim next, besides these, and the lease on it. Runs are claimed one at a time.
    pub(crate) fn search_beside(&self, rows: &dyn Rows, held: &[Claimed]) -> Result<(Found, Lease)> {
        let shared = &self.runtime.shared;
        let (worker, owner, policy, now) = (self.id, self.owner, &self.policy, shared.clock.now());
        let most = if matches!(self.work, Work::Drive(_)) { 1 } else { policy.batch_messages_max };
        let search = Search { shared, worker, owner, policy, now, held, most };
        let found = search.run(rows)?;
        if found.is_flow_limited {
            shared.flow().wait(&self.signal);
        }
        Ok((found, search.lease()))
    }

    fn take(&mut self, found: Found, lease: Option<Held>) {
        let shared = &self.runtime.shared;
        if let Some(rate) = self.policy.rate {
            shared.flow().spend(self.id, rate, found.claims.len());
        }
        shared.metrics.add(Counter::Takeovers, u64::from(found.is_takeover()));
        self.held = found.claims;
        self.is_one_by_one = false;
        self.hold.note(lease.as_ref());
        self.lease = lease;
    }

    /// Its work on a message is over; on the message's concurrency key too, unless another it has is of that key.
    pub(crate) fn leave(&self, claimed: &Claimed) {
        let shared = &self.runtime.shared;
        if self.is_shared || claimed.flow_key.is_some() {
            let is_key = |key: &&Vec<u8>| {
                !self.held.iter().any(|other| other.key != claimed.key && other.flow_key.as_ref() == Some(*key))
            };
            let key = claimed.flow_key.as_ref().filter(is_key);
            shared.flow().leave(claimed.key, self.owner, key.map(|key| &key[..]));
        }
    }

    /// As `leave`, for many.
    fn leave_all(&self, done: &[Claimed]) {
        if done.iter().any(|claimed| claimed.flow_key.is_some()) {
            done.iter().for_each(|claimed| self.leave(claimed));
        } else if self.is_shared {
            self.runtime.shared.flow().give_back(done.iter().map(|claimed| claimed.key), self.owner);
        }
    }

    /// Handles what is held, in one commit; passes are made until it succeeds. Answers how many messages that was.
    fn handle_held(&mut self, pace: Pace) -> Result<usize> {
        let shared = Arc::clone(&self.runtime.shared);
        let mut pass = 1;
        let mut size = if self.is_one_by_one { self.held.len().min(1) } else { self.held.len() };
        let mut lost = 0;
        let mut refused = None;
        loop {
            if size == 0 {
                return Ok(lost);
            }
            let is_last = pass > self.policy.passes_max;
            let conflicts = || Outcome::Failed { why: ONLY_CONFLICTS.into(), retryable: true };
            let instead = refused.clone().or_else(|| is_last.then(conflicts));
            match self.pass(size, instead.as_ref(), pace) {
                Ok(Landing::Committed(handled)) => {
                    self.streak = self.streak.saturating_sub(1);
                    return Ok(lost + handled);
                }
                Ok(Landing::Lost(count)) => {
                    size = size.min(self.held.len());
                    lost += count;
                    self.done += count;
                    // It may have been another that was refused.
                    refused = None;
                    continue;
                }
                Ok(Landing::Conflict(conflict)) => shared.meet(&conflict, pass, Some(self.id)),
                Err(error) if error.is_refusal() && size > 1 => {
                    self.is_one_by_one = true;
                    (size, pass) = (1, 1);
                    continue;
                }
                Err(error) => {
                    refused = Some(after_refusal(error, refused.as_ref())?);
                    continue;
                }
            }
            self.streak = (self.streak + 1).min(STREAK_MAX);
            shared.clock.sleep(shared.jitter(self.policy.patience_after(self.streak)));
            pass += 1;
            if pass > self.policy.passes_max && size > 1 {
                // Alone, a message reads less, and less can change under it.
                (size, pass) = (1, 1);
            }
        }
    }

    /// Somebody else has the message now, or it was cancelled.
    fn lose(&self, claimed: &Claimed) {
        let shared = &self.runtime.shared;
        shared.metrics.add(Counter::Superseded, 1);
        self.leave(claimed);
        let (key, frame, end) = (claimed.key, &claimed.frame[..], &StepEnd::Superseded);
        let now = shared.clock.now();
        shared.observe(&Observation::StepEnded { key, end, frame, now, took: Duration::ZERO, writes: None });
    }

    /// One pass over the first `size` messages held, and its commit. If it is said what they came to instead, none is run.
    fn pass(&mut self, size: usize, instead: Option<&Outcome>, pace: Pace) -> Result<Landing> {
        let shared = Arc::clone(&self.runtime.shared);
        let before = self.early.as_ref().map(|batch| batch.early.clone()).unwrap_or_default();
        let rows = shared.substrate.snapshot_with(&before)?;
        if !self.is_leased(&*rows)? {
            drop(rows);
            return Ok(Landing::Lost(self.find_lost()?));
        }
        let setting = shared.setting(Some(self.id));
        let held = self.lease.clone().expect("what is held has a lease");
        let hold = Arc::clone(&self.hold);
        hold.take_up(&shared, held, &self.policy, before.clone());
        let mut block = Atomic::new(&*rows, setting).holding(&shared, &hold);
        let passes = self.run_all(&mut block, size, instead);
        let (mut change, wishes) = block.into_change();
        // Also if the runtime failed: the lease may have been renewed before.
        self.lease = hold.let_go();
        let passes = passes?;
        let ran = passes.len();
        let flags = wishes.iter().fold(Flags::NONE, |flags, wish| flags | wish.flags());
        let emitted = wishes.len();
        let _ = shared.stage_wishes(&mut change, wishes);
        let mut disposal = Disposal {
            shared: &shared,
            policy: &self.policy,
            rows: &*rows,
            change: &mut change,
            now: setting.now.wall,
            counters: 0,
        };
        let mut ends = Vec::with_capacity(ran);
        disposal.end(&self.held[..ran]);
        for (claimed, pass) in self.held.iter().zip(passes) {
            ends.push((disposal.dispose(claimed, pass.outcome)?, pass.took, pass.writes));
        }
        let counters = disposal.counters;
        let own = self.held[..ran].iter().fold(flags, |flags, claimed| flags | flags_of(&claimed.frame));
        change.durability = self.policy.durability(own);
        if !claim::expect_present(&mut change, &*rows, &self.held[..ran])? {
            drop(rows);
            return Ok(Landing::Lost(self.find_lost()?));
        }
        let (next, lease) = self.stage_lease(&mut change, &*rows, ran)?;
        drop(rows);
        let told = Told { now: setting.now, ends, emitted, counters };
        self.land(change, (next, lease), told, pace)
    }

    /// Commits a batch and the claim of the next, and goes on with that.
    fn land(
        &mut self,
        change: Change,
        (mut next, mut lease): (Found, Option<Held>),
        told: Told,
        pace: Pace,
    ) -> Result<Landing> {
        let shared = Arc::clone(&self.runtime.shared);
        let mut change = Arc::new(change);
        let (mut verdict, mut early) = match self.commit(&change, &next, pace) {
            Ok(answer) => answer,
            Err(error) => {
                next.claims.iter().for_each(|claimed| self.leave(claimed));
                return Err(error);
            }
        };
        if let Verdict::Conflict(conflict) = &verdict
            && next.unstage(Arc::make_mut(&mut change), conflict)
        {
            // Somebody else has what was to be taken over. That is no reason to do these again.
            next.claims.drain(..).for_each(|claimed| self.leave(&claimed));
            Arc::make_mut(&mut change).remove(LEASES, row_key(self.id, self.owner));
            lease = None;
            (verdict, early) = self.commit(&change, &next, pace)?;
        }
        if let Verdict::Conflict(conflict) = verdict {
            next.claims.iter().for_each(|claimed| self.leave(claimed));
            return Ok(Landing::Conflict(conflict));
        }
        // Whatever becomes of it on its way to the disk: the next pass is made on top of it.
        shared.retries.fetch_add(told.counters.cast_unsigned(), Ordering::Relaxed);
        let ran = told.ends.len();
        let done: Vec<Claimed> = self.held.drain(..ran).collect();
        self.lease.clone_from(&lease);
        if self.held.is_empty() {
            self.wake_at = next.wake_at;
            self.take(next, lease);
        }
        // The one before first: nobody hears of a batch before the one it was made on.
        self.settle()?;
        let may_wait = !early.is_done() && pace == Pace::Early && !self.held.is_empty();
        let batch = Batch { early, change, done, told };
        #[cfg(feature = "planted")]
        if shared.is_planted(crate::planted::Bug::ToldTooEarly) {
            self.tell(&batch);
        }
        self.early = Some(batch);
        if !may_wait {
            self.settle()?;
        }
        Ok(Landing::Committed(ran))
    }

    /// Commits a batch: early, if there is enough to do meanwhile, or if the one before was and may not be durable yet.
    fn commit(&self, change: &Arc<Change>, next: &Found, pace: Pace) -> Result<(Verdict, Early)> {
        let shared = &self.runtime.shared;
        let is_enough = next.claims.len() >= self.policy.early_messages_min;
        let goes_on = pace == Pace::Early && is_enough && self.policy.concurrency.is_none();
        match &self.early {
            Some(before) => shared.commit_early(change, &before.early),
            None if goes_on && change.durability == Durability::Sync => shared.commit_early(change, &Early::default()),
            None => Ok((shared.commit(change)?, Early::default())),
        }
    }

    /// Stages that the lease is still ours, and what it covers when so many of its messages are done: the rest, or what is claimed next.
    fn stage_lease(&self, change: &mut Change, rows: &dyn Rows, ran: usize) -> Result<(Found, Option<Held>)> {
        let key = row_key(self.id, self.owner);
        let held = self.lease.as_ref().expect("what is held has a lease");
        change.expect(LEASES, key, Seen::of(Some(&held.row)));
        if ran < self.held.len() {
            let left = self.held[ran..].iter().map(|claimed| claimed.key.seq);
            let row = Bytes::from(encode_row(&held.lease, left));
            change.put(LEASES, key, row.clone());
            return Ok((Found::default(), Some(Held { lease: held.lease, row })));
        }
        if !self.is_stopping() {
            let (found, lease) = self.search(rows)?;
            if let Some(held) = found.stage(change, self.id, &lease) {
                return Ok((found, Some(held)));
            }
            change.remove(LEASES, key);
            return Ok((found, None));
        }
        change.remove(LEASES, key);
        Ok((Found::default(), None))
    }

    /// Whether the lease is in these rows as we know it, on everything that is held.
    fn is_leased(&self, rows: &dyn Rows) -> Result<bool> {
        let Some(held) = &self.lease else { return Ok(false) };
        if held.row.len() != row_bytes(self.held.len()) {
            // It was renewed after others had taken something out of it.
            return Ok(false);
        }
        Ok(rows.get(&LEASES, &row_key(self.id, self.owner))?.as_deref() == Some(&held.row[..]))
    }

    /// Drops what is not ours any more. Answers how many that was.
    fn find_lost(&mut self) -> Result<usize> {
        // What it holds is in rows that everybody sees only then.
        self.settle()?;
        let shared = Arc::clone(&self.runtime.shared);
        let rows = shared.substrate.snapshot()?;
        let leases = Leases::read(&*rows, self.id)?;
        let (lease, seqs) = leases.held_by(self.owner).map_or((None, &[][..]), |(held, seqs)| (Some(held), seqs));
        let mut kept = Vec::with_capacity(self.held.len());
        let mut lost = Vec::new();
        for claimed in std::mem::take(&mut self.held) {
            let is_ours = seqs.contains(&claimed.key.seq) && rows.get(&INBOX, &claimed.key_bytes())?.is_some();
            if is_ours { kept.push(claimed) } else { lost.push(claimed) }
        }
        (self.held, self.lease) = (kept, lease);
        lost.iter().for_each(|claimed| self.lose(claimed));
        drop(rows);
        match &self.lease {
            _ if self.held.is_empty() => self.release()?,
            Some(held) if held.row.len() != row_bytes(self.held.len()) => self.trim_lease()?,
            Some(_) | None => {}
        }
        Ok(lost.len())
    }

    /// Takes out of the lease what is not in the inbox any more.
    fn trim_lease(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.runtime.shared);
        let key = row_key(self.id, self.owner);
        let trimmed = shared.commit_until(|rows| {
            let leases = Leases::read(rows, self.id)?;
            let Some((held, seqs)) = leases.held_by(self.owner) else { return Ok(None) };
            let ours = self.held.iter().map(|claimed| claimed.key.seq).filter(|seq| seqs.contains(seq));
            let row = Bytes::from(encode_row(&held.lease, ours));
            let mut change = Change { durability: Durability::None, ..Change::default() };
            change.expect(LEASES, key, Seen::of(Some(&held.row)));
            change.put(LEASES, key, row.clone());
            Ok(Some((change, Held { lease: held.lease, row })))
        })?;
        self.lease = trimmed.map(|(_, held)| held);
        Ok(())
    }

    /// Runs messages until they are done or the batch has taken long enough, or holds enough.
    fn run_all(&mut self, block: &mut Atomic<'_>, size: usize, instead: Option<&Outcome>) -> Result<Vec<Pass>> {
        let shared = Arc::clone(&self.runtime.shared);
        let began = shared.mono();
        let mut before = began;
        let mut passes = Vec::with_capacity(size);
        let Work::Handle(handler) = &mut self.work else { unreachable!("whoever drives runs holds no messages") };
        for claimed in &self.held[..size] {
            self.hold.begin(claimed, before);
            let (outcome, writes) = match instead {
                Some(outcome) => (outcome.clone(), None),
                None => step::run(&shared, &self.policy, &mut **handler, block, claimed)?,
            };
            let now = shared.mono();
            passes.push(Pass { outcome, took: now.since(before), writes });
            before = now;
            if now.since(began) >= self.policy.batch_time_max || block.is_full() {
                break;
            }
        }
        Ok(passes)
    }

    /// Counts and tells what is durable.
    fn tell(&mut self, batch: &Batch) {
        let shared = Arc::clone(&self.runtime.shared);
        let Batch { done, told: Told { now, ends, emitted, .. }, .. } = batch;
        self.done += done.len();
        let mut tally = Tally::default();
        let times: Vec<Duration> = ends.iter().map(|end| end.1).collect();
        self.leave_all(done);
        for (claimed, (end, took, writes)) in done.iter().zip(ends) {
            tally.add(end);
            if shared.has_observers() {
                let (key, frame, writes) = (claimed.key, &claimed.frame[..], writes.as_ref());
                shared.observe(&Observation::StepEnded { key, end, frame, now: *now, took: *took, writes });
            }
        }
        let metrics = &shared.metrics;
        metrics.took(&times);
        metrics.add(Counter::Steps, done.len() as u64);
        metrics.add(Counter::Commits, 1);
        metrics.add(Counter::Emitted, *emitted as u64);
        for (counter, count) in tally.counts() {
            metrics.add(counter, count);
        }
    }
}

/// Whether a tick leaves its last batch on the way to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// Everything that was handled is durable.
    Settled,
    /// The last batch may not be, while there is more to do.
    Early,
    /// The end of a run, and the begin of the next, may not be: others of the same thread have their turn before it goes on. Messages are
    /// settled.
    InTurns,
}

/// A batch that was committed, until it is known to be durable.
struct Batch {
    early: Early,
    change: Arc<Change>,
    done: Vec<Claimed>,
    told: Told,
}

/// What is told of a batch when it is durable.
struct Told {
    now: Now,
    ends: Vec<(StepEnd, Duration, Option<Writes>)>,
    emitted: usize,
    /// Retry counters made, less those removed.
    counters: i64,
}

/// What a pass came to.
enum Landing {
    Committed(usize),
    /// So many messages are not ours any more.
    Lost(usize),
    Conflict(Conflict),
}

/// What becomes of the one message of a pass that the substrate refused, whatever it was to become before.
///
/// # Errors
/// The error, if it is no refusal or even the message's burial was refused: then the message is not to blame.
fn after_refusal(error: Error, before: Option<&Outcome>) -> Result<Outcome> {
    if !error.is_refusal() {
        return Err(error);
    }
    let why = format!("the commit was refused: {error}").into();
    match before {
        None => Ok(Outcome::Failed { why, retryable: false }),
        // Not even that could be counted.
        Some(Outcome::Failed { .. }) => Ok(Outcome::Doomed { reason: Reason::FailuresSpent, why }),
        Some(_) => Err(error),
    }
}

fn flags_of(frame: &[u8]) -> Flags {
    MessageRef::decode(frame).map_or(Flags::NONE, |message| message.flags())
}

/// Ends of steps, counted.
#[derive(Default)]
struct Tally {
    successes: u64,
    duplicates: u64,
    retryable: u64,
    conflicts: u64,
    fatal: u64,
    requeues: u64,
    dead: u64,
}

impl Tally {
    fn add(&mut self, end: &StepEnd) {
        match end {
            StepEnd::Done => self.successes += 1,
            StepEnd::Duplicate => {
                self.successes += 1;
                self.duplicates += 1;
            }
            StepEnd::Requeued { retryable, reason, .. } => {
                self.requeues += 1;
                self.retryable += u64::from(*retryable);
                self.conflicts += u64::from(**reason == *ONLY_CONFLICTS);
                self.fatal += u64::from(!*retryable);
            }
            StepEnd::Buried { reason, detail, .. } => {
                self.dead += 1;
                self.conflicts += u64::from(**detail == *ONLY_CONFLICTS);
                self.retryable += u64::from(*reason == Reason::RetriesSpent);
                self.fatal += u64::from(*reason != Reason::RetriesSpent);
            }
            StepEnd::Superseded => {}
        }
    }

    fn counts(&self) -> [(Counter, u64); 8] {
        [
            (Counter::ConflictFailures, self.conflicts),
            (Counter::BusyFailures, self.retryable - self.conflicts),
            (Counter::Successes, self.successes),
            (Counter::Duplicates, self.duplicates),
            (Counter::RetryableFailures, self.retryable),
            (Counter::FatalFailures, self.fatal),
            (Counter::Requeues, self.requeues),
            (Counter::DeadLetters, self.dead),
        ]
    }
}

impl Drop for Worker {
    /// Its leases stay until they run out, as those of a worker that died.
    fn drop(&mut self) {
        self.runtime.shared.flow().part(self.id, self.owner);
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("id", &self.id).field("owner", &self.owner).finish_non_exhaustive()
    }
}
