//! Taking a run through its phases: the automaton says which, this file does them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use kauri_wire::pack::{self, MapBuf};
use kauri_wire::run::{Event, Level};
use serde_json::Value;

use super::automaton::{Automaton, Ended, Phase};
use super::calls::{Calls, NoPulse};
use super::context::Context;
use super::emit::{Emitter, Gate, Last};
use super::error::ScriptError;
use super::executor::{Call, Called, Executor, Prepared, TerminalSignal};
use super::hook::{Hook, Hooks, LoadError};
use super::plan::{Plan, RunInfo};
use super::report::{Report, Swallowed, Verdict, outcome_of};
use super::resource::Held;
use super::stop::{Cause, Stop};
use crate::run::ingest::Ingest;
use crate::run::outcome::Outcome;
use crate::run::sink::{EventDraft, EventSink, SinkError};
use crate::time::Mono;

/// Executes a run: every phase in its order, each with its deadline.
///
/// `seal` is called once, when the outcome is decided and everything the run said is committed, before `cleanup`: it commits the terminal event and the
/// outcome together. It is not called if somebody else has the run. Whatever it answers, `cleanup` and the release of the resource follow.
pub fn execute(
    plan: Plan,
    executor: &mut dyn Executor,
    sink: Box<dyn EventSink>,
    seal: impl FnOnce(&Verdict) -> Result<(), SinkError>,
) -> Report {
    let mut drive = Drive::new(plan, executor, sink);
    while drive.automaton.phase() != Phase::Seal {
        drive.take_phase();
    }
    let (verdict, sealed) = drive.seal(seal);
    while drive.automaton.phase() != Phase::Done {
        drive.take_phase();
    }
    drive.report(verdict, sealed)
}

struct Drive<'a> {
    plan: Plan,
    run: Arc<RunInfo>,
    job: Arc<Value>,
    executor: &'a mut dyn Executor,
    gate: Arc<Gate>,
    automaton: Automaton,
    started: Mono,
    hooks: Hooks,
    held: Option<Arc<dyn Held>>,
    skip_reason: Option<String>,
    /// What decided about the run's end.
    error: Option<ScriptError>,
    swallowed: Vec<Swallowed>,
    phases: Vec<(Phase, Duration)>,
}

/// How a phase ended, and why.
type Taken = (Ended, Option<ScriptError>);

const WELL: Taken = (Ended::Well, None);

impl<'a> Drive<'a> {
    fn new(plan: Plan, executor: &'a mut dyn Executor, sink: Box<dyn EventSink>) -> Self {
        let ingest = Ingest::new(plan.ingestion, sink);
        let gate = Gate::new(ingest, Arc::clone(&plan.clock), plan.cancel.clone(), plan.watch.clone());
        Self {
            run: Arc::new(plan.run.clone()),
            job: Arc::new(plan.job.clone()),
            executor,
            gate,
            automaton: Automaton::START,
            started: plan.clock.now().mono,
            hooks: Hooks::NONE,
            held: None,
            skip_reason: None,
            error: None,
            swallowed: Vec::new(),
            phases: Vec::new(),
            plan,
        }
    }

    fn take_phase(&mut self) {
        let phase = self.automaton.phase();
        let begun = self.plan.clock.now().mono;
        let stop = self.stop_for(phase, begun);
        let (how, error) = match stop.cause() {
            Some(cause) if phase < Phase::Seal => (Ended::Cut(cause), None),
            _ => self.make(phase, &stop),
        };
        let took = self.plan.clock.now().mono.since(begun);
        self.phases.push((phase, took));
        self.note(phase, how, error);
        self.automaton = self.automaton.ended(how, self.gate.facts());
    }

    /// A call's time is its own; up to `after_run` it is also the run's. What follows the end cannot be cancelled.
    fn stop_for(&self, phase: Phase, now: Mono) -> Stop {
        let deadlines = &self.plan.deadlines;
        let own = now + deadlines.of(phase);
        let deadline = if phase <= Phase::AfterRun { own.min(self.started + deadlines.run) } else { own };
        let clock = Arc::clone(&self.plan.clock);
        Stop::new(clock, deadline, deadlines.grace, self.plan.cancel.clone(), phase < Phase::Seal)
    }

