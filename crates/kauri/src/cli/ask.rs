//! Asking whoever runs in a home, or doing it here if nobody does: the one place where commands change something there.

use std::io::Write;
use std::time::{Duration, Instant};

use kauri::control::{self, AskError, Client, Code, Fault};
use kauri::instance::{define_classes, visit};
use kauri::ledger::{Error, Home};
use kauri::runtime::Runtime;
use kauri::{Config, Layout};
use serde_json::{Value, json};

use super::Trouble;
use super::home::{HomeArgs, there};
use super::table::plain;

/// How long, and how often, a home that somebody has is tried.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Where requests go.
pub(super) enum Reach {
    /// To the instance that runs there.
    Instance(Client),
    /// Nobody runs there: they are done here, under the lock of the home.
    Here(Box<Here>),
}

pub(super) struct Here {
    runtime: Runtime,
    // Given back after the store is closed.
    lock: Home,
}

impl Reach {
    /// Whoever runs in a home, or its store; nothing if there is no store yet.
    pub(super) fn existing(home: &HomeArgs) -> Result<Option<Self>, Trouble> {
        let layout = there(home)?;
        if !layout.store().exists() {
            return Ok(connect(&layout)?.map(Self::Instance));
        }
        Self::of(&layout).map(Some)
    }

    /// The same, but a store is made if there is none, and has the classes of the configuration; others in it, and all schedules, stay as they are.
    pub(super) fn made(
        home: &HomeArgs,
        config: impl FnOnce(&Layout) -> Result<Config, Trouble>,
    ) -> Result<Self, Trouble> {
        let layout = there(home)?;
        if let Some(client) = connect(&layout)? {
            return Ok(Self::Instance(client));
        }
        let config = config(&layout)?;
        let reach = Self::of(&layout)?;
        if let Self::Here(here) = &reach {
            define_classes(&here.runtime, &config).map_err(|error| wrong(&layout, &error))?;
        }
        Ok(reach)
    }

    /// An instance that is about to start has the lock and does not answer yet, and another command has it for a moment: so both are tried for
    /// a while.
    fn of(layout: &Layout) -> Result<Self, Trouble> {
        let began = Instant::now();
        loop {
            if let Some(client) = connect(layout)? {
                return Ok(Self::Instance(client));
            }
            match Home::lock(layout.home()) {
                Ok(lock) => return Ok(Self::Here(Box::new(here(layout, lock)?))),
                Err(Error::Locked { .. }) if began.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                Err(error @ Error::Locked { .. }) => {
                    return Err(Trouble::Wrong(format!("{error}, and it does not answer on its socket")));
                }
                Err(error) => return Err(Trouble::Wrong(error.to_string())),
            }
        }
    }

    /// Whether an instance runs.
    pub(super) const fn is_running(&self) -> bool {
        matches!(self, Self::Instance(_))
    }

    /// Asks.
    pub(super) fn ask(&mut self, what: &str, args: &Value, wait: Duration) -> Result<Value, AskError> {
        match self {
            Self::Instance(client) => client.ask(what, args, wait),
            Self::Here(here) => here.answer(what, args).map_err(AskError::Fault),
        }
    }

    /// Asks; that it cannot be done is an answer, and said.
    pub(super) fn ask_or_say(
        &mut self,
        what: &str,
        args: &Value,
        is_json: bool,
        out: &mut impl Write,
    ) -> Result<Value, Trouble> {
        self.ask(what, args, Duration::ZERO).map_err(|error| said(error, is_json, out))
    }
}

impl Here {
    fn answer(&self, what: &str, args: &Value) -> Result<Value, Fault> {
        if what != "purge_dead_letters" {
            return control::answer(&self.runtime, what, args);
        }
        // What is removed stands in the audit, whoever removes it.
        let audit = self.lock.audit().map_err(|error| Fault::new(Code::Failed, format!("the audit: {error}")))?;
        control::purge(&self.runtime, &audit, args)
    }
}

/// What was refused: said, if it is an answer; else it was the wrong question.
pub(super) fn said(error: AskError, is_json: bool, out: &mut impl Write) -> Trouble {
    let Fault { code, message } = match error {
        AskError::Fault(fault) => fault,
        AskError::Gone(_) => return Trouble::Wrong(error.to_string()),
    };
    if !matches!(code, Code::NotFound | Code::Refused) {
        return Trouble::Wrong(message);
    }
    let written = match is_json {
        true => writeln!(out, "{}", json!({ "error": { "code": code.as_str(), "message": message } })),
        false => writeln!(out, "{}", plain(&message)),
    };
    written.map_or_else(Trouble::Output, |()| Trouble::No)
}

fn wrong(layout: &Layout, error: &dyn std::fmt::Display) -> Trouble {
    Trouble::Wrong(format!("{}: {error}", layout.store().display()))
}

/// The instance that runs in a home, if one does.
pub(super) fn connect(layout: &Layout) -> Result<Option<Client>, Trouble> {
    Client::connect(layout).map_err(|error| Trouble::Wrong(format!("{}: {error}", layout.socket().display())))
}

fn here(layout: &Layout, lock: Home) -> Result<Here, Trouble> {
    let (runtime, processes) = visit(layout).map_err(|error| super::up::refused(layout, &error))?;
    let runs = runtime.recovered();
    let (ended, resumed) = (runs.ended.len(), runs.resumed.len());
    if ended + resumed + processes > 0 {
        // Whoever starts next finds nothing any more, so it is told now.
        let words = format!(
            "an instance had died here: {ended} runs that were under way are ended, {resumed} go on with the next start, \
             {processes} processes of theirs were ended"
        );
        note(&words);
    }
    Ok(Here { runtime, lock })
}

/// A word beside the answer.
pub(super) fn note(words: &str) {
    // There is nobody left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "kauri: {}", plain(words));
}
