//! Durable steps and waits of runs, claim by claim.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::{
    Class, Enqueued, EventSink, FanOut, Filter, Halt, LiveRun, Outcome, Retry, Run, RunFault, State, StepKind,
    Submission, Takeover,
};
use kauri_runtime::{Error, Failure, Policy, Read, Write};
use kauri_tree::Table;
use kauri_wire::pack::MapBuf;
use kauri_wire::run::{Event, EventType};
use kauri_wire::{RunId, Timestamp};

use crate::runs::{CREW, crew, log, setup, setup_with, submit, well};

pub(crate) const COUNTS: Table<str, u64> = Table::new("counts");
pub(crate) const DONE: Outcome = Outcome::Success { skipped: false };

/// A step that counts under its name how often it was done.
pub(crate) fn count(run: &mut LiveRun, name: &str) -> Result<u64, Halt> {
    let result = run.step(name, |step| {
        let count = step.get(&COUNTS, name)?.unwrap_or(0) + 1;
        step.put(&COUNTS, name, count)?;
        Ok(count.to_le_bytes().to_vec())
    })?;
    Ok(u64::from_le_bytes(result.try_into().expect("eight bytes")))
}

pub(crate) fn resuming() -> Class {
    Class { takeover: Takeover::Resume, ..Class::new(CREW) }
}

#[test]
fn a_run_that_goes_on_after_a_crash_does_no_step_twice() {
    let (setup, runs) = setup_with(&resuming());
    let run = submit(&runs).run;
    let stopper = setup.runtime.clone();
    let mut worker = crew(&setup, move |live| {
        assert_eq!((count(live, "a")?, count(live, "b")?), (1, 1));
        stopper.stop();
        count(live, "c").map(|_| unreachable!("nothing is done after the crash"))
    });
    assert!(worker.drain().is_err());
    let setup = setup.restarted();
    let runs = setup.runtime.runs();
    assert_eq!(runs.run(run).unwrap().state, State::Running);
    let mut worker = crew(&setup, |live| {
        let counts = [count(live, "a")?, count(live, "b")?, count(live, "c")?];
        assert_eq!(counts, [1, 1, 1]);
        well(live)
    });
    worker.drain().unwrap();
    let ended = runs.run(run).unwrap();
    assert_eq!((ended.outcome(), ended.steps, ended.claims), (Some(DONE), 3, 2));
}

#[test]
fn a_step_that_fails_leaves_nothing_and_what_it_read_is_validated() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let (other, passes) = (setup.runtime.clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&passes);
    let mut worker = crew(&setup, move |live| {
        let failed = live.step("bad", |step| {
            step.put(&COUNTS, "bad", 1)?;
            Err(Failure::fatal("no"))
        });
        assert!(matches!(failed, Err(Halt::Failed(why)) if &*why == "no"));
        live.step("good", |step| {
            let count = step.get(&COUNTS, "good")?.unwrap_or(0);
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                // Somebody else is quicker: the step is done again on what that one left.
                other.atomic(|block| block.put(&COUNTS, "good", 7))?;
            }
            step.put(&COUNTS, "good", count + 1)?;
            Ok(Vec::new())
        })?;
        well(live)
    });
    worker.drain().unwrap();
    let good = setup.runtime.read(|view| view.get(&COUNTS, "good")).unwrap();
    let bad = setup.runtime.read(|view| view.get(&COUNTS, "bad")).unwrap();
    assert_eq!((good, bad, passes.load(Ordering::Relaxed)), (Some(8), None, 2));
    let steps: Vec<_> = runs.steps(run).unwrap().into_iter().map(|step| (step.kind, step.result)).collect();
    // That it failed keeps its place, because the code went on after it.
    assert_eq!(steps, [(StepKind::Failed, b"no".to_vec()), (StepKind::Work, Vec::new())]);
}

#[test]
fn a_sleeping_run_holds_nothing_and_goes_on_at_the_moment_that_was_said_first() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        let now = live.now().wall;
        count(live, "before")?;
        live.sleep_until("nap", Timestamp(now.0 + 10_000))?;
        assert_eq!(count(live, "after")?, 1);
        well(live)
    });
    worker.drain().unwrap();
    let gauges = setup.runtime.gauges().unwrap();
    assert_eq!((gauges.inbox, gauges.leases, gauges.timers), (0, 0, 1));
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    setup.advance(9_999);
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    // Also after a restart: it is no crash to sleep.
    let setup = setup.restarted();
    let runs = setup.runtime.runs();
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    let mut worker = crew(&setup, |live| {
        let now = live.now().wall;
        assert_eq!(count(live, "before")?, 1);
        live.sleep_until("nap", Timestamp(now.0 + 10_000))?;
        assert_eq!(count(live, "after")?, 1);
        well(live)
    });
    setup.advance(1);
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
}

