//! Scripts and their hooks, claim by claim. That they hold in every combination is shown by `paths.rs`.
#![expect(clippy::disallowed_methods, reason = "tests act while a script runs")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_disk::MemoryDisk;
use kauri_runtime::run::script::{
    Call, Called, Cancel, Cause, Context, Crew, Deadlines, EmitError, Executor, Held, Hook, Hooks, LoadError, Phase,
    Plan, Prepared, Report, Resource, RunInfo, Rust, Script, ScriptError, Stop, TerminalSignal, Verdict, execute,
};
use kauri_runtime::run::{
    Appended, Artifacts, Digest, EventDraft, EventSink, Files, Ingestion, KeepError, Outcome, SinkError,
};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Clock, Now};
use kauri_wire::pack::{Map, MapBuf, Value as Pack};
use kauri_wire::run::{Event, EventType, Level};
use kauri_wire::{JobId, RunId, Timestamp};
use serde_json::{Value, json};

/// Keeps events, and tells how many each commit had.
#[derive(Clone, Default)]
struct Kept {
    events: Arc<Mutex<Vec<EventDraft>>>,
    told: Option<Sender<usize>>,
}

impl Kept {
    fn kinds(&self) -> Vec<EventType> {
        self.events.lock().unwrap().iter().map(|event| event.kind).collect()
    }

    fn payload(&self, at: usize) -> String {
        shown(&self.events.lock().unwrap()[at])
    }
}

impl EventSink for Kept {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        let mut kept = self.events.lock().unwrap();
        let first_seq = kept.len() as u64 + 1;
        kept.extend_from_slice(events);
        if let Some(told) = &self.told {
            told.send(events.len()).unwrap();
        }
        Ok(Appended { first_seq, last_seq: kept.len() as u64 })
    }
}

fn shown(event: &EventDraft) -> String {
    format!("{:?}", Map::decode(&event.payload).unwrap())
}

type Part = Box<dyn Fn(&Context) -> Result<(), ScriptError> + Send + Sync>;
type ErrorPart = Box<dyn Fn(&ScriptError, &Context) -> Result<(), ScriptError> + Send + Sync>;
type SignalPart = Box<dyn Fn(&TerminalSignal, &Context) -> Result<(), ScriptError> + Send + Sync>;
type PreparePart = Box<dyn Fn(&Value, &RunInfo) -> Result<Prepared, ScriptError> + Send + Sync>;

/// A script made of closures, which writes down what is called.
#[derive(Default)]
struct Parts {
    prepare: Option<PreparePart>,
    before_run: Option<Part>,
    run: Option<Part>,
    after_run: Option<Part>,
    on_error: Option<ErrorPart>,
    before_terminal: Option<SignalPart>,
    cleanup: Option<Part>,
    called: Arc<Mutex<Vec<&'static str>>>,
}

impl Parts {
    fn new(run: impl Fn(&Context) -> Result<(), ScriptError> + Send + Sync + 'static) -> Self {
        Self { run: Some(Box::new(run)), ..Self::default() }
    }

    fn part(&self, name: &'static str, part: Option<&Part>, cx: &Context) -> Result<(), ScriptError> {
        self.called.lock().unwrap().push(name);
        part.map_or(Ok(()), |part| part(cx))
    }
}

impl Script for Parts {
    fn prepare(&self, job: &Value, run: &RunInfo, _: &Stop) -> Result<Prepared, ScriptError> {
        self.called.lock().unwrap().push("prepare");
        self.prepare.as_ref().map_or(Ok(Prepared::CONTINUE), |prepare| prepare(job, run))
    }

    fn before_run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.part("before_run", self.before_run.as_ref(), cx)
    }

    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.part("run", self.run.as_ref(), cx)
    }

    fn after_run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.part("after_run", self.after_run.as_ref(), cx)
    }

    fn on_error(&self, error: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
        self.called.lock().unwrap().push("on_error");
        self.on_error.as_ref().map_or(Ok(()), |part| part(error, cx))
    }

    fn before_terminal(&self, signal: &TerminalSignal, cx: &Context) -> Result<(), ScriptError> {
        self.called.lock().unwrap().push("before_terminal");
        self.before_terminal.as_ref().map_or(Ok(()), |part| part(signal, cx))
    }

    fn cleanup(&self, cx: &Context) -> Result<(), ScriptError> {
        self.part("cleanup", self.cleanup.as_ref(), cx)
    }
}

fn run_id() -> RunId {
    RunId::from_parts(Timestamp(1_780_000_000_000), [7; 10])
}

fn plan(job: Value) -> Plan {
    Plan::new(run_id(), job, Arc::new(VirtualClock::default()))
}

/// What a run came to.
struct Ran {
    report: Report,
    kept: Kept,
    called: Vec<&'static str>,
}

