//! The kill switch: a file that is there or not, and the processes that end when it is.
//!
//! ```text
//! runtime/KILL_SWITCH           its being there stops everything; its content is the reason
//! runtime/KILL_SWITCH.resumed   when it was taken back, a line each: whoever was running before such a line stops
//! ```
//!
//! Anybody can throw it, also without the home's lock and when the database is lost. Who works asks before every step.

#![expect(
    clippy::disallowed_methods,
    reason = "the switch is a file that any program can make, with whatever is at hand"
)]

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::lock::RUNTIME;

/// The switch's name in the runtime directory.
pub const SWITCH_NAME: &str = "KILL_SWITCH";

/// How often one who waits for the switch looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a process group has after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// How often one looks whether the groups are gone.
const GONE_EVERY: Duration = Duration::from_millis(50);
/// A longer reason is cut.
const REASON_BYTES_MAX: u64 = 4 << 10;

/// The kill switch of a home. It needs no lock. Clones are handles to the same switch.
#[derive(Clone)]
pub struct KillSwitch {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    groups: Arc<Mutex<Vec<Pid>>>,
    /// How often it was thrown through this handle and its clones.
    throws: Arc<AtomicU64>,
}

impl KillSwitch {
    /// The switch of the home in this directory.
    #[must_use]
    pub fn of(home: &Path, clock: Arc<dyn Clock>) -> Self {
        Self { path: home.join(RUNTIME).join(SWITCH_NAME), clock, groups: Arc::default(), throws: Arc::default() }
    }

