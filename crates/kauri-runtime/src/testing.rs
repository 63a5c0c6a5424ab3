//! A world for tests: your own handlers under crashes, pauses, preemption and jumping clocks, in virtual time, from one seed.
//!
//! A [`World`] runs workers one tick at a time on one thread. Handlers may take longer than their lease, with somebody who renews it and
//! without. At each commit it may run others first, let time pass until leases have run
//! out, jump the wall clock, report a conflict that is none, have no room, or crash: before the commit, or after it and before anybody
//! was told. Memory that runs out is one of these: where code cannot go on without it the program ends, which is a crash; where it can,
//! the commit or the handler fails, and the message is tried again.
//! After a crash everything starts again on what the store holds. The same seed does the same. At the end, faults off,
//! [`settle`](World::settle) lets everything come to its end: what is still waiting then would wait for ever.
//!
//! ```
//! use kauri_runtime::testing::{Faults, World};
//! use kauri_runtime::{Atomic, Failure, Read, Runtime, Worker, Write};
//! use kauri_tree::Table;
//! use kauri_wire::{Message, MessageId, MessageRef, WorkerId};
//!
//! const COUNTS: Table<str, u64> = Table::new("counts");
//!
//! fn count(block: &mut Atomic<'_>, _: MessageRef<'_>) -> Result<(), Failure> {
//!     let count = block.get(&COUNTS, "messages")?.unwrap_or(0);
//!     Ok(block.put(&COUNTS, "messages", count + 1)?)
//! }
//!
//! // Two instances share an inbox.
//! let workers = |runtime: &Runtime| vec![runtime.worker(WorkerId(7), count), runtime.worker(WorkerId(7), count)];
//! for seed in 0..20 {
//!     let mut world = World::in_memory(seed, workers)?.faults(Faults::ALL);
//!     for number in 0..10 {
//!         let message = Message::command(WorkerId(7), MessageId::new(format!("m{number}"))?, "");
//!         while world.runtime().send(&message).is_err() {
//!             world.restart()?; // It crashed before, or after; here nothing was sent.
//!             if !world.runtime().find(WorkerId(7), message.id.as_bytes())?.is_empty() {
//!                 break;
//!             }
//!         }
//!     }
//!     world.run(50)?;
//!     world.settle()?;
//!     let counted = world.runtime().read(|view| view.get(&COUNTS, "messages"))?;
//!     assert_eq!(counted, Some(10), "{}", world.replay());
//! }
//! # Ok::<(), kauri_runtime::Error>(())
//! ```

mod dawdle;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kauri_tree::Durability;
use kauri_wire::Timestamp;

use self::dawdle::Dawdle;
use crate::error::{Conflict, Error, Result};
use crate::runtime::{Builder, Runtime};
use crate::schema::LEASES;
use crate::substrate::{Change, Early, Limits, ModelSubstrate, Posted, Rows, Signal, Substrate, Verdict};
use crate::time::{Chance, Clock, Mono, Now};
use crate::worker::{Rest, Worker};

/// A clock that stands still until it is told otherwise; sleeping moves it. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    now: Arc<Mutex<Now>>,
}

impl VirtualClock {
    /// A clock that shows this wall time.
    #[must_use]
    pub fn at(wall: Timestamp) -> Self {
        Self { now: Arc::new(Mutex::new(Now { mono: Mono::default(), wall })) }
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        let mut now = self.lock();
        now.mono = now.mono + time;
        now.wall.0 = now.wall.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
    }

