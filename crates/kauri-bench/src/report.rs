//! What a run says: a table and its goals for people, rows for programs.
//!
//! A row is one workload and one peer:
//!
//! ```text
//! { "workload": "decode owned 64 B", "ours": 60.1, "peer": 92.7, "peer_name": "prost", "ratio": 1.54, "unit": "ns" }
//! ```
//!
//! `ratio` says how many times better we are, whatever the unit: above 1 we are better, below 1 the peer is. For
//! nanoseconds it is `peer / ours`.

use std::io::{self, Write};

use serde::Serialize;

use crate::measure::Outcome;

/// One workload and one peer, as programs read it.
#[derive(Serialize)]
struct Row<'a> {
    workload: &'a str,
    ours: f64,
    peer: f64,
    peer_name: &'a str,
    ratio: f64,
    unit: &'static str,
}

/// Writes every outcome as rows: a JSON array.
pub(crate) fn write_json(outcomes: &[Outcome], mut out: impl Write) -> io::Result<()> {
    let rows: Vec<Row<'_>> = outcomes.iter().flat_map(rows).collect();
    serde_json::to_writer_pretty(&mut out, &rows)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn rows(outcome: &Outcome) -> impl Iterator<Item = Row<'_>> {
    outcome.peers.iter().map(|(name, peer)| Row {
        workload: &outcome.workload,
        ours: outcome.ours.median,
        peer: peer.median,
        peer_name: name,
        ratio: outcome.unit.ratio(outcome.ours.median, peer.median),
        unit: outcome.unit.symbol(),
    })
}

/// Writes the table: the contenders of a workload below each other, ours first.
pub(crate) fn write_table(outcomes: &[Outcome], out: &mut impl Write) -> io::Result<()> {
    let mut lines = vec![["workload", "contender", "median", "min", "unit", "ours is"].map(String::from)];
    for outcome in outcomes {
        let unit = outcome.unit.symbol();
        let ours = outcome.ours;
        lines.push([&outcome.workload, "kauri", &short(ours.median), &short(ours.min), unit, ""].map(String::from));
        for (name, peer) in &outcome.peers {
            let ratio = format!("{}x", short(outcome.unit.ratio(ours.median, peer.median)));
            lines.push(["", name, &short(peer.median), &short(peer.min), unit, &ratio].map(String::from));
        }
    }
    let widths: [usize; 6] = std::array::from_fn(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or(0));
    for [workload, contender, median, min, unit, ratio] in &lines {
        let [a, b, c, d, e, f] = widths;
        let line = format!("{workload:a$}  {contender:b$}  {median:>c$}  {min:>d$}  {unit:e$}  {ratio:>f$}");
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out, "\nours is: how many times better we are; below 1x the peer is better. Compared by the median.")
}

/// Three digits that matter, or as many as stand before the point.
fn short(number: f64) -> String {
    let places = match number {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{number:.places$}")
}

/// What we want of a number, printed beside what we found. Never asserted: a goal is for people.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Goal {
    /// What is measured, as the start of a sentence.
    pub(crate) of: String,
    pub(crate) found: f64,
    pub(crate) bound: Bound,
    /// What follows the number, with its space if it has one.
    pub(crate) unit: &'static str,
}

/// The side of a number that is good.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Bound {
    Below(f64),
    AtLeast(f64),
}

impl Goal {
    /// How far the number is on the wrong side, if it is.
    fn miss(&self) -> Option<f64> {
        match self.bound {
            Bound::Below(limit) => (self.found >= limit).then_some(self.found - limit),
            Bound::AtLeast(limit) => (self.found < limit).then_some(limit - self.found),
        }
    }

    fn line(&self) -> String {
        let (unit, found) = (self.unit, short(self.found));
        let bound = match self.bound {
            Bound::Below(limit) => format!("below {}{unit}", short(limit)),
            Bound::AtLeast(limit) => format!("at least {}{unit}", short(limit)),
        };
        match self.miss() {
            None => format!("met     {} {bound}: {found}{unit}", self.of),
            Some(miss) => format!("missed  {} {bound}: {found}{unit}, off by {}{unit}", self.of, short(miss)),
        }
    }
}

/// Writes one line for each goal.
pub(crate) fn write_goals(goals: &[Goal], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\ngoals")?;
    goals.iter().try_for_each(|goal| writeln!(out, "{}", goal.line()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Estimate, Unit};

    fn outcome() -> Outcome {
        let estimate = |median| Estimate { median, min: median / 2.0 };
        Outcome {
            workload: "decode 64 B".into(),
            unit: Unit::Nanoseconds,
            ours: estimate(10.0),
            peers: vec![("memcpy", estimate(4.0)), ("prost", estimate(123.4))],
        }
    }

    #[test]
    fn json_is_an_array_of_rows_one_for_each_peer() {
        let mut json = Vec::new();
        write_json(&[outcome()], &mut json).unwrap();
        let row = |peer: &str, ns: f64, ratio: f64| {
            serde_json::json!({
                "workload": "decode 64 B", "ours": 10.0, "peer": ns, "peer_name": peer, "ratio": ratio, "unit": "ns",
            })
        };
        let expected = serde_json::json!([row("memcpy", 4.0, 0.4), row("prost", 123.4, 12.34)]);
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap(), expected);
    }

    #[test]
    fn table_is_aligned() {
        let mut table = Vec::new();
        write_table(&[outcome()], &mut table).unwrap();
        let table = String::from_utf8(table).unwrap();
        let expected = [
            "workload     contender  median   min  unit  ours is",
            "decode 64 B  kauri        10.0  5.00  ns",
            "             memcpy       4.00  2.00  ns      0.40x",
            "             prost         123  61.7  ns      12.3x",
        ];
        assert_eq!(table.lines().take(4).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_goal_says_by_how_much_it_is_missed() {
        let check = |bound, found, unit, line: &str| {
            assert_eq!(Goal { of: "decode".into(), found, bound, unit }.line(), line);
        };
        check(Bound::Below(20.0), 8.0, " ns", "met     decode below 20.0 ns: 8.00 ns");
        check(Bound::Below(20.0), 20.0, " ns", "missed  decode below 20.0 ns: 20.0 ns, off by 0.00 ns");
        check(Bound::AtLeast(5.0), 5.0, "x", "met     decode at least 5.00x: 5.00x");
        check(Bound::AtLeast(5.0), 4.5, "x", "missed  decode at least 5.00x: 4.50x, off by 0.50x");
    }
}
