//! One life of the demo: opens the home, takes over what an earlier one left, and works until everything is done.

use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kauri::ledger::{Home, Ledger, Reconciliation};
use kauri::runtime::run::Outcome;
use kauri::runtime::substrate::{KeyRange, Rows, TableName, TreeSubstrate};
use kauri::runtime::{self, Atomic, Failure, Look, Observer, Policy, Pool, Recorder, Runtime, Worker, Write as _};
use kauri::tree::Options;
use kauri::tree::disk::OsDisk;
use kauri::wire::{JobId, Message, MessageId, MessageRef, Timestamp};
use kauri::{Layout, SystemClock};
use serde_json::{Value, json};

use super::crash::Points;
use super::desk::{self, Desk};
use super::order::{
    ACCOUNTING, ACCOUNTS, BOOKS, DEMO, INVOICES, ORDERS, Order, PAYMENT, Plan, SALES, SHIPPING, add, mix, number,
};

/// Orders come in bundles of so many, each in one commit.
const BUNDLE_ORDERS: u64 = 100;
/// How often it is looked how far everything is.
const LOOK: Duration = Duration::from_millis(40);
/// If nothing moves for so long, something is wrong.
const STALLED: Duration = Duration::from_secs(60);

/// What an earlier life left, and is taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Recovered {
    /// How often the home was opened before.
    pub(super) starts: u64,
    /// Messages that the earlier life had claimed.
    pub(super) claimed: u64,
    pub(super) waiting: u64,
    pub(super) timers: u64,
    /// Runs that nobody drives.
    pub(super) runs: u64,
    /// Actions that were begun and have no end.
    pub(super) orphans: u64,
    /// What journal and database did not agree on.
    pub(super) repairs: u64,
}

/// How far everything is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    pub(super) made: u64,
    pub(super) accepted: u64,
    pub(super) paid: u64,
    pub(super) shipped: u64,
    pub(super) buried: u64,
    pub(super) waiting: u64,
    pub(super) timers: u64,
    pub(super) customers: u64,
    pub(super) invoices: u64,
    /// Failures of this life that were worth another try.
    pub(super) retries: u64,
}

impl Tally {
    fn read(rows: &dyn Rows) -> runtime::Result<Self> {
        let sum = |name| Ok::<_, runtime::Error>(number(rows, &BOOKS, name)?.unwrap_or(0));
        let count = |table: &str| rows.count(&TableName::Owned(table.to_owned()), KeyRange::ALL);
        Ok(Self {
            made: number(rows, &DEMO, "made")?.unwrap_or(0),
            accepted: sum("accepted")?,
            paid: sum("paid")?,
            shipped: sum("shipped")?,
            buried: count("dead_letter")?,
            waiting: count("inbox")?,
            timers: count("timers")?,
            customers: count(ACCOUNTS.name())?,
            invoices: count(INVOICES.name())?,
            retries: 0,
        })
    }

    /// Whether every order has come to one of its ends.
    pub(super) const fn is_closing(&self, plan: Plan) -> bool {
        self.shipped + self.buried >= plan.orders
    }
}

/// What a life tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    Recovered(Recovered),
    Tally(Tally),
}

impl Told {
    /// As a line, for another process.
    pub(super) fn to_line(self) -> String {
        let value = match self {
            Self::Recovered(Recovered { starts, claimed, waiting, timers, runs, orphans, repairs }) => {
                json!(["recovered", starts, claimed, waiting, timers, runs, orphans, repairs])
            }
            Self::Tally(tally) => {
                let Tally { made, accepted, paid, shipped, buried, waiting, timers, customers, invoices, retries } =
                    tally;
                json!(["tally", made, accepted, paid, shipped, buried, waiting, timers, customers, invoices, retries])
            }
        };
        value.to_string()
    }

    pub(super) fn from_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let (kind, numbers) = value.as_array()?.split_first()?;
        let numbers: Vec<u64> = numbers.iter().map(Value::as_u64).collect::<Option<_>>()?;
        match (kind.as_str()?, &numbers[..]) {
            ("recovered", &[starts, claimed, waiting, timers, runs, orphans, repairs]) => {
                Some(Self::Recovered(Recovered { starts, claimed, waiting, timers, runs, orphans, repairs }))
            }
            ("tally", &[made, accepted, paid, shipped, buried, waiting, timers, customers, invoices, retries]) => {
                Some(Self::Tally(Tally {
                    made,
                    accepted,
                    paid,
                    shipped,
                    buried,
                    waiting,
                    timers,
                    customers,
                    invoices,
                    retries,
                }))
            }
            _ => None,
        }
    }
}

/// Whether a demo of this plan has nothing left to do.
pub(super) fn is_done(rows: &dyn Rows, plan: Plan) -> runtime::Result<bool> {
    let tally = Tally::read(rows)?;
    let is_closed = number(rows, &BOOKS, "invoiced_cents")?.is_some();
    Ok(is_closed && tally.made >= plan.orders && tally.waiting == 0 && tally.timers == 0)
}

