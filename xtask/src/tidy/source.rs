//! Rust source seen as a reader sees it: which characters are code, comment or literal.
//!
//! This knows just enough of the language not to take a brace in a string for a block, or a word in a
//! message for a leftover.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The code alone: comments and literals are blank, every line keeps its number.
pub(crate) fn code(text: &str) -> String {
    masked(text, |kind| kind == Kind::Code)
}

/// Code and comments: what literals say is blank, every line keeps its number.
pub(crate) fn without_literals(text: &str) -> String {
    masked(text, |kind| kind != Kind::Literal)
}

fn masked(text: &str, keep: impl Fn(Kind) -> bool) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (kind, length) = token(&chars, at);
        assert!(length > 0, "every token moves on");
        let end = chars.len().min(at + length);
        masked.extend(chars[at..end].iter().map(|&c| if keep(kind) || c == '\n' { c } else { ' ' }));
        at = end;
    }
    masked
}

/// The kind and length of what begins at `at`. A length may pass the end if a literal is not closed.
fn token(chars: &[char], at: usize) -> (Kind, usize) {
    let rest = &chars[at..];
    match rest {
        ['/', '/', ..] => (Kind::Comment, rest.iter().position(|&c| c == '\n').unwrap_or(rest.len())),
        ['/', '*', ..] => (Kind::Comment, block_comment(rest)),
        ['"', ..] => (Kind::Literal, 1 + quoted(&rest[1..], '"')),
        ['\'', '\\', _, ..] => (Kind::Literal, 3 + quoted(&rest[3..], '\'')),
        ['\'', _, '\'', ..] => (Kind::Literal, 3),
        [c, ..] if super::is_identifier(*c) => identifier_or_raw(rest),
        _ => (Kind::Code, 1),
    }
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] if depth == 1 => return at + 2,
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length up to and with the closing quote.
fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// An identifier or number, or a raw string if the identifier is its prefix.
fn identifier_or_raw(rest: &[char]) -> (Kind, usize) {
    let length = rest.iter().position(|&c| !super::is_identifier(c)).unwrap_or(rest.len());
    let prefix: String = rest[..length].iter().collect();
    let hashes = rest[length..].iter().take_while(|&&c| c == '#').count();
    let body = length + hashes + 1;
    if !matches!(prefix.as_str(), "r" | "br" | "cr") || rest.get(body - 1) != Some(&'"') {
        return (Kind::Code, length);
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let inside = rest[body..].windows(closing.len()).position(|window| window == closing);
    (Kind::Literal, inside.map_or(rest.len(), |inside| body + inside + closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(code(text).split_whitespace().collect::<Vec<_>>().join(" "), expected, "{text}");
    }

    #[test]
    fn code_is_what_is_neither_comment_nor_literal() {
        check("a // b\nc", "a c");
        check("a /* b /* c */ d */ e", "a e");
        check(r#"a "b \" c" d"#, "a d");
        check(r##"a r#"b " c"# br"d" e"##, "a e");
        check(r"a '{' '\'' '\u{7b}' b", "a b");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_code() {
        check("fn f<'a>(x: &'a r#type) {}", "fn f<'a>(x: &'a r#type) {}");
    }

    #[test]
    fn unclosed_literal_reaches_to_the_end() {
        check("a \"b", "a");
        check("a r#\"b\"", "a");
        check("a /* b", "a");
    }

    #[test]
    fn lines_keep_their_numbers() {
        assert_eq!(code("a\n\"b\nc\" d").lines().count(), 3);
        assert_eq!(without_literals("a // \"b\"\n\"c\""), "a // \"b\"\n   ");
    }
}
