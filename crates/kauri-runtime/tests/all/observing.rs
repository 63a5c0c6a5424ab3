//! Counters, gauges, latencies and what is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::{Class, Ending, Halt, LiveRun, Retry, Submission};
use kauri_runtime::{Atomic, Counts, Observation, Observer, Policy, Read, Recorder, Replay, StepEnd, Write};
use kauri_tree::Table;
use kauri_wire::pack::Map;
use kauri_wire::{InboxKey, Message, MessageId, MessageRef, RunId, Timestamp};

use crate::setup::{ANN, BOB, Setup, command};

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
        let line = match name.strip_prefix("runs_") {
            Some(outcome) => format!("\nkauri_runs_total{{outcome=\"{outcome}\"}} 0\n"),
            None => format!("\nkauri_{name}_total 0\n"),
        };
        assert!(text.contains(&line), "{name}");
    }
    for name in ["run_queued", "run"] {
        assert!(text.contains(&format!("kauri_{name}_seconds_count 0\n")), "{text}");
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

/// Writes down how runs came to rest.
#[derive(Default)]
struct Rests(Mutex<Vec<(RunId, String)>>);

impl Observer for Rests {
    fn observe(&self, observation: &Observation<'_>) {
        if let Observation::RunEnded { run } = observation {
            self.0.lock().unwrap().push((run.id, run.state.to_string()));
        }
    }
}

#[test]
fn every_end_of_a_run_is_told_and_counted_once_whoever_ended_it() {
    let rests = Arc::new(Rests::default());
    let setup = Setup::with(|builder| builder.observer(Arc::clone(&rests) as _));
    let runs = setup.runtime.runs();
    runs.define("work", &Class { retry: Retry::never(), ..Class::new(BOB) }).unwrap();
    let submit = |input: &str| runs.submit(&Submission::new("work", input)).unwrap().run;
    let ids = [submit("well"), submit("badly"), submit("waits"), submit("unwanted")];
    runs.cancel(ids[3]).unwrap();
    let clock = setup.clock.clone();
    let work = move |live: &mut LiveRun| {
        clock.advance(Duration::from_millis(5));
        match live.input() {
            b"badly" => Err(Halt::Failed("no page".into())),
            b"waits" => live.wait_for_signal("never").map(|_| Ending::success(live.now().wall, Map::EMPTY)),
            _ => {
                live.step("one", |_| Ok(Vec::new()))?;
                Ok(Ending::success(live.now().wall, Map::EMPTY))
            }
        }
    };
    setup.runtime.run_worker(BOB, Policy::default(), work).drain().unwrap();
    runs.cancel(ids[2]).unwrap();
    let expected = [(3, "cancelled"), (0, "success"), (1, "script_error"), (2, "parked"), (2, "cancelled")];
    let expected: Vec<_> = expected.iter().map(|(at, state)| (ids[*at], (*state).to_owned())).collect();
    assert_eq!(*rests.0.lock().unwrap(), expected);
    let counts = setup.runtime.metrics();
    assert_eq!((counts.runs_success, counts.runs_script_error, counts.runs_cancelled), (1, 1, 2));
    assert_eq!((counts.run_events, counts.run_steps), (4, 1));
    assert_eq!((counts.run_queued.samples, counts.run_took.samples), (4, 3));
    assert_eq!(counts.run_took.max, Duration::from_millis(5));
    let text = setup.runtime.prometheus().unwrap();
    assert!(text.contains("kauri_runs_total{outcome=\"cancelled\"} 2\n"), "{text}");
    assert!(text.contains("kauri_run_seconds_count 3\n"), "{text}");
}
