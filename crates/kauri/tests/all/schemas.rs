//! Every command's `--json` is what its schema in `docs/schemas` says.
//!
//! Schemas are open: fields may be added. Here they are not, so that whoever adds one also says so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kauri::runtime::{Atomic, Failure};
use kauri::wire::{MessageRef, Timestamp};
use serde_json::Value;

use rustix::process::Signal;

use crate::homes::{SALES, Scratch, fill_messages, fill_runs, order};
use crate::instances::{self, Up};
use crate::{answer, kauri};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

fn schema(name: &str) -> Value {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What is wrong with a value; nothing if it is as the schema says. A word of a schema that is not known here is a mistake of ours.
fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let words = schema.as_object().unwrap_or_else(|| panic!("{at}: expected an object, found {schema}"));
    words.iter().try_for_each(|(word, rule)| check_word(schema, word, rule, value, at))
}

fn check_word(all: &Value, word: &str, rule: &Value, value: &Value, at: &str) -> Result<(), String> {
    let wrong = |expected: String| Err(format!("{at}: expected {expected}, found {value}"));
    let list = |rule: &Value| rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
    match word {
        "$schema" | "title" | "description" => Ok(()),
        "$ref" => check(&schema(rule.as_str().expect("a file")), value, at),
        "type" if list(rule).iter().any(|name| is_of(name, value)) => Ok(()),
        "type" => wrong(format!("{rule}")),
        "const" if rule == value => Ok(()),
        "enum" if list(rule).contains(value) => Ok(()),
        "const" | "enum" => wrong(format!("{rule}")),
        "format" if rule == "date-time" => match value.as_str() {
            Some(text) if text.len() != 24 || !text.ends_with('Z') || text.as_bytes()[10] != b'T' => {
                wrong("a moment in UTC with milliseconds".to_owned())
            }
            _ => Ok(()),
        },
        "not" if *rule == serde_json::json!({}) => wrong("nothing".to_owned()),
        "anyOf" => {
            let faults: Vec<String> = list(rule).iter().filter_map(|schema| check(schema, value, at).err()).collect();
            if faults.len() < list(rule).len() { Ok(()) } else { wrong(faults.join(" or ")) }
        }
        "items" => match value.as_array() {
            Some(items) => items.iter().try_for_each(|item| check(rule, item, &format!("{at}[]"))),
            None => Ok(()),
        },
        "required" => match list(rule).iter().find(|name| value.get(name.as_str().expect("a name")).is_none()) {
            Some(missing) => wrong(format!("a field {missing}")),
            None => Ok(()),
        },
        "additionalProperties" => match value.as_object() {
            Some(fields) => fields.iter().try_for_each(|(name, value)| check(rule, value, &format!("{at}.{name}"))),
            None => Ok(()),
        },
        "properties" => check_fields(all, rule, value, at),
        _ => panic!("{at}: a word of schemas that the checker does not know: {word}"),
    }
}

fn check_fields(all: &Value, known: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (name, value) in value.as_object().into_iter().flatten() {
        match known.get(name) {
            Some(rule) => check(rule, value, &format!("{at}.{name}"))?,
            None if all.get("additionalProperties").is_some() => {}
            None => return Err(format!("{at}: the schema says nothing of the field {name:?}")),
        }
    }
    Ok(())
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("a type's name") {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("a type that the checker does not know: {other}"),
    }
}

#[test]
fn the_checker_refuses_what_is_not_as_the_schema_says() {
    let good: Value = serde_json::from_str(r#"{"worker":7,"seq":1,"message":{"fault":"x","frame_hex":"00"}}"#).unwrap();
    let inbox = schema("inbox.json");
    assert_eq!(check(&inbox, &good, "inbox"), Ok(()));
    for (field, value) in [("worker", "seven".into()), ("seq", Value::Null), ("message", 1.into()), ("new", 1.into())] {
        let mut bad = good.clone();
        bad[field] = value;
        assert!(check(&inbox, &bad, "inbox").is_err(), "{field}");
    }
    let timers = serde_json::json!({ "due": "yesterday", "seq": 1, "is_due": true, "message": good["message"] });
    assert!(check(&schema("timers.json"), &timers, "timers").unwrap_err().contains("a moment in UTC"));
    assert!(check(&schema("store-put.json"), &good, "put").is_err());
}

/// The commands under one, by its help.
fn commands_under(path: &[String]) -> Vec<String> {
    let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
    let help = answer(&args, b"");
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command that has none under it, with its help.
pub(crate) fn all_commands() -> Vec<(Vec<String>, String)> {
    let (mut found, mut open) = (Vec::new(), vec![Vec::<String>::new()]);
    while let Some(path) = open.pop() {
        let under = commands_under(&path);
        if under.is_empty() {
            let args: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
            found.push((path.clone(), answer(&args, b"")));
        }
        open.extend(under.into_iter().map(|name| [&path[..], &[name]].concat()));
    }
    found
}

/// Every command that prints JSON when asked to.
fn commands_with_json() -> BTreeSet<String> {
    let with_json = all_commands().into_iter().filter(|(_, help)| help.contains("--json"));
    with_json.map(|(path, _)| path.join("-")).collect()
}

/// Runs commands and holds what they print against their schemas.
struct Trial {
    tried: BTreeSet<String>,
    /// Those that have printed something.
    said: BTreeSet<String>,
}

impl Trial {
    /// Runs a command with `--json`.
    fn run(&mut self, path: &str, args: &[&str], input: &[u8]) -> Vec<Value> {
        let name = path.replace(' ', "-");
        let all: Vec<&str> = path.split(' ').chain(args.iter().copied()).chain(["--json"]).collect();
        let output = kauri(&all, input);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(0 | 1)) && words.is_empty(), "{all:?}: {words}");
        let text = String::from_utf8(output.stdout).expect("text");
        let values: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        for value in &values {
            if let Err(fault) = check(&schema(&format!("{name}.json")), value, &name) {
                panic!("{all:?}: {fault}");
            }
        }
        self.said.extend((!values.is_empty()).then(|| name.clone()));
        self.tried.insert(name);
        values
    }
}

