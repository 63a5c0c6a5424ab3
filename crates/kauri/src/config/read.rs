//! `kauri.toml`, read key by key, so that every complaint names its line, its key and the fix.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kauri_runtime::run::script::Protocol;
use kauri_runtime::run::{FanOut, Keep, Limits, Outcome, Outcomes, Retry, Takeover};
use kauri_runtime::{CatchUp, When};
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, EXITS, JobConfig, LogFormat, LogLevel, ScheduleConfig, Setting, Source, parse_span, show_span};

/// The longest name of a class.
const NAME_BYTES_MAX: usize = 100;
/// How many of a class may run at once, each with threads of its own.
const CONCURRENCY_MAX: i64 = 1_000;
/// How many generations, and how many derived jobs in all and at a time, a tree may be allowed.
const DEPTH_MAX: i64 = 1_000;
const TREE_JOBS_MAX: i64 = 1_000_000;

/// What is wrong in a file, where, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The line, from 1.
    pub line: Option<usize>,
    /// The key; empty if the file is no TOML.
    pub key: String,
    /// What was expected, what was found, and the fix.
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for ConfigError {}

type Result<T> = std::result::Result<T, ConfigError>;

pub(super) fn config(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
    let reader = Reader { text, variable };
    let root = DeTable::parse(text).map_err(|error| {
        let line = error.span().map(|span| reader.line(span.start));
        let what = error.message().lines().collect::<Vec<_>>().join("; ");
        ConfigError { line, key: String::new(), what }
    })?;
    let mut config = Config::default();
    let mut root = Table::of(&reader, "", root.get_ref());
    if let Some(up) = root.table("up")? {
        read_up(up, &mut config)?;
    }
    if let Some(jobs) = root.table("job")? {
        for (name, value) in jobs.entries {
            let key = format!("job.{}", name.get_ref());
            let line = reader.line(name.span().start);
            check_name(&key, name.get_ref(), line)?;
            let DeValue::Table(table) = value.get_ref() else {
                return Err(reader.wrong(
                    value,
                    &key,
                    &format!("expected a table such as [{key}], found {}", kind(value.get_ref())),
                ));
            };
            config.jobs.insert(name.get_ref().to_string(), read_job(Table::of(&reader, &key, table), line)?);
        }
    }
    root.end()?;
    Ok(config)
}

fn check_name(key: &str, name: &str, line: usize) -> Result<()> {
    let is_fine = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_fine) {
        return Ok(());
    }
    let what = format!("expected a name of {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.` at most, found {name:?}");
    Err(ConfigError { line: Some(line), key: key.to_owned(), what })
}

fn read_up(mut table: Table<'_>, config: &mut Config) -> Result<()> {
    if let Some((span, source)) = table.span("drain")? {
        config.drain = Setting { value: Some(span), source };
    }
    if let Some((span, source)) = table.span("sweep")? {
        config.sweep = Setting { value: span, source };
    }
    if let Some((path, source)) = table.string("outbox")? {
        config.outbox = Setting { value: path.into(), source };
    }
    if let Some((value, source)) = table.word("log", &LogLevel::ALL)? {
        config.log = Setting { value, source };
    }
    if let Some((value, source)) = table.word("log_format", &LogFormat::ALL)? {
        config.log_format = Setting { value, source };
    }
    table.end()
}

fn read_job(mut table: Table<'_>, line: usize) -> Result<JobConfig> {
    let (command, path) = (table.strings("command")?, table.path.clone());
    let (command, command_shown) = command.unwrap_or_else(|| (Setting::default(Vec::new()), Vec::new()));
    let job = JobConfig {
        line,
        command,
        command_shown,
        directory: setting(table.string("directory")?.map(|(path, source)| (Some(PathBuf::from(path)), source)), None),
        env: read_env(&mut table)?,
        protocol: setting(
            table.word("protocol", &[("lines", Protocol::Lines), ("frames", Protocol::Frames)])?,
            Protocol::Lines,
        ),
        timeout: setting(table.span("timeout")?, Duration::from_hours(1)),
        concurrency: read_concurrency(&mut table)?,
        takeover: setting(
            table.word("takeover", &[("crash", Takeover::Crash), ("resume", Takeover::Resume)])?,
            Takeover::Crash,
        ),
        retry: read_retry(&mut table)?,
        schedule: read_schedule(&mut table)?,
        keep: read_keep(&mut table)?,
        fan_out: read_fan_out(&mut table)?,
    };
    // A key that is misspelt says more than one that is missing.
    table.end()?;
    if job.command.value.is_empty() {
        let what = "expected a command such as command = [\"./script.sh\"], found none".to_owned();
        return Err(ConfigError { line: Some(line), key: format!("{path}.command"), what });
    }
    Ok(job)
}

