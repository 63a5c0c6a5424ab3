//! What a script says: one gate for all threads of a run, and typed ways through it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::Duration;

use kauri_wire::pack::{Map, MapBuf, Value};
use kauri_wire::run::{Envelope, Event, EventType, Level};
use kauri_wire::{Found, WireError, WireErrorKind};

use super::automaton::{Facts, Health, Phase, Terminal};
use super::calls::Pulse;
use super::error::ScriptError;
use super::stop::{Cancel, Cause, Stop};
use crate::run::artifact::{DIGEST_KEY, KeepError, KeptArtifact};
use crate::run::event::moment;
use crate::run::ingest::{Ingest, Tally};
use crate::run::session::SessionEnd;
use crate::run::sink::{EventDraft, EventSink, SinkError};
use crate::time::{Clock, Mono};

/// Why something was not said.
#[derive(Debug)]
#[non_exhaustive]
pub enum EmitError {
    /// It is no event that a reader would take. Nothing else is changed by that.
    Invalid(WireError),
    /// The run has said its last.
    AfterTerminal,
    /// The call has to stop.
    Stopped(Cause),
    /// The call was left alone because it did not stop.
    LeftAlone,
    /// The sink refused this or something before it.
    Sink(SinkError),
    /// The bytes of an artifact or a file were not kept. Nothing else is changed by that.
    Keep(KeepError),
    /// The run was given no place for artifacts and files.
    NoFiles,
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => write!(f, "{error}"),
            Self::AfterTerminal => f.write_str("expected nothing after the end of the run, found another event"),
            Self::Stopped(cause) => write!(f, "nothing more can be said: {cause}"),
            Self::LeftAlone => f.write_str("nothing more can be said: the call did not stop and was left alone"),
            Self::Sink(error) => write!(f, "{error}"),
            Self::Keep(error) => write!(f, "{error}"),
            Self::NoFiles => f.write_str("expected a place for artifacts and files, found none in the run's plan"),
        }
    }
}

impl std::error::Error for EmitError {}

impl From<WireError> for EmitError {
    fn from(error: WireError) -> Self {
        Self::Invalid(error)
    }
}

impl From<KeepError> for EmitError {
    fn from(error: KeepError) -> Self {
        Self::Keep(error)
    }
}

/// Where a script says something. Clones say it in the same run, from whatever thread.
///
/// Events have an order: the one in which these calls return. What was said is committed when the run's ingestion says.
///
/// ```
/// # use std::sync::Arc;
/// # use kauri_runtime::testing::VirtualClock;
/// # use kauri_wire::{RunId, Timestamp};
/// # let (run_id, clock) = (RunId::from_parts(Timestamp(7), [7; 10]), Arc::new(VirtualClock::default()));
/// use kauri_runtime::run::MemorySink;
/// use kauri_runtime::run::script::{Context, EmitError, Plan, Rust, Script, ScriptError, execute};
///
/// struct Talk;
/// impl Script for Talk {
///     fn run(&self, cx: &Context) -> Result<(), ScriptError> {
///         cx.emit().log_info("so it begins")?;
///         cx.emit().checkpoint("half", Some("twelve of twenty-four"))?;
///         // What is no event is refused, and changes nothing else.
///         assert!(matches!(cx.emit().checkpoint("", None), Err(EmitError::Invalid(_))));
///         cx.emit().run_complete(None)?;
///         assert!(matches!(cx.emit().log_info("one more"), Err(EmitError::AfterTerminal)));
///         Ok(())
///     }
/// }
///
/// let sink = MemorySink::default();
/// let report = execute(Plan::new(run_id, 7.into(), clock), &mut Rust::inline(Talk), Box::new(sink.clone()), |_| Ok(()));
/// assert_eq!((report.emitted, report.refused, sink.events().len()), (3, 1, 2));
/// ```
#[derive(Clone)]
pub struct Emitter {
    gate: Arc<Gate>,
    /// The call that it was given to.
    call: u64,
}

