//! Columns over time, the newest at the right: each an interval, with a part of it at the bottom that stands out.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Widget};

use super::super::model::{Measure, Model, Point};
use super::super::state::Pane;
use super::super::text::{age, ceiling, fit, rate, span, width};
use super::{Scene, line};

/// Parts of a row.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// One interval.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Bar {
    /// Nobody answered.
    Gap,
    /// There was nothing to measure.
    Nothing,
    /// How high, and how high the part at the bottom.
    Of { part: f64, all: f64 },
}

/// How a part of a bar is drawn, with colours and without.
#[derive(Clone, Copy)]
struct Paint {
    style: Style,
    /// What fills a row where there are no colours; nothing for eighths of it.
    plain: Option<&'static str>,
}

struct Plot {
    bars: Vec<Bar>,
    /// The height of the plot, and how it is called.
    most: f64,
    label: String,
    part: Paint,
    all: Paint,
}

pub(super) fn throughput(scene: &Scene<'_>, model: &Model, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let theme = scene.theme;
    let legend = match model.latest().and_then(|point| point.rate()) {
        Some((all, failed)) => format!("runs {}, {} failed", rate(all), rate(failed)),
        None => "runs a second".to_owned(),
    };
    let bar = |point: Point| match point.rate() {
        Some((all, failed)) => Bar::Of { part: failed, all },
        None => Bar::Gap,
    };
    let scale = |most: f64| {
        let most = ceiling(most, 1.0);
        (most, rate(most).replace(".0", ""))
    };
    let paints = [Paint { style: theme.bad(), plain: Some("▒") }, Paint { style: theme.good(), plain: None }];
    draw(scene, model, (Pane::Throughput.name(), &legend), (bar, scale, paints), block, area, buf);
}

pub(super) fn latency(scene: &Scene<'_>, model: &Model, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let (measure, theme) = (scene.state.measure, scene.theme);
    // The last interval in which something ended, as long as it is seen.
    let last = model.newest(usize::from(area.width)).rev().find_map(|point| point.time(measure));
    let legend = match (measure, last) {
        (Measure::Took, Some(time)) => format!("took p50 {}, p99 {}", span(time.p50), span(time.p99)),
        (Measure::Waited, Some(time)) => format!("wait p50 {}, p99 {}", span(time.p50), span(time.p99)),
        (Measure::Took, None) => "how long runs take".to_owned(),
        (Measure::Waited, None) => "how long runs wait".to_owned(),
    };
    let bar = |point: Point| match (point.interval, point.time(measure)) {
        (None, _) => Bar::Gap,
        (_, None) => Bar::Nothing,
        (_, Some(took)) => Bar::Of { part: took.p50.as_secs_f64(), all: took.p99.as_secs_f64() },
    };
    let scale = |most: f64| {
        if most <= 0.0 {
            return (1.0, "0".to_owned());
        }
        let most = ceiling(most, 1e-6);
        (most, span(Duration::from_secs_f64(most.min(1e9))).replace(".0", ""))
    };
    let paints = [Paint { style: theme.accent(), plain: None }, Paint { style: theme.warn(), plain: Some("░") }];
    draw(scene, model, (Pane::Latency.name(), &legend), (bar, scale, paints), block, area, buf);
}

fn draw(
    scene: &Scene<'_>,
    model: &Model,
    (name, legend): (&str, &str),
    (bar, scale, [part, all]): (impl Fn(Point) -> Bar, impl Fn(f64) -> (f64, String), [Paint; 2]),
    block: Block<'_>,
    area: Rect,
    buf: &mut Buffer,
) {
    let inner = block.inner(area);
    let tallest = |bars: &[Bar]| {
        bars.iter().fold(0.0, |most: f64, bar| if let Bar::Of { all, .. } = bar { most.max(*all) } else { most })
    };
    // The label's width says how many columns are left, and those say which label: as many as could be there.
    let points: Vec<Point> = model.newest(usize::from(inner.width)).collect();
    let bars: Vec<Bar> = points.iter().map(|point| bar(*point)).collect();
    let (most, label) = scale(tallest(&bars));
    let gutter = (width(&label) + 1).min(usize::from(inner.width));
    let columns = usize::from(inner.width) - gutter;
    let skipped = bars.len().saturating_sub(columns);
    let seen: Duration = points[skipped..].iter().map(|point| point.span).sum();
    let room = usize::from(area.width).saturating_sub(name.len() + 8);
    let mut block = block.title(Line::from(Span::raw(format!(" {} ", fit(legend, room)))).right_aligned());
    if !bars.is_empty() {
        block = block.title_bottom(Line::styled(format!(" {} ago ", age(seen)), scene.theme.dim()));
        block = block.title_bottom(Line::styled(" now ", scene.theme.dim()).right_aligned());
    }
    block.render(area, buf);
    if inner.is_empty() {
        return;
    }
    let plot = Plot { bars: bars[skipped..].to_vec(), most, label, part, all };
    plot.draw(scene, inner, gutter, buf);
}

