//! Scripts that are commands.
#![expect(clippy::disallowed_methods, reason = "commands are processes of the system, and their frames a file")]

use std::any::Any;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_disk::MemoryDisk;
use kauri_runtime::run::script::{Cancel, Deadlines, Groups, Plan, Process, Protocol, Report, RunInfo, execute};
use kauri_runtime::run::{
    Appended, Artifacts, Class, EventDraft, EventSink, Files, MemorySink, Outcome, Runs, Scripted, SinkError,
    Submission,
};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Clock as _, Policy};
use kauri_wire::pack::{Map, MapBuf, Value as Pack};
use kauri_wire::run::{
    ArtifactChunk, Envelope, Event, EventType, FileWrite, FileWriteAck, RunFrame, RunResult, RunStatus, StepAnswer,
    StepRequest, StepStatus, StepWish,
};
use kauri_wire::{RunId, Timestamp};
use serde_json::{Value, json};

use crate::runs::{CREW, setup_with};
use crate::setup::Setup;

const DONE: Outcome = Outcome::Success { skipped: false };

pub(crate) fn id() -> RunId {
    RunId::from_parts(Timestamp(7), [7; 10])
}

pub(crate) fn shell(script: &str) -> Process {
    Process::new(["sh", "-c", script])
}

fn plan(job: Value) -> Plan {
    Plan::new(id(), job, Arc::new(VirtualClock::default()))
}

fn run(process: &Process, plan: Plan) -> (Report, Vec<(String, Value)>) {
    let sink = MemorySink::default();
    let report = execute(plan, &mut process.clone(), Box::new(sink.clone()), |_| Ok(()));
    (report, sink.events().iter().map(told).collect())
}

fn told(draft: &EventDraft) -> (String, Value) {
    match Event::decode(draft.kind, Map::decode(&draft.payload).unwrap()).unwrap() {
        Event::Log { level, message, .. } => ("log".to_owned(), json!([level.as_str(), message])),
        Event::Item { item_type, data } => ("item".to_owned(), json!([item_type, data.iter().count()])),
        other => (other.event_type().as_str().to_owned(), Value::Null),
    }
}

fn outcome(report: &Report) -> Outcome {
    report.verdict.as_ref().unwrap().outcome
}

fn error(report: &Report) -> String {
    report.verdict.as_ref().unwrap().error.as_ref().unwrap().message.clone()
}

#[test]
fn lines_become_events_and_objects_items() {
    let script =
        "read job; echo plain; echo \"$job\"; echo '{\"type\":\"page\"}'; echo '{broken'; printf end; echo oops >&2";
    let (report, events) = run(&shell(script), plan(json!({"name": "Ann"})));
    assert_eq!(outcome(&report), DONE);
    let (errors, said): (Vec<_>, Vec<_>) = events.into_iter().partition(|(_, what)| what[0] == "warn");
    assert_eq!(errors, [("log".to_owned(), json!(["warn", "oops"]))]);
    let expected = [
        ("log", json!(["info", "plain"])),
        ("item", json!(["item", 1])),
        ("item", json!(["page", 1])),
        ("log", json!(["info", "{broken"])),
        ("log", json!(["info", "end"])),
    ];
    assert_eq!(said, expected.map(|(kind, what)| (kind.to_owned(), what)));
}

#[test]
fn commands_know_who_they_are_and_where() {
    let script = "echo $KAURI_RUN_ID $KAURI_JOB_ID $KAURI_ATTEMPT $COLOUR; pwd";
    let process = shell(script).env("COLOUR", "green").directory("/");
    let info = RunInfo { run_id: id(), job_id: Some("j".parse().unwrap()), parent_run_id: None, attempt: 4 };
    let (_, events) = run(&process, plan(Value::Null).run(info));
    let lines: Vec<Value> = events.iter().map(|(_, what)| what[1].clone()).collect();
    assert_eq!(lines, [json!(format!("{} j 4 green", id())), json!("/")]);
}

