//! Runs whose work is a script: what the store keeps of them.
#![expect(clippy::disallowed_methods, reason = "who drives a script does so in real time")]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::script::{
    Bridge, Call, Called, Context, Executor, Held, Hooks, LoadError, Phase, Prepared, Resource, RunInfo, Rust, Script,
    ScriptError, Stop,
};
use kauri_runtime::run::{
    Artifacts, Class, Files, Ingestion, Keep, Outcome, Pipe, ProcessExit, Retry, Run, Runs, Scripted, State, Submission,
};
use kauri_runtime::substrate::{KeyRange, Substrate as _, TreeSubstrate};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Observation, Observer, Policy, Runtime, Worker};
use kauri_wire::pack::MapBuf;
use kauri_wire::run::{ArtifactChunk, Envelope, EventType, FileWrite, FileWriteAck, RunFrame};
use serde_json::Value;

use crate::runs::{CREW, setup, setup_with};
use crate::senders::Failing;
use crate::setup::Setup;

const DONE: Outcome = Outcome::Success { skipped: false };

/// What happened, in order.
pub(crate) type Told = Arc<Mutex<Vec<String>>>;

/// A script that tells what is called, and of which state its run is in the store then.
#[derive(Clone)]
struct Teller {
    runs: Runs,
    told: Told,
    does: fn(&Self, &Context) -> Result<(), ScriptError>,
}

impl Teller {
    fn tell(&self, what: &str, cx: &Context) {
        let state = self.runs.run(cx.run().run_id).unwrap().state;
        self.told.lock().unwrap().push(format!("{what}: {state}"));
    }
}

impl Script for Teller {
    fn prepare(&self, job: &Value, _: &RunInfo, _: &Stop) -> Result<Prepared, ScriptError> {
        Ok(match job.as_str() {
            Some("nothing") => Prepared::Skip { reason: Some("there is nothing to do".to_owned()) },
            _ => Prepared::CONTINUE,
        })
    }

    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.tell("run", cx);
        (self.does)(self, cx)
    }

    fn on_error(&self, _: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
        self.tell("on_error", cx);
        Ok(())
    }

    fn cleanup(&self, cx: &Context) -> Result<(), ScriptError> {
        self.tell("cleanup", cx);
        Err("the door does not close".into())
    }
}

fn say(_: &Teller, cx: &Context) -> Result<(), ScriptError> {
    let mut data = MapBuf::new();
    data.put("attempt", u64::from(cx.run().attempt));
    Ok(cx.emit().item("row", data.view())?)
}

fn fail_first(teller: &Teller, cx: &Context) -> Result<(), ScriptError> {
    say(teller, cx)?;
    if cx.run().attempt == 1 { Err("not yet".into()) } else { Ok(()) }
}

fn cancel_itself(teller: &Teller, cx: &Context) -> Result<(), ScriptError> {
    teller.runs.cancel(cx.run().run_id).unwrap();
    say(teller, cx)
}

/// Something that is acquired and released, and tells it.
pub(crate) struct Room(pub(crate) Told);

impl Resource for Room {
    fn acquire(&self, _: &RunInfo, _: &Stop) -> Result<Arc<dyn Held>, ScriptError> {
        self.0.lock().unwrap().push("acquired".to_owned());
        Ok(Arc::new(Room(Arc::clone(&self.0))))
    }
}

impl Held for Room {
    fn release(&self, _: &Stop) -> Result<(), ScriptError> {
        self.0.lock().unwrap().push("released".to_owned());
        Ok(())
    }
}

fn crew(setup: &Setup, drive: Scripted) -> Worker {
    setup.runtime.run_worker(CREW, Policy::default(), drive)
}

/// A class that retries nothing.
fn once() -> Class {
    Class { retry: Retry::never(), ..Class::new(CREW) }
}

