//! The page that says which test shows which sentence of the contract.

/// Where its tests are.
const SOURCES: [&str; 24] = [
    include_str!("blocks.rs"),
    include_str!("boot.rs"),
    include_str!("failures.rs"),
    include_str!("messages.rs"),
    include_str!("observing.rs"),
    include_str!("run_jobs.rs"),
    include_str!("run_steps.rs"),
    include_str!("runs.rs"),
    include_str!("substrates.rs"),
    include_str!("threads.rs"),
    include_str!("timers.rs"),
    include_str!("coverage.rs"),
    include_str!("../../src/dedupe.rs"),
    include_str!("../../src/policy.rs"),
    include_str!("../../src/schema.rs"),
    include_str!("../../src/run/row.rs"),
    include_str!("../../../kauri-sim/tests/all/runs.rs"),
    include_str!("../../../kauri-sim/tests/all/worlds.rs"),
    include_str!("../../../kauri-wire/src/intent.rs"),
    include_str!("../../../kauri-wire/src/key.rs"),
    include_str!("../../../kauri-wire/src/message.rs"),
    include_str!("../../../kauri-wire/tests/all/conformance/frames.rs"),
    include_str!("../../../kauri-wire/tests/all/mutation.rs"),
    include_str!("../../../kauri-wire/tests/all/conformance.rs"),
];

#[test]
fn coverage_page_names_tests_that_exist() {
    let page = include_str!("../../../../docs/seed-coverage.md");
    // A name in code style with three words or more is a test's.
    let is_name = |word: &&str| {
        word.matches('_').count() >= 3
            && word.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
    };
    let names: Vec<&str> = page.split('`').filter(is_name).collect();
    assert!(names.len() > 40, "{} names", names.len());
    for name in names {
        let definitions = [format!("fn {name}("), format!("{name}:"), format!("{name},")];
        let is_there = SOURCES.iter().any(|source| definitions.iter().any(|definition| source.contains(definition)));
        assert!(is_there, "{name} is named in docs/seed-coverage.md and is no test");
    }
}