#[test]
fn an_exit_code_is_a_script_error_with_the_last_lines_of_standard_error() {
    let (report, _) = run(&shell("seq 1 50 >&2; exit 3"), plan(Value::Null));
    assert_eq!(outcome(&report), Outcome::ScriptError);
    let message = error(&report);
    assert!(message.starts_with("`sh` ended with exit code 3:\n31\n") && message.ends_with("\n50"), "{message}");
    let (report, _) = run(&shell("kill -9 $$"), plan(Value::Null));
    assert_eq!((outcome(&report), error(&report)), (Outcome::ScriptError, "`sh` was ended by signal 9".to_owned()));
}

#[test]
fn a_command_that_cannot_be_started_says_what_to_look_at() {
    let (report, _) = run(&Process::new(["./no-such-command"]).directory("/"), plan(Value::Null));
    assert_eq!(outcome(&report), Outcome::ScriptError);
    assert!(error(&report).contains("cannot start `./no-such-command` in /"), "{}", error(&report));
    assert_eq!(outcome(&run(&Process::new([] as [&str; 0]), plan(Value::Null)).0), Outcome::ScriptError);
}

#[test]
fn more_than_the_pipes_hold_comes_through_whole() {
    let (report, events) =
        run(&shell("seq 1 20000; seq 1 3000 >&2; cat > /dev/null"), plan(json!("x".repeat(1 << 20))));
    assert_eq!(outcome(&report), DONE);
    let said = events.iter().filter(|(_, what)| what[0] == "info").map(|(_, what)| what[1].clone());
    assert!(said.eq((1..=20_000).map(|number| json!(number.to_string()))));
    assert_eq!(events.len(), 23_000);
}

/// A sink that does something when it hears a line.
struct Acting<F>(F, MemorySink);

impl<F: FnMut(&str) + Send> EventSink for Acting<F> {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        for event in events {
            (self.0)(told(event).1[1].as_str().unwrap_or_default());
        }
        self.1.append(events)
    }
}

/// Whether a process is gone, or only waits to be reaped by whoever has it now.
pub(crate) fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.rsplit(')').next().unwrap().trim_start().starts_with('Z')
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Runs a command that says two pids and never ends, and does something once it has.
fn stop_it(
    trap: &str,
    deadlines: Deadlines,
    act: impl Fn(&VirtualClock, &Cancel) + Send + 'static,
) -> (Outcome, Vec<String>) {
    let clock = Arc::new(VirtualClock::default());
    let (cancel, pids) = (Cancel::default(), Arc::new(Mutex::new(Vec::new())));
    let plan = Plan::new(id(), Value::Null, Arc::clone(&clock) as _).cancel(cancel.clone()).deadlines(deadlines);
    let heard = Arc::clone(&pids);
    let sink = move |line: &str| {
        heard.lock().unwrap().push(line.to_owned());
        if heard.lock().unwrap().len() == 2 {
            act(&clock, &cancel);
        }
    };
    let sink = Acting(sink, MemorySink::default());
    let script = format!("{trap} sleep 1000 & echo $$; echo $!; while true; do wait; done");
    let report = execute(plan, &mut shell(&script), Box::new(sink), |_| Ok(()));
    let pids = pids.lock().unwrap().clone();
    (outcome(&report), pids)
}

#[test]
fn a_cancelled_command_ends_with_its_whole_group() {
    let (outcome, pids) = stop_it("", Deadlines::default(), |_, cancel| cancel.cancel());
    assert_eq!(outcome, Outcome::Cancelled);
    pids.iter().for_each(|pid| wait_until("gone", || is_gone(pid)));
}

