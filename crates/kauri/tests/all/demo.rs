//! `kauri demo`: it does what it shows, and its proof can fail.

use std::path::Path;

use kauri::ledger::Look;
use serde_json::Value;

use crate::homes::Scratch;
use crate::{answer, kauri, refusal};

/// A finished demo of few orders in this home.
fn finished(home: &Scratch) -> Value {
    let text = answer(&["demo", "--home", home.path(), "--orders", "60", "--seed", "5", "--json"], b"");
    serde_json::from_str(&text).expect("one object")
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn demo_proves_its_totals_from_a_home_in_a_file() {
    let home = Scratch::new("demo-plain");
    let told = finished(&home);
    assert_eq!(told["holds"], true, "{told}");
    assert_eq!((number(&told, "shipped"), number(&told, "dead_letters"), number(&told, "kills")), (59, 1, 0));
    // One run closes the day, one for each customer makes an invoice, and one of them fails at first.
    assert_eq!(number(&told, "runs"), number(&told, "invoices") + 2);
    assert_eq!(number(&told, "actions"), number(&told, "invoices"));
    assert!(number(&told, "failed_tries_seen") > 0, "the bank was busy: {told}");
}

#[test]
fn commands_that_demo_suggests_work_on_its_home() {
    let home = Scratch::new("demo-suggests");
    let text = answer(&["demo", "--home", home.path(), "--orders", "60"], b"");
    let suggested = text.split_once("Try on it:").expect("suggestions").1.lines().map(str::trim);
    let suggested: Vec<&str> = suggested.filter_map(|line| line.strip_prefix("kauri ")).collect();
    assert_eq!(suggested.len(), 6, "{text}");
    for line in suggested {
        let command = line.split('#').next().expect("a command").replace("$KAURI_HOME", home.path()).replace('"', "");
        let mut args: Vec<&str> = command.split_whitespace().collect();
        if args[0] != "store" {
            args.extend(["--home", home.path()]);
        }
        let output = kauri(&args, b"");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // The doctor has one thing to say: the dead letter.
        let expected = if args[0] == "doctor" { Some(1) } else { Some(0) };
        assert_eq!(output.status.code(), expected, "{line}: {said}{}", String::from_utf8_lossy(&output.stderr));
        let hint = match args[0] {
            "doctor" => "WARN   dead-letters  1 dead letter",
            "dead-letters" => "lots",
            "runs" => "(invoice)",
            "ledger" => "post-customer-01",
            "audit" => "whole:",
            _ => "shipped: customer-",
        };
        assert!(said.contains(hint), "{line}: {said}");
    }
}

/// What the proof says of a home that somebody changed.
fn found_wrong(name: &str, doctor: impl FnOnce(&Scratch)) -> Vec<String> {
    let home = Scratch::new(name);
    finished(&home);
    doctor(&home);
    let output = kauri(&["demo", "--home", home.path(), "--json"], b"");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(told["holds"], false);
    let output = kauri(&["demo", "--home", home.path()], b"");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(1) && text.contains("WRONG") && text.contains("totals are wrong"), "{text}");
    let wrong = told["totals"].as_array().expect("totals").iter().filter(|line| line["holds"] == false);
    wrong.map(|line| line["what"].as_str().expect("text").to_owned()).collect()
}

fn store(home: &Scratch) -> String {
    home.layout.store().to_str().expect("text").to_owned()
}

#[test]
fn proof_finds_an_order_that_is_lost() {
    let wrong =
        found_wrong("demo-lost", |home| drop(answer(&["store", "del", &store(home), "orders", "order-00007"], b"")));
    assert_eq!(wrong, ["orders shipped", "orders that came to an end"]);
}

#[test]
fn proof_finds_a_step_that_was_applied_twice() {
    let wrong = found_wrong("demo-twice", |home| {
        let sum =
            answer(&["store", "get", &store(home), "books", "shipped"], b"").trim().parse::<u64>().expect("a sum");
        answer(&["store", "put", &store(home), "books", "shipped", &(sum + 1).to_string()], b"");
    });
    assert_eq!(wrong, ["orders handed over"]);
}

#[test]
fn proof_finds_a_dead_letter_that_vanished() {
    let wrong = found_wrong("demo-vanished", |home| {
        answer(&["dead-letters", "purge", "--all", "--home", home.path()], b"");
    });
    assert_eq!(wrong, ["dead letters", "orders that came to an end"]);
}