impl Ran {
    fn verdict(&self) -> &Verdict {
        self.report.verdict.as_ref().unwrap()
    }

    fn outcome(&self) -> Outcome {
        self.verdict().outcome
    }

    fn terminal(&self) -> String {
        shown(&self.verdict().terminal)
    }
}

fn run(plan: Plan, script: Parts) -> Ran {
    let (kept, called) = (Kept::default(), Arc::clone(&script.called));
    let report = execute(plan, &mut Rust::inline(script), Box::new(kept.clone()), |_| Ok(()));
    let called = called.lock().unwrap().clone();
    Ran { report, kept, called }
}

const SUCCESS: Outcome = Outcome::Success { skipped: false };

fn fails(message: &'static str) -> impl Fn(&Context) -> Result<(), ScriptError> + Send + Sync {
    move |_| Err(ScriptError::new(message).of_type("test"))
}

#[test]
fn prepare_keeps_replaces_or_nulls_the_job() {
    for (answer, seen) in [(None, json!(7)), (Some(json!({"a": 1})), json!({"a": 1})), (Some(Value::Null), Value::Null)]
    {
        let (told, heard) = channel();
        let mut script = Parts::new(move |cx| told.send(cx.job().clone()).map_err(|_| "nobody listens".into()));
        script.prepare = Some(Box::new(move |job, _| {
            assert_eq!(*job, json!(7));
            Ok(Prepared::Continue { job: answer.clone() })
        }));
        assert_eq!(run(plan(json!(7)), script).outcome(), SUCCESS);
        assert_eq!(heard.recv().unwrap(), seen);
    }
}

#[test]
fn prepare_is_told_which_run_it_is_for() {
    let parent_run_id = Some(RunId::from_parts(Timestamp(1_770_000_000_000), [3; 10]));
    let info = RunInfo { run_id: run_id(), job_id: JobId::new("import").ok(), parent_run_id, attempt: 2 };
    let (told, heard) = channel();
    let mut script = Parts::new(|_| Ok(()));
    script.prepare = Some(Box::new(move |_, run| {
        told.send(run.clone()).map_err(|_| "nobody listens")?;
        Ok(Prepared::CONTINUE)
    }));
    assert_eq!(run(plan(Value::Null).run(info.clone()), script).outcome(), SUCCESS);
    assert_eq!(heard.recv().unwrap(), info);
}

#[test]
fn skipped_run_is_a_visible_success_and_nothing_else_is_called_or_acquired() {
    for (reason, summary) in [
        (None, "{Str(\"summary\"): Map({Str(\"skipped\"): Bool(true)})}"),
        (Some("no news"), "{Str(\"summary\"): Map({Str(\"skipped\"): Bool(true), Str(\"reason\"): Str(\"no news\")})}"),
    ] {
        let mut script = Parts::new(|_| panic!("it is skipped"));
        script.prepare = Some(Box::new(move |_, _| Ok(Prepared::Skip { reason: reason.map(str::to_owned) })));
        let ran = run(plan(Value::Null).resource(Unavailable), script);
        assert_eq!(ran.outcome(), Outcome::Success { skipped: true });
        assert_eq!(ran.called, ["prepare"]);
        assert_eq!((ran.verdict().terminal.kind, ran.terminal()), (EventType::RunComplete, summary.to_owned()));
        assert!(ran.kept.kinds().is_empty());
    }
}

/// A resource that must not be asked for, or cannot be had.
struct Unavailable;

impl Resource for Unavailable {
    fn acquire(&self, _: &RunInfo, _: &Stop) -> Result<Arc<dyn Held>, ScriptError> {
        Err("there is no browser".into())
    }
}

#[test]
fn failing_prepare_or_resource_is_an_executors_crash_without_cleanup() {
    let mut script = Parts::new(|_| Ok(()));
    script.prepare = Some(Box::new(|_, _| Err("bad job".into())));
    // Nothing is acquired: that would have failed too, and with other words.
    let ran = run(plan(Value::Null).resource(Unavailable), script);
    assert_eq!((ran.outcome(), &ran.called[..]), (Outcome::ExecutorCrash, &["prepare"][..]));
    let expected = "{Str(\"error_type\"): Str(\"executor_crash\"), Str(\"message\"): Str(\"bad job\")}";
    assert_eq!((ran.verdict().terminal.kind, ran.terminal()), (EventType::RunError, expected.to_owned()));

    let ran = run(plan(Value::Null).resource(Unavailable), Parts::new(|_| Ok(())));
    assert_eq!((ran.outcome(), &ran.called[..]), (Outcome::ExecutorCrash, &["prepare"][..]));
    assert_eq!(ran.verdict().error.as_ref().unwrap().message, "there is no browser");
}

