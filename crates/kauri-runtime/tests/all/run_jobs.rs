//! Jobs as people ask for them, and derived work, claim by claim.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::{
    Artifacts, Class, Collected, Ending, Enqueued, EventDraft, EventSink, Exit, FanOut, Files, Halt, Keep, LiveRun,
    OnFailed, Outcome, Passed, Removal, Retry, Run, RunFault, Runs, Skip, State, Submission, SweptRuns,
};
use kauri_runtime::substrate::KeyRange;
use kauri_runtime::{CatchUp, Error, Policy, Runtime, When, Worker};
use kauri_wire::pack::{Map, MapBuf};
use kauri_wire::run::{Event, EventType};
use kauri_wire::{JobId, RunId, Timestamp};

use crate::runs::{CREW, crew, setup, setup_with, submit, well};
use crate::setup::Setup;

const DONE: Outcome = Outcome::Success { skipped: false };

/// What was run, by input, in order.
type Ran = Arc<Mutex<Vec<String>>>;

/// A crew that writes down the inputs of its runs, and fails those whose input is `bad`.
fn scribes(setup: &Setup) -> (Worker, Ran) {
    let ran = Ran::default();
    let own = Arc::clone(&ran);
    let worker = crew(setup, move |live: &mut LiveRun| {
        let input = String::from_utf8_lossy(live.input()).into_owned();
        let is_bad = input == "bad";
        own.lock().unwrap().push(input);
        if is_bad { Err(Halt::Failed("bad".into())) } else { well(live) }
    });
    (worker, ran)
}

fn work(input: &str) -> Submission {
    Submission::new("work", input)
}

fn outcome(runs: &Runs, job: &JobId) -> Option<Outcome> {
    runs.job(job).unwrap().outcome
}

#[test]
fn a_key_that_was_used_answers_the_job_it_was_used_for() {
    let (setup, runs) = setup();
    let first = runs.submit(&work("1").once("k")).unwrap();
    let again = runs.submit(&work("2").once("k")).unwrap();
    assert_eq!((again.run, again.is_new), (first.run, false));
    let window = Duration::from_secs(10);
    let within = runs.submit(&work("3").once_within("w", window)).unwrap();
    setup.advance(9_999);
    assert_eq!(runs.submit(&work("4").once_within("w", window)).unwrap().run, within.run);
    setup.advance(1);
    assert_ne!(runs.submit(&work("5").once_within("w", window)).unwrap().run, within.run);
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["1", "3", "5"]);
    // The key outlives its job's end.
    assert!(!runs.submit(&work("6").once("k")).unwrap().is_new);
}

#[test]
fn jobs_begin_at_their_time_and_urgent_ones_first() {
    let (setup, runs) = setup();
    let now = setup.runtime.now().wall;
    runs.submit(&work("later").at(Timestamp(now.0 + 1000))).unwrap();
    runs.submit(&work("now")).unwrap();
    runs.submit(&work("urgent").urgent()).unwrap();
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["urgent", "now"]);
    setup.advance(1000);
    worker.drain().unwrap();
    assert_eq!(ran.lock().unwrap().len(), 3);
}

#[test]
fn jobs_whose_deadline_came_are_timed_out_wherever_they_stand() {
    let retry = Retry { pause: Duration::ZERO, ..Retry::default() };
    let (setup, runs) = setup_with(&Class { retry, ..Class::new(CREW) });
    let deadline = Timestamp(setup.runtime.now().wall.0 + 1000);
    let pending = runs.submit(&work("late").deadline(deadline).at(Timestamp(deadline.0 + 5000))).unwrap();
    let parked = runs.submit(&work("parked").deadline(deadline)).unwrap();
    let running = runs.submit(&work("running").deadline(deadline)).unwrap();
    let clock = setup.clock.clone();
    let mut worker = crew(&setup, move |live| {
        match live.input() {
            b"parked" => drop(live.wait_for_signal("never")?),
            _ => clock.advance(Duration::from_secs(2)),
        }
        live.step("late", |_| Ok(Vec::new()))?;
        well(live)
    });
    worker.drain().unwrap();
    for job in [pending, parked, running] {
        let runs_of = runs.attempts(&job.job).unwrap();
        assert_eq!(runs_of.iter().map(Run::outcome).collect::<Vec<_>>(), [Some(Outcome::TimedOut)]);
        assert!(runs.verify(job.run).unwrap());
    }
}

