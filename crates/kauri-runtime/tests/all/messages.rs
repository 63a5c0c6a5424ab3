//! A message's life: sent, claimed, handled, acknowledged; priorities, deadlines, dedupe, cancelling, limits.

use std::sync::Arc;
use std::time::Duration;

use kauri_runtime::{Atomic, Concurrency, Policy, Rate, Read, Reason, Rest, Runtime, Sent, Write};
use kauri_tree::Table;
use kauri_wire::{Flags, InboxKey, Message, MessageId, MessageKind, MessageRef, Seq, Timestamp, WorkerId};

use crate::setup::{ANN, BOB, Notes, Setup, command};

const STATE: Table<str, u64> = Table::new("state");

#[test]
fn messages_are_handled_in_the_order_they_were_sent() {
    let setup = Setup::new();
    for id in ["a", "b", "c"] {
        setup.send(ANN, id);
    }
    setup.send(BOB, "other");
    let (mut worker, notes) = setup.scribe(ANN);
    assert_eq!(worker.drain().unwrap(), 3);
    assert_eq!(notes.take(), ["a", "b", "c"]);
    assert_eq!((setup.runtime.depth(ANN).unwrap(), setup.runtime.depth(BOB).unwrap()), (0, 1));
}

#[test]
fn inbox_keys_are_worker_and_sequence_and_values_are_frames() {
    let setup = Setup::new();
    let message = command(ANN, "a");
    assert_eq!(setup.send_message(&message), InboxKey { worker: ANN, seq: Seq(1) });
    let rows = setup.runtime.substrate().snapshot().unwrap();
    let key = [&1_u64.to_be_bytes()[..], &1_u64.to_be_bytes()].concat();
    assert_eq!(rows.get(&"inbox".into(), &key).unwrap().unwrap(), message.encode().unwrap());
}

#[test]
fn sequence_numbers_are_never_used_twice_not_even_after_a_restart() {
    let setup = Setup::new();
    assert_eq!(setup.send(ANN, "a").seq, Seq(1));
    setup.scribe(ANN).0.drain().unwrap();
    let setup = setup.restarted();
    assert_eq!(setup.send(ANN, "b").seq, Seq(2));
}

#[test]
fn step_lands_in_one_commit_with_state_messages_timers_and_acknowledgement() {
    let setup = Setup::new();
    setup.send(ANN, "order");
    let mut worker = setup.runtime.worker(ANN, |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        block.put(&STATE, "orders", 1)?;
        block.emit(&Message::event(BOB, MessageId::new(message.id())?, "ship it"))?;
        let due = Timestamp(block.now().wall.0 + 1000);
        block.arm(due, &Message::timer(ANN, MessageId::new("remind")?, ""))?;
        Ok(())
    });
    let commits = setup.commits(|| assert_eq!(worker.tick().unwrap().handled, 1));
    assert_eq!(commits, 2, "one claimed, one did the rest");
    let gauges = setup.runtime.gauges().unwrap();
    assert_eq!((gauges.leases, gauges.timers), (0, 1));
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "orders")).unwrap(), Some(1));
    assert_eq!(setup.runtime.depth(BOB).unwrap(), 1);
}

#[test]
fn worker_that_keeps_up_claims_the_next_in_the_commit_of_the_last() {
    let setup = Setup::policy(Policy { batch_messages_max: 10, ..Policy::default() });
    setup.send_many(ANN, 100);
    let (mut worker, notes) = setup.scribe(ANN);
    let commits = setup.commits(|| assert_eq!(worker.drain().unwrap(), 100));
    assert_eq!(commits, 11, "a claim, and ten batches");
    assert_eq!(notes.take().len(), 100);
}

#[test]
fn each_step_of_a_batch_sees_what_the_steps_before_it_wrote() {
    let setup = Setup::new();
    setup.send_many(ANN, 50);
    let mut worker = setup.runtime.worker(ANN, |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        Ok(block.put(&STATE, "count", count + 1)?)
    });
    worker.tick().unwrap();
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(50));
}

#[test]
fn high_priority_messages_are_claimed_first() {
    let setup = Setup::policy(Policy { batch_messages_max: 1, ..Policy::default() });
    setup.send(ANN, "a");
    setup.send(ANN, "b");
    setup.send_message(&command(ANN, "urgent").with(Flags::HIGH_PRIORITY));
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["urgent", "a", "b"]);
    assert_eq!(setup.runtime.gauges().unwrap().urgent, 0);
}