    /// Remembers what went wrong: as the run's error, or as something that changes nothing.
    fn note(&mut self, phase: Phase, how: Ended, error: Option<ScriptError>) {
        let error = error.or_else(|| match how {
            Ended::Cut(cause) => Some(ScriptError::new(format!("{phase}: {cause}")).of_type(cut_type(cause))),
            _ => None,
        });
        let Some(error) = error else { return };
        if !self.automaton.swallows(how, self.gate.facts()) {
            self.error = Some(error);
            return;
        }
        if phase < Phase::Seal {
            self.say_swallowed(phase, &error);
        }
        self.swallowed.push(Swallowed { phase, error });
    }

    fn say_swallowed(&self, phase: Phase, error: &ScriptError) {
        let (error_type, message) = (clip(&error.error_type, TYPE_BYTES_MAX), clip(&error.message, MESSAGE_BYTES_MAX));
        let mut fields = MapBuf::new();
        fields.put("phase", phase.as_str()).put("error_type", error_type).put("error", message);
        let message = format!("{phase} failed, which changes nothing: {message}");
        self.gate.note(&Event::Log { level: Level::Warn, message: &message, fields: Some(fields.view()) });
    }

    fn make(&mut self, phase: Phase, stop: &Stop) -> Taken {
        match phase {
            Phase::Load => self.load(stop),
            Phase::Prepare => self.prepare(stop),
            Phase::Acquire => self.acquire(stop),
            Phase::Release => self.release(stop),
            Phase::BeforeRun => self.call(phase, Call::BeforeRun, stop),
            Phase::Run => self.call(phase, Call::Run, stop),
            Phase::AfterRun => self.call(phase, Call::AfterRun, stop),
            Phase::OnError => self.call(phase, Call::OnError(Arc::new(self.script_error())), stop),
            Phase::BeforeTerminal => {
                let signal = self.error.clone().map_or(TerminalSignal::Completed, TerminalSignal::Error);
                self.call(phase, Call::BeforeTerminal(Arc::new(signal)), stop)
            }
            Phase::Cleanup => self.call(phase, Call::Cleanup, stop),
            Phase::Seal | Phase::Done => unreachable!("{phase} is no call"),
        }
    }

    fn load(&mut self, stop: &Stop) -> Taken {
        let executor = &mut *self.executor;
        let loaded = catch_unwind(AssertUnwindSafe(|| executor.load(stop)));
        match loaded.unwrap_or_else(|panic| Err(LoadError::Invalid(ScriptError::from_panic(&*panic).message))) {
            Ok(hooks) => {
                self.hooks = hooks;
                WELL
            }
            Err(LoadError::Cut(cause)) => (Ended::Cut(cause), None),
            Err(error @ LoadError::Version { .. }) => {
                (Ended::Mismatch, Some(ScriptError::new(error.to_string()).of_type("version_mismatch")))
            }
            Err(error @ LoadError::Invalid(_)) => {
                (Ended::Failed, Some(ScriptError::new(error.to_string()).of_type("load_error")))
            }
        }
    }

    fn prepare(&mut self, stop: &Stop) -> Taken {
        if !self.hooks.has(Hook::Prepare) {
            return WELL;
        }
        let (executor, job, run) = (&mut *self.executor, &self.job, &self.run);
        match guarded(|| executor.prepare(job, run, stop)) {
            Called::Returned(Prepared::Continue { job }) => {
                if let Some(job) = job {
                    self.job = Arc::new(job);
                }
                WELL
            }
            Called::Returned(Prepared::Skip { reason }) => {
                self.skip_reason = reason;
                (Ended::Skipped, None)
            }
            other => taken(other),
        }
    }

    fn acquire(&mut self, stop: &Stop) -> Taken {
        let Some(resource) = self.plan.resource.clone() else { return WELL };
        let (run, own) = (Arc::clone(&self.run), stop.clone());
        let (clock, cancel, deadlines) = (Arc::clone(&self.plan.clock), self.plan.cancel.clone(), self.plan.deadlines);
        let late = move |held: Arc<dyn Held>| {
            // The time to acquire it is over; that to release it begins. Nobody waits for it, and nobody hears whether it was given back.
            let deadline = clock.now().mono + deadlines.release;
            let _trouble = held.release(&Stop::new(clock, deadline, deadlines.grace, cancel, false));
        };
        match self.plan.calls.make(stop, &NoPulse, move || resource.acquire(&run, &own), late) {
            Called::Returned(held) => {
                self.held = Some(held);
                WELL
            }
            other => taken(other),
        }
    }

