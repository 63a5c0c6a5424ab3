//! The kill switch.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kauri_ledger::{Clock, Error, KillSwitch, SystemClock};

use crate::scratch::Scratch;

/// A shell in a process group of its own that says a line when it is ready.
fn group(script: &str) -> Child {
    let mut command = Command::new("sh");
    let mut child = command.args(["-c", script]).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    child
}

#[test]
fn a_thrown_switch_stops_what_begins_and_is_audited() {
    let scratch = Scratch::new("stop");
    let (ledger, _) = scratch.ledger();
    ledger.stop("the disk smells").unwrap();
    assert_eq!(scratch.read("runtime/KILL_SWITCH"), "the disk smells");
    let error = ledger.begin("a", "t", "x").expect_err("stopped");
    assert!(matches!(&error, Error::Stopped { reason } if reason == "the disk smells"), "{error}");
    assert_eq!(ledger.database().state("kill_switch").unwrap().as_deref(), Some("the disk smells"));
    assert_eq!(ledger.check().unwrap(), []);
    ledger.stop("again").unwrap();
    assert_eq!(ledger.switch().reason().unwrap().as_deref(), Some("the disk smells"), "the first reason stays");

    ledger.resume().unwrap();
    ledger.begin("a", "t", "x").unwrap().complete(None).unwrap();
    assert_eq!(ledger.database().state("kill_switch").unwrap(), None);
    let audit = scratch.read("audit/2026-02-21.jsonl");
    assert_eq!(audit.matches("KILL_SWITCH_THROWN").count(), 1);
    assert_eq!(audit.matches("KILL_SWITCH_CLEARED").count(), 1);
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn what_was_running_stays_stopped_after_the_switch_is_cleared() {
    let scratch = Scratch::new("sticky");
    let (ledger, _) = scratch.ledger();
    let (watch, idle) = (ledger.watch(), ledger.watch());
    assert!(!watch.is_stopped());
    ledger.stop("now").unwrap();
    assert!(watch.is_stopped());
    ledger.resume().unwrap();
    assert!(watch.is_stopped(), "it saw the switch");
    assert!(idle.is_stopped(), "it did not look, and was running all the same");
    assert!(!ledger.watch().is_stopped(), "what begins now, begins");
    // Thrown by somebody else: who looked meanwhile stays stopped.
    let (watch, other) = (ledger.watch(), KillSwitch::of(&scratch.home(), Arc::new(SystemClock)));
    other.throw("from outside").unwrap();
    assert!(watch.is_stopped());
    other.clear().unwrap();
    assert!(watch.is_stopped());
    // Thrown and taken back by somebody else before anybody looked: who was running then stops all the same.
    let (watch, later) = (ledger.watch(), KillSwitch::of(&scratch.home(), Arc::new(SystemClock)));
    assert!(!later.clear().unwrap() && !watch.is_stopped(), "it was not thrown");
    assert!(later.throw("for a moment").unwrap() && later.clear().unwrap());
    assert!(watch.is_stopped() && !ledger.watch().is_stopped() && !later.watch().is_stopped());
    assert_eq!(scratch.read("runtime/KILL_SWITCH.resumed").lines().count(), 3, "once for each time it was thrown");
    // And it is told when it is taken back here, although it was thrown elsewhere.
    other.throw("from outside, again").unwrap();
    ledger.resume().unwrap();
    let audit = scratch.read("audit/2026-02-21.jsonl");
    assert!(audit.contains("from outside, again") && audit.matches("KILL_SWITCH_CLEARED").count() == 2, "{audit}");
}

#[test]
fn a_stop_that_failed_half_way_is_told_when_it_is_called_again() {
    let scratch = Scratch::new("stop-again");
    let (ledger, _) = scratch.ledger();
    // The row cannot be written: the file is there, and so is the line in the audit.
    let trigger = "CREATE TRIGGER no BEFORE INSERT ON state BEGIN SELECT raise(ABORT, 'not now'); END";
    scratch.sql().execute_batch(trigger).unwrap();
    assert!(ledger.stop("password=abc").is_err() && ledger.begin("a", "t", "x").is_err());
    scratch.sql().execute_batch("DROP TRIGGER no").unwrap();
    ledger.stop("another").unwrap();
    let expected = Some("password=[redacted]".to_owned());
    assert_eq!(
        (ledger.database().state("kill_switch").unwrap(), ledger.switch().reason().unwrap()),
        (expected.clone(), expected)
    );
    assert_eq!(ledger.check().unwrap(), []);
    // The same with the way back.
    let trigger = "CREATE TRIGGER no BEFORE DELETE ON state BEGIN SELECT raise(ABORT, 'not now'); END";
    scratch.sql().execute_batch(trigger).unwrap();
    assert!(ledger.resume().is_err());
    scratch.sql().execute_batch("DROP TRIGGER no").unwrap();
    ledger.resume().unwrap();
    assert_eq!(ledger.check().unwrap(), []);
    assert!(scratch.read("audit/2026-02-21.jsonl").contains("KILL_SWITCH_CLEARED"));
    ledger.begin("a", "t", "x").unwrap().complete(None).unwrap();
}

#[test]
fn a_watch_looks_ten_times_a_second() {
    let scratch = Scratch::new("watch");
    let (ledger, _) = scratch.ledger();
    // Nobody throws it: the clock tells how long was waited.
    assert!(!ledger.watch().wait(Duration::from_millis(250)));
    assert_eq!(scratch.clock.paused(), Duration::from_millis(250));

    /// A clock at which somebody else throws the switch during the third pause.
    struct Throwing(KillSwitch, std::sync::atomic::AtomicU32);
    impl Clock for Throwing {
        fn now(&self) -> kauri_ledger::Timestamp {
            SystemClock.now()
        }

        fn pause(&self, time: Duration) {
            assert!(time <= Duration::from_millis(200), "seen within 200 ms");
            if self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 2 {
                self.0.throw("by another").unwrap();
            }
        }
    }
    let other = KillSwitch::of(&scratch.home(), Arc::new(SystemClock));
    let clock = Arc::new(Throwing(other, 0.into()));
    let watch = KillSwitch::of(&scratch.home(), clock.clone()).watch();
    assert!(watch.wait(Duration::from_secs(3_600)));
    assert_eq!(clock.1.load(std::sync::atomic::Ordering::SeqCst), 3, "seen at the next look");
}

#[test]
fn a_switch_thrown_from_outside_is_noticed_at_the_next_start() {
    let scratch = Scratch::new("outside");
    drop(scratch.ledger());
    KillSwitch::of(&scratch.home(), Arc::new(SystemClock)).throw("from outside").unwrap();
    let (ledger, _) = scratch.ledger();
    assert!(ledger.begin("a", "t", "x").is_err());
    assert_eq!(ledger.database().state("kill_switch").unwrap().as_deref(), Some("from outside"));
    assert!(scratch.read("audit/2026-02-21.jsonl").contains("from outside"));
    assert_eq!(ledger.check().unwrap(), []);
}

#[test]
fn process_groups_are_asked_to_end_and_then_killed() {
    let scratch = Scratch::new("groups");
    let (ledger, _) = scratch.ledger();
    let mut gentle = group("echo; exec sleep 60");
    // This one does not listen, nor does its child.
    let mut deaf = group("trap '' TERM; (trap '' TERM; sleep 60) & echo; wait; sleep 60");
    let mut free = group("echo; exec sleep 60");
    let (_one, _two) = (ledger.register(gentle.id()).unwrap(), ledger.register(deaf.id()).unwrap());
    drop(ledger.register(free.id()).unwrap());

    // Whoever ended must be waited for, or its group stays.
    let reaper = std::thread::spawn(move || gentle.wait().unwrap());
    ledger.stop("end").unwrap();
    assert_eq!(deaf.wait().unwrap().signal(), Some(9), "killed after the grace");
    assert_eq!(reaper.join().unwrap().signal(), Some(15), "ended when asked");
    assert!(scratch.clock.paused() >= Duration::from_secs(5), "the grace passed on the clock");
    assert_eq!(free.try_wait().unwrap(), None, "a group that was given back goes on");
    assert!(matches!(ledger.register(free.id()), Err(Error::Stopped { .. })), "nothing new while it is thrown");
    assert!(ledger.register(1).is_err() && ledger.register(0).is_err(), "not everybody's");
    free.kill().unwrap();
    free.wait().unwrap();
}

#[test]
fn a_switch_that_cannot_be_read_or_made_is_told_and_stops_what_runs() {
    let scratch = Scratch::new("unreadable");
    let (ledger, _) = scratch.ledger();
    let watch = ledger.watch();
    assert!(!watch.is_stopped());
    // There is something of that name, and it cannot be read: nobody knows whether all should stop, so it does.
    let path = scratch.home().join("runtime/KILL_SWITCH");
    std::fs::create_dir(&path).unwrap();
    assert!(ledger.switch().reason().is_err() && ledger.begin("a", "t", "x").is_err());
    assert!(watch.is_stopped());
    std::fs::remove_dir(&path).unwrap();
    assert!(watch.is_stopped() && !ledger.watch().is_stopped());
    // The switch cannot be made: the caller hears of it, and what runs here is stopped all the same.
    let (running, nowhere) = (ledger.watch(), KillSwitch::of(&scratch.directory("nowhere"), Arc::new(SystemClock)));
    let watch = nowhere.watch();
    assert!(nowhere.throw("enough").is_err() && watch.is_stopped());
    assert!(!running.is_stopped(), "that was another home");
}