/// Runs one job to its end: its runs, what was told, and how many troubles were swallowed.
fn run(
    class: &Class,
    input: &str,
    does: fn(&Teller, &Context) -> Result<(), ScriptError>,
) -> (Vec<Run>, Vec<String>, usize) {
    let (setup, runs) = setup_with(class);
    let (told, swallowed) = (Told::default(), Arc::new(Mutex::new(0)));
    let teller = Teller { runs: runs.clone(), told: Arc::clone(&told), does };
    let (room, heard) = (Arc::clone(&told), Arc::clone(&swallowed));
    let drive = Scripted::new(move |_| Box::new(Rust::inline(teller.clone())))
        .resource(move |_| Box::new(Room(Arc::clone(&room))))
        .hear(move |_, report| *heard.lock().unwrap() += report.swallowed.len());
    let submitted = runs.submit(&Submission::new("work", input)).unwrap();
    let mut worker = crew(&setup, drive);
    worker.drain().unwrap();
    setup.advance(60_000);
    worker.drain().unwrap();
    let mut all = runs.lineage(submitted.run).unwrap().descendants;
    all.insert(0, runs.run(submitted.run).unwrap());
    assert!(all.iter().all(|run| runs.verify(run.id).unwrap()));
    let told = told.lock().unwrap().clone();
    let swallowed = *swallowed.lock().unwrap();
    (all, told, swallowed)
}

fn outcomes(runs: &[Run]) -> Vec<(u32, Option<Outcome>, u64)> {
    runs.iter().map(|run| (run.attempt(), run.outcome(), run.events)).collect()
}

#[test]
fn a_script_is_sealed_before_its_cleanup_and_trouble_there_changes_nothing() {
    let (runs, told, swallowed) = run(&once(), "1", say);
    assert_eq!(outcomes(&runs), [(1, Some(DONE), 2)]);
    assert_eq!(told, ["acquired", "run: running", "cleanup: success", "released"]);
    assert_eq!(swallowed, 1);
}

#[test]
fn a_script_that_fails_is_retried_by_its_class() {
    let retry = Retry { attempts_max: 2, pause: Duration::from_secs(1), ..Retry::default() };
    let (runs, told, _) = run(&Class { retry, ..Class::new(CREW) }, "", fail_first);
    assert_eq!(outcomes(&runs), [(1, Some(Outcome::ScriptError), 2), (2, Some(DONE), 2)]);
    assert_eq!(told.iter().filter(|what| *what == "on_error: running").count(), 1);
    assert_eq!(told.iter().filter(|what| *what == "released").count(), 2);
}

#[test]
fn a_script_whose_run_is_cancelled_says_nothing_more_and_is_cleaned_up() {
    let (runs, told, _) = run(&once(), "1", cancel_itself);
    assert_eq!(outcomes(&runs), [(1, Some(Outcome::Cancelled), 1)]);
    assert_eq!(told.last().map(String::as_str), Some("released"));
    assert!(told.contains(&"cleanup: cancelled".to_owned()), "{told:?}");
}

