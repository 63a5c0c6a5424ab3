//! Jobs that ask for other jobs, through an instance: how many they may ask for, what their end depends on, and what it left.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::frames::program;
use crate::homes::Scratch;
use crate::instances::{Up, home, log, objects, on, show, wait_until};

/// A job that asks for one that waits for a file, and one that fails.
fn shop(fan_out: &str) -> String {
    let fan = [program().to_str().expect("text"), "fan", "slow", "broken"].map(str::to_owned);
    format!(
        "[job.shop]\ncommand = {fan:?}\nprotocol = \"frames\"\n{fan_out}\n\
         [job.slow]\ncommand = [\"sh\", \"-c\", \"for n in $(seq 1200); do [ -e go ] && break; sleep 0.05; done\"]\n\
         [job.broken]\ncommand = [\"sh\", \"-c\", \"echo no bread >&2; exit 3\"]\nretry = {{ attempts = 1 }}\n"
    )
}

const ALL: &str = "fan_out = { depth = 1, parallel = 2, exit = \"all\" }";
const ROOT: &str = "fan_out = { depth = 1, parallel = 2 }";

/// The runs of a class.
fn runs_of(home: &Scratch, class: &str) -> Vec<Value> {
    objects(&on(home, &["runs", "list", "--class", class, "--json"]).stdout)
}

/// Submits the job, and returns when all has ended but the run that waits.
fn submit(home: &Scratch, up: &Up) -> String {
    let run = up.submit(&["shop"]);
    wait_until("the shop ends", || show(home, &run)["state"] == "success");
    wait_until("one fails", || runs_of(home, "broken").iter().any(|run| run["outcome"] == "script_error"));
    run
}

fn go(home: &Scratch) {
    std::fs::write(home.file("go"), "").expect("written");
}

/// What a command prints as JSON, and its exit code.
fn told(home: &Scratch, args: &[&str]) -> (Value, Option<i32>) {
    let output = on(home, &[args, &["--json"]].concat());
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    (objects(&output.stdout).pop().unwrap_or_else(|| panic!("{args:?}: {words}")), output.status.code())
}

