//! A running instance: everything that `kauri up` does, but for what it prints.
//!
//! ```text
//! lock the home ── reconcile the ledger ── end what the last instance left running ── start the runtime, which takes runs over
//!   ── define classes and schedules ── answer the socket ── work: a thread for each run at a time, timers, outbox, sweeps
//! ```
//!
//! Nothing here outlives the lock: it is given back last.
#![expect(clippy::disallowed_methods, reason = "a driver: directories and the time come in here")]

mod children;
mod classes;
mod leftover;
mod stats;
mod upkeep;

use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use kauri_ledger::{AuditNote, Home, Ledger, LockState, Reconciliation};
use kauri_runtime::run::{Artifacts, Files, Recovered, Run, RunFault};
use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::{Error as RuntimeError, Look, Observer, Pool, Runtime};
use kauri_tree::Options;
use kauri_tree::disk::OsDisk;
use kauri_wire::RunId;

use self::children::Children;
pub use self::classes::{Defined, define, define_classes};
use self::stats::{Desk, Failures};
use self::upkeep::{Keeping, Upkeep};
use crate::actions::RunLedger;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::control::Server;
use crate::home::Layout;
use crate::run_table::RunTable;

/// How much of the store is kept in memory.
const CACHE_BYTES: usize = 256 << 20;
/// How many runs that were under way are looked for.
const LEFT_MAX: usize = 100_000;

/// Why an instance does not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum UpError {
    /// The home, its lock or its ledger.
    Ledger(kauri_ledger::Error),
    /// The store or what is in it.
    Runtime(RuntimeError),
    /// The system, and what it was asked.
    System(String, std::io::Error),
}

impl fmt::Display for UpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ledger(error) => write!(f, "{error}"),
            Self::Runtime(error) => write!(f, "the store: {error}"),
            Self::System(doing, error) => write!(f, "cannot {doing}: {error}"),
        }
    }
}

impl std::error::Error for UpError {}

impl From<kauri_ledger::Error> for UpError {
    fn from(error: kauri_ledger::Error) -> Self {
        Self::Ledger(error)
    }
}

impl From<RuntimeError> for UpError {
    fn from(error: RuntimeError) -> Self {
        Self::Runtime(error)
    }
}

impl From<kauri_tree::Error> for UpError {
    fn from(error: kauri_tree::Error) -> Self {
        Self::Runtime(error.into())
    }
}

/// What a start found, and did about it.
#[derive(Debug)]
#[must_use]
pub struct Account {
    /// Who had the lock and ended without giving it back.
    pub died: Option<kauri_ledger::Holder>,
    /// What became of the runs that were under way.
    pub runs: Recovered,
    /// How many processes of such runs were still there, and were ended.
    pub processes: usize,
    /// What the ledger's journal, database and artifacts were made to agree about.
    pub ledger: Reconciliation,
}

impl Account {
    /// Whether there is nothing to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Reconciliation { torn, repairs, findings, orphans, .. } = &self.ledger;
        let is_agreed = torn.is_none() && repairs.is_empty() && findings.is_empty() && orphans.is_empty();
        self.died.is_none() && self.runs == Recovered::default() && self.processes == 0 && is_agreed
    }
}

/// Whether an instance takes work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It does.
    Working,
    /// It does not begin anything any more, and what is under way goes on.
    Draining,
    /// The kill switch is thrown.
    Stopped,
}

impl Standing {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
        }
    }
}

/// A running instance. Dropped, it stops working, and waits for what is under way.
#[must_use = "it ends when this is dropped"]
pub struct Instance {
    // In this order they are dropped: the lock, which is the ledger's, goes last.
    server: Option<Server>,
    pool: Option<Pool>,
    upkeep: Option<Upkeep>,
    desk: Arc<Desk>,
    children: Arc<Children>,
    config: Config,
    files: Files,
    layout: Layout,
    defined: Defined,
    runtime: Runtime,
    ledger: Arc<Ledger>,
}

impl Instance {
    /// Opens a home, or makes one, takes it over from whoever died there, and works.
    ///
    /// # Errors
    /// `Ledger(Locked)` if somebody works there; otherwise what is damaged or cannot be had.
    pub fn start(layout: &Layout, config: Config) -> Result<(Self, Account), UpError> {
        Self::start_observed(layout, config, None)
    }

