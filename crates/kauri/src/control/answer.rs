//! What a request does with a runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use kauri_runtime::run::{Class, Filter, OnFailed, Outcome, Outcomes, Run, RunFault, Runs, Submission};
use kauri_runtime::{Drain, Error, Look, Runtime, Sent};
use kauri_wire::{InboxKey, JobId, MessageRef, RunId, Seq, Timestamp, WorkerId};
use serde_json::{Value, json};

use super::ended::{self, ended_json};
use super::{Code, Fault, WAIT_MS_MAX, run_json};
use crate::config::fan_out_json;

type Answer = Result<Value, Fault>;

/// The requests that need nothing but a runtime.
pub const WORDS: [&str; 12] = [
    "submit",
    "run",
    "events",
    "wait",
    "cancel",
    "retry",
    "retry_all",
    "signal",
    "classes",
    "pause",
    "resume",
    "replay_dead_letters",
];

/// The most events of one answer, and about how many bytes they have.
const EVENTS_MAX: u64 = 1_000;
const ANSWER_BYTES: usize = 4 << 20;

/// Does what a request says.
///
/// # Errors
/// Why it was not done.
///
/// ```
/// # use std::sync::Arc;
/// use kauri::control::{self, Code};
/// use kauri::runtime::Runtime;
/// use kauri::runtime::substrate::TreeSubstrate;
/// use serde_json::json;
///
/// let store = kauri::tree::Store::in_memory()?;
/// let runtime = Runtime::builder(Arc::new(TreeSubstrate::new(store)), Arc::new(kauri::SystemClock::new())).start()?;
/// let fault = control::answer(&runtime, "submit", &json!({"class": "mail"})).unwrap_err();
/// assert_eq!(fault.code, Code::NotFound);
/// # Ok::<(), kauri::runtime::Error>(())
/// ```
pub fn answer(runtime: &Runtime, what: &str, args: &Value) -> Answer {
    let runs = runtime.runs();
    match what {
        "submit" => submit(&runs, args),
        "run" => Ok(run_json(&runs.run(run_id(args)?)?)),
        "events" => events(&runs, args),
        "wait" => wait(&runs, args),
        "cancel" => {
            let done = runs.cancel(run_id(args)?)?;
            Ok(json!({ "sealed": done.sealed, "asked": done.asked, "ended": done.ended }))
        }
        "retry" => retry(&runs, args),
        "retry_all" => retry_all(&runs, args),
        "signal" => signal(&runs, args),
        "classes" => classes(runtime),
        "pause" | "resume" => pause(&runs, args, what == "pause"),
        "replay_dead_letters" => replay(runtime, args),
        _ => Err(unknown(what, &WORDS)),
    }
}

pub(crate) fn unknown(what: &str, words: &[&str]) -> Fault {
    let found: String = what.chars().take(80).collect();
    Fault::new(Code::Unknown, format!("expected one of {}, found {found:?}", words.join(", ")))
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let missing = |words: String| Self::new(Code::NotFound, words);
        match &error {
            Error::Run(RunFault::NoRun(run)) => missing(format!("there is no run {run}")),
            Error::Run(RunFault::NoJob(job)) => missing(format!("there is no job {job}")),
            Error::Run(RunFault::NoClass(class)) => missing(format!("there is no class {class:?}")),
            Error::Run(RunFault::NoStep { name, recorded, .. }) => {
                missing(format!("the run has no step {name:?}; it recorded {recorded:?}"))
            }
            Error::Run(RunFault::Name { .. }) | Error::Limit { .. } => Self::new(Code::Bad, error.to_string()),
            Error::Run(_) => Self::new(Code::Refused, error.to_string()),
            _ => Self::new(Code::Failed, error.to_string()),
        }
    }
}

pub(super) fn bad(name: &str, expected: &str) -> Fault {
    Fault::new(Code::Bad, format!("expected {expected} as `{name}`, found something else or nothing"))
}

pub(super) fn text<'a>(args: &'a Value, name: &str) -> Result<Option<&'a str>, Fault> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(bad(name, "a text")),
    }
}

/// A list of texts; none if it is not there.
fn texts<'a>(args: &'a Value, name: &str) -> Result<Vec<&'a str>, Fault> {
    let expected = || bad(name, "a list of texts");
    match args.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(list) => {
            let list = list.as_array().ok_or_else(expected)?;
            list.iter().map(|text| text.as_str().ok_or_else(expected)).collect()
        }
    }
}

pub(super) fn number(args: &Value, name: &str) -> Result<Option<i64>, Fault> {
    match args.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| bad(name, "a whole number")),
    }
}

fn count(args: &Value, name: &str) -> Result<Option<u64>, Fault> {
    number(args, name)?
        .map(|number| u64::try_from(number).map_err(|_| bad(name, "a number of zero or more")))
        .transpose()
}

