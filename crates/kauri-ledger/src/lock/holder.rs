//! Who has a lock: the `.meta` file beside it, and whether that process is still the one it was.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, Result};

/// The version of the metadata that this program writes, and the latest that it understands.
pub const LOCK_VERSION: u32 = 1;

/// Who has a lock, as the holder itself wrote it down. The lock decides; this only explains.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// Since when it has the lock.
    pub timestamp: Timestamp,
    /// 0 for a home, 1 and more for workspaces.
    pub lock_order_position: u32,
    /// The version of this metadata.
    pub lock_version: u32,
    /// When the process began, in the system's ticks since it booted: a pid is used again, both together are not.
    #[serde(default)]
    pub process_start: Option<u64>,
    /// Which boot of the system that was.
    #[serde(default)]
    pub boot_id: Option<String>,
    /// How the process was called.
    #[serde(default)]
    pub command: Option<String>,
    /// For how long it has had the lock when this was found out.
    #[serde(skip)]
    pub age: Duration,
    /// Whether that process is there; nothing is known of it on some systems.
    #[serde(skip)]
    pub is_alive: Option<bool>,
}

/// Longer metadata is not ours.
const META_BYTES_MAX: u64 = 64 << 10;

impl Holder {
    /// This process, now.
    pub(crate) fn this_process(now: Timestamp, lock_order_position: u32) -> Self {
        let this = this_process();
        Self {
            pid: std::process::id(),
            timestamp: now,
            lock_order_position,
            lock_version: LOCK_VERSION,
            process_start: this.start,
            boot_id: this.boot_id.clone(),
            command: this.command.clone(),
            age: Duration::ZERO,
            is_alive: Some(true),
        }
    }

    /// Whether this is the process that asks.
    #[must_use]
    pub fn is_this_process(&self) -> bool {
        let this = this_process();
        self.pid == std::process::id() && self.process_start == this.start && self.boot_id == this.boot_id
    }

    /// Reads the metadata of a lock, if there is any that can be read.
    ///
    /// # Errors
    /// `NewerLock` if a later program wrote it.
    pub(crate) fn read(meta: &Path, now: Timestamp) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Version {
            lock_version: u32,
        }
        let Some(bytes) = read_short(meta) else { return Ok(None) };
        // A later version may have other fields: the number comes first.
        if let Ok(Version { lock_version: found }) = serde_json::from_slice(&bytes)
            && found > LOCK_VERSION
        {
            return Err(Error::NewerLock { lock: meta.with_extension(""), most: LOCK_VERSION, found });
        }
        let Ok(mut holder) = serde_json::from_slice::<Self>(&bytes) else { return Ok(None) };
        holder.age = now.since(holder.timestamp);
        holder.is_alive = holder.look();
        Ok(Some(holder))
    }

    /// Whether the process of this pid is still the one that wrote the metadata.
    fn look(&self) -> Option<bool> {
        match (&self.boot_id, self.process_start) {
            (Some(boot), _) if this_process().boot_id.as_ref().is_some_and(|now| now != boot) => Some(false),
            (Some(_), Some(start)) if this_process().boot_id.is_some() => Some(process_start(self.pid) == Some(start)),
            _ => None,
        }
    }
}

/// What does not change while this process lives.
struct ThisProcess {
    pid: u32,
    start: Option<u64>,
    boot_id: Option<String>,
    command: Option<String>,
}

fn this_process() -> Arc<ThisProcess> {
    static KNOWN: Mutex<Option<Arc<ThisProcess>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    // A forked child is another process with the memory of its parent.
    match &*known {
        Some(this) if this.pid == pid => Arc::clone(this),
        _ => {
            let this = ThisProcess { pid, start: process_start(pid), boot_id: boot_id(), command: command(pid) };
            Arc::clone(known.insert(Arc::new(this)))
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "locks and what lies beside them are files of the system")]
fn read_short(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;

    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(META_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn proc_text(path: &str) -> Option<String> {
    read_short(Path::new(path)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn boot_id() -> Option<String> {
    proc_text("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// The 22nd field of `stat`. The second is the program's name, which may hold spaces and brackets itself.
fn process_start(pid: u32) -> Option<u64> {
    let stat = proc_text(&format!("/proc/{pid}/stat"))?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    // A process that has ended but was not waited for has no locks any more.
    let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !is_dead)
}

fn command(pid: u32) -> Option<String> {
    let line = proc_text(&format!("/proc/{pid}/cmdline"))?;
    let words: Vec<&str> = line.split('\0').filter(|word| !word.is_empty()).collect();
    Some(crate::Redactor::new().redact(&words.join(" ").chars().take(256).collect::<String>()))
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(start) = self.process_start {
            write!(f, " (started at tick {start})")?;
        }
        if let Some(command) = self.command.as_deref().filter(|command| !command.is_empty()) {
            write!(f, " `{command}`")?;
        }
        write!(f, " since {}, for {:.1} s", self.timestamp, self.age.as_secs_f64())?;
        match self.is_alive {
            Some(false) => {
                write!(
                    f,
                    "; that process is gone: one that it started keeps the lock, or the next holder has just taken it"
                )
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_itself() {
        let holder = Holder::this_process(Timestamp(0), 1);
        assert!(holder.is_this_process());
        assert_eq!(holder.look(), Some(true));
        assert!(holder.command.is_some_and(|command| !command.is_empty()));
    }

    #[test]
    fn a_pid_that_is_used_again_is_somebody_else() {
        let holder = Holder::this_process(Timestamp(0), 1);
        let other_start = Holder { process_start: holder.process_start.map(|start| start + 1), ..holder.clone() };
        let other_boot = Holder { boot_id: Some("another".into()), ..holder.clone() };
        let no_identity = Holder { process_start: None, boot_id: None, ..holder };
        assert_eq!((other_start.look(), other_boot.look(), no_identity.look()), (Some(false), Some(false), None));
        assert!(!other_start.is_this_process() && !other_boot.is_this_process());
    }
}
