//! Identity, lineage, outcomes and events of runs, claim by claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::{
    Class, Ending, EventDraft, EventSink, FanOut, Halt, LiveRun, Origin, Outcome, Outcomes, PAYLOAD_BYTES_MAX, Retry,
    Run, RunFault, Runs, SinkError, State, Submission, Submitted, Tail, Takeover,
};
use kauri_runtime::{Error, Policy, Worker};
use kauri_wire::pack::{Map, MapBuf};
use kauri_wire::run::{Event, EventType, Frames, Level, RunFrame};
use kauri_wire::{JobId, RunId, Timestamp, WorkerId};

use crate::setup::Setup;

pub(crate) const CREW: WorkerId = WorkerId(50);

/// A runtime with a class `work` that retries nothing, driven by `CREW`.
pub(crate) fn setup() -> (Setup, Runs) {
    setup_with(&Class { retry: Retry::never(), ..Class::new(CREW) })
}

pub(crate) fn setup_with(class: &Class) -> (Setup, Runs) {
    let setup = Setup::new();
    let runs = setup.runtime.runs();
    runs.define("work", class).unwrap();
    (setup, runs)
}

pub(crate) fn submit(runs: &Runs) -> Submitted {
    runs.submit(&Submission::new("work", "")).unwrap()
}

pub(crate) fn crew(setup: &Setup, drive: impl FnMut(&mut LiveRun) -> Result<Ending, Halt> + Send + 'static) -> Worker {
    setup.runtime.run_worker(CREW, Policy::default(), drive)
}

pub(crate) fn well(run: &mut LiveRun) -> Result<Ending, Halt> {
    Ok(Ending::success(run.now().wall, Map::EMPTY))
}

fn badly(_: &mut LiveRun) -> Result<Ending, Halt> {
    Err(Halt::Failed("no page".into()))
}

pub(crate) fn log(message: &str) -> EventDraft {
    let payload = Event::Log { level: Level::Info, message, fields: None }.payload().view().encode();
    EventDraft { kind: EventType::Log, ts: 7, payload }
}

const DONE: Outcome = Outcome::Success { skipped: false };

fn fault<T: std::fmt::Debug>(result: Result<T, Error>) -> RunFault {
    match result {
        Err(Error::Run(fault)) => fault,
        other => panic!("expected a fault, found {other:?}"),
    }
}

#[test]
fn a_run_is_pending_then_running_then_sealed_with_its_terminal_event() {
    let (setup, runs) = setup();
    let Submitted { run: id, job, is_new } = submit(&runs);
    let run = runs.run(id).unwrap();
    assert!(is_new && run.state == State::Pending && run.origin == Origin::First);
    assert_eq!((run.attempt(), run.parent(), run.root, run.depth), (1, None, id, 0));
    let inside = runs.clone();
    let mut worker = crew(&setup, move |live| {
        // Whoever looks now sees it running: that was committed before.
        assert_eq!(inside.run(live.id()).unwrap().state, State::Running);
        assert_eq!(live.append(&[log("one"), log("two")]).map(|place| place.last_seq), Ok(2));
        well(live)
    });
    setup.advance(5);
    assert_eq!(worker.drain().unwrap(), 1);
    let run = runs.run(id).unwrap();
    assert_eq!((run.outcome(), run.events, run.durations()), (Some(DONE), 3, (Some(5), Some(0))));
    assert!(runs.verify(id).unwrap());
    let kinds: Vec<_> = runs.events(id, 1, 10).unwrap().into_iter().map(|event| (event.seq, event.kind)).collect();
    assert_eq!(kinds, [(1, EventType::Log), (2, EventType::Log), (3, EventType::RunComplete)]);
    let count = |most| runs.events(id, 1, most).unwrap().len();
    assert_eq!([0, 1, 2].map(count), [0, 1, 2]);
    assert_eq!(runs.job(&job).unwrap().outcome, Some(DONE));
    assert!(setup.runtime.gauges().unwrap().inbox == 0 && setup.runtime.gauges().unwrap().leases == 0);
}

