//! That a terminal is given back, also by a program that panics in it.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use super::*;

const CHILD: &str = "KAURI_TEST_PANICS_IN_A_TERMINAL";

/// What happens in the child: it takes the terminal, and panics while another thread holds the lock of the output.
fn panic_in_a_terminal() {
    let mut out = io::stdout().lock();
    let _screen = Screen::enter(&mut out).expect("a terminal");
    let panicked = thread::scope(|scope| scope.spawn(|| panic!("on purpose")).join().is_err());
    assert!(panicked);
    // Not even what would be dropped is dropped.
    std::process::abort();
}

#[test]
fn a_panic_gives_the_terminal_back() {
    if std::env::var_os(CHILD).is_some() {
        return panic_in_a_terminal();
    }
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&ours).expect("ours");
    unlockpt(&ours).expect("open");
    let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("text");
    let theirs: OwnedFd = File::options().read(true).write(true).open(name).expect("the other end").into();
    let end = || Stdio::from(theirs.try_clone().expect("another handle"));
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "cli::top::edge::tests::a_panic_gives_the_terminal_back", "--nocapture"])
        .env(CHILD, "1")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn()
        .expect("it starts");
    assert!(!child.wait().expect("it ends").success());
    // The modes belong to the terminal, and outlive whoever set them.
    assert!(tcgetattr(&theirs).expect("modes").local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    drop(theirs);
    let mut bytes = Vec::new();
    // When the other end is closed, the system says so with an error.
    let _closed = File::from(ours).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (enter, leave, words) = (text.find("\u{1b}[?1049h"), text.rfind("\u{1b}[?1049l"), text.find("on purpose"));
    assert!(enter.is_some() && enter < leave && leave < words, "the message is on the screen that stays: {text:?}");
    assert!(text.contains("\u{1b}[?25h"), "the cursor is back");
}