#[test]
fn hooks_are_called_in_the_order_of_the_contract() {
    let called_by = |script: Parts| {
        let called = Arc::clone(&script.called);
        let sealing = Arc::clone(&called);
        let report = execute(plan(Value::Null), &mut Rust::inline(script), Box::<Kept>::default(), |_| {
            sealing.lock().unwrap().push("terminal");
            Ok(())
        });
        assert_eq!(report.sealed, Ok(()));
        called.lock().unwrap().clone()
    };
    let well = called_by(Parts::new(|_| Ok(())));
    assert_eq!(well, ["prepare", "before_run", "run", "after_run", "before_terminal", "terminal", "cleanup"]);
    let badly = called_by(Parts::new(fails("no")));
    assert_eq!(badly, ["prepare", "before_run", "run", "on_error", "before_terminal", "terminal", "cleanup"]);
}

#[test]
fn script_without_hooks_runs_as_if_there_were_none() {
    /// A script whose hooks are none of its own.
    struct Plain(Parts);
    impl Script for Plain {
        fn prepare(&self, job: &Value, run: &RunInfo, stop: &Stop) -> Result<Prepared, ScriptError> {
            self.0.prepare(job, run, stop)
        }
        fn before_run(&self, cx: &Context) -> Result<(), ScriptError> {
            self.0.before_run(cx)
        }
        fn run(&self, cx: &Context) -> Result<(), ScriptError> {
            self.0.run(cx)
        }
        fn after_run(&self, cx: &Context) -> Result<(), ScriptError> {
            self.0.after_run(cx)
        }
        fn on_error(&self, error: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
            self.0.on_error(error, cx)
        }
        fn before_terminal(&self, signal: &TerminalSignal, cx: &Context) -> Result<(), ScriptError> {
            self.0.before_terminal(signal, cx)
        }
        fn cleanup(&self, cx: &Context) -> Result<(), ScriptError> {
            self.0.cleanup(cx)
        }
        fn hooks(&self) -> Hooks {
            Hooks::NONE
        }
    }
    for (is_well, outcome) in [(true, SUCCESS), (false, Outcome::ScriptError)] {
        let script = Parts::new(move |cx| {
            cx.emit().checkpoint("only", None)?;
            if is_well { Ok(()) } else { Err("no".into()) }
        });
        let (kept, called) = (Kept::default(), Arc::clone(&script.called));
        let report = execute(plan(Value::Null), &mut Rust::inline(Plain(script)), Box::new(kept.clone()), |_| Ok(()));
        assert_eq!(report.verdict.unwrap().outcome, outcome);
        assert_eq!((kept.kinds(), &called.lock().unwrap()[..]), (vec![EventType::Checkpoint], &["run"][..]));
    }
}

#[test]
fn run_complete_that_says_skipped_is_a_skipped_success_whoever_says_it() {
    for (skipped, by_hand) in [(true, false), (true, true), (false, false), (false, true)] {
        let script = Parts::new(move |cx| {
            let mut summary = MapBuf::new();
            summary.put("skipped", skipped).put("reason", "no news");
            let summary = Some(summary.view());
            Ok(if by_hand { cx.emit().say(&Event::RunComplete { summary }) } else { cx.emit().run_complete(summary) }?)
        });
        let ran = run(plan(Value::Null), script);
        assert_eq!(ran.outcome(), Outcome::Success { skipped }, "{by_hand}");
        assert_eq!(ran.report.verdict.unwrap().said_by, Some(Phase::Run));
        assert_eq!(ran.called.last(), Some(&"cleanup"), "something was acquired");
    }
}

#[test]
fn on_error_recovers_by_saying_run_complete() {
    let mut script = Parts::new(fails("no"));
    script.on_error = Some(Box::new(|error, cx| {
        assert_eq!(error.to_string(), "test: no");
        let mut summary = MapBuf::new();
        summary.put("recovered", true);
        Ok(cx.emit().run_complete(Some(summary.view()))?)
    }));
    let ran = run(plan(Value::Null), script);
    assert_eq!((ran.outcome(), ran.verdict().said_by), (SUCCESS, Some(Phase::OnError)));
    assert!(ran.report.is_recovered() && !ran.called.contains(&"before_terminal"));
    assert!(ran.terminal().contains("recovered"));
}

#[test]
fn before_terminal_may_say_something_and_vetoes_by_saying_run_error() {
    let mut script = Parts::new(|_| Ok(()));
    script.before_terminal = Some(Box::new(|signal, cx| {
        assert_eq!(*signal, TerminalSignal::Completed);
        cx.emit().log_info("looking at it again")?;
        Ok(cx.emit().run_error(&ScriptError::new("half of it is missing").of_type("incomplete"))?)
    }));
    let ran = run(plan(Value::Null), script);
    assert_eq!((ran.outcome(), ran.verdict().said_by), (Outcome::ScriptError, Some(Phase::BeforeTerminal)));
    assert_eq!(ran.verdict().error.as_ref().unwrap().to_string(), "incomplete: half of it is missing");
    assert_eq!(ran.kept.kinds(), [EventType::Log]);
}

