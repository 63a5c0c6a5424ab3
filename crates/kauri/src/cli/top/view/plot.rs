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

/// What heights mean: equal steps, or times ten with each step, as times from microseconds to hours need it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Scale {
    Linear {
        most: f64,
    },
    /// From which power of ten to which.
    Decades {
        from: i32,
        to: i32,
    },
}

impl Scale {
    fn linear(bars: &[Bar]) -> Self {
        let most = heights(bars).fold(0.0, |most: f64, (_, all)| most.max(all));
        Self::Linear { most: ceiling(most) }
    }

    /// From the decade of the least to that of the greatest; from milliseconds to seconds where there is nothing.
    fn decades(bars: &[Bar]) -> Self {
        let least = heights(bars).map(|(part, _)| part).fold(f64::INFINITY, f64::min);
        let most = heights(bars).map(|(_, all)| all).fold(0.0, f64::max);
        if !least.is_finite() {
            return Self::Decades { from: -3, to: 0 };
        }
        let from = power(least.max(1e-9), f64::floor);
        Self::Decades { from, to: power(most.max(1e-9), f64::ceil).max(from + 1) }
    }

    /// How high something is, of 1.
    fn part(self, height: f64) -> f64 {
        match self {
            Self::Linear { most } => height / most,
            Self::Decades { from, to } => (height.log10() - f64::from(from)) / f64::from(to - from),
        }
    }

    /// What stands beside the plot, and how high, of 1: the top first.
    fn labels(self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { most } => vec![(1.0, rate(most).replace(".0", "") + "/s"), (0.0, "0".to_owned())],
            Self::Decades { from, to } => {
                (from..=to).rev().map(|at| (self.part(10_f64.powi(at)), decade(at))).collect()
            }
        }
    }
}

fn heights(bars: &[Bar]) -> impl Iterator<Item = (f64, f64)> + '_ {
    bars.iter().filter_map(|bar| if let Bar::Of { part, all } = bar { Some((*part, *all)) } else { None })
}

fn power(number: f64, round: fn(f64) -> f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "between those of a nanosecond and of a century")]
    let found = round(number.log10()).clamp(-9.0, 10.0) as i32;
    found
}

/// A power of ten seconds, from that of a nanosecond on.
fn decade(power: i32) -> String {
    let nanos = u32::try_from(power + 9).ok().and_then(|power| 10_u64.checked_pow(power));
    span(nanos.map_or(Duration::MAX, Duration::from_nanos)).replace(".0", "")
}

struct Plot {
    bars: Vec<Bar>,
    scale: Scale,
    part: Paint,
    all: Paint,
}

pub(super) fn throughput(scene: &Scene<'_>, model: &Model, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let theme = scene.theme;
    let legend = match model.latest().and_then(|point| point.rate()) {
        Some((all, failed)) => vec![
            (format!("{} runs/s", rate(all)), theme.good()),
            (", ".to_owned(), Style::new()),
            (format!("{} failed", rate(failed)), if failed > 0.0 { theme.bad() } else { Style::new() }),
        ],
        None => vec![("runs a second".to_owned(), Style::new())],
    };
    let bar = |point: Point| match point.rate() {
        Some((all, failed)) => Bar::Of { part: failed, all },
        None => Bar::Gap,
    };
    let paints = [Paint { style: theme.bad(), plain: Some("▒") }, Paint { style: theme.good(), plain: None }];
    draw(scene, model, (Pane::Throughput.name(), legend), (bar, Scale::linear), paints, (block, area), buf);
}

pub(super) fn latency(scene: &Scene<'_>, model: &Model, block: Block<'_>, area: Rect, buf: &mut Buffer) {
    let (measure, theme) = (scene.state.measure, scene.theme);
    // The last interval in which something ended, as long as it is seen.
    let last = model.newest(usize::from(area.width)).rev().find_map(|point| point.time(measure));
    let words = match measure {
        Measure::Took => ("took ", "how long runs take"),
        Measure::Waited => ("wait ", "how long runs wait"),
    };
    let legend = match last {
        Some(time) => vec![
            (words.0.to_owned(), Style::new()),
            (format!("p50 {}", span(time.p50)), theme.accent()),
            (", ".to_owned(), Style::new()),
            (format!("p99 {}", span(time.p99)), theme.calm()),
        ],
        None => vec![(words.1.to_owned(), Style::new())],
    };
    let bar = |point: Point| match (point.interval, point.time(measure)) {
        (None, _) => Bar::Gap,
        (_, None) => Bar::Nothing,
        (_, Some(took)) => Bar::Of { part: took.p50.as_secs_f64(), all: took.p99.as_secs_f64() },
    };
    let paints = [Paint { style: theme.accent(), plain: None }, Paint { style: theme.calm(), plain: Some("░") }];
    draw(scene, model, (Pane::Latency.name(), legend), (bar, Scale::decades), paints, (block, area), buf);
}

