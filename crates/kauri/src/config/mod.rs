//! `kauri.toml`: the classes of jobs that an instance runs, and how it runs.
//!
//! ```toml
//! [up]
//! drain = "30s"               # how long work that is under way is waited for when the instance stops; for ever without it
//! sweep = "1m"                # how often runs that are not kept any more are removed
//! outbox = "outbox.jsonl"     # where messages of the outbox go; a relative path is one in the home
//! log = "warn"                # how much is said of the work on standard error: off, error, warn, info, debug
//! log_format = "text"         # or "json"
//!
//! [job.mail]
//! command = ["./mail.sh", "--from", "${SHOP_ADDRESS}"]
//! directory = "/srv/shop"     # the home without it
//! env = { LANG = "C" }
//! protocol = "lines"          # or "frames"
//! timeout = "5m"
//! concurrency = 4
//! takeover = "crash"          # or "resume"
//! retry = { attempts = 3, pause = "1s", pause_max = "5m", on = ["script_error", "executor_crash", "timed_out"] }
//! schedule = { cron = "0 3 * * *", catch_up = "latest", input = { kind = "digest" } }    # 03:00 in UTC; or every = "5m"
//! keep = { time = "30d", runs = 10000, bytes = 1000000000, events = { time = "7d" }, artifacts = { count = 100 } }
//! fan_out = { depth = 2, runs = 1000, parallel = 4, exit = "all" }    # derived work that its jobs may ask for; none without it
//! ```
//!
//! `keep.events`, `keep.artifacts` and `keep.dead_letters` have `time`, `count` and `bytes`: events and artifacts may go before their runs do,
//! and the count is then of runs that have theirs; dead letters are kept as runs are, unless something is said of them.
//!
//! Of `fan_out` the class of a tree's first run counts: `depth` is how many generations there may be below it, `runs` how many derived jobs
//! in all (1000 if nothing is said), `parallel` how many of them are under way at a time (1), and `exit` says what the outcome of the whole
//! depends on: `"root"`, the first job alone, which is the default, or `"all"`, every job of the tree.
//!
//! The moments of `schedule.cron` are in UTC, wherever the instance runs: minute, hour, day of the month, month and day of the week, with seconds
//! before them if there are six fields. Those that came while no instance ran are caught up with: the latest of them, or all with `"every"`.
//!
//! Keys are strict: one that nobody knows is an error that names the nearest. `${NAME}` in a text is what the environment says, `$${NAME}`
//! that text itself; any other `$` stays as it is.

mod log;
mod read;
mod span;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use kauri_runtime::run::script::Protocol;
use kauri_runtime::run::{Exit, FanOut, Keep, Limits, Outcomes, Retry, Takeover};
use kauri_runtime::{CatchUp, When};
use serde_json::Value;

pub use self::log::{LogFormat, LogLevel, parse_word};
pub use self::read::ConfigError;
pub use self::span::{parse_span, show_span};

/// How often runs that are not kept any more are removed, if nobody says.
const SWEEP: Duration = Duration::from_mins(1);
/// Where messages of the outbox go, if nobody says.
const OUTBOX: &str = "outbox.jsonl";

/// Where a value comes from. Later ones win.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Nobody said anything.
    Default,
    /// This line of the file.
    File(usize),
    /// This variable of the environment.
    Environment(&'static str),
    /// This flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(line) => write!(f, "file, line {line}"),
            Self::Environment(name) => write!(f, "environment, ${name}"),
            Self::Flag(name) => write!(f, "flag, {name}"),
        }
    }
}

/// A value, and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting<T> {
    /// What it is.
    pub value: T,
    /// Who said so.
    pub source: Source,
}

impl<T> Setting<T> {
    /// What it is if nobody says anything.
    pub const fn default(value: T) -> Self {
        Self { value, source: Source::Default }
    }

    /// This instead, if it comes from somebody who counts more.
    pub fn or(&mut self, value: Option<T>, source: Source) {
        if let Some(value) = value.filter(|_| source >= self.source) {
            *self = Self { value, source };
        }
    }
}

