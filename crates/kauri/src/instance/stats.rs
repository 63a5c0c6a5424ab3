//! Who answers the control socket, and what it says of the instance itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use kauri_runtime::run::Run;
use kauri_runtime::substrate::Substrate;
use kauri_runtime::{Latency, Look, Observation, Observer, Result, Runtime};
use serde_json::{Value, json};

use super::{Defined, Standing, classes, lock};
use crate::config::Config;
use crate::control::{self, Code, Fault, moment, run_json};
use crate::home::Layout;

/// How many failures are remembered.
const FAILURES_MAX: usize = 50;
/// How many runs are looked at for failures when an instance starts.
const LOOKED_AT: usize = 500;
/// How many runs under way are told of.
const IN_FLIGHT_MAX: usize = 1_000;

/// Runs that failed lately, newest last.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<VecDeque<Run>>);

impl Failures {
    /// Those of the instances before.
    pub(super) fn fill(&self, substrate: &dyn Substrate) -> Result<()> {
        let newest = Look::at(substrate)?.newest_runs(None, LOOKED_AT)?;
        newest.into_iter().rev().for_each(|run| self.take(&run));
        Ok(())
    }

    fn take(&self, run: &Run) {
        if run.outcome().is_some_and(|outcome| !outcome.is_success()) {
            let mut failures = lock(&self.0);
            failures.push_back(run.clone());
            while failures.len() > FAILURES_MAX {
                failures.pop_front();
            }
        }
    }
}

impl Observer for Failures {
    fn observe(&self, observation: &Observation<'_>) {
        if let Observation::RunEnded { run } = observation {
            self.take(run);
        }
    }
}

/// Answers the control socket.
pub(super) struct Desk {
    runtime: Runtime,
    home: String,
    began: i64,
    failures: std::sync::Arc<Failures>,
    classes: Vec<(Value, i64)>,
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
        layout: &Layout,
        failures: std::sync::Arc<Failures>,
        config: &Config,
        defined: &Defined,
    ) -> Self {
        let class = |(name, job): (&String, _)| {
            (classes::class_json(name, job), defined.workers.get(name).map_or(0, |id| id.0))
        };
        Self {
            runtime: runtime.clone(),
            home: layout.home().display().to_string(),
            began: runtime.now().wall.0,
            failures,
            classes: config.jobs.iter().map(class).collect(),
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
            "stats" => Ok(self.stats()?),
            _ => control::answer(&self.runtime, what, args).map_err(|fault| match fault.code {
                Code::Unknown => {
                    let words: Vec<&str> = ["hello", "stats"].into_iter().chain(control::WORDS).collect();
                    control::unknown(what, &words)
                }
                _ => fault,
            }),
        }
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
    fn stats(&self) -> Result<Value> {
        let (counts, gauges) = (self.runtime.metrics(), self.runtime.gauges()?);
        let look = Look::at(&**self.runtime.substrate())?;
        let in_flight: Vec<Run> = look.running(IN_FLIGHT_MAX)?.into_iter().map(|(run, _)| run).collect();
        let mut busy: BTreeMap<&str, u64> = BTreeMap::new();
        for run in &in_flight {
            *busy.entry(&run.class).or_default() += 1;
        }
        let mut classes = Vec::new();
        for (class, worker) in &self.classes {
            let name = class["class"].as_str().unwrap_or_default();
            let (busy, depth) =
                (busy.get(name).copied().unwrap_or(0), self.runtime.depth(kauri_wire::WorkerId(*worker))?);
            let mut class = class.clone();
            class["busy"] = busy.into();
            class["waiting"] = depth.saturating_sub(busy).into();
            class["paused"] = self.runtime.runs().class(name)?.is_some_and(|(_, is_paused)| is_paused).into();
            classes.push(class);
        }
        Ok(json!({
            "instance": self.hello(),
            "queues": gauges.each().map(|(name, count)| (name.to_owned(), count.into())).collect::<serde_json::Map<_, _>>(),
            "classes": classes,
            "counters": counts.each().map(|(name, count)| (name.to_owned(), count.into())).collect::<serde_json::Map<_, _>>(),
            "latency": { "steps": latency(&counts.latency), "runs": latency(&counts.run_took) },
            "in_flight": in_flight.iter().map(run_json).collect::<Vec<_>>(),
            "failures": self.failures(&look)?,
        }))
    }

    /// Newest first, each with what it said at its end.
    fn failures(&self, look: &Look<'_>) -> Result<Vec<Value>> {
        let failures: Vec<Run> = lock(&self.failures.0).iter().rev().cloned().collect();
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
