//! Finding offsets by timestamp.
use super::{Log, ReadError};

/// A record found by its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Its timestamp, milliseconds.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// The leader epoch of its batch.
    pub leader_epoch: i32,
}

impl Log {
    /// The first record below `bound` whose timestamp is at or above `timestamp`.
    pub async fn offset_for_timestamp(
        &self,
        timestamp: i64,
        bound: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        todo!()
    }

    /// The first record below `bound` with the largest timestamp.
    pub async fn offset_of_max_timestamp(
        &self,
        bound: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        todo!()
    }
}
