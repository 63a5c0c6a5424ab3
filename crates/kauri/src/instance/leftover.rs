//! Processes that an instance left behind when it was killed: they are known by what their environment says.
//!
//! A command runs in a group of its own, so it outlives an instance that is killed. If its run were begun again beside it, its work would be done
//! twice. So whoever starts next, with the lock of the home, first ends every process that says it belongs to a run of this home which nobody
//! drives any more.
#![expect(clippy::disallowed_methods, reason = "processes of the system are found in /proc")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use kauri_wire::RunId;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How often, and how long apart, it is looked whether they are gone.
const LOOKS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// Ends the processes of these runs of this home. Answers how many there were. Where processes cannot be looked at, there are none.
pub(super) fn end(home: &Path, runs: &[RunId]) -> usize {
    if runs.is_empty() {
        return 0;
    }
    let runs: BTreeSet<String> = runs.iter().map(RunId::to_string).collect();
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut ended = Vec::new();
    for pid in pids.filter_map(Pid::from_raw) {
        // Opened before it is looked at: what is looked at is what is killed, or neither.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if belongs(pid, home, &runs) && pidfd_send_signal(&handle, Signal::KILL).is_ok() {
            ended.push(pid);
        }
    }
    for _ in 0..LOOKS {
        if ended.iter().all(|pid| is_gone(*pid)) {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    ended.len()
}

fn belongs(pid: Pid, home: &Path, runs: &BTreeSet<String>) -> bool {
    let Ok(environ) = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())) else { return false };
    let value = |name: &[u8]| environ.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(name));
    let is_here = value(b"KAURI_HOME=") == Some(home.as_os_str().as_encoded_bytes());
    let run = value(b"KAURI_RUN_ID=").and_then(|run| std::str::from_utf8(run).ok());
    is_here && run.is_some_and(|run| runs.contains(run))
}

/// Whether a process is gone, or waits to be reaped by whoever has it now.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim_start().starts_with(['Z', 'X']))
}
