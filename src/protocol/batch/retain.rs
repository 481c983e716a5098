//! A batch without some of its records, as compaction leaves it.
//!
//! What stays as it was: base offset, last offset, sequences, producer, leader epoch,
//! compression, and offset and timestamp of each record. The largest timestamp is that of the
//! records that are left. With a delete horizon (KIP-534) the base timestamp *is* the horizon,
//! and the records' deltas count from there.

use super::compression::{compress_into, CompressError};
use super::rewrite::seal;
use super::varint::{put_varint, put_varlong, take_varint, take_varlong};
use super::{
    BatchError, BatchHeader, BatchView, Compression, Encoding, Pieces, Record, RecordError,
    RecordErrorKind, RecordIter, TimestampType, Timestamps, HEADER_BYTES,
};

impl BatchView {
    /// The batch with those of its records that `keep` says, in their order.
    /// `records` is [`BatchView::decompressed`]; `delete_horizon_ms`, where one is given, is
    /// set. `pause` is awaited between slices of the work.
    ///
    /// # Errors
    /// Records that are none, or a failing compressor.
    pub async fn retained(
        &self,
        records: &[u8],
        mut keep: impl FnMut(&Record<'_>) -> bool,
        delete_horizon_ms: Option<i64>,
        pause: impl AsyncFn(),
    ) -> Result<Self, BatchError> {
        let old = self.header();
        let base_timestamp = delete_horizon_ms.unwrap_or(old.base_timestamp);
        let rebased = base_timestamp != old.base_timestamp;
        let mut plain: Vec<u8> = Vec::new();
        let mut record_count = 0;
        let mut max_timestamp = -1;
        let mut iter = RecordIter::new(records, old.record_count);
        let (mut start, mut paused_at) = (0, 0);
        while let Some(record) = iter.next() {
            let record = record?;
            let end = records.len() - iter.rest_bytes();
            if keep(&record) {
                let raw = &records[start..end];
                match rebased {
                    true => put_rebased(&mut plain, raw, old.base_timestamp, base_timestamp)
                        .ok_or(RecordError {
                            index: record_count as usize,
                            kind: RecordErrorKind::Varint("record"),
                        })?,
                    false => plain.extend_from_slice(raw),
                }
                record_count += 1;
                max_timestamp = max_timestamp.max(old.timestamp(record.timestamp_delta));
            }
            start = end;
            if end - paused_at > PAUSE_BYTES {
                paused_at = end;
                pause().await;
            }
        }
        if record_count == 0 {
            return Ok(self.emptied(delete_horizon_ms));
        }
        let timestamp_type = old.attributes.timestamp_type();
        if timestamp_type == TimestampType::LogAppendTime {
            max_timestamp = old.max_timestamp;
        }
        let compression = old.attributes.compression()?;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + plain.len().min(self.bytes().len()));
        bytes.extend_from_slice(&self.bytes()[..HEADER_BYTES]);
        let len = plain.len();
        compress_into(
            Encoding::of(compression),
            &mut Pieces::new(Compression::None, &plain, len),
            len,
            &mut bytes,
            i32::MAX as usize,
            pause,
        )
        .await
        .map_err(|error| match error {
            CompressError::TooLarge => BatchError::Outgrown(i32::MAX as usize),
            CompressError::Failed(reason) => BatchError::Compress(reason),
            CompressError::Decompress(error) => error.into(),
        })?;
        let attributes = old.attributes;
        let header = BatchHeader {
            attributes: match delete_horizon_ms {
                Some(_) => attributes.with_delete_horizon(true),
                None => attributes,
            },
            base_timestamp,
            record_count,
            ..*old
        };
        let timestamps = Timestamps {
            timestamp_type,
            max_timestamp,
        };
        Ok(seal(bytes, &header, timestamps))
    }

    /// The batch without any record: what it says of its producer and its offsets is left, as
    /// Kafka leaves it (`DefaultRecordBatch.writeEmptyHeader`), and a delete horizon.
    pub fn emptied(&self, delete_horizon_ms: Option<i64>) -> Self {
        let old = self.header();
        let horizon = match delete_horizon_ms {
            None if old.attributes.has_delete_horizon() => Some(old.base_timestamp),
            other => other,
        };
        let header = BatchHeader {
            attributes: old
                .attributes
                .with_compression(Compression::None)
                .with_delete_horizon(horizon.is_some()),
            base_timestamp: horizon.unwrap_or(-1),
            record_count: 0,
            ..*old
        };
        let timestamps = self.timestamps();
        seal(self.bytes()[..HEADER_BYTES].to_vec(), &header, timestamps)
    }
}

