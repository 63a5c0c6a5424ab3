//! `kauri top`, used as a person would: in a terminal, with keys, beside an instance that comes and goes.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::homes::{Scratch, fill_messages};
use crate::instances::{HELLO, SLOW, Up, home, objects, on, stats, wait_until};
use crate::screen::Terminal;
use crate::{answer, kauri, refusal};

const BAD: &str = r#"
[job.bad]
command = ["sh", "-c", "echo the disk is full >&2; exit 3"]
retry = { attempts = 1 }
"#;

fn start(home: &Scratch, size: (u16, u16), environment: &[(&str, &str)]) -> Terminal {
    Terminal::start_sized(size, &["top", "--every", "100ms", "--home", home.path()], environment)
}

/// The numbers behind a class in the pane of workers: busy, of, waiting, ended, failed.
fn numbers(shown: &str, class: &str) -> Vec<u64> {
    let line = shown.lines().find_map(|line| line.split_once(&format!(" {class} "))).map_or("", |(_, rest)| rest);
    line.split_whitespace().filter_map(|word| word.parse().ok()).take(5).collect()
}

#[test]
fn top_follows_an_instance_through_work_keys_a_kill_and_a_new_start() {
    let home = home("top-story", &format!("{HELLO}{BAD}{SLOW}"));
    let (up, _) = Up::start(&home);
    let mut top = start(&home, (120, 40), &[]);
    top.wait_for(" working ");
    top.wait_for("start 1");
    assert!(top.screen().alternate_screen() && top.screen().hide_cursor());
    top.wait_until("nothing yet", |shown| numbers(shown, "hello") == [0, 1, 0, 0, 0]);
    // Counts rise.
    for _ in 0..3 {
        up.submit(&["hello"]);
    }
    top.wait_until("three runs ended", |shown| numbers(shown, "hello") == [0, 1, 0, 3, 0]);
    let bad = up.submit(&["bad"]);
    top.wait_until("one failed", |shown| numbers(shown, "bad") == [0, 1, 0, 1, 1]);
    top.wait_for("1 since the start");
    // What failed is looked at.
    top.press("6\r");
    top.wait_for(&format!("Run {bad}"));
    top.wait_for("script error, attempt 1");
    top.wait_for("the disk is full");
    top.press("\x1b");
    top.wait_for("4 Workers");
    // So is what is under way, while it goes on.
    let slow = up.submit(&["slow"]);
    top.wait_until("it runs", |shown| numbers(shown, "slow").starts_with(&[1, 1]));
    top.press("5\r");
    top.wait_for(&format!("Run {slow}"));
    top.wait_for("log          pid ");
    top.press("\r?");
    top.wait_for("this help");
    top.press("?p");
    top.wait_for("view paused");
    top.press("p+");
    top.wait_until("it goes on", |shown| shown.contains("every 250ms") && !shown.contains("view paused"));
    the_screen_follows_the_window(&mut top);
    // It goes without a word, and comes back.
    up.kill();
    top.wait_for(" gone ");
    top.wait_for("no instance answers for ");
    top.wait_for("start it: kauri up --home ");
    top.press("4");
    top.wait_until("keys are heard meanwhile", |shown| shown.contains("┏ 4 Workers"));
    let (up, _) = Up::start(&home);
    top.wait_for("start 2");
    top.wait_until("all is well", |shown| shown.contains(" working ") && !shown.contains("no instance"));
    // The run that was under way is taken over, and ends.
    top.wait_until("two attempts", |shown| numbers(shown, "slow") == [0, 1, 0, 2, 1]);
    top.press("q");
    wait_until("the terminal is as it was", || top.is_restored());
    let (status, _, bytes) = top.end();
    assert_eq!(status.code(), Some(0));
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.ends_with("\x1b[0m") && text.contains("\x1b[?1049l\x1b[?25h"), "the screen and the cursor are back");
    up.kill();
}

