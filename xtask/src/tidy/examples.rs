//! Rule for what the libraries offer: whoever reads about an item sees it used, by an example that runs as a test.
//!
//! An item is public if it says `pub`: the lint `unreachable_pub` refuses the word where nobody outside can come. Functions, methods, types,
//! traits, constants and macros need an example. Variants, fields, and the types and constants that a trait asks for need none: they are
//! shown with what they belong to. Nor do items that the docs hide, or that only tests have. An item that a macro makes is seen if the
//! macro says its name.

use super::{Finding, first_word, numbered, source};
use crate::tree::Tree;

/// The packages in which every item has an example.
const PACKAGES: &[&str] = &["kauri-arena", "kauri-disk", "kauri-tree", "kauri-wire"];
/// What has such an attribute is there for tests alone.
const FOR_TESTS: &[&str] = &["#[cfg(test)]", "#[cfg(all(test", "#[cfg(loom)]", "#[cfg(feature = \"planted\")]"];
/// Words that may stand before the one that says what an item is.
const QUALIFIERS: &[&str] = &["async", "const", "extern", "unsafe"];
/// What may follow the fence of an example that runs.
const RUNS: &[&str] = &["", "rust", "should_panic"];

pub(super) fn examples(tree: &Tree) -> Vec<Finding> {
    PACKAGES.iter().flat_map(|package| of_package(tree, package)).collect()
}

fn of_package(tree: &Tree, package: &str) -> Vec<Finding> {
    let folder = format!("crates/{package}/src/");
    let sources = || tree.files().filter(|(path, _)| path.starts_with(&folder) && path.ends_with(".rs"));
    let for_tests: Vec<String> = sources().flat_map(|(path, text)| modules_for_tests(path, text)).collect();
    let offered = sources().filter(|(path, _)| !for_tests.iter().any(|module| is_of_module(path, module)));
    let what = |name| format!("`{name}` has no example; expected one in its docs that runs as a test");
    let bare = offered.flat_map(|(path, text)| {
        let items = without_example(text).into_iter();
        items.map(move |(line, name)| Finding { path: path.to_owned(), line, what: what(name) })
    });
    bare.collect()
}

/// The paths, without their ending, of modules that are files of their own and that only tests have.
fn modules_for_tests(path: &str, text: &str) -> Vec<String> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let folder = ["/lib", "/mod"].iter().find_map(|name| stem.strip_suffix(name)).unwrap_or(stem);
    let lines: Vec<&str> = text.lines().collect();
    let declared = numbered(text).filter_map(|(line, content)| {
        let (_, name) = content.strip_suffix(';')?.split_once("mod ")?;
        About::item(&lines, line).is_for_tests().then(|| format!("{folder}/{name}"))
    });
    declared.collect()
}

/// Whether the file is the module, or in it.
fn is_of_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// What the lines that follow are in, and at which depth of braces it began.
struct Inside {
    what: Block,
    depth: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    ForTests,
    Trait,
}

/// The public items of a file that have no example: their lines, and what they are called.
fn without_example(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut bare, mut inside, mut depth) = (Vec::new(), Vec::<Inside>::new(), 0_usize);
    for (line, code) in numbered(&source::code(text)).filter(|(_, code)| !code.trim().is_empty()) {
        let about = About::item(&lines, line);
        let in_trait = inside.last().is_some_and(|inside| inside.what == Block::Trait && inside.depth + 1 == depth);
        let item = item(code, in_trait, &about);
        if about.is_for_tests() {
            inside.push(Inside { what: Block::ForTests, depth });
        } else if is_trait(code) {
            inside.push(Inside { what: Block::Trait, depth });
        }
        let for_tests = inside.iter().any(|inside| inside.what == Block::ForTests);
        bare.extend(item.filter(|_| !for_tests && !about.is_shown()).map(|name| (line, name.to_owned())));
        depth = (depth + code.matches('{').count()).saturating_sub(code.matches('}').count());
        inside.retain(|inside| depth > inside.depth || depth == inside.depth && !code.trim_end().ends_with(['}', ';']));
    }
    bare
}

