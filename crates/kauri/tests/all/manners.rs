use crate::{answer, refusal};

#[test]
fn help_and_version_are_answers() {
    assert!(answer(&["--help"], b"").contains("Usage: kauri <COMMAND>"));
    assert!(answer(&["--version"], b"").starts_with("kauri "));
    for command in ["decode", "encode", "check"] {
        assert!(answer(&["frame", command, "--help"], b"").contains("Usage: kauri frame"));
    }
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    let cases: [(&[&str], &str); 6] = [
        (&[], "kauri --help"),
        (&["frame"], "kauri --help"),
        (&["dmeo"], "'demo'"),
        (&["frame", "decode"], "HEX"),
        (&["frame", "decode", "00", "11"], "'11'"),
        (&["frame", "check", "--jsno", "x"], "'--json'"),
    ];
    for (args, hint) in cases {
        let line = refusal(args, b"");
        assert!(line.starts_with("kauri: ") && line.contains(hint), "{args:?}: {line}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_kauri"))
        .args(["demo", "--orders", "100000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary ends");
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
}