    /// Moves the wall clock alone, by so many milliseconds.
    pub fn jump(&self, millis: i64) {
        let mut now = self.lock();
        now.wall.0 = now.wall.0.saturating_add(millis);
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for VirtualClock {
    /// A morning in 2026.
    fn default() -> Self {
        Self::at(Timestamp(1_780_000_000_000))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Now {
        *self.lock()
    }

    fn sleep(&self, pause: Duration) {
        self.advance(pause);
    }

    fn wait(&self, signal: &Signal, seen: u64, most: Duration) {
        if signal.count() == seen {
            self.advance(most);
        }
    }
}

/// What can go wrong at a commit or between ticks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// Everything dies before the commit.
    CrashBefore,
    /// Everything dies after the commit, and nobody was told that it was made.
    CrashAfter,
    /// Everything dies when a commit was made early and is on its way to the disk.
    CrashEarly,
    /// Everything dies between two ticks.
    CrashBetween,
    /// Others run before the commit.
    Preemption,
    /// The worker stands still until its leases have run out, and others run.
    Pause,
    /// The commit is refused for no reason.
    Conflict,
    /// The wall clock jumps forward.
    JumpForward,
    /// The wall clock jumps back.
    JumpBack,
    /// The ground failed at a commit, and nobody knows whether it was made.
    Broken,
    /// There is no room for the commit: it was not made, and nothing is broken.
    Full,
    /// A handler takes several terms of its lease, which is renewed meanwhile; others run.
    Slow,
    /// A handler takes several terms of its lease, and others run before somebody tries to renew it.
    Stall,
}

/// How likely each fault is, in thousandths: of a commit, or of a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// [`FaultKind::CrashBefore`], of a commit; and [`FaultKind::CrashEarly`], of one that is waited for.
    pub crash_before: u32,
    /// [`FaultKind::CrashAfter`], of a commit.
    pub crash_after: u32,
    /// [`FaultKind::CrashBetween`], of a tick.
    pub crash_between: u32,
    /// [`FaultKind::Preemption`], of a commit.
    pub preemption: u32,
    /// [`FaultKind::Pause`], of a commit.
    pub pause: u32,
    /// [`FaultKind::Conflict`], of a commit.
    pub conflict: u32,
    /// [`FaultKind::JumpForward`], of a tick.
    pub jump_forward: u32,
    /// [`FaultKind::JumpBack`], of a tick.
    pub jump_back: u32,
    /// [`FaultKind::Full`], of a commit.
    pub full: u32,
    /// [`FaultKind::Slow`], of a step's pass.
    pub slow: u32,
    /// [`FaultKind::Stall`], of a step's pass.
    pub stall: u32,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        crash_before: 0,
        crash_after: 0,
        crash_between: 0,
        preemption: 0,
        pause: 0,
        conflict: 0,
        jump_forward: 0,
        jump_back: 0,
        full: 0,
        slow: 0,
        stall: 0,
    };
    /// Everything does, now and then.
    pub const ALL: Self = Self {
        crash_before: 15,
        crash_after: 15,
        crash_between: 10,
        preemption: 150,
        pause: 60,
        conflict: 30,
        jump_forward: 10,
        jump_back: 10,
        full: 15,
        slow: 30,
        stall: 30,
    };
}

/// What survives a crash: opened at the start, and again after each crash.
pub trait Ground {
    /// Opens what there is: at first, or after what ended the life before. After [`FaultKind::CrashAfter`] and [`FaultKind::Broken`]
    /// nobody was told of the last commit, so that it need not be there.
    ///
    /// # Errors
    /// If it cannot be opened.
    fn open(&mut self, after: Option<FaultKind>) -> Result<Arc<dyn Substrate>>;
}

impl Ground for ModelSubstrate {
    fn open(&mut self, _after: Option<FaultKind>) -> Result<Arc<dyn Substrate>> {
        Ok(Arc::new(self.clone()))
    }
}

type MakeWorkers = dyn Fn(&Runtime) -> Vec<Worker> + Send + Sync;
type Configure = dyn Fn(Builder, &VirtualClock) -> Builder;

/// Workers, a store and a clock, under faults.
pub struct World<G = ModelSubstrate> {
    seed: u64,
    ground: G,
    clock: VirtualClock,
    state: Arc<Mutex<State>>,
    make: Box<MakeWorkers>,
    configure: Box<Configure>,
    runtime: Runtime,
}

