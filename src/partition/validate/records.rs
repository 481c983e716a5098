//! Every record of a batch, against the topic's rules.
//!
//! A record that breaks a rule does not end the scan: the answer names the bad ones
//! (`record_errors`, KIP-467), as far as [`REFUSALS_MAX`] goes. A batch whose format is
//! broken ends it at once, as there is nothing more to read. Nothing is allocated for a good record.

use super::{refuse, ProduceError, Rules};
use crate::protocol::batch::{
    BatchError, BatchView, RecordError, RecordErrorKind, ScannedRecord, TimestampType,
};
use crate::protocol::ErrorCode;
use std::fmt;

/// A record for which its whole batch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRefusal {
    /// The record's place in the batch, from 0.
    pub index: i32,
    /// Which rule it breaks.
    pub reason: RecordRefusalReason,
}

/// Why a record is refused. Shown to the producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordRefusalReason {
    /// It has no key, in a compacted topic.
    NoKey,
    /// Its timestamp is outside the window.
    Timestamp {
        /// The record's, ms.
        timestamp: i64,
        /// The window's start, ms.
        earliest: i64,
        /// The window's end, ms.
        latest: i64,
    },
    /// The producer has marked its timestamps as the broker's.
    LogAppendTime,
}

/// What the records of a good batch have shown.
pub(super) struct Found {
    /// The largest timestamp, ms.
    pub(super) max_timestamp: i64,
    /// Bytes of the records, decompressed.
    pub(super) records_bytes: usize,
}

/// Scans every record. `pause` is awaited between slices of the work.
pub(super) async fn check(
    view: &BatchView,
    rules: &Rules,
    pause: &impl AsyncFn(),
) -> Result<Found, ProduceError> {
    let header = view.header();
    let is_marked = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    let mut scan = view.scan(rules.records_bytes_max).map_err(refuse)?;
    let mut max_timestamp = NO_TIMESTAMP;
    let mut refusals = Refusals::default();
    let mut index = 0;
    let mut pause_bytes = SLICE_BYTES;
    while let Some(record) = scan.next() {
        let record = record.map_err(refuse)?;
        if record.offset_delta != index {
            // Kafka keeps or renumbers these; no client is known to send them.
            return Err(refuse(misplaced(&record, index)));
        }
        let timestamp = header.timestamp(record.timestamp_delta);
        max_timestamp = max_timestamp.max(timestamp);
        if let Some(reason) = rules.reason_against(&record, timestamp, is_marked) {
            refusals.add(RecordRefusal { index, reason });
        }
        index += 1;
        if index % SLICE_RECORDS == 0 || scan.total_bytes() > pause_bytes {
            pause_bytes = scan.total_bytes() + SLICE_BYTES;
            pause().await;
        }
    }
    refusals.into_result(header.record_count)?;
    Ok(Found {
        max_timestamp,
        records_bytes: scan.total_bytes(),
    })
}

impl Rules {
    fn reason_against(
        &self,
        record: &ScannedRecord,
        timestamp: i64,
        is_marked: bool,
    ) -> Option<RecordRefusalReason> {
        if self.needs_keys && !record.has_key {
            return Some(RecordRefusalReason::NoKey);
        }
        if is_marked {
            return Some(RecordRefusalReason::LogAppendTime);
        }
        let (earliest, latest) = (self.timestamp_min, self.timestamp_max);
        let is_out_of_range = self.timestamp_type == TimestampType::CreateTime
            && timestamp != NO_TIMESTAMP
            && !(earliest..=latest).contains(&timestamp);
        is_out_of_range.then_some(RecordRefusalReason::Timestamp {
            timestamp,
            earliest,
            latest,
        })
    }
}

/// The records that were refused so far.
#[derive(Default)]
struct Refusals {
    first: Vec<RecordRefusal>,
    count: usize,
    /// Whether one of them has a bad timestamp.
    timestamps: bool,
}

impl Refusals {
    #[cold]
    fn add(&mut self, refusal: RecordRefusal) {
        self.count += 1;
        self.timestamps |= refusal.reason != RecordRefusalReason::NoKey;
        if self.first.len() < REFUSALS_MAX {
            self.first.push(refusal);
        }
    }

    /// Kafka's rule: one bad timestamp makes it INVALID_TIMESTAMP.
    fn into_result(self, record_count: i32) -> Result<(), ProduceError> {
        let Some(first) = self.first.first() else {
            return Ok(());
        };
        let code = match self.timestamps {
            true => ErrorCode::InvalidTimestamp,
            false => ErrorCode::InvalidRecord,
        };
        let message = format!(
            "{} of {record_count} records are refused; record {}: {}",
            self.count, first.index, first.reason
        );
        Err(ProduceError {
            record_errors: self.first,
            ..ProduceError::new(code, message)
        })
    }
}

#[cold]
fn misplaced(record: &ScannedRecord, index: i32) -> BatchError {
    let kind = RecordErrorKind::OffsetDelta(record.offset_delta);
    let index = index as usize;
    RecordError { index, kind }.into()
}

impl fmt::Display for RecordRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordRefusalReason::NoKey => {
                f.write_str("a compacted topic takes no record without a key")
            }
            RecordRefusalReason::Timestamp {
                timestamp,
                earliest,
                latest,
            } => write!(
                f,
                "timestamp {timestamp} is out of range, the topic takes {earliest} to {latest} now; set the producer's clock, or change message.timestamp.before.max.ms or message.timestamp.after.max.ms"
            ),
            RecordRefusalReason::LogAppendTime => f.write_str(
                "a producer may not mark timestamps as LogAppendTime; that is the broker's to do",
            ),
        }
    }
}

/// Decompressed bytes that are scanned without a pause, unless one record has more.
const SLICE_BYTES: usize = 1 << 20;
/// Records that are scanned without a pause.
const SLICE_RECORDS: i32 = 10_000;

/// A record without a timestamp.
const NO_TIMESTAMP: i64 = -1;

/// How many records an answer names for a batch. Kafka names all of them; a bound keeps
/// a small request from making a large answer.
const REFUSALS_MAX: usize = 32;