#[test]
fn proof_finds_an_artifact_that_was_changed() {
    let wrong = found_wrong("demo-artifact", |home| {
        let database = Look::at(home.layout.home()).database().expect("whole").expect("there");
        let kept = database.actions(None, None, 1).expect("rows")[0].result_ref.clone().expect("an artifact");
        std::fs::write(home.file(&kept), "For your apples we ask for 1 cents.").expect("written");
    });
    assert_eq!(wrong, ["cents on the invoices that are kept", "findings about actions (I1 to I5, I8)"]);
}

#[test]
fn proof_finds_a_letter_that_left_twice() {
    let wrong = found_wrong("demo-letters", |home| {
        let path = home.file("outside/letters.txt");
        let text = std::fs::read_to_string(&path).expect("letters");
        let first = text.lines().next().expect("a letter");
        std::fs::write(&path, format!("{text}{first}\n")).expect("written");
    });
    assert_eq!(wrong, ["letters that left the house"]);
}

/// Runs `demo --crash` with each seed; all together they must have been killed at every stage of the work.
fn crash(seeds: std::ops::RangeInclusive<u64>) {
    let mut kills = 0;
    for seed in seeds {
        let home = Scratch::new(&format!("demo-crash-{seed}"));
        let seed = seed.to_string();
        let args =
            ["demo", "--crash", "--home", home.path(), "--orders", "120", "--kills", "6", "--seed", &seed, "--json"];
        let output = kauri(&args, b"");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let again = "replay it with `kauri demo --crash --orders 120 --kills 6 --seed";
        assert!(output.status.success(), "{text}{}; {again} {seed}`", String::from_utf8_lossy(&output.stderr));
        let told: Value = serde_json::from_str(&text).expect("one object");
        assert_eq!((number(&told, "shipped"), number(&told, "dead_letters")), (119, 1), "{again} {seed}`");
        kills += number(&told, "kills");
    }
    assert!(kills >= 5, "it was killed {kills} times only");
}

#[test]
fn demo_survives_its_crashes_with_seeds_1_to_5() {
    crash(1..=5);
}

#[test]
fn demo_survives_its_crashes_with_seeds_6_to_10() {
    crash(6..=10);
}

#[test]
fn demo_survives_its_crashes_with_seeds_11_to_15() {
    crash(11..=15);
}

#[test]
fn demo_survives_its_crashes_with_seeds_16_to_20() {
    crash(16..=20);
}

#[test]
fn demo_goes_on_where_it_was_killed_and_is_done_once() {
    let home = Scratch::new("demo-resume");
    // A life that kills itself, without anybody to start it again.
    let args = ["demo", "--home", home.path(), "--orders", "120", "--seed", "3", "--kills", "3"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kauri"));
    let output = command.args(args).env("KAURI_DEMO_LIFE", "2").output().expect("the binary starts");
    assert!(!output.status.success(), "it was to be killed");
    let text = answer(&["demo", "--home", home.path()], b"");
    assert!(text.contains("Nothing lost, nothing doubled: 120 orders"), "{text}");
    let again = answer(&["demo", "--home", home.path()], b"");
    assert!(again.contains("done already") && again.contains("Nothing lost, nothing doubled"), "{again}");
    let line = refusal(&["demo", "--home", home.path(), "--orders", "500"], b"");
    assert!(line.contains("one of 120 orders with seed 3"), "{line}");
}

#[test]
fn demo_refuses_a_home_that_is_used_or_in_use_or_cannot_be() {
    let other = Scratch::filled("demo-other");
    crate::homes::fill_messages(&other.runtime());
    let line = refusal(&["demo", "--home", other.path()], b"");
    assert!(line.contains("expected an empty folder or the home of a demo, found"), "{line}");
    let full = Scratch::new("demo-full");
    std::fs::write(full.file("thesis.txt"), "").expect("written");
    assert!(refusal(&["demo", "--home", full.path()], b"").contains("found thesis.txt"));
    assert_eq!(full.image().len(), 2, "nothing was made");

    let locked = Scratch::new("demo-locked");
    let held = locked.ledger();
    let output = kauri(&["demo", "--home", locked.path()], b"");
    let line = String::from_utf8(output.stderr).expect("text");
    assert!(output.status.code() == Some(2) && line.contains(&std::process::id().to_string()), "{line}");
    drop(held);

    let file = locked.file("a-file");
    std::fs::write(&file, "").expect("written");
    let inside = file.join("home");
    for path in [&file, &inside] {
        let line = refusal(&["demo", "--home", path.to_str().expect("text")], b"");
        assert!(line.contains("a-file"), "{line}");
    }
    assert!(Path::new(&file).is_file());
}

#[test]
fn demo_refuses_a_number_of_orders_that_makes_no_sense() {
    for orders in ["0", "-1", "many", "1000001"] {
        assert!(refusal(&["demo", "--orders", orders], b"").contains("--orders"));
    }
}
