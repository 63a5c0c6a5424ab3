//! `kauri dead-letters`: messages that will not be handled again by themselves.

use std::io::Write;

use kauri::ledger::{Clock as _, SystemClock};
use kauri::runtime::{DeadLetter, Look};
use kauri::wire::{InboxKey, Seq, WorkerId};
use serde_json::{Value, json};

use super::Trouble;
use super::ask::Reach;
use super::home::{HomeArgs, look, span};
use super::messages::{frame_cells, frame_json};
use super::table::{Zone, list, moment, more, plain, short};
use super::watch::Watch;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri dead-letters list --worker 7
  kauri dead-letters show 7/12
  kauri dead-letters replay 7/12     back into the inbox, with a new budget
  kauri dead-letters purge --older-than 30d

A dead letter is named by its worker and its number, as `list` prints them; after `--`, if that begins with a minus. Replaying and purging are done by the
instance that runs there, or else here, under the lock of the home.")]
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
    /// List dead letters, by worker
    List {
        /// Only those of this worker
        #[arg(long, value_name = "ID", allow_negative_numbers = true)]
        worker: Option<i64>,
        /// At most so many
        #[arg(long, default_value_t = 100, value_name = "ROWS")]
        limit: usize,
        /// Only those buried so long ago or later, as 2h
        #[arg(long, value_name = "SPAN", value_parser = span)]
        since: Option<i64>,
        /// Only what comes after this worker and number, as 7/12
        #[arg(long, value_name = "KEY", allow_hyphen_values = true, value_parser = key)]
        after: Option<InboxKey>,
        #[command(flatten)]
        zone: Zone,
        #[command(flatten)]
        watch: Watch,
    },
    /// Print one dead letter with its message; exit code 1 if there is none
    Show {
        /// Its worker and its number, as 7/12
        #[arg(value_parser = key)]
        key: InboxKey,
        #[command(flatten)]
        zone: Zone,
    },
    /// Put dead letters back into their inboxes, with a new budget; exit code 1 if one is not there
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Replay {
        /// Their workers and numbers, as 7/12
        #[arg(value_parser = key, group = "which")]
        keys: Vec<InboxKey>,
        /// All that decode
        #[arg(long, group = "which")]
        all: bool,
    },
    /// Remove dead letters for good; exit code 1 if one is not there
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Purge {
        /// Their workers and numbers, as 7/12
        #[arg(value_parser = key, group = "which")]
        keys: Vec<InboxKey>,
        /// Those buried longer ago than this, as 30d
        #[arg(long, value_name = "SPAN", value_parser = span, group = "which")]
        older_than: Option<i64>,
        /// All of them
        #[arg(long, group = "which")]
        all: bool,
    },
}

/// `7/12`: worker and number.
pub(super) fn key(text: &str) -> Result<InboxKey, String> {
    let parsed = text.split_once('/').and_then(|(worker, seq)| {
        Some(InboxKey { worker: WorkerId(worker.parse().ok()?), seq: Seq(seq.parse().ok()?) })
    });
    parsed.ok_or_else(|| format!("expected a worker and a number such as 7/12, found {text:?}"))
}

fn name(key: InboxKey) -> String {
    format!("{}/{}", key.worker.0, key.seq.0)
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    match &args.command {
        Command::List { worker, limit, since, after, zone, watch } => watch.show(args.json, out, |out| {
            let since = since.map(|span| SystemClock.now().0.saturating_sub(span));
            let wanted = Wanted { worker: worker.map(WorkerId), since, after: *after };
            let rows = look(&args.home, |look| wanted.find(look, *limit))?.unwrap_or_default();
            print(&rows, args.json, *zone, out)?;
            more(rows.len(), *limit, rows.last().map(|(key, _)| name(*key)), args.json, out)
        }),
        Command::Show { key, zone } => {
            let found = look(&args.home, |look| look.dead_letter(*key))?.flatten();
            show(*key, found.as_ref(), *zone, args.json, out)
        }
        Command::Replay { keys, .. } => {
            let done = ask(&args.home, "replay_dead_letters", &json!({ "keys": names(keys) }), out)?;
            tell(keys, &done, "replayed", args.json, out)
        }
        Command::Purge { keys, older_than, .. } => {
            let before = older_than.map(|span| SystemClock.now().0.saturating_sub(span));
            let wish = json!({ "keys": names(keys), "before_ms": before });
            let done = ask(&args.home, "purge_dead_letters", &wish, out)?;
            tell(keys, &done, "purged", args.json, out)
        }
    }
}

fn names(keys: &[InboxKey]) -> Vec<String> {
    keys.iter().copied().map(name).collect()
}

/// How many dead letters are looked at in one go.
const PAGE_ROWS: usize = 256;