#[test]
fn ids_of_runs_and_jobs_are_never_used_twice() {
    let (_setup, runs) = setup();
    let first = submit(&runs);
    let again = runs.submit(&Submission::new("work", "").run_id(first.run));
    assert_eq!(fault(again), RunFault::RunExists(first.run));
    let again = runs.submit(&Submission::new("work", "").job_id(first.job.clone()));
    assert_eq!(fault(again), RunFault::JobExists(first.job));
    let ids: std::collections::BTreeSet<RunId> = (0..500).map(|_| submit(&runs).run).collect();
    assert_eq!(ids.len(), 500);
    assert!(runs.list(None, 1000).unwrap().len() == 501);
    assert_eq!(fault(runs.submit(&Submission::new("play", ""))), RunFault::NoClass("play".into()));
}

#[test]
fn every_failed_run_is_followed_by_another_until_the_budget_is_spent() {
    let retry = Retry { attempts_max: 3, pause: Duration::from_secs(10), ..Retry::default() };
    let (setup, runs) = setup_with(&Class { retry, ..Class::new(CREW) });
    let Submitted { run: first, job, .. } = runs.submit(&Submission::new("work", "input")).unwrap();
    let mut worker = crew(&setup, badly);
    worker.drain().unwrap();
    let attempts = runs.attempts(&job).unwrap();
    assert_eq!(attempts.len(), 2);
    let second = &attempts[1];
    // Made in the commit that sealed the first, and due after a wait of which a part is chance.
    assert_eq!((second.origin, second.state), (Origin::Retry { of: first, attempt: 2 }, State::Pending));
    assert_eq!((second.created, Some(second.created)), (attempts[0].ended.unwrap(), attempts[0].ended));
    let due = setup.runtime.next_due().unwrap().unwrap();
    assert!((5000..=10_000).contains(&(due.0 - second.created.0)), "{due:?}");
    assert_eq!(runs.job(&job).unwrap().outcome, None);
    for _ in 0..3 {
        setup.advance(60_000);
        worker.drain().unwrap();
    }
    let attempts = runs.attempts(&job).unwrap();
    assert_eq!(attempts.iter().map(Run::attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(attempts.iter().all(|run| run.outcome() == Some(Outcome::ScriptError) && run.job == job));
    assert!(attempts.iter().all(|run| runs.input(run.id).unwrap() == b"input"));
    let job = runs.job(&job).unwrap();
    assert_eq!((job.outcome, job.attempts), (Some(Outcome::ScriptError), 3));
    assert_eq!((job.first, job.latest), (first, attempts[2].id));
}

#[test]
fn lineage_is_found_upwards_and_downwards() {
    let retry = Retry { pause: Duration::ZERO, ..Retry::default() };
    let (setup, runs) = setup_with(&Class { retry, ..Class::new(CREW) });
    let Submitted { run: first, job, .. } = submit(&runs);
    submit(&runs);
    crew(&setup, badly).drain().unwrap();
    let ids: Vec<RunId> = runs.attempts(&job).unwrap().iter().map(|run| run.id).collect();
    let lineage = runs.lineage(first).unwrap();
    let below: Vec<RunId> = lineage.descendants.iter().map(|run| run.id).collect();
    assert_eq!((lineage.ancestors.len(), below), (0, ids[1..].to_vec()));
    let above: Vec<RunId> = runs.lineage(ids[2]).unwrap().ancestors.iter().map(|run| run.id).collect();
    assert_eq!(above, [ids[1], ids[0]]);
}

#[test]
fn only_the_last_run_of_a_job_can_be_retried_and_only_if_it_failed() {
    let (setup, runs) = setup();
    let Submitted { run, job, .. } = submit(&runs);
    assert_eq!(fault(runs.retry(run)), RunFault::NotEnded(run));
    crew(&setup, badly).drain().unwrap();
    let second = runs.retry(run).unwrap();
    assert_eq!(second.origin, Origin::Retry { of: run, attempt: 2 });
    assert_eq!(runs.job(&job).unwrap().outcome, None);
    assert_eq!(fault(runs.retry(run)), RunFault::Followed(run));
    crew(&setup, well).drain().unwrap();
    assert_eq!(runs.job(&job).unwrap().outcome, Some(DONE));
    assert_eq!(fault(runs.retry(second.id)), RunFault::Succeeded(second.id));
    let nobody = RunId::from_parts(Timestamp(1), [1; 10]);
    assert_eq!(fault(runs.retry(nobody)), RunFault::NoRun(nobody));
}

#[test]
fn a_run_whose_process_died_is_a_crash_when_the_runtime_starts_again() {
    let retry = Retry { attempts_max: 2, pause: Duration::ZERO, ..Retry::default() };
    let (setup, runs) = setup_with(&Class { retry, ..Class::new(CREW) });
    let Submitted { run, job, .. } = submit(&runs);
    let stopper = setup.runtime.clone();
    let mut worker = crew(&setup, move |live| {
        live.append(&[log("begun")])?;
        // The process dies here: nothing it does later reaches the store.
        stopper.stop();
        Err(Halt::Runtime(Error::Stopped))
    });
    assert!(worker.drain().is_err());
    assert_eq!(runs.run(run).unwrap().state, State::Running);
    let setup = setup.restarted();
    let runs = setup.runtime.runs();
    let crashed = runs.run(run).unwrap();
    assert_eq!((crashed.outcome(), crashed.events), (Some(Outcome::ExecutorCrash), 2));
    assert!(runs.verify(run).unwrap());
    crew(&setup, well).drain().unwrap();
    let outcomes: Vec<_> = runs.attempts(&job).unwrap().iter().map(|run| run.outcome().unwrap()).collect();
    assert_eq!(outcomes, [Outcome::ExecutorCrash, DONE]);
}

#[test]
fn whoever_was_silent_for_too_long_loses_the_run_and_what_it_says_is_refused_and_counted() {
    let (setup, runs) = setup();
    let Submitted { run, .. } = submit(&runs);
    let other = setup.runtime.clone();
    let clock = setup.clock.clone();
    let mut slow = crew(&setup, move |live| {
        clock.advance(Duration::from_secs(5));
        // Meanwhile another worker finds the lease run out, and the run dead.
        let handled = other.run_worker(CREW, Policy::default(), well).drain()?;
        assert_eq!(handled, 1);
        assert_eq!(live.append(&[log("late"), log("later")]), Err(SinkError::Sealed));
        assert_eq!(live.append(&[log("latest")]), Err(SinkError::Sealed));
        well(live)
    });
    slow.drain().unwrap();
    let sealed = runs.run(run).unwrap();
    assert_eq!((sealed.outcome(), sealed.events), (Some(Outcome::ExecutorCrash), 1));
    assert_eq!(runs.refused(run).unwrap(), 4, "and its end");
    assert!(runs.verify(run).unwrap());
}

#[test]
fn a_driver_that_goes_on_saying_things_keeps_its_run() {
    let (setup, runs) = setup();
    let Submitted { run, .. } = submit(&runs);
    let (other, clock) = (setup.runtime.clone(), setup.clock.clone());
    let mut worker = crew(&setup, move |live| {
        for _ in 0..20 {
            clock.advance(Duration::from_millis(700));
            live.renew()?;
            assert_eq!(other.run_worker(CREW, Policy::default(), well).drain()?, 0);
        }
        well(live)
    });
    assert_eq!(worker.drain().unwrap(), 1);
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
}

#[test]
fn every_end_has_its_outcome_and_its_event() {
    type Drive = fn(&mut LiveRun) -> Result<Ending, Halt>;
    let ends: [(Drive, Outcome); 7] = [
        (well, DONE),
        (|run| Ok(Ending::skipped(run.now().wall, "nothing new")), Outcome::Success { skipped: true }),
        (badly, Outcome::ScriptError),
        (|_| panic!("at the disco"), Outcome::ExecutorCrash),
        (|run| Ok(Ending::failure(run.now().wall, Outcome::PolicyFailure, "full")), Outcome::PolicyFailure),
        (|run| Ok(Ending::failure(run.now().wall, Outcome::VersionMismatch, "0.2")), Outcome::VersionMismatch),
        (|run| Ok(Ending::failure(run.now().wall, Outcome::TimedOut, "hangs")), Outcome::TimedOut),
    ];
    for (drive, outcome) in ends {
        let (setup, runs) = setup();
        let Submitted { run, job, .. } = submit(&runs);
        crew(&setup, drive).drain().unwrap();
        assert_eq!(runs.run(run).unwrap().outcome(), Some(outcome));
        assert_eq!(runs.job(&job).unwrap().outcome, Some(outcome));
        let last = runs.events(run, 0, 10).unwrap().pop().unwrap();
        assert_eq!(last.kind == EventType::RunComplete, outcome.is_success());
        let said = Map::decode(&last.payload).unwrap();
        assert_eq!(said.get("error_type").is_some(), !outcome.is_success());
    }
}

#[test]
fn an_ending_that_contradicts_itself_ends_no_run() {
    let (setup, runs) = setup();
    let Submitted { run, .. } = submit(&runs);
    let mut worker = crew(&setup, |live| Ok(Ending { outcome: Outcome::ScriptError, ..well(live)? }));
    assert!(worker.drain().is_err());
    assert_eq!(runs.run(run).unwrap().state, State::Running);
}

#[test]
fn events_that_cannot_be_kept_are_refused_whole_and_the_run_goes_on() {
    let (setup, runs) = setup();
    let Submitted { run, .. } = submit(&runs);
    let mut worker = crew(&setup, |live| {
        let bad = |kind, payload: &[u8]| EventDraft { kind, ts: 1, payload: payload.to_vec() };
        for wrong in [
            bad(EventType::Log, b"\x80"),
            bad(EventType::Log, b"no map"),
            bad(EventType::Item, b""),
            bad(EventType::RunComplete, b"\x80"),
        ] {
            let result = live.append(&[log("good"), wrong]);
            assert!(matches!(result, Err(SinkError::Failed(_))), "{result:?}");
        }
        assert_eq!(live.append(&[]).map(|place| (place.first_seq, place.last_seq)), Ok((1, 0)));
        assert_eq!(live.append(&[log("good")]).map(|place| place.first_seq), Ok(1));
        well(live)
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().events, 2);
}

#[test]
fn cancelling_seals_what_has_not_begun_and_tells_whoever_drives() {
    let (setup, runs) = setup();
    let (waiting, running) = (submit(&runs), submit(&runs));
    let done = runs.cancel(waiting.run).unwrap();
    assert_eq!((done.sealed, done.asked, done.ended), (1, 0, 0));
    assert_eq!(runs.run(waiting.run).unwrap().outcome(), Some(Outcome::Cancelled));
    let inside = runs.clone();
    let mut worker = crew(&setup, move |live| {
        let done = inside.cancel(live.id())?;
        assert_eq!((done.sealed, done.asked, done.ended), (0, 1, 0));
        assert_eq!(live.append(&[log("late")]), Err(SinkError::Cancelled));
        assert!(live.is_stopping()?);
        Err(Halt::Cancelled)
    });
    assert_eq!(worker.drain().unwrap(), 2);
    let run = runs.run(running.run).unwrap();
    assert_eq!((run.outcome(), run.events), (Some(Outcome::Cancelled), 1));
    assert_eq!(runs.cancel(running.run).unwrap().ended, 1);
    assert!(runs.verify(running.run).unwrap() && runs.verify(waiting.run).unwrap());
}

#[test]
fn cancelled_runs_are_not_retried() {
    let every = Outcome::ALL.into_iter().fold(Outcomes::NONE, Outcomes::with);
    let retry = Retry { on: every, pause: Duration::ZERO, ..Retry::default() };
    let (setup, runs) = setup_with(&Class { retry, ..Class::new(CREW) });
    let Submitted { run, job, .. } = submit(&runs);
    let inside = runs.clone();
    crew(&setup, move |live| {
        inside.cancel(live.id())?;
        Err(Halt::Failed("it went wrong meanwhile".into()))
    })
    .drain()
    .unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(Outcome::Cancelled));
    assert_eq!(runs.attempts(&job).unwrap().len(), 1);
}

#[test]
fn exported_events_are_lines_with_the_whole_envelope() {
    let (setup, runs) = setup();
    let job = JobId::new("import").unwrap();
    let run = runs.submit(&Submission::new("work", "").job_id(job)).unwrap().run;
    let mut worker = crew(&setup, |live| {
        let mut data = MapBuf::new();
        data.put("price", 9.5).put("raw", &b"\x01"[..]);
        let payload = Event::Item { item_type: "fruit", data: data.view() }.payload().view().encode();
        live.append(&[EventDraft { kind: EventType::Item, ts: 1_700_000_000_007, payload }])?;
        well(live)
    });
    worker.drain().unwrap();
    let mut out = Vec::new();
    assert_eq!(runs.export(run, &mut out).unwrap(), 2);
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let first = &lines[0];
    assert_eq!(first["ts"], "2023-11-14T22:13:20.007Z");
    assert_eq!(first["payload"]["data"], serde_json::json!({"price": 9.5, "raw": {"hex": "01"}}));
    assert_eq!((&first["seq"], &first["attempt"], &first["job_id"]), (&1.into(), &1.into(), &"import".into()));
    assert_eq!(first["run_id"], run.to_string());
    assert_ne!(first["event_id"], lines[1]["event_id"]);
    assert!(first.get("parent_run_id").is_none() && lines[1]["type"] == "run_complete");
    // The same envelope as a frame is one that an executor could have sent.
    let mut frame = Vec::new();
    runs.events(run, 1, 1).unwrap()[0].append_frame(&runs.run(run).unwrap(), &mut frame).unwrap();
    let Some(Ok(RunFrame::Event(envelope))) = Frames::new(&frame).next() else { panic!("an event") };
    assert_eq!((envelope.seq, envelope.event_id), (1, &*format!("{run}#1")));
}

#[test]
fn envelopes_say_the_parent_of_a_retry_and_of_a_child_and_never_the_depth() {
    let retry = Retry { attempts_max: 2, pause: Duration::ZERO, ..Retry::default() };
    let fan_out = FanOut { depth_max: 1, ..FanOut::default() };
    let (setup, runs) = setup_with(&Class { retry, fan_out, ..Class::new(CREW) });
    let Submitted { run: first, job, .. } = submit(&runs);
    let mut worker = crew(&setup, |live| match (live.run().depth, live.run().attempt()) {
        (0, 1) => Err(Halt::Failed("once".into())),
        (0, _) => {
            let payload = Event::Enqueue { target: "work", params: Map::EMPTY, source: None, category: None };
            let payload = payload.payload().view().encode();
            live.append(&[EventDraft { kind: EventType::Enqueue, ts: 1, payload }])?;
            well(live)
        }
        _ => well(live),
    });
    worker.drain().unwrap();
    let second = runs.attempts(&job).unwrap()[1].id;
    let child = runs.lineage(second).unwrap().descendants[0].clone();
    assert_eq!((child.parent(), child.attempt(), child.depth), (Some(second), 1, 1));
    assert!(child.job != job, "it is no retry, and has a job of its own");
    let above: Vec<RunId> = runs.lineage(child.id).unwrap().ancestors.iter().map(|run| run.id).collect();
    assert_eq!(above, [second, first]);
    for (run, job, attempt, parent) in
        [(first, &job, 1, None), (second, &job, 2, Some(first)), (child.id, &child.job, 1, Some(second))]
    {
        let mut out = Vec::new();
        let count = runs.export(run, &mut out).unwrap();
        let lines = String::from_utf8(out).unwrap();
        assert_eq!(lines.lines().count() as u64, count);
        for line in lines.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let names: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
            let all = ["contract_version", "event_id", "run_id", "seq", "type", "ts", "payload", "attempt", "job_id"];
            let mut expected: Vec<&str> = all.into_iter().chain(parent.map(|_| "parent_run_id")).collect();
            expected.sort_unstable();
            let mut found = names;
            found.sort_unstable();
            assert_eq!(found, expected);
            assert_eq!((&line["run_id"], &line["job_id"]), (&run.to_string().into(), &job.as_str().into()));
            assert_eq!(line["attempt"], attempt);
            assert_eq!(line.get("parent_run_id"), parent.map(|parent| parent.to_string().into()).as_ref());
        }
    }
}

#[test]
fn a_tail_misses_nothing_and_doubles_nothing() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let mut tail = runs.tail(run, 0).unwrap();
    let mut late = runs.tail(run, 3).unwrap();
    assert!(tail.next(10).unwrap().is_empty() && !tail.is_over());
    let inside = runs.clone();
    let mut worker = crew(&setup, move |live| {
        let mut tail = inside.tail(live.id(), 1)?;
        for number in 0..5 {
            live.append(&[log(&number.to_string()), log("more")])?;
            // A wait after a commit that was not looked at yet returns soon.
            tail.wait(None);
            let seqs: Vec<u64> = tail.next(10)?.iter().map(|event| event.seq).collect();
            assert_eq!(seqs, [number * 2 + 1, number * 2 + 2]);
        }
        well(live)
    });
    worker.drain().unwrap();
    let mut seqs = Vec::new();
    while !tail.is_over() {
        tail.wait(None);
        let found = tail.next(3).unwrap();
        assert!(found.len() <= 3);
        seqs.extend(found.iter().map(|event| event.seq));
    }
    assert_eq!(seqs, (1..=11).collect::<Vec<u64>>());
    assert_eq!(late.next(100).unwrap().iter().next().map(|event| event.seq), Some(3));
    assert!(late.is_over());
}

