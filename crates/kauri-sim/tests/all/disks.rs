//! All disks do the same.
#![expect(clippy::disallowed_methods, reason = "files of the system need a directory")]

use kauri_sim::{SimDisk, conformance};
use kauri_tree::disk::{MemoryDisk, OsDisk};

#[test]
fn the_simulated_disk_keeps_the_contract() {
    conformance(&SimDisk::new());
}

#[test]
fn the_disk_in_memory_keeps_the_contract() {
    conformance(&MemoryDisk::new());
}

#[test]
fn the_disk_of_the_system_keeps_the_contract() {
    let path = std::env::temp_dir().join(format!("kauri-sim-disks-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a new directory");
    let result = std::panic::catch_unwind(|| conformance(&OsDisk::new(&path).expect("a disk")));
    std::fs::remove_dir_all(&path).expect("our own directory");
    result.expect("the contract");
}