fn the_screen_follows_the_window(top: &mut Terminal) {
    top.resize(40, 10);
    top.wait_for("5 Runs in flight");
    top.wait_until("one pane", |shown| !shown.contains("Throughput"));
    top.resize(12, 4);
    top.wait_for("too small");
    top.resize(1, 1);
    top.wait_for("t");
    top.resize(80, 24);
    for pane in ["1 Throughput", "2 Latency", "3 Queues", "4 Workers", "5 Runs in flight", "6 Failures"] {
        top.wait_for(pane);
    }
    top.resize(120, 40);
    top.wait_for("1 Throughput");
}

#[test]
fn a_signal_ends_it_and_gives_the_terminal_back_and_no_color_is_obeyed() {
    let home = home("top-signal", HELLO);
    let (up, _) = Up::start(&home);
    for signal in [Signal::TERM, Signal::HUP] {
        let mut top = start(&home, (80, 24), &[("NO_COLOR", "1")]);
        top.wait_for(" working ");
        top.wait_for("hello");
        assert!(!top.is_restored());
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        let is_plain = |(row, column)| {
            let cell = top.screen().cell(row, column).expect("a cell");
            cell.fgcolor() == vt100::Color::Default && cell.bgcolor() == vt100::Color::Default
        };
        assert!(cells.into_iter().all(is_plain), "{}", top.shown());
        top.signal(signal);
        wait_until("the terminal is as it was", || top.is_restored());
        let (status, _, bytes) = top.end();
        assert_eq!(status.code(), Some(0));
        assert!(String::from_utf8_lossy(&bytes).contains("\x1b[?1049l\x1b[?25h"));
    }
    let mut top = start(&home, (80, 24), &[]);
    top.wait_for(" working ");
    let badge = top.screen().cell(0, 12).expect("a cell");
    assert_eq!((badge.fgcolor(), badge.inverse()), (vt100::Color::Idx(2), true), "green where colours are wanted");
    // Ctrl-C, as a terminal without a shell's modes says it.
    top.press("\x03");
    assert_eq!(top.end().0.code(), Some(0));
    // Where the terminal is gone, it cannot go on; that is no panic.
    let mut top = start(&home, (80, 24), &[]);
    top.wait_for(" working ");
    assert_eq!(top.close(), Some(2));
    up.kill();
}

#[test]
fn an_instance_that_is_halted_is_said_to_be_and_keys_are_heard_meanwhile() {
    let home = home("top-halted", HELLO);
    let (up, _) = Up::start(&home);
    let mut top = start(&home, (80, 24), &[]);
    top.wait_for("hello");
    up.signal(Signal::STOP);
    top.wait_for("no answer for ");
    top.press("?");
    top.wait_for("this help");
    top.press("?");
    up.signal(Signal::CONT);
    top.wait_until("it answers again", |shown| shown.contains("4 Workers") && !shown.contains("no answer"));
    top.press("\x1b");
    assert_eq!(top.end().0.code(), Some(0), "escape quits where nothing is open");
    up.kill();
}

#[test]
fn without_an_instance_or_a_terminal_it_says_what_to_do() {
    let home = home("top-nobody", HELLO);
    let nobody = |args: &[&str]| {
        let output = kauri(&[&["top", "--home", home.path()], args].concat(), b"");
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]));
        String::from_utf8(output.stderr).expect("text")
    };
    let expected =
        format!("kauri: no instance runs in {path}: start one with `kauri up --home {path}`\n", path = home.path());
    for args in [&[][..], &["--once"], &["--json"]] {
        assert_eq!(nobody(args), expected);
    }
    let (up, _) = Up::start(&home);
    let line = refusal(&["top", "--home", home.path()], b"");
    assert!(line.contains("top draws on a terminal") && line.contains("--once") && line.contains("--json"), "{line}");
    let line = refusal(&["top", "--every", "10ms", "--home", home.path()], b"");
    assert!(line.contains("expected 100ms or more, found 10ms"), "{line}");
    up.kill();
    // What a killed instance left behind is no instance.
    assert_eq!(nobody(&[]), expected);
    let line = refusal(&["top", "--home", "/nowhere/at/all"], b"");
    assert!(line.contains("there is no such home"), "{line}");
}