    fn release(&mut self, stop: &Stop) -> Taken {
        let Some(held) = self.held.take() else { return WELL };
        let release = || {
            let (held, own) = (Arc::clone(&held), stop.clone());
            move || held.release(&own)
        };
        match self.plan.calls.make(stop, &NoPulse, release(), drop) {
            // It got no thread and has not begun. What is held has to go, even if that takes as long as it likes.
            Called::Crashed(_) => taken(Calls::Inline.make(stop, &NoPulse, release(), drop)),
            released => taken(released),
        }
    }

    fn call(&mut self, phase: Phase, call: Call, stop: &Stop) -> Taken {
        if call.hook().is_some_and(|hook| !self.hooks.has(hook)) {
            return WELL;
        }
        let number = self.gate.begin(phase, stop.clone());
        let cx = Context {
            run: Arc::clone(&self.run),
            job: Arc::clone(&self.job),
            emitter: Emitter::new(Arc::clone(&self.gate), number),
            call: number,
            stop: stop.clone(),
            held: self.held.clone(),
            files: self.plan.files.clone(),
            steps: self.plan.steps.clone(),
            is_in_step: Arc::default(),
        };
        let executor = &mut *self.executor;
        taken(guarded(|| executor.call(call, &cx)))
    }

    fn script_error(&self) -> ScriptError {
        self.error.clone().unwrap_or_else(|| ScriptError::new("an error without words"))
    }

    /// Commits what waits, decides, and has it written down.
    fn seal(
        &mut self,
        seal: impl FnOnce(&Verdict) -> Result<(), SinkError>,
    ) -> (Option<Verdict>, Result<(), SinkError>) {
        let begun = self.plan.clock.now().mono;
        let last = self.gate.close();
        let facts = last.facts;
        let answer = match outcome_of(self.automaton.decision(facts)) {
            None => (None, Err(last.refusal.unwrap_or(SinkError::Lost))),
            Some(outcome) => {
                let verdict = self.verdict(outcome, last);
                let sealed = seal(&verdict);
                (Some(verdict), sealed)
            }
        };
        self.phases.push((Phase::Seal, self.plan.clock.now().mono.since(begun)));
        self.automaton = self.automaton.ended(Ended::Well, facts);
        answer
    }

    fn verdict(&mut self, outcome: Outcome, last: Last) -> Verdict {
        let ts = self.plan.clock.now().wall.0;
        let own =
            |event: &Event<'_>| EventDraft::new(event, ts).expect("a terminal event of our own is short and named");
        match (outcome, last.said) {
            (Outcome::Success { skipped: false } | Outcome::ScriptError, Some(said)) => {
                // Who says the end says also whether there was anything to do.
                let outcome = match outcome {
                    Outcome::Success { .. } => Outcome::Success { skipped: is_skipped(&said.draft) },
                    outcome => outcome,
                };
                let error = (outcome == Outcome::ScriptError).then(|| error_in(&said.draft));
                Verdict { outcome, terminal: said.draft, said_by: said.by, error }
            }
            (Outcome::Success { skipped }, _) => {
                let mut summary = MapBuf::new();
                summary.put("skipped", true);
                summary.put_some("reason", self.skip_reason.as_deref().map(|reason| clip(reason, MESSAGE_BYTES_MAX)));
                let terminal = own(&Event::RunComplete { summary: skipped.then(|| summary.view()) });
                Verdict { outcome, terminal, said_by: None, error: None }
            }
            _ => {
                let error = match (&last.refusal, outcome) {
                    (Some(refusal), Outcome::PolicyFailure) => ScriptError::new(refusal.to_string()),
                    (_, Outcome::Cancelled) if self.error.is_none() => ScriptError::new("the run was cancelled"),
                    _ => self.script_error(),
                };
                // What went wrong in a script has a class of its own; everything else is called by its outcome.
                let error_type = if outcome == Outcome::ScriptError { &*error.error_type } else { outcome.as_str() };
                let terminal = own(&Event::RunError {
                    error_type: clip(error_type, TYPE_BYTES_MAX),
                    message: clip(&error.message, MESSAGE_BYTES_MAX),
                    stack: error.stack.as_deref().map(|stack| clip(stack, STACK_BYTES_MAX)),
                });
                Verdict { outcome, terminal, said_by: None, error: Some(error) }
            }
        }
    }