#[test]
fn signals_wait_for_the_run_and_the_run_for_signals() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (own, inside) = (Arc::clone(&heard), runs.clone());
    let mut worker = crew(&setup, move |live| {
        let first = live.wait_for_signal("go")?;
        let second = live.wait_for_signal("go")?;
        if live.run().steps == 2 {
            // While it runs, nobody needs to wake it.
            inside.signal(live.id(), "stop", b"3")?;
        }
        let third = live.wait_for_signal("stop")?;
        *own.lock().unwrap() = vec![first, second, third];
        well(live)
    });
    runs.signal(run, "go", b"1").unwrap();
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    runs.signal(run, "other", b"nobody takes it").unwrap();
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    runs.signal(run, "go", b"2").unwrap();
    worker.drain().unwrap();
    assert_eq!(*heard.lock().unwrap(), [b"1".to_vec(), b"2".to_vec(), b"3".to_vec()]);
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
    assert!(matches!(runs.signal(run, "go", b""), Err(Error::Run(RunFault::Ended(_)))));
}

#[test]
fn run_in_a_storm_of_conflicts_keeps_its_lease_and_does_its_step_once() {
    let (setup, runs) = setup_with(&resuming());
    let run = submit(&runs).run;
    let others = setup.runtime.clone();
    // Whoever looks whether there is something to take over.
    let idle = Mutex::new(crew(&setup, |_| panic!("the run is somebody else's")));
    let passes = Arc::new(AtomicU32::new(0));
    let (own, start) = (Arc::clone(&passes), setup.runtime.now().mono);
    let mut worker = crew(&setup, move |live| {
        live.step("hot", |step| {
            let count = step.get(&COUNTS, "hot")?.unwrap_or(0);
            if own.fetch_add(1, Ordering::Relaxed) < 95 {
                others.atomic(|block| block.put(&COUNTS, "hot", count + 1))?;
                idle.lock().unwrap().tick()?;
            }
            step.put(&COUNTS, "hot", count + 1000)?;
            Ok(Vec::new())
        })?;
        well(live)
    });
    worker.drain().unwrap();
    let found = runs.run(run).unwrap();
    assert_eq!((found.outcome(), found.claims, passes.load(Ordering::Relaxed)), (Some(DONE), 1, 96));
    assert_eq!(setup.runtime.read(|view| view.get(&COUNTS, "hot")).unwrap(), Some(1095));
    assert!(setup.runtime.now().mono.since(start) > Policy::default().lease, "it took longer than one lease");
}

#[test]
fn what_a_step_says_is_said_once_whatever_conflicts_waits_and_failures_there_are() {
    let (setup, runs) = setup_with(&resuming());
    let run = submit(&runs).run;
    let (others, passes) = (setup.runtime.clone(), Arc::new(AtomicU32::new(0)));
    let item = |step: &mut kauri_runtime::run::Step<'_, '_>, what: &str| {
        step.say(&Event::Item { item_type: what, data: MapBuf::new().view() })
    };
    let mut worker = crew(&setup, move |live| {
        live.append(&[log("outside")])?;
        live.step("sell", |step| {
            item(step, "sold")?;
            let count = step.get(&COUNTS, "hot")?.unwrap_or(0);
            if passes.fetch_add(1, Ordering::Relaxed) == 0 {
                others.atomic(|block| block.put(&COUNTS, "hot", count + 1))?;
            }
            Ok(Vec::new())
        })?;
        let failed = live.step("ship", |step| {
            item(step, "shipped")?;
            Err(Failure::fatal("no ship"))
        });
        assert!(matches!(failed, Err(Halt::Failed(_))));
        for refused in [
            Event::RunComplete { summary: None },
            Event::Enqueue { target: "a", params: MapBuf::new().view(), source: None, category: None },
        ] {
            let words =
                live.step("refused", |step| Ok(step.say(&refused).map(|()| Vec::new())?)).unwrap_err().to_string();
            assert!(words.contains("expected an event that a step can say, found"), "{words}");
        }
        live.wait_for_signal("go")?;
        well(live)
    });
    worker.drain().unwrap();
    runs.signal(run, "go", b"").unwrap();
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
    let said: Vec<EventType> = runs.events(run, 1, 100).unwrap().iter().map(|event| event.kind).collect();
    assert_eq!(said, [EventType::Log, EventType::Item, EventType::Log, EventType::RunComplete]);
    assert!(runs.verify(run).unwrap());
}

