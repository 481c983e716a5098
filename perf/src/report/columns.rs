//! Columns of plain figures for the terminal; percentiles only where enough samples lie beyond them.

use hdrhistogram::Histogram;

/// Samples that must lie beyond a percentile before it is printed.
const BEYOND_MIN: f64 = 100.0;
/// The percentiles of a report.
pub const PERCENTILES: [f64; 4] = [50.0, 99.0, 99.9, 99.99];

/// Latencies in nanoseconds, up to a minute, three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid")
}

/// A percentile in microseconds, if the histogram holds enough samples for it.
pub fn percentile_us(histogram: &Histogram<u64>, percentile: f64) -> Option<f64> {
    let beyond = histogram.len() as f64 * (100.0 - percentile) / 100.0;
    (beyond >= BEYOND_MIN).then(|| histogram.value_at_percentile(percentile) as f64 / 1e3)
}

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
