//! What an instance says of its work on standard error: a line for each thing that happened, as much of it as was asked for.

use std::io::Write;

use kauri::ledger::{Clock as _, SystemClock};
use kauri::runtime::run::script::Report;
use kauri::runtime::run::{Outcome, Run, SweptRuns};
use kauri::runtime::{Observation, Observer, StepEnd};
use kauri::{LogFormat, LogLevel};
use serde_json::{Value, json};

use super::table::{Zone, moment, plain, short};

/// Writes lines. That nobody reads them keeps nobody from working.
#[derive(Debug)]
pub(super) struct Log {
    level: LogLevel,
    format: LogFormat,
    zone: Zone,
}

impl Log {
    pub(super) const fn new(level: LogLevel, format: LogFormat, zone: Zone) -> Self {
        Self { level, format, zone }
    }

    /// Says something: in words, and as fields.
    pub(super) fn say(&self, level: LogLevel, event: &str, words: &str, fields: &Value) {
        if level > self.level {
            return;
        }
        let line = self.line(level, SystemClock.now().0, event, words, fields);
        let _unheard = std::io::stderr().lock().write_all(line.as_bytes());
    }

    fn line(&self, level: LogLevel, now: i64, event: &str, words: &str, fields: &Value) -> String {
        match self.format {
            LogFormat::Text => {
                let level = level.as_str().to_uppercase();
                format!("{} {level:<5} {}\n", self.zone.moment(now), plain(words))
            }
            LogFormat::Json => {
                let mut line = json!({ "at": moment(now), "level": level.as_str(), "event": event });
                for (name, value) in fields.as_object().into_iter().flatten() {
                    line[name] = value.clone();
                }
                format!("{line}\n")
            }
        }
    }

    fn run(&self, run: &Run) {
        let fields = json!({
            "run_id": run.id.to_string(),
            "job_id": run.job.as_str(),
            "class": run.class,
            "attempt": run.attempt(),
            "outcome": run.outcome().map(|outcome| outcome.as_str()),
            "events": run.events,
        });
        let (level, how) = match run.outcome() {
            None => (LogLevel::Debug, "waits".to_owned()),
            Some(outcome) if outcome.is_success() => (LogLevel::Info, outcome.to_string()),
            // Somebody wanted it so.
            Some(outcome @ Outcome::Cancelled) => (LogLevel::Info, outcome.to_string()),
            Some(outcome) => (LogLevel::Warn, outcome.to_string()),
        };
        let words = format!("run {} of {}: {how}, attempt {}", run.id, run.class, run.attempt());
        self.say(level, "run_ended", &words, &fields);
    }

    /// How a script went; only what is not as it should be is for everybody.
    fn script(&self, run: &Run, report: &Report) {
        let millis = |took: &std::time::Duration| took.as_secs_f64() * 1000.0;
        let phases: serde_json::Map<_, _> =
            report.phases.iter().map(|(phase, took)| (phase.as_str().to_owned(), millis(took).into())).collect();
        let mut fields = json!({
            "run_id": run.id.to_string(),
            "job_id": run.job.as_str(),
            "class": run.class,
            "attempt": run.attempt(),
            "phases_ms": phases,
            "emitted": report.emitted,
            "refused": report.refused,
            "dropped": report.tally.dropped_total(),
            "left_alone": report.left_alone,
            "orphans": report.orphans,
            "disputed": report.is_disputed,
            "swallowed": report.swallowed.len(),
        });
        let took: Vec<String> = report.phases.iter().map(|(phase, took)| format!("{phase} {took:.1?}")).collect();
        let words = format!("script of run {} of {}: {}", run.id, run.class, took.join(", "));
        self.say(LogLevel::Debug, "run_reported", &words, &fields);
        for swallowed in &report.swallowed {
            let (phase, error) = (swallowed.phase, &swallowed.error);
            fields["phase"] = phase.as_str().into();
            fields["error_type"] = error.error_type.as_str().into();
            fields["error"] = error.message.as_str().into();
            let words = format!(
                "run {} of {}: {phase} failed, which changed nothing: {}",
                run.id,
                run.class,
                short(&error.to_string(), 200)
            );
            self.say(LogLevel::Warn, "swallowed", &words, &fields);
        }
    }
}

impl Observer for Log {
    fn observe(&self, observation: &Observation<'_>) {
        match observation {
            Observation::RunEnded { run } => self.run(run),
            Observation::RunReported { run, report } => self.script(run, report),
            Observation::WorkerError { worker, error } => {
                let fields = json!({ "worker": worker.0, "error": error.to_string() });
                self.say(LogLevel::Error, "worker_error", &format!("worker {worker} cannot go on: {error}"), &fields);
            }
            Observation::StepEnded { key, end: StepEnd::Buried { reason, detail, .. }, .. } => {
                let key = format!("{}/{}", key.worker, key.seq);
                let fields = json!({ "key": key, "reason": reason.as_str(), "detail": detail });
                let words = format!("message {key} is a dead letter: {}: {}", reason.as_str(), short(detail, 200));
                self.say(LogLevel::Error, "buried", &words, &fields);
            }
            Observation::ScheduleFired { name, slot } => {
                let fields = json!({ "schedule": name, "slot": moment(slot.0) });
                let words = format!("schedule {name}: its slot of {} has come", self.zone.moment(slot.0));
                self.say(LogLevel::Debug, "schedule_fired", &words, &fields);
            }
            Observation::TimerFired { key, .. } => {
                let fields = json!({ "due": moment(key.due.0), "seq": key.seq.0 });
                self.say(LogLevel::Debug, "timer_fired", &format!("timer {} has come due", key.seq), &fields);
            }
            Observation::Delivered { seq } => {
                self.say(LogLevel::Debug, "delivered", &format!("message {seq} has left"), &json!({ "seq": seq.0 }));
            }
            Observation::RunsSwept { swept } if swept.rows > 0 => {
                let SweptRuns { jobs, runs, events, rows, .. } = **swept;
                let fields = json!({ "jobs": jobs, "runs": runs, "events": events, "rows": rows });
                let words = format!("removed what is kept no longer: {jobs} jobs, {runs} runs, {events} events");
                self.say(LogLevel::Info, "swept", &words, &fields);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_people_or_for_programs() {
        let line = |format| {
            let log = Log::new(LogLevel::Info, format, Zone::default());
            log.line(LogLevel::Warn, 1_771_666_200_123, "run_ended", "run 7\x1b[2J", &json!({ "attempt": 1 }))
        };
        assert!(line(LogFormat::Text).ends_with(" WARN  run 7\\u{1b}[2J\n"), "{}", line(LogFormat::Text));
        let object: Value = serde_json::from_str(&line(LogFormat::Json)).unwrap();
        let expected = json!({ "at": "2026-02-21T09:30:00.123Z", "level": "warn", "event": "run_ended", "attempt": 1 });
        assert_eq!(object, expected);
    }
}
