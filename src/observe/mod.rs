//! What an operator sees: the log, the counters and latencies, the page of metrics, the stalls.
//!
//! What it is not: nothing here decides anything, and nothing here blocks an executor.

mod catalog;
mod counters;
mod latency;
mod log;
mod page;
mod stalls;
mod traffic;

pub use catalog::{family, markdown, Family, Kind, CATALOG};
pub use counters::{Counters, CountersSnapshot, API_KEYS};
pub use latency::{Latencies, LatenciesSnapshot, Latency, LatencySnapshot, Stage};
pub use log::{log_levels, start_log, LogError, LogGuard, FILTER_VARIABLE};
pub use page::{plain_text, Page, CONTENT_TYPE, PLAIN_CONTENT_TYPE};
pub use stalls::{Stall, Stalls, Total, Work, STALLS_MAX};
pub use traffic::{Traffic, TrafficSnapshot};
