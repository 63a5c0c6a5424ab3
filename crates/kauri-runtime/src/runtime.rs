//! The runtime: what all workers of one store share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use kauri_wire::{Flags, InboxKey, Key, Message, RunId, SchemaVersion, Seq, TimerKey, Timestamp, WorkerId};

use crate::atomic::{Atomic, BlockLimits, Setting, Wish};
use crate::error::{Conflict, Error, Result};
use crate::flow::Flow;
use crate::hold::Holds;
use crate::metrics::{Counter, Counts, Gauges, Metrics, Spreads};
use crate::observe::{Observation, Observer};
use crate::policy::Policy;
use crate::read::View;
use crate::run::{Followed, Recovered};
use crate::schema::{
    self, DEADLINES, INBOX, OUTBOX, RUNS, SEQUENCES, TABLES, TIMER_DEADLINES, TIMERS, TableSpec, URGENT,
};
use crate::substrate::{
    Append, Bytes, Change, Committed, Early, KeyRange, Limits, Posted, Rows, Seen, Signal, Substrate, Verdict,
    prefix_end,
};
use crate::time::{Chance, Clock, Mono, Now};

/// Where messages of a worker go.
pub(crate) type Elsewhere = dyn Fn(WorkerId) -> bool + Send + Sync;

/// Sets up a [`Runtime`].
///
/// It needs a substrate and a clock. The rest has defaults.
pub struct Builder {
    substrate: Arc<dyn Substrate>,
    clock: Arc<dyn Clock>,
    observers: Vec<Arc<dyn Observer>>,
    policy: Policy,
    limits: BlockLimits,
    elsewhere: Arc<Elsewhere>,
    tables: Vec<TableSpec>,
    version: SchemaVersion,
    bootstrap: bool,
    seed: u64,
    ledger: crate::run::Ledger,
    #[cfg(feature = "planted")]
    planted: Option<crate::planted::Bug>,
}