#[test]
fn duplicate_is_acknowledged_without_running_until_its_id_is_forgotten() {
    let setup = Setup::policy(Policy { dedupe_for: Duration::from_secs(60), ..Policy::default() });
    let once = command(ANN, "pay").with(Flags::DEDUPE_REQUIRED);
    let (mut worker, notes) = setup.scribe(ANN);
    let mut handle = |setup: &Setup| {
        setup.send_message(&once);
        worker.drain().unwrap();
        notes.take().len()
    };
    assert_eq!((handle(&setup), handle(&setup), handle(&setup)), (1, 0, 0));
    assert_eq!(setup.runtime.metrics().duplicates, 2);
    // The same id for another worker is another message.
    let (mut other, others) = setup.scribe(BOB);
    setup.send_message(&Message { to: BOB, ..once.clone() });
    other.drain().unwrap();
    assert_eq!(others.take().len(), 1);
    setup.advance(60_000);
    assert_eq!(handle(&setup), 1);
    setup.advance(60_001);
    handle(&setup);
    setup.runtime.sweep_dedupe(100).unwrap();
    assert_eq!(setup.runtime.gauges().unwrap().dedupe, 1, "the last one is remembered, the others are swept");
}

#[test]
fn two_duplicates_in_one_batch_run_once() {
    let setup = Setup::new();
    let once = command(ANN, "pay").with(Flags::DEDUPE_REQUIRED);
    setup.send_message(&once);
    setup.send_message(&once);
    let (mut worker, notes) = setup.scribe(ANN);
    assert_eq!(worker.tick().unwrap().handled, 2);
    assert_eq!(notes.take().len(), 1);
}

#[test]
fn same_id_with_another_payload_is_kept_as_a_dead_letter() {
    let setup = Setup::new();
    let first = command(ANN, "pay").with(Flags::DEDUPE_REQUIRED);
    let (mut worker, notes) = setup.scribe(ANN);
    setup.send_message(&first);
    worker.drain().unwrap();
    let key = setup.send_message(&Message { payload: b"more".to_vec(), ..first });
    worker.drain().unwrap();
    assert_eq!(notes.take().len(), 1);
    assert_eq!(setup.runtime.dead_letter(key).unwrap().unwrap().reason, Reason::OtherPayload);
}

#[test]
fn message_that_requires_it_is_acknowledged_to_its_sender() {
    let setup = Setup::new();
    let message = command(ANN, "pay").sent_by(BOB).routed(BOB, Timestamp(5)).with(Flags::REQUIRES_ACK);
    setup.send_message(&message);
    setup.scribe(ANN).0.drain().unwrap();
    let inbox = setup.runtime.inbox(BOB, 10).unwrap();
    let ack = MessageRef::decode(&inbox[0].1).unwrap();
    assert_eq!((ack.kind(), ack.id(), ack.from()), (MessageKind::Event, &b"ack:pay"[..], Some(ANN)));
}

#[test]
fn message_past_its_deadline_is_buried_and_not_run() {
    let setup = Setup::new();
    let deadline = Timestamp(setup.runtime.now().wall.0 + 100);
    let Sent::Inbox(late) = setup.runtime.send_until(&command(ANN, "late"), deadline).unwrap() else { panic!() };
    setup.runtime.send_until(&command(ANN, "in time"), Timestamp(deadline.0 + 1000)).unwrap();
    setup.advance(100);
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["in time"]);
    assert_eq!(setup.runtime.dead_letter(late).unwrap().unwrap().reason, Reason::Expired);
    let rows = setup.runtime.substrate().snapshot().unwrap();
    assert!(!rows.tables().unwrap().contains(&"deadlines".to_owned()), "no deadline is left behind");
}

#[test]
fn queued_message_can_be_cancelled() {
    let setup = Setup::new();
    let key = setup.send(ANN, "a");
    setup.send(ANN, "b");
    assert_eq!(setup.runtime.find(ANN, b"a").unwrap(), [key]);
    assert!(setup.runtime.cancel(key).unwrap());
    assert!(!setup.runtime.cancel(key).unwrap());
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["b"]);
    assert_eq!(setup.runtime.dead_letter(key).unwrap().unwrap().reason, Reason::Cancelled);
}