#[test]
fn run_that_waits_for_something_else_is_not_woken_by_a_signal() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        let now = live.now().wall;
        live.sleep_until("nap", Timestamp(now.0 + 10_000))?;
        live.wait_for_signal("go").and_then(|_| well(live))
    });
    let waits = |claims| {
        let found = runs.run(run).unwrap();
        let inbox = setup.runtime.gauges().unwrap().inbox;
        assert_eq!((found.state, found.claims, inbox), (State::Parked, claims, 0), "begun {claims} times");
    };
    worker.drain().unwrap();
    waits(1);
    runs.signal(run, "other", b"").unwrap();
    waits(1);
    setup.advance(10_000);
    worker.drain().unwrap();
    waits(2);
    for _ in 0..100 {
        runs.signal(run, "other", b"").unwrap();
    }
    waits(2);
    runs.signal(run, "go", b"").unwrap();
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
    let index = setup.runtime.substrate().snapshot().unwrap();
    assert!(
        index.get(&"run_index".into(), &[b"v", &run.as_bytes()[..]].concat()).unwrap().is_none(),
        "nothing is left"
    );
}

#[test]
fn signals_that_nobody_takes_are_so_many_at_most() {
    let (setup, runs) = setup();
    let run = submit(&runs).run;
    for _ in 0..10_000 {
        runs.signal(run, "go", b"").unwrap();
    }
    let refused = runs.signal(run, "go", b"").unwrap_err();
    let words = "expected at most 10000 signals that a run has not taken, found 10001";
    assert!(matches!(refused, Error::Limit { .. }) && refused.to_string() == words, "{refused}");
    crew(&setup, |live| live.wait_for_signal("go").and_then(|_| well(live))).drain().unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
    assert!(!setup.runtime.substrate().snapshot().unwrap().tables().unwrap().iter().any(|table| table == "signals"));
}