impl Builder {
    /// The seed of the runtime's chance: of jitter, and of the ids of runs. Give it randomness where runs of several stores meet.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The policy of blocks, and of workers that bring none of their own.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy.sane();
        self
    }

    /// How much a block may hold.
    #[must_use]
    pub fn limits(mut self, limits: BlockLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Tells this observer of everything.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Says which workers are not here: what is sent to them goes to the outbox. Without it, all workers are here.
    #[must_use]
    pub fn elsewhere(mut self, is_elsewhere: impl Fn(WorkerId) -> bool + Send + Sync + 'static) -> Self {
        self.elsewhere = Arc::new(is_elsewhere);
        self
    }

    /// The tables of runtime and application: see [`check_layout`](crate::check_layout).
    #[must_use]
    pub fn tables(mut self, tables: &[TableSpec]) -> Self {
        self.tables = tables.to_vec();
        self
    }

    /// The schema version that the store must have.
    #[must_use]
    pub fn version(mut self, version: SchemaVersion) -> Self {
        self.version = version;
        self
    }

    /// Where actions of runs are written down. Without it, a run that wants something done outside fails.
    #[must_use]
    pub fn ledger(mut self, ledger: Arc<dyn crate::run::ActionLedger>) -> Self {
        self.ledger = Some(ledger);
        self
    }

    /// Refuses a store without a schema marker, instead of writing one.
    #[must_use]
    pub fn existing(mut self) -> Self {
        self.bootstrap = false;
        self
    }

    /// Plants a bug, to see whether it is found.
    #[cfg(feature = "planted")]
    #[must_use]
    pub fn planted(mut self, bug: crate::planted::Bug) -> Self {
        self.planted = Some(bug);
        self
    }

    /// Looks at the tables and the schema marker, begins an incarnation, ends the [runs](crate::run) that an earlier one left without
    /// a driver, and runs.
    ///
    /// # Errors
    /// `Layout`, `NoSchema`, `OtherSchema`, `BadMarker`, `Substrate` if it takes too little, or what the substrate says. Nothing runs then.
    pub fn start(self) -> Result<Runtime> {
        schema::check_layout(&self.tables)?;
        let takes = check_limits(self.substrate.limits())?;
        schema::ensure_version(&*self.substrate, self.version, self.bootstrap)?;
        let incarnation = begin_incarnation(&*self.substrate)?;
        crate::claim::forget_what_is_gone(&*self.substrate)?;
        let retries = crate::dedupe::count_counters(&*self.substrate.snapshot()?)?;
        let shared = Shared {
            substrate: self.substrate,
            clock: self.clock,
            observers: self.observers,
            metrics: Metrics::default(),
            policy: self.policy,
            limits: self.limits,
            takes,
            elsewhere: self.elsewhere,
            incarnation,
            owners: AtomicU64::new(1),
            retries: AtomicU64::new(retries),
            chance: Mutex::new(Chance::new(self.seed ^ incarnation)),
            run_ids: Mutex::new(crate::run::RunIds::NONE),
            timekeeper: Mutex::new(()),
            outbox: Mutex::new(()),
            flow: Mutex::default(),
            holds: Holds::default(),
            relays: Mutex::default(),
            stopped: AtomicBool::new(false),
            recovered: std::sync::OnceLock::new(),
            followed: Mutex::default(),
            ledger: self.ledger,
            #[cfg(feature = "planted")]
            planted: self.planted,
        };
        let runtime = Runtime { shared: Arc::new(shared) };
        let recovered = runtime.runs().recover()?;
        runtime.shared.recovered.get_or_init(|| recovered);
        Ok(runtime)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("policy", &self.policy).field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Whether a runtime can do with what a substrate takes.
fn check_limits(takes: Limits) -> Result<Limits> {
    let (least, found) = (Limits::KEY_BYTES_MIN, takes.key_bytes_max);
    if found < least {
        let words = format!("expected keys of {least} bytes at least, found {found} at most");
        return Err(Error::Substrate(words.into()));
    }
    Ok(takes)
}

/// Counts this start of a runtime on its store: leases of earlier ones are nobody's.
fn begin_incarnation(substrate: &dyn Substrate) -> Result<u64> {
    const NAME: &[u8] = b"incarnation";
    loop {
        let rows = substrate.snapshot()?;
        let last = rows.get(&SEQUENCES, NAME)?.map(std::borrow::Cow::into_owned);
        drop(rows);
        let used = match last.as_deref().map(<[u8; 8]>::try_from) {
            None => 0,
            Some(Ok(bytes)) => u64::from_le_bytes(bytes),
            Some(Err(_)) => return Err(Error::damaged("sequences", "a number of eight bytes")),
        };
        let mut change = Change::default();
        change.expect(SEQUENCES, NAME, Seen::of(last.as_deref()));
        change.put(SEQUENCES, NAME, (used + 1).to_le_bytes());
        if let Verdict::Committed(_) = substrate.commit(&change.into())? {
            return Ok(used + 1);
        }
    }
}

/// Messages, timers and blocks over one substrate. A handle: its clones are the same runtime.
///
/// Workers are made with [`worker`](Self::worker). Dropping the last handle stops nothing that is in the store.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) substrate: Arc<dyn Substrate>,
    pub(crate) clock: Arc<dyn Clock>,
    observers: Vec<Arc<dyn Observer>>,
    pub(crate) metrics: Metrics,
    pub(crate) policy: Policy,
    pub(crate) limits: BlockLimits,
    /// What the substrate takes.
    pub(crate) takes: Limits,
    elsewhere: Arc<Elsewhere>,
    pub(crate) incarnation: u64,
    owners: AtomicU64,
    /// How many retry counters there are: none saves looking for one after each step.
    pub(crate) retries: AtomicU64,
    chance: Mutex<Chance>,
    run_ids: Mutex<crate::run::RunIds>,
    /// Whoever has it moves due timers; one is enough.
    pub(crate) timekeeper: Mutex<()>,
    /// Whoever has it drains the outbox.
    pub(crate) outbox: Mutex<()>,
    pub(crate) flow: Mutex<Flow>,
    pub(crate) holds: Holds,
    /// What is raised when something comes into an inbox, for the instances that share it.
    relays: Mutex<BTreeMap<WorkerId, Arc<Signal>>>,
    pub(crate) stopped: AtomicBool,
    /// What this start found, set once before anybody can ask.
    recovered: std::sync::OnceLock<Recovered>,
    /// What those who follow a run have in common.
    followed: Mutex<BTreeMap<RunId, Weak<Followed>>>,
    /// Where actions of runs are written down.
    pub(crate) ledger: crate::run::Ledger,
    #[cfg(feature = "planted")]
    planted: Option<crate::planted::Bug>,
}

/// Where a message went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Into the inbox of its worker.
    Inbox(InboxKey),
    /// Into the outbox, its worker being elsewhere.
    Outbox(Seq),
    /// Into the timers.
    Timer(TimerKey),
}