/// What the world and its substrate share.
struct State {
    chance: Chance,
    faults: Faults,
    hits: BTreeMap<FaultKind, u64>,
    /// Workers, and an empty place where one is at work.
    workers: Vec<Option<Worker>>,
    /// How many ticks are inside each other.
    depth: usize,
    /// What ended this life.
    crash: Option<FaultKind>,
    /// How many commits were refused for want of room, and nobody has said so yet.
    refused: u64,
    /// The runtime, of this life.
    runtime: Option<Runtime>,
    /// What was found wrong where nobody could be told.
    trouble: Option<Error>,
}

/// How many ticks may be inside each other: more show nothing new.
const DEPTH_MAX: usize = 3;
/// Time that passes with each tick of the world.
const TICK: Duration = Duration::from_millis(7);
/// Rounds without an end are a livelock.
const SETTLE_ROUNDS_MAX: usize = 10_000;

impl World<ModelSubstrate> {
    /// A world whose store is the model.
    ///
    /// # Errors
    /// If the runtime does not start.
    pub fn in_memory(seed: u64, make: impl Fn(&Runtime) -> Vec<Worker> + Send + Sync + 'static) -> Result<Self> {
        Self::new(seed, ModelSubstrate::new(), make, |builder, _| builder)
    }
}

impl<G: Ground> World<G> {
    /// A world on this ground, with these workers and a runtime configured like this. Faults are off at first.
    ///
    /// # Errors
    /// If the ground cannot be opened or the runtime does not start.
    pub fn new(
        seed: u64,
        mut ground: G,
        make: impl Fn(&Runtime) -> Vec<Worker> + Send + Sync + 'static,
        configure: impl Fn(Builder, &VirtualClock) -> Builder + 'static,
    ) -> Result<Self> {
        let clock = VirtualClock::default();
        let state = State {
            chance: Chance::new(seed),
            faults: Faults::NONE,
            hits: BTreeMap::new(),
            workers: Vec::new(),
            depth: 0,
            crash: None,
            refused: 0,
            runtime: None,
            trouble: None,
        };
        let state = Arc::new(Mutex::new(state));
        let configure: Box<Configure> = Box::new(configure);
        let runtime = start(&mut ground, None, &state, &clock, seed, &configure)?;
        let make: Box<MakeWorkers> = Box::new(make);
        let workers = make(&runtime).into_iter().map(Some).collect();
        lock(&state).begin(&runtime, workers);
        Ok(Self { seed, ground, clock, state, make, configure, runtime })
    }

    /// The same world with these faults.
    #[must_use]
    pub fn faults(self, faults: Faults) -> Self {
        self.set_faults(faults);
        self
    }

