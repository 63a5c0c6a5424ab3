//! Timers and schedules.

use std::time::Duration;

use kauri_runtime::substrate::{Change, Verdict};
use kauri_runtime::{CatchUp, NOBODY, Reason, When};
use kauri_wire::{Message, MessageId, Timestamp};

use crate::setup::{ANN, BOB, Setup};

fn timer(id: &str) -> Message {
    Message::timer(ANN, MessageId::new(id).unwrap(), "")
}

fn at(setup: &Setup, millis: i64) -> Timestamp {
    Timestamp(setup.runtime.now().wall.0 + millis)
}

#[test]
fn timer_fires_when_it_is_due_and_never_early() {
    let setup = Setup::new();
    setup.runtime.arm(at(&setup, 100), &timer("t")).unwrap();
    let (mut worker, notes) = setup.scribe(ANN);
    setup.advance(99);
    worker.drain().unwrap();
    assert!(notes.take().is_empty());
    assert_eq!(worker.idle_for().unwrap(), Some(Duration::from_millis(1)));
    setup.advance(1);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["t"]);
    worker.drain().unwrap();
    assert!(notes.take().is_empty(), "once");
}

#[test]
fn timers_fire_in_the_order_of_their_times_and_survive_a_restart() {
    let setup = Setup::new();
    for (id, due) in [("c", 30), ("a", 10), ("b", 20), ("a again", 10)] {
        setup.runtime.arm(at(&setup, due), &timer(id)).unwrap();
    }
    let setup = setup.restarted();
    setup.advance(1000);
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["a", "a again", "b", "c"]);
}

#[test]
fn extreme_times_and_times_before_the_epoch_are_defined() {
    let setup = Setup::new();
    for (id, due) in [("last", i64::MAX), ("first", i64::MIN), ("before", -1), ("epoch", 0), ("later", i64::MAX - 1)] {
        let key = setup.runtime.arm(Timestamp(due), &timer(id)).unwrap();
        assert_eq!(key.due, Timestamp(due.max(0)));
    }
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["first", "before", "epoch"]);
    setup.clock.jump(i64::MAX);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["later", "last"]);
}

#[test]
fn one_workers_timer_does_not_block_anothers() {
    let setup = Setup::new();
    setup.runtime.arm(at(&setup, 1), &Message { to: BOB, ..timer("bobs") }).unwrap();
    setup.runtime.arm(at(&setup, 2), &timer("anns")).unwrap();
    setup.advance(10);
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["anns"]);
    assert_eq!(setup.runtime.depth(BOB).unwrap(), 1);
}

#[test]
fn timer_can_be_taken_back_until_it_is_due() {
    let setup = Setup::new();
    let key = setup.runtime.arm(at(&setup, 100), &timer("t")).unwrap();
    assert_eq!(setup.runtime.timers(10).unwrap()[0].0, key);
    assert!(setup.runtime.disarm(key).unwrap());
    assert!(!setup.runtime.disarm(key).unwrap());
    setup.advance(1000);
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert!(notes.take().is_empty());
}

#[test]
fn undecodable_timer_is_buried_and_blocks_nothing() {
    let setup = Setup::new();
    let mut change = Change::default();
    change.put("timers", [&1_u64.to_be_bytes()[..], &1_u64.to_be_bytes()].concat(), *b"no frame");
    assert!(matches!(setup.runtime.substrate().commit(&change.into()).unwrap(), Verdict::Committed(_)));
    setup.runtime.arm(at(&setup, 0), &timer("good")).unwrap();
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["good"]);
    let (key, letter) = setup.runtime.dead_letters(None, None, 1).unwrap().remove(0);
    assert_eq!((key.worker, letter.reason), (NOBODY, Reason::Undecodable));
}