#[test]
fn a_script_that_finds_nothing_to_do_acquires_nothing() {
    let (runs, told, _) = run(&once(), "\"nothing\"", say);
    assert_eq!(outcomes(&runs), [(1, Some(Outcome::Success { skipped: true }), 1)]);
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn input_that_is_no_json_fails_the_run_in_words() {
    let (runs, told, _) = run(&once(), "{", say);
    assert_eq!(outcomes(&runs), [(1, Some(Outcome::ScriptError), 1)]);
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_panic_of_a_script_is_its_error_and_the_worker_goes_on() {
    let (setup, runs) = setup();
    let teller = Teller { runs: runs.clone(), told: Told::default(), does: |_, _| panic!("no") };
    let mut worker = crew(&setup, Scripted::new(move |_| Box::new(Rust::inline(teller.clone()))));
    let submitted = [1, 2].map(|_| runs.submit(&Submission::new("work", "1")).unwrap().run);
    worker.drain().unwrap();
    for run in submitted {
        assert!(matches!(runs.run(run).unwrap().state, State::Sealed(outcome) if !outcome.is_success()));
    }
}

/// A script of three steps, the last of which fails in the first attempt.
struct Steady {
    told: Told,
    /// What its first step is called in later attempts.
    later: &'static str,
}

impl Script for Steady {
    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        let attempt = cx.run().attempt;
        let tell = |what: &str| self.told.lock().unwrap().push(format!("{what} {attempt}"));
        let first = if attempt == 1 { "price" } else { self.later };
        let price = cx.step(first, || {
            tell(first);
            Ok(b"12".to_vec())
        })?;
        assert_eq!(price, b"12");
        cx.step("pack", || {
            tell("pack");
            Ok(Vec::new())
        })?;
        cx.step("ship", || {
            tell("ship");
            if attempt == 1 { Err("no line".into()) } else { Ok(Vec::new()) }
        })?;
        Ok(())
    }
}

/// Runs such a script, and again from its second step.
fn run_steady(later: &'static str) -> (Vec<String>, Run, Runs) {
    let (setup, runs) = setup_with(&once());
    let told = Told::default();
    let own = Arc::clone(&told);
    let drive = Scripted::new(move |_| Box::new(Rust::inline(Steady { told: Arc::clone(&own), later })));
    let mut worker = crew(&setup, drive);
    let failed = runs.submit(&Submission::new("work", "1")).unwrap().run;
    worker.drain().unwrap();
    assert_eq!(runs.run(failed).unwrap().outcome(), Some(Outcome::ScriptError));
    assert_eq!(runs.run(failed).unwrap().steps, 3, "two that were done, and the one that failed");
    let again = runs.retry_from(failed, "pack", None).unwrap();
    worker.drain().unwrap();
    let told = told.lock().unwrap().clone();
    (told, runs.run(again.id).unwrap(), runs)
}

#[test]
fn steps_of_a_script_are_recorded_and_a_retry_keeps_those_before_it() {
    let (told, run, runs) = run_steady("price");
    assert_eq!(told, ["price 1", "pack 1", "ship 1", "pack 2", "ship 2"]);
    assert_eq!((run.outcome(), run.steps, run.kept), (Some(DONE), 3, 1));
    let names: Vec<_> = runs.steps(run.id).unwrap().iter().map(|step| step.name.to_string()).collect();
    assert_eq!(names, ["price", "pack", "ship"]);
}

#[test]
fn script_that_asks_for_another_step_than_the_one_recorded_has_another_version() {
    let (told, run, runs) = run_steady("cost");
    assert_eq!(told, ["price 1", "pack 1", "ship 1"], "nothing is done");
    assert_eq!(run.outcome(), Some(Outcome::VersionMismatch));
    let mut lines = Vec::new();
    runs.export(run.id, &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert!(lines.contains("price") && lines.contains("cost"), "{lines}");
}

/// An executor that is a process which wrote this and ended so; it is read in small pieces.
struct Process {
    wrote: fn(&RunInfo) -> Vec<u8>,
    exit: ProcessExit,
    /// What was written to it.
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Executor for Process {
    fn load(&mut self, _: &Stop) -> Result<Hooks, LoadError> {
        Ok(Hooks::NONE)
    }

    fn prepare(&mut self, _: &Arc<Value>, _: &Arc<RunInfo>, _: &Stop) -> Called<Prepared> {
        Called::Returned(Prepared::CONTINUE)
    }

    fn call(&mut self, call: Call, cx: &Context) -> Called<()> {
        let Call::Run = call else { return Called::Returned(()) };
        let mut bridge = Bridge::new(cx);
        for piece in (self.wrote)(cx.run()).chunks(7) {
            match bridge.push(piece) {
                Ok(answers) => self.heard.lock().unwrap().extend(answers),
                Err(_) => return bridge.end(ProcessExit::Killed).1,
            }
        }
        bridge.end(self.exit).1
    }
}

/// The frames of a process: events of these kinds and payloads, numbered from 1.
fn frames(run: &RunInfo, events: &[(EventType, MapBuf)], others: &[RunFrame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    others.iter().for_each(|frame| frame.append_to(&mut bytes).unwrap());
    for (at, (event_type, payload)) in events.iter().enumerate() {
        let run_id = run.run_id.to_string();
        let envelope = Envelope {
            contract_version: "0.1.0",
            event_id: "an event",
            run_id: &run_id,
            seq: at as u64 + 1,
            event_type: *event_type,
            ts: "2026-11-15T10:00:00.000Z",
            payload: payload.view(),
            attempt: run.attempt,
            job_id: None,
            parent_run_id: None,
        };
        RunFrame::Event(envelope).append_to(&mut bytes).unwrap();
    }
    bytes
}

fn item() -> (EventType, MapBuf) {
    let (mut payload, mut data) = (MapBuf::new(), MapBuf::new());
    data.put("price", 12_u64);
    payload.put("item_type", "fruit").put("data", data.view());
    (EventType::Item, payload)
}

/// A process that says something, sends an artifact and a file, and completes.
fn says_much(run: &RunInfo) -> Vec<u8> {
    let mut artifact = MapBuf::new();
    artifact.put("artifact_id", "a").put("name", "a.txt").put("content_type", "text/plain").put("size_bytes", 12_u64);
    let chunk = |seq, is_last, data| RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "a", seq, is_last, data });
    let file = FileWrite { write_id: 4, filename: "log.txt", content_type: "text/plain", data: b"all is well" };
    let others = [chunk(1, false, b"twelve"), chunk(2, true, b" pears"), RunFrame::FileWrite(file)];
    frames(run, &[item(), (EventType::Artifact, artifact), (EventType::RunComplete, MapBuf::new())], &others)
}

fn run_process(wrote: fn(&RunInfo) -> Vec<u8>, exit: ProcessExit) -> (Run, Runs, Files, Vec<u8>) {
    let (setup, runs) = setup_with(&once());
    let files = Files::new(Artifacts::open(Arc::new(kauri_disk::MemoryDisk::new())).unwrap());
    let heard = Arc::default();
    let own = Arc::clone(&heard);
    let mut with = kauri_runtime::run::Setup::default();
    with.files = Some(files.clone());
    let drive = Scripted::new(move |_| Box::new(Process { wrote, exit, heard: Arc::clone(&own) })).setup(with);
    let id = runs.submit(&Submission::new("work", "1")).unwrap().run;
    crew(&setup, drive).drain().unwrap();
    let heard = heard.lock().unwrap().clone();
    (runs.run(id).unwrap(), runs, files, heard)
}

#[test]
fn what_a_process_says_is_in_the_run_with_its_artifacts_and_files() {
    let (run, runs, files, heard) = run_process(says_much, ProcessExit::Code(0));
    assert_eq!((run.outcome(), run.events), (Some(DONE), 3));
    assert!(runs.verify(run.id).unwrap());
    let kinds: Vec<_> = runs.events(run.id, 1, 10).unwrap().iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventType::Item, EventType::Artifact, EventType::RunComplete]);
    assert_eq!(files.find(run.id, "log.txt").unwrap().unwrap().size_bytes, 11);
    assert_eq!(runs.collect(&files).unwrap().artifacts, 0, "its event names the artifact");
    let mut pipe = Pipe::default();
    pipe.push(&heard);
    let ack = FileWriteAck { write_id: 4, ok: true, error: None };
    assert_eq!(pipe.next_frame(), Some(Ok(RunFrame::FileWriteAck(ack))));
}

