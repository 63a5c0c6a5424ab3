//! Every path through a run: each way in which each call can end, in every combination that can be reached, against the contract written
//! down as straight code.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use kauri_runtime::run::script::{
    Cancel, Context, Held, Hook, Hooks, Phase, Plan, Prepared, Report, Resource, RunInfo, Rust, Script, ScriptError,
    Stop, Terminal, TerminalSignal, execute,
};
use kauri_runtime::run::{Appended, EventDraft, EventSink, Outcome, SinkError};
use kauri_runtime::testing::VirtualClock;
use kauri_wire::pack::Map;
use kauri_wire::run::EventType;
use kauri_wire::{RunId, Timestamp};
use serde_json::Value;

/// Goes through a tree of choices, one path at a time.
#[derive(Default)]
struct Tree {
    /// What was chosen, and among how many.
    path: Vec<(usize, usize)>,
    at: usize,
}

impl Tree {
    fn choose(&mut self, among: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, among));
        }
        let (chosen, of) = self.path[self.at];
        assert_eq!(of, among, "the same path offers the same choices");
        self.at += 1;
        chosen
    }

    /// The next path, if there is one.
    fn advance(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, among)) = self.path.pop() {
            if chosen + 1 < among {
                self.path.push((chosen + 1, among));
                return true;
            }
        }
        false
    }
}

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Well,
    Fails,
    Panics,
    /// It waits until it is told to stop.
    Hangs,
}

/// What a call does: says something, breaks the sink, cancels the run, and ends.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Deed {
    says: Option<Terminal>,
    breaks: Option<&'static str>,
    cancels: bool,
    ends: End,
}

const fn deed(ends: End) -> Deed {
    Deed { says: None, breaks: None, cancels: false, ends }
}

const fn says(terminal: Terminal, ends: End) -> Deed {
    Deed { says: Some(terminal), ..deed(ends) }
}

const fn breaks(how: &'static str, ends: End) -> Deed {
    Deed { breaks: Some(how), ..deed(ends) }
}

const fn cancels(ends: End) -> Deed {
    Deed { cancels: true, ..deed(ends) }
}

const DEEDS: [Deed; 22] = [
    deed(End::Well),
    deed(End::Fails),
    deed(End::Panics),
    deed(End::Hangs),
    says(Terminal::Complete, End::Well),
    says(Terminal::Complete, End::Fails),
    says(Terminal::Complete, End::Hangs),
    says(Terminal::Error, End::Well),
    says(Terminal::Error, End::Fails),
    Deed { cancels: true, ..says(Terminal::Complete, End::Fails) },
    cancels(End::Well),
    cancels(End::Fails),
    cancels(End::Hangs),
    breaks("failed", End::Well),
    breaks("failed", End::Fails),
    breaks("lost", End::Fails),
    breaks("lost", End::Well),
    breaks("cancelled", End::Fails),
    breaks("cancelled", End::Well),
    breaks("parked", End::Fails),
    breaks("parked", End::Well),
    breaks("parked", End::Hangs),
];

/// Calls after the end can still go wrong, and are cancelled in vain.
const LAST_DEEDS: [Deed; 5] =
    [deed(End::Well), deed(End::Fails), deed(End::Hangs), cancels(End::Well), says(Terminal::Error, End::Fails)];

/// What `prepare` and the acquisition do.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Early {
    Absent,
    Well,
    Skips,
    Fails,
    Hangs,
    CancelsAndFails,
    CancelsAndGoesOn,
}

const PREPARES: [Early; 7] = [
    Early::Well,
    Early::Absent,
    Early::Skips,
    Early::Fails,
    Early::Hangs,
    Early::CancelsAndFails,
    Early::CancelsAndGoesOn,
];
const ACQUIRES: [Early; 5] = [Early::Well, Early::Absent, Early::Fails, Early::Hangs, Early::CancelsAndGoesOn];

/// What was chosen, and what happened.
#[derive(Default)]
struct Stage {
    tree: Tree,
    deeds: Vec<(Phase, Deed)>,
    hooks: Hooks,
    prepare: Option<Early>,
    acquire: Option<Early>,
    broken: Option<&'static str>,
    kept: Vec<EventDraft>,
    calls: Vec<Phase>,
    /// Whether each call could say something at its start.
    heard: Vec<bool>,
    signal: Option<TerminalSignal>,
    acquired: u32,
    released: u32,
}

