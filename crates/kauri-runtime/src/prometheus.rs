//! Counts and gauges in the text form that Prometheus reads.

use std::fmt::Write;

use crate::metrics::{Counts, Gauges};

pub(crate) fn render(counts: &Counts, gauges: &Gauges) -> String {
    let mut text = String::new();
    for (name, value) in counts.each() {
        line(&mut text, &format!("kauri_{name}_total"), "counter", &value.to_string());
    }
    for (name, value) in gauges.each() {
        line(&mut text, &format!("kauri_{name}_rows"), "gauge", &value.to_string());
    }
    let latency = &counts.latency;
    let name = "kauri_step_seconds";
    let parts = [("0.5", latency.p50), ("0.99", latency.p99), ("1", latency.max)];
    add(&mut text, format_args!("# TYPE {name} summary\n"));
    for (quantile, time) in parts {
        add(&mut text, format_args!("{name}{{quantile=\"{quantile}\"}} {}\n", time.as_secs_f64()));
    }
    add(&mut text, format_args!("{name}_sum {}\n{name}_count {}\n", latency.total.as_secs_f64(), latency.samples));
    text
}

fn line(text: &mut String, name: &str, kind: &str, value: &str) {
    add(text, format_args!("# TYPE {name} {kind}\n{name} {value}\n"));
}

fn add(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("text has room");
}