#[test]
fn jobs_of_one_key_run_one_at_a_time_and_in_turn() {
    let (setup, runs) = setup();
    let first = runs.submit(&work("1").one_at_a_time("k")).unwrap();
    setup.advance(1);
    for input in ["2", "3"] {
        runs.submit(&work(input).one_at_a_time("k")).unwrap();
        setup.advance(1);
    }
    let ran = Ran::default();
    let own = Arc::clone(&ran);
    let mut worker = crew(&setup, move |live| {
        own.lock().unwrap().push(String::from_utf8_lossy(live.input()).into_owned());
        if live.input() == b"1" {
            live.wait_for_signal("go")?;
        }
        well(live)
    });
    worker.drain().unwrap();
    // The first waits and is under way; the others wait for it.
    assert_eq!(*ran.lock().unwrap(), ["1"]);
    runs.signal(first.run, "go", b"").unwrap();
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["1", "1", "2", "3"]);
}

#[test]
fn a_failed_job_keeps_its_place_until_its_last_attempt_and_a_cancelled_one_leaves_the_queue() {
    let retry = Retry { attempts_max: 2, pause: Duration::from_secs(1), ..Retry::default() };
    let (setup, runs) = setup_with(&Class { retry, ..Class::new(CREW) });
    runs.submit(&work("bad").one_at_a_time("k")).unwrap();
    setup.advance(1);
    let second = runs.submit(&work("2").one_at_a_time("k")).unwrap();
    setup.advance(1);
    runs.submit(&work("3").one_at_a_time("k")).unwrap();
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["bad"]);
    assert_eq!(runs.cancel(second.run).unwrap().sealed, 1);
    setup.advance(1000);
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["bad", "bad", "3"]);
}

#[test]
fn a_paused_class_begins_nothing_until_it_is_resumed() {
    let (setup, runs) = setup();
    runs.define("other", &Class::new(CREW)).unwrap();
    runs.pause("work").unwrap();
    runs.submit(&work("1")).unwrap();
    runs.submit(&Submission::new("other", "2")).unwrap();
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["2"]);
    // A class that is defined again stays paused.
    runs.define("work", &Class::new(CREW)).unwrap();
    assert!(runs.class("work").unwrap().unwrap().1);
    runs.resume("work").unwrap();
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["2", "1"]);
    assert_eq!(runs.classes().unwrap(), ["other", "work"]);
    assert!(matches!(runs.pause("none"), Err(Error::Run(RunFault::NoClass(_)))));
}

#[test]
fn jobs_wait_for_the_jobs_they_name_and_for_each_of_them_once() {
    let (setup, runs) = setup();
    let a = runs.submit(&work("a")).unwrap();
    let b = runs.submit(&work("b").after(a.job.clone())).unwrap();
    let both = work("c").after(a.job.clone()).after(b.job.clone()).after(a.job.clone());
    let c = runs.submit(&both).unwrap();
    assert_eq!(runs.job(&c.job).unwrap().waiting, 2);
    let (mut worker, ran) = scribes(&setup);
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["a", "b", "c"]);
    // What has ended is not waited for.
    runs.submit(&work("d").after(c.job)).unwrap();
    worker.drain().unwrap();
    assert_eq!(ran.lock().unwrap().last().unwrap(), "d");
    let nobody = JobId::new("nobody").unwrap();
    assert!(matches!(runs.submit(&work("e").after(nobody)), Err(Error::Run(RunFault::NoJob(_)))));
}

#[test]
fn a_job_whose_predecessor_failed_fails_is_skipped_or_goes_on_as_it_was_told() {
    let ends = [
        (OnFailed::Fail, Outcome::PolicyFailure, 1),
        (OnFailed::Skip, Outcome::Success { skipped: true }, 1),
        (OnFailed::Continue, DONE, 2),
    ];
    for (policy, expected, ran_count) in ends {
        let (setup, runs) = setup();
        let bad = runs.submit(&work("bad")).unwrap();
        let next = runs.submit(&work("next").after(bad.job.clone()).on_failed(policy)).unwrap();
        let last = runs.submit(&work("last").after(next.job.clone()).on_failed(OnFailed::Fail)).unwrap();
        let (mut worker, ran) = scribes(&setup);
        worker.drain().unwrap();
        assert_eq!(outcome(&runs, &next.job), Some(expected));
        let at_last = if expected.is_success() { DONE } else { Outcome::PolicyFailure };
        assert_eq!(outcome(&runs, &last.job), Some(at_last));
        let ran = ran.lock().unwrap().iter().filter(|input| *input != "last").count();
        assert_eq!(ran, ran_count);
    }
}

