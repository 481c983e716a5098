//! Counts the operations of one cell.

use super::{Part, Plan};
use crate::measure::Recorder;
use anyhow::Result;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What was measured of one kind of work.
#[derive(Debug, Serialize)]
pub struct Cell {
    pub part: Part,
    /// `4 KiB, 1 file, overwritten, depth 1, linked flush`.
    pub name: String,
    pub latency: Recorder,
    pub operations: u64,
    pub bytes: u64,
    /// In which these operations ended.
    pub seconds: f64,
}

/// A warm-up of a tenth, then the measured time.
pub struct Meter<'a> {
    plan: &'a Plan,
    part: Part,
    name: String,
    start: Instant,
    warm: Duration,
    paused: Duration,
    latency: Recorder,
    operations: u64,
    bytes: u64,
    last: Duration,
}

impl<'a> Meter<'a> {
    pub fn start(plan: &'a Plan, part: Part, name: String) -> Meter<'a> {
        Meter {
            plan,
            part,
            name,
            start: Instant::now(),
            warm: plan.time / 10,
            paused: Duration::ZERO,
            latency: Recorder::default(),
            operations: 0,
            bytes: 0,
            last: Duration::ZERO,
        }
    }

    /// Whether the time is not over, or nothing was measured yet; an error once a stop is asked for.
    pub fn goes_on(&self) -> Result<bool> {
        self.plan.stop.check()?;
        Ok(self.operations == 0 || self.now() < self.warm + self.plan.time)
    }

    /// An operation that has just ended, and when it began or was due.
    pub fn took(&mut self, begun: Instant, bytes: usize) {
        let now = self.now();
        if let Some(at) = now.checked_sub(self.warm) {
            self.latency.record(at, begun.elapsed());
            self.operations += 1;
            self.bytes += bytes as u64;
            self.last = at;
        }
    }

    /// Does what does not count: nothing is in flight meanwhile.
    pub fn pause(&mut self, what: impl FnOnce() -> Result<()>) -> Result<()> {
        let begun = Instant::now();
        what()?;
        self.paused += begun.elapsed();
        Ok(())
    }

    /// Since the start, less what does not count.
    fn now(&self) -> Duration {
        self.start.elapsed().saturating_sub(self.paused)
    }

    pub fn cell(self) -> Cell {
        Cell {
            part: self.part,
            name: self.name,
            latency: self.latency,
            operations: self.operations,
            bytes: self.bytes,
            seconds: self.last.as_secs_f64(),
        }
    }
}

impl Cell {
    pub fn per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.operations as f64 / self.seconds
        } else {
            0.0
        }
    }

    pub fn mb_per_second(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes as f64 / self.seconds / 1e6
        } else {
            0.0
        }
    }
}
