//! Where a lock and a sync mean what they say: a disk of this machine, and no folder that something else copies about.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// File systems of other machines, and those of programs, by the number that `statfs` tells.
const FOREIGN: &[(u64, &str)] = &[
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x564c, "NCP"),
    (0x7375_7245, "Coda"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x0116_1970, "GFS"),
    (0x7461_636f, "OCFS2"),
    (0x6573_5546, "FUSE"),
];

/// Folders that a program keeps in step with other machines, by a part of their path.
const SYNCED: &[&str] = &[
    "Dropbox",
    "OneDrive",
    "Google Drive",
    "GoogleDrive",
    "iCloud Drive",
    "Mobile Documents",
    "Nextcloud",
    "ownCloud",
];

/// Files in a folder, or in one above it, that such a program leaves there.
const SYNC_MARKS: &[&str] = &[".dropbox", ".stfolder", ".sync_folder"];

/// How many directories are remembered.
const GOOD_MAX: usize = 64;

/// Refuses a directory where locks or syncs cannot be trusted. What was found good is not looked at again by this process.
pub(super) fn check(directory: &Path) -> Result<()> {
    static GOOD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut good = GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    if !good.contains(directory) {
        look(directory)?;
        if good.len() >= GOOD_MAX {
            good.clear();
        }
        good.insert(directory.to_owned());
    }
    Ok(())
}

fn look(directory: &Path) -> Result<()> {
    let magic = magic(directory)?;
    let marked = |mark: &&&str| directory.ancestors().any(|above| above.join(mark).exists());
    let mark = SYNC_MARKS.iter().find(marked);
    match judge(magic, directory).or_else(|| mark.map(|mark| format!("a synchronised folder ({mark})"))) {
        Some(kind) => Err(Error::ForeignFileSystem { directory: directory.to_owned(), kind }),
        None => Ok(()),
    }
}

/// What is wrong with a directory on such a file system, if anything is.
fn judge(magic: Option<u64>, directory: &Path) -> Option<String> {
    let foreign = FOREIGN.iter().find(|(number, _)| Some(*number) == magic);
    let is_synced = |part: &std::ffi::OsStr| SYNCED.iter().find(|name| part.to_string_lossy().starts_with(**name));
    let synced = directory.iter().find_map(is_synced);
    foreign
        .map(|(_, kind)| format!("a file system of kind {kind}"))
        .or(synced.map(|name| format!("a folder of {name}")))
}

#[cfg(target_os = "linux")]
fn magic(directory: &Path) -> Result<Option<u64>> {
    let found = rustix::fs::statfs(directory).map_err(std::io::Error::from);
    let found = found.map_err(Error::path("find the file system of", directory))?;
    // Thirty-two bits of it mean something; some systems tell them with a sign.
    Ok(Some(u64::try_from(i128::from(found.f_type) & 0xffff_ffff).unwrap_or(0)))
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the same as where it can fail")]
fn magic(_: &Path) -> Result<Option<u64>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_file_systems_and_synced_folders_are_known() {
        let plain = Path::new("/srv/kauri");
        for (magic, kind) in FOREIGN {
            assert!(judge(Some(*magic), plain).is_some_and(|found| found.contains(kind)), "{kind}");
        }
        for (magic, name) in [(0xef53, "ext4"), (0x5846_5342, "xfs"), (0x9123_683e, "btrfs"), (0x0102_1994, "tmpfs")] {
            assert_eq!(judge(Some(magic), plain), None, "{name}");
        }
        for name in SYNCED {
            assert!(judge(None, &Path::new("/srv").join(name).join("x")).is_some(), "{name}");
        }
        assert!(judge(None, Path::new("/srv/OneDrive - Kauri/x")).is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_system_is_asked_what_file_system_it_is() {
        // A file system that every Linux has, and whose number is no secret.
        assert_eq!(magic(Path::new("/proc")).unwrap(), Some(0x9fa0));
        assert_ne!(magic(&std::env::temp_dir()).unwrap(), Some(0x9fa0));
        assert!(magic(Path::new("/no such directory")).is_err());
    }

    #[test]
    fn this_machines_disk_is_fine() {
        assert!(check(&std::env::temp_dir()).is_ok());
    }
}
