//! Commands that do not listen: they end all the same, and nothing of them is left.
#![expect(clippy::disallowed_methods, reason = "commands are processes of the system, and their frames a file")]

use std::any::Any;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_disk::MemoryDisk;
use kauri_runtime::run::script::{Cancel, Deadlines, Groups, Plan, Process, Protocol, Report, execute};
use kauri_runtime::run::{Appended, Artifacts, EventDraft, EventSink, Files, MemorySink, Outcome, SinkError};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Clock, Now};
use kauri_wire::pack::{Map, Value as Pack};
use kauri_wire::run::{ArtifactChunk, Event, EventType, RunFrame, RunResult, RunStatus};
use rustix::process::{Pid, Signal, getpgid, getppid, kill_process, setpgid};
use serde_json::{Value, json};

use crate::processes::{event, frames, id, is_gone, shell, wait_until};

const DONE: Outcome = Outcome::Success { skipped: false };
/// Tells a process of this program which of its tests it is.
const PART: &str = "KAURI_RUNTIME_TEST_PART";

/// A clock that is moved by hand, and whoever is told when it was.
#[derive(Clone, Default)]
struct Hand {
    clock: Arc<VirtualClock>,
    cancel: Cancel,
}

impl Hand {
    fn move_by(&self, span: Duration) {
        self.clock.advance(span);
        self.cancel.wake();
    }

    /// A run whose grace is over with the next look, unless another is said.
    fn plan(&self) -> Plan {
        let deadlines = Deadlines { grace: Duration::ZERO, ..Deadlines::default() };
        Plan::new(id(), Value::Null, Arc::clone(&self.clock) as _).cancel(self.cancel.clone()).deadlines(deadlines)
    }
}

const DEADLINE: fn(&Hand) = |hand| hand.move_by(Duration::from_hours(1));
const CANCELLING: fn(&Hand) = |hand| hand.cancel.cancel();

/// A sink that does something when it hears an event of these words.
struct Acting<F>(F, MemorySink);

impl<F: FnMut(&str) + Send> EventSink for Acting<F> {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        events.iter().for_each(|event| (self.0)(&words(event)));
        self.1.append(events)
    }
}

fn words(event: &EventDraft) -> String {
    match Map::decode(&event.payload).unwrap().get("message") {
        Some(Pack::Str(message)) => message.to_owned(),
        _ => event.kind.as_str().to_owned(),
    }
}

/// Executes, if it comes to an end. It is on another thread, so that a test fails if not.
fn ran(plan: Plan, mut process: Process, sink: impl EventSink + 'static) -> Report {
    let (told, heard) = channel();
    std::thread::spawn(move || {
        let report = execute(plan, &mut process, Box::new(sink), |_| Ok(()));
        assert!(told.send(report).is_ok(), "a test waits for the report");
    });
    heard.recv_timeout(Duration::from_mins(1)).expect("a run that ends")
}

fn outcome(report: &Report) -> Outcome {
    report.verdict.as_ref().unwrap().outcome
}

fn error(report: &Report) -> &str {
    &report.verdict.as_ref().unwrap().error.as_ref().unwrap().message
}

/// A file for a test, by its name.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stubborn-{name}-{}", std::process::id()))
}

#[test]
fn command_that_never_stops_talking_is_ended() {
    for (script, end, outcome_of) in [
        ("yes", DEADLINE, Outcome::TimedOut),
        ("yes >&2", DEADLINE, Outcome::TimedOut),
        ("yes", CANCELLING, Outcome::Cancelled),
        ("trap '' TERM; yes", DEADLINE, Outcome::TimedOut),
    ] {
        let hand = Hand::default();
        let (plan, mut heard) = (hand.plan(), 0);
        let sink = move |_: &str| {
            heard += 1;
            if heard == 10 {
                end(&hand);
            }
        };
        let report = ran(plan, shell(script), Acting(sink, MemorySink::default()));
        assert_eq!(outcome(&report), outcome_of, "{script}");
    }
}

#[test]
fn command_that_is_told_to_stop_can_say_as_much_as_it_likes_before_it_ends() {
    let hand = Hand::default();
    let deadlines = Deadlines { grace: Duration::from_hours(9), ..Deadlines::default() };
    let (plan, mut is_told) = (hand.plan().deadlines(deadlines), false);
    let sink = move |_: &str| {
        if !std::mem::replace(&mut is_told, true) {
            DEADLINE(&hand);
        }
    };
    // Far more than the pipe and what waits to be heard.
    let script = "trap 'seq 1 400000; exit' TERM; yes";
    let report = ran(plan, shell(script), Acting(sink, MemorySink::default()));
    assert_eq!(outcome(&report), Outcome::TimedOut);
}