#[test]
fn before_terminal_is_told_what_went_wrong() {
    let (told, heard) = channel();
    let mut script = Parts::new(fails("no"));
    script.on_error = Some(Box::new(|_, _| Err("another, which changes nothing".into())));
    script.before_terminal =
        Some(Box::new(move |signal, _| told.send(signal.clone()).map_err(|_| "nobody listens".into())));
    run(plan(Value::Null), script);
    assert_eq!(heard.recv().unwrap(), TerminalSignal::Error(ScriptError::new("no").of_type("test")));
}

#[test]
fn error_without_words_is_still_an_error() {
    let (told, heard) = channel();
    let mut script = Parts::new(|_| Err(ScriptError::new("").of_type("")));
    script.before_terminal =
        Some(Box::new(move |signal, _| told.send(signal.clone()).map_err(|_| "nobody listens".into())));
    let ran = run(plan(Value::Null), script);
    assert_eq!(ran.outcome(), Outcome::ScriptError);
    assert!(matches!(heard.recv().unwrap(), TerminalSignal::Error(_)));
    assert_eq!(ran.terminal(), "{Str(\"error_type\"): Str(\"script_error\"), Str(\"message\"): Str(\"\")}");
}

#[test]
fn swallowed_errors_are_told_as_events_and_in_the_report() {
    let mut script = Parts::new(fails("first"));
    script.on_error = Some(Box::new(|_, _| Err("second".into())));
    script.before_terminal = Some(Box::new(|_, _| std::panic::resume_unwind(Box::new("third"))));
    script.cleanup = Some(Box::new(fails("fourth")));
    let ran = run(plan(Value::Null), script);
    assert_eq!(ran.outcome(), Outcome::ScriptError);
    let swallowed: Vec<_> = ran.report.swallowed.iter().map(|it| (it.phase, it.error.message.as_str())).collect();
    assert_eq!(swallowed, [(Phase::OnError, "second"), (Phase::BeforeTerminal, "third"), (Phase::Cleanup, "fourth")]);
    // The last came after the end of the stream.
    assert_eq!(ran.kept.kinds(), [EventType::Log; 2]);
    for (at, words) in [(0, "on_error failed, which changes nothing: second"), (1, "before_terminal failed")] {
        assert!(ran.kept.payload(at).contains(words), "{}", ran.kept.payload(at));
    }
}

#[test]
fn swallowed_error_is_told_as_an_event_also_where_there_is_no_room_for_log_events() {
    let mut script = Parts::new(|cx| {
        for _ in 0..100 {
            cx.emit().checkpoint("so it goes", None)?;
            cx.emit().log_info("and on")?;
        }
        Ok(())
    });
    script.before_terminal = Some(Box::new(|_, _| Err("the hook fails".into())));
    let ran = run(plan(Value::Null).ingestion(Ingestion::Buffered { bytes_max: 1 << 10 }), script);
    assert!(ran.report.tally.dropped["log"] > 0, "the script's own were dropped");
    let events = ran.kept.events.lock().unwrap();
    let told = events.iter().filter(|event| shown(event).contains("the hook fails")).count();
    assert_eq!((ran.report.swallowed.len(), told), (1, 1));
}

#[test]
fn event_that_no_room_is_enough_for_drops_nothing() {
    let script = Parts::new(|cx| {
        cx.emit().log_info("one")?;
        cx.emit().log_info("two")?;
        // Everything that waits is committed for it anyway.
        Ok(cx.emit().checkpoint("large", Some(&"x".repeat(4_000)))?)
    });
    let ran = run(plan(Value::Null).ingestion(Ingestion::Buffered { bytes_max: 1 << 10 }), script);
    assert_eq!(ran.kept.kinds(), [EventType::Log, EventType::Log, EventType::Checkpoint]);
    assert_eq!(ran.report.tally.dropped_total(), 0);
}

#[test]
fn nothing_can_be_said_after_a_terminal_event_and_what_is_tried_is_counted() {
    let mut script = Parts::new(|cx| {
        cx.emit().run_complete(None)?;
        assert!(matches!(cx.emit().log_info("more"), Err(EmitError::AfterTerminal)));
        assert!(matches!(cx.emit().run_error(&"no".into()), Err(EmitError::AfterTerminal)));
        Err("it has said that it is complete".into())
    });
    script.cleanup = Some(Box::new(|cx| {
        assert!(matches!(cx.emit().log_info("more"), Err(EmitError::AfterTerminal)));
        Ok(())
    }));
    let ran = run(plan(Value::Null), script);
    assert_eq!((ran.outcome(), ran.report.emitted, ran.report.refused), (SUCCESS, 1, 3));
    assert_eq!(ran.called, ["prepare", "before_run", "run", "cleanup"]);
    assert_eq!(ran.report.swallowed[0].phase, Phase::Run);
}