    /// Other faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.state).faults = faults;
    }

    /// The runtime, of this life.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// What survives crashes.
    #[must_use]
    pub fn ground(&self) -> &G {
        &self.ground
    }

    /// What survives crashes, to be changed.
    pub fn ground_mut(&mut self) -> &mut G {
        &mut self.ground
    }

    /// Whether everything died and waits to be started again.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        lock(&self.state).crash.is_some()
    }

    /// How often each fault happened.
    #[must_use]
    pub fn hits(&self) -> BTreeMap<FaultKind, u64> {
        lock(&self.state).hits.clone()
    }

    /// Words that say how to see it again.
    #[must_use]
    pub fn replay(&self) -> String {
        format!("seed {}", self.seed)
    }

    /// Ends everything, as a crash would, and starts again on what is there.
    ///
    /// # Errors
    /// If the ground cannot be opened or the runtime does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.runtime.stop();
        let mut state = lock(&self.state);
        state.workers.clear();
        let faults = std::mem::replace(&mut state.faults, Faults::NONE);
        drop(state);
        self.runtime = self.start_again()?;
        let workers = (self.make)(&self.runtime);
        let mut state = lock(&self.state);
        state.begin(&self.runtime, workers.into_iter().map(Some).collect());
        state.faults = faults;
        Ok(())
    }

    /// Starts on what is there. A ground that breaks meanwhile is opened again.
    fn start_again(&mut self) -> Result<Runtime> {
        loop {
            let after = lock(&self.state).crash.take().unwrap_or(FaultKind::CrashBetween);
            let started = start(&mut self.ground, Some(after), &self.state, &self.clock, self.seed, &self.configure);
            if started.is_ok() || !self.has_crashed() {
                return started;
            }
        }
    }

    /// So many ticks of workers chosen by chance, with whatever goes wrong meanwhile.
    ///
    /// # Errors
    /// What a worker said that no fault explains, or as for [`restart`](Self::restart).
    pub fn run(&mut self, ticks: usize) -> Result<()> {
        for _ in 0..ticks {
            self.clock.advance(TICK);
            self.between_ticks();
            if self.has_crashed() {
                self.restart()?;
            }
            tick_one(&self.state)?;
            if self.has_crashed() {
                self.restart()?;
            }
        }
        Ok(())
    }

    fn between_ticks(&self) {
        let mut state = lock(&self.state);
        let Faults { crash_between, jump_forward, jump_back, .. } = state.faults;
        let day = 86_400_000;
        if state.draw(FaultKind::JumpForward, jump_forward) {
            self.clock.jump(day);
        }
        if state.draw(FaultKind::JumpBack, jump_back) {
            self.clock.jump(-day);
        }
        if state.draw(FaultKind::CrashBetween, crash_between) {
            state.crash = Some(FaultKind::CrashBetween);
        }
    }

    /// Faults off: everything runs, and time passes, until nothing is left to do now or later. Schedules, which have no end, are
    /// not waited for. Answers how many messages were handled.
    ///
    /// # Errors
    /// What a worker says; or `Limit` if it goes on for ever.
    pub fn settle(&mut self) -> Result<usize> {
        self.set_faults(Faults::NONE);
        if self.has_crashed() {
            self.restart()?;
        }
        let mut handled = 0;
        for _ in 0..SETTLE_ROUNDS_MAX {
            // Work takes time: what fails until a moment has come does not fail for ever.
            self.clock.advance(Duration::from_millis(1));
            let mut workers = std::mem::take(&mut lock(&self.state).workers);
            let ticked = tick_all(&mut workers, &mut handled);
            lock(&self.state).workers = workers;
            if self.has_crashed() {
                // What failed before may be told only now.
                self.restart()?;
                continue;
            }
            if ticked? {
                match self.next_wake()? {
                    Some(pause) => self.clock.advance(pause.max(Duration::from_millis(1))),
                    None => return Ok(handled),
                }
            }
        }
        Err(Error::Limit {
            of: "rounds to settle",
            most: SETTLE_ROUNDS_MAX as u64,
            found: SETTLE_ROUNDS_MAX as u64 + 1,
        })
    }

    /// How long to wait for a timer or a lease.
    fn next_wake(&self) -> Result<Option<Duration>> {
        let now = self.clock.now();
        let timer =
            self.runtime.timers(1)?.first().map(|(key, _)| {
                Duration::from_millis(u64::try_from(key.due.0.saturating_sub(now.wall.0)).unwrap_or(0))
            });
        let state = lock(&self.state);
        let leases = state.workers.iter().flatten().filter_map(Worker::idle_without_timers);
        Ok(leases.chain(timer).min())
    }
}

impl State {
    /// A life begins.
    fn begin(&mut self, runtime: &Runtime, workers: Vec<Option<Worker>>) {
        self.workers = workers;
        self.runtime = Some(runtime.clone());
    }

    /// Whether a commit that was refused for want of room explains itself so.
    fn forgive(&mut self) -> bool {
        let is_explained = self.refused > 0;
        self.refused = self.refused.saturating_sub(1);
        is_explained
    }

