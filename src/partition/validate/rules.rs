//! [`Rules`]: what the topic's settings and the time ask of a batch.

use crate::config::{MessageTimestampType, TopicCompression, TopicConfig};
use crate::protocol::batch::{Compression, Encoding, TimestampType, RECORDS_BYTES_MAX};

/// What the topic's settings and the time ask of a batch.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Rules {
    /// `max.message.bytes`.
    pub(super) batch_bytes_max: usize,
    /// `segment.bytes`.
    pub(super) segment_bytes: usize,
    /// What the records may decompress to, bytes.
    pub(super) records_bytes_max: usize,
    /// `message.timestamp.type`.
    pub(super) timestamp_type: TimestampType,
    /// The wall clock.
    pub(super) now_ms: i64,
    /// The earliest timestamp, from `message.timestamp.before.max.ms`.
    pub(super) timestamp_min: i64,
    /// The latest timestamp, from `message.timestamp.after.max.ms`.
    pub(super) timestamp_max: i64,
    /// `compression.type`; none keeps the producer's.
    pub(super) encoding: Option<Encoding>,
    /// Whether every record needs a key: the topic is compacted.
    pub(super) needs_keys: bool,
}

impl Rules {
    /// The rules at the wall-clock time `now_ms`.
    pub(in super::super) fn of(config: &TopicConfig, now_ms: i64) -> Rules {
        let batch_bytes_max = config.max_message_bytes as usize;
        Rules {
            batch_bytes_max,
            segment_bytes: config.segment_bytes as usize,
            records_bytes_max: records_bytes_max(batch_bytes_max),
            timestamp_type: match config.timestamp_type {
                MessageTimestampType::CreateTime => TimestampType::CreateTime,
                MessageTimestampType::LogAppendTime => TimestampType::LogAppendTime,
            },
            now_ms,
            timestamp_min: now_ms.saturating_sub(config.timestamp_before_max_ms),
            timestamp_max: now_ms.saturating_add(config.timestamp_after_max_ms),
            encoding: encoding(config),
            needs_keys: config.cleanup_compact,
        }
    }
}

fn encoding(config: &TopicConfig) -> Option<Encoding> {
    let of = |compression, level| Some(Encoding { compression, level });
    match config.compression {
        TopicCompression::Producer => None,
        TopicCompression::Uncompressed => Some(Encoding::of(Compression::None)),
        TopicCompression::Gzip => of(Compression::Gzip, config.gzip_level),
        TopicCompression::Snappy => Some(Encoding::of(Compression::Snappy)),
        TopicCompression::Lz4 => of(Compression::Lz4, config.lz4_level),
        TopicCompression::Zstd => of(Compression::Zstd, config.zstd_level),
    }
}

/// What a request could carry that is not compressed is not refused for being compressed
/// well; and a batch that is not compressed is bounded by `max.message.bytes` alone.
fn records_bytes_max(batch_bytes_max: usize) -> usize {
    batch_bytes_max.max(RECORDS_BYTES_MAX)
}