fn setting<T>(found: Option<(T, Source)>, default: T) -> Setting<T> {
    found.map_or_else(|| Setting::default(default), |(value, source)| Setting { value, source })
}

fn read_env(table: &mut Table<'_>) -> Result<Setting<BTreeMap<String, String>>> {
    let source = table.source("env");
    let Some(mut inner) = table.table("env")? else { return Ok(Setting::default(BTreeMap::new())) };
    let mut value = BTreeMap::new();
    for (name, _) in inner.entries {
        let name = name.get_ref().to_string();
        if let Some((text, _)) = inner.string(&name)? {
            value.insert(name, text);
        }
    }
    Ok(Setting { value, source })
}

fn read_concurrency(table: &mut Table<'_>) -> Result<Setting<u32>> {
    let found = table.number("concurrency", 1, CONCURRENCY_MAX)?;
    Ok(setting(found.map(|(number, source)| (u32::try_from(number).unwrap_or(1), source)), 1))
}

fn read_retry(table: &mut Table<'_>) -> Result<Setting<Retry>> {
    let source = table.source("retry");
    let Some(mut inner) = table.table("retry")? else { return Ok(Setting::default(Retry::default())) };
    let mut retry = Retry::default();
    if let Some((number, _)) = inner.number("attempts", 1, 1_000_000)? {
        retry.attempts_max = u32::try_from(number).unwrap_or(u32::MAX);
    }
    (retry.pause, retry.pause_max) = read_pauses(&mut inner, &retry)?;
    if let Some(words) = inner.strings_of("on")? {
        retry.on = Outcomes::NONE;
        for (word, line, _) in words {
            let failures = || Outcome::ALL.into_iter().filter(|outcome| !outcome.is_success());
            let Some(outcome) = failures().find(|outcome| outcome.as_str() == word) else {
                let known: Vec<&str> =
                    Outcome::ALL.iter().filter(|outcome| !outcome.is_success()).map(Outcome::as_str).collect();
                let what = format!("expected one of {}, found {word:?}", known.join(", "));
                return Err(ConfigError { line: Some(line), key: format!("{}.on", inner.path), what });
            };
            retry.on = retry.on.with(outcome);
        }
    }
    inner.end()?;
    Ok(Setting { value: retry, source })
}

/// The first pause and the longest; the one that is not said gives way.
fn read_pauses(table: &mut Table<'_>, usual: &Retry) -> Result<(Duration, Duration)> {
    let line = table.line_of("pause_max");
    let found = [table.span("pause")?, table.span("pause_max")?].map(|found| found.map(|(span, _)| span));
    match found {
        [Some(pause), Some(most)] if most < pause => {
            let (pause, most) = (show_span(pause), show_span(most));
            let what = format!("expected the longest pause to be {pause} or more, as `pause` is, found {most}");
            Err(ConfigError { line, key: table.key("pause_max"), what })
        }
        [Some(pause), Some(most)] => Ok((pause, most)),
        [Some(pause), None] => Ok((pause, usual.pause_max.max(pause))),
        [None, Some(most)] => Ok((usual.pause.min(most), most)),
        [None, None] => Ok((usual.pause, usual.pause_max)),
    }
}

