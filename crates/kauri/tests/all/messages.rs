//! `kauri inbox`, `timers`, `leases`, `outbox` and `dead-letters`.

use std::sync::Arc;

use kauri::SystemClock;
use kauri::ledger::Home;
use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{Atomic, Failure, Runtime};
use kauri::tree::Store;
use kauri::wire::{Message, MessageId, MessageRef, WorkerId};
use serde_json::Value;

use crate::homes::{SALES, Scratch, fill_messages, order};
use crate::instances::Up;
use crate::{answer, kauri, refusal};

fn say(home: &Scratch, args: &[&str]) -> String {
    answer(&[args, &["--home", home.path()]].concat(), b"")
}

fn objects(home: &Scratch, args: &[&str]) -> Vec<Value> {
    let text = say(home, &[args, &["--json"]].concat());
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn code(home: &Scratch, args: &[&str]) -> Option<i32> {
    kauri(&[args, &["--home", home.path()]].concat(), b"").status.code()
}

const LISTS: [(&[&str], &str); 5] = [
    (&["inbox"], "no messages wait\n"),
    (&["timers"], "no timers\n"),
    (&["leases"], "no leases\n"),
    (&["outbox"], "nothing waits to be delivered\n"),
    (&["dead-letters", "list"], "no dead letters\n"),
];

#[test]
fn an_empty_home_has_no_messages_and_stays_empty() {
    let home = Scratch::new("messages-empty");
    let before = home.image();
    for (args, nothing) in LISTS {
        assert_eq!(say(&home, args), nothing);
        assert_eq!(objects(&home, args), [] as [Value; 0]);
    }
    assert_eq!(code(&home, &["dead-letters", "show", "7/1"]), Some(1));
    assert_eq!(code(&home, &["dead-letters", "replay", "7/1"]), Some(1));
    assert_eq!(say(&home, &["dead-letters", "purge", "--all"]), "no dead letters\n");
    assert_eq!(home.image(), before);
    std::fs::remove_dir(home.path()).expect("empty");
    for (args, _) in LISTS {
        assert!(refusal(&[args, &["--home", home.path()]].concat(), b"").contains("there is no such home"));
    }
}

#[test]
fn what_waits_is_listed_and_nothing_is_touched() {
    let home = Scratch::filled("messages-lists");
    let runtime = home.runtime();
    fill_messages(&runtime);
    runtime.send(&Message::event(WorkerId(-3), MessageId::new(b"\xff").expect("an id"), b"\xfe")).expect("sent");
    drop(runtime);
    let before = home.image();
    let inbox = objects(&home, &["inbox"]);
    let ids: Vec<&str> = inbox.iter().filter_map(|row| row["message"]["message_id"].as_str()).collect();
    assert_eq!((inbox.len(), &ids[..]), (3, &["order-1", "order-2"][..]));
    assert_eq!((&inbox[0]["worker"], &inbox[0]["message"]["payload"]), (&7.into(), &"12 apples".into()));
    assert_eq!(objects(&home, &["inbox", "--worker", "-3"])[0]["message"]["message_id_hex"], "ff");
    assert_eq!(objects(&home, &["inbox", "--limit", "1"]).len(), 1);
    let table = say(&home, &["inbox"]);
    assert!(table.starts_with("WORKER  SEQ  MESSAGE") && table.contains("9 bytes: 12 apples"), "{table}");
    let timers = objects(&home, &["timers"]);
    assert_eq!((timers.len(), &timers[0]["due"]), (1, &"1970-01-01T00:00:01.000Z".into()));
    assert_eq!((&timers[0]["is_due"], &timers[0]["message"]["message_id"]), (&true.into(), &"reminder".into()));
    let letters = objects(&home, &["dead-letters", "list"]);
    assert_eq!((letters.len(), &letters[0]["reason"]), (1, &"failure budget spent".into()));
    assert!(letters[0]["detail"].as_str().is_some_and(|detail| detail.contains("no such account")), "{letters:?}");
    assert_eq!(home.image(), before);
}

#[test]
fn messages_for_elsewhere_wait_in_the_outbox() {
    let home = Scratch::filled("messages-outbox");
    let store = Store::open(home.layout.store()).expect("a store");
    let builder = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(SystemClock::new()));
    let runtime = builder.elsewhere(|worker| worker == SALES).start().expect("a runtime");
    runtime.send(&order("order-9")).expect("sent");
    drop(runtime);
    let outbox = objects(&home, &["outbox"]);
    assert_eq!((outbox.len(), &outbox[0]["message"]["message_id"]), (1, &"order-9".into()));
    assert!(say(&home, &["outbox"]).contains("order-9"));
}

#[test]
fn leases_are_seen_while_a_worker_has_them() {
    let home = Scratch::filled("messages-leases");
    let runtime = home.runtime();
    runtime.send(&order("order-1")).expect("sent");
    let (tell, seen) = std::sync::mpsc::channel();
    let path = home.path().to_owned();
    let look = move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
        tell.send(answer(&["leases", "--json", "--home", &path], b"")).expect("somebody listens");
        Ok::<(), Failure>(())
    };
    runtime.worker(SALES, look).drain().expect("handled");
    let lease: Value = serde_json::from_str(&seen.recv().expect("it was handled")).expect("one lease");
    assert_eq!((&lease["worker"], &lease["deliveries"]), (&7.into(), &1.into()));
    assert_eq!((&lease["is_of_last_start"], lease["messages"].as_array().map(Vec::len)), (&true.into(), Some(1)));
    assert_eq!(say(&home, &["leases"]), "no leases\n");
}