impl Runtime {
    /// Sets up a runtime on this substrate, with this clock.
    #[must_use]
    pub fn builder(substrate: Arc<dyn Substrate>, clock: Arc<dyn Clock>) -> Builder {
        Builder {
            substrate,
            clock,
            observers: Vec::new(),
            policy: Policy::default(),
            limits: BlockLimits::default(),
            elsewhere: Arc::new(|_| false),
            tables: TABLES.to_vec(),
            version: schema::SCHEMA,
            bootstrap: true,
            seed: 0,
            ledger: None,
            #[cfg(feature = "planted")]
            planted: None,
        }
    }

    /// Sends a message. When this returns it is in the store, and survives.
    ///
    /// # Errors
    /// If it or its id is too long, the runtime was stopped, or the substrate fails.
    pub fn send(&self, message: &Message) -> Result<Sent> {
        Ok(self.send_all(std::slice::from_ref(message))?[0])
    }

    /// Sends a message that is not wanted any more once `deadline` has come: if it has not been begun then, it is buried.
    ///
    /// # Errors
    /// As for `send`.
    pub fn send_until(&self, message: &Message, deadline: Timestamp) -> Result<Sent> {
        let sent = self.atomic_with(|block| block.emit_until(message, Some(deadline)))?.1;
        Ok(sent[0])
    }

    /// Sends messages together: all of them or none, in one commit. Whoever has many to send waits for one sync instead of many.
    ///
    /// ```
    /// # use kauri_runtime::substrate::TreeSubstrate;
    /// # use kauri_runtime::testing::VirtualClock;
    /// # use kauri_runtime::Runtime;
    /// # use kauri_wire::{Message, MessageId, WorkerId};
    /// # use std::sync::Arc;
    /// # let store = TreeSubstrate::new(kauri_tree::Store::in_memory()?);
    /// # let runtime = Runtime::builder(Arc::new(store), Arc::new(VirtualClock::default())).start()?;
    /// const SALES: WorkerId = WorkerId(7);
    /// fn order(number: u32) -> Result<Message, kauri_runtime::Error> {
    ///     Ok(Message::command(SALES, MessageId::new(format!("order-{number}"))?, "apples"))
    /// }
    /// let orders = (1..=100).map(order).collect::<Result<Vec<_>, kauri_runtime::Error>>()?;
    /// assert_eq!(runtime.send_all(&orders)?.len(), 100);
    /// assert_eq!(runtime.depth(SALES)?, 100);
    ///
    /// // One that cannot be sent: then none is.
    /// let too_long = Message::command(SALES, MessageId::new("x".repeat(10_000))?, "apples");
    /// assert!(runtime.send_all(&[order(101)?, too_long]).is_err());
    /// assert_eq!(runtime.depth(SALES)?, 100);
    /// # Ok::<(), kauri_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for `send`.
    pub fn send_all(&self, messages: &[Message]) -> Result<Vec<Sent>> {
        Ok(self.atomic_with(|block| messages.iter().try_for_each(|message| block.emit(message)))?.1)
    }

