//! Clients: they put a load on a target and measure what comes of it.

pub mod librdkafka;
pub mod native;
pub mod nats;
mod progress;
pub mod records;
pub mod redis;
mod single;

use crate::measure::Measured;
use crate::stop::Stop;
use crate::target::{Endpoint, Protocol};
use crate::workload::{Case, DriverName, LoadPoint, Timing};
use anyhow::{bail, Result};

/// One measurement, as a driver gets it.
pub struct Job<'a> {
    pub endpoint: &'a Endpoint,
    pub case: &'a Case,
    pub load: &'a LoadPoint,
    /// Records a second, from the load's rate or share; `None` at saturation.
    pub rate: Option<f64>,
    /// Exist already, with the partitions of the case.
    pub topics: &'a [String],
    pub timing: &'a Timing,
    /// The CPUs of the client's threads, one each; empty: any, with one thread.
    pub cpus: &'a [usize],
    pub stop: &'a Stop,
    /// Called once at the start and once at the end of the measured time, so that what the broker's process took is
    /// read at these moments. It takes less than a millisecond.
    pub on_measure: &'a (dyn Fn(Edge) + Sync),
}

/// An end of the measured time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    Start,
    End,
}

/// A client library, or a protocol.
pub trait Driver {
    /// Runs warm-up and measured time.
    ///
    /// Ends early, with an error, when the broker answers an error, a connection ends, nothing is answered for a
    /// minute, or a stop is asked for.
    fn run(&self, job: &Job<'_>) -> Result<Measured>;
}

/// The client of a protocol; for Kafka's, the library that is asked for.
pub fn for_job(protocol: Protocol, name: DriverName) -> Result<Box<dyn Driver>> {
    Ok(match (protocol, name) {
        (Protocol::Kafka, DriverName::Native) => Box::new(native::Native::default()),
        (Protocol::Kafka, DriverName::Librdkafka) => Box::new(librdkafka::LibrdkafkaDriver),
        (Protocol::Nats, DriverName::Native) => Box::new(nats::NatsDriver),
        (Protocol::Redis, DriverName::Native) => Box::new(redis::RedisDriver),
        (Protocol::Nats | Protocol::Redis, DriverName::Librdkafka) => {
            bail!("librdkafka speaks Kafka's protocol only")
        }
    })
}