impl Emitter {
    pub(crate) const fn new(gate: Arc<Gate>, call: u64) -> Self {
        Self { gate, call }
    }

    /// A result.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn item(&self, item_type: &str, data: Map<'_>) -> Result<(), EmitError> {
        self.say(&Event::Item { item_type, data })
    }

    /// A point worth remembering.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn checkpoint(&self, checkpoint_id: &str, note: Option<&str>) -> Result<(), EmitError> {
        self.say(&Event::Checkpoint { checkpoint_id, note })
    }

    /// A wish for derived work.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn enqueue(&self, target: &str, params: Map<'_>) -> Result<(), EmitError> {
        self.say(&Event::Enqueue { target, params, source: None, category: None })
    }

    /// A wish for another proxy.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn rotate_proxy(&self, reason: Option<&str>) -> Result<(), EmitError> {
        self.say(&Event::RotateProxy { reason })
    }

    /// A line for people.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn log(&self, level: Level, message: &str, fields: Option<Map<'_>>) -> Result<(), EmitError> {
        self.say(&Event::Log { level, message, fields })
    }

    /// A line about what happens.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn log_info(&self, message: &str) -> Result<(), EmitError> {
        self.log(Level::Info, message, None)
    }

    /// A line about what should not happen.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn log_warn(&self, message: &str) -> Result<(), EmitError> {
        self.log(Level::Warn, message, None)
    }

    /// The end, badly: the run is a script error from here on, and nothing more can be said.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn run_error(&self, error: &ScriptError) -> Result<(), EmitError> {
        let ScriptError { error_type, message, stack } = error;
        self.say(&Event::RunError { error_type, message, stack: stack.as_deref() })
    }

    /// The end, well: the run is a success from here on, and nothing more can be said. A summary whose `skipped` is true says that there
    /// was nothing to do, as `prepare` does: the run is then a success that was skipped.
    ///
    /// # Errors
    /// Why it was not said; also if the summary's `skipped` is neither true nor false.
    pub fn run_complete(&self, summary: Option<Map<'_>>) -> Result<(), EmitError> {
        let skipped = summary.and_then(|summary| summary.get("skipped"));
        if !matches!(skipped, None | Some(Value::Bool(_))) {
            let (expected, found) = ("a summary whose `skipped` is true or false", Found::Type("something else"));
            return Err(WireError { at: 0, expected, found, kind: WireErrorKind::Invalid }.into());
        }
        self.say(&Event::RunComplete { summary })
    }

    /// Any event but an artifact, which has bytes: see [`Context::artifact`](super::Context::artifact).
    ///
    /// # Errors
    /// Why it was not said.
    pub fn say(&self, event: &Event<'_>) -> Result<(), EmitError> {
        if event.event_type() == EventType::Artifact {
            let (expected, found) = ("an event without bytes", Found::Type("an artifact"));
            return Err(WireError { at: 0, expected, found, kind: WireErrorKind::Invalid }.into());
        }
        let draft = EventDraft::new(event, self.gate.wall())?;
        self.gate.take(self.call, draft, None)
    }

    /// The commit of an artifact whose bytes are durable. They stay guarded until the event is committed.
    ///
    /// # Errors
    /// Why it was not said.
    pub fn artifact(
        &self,
        artifact_id: &str,
        name: &str,
        content_type: &str,
        bytes: KeptArtifact,
    ) -> Result<(), EmitError> {
        let event = Event::Artifact { artifact_id, name, content_type, size_bytes: bytes.size_bytes() };
        // Checked without the digest first, because that checks before it copies.
        EventDraft::new(&event, 0)?;
        self.commit(event.payload(), self.gate.wall(), bytes)
    }

    /// An event as another writer said it, unknown keys and all.
    pub(crate) fn say_as_it_came(&self, said: &Envelope<'_>) -> Result<(), EmitError> {
        let draft = EventDraft::from_payload(said.event_type, said.payload, self.said_at(said))?;
        self.gate.take(self.call, draft, None)
    }

    /// The same, of an artifact whose bytes are durable.
    pub(crate) fn artifact_as_it_came(&self, said: &Envelope<'_>, bytes: KeptArtifact) -> Result<(), EmitError> {
        let mut payload = MapBuf::new();
        for (key, value) in said.payload.iter() {
            match key {
                // Which bytes these are is ours to say.
                Value::Str(DIGEST_KEY) => {}
                Value::Str(key) => _ = payload.put(key, value),
                // No payload of the contract has such keys.
                _ => {}
            }
        }
        self.commit(payload, self.said_at(said), bytes)
    }

    /// When another writer says that it said this, or else now.
    fn said_at(&self, said: &Envelope<'_>) -> i64 {
        moment(said.ts).unwrap_or_else(|| self.gate.wall())
    }

    fn commit(&self, mut payload: MapBuf, ts: i64, bytes: KeptArtifact) -> Result<(), EmitError> {
        payload.put(DIGEST_KEY, &*bytes.digest().to_string());
        let draft = EventDraft::from_payload(EventType::Artifact, payload.view(), ts)?;
        self.gate.take(self.call, draft, Some(bytes))
    }

    /// Whether something could be said now.
    ///
    /// # Errors
    /// Why not. It is not counted as refused.
    pub fn check(&self) -> Result<(), EmitError> {
        self.gate.lock().admits(self.call)
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }
}

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emitter").field("call", &self.call).finish_non_exhaustive()
    }
}