    /// Sends a message when this moment has come. A moment before the epoch has come already, and is kept as the epoch.
    ///
    /// # Errors
    /// As for `send`.
    pub fn arm(&self, due: Timestamp, message: &Message) -> Result<TimerKey> {
        match self.atomic_with(|block| block.arm(due, message))?.1[0] {
            Sent::Timer(key) => Ok(key),
            Sent::Inbox(_) | Sent::Outbox(_) => unreachable!("what is armed becomes a timer"),
        }
    }

    /// Runs a block until it commits: each pass on a new snapshot, after a pause that grows.
    ///
    /// # Errors
    /// What the block answers, and then nothing was written; `Conflict` if every pass met one; or what the substrate says.
    pub fn atomic<T, E: From<Error>>(&self, block: impl FnMut(&mut Atomic<'_>) -> Result<T, E>) -> Result<T, E> {
        Ok(self.atomic_with(block)?.0)
    }

    /// Runs a block that only reads: on a bare snapshot, with no tracking and no commit.
    ///
    /// # Errors
    /// What the block answers, or what the substrate says.
    pub fn read<T, E: From<Error>>(&self, block: impl FnOnce(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        block(&View::new(self.shared.substrate.snapshot()?))
    }

    fn atomic_with<T, E: From<Error>>(
        &self,
        mut block: impl FnMut(&mut Atomic<'_>) -> Result<T, E>,
    ) -> Result<(T, Vec<Sent>), E> {
        let shared = &*self.shared;
        let policy = &shared.policy;
        let mut pass = 1;
        loop {
            shared.check_running()?;
            let rows = shared.substrate.snapshot()?;
            let mut atomic = Atomic::new(&*rows, shared.setting(None));
            let value = block(&mut atomic)?;
            let (mut change, wishes) = atomic.into_change();
            drop(rows);
            if change.is_empty() && wishes.is_empty() {
                // It only read, and what it read was one version.
                return Ok((value, Vec::new()));
            }
            let flags = wishes.iter().fold(Flags::NONE, |flags, wish| flags | wish.flags());
            change.durability = policy.durability(flags);
            let plan = shared.stage_wishes(&mut change, wishes);
            match shared.commit(&change.into())? {
                Verdict::Committed(committed) => return Ok((value, plan.sent(&committed))),
                Verdict::Conflict(conflict) => {
                    shared.meet(&conflict, pass, None);
                    if pass >= policy.passes_max {
                        return Err(Error::Conflict(conflict).into());
                    }
                }
            }
            shared.pause(policy, pass);
            pass += 1;
        }
    }

    /// What was counted since the runtime started, or since [`reset_metrics`](Self::reset_metrics).
    #[must_use]
    pub fn metrics(&self) -> Counts {
        self.shared.metrics.counts()
    }

    /// How many steps and runs took how long: two of these tell of the time between them.
    #[must_use]
    pub fn spreads(&self) -> Spreads {
        self.shared.metrics.spreads()
    }

    /// Counts from zero again.
    pub fn reset_metrics(&self) {
        self.shared.metrics.reset();
    }

    /// How much waits where, exactly.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn gauges(&self) -> Result<Gauges> {
        let rows = self.shared.substrate.snapshot()?;
        Gauges::read(&*rows)
    }

    /// How many messages wait in the inbox of a worker, those being handled included.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn depth(&self, worker: WorkerId) -> Result<u64> {
        let rows = self.shared.substrate.snapshot()?;
        let (from, until) = inbox_range(worker);
        rows.count(&INBOX, KeyRange { from: &from, until: until.as_deref() })
    }

    /// Counts and gauges in the text form that Prometheus reads.
    ///
    /// # Errors
    /// If the substrate fails.
    pub fn prometheus(&self) -> Result<String> {
        Ok(crate::prometheus::render(&self.metrics(), &self.gauges()?))
    }

    /// The present, from the clock that was given.
    #[must_use]
    pub fn now(&self) -> Now {
        self.shared.clock.now()
    }

    /// The policy of blocks, and of workers that bring none of their own.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.shared.policy
    }

    /// Which start of a runtime on this store this is, from 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// What this start did about runs whose driver had died.
    #[must_use]
    pub fn recovered(&self) -> Recovered {
        self.shared.recovered.get().cloned().unwrap_or_default()
    }