    /// Throws the switch. If it is thrown already, the first reason stays. Answers whether it was not.
    ///
    /// # Errors
    /// Whatever the system reports.
    pub fn throw(&self, reason: &str) -> Result<bool> {
        let failed = || Error::path("make", &self.path);
        // First: whatever comes of the file, what runs here stops.
        self.throws.fetch_add(1, Ordering::SeqCst);
        match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path) {
            Ok(mut file) => {
                let reason = reason.lines().collect::<Vec<_>>().join(" ");
                file.write_all(reason.as_bytes()).and_then(|()| file.sync_all()).map_err(failed())?;
                self.sync_directory().map_err(failed())?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failed()(error)),
        }
    }

    /// Takes the switch back. What was running while it was thrown stays stopped, also if it did not look meanwhile. Answers whether
    /// it was thrown.
    ///
    /// # Errors
    /// Whatever the system reports. The switch is then still thrown, or it is taken back and a crash may bring it back.
    pub fn clear(&self) -> Result<bool> {
        let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        match fs::symlink_metadata(&self.path) {
            Ok(_) => {}
            Err(error) if is_absent(&error) => return Ok(false),
            Err(error) => return Err(Error::path("look at", &self.path)(error)),
        }
        // Before: whoever looks sees the switch, or that it was taken back. Not synced: nobody who looks survives the machine.
        self.note_resume().map_err(Error::path("write", &self.resumed()))?;
        match fs::remove_file(&self.path).and_then(|()| self.sync_directory()) {
            Ok(()) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(Error::path("remove", &self.path)(error)),
        }
    }

    /// Where it stands when the switch was taken back.
    fn resumed(&self) -> PathBuf {
        self.path.with_extension("resumed")
    }

    fn note_resume(&self) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(self.resumed())?;
        file.write_all(format!("{}\n", self.clock.now()).as_bytes())
    }

    /// How much is written down about resumes: more after each.
    fn resumes(&self) -> io::Result<u64> {
        match fs::metadata(self.resumed()) {
            Ok(found) => Ok(found.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn sync_directory(&self) -> io::Result<()> {
        fs::File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Why the switch is thrown, if it is.
    ///
    /// # Errors
    /// Whatever the system reports: then nobody should go on either.
    pub fn reason(&self) -> Result<Option<String>> {
        let file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::path("open", &self.path)(error)),
        };
        let mut bytes = Vec::new();
        file.take(REASON_BYTES_MAX).read_to_end(&mut bytes).map_err(Error::path("read", &self.path))?;
        Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    /// Says `Stopped` if the switch is thrown. One look at the directory; ask before every step.
    ///
    /// # Errors
    /// `Stopped`, or whatever the system reports.
    pub fn check(&self) -> Result<()> {
        match self.reason()? {
            Some(reason) => Err(Error::Stopped { reason }),
            None => Ok(()),
        }
    }

    /// A watch for something that runs: once the switch is thrown it stays stopped, also after the switch is taken back.
    #[must_use]
    pub fn watch(&self) -> SwitchWatch {
        let (throws, resumes) = (self.throws.load(Ordering::SeqCst), self.resumes().ok());
        SwitchWatch { switch: self.clone(), throws, resumes, is_stopped: AtomicBool::new(false) }
    }

    /// Has this process group ended when the switch is thrown, until the answer is dropped. The group is that of a process which
    /// was started as the leader of its own.
    ///
    /// # Errors
    /// `Stopped` if the switch is thrown: end the group yourself. `Input` for 0 and 1, which are no groups of anybody's children.
    pub fn register(&self, group: u32) -> Result<Registration> {
        let pid = i32::try_from(group).ok().filter(|group| *group > 1).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Error::input("a process group", "the id of a child", &group.to_string()))?;
        self.groups().push(pid);
        let registration = Registration { groups: Arc::clone(&self.groups), pid };
        // After it is in the list: whoever throws the switch now sees it there, or we see the switch.
        self.check().map(|()| registration)
    }

    /// Ends every registered group: SIGTERM, and SIGKILL to what is left after 5 seconds. Returns when they are gone or killed.
    /// Answers how many there were, and how many had to be killed.
    #[must_use]
    pub fn end_groups(&self) -> (usize, usize) {
        let groups = self.groups().clone();
        let mut left: Vec<Pid> = groups.iter().copied().filter(|group| is_there(*group)).collect();
        send(&left, Signal::TERM);
        let mut waited = Duration::ZERO;
        while !left.is_empty() && waited < GRACE {
            self.clock.pause(GONE_EVERY);
            waited += GONE_EVERY;
            left.retain(|group| is_there(*group));
        }
        send(&left, Signal::KILL);
        (groups.len(), left.len())
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Pid>> {
        // A push and a removal are whole or not at all.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_there(group: Pid) -> bool {
    test_kill_process_group(group).is_ok()
}

fn send(groups: &[Pid], signal: Signal) {
    for group in groups {
        // It may have ended by itself in between.
        let _gone = kill_process_group(*group, signal);
    }
}

/// A process group that ends when the switch is thrown.
#[derive(Debug)]
#[must_use = "the group is forgotten when this is dropped"]
pub struct Registration {
    groups: Arc<Mutex<Vec<Pid>>>,
    pid: Pid,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = groups.iter().position(|pid| *pid == self.pid) {
            groups.swap_remove(at);
        }
    }
}

/// Watches the switch for something that runs.
#[derive(Debug)]
pub struct SwitchWatch {
    switch: KillSwitch,
    /// How often it was thrown before this watch began.
    throws: u64,
    /// What was known of resumes then.
    resumes: Option<u64>,
    is_stopped: AtomicBool,
}

impl SwitchWatch {
    /// Whether the switch was thrown since this watch began, also if it was taken back before anybody looked. (A file that somebody
    /// makes and removes by hand, between two looks, nobody can see.)
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let was_thrown = || self.switch.throws.load(Ordering::SeqCst) != self.throws;
        let was_resumed = || self.switch.resumes().map_or(true, |resumes| self.resumes != Some(resumes));
        // A switch that cannot be read stops too: going on would be the worse mistake. The switch is looked at first: if it is
        // taken back right then, that is seen after it.
        if !self.is_stopped.load(Ordering::Relaxed) && (was_thrown() || self.switch.check().is_err() || was_resumed()) {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits for the switch, so long at most; looks ten times a second. Answers whether it was thrown.
    pub fn wait(&self, time: Duration) -> bool {
        let mut left = time;
        while !self.is_stopped() && !left.is_zero() {
            let pause = left.min(LOOK_EVERY);
            self.switch.clock.pause(pause);
            left -= pause;
        }
        self.is_stopped()
    }
}

impl std::fmt::Debug for KillSwitch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KillSwitch").field("path", &self.path).finish_non_exhaustive()
    }
}