#[derive(Clone)]
struct Actor {
    stage: Arc<Mutex<Stage>>,
    cancel: Cancel,
}

impl Actor {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap()
    }

    fn act(&self, phase: Phase, cx: &Context) -> Result<(), ScriptError> {
        let heard = cx.emit().item(phase.as_str(), Map::EMPTY).is_ok();
        let mut stage = self.stage();
        let deeds: &[Deed] = if phase == Phase::Cleanup { &LAST_DEEDS } else { &DEEDS };
        let chosen = stage.tree.choose(deeds.len());
        let deed = deeds[chosen];
        stage.calls.push(phase);
        stage.heard.push(heard);
        stage.deeds.push((phase, deed));
        drop(stage);
        self.perform(deed, cx)
    }

    fn perform(&self, deed: Deed, cx: &Context) -> Result<(), ScriptError> {
        let said = match deed.says {
            None => Ok(()),
            Some(Terminal::Complete) => cx.emit().run_complete(None),
            Some(Terminal::Error) => cx.emit().run_error(&ScriptError::new("said").of_type("said")),
        };
        if let Some(how) = deed.breaks {
            self.stage().broken = Some(how);
            assert!(cx.emit().checkpoint("breaks", None).is_err());
        }
        if deed.cancels {
            self.cancel.cancel();
        }
        match deed.ends {
            End::Well => Ok(()),
            End::Fails => Err(said.err().map_or_else(|| ScriptError::new("failed"), ScriptError::from)),
            End::Panics => std::panic::resume_unwind(Box::new("panicked")),
            End::Hangs => loop {
                cx.sleep(Duration::from_hours(1))?;
            },
        }
    }

    fn act_early(&self, early: Early, stop: &Stop) -> Result<(), ScriptError> {
        match early {
            Early::Absent | Early::Well | Early::Skips => Ok(()),
            Early::Fails => Err("failed".into()),
            Early::Hangs => loop {
                stop.sleep(Duration::from_hours(1))?;
            },
            Early::CancelsAndFails => {
                self.cancel.cancel();
                Ok(stop.check()?)
            }
            Early::CancelsAndGoesOn => {
                self.cancel.cancel();
                Ok(())
            }
        }
    }
}

impl Script for Actor {
    fn prepare(&self, _: &Value, _: &RunInfo, stop: &Stop) -> Result<Prepared, ScriptError> {
        self.stage().calls.push(Phase::Prepare);
        let early = self.stage().prepare.unwrap();
        self.act_early(early, stop)?;
        Ok(if early == Early::Skips { Prepared::Skip { reason: None } } else { Prepared::CONTINUE })
    }

    fn before_run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.act(Phase::BeforeRun, cx)
    }

    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.act(Phase::Run, cx)
    }

    fn after_run(&self, cx: &Context) -> Result<(), ScriptError> {
        self.act(Phase::AfterRun, cx)
    }

    fn on_error(&self, _: &ScriptError, cx: &Context) -> Result<(), ScriptError> {
        self.act(Phase::OnError, cx)
    }

    fn before_terminal(&self, signal: &TerminalSignal, cx: &Context) -> Result<(), ScriptError> {
        self.stage().signal = Some(signal.clone());
        self.act(Phase::BeforeTerminal, cx)
    }

    fn cleanup(&self, cx: &Context) -> Result<(), ScriptError> {
        self.act(Phase::Cleanup, cx)
    }

    fn hooks(&self) -> Hooks {
        self.stage().hooks
    }
}

impl Resource for Actor {
    fn acquire(&self, _: &RunInfo, stop: &Stop) -> Result<Arc<dyn Held>, ScriptError> {
        self.stage().calls.push(Phase::Acquire);
        let early = self.stage().acquire.unwrap();
        self.act_early(early, stop)?;
        self.stage().acquired += 1;
        Ok(Arc::new(self.clone()))
    }
}

impl Held for Actor {
    fn release(&self, _: &Stop) -> Result<(), ScriptError> {
        let mut stage = self.stage();
        stage.calls.push(Phase::Release);
        stage.released += 1;
        Ok(())
    }
}

