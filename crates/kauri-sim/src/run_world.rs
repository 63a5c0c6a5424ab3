//! A trial of jobs and runs on a simulated disk, under every fault there is.
//!
//! Jobs come in, some of them twice, some at a moment, before a deadline or after others. Some runs ask for derived work, and some of that asks
//! for more, in some worlds for more than there may be; some fail now and then, some always; some sleep, wait for a signal, or for the work they
//! asked for; some act outside; some are cancelled in the middle or out of time, and some retried, from the start or from a step. Some do all that
//! in a script. Some classes begin a run anew whose driver died, others let it go on; each is paused now and then.
//! Whatever crashes meanwhile: in the end every run has one outcome and a stream of events without a gap whose hash matches; every parent is
//! there, and what a run asked for was made once; every recorded step was done once; what was done outside was done once for each decision;
//! and nothing waits for anything. Then the classes keep less, and while everything fails again what is too much is swept away: what is kept
//! is whole, and of the rest nothing is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kauri_runtime::planted::Bug;
use kauri_runtime::run::script::{Context, Rust, Script, ScriptError};
use kauri_runtime::run::{
    Class, Drive, Ending, Enqueued, EventDraft, EventSink, FanOut, Halt, Keep, Limits, LiveRun, OnFailed, Origin,
    Outcome, Retry, Run, Runs, Scripted, State, StepKind, Submission, Takeover, work_hash,
};
use kauri_runtime::substrate::{KeyRange, TableName, prefix_end};
use kauri_runtime::testing::{Faults, World};
use kauri_runtime::{Builder, Failure, Policy, Read, Runtime, Worker, Write};
use kauri_tree::Table;
use kauri_wire::pack::{Map, MapBuf, Value};
use kauri_wire::run::{Event, EventType, Level};
use kauri_wire::{JobId, RunId, Timestamp, WorkerId};

use crate::book::{Book, Entry};
use crate::ground::DiskGround;
use crate::rng::Rng;
use crate::shrink::{self, Shrink};
use crate::world::Story;

const CREW: WorkerId = WorkerId(5);
/// How often each step was done, by run and name.
const DONE: Table<(RunId, String), u64> = Table::new("done");
const CLASSES: [&str; 3] = ["tree", "resumed", "plain"];

/// A world of jobs to be tried. Everything in it follows from the seed.
#[derive(Clone, Debug)]
pub struct RunTrial {
    /// The seed.
    pub seed: u64,
    /// What goes wrong.
    pub faults: Faults,
    /// Whether the disk fails now and then.
    pub disk_fails: bool,
    /// How many jobs there are.
    pub jobs: u64,
    /// A bug to be found.
    pub bug: Option<Bug>,
}

impl RunTrial {
    /// The world of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::of(seed, &[11]);
        Self { seed, faults: Faults::ALL, disk_fails: true, jobs: 2 + rng.below(5), bug: None }
    }

    /// The same world with this bug in it.
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        Self { bug: Some(bug), ..self }
    }

    /// Lets the world run and looks at what is left.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn run(&self) -> Result<Story, String> {
        let mut rng = Rng::of(self.seed, &[12]);
        let page_bytes = *rng.pick(&[512, 1024, 4096]);
        let ground = DiskGround::new(self.seed, page_bytes, if self.disk_fails { 8 } else { 0 });
        let crew = 1 + rng.index(3);
        let bug = self.bug;
        // Crashes and pauses are many here; they must not end what would be resumed.
        let policy = Policy { delivery_budget: 1000, ..Policy::default() };
        let own = policy.clone();
        let book = Book::default();
        let ledger = book.clone();
        let configure = move |builder: Builder, _: &_| {
            let builder = builder.policy(own.clone()).ledger(Arc::new(ledger.clone()));
            match bug {
                Some(bug) => builder.planted(bug),
                None => builder,
            }
        };
        let kept = book.clone();
        let workers = move |runtime: &Runtime| -> Vec<Worker> {
            kept.open(runtime);
            let worker = |_| {
                let (runs, book) = (runtime.runs(), kept.clone());
                runtime.run_worker(CREW, policy.clone(), move |live: &mut LiveRun| drive(&runs, &book, live))
            };
            (0..crew).map(worker).collect()
        };
        let world = World::new(self.seed, ground, workers, configure).map_err(words)?;
        let runs_max =
            if rng.chance(1, 4) { u32::try_from(rng.below(8)).expect("small") } else { FanOut::default().runs_max };
        let mut trial = Running { world, rng, jobs: self.jobs, known: BTreeMap::new(), runs_max, book };
        trial.define()?;
        trial.world.set_faults(self.faults);
        trial.run(self.faults).map_err(|what| format!("{what} (seed {})", self.seed))
    }

    /// A world as small as can be found that fails as well.
    #[must_use]
    pub fn shrunk(self) -> Self {
        shrink::shrunk(self)
    }
}

