//! As much of Markdown as the rules need: what is code, what is prose, which headings there are.

use super::numbered;

/// The text with everything in backticks blank, fenced blocks included; every line keeps its number.
pub(super) fn prose(text: &str) -> String {
    let lines = fenced(text).map(|(_, line, inside)| if inside { String::new() } else { without_spans(line) });
    lines.collect::<Vec<_>>().join("\n")
}

/// Every code span and every line of a fenced block, with its line number.
pub(super) fn code(text: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    for (number, line, inside) in fenced(text) {
        if inside {
            code.push((number, line));
        } else {
            code.extend(line.split('`').skip(1).step_by(2).map(|span| (number, span)));
        }
    }
    code
}

/// The anchors of a page: its headings as GitHub spells them in a link.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    for (_, line, inside) in fenced(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if inside || !(1..=6).contains(&level) || !title.starts_with(' ') {
            continue;
        }
        let anchor = anchor(title.trim());
        let again = (1..).map(|count| format!("{anchor}-{count}")).find(|other| !anchors.contains(other));
        anchors.push(if anchors.contains(&anchor) { again.unwrap_or_default() } else { anchor });
    }
    anchors
}

/// Text with what stands between backticks on one line blank.
pub(super) fn without_spans(text: &str) -> String {
    let outside = |line: &str| {
        let parts = line.split('`').enumerate();
        parts
            .map(|(index, part)| if index % 2 == 0 { part.to_owned() } else { " ".repeat(part.len()) })
            .collect::<Vec<_>>()
    };
    text.lines().map(|line| outside(line).join(" ")).collect::<Vec<_>>().join("\n")
}

fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Lines with their numbers, and whether they are in a fenced block; the fences themselves count as inside.
fn fenced(text: &str) -> impl Iterator<Item = (usize, &str, bool)> {
    let mut fence: Option<&str> = None;
    numbered(text).map(move |(number, line)| {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        let inside = fence.is_some() || mark.is_some();
        match fence {
            None => fence = mark,
            Some(_) if fence == mark => fence = None,
            Some(_) => {}
        }
        (number, line, inside)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A b\nsay `x` and `y`\n```sh\n# no heading\n~~~\n```\n## A, B!\n## A b\n";

    #[test]
    fn code_and_prose_complete_each_other() {
        assert_eq!(code(PAGE), [(2, "x"), (2, "y"), (3, "```sh"), (4, "# no heading"), (5, "~~~"), (6, "```")]);
        assert_eq!(prose(PAGE), "# A b\nsay     and    \n\n\n\n\n## A, B!\n## A b");
    }

    #[test]
    fn headings_are_anchors() {
        assert_eq!(anchors(PAGE), ["a-b", "a-b-1", "a-b-2"]);
    }
}
