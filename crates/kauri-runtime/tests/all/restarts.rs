//! What was asked for and decided survives: each of these is asked for in one life and answered in another.

use std::time::Duration;

use kauri_runtime::run::{
    Class, Ending, Filter, Halt, LiveRun, OnFailed, Outcome, Outcomes, Retry, Run, Runs, State, Submission, Submitted,
};
use kauri_wire::RunId;

use crate::runs::{CREW, crew, setup, setup_with, well};
use crate::setup::Setup;

const DONE: Outcome = Outcome::Success { skipped: false };

fn work(input: &str) -> Submission {
    Submission::new("work", input)
}

/// The same store in another life.
fn next_life(setup: Setup) -> (Setup, Runs) {
    let setup = setup.restarted();
    let runs = setup.runtime.runs();
    (setup, runs)
}

/// Fails at its second step, unless it is given something good.
fn three_steps(live: &mut LiveRun) -> Result<Ending, Halt> {
    let is_bad = live.input() != b"good";
    live.step("fetch", |_| Ok(b"page".to_vec()))?;
    live.step("parse", |_| match is_bad {
        true => Err(kauri_runtime::Failure::fatal("no such page")),
        false => Ok(b"text".to_vec()),
    })?;
    live.step("save", |_| Ok(Vec::new()))?;
    well(live)
}

fn outcome(runs: &Runs, run: RunId) -> Option<Outcome> {
    runs.run(run).unwrap().outcome()
}

#[test]
fn key_is_taken_for_its_window_whatever_restarts_meanwhile() {
    let (setup, runs) = setup();
    let window = Duration::from_secs(60);
    let first = runs.submit(&work("1").once_within("k", window)).unwrap();
    let (setup, runs) = next_life(setup);
    let Submitted { run, is_new, .. } = runs.submit(&work("2").once_within("k", window)).unwrap();
    assert_eq!((run, is_new), (first.run, false));
    setup.advance(60_000);
    let (_setup, runs) = next_life(setup);
    assert!(runs.submit(&work("3").once_within("k", window)).unwrap().is_new);
}

#[test]
fn class_that_is_paused_stays_so_and_what_came_meanwhile_begins_when_it_is_resumed() {
    let (setup, runs) = setup();
    runs.pause("work").unwrap();
    let before = runs.submit(&work("1")).unwrap().run;
    crew(&setup, well).drain().unwrap();
    let (setup, runs) = next_life(setup);
    assert!(runs.class("work").unwrap().unwrap().1, "still paused");
    let after = runs.submit(&work("2")).unwrap().run;
    crew(&setup, well).drain().unwrap();
    assert_eq!((runs.run(before).unwrap().state, runs.run(after).unwrap().state), (State::Pending, State::Pending));
    runs.resume("work").unwrap();
    let (setup, runs) = next_life(setup);
    crew(&setup, well).drain().unwrap();
    assert_eq!((outcome(&runs, before), outcome(&runs, after)), (Some(DONE), Some(DONE)));
}

#[test]
fn job_that_waits_for_one_that_fails_does_what_it_said_in_whatever_life_that_happens() {
    for (on_failed, expected) in [
        (OnFailed::Fail, Outcome::PolicyFailure),
        (OnFailed::Skip, Outcome::Success { skipped: true }),
        (OnFailed::Continue, DONE),
    ] {
        let (setup, runs) = setup();
        let bad = runs.submit(&work("bad")).unwrap();
        let next = runs.submit(&work("good").after(bad.job).on_failed(on_failed)).unwrap().run;
        let last = runs.submit(&work("good").after(runs.run(next).unwrap().job).on_failed(OnFailed::Fail)).unwrap().run;
        let (setup, runs) = next_life(setup);
        let mut worker = crew(&setup, three_steps);
        worker.set_policy(kauri_runtime::Policy { batch_messages_max: 1, ..kauri_runtime::Policy::default() });
        worker.tick().unwrap();
        assert_eq!(outcome(&runs, bad.run), Some(Outcome::ScriptError));
        assert_eq!(outcome(&runs, next), None, "told, and not begun");
        drop(worker);
        let (setup, runs) = next_life(setup);
        crew(&setup, three_steps).drain().unwrap();
        assert_eq!(outcome(&runs, next), Some(expected), "{on_failed:?}");
        let of_last = if expected.is_success() { DONE } else { Outcome::PolicyFailure };
        assert_eq!(outcome(&runs, last), Some(of_last), "{on_failed:?}");
    }
}

#[test]
fn runs_that_failed_are_retried_from_a_step_with_another_input_in_another_life_one_or_many() {
    let (setup, runs) = setup_with(&Class { retry: Retry::never(), ..Class::new(CREW) });
    let failed: Vec<RunId> =
        (0..4).map(|number| runs.submit(&work("bad").tag(format!("n={}", number % 2))).unwrap().run).collect();
    crew(&setup, three_steps).drain().unwrap();
    let (setup, runs) = next_life(setup);
    let nothing = runs.retry_from(failed[0], "print", Some(b"good")).unwrap_err();
    assert!(nothing.to_string().contains("print"), "a step that nobody asked for: {nothing}");
    let one = runs.retry_from(failed[0], "parse", Some(b"good")).unwrap();
    let filter = Filter { tag: Some("n=1".into()), ..Filter::of("work") };
    let many = runs.retry_all(&filter, None, Some(b"good"), 9).unwrap();
    assert_eq!(many.iter().map(Run::parent).collect::<Vec<_>>(), [Some(failed[1]), Some(failed[3])]);
    let (setup, runs) = next_life(setup);
    crew(&setup, three_steps).drain().unwrap();
    for run in many.iter().chain([&one]) {
        assert_eq!((outcome(&runs, run.id), runs.run(run.id).unwrap().attempt()), (Some(DONE), 2));
    }
    // Whatever ended otherwise, or was followed, is left alone.
    let others = Filter { outcomes: Outcomes::NONE.with(Outcome::TimedOut), ..Filter::of("work") };
    assert!(runs.retry_all(&others, None, None, 9).unwrap().is_empty());
    assert_eq!(runs.retry_all(&Filter::of("work"), None, None, 9).unwrap().len(), 1);
}

#[test]
fn steps_before_the_one_that_is_named_are_kept_in_another_life() {
    let (setup, runs) = setup();
    let fails = |live: &mut LiveRun| -> Result<Ending, Halt> {
        live.step("fetch", |_| Ok(b"page".to_vec()))?;
        live.step("parse", |_| Ok(b"text".to_vec()))?;
        Err(Halt::Failed("no room".into()))
    };
    let failed = runs.submit(&work("bad")).unwrap().run;
    crew(&setup, fails).drain().unwrap();
    let (setup, runs) = next_life(setup);
    let again = runs.retry_from(failed, "parse", Some(b"good")).unwrap().id;
    let (setup, runs) = next_life(setup);
    crew(&setup, three_steps).drain().unwrap();
    let run = runs.run(again).unwrap();
    assert_eq!((run.outcome(), run.kept, run.steps, run.parent()), (Some(DONE), 1, 3, Some(failed)));
    assert_eq!(runs.input(again).unwrap(), b"good");
}