#[test]
fn refused_event_or_file_changes_nothing_else() {
    let script = Parts::new(|cx| {
        assert!(matches!(cx.emit().item("", Map::EMPTY), Err(EmitError::Invalid(_))));
        assert!(matches!(cx.put("", "text/plain", b"x"), Err(EmitError::Keep(KeepError::Name { .. }))));
        cx.put("a.txt", "text/plain", b"x")?;
        assert!(matches!(cx.put("a.txt", "text/plain", b"y"), Err(EmitError::Keep(KeepError::Exists { .. }))));
        let mut summary = MapBuf::new();
        summary.put("skipped", "so it was");
        assert!(matches!(cx.emit().run_complete(Some(summary.view())), Err(EmitError::Invalid(_))));
        Ok(cx.emit().checkpoint("after", None)?)
    });
    let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap());
    let ran = run(plan(Value::Null).files(files.clone()), script);
    assert_eq!((ran.outcome(), ran.kept.kinds()), (SUCCESS, vec![EventType::Checkpoint]));
    assert_eq!(files.list(run_id()).unwrap().len(), 1);
}

#[test]
fn every_emitter_makes_the_event_that_it_is_called_after() {
    let script = Parts::new(|cx| {
        let mut data = MapBuf::new();
        data.put("price", 12_u64);
        let emit = cx.emit();
        emit.item("apple", data.view())?;
        let mut artifact = cx.artifact("page.html", "text/html")?;
        artifact.write(b"<p>")?;
        artifact.write(b"</p>")?;
        artifact.finish()?;
        emit.checkpoint("half", Some("so far"))?;
        emit.enqueue("next.js", data.view())?;
        emit.rotate_proxy(Some("blocked"))?;
        emit.log(Level::Error, "broken", Some(data.view()))?;
        Ok(emit.run_complete(Some(data.view()))?)
    });
    let artifacts = Artifacts::open(Arc::new(MemoryDisk::new())).unwrap();
    let ran = run(plan(Value::Null).files(Files::new(artifacts.clone())), script);
    assert_eq!(ran.outcome(), SUCCESS);
    let mut kinds = ran.kept.kinds();
    kinds.push(ran.verdict().terminal.kind);
    let all: Vec<EventType> = EventType::ALL.iter().copied().filter(|kind| *kind != EventType::RunError).collect();
    assert_eq!(kinds, all);

    let events = ran.kept.events.lock().unwrap();
    let payload = Map::decode(&events[1].payload).unwrap();
    assert_eq!(payload.get("size_bytes"), Some(Pack::Uint(7)));
    assert_eq!(payload.get("name"), Some(Pack::Str("page.html")));
    let digest = Digest::named_in(payload).unwrap();
    assert!(artifacts.is_whole(digest).unwrap());
    // What an event names is live; asked properly, a collection leaves it.
    assert_eq!(artifacts.collect(|asked| Ok(asked == digest)).unwrap(), 0);
    assert_eq!(artifacts.collect(|_| Ok(false)).unwrap(), 1, "nobody guards it any more");
}

#[test]
fn deadlines_cut_the_script_the_hooks_and_the_run_as_a_whole() {
    let hang = |cx: &Context| -> Result<(), ScriptError> {
        loop {
            cx.sleep(Duration::from_secs(1))?;
        }
    };
    let seconds = Duration::from_secs;
    let deadlines =
        Deadlines { script: seconds(10), before_run: seconds(20), cleanup: seconds(3), ..Deadlines::default() };
    let took = |ran: &Ran, phase| ran.report.phases.iter().find(|(at, _)| *at == phase).unwrap().1;

    let mut script = Parts::new(hang);
    script.cleanup = Some(Box::new(hang));
    let ran = run(plan(Value::Null).deadlines(deadlines), script);
    assert_eq!(
        (ran.outcome(), took(&ran, Phase::Run), took(&ran, Phase::Cleanup)),
        (Outcome::TimedOut, seconds(10), seconds(3))
    );
    assert_eq!(ran.called, ["prepare", "before_run", "run", "cleanup"]);
    assert_eq!(ran.verdict().error.as_ref().unwrap().message, "run: its time was over");
    assert_eq!(ran.report.swallowed[0].phase, Phase::Cleanup);

    let mut script = Parts::new(hang);
    script.before_run = Some(Box::new(move |cx| Ok(cx.sleep(seconds(15))?)));
    let ran = run(plan(Value::Null).deadlines(Deadlines { run: seconds(17), ..deadlines }), script);
    assert_eq!((ran.outcome(), took(&ran, Phase::Run)), (Outcome::TimedOut, seconds(2)));
}