/// What an instance runs, and how.
///
/// ```
/// use kauri::Config;
///
/// let text = "[job.hello]\ncommand = [\"./hello.sh\", \"${NAME}\"]\n";
/// let config = Config::parse(text, &|name| (name == "NAME").then(|| "Ann".to_owned())).unwrap();
/// assert_eq!(config.jobs["hello"].command.value, ["./hello.sh", "Ann"]);
///
/// let error = Config::parse("[job.hello]\ncomand = []", &|_| None).unwrap_err();
/// assert_eq!((error.line, &*error.key), (Some(2), "job.hello.comand"));
/// assert!(error.to_string().contains("did you mean `command`?"));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// How long work that is under way is waited for when the instance stops; for ever if nothing is said.
    pub drain: Setting<Option<Duration>>,
    /// How often runs that are not kept any more are removed.
    pub sweep: Setting<Duration>,
    /// Where messages of the outbox go; a relative path is one in the home.
    pub outbox: Setting<PathBuf>,
    /// How much is said of the work.
    pub log: Setting<LogLevel>,
    /// In which form.
    pub log_format: Setting<LogFormat>,
    /// The classes of jobs, by name.
    pub jobs: BTreeMap<String, JobConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            drain: Setting::default(None),
            sweep: Setting::default(SWEEP),
            outbox: Setting::default(OUTBOX.into()),
            log: Setting::default(LogLevel::Warn),
            log_format: Setting::default(LogFormat::Text),
            jobs: BTreeMap::new(),
        }
    }
}

/// A class of jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct JobConfig {
    /// The line where it begins.
    pub line: usize,
    /// The program and its arguments.
    pub command: Setting<Vec<String>>,
    /// The same as it is written in the file: what the environment puts in may be a secret, and is not shown.
    pub command_shown: Vec<String>,
    /// Where it runs; in the home if nothing is said, and a relative path is one in the home.
    pub directory: Setting<Option<PathBuf>>,
    /// What it finds in its environment, beside what the instance has there.
    pub env: Setting<BTreeMap<String, String>>,
    /// How it is spoken with.
    pub protocol: Setting<Protocol>,
    /// How long it may take.
    pub timeout: Setting<Duration>,
    /// How many run at once.
    pub concurrency: Setting<u32>,
    /// What becomes of a run whose instance died.
    pub takeover: Setting<Takeover>,
    /// What becomes of a run that failed.
    pub retry: Setting<Retry>,
    /// When it is submitted by itself.
    pub schedule: Setting<Option<ScheduleConfig>>,
    /// How long what has ended is kept.
    pub keep: Setting<Keep>,
    /// How much derived work its jobs may ask for, and what the outcome of the whole depends on.
    pub fan_out: Setting<FanOut>,
}

/// What the outcome of a tree of runs may depend on, with the words for it.
const EXITS: [(&str, Exit); 2] = [("root", Exit::Root), ("all", Exit::All)];

/// When a job is submitted by itself.
#[derive(Clone, PartialEq, Debug)]
pub struct ScheduleConfig {
    /// Its slots.
    pub when: When,
    /// What happens when several have come.
    pub catch_up: CatchUp,
    /// What it is given.
    pub input: Value,
    /// The same as it is written in the file.
    pub input_shown: Value,
}

/// The words for outcomes, in the order in which they are shown.
fn outcome_words(outcomes: Outcomes) -> Vec<&'static str> {
    use kauri_runtime::run::Outcome;
    Outcome::ALL.iter().filter(|outcome| outcomes.contains(**outcome)).map(Outcome::as_str).collect()
}

impl Config {
    /// Reads a file's text. `variable` says what the environment has under a name.
    ///
    /// # Errors
    /// The first thing that is not as it must be: its line, its key, and what to do.
    pub fn parse(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        read::config(text, variable)
    }

