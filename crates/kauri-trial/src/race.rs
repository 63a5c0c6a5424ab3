//! Many processes that want the same lock.
//!
//! Each child takes the home's lock so many times. While it has it, a witness file that it makes must not be there already, and the
//! metadata must name the child itself; whoever is refused is told of another, or of nobody who has said who it is.

#![expect(clippy::disallowed_methods, reason = "a trial at the edge: processes and files are what it tries")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use kauri_ledger::{Error, Home, LockState};

/// What a race did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Races {
    /// How often the lock was taken.
    pub taken: u64,
    /// How often somebody was refused.
    pub refused: u64,
    /// How often the refused was told who has it.
    pub told: u64,
}

/// Has this many children of this program take the lock so many times each.
///
/// # Errors
/// Says what a child saw that must not be.
pub fn races(program: &Path, directory: &Path, processes: u32, times: u64) -> Result<Races, String> {
    let start = |_| {
        let mut child = Command::new(program);
        child.arg("race-child").arg(directory).arg(times.to_string());
        child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(|error| error.to_string())
    };
    let children = (0..processes).map(start).collect::<Result<Vec<_>, _>>()?;
    let mut races = Races::default();
    for child in children {
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [taken, refused, told] = numbers[..] else {
            return Err(format!("a child failed: {said}{}", String::from_utf8_lossy(&output.stderr)));
        };
        races.taken += taken;
        races.refused += refused;
        races.told += told;
    }
    match Home::probe(directory).map_err(|error| error.to_string())? {
        LockState::Free => Ok(races),
        other => Err(format!("after all: {other}")),
    }
}

/// The child.
///
/// # Errors
/// Says what it saw that must not be.
pub fn child(directory: &Path, times: u64) -> Result<Races, String> {
    let mut races = Races::default();
    while races.taken < times {
        match Home::lock(directory) {
            Ok(home) => {
                races.taken += 1;
                hold(directory, &home)?;
            }
            Err(Error::Locked { holder, .. }) => {
                races.refused += 1;
                if let Some(holder) = holder {
                    races.told += 1;
                    if holder.is_this_process() {
                        return Err(format!("told that the holder is this process: {holder}"));
                    }
                }
                std::thread::yield_now();
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(races)
}

/// While the lock is held.
fn hold(directory: &Path, home: &Home) -> Result<(), String> {
    let witness = directory.join("witness");
    let made = fs::OpenOptions::new().write(true).create_new(true).open(&witness);
    made.map_err(|error| format!("two holders: {error}"))?;
    for _ in 0..2 {
        match Home::probe(directory).map_err(|error| error.to_string())? {
            LockState::Held(Some(holder)) if holder.is_this_process() => {}
            other => return Err(format!("this process has the lock, and it is said to be {other}")),
        }
    }
    home.check().map_err(|error| error.to_string())?;
    fs::remove_file(&witness).map_err(|error| error.to_string())
}