#[test]
fn whoever_waits_for_a_job_hears_of_its_end() {
    let (setup, runs) = setup();
    let job = submit(&runs).job;
    assert_eq!(runs.wait(&job, Some(Duration::ZERO)).unwrap().outcome, None);
    crew(&setup, well).drain().unwrap();
    assert_eq!(runs.wait(&job, None).unwrap().outcome, Some(DONE));
}

fn params(number: u64) -> MapBuf {
    let mut params = MapBuf::new();
    params.put("n", number);
    params
}

fn tree_setup(fan_out: FanOut) -> (Setup, Runs) {
    let class = Class { fan_out, retry: Retry::never(), ..Class::new(CREW) };
    setup_with(&class)
}

/// Asks for `count` more of the same at every level.
fn spread(live: &mut LiveRun, count: u64) -> Result<Ending, Halt> {
    let base = u64::from(live.run().depth) * 100;
    for number in 0..count {
        let params = params(base + number);
        let payload = Event::Enqueue { target: "work", params: params.view(), source: None, category: None };
        let payload = payload.payload().view().encode();
        live.append(&[EventDraft { kind: EventType::Enqueue, ts: 1, payload }])?;
    }
    well(live)
}

#[test]
fn derived_work_is_made_once_for_each_target_and_params_down_to_its_depth() {
    let (setup, runs) = tree_setup(FanOut { depth_max: 2, parallel: 10, ..FanOut::default() });
    let root = submit(&runs).run;
    crew(&setup, |live| spread(live, 3)).drain().unwrap();
    let below = runs.lineage(root).unwrap().descendants;
    // Three of the root's; of the nine wishes of these, three are new; what these wish would stand too deep.
    assert_eq!(below.iter().filter(|run| run.depth == 1).count(), 3);
    assert_eq!(below.iter().filter(|run| run.depth == 2).count(), 3);
    assert_eq!(below.len(), 6);
    assert!(below.iter().all(|run| run.root == root && run.attempt() == 1 && run.outcome() == Some(DONE)));
    let parents: BTreeSet<RunId> = below.iter().filter_map(Run::parent).collect();
    assert!(parents.contains(&root));
    let jobs: BTreeSet<&JobId> = below.iter().map(|run| &run.job).collect();
    assert!(jobs.len() == 6 && !jobs.contains(&runs.run(root).unwrap().job), "each has a job of its own");
    for run in &below {
        assert!(runs.verify(run.id).unwrap());
        // Every wish is said, whether it was granted or not; what was refused is said, too.
        let said = runs.events(run.id, 0, 100).unwrap();
        let wishes = said.iter().filter(|event| event.kind == EventType::Enqueue).count();
        let warnings = said.iter().filter(|event| event.kind == EventType::Log).count();
        assert_eq!((wishes, warnings), (3, if run.depth == 2 { 3 } else { 0 }));
    }
}

#[test]
fn limits_of_derived_work_are_kept_and_named() {
    type Fan = FanOut;
    let cases = [
        (Fan::default(), "work", Enqueued::Skipped(Skip::Off)),
        (Fan { depth_max: 1, runs_max: 0, ..Fan::default() }, "work", Enqueued::Skipped(Skip::Runs)),
        (Fan { depth_max: 1, ..Fan::default() }, "nothing", Enqueued::Skipped(Skip::Target)),
    ];
    for (fan_out, target, expected) in cases {
        let (setup, runs) = tree_setup(fan_out);
        let root = submit(&runs).run;
        crew(&setup, move |live| {
            live.step("ask", |step| {
                assert_eq!(step.enqueue(target, params(1).view())?, expected);
                Ok(Vec::new())
            })?;
            well(live)
        })
        .drain()
        .unwrap();
        assert_eq!(runs.run(root).unwrap().outcome(), Some(DONE));
        assert!(runs.lineage(root).unwrap().descendants.is_empty());
    }
}

