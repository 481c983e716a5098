//! The header of a v2 batch, as far as walking a segment needs it.
//!
//! It checks what can be checked without reading records: magic, length, deltas.
//! The CRC is the loader's and the producer path's business.

/// Bytes before the records of a batch.
pub(super) const HEADER_BYTES: usize = 61;

/// Bytes of a batch that its length field does not count.
pub(super) const LENGTH_OVERHEAD: usize = 12;

/// The fields of a batch's header that the log uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    /// Bytes of the whole batch.
    pub(super) len: u32,
    pub(super) leader_epoch: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which must hold
    /// [`HEADER_BYTES`]. The error is a sentence.
    pub(super) fn parse(bytes: &[u8]) -> Result<BatchHeader, String> {
        debug_assert!(bytes.len() >= HEADER_BYTES);
        let base_offset = i64::from_be_bytes(array(bytes, 0));
        let length = i32::from_be_bytes(array(bytes, 8));
        let magic = bytes[16];
        let last_offset_delta = i32::from_be_bytes(array(bytes, 23));
        if magic != 2 {
            return Err(format!("magic is {magic}, not 2"));
        }
        if length < (HEADER_BYTES - LENGTH_OVERHEAD) as i32 {
            return Err(format!("length {length} is too small for a batch"));
        }
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
            len: length as u32 + LENGTH_OVERHEAD as u32,
            leader_epoch: i32::from_be_bytes(array(bytes, 12)),
            base_timestamp: i64::from_be_bytes(array(bytes, 27)),
            max_timestamp: i64::from_be_bytes(array(bytes, 35)),
        })
    }
}

/// Writes base offset and leader epoch, which the CRC does not cover.
pub(super) fn stamp(batch: &mut [u8], base_offset: i64, leader_epoch: i32) {
    batch[0..8].copy_from_slice(&base_offset.to_be_bytes());
    batch[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