impl Shrink for RunTrial {
    fn fails(&self) -> bool {
        self.run().is_err()
    }

    fn faults(&mut self) -> (&mut Faults, &mut bool) {
        (&mut self.faults, &mut self.disk_fails)
    }

    fn size(&mut self) -> &mut u64 {
        &mut self.jobs
    }
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What a run does follows from its number, and from nothing else.
fn drive(runs: &Runs, book: &Book, live: &mut LiveRun) -> Result<Ending, Halt> {
    let number = number_of(live.input());
    if is_scripted(number) {
        let (book, depth) = (book.clone(), live.run().depth);
        return Scripted::new(move |_| Box::new(Rust::inline(Sapling { book: book.clone(), depth }))).drive(live);
    }
    let attempt = live.run().attempt();
    say(live, "begun")?;
    buffer(live, "about to step")?;
    step(live, "first")?;
    if number % 5 == 1 {
        let due = Timestamp(live.now().wall.0 + 40);
        live.sleep_until("nap", due)?;
    }
    let mut children = Vec::new();
    if live.run().depth < 2 && number.is_multiple_of(3) {
        for at in 0..2 {
            children.push(ask(live, number, at)?);
        }
    }
    if waits_for_signal(number) {
        live.wait_for_signal("go")?;
    }
    if number % 3 == 1 && live.run().depth < 2 {
        wish(live, number + 100)?;
    }
    if live.run().depth == 1 {
        match runs.signal(live.run().root, "go", b"") {
            Ok(()) | Err(kauri_runtime::Error::Run(_)) => {}
            Err(error) => return Err(error.into()),
        }
        // All of one tree ask for these.
        (700..703).try_for_each(|number| wish(live, number))?;
    }
    step(live, "second")?;
    if number.is_multiple_of(2) {
        for child in children {
            live.wait_for(child)?;
        }
    }
    if acts(number) {
        live.action("act", "do something outside", |id| {
            book.act(id);
            if number % 4 == 1 && book.is_first(id) { Err(Failure::retry("not yet")) } else { Ok(id.into()) }
        })?;
    }
    match number % 11 {
        4 => Err(Halt::Failed("always".into())),
        5 if attempt == 1 => Err(Halt::Failed("the first time".into())),
        6 if attempt == 1 => {
            Ok(Ending::failure(live.now().wall, Outcome::ExecutorCrash, "what drives a run may die of it"))
        }
        _ => {
            buffer(live, "done")?;
            Ok(Ending::success(live.now().wall, Map::EMPTY))
        }
    }
}

/// Whether a run of this number is a script.
fn is_scripted(number: u64) -> bool {
    number % 6 == 5
}

/// Whether a run of this number does something outside.
fn acts(number: u64) -> bool {
    number % 2 == 1
}

/// What a run of some numbers is: the same as others, said and done by a script.
struct Sapling {
    book: Book,
    depth: u32,
}

impl Script for Sapling {
    fn run(&self, cx: &Context) -> Result<(), ScriptError> {
        let number = cx.job()["n"].as_u64().unwrap_or(0);
        cx.emit().log_info("begun")?;
        cx.step("begin", || Ok(Vec::new()))?;
        cx.sleep_until("nap", Timestamp(cx.now().wall.0 + 30))?;
        let mut children = Vec::new();
        if self.depth < 2 && number % 4 == 1 {
            for at in 0..2 {
                let params = params(number / 3 + at * 7);
                children.push(cx.enqueue(&format!("ask for {at}"), "plain", params.view())?);
                cx.emit().log_info("asked")?;
            }
        }
        if self.depth == 1 {
            // All of one tree ask for these.
            (700..703).try_for_each(|number| cx.emit().enqueue("plain", params(number).view()))?;
        }
        cx.action("act", "do something outside", |id| {
            self.book.act(id);
            if number % 4 == 1 && self.book.is_first(id) { Err("not yet".into()) } else { Ok(id.into()) }
        })?;
        if waits_for_signal(number) {
            cx.wait_for_signal("go")?;
        }
        for child in children {
            cx.wait_for(child)?;
        }
        match number % 11 {
            4 => Err("always".into()),
            _ => Ok(()),
        }
    }
}

fn waits_for_signal(number: u64) -> bool {
    number % 7 == 2 || number.is_multiple_of(9)
}

fn params(number: u64) -> MapBuf {
    let mut params = MapBuf::new();
    params.put("n", number);
    params
}

/// The number in an input.
fn number_of(input: &[u8]) -> u64 {
    let map = Map::decode(input).unwrap_or(Map::EMPTY);
    match map.get("n") {
        Some(Value::Uint(number)) => number,
        _ => 0,
    }
}

fn log(live: &LiveRun, message: &str) -> EventDraft {
    let payload = Event::Log { level: Level::Info, message, fields: None }.payload().view().encode();
    EventDraft { kind: EventType::Log, ts: live.now().wall.0, payload }
}

fn say(live: &mut LiveRun, message: &str) -> Result<(), Halt> {
    let event = log(live, message);
    live.append(&[event])?;
    Ok(())
}

/// Says something with whatever is committed next.
fn buffer(live: &mut LiveRun, message: &str) -> Result<(), Halt> {
    let event = log(live, message);
    live.buffer(&[event])?;
    Ok(())
}

/// A step that counts how often it was done.
fn step(live: &mut LiveRun, name: &str) -> Result<(), Halt> {
    let id = live.id();
    live.step(name, |step| {
        let count = step.get(&DONE, (id, name))?.unwrap_or(0);
        step.put(&DONE, (id, name), count + 1)?;
        Ok(Vec::new())
    })?;
    Ok(())
}

/// Asks for derived work in a step.
fn ask(live: &mut LiveRun, number: u64, at: u64) -> Result<RunId, Halt> {
    let id = live.id();
    let name = format!("ask {at}");
    // Runs of one tree ask for some of the same.
    let (target, params) = (CLASSES[usize::try_from(number + at).unwrap_or(0) % 3], params(number / 3 + at * 7));
    let child = live.step(&name, |step| {
        let count = step.get(&DONE, (id, &name))?.unwrap_or(0);
        step.put(&DONE, (id, &name), count + 1)?;
        match step.enqueue(target, params.view())? {
            Enqueued::Made(run) | Enqueued::Same(run) => Ok(run.as_bytes().to_vec()),
            Enqueued::Skipped(skip) => Err(Failure::fatal(skip.as_str())),
        }
    })?;
    let bytes = child.try_into().map_err(|_| Halt::Failed("sixteen bytes".into()))?;
    RunId::from_bytes(bytes).map_err(|error| Halt::Failed(error.to_string().into()))
}

/// Asks for derived work by an event.
fn wish(live: &mut LiveRun, number: u64) -> Result<(), Halt> {
    let params = params(number);
    let event = Event::Enqueue { target: "plain", params: params.view(), source: None, category: None };
    let draft = EventDraft { kind: EventType::Enqueue, ts: 1, payload: event.payload().view().encode() };
    live.append(&[draft])?;
    Ok(())
}

/// A world under way.
struct Running {
    world: World<DiskGround>,
    rng: Rng,
    jobs: u64,
    /// The first runs of jobs that somebody was told of, by key.
    known: BTreeMap<u64, RunId>,
    /// How many jobs a tree may have besides its first.
    runs_max: u32,
    book: Book,
}

impl Running {
    fn run(mut self, faults: Faults) -> Result<Story, String> {
        for key in 0..self.jobs {
            self.submit(key)?;
            if self.rng.chance(1, 3) {
                // Somebody did not hear the answer and submits it again.
                self.submit(key)?;
            }
            let ticks = self.rng.index(12);
            self.world.run(ticks).map_err(words)?;
            self.meddle()?;
        }
        for _ in 0..6 {
            self.world.run(15).map_err(words)?;
            self.meddle()?;
        }
        let lives = self.world.runtime().incarnation();
        self.world.ground_mut().heal();
        self.come_to_an_end()?;
        self.check()?;
        self.keep_less(faults)?;
        let (faults, disk) = (self.world.hits(), self.world.ground().hits());
        let handled = self.world.runtime().metrics().commits;
        // No script here asks for memory, or for more than a block holds.
        Ok(Story { faults, disk, lives, handled, starved: 0, overfull: 0 })
    }