#[test]
fn params_without_a_canonical_form_make_nothing_and_say_why() {
    let (setup, runs) = tree_setup(FanOut { depth_max: 1, ..FanOut::default() });
    let root = submit(&runs).run;
    crew(&setup, |live| {
        let mut params = MapBuf::new();
        params.put("n", f64::NAN);
        live.step("ask", |step| Ok(step.enqueue("work", params.view()).map(|_| Vec::new())?))?;
        well(live)
    })
    .drain()
    .unwrap();
    let run = runs.run(root).unwrap();
    assert_eq!((run.outcome(), run.events), (Some(Outcome::ScriptError), 1));
    assert!(runs.lineage(root).unwrap().descendants.is_empty());
}

/// A worker for the root of a tree and those under it; while it drives one of these, so does another like it.
fn nested(runtime: &Runtime, underway: &Arc<AtomicUsize>, most: &Arc<AtomicUsize>) -> Worker {
    let (inside, underway, most) = (runtime.clone(), Arc::clone(underway), Arc::clone(most));
    runtime.run_worker(CREW, Policy::default(), move |live: &mut LiveRun| {
        if live.run().depth == 0 {
            return spread(live, 5);
        }
        let now = underway.fetch_add(1, Ordering::Relaxed) + 1;
        most.fetch_max(now, Ordering::Relaxed);
        nested(&inside, &underway, &most).drain().unwrap();
        underway.fetch_sub(1, Ordering::Relaxed);
        well(live)
    })
}

#[test]
fn only_so_many_derived_jobs_are_under_way_at_a_time() {
    for parallel in 1..=3 {
        let (setup, runs) = tree_setup(FanOut { depth_max: 1, parallel, ..FanOut::default() });
        let root = submit(&runs).run;
        let (underway, most) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        nested(&setup.runtime, &underway, &most).drain().unwrap();
        let below = runs.lineage(root).unwrap().descendants;
        assert!(below.len() == 5 && below.iter().all(|run| run.outcome() == Some(DONE)));
        assert_eq!(most.load(Ordering::Relaxed), parallel as usize);
    }
}

#[test]
fn cancelling_a_tree_accounts_for_every_run_of_it() {
    let (setup, runs) = tree_setup(FanOut { depth_max: 1, parallel: 2, ..FanOut::default() });
    let root = submit(&runs).run;
    let inside = runs.clone();
    let mut worker = crew(&setup, move |live| {
        if live.run().depth == 0 {
            spread(live, 4)?;
            return live.wait_for_signal("never").and_then(|_| well(live));
        }
        if inside.lineage(live.run().root)?.descendants.iter().any(|run| run.state == State::Parked) {
            // The second child: it runs, the first is parked, two have not begun, and the root is parked.
            let done = inside.cancel(live.run().root)?;
            assert_eq!((done.sealed, done.asked, done.ended), (4, 1, 0));
            assert!(matches!(live.step("late", |_| Ok(Vec::new())), Err(Halt::Cancelled)));
            return Err(Halt::Cancelled);
        }
        live.wait_for_signal("never").and_then(|_| well(live))
    });
    worker.drain().unwrap();
    let lineage = runs.lineage(root).unwrap();
    let all: Vec<_> = std::iter::once(&lineage.run).chain(&lineage.descendants).map(Run::outcome).collect();
    assert_eq!(all, [Some(Outcome::Cancelled); 5]);
    assert_eq!(setup.runtime.gauges().unwrap().inbox, 0);
}

#[test]
fn names_and_lists_are_bounded() {
    let (_setup, runs) = setup();
    let long = "x".repeat(201);
    for bad in [work("").once(long.as_str()), work("").once(""), work("").tag("a\0b")] {
        assert!(matches!(runs.submit(&bad), Err(Error::Run(RunFault::Name { .. }))));
    }
    let many = (0..1001).fold(work(""), |work, number| work.tag(number.to_string()));
    assert!(matches!(runs.submit(&many), Err(Error::Limit { of: "tags", .. })));
    assert!(runs.define("", &Class::new(CREW)).is_err());
    assert!(Map::EMPTY.is_empty());
}