#[test]
fn every_command_prints_what_its_schema_says() {
    let mut trial = Trial { tried: BTreeSet::new(), said: BTreeSet::new() };
    try_home(&mut trial);
    try_store(&mut trial);
    try_tools(&mut trial);
    try_instance(&mut trial);
    let wanted = commands_with_json();
    let untried: Vec<&String> = wanted.difference(&trial.tried).collect();
    assert!(untried.is_empty(), "commands with --json that are not tried here, or have no schema: {untried:?}");
    let silent: Vec<&String> = trial.tried.difference(&trial.said).collect();
    assert_eq!(silent, ["store-del", "store-put", "store-unpin"], "these say nothing");
}

fn try_home(trial: &mut Trial) {
    let home = Scratch::filled("schemas");
    let runtime = home.runtime();
    fill_messages(&runtime);
    let [first, _] = fill_runs(&runtime);
    let path = home.path().to_owned();
    // Leases are there while a worker has them.
    let (tell, told) = std::sync::mpsc::channel();
    let at = path.clone();
    let look = move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
        let output = kauri(&["leases", "--json", "--home", &at], b"");
        tell.send(output.stdout).map_err(Failure::retry)?;
        Err(Failure::retry("not now"))
    };
    runtime.worker(SALES, look).tick().expect("a tick");
    let leases = String::from_utf8(told.recv().expect("seen")).expect("text");
    let lease = serde_json::from_str(leases.lines().next().expect("a lease")).expect("JSON");
    assert_eq!(check(&schema("leases.json"), &lease, "leases"), Ok(()));
    trial.said.insert("leases".to_owned());
    runtime.arm(Timestamp(4_000_000_000_000), &order("later")).expect("armed");
    drop(runtime);
    home.leave_orphan("bill-1");
    let at = ["--home", &path];
    let run = first.to_string();
    for path in ["doctor", "schema", "inbox", "timers", "leases", "outbox", "ledger actions", "ledger orphans"] {
        trial.run(path, &at, b"");
    }
    for path in ["audit show", "audit verify", "stop", "resume", "runs list", "dead-letters list"] {
        trial.run(path, &at, b"");
    }
    for path in ["runs show", "runs events", "runs lineage"] {
        trial.run(path, &[&[&*run], &at[..]].concat(), b"");
    }
    trial.run("ledger resolve", &["bill-1", "--retry", "--home", &path], b"");
    let letters = trial.run("dead-letters list", &at, b"");
    let key = letters[0]["key"].as_str().expect("a key").to_owned();
    trial.run("dead-letters show", &[&key, "--home", &path], b"");
    trial.run("dead-letters replay", &[&key, "99/99", "--home", &path], b"");
    trial.run("dead-letters purge", &["99/99", "--home", &path], b"");
    try_outbox(trial);
}

fn try_outbox(trial: &mut Trial) {
    let home = Scratch::new("schemas-outbox");
    let runtime = home.runtime();
    runtime.atomic(|block| block.publish(&order("order-9"))).expect("published");
    drop(runtime);
    trial.run("outbox", &["--home", home.path()], b"");
}

