//! Rule for the page that says which test keeps which sentence: every test that it names is there.
//!
//! A test is named in code, by its function, or by module and function; `name_...` stands for one that begins so. What is named in the
//! first column of a table is what somebody else calls it.

use std::collections::BTreeMap;

use super::{Finding, first_word, numbered};
use crate::tree::Tree;

const PAGE: &str = "docs/seed-coverage.md";
/// A name without a module is taken for a test's if it is a sentence: it has so many underscores.
const UNDERSCORES_MIN: usize = 3;

/// Where each test stands.
type Tests<'t> = BTreeMap<&'t str, Vec<&'t str>>;

pub(super) fn tests(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(PAGE) else { return Vec::new() };
    let tests = all_tests(tree);
    let named = numbered(text).flat_map(|(line, row)| names(row).into_iter().map(move |name| (line, name)));
    let missing = named.filter(|(_, name)| !is_there(&tests, name));
    let what = |name: Name<'_>| format!("there is no test `{name}`; expected the name of a function with #[test]");
    missing.map(|(line, name)| Finding { path: PAGE.to_owned(), line, what: what(name) }).collect()
}

/// A test as a page names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Name<'p> {
    module: Option<&'p str>,
    function: &'p str,
    /// Only how it begins is said.
    is_cut: bool,
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let module = self.module.map_or(String::new(), |module| format!("{module}::"));
        write!(f, "{module}{}{}", self.function, if self.is_cut { "..." } else { "" })
    }
}

/// The tests that a row of a table names.
fn names(row: &str) -> Vec<Name<'_>> {
    let Some(row) = row.strip_prefix('|') else { return Vec::new() };
    // Code in which a stroke stands may be in the first cell too: there nothing is looked for.
    let rest = row.split_once(" | ").map_or("", |(_, rest)| rest);
    rest.split('`').skip(1).step_by(2).filter_map(name).collect()
}

fn name(code: &str) -> Option<Name<'_>> {
    let (path, is_cut) = code.strip_suffix("...").map_or((code, false), |path| (path, true));
    let (module, function) = match path.rsplit_once("::") {
        Some((modules, function)) => (modules.split("::").next(), function),
        None => (None, path),
    };
    let is_lower =
        |word: &str| !word.is_empty() && word.chars().all(|c| c == '_' || c.is_ascii_digit() || c.is_ascii_lowercase());
    let is_sentence = is_cut || function.matches('_').count() >= UNDERSCORES_MIN;
    let is_name = is_lower(function) && module.is_none_or(is_lower) && is_sentence;
    is_name.then_some(Name { module, function, is_cut })
}

fn is_there(tests: &Tests<'_>, name: &Name<'_>) -> bool {
    let is_in = |path: &str| {
        name.module
            .is_none_or(|module| path.contains(&format!("/{module}.rs")) || path.contains(&format!("/{module}/")))
    };
    let mut found = tests.range(name.function..).take_while(|(function, _)| match name.is_cut {
        true => function.starts_with(name.function),
        false => **function == name.function,
    });
    found.any(|(_, paths)| paths.iter().any(|path| is_in(path)))
}

/// Every function with `#[test]`, and every `name:` by which a macro makes one.
fn all_tests(tree: &Tree) -> Tests<'_> {
    let mut tests = Tests::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".rs")) {
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            let function = line.strip_prefix("fn ").filter(|_| is_test);
            let of_macro = || line.split_once(": ").map(|(name, _)| name).filter(|name| is_name_of_test(name));
            if let Some(name) = function.map(first_word).or_else(of_macro) {
                tests.entry(name).or_default().push(path);
            }
            // Other attributes may stand between.
            is_test = line == "#[test]" || is_test && (line.starts_with("#[") || line.starts_with("//"));
        }
    }
    tests
}

/// Whether a macro is given this name for a test.
fn is_name_of_test(name: &str) -> bool {
    first_word(name).len() == name.len() && name.matches('_').count() >= UNDERSCORES_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\n#[expect(a)]\nfn an_apple_is_a_fruit() {}\nfn a_pear_is_no_test() {}\ncases! {\n    every_plum_is_found: 1,\n}\n";

    fn check(cell: &str, expected: &[&str]) {
        let page = format!("| there | here |\n| `a_name_of_somebody_else` | {cell} |\n");
        let tree = Tree::of(&[(PAGE, &page), ("crates/a/tests/all/fruit.rs", SOURCE)]);
        let found: Vec<String> = tests(&tree).into_iter().map(|finding| finding.what).collect();
        let expected: Vec<String> = expected
            .iter()
            .map(|name| format!("there is no test `{name}`; expected the name of a function with #[test]"))
            .collect();
        assert_eq!(found, expected, "{cell}");
    }

    #[test]
    fn tests_that_are_there_are_found_by_name_and_module() {
        check("`an_apple_is_a_fruit`, `fruit::an_apple_is_a_fruit` and `fruit::an_apple_...`", &[]);
        check("`every_plum_is_found` by a macro", &[]);
        check("`Store::fork`, `next_of_key`, `kauri-tree/src/fork.rs`, `--as-of`", &[]);
    }

    #[test]
    fn tests_that_are_not_there_are_told() {
        check("`an_apple_is_no_fruit`", &["an_apple_is_no_fruit"]);
        check("`a_pear_is_no_test`", &["a_pear_is_no_test"]);
        check("`stones::an_apple_is_a_fruit`", &["stones::an_apple_is_a_fruit"]);
        check("`fruit::a_cherry_...`", &["fruit::a_cherry_..."]);
    }
}
