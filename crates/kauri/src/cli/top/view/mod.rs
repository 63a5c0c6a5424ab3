//! The screen: a pure function of what is known, where somebody looks, and how much room there is.
//!
//! ```text
//! | what the instance is, since when                                  where it lives |
//! | what goes wrong, if something does                                               |
//! | 1 throughput                            | 2 latency                              |
//! | 3 queues             | 4 workers                                                 |
//! | 5 runs in flight                        | 6 failures                             |
//! | keys                                                                             |
//! ```
//!
//! Where there is less room, one pane is shown at a time under a line with the names of all.

mod grid;
mod lists;
mod plot;

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Widget};

use super::model::{Link, Model};
use super::page;
use super::state::{Page, Pane, Room, State};
use super::text::{age, fit, fit_end, span, width};

/// Less room than this is for a message only.
const COLUMNS_MIN: u16 = 30;
const ROWS_MIN: u16 = 6;
/// Room for all panes at once.
const COLUMNS_ALL: u16 = 78;
const ROWS_ALL: u16 = 22;
/// Columns of the pane of queues.
const QUEUES_COLUMNS: u16 = 36;

/// Colours, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Theme {
    pub(super) is_coloured: bool,
}

impl Theme {
    fn colour(self, colour: Color) -> Style {
        if self.is_coloured { Style::new().fg(colour) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.colour(Color::Green)
    }

    fn bad(self) -> Style {
        self.colour(Color::Red)
    }

    fn warn(self) -> Style {
        self.colour(Color::Yellow)
    }

    fn accent(self) -> Style {
        self.colour(Color::Cyan)
    }

    fn calm(self) -> Style {
        self.colour(Color::Blue)
    }

    fn dim(self) -> Style {
        if self.is_coloured { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }
}

/// Everything that a screen is made of.
pub(super) struct Scene<'a> {
    pub(super) model: &'a Model,
    pub(super) state: &'a State,
    pub(super) theme: Theme,
    /// The present, counted as the model's is.
    pub(super) now: Duration,
    /// For how long an answer has been waited for, if that is too long.
    pub(super) waiting: Option<Duration>,
    /// Whether somebody can press keys.
    pub(super) has_keys: bool,
}

/// How much room the page has on a screen of this size.
pub(super) fn room(area: Rect) -> Room {
    let body = Rect { height: area.height.saturating_sub(2), ..area };
    Room { columns: usize::from(body.width.saturating_sub(4)), rows: usize::from(body.height.saturating_sub(2)) }
}

/// Draws the screen.
pub(super) fn draw(scene: &Scene<'_>, area: Rect, buf: &mut Buffer) {
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        return draw_too_small(area, buf);
    }
    let model = scene.state.shown(scene.model);
    let trouble = trouble(scene);
    let (head, rest) = cut_above(area, 1);
    let (warning, rest) = cut_above(rest, u16::from(trouble.is_some()));
    let (body, keys) = cut_above(rest, rest.height - u16::from(scene.has_keys));
    draw_head(scene, model, head, buf);
    if let Some((words, style)) = trouble {
        line(&Line::styled(fit(&words, usize::from(warning.width)), style), warning, buf);
    }
    match &scene.state.page {
        Some(page) => draw_page(scene, model, page, body, buf),
        None if scene.state.is_zoomed || area.width < COLUMNS_ALL || area.height < ROWS_ALL => {
            draw_one(scene, model, body, buf);
        }
        None => draw_all(scene, model, body, buf),
    }
    if scene.has_keys {
        line(&Line::styled(hints(scene.state, keys.width), scene.theme.dim()), keys, buf);
    }
}

/// So many rows of a place, and the rest.
fn cut_above(area: Rect, rows: u16) -> (Rect, Rect) {
    let rows = rows.min(area.height);
    (Rect { height: rows, ..area }, Rect { y: area.y + rows, height: area.height - rows, ..area })
}

/// So many columns of a place, and the rest.
fn cut_left(area: Rect, columns: u16) -> (Rect, Rect) {
    let columns = columns.min(area.width);
    (Rect { width: columns, ..area }, Rect { x: area.x + columns, width: area.width - columns, ..area })
}

/// A line in a place of one row; nothing if there is no such place.
fn line(line: &Line<'_>, area: Rect, buf: &mut Buffer) {
    if !area.is_empty() {
        buf.set_line(area.x, area.y, line, area.width);
    }
}

fn draw_too_small(area: Rect, buf: &mut Buffer) {
    let words = format!("too small: {}x{}, needs {COLUMNS_MIN}x{ROWS_MIN}", area.width, area.height);
    let lines = super::text::wrap(&words, usize::from(area.width));
    for (row, text) in area.rows().zip(lines) {
        line(&Line::raw(fit(&text, usize::from(row.width))), row, buf);
    }
}

