//! Soak: every campaign gets an even share of the time. A new campaign is one more line in [`campaigns`].

use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::fuzz;
use crate::gate::{ARENA, SANITIZER_TARGET, SIMULATOR};
use crate::invocation::{Invocation, cargo, target_folder};
use crate::manifest;
use crate::table::Table;
use crate::tool::Tool;
use crate::tree::{self, Tree};

/// A search that can go on for as long as it is given.
struct Campaign<'a> {
    name: String,
    /// Searches for about this long and says how much was tried.
    search: Box<dyn Fn(Duration) -> Result<String> + 'a>,
}

/// Cases per property in the first round; each further round doubles them.
const CASES_FIRST: u64 = 1024;
/// Rounds at most, so that tests which ignore the number of cases do not go on for ever.
const ROUNDS_MAX: u32 = 12;

const TRIAL: &str = "crates/kauri-trial/src/main.rs";

/// Runs at most, for the same reason.
const RACES_MAX: u32 = 10_000;

pub(crate) fn run(tree: &Tree, minutes: u64) -> Result<()> {
    let campaigns = campaigns(tree);
    if campaigns.is_empty() {
        return Err(Failure::Failed("there is nothing to soak: no fuzz target and no property test".to_owned()));
    }
    let mut left = Duration::from_secs(minutes * 60);
    let mut summary = Table::new(["campaign", "result", "tried", "seconds"]);
    let mut failures = Vec::new();
    for (index, campaign) in campaigns.iter().enumerate() {
        // What one campaign leaves over, the rest share.
        let share = left / u32::try_from(campaigns.len() - index).unwrap_or(u32::MAX);
        println!("[{}/{}] {} for {} s ...", index + 1, campaigns.len(), campaign.name, share.as_secs());
        let began = Instant::now();
        let result = (campaign.search)(share);
        left = left.saturating_sub(began.elapsed());
        let seconds = format!("{:.1}", began.elapsed().as_secs_f64());
        let (word, tried) = match &result {
            Ok(tried) => ("ok", tried.clone()),
            Err(_) => ("FAILED", String::new()),
        };
        summary.push([campaign.name.clone(), word.to_owned(), tried, seconds]);
        failures.extend(result.err().map(|failure| format!("{}: {failure}", campaign.name)));
    }
    println!("\n{summary}");
    if failures.is_empty() { Ok(()) } else { Err(Failure::Failed(failures.join("\n"))) }
}

fn campaigns(tree: &Tree) -> Vec<Campaign<'_>> {
    let mut all = Vec::new();
    let tested: Vec<String> = manifest::packages(tree)
        .into_iter()
        .filter(|package| package.has_property_tests && package.is_member())
        .map(|package| package.name)
        .collect();
    if !tested.is_empty() {
        let search = move |share| search_properties(&tested, share);
        all.push(Campaign { name: "properties".to_owned(), search: Box::new(search) });
    }
    if tree.holds(SIMULATOR) {
        for (name, command) in [("crashes", "crash"), ("maps", "model"), ("worlds", "world")] {
            let search = move |share| for_minutes("kauri-sim", command, share);
            all.push(Campaign { name: name.to_owned(), search: Box::new(search) });
        }
    }
    if tree.holds(TRIAL) {
        all.push(Campaign { name: "ledger crashes".to_owned(), search: Box::new(search_ledger_crashes) });
        all.push(Campaign { name: "ledger kills".to_owned(), search: Box::new(search_kills) });
        all.push(Campaign { name: "lock races".to_owned(), search: Box::new(search_lock_races) });
    }
    if tree.holds(ARENA) {
        all.push(Campaign { name: "races".to_owned(), search: Box::new(search_races) });
    }
    for target in fuzz::targets(tree) {
        let name = format!("fuzz {target}");
        all.push(Campaign { name, search: Box::new(move |share| search_target(tree, &target, share)) });
    }
    all
}

fn search_target(tree: &Tree, target: &str, share: Duration) -> Result<String> {
    Tool::Fuzz.ensure()?;
    // Zero would mean without end.
    let executions = fuzz::explore(tree, target, share.as_secs().max(1))?;
    Ok(format!("{executions} executions"))
}

/// Rounds of ever more cases, as long as the next, about twice the last, still fits.
fn search_properties(packages: &[String], share: Duration) -> Result<String> {
    Tool::Nextest.ensure()?;
    let nextest = cargo(&["nextest", "run", "--all-features", "--locked"]);
    let nextest = packages.iter().fold(nextest, |call, package| call.arguments(["-p", package]));
    let began = Instant::now();
    // Built beforehand, so that the first round tells how long a round takes.
    nextest.clone().arguments(["--no-run"]).run()?;
    let mut cases = CASES_FIRST;
    for round in 1..=ROUNDS_MAX {
        let round_began = Instant::now();
        let call = nextest.clone().environment("PROPTEST_CASES", cases.to_string());
        println!("      {call}");
        call.run()?;
        if round == ROUNDS_MAX || began.elapsed() + 2 * round_began.elapsed() > share {
            break;
        }
        cases *= 2;
    }
    Ok(format!("{cases} cases per property in the last round"))
}