fn run_id(args: &Value) -> Result<RunId, Fault> {
    let found = text(args, "run_id")?.ok_or_else(|| bad("run_id", "the id of a run"))?;
    found.parse().map_err(|error| Fault::new(Code::Bad, format!("run_id: {error}")))
}

fn class(args: &Value) -> Result<&str, Fault> {
    text(args, "class")?.ok_or_else(|| bad("class", "the name of a class"))
}

fn pause_of(args: &Value) -> Result<Duration, Fault> {
    Ok(Duration::from_millis(count(args, "wait_ms")?.unwrap_or(0).min(WAIT_MS_MAX)))
}

/// What a job is given, if something is said of it.
fn input(args: &Value) -> Option<Vec<u8>> {
    args.get("input").map(|input| input.to_string().into_bytes())
}

fn submit(runs: &Runs, args: &Value) -> Answer {
    // A script is given null where there is no input: null needs no row.
    let input = input(args).filter(|input| input != b"null").unwrap_or_default();
    let mut job = Submission::new(class(args)?, input);
    let within = count(args, "within_ms")?.map(Duration::from_millis);
    match (text(args, "key")?, within) {
        (Some(key), Some(within)) => job = job.once_within(key, within),
        (Some(key), None) => job = job.once(key),
        (None, Some(_)) => return Err(bad("key", "a key, whose time `within_ms` says,")),
        (None, None) => {}
    }
    for before in texts(args, "after")? {
        job = job.after(JobId::new(before).map_err(|error| Fault::new(Code::Bad, format!("after: {error}")))?);
    }
    job = match text(args, "on_failed")? {
        None | Some("fail") => job,
        Some("skip") => job.on_failed(OnFailed::Skip),
        Some("continue") => job.on_failed(OnFailed::Continue),
        Some(_) => return Err(bad("on_failed", "`fail`, `skip` or `continue`")),
    };
    let limit = count(args, "concurrency")?.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    match (text(args, "concurrency_key")?, limit) {
        (Some("") | None, Some(_)) => return Err(bad("concurrency_key", "a key, whose jobs `concurrency` limits,")),
        (Some(""), None) => return Err(bad("concurrency_key", "a text that is not empty")),
        (Some(_), Some(0)) => return Err(bad("concurrency", "a number of one or more")),
        (Some(key), limit) => job = job.some_at_a_time(key, limit.unwrap_or(1)),
        (None, None) => {}
    }
    if let Some(at) = number(args, "at_ms")? {
        job = job.at(Timestamp(at));
    }
    if let Some(deadline) = number(args, "deadline_ms")? {
        job = job.deadline(Timestamp(deadline));
    }
    if args.get("urgent").and_then(Value::as_bool) == Some(true) {
        job = job.urgent();
    }
    job = texts(args, "tags")?.into_iter().fold(job, Submission::tag);
    let done = runs.submit(&job)?;
    Ok(json!({ "job_id": done.job.as_str(), "run_id": done.run.to_string(), "new": done.is_new }))
}

/// Events from a number on; waits until there is one, or none can come.
fn events(runs: &Runs, args: &Value) -> Answer {
    let id = run_id(args)?;
    let from = count(args, "from")?.unwrap_or(1).max(1);
    let most = usize::try_from(count(args, "limit")?.unwrap_or(EVENTS_MAX).clamp(1, EVENTS_MAX)).unwrap_or(1);
    let mut tail = runs.tail(id, from)?;
    let mut found = tail.next(most)?;
    if found.is_empty() && !tail.is_over() {
        tail.wait(Some(pause_of(args)?));
        found = tail.next(most)?;
    }
    let run = runs.run(id)?;
    let (mut values, mut bytes) = (Vec::new(), 0);
    for event in found.iter() {
        if bytes > ANSWER_BYTES {
            break;
        }
        bytes += event.payload.len();
        values.push(event.to_json(&run)?);
    }
    let next = from + values.len() as u64;
    let over = run.outcome().is_some() && next > run.events;
    Ok(json!({ "events": values, "next": next, "over": over, "run": run_json(&run) }))
}

/// How the job of a run ended; waits until it has.
fn wait(runs: &Runs, args: &Value) -> Answer {
    let id = run_id(args)?;
    ended::wait(runs, id, pause_of(args)?)?;
    Ok(ended_json(&Look::at(&**runs.runtime().substrate())?, id)?)
}

fn retry(runs: &Runs, args: &Value) -> Answer {
    let (id, input) = (run_id(args)?, input(args));
    let keeps_all = args.get("keep_steps").and_then(Value::as_bool) == Some(true);
    let run: Run = match text(args, "from_step")? {
        Some(_) if keeps_all => {
            let words = "expected `from_step` or `keep_steps`, found both: either some steps are kept, or all";
            return Err(Fault::new(Code::Bad, words.to_owned()));
        }
        Some(step) => runs.retry_from(id, step, input.as_deref())?,
        None if keeps_all => runs.retry_keeping(id, input.as_deref())?,
        None => runs.retry_with(id, input.as_deref())?,
    };
    Ok(run_json(&run))
}