#[test]
fn derived_work_that_waits_for_its_own_lets_it_pass() {
    // Only one may be under way, and it waits for another of the same tree.
    let (setup, runs) = tree_setup(FanOut { depth_max: 3, parallel: 1, ..FanOut::default() });
    let root = submit(&runs).run;
    let mut worker = crew(&setup, |live| {
        let depth = live.run().depth;
        if depth < 3 {
            let child = live.step("ask", |step| match step.enqueue("work", params(depth.into()).view())? {
                Enqueued::Made(run) => Ok(run.as_bytes().to_vec()),
                other => panic!("expected it to be made, found {other:?}"),
            })?;
            live.wait_for(RunId::from_bytes(child.try_into().expect("sixteen bytes")).expect("a run"))?;
        }
        well(live)
    });
    worker.drain().unwrap();
    let lineage = runs.lineage(root).unwrap();
    assert_eq!(lineage.descendants.len(), 3);
    assert!(lineage.descendants.iter().chain([&lineage.run]).all(|run| run.outcome() == Some(DONE)));
}

#[test]
fn if_the_one_that_was_called_is_cancelled_the_next_is_called() {
    let (setup, runs) = setup();
    let mut jobs = Vec::new();
    for input in ["first", "called", "next"] {
        jobs.push(runs.submit(&work(input).one_at_a_time("k")).unwrap());
        setup.advance(1);
    }
    let ran = Ran::default();
    let own = Arc::clone(&ran);
    let mut worker = crew(&setup, move |live| {
        own.lock().unwrap().push(String::from_utf8_lossy(live.input()).into_owned());
        if live.input() == b"first" {
            live.wait_for_signal("go")?;
        }
        well(live)
    });
    worker.drain().unwrap();
    runs.cancel(jobs[0].run).unwrap();
    // The second is on its way, and has not passed yet.
    runs.cancel(jobs[1].run).unwrap();
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["first", "next"]);
}

#[test]
fn a_scheduled_job_is_submitted_once_in_each_slot() {
    let (setup, runs) = setup();
    let every = When::Every(Duration::from_secs(60));
    runs.schedule("nightly", &every, CatchUp::Every, &work("tick").tag("night")).unwrap();
    let (mut worker, ran) = scribes(&setup);
    setup.advance(59_999);
    worker.drain().unwrap();
    assert!(ran.lock().unwrap().is_empty());
    setup.advance(1);
    worker.drain().unwrap();
    setup.advance(120_000);
    worker.drain().unwrap();
    assert_eq!(*ran.lock().unwrap(), ["tick", "tick", "tick"]);
    let first = &runs.list(None, 1).unwrap()[0];
    assert_eq!(runs.job(&first.job).unwrap().tags, ["night".into()]);
    assert!(setup.runtime.dead_letters(None, None, 9).unwrap().is_empty());
    let single = runs.schedule("bad", &every, CatchUp::Every, &work("").once("k"));
    assert!(matches!(single, Err(Error::Schedule(_))));
}

#[test]
fn a_schedule_that_is_kept_loses_no_slot_and_one_that_changed_begins_anew() {
    let (setup, runs) = setup();
    let every = When::Every(Duration::from_secs(60));
    let next = || setup.runtime.schedules().unwrap()[0].1.next.unwrap().0;
    assert!(runs.keep_schedule("nightly", &every, CatchUp::Every, &work("tick")).unwrap());
    let first = next();
    setup.advance(50_000);
    assert!(!runs.keep_schedule("nightly", &every, CatchUp::Every, &work("tick")).unwrap());
    assert_eq!(next(), first, "as it was");
    assert!(runs.keep_schedule("nightly", &every, CatchUp::Every, &work("tock")).unwrap());
    assert_eq!(next(), first + 50_000, "from now on");
    assert!(runs.keep_schedule("nightly", &every, CatchUp::Latest, &work("tock")).unwrap());
}

#[test]
fn the_outcome_of_a_tree_depends_on_what_its_class_says() {
    for (exit, expected) in [(Exit::Root, DONE), (Exit::All, Outcome::ScriptError)] {
        let (setup, runs) = tree_setup(FanOut { depth_max: 1, exit, ..FanOut::default() });
        let root = submit(&runs).run;
        assert_eq!(runs.tree(root).unwrap().outcome(), None);
        let mut worker = crew(&setup, |live| match live.run().depth {
            0 => spread(live, 3),
            _ if live.input() == params(1).view().encode() => Err(Halt::Failed("bad".into())),
            _ => well(live),
        });
        worker.set_policy(Policy { batch_messages_max: 1, ..Policy::default() });
        assert_eq!(worker.tick().unwrap().handled, 1);
        // The first job has ended; where all count, the whole has not.
        assert_eq!(runs.tree(root).unwrap().outcome(), (exit == Exit::Root).then_some(DONE));
        worker.drain().unwrap();
        let tree = runs.tree(root).unwrap();
        assert_eq!((tree.outcome(), tree.jobs().len()), (Some(expected), 4));
        assert_eq!(tree.counts(), [("script_error".to_owned(), 1), ("success".to_owned(), 3)].into());
        let report = tree.to_json();
        assert_eq!(report["outcome"], expected.as_str());
        assert_eq!(report["runs"][1]["parent_run_id"], root.to_string());
        assert_eq!(report["runs"][0]["attempt"], 1);
    }
}

