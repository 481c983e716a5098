//! What a partition accepts from a producer (Kafka's LogValidator for format v2).
//!
//! Cheap checks first: the form of the batch, its sizes, its CRC; then every record
//! is read once, within the batch's bytes, or after a decompression that is bounded.
//! Nothing is allocated for a record. The records are kept as they came.
//!
//! What it is not: it assigns no offsets and knows no state of the partition. The
//! sequence of an idempotent producer's batch is held against what the partition knows
//! of the producer afterwards (`produce.rs`).

use super::produce::ProduceError;
use crate::config::TopicConfig;
use crate::protocol::batch::{
    BatchError, BatchHeader, BatchView, RecordError, RecordErrorKind, RecordIter, TimestampType,
    MAGIC,
};
use crate::protocol::ErrorCode;
use crate::storage::{BatchProducer, LogBatch};
use bytes::Bytes;

/// What the topic's settings and the time allow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// `max.message.bytes`.
    batch_bytes_max: usize,
    /// `segment.bytes`.
    segment_bytes: usize,
    /// The earliest timestamp, from `message.timestamp.before.max.ms`.
    timestamp_min: i64,
    /// The latest timestamp, from `message.timestamp.after.max.ms`.
    timestamp_max: i64,
}

impl Limits {
    /// The limits at the wall-clock time `now_ms`.
    pub(super) fn of(config: &TopicConfig, now_ms: i64) -> Limits {
        Limits {
            batch_bytes_max: config.max_message_bytes as usize,
            segment_bytes: config.segment_bytes as usize,
            timestamp_min: now_ms.saturating_sub(config.timestamp_before_max_ms),
            timestamp_max: now_ms.saturating_add(config.timestamp_after_max_ms),
        }
    }
}

/// A batch that may be appended as it is.
#[derive(Debug)]
pub(super) struct ValidBatch {
    bytes: Bytes,
    header: BatchHeader,
}

impl ValidBatch {
    /// The offset of the last record less that of the first.
    pub(super) fn last_offset_delta(&self) -> i32 {
        self.header.last_offset_delta
    }

    /// The idempotent producer that made it, if one did.
    pub(super) fn producer(&self) -> Option<BatchProducer> {
        BatchProducer::of(&self.header)
    }

    /// The batch with its place in the log.
    pub(super) fn at(self, base_offset: i64, leader_epoch: i32) -> LogBatch {
        LogBatch {
            base_offset,
            last_offset: base_offset + i64::from(self.header.last_offset_delta),
            leader_epoch,
            first_timestamp: self.header.base_timestamp,
            max_timestamp: self.header.max_timestamp,
            producer: self.producer(),
            bytes: self.bytes,
        }
    }
}

/// Checks the records field of one partition of a Produce request: exactly one
/// batch that the topic allows.
pub(super) fn producer_batch(records: Bytes, limits: &Limits) -> Result<ValidBatch, ProduceError> {
    check_size(records.len(), limits)?;
    check_magic(&records)?;
    let view = BatchView::parse_produced(records).map_err(refuse)?;
    let header = *view.header();
    if header.attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Err(ProduceError::new(
            ErrorCode::InvalidTimestamp,
            "a producer may not mark timestamps as LogAppendTime; that is the broker's to do",
        ));
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(ProduceError::new(
            ErrorCode::InvalidRecord,
            format!(
                "a batch with producer id {} has sequence number {}",
                header.producer_id, header.base_sequence
            ),
        ));
    }
    let max_timestamp = check_records(&view, limits)?;
    let (view, header) = if max_timestamp == header.max_timestamp {
        (view, header)
    } else {
        let corrected = view.with_max_timestamp(max_timestamp);
        let header = *corrected.header();
        (corrected, header)
    };
    Ok(ValidBatch {
        bytes: view.into_bytes(),
        header,
    })
}

fn check_size(bytes: usize, limits: &Limits) -> Result<(), ProduceError> {
    if bytes == 0 {
        return Err(ProduceError::new(
            ErrorCode::InvalidRecord,
            "a produce request needs exactly one record batch for each partition; there is none",
        ));
    }
    if bytes > limits.batch_bytes_max {
        return Err(ProduceError::new(
            ErrorCode::MessageTooLarge,
            format!(
                "the batch has {bytes} bytes, max.message.bytes of the topic is {}; send smaller batches or raise it",
                limits.batch_bytes_max
            ),
        ));
    }
    if bytes > limits.segment_bytes {
        return Err(ProduceError::new(
            ErrorCode::RecordListTooLarge,
            format!(
                "the batch has {bytes} bytes, segment.bytes of the topic is {}; send smaller batches or raise it",
                limits.segment_bytes
            ),
        ));
    }
    Ok(())
}

/// Record formats v0 and v1 may be shorter than the header of v2, so they are told
/// apart before anything else is read.
fn check_magic(records: &[u8]) -> Result<(), ProduceError> {
    match records.get(MAGIC_AT) {
        Some(magic) if *magic as i8 != MAGIC => Err(refuse(BatchError::BadMagic(*magic as i8))),
        _ => Ok(()),
    }
}

/// Reads every record. Returns the largest timestamp.
fn check_records(view: &BatchView, limits: &Limits) -> Result<i64, ProduceError> {
    let header = view.header();
    let bytes = view.decompressed(DECOMPRESSED_BYTES_MAX).map_err(refuse)?;
    let mut max_timestamp = NO_TIMESTAMP;
    for (index, record) in RecordIter::new(&bytes, header.record_count).enumerate() {
        let record = record.map_err(|error| refuse(error.into()))?;
        if usize::try_from(record.offset_delta) != Ok(index) {
            let kind = RecordErrorKind::OffsetDelta(record.offset_delta);
            return Err(refuse(RecordError { index, kind }.into()));
        }
        let timestamp = header.timestamp(record.timestamp_delta);
        check_timestamp(timestamp, index, limits)?;
        max_timestamp = max_timestamp.max(timestamp);
    }
    Ok(max_timestamp)
}

fn check_timestamp(timestamp: i64, index: usize, limits: &Limits) -> Result<(), ProduceError> {
    if timestamp == NO_TIMESTAMP
        || (limits.timestamp_min..=limits.timestamp_max).contains(&timestamp)
    {
        return Ok(());
    }
    Err(ProduceError::new(
        ErrorCode::InvalidTimestamp,
        format!(
            "record {index} has timestamp {timestamp}, the topic takes {} to {} now; set the producer's clock, or change message.timestamp.before.max.ms or message.timestamp.after.max.ms",
            limits.timestamp_min, limits.timestamp_max
        ),
    ))
}

fn refuse(error: BatchError) -> ProduceError {
    ProduceError::new(error.error_code(), error.to_string())
}

/// Where every record format has its version.
const MAGIC_AT: usize = 16;

/// A record without a timestamp.
const NO_TIMESTAMP: i64 = -1;

/// What a batch's records may grow to when decompressed: as much as a request can
/// carry that is not compressed.
const DECOMPRESSED_BYTES_MAX: usize = 100 << 20;
