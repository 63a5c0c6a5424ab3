//! `kauri demo --crash`: the work in a process that kills itself, and one that starts it again.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use kauri::runtime::{Observation, Observer};

use super::life::Told;
use super::order::{Plan, mix};

/// How many things the process does for an order, about: a step for each worker has a beginning and an end, and a timer fires.
const POINTS_PER_ORDER: u64 = 7;
/// The most points of a life that dies when only invoices are missing, and of some that die soon.
const FEW_POINTS: u64 = 30;
/// The longest time that a process is killed after a point: so it dies in the middle of things, too.
const LAG_MICROS: u64 = 1_500;

/// Which life of the process this is: nothing for people, so no flag of theirs.
pub(super) const LIFE: &str = "KAURI_DEMO_LIFE";

/// Points at which the process may die. They are counted, and at one of them, or a little later, it does.
#[derive(Debug)]
pub(super) struct Points {
    left: AtomicI64,
    lag_micros: AtomicU64,
    /// Points are counted from the close of the day on.
    waits: AtomicBool,
}

impl Points {
    /// Nobody dies.
    pub(super) const fn harmless() -> Self {
        Self { left: AtomicI64::new(i64::MAX), lag_micros: AtomicU64::new(0), waits: AtomicBool::new(false) }
    }

    /// Says when this life ends, by the seed of the demo and the number of the life: the first two thirds die at work on the orders,
    /// the others at the close of the day.
    pub(super) fn arm(&self, plan: Plan, life: u64, kills: u64) {
        let chance = mix(plan.seed ^ mix(life << 32));
        let waits = life * 3 > kills * 2;
        let most = match chance % 3 {
            _ if waits => FEW_POINTS,
            0 => FEW_POINTS,
            _ => plan.orders * POINTS_PER_ORDER * 2 / kills.max(1),
        };
        let count = 1 + (chance >> 8) % most.max(1);
        let lag = if chance & 128 == 0 { 0 } else { (chance >> 40) % LAG_MICROS };
        self.waits.store(waits, Ordering::Relaxed);
        self.lag_micros.store(lag, Ordering::Relaxed);
        self.left.store(i64::try_from(count).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// The close of the day has come.
    pub(super) fn close(&self) {
        self.waits.store(false, Ordering::Relaxed);
    }

    /// A few lives do not even get through their start.
    pub(super) fn arm_start(plan: Plan, life: u64) {
        let chance = mix(plan.seed ^ mix(life << 33));
        if chance.is_multiple_of(7) {
            die_after(Duration::from_micros((chance >> 8) % 20_000));
        }
    }

    /// One more point.
    pub(super) fn pass(&self) {
        if !self.waits.load(Ordering::Relaxed) && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            match self.lag_micros.load(Ordering::Relaxed) {
                0 => die(),
                lag => die_after(Duration::from_micros(lag)),
            }
        }
    }
}

impl Observer for Points {
    fn observe(&self, observation: &Observation<'_>) {
        if !matches!(observation, Observation::Swept { .. } | Observation::Delivered { .. }) {
            self.pass();
        }
    }
}

fn die_after(lag: Duration) {
    std::thread::spawn(move || {
        std::thread::sleep(lag);
        die();
    });
}

/// Nothing is closed, nothing is said.
fn die() -> ! {
    // Of itself a process may always be rid; and if not, it stands still.
    let _killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}

/// How a life ended.
pub(super) enum End {
    Done,
    Killed,
    /// With these words.
    Failed(String),
}

/// Starts a process that works on the demo of this home, and hands on what it tells.
pub(super) fn live(
    home: &Path,
    plan: Plan,
    life: u64,
    kills: u64,
    tell: &mut dyn FnMut(Told) -> Result<(), super::Trouble>,
) -> Result<End, super::Trouble> {
    let wrong = |what: &str, error: std::io::Error| super::Trouble::Wrong(format!("cannot {what}: {error}"));
    let this = std::env::current_exe().map_err(|error| wrong("find this program", error))?;
    let numbers = [("--orders", plan.orders), ("--seed", plan.seed), ("--kills", kills)];
    let mut command = Command::new(this);
    command.arg("demo").arg("--home").arg(home).env(LIFE, life.to_string());
    for (name, number) in numbers {
        command.arg(name).arg(number.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| wrong("start a process", error))?;
    let told = child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines());
    // A line that was cut off by the kill tells nothing.
    let mut heard = Ok(());
    for told in told.map_while(Result::ok).filter_map(|line| Told::from_line(&line)) {
        heard = tell(told);
        if heard.is_err() {
            // Nobody listens any more: so it is not needed.
            drop(child.kill());
            break;
        }
    }
    let mut words = String::new();
    if let Some(mut out) = child.stderr.take() {
        drop(out.read_to_string(&mut words));
    }
    let status = child.wait().map_err(|error| wrong("wait for a process", error))?;
    heard?;
    Ok(match status.signal() {
        None if status.success() => End::Done,
        Some(9) => End::Killed,
        _ => End::Failed(words.trim().trim_start_matches("kauri: ").to_owned()),
    })
}