    fn define(&mut self) -> Result<(), String> {
        for name in CLASSES {
            let rng = &mut self.rng;
            let pause = *rng.pick(&[Duration::ZERO, Duration::from_millis(30)]);
            let attempts_max = u32::try_from(1 + rng.below(3)).expect("small");
            let retry = Retry { attempts_max, pause, ..Retry::default() };
            let takeover = if name == "resumed" { Takeover::Resume } else { Takeover::Crash };
            let parallel = u32::try_from(1 + rng.below(3)).expect("small");
            let fan_out = FanOut { depth_max: 2, parallel, runs_max: self.runs_max, ..FanOut::default() };
            let time_max = rng.chance(1, 3).then(|| Duration::from_millis(100 + rng.below(400)));
            let retry = if rng.chance(1, 2) { Retry { on: retry.on.with(Outcome::TimedOut), ..retry } } else { retry };
            let class = Class { retry, takeover, fan_out, time_max, ..Class::new(CREW) };
            self.insist(|runs| runs.define(name, &class))?;
        }
        Ok(())
    }

    /// Does something until it is known to have been done; it may be done more than once.
    fn insist<T>(&mut self, what: impl Fn(&Runs) -> kauri_runtime::Result<T>) -> Result<T, String> {
        for _ in 0..1000 {
            match what(&self.world.runtime().runs()) {
                Ok(value) => return Ok(value),
                Err(_) if self.world.has_crashed() => self.world.restart().map_err(words)?,
                // There was no room, and nothing is broken.
                Err(kauri_runtime::Error::Store(kauri_tree::Error::Full)) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(words(error)),
            }
        }
        Err("something could not be done in a thousand lives".to_owned())
    }

