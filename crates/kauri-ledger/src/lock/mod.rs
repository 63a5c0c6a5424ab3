//! Locks on directories: the home first, then workspaces in the order of their names.
//!
//! ```text
//! home/runtime/home.lock, home.lock.meta         position 0
//! workspace/.kauri/ws.lock, ws.lock.meta         position 1, 2, ...
//! ```
//!
//! The lock is the operating system's (`flock`): it ends with its process, however that ends. The file beside it only says who
//! has it. Whether a lock is free is found out by trying it, never by looking for a process.

mod file;
mod filesystem;
mod holder;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kauri_disk::OsDisk;

use self::file::LockFile;
pub use self::holder::{Holder, LOCK_VERSION};
use crate::audit::{Audit, AuditNote};
use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Error, Result};
use crate::redact::Redactor;

pub(crate) use self::file::make_directory;

/// The directory of a home in which locks, database and journals are.
pub(crate) const RUNTIME: &str = "runtime";
const HOME_LOCK: &str = "home.lock";
const WORKSPACE_LOCK: &str = ".kauri/ws.lock";

/// What is with a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockState {
    /// Nobody has it, and nothing was left behind.
    Free,
    /// Somebody has it; who, if that could be found out.
    Held(Option<Holder>),
    /// Nobody has it, but its last holder ended without giving it back. It can be taken.
    Stale(Holder),
}

impl LockState {
    /// Whether the lock can be taken.
    #[must_use]
    pub const fn is_free(&self) -> bool {
        !matches!(self, Self::Held(_))
    }
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => write!(f, "free"),
            Self::Held(Some(holder)) => write!(f, "held by {holder}"),
            Self::Held(None) => write!(f, "held by a process that has not said who it is"),
            Self::Stale(holder) => write!(f, "free; left behind by process {} at {}", holder.pid, holder.timestamp),
        }
    }
}

/// How a home is locked.
#[derive(Clone)]
#[must_use]
pub struct HomeOptions {
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    is_forced: bool,
}

impl HomeOptions {
    /// The system's clock, the usual redactor, and no foreign file systems.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), redactor: Redactor::new(), is_forced: false }
    }

    /// Uses this clock.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Takes secrets out with this redactor.
    pub fn redactor(self, redactor: Redactor) -> Self {
        Self { redactor, ..self }
    }

    /// Allows file systems on which locks and syncs cannot be trusted. Nothing is promised there.
    pub fn force(self) -> Self {
        Self { is_forced: true, ..self }
    }

    /// Locks the home.
    ///
    /// # Errors
    /// As [`Home::lock`].
    pub fn lock(self, directory: impl AsRef<Path>) -> Result<Home> {
        let directory = directory.as_ref();
        make_directory(directory)?;
        let directory = canonical(directory)?;
        let (path, now) = (directory.join(RUNTIME).join(HOME_LOCK), self.clock.now());
        let lock = Registered::new(LockFile::acquire(&path, 0, now, self.is_forced)?);
        Ok(Home { directory, lock, options: self, audit: OnceLock::new() })
    }
}

impl Default for HomeOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for HomeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeOptions").field("is_forced", &self.is_forced).finish_non_exhaustive()
    }
}

/// A home whose lock this program has: nobody else works in it until this is dropped.
///
/// ```
/// use kauri_ledger::{Error, Home, LockState};
///
/// # let directory = std::env::temp_dir().join(format!("kauri-doc-home-{}", std::process::id()));
/// let home = Home::lock(&directory)?;
/// assert!(matches!(Home::lock(&directory), Err(Error::Locked { holder: Some(holder), .. }) if holder.is_this_process()));
/// assert!(matches!(Home::probe(&directory)?, LockState::Held(Some(_))));
/// drop(home);
/// assert_eq!(Home::probe(&directory)?, LockState::Free);
/// # std::fs::remove_dir_all(&directory).ok();
/// # Ok::<(), kauri_ledger::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the lock ends when this is dropped"]
pub struct Home {
    directory: PathBuf,
    lock: Registered,
    options: HomeOptions,
    audit: OnceLock<Arc<Audit>>,
}

impl Home {
    /// Makes the directory if it is missing, and takes its lock.
    ///
    /// # Errors
    /// - `Locked` if somebody has it, in this process or in another;
    /// - `NewerLock` if a later program left its metadata there;
    /// - `ForeignFileSystem` if it is on a network file system or in a synchronised folder.
    pub fn lock(directory: impl AsRef<Path>) -> Result<Self> {
        HomeOptions::new().lock(directory)
    }

    /// What is with the lock of a home; changes nothing.
    ///
    /// # Errors
    /// Whatever the system reports, or `NewerLock`.
    pub fn probe(directory: impl AsRef<Path>) -> Result<LockState> {
        file::probe(&directory.as_ref().join(RUNTIME).join(HOME_LOCK), SystemClock.now())
    }

    /// Whether locks and syncs can be trusted in this directory, which must exist: it is on a disk of this machine, and in no folder
    /// that something else copies about.
    ///
    /// # Errors
    /// `ForeignFileSystem` if they cannot; otherwise whatever the system reports.
    pub fn check_file_system(directory: impl AsRef<Path>) -> Result<()> {
        filesystem::check(&canonical(directory.as_ref())?)
    }

