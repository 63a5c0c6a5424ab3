//! The disk of the system, used by two processes. (What every disk does is tested in `kauri-sim`, for all of them at once.)
#![expect(clippy::disallowed_methods, reason = "starts a second process in a directory of its own")]

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use kauri_tree::disk::{Disk, Open, OsDisk};

/// Tells the second process where to look.
const DIRECTORY: &str = "KAURI_TREE_TEST_DIRECTORY";

#[test]
fn a_second_process_cannot_write_until_the_first_is_done() {
    let path = std::env::temp_dir().join(format!("kauri-tree-processes-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a new directory");
    let disk = OsDisk::new(&path).expect("a disk");
    let file = disk.open("store", Open::CreateNew).expect("made");
    let while_held = second_process(&path);
    drop(file);
    let after = second_process(&path);
    std::fs::remove_dir_all(&path).expect("our own directory");
    assert_eq!((while_held, after), (false, true));
}

/// Whether a second process could open the store for writing.
fn second_process(path: &PathBuf) -> bool {
    let this = std::env::current_exe().expect("this program");
    let arguments = ["--exact", "processes::the_second_process"];
    let output = Command::new(this).args(arguments).env(DIRECTORY, path).output().expect("started");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed") || !output.status.success());
    output.status.success()
}

/// The second process, when it is one: the test above starts it. By itself it has nothing to do.
#[test]
fn the_second_process() {
    let Some(path) = std::env::var_os(DIRECTORY) else { return };
    let opened = OsDisk::new(path).expect("a disk").open("store", Open::ReadWrite);
    if let Err(error) = opened {
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        panic!("{error}");
    }
}
