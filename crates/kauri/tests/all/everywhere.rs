//! Every command there is, in homes where something is wrong: none panics, each says in one line what is, and nothing is made worse.
//!
//! The commands come from the binary's own help, so that none is forgotten.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::doctor::make_newer;
use crate::homes::{Scratch, fill_messages, fill_runs};
use crate::schemas::all_commands;

/// Arguments for a command, made of its usage. A word that is not known here is to be added.
fn arguments(path: &[String], help: &str, home: &Scratch, aside: &Scratch) -> Vec<String> {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: kauri ")).expect("a usage");
    let words = usage.split_whitespace().skip(path.len()).filter(|word| !word.starts_with('['));
    let mut args: Vec<String> = path.to_vec();
    let name = path.join(" ");
    let text = |path: std::path::PathBuf| path.to_str().expect("text").to_owned();
    let (store, steps, new) = (text(home.layout.store()), text(aside.file("steps.jsonl")), text(aside.file("new")));
    for word in words {
        let argument = match word {
            "<RUN>" => "019d2c5e-7a10-7c3e-8f00-0123456789ab",
            "<FILE>" if path[0] == "store" => &store,
            "<FILE>" => &steps,
            "<JOB>" | "<CLASS>" => "mail",
            "<TABLE>" => "inbox",
            "<KEY>" if path[0] == "store" => "apples",
            "<KEY>" | "<KEYS|--all>" | "<KEYS|--older-than" => "7/12",
            "<SPAN>|--all>" | "<WHY>|--retry|--needs-human>" => continue,
            "<--completed|--failed" => "--retry",
            "<VALUE>" | "<NAME>" | "<ID>" => "monday",
            "<HEX|->" => "4c4d5347",
            "<JSON|->" => "{}",
            "<SHELL>" => "bash",
            "<NEW>" | "<STREAM|->" => &new,
            other => panic!("{name}: say here what {other} could be"),
        };
        args.push(argument.to_owned());
    }
    if help.contains("--home <DIR>") {
        args.extend(["--home".to_owned(), home.path().to_owned()]);
    }
    let more: &[&str] = match &*name {
        "demo" => &["--orders", "20"],
        "bench" => &["--seconds", "0.01", "--dir", aside.path()],
        "runs retry" => &["019d2c5e-7a10-7c3e-8f00-0123456789ab"],
        "store diff" => &[&store],
        "up" => &["--json"],
        _ => &[],
    };
    args.extend(more.iter().map(|word| (*word).to_owned()));
    args
}

/// Runs it to its end. An instance that is up is told to stop.
fn run(args: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
    let mut child = command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut stdout = Vec::new();
    if args[0] == "up" && out.read_until(b'\n', &mut stdout).expect("readable") > 0 {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::TERM).expect("it is ours");
    }
    out.read_to_end(&mut stdout).expect("readable");
    let mut stderr = Vec::new();
    child.stderr.take().expect("a pipe").read_to_end(&mut stderr).expect("readable");
    Output { status: child.wait().expect("a child"), stdout, stderr }
}

/// Runs every command on a home, or each on one of its own. `judge` says what must hold beside what always must.
fn check(name: &str, shared: Option<&Scratch>, judge: &dyn Fn(&str, &Output, &Scratch)) {
    let commands = all_commands();
    assert!(commands.len() > 55, "{}", commands.len());
    for (path, help) in commands {
        let aside = Scratch::new(&format!("beside-{name}"));
        let own = shared.is_none().then(|| Scratch::new(&format!("every-{name}")));
        let home = own.as_ref().or(shared).expect("one of them");
        if name == "missing" {
            std::fs::remove_dir(home.path()).expect("empty");
        }
        let args = arguments(&path, &help, home, &aside);
        let output = run(&args);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!words.contains("panicked") && !said.contains("panicked"), "{args:?}: {words}");
        let code = output.status.code().unwrap_or_else(|| panic!("{args:?} was killed: {words}"));
        assert!((0..=2).contains(&code), "{args:?}: {code}");
        // Whoever is refused is told why, in one line; the doctor has told already.
        if code == 2 && path[0] != "doctor" {
            assert!(words.starts_with("kauri: ") && words.lines().count() == 1, "{args:?}: {words:?}");
        }
        if code == 1 {
            assert!(!said.is_empty() || !words.is_empty(), "{args:?} says no, and not why");
        }
        judge(&path.join(" "), &output, home);
    }
}

