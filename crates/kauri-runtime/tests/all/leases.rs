//! Handlers that take longer than their lease, and what they are told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::{Atomic, Failure, Policy, Read, Renewed, Renewing, Worker, Write};
use kauri_tree::Table;
use kauri_wire::{InboxKey, MessageRef, Timestamp};

use crate::setup::{ANN, Ends, Notes, Setup, command};

const STATE: Table<str, u64> = Table::new("state");

/// A worker whose handler counts, sleeps for longer than a lease, and calls this before and after each half of it.
fn slow(
    setup: &Setup,
    halves: usize,
    mut each: impl FnMut(&mut Atomic<'_>) -> Result<(), Failure> + Send + 'static,
) -> Worker {
    let clock = setup.clock.clone();
    setup.runtime.worker(ANN, move |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        block.put(&STATE, "count", count + 1)?;
        for _ in 0..halves {
            each(block)?;
            clock.advance(Duration::from_millis(600));
        }
        each(block)
    })
}

fn counted(setup: &Setup) -> Option<u64> {
    setup.runtime.read(|view| view.get(&STATE, "count")).unwrap()
}

/// Another instance on the same inbox, which is let to work by whoever calls.
fn other(setup: &Setup) -> (Arc<Mutex<Worker>>, Notes) {
    let (worker, notes) = setup.scribe(ANN);
    (Arc::new(Mutex::new(worker)), notes)
}

#[test]
fn long_handler_that_renews_its_lease_keeps_its_message() {
    let setup = Setup::new();
    let (rival, notes) = other(&setup);
    setup.send(ANN, "long");
    let mut worker = slow(&setup, 10, move |block| {
        assert_eq!(block.renew()?, Renewed::Yes);
        rival.lock().unwrap().tick()?;
        Ok(())
    });
    assert_eq!(worker.drain().unwrap(), 1);
    assert_eq!((counted(&setup), notes.take()), (Some(1), vec![]));
    let (counts, gauges) = (setup.runtime.metrics(), setup.runtime.gauges().unwrap());
    assert_eq!((counts.steps, counts.superseded, counts.takeovers), (1, 0, 0));
    assert_eq!((gauges.inbox, gauges.leases), (0, 0));
}

#[test]
fn renewing_in_a_batch_keeps_the_whole_batch() {
    let setup = Setup::policy(Policy { batch_time_max: Duration::from_hours(1), ..Policy::default() });
    let (rival, notes) = other(&setup);
    setup.send_many(ANN, 4);
    let mut worker = slow(&setup, 1, move |block| {
        assert_eq!(block.renew()?, Renewed::Yes);
        rival.lock().unwrap().tick()?;
        Ok(())
    });
    assert_eq!(worker.drain().unwrap(), 4);
    assert_eq!((counted(&setup), notes.take()), (Some(4), vec![]));
    assert_eq!(setup.runtime.metrics().commits, 1);
}

#[test]
fn handler_is_told_that_its_message_was_taken_over() {
    let ends = Ends::default();
    let observer = ends.clone();
    let setup = Setup::with(|builder| builder.observer(Arc::new(observer)));
    let (rival, notes) = other(&setup);
    setup.send(ANN, "long");
    let mut calls = 0;
    let mut worker = slow(&setup, 2, move |block| {
        calls += 1;
        if calls < 3 {
            return Ok(());
        }
        rival.lock().unwrap().drain()?;
        match block.renew()? {
            Renewed::Lost => Err(Failure::retry("it is somebody else's")),
            Renewed::Yes | Renewed::Unneeded => Ok(()),
        }
    });
    worker.drain().unwrap();
    assert_eq!((counted(&setup), notes.take()), (None, vec!["long".to_owned()]));
    assert_eq!(setup.runtime.metrics().superseded, 1);
    assert_eq!(setup.runtime.gauges().unwrap().dedupe, 0, "its failure is not counted either");
}

#[test]
fn handler_is_told_that_its_message_was_cancelled() {
    let setup = Setup::new();
    let keys: Vec<InboxKey> = ["a", "b"].into_iter().map(|id| setup.send(ANN, id)).collect();
    let (runtime, told) = (setup.runtime.clone(), Arc::new(Mutex::new(Vec::new())));
    let own = Arc::clone(&told);
    let mut worker = setup.runtime.worker(ANN, move |block: &mut Atomic<'_>, message: MessageRef<'_>| {
        runtime.cancel(keys[1])?;
        own.lock().unwrap().push((message.id().to_vec(), block.renew()?));
        Ok(())
    });
    worker.drain().unwrap();
    let (a, b) = (b"a".to_vec(), b"b".to_vec());
    // The first pass runs both, and is refused for the second; then the first alone.
    assert_eq!(*told.lock().unwrap(), [(a.clone(), Renewed::Yes), (b, Renewed::Lost), (a, Renewed::Yes)]);
    assert_eq!(setup.runtime.gauges().unwrap().dead_letters, 1);
}

#[test]
fn block_that_no_message_began_has_no_lease() {
    let setup = Setup::new();
    let renew = |block: &mut Atomic<'_>| block.renew();
    assert_eq!(setup.runtime.atomic(renew).unwrap(), Renewed::Unneeded);
}