#[test]
fn idle_sleep_is_bounded_by_the_next_timer_and_the_policy() {
    let setup = Setup::new();
    let (mut worker, _) = setup.scribe(ANN);
    worker.tick().unwrap();
    assert_eq!(worker.idle_for().unwrap(), None, "nothing to wait for but a watch");
    setup.runtime.arm(at(&setup, 250), &timer("t")).unwrap();
    assert_eq!(worker.idle_for().unwrap(), Some(Duration::from_millis(250)));
    worker.set_policy(kauri_runtime::Policy { idle_max: Some(Duration::from_millis(20)), ..Default::default() });
    assert_eq!(worker.idle_for().unwrap(), Some(Duration::from_millis(20)));
    setup.advance(300);
    assert_eq!(worker.idle_for().unwrap(), Some(Duration::ZERO), "it is due");
}

#[test]
fn tick_shares_its_batch_between_inbox_and_timers() {
    let setup = Setup::policy(kauri_runtime::Policy { batch_messages_max: 3, ..Default::default() });
    setup.send_many(ANN, 2);
    for number in 0..5 {
        setup.runtime.arm(at(&setup, 0), &timer(&number.to_string())).unwrap();
    }
    let (mut worker, _) = setup.scribe(ANN);
    let tick = worker.tick().unwrap();
    assert_eq!((tick.handled, tick.fired), (2, 1));
}

fn slots(setup: &Setup) -> Vec<String> {
    let (mut worker, notes) = setup.scribe(ANN);
    worker.drain().unwrap();
    notes.take()
}

#[test]
fn schedule_fires_once_per_slot_also_after_a_restart() {
    let setup = Setup::new();
    let start = setup.runtime.now().wall.0;
    let every = When::Every(Duration::from_secs(10));
    setup.runtime.schedule("tidy", &every, CatchUp::Latest, &timer("x")).unwrap();
    assert!(slots(&setup).is_empty());
    setup.advance(10_000);
    assert_eq!(slots(&setup), [format!("tidy@{}", start + 10_000)]);
    assert!(slots(&setup).is_empty());
    let setup = setup.restarted();
    assert!(slots(&setup).is_empty());
    setup.clock.jump(-5_000);
    assert!(slots(&setup).is_empty(), "the clock went back and nothing fires again");
    setup.advance(15_000);
    assert_eq!(slots(&setup), [format!("tidy@{}", start + 20_000)]);
}

#[test]
fn missed_slots_are_caught_up_as_the_policy_says() {
    let setup = Setup::new();
    let start = setup.runtime.now().wall.0;
    let every = When::Every(Duration::from_secs(10));
    setup.runtime.schedule("latest", &every, CatchUp::Latest, &timer("x")).unwrap();
    setup.runtime.schedule("every", &every, CatchUp::Every, &timer("x")).unwrap();
    setup.advance(35_000);
    let mut fired = slots(&setup);
    fired.sort();
    let slot = |name: &str, at: i64| format!("{name}@{}", start + at);
    assert_eq!(fired, [slot("every", 10_000), slot("every", 20_000), slot("every", 30_000), slot("latest", 30_000)]);
}

#[test]
fn cron_schedule_fires_at_its_moments_in_utc() {
    let setup = Setup::new();
    let hourly = When::Cron("0 * * * *".to_owned());
    let schedule = setup.runtime.schedule("hourly", &hourly, CatchUp::Latest, &timer("x")).unwrap();
    let next = schedule.next.unwrap();
    assert_eq!(next.0 % 3_600_000, 0);
    setup.clock.jump(next.0 - setup.runtime.now().wall.0);
    assert_eq!(slots(&setup), [format!("hourly@{}", next.0)]);
    assert_eq!(setup.runtime.schedules().unwrap()[0].1.next, Some(Timestamp(next.0 + 3_600_000)));
}

#[test]
fn schedule_can_be_replaced_and_ended() {
    let setup = Setup::new();
    let every = |seconds| When::Every(Duration::from_secs(seconds));
    setup.runtime.schedule("tidy", &every(10), CatchUp::Latest, &timer("x")).unwrap();
    setup.runtime.schedule("tidy", &every(60), CatchUp::Latest, &timer("x")).unwrap();
    setup.advance(30_000);
    assert!(slots(&setup).is_empty());
    assert!(setup.runtime.unschedule("tidy").unwrap() && !setup.runtime.unschedule("tidy").unwrap());
    setup.advance(60_000);
    assert!(slots(&setup).is_empty());
}
