use std::os::unix::fs::{FileExt, PermissionsExt};

use serde_json::Value;
use twox_hash::XxHash3_64;

use crate::homes::{Scratch, fill_messages, fill_runs};
use crate::{kauri, refusal};

/// The names of all checks, in their order.
const NAMES: [&str; 29] = [
    "home",
    "modes",
    "file-system",
    "free-space",
    "lock",
    "kill-switch",
    "store",
    "schema",
    "leases",
    "timers",
    "outbox",
    "dead-letters",
    "runs",
    "clock",
    "journal",
    "orphans",
    "writer-queue",
    "database",
    "audit",
    "anchors",
    "I1",
    "I2",
    "I3",
    "I4",
    "I5",
    "I6",
    "I7",
    "I8",
    "I9",
];

/// What the doctor says, with more arguments. Its exit code is that of the worst check; text and JSON agree.
fn examine(home: &Scratch, more: &[&str]) -> Value {
    let args = [&["doctor", "--home", home.path(), "--json"], more].concat();
    let output = kauri(&args, b"");
    assert_eq!(output.stderr, b"", "{args:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let checks = report["checks"].as_array().expect("checks");
    let worst = |status: &str| checks.iter().any(|check| check["status"] == status);
    let (code, verdict) = if worst("fail") {
        (2, "fail")
    } else if worst("warn") {
        (1, "warn")
    } else {
        (0, "ok")
    };
    assert_eq!((output.status.code(), report["verdict"].as_str()), (Some(code), Some(verdict)), "{report:#}");
    for status in ["ok", "warn", "fail", "skip"] {
        let count = checks.iter().filter(|check| check["status"] == status).count();
        assert_eq!(report["counts"][status], count);
    }
    for check in checks {
        let needs_todo = check["status"] == "warn" || check["status"] == "fail";
        assert_eq!(check["todo"].is_string(), needs_todo, "{check}");
        assert!(check["what"].as_str().is_some_and(|what| !what.is_empty() && !what.contains('\n')), "{check}");
    }
    report
}

fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check {name} in {report:#}"))
}

/// Asserts how a check stands, and that its line says this.
fn expect(report: &Value, name: &str, status: &str, says: &str) {
    let found = check(report, name);
    assert_eq!(found["status"], status, "{found}");
    assert!(found.to_string().contains(says), "{name}: expected {says:?} in {found}");
}

fn names(report: &Value) -> Vec<&str> {
    report["checks"].as_array().expect("checks").iter().filter_map(|check| check["name"].as_str()).collect()
}

#[test]
fn a_home_that_is_not_there_fails_in_one_line() {
    let home = Scratch::new("doctor-missing");
    std::fs::remove_dir(home.path()).expect("empty");
    let report = examine(&home, &[]);
    assert_eq!(names(&report), ["home"]);
    expect(&report, "home", "fail", "there is no such directory");
    std::fs::write(home.path(), b"a file").expect("written");
    expect(&examine(&home, &["--deep"]), "home", "fail", "expected a directory");
    std::fs::remove_file(home.path()).expect("there");
}

#[test]
fn an_empty_home_is_left_empty_and_its_skips_are_no_passes() {
    let home = Scratch::new("doctor-empty");
    let before = home.image();
    for more in [&[][..], &["--deep"], &["--fix"]] {
        let report = examine(&home, more);
        assert_eq!(names(&report), NAMES);
        let passed = NAMES.iter().filter(|name| check(&report, name)["status"] == "ok").count();
        assert!(passed <= 6, "{report:#}");
        expect(&report, "store", "skip", "no store yet");
        expect(&report, "I1", "skip", "no database yet");
        expect(&report, "clock", "skip", "nothing is recorded");
    }
    assert_eq!(home.image(), before);
}

#[test]
fn a_sound_home_passes_every_check_and_is_not_touched() {
    let home = Scratch::filled("doctor-sound");
    let before = home.image();
    for more in [&[][..], &["--deep"]] {
        let report = examine(&home, more);
        assert_eq!(names(&report), NAMES);
        for name in NAMES.iter().filter(|name| **name != "free-space" && **name != "I9") {
            assert_eq!(check(&report, name)["status"], "ok", "{}", check(&report, name));
        }
        expect(&report, "I9", "skip", "nobody has a lock");
        expect(&report, "schema", "ok", "after 1 start");
    }
    assert_eq!(home.image(), before);
    let text = String::from_utf8(kauri(&["doctor", "--home", home.path()], b"").stdout).expect("text");
    let shown: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(NAMES.iter().all(|name| shown.contains(name)), "{text}");
}

#[test]
fn what_waits_in_the_store_is_counted() {
    let home = Scratch::filled("doctor-waiting");
    let runtime = home.runtime();
    fill_runs(&runtime);
    fill_messages(&runtime);
    drop(runtime);
    let before = home.image();
    let report = examine(&home, &[]);
    expect(&report, "timers", "ok", "1 timer, 1 overdue");
    expect(&report, "dead-letters", "warn", "1 dead letter, 1 buried in the last 24 h");
    expect(&report, "dead-letters", "warn", "1: failure budget spent");
    expect(&report, "outbox", "ok", "0 messages");
    expect(&report, "runs", "ok", "2 runs, 0 running");
    assert_eq!(home.image(), before);
}

#[test]
fn orphans_are_named_and_what_to_do() {
    let home = Scratch::filled("doctor-orphans");
    home.leave_orphan("bill-9");
    expect(&examine(&home, &[]), "orphans", "warn", "1 action without an end");
    // The next start gives it a row.
    drop(home.ledger());
    let report = examine(&home, &[]);
    expect(&report, "orphans", "warn", "bill-9: pay the bill");
    expect(&report, "orphans", "warn", "kauri ledger resolve");
    expect(&report, "I3", "warn", "bill-9");
    expect(&report, "I1", "ok", "");
}

#[test]
fn a_holder_is_named_and_nothing_is_fixed_under_it() {
    let home = Scratch::filled("doctor-held");
    let ledger = home.ledger();
    let this = format!("held by process {}", std::process::id());
    let report = examine(&home, &[]);
    expect(&report, "lock", "ok", &this);
    expect(&report, "writer-queue", "skip", "alone knows");
    expect(&report, "I1", "skip", "somebody works here");
    expect(&report, "I9", "ok", "");
    expect(&report, "database", "ok", "whole");
    let line = refusal(&["doctor", "--home", home.path(), "--fix"], b"");
    assert!(line.contains("nothing was fixed") && line.contains(&format!("process {}", std::process::id())), "{line}");
    drop(ledger);
    expect(&examine(&home, &[]), "lock", "ok", "free");
}

#[test]
fn a_lock_that_a_crash_left_is_stale_until_it_is_fixed() {
    let home = Scratch::filled("doctor-stale");
    std::fs::rename(home.file("runtime/home.lock.meta.new"), home.file("runtime/home.lock.meta")).expect("there");
    expect(&examine(&home, &[]), "lock", "warn", "ended without giving it back");
    let report = examine(&home, &["--fix"]);
    expect(&report, "lock", "ok", "free");
    assert!(report["fixed"].to_string().contains("lock"), "{report:#}");
}

#[test]
fn torn_tails_are_told_and_cut_off_when_asked() {
    let home = Scratch::filled("doctor-torn");
    let journal = home.file("runtime/actions_wal.jsonl");
    let whole = std::fs::read(&journal).expect("there");
    std::fs::write(&journal, [&whole[..], b"{\"action_id\":\"ha"].concat()).expect("written");
    expect(&examine(&home, &[]), "journal", "warn", "torn tail of 16 bytes");
    assert_ne!(std::fs::read(&journal).expect("there"), whole, "only looked at");
    let report = examine(&home, &["--fix"]);
    expect(&report, "journal", "ok", "2 lines");
    assert!(report["fixed"].to_string().contains("torn tail of 16 bytes was cut off the journal"), "{report:#}");
    assert_eq!(std::fs::read(&journal).expect("there"), whole);
}

#[test]
fn modes_are_narrowed_when_asked_and_only_those_of_ours() {
    let home = Scratch::filled("doctor-modes");
    let others = home.file("notes.txt");
    std::fs::write(&others, b"mine").expect("written");
    let widen = |path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    widen(others.clone(), 0o644);
    widen(home.file("runtime/store.kauri"), 0o640);
    widen(home.file("audit"), 0o755);
    let report = examine(&home, &[]);
    expect(&report, "modes", "warn", "2 paths can be used by others");
    expect(&report, "modes", "warn", "expected mode 0600, found 0640");
    expect(&examine(&home, &["--fix"]), "modes", "ok", "for the owner alone");
    let mode = |name| std::fs::metadata(home.file(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode("notes.txt"), mode("runtime/store.kauri"), mode("audit")), (0o644, 0o600, 0o700));
}

#[test]
fn a_damaged_store_fails_and_hides_no_other_check() {
    let home = Scratch::filled("doctor-damaged");
    let runtime = home.runtime();
    fill_messages(&runtime);
    drop(runtime);
    let path = home.layout.store();
    // Both meta pages: there is nothing to go back to.
    let mut bytes = std::fs::read(&path).expect("there");
    [100, 4096 + 100].into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(&path, &bytes).expect("written");
    for more in [&[][..], &["--deep"]] {
        let report = examine(&home, more);
        assert_eq!(names(&report), NAMES);
        assert_eq!(check(&report, "store")["status"], "fail");
        expect(&report, "store", "fail", "restore the last checkpoint");
        expect(&report, "timers", "skip", "cannot be opened");
        expect(&report, "audit", "ok", "");
    }
    std::fs::write(&path, b"no store at all").expect("written");
    assert_eq!(check(&examine(&home, &[]), "store")["status"], "fail");
}

#[test]
fn every_damaged_page_is_found_by_a_deep_look() {
    let home = Scratch::filled("doctor-page");
    let runtime = home.runtime();
    fill_messages(&runtime);
    drop(runtime);
    let disk = kauri::tree::disk::OsDisk::new(home.layout.runtime()).expect("a disk");
    let store = kauri::tree::Options::new().keeper(false).open(&disk, "store.kauri").expect("a store");
    store.checkpoint().expect("written");
    drop(store);
    let path = home.layout.store();
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
    let bytes = std::fs::read(&path).expect("there");
    // The pages of trees are at the end, behind the room that the log may grow into.
    let mut found = 0;
    for at in (4096..bytes.len()).step_by(4096).rev().take(12).map(|page| page + 200) {
        let put = |byte: u8| file.write_all_at(&[byte], at as u64).expect("written");
        put(bytes[at] ^ 1);
        let report = examine(&home, &["--deep"]);
        found += usize::from(check(&report, "store")["status"] == "fail");
        put(bytes[at]);
    }
    // Free pages hold nothing that could be damaged.
    assert!(found >= 3, "{found} of the last pages");
}

/// Makes store and database those of a later program.
pub(crate) fn make_newer(home: &Scratch) {
    let path = home.layout.store();
    let mut bytes = std::fs::read(&path).expect("there");
    for page in 0..2_usize {
        let meta = &mut bytes[page * 4096..page * 4096 + 256];
        meta[16..20].copy_from_slice(&9_u32.to_le_bytes());
        let checksum = XxHash3_64::oneshot_with_seed(page as u64, &meta[8..]);
        meta[..8].copy_from_slice(&checksum.to_le_bytes());
    }
    std::fs::write(&path, &bytes).expect("written");
    // SQLite keeps the version of the tables at byte 60 of its file.
    let database = home.file("runtime/runtime.db");
    let mut bytes = std::fs::read(&database).expect("there");
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    std::fs::write(&database, &bytes).expect("written");
}

#[test]
fn later_formats_are_told_as_such() {
    let home = Scratch::filled("doctor-newer");
    make_newer(&home);
    let report = examine(&home, &[]);
    expect(&report, "store", "fail", "upgrade this program");
    expect(&report, "database", "fail", "upgrade this program");
    expect(&report, "I1", "skip", "cannot be read");
    let meta = home.file("runtime/home.lock.meta");
    std::fs::write(&meta, b"{\"lock_version\": 7}").expect("written");
    expect(&examine(&home, &[]), "lock", "fail", "upgrade this program");
}

#[test]
fn a_changed_audit_a_lost_artifact_and_a_changed_journal_fail() {
    let home = Scratch::filled("doctor-changed");
    home.leave_orphan("bill-9");
    drop(home.ledger());
    let artifacts = std::fs::read_dir(home.file("artifacts")).expect("there");
    artifacts.flatten().for_each(|entry| std::fs::remove_file(entry.path()).expect("there"));
    let day = std::fs::read_dir(home.file("audit")).expect("there").flatten().map(|entry| entry.path());
    let day = day.into_iter().find(|path| !path.ends_with("anchors.jsonl")).expect("a day");
    let text = std::fs::read_to_string(&day).expect("text");
    assert!(!text.is_empty());
    std::fs::write(&day, text.replacen("SHOP", "SHIP", 1)).expect("written");
    let report = examine(&home, &[]);
    expect(&report, "audit", "fail", "the chain is broken");
    expect(&report, "I6", "fail", "does not hold");
    expect(&report, "I2", "fail", "is missing");
    let journal = home.file("runtime/actions_wal.jsonl");
    let text = std::fs::read_to_string(&journal).expect("text");
    std::fs::write(&journal, text.replacen("order-1", "order-7", 1)).expect("written");
    let report = examine(&home, &[]);
    expect(&report, "journal", "fail", "damaged");
    expect(&report, "orphans", "skip", "cannot be read");
}

#[test]
fn a_thrown_switch_and_a_clock_set_back_are_warnings() {
    let home = Scratch::filled("doctor-switch");
    std::fs::write(home.file("runtime/KILL_SWITCH"), b"somebody tripped").expect("written");
    let meta = std::fs::read_to_string(home.file("runtime/home.lock.meta.new")).expect("there");
    let year = meta.split("\"timestamp\":\"").nth(1).expect("a time").split('-').next().expect("a year");
    std::fs::write(home.file("runtime/home.lock.meta"), meta.replacen(&format!("{year}-"), "2999-", 1))
        .expect("written");
    let report = examine(&home, &[]);
    expect(&report, "kill-switch", "warn", "somebody tripped");
    expect(&report, "clock", "warn", "set back by");
}

#[test]
fn a_home_that_may_not_be_read_is_told_as_such() {
    let home = Scratch::filled("doctor-closed");
    let close = |mode| std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(mode)).expect("ours");
    close(0o000);
    // Whoever may do everything is not kept out.
    let may_read = std::fs::read_dir(home.path()).is_ok();
    let report = examine(&home, &[]);
    close(0o700);
    match may_read {
        true => expect(&report, "home", "ok", "there"),
        false => expect(&report, "home", "fail", "ask as the user"),
    }
}

