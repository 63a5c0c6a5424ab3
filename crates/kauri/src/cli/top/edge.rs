//! The edge of `kauri top`: the terminal, the keyboard, the socket and the clock, each in a thread that tells one loop.

use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use kauri::Layout;
use kauri::control::{AskError, Client};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Hide;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::super::Trouble;
use super::input;
use super::model::{Link, Model};
use super::sample::Sample;
use super::state::{Effect, State};
use super::view::{self, Scene, Theme};

/// How long an answer is waited for before that is said.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often at least an instance that is gone is looked for, and times on the screen go on.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the loop has to end after a signal.
const LAST_WAIT: Duration = Duration::from_secs(2);
/// Leaves the other screen, shows the cursor, and ends all colours.
const RESTORE: &[u8] = b"\x1b[?1049l\x1b[?25h\x1b[0m";

/// What the loop is told.
enum Heard {
    Key(KeyEvent),
    /// The size has changed, or something else that is seen when it is drawn.
    Changed,
    Stats(Result<Value, String>),
    Run(String, Result<Value, String>),
    /// A signal, or no keyboard any more.
    Over,
}

enum Ask {
    Stats,
    Run(String, u64),
}

/// What is shown to whom.
pub(super) struct Wish<'a> {
    pub(super) layout: &'a Layout,
    pub(super) home: &'a str,
    pub(super) every: Duration,
    pub(super) theme: Theme,
}

/// Shows the screen until somebody has seen enough.
pub(super) fn run(wish: &Wish<'_>, client: Client, out: &mut impl Write) -> Result<(), Trouble> {
    let failed = |error: io::Error| Trouble::Wrong(format!("cannot use the terminal: {error}"));
    let (tell, heard) = channel();
    listen_to_signals(tell.clone()).map_err(failed)?;
    let ask = answer(wish.layout, client, tell.clone()).map_err(failed)?;
    let _screen = Screen::enter(out).map_err(failed)?;
    listen_to_keys(tell).map_err(failed)?;
    // Dropped, it would show the cursor, and panic if the terminal is gone by then. The screen does the one, and not the other.
    let mut terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(out)).map_err(failed)?);
    let looking = Looking {
        began: Instant::now(),
        model: Model::new(),
        state: State::new(wish.every, wish.home),
        ask,
        asked: None,
        next: Duration::ZERO,
    };
    looking.go(wish, &heard, &mut terminal).map_err(failed)
}

/// The terminal while it is ours: the other screen, no cursor, keys as they are pressed. Dropped, or when something panics, it is as it was.
struct Screen;

