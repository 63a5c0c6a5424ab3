//! Runs that wait because nobody knows whether an effect happened: once somebody has decided, the instance tells them.

use std::sync::Arc;

use kauri::runtime::run::{Class, Ending, Halt, LiveRun, Retry, State, Submission};
use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{Policy, Runtime};
use kauri::tree::Options;
use kauri::tree::disk::OsDisk;
use kauri::wire::JobId;
use kauri::wire::pack::Map;
use kauri::{RunLedger, SystemClock};
use serde_json::json;

use crate::homes::{CRAWLER, Scratch};
use crate::instances::{HELLO, Up, home, objects, on, show};

/// The run of the sale, and the action that it was in the middle of.
const RUN: &str = "01999999-0000-7000-8000-000000000007";
const ACTION: &str = "sale-1@01999999-0000-7000-8000-000000000007#0:charge";

/// A home in which a run of the class `hello` waits, because its action was begun and has no end: the run.
fn in_doubt(name: &str) -> (Scratch, String) {
    let home = home(name, HELLO);
    home.leave_orphan(ACTION);
    // The store is made by the commands' own way first.
    drop(home.runtime());
    let actions = RunLedger::new(Arc::new(home.ledger()));
    let disk = OsDisk::new(home.layout.runtime()).expect("a disk");
    let store = Options::new().keeper(false).open(&disk, "store.kauri").expect("a store");
    let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(SystemClock::new()))
        .ledger(Arc::new(actions))
        .start()
        .expect("a runtime");
    let runs = runtime.runs();
    runs.define("hello", &Class { retry: Retry::never(), ..Class::new(CRAWLER) }).expect("defined");
    let sale = Submission::new("hello", r#""twelve apples""#).job_id(JobId::new("sale-1").expect("an id"));
    let sale = sale.run_id(RUN.parse().expect("a run's id"));
    let run = runs.submit(&sale).expect("submitted").run;
    let charge = |live: &mut LiveRun| {
        live.action("charge", "pay the bill", |_| panic!("nobody knows whether it was charged"))?;
        Ok::<_, Halt>(Ending::success(live.now().wall, Map::EMPTY))
    };
    runtime.run_worker(CRAWLER, Policy::default(), charge).drain().expect("driven");
    assert_eq!(runs.run(run).expect("read").state, State::Parked);
    drop((runs, runtime));
    (home, run.to_string())
}

#[test]
fn decision_that_was_made_while_nothing_ran_is_told_when_an_instance_starts() {
    let (home, run) = in_doubt("decided-before");
    let resolved = on(&home, &["ledger", "resolve", ACTION, "--completed", "--json"]);
    assert!(resolved.status.success(), "{resolved:?}");
    assert_eq!(show(&home, &run)["state"], "parked");
    let (up, _) = Up::start(&home);
    assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 1"));
    up.kill();
}

#[test]
fn decision_that_is_made_while_an_instance_runs_is_made_by_it_once() {
    let home = home("decided-running", HELLO);
    home.leave_orphan(ACTION);
    let (up, _) = Up::start(&home);
    assert_eq!(up.ask(&["ledger", "resolve", ACTION, "--failed", "the card was refused"])["status"], json!("FAILED"));
    let failed = on(&home, &["ledger", "actions", "--status", "FAILED", "--json"]);
    assert_eq!(objects(&failed.stdout)[0]["error"], "the card was refused");
    let refused = on(&home, &["ledger", "resolve", ACTION, "--retry"]);
    assert_eq!(refused.status.code(), Some(2), "it has an end: {refused:?}");
    let missing = on(&home, &["ledger", "resolve", "nothing", "--retry"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    up.kill();
}