impl EventSink for Actor {
    fn append(&mut self, events: &[EventDraft]) -> Result<Appended, SinkError> {
        let mut stage = self.stage();
        match stage.broken {
            Some("failed") => return Err(SinkError::Failed("full".to_owned())),
            Some("lost") => return Err(SinkError::Lost),
            Some("parked") => return Err(SinkError::Parked),
            Some(_) => return Err(SinkError::Cancelled),
            None => {}
        }
        let first_seq = stage.kept.len() as u64 + 1;
        stage.kept.extend_from_slice(events);
        Ok(Appended { first_seq, last_seq: stage.kept.len() as u64 })
    }
}

/// The contract, as straight code: what has to happen when the calls do what they do.
#[derive(PartialEq, Debug, Default)]
struct Expected {
    calls: Vec<Phase>,
    heard: Vec<bool>,
    /// Nothing if the run is not ours to end, or waits.
    outcome: Option<Outcome>,
    said_by: Option<Phase>,
    swallowed: Vec<Phase>,
    signal: Option<&'static str>,
}

struct Oracle<'a> {
    stage: &'a Stage,
    is_cancelled: bool,
    expected: Expected,
    said: Option<Terminal>,
    /// What was done to the sink, and what the run has seen of it.
    breaks: Option<&'static str>,
    broken: Option<&'static str>,
}

/// What a call came to.
#[derive(Clone, Copy, PartialEq)]
enum Came {
    Well,
    Failed,
    TimedOut,
    Cancelled,
}

