//! Compaction.

use super::{broker, int, NEVER};
use crate::config::table::Setting;
use crate::config::value::Kind;

pub(super) const ROWS: &[Setting] = &[
    broker(
        "log.cleaner.enable",
        Kind::Bool,
        "true",
        "Whether logs are compacted whose `cleanup.policy` has `compact`. Each shard compacts one at a time, in the background.",
    ),
    broker(
        "log.cleaner.backoff.ms",
        int(0, i64::MAX),
        "15000",
        "Time between two looks for logs to compact where there were none; not less than 10 ms.",
    )
    .dynamic(),
    broker(
        "log.cleaner.dedupe.buffer.size",
        int(1024 * 1024, i64::MAX),
        "134217728",
        "The most memory that the maps of keys take, over all shards. It is taken while a log is compacted, no more than \
         its dirty part needs; where that needs more, it is compacted in several rounds.",
    )
    .dynamic(),
    broker(
        "log.cleaner.io.max.bytes.per.second",
        Kind::Rate,
        "1.7976931348623157E308",
        "Bytes that compaction reads and writes in a second, over all shards; by default without a limit.",
    )
    .dynamic(),
    broker(
        "log.cleaner.min.cleanable.ratio",
        Kind::Ratio,
        "0.5",
        "Part of a compacted log that is to be dirty before it is compacted.",
    )
    .dynamic(),
    broker(
        "log.cleaner.delete.retention.ms",
        int(0, i64::MAX),
        "86400000",
        "How long a compacted log keeps a key's deletion marker once what lies before it is compacted.",
    )
    .dynamic(),
    broker(
        "log.cleaner.min.compaction.lag.ms",
        int(0, i64::MAX),
        "0",
        "Age below which a record is not compacted.",
    )
    .dynamic(),
    broker(
        "log.cleaner.max.compaction.lag.ms",
        int(1, i64::MAX),
        NEVER,
        "Age of a record at which a log is compacted, however little of it is dirty.",
    )
    .dynamic(),
];