/// Those who follow one run share what they read: wherever each of them is, whenever it came and however much it asks for.
#[test]
fn any_number_of_tails_each_see_every_event_once() {
    for seed in 0..40_u64 {
        let (setup, runs) = setup();
        let run = submit(&runs).run;
        let mut chance = seed;
        let mut below = move |bound: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % bound
        };
        let inside = runs.clone();
        // Each with the number that comes next.
        let tails = Arc::new(Mutex::new(Vec::<(Tail, u64)>::new()));
        let follows = Arc::clone(&tails);
        let mut worker = crew(&setup, move |live| {
            let mut tails = follows.lock().unwrap();
            // Some say much, so that not all of it is kept for others.
            let length = if seed % 4 == 0 { 20_000 } else { 20 };
            let mut count = 0_u64;
            for _ in 0..200 {
                match below(8) {
                    0 | 1 => {
                        let more = 1 + below(20);
                        let text = "x".repeat(length);
                        let some: Vec<EventDraft> =
                            (1..=more).map(|at| log(&format!("{}{text}", count + at))).collect();
                        live.append(&some)?;
                        count += more;
                    }
                    2 if tails.len() < 12 => {
                        let from = 1 + below(count + 2);
                        tails.push((inside.tail(live.id(), from)?, from));
                    }
                    3 if below(4) == 0 => drop(tails.pop()),
                    _ if !tails.is_empty() => {
                        let (at, most) = (below(tails.len() as u64), below(30));
                        let (tail, next) = &mut tails[usize::try_from(at).unwrap()];
                        let found = tail.next(usize::try_from(most).unwrap())?;
                        let there = (count + 1).saturating_sub(*next).min(most);
                        assert_eq!(
                            found.len() as u64,
                            there,
                            "seed {seed}: all that are there, up to what is asked for"
                        );
                        for event in found.iter() {
                            assert!(
                                event.seq == *next
                                    && event.payload == log(&format!("{next}{}", "x".repeat(length))).payload
                            );
                            *next += 1;
                        }
                        assert!(!tail.is_over());
                    }
                    _ => {}
                }
            }
            well(live)
        });
        worker.drain().unwrap();
        let last = runs.run(run).unwrap().events;
        for (tail, next) in &mut *tails.lock().unwrap() {
            while !tail.is_over() {
                tail.wait(None);
                for event in tail.next(50).unwrap().iter() {
                    assert_eq!(event.seq, *next, "seed {seed}");
                    *next += 1;
                }
            }
            assert_eq!(*next, (last + 1).max(*next), "seed {seed}");
        }
    }
}