#[test]
fn cancelled_run_is_cleaned_up() {
    let cancel = Cancel::default();
    let own = cancel.clone();
    let script = Parts::new(move |cx| {
        own.cancel();
        assert!(matches!(cx.emit().log_info("more"), Err(EmitError::Stopped(_))));
        Ok(cx.stop().check()?)
    });
    let ran = run(plan(Value::Null).cancel(cancel), script);
    assert_eq!((ran.outcome(), ran.verdict().terminal.kind), (Outcome::Cancelled, EventType::RunError));
    assert_eq!(ran.called, ["prepare", "before_run", "run", "cleanup"]);
}

/// An executor that fails as it is told.
struct Failing {
    load: Result<Hooks, LoadError>,
    panics: bool,
}

impl Executor for Failing {
    fn load(&mut self, _: &Stop) -> Result<Hooks, LoadError> {
        self.load.clone()
    }

    fn prepare(&mut self, _: &Arc<Value>, _: &Arc<RunInfo>, _: &Stop) -> Called<Prepared> {
        Called::Returned(Prepared::CONTINUE)
    }

    fn call(&mut self, call: Call, _: &Context) -> Called<()> {
        match call {
            Call::Run if self.panics => std::panic::resume_unwind(Box::new("its own fault")),
            Call::Run => Called::Crashed("the process is gone".to_owned()),
            Call::BeforeRun => Called::Returned(()),
            other => panic!("expected no {other:?} after the end of the executor"),
        }
    }
}

/// Counts what is held.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<i32>>);

impl Resource for Counter {
    fn acquire(&self, _: &RunInfo, _: &Stop) -> Result<Arc<dyn Held>, ScriptError> {
        *self.0.lock().unwrap() += 1;
        Ok(Arc::new(self.clone()))
    }
}

impl Held for Counter {
    fn release(&self, _: &Stop) -> Result<(), ScriptError> {
        *self.0.lock().unwrap() -= 1;
        Ok(())
    }
}

#[test]
fn executor_that_is_gone_is_not_called_again_and_the_resource_is_released() {
    for panics in [false, true] {
        let (counter, hooks) = (Counter::default(), Hooks::ALL);
        let mut executor = Failing { load: Ok(hooks), panics };
        let plan = plan(Value::Null).resource(counter.clone());
        let report = execute(plan, &mut executor, Box::<Kept>::default(), |_| Ok(()));
        assert_eq!(report.verdict.unwrap().outcome, Outcome::ExecutorCrash);
        assert_eq!(*counter.0.lock().unwrap(), 0);
    }
}

#[test]
fn script_that_cannot_be_loaded_is_told_in_one_way() {
    let invalid = Hooks::from_exports([("default", true), (Hook::OnError.export_name(), false)]).unwrap_err();
    let version = LoadError::Version { expected: "0.1".to_owned(), found: "1.0.0".to_owned() };
    for (error, outcome, words) in [
        (invalid, Outcome::ExecutorCrash, "expected the export `onError` to be a function, found something else"),
        (version, Outcome::VersionMismatch, "expected version 0.1 of the run contract, found 1.0.0"),
    ] {
        let mut executor = Failing { load: Err(error), panics: false };
        let report = execute(plan(Value::Null), &mut executor, Box::<Kept>::default(), |_| Ok(()));
        let verdict = report.verdict.unwrap();
        assert_eq!((verdict.outcome, verdict.error.unwrap().message.as_str()), (outcome, words));
    }
    assert!(Hooks::from_exports([("prepare", true)]).is_err(), "a script has a function");
    for hook in Hook::ALL {
        let exports = |is_function| [("default", true), ("other", false), (hook.export_name(), is_function)];
        assert!(matches!(Hooks::from_exports(exports(false)), Err(LoadError::Invalid(_))), "{hook:?}");
        assert_eq!(Hooks::from_exports(exports(true)), Ok(Hooks::NONE.with(hook)));
    }
}

#[test]
fn held_resource_is_found_by_its_type_and_released_after_cleanup_whatever_sealing_says() {
    let counter = Counter::default();
    let own = counter.clone();
    let mut script = Parts::new(|cx| {
        assert_eq!(*cx.held::<Counter>().unwrap().0.lock().unwrap(), 1);
        Ok(())
    });
    script.cleanup = Some(Box::new(move |_| {
        assert_eq!(*own.0.lock().unwrap(), 1);
        Ok(())
    }));
    let called = Arc::clone(&script.called);
    let plan = plan(Value::Null).resource(counter.clone());
    let report = execute(plan, &mut Rust::inline(script), Box::<Kept>::default(), |_| Err(SinkError::Lost));
    assert_eq!((report.sealed, report.swallowed), (Err(SinkError::Lost), vec![]));
    assert_eq!((called.lock().unwrap().last(), *counter.0.lock().unwrap()), (Some(&"cleanup"), 0));
}

