//! Counts and gauges in the text form that Prometheus reads.

use std::fmt::Write;

use crate::metrics::{Counts, Gauges, Latency, PhaseTime, PhaseTimes};

pub(crate) fn render(counts: &Counts, gauges: &Gauges) -> String {
    let mut text = String::new();
    // Runs by their outcome are one family.
    add(&mut text, format_args!("# TYPE kauri_runs_total counter\n"));
    for (outcome, value) in counts.each().filter_map(|(name, value)| Some((name.strip_prefix("runs_")?, value))) {
        add(&mut text, format_args!("kauri_runs_total{{outcome=\"{outcome}\"}} {value}\n"));
    }
    for (name, value) in counts.each().filter(|(name, _)| !name.starts_with("runs_")) {
        line(&mut text, &format!("kauri_{name}_total"), "counter", &value.to_string());
    }
    for (name, value) in gauges.each() {
        line(&mut text, &format!("kauri_{name}_rows"), "gauge", &value.to_string());
    }
    for (name, latency) in [
        ("kauri_step_seconds", &counts.latency),
        ("kauri_run_queued_seconds", &counts.run_queued),
        ("kauri_run_seconds", &counts.run_took),
    ] {
        summary(&mut text, name, latency);
    }
    phases(&mut text, "kauri_run_phase_seconds", &counts.phases);
    text
}

/// Phases are one family, of which only those are there that were taken.
fn phases(text: &mut String, name: &str, phases: &PhaseTimes) {
    add(text, format_args!("# TYPE {name} summary\n"));
    for (phase, PhaseTime { count, total, max }) in phases.each() {
        let (total, max) = (total.as_secs_f64(), max.as_secs_f64());
        add(text, format_args!("{name}{{phase=\"{phase}\",quantile=\"1\"}} {max}\n"));
        add(text, format_args!("{name}_sum{{phase=\"{phase}\"}} {total}\n{name}_count{{phase=\"{phase}\"}} {count}\n"));
    }
}

fn summary(text: &mut String, name: &str, latency: &Latency) {
    let parts = [("0.5", latency.p50), ("0.99", latency.p99), ("1", latency.max)];
    add(text, format_args!("# TYPE {name} summary\n"));
    for (quantile, time) in parts {
        add(text, format_args!("{name}{{quantile=\"{quantile}\"}} {}\n", time.as_secs_f64()));
    }
    add(text, format_args!("{name}_sum {}\n{name}_count {}\n", latency.total.as_secs_f64(), latency.samples));
}

fn line(text: &mut String, name: &str, kind: &str, value: &str) {
    add(text, format_args!("# TYPE {name} {kind}\n{name} {value}\n"));
}

fn add(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("text has room");
}