/// The name of the item that begins on this line, if it is one that needs an example.
fn item<'c>(code: &'c str, in_trait: bool, about: &About<'_>) -> Option<&'c str> {
    let code = code.trim_start();
    if let Some(name) = code.strip_prefix("macro_rules! ") {
        return about.says("#[macro_export]").then(|| first_word(name));
    }
    let declaration = code.strip_prefix("pub ").or_else(|| in_trait.then_some(code))?;
    let mut words = declaration.split([' ', '(']).filter(|word| !word.is_empty()).peekable();
    let is_const = words.peek() == Some(&"const");
    let kind = words.find(|word| !QUALIFIERS.contains(word))?;
    let name = match kind {
        "fn" => words.next()?,
        "struct" | "enum" | "union" | "trait" | "type" | "static" if !in_trait => words.next()?,
        name if is_const && !in_trait => name,
        _ => return None,
    };
    Some(first_word(name)).filter(|name| !name.is_empty())
}

fn is_trait(code: &str) -> bool {
    ["pub trait ", "pub unsafe trait "].iter().any(|start| code.trim_start().starts_with(start))
}

/// The docs and attributes that stand above an item.
struct About<'t>(Vec<&'t str>);

impl<'t> About<'t> {
    /// What belongs to the item that begins on this line; nothing if none does, because the line is itself about one.
    fn item(lines: &[&'t str], line: usize) -> Self {
        let is_about = |line: &str| line.starts_with("#[") || line.starts_with("//");
        if is_about(lines[line - 1].trim_start()) {
            return Self(Vec::new());
        }
        let mut about = Vec::new();
        // An attribute of several lines is known by its last one.
        let mut in_attribute = false;
        for line in lines[..line - 1].iter().rev().map(|line| line.trim()) {
            in_attribute = !line.starts_with("#[") && (in_attribute || line == ")]");
            if !in_attribute && !is_about(line) {
                break;
            }
            about.push(line);
        }
        about.reverse();
        Self(about)
    }

    fn says(&self, attribute: &str) -> bool {
        self.0.iter().any(|line| line.starts_with(attribute))
    }

    fn is_for_tests(&self) -> bool {
        FOR_TESTS.iter().any(|attribute| self.says(attribute))
    }

    /// Whether the docs have an example that runs, or are hidden.
    fn is_shown(&self) -> bool {
        let docs = self.0.iter().filter_map(|line| line.strip_prefix("///"));
        let mut fences = docs.filter_map(|line| line.trim().strip_prefix("```")).step_by(2);
        self.says("#[doc(hidden)]") || fences.any(|kind| RUNS.contains(&kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "/// A.\n///\n/// ```\n/// a();\n/// ```\n";

    fn check(text: &str, expected: &[(usize, &str)]) {
        let expected: Vec<(usize, String)> = expected.iter().map(|(line, name)| (*line, (*name).to_owned())).collect();
        assert_eq!(without_example(text), expected, "{text}");
    }

    #[test]
    fn every_kind_of_public_item_needs_an_example() {
        for item in [
            "pub struct A<T>(T);",
            "pub enum A {}",
            "pub trait A {}",
            "pub type A = u8;",
            "pub const A: u8 = 1;",
            "pub static A: u8 = 1;",
            "pub union A {}",
            "pub fn A() {}",
            "pub const unsafe fn A() {}",
            "pub async fn A<T>() {}",
            "#[macro_export]\nmacro_rules! A {}",
        ] {
            let line = item.lines().count();
            check(item, &[(line, "A")]);
            check(&format!("/// A.\n{item}"), &[(line + 1, "A")]);
            check(&format!("{EXAMPLE}{item}"), &[]);
        }
    }

    #[test]
    fn example_that_does_not_run_is_none() {
        for kind in ["text", "ignore", "no_run", "compile_fail", "sh"] {
            check(&format!("/// ```{kind}\n/// a\n/// ```\npub fn a() {{}}"), &[(4, "a")]);
        }
        check("/// ```text\n/// a\n/// ```\n///\n/// ```should_panic\n/// b\n/// ```\npub fn a() {}", &[]);
        check("// ```\n// a\n// ```\npub fn a() {}", &[(4, "a")]);
    }

    #[test]
    fn attributes_may_stand_between_docs_and_item() {
        check(&format!("{EXAMPLE}#[inline]\n#[expect(\n    b,\n    reason = \"c\"\n)]\npub fn a() {{}}"), &[]);
        check(&format!("{EXAMPLE}fn b() {{}}\n#[inline]\npub fn a() {{}}"), &[(8, "a")]);
        check(&format!("{EXAMPLE}\nfn b() {{}}\n\npub fn a() {{}}"), &[(9, "a")]);
    }

    #[test]
    fn functions_of_a_trait_need_one_and_what_it_asks_for_does_not() {
        let body = "    type Out;\n    const MOST: u8;\n    fn a(&self)\n    where\n        Self: Sized,\n    {\n        fn b() {}\n    }\n";
        check(
            &format!("{EXAMPLE}pub trait A<T>\nwhere\n    T: Copy,\n{{\n{body}    unsafe fn c();\n}}\nfn d() {{}}"),
            &[(12, "a"), (18, "c")],
        );
        check(&format!("{EXAMPLE}pub unsafe trait A {{\n    fn a();\n}}"), &[(7, "a")]);
        check(&format!("trait A {{\n{body}}}\nimpl A for B {{\n{body}}}"), &[]);
        check(&format!("{EXAMPLE}pub trait A {{}}\nfn a() {{\n    fn b() {{}}\n}}"), &[]);
    }

    #[test]
    fn fields_variants_and_what_nobody_outside_sees_need_none() {
        check("fn a() {}\npub(crate) fn b() {}\npub mod c;\npub use d::E;\nmacro_rules! f {}", &[]);
        check(&format!("{EXAMPLE}pub struct A {{\n    pub b: u8,\n    pub constant: u8,\n}}"), &[]);
        check("#[doc(hidden)]\npub fn a() {}\nlet b = \"\npub fn c() {}\n\";", &[]);
    }

    #[test]
    fn what_only_tests_have_needs_none_and_what_follows_does() {
        for attribute in
            FOR_TESTS.iter().map(|start| format!("{start}{}", if start.ends_with(']') { "" } else { "))]" }))
        {
            check(&format!("{attribute}\nimpl A {{\n    pub fn b() {{\n    }}\n}}\npub fn c() {{}}"), &[(6, "c")]);
            check(&format!("{attribute}\nuse a::b;\npub fn c() {{}}"), &[(3, "c")]);
            check(&format!("{attribute}\npub fn a<T>()\nwhere\n    T: B,\n{{\n}}\npub fn c() {{}}"), &[(7, "c")]);
        }
    }

    #[test]
    fn modules_in_files_are_looked_at_unless_only_tests_have_them() {
        let bare = "pub fn a() {}\n";
        let tree = Tree::of(&[
            ("crates/kauri-disk/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;\n"),
            ("crates/kauri-disk/src/b/mod.rs", "#[cfg(feature = \"planted\")]\npub mod planted;\nmod c;\n"),
            ("crates/kauri-disk/src/b/c.rs", bare),
            ("crates/kauri-disk/src/b/planted.rs", bare),
            ("crates/kauri-disk/src/tests.rs", bare),
            ("crates/kauri-disk/src/tests/d.rs", bare),
            ("crates/kauri-disk/src/tests_of_others.rs", bare),
            ("crates/kauri-disk/tests/all/main.rs", bare),
            ("crates/kauri-sim/src/lib.rs", bare),
        ]);
        let found: Vec<String> = examples(&tree).iter().map(ToString::to_string).collect();
        let expected = ["b/c.rs", "tests_of_others.rs"].map(|path| {
            format!("crates/kauri-disk/src/{path}:1: `a` has no example; expected one in its docs that runs as a test")
        });
        assert_eq!(found, expected);
    }
}
