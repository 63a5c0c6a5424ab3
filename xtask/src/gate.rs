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

/// The crate with unsafe code.
pub(crate) const ARENA: &str = "crates/kauri-arena/Cargo.toml";
/// The store.
pub(crate) const STORE: &str = "crates/kauri-tree/Cargo.toml";
/// The crate that crashes the store.
pub(crate) const SIMULATOR: &str = "crates/kauri-sim/Cargo.toml";
const NO_ARENA: &str = "there is no crates/kauri-arena";
/// Where the sanitizers are.
pub(crate) const SANITIZER_TARGET: &str = "x86_64-unknown-linux-gnu";

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
    // Without the features of tests: what is tested is what ships.
    let nextest = cargo(&["nextest", "run", "--workspace", "--locked"]);
    let deny = cargo(&["deny", "--locked", "check", "bans", "licenses", "sources"]);
    vec![
        step("fmt", Some(Tool::Rustfmt), vec![cargo(&["fmt", "--all", "--check"])]),
        step("clippy", Some(Tool::Clippy), vec![cargo(&clippy)]),
        Step { name: "no-std", tool: None, work: no_std(tree) },
        Step { name: "features", tool: Some(Tool::Clippy), work: features(tree) },
        step("doc", None, vec![doc]),
        step("nextest", Some(Tool::Nextest), vec![nextest]),
        Step { name: "doctest", tool: None, work: doctest(tree) },
        Step { name: "planted", tool: Some(Tool::Nextest), work: planted(tree) },
        Step { name: "calibrate", tool: None, work: calibrate(tree) },
        Step { name: "loom", tool: None, work: loom(tree) },
        Step { name: "asan", tool: None, work: asan(tree) },
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

/// The store without its features, with its tests and examples; and with each of them alone.
fn features(tree: &Tree) -> Work {
    let all = manifest::features(tree, STORE);
    if all.is_empty() {
        return Work::Absent("there is no crates/kauri-tree with features");
    }
    let subset = ["clippy", "-p", "kauri-tree", "--no-default-features", "--locked"];
    let call = |rest: &[&str]| {
        let rest = rest.iter().map(|argument| (*argument).to_owned());
        cargo(&subset).arguments(rest).arguments(["--", "-D", "warnings"])
    };
    let alone = all.iter().map(|feature| call(&["--features", feature]));
    Work::Calls([call(&["--all-targets"])].into_iter().chain(alone).collect())
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

/// Bugs that are planted in the store must be found. Its own build: the bugs are in it.
fn planted(tree: &Tree) -> Work {
    if !tree.holds(SIMULATOR) {
        return Work::Absent("there is no crates/kauri-sim");
    }
    let nextest = cargo(&["nextest", "run", "-p", "kauri-sim", "--features", "planted", "--locked"]);
    Work::Calls(vec![nextest.arguments(["--success-output", "final", "planted::"])])
}

/// The crash search must find the bugs of an engine that is known to have them. It is a package of its own.
fn calibrate(tree: &Tree) -> Work {
    const MANIFEST: &str = "crates/kauri-calibrate/before/Cargo.toml";
    if !tree.holds(MANIFEST) {
        return Work::Absent("there is no crates/kauri-calibrate");
    }
    let test = cargo(&["test", "--locked", "--manifest-path", MANIFEST]);
    Work::Calls(vec![test.arguments(["--target-dir", &own_folder("calibrate")])])
}

/// Every interleaving of the arena's protocols, and of group commit. Its own folder: other flags would rebuild everything, twice.
fn loom(tree: &Tree) -> Work {
    if !tree.holds(ARENA) {
        return Work::Absent(NO_ARENA);
    }
    let test = cargo(&["test", "-p", "kauri-arena", "--release", "--locked", "--test", "all"]);
    let group = cargo(&["test", "-p", "kauri-tree", "--release", "--locked", "--lib", "interleavings"]);
    let modelled =
        |test: Invocation| test.environment("RUSTFLAGS", "--cfg loom").arguments(["--target-dir", &own_folder("loom")]);
    Work::Calls([test, group].map(modelled).into())
}

/// The tests of unsafe code, and of the crate that leans on it, with every access checked by AddressSanitizer. It is no stable
/// option yet, but the runtime is part of the toolchain.
fn asan(tree: &Tree) -> Work {
    if !tree.holds(ARENA) {
        return Work::Absent(NO_ARENA);
    }
    let packages =
        ["kauri-arena", "kauri-tree"].into_iter().filter(|name| tree.holds(&format!("crates/{name}/Cargo.toml")));
    let test = cargo(&["test", "--locked", "--lib", "--tests"]).arguments(packages.flat_map(|name| ["-p", name]));
    // A target of its own keeps build scripts and procedural macros as they are.
    let test = test.arguments(["--target", SANITIZER_TARGET, "--target-dir", &own_folder("asan")]);
    let test = test.environment("RUSTC_BOOTSTRAP", "1").environment("RUSTFLAGS", "-Zsanitizer=address");
    // A test that asks for more memory than there is expects to be refused, as it would be without the sanitizer.
    Work::Calls(vec![test.environment("ASAN_OPTIONS", "allocator_may_return_null=1")])
}

/// A build folder beside the usual one.
fn own_folder(name: &str) -> String {
    target_folder().join(name).to_string_lossy().into_owned()
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
        assert_eq!(absent, 8, "no-std, features, doctest, planted, calibrate, loom, asan and fuzz");
    }

    #[test]
    fn every_build_uses_the_committed_lock_file() {
        let wire = "[package]\nname = \"kauri-wire\"\n";
        let all = lines(&[("crates/kauri-wire/Cargo.toml", wire), ("crates/kauri-wire/src/lib.rs", ""), (ARENA, "")]);
        let unlocked = all.iter().filter(|line| !line.contains("--locked") && !line.contains("absent"));
        assert_eq!(unlocked.collect::<Vec<_>>(), ["fmt: cargo fmt --all --check"]);
    }

    #[test]
    fn builds_with_flags_of_their_own_have_folders_of_their_own() {
        let all = lines(&[(ARENA, "[package]\nname = \"kauri-arena\"\n")]);
        let own = |step| {
            let line = all.iter().find(|line| line.starts_with(&format!("{step}: "))).unwrap();
            assert!(line.contains("RUSTFLAGS=") && line.contains("-p kauri-arena"), "{line}");
            line.contains(&format!("--target-dir {}", own_folder(step)))
        };
        assert!(own("loom") && own("asan"));
    }

    #[test]
    fn sanitizer_sees_the_crates_that_are_there() {
        let line = |files: &[_]| lines(files).into_iter().find(|line| line.starts_with("asan: ")).unwrap();
        assert!(!line(&[(ARENA, "")]).contains("-p kauri-tree"));
        assert!(line(&[(ARENA, ""), ("crates/kauri-tree/Cargo.toml", "")]).contains("-p kauri-tree"));
    }

    #[test]
    fn each_feature_of_the_store_is_tried_alone() {
        let store =
            "[package]\nname = \"kauri-tree\"\n[features]\ndefault = [\"multi\", \"ttl\"]\nmulti = []\nttl = []\n";
        let all = lines(&[(STORE, store)]);
        let line = all.iter().find(|line| line.starts_with("features: ")).unwrap();
        assert_eq!(line.matches("--no-default-features --locked").count(), 3, "{line}");
        assert!(line.contains("--features multi -- -D warnings") && line.contains("--all-targets"), "{line}");
    }

    #[test]
    fn fuzz_smoke_is_repeatable() {
        let all = lines(&[("fuzz/Cargo.toml", "[package]\nname = \"f\"\n[[bin]]\nname = \"frame\"\n")]);
        let last = all.last().unwrap();
        assert!(last.contains("frame") && last.ends_with("-seed=1 -verbosity=0"), "{last}");
    }
}
