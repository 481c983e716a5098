//! A topic's settings. Most have a counterpart among the broker's.

use super::{
    int, topic, topic_alone, CLEANUP_POLICY, COMPRESSION, FLUSH_ON_ACK, GZIP_LEVEL, I32_MAX,
    INDEX_BYTES, LZ4_LEVEL, NO_TIERS, SEGMENT_BYTES, TIMESTAMP_TYPE, ZSTD_LEVEL,
};
use crate::config::table::Setting;
use crate::config::value::Kind;

pub(super) const ROWS: &[Setting] = &[
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
        "`delete`: segments past retention are deleted, and clients may delete records; `compact`: every record has a \
         key, and the last one of each key is kept; both, or, empty, neither.",
    ),
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
    topic(
        "delete.retention.ms",
        int(0, i64::MAX),
        &["log.cleaner.delete.retention.ms"],
        "How long a compacted log keeps a key's deletion marker once what lies before it is compacted.",
    ),
    topic(
        "min.cleanable.dirty.ratio",
        Kind::Ratio,
        &["log.cleaner.min.cleanable.ratio"],
        "Part of a compacted log that is to be dirty before it is compacted.",
    ),
    topic(
        "min.compaction.lag.ms",
        int(0, i64::MAX),
        &["log.cleaner.min.compaction.lag.ms"],
        "Age below which a record is not compacted; not above `max.compaction.lag.ms`.",
    ),
    topic(
        "max.compaction.lag.ms",
        int(1, i64::MAX),
        &["log.cleaner.max.compaction.lag.ms"],
        "Age of a record at which a log is compacted, however little of it is dirty.",
    ),
    // Kept and shown, and nothing acts on them: what they are about cannot happen while every partition has one
    // replica.
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