#[test]
fn running_message_that_is_cancelled_commits_nothing() {
    let setup = Setup::new();
    let key = setup.send(ANN, "a");
    setup.send(ANN, "b");
    let runtime = setup.runtime.clone();
    let mut worker = setup.runtime.worker(ANN, move |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        if message.id() == b"a" {
            runtime.cancel(key)?;
        }
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        Ok(block.put(&STATE, "count", count + 1)?)
    });
    worker.drain().unwrap();
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(1));
    assert_eq!(setup.runtime.metrics().superseded, 1);
    assert_eq!(setup.runtime.gauges().unwrap().leases, 0);
}

/// A worker whose handler lets time pass and somebody else work.
fn sleepy(setup: &Setup, millis: u64, mut meanwhile: impl FnMut() + Send + 'static) -> kauri_runtime::Worker {
    let clock = setup.clock.clone();
    setup.runtime.worker(ANN, move |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        clock.advance(Duration::from_millis(millis));
        meanwhile();
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        Ok(block.put(&STATE, "count", count + 1)?)
    })
}

#[test]
fn zombie_commits_nothing_after_its_lease_was_taken_over() {
    let setup = Setup::new();
    let key = setup.send(ANN, "a");
    let (other, notes) = setup.scribe(ANN);
    let other = std::sync::Mutex::new(other);
    let mut zombie = sleepy(&setup, 1001, move || drop(other.lock().unwrap().drain()));
    zombie.drain().unwrap();
    assert_eq!(notes.take(), ["a"], "the other one handled it");
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "count")).unwrap(), None);
    assert_eq!((setup.runtime.metrics().superseded, setup.runtime.metrics().takeovers), (1, 1));
    assert!(setup.runtime.lease(key).unwrap().is_none());
}

#[test]
fn live_lease_is_respected_and_does_not_block_the_messages_behind_it() {
    let setup = Setup::policy(Policy { batch_messages_max: 1, ..Policy::default() });
    setup.send(ANN, "a");
    setup.send(ANN, "b");
    let (other, notes) = setup.scribe(ANN);
    let other = std::sync::Mutex::new(other);
    let mut worker = sleepy(&setup, 10, move || drop(other.lock().unwrap().tick()));
    worker.tick().unwrap();
    assert_eq!(notes.take(), ["b"]);
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(1));
}

#[test]
fn leases_do_not_care_what_the_wall_clock_does() {
    let setup = Setup::policy(Policy { batch_messages_max: 1, ..Policy::default() });
    setup.send(ANN, "a");
    let (other, notes) = setup.scribe(ANN);
    let (other, clock) = (std::sync::Mutex::new(other), setup.clock.clone());
    let mut worker = sleepy(&setup, 1, move || {
        clock.jump(86_400_000);
        let _ = other.lock().unwrap().tick();
        clock.jump(-2 * 86_400_000);
        let _ = other.lock().unwrap().tick();
    });
    worker.tick().unwrap();
    assert!(notes.take().is_empty());
    assert_eq!(setup.runtime.metrics().superseded, 0);
}

#[test]
fn after_a_restart_messages_that_were_claimed_run_at_once() {
    let setup = Setup::new();
    let key = setup.send(ANN, "a");
    let runtime = setup.runtime.clone();
    // The process dies in the handler.
    let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
        Err(kauri_runtime::Failure::Runtime({
            runtime.stop();
            kauri_runtime::Error::Stopped
        }))
    });
    assert!(worker.tick().is_err());
    assert_eq!(setup.runtime.lease(key).unwrap().unwrap().deliveries, 1);
    let setup = setup.restarted();
    let (mut worker, notes) = setup.scribe(ANN);
    worker.tick().unwrap();
    assert_eq!(notes.take(), ["a"]);
    assert_eq!(setup.runtime.metrics().takeovers, 1);
}

#[test]
fn message_that_kills_its_process_is_buried_and_takes_no_other_with_it() {
    let mut setup = Setup::new();
    setup.send(ANN, "good 1");
    let poison = setup.send(ANN, "poison");
    setup.send(ANN, "good 2");
    let notes = Notes::default();
    for _ in 0..12 {
        let (runtime, own) = (setup.runtime.clone(), notes.clone());
        let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
            if message.id() == b"poison" {
                runtime.stop();
                return Err(kauri_runtime::Error::Stopped.into());
            }
            own.add(message);
            Ok(())
        });
        let _ = worker.drain();
        setup = setup.restarted();
    }
    let letter = setup.runtime.dead_letter(poison).unwrap().unwrap();
    assert_eq!((letter.reason, letter.deliveries), (Reason::DeliveriesSpent, Policy::default().delivery_budget + 1));
    assert_eq!(setup.runtime.depth(ANN).unwrap(), 0);
    assert_eq!(setup.runtime.gauges().unwrap().dead_letters, 1);
}

