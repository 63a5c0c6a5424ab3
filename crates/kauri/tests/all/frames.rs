//! Jobs whose commands speak run frames, through an instance: the well-behaved one, and every way to be wrong.

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::homes::Scratch;
use crate::instances::{Up, home, log, objects, on, show, wait_until};

/// The program in `examples/framed.rs`, which is built with the tests.
pub(crate) fn program() -> PathBuf {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_kauri"));
    let path = beside.with_file_name("examples").join("framed");
    assert!(path.exists(), "{}: build it with `cargo build -p kauri --example framed`", path.display());
    path
}

/// An instance with one class for each of these ways.
fn started(name: &str, ways: &[&str], more: &str) -> (Scratch, Up) {
    let class = |way: &&str| {
        let command = [program().to_str().expect("text").to_owned(), (*way).to_owned()];
        format!("[job.{way}]\ncommand = {command:?}\nprotocol = \"frames\"\n{more}\n")
    };
    let home = home(name, &ways.iter().map(class).collect::<String>());
    let (up, _) = Up::start(&home);
    (home, up)
}

/// The last run of a job that has ended.
fn ended(home: &Scratch, run: &str) -> Value {
    objects(&on(home, &["runs", "wait", run, "--json"]).stdout).remove(0)
}

fn report(home: &Scratch, run: &Value) -> Value {
    let id = run["run_id"].as_str().expect("an id");
    objects(&on(home, &["runs", "report", id, "--json"]).stdout).remove(0)
}

#[test]
fn a_command_that_speaks_frames_has_its_events_artifacts_and_files_kept() {
    let (home, up) = started("frames-well", &["well"], "");
    let run = up.submit(&["well", "--input", r#"{"page":1}"#]);
    let events = objects(up.say(&["runs", "tail", &run, "--json"]).as_bytes());
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["log", "item", "artifact", "log", "run_complete"], "{events:#?}");
    assert_eq!(events[0]["payload"]["message"], r#"{"page":1}"#);
    assert_eq!(events[1]["payload"], json!({ "item_type": "page", "data": { "title": "Apples" } }));
    let kept = &events[2]["payload"];
    assert_eq!((&kept["name"], &kept["size_bytes"]), (&json!("page.html"), &json!(15)), "{kept}");
    assert_eq!(events[3]["payload"]["message"], "file 1 is kept");
    assert!(events.iter().all(|event| event["run_id"] == *run && event["attempt"] == 1), "{events:#?}");
    assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 1"));
    let told = report(&home, &ended(&home, &run));
    assert_eq!((&told["artifacts"][0]["name"], &told["error"]), (&json!("page.html"), &Value::Null));
    // Both are in the home, with their bytes.
    let image = home.image();
    let is_kept =
        |bytes: &[u8]| image.iter().any(|(path, row)| path.starts_with(home.layout.files()) && row.1 == bytes);
    assert!(is_kept(b"<h1>Apples</h1>") && is_kept(b"12 apples"), "{:?}", image.keys().collect::<Vec<_>>());
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    assert_eq!(on(&home, &["doctor"]).status.code(), Some(0));
}

#[test]
fn frames_against_the_contract_end_the_run_with_the_reason() {
    let cases = [
        ("no-frame", "executor_crash", "16777216 bytes at most"),
        ("gap", "executor_crash", "expected event 2, found event 3"),
        ("other-attempt", "executor_crash", "attempt"),
        ("other-run", "executor_crash", "run"),
        ("cut-off", "executor_crash", "5 bytes"),
        ("no-end", "executor_crash", "said no end"),
        ("size", "executor_crash", "16"),
        ("failed", "script_error", "the shop is closed"),
    ];
    let ways = cases.map(|(way, ..)| way);
    let (home, up) = started("frames-wrong", &ways, "retry = { attempts = 1 }");
    let runs = ways.map(|way| up.submit(&[way]));
    for ((way, outcome, words), run) in cases.into_iter().zip(&runs) {
        let last = ended(&home, run);
        assert_eq!((&last["outcome"], &last["attempt"]), (&json!(outcome), &json!(1)), "{way}: {last}");
        let error = report(&home, &last)["error"].clone();
        assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{way}: {error}");
    }
    // The instance is none the worse for it.
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
}

#[test]
fn what_is_said_after_the_end_is_not_taken_and_the_end_stands() {
    let (home, up) = started("frames-late", &["after-terminal"], "");
    let run = up.submit(&["after-terminal"]);
    let last = ended(&home, &run);
    assert_eq!((&last["outcome"], &last["events"]), (&json!("success"), &json!(5)), "{last}");
    assert_eq!(log(&home, &run).last().map(String::as_str), Some("file 1 is kept"));
    up.kill();
}

#[test]
fn a_refused_command_is_tried_again_as_any_that_crashed() {
    let (home, up) = started("frames-again", &["gap"], "retry = { attempts = 2, pause = \"1ms\" }");
    let last = ended(&home, &up.submit(&["gap"]));
    assert_eq!((&last["outcome"], &last["attempt"]), (&json!("executor_crash"), &json!(2)), "{last}");
    up.kill();
}

#[test]
fn a_command_asks_for_durable_steps_and_is_started_anew_when_what_it_waits_for_has_come() {
    let (home, up) = started("frames-steps", &["steps"], "");
    let run = up.submit(&["steps", "--input", "7"]);
    wait_until("parked", || show(&home, &run)["state"] == "parked");
    // No process waits, and what was recorded survives the instance.
    let said = log(&home, &run);
    let first = ["7", "charging", "an invoice, with an id", "failed: the first run's class allows none"];
    assert_eq!(said, first);
    up.kill();
    let (up, _) = Up::start(&home);
    assert_eq!(on(&home, &["runs", "signal", &run, "go", "--payload", "now"]).status.code(), Some(0));
    let last = ended(&home, &run);
    assert_eq!((&last["outcome"], &last["attempt"]), (&json!("success"), &json!(1)), "{last}");
    // Nothing that was recorded was done again.
    let again = ["7", "failed: the first run's class allows none", "go now"];
    assert_eq!(log(&home, &run), [&first[..], &again[..]].concat());
    let actions = objects(&on(&home, &["ledger", "actions", "--json"]).stdout);
    assert_eq!(actions.iter().filter(|action| action["status"] == "COMPLETED").count(), 1, "{actions:?}");
    up.kill();
}

#[test]
fn an_instance_tells_a_run_that_waits_what_was_decided_about_its_action() {
    let (home, up) = started("frames-doubt", &["doubt"], "");
    let run = up.submit(&["doubt"]);
    wait_until("parked", || show(&home, &run)["state"] == "parked");
    let open = objects(&on(&home, &["ledger", "actions", "--status", "STARTED", "--json"]).stdout);
    let action = open[0]["action_id"].as_str().expect("an id");
    assert_eq!(up.ask(&["ledger", "resolve", action, "--completed"])["status"], json!("COMPLETED"));
    let last = ended(&home, &run);
    assert_eq!((&last["outcome"], &last["attempt"]), (&json!("success"), &json!(1)), "{last}");
    assert_eq!(log(&home, &run).last().map(String::as_str), Some("the invoice is done"));
    up.kill();
}
