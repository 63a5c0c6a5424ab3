//! What happens when handlers fail: budgets, requeueing, dead letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kauri_runtime::substrate::{Change, Verdict};
use kauri_runtime::{Atomic, BlockLimits, DeadLetter, Drain, Error, Failure, Policy, Read, Reason, Sent, Write};
use kauri_tree::Table;
use kauri_wire::{InboxKey, Key, MessageRef, Seq, Timestamp};

use crate::setup::{ANN, BOB, Ends, Setup, answering, command};

const STATE: Table<str, u64> = Table::new("state");

/// How often a handler that always fails like this is called before its message is a dead letter, and that letter.
fn check(answer: fn() -> Result<(), Failure>) -> (u32, DeadLetter) {
    let setup = Setup::new();
    setup.send(ANN, "bad");
    let calls = Arc::new(AtomicU32::new(0));
    let own = Arc::clone(&calls);
    let mut worker = setup.runtime.worker(ANN, move |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        own.fetch_add(1, Ordering::Relaxed);
        block.put(&STATE, "touched", 1)?;
        answer()
    });
    worker.drain().unwrap();
    assert_eq!(
        setup.runtime.read(|view| view.get(&STATE, "touched")).unwrap(),
        None,
        "nothing of a failed step is kept"
    );
    let gauges = setup.runtime.gauges().unwrap();
    assert_eq!((gauges.inbox, gauges.leases, gauges.dedupe, gauges.dead_letters), (0, 0, 0, 1));
    let letter = setup.runtime.dead_letters(Some(ANN), None, 10).unwrap().remove(0).1;
    (calls.load(Ordering::Relaxed), letter)
}

#[test]
fn fourth_retryable_failure_buries_a_message() {
    let (calls, letter) = check(|| Err(Failure::retry("busy")));
    assert_eq!((calls, letter.reason, &*letter.detail, letter.failures), (4, Reason::RetriesSpent, "busy", 4));
}

#[test]
fn second_failure_that_is_not_retryable_buries_a_message() {
    let (calls, letter) = check(|| Err(Failure::fatal("no such account")));
    assert_eq!((calls, letter.reason, &*letter.detail), (2, Reason::FailuresSpent, "no such account"));
    assert_eq!(letter.failed_at, Timestamp(1_780_000_000_000));
}

#[test]
fn panic_is_a_failure_that_is_not_retryable() {
    let (calls, letter) = check(|| panic!("oh no"));
    assert_eq!((calls, letter.reason, &*letter.detail), (2, Reason::FailuresSpent, "the handler panicked: oh no"));
}

#[test]
fn writing_to_the_runtimes_tables_is_a_failure_of_the_code() {
    let setup = Setup::new();
    setup.send(ANN, "bad");
    let mut worker = setup.runtime.worker(ANN, |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        Ok(block.put_row(&"inbox".into(), b"key", b"value")?)
    });
    worker.drain().unwrap();
    let letter = &setup.runtime.dead_letters(None, None, 1).unwrap()[0].1;
    assert_eq!(letter.detail, "table `inbox` belongs to the runtime: a block cannot write to it");
}

#[test]
fn failed_message_goes_to_the_tail_and_the_others_do_not_wait() {
    let setup = Setup::policy(Policy { batch_messages_max: 1, ..Policy::default() });
    for id in ["bad", "b", "c"] {
        setup.send(ANN, id);
    }
    let (notes, failed) = (crate::setup::Notes::default(), Arc::new(AtomicU32::new(0)));
    let own = notes.clone();
    let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
        own.add(message);
        if message.id() == b"bad" && failed.fetch_add(1, Ordering::Relaxed) == 0 {
            return Err(Failure::retry("not yet"));
        }
        Ok(())
    });
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["bad", "b", "c", "bad"]);
    assert_eq!(setup.runtime.gauges().unwrap().dedupe, 0, "its counter is cleared");
}

#[test]
fn failing_message_of_a_batch_takes_nothing_with_it() {
    let setup = Setup::new();
    for id in ["a", "bad", "c"] {
        setup.send(ANN, id);
    }
    let mut worker = setup.runtime.worker(ANN, |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        block.put(&STATE, "count", count + 1)?;
        if message.id() == b"bad" { Err(Failure::fatal("bad")) } else { Ok(()) }
    });
    worker.drain().unwrap();
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(2));
}