/// A clock that lets somebody act while it is asked, once, at the second look after it was told to.
struct Holding(Arc<VirtualClock>, Arc<Hold>);

#[derive(Default)]
struct Hold {
    looks_left: AtomicU8,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Clock for Holding {
    fn now(&self) -> Now {
        let left = self.1.looks_left.load(Ordering::SeqCst);
        self.1.looks_left.store(left.saturating_sub(1), Ordering::SeqCst);
        if left == 1
            && let Some(act) = self.1.act.lock().unwrap().take()
        {
            act();
        }
        self.0.now()
    }

    fn sleep(&self, pause: Duration) {
        self.0.sleep(pause);
    }
}

#[test]
fn lines_of_a_command_that_has_ended_are_no_success_if_its_time_is_over_before_they_are_heard() {
    let (hand, hold, flag) = (Hand::default(), Arc::new(Hold::default()), path("go-on"));
    let clock = Holding(Arc::clone(&hand.clock), Arc::clone(&hold));
    let plan = Plan::new(id(), Value::Null, Arc::new(clock)).cancel(hand.cancel.clone());
    let (kept, go) = (MemorySink::default(), flag.clone());
    let sink = move |line: &str| match line.strip_prefix("pid ") {
        // When all of this is heard, it may say the rest, and has ended before anybody looks again.
        Some(pid) => {
            let (pid, go) = (pid.to_owned(), go.clone());
            *hold.act.lock().unwrap() = Some(Box::new(move || {
                std::fs::write(&go, b"").unwrap();
                wait_until("ended", || is_gone(&pid));
            }));
            hold.looks_left.store(2, Ordering::SeqCst);
        }
        None if line == "1" => DEADLINE(&hand),
        None => {}
    };
    let script = format!("echo pid $$; until test -e {}; do sleep 0.01; done; seq 1 100", flag.display());
    let report = ran(plan, shell(&script), Acting(sink, kept.clone()));
    std::fs::remove_file(flag).unwrap();
    assert_eq!((outcome(&report), kept.events().len()), (Outcome::TimedOut, 2));
}

#[test]
fn artifact_that_comes_when_the_time_is_over_is_no_error_of_the_script() {
    let (hand, run_id) = (Hand::default(), id().to_string());
    let checkpoint = Event::Checkpoint { checkpoint_id: "half", note: None }.payload();
    let artifact = Event::Artifact { artifact_id: "a", name: "a.txt", content_type: "text/plain", size_bytes: 1 };
    let (artifact, chunk) = (artifact.payload(), ArtifactChunk { artifact_id: "a", seq: 1, is_last: true, data: b"x" });
    let said = [
        event(&run_id, 1, EventType::Checkpoint, checkpoint.view()),
        RunFrame::ArtifactChunk(chunk),
        event(&run_id, 2, EventType::Artifact, artifact.view()),
    ];
    let path = frames("too-late-artifact", &said);
    let files = Files::new(Artifacts::open(Arc::new(MemoryDisk::new())).unwrap());
    let plan = hand.plan().files(files);
    let process = shell(&format!("cat {}; sleep 1000", path.display())).protocol(Protocol::Frames);
    let sink = move |kind: &str| assert_eq!((kind, DEADLINE(&hand)), ("checkpoint", ()), "nothing else is taken");
    let report = ran(plan, process, Acting(sink, MemorySink::default()));
    std::fs::remove_file(path).unwrap();
    assert_eq!(outcome(&report), Outcome::TimedOut);
}

#[test]
fn command_that_has_said_its_last_and_hangs_is_ended_and_what_it_said_counts() {
    let run_id = id().to_string();
    let failed = Event::RunError { error_type: "closed", message: "the shop is closed", stack: None }.payload();
    let result = |status| RunResult { status, message: None, error_type: None, stack: None, proxy_used: None };
    for (name, last, status, outcome_of) in [
        ("hangs-well", event(&run_id, 1, EventType::RunComplete, Map::EMPTY), RunStatus::Completed, DONE),
        ("hangs-badly", event(&run_id, 1, EventType::RunError, failed.view()), RunStatus::Error, Outcome::ScriptError),
    ] {
        let path = frames(name, &[last, RunFrame::RunResult(result(status))]);
        let script = format!("cat {}; exec >&-; trap '' TERM; sleep 1000", path.display());
        let report = ran(Hand::default().plan(), shell(&script).protocol(Protocol::Frames), MemorySink::default());
        std::fs::remove_file(path).unwrap();
        assert_eq!((outcome(&report), report.is_disputed), (outcome_of, true), "{name}");
    }
}

/// This program, as one of its tests that does nothing otherwise.
fn part(name: &str) -> [String; 5] {
    let this = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let name = format!("stubborn::{name}");
    [this, "--exact".to_owned(), name, "--nocapture".to_owned(), "--test-threads=1".to_owned()]
}

#[test]
fn the_command_that_leaves_its_group() {
    if std::env::var_os(PART).is_some() {
        let parent = getpgid(getppid()).unwrap();
        setpgid(None, Some(parent)).unwrap();
        println!("left");
        std::thread::sleep(Duration::from_mins(5));
    }
}

#[test]
fn command_that_has_left_its_group_is_ended() {
    let hand = Hand::default();
    let process = Process::new(part("the_command_that_leaves_its_group")).env(PART, "left");
    let plan = hand.plan();
    let sink = move |line: &str| {
        if line.contains("left") {
            DEADLINE(&hand);
        }
    };
    let report = ran(plan, process, Acting(sink, MemorySink::default()));
    assert_eq!(outcome(&report), Outcome::TimedOut);
}

/// Whether this process has an end of that pipe.
fn has_pipe(name: &str) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    open.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|found| found.as_os_str() == name)
}

