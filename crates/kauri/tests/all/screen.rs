//! Commands in a terminal, and what a person sees there.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::homes::Scratch;
use crate::instances::PATIENCE;

const ROWS: u16 = 90;
const COLUMNS: u16 = 120;

fn nonzero(number: u16) -> std::num::NonZero<u16> {
    std::num::NonZero::new(number).expect("not zero")
}

const fn winsize(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// What is written, piece by piece, until the other end is closed: the system says so with an error.
fn chunks(mut from: File) -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if tell.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    told
}

/// A terminal with a command in it.
pub(crate) struct Terminal {
    child: Child,
    ours: File,
    chunks: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    columns: u16,
    /// Everything that was written.
    bytes: Vec<u8>,
}

impl Terminal {
    fn start(args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start_sized((COLUMNS, ROWS), args, environment)
    }

    pub(crate) fn start_sized((columns, rows): (u16, u16), args: &[&str], environment: &[(&str, &str)]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("open");
        tcsetwinsize(&ours, winsize(columns, rows)).expect("a size");
        let name = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("text");
        let theirs: OwnedFd = File::options().read(true).write(true).open(name).expect("the other end").into();
        let end = |end: &OwnedFd| Stdio::from(end.try_clone().expect("another handle"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
        command.args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(environment.iter().copied());
        let child = command.stdin(end(&theirs)).stdout(end(&theirs)).stderr(end(&theirs)).spawn().expect("it starts");
        let ours = File::from(ours);
        let chunks = chunks(ours.try_clone().expect("another handle"));
        let screen = vt100::Parser::new(nonzero(rows), nonzero(columns), 1_000);
        Self { child, ours, chunks, screen, columns, bytes: Vec::new() }
    }

    /// What is on the screen, row by row.
    pub(crate) fn shown(&self) -> String {
        let rows = self.screen.screen().rows(0, self.columns);
        rows.map(|row| row.trim_end().to_owned() + "\n").collect::<String>().trim_end().to_owned()
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.screen.screen()
    }

    /// Reads on; false if there is nothing more.
    fn read(&mut self) -> bool {
        let Ok(chunk) = self.chunks.recv_timeout(PATIENCE) else { return false };
        self.screen.process(&chunk);
        self.bytes.extend_from_slice(&chunk);
        true
    }

    /// Reads on until the screen shows this.
    pub(crate) fn wait_for(&mut self, what: &str) {
        self.wait_until(what, |shown| shown.contains(what));
    }

    /// Reads on until the screen is so.
    pub(crate) fn wait_until(&mut self, what: &str, is_so: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !is_so(&self.shown()) {
            assert!(began.elapsed() < PATIENCE && self.read(), "it never showed {what:?}:\n{}", self.shown());
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("pressed");
    }

    /// Makes the window larger or smaller. The signal that says so comes only from a terminal that controls the process, so it is sent.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        tcsetwinsize(&self.ours, winsize(columns, rows)).expect("a size");
        self.screen = vt100::Parser::new(nonzero(rows), nonzero(columns), 1_000);
        self.columns = columns;
        self.signal(rustix::process::Signal::WINCH);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("it is ours");
    }

    /// Closes the window, as far as that is no signal. What is written next ends the thread that reads, which has it open too.
    pub(crate) fn close(self) -> Option<i32> {
        let Self { mut child, ours, chunks, .. } = self;
        drop((ours, chunks));
        let mut code = None;
        crate::instances::wait_until("it notices", || {
            code = child.try_wait().expect("a child").map(|status| status.code());
            code.is_some()
        });
        code.flatten()
    }

    /// Whether lines are edited and keys are echoed, as a shell expects it.
    pub(crate) fn is_restored(&self) -> bool {
        let modes = rustix::termios::tcgetattr(&self.ours).expect("modes").local_modes;
        modes.contains(rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO)
    }

    /// Ends it as Ctrl-C does. Not with the same signal: where tests run in the background, a shell has made everybody deaf to it.
    pub(crate) fn interrupt(self) -> (ExitStatus, String, Vec<u8>) {
        self.signal(rustix::process::Signal::TERM);
        self.end()
    }

    pub(crate) fn end(mut self) -> (ExitStatus, String, Vec<u8>) {
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
