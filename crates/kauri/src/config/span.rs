//! Spans of time as people write them: `250ms`, `90s`, `15m`, `2h`, `7d`.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a span of time.
///
/// # Errors
/// What was expected, and what was found.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(kauri::parse_span("15m"), Ok(Duration::from_secs(900)));
/// assert!(kauri::parse_span("soon").is_err());
/// ```
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a span of time such as 250ms, 90s, 15m, 2h or 7d, found {text:?}");
    let at = text.find(|char: char| !char.is_ascii_digit()).ok_or_else(expected)?;
    let (number, unit) = text.split_at(at);
    let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(expected)?;
    let number: u64 = number.parse().map_err(|_| expected())?;
    number
        .checked_mul(*millis)
        .filter(|millis| *millis < u64::from(u32::MAX) * 86_400_000)
        .map(Duration::from_millis)
        .ok_or_else(expected)
}

/// Shows a span of time, in the largest unit that is exact.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(kauri::show_span(Duration::from_secs(7_200)), "2h");
/// ```
#[must_use]
pub fn show_span(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, unit): &&(&str, u64)| millis.is_multiple_of(*unit);
    match UNITS.iter().rev().find(fits) {
        Some((name, unit)) if millis > 0 => format!("{}{name}", millis / unit),
        _ => "0s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_survive_the_trip_and_other_words_are_refused() {
        for text in ["1ms", "999ms", "90s", "15m", "2h", "7d", "0s"] {
            assert_eq!(parse_span(text).map(show_span).as_deref(), Ok(text));
        }
        assert_eq!(parse_span("3600s").map(show_span).as_deref(), Ok("1h"));
        for bad in ["", "5", "h", "2w", "-1s", "1.5h", "99999999999999999999s", "18446744073709551615d", "2 h"] {
            assert!(parse_span(bad).is_err(), "{bad}");
        }
    }
}
