//! Reading.
use super::{Log, ReadError};
use bytes::Bytes;

/// Consecutive whole batches, as refcounted slices.
#[derive(Debug, Clone, Default)]
pub struct ReadSlices {
    /// The bytes, in order; a slice may hold several batches.
    pub slices: Vec<Bytes>,
    /// The length of each batch, in order.
    pub batch_bytes: Vec<u32>,
    /// Where to read on: the offset after the last batch, or where the read began.
    pub next_offset: i64,
    /// The sum of the lengths.
    pub bytes: usize,
}

pub(super) struct ReadAhead;

impl Log {
    /// Reads whole batches from the one that holds `from` on, none whose last offset is
    /// at or above `bound`, at most `bytes_max` bytes; the first one whatever its size
    /// if `whole_first_batch`. May return fewer than there are. Empty at or past the
    /// bound; [`ReadError::OutOfRange`] below the log start or above LEO.
    pub async fn read(
        &self,
        from: i64,
        bound: i64,
        bytes_max: usize,
        whole_first_batch: bool,
    ) -> Result<ReadSlices, ReadError> {
        todo!()
    }

    /// About how many bytes lie from `from` up to `bound`, without any I/O; never 0
    /// while `from` is below both the bound and LEO.
    pub fn bytes_between(&self, from: i64, bound: i64) -> u64 {
        todo!()
    }
}