impl Oracle<'_> {
    /// A call that is made, with all that it does.
    fn called(&mut self, phase: Phase) -> Came {
        let deed = self.stage.deeds.iter().find(|(at, _)| *at == phase).expect("the call was made").1;
        self.expected.calls.push(phase);
        let is_open = self.said.is_none() && self.broken.is_none() && phase != Phase::Cleanup;
        self.expected.heard.push(is_open);
        if is_open && let Some(terminal) = deed.says {
            (self.said, self.expected.said_by) = (Some(terminal), Some(phase));
        }
        // Nothing of a script reaches the sink of a run that has said its last.
        self.breaks = self.breaks.or(deed.breaks);
        if self.said.is_none() {
            self.broken = self.breaks;
        }
        self.is_cancelled |= deed.cancels && phase != Phase::Cleanup;
        match deed.ends {
            End::Well => Came::Well,
            _ if self.is_cancelled => Came::Cancelled,
            End::Hangs => Came::TimedOut,
            End::Fails | End::Panics => Came::Failed,
        }
    }

    fn hook(&mut self, phase: Phase, hook: Hook) -> Came {
        if self.is_cancelled {
            return Came::Cancelled;
        }
        if self.stage.hooks.has(hook) { self.called(phase) } else { Came::Well }
    }

    fn is_over(&self) -> bool {
        self.said.is_some() || matches!(self.broken, Some("lost" | "cancelled" | "parked"))
    }

    fn swallow(&mut self, phase: Phase, came: Came) {
        if came != Came::Well {
            self.expected.swallowed.push(phase);
            // What is swallowed is told, and then the runtime meets what was broken.
            self.broken = self.breaks;
        }
    }

    fn early(&mut self, early: Early, phase: Phase) -> Came {
        if self.is_cancelled {
            return Came::Cancelled;
        }
        if early != Early::Absent {
            self.expected.calls.push(phase);
        }
        self.is_cancelled = matches!(early, Early::CancelsAndFails | Early::CancelsAndGoesOn);
        match early {
            Early::Absent | Early::Well | Early::Skips | Early::CancelsAndGoesOn => Came::Well,
            Early::Fails => Came::Failed,
            Early::Hangs => Came::TimedOut,
            Early::CancelsAndFails => Came::Cancelled,
        }
    }

    fn judge(mut self) -> Expected {
        let prepare = self.stage.prepare.unwrap();
        let crash = Outcome::ExecutorCrash;
        if let Some(outcome) = ended(self.early(prepare, Phase::Prepare), crash) {
            return self.seal_early(outcome);
        }
        if prepare == Early::Skips {
            return self.seal_early(Outcome::Success { skipped: true });
        }
        if let Some(outcome) = ended(self.early(self.stage.acquire.unwrap(), Phase::Acquire), crash) {
            return self.seal_early(outcome);
        }
        let outcome = self.work();
        self.seal(outcome)
    }

    /// From `before_run` to `before_terminal`: how it ends unless somebody has said so.
    fn work(&mut self) -> Outcome {
        let success = Outcome::Success { skipped: false };
        let mut came = self.hook(Phase::BeforeRun, Hook::BeforeRun);
        if came == Came::Well && !self.is_over() {
            came = if self.is_cancelled { Came::Cancelled } else { self.called(Phase::Run) };
            let is_ours =
                self.said != Some(Terminal::Error) && !matches!(self.broken, Some("lost" | "cancelled" | "parked"));
            if came == Came::Well && is_ours {
                came = self.hook_after(Phase::Run);
            } else if self.said.is_some() {
                self.swallow(Phase::Run, came);
            }
        } else if self.said.is_some() {
            self.swallow(Phase::BeforeRun, came);
        }
        let outcome = ended(came, Outcome::ScriptError).unwrap_or(success);
        if self.is_over() || matches!(came, Came::TimedOut | Came::Cancelled) {
            return outcome;
        }
        self.before_end(came, outcome)
    }

    /// `after_run`, whose trouble counts unless the script has said its end.
    fn hook_after(&mut self, _: Phase) -> Came {
        let was_said = self.said.is_some();
        let came = self.hook(Phase::AfterRun, Hook::AfterRun);
        if self.said.is_some() {
            self.swallow(Phase::AfterRun, came);
        }
        if was_said { Came::Well } else { came }
    }

    fn before_end(&mut self, came: Came, outcome: Outcome) -> Outcome {
        if came == Came::Failed {
            let came = self.hook(Phase::OnError, Hook::OnError);
            if came == Came::Cancelled && self.said.is_none() {
                return Outcome::Cancelled;
            }
            self.swallow(Phase::OnError, came);
        }
        if self.said.is_some() || self.broken.is_some() {
            return outcome;
        }
        if self.stage.hooks.has(Hook::BeforeTerminal) && !self.is_cancelled {
            self.expected.signal = Some(if came == Came::Failed { "error" } else { "completed" });
        }
        let came = self.hook(Phase::BeforeTerminal, Hook::BeforeTerminal);
        if came == Came::Cancelled && self.said.is_none() {
            return Outcome::Cancelled;
        }
        self.swallow(Phase::BeforeTerminal, came);
        outcome
    }

    fn seal_early(mut self, outcome: Outcome) -> Expected {
        self.expected.outcome = Some(outcome);
        self.expected
    }

    /// Decides, then cleans up and releases.
    fn seal(mut self, outcome: Outcome) -> Expected {
        self.expected.outcome = match (self.broken, self.said) {
            (Some("lost" | "parked"), _) => None,
            (Some("failed"), _) => Some(Outcome::PolicyFailure),
            (_, Some(Terminal::Complete)) => Some(Outcome::Success { skipped: false }),
            (_, Some(Terminal::Error)) => Some(Outcome::ScriptError),
            (Some(_), None) => Some(Outcome::Cancelled),
            (None, None) => Some(outcome),
        };
        if self.stage.hooks.has(Hook::Cleanup) {
            self.is_cancelled = false;
            let came = self.called(Phase::Cleanup);
            self.swallow(Phase::Cleanup, came);
        }
        if self.stage.acquire != Some(Early::Absent) {
            self.expected.calls.push(Phase::Release);
        }
        if !matches!(self.expected.outcome, Some(Outcome::Success { .. } | Outcome::ScriptError)) {
            self.expected.said_by = None;
        }
        self.expected
    }
}

fn ended(came: Came, failed: Outcome) -> Option<Outcome> {
    match came {
        Came::Well => None,
        Came::Failed => Some(failed),
        Came::TimedOut => Some(Outcome::TimedOut),
        Came::Cancelled => Some(Outcome::Cancelled),
    }
}

