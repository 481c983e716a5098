//! What an operator sees: the log and the counters.
//!
//! What it is not: nothing here decides anything, and nothing here blocks an executor.

mod counters;
mod log;

pub use counters::{Counters, CountersSnapshot, API_KEYS};
pub use log::{start_log, LogError, LogGuard, FILTER_VARIABLE};
