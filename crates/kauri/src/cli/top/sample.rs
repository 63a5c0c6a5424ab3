//! One answer of an instance, read: everything that a screen is made of.

use std::collections::BTreeMap;
use std::time::Duration;

use kauri::runtime::Spread;
use serde_json::Value;

use crate::cli::table::plain;

/// What an instance says of itself at one moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// When, by its clock.
    pub(super) at_ms: i64,
    pub(super) instance: Instance,
    /// How much waits where, exactly.
    pub(super) queues: Vec<(String, u64)>,
    pub(super) classes: Vec<Class>,
    pub(super) counters: BTreeMap<String, u64>,
    pub(super) queued: Timed,
    pub(super) runs: Timed,
    /// How many runs are under way; the list may be shorter.
    pub(super) running: u64,
    pub(super) in_flight: Vec<RunLine>,
    /// Newest first.
    pub(super) failures: Vec<Failure>,
}

#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) version: String,
    pub(super) pid: u64,
    pub(super) home: String,
    pub(super) uptime: Duration,
    pub(super) incarnation: u64,
    pub(super) standing: String,
    pub(super) trouble: Option<String>,
}

/// A class, and what its workers do.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) name: String,
    pub(super) command: String,
    pub(super) schedule: Option<String>,
    pub(super) at_once: u64,
    pub(super) busy: u64,
    pub(super) waiting: u64,
    pub(super) ended: u64,
    pub(super) failed: u64,
    pub(super) is_paused: bool,
}

/// How long things took since the instance started.
#[derive(Clone, Debug, Default)]
pub(super) struct Timed {
    pub(super) spread: Spread,
    pub(super) max: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct RunLine {
    pub(super) id: String,
    pub(super) class: String,
    pub(super) attempt: u64,
    pub(super) events: u64,
    pub(super) started_ms: Option<i64>,
}

/// A run that did not succeed, or a message that was buried.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The id of the run, or the key of the dead letter.
    pub(super) key: String,
    pub(super) kind: FailureKind,
    /// The class, or the worker.
    pub(super) whose: String,
    /// The outcome, or the reason.
    pub(super) how: String,
    pub(super) message: String,
    pub(super) at_ms: i64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FailureKind {
    Run { attempt: u64, events: u64 },
    Letter { message_id: Option<String>, deliveries: u64, failures: u64 },
}

impl Sample {
    /// Reads an answer to `stats`.
    pub(super) fn read(value: &Value) -> Result<Self, String> {
        let at = Place { value, path: "stats".to_owned() };
        let latency = at.field("latency");
        Ok(Self {
            at_ms: at.field("at").moment()?,
            instance: instance(&at.field("instance"))?,
            queues: at.field("queues").numbers()?,
            classes: at.field("classes").each(class)?,
            counters: at.field("counters").numbers()?.into_iter().collect(),
            queued: timed(&latency.field("queued"))?,
            runs: timed(&latency.field("runs"))?,
            running: at.field("running").number()?,
            in_flight: at.field("in_flight").each(run_line)?,
            failures: failures(&at)?,
        })
    }

    /// A counter by its name.
    pub(super) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Runs that have ended since the start, and those of them that failed.
    pub(super) fn ended(&self) -> (u64, u64) {
        let well = self.counter("runs_success").saturating_add(self.counter("runs_skipped"));
        let runs = self.counters.iter().filter(|(name, _)| name.starts_with("runs_"));
        let all = total(runs.map(|(_, count)| *count));
        (all, all.saturating_sub(well))
    }

    pub(super) fn queue(&self, name: &str) -> u64 {
        self.queues.iter().find(|(found, _)| found == name).map_or(0, |(_, count)| *count)
    }

