//! [`BatchView`]: one whole batch in refcounted bytes, and [`Batches`]: several.

use bytes::Bytes;

use super::{
    at, decompress, BatchError, BatchHeader, Compression, RecordError, RecordErrorKind, RecordIter,
    TimestampType, HEADER_BYTES,
};

/// One whole batch. That it is one means: header, magic and length are right. What
/// else should hold is asked for check by check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchView {
    bytes: Bytes,
    header: BatchHeader,
}

/// What a pass over all records of a batch finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordsSummary {
    /// The largest timestamp of a record, ms, and the offset delta of the first record that has it.
    pub max_timestamp: (i64, i32),
    /// Whether every record has a key, as a compacted topic demands.
    pub has_all_keys: bool,
    /// Bytes of the records, decompressed.
    pub records_bytes: usize,
}

impl BatchView {
    /// The batch that `bytes` is: exactly one, to the last byte.
    pub fn parse(bytes: Bytes) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(&bytes)?;
        let (needed, have) = (header.size_bytes(), bytes.len());
        if have < needed {
            return Err(BatchError::Incomplete { needed, have });
        }
        if have > needed {
            return Err(BatchError::Trailing(have - needed));
        }
        Ok(Self { bytes, header })
    }

    /// The batch of a Produce request: one batch, base offset 0, the CRC right, a known
    /// compression, no control batch, as many records as offsets. The records
    /// themselves are not looked at.
    ///
    /// What the CRC covers is judged after it, so that damage on the way is answered as
    /// damage, and tried again.
    pub fn parse_produced(bytes: Bytes) -> Result<Self, BatchError> {
        if bytes.is_empty() {
            return Err(BatchError::Missing);
        }
        let batch = Self::parse(bytes)?;
        if batch.header.base_offset != 0 {
            return Err(BatchError::BaseOffset(batch.header.base_offset));
        }
        batch.validate_crc()?;
        batch.header.attributes.compression()?;
        if batch.header.attributes.is_control() {
            return Err(BatchError::Control);
        }
        batch.header.validate_count()?;
        Ok(batch)
    }

    /// The header.
    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The whole batch, by value.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The records as they are in the batch: compressed or not.
    pub fn records_bytes(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// That the bytes have the CRC that the header says.
    pub fn validate_crc(&self) -> Result<(), BatchError> {
        let computed = crc(&self.bytes);
        if computed == self.header.crc {
            Ok(())
        } else {
            Err(BatchError::BadCrc {
                stored: self.header.crc,
                computed,
            })
        }
    }

    /// A copy with another largest timestamp in the header, and the CRC that goes with
    /// it.
    pub fn with_max_timestamp(&self, max_timestamp: i64) -> Self {
        let mut bytes = self.bytes.to_vec();
        bytes[at::MAX_TIMESTAMP..at::PRODUCER_ID].copy_from_slice(&max_timestamp.to_be_bytes());
        let crc = crc(&bytes);
        bytes[at::CRC..at::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
        Self {
            bytes: bytes.into(),
            header: BatchHeader {
                max_timestamp,
                crc,
                ..self.header
            },
        }
    }

    /// Iterates over the records of a batch that is not compressed; none if it is.
    pub fn records(&self) -> Option<RecordIter<'_>> {
        match self.header.attributes.compression() {
            Ok(Compression::None) => Some(RecordIter::new(
                self.records_bytes(),
                self.header.record_count,
            )),
            _ => None,
        }
    }

    /// The records, decompressed if need be: to be read with
    /// [`RecordIter::new`]`(&bytes, header.record_count)`. More than `limit` bytes are an error.
    pub fn decompressed(&self, limit: usize) -> Result<Bytes, BatchError> {
        match self.header.attributes.compression()? {
            Compression::None => Ok(self.bytes.slice(HEADER_BYTES..)),
            compression => Ok(decompress(compression, self.records_bytes(), limit)?.into()),
        }
    }

    /// Reads every record (decompressed to at most `limit` bytes): all there, well
    /// formed, offset deltas from 0 without a gap, nothing after the last.
    pub fn validate_records(&self, limit: usize) -> Result<RecordsSummary, BatchError> {
        let bytes = self.decompressed(limit)?;
        let mut summary = RecordsSummary {
            max_timestamp: (i64::MIN, 0),
            has_all_keys: true,
            records_bytes: bytes.len(),
        };
        for (index, record) in RecordIter::new(&bytes, self.header.record_count).enumerate() {
            let record = record?;
            if usize::try_from(record.offset_delta) != Ok(index) {
                let kind = RecordErrorKind::OffsetDelta(record.offset_delta);
                return Err(RecordError { index, kind }.into());
            }
            summary.has_all_keys &= record.key.is_some();
            let timestamp = self.header.timestamp(record.timestamp_delta);
            if timestamp > summary.max_timestamp.0 {
                summary.max_timestamp = (timestamp, record.offset_delta);
            }
        }
        Ok(summary)
    }

    /// The first record whose timestamp is at least `timestamp`: its timestamp and
    /// offset. Exact within the batch, for a compressed one after decompression to at
    /// most `limit` bytes.
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        limit: usize,
    ) -> Result<Option<(i64, i64)>, BatchError> {
        if self.header.max_timestamp < timestamp {
            return Ok(None);
        }
        if self.header.attributes.timestamp_type() == TimestampType::LogAppendTime {
            return Ok(Some((self.header.max_timestamp, self.header.base_offset)));
        }
        let bytes = self.decompressed(limit)?;
        for record in RecordIter::new(&bytes, self.header.record_count) {
            let record = record?;
            let found = self.header.timestamp(record.timestamp_delta);
            if found >= timestamp {
                let offset = self.header.base_offset + i64::from(record.offset_delta);
                return Ok(Some((found, offset)));
            }
        }
        Ok(None)
    }
}

/// Iterates over batches that follow each other. Ends after the first error; what a
/// fetch cut off at its end is [`BatchError::Incomplete`].
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
}

impl Batches {
    /// Over all of `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    fn take_batch(&mut self) -> Result<BatchView, BatchError> {
        let header = BatchHeader::parse(&self.rest)?;
        let (needed, have) = (header.size_bytes(), self.rest.len());
        if have < needed {
            return Err(BatchError::Incomplete { needed, have });
        }
        let bytes = self.rest.split_to(needed);
        Ok(BatchView { bytes, header })
    }
}

impl Iterator for Batches {
    type Item = Result<BatchView, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let got = self.take_batch();
        if got.is_err() {
            self.rest.clear();
        }
        Some(got)
    }
}

/// Writes base offset and leader epoch into a batch. The CRC does not cover them.
///
/// # Panics
/// If `batch` is shorter than a header: the caller has parsed it.
pub fn stamp(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    assert!(batch.len() >= HEADER_BYTES, "stamping what is not a batch");
    batch[at::BASE_OFFSET..at::LENGTH].copy_from_slice(&base_offset.to_be_bytes());
    batch[at::LEADER_EPOCH..at::MAGIC].copy_from_slice(&leader_epoch.to_be_bytes());
}

/// The CRC-32C of a batch: of the bytes from the attributes to the end.
pub(super) fn crc(batch: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(&batch[at::ATTRIBUTES..])
}