#[test]
fn of_many_failures_of_a_tree_the_one_counts_that_ended_first() {
    let (setup, runs) = tree_setup(FanOut { depth_max: 1, exit: Exit::All, ..FanOut::default() });
    let retry = Retry { attempts_max: 2, pause: Duration::from_secs(1), ..Retry::default() };
    runs.define("fails", &Class { retry, ..Class::new(CREW) }).unwrap();
    runs.define("waits", &Class { retry: Retry::never(), ..Class::new(CREW) }).unwrap();
    let root = submit(&runs).run;
    let mut worker = crew(&setup, |live| match &*live.run().class.to_string() {
        "fails" => Err(Halt::Failed("twice".into())),
        "waits" => live.wait_for_signal("never").and_then(|_| well(live)),
        _ => {
            for target in ["fails", "waits"] {
                live.step(target, |step| Ok(step.enqueue(target, params(1).view()).map(|_| Vec::new())?))?;
            }
            well(live)
        }
    });
    worker.drain().unwrap();
    // It is tried again, in a run that is younger than the other's.
    setup.advance(1000);
    worker.drain().unwrap();
    setup.advance(1);
    runs.cancel(root).unwrap();
    let tree = runs.tree(root).unwrap();
    assert_eq!((tree.outcome(), tree.counts()["cancelled"]), (Some(Outcome::ScriptError), 1));
}

#[test]
fn what_has_ended_is_kept_as_long_as_its_class_says_and_goes_without_a_trace() {
    let keep = Keep { time: Some(Duration::from_secs(100)), ..Keep::default() };
    let retry = Retry { attempts_max: 2, pause: Duration::ZERO, ..Retry::default() };
    let fan_out = FanOut { depth_max: 1, ..FanOut::default() };
    let (setup, runs) = setup_with(&Class { keep, retry, fan_out, ..Class::new(CREW) });
    runs.submit(&work("").once("k")).unwrap();
    let open = runs.submit(&work("open")).unwrap();
    let mut worker = crew(&setup, |live| {
        if live.input() == b"open" {
            live.wait_for_signal("never")?;
        }
        for number in 0..30 {
            live.append(&vec![crate::runs::log("a line"); 20])?;
            live.step(&format!("step {number}"), |_| Ok(Vec::new()))?;
        }
        if live.run().depth == 0 {
            spread(live, 2)?;
        }
        Err(Halt::Failed("after all that".into()))
    });
    worker.drain().unwrap();
    assert_eq!(runs.sweep(1_000_000).unwrap(), SweptRuns::default());
    setup.advance(100_000);
    // Some rows at a time; what is left goes next time.
    let mut rounds = 0;
    let (mut jobs, mut rows) = (0, 0);
    loop {
        let some = runs.sweep(100).unwrap();
        if some.rows == 0 {
            break;
        }
        (jobs, rows, rounds) = (jobs + some.jobs, rows + some.rows, rounds + 1);
    }
    assert!(rounds > 1 && jobs == 3 && rows > 3000, "{rounds} rounds: {jobs} jobs, {rows} rows");
    let left = runs.list(None, 10).unwrap();
    assert_eq!(left.iter().map(|run| run.id).collect::<Vec<_>>(), [open.run]);
    runs.cancel(open.run).unwrap();
    setup.advance(100_000);
    runs.sweep(1_000_000).unwrap();
    let tables = setup.runtime.substrate().snapshot().unwrap().tables().unwrap();
    let ours = ["jobs", "runs", "events", "steps", "inputs", "signals"];
    assert!(!tables.iter().any(|table| ours.contains(&&**table)), "{tables:?}");
    // Of the index, the class is left, and which ids were used.
    let rows = setup.runtime.substrate().snapshot().unwrap();
    assert_eq!(rows.count(&"run_index".into(), KeyRange::ALL).unwrap(), 2);
    // The key can be used again.
    assert!(runs.submit(&work("").once("k")).unwrap().is_new);
}

