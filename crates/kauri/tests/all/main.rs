//! The `kauri` binary, used as a person or a script uses it.
#![expect(clippy::disallowed_methods, reason = "tests of the command line run processes and write files")]

mod actions;
mod decided;
mod demo;
mod doctor;
mod everywhere;
mod frame;
mod frames;
mod full;
mod homes;
mod instances;
mod ledger;
mod lists;
mod manners;
mod messages;
mod moved;
mod private;
mod run_table;
mod runs;
mod schemas;
mod screen;
mod store;
mod tools;
mod top;
mod trees;
mod working;

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs `kauri` with these arguments and this standard input.
fn kauri(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kauri"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let written = child.stdin.take().expect("a pipe").write_all(input);
    // A command that does not read its input may be gone before it is written.
    assert!(written.is_ok() || written.is_err_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe));
    child.wait_with_output().expect("the binary ends")
}

/// What `kauri` prints when all is well.
fn answer(args: &[&str], input: &[u8]) -> String {
    let output = kauri(args, input);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stderr, b"", "{args:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The one line in which `kauri` refuses, with exit code 2 and nothing on standard output.
fn refusal(args: &[&str], input: &[u8]) -> String {
    let output = kauri(args, input);
    let line = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1), "{args:?}: {line}");
    assert_eq!(output.stdout, b"", "{args:?}");
    line
}
