//! Tidy: the repository checks itself. Every rule is a pure function from the files to its findings.
//!
//! `cargo xtask tidy` prints the findings; the test `repository_is_tidy` fails on any.

mod commands;
mod coverage;
mod examples;
mod links;
mod map;
mod markdown;
mod names;
mod rust;
mod source;
mod text;

use std::fmt;

use crate::failure::{Failure, Result};
use crate::tree::Tree;

/// Bytes that are not ours to shape: recorded data, legal texts, and what tools write.
const EXEMPT: &[&str] = &["tests/data/", "fuzz/seeds/", "LICENSE-", "Cargo.lock"];

/// One line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    /// `what is wrong; what was expected`
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// The findings of a rule that looks at one file: line numbers from 1, and what is wrong there.
type Found = Vec<(usize, String)>;
/// A rule that looks at one file by itself. It is asked about every file that is not exempt.
type FileRule = fn(path: &str, text: &str) -> Found;
/// A rule that needs to see several files.
type TreeRule = fn(&Tree) -> Vec<Finding>;

const FILE_RULES: &[FileRule] = &[
    text::whitespace,
    text::machine_paths,
    text::leftover_markers,
    rust::safety_comments,
    rust::long_functions,
    rust::long_files,
    names::public_names,
];

const TREE_RULES: &[TreeRule] = &[
    names::versioned_names,
    names::glossary,
    map::crates,
    map::files,
    links::links,
    commands::commands,
    coverage::tests,
    examples::examples,
];

pub(crate) fn run(tree: &Tree) -> Result<()> {
    let findings = check(tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!(
                "tidy: {} files, {} rules, no findings",
                tree.files().count(),
                FILE_RULES.len() + TREE_RULES.len()
            );
            Ok(())
        }
        count => Err(Failure::Failed(format!("the repository is not tidy; findings: {count}"))),
    }
}

fn check(tree: &Tree) -> Vec<Finding> {
    let by_file = FILE_RULES.iter().flat_map(|rule| in_files(tree, "", *rule));
    by_file.chain(TREE_RULES.iter().flat_map(|rule| rule(tree))).collect()
}

/// Asks a rule about every file whose name ends so and that is not exempt.
fn in_files(tree: &Tree, ending: &str, rule: impl Fn(&str, &str) -> Found) -> Vec<Finding> {
    let files = tree.files().filter(|(path, _)| path.ends_with(ending) && !is_exempt(path));
    let findings = files.flat_map(|(path, text)| {
        rule(path, text).into_iter().map(move |(line, what)| Finding { path: path.to_owned(), line, what })
    });
    findings.collect()
}

fn is_exempt(path: &str) -> bool {
    EXEMPT.iter().any(|exempt| path.starts_with(exempt) || path.contains(&format!("/{exempt}")))
}

/// Lines with their numbers, from 1.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

/// Offsets at which `word` stands in `line`, not as part of a longer identifier.
fn words<'a>(line: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    line.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = line[..*at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_identifier) && !after.is_some_and(is_identifier)
    })
}

fn first_word(line: &str) -> &str {
    line.split(|c| !is_identifier(c)).next().unwrap_or_default()
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_is_tidy() {
        let findings = check(&Tree::read(&crate::tree::root()).unwrap());
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(findings.is_empty(), "findings: {}\n{}", lines.len(), lines.join("\n"));
    }

    #[test]
    fn every_rule_is_asked() {
        let long_function = format!("fn f() {{\n{}}}\n", "\n".repeat(100));
        let folder = "home";
        let version = ["_v", "1"].concat();
        let samples = [
            ("a.txt", "a \n".to_owned()),
            ("b.txt", format!("/{folder}/ann\n")),
            ("c.toml", ["# FIX", "ME\n"].concat()),
            ("d.rs", "unsafe { d() }\n".to_owned()),
            ("e.rs", long_function),
            ("f.rs", "\n".repeat(901)),
            ("g.rs", "pub struct Mailbox;\n".to_owned()),
            ("h.rs", format!("let h{version} = 1;\n")),
            ("docs/glossary.md", "| word | means |\n".to_owned()),
            ("crates/i/Cargo.toml", "[package]\nname = \"i\"\n".to_owned()),
            ("ARCHITECTURE.md", "See f.rs and [j](j.md).\n".to_owned()),
            ("k.rs", "\n".repeat(301)),
            ("l.md", "`cargo xtask dance`\n".to_owned()),
            ("docs/seed-coverage.md", "| a | `m_is_not_a_test` |\n".to_owned()),
            ("crates/kauri-disk/src/n.rs", "/// N.\npub struct N;\n".to_owned()),
        ];
        let samples: Vec<(&str, &str)> = samples.iter().map(|(path, text)| (*path, text.as_str())).collect();
        assert_eq!(samples.len(), FILE_RULES.len() + TREE_RULES.len(), "one sample for each rule");
        let findings = check(&Tree::of(&samples));
        for (path, _) in samples {
            assert!(findings.iter().any(|finding| finding.path == path), "nothing found in {path}: {findings:?}");
        }
    }

    #[test]
    fn recorded_data_is_exempt_and_its_neighbours_are_not() {
        let untidy = "ends without a newline";
        let tree = Tree::of(&[("crates/a/tests/data/frame.txt", untidy), ("LICENSE-MIT", untidy), ("a.txt", untidy)]);
        let found: Vec<String> =
            in_files(&tree, "", text::whitespace).into_iter().map(|finding| finding.path).collect();
        assert_eq!(found, ["a.txt"]);
    }
}
