//! What is measured: brokers that are started here, and brokers that run somewhere.

pub mod admin;
pub mod cgroup;
pub mod cold;
pub mod cost;
pub mod external;
#[cfg(test)]
pub mod fake;
pub mod floor;
pub mod highwater;
pub mod kafka;
mod kafka_settings;
pub mod listener;
pub mod memory;
pub mod nats;
mod parse;
#[cfg(test)]
mod peers_tests;
pub mod redis;
mod single;
pub mod spawn;

pub use parse::{parse, Options};

use crate::workload::{Case, TopicPlan};
use anyhow::Result;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a target is, and how it is spoken to.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    pub protocol: Protocol,
    pub addr: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Kafka,
    Nats,
    Redis,
}

/// What every target of a run gets alike.
#[derive(Debug, Clone)]
pub struct Share {
    /// Below it each target makes a directory of its own, which it removes at the end.
    pub dir: PathBuf,
    /// The CPUs of the broker; empty: any.
    pub cpus: Vec<usize>,
    /// Bytes of memory of the broker's process, page cache included; 0: no limit.
    pub memory: u64,
}

/// A broker, or what stands in for one.
///
/// Dropped, it ends what it started and removes what it made.
pub trait Target {
    /// As in tables: `highwater`.
    fn name(&self) -> &str;

    /// Its version and settings, in a line for the report.
    fn describe(&self) -> String;

    /// Why a case cannot be measured on it, in a few words; `None` if it can.
    fn lacks(&self, case: &Case) -> Option<String>;

    /// Whether it runs on this machine because of the run, and takes its CPUs, memory and disk.
    fn is_started_here(&self) -> bool {
        true
    }

    /// Says in one sentence what is missing, before anything starts.
    fn check(&self) -> Result<()>;

    /// Says in one sentence why this share is too small for it, before anything starts.
    fn check_share(&self, _: &Share) -> Result<()> {
        Ok(())
    }

    /// Starts it; how long it took until it listened. A target that runs anyway only connects.
    fn start(&mut self, share: &Share) -> Result<Duration>;

    fn endpoint(&self) -> Result<Endpoint>;

    /// Its process, if it can be seen from here.
    fn pid(&self) -> Option<u32>;

    /// Where its data lies, if it can be seen from here.
    fn data_dir(&self) -> Option<&Path>;

    /// Makes a topic and waits until it can be used.
    fn create_topic(&self, name: &str, plan: &TopicPlan) -> Result<()>;

    fn delete_topic(&self, name: &str) -> Result<()>;

    /// Stops it cleanly and keeps its data; how long that took.
    fn stop(&mut self) -> Result<Duration>;

    /// Ends it with SIGKILL and keeps its data.
    fn kill(&mut self) -> Result<()>;
}
