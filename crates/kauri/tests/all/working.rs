//! What an instance does beside taking jobs: several at once, messages that leave, what is kept, what it says on its screen.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use kauri::runtime::run::{Artifacts, Class, Ending, Files, Halt, LiveRun, Outcome, Retry, Submission};
use kauri::runtime::substrate::TreeSubstrate;
use kauri::runtime::{Policy, Runtime};
use kauri::tree::Options;
use kauri::tree::disk::OsDisk;
use kauri::wire::pack::Map;
use kauri::wire::{RunId, Timestamp, WorkerId};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::homes::{CRAWLER, SALES, Scratch, order};
use crate::instances::{HELLO, SLOW, Up, home, log, objects, on, show, stats, wait_until};
use crate::refusal;

#[test]
fn as_many_run_at_once_as_the_class_says() {
    // Each waits for the other: one at a time would never end.
    let config = r#"
[job.pair]
command = ["sh", "-c", "touch here-$KAURI_RUN_ID; until [ $(ls here-* | wc -l) = 2 ]; do sleep 0.02; done"]
concurrency = 2
"#;
    let home = home("work-pair", config);
    let (up, _) = Up::start(&home);
    let runs = [up.submit(&["pair"]), up.submit(&["pair"])];
    for run in &runs {
        assert!(up.say(&["runs", "wait", run]).starts_with("success in attempt 1"));
    }
    up.kill();
}

#[test]
fn a_job_can_submit_another_to_its_own_home() {
    let binary = env!("CARGO_BIN_EXE_kauri");
    let config = format!("{HELLO}\n[job.parent]\ncommand = [{binary:?}, \"submit\", \"hello\", \"--wait\"]\n");
    let home = home("work-nested", &config);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["parent"]);
    assert!(up.say(&["runs", "wait", &run]).starts_with("success"));
    let said = log(&home, &run);
    assert!(said.iter().any(|line| line.starts_with("success in attempt 1")), "{said:?}");
    up.kill();
}

#[test]
fn messages_of_the_outbox_leave_into_a_file() {
    let home = Scratch::filled("work-outbox");
    let disk = OsDisk::new(home.layout.runtime()).expect("a disk");
    let store = Options::new().keeper(false).open(&disk, "store.kauri").expect("a store");
    let builder = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(kauri::SystemClock::new()));
    let runtime = builder.elsewhere(|worker| worker == SALES).start().expect("a runtime");
    for id in ["order-1", "order-2"] {
        runtime.send(&order(id)).expect("sent");
    }
    drop(runtime);
    // A line that a crash has cut does not swallow the next one.
    std::fs::write(home.file("outbox.jsonl"), b"{\"seq\":").expect("written");
    let (up, _) = Up::start(&home);
    wait_until("delivered", || stats(&home)["queues"]["outbox"] == 0);
    let text = std::fs::read_to_string(home.file("outbox.jsonl")).expect("there");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (3, "{\"seq\":"));
    let ids: Vec<Value> =
        objects(lines[1..].join("\n").as_bytes()).iter().map(|line| line["message_id"].clone()).collect();
    assert_eq!(ids, ["order-1", "order-2"], "{text}");
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
}

#[test]
fn what_a_class_does_not_keep_is_removed() {
    let config = format!("[up]\nsweep = \"20ms\"\n{HELLO}keep = {{ runs = 1 }}\n");
    let home = home("work-keep", &config);
    let (up, _) = Up::start(&home);
    let runs: Vec<String> = (0..3).map(|_| up.submit(&["hello"])).collect();
    wait_until("only the last is there", || {
        let found = objects(&on(&home, &["runs", "list", "--json"]).stdout);
        found.len() == 1 && found[0]["outcome"] == "success"
    });
    assert_eq!(show(&home, &runs[2])["state"], "success");
    up.kill();
}

