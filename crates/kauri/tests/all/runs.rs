//! `kauri runs`.

use kauri::ledger::Home;
use kauri::runtime::run::{Class, Ending, EventDraft, EventSink as _, Halt, LiveRun, Retry, Submission};
use kauri::runtime::{Policy, Runtime};
use kauri::wire::pack::Map;
use kauri::wire::run::{Event, Level};
use serde_json::Value;

use crate::homes::{CRAWLER, Scratch, fill_runs};
use crate::{answer, kauri, refusal};

fn say(home: &Scratch, args: &[&str]) -> String {
    answer(&[&["runs"], args, &["--home", home.path()]].concat(), b"")
}

fn objects(home: &Scratch, args: &[&str]) -> Vec<Value> {
    let text = say(home, &[args, &["--json"]].concat());
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn an_empty_home_has_no_runs() {
    let home = Scratch::new("runs-empty");
    let before = home.image();
    assert_eq!(say(&home, &["list"]), "no runs\n");
    assert_eq!(objects(&home, &["list"]), [] as [Value; 0]);
    let id = "019d2c5e-7a10-7c3e-8f00-0123456789ab";
    for command in ["show", "events", "lineage"] {
        let output = kauri(&["runs", command, id, "--home", home.path()], b"");
        let text = String::from_utf8(output.stdout).expect("text");
        assert_eq!((output.status.code(), text), (Some(1), format!("there is no run {id}\n")));
    }
    assert!(refusal(&["runs", "show", "x", "--home", home.path()], b"").contains("'x'"));
    assert_eq!(home.image(), before);
}

#[test]
fn runs_are_listed_shown_and_told_without_touching_anything() {
    let home = Scratch::filled("runs-lists");
    let runtime = home.runtime();
    let [first, second] = fill_runs(&runtime);
    drop(runtime);
    let (first, second) = (&first.to_string(), &second.to_string());
    let before = home.image();
    let runs = objects(&home, &["list"]);
    let ids: Vec<&str> = runs.iter().filter_map(|run| run["run_id"].as_str()).collect();
    assert_eq!(ids, [second, first], "newest first");
    assert_eq!((&runs[0]["state"], &runs[1]["state"]), (&"pending".into(), &"success".into()));
    let of = |args: &[&str]| objects(&home, &[&["list"], args].concat()).len();
    assert_eq!((of(&["--state", "success"]), of(&["--state", "parked"]), of(&["--limit", "1"])), (1, 0, 1));
    assert_eq!((of(&["--class", "greeting"]), of(&["--class", "other"]), of(&["--since", "1d"])), (2, 0, 2));
    assert!(refusal(&["runs", "list", "--state", "done", "--home", home.path()], b"").contains("expected one of"));
    assert!(say(&home, &["list"]).starts_with("RUN  "));

    let shown = &objects(&home, &["show", first])[0];
    assert_eq!((&shown["class"], &shown["steps"], &shown["attempt"]), (&"greeting".into(), &1.into(), &1.into()));
    assert!(shown["ended"].is_string());
    assert!(say(&home, &["show", first]).contains("state          success"));
    let events = objects(&home, &["events", first]);
    assert_eq!((events.len(), &events[0]["type"], &events[0]["seq"]), (1, &"run_complete".into(), &1.into()));
    assert_eq!(objects(&home, &["events", first, "--from", "2"]).len(), 0);
    assert_eq!(say(&home, &["events", second]), "it has said nothing\n");
    let alone = &objects(&home, &["lineage", first])[0];
    assert_eq!(
        (&alone["run"]["run_id"], alone["descendants"].as_array().map(Vec::len)),
        (&first.as_str().into(), Some(0))
    );
    assert_eq!(home.image(), before);
}

/// A run that said so many things before its end.
fn talkative(runtime: &Runtime, said: usize) -> String {
    let runs = runtime.runs();
    runs.define("talk", &Class::new(CRAWLER)).expect("defined");
    let run = runs.submit(&Submission::new("talk", "")).expect("submitted").run;
    let talk = move |run: &mut LiveRun| -> Result<Ending, Halt> {
        let one = Event::Log { level: Level::Info, message: "one more", fields: None };
        let one = EventDraft::new(&one, run.now().wall.0).expect("an event");
        run.append(&vec![one; said]).expect("kept");
        Ok(Ending::success(run.now().wall, Map::EMPTY))
    };
    runtime.run_worker(CRAWLER, Policy::default(), talk).drain().expect("driven");
    run.to_string()
}

#[test]
fn events_are_all_printed_for_programs_and_people_are_told_of_those_that_are_not() {
    let home = Scratch::filled("runs-events");
    let runtime = home.runtime();
    let (long, short) = (talkative(&runtime, 1_300), talkative(&runtime, 2));
    drop(runtime);
    let seqs = |args: &[&str]| -> Vec<u64> {
        let events = objects(&home, &[&["events"], args].concat());
        events.iter().map(|event| event["seq"].as_u64().expect("a number")).collect()
    };
    assert_eq!(seqs(&[&long]), (1..=1_301).collect::<Vec<_>>());
    assert_eq!(seqs(&[&long, "--from", "1300"]), [1_300, 1_301]);
    assert_eq!(seqs(&[&long, "--from", "7", "--limit", "600"]), (7..607).collect::<Vec<_>>());
    assert_eq!(seqs(&[&long, "--limit", "0"]), [0; 0]);
    let text = |args: &[&str]| say(&home, &[&["events"], args].concat());
    let shown = text(&[&long]);
    assert_eq!((shown.lines().count(), shown.lines().last()), (1_002, Some("there are more: --from 1001")));
    assert!(text(&[&long, "--from", "1001"]).trim_end().ends_with("{}"), "these are all");
    assert_eq!(text(&[&short, "--limit", "3"]).lines().count(), 4);
    assert!(text(&[&short, "--limit", "2"]).ends_with("there are more: --from 3\n"));
    assert_eq!(text(&[&short, "--limit", "0"]), "none are shown\nthere are more: --from 1\n");
    assert_eq!(text(&[&short, "--from", "100"]), "it has said nothing from 100 on: its events are 1 to 3\n");
}

#[test]
fn a_retry_stands_under_the_run_it_retries() {
    let home = Scratch::filled("runs-lineage");
    let runtime = home.runtime();
    let runs = runtime.runs();
    // A retry by itself would come when its time has: here it comes when it is asked for.
    runs.define("failing", &Class { retry: Retry::never(), ..Class::new(CRAWLER) }).expect("defined");
    let first = runs.submit(&Submission::new("failing", "")).expect("submitted").run;
    let fail = |run: &mut LiveRun| -> Result<Ending, Halt> {
        let outcome = kauri::runtime::run::Outcome::ScriptError;
        Ok(Ending::failure(run.now().wall, outcome, "no"))
    };
    runtime.run_worker(CRAWLER, Policy::default(), fail).drain().expect("driven");
    assert_eq!(objects(&home, &["list"]).len(), 1);
    runs.retry(first).expect("another run");
    drop((runs, runtime));
    let text = say(&home, &["lineage", &first.to_string()]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with(&format!("* {first} script_error attempt 1")), "{text}");
    assert!(lines[1].starts_with("  0") && lines[1].contains("attempt 2"), "{text}");
    let retry = lines[1].trim().split(' ').next().expect("an id");
    let text = say(&home, &["lineage", retry]);
    assert!(text.starts_with(&first.to_string()) && text.contains(&format!("\n  * {retry}")), "{text}");
}

#[test]
fn the_doctor_tells_a_run_that_is_driven_from_one_that_nobody_drives() {
    let home = Scratch::filled("runs-driven");
    let runtime = home.runtime();
    runtime.runs().define("slow", &Class::new(CRAWLER)).expect("defined");
    runtime.runs().submit(&Submission::new("slow", "")).expect("submitted");
    let path = home.path().to_owned();
    let look = move |run: &mut LiveRun| -> Result<Ending, Halt> {
        let status = || {
            let output = kauri(&["doctor", "--json", "--home", &path], b"");
            let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let checks = report["checks"].as_array().expect("checks");
            let runs = checks.iter().find(|check| check["name"] == "runs").expect("a check");
            (runs["status"].clone(), runs["what"].clone())
        };
        let held = Home::lock(&path).expect("free");
        assert_eq!(status(), ("ok".into(), "1 run, 1 running".into()));
        drop(held);
        assert_eq!(status(), ("warn".into(), "1 run running, and nobody drives 1".into()));
        Ok(Ending::success(run.now().wall, Map::EMPTY))
    };
    runtime.run_worker(CRAWLER, Policy::default(), look).drain().expect("driven");
    let runs = objects(&home, &["list"]);
    assert_eq!(runs[0]["state"], "success", "{runs:?}");
}