#[test]
fn a_command_whose_time_is_over_is_killed_if_it_does_not_listen() {
    // No grace: SIGKILL comes with the next look, which the deaf command does not hinder.
    let deadlines = Deadlines { grace: Duration::ZERO, ..Deadlines::default() };
    let (outcome, pids) = stop_it("trap '' TERM;", deadlines, |clock, cancel| {
        clock.advance(Duration::from_hours(1));
        cancel.wake();
    });
    assert_eq!(outcome, Outcome::TimedOut);
    pids.iter().for_each(|pid| wait_until("gone", || is_gone(pid)));
}

#[test]
fn what_a_command_leaves_in_its_group_goes_with_it() {
    let (report, events) = run(&shell("sleep 1000 > /dev/null 2>&1 & echo $!"), plan(Value::Null));
    assert_eq!(outcome(&report), DONE);
    let pid = events[0].1[1].as_str().unwrap().to_owned();
    wait_until("gone", || is_gone(&pid));
}

/// Groups that somebody has stopped, or stops when one begins.
struct Switch {
    thrown: Mutex<bool>,
    refuses: bool,
    seen: Mutex<Vec<u32>>,
}

impl Groups for Switch {
    fn register(&self, group: u32) -> Result<Box<dyn Any + Send>, String> {
        self.seen.lock().unwrap().push(group);
        *self.thrown.lock().unwrap() |= self.refuses;
        if self.refuses { Err("stopped".to_owned()) } else { Ok(Box::new(())) }
    }

    fn stopped(&self) -> Option<String> {
        self.thrown.lock().unwrap().then(|| "stopped".to_owned())
    }
}

#[test]
fn nothing_begins_once_everything_is_stopped() {
    for (thrown, refuses, groups) in [(true, false, 0), (false, true, 1)] {
        let switch = Arc::new(Switch { thrown: Mutex::new(thrown), refuses, seen: Mutex::default() });
        let (report, _) = run(&shell("sleep 1000").groups(Arc::clone(&switch) as _), plan(Value::Null));
        assert_eq!((outcome(&report), error(&report)), (Outcome::ExecutorCrash, "stopped".to_owned()));
        let seen = switch.seen.lock().unwrap().clone();
        assert_eq!(seen.len(), groups);
        seen.iter().for_each(|pid| wait_until("gone", || is_gone(&pid.to_string())));
    }
}

/// A file of these frames, to be said by `cat`.
pub(crate) fn frames(name: &str, frames: &[RunFrame<'_>]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("frames-{name}-{}", std::process::id()));
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.append_to(&mut bytes).unwrap());
    std::fs::write(&path, bytes).unwrap();
    path
}

fn framed(name: &str, said: &[RunFrame<'_>], then: &str) -> (Report, Vec<(String, Value)>) {
    let path = frames(name, said);
    let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap());
    let process = shell(&format!("cat {}; {then}", path.display())).protocol(Protocol::Frames);
    let found = run(&process, plan(json!({"n": 1})).files(files));
    std::fs::remove_file(path).unwrap();
    found
}

pub(crate) fn event<'a>(run_id: &'a str, seq: u64, event_type: EventType, payload: Map<'a>) -> RunFrame<'a> {
    event_of("0.1.0", run_id, seq, event_type, payload)
}

fn event_of<'a>(
    contract_version: &'a str,
    run_id: &'a str,
    seq: u64,
    event_type: EventType,
    payload: Map<'a>,
) -> RunFrame<'a> {
    RunFrame::Event(Envelope {
        contract_version,
        event_id: "e",
        run_id,
        seq,
        event_type,
        ts: "2026-11-15T10:00:00.000Z",
        payload,
        attempt: 1,
        job_id: None,
        parent_run_id: None,
    })
}