#[test]
fn what_a_crash_left_is_told_kept_and_repaired_when_asked() {
    let home = Scratch::filled("doctor-alive");
    let (ledger, runtime) = (home.ledger(), home.runtime());
    let mut action = ledger.begin("bill-9", "order-2", "pay the bill").expect("begun");
    action.record_started().expect("recorded");
    fill_messages(&runtime);
    let crashed = home.crashed("doctor-crashed");
    drop((action, ledger, runtime));

    let kept = ["runtime/runtime.db", "runtime/runtime.db-wal", "runtime/actions_wal.jsonl", "runtime/store.kauri"];
    let read = || kept.map(|name| std::fs::read(crashed.file(name)).expect("there"));
    let before = read();
    let report = examine(&crashed, &["--deep"]);
    expect(&report, "lock", "warn", "ended without giving it back");
    expect(&report, "writer-queue", "warn", "stopped without closing");
    expect(&report, "orphans", "warn", "bill-9");
    expect(&report, "I3", "warn", "bill-9");
    expect(&report, "database", "ok", "whole");
    expect(&report, "store", "ok", "sound");
    expect(&report, "dead-letters", "warn", "1 dead letter");
    assert_eq!(read(), before, "only looked at");

    let report = examine(&crashed, &["--fix"]);
    expect(&report, "lock", "ok", "free");
    expect(&report, "writer-queue", "ok", "all it wrote");
    expect(&report, "orphans", "warn", "bill-9");
}

