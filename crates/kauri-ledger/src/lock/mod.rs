//! Locks on directories: the home first, then workspaces in the order of their names.
//!
//! ```text
//! home/runtime/home.lock, home.lock.meta         position 0
//! workspace/.kauri/ws.lock, ws.lock.meta         position 1, 2, ...
//! ```
//!
//! The lock is the operating system's (`flock`): it ends with its process, however that ends. The file beside it only says who
//! has it. Whether a lock is free is found out by trying it, never by looking for a process.
//!
//! The order is kept by each thread: while it has a workspace, it takes no home and no workspace that comes before. So no two
//! threads, of whatever processes, ever have what the other wants. Runs on several threads need no order among each other. A workspace
//! stays with the thread that took it.

mod file;
mod filesystem;
mod holder;

use std::fmt;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::ThreadId;

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
        check_order(0, &directory)?;
        let (path, now) = (directory.join(RUNTIME).join(HOME_LOCK), self.clock.now());
        let lock = LockFile::acquire(&path, 0, now, self.is_forced)?;
        let place = Arc::new(Place { directory, options: self, audit: OnceLock::new() });
        let lock = Registered::new(lock, &place.directory, &place);
        Ok(Home { place, lock })
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
    // In this order they are dropped: whoever has the lock next finds the audit's files closed.
    place: Arc<Place>,
    lock: Registered,
}

/// What belongs to a home whose lock is held.
#[derive(Debug)]
struct Place {
    directory: PathBuf,
    options: HomeOptions,
    audit: OnceLock<Arc<Audit>>,
}

impl Home {
    /// Makes the directory if it is missing, and takes its lock.
    ///
    /// # Errors
    /// - `Locked` if somebody has it, in this process or in another;
    /// - `NewerLock` if a later program left its metadata there;
    /// - `ForeignFileSystem` if it is on a network file system or in a synchronised folder;
    /// - `LockOrder` if the calling thread has a workspace, which is also written into the audit of that one's home.
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
    /// and stays with the thread that took it:
    ///
    /// ```compile_fail
    /// # let directory = std::env::temp_dir();
    /// let home = kauri_ledger::Home::lock(&directory).unwrap();
    /// let workspace = home.workspace(&directory).unwrap();
    /// std::thread::scope(|scope| drop(scope.spawn(|| drop(workspace))));
    /// ```
    ///
    /// # Errors
    /// `LockOrder` if the calling thread has a workspace that comes after this one; that is also written into the audit, as
    /// `LOCK_ORDER_VIOLATION`. Otherwise as [`Home::lock`].
    pub fn workspace(&self, directory: impl AsRef<Path>) -> Result<Workspace<'_>> {
        self.workspace_at(directory.as_ref(), 1)
    }

    fn workspace_at(&self, directory: &Path, position: u32) -> Result<Workspace<'_>> {
        let directory = canonical(directory)?;
        check_order(position, &directory)?;
        let (path, options) = (directory.join(WORKSPACE_LOCK), &self.place.options);
        let lock = LockFile::acquire(&path, position, options.clock.now(), options.is_forced)?;
        let lock = Registered::new(lock, &directory, &self.place);
        Ok(Workspace { home: self, directory, lock, of_thread: PhantomData })
    }

    /// The directory, as an absolute path.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.place.directory
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
        self.place.audit()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.place.options.clock)
    }

    pub(crate) fn redactor(&self) -> Redactor {
        self.place.options.redactor.clone()
    }
}

impl Place {
    fn audit(&self) -> Result<Arc<Audit>> {
        if let Some(audit) = self.audit.get() {
            return Ok(Arc::clone(audit));
        }
        let path = self.directory.join("audit");
        make_directory(&path)?;
        let disk = OsDisk::new(&path).map_err(Error::path("open", &path))?;
        let audit = Audit::open(Arc::new(disk), Arc::clone(&self.options.clock), self.options.redactor.clone())?;
        Ok(Arc::clone(self.audit.get_or_init(|| Arc::new(audit))))
    }

    /// What is answered to whoever takes locks in the wrong order, when it is in the audit.
    fn violated(&self, held: PathBuf, wanted: PathBuf) -> Error {
        let note = AuditNote::new("LOCK_ORDER_VIOLATION")
            .with("held", held.to_string_lossy())
            .with("wanted", wanted.to_string_lossy());
        match self.audit().and_then(|audit| audit.append(&note)) {
            Ok(_) => Error::LockOrder { held, wanted },
            Err(error) => error,
        }
    }
}