/// Workers at work on a home.
pub(super) struct Life {
    // In this order they are dropped: whoever has the lock goes last.
    pool: Pool,
    runtime: Runtime,
    desk: Arc<Desk>,
    plan: Plan,
    points: Arc<Points>,
}

impl Life {
    /// Opens the home, and takes over what is there.
    pub(super) fn begin(
        layout: &Layout,
        plan: Plan,
        points: &Arc<Points>,
        record: Option<&Path>,
    ) -> Result<(Self, Recovered), String> {
        let (ledger, found) = open_ledger(layout)?;
        let failed = |error: runtime::Error| format!("{}: {error}", layout.store().display());
        let (substrate, mut recovered) = open_store(layout).map_err(failed)?;
        recovered.orphans = found.orphans.len() as u64;
        recovered.repairs = found.repairs.len() as u64;
        let mut builder = Runtime::builder(substrate, Arc::new(SystemClock::new())).seed(plan.seed);
        builder = builder.observer(Arc::clone(points) as Arc<dyn Observer>);
        if let Some(path) = record {
            builder = builder.observer(Arc::new(Recorder::new(create(path)?)));
        }
        let runtime = builder.start().map_err(failed)?;
        keep_plan(&runtime, plan).map_err(failed)?;
        desk::define(&runtime.runs()).map_err(failed)?;
        let desk = Desk::new(ledger, Arc::clone(points)).map_err(|error| format!("the post office: {error}"))?;
        let desk = Arc::new(desk);
        let pool = Pool::start(workers(&runtime, &desk, plan)).map_err(failed)?;
        Ok((Self { pool, runtime, desk, plan, points: Arc::clone(points) }, recovered))
    }

    /// How far everything is.
    pub(super) fn tally(&self) -> runtime::Result<Tally> {
        let retries = self.runtime.metrics().retryable_failures;
        self.runtime.read(|view| Ok(Tally { retries, ..Tally::read(view.as_rows())? }))
    }

    /// Works until everything is done, and tells how far it is.
    pub(super) fn work(self, tell: &mut dyn FnMut(Told) -> Result<(), String>) -> Result<(), String> {
        let worked = self.work_on(tell);
        let Self { pool, runtime, desk, .. } = self;
        // What ended a worker says more than that nothing moves.
        pool.stop().map_err(|error| error.to_string())?;
        worked?;
        drop(runtime);
        desk.ledger.audit().anchor().map(drop).map_err(|error| error.to_string())
    }