fn draw(
    scene: &Scene<'_>,
    model: &Model,
    (name, legend): (&str, Vec<(String, Style)>),
    (bar, scale): (impl Fn(Point) -> Bar, fn(&[Bar]) -> Scale),
    [part, all]: [Paint; 2],
    (block, area): (Block<'_>, Rect),
    buf: &mut Buffer,
) {
    let inner = block.inner(area);
    // The labels' width says how many columns are left, and those say which labels: as many as could be there.
    let points: Vec<Point> = model.newest(usize::from(inner.width)).collect();
    let bars: Vec<Bar> = points.iter().map(|point| bar(*point)).collect();
    let scale = scale(&bars);
    let labels = scale.labels();
    let gutter = labels.iter().map(|(_, label)| width(label) + 1).max().unwrap_or(0).min(usize::from(inner.width));
    let columns = usize::from(inner.width) - gutter;
    let skipped = bars.len().saturating_sub(columns);
    let seen: Duration = points[skipped..].iter().map(|point| point.span).sum();
    let mut block = block.title(legend_line(legend, usize::from(area.width).saturating_sub(name.len() + 8)));
    if !bars.is_empty() {
        block = block.title_bottom(Line::styled(format!(" {} ago ", age(seen)), scene.theme.dim()));
        block = block.title_bottom(Line::styled(" now ", scene.theme.dim()).right_aligned());
    }
    block.render(area, buf);
    if inner.is_empty() {
        return;
    }
    let plot = Plot { bars: bars[skipped..].to_vec(), scale, part, all };
    plot.draw(scene, inner, gutter, buf);
}

/// What was measured last, in the colours of what is plotted, as far as there is room.
fn legend_line<'a>(legend: Vec<(String, Style)>, mut room: usize) -> Line<'a> {
    let mut spans = vec![Span::raw(" ")];
    for (words, style) in legend {
        let words = fit(&words, room);
        room -= width(&words);
        spans.push(Span::styled(words, style));
    }
    spans.push(Span::raw(" "));
    Line::from(spans).right_aligned()
}

impl Plot {
    fn draw(&self, scene: &Scene<'_>, area: Rect, gutter: usize, buf: &mut Buffer) {
        let dim = scene.theme.dim();
        let gutter = u16::try_from(gutter).unwrap_or(u16::MAX).min(area.width);
        let mut taken = None;
        for (part, label) in self.scale.labels() {
            let y = area.bottom() - 1 - row_of(part, area.height);
            let label = format!("{label:>0$} ", usize::from(gutter).saturating_sub(1));
            if taken != Some(y) {
                let place = Rect { y, width: gutter, height: 1, ..area };
                line(&Line::styled(fit(&label, usize::from(gutter)), dim), place, buf);
            }
            taken = Some(y);
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
            Bar::Of { part, all } => (self.eighths(part, place.height), self.eighths(all, place.height)),
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

    /// How many eighths of rows something is high; at least one if it is anything.
    fn eighths(&self, height: f64, rows: u16) -> usize {
        if height > 0.0 { eighths(self.scale.part(height), rows) } else { 0 }
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

/// The row at this height of so many, from below.
fn row_of(part: f64, rows: u16) -> u16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than the height of a screen")]
    let row = (part.clamp(0.0, 1.0) * f64::from(rows.saturating_sub(1))).round() as u16;
    row
}

/// How many eighths of rows this part of them is; at least one.
fn eighths(part: f64, rows: u16) -> usize {
    let all = f64::from(rows) * 8.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between one and the height of a screen"
    )]
    let found = (part * all).round().clamp(1.0, all.max(1.0)) as usize;
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale_of(times: &[(f64, f64)], scale: fn(&[Bar]) -> Scale) -> Scale {
        scale(&times.iter().map(|(part, all)| Bar::Of { part: *part, all: *all }).collect::<Vec<_>>())
    }

    #[test]
    fn bars_are_as_high_as_what_they_stand_for() {
        let scale = scale_of(&[(0.0, 80.0)], Scale::linear);
        assert_eq!(scale, Scale::Linear { most: 100.0 });
        assert_eq!([0.01, 1.0, 50.0, 100.0, 1e9].map(|height| eighths(scale.part(height), 4)), [1, 1, 16, 32, 32]);
        assert_eq!(eighths(f64::NAN, 4), 0);
    }

    #[test]
    fn times_have_a_scale_of_decades_around_them() {
        let scale = scale_of(&[(0.012, 0.2), (0.05, 7.9)], Scale::decades);
        assert_eq!(scale, Scale::Decades { from: -2, to: 1 });
        assert_eq!(
            scale.labels().iter().map(|(_, label)| &**label).collect::<Vec<_>>(),
            ["10s", "1s", "100ms", "10ms"]
        );
        assert!((scale.part(0.1) - 1.0 / 3.0).abs() < 1e-9);
        let labels = |from| (from..from + 3).map(decade).collect::<Vec<_>>();
        assert_eq!(
            (labels(-9), labels(-6), labels(-3)),
            (
                ["1ns", "10ns", "100ns"].map(str::to_owned).to_vec(),
                ["1µs", "10µs", "100µs"].map(str::to_owned).to_vec(),
                ["1ms", "10ms", "100ms"].map(str::to_owned).to_vec(),
            )
        );
        assert_eq!(scale_of(&[(0.1, 0.1)], Scale::decades), Scale::Decades { from: -1, to: 0 });
        assert_eq!(scale_of(&[], Scale::decades), Scale::Decades { from: -3, to: 0 });
        assert_eq!(scale_of(&[(0.0, 1e300)], Scale::decades), Scale::Decades { from: -9, to: 10 });
    }
}