    /// Workers that have a run, and all.
    pub(super) fn workers(&self) -> (u64, u64) {
        let sum = |count: fn(&Class) -> u64| total(self.classes.iter().map(count));
        (sum(|class| class.busy.min(class.at_once)), sum(|class| class.at_once))
    }
}

/// Numbers together. They come from outside: as much as can be counted is enough.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// A value, and where it stands: so that whoever reads a wrong one is told which.
struct Place<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Place<'a> {
    fn field(&self, name: &str) -> Place<'a> {
        Place { value: &self.value[name], path: format!("{}.{name}", self.path) }
    }

    fn wrong(&self, expected: &str) -> String {
        let found: String = self.value.to_string().chars().take(60).collect();
        format!("expected {expected} as {}, found {found}", self.path)
    }

    fn text(&self) -> Result<String, String> {
        self.value.as_str().map(plain).ok_or_else(|| self.wrong("a text"))
    }

    fn text_or_nothing(&self) -> Result<Option<String>, String> {
        if self.value.is_null() { Ok(None) } else { self.text().map(Some) }
    }

    /// Why something failed, in one line that begins with what differs: `sh` ended with exit code 3 is exit code 3.
    fn words(&self) -> Result<String, String> {
        let words = match self.value {
            Value::Null => String::new(),
            value => {
                value.as_str().ok_or_else(|| self.wrong("a text"))?.split_whitespace().collect::<Vec<_>>().join(" ")
            }
        };
        let cut = words.strip_prefix('`').and_then(|rest| rest.split_once("` ended with "));
        Ok(plain(cut.map_or(&*words, |(_, rest)| rest)))
    }

    fn number(&self) -> Result<u64, String> {
        self.value.as_u64().ok_or_else(|| self.wrong("a number of zero or more"))
    }

    fn moment(&self) -> Result<i64, String> {
        let parsed = self.value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        parsed.map(jiff::Timestamp::as_millisecond).ok_or_else(|| self.wrong("a moment"))
    }

    fn each<T>(&self, read: impl Fn(&Place<'a>) -> Result<T, String>) -> Result<Vec<T>, String> {
        let items = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        let item = |(at, value)| read(&Place { value, path: format!("{}[{at}]", self.path) });
        items.iter().enumerate().map(item).collect()
    }

    fn numbers(&self) -> Result<Vec<(String, u64)>, String> {
        let fields = self.value.as_object().ok_or_else(|| self.wrong("an object"))?;
        fields.keys().map(|name| Ok((name.clone(), self.field(name).number()?))).collect()
    }
}

fn instance(at: &Place<'_>) -> Result<Instance, String> {
    Ok(Instance {
        version: at.field("version").text()?,
        pid: at.field("pid").number()?,
        home: at.field("home").text()?,
        uptime: Duration::from_millis(at.field("uptime_ms").number()?),
        incarnation: at.field("incarnation").number()?,
        standing: at.field("standing").text()?,
        trouble: at.field("trouble").text_or_nothing()?,
    })
}

fn class(at: &Place<'_>) -> Result<Class, String> {
    Ok(Class {
        name: at.field("class").text()?,
        command: at.field("command").each(Place::text)?.join(" "),
        schedule: at.field("schedule").text_or_nothing()?,
        at_once: at.field("concurrency").number()?,
        busy: at.field("busy").number()?,
        waiting: at.field("waiting").number()?,
        ended: at.field("ended").number()?,
        failed: at.field("failed").number()?,
        is_paused: at.field("paused").value == true,
    })
}

fn timed(at: &Place<'_>) -> Result<Timed, String> {
    let pair = |pair: &Place<'_>| {
        let numbers = pair.each(Place::number)?;
        let &[nanos, count] = &numbers[..] else { return Err(pair.wrong("two numbers")) };
        Ok((Duration::from_nanos(nanos), count))
    };
    Ok(Timed {
        spread: Spread::new(at.field("spread").each(pair)?),
        max: Duration::from_micros(at.field("max_us").number()?),
    })
}

fn run_line(at: &Place<'_>) -> Result<RunLine, String> {
    let started = at.field("started");
    Ok(RunLine {
        id: at.field("run_id").text()?,
        class: at.field("class").text()?,
        attempt: at.field("attempt").number()?,
        events: at.field("events").number()?,
        started_ms: if started.value.is_null() { None } else { Some(started.moment()?) },
    })
}

fn failures(at: &Place<'_>) -> Result<Vec<Failure>, String> {
    let mut all = at.field("failures").each(failed_run)?;
    all.extend(at.field("dead_letters").each(letter)?);
    all.sort_by(|a, b| b.at_ms.cmp(&a.at_ms).then_with(|| b.key.cmp(&a.key)));
    Ok(all)
}

fn failed_run(at: &Place<'_>) -> Result<Failure, String> {
    let run = run_line(at)?;
    let ended = at.field("ended");
    Ok(Failure {
        key: run.id,
        kind: FailureKind::Run { attempt: run.attempt, events: run.events },
        whose: run.class,
        how: at.field("outcome").text()?.replace('_', " "),
        message: at.field("message").words()?,
        at_ms: if ended.value.is_null() { at.field("created").moment()? } else { ended.moment()? },
    })
}