    fn submit(&mut self, key: u64) -> Result<(), String> {
        let number = self.jobs * 31 + key * 13;
        let class = CLASSES[usize::try_from(number % 3).unwrap_or(0)];
        let mut job = Submission::new(class, params(number).view().encode()).once(key.to_string());
        if key % 3 == 2 {
            job = job.one_at_a_time("key");
        }
        let now = self.world.runtime().now().wall;
        if let (3 | 4, Some(before)) = (key, self.known.get(&0)) {
            let on_failed =
                [OnFailed::Fail, OnFailed::Skip, OnFailed::Continue][usize::try_from(self.jobs % 3).unwrap_or(0)];
            job = job.after(JobId::new(format!("job-{before}")).map_err(words)?).on_failed(on_failed);
        }
        if key == 3 || key == 1 && self.jobs.is_multiple_of(2) {
            job = job.at(Timestamp(now.0 + 60));
        }
        if key == 5 {
            job = job.deadline(Timestamp(now.0 + 300));
        }
        if key % 2 == 1 {
            job = job.urgent();
        }
        let submitted = self.insist(|runs| runs.submit(&job))?;
        match self.known.insert(key, submitted.run) {
            Some(before) if before != submitted.run => Err(format!("job {key} was made twice")),
            _ => Ok(()),
        }
    }

