//! What the adapter for `tracing` says, at which level, and what it does not.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_runtime::run::script::{Context, Rust, Script, ScriptError};
use kauri_runtime::run::{Class, Ending, Halt, Keep, LiveRun, Retry, Scripted, Submission};
use kauri_runtime::testing::VirtualClock;
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

#[test]
fn end_of_a_run_has_its_fields() {
    let lines = Lines::default();
    let mut ids = Vec::new();
    tracing::subscriber::with_default(lines.clone(), || {
        let setup = Setup::with(|builder| builder.observer(Arc::new(Tracing)));
        let runs = setup.runtime.runs();
        let retry = Retry { attempts_max: 2, pause: Duration::ZERO, ..Retry::default() };
        let keep = Keep { runs: Some(0), ..Keep::default() };
        runs.define("work", &Class { retry, keep, ..Class::new(ANN) }).unwrap();
        let job = kauri_wire::JobId::new("import-7").unwrap();
        let submission = Submission::new("work", "a secret").job_id(job.clone());
        runs.submit(&submission).unwrap();
        setup.advance(3);
        let work = |_: &mut LiveRun| Err::<Ending, _>(Halt::Failed("no page".into()));
        setup.runtime.run_worker(ANN, Policy::default(), work).drain().unwrap();
        ids.extend(runs.attempts(&job).unwrap().iter().map(|run| run.id));
        runs.sweep(1000).unwrap();
    });
    let lines = lines.0.lock().unwrap();
    let (first, second) = (ids[0], ids[1]);
    for expected in [
        format!(
            "INFO message=run ended or waits run_id={first} job_id=\"import-7\" class=\"work\" attempt=1 \
             outcome=script_error queued_ms=3 took_ms=0 events=1 steps=0"
        ),
        format!(
            "INFO message=run ended or waits run_id={second} job_id=\"import-7\" class=\"work\" parent_run_id={first} \
             attempt=2 outcome=script_error queued_ms=0 took_ms=0 events=1 steps=0"
        ),
    ] {
        assert!(lines.contains(&expected), "{expected}\nis not in\n{lines:#?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("INFO message=runs swept jobs=1 runs=2 events=2")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("secret")), "{lines:#?}");
}

#[test]
fn how_a_script_went_is_told_with_the_time_of_each_phase_and_what_was_swallowed() {
    struct Careless(VirtualClock);
    impl Script for Careless {
        fn run(&self, _: &Context) -> Result<(), ScriptError> {
            self.0.advance(Duration::from_millis(2));
            Ok(())
        }

        fn cleanup(&self, _: &Context) -> Result<(), ScriptError> {
            Err(ScriptError::new("the door does not close").of_type("stuck"))
        }
    }
    let lines = Lines::default();
    let mut ids = Vec::new();
    tracing::subscriber::with_default(lines.clone(), || {
        let setup = Setup::with(|builder| builder.observer(Arc::new(Tracing)));
        let runs = setup.runtime.runs();
        runs.define("work", &Class::new(ANN)).unwrap();
        let job = kauri_wire::JobId::new("import-7").unwrap();
        ids.push(runs.submit(&Submission::new("work", "7").job_id(job)).unwrap().run);
        let clock = setup.clock.clone();
        let drive = Scripted::new(move |_| Box::new(Rust::inline(Careless(clock.clone()))));
        setup.runtime.run_worker(ANN, Policy::default(), drive).drain().unwrap();
    });
    let lines = lines.0.lock().unwrap();
    let run = ids[0];
    for expected in [
        format!(
            "WARN message=trouble in a script changed nothing run_id={run} job_id=\"import-7\" class=\"work\" attempt=1 \
             phase=cleanup error_type=\"stuck\" error=\"the door does not close\""
        ),
        format!(
            "INFO message=script is over run_id={run} job_id=\"import-7\" class=\"work\" attempt=1 outcome=success \
             load_us=0 prepare_us=0 acquire_us=0 before_run_us=0 run_us=2000 after_run_us=0 before_terminal_us=0 \
             seal_us=0 cleanup_us=0 release_us=0 emitted=0 refused=0 dropped=0 left_alone=0 orphans=0 disputed=false \
             swallowed=1"
        ),
    ] {
        assert!(lines.contains(&expected), "{expected}\nis not in\n{lines:#?}");
    }
}