/// The ledger, crashed on a simulated disk.
fn search_ledger_crashes(share: Duration) -> Result<String> {
    for_minutes("kauri-trial", "crash", share)
}

/// A simulator at work: ever new seeds.
fn for_minutes(package: &str, command: &str, share: Duration) -> Result<String> {
    let minutes = (share.as_secs() / 60).max(1).to_string();
    last_line(&released(package, &[command, "--minutes"]).arguments([minutes]))
}

/// Processes that work on a ledger, killed: a thousand of each seed.
fn search_kills(share: Duration) -> Result<String> {
    again(share, |seed| released("kauri-trial", &["kill", "--count", "1000", "--seed", &seed.to_string()]))
}

/// Processes that want the same lock.
fn search_lock_races(share: Duration) -> Result<String> {
    again(share, |_| released("kauri-trial", &["race"]))
}

/// Calls for as long as there is time, and says what the last one said.
fn again(share: Duration, call: impl Fn(u32) -> Invocation) -> Result<String> {
    let began = Instant::now();
    for runs in 1..=RACES_MAX {
        let said = last_line(&call(runs))?;
        if runs == RACES_MAX || began.elapsed() > share {
            return Ok(format!("{runs} times, the last: {said}"));
        }
    }
    unreachable!("the last run returns")
}

fn released(package: &str, arguments: &[&str]) -> Invocation {
    cargo(&["run", "--release", "--locked", "-p", package, "--"]).arguments(arguments.iter().copied())
}

fn last_line(call: &Invocation) -> Result<String> {
    println!("      {call}");
    let mut said = String::new();
    call.watch(|line| line.clone_into(&mut said))?;
    Ok(said)
}

/// The arena's threads under ThreadSanitizer, again and again: every run mixes them differently.
fn search_races(share: Duration) -> Result<String> {
    let began = Instant::now();
    race_test().arguments(["--no-run"]).run()?;
    let call = race_test().arguments(["--", "stress"]);
    println!("      {call}");
    for runs in 1..=RACES_MAX {
        call.run()?;
        if runs == RACES_MAX || began.elapsed() > share {
            return Ok(format!("{runs} runs"));
        }
    }
    unreachable!("the last run returns")
}

/// The standard library is not built with the sanitizer: that is allowed by name, and what it then gets wrong is in a file. A
/// profile with symbols, because that file names functions.
fn race_test() -> Invocation {
    let test = cargo(&["test", "--profile", "bench", "--locked", "-p", "kauri-arena", "--test", "all"]);
    let folder = target_folder().join("tsan");
    let known = tree::root().join("xtask/tsan.supp");
    test.arguments(["--target", SANITIZER_TARGET, "--target-dir", &folder.to_string_lossy()])
        .environment("RUSTC_BOOTSTRAP", "1")
        .environment("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
        .environment("TSAN_OPTIONS", format!("suppressions={}", known.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_the_property_tests_the_simulator_and_the_races_are_campaigns() {
        let tree = Tree::of(&[
            (ARENA, "[package]\nname = \"kauri-arena\"\n"),
            (SIMULATOR, "[package]\nname = \"kauri-sim\"\n"),
            (TRIAL, ""),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[dev-dependencies]\nproptest.workspace = true\n"),
            ("crates/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("fuzz/Cargo.toml", "[package]\nname = \"f\"\n[[bin]]\nname = \"frame\"\n[[bin]]\nname = \"key\"\n"),
        ]);
        let names: Vec<String> = campaigns(&tree).into_iter().map(|campaign| campaign.name).collect();
        let expected = [
            "properties",
            "crashes",
            "maps",
            "worlds",
            "ledger crashes",
            "ledger kills",
            "lock races",
            "races",
            "fuzz frame",
            "fuzz key",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn races_are_known_by_a_file_that_is_there() {
        assert!(tree::root().join("xtask/tsan.supp").is_file());
        let line = race_test().to_string();
        assert!(line.contains("/xtask/tsan.supp") && line.contains("--locked"), "{line}");
    }

    #[test]
    fn nothing_to_soak_is_said() {
        assert!(run(&Tree::of(&[]), 1).unwrap_err().to_string().starts_with("there is nothing to soak"));
    }
}