/// Everything that is said in a run goes through here, one after the other.
pub(crate) struct Gate {
    clock: Arc<dyn Clock>,
    waker: Cancel,
    watch: Option<Arc<Watch>>,
    state: Mutex<State>,
}

/// How whoever drives a run looks after what its script has said and not committed, so that a silent script need not.
pub(crate) struct Watch {
    gate: OnceLock<Weak<Gate>>,
    /// Makes whoever watches look.
    nudge: Box<dyn Fn() + Send + Sync>,
}

impl Watch {
    pub(crate) fn new(nudge: impl Fn() + Send + Sync + 'static) -> Self {
        Self { gate: OnceLock::new(), nudge: Box::new(nudge) }
    }

    /// How long whoever watches may rest until it looks again, if nobody nudges: so long at most.
    pub(crate) fn pause(&self, now: Mono, most: Duration) -> Duration {
        // Somebody says something at this moment: it is over soon.
        const SOON: Duration = Duration::from_millis(1);
        let due = self.look(|state| state.map_or(Some(now), |state| state.ingest.due())).flatten();
        due.map_or(most, |due| due.since(now).max(SOON).min(most))
    }

    /// Commits what has waited long enough, unless somebody says something at this moment, and commits it then.
    pub(crate) fn tick(&self, now: Mono, way: &mut dyn EventSink) {
        self.look(|state| state.map(|state| state.tick(|ingest| ingest.tick_through(now, way))));
    }

