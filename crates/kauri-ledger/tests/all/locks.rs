//! Locks on homes and workspaces.

use std::process::{Command, Stdio};
use std::time::Duration;

use kauri_ledger::{Error, HeldLocks, Holder, Home, HomeOptions, LockState, Workspace};

use crate::scratch::{MORNING, Scratch, audit_of};

const LOCK: &str = "runtime/home.lock";
const META: &str = "runtime/home.lock.meta";

fn refusal<T: std::fmt::Debug>(answer: kauri_ledger::Result<T>) -> Error {
    answer.expect_err("refused")
}

/// TestLockOrdering.
#[test]
fn a_home_and_then_workspaces_in_their_order_are_taken_and_the_reverse_is_refused_and_audited() {
    let scratch = Scratch::new("order");
    let (a, b) = (scratch.directory("a"), scratch.directory("b"));
    let home = scratch.lock().unwrap();
    let first = home.workspace(&a).unwrap();
    let second = first.next(&b).unwrap();
    let positions: Vec<u32> = HeldLocks::of_this_process()
        .iter()
        .filter(|lock| [home.directory(), &a, &b].iter().any(|held| lock.path.starts_with(held)))
        .map(|lock| lock.position)
        .collect();
    assert_eq!(positions, [0, 1, 2]);
    drop(second);
    drop(first);

    let second = home.workspace(&b).unwrap();
    let error = refusal(second.next(&a));
    assert!(matches!(&error, Error::LockOrder { held, wanted } if *held == b && *wanted == a), "{error}");
    assert!(matches!(refusal(second.next(&b)), Error::LockOrder { .. }), "itself comes not after itself");
    assert_eq!(Workspace::probe(&a).unwrap(), LockState::Free, "what is refused is not taken");
    let audit = scratch.read(audit_of("2026-02-21").to_str().unwrap());
    assert_eq!(audit.matches(r#""kind":"LOCK_ORDER_VIOLATION""#).count(), 2);
    assert!(audit.contains(&format!(r#""wanted":"{}""#, a.display())), "{audit}");
}

#[test]
fn two_threads_work_in_two_workspaces_at_once_in_any_order() {
    let scratch = Scratch::new("parallel");
    let home = scratch.lock().unwrap();
    let later = home.workspace(scratch.directory("b")).unwrap();
    std::thread::scope(|scope| {
        // Each thread for itself, so that no order is asked for.
        let other = scope.spawn(|| {
            let earlier = home.workspace(scratch.directory("a")).unwrap();
            let taken = refusal(home.workspace(scratch.directory("b")));
            assert!(matches!(taken, Error::Locked { .. }), "{taken}");
            assert!(matches!(refusal(home.workspace(earlier.directory())), Error::Locked { .. }));
        });
        other.join().unwrap();
    });
    assert!(matches!(refusal(home.workspace(later.directory())), Error::Locked { .. }));
}

#[test]
fn a_thread_takes_nothing_that_comes_before_what_it_has() {
    let scratch = Scratch::new("before");
    let (a, b) = (scratch.directory("a"), scratch.directory("b"));
    let home = scratch.lock().unwrap();
    let later = home.workspace(&b).unwrap();
    // Past `next`, which asks for the order by itself.
    let error = refusal(home.workspace(&a));
    assert!(matches!(&error, Error::LockOrder { held, wanted } if *held == b && *wanted == a), "{error}");
    // A home comes before every workspace, also another home.
    let other = scratch.directory("other");
    let error = refusal(Home::lock(&other));
    assert!(matches!(&error, Error::LockOrder { held, wanted } if *held == b && *wanted == other), "{error}");
    assert!(Home::probe(&other).unwrap().is_free() && Workspace::probe(&a).unwrap().is_free(), "nothing was taken");
    let audit = scratch.read(audit_of("2026-02-21").to_str().unwrap());
    assert_eq!(audit.matches(r#""kind":"LOCK_ORDER_VIOLATION""#).count(), 2);
    drop(later);
    drop(home.workspace(&a).unwrap());
    drop(Home::lock(&other).unwrap());
}

/// TestLockNonBlocking.
#[test]
fn a_second_taker_is_refused_at_once_and_told_who_has_it() {
    let scratch = Scratch::new("second");
    let home = scratch.lock().unwrap();
    scratch.clock.advance(Duration::from_secs(90));
    let error = refusal(scratch.lock());
    let Error::Locked { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert_eq!((holder.pid, holder.age, holder.is_alive), (std::process::id(), Duration::from_secs(90), Some(true)));
    assert!(error.is_retryable());
    let text = error.to_string();
    for part in [&format!("process {}", std::process::id()), "since 2026-02-21T09:30:00.000Z, for 90.0 s", "tick"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(text.contains(holder.command.as_deref().unwrap()), "{text}");
    drop(home);
    drop(scratch.lock().unwrap());
}

/// TestLockMetadata.
#[test]
fn metadata_is_there_while_the_lock_is_held_and_names_its_holder() {
    let scratch = Scratch::new("meta");
    let home = scratch.lock().unwrap();
    let meta: serde_json::Value = serde_json::from_str(&scratch.read(META)).unwrap();
    assert_eq!(meta["pid"], std::process::id());
    assert_eq!(meta["timestamp"], MORNING.to_string());
    assert_eq!((&meta["lock_order_position"], &meta["lock_version"]), (&0.into(), &1.into()));
    assert!(meta["process_start"].is_u64() && meta["boot_id"].is_string(), "{meta}");
    let LockState::Held(Some(holder)) = Home::probe(scratch.home()).unwrap() else { panic!("it is held") };
    assert!(holder.is_this_process());

    let workspace = home.workspace(scratch.directory("w")).unwrap();
    let meta = std::fs::read_to_string(workspace.directory().join(".kauri/ws.lock.meta")).unwrap();
    assert_eq!(serde_json::from_str::<Holder>(&meta).unwrap().lock_order_position, 1);
    let path = workspace.directory().to_owned();
    drop(workspace);
    assert!(!path.join(".kauri/ws.lock.meta").exists() && path.join(".kauri/ws.lock").exists());
    drop(home);
    assert!(!scratch.home().join(META).exists() && scratch.home().join(LOCK).exists());
}

/// TestLockStalePID.
#[test]
fn what_a_dead_holder_left_is_stale_and_can_be_taken() {
    let scratch = Scratch::new("stale");
    drop(scratch.lock().unwrap());
    // A process that is gone for sure: it was waited for.
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let stale = format!(
        r#"{{"pid":{},"timestamp":"2026-02-20T00:00:00Z","lock_order_position":0,"lock_version":1,"process_start":1,"boot_id":"x"}}"#,
        child.id()
    );
    scratch.write(META, &stale);
    let LockState::Stale(holder) = Home::probe(scratch.home()).unwrap() else { panic!("it is stale") };
    assert_eq!((holder.pid, holder.is_alive), (child.id(), Some(false)));
    let home = scratch.lock().unwrap();
    assert!(matches!(Home::probe(scratch.home()).unwrap(), LockState::Held(Some(holder)) if holder.is_this_process()));
    drop(home);
    assert_eq!(Home::probe(scratch.home()).unwrap(), LockState::Free);
}

#[test]
fn a_pid_that_lives_makes_no_lock_held() {
    let scratch = Scratch::new("foreign");
    drop(scratch.lock().unwrap());
    // The metadata of others: a process that lives (1), without and with the start of another; ourselves; and nonsense.
    let metas = [
        r#"{"pid":1,"timestamp":"2026-02-20T00:00:00Z","lock_order_position":0,"lock_version":1}"#.to_owned(),
        r#"{"pid":1,"timestamp":"2026-02-20T00:00:00Z","lock_order_position":0,"lock_version":1,"process_start":7,"boot_id":"x"}"#.to_owned(),
        format!(r#"{{"pid":{},"timestamp":"2026-02-20T00:00:00Z","lock_order_position":0,"lock_version":1}}"#, std::process::id()),
        "{".to_owned(),
        String::new(),
    ];
    for meta in metas {
        scratch.write(META, &meta);
        assert!(Home::probe(scratch.home()).unwrap().is_free(), "{meta}");
        drop(scratch.lock().unwrap());
    }
}

#[test]
fn metadata_of_a_later_program_is_refused_with_a_hint() {
    let scratch = Scratch::new("newer");
    drop(scratch.lock().unwrap());
    scratch.write(META, r#"{"lock_version":2,"holder":{"who":"somebody"}}"#);
    for error in [refusal(scratch.lock()), refusal(Home::probe(scratch.home()))] {
        assert!(matches!(error, Error::NewerLock { most: 1, found: 2, .. }), "{error}");
        assert!(error.to_string().contains("upgrade"), "{error}");
    }
    assert!(scratch.read(META).contains("somebody"), "it is left as it is");
}

#[test]
fn a_lock_whose_file_was_removed_or_replaced_is_lost_and_says_so() {
    let scratch = Scratch::new("removed");
    let home = scratch.lock().unwrap();
    home.check().unwrap();
    std::fs::remove_file(scratch.home().join(LOCK)).unwrap();
    assert!(matches!(refusal(home.check()), Error::LockLost { .. }));
    // Somebody else takes the new file; what the first one does at its end is no harm to it.
    let other = scratch.lock().unwrap();
    assert!(matches!(refusal(home.check()), Error::LockLost { .. }));
    drop(home);
    assert!(matches!(Home::probe(scratch.home()).unwrap(), LockState::Held(Some(_))), "the metadata is the other's");
    other.check().unwrap();
}

#[test]
fn a_child_that_was_started_does_not_have_the_lock() {
    let scratch = Scratch::new("child");
    let home = scratch.lock().unwrap();
    // A child that runs its own program has none of our descriptors, and so not the lock. (One that does not is tried in `lock/file.rs`.)
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
    drop(home);
    let taken = scratch.lock();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(taken.unwrap());
}

#[test]
fn a_lock_kept_by_something_unnamed_is_told_as_such() {
    let scratch = Scratch::new("unnamed");
    drop(scratch.lock().unwrap());
    // What a forked child of a dead holder has: the lock, and the metadata of somebody who is gone.
    let file = std::fs::File::open(scratch.home().join(LOCK)).unwrap();
    file.lock().unwrap();
    let mut keeper = Command::new("sleep").arg("60").stdin(Stdio::from(file)).spawn().unwrap();
    scratch.write(
        META,
        r#"{"pid":4000000,"timestamp":"2026-02-20T00:00:00Z","lock_order_position":0,"lock_version":1,"process_start":1,"boot_id":"x"}"#,
    );
    let (refused, probed) = (refusal(scratch.lock()), Home::probe(scratch.home()).unwrap());
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    assert!(refused.to_string().contains("that process is gone: one that it started keeps the lock"), "{refused}");
    assert!(matches!(probed, LockState::Held(Some(Holder { is_alive: Some(false), .. }))), "{probed:?}");
    drop(scratch.lock().unwrap());
}

#[test]
fn a_killed_holder_leaves_the_lock_to_the_next() {
    let scratch = Scratch::new("killed");
    drop(scratch.lock().unwrap());
    let file = std::fs::File::open(scratch.home().join(LOCK)).unwrap();
    file.lock().unwrap();
    let mut holder = Command::new("sleep").arg("60").stdin(Stdio::from(file)).spawn().unwrap();
    assert!(matches!(refusal(scratch.lock()), Error::Locked { .. }));
    holder.kill().unwrap();
    holder.wait().unwrap();
    drop(scratch.lock().unwrap());
}

#[test]
fn directories_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt;

    let scratch = Scratch::new("modes");
    let (ledger, _) = scratch.ledger();
    let mode = |name: &str| std::fs::metadata(scratch.home().join(name)).unwrap().permissions().mode() & 0o777;
    for name in ["", "runtime", "audit", "artifacts"] {
        assert_eq!(mode(name), 0o700, "{name}");
    }
    for name in [LOCK, META, "runtime/runtime.db", "runtime/runtime.db-wal", "runtime/actions_wal.jsonl"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    drop(ledger);
}

#[test]
fn a_synchronised_folder_is_refused_unless_it_is_forced() {
    let scratch = Scratch::new("synced");
    let folders =
        [scratch.directory("Dropbox/kauri"), scratch.directory("Photos - OneDrive"), scratch.directory("shared/kauri")];
    std::fs::create_dir(scratch.directory("shared").join(".stfolder")).unwrap();
    for folder in [&folders[0], &folders[2]] {
        let error = refusal(Home::lock(folder));
        assert!(matches!(error, Error::ForeignFileSystem { .. }), "{error}");
        assert!(matches!(refusal(Home::check_file_system(folder)), Error::ForeignFileSystem { .. }));
        assert!(Home::probe(folder).unwrap().is_free() && !folder.join(LOCK).exists(), "nothing was made");
        drop(HomeOptions::new().force().lock(folder).unwrap());
    }
    drop(Home::lock(&folders[1]).unwrap());
    let home = scratch.lock().unwrap();
    assert!(matches!(refusal(home.workspace(&folders[0])), Error::ForeignFileSystem { .. }), "nor a workspace");
}

#[test]
fn a_lock_whose_metadata_cannot_be_written_is_not_held() {
    let scratch = Scratch::new("no-meta");
    drop(scratch.lock().unwrap());
    let aside = scratch.home().join("runtime/home.lock.meta.new");
    std::fs::remove_file(&aside).unwrap();
    std::fs::create_dir(&aside).unwrap();
    let error = refusal(scratch.lock());
    assert!(error.to_string().contains("write the metadata of"), "{error}");
    assert_eq!(Home::probe(scratch.home()).unwrap(), LockState::Free, "nobody has it, and nothing says so");
    std::fs::remove_dir(&aside).unwrap();
    drop(scratch.lock().unwrap());
}