#[test]
fn code_that_changed_under_a_run_is_reported_with_both_sides_and_nothing_is_done_again() {
    type Code = fn(&mut LiveRun) -> Result<(), Halt>;
    let others: [(Code, &str); 3] = [
        (|live| count(live, "b").map(drop), "step 0 is recorded as work \"a\", and the code asks for work \"b\""),
        (|live| live.wait_for_signal("a").map(drop), "and the code asks for a wait for a signal \"a\""),
        (|_| Ok(()), "step 0 is recorded as work \"a\", and the code ends before it"),
    ];
    for (code, words) in others {
        let (setup, runs) = setup_with(&Class { retry: Retry::never(), ..resuming() });
        let run = submit(&runs).run;
        crew(&setup, |live| {
            count(live, "a")?;
            live.wait_for_signal("go").and_then(|_| well(live))
        })
        .drain()
        .unwrap();
        runs.signal(run, "go", b"").unwrap();
        crew(&setup, move |live| code(live).and_then(|()| well(live))).drain().unwrap();
        let ended = runs.run(run).unwrap();
        assert_eq!((ended.outcome(), ended.steps), (Some(Outcome::VersionMismatch), 1));
        let mut out = Vec::new();
        runs.export(run, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap().replace('\\', "");
        assert!(text.contains(words), "expected {words}, found {text}");
        assert_eq!(setup.runtime.read(|view| view.get(&COUNTS, "a")).unwrap(), Some(1));
    }
}

#[test]
fn a_retry_from_a_step_keeps_the_steps_before_it_and_has_the_input_it_was_given() {
    let (setup, runs) = setup();
    let run = runs.submit(&Submission::new("work", "bad")).unwrap().run;
    let code = |live: &mut LiveRun| {
        count(live, "a")?;
        count(live, "b")?;
        if live.input() == b"bad" {
            return Err(Halt::Failed("bad input".into()));
        }
        well(live)
    };
    crew(&setup, code).drain().unwrap();
    assert!(matches!(runs.retry_from(run, "c", None), Err(Error::Run(RunFault::NoStep { .. }))));
    let next = runs.retry_from(run, "b", Some(b"good")).unwrap();
    assert_eq!((next.kept, next.steps, next.parent(), next.attempt()), (1, 1, Some(run), 2));
    crew(&setup, code).drain().unwrap();
    let ended = runs.run(next.id).unwrap();
    assert_eq!((ended.outcome(), ended.steps), (Some(DONE), 2));
    let counts = ["a", "b"].map(|name| setup.runtime.read(|view| view.get(&COUNTS, name)).unwrap());
    assert_eq!(counts, [Some(1), Some(2)]);
    assert_eq!((runs.input(run).unwrap(), runs.input(next.id).unwrap()), (b"bad".to_vec(), b"good".to_vec()));
    let names: Vec<_> = runs.steps(next.id).unwrap().into_iter().map(|step| (step.kind, step.name)).collect();
    assert_eq!(names, [(StepKind::Work, "a".into()), (StepKind::Work, "b".into())]);
}

#[test]
fn a_retry_may_begin_with_the_step_that_failed_and_keeps_all_before_it() {
    let (setup, runs) = setup_with(&Class { retry: Retry::never(), ..Class::new(CREW) });
    let [shipped, swallowed] =
        ["ship", "swallow"].map(|input| runs.submit(&Submission::new("work", input)).unwrap().run);
    let code = |live: &mut LiveRun| {
        count(live, "price")?;
        count(live, "pack")?;
        let is_first = live.run().attempt() == 1;
        let shipped = live.step("ship", |_| if is_first { Err(Failure::fatal("no van")) } else { Ok(Vec::new()) });
        if live.input() == b"swallow" && shipped.is_err() {
            count(live, "tell")?;
            return Err(Halt::Failed("told".into()));
        }
        shipped?;
        well(live)
    };
    crew(&setup, code).drain().unwrap();
    let last = runs.steps(shipped).unwrap().pop().unwrap();
    assert_eq!((last.kind, &*last.name), (StepKind::Failed, "ship"));
    let again = runs.retry_from(shipped, "ship", None).unwrap();
    assert_eq!((again.kept, again.steps), (2, 2));
    // A failure that the code went on after is not what the run failed by.
    assert!(matches!(runs.retry_from(swallowed, "ship", None), Err(Error::Run(RunFault::NoStep { .. }))));
    let filter = Filter { tag: None, ..Filter::of("work") };
    let many = runs.retry_all(&filter, Some("tell"), None, 9).unwrap();
    assert_eq!(many.iter().map(|run| (run.parent(), run.kept)).collect::<Vec<_>>(), [(Some(swallowed), 2)]);
    crew(&setup, code).drain().unwrap();
    assert_eq!(runs.run(again.id).unwrap().outcome(), Some(DONE));
    assert_eq!(
        setup.runtime.read(|view| view.get(&COUNTS, "price")).unwrap(),
        Some(2),
        "once for each of the two jobs"
    );
}

#[test]
fn a_run_that_is_out_of_time_when_it_is_about_to_wait_does_not_wait() {
    let class = Class { time_max: Some(Duration::from_secs(10)), retry: Retry::never(), ..Class::new(CREW) };
    let (setup, runs) = setup_with(&class);
    let run = submit(&runs).run;
    let (clock, runtime) = (setup.clock.clone(), setup.runtime.clone());
    let mut worker = crew(&setup, move |live| {
        let parked = live.wait_for_signal("never");
        // What it is to do before it waits takes long. What tells that its time is over comes to another instance, while it still runs.
        clock.advance(Duration::from_secs(11));
        runtime.run_worker(CREW, Policy::default(), well).drain()?;
        parked.and_then(|_| well(live))
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(Outcome::TimedOut));
}

#[test]
fn what_is_recorded_of_a_child_counts_after_it_was_swept_away() {
    let fan_out = FanOut { depth_max: 1, ..FanOut::default() };
    let (setup, runs) = setup_with(&Class { fan_out, ..resuming() });
    let keep = kauri_runtime::run::Keep { time: Some(Duration::ZERO), ..kauri_runtime::run::Keep::default() };
    runs.define("part", &Class { keep, ..Class::new(CREW) }).unwrap();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        if live.run().depth > 0 {
            return well(live);
        }
        let child = live.step("ask", |step| match step.enqueue("part", MapBuf::new().view())? {
            Enqueued::Made(run) | Enqueued::Same(run) => Ok(run.as_bytes().to_vec()),
            Enqueued::Skipped(skip) => Err(Failure::fatal(skip.as_str())),
        })?;
        let child = RunId::from_bytes(child.try_into().unwrap()).unwrap();
        assert_eq!(live.wait_for(child)?, DONE);
        live.wait_for_signal("go").and_then(|_| well(live))
    });
    worker.drain().unwrap();
    setup.advance(1000);
    assert_eq!(runs.sweep(1000).unwrap().jobs, 1);
    runs.signal(run, "go", b"").unwrap();
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
}