fn said(home: &Scratch, args: &[&str]) -> (String, String, Option<i32>) {
    let output = on(home, args);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn end_of_a_job_whose_class_says_all_is_that_of_its_whole_tree() {
    let home = home("trees-all", &shop(ALL));
    let (up, _) = Up::start(&home);
    let run = submit(&home, &up);
    let (out, words, code) = said(&home, &["runs", "wait", &run, "--timeout", "200ms"]);
    assert_eq!((&*out, code), ("", Some(1)));
    assert!(words.contains("the run is success, and 1 of 3 jobs in its tree have not ended"), "{words}");
    // With the instance gone nobody waits for ever, and nothing that was derived is lost.
    up.kill();
    let (_, words, code) = said(&home, &["runs", "wait", &run]);
    assert!(words.contains("nothing runs in this home") && words.contains("1 of 3 jobs"), "{words}");
    assert_eq!(code, Some(1));
    let (up, _) = Up::start(&home);
    go(&home);
    let ended = |home: &Scratch| {
        let (end, code) = told(home, &["runs", "wait", &run]);
        assert_eq!(
            (&end["outcome"], &end["result"], &end["failure"]),
            (&json!("success"), &json!({"asked": 2}), &Value::Null)
        );
        let tree = &end["tree"];
        assert_eq!(
            (&tree["outcome"], &tree["exit"], &tree["over"]),
            (&json!("script_error"), &json!("all"), &json!(true))
        );
        assert_eq!((&tree["jobs"], &tree["jobs_open"], code), (&json!(3), &json!(0), Some(1)), "{tree}");
        let (out, words, code) = said(home, &["runs", "wait", &run]);
        assert_eq!((&*words, code), ("", Some(1)));
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("success in attempt 1"), "{out}");
        assert_eq!(lines[1], r#"result {"asked":2}"#);
        assert!(lines[2].starts_with("script_error, by all of 3 jobs in its tree: "), "{out}");
        assert!(lines[2].contains("1 script_error") && lines[2].contains("2 success"), "{out}");
    };
    ended(&home);
    // A job under it ends by itself, and one that is waited for at once comes to the same.
    let slow = runs_of(&home, "slow").remove(0);
    let (end, code) = told(&home, &["runs", "wait", slow["run_id"].as_str().expect("an id")]);
    assert_eq!((&end["tree"], code), (&Value::Null, Some(0)), "{end}");
    let (end, code) = told(&home, &["submit", "shop", "--wait"]);
    assert_eq!((&end["tree"]["outcome"], &end["result"]["asked"], code), (&json!("script_error"), &json!(2), Some(1)));
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    ended(&home);
}

#[test]
fn end_of_a_job_whose_class_says_nothing_is_its_own() {
    let home = home("trees-root", &shop(ROOT));
    let (up, _) = Up::start(&home);
    let run = submit(&home, &up);
    let (end, code) = told(&home, &["runs", "wait", &run]);
    assert_eq!((&end["outcome"], &end["tree"], code), (&json!("success"), &Value::Null, Some(0)), "{end}");
    assert!(up.say(&["submit", "shop", "--wait"]).contains("success in attempt 1"));
    up.kill();
}

#[test]
fn report_shows_the_tree_of_a_job_that_has_derived_work() {
    let home = home("trees-report", &shop(ROOT));
    let (up, _) = Up::start(&home);
    let run = submit(&home, &up);
    let tree = up.ask(&["runs", "report", &run])["tree"].clone();
    assert_eq!((&tree["exit"], &tree["outcome"], &tree["over"]), (&json!("root"), &json!("success"), &json!(false)));
    assert_eq!((&tree["root_run_id"], &tree["runs_left_out"]), (&json!(run), &json!(0)), "{tree}");
    let runs = tree["runs"].as_array().expect("runs");
    assert!(runs.len() == 3 && runs[1..].iter().all(|child| child["parent_run_id"] == *run), "{tree}");
    let events: u64 = runs.iter().filter_map(|run| run["events"].as_u64()).sum();
    assert_eq!(tree["events"], json!(events));
    let page = up.say(&["runs", "report", &run]);
    let lines: Vec<&str> = page.lines().skip_while(|line| *line != "tree").collect();
    assert!(lines[1].starts_with(&format!("  * {run} success attempt 1 of ")), "{page}");
    assert!(lines[2..4].iter().all(|line| line.starts_with("    0")), "{page}");
    assert!(lines[2..4].iter().any(|line| line.contains("script_error attempt 1")), "{page}");
    assert!(
        lines[4].starts_with("  success, by the first of 3 jobs in its tree: 1 running, 1 script_error, 1 success")
    );
    assert!(lines[4].ends_with(&format!("; 3 runs, {events} events")), "{page}");
    // What nothing was derived from has no tree of its own.
    let child = runs_of(&home, "broken").remove(0)["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(up.ask(&["runs", "report", &child])["tree"], Value::Null);
    assert!(!up.say(&["runs", "report", &child]).contains("\ntree\n"));
    up.kill();
}

#[test]
fn limits_of_derived_work_are_those_of_the_configuration_as_it_is_now() {
    let home = home("trees-config", &shop("fan_out = { depth = 1, runs = 1, exit = \"all\" }"));
    go(&home);
    let class = |up: &Up| {
        let classes = objects(up.say(&["classes", "list", "--json"]).as_bytes());
        classes.into_iter().find(|class| class["class"] == "shop").expect("defined")["fan_out"].clone()
    };
    let (up, _) = Up::start(&home);
    let limits = json!({ "depth": 1, "runs": 1, "parallel": 1, "exit": "all" });
    assert_eq!(class(&up), limits);
    assert!(up.say(&["classes", "list"]).contains("1 deep, 1 jobs, 1 at a time, exit all"));
    let shown = objects(up.say(&["config", "show", "--json"]).as_bytes());
    let setting = shown.iter().find(|setting| setting["key"] == "job.shop.fan_out").expect("shown");
    assert_eq!((&setting["value"], &setting["source"]), (&limits, &json!("file, line 4")));
    // One is made, which ends well; the other is one too many, and the log says so.
    let (end, code) = told(&home, &["submit", "shop", "--wait"]);
    assert_eq!((&end["tree"]["jobs"], &end["tree"]["outcome"], code), (&json!(2), &json!("success"), Some(0)), "{end}");
    let run = end["run_id"].as_str().expect("an id").to_owned();
    assert_eq!(log(&home, &run).last().map(String::as_str), Some("derived work was not made"));
    // People are told which and why.
    let report = up.ask(&["runs", "report", &run]);
    assert_eq!(report["log"].as_array().and_then(|log| log.last()), Some(&json!("derived work was not made")));
    let words = "derived work was not made (target=broken, reason=";
    for what in ["report", "tail"] {
        let page = up.say(&["runs", what, &run]);
        assert!(page.contains(words), "{what}: {page}");
    }
    up.kill();
    std::fs::write(home.layout.config(), shop("")).expect("written");
    let (up, _) = Up::start(&home);
    assert_eq!(class(&up)["depth"], json!(0));
    let (end, _) = told(&home, &["submit", "shop", "--wait"]);
    assert_eq!((&end["outcome"], &end["tree"]), (&json!("success"), &Value::Null));
    assert_eq!(up.ask(&["runs", "report", end["run_id"].as_str().expect("an id")])["tree"], Value::Null);
    up.kill();
}

#[test]
fn whoever_waits_is_told_what_a_run_left_or_why_it_failed() {
    let home = home("trees-result", &format!("{}{}", shop(""), "[job.quiet]\ncommand = [\"true\"]\n"));
    let (up, _) = Up::start(&home);
    let check = |class: &str, result: Value, words: Option<&str>| {
        let (end, code) = told(&home, &["submit", class, "--wait"]);
        assert_eq!((&end["result"], code == Some(0)), (&result, words.is_none()), "{class}: {end}");
        let message = end["failure"]["message"].as_str();
        assert_eq!(message.is_some_and(|message| words.is_some_and(|words| message.contains(words))), words.is_some());
        let (out, _, _) = said(&home, &["runs", "wait", end["run_id"].as_str().expect("an id")]);
        assert_eq!(out.contains("result "), !result.is_null(), "{class}: {out}");
        assert!(words.is_none_or(|words| out.contains(words)), "{class}: {out}");
    };
    check("shop", json!({ "asked": 2 }), None);
    check("quiet", Value::Null, None);
    check("broken", Value::Null, Some("no bread"));
    up.kill();
    // And where nobody runs.
    let broken = runs_of(&home, "broken").remove(0);
    let (end, code) = told(&home, &["runs", "wait", broken["run_id"].as_str().expect("an id")]);
    assert!(end["failure"]["message"].as_str().is_some_and(|message| message.contains("no bread")), "{end}");
    assert_eq!(code, Some(1));
}

#[test]
fn command_that_asks_for_work_in_a_step_goes_on_saying_things() {
    let steps = [program().to_str().expect("text"), "steps"].map(str::to_owned);
    let config = format!(
        "[job.steps]\ncommand = {steps:?}\nprotocol = \"frames\"\nfan_out = {{ depth = 1 }}\nretry = {{ attempts = 1 }}\n\
         [job.nothing]\ncommand = [\"true\"]\n"
    );
    let home = home("trees-steps", &config);
    let (up, _) = Up::start(&home);
    let run = up.submit(&["steps"]);
    wait_until("parked", || show(&home, &run)["state"] == "parked");
    up.say(&["runs", "signal", &run, "go", "--payload", "now"]);
    assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 1"));
    assert_eq!(runs_of(&home, "nothing").len(), 1, "asked for once");
    assert_eq!(log(&home, &run).last().map(String::as_str), Some("go now"));
    up.kill();
}