#[test]
fn pipes_that_a_silent_daemon_keeps_are_let_go_of() {
    let (hand, kept) = (Hand::default(), MemorySink::default());
    // Its input is more than a pipe holds, and nobody reads it.
    let job = json!("x".repeat(1 << 20));
    let plan = Plan::new(id(), job, Arc::clone(&hand.clock) as _).cancel(hand.cancel.clone());
    let (ended, has_ended) = channel::<()>();
    let moving = std::thread::spawn(move || {
        while has_ended.recv_timeout(Duration::from_millis(5)).is_err() {
            hand.move_by(Duration::from_millis(50));
        }
    });
    let script = "exec 3<&0; setsid sleep 1000 <&3 & echo $!; for fd in 0 1 2; do readlink /proc/$$/fd/$fd; done";
    let report = ran(plan, shell(script), kept.clone());
    ended.send(()).unwrap();
    moving.join().unwrap();
    let lines: Vec<String> = kept.events().iter().map(words).collect();
    let daemon = Pid::from_raw(lines[0].parse().unwrap()).unwrap();
    lines[1..].iter().for_each(|pipe| wait_until("let go of", || !has_pipe(pipe)));
    let was_there = kill_process(daemon, Signal::KILL);
    assert_eq!((outcome(&report), lines.len(), was_there), (DONE, 4, Ok(())));
    assert!(lines[1..].iter().all(|pipe| pipe.starts_with("pipe:")), "{lines:?}");
}

/// Groups that are remembered.
#[derive(Default)]
struct Seen(Mutex<Vec<u32>>);

impl Groups for Seen {
    fn register(&self, group: u32) -> Result<Box<dyn Any + Send>, String> {
        self.0.lock().unwrap().push(group);
        Ok(Box::new(()))
    }

    fn stopped(&self) -> Option<String> {
        None
    }
}

#[test]
fn the_process_that_gets_no_threads() {
    if std::env::var_os(PART).is_some() {
        for protocol in [Protocol::Lines, Protocol::Frames] {
            let seen = Arc::new(Seen::default());
            let mut process = shell("sleep 1000").protocol(protocol).groups(Arc::clone(&seen) as _);
            let plan = Hand::default().plan();
            let report = execute(plan, &mut process, Box::new(MemorySink::default()), |_| Ok(()));
            assert_eq!(outcome(&report), Outcome::ExecutorCrash);
            assert!(
                error(&report).starts_with("the threads that hear `sh` could not be started"),
                "{}",
                error(&report)
            );
            let group = seen.0.lock().unwrap()[0];
            assert!(is_gone(&group.to_string()));
        }
    }
}

#[test]
fn command_that_nobody_can_hear_is_ended_and_told() {
    let [this, arguments @ ..] = part("the_process_that_gets_no_threads");
    let mut command = std::process::Command::new(this);
    // No system has room for such a stack, so that no thread begins there.
    command.args(arguments).env(PART, "threads").env("RUST_MIN_STACK", (1_u64 << 56).to_string());
    let ended = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