    fn report(self, verdict: Option<Verdict>, sealed: Result<(), SinkError>) -> Report {
        let counts = self.gate.counts();
        Report {
            verdict,
            sealed,
            swallowed: self.swallowed,
            phases: self.phases,
            emitted: counts.emitted,
            refused: counts.refused,
            late: counts.late,
            left_alone: counts.left_alone,
            orphans: counts.orphans,
            is_disputed: counts.is_disputed,
            tally: counts.tally,
        }
    }
}

/// What our own terminal events carry of an error, at most. The report has all of it.
const TYPE_BYTES_MAX: usize = 1 << 10;
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const STACK_BYTES_MAX: usize = 256 << 10;

/// The text up to so many bytes, whole characters only.
fn clip(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn cut_type(cause: Cause) -> &'static str {
    match cause {
        Cause::Deadline => Outcome::TimedOut.as_str(),
        Cause::Cancelled => Outcome::Cancelled.as_str(),
    }
}

/// The error that a `run_error` event tells of.
fn error_in(draft: &EventDraft) -> ScriptError {
    match Event::decode(draft.kind, draft.map()) {
        Ok(Event::RunError { error_type, message, stack }) => {
            let error = ScriptError::new(message).of_type(error_type);
            stack.into_iter().fold(error, ScriptError::with_stack)
        }
        _ => ScriptError::new("an error without words"),
    }
}

/// Whether a `run_complete` event says that the run was skipped.
fn is_skipped(draft: &EventDraft) -> bool {
    let summary = match Event::decode(draft.kind, draft.map()) {
        Ok(Event::RunComplete { summary }) => summary,
        _ => None,
    };
    summary.and_then(|summary| summary.get("skipped")) == Some(pack::Value::Bool(true))
}

/// An executor that panics is gone.
fn guarded<T>(call: impl FnOnce() -> Called<T>) -> Called<T> {
    let called = catch_unwind(AssertUnwindSafe(call));
    called.unwrap_or_else(|panic| Called::Crashed(ScriptError::from_panic(&*panic).message))
}

fn taken<T>(called: Called<T>) -> Taken {
    match called {
        Called::Returned(_) => WELL,
        Called::Failed(error) => (Ended::Failed, Some(error)),
        Called::Cut(cause) => (Ended::Cut(cause), None),
        Called::Mismatch(what) => (Ended::Mismatch, Some(ScriptError::new(what).of_type("version_mismatch"))),
        Called::Crashed(what) => (Ended::Crashed, Some(ScriptError::new(what).of_type("executor_crash"))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kauri_wire::{RunId, Timestamp};

    use super::super::{Context, Crew, Resource, RunInfo, Rust, Script};
    use super::*;
    use crate::run::MemorySink;
    use crate::testing::VirtualClock;

    #[derive(Clone, Default)]
    struct Door(Arc<AtomicBool>);

    impl Resource for Door {
        fn acquire(&self, _: &RunInfo, _: &Stop) -> Result<Arc<dyn Held>, ScriptError> {
            self.0.store(true, Ordering::SeqCst);
            Ok(Arc::new(self.clone()))
        }
    }

    impl Held for Door {
        fn release(&self, _: &Stop) -> Result<(), ScriptError> {
            self.0.store(false, Ordering::SeqCst);
            Ok(())
        }
    }

    struct Exhausts(Crew);

    impl Script for Exhausts {
        fn run(&self, _: &Context) -> Result<(), ScriptError> {
            self.0.give_no_threads();
            Ok(())
        }
    }

    #[test]
    fn what_is_held_is_released_also_if_there_is_no_thread_for_it() {
        let (door, crew, clock) = (Door::default(), Crew::default(), Arc::new(VirtualClock::default()));
        let run_id = RunId::from_parts(Timestamp(7), [7; 10]);
        let plan = Plan::new(run_id, Value::Null, clock).resource(door.clone()).crew(&crew);
        let sink = Box::new(MemorySink::default());
        let report = execute(plan, &mut Rust::inline(Exhausts(crew)), sink, |_| Ok(()));
        assert_eq!((door.0.load(Ordering::SeqCst), report.swallowed), (false, vec![]));
    }
}