    /// Takes the lock of a workspace, which must exist. A workspace cannot outlive its home, and cannot be had without one:
    ///
    /// ```compile_fail
    /// # let directory = std::env::temp_dir();
    /// let home = kauri_ledger::Home::lock(&directory).unwrap();
    /// let workspace = home.workspace(&directory).unwrap();
    /// drop(home);
    /// drop(workspace);
    /// ```
    ///
    /// # Errors
    /// As [`Home::lock`].
    pub fn workspace(&self, directory: impl AsRef<Path>) -> Result<Workspace<'_>> {
        self.workspace_at(directory.as_ref(), 1)
    }

    fn workspace_at(&self, directory: &Path, position: u32) -> Result<Workspace<'_>> {
        let directory = canonical(directory)?;
        let (path, now) = (directory.join(WORKSPACE_LOCK), self.options.clock.now());
        let lock = Registered::new(LockFile::acquire(&path, position, now, self.options.is_forced)?);
        Ok(Workspace { home: self, directory, lock })
    }

    /// The directory, as an absolute path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the lock is still on the file of that name: somebody may have removed it by hand.
    ///
    /// # Errors
    /// `LockLost` if it is not.
    pub fn check(&self) -> Result<()> {
        self.lock.0.check()
    }

    /// The audit of this home.
    ///
    /// # Errors
    /// Whatever the disk reports, or `Damaged`.
    pub fn audit(&self) -> Result<Arc<Audit>> {
        if let Some(audit) = self.audit.get() {
            return Ok(Arc::clone(audit));
        }
        let path = self.directory.join("audit");
        make_directory(&path)?;
        let disk = OsDisk::new(&path).map_err(Error::path("open", &path))?;
        let audit = Audit::open(Arc::new(disk), Arc::clone(&self.options.clock), self.options.redactor.clone())?;
        Ok(Arc::clone(self.audit.get_or_init(|| Arc::new(audit))))
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.options.clock)
    }

    pub(crate) fn redactor(&self) -> Redactor {
        self.options.redactor.clone()
    }
}

/// A workspace whose lock this program has.
#[derive(Debug)]
#[must_use = "the lock ends when this is dropped"]
pub struct Workspace<'a> {
    home: &'a Home,
    directory: PathBuf,
    lock: Registered,
}

impl Workspace<'_> {
    /// Takes the lock of one more workspace while this one is held. Workspaces that are held together are taken in the order of
    /// their absolute paths.
    ///
    /// # Errors
    /// `LockOrder` if it comes before this one; that is also written into the audit, as `LOCK_ORDER_VIOLATION`. Otherwise as
    /// [`Home::lock`].
    pub fn next(&self, directory: impl AsRef<Path>) -> Result<Workspace<'_>> {
        let wanted = canonical(directory.as_ref())?;
        if wanted <= self.directory {
            return Err(self.violated(wanted));
        }
        self.home.workspace_at(&wanted, self.lock.0.holder.lock_order_position + 1)
    }

    fn violated(&self, wanted: PathBuf) -> Error {
        let held = self.directory.clone();
        let note = AuditNote::new("LOCK_ORDER_VIOLATION")
            .with("held", held.to_string_lossy())
            .with("wanted", wanted.to_string_lossy());
        match self.home.audit().and_then(|audit| audit.append(&note)) {
            Ok(_) => Error::LockOrder { held, wanted },
            Err(error) => error,
        }
    }

    /// The directory, as an absolute path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What is with the lock of a workspace; changes nothing.
    ///
    /// # Errors
    /// Whatever the system reports, or `NewerLock`.
    pub fn probe(directory: impl AsRef<Path>) -> Result<LockState> {
        file::probe(&directory.as_ref().join(WORKSPACE_LOCK), SystemClock.now())
    }
}

/// A lock of this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// Its file.
    pub path: PathBuf,
    /// 0 for a home, 1 and more for workspaces.
    pub position: u32,
    /// Since when.
    pub since: Timestamp,
}

/// The locks that this process has, in the order in which they were taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeldLocks(Vec<HeldLock>);

static HELD: Mutex<Vec<HeldLock>> = Mutex::new(Vec::new());

fn held() -> MutexGuard<'static, Vec<HeldLock>> {
    // A push and a removal are whole or not at all.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HeldLocks {
    /// The locks that this process has now.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self(held().clone())
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &HeldLock> {
        self.0.iter()
    }
}

/// A lock that is in the list of this process.
#[derive(Debug)]
struct Registered(LockFile);

impl Registered {
    fn new(lock: LockFile) -> Self {
        let (path, position) = (lock.path().to_owned(), lock.holder.lock_order_position);
        held().push(HeldLock { path, position, since: lock.holder.timestamp });
        Self(lock)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let path = self.0.path();
        let mut held = held();
        if let Some(at) = held.iter().rposition(|lock| lock.path == path) {
            held.remove(at);
        }
    }
}

/// The lock's metadata, as it stands in the file.
pub(crate) fn meta_of(lock: &HeldLock) -> Result<Option<Holder>> {
    Holder::read(&file::meta_of(&lock.path), lock.since)
}

#[expect(clippy::disallowed_methods, reason = "a lock is known by its absolute path")]
fn canonical(directory: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(directory).map_err(Error::path("find", directory))
}
