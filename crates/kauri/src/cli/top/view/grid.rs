//! Columns as wide as what is in them, and what gives way where there is too little room.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::super::text::{fit, fit_end, width};
use super::Theme;

/// How the cells of a column are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Beginning at the left.
    Text,
    /// Ending at the right.
    Number,
    /// As wide as there is room; cut at its end.
    Flexible,
    /// The same, cut at its beginning.
    FlexibleEnd,
}

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// It gives way where flexible columns would have less room than this: those with the greatest number first, 0 never.
    pub(super) leaves: usize,
    pub(super) cells: Vec<String>,
}

impl Column {
    pub(super) const fn new(name: &'static str, kind: Kind, leaves: usize, cells: Vec<String>) -> Self {
        Self { name, kind, leaves, cells }
    }

    fn natural(&self) -> usize {
        self.cells.iter().map(|cell| width(cell)).chain([self.name.len()]).max().unwrap_or(0)
    }

    const fn is_flexible(&self) -> bool {
        matches!(self.kind, Kind::Flexible | Kind::FlexibleEnd)
    }

    fn cell(&self, text: &str, columns: usize) -> String {
        let text = if self.kind == Kind::FlexibleEnd { fit_end(text, columns) } else { fit(text, columns) };
        let space = " ".repeat(columns - width(&text));
        if self.kind == Kind::Number { space + &text } else { text + &space }
    }
}

/// Rows under the names of their columns.
pub(super) struct Grid {
    pub(super) columns: Vec<Column>,
    /// How each row is drawn.
    pub(super) styles: Vec<Style>,
    pub(super) selected: Option<usize>,
}

impl Grid {
    /// Draws as many rows as there is room for, the selected one among them.
    pub(super) fn draw(mut self, theme: Theme, area: Rect, buf: &mut Buffer) {
        let room = usize::from(area.width);
        self.make_fit(room);
        let widths = self.widths(room);
        let mut places = area.rows();
        if let Some(place) = places.next() {
            let names = self.row(&widths, |column| column.name);
            super::line(&Line::styled(fit(&names, room), theme.dim().add_modifier(Modifier::BOLD)), place, buf);
        }
        let shown = usize::from(area.height.saturating_sub(1));
        let first = self.selected.map_or(0, |at| (at + 1).saturating_sub(shown));
        for (place, (at, style)) in places.zip(self.styles.iter().enumerate().skip(first)) {
            let text = self.row(&widths, |column| column.cells.get(at).map_or("", String::as_str));
            let style = if self.selected == Some(at) { style.add_modifier(Modifier::REVERSED) } else { *style };
            super::line(&Line::raw(fit(&text, room)), place, buf);
            // The whole row, so that it is seen as one.
            buf.set_style(place, style);
        }
    }

    fn row<'a>(&'a self, widths: &[usize], cell: impl Fn(&'a Column) -> &'a str) -> String {
        let cells = self.columns.iter().zip(widths).map(|(column, width)| column.cell(cell(column), *width));
        cells.collect::<Vec<_>>().join(" ")
    }

    fn make_fit(&mut self, room: usize) {
        loop {
            let left = self.left(room);
            let wanted: usize = self.columns.iter().filter(|column| column.is_flexible()).map(Column::natural).sum();
            let pressed = |column: &Column| left.is_none_or(|left| left < column.leaves.min(wanted));
            let goes = self.columns.iter().enumerate().filter(|(_, column)| column.leaves > 0 && pressed(column));
            let Some((at, _)) = goes.max_by_key(|(_, column)| column.leaves) else { return };
            self.columns.remove(at);
        }
    }

    /// What others leave to the flexible columns; nothing if there is not even room for the others.
    fn left(&self, room: usize) -> Option<usize> {
        let fixed: usize = self.columns.iter().filter(|column| !column.is_flexible()).map(Column::natural).sum();
        room.checked_sub(fixed + self.columns.len().saturating_sub(1))
    }

    fn widths(&self, room: usize) -> Vec<usize> {
        let mut left = self.left(room).unwrap_or(0);
        let mut widths = Vec::new();
        let mut flexible = self.columns.iter().filter(|column| column.is_flexible()).count();
        for column in &self.columns {
            if !column.is_flexible() {
                widths.push(column.natural());
                continue;
            }
            // The last of them has what the others leave.
            flexible -= 1;
            let rest = if flexible == 0 { left } else { left / (flexible + 1) };
            let mine = column.natural().min(rest);
            left -= mine;
            widths.push(mine);
        }
        widths
    }
}
