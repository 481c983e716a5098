//! What is measured, as files: `perf/workloads/*.toml`.
//!
//! A workload is a list of cases; a case is one set of topics, records, producers and consumers, measured at each
//! of its loads. `parse.rs` reads the files, `builtin.rs` holds those of the repository.

mod builtin;
mod parse;

pub use builtin::{builtin, find};
pub use parse::parse;

use highwater::protocol::batch::Compression;
use serde::{Deserialize, Serialize};

/// A file of cases that answer one question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workload {
    /// Unique, lower case with dashes: what `--workload` takes.
    pub name: String,
    /// Its row in the table of the report, if it has one: `a`.
    pub letter: Option<String>,
    /// One line for people.
    pub title: String,
    pub cases: Vec<Case>,
}

/// One set of topics, records and clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique within the workload; empty if there is only one.
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub kind: Kind,
    #[serde(default)]
    pub topic: TopicPlan,
    #[serde(default)]
    pub records: RecordPlan,
    #[serde(default)]
    pub producers: ProducerPlan,
    #[serde(default)]
    pub consumers: ConsumerPlan,
    /// Each is measured, in this order.
    #[serde(default = "saturation")]
    pub loads: Vec<LoadPoint>,
    #[serde(default)]
    pub timing: Timing,
    /// Of a lifecycle.
    #[serde(default)]
    pub lifecycle: LifecyclePlan,
}

/// What is done with the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Producers and consumers run at the same time.
    #[default]
    Stream,
    /// The topic is filled, the broker restarted and the page cache emptied of its files; then all of it is read.
    ColdRead,
    /// Start, idle, stop, restart, kill, restart.
    Lifecycle,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopicPlan {
    pub topics: u32,
    /// Of each topic.
    pub partitions: u32,
    /// Whether an acknowledgement waits until the records are flushed to the disk: Highwater's `flush.on.ack=any`,
    /// Kafka's `flush.messages=1`, NATS's `sync_interval: always`, Redis's `appendfsync always`.
    pub flush: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordPlan {
    /// Of a record's value; at least 16, since the value begins with the time at which it was due.
    pub bytes: usize,
    /// The part of each value that is random, 0 to 1: what no codec can compress.
    pub random: f64,
    pub codec: CodecName,
    pub keys: Keys,
    /// Different keys, where there are keys.
    pub key_count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CodecName {
    #[default]
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl CodecName {
    pub fn compression(self) -> Compression {
        match self {
            CodecName::None => Compression::None,
            CodecName::Gzip => Compression::Gzip,
            CodecName::Snappy => Compression::Snappy,
            CodecName::Lz4 => Compression::Lz4,
            CodecName::Zstd => Compression::Zstd,
        }
    }
}

/// How a record's key, and by it the partition, is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keys {
    /// No key: the partitions take turns, batch by batch.
    #[default]
    None,
    /// Each key as often as any other.
    Uniform,
    /// Key n as often as 1/n (exponent 1): few hot keys.
    Zipf,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProducerPlan {
    /// Producers, each with a connection of its own.
    pub count: u32,
    pub acks: Acks,
    /// A batch is sent at the latest when its records' values take this many bytes. Smaller than two records: each
    /// record is a request of its own.
    pub batch_bytes: usize,
    /// Microseconds that a record waits at most for others before its batch is sent. With 0 a batch holds what is
    /// due when a request may be sent.
    pub linger_us: u64,
    /// Requests of a producer without an answer.
    pub in_flight: u32,
    pub driver: DriverName,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acks {
    Leader,
    #[default]
    All,
}

/// The client library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverName {
    /// As lean as can be, so that it does not hide the broker.
    #[default]
    Native,
    /// What users see.
    Librdkafka,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerPlan {
    /// Sets of consumers; each set reads everything, so 10 sets are a fan-out to 10.
    pub sets: u32,
    /// Consumers of a set, each with a connection of its own; they share the partitions.
    pub per_set: u32,
    /// `max.partition.fetch.bytes`.
    pub fetch_bytes: u32,
    /// `fetch.max.wait.ms`.
    pub wait_ms: u32,
    /// `fetch.min.bytes`.
    pub min_bytes: u32,
}

/// One load of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadPoint {
    /// Unique within the case.
    pub name: String,
    /// Exactly one of `saturate`, `rate` and `share` is given.
    #[serde(default)]
    pub saturate: bool,
    /// Records a second, of all producers together: open loop.
    #[serde(default)]
    pub rate: Option<f64>,
    /// A part of a capacity: of the median rate that `saturate` found in the same case.
    #[serde(default)]
    pub share: Option<f64>,
    /// Whose capacity: the name of a target, `slowest`, or `self`.
    #[serde(default = "slowest")]
    pub of: String,
    /// Records fall due in bursts: all those of `on_ms + off_ms` within `on_ms`.
    #[serde(default)]
    pub burst: Option<Burst>,
    /// The consumers start late and have to catch up.
    #[serde(default)]
    pub drain: Option<Drain>,
    /// Measured in the first repeat only: points of a curve.
    #[serde(default)]
    pub once: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    pub on_ms: u64,
    pub off_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Seconds of producing before the consumers start.
    pub backlog_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timing {
    /// Seconds at the start of each measurement that do not count.
    pub warmup_s: f64,
    pub measure_s: f64,
    /// Seconds of saturation that are thrown away after each start of a target, before its first measurement: for
    /// compilers that work while the program runs. The same for all.
    pub settle_s: f64,
    /// Turns of each target.
    pub repeats: u32,
    /// A measurement ends early when this many bytes of values were produced.
    pub bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifecyclePlan {
    /// Seconds for which an idle broker is watched.
    pub idle_s: f64,
    /// Records for each partition since the last start, when the broker is killed.
    pub records: u32,
    /// Consumer groups with a committed offset.
    pub groups: u32,
}

impl Case {
    /// Records of a full batch.
    pub fn batch_records(&self) -> usize {
        (self.producers.batch_bytes / self.records.bytes).max(1)
    }

    pub fn has_consumers(&self) -> bool {
        self.consumers.sets > 0
    }
}

fn saturation() -> Vec<LoadPoint> {
    vec![LoadPoint {
        name: "capacity".to_owned(),
        saturate: true,
        rate: None,
        share: None,
        of: slowest(),
        burst: None,
        drain: None,
        once: false,
    }]
}

fn slowest() -> String {
    "slowest".to_owned()
}

impl Default for TopicPlan {
    fn default() -> TopicPlan {
        TopicPlan {
            topics: 1,
            partitions: 1,
            flush: true,
        }
    }
}

impl Default for RecordPlan {
    fn default() -> RecordPlan {
        RecordPlan {
            bytes: 1024,
            random: 0.25,
            codec: CodecName::None,
            keys: Keys::None,
            key_count: 100_000,
        }
    }
}

impl Default for ProducerPlan {
    fn default() -> ProducerPlan {
        ProducerPlan {
            count: 1,
            acks: Acks::All,
            batch_bytes: 0,
            linger_us: 0,
            in_flight: 1,
            driver: DriverName::Native,
        }
    }
}

impl Default for ConsumerPlan {
    fn default() -> ConsumerPlan {
        ConsumerPlan {
            sets: 0,
            per_set: 1,
            fetch_bytes: 1 << 20,
            wait_ms: 500,
            min_bytes: 1,
        }
    }
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            warmup_s: 2.0,
            measure_s: 8.0,
            settle_s: 8.0,
            repeats: 3,
            bytes_max: 4_000_000_000,
        }
    }
}
