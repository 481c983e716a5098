//! The record batch, format v2: view, checks, records, rewriting, builder.
//!
//! The CRC covers byte 21 to the end, so [`stamp`] can set base offset and leader
//! epoch without touching it. Records are read in place, as slices, or scanned a piece
//! at a time ([`BatchView::scan`]); decompression is bounded by the caller's limit.
//!
//! What it is not: it does not know what a partition allows (sizes, acks, sequences).
//! It only tells what the bytes are, and each check is its own function.

mod builder;
mod compression;
mod header;
#[cfg(test)]
mod oracle_tests;
mod record;
mod retain;
mod rewrite;
mod scan;
mod varint;
mod view;

#[cfg(test)]
mod tests;

pub use builder::BatchBuilder;
pub use compression::{compress, decompress, Compression, DecompressError, Encoding, Pieces};
pub use header::{Attributes, BatchHeader, TimestampType};
pub use record::{Header, Headers, Record, RecordError, RecordErrorKind, RecordIter};
pub use rewrite::{RecompressBounds, Timestamps};
pub use scan::{RecordScan, ScannedRecord};
pub use view::{stamp, BatchView, Batches};

use super::error_code::ErrorCode;

/// Bytes of a batch before its records.
pub const HEADER_BYTES: usize = 61;
/// Bytes that the batch's length field does not count: base offset and the length itself.
pub const LENGTH_OVERHEAD_BYTES: usize = 12;
/// The only format that is served.
pub const MAGIC: i8 = 2;
/// What the records of any batch may decompress to, bytes: as much as a request can carry
/// that is not compressed.
pub const RECORDS_BYTES_MAX: usize = 100 << 20;

/// Where the fields of a batch are, in bytes.
mod at {
    pub const BASE_OFFSET: usize = 0;
    pub const LENGTH: usize = 8;
    pub const LEADER_EPOCH: usize = 12;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const BASE_TIMESTAMP: usize = 27;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const PRODUCER_ID: usize = 43;
    pub const PRODUCER_EPOCH: usize = 51;
    pub const BASE_SEQUENCE: usize = 53;
    pub const RECORD_COUNT: usize = 57;
}

/// Bytes that are not a good batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the batch needs: cut off, or not a batch.
    #[error("the batch needs {needed} bytes and there are {have}")]
    Incomplete {
        /// Bytes that it needs, as far as they show.
        needed: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// No bytes at all, where a client sends records.
    #[error("there is no batch, and exactly one is expected")]
    Missing,
    /// A length that no batch has.
    #[error("a batch length of {0} is below that of an empty batch")]
    BadLength(i32),
    /// More bytes than one batch.
    #[error("{0} bytes follow the batch, and only one batch is expected")]
    Trailing(usize),
    /// Another record format.
    #[error("the batch has magic {0}; only record format v2 is served")]
    BadMagic(i8),
    /// The checksum does not fit the bytes.
    #[error("the batch's CRC is {stored:#010x} and its bytes have {computed:#010x}")]
    BadCrc {
        /// What the batch says.
        stored: u32,
        /// What its bytes have.
        computed: u32,
    },
    /// A compression that is not known.
    #[error("compression {0} is not known")]
    UnknownCompression(u8),
    /// Count and last offset delta do not fit each other.
    #[error("the batch claims {count} records and a last offset delta of {last_offset_delta}")]
    CountMismatch {
        /// The count.
        count: i32,
        /// The last offset delta.
        last_offset_delta: i32,
    },
    /// A control batch, where a client sends records.
    #[error("clients may not write control batches")]
    Control,
    /// A base offset that is not zero, where a client sends records.
    #[error("a produced batch starts at offset {0}, not 0")]
    BaseOffset(i64),
    /// Records that cannot be decompressed.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// A record that is not one.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A batch that is too large in the topic's compression.
    #[error("the batch has more than {0} bytes in the compression that the topic asks for (compression.type)")]
    Outgrown(usize),
    /// A compressor that failed, for want of memory perhaps.
    #[error("the batch could not be compressed again: {0}")]
    Compress(String),
}

impl BatchError {
    /// The code that answers it in Produce: CORRUPT_MESSAGE for damage (try again),
    /// INVALID_RECORD for what was wrong from the start, MESSAGE_TOO_LARGE for what some
    /// clients then split. As in Kafka, but for two errors which Kafka only knows as
    /// UNKNOWN_SERVER_ERROR (data that cannot be decompressed, a compression without a
    /// name) and for the limit of decompressed bytes, which it does not have.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            BatchError::BadLength(_) | BatchError::BadCrc { .. } => ErrorCode::CorruptMessage,
            // What never was a format is damage; an old one is refused.
            BatchError::BadMagic(magic) if !(0..MAGIC).contains(magic) => ErrorCode::CorruptMessage,
            BatchError::Decompress(DecompressError::TooLarge { .. }) | BatchError::Outgrown(_) => {
                ErrorCode::MessageTooLarge
            }
            BatchError::Compress(_) => ErrorCode::UnknownServerError,
            // Kafka reads bytes that are no whole batch as no batch at all.
            BatchError::Incomplete { .. }
            | BatchError::Missing
            | BatchError::Trailing(_)
            | BatchError::BadMagic(_)
            | BatchError::UnknownCompression(_)
            | BatchError::CountMismatch { .. }
            | BatchError::Control
            | BatchError::BaseOffset(_)
            | BatchError::Decompress(DecompressError::Malformed { .. })
            | BatchError::Record(_) => ErrorCode::InvalidRecord,
        }
    }
}