#[test]
fn messages_that_are_no_runs_are_buried() {
    let (setup, _runs) = setup();
    setup.send(CREW, "what is this");
    assert_eq!(crew(&setup, well).drain().unwrap(), 1);
    assert_eq!(setup.runtime.dead_letters(None, None, 10).unwrap().len(), 1);
}

#[test]
fn a_run_that_is_taken_over_to_be_resumed_goes_on_as_itself() {
    let (setup, runs) = setup_with(&Class { takeover: Takeover::Resume, ..Class::new(CREW) });
    let Submitted { run, job, .. } = submit(&runs);
    let (other, clock) = (setup.runtime.clone(), setup.clock.clone());
    let mut slow = crew(&setup, move |live| {
        live.append(&[log("begun")])?;
        clock.advance(Duration::from_secs(5));
        other.run_worker(CREW, Policy::default(), well).drain()?;
        // It lost the run to somebody who ended it.
        assert_eq!(live.append(&[log("late")]), Err(SinkError::Sealed));
        Err(Halt::Lost)
    });
    slow.drain().unwrap();
    let ended = runs.run(run).unwrap();
    assert_eq!((ended.outcome(), ended.events, ended.claims), (Some(DONE), 2, 2));
    assert_eq!(runs.attempts(&job).unwrap().len(), 1);
}

