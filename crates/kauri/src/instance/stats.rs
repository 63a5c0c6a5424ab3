//! Who answers the control socket, and what it says of the instance itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kauri_ledger::Ledger;
use kauri_runtime::run::Run;
use kauri_runtime::substrate::Substrate;
use kauri_runtime::{DeadLetter, Latency, Look, Observation, Observer, PhaseTimes, Result, Runtime, Spread};
use kauri_wire::{InboxKey, MessageRef};
use serde_json::{Value, json};

use super::{Standing, classes, lock};
use crate::config::Config;
use crate::control::{self, Code, Fault, moment, run_json};
use crate::home::Layout;

/// How many failures are remembered.
const FAILURES_MAX: usize = 50;
/// How many runs are looked at for failures when an instance starts.
const LOOKED_AT: usize = 500;
/// How many runs under way are told of.
const IN_FLIGHT_MAX: usize = 1_000;
/// How many dead letters are told of, and looked at for the newest.
const LETTERS_MAX: usize = 50;
const LETTERS_LOOKED_AT: usize = 1_000;

/// Runs that failed lately, newest last, and how many of each class have ended.
#[derive(Debug, Default)]
pub(super) struct Failures {
    runs: Mutex<VecDeque<Run>>,
    ended: Mutex<BTreeMap<Box<str>, Ended>>,
}

/// How many runs have ended since the start, and those of them that failed.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    runs: u64,
    failed: u64,
}

impl Failures {
    /// Those of the instances before.
    pub(super) fn fill(&self, substrate: &dyn Substrate) -> Result<()> {
        let newest = Look::at(substrate)?.newest_runs(None, LOOKED_AT)?;
        newest.into_iter().rev().for_each(|run| self.take(&run));
        Ok(())
    }

    fn take(&self, run: &Run) {
        if run.outcome().is_some_and(|outcome| !outcome.is_success()) {
            let mut failures = lock(&self.runs);
            failures.push_back(run.clone());
            while failures.len() > FAILURES_MAX {
                failures.pop_front();
            }
        }
    }

    fn count(&self, run: &Run) {
        if let Some(outcome) = run.outcome() {
            let mut ended = lock(&self.ended);
            let class = ended.entry(run.class.clone()).or_default();
            class.runs += 1;
            class.failed += u64::from(!outcome.is_success());
        }
    }

    fn of_class(&self, class: &str) -> Ended {
        lock(&self.ended).get(class).copied().unwrap_or_default()
    }
}

impl Observer for Failures {
    fn observe(&self, observation: &Observation<'_>) {
        if let Observation::RunEnded { run } = observation {
            self.take(run);
            self.count(run);
        }
    }
}

/// Answers the control socket.
pub(super) struct Desk {
    runtime: Runtime,
    ledger: Arc<Ledger>,
    home: String,
    began: i64,
    failures: Arc<Failures>,
    classes: Vec<Value>,
    state: Mutex<State>,
}

struct State {
    standing: Standing,
    /// What goes wrong beside the work.
    trouble: Option<String>,
}

