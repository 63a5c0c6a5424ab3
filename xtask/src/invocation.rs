//! One call of another tool: run as it is, printed so that it can be pasted into a shell.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use crate::failure::{Failure, Result};
use crate::tree;

/// A program, its arguments and what it finds in the environment. Always run from the repository's root.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    environment: Vec<(&'static str, String)>,
    words: Vec<String>,
}

/// `cargo` with arguments. It is found by name, so that the printed line means the same as the run one.
pub(crate) fn cargo(arguments: &[&str]) -> Invocation {
    let words = std::iter::once("cargo").chain(arguments.iter().copied());
    Invocation { environment: Vec::new(), words: words.map(String::from).collect() }
}

/// Where Cargo builds when it is called from the root.
pub(crate) fn target_folder() -> PathBuf {
    tree::root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

impl Invocation {
    pub(crate) fn arguments<T: Into<String>>(mut self, more: impl IntoIterator<Item = T>) -> Invocation {
        self.words.extend(more.into_iter().map(Into::into));
        self
    }

    pub(crate) fn environment(mut self, name: &'static str, value: impl Into<String>) -> Invocation {
        self.environment.push((name, value.into()));
        self
    }

    /// Runs it with our own input and output.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self.command().status().map_err(Failure::io(format!("start `{self}`")))?;
        self.judge(status)
    }

    /// Runs it, shows its diagnostics as they come, and lets `see` read them line by line.
    pub(crate) fn watch(&self, mut see: impl FnMut(&str)) -> Result<()> {
        let failed = || Failure::io(format!("run `{self}`"));
        let mut child = self.command().stderr(Stdio::piped()).spawn().map_err(failed())?;
        let pipe = child.stderr.take().expect("the pipe was asked for above");
        // Split by bytes: a fuzz target may print anything.
        for line in BufReader::new(pipe).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(failed())?).into_owned();
            eprintln!("{line}");
            see(&line);
        }
        self.judge(child.wait().map_err(failed())?)
    }

    /// Whether it runs and succeeds, without a word.
    pub(crate) fn succeeds(&self) -> bool {
        let silent = self.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        silent.is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(tree::root());
        command
    }

    fn judge(&self, status: ExitStatus) -> Result<()> {
        if status.success() { Ok(()) } else { Err(Failure::Failed(format!("`{self}` ended with {status}"))) }
    }
}

impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.environment.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let line: Vec<String> = settings.chain(self.words.iter().map(|word| quoted(word))).collect();
        f.write_str(&line.join(" "))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_line_can_be_pasted_into_a_shell() {
        let invocation = cargo(&["doc", "--no-deps"]).environment("RUSTDOCFLAGS", "-D warnings").arguments(["it's"]);
        assert_eq!(invocation.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'it'\''s'");
    }

    #[test]
    fn failing_tool_is_a_failure_with_its_command_line() {
        let failure = cargo(&["no-such-command"]).watch(|_| {}).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        assert!(failure.to_string().starts_with("`cargo no-such-command` ended with"), "{failure}");
    }

    #[test]
    fn diagnostics_are_seen_line_by_line() {
        let mut lines = Vec::new();
        assert!(cargo(&["no-such-command"]).watch(|line| lines.push(line.to_owned())).is_err());
        assert!(lines.iter().any(|line| line.contains("no-such-command")));
    }
}
