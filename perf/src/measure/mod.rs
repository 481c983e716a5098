//! Latencies and counts of one measurement.

mod recorder;

pub use recorder::{Recorder, Second, PERCENTILES};

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// What a driver measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// From the time at which a record was due (at saturation: was sent) to its acknowledgement.
    pub acknowledged: Recorder,
    /// From the time at which a record was due (at saturation: was sent) to the consumer that has it; one sample for
    /// each set of consumers.
    pub delivered: Recorder,
    /// How much later than due a record left: the client's own delay, and that of its window. None at saturation.
    pub schedule_delay: Recorder,
    /// Acknowledged within the measured time.
    pub produced: Moved,
    /// Consumed within the measured time, by all sets together.
    pub consumed: Moved,
    /// The part of the measured time in which the busiest thread of the client had work, 0 to 1; near 1 the client
    /// itself may be the limit. None where the driver cannot tell.
    pub client_busy: Option<f64>,
    /// Records that were due within the measured time and were not acknowledged when the driver had waited for answers
    /// for a while after its end (the native driver: five seconds): the broker did not keep up, and no latency is known
    /// of them.
    pub unacknowledged: u64,
    /// Seconds from the start of late consumers to the moment at which they had caught up; of a drain.
    pub drained_after_s: Option<f64>,
}

/// Records and bytes, and how long they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    pub records: u64,
    /// Of record values.
    pub bytes: u64,
    /// Requests that carried records: produce requests, or fetches that found something.
    pub requests: u64,
    pub seconds: f64,
}

impl Moved {
    pub fn records_per_second(&self) -> f64 {
        per_second(self.records, self.seconds)
    }

    /// 1 MB is a million bytes.
    pub fn mb_per_second(&self) -> f64 {
        per_second(self.bytes, self.seconds) / 1e6
    }

    /// Adds what another thread moved in the same time.
    pub fn add(&mut self, other: &Moved) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.seconds = self.seconds.max(other.seconds);
    }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        count as f64 / seconds
    } else {
        0.0
    }
}

impl Measured {
    /// Adds what another thread measured in the same time.
    pub fn merge(&mut self, other: &Measured) -> Result<()> {
        self.acknowledged.merge(&other.acknowledged)?;
        self.delivered.merge(&other.delivered)?;
        self.schedule_delay.merge(&other.schedule_delay)?;
        self.produced.add(&other.produced);
        self.consumed.add(&other.consumed);
        self.unacknowledged += other.unacknowledged;
        self.client_busy = larger(self.client_busy, other.client_busy);
        self.drained_after_s = larger(self.drained_after_s, other.drained_after_s);
        Ok(())
    }
}

fn larger(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}
