//! What a page over the panes says, line by line.

use serde_json::Value;

use super::input::KEYS;
use super::model::Model;
use super::sample::{Failure, FailureKind};
use super::state::{Page, Subject};
use super::text::{age, fit, hang};
use crate::cli::table::plain;

/// What a line is about, and what it says of it.
type Row = (String, String);

/// How many of a run's last events are shown.
const EVENTS_MAX: u64 = 200;

/// What is counted in each queue, and which command lists it.
const QUEUES: [(&str, &str, &str); 8] = [
    ("inbox", "messages that wait for workers, those being handled included", "kauri inbox"),
    ("urgent", "those of them that are claimed first", "kauri inbox"),
    ("leases", "workers that have messages now", "kauri leases"),
    ("outbox", "messages that wait to be delivered outside", "kauri outbox"),
    ("timers", "messages that wait for a moment", "kauri timers"),
    ("schedules", "schedules of kauri.toml", "kauri config show"),
    ("dead_letters", "messages that will not be handled again by themselves", "kauri dead-letters list"),
    ("dedupe", "ids of messages that are remembered", "kauri schema"),
];

/// The page of a run that has so many events.
pub(super) fn of_run(id: &str, events: u64) -> Subject {
    Subject::Run { id: id.to_owned(), from: from_of(events.saturating_add(1)) }
}

/// From which event on a run is asked for whose next event has this number.
pub(super) fn from_of(next: u64) -> u64 {
    next.saturating_sub(EVENTS_MAX).max(1)
}

/// How it is called.
pub(super) fn title(page: &Page) -> String {
    match &page.subject {
        Subject::Run { id, .. } => format!("Run {id}"),
        Subject::Letter(letter) => format!("Dead letter {}", letter.key),
        Subject::Class(name) => format!("Class {name}"),
        Subject::Queues => "Queues".to_owned(),
        Subject::Help => "Keys".to_owned(),
    }
}

/// Its lines, none longer than so many columns.
pub(super) fn lines(page: &Page, model: &Model, home: &str, columns: usize) -> Vec<String> {
    let rows = match &page.subject {
        Subject::Run { id, .. } => run(id, page.told.as_ref(), home),
        Subject::Letter(failure) => letter(failure, home),
        Subject::Class(name) => class(name, model, home),
        Subject::Queues => queues(model, home),
        Subject::Help => help(),
    };
    rows.iter().flat_map(|(head, text)| hang(head, text, columns)).collect()
}

fn row(name: &str, text: &str) -> Row {
    (format!("{name:<10} "), plain(text))
}

fn words(text: &str) -> Row {
    (String::new(), plain(text))
}

fn run(id: &str, told: Option<&Result<Value, String>>, home: &str) -> Vec<Row> {
    let told = match told {
        None => return vec![words("asking...")],
        Some(Err(why)) => return vec![words(why)],
        Some(Ok(told)) => told,
    };
    let run = &told["run"];
    let text = |name: &str| match &run[name] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let took = |name: &str| match run[name].as_u64() {
        Some(millis) => super::text::span(std::time::Duration::from_millis(millis)),
        None => "-".to_owned(),
    };
    let mut lines = vec![
        row("state", &format!("{}, attempt {}", text("state").replace('_', " "), text("attempt"))),
        row("class", &text("class")),
        row("job", &text("job_id")),
        row("created", &text("created")),
        row("started", &format!("{}, after {}", text("started"), took("queued_ms"))),
        row("ended", &format!("{}, took {}", text("ended"), took("ran_ms"))),
        row("more", &format!("kauri runs report {id}{home}")),
        words(""),
    ];
    let events = told["events"].as_array().map_or(&[][..], Vec::as_slice);
    let first = events.first().and_then(|event| event["seq"].as_u64()).unwrap_or(1);
    match (events.len(), first) {
        (0, _) => lines.push(words("It has said nothing yet.")),
        (_, 1) => lines.push(words("What it said:")),
        (_, first) => lines.push(words(&format!("What it said, from event {first} on:"))),
    }
    lines.extend(events.iter().map(event));
    lines
}

