//! Filters, pages and time zones of the commands that list things.

use std::process::Command;

use kauri::ledger::AuditNote;
use kauri::runtime::run::{Class, Submission};
use kauri::runtime::{Atomic, Failure, Runtime};
use kauri::wire::{Message, MessageId, MessageRef, Timestamp, WorkerId};
use serde_json::Value;

use crate::homes::{CRAWLER, SALES, Scratch, order};
use crate::{answer, refusal};

fn objects(home: &Scratch, args: &[&str]) -> Vec<Value> {
    let text = answer(&[args, &["--json", "--home", home.path()]].concat(), b"");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Follows the pages of a list as a person does, and must see every row of it once, in order.
fn check_pages(home: &Scratch, command: &[&str], name: impl Fn(&Value) -> String) {
    let all: Vec<String> = objects(home, &[command, &["--limit", "1000"]].concat()).iter().map(&name).collect();
    assert!(all.len() > 4, "{command:?}: {all:?}");
    let (mut seen, mut after) = (Vec::new(), None::<String>);
    for _ in 0..all.len() {
        let mut args = [command, &["--limit", "2"]].concat();
        if let Some(after) = &after {
            args.extend(["--after", after]);
        }
        seen.extend(objects(home, &args).iter().map(&name));
        let text = answer(&[&args[..], &["--home", home.path()]].concat(), b"");
        match text.rsplit_once("there may be more: --after ") {
            Some((_, key)) => after = Some(key.trim().to_owned()),
            None => break,
        }
    }
    assert_eq!(seen, all, "{command:?}");
}

#[test]
fn what_waits_is_listed_in_pages_that_miss_nothing() {
    let home = Scratch::new("lists-pages");
    let runtime = home.runtime();
    for number in 0..7 {
        let to = |worker| Message::command(worker, MessageId::new(format!("m-{number}")).expect("an id"), "12 apples");
        runtime.send(&to(if number % 2 == 0 { SALES } else { WorkerId(-3) })).expect("sent");
        // Two at the same moment: the number tells them apart.
        runtime.arm(Timestamp(4_000_000_000_000 + number / 2), &to(SALES)).expect("armed");
        runtime.atomic(|block| block.publish(&to(SALES))).expect("published");
    }
    drop(runtime);
    let text = |value: &Value| value.to_string();
    check_pages(&home, &["inbox"], text);
    check_pages(&home, &["timers"], text);
    check_pages(&home, &["outbox"], text);
    assert_eq!(objects(&home, &["inbox", "--worker", "-3", "--after", "-3/1"]).len(), 2);
    for (command, bad) in [("inbox", "7"), ("timers", "5"), ("timers", "yesterday/5"), ("outbox", "x")] {
        assert!(refusal(&[command, "--after", bad, "--home", home.path()], b"").contains(bad), "{command} {bad}");
    }
}

#[test]
fn dead_letters_are_listed_in_pages_and_by_age() {
    let home = Scratch::new("lists-dead");
    let runtime = home.runtime();
    let refuse = |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::fatal("no such account"));
    for number in 0..6 {
        runtime.send(&order(&format!("bad-{number}"))).expect("sent");
    }
    runtime.worker(SALES, refuse).drain().expect("handled");
    drop(runtime);
    check_pages(&home, &["dead-letters", "list"], |letter| letter["key"].to_string());
    assert_eq!(objects(&home, &["dead-letters", "list", "--since", "1h"]).len(), 6);
    assert_eq!(objects(&home, &["dead-letters", "list", "--since", "0s"]).len(), 0);
}

#[test]
fn runs_are_listed_in_pages_and_by_tag() {
    let home = Scratch::new("lists-runs");
    let runtime = home.runtime();
    runtime.runs().define("greeting", &Class::new(CRAWLER)).expect("defined");
    for number in 0..6 {
        let submission = Submission::new("greeting", "").tag(if number < 2 { "nightly" } else { "daily" });
        runtime.runs().submit(&submission).expect("submitted");
    }
    drop(runtime);
    check_pages(&home, &["runs", "list"], |run| run["run_id"].to_string());
    let count = |tag| objects(&home, &["runs", "list", "--tag", tag]).len();
    assert_eq!((count("nightly"), count("daily"), count("night")), (2, 4, 0));
    assert_eq!(objects(&home, &["runs", "list", "--tag", "daily", "--limit", "3"]).len(), 3);
}

#[test]
fn actions_are_listed_in_pages_and_by_age() {
    let home = Scratch::new("lists-actions");
    let ledger = home.ledger();
    for number in 0..6 {
        let mut action = ledger.begin(format!("mail-{number}"), "order-1", "send it").expect("begun");
        action.complete(None).expect("completed");
    }
    drop(ledger);
    check_pages(&home, &["ledger", "actions"], |action| action["action_id"].to_string());
    assert_eq!(objects(&home, &["ledger", "actions", "--since", "1h"]).len(), 6);
    assert_eq!(objects(&home, &["ledger", "actions", "--since", "0s"]).len(), 0);
    assert!(refusal(&["ledger", "actions", "--after", "mail-9", "--home", home.path()], b"").contains("mail-9"));
    assert_eq!(objects(&home, &["audit", "show", "--since", "1h"]).len(), 6);
    assert_eq!(objects(&home, &["audit", "show", "--since", "0s"]).len(), 0);
}

