//! Starting: tables, marker, incarnations.

use std::sync::Arc;

use kauri_runtime::substrate::{ModelSubstrate, Substrate};
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Builder, Error, LayoutFault, Runtime, TABLES, TableSpec};
use kauri_wire::SchemaVersion;

fn builder(model: &ModelSubstrate) -> Builder {
    Runtime::builder(Arc::new(model.clone()), Arc::new(VirtualClock::default()))
}

#[test]
fn runtime_starts_on_an_empty_store_and_again_on_its_own() {
    let model = ModelSubstrate::new();
    assert_eq!(builder(&model).start().unwrap().incarnation(), 1);
    assert_eq!(builder(&model).existing().start().unwrap().incarnation(), 2);
}

#[test]
fn store_without_a_marker_is_refused_when_bootstrap_is_off() {
    let model = ModelSubstrate::new();
    assert!(matches!(builder(&model).existing().start(), Err(Error::NoSchema)));
    assert!(model.snapshot().unwrap().tables().unwrap().is_empty(), "a refusal leaves nothing");
}

#[test]
fn store_of_another_version_is_refused_in_words() {
    let model = ModelSubstrate::new();
    builder(&model).start().unwrap();
    let error = builder(&model).version(SchemaVersion { major: 0, minor: 1 }).start().unwrap_err();
    assert_eq!(error.to_string(), "expected schema 0.1, found 0.0: use the program that made the store, or migrate it");
}

#[test]
fn tables_with_a_gap_are_refused_before_anything_is_written() {
    let model = ModelSubstrate::new();
    let tables: Vec<TableSpec> = TABLES.into_iter().filter(|table| table.id != 5).collect();
    let error = builder(&model).tables(&tables).start().unwrap_err();
    assert!(matches!(error, Error::Layout(LayoutFault::Gap { expected: 5, found: 6 })), "{error}");
    assert!(model.snapshot().unwrap().tables().unwrap().is_empty());
}

#[test]
fn stopped_runtime_sends_nothing_and_handles_nothing() {
    let setup = crate::setup::Setup::new();
    setup.send(crate::setup::ANN, "a");
    let (mut worker, notes) = setup.scribe(crate::setup::ANN);
    setup.runtime.stop();
    assert!(matches!(setup.runtime.send(&crate::setup::command(crate::setup::ANN, "b")), Err(Error::Stopped)));
    assert_eq!(worker.tick().unwrap().rest, kauri_runtime::Rest::Stopped);
    assert!(notes.take().is_empty());
}

#[test]
fn copy_of_a_store_goes_on_where_it_was_and_nothing_runs_twice() {
    use crate::setup::{ANN, BOB, Setup, answering, command};
    use kauri_runtime::{Failure, Sent};
    use kauri_wire::{Message, MessageId, Timestamp};

    let setup = Setup::new();
    setup.send(BOB, "dead");
    setup.runtime.worker(BOB, answering(|| Err(Failure::fatal("bad")))).drain().unwrap();
    setup.send(ANN, "done");
    setup.scribe(ANN).0.drain().unwrap();
    setup.send(ANN, "claimed");
    // A worker has it when the copy is made, and is gone.
    let broken = || Err(Failure::Runtime(Error::Substrate("gone".into())));
    assert!(setup.runtime.worker(ANN, answering(broken)).tick().is_err());
    let due = Timestamp(setup.runtime.now().wall.0 + 1000);
    setup.runtime.arm(due, &Message::timer(ANN, MessageId::new("later").unwrap(), "")).unwrap();

    let copy =
        Runtime::builder(Arc::new(setup.runtime.fork().unwrap()), Arc::new(setup.clock.clone())).start().unwrap();
    let notes = crate::setup::Notes::default();
    let own = notes.clone();
    let mut worker = copy.worker(ANN, move |_: &mut kauri_runtime::Atomic<'_>, message: kauri_wire::MessageRef<'_>| {
        own.add(message);
        Ok(())
    });
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["claimed"]);
    setup.advance(1000);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["later"]);
    assert_eq!(copy.gauges().unwrap().dead_letters, 1);
    let Sent::Inbox(key) = copy.send(&command(ANN, "next")).unwrap() else { panic!("it is here") };
    assert_eq!(key.seq.0, 4, "numbers go on where they were");
}