/// Deadlines that are never reached, unless the clock is moved.
fn patient() -> Deadlines {
    Deadlines { grace: Duration::ZERO, ..Deadlines::default() }
}

/// Runs on another thread, so that a test can act meanwhile.
fn spawn(plan: Plan, crew: &Crew, script: Parts, kept: Kept) -> Receiver<Report> {
    let (told, heard) = channel();
    let mut executor = Rust::on(crew, script);
    std::thread::spawn(move || {
        let report = execute(plan, &mut executor, Box::new(kept), |_| Ok(()));
        assert!(told.send(report).is_ok(), "a test waits for the report");
    });
    heard
}

#[test]
fn script_that_hangs_is_left_alone_and_whatever_it_says_later_is_refused() {
    let (clock, cancel, crew) = (VirtualClock::default(), Cancel::default(), Crew::default());
    let (begun, has_begun) = channel();
    let (go, may_go) = channel::<()>();
    let (said, hears) = channel();
    let may_go = Mutex::new(may_go);
    let script = Parts::new(move |cx| {
        begun.send(()).unwrap();
        may_go.lock().unwrap().recv().unwrap(); // asks nobody whether it has to stop
        said.send(cx.emit().log_info("too late").unwrap_err().to_string()).unwrap();
        Ok(())
    });
    let called = Arc::clone(&script.called);
    let plan = Plan::new(run_id(), Value::Null, Arc::new(clock.clone())).cancel(cancel.clone()).deadlines(patient());
    let report = spawn(plan, &crew, script, Kept::default());
    has_begun.recv().unwrap();
    clock.advance(Duration::from_hours(1));
    cancel.wake();
    let report = report.recv().unwrap();
    assert_eq!((report.verdict.unwrap().outcome, report.left_alone), (Outcome::TimedOut, 1));
    assert_eq!(*called.lock().unwrap(), ["prepare", "before_run", "run", "cleanup"]);
    go.send(()).unwrap();
    assert_eq!(hears.recv().unwrap(), "nothing more can be said: the call did not stop and was left alone");
}

#[test]
fn cancelled_script_that_hangs_is_left_alone() {
    let (cancel, crew) = (Cancel::default(), Crew::default());
    let (begun, has_begun) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    let script = Parts::new(move |_| {
        begun.send(()).unwrap();
        let _gone = may_go.lock().unwrap().recv();
        Ok(())
    });
    let plan = plan(Value::Null).cancel(cancel.clone()).deadlines(patient());
    let report = spawn(plan, &crew, script, Kept::default());
    has_begun.recv().unwrap();
    cancel.cancel();
    let report = report.recv().unwrap();
    assert_eq!((report.verdict.unwrap().outcome, report.left_alone), (Outcome::Cancelled, 1));
    drop(go);
}

/// A resource that takes its time, and tells when it is released.
struct Slow {
    begun: Sender<()>,
    may_go: Mutex<Receiver<()>>,
    released: Sender<Result<(), Cause>>,
}

struct SlowHeld(Sender<Result<(), Cause>>);

impl Resource for Slow {
    fn acquire(&self, _: &RunInfo, _: &Stop) -> Result<Arc<dyn Held>, ScriptError> {
        self.begun.send(()).unwrap();
        self.may_go.lock().unwrap().recv().unwrap();
        Ok(Arc::new(SlowHeld(self.released.clone())))
    }
}

impl Held for SlowHeld {
    fn release(&self, stop: &Stop) -> Result<(), ScriptError> {
        self.0.send(stop.check()).unwrap();
        Ok(())
    }
}

/// A clock that stands still, and lets nobody sleep.
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Now {
        Now::default()
    }

    fn sleep(&self, _: Duration) {
        panic!("expected to be woken, found to be asleep");
    }
}

#[test]
fn sleeping_script_is_woken_when_its_run_is_cancelled() {
    let (cancel, crew) = (Cancel::default(), Crew::default());
    let (begun, has_begun) = channel();
    let script = Parts::new(move |cx| {
        begun.send(()).unwrap();
        Ok(cx.sleep(Duration::from_mins(50))?)
    });
    let plan = Plan::new(run_id(), Value::Null, Arc::new(Standing)).cancel(cancel.clone());
    let report = spawn(plan, &crew, script, Kept::default());
    has_begun.recv().unwrap();
    cancel.cancel();
    let report = report.recv().unwrap();
    assert_eq!((report.verdict.unwrap().outcome, report.left_alone), (Outcome::Cancelled, 0));
}