/// What goes wrong, in a line.
fn trouble(scene: &Scene<'_>) -> Option<(String, Style)> {
    let bold = |style: Style| style.add_modifier(Modifier::BOLD | Modifier::REVERSED);
    let (bad, warn) = (bold(scene.theme.bad()), bold(scene.theme.warn()));
    match (scene.model.link(), scene.waiting) {
        (Link::Gone { since, why }, _) => {
            let ago = age(scene.now.saturating_sub(*since));
            let home = &scene.state.home;
            return Some((format!(" {why} for {ago}; start it: kauri up{home} "), bad));
        }
        (_, Some(waiting)) => {
            return Some((format!(" no answer for {}: the instance is busy or halted ", age(waiting)), warn));
        }
        (Link::Fresh | Link::Up, None) => {}
    }
    let instance = &scene.model.sample()?.instance;
    match (&instance.trouble, &*instance.standing) {
        (Some(trouble), _) => Some((format!(" trouble: {trouble} "), bad)),
        (None, "stopped") => {
            Some((format!(" the kill switch is thrown: nothing begins; kauri resume{} ", scene.state.home), warn))
        }
        (None, "draining") => Some((" it is stopping: what is under way is waited for ".to_owned(), warn)),
        _ => None,
    }
}

fn draw_head(scene: &Scene<'_>, model: &Model, area: Rect, buf: &mut Buffer) {
    let (state, theme) = (scene.state, scene.theme);
    let mut spans = vec![Span::styled(" kauri top ", Style::new().add_modifier(Modifier::BOLD))];
    let badge = |word: &str, style: Style| {
        Span::styled(format!(" {word} "), style.add_modifier(Modifier::REVERSED | Modifier::BOLD))
    };
    match (scene.model.link(), model.sample()) {
        (Link::Gone { .. }, _) => spans.push(badge("gone", theme.bad())),
        (Link::Up, Some(sample)) if sample.instance.standing == "working" => spans.push(badge("working", theme.good())),
        (Link::Up, Some(sample)) => spans.push(badge(&sample.instance.standing, theme.warn())),
        _ => spans.push(badge("connecting", theme.warn())),
    }
    if state.is_paused() {
        spans.push(Span::raw(" "));
        spans.push(badge("view paused", theme.warn()));
    }
    let every = if scene.has_keys { format!("every {} ", span(state.every).replace(".0", "")) } else { String::new() };
    let mut room = usize::from(area.width).saturating_sub(Line::from(spans.clone()).width() + width(&every) + 2);
    let home = model.sample().map_or("", |sample| &sample.instance.home);
    for (at, words) in facts(scene, model).iter().enumerate() {
        // Those that have no room are left out, whole; after the first two, the home goes before.
        let kept = if at < 2 { 0 } else { width(home).min(24) + 2 };
        if width(words) + 2 + kept > room {
            break;
        }
        room -= width(words) + 2;
        spans.push(Span::raw(format!("  {words}")));
    }
    line(&Line::from(spans), area, buf);
    let home = fit_end(home, room.saturating_sub(2));
    let right = if width(&home) >= 8 { format!("{home}  {every}") } else { every };
    let columns = u16::try_from(width(&right)).unwrap_or(u16::MAX).min(area.width);
    let place = Rect { x: area.right() - columns, width: columns, ..area };
    line(&Line::styled(right, theme.dim()), place, buf);
}

/// What is said of an instance, the most important first.
fn facts(scene: &Scene<'_>, model: &Model) -> Vec<String> {
    let Some(sample) = model.sample() else { return Vec::new() };
    let ((busy, all), instance) = (sample.workers(), &sample.instance);
    if matches!(scene.model.link(), Link::Gone { .. }) {
        return vec![format!("was up {}", age(instance.uptime)), "what was known last".to_owned()];
    }
    vec![
        format!("up {}", age(instance.uptime)),
        format!("{busy} of {all} workers busy"),
        format!("start {}", instance.incarnation),
        format!("process {}", instance.pid),
        format!("version {}", instance.version),
    ]
}

fn hints(state: &State, columns: u16) -> String {
    let hints: &[&str] = match &state.page {
        Some(_) => &["Esc close", "↑↓ scroll", "q quit"],
        None => &[
            "q quit",
            "? help",
            "Tab 1-6 pane",
            "↑↓ select",
            "Enter look",
            "p pause",
            "z zoom",
            "+/- interval",
            "m took/waited",
        ],
    };
    let mut words = String::new();
    for hint in hints {
        if width(&words) + width(hint) + 3 > usize::from(columns) {
            break;
        }
        words += "  ";
        words += hint;
    }
    words.replacen("  ", " ", 1)
}