#[test]
fn events_that_a_class_does_not_keep_are_removed_and_said_to_be() {
    let config = format!("[up]\nsweep = \"20ms\"\n{HELLO}keep = {{ events = {{ count = 0 }} }}\n");
    let home = home("work-keep-events", &config);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["hello"]);
    let report = || objects(&on(&home, &["runs", "report", &run, "--json"]).stdout).remove(0);
    wait_until("its events are gone", || report()["events_removed"] == true);
    assert_eq!((&show(&home, &run)["state"], &report()["events"]), (&json!("success"), &json!({})));
    assert!(show(&home, &run)["events"].as_u64().expect("a number") > 0, "how many there were is known");
    let words = "they were removed because its class keeps them no longer";
    let refused = |what: &str| {
        let output = on(&home, &["runs", what, &run, "--json"]);
        let error = objects(&output.stdout).remove(0)["error"].clone();
        assert_eq!((output.status.code(), &error["code"]), (Some(1), &json!("refused")), "{what}");
        assert!(error["message"].as_str().expect("words").contains(words), "{what}: {error}");
    };
    ["events", "tail"].into_iter().for_each(refused);
    up.kill();
    // Where nothing runs too.
    ["events", "tail"].into_iter().for_each(refused);
    let text = String::from_utf8(on(&home, &["runs", "report", &run]).stdout).expect("text");
    assert!(text.contains("events, which are kept no longer"), "{text}");
    let noted = objects(&on(&home, &["audit", "show", "--json"]).stdout);
    let noted = noted.iter().map(Value::to_string).filter(|line| line.contains("EVENTS_SWEPT") && line.contains(&run));
    assert_eq!(noted.count(), 1, "before they went, and once");
}

#[test]
fn files_of_no_run_are_collected_when_an_instance_starts_and_stand_in_the_audit_by_name() {
    let home = home("work-collect", &format!("[up]\nsweep = \"20ms\"\n{HELLO}"));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home.layout.files()).expect("a folder");
    let disk = Arc::new(OsDisk::new(home.layout.files()).expect("a disk"));
    let files = Files::new(Artifacts::open(disk).expect("a directory"));
    let run = RunId::from_parts(Timestamp(1_780_000_000_000), [7; 10]);
    // More than are looked at before messages may leave.
    for number in 0..300 {
        files.put(run, &format!("page-{number}"), "text/html", b"the same").expect("put");
    }
    drop(files);
    let (up, _) = Up::start(&home);
    let left = || std::fs::read_dir(home.layout.files()).expect("a folder").count();
    wait_until("everything is gone", || left() == 0);
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    let noted = |what: &str| -> Vec<Value> {
        let shown = objects(&on(&home, &["audit", "show", "--limit", "1000", "--json"]).stdout);
        shown.into_iter().filter(|line| line.to_string().contains(what)).collect()
    };
    let named = noted("FILE_COLLECTED");
    assert!(named.len() == 300 && named.iter().any(|line| line.to_string().contains("page-299")), "{named:?}");
    assert_eq!(noted("ARTIFACT_COLLECTED").len(), 1);
}

#[test]
fn draining_has_an_end_if_one_is_named() {
    let home = home("work-drain", &format!("[up]\ndrain = \"50ms\"\n{SLOW}"));
    let (up, _) = Up::start(&home);
    let run = up.submit(&["slow"]);
    wait_until("it has begun", || !log(&home, &run).is_empty());
    up.signal(Signal::TERM);
    up.hear("draining");
    assert_eq!((&up.hear("ended")["killed"], up.code()), (&json!(1), Some(1)));
    assert_eq!(show(&home, &run)["state"], "executor_crash");
}

#[test]
fn a_run_is_retried_from_one_of_its_steps() {
    let home = Scratch::filled("work-steps");
    let runtime = home.runtime();
    let runs = runtime.runs();
    runs.define("steps", &Class { retry: Retry::never(), ..Class::new(CRAWLER) }).expect("defined");
    let run = runs.submit(&Submission::new("steps", "")).expect("submitted").run.to_string();
    let fail = |run: &mut LiveRun| -> Result<Ending, Halt> {
        run.step("fetch", |_| Ok(b"page".to_vec()))?;
        run.step("parse", |_| Ok(b"text".to_vec()))?;
        Ok(Ending::failure(run.now().wall, Outcome::ScriptError, "no"))
    };
    runtime.run_worker(CRAWLER, Policy::default(), fail).drain().expect("driven");
    drop((runs, runtime));
    let refused = on(&home, &["runs", "retry", &run, "--from-step", "nope", "--json"]);
    assert_eq!((refused.status.code(), &objects(&refused.stdout)[0]["error"]["code"]), (Some(1), &json!("not_found")));
    let output = on(&home, &["runs", "retry", &run, "--from-step", "parse", "--json"]);
    let retried = objects(&output.stdout).remove(0);
    assert_eq!((&retried["attempt"], &retried["steps"], &retried["state"]), (&json!(2), &json!(1), &json!("pending")));
}

