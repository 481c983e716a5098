//! What a broker may change in a batch: timestamps in the header, and the compression
//! (and, when it compacts, which records are left: `retain.rs`).
//!
//! The records keep their bytes: deltas, keys, values and headers are those of the
//! producer, and so are producer id, epoch, sequence and the transactional bit. The
//! CRC is computed anew.

use super::compression::{compress_into, CompressError};
use super::view::crc;
use super::{
    at, BatchError, BatchHeader, BatchView, Encoding, TimestampType, HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
};

/// What a batch's timestamps are to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamps {
    /// Whose time it is.
    pub timestamp_type: TimestampType,
    /// The largest timestamp, ms; under LogAppendTime that of every record.
    pub max_timestamp: i64,
}

/// Bounds for [`BatchView::recompressed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecompressBounds {
    /// Bytes of the records, decompressed, as a scan has found them.
    pub records_bytes: usize,
    /// Bytes that the batch may have then.
    pub batch_bytes_max: usize,
}

impl BatchView {
    /// What the timestamps say now.
    pub fn timestamps(&self) -> Timestamps {
        let header = self.header();
        Timestamps {
            timestamp_type: header.attributes.timestamp_type(),
            max_timestamp: header.max_timestamp,
        }
    }

    /// A copy of the batch with other timestamps in its header.
    pub fn with_timestamps(&self, timestamps: Timestamps) -> Self {
        seal(self.bytes().to_vec(), self.header(), timestamps)
    }

    /// The batch in another compression. `pause` is awaited between slices of the work,
    /// and not at all for a small batch.
    ///
    /// # Errors
    /// [`BatchError::Outgrown`], as soon as that is sure; otherwise only what a scan
    /// would have found, or a failing compressor.
    pub async fn recompressed(
        &self,
        encoding: Encoding,
        timestamps: Timestamps,
        bounds: RecompressBounds,
        pause: impl AsyncFn(),
    ) -> Result<Self, BatchError> {
        let mut pieces = self.pieces(bounds.records_bytes)?;
        let mut bytes = Vec::with_capacity(self.bytes().len().min(bounds.batch_bytes_max));
        bytes.extend_from_slice(&self.bytes()[..HEADER_BYTES]);
        compress_into(
            encoding,
            &mut pieces,
            bounds.records_bytes,
            &mut bytes,
            bounds.batch_bytes_max,
            pause,
        )
        .await
        .map_err(|error| match error {
            CompressError::TooLarge => BatchError::Outgrown(bounds.batch_bytes_max),
            CompressError::Failed(reason) => BatchError::Compress(reason),
            CompressError::Decompress(error) => error.into(),
        })?;
        let attributes = self.header().attributes;
        let header = BatchHeader {
            attributes: attributes.with_compression(encoding.compression),
            ..*self.header()
        };
        Ok(seal(bytes, &header, timestamps))
    }
}

/// Makes the header true of `bytes`, a whole batch that is to have `header` but for its
/// length and its timestamps.
pub(super) fn seal(mut bytes: Vec<u8>, header: &BatchHeader, timestamps: Timestamps) -> BatchView {
    let batch_length = i32::try_from(bytes.len() - LENGTH_OVERHEAD_BYTES)
        .expect("a batch is bounded by max.message.bytes");
    let Timestamps {
        timestamp_type,
        max_timestamp,
    } = timestamps;
    let attributes = header.attributes.with_timestamp_type(timestamp_type);
    let mut set = |place: usize, value: &[u8]| {
        bytes[place..place + value.len()].copy_from_slice(value);
    };
    set(at::LENGTH, &batch_length.to_be_bytes());
    set(at::ATTRIBUTES, &attributes.0.to_be_bytes());
    set(at::BASE_TIMESTAMP, &header.base_timestamp.to_be_bytes());
    set(at::MAX_TIMESTAMP, &max_timestamp.to_be_bytes());
    set(at::RECORD_COUNT, &header.record_count.to_be_bytes());
    let crc = crc(&bytes);
    bytes[at::CRC..at::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    let header = BatchHeader {
        batch_length,
        crc,
        attributes,
        max_timestamp,
        ..*header
    };
    BatchView::of_parts(bytes.into(), header)
}
