//! Mistakes made on purpose: each is planted in a copy of the sources, and the test named with it must fail.
//!
//! A test that cannot fail shows nothing. The lists are `crates/*/planted.toml`; the copy lies beside the other builds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result};
use crate::invocation::target_folder;
use crate::tool::Tool;
use crate::tree::Tree;

/// One mistake.
struct Bug {
    /// What the test is there for.
    of: String,
    what: String,
    file: String,
    is: String,
    becomes: String,
    package: String,
    test: String,
}

/// How nextest ends when a test failed, and not before.
const TEST_FAILED: i32 = 100;

pub(crate) fn run(tree: &Tree, only: Option<&str>) -> Result<()> {
    let bugs = bugs(tree)?;
    let bugs: Vec<&Bug> = bugs.iter().filter(|bug| only.is_none_or(|only| bug.concerns(only))).collect();
    if bugs.is_empty() {
        return Err(Failure::Usage("no planted bug is about that".to_owned()));
    }
    Tool::Nextest.ensure()?;
    let copy = Copy::make(tree)?;
    let mut missed = 0;
    for bug in &bugs {
        let planted = bug.plant(tree)?;
        copy.write(&bug.file, &planted)?;
        let ended = copy.test(&bug.package, &[bug])?;
        copy.write(&bug.file, tree.text(&bug.file).unwrap_or_default())?;
        let verdict = if ended == TEST_FAILED { "found" } else { "NOT FOUND" };
        println!("{verdict}: {}: {} ({}; nextest ended with {ended})", bug.of, bug.what, bug.test);
        missed += usize::from(ended != TEST_FAILED);
    }
    // A test that always fails finds everything.
    for package in bugs.iter().map(|bug| &bug.package).collect::<BTreeSet<_>>() {
        let ended = copy.test(package, &bugs)?;
        if ended != 0 {
            return Err(Failure::Failed(format!(
                "a test of {package} fails without a bug: nextest ended with {ended}"
            )));
        }
    }
    println!(
        "{} of {} planted bugs are found by their tests, which pass without them",
        bugs.len() - missed,
        bugs.len()
    );
    if missed == 0 { Ok(()) } else { Err(Failure::Failed(format!("planted bugs that are not found: {missed}"))) }
}

/// Every list there is.
fn bugs(tree: &Tree) -> Result<Vec<Bug>> {
    let lists = tree.files().filter(|(path, _)| path.starts_with("crates/") && path.ends_with("/planted.toml"));
    let mut bugs = Vec::new();
    for (path, text) in lists {
        let wrong = |what: String| Failure::Failed(format!("{path}: {what}"));
        let list: toml::Table = text.parse().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let package = path.split('/').nth(1).unwrap_or_default();
        let found = list.get("bug").and_then(toml::Value::as_array).into_iter().flatten();
        for bug in found {
            let bug =
                Bug::read(bug, package).ok_or_else(|| wrong("expected of, what, file, is, becomes, test".into()))?;
            bug.plant(tree)?;
            bugs.push(bug);
        }
    }
    Ok(bugs)
}

impl Bug {
    fn read(bug: &toml::Value, package: &str) -> Option<Bug> {
        let text = |name: &str| bug.get(name).and_then(toml::Value::as_str).map(str::to_owned);
        let package = text("package").unwrap_or_else(|| package.to_owned());
        let (of, what, file) = (text("of")?, text("what")?, text("file")?);
        Some(Bug { of, what, file, is: text("is")?, becomes: text("becomes")?, package, test: text("test")? })
    }

    fn concerns(&self, words: &str) -> bool {
        [&self.of, &self.what, &self.test].iter().any(|text| text.contains(words))
    }

    /// The file with the mistake in it.
    fn plant(&self, tree: &Tree) -> Result<String> {
        let text = tree.text(&self.file).unwrap_or_default();
        match text.matches(&self.is).count() {
            1 => Ok(text.replace(&self.is, &self.becomes)),
            count => {
                Err(Failure::Failed(format!("{}: expected {:?} once, found it {count} times", self.file, self.is)))
            }
        }
    }
}

/// A copy of the sources, with a folder for its builds.
struct Copy {
    sources: PathBuf,
    builds: PathBuf,
}

impl Copy {
    fn make(tree: &Tree) -> Result<Copy> {
        let folder = target_folder().join("plant");
        let copy = Copy { sources: folder.join("sources"), builds: folder.join("builds") };
        for (path, text) in tree.files() {
            copy.write(path, text)?;
        }
        Ok(copy)
    }

    /// Writes a file that is not there yet or says something else: what stays as it is is not built again.
    fn write(&self, path: &str, text: &str) -> Result<()> {
        let place = self.sources.join(path);
        if fs::read_to_string(&place).is_ok_and(|found| found == text) {
            return Ok(());
        }
        let folder = place.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).and_then(|()| fs::write(&place, text)).map_err(Failure::io(format!("copy {path}")))
    }

    /// Runs the tests of bugs that are in this package. Answers how nextest ended.
    fn test(&self, package: &str, bugs: &[&Bug]) -> Result<i32> {
        let ours = bugs.iter().filter(|bug| bug.package == package);
        let tests: Vec<String> = ours.map(|bug| format!("test(={})", bug.test)).collect();
        let mut command = Command::new("cargo");
        command.args(["nextest", "run", "--cargo-quiet", "--locked", "-p", package, "-E", &tests.join(" | ")]);
        command.arg("--target-dir").arg(&self.builds);
        // Built soon rather than fast: one crate is built again for each bug.
        command.args(["--config", &format!("profile.dev.package.{package}.opt-level=0")]);
        command.args(["--config", "profile.dev.debug=false"]);
        command.args(["--status-level", "none", "--final-status-level", "none", "--failure-output", "never"]);
        let status = command.current_dir(&self.sources).env_remove("CARGO_MANIFEST_DIR").status();
        let status = status.map_err(Failure::io("start `cargo nextest`"))?;
        status.code().ok_or_else(|| Failure::Failed(format!("nextest was ended: {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::root;

    #[test]
    fn every_bug_has_one_place_and_its_test_is_there() {
        let tree = Tree::read(&root()).unwrap();
        let bugs = bugs(&tree).unwrap();
        assert!(bugs.len() > 20, "{}", bugs.len());
        for bug in bugs {
            let name = format!("fn {}(", bug.test.rsplit("::").next().unwrap());
            let named = |text: &str| text.contains(&name) || text.contains(&format!("{}:", &name[3..name.len() - 1]));
            let folder = format!("crates/{}/", bug.package);
            assert!(tree.files().any(|(path, text)| path.starts_with(&folder) && named(text)), "{}", bug.test);
        }
    }

    #[test]
    fn bug_without_its_place_is_told() {
        let list = "[[bug]]\nof = \"a\"\nwhat = \"b\"\nfile = \"f\"\nis = \"x\"\nbecomes = \"y\"\ntest = \"t\"\n";
        let tree = |text| Tree::of(&[("crates/c/planted.toml", list), ("f", text)]);
        assert_eq!(bugs(&tree("axb")).unwrap()[0].plant(&tree("axb")).unwrap(), "ayb");
        for text in ["", "xx"] {
            assert!(bugs(&tree(text)).map(drop).unwrap_err().to_string().contains("expected \"x\" once"));
        }
    }
}