    /// What it stands on.
    #[must_use]
    pub fn substrate(&self) -> &Arc<dyn Substrate> {
        &self.shared.substrate
    }

    /// Ends all work: no step begins any more, and whatever would write answers `Stopped`. What is in the store stays.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
    }

    /// Raises `signal` whenever something comes into this worker's inbox.
    pub fn watch_inbox(&self, worker: WorkerId, signal: &Arc<Signal>) {
        self.shared.substrate.watch("inbox", &worker.key_bits().to_be_bytes(), signal);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("incarnation", &self.shared.incarnation).finish_non_exhaustive()
    }
}

/// All keys of a worker's inbox: the first, and the least beyond.
pub(crate) fn inbox_range(worker: WorkerId) -> (Vec<u8>, Option<Vec<u8>>) {
    let prefix = worker.key_bits().to_be_bytes();
    (prefix.to_vec(), prefix_end(&prefix))
}

/// What the appends of a change were for, so that their numbers become keys.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Which append, and what its number makes.
    places: Vec<Place>,
    first: usize,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Inbox(WorkerId),
    Outbox,
    Timer(Timestamp),
}

impl Plan {
    /// Where each wish went.
    pub(crate) fn sent(&self, committed: &Committed) -> Vec<Sent> {
        let numbers = committed.appended.iter().skip(self.first);
        let place = |(place, seq): (&Place, &u64)| match *place {
            Place::Inbox(worker) => Sent::Inbox(InboxKey { worker, seq: Seq(*seq) }),
            Place::Outbox => Sent::Outbox(Seq(*seq)),
            Place::Timer(due) => Sent::Timer(TimerKey { due, seq: Seq(*seq) }),
        };
        self.places.iter().zip(numbers).map(place).collect()
    }
}

