//! The fields before a batch's records.

use super::{at, BatchError, Compression, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC};

/// All fields of a batch's header. Copied out, so that it outlives the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Bytes after this field.
    pub batch_length: i32,
    /// Epoch of the leader that appended it; -1 from a producer.
    pub leader_epoch: i32,
    /// CRC-32C of the bytes from the attributes to the end.
    pub crc: u32,
    /// Compression, timestamp type, flags.
    pub attributes: Attributes,
    /// Offset of the last record, less the base offset.
    pub last_offset_delta: i32,
    /// Timestamp of the first record, ms; the delete horizon if the attributes say so.
    pub base_timestamp: i64,
    /// Largest timestamp of a record, ms.
    pub max_timestamp: i64,
    /// -1 without idempotence.
    pub producer_id: i64,
    /// -1 without idempotence.
    pub producer_epoch: i16,
    /// Sequence number of the first record; -1 without idempotence.
    pub base_sequence: i32,
    /// Number of records; fewer than the offsets after compaction.
    pub record_count: i32,
}

/// The attribute bits of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attributes(pub i16);

/// What a batch's timestamps say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// When the producer made each record.
    CreateTime,
    /// When the broker appended the batch: every record has the batch's largest timestamp.
    LogAppendTime,
}

impl BatchHeader {
    /// Reads a header from the first [`HEADER_BYTES`] of `bytes`; the records need not
    /// be there. Checks the magic and that the length is one that a batch can have.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(BatchError::Incomplete {
                needed: HEADER_BYTES,
                have: bytes.len(),
            });
        };
        let magic = header[at::MAGIC] as i8;
        if magic != MAGIC {
            return Err(BatchError::BadMagic(magic));
        }
        let batch_length = i32::from_be_bytes(field(header, at::LENGTH));
        if batch_length < (HEADER_BYTES - LENGTH_OVERHEAD_BYTES) as i32 {
            return Err(BatchError::BadLength(batch_length));
        }
        Ok(Self {
            base_offset: i64::from_be_bytes(field(header, at::BASE_OFFSET)),
            batch_length,
            leader_epoch: i32::from_be_bytes(field(header, at::LEADER_EPOCH)),
            crc: u32::from_be_bytes(field(header, at::CRC)),
            attributes: Attributes(i16::from_be_bytes(field(header, at::ATTRIBUTES))),
            last_offset_delta: i32::from_be_bytes(field(header, at::LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(header, at::BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(header, at::MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(field(header, at::PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(field(header, at::PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(field(header, at::BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(header, at::RECORD_COUNT)),
        })
    }

    /// Bytes of the whole batch.
    pub fn size_bytes(&self) -> usize {
        self.batch_length as usize + LENGTH_OVERHEAD_BYTES
    }

    /// Offset of the last record. Saturates, as no good batch comes near the end.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset after the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Whether the batch is of an idempotent producer.
    pub fn has_producer_id(&self) -> bool {
        self.producer_id >= 0
    }

    /// The timestamp of a record with this delta, ms.
    pub fn timestamp(&self, timestamp_delta: i64) -> i64 {
        match self.attributes.timestamp_type() {
            TimestampType::CreateTime => self.base_timestamp.saturating_add(timestamp_delta),
            TimestampType::LogAppendTime => self.max_timestamp,
        }
    }

    /// That a whole batch carries one record for each offset, and at least one.
    pub fn validate_count(&self) -> Result<(), BatchError> {
        if self.record_count >= 1 && self.record_count - 1 == self.last_offset_delta {
            Ok(())
        } else {
            Err(BatchError::CountMismatch {
                count: self.record_count,
                last_offset_delta: self.last_offset_delta,
            })
        }
    }
}

impl Attributes {
    const COMPRESSION: i16 = 0b111;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;

    /// How the records are compressed.
    pub fn compression(self) -> Result<Compression, BatchError> {
        let code = (self.0 & Self::COMPRESSION) as u8;
        Compression::from_code(code).ok_or(BatchError::UnknownCompression(code))
    }

    /// What the timestamps say.
    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a transaction.
    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch is a transaction marker, or another control record.
    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether the base timestamp is the delete horizon of tombstones (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same with this compression.
    pub fn with_compression(self, compression: Compression) -> Self {
        Self(self.0 & !Self::COMPRESSION | i16::from(compression.code()))
    }

    /// The same with this timestamp type.
    pub fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with(
            Self::LOG_APPEND_TIME,
            timestamp_type == TimestampType::LogAppendTime,
        )
    }

    /// The same, transactional or not.
    pub fn with_transactional(self, is_transactional: bool) -> Self {
        self.with(Self::TRANSACTIONAL, is_transactional)
    }

    /// The same, control or not.
    pub fn with_control(self, is_control: bool) -> Self {
        self.with(Self::CONTROL, is_control)
    }

    /// The same, the base timestamp being a delete horizon or not.
    pub fn with_delete_horizon(self, has_delete_horizon: bool) -> Self {
        self.with(Self::DELETE_HORIZON, has_delete_horizon)
    }

    fn with(self, bit: i16, is_set: bool) -> Self {
        Self(if is_set { self.0 | bit } else { self.0 & !bit })
    }
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], start: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&header[start..start + N]);
    bytes
}
