//! Tables for people, JSON for scripts.
//!
//! What a broker or a client wrote may hold anything, so a cell's control characters are escaped: they cannot steer a
//! terminal or break a line.

use std::fmt;
use std::io::{self, Write};

use serde_json::Value;

use super::CliError;

/// Rows below headings; columns of numbers are aligned to the right.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const N: usize>(headings: [&str; N]) -> Table {
        Table {
            rows: vec![headings.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row of as many cells as there are headings.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.rows[0].len());
        self.rows.push(cells.map(|cell| shown(&cell)).to_vec());
    }

    fn is_numeric(&self, column: usize) -> bool {
        let mut cells = self.rows[1..].iter().map(|row| row[column].as_str());
        cells.all(|cell| cell == "-" || cell.parse::<f64>().is_ok())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |c: usize| self.rows.iter().map(|row| row[c].chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        let numeric: Vec<bool> = (0..columns).map(|c| self.is_numeric(c)).collect();
        for row in &self.rows {
            for (c, cell) in row.iter().enumerate() {
                let gap = if c == 0 { "" } else { "  " };
                let width = widths[c];
                match (numeric[c], c + 1 == columns) {
                    (true, _) => write!(f, "{gap}{cell:>width$}")?,
                    // No blanks at the end of a line.
                    (false, true) => write!(f, "{gap}{cell}")?,
                    (false, false) => write!(f, "{gap}{cell:<width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Text without control characters; an empty one is a dash.
pub(super) fn shown(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Numbers as one cell: `1,2,3`.
pub(super) fn list(numbers: &[i32]) -> String {
    let texts: Vec<String> = numbers.iter().map(i32::to_string).collect();
    texts.join(",")
}

/// `1 record`, `2 records`.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Prints one JSON document.
pub(super) fn print_json(value: &Value) -> Result<(), CliError> {
    print(&format!("{value:#}\n"))
}

/// Prints text on standard output, at once.
pub(super) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_stand_to_the_right() {
        let mut table = Table::new(["TOPIC", "COUNT", "NOTE"]);
        table.row(["a".into(), "12345678".into(), "x".into()]);
        table.row(["longer-name".into(), "-".into(), "".into()]);
        assert_eq!(
            table.to_string(),
            "TOPIC           COUNT  NOTE\n\
             a            12345678  x\n\
             longer-name         -  -\n"
        );
    }

    #[test]
    fn a_cell_cannot_steer_a_terminal() {
        let mut table = Table::new(["A"]);
        table.row(["\x1b[2J\nü".into()]);
        assert_eq!(table.to_string(), "A\n\\u{1b}[2J\\nü\n");
    }
}