struct Wanted {
    worker: Option<WorkerId>,
    since: Option<i64>,
    after: Option<InboxKey>,
}

impl Wanted {
    fn find(&self, look: &Look<'_>, most: usize) -> kauri::runtime::Result<Vec<(InboxKey, DeadLetter)>> {
        let (mut found, mut after) = (Vec::new(), self.after);
        loop {
            let page = look.dead_letters_after(self.worker, after, PAGE_ROWS)?;
            let Some((last, _)) = page.last() else { return Ok(found) };
            after = Some(*last);
            let is_meant = |letter: &DeadLetter| self.since.is_none_or(|since| letter.failed_at.0 >= since);
            found.extend(page.into_iter().filter(|(_, letter)| is_meant(letter)));
            if found.len() >= most {
                found.truncate(most);
                return Ok(found);
            }
        }
    }
}

/// A dead letter that something was done with, and where its message went, if anywhere.
type Done = (InboxKey, Option<InboxKey>);

/// By whoever runs there, or here if nobody does; nothing if there is no store yet.
fn ask(home: &HomeArgs, what: &str, wish: &Value, out: &mut impl Write) -> Result<Vec<Done>, Trouble> {
    let Some(mut reach) = Reach::existing(home)? else { return Ok(Vec::new()) };
    let done = reach.ask_or_say(what, wish, false, out)?;
    let read = |value: &Value| value.as_str().and_then(|text| key(text).ok());
    let done = done.as_array().into_iter().flatten();
    Ok(done.filter_map(|done| Some((read(&done["key"])?, read(&done["to"])))).collect())
}

fn tell(keys: &[InboxKey], done: &[Done], what: &str, json: bool, out: &mut impl Write) -> Result<(), Trouble> {
    for (key, to) in done {
        let to = to.map(name);
        match (json, &to) {
            (true, _) => writeln!(out, "{}", json!({ "key": name(*key), "done": what, "to": to }))?,
            (false, Some(to)) => writeln!(out, "{what} {}, now {to} in the inbox", name(*key))?,
            (false, None) => writeln!(out, "{what} {}", name(*key))?,
        }
    }
    let missing: Vec<InboxKey> =
        keys.iter().copied().filter(|key| done.iter().all(|(found, _)| found != key)).collect();
    for key in &missing {
        match json {
            true => writeln!(out, "{}", json!({ "key": name(*key), "done": null, "to": null }))?,
            false => writeln!(out, "there is no dead letter {}", name(*key))?,
        }
    }
    if done.is_empty() && missing.is_empty() && !json {
        writeln!(out, "no dead letters")?;
    }
    if missing.is_empty() { Ok(()) } else { Err(Trouble::No) }
}

fn to_json(key: InboxKey, letter: &DeadLetter) -> Value {
    json!({
        "key": name(key),
        "worker": key.worker.0,
        "seq": key.seq.0,
        "reason": letter.reason.as_str(),
        "detail": letter.detail,
        "failed_at": moment(letter.failed_at.0),
        "deliveries": letter.deliveries,
        "failures": letter.failures,
        "message": frame_json(&letter.frame),
    })
}

fn print(rows: &[(InboxKey, DeadLetter)], json: bool, zone: Zone, out: &mut impl Write) -> Result<(), Trouble> {
    let cells = |key: InboxKey, letter: &DeadLetter| {
        let [_, id, _] = frame_cells(&letter.frame);
        let (at, reason) = (zone.moment(letter.failed_at.0), letter.reason.as_str().to_owned());
        vec![name(key), at, id, reason, short(&letter.detail, 60)]
    };
    let rows = rows.iter().map(|(key, letter)| (to_json(*key, letter), cells(*key, letter)));
    list(rows, json, &["KEY", "BURIED", "MESSAGE", "REASON", "DETAIL"], "no dead letters", out)
}

fn show(
    key: InboxKey,
    letter: Option<&DeadLetter>,
    zone: Zone,
    json: bool,
    out: &mut impl Write,
) -> Result<(), Trouble> {
    let Some(letter) = letter else {
        if !json {
            writeln!(out, "there is no dead letter {}", name(key))?;
        }
        return Err(Trouble::No);
    };
    if json {
        return Ok(writeln!(out, "{}", to_json(key, letter))?);
    }
    let [to, id, payload] = frame_cells(&letter.frame);
    let lines = [
        ("key", name(key)),
        ("reason", letter.reason.as_str().to_owned()),
        ("detail", letter.detail.clone()),
        ("buried", zone.moment(letter.failed_at.0)),
        ("deliveries", letter.deliveries.to_string()),
        ("failures", letter.failures.to_string()),
        ("to", to),
        ("message", id),
        ("payload", payload),
    ];
    lines.iter().try_for_each(|(name, text)| writeln!(out, "{name:<11} {}", plain(text)))?;
    Ok(())
}