    /// The same, with somebody who is told of everything.
    ///
    /// # Errors
    /// As for `start`.
    pub fn start_observed(
        layout: &Layout,
        config: Config,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<(Self, Account), UpError> {
        let died = match Home::probe(layout.home()) {
            Ok(LockState::Stale(holder)) => Some(holder),
            _ => None,
        };
        let (ledger, reconciled) = Ledger::open(Home::lock(layout.home())?)?;
        let ledger = Arc::new(ledger);
        // Child processes may live elsewhere: they are told where the home is in full.
        let layout = Layout::of(ledger.home().directory());
        let failures = Arc::new(Failures::default());
        let substrate = open_store(&layout)?;
        let (runtime, processes) = take_over(&layout, &substrate, Some((&failures, &ledger)), observer)?;
        let table = RunTable::new(runtime.clone(), substrate, Arc::clone(&ledger));
        let recovered = runtime.recovered();
        let defined = define(&runtime, &config)?;
        // Somebody may have decided about actions while nobody ran here: runs that wait for that ask the ledger again.
        runtime.runs().tell_all_decided()?;
        let files = open_files(&layout)?;
        let children = Arc::new(Children::new(ledger.switch().clone()));
        let desk = Arc::new(Desk::new(&runtime, &ledger, &layout, failures, &config));
        let mut instance = Self {
            server: None,
            pool: None,
            upkeep: None,
            desk,
            children,
            config,
            files,
            layout,
            defined,
            runtime,
            ledger,
        };
        instance.begin(table)?;
        Ok((instance, Account { died, runs: recovered, processes, ledger: reconciled }))
    }

    fn begin(&mut self, table: RunTable) -> Result<(), UpError> {
        let note = AuditNote::new("INSTANCE_STARTED").with("pid", std::process::id().to_string());
        self.ledger.audit().append(&note)?;
        let desk = Arc::clone(&self.desk);
        let answering = Arc::new(move |what: &str, args: &serde_json::Value| desk.answer(what, args));
        let server = Server::start(&self.layout, answering);
        let answer = || format!("answer on {}", self.layout.socket().display());
        self.server = Some(server.map_err(|error| UpError::System(answer(), error))?);
        let outbox = self.layout.home().join(&self.config.outbox.value);
        let keeping = Keeping { table, ledger: Arc::clone(&self.ledger), files: self.files.clone() };
        let upkeep = Upkeep::start(&self.runtime, &outbox, self.config.sweep.value, Arc::clone(&self.desk), keeping);
        self.upkeep = Some(upkeep.map_err(|error| {
            UpError::System(format!("write messages of the outbox into {}", outbox.display()), error)
        })?);
        match self.switch_reason() {
            Some(_) => self.desk.stand(Standing::Stopped),
            None => self.work()?,
        }
        Ok(())
    }

    /// Why the kill switch is thrown, if it is. One that cannot be read counts as thrown.
    #[must_use]
    pub fn switch_reason(&self) -> Option<String> {
        self.ledger.switch().reason().unwrap_or_else(|error| Some(error.to_string()))
    }

    /// Takes work, with threads for all classes.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn work(&mut self) -> Result<(), UpError> {
        let workers =
            classes::workers(&self.runtime, &self.config, &self.defined, &self.layout, &self.files, &self.children);
        self.pool = Some(Pool::start(workers)?);
        self.desk.stand(Standing::Working);
        Ok(())
    }

    /// Begins nothing any more. What is under way goes on.
    pub fn drain(&self, standing: Standing) {
        self.desk.stand(standing);
        self.pool.iter().for_each(Pool::request_stop);
    }

    /// Ends the process groups of everything that is under way, as the kill switch says: SIGTERM, and SIGKILL after 5 seconds. Their runs end
    /// with a crash. Returns when they are gone.
    ///
    /// # Errors
    /// If the audit cannot be written.
    pub fn end_by_switch(&self, reason: &str) -> Result<(usize, usize), UpError> {
        let (groups, killed) = self.ledger.switch().end_groups();
        let note = AuditNote::new("KILL_SWITCH_OBEYED").with("reason", reason);
        self.ledger.audit().append(&note.with("groups", groups.to_string()).with("killed", killed.to_string()))?;
        Ok((groups, killed))
    }

    /// Kills everything that is under way at once. Its runs end with a crash, now or at the next start.
    pub fn hurry(&self) {
        self.children.kill_all("the instance was stopped before the run had ended");
    }

