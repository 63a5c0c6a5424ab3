//! A trial of the whole system: workers, timers and a store on a simulated disk, under every fault there is.
//!
//! Orders come in, some of them twice, some poisonous, some at a bad moment. The first worker takes money from an account; the second,
//! of which there are two instances that read nothing, passes it on; the third, of which there may be several, lays it by and sets a
//! timer; the fourth gives it to another account when the timer comes.
//! Now and then a handler gets no memory, or writes more than its block may hold, and some renew their lease on the way.
//! Whatever crashes meanwhile: in the end no money is lost or made, each order was carried out once, in order where there is one
//! worker, no timer came early, and each poisonous message is a dead letter after exactly its budget.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kauri_runtime::planted::Bug;
use kauri_runtime::testing::{FaultKind, Faults, VirtualClock, World};
use kauri_runtime::{
    Atomic, BlockLimits, Builder, Clock, Error, Failure, Observation, Observer, Policy, Read, Reason, Runtime, StepEnd,
    Worker, Write,
};
use kauri_tree::Table;
use kauri_wire::{Flags, InboxKey, Message, MessageId, MessageRef, Timestamp, WorkerId};

use crate::fault::Hits;
use crate::ground::DiskGround;
use crate::rng::Rng;
use crate::shrink::{self, Shrink};

const TAKE: WorkerId = WorkerId(1);
const LAY_BY: WorkerId = WorkerId(-2);
const GIVE: WorkerId = WorkerId(3);
const PASS_ON: WorkerId = WorkerId(i64::MIN);

const ACCOUNTS: Table<u64, u64> = Table::new("accounts");
/// Money on its way, by order.
const LAID_BY: Table<u64, u64> = Table::new("laid by");
/// How often each order was carried out, at each worker.
const DONE: Table<(u8, u64), u64> = Table::new("done");
/// In which place each order was taken.
const PLACES: Table<u64, u64> = Table::new("places");

/// Never more than wanted.
const SCRATCH: Table<u64, [u8]> = Table::new("scratch");

const ACCOUNTS_MAX: u64 = 5;
const BALANCE: u64 = 1000;

/// A world to be tried. Everything in it follows from the seed, but faults and orders can be fewer, to find a shorter story.
#[derive(Clone, Debug)]
pub struct WorldTrial {
    /// The seed.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// Whether the disk fails now and then.
    pub disk_fails: bool,
    /// How many orders there are.
    pub orders: u64,
    /// A bug to be found.
    pub bug: Option<Bug>,
}

/// What happened in a world.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// How often each fault happened.
    pub faults: BTreeMap<FaultKind, u64>,
    /// What happened to the disk.
    pub disk: Hits,
    /// How many lives there were.
    pub lives: u64,
    /// Messages handled, requeued, buried, and those that others had taken over.
    pub handled: u64,
    /// How often a handler got no memory.
    pub starved: u64,
    /// How often a block was to hold more than it may.
    pub overfull: u64,
}

impl WorldTrial {
    /// The world of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::of(seed, &[1]);
        Self { seed, faults: Faults::ALL, disk_fails: true, orders: 4 + rng.below(12), bug: None }
    }

    /// The same world with this bug in it.
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        Self { bug: Some(bug), ..self }
    }

    /// Lets the world run and looks at what is left.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn run(&self) -> Result<Story, String> {
        let mut rng = Rng::of(self.seed, &[2]);
        let page_bytes = *rng.pick(&[256, 512, 1024, 4096]);
        let ground = DiskGround::new(self.seed, page_bytes, if self.disk_fails { 6 } else { 0 });
        let policy = policy(&mut rng);
        let instances = 1 + rng.index(3);
        let (bug, own, seen) = (self.bug, policy.clone(), Seen::default());
        let watch = seen.clone();
        let configure = move |builder: Builder, clock: &VirtualClock| {
            watch.lock().unwrap_or_else(PoisonError::into_inner).begin_life();
            let builder = builder
                .policy(own.clone())
                .limits(BlockLimits { written_bytes_max: WRITTEN_BYTES_MAX, ..BlockLimits::default() })
                .observer(Arc::new(Lookout { clock: clock.clone(), seen: watch.clone() }));
            match bug {
                Some(bug) => builder.planted(bug),
                None => builder,
            }
        };
        let workers = move |runtime: &Runtime| workers(runtime, instances);
        let world = World::new(self.seed, ground, workers, configure).map_err(words)?;
        let mut trial = Running { world, orders: self.orders, policy, rng, seen };
        trial.world.set_faults(self.faults);
        trial.run().map_err(|error| format!("{error} (seed {})", self.seed))
    }

    /// A world as small as can be found that fails as well.
    #[must_use]
    pub fn shrunk(self) -> Self {
        shrink::shrunk(self)
    }
}