fn event(event: &Value) -> Row {
    let text = |name: &str| event[name].as_str().unwrap_or_default();
    let payload = &event["payload"];
    // The time of day is enough here.
    let clock = text("ts").get(11..23).unwrap_or_default();
    let words = match payload["message"].as_str() {
        Some(message) => message.to_owned(),
        None => payload.to_string(),
    };
    (plain(&format!("{clock} {:<12} ", text("type"))), plain(words.trim_end()))
}

fn letter(letter: &Failure, home: &str) -> Vec<Row> {
    let FailureKind::Letter { message_id, deliveries, failures } = &letter.kind else { return Vec::new() };
    vec![
        row("reason", &letter.how),
        row("detail", &letter.message),
        row("to", &letter.whose),
        row("message", message_id.as_deref().unwrap_or("its frame does not decode")),
        row("deliveries", &deliveries.to_string()),
        row("failures", &failures.to_string()),
        row("buried", &crate::cli::table::moment(letter.at_ms)),
        words(""),
        row("more", &format!("kauri dead-letters show {}{home}", letter.key)),
        row("again", &format!("kauri dead-letters replay {}{home}", letter.key)),
    ]
}

fn class(name: &str, model: &Model, home: &str) -> Vec<Row> {
    let sample = model.sample();
    let Some(class) = sample.and_then(|sample| sample.classes.iter().find(|class| class.name == name)) else {
        return vec![words(&format!("{name} is not in kauri.toml any more"))];
    };
    let (idle, paused) = (class.at_once.saturating_sub(class.busy), if class.is_paused { "yes" } else { "no" });
    vec![
        row("command", &class.command),
        row("schedule", class.schedule.as_deref().unwrap_or("none: runs begin when they are submitted")),
        row("workers", &format!("{} busy, {idle} idle", class.busy)),
        row("waiting", &class.waiting.to_string()),
        row("ended", &format!("{} since the start, {} of them failed", class.ended, class.failed)),
        row("paused", paused),
        words(""),
        row("submit", &format!("kauri submit {name}{home}")),
        row("list", &format!("kauri runs list --class {name}{home}")),
        match class.is_paused {
            true => row("resume", &format!("kauri classes resume {name}{home}")),
            false => row("pause", &format!("kauri classes pause {name}{home}")),
        },
    ]
}

fn queues(model: &Model, home: &str) -> Vec<Row> {
    let Some(sample) = model.sample() else { return vec![words("nothing is known yet")] };
    let mut rows = Vec::new();
    for (name, count) in &sample.queues {
        let known = QUEUES.iter().find(|(known, ..)| known == name);
        let (what, command) = known.map_or(("", ""), |(_, what, command)| (*what, *command));
        rows.push((format!("{:<12} {count:>9}  ", fit(&name.replace('_', " "), 12)), what.to_owned()));
        rows.push((" ".repeat(24), format!("{command}{home}")));
    }
    rows
}

fn help() -> Vec<Row> {
    const PANES: [(&str, &str); 5] = [
        ("Throughput", "runs that ended in a second; those that failed at the bottom, in red"),
        ("Latency", "how long the runs took that ended: half of them (p50), 99 of 100 (p99)"),
        ("Queues", "how many rows wait where, exactly"),
        ("Workers", "classes of jobs: runs at once, waiting, ended since the start"),
        ("Failures", "runs that did not succeed and dead letters, newest first"),
    ];
    let keys = KEYS.iter().map(|(keys, what)| (format!("{keys:<17} "), (*what).to_owned()));
    let panes = PANES.iter().map(|(name, what)| (format!("{name:<17} "), (*what).to_owned()));
    keys.chain([words("")]).chain(panes).collect()
}

/// How long ago something was, by the clock of the instance.
pub(super) fn ago(at_ms: i64, now_ms: i64) -> String {
    age(std::time::Duration::from_millis(u64::try_from(now_ms.saturating_sub(at_ms)).unwrap_or(0)))
}
