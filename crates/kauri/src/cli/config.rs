//! `kauri config`: what is in effect, and who said so.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use kauri::{Config, Layout, LogFormat, LogLevel, Source, parse_span, parse_word};
use serde_json::{Value, json};

use super::Trouble;
use super::home::HomeArgs;
use super::table::list;

/// What is said for this start alone. It counts more than the environment and the file.
#[derive(clap::Args, Clone, Default)]
pub(super) struct Flags {
    /// How long work that is under way is waited for when the instance stops, as 30s; otherwise `$KAURI_DRAIN`, up.drain, for ever
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    drain: Option<Duration>,
    /// How often runs that are not kept any more are removed, as 1m; otherwise `$KAURI_SWEEP`, up.sweep, 1m
    #[arg(long, value_name = "SPAN", value_parser = some_time)]
    sweep: Option<Duration>,
    /// Where messages of the outbox go; otherwise `$KAURI_OUTBOX`, up.outbox, outbox.jsonl in the home
    #[arg(long, value_name = "FILE")]
    outbox: Option<PathBuf>,
    /// How much is said of the work on standard error: off, error, warn, info, debug; otherwise `$KAURI_LOG`, up.log, warn
    #[arg(long, value_name = "LEVEL", value_parser = |text: &str| parse_word(&LogLevel::ALL, text))]
    log: Option<LogLevel>,
    /// In which form: text, json; otherwise `$KAURI_LOG_FORMAT`, up.log_format, text
    #[arg(long, value_name = "FORMAT", value_parser = |text: &str| parse_word(&LogFormat::ALL, text))]
    log_format: Option<LogFormat>,
}

fn some_time(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        span if span.is_zero() => Err("expected more than no time, found none".to_owned()),
        span => Ok(span),
    }
}

/// Which configuration.
#[derive(clap::Args, Clone, Default)]
pub(super) struct ConfigArgs {
    /// The configuration; otherwise `$KAURI_CONFIG`, otherwise kauri.toml in the home, if it is there
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri config show
  kauri config show --json | jq 'select(.key == \"up.drain\")'
  kauri config show --drain 30s

What counts more comes first: a flag, the environment (KAURI_DRAIN, KAURI_OUTBOX, KAURI_SWEEP, KAURI_LOG,
KAURI_LOG_FORMAT), the file, the default.
`kauri up --help` has an example of a file.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    home: HomeArgs,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print every setting, its value, and where that comes from; with the flags of `kauri up`, as they would count there
    Show {
        #[command(flatten)]
        which: ConfigArgs,
        #[command(flatten)]
        flags: Flags,
    },
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let Command::Show { which, flags } = &args.command;
    let (config, path) = load(&args.home.layout(), which, flags)?;
    let rows = config.settings().into_iter().map(|(key, value, source)| {
        let shown = match &value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let file = matches!(source, Source::File(_)).then(|| path.display().to_string());
        let object = json!({ "key": key, "value": value, "source": source.to_string(), "file": file });
        (object, vec![key, shown, source.to_string()])
    });
    list(rows, args.json, &["KEY", "VALUE", "FROM"], "", out)?;
    if !args.json {
        let there = if path.exists() { "" } else { ", which is not there" };
        writeln!(out, "\nfile: {}{there}", path.display())?;
    }
    Ok(())
}

/// The configuration in effect, and the file it comes from, whether that is there or not.
pub(super) fn load(layout: &Layout, which: &ConfigArgs, flags: &Flags) -> Result<(Config, PathBuf), Trouble> {
    let named = which.config.clone().or_else(|| variable("KAURI_CONFIG").map(PathBuf::from));
    let path = named.clone().unwrap_or_else(|| layout.config());
    let mut config = match std::fs::read_to_string(&path) {
        Ok(text) => {
            let parsed = Config::parse(&text, &|name| std::env::var(name).ok());
            parsed.map_err(|error| Trouble::Wrong(format!("{}: {error}", path.display())))?
        }
        // Without a file there are defaults; one that was named must be there.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => Config::default(),
        Err(error) => return Err(Trouble::Wrong(format!("{}: {error}", path.display()))),
    };
    config.drain.or(span("KAURI_DRAIN")?.map(Some), Source::Environment("KAURI_DRAIN"));
    if let Some(sweep) = span("KAURI_SWEEP")? {
        config.sweep.or(Some(sweep), Source::Environment("KAURI_SWEEP"));
    }
    config.outbox.or(variable("KAURI_OUTBOX").map(PathBuf::from), Source::Environment("KAURI_OUTBOX"));
    config.log.or(word("KAURI_LOG", &LogLevel::ALL)?, Source::Environment("KAURI_LOG"));
    config.log_format.or(word("KAURI_LOG_FORMAT", &LogFormat::ALL)?, Source::Environment("KAURI_LOG_FORMAT"));
    config.log.or(flags.log, Source::Flag("--log"));
    config.log_format.or(flags.log_format, Source::Flag("--log-format"));
    config.drain.or(flags.drain.map(Some), Source::Flag("--drain"));
    config.sweep.or(flags.sweep, Source::Flag("--sweep"));
    config.outbox.or(flags.outbox.clone(), Source::Flag("--outbox"));
    Ok((config, path))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn word<T: Copy>(name: &'static str, words: &[(&'static str, T)]) -> Result<Option<T>, Trouble> {
    let read = |text: String| parse_word(words, &text).map_err(|what| Trouble::Wrong(format!("${name}: {what}")));
    variable(name).map(read).transpose()
}

fn span(name: &'static str) -> Result<Option<Duration>, Trouble> {
    let Some(text) = variable(name) else { return Ok(None) };
    some_time(&text).map(Some).map_err(|what| Trouble::Wrong(format!("${name}: {what}")))
}
