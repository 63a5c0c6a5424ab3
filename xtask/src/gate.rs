//! The gate: what every change passes, here and in CI, in this order. Quick complaints come first.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::fuzz;
use crate::invocation::{Invocation, cargo, target_folder};
use crate::manifest;
use crate::step::{self, Selection, Step, Work};
use crate::tool::Tool;
use crate::tree::Tree;

/// Targets without a standard library; the first that is installed makes the `no-std` step exact.
const BARE_TARGETS: &[&str] = &["wasm32v1-none", "thumbv7em-none-eabi", "riscv32imac-unknown-none-elf"];

pub(crate) fn run(tree: &Tree, selection: &Selection, fuzz_seconds: u64) -> Result<()> {
    let steps = selection.apply(steps(tree, fuzz_seconds))?;
    if steps.iter().any(|step| step.name == "fuzz") {
        empty_smoke_corpora(tree)?;
    }
    step::run_all(&steps)
}

fn steps(tree: &Tree, fuzz_seconds: u64) -> Vec<Step> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--all-features", "--locked", "--", "-D", "warnings"];
    let doc = cargo(&["doc", "--workspace", "--no-deps", "--locked"]).environment("RUSTDOCFLAGS", "-D warnings");
    let nextest = cargo(&["nextest", "run", "--workspace", "--all-features", "--locked"]);
    let deny = cargo(&["deny", "--locked", "check", "bans", "licenses", "sources"]);
    vec![
        step("fmt", Some(Tool::Rustfmt), vec![cargo(&["fmt", "--all", "--check"])]),
        step("clippy", Some(Tool::Clippy), vec![cargo(&clippy)]),
        Step { name: "no-std", tool: None, work: no_std(tree) },
        step("doc", None, vec![doc]),
        step("nextest", Some(Tool::Nextest), vec![nextest]),
        Step { name: "doctest", tool: None, work: doctest(tree) },
        Step { name: "calibrate", tool: None, work: calibrate(tree) },
        step("deny", Some(Tool::Deny), vec![deny]),
        Step { name: "fuzz", tool: Some(Tool::Fuzz), work: fuzz_smoke(tree, fuzz_seconds) },
    ]
}

fn step(name: &'static str, tool: Option<Tool>, calls: Vec<Invocation>) -> Step {
    Step { name, tool, work: Work::Calls(calls) }
}

/// The wire crate without its features, for a target without `std` if there is one, else for this machine.
fn no_std(tree: &Tree) -> Work {
    if !tree.holds("crates/kauri-wire/Cargo.toml") {
        return Work::Absent("there is no crates/kauri-wire");
    }
    let check = cargo(&["check", "-p", "kauri-wire", "--no-default-features", "--locked"]);
    let bare = BARE_TARGETS.iter().find(|target| is_installed(target));
    Work::Calls(vec![bare.map_or(check.clone(), |target| check.arguments(["--target", target]))])
}

fn is_installed(target: &str) -> bool {
    let printed = std::process::Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    printed.is_ok_and(|printed| Path::new(String::from_utf8_lossy(&printed.stdout).trim()).is_dir())
}

fn doctest(tree: &Tree) -> Work {
    // Cargo takes a workspace without a library for a mistake.
    if !manifest::packages(tree).iter().any(|package| package.is_member() && package.has_library) {
        return Work::Absent("there is no library");
    }
    Work::Calls(vec![cargo(&["test", "--doc", "--workspace", "--locked"])])
}

/// The crash search must find the bugs of an engine that is known to have them. It is a package of its own.
fn calibrate(tree: &Tree) -> Work {
    const MANIFEST: &str = "crates/kauri-calibrate/before/Cargo.toml";
    if !tree.holds(MANIFEST) {
        return Work::Absent("there is no crates/kauri-calibrate");
    }
    let folder = target_folder().join("calibrate").display().to_string();
    Work::Calls(vec![cargo(&["test", "--locked", "--manifest-path", MANIFEST, "--target-dir"]).arguments([folder])])
}

/// A few seconds per target, always with the same seed, from an empty corpus and the committed seeds.
fn fuzz_smoke(tree: &Tree, seconds: u64) -> Work {
    if fuzz::targets(tree).is_empty() {
        return Work::Absent("there is no target in fuzz/Cargo.toml");
    }
    // cargo-fuzz has no `--locked`, so the lock file is checked by itself.
    let mut calls = vec![cargo(&["fetch", "--quiet", "--locked", "--manifest-path", "fuzz/Cargo.toml"])];
    calls.push(fuzz::build());
    calls.extend(fuzz::targets(tree).iter().map(|target| {
        let call = fuzz::call(tree, target, &smoke_corpus(target), seconds);
        call.arguments(["-seed=1", "-verbosity=0"])
    }));
    Work::Calls(calls)
}

fn smoke_corpus(target: &str) -> PathBuf {
    target_folder().join("fuzz-smoke").join(target)
}

/// What an earlier run found would make this one start elsewhere, and a failure hard to repeat.
fn empty_smoke_corpora(tree: &Tree) -> Result<()> {
    for corpus in fuzz::targets(tree).iter().map(|target| smoke_corpus(target)) {
        if corpus.exists() {
            fs::remove_dir_all(&corpus).map_err(Failure::io(format!("empty {}", corpus.display())))?;
        }
        fs::create_dir_all(&corpus).map_err(Failure::io(format!("make {}", corpus.display())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(files: &[(&str, &str)]) -> Vec<String> {
        let lines = steps(&Tree::of(files), 5).into_iter().map(|step| match step.work {
            Work::Absent(why) => format!("{}: absent, {why}", step.name),
            Work::Calls(calls) => {
                format!("{}: {}", step.name, calls.iter().map(ToString::to_string).collect::<Vec<_>>().join(" && "))
            }
        });
        lines.collect()
    }

    #[test]
    fn young_repository_lacks_the_steps_for_what_is_not_there() {
        let absent = lines(&[]).into_iter().filter(|line| line.contains("absent")).count();
        assert_eq!(absent, 4, "no-std, doctest, calibrate and fuzz");
    }

    #[test]
    fn every_build_uses_the_committed_lock_file() {
        let wire = "[package]\nname = \"kauri-wire\"\n";
        let all = lines(&[("crates/kauri-wire/Cargo.toml", wire), ("crates/kauri-wire/src/lib.rs", "")]);
        let unlocked = all.iter().filter(|line| !line.contains("--locked") && !line.contains("absent"));
        assert_eq!(unlocked.collect::<Vec<_>>(), ["fmt: cargo fmt --all --check"]);
    }

    #[test]
    fn fuzz_smoke_is_repeatable() {
        let all = lines(&[("fuzz/Cargo.toml", "[package]\nname = \"f\"\n[[bin]]\nname = \"frame\"\n")]);
        let last = all.last().unwrap();
        assert!(last.contains("frame") && last.ends_with("-seed=1 -verbosity=0"), "{last}");
    }
}