#[test]
fn frames_are_held_against_the_contract_and_said() {
    let run_id = id().to_string();
    let checkpoint = Event::Checkpoint { checkpoint_id: "half", note: None }.payload();
    let first = event(&run_id, 1, EventType::Checkpoint, checkpoint.view());
    let done = event(&run_id, 2, EventType::RunComplete, Map::EMPTY);
    let file =
        RunFrame::FileWrite(FileWrite { write_id: 1, filename: "a.txt", content_type: "text/plain", data: b"a" });
    // The answer to the file comes after the line with the job.
    let (report, events) = framed("well", &[first, file, done], "read job; head -c 4 > /dev/null");
    assert_eq!((outcome(&report), events), (DONE, vec![("checkpoint".to_owned(), Value::Null)]));

    let mut summary = MapBuf::new();
    summary.put("skipped", true).put("reason", "no news");
    let nothing = Event::RunComplete { summary: Some(summary.view()) }.payload();
    let (report, _) = framed("skipped", &[event(&run_id, 1, EventType::RunComplete, nothing.view())], "exit 0");
    assert_eq!(outcome(&report), Outcome::Success { skipped: true });

    let gap = event(&run_id, 3, EventType::RunComplete, Map::EMPTY);
    let (report, _) = framed("gap", &[first, gap], "sleep 1000");
    assert_eq!(outcome(&report), Outcome::ExecutorCrash);
    assert!(error(&report).contains("expected event 2, found event 3"), "{}", error(&report));

    let (report, _) = framed("silent", &[first], "exit 0");
    assert_eq!(outcome(&report), Outcome::ExecutorCrash);
    let (status, message) = (RunStatus::Error, Some("the shop is closed"));
    let failed = RunResult { status, message, error_type: Some("http_503"), stack: None, proxy_used: None };
    let (report, _) = framed("failed", &[first, RunFrame::RunResult(failed)], "exit 1");
    assert_eq!((outcome(&report), error(&report)), (Outcome::ScriptError, "the shop is closed".to_owned()));
}

#[test]
fn event_is_kept_as_it_came_with_its_moment_and_keys_that_we_do_not_know() {
    let run_id = id().to_string();
    let (mut checkpoint, mut artifact) = (MapBuf::new(), MapBuf::new());
    checkpoint.put("checkpoint_id", "half").put("cursor", "page=7");
    artifact.put("artifact_id", "a").put("name", "a.txt").put("content_type", "text/plain").put("size_bytes", 1_u64);
    artifact.put("sha256", "a lie").put("width", 640_u64);
    let said = |ts: &'static str, frame| match frame {
        RunFrame::Event(envelope) => RunFrame::Event(Envelope { ts, ..envelope }),
        other => other,
    };
    let path = frames(
        "as-it-came",
        &[
            said("1970-01-01T01:00:00.0079+01:00", event(&run_id, 1, EventType::Checkpoint, checkpoint.view())),
            RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "a", seq: 1, is_last: true, data: b"x" }),
            said("yesterday", event(&run_id, 2, EventType::Artifact, artifact.view())),
            event(&run_id, 3, EventType::RunComplete, Map::EMPTY),
        ],
    );
    let (sink, clock) = (MemorySink::default(), Arc::new(VirtualClock::default()));
    let (heard, files) = (clock.now().wall.0, Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap()));
    let mut process = shell(&format!("cat {}", path.display())).protocol(Protocol::Frames);
    let plan = Plan::new(id(), Value::Null, clock).files(files);
    let report = execute(plan, &mut process, Box::new(sink.clone()), |_| Ok(()));
    std::fs::remove_file(path).unwrap();
    assert_eq!(outcome(&report), DONE);
    let (events, word) = (sink.events(), |event: &EventDraft, key: &str| {
        let payload = Map::decode(&event.payload).unwrap();
        assert_eq!(payload.iter().filter(|(found, _)| *found == Pack::Str(key)).count(), 1);
        format!("{:?}", payload.get(key).unwrap())
    });
    assert_eq!((events[0].ts, word(&events[0], "cursor")), (7, "Str(\"page=7\")".to_owned()));
    // What is no moment is the moment at which it was heard.
    assert_eq!((events[1].ts, word(&events[1], "width")), (heard, "Uint(640)".to_owned()));
    assert_ne!(word(&events[1], "sha256"), "Str(\"a lie\")");
}

