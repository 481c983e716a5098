//! The table: every setting that this version honours, and nothing else.
//!
//! A setting enters when the code behind it works. The order is the order of the documentation.

use super::value::Kind;

/// Whose setting it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The broker's: file, environment, flags.
    Broker,
    /// A topic's: given when the topic is created.
    Topic,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Kafka's name where Kafka has the setting.
    pub name: &'static str,
    /// Whose setting it is.
    pub scope: Scope,
    /// The values it accepts.
    pub kind: Kind,
    /// For [`Scope::Broker`] the default as text; for [`Scope::Topic`] the broker setting whose value is the default.
    pub default: &'static str,
    /// Whether it can be changed while the broker runs.
    pub dynamic: bool,
    /// What it does, in a sentence; units are in the name or here.
    pub doc: &'static str,
}

/// The row of this name, broker's or topic's.
pub fn find(scope: Scope, name: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.scope == scope && setting.name == name)
}

/// The known name of this scope that is spelled most like `name`, if one is near.
pub fn nearest(scope: Scope, name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace(['_', '-'], ".");
    SETTINGS
        .iter()
        .filter(|setting| setting.scope == scope)
        .map(|setting| (edit_distance(&name, setting.name), setting.name))
        .min()
        .filter(|(distance, known)| *distance <= if known.len() < 12 { 2 } else { 3 })
        .map(|(_, known)| known)
}