/// The dead letters that were removed by hand, as the audit has them.
fn purged(home: &Scratch) -> Vec<String> {
    let lines = objects(home, &["audit", "show"]);
    let purged = lines.iter().filter(|line| line["kind"] == "DEAD_LETTER_PURGED").map(|line| &line["detail"]);
    let key = |detail: &Value| {
        assert_eq!(detail["reason"], "failure budget spent", "{detail}");
        format!("{}/{}", detail["worker"].as_str().expect("text"), detail["seq"].as_str().expect("text"))
    };
    purged.map(key).collect()
}

#[test]
fn dead_letters_that_an_instance_purges_stand_in_the_audit_once() {
    let home = Scratch::filled("messages-purged");
    let runtime = home.runtime();
    fill_messages(&runtime);
    drop(runtime);
    let (up, _) = Up::start(&home);
    let key = objects(&home, &["dead-letters", "list"])[0]["key"].as_str().expect("a key").to_owned();
    assert_eq!(say(&home, &["dead-letters", "purge", "--older-than", "1h"]), "no dead letters\n");
    assert_eq!(purged(&home), [""; 0]);
    for _ in 0..2 {
        say(&home, &["dead-letters", "purge", "--all"]);
        assert_eq!(purged(&home), [&*key]);
    }
    up.kill();
    assert!(say(&home, &["audit", "verify"]).starts_with("whole"), "the chain goes on");
}

#[test]
fn dead_letters_are_shown_replayed_and_purged() {
    let home = Scratch::filled("messages-dead");
    let runtime = home.runtime();
    for id in ["a", "b", "c"] {
        runtime.send(&order(id)).expect("sent");
    }
    let refuse = |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::fatal("no such account"));
    runtime.worker(SALES, refuse).drain().expect("handled");
    drop(runtime);
    let letters = objects(&home, &["dead-letters", "list"]);
    let keys: Vec<&str> = letters.iter().filter_map(|letter| letter["key"].as_str()).collect();
    let [first, second, third] = keys[..] else { panic!("three letters: {letters:?}") };
    assert_eq!(objects(&home, &["dead-letters", "show", first])[0]["message"]["message_id"], "a");
    assert!(say(&home, &["dead-letters", "show", first]).contains("reason      failure budget spent"));

    let held = Home::lock(home.path()).expect("free");
    let line = refusal(&["dead-letters", "replay", first, "--home", home.path()], b"");
    assert!(line.contains("is locked by process"), "{line}");
    drop(held);
    let done = &objects(&home, &["dead-letters", "replay", first])[0];
    assert_eq!((&done["key"], &done["done"]), (&first.into(), &"replayed".into()));
    assert_eq!(objects(&home, &["inbox"]).len(), 1);
    assert_eq!(code(&home, &["dead-letters", "replay", first]), Some(1), "it is not there any more");

    assert_eq!(say(&home, &["dead-letters", "purge", "--older-than", "1h"]), "no dead letters\n");
    assert_eq!(say(&home, &["dead-letters", "purge", second]), format!("purged {second}\n"));
    assert_eq!(code(&home, &["dead-letters", "purge", second, third]), Some(1), "one of them was there");
    assert_eq!(objects(&home, &["dead-letters", "list"]), [] as [Value; 0]);
    assert_eq!(purged(&home), [second, third], "what was removed stands in the audit, what was replayed is not gone");
    let output = kauri(&["dead-letters", "--home", home.path(), "show", "--", "-1/3"], b"");
    assert_eq!(output.stdout, b"there is no dead letter -1/3\n", "letters of nobody can be named");
    for wrong in [&["dead-letters", "show", "7"][..], &["dead-letters", "purge"], &["dead-letters", "replay"]] {
        refusal(&[wrong, &["--home", home.path()]].concat(), b"");
    }
}

#[test]
fn all_dead_letters_are_replayed_at_once() {
    let home = Scratch::filled("messages-replay");
    let runtime = home.runtime();
    fill_messages(&runtime);
    drop(runtime);
    assert_eq!(objects(&home, &["dead-letters", "replay", "--all"]).len(), 1);
    assert_eq!((objects(&home, &["inbox"]).len(), objects(&home, &["dead-letters", "list"]).len()), (3, 0));
}

#[test]
fn a_damaged_store_is_told_in_one_line() {
    let home = Scratch::filled("messages-damaged");
    std::fs::write(home.layout.store(), vec![7; 40_000]).expect("written");
    for (args, _) in LISTS {
        let line = refusal(&[args, &["--home", home.path()]].concat(), b"");
        assert!(line.contains("store.kauri"), "{line}");
    }
    refusal(&["dead-letters", "purge", "--all", "--home", home.path()], b"");
    refusal(&["runs", "list", "--home", home.path()], b"");
}
