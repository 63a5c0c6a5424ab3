//! What we want of the numbers. Printed, never asserted: a goal is for people.

use crate::outcome::{OURS, Sheet};

/// What a goal compares our number with.
#[derive(Clone, Copy)]
enum Bar {
    /// So many times better than LMDB.
    Lmdb(f64),
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

/// A line for each goal whose workload was measured.
pub(crate) fn lines(sheet: &Sheet) -> Vec<String> {
    let shaped = ["A", "B"].into_iter().flat_map(|shape| GOALS.iter().map(move |goal| (shape, goal)));
    let all = shaped.chain(GOALS_OF_A.iter().map(|goal| ("A", goal)));
    all.filter_map(|(shape, (workload, bar))| line(sheet, &format!("{shape} {workload}"), *bar)).collect()
}

fn line(sheet: &Sheet, workload: &str, bar: Bar) -> Option<String> {
    let outcome = sheet.find(workload)?;
    let (found, wanted, met, share) = match bar {
        Bar::Lmdb(least) => {
            let found = outcome.ratio("lmdb")?;
            (format!("{found:.2}x LMDB"), format!("at least {least:.2}x"), found >= least, found / least)
        }
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
