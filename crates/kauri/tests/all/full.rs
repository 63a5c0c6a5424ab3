//! Instances on a disk that is full, and where they may not write: what is refused says what to do, and what was accepted is done.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use kauri::control::Client;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::homes::Scratch;
use crate::instances::{Up, objects, on, wait_until};

/// Says its name in a file when it has done its work.
const NOTED: &str = r#"
[job.noted]
command = ["sh", "-c", "cat > /dev/null; echo $KAURI_JOB_ID >> done"]
concurrency = 2
"#;

/// How many jobs are submitted at most before the disk must be full.
const JOBS_MAX: usize = 20_000;

/// Submits to an instance until it takes no more: the jobs that it has accepted, and why it took no other. Of one more nobody was told.
fn submit_until_refused(home: &Scratch) -> (BTreeSet<String>, String) {
    let input = "x".repeat(100_000);
    let mut client = Client::connect(&home.layout).expect("ours").expect("it runs");
    let mut accepted = BTreeSet::new();
    for _ in 0..JOBS_MAX {
        let wish = json!({ "class": "noted", "input": input });
        match client.ask("submit", &wish, Duration::ZERO) {
            Ok(done) => accepted.insert(done["job_id"].as_str().expect("an id").to_owned()),
            Err(error) => return (accepted, error.to_string()),
        };
    }
    panic!("{} jobs, and there is still room", accepted.len());
}

/// The disk of a home gets full while an instance works there; then there is room again.
fn check_full_disk(home: &Scratch, narrow: &dyn Fn() -> Command, make_room: &dyn Fn()) {
    let (up, _) = Up::start_by(narrow(), home);
    let (accepted, refusal) = submit_until_refused(home);
    assert!(accepted.len() > 3, "{accepted:?}");
    // What has no room is refused, and the instance goes on; if it could not write down what it had accepted, it has ended by itself.
    up.signal(Signal::TERM);
    let (code, words) = up.last_words();
    let is_told = |words: &str, told: [&str; 2]| told.iter().any(|told| words.contains(told));
    let fixes = ["there is no room: make some", "is there room on the disk"];
    match code {
        Some(2) => assert!(words.contains("store.kauri: ") && is_told(&words, fixes), "{words}"),
        // By these numbers whoever asked in a terminal is told the fix.
        code => {
            let numbers = ["(os error 27)", "(os error 28)"];
            assert!(code == Some(0) && is_told(&refusal, numbers), "{code:?}: {refusal}, {words}");
        }
    }
    // It may be read all the same.
    let listed = on(home, &["runs", "list", "--json", "--limit", "100000"]);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    make_room();
    let (up, _) = Up::start(home);
    wait_until("everything that was accepted has ended", || {
        let done: BTreeSet<String> = successes(home).into_iter().collect();
        accepted.is_subset(&done)
    });
    let done = successes(home);
    let once: BTreeSet<&String> = done.iter().collect();
    assert_eq!(done.len(), once.len(), "a job has ended twice");
    assert!(done.len() <= accepted.len() + 1, "jobs that nobody asked for");
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    let noted = std::fs::read_to_string(home.file("done")).expect("notes");
    assert!(accepted.iter().all(|job| noted.contains(&**job)), "what has ended was done");
    let doctor = on(home, &["doctor", "--deep", "--json"]);
    let report: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("checks").iter();
    let bad: Vec<&Value> = checks.filter(|check| check["status"] == "fail" && check["name"] != "free-space").collect();
    assert!(bad.is_empty(), "{bad:#?}");
}

/// The jobs that have ended well, one for each run that did.
fn successes(home: &Scratch) -> Vec<String> {
    let listed = on(home, &["runs", "list", "--state", "success", "--json", "--limit", "100000"]);
    objects(&listed.stdout).iter().map(|run| run["job_id"].as_str().expect("an id").to_owned()).collect()
}

/// `kauri` where no file grows beyond so many bytes.
fn limited(bytes: u64) -> Command {
    let mut command = Command::new("sh");
    // A write beyond it is to fail, not to kill.
    command.args(["-c", "trap '' XFSZ; ulimit -f $1; shift; exec \"$@\"", "sh", &(bytes / 512).to_string()]);
    command.arg(env!("CARGO_BIN_EXE_kauri"));
    command
}

#[test]
fn a_file_that_may_not_grow_is_told_and_loses_nothing() {
    let home = crate::instances::home("full-limit", NOTED);
    assert!(on(&home, &["submit", "noted"]).status.success());
    let bytes = std::fs::metadata(home.layout.store()).expect("there").len();
    check_full_disk(&home, &|| limited(bytes + (2 << 20)), &|| {});
}

