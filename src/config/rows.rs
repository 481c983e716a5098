//! The table: every setting that this version honours, and every topic setting of Kafka 4.
//!
//! A broker's setting enters when the code behind it works (`unbuilt.rs` answers Kafka's others). A topic's setting is
//! always here, because tools read and write them all: one that cannot work yet is held at one value
//! ([`Limit::Only`]), or its row says why any value is harmless. The order is the order of the documentation.

use super::table::{Fallback, Limit, Scope, Setting};
use super::value::Kind;
use super::{FlushOnAck, MessageTimestampType, TopicCompression};

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
        default: Fallback::Value(default),
        limit: None,
        dynamic: false,
        doc,
    }
}

const fn topic(
    name: &'static str,
    kind: Kind,
    default: &'static [&'static str],
    doc: &'static str,
) -> Setting {
    Setting {
        name,
        scope: Scope::Topic,
        kind,
        default: Fallback::Broker(default),
        limit: None,
        dynamic: true,
        doc,
    }
}

/// A topic's setting without a counterpart among the broker's.
const fn topic_alone(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Setting {
    Setting {
        default: Fallback::Value(default),
        ..topic(name, kind, &[], doc)
    }
}

impl Setting {
    /// The row of a broker's setting that can be changed while the broker runs: one that Kafka changes too, and that
    /// nothing here holds on to.
    const fn dynamic(self) -> Setting {
        Setting {
            dynamic: true,
            ..self
        }
    }

    /// The row with all values but one refused.
    const fn only(self, value: &'static str, because: &'static str) -> Setting {
        let limit = Some(Limit::Only { value, because });
        Setting { limit, ..self }
    }

    /// The row with every list refused that holds `word`.
    const fn without(self, word: &'static str, because: &'static str) -> Setting {
        let limit = Some(Limit::Without { word, because });
        Setting { limit, ..self }
    }
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}

/// Kafka's `int`.
const I32_MAX: i64 = i32::MAX as i64;

const fn optional_int(min: i64, max: i64) -> Kind {
    Kind::OptionalInt { min, max }
}

const FLUSH_ON_ACK: Kind = Kind::Choice(FlushOnAck::WORDS);
const TIMESTAMP_TYPE: Kind = Kind::Choice(MessageTimestampType::WORDS);
const COMPRESSION: Kind = Kind::Choice(TopicCompression::WORDS);
const GZIP_LEVEL: Kind = Kind::IntOr {
    or: -1,
    min: 1,
    max: 9,
};
const LZ4_LEVEL: Kind = int(1, 17);
const ZSTD_LEVEL: Kind = int(-131_072, 22);
const CLEANUP_POLICY: Kind = Kind::Words(&["compact", "delete"]);
const NO_COMPACTION: &str = "compaction is not built";
const NO_TIERS: &str = "there is no tiered storage";
const NEVER: &str = "9223372036854775807";
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
    )
    .dynamic(),
    broker(
        "min.insync.replicas",
        int(1, I32_MAX),
        "1",
        "The least number of in-sync replicas with which acks=all is accepted; counted as no \
         more than the topic has replicas.",
    )
    .dynamic(),
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
    )
    .dynamic(),
    broker(
        "log.segment.bytes",
        SEGMENT_BYTES,
        "1073741824",
        "Size at which a segment is rolled.",
    )
    .dynamic(),
    broker(
        "log.roll.ms",
        optional_int(1, i64::MAX),
        "",
        "Age at which a segment is rolled; empty: `log.roll.hours`.",
    )
    .dynamic(),
    broker(
        "log.roll.hours",
        int(1, I32_MAX),
        "168",
        "Age at which a segment is rolled, where `log.roll.ms` is empty.",
    ),
    broker(
        "log.index.interval.bytes",
        int(0, I32_MAX),
        "4096",
        "Bytes of log between two entries of the offset index.",
    )
    .dynamic(),
    broker(
        "log.index.size.max.bytes",
        INDEX_BYTES,
        "10485760",
        "Largest size of an index; a segment whose index is full is rolled.",
    )
    .dynamic(),
    broker(
        "log.message.timestamp.before.max.ms",
        int(0, i64::MAX),
        "9223372036854775807",
        "How far a record's timestamp may lie before the broker's clock.",
    )
    .dynamic(),
    broker(
        "log.message.timestamp.after.max.ms",
        int(0, i64::MAX),
        "3600000",
        "How far a record's timestamp may lie after the broker's clock.",
    )
    .dynamic(),
    broker(
        "log.roll.jitter.ms",
        optional_int(0, i64::MAX),
        "",
        "The most by which a roll by age is made earlier, at random, so that partitions do not roll together; empty: `log.roll.jitter.hours`.",
    )
    .dynamic(),
    broker(
        "log.roll.jitter.hours",
        int(0, I32_MAX),
        "0",
        "The same in hours, where `log.roll.jitter.ms` is empty.",
    ),
    broker(
        "log.cleanup.policy",
        CLEANUP_POLICY,
        "delete",
        "`delete`: segments past retention are deleted; empty: none is.",
    )
    .without("compact", NO_COMPACTION)
    .dynamic(),
    broker(
        "log.retention.ms",
        optional_int(-1, i64::MAX),
        "",
        "Age at which a segment is deleted, by its largest timestamp; -1: never; empty: `log.retention.minutes`.",
    )
    .dynamic(),
    broker(
        "log.retention.minutes",
        optional_int(-1, I32_MAX),
        "",
        "The same in minutes, where `log.retention.ms` is empty; empty: `log.retention.hours`.",
    ),
    broker(
        "log.retention.hours",
        int(-1, I32_MAX),
        "168",
        "The same in hours, where `log.retention.ms` and `log.retention.minutes` are empty.",
    ),
    broker(
        "log.retention.bytes",
        int(-1, i64::MAX),
        "-1",
        "Size of a partition's log above which its oldest segments are deleted; -1: no limit.",
    )
    .dynamic(),
    broker(
        "log.retention.check.interval.ms",
        int(1, i64::MAX),
        "300000",
        "Time between two looks for segments that are past retention.",
    ),
    broker(
        "log.initial.task.delay.ms",
        int(0, i64::MAX),
        "30000",
        "Time from the start to the first look for segments that are past retention.",
    ),
    broker(
        "log.segment.delete.delay.ms",
        int(0, i64::MAX),
        "60000",
        "How long the files of a deleted segment stay on the disk.",
    )
    .dynamic(),
    broker(
        "log.flush.interval.messages",
        int(1, i64::MAX),
        NEVER,
        "Records of a partition written but not flushed at which a flush is started, whatever `flush.on.ack` is.",
    )
    .dynamic(),
    broker(
        "log.flush.interval.ms",
        optional_int(0, i64::MAX),
        "",
        "Age of an unflushed record at which a flush is started, whatever `flush.on.ack` is; empty: `log.flush.scheduler.interval.ms`.",
    )
    .dynamic(),
    broker(
        "log.flush.scheduler.interval.ms",
        int(0, i64::MAX),
        NEVER,
        "The same, where `log.flush.interval.ms` is empty.",
    ),
    broker(
        "compression.type",
        COMPRESSION,
        "producer",
        "How batches are stored: `producer` leaves them as they came, `uncompressed` and the codecs store them so.",
    )
    .dynamic(),
    broker(
        "compression.gzip.level",
        GZIP_LEVEL,
        "-1",
        "The level of `gzip`; -1: its own default.",
    )
    .dynamic(),
    broker(
        "compression.lz4.level",
        LZ4_LEVEL,
        "9",
        "The level of `lz4`.",
    )
    .dynamic(),
    broker(
        "compression.zstd.level",
        ZSTD_LEVEL,
        "3",
        "The level of `zstd`.",
    )
    .dynamic(),
    broker(
        "log.message.timestamp.type",
        TIMESTAMP_TYPE,
        "CreateTime",
        "Whose clock a record's timestamp is from: the producer's, or this broker's when it takes the batch.",
    )
    .dynamic(),
    // Idempotent producers.
    broker(
        "producer.id.expiration.ms",
        int(1, I32_MAX),
        "86400000",
        "A producer that has written nothing to a partition for this long, by the broker's \
         clock, is forgotten there: its retries are no longer recognised.",
    )
    .dynamic(),
    broker(
        "producer.id.expiration.check.interval.ms",
        int(1, I32_MAX),
        "600000",
        "Time between two looks for producers that have expired.",
    ),
    // Groups and their committed offsets.
    broker(
        "group.min.session.timeout.ms",
        int(1, I32_MAX),
        "6000",
        "The least session timeout that a member of a group may ask for.",
    ),
    broker(
        "group.max.session.timeout.ms",
        int(1, I32_MAX),
        "1800000",
        "The most.",
    ),
    broker(
        "group.initial.rebalance.delay.ms",
        int(0, I32_MAX),
        "3000",
        "How long an empty group waits for more members after the first; 0: not at all.",
    ),
    broker(
        "group.max.size",
        int(1, I32_MAX),
        "2147483647",
        "Most members of a group.",
    ),
    broker(
        "offset.metadata.max.bytes",
        int(0, I32_MAX),
        "4096",
        "The longest text that a client may commit beside an offset.",
    ),
    broker(
        "offsets.commit.timeout.ms",
        int(1, I32_MAX),
        "5000",
        "How long a commit waits to be durable before it is answered with an error.",
    ),
    broker(
        "offsets.retention.minutes",
        int(1, I32_MAX),
        "10080",
        "How long committed offsets are kept once their group is empty, or, where it never had members, \
         after each commit.",
    ),
    broker(
        "offsets.retention.check.interval.ms",
        int(1, i64::MAX),
        "600000",
        "Time between two looks for committed offsets that have expired.",
    ),
    broker(
        "offsets.topic.num.partitions",
        int(1, 10_000),
        "50",
        "Partitions of `__consumer_offsets` when it is created, at the first need.",
    ),
    broker(
        "offsets.topic.replication.factor",
        int(1, 32_767),
        "3",
        "Replicas of `__consumer_offsets` when it is created; as many as there are brokers where those are fewer, so one for now.",
    ),
    broker(
        "offsets.topic.segment.bytes",
        SEGMENT_BYTES,
        "104857600",
        "`segment.bytes` of `__consumer_offsets` when it is created.",
    ),
    broker(
        "offsets.topic.compression.codec",
        int(0, 4),
        "0",
        "How batches of committed offsets are compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
    ),
    broker(
        "offsets.load.buffer.size",
        int(1, I32_MAX),
        "5242880",
        "Bytes that are read at once when committed offsets are loaded; a larger batch is read whole.",
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
        "max.incremental.fetch.session.cache.slots",
        int(0, I32_MAX),
        "1000",
        "Most fetch sessions at once, over all shards; a consumer beyond them sends its whole \
         list of partitions with each fetch. 0: no sessions.",
    ),
    broker(
        "cache.bytes",
        int(0, 1 << 44),
        "0",
        "Memory for recent records, over all shards; 0: chosen from the machine's RAM.",
    ),
    broker(
        "max.request.partition.size.limit",
        int(1, I32_MAX),
        "2000",
        "Most partitions in one answer to DescribeTopicPartitions; its cursor leads to the rest.",
    ),
    // Connections.
    broker(
        "max.connections",
        int(1, I32_MAX),
        "2147483647",
        "Most open connections; a further one is closed at once.",
    )
    .dynamic(),
    broker(
        "max.connections.per.ip",
        int(0, I32_MAX),
        "2147483647",
        "Most open connections from one address; a further one is closed at once. 0 where only \
         those in `max.connections.per.ip.overrides` may connect.",
    )
    .dynamic(),
    broker(
        "max.connections.per.ip.overrides",
        Kind::HostCounts,
        "",
        "Addresses or host names with limits of their own, in place of `max.connections.per.ip`; \
         names are resolved when the broker starts.",
    )
    .dynamic(),
    broker(
        "max.connection.creation.rate",
        int(1, I32_MAX),
        "2147483647",
        "Most connections that are accepted in a second; further ones wait to be accepted.",
    )
    .dynamic(),
    broker(
        "connections.max.idle.ms",
        int(1_000, i64::MAX),
        "600000",
        "A connection without a request for this long is closed.",
    ),
    // What an operator sees.
    broker(
        "admin.listener",
        Kind::Address,
        "127.0.0.1:9644",
        "Where `/metrics`, `/healthz`, `/readyz` and `/debug/stalls` are served over HTTP, `HOST:PORT`; port 0 takes a \
         free one, empty: nowhere. Nobody is asked who they are, so keep it from where clients are. A port that is \
         taken ends the start if the setting was given, and is a warning otherwise.",
    ),
    broker(
        "metrics.topics.max",
        int(0, 100_000),
        "200",
        "Topics with metrics of their own; those of the rest are summed under the topic `(other)`.",
    ),
    broker(
        "metrics.partitions.max",
        int(0, 100_000),
        "1000",
        "Partitions with metrics of their own: the first by topic and number.",
    ),
    broker(
        "metrics.group.offsets.max",
        int(0, 100_000),
        "1000",
        "Committed offsets with metrics of their own (offset and lag): the first by group, topic and partition.",
    ),
    broker(
        "stall.threshold.ms",
        Kind::IntOr {
            or: 0,
            min: 10,
            max: 60_000,
        },
        "50",
        "A task that holds its core for longer is recorded, logged and counted (`/debug/stalls`), to about 10 ms; 0: never.",
    ),
    // Kafka's tools set these around a reassignment, and take them away after it.
    broker(
        "leader.replication.throttled.rate",
        int(0, i64::MAX),
        NEVER,
        "Bytes a second that leaders send to throttled replicas. No effect: nothing is replicated.",
    )
    .dynamic(),
    broker(
        "follower.replication.throttled.rate",
        int(0, i64::MAX),
        NEVER,
        "Bytes a second that throttled replicas fetch. No effect: nothing is replicated.",
    )
    .dynamic(),
    broker(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        int(0, i64::MAX),
        NEVER,
        "Bytes a second at which replicas move between directories. No effect: there is one directory.",
    )
    .dynamic(),
    // A topic's own.
    topic(
        "flush.on.ack",
        FLUSH_ON_ACK,
        &["flush.on.ack"],
        "Which acknowledgements wait for the flush.",
    ),
    topic(
        "min.insync.replicas",
        int(1, I32_MAX),
        &["min.insync.replicas"],
        "The least number of in-sync replicas with which acks=all is accepted.",
    ),
    topic(
        "max.message.bytes",
        int(61, I32_MAX),
        &["message.max.bytes"],
        "Largest record batch that is accepted.",
    ),
    topic(
        "segment.bytes",
        SEGMENT_BYTES,
        &["log.segment.bytes"],
        "Size at which a segment is rolled.",
    ),
    topic(
        "segment.ms",
        int(1, i64::MAX),
        &["log.roll.ms", "log.roll.hours"],
        "Age at which a segment is rolled.",
    ),
    topic(
        "index.interval.bytes",
        int(0, I32_MAX),
        &["log.index.interval.bytes"],
        "Bytes of log between two entries of the offset index.",
    ),
    topic(
        "segment.index.bytes",
        INDEX_BYTES,
        &["log.index.size.max.bytes"],
        "Largest size of an index.",
    ),
    topic(
        "message.timestamp.before.max.ms",
        int(0, i64::MAX),
        &["log.message.timestamp.before.max.ms"],
        "How far a record's timestamp may lie before the broker's clock.",
    ),
    topic(
        "message.timestamp.after.max.ms",
        int(0, i64::MAX),
        &["log.message.timestamp.after.max.ms"],
        "How far a record's timestamp may lie after the broker's clock.",
    ),
    topic(
        "segment.jitter.ms",
        int(0, i64::MAX),
        &["log.roll.jitter.ms", "log.roll.jitter.hours"],
        "The most by which a roll by age is made earlier, at random.",
    ),
    topic(
        "cleanup.policy",
        CLEANUP_POLICY,
        &["log.cleanup.policy"],
        "`delete`: segments past retention are deleted, and clients may delete records; empty: neither.",
    )
    .without("compact", NO_COMPACTION),
    topic(
        "retention.ms",
        int(-1, i64::MAX),
        &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
        "Age at which a segment is deleted, by its largest timestamp; -1: never.",
    ),
    topic(
        "retention.bytes",
        int(-1, i64::MAX),
        &["log.retention.bytes"],
        "Size of a partition's log above which its oldest segments are deleted; -1: no limit.",
    ),
    topic(
        "file.delete.delay.ms",
        int(0, i64::MAX),
        &["log.segment.delete.delay.ms"],
        "How long the files of a deleted segment stay on the disk.",
    ),
    topic(
        "flush.messages",
        int(1, i64::MAX),
        &["log.flush.interval.messages"],
        "Records of a partition written but not flushed at which a flush is started, whatever `flush.on.ack` is.",
    ),
    topic(
        "flush.ms",
        int(0, i64::MAX),
        &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        "Age of an unflushed record at which a flush is started, whatever `flush.on.ack` is.",
    ),
    topic(
        "compression.type",
        COMPRESSION,
        &["compression.type"],
        "How batches are stored: `producer` leaves them as they came, `uncompressed` and the codecs store them so.",
    ),
    topic(
        "compression.gzip.level",
        GZIP_LEVEL,
        &["compression.gzip.level"],
        "The level of `gzip`; -1: its own default.",
    ),
    topic(
        "compression.lz4.level",
        LZ4_LEVEL,
        &["compression.lz4.level"],
        "The level of `lz4`.",
    ),
    topic(
        "compression.zstd.level",
        ZSTD_LEVEL,
        &["compression.zstd.level"],
        "The level of `zstd`.",
    ),
    topic(
        "message.timestamp.type",
        TIMESTAMP_TYPE,
        &["log.message.timestamp.type"],
        "Whose clock a record's timestamp is from: the producer's, or the broker's when it takes the batch.",
    ),
    // Kept and shown, and nothing acts on them: compaction is not built, so that no topic can ask for it. Tools set
    // them beside `cleanup.policy=delete`, where Kafka ignores them too.
    topic_alone(
        "delete.retention.ms",
        int(0, i64::MAX),
        "86400000",
        "How long a compacted topic keeps deletion markers. No effect: compaction is not built.",
    ),
    topic_alone(
        "min.cleanable.dirty.ratio",
        Kind::Ratio,
        "0.5",
        "Part of a compacted log that is to be dirty before it is compacted. No effect: compaction is not built.",
    ),
    topic_alone(
        "min.compaction.lag.ms",
        int(0, i64::MAX),
        "0",
        "Age below which a record is not compacted. No effect: compaction is not built.",
    ),
    topic_alone(
        "max.compaction.lag.ms",
        int(1, i64::MAX),
        NEVER,
        "Age at which a record is compacted. No effect: compaction is not built.",
    ),
    // The same: what they are about cannot happen while every partition has one replica.
    topic_alone(
        "unclean.leader.election.enable",
        Kind::Bool,
        "false",
        "Whether a replica outside the ISR may become leader. No effect: the only replica always leads.",
    ),
    topic_alone(
        "leader.replication.throttled.replicas",
        Kind::ThrottledReplicas,
        "",
        "Replicas whose leaders throttle replication. No effect: nothing is replicated.",
    ),
    topic_alone(
        "follower.replication.throttled.replicas",
        Kind::ThrottledReplicas,
        "",
        "Replicas whose followers throttle replication. No effect: nothing is replicated.",
    ),
    topic_alone(
        "preallocate",
        Kind::Bool,
        "false",
        "Whether a segment is preallocated. No effect: preallocation grows with the segment by itself.",
    ),
    // Fixed: another value would promise storage that is not there.
    topic_alone(
        "remote.storage.enable",
        Kind::Bool,
        "false",
        "Whether old segments move to tiered storage; there is none.",
    )
    .only("false", NO_TIERS),
    topic_alone(
        "remote.log.copy.disable",
        Kind::Bool,
        "false",
        "Whether no more segments move to tiered storage; there is none.",
    )
    .only("false", NO_TIERS),
    topic_alone(
        "remote.log.delete.on.disable",
        Kind::Bool,
        "false",
        "Whether tiered segments are deleted when tiering ends; there is none.",
    )
    .only("false", NO_TIERS),
    topic_alone(
        "local.retention.ms",
        int(-2, i64::MAX),
        "-2",
        "Age at which a tiered segment leaves the disk; -2: `retention.ms`. There is no tiered storage.",
    )
    .only("-2", NO_TIERS),
    topic_alone(
        "local.retention.bytes",
        int(-2, i64::MAX),
        "-2",
        "Size at which tiered segments leave the disk; -2: `retention.bytes`. There is no tiered storage.",
    )
    .only("-2", NO_TIERS),
];