/// Adds a record with its timestamp delta counted from another base.
fn put_rebased(out: &mut Vec<u8>, raw: &[u8], old_base: i64, new_base: i64) -> Option<()> {
    let mut rest = raw;
    take_varint(&mut rest)?;
    let (attributes, mut rest) = rest.split_first()?;
    let delta = take_varlong(&mut rest)?;
    let delta = old_base.wrapping_add(delta).wrapping_sub(new_base);
    let mut front = Vec::with_capacity(FRONT_BYTES_MAX);
    front.push(*attributes);
    put_varlong(&mut front, delta);
    let length = i32::try_from(front.len() + rest.len()).ok()?;
    put_varint(out, length);
    out.extend_from_slice(&front);
    out.extend_from_slice(rest);
    Some(())
}

/// A record's attributes and its timestamp delta.
const FRONT_BYTES_MAX: usize = 11;
/// Bytes of records that are gone over without a pause.
const PAUSE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::batch::{BatchBuilder, RECORDS_BYTES_MAX};
    use futures_lite::future::block_on;
    use proptest::prelude::*;

    fn build(compression: Compression, count: usize) -> BatchView {
        let mut builder = BatchBuilder::new()
            .base_offset(70)
            .leader_epoch(4)
            .producer(9, 2, 31)
            .compression(compression);
        for n in 0..count {
            let key = format!("key {n}");
            let value = vec![n as u8; n * 7];
            let headers: [(&str, Option<&[u8]>); 1] = [("h", Some(b"x"))];
            // Not in order, so that the largest may go.
            let timestamp = 1_000 + ((n * 37) % 50) as i64;
            builder.push_with_headers(timestamp, Some(key.as_bytes()), Some(&value), &headers);
        }
        BatchView::parse(builder.build()).unwrap()
    }

    type Seen = (i32, i64, Option<Vec<u8>>, Option<Vec<u8>>, usize);

    fn seen(view: &BatchView) -> Vec<Seen> {
        let bytes = view.decompressed(RECORDS_BYTES_MAX).unwrap();
        RecordIter::new(&bytes, view.header().record_count)
            .map(|record| {
                let record = record.unwrap();
                (
                    record.offset_delta,
                    view.header().timestamp(record.timestamp_delta),
                    record.key.map(<[u8]>::to_vec),
                    record.value.map(<[u8]>::to_vec),
                    record.headers.len(),
                )
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_kept_is_kept_whole_and_nothing_else(
            codec in 0u8..5,
            kept in prop::collection::vec(any::<bool>(), 1..40),
            horizon in prop::option::of(0i64..10_000_000_000_000),
        ) {
            let compression = Compression::from_code(codec).unwrap();
            let old = build(compression, kept.len());
            let records = old.decompressed(RECORDS_BYTES_MAX).unwrap();
            let new = block_on(old.retained(
                &records,
                |record| kept[record.offset_delta as usize],
                horizon,
                async || {},
            )).unwrap();
            new.validate_crc().unwrap();
            let expected: Vec<Seen> = seen(&old).into_iter().filter(|r| kept[r.0 as usize]).collect();
            prop_assert_eq!(seen(&new), expected.clone());
            let (before, after) = (old.header(), new.header());
            prop_assert_eq!(after.base_offset, before.base_offset);
            prop_assert_eq!(after.last_offset_delta, before.last_offset_delta);
            prop_assert_eq!(after.leader_epoch, before.leader_epoch);
            prop_assert_eq!(
                (after.producer_id, after.producer_epoch, after.base_sequence),
                (before.producer_id, before.producer_epoch, before.base_sequence)
            );
            prop_assert_eq!(after.record_count as usize, expected.len());
            prop_assert_eq!(after.attributes.has_delete_horizon(), horizon.is_some());
            if let Some(horizon) = horizon {
                prop_assert_eq!(after.base_timestamp, horizon);
            }
            match expected.iter().map(|r| r.1).max() {
                Some(largest) => {
                    prop_assert_eq!(after.max_timestamp, largest);
                    prop_assert_eq!(after.attributes.compression().unwrap(), compression);
                }
                None => prop_assert_eq!(after.max_timestamp, before.max_timestamp),
            }
        }
    }
}
