//! Rules for Rust sources: unsafe code is argued for, functions and files stay readable.

use super::{Found, is_identifier, numbered, source, words};

const FUNCTION_LINES_MAX: usize = 100;
const FILE_LINES_MAX: usize = 900;

/// Every `unsafe` block, impl and function has its argument directly above, or on its line.
pub(super) fn safety_comments(path: &str, text: &str) -> Found {
    if !path.ends_with(".rs") {
        return Found::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let code = source::code(text);
    let bare = numbered(&code).filter(|(number, content)| {
        words(content, "unsafe").any(|at| needs_argument(&content[at + "unsafe".len()..]))
            && !is_argued(&lines, *number)
    });
    bare.map(|(number, _)| (number, "unsafe without an argument; expected a `SAFETY:` comment above".to_owned()))
        .collect()
}

/// Not an attribute `unsafe(..)` and not the type of a function pointer.
fn needs_argument(after: &str) -> bool {
    let after = after.trim_start();
    let pointer = after.strip_prefix("fn").is_some_and(|rest| rest.trim_start().starts_with('('));
    !after.starts_with('(') && !pointer
}

/// Looks on the line and up over the comments and attributes that belong to it.
fn is_argued(lines: &[&str], number: usize) -> bool {
    let belongs =
        |line: &&&str| ["//", "#[", "/*", "* ", "*/"].iter().any(|start| line.trim_start().starts_with(start));
    let above = lines[..number - 1].iter().rev().take_while(belongs);
    above.chain([&lines[number - 1]]).any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
}

/// A function fits on a page or two.
pub(super) fn long_functions(path: &str, text: &str) -> Found {
    if !path.ends_with(".rs") {
        return Found::new();
    }
    let code = source::code(text);
    let line_at = |at: usize| code[..at].matches('\n').count() + 1;
    let bodies = words(&code, "fn").filter_map(|at| Some((at, at + body_end(&code[at..])?)));
    let lengths = bodies.map(|(start, end)| (line_at(start), line_at(end) - line_at(start) + 1));
    let long = lengths.filter(|(_, length)| *length > FUNCTION_LINES_MAX);
    long.map(|(line, length)| (line, format!("a function of {length} lines; expected at most {FUNCTION_LINES_MAX}")))
        .collect()
}

/// Offset of the brace that ends the body of the function that begins here; none if it has no name or no body.
fn body_end(code: &str) -> Option<usize> {
    let name = code["fn".len()..].trim_start();
    if !name.starts_with(is_identifier) {
        return None;
    }
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.checked_sub(1)?,
            ';' if depth == 0 => return None,
            _ => {}
        }
        if c == '}' && depth == 0 {
            return Some(at);
        }
    }
    None
}

/// A file is one noun.
pub(super) fn long_files(path: &str, text: &str) -> Found {
    let length = text.lines().count();
    if !path.ends_with(".rs") || length <= FILE_LINES_MAX {
        return Found::new();
    }
    vec![(1, format!("a file of {length} lines; expected at most {FILE_LINES_MAX}"))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::FileRule;

    fn check(rule: FileRule, text: &str, lines: &[usize]) {
        let found = rule("a.rs", text);
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), lines, "{text}: {found:?}");
    }

    #[test]
    fn unsafe_code_without_an_argument_is_found() {
        check(safety_comments, "let a = unsafe { b() };", &[1]);
        check(safety_comments, "// It is fine.\nunsafe impl Send for A {}", &[2]);
        check(safety_comments, "// SAFETY: too far away.\n\npub unsafe fn f() {}", &[3]);
        check(safety_comments, "a(); // SAFETY: of a.\n*b = unsafe { c() };", &[2]);
        check(safety_comments, "unsafe extern \"C\" {}", &[1]);
    }

    #[test]
    fn unsafe_code_with_an_argument_is_fine() {
        check(safety_comments, "// SAFETY: b is never null,\n// see above.\nlet a = unsafe { b() };", &[]);
        check(safety_comments, "let a = unsafe { b() }; // SAFETY: b is pure.", &[]);
        check(safety_comments, "/// # Safety\n/// Call it once.\n#[inline]\npub unsafe fn f() {}", &[]);
    }

    #[test]
    fn words_that_only_look_unsafe_are_fine() {
        check(safety_comments, "#![deny(unsafe_code)]\n// unsafe {\nlet a = \"unsafe {\";", &[]);
        check(safety_comments, "#[unsafe(no_mangle)]\nstruct A(unsafe fn(u8));", &[]);
    }

    #[test]
    fn function_may_have_a_hundred_lines_and_no_more() {
        let function = |lines: usize| format!("\nfn f(a: [u8; 2]) {{\n{}}}\n", "    g(\"}\");\n".repeat(lines - 2));
        check(long_functions, &function(FUNCTION_LINES_MAX), &[]);
        check(long_functions, &function(FUNCTION_LINES_MAX + 1), &[2]);
    }

    #[test]
    fn declaration_and_pointer_have_no_length() {
        let filler = "\n".repeat(FUNCTION_LINES_MAX);
        check(
            long_functions,
            &format!("trait A {{ fn f(&self); }}\n{filler}type B = fn(u8);\n{filler}mod c {{}}"),
            &[],
        );
    }

    #[test]
    fn file_may_have_nine_hundred_lines_and_no_more() {
        check(long_files, &"\n".repeat(FILE_LINES_MAX), &[]);
        check(long_files, &"\n".repeat(FILE_LINES_MAX + 1), &[1]);
    }
}
