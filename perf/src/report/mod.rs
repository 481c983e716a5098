//! From results to what people read: tables for the terminal, a page with plots, comparisons of two runs.

mod columns;
pub mod store;

pub use columns::{columns, head, histogram, percentile_us, row, PERCENTILES};