fn read_schedule(table: &mut Table<'_>) -> Result<Setting<Option<ScheduleConfig>>> {
    let (source, line) = (table.source("schedule"), table.line_of("schedule"));
    let Some(mut inner) = table.table("schedule")? else { return Ok(Setting::default(None)) };
    let when = match (inner.string("cron")?, inner.span("every")?) {
        (Some((words, _)), None) => When::Cron(words),
        (None, Some((span, _))) => When::Every(span),
        (found, _) => {
            let found = if found.is_some() { "both" } else { "neither" };
            let what = format!("expected either cron = \"0 3 * * *\" or every = \"5m\", found {found}");
            return Err(ConfigError { line, key: inner.path.clone(), what });
        }
    };
    when.check().map_err(|error| ConfigError { line, key: inner.path.clone(), what: error.to_string() })?;
    let words = [("latest", CatchUp::Latest), ("every", CatchUp::Every)];
    let catch_up = inner.word("catch_up", &words)?.map_or(CatchUp::Latest, |(word, _)| word);
    let (input, input_shown) = inner.json("input")?.unwrap_or_default();
    inner.end()?;
    Ok(Setting { value: Some(ScheduleConfig { when, catch_up, input, input_shown }), source })
}

fn read_keep(table: &mut Table<'_>) -> Result<Setting<Keep>> {
    let source = table.source("keep");
    let Some(mut inner) = table.table("keep")? else { return Ok(Setting::default(Keep::default())) };
    let Limits { time, count: runs, bytes } = read_limits(&mut inner, "runs")?;
    let mut limits = |key| {
        let Some(mut inner) = inner.table(key)? else { return Ok(None) };
        let limits = read_limits(&mut inner, "count")?;
        inner.end().map(|()| Some(limits))
    };
    let (events, artifacts) = (limits("events")?.unwrap_or_default(), limits("artifacts")?.unwrap_or_default());
    let dead_letters = limits("dead_letters")?;
    inner.end()?;
    Ok(Setting { value: Keep { time, runs, bytes, events, artifacts, dead_letters }, source })
}

/// Limits in a table, in which `count` is what the number of things is called.
fn read_limits(table: &mut Table<'_>, count: &str) -> Result<Limits> {
    let time = table.span("time")?.map(|(span, _)| span);
    let mut number = |key| Ok(table.number(key, 0, i64::MAX)?.map(|(number, _)| u64::try_from(number).unwrap_or(0)));
    Ok(Limits { time, count: number(count)?, bytes: number("bytes")? })
}

fn read_fan_out(table: &mut Table<'_>) -> Result<Setting<FanOut>> {
    let (source, line) = (table.source("fan_out"), table.line_of("fan_out"));
    let Some(mut inner) = table.table("fan_out")? else { return Ok(Setting::default(FanOut::default())) };
    let mut number = |key, least, most| {
        let found = inner.number(key, least, most)?;
        Ok(found.map(|(number, _)| u32::try_from(number).unwrap_or(u32::MAX)))
    };
    let depth = number("depth", 0, DEPTH_MAX)?;
    let (runs, parallel) = (number("runs", 1, TREE_JOBS_MAX)?, number("parallel", 1, TREE_JOBS_MAX)?);
    let exit = inner.word("exit", &EXITS)?.map(|(exit, _)| exit);
    let key = inner.key("depth");
    inner.end()?;
    // Without a depth nothing is derived: whoever says the rest means something else.
    let Some(depth_max) = depth else {
        let what = "expected depth = 1 or more, or 0 for no derived work at all, found none".to_owned();
        return Err(ConfigError { line, key, what });
    };
    let usual = FanOut::default();
    let value = FanOut {
        depth_max,
        runs_max: runs.unwrap_or(usual.runs_max),
        parallel: parallel.unwrap_or(usual.parallel),
        exit: exit.unwrap_or(usual.exit),
    };
    Ok(Setting { value, source })
}

struct Reader<'a> {
    text: &'a str,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        1 + self.text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
    }

    fn wrong<T>(&self, at: &Spanned<T>, key: &str, what: &str) -> ConfigError {
        ConfigError { line: Some(self.line(at.span().start)), key: key.to_owned(), what: what.to_owned() }
    }

    /// A text with what the environment has for `${NAME}`.
    fn expand(&self, at: &Spanned<DeValue<'_>>, key: &str, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at_name) = rest.find("${") {
            let (before, inner) = (&rest[..at_name], &rest[at_name + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = inner;
                continue;
            }
            out.push_str(before);
            let Some((name, after)) = inner.split_once('}') else {
                return Err(self.wrong(at, key, "expected `}` after `${`, found the end of the text"));
            };
            let Some(value) = (self.variable)(name) else {
                let what = format!(
                    "expected the environment to have {name}, found nothing: set it, or write $${{{name}}} for the text itself"
                );
                return Err(self.wrong(at, key, &what));
            };
            out.push_str(&value);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a moment",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A command, and as it is written.
type Written = (Setting<Vec<String>>, Vec<String>);

/// What is made of a text.
type ReadText<'a> = dyn Fn(&Spanned<DeValue<'_>>, &str) -> Result<String> + 'a;

/// A table of the file, and which of its keys somebody has asked for.
struct Table<'a> {
    reader: &'a Reader<'a>,
    path: String,
    entries: &'a DeTable<'a>,
    known: Vec<String>,
}

