//! Rules for names: one word, one meaning, and no version in any of them.

use super::{Finding, Found, in_files, is_exempt, is_identifier, numbered, source};
use crate::tree::Tree;

/// Where a word is not to be used. Some are fine as a verb: `record(..)` may record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    AnyName,
    TypeName,
}

/// Words the glossary has another word for. The words on the right stand in docs/glossary.md.
const SYNONYMS: &[(&str, Place, &str)] = &[
    ("dbi", Place::AnyName, "table"),
    ("keyspace", Place::AnyName, "table"),
    ("bucket", Place::TypeName, "table"),
    ("record", Place::TypeName, "row"),
    ("entry", Place::TypeName, "row"),
    ("dupsort", Place::AnyName, "multi"),
    ("savepoint", Place::AnyName, "nest"),
    ("vacuum", Place::AnyName, "sweep"),
    ("mailbox", Place::AnyName, "inbox"),
    ("runner", Place::AnyName, "worker"),
    ("zombie", Place::AnyName, "orphan"),
];
/// Words that say nothing.
const EMPTY_WORDS: &[&str] = &["manager", "util", "helper"];
/// Names for which Rust has a custom that begins with `get_`.
const CUSTOMARY: &[&str] = &["get_mut", "get_or_", "get_unchecked"];

/// Public items are called what the glossary calls them.
pub(super) fn public_names(path: &str, text: &str) -> Found {
    if !path.ends_with(".rs") {
        return Found::new();
    }
    let code = source::code(text);
    let items = numbered(&code).filter_map(|(line, content)| Some((line, public_item(content)?)));
    items.flat_map(|(line, item)| judge(&item).into_iter().map(move |what| (line, what))).collect()
}

struct Item<'a> {
    name: &'a str,
    place: Place,
}

/// The item that a line makes public, if it does.
fn public_item(line: &str) -> Option<Item<'_>> {
    let declaration = line.trim_start().strip_prefix("pub ")?;
    let mut words = declaration.split(|c| !is_identifier(c)).filter(|word| !word.is_empty());
    let kind = words.by_ref().find(|word| !matches!(*word, "unsafe" | "async" | "extern"))?;
    match kind {
        "struct" | "enum" | "union" | "trait" | "type" => Some(Item { name: words.next()?, place: Place::TypeName }),
        "fn" | "mod" => Some(Item { name: words.next()?, place: Place::AnyName }),
        // `const NAME`, `const fn name`, `static mut NAME`
        "const" | "static" => words
            .find(|word| !matches!(*word, "fn" | "unsafe" | "async" | "extern" | "mut"))
            .map(|name| Item { name, place: Place::AnyName }),
        _ => None,
    }
}

fn judge(item: &Item<'_>) -> Vec<String> {
    let name = item.name;
    let words = split(name);
    let mut wrong = Vec::new();
    for word in &words {
        let synonym = SYNONYMS.iter().find(|(bad, place, _)| {
            is_form_of(word, bad) && (*place == Place::AnyName || item.place == Place::TypeName)
        });
        wrong
            .extend(synonym.map(|(bad, _, good)| format!("`{name}` says {bad}; expected the glossary's word, {good}")));
        let empty = EMPTY_WORDS.iter().find(|empty| is_form_of(word, empty));
        wrong.extend(empty.map(|empty| format!("`{name}` says {empty}; expected what it does")));
    }
    if name.starts_with("get_") && !CUSTOMARY.iter().any(|custom| name.starts_with(custom)) {
        wrong.push(format!("`{name}` begins with get_; expected the noun alone"));
    }
    wrong
}

/// `row_count`, `RowCount` and `ROW_COUNT` are all `row`, `count`.
fn split(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_small) {
            words.push(String::new());
        }
        after_small = !c.is_uppercase();
        words.last_mut().expect("there is always a last word").extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The word itself or its plural.
fn is_form_of(word: &str, base: &str) -> bool {
    let plural = base.strip_suffix('y').map_or_else(|| format!("{base}s"), |stem| format!("{stem}ies"));
    word == base || word == plural
}

/// The glossary explains the words this file insists on.
pub(super) fn glossary(tree: &Tree) -> Vec<Finding> {
    const GLOSSARY: &str = "docs/glossary.md";
    let Some(text) = tree.text(GLOSSARY) else { return Vec::new() };
    let first_cells = text.lines().filter_map(|line| line.strip_prefix('|')?.split('|').next());
    let explained: Vec<&str> = first_cells.flat_map(|cell| cell.split(|c| !is_identifier(c))).collect();
    let mut missing: Vec<&str> =
        SYNONYMS.iter().map(|(_, _, good)| *good).filter(|good| !explained.contains(good)).collect();
    missing.dedup();
    let what = |word| format!("the word {word} is not explained; expected a row of the table, since names must use it");
    missing.into_iter().map(|word| Finding { path: GLOSSARY.to_owned(), line: 1, what: what(word) }).collect()
}