    fn draw(&mut self, kind: FaultKind, thousandths: u32) -> bool {
        let is_hit = thousandths > 0 && self.chance.next_u64() % 1000 < u64::from(thousandths);
        if is_hit {
            *self.hits.entry(kind).or_default() += 1;
        }
        is_hit
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(
    ground: &mut impl Ground,
    after: Option<FaultKind>,
    state: &Arc<Mutex<State>>,
    clock: &VirtualClock,
    seed: u64,
    configure: &Configure,
) -> Result<Runtime> {
    let faulty = Arc::new(Faulty { inner: ground.open(after)?, state: Arc::clone(state), clock: clock.clone() });
    let dawdle = Dawdle { state: Arc::clone(state), clock: clock.clone(), ground: Arc::clone(&faulty) };
    let builder = Runtime::builder(faulty, Arc::new(clock.clone())).seed(seed).observer(Arc::new(dawdle));
    configure(builder, clock).start()
}

/// Lets one worker tick that is not at work. A crash is no error; any other trouble is.
fn tick_one(state: &Mutex<State>) -> Result<()> {
    let taken = {
        let mut state = lock(state);
        let idle: Vec<usize> = (0..state.workers.len()).filter(|at| state.workers[*at].is_some()).collect();
        if idle.is_empty() || state.crash.is_some() {
            return Ok(());
        }
        let at = idle[usize::try_from(state.chance.next_u64() % idle.len() as u64).unwrap_or(0)];
        state.depth += 1;
        let tick = if state.chance.next_u64().is_multiple_of(2) { Worker::tick_early } else { Worker::tick_in_turns };
        state.workers[at].take().map(|worker| (at, worker, tick))
    };
    let Some((at, mut worker, tick)) = taken else { return Ok(()) };
    let result = tick(&mut worker);
    let mut state = lock(state);
    state.depth -= 1;
    if let Some(place) = state.workers.get_mut(at) {
        *place = Some(worker);
    }
    if let Some(trouble) = state.trouble.take() {
        return Err(trouble);
    }
    match result {
        // The worker is as it was, and ticks again some time.
        Err(Error::Store(kauri_tree::Error::Full)) if state.forgive() => Ok(()),
        Err(error) if state.crash.is_none() => Err(error),
        _ => Ok(()),
    }
}

/// Lets all workers tick, and adds up what they handled. Answers whether there was nothing to do.
fn tick_all(workers: &mut [Option<Worker>], handled: &mut usize) -> Result<bool> {
    let mut is_idle = true;
    for worker in workers.iter_mut().flatten() {
        let tick = worker.tick()?;
        *handled += tick.handled;
        is_idle &= tick.is_idle() && matches!(tick.rest, Rest::Idle | Rest::Stopped);
    }
    Ok(is_idle)
}

/// A substrate at whose commits things go wrong.
struct Faulty {
    inner: Arc<dyn Substrate>,
    state: Arc<Mutex<State>>,
    clock: VirtualClock,
}

/// What everybody hears who is there when it happens.
fn crashed() -> Error {
    Error::Substrate("the world has crashed".into())
}

impl Faulty {
    fn check(&self) -> Result<()> {
        if lock(&self.state).crash.is_some() { Err(crashed()) } else { Ok(()) }
    }

    fn crash(&self, kind: FaultKind) -> Error {
        lock(&self.state).crash = Some(kind);
        crashed()
    }

    /// Notes that the ground broke.
    fn noting<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Store(kauri_tree::Error::Io(_) | kauri_tree::Error::Broken)) = &result {
            let mut state = lock(&self.state);
            *state.hits.entry(FaultKind::Broken).or_default() += 1;
            state.crash = Some(FaultKind::Broken);
        }
        result
    }

    fn draw(&self, kind: FaultKind, of: impl Fn(&Faults) -> u32) -> bool {
        let mut state = lock(&self.state);
        let thousandths = of(&state.faults);
        state.draw(kind, thousandths)
    }
}

impl Faulty {
    /// Lets everybody see what was committed early: whoever commits waits until everything before is written.
    fn show_everything(&self) -> Result<()> {
        let mut nothing = Change { durability: Durability::None, ..Change::default() };
        nothing.remove(LEASES, *b"nobody's");
        self.noting(self.inner.commit(&nothing.into())).map(drop)
    }