    fn work_on(&self, tell: &mut dyn FnMut(Told) -> Result<(), String>) -> Result<(), String> {
        let failed = |error: runtime::Error| error.to_string();
        let (mut last, mut moved, mut closing) = (Tally::default(), Instant::now(), None);
        while !self.pool.is_stopping() {
            let tally = self.tally().map_err(failed)?;
            tell(Told::Tally(tally))?;
            if tally != last {
                (last, moved) = (tally, Instant::now());
            } else if moved.elapsed() > STALLED {
                return Err(format!("nothing has moved for {} s: {tally:?}", STALLED.as_secs()));
            }
            if tally.made < self.plan.orders {
                self.feed(tally.made).map_err(failed)?;
                continue;
            }
            if closing.is_none() && tally.is_closing(self.plan) {
                self.points.close();
                closing = Some(desk::close_day(&self.runtime.runs()).map_err(failed)?.job);
            }
            if let Some(job) = &closing
                && self.is_over(job)?
            {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Err("the workers have stopped".to_owned())
    }

    /// Takes in another bundle of orders, and counts it in the same commit.
    fn feed(&self, made: u64) -> runtime::Result<()> {
        let until = self.plan.orders.min(made + BUNDLE_ORDERS);
        self.points.pass();
        self.runtime.atomic(|block| {
            for order in made + 1..=until {
                block.emit(&self.plan.message(order)?)?;
            }
            block.put(&DEMO, "made", &until.to_string())
        })
    }

    fn is_over(&self, job: &JobId) -> Result<bool, String> {
        let job = self.runtime.runs().job(job).map_err(|error| error.to_string())?;
        match job.outcome {
            None => Ok(false),
            Some(Outcome::Success { .. }) => Ok(true),
            Some(other) => Err(format!("the close of the day ended with {}", other.as_str())),
        }
    }
}

fn open_ledger(layout: &Layout) -> Result<(Ledger, Reconciliation), String> {
    let home = Home::lock(layout.home()).map_err(|error| error.to_string())?;
    Ledger::open(home).map_err(|error| error.to_string())
}

/// Opens the store, and looks at what an earlier life left there.
fn open_store(layout: &Layout) -> runtime::Result<(Arc<TreeSubstrate>, Recovered)> {
    let disk = OsDisk::new(layout.runtime())?;
    let substrate = Arc::new(TreeSubstrate::new(Options::new().open(&disk, "store.kauri")?));
    let look = Look::at(&*substrate)?;
    let recovered = Recovered {
        starts: look.incarnation()?,
        claimed: look.leases(usize::MAX)?.iter().map(|row| row.messages.len() as u64).sum(),
        waiting: look.count("inbox")?,
        timers: look.count("timers")?,
        runs: look.running(usize::MAX)?.len() as u64,
        orphans: 0,
        repairs: 0,
    };
    drop(look);
    Ok((substrate, recovered))
}

fn create(path: &Path) -> Result<std::fs::File, String> {
    let mut options = std::fs::OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes down what the demo is about, if nobody has.
fn keep_plan(runtime: &Runtime, plan: Plan) -> runtime::Result<()> {
    runtime.atomic(|block| {
        block.insert(&DEMO, "orders", &plan.orders.to_string())?;
        block.insert(&DEMO, "seed", &plan.seed.to_string()).map(drop)
    })
}

/// The four workers. That this process is killed is not the messages' fault: so no number of deliveries buries them.
fn workers(runtime: &Runtime, desk: &Arc<Desk>, plan: Plan) -> Vec<Worker> {
    let policy = Policy { delivery_budget: u32::MAX, ..Policy::default() };
    let patient = Policy { retry_budget: u32::MAX, retry_pause: Duration::from_millis(5), ..policy.clone() };
    let desk = Arc::clone(desk);
    vec![
        runtime.worker_with(SALES, policy.clone(), sell),
        runtime.worker_with(PAYMENT, patient, Bank::new(plan)),
        runtime.worker_with(SHIPPING, policy.clone(), ship),
        runtime.run_worker(ACCOUNTING, policy, move |run: &mut runtime::run::LiveRun| desk.drive(run)),
    ]
}

fn sell(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let order = Order::of(message)?;
    block.put(&ORDERS, &order.id, &order.row("accepted"))?;
    add(block, &BOOKS, "accepted", 1)?;
    add(block, &BOOKS, "apples", order.apples)?;
    Ok(block.emit(&Message { to: PAYMENT, ..message.to_message() }.sent_by(SALES))?)
}

/// A bank that is busy when it is first asked about every seventh order, and once more for some of them.
struct Bank {
    plan: Plan,
    refused: BTreeMap<String, u32>,
}

impl Bank {
    const fn new(plan: Plan) -> Self {
        Self { plan, refused: BTreeMap::new() }
    }

    fn answer(&mut self, order: &Order) -> Result<(), Failure> {
        let number = desk::first_number(&order.id).unwrap_or(0);
        let wanted = u32::from(number.is_multiple_of(7)) + u32::from(number.is_multiple_of(49));
        let refused = self.refused.entry(order.id.clone()).or_default();
        if *refused < wanted {
            *refused += 1;
            return Err(Failure::retry("the bank is busy"));
        }
        self.refused.remove(&order.id);
        Ok(())
    }
}

impl runtime::Handler for Bank {
    fn handle(&mut self, block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
        let order = Order::of(message)?;
        self.answer(&order)?;
        block.put(&ORDERS, &order.id, &order.row("paid"))?;
        add(block, &BOOKS, "paid", 1)?;
        add(block, &BOOKS, "paid_cents", order.cents())?;
        let wait = digest(message.id()) % self.plan.pickup_ms();
        let due = Timestamp(block.now().wall.0.saturating_add_unsigned(wait));
        let pickup = Message::timer(SHIPPING, MessageId::new(message.id())?, message.payload()).sent_by(PAYMENT);
        Ok(block.arm(due, &pickup)?)
    }
}

fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| mix(sum ^ u64::from(*byte)))
}

fn ship(block: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    let order = Order::of(message)?;
    block.put(&ORDERS, &order.id, &order.row("shipped"))?;
    add(block, &BOOKS, "shipped", 1)?;
    add(block, &ACCOUNTS, &order.customer, order.cents())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_life_tells_survives_its_line_and_half_a_line_tells_nothing() {
        let tally = Tally { made: 1, accepted: 2, paid: 3, shipped: 4, buried: 5, ..Tally::default() };
        let tally = Tally { waiting: 6, timers: 7, customers: 8, invoices: 9, retries: 10, ..tally };
        let recovered = Recovered { starts: 1, claimed: 2, waiting: 3, timers: 4, runs: 5, orphans: 6, repairs: 7 };
        for told in [Told::Tally(tally), Told::Recovered(recovered)] {
            let line = told.to_line();
            assert_eq!(Told::from_line(&line), Some(told));
            assert!((0..line.len()).all(|end| Told::from_line(&line[..end]).is_none()));
        }
    }
}