fn try_store(trial: &mut Trial) {
    let scratch = Scratch::new("schemas-store");
    let file = |name: &str| scratch.file(name).to_str().expect("text").to_owned();
    let (store, copy, stream) = (file("a.kauri"), file("b.kauri"), file("a.stream"));
    trial.run(
        "store load",
        &["--create", &store, "fruit"],
        b"{\"key\":\"apples\",\"value\":\"12\"}\n{\"key\":\"pears\",\"value\":\"3\"}\n",
    );
    trial.run("store put", &[&store, "fruit", "plums", "1"], b"");
    trial.run("store del", &[&store, "fruit", "plums"], b"");
    trial.run("store pin", &[&store, "monday"], b"");
    for path in ["store stat", "store tables", "store verify", "store pins"] {
        trial.run(path, &[&store], b"");
    }
    trial.run("store get", &[&store, "fruit", "apples"], b"");
    trial.run("store scan", &[&store, "fruit"], b"");
    trial.run("store scan", &[&store, "fruit", "--keys", "--hex"], b"");
    trial.run("store count", &[&store, "fruit"], b"");
    trial.run("store fork", &[&store, &copy], b"");
    trial.run("store put", &[&copy, "fruit", "plums", "1"], b"");
    trial.run("store put", &[&copy, "nuts", "hazel", "1"], b"");
    trial.run("store diff", &[&store, &copy], b"");
    trial.run("store checkpoint", &[&store, &stream], b"");
    trial.run("store restore", &[&file("c.kauri"), &stream], b"");
    trial.run("store compact", &[&store], b"");
    trial.run("store unpin", &[&store, "monday"], b"");
}

/// Beside an instance, whose own lines have a schema too.
fn try_instance(trial: &mut Trial) {
    let fan = [crate::frames::program().to_str().expect("text"), "fan", "hello"].map(str::to_owned);
    let config = format!(
        "[job.hello]\ncommand = [\"sh\", \"-c\", \"echo hello; test $KAURI_ATTEMPT = 2\"]\n\
         [job.shop]\ncommand = {fan:?}\nprotocol = \"frames\"\nfan_out = {{ depth = 1, exit = \"all\" }}\n"
    );
    let home = instances::home("schemas-up", &config);
    let (up, first) = Up::start(&home);
    let line = |value: &Value| assert_eq!(check(&schema("up.json"), value, "up"), Ok(()));
    line(&first);
    let at = ["--home", home.path()];
    let submitted = trial.run("submit", &[&["hello", "--wait"], &at[..]].concat(), b"");
    let run = submitted[0]["run_id"].as_str().expect("an id").to_owned();
    let shop = trial.run("submit", &[&["shop", "--wait"], &at[..]].concat(), b"");
    assert_eq!((&shop[1]["tree"]["outcome"], &shop[1]["result"]["asked"]), (&"success".into(), &1.into()), "{shop:?}");
    let told = trial.run("runs report", &[&[shop[0]["run_id"].as_str().expect("an id")], &at[..]].concat(), b"");
    assert!(told[0]["tree"]["runs"].as_array().is_some_and(|runs| runs.len() == 3), "{told:?}");
    let on = [&[&*run], &at[..]].concat();
    trial.run("runs retry", &on, b"");
    for path in ["runs wait", "runs tail", "runs cancel", "runs report", "events", "lineage"] {
        trial.run(path, &on, b"");
    }
    trial.run("runs signal", &[&[&*run, "go"], &at[..]].concat(), b"");
    for path in ["classes pause", "classes resume"] {
        trial.run(path, &[&["hello"], &at[..]].concat(), b"");
    }
    trial.run("submit", &[&["nobody"], &at[..]].concat(), b"");
    trial.run("classes list", &at, b"");
    trial.run("top", &at, b"");
    trial.run("config show", &at, b"");
    up.signal(Signal::TERM);
    line(&up.hear("draining"));
    line(&up.hear("ended"));
    assert_eq!(up.code(), Some(0));
    trial.tried.insert("up".to_owned());
    trial.said.insert("up".to_owned());
    trial.run("ledger salvage", &at, b"");
}

fn try_tools(trial: &mut Trial) {
    let (home, scratch) = (Scratch::new("schemas-demo"), Scratch::new("schemas-file"));
    let steps = scratch.file("steps.jsonl").to_str().expect("text").to_owned();
    trial.run("demo", &["--orders", "20", "--home", home.path(), "--record", &steps], b"");
    trial.run("replay show", &[&steps], b"");
    trial.run("replay verify", &[&steps, "--home", home.path()], b"");
    trial.run("bench", &["--seconds", "0.01", "--dir", scratch.path()], b"");
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../kauri-wire/tests/data/wire.jsonl");
    trial.run("frame check", &[cases], b"");
    let hex = answer(&["frame", "encode", r#"{"kind":"command","to_worker":7,"message_id":"a","payload":"b"}"#], b"");
    let shown = answer(&["frame", "decode", hex.trim()], b"");
    let shown = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(check(&schema("frame-decode.json"), &shown, "frame decode"), Ok(()));
}