impl Screen {
    fn enter(out: &mut impl Write) -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enable_raw_mode()?;
        let screen = Self;
        execute!(out, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Whoever panics may hold the lock of the output, so this goes past it. There is nobody left to tell if it fails.
fn restore() {
    let _kept = disable_raw_mode();
    let _unseen = rustix::io::write(io::stdout(), RESTORE);
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

fn listen_to_signals(tell: Sender<Heard>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    spawn("kauri-signals", move || {
        let Some(signal) = signals.forever().next() else { return };
        let _over = tell.send(Heard::Over);
        // A terminal that takes nothing any more holds the loop up. Then it ends as by any signal, and with keys as they were.
        thread::sleep(LAST_WAIT);
        let _kept = disable_raw_mode();
        let _ended = signal_hook::low_level::emulate_default_handler(signal);
    })
}

fn listen_to_keys(tell: Sender<Heard>) -> io::Result<()> {
    spawn("kauri-keys", move || {
        loop {
            let heard = match event::read() {
                Ok(Event::Key(key)) => Heard::Key(key),
                Ok(_) => Heard::Changed,
                Err(_) => Heard::Over,
            };
            let is_over = matches!(heard, Heard::Over);
            if tell.send(heard).is_err() || is_over {
                return;
            }
        }
    })
}

/// Asks the instance, one question after the other, and connects again when it is gone.
fn answer(layout: &Layout, client: Client, tell: Sender<Heard>) -> io::Result<Sender<Ask>> {
    let (ask, asked) = channel();
    let (layout, mut client) = (layout.clone(), Some(client));
    spawn("kauri-ask", move || {
        for question in asked {
            let heard = match question {
                Ask::Stats => Heard::Stats(put(&layout, &mut client, "stats", &json!({ "spreads": true }))),
                Ask::Run(run, from) => {
                    let told = put(&layout, &mut client, "events", &json!({ "run_id": run, "from": from }));
                    Heard::Run(run, told)
                }
            };
            if tell.send(heard).is_err() {
                return;
            }
        }
    })?;
    Ok(ask)
}

fn put(layout: &Layout, client: &mut Option<Client>, what: &str, args: &Value) -> Result<Value, String> {
    let gone = || "no instance answers".to_owned();
    if client.is_none() {
        *client = Client::connect(layout).map_err(|error| format!("no instance can be asked: {error}"))?;
    }
    let told = client.as_mut().ok_or_else(gone)?.ask(what, args, Duration::ZERO);
    told.map_err(|error| match error {
        AskError::Fault(fault) => fault.to_string(),
        AskError::Gone(_) => {
            *client = None;
            gone()
        }
    })
}

/// The loop and all that it knows.
struct Looking {
    began: Instant,
    model: Model,
    state: State,
    ask: Sender<Ask>,
    /// Since when an answer is waited for.
    asked: Option<Duration>,
    /// When it is asked again.
    next: Duration,
}

impl Looking {
    fn go<W: Write>(
        mut self,
        wish: &Wish<'_>,
        heard: &Receiver<Heard>,
        terminal: &mut Terminal<CrosstermBackend<W>>,
    ) -> io::Result<()> {
        loop {
            self.ask_if_due()?;
            self.draw(wish, terminal)?;
            let mut told = match heard.recv_timeout(self.pause()) {
                Ok(told) => Some(told),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // Everything that was told meanwhile is drawn at once.
            while let Some(one) = told {
                let size = terminal.size()?;
                if self.take(one, size.into()) == Effect::Quit {
                    return Ok(());
                }
                told = heard.try_recv().ok();
            }
        }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn pause(&self) -> Duration {
        match self.asked {
            Some(_) => LOOK_EVERY,
            None => self.next.saturating_sub(self.now()).min(LOOK_EVERY),
        }
    }

    fn ask_if_due(&mut self) -> io::Result<()> {
        let now = self.now();
        if self.asked.is_some() || now < self.next {
            return Ok(());
        }
        let every = match self.model.link() {
            Link::Gone { .. } => self.state.every.min(LOOK_EVERY),
            Link::Fresh | Link::Up => self.state.every,
        };
        (self.asked, self.next) = (Some(now), now + every);
        self.put(Ask::Stats)?;
        self.ask_for_run()
    }

    fn ask_for_run(&self) -> io::Result<()> {
        match self.state.run_wanted() {
            Some((run, from)) => self.put(Ask::Run(run.to_owned(), from)),
            None => Ok(()),
        }
    }

    fn put(&self, ask: Ask) -> io::Result<()> {
        self.ask.send(ask).map_err(|_| io::Error::other("whoever asks the instance has ended"))
    }

    fn take(&mut self, heard: Heard, area: ratatui::layout::Rect) -> Effect {
        match heard {
            Heard::Over => return Effect::Quit,
            Heard::Changed => {}
            Heard::Key(key) => {
                let Some(action) = input::action(&key) else { return Effect::Nothing };
                let effect = self.state.apply(action, &self.model, view::room(area));
                // A shorter interval counts from now on.
                self.next = self.next.min(self.now() + self.state.every);
                if effect == Effect::Ask && self.ask_for_run().is_err() {
                    return Effect::Quit;
                }
                return effect;
            }
            Heard::Stats(told) => {
                self.asked = None;
                let at = self.now();
                match told.and_then(|value| Sample::read(&value)) {
                    Ok(sample) => self.model.take(at, sample),
                    Err(why) => {
                        self.model.lose(at, &why);
                        self.next = self.next.min(at + LOOK_EVERY);
                    }
                }
            }
            Heard::Run(run, told) => self.state.tell_run(&run, told),
        }
        Effect::Nothing
    }

    fn draw<W: Write>(&self, wish: &Wish<'_>, terminal: &mut Terminal<CrosstermBackend<W>>) -> io::Result<()> {
        let now = self.now();
        let waiting = self.asked.map(|asked| now.saturating_sub(asked)).filter(|waiting| *waiting >= PATIENCE);
        let scene = Scene { model: &self.model, state: &self.state, theme: wish.theme, now, waiting, has_keys: true };
        terminal.draw(|frame| view::draw(&scene, frame.area(), frame.buffer_mut())).map(drop)
    }
}

#[cfg(test)]
mod tests;
