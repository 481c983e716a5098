//! Groups and their committed offsets.

use super::{broker, int, I32_MAX, SEGMENT_BYTES};
use crate::config::table::Setting;

pub(super) const ROWS: &[Setting] = &[
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
];