#[test]
fn a_disk_without_room_is_told_and_loses_nothing() {
    const INSIDE: &str = "KAURI_TEST_IN_NAMESPACE";
    // Who is inside uses the folder of who is outside, and leaves it to be removed: nobody removes what a disk is mounted on.
    let inside = std::env::var_os(INSIDE);
    let is_inside = inside.is_some();
    let scratch = match inside {
        Some(path) => Scratch { layout: kauri::Layout::of(path) },
        None => Scratch::new("full-disk"),
    };
    if !is_inside {
        // A disk of a few megabytes needs no rights in a namespace of one's own; where a system has none, the test above remains.
        let may = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
        if may.is_ok_and(|status| status.success()) {
            let mut again = Command::new("unshare");
            again.arg("-rm").arg(std::env::current_exe().expect("a path")).env(INSIDE, scratch.path());
            again.args(["--exact", "full::a_disk_without_room_is_told_and_loses_nothing", "--nocapture"]);
            let output = again.output().expect("it starts");
            let words = [&output.stdout[..], &output.stderr].concat();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&words));
        }
        return;
    }
    let mount = |options: &str| {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs", scratch.path()]).status();
        assert!(status.expect("mount").success(), "{options}");
    };
    mount("size=12m");
    std::fs::write(scratch.layout.config(), NOTED).expect("written");
    let plain = || Command::new(env!("CARGO_BIN_EXE_kauri"));
    check_full_disk(&scratch, &plain, &|| mount("remount,size=400m"));
    // A disk that is full from the start.
    let small = Scratch { layout: kauri::Layout::of(scratch.file("small")) };
    std::fs::create_dir(small.path()).expect("a folder");
    let status = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", small.path()]).status();
    assert!(status.expect("mount").success());
    let output = on(&small, &["up"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && words.contains(small.path()) && words.contains("room"), "{words}");
}

/// Somebody to whom nothing here belongs: whoever may do everything is not kept out by modes.
const STRANGER: u32 = 65_534;

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// `kauri` as somebody who has no more rights than the modes say.
fn as_nobody(args: &[&str], home: &Scratch) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
    command.args(args).args(["--home", home.path()]).current_dir("/").stdin(Stdio::null());
    if is_root() {
        command.uid(STRANGER).gid(STRANGER);
    }
    command.output().expect("the binary starts")
}

/// Gives everything in a home to the one who is to use it.
fn give(home: &Scratch) {
    if is_root() {
        home.image().keys().for_each(|path| chown(path, Some(STRANGER), Some(STRANGER)).expect("given"));
    }
}

/// Takes a path away from the one who is to use the home, but for looking into folders.
fn take(path: &Path, mode: u32) {
    if is_root() {
        chown(path, Some(0), Some(0)).expect("ours");
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

/// A folder that a stranger can reach, if tests run as somebody who could be kept out by nothing.
fn reachable(name: &str) -> Scratch {
    match is_root() {
        false => Scratch::new(name),
        true => {
            let path = std::env::temp_dir().join(format!("kauri-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).expect("a folder");
            let home = Scratch { layout: kauri::Layout::of(path) };
            std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700)).expect("ours");
            home
        }
    }
}

/// Whether somebody without rights could start the binary at all, from where it was built.
fn can_start() -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
    if is_root() {
        command.uid(STRANGER).gid(STRANGER);
    }
    command.arg("--version").current_dir("/").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn where_nobody_may_write_or_read_an_instance_says_which_file_and_what_to_do() {
    let cases: [(&str, &str, u32); 5] = [
        ("home", "", 0o500),
        ("store", "runtime/store.kauri", 0o000),
        ("runtime", "runtime", 0o500),
        ("database", "runtime/runtime.db", 0o000),
        ("lock", "runtime/home.lock", 0o000),
    ];
    for (name, path, mode) in cases {
        let home = reachable(&format!("closed-{name}"));
        if !can_start() {
            return;
        }
        std::fs::write(home.layout.config(), NOTED).expect("written");
        give(&home);
        let mut accepted = None;
        if !path.is_empty() {
            let submitted = as_nobody(&["submit", "noted", "--json"], &home);
            assert!(submitted.status.success(), "{}", String::from_utf8_lossy(&submitted.stderr));
            accepted = objects(&submitted.stdout)[0]["run_id"].as_str().map(str::to_owned);
            // All that an instance makes is there.
            assert!(as_nobody(&["stop"], &home).status.success() && as_nobody(&["resume"], &home).status.success());
        }
        let before = home.image();
        let at = if path.is_empty() { home.layout.home().to_owned() } else { home.file(path) };
        let mode_before = std::fs::metadata(&at).expect("there").permissions().mode();
        take(&at, if at.is_dir() && is_root() { 0o755 } else { mode });
        let output = as_nobody(&["up"], &home);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), words.lines().count()), (Some(2), 1), "{name}: {words}");
        assert!(
            words.contains(home.path()) && words.contains("call as the user to whom it belongs"),
            "{name}: {words}"
        );
        let submit = as_nobody(&["submit", "noted"], &home);
        let words = String::from_utf8_lossy(&submit.stderr).into_owned();
        assert!(submit.status.code() == Some(2) || name == "database", "{name}: {words}");
        give(&home);
        std::fs::set_permissions(&at, std::fs::Permissions::from_mode(mode_before)).expect("ours");
        if name != "database" {
            let bytes = |image: &std::collections::BTreeMap<_, (u32, Vec<u8>, _)>| {
                image.get(&home.layout.store()).map(|(_, bytes, _)| bytes.clone())
            };
            assert_eq!(bytes(&home.image()), bytes(&before), "{name}: nothing was written");
        }
        if let Some(run) = accepted {
            let (up, _) = Up::start(&home);
            assert!(up.say(&["runs", "wait", &run]).starts_with("success in attempt 1"), "{name}");
            up.kill();
        }
    }
}

#[test]
fn a_folder_for_the_outbox_that_is_missing_is_named() {
    let home = crate::instances::home("full-outbox", NOTED);
    let output = on(&home, &["up", "--outbox", "/nowhere/at/all.jsonl"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && words.contains("/nowhere/at/all.jsonl"), "{words}");
}
