//! `--fix`: repairs that have one right answer, under the lock of the home.
//!
//! Modes are narrowed. The ledger is opened as any start opens it: torn tails are cut off, journal, rows and artifacts are made to
//! agree, an older schema becomes the present one, what waits in the database's log is taken in. Nothing else is touched.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use kauri::Layout;
use kauri::ledger::{DATABASE_NAME, Error, Home, Ledger, LockState, WAL_NAME};

use super::super::Trouble;
use super::place::Modes;

/// Repairs what is safe to repair. Answers what was done.
pub(super) fn fix(layout: &Layout) -> Result<Vec<String>, Trouble> {
    // Where nobody ever worked there is nothing to repair, and the directory may be anybody's.
    if !layout.runtime().is_dir() {
        return Ok(Vec::new());
    }
    let mut fixed = Vec::new();
    let refused = |error: &Error| Trouble::Wrong(format!("nothing was fixed: {error}"));
    let was_stale = matches!(Home::probe(layout.home()), Ok(LockState::Stale(_)));
    let is_used = [WAL_NAME, DATABASE_NAME].iter().any(|name| layout.runtime().join(name).exists());
    let home = Home::lock(layout.home()).map_err(|error| refused(&error))?;
    narrow_modes(layout, &mut fixed)?;
    if was_stale {
        fixed.push("the lock that a crash left behind was taken and given back".to_owned());
    }
    if is_used {
        reconcile(home, &mut fixed).map_err(|error| refused(&error))?;
    }
    Ok(fixed)
}

fn narrow_modes(layout: &Layout, fixed: &mut Vec<String>) -> Result<(), Trouble> {
    for (path, found, expected) in Modes::of(layout.home(), usize::MAX).open {
        fs::set_permissions(&path, fs::Permissions::from_mode(expected))
            .map_err(|error| Trouble::Wrong(format!("{}: cannot change its mode: {error}", path.display())))?;
        fixed.push(format!("{}: mode {found:04o} became {expected:04o}", path.display()));
    }
    Ok(())
}

fn reconcile(home: Home, fixed: &mut Vec<String>) -> Result<(), Error> {
    let (ledger, found) = Ledger::open(home)?;
    let tails = [("the journal", found.torn), ("the audit", ledger.audit().torn())];
    for (whose, torn) in tails {
        fixed.extend(torn.map(|torn| format!("a torn tail of {} bytes was cut off {whose}", torn.bytes)));
    }
    fixed.extend(found.repairs.iter().map(ToString::to_string));
    Ok(())
}