impl Shared {
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) { Err(Error::Stopped) } else { Ok(()) }
    }

    pub(crate) fn setting(&self, worker: Option<WorkerId>) -> Setting {
        let (incarnation, limits, takes) = (self.incarnation, self.limits, self.takes);
        Setting { worker, now: self.clock.now(), incarnation, limits, takes }
    }

    pub(crate) fn next_owner(&self) -> u64 {
        // Rows of leases outlive an incarnation, so no number of one comes again in another.
        self.incarnation << 32 | self.owners.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        let verdict = self.commit_to_substrate(change)?;
        if let Verdict::Committed(_) = &verdict {
            self.tell_runs(change);
        }
        Ok(verdict)
    }

    /// As `commit`, but it may not be durable yet.
    pub(crate) fn commit_early(&self, change: &Arc<Change>, after: &Early) -> Result<(Verdict, Early)> {
        #[cfg(feature = "planted")]
        if self.planted.is_some_and(|bug| bug != crate::planted::Bug::ToldTooEarly) {
            self.substrate.wait(after)?;
            return Ok((self.commit(change)?, Early::default()));
        }
        let (verdict, early) = self.substrate.commit_early(change, after)?;
        if early.is_done() && matches!(verdict, Verdict::Committed(_)) {
            self.tell_runs(change);
        }
        Ok((verdict, early))
    }

    /// Returns when what was committed early is durable.
    pub(crate) fn wait(&self, early: &Early, change: &Change) -> Result<()> {
        if !early.is_done() {
            self.substrate.wait(early)?;
            self.tell_runs(change);
        }
        Ok(())
    }

    /// As `commit`, but what becomes of it is told by [`settle`](Self::settle).
    pub(crate) fn post(&self, change: &Arc<Change>) -> Result<Posted> {
        #[cfg(feature = "planted")]
        if self.planted.is_some() {
            return self.commit_to_substrate(change).map(Posted::done);
        }
        self.substrate.post(change)
    }

    /// Returns when a change that was handed in is durable, or met a conflict.
    pub(crate) fn settle(&self, posted: Posted, change: &Change) -> Result<Verdict> {
        let verdict = self.substrate.settle(posted)?;
        if let Verdict::Committed(_) = &verdict {
            self.tell_runs(change);
        }
        Ok(verdict)
    }

    fn commit_to_substrate(&self, change: &Arc<Change>) -> Result<Verdict> {
        #[cfg(feature = "planted")]
        if let Some(bug) = self.planted {
            return crate::planted::commit(bug, &*self.substrate, change);
        }
        self.substrate.commit(change)
    }

    /// Counts the runs that a commit has sealed, and tells of them and of those that wait now. The row of a sealed run is written once:
    /// so each is counted once, whoever sealed it.
    fn tell_runs(&self, change: &Change) {
        let rows = change.writes.get(&RUNS).into_iter().flatten();
        for (key, row) in rows.filter_map(|(key, row)| Some((key, row.as_ref()?))) {
            let Some(run) = crate::run::resting(key, row) else { continue };
            if let Some(outcome) = run.outcome() {
                self.metrics.run_ended(&run, outcome);
            }
            if self.has_observers() {
                self.observe(&Observation::RunEnded { run: &run });
            }
        }
    }

    #[cfg(feature = "planted")]
    pub(crate) fn is_planted(&self, bug: crate::planted::Bug) -> bool {
        self.planted == Some(bug)
    }

    /// Turns wishes into appends.
    pub(crate) fn stage_wishes(&self, change: &mut Change, wishes: Vec<Wish>) -> Plan {
        let mut plan = Plan { places: Vec::with_capacity(wishes.len()), first: change.appends.len() };
        for wish in wishes {
            let (append, place) = match wish {
                Wish::Emit { to, flags, frame, deadline } if !(self.elsewhere)(to) => {
                    (into_inbox(to, flags, frame, deadline), Place::Inbox(to))
                }
                Wish::Emit { frame, .. } | Wish::Publish { frame, .. } => (into_outbox(frame), Place::Outbox),
                Wish::Arm { due, frame, deadline, .. } => {
                    let due = Timestamp(due.0.max(0));
                    (into_timers(due, frame, deadline), Place::Timer(due))
                }
            };
            change.appends.push(append);
            plan.places.push(place);
        }
        plan
    }

    /// Wakes one of the instances of a worker that wait, if some do.
    pub(crate) fn raise_relay(&self, worker: WorkerId) {
        let relay = self.relays.lock().unwrap_or_else(PoisonError::into_inner).get(&worker).cloned();
        relay.iter().for_each(|relay| relay.raise());
    }

    /// What wakes one of the instances of a worker that join it, when something comes into their inbox.
    pub(crate) fn inbox_relay(&self, worker: WorkerId) -> Arc<Signal> {
        let mut relays = self.relays.lock().unwrap_or_else(PoisonError::into_inner);
        let relay = relays.entry(worker).or_insert_with(|| {
            let relay = Arc::new(Signal::relaying());
            self.substrate.watch("inbox", &worker.key_bits().to_be_bytes(), &relay);
            relay
        });
        Arc::clone(relay)
    }

    /// What those who follow a run have in common.
    pub(crate) fn followed(&self, run: RunId) -> Arc<Followed> {
        let mut all = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(followed) = all.get(&run).and_then(Weak::upgrade) {
            return followed;
        }
        all.retain(|_, followed| followed.strong_count() > 0);
        let followed = Arc::<Followed>::default();
        all.insert(run, Arc::downgrade(&followed));
        self.substrate.watch("events", run.as_bytes(), &followed.signal);
        followed
    }

    /// Whether a worker's inbox is not here.
    pub(crate) fn is_elsewhere(&self, worker: WorkerId) -> bool {
        (self.elsewhere)(worker)
    }

    /// Pauses before another pass.
    pub(crate) fn pause(&self, policy: &Policy, pass: u32) {
        self.clock.sleep(self.jitter(policy.pause_after(pass)));
    }

    /// A wait after failures, of which a part is chance.
    pub(crate) fn wait_after(&self, policy: &Policy, failures: u32) -> std::time::Duration {
        let most = policy.wait_after(failures);
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).jitter(most)
    }

    /// A wait of which a part is chance.
    pub(crate) fn jitter(&self, most: std::time::Duration) -> std::time::Duration {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).jitter(most)
    }

    /// An id for a run that begins now, later than this one.
    pub(crate) fn new_run_id(&self, now: Timestamp, after: Option<RunId>) -> RunId {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        self.run_ids.lock().unwrap_or_else(PoisonError::into_inner).next(now, after, || chance.next_u64())
    }

    pub(crate) fn meet(&self, conflict: &Conflict, pass: u32, worker: Option<WorkerId>) {
        self.metrics.add(Counter::Conflicts, 1);
        self.observe(&Observation::Conflict { worker, conflict, pass });
    }

    pub(crate) fn observe(&self, observation: &Observation<'_>) {
        for observer in &self.observers {
            observer.observe(observation);
        }
    }

    /// Tells the observers how the counts stand.
    pub(crate) fn tell_counts(&self) {
        if !self.observers.is_empty() {
            let counts = self.metrics.counts();
            self.observers.iter().for_each(|observer| observer.metrics(&counts));
        }
    }

    pub(crate) fn has_observers(&self) -> bool {
        !self.observers.is_empty()
    }

    pub(crate) fn wants_writes(&self) -> bool {
        self.observers.iter().any(|observer| observer.wants_writes())
    }

    pub(crate) fn mono(&self) -> Mono {
        self.clock.now().mono
    }

    /// Commits a change that nobody ran code for; made anew by `make` after each conflict.
    pub(crate) fn commit_until<T>(
        &self,
        mut make: impl FnMut(&dyn Rows) -> Result<Option<(Change, T)>>,
    ) -> Result<Option<(Committed, T)>> {
        let mut pass = 1;
        loop {
            let rows = self.substrate.snapshot()?;
            let Some((mut change, value)) = make(&*rows)? else { return Ok(None) };
            change.base = rows.version();
            drop(rows);
            match self.commit(&change.into())? {
                Verdict::Committed(committed) => return Ok(Some((committed, value))),
                Verdict::Conflict(conflict) => {
                    self.meet(&conflict, pass, None);
                    if pass >= COMMIT_PASSES_MAX {
                        return Err(Error::Conflict(conflict));
                    }
                }
            }
            self.pause(&self.policy, pass);
            pass += 1;
        }
    }
}