#[test]
fn buffered_events_go_with_the_next_commit_and_keep_their_order() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let inside = runs.clone();
    let mut worker = crew(&setup, move |live| {
        let seen = |live: &LiveRun| inside.run(live.id()).map(|run| run.events);
        live.buffer(&[log("1"), log("2")])?;
        assert_eq!(seen(live)?, 0);
        assert_eq!(live.append(&[log("3")]).map(|place| (place.first_seq, place.last_seq)), Ok((3, 3)));
        live.buffer(&[log("4")])?;
        live.step("step", |_| Ok(Vec::new()))?;
        assert_eq!(seen(live)?, 4);
        // What is too much to wait does not.
        live.buffer(&vec![log(&"5".repeat(2000)); 600])?;
        assert_eq!(seen(live)?, 604);
        assert!(live.buffer(&[EventDraft { payload: Vec::new(), ..log("bad") }]).is_err());
        live.buffer(&[log("6")])?;
        well(live)
    });
    worker.drain().unwrap();
    let ended = runs.run(run).unwrap();
    assert_eq!((ended.events, runs.verify(run).unwrap()), (606, true));
    let said = runs.events(run, 0, 10).unwrap();
    let heard: Vec<String> = said[..4]
        .iter()
        .map(|event| format!("{:?}", Map::decode(&event.payload).unwrap().get("message").unwrap()))
        .collect();
    assert_eq!(heard, ["Str(\"1\")", "Str(\"2\")", "Str(\"3\")", "Str(\"4\")"]);
}

