//! How much an instance says of its work, and in which form.

/// How much is said: everything up to this.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What could not be done and will not be tried again by itself.
    Error,
    /// Runs that failed, and what goes wrong beside the work.
    Warn,
    /// Every run that ended.
    Info,
    /// Timers, deliveries and everything else.
    Debug,
}

impl LogLevel {
    /// All of them with their words.
    pub const ALL: [(&'static str, Self); 5] = [
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
    ];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        word_of(&Self::ALL, self)
    }
}

/// In which form it is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// An object a line.
    Json,
}

impl LogFormat {
    /// All of them with their words.
    pub const ALL: [(&'static str, Self); 2] = [("text", Self::Text), ("json", Self::Json)];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        word_of(&Self::ALL, self)
    }
}

fn word_of<T: Copy + PartialEq>(words: &[(&'static str, T)], wanted: T) -> &'static str {
    words.iter().find(|(_, value)| *value == wanted).map_or("", |(word, _)| word)
}

/// Reads one of these words.
///
/// # Errors
/// What was expected and what was found.
///
/// ```
/// use kauri::{LogLevel, parse_word};
///
/// assert_eq!(parse_word(&LogLevel::ALL, "info"), Ok(LogLevel::Info));
/// assert!(parse_word(&LogLevel::ALL, "loud").unwrap_err().contains("expected off, error, warn, info or debug"));
/// ```
pub fn parse_word<T: Copy>(words: &[(&'static str, T)], text: &str) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let (last, before) = known.split_last().expect("there are words");
        format!("expected {} or {last}, found {text:?}", before.join(", "))
    })
}