/// One path, to its end.
fn go(tree: Tree) -> (Report, Vec<EventType>, Stage) {
    let stage = Stage { tree, ..Stage::default() };
    let actor = Actor { stage: Arc::new(Mutex::new(stage)), cancel: Cancel::default() };
    let run_id = RunId::from_parts(Timestamp(7), [7; 10]);
    let clock = Arc::new(VirtualClock::default());
    let mut plan = Plan::new(run_id, Value::Null, clock).cancel(actor.cancel.clone());
    {
        let mut stage = actor.stage();
        let prepare = stage.tree.choose(PREPARES.len());
        stage.prepare = Some(PREPARES[prepare]);
        if prepare != 1 {
            stage.hooks = stage.hooks.with(Hook::Prepare);
        }
        let acquire = stage.tree.choose(ACQUIRES.len());
        stage.acquire = Some(ACQUIRES[acquire]);
        if acquire != 1 {
            plan = plan.resource(actor.clone());
        }
        // Hooks that must not be reached are all there.
        let is_reached = (prepare <= 1) && (acquire <= 1);
        for hook in Hook::ALL.into_iter().skip(1) {
            if !is_reached || stage.tree.choose(2) == 0 {
                stage.hooks = stage.hooks.with(hook);
            }
        }
    }
    let mut sealed = Vec::new();
    let mut executor = Rust::inline(actor.clone());
    let report = execute(plan, &mut executor, Box::new(actor.clone()), |verdict| {
        sealed.push(verdict.terminal.kind);
        Ok(())
    });
    drop(executor);
    let stage = std::mem::take(&mut *actor.stage());
    (report, sealed, stage)
}

fn check(report: &Report, sealed: &[EventType], stage: &Stage) {
    let path = || format!("{:?} {:?} {:?} {:?}", stage.prepare, stage.acquire, stage.hooks, stage.deeds);
    let expected = Expected::default();
    let oracle = Oracle { stage, is_cancelled: false, expected, said: None, breaks: None, broken: None };
    let expected = oracle.judge();
    let signal = stage.signal.as_ref().map(|signal| match signal {
        TerminalSignal::Completed => "completed",
        TerminalSignal::Error(_) => "error",
    });
    let found = Expected {
        calls: stage.calls.clone(),
        heard: stage.heard.clone(),
        outcome: report.verdict.as_ref().map(|verdict| verdict.outcome),
        said_by: report.verdict.as_ref().and_then(|verdict| verdict.said_by),
        swallowed: report.swallowed.iter().map(|swallowed| swallowed.phase).collect(),
        signal,
    };
    assert_eq!(found, expected, "{}", path());

    // One terminal event, of the right kind, and none in the stream before it.
    let terminal = expected.outcome.map(|outcome| match outcome {
        Outcome::Success { .. } => EventType::RunComplete,
        _ => EventType::RunError,
    });
    assert_eq!(sealed, terminal.as_slice(), "{}", path());
    assert!(stage.kept.iter().all(|event| !event.kind.is_terminal()), "{}", path());
    // Everything heard is kept, and what was swallowed before the end is told, unless the sink is broken.
    let items = stage.kept.iter().filter(|event| event.kind == EventType::Item).count();
    assert_eq!(items, stage.heard.iter().filter(|heard| **heard).count(), "{}", path());
    let logs = stage.kept.iter().filter(|event| event.kind == EventType::Log).count();
    let told = expected.swallowed.iter().filter(|phase| **phase < Phase::Seal).count();
    assert!(logs == told || stage.broken.is_some() && logs <= told, "{}: {logs} of {told}", path());
    assert_eq!(stage.acquired, stage.released, "{}", path());
}

#[test]
fn every_path_through_a_run_goes_as_the_contract_says() {
    let (mut tree, mut paths, mut outcomes) = (Tree::default(), 0_u64, std::collections::BTreeMap::new());
    loop {
        let (report, sealed, stage) = go(tree);
        check(&report, &sealed, &stage);
        paths += 1;
        *outcomes.entry(report.verdict.map_or("lost", |verdict| verdict.outcome.as_str())).or_insert(0_u64) += 1;
        tree = stage.tree;
        if !tree.advance() {
            break;
        }
    }
    println!("{paths} paths: {outcomes:?}");
    assert!(paths > 100_000, "only {paths} paths");
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
}