/// A worker whose handler only takes time: it calls this, and lets more than half of a lease pass, so often.
fn patient(setup: &Setup, times: usize, policy: Policy, each: impl Fn() + Send + 'static) -> Worker {
    let clock = setup.clock.clone();
    setup.runtime.worker_with(ANN, policy, move |block: &mut Atomic<'_>, _: MessageRef<'_>| {
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        block.put(&STATE, "count", count + 1)?;
        for _ in 0..times {
            clock.advance(Duration::from_millis(600));
            each();
        }
        Ok(())
    })
}

#[test]
fn lease_of_a_long_handler_is_renewed_for_it() {
    let setup = Setup::new();
    let (rival, notes) = other(&setup);
    setup.send_many(ANN, 3);
    let runtime = setup.runtime.clone();
    let mut worker = patient(&setup, 10, Policy::default(), move || {
        assert!(runtime.renew_leases().unwrap().is_some(), "a step is under way");
        rival.lock().unwrap().tick().unwrap();
    });
    assert_eq!(setup.runtime.renew_leases().unwrap(), None, "nothing is under way");
    assert_eq!(worker.drain().unwrap(), 3);
    assert_eq!((counted(&setup), notes.take()), (Some(3), vec![]), "the rest of its batch is kept as well");
    let (counts, gauges) = (setup.runtime.metrics(), setup.runtime.gauges().unwrap());
    assert_eq!((counts.steps, counts.superseded, counts.takeovers, counts.renewals), (3, 0, 0, 30));
    assert_eq!((gauges.inbox, gauges.leases), (0, 0));
}

#[test]
fn lease_is_renewed_when_half_of_its_term_is_over_and_not_before() {
    let setup = Setup::new();
    setup.send(ANN, "long");
    let (runtime, clock) = (setup.runtime.clone(), setup.clock.clone());
    let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
        let renew_after = |millis| {
            clock.advance(Duration::from_millis(millis));
            let next = runtime.renew_leases().unwrap().map(|next| next.as_millis());
            (next, runtime.metrics().renewals)
        };
        assert_eq!([renew_after(499), renew_after(1), renew_after(0)], [(Some(1), 0), (Some(500), 1), (Some(500), 1)]);
        Ok(())
    });
    assert_eq!(worker.drain().unwrap(), 1);
}

/// How often a lease was renewed that was to be renewed ten times, and whether somebody else had the message meanwhile.
fn renewals(setup: &Setup, policy: Policy) -> (u64, bool) {
    let (rival, notes) = other(setup);
    let runtime = setup.runtime.clone();
    let mut worker = patient(setup, 10, policy, move || {
        runtime.renew_leases().unwrap();
        rival.lock().unwrap().tick().unwrap();
    });
    worker.drain().unwrap();
    (setup.runtime.metrics().renewals, !notes.take().is_empty())
}

#[test]
fn lease_is_left_to_the_handler_where_the_policy_says_so() {
    let setup = Setup::new();
    setup.send(ANN, "long");
    let policy = Policy { renewing: Renewing::ByHandler, ..Policy::default() };
    assert_eq!(renewals(&setup, policy), (0, true));
    assert_eq!((counted(&setup), setup.runtime.metrics().superseded), (None, 1), "its commit was refused");
}

#[test]
fn handler_that_hangs_loses_its_message_when_its_time_is_over() {
    let setup = Setup::new();
    setup.send(ANN, "hangs");
    let policy = Policy { renewing: Renewing::For(Duration::from_secs(3)), ..Policy::default() };
    assert_eq!(renewals(&setup, policy), (4, true));
    assert_eq!((counted(&setup), setup.runtime.metrics().takeovers), (None, 1));
}

#[test]
fn lease_is_not_renewed_after_the_deadline_of_its_message() {
    let setup = Setup::new();
    let deadline = Timestamp(setup.runtime.now().wall.0 + 2000);
    setup.runtime.send_until(&command(ANN, "late"), deadline).unwrap();
    // Whoever takes it over finds that nobody wants it any more.
    assert_eq!(renewals(&setup, Policy::default()), (3, false));
    assert_eq!((counted(&setup), setup.runtime.gauges().unwrap().dead_letters), (None, 1));
}

#[test]
fn cancelled_message_is_not_leased_again() {
    let setup = Setup::new();
    let key = setup.send(ANN, "unwanted");
    let runtime = setup.runtime.clone();
    let mut worker = patient(&setup, 3, Policy::default(), move || {
        let _ = runtime.cancel(key).unwrap();
        assert_eq!(runtime.renew_leases().unwrap(), None);
        assert_eq!(runtime.gauges().unwrap().leases, 0);
    });
    worker.drain().unwrap();
    assert_eq!((counted(&setup), setup.runtime.metrics().renewals), (None, 0));
}

#[test]
fn who_comes_too_late_to_renew_takes_nothing_back() {
    let setup = Setup::new();
    let (rival, notes) = other(&setup);
    setup.send(ANN, "long");
    let runtime = setup.runtime.clone();
    let mut worker = patient(&setup, 2, Policy::default(), move || {
        // Everything stands still but the rival.
        if rival.lock().unwrap().drain().unwrap() > 0 {
            assert_eq!(runtime.renew_leases().unwrap(), None);
        }
    });
    worker.drain().unwrap();
    assert_eq!((counted(&setup), notes.take()), (None, vec!["long".to_owned()]));
    assert_eq!((setup.runtime.metrics().renewals, setup.runtime.gauges().unwrap().leases), (0, 0));
}