fn letter(at: &Place<'_>) -> Result<Failure, String> {
    let worker = &at.field("worker");
    let worker = worker.value.as_i64().ok_or_else(|| worker.wrong("a whole number"))?;
    Ok(Failure {
        key: at.field("key").text()?,
        kind: FailureKind::Letter {
            message_id: at.field("message_id").text_or_nothing()?,
            deliveries: at.field("deliveries").number()?,
            failures: at.field("failures").number()?,
        },
        whose: format!("worker {worker}"),
        how: at.field("reason").text()?,
        message: at.field("detail").words()?,
        at_ms: at.field("failed_at").moment()?,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// An answer as an instance gives it, with a class, a run under way, a failed run and a dead letter.
    pub(in crate::cli::top) fn answer() -> Value {
        let run = |id: &str, outcome: Value| {
            json!({
                "run_id": id, "job_id": id, "parent_run_id": null, "attempt": 2, "depth": 0, "class": "mail",
                "outcome": outcome, "state": "running", "queued_ms": 1, "ran_ms": 2, "events": 7, "steps": 0,
                "created": "2026-02-21T09:30:00.000Z", "started": "2026-02-21T09:30:01.000Z", "ended": null, "message": "`sh` ended with exit code 3:\nthe disk\n is full",
            })
        };
        let timed = json!({ "samples": 3, "total_us": 60, "p50_us": 10, "p99_us": 40, "max_us": 40, "spread": [[10_000, 2], [40_000, 1]] });
        json!({
            "at": "2026-02-21T09:31:00.000Z",
            "instance": {
                "version": "0.1.0", "pid": 4242, "home": "/srv/shop", "started": "2026-02-21T09:29:00.000Z",
                "uptime_ms": 120_000, "incarnation": 3, "standing": "working", "trouble": null,
            },
            "queues": { "inbox": 12, "urgent": 1, "leases": 2, "outbox": 0, "timers": 5, "schedules": 1, "dead_letters": 1, "dedupe": 123_456 },
            "classes": [{
                "class": "mail", "command": ["send", "mail"], "concurrency": 4, "schedule": null,
                "busy": 1, "waiting": 11, "paused": false, "ended": 3, "failed": 1,
            }],
            "counters": { "steps": 9, "runs_success": 2, "runs_skipped": 0, "runs_script_error": 1, "runs_timed_out": 0, "run_events": 20 },
            "latency": { "steps": timed, "queued": timed, "runs": timed },
            "running": 1,
            "in_flight": [run("019d2c5e-7a10-7c3e-8f00-0123456789ab", Value::Null)],
            "failures": [run("019d2c5e-7a10-7c3e-8f00-00000000dead", "script_error".into())],
            "dead_letters": [{
                "key": "7/12", "worker": 7, "reason": "failure budget spent", "detail": "no such\u{1b}[2J account",
                "failed_at": "2026-02-21T09:30:30.000Z", "deliveries": 3, "failures": 3, "message_id": "order-9",
            }],
        })
    }

    #[test]
    fn an_answer_is_read_with_failures_newest_first_and_nothing_that_moves_the_cursor() {
        let sample = Sample::read(&answer()).unwrap();
        assert_eq!((sample.ended(), sample.workers(), sample.queue("inbox"), sample.running), ((3, 1), (1, 4), 12, 1));
        let keys: Vec<&str> = sample.failures.iter().map(|failure| &*failure.key).collect();
        assert_eq!(keys, ["7/12", "019d2c5e-7a10-7c3e-8f00-00000000dead"]);
        assert_eq!(sample.failures[1].message, "exit code 3: the disk is full");
        assert_eq!(sample.failures[0].message, "no such\\u{1b}[2J account");
        assert_eq!((sample.runs.spread.count(), sample.runs.max), (3, Duration::from_micros(40)));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (path, bad) in [
            ("at", "expected a moment as stats.at, found \"soon\""),
            ("queues", "stats.queues"),
            ("running", "stats.running"),
        ] {
            let mut value = answer();
            value[path] = "soon".into();
            assert!(Sample::read(&value).unwrap_err().contains(bad), "{path}");
        }
        let mut value = answer();
        value["classes"][0]["busy"] = (-1).into();
        assert_eq!(
            Sample::read(&value).unwrap_err(),
            "expected a number of zero or more as stats.classes[0].busy, found -1"
        );
        assert!(Sample::read(&Value::Null).is_err());
    }
}
