//! Flushes of a shard.
use super::{FlushError, Log};
use crate::runtime::Rt;

pub(super) struct Flusher;

impl Flusher {
    pub(super) fn new(rt: Rt, in_flight_max: usize) -> Flusher {
        Flusher
    }
}

impl Log {
    /// Makes everything below LEO (as of this call) durable, sharing flushes with
    /// other callers. Returns the flushed offset, at or above that LEO.
    pub async fn flush(&self) -> Result<i64, FlushError> {
        todo!()
    }
}
