use std::path::PathBuf;

use kauri::tree::{Store, Table, TtlTable, Write, WriteTtl};
use kauri::wire::{Seq, TimerKey, Timestamp};

use crate::{answer, kauri, refusal};

const STOCK: Table<str, u64> = Table::new("stock");
const SCORES: Table<i32, str> = Table::new("scores");
const TIMERS: Table<TimerKey, ()> = Table::new("timers");

/// A folder that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the folder for temporary files can be written");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }

    /// A store of typed tables.
    fn filled(&self, name: &str) -> String {
        let path = self.path(name);
        let store = Store::open(&path).expect("a new store");
        let mut txn = store.begin();
        for (fruit, count) in [("apples", 12), ("apricots", 3), ("pears", 5)] {
            txn.put(&STOCK, fruit, count).expect("room");
        }
        for (score, who) in [(-7, "Ann\tB"), (3, "Bob")] {
            txn.put(&SCORES, score, who).expect("room");
        }
        for due in [30, 10] {
            let key = TimerKey { due: Timestamp(due), seq: Seq(1) };
            txn.put(&TIMERS, key, ()).expect("room");
        }
        txn.commit().expect("durable");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn store(args: &[&str]) -> String {
    answer(&[&["store"], args].concat(), b"")
}

fn code(args: &[&str]) -> Option<i32> {
    kauri(&[&["store"], args].concat(), b"").status.code()
}

/// The line of a command that finds nothing, which is an answer.
fn absence(args: &[&str]) -> String {
    let output = kauri(&[&["store"], args].concat(), b"");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn typed_rows_are_read_as_people_write_them() {
    let folder = Folder::new("store-read");
    let file = &folder.filled("store");
    assert_eq!(store(&["get", file, "stock", "apples"]), "12\n");
    assert_eq!(store(&["get", file, "stock", "apples", "--json"]), "{\"key\":\"apples\",\"value\":\"12\"}\n");
    assert_eq!(store(&["get", file, "stock", "6170706c6573", "--hex"]), "0c00000000000000\n");
    let line = absence(&["get", file, "stock", "plums"]);
    assert_eq!(line, format!("kauri: {file}: there is no row `plums` in table `stock`\n"));
    assert_eq!(store(&["scan", file, "scores"]), "-7\tAnn\\tB\n3\tBob\n");
    assert_eq!(store(&["scan", file, "scores", "--reverse", "--limit", "1"]), "3\tBob\n");
    assert_eq!(store(&["scan", file, "stock", "--prefix", "ap", "--keys"]), "apples\napricots\n");
    assert_eq!(store(&["scan", file, "stock", "--from", "b", "--json"]), "{\"key\":\"pears\",\"value\":\"5\"}\n");
    assert_eq!(store(&["count", file, "stock"]), "3\n");
    assert_eq!(store(&["count", file, "stock", "--from", "apq", "--until", "q", "--json"]), "{\"rows\":2}\n");
    assert_eq!(store(&["count", file, "timers"]), "2\n");
    assert_eq!(store(&["scan", file, "timers"]).lines().count(), 2);
    let tables = store(&["tables", file]);
    assert_eq!(tables.lines().nth(1), Some("stock\t3\ttext to u64"));
    assert_eq!(store(&["tables", file, "--json"]).lines().count(), 3);
    assert!(store(&["stat", file]).contains("rows"));
    let stat: serde_json::Value = serde_json::from_str(&store(&["stat", file, "--json"])).expect("JSON");
    assert_eq!((&stat["tables"], &stat["rows"], &stat["page_bytes"]), (&3.into(), &7.into(), &4096.into()));
}

#[test]
fn rows_are_written_and_removed() {
    let folder = Folder::new("store-write");
    let file = &folder.filled("store");
    assert_eq!(store(&["put", file, "stock", "plums", "99"]), "");
    assert_eq!(store(&["get", file, "stock", "plums"]), "99\n");
    assert_eq!(store(&["del", file, "stock", "plums"]), "");
    let line = absence(&["del", file, "stock", "plums"]);
    assert_eq!(line, format!("kauri: {file}: there is no row `plums` in table `stock`\n"));
    assert_eq!(store(&["put", file, "new", "a\\x00b", "c"]), "");
    assert_eq!(store(&["scan", file, "new"]), "a\\x00b\tc\n");
    // What scan prints, load reads, in either form.
    for form in [&[][..], &["--json"], &["--hex"], &["--hex", "--json"]] {
        let rows = store(&[&["scan", file, "stock"], form].concat());
        let copy = folder.path(&format!("copy{}", form.len() + rows.len()));
        let made = answer(&[&["store", "load", "--create", &copy, "stock"], form].concat(), rows.as_bytes());
        assert!(made.contains('3'), "{made}");
        let expected = store(&["scan", file, "stock", "--keys", "--hex"]);
        assert_eq!(store(&["scan", &copy, "stock", "--keys", "--hex"]), expected);
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let folder = Folder::new("store-wrong");
    let file = &folder.filled("store");
    let missing = &folder.path("missing");
    let (nowhere, this) = (&folder.path("nowhere/file"), &folder.path(""));
    let cases: [(&[&str], &str); 14] = [
        (&["get", file, "nothing", "a"], "there are: scores, stock, timers"),
        (&["get", file, "stock"], "(see `kauri store get --help`)"),
        (&["checkpoint", file, file], "expected no file there yet"),
        (&["fork", file, nowhere], "there is no folder `"),
        (&["put", "--create", this, "a", "b", "c"], "expected a file, found a folder"),
        (&["stat", this], "expected a file, found a folder"),
        (&["put", missing, "a", "b", "c"], "there is no such file; with --create it is made"),
        (&["get", file, "nothing", "a"], "there is no table `nothing`"),
        (&["put", file, "stock", "plums", "many"], "the value: expected a number (u64), found \"many\""),
        (&["get", file, "scores", "3x"], "the key: expected a number (i32)"),
        (&["get", file, "stock", "xyz", "--hex"], "not hexadecimal"),
        (&["get", file, "timers", "a"], "in an order that only their type knows"),
        (&["put", file, "timers", "a", ""], "in an order that only their type knows"),
        (&["restore", file, "-"], "expected no file"),
    ];
    for (args, hint) in cases {
        let line = refusal(&[&["store"], args].concat(), b"");
        assert!(line.contains(hint), "{args:?}: {line}");
    }
    // Whatever is asked of a file that is missing, the answer is the same, and none is made.
    let cases: [&[&str]; 12] = [
        &["stat", missing],
        &["tables", missing],
        &["get", missing, "stock", "a"],
        &["scan", missing, "stock"],
        &["count", missing, "stock"],
        &["del", missing, "stock", "a"],
        &["verify", missing],
        &["diff", file, missing],
        &["fork", missing, "copy"],
        &["checkpoint", missing, "-"],
        &["restore", &folder.path("new"), missing],
        &["compact", missing],
    ];
    for args in cases {
        let line = refusal(&[&["store"], args].concat(), b"");
        assert_eq!(line.trim_end(), format!("kauri: {missing}: there is no such file"), "{args:?}");
    }
    assert!(
        !std::fs::exists(missing).expect("the folder") && !std::fs::exists(folder.path("new")).expect("the folder")
    );
    let line = refusal(&["store", "load", file, "stock"], b"plums\t1\nno tab\n");
    assert!(line.contains("line 2: expected a key, a tab and a value"), "{line}");
    assert_eq!(store(&["count", file, "stock"]), "3\n", "all or none");
}

#[test]
fn a_missing_store_is_made_if_that_is_asked_for() {
    let folder = Folder::new("store-create");
    let file = &folder.path("new");
    assert_eq!(store(&["put", "--create", file, "fruit", "apples", "12"]), "");
    assert_eq!(store(&["put", "--create", file, "fruit", "pears", "5"]), "");
    assert_eq!(store(&["scan", file, "fruit"]), "apples\t12\npears\t5\n");
}

#[test]
fn rows_that_expire_are_not_written_by_hand() {
    const SESSIONS: TtlTable<str, u64> = TtlTable::new("sessions");
    let folder = Folder::new("store-expiring");
    let file = &folder.filled("store");
    let opened = Store::open(file).expect("it was made");
    let mut txn = opened.begin();
    txn.put_until(&SESSIONS, "ann", 7, 1_000).expect("room");
    txn.commit().expect("durable");
    drop(opened);
    let cases: [&[&str]; 3] =
        [&["put", file, "sessions", "bob", "1"], &["del", file, "sessions", "\\x00ann"], &["load", file, "sessions"]];
    for args in cases {
        let line = refusal(&[&["store"], args].concat(), b"");
        assert!(line.contains("table `sessions` has rows that expire, which only programs write"), "{args:?}: {line}");
    }
    assert_eq!(store(&["count", file, "sessions"]), "2\n", "the row and when it expires");
}

#[test]
fn nothing_is_said_of_progress_where_nobody_watches() {
    let folder = Folder::new("store-progress");
    let file = &folder.filled("store");
    let rows: String = (0..5_000).map(|number| format!("{number:06}\tvalue\n")).collect();
    let (fork, stream, restored) = (&folder.path("fork"), &folder.path("stream"), &folder.path("restored"));
    let cases: [&[&str]; 7] = [
        &["load", file, "many"],
        &["verify", file],
        &["fork", file, fork],
        &["diff", file, fork],
        &["checkpoint", file, stream],
        &["restore", restored, stream],
        &["compact", file],
    ];
    for args in cases {
        let output = kauri(&[&["store"], args].concat(), rows.as_bytes());
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    }
}

#[test]
fn stores_are_copied_compared_and_checked() {
    let folder = Folder::new("store-copy");
    let file = &folder.filled("store");
    let (fork, stream, restored) = (&folder.path("fork"), &folder.path("stream"), &folder.path("restored"));
    let content = store(&["fork", file, fork, "--page-bytes", "512"]);
    assert_eq!(store(&["diff", file, fork]), "");
    let told = store(&["checkpoint", file, stream]);
    assert!(told.starts_with("3 tables, 7 rows, ") && told.ends_with(&content), "{told}");
    assert_eq!(store(&["restore", restored, stream, "--page-bytes", "65536"]), "3 tables, 7 rows\n");
    assert_eq!(store(&["diff", file, restored]), "");
    // Through a pipe it is the same.
    let piped = kauri(&["store", "checkpoint", file, "-"], b"").stdout;
    assert_eq!(piped, std::fs::read(stream).expect("it was written"));
    let again = folder.path("again");
    assert_eq!(answer(&["store", "restore", &again, "-", "--json"], &piped), "{\"tables\":3,\"rows\":7}\n");
    let cut = refusal(&["store", "restore", &folder.path("cut"), "-"], &piped[..piped.len() - 1]);
    assert!(cut.contains("of the checkpoint stream: expected more of the stream"), "{cut}");
    let names = std::fs::read_dir(&folder.0).expect("the folder").count();
    assert_eq!(names, 5, "nothing is left of what was refused");

    store(&["put", fork, "stock", "apples", "13"]);
    store(&["del", fork, "scores", "3"]);
    store(&["put", fork, "new", "a", "b"]);
    let output = kauri(&["store", "diff", file, fork], b"");
    let printed = String::from_utf8(output.stdout).expect("text");
    let expected =
        "+\tnew\t(bytes to bytes)\n+\tnew\ta\tb\n-\tscores\t3\tBob\n-\tstock\tapples\t12\n+\tstock\tapples\t13\n";
    assert_eq!((output.status.code(), &*printed), (Some(1), expected));
    assert_eq!(code(&["diff", file, fork, "--json"]), Some(1));
}

#[test]
fn damage_is_found_and_files_are_made_shorter() {
    let folder = Folder::new("store-verify");
    let file = &folder.filled("store");
    assert!(store(&["verify", file]).starts_with("sound: 3 tables, 7 rows in "));
    assert!(store(&["verify", file, "--json"]).starts_with("{\"sound\":true,"));
    let rows: String = (0..20_000).map(|number| format!("{number:06}\tvalue\n")).collect();
    answer(&["store", "load", file, "many"], rows.as_bytes());
    let told = store(&["compact", file, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let length = std::fs::metadata(file).expect("the file").len();
    assert!(told["bytes_after"].as_u64() <= told["bytes_before"].as_u64(), "{told}");
    assert_eq!(told["bytes_after"].as_u64(), Some(length));
    assert!(store(&["verify", file]).starts_with("sound: 4 tables, 20007 rows"));

    let mut bytes = std::fs::read(file).expect("the file");
    let at = bytes.len() - 4096 * 3 + 100;
    bytes[at] ^= 1;
    std::fs::write(file, bytes).expect("the file");
    let output = kauri(&["store", "verify", file], b"");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("damaged: page "), "{output:?}");
}

/// Writes a row of the stock.
fn restock(file: &str, fruit: &str, count: u64) {
    store(&["put", file, "stock", fruit, &count.to_string()]);
}

#[test]
fn pins_are_made_listed_looked_at_and_taken_away() {
    let folder = Folder::new("store-pins");
    let file = &folder.filled("store");
    assert_eq!(store(&["pin", file, "monday", "--when", "77"]), "monday\t1970-01-01T00:00:00.077Z\t3 tables, 7 rows\n");
    restock(file, "apples", 1);
    store(&["del", file, "stock", "pears"]);
    assert_eq!(store(&["pins", file]), "monday\t1970-01-01T00:00:00.077Z\t3 tables, 7 rows\n");
    let pins = store(&["pins", file, "--json"]);
    assert!(pins.starts_with("{\"pin\":\"monday\",\"version\":"), "{pins}");
    assert!(pins.ends_with(",\"when\":77,\"tables\":3,\"rows\":7}\n"), "{pins}");

    let monday = ["--as-of", "monday"];
    let then = |args: &[&str]| store(&[args, &monday].concat());
    assert_eq!(store(&["get", file, "stock", "apples"]), "1\n");
    assert_eq!(then(&["get", file, "stock", "apples"]), "12\n");
    assert_eq!(then(&["get", file, "stock", "apples", "--json"]), "{\"key\":\"apples\",\"value\":\"12\"}\n");
    assert_eq!(then(&["scan", file, "stock"]), "apples\t12\napricots\t3\npears\t5\n");
    assert_eq!((store(&["count", file, "stock"]), then(&["count", file, "stock"])), ("2\n".into(), "3\n".into()));
    assert_eq!(then(&["tables", file]).lines().nth(1), Some("stock\t3\ttext to u64"));
    let verified = store(&["verify", file]);
    assert!(verified.starts_with("sound: 3 tables, 6 rows") && verified.contains("; 1 pin keeps"), "{verified}");

    let changes = kauri(&["store", "diff", file, "--as-of", "monday"], b"");
    assert_eq!(changes.status.code(), Some(1));
    let expected = "-\tstock\tapples\t12\n+\tstock\tapples\t1\n-\tstock\tpears\t5\n";
    assert_eq!(String::from_utf8_lossy(&changes.stdout), expected);
    let fork = &folder.path("fork");
    then(&["fork", file, fork]);
    assert_eq!(then(&["diff", file, fork]), "");
    assert_eq!(code(&["diff", file, fork]), Some(1));

    assert!(refusal(&["store", "pin", file, "monday"], b"").contains("expected no pin `monday` yet"));
    assert!(
        refusal(&["store", "get", file, "stock", "apples", "--as-of", "friday"], b"")
            .contains("there is no pin `friday`; there are: monday")
    );
    assert!(
        refusal(&["store", "checkpoint", file, "-", "--since", "friday"], b"").contains("there is no pin `friday`")
    );
    assert_eq!(code(&["unpin", file, "monday"]), Some(0));
    assert_eq!(
        absence(&["unpin", file, "monday"]),
        format!("kauri: {file}: there is no pin `monday`; there are none\n")
    );
    assert_eq!(
        (store(&["pins", file]), store(&["verify", file])),
        (String::new(), verified.split(';').next().unwrap().to_owned() + "\n")
    );
}

#[test]
fn what_changed_since_a_pin_brings_a_copy_up_to_date() {
    let folder = Folder::new("store-since");
    let (file, copy) = (&folder.filled("store"), &folder.path("copy"));
    store(&["pin", file, "sent"]);
    restock(file, "plums", 9);
    let (whole, changes) = (&folder.path("whole"), &folder.path("changes"));
    store(&["checkpoint", file, whole, "--as-of", "sent"]);
    let told = store(&["checkpoint", file, changes, "--since", "sent", "--json"]);
    assert!(told.starts_with("{\"tables\":1,\"rows\":1,"), "{told}");
    store(&["restore", copy, whole]);
    assert_eq!(
        (store(&["diff", file, copy, "--as-of", "sent"]), code(&["diff", file, copy])),
        (String::new(), Some(1))
    );
    store(&["restore", copy, changes, "--update"]);
    assert_eq!(store(&["diff", copy, file]), "");
    assert!(
        refusal(&["store", "restore", copy, changes, "--update"], b"")
            .contains("the stream has what changed since content")
    );
}

/// The fields that the documentation names for a command, in the order of the alphabet.
fn documented(command: &str) -> Vec<String> {
    let page = include_str!("../../../../docs/cli-json.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| `{command}` |"))).expect("a row of the table");
    // What follows a semicolon is about other cases; what is in parentheses says what a field is.
    let cell = row.split('|').nth(3).expect("three cells").split(';').next().expect("a first part");
    let mut depth = 0;
    let plain: String = cell
        .chars()
        .filter(|char| {
            depth += i32::from(*char == '(') - i32::from(*char == ')');
            depth == 0
        })
        .collect();
    let mut fields: Vec<String> = plain.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    fields.sort();
    fields
}

#[test]
fn what_is_printed_as_json_is_what_is_documented() {
    let folder = Folder::new("store-json");
    let file = &folder.filled("store");
    let (fork, stream, restored) = (&folder.path("fork"), &folder.path("stream"), &folder.path("restored"));
    let commands: [&[&str]; 14] = [
        &["stat", file],
        &["tables", file],
        &["get", file, "stock", "apples"],
        &["scan", file, "stock"],
        &["count", file, "stock"],
        &["load", file, "more"],
        &["verify", file],
        &["pin", file, "monday"],
        &["pins", file],
        &["fork", file, fork],
        &["checkpoint", file, stream],
        &["restore", restored, stream],
        &["compact", file],
        &["diff", file, restored],
    ];
    for args in commands {
        if args[0] == "diff" {
            restock(file, "apples", 1);
        }
        let output = kauri(&[&["store"], args, &["--json"]].concat(), b"{\"key\":\"a\",\"value\":\"b\"}\n");
        assert!(output.stderr.is_empty(), "{args:?}: {output:?}");
        for line in String::from_utf8(output.stdout).expect("text").lines() {
            let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).expect("an object");
            let mut fields: Vec<String> = object.keys().cloned().collect();
            fields.sort();
            let expected = if args[0] == "pin" { documented("pins") } else { documented(args[0]) };
            assert_eq!(fields, expected, "{args:?}: {line}");
        }
    }
}
