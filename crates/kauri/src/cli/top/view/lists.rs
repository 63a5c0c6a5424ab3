//! The panes that list something.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Widget};

use super::super::page::ago;
use super::super::sample::{FailureKind, Sample};
use super::super::state::Pane;
use super::super::text::{fit, width};
use super::grid::{Column, Grid, Kind};
use super::{Scene, Theme, cut_left, line};

/// Left and right where there is no room for all under each other.
const LEFT: [&str; 4] = ["inbox", "outbox", "timers", "dead_letters"];

/// How much waits where. Numbers are exact and whole; names give way.
pub(super) fn queues(theme: Theme, sample: &Sample, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let inner = inset(block.inner(area));
    block.render(area, buf);
    let style = |name: &str, count: u64| match (name, count) {
        (_, 0) => theme.dim(),
        ("dead_letters", _) => theme.bad(),
        _ => Style::new(),
    };
    let rows = |queues: &[&(String, u64)], place: Rect, buf: &mut Buffer| {
        for (row, (name, count)) in place.rows().zip(queues) {
            let (room, number) = (usize::from(row.width), count.to_string());
            let name_room = room.saturating_sub(width(&number) + 1);
            let text = format!("{:<name_room$} {number}", fit(&name.replace('_', " "), name_room));
            line(&Line::styled(fit(&text, room), style(name, *count)), row, buf);
        }
    };
    let all: Vec<&(String, u64)> = sample.queues.iter().collect();
    if usize::from(inner.height) >= all.len() {
        // Numbers far from their names are hard to read.
        return rows(&all, Rect { width: inner.width.min(32), ..inner }, buf);
    }
    let (left, right): (Vec<_>, Vec<_>) = all.into_iter().partition(|(name, _)| LEFT.contains(&&**name));
    let (west, rest) = cut_left(inner, inner.width.saturating_sub(2) * 6 / 11);
    let (_, east) = cut_left(rest, 2);
    rows(&left, west, buf);
    rows(&right, east, buf);
}

/// A column of space at both sides.
fn inset(area: Rect) -> Rect {
    if area.width < 3 { area } else { Rect { x: area.x + 1, width: area.width - 2, ..area } }
}

/// Draws a list, or what is said where it is empty.
fn draw_list(
    scene: &Scene<'_>,
    pane: Pane,
    grid: Grid,
    empty: &[String],
    block: Block<'_>,
    area: Rect,
    buf: &mut Buffer,
) {
    let inner = inset(block.inner(area));
    block.render(area, buf);
    if grid.styles.is_empty() {
        for (row, text) in inner.rows().zip(empty) {
            line(&Line::styled(fit(text, usize::from(row.width)), scene.theme.dim()), row, buf);
        }
        return;
    }
    let selected = grid.selected.filter(|_| scene.state.pane == pane && scene.has_keys);
    Grid { selected, ..grid }.draw(scene.theme, inner, buf);
}

fn note<'a>(words: &str, style: Style) -> Line<'a> {
    Line::from(Span::styled(format!(" {words} "), style)).right_aligned()
}

pub(super) fn workers(scene: &Scene<'_>, sample: &Sample, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let theme = scene.theme;
    let (busy, all) = sample.workers();
    let block = block.title(note(&format!("{busy} busy, {} idle", all.saturating_sub(busy)), Style::new()));
    let of =
        |cell: &dyn Fn(&super::super::sample::Class) -> String| sample.classes.iter().map(cell).collect::<Vec<_>>();
    let columns = vec![
        Column::new(
            "CLASS",
            Kind::Flexible,
            0,
            of(&|class| if class.is_paused { format!("{} (paused)", class.name) } else { class.name.clone() }),
        ),
        Column::new("BUSY", Kind::Number, 8, of(&|class| format!("{} of {}", class.busy, class.at_once))),
        Column::new("WAITING", Kind::Number, 0, of(&|class| class.waiting.to_string())),
        Column::new("ENDED", Kind::Number, 12, of(&|class| class.ended.to_string())),
        Column::new("FAILED", Kind::Number, 10, of(&|class| class.failed.to_string())),
        Column::new("COMMAND", Kind::Flexible, 60, of(&|class| class.command.clone())),
    ];
    let style = |class: &super::super::sample::Class| match class {
        class if class.is_paused => theme.warn(),
        class if class.busy.max(class.waiting).max(class.ended) == 0 => theme.dim(),
        _ => Style::new(),
    };
    let styles = sample.classes.iter().map(style).collect();
    let grid = Grid { columns, styles, selected: Some(scene.state.selected(Pane::Workers, sample)) };
    let empty = ["no jobs in kauri.toml:".to_owned(), "there is nothing to run".to_owned()];
    draw_list(scene, Pane::Workers, grid, &empty, block, area, buf);
}