    /// Looks at the gate, if there is one, and if nobody has it. It is not waited for: whoever has it may wait for the caller.
    fn look<T>(&self, look: impl FnOnce(Option<&mut State>) -> T) -> Option<T> {
        let gate = self.gate.get()?.upgrade()?;
        let looked = match gate.state.try_lock() {
            Ok(mut state) => look(Some(&mut state)),
            Err(TryLockError::Poisoned(poisoned)) => look(Some(&mut poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => look(None),
        };
        Some(looked)
    }
}

pub(crate) struct State {
    ingest: Ingest,
    /// The call that is going on: its phase, and when it has to stop.
    now: Option<(Phase, Stop)>,
    calls: u64,
    /// Calls that did not stop.
    left_alone: BTreeSet<u64>,
    said: Option<Said>,
    is_closed: bool,
    /// The run waits for something.
    is_parked: bool,
    emitted: u64,
    refused: u64,
    /// Those of them that came after the end.
    late: u64,
    /// What sessions with processes left.
    orphans: u64,
    is_disputed: bool,
    artifacts: u64,
    /// Bytes whose events wait for a commit.
    guards: Vec<KeptArtifact>,
}

/// A terminal event, and who said it.
pub(crate) struct Said {
    pub(crate) draft: EventDraft,
    pub(crate) by: Option<Phase>,
}

/// What is known when a run says nothing more.
pub(crate) struct Last {
    pub(crate) facts: Facts,
    pub(crate) said: Option<Said>,
    pub(crate) refusal: Option<SinkError>,
}

/// How much was said.
pub(crate) struct Counts {
    pub(crate) emitted: u64,
    pub(crate) refused: u64,
    pub(crate) late: u64,
    pub(crate) left_alone: u64,
    pub(crate) orphans: u64,
    pub(crate) is_disputed: bool,
    pub(crate) tally: Tally,
}

impl Gate {
    pub(crate) fn new(ingest: Ingest, clock: Arc<dyn Clock>, waker: Cancel, watch: Option<Arc<Watch>>) -> Arc<Self> {
        let state = State {
            ingest,
            now: None,
            calls: 0,
            left_alone: BTreeSet::new(),
            said: None,
            is_closed: false,
            is_parked: false,
            emitted: 0,
            refused: 0,
            late: 0,
            orphans: 0,
            is_disputed: false,
            artifacts: 0,
            guards: Vec::new(),
        };
        let gate = Arc::new(Self { clock, waker, watch, state: Mutex::new(state) });
        if let Some(watch) = &gate.watch {
            // A watch has one gate.
            let _taken = watch.gate.set(Arc::downgrade(&gate));
        }
        gate
    }

    /// Begins a call and tells its number.
    pub(crate) fn begin(&self, phase: Phase, stop: Stop) -> u64 {
        let mut state = self.lock();
        state.now = Some((phase, stop));
        state.calls += 1;
        state.calls
    }

    /// What is known after a call.
    pub(crate) fn facts(&self) -> Facts {
        self.lock().facts()
    }

    /// Says something for the runtime: in any call, and after a terminal event, which is committed last. It is not dropped: a script's
    /// chatter is, and what went wrong is not chatter.
    pub(crate) fn note(&self, event: &Event<'_>) {
        let Ok(draft) = EventDraft::new(event, self.wall()) else { return };
        let now = self.clock.now().mono;
        // A sink that refuses is asked about when the run is sealed.
        let _refusal = self.lock().ingest.insist(draft, now);
    }

    /// Commits what waits: so that it is not lost when the run waits.
    pub(crate) fn flush(&self) -> Result<(), EmitError> {
        let mut state = self.lock();
        state.ingest.flush().map_err(EmitError::Sink)?;
        state.guards.clear();
        Ok(())
    }

    /// The run waits for something: nothing more is said, and it does not end.
    pub(crate) fn park(&self) {
        self.lock().is_parked = true;
    }

    /// The number of another artifact.
    pub(crate) fn next_artifact(&self) -> u64 {
        let mut state = self.lock();
        state.artifacts += 1;
        state.artifacts
    }

    /// Commits what waits, and takes nothing more.
    pub(crate) fn close(&self) -> Last {
        let mut state = self.lock();
        state.is_closed = true;
        // What the sink says is among the facts.
        let _refusal = state.ingest.flush();
        state.guards.clear();
        let (facts, refusal) = (state.facts(), state.refusal());
        Last { facts, said: state.said.take(), refusal }
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        Counts {
            emitted: state.emitted,
            refused: state.refused,
            late: state.late,
            left_alone: state.left_alone.len() as u64,
            orphans: state.orphans,
            is_disputed: state.is_disputed,
            tally: state.ingest.tally().clone(),
        }
    }

    /// What a session with a process came to, beside how it ended: what it refused never came here.
    pub(crate) fn note_session(&self, end: &SessionEnd) {
        let mut state = self.lock();
        state.refused += end.refused;
        state.late += end.refused;
        state.orphans += end.orphans as u64;
        state.is_disputed |= end.is_disputed;
    }

    fn wall(&self) -> i64 {
        self.clock.now().wall.0
    }

    fn take(&self, call: u64, draft: EventDraft, bytes: Option<KeptArtifact>) -> Result<(), EmitError> {
        let now = self.clock.now().mono;
        let mut state = self.lock();
        let due = state.ingest.due();
        let taken = state.take(call, draft, bytes, now);
        let is_other = state.ingest.due() != due;
        drop(state);
        if is_other {
            // Who waits for the call has to look after what waits for a commit, too; and if nobody does, who drives the run.
            self.waker.wake();
            self.watch.iter().for_each(|watch| (watch.nudge)());
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pulse for (Arc<Gate>, u64) {
    fn due(&self) -> Option<Mono> {
        self.0.lock().ingest.due()
    }

    fn tick(&self) {
        let now = self.0.clock.now().mono;
        self.0.lock().tick(|ingest| ingest.tick(now));
    }

    fn leave(&self) {
        self.0.lock().left_alone.insert(self.1);
    }
}

impl State {
    fn tick(&mut self, tick: impl FnOnce(&mut Ingest) -> Result<(), SinkError>) {
        let commits = self.ingest.tally().commits;
        // A sink that refuses is asked about when something is said, and at the end.
        let _refusal = tick(&mut self.ingest);
        if self.ingest.tally().commits > commits {
            self.guards.clear();
        }
    }

    fn admits(&self, call: u64) -> Result<(), EmitError> {
        if self.left_alone.contains(&call) {
            return Err(EmitError::LeftAlone);
        }
        if self.is_closed || self.said.is_some() {
            return Err(EmitError::AfterTerminal);
        }
        if let Some(error) = self.refusal() {
            return Err(EmitError::Sink(error));
        }
        match self.now.as_ref().and_then(|(_, stop)| stop.cause()) {
            Some(cause) => Err(EmitError::Stopped(cause)),
            None => Ok(()),
        }
    }

    fn take(&mut self, call: u64, draft: EventDraft, bytes: Option<KeptArtifact>, now: Mono) -> Result<(), EmitError> {
        if let Err(error) = self.admits(call) {
            self.refused += 1;
            self.late += u64::from(matches!(error, EmitError::AfterTerminal | EmitError::LeftAlone));
            return Err(error);
        }
        if draft.kind.is_terminal() {
            self.said = Some(Said { draft, by: self.now.as_ref().map(|(phase, _)| *phase) });
            self.emitted += 1;
            return Ok(());
        }
        let commits = self.ingest.tally().commits;
        self.ingest.offer(draft, now).map_err(|error| {
            self.refused += 1;
            EmitError::Sink(error)
        })?;
        self.emitted += 1;
        if self.ingest.tally().commits > commits {
            self.guards.clear();
        }
        if self.ingest.waiting_bytes() > 0 {
            self.guards.extend(bytes);
        }
        Ok(())
    }

    /// Why nothing more is taken, if that is so.
    fn refusal(&self) -> Option<SinkError> {
        match self.is_parked {
            true => Some(SinkError::Parked),
            false => self.ingest.refusal().cloned(),
        }
    }

    fn facts(&self) -> Facts {
        let said = self.said.as_ref().map(|said| match said.draft.kind {
            EventType::RunComplete => Terminal::Complete,
            _ => Terminal::Error,
        });
        let sink = match self.refusal() {
            None => Health::Well,
            Some(SinkError::Parked) => Health::Parked,
            Some(SinkError::Failed(_)) => Health::Failed,
            Some(SinkError::Cancelled) => Health::Cancelled,
            Some(SinkError::Lost | SinkError::Sealed) => Health::Gone,
        };
        Facts { said, sink }
    }
}