/// No version in a name: a version is data. Names of recorded data are as they were found.
pub(super) fn versioned_names(tree: &Tree) -> Vec<Finding> {
    let file_name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let recorded: Vec<String> =
        tree.files().map(|(path, _)| path).filter(|path| is_exempt(path)).map(file_name).collect();
    let is_ours = |word: &str| !is_exempt(word) && !recorded.contains(&file_name(word));
    let expected = "expected a name without a version";
    let in_paths = |path: &str, _: &str| match versioned(path) {
        true => vec![(1, format!("the path has a version in it; {expected}"))],
        false => Found::new(),
    };
    let in_text = |_: &str, text: &str| {
        let words = numbered(text).flat_map(|(line, content)| {
            let parts = content.split(|c: char| !is_identifier(c) && !"./-".contains(c));
            parts.map(move |word| (line, word))
        });
        let wrong = words.filter(|(_, word)| versioned(word) && is_ours(word));
        wrong.map(|(line, word)| (line, format!("`{word}` has a version in it; {expected}"))).collect()
    };
    let mut findings = in_files(tree, "", in_paths);
    findings.extend([".rs", ".toml", ".md"].iter().flat_map(|ending| in_files(tree, ending, in_text)));
    findings
}

/// An underscore, `v` and a number, after a name. Alone it is the rule's name.
fn versioned(word: &str) -> bool {
    word.match_indices("_v").any(|(at, _)| {
        let rest = word[at + 2..].trim_start_matches(|c: char| c.is_ascii_digit());
        let has_number = word[at + 2..].len() > rest.len();
        let after_name = word[..at].ends_with(char::is_alphanumeric);
        has_number && after_name && !rest.starts_with(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[&str]) {
        let found: Vec<String> = public_names("a.rs", line).into_iter().map(|(_, what)| what).collect();
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn every_synonym_is_found_in_a_type_and_answered_with_its_word() {
        for (bad, _, good) in SYNONYMS {
            let name = format!("Open{}{}", bad[..1].to_uppercase(), &bad[1..]);
            check(
                &format!("pub struct {name};"),
                &[&format!("`{name}` says {bad}; expected the glossary's word, {good}")],
            );
        }
        for empty in EMPTY_WORDS {
            check(&format!("pub mod {empty}s;"), &[&format!("`{empty}s` says {empty}; expected what it does")]);
        }
    }

    #[test]
    fn every_kind_of_public_item_is_looked_at() {
        for item in
            ["const RUNNER: u8", "const fn runner()", "async fn runner()", "static mut RUNNER: u8", "trait Runner"]
        {
            assert_eq!(public_names("a.rs", &format!("    pub {item}")).len(), 1, "{item}");
        }
        check("pub fn get_row(&self)", &["`get_row` begins with get_; expected the noun alone"]);
        check("pub type RowEntries = u8;", &["`RowEntries` says entry; expected the glossary's word, row"]);
    }

    #[test]
    fn house_words_verbs_and_private_names_are_fine() {
        for line in ["pub struct TableRow;", "pub fn record(&mut self)", "pub fn get_mut(&mut self)", "pub entry: u8,"]
        {
            check(line, &[]);
        }
        for line in [
            "pub fn executor_crash()",
            "pub struct ExecutorCrash;",
            "fn runner()",
            "// pub fn runner()",
            "pub fn dbid()",
        ] {
            check(line, &[]);
        }
    }

    #[test]
    fn glossary_explains_the_words_on_the_right() {
        let row = |word: &str| format!("| {word} | means | never |\n");
        let mut page: String = SYNONYMS.iter().map(|(_, _, good)| row(good)).collect();
        assert_eq!(glossary(&Tree::of(&[("docs/glossary.md", &page)])), []);
        page = page.replace(&row("inbox"), &row("post"));
        assert_eq!(glossary(&Tree::of(&[("docs/glossary.md", &page)])).len(), 1);
    }

    #[test]
    fn version_in_a_name_is_found_and_recorded_data_is_not() {
        let version = ["_v", "0"].concat();
        let bad = format!("let frame{version} = 1;\n\nconst A: &str = \"timer{version}_due\";\n");
        let fine = format!("No `{version}` in names. let a_v = b_value; include!(\"data/frame{version}.bin\")\n");
        let data = format!("crates/a/tests/data/frame{version}.bin");
        let path = format!("docs/frame{version}.txt");
        let tree = Tree::of(&[("a.rs", &bad), ("b.md", &fine), (&data, ""), (&path, "")]);
        let found: Vec<(String, usize)> = versioned_names(&tree).into_iter().map(|f| (f.path, f.line)).collect();
        assert_eq!(found, [(path, 1), ("a.rs".to_owned(), 1), ("a.rs".to_owned(), 3)]);
    }
}