    /// Cancels, signals or retries something.
    fn meddle(&mut self) -> Result<(), String> {
        let known = self.insist(|runs| runs.list(None, usize::MAX))?;
        if known.is_empty() {
            return Ok(());
        }
        let run = self.rng.pick(&known).clone();
        if self.rng.chance(1, 3) {
            self.decide()?;
        }
        let class = *self.rng.pick(&CLASSES);
        match self.rng.below(8) {
            0 => drop(self.insist(|runs| runs.cancel(run.id))?),
            1 | 2 if run.outcome().is_none() => self.signal(run.id)?,
            3 => {
                // Only what failed and has no other run after it can be retried: else it is refused.
                let (id, step) = (run.id, *self.rng.pick(&[None, Some("second"), Some("ask 1"), Some("act")]));
                let retry = |runs: &Runs| match step {
                    Some(step) => runs.retry_from(id, step, None),
                    None => runs.retry(id),
                };
                self.insist(|runs| match retry(runs) {
                    Ok(_) | Err(kauri_runtime::Error::Run(_)) => Ok(()),
                    Err(error) => Err(error),
                })?;
            }
            4 => self.insist(|runs| runs.pause(class))?,
            5 => self.insist(|runs| runs.resume(class))?,
            _ => {}
        }
        Ok(())
    }

    /// Somebody looks at the actions of which nobody knows whether they were done, decides about each, and tells whoever waits.
    fn decide(&mut self) -> Result<(), String> {
        let book = self.book.clone();
        for id in self.insist(|_| book.in_doubt())? {
            let entry = if self.rng.chance(1, 2) { Entry::Again } else { Entry::Done };
            self.insist(|_| book.decide(&id, entry))?;
        }
        self.insist(Runs::tell_all_decided).map(drop)
    }

    fn signal(&mut self, run: RunId) -> Result<(), String> {
        self.insist(|runs| match runs.signal(run, "go", b"") {
            Ok(()) | Err(kauri_runtime::Error::Run(_)) => Ok(()),
            Err(error) => Err(error),
        })
    }

    /// Faults off: everything comes to its end, with a signal for whoever waits for one.
    fn come_to_an_end(&mut self) -> Result<(), String> {
        for class in CLASSES {
            self.insist(|runs| runs.resume(class))?;
        }
        for _ in 0..100 {
            self.world.settle().map_err(words)?;
            let all = self.world.runtime().runs().list(None, usize::MAX).map_err(words)?;
            let open: Vec<RunId> = all.iter().filter(|run| run.outcome().is_none()).map(|run| run.id).collect();
            if open.is_empty() {
                return Ok(());
            }
            self.check_signals(&open)?;
            self.decide()?;
            for run in open {
                self.signal(run)?;
            }
        }
        let all = self.world.runtime().runs().list(None, usize::MAX).map_err(words)?;
        let open = all.iter().find(|run| run.outcome().is_none());
        Err(format!("a run never comes to its end: {open:?}"))
    }

    /// Nobody waits who was told what they wait for.
    fn check_signals(&self, open: &[RunId]) -> Result<(), String> {
        let rows = self.world.runtime().substrate().snapshot().map_err(words)?;
        for run in open {
            let until = prefix_end(run.as_bytes());
            let range = KeyRange { from: run.as_bytes(), until: until.as_deref() };
            let (signals, mut is_told) = ("signals".into(), false);
            let mut scan = rows.scan(&signals, range).map_err(words)?;
            while let Some((_, row)) = scan.next().map_err(words)? {
                is_told |= row[..].ends_with(b"go\0\0\0\0");
            }
            if is_told && self.waits(*run)? {
                return Err(format!("run {run} is parked, and was told to go"));
            }
        }
        Ok(())
    }

