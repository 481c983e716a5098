//! What a partition accepts from a producer (Kafka's LogValidator for format v2), and
//! what it changes in it.
//!
//! Cheap checks first: the form of the batch, its size, its CRC; then every record is
//! scanned once (`records.rs`), a piece at a time. A batch is kept as it came unless
//! the topic asks for something else:
//! - LogAppendTime, or a largest timestamp that is not true: the header's timestamps
//!   and the CRC change, in a copy of the batch;
//! - `compression.type` names another compression: the records are compressed again,
//!   byte for byte the same once decompressed. The same compression at another level is
//!   left alone.
//!
//! Why a core is not held for long: after each MiB or some thousand records, and between
//! slices of compressing again, others get their turn; the order of offsets is kept by
//! the caller, which validates one batch at a time (`shard/produce.rs`). A small batch is
//! validated without a pause. The records of a batch may decompress to what a request
//! could carry uncompressed (100 MiB); beyond that it is refused (MESSAGE_TOO_LARGE, on
//! which Java's producer splits it), so that one batch does not keep the other producers
//! waiting for long, nor a core if it is a single record (`benches/core` measures that).
//! Compressing again stops once the result exceeds `max.message.bytes`. Memory is bounded
//! by a piece of the records and by the new batch, and what waits to be written larger
//! than it came by a budget of the shard.
//!
//! What it is not: it assigns no offsets and knows no state of the partition. The
//! sequence of an idempotent producer's batch is held against what the partition knows
//! of the producer afterwards (`produce.rs`).

mod records;
mod rules;

#[cfg(test)]
mod tests;

pub use records::{RecordRefusal, RecordRefusalReason};
pub(super) use rules::Rules;

use super::produce::ProduceError;
use crate::protocol::batch::{
    BatchError, BatchHeader, BatchView, RecompressBounds, TimestampType, Timestamps, MAGIC,
};
use crate::protocol::ErrorCode;
use crate::storage::{BatchProducer, LogBatch};
use bytes::Bytes;

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

    /// The time that the broker has set as the records' timestamp; -1 if the producer's stand.
    pub(super) fn log_append_time_ms(&self) -> i64 {
        match self.header.attributes.timestamp_type() {
            TimestampType::CreateTime => -1,
            TimestampType::LogAppendTime => self.header.max_timestamp,
        }
    }

    /// Bytes of the batch.
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The batch with its place in the log.
    pub(super) fn at(self, base_offset: i64, leader_epoch: i32) -> LogBatch {
        LogBatch {
            base_offset,
            last_offset: base_offset + i64::from(self.header.last_offset_delta),
            leader_epoch,
            max_timestamp: self.header.max_timestamp,
            producer: self.producer(),
            bytes: self.bytes,
        }
    }
}

/// Checks the records field of one partition of a Produce request: exactly one
/// batch that the topic allows. Makes of it what the topic wants to have. `pause` is
/// awaited between slices of the work.
pub(super) async fn producer_batch(
    records: Bytes,
    rules: &Rules,
    pause: impl AsyncFn(),
) -> Result<ValidBatch, ProduceError> {
    check_form(&records, rules)?;
    let view = BatchView::parse_produced(records).map_err(refuse)?;
    check_sequence(view.header())?;
    let found = records::check(&view, rules, &pause).await?;
    let timestamps = match rules.timestamp_type {
        TimestampType::CreateTime => found.max_timestamp,
        TimestampType::LogAppendTime => rules.now_ms,
    };
    let timestamps = Timestamps {
        timestamp_type: rules.timestamp_type,
        max_timestamp: timestamps,
    };
    let source = view.header().attributes.compression().map_err(refuse)?;
    let view = match rules.encoding {
        Some(encoding) if encoding.compression != source => {
            let bounds = RecompressBounds {
                records_bytes: found.records_bytes,
                batch_bytes_max: rules.batch_bytes_max,
            };
            view.recompressed(encoding, timestamps, bounds, pause)
                .await
                .map_err(refuse)?
        }
        _ if timestamps != view.timestamps() => view.with_timestamps(timestamps),
        _ => view,
    };
    check_segment(view.bytes().len(), rules)?;
    Ok(ValidBatch {
        header: *view.header(),
        bytes: view.into_bytes(),
    })
}

/// What costs nothing to find out.
fn check_form(records: &[u8], rules: &Rules) -> Result<(), ProduceError> {
    if records.is_empty() {
        return Err(refuse(BatchError::Missing));
    }
    // Record formats v0 and v1 may be shorter than the header of v2, so they are told
    // apart before anything else is read.
    match records.get(MAGIC_AT) {
        Some(magic) if *magic as i8 != MAGIC => {
            return Err(refuse(BatchError::BadMagic(*magic as i8)))
        }
        _ => {}
    }
    let (bytes, bytes_max) = (records.len(), rules.batch_bytes_max);
    if bytes > bytes_max {
        return Err(ProduceError::new(
            ErrorCode::MessageTooLarge,
            format!(
                "the batch has {bytes} bytes, max.message.bytes of the topic is {bytes_max}; send smaller batches or raise it"
            ),
        ));
    }
    Ok(())
}

fn check_sequence(header: &BatchHeader) -> Result<(), ProduceError> {
    if header.has_producer_id() && header.base_sequence < 0 {
        return Err(ProduceError::new(
            ErrorCode::InvalidRecord,
            format!(
                "a batch with producer id {} has sequence number {}",
                header.producer_id, header.base_sequence
            ),
        ));
    }
    Ok(())
}

fn check_segment(bytes: usize, rules: &Rules) -> Result<(), ProduceError> {
    if bytes > rules.segment_bytes {
        return Err(ProduceError::new(
            ErrorCode::RecordListTooLarge,
            format!(
                "the batch has {bytes} bytes, segment.bytes of the topic is {}; send smaller batches or raise it",
                rules.segment_bytes
            ),
        ));
    }
    Ok(())
}

fn refuse(error: BatchError) -> ProduceError {
    ProduceError::new(error.error_code(), error.to_string())
}

/// Where every record format has its version.
const MAGIC_AT: usize = 16;