impl Shrink for WorldTrial {
    fn fails(&self) -> bool {
        self.run().is_err()
    }

    fn faults(&mut self) -> (&mut Faults, &mut bool) {
        (&mut self.faults, &mut self.disk_fails)
    }

    fn size(&mut self) -> &mut u64 {
        &mut self.orders
    }
}

/// What was seen on the way.
#[derive(Default)]
struct Sights {
    /// Timers that fired before they were due, and messages that were told to be done with and then handled again.
    wrong: Vec<String>,
    /// Messages that were told to be done with: in earlier lives, and in this one. In this one somebody who has lost a message may handle it
    /// in vain.
    told_before: BTreeSet<InboxKey>,
    told: BTreeSet<InboxKey>,
    starved: u64,
    overfull: u64,
}

impl Sights {
    fn begin_life(&mut self) {
        let told = std::mem::take(&mut self.told);
        self.told_before.extend(told);
    }
}

type Seen = Arc<Mutex<Sights>>;

/// Looks at the clock whenever a timer fires, and at why steps fail.
struct Lookout {
    clock: VirtualClock,
    seen: Seen,
}

impl Observer for Lookout {
    fn observe(&self, observation: &Observation<'_>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match observation {
            Observation::TimerFired { key, .. } => {
                let now = self.clock.now().wall;
                if now < key.due {
                    seen.wrong.push(format!("a timer fired at {} that was due at {}", now.0, key.due.0));
                }
            }
            // Their numbers are never used twice, and whatever is told is durable.
            Observation::StepBegan { key, .. } if seen.told_before.contains(key) => {
                seen.wrong.push(format!("message {key:?} was told to be done with and is handled again"));
            }
            Observation::StepEnded { end: StepEnd::Superseded, .. } => {}
            Observation::StepEnded { key, end, .. } => {
                seen.told.insert(*key);
                if let StepEnd::Requeued { reason, .. } = end {
                    seen.starved += u64::from(reason.starts_with(STARVED));
                    seen.overfull += u64::from(reason.starts_with(OVERFULL));
                }
            }
            _ => {}
        }
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What can be tuned, by chance.
fn policy(rng: &mut Rng) -> Policy {
    let retry_pause = *rng.pick(&[Duration::ZERO, Duration::ZERO, Duration::from_millis(20)]);
    Policy {
        batch_messages_max: *rng.pick(&[1, 2, 5, 64]),
        // Crashes and pauses are many here; they must not bury what is good.
        delivery_budget: 1000,
        failure_budget: 1 + u32::try_from(rng.below(3)).expect("small"),
        passes_max: *rng.pick(&[2, 4, 30]),
        retry_pause,
        dedupe_for: Duration::from_hours(10_000),
        early_messages_min: *rng.pick(&[1, 1, 3, usize::MAX]),
        ..Policy::default()
    }
}

/// The workers: one that takes, several that lay by, one that gives.
fn workers(runtime: &Runtime, instances: usize) -> Vec<Worker> {
    // Conflicts and bad moments are many here, and no reason to give a message up.
    let patient = Policy { retry_budget: 1_000_000, ..runtime.policy().clone() };
    // Where order counts, a step is not put off because of conflicts.
    let orderly = Policy { passes_max: 30, ..patient.clone() };
    let worker = |id, policy: &Policy, handler: HandlerFn| runtime.worker_with(id, policy.clone(), handler);
    let mut all = vec![worker(TAKE, &orderly, take), worker(GIVE, &patient, give)];
    all.extend((0..2).map(|_| worker(PASS_ON, &patient, pass_on)));
    all.extend((0..instances).map(|_| worker(LAY_BY, &patient, lay_by)));
    all
}

type HandlerFn = fn(&mut Atomic<'_>, MessageRef<'_>) -> Result<(), Failure>;

/// An order's number, from the id of its messages.
fn number(message: MessageRef<'_>) -> Result<u64, Failure> {
    let id = std::str::from_utf8(message.id()).map_err(Failure::fatal)?;
    id.rsplit('-').next().and_then(|number| number.parse().ok()).ok_or_else(|| Failure::fatal("an id with a number"))
}

fn done(block: &mut Atomic<'_>, worker: u8, order: u64) -> Result<(), Failure> {
    let times = block.get(&DONE, (worker, order))?.unwrap_or(0);
    Ok(block.put(&DONE, (worker, order), times + 1)?)
}

fn balance(block: &Atomic<'_>, account: u64) -> Result<u64, Failure> {
    Ok(block.get(&ACCOUNTS, account)?.unwrap_or(BALANCE))
}

fn take(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let order = number(message)?;
    if message.payload() == b"poison" {
        block.put(&ACCOUNTS, 0, 0)?;
        return Err(Failure::fatal("poison"));
    }
    let account = order % ACCOUNTS_MAX;
    let amount = 1 + order % 7;
    let left = balance(block, account)?.checked_sub(amount).ok_or_else(|| Failure::fatal("no money"))?;
    block.put(&ACCOUNTS, account, left)?;
    let place = block.len(&PLACES)?;
    block.put(&PLACES, order, place)?;
    done(block, 1, order)?;
    let id = MessageId::new(format!("lay-{order}"))?;
    block.emit(&Message::command(PASS_ON, id, amount.to_le_bytes()))?;
    // A nest that vanishes leaves nothing.
    let vanished: Result<(), Failure> = block.nest(|block| {
        block.put(&ACCOUNTS, account, 0)?;
        block.emit(&Message::command(GIVE, MessageId::new("never-1")?, ""))?;
        Err(Failure::retry("changed my mind"))
    });
    debug_assert!(vanished.is_err(), "it said so");
    Ok(())
}

/// Reads nothing, so that nothing but its lease and its message can tell that it comes too late.
fn pass_on(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    if (block.now().wall.0 / 7 + i64::try_from(number(message)?).unwrap_or(0)) % 5 == 0 {
        return Err(Failure::retry("not now"));
    }
    Ok(block.emit(&Message { to: LAY_BY, ..message.to_message() })?)
}

const STARVED: &str = "no memory";
const OVERFULL: &str = "too much to write";
const WRITTEN_BYTES_MAX: usize = 64 << 10;

/// Asks for more memory than any machine has.
fn get_memory() -> Result<(), Failure> {
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(isize::MAX.unsigned_abs()).map_err(|error| Failure::retry(format!("{STARVED}: {error}")))
}

fn write_too_much(block: &mut Atomic<'_>) -> Result<(), Failure> {
    let rows = 2 * u64::try_from(WRITTEN_BYTES_MAX / 1000).unwrap_or(u64::MAX);
    let mut write = |row| block.put(&SCRATCH, row, &[7; 1000]);
    (0..rows).try_for_each(&mut write).map_err(|error| Failure::retry(format!("{OVERFULL}: {error}")))
}

fn lay_by(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let order = number(message)?;
    let amount = u64::from_le_bytes(message.payload().try_into().map_err(|_| Failure::fatal("eight bytes"))?);
    match (block.now().wall.0 / 7 + i64::try_from(order).unwrap_or(0)).rem_euclid(20) {
        0 | 4 | 8 | 14 => return Err(Failure::retry("a bad moment")),
        12 => get_memory()?,
        16 => write_too_much(block)?,
        // Whether it is still ours or not, the commit will tell.
        2 | 6 => drop(block.renew()?),
        _ => {}
    }
    // The sum is the last row, and is seen by a scan alone: wrong if what others wrote meanwhile was not noticed.
    let mut total = 0;
    let mut rows = block.scan(&LAID_BY)?;
    while let Some((other, amount)) = rows.next()? {
        total = if other == u64::MAX { amount } else { total };
    }
    drop(rows);
    block.put(&LAID_BY, order, amount)?;
    block.put(&LAID_BY, u64::MAX, total.wrapping_add(amount))?;
    done(block, 2, order)?;
    let due = block.now().wall.0 + 20 + i64::try_from(order % 5).unwrap_or(0);
    let id = MessageId::new(format!("give-{order}"))?;
    block.arm(Timestamp(due), &Message::timer(GIVE, id, ""))?;
    Ok(())
}

fn give(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let order = number(message)?;
    let amount = block.get(&LAID_BY, order)?.ok_or_else(|| Failure::fatal("nothing was laid by"))?;
    block.remove(&LAID_BY, order)?;
    let total = block.get(&LAID_BY, u64::MAX)?.unwrap_or(0);
    block.put(&LAID_BY, u64::MAX, total.wrapping_sub(amount))?;
    let account = (order + 1) % ACCOUNTS_MAX;
    let balance = balance(block, account)?;
    block.put(&ACCOUNTS, account, balance + amount)?;
    done(block, 3, order)
}

/// A world under way.
struct Running {
    world: World<DiskGround>,
    orders: u64,
    policy: Policy,
    rng: Rng,
    seen: Seen,
}

impl Running {
    fn run(&mut self) -> Result<Story, String> {
        for order in 0..self.orders {
            self.send(order)?;
            if self.rng.chance(1, 4) {
                // Somebody did not hear the answer and sends it again.
                self.send(order)?;
            }
            let ticks = self.rng.index(8);
            self.world.run(ticks).map_err(words)?;
        }
        self.world.run(80).map_err(words)?;
        let lives = self.world.runtime().incarnation();
        self.world.ground_mut().heal();
        self.world.settle().map_err(words)?;
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(wrong) = seen.wrong.first() {
            return Err(wrong.clone());
        }
        self.check()?;
        let (faults, disk) = (self.world.hits(), self.world.ground().hits());
        let handled = self.world.runtime().metrics().steps;
        Ok(Story { faults, disk, lives, handled, starved: seen.starved, overfull: seen.overfull })
    }