#[test]
fn of_many_runs_only_so_many_are_kept_the_newest() {
    let keep = Keep { runs: Some(3), ..Keep::default() };
    let (setup, runs) = setup_with(&Class { keep, ..Class::new(CREW) });
    let mut last = Vec::new();
    for _ in 0..10 {
        last.push(submit(&runs).run);
        crew(&setup, well).drain().unwrap();
        setup.advance(1);
    }
    assert_eq!(runs.sweep(1_000_000).unwrap().jobs, 7);
    assert_eq!(runs.list(None, 100).unwrap().iter().map(|run| run.id).collect::<Vec<_>>(), last[7..]);
}

#[test]
fn of_long_runs_only_so_many_bytes_are_kept_the_newest() {
    let keep = Keep { bytes: Some(10_000), ..Keep::default() };
    let (setup, runs) = setup_with(&Class { keep, ..Class::new(CREW) });
    let mut last = Vec::new();
    for _ in 0..10 {
        last.push(runs.submit(&work(&"x".repeat(3000))).unwrap().run);
        crew(&setup, well).drain().unwrap();
        setup.advance(1);
    }
    let bytes = runs.run(last[0]).unwrap().bytes;
    assert!((3000..3333).contains(&bytes), "{bytes}: the input, and the event of the end");
    let swept = runs.sweep(1_000_000).unwrap();
    assert_eq!((swept.jobs, swept.runs, swept.events, swept.bytes), (7, 7, 7, 7 * bytes));
    assert_eq!(runs.list(None, 100).unwrap().iter().map(|run| run.id).collect::<Vec<_>>(), last[7..]);
    assert_eq!(runs.sweep(1_000_000).unwrap(), SweptRuns::default());
    assert_eq!(setup.runtime.metrics().jobs_swept, 7);
}