/// A workspace whose lock the calling thread has.
#[derive(Debug)]
#[must_use = "the lock ends when this is dropped"]
pub struct Workspace<'a> {
    home: &'a Home,
    directory: PathBuf,
    lock: Registered,
    /// The order of locks is kept by threads: a workspace is not handed from one to another.
    of_thread: PhantomData<*const ()>,
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
            return Err(self.home.place.violated(self.directory.clone(), wanted));
        }
        self.home.workspace_at(&wanted, self.lock.0.holder.lock_order_position + 1)
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

/// A lock of this process, and what is asked when the next is taken.
#[derive(Clone, Debug)]
struct Entry {
    lock: HeldLock,
    directory: PathBuf,
    thread: ThreadId,
    /// Where a violation is written down.
    place: Arc<Place>,
}

impl Entry {
    /// Whether a lock at this position and of this directory comes before this one.
    fn is_preceded_by(&self, position: u32, directory: &Path) -> bool {
        self.lock.position > 0 && (position == 0 || directory < self.directory)
    }
}

static HELD: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn held() -> MutexGuard<'static, Vec<Entry>> {
    // A push and a removal are whole or not at all.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses, and writes down, that the calling thread takes a lock which comes before one that it has.
fn check_order(position: u32, wanted: &Path) -> Result<()> {
    let this = std::thread::current().id();
    let in_the_way = |entry: &&Entry| entry.thread == this && entry.is_preceded_by(position, wanted);
    let found = held().iter().find(in_the_way).cloned();
    // Not while the list is locked: the audit waits for the disk.
    found.map_or(Ok(()), |entry| Err(entry.place.violated(entry.directory, wanted.to_owned())))
}

/// The locks of this process that were taken while their thread had one that comes after: the later one, and the one taken.
pub(crate) fn out_of_order() -> Vec<(PathBuf, PathBuf)> {
    disorder(&held()).into_iter().map(|(had, took)| (had.lock.path.clone(), took.lock.path.clone())).collect()
}

fn disorder(taken: &[Entry]) -> Vec<(&Entry, &Entry)> {
    let violates = |had: &Entry, took: &Entry| {
        had.thread == took.thread && had.is_preceded_by(took.lock.position, &took.directory)
    };
    let all = taken.iter().enumerate().flat_map(|(at, had)| taken[at + 1..].iter().map(move |took| (had, took)));
    all.filter(|(had, took)| violates(had, took)).collect()
}

impl HeldLocks {
    /// The locks that this process has now.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self(held().iter().map(|entry| entry.lock.clone()).collect())
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
    fn new(file: LockFile, directory: &Path, place: &Arc<Place>) -> Self {
        let (path, position) = (file.path().to_owned(), file.holder.lock_order_position);
        let lock = HeldLock { path, position, since: file.holder.timestamp };
        let (thread, place) = (std::thread::current().id(), Arc::clone(place));
        held().push(Entry { lock, directory: directory.to_owned(), thread, place });
        Self(file)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let path = self.0.path();
        let mut held = held();
        let at = held.iter().rposition(|entry| entry.lock.path == path);
        let entry = at.map(|at| held.remove(at));
        // It may be the last that knows the audit: its files are closed now, while the lock is still held.
        drop((held, entry));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(position: u32, directory: &str, thread: ThreadId) -> Entry {
        let directory = PathBuf::from(directory);
        let lock = HeldLock { path: directory.join("lock"), position, since: Timestamp(0) };
        let place = Place { directory: directory.clone(), options: HomeOptions::new(), audit: OnceLock::new() };
        Entry { lock, directory, thread, place: Arc::new(place) }
    }

    /// How many of these locks, taken one after the other, come before one that their thread has.
    fn check(taken: &[(u32, &str, ThreadId)], expected: usize) {
        let taken: Vec<Entry> = taken.iter().map(|(position, name, thread)| entry(*position, name, *thread)).collect();
        assert_eq!(disorder(&taken).len(), expected, "{taken:?}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the order is kept by threads")]
    fn disorder_is_a_lock_that_comes_before_one_that_its_thread_has() {
        let this = std::thread::current().id();
        let other = std::thread::scope(|scope| scope.spawn(|| std::thread::current().id()).join().unwrap());
        check(&[], 0);
        check(&[(0, "/h", this), (1, "/a", this), (2, "/b", this)], 0);
        check(&[(0, "/h", this), (1, "/b", this), (1, "/a", this)], 1);
        check(&[(0, "/h", this), (1, "/b", this), (1, "/a", other)], 0);
        check(&[(0, "/h", this), (1, "/a", this), (0, "/g", this)], 1);
        check(&[(0, "/h", this), (0, "/g", this)], 0);
        check(&[(1, "/c", this), (1, "/b", this), (1, "/a", this)], 3);
    }
}
