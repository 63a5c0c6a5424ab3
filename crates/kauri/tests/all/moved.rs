//! A home that goes elsewhere as a stream: everything that is asked of it is answered as before, and what waits there is done.

use kauri::runtime::{Atomic, Failure, Policy};
use kauri::wire::{MessageRef, Timestamp};
use rustix::process::Signal;
use serde_json::Value;

use crate::homes::{SALES, Scratch, fill_messages, fill_runs, order};
use crate::instances::{HELLO, Up, home, objects, on, wait_until};
use crate::{answer, kauri};

/// Copies the store of a home into another by a checkpoint.
fn move_to(from: &Scratch, to: &Scratch) {
    let stream = to.file("stream");
    let (store, stream) = (from.layout.store(), stream.to_str().expect("text"));
    answer(&["store", "checkpoint", store.to_str().expect("text"), stream], b"");
    std::fs::create_dir_all(to.layout.runtime()).expect("a folder");
    answer(&["store", "restore", to.layout.store().to_str().expect("text"), stream], b"");
    std::fs::remove_file(stream).expect("there");
}

/// The answer of a command to scripts, byte by byte.
fn said(home: &Scratch, args: &[&str]) -> String {
    let output = kauri(&[args, &["--json", "--home", home.path()]].concat(), b"");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_store_that_is_restored_elsewhere_gives_the_same_answers() {
    let home = Scratch::filled("moved-from");
    let runtime = home.runtime();
    let [first, second] = fill_runs(&runtime).map(|run| run.to_string());
    fill_messages(&runtime);
    runtime.arm(Timestamp(4_000_000_000_000), &order("later")).expect("armed");
    runtime.atomic(|block| block.publish(&order("outside"))).expect("published");
    // A message that was handled twice already, and will be again.
    let not_now = |_: &mut Atomic<'_>, _: MessageRef<'_>| Err(Failure::retry("not now"));
    runtime.worker_with(SALES, Policy::default(), not_now).tick().expect("a tick");
    drop(runtime);
    let elsewhere = Scratch::new("moved-to");
    move_to(&home, &elsewhere);
    let questions: Vec<Vec<&str>> = vec![
        vec!["runs", "list"],
        vec!["runs", "show", &first],
        vec!["runs", "show", &second],
        vec!["runs", "events", &first],
        vec!["events", &first],
        vec!["lineage", &first],
        vec!["runs", "report", &first],
        vec!["runs", "tail", &first],
        vec!["runs", "wait", &first],
        vec!["inbox"],
        vec!["timers"],
        vec!["outbox"],
        vec!["leases"],
        vec!["dead-letters", "list"],
        vec!["classes", "list"],
    ];
    let mut empty = Vec::new();
    for question in &questions {
        let before = said(&home, question);
        assert_eq!(said(&elsewhere, question), before, "{question:?}");
        empty.extend(before.is_empty().then(|| question.join(" ")));
    }
    assert!(empty.iter().all(|question| question == "leases"), "nothing was compared: {empty:?}");
    let both = [home.layout.store(), elsewhere.layout.store()].map(|path| path.to_str().expect("text").to_owned());
    assert_eq!(answer(&["store", "diff", &both[0], &both[1]], b""), "", "row by row");
    let sound = |path: &str| answer(&["store", "verify", path], b"");
    assert!(sound(&both[1]).starts_with("sound: "));
}

#[test]
fn what_waits_in_a_home_is_done_where_it_was_restored() {
    let from = home("moved-work", HELLO);
    let runs: Vec<String> = (0..5)
        .map(|_| {
            objects(&on(&from, &["submit", "hello", "--json"]).stdout)[0]["run_id"].as_str().expect("id").to_owned()
        })
        .collect();
    let to = home("moved-done", HELLO);
    move_to(&from, &to);
    let (up, _) = Up::start(&to);
    let done = || objects(&on(&to, &["runs", "list", "--state", "success", "--json"]).stdout);
    wait_until("all are done", || done().len() == runs.len());
    let done: Vec<Value> = done().iter().map(|run| run["run_id"].clone()).collect();
    assert!(runs.iter().all(|run| done.contains(&Value::from(run.as_str()))), "{done:?}");
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    // Where they came from they still wait.
    assert_eq!(objects(&on(&from, &["runs", "list", "--state", "pending", "--json"]).stdout).len(), 5);
}
