//! The header of a v2 batch, as far as walking a segment needs it.
//!
//! It checks what can be checked without reading records: magic, length, offsets.
//! The CRC is the loader's and the producer path's business.

use crate::protocol::batch::BatchHeader as ProtocolHeader;

pub(super) use crate::protocol::batch::{stamp, HEADER_BYTES};

/// Where a batch stores its CRC.
const CRC_AT: usize = 17;
/// Where the part of a batch begins that its CRC covers.
pub(super) const CRC_FROM: usize = 21;

/// The fields of a batch's header that the log uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    /// Bytes of the whole batch.
    pub(super) len: u32,
    pub(super) leader_epoch: i32,
    pub(super) max_timestamp: i64,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`. The error is a sentence.
    pub(super) fn parse(bytes: &[u8]) -> Result<BatchHeader, String> {
        let fields = ProtocolHeader::parse(bytes).map_err(|e| e.to_string())?;
        BatchHeader::check(&fields)
    }

    /// Whether the CRC that a whole batch stores is that of its content. `batch` is at least
    /// a header long.
    pub(super) fn crc_matches(batch: &[u8]) -> bool {
        let computed = crc_fast::crc32_iscsi(&batch[CRC_FROM..]);
        batch[CRC_AT..CRC_FROM] == computed.to_be_bytes()
    }

    /// Checks what no batch of a log can have. The error is a sentence.
    pub(super) fn check(header: &ProtocolHeader) -> Result<BatchHeader, String> {
        let (base_offset, last_offset_delta) = (header.base_offset, header.last_offset_delta);
        let last_offset = base_offset.checked_add(i64::from(last_offset_delta));
        let (true, true, Some(last_offset)) =
            (base_offset >= 0, last_offset_delta >= 0, last_offset)
        else {
            return Err(format!(
                "base offset {base_offset} with a last offset delta of {last_offset_delta}"
            ));
        };
        Ok(BatchHeader {
            base_offset,
            last_offset,
            len: header.size_bytes() as u32,
            leader_epoch: header.leader_epoch,
            max_timestamp: header.max_timestamp,
        })
    }
}