impl<'a> Table<'a> {
    fn of(reader: &'a Reader<'a>, path: &str, entries: &'a DeTable<'a>) -> Self {
        Self { reader, path: path.to_owned(), entries, known: Vec::new() }
    }

    fn key(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn find(&mut self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.known.push(name.to_owned());
        self.entries.iter().find(|(key, _)| key.get_ref() == name).map(|(_, value)| value)
    }

    fn line_of(&self, name: &str) -> Option<usize> {
        let found = self.entries.iter().find(|(key, _)| key.get_ref() == name);
        found.map(|(key, _)| self.reader.line(key.span().start))
    }

    fn source(&self, name: &str) -> Source {
        self.line_of(name).map_or(Source::Default, Source::File)
    }

    fn wrong(&self, name: &str, at: &Spanned<DeValue<'_>>, expected: &str) -> ConfigError {
        self.reader.wrong(at, &self.key(name), &format!("expected {expected}, found {}", kind(at.get_ref())))
    }

    fn table(&mut self, name: &str) -> Result<Option<Table<'a>>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        match value.get_ref() {
            DeValue::Table(table) => Ok(Some(Table::of(self.reader, &self.key(name), table))),
            _ => Err(self.wrong(name, value, "a table")),
        }
    }

    fn string(&mut self, name: &str) -> Result<Option<(String, Source)>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        match value.get_ref() {
            DeValue::String(text) => {
                let text = self.reader.expand(value, &self.key(name), text)?;
                Ok(Some((text, self.source(name))))
            }
            _ => Err(self.wrong(name, value, "a text in quotes")),
        }
    }

    /// A list of texts, each with its line, and as it is written.
    fn strings_of(&mut self, name: &str) -> Result<Option<Vec<(String, usize, String)>>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let expected = "a list of texts such as [\"./script.sh\", \"argument\"]";
        let DeValue::Array(list) = value.get_ref() else { return Err(self.wrong(name, value, expected)) };
        let mut texts = Vec::new();
        for entry in list {
            let DeValue::String(text) = entry.get_ref() else { return Err(self.wrong(name, entry, expected)) };
            let line = self.reader.line(entry.span().start);
            texts.push((self.reader.expand(entry, &self.key(name), text)?, line, text.to_string()));
        }
        Ok(Some(texts))
    }

    /// A command, and as it is written.
    fn strings(&mut self, name: &str) -> Result<Option<Written>> {
        let (source, line) = (self.source(name), self.line_of(name));
        let Some(texts) = self.strings_of(name)? else { return Ok(None) };
        let (value, shown): (Vec<String>, Vec<String>) =
            texts.into_iter().map(|(text, _, shown)| (text, shown)).unzip();
        if value.first().is_none_or(String::is_empty) {
            let what = "expected a program and its arguments, found an empty list or an empty name".to_owned();
            return Err(ConfigError { line, key: self.key(name), what });
        }
        Ok(Some((Setting { value, source }, shown)))
    }

    fn span(&mut self, name: &str) -> Result<Option<(Duration, Source)>> {
        let line = self.line_of(name);
        let Some((text, source)) = self.string(name)? else { return Ok(None) };
        let wrong = |what: String| ConfigError { line, key: self.key(name), what };
        match parse_span(&text) {
            Ok(span) if span.is_zero() => Err(wrong("expected more than no time, found none".to_owned())),
            Ok(span) => Ok(Some((span, source))),
            Err(what) => Err(wrong(what)),
        }
    }

    fn number(&mut self, name: &str, least: i64, most: i64) -> Result<Option<(i64, Source)>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let DeValue::Integer(number) = value.get_ref() else { return Err(self.wrong(name, value, "a whole number")) };
        let found = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix());
        match found {
            Ok(number) if (least..=most).contains(&number) => Ok(Some((number, self.source(name)))),
            _ => {
                let what = format!("expected a number from {least} to {most}, found {}", number.as_str());
                Err(self.reader.wrong(value, &self.key(name), &what))
            }
        }
    }

    fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Result<Option<(T, Source)>> {
        let line = self.line_of(name);
        let Some((text, source)) = self.string(name)? else { return Ok(None) };
        if let Some((_, word)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some((*word, source)));
        }
        let known: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let what = format!("expected {}, found {text:?}", known.join(" or "));
        Err(ConfigError { line, key: self.key(name), what })
    }

    /// Anything, as JSON, and as it is written.
    fn json(&mut self, name: &str) -> Result<Option<(Value, Value)>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let expand = |at: &Spanned<DeValue<'_>>, text: &str| self.reader.expand(at, &self.key(name), text);
        let plain = |_: &Spanned<DeValue<'_>>, text: &str| Ok(text.to_owned());
        Ok(Some((self.to_json(name, value, &expand)?, self.to_json(name, value, &plain)?)))
    }

    fn to_json(&self, name: &str, value: &Spanned<DeValue<'_>>, read: &ReadText<'_>) -> Result<Value> {
        Ok(match value.get_ref() {
            DeValue::String(text) => read(value, text)?.into(),
            DeValue::Integer(number) => {
                let found = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix());
                found.map_err(|_| self.wrong(name, value, "a number of 64 bits"))?.into()
            }
            DeValue::Float(number) => {
                let found: f64 = number.as_str().replace('_', "").parse().unwrap_or(f64::NAN);
                serde_json::Number::from_f64(found)
                    .ok_or_else(|| self.wrong(name, value, "a number that JSON has"))?
                    .into()
            }
            DeValue::Boolean(flag) => (*flag).into(),
            DeValue::Datetime(moment) => moment.to_string().into(),
            DeValue::Array(list) => {
                list.iter().map(|entry| self.to_json(name, entry, read)).collect::<Result<Vec<_>>>()?.into()
            }
            DeValue::Table(table) => {
                let entry = |(key, entry): (&Spanned<toml::de::DeString<'_>>, &Spanned<DeValue<'_>>)| {
                    Ok((key.get_ref().to_string(), self.to_json(name, entry, read)?))
                };
                Value::Object(table.iter().map(entry).collect::<Result<_>>()?)
            }
        })
    }

    /// Every key must have been asked for.
    fn end(self) -> Result<()> {
        for (key, _) in self.entries {
            let name = key.get_ref();
            if !self.known.iter().any(|known| known == name) {
                let line = Some(self.reader.line(key.span().start));
                let hint = match nearest(name, &self.known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("known here: {}", self.known.join(", ")),
                };
                let what = format!("expected a key that is known, found `{name}`; {hint}");
                return Err(ConfigError { line, key: self.key(name), what });
            }
        }
        Ok(())
    }
}