fn draw_all(scene: &Scene<'_>, model: &Model, area: Rect, buf: &mut Buffer) {
    let classes = model.sample().map_or(0, |sample| sample.classes.len());
    // Four rows of queues and two of borders; more for many classes, and not at the cost of the lists.
    let wanted = u16::try_from(classes + 3).unwrap_or(u16::MAX).max(6);
    let middle = wanted.min((area.height / 3).max(6));
    let plots = ((area.height - middle) * 2 / 5).clamp(6, 14);
    let (above, rest) = cut_above(area, plots);
    let (between, below) = cut_above(rest, middle);
    let (throughput, latency) = cut_left(above, area.width / 2);
    let (queues, workers) = cut_left(between, QUEUES_COLUMNS);
    let (runs, failures) = cut_left(below, area.width * 4 / 9);
    let places = [throughput, latency, queues, workers, runs, failures];
    for (pane, place) in Pane::ALL.into_iter().zip(places) {
        draw_pane(scene, model, pane, place, buf);
    }
}

/// One pane under the names of all.
fn draw_one(scene: &Scene<'_>, model: &Model, area: Rect, buf: &mut Buffer) {
    let (tabs, body) = cut_above(area, 1);
    let mut spans = Vec::new();
    for pane in Pane::ALL {
        let style = match pane == scene.state.pane {
            true => scene.theme.accent().add_modifier(Modifier::BOLD | Modifier::REVERSED),
            false => Style::new(),
        };
        // Where there is no room for all names, those of others are their numbers.
        let is_named = tabs.width >= COLUMNS_ALL || pane == scene.state.pane;
        let name = if is_named {
            format!(" {} {} ", pane.index() + 1, pane.name())
        } else {
            format!(" {} ", pane.index() + 1)
        };
        spans.push(Span::styled(name, style));
    }
    line(&Line::from(spans), tabs, buf);
    draw_pane(scene, model, scene.state.pane, body, buf);
}

fn draw_pane(scene: &Scene<'_>, model: &Model, pane: Pane, area: Rect, buf: &mut Buffer) {
    let block = border(scene, pane, scene.state.pane == pane);
    match (pane, model.sample()) {
        (Pane::Throughput, _) => plot::throughput(scene, model, block, area, buf),
        (Pane::Latency, _) => plot::latency(scene, model, block, area, buf),
        (_, None) => {
            let inner = block.inner(area);
            block.render(area, buf);
            line(&Line::raw(fit("nothing is known yet", usize::from(inner.width))), inner, buf);
        }
        (Pane::Queues, Some(sample)) => lists::queues(scene.theme, sample, block, area, buf),
        (Pane::Workers, Some(sample)) => lists::workers(scene, sample, block, area, buf),
        (Pane::Runs, Some(sample)) => lists::runs(scene, sample, block, area, buf),
        (Pane::Failures, Some(sample)) => lists::failures(scene, sample, block, area, buf),
    }
}

/// The border of a pane with its number and name.
fn border<'a>(scene: &Scene<'_>, pane: Pane, is_chosen: bool) -> Block<'a> {
    let style = if is_chosen { scene.theme.accent().add_modifier(Modifier::BOLD) } else { scene.theme.dim() };
    let kind = if is_chosen { BorderType::Thick } else { BorderType::Plain };
    let title = Span::styled(format!(" {} {} ", pane.index() + 1, pane.name()), title_style(scene, is_chosen));
    Block::bordered().border_type(kind).border_style(style).title(title)
}

fn title_style(scene: &Scene<'_>, is_chosen: bool) -> Style {
    let style = if is_chosen { scene.theme.accent() } else { Style::new() };
    style.add_modifier(Modifier::BOLD)
}

fn draw_page(scene: &Scene<'_>, model: &Model, open: &Page, area: Rect, buf: &mut Buffer) {
    Clear.render(area, buf);
    let block =
        Block::bordered().border_type(BorderType::Thick).border_style(scene.theme.accent()).title(Span::styled(
            format!(" {} ", fit(&page::title(open), usize::from(area.width.saturating_sub(6)))),
            title_style(scene, true),
        ));
    let inner = block.inner(area);
    let (columns, rows) = (usize::from(inner.width.saturating_sub(2)), usize::from(inner.height));
    let lines = page::lines(open, model, &scene.state.home, columns);
    let last = lines.len().saturating_sub(rows);
    let from = open.scroll.min(last);
    let block = if last > 0 {
        let until = (from + rows).min(lines.len());
        block.title_bottom(Line::raw(format!(" lines {} to {until} of {} ", from + 1, lines.len())).right_aligned())
    } else {
        block
    };
    block.render(area, buf);
    for (row, text) in inner.rows().zip(lines.into_iter().skip(from)) {
        let row = Rect { x: row.x + 1, width: row.width.saturating_sub(2), ..row };
        line(&Line::raw(text), row, buf);
    }
}

#[cfg(test)]
mod tests;
