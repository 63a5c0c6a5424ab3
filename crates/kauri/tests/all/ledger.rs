//! `kauri ledger`, `audit`, `stop` and `resume`.

use serde_json::Value;

use crate::homes::Scratch;
use crate::{answer, kauri, refusal};

/// What a command says of this home when all is well.
fn say(home: &Scratch, args: &[&str]) -> String {
    answer(&[args, &["--home", home.path()]].concat(), b"")
}

/// The objects that it prints with `--json`, one a line.
fn objects(home: &Scratch, args: &[&str]) -> Vec<Value> {
    let text = say(home, &[args, &["--json"]].concat());
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn refused(home: &Scratch, args: &[&str]) -> String {
    refusal(&[args, &["--home", home.path()]].concat(), b"")
}

#[test]
fn commands_on_an_empty_home_answer_and_make_nothing() {
    let home = Scratch::new("ledger-empty");
    let before = home.image();
    assert_eq!(say(&home, &["ledger", "actions"]), "no actions\n");
    assert_eq!(say(&home, &["ledger", "orphans"]), "no action without an end\n");
    assert_eq!(say(&home, &["audit", "show"]), "nothing was written down yet\n");
    assert_eq!(say(&home, &["audit", "verify"]), "whole: 0 lines, 0 anchors on them\n");
    for args in [&["ledger", "actions"], &["ledger", "orphans"], &["audit", "show"]] {
        assert_eq!(objects(&home, args), [] as [Value; 0]);
    }
    for args in [["stop"], ["resume"]] {
        assert!(refused(&home, &args).contains("nobody ever worked here"), "{args:?}");
    }
    assert_eq!(home.image(), before);
    std::fs::remove_dir(home.path()).expect("empty");
    for args in [&["ledger", "orphans"][..], &["audit", "verify"], &["stop"], &["resume"]] {
        assert!(refused(&home, args).contains("there is no such home"), "{args:?}");
    }
}

#[test]
fn actions_are_listed_with_filters_and_nothing_is_touched() {
    let home = Scratch::filled("ledger-actions");
    home.leave_orphan("bill-9");
    drop(home.ledger());
    let before = home.image();
    let all = objects(&home, &["ledger", "actions"]);
    assert_eq!(all.iter().map(|row| &row["action_id"]).collect::<Vec<_>>(), ["bill-9", "mail-1"]);
    assert_eq!(all[1]["status"], "COMPLETED");
    assert!(all[1]["result_ref"].as_str().is_some_and(|result| result.starts_with("artifacts/")));
    assert_eq!((&all[0]["task"], &all[0]["error"]), (&"pay the bill".into(), &Value::Null));
    assert_eq!(objects(&home, &["ledger", "actions", "--status", "completed"]).len(), 1);
    assert_eq!(objects(&home, &["ledger", "actions", "--trace", "order-2"]).len(), 1);
    assert_eq!(objects(&home, &["ledger", "actions", "--limit", "1"]).len(), 1);
    let table = say(&home, &["ledger", "actions"]);
    assert!(table.starts_with("ACTION  STATUS     STARTED") && table.lines().count() == 3, "{table}");
    assert_eq!(objects(&home, &["ledger", "orphans"])[0]["action_id"], "bill-9");
    assert!(refused(&home, &["ledger", "actions", "--status", "done"]).contains("expected"));
    assert_eq!(home.image(), before);
}

#[test]
fn orphans_are_resolved_each_way_and_once() {
    let home = Scratch::filled("ledger-resolve");
    let ways: [(&str, &[&str], &str); 4] = [
        ("a", &["--completed", "--result", "id 4711"], "COMPLETED"),
        ("b", &["--failed", "no such account"], "FAILED"),
        ("c", &["--retry"], "RETRIABLE"),
        ("d", &["--needs-human"], "NEEDS_HUMAN"),
    ];
    for (id, way, status) in ways {
        home.leave_orphan(id);
        let args = [&["ledger", "resolve", id, "--json"], way].concat();
        let row: Value = serde_json::from_str(&say(&home, &args)).expect("JSON");
        assert_eq!((&row["action_id"], &row["status"]), (&id.into(), &status.into()));
    }
    let left: Vec<Value> = objects(&home, &["ledger", "orphans"]);
    assert_eq!(left.iter().map(|row| &row["action_id"]).collect::<Vec<_>>(), ["d"], "it still waits for somebody");
    assert!(refused(&home, &["ledger", "resolve", "a", "--retry"]).contains("expected an action without an end"));
    assert!(refused(&home, &["ledger", "resolve", "x", "--retry"]).contains("there is no action \"x\""));
    assert!(refused(&home, &["ledger", "resolve", "d"]).contains("required"));
    assert!(refused(&home, &["ledger", "resolve", "d", "--retry", "--completed"]).contains("cannot be used with"));
    let resolved = objects(&home, &["audit", "show"]);
    assert_eq!(resolved.iter().filter(|line| line["kind"] == "ACTION_RESOLVED").count(), 4);
}

#[test]
fn resolving_is_refused_while_somebody_works_there() {
    let home = Scratch::filled("ledger-held");
    home.leave_orphan("bill-9");
    let ledger = home.ledger();
    let line = refused(&home, &["ledger", "resolve", "bill-9", "--retry"]);
    assert!(line.contains(&format!("is locked by process {}", std::process::id())), "{line}");
    assert_eq!(objects(&home, &["ledger", "orphans"]).len(), 1, "looking is allowed");
    assert_eq!(objects(&home, &["ledger", "actions"]).len(), 2);
    drop(ledger);
}

#[test]
fn a_damaged_journal_is_salvaged_when_asked_and_what_is_lost_is_told() {
    let home = Scratch::filled("ledger-salvage");
    home.leave_orphan("bill-9");
    home.leave_orphan("bill-10");
    assert_eq!(objects(&home, &["ledger", "salvage"]), [serde_json::json!({ "damaged": false })]);
    let journal = home.file("runtime/actions_wal.jsonl");
    let damaged = std::fs::read_to_string(&journal).expect("text").replacen("bill-9", "bill-8", 1);
    std::fs::write(&journal, &damaged).expect("written");
    assert!(refused(&home, &["ledger", "resolve", "bill-10", "--retry"]).contains("damaged"));
    let output = kauri(&["ledger", "salvage", "--json", "--home", home.path()], b"");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &report["kept"], &report["lost"]), (Some(1), &3.into(), &1.into()), "{report}");
    let aside = home.file("runtime").join(report["aside"].as_str().expect("a name"));
    assert_eq!(std::fs::read_to_string(aside).expect("text"), damaged);
    // The database knew of both: nothing is lost of them but the line.
    assert_eq!(report["orphans"], 2, "{report}");
    assert!(report["findings"][0].as_str().is_some_and(|finding| finding.contains("bill-9")), "{report}");
    assert_eq!(say(&home, &["ledger", "salvage"]), "the journal is not damaged\n");
    assert!(say(&home, &["ledger", "resolve", "bill-9", "--retry"]).contains("RETRIABLE"));
    assert!(objects(&home, &["audit", "show"]).iter().any(|line| line["kind"] == "JOURNAL_SALVAGED"));
}

