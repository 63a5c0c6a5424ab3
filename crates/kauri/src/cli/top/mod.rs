//! `kauri top`: a running instance, watched.
//!
//! What was heard ([`model`]) and where somebody looks ([`state`]) are folds without a clock or a terminal; the screen ([`view`]) is a function of
//! both; [`edge`] has the threads.

mod edge;
mod input;
mod model;
mod page;
mod sample;
mod state;
mod text;
mod view;

use std::io::{IsTerminal as _, Write};
use std::time::{Duration, Instant};

use kauri::control::Client;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use self::model::Model;
use self::sample::Sample;
use self::state::State;
use self::view::{Scene, Theme};
use super::Trouble;
use super::ask::connect;
use super::home::{HomeArgs, there};

/// The shortest interval: an instance has better things to do than to tell of them.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// How large a screen is printed where there is none.
const COLUMNS: u16 = 100;
const ROWS: u16 = 36;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  kauri top
  kauri top --home /srv/shop --every 5s
  kauri top --once
  kauri top --json

Keys: q quit, Tab or 1 to 6 another pane, up and down select, Enter look, p pause the view, + and - interval, ? all keys.
It asks the instance on its control socket, and connects again when the instance was gone.
Exit codes: 0 seen enough (also by Ctrl-C or SIGTERM), 1 no instance runs there, 2 wrong arguments, or no terminal.")]
pub(crate) struct Args {
    #[command(flatten)]
    home: HomeArgs,
    /// How often the instance is asked, 100ms or more; with --once, how long is measured
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = every)]
    every: Duration,
    /// Print one screen as text, and end
    #[arg(long, conflicts_with = "json")]
    once: bool,
    /// Print what the instance says of itself as one JSON object, and end
    #[arg(long)]
    json: bool,
}

fn every(text: &str) -> Result<Duration, String> {
    match kauri::parse_span(text)? {
        every if every < EVERY_MIN => Err(format!("expected 100ms or more, found {text}")),
        every => Ok(every),
    }
}

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Trouble> {
    let layout = there(&args.home)?;
    let home = args.home.shown();
    let absent =
        || Trouble::Absent(format!("no instance runs in {}: start one with `kauri up{home}`", layout.home().display()));
    let mut client = connect(&layout)?.ok_or_else(absent)?;
    if args.json {
        return Ok(writeln!(out, "{}", ask(&mut client, &json!({}))?)?);
    }
    if args.once {
        return print_once(&mut client, args.every, &home, out);
    }
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        let words = "top draws on a terminal, and this is none: --once prints one screen, --json what it is made of";
        return Err(Trouble::Wrong(words.to_owned()));
    }
    let wish =
        edge::Wish { layout: &layout, home: &home, every: args.every, theme: Theme { is_coloured: is_coloured() } };
    edge::run(&wish, client, out)
}

/// Whether the terminal and whoever sits there want colours.
fn is_coloured() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn ask(client: &mut Client, args: &Value) -> Result<Value, Trouble> {
    client.ask("stats", args, Duration::ZERO).map_err(|error| Trouble::Wrong(error.to_string()))
}

/// One screen, of what happened in one interval.
fn print_once(client: &mut Client, every: Duration, home: &str, out: &mut impl Write) -> Result<(), Trouble> {
    let (began, mut model) = (Instant::now(), Model::new());
    for pause in [Duration::ZERO, every] {
        std::thread::sleep(pause);
        let sample = Sample::read(&ask(client, &json!({ "spreads": true }))?).map_err(Trouble::Wrong)?;
        model.take(began.elapsed(), sample);
    }
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(|| ratatui::crossterm::terminal::size().ok()).flatten();
    let (columns, rows) = size.unwrap_or((COLUMNS, ROWS));
    let scene = Scene {
        model: &model,
        state: &State::new(every, home),
        theme: Theme { is_coloured: false },
        now: began.elapsed(),
        waiting: None,
        has_keys: false,
    };
    let area = Rect::new(0, 0, columns, rows.saturating_sub(u16::from(is_terminal)));
    let mut buffer = Buffer::empty(area);
    view::draw(&scene, area, &mut buffer);
    rows_of(&buffer).iter().try_for_each(|row| writeln!(out, "{row}"))?;
    Ok(())
}

/// What is drawn, row by row, without what is behind the last sign.
fn rows_of(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let row = |y: u16| {
        let (mut text, mut columns) = (String::new(), 0);
        for (at, x) in (area.left()..area.right()).enumerate() {
            // A wide sign covers the place behind it.
            if at >= columns {
                text.push_str(buffer[(x, y)].symbol());
                columns = at + text::width(buffer[(x, y)].symbol());
            }
        }
        text.trim_end().to_owned()
    };
    (area.top()..area.bottom()).map(row).collect()
}
