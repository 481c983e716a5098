//! [`BatchView`]: one whole batch in refcounted bytes, and [`Batches`]: several.

use bytes::Bytes;

use super::{
    at, decompress, BatchError, BatchHeader, Compression, Pieces, RecordIter, RecordScan,
    HEADER_BYTES,
};

/// One whole batch. That it is one means: header, magic and length are right. What
/// else should hold is asked for check by check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchView {
    bytes: Bytes,
    header: BatchHeader,
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

    /// Reads every record without its content, decompressing on the way: to at most
    /// `limit` bytes, of which one piece is held at a time.
    pub fn scan(&self, limit: usize) -> Result<RecordScan<'_>, BatchError> {
        Ok(RecordScan::new(
            self.pieces(limit)?,
            self.header.record_count,
        ))
    }

    /// The records, decompressed if need be: to be read with
    /// [`RecordIter::new`]`(&bytes, header.record_count)`. More than `limit` bytes are an error.
    pub fn decompressed(&self, limit: usize) -> Result<Bytes, BatchError> {
        match self.header.attributes.compression()? {
            Compression::None => Ok(self.bytes.slice(HEADER_BYTES..)),
            compression => Ok(decompress(compression, self.records_bytes(), limit)?.into()),
        }
    }

    pub(super) fn pieces(&self, limit: usize) -> Result<Pieces<'_>, BatchError> {
        let compression = self.header.attributes.compression()?;
        Ok(Pieces::new(compression, self.records_bytes(), limit))
    }

    /// Of bytes that have this header.
    pub(super) fn of_parts(bytes: Bytes, header: BatchHeader) -> Self {
        debug_assert_eq!(BatchHeader::parse(&bytes).as_ref(), Ok(&header));
        debug_assert_eq!(bytes.len(), header.size_bytes());
        Self { bytes, header }
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