/// The word that differs least, if it is not too different.
pub(super) fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    let near = known.iter().map(|known| (distance(word, known), known.as_str())).min()?;
    (near.0 <= 1 + word.chars().count() / 3).then_some(near.1)
}

/// How many letters have to be put in, taken out or changed.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, char) in one.chars().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, found) in other.iter().enumerate() {
            let kept = before + usize::from(char != *found);
            before = row[place + 1];
            row[place + 1] = kept.min(before + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str) -> Option<String> {
        (name == "NAME").then(|| "Ann".to_owned())
    }

    fn wrong(text: &str) -> String {
        config(text, &variable).unwrap_err().to_string()
    }

    #[test]
    fn events_artifacts_and_dead_letters_have_limits_of_their_own() {
        let keep = |keep: &str| {
            let text = format!("[job.mail]\ncommand = [\"x\"]\n{keep}\n");
            config(&text, &|_: &str| None).map(|config| config.jobs["mail"].keep.value.clone())
        };
        let found =
            keep("keep = { time = \"30d\", events = { time = \"7d\" }, artifacts = { count = 10, bytes = 5 } }");
        let events = Limits { time: Some(Duration::from_hours(168)), ..Limits::default() };
        let artifacts = Limits { count: Some(10), bytes: Some(5), ..Limits::default() };
        let time = Some(Duration::from_hours(720));
        assert_eq!(found.unwrap(), Keep { time, events, artifacts, ..Keep::default() });
        // Dead letters for ever, whatever is kept of runs.
        let found = keep("[job.mail.keep]\nruns = 3\ndead_letters = {}");
        let dead_letters = Some(Limits::default());
        assert_eq!(found.unwrap(), Keep { runs: Some(3), dead_letters, ..Keep::default() });
        let wrong = keep("keep = { events = { runs = 3 } }").unwrap_err().to_string();
        assert!(wrong.contains("job.mail.keep.events") && wrong.contains("runs"), "{wrong}");
    }

    #[test]
    fn everything_can_be_said() {
        let text = r#"
[up]
drain = "30s"
sweep = "5m"
outbox = "/var/${NAME}.jsonl"
log = "debug"
log_format = "json"

[job.mail]
command = ["./mail.sh", "${NAME}", "$$", "$x", "a$${x}b${NAME}c"]
directory = "work"
env = { A = "1", B = "${NAME}" }
protocol = "frames"
timeout = "250ms"
concurrency = 4
takeover = "resume"
retry = { attempts = 5, pause = "10m", on = ["timed_out"] }
schedule = { every = "1h", catch_up = "every", input = { n = [1, 2.5, true, "x"] } }
keep = { time = "30d", runs = 1_000, bytes = 1_000_000 }
fan_out = { depth = 2, parallel = 4, exit = "all" }
"#;
        let config = config(text, &variable).unwrap();
        assert_eq!(config.outbox, Setting { value: "/var/Ann.jsonl".into(), source: Source::File(5) });
        let mail = &config.jobs["mail"];
        assert_eq!(mail.command.value, ["./mail.sh", "Ann", "$$", "$x", "a${x}bAnnc"]);
        assert_eq!((mail.concurrency.value, mail.protocol.value), (4, Protocol::Frames));
        assert_eq!((mail.retry.value.attempts_max, mail.retry.value.pause_max), (5, Duration::from_mins(10)));
        assert!(mail.retry.value.on.contains(Outcome::TimedOut) && !mail.retry.value.on.contains(Outcome::ScriptError));
        let schedule = mail.schedule.value.as_ref().unwrap();
        assert_eq!((&schedule.when, schedule.catch_up), (&When::Every(Duration::from_hours(1)), CatchUp::Every));
        assert_eq!(schedule.input, serde_json::json!({"n": [1, 2.5, true, "x"]}));
        assert_eq!(
            mail.keep.value,
            Keep {
                time: Some(Duration::from_hours(720)),
                runs: Some(1_000),
                bytes: Some(1_000_000),
                ..Keep::default()
            }
        );
        assert_eq!(
            mail.fan_out.value,
            FanOut { depth_max: 2, runs_max: 1_000, parallel: 4, exit: kauri_runtime::run::Exit::All }
        );
        let shown = config.settings();
        let fan_out = serde_json::json!({ "depth": 2, "runs": 1_000, "parallel": 4, "exit": "all" });
        assert!(shown.iter().any(|(key, value, _)| key == "job.mail.fan_out" && *value == fan_out), "{shown:?}");
        assert!(shown.iter().any(|(key, value, _)| key == "job.mail.command" && value[1] == "${NAME}"));
        assert!(shown.iter().any(|(key, value, _)| key == "job.mail.env" && value["B"] == "(set)"));
        assert!(shown.iter().all(|(_, _, source)| matches!(source, Source::File(_))));
    }

    #[test]
    fn every_complaint_names_line_key_and_fix() {
        let cases = [
            ("[job.a]", "line 1: job.a.command: expected a command such as"),
            ("[job.a]\ncommand = \"./a.sh\"", "line 2: job.a.command: expected a list of texts such as"),
            ("[job.a]\ncommand = []", "line 2: job.a.command: expected a program"),
            (
                "[job.a]\ncommand = [\"a\"]\ntimeout = 5",
                "line 3: job.a.timeout: expected a text in quotes, found a number",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\ntimeout = \"soon\"",
                "line 3: job.a.timeout: expected a span of time such as",
            ),
            ("[job.a]\ncommand = [\"a\"]\ntimeout = \"0s\"", "line 3: job.a.timeout: expected more than no time"),
            ("[job.a]\ncommand = [\"a\"]\nconcurency = 2", "found `concurency`; did you mean `concurrency`?"),
            ("[job.a]\ncommand = [\"a\"]\nconcurrency = 0", "expected a number from 1 to 1000, found 0"),
            ("[job.a]\ncommand = [\"${NOPE}\"]", "line 2: job.a.command: expected the environment to have NOPE"),
            ("[job.a]\ncommand = [\"${NOPE\"]", "expected `}` after `${`"),
            ("[job.a]\ncommand = [\"a\"]\nprotocol = \"json\"", "expected \"lines\" or \"frames\", found \"json\""),
            ("[job.a]\ncommand = [\"a\"]\nschedule = {}", "line 3: job.a.schedule: expected either cron"),
            ("[job.a]\ncommand = [\"a\"]\nschedule = { cron = \"x\" }", "expected a cron expression, found \"x\""),
            (
                "[job.a]\ncommand = [\"a\"]\nretry = { on = [\"success\"] }",
                "job.a.retry.on: expected one of script_error",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\nretry = { pause = \"10s\", pause_max = \"1s\" }",
                "line 3: job.a.retry.pause_max: expected the longest pause to be 10s or more, as `pause` is, found 1s",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\nfan_out = { runs = 9 }",
                "line 3: job.a.fan_out.depth: expected depth = 1 or more",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\nfan_out = { depth = -1 }",
                "job.a.fan_out.depth: expected a number from 0 to 1000, found -1",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\nfan_out = { depth = 1, runs = 0 }",
                "job.a.fan_out.runs: expected a number from 1 to 1000000, found 0",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\nfan_out = { depth = 1, parallel = 0 }",
                "job.a.fan_out.parallel: expected a number from 1 to 1000000, found 0",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\nfan_out = { depth = 1, exit = \"some\" }",
                "job.a.fan_out.exit: expected \"root\" or \"all\", found \"some\"",
            ),
            (
                "[job.a]\ncommand = [\"a\"]\nfan_out = { depht = 1 }",
                "job.a.fan_out.depht: expected a key that is known, found `depht`; did you mean `depth`?",
            ),
            ("[job.a]\ncommand = [\"a\"]\nfan_out = 3", "job.a.fan_out: expected a table, found a number"),
            ("[job.\"a b\"]\ncommand = [\"a\"]", "expected a name of"),
            (
                "[jobs.a]\ncommand = [\"a\"]",
                "line 1: jobs: expected a key that is known, found `jobs`; did you mean `job`?",
            ),
            ("[job]\na = 5", "line 2: job.a: expected a table such as [job.a], found a number"),
            ("job = 5", "expected a table, found a number"),
            ("[job.a\n", "line 1: "),
        ];
        for (text, expected) in cases {
            let found = wrong(text);
            assert!(found.contains(expected), "{text:?}: {found}");
            assert_eq!(found.lines().count(), 1, "{found}");
        }
    }

    #[test]
    fn the_pause_that_is_not_said_gives_way_to_the_one_that_is() {
        let pauses = |retry: &str| {
            let text = format!("[job.mail]\ncommand = [\"x\"]\nretry = {{ {retry} }}\n");
            let retry = config(&text, &variable).unwrap().jobs["mail"].retry.value.clone();
            (retry.pause.as_millis(), retry.pause_max.as_millis())
        };
        assert_eq!(pauses(""), (1_000, 300_000));
        assert_eq!(pauses("pause = \"10m\""), (600_000, 600_000));
        assert_eq!(pauses("pause_max = \"500ms\""), (500, 500));
        assert_eq!(pauses("pause = \"10s\", pause_max = \"10s\""), (10_000, 10_000));
    }

    #[test]
    fn words_are_near_by_their_letters() {
        assert_eq!((distance("", "abc"), distance("kitten", "sitting"), distance("same", "same")), (3, 3, 0));
        assert_eq!(nearest("zzzzzz", &["drain".to_owned()]), None);
    }
}