#[test]
fn a_run_is_retried_with_all_that_its_steps_recorded() {
    let home = Scratch::filled("work-keep-steps");
    let runtime = home.runtime();
    let runs = runtime.runs();
    runs.define("steps", &Class { retry: Retry::never(), ..Class::new(CRAWLER) }).expect("defined");
    let run = runs.submit(&Submission::new("steps", "")).expect("submitted").run.to_string();
    let waits = |run: &mut LiveRun| -> Result<Ending, Halt> {
        run.step("fetch", |_| Ok(b"page".to_vec()))?;
        run.wait_for_signal("approved").map(|_| Ending::success(run.now().wall, Map::EMPTY))
    };
    runtime.run_worker(CRAWLER, Policy::default(), waits).drain().expect("driven");
    drop((runs, runtime));
    assert_eq!(on(&home, &["runs", "cancel", &run]).status.code(), Some(0));
    assert_eq!(show(&home, &run)["state"], "cancelled");
    // What has not come is no step yet: so it has no name to be retried from.
    let refused = on(&home, &["runs", "retry", &run, "--from-step", "approved"]);
    let words = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!((refused.status.code(), words.contains("it recorded [\"fetch\"]")), (Some(1), true), "{words}");
    assert_eq!(on(&home, &["runs", "retry", &run, "--keep-steps", "--from-step", "fetch"]).status.code(), Some(2));
    let output = on(&home, &["runs", "retry", &run, "--keep-steps", "--json"]);
    let retried = objects(&output.stdout).remove(0);
    assert_eq!((&retried["attempt"], &retried["steps"], &retried["kept"]), (&json!(2), &json!(1), &json!(1)));
}