#[test]
fn worker_that_keeps_up_pays_one_commit_for_a_run() {
    let (setup, runs) = setup();
    let jobs = vec![Submission::new("work", "x"); 10];
    let submitted = runs.submit_all(&jobs).unwrap();
    let mut worker = crew(&setup, well);
    let before = setup.runtime.metrics().commits;
    assert_eq!(worker.tick().unwrap().handled, 10);
    // The first is claimed by itself; each end claims the next.
    assert_eq!(setup.runtime.metrics().commits - before, 11);
    for job in submitted {
        let run = runs.run(job.run).unwrap();
        assert!(run.outcome().is_some_and(|outcome| outcome.is_success()) && runs.verify(run.id).unwrap());
        assert_eq!(run.claims, 1);
    }
    assert_eq!(setup.runtime.gauges().unwrap().leases, 0);
}

#[test]
fn jobs_are_submitted_together_or_not_at_all() {
    let (_setup, runs) = setup();
    let jobs = [Submission::new("work", "a"), Submission::new("nothing", "b")];
    assert!(matches!(runs.submit_all(&jobs), Err(Error::Run(RunFault::NoClass(_)))));
    assert_eq!(runs.list(None, 10).unwrap().len(), 0);
    assert!(runs.submit_all(&[]).unwrap().is_empty());
    let both = runs.submit_all(&[Submission::new("work", "a"), Submission::new("work", "b")]).unwrap();
    assert!(both[0].run != both[1].run && both.iter().all(|one| one.is_new));
}