#[test]
fn retry_waits_longer_after_each_failure_and_survives_a_restart() {
    let policy = || Policy { retry_pause: Duration::from_secs(1), ..Policy::default() };
    let setup = Setup::policy(policy());
    setup.send(ANN, "bad");
    let calls = Arc::new(AtomicU32::new(0));
    let tick = |setup: &Setup| {
        let own = Arc::clone(&calls);
        let mut worker = setup.runtime.worker_with(
            ANN,
            policy(),
            answering(move || {
                own.fetch_add(1, Ordering::Relaxed);
                Err(Failure::retry("busy"))
            }),
        );
        worker.drain().unwrap();
        calls.load(Ordering::Relaxed)
    };
    assert_eq!(tick(&setup), 1);
    assert_eq!(tick(&setup), 1, "it waits in the timers");
    setup.advance(1000);
    assert_eq!(tick(&setup), 2);
    setup.advance(999);
    assert_eq!(tick(&setup), 2, "twice as long, less some chance");
    let setup = setup.restarted();
    setup.advance(1001);
    assert_eq!(tick(&setup), 3);
    setup.advance(4000);
    assert_eq!(tick(&setup), 4);
    assert_eq!(setup.runtime.gauges().unwrap().dead_letters, 1, "counters survived the restart");
}

/// Puts any bytes into an inbox, as nobody should.
fn plant(setup: &Setup, key: InboxKey, frame: &[u8]) {
    let mut change = Change::default();
    change.put("inbox", InboxKey::encode(key), frame);
    assert!(matches!(setup.runtime.substrate().commit(&change.into()).unwrap(), Verdict::Committed(_)));
}

#[test]
fn undecodable_and_misdirected_frames_are_buried_at_once() {
    let setup = Setup::new();
    let (broken, other) = (InboxKey { worker: ANN, seq: Seq(7) }, InboxKey { worker: ANN, seq: Seq(8) });
    plant(&setup, broken, b"no frame");
    plant(&setup, other, &command(BOB, "b").encode().unwrap());
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert!(notes.take().is_empty());
    let reason = |key| setup.runtime.dead_letter(key).unwrap().unwrap().reason;
    assert_eq!((reason(broken), reason(other)), (Reason::Undecodable, Reason::WrongWorker));
    assert_eq!(setup.runtime.dead_letter(broken).unwrap().unwrap().frame, b"no frame");
}

fn bury(setup: &Setup, ids: &[&str]) {
    for id in ids {
        setup.send(ANN, id);
    }
    setup.runtime.worker(ANN, answering(|| Err(Failure::fatal("bad")))).drain().unwrap();
}

#[test]
fn replayed_dead_letter_goes_to_the_tail_with_a_new_budget_and_is_gone() {
    let setup = Setup::new();
    bury(&setup, &["a"]);
    let (key, _) = setup.runtime.dead_letters(None, None, 10).unwrap().remove(0);
    setup.send(ANN, "b");
    let Some(Sent::Inbox(new)) = setup.runtime.replay(key).unwrap() else { panic!("it was there") };
    assert!(new.seq > key.seq);
    assert!(setup.runtime.dead_letter(key).unwrap().is_none());
    assert!(setup.runtime.replay(key).unwrap().is_none(), "only once");
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["b", "a"]);
}

#[test]
fn dead_letters_are_drained_one_by_one_until_told_to_stop() {
    let setup = Setup::new();
    bury(&setup, &["a", "b", "c", "d"]);
    let mut shown = Vec::new();
    let taken = setup.runtime.drain_dead_letters(Some(ANN), |_, letter| {
        let id = MessageRef::decode(&letter.frame).unwrap().id().to_vec();
        shown.push(id[0]);
        match id[0] {
            b'a' | b'c' => Drain::Take,
            b'b' => Drain::Leave,
            _ => Drain::Stop,
        }
    });
    assert_eq!((taken.unwrap(), &shown[..]), (2, &b"abcd"[..]));
    assert_eq!(setup.runtime.gauges().unwrap().dead_letters, 2);
}

#[test]
fn dead_letters_are_purged_by_age() {
    let setup = Setup::new();
    bury(&setup, &["old"]);
    setup.advance(10_000);
    bury(&setup, &["new"]);
    let before = Timestamp(setup.runtime.now().wall.0 - 5_000);
    assert_eq!(setup.runtime.purge_dead_letters(before).unwrap(), 1);
    let left = setup.runtime.dead_letters(None, None, 10).unwrap();
    assert_eq!(MessageRef::decode(&left[0].1.frame).unwrap().id(), b"new");
}

