//! What stays although its class keeps it no longer, because somebody needs it; and which goes of what is too much.

use std::time::Duration;

use kauri_runtime::run::{
    Class, Ending, Enqueued, EventSink, Exit, FanOut, Halt, Keep, Limits, LiveRun, OnFailed, Outcome, Retry, RunFault,
    Runs, State, Submission,
};
use kauri_runtime::substrate::KeyRange;
use kauri_runtime::{Error, Failure, Policy, Worker};
use kauri_wire::pack::MapBuf;
use kauri_wire::{RunId, WorkerId};

use crate::runs::{CREW, crew, log, setup_with, submit, well};
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

/// How many marks of a kind the index of runs has.
fn marks(setup: &Setup, tag: u8) -> u64 {
    let rows = setup.runtime.substrate().snapshot().unwrap();
    rows.count(&"run_index".into(), KeyRange { from: &[tag], until: Some(&[tag + 1]) }).unwrap()
}

fn outcome(runs: &Runs, run: RunId) -> Option<Outcome> {
    runs.run(run).unwrap().outcome()
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

#[test]
fn job_stays_until_whoever_waits_for_it_has_heard_how_it_ended() {
    for is_cancelled in [false, true] {
        let (setup, runs) = setup_with(&single(CREW));
        runs.define("awaited", &fleeting(OTHERS)).unwrap();
        let awaited = runs.submit(&Submission::new("awaited", "")).unwrap().job;
        let waits = submit(&runs).run;
        let job = awaited.clone();
        let mut worker = crew(&setup, move |live| {
            live.wait_for_job(&job)?;
            well(live)
        });
        worker.drain().unwrap();
        others(&setup, well).drain().unwrap();
        sweep_all(&runs);
        assert_eq!(runs.run(waits).unwrap().state, State::Parked, "it has not gone on yet");
        if is_cancelled {
            runs.cancel(waits).unwrap();
        }
        worker.drain().unwrap();
        assert_eq!(outcome(&runs, waits), Some(if is_cancelled { Outcome::Cancelled } else { DONE }));
        sweep_all(&runs);
        assert!(matches!(runs.job(&awaited), Err(Error::Run(RunFault::NoJob(_)))), "it need not stay any more");
        assert_eq!((marks(&setup, b'w'), marks(&setup, b'b')), (0, 0));
    }
}

#[test]
fn job_that_ends_while_whoever_waits_for_it_was_woken_by_something_else_stays_until_that_has_looked() {
    let time_max = Some(Duration::from_secs(10));
    let (setup, runs) = setup_with(&Class { time_max, ..single(CREW) });
    runs.define("awaited", &fleeting(OTHERS)).unwrap();
    let job = runs.submit(&Submission::new("awaited", "")).unwrap().job;
    let waits = submit(&runs).run;
    let (inside, mut ends, mut begun) = (runs.clone(), others(&setup, well), 0);
    let mut worker = crew(&setup, move |live| {
        begun += 1;
        if begun == 2 {
            ends.drain().unwrap();
            sweep_all(&inside);
        }
        live.wait_for_job(&job)?;
        well(live)
    });
    worker.drain().unwrap();
    // Its time would have been over, and it has more.
    runs.define("work", &single(CREW)).unwrap();
    setup.advance(10_000);
    worker.drain().unwrap();
    assert_eq!(outcome(&runs, waits), Some(DONE));
    assert_eq!((marks(&setup, b'w'), marks(&setup, b'b')), (0, 0));
}

#[test]
fn job_that_ends_just_before_a_run_waits_for_it_is_heard_of_although_it_goes_before_that_goes_on() {
    let (setup, runs) = setup_with(&single(CREW));
    runs.define("awaited", &fleeting(OTHERS)).unwrap();
    let awaited = runs.submit(&Submission::new("awaited", "")).unwrap().job;
    let waits = submit(&runs).run;
    let (job, mut ends) = (awaited.clone(), others(&setup, well));
    let mut worker = crew(&setup, move |live| {
        let outcome = live.wait_for_job(&job);
        ends.drain().unwrap();
        assert_eq!(outcome?, DONE);
        well(live)
    });
    worker.set_policy(Policy { batch_messages_max: 1, ..Policy::default() });
    worker.tick().unwrap();
    assert_eq!(runs.run(waits).unwrap().state, State::Parked);
    sweep_all(&runs);
    assert!(runs.job(&awaited).is_err());
    worker.drain().unwrap();
    assert_eq!(outcome(&runs, waits), Some(DONE));
}

#[test]
fn job_stays_until_all_of_thousands_that_wait_for_it_were_told() {
    let (setup, runs) = setup_with(&fleeting(CREW));
    runs.define("next", &single(OTHERS)).unwrap();
    let first = submit(&runs).job;
    for _ in 0..3 {
        let next = Submission::new("next", "").after(first.clone()).on_failed(OnFailed::Continue);
        runs.submit_all(&vec![next; 500]).unwrap();
    }
    let mut worker = crew(&setup, well);
    worker.set_policy(Policy { batch_messages_max: 1, ..Policy::default() });
    worker.tick().unwrap();
    assert_eq!((runs.job(&first).unwrap().outcome, marks(&setup, b'w')), (Some(DONE), 500));
    sweep_all(&runs);
    worker.drain().unwrap();
    others(&setup, well).drain().unwrap();
    assert!(runs.list(None, 2000).unwrap().iter().all(|run| run.outcome() == Some(DONE)));
    sweep_all(&runs);
    assert!(runs.job(&first).is_err());
}

#[test]
fn one_sweep_frees_all_keys_whose_time_is_over_that_it_may() {
    const DAY: Duration = Duration::from_hours(24);
    let (setup, runs) = setup_with(&fleeting(CREW));
    let jobs: Vec<_> = (0..700).map(|key| Submission::new("work", "").once_within(key.to_string(), DAY)).collect();
    runs.submit_all(&jobs).unwrap();
    crew(&setup, well).drain().unwrap();
    sweep_all(&runs);
    setup.advance(24 * 3_600_000);
    let some = runs.sweep(600).unwrap().rows;
    assert!((600..=601).contains(&some), "{some}");
    assert_eq!(runs.sweep(4096).unwrap().rows, 1400 - some, "of each key two rows");
}

#[test]
fn events_go_also_of_runs_that_ended_after_the_clock_was_set_back() {
    let keep = Keep { events: Limits { count: Some(1), ..Limits::default() }, ..Keep::default() };
    let (setup, runs) = setup_with(&Class { keep, ..single(CREW) });
    let mut worker = crew(&setup, |live| {
        live.append(&[log("a line")])?;
        well(live)
    });
    let has_events = |runs: &Runs| {
        let all = runs.list(None, 100).unwrap();
        all.iter().filter(|run| !runs.removed(run.id).unwrap().events).map(|run| run.id).collect::<Vec<_>>()
    };
    let mut last = None;
    for jump in [3_600_000, -60_000, 120_000] {
        setup.clock.jump(jump);
        for _ in 0..5 {
            last = Some(submit(&runs).run);
            worker.drain().unwrap();
            setup.advance(10);
        }
        sweep_all(&runs);
        assert_eq!(has_events(&runs).len(), 1, "after {jump} ms");
    }
    assert_eq!(has_events(&runs), Vec::from_iter(last));
}

#[test]
fn job_does_not_go_for_the_number_of_its_own_runs() {
    let cases = [(0, 0, 0), (1, 0, 3), (2, 0, 3), (3, 0, 3), (2, 1, 4), (2, 2, 2), (3, 2, 5), (1, 9, 1), (2, 9, 2)];
    for (most, newer, left) in cases {
        let retry = Retry { attempts_max: 3, pause: Duration::ZERO, ..Retry::default() };
        let keep = Keep { runs: Some(most), ..Keep::default() };
        let (setup, runs) = setup_with(&Class { keep, retry, ..Class::new(CREW) });
        let mut worker =
            crew(&setup, |live| if live.input() == b"bad" { Err(Halt::Failed("no".into())) } else { well(live) });
        for input in std::iter::once("bad").chain(std::iter::repeat_n("", newer)) {
            runs.submit(&Submission::new("work", input)).unwrap();
            worker.drain().unwrap();
            setup.advance(1);
        }
        sweep_all(&runs);
        assert_eq!(runs.list(None, 100).unwrap().len(), left, "of three and {newer} more, {most} are kept");
    }
}

#[test]
fn run_whose_first_job_is_gone_asks_for_more_by_its_own_class_and_leaves_no_mark() {
    let fan_out = FanOut { depth_max: 2, ..FanOut::default() };
    let (setup, runs) = setup_with(&Class { fan_out: fan_out.clone(), ..fleeting(CREW) });
    let child = Class { fan_out, ..single(OTHERS) };
    runs.define("child", &child).unwrap();
    runs.define("leaf", &single(OTHERS)).unwrap();
    let root = submit(&runs).run;
    crew(&setup, |live| ask(live, "child").and_then(|_| well(live))).drain().unwrap();
    let mut worker = others(&setup, |live| {
        let attempt = live.run().attempt();
        if attempt > 1 && &*live.run().class == "child" {
            ask(live, "leaf")?;
        }
        if attempt == 3 || &*live.run().class == "leaf" { well(live) } else { Err(Halt::Failed("not yet".into())) }
    });
    worker.drain().unwrap();
    sweep_all(&runs);
    assert!(runs.run(root).is_err());
    let mut last = runs.list(None, 1).unwrap()[0].id;
    for _ in 0..2 {
        last = runs.retry(last).unwrap().id;
        worker.drain().unwrap();
    }
    assert_eq!(outcome(&runs, last), Some(DONE));
    let leaves = runs.list(None, 10).unwrap().iter().filter(|run| &*run.class == "leaf").count();
    assert_eq!(leaves, 1, "the same was asked for twice");
    for class in ["child", "leaf"] {
        runs.define(class, &Class { keep: nothing(), ..child.clone() }).unwrap();
    }
    sweep_all(&runs);
    assert_eq!((runs.list(None, 10).unwrap().len(), marks(&setup, b'd')), (0, 0));
}
