//! `kauri up`, and the commands that talk to it.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kauri::ledger::{Home, Ledger};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::homes::Scratch;
use crate::{answer, kauri, refusal};

/// How long something that must come is waited for, on a machine that has other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A home with this configuration.
pub(crate) fn home(name: &str, config: &str) -> Scratch {
    let home = Scratch::new(name);
    std::fs::write(home.layout.config(), config).expect("written");
    home
}

/// An instance that is gone when the test is.
pub(crate) struct Up {
    child: Child,
    lines: Receiver<Value>,
    home: String,
}

impl Up {
    pub(crate) fn start(home: &Scratch) -> (Self, Value) {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_kauri")), home)
    }

    /// With a command that only lacks its arguments.
    pub(crate) fn start_by(mut command: Command, home: &Scratch) -> (Self, Value) {
        let mut child = command
            .args(["up", "--json", "--home", home.path()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).expect("JSON");
                if tell.send(value).is_err() {
                    return;
                }
            }
        });
        let up = Self { child, lines, home: home.path().to_owned() };
        let first = up.hear("up");
        (up, first)
    }

    /// The next line, which must be this.
    pub(crate) fn hear(&self, event: &str) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{event} never came: {error}"));
        assert_eq!(line["event"], event, "{line}");
        line
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, signal).expect("it is ours");
    }

    /// Waits for its end: its exit code.
    pub(crate) fn code(mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }

    /// Waits for its end: its exit code, and what it said on standard error.
    pub(crate) fn last_words(mut self) -> (Option<i32>, String) {
        let mut words = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut words).expect("text");
        (self.child.wait().expect("a child").code(), words)
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("a child");
    }

    pub(crate) fn say(&self, args: &[&str]) -> String {
        answer(&[args, &["--home", &self.home]].concat(), b"")
    }

    pub(crate) fn ask(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.say(&[args, &["--json"]].concat())).expect("JSON")
    }

    pub(crate) fn submit(&self, args: &[&str]) -> String {
        self.ask(&[&["submit"], args].concat())["run_id"].as_str().expect("an id").to_owned()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn on(home: &Scratch, args: &[&str]) -> Output {
    kauri(&[args, &["--home", home.path()]].concat(), b"")
}

pub(crate) fn objects(text: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(text).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

pub(crate) fn show(home: &Scratch, run: &str) -> Value {
    objects(&on(home, &["runs", "show", run, "--json"]).stdout).remove(0)
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn wait_for_state(home: &Scratch, run: &str, state: &str) {
    wait_until(state, || show(home, run)["state"] == state);
}

/// Whether a process is gone, or only waits to be reaped by whoever has it now.
fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim().is_empty() || rest.trim_start().starts_with(['Z', 'X']))
}

/// What a run has logged.
pub(crate) fn log(home: &Scratch, run: &str) -> Vec<String> {
    let events = objects(&on(home, &["events", run, "--json"]).stdout);
    let logs = events.iter().filter(|event| event["type"] == "log");
    logs.map(|event| event["payload"]["message"].as_str().expect("text").to_owned()).collect()
}

pub(crate) const HELLO: &str = r#"
[job.hello]
command = ["sh", "-c", "read job; echo got \"$job\"; echo \"$KAURI_ATTEMPT $KAURI_CLASS\"; echo '{\"type\":\"page\",\"n\":1}'"]
"#;

/// Runs until a file is there, the first time; a second attempt ends at once.
pub(crate) const SLOW: &str = r#"
[job.slow]
command = ["sh", "-c", "echo pid $$; if [ $KAURI_ATTEMPT = 1 ]; then for n in $(seq 1200); do [ -e go ] && break; sleep 0.05; done; fi; echo done"]
retry = { attempts = 2, pause = "1ms" }
"#;

#[test]
fn names_that_are_too_long_are_refused_in_words_and_nothing_stands_still() {
    let home = home("up-long", HELLO);
    let long = "k".repeat(5000);
    let tag = format!("tag={long}");
    let check = || {
        for (args, words) in [
            (["hello", "--key", &long], "expected an idempotency key of 1 to 200 bytes without a byte 0, found 5000"),
            (["hello", "--tag", &tag], "expected a tag of 1 to 200 bytes without a byte 0, found 5004"),
            (["hello", "--after", &long], "job id"),
        ] {
            let refused = on(&home, &[&["submit"], &args[..]].concat());
            let said = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{said}");
            assert!(said.contains(words), "{said}");
            assert!(refused.stdout.is_empty());
        }
        let refused = on(&home, &["submit", &long]);
        assert_eq!(refused.status.code(), Some(1), "{}", String::from_utf8_lossy(&refused.stderr));
    };
    // Without an instance, and with one.
    check();
    let (up, _) = Up::start(&home);
    check();
    // A concurrency key may have any length.
    let run = up.submit(&["hello", "--concurrency-key", &long]);
    assert!(up.say(&["runs", "wait", &run]).starts_with("success"));
    assert_eq!(stats(&home)["queues"]["inbox"], 0);
    up.kill();
}

#[test]
fn a_job_is_submitted_followed_and_done() {
    let home = home("up-hello", HELLO);
    let (up, first) = Up::start(&home);
    assert_eq!((&first["classes"], &first["recovered"]["died"]), (&json!(["hello"]), &Value::Null));
    let run = up.submit(&["hello", "--input", r#"{"name":"Ann"}"#, "--tag", "a=b", "--priority", "1"]);
    let tail = objects(up.say(&["runs", "tail", &run, "--json"]).as_bytes());
    let kinds: Vec<&str> = tail.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["log", "log", "item", "run_complete"]);
    assert_eq!(tail[0]["payload"]["message"], r#"got {"name":"Ann"}"#);
    assert_eq!(tail[1]["payload"]["message"], "1 hello");
    assert_eq!(tail[2]["payload"]["item_type"], "page");
    assert!(up.say(&["runs", "tail", &run]).contains("run_complete"));
    assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 1"));
    let report = up.ask(&["runs", "report", &run]);
    assert_eq!((&report["events"]["log"], &report["error"]), (&json!(2), &Value::Null));
    assert!(up.say(&["runs", "report", &run]).contains("state    success, attempt 1 of 1"));
    // How it went is written after the end.
    wait_until("it is told how it went", || !up.ask(&["runs", "report", &run])["script"].is_null());
    let script = up.ask(&["runs", "report", &run])["script"].take();
    assert_eq!((&script["drives"], &script["emitted"], &script["swallowed"]), (&json!(1), &json!(3), &json!([])));
    assert!(script["phases"].as_array().unwrap().iter().any(|phase| phase["phase"] == "run"), "{script}");
    assert!(up.say(&["runs", "report", &run]).contains("phases   load "));
    assert!(up.say(&["lineage", &run]).starts_with("* "));
    let again = up.ask(&["submit", "hello", "--key", "k"]);
    assert_eq!(up.ask(&["submit", "hello", "--key", "k"])["run_id"], again["run_id"]);
    let waited = answer(&["submit", "hello", "--wait", "--home", home.path()], b"");
    assert!(waited.contains("success in attempt 1"), "{waited}");
    up.signal(Signal::TERM);
    assert_eq!(up.hear("draining")["running"], 0);
    assert_eq!(up.hear("ended")["failed"], 0);
    assert_eq!(up.code(), Some(0));
    assert!(!home.layout.socket().exists());
    let doctor = on(&home, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(0), "{}", String::from_utf8_lossy(&doctor.stdout));
}

#[test]
fn a_killed_instance_is_taken_over_and_its_work_finishes() {
    let home = home("up-killed", SLOW);
    let (up, first) = Up::start(&home);
    let pid = first["pid"].clone();
    let run = up.submit(&["slow"]);
    wait_until("it says who it is", || !log(&home, &run).is_empty());
    let child = log(&home, &run)[0].strip_prefix("pid ").expect("a pid").to_owned();
    assert!(!is_gone(&child));
    up.kill();
    assert!(!is_gone(&child), "nobody was there to end it");
    let (up, second) = Up::start(&home);
    let recovered = &second["recovered"];
    assert_eq!(recovered["died"]["pid"], pid);
    assert_eq!(recovered["ended"], json!([{ "run_id": run, "outcome": "executor_crash" }]));
    // The shell, and the sleep that it may have been at.
    assert!(recovered["processes"].as_u64().is_some_and(|count| count >= 1), "{recovered}");
    assert!(is_gone(&child), "its work would be done twice");
    assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 2"));
    let report = up.ask(&["runs", "report", &run]);
    let states: Vec<&str> =
        report["attempts"].as_array().expect("runs").iter().filter_map(|run| run["state"].as_str()).collect();
    assert_eq!(states, ["executor_crash", "success"]);
    // Whoever waits sees the commit; it is counted after it.
    wait_until("it is counted", || stats(&home)["counters"]["runs_success"] == 1);
    assert_eq!(stats(&home)["in_flight"], json!([]));
    up.signal(Signal::INT);
    assert_eq!(up.code(), Some(0));
    let doctor = on(&home, &["doctor"]);
    assert_eq!(doctor.status.code(), Some(0), "{}", String::from_utf8_lossy(&doctor.stdout));
    // For any SQLite tool, too.
    let (ledger, _) = Ledger::open(Home::lock(home.layout.home()).expect("free")).expect("whole");
    let mut tabled: Vec<_> = ledger.database().list_runs(10).expect("read").into_iter().map(|run| run.status).collect();
    tabled.sort_unstable();
    assert_eq!(tabled, ["executor_crash", "success"]);
    drop(ledger);
    // The account is of the start before: another finds nothing.
    let (up, third) = Up::start(&home);
    assert_eq!((&third["recovered"]["died"], &third["recovered"]["ended"]), (&Value::Null, &json!([])));
    up.kill();
}

pub(crate) fn stats(home: &Scratch) -> Value {
    let mut client = kauri::control::Client::connect(&home.layout).expect("ours").expect("running");
    client.ask("stats", &json!({}), Duration::ZERO).expect("answered")
}

#[test]
fn a_second_instance_is_refused_by_the_name_of_the_first() {
    let home = home("up-twice", HELLO);
    let (up, first) = Up::start(&home);
    let line = refusal(&["up", "--home", home.path()], b"");
    assert!(
        line.contains(&format!("process {}", first["pid"]))
            && line.contains(" up --json")
            && line.contains(" since 20"),
        "{line}"
    );
    // The first is none the worse for it.
    assert!(up.say(&["submit", "hello", "--wait"]).contains("success"));
    up.kill();
    // Nobody holds what a dead one left.
    assert!(home.layout.socket().exists());
    let (up, _) = Up::start(&home);
    up.kill();
}

#[test]
fn cancelling_and_running_out_of_time_end_the_process_group() {
    let config = r#"
[job.cancelled]
command = ["sh", "-c", "sleep 1000 & echo pid $!; wait"]
[job.late]
command = ["sh", "-c", "sleep 1000 & echo pid $!; wait"]
timeout = "1s"
retry = { attempts = 1 }
"#;
    let home = home("up-cancel", config);
    let (up, _) = Up::start(&home);
    for (job, outcome) in [("cancelled", "cancelled"), ("late", "timed_out")] {
        let run = up.submit(&[job]);
        wait_until("it says its child", || !log(&home, &run).is_empty());
        let child = log(&home, &run)[0].strip_prefix("pid ").expect("a pid").to_owned();
        if job == "cancelled" {
            assert_eq!(up.ask(&["runs", "cancel", &run])["asked"], 1);
        }
        let output = on(&home, &["runs", "wait", &run, "--json"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(objects(&output.stdout)[0]["outcome"], outcome);
        wait_until("its child is gone", || is_gone(&child));
    }
    assert_eq!(up.say(&["runs", "cancel", &on_first(&home)]), "it had ended already: nothing to cancel\n");
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
}

fn on_first(home: &Scratch) -> String {
    objects(&on(home, &["runs", "list", "--json"]).stdout)[0]["run_id"].as_str().expect("an id").to_owned()
}

#[test]
fn a_signal_lets_what_is_under_way_end_and_begins_nothing() {
    let home = home("up-drain", SLOW);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["slow"]);
    wait_until("it has begun", || !log(&home, &run).is_empty());
    let next = up.submit(&["slow"]);
    up.signal(Signal::TERM);
    assert_eq!(up.hear("draining")["running"], 1);
    assert_eq!(show(&home, &run)["state"], "running");
    std::fs::write(home.file("go"), b"").expect("written");
    assert_eq!((&up.hear("ended")["ended"], up.code()), (&json!(1), Some(0)));
    assert_eq!((&show(&home, &run)["state"], &show(&home, &next)["state"]), (&json!("success"), &json!("pending")));
}

#[test]
fn a_second_signal_kills_what_is_under_way() {
    let home = home("up-hurry", SLOW);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["slow"]);
    wait_until("it has begun", || !log(&home, &run).is_empty());
    let child = log(&home, &run)[0].strip_prefix("pid ").expect("a pid").to_owned();
    up.signal(Signal::INT);
    up.hear("draining");
    up.signal(Signal::INT);
    assert_eq!((&up.hear("ended")["killed"], up.code()), (&json!(1), Some(1)));
    wait_until("it is gone", || is_gone(&child));
    assert_eq!(show(&home, &run)["state"], "executor_crash");
    let (up, _) = Up::start(&home);
    assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 2"));
    up.kill();
}

#[test]
fn the_kill_switch_stops_everything_until_it_is_taken_back() {
    let home = home("up-switch", SLOW);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["slow"]);
    wait_until("it has begun", || !log(&home, &run).is_empty());
    let child = log(&home, &run)[0].strip_prefix("pid ").expect("a pid").to_owned();
    assert!(up.say(&["stop", "--reason", "the mail server repeats everything"]).starts_with("stopped: "));
    assert_eq!(up.hear("stopped")["reason"], "the mail server repeats everything");
    wait_until("it is gone", || is_gone(&child));
    wait_for_state(&home, &run, "executor_crash");
    assert_eq!(stats(&home)["instance"]["standing"], "stopped");
    let other = up.submit(&["slow"]);
    std::fs::write(home.file("go"), b"").expect("written");
    up.say(&["resume"]);
    up.hear("resumed");
    assert!(up.say(&["runs", "wait", &other]).starts_with("success"));
    assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 2"));
    let audit = answer(&["audit", "show", "--home", home.path()], b"");
    assert!(audit.contains("KILL_SWITCH_OBEYED") && audit.contains("INSTANCE_STARTED"), "{audit}");
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
}

#[test]
fn failures_are_retried_reported_and_retried_by_hand() {
    let config = r#"
[job.picky]
command = ["sh", "-c", "grep -q please || { echo 'say please' >&2; exit 4; }"]
retry = { attempts = 2, pause = "1ms" }
"#;
    let home = home("up-picky", config);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["picky", "--input", r#""now""#]);
    let output = on(&home, &["runs", "wait", &run, "--json"]);
    let last = objects(&output.stdout).remove(0);
    assert_eq!(
        (output.status.code(), &last["outcome"], &last["attempt"]),
        (Some(1), &json!("script_error"), &json!(2))
    );
    let last = last["run_id"].as_str().expect("an id").to_owned();
    let text = up.say(&["runs", "report", &last]);
    assert!(text.contains("exit code 4") && text.contains("say please") && text.contains("attempt 2 of 2"), "{text}");
    wait_until("the last failure is told", || stats(&home)["failures"][0]["run_id"] == last);
    let failures = &stats(&home)["failures"];
    assert_eq!((&failures[0]["run_id"], failures.as_array().map(Vec::len)), (&json!(last), Some(2)));
    assert!(failures[0]["message"].as_str().is_some_and(|words| words.contains("say please")));
    let refused = on(&home, &["runs", "retry", &run, "--json"]);
    assert_eq!((refused.status.code(), &objects(&refused.stdout)[0]["error"]["code"]), (Some(1), &json!("refused")));
    let third = up.ask(&["runs", "retry", &last, "--input", r#""please""#]);
    assert_eq!((&third["attempt"], &third["state"]), (&json!(3), &json!("pending")));
    assert!(up.say(&["runs", "wait", third["run_id"].as_str().expect("an id")]).starts_with("success in attempt 3"));
    assert_eq!(up.say(&["lineage", &run]).lines().count(), 3);
    up.kill();
}

#[test]
fn a_paused_class_begins_nothing_until_it_is_resumed() {
    let home = home("up-pause", &format!("{HELLO}{SLOW}"));
    let (up, _) = Up::start(&home);
    assert_eq!(up.ask(&["classes", "pause", "hello"]), json!({ "class": "hello", "paused": true }));
    let (held, other) = (up.submit(&["hello"]), up.submit(&["slow"]));
    // What was submitted later, to a class that is not paused, begins.
    wait_until("the other has begun", || !log(&home, &other).is_empty());
    assert_eq!(show(&home, &held)["state"], "pending");
    let later = up.submit(&["hello", "--at", "9h"]);
    // Both are held back, and what has a moment does not wait for the class.
    let second = up.submit(&["hello"]);
    let waiting = || {
        let listed = objects(up.say(&["classes", "list", "--json"]).as_bytes()).remove(0);
        assert_eq!((&listed["class"], &listed["running"]), (&json!("hello"), &json!(0)));
        (listed["waiting"].clone(), stats(&home)["classes"][0]["waiting"].clone())
    };
    wait_until("nobody looks at their messages any more", || stats(&home)["queues"]["inbox"] == 1);
    assert_eq!(waiting(), (json!(2), json!(2)), "they are not forgotten");
    // No process outlives the test.
    std::fs::write(home.file("go"), "").expect("written");
    assert!(up.say(&["runs", "wait", &other]).starts_with("success"));
    up.kill();
    // What is paused stays so, whoever was killed.
    let (up, _) = Up::start(&home);
    assert!(up.say(&["classes", "list"]).lines().any(|line| line.starts_with("hello") && line.ends_with("paused")));
    assert_eq!(show(&home, &held)["state"], "pending");
    assert_eq!(up.ask(&["classes", "resume", "hello"])["paused"], false);
    for run in [&held, &second] {
        assert!(up.say(&["runs", "wait", run]).starts_with("success"));
    }
    assert_eq!(show(&home, &later)["state"], "pending");
    assert_eq!(stats(&home)["classes"][0]["waiting"], 0);
    assert_eq!(on(&home, &["classes", "pause", "nope"]).status.code(), Some(1));
    up.kill();
}

#[test]
fn work_that_is_submitted_while_nobody_runs_begins_with_the_next_start() {
    let home = home("up-later", HELLO);
    let submitted = objects(&on(&home, &["submit", "hello", "--json"]).stdout).remove(0);
    assert_eq!((&submitted["running"], &submitted["new"]), (&json!(false), &json!(true)));
    let run = submitted["run_id"].as_str().expect("an id").to_owned();
    let cancelled = objects(&on(&home, &["submit", "hello", "--json"]).stdout).remove(0);
    let cancelled = cancelled["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(objects(&on(&home, &["runs", "cancel", &cancelled, "--json"]).stdout)[0]["sealed"], 1);
    for command in ["tail", "wait"] {
        let output = on(&home, &["runs", command, &run]);
        let words = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(1) && words.contains("nothing runs in this home"), "{command}: {words}");
    }
    let over = on(&home, &["runs", "wait", &cancelled]);
    assert!(over.status.code() == Some(1) && over.stdout.starts_with(b"cancelled"));
    assert!(on(&home, &["runs", "tail", &cancelled]).status.success());
    let (up, _) = Up::start(&home);
    assert!(up.say(&["runs", "wait", &run]).starts_with("success"));
    up.kill();
}

#[test]
fn schedules_of_the_configuration_come_and_go() {
    let every = format!("{HELLO}schedule = {{ every = \"50ms\", input = \"tick\" }}\n");
    let home = home("up-schedule", &every);
    let (up, _) = Up::start(&home);
    let done = || objects(&on(&home, &["runs", "list", "--state", "success", "--json"]).stdout);
    wait_until("two slots", || done().len() >= 2);
    let run = done()[0]["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(log(&home, &run)[0], "got \"tick\"");
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    std::fs::write(home.layout.config(), HELLO).expect("written");
    let (up, _) = Up::start(&home);
    assert_eq!(stats(&home)["queues"]["schedules"], 0);
    up.kill();
}

#[test]
fn what_is_submitted_beside_a_stopped_instance_leaves_schedules_and_other_classes_alone() {
    let config = format!("{HELLO}retry = {{ attempts = 7 }}\nschedule = {{ every = \"9h\" }}\n");
    let home = home("up-submit-alone", &config);
    let (up, _) = Up::start(&home);
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    let found = || {
        let runtime = home.runtime();
        (runtime.schedules().expect("read"), runtime.runs().class("hello").expect("read"))
    };
    let before = found();
    assert_eq!((before.0.len(), before.1.as_ref().map(|(class, _)| class.retry.attempts_max)), (1, Some(7)));
    // Without the instance's configuration, and with one that has another class and a schedule of its own.
    std::fs::remove_file(home.layout.config()).expect("removed");
    assert!(on(&home, &["submit", "hello"]).status.success());
    assert_eq!(found(), before, "the slots that come meanwhile would be lost");
    let other = home.file("other.toml");
    std::fs::write(&other, "[job.other]\ncommand = [\"true\"]\nschedule = { every = \"5h\" }\n").expect("written");
    let other = other.to_str().expect("text");
    assert!(on(&home, &["submit", "other", "--config", other]).status.success());
    assert_eq!(found(), before);
}

#[test]
fn the_socket_answers_every_line_and_refuses_what_it_does_not_know() {
    let home = home("up-socket", HELLO);
    let (up, first) = Up::start(&home);
    let mode = std::fs::metadata(home.layout.socket()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(home.layout.socket()).expect("it listens");
    let mut answers = BufReader::new(stream.try_clone().expect("ours")).lines();
    let mut ask = |line: &[u8]| -> Value {
        stream.write_all(line).expect("written");
        serde_json::from_str(&answers.next().expect("an answer").expect("text")).expect("JSON")
    };
    assert_eq!(ask(b"{\"v\":1,\"do\":\"hello\"}\n")["ok"]["pid"], first["pid"]);
    let cases: [(&[u8], &str); 9] = [
        (b"dance\n", "bad_request"),
        (b"\xff\xfe\n", "bad_request"),
        (b"\n", "bad_request"),
        (b"[1]\n", "version"),
        (b"{\"v\":2,\"do\":\"hello\"}\n", "version"),
        (b"{\"v\":1}\n", "bad_request"),
        (b"{\"v\":1,\"do\":\"dance\"}\n", "unknown"),
        (b"{\"v\":1,\"do\":\"submit\",\"class\":7}\n", "bad_request"),
        (b"{\"v\":1,\"do\":\"submit\",\"class\":\"nope\"}\n", "not_found"),
    ];
    for (line, code) in cases {
        let found = ask(line);
        assert_eq!(found["error"]["code"], code, "{}: {found}", String::from_utf8_lossy(line));
    }
    // A line without end is refused before it is whole, and the connection with it.
    let long = vec![b'x'; kauri::control::REQUEST_BYTES_MAX + 1];
    assert_eq!(ask(&long)["error"]["code"], "too_long");
    assert_eq!(stats(&home)["classes"][0]["class"], "hello");
    up.kill();
}

#[test]
fn every_command_works_beside_an_instance() {
    let home = home("up-beside", HELLO);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["hello"]);
    up.say(&["runs", "wait", &run]);
    let commands: [&[&str]; 15] = [
        &["doctor"],
        &["config", "show"],
        &["classes", "list"],
        &["runs", "list"],
        &["runs", "show", &run],
        &["events", &run],
        &["lineage", &run],
        &["inbox"],
        &["timers"],
        &["leases"],
        &["outbox"],
        &["dead-letters", "list"],
        &["dead-letters", "replay", "--all"],
        &["dead-letters", "purge", "--all"],
        &["audit", "verify"],
    ];
    for command in commands {
        let output = on(&home, command);
        assert!(output.status.success(), "{command:?}: {} {}", text(&output.stdout), text(&output.stderr));
    }
    up.kill();
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn commands_on_an_empty_home_say_that_there_is_nothing() {
    let home = Scratch::new("up-empty");
    let before = home.image();
    let id = "019d2c5e-7a10-7c3e-8f00-0123456789ab";
    let cases: [(&[&str], i32, &str); 11] = [
        (&["classes", "list"], 0, "no classes\n"),
        (&["classes", "pause", "mail"], 1, "there is no class \"mail\": nobody ever worked here\n"),
        (&["runs", "tail", id], 1, "there is no run "),
        (&["runs", "wait", id], 1, "there is no run "),
        (&["runs", "cancel", id], 1, "there is no run "),
        (&["runs", "retry", id], 1, "there is no run "),
        (&["runs", "report", id], 1, "there is no run "),
        (&["events", id], 1, "there is no run "),
        (&["lineage", id], 1, "there is no run "),
        (&["config", "show"], 0, "KEY "),
        (&["dead-letters", "replay", "--all"], 0, "no dead letters\n"),
    ];
    for (args, code, words) in cases {
        let output = on(&home, args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with(words), "{args:?}: {}", text(&output.stdout));
    }
    assert_eq!(home.image(), before);
    let output = on(&home, &["submit", "mail"]);
    assert!(
        output.status.code() == Some(1)
            && text(&output.stdout).starts_with("there is no class \"mail\"; there are none")
    );
    for args in [&["submit", "mail"][..], &["runs", "tail", id], &["classes", "list"]] {
        let line = refusal(&[args, &["--home", "/nowhere/at/all"]].concat(), b"");
        assert!(line.contains("there is no such home"), "{line}");
    }
}

#[test]
fn wrong_configurations_and_arguments_are_refused_with_the_fix() {
    let home = home("up-wrong", "[job.mail]\ncomand = [\"./mail.sh\"]\n");
    let line = refusal(&["up", "--home", home.path()], b"");
    assert!(
        line.contains(
            "kauri.toml: line 2: job.mail.comand: expected a key that is known, found `comand`; did you mean `command`?"
        ),
        "{line}"
    );
    std::fs::write(home.layout.config(), "[job.mail]\ncommand = [\"a\"]\ntimout = \"5s\"\n").expect("written");
    for args in [&["up"][..], &["config", "show"], &["submit", "mail"]] {
        let line = refusal(&[args, &["--home", home.path()]].concat(), b"");
        assert!(line.contains("line 3: job.mail.timout") && line.contains("did you mean `timeout`?"), "{line}");
    }
    assert!(!home.layout.runtime().exists(), "nothing is made before the configuration is read");
    std::fs::write(home.layout.config(), HELLO).expect("written");
    let help = answer(&["submit", "--help"], b"");
    assert!(help.contains("keeps its place until its last attempt has ended"), "{help}");
    assert!(answer(&["up", "--help"], b"").contains("# in UTC: each day at 03:00"));
    let cases: [(&[&str], &str); 6] = [
        (&["submit", "hello", "--input", "Ann"], "expected JSON"),
        (&["submit", "hello", "--input", "@/nowhere.json"], "/nowhere.json"),
        (&["submit", "hello", "--at", "tomorrow"], "expected a moment such as"),
        (&["submit", "hello", "--tag", "winter"], "expected a key and a value"),
        (&["up", "--drain", "soon"], "expected a span of time"),
        (&["up", "--config", "/nowhere.toml"], "/nowhere.toml"),
    ];
    for (args, words) in cases {
        let line = refusal(&[args, &["--home", home.path()]].concat(), b"");
        assert!(line.contains(words), "{args:?}: {line}");
    }
}

/// A setting, and what each of those who can say something about it says.
struct Said {
    key: &'static str,
    default: Value,
    file: (&'static str, usize),
    variable: &'static str,
    flag: &'static str,
    values: [&'static str; 3],
}

const SAID_CONFIG: &str = r#"[up]
drain = "1s"
sweep = "2s"
outbox = "file.jsonl"
log = "error"
log_format = "text"
"#;

fn said() -> [Said; 5] {
    let of = |key, default, line, variable, flag, values: [&'static str; 3]| Said {
        key,
        default,
        file: (values[0], line),
        variable,
        flag,
        values,
    };
    [
        of("up.drain", Value::Null, 2, "KAURI_DRAIN", "--drain", ["1s", "11s", "21s"]),
        of("up.sweep", json!("1m"), 3, "KAURI_SWEEP", "--sweep", ["2s", "12s", "22s"]),
        of(
            "up.outbox",
            json!("outbox.jsonl"),
            4,
            "KAURI_OUTBOX",
            "--outbox",
            ["file.jsonl", "variable.jsonl", "flag.jsonl"],
        ),
        of("up.log", json!("warn"), 5, "KAURI_LOG", "--log", ["error", "off", "debug"]),
        of("up.log_format", json!("text"), 6, "KAURI_LOG_FORMAT", "--log-format", ["text", "json", "text"]),
    ]
}

#[test]
fn flags_count_more_than_the_environment_and_that_more_than_the_file() {
    let (home, bare) = (home("up-precedence", SAID_CONFIG), Scratch::new("up-precedence-bare"));
    let shown = |home: &Scratch, env: &[(&str, &str)], flags: &[&str], key: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
        for said in said() {
            command.env_remove(said.variable);
        }
        command.args(["config", "show", "--json", "--home", home.path()]).args(flags).envs(env.iter().copied());
        let settings = objects(&command.output().expect("it runs").stdout);
        let found = settings.iter().find(|setting| setting["key"] == key).expect("a setting");
        (found["value"].clone(), found["source"].as_str().expect("text").to_owned())
    };
    let all: Vec<String> = {
        let settings = objects(&on(&bare, &["config", "show", "--json"]).stdout);
        settings.iter().map(|setting| setting["key"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(all, said().map(|said| said.key), "a setting that nobody tries here");
    for Said { key, default, file, variable, flag, values: [_, of_variable, of_flag] } in said() {
        let (env, flags) = ([(variable, of_variable)], [flag, of_flag]);
        let of_file = (json!(file.0), format!("file, line {}", file.1));
        assert_eq!(shown(&bare, &[], &[], key), (default, "default".to_owned()));
        assert_eq!(shown(&home, &[], &[], key), of_file);
        assert_eq!(shown(&home, &[(variable, "")], &[], key), of_file, "nothing is said by an empty one");
        let of_environment = (json!(of_variable), format!("environment, ${variable}"));
        assert_eq!(shown(&bare, &env, &[], key), of_environment);
        assert_eq!(shown(&home, &env, &[], key), of_environment);
        for (home, env) in [(&bare, &[][..]), (&home, &[]), (&bare, &env), (&home, &env)] {
            assert_eq!(shown(home, env, &flags, key), (json!(of_flag), format!("flag, {flag}")));
        }
    }
}

#[test]
fn an_instance_obeys_whoever_counts_most() {
    // What is made, and what the environment and the flags say.
    let cases = [
        ("outbox.jsonl", "", ""),
        ("file.jsonl", "", ""),
        ("variable.jsonl", "variable.jsonl", ""),
        ("flag.jsonl", "variable.jsonl", "--outbox flag.jsonl --drain 50ms"),
    ];
    for (at, (expected, variable, flags)) in cases.into_iter().enumerate() {
        let file =
            if at == 0 { SLOW.to_owned() } else { format!("[up]\ndrain = \"9h\"\noutbox = \"file.jsonl\"\n{SLOW}") };
        let home = home(&format!("up-obeys-{at}"), &file);
        let mut command = Command::new("sh");
        command.args(["-c", "kauri=$1; shift; up=$1; shift; exec $kauri $up \"$@\" $MORE", "sh"]);
        command.arg(env!("CARGO_BIN_EXE_kauri")).env("KAURI_OUTBOX", variable).env("MORE", flags);
        // The time to drain comes from the environment where the file says hours, and from a flag where the environment does.
        match at {
            2 => drop(command.env("KAURI_DRAIN", "50ms")),
            3 => drop(command.env("KAURI_DRAIN", "9h")),
            _ => drop(command.env_remove("KAURI_DRAIN")),
        }
        let (up, _) = Up::start_by(command, &home);
        let others = ["outbox.jsonl", "file.jsonl", "variable.jsonl", "flag.jsonl"];
        let made: Vec<&str> = others.into_iter().filter(|name| home.file(name).exists()).collect();
        assert_eq!(made, [expected]);
        if at >= 2 {
            let run = up.submit(&["slow"]);
            wait_until("it has begun", || !log(&home, &run).is_empty());
            up.signal(Signal::TERM);
            up.hear("draining");
            assert_eq!((&up.hear("ended")["killed"], up.code()), (&json!(1), Some(1)), "{expected}");
        } else {
            up.kill();
        }
    }
}

#[test]
fn a_home_that_is_damaged_or_belongs_to_nobody_is_refused_and_left_alone() {
    let home = Scratch::filled("up-damaged");
    let mut bytes = std::fs::read(home.layout.store()).expect("there");
    bytes.iter_mut().take(16_384).for_each(|byte| *byte ^= 0x5a);
    std::fs::write(home.layout.store(), &bytes).expect("written");
    let line = refusal(&["up", "--home", home.path()], b"");
    assert!(line.contains("store.kauri: "), "{line}");
    assert_eq!(std::fs::read(home.layout.store()).expect("there"), bytes);
    assert_eq!(on(&home, &["doctor"]).status.code(), Some(2));
    let line = refusal(&["submit", "mail", "--home", home.path()], b"");
    assert!(line.contains("store.kauri: "), "{line}");

    let file = Scratch::new("up-file");
    std::fs::write(file.file("home"), b"").expect("written");
    let path = file.file("home");
    let line = refusal(&["up", "--home", path.to_str().expect("text")], b"");
    assert!(line.contains("home"), "{line}");
    let line = refusal(&["up", "--home", "/proc/nowhere"], b"");
    assert!(line.contains("/proc/nowhere"), "{line}");
}

#[test]
fn a_command_that_finds_the_lock_taken_says_by_whom() {
    let home = home("up-held", HELLO);
    let held = Home::lock(home.layout.home()).expect("free");
    let line = refusal(&["submit", "hello", "--home", home.path()], b"");
    assert!(line.contains(&format!("process {}", std::process::id())) && line.contains("does not answer"), "{line}");
    drop(held);
    assert!(on(&home, &["submit", "hello"]).status.success());
}

#[test]
fn a_home_with_a_long_name_has_a_socket_all_the_same() {
    let outer = Scratch::new("up-long");
    let long = Scratch { layout: kauri::Layout::of(outer.file(&"x".repeat(120))) };
    std::fs::create_dir(long.layout.home()).expect("made");
    std::fs::write(long.layout.config(), HELLO).expect("written");
    let (up, _) = Up::start(&long);
    assert!(up.say(&["submit", "hello", "--wait"]).contains("success"));
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
}