/// A home that somebody worked in.
fn filled(name: &str) -> Scratch {
    let home = Scratch::filled(name);
    let runtime = home.runtime();
    fill_runs(&runtime);
    fill_messages(&runtime);
    home
}

/// The commands that look at the store of a home, or into a store's file.
fn needs_store(command: &str) -> bool {
    let of_home = ["up", "submit", "events", "lineage", "inbox", "timers", "leases", "outbox", "doctor", "schema"];
    let folders = ["classes ", "dead-letters ", "runs ", "store "];
    of_home.contains(&command) || folders.iter().any(|folder| command.starts_with(folder))
}

/// Changes bytes of a file where they are.
fn damage(path: &Path, places: impl IntoIterator<Item = u64>) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("there");
    for at in places {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("within");
        file.write_all_at(&[byte[0] ^ 0x5a], at).expect("written");
    }
}

/// How long the store's file is, and when it was changed.
fn stamp(home: &Scratch) -> (u64, std::time::SystemTime) {
    let metadata = std::fs::metadata(home.layout.store()).expect("there");
    (metadata.len(), metadata.modified().expect("a time"))
}

#[test]
fn every_command_answers_in_a_home_that_is_not_there() {
    check("missing", None, &|command, output, home| {
        assert!(["up", "demo"].contains(&command) || !home.layout.home().exists(), "{command} has made a home");
        if needs_store(command) && command != "up" {
            assert_eq!(output.status.code(), Some(2), "{command}");
        }
    });
}

#[test]
fn every_command_answers_in_an_empty_home() {
    check("empty", None, &|command, output, _| {
        if ["up", "doctor", "schema", "runs list", "inbox", "demo", "classes list"].contains(&command) {
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{command}: {words}");
        }
    });
}

#[test]
fn every_command_leaves_a_home_of_a_later_program_alone() {
    let home = filled("every-newer");
    make_newer(&home);
    let before = stamp(&home);
    check("newer", Some(&home), &|command, output, home| {
        if needs_store(command) && command != "store restore" {
            let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
            let is_told = ["upgrade this", "use a newer one"].iter().any(|words| said.contains(words));
            assert!(output.status.code() == Some(2) && is_told, "{command}: {said}");
        }
        assert_eq!(stamp(home), before, "{command} has written to it");
    });
}

#[test]
fn every_command_tells_a_damaged_store_and_leaves_it_alone() {
    let home = filled("every-damaged");
    damage(&home.layout.store(), [100, 4096 + 100]);
    let before = stamp(&home);
    check("damaged", Some(&home), &|command, output, home| {
        if needs_store(command) && command != "store restore" {
            let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
            let expected = if command == "store verify" { Some(1) } else { Some(2) };
            assert_eq!(output.status.code(), expected, "{command}: {said}");
        }
        assert_eq!(stamp(home), before, "{command} has written to it");
    });
}

#[test]
fn every_command_survives_pages_and_lines_that_are_not_what_was_written() {
    let home = filled("every-pages");
    let pages = stamp(&home).0 / 4096;
    // Behind the first two: the log's begin and the end, where trees are.
    damage(&home.layout.store(), (2..32).chain(pages - 24..pages).map(|page| page * 4096 + 50));
    let journal = home.file("runtime/actions_wal.jsonl");
    let text = std::fs::read_to_string(&journal).expect("text");
    std::fs::write(&journal, text.replacen("order-1", "order-7", 1)).expect("written");
    let database = home.file("runtime/runtime.db");
    let bytes = std::fs::metadata(&database).expect("there").len();
    damage(&database, (4096..bytes).step_by(512));
    check("pages", Some(&home), &|command, output, _| {
        if command == "doctor" {
            assert_eq!(output.status.code(), Some(2), "the doctor finds it");
        }
    });
}