#[test]
fn size_of_an_artifact_counts_however_a_process_writes_the_number() {
    let wrote: fn(&RunInfo) -> Vec<u8> = |run| {
        let mut artifact = MapBuf::new();
        artifact.put("artifact_id", "a").put("name", "a.txt").put("content_type", "text/plain").put("size_bytes", 12.0);
        let chunk = ArtifactChunk { artifact_id: "a", seq: 1, is_last: true, data: b"twelve pears" };
        let events = [(EventType::Artifact, artifact), (EventType::RunComplete, MapBuf::new())];
        frames(run, &events, &[RunFrame::ArtifactChunk(chunk)])
    };
    let (run, ..) = run_process(wrote, ProcessExit::Code(0));
    assert_eq!((run.outcome(), run.artifact_bytes), (Some(DONE), 12));
}

#[test]
fn process_that_dies_or_breaks_the_contract_is_a_crash_and_what_it_said_before_stays() {
    let says_one: fn(&RunInfo) -> Vec<u8> = |run| frames(run, &[item()], &[]);
    let breaks: fn(&RunInfo) -> Vec<u8> = |run| [frames(run, &[item()], &[]), frames(run, &[item()], &[])].concat();
    for (wrote, exit) in
        [(says_one, ProcessExit::Killed), (says_one, ProcessExit::Code(0)), (breaks, ProcessExit::Code(0))]
    {
        let (run, ..) = run_process(wrote, exit);
        assert_eq!((run.outcome(), run.events), (Some(Outcome::ExecutorCrash), 2));
    }
}

