//! From results to what people read: tables for the terminal, a page with plots, comparisons of two runs.
//!
//! Data flow: `store` reads the file, `summary` makes rows of it (with `metrics` and `goals`), `terminal`, `html`
//! (with `plots` and `svg`) and `compare` show them.

mod columns;
mod command;
pub mod compare;
mod goals;
pub mod html;
mod metrics;
mod overview;
mod plots;
#[cfg(test)]
mod sample;
pub mod store;
pub mod summary;
mod svg;
pub mod terminal;
mod text;

pub use columns::{columns, head, row};
pub use command::{run, show, ReportArgs};