/// Those of a class that ended so, oldest end first; the new runs.
fn retry_all(runs: &Runs, args: &Value) -> Answer {
    let class = class(args)?;
    if runs.class(class)?.is_none() {
        return Err(Error::Run(RunFault::NoClass(class.into())).into());
    }
    let mut filter = Filter::of(class);
    filter.tag = text(args, "tag")?.map(Into::into);
    filter.since = number(args, "since_ms")?.map(Timestamp);
    filter.before = number(args, "before_ms")?.map(Timestamp);
    let named = texts(args, "outcomes")?;
    if !named.is_empty() {
        filter.outcomes =
            named.into_iter().try_fold(Outcomes::NONE, |all, name| Ok::<_, Fault>(all.with(failure(name)?)))?;
    }
    let most = usize::try_from(count(args, "limit")?.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let made = runs.retry_all(&filter, text(args, "from_step")?, input(args).as_deref(), most)?;
    Ok(made.iter().map(run_json).collect())
}

/// An outcome that can be retried.
fn failure(name: &str) -> Result<Outcome, Fault> {
    let known = || Outcome::ALL.into_iter().filter(|outcome| !outcome.is_success());
    known().find(|outcome| outcome.as_str() == name).ok_or_else(|| {
        let known: Vec<&str> = known().map(|outcome| outcome.as_str()).collect();
        let found: String = name.chars().take(80).collect();
        Fault::new(Code::Bad, format!("outcomes: expected one of {}, found {found:?}", known.join(", ")))
    })
}

fn signal(runs: &Runs, args: &Value) -> Answer {
    let (id, name) = (run_id(args)?, text(args, "name")?.ok_or_else(|| bad("name", "the name of a signal"))?);
    runs.signal(id, name, text(args, "payload")?.unwrap_or_default().as_bytes())?;
    Ok(json!({ "run_id": id.to_string(), "name": name }))
}

fn pause(runs: &Runs, args: &Value, is_paused: bool) -> Answer {
    let class = class(args)?;
    if is_paused {
        runs.pause(class)?;
    } else {
        runs.resume(class)?;
    }
    Ok(json!({ "class": class, "paused": is_paused }))
}

fn classes(runtime: &Runtime) -> Answer {
    Ok(classes_json(&Look::at(&**runtime.substrate())?)?.into())
}

/// The classes of a store, for people and programs: what is under way does not wait.
///
/// # Errors
/// If the store fails or a row is damaged.
pub fn classes_json(look: &Look<'_>) -> kauri_runtime::Result<Vec<Value>> {
    let mut busy: BTreeMap<Box<str>, u64> = BTreeMap::new();
    for (run, _) in look.running(usize::MAX)? {
        *busy.entry(run.class).or_default() += 1;
    }
    let class = |(name, class, messages, is_paused): (String, Class, u64, bool)| {
        let busy = busy.get(&*name).copied().unwrap_or(0);
        json!({
            "class": name,
            "worker": class.worker.0,
            "paused": is_paused,
            "waiting": messages.saturating_sub(busy),
            "running": busy,
            "attempts": class.retry.attempts_max,
            "fan_out": fan_out_json(&class.fan_out),
        })
    };
    Ok(look.classes()?.into_iter().map(class).collect())
}

pub(super) fn keys(args: &Value) -> Result<Vec<InboxKey>, Fault> {
    let Some(keys) = args.get("keys").filter(|keys| !keys.is_null()) else { return Ok(Vec::new()) };
    let expected = || bad("keys", "a list of workers and numbers such as \"7/12\"");
    let key = |value: &Value| {
        let (worker, seq) = value.as_str()?.split_once('/')?;
        Some(InboxKey { worker: WorkerId(worker.parse().ok()?), seq: Seq(seq.parse().ok()?) })
    };
    let keys = keys.as_array().ok_or_else(expected)?;
    keys.iter().map(|value| key(value).ok_or_else(expected)).collect()
}

pub(super) fn name(key: InboxKey) -> String {
    format!("{}/{}", key.worker.0, key.seq.0)
}

/// All of them without keys: those whose message can be read.
fn replay(runtime: &Runtime, args: &Value) -> Answer {
    let mut wanted = keys(args)?;
    if wanted.is_empty() {
        runtime.drain_dead_letters(None, |key, letter| {
            if MessageRef::decode(&letter.frame).is_ok() {
                wanted.push(key);
            }
            Drain::Leave
        })?;
    }
    let mut done = Vec::new();
    for key in wanted {
        if let Some(sent) = runtime.replay(key)? {
            let to = if let Sent::Inbox(to) = sent { Some(name(to)) } else { None };
            done.push(json!({ "key": name(key), "to": to }));
        }
    }
    Ok(done.into())
}
