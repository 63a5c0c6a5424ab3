//! A table of words for the terminal: columns as wide as their widest cell.

use std::fmt;

pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(head: [&str; N]) -> Table {
        Table { rows: vec![head.map(String::from).to_vec()] }
    }

    pub(crate) fn push<const N: usize>(&mut self, row: [String; N]) {
        assert_eq!(N, self.rows[0].len(), "a row has as many cells as the head");
        self.rows.push(row.into());
    }

    fn width(&self, column: usize) -> usize {
        self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let cells = row.iter().enumerate().map(|(column, cell)| format!("{cell:<0$}", self.width(column)));
            writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["step", "seconds"]);
        table.push(["clippy".to_owned(), "1.5".to_owned()]);
        assert_eq!(table.to_string(), "  step    seconds\n  clippy  1.5\n");
    }
}