    /// Makes a commit, with whatever goes wrong before and after it.
    fn around<T>(&self, commit: impl FnOnce() -> Result<T>, refuse: impl FnOnce(Conflict) -> T) -> Result<T> {
        self.check()?;
        if self.draw(FaultKind::Preemption, |faults| faults.preemption) {
            interlude(&self.state, 1)?;
        }
        if self.draw(FaultKind::Pause, |faults| faults.pause) {
            self.clock.advance(Duration::from_secs(3));
            interlude(&self.state, 2)?;
        }
        if self.draw(FaultKind::Conflict, |faults| faults.conflict) {
            return Ok(refuse(Conflict { table: "no table".into(), key: Box::default() }));
        }
        if self.draw(FaultKind::Full, |faults| faults.full) {
            lock(&self.state).refused += 1;
            return Err(Error::Store(kauri_tree::Error::Full));
        }
        if self.draw(FaultKind::CrashBefore, |faults| faults.crash_before) {
            return Err(self.crash(FaultKind::CrashBefore));
        }
        let done = self.noting(commit())?;
        if self.draw(FaultKind::CrashAfter, |faults| faults.crash_after) {
            return Err(self.crash(FaultKind::CrashAfter));
        }
        Ok(done)
    }
}

impl Faulty {
    /// Waits for what is on its way: others run, or everything dies, before it is durable, or after that and before anybody was told.
    fn on_its_way<T>(&self, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.draw(FaultKind::Preemption, |faults| faults.preemption) {
            interlude(&self.state, 1)?;
        }
        if self.draw(FaultKind::CrashEarly, |faults| faults.crash_before) {
            return Err(self.crash(FaultKind::CrashEarly));
        }
        let waited = self.noting(wait())?;
        if self.draw(FaultKind::CrashAfter, |faults| faults.crash_after) {
            return Err(self.crash(FaultKind::CrashAfter));
        }
        Ok(waited)
    }
}

/// Others run.
fn interlude(state: &Mutex<State>, ticks: usize) -> Result<()> {
    for _ in 0..ticks {
        if lock(state).depth < DEPTH_MAX {
            tick_one(state)?;
        }
    }
    if lock(state).crash.is_some() { Err(crashed()) } else { Ok(()) }
}

impl Substrate for Faulty {
    fn snapshot(&self) -> Result<Box<dyn Rows + '_>> {
        self.check()?;
        self.inner.snapshot()
    }

    fn commit(&self, change: &Arc<Change>) -> Result<Verdict> {
        self.around(|| self.inner.commit(change), Verdict::Conflict)
    }

    fn commit_early(&self, change: &Arc<Change>, after: &Early) -> Result<(Verdict, Early)> {
        let refuse = |conflict| (Verdict::Conflict(conflict), Early::default());
        self.around(|| self.inner.commit_early(change, after), refuse)
    }

    fn snapshot_with(&self, early: &Early) -> Result<Box<dyn Rows + '_>> {
        self.check()?;
        self.inner.snapshot_with(early)
    }

    fn wait(&self, early: &Early) -> Result<()> {
        self.check()?;
        match early.is_done() {
            true => self.inner.wait(early),
            false => self.on_its_way(|| self.inner.wait(early)),
        }
    }

    fn post(&self, change: &Arc<Change>) -> Result<Posted> {
        self.around(|| self.inner.post(change), |conflict| Posted::done(Verdict::Conflict(conflict)))
    }

    fn settle(&self, posted: Posted) -> Result<Verdict> {
        self.check()?;
        match posted.is_done() {
            true => self.inner.settle(posted),
            false => self.on_its_way(|| self.inner.settle(posted)),
        }
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn watch(&self, table: &'static str, prefix: &[u8], signal: &Arc<Signal>) {
        self.inner.watch(table, prefix, signal);
    }
}

impl<G> Drop for World<G> {
    /// Workers know the runtime, which knows this state.
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.runtime = None;
        let workers = std::mem::take(&mut state.workers);
        drop(state);
        drop(workers);
    }
}

impl<G> fmt::Debug for World<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).finish_non_exhaustive()
    }
}