#[test]
fn trouble_of_the_store_is_not_the_messages_fault() {
    let setup = Setup::new();
    let key = setup.send(ANN, "a");
    let broken = || Err(Failure::Runtime(Error::Substrate("gone".into())));
    let mut worker = setup.runtime.worker(ANN, answering(broken));
    assert!(worker.tick().is_err());
    assert_eq!(setup.runtime.inbox(ANN, 1).unwrap()[0].0, key, "neither counted nor moved");
    assert_eq!(setup.runtime.gauges().unwrap().dedupe, 0);
}

#[test]
fn ends_are_told_with_their_counts() {
    let ends = Ends::default();
    let setup = Setup::with(|builder| builder.observer(Arc::new(ends.clone())));
    setup.send(ANN, "bad");
    setup.runtime.worker(ANN, answering(|| Err(Failure::retry("busy")))).drain().unwrap();
    let told: Vec<String> = ends.0.lock().unwrap().iter().map(|end| format!("{end:?}")).collect();
    assert_eq!(told.len(), 4);
    assert!(told[2].contains("Requeued") && told[2].contains("failures: 3"), "{told:?}");
    assert!(told[3].contains("Buried") && told[3].contains("failures: 4"), "{told:?}");
    let counts = setup.runtime.metrics();
    assert_eq!((counts.steps, counts.retryable_failures, counts.busy_failures), (4, 4, 4));
    assert_eq!((counts.requeues, counts.dead_letters, counts.conflict_failures), (3, 1, 0));
}

#[test]
fn step_that_meets_a_conflict_in_every_pass_has_failed_retryably() {
    let setup = Setup::new();
    setup.send(ANN, "contended");
    let (calls, runtime) = (Arc::new(AtomicU32::new(0)), setup.runtime.clone());
    let own = Arc::clone(&calls);
    let mut worker = setup.runtime.worker(ANN, move |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        own.fetch_add(1, Ordering::Relaxed);
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        // Somebody else is quicker, each time.
        runtime.atomic(|other| other.put(&STATE, "count", count + 1))?;
        Ok(block.put(&STATE, "touched", count)?)
    });
    worker.drain().unwrap();
    let policy = Policy::default();
    assert_eq!(calls.load(Ordering::Relaxed), policy.retry_budget * policy.passes_max);
    let letter = setup.runtime.dead_letters(Some(ANN), None, 10).unwrap().remove(0).1;
    assert_eq!((letter.reason, &*letter.detail), (Reason::RetriesSpent, "a conflict in every pass"));
    let counts = setup.runtime.metrics();
    assert_eq!((counts.retryable_failures, counts.conflict_failures, counts.busy_failures), (4, 4, 0));
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "touched")).unwrap(), None);
}

#[test]
fn each_message_of_a_batch_has_the_limits_of_a_block_for_itself() {
    const LINES: Table<str, [u8]> = Table::new("lines");
    let limits = BlockLimits { written_bytes_max: 100, intents_max: 2, ..BlockLimits::default() };
    let setup = Setup::with(|builder| builder.limits(limits));
    for id in ["a", "bad", "b", "c", "d"] {
        setup.send(ANN, id);
    }
    let mut worker = setup.runtime.worker(ANN, |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        let id = std::str::from_utf8(message.id()).map_err(Failure::fatal)?;
        block.put(&LINES, id, &[7; 60])?;
        block.emit(&command(BOB, id))?;
        block.emit(&command(BOB, id))?;
        if id == "bad" { Ok(block.put(&LINES, "more", &[7; 60])?) } else { Ok(()) }
    });
    worker.drain().unwrap();
    assert_eq!(setup.runtime.read(|view| view.len(&LINES)).unwrap(), 4);
    assert_eq!(setup.runtime.depth(BOB).unwrap(), 8);
    let letter = &setup.runtime.dead_letters(Some(ANN), None, 10).unwrap()[0].1;
    assert_eq!(letter.detail, "expected at most 100 bytes written by a block, found 127");
    assert!(setup.runtime.metrics().commits > 2, "a batch that holds enough is committed without the rest");
}