#[test]
fn process_that_follows_another_contract_is_a_version_mismatch() {
    let foreign: fn(&RunInfo) -> Vec<u8> = |run| {
        let mut bytes = frames(run, &[item()], &[]);
        let at = bytes.windows(5).position(|part| part == b"0.1.0").unwrap();
        bytes[at] = b'7';
        bytes
    };
    let (run, ..) = run_process(foreign, ProcessExit::Code(0));
    assert_eq!((run.outcome(), run.events), (Some(Outcome::VersionMismatch), 1));
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never");
}

/// A script whose store fails while it is silent: until it was told so, or until it has to stop.
struct Silent {
    store: Arc<Failing>,
    clock: VirtualClock,
    silence: Duration,
}

impl Script for Silent {
    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.store.fails.store(true, Ordering::Relaxed);
        self.clock.advance(self.silence);
        wait_until(|| self.store.failed.load(Ordering::Relaxed) > 0);
        if self.silence < LEASE {
            self.store.fails.store(false, Ordering::Relaxed);
            return Ok(());
        }
        wait_until(|| cx.stop().cause().is_some());
        // It would take whatever end it is told.
        self.store.fails.store(false, Ordering::Relaxed);
        Ok(cx.stop().check()?)
    }
}

const LEASE: Duration = Duration::from_millis(300);

/// Drives a silent script once: what its worker said, its run, and the runs of the store that works again.
fn run_silent(silence: Duration) -> (bool, Run, Runs, Worker, VirtualClock) {
    let (store, clock) = (Failing::new(), VirtualClock::default());
    let runtime = Runtime::builder(Arc::clone(&store) as _, Arc::new(clock.clone())).start().unwrap();
    let runs = runtime.runs();
    runs.define("work", &once()).unwrap();
    let id = runs.submit(&Submission::new("work", "1")).unwrap().run;
    let silent = (Arc::clone(&store), clock.clone());
    let drive = Scripted::new(move |_| {
        let (store, clock) = silent.clone();
        Box::new(Rust::inline(Silent { store, clock, silence }))
    });
    let mut worker = runtime.run_worker(CREW, Policy { lease: LEASE, ..Policy::default() }, drive);
    let drained = worker.drain();
    store.fails.store(false, Ordering::Relaxed);
    (drained.is_ok(), runs.run(id).unwrap(), runs, worker, clock)
}

#[test]
fn store_that_fails_for_a_while_cancels_nothing() {
    let (is_well, run, ..) = run_silent(LEASE * 2 / 3);
    assert_eq!((is_well, run.outcome()), (true, Some(DONE)));
}

#[test]
fn run_whose_lease_cannot_be_kept_is_left_as_a_crash_would_leave_it() {
    let (is_well, run, runs, mut worker, clock) = run_silent(LEASE);
    assert_eq!((is_well, run.state), (false, State::Running), "nobody cancelled it");
    clock.advance(LEASE);
    worker.drain().unwrap();
    assert_eq!(runs.run(run.id).unwrap().outcome(), Some(Outcome::ExecutorCrash));
}

/// A script that speaks after its end, and cannot clean up.
struct Careless(VirtualClock);

impl Script for Careless {
    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        cx.emit().log_info("so it begins")?;
        self.0.advance(Duration::from_millis(20));
        cx.emit().run_complete(None)?;
        assert!(cx.emit().log_info("one more").is_err());
        Ok(())
    }

    fn cleanup(&self, _: &Context) -> Result<(), ScriptError> {
        self.0.advance(Duration::from_millis(3));
        Err("the door does not close".into())
    }
}

/// What observers are told of scripts.
#[derive(Default)]
struct Reports(Mutex<Vec<(Option<Outcome>, usize, u64)>>);

impl Observer for Reports {
    fn observe(&self, observation: &Observation<'_>) {
        if let Observation::RunReported { run, report } = observation {
            self.0.lock().unwrap().push((run.outcome(), report.swallowed.len(), report.late));
        }
    }
}