impl Desk {
    pub(super) fn new(
        runtime: &Runtime,
        ledger: &Arc<Ledger>,
        layout: &Layout,
        failures: Arc<Failures>,
        config: &Config,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            ledger: Arc::clone(ledger),
            home: layout.home().display().to_string(),
            began: runtime.now().wall.0,
            failures,
            classes: config.jobs.iter().map(|(name, job)| classes::class_json(name, job)).collect(),
            state: Mutex::new(State { standing: Standing::Working, trouble: None }),
        }
    }

    pub(super) fn stand(&self, standing: Standing) {
        lock(&self.state).standing = standing;
    }

    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.state).trouble.clone()
    }

    pub(super) fn note_trouble(&self, trouble: Option<String>) {
        lock(&self.state).trouble = trouble;
    }

    pub(super) fn answer(&self, what: &str, args: &Value) -> std::result::Result<Value, Fault> {
        match what {
            "hello" => Ok(self.hello()),
            "stats" => Ok(self.stats(args.get("spreads").and_then(Value::as_bool) == Some(true))?),
            "resolve" => self.resolve(args),
            "purge_dead_letters" => control::purge(&self.runtime, self.ledger.audit(), args),
            _ => control::answer(&self.runtime, what, args).map_err(|fault| match fault.code {
                Code::Unknown => {
                    let own = ["hello", "stats", "resolve", "purge_dead_letters"];
                    let words: Vec<&str> = own.into_iter().chain(control::WORDS).collect();
                    control::unknown(what, &words)
                }
                _ => fault,
            }),
        }
    }

    /// Decides about an action without an end, and tells the runs that wait for decisions.
    fn resolve(&self, args: &Value) -> std::result::Result<Value, Fault> {
        let (id, decision) = control::decision(args)?;
        control::resolve(&self.ledger, id, &decision).and_then(|row| {
            self.runtime.runs().tell_all_decided()?;
            Ok(row)
        })
    }

    fn hello(&self) -> Value {
        let now = self.runtime.now().wall.0;
        let (standing, trouble) = {
            let state = lock(&self.state);
            (state.standing, state.trouble.clone())
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "home": self.home,
            "started": moment(self.began),
            "uptime_ms": now.saturating_sub(self.began).max(0),
            "incarnation": self.runtime.incarnation(),
            "standing": standing.as_str(),
            "trouble": trouble,
        })
    }

    /// Queue depths, workers, counters, how long things took, runs under way, and what failed lately.
    fn stats(&self, with_spreads: bool) -> Result<Value> {
        let at = self.runtime.now().wall.0;
        let (counts, gauges) = (self.runtime.metrics(), self.runtime.gauges()?);
        let look = Look::at(&**self.runtime.substrate())?;
        let running: Vec<Run> = look.running(usize::MAX)?.into_iter().map(|(run, _)| run).collect();
        let mut stats = json!({
            "at": moment(at),
            "instance": self.hello(),
            "queues": gauges.each().map(|(name, count)| (name.to_owned(), count.into())).collect::<serde_json::Map<_, _>>(),
            "classes": self.class_stats(&look, &running)?,
            "counters": counts.each().map(|(name, count)| (name.to_owned(), count.into())).collect::<serde_json::Map<_, _>>(),
            "latency": { "steps": latency(&counts.latency), "queued": latency(&counts.run_queued), "runs": latency(&counts.run_took) },
            "phases": phases(&counts.phases),
            "running": running.len(),
            "in_flight": running.iter().take(IN_FLIGHT_MAX).map(run_json).collect::<Vec<_>>(),
            "failures": self.failures(&look)?,
            "dead_letters": newest_letters(&look)?,
        });
        if with_spreads {
            let spreads = self.runtime.spreads();
            for (name, spread) in
                [("steps", &spreads.steps), ("queued", &spreads.run_queued), ("runs", &spreads.run_took)]
            {
                stats["latency"][name]["spread"] = spread_json(spread);
            }
        }
        Ok(stats)
    }

    /// The classes of the configuration, each with what its workers do, by the counts of `kauri classes list`.
    fn class_stats(&self, look: &Look<'_>, running: &[Run]) -> Result<Vec<Value>> {
        let mut busy: BTreeMap<&str, u64> = BTreeMap::new();
        for run in running {
            *busy.entry(&run.class).or_default() += 1;
        }
        let known = look.classes()?.into_iter().map(|(name, _, waiting, is_paused)| (name, (waiting, is_paused)));
        let known: BTreeMap<String, (u64, bool)> = known.collect();
        let mut classes = Vec::new();
        for class in &self.classes {
            let name = class["class"].as_str().unwrap_or_default();
            let busy = busy.get(name).copied().unwrap_or(0);
            let (messages, is_paused) = known.get(name).copied().unwrap_or_default();
            let ended = self.failures.of_class(name);
            let mut class = class.clone();
            class["busy"] = busy.into();
            class["waiting"] = messages.saturating_sub(busy).into();
            class["paused"] = is_paused.into();
            class["ended"] = ended.runs.into();
            class["failed"] = ended.failed.into();
            classes.push(class);
        }
        Ok(classes)
    }

    /// Newest first, each with what it said at its end.
    fn failures(&self, look: &Look<'_>) -> Result<Vec<Value>> {
        let failures: Vec<Run> = lock(&self.failures.runs).iter().rev().cloned().collect();
        let mut told = Vec::new();
        for run in failures {
            let mut value = run_json(&run);
            value["message"] = control::last_words(look, &run)?.into();
            told.push(value);
        }
        Ok(told)
    }
}

fn latency(latency: &Latency) -> Value {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    json!({
        "samples": latency.samples,
        "total_us": micros(latency.total),
        "p50_us": micros(latency.p50),
        "p99_us": micros(latency.p99),
        "max_us": micros(latency.max),
    })
}

/// How long each phase of scripts took.
fn phases(phases: &PhaseTimes) -> Value {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let each = phases.each().map(|(phase, time)| {
        let time = json!({ "count": time.count, "total_us": micros(time.total), "max_us": micros(time.max) });
        (phase.as_str().to_owned(), time)
    });
    each.collect::<serde_json::Map<_, _>>().into()
}

/// Nanoseconds that things took at most, and how many did.
fn spread_json(spread: &Spread) -> Value {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    spread.each().map(|(time, count)| json!([nanos(time), count])).collect()
}

/// The newest of the dead letters that are looked at, newest first.
fn newest_letters(look: &Look<'_>) -> Result<Vec<Value>> {
    let mut letters = look.dead_letters(None, LETTERS_LOOKED_AT)?;
    letters.sort_by_key(|(key, letter)| std::cmp::Reverse((letter.failed_at, *key)));
    letters.truncate(LETTERS_MAX);
    Ok(letters.iter().map(|(key, letter)| letter_json(*key, letter)).collect())
}

fn letter_json(key: InboxKey, letter: &DeadLetter) -> Value {
    json!({
        "key": format!("{}/{}", key.worker.0, key.seq.0),
        "worker": key.worker.0,
        "reason": letter.reason.as_str(),
        "detail": letter.detail,
        "failed_at": moment(letter.failed_at.0),
        "deliveries": letter.deliveries,
        "failures": letter.failures,
        "message_id": MessageRef::decode(&letter.frame).ok().map(|message| String::from_utf8_lossy(message.id()).into_owned()),
    })
}
