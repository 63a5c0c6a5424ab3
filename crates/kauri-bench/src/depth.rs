//! What a step costs with very many messages waiting, and what memory very many messages leave behind.

use kauri_runtime::{Policy, Runtime, Worker};
use kauri_tree::Store;

use crate::measure::{Estimate, Outcome, Unit, thread_time};
use crate::report::{Bound, Goal};
use crate::runtime::{Result, WORKER, nothing, send, start};

/// As many as wait in a short queue; both queues are handled in batches of so many.
const SHORT: usize = 10;
/// How many messages wait at most while memory is looked at.
const AT_ONCE: usize = 1000;
/// How often a queue is measured, and how many steps each time.
const ROUNDS: usize = 25;
const STEPS: usize = 10_000;

/// Both, with up to so many messages.
pub(crate) fn run(messages: usize, mut tell: impl FnMut(&str)) -> Result<Vec<Outcome>> {
    // Memory first: what the deep queue takes is not given back.
    tell(&format!("memory over {messages} messages"));
    let mut all: Vec<Outcome> = memory(messages)?.into_iter().collect();
    tell(&format!("steps with {messages} messages waiting"));
    all.push(depth(messages)?);
    Ok(all)
}

fn worker(runtime: &Runtime) -> Worker {
    runtime.worker_with(WORKER, Policy { batch_messages_max: SHORT, ..Policy::default() }, nothing)
}

/// Processor time of a step where so many messages wait, made good after each round.
fn cost(waiting: usize) -> Result<Estimate> {
    let runtime = start(Store::in_memory()?)?;
    send(&runtime, WORKER, waiting)?;
    let mut worker = worker(&runtime);
    let mut costs = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let (mut took, mut handled) = (std::time::Duration::ZERO, 0);
        while handled < STEPS {
            let began = thread_time();
            let now = worker.tick()?.handled;
            took += thread_time() - began;
            send(&runtime, WORKER, now)?;
            handled += now;
        }
        costs.push(took.as_nanos() as f64 / handled as f64);
    }
    worker.release()?;
    Ok(Estimate::of(costs))
}

fn depth(messages: usize) -> Result<Outcome> {
    let (short, deep) = (cost(SHORT)?, cost(messages)?);
    let workload = format!("no-op step, in batches of {SHORT}, {messages} messages waiting");
    Ok(Outcome { workload, unit: Unit::Nanoseconds, ours: deep, peers: vec![("itself, 10 messages", short)] })
}

/// Resident memory after all messages, against that after a tenth of them. None where the system does not tell.
fn memory(messages: usize) -> Result<Option<Outcome>> {
    let runtime = start(Store::in_memory()?)?;
    let mut worker = worker(&runtime);
    let mut early = None;
    let mut handled = 0;
    while handled < messages {
        send(&runtime, WORKER, AT_ONCE.min(messages - handled))?;
        handled += worker.drain()?;
        if early.is_none() && handled >= messages / 10 {
            early = resident();
        }
    }
    let (Some(early), Some(late)) = (early, resident()) else { return Ok(None) };
    let estimate = |bytes: f64| Estimate::of(vec![bytes / 1e6]);
    Ok(Some(Outcome {
        workload: format!("resident memory after {messages} messages, {AT_ONCE} at a time"),
        unit: Unit::Megabytes,
        ours: estimate(late),
        peers: vec![("itself, after a tenth", estimate(early))],
    }))
}

/// The bytes of this process that are in memory.
fn resident() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

/// What we want of these numbers.
pub(crate) fn goals(outcomes: &[Outcome]) -> Vec<Goal> {
    let times = |start: &str| {
        let outcome = outcomes.iter().find(|outcome| outcome.workload.starts_with(start))?;
        Some(outcome.ours.median / outcome.peers[0].1.median)
    };
    let mut goals = Vec::new();
    let mut add = |of: &str, found: Option<f64>, bound, unit| {
        goals.extend(found.map(|found| Goal { of: of.to_owned(), found, bound, unit }));
    };
    add("a step with a deep queue costs", times("no-op step"), Bound::Below(1.5), "x one with ten messages");
    add("memory after all messages is", times("resident"), Bound::Below(1.1), "x that after a tenth");
    goals
}