    /// Whether a run is parked until it is told to go.
    fn waits(&self, run: RunId) -> Result<bool, String> {
        let runs = self.world.runtime().runs();
        let number = number_of(&runs.input(run).map_err(words)?);
        let steps = runs.steps(run).map_err(words)?;
        let is_parked = runs.run(run).map_err(words)?.state == State::Parked;
        let has_heard = steps.iter().any(|step| step.kind == StepKind::Signal);
        let is_undecided = runs.undecided(usize::MAX).map_err(words)?.contains(&run);
        Ok(is_parked && waits_for_signal(number) && !has_heard && !is_undecided)
    }

    fn check(&self) -> Result<(), String> {
        let runs = self.world.runtime().runs();
        let all = runs.list(None, usize::MAX).map_err(words)?;
        let by_id: BTreeMap<RunId, Run> = all.iter().map(|run| (run.id, run.clone())).collect();
        for run in &all {
            check_stream(&runs, run)?;
            check_lineage(&by_id, run)?;
            self.check_steps(&runs, run)?;
        }
        self.book.check()?;
        check_jobs(&runs, &all)?;
        check_trees(&runs, &all, self.runs_max)?;
        self.check_nothing_waits()
    }

    /// Every recorded step was done once, and nothing else was done.
    fn check_steps(&self, runs: &Runs, run: &Run) -> Result<(), String> {
        let recorded = runs.steps(run.id).map_err(words)?;
        // Those that it was made with were done by the run before.
        let own = recorded.iter().skip(usize::try_from(run.kept).map_err(words)?);
        let work: BTreeSet<String> =
            own.filter(|step| step.kind == StepKind::Work).map(|step| step.name.to_string()).collect();
        for name in ["first", "second", "ask 0", "ask 1"] {
            let runtime = self.world.runtime();
            let times = runtime.read(|view| view.get(&DONE, (run.id, name))).map_err(words)?.unwrap_or(0);
            let expected = u64::from(work.contains(name));
            if times != expected {
                return Err(format!("step {name:?} of run {} was done {times} times, not {expected}", run.id));
            }
        }
        Ok(())
    }

    /// The classes keep fewer runs, and the rest is swept away, a few rows at a time and whatever crashes.
    fn keep_less(&mut self, faults: Faults) -> Result<(), String> {
        let most = self.rng.below(4);
        for name in CLASSES {
            let found = self.insist(|runs| runs.class(name))?;
            let (class, _) = found.ok_or_else(|| format!("there is no class {name}"))?;
            // Of half of them the events.
            let events = Limits { count: Some(most / 2), ..Limits::default() };
            let class = Class { keep: Keep { runs: Some(most), events, ..Keep::default() }, ..class };
            self.insist(|runs| runs.define(name, &class))?;
        }
        self.world.set_faults(faults);
        let rows_max = 1 + self.rng.index(40);
        while self.insist(|runs| runs.sweep(rows_max))?.rows > 0 {}
        self.world.settle().map_err(words)?;
        self.check_kept(most)
    }