#[test]
fn resource_that_comes_too_late_is_released_by_whoever_brings_it() {
    let (clock, cancel, crew) = (VirtualClock::default(), Cancel::default(), Crew::default());
    let ((begun, has_begun), (go, may_go), (released, is_released)) = (channel(), channel(), channel());
    let slow = Slow { begun, may_go: Mutex::new(may_go), released };
    let plan = Plan::new(run_id(), Value::Null, Arc::new(clock.clone())).cancel(cancel.clone()).deadlines(patient());
    let script = Parts::new(|_| panic!("nothing was acquired"));
    let report = spawn(plan.resource(slow).crew(&crew), &crew, script, Kept::default());
    has_begun.recv().unwrap();
    clock.advance(Duration::from_secs(30));
    cancel.wake();
    assert_eq!(report.recv().unwrap().verdict.unwrap().outcome, Outcome::TimedOut);
    go.send(()).unwrap();
    assert_eq!(is_released.recv().unwrap(), Ok(()), "it has its own time for that");
    assert!(is_released.recv().is_err(), "once");
}

#[test]
fn threads_of_a_crew_are_used_again() {
    let crew = Crew::default();
    for _ in 0..20 {
        let (kept, script) = (Kept::default(), Parts::new(|cx| Ok(cx.emit().checkpoint("c", None)?)));
        let report = execute(plan(Value::Null), &mut Rust::on(&crew, script), Box::new(kept.clone()), |_| Ok(()));
        assert_eq!((report.verdict.unwrap().outcome, kept.kinds().len()), (SUCCESS, 1));
    }
    assert_eq!(crew.idle(), 1);
}

#[test]
fn events_of_a_silent_script_are_committed_when_their_time_comes() {
    let (clock, cancel, crew) = (VirtualClock::default(), Cancel::default(), Crew::default());
    let (told, commits) = channel();
    let (begun, has_begun) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Mutex::new(may_go);
    let script = Parts::new(move |cx| {
        cx.emit().checkpoint("one", None)?;
        cx.emit().checkpoint("two", None)?;
        begun.send(()).unwrap();
        may_go.lock().unwrap().recv().unwrap();
        Ok(())
    });
    let ingestion =
        Ingestion::Streaming { events_max: 100, bytes_max: 1 << 20, interval: Some(Duration::from_secs(60)) };
    let plan = Plan::new(run_id(), Value::Null, Arc::new(clock.clone())).cancel(cancel.clone()).ingestion(ingestion);
    let report = spawn(plan, &crew, script, Kept { told: Some(told), ..Kept::default() });
    has_begun.recv().unwrap();
    assert!(commits.try_recv().is_err(), "their time has not come");
    clock.advance(Duration::from_secs(60));
    cancel.wake();
    assert_eq!(commits.recv().unwrap(), 2);
    go.send(()).unwrap();
    let report = report.recv().unwrap();
    assert_eq!((report.tally.committed, report.tally.commits), (2, 1));
}

#[test]
fn events_of_a_sleeping_script_are_committed_when_their_time_comes() {
    let clock = VirtualClock::default();
    let (told, commits) = channel();
    let own = clock.clone();
    let start = clock.now().mono;
    let script = Parts::new(move |cx| {
        cx.emit().checkpoint("one", None)?;
        cx.sleep(Duration::from_secs(100))?;
        assert_eq!(own.now().mono.since(start), Duration::from_secs(100));
        Ok(())
    });
    let ingestion =
        Ingestion::Streaming { events_max: 100, bytes_max: 1 << 20, interval: Some(Duration::from_secs(60)) };
    let plan = Plan::new(run_id(), Value::Null, Arc::new(clock)).ingestion(ingestion);
    let kept = Kept { told: Some(told), ..Kept::default() };
    let report = execute(plan, &mut Rust::inline(script), Box::new(kept), |_| Ok(()));
    assert_eq!((report.verdict.unwrap().outcome, commits.try_iter().collect::<Vec<_>>()), (SUCCESS, vec![1]));
}

#[test]
fn events_of_many_threads_are_each_kept_once_and_in_the_order_of_their_thread() {
    let script = Parts::new(|cx| {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for number in 0..50_u64 {
                        let mut data = MapBuf::new();
                        data.put("number", number);
                        cx.emit().item(&thread.to_string(), data.view()).unwrap();
                    }
                });
            }
        });
        Ok(())
    });
    let ran = run(plan(Value::Null), script);
    let mut next = [0_u64; 4];
    for event in ran.kept.events.lock().unwrap().iter() {
        let payload = Map::decode(&event.payload).unwrap();
        let (Some(Pack::Str(thread)), Some(Pack::Map(data))) = (payload.get("item_type"), payload.get("data")) else {
            panic!("expected an item");
        };
        let at = thread.parse::<usize>().unwrap();
        assert_eq!(data.get("number"), Some(Pack::Uint(next[at])));
        next[at] += 1;
    }
    assert_eq!((next, ran.report.emitted), ([50; 4], 200));
}
