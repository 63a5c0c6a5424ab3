//! Counters, gauges, latencies and what is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::{Atomic, Counts, Observation, Observer, Read, Recorder, Replay, StepEnd, Write};
use kauri_tree::Table;
use kauri_wire::{InboxKey, Message, MessageId, MessageRef, Timestamp};

use crate::setup::{ANN, Setup, command};

const STATE: Table<str, u64> = Table::new("state");

/// Writes everything down in a word each.
#[derive(Default)]
struct Told {
    words: Mutex<Vec<String>>,
    counts: Mutex<Vec<Counts>>,
    keys: Mutex<Vec<InboxKey>>,
}

impl Observer for Told {
    fn observe(&self, observation: &Observation<'_>) {
        let word = match observation {
            Observation::StepBegan { delivery, frame, .. } => format!("began {delivery} {}", frame.len()),
            Observation::StepEnded { key, end, writes, .. } => {
                self.keys.lock().unwrap().push(*key);
                assert_eq!(writes.is_some(), **end == StepEnd::Done, "what was written is told");
                format!("ended {end:?}")
            }
            Observation::TimerFired { key, .. } => format!("timer {}", key.seq),
            other => format!("{other:?}"),
        };
        self.words.lock().unwrap().push(word);
    }

    fn metrics(&self, counts: &Counts) {
        self.counts.lock().unwrap().push(*counts);
    }

    fn wants_writes(&self) -> bool {
        true
    }
}

#[test]
fn steps_and_timers_are_told_in_order_with_their_frames() {
    let told = Arc::new(Told::default());
    let setup = Setup::with(|builder| builder.observer(told.clone()));
    let due = Timestamp(setup.runtime.now().wall.0);
    setup.runtime.arm(due, &Message::timer(ANN, MessageId::new("t").unwrap(), "")).unwrap();
    let key = setup.send_message(&command(ANN, "a"));
    let mut worker =
        setup.runtime.worker(ANN, |block: &mut Atomic<'_>, _: MessageRef<'_>| Ok(block.put(&STATE, "a", 1)?));
    worker.drain().unwrap();
    let words = std::mem::take(&mut *told.words.lock().unwrap());
    assert_eq!(words, ["began 1 68", "ended Done", "timer 1", "began 1 61", "ended Done"]);
    assert_eq!(told.keys.lock().unwrap()[0], key);
    let counts = told.counts.lock().unwrap().last().copied().unwrap();
    assert_eq!((counts.steps, counts.successes, counts.timers_fired), (2, 2, 1));
    assert_eq!(counts, setup.runtime.metrics());
}

#[test]
fn latency_is_measured_with_the_clock_that_was_given() {
    let setup = Setup::new();
    setup.send_many(ANN, 3);
    let clock = setup.clock.clone();
    let mut worker = setup.runtime.worker(ANN, move |_: &mut Atomic<'_>, _: MessageRef<'_>| {
        clock.advance(Duration::from_millis(2));
        Ok(())
    });
    worker.drain().unwrap();
    let latency = setup.runtime.metrics().latency;
    assert_eq!((latency.samples, latency.total, latency.max), (3, Duration::from_millis(6), Duration::from_millis(2)));
    setup.runtime.reset_metrics();
    assert_eq!(setup.runtime.metrics(), Counts::default());
}

#[test]
fn prometheus_text_has_every_counter_and_gauge() {
    let setup = Setup::new();
    setup.send(ANN, "a");
    let text = setup.runtime.prometheus().unwrap();
    assert!(text.contains("# TYPE kauri_inbox_rows gauge\nkauri_inbox_rows 1\n"), "{text}");
    for (name, _) in setup.runtime.metrics().each() {
        assert!(text.contains(&format!("kauri_{name}_total 0\n")), "{name}");
    }
    assert!(text.contains("kauri_step_seconds_count 0\n"));
}

/// A handler that counts, by so much.
fn counting(by: u64) -> impl FnMut(&mut Atomic<'_>, MessageRef<'_>) -> Result<(), kauri_runtime::Failure> + Send {
    move |block, message| {
        let count = block.get(&STATE, "count")?.unwrap_or(0);
        block.put(&STATE, "count", count + by)?;
        block.put(&STATE, std::str::from_utf8(message.id()).unwrap(), u64::try_from(block.now().wall.0).unwrap())?;
        Ok(())
    }
}

#[test]
fn recorded_steps_come_out_the_same_again_and_a_change_of_the_code_is_named_by_its_row() {
    let file = Arc::new(Recorder::new(Vec::new()));
    let setup = Setup::with(|builder| builder.observer(file.clone()));
    let mut worker = setup.runtime.worker(ANN, counting(1));
    setup.send(ANN, "before");
    worker.drain().unwrap();
    let fork = setup.runtime.fork().unwrap();
    let again = setup.runtime.fork().unwrap();
    for id in ["a", "b", "c"] {
        setup.send(ANN, id);
        setup.advance(5);
        worker.drain().unwrap();
    }
    drop((worker, setup));
    let lines = Arc::into_inner(file).unwrap().into_inner();
    // The first line is from before the window.
    let window = lines.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
    let replay = Replay::read(window).unwrap();
    assert_eq!(replay.len(), 3);
    let (mut same, mut other) = (counting(1), counting(2));
    assert_eq!(replay.run(&fork, &mut same).unwrap(), None);
    let divergence = replay.run(&again, &mut other).unwrap().unwrap();
    assert_eq!((divergence.key.seq.0, divergence.row), (2, Some(("state".to_owned(), b"count".to_vec()))));
    assert!(divergence.what.starts_with("recorded: a value with hash "), "{}", divergence.what);
    assert!(Replay::read(&b"{}\n"[..]).is_err());
}

#[test]
fn fork_goes_its_own_way() {
    let setup = Setup::new();
    setup.send(ANN, "a");
    let fork = setup.runtime.forked().unwrap();
    assert_eq!(fork.worker(ANN, counting(1)).drain().unwrap(), 1);
    assert_eq!((fork.depth(ANN).unwrap(), setup.runtime.depth(ANN).unwrap()), (0, 1));
}
