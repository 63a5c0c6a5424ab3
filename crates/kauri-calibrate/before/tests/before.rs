//! redb 4.1.0: its two crash bugs are found. The counts are printed; `--nocapture` shows them.

use kauri_calibrate_before::Redb;

/// Finds a violation of this kind within these points, finds it again by its name, and prints it.
fn found(engine: Redb, seed: u64, points_max: u64, kinds: &[&str]) {
    let explorer = Redb::explorer(seed, points_max);
    let report = explorer.explore(&engine);
    let violation = report.violation.unwrap_or_else(|| panic!("seed {seed}: nothing in {} points", report.points));
    println!("redb 4.1.0, seed {seed}: {violation}");
    assert!(kinds.iter().any(|kind| violation.what.contains(kind)), "{violation}");
    assert_eq!(explorer.replay(&engine, &violation.path), Err(violation.what));
}

#[test]
fn a_crash_while_growing_leaves_a_file_that_cannot_be_opened() {
    for seed in 1..=5 {
        found(Redb::growing(), seed, 5_000, &["raw_file_len()? >= header.layout().len()"]);
    }
}

#[test]
fn a_crash_inside_recovery_loses_what_was_acknowledged() {
    // The same damage shows as an older state, or as an allocator that does not fit its tree.
    let kinds = ["was acknowledged, and only", "bit < self.len", "left == right"];
    for seed in 1..=5 {
        found(Redb::steady(), seed, 20_000, &kinds);
    }
}
