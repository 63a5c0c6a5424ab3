//! `kauri schema`, `replay`, `bench`, `completions` and `man`.

use serde_json::Value;

use crate::homes::{Scratch, fill_messages};
use crate::{answer, kauri, refusal};

fn objects(args: &[&str]) -> Vec<Value> {
    answer(args, b"").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What it says when it cannot go on, whatever it said before.
fn refusal_of(args: &[&str]) -> String {
    let output = kauri(args, b"");
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn schema_tells_the_marker_and_the_tables_of_a_home() {
    let home = Scratch::new("schema");
    let before = home.image();
    let told = &objects(&["schema", "--json", "--home", home.path()])[0];
    assert_eq!((&told["found"], &told["tables"], &told["fits"]), (&Value::Null, &Value::Array(vec![]), &true.into()));
    assert_eq!(home.image(), before);

    let home = Scratch::filled("schema-filled");
    fill_messages(&home.runtime());
    let before = home.image();
    let told = &objects(&["schema", "--json", "--home", home.path()])[0];
    assert_eq!((&told["found"], &told["expected"], &told["starts"]), (&"0.0".into(), &"0.0".into(), &2.into()));
    let tables = told["tables"].as_array().expect("tables");
    let inbox = tables.iter().find(|table| table["table"] == "inbox").expect("an inbox");
    assert_eq!((&inbox["id"], &inbox["owner"], &inbox["rows"]), (&1.into(), &"runtime".into(), &2.into()));
    assert!(answer(&["schema", "--home", home.path()], b"").contains("marker   0.0"));
    assert_eq!(home.image(), before);
}

#[test]
fn recordings_are_shown_and_verified_and_what_was_changed_is_found() {
    let home = Scratch::new("replay");
    let scratch = Scratch::new("replay-file");
    let file = scratch.file("steps.jsonl");
    let path = file.to_str().expect("text");
    let demo = ["demo", "--home", home.path(), "--orders", "60", "--seed", "1", "--record", path, "--json"];
    answer(&demo, b"");
    let steps = objects(&["replay", "show", path, "--limit", "1000", "--json"]);
    // Three steps for each of 59 orders; the poisoned one never commits.
    assert_eq!(steps.len(), 177);
    assert!(steps.iter().any(|step| step["message"]["to_worker"] == 3), "{:?}", steps[0]);
    assert!(answer(&["replay", "show", path, "--limit", "1"], b"").starts_with("WORKER"));
    let verify = ["replay", "verify", path, "--home", home.path(), "--json"];
    let told = &objects(&verify)[0];
    assert_eq!((&told["whole"], &told["steps"]), (&true.into(), &177.into()), "{told}");

    let store = home.layout.store();
    answer(&["store", "put", store.to_str().expect("text"), "orders", "order-00003", "gone"], b"");
    let output = kauri(&verify, b"");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.code() == Some(1) && text.contains("order-00003"), "{text}");

    let recorded = std::fs::read_to_string(&file).expect("a recording");
    let first = recorded.lines().next().expect("a step");
    std::fs::write(&file, format!("{first}\n{first}\n")).expect("written");
    let output = kauri(&["replay", "verify", path], b"");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.code() == Some(1) && text.contains("is recorded twice"), "{text}");
    std::fs::write(&file, "{}\n").expect("written");
    assert!(refusal(&["replay", "show", path], b"").contains("line 1 is no recorded step"));
    let other = Scratch::new("replay-other");
    let line = refusal_of(&["demo", "--home", other.path(), "--orders", "60", "--record", path]);
    assert!(line.contains("File exists"), "a recording is not written over: {line}");
}

#[test]
fn bench_measures_and_leaves_nothing_behind() {
    let scratch = Scratch::new("bench");
    let lines = objects(&["bench", "--seconds", "0.01", "--dir", scratch.path(), "--json"]);
    let names: Vec<&str> = lines.iter().filter_map(|line| line["name"].as_str()).collect();
    assert_eq!(names, ["syncs", "commits", "shared commits", "durable steps", "steps in memory"]);
    assert!(lines.iter().all(|line| line["per_second"].as_f64().is_some_and(|rate| rate > 0.0)), "{lines:?}");
    assert_eq!(scratch.image().len(), 1, "the folder alone");
    assert!(refusal(&["bench", "--seconds", "0", "--dir", scratch.path()], b"").contains("between 0.01 and 60"));
    assert!(refusal(&["bench", "--dir", "/nowhere"], b"").contains("/nowhere"));
}

#[test]
fn completions_are_made_for_every_shell_and_others_are_refused() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = answer(&["completions", shell], b"");
        assert!(script.contains("dead-letters") && script.contains("older-than"), "{shell}");
    }
    assert!(refusal(&["completions", "zshh"], b"").contains("'zsh'"));
}

#[test]
fn every_command_has_a_page_with_the_exit_codes() {
    let scratch = Scratch::new("man");
    let told = answer(&["man", "--dir", scratch.path()], b"");
    let pages: Vec<_> = std::fs::read_dir(scratch.path()).expect("a folder").flatten().collect();
    assert!(told.starts_with(&format!("{} pages", pages.len())) && pages.len() > 45, "{told}");
    for page in &pages {
        let text = std::fs::read_to_string(page.path()).expect("a page");
        assert!(text.contains(".SH \"EXIT STATUS\"") && text.contains("KAURI_HOME"), "{:?}", page.path());
    }
    assert!(answer(&["man", "store", "scan"], b"").contains("kauri\\-store\\-scan"));
    assert!(answer(&["man"], b"").contains("kauri\\-doctor(1)"));
    assert!(refusal(&["man", "store", "scna"], b"").contains("store scna"));
}

#[test]
fn typos_are_answered_with_what_was_meant_at_every_depth() {
    let cases: [(&[&str], &str); 5] = [
        (&["doctr"], "'doctor'"),
        (&["dead-letters", "replya"], "'replay'"),
        (&["runs", "list", "--stat", "running"], "'--state'"),
        (&["store", "scann", "x"], "'scan'"),
        (&["demo", "--crahs"], "'--crash'"),
    ];
    for (args, hint) in cases {
        let line = refusal(args, b"");
        assert!(line.contains(hint), "{args:?}: {line}");
    }
}