#[test]
fn concurrency_key_keeps_instances_apart() {
    let key = |message: MessageRef<'_>| Some(message.payload().to_vec());
    let concurrency = Some(Concurrency { key: Arc::new(key), limit: 1 });
    let setup = Setup::policy(Policy { concurrency, batch_messages_max: 1, ..Policy::default() });
    for (id, tenant) in [("a", "x"), ("b", "x"), ("c", "y")] {
        setup.send_message(&Message { payload: tenant.into(), ..command(ANN, id) });
    }
    let (other, notes) = setup.scribe(ANN);
    let other = std::sync::Mutex::new(other);
    let mut worker = sleepy(&setup, 1, move || drop(other.lock().unwrap().tick()));
    worker.tick().unwrap();
    assert_eq!(notes.take(), ["c"], "b has the key of a, which is being handled");
    worker.drain().unwrap();
    assert_eq!(setup.runtime.depth(ANN).unwrap(), 0);
}

#[test]
fn rate_limit_lets_a_burst_through_and_then_says_when_to_come_again() {
    let rate = Some(Rate { messages: 10, per: Duration::from_secs(1) });
    let setup = Setup::policy(Policy { rate, ..Policy::default() });
    setup.send_many(ANN, 25);
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take().len(), 10);
    assert_eq!(worker.idle_for().unwrap(), Some(Duration::from_millis(100)));
    setup.advance(500);
    worker.drain().unwrap();
    assert_eq!(notes.take().len(), 5);
}

#[test]
fn messages_for_workers_elsewhere_go_to_the_outbox() {
    let setup = Setup::with(|builder| builder.elsewhere(|worker| worker == BOB));
    assert_eq!(setup.runtime.send(&command(BOB, "a")).unwrap(), Sent::Outbox(Seq(1)));
    setup.send(ANN, "b");
    assert_eq!(setup.runtime.gauges().unwrap().outbox, 1);
}

#[test]
fn batch_that_takes_long_is_committed_before_it_is_done() {
    let setup = Setup::new();
    setup.send_many(ANN, 5);
    let mut worker = sleepy(&setup, 6, || {});
    let tick = worker.tick().unwrap();
    assert_eq!((tick.handled, tick.rest), (2, Rest::More), "twelve milliseconds are more than ten");
    worker.drain().unwrap();
    assert_eq!(setup.runtime.read(|view| view.get(&STATE, "count")).unwrap(), Some(5));
}

#[test]
fn worker_told_to_stop_gives_back_what_it_has_not_begun() {
    let setup = Setup::new();
    setup.send_many(ANN, 5);
    let mut worker = sleepy(&setup, 11, || {});
    assert_eq!(worker.tick().unwrap().handled, 1);
    assert_eq!(setup.runtime.gauges().unwrap().leases, 1);
    worker.release().unwrap();
    assert_eq!(setup.runtime.gauges().unwrap().leases, 0);
    assert_eq!(setup.scribe(ANN).0.drain().unwrap(), 4);
}

#[test]
fn ten_workers_with_negative_and_extreme_ids_keep_apart() {
    let setup = Setup::new();
    let ids = [0, 1, -1, i64::MAX, i64::MIN, 255, 256, -256, 1 << 40, -(1 << 40)].map(WorkerId);
    for id in ids {
        setup.send(id, "a");
    }
    for id in ids {
        let (mut worker, notes) = setup.scribe(id);
        worker.drain().unwrap();
        assert_eq!(notes.take(), ["a"]);
    }
}

#[test]
fn handle_is_cheap_to_clone_and_shared_between_threads() {
    fn check<T: Clone + Send + Sync>() {}
    check::<Runtime>();
}

#[test]
fn memory_stays_flat_over_many_messages() {
    let setup = Setup::new();
    let (mut worker, notes) = setup.scribe(ANN);
    let mut pages = Vec::new();
    for _ in 0..60 {
        setup.send_many(ANN, 200);
        worker.drain().unwrap();
        assert_eq!(notes.take().len(), 200);
        pages.push(setup.store.stat().pages);
    }
    assert_eq!(pages[10], pages[59], "{pages:?}");
}
