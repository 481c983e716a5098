//! What was measured, as the JSON file that a run writes, goes on from, and that reports and comparisons read.

use crate::measure::Measured;
use serde::{Deserialize, Serialize};

/// The version of this form; a reader refuses others.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    pub version: u32,
    /// Seconds since the Unix epoch.
    pub started_at: u64,
    pub machine: Machine,
    pub settings: Settings,
    /// In the order of the table; one for each turn of a target.
    pub measurements: Vec<Measurement>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cpus: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    /// Of the data directory.
    pub file_system: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub quick: bool,
    pub broker_cpus: Vec<usize>,
    pub client_cpus: Vec<usize>,
    /// 0: no limit.
    pub broker_memory_bytes: u64,
    /// How the limit is held: `cgroup`, or why it is not.
    pub memory_limit: String,
    /// Name and description, in the order of the turns; the first is what the others are compared with.
    pub targets: Vec<TargetInfo>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetInfo {
    pub name: String,
    pub description: String,
}

/// One turn of one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    pub key: Key,
    /// Of the workload's row in the table.
    pub letter: Option<String>,
    pub title: String,
    /// Checksum of the case: a result of another definition is measured again.
    pub definition: String,
    /// Records a second that were asked for.
    pub rate: Option<f64>,
    /// Of a stream or a cold read.
    pub measured: Option<Measured>,
    /// What only this kind of workload has: `listens after a clean stop`.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Of the target's process in the measured time.
    pub cost: Option<Cost>,
    /// What keeps the figures from being what they seem: the client was the limit, the rate was not kept.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Why there is no result: an error of the target, or that it cannot do this.
    pub missing: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    pub workload: String,
    pub case: String,
    pub load: String,
    pub target: String,
    /// From 1.
    pub repeat: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: String,
    pub better: Better,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Lower,
    Higher,
}

/// What the kernel says that the target's process took, over the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub seconds: f64,
    /// User and system.
    pub cpu_seconds: f64,
    /// Resident at the end.
    pub resident_bytes: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
    /// That the process caused (`write_bytes` of /proc/PID/io).
    pub written_bytes: u64,
    /// All writes to the data directory's block device, whoever caused them; `None` if it cannot be told.
    pub device_written_bytes: Option<u64>,
    /// CPU time that the hypervisor gave to others, of all CPUs.
    pub steal_seconds: f64,
}