#[test]
fn frames_of_another_contract_are_a_version_mismatch_unless_the_end_was_said() {
    let run_id = id().to_string();
    let foreign = |seq| event_of("7.0.0", &run_id, seq, EventType::RunComplete, Map::EMPTY);
    let checkpoint = Event::Checkpoint { checkpoint_id: "half", note: None }.payload();
    let first = event(&run_id, 1, EventType::Checkpoint, checkpoint.view());
    // It goes on for ever, or has ended before anybody looks: it is the same.
    for (name, said, then) in [("foreign", &[foreign(1)][..], "sleep 1000"), ("later", &[first, foreign(2)], "exit 0")]
    {
        let (report, events) = framed(name, said, then);
        assert_eq!((outcome(&report), events.len()), (Outcome::VersionMismatch, said.len() - 1), "{name}");
        assert!(error(&report).contains("`sh` follows another contract"), "{}", error(&report));
        assert!(error(&report).contains("found \"7.0.0\""), "{}", error(&report));
    }
    let done = event(&run_id, 1, EventType::RunComplete, Map::EMPTY);
    let (report, _) = framed("too-late", &[done, foreign(2)], "sleep 1000");
    assert_eq!((outcome(&report), report.swallowed.len()), (DONE, 1));
}

/// Drives a job whose command says these frames of its run; the frames of a retry are those of the first run.
fn drive(name: &str, said: impl Fn(&str) -> Vec<u8>, then: &str) -> (Setup, Runs, RunId) {
    // The class retries what classes retry by default.
    let (setup, runs) = setup_with(&Class::new(CREW));
    let id = runs.submit(&Submission::new("work", "1")).unwrap().run;
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("driven-{name}-{}", std::process::id()));
    std::fs::write(&path, said(&id.to_string())).unwrap();
    let process = shell(&format!("cat {}; {then}", path.display())).protocol(Protocol::Frames);
    let scripted = Scripted::new(move |_| Box::new(process.clone()));
    setup.runtime.run_worker(CREW, Policy::default(), scripted).drain().unwrap();
    std::fs::remove_file(path).unwrap();
    (setup, runs, id)
}