#[test]
fn runs_of_a_class_that_is_paused_meanwhile_are_not_begun_with_the_end_of_another() {
    let (setup, runs) = setup();
    let submitted = runs.submit_all(&vec![Submission::new("work", "x"); 3]).unwrap();
    let others = runs.clone();
    let mut worker = crew(&setup, move |live| {
        // Said while the first run goes on.
        others.pause("work")?;
        well(live)
    });
    worker.drain().unwrap();
    let states: Vec<_> = submitted.iter().map(|job| runs.run(job.run).unwrap().state).collect();
    assert!(matches!(states[..], [State::Sealed(_), State::Pending, State::Pending]), "{states:?}");
}

#[test]
fn end_that_is_too_long_to_be_kept_is_a_failure_of_its_run_and_of_no_other() {
    let (setup, runs) = setup();
    let long = vec![b'x'; PAYLOAD_BYTES_MAX];
    let said = move |live: &mut LiveRun| {
        let mut ending = Ending::success(live.now().wall, Map::EMPTY);
        let mut summary = MapBuf::new();
        summary.put("long", kauri_wire::pack::Value::Bin(&long));
        ending.terminal.payload = Event::RunComplete { summary: Some(summary.view()) }.payload().view().encode();
        Ok(ending)
    };
    let too_long = submit(&runs).run;
    crew(&setup, said).drain().unwrap();
    assert_eq!(runs.run(too_long).unwrap().outcome(), Some(Outcome::ScriptError));
    // The longest that fits into a frame is kept, and read back.
    let fits = submit(&runs).run;
    let message = "x".repeat(PAYLOAD_BYTES_MAX - 64);
    let mut worker = crew(&setup, move |live| {
        live.append(&[log(&message)])?;
        well(live)
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(fits).unwrap().outcome(), Some(Outcome::Success { skipped: false }));
    let mut frame = Vec::new();
    runs.events(fits, 1, 1).unwrap()[0].append_frame(&runs.run(fits).unwrap(), &mut frame).unwrap();
    assert!(frame.len() > PAYLOAD_BYTES_MAX - 64);
}
