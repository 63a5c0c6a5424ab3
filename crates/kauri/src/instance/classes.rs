//! Classes of the configuration: defined in the store, and worked on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kauri_runtime::run::script::{Deadlines, Executor, Process};
use kauri_runtime::run::{Class, Files, Ingestion, Run, Scripted, Setup, Submission};
use kauri_runtime::{Policy, Result, Runtime, Worker};
use kauri_wire::WorkerId;
use serde_json::Value;

use super::children::Children;
use crate::config::{Config, JobConfig};
use crate::home::Layout;

/// The first worker of a class that the configuration names; those below are left to others.
const FIRST_WORKER: i64 = 1_000;
/// What the names of our schedules begin with.
const SCHEDULE: &str = "job:";
/// A run whose thread is silent for so long is taken over by another: longer than anything that a busy machine does to a thread.
const LEASE: Duration = Duration::from_secs(30);
/// What a command says is in the store within this time.
const INGESTION: Ingestion =
    Ingestion::Streaming { events_max: 500, bytes_max: 1 << 20, interval: Some(Duration::from_millis(50)) };

/// The classes as they stand in the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Defined {
    /// The worker of each class in the configuration.
    pub workers: BTreeMap<String, WorkerId>,
    /// Classes that are in the store and not in the configuration, each with how many messages wait there.
    pub strangers: Vec<(String, u64)>,
}

/// Defines the classes of a configuration and their schedules. Schedules that are not there any more end; classes stay, with their runs.
///
/// # Errors
/// If the store fails.
pub fn define(runtime: &Runtime, config: &Config) -> Result<Defined> {
    let defined = define_classes(runtime, config)?;
    keep_schedules(runtime, config)?;
    Ok(defined)
}

/// Defines the classes of a configuration, and leaves others and all schedules as they are: a schedule has slots that were missed, which are
/// for whoever runs the jobs.
///
/// # Errors
/// If the store fails.
pub fn define_classes(runtime: &Runtime, config: &Config) -> Result<Defined> {
    let runs = runtime.runs();
    let mut found = BTreeMap::new();
    for name in runs.classes()? {
        if let Some((class, _)) = runs.class(&name)? {
            found.insert(name, class);
        }
    }
    let mut next =
        found.values().map(|class| class.worker.0).max().map_or(FIRST_WORKER, |last| FIRST_WORKER.max(last + 1));
    let mut defined = Defined::default();
    for (name, job) in &config.jobs {
        let before = found.remove(name);
        let worker = before.as_ref().map_or(WorkerId(next), |class| class.worker);
        next += i64::from(before.is_none());
        let class = Class {
            retry: job.retry.value.clone(),
            takeover: job.takeover.value,
            keep: job.keep.value.clone(),
            fan_out: job.fan_out.value.clone(),
            ..before.clone().unwrap_or_else(|| Class::new(worker))
        };
        if before.as_ref() != Some(&class) {
            runs.define(name, &class)?;
        }
        defined.workers.insert(name.clone(), worker);
    }
    for (name, class) in found {
        defined.strangers.push((name, runtime.depth(class.worker)?));
    }
    Ok(defined)
}

/// Keeps the schedules of a configuration, and ends those of ours that it does not have.
fn keep_schedules(runtime: &Runtime, config: &Config) -> Result<()> {
    for (name, job) in &config.jobs {
        if let Some(schedule) = &job.schedule.value {
            let input = if schedule.input.is_null() { Vec::new() } else { schedule.input.to_string().into_bytes() };
            let job = Submission::new(name.as_str(), input);
            runtime.runs().keep_schedule(&format!("{SCHEDULE}{name}"), &schedule.when, schedule.catch_up, &job)?;
        }
    }
    for (name, _) in runtime.schedules()? {
        let job = name.strip_prefix(SCHEDULE).map(|name| config.jobs.get(name));
        if job.is_some_and(|job| job.is_none_or(|job| job.schedule.value.is_none())) {
            runtime.unschedule(&name)?;
        }
    }
    Ok(())
}

/// A worker for each run that may go on at once.
pub(super) fn workers(
    runtime: &Runtime,
    config: &Config,
    defined: &Defined,
    layout: &Layout,
    files: &Files,
    children: &Arc<Children>,
) -> Vec<Worker> {
    let mut workers = Vec::new();
    for (name, job) in &config.jobs {
        let Some(worker) = defined.workers.get(name) else { continue };
        for _ in 0..job.concurrency.value {
            let policy = Policy { lease: LEASE, ..Policy::default() };
            let process = process(job, layout, children);
            let drive = Scripted::new(move |run| executor(&process, run)).setup(setup(job, files));
            workers.push(runtime.run_worker(*worker, policy, drive));
        }
    }
    workers
}

fn setup(job: &JobConfig, files: &Files) -> Setup {
    let timeout = job.timeout.value;
    let mut setup = Setup::default();
    setup.deadlines = Deadlines { script: timeout, run: timeout + Duration::from_mins(1), ..Deadlines::default() };
    setup.ingestion = INGESTION;
    setup.files = Some(files.clone());
    setup
}

fn process(job: &JobConfig, layout: &Layout, children: &Arc<Children>) -> Process {
    let directory =
        job.directory.value.as_ref().map_or_else(|| layout.home().to_owned(), |path| layout.home().join(path));
    let process = Process::new(&job.command.value).directory(directory).protocol(job.protocol.value);
    let process = process.env("KAURI_HOME", layout.home()).groups(Arc::clone(children) as _);
    job.env.value.iter().fold(process, |process, (name, value)| process.env(name, value))
}

fn executor(process: &Process, run: &Run) -> Box<dyn Executor> {
    Box::new(process.clone().env("KAURI_TRACE_ID", run.root.to_string()).env("KAURI_CLASS", &*run.class))
}

/// What a class is, for people.
pub(super) fn class_json(name: &str, job: &JobConfig) -> Value {
    serde_json::json!({
        "class": name,
        "command": job.command_shown,
        "concurrency": job.concurrency.value,
        "schedule": job.schedule.value.as_ref().map(crate::config::ScheduleConfig::words),
    })
}