fn bytes_of(frame: &RunFrame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.append_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn run_of_a_command_that_follows_another_contract_is_sealed_so_and_not_retried() {
    let said = |run_id: &str| bytes_of(&event_of("7.0.0", run_id, 1, EventType::RunComplete, Map::EMPTY));
    let (setup, runs, id) = drive("foreign", said, "sleep 1000");
    assert_eq!(runs.run(id).unwrap().outcome(), Some(Outcome::VersionMismatch));
    assert!(runs.lineage(id).unwrap().descendants.is_empty(), "it would find the same");
    assert_eq!(setup.runtime.metrics().runs_version_mismatch, 1);
}

#[test]
fn run_of_a_command_that_says_skipped_is_sealed_and_counted_so() {
    let said = |run_id: &str| {
        let mut summary = MapBuf::new();
        summary.put("skipped", true);
        let payload = Event::RunComplete { summary: Some(summary.view()) }.payload();
        bytes_of(&event(run_id, 1, EventType::RunComplete, payload.view()))
    };
    let (setup, runs, id) = drive("skipped", said, "exit 0");
    assert_eq!(runs.run(id).unwrap().outcome(), Some(Outcome::Success { skipped: true }));
    let counts = setup.runtime.metrics();
    assert_eq!((counts.runs_skipped, counts.runs_success), (1, 0));
}

#[test]
fn what_a_command_leaves_and_says_too_late_is_in_the_report() {
    let run_id = id().to_string();
    let chunk = RunFrame::ArtifactChunk(ArtifactChunk { artifact_id: "a", seq: 1, is_last: true, data: b"pears" });
    let done = event(&run_id, 1, EventType::RunComplete, Map::EMPTY);
    let checkpoint = Event::Checkpoint { checkpoint_id: "half", note: None }.payload();
    let late = event(&run_id, 2, EventType::Checkpoint, checkpoint.view());
    let (report, _) = framed("left", &[chunk, done, late, late], "exit 3");
    assert_eq!(outcome(&report), DONE, "what was said counts");
    assert_eq!((report.orphans, report.refused, report.late, report.is_disputed), (1, 2, 2, true));
    let (report, _) = framed("tidy", &[done], "exit 0");
    assert_eq!((report.orphans, report.refused, report.late, report.is_disputed), (0, 0, 0, false));
}

#[test]
fn late_events_of_a_command_are_counted_with_its_run() {
    let said = |run_id: &str| {
        let done = |seq| bytes_of(&event(run_id, seq, EventType::RunComplete, Map::EMPTY));
        [done(1), done(2), done(2)].concat()
    };
    let (setup, runs, id) = drive("late", said, "exit 0");
    assert_eq!((runs.run(id).unwrap().outcome(), runs.refused(id).unwrap()), (Some(DONE), 2));
    assert_eq!(runs.report_of(id).unwrap().unwrap().refused, 2);
    assert_eq!(setup.runtime.metrics().refused_events, 2);
}

/// Files that a command puts one after the other, and the bytes of their answers.
fn puts(count: u64, name: impl Fn(u64) -> String, why: Option<&str>) -> (Vec<u8>, usize) {
    let (mut bytes, mut answers) = (Vec::new(), Vec::new());
    for write_id in 1..=count {
        let (filename, content_type) = (name(write_id), "text/plain");
        let file = FileWrite { write_id, filename: &filename, content_type, data: b"pears" };
        RunFrame::FileWrite(file).append_to(&mut bytes).unwrap();
        let ack = FileWriteAck { write_id, ok: why.is_none(), error: why };
        RunFrame::FileWriteAck(ack).append_to(&mut answers).unwrap();
    }
    (bytes, answers.len())
}

/// Runs a command that puts files as `how` says and ends well if it is given so many bytes of answers.
fn put_all(name: &str, (puts, answers): (Vec<u8>, usize), how: &str) -> Outcome {
    let path =
        |what: &str| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{what}-{name}-{}", std::process::id()));
    let (run_id, said, done) = (id().to_string(), path("puts"), path("done"));
    std::fs::write(&said, puts).unwrap();
    std::fs::write(&done, bytes_of(&event(&run_id, 1, EventType::RunComplete, Map::EMPTY))).unwrap();
    let script = format!(
        "read job; puts() {{ cat {}; }}; answers() {{ test $(timeout 60 head -c {answers} | wc -c) = {answers}; }}; {how}; cat {}",
        said.display(),
        done.display()
    );
    let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap());
    let (report, _) = run(&shell(&script).protocol(Protocol::Frames), plan(Value::Null).files(files));
    [said, done].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    outcome(&report)
}

fn too_long() -> String {
    "x".repeat(214)
}

#[test]
fn file_without_a_name_or_a_type_is_refused_alone() {
    let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap());
    let run_id = id().to_string();
    for (name, filename, content_type) in [("no-name", "", "text/plain"), ("no-type", "a.txt", "")] {
        let why = files.put(id(), filename, content_type, b"x").unwrap_err().to_string();
        let refused = RunFrame::FileWriteAck(FileWriteAck { write_id: 1, ok: false, error: Some(&why) });
        let expected = frames(&format!("{name}-answer"), &[refused]);
        let length = bytes_of(&refused).len();
        let then = format!("read job; timeout 30 head -c {length} | cmp - {}", expected.display());
        let file = RunFrame::FileWrite(FileWrite { write_id: 1, filename, content_type, data: b"x" });
        let done = event(&run_id, 1, EventType::RunComplete, Map::EMPTY);
        let (report, _) = framed(name, &[file, done], &then);
        std::fs::remove_file(expected).unwrap();
        assert_eq!((outcome(&report), report.is_disputed), (DONE, false), "{name}");
    }
}