/// Numbers that look like chance and are the same each time.
fn chance(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 40).expect("24 bits")
}

#[test]
fn whatever_is_damaged_the_doctor_answers() {
    let home = Scratch::filled("doctor-any");
    let runtime = home.runtime();
    fill_runs(&runtime);
    fill_messages(&runtime);
    drop(runtime);
    home.leave_orphan("bill-9");
    let mut state = 7;
    let image = home.image();
    for (path, (_, bytes, _)) in image.iter().filter(|(path, (_, bytes, _))| path.is_file() && !bytes.is_empty()) {
        let mut wrong = bytes.clone();
        (0..3).for_each(|_| wrong[chance(&mut state) % bytes.len()] ^= 1 << (chance(&mut state) % 8));
        // Where a file begins is where most is said about the rest of it.
        let mut head = bytes.clone();
        head[chance(&mut state) % bytes.len().min(100)] ^= 0x55;
        let cut = bytes[..chance(&mut state) % bytes.len()].to_vec();
        let longer = [&bytes[..], &[0xa5; 5000]].concat();
        for bad in [wrong, head, cut, longer, Vec::new()] {
            std::fs::write(path, &bad).expect("written");
            assert_eq!(names(&examine(&home, &["--deep"])), NAMES, "{}", path.display());
        }
        std::fs::write(path, bytes).expect("written");
    }
    assert_eq!(check(&examine(&home, &["--deep"]), "store")["status"], "ok");
}
