//! The place itself: the directory, its modes, its disk, who works there.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kauri::ledger::{Error, Home, KillSwitch, LockState};

use super::check::{Check, lasting, many};
use super::{Patient, clock};

/// With less room than this nothing can be written for long.
const ROOM_BYTES_MIN: u64 = 64 << 20;
/// With less room than this somebody should look.
const ROOM_BYTES_LOW: u64 = 1 << 30;
/// How many files have their modes looked at, unless everything is.
const FILES_MAX: usize = 10_000;
/// How deep directories are looked into.
const DEPTH_MAX: usize = 8;

pub(super) fn home(patient: &Patient) -> Check {
    const NAME: &str = "home";
    let path = patient.layout.home();
    let shown = path.display();
    match fs::read_dir(path) {
        Ok(entries) => match entries.count() {
            0 => Check::ok(NAME, "there, and empty"),
            _ => Check::ok(NAME, "there"),
        },
        Err(error) => {
            let (found, todo) = match error.kind() {
                io::ErrorKind::NotFound => (
                    "there is no such directory".to_owned(),
                    "name the home with --home or $KAURI_HOME; kauri up makes one",
                ),
                io::ErrorKind::NotADirectory => (
                    "expected a directory, found something else".to_owned(),
                    "name the home with --home or $KAURI_HOME",
                ),
                io::ErrorKind::PermissionDenied => {
                    (format!("cannot be read: {error}"), "ask as the user to whom the home belongs")
                }
                _ => (format!("cannot be read: {error}"), "look at the disk"),
            };
            Check::fail(NAME, format!("{shown}: {found}"), todo)
        }
    }
}

/// What is not for its owner alone, with the mode it has and the one it should have; and how much was looked at.
#[derive(Default)]
pub(super) struct Modes {
    pub(super) open: Vec<(PathBuf, u32, u32)>,
    looked_at: usize,
    unread: Vec<String>,
    is_cut: bool,
}

impl Modes {
    /// Looks at the home, and at everything in the directories that are Kauri's; at so many paths at most. What else somebody keeps
    /// there is none of ours.
    pub(super) fn of(home: &Path, most: usize) -> Self {
        let mut modes = Self::default();
        modes.look(home, 0, most);
        for name in ["runtime", "artifacts", "audit"] {
            modes.look(&home.join(name), DEPTH_MAX, most);
        }
        modes
    }

    fn look(&mut self, path: &Path, depth: usize, most: usize) {
        if self.looked_at >= most {
            self.is_cut = true;
            return;
        }
        // Where a link leads is none of ours.
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            // It may have gone in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.unread.push(format!("{}: {error}", path.display())),
        };
        self.looked_at += 1;
        let mode = metadata.permissions().mode() & 0o777;
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        if !metadata.is_symlink() && mode & 0o077 != 0 {
            self.open.push((path.to_owned(), mode, expected));
        }
        if metadata.is_dir() && depth > 0 {
            match fs::read_dir(path) {
                Ok(entries) => entries.flatten().for_each(|entry| self.look(&entry.path(), depth - 1, most)),
                Err(error) => self.unread.push(format!("{}: {error}", path.display())),
            }
        }
    }
}

pub(super) fn modes(patient: &Patient) -> Check {
    const NAME: &str = "modes";
    let modes = Modes::of(patient.layout.home(), if patient.is_deep { usize::MAX } else { FILES_MAX });
    if !modes.unread.is_empty() {
        let what = format!("{} cannot be looked at", many(modes.unread.len() as u64, "path"));
        return Check::fail(NAME, what, "ask as the user to whom the home belongs").with(modes.unread);
    }
    if modes.open.is_empty() {
        let cut = if modes.is_cut { "; not all were looked at" } else { "" };
        return Check::ok(NAME, format!("{} for the owner alone{cut}", many(modes.looked_at as u64, "path")));
    }
    let what = format!("{} can be used by others", many(modes.open.len() as u64, "path"));
    let detail = |(path, mode, expected): &(PathBuf, u32, u32)| {
        format!("{}: expected mode {expected:04o}, found {mode:04o}", path.display())
    };
    // Where nobody ever worked there is no lock to take, and nothing is changed.
    let todo = match patient.layout.runtime().is_dir() {
        true => "kauri doctor --fix".to_owned(),
        false => format!("chmod 700 {}", patient.layout.home().display()),
    };
    Check::warn(NAME, what, todo).with(modes.open.iter().map(detail))
}