    /// Whether no thread works any more.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pool.as_ref().is_none_or(Pool::is_done)
    }

    /// Whether the threads were told to stop, by somebody or by trouble.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.pool.as_ref().is_some_and(Pool::is_stopping)
    }

    /// Waits for the threads that were told to stop.
    ///
    /// # Errors
    /// What ended a thread before.
    pub fn join(&mut self) -> Result<(), UpError> {
        Ok(self.pool.take().map_or(Ok(()), Pool::join)?)
    }

    /// What goes wrong beside the work, if something does: messages that cannot leave, what cannot be removed.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.desk.trouble()
    }

    /// How many processes run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.children.count()
    }

    /// The runtime.
    #[must_use]
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The classes.
    #[must_use]
    pub const fn defined(&self) -> &Defined {
        &self.defined
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Where everything is.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Ends an instance whose threads have ended: writes that down, and gives the lock back.
    ///
    /// # Errors
    /// What ended a thread before, or that the audit cannot be written.
    pub fn stop(mut self) -> Result<(), UpError> {
        self.drain(Standing::Draining);
        let worked = self.join();
        self.server = None;
        self.upkeep = None;
        let note = AuditNote::new("INSTANCE_STOPPED").with("pid", std::process::id().to_string());
        let noted = self.ledger.audit().append(&note);
        worked?;
        noted?;
        Ok(())
    }

    /// Leaves threads that do not end alone: the process is about to. The socket goes; the lock goes with the process.
    pub fn abandon(mut self) {
        self.server = None;
        std::mem::forget(self);
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// The runtime of a home, whose lock the caller has, for one who only changes something there: no work is taken. What an instance that was
/// killed left is taken over, as at any start: the runtime says which runs, and the number is that of processes which were ended.
///
/// # Errors
/// If the store is damaged or cannot be had.
pub fn visit(layout: &Layout) -> Result<(Runtime, usize), UpError> {
    take_over(layout, &open_store(layout)?, None, None)
}

/// Starts the runtime, with an instance's observer and ledger if it is one.
fn take_over(
    layout: &Layout,
    substrate: &Arc<TreeSubstrate>,
    instance: Option<(&Arc<Failures>, &Arc<Ledger>)>,
    observer: Option<Arc<dyn Observer>>,
) -> Result<(Runtime, usize), UpError> {
    let left = under_way(substrate)?;
    let processes = leftover::end(layout.home(), &left);
    let mut builder = Runtime::builder(Arc::clone(substrate) as _, Arc::new(SystemClock::new())).seed(seed());
    if let Some(observer) = observer {
        builder = builder.observer(observer);
    }
    if let Some((failures, ledger)) = instance {
        failures.fill(&**substrate)?;
        builder = builder.observer(Arc::clone(failures) as _).ledger(Arc::new(RunLedger::new(Arc::clone(ledger))));
    }
    Ok((builder.start()?, processes))
}

/// The store of a home, made if it is missing.
fn open_store(layout: &Layout) -> Result<Arc<TreeSubstrate>, UpError> {
    let disk = OsDisk::new(layout.runtime())
        .map_err(|error| UpError::System(format!("open {}", layout.runtime().display()), error))?;
    let store = Options::new().cache_bytes(CACHE_BYTES).open(&disk, "store.kauri")?;
    Ok(Arc::new(TreeSubstrate::new(store)))
}

/// The runs that somebody drove who is gone.
fn under_way(substrate: &TreeSubstrate) -> Result<Vec<RunId>, UpError> {
    match Look::at(substrate)?.running(LEFT_MAX) {
        Ok(found) => Ok(found.into_iter().map(|(run, _): (Run, bool)| run.id).collect()),
        // A class that is gone has nobody to drive its runs; the start says so in its own words.
        Err(RuntimeError::Run(RunFault::NoClass(_))) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn open_files(layout: &Layout) -> Result<Files, UpError> {
    let failed = |error| UpError::System(format!("make {}", layout.files().display()), error);
    make_directory(&layout.files()).map_err(failed)?;
    let disk = OsDisk::new(layout.files()).map_err(failed)?;
    let artifacts =
        Artifacts::open(Arc::new(disk)).map_err(|error| failed(std::io::Error::other(error.to_string())))?;
    Ok(Files::new(artifacts))
}

/// A directory for its owner alone.
fn make_directory(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Chance for ids and pauses: no two starts have the same.
fn seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let nanos = u64::try_from(since.as_nanos() & u128::from(u64::MAX)).unwrap_or_default();
    nanos.rotate_left(17) ^ u64::from(std::process::id())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
