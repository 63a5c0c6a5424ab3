//! A checkpoint, restored elsewhere: work goes on where it was, and nothing is done twice.

use kauri_runtime::{Atomic, Failure, Reason, Rest};
use kauri_tree::Store;
use kauri_wire::{Flags, Message, MessageId, MessageRef, Timestamp};

use crate::setup::{ANN, BOB, Notes, Setup, command};

/// The same clock on a store that was made of a checkpoint of this one.
fn restored(setup: &Setup) -> Setup {
    let mut stream = Vec::new();
    setup.store.snapshot().checkpoint_to(&mut stream).unwrap();
    let store = Store::in_memory().unwrap();
    store.restore_from(&mut &stream[..]).unwrap();
    Setup::on(store, setup.clock.clone(), |builder| builder)
}

fn once(id: &str) -> Message {
    command(ANN, id).with(Flags::DEDUPE_REQUIRED)
}

#[test]
fn after_a_restore_dispatch_resumes_and_nothing_runs_twice() {
    let setup = Setup::new();
    let due = Timestamp(setup.runtime.now().wall.0 + 500);
    setup.runtime.arm(due, &Message::timer(BOB, MessageId::new("timer").unwrap(), "")).unwrap();
    setup.send_message(&once("handled"));
    setup.send(ANN, "bad");
    let mut worker =
        setup.runtime.worker(
            ANN,
            |_: &mut Atomic<'_>, message: MessageRef<'_>| {
                if message.id() == b"bad" { Err(Failure::fatal("bad")) } else { Ok(()) }
            },
        );
    worker.drain().unwrap();
    // One that is being handled when the checkpoint is made, and one that waits.
    let last = ["running", "waiting"].map(|id| setup.send(ANN, id))[1];
    let (after, notes) = (std::sync::Arc::new(std::sync::Mutex::new(None)), Notes::default());
    let (slot, store, clock) = (after.clone(), setup.store.clone(), setup.clock.clone());
    let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
        let running = Setup { runtime: Setup::new().runtime, clock: clock.clone(), store: store.clone() };
        slot.lock().unwrap().get_or_insert_with(|| restored(&running));
        Ok(())
    });
    worker.drain().unwrap();

    let setup = after.lock().unwrap().take().unwrap();
    let own = notes.clone();
    setup.send_message(&once("handled"));
    let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, message: MessageRef<'_>| {
        own.add(message);
        Ok(())
    });
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["running", "waiting"], "nobody waits for a lease, and what was handled is not again");
    let letters = setup.runtime.dead_letters(Some(ANN), None, 10).unwrap();
    assert_eq!(letters.iter().map(|(_, letter)| letter.reason).collect::<Vec<_>>(), [Reason::FailuresSpent]);
    assert!(setup.send(ANN, "next").seq > last.seq, "no number is used twice");

    let (mut bob, heard) = setup.scribe(BOB);
    assert_eq!(bob.tick().unwrap().rest, Rest::Idle);
    setup.advance(500);
    bob.drain().unwrap();
    assert_eq!(heard.take(), ["timer"]);
}