/// How often the runtime's own small changes are tried.
const COMMIT_PASSES_MAX: u32 = 100;

pub(crate) fn into_inbox(to: WorkerId, flags: Flags, frame: Vec<u8>, deadline: Option<Timestamp>) -> Append {
    let prefix = to.key_bits().to_be_bytes();
    let mut also = Vec::new();
    if flags.contains(Flags::HIGH_PRIORITY) {
        also.push((URGENT, Bytes::default()));
    }
    if let Some(deadline) = deadline {
        also.push((DEADLINES, deadline.0.to_le_bytes().into()));
    }
    let sequence = [&b"inbox:"[..], &prefix].concat().into();
    Append { table: INBOX, prefix: prefix.into(), sequence, value: frame.into(), also }
}

pub(crate) fn into_outbox(frame: Vec<u8>) -> Append {
    Append {
        table: OUTBOX,
        prefix: Bytes::default(),
        sequence: (*b"outbox").into(),
        value: frame.into(),
        also: Vec::new(),
    }
}

pub(crate) fn into_timers(due: Timestamp, frame: Vec<u8>, deadline: Option<Timestamp>) -> Append {
    let also = deadline.map(|deadline| (TIMER_DEADLINES, deadline.0.to_le_bytes().into())).into_iter().collect();
    let prefix = due.0.to_be_bytes().into();
    Append { table: TIMERS, prefix, sequence: (*b"timers").into(), value: frame.into(), also }
}

/// Reads an inbox key that a table of ours holds.
pub(crate) fn inbox_key(bytes: &[u8]) -> Result<InboxKey> {
    InboxKey::decode(bytes).map_err(|_| Error::damaged("inbox", "a key of worker and sequence, 16 bytes"))
}
