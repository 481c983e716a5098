//! Columns of plain figures for the terminal.

use crate::measure::PERCENTILES;

/// One row: name, then each percentile or a dash.
pub fn row(name: &str, values: impl IntoIterator<Item = Option<f64>>) {
    print!("{name:<28}");
    for value in values {
        match value {
            Some(value) => print!("{value:>12.1}"),
            None => print!("{:>12}", "-"),
        }
    }
    println!();
}

/// The head of the table.
pub fn head() {
    print!("{:<28}", "");
    for percentile in PERCENTILES {
        print!("{:>12}", format!("p{percentile}"));
    }
    println!();
}

/// The head of a table with columns of its own.
pub fn columns(name: &str, columns: &[&str]) {
    print!("{name:<28}");
    for column in columns {
        print!("{column:>12}");
    }
    println!();
}