#[test]
fn how_a_script_went_is_kept_counted_told_and_swept_with_its_run() {
    let told = Arc::new(Reports::default());
    let setup = Setup::with(|builder| builder.observer(Arc::clone(&told) as _));
    let runs = setup.runtime.runs();
    runs.define("work", &Class { keep: Keep { runs: Some(0), ..Keep::default() }, ..once() }).unwrap();
    let id = runs.submit(&Submission::new("work", "1")).unwrap().run;
    let clock = setup.clock.clone();
    crew(&setup, Scripted::new(move |_| Box::new(Rust::inline(Careless(clock.clone()))))).drain().unwrap();

    let report = runs.report_of(id).unwrap().unwrap();
    let times: Vec<_> = report.phases.iter().filter(|(_, took)| !took.is_zero()).copied().collect();
    let ms = Duration::from_millis;
    assert_eq!(times, [(Phase::Run, ms(20)), (Phase::Cleanup, ms(3))]);
    assert_eq!(report.phases.first().map(|(phase, _)| *phase), Some(Phase::Load));
    assert_eq!((report.drives, report.emitted, report.refused, report.swallowed_total), (1, 2, 1, 1));
    assert_eq!(
        (report.swallowed[0].phase, &*report.swallowed[0].error.message),
        (Phase::Cleanup, "the door does not close")
    );
    assert_eq!(runs.refused(id).unwrap(), 1);
    assert_eq!(*told.0.lock().unwrap(), [(Some(DONE), 1, 1)]);

    let counts = setup.runtime.metrics();
    assert_eq!((counts.swallowed_errors, counts.refused_events, counts.dropped_events), (1, 1, 0));
    let text = setup.runtime.prometheus().unwrap();
    assert!(text.contains("kauri_run_phase_seconds_sum{phase=\"run\"} 0.02\n"), "{text}");
    assert!(text.contains("kauri_run_phase_seconds_count{phase=\"cleanup\"} 1\n"), "{text}");
    assert!(text.contains("kauri_swallowed_errors_total 1\n"), "{text}");

    assert_eq!(runs.sweep(1000).unwrap().runs, 1);
    assert_eq!((runs.report_of(id).unwrap(), runs.refused(id).unwrap()), (None, 0));
    let store = TreeSubstrate::new(setup.store.clone());
    let left = store.snapshot().unwrap().count(&"run_index".into(), KeyRange::ALL).unwrap();
    assert_eq!(left, 2, "the class, and which ids were used");
}

#[test]
fn drives_before_and_after_a_wait_are_told_together() {
    struct Waits;
    impl Script for Waits {
        fn run(&self, cx: &Context) -> Result<(), ScriptError> {
            cx.wait_for_signal("go").map(drop)
        }
    }
    let (setup, runs) = setup_with(&once());
    let id = runs.submit(&Submission::new("work", "1")).unwrap().run;
    let mut worker = crew(&setup, Scripted::new(|_| Box::new(Rust::inline(Waits))));
    worker.drain().unwrap();
    assert_eq!((runs.run(id).unwrap().state, runs.report_of(id).unwrap().unwrap().drives), (State::Parked, 1));
    runs.signal(id, "go", b"").unwrap();
    worker.drain().unwrap();
    assert_eq!((runs.run(id).unwrap().outcome(), runs.report_of(id).unwrap().unwrap().drives), (Some(DONE), 2));
}

/// A script that says something and is then silent for longer than what it said may wait.
struct Brooding {
    runs: Runs,
    clock: VirtualClock,
}

impl Script for Brooding {
    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        let kept = || self.runs.events(cx.run().run_id, 1, 10).unwrap().len();
        for said in 1..=3 {
            cx.emit().log_info("so it is")?;
            assert_eq!(kept(), said - 1, "it waits");
            self.clock.advance(INTERVAL);
            wait_until(|| kept() == said);
        }
        Ok(())
    }
}

const INTERVAL: Duration = Duration::from_millis(50);

#[test]
fn events_of_a_silent_script_are_committed_by_whoever_drives_its_run() {
    let (setup, runs) = setup_with(&once());
    let id = runs.submit(&Submission::new("work", "1")).unwrap().run;
    let brooding = (runs.clone(), setup.clock.clone());
    let mut with = kauri_runtime::run::Setup::default();
    with.ingestion = Ingestion::Streaming { events_max: 1000, bytes_max: 1 << 20, interval: Some(INTERVAL) };
    let drive = Scripted::new(move |_| {
        let (runs, clock) = brooding.clone();
        Box::new(Rust::inline(Brooding { runs, clock }))
    });
    crew(&setup, drive.setup(with)).drain().unwrap();
    let run = runs.run(id).unwrap();
    assert_eq!((run.outcome(), run.events), (Some(DONE), 4));
    assert!(runs.verify(id).unwrap());
}
