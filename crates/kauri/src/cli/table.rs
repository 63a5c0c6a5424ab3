//! Rows for people: columns as wide as what is in them, under their names.

use std::io::Write;

use serde_json::Value;

use super::Trouble;

/// How a command that lists things prints them.
pub(super) struct Table {
    names: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) const fn new(names: &'static [&'static str]) -> Self {
        Self { names, rows: Vec::new() }
    }

    pub(super) fn add(&mut self, row: impl IntoIterator<Item = String>) {
        let row: Vec<String> = row.into_iter().map(|text| plain(&text)).collect();
        assert_eq!(row.len(), self.names.len(), "a cell for each column");
        self.rows.push(row);
    }

    /// Prints the rows, or that there are none.
    pub(super) fn print(&self, nothing: &str, out: &mut impl Write) -> Result<(), Trouble> {
        if self.rows.is_empty() {
            return Ok(writeln!(out, "{nothing}")?);
        }
        let names: Vec<String> = self.names.iter().map(|name| (*name).to_owned()).collect();
        let width = |at: usize| self.rows.iter().chain([&names]).map(|row| row[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.names.len()).map(width).collect();
        for row in [&names].into_iter().chain(&self.rows) {
            let cells = row.iter().zip(&widths).map(|(text, width)| format!("{text:<width$}"));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// Text without anything that would move the cursor of a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().flat_map(|char| if char.is_control() { char.escape_default().collect() } else { vec![char] }).collect()
}

/// Bytes as text where they are UTF-8, otherwise in hexadecimal.
pub(super) fn text_of(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| format!("0x{}", hex::encode(bytes)), str::to_owned)
}

/// The beginning of a text, so that a row stays a row.
pub(super) fn short(text: &str, most: usize) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(most).collect();
    if chars.next().is_some() { head + "..." } else { head }
}

/// In which time zone people see moments.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct Zone {
    /// Moments in UTC, not in the time zone of this machine; in JSON they always are
    #[arg(long)]
    utc: bool,
}

impl Zone {
    /// A moment as people read it, with how far their clocks are from UTC.
    pub(super) fn moment(self, millis: i64) -> String {
        let local = || {
            let zone = if self.utc { jiff::tz::TimeZone::UTC } else { jiff::tz::TimeZone::try_system().ok()? };
            Some(jiff::Timestamp::from_millisecond(millis).ok()?.to_zoned(zone))
        };
        match local() {
            Some(zoned) if zoned.offset().seconds() != 0 => zoned.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string(),
            _ => moment(millis),
        }
    }

    /// A moment that is told as scripts read it; what is none stays as it is.
    pub(super) fn text(self, utc: &str) -> String {
        utc.parse::<kauri::ledger::Timestamp>().map_or_else(|_| utc.to_owned(), |moment| self.moment(moment.0))
    }

    /// A sentence of ours with such moments in it.
    pub(super) fn within(self, words: &str) -> String {
        let parts = words.split_inclusive([' ', ',', ';', '(', ')', ':']).collect::<Vec<_>>();
        let (mut told, mut at) = (String::new(), 0);
        while at < parts.len() {
            // A moment has two colons in it.
            let three = parts[at..parts.len().min(at + 3)].concat();
            let end = three.trim_end_matches([' ', ',', ';', '(', ')', ':']);
            let is_moment = three.matches(':').count() >= 2 && end.parse::<kauri::ledger::Timestamp>().is_ok();
            match is_moment {
                true => {
                    told.push_str(&self.text(end));
                    told.push_str(&three[end.len()..]);
                    at += 3;
                }
                false => {
                    told.push_str(parts[at]);
                    at += 1;
                }
            }
        }
        told
    }
}

/// A moment in UTC, as scripts read it.
pub(super) fn moment(millis: i64) -> String {
    kauri::ledger::Timestamp(millis).to_string()
}

/// Says how to go on after a list that ended at its limit.
pub(super) fn more(
    shown: usize,
    limit: usize,
    last: Option<String>,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    match last {
        Some(last) if shown >= limit && !json => Ok(writeln!(out, "there may be more: --after {last}")?),
        _ => Ok(()),
    }
}

/// A moment with a number behind it, as `2026-02-21T09:30:00.123Z/5`.
pub(super) fn moment_and_seq(text: &str) -> Result<(i64, u64), String> {
    let expected = || format!("expected a moment and a number such as 2026-02-21T09:30:00.123Z/5, found {text:?}");
    let (moment, seq) = text.split_once('/').ok_or_else(expected)?;
    let moment: jiff::Timestamp = moment.parse().map_err(|_| expected())?;
    Ok((moment.as_millisecond(), seq.parse().map_err(|_| expected())?))
}

/// Prints things one a line, as JSON or in a table.
pub(super) fn list(
    rows: impl IntoIterator<Item = (Value, Vec<String>)>,
    json: bool,
    names: &'static [&'static str],
    nothing: &str,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let mut table = Table::new(names);
    for (value, row) in rows {
        match json {
            true => writeln!(out, "{value}")?,
            false => table.add(row),
        }
    }
    if json { Ok(()) } else { table.print(nothing, out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them_and_move_no_cursor() {
        let mut table = Table::new(&["ID", "TASK"]);
        table.add(["order-17".to_owned(), "send\x1b[2J".to_owned()]);
        table.add(["a".to_owned(), "b".to_owned()]);
        let mut out = Vec::new();
        assert!(table.print("none", &mut out).is_ok());
        let lines = "ID        TASK\norder-17  send\\u{1b}[2J\na         b\n";
        assert_eq!(String::from_utf8(out).unwrap(), lines);
    }

    #[test]
    fn moments_in_utc_are_those_of_scripts() {
        let utc = Zone { utc: true };
        for millis in [0, 1_771_666_200_123, -1, i64::MIN, i64::MAX] {
            assert_eq!(utc.moment(millis), moment(millis));
        }
    }

    #[test]
    fn moments_within_words_are_told_in_the_zone() {
        let words = "process 7 took it at 2026-02-21T09:30:00.123Z, and it is 2026-02-21T09:30:01.000Z: (see a:b:c)";
        assert_eq!(Zone { utc: true }.within(words), words);
        let shown = Zone { utc: false }.moment(1_771_666_200_123);
        assert!(Zone { utc: false }.within(words).contains(&format!("took it at {shown}, and")));
        for words in ["", ":", "a: b", "::", "2026-02-21T09:30:00.123Z"] {
            assert_eq!(Zone { utc: true }.within(words), words);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!((short("äöü", 3), short("äöüß", 3)), ("äöü".to_owned(), "äöü...".to_owned()));
        assert_eq!((text_of(b"abc"), text_of(b"\xff\x00")), ("abc".to_owned(), "0xff00".to_owned()));
    }
}
