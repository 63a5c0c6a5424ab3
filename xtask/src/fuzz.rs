//! Fuzz targets: their names, how one is run, and how much it ran.
//!
//! The corpus of a target grows in `fuzz/corpus/TARGET`, which git ignores. Inputs worth keeping for
//! everybody are committed in `fuzz/seeds/TARGET` and read by every run.

use std::fs;
use std::path::Path;

use crate::failure::{Failure, Result};
use crate::invocation::{Invocation, cargo, target_folder};
use crate::manifest;
use crate::tool::Tool;
use crate::tree::{Tree, root};

/// The targets, as fuzz/Cargo.toml names them.
pub(crate) fn targets(tree: &Tree) -> Vec<String> {
    let fuzz = manifest::packages(tree).into_iter().find(|package| package.folder == "fuzz");
    fuzz.map_or_else(Vec::new, |package| package.bins)
}

pub(crate) fn list(tree: &Tree) -> Result<()> {
    for target in targets(tree) {
        println!("{target}");
    }
    Ok(())
}

pub(crate) fn run(tree: &Tree, target: &str, seconds: u64) -> Result<()> {
    let known = targets(tree);
    if !known.iter().any(|name| name == target) {
        let known =
            if known.is_empty() { "there is none yet".to_owned() } else { format!("there are {}", known.join(", ")) };
        return Err(Failure::Usage(format!("no fuzz target is called `{target}`; {known}")));
    }
    Tool::Fuzz.ensure()?;
    let executions = explore(tree, target, seconds)?;
    println!("{target}: {executions} executions");
    Ok(())
}

/// Runs a target on its kept corpus and returns the number of executions.
pub(crate) fn explore(tree: &Tree, target: &str, seconds: u64) -> Result<u64> {
    let corpus = Path::new("fuzz/corpus").join(target);
    fs::create_dir_all(root().join(&corpus)).map_err(Failure::io(format!("make {}", corpus.display())))?;
    let call = call(tree, target, &corpus, seconds);
    let (mut executions, mut artifact) = (None, None);
    let ended = call.watch(|line| {
        executions = executions_in(line).or(executions);
        artifact = artifact_in(line).or(artifact.take());
    });
    if let (Err(_), Some(artifact)) = (&ended, artifact) {
        let again = cargo_fuzz("run").arguments([target.to_owned(), artifact]);
        let tried = executions.unwrap_or_default();
        return Err(Failure::Failed(format!(
            "{target} fails after {tried} executions; to see it again:\n\n    {again}\n"
        )));
    }
    ended?;
    executions.ok_or_else(|| Failure::Failed(format!("`{call}` ended without saying how much it ran")))
}

/// The call that fuzzes `target`, adding what it finds to `corpus`. libFuzzer's own options come last.
pub(crate) fn call(tree: &Tree, target: &str, corpus: &Path, seconds: u64) -> Invocation {
    let seeds = format!("fuzz/seeds/{target}");
    let seeds = tree.holds(&seeds).then_some(seeds);
    cargo_fuzz("run").arguments([target.to_owned(), corpus.display().to_string()]).arguments(seeds).arguments([
        "--".to_owned(),
        format!("-max_total_time={seconds}"),
        "-print_final_stats=1".to_owned(),
    ])
}

/// The call that builds all targets at once.
pub(crate) fn build() -> Invocation {
    cargo_fuzz("build")
}

/// Built beside everything else, but apart from it: the flags differ.
fn cargo_fuzz(command: &str) -> Invocation {
    let folder = target_folder().join("fuzz").display().to_string();
    // The sanitizer flags are unstable; this makes the stable compiler take them, so one toolchain is enough.
    cargo(&["fuzz", command, "--fuzz-dir", "fuzz", "--target-dir", &folder]).environment("RUSTC_BOOTSTRAP", "1")
}

fn executions_in(line: &str) -> Option<u64> {
    line.strip_prefix("stat::number_of_executed_units:")?.trim().parse().ok()
}

/// Where libFuzzer wrote the input that made the target fail.
fn artifact_in(line: &str) -> Option<String> {
    line.split_once("Test unit written to ").map(|(_, path)| path.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_read_from_the_final_statistics() {
        assert_eq!(executions_in("stat::number_of_executed_units: 1201812"), Some(1_201_812));
        assert_eq!(executions_in("stat::average_exec_per_sec:     400604"), None);
    }

    #[test]
    fn failing_input_is_read_from_the_report() {
        let line = "artifact_prefix='fuzz/artifacts/key/'; Test unit written to fuzz/artifacts/key/crash-31";
        assert_eq!(artifact_in(line).as_deref(), Some("fuzz/artifacts/key/crash-31"));
        assert_eq!(artifact_in("Base64: YWEK"), None);
    }

    #[test]
    fn unknown_target_is_wrong_use() {
        let tree = Tree::of(&[("fuzz/Cargo.toml", "[package]\nname = \"f\"\n[[bin]]\nname = \"key\"\n")]);
        let failure = run(&tree, "frame", 1).unwrap_err();
        assert_eq!(
            (failure.exit_code(), failure.to_string().as_str()),
            (2, "no fuzz target is called `frame`; there are key")
        );
    }

    #[test]
    fn committed_seeds_are_read_after_the_corpus() {
        let tree = Tree::of(&[("fuzz/seeds/key/empty", "")]);
        let line = call(&tree, "key", Path::new("corpus"), 3).to_string();
        assert!(line.ends_with(" key corpus fuzz/seeds/key -- -max_total_time=3 -print_final_stats=1"), "{line}");
    }
}