    /// Each class has as many runs as it keeps, or fewer, or no more than that besides the job that goes next; each of them is whole, or says that its events are not; and no row is left of
    /// another.
    fn check_kept(&self, most: u64) -> Result<(), String> {
        let runtime = self.world.runtime();
        let runs = runtime.runs();
        let kept = runs.list(None, usize::MAX).map_err(words)?;
        for class in CLASSES {
            let of_class: Vec<&Run> = kept.iter().filter(|run| *run.class == *class).collect();
            let count = of_class.len() as u64;
            let mut latest: BTreeMap<&JobId, &Run> = BTreeMap::new();
            for run in &of_class {
                let last = latest.entry(&run.job).or_insert(run);
                *last = if last.attempt() < run.attempt() { run } else { last };
            }
            let next = latest.into_values().min_by_key(|run| (run.ended, run.id));
            if next.is_some_and(|next| count > most && count - u64::from(next.attempt()) >= most) {
                return Err(format!("class {class} has {count} runs, and keeps {most}"));
            }
        }
        let (mut events, mut steps, mut retries) = (0, 0, 0);
        for run in &kept {
            if !runs.removed(run.id).map_err(words)?.events {
                check_stream(&runs, run)?;
                events += run.events;
            }
            steps += runs.steps(run.id).map_err(words)?.len() as u64;
            retries += u64::from(run.attempt() > 1);
        }
        check_jobs(&runs, &kept)?;
        let rows = runtime.substrate().snapshot().map_err(words)?;
        let count = |table: &'static str, range: KeyRange<'_>| rows.count(&table.into(), range).map_err(words);
        let jobs = kept.iter().map(|run| &run.job).collect::<BTreeSet<_>>().len() as u64;
        let found = [
            ("jobs", count("jobs", KeyRange::ALL)?, jobs),
            ("events", count("events", KeyRange::ALL)?, events),
            ("steps", count("steps", KeyRange::ALL)?, steps),
            ("ends of runs", count("run_index", KeyRange { from: b"e", until: Some(b"f") })?, kept.len() as u64),
            ("retries", count("run_index", KeyRange { from: b"j", until: Some(b"k") })?, retries),
        ];
        match found.into_iter().find(|(_, found, expected)| found != expected) {
            Some((of, found, expected)) => Err(format!("{found} {of} are left after a sweep, not {expected}")),
            None => self.check_nothing_waits(),
        }
    }

