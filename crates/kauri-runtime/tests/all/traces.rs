//! What the adapter for `tracing` says, at which level, and what it does not.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use kauri_runtime::{Atomic, Failure, Policy, Tracing};
use kauri_wire::{Message, MessageId, MessageRef, Timestamp};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::setup::{ANN, Setup};

/// Writes events down, a line each: level and fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // How long a step took is not the same each time.
        if field.name() != "micros" {
            write!(self.0, " {}={value:?}", field.name()).unwrap();
        }
    }
}

fn handle(_: &mut Atomic<'_>, message: MessageRef<'_>) -> Result<(), Failure> {
    match message.id() {
        b"good" => Ok(()),
        b"tired" => Err(Failure::retry("not yet")),
        _ => Err(Failure::fatal("no such account")),
    }
}

#[test]
fn what_happens_becomes_events_without_payloads() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let policy = Policy { retry_budget: 2, failure_budget: 1, ..Policy::default() };
        let setup = Setup::with(|builder| builder.policy(policy).observer(Arc::new(Tracing)));
        for id in ["good", "tired", "bad"] {
            let message = Message::command(ANN, MessageId::new(id).unwrap(), "a secret");
            setup.send_message(&message);
        }
        setup.runtime.arm(Timestamp(0), &Message::timer(ANN, MessageId::new("good").unwrap(), "a secret")).unwrap();
        setup.runtime.worker(ANN, handle).drain().unwrap();
    });
    let lines = lines.0.lock().unwrap();
    for expected in [
        "DEBUG message=step ended worker=1 seq=1 end=Done",
        "INFO message=message requeued worker=1 seq=2 reason=\"not yet\" retryable=true failures=1",
        "WARN message=message buried worker=1 seq=3 reason=\"failure budget spent\" detail=\"no such account\" failures=1",
        "DEBUG message=timer fired seq=1 due=0",
        "WARN message=message buried worker=1 seq=4 reason=\"retry budget spent\" detail=\"not yet\" failures=2",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}\nis not in\n{lines:#?}");
    }
    assert!(!lines.iter().any(|line| line.contains("secret")), "{lines:#?}");
}