pub(super) fn runs(scene: &Scene<'_>, sample: &Sample, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let block = block.title(note(&sample.running.to_string(), Style::new()));
    let of =
        |cell: &dyn Fn(&super::super::sample::RunLine) -> String| sample.in_flight.iter().map(cell).collect::<Vec<_>>();
    let columns = vec![
        Column::new(
            "FOR",
            Kind::Number,
            0,
            of(&|run| run.started_ms.map_or_else(|| "-".to_owned(), |at| ago(at, sample.at_ms))),
        ),
        Column::new("CLASS", Kind::Text, 0, of(&|run| fit(&run.class, 20))),
        Column::new("ATTEMPT", Kind::Number, 9, of(&|run| run.attempt.to_string())),
        Column::new("EVENTS", Kind::Number, 14, of(&|run| run.events.to_string())),
        Column::new("RUN", Kind::FlexibleEnd, 5, of(&|run| run.id.clone())),
    ];
    let styles = vec![Style::new(); sample.in_flight.len()];
    let grid = Grid { columns, styles, selected: Some(scene.state.selected(Pane::Runs, sample)) };
    let submit = match sample.classes.first() {
        Some(class) => vec!["no run is under way".to_owned(), format!("kauri submit {}", class.name)],
        None => vec!["no run is under way".to_owned()],
    };
    draw_list(scene, Pane::Runs, grid, &submit, block, area, buf);
}

pub(super) fn failures(scene: &Scene<'_>, sample: &Sample, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let theme = scene.theme;
    let (letters, (_, failed)) = (sample.queue("dead_letters"), sample.ended());
    let dead = if letters == 1 { "1 dead letter".to_owned() } else { format!("{letters} dead letters") };
    let words = match (letters, usize::from(area.width)) {
        (0, _) => format!("{failed} since the start"),
        (_, 64..) => format!("{failed} since the start, {dead}"),
        _ => format!("{failed}, {dead}"),
    };
    let block = block.title(note(&words, if failed.max(letters) > 0 { theme.bad() } else { Style::new() }));
    let of =
        |cell: &dyn Fn(&super::super::sample::Failure) -> String| sample.failures.iter().map(cell).collect::<Vec<_>>();
    let columns = vec![
        Column::new("AGO", Kind::Number, 0, of(&|failure| ago(failure.at_ms, sample.at_ms))),
        Column::new("CLASS", Kind::Text, 12, of(&|failure| fit(&failure.whose, 16))),
        Column::new("HOW", Kind::Text, 30, of(&|failure| failure.how.clone())),
        Column::new(
            "MESSAGE",
            Kind::Flexible,
            0,
            of(&|failure| if failure.message.is_empty() { failure.how.clone() } else { failure.message.clone() }),
        ),
    ];
    let style = |failure: &super::super::sample::Failure| match failure.kind {
        FailureKind::Letter { .. } => theme.warn(),
        FailureKind::Run { .. } => Style::new(),
    };
    let styles = sample.failures.iter().map(style).collect();
    let grid = Grid { columns, styles, selected: Some(scene.state.selected(Pane::Failures, sample)) };
    draw_list(scene, Pane::Failures, grid, &["nothing failed lately".to_owned()], block, area, buf);
}
