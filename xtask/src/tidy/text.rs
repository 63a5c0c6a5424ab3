//! Rules for any text file: whitespace, paths of one machine, leftover markers.

use super::{Found, markdown, numbered, source, words};

/// Lines end where their text ends, files end with a newline, and Rust is indented with spaces.
pub(super) fn whitespace(path: &str, text: &str) -> Found {
    let mut found = Found::new();
    // Not `lines`, which takes the carriage returns away.
    for (line, content) in (1..).zip(text.split('\n')) {
        if content.ends_with([' ', '\t', '\r']) {
            found.push((line, "whitespace at the end of the line; expected none".to_owned()));
        }
        if path.ends_with(".rs") && content.contains('\t') {
            found.push((line, "a tab; expected spaces".to_owned()));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        found.push((text.lines().count(), "the file ends without a newline; expected one".to_owned()));
    }
    found
}

/// First folders of paths that exist on somebody's machine only.
const MACHINE_FOLDERS: &[&str] = &["home", "root", "work", "Users", "tmp"];

/// No absolute path of one machine. A path after a word or a slash is part of something longer, such as a URL.
pub(super) fn machine_paths(_path: &str, text: &str) -> Found {
    let mut found = Found::new();
    for (line, content) in numbered(text) {
        let unix = MACHINE_FOLDERS.iter().find(|folder| begins_path(content, &format!("/{folder}/")));
        if let Some(folder) = unix {
            found
                .push((line, format!("an absolute path into `/{folder}`; expected a path relative to the repository")));
        }
        if has_drive(content) {
            found.push((line, "an absolute path on a drive; expected a path relative to the repository".to_owned()));
        }
    }
    found
}

fn begins_path(line: &str, needle: &str) -> bool {
    let part_of_longer = |c: char| c.is_alphanumeric() || "_-./~}*)>".contains(c);
    line.match_indices(needle).any(|(at, _)| !line[..at].chars().next_back().is_some_and(part_of_longer))
}

/// A capital, a colon and a backslash, followed by a name or, as in a literal, one more backslash.
fn has_drive(line: &str) -> bool {
    line.match_indices(":\\").any(|(at, _)| {
        let mut before = line[..at].chars().rev();
        let drive = before.next().is_some_and(|c| c.is_ascii_uppercase());
        let alone = !before.next().is_some_and(char::is_alphanumeric);
        let name = line[at + 2..].chars().next().is_some_and(|c| c.is_ascii_uppercase() || c == '\\');
        drive && alone && name
    })
}

/// Calls and attributes that must not stay in Rust code.
const LEFT_IN_CODE: &[(&str, &str)] = &[
    ("todo!", "the code, or an error"),
    ("unimplemented!", "the code, or an error"),
    ("dbg!", "no output from a debugging session"),
    ("#[ignore", "a test that runs, or none"),
];
/// Words that must not stay in a comment or a text.
const LEFT_IN_WORDS: &[&str] = &["FIXME", "XXX", "HACK"];

/// Nothing is left over from working on it. A marker in a literal or in backticks is talked about, not left over.
pub(super) fn leftover_markers(path: &str, text: &str) -> Found {
    let is_rust = path.ends_with(".rs");
    let mut found = Found::new();
    if is_rust {
        for (line, content) in numbered(&source::code(text)) {
            let left = LEFT_IN_CODE.iter().filter(|(marker, _)| content.contains(marker));
            found
                .extend(left.map(|(marker, expected)| (line, format!("`{marker}` is left over; expected {expected}"))));
        }
    }
    let visible = if is_rust { source::without_literals(text) } else { text.to_owned() };
    for (line, content) in numbered(&markdown::without_spans(&visible)) {
        let left = LEFT_IN_WORDS.iter().filter(|marker| words(content, marker).next().is_some());
        found
            .extend(left.map(|marker| (line, format!("`{marker}` is left over; expected the work done, or an issue"))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::FileRule;

    fn check(rule: FileRule, path: &str, text: &str, lines: &[usize]) {
        let found = rule(path, text);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), lines, "{text:?}: {found:?}");
    }

    #[test]
    fn whitespace_ends_with_the_text() {
        check(whitespace, "a.md", "a\n\tb\n", &[]);
        check(whitespace, "a.bin", "", &[]);
        check(whitespace, "a.md", "a \nb\t\nc\r\n", &[1, 2, 3]);
        check(whitespace, "a.rs", "a\n\tb\n", &[2]);
        check(whitespace, "a.rs", "a\nb", &[2]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for folder in MACHINE_FOLDERS {
            check(machine_paths, "a.rs", &format!("\"/{folder}/x\""), &[1]);
            check(machine_paths, "a.md", &format!("ok\nsee /{folder}/x"), &[2]);
            check(machine_paths, "a.md", &format!("https://kauri.example/{folder}/x docs/{folder}/x"), &[]);
        }
        check(machine_paths, "a.md", &["C:", "\\Users"].concat(), &[1]);
        check(machine_paths, "a.rs", &["\"D:", "\\\\x\""].concat(), &[1]);
    }

    #[test]
    fn paths_of_every_machine_are_not() {
        check(machine_paths, "a.sh", "#!/usr/bin/env bash\ncat /dev/null \"$HOME/x\"\n", &[]);
        check(machine_paths, "a.rs", r#"print("ERROR:\n", "a:\\", "E:\n")"#, &[]);
    }

    #[test]
    fn markers_are_found_in_code_and_comments() {
        for (marker, _) in LEFT_IN_CODE {
            check(leftover_markers, "a.rs", &format!("fn f() {{\n    {marker}\n}}"), &[2]);
        }
        for marker in LEFT_IN_WORDS {
            check(leftover_markers, "a.rs", &format!("// {marker}: later"), &[1]);
            check(leftover_markers, "a.toml", &format!("# {marker} later"), &[1]);
        }
    }

    #[test]
    fn markers_that_are_talked_about_are_not() {
        check(leftover_markers, "a.rs", r#"let a = "todo! FIXME #[ignore";"#, &[]);
        check(leftover_markers, "a.rs", "// A `FIXME` is found. HACKS and todo! are not.", &[]);
        check(leftover_markers, "a.md", "Write no `XXX`, and call no dbg! macro.", &[]);
    }
}