impl Plot {
    fn draw(&self, scene: &Scene<'_>, area: Rect, gutter: usize, buf: &mut Buffer) {
        let dim = scene.theme.dim();
        let gutter = u16::try_from(gutter).unwrap_or(u16::MAX).min(area.width);
        line(&Line::styled(fit(&self.label, usize::from(gutter)), dim), Rect { width: gutter, height: 1, ..area }, buf);
        if area.height > 1 {
            let zero = Rect { y: area.bottom() - 1, width: gutter, height: 1, ..area };
            line(
                &Line::styled(format!("{:>1$}", 0, self.label.chars().count().min(usize::from(gutter))), dim),
                zero,
                buf,
            );
        }
        if self.bars.is_empty() {
            let place = Rect { x: area.x + gutter, width: area.width - gutter, height: 1, ..area };
            line(
                &Line::styled(fit("the plot begins with the second answer", usize::from(place.width)), dim),
                place,
                buf,
            );
        }
        let count = u16::try_from(self.bars.len()).unwrap_or(u16::MAX).min(area.width - gutter);
        for (x, bar) in (area.right() - count..area.right()).zip(&self.bars) {
            self.draw_bar(*bar, scene, Rect { x, width: 1, ..area }, buf);
        }
    }

    fn draw_bar(&self, bar: Bar, scene: &Scene<'_>, place: Rect, buf: &mut Buffer) {
        let (part, all) = match bar {
            Bar::Nothing => return,
            Bar::Gap => {
                if let Some(cell) = buf.cell_mut((place.x, place.bottom() - 1)) {
                    cell.set_symbol("·").set_style(scene.theme.dim());
                }
                return;
            }
            Bar::Of { part, all } => (eighths(part, self.most, place.height), eighths(all, self.most, place.height)),
        };
        for (row, y) in (place.y..place.bottom()).rev().enumerate() {
            // How much of this row each has.
            let of_row = |height: usize| height.saturating_sub(row * 8).min(8);
            let (part, all) = (of_row(part.min(all)), of_row(all));
            let Some(cell) = buf.cell_mut((place.x, y)) else { continue };
            if all == 0 {
                return;
            }
            let (symbol, style) = self.cell(part, all, scene.theme.is_coloured);
            cell.set_symbol(symbol).set_style(style);
        }
    }

    /// A row of a bar, of which so many eighths are the part, and so many all of it.
    fn cell(&self, part: usize, all: usize, is_coloured: bool) -> (&'static str, Style) {
        let (inner, outer) = (self.part, self.all);
        match is_coloured {
            true if part == 0 => (EIGHTHS[all], outer.style),
            true if part == all => (EIGHTHS[part], inner.style),
            true if all == 8 => (EIGHTHS[part], inner.style.patch(Style { bg: outer.style.fg, ..Style::new() })),
            // Three things do not fit into a row: what there is more of is shown.
            true => (EIGHTHS[all], if part * 2 >= all { inner.style } else { outer.style }),
            false if part * 2 >= all => (inner.plain.unwrap_or(EIGHTHS[part]), inner.style),
            false => (outer.plain.unwrap_or(EIGHTHS[all]), outer.style),
        }
    }
}

/// How many eighths of rows something is high; at least one if it is anything.
fn eighths(height: f64, most: f64, rows: u16) -> usize {
    if height <= 0.0 || most <= 0.0 {
        return 0;
    }
    let all = f64::from(rows) * 8.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between one and the height of a screen"
    )]
    let found = (height / most * all).round().clamp(1.0, all) as usize;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_what_they_stand_for() {
        assert_eq!([0.0, 0.01, 1.0, 50.0, 100.0, 1e9].map(|height| eighths(height, 100.0, 4)), [0, 1, 1, 16, 32, 32]);
        assert_eq!((eighths(1.0, 0.0, 4), eighths(f64::NAN, 1.0, 4)), (0, 0));
    }
}