/// Levenshtein's distance, in bytes, with one row of memory. A name too long to be a misspelling is as far as it is long.
fn edit_distance(a: &str, b: &str) -> usize {
    if a.len() > 128 {
        return a.len();
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replace = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

const fn broker(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        scope: Scope::Broker,
        kind,
        default,
        dynamic: false,
        doc,
    }
}

const fn topic(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        scope: Scope::Topic,
        kind,
        default,
        dynamic: false,
        doc,
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}

/// Kafka's `int`.
const I32_MAX: i64 = i32::MAX as i64;

const FLUSH_ON_ACK: Kind = Kind::Choice(&["all", "any", "none"]);
const SEGMENT_BYTES: Kind = int(16 * 1024, I32_MAX);
const INDEX_BYTES: Kind = int(4 * 1024, I32_MAX);

/// Every setting. Names are unique within a scope.
pub static SETTINGS: &[Setting] = &[
    // Identity and place.
    broker(
        "node.id",
        int(0, I32_MAX),
        "1",
        "This broker's id; a data directory belongs to the id that first used it.",
    ),
    broker(
        "listeners",
        Kind::Address,
        "127.0.0.1:9092",
        "Where the broker listens, `HOST:PORT` or Kafka's `PLAINTEXT://HOST:PORT`; port 0 \
         takes a free one, an empty host every interface.",
    ),
    broker(
        "advertised.listeners",
        Kind::Address,
        "",
        "The address that clients are told to connect to; empty: the listener's. Needed when \
         the listener is on every interface. Port 0 stands for the listener's port.",
    ),
    broker(
        "log.dirs",
        Kind::Directory,
        "",
        "The data directory; empty: `log.dir`. One directory for now.",
    ),
    broker(
        "log.dir",
        Kind::Directory,
        "./highwater-data",
        "The data directory, where `log.dirs` is empty.",
    ),
    broker(
        "shards",
        int(0, 1024),
        "0",
        "Threads that own partitions and connections, one to a core; 0: one for each CPU that \
         the process may use.",
    ),
    // Topics.
    broker(
        "auto.create.topics.enable",
        Kind::Bool,
        "true",
        "Create a topic when a client that allows it asks for one that does not exist.",
    ),
    broker(
        "num.partitions",
        int(1, 10_000),
        "1",
        "Partitions of a topic that is created without a count.",
    ),
    broker(
        "default.replication.factor",
        int(1, 32_767),
        "1",
        "Replicas of a topic that is created without a count; with one broker only 1 can be \
         created.",
    ),
    // Durability.
    broker(
        "flush.on.ack",
        FLUSH_ON_ACK,
        "all",
        "Which acknowledgements wait until the records are flushed to the disk: `all`: \
         acks=all does, acks=1 waits for the write; `any`: acks=1 does too; `none`: neither \
         does (Kafka's way).",
    ),
    broker(
        "min.insync.replicas",
        int(1, I32_MAX),
        "1",
        "The least number of in-sync replicas with which acks=all is accepted; counted as no \
         more than the topic has replicas.",
    ),
    broker(
        "checkpoint.bytes",
        int(64 * 1024, 1 << 40),
        "67108864",
        "Bytes flushed in a partition after which its recovery point and indexes are saved: \
         the most that it re-reads after a crash.",
    ),
    broker(
        "log.flush.offset.checkpoint.interval.ms",
        int(1_000, I32_MAX),
        "60000",
        "The longest time between two saves of the recovery points.",
    ),
    broker(
        "replica.high.watermark.checkpoint.interval.ms",
        int(100, I32_MAX),
        "5000",
        "Time between two saves of the high watermarks.",
    ),
    // The log.
    broker(
        "message.max.bytes",
        int(61, I32_MAX),
        "1048588",
        "Largest record batch that is accepted.",
    ),
    broker(
        "log.segment.bytes",
        SEGMENT_BYTES,
        "1073741824",
        "Size at which a segment is rolled.",
    ),
    broker(
        "log.roll.ms",
        Kind::OptionalInt {
            min: 1,
            max: i64::MAX,
        },
        "",
        "Age at which a segment is rolled; empty: `log.roll.hours`.",
    ),
    broker(
        "log.roll.hours",
        int(1, I32_MAX),
        "168",
        "Age at which a segment is rolled, where `log.roll.ms` is empty.",
    ),
    broker(
        "log.index.interval.bytes",
        int(1, I32_MAX),
        "4096",
        "Bytes of log between two entries of the offset index.",
    ),
    broker(
        "log.index.size.max.bytes",
        INDEX_BYTES,
        "10485760",
        "Largest size of an index; a segment whose index is full is rolled.",
    ),
    broker(
        "log.message.timestamp.before.max.ms",
        int(0, i64::MAX),
        "9223372036854775807",
        "How far a record's timestamp may lie before the broker's clock.",
    ),
    broker(
        "log.message.timestamp.after.max.ms",
        int(0, i64::MAX),
        "3600000",
        "How far a record's timestamp may lie after the broker's clock.",
    ),
    // Idempotent producers.
    broker(
        "producer.id.expiration.ms",
        int(1, I32_MAX),
        "86400000",
        "A producer that has written nothing to a partition for this long, by the broker's \
         clock, is forgotten there: its retries are no longer recognised.",
    ),
    broker(
        "producer.id.expiration.check.interval.ms",
        int(1, I32_MAX),
        "600000",
        "Time between two looks for producers that have expired.",
    ),
    // Requests and memory.
    broker(
        "socket.request.max.bytes",
        int(1024, I32_MAX),
        "104857600",
        "Largest request; an eighth of a shard's request memory where that is less.",
    ),
    broker(
        "request.memory.bytes",
        int(0, 1 << 44),
        "0",
        "Memory for requests that are being read and served, over all shards; 0: 1/16 of RAM, \
         at most 1 GiB a shard. A full budget stops reading from sockets.",
    ),
    broker(
        "min.request.progress",
        int(0, I32_MAX),
        "16384",
        "Bytes a second below which, after 10 s, a half-sent request that holds memory is \
         closed first when others wait for memory; 0: never.",
    ),
    broker(
        "fetch.max.bytes",
        int(1024, I32_MAX),
        "57671680",
        "Most bytes of records in the answer to one fetch; a first batch larger than this is \
         still sent whole.",
    ),
    broker(
        "cache.bytes",
        int(0, 1 << 44),
        "0",
        "Memory for recent records, over all shards; 0: chosen from the machine's RAM.",
    ),
    // Connections.
    broker(
        "max.connections",
        int(1, I32_MAX),
        "2147483647",
        "Most open connections; a further one is closed at once.",
    ),
    broker(
        "connections.max.idle.ms",
        int(1_000, i64::MAX),
        "600000",
        "A connection without a request for this long is closed.",
    ),
    // A topic's own.
    topic(
        "flush.on.ack",
        FLUSH_ON_ACK,
        "flush.on.ack",
        "Which acknowledgements wait for the flush.",
    ),
    topic(
        "min.insync.replicas",
        int(1, I32_MAX),
        "min.insync.replicas",
        "The least number of in-sync replicas with which acks=all is accepted.",
    ),
    topic(
        "max.message.bytes",
        int(61, I32_MAX),
        "message.max.bytes",
        "Largest record batch that is accepted.",
    ),
    topic(
        "segment.bytes",
        SEGMENT_BYTES,
        "log.segment.bytes",
        "Size at which a segment is rolled.",
    ),
    topic(
        "segment.ms",
        int(1, i64::MAX),
        "log.roll.ms",
        "Age at which a segment is rolled.",
    ),
    topic(
        "index.interval.bytes",
        int(1, I32_MAX),
        "log.index.interval.bytes",
        "Bytes of log between two entries of the offset index.",
    ),
    topic(
        "segment.index.bytes",
        INDEX_BYTES,
        "log.index.size.max.bytes",
        "Largest size of an index.",
    ),
    topic(
        "message.timestamp.before.max.ms",
        int(0, i64::MAX),
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may lie before the broker's clock.",
    ),
    topic(
        "message.timestamp.after.max.ms",
        int(0, i64::MAX),
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may lie after the broker's clock.",
    ),
];