    fn is_poison(order: u64) -> bool {
        order % 6 == 5
    }

    /// Sends an order until somebody says that it arrived. It may arrive more than once.
    fn send(&mut self, order: u64) -> Result<(), String> {
        let payload = if Self::is_poison(order) { "poison" } else { "order" };
        let id = MessageId::new(format!("order-{order}")).map_err(words)?;
        let flags = if order % 7 == 3 { Flags::DEDUPE_REQUIRED | Flags::HIGH_PRIORITY } else { Flags::DEDUPE_REQUIRED };
        let message = Message::command(TAKE, id, payload).with(flags);
        for _ in 0..1000 {
            match self.world.runtime().send(&message) {
                Ok(_) => return Ok(()),
                Err(_) if self.world.has_crashed() => self.world.restart().map_err(words)?,
                // There may be room another time.
                Err(Error::Store(kauri_tree::Error::Full)) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("a message could not be sent in a thousand lives".to_owned())
    }

    fn check(&self) -> Result<(), String> {
        let runtime = self.world.runtime();
        let gauges = runtime.gauges().map_err(words)?;
        let left =
            [("inbox", gauges.inbox), ("leases", gauges.leases), ("timers", gauges.timers), ("outbox", gauges.outbox)];
        if let Some((table, rows)) = left.into_iter().find(|(_, rows)| *rows > 0) {
            return Err(format!("{rows} rows are left in {table}"));
        }
        self.check_orders(runtime)?;
        self.check_dead_letters(runtime)?;
        Self::check_money(runtime)?;
        self.check_places(runtime)
    }

    /// Each order was carried out once at each worker, and each poisonous one at none.
    fn check_orders(&self, runtime: &Runtime) -> Result<(), String> {
        for order in 0..self.orders {
            for worker in 1..=3 {
                let times = runtime.read(|view| view.get(&DONE, (worker, order))).map_err(words)?.unwrap_or(0);
                let expected = u64::from(!Self::is_poison(order));
                if times != expected {
                    return Err(format!(
                        "order {order} was carried out {times} times by worker {worker}, not {expected}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Every poisonous message, and nothing else, is a dead letter, after exactly its budget.
    fn check_dead_letters(&self, runtime: &Runtime) -> Result<(), String> {
        let letters = runtime.dead_letters(None, None, 1000).map_err(words)?;
        let mut buried = BTreeMap::new();
        for (_, letter) in &letters {
            let message = MessageRef::decode(&letter.frame).map_err(words)?;
            let order = number(message).map_err(words)?;
            if letter.reason != Reason::FailuresSpent || letter.failures != self.policy.failure_budget {
                return Err(format!(
                    "order {order} was buried because: {}, {}, {} failures",
                    letter.reason.as_str(),
                    letter.detail,
                    letter.failures
                ));
            }
            *buried.entry(order).or_insert(0) += 1;
        }
        match (0..self.orders).find(|order| Self::is_poison(*order) != buried.contains_key(order)) {
            Some(order) => Err(format!("order {order} is buried {:?} times", buried.get(&order))),
            None => Ok(()),
        }
    }

    fn check_money(runtime: &Runtime) -> Result<(), String> {
        let (mut total, mut laid_by) = (0, None);
        for account in 0..ACCOUNTS_MAX {
            total += runtime.read(|view| view.get(&ACCOUNTS, account)).map_err(words)?.unwrap_or(BALANCE);
        }
        runtime
            .read(|view| {
                laid_by = view.get(&LAID_BY, u64::MAX)?;
                Ok::<_, Error>(())
            })
            .map_err(words)?;
        match (total, laid_by.unwrap_or(0)) {
            (total, 0) if total == ACCOUNTS_MAX * BALANCE => Ok(()),
            (total, laid_by) => {
                Err(format!("{total} in the accounts and {laid_by} laid by, not {} and 0", ACCOUNTS_MAX * BALANCE))
            }
        }
    }

    /// The first worker has one instance: what never failed was taken in the order in which it was sent, urgent orders aside.
    fn check_places(&self, runtime: &Runtime) -> Result<(), String> {
        let mut last = None;
        for order in (0..self.orders).filter(|order| !Self::is_poison(*order) && order % 7 != 3) {
            let place = runtime.read(|view| view.get(&PLACES, order)).map_err(words)?;
            if place <= last {
                return Err(format!("order {order} was taken in place {place:?}, after {last:?}"));
            }
            last = place;
        }
        Ok(())
    }
}
