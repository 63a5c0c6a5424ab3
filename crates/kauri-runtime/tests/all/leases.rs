//! Handlers that take longer than their lease, and what they are told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::{Atomic, Failure, Policy, Read, Renewed, Worker, Write};
use kauri_tree::Table;
use kauri_wire::{InboxKey, MessageRef};

use crate::setup::{ANN, Ends, Notes, Setup};

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
