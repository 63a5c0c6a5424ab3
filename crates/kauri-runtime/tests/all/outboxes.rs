//! The outbox and its sinks.

use kauri_runtime::{InboxSink, JsonLines, Offer};
use kauri_wire::{MessageRef, Seq};

use crate::setup::{ANN, BOB, Setup, command};

fn outside() -> Setup {
    Setup::with(|builder| builder.elsewhere(|worker| worker == BOB))
}

fn publish(setup: &Setup, ids: &[&str]) {
    for id in ids {
        setup.runtime.send(&command(BOB, id)).unwrap();
    }
}

#[test]
fn outbox_is_delivered_in_order_and_trimmed_after_acceptance() {
    let setup = outside();
    publish(&setup, &["a", "b", "c"]);
    let mut seen = Vec::new();
    let mut sink = |seq: Seq, frame: &[u8]| {
        seen.push((seq.0, MessageRef::decode(frame).unwrap().id().to_vec()));
        if seq == Seq(3) { Offer::Later("full".to_owned()) } else { Offer::Accepted }
    };
    assert_eq!(setup.runtime.drain_outbox(&mut sink, 10).unwrap(), 2);
    assert_eq!(setup.runtime.drain_outbox(&mut sink, 10).unwrap(), 0);
    assert_eq!(seen, [(1, b"a".to_vec()), (2, b"b".to_vec()), (3, b"c".to_vec()), (3, b"c".to_vec())]);
    assert_eq!(setup.runtime.gauges().unwrap().outbox, 1);
    assert_eq!(setup.runtime.metrics().delivered, 2);
}

#[test]
fn block_can_publish_for_anybody() {
    let setup = Setup::new();
    setup.runtime.atomic(|block| block.publish(&command(ANN, "news"))).unwrap();
    assert_eq!((setup.runtime.gauges().unwrap().outbox, setup.runtime.depth(ANN).unwrap()), (1, 0));
}

#[test]
fn json_lines_have_a_line_for_each_message() {
    let setup = outside();
    publish(&setup, &["a\"b"]);
    let mut sink = JsonLines::new(Vec::new());
    assert_eq!(setup.runtime.drain_outbox(&mut sink, 10).unwrap(), 1);
    let text = String::from_utf8(sink.into_inner()).unwrap();
    let line = "{\"seq\":1,\"kind\":\"command\",\"to_worker\":2,\"message_id\":\"a\\\"b\",\"payload\":\"payload\"}\n";
    assert_eq!(text, line);
}

#[test]
fn another_runtimes_inbox_gets_each_message_once_however_often_it_is_offered() {
    let (here, there) = (outside(), Setup::new());
    publish(&here, &["a", "b"]);
    let mut sink = InboxSink::new(there.runtime.clone(), "here");
    let mut offered = |seq: Seq, frame: &[u8]| {
        let _ = kauri_runtime::Sink::offer(&mut sink, seq, frame);
        Offer::Later("the answer was lost".to_owned())
    };
    assert_eq!(here.runtime.drain_outbox(&mut offered, 10).unwrap(), 0);
    let mut sink = InboxSink::new(there.runtime.clone(), "here");
    assert_eq!(here.runtime.drain_outbox(&mut sink, 10).unwrap(), 2);
    assert_eq!(here.runtime.drain_outbox(&mut sink, 10).unwrap(), 0);
    let (mut worker, notes) = there.scribe(BOB);
    worker.drain().unwrap();
    assert_eq!(notes.take(), ["a", "b"]);
}