    /// No message, lease, timer, gate or mark is left of anything.
    fn check_nothing_waits(&self) -> Result<(), String> {
        let runtime = self.world.runtime();
        let gauges = runtime.gauges().map_err(words)?;
        let left = [("inbox", gauges.inbox), ("leases", gauges.leases), ("timers", gauges.timers)];
        if let Some((table, rows)) = left.into_iter().find(|(_, rows)| *rows > 0) {
            return Err(format!("{rows} rows are left in {table}"));
        }
        let rows = runtime.substrate().snapshot().map_err(words)?;
        let index: TableName = "run_index".into();
        for tag in *b"rwaqpulhz" {
            let count = rows.count(&index, KeyRange { from: &[tag], until: Some(&[tag + 1]) }).map_err(words)?;
            if count > 0 {
                return Err(format!("{count} marks `{}` are left in the index of runs", char::from(tag)));
            }
        }
        // Of whoever ended without having heard of a job that it waited for, a mark stays as long as that job.
        let mut told = rows.scan(&index, KeyRange { from: b"b", until: Some(b"c") }).map_err(words)?;
        while let Some((key, _)) = told.next().map_err(words)? {
            let job = key[1..].split(|byte| *byte == 0).next().unwrap_or_default();
            let job = JobId::new(String::from_utf8_lossy(job)).map_err(words)?;
            runtime
                .runs()
                .job(&job)
                .map_err(|_| format!("a mark says that job {job} was waited for, which is gone"))?;
        }
        match rows.count(&"signals".into(), KeyRange::ALL).map_err(words)? {
            0 => Ok(()),
            count => Err(format!("{count} signals are left")),
        }
    }
}

/// Events are numbered without a gap, the hash matches, and the terminal event is the last and only one.
fn check_stream(runs: &Runs, run: &Run) -> Result<(), String> {
    if !runs.verify(run.id).map_err(words)? {
        return Err(format!("the events of run {} are not what its seal says", run.id));
    }
    let events = runs.events(run.id, 0, usize::MAX).map_err(words)?;
    let terminal: Vec<u64> = events.iter().filter(|event| event.kind.is_terminal()).map(|event| event.seq).collect();
    if terminal != [run.events] || !matches!(run.state, State::Sealed(_)) {
        return Err(format!("run {} has terminal events at {terminal:?} of {}", run.id, run.events));
    }
    Ok(())
}

fn check_lineage(by_id: &BTreeMap<RunId, Run>, run: &Run) -> Result<(), String> {
    let Some(parent) = run.parent() else {
        return if run.root == run.id && run.depth == 0 { Ok(()) } else { Err(format!("{} is no root", run.id)) };
    };
    let parent = by_id.get(&parent).ok_or_else(|| format!("the parent of run {} is not there", run.id))?;
    let is_right = match run.origin {
        Origin::First => false,
        Origin::Retry { attempt, .. } => {
            attempt == parent.attempt() + 1
                && parent.job == run.job
                && parent.outcome().is_some_and(|outcome| !outcome.is_success())
                && (parent.depth, parent.root) == (run.depth, run.root)
        }
        Origin::Child { depth, .. } => depth == parent.depth + 1 && parent.root == run.root && parent.job != run.job,
    };
    if is_right { Ok(()) } else { Err(format!("the lineage of run {} does not fit that of its parent", run.id)) }
}

/// Each job's attempts follow each other, and it ended as the last of them did.
fn check_jobs(runs: &Runs, all: &[Run]) -> Result<(), String> {
    let jobs: BTreeSet<&JobId> = all.iter().map(|run| &run.job).collect();
    for id in jobs {
        let job = runs.job(id).map_err(words)?;
        let attempts = runs.attempts(id).map_err(words)?;
        let numbers: Vec<u32> = attempts.iter().map(Run::attempt).collect();
        let last = attempts.last().ok_or_else(|| format!("job {id} has no run"))?;
        let expected: Vec<u32> = (1..=job.attempts).collect();
        if numbers != expected || job.latest != last.id || job.outcome != last.outcome() {
            return Err(format!("job {id} has attempts {numbers:?} and ended with {:?}", job.outcome));
        }
    }
    Ok(())
}

/// In each tree, what was asked for and what was made are the same, each once; or as much of it as there may be.
fn check_trees(runs: &Runs, all: &[Run], runs_max: u32) -> Result<(), String> {
    let mut asked: BTreeMap<RunId, BTreeSet<[u8; 32]>> = BTreeMap::new();
    let mut made: BTreeMap<RunId, Vec<[u8; 32]>> = BTreeMap::new();
    for run in all {
        for event in runs.events(run.id, 0, usize::MAX).map_err(words)? {
            let payload = Map::decode(&event.payload).map_err(words)?;
            if let Ok(Event::Enqueue { target, params, .. }) = Event::decode(event.kind, payload) {
                asked.entry(run.root).or_default().insert(work_hash(target, params).map_err(words)?);
            }
        }
        if let Origin::Child { .. } = run.origin {
            let input = runs.input(run.id).map_err(words)?;
            let params = Map::decode(&input).map_err(words)?;
            made.entry(run.root).or_default().push(work_hash(&run.class, params).map_err(words)?);
        }
    }
    for (root, made) in &made {
        let once: BTreeSet<[u8; 32]> = made.iter().copied().collect();
        if once.len() != made.len() {
            return Err(format!("derived work of run {root} was made twice"));
        }
    }
    let made: BTreeMap<RunId, BTreeSet<[u8; 32]>> =
        made.into_iter().map(|(root, made)| (root, made.into_iter().collect())).collect();
    let is_limited = |made: &BTreeSet<[u8; 32]>| made.len() as u64 == u64::from(runs_max);
    let is_so = |(root, asked): (&RunId, &BTreeSet<[u8; 32]>)| match made.get(root) {
        Some(made) => made == asked || is_limited(made) && made.is_subset(asked),
        None => runs_max == 0,
    };
    match asked.iter().all(is_so) && made.keys().all(|root| asked.contains_key(root)) {
        true => Ok(()),
        false => Err("what was asked for and what was made are not the same work".to_owned()),
    }
}