#[test]
fn one_screen_is_printed_as_text() {
    let home = home("top-once", &format!("{HELLO}{BAD}"));
    let (up, _) = Up::start(&home);
    for class in ["hello", "hello", "bad"] {
        let run = up.submit(&[class]);
        on(&home, &["runs", "wait", &run]);
    }
    let shown = answer(&["top", "--once", "--every", "100ms", "--home", home.path()], b"");
    assert_eq!(
        (numbers(&shown, "hello"), numbers(&shown, "bad")),
        (vec![0, 1, 0, 2, 0], vec![0, 1, 0, 1, 1]),
        "{shown}"
    );
    assert!(shown.contains("the disk is full") && !shown.contains("q quit"), "{shown}");
    assert!(!shown.contains('\u{1b}') && shown.lines().all(|line| line.trim_end() == line), "{shown:?}");
    up.kill();
}

/// What an instance counts is what happened, each number from one place.
#[test]
fn the_numbers_add_up() {
    let home = home("top-numbers", &format!("{HELLO}{BAD}"));
    fill_messages(&home.runtime());
    let (up, _) = Up::start(&home);
    let runs: Vec<String> = ["hello", "bad", "hello", "bad", "hello"].map(|class| up.submit(&[class])).into();
    for run in &runs {
        on(&home, &["runs", "wait", run]);
    }
    // A run is counted after it is sealed, so whoever waited for it may be earlier.
    wait_until("all are counted", || stats(&home)["classes"][1]["ended"] == 3);
    wait_until("all are counted", || stats(&home)["classes"][0]["ended"] == 2);
    let told = up.ask(&["top"]);
    let count = |name: &str| told["counters"][name].as_u64().expect("a number");
    assert_eq!((count("runs_success"), count("runs_script_error"), &told["running"]), (3, 2, &json!(0)));
    let classes: Vec<(&Value, &Value)> =
        told["classes"].as_array().expect("a list").iter().map(|class| (&class["ended"], &class["failed"])).collect();
    assert_eq!(classes, [(&json!(2), &json!(2)), (&json!(3), &json!(0))]);
    let letters = told["dead_letters"].as_array().expect("a list");
    assert_eq!(
        (letters.len(), &letters[0]["message_id"], &letters[0]["detail"]),
        (1, &json!("poison"), &json!("no such account"))
    );
    assert_eq!(told["queues"]["dead_letters"], 1);
    the_spreads_agree_with_the_numbers(&home);
    // What is purged is not told of any more.
    on(&home, &["dead-letters", "purge", "--all"]);
    let told = objects(&on(&home, &["top", "--json"]).stdout).remove(0);
    assert_eq!((&told["dead_letters"], &told["queues"]["dead_letters"]), (&json!([]), &json!(0)));
    up.kill();
}

fn the_spreads_agree_with_the_numbers(home: &Scratch) {
    let mut client = kauri::control::Client::connect(&home.layout).expect("a socket").expect("an instance");
    let told = client.ask("stats", &json!({ "spreads": true }), std::time::Duration::ZERO).expect("answered");
    for name in ["queued", "runs"] {
        let latency = &told["latency"][name];
        let spread = latency["spread"].as_array().expect("a list");
        let sum: u64 = spread.iter().filter_map(|pair| pair[1].as_u64()).sum();
        assert_eq!(latency["samples"], sum, "{name}: {latency}");
        let longest = spread.last().and_then(|pair| pair[0].as_u64()).expect("some took a time");
        assert!(longest / 1_000 >= latency["max_us"].as_u64().expect("a number"), "{name}: {latency}");
    }
    assert_eq!(stats(home)["latency"]["runs"].get("spread"), None, "only where it is asked for");
    // The last of them is told a moment after its run has ended.
    wait_until("phases are told", || stats(home)["phases"]["release"]["count"] == told["latency"]["runs"]["samples"]);
}