/// Why a file of such a name is not kept.
fn no_file() -> String {
    let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap());
    files.put(id(), &too_long(), "text/plain", b"").unwrap_err().to_string()
}

#[test]
fn command_that_puts_thousands_of_files_before_it_reads_gets_every_answer() {
    let many = puts(5_000, |write_id| format!("{write_id}.txt"), None);
    assert!(many.1 > 128 << 10, "far more than a pipe holds");
    assert_eq!(put_all("many", many, "puts; answers || exit 1"), DONE);
    // What went wrong is told for each, too.
    let bad = puts(2_000, |_| too_long(), Some(&no_file()));
    assert_eq!(put_all("bad", bad, "puts; answers || exit 1"), DONE);
}

#[test]
fn command_whose_answers_take_too_much_room_waits_until_it_has_read_some() {
    let bad = puts(40_000, |_| too_long(), Some(&no_file()));
    assert!(bad.1 > 8 << 20, "more than twice what waits at most: {}", bad.1);
    assert_eq!(put_all("slow", bad, "puts & (sleep 1; answers) || exit 1; wait"), DONE);
}

#[test]
fn command_that_never_reads_its_answers_is_ended_by_its_deadline() {
    let (bytes, _) = puts(40_000, |_| too_long(), Some(&no_file()));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("unread-{}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap());
    let (clock, cancel) = (Arc::new(VirtualClock::default()), Cancel::default());
    let plan = Plan::new(id(), Value::Null, Arc::clone(&clock) as _).cancel(cancel.clone()).files(files);
    let process = shell(&format!("cat {}; echo told >&2; sleep 1000", path.display())).protocol(Protocol::Frames);
    let (ended, has_ended) = std::sync::mpsc::channel::<()>();
    let hand = std::thread::spawn(move || {
        // Its time is over once it waits, and if it did not, too.
        while has_ended.recv_timeout(Duration::from_millis(500)).is_err() {
            clock.advance(Duration::from_hours(1));
            cancel.wake();
        }
    });
    let (report, events) = run(&process, plan);
    ended.send(()).unwrap();
    hand.join().unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!((outcome(&report), events.len()), (Outcome::TimedOut, 0));
}

#[test]
fn what_comes_after_the_end_and_wants_an_answer_is_refused_and_answered() {
    let run_id = id().to_string();
    let why = Some("expected nothing after the end of the run, found another frame");
    let file = FileWrite { write_id: 1, filename: "a.txt", content_type: "text/plain", data: b"a" };
    let no_file = FileWriteAck { write_id: 1, ok: false, error: why };
    let step = StepRequest {
        request_id: 1,
        wish: StepWish::Recall,
        name: "charge",
        data: None,
        due_ms: None,
        text: None,
        params: None,
    };
    let no_step = StepAnswer { request_id: 1, status: StepStatus::Stopped, data: None, text: why };
    for (name, late, answer) in [
        ("too-late-file", RunFrame::FileWrite(file), RunFrame::FileWriteAck(no_file)),
        ("too-late-step", RunFrame::StepRequest(step), RunFrame::StepAnswer(no_step)),
    ] {
        let done = event(&run_id, 1, EventType::RunComplete, Map::EMPTY);
        let expected = frames(&format!("{name}-answer"), &[answer]);
        let length = std::fs::metadata(&expected).unwrap().len();
        // It ends when it has heard that answer; with another, or with none for so long, it breaks its word.
        let then = format!("read job; timeout 30 head -c {length} | cmp - {}", expected.display());
        let (report, _) = framed(name, &[done, late], &then);
        std::fs::remove_file(expected).unwrap();
        assert_eq!((outcome(&report), report.refused, report.is_disputed), (DONE, 1, false), "{name}");
    }
}
