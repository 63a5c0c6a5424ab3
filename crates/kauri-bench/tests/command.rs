//! The command line: what it prints, where, and how it exits.

#![expect(clippy::disallowed_methods, reason = "a test of a binary at the edge reads the file that it wrote")]

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kauri-bench"))
        .args(arguments)
        .output()
        .expect("the binary was built for this test")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints UTF-8")
}

#[test]
fn wire_prints_a_table_and_writes_rows() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/wire.json");
    let output = bench(&["wire", "--quick", "--rounds", "1", "--json", file]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.starts_with("workload ") && table.contains("\ngoals\n"), "{table}");
    assert!(text(&output.stderr).starts_with("[ 1/14] decode borrowed 64 B\n"), "{}", text(&output.stderr));

    let rows: Vec<serde_json::Value> = serde_json::from_reader(std::fs::File::open(file).unwrap()).unwrap();
    assert!(rows.len() > 40, "{} rows", rows.len());
    for row in rows {
        let number = |field: &str| row[field].as_f64().unwrap();
        assert_eq!(row["unit"], "ns");
        assert!((number("ratio") - number("peer") / number("ours")).abs() < 1e-9, "{row}");
        assert!(row["workload"].is_string() && row["peer_name"].is_string(), "{row}");
    }
}

#[test]
fn ledger_prints_a_table_and_writes_rows() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/ledger.json");
    let output = bench(&["ledger", "--rounds", "1", "--json", file]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.starts_with("workload ") && table.matches("met  ").count() + table.matches("missed").count() == 6,
        "{table}"
    );
    let rows: Vec<serde_json::Value> = serde_json::from_reader(std::fs::File::open(file).unwrap()).unwrap();
    let workloads: Vec<&str> = rows.iter().filter_map(|row| row["workload"].as_str()).collect();
    for part in
        ["writer queue, 1 caller", "writer queue, 64 callers", "journal append, 32 callers", "reconcile 1 M lines"]
    {
        assert!(workloads.contains(&part), "{part}: {workloads:?}");
    }
    for row in rows {
        let number = |field: &str| row[field].as_f64().unwrap();
        let ratio = if row["unit"] == "/s" { number("ours") / number("peer") } else { number("peer") / number("ours") };
        assert!((number("ratio") - ratio).abs() < 1e-9 * ratio.max(1.0), "{row}");
    }
}

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    let cases: [(&[&str], &str); 5] = [
        (&[], "requires a subcommand"),
        (&["wires"], "'wires'"),
        (&["wire", "--fast"], "'--fast'"),
        (&["wire", "--json"], "--json <FILE>"),
        (&["wire", "--rounds", "0"], "--rounds"),
    ];
    for (arguments, says) in cases {
        let output = bench(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.starts_with("kauri-bench: ") && error.lines().count() == 1 && error.contains(says), "{error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn part_that_there_is_not_is_told() {
    let output = bench(&["ledger", "--only", "que"]);
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(text(&output.stderr).contains("no part of this suite is called so"), "{}", text(&output.stderr));
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_the_run() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/no such folder/wire.json");
    let output = bench(&["wire", "--json", file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("kauri-bench: cannot write "), "{}", text(&output.stderr));
}

#[test]
fn help_goes_to_standard_output() {
    let output = bench(&["wire", "--help"]);
    assert!(output.status.success() && text(&output.stdout).contains("--quick"), "{}", text(&output.stdout));
    assert!(!text(&output.stdout).contains("--rounds"));
}

#[test]
fn runs_prints_a_table_and_writes_rows() {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/runs.json");
    let output = bench(&["runs", "--rounds", "1", "--json", file, "--folder", env!("CARGO_TARGET_TMPDIR")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert_eq!(table.matches("met  ").count() + table.matches("missed").count(), 7, "{table}");
    let rows: Vec<serde_json::Value> = serde_json::from_reader(std::fs::File::open(file).unwrap()).unwrap();
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|row| row["ours"].as_f64().is_some_and(|ours| ours > 0.0)), "{rows:?}");
}
