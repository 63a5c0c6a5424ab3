//! What is for its owner alone: files and folders whatever the umask says, and what a variable holds.

use std::process::Command;

use rustix::process::Signal;

use crate::homes::Scratch;
use crate::instances::{Up, home, objects, stats};

/// `kauri` where every file that is made is for everybody, unless it says otherwise.
fn open_handed() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kauri")]);
    command
}

/// What others could use, but for these.
fn open_paths(home: &Scratch, others: &[&str]) -> Vec<String> {
    let image = home.image();
    let ours = image.iter().filter(|(path, _)| !others.iter().any(|name| path.ends_with(name)));
    let open = ours.filter(|(_, (mode, ..))| mode & 0o077 != 0);
    open.map(|(path, (mode, ..))| format!("{} {mode:o}", path.display())).collect()
}

#[test]
fn everything_that_an_instance_makes_is_for_its_owner_alone() {
    let outer = Scratch::new("private-up");
    let home = Scratch { layout: kauri::Layout::of(outer.file("home")) };
    // The home is made by it, too.
    let (up, _) = Up::start_by(open_handed(), &home);
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    assert_eq!(open_paths(&home, &[]), [""; 0]);
    let framed = std::path::PathBuf::from(env!("CARGO_BIN_EXE_kauri")).with_file_name("examples").join("framed");
    let config = format!("[job.framed]\ncommand = [{framed:?}]\nprotocol = \"frames\"\n");
    std::fs::write(home.layout.config(), config).expect("written");
    let (up, _) = Up::start_by(open_handed(), &home);
    assert!(up.say(&["submit", "framed", "--wait"]).contains("success"));
    up.say(&["stop", "--reason", "to see its file"]);
    up.hear("stopped");
    // While it runs, its socket and its logs are there as well.
    assert_eq!(open_paths(&home, &["kauri.toml"]), [""; 0]);
    assert!(home.layout.socket().exists() && home.file("runtime/KILL_SWITCH").exists());
    up.kill();
    assert_eq!(open_paths(&home, &["kauri.toml"]), [""; 0]);
}

#[test]
fn stores_and_streams_that_are_made_by_hand_are_for_their_owner_alone() {
    let folder = Scratch::new("private-store");
    let path = |name: &str| folder.file(name).to_str().expect("text").to_owned();
    let (store, stream, copy, fork) = (path("a.kauri"), path("a.stream"), path("b.kauri"), path("c.kauri"));
    let calls: [&[&str]; 5] = [
        &["store", "put", "--create", &store, "fruit", "apples", "12"],
        &["store", "checkpoint", &store, &stream],
        &["store", "restore", &copy, &stream],
        &["store", "fork", &store, &fork],
        &["store", "compact", &store],
    ];
    for args in calls {
        let output = open_handed().args(args).output().expect("it starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(open_paths(&folder, &[]), [""; 0]);
}

#[test]
fn everything_that_a_demo_makes_is_for_its_owner_alone() {
    let outer = Scratch::new("private-demo");
    let home = Scratch { layout: kauri::Layout::of(outer.file("home")) };
    let record = outer.file("steps.jsonl");
    let mut demo = open_handed();
    demo.args(["demo", "--orders", "20", "--home", home.path(), "--record"]).arg(&record);
    assert!(demo.output().expect("it starts").status.success());
    assert_eq!(open_paths(&outer, &[]), [""; 0]);
}

#[test]
fn what_a_variable_holds_is_used_and_never_shown() {
    const SECRET: &str = "hunter2-is-no-password";
    let config = r#"
[job.quiet]
command = ["sh", "-c", "test \"$0\" = \"$TOKEN\" && test -n \"$0\"", "${SHOP_SECRET}"]
env = { TOKEN = "${SHOP_SECRET}" }
schedule = { every = "30d", input = { key = "${SHOP_SECRET}" } }
[job.missing]
command = ["/nowhere/at/all", "${SHOP_SECRET}"]
retry = { attempts = 1 }
"#;
    let home = home("private-secret", config);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
    command.env("SHOP_SECRET", SECRET);
    let (up, first) = Up::start_by(command, &home);
    assert!(!first.to_string().contains(SECRET));
    let on = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kauri"));
        command.args(args).args(["--home", home.path()]).env("SHOP_SECRET", SECRET);
        let output = command.output().expect("it starts");
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    };
    let good = objects(on(&["submit", "quiet", "--json"]).as_bytes()).remove(0);
    let good = good["run_id"].as_str().expect("an id").to_owned();
    assert!(on(&["runs", "wait", &good]).starts_with("success"), "the command and its environment have it");
    let bad = objects(on(&["submit", "missing", "--json"]).as_bytes()).remove(0);
    let bad = bad["run_id"].as_str().expect("an id").to_owned();
    let waited = on(&["runs", "wait", &bad]);
    assert!(waited.contains("/nowhere/at/all"), "{waited}");
    let mut said = vec![waited, stats(&home).to_string()];
    let questions: [&[&str]; 10] = [
        &["config", "show"],
        &["config", "show", "--json"],
        &["classes", "list", "--json"],
        &["doctor"],
        &["audit", "show", "--json"],
        &["ledger", "actions", "--json"],
        &["runs", "list", "--json"],
        &["runs", "report", &good],
        &["runs", "report", &bad],
        &["events", &bad, "--json"],
    ];
    said.extend(questions.iter().map(|args| on(args)));
    for words in &said {
        assert!(!words.contains(SECRET), "{words}");
    }
    assert!(said.iter().any(|words| words.contains("${SHOP_SECRET}")), "it is shown as it is written");
    up.signal(Signal::TERM);
    assert_eq!(up.code(), Some(0));
    // What the file says of a variable that is gone is told by its name.
    let refused = crate::instances::on(&home, &["up"]);
    let words = String::from_utf8(refused.stderr).expect("text");
    assert!(refused.status.code() == Some(2) && words.contains("SHOP_SECRET"), "{words}");
}
