//! Numbers, times and words, as short as they can be read.

use std::time::Duration;

use ratatui::text::Span;

/// How many columns a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

fn char_width(char: char) -> usize {
    width(char.encode_utf8(&mut [0; 4]))
}

/// The beginning of a text that is too long, with a sign that it is.
pub(super) fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut taken, mut left) = (String::new(), columns.saturating_sub(1));
    for char in text.chars() {
        let Some(rest) = left.checked_sub(char_width(char)) else { break };
        left = rest;
        taken.push(char);
    }
    if columns > 0 { taken + "…" } else { taken }
}

/// The end of a text that is too long: of paths and ids, that is what tells them apart.
pub(super) fn fit_end(text: &str, columns: usize) -> String {
    let turned: String = text.chars().rev().collect();
    fit(&turned, columns).chars().rev().collect()
}

/// Lines of so many columns at most, broken between words where that is possible.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_inclusive(' ') {
        if width(&line) + width(word.trim_end()) > columns && !line.trim().is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for char in word.chars() {
            if width(&line) + char_width(char) > columns && !line.is_empty() {
                // A space at the end of a line is not missed at the beginning of the next.
                lines.push(std::mem::take(&mut line));
                if char == ' ' {
                    continue;
                }
            }
            line.push(char);
        }
    }
    lines.push(line);
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A text behind a head: what does not fit stands under it, as far in.
pub(super) fn hang(head: &str, text: &str, columns: usize) -> Vec<String> {
    let indent = width(head);
    if indent == 0 || indent * 2 > columns {
        return wrap(&format!("{head}{text}"), columns);
    }
    let lines = wrap(text, columns - indent).into_iter().enumerate();
    let line = |(at, line): (usize, String)| if at == 0 { format!("{head}{line}") } else { " ".repeat(indent) + &line };
    lines.map(line).map(|line| line.trim_end().to_owned()).collect()
}

/// How long something took, in two or three digits: `850µs`, `1.2ms`, `12s`, `3m 04s`.
pub(super) fn span(time: Duration) -> String {
    let nanos = time.as_nanos();
    let in_unit = |unit: u128, name: &str| match nanos / unit {
        whole if whole < 10 => format!("{}.{}{name}", whole, nanos % unit * 10 / unit),
        whole => format!("{whole}{name}"),
    };
    match nanos {
        0 => "0".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => in_unit(1_000, "µs"),
        1_000_000..1_000_000_000 => in_unit(1_000_000, "ms"),
        1_000_000_000..60_000_000_000 => in_unit(1_000_000_000, "s"),
        _ => age(time),
    }
}

/// How old something is, in whole seconds or less exactly: `7s`, `3m 04s`, `2h 05m`, `3d 04h`.
pub(super) fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m {:02}s", seconds % 60),
        3_600..86_400 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{days}d {:02}h", hours % 24),
    }
}

/// A number of things in a second, in two or three digits.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate <= 0.0 => "0".to_owned(),
        rate if rate < 0.095 => format!("{rate:.2}"),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 9_999.5 => format!("{rate:.0}"),
        rate if rate < 999_950.0 => format!("{:.1}k", rate / 1e3),
        rate => format!("{:.1}M", rate / 1e6),
    }
}

/// The least of 1, 2, 5, 10, 20, 50 ... that is not less.
pub(super) fn ceiling(number: f64) -> f64 {
    let mut power = 1.0;
    // A bound for numbers that are none: as far as doubles of any use go.
    for _ in 0..40 {
        if let Some(found) = [1.0, 2.0, 5.0].iter().map(|step| step * power).find(|step| *step >= number) {
            return found;
        }
        power *= 10.0;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_their_columns_also_where_characters_are_wide() {
        assert_eq!(
            [fit("apples", 6), fit("apples", 5), fit("apples", 1), fit("apples", 0)],
            ["apples", "appl…", "…", ""]
        );
        assert_eq!((fit("水水水", 4), width("水水水")), ("水…".to_owned(), 6));
        assert_eq!([fit_end("/srv/shop", 5), fit_end("/srv/shop", 9)], ["…shop", "/srv/shop"]);
        for text in ["水a水b水c", "äöü", "", "a\u{301}b"] {
            (0..10).for_each(|columns| assert!(width(&fit(text, columns)) <= columns, "{text} {columns}"));
        }
    }

    #[test]
    fn lines_are_broken_between_words_and_lose_none() {
        assert_eq!(wrap("the store is locked", 10), ["the store", "is locked"]);
        assert_eq!(wrap("aaaaaaaaaaaa bb", 5), ["aaaaa", "aaaaa", "aa bb"]);
        assert_eq!(wrap("", 5), [""]);
        for columns in 1..30 {
            let (text, strip) =
                ("state      success, attempt 2 水水 of the 水 kind", |text: &str| text.replace(' ', ""));
            let lines = wrap(text, columns);
            assert_eq!(strip(&lines.concat()), strip(text), "{columns}");
            assert!(lines.iter().all(|line| width(line) <= columns.max(2)), "{columns}: {lines:?}");
        }
    }

    #[test]
    fn what_does_not_fit_stands_under_its_head() {
        assert_eq!(hang("why  ", "the store is locked", 14), ["why  the store", "     is locked"]);
        assert_eq!(hang("why  ", "", 14), ["why"]);
        assert_eq!(hang("a long head  ", "and its text", 14), ["a long head", "and its text"]);
    }

    #[test]
    fn times_are_short_and_have_their_unit() {
        let nanos = [0, 7, 1_500, 850_000, 1_250_000, 12_000_000, 1_900_000_000, 59_999_999_999, 184_000_000_000];
        let shown = nanos.map(|nanos| span(Duration::from_nanos(nanos)));
        assert_eq!(shown, ["0", "7ns", "1.5µs", "850µs", "1.2ms", "12ms", "1.9s", "59s", "3m 04s"]);
        let ages = [0, 59, 60, 3_600 * 2 + 300, 86_400 * 3 + 3_600 * 4].map(|secs| age(Duration::from_secs(secs)));
        assert_eq!(ages, ["0s", "59s", "1m 00s", "2h 05m", "3d 04h"]);
    }

    #[test]
    fn rates_are_read_at_a_glance() {
        let shown = [0.0, 0.05, 0.5, 9.94, 9.96, 123.4, 12_345.0, 2_500_000.0].map(rate);
        assert_eq!(shown, ["0", "0.05", "0.5", "9.9", "10", "123", "12.3k", "2.5M"]);
    }

    #[test]
    fn scales_end_at_round_numbers() {
        let found = [0.0, 0.9, 1.0, 1.1, 4.0, 51.0, 1e9].map(ceiling);
        assert_eq!(found, [1.0, 1.0, 1.0, 2.0, 5.0, 100.0, 1e9]);
        assert!(ceiling(f64::NAN) > 0.0 && ceiling(f64::INFINITY).is_finite());
    }
}
