//! Durability, the log, and idempotent producers.

use super::{
    broker, int, optional_int, CLEANUP_POLICY, COMPRESSION, FLUSH_ON_ACK, GZIP_LEVEL, I32_MAX,
    INDEX_BYTES, LZ4_LEVEL, NEVER, SEGMENT_BYTES, TIMESTAMP_TYPE, ZSTD_LEVEL,
};
use crate::config::table::Setting;
use crate::config::value::Kind;

pub(super) const ROWS: &[Setting] = &[
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
    broker(
        "log.dir.min.free.bytes",
        int(-1, i64::MAX),
        "-1",
        "Free bytes of a data directory's file system below which its partitions take no \
         records, until a quarter more is free; -1: the smaller of 1 GiB and 5 % of the file \
         system; 0: no limit.",
    )
    .dynamic(),
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
        "`delete`: segments past retention are deleted; `compact`: the last record of each key is kept; both, or, empty, neither.",
    )
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
        "log.segment.recycle",
        Kind::Bool,
        "false",
        "Whether the files of deleted segments become new segments of the same partition, which makes \
         flushes cheaper; each is overwritten with zeros first, in the background. Not where a log is \
         compacted.",
    )
    .dynamic(),
    broker(
        "log.read.check.crcs",
        Kind::Bool,
        "false",
        "Whether the checksum of every batch that is read from the disk for a consumer is checked; consumers \
         check it themselves (`check.crcs`).",
    )
    .dynamic(),
    broker(
        "log.scrub.max.bytes.per.second",
        int(0, i64::MAX),
        "8388608",
        "How fast old segments are re-read in the background to find damage, in all of the broker; 0: they are not.",
    )
    .dynamic(),
    broker(
        "log.scrub.interval.hours",
        int(1, I32_MAX),
        "168",
        "The least time between two beginnings of such a pass over all segments.",
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
];
