//! What we want of the numbers. Printed, never asserted: a goal is for people.

use crate::outcome::{OURS, Outcome, Sheet};

/// What a goal compares our number with.
#[derive(Clone, Copy)]
enum Bar {
    /// So many times better than LMDB.
    Lmdb(f64),
    /// So many times better than this other way.
    Other(&'static str, f64),
    /// Not above this, in the workload's unit.
    Most(f64),
}

/// Goals for rows of every shape.
const GOALS: &[(&str, Bar)] = &[
    ("get_1t", Bar::Lmdb(1.5)),
    ("get_2t", Bar::Lmdb(1.5)),
    ("get_1t_randtree", Bar::Lmdb(1.5)),
    ("get_txn_per_op", Bar::Lmdb(1.5)),
    ("scan_full", Bar::Lmdb(2.0)),
    ("scan_100", Bar::Lmdb(1.5)),
    ("scan_10", Bar::Lmdb(1.5)),
    ("count_range_1pct", Bar::Lmdb(100.0)),
    ("bulk_sorted (wall)", Bar::Lmdb(2.5)),
    ("rand_batch_nosync (wall)", Bar::Lmdb(2.5)),
    ("churn_nosync (wall)", Bar::Lmdb(4.5)),
    ("delete_half (wall)", Bar::Lmdb(3.0)),
    ("rand_batch_sync", Bar::Lmdb(6.0)),
    ("single_sync", Bar::Lmdb(3.0)),
    ("single_sync_8t", Bar::Lmdb(8.0)),
    ("mixed_reads", Bar::Lmdb(1.2)),
    ("mixed_writes", Bar::Lmdb(3.0)),
    ("readlat_p50", Bar::Lmdb(1.0 / 0.7)),
    ("readlat_p99", Bar::Lmdb(1.0)),
    ("open", Bar::Most(300.0)),
    ("size_longreader", Bar::Most(3.0)),
];

/// Goals that hold for the larger rows: smaller ones have more page around them.
const GOALS_OF_A: &[(&str, Bar)] =
    &[("size_sorted", Bar::Most(1.08)), ("size_random", Bar::Most(1.5)), ("size_churn", Bar::Most(1.7))];

/// Goals of what has no shape.
const GOALS_OF_KINDS: &[(&str, Bar)] = &[
    ("multi_insert", Bar::Lmdb(1.5)),
    ("multi_scan", Bar::Lmdb(1.5)),
    ("multi_count", Bar::Lmdb(1.5)),
    ("multi_delete_pair", Bar::Lmdb(1.5)),
    ("cas", Bar::Other("get + put", 1.0)),
    ("merge", Bar::Other("get + put", 1.0)),
    ("diff_100", Bar::Most(1000.0)),
    ("checkpoint_stream", Bar::Other("disk", 0.5)),
    ("unwatched_commit", Bar::Other("no watch", 0.95)),
    ("range_delete_1000_leaves", Bar::Most(1000.0)),
    ("open_crashed", Bar::Most(500_000.0)),
];

/// A line for each goal whose workload was measured.
pub(crate) fn lines(sheet: &Sheet) -> Vec<String> {
    let shaped = ["A", "B"].into_iter().flat_map(|shape| GOALS.iter().map(move |goal| (shape, goal)));
    let all = shaped.chain(GOALS_OF_A.iter().map(|goal| ("A", goal)));
    let shaped = all.filter_map(|(shape, (workload, bar))| line(sheet, &format!("{shape} {workload}"), *bar));
    shaped.chain(GOALS_OF_KINDS.iter().filter_map(|(workload, bar)| line(sheet, workload, *bar))).collect()
}

fn line(sheet: &Sheet, workload: &str, bar: Bar) -> Option<String> {
    let outcome = sheet.find(workload)?;
    let (found, wanted, met, share) = match bar {
        Bar::Lmdb(least) => times(outcome, "lmdb", "LMDB", least)?,
        Bar::Other(other, least) => times(outcome, other, other, least)?,
        Bar::Most(most) => {
            let (found, unit) = (outcome.median(OURS)?, outcome.unit.symbol());
            (format!("{found:.2} {unit}"), format!("at most {most:.2} {unit}"), found <= most, most / found)
        }
    };
    Some(match met {
        true => format!("met     {workload}: {found}, wanted {wanted}"),
        false => format!("missed  {workload}: {found}, wanted {wanted}; {:.0} % of the way", share * 100.0),
    })
}

/// How many times better we are than another, in words; what is wanted; whether it is met; and how far we are.
fn times(outcome: &Outcome, peer: &str, called: &str, least: f64) -> Option<(String, String, bool, f64)> {
    let found = outcome.ratio(peer)?;
    Some((format!("{found:.2}x {called}"), format!("at least {least:.2}x"), found >= least, found / least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Unit;

    #[test]
    fn goal_says_how_far_we_are() {
        let mut sheet = Sheet::default();
        for (who, value) in [(OURS, 120.0), ("lmdb", 100.0)] {
            sheet.note("A get_1t".into(), Unit::PerSecond, who, value);
            sheet.note("B open".into(), Unit::Microseconds, who, value);
        }
        let expected = [
            "missed  A get_1t: 1.20x LMDB, wanted at least 1.50x; 80 % of the way",
            "met     B open: 120.00 us, wanted at most 300.00 us",
        ];
        assert_eq!(lines(&sheet), expected);
    }
}
