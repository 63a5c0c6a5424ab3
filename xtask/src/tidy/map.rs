//! Rules for ARCHITECTURE.md, the map: every crate and every larger file stands in it.

use super::{Finding, is_exempt, is_identifier};
use crate::manifest::{self, Package};
use crate::tree::Tree;

const MAP: &str = "ARCHITECTURE.md";
/// A file up to this length is found through its crate.
const LINES_UNMAPPED_MAX: usize = 300;

/// The map is there and names every member of the workspace.
pub(super) fn crates(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.text(MAP) else {
        let what = "the map is missing; expected a page that names every crate".to_owned();
        return vec![Finding { path: MAP.to_owned(), line: 1, what }];
    };
    let members = manifest::packages(tree).into_iter().filter(Package::is_member);
    let missing = members.filter(|package| !mentions(map, &package.name));
    let what = |name| format!("the crate {name} is not on the map; expected a line about it in {MAP}");
    missing
        .map(|package| Finding { path: format!("{}/Cargo.toml", package.folder), line: 1, what: what(package.name) })
        .collect()
}

/// The map names every larger file, with or without the folder `crates/`.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let Some(map) = tree.text(MAP) else { return Vec::new() };
    let sources = tree.files().filter(|(path, _)| path.ends_with(".rs") && !is_exempt(path));
    let large =
        sources.map(|(path, text)| (path, text.lines().count())).filter(|(_, lines)| *lines > LINES_UNMAPPED_MAX);
    let missing = large.filter(|(path, _)| !mentions(map, path) && !mentions(map, path.trim_start_matches("crates/")));
    let what = |lines| format!("a file of {lines} lines that is not on the map; expected a line about it in {MAP}");
    missing.map(|(path, lines)| Finding { path: path.to_owned(), line: 1, what: what(lines) }).collect()
}

/// Whether the name stands there by itself: `kauri-wire` is no mention of `kauri`.
fn mentions(text: &str, name: &str) -> bool {
    let longer = |c: char| is_identifier(c) || c == '-';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(longer) && !after.is_some_and(longer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(map: Option<&str>) -> Vec<String> {
        let (short, long) = ("\n".repeat(LINES_UNMAPPED_MAX), "\n".repeat(LINES_UNMAPPED_MAX + 1));
        let mut files = vec![
            ("crates/kauri/Cargo.toml", "[package]\nname = \"kauri\"\n"),
            ("crates/kauri/src/short.rs", short.as_str()),
            ("crates/kauri/src/long.rs", long.as_str()),
            ("fuzz/Cargo.toml", "[package]\nname = \"kauri-fuzz\"\n"),
        ];
        files.extend(map.map(|map| (MAP, map)));
        let tree = Tree::of(&files);
        crates(&tree).into_iter().chain(super::files(&tree)).map(|finding| finding.path).collect()
    }

    #[test]
    fn missing_map_is_one_finding() {
        assert_eq!(findings(None), [MAP]);
    }

    #[test]
    fn unmapped_crate_and_large_file_are_found() {
        assert_eq!(findings(Some("kauri-wire\n")), ["crates/kauri/Cargo.toml", "crates/kauri/src/long.rs"]);
        assert_eq!(findings(Some("`kauri`, src/long.rs\n")), ["crates/kauri/src/long.rs"]);
    }

    #[test]
    fn mapped_crate_and_file_are_fine() {
        assert!(findings(Some("`kauri`: see kauri/src/long.rs.\n")).is_empty());
        assert!(findings(Some("`kauri`: see crates/kauri/src/long.rs\n")).is_empty());
    }
}