#[test]
fn whoever_is_told_of_what_goes_is_told_before_and_may_refuse() {
    let keep = Keep { runs: Some(1), ..Keep::default() };
    let retry = Retry { attempts_max: 2, pause: Duration::ZERO, ..Retry::default() };
    let (setup, runs) = setup_with(&Class { keep, retry, ..Class::new(CREW) });
    let old = runs.submit(&work("bad")).unwrap();
    crew(&setup, |_| Err(Halt::Failed("no page".into()))).drain().unwrap();
    setup.advance(1);
    runs.submit(&work("")).unwrap();
    crew(&setup, well).drain().unwrap();
    let refused = runs.sweep_telling(1000, |_| Err(Error::Stopped));
    assert!(matches!(refused, Err(Error::Stopped)));
    assert_eq!(runs.list(None, 10).unwrap().len(), 3);
    let mut told = Vec::new();
    let swept = runs.sweep_telling(1000, |removal| {
        match removal {
            Removal::Job { class, job, runs: of, why } => {
                assert!(runs.job(&job.id).is_ok(), "it is there still");
                told.push(format!("{class} {} {} {why}", job.id, of.len()));
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    });
    assert_eq!(told, [format!("work {} 2 too many", old.job)]);
    assert_eq!(swept.unwrap().runs, 2);
}

#[test]
fn dead_letters_of_a_class_are_kept_as_long_as_its_runs() {
    let keep = Keep { time: Some(Duration::from_secs(10)), runs: Some(2), ..Keep::default() };
    let (setup, runs) = setup_with(&Class { keep, ..Class::new(CREW) });
    for number in 0..5 {
        let id = kauri_wire::MessageId::new(format!("junk-{number}")).unwrap();
        setup.runtime.send(&kauri_wire::Message::command(CREW, id, "no run")).unwrap();
    }
    crew(&setup, well).drain().unwrap();
    assert_eq!(setup.runtime.gauges().unwrap().dead_letters, 5);
    let mut told = Vec::new();
    let mut sweep = || {
        runs.sweep_telling(1000, |removal| {
            if let Removal::DeadLetter { letter, why, .. } = removal {
                told.push((letter.deliveries, *why));
            }
            Ok(())
        })
        .unwrap()
        .dead_letters
    };
    assert_eq!((sweep(), sweep()), (3, 0));
    setup.advance(10_000);
    assert_eq!(sweep(), 2);
    assert_eq!(told.iter().map(|(_, why)| *why).collect::<Vec<_>>()[2..4], [Passed::Number, Passed::Time]);
    assert_eq!((setup.runtime.gauges().unwrap().dead_letters, setup.runtime.metrics().letters_swept), (0, 5));
}

#[test]
fn artifacts_go_when_the_last_event_that_names_them_is_gone() {
    let keep = Keep { runs: Some(1), ..Keep::default() };
    let (setup, runs) = setup_with(&Class { keep, ..Class::new(CREW) });
    let files = Files::new(Artifacts::open(Arc::new(kauri_disk::MemoryDisk::new())).unwrap());
    let own = files.clone();
    let mut worker = crew(&setup, move |live| {
        for content in [b"the same in all".to_vec(), live.input().to_vec()] {
            let mut writer = own.artifacts().begin().unwrap();
            writer.write(&content).unwrap();
            let kept = writer.finish().unwrap();
            let mut payload = MapBuf::new();
            payload.put("artifact_id", "a").put("name", "a.txt").put("content_type", "text/plain");
            let digest = kept.digest().to_string();
            payload.put("size_bytes", kept.size_bytes()).put("sha256", &*digest);
            let payload = payload.view().encode();
            live.append(&[EventDraft { kind: EventType::Artifact, ts: 0, payload }])?;
        }
        own.put(live.id(), "log.txt", "text/plain", format!("of {}", live.id()).as_bytes()).unwrap();
        well(live)
    });
    for input in ["one", "two", "three"] {
        runs.submit(&work(input)).unwrap();
        worker.drain().unwrap();
        setup.advance(1);
    }
    assert!(runs.list(None, 1).unwrap()[0].bytes > 15 + 3, "artifacts are counted");
    assert_eq!(runs.collect(&files).unwrap(), Collected::default(), "all of them are named");
    assert_eq!(runs.sweep(1000).unwrap().jobs, 2);
    assert_eq!(runs.collect(&files).unwrap(), Collected { files: 2, artifacts: 4 });
    let left = runs.list(None, 10).unwrap();
    assert_eq!((left.len(), files.list(left[0].id).unwrap().len()), (1, 1));
    runs.define("work", &Class { keep: Keep { runs: Some(0), ..Keep::default() }, ..Class::new(CREW) }).unwrap();
    runs.sweep(1000).unwrap();
    assert_eq!(runs.collect(&files).unwrap(), Collected { files: 1, artifacts: 3 });
    let rows = setup.runtime.substrate().snapshot().unwrap();
    assert_eq!(rows.count(&"run_index".into(), KeyRange::ALL).unwrap(), 2, "the class, and which ids were used");
}

#[test]
fn run_that_takes_longer_than_its_class_allows_has_timed_out_running_or_waiting() {
    let class = Class { time_max: Some(Duration::from_secs(10)), retry: Retry::never(), ..Class::new(CREW) };
    let (setup, runs) = setup_with(&class);
    let (slow, waits, quick) = (
        runs.submit(&work("slow")).unwrap().run,
        runs.submit(&work("waits")).unwrap().run,
        runs.submit(&work("quick")).unwrap().run,
    );
    let clock = setup.clock.clone();
    let mut worker = crew(&setup, move |live| {
        match live.input() {
            b"slow" => {
                live.step("before", |_| Ok(Vec::new()))?;
                clock.advance(Duration::from_secs(10));
                live.step("after", |_| Ok(Vec::new()))?;
            }
            b"waits" => drop(live.wait_for_signal("never")?),
            _ => {}
        }
        well(live)
    });
    worker.drain().unwrap();
    let outcome = |id| runs.run(id).unwrap().outcome();
    assert_eq!((outcome(slow), outcome(quick)), (Some(Outcome::TimedOut), Some(DONE)));
    assert_eq!(runs.run(slow).unwrap().steps, 1, "nothing is done after it");
    assert_eq!(outcome(waits), None);
    setup.advance(10_000);
    worker.drain().unwrap();
    assert_eq!(outcome(waits), Some(Outcome::TimedOut));
    assert_eq!(setup.runtime.metrics().runs_timed_out, 2);
}