#[test]
fn the_audit_is_shown_from_its_end_and_in_pages_from_its_beginning() {
    let home = Scratch::new("lists-audit");
    let ledger = home.ledger();
    for number in 0..7 {
        ledger.audit().append(&AuditNote::new("SHOP_OPENED").with("number", number.to_string())).expect("noted");
    }
    drop(ledger);
    let all: Vec<String> = objects(&home, &["audit", "show"]).iter().map(Value::to_string).collect();
    assert_eq!(all.len(), 7);
    let text = |args: &[&str]| answer(&[&["audit", "show"], args, &["--home", home.path()]].concat(), b"");
    let (mut seen, mut after) = (Vec::new(), "0".to_owned());
    loop {
        let args = ["--limit", "2", "--after", &after];
        seen.extend(objects(&home, &[&["audit", "show"], &args[..]].concat()).iter().map(Value::to_string));
        match text(&args).rsplit_once("there may be more: --after ") {
            Some((_, key)) => after = key.trim().to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, all);
    let newest: Vec<String> = objects(&home, &["audit", "show", "--limit", "3"]).iter().map(Value::to_string).collect();
    assert_eq!(newest, all[4..]);
    // What came before the newest three is the page that is named.
    assert!(text(&["--limit", "3"]).ends_with("there are older lines: --after 1\n"), "{}", text(&["--limit", "3"]));
    assert!(!text(&["--limit", "7"]).contains("--after") && !text(&["--after", "9"]).contains("--after"));
}

#[test]
fn leases_are_listed_in_pages() {
    let home = Scratch::new("lists-leases");
    let runtime = home.runtime();
    let workers: Vec<WorkerId> = (1..=5).map(WorkerId).collect();
    for worker in &workers {
        let id = MessageId::new(format!("m-{worker}")).expect("an id");
        runtime.send(&Message::command(*worker, id, "12 apples")).expect("sent");
    }
    // Each is asked from within the one before, so that all leases are there at once.
    look_from_within(&runtime, &workers, &|| {
        check_pages(&home, &["leases"], |lease| lease["key"].to_string());
    });
}

fn look_from_within(runtime: &Runtime, workers: &[WorkerId], look: &(dyn Fn() + Sync)) {
    let Some((worker, rest)) = workers.split_first() else { return look() };
    let inner = runtime.clone();
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let (worker, inner) = (*worker, inner.clone());
        scope.spawn(move || {
            let wait = std::sync::Mutex::new(wait);
            let hold = move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
                tell.send(()).map_err(Failure::retry)?;
                let _over = wait.lock().map_err(|error| Failure::retry(error.to_string()))?.recv();
                Ok(())
            };
            inner.worker(worker, hold).tick().expect("a tick");
        });
        told.recv().expect("it is held");
        look_from_within(runtime, rest, look);
        drop(go_on);
    });
}

#[test]
fn every_command_that_shows_a_moment_knows_zones() {
    let home = Scratch::filled("lists-utc");
    let runtime = home.runtime();
    crate::homes::fill_messages(&runtime);
    let [first, _] = crate::homes::fill_runs(&runtime);
    runtime.arm(Timestamp(4_000_000_000_000), &order("later")).expect("armed");
    drop(runtime);
    home.leave_orphan("bill-1");
    drop(home.ledger());
    let run = first.to_string();
    let letters = objects(&home, &["dead-letters", "list"]);
    let letter = letters[0]["key"].as_str().expect("a key").to_owned();
    let store = home.layout.store().to_str().expect("text").to_owned();
    let at = ["--home", home.path()];
    let on = |args: &[&str]| -> Vec<String> { args.iter().chain(&at).map(|arg| (*arg).to_owned()).collect() };
    let of_store = |args: &[&str]| -> Vec<String> { args.iter().map(|arg| (*arg).to_owned()).collect() };
    let commands = [
        on(&["doctor"]),
        on(&["runs", "list"]),
        on(&["runs", "show", &run]),
        on(&["runs", "events", &run]),
        on(&["runs", "tail", &run]),
        on(&["runs", "wait", &run]),
        on(&["runs", "report", &run]),
        on(&["events", &run]),
        on(&["timers"]),
        on(&["dead-letters", "list"]),
        on(&["dead-letters", "show", &letter]),
        on(&["ledger", "actions"]),
        on(&["ledger", "orphans"]),
        on(&["audit", "show"]),
        of_store(&["store", "pin", &store, "monday"]),
        of_store(&["store", "pins", &store]),
    ];
    for (at, args) in commands.iter().enumerate() {
        let said = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
            command.env("TZ", "EAST-2").args(args).args(more);
            String::from_utf8(command.output().expect("the binary runs").stdout).expect("text")
        };
        assert!(said(&[]).contains("+02:00"), "{args:?}: {}", said(&[]));
        if at != 14 {
            let utc = said(&["--utc"]);
            assert!(!utc.contains("+02:00") && utc.contains("Z"), "{args:?}: {utc}");
        }
    }
    // So does whatever else has a moment to tell: no list of commands is for ever.
    assert!(answer(&["up", "--help"], b"").contains("--utc") && answer(&["submit", "--help"], b"").contains("--utc"));
}

#[test]
fn people_see_moments_in_their_time_zone_and_scripts_in_utc() {
    let home = Scratch::new("lists-zones");
    let runtime = home.runtime();
    runtime.arm(Timestamp(4_000_000_000_123), &order("later")).expect("armed");
    drop(runtime);
    let timers = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
        command.env("TZ", "EAST-2").arg("timers").args(args).args(["--home", home.path()]);
        String::from_utf8(command.output().expect("the binary runs").stdout).expect("text")
    };
    assert!(timers(&[]).contains("2096-10-02T09:06:40.123+02:00"), "{}", timers(&[]));
    assert!(timers(&["--utc"]).contains("2096-10-02T07:06:40.123Z"), "{}", timers(&["--utc"]));
    assert!(timers(&["--json"]).contains("2096-10-02T07:06:40.123Z"), "{}", timers(&["--json"]));
}