    /// Every setting under its name: its value, and where it comes from.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, Value, Source)> {
        let mut all = vec![
            ("up.drain".to_owned(), self.drain.value.map(show_span).into(), self.drain.source.clone()),
            ("up.sweep".to_owned(), show_span(self.sweep.value).into(), self.sweep.source.clone()),
            ("up.outbox".to_owned(), self.outbox.value.to_string_lossy().into(), self.outbox.source.clone()),
            ("up.log".to_owned(), self.log.value.as_str().into(), self.log.source.clone()),
            ("up.log_format".to_owned(), self.log_format.value.as_str().into(), self.log_format.source.clone()),
        ];
        for (name, job) in &self.jobs {
            all.extend(
                job.settings().into_iter().map(|(key, value, source)| (format!("job.{name}.{key}"), value, source)),
            );
        }
        all
    }
}

impl JobConfig {
    fn settings(&self) -> Vec<(&'static str, Value, Source)> {
        let protocol = match self.protocol.value {
            Protocol::Lines => "lines",
            Protocol::Frames => "frames",
        };
        let takeover = if self.takeover.value == Takeover::Resume { "resume" } else { "crash" };
        let directory = self.directory.value.as_ref().map(|path| path.to_string_lossy().into_owned());
        // What a variable holds may be a secret: it is used, and not shown.
        let env = self.env.value.keys().map(|name| (name.clone(), "(set)".into())).collect();
        vec![
            ("command", self.command_shown.clone().into(), self.command.source.clone()),
            ("directory", directory.into(), self.directory.source.clone()),
            ("env", Value::Object(env), self.env.source.clone()),
            ("protocol", protocol.into(), self.protocol.source.clone()),
            ("timeout", show_span(self.timeout.value).into(), self.timeout.source.clone()),
            ("concurrency", self.concurrency.value.into(), self.concurrency.source.clone()),
            ("takeover", takeover.into(), self.takeover.source.clone()),
            ("retry", retry_json(&self.retry.value), self.retry.source.clone()),
            (
                "schedule",
                self.schedule.value.as_ref().map(ScheduleConfig::to_json).into(),
                self.schedule.source.clone(),
            ),
            ("keep", keep_json(&self.keep.value), self.keep.source.clone()),
            ("fan_out", fan_out_json(&self.fan_out.value), self.fan_out.source.clone()),
        ]
    }
}

fn retry_json(retry: &Retry) -> Value {
    serde_json::json!({
        "attempts": retry.attempts_max,
        "pause": show_span(retry.pause),
        "pause_max": show_span(retry.pause_max),
        "on": outcome_words(retry.on),
    })
}

fn keep_json(keep: &Keep) -> Value {
    let limits = |limits: &Limits| serde_json::json!({ "time": limits.time.map(show_span), "count": limits.count, "bytes": limits.bytes });
    serde_json::json!({
        "time": keep.time.map(show_span),
        "runs": keep.runs,
        "bytes": keep.bytes,
        "events": limits(&keep.events),
        "artifacts": limits(&keep.artifacts),
        "dead_letters": keep.dead_letters.as_ref().map(limits),
    })
}

/// How much derived work a class allows, by the keys of the file.
pub(crate) fn fan_out_json(fan_out: &FanOut) -> Value {
    serde_json::json!({
        "depth": fan_out.depth_max,
        "runs": fan_out.runs_max,
        "parallel": fan_out.parallel,
        "exit": exit_word(fan_out.exit),
    })
}

/// The word for what the outcome of a tree depends on.
pub(crate) fn exit_word(exit: Exit) -> &'static str {
    EXITS.iter().find(|(_, known)| *known == exit).map_or("", |(word, _)| word)
}

impl ScheduleConfig {
    /// When, in a few words.
    #[must_use]
    pub fn words(&self) -> String {
        match &self.when {
            When::Cron(words) => words.clone(),
            When::Every(distance) => format!("every {}", show_span(*distance)),
        }
    }

    fn to_json(&self) -> Value {
        let (cron, every) = match &self.when {
            When::Cron(words) => (Some(words.clone()), None),
            When::Every(distance) => (None, Some(show_span(*distance))),
        };
        let catch_up = if self.catch_up == CatchUp::Every { "every" } else { "latest" };
        serde_json::json!({ "cron": cron, "every": every, "catch_up": catch_up, "input": self.input_shown })
    }
}
