//! The page that says which test shows which sentence of the contracts.

#![expect(clippy::disallowed_methods, reason = "the sources of all crates are read, wherever a test may be")]

use std::path::Path;

/// All of the repository's code, in one piece.
fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The tests that a section names. A name in code style with four words or more is a test's; in the section about the store, which
/// has the names of another program beside ours, only one that says in which module it is.
fn names(section: &str) -> impl Iterator<Item = &str> {
    let is_of_store = section.starts_with("002");
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    section.split('`').skip(1).step_by(2).filter_map(move |word| {
        let (module, name) = word.rsplit_once("::").unwrap_or(("", word));
        let is_name = name.matches('_').count() >= 3 && name.chars().all(is_letter);
        (is_name && (!is_of_store || !module.is_empty())).then_some(name)
    })
}

#[test]
fn coverage_page_names_tests_that_exist() {
    let page = include_str!("../../../../docs/seed-coverage.md");
    let mut all = String::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut all);
    let names: Vec<&str> = page.split("\n## ").flat_map(names).collect();
    assert!(names.len() > 200, "{} names", names.len());
    for name in names {
        let definitions = [format!("fn {name}("), format!("{name}:"), format!("{name},")];
        let is_there = definitions.iter().any(|definition| all.contains(definition));
        assert!(is_there, "{name} is named in docs/seed-coverage.md and is no test");
    }
}
