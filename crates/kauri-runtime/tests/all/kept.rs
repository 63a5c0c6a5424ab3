//! What stays although its class keeps it no longer, because somebody needs it; and which goes of what is too much.

use std::time::Duration;

use kauri_runtime::run::{Class, Ending, Enqueued, Exit, FanOut, Halt, Keep, LiveRun, Outcome, Retry, Runs};
use kauri_runtime::{Failure, Policy, Worker};
use kauri_wire::pack::MapBuf;
use kauri_wire::{RunId, WorkerId};

use crate::runs::{CREW, crew, setup_with, submit, well};
use crate::setup::Setup;

const OTHERS: WorkerId = WorkerId(77);
const DONE: Outcome = Outcome::Success { skipped: false };

/// A class of which nothing is kept.
fn fleeting(worker: WorkerId) -> Class {
    Class { keep: nothing(), ..single(worker) }
}

fn nothing() -> Keep {
    Keep { time: Some(Duration::ZERO), ..Keep::default() }
}

/// A class of jobs with one run each.
fn single(worker: WorkerId) -> Class {
    Class { retry: Retry::never(), ..Class::new(worker) }
}

fn others(setup: &Setup, drive: impl FnMut(&mut LiveRun) -> Result<Ending, Halt> + Send + 'static) -> Worker {
    setup.runtime.run_worker(OTHERS, Policy::default(), drive)
}

fn sweep_all(runs: &Runs) {
    while runs.sweep(1000).unwrap().rows > 0 {}
}

/// Asks in a step for work of a class, which is the same each time.
fn ask(live: &mut LiveRun, target: &str) -> Result<RunId, Halt> {
    let made = live.step(&format!("ask for {target}"), |step| match step.enqueue(target, MapBuf::new().view())? {
        Enqueued::Made(run) | Enqueued::Same(run) => Ok(run.as_bytes().to_vec()),
        Enqueued::Skipped(skip) => Err(Failure::fatal(skip.as_str())),
    })?;
    Ok(RunId::from_bytes(made.try_into().unwrap()).unwrap())
}

#[test]
fn job_through_which_a_tree_failed_stays_as_long_as_its_first_job_if_all_of_them_count() {
    for (exit, is_kept) in [(Exit::All, true), (Exit::Root, false)] {
        let fan_out = FanOut { depth_max: 2, exit, ..FanOut::default() };
        let class = Class { fan_out, ..single(CREW) };
        let (setup, runs) = setup_with(&class);
        ["middle", "fails"].iter().for_each(|name| runs.define(name, &fleeting(OTHERS)).unwrap());
        let root = submit(&runs);
        let mut worker = crew(&setup, |live| {
            ask(live, "middle")?;
            live.wait_for_signal("go")?;
            well(live)
        });
        worker.drain().unwrap();
        let drive = |live: &mut LiveRun| match &*live.run().class {
            "middle" => ask(live, "fails").and_then(|_| well(live)),
            _ => Err(Halt::Failed("bad".into())),
        };
        others(&setup, drive).drain().unwrap();
        // The tree is open, and then it has ended: its outcome is the same.
        for _ in 0..2 {
            sweep_all(&runs);
            assert_eq!(runs.list(None, 10).unwrap().len(), if is_kept { 3 } else { 1 });
            let _ = runs.signal(root.run, "go", b"");
            worker.drain().unwrap();
            let expected = if is_kept { Outcome::ScriptError } else { DONE };
            assert_eq!(runs.tree(root.run).unwrap().outcome(), Some(expected));
        }
        runs.define("work", &Class { keep: nothing(), ..class }).unwrap();
        sweep_all(&runs);
        assert!(runs.list(None, 10).unwrap().is_empty());
    }
}
