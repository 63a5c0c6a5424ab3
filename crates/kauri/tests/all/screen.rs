//! Commands in a terminal, and what a person sees there.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::homes::Scratch;

const ROWS: u16 = 60;
const COLUMNS: u16 = 120;

fn nonzero(number: u16) -> std::num::NonZero<u16> {
    std::num::NonZero::new(number).expect("not zero")
}

/// A terminal of 120 columns with a command in it.
struct Terminal {
    child: Child,
    ours: File,
    screen: vt100::Parser,
    /// Everything that was written.
    bytes: Vec<u8>,
}

impl Terminal {
    fn start(args: &[&str], environment: &[(&str, &str)]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("open");
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("a size");
        let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("text");
        let theirs: OwnedFd = File::options().read(true).write(true).open(name).expect("the other end").into();
        let end = |end: &OwnedFd| Stdio::from(end.try_clone().expect("another handle"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
        command.args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(environment.iter().copied());
        let child = command.stdin(end(&theirs)).stdout(end(&theirs)).stderr(end(&theirs)).spawn().expect("it starts");
        let screen = vt100::Parser::new(nonzero(ROWS), nonzero(COLUMNS), 1_000);
        Self { child, ours: ours.into(), screen, bytes: Vec::new() }
    }

    /// What is on the screen, row by row.
    fn shown(&self) -> String {
        let rows = self.screen.screen().rows(0, COLUMNS);
        rows.map(|row| row.trim_end().to_owned() + "\n").collect::<String>().trim_end().to_owned()
    }

    /// Reads on; false if there is nothing more.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // When the other end is closed, the system says so with an error.
        let length = self.ours.read(&mut buffer).unwrap_or(0);
        self.screen.process(&buffer[..length]);
        self.bytes.extend_from_slice(&buffer[..length]);
        length > 0
    }

    /// Reads on until the screen shows this.
    fn wait_for(&mut self, what: &str) {
        while !self.shown().contains(what) {
            assert!(self.read(), "it ended, and never showed {what:?}: {}", self.shown());
        }
    }

    /// Ends it as Ctrl-C does. Not with the same signal: where tests run in the background, a shell has made everybody deaf to it.
    fn interrupt(self) -> (ExitStatus, String, Vec<u8>) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it is ours");
        self.end()
    }

    fn end(mut self) -> (ExitStatus, String, Vec<u8>) {
        while self.read() {}
        let status = self.child.wait().expect("it ended");
        let shown = self.shown();
        (status, shown, self.bytes)
    }
}

#[test]
fn demo_in_a_terminal_draws_bars_and_leaves_a_whole_screen() {
    let home = Scratch::new("screen-demo");
    let mut terminal = Terminal::start(&["demo", "--home", home.path(), "--orders", "400"], &[]);
    terminal.wait_for("timers");
    for bar in ["accepted ", "paid ", "shipped ", "invoiced "] {
        terminal.wait_for(bar);
    }
    terminal.wait_for("░");
    let (status, screen, bytes) = terminal.end();
    assert!(status.success(), "{screen}");
    let lines: Vec<&str> = screen.lines().collect();
    let count = |what: &str| lines.iter().filter(|line| line.trim_start().starts_with(what)).count();
    // Bars are drawn over, not again and again.
    assert_eq!((count("accepted "), count("shipped "), count("ok ")), (1, 1, 26), "{screen}");
    assert!(screen.contains("399 of 400") && screen.contains("Nothing lost, nothing doubled"), "{screen}");
    assert!(String::from_utf8_lossy(&bytes).contains("\u{1b}[32m"), "shipped is green");
}

#[test]
fn killed_lives_are_told_above_the_bars_and_without_colours_if_asked() {
    let home = Scratch::new("screen-crash");
    let args = ["demo", "--crash", "--home", home.path(), "--orders", "120", "--kills", "4", "--seed", "2"];
    let (status, screen, bytes) = Terminal::start(&args, &[("NO_COLOR", "1")]).end();
    assert!(status.success(), "{screen}");
    let killed = screen.find("KILLED").expect("a kill is told");
    let bars = screen.find("  accepted ").expect("bars");
    assert!(killed < bars && screen.contains("start 2"), "{screen}");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(!text.contains("\u{1b}[32m") && !text.contains("\u{1b}[1;31m"), "no colours");
}

#[test]
fn demo_that_is_interrupted_goes_on() {
    let home = Scratch::new("screen-interrupt");
    let mut terminal = Terminal::start(&["demo", "--home", home.path(), "--orders", "1000"], &[]);
    terminal.wait_for("accepted ");
    let (status, screen, _) = terminal.interrupt();
    assert!(!status.success(), "{screen}");
    let text = crate::answer(&["demo", "--home", home.path()], b"");
    assert!(text.contains("start 2") && text.contains("Nothing lost, nothing doubled: 1000 orders"), "{text}");
}

#[test]
fn a_watched_list_is_drawn_again_until_it_is_interrupted() {
    let home = Scratch::new("screen-watch");
    let runtime = home.runtime();
    let mut terminal = Terminal::start(&["inbox", "--watch", "--home", home.path()], &[]);
    terminal.wait_for("no messages wait");
    runtime.send(&crate::homes::order("order-77")).expect("sent");
    terminal.wait_for("order-77");
    let shown = terminal.shown();
    assert!(shown.starts_with("WORKER") && !shown.contains("no messages wait"), "it is drawn over: {shown}");
    let (status, screen, _) = terminal.interrupt();
    assert!(!status.success(), "{screen}");
    let line = crate::refusal(&["inbox", "--watch", "--json", "--home", home.path()], b"");
    assert!(line.contains("--watch draws for people"), "{line}");
}

#[test]
fn long_work_shows_that_it_goes_on_and_leaves_nothing_of_that() {
    let scratch = Scratch::new("screen-progress");
    let args = ["bench", "--seconds", "0.6", "--dir", scratch.path()];
    let mut terminal = Terminal::start(&args, &[]);
    terminal.wait_for("measuring commits");
    let (status, screen, _) = terminal.end();
    assert!(status.success() && screen.contains("durable steps") && !screen.contains("measuring"), "{screen}");
    // A script sees none of it.
    let quiet = crate::kauri(&["bench", "--seconds", "0.3", "--dir", scratch.path()], b"");
    assert!(quiet.status.success() && quiet.stderr.is_empty());
}