pub(super) fn file_system(patient: &Patient) -> Check {
    const NAME: &str = "file-system";
    match Home::check_file_system(patient.layout.home()) {
        Ok(()) => Check::ok(NAME, "a disk of this machine, and no folder that is synchronised"),
        Err(error @ Error::ForeignFileSystem { .. }) => {
            Check::fail(NAME, error.to_string(), "move the home to a disk of this machine")
        }
        Err(error) => Check::fail(NAME, error.to_string(), "look at the disk"),
    }
}

pub(super) fn free_space(patient: &Patient) -> Check {
    const NAME: &str = "free-space";
    match rustix::fs::statvfs(patient.layout.home()) {
        Ok(found) => judge_space(NAME, found.f_bavail.saturating_mul(found.f_frsize)),
        Err(error) => Check::fail(NAME, format!("nobody knows: {}", io::Error::from(error)), "look at the disk"),
    }
}

fn judge_space(name: &'static str, bytes: u64) -> Check {
    let what = format!("{} MiB free", bytes >> 20);
    match bytes {
        ..ROOM_BYTES_MIN => Check::fail(name, what, "make room: with a full disk nothing can be committed"),
        ROOM_BYTES_MIN..ROOM_BYTES_LOW => Check::warn(name, what, "make room soon"),
        _ => Check::ok(name, what),
    }
}

pub(super) fn lock(patient: &Patient) -> Check {
    const NAME: &str = "lock";
    match &patient.lock {
        Ok(LockState::Free) => Check::ok(NAME, "free: nobody works here"),
        Ok(LockState::Held(Some(holder))) if holder.is_alive == Some(false) => Check::warn(
            NAME,
            format!("held, and process {}, which took it, is gone", holder.pid),
            "look which process it started is still there, and end it",
        ),
        Ok(LockState::Held(Some(holder))) => {
            let command = holder.command.as_deref().map_or(String::new(), |command| format!(" `{command}`"));
            let held = lasting(i64::try_from(holder.age.as_millis()).unwrap_or(i64::MAX));
            Check::ok(NAME, format!("held by process {}{command} since {}, for {held}", holder.pid, holder.timestamp))
        }
        Ok(LockState::Held(None)) => {
            Check::warn(NAME, "held by a process that has not said who it is", "ask again; it may be starting")
        }
        Ok(LockState::Stale(holder)) => Check::warn(
            NAME,
            format!("free; process {} took it at {} and ended without giving it back", holder.pid, holder.timestamp),
            "nothing is lost: the next start, or kauri doctor --fix, repairs what that crash left",
        ),
        Err(error @ Error::NewerLock { .. }) => Check::fail(NAME, error.to_string(), "upgrade this program"),
        Err(error) => Check::fail(NAME, error.to_string(), "ask as the user to whom the home belongs"),
    }
}

pub(super) fn kill_switch(patient: &Patient) -> Check {
    const NAME: &str = "kill-switch";
    match KillSwitch::of(patient.layout.home(), clock()).reason() {
        Ok(None) => Check::ok(NAME, "not thrown"),
        Ok(Some(reason)) => Check::warn(NAME, format!("thrown: {reason}"), "kauri resume, when the reason is gone"),
        Err(error) => Check::fail(NAME, error.to_string(), "ask as the user to whom the home belongs"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn little_room_is_told_before_there_is_none() {
        let status = |bytes| judge_space("free-space", bytes).status;
        assert_eq!([0, ROOM_BYTES_MIN - 1].map(status), [Status::Fail; 2]);
        assert_eq!([ROOM_BYTES_MIN, ROOM_BYTES_LOW - 1].map(status), [Status::Warn; 2]);
        assert_eq!([ROOM_BYTES_LOW, u64::MAX].map(status), [Status::Ok; 2]);
    }
}