#[test]
fn as_much_is_said_of_the_work_as_was_asked_for_and_in_the_form_that_was() {
    let config = format!("{HELLO}\n[job.bad]\ncommand = [\"false\"]\nretry = {{ attempts = 1 }}\n");
    let said = |name: &str, log: &str| -> Vec<String> {
        let home = home(&format!("work-log-{name}"), &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
        command.env("KAURI_LOG", log).env("KAURI_LOG_FORMAT", if name == "json" { "json" } else { "text" });
        let (up, _) = Up::start_by(command, &home);
        up.say(&["submit", "hello", "--wait"]);
        let run = up.submit(&["bad"]);
        assert_eq!(on(&home, &["runs", "wait", &run]).status.code(), Some(1));
        up.signal(Signal::TERM);
        let (code, words) = up.last_words();
        assert_eq!(code, Some(0));
        words.lines().map(str::to_owned).collect()
    };
    assert_eq!(said("off", "off"), [""; 0]);
    let warned = said("warn", "warn");
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(warned[0].contains("WARN  run ") && warned[0].contains("of bad: script_error, attempt 1"), "{warned:?}");
    let told = said("json", "info");
    let told = objects(told.join("\n").as_bytes());
    let ended: Vec<_> = told.iter().map(|line| (line["class"].clone(), line["level"].clone())).collect();
    assert_eq!(ended, [(json!("hello"), json!("info")), (json!("bad"), json!("warn"))], "{told:?}");
}

#[test]
fn the_screen_says_what_runs_what_was_found_and_what_nothing_runs() {
    let home = home("work-screen", HELLO);
    home.leave_orphan("mail-9");
    let runtime = home.runtime();
    runtime.runs().define("forgotten", &Class::new(WorkerId(77))).expect("defined");
    runtime.runs().submit(&Submission::new("forgotten", "")).expect("submitted");
    drop(runtime);
    let mut child = Command::new(env!("CARGO_BIN_EXE_kauri"))
        .args(["up", "--home", home.path()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut screen = String::new();
    while !screen.contains("Ctrl-C") {
        assert!(out.read_line(&mut screen).expect("text") > 0, "{screen}");
    }
    let expected = [
        "is up, process ",
        "1 action was begun and has no end",
        "sh -c read job;",
        "forgotten: in the store and not in kauri.toml: nothing runs it; messages that wait for it: 1",
        &format!("submit  kauri submit hello --home {}", home.path()),
        &format!("watch   kauri top --home {}", home.path()),
    ];
    for words in expected {
        assert!(screen.contains(words), "{words:?}: {screen}");
    }
    // Work goes on when nobody reads the screen any more.
    drop(out);
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, Signal::TERM).expect("ours");
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn jobs_wait_for_others_keys_count_for_a_time_and_failed_runs_are_retried_in_bulk() {
    let config = r#"
[job.flaky]
command = ["sh", "-c", "test $KAURI_ATTEMPT = 2"]
retry = { attempts = 1 }
"#;
    let home = home("work-bulk", config);
    let (up, _) = Up::start(&home);
    let first = up.ask(&["submit", "flaky", "--key", "k", "--within", "1h", "--tag", "n=1"]);
    let again = up.ask(&["submit", "flaky", "--key", "k", "--within", "1h"]);
    assert_eq!((&again["run_id"], &again["new"]), (&first["run_id"], &json!(false)));
    let run = first["run_id"].as_str().expect("an id");
    let job = first["job_id"].as_str().expect("an id");
    let skipped = up.submit(&["flaky", "--after", job, "--on-failed", "skip"]);
    assert_eq!(show_end(&home, run), "script_error");
    assert_eq!(show_end(&home, &skipped), "skipped");
    let missing = on(&home, &["submit", "flaky", "--after", "job-nowhere", "--json"]);
    assert_eq!((missing.status.code(), &objects(&missing.stdout)[0]["error"]["code"]), (Some(1), &json!("not_found")));
    up.kill();
    // What was asked for is done by the next instance.
    let made = objects(&on(&home, &["runs", "retry", "--class", "flaky", "--tag", "n=1", "--json"]).stdout);
    assert_eq!((made.len(), &made[0]["attempt"], &made[0]["parent_run_id"]), (1, &json!(2), &json!(run)));
    let none = on(&home, &["runs", "retry", "--class", "flaky", "--outcome", "timed_out"]);
    assert_eq!(String::from_utf8_lossy(&none.stdout), "no run to be retried\n");
    for outcome in ["luck", "success"] {
        let args = ["runs", "retry", "--class", "flaky", "--outcome", outcome, "--home", home.path()];
        let line = refusal(&args, b"");
        let expected = "outcomes: expected one of script_error, executor_crash, policy_failure, version_mismatch, cancelled, timed_out";
        assert!(line.contains(&format!("{expected}, found \"{outcome}\"")), "{line}");
    }
    assert_eq!(on(&home, &["runs", "retry"]).status.code(), Some(2));
    let (up, _) = Up::start(&home);
    assert!(up.say(&["runs", "wait", run]).starts_with("success in attempt 2"));
    let told = on(&home, &["runs", "signal", run, "go", "--payload", "now", "--json"]);
    assert_eq!((told.status.code(), &objects(&told.stdout)[0]["error"]["code"]), (Some(1), &json!("refused")));
    up.kill();
}

#[test]
fn the_table_of_runs_is_up_to_date_soon_however_seldom_it_is_swept() {
    let home = home("work-table", &format!("[up]\nsweep = \"9h\"\n{HELLO}"));
    let (up, _) = Up::start(&home);
    // As any SQLite tool reads it.
    let status = |run: &str| -> Option<String> {
        let database = rusqlite::Connection::open(home.file("runtime/runtime.db")).expect("a database");
        database.query_row("SELECT status FROM runs WHERE id = ?1", [run], |row| row.get(0)).ok()
    };
    // The first may be found with the start of the instance; the second comes after that.
    for _ in 0..2 {
        let run = up.submit(&["hello"]);
        assert!(up.say(&["runs", "wait", &run]).starts_with("success"));
        wait_until("its row is written", || status(&run).as_deref() == Some("success"));
    }
    up.kill();
}

#[test]
fn whoever_waits_for_a_job_that_only_its_key_remembers_is_told_that_it_has_ended() {
    let home = home("work-remembered", &format!("[up]\nsweep = \"20ms\"\n{HELLO}keep = {{ runs = 0 }}\n"));
    let (up, _) = Up::start(&home);
    let submit = ["submit", "hello", "--key", "k", "--within", "9h"];
    let first = up.ask(&submit);
    let [job, run] = ["job_id", "run_id"].map(|name| first[name].as_str().expect("an id"));
    wait_until("it is gone", || on(&home, &["runs", "list", "--json"]).stdout.is_empty());
    let words = format!("the job under this key ({job}, run {run}) has ended and is kept no longer");
    let check = || {
        let said = on(&home, &[&submit[..], &["--wait"]].concat());
        let text = String::from_utf8(said.stdout).expect("text");
        assert!(said.status.code() == Some(1) && text.contains(&words), "{text}");
        let said = on(&home, &[&submit[..], &["--wait", "--json"]].concat());
        let [submitted, error] = &objects(&said.stdout)[..] else { panic!("expected two lines") };
        assert_eq!((&submitted["run_id"], &submitted["new"]), (&first["run_id"], &json!(false)));
        assert_eq!((&error["error"]["code"], said.status.code()), (&json!("not_found"), Some(1)));
        assert!(error["error"]["message"].as_str().expect("text").contains(&words), "{error}");
    };
    check();
    // Where nothing runs too.
    up.kill();
    check();
}

#[test]
fn only_so_many_jobs_with_a_concurrency_key_are_under_way_at_a_time() {
    // One fails if another is at it; two wait for each other.
    let config = r#"
[job.alone]
command = ["sh", "-c", "mkdir busy && sleep 0.1 && rmdir busy"]
concurrency = 3
[job.pair]
command = ["sh", "-c", "touch here-$KAURI_RUN_ID; until [ $(ls here-* | wc -l) = 2 ]; do sleep 0.02; done"]
concurrency = 3
"#;
    let home = home("work-gate", config);
    let (up, _) = Up::start(&home);
    let alone: Vec<String> = (0..5).map(|_| up.submit(&["alone", "--concurrency-key", "desk"])).collect();
    let pair = [(); 2].map(|()| up.submit(&["pair", "--concurrency-key", "bench", "--concurrency", "2"]));
    for run in alone.iter().chain(&pair) {
        assert_eq!(show_end(&home, run), "success");
    }
    for wrong in
        [&["--concurrency", "2"][..], &["--concurrency-key", "k", "--concurrency", "0"], &["--concurrency-key", ""]]
    {
        let said = on(&home, &[&["submit", "alone"], wrong].concat());
        assert_eq!(said.status.code(), Some(2), "{wrong:?}");
    }
    up.kill();
}

/// How the job of a run ended.
fn show_end(home: &Scratch, run: &str) -> String {
    let ended = on(home, &["runs", "wait", run, "--json"]);
    objects(&ended.stdout).remove(0)["outcome"].as_str().expect("it ended").to_owned()
}

#[test]
fn retry_with_null_is_given_null_and_without_an_input_what_there_was() {
    let config = "[job.hello]\ncommand = [\"sh\", \"-c\", \"read job; echo got \\\"$job\\\"; exit 1\"]\nretry = { attempts = 1 }\n";
    let home = home("work-null", config);
    let (up, _) = Up::start(&home);
    let first = up.submit(&["hello", "--input", r#"{"name":"Ann"}"#]);
    let wait = |run: &str| assert_eq!(on(&home, &["runs", "wait", run]).status.code(), Some(1));
    wait(&first);
    let second = retried(&home, &[&first]);
    wait(&second);
    assert_eq!(log(&home, &second), [r#"got {"name":"Ann"}"#]);
    let third = retried(&home, &[&second, "--input", "null"]);
    wait(&third);
    assert_eq!(log(&home, &third), ["got null"]);
    let fourth = retried(&home, &["--class", "hello", "--input", "[1]"]);
    wait(&fourth);
    let fifth = retried(&home, &["--class", "hello", "--input", "null"]);
    wait(&fifth);
    assert_eq!((log(&home, &fourth), log(&home, &fifth)), (vec!["got [1]".to_owned()], vec!["got null".to_owned()]));
    // The same where nobody runs.
    up.kill();
    let sixth = retried(&home, &[&fifth, "--input", "7"]);
    let (up, _) = Up::start(&home);
    wait(&sixth);
    up.kill();
    let seventh = retried(&home, &[&sixth, "--input", "null"]);
    let (up, _) = Up::start(&home);
    wait(&seventh);
    assert_eq!((log(&home, &sixth), log(&home, &seventh)), (vec!["got 7".to_owned()], vec!["got null".to_owned()]));
    up.kill();
}

/// The run that `kauri runs retry` made.
fn retried(home: &Scratch, args: &[&str]) -> String {
    let output = on(home, &[&["runs", "retry"], args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    objects(&output.stdout).remove(0)["run_id"].as_str().expect("an id").to_owned()
}
