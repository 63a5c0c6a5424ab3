//! Rule for commands shown in Markdown: `cargo` can run them in this repository.

use clap::CommandFactory;

use super::{Finding, Found, in_files, markdown};
use crate::manifest::{self, Package};
use crate::tree::Tree;

/// Subcommands of Cargo that work on our own packages.
const OURS: &[&str] = &["run", "test", "build", "check", "bench", "doc", "clippy", "nextest"];

pub(super) fn commands(tree: &Tree) -> Vec<Finding> {
    let packages = manifest::packages(tree);
    in_files(tree, ".md", |_, text| {
        let mut found = Found::new();
        for (line, snippet) in markdown::code(text) {
            let wrong = lines_of(snippet).into_iter().flat_map(|words| judge(&packages, &words));
            found.extend(wrong.map(|what| (line, what)));
        }
        found
    })
}

/// The words after `cargo` of each command in a snippet; what follows a comment sign or a bare `--` is not ours.
fn lines_of(snippet: &str) -> Vec<Vec<&str>> {
    let script = snippet.split(" #").next().unwrap_or_default();
    let commands = script.split([';', '|', '&']);
    let words = commands.map(|command| {
        let words = command.split_whitespace().skip_while(|word| *word != "cargo").skip(1);
        words.take_while(|word| *word != "--").collect()
    });
    words.filter(|words: &Vec<&str>| !words.is_empty()).collect()
}

fn judge(packages: &[Package], words: &[&str]) -> Vec<String> {
    match words {
        ["xtask", rest @ ..] => judge_xtask(rest).into_iter().collect(),
        [command, rest @ ..] if OURS.contains(command) => judge_cargo(packages, rest),
        _ => Vec::new(),
    }
}

/// The command line's own definition says which commands and options there are.
fn judge_xtask(words: &[&str]) -> Option<String> {
    let (name, options) = words.split_first().filter(|(name, _)| !is_placeholder(name))?;
    let definition = crate::Cli::command();
    let Some(command) = definition.find_subcommand(name) else {
        let known: Vec<&str> = definition.get_subcommands().map(clap::Command::get_name).collect();
        return Some(format!("`cargo xtask {name}` does not exist; expected one of {}", known.join(", ")));
    };
    let is_known = |option: &str| command.get_arguments().any(|argument| argument.get_long() == Some(option));
    let options = options.iter().filter_map(|word| word.strip_prefix("--")?.split('=').next());
    let unknown = options.into_iter().find(|option| !is_known(option))?;
    Some(format!("`cargo xtask {name}` has no option `--{unknown}`; expected one that `--help` shows"))
}

fn judge_cargo(packages: &[Package], words: &[&str]) -> Vec<String> {
    let separate =
        words.windows(2).filter_map(|pair| if let [option, value] = *pair { Some((option, value)) } else { None });
    let joined = words.iter().filter_map(|word| word.split_once('='));
    let wrong = separate.chain(joined).filter(|(_, value)| !is_placeholder(value)).filter_map(|(option, value)| {
        let (what, exists) = match option {
            "-p" | "--package" => ("package", packages.iter().any(|package| package.name == value)),
            "--bin" => ("binary", packages.iter().any(|package| package.bins.iter().any(|bin| bin == value))),
            "--example" => {
                ("example", packages.iter().any(|package| package.examples.iter().any(|name| name == value)))
            }
            _ => return None,
        };
        (!exists).then(|| format!("no {what} is called `{value}`; expected one of this repository"))
    });
    wrong.collect()
}

/// `TARGET` or `<command>` stands for a name; so does an option in place of one.
fn is_placeholder(word: &str) -> bool {
    !word.starts_with(|c: char| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(page: &str, wrong: usize) {
        let manifest = "[package]\nname = \"kauri\"\n";
        let files = [("crates/kauri/Cargo.toml", manifest), ("crates/kauri/src/main.rs", "")];
        let example = [("crates/kauri/examples/orders.rs", ""), ("README.md", page)];
        let found = commands(&Tree::of(&[files, example].concat()));
        assert_eq!(found.len(), wrong, "{page}: {found:?}");
    }

    #[test]
    fn commands_that_exist_are_fine() {
        check("`cargo xtask`, `cargo xtask tidy`, `cargo xtask COMMAND`, `cargo xtask --help`", 0);
        check("`cargo xtask fuzz TARGET --seconds 3` and `cargo xtask bench wire --json=x.json`", 0);
        check("```sh\n$ A=1 cargo run -p kauri --bin kauri -- --bin no && cargo run --example orders # -p no\n```", 0);
        check("`cargo install --bin other` is another matter, and so is cargo xtask dance in prose", 0);
    }

    #[test]
    fn commands_that_do_not_exist_are_found() {
        check("`cargo xtask dance`", 1);
        check("`cargo xtask fuzz --minutes 3`", 1);
        check("```\ncargo run -p kauri-oak; cargo test --example=orders --package=oak\n```", 2);
        check("`cargo run --example oaks --bin oak`", 2);
    }
}