#[test]
fn the_audit_is_shown_and_a_change_is_found() {
    let home = Scratch::filled("ledger-audit");
    let lines = objects(&home, &["audit", "show"]);
    let opened = lines.iter().find(|line| line["kind"] == "SHOP_OPENED").expect("it was noted");
    assert_eq!(opened["detail"]["by"], "Ann");
    assert_eq!(objects(&home, &["audit", "show", "--limit", "1"]).len(), 1);
    assert!(say(&home, &["audit", "show"]).contains("by=Ann"));
    let report = &objects(&home, &["audit", "verify"])[0];
    assert_eq!((&report["whole"], report["lines"].as_u64()), (&true.into(), Some(lines.len() as u64)));
    assert!(report["anchors"].as_u64() > Some(0));

    let days = std::fs::read_dir(home.file("audit")).expect("there").flatten().map(|entry| entry.path());
    let day = days.into_iter().find(|path| !path.ends_with("anchors.jsonl")).expect("a day");
    let text = std::fs::read_to_string(&day).expect("text");
    std::fs::write(&day, text.replacen("Ann", "Eve", 1)).expect("written");
    let output = kauri(&["audit", "verify", "--json", "--home", home.path()], b"");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &report["whole"]), (Some(1), &false.into()));
    assert!(report["broken"].as_array().is_some_and(|broken| !broken.is_empty()), "{report}");
}

#[test]
fn the_kill_switch_is_thrown_once_and_taken_back() {
    let home = Scratch::filled("ledger-switch");
    let thrown = &objects(&home, &["stop", "--reason", "the server repeats"])[0];
    assert_eq!((&thrown["new"], &thrown["noted"]), (&true.into(), &true.into()));
    assert_eq!(say(&home, &["stop"]), "stopped before: the server repeats\n");
    let refused = home.ledger().begin("mail-2", "order-2", "send").expect_err("stopped");
    assert!(refused.to_string().contains("the server repeats"), "{refused}");
    assert_eq!(say(&home, &["resume"]), "resumed\n");
    assert_eq!(say(&home, &["resume"]), "the kill switch was not thrown\n");
    assert!(home.ledger().begin("mail-2", "order-2", "send").is_ok());
    let lines = objects(&home, &["audit", "show"]);
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    let count = |kind| kinds.iter().filter(|found| **found == kind).count();
    assert_eq!((count("KILL_SWITCH_THROWN"), count("KILL_SWITCH_CLEARED")), (1, 1), "{kinds:?}");
}

#[test]
fn the_kill_switch_works_under_another_holder_and_on_a_damaged_home() {
    let home = Scratch::filled("ledger-switch-held");
    let ledger = home.ledger();
    assert_eq!(objects(&home, &["stop"])[0]["noted"], false);
    assert!(ledger.begin("mail-2", "order-2", "send").is_err(), "the holder sees the file");
    assert_eq!(objects(&home, &["resume"])[0]["was_thrown"], true);
    assert!(ledger.begin("mail-2", "order-2", "send").is_ok());
    drop(ledger);
    std::fs::write(home.file("runtime/runtime.db"), b"no database").expect("written");
    assert_eq!(objects(&home, &["stop"])[0]["thrown"], true);
    assert!(home.file("runtime/KILL_SWITCH").exists());
}
