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
fn commands_on_a_home_have_examples_in_their_help() {
    let commands: [&[&str]; 7] =
        [&["doctor"], &["ledger"], &["ledger", "resolve"], &["audit"], &["stop"], &["dead-letters"], &["runs"]];
    for command in commands {
        let help = answer(&[command, &["--help"]].concat(), b"");
        assert!(help.contains("Examples:") && help.contains("--home <DIR>"), "{command:?}: {help}");
    }
    assert!(answer(&["store", "--help"], b"").contains("Examples:"));
    assert!(answer(&["doctor", "--help"], b"").contains("Exit codes: 0 all fine, 1 warnings, 2 failures"));
}

#[test]
fn the_home_is_named_by_an_argument_or_the_environment_or_is_here() {
    let examined = |named: Option<&str>, args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kauri"));
        command.current_dir(env!("CARGO_TARGET_TMPDIR")).args(["doctor", "--json"]).args(args).env_remove("KAURI_HOME");
        command.envs(named.map(|named| ("KAURI_HOME", named)));
        let output = command.output().expect("the binary runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        report["home"].as_str().expect("a path").to_owned()
    };
    assert_eq!(examined(None, &[]), ".kauri");
    assert_eq!(examined(Some(""), &[]), ".kauri");
    assert_eq!(examined(Some("/nowhere/a"), &[]), "/nowhere/a");
    assert_eq!(examined(Some("/nowhere/a"), &["--home", "/nowhere/b"]), "/nowhere/b");
}

#[test]
fn wrong_arguments_are_refused_in_one_line() {
    let cases: [(&[&str], &str); 8] = [
        (&[], "kauri --help"),
        (&["frame"], "expected one of decode, encode, check (see `kauri frame --help`)"),
        (&["dmeo"], "'demo'"),
        (&["frame", "decode"], "HEX"),
        (&["frame", "decode", "00", "11"], "'11'"),
        (&["frame", "check", "--jsno", "x"], "'--json'"),
        (&["runs", "show", "7"], "(see `kauri runs show --help`)"),
        (&["up", "--drain", "soon"], "(see `kauri up --help`)"),
    ];
    for (args, hint) in cases {
        let line = refusal(args, b"");
        assert!(line.starts_with("kauri: ") && line.contains(hint), "{args:?}: {line}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    use std::process::{Command, Stdio};
    let home = crate::homes::Scratch::new("manners-pipe");
    let mut child = Command::new(env!("CARGO_BIN_EXE_kauri"))
        .args(["demo", "--orders", "100000", "--home"])
        .arg(home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the binary ends");
    assert!(output.status.success());
    assert_eq!(output.stderr, b"");
}
