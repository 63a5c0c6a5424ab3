//! The ledger with real processes: killed, and racing.
#![expect(clippy::disallowed_methods, reason = "real processes need a real directory")]

use std::path::Path;

use kauri_trial::{kill, race};

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kauri-trial"))
}

/// A directory of this test's own, removed at the end.
fn in_directory(name: &str, act: impl FnOnce(&Path)) {
    let path = std::env::temp_dir().join(format!("kauri-trial-{name}-{}", std::process::id()));
    std::fs::create_dir(&path).expect("a new directory");
    act(&path);
    std::fs::remove_dir_all(&path).expect("our own directory");
}

#[test]
fn a_process_killed_at_any_step_leaves_what_can_be_reconciled() {
    in_directory("kill", |directory| {
        let done = kill::kills(program(), directory, 1, 100).unwrap();
        assert_eq!(done.kills, 100);
        assert!(done.steps.iter().all(|kills| *kills >= 7), "{done:?}");
        assert!(done.orphans > 0 && done.repairs > 0 && done.actions > 50, "{done:?}");
    });
}

#[test]
fn ten_thousand_races_have_one_holder_at_a_time_and_it_is_named() {
    in_directory("race", |directory| {
        let done = race::races(program(), directory, 8, 1_250).unwrap();
        assert_eq!(done.taken, 10_000);
        assert!(done.refused > 0 && done.told > 0, "{done:?}");
    });
}
