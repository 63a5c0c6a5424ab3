//! redb 4.4.0: what is found in 4.1.0 (see `before/`) is not found here, with the same points.

use kauri_calibrate::Redb;

#[expect(clippy::print_stdout, reason = "what was looked at is worth knowing")]
fn survives(engine: Redb, seed: u64, points_max: u64) {
    let report = Redb::explorer(seed, points_max).explore(&engine);
    println!("redb 4.4.0, seed {seed}: {} points, {} lives, {:?}", report.points, report.lives, report.hits);
    assert!(report.violation.is_none(), "{}", report.violation.expect("there is one"));
    assert_eq!(report.points, points_max);
}

#[test]
fn a_crash_while_growing_leaves_a_file_that_opens() {
    survives(Redb::growing(), 1, 5_000);
}

#[test]
fn a_crash_inside_recovery_loses_nothing() {
    survives(Redb::steady(), 1, 20_000);
}
