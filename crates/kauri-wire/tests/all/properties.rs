//! Random values: what is written is read back, and bytes sort like values. `PROPTEST_CASES` says how many are tried; a
//! failure prints the smallest value that shows it.

mod frames;
mod keys;
mod packs;
mod runs;

use proptest::test_runner::Config;

/// As many cases as the environment says, and no files beside the sources.
fn config() -> Config {
    Config { failure_persistence: None, ..Config::default() }
}