#[test]
fn a_run_waits_for_its_child_without_a_thread_and_hears_how_it_ended() {
    let fan_out = FanOut { depth_max: 1, ..FanOut::default() };
    let (setup, runs) = setup_with(&Class { fan_out, ..Class::new(CREW) });
    let retry = Retry { attempts_max: 2, pause: Duration::from_secs(1), ..Retry::default() };
    runs.define("part", &Class { retry, ..Class::new(CREW) }).unwrap();
    let run = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        if &*live.run().class == "part" {
            return Err(Halt::Failed("it always fails".into()));
        }
        let child = live.step("ask", |step| match step.enqueue("part", MapBuf::new().view())? {
            Enqueued::Made(run) => Ok(run.as_bytes().to_vec()),
            other => Err(Failure::fatal(format!("{other:?}"))),
        })?;
        let child = RunId::from_bytes(child.try_into().expect("sixteen bytes")).expect("a run");
        assert_eq!(live.wait_for(child)?, Outcome::ScriptError);
        well(live)
    });
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().state, State::Parked);
    setup.advance(1000);
    worker.drain().unwrap();
    assert_eq!(runs.run(run).unwrap().outcome(), Some(DONE));
    let below = runs.lineage(run).unwrap().descendants;
    assert_eq!(below.iter().map(Run::attempt).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn resumed_runs_that_come_to_no_end_are_a_crash_after_their_budget() {
    let (setup, runs) = setup_with(&Class { retry: Retry::never(), ..resuming() });
    let run = submit(&runs).run;
    for _ in 0..3 {
        let policy = Policy { delivery_budget: 2, ..Policy::default() };
        let mut worker = setup.runtime.run_worker(CREW, policy, |_: &mut LiveRun| Err(Halt::Runtime(Error::Stopped)));
        drop(worker.tick());
        setup.advance(5000);
    }
    assert_eq!(runs.run(run).unwrap().outcome(), Some(Outcome::ExecutorCrash));
}

#[test]
fn all_that_a_filter_means_are_retried_and_nothing_else() {
    let (setup, runs) = setup();
    let start = setup.runtime.now().wall;
    let mut ids = Vec::new();
    for (input, tag) in [("bad", "x"), ("bad", "y"), ("good", "x"), ("bad", "x")] {
        ids.push(runs.submit(&Submission::new("work", input).tag(tag)).unwrap().run);
        let mut worker = crew(&setup, |live| {
            count(live, "a")?;
            count(live, "b")?;
            if live.input() == b"bad" { Err(Halt::Failed("bad".into())) } else { well(live) }
        });
        worker.drain().unwrap();
        setup.advance(10);
    }
    let tagged = Filter { tag: Some("x".into()), ..Filter::of("work") };
    let found = |filter: &Filter| runs.find(filter, 9).unwrap().iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(found(&tagged), [ids[0], ids[3]]);
    let early = Filter { before: Some(Timestamp(start.0 + 10)), ..Filter::of("work") };
    assert_eq!(found(&early), [ids[0]]);
    let late = Filter { since: Some(Timestamp(start.0 + 10)), ..Filter::of("work") };
    assert_eq!(found(&late), [ids[1], ids[3]]);
    assert!(found(&Filter { since: Some(start), before: Some(start), ..Filter::of("work") }).is_empty());
    let made = runs.retry_all(&tagged, Some("b"), Some(b"good"), 9).unwrap();
    assert_eq!(
        made.iter().map(|run| (run.parent(), run.kept)).collect::<Vec<_>>(),
        [(Some(ids[0]), 1), (Some(ids[3]), 1)]
    );
    // They have been followed now, and are left out.
    assert!(runs.retry_all(&tagged, None, None, 9).unwrap().is_empty());
    assert_eq!(runs.retry_all(&Filter::of("work"), None, None, 9).unwrap().len(), 1);
}
